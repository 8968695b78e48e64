"""The one place where XML parsers are made: whatever is parsed may be hostile.

No DTD, no entity, nothing loaded from anywhere, our own limits on depth, number and length. libxml2 gets UTF-8 only,
made by our own table of encodings, so that none hides a document type from us and the reading does not depend on how
libxml2 was built. No other module of soapjms makes a parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

from lxml import etree

from soapjms.protocol.content import decode, document_encoding
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits, check_depth, check_markup, too_deep
from soapjms.protocol.text import named

DOCTYPE: Final = "a document type declaration (DOCTYPE), which is refused: take it out, with the entities it declares"

_DOCTYPE: Final = b"<!DOCTYPE"
_MARKUP: Final = re.compile(  # what may hold the characters of a document type without being one, or a document type
    rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?xml\s[^>]*>|<\?.*?(?:\?>|\Z)|(<!DOCTYPE)", re.DOTALL
)


LARGE_DOCUMENT_OCTETS: Final = 1 << 16
"""Octets of a document that may take all the memory that there is."""

NO_MEMORY: Final = "there is not memory enough to parse {} octets of XML"


class DocumentTypeError(ValueError):
    """The document has a document type declaration."""

    def __init__(self) -> None:
        super().__init__(DOCTYPE)


def _parser() -> etree.XMLParser:
    """Make a parser; what it gets is in UTF-8, whatever its declaration says, and within our limits.

    So libxml2 needs none of its own, which would refuse a text of ten million octets. Each large document has its own
    parser, as lxml lets nobody else use it meanwhile: where memory is short, that may be half a minute.
    """
    return etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, collect_ids=False
    )


_SMALL_DOCUMENTS: Final = _parser()


@lru_cache(maxsize=16)
def _deeper_than(depth: int) -> etree.XPath:
    return etree.XPath(f"boolean({'/*' * (depth + 1)})")


_AMQP: Final = re.compile(rb"\0S[p-x]")
"""How a section of an AMQP message begins."""

WHOLE_AMQP: Final = (
    "not well-formed XML, but a whole AMQP message: ActiveMQ makes this of what came over AMQP, unless that connector "
    "has transport.transformer=jms"
)


def parse(document: bytes | str, charset: str | None = None, limits: Limits = DEFAULT_LIMITS) -> etree._Element:
    """Parse an XML document that may be hostile; its elements know their lines (`sourceline`).

    Args:
        document: octets, or characters, whose declared encoding then says nothing.
        charset: what octets are in that do not tell it themselves; None for UTF-8.
        limits: how much is read.

    Raises:
        LimitExceededError: it goes beyond a limit on markup.
        DocumentTypeError: it has a document type, at its place or elsewhere; nothing was parsed, no entity looked at.
        ValueError: not well-formed, in an encoding that is refused or unknown, or its byte order mark contradicts its
            declaration.
        MemoryError: there is not enough for it, which says nothing of the document.

    Spec: XML 1.0; SOAP 1.1 3; SOAP 1.2 Part 1 5 (no document type).
    """
    if isinstance(document, str):
        octets = document.encode("utf-8")
    else:
        label = document_encoding(document, charset)
        # Of UTF-8 libxml2 finds the octets that are none.
        octets = document if label in ("utf-8", "UTF-8") else decode(document, label).removeprefix("\ufeff").encode()
    if b"!" in octets and _DOCTYPE in octets and any(found[1] for found in _MARKUP.finditer(octets)):
        raise DocumentTypeError
    if len(octets) > limits.harmless:
        check_markup(octets, limits)
    parser = _SMALL_DOCUMENTS
    if len(octets) >= LARGE_DOCUMENT_OCTETS:
        _be_ready_for_errors()
        parser = _parser()
    try:
        root = etree.fromstring(octets, parser)
    except etree.XMLSyntaxError as error:
        # What libxml2 says of memory, lxml calls an unknown error of the document, or keeps no text of it.
        if error.code == etree.ErrorTypes.ERR_NO_MEMORY or error.msg is None:
            raise MemoryError(NO_MEMORY.format(len(octets))) from None
        check_depth(octets, limits)
        if _AMQP.match(octets):
            raise ValueError(WHOLE_AMQP) from None
        raise ValueError(f"not well-formed XML: {named(error)}") from None
    if len(octets) > 7 * limits.depth + 3 and _is_deeper_than(limits.depth, root):  # a level takes 7 octets or more
        raise too_deep(limits)
    return root


def _is_deeper_than(depth: int, root: etree._Element) -> bool:
    try:
        return bool(_deeper_than(depth)(root))
    except etree.XPathEvalError:  # the expression is right, so there was no memory
        raise MemoryError("there is not memory enough to see how deep the XML is") from None


def _be_ready_for_errors() -> None:
    """Have libxml2 make a mistake: it keeps the last error of each thread, and ends the process if there is no room.

    So the room is taken before a document needs all that there is.
    """
    with suppress(etree.XMLSyntaxError):
        etree.fromstring(b"<", _parser())


# Validation


class Misfit(NamedTuple):
    """Where an element does not fit its schema, and why.

    Attributes:
        path: local names from the outermost element on; the second and later ones of a name with their number, as in
            `item[2]`.
        text: what is wrong there, for people.
    """

    path: tuple[str, ...]
    text: str


class Schema:
    """XML Schema documents, compiled. Thread-safe.

    Args:
        documents: by location; all that they import and include has to be among them, nothing is loaded from elsewhere.
        first: the location of the one to begin with.

    Raises:
        ValueError: they make no schema; the text says why.
    """

    def __init__(self, documents: Mapping[str, bytes], first: str) -> None:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        parser.resolvers.add(_Documents(documents))
        try:
            self._schema = etree.XMLSchema(etree.fromstring(documents[first], parser))
        except etree.XMLSchemaParseError as error:
            raise ValueError(named(error)) from None

    def misfit(self, element: etree._Element) -> Misfit | None:
        """Say where an element does not fit, None if it does: the first place, found without looking at the rest.

        libxml2 would go on and note every place, with a path that takes time proportional to the number of elements
        before it. So the element is written and read again, and reading stops at the first.
        """
        watch: Any = _Watch()
        parser = etree.XMLParser(
            target=watch, schema=self._schema, huge_tree=True, resolve_entities=False, no_network=True, load_dtd=False
        )
        watch.parser = parser
        try:
            parser.feed(etree.tostring(element, encoding="utf-8", with_tail=False))
            parser.close()
            watch.look()
        except _MisfitFoundError:
            return Misfit(watch.path, named(_ELEMENT.sub("", watch.found, count=1)))
        return None


_ELEMENT: Final = re.compile(r"^Element '[^']*'(?:: |, (?=attribute))")
"""What an error of libxml2 begins with, which the path says."""


class _Documents(etree.Resolver):
    """Hands out the documents of a schema."""

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self._documents = documents

    def resolve(self, url: str | None, public_id: str | None, context: Any) -> Any:
        return self.resolve_string(self._documents[str(url)], context)


class _MisfitFoundError(Exception):
    """Ends the reading."""


class _Watch:
    """Follows a parser that validates, and stops it after the first event that brought an error.

    Attributes:
        parser: whose errors are looked at.
        path: where the last event was.
        found: the error.
    """

    def __init__(self) -> None:
        self.parser: Any = None
        self.path: tuple[str, ...] = ()
        self.found = ""
        self._open: list[str] = []
        self._counts: list[dict[str, int]] = [{}]

    def look(self) -> None:
        """Stop if there is an error."""
        if log := self.parser.feed_error_log:
            self.found = log[0].message
            raise _MisfitFoundError

    def start(self, tag: str, attributes: object) -> None:
        """Enter an element."""
        self.look()
        name, counts = etree.QName(tag).localname, self._counts[-1]
        counts[tag] = number = counts.get(tag, 0) + 1
        self._open.append(name if number == 1 else f"{name}[{number}]")
        self._counts.append({})
        self.path = tuple(self._open)

    def data(self, text: str) -> None:
        """Take text, which is of the element around it."""
        self.look()
        self.path = tuple(self._open)

    def end(self, tag: str) -> None:
        """Leave an element."""
        self.look()
        self.path = tuple(self._open)
        self._open.pop()
        self._counts.pop()

    def close(self) -> None:
        """End the document."""
