"""The only place where XML parsers are made; every document may be hostile.

No DTD, no entities, no loading of other documents, our own limits on depth, number and length. libxml2 gets UTF-8 only,
decoded by our own table of encodings, so that no encoding hides a document type, and the result does not depend on how
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

XSD: Final = "http://www.w3.org/2001/XMLSchema"
"""The namespace of XML Schema."""
WHITE_SPACE: Final = " \t\r\n"
"""The characters that XML counts as white space."""
UNCARRIED: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
"""The characters that XML cannot hold, for a class of a pattern."""

DEFAULT_PREFIX: Final = "#default"
"""What stands for the default namespace in a list of prefixes. Spec: Exclusive XML Canonicalization 3."""

DOCTYPE: Final = "a document type declaration (DOCTYPE), which is refused: take it out, with the entities it declares"

_DOCTYPE: Final = b"<!DOCTYPE"
_MARKUP: Final = re.compile(  # a document type, or markup that may hold its characters without being one
    rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?xml\s[^>]*>|<\?.*?(?:\?>|\Z)|(<!DOCTYPE)", re.DOTALL
)


LARGE_DOCUMENT_OCTETS: Final = 1 << 16
"""Octets from which on a document may use up the memory."""

NO_MEMORY: Final = "there is not enough memory to parse {} octets of XML"


class DocumentTypeError(ValueError):
    """The document has a document type declaration."""

    def __init__(self) -> None:
        super().__init__(DOCTYPE)


class NotWellFormedError(ValueError):
    """The document is not well-formed.

    Attributes:
        place: the line and the column at which the parser stopped, both from 1 on; columns are characters.
    """

    def __init__(self, problem: str, place: tuple[int, int]) -> None:
        super().__init__(f"not well-formed XML: {named(problem)}")
        self.place = place


def _parser() -> etree.XMLParser:
    """Make a parser for documents in UTF-8, whatever their declaration says, that are within our limits.

    libxml2's own limits are off, as they would refuse a text of ten million octets. Each large document gets its own
    parser, as lxml locks a parser while it is in use: if memory is short, that may be half a minute.
    """
    return etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, collect_ids=False
    )


_SMALL_DOCUMENTS: Final = _parser()


@lru_cache(maxsize=16)
def _deeper_than(depth: int) -> etree.XPath:
    return etree.XPath(f"boolean({'/*' * (depth + 1)})")


_AMQP: Final = re.compile(rb"\0S[p-x]")
"""The start of a section of an AMQP message."""

WHOLE_AMQP: Final = (
    "not well-formed XML, but a whole AMQP message: ActiveMQ makes this of what came over AMQP, unless that connector "
    "has transport.transformer=jms"
)


def parse(document: bytes | str, charset: str | None = None, limits: Limits = DEFAULT_LIMITS) -> etree._Element:
    """Parse an XML document that may be hostile; its elements have their line numbers (`sourceline`).

    Args:
        document: octets, or characters; the declared encoding of characters is ignored.
        charset: the encoding of octets that do not show it themselves; None for UTF-8.
        limits: the limits for reading.

    Raises:
        LimitExceededError: the document exceeds a limit on markup.
        DocumentTypeError: the document has a document type, at its place or elsewhere; nothing was parsed.
        NotWellFormedError: the document is not well-formed.
        ValueError: it is no XML at all, its encoding is refused or unknown, or its byte order mark
            contradicts its declaration.
        MemoryError: there is not enough memory, which says nothing about the document.

    Spec: XML 1.0; SOAP 1.1 3; SOAP 1.2 Part 1 5 (no document type).
    """
    if isinstance(document, str):
        octets = document.encode("utf-8")
    else:
        label = document_encoding(document, charset)
        # libxml2 itself finds octets that are not valid UTF-8.
        octets = document if label in ("utf-8", "UTF-8") else decode(document, label).removeprefix("\ufeff").encode()
    return parse_utf8(octets, limits)


def parse_utf8(octets: bytes, limits: Limits) -> etree._Element:
    """Parse a hostile document in UTF-8, without looking for its encoding; see `parse`."""
    if b"!" in octets and _DOCTYPE in octets and any(found[1] for found in _MARKUP.finditer(octets)):
        raise DocumentTypeError
    is_shallow = len(octets) <= limits.harmless or check_markup(octets, limits)
    parser = _SMALL_DOCUMENTS
    if len(octets) >= LARGE_DOCUMENT_OCTETS:
        _be_ready_for_errors()
        parser = _parser()
    try:
        root = etree.fromstring(octets, parser)
    except etree.XMLSyntaxError as error:
        # lxml reports libxml2's lack of memory as an unknown error of the document, or without a text.
        if error.code == etree.ErrorTypes.ERR_NO_MEMORY or error.msg is None:
            raise MemoryError(NO_MEMORY.format(len(octets))) from None
        check_depth(octets, limits)
        if _AMQP.match(octets):
            raise ValueError(WHOLE_AMQP) from None
        raise NotWellFormedError(error.msg, error.position) from None
    if not is_shallow and _is_deeper_than(limits.depth, root):
        raise too_deep(limits)
    return root


def parse_own(octets: bytes) -> etree._Element:
    """Parse a document in UTF-8 that this program wrote, without limits."""
    return etree.fromstring(octets, _SMALL_DOCUMENTS if len(octets) < LARGE_DOCUMENT_OCTETS else _parser())


def parse_canonical(octets: bytes) -> etree._Element:
    """Parse a document in UTF-8 that this program wrote, whose canonical form heeds `#default` as a prefix.

    lxml leaves out a prefix that it has met nowhere, and no document can have this one: so it is told to look for it.

    Spec: Exclusive XML Canonicalization 3, InclusiveNamespaces.
    """
    parser = etree.XMLPullParser(("end",), tag=DEFAULT_PREFIX, resolve_entities=False, no_network=True, huge_tree=True)
    parser.feed(octets)
    return parser.close()


def _is_deeper_than(depth: int, root: etree._Element) -> bool:
    try:
        return bool(_deeper_than(depth)(root))
    except etree.XPathEvalError:  # the expression is correct, so memory was lacking
        raise MemoryError("there is not enough memory to see how deep the XML is") from None


def _be_ready_for_errors() -> None:
    """Cause an error in libxml2: it stores the last error of each thread, and aborts if it cannot allocate the space.

    So the space is allocated before a document uses up the memory.
    """
    with suppress(etree.XMLSyntaxError):
        etree.fromstring(b"<", _parser())


# Validation


class Misfit(NamedTuple):
    """Where an element does not fit its schema, and why.

    Attributes:
        path: local names from the outermost element on; the second and later elements of one name have a number, as in
            `item[2]`.
        text: what is wrong there, for people.
    """

    path: tuple[str, ...]
    text: str


class Schema:
    """XML Schema documents, compiled. Thread-safe.

    Args:
        documents: the documents by location, including all that they import and include; no others are loaded.
        first: the location of the main document.

    Raises:
        ValueError: the documents are not a valid schema; the text says why.
    """

    def __init__(self, documents: Mapping[str, bytes], first: str) -> None:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        parser.resolvers.add(_Documents(documents))
        try:
            self._schema = etree.XMLSchema(etree.fromstring(documents[first], parser))
        except etree.XMLSchemaParseError as error:
            raise ValueError(named(error)) from None

    def misfit(self, element: etree._Element) -> Misfit | None:
        """Return the first place where an element does not fit, without checking the rest; None if it fits.

        libxml2 would go on and note every misfit, with a path that takes time proportional to the number of elements
        before it. So the element is serialized and parsed again, and parsing stops at the first misfit.
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
"""The start of an error of libxml2, which `Misfit.path` makes superfluous."""


class _Documents(etree.Resolver):
    """Resolves the locations of a schema's documents."""

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self._documents = documents

    def resolve(self, url: str | None, public_id: str | None, context: Any) -> Any:
        return self.resolve_string(self._documents[str(url)], context)


class _MisfitFoundError(Exception):
    """Stops the parsing."""


class _Watch:
    """Follows a parser that validates, and stops it after the first event that brought an error.

    Attributes:
        parser: the parser whose errors are checked.
        path: the path of the last event.
        found: the text of the error.
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
        """Take text of the current element."""
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
