"""The limits for reading a message: one frozen object, and the refusal for each limit.

A message at a limit passes; one above it is refused. This file counts octets, before a parser sees them;
`soapjms.protocol.xml` counts depth, and `soapjms.protocol.attachments` counts parts and their headers.

Spec: none; SOAP/JMS leaves limits to the implementation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from typing import Final

from brokers.message import MAX_MESSAGE_OCTETS
from soapjms.protocol.errors import SoapJmsError, UsageError

MIB: Final = 1024 * 1024
MAX_XML_DEPTH: Final = 2000
"""Levels of elements that the parser safely handles; the limit of libxml2 itself is 2048."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of what a node accepts from its peer.

    Attributes:
        size: octets of the body of a BytesMessage, characters of the body of a TextMessage.
        depth: levels of elements, the root being the first; at most 2000.
        elements: elements, comments, processing instructions and CDATA sections together.
        attributes: attributes and namespace declarations of one element.
        name: octets of the name of an element or attribute, with its prefix.
        text: octets between two tags, in a CDATA section, or of one attribute value.
        parts: parts of a multipart body, the SOAP part included.
        part_headers: header fields of one part.
        header_octets: octets of all header fields of one part.
        unpacked: octets of a body after its content encoding is undone, or of all content that `xop:Include` elements
            refer to.
        ratio: factor by which a body may grow when its content encoding is undone, or when `xop:Include` elements are
            replaced; does not apply up to one mebibyte.
        members: gzip members of one body.

    Raises:
        UsageError: a limit is not a positive integer, or `depth` is above 2000.
    """

    size: int = MAX_MESSAGE_OCTETS
    depth: int = 100
    elements: int = 250_000
    attributes: int = 1000
    name: int = 1024
    text: int = 32 * MIB
    parts: int = 50
    part_headers: int = 64
    header_octets: int = 16 * 1024
    unpacked: int = 64 * MIB
    ratio: int = 200
    members: int = 1000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"the limit {each.name} must be a positive integer, got {value!r}")
        if self.depth > MAX_XML_DEPTH:
            raise UsageError(f"the limit depth must be at most {MAX_XML_DEPTH}, got {self.depth}")

    def excess(self, limit: str, what: str) -> LimitExceededError:
        """Make the error for a message that exceeds a limit.

        Args:
            limit: the name of the limit, as an attribute of this class.
            what: the start of the error text: which thing has too many or too much of what.
        """
        allowed: int = getattr(self, limit)
        return LimitExceededError(Excess(limit, allowed, f"{what}; the limit {limit} is {allowed}"))

    @cached_property
    def harmless(self) -> int:
        """Octets up to which an XML document cannot exceed any limit on markup."""
        return min(7 * self.depth + 3, 4 * self.elements + 6, 5 * self.attributes + 8, self.name + 3, self.text + 7)

    @cached_property
    def short(self) -> int:
        """Octets up to which a tag with the text after it cannot exceed any limit."""
        return min(5 * self.attributes, self.name, self.text)


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that was exceeded.

    Attributes:
        limit: the name of the limit in `Limits`.
        allowed: the value of the limit.
        text: the description for people.
    """

    limit: str
    allowed: int
    text: str


class LimitExceededError(SoapJmsError, ValueError):
    """A received message exceeds a limit. A node turns this error into a refusal."""

    def __init__(self, excess: Excess) -> None:
        super().__init__(excess.text)
        self.excess = excess

    def __reduce__(self) -> tuple[object, tuple[Excess]]:
        return type(self), (self.excess,)


DEFAULT_LIMITS: Final = Limits()

# Markup

FEW_TAGS: Final = 64
"""Number of tags that are looked for one by one."""

_ASIDE: Final = re.compile(rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[(.*?)(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)", re.DOTALL)
_TAG: Final = re.compile(rb"""(/?)([^\s<>/="']*+)((?:[^<>"']++|"[^"]*+"|'[^']*+')*+)>?""")
_ATTRIBUTE: Final = re.compile(rb"""(?<![^\s=/"'])([^\s=/"']++)\s*+=\s*+("[^"]*+"|'[^']*+')""")
"""A match starts only where a name can start, so that each octet is read once."""


def check_markup(octets: bytes, limits: Limits) -> bool:
    """Refuse an XML document with too many elements or attributes, or too long names or text, before it is parsed.

    Only long tags and texts are examined. A document of up to `limits.harmless` octets exceeds no limit. Markup that is
    not well-formed is left to the parser.

    Args:
        octets: the document, in an encoding that agrees with ASCII on markup.
        limits: the limits.

    Returns:
        Whether the document has so few tags that it cannot exceed the limit on depth.

    Raises:
        LimitExceededError: the document exceeds a limit on markup.
    """
    if limits.elements >= FEW_TAGS and _check_few_tags(octets, limits):
        return limits.depth >= FEW_TAGS
    tags = octets
    if len(octets) > 4 * limits.elements:
        tags = _check_elements(octets, limits)
    if _has_long_piece(tags, limits.short):
        if b"<!" in tags or tags.rfind(b"<?") > 0:
            tags = _ASIDE.sub(b"", tags)
        for piece in tags.split(b"<"):
            _check_piece(piece, 0, len(piece), limits)
    if len(octets) > limits.text and any(len(each[1] or b"") > limits.text for each in _ASIDE.finditer(octets)):
        raise limits.excess("text", "a CDATA section has more octets")
    return False


def _check_few_tags(octets: bytes, limits: Limits) -> bool:
    """Check the tags of a document that has few, and no comments or the like; return False if it was not checked.

    Only the brackets are looked for, so that a large text takes a fortieth of the time of the other checks.
    """
    long = list[tuple[int, int]]()
    find, short, before, tags = octets.find, limits.short, -1, 0
    start = find(b"<")
    while start >= 0:
        if start - before > short:
            long.append((before + 1, start))
        tags += 1
        follows = octets[start + 1 : start + 2]
        if follows == b"!" or (follows == b"?" and start > 0) or tags > FEW_TAGS:
            return False
        before, start = start, find(b"<", start + 1)
    for begin, end in (*long, (before + 1, len(octets))):
        _check_piece(octets, begin, end, limits)
    return True


def _check_elements(octets: bytes, limits: Limits) -> bytes:
    """Check the number of elements; return the document, without comments and the like if they had to be removed."""
    declared = octets.startswith((b"<?xml ", b"\xef\xbb\xbf<?xml "))
    if octets.count(b"<") - octets.count(b"</") - declared <= limits.elements:
        return octets
    tags, asides = _ASIDE.subn(b"", octets)
    if tags.count(b"<") - tags.count(b"</") + asides - declared > limits.elements:
        raise limits.excess("elements", "the document has more elements")
    return tags


def _has_long_piece(octets: bytes, short: int) -> bool:
    """Say whether a tag with the text after it is longer than `short`; most octets are skipped."""
    start = 0
    while len(octets) - start > short:
        found = octets.rfind(b"<", start, start + short + 1)
        if found < 0:
            return True
        start = found + 1
    return False


def _check_piece(octets: bytes, start: int, end: int, limits: Limits) -> None:
    """Check a tag without its opening bracket, and the text after it, unless both are short."""
    if end - start <= limits.short:
        return
    tag = _TAG.match(octets, start, end)
    assert tag is not None  # the expression matches any text
    if end - tag.end() > limits.text:
        raise limits.excess("text", "a text has more octets")
    attributes = [each.groups() for each in islice(_ATTRIBUTE.finditer(tag[3]), limits.attributes + 1)]
    if len(attributes) > limits.attributes:
        raise limits.excess("attributes", f"the element {_shown(tag[2])} has more attributes")
    for name in (tag[2], *(each[0] for each in attributes)):
        if len(name) > limits.name:
            raise limits.excess("name", f"the name {_shown(name)} has more octets")
    for name, value in attributes:
        if len(value) - 2 > limits.text:
            raise limits.excess("text", f"the attribute {_shown(name)} has more octets")


def _shown(name: bytes) -> str:
    return repr(name[:40].decode("utf-8", "replace")) + ("…" if len(name) > 40 else "")


def check_depth(octets: bytes, limits: Limits) -> None:
    """Refuse a document that nests too deep; called when the parser has failed on it.

    Raises:
        LimitExceededError: the document nests too deep.
    """
    depth = 0
    for closing, empty in _nesting(octets):
        depth -= closing
        if not closing and depth + 1 > limits.depth:
            raise too_deep(limits)
        depth += not closing and not empty


def _nesting(octets: bytes) -> Iterator[tuple[bool, bool]]:
    """Yield for each tag whether it is an end tag, and whether it is an empty-element tag."""
    for piece in _ASIDE.sub(b"", octets).split(b"<")[1:]:
        tag = _TAG.match(piece)
        assert tag is not None
        yield bool(tag[1]), tag[3].endswith(b"/")


def too_deep(limits: Limits) -> LimitExceededError:
    """Make the error for a document that nests too deep."""
    return limits.excess("depth", "the document nests its elements in more levels")
