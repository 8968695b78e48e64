"""How much of a message a node reads: one frozen object, and the refusal that each limit has.

At a limit a message passes, one more is refused. What is counted here are octets, before a parser sees them; depth is
counted by `soapjms.protocol.xml`, parts and their headers by `soapjms.protocol.attachments`.

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
from soapjms.protocol.errors import UsageError

MIB: Final = 1024 * 1024
MAX_XML_DEPTH: Final = 2000
"""Levels of elements that the parser can be trusted with; libxml2 itself ends at 2048."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a node takes from its peer.

    Attributes:
        size: octets of the body of a BytesMessage, characters of that of a TextMessage.
        depth: levels of elements, the root being the first; at most 2000.
        elements: elements, comments, processing instructions and CDATA sections together.
        attributes: attributes and namespace declarations of one element.
        name: octets of the name of an element or attribute, with its prefix.
        text: octets between two tags, in a CDATA section, or of one attribute value.
        parts: parts of a multipart body, the SOAP part included.
        part_headers: header fields of one part.
        header_octets: octets of all header fields of one part.
        unpacked: octets that a body may have once its content encoding is undone, or that `xop:Include` elements may
            bring in together.
        ratio: how many times its size a body may have once its content encoding is undone, and `xop:Include` elements
            may bring in together; up to a mebibyte any.
        members: gzip members of one body.

    Raises:
        UsageError: a limit is no positive integer, or `depth` is beyond 2000.
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
                raise UsageError(f"the limit {each.name} is {value!r}; it is a positive integer")
        if self.depth > MAX_XML_DEPTH:
            raise UsageError(f"the limit depth is {self.depth}; it is at most {MAX_XML_DEPTH}")

    def excess(self, limit: str, what: str) -> LimitExceededError:
        """Make the refusal of something that goes beyond a limit.

        Args:
            limit: its name here.
            what: has more than it allows, and of what; for people.
        """
        allowed: int = getattr(self, limit)
        return LimitExceededError(Excess(limit, allowed, f"{what}; the limit {limit} is {allowed}"))

    @cached_property
    def harmless(self) -> int:
        """Octets that an XML document may have without any chance to go beyond a limit on markup."""
        return min(7 * self.depth + 3, 4 * self.elements + 6, 5 * self.attributes + 8, self.name + 3, self.text + 7)

    @cached_property
    def short(self) -> int:
        """Octets that a tag with the text after it may have without any chance to go beyond a limit."""
        return min(5 * self.attributes, self.name, self.text)


@dataclass(frozen=True, slots=True)
class Excess:
    """Something that went beyond a limit.

    Attributes:
        limit: the limit's name in `Limits`.
        allowed: its value.
        text: for people.
    """

    limit: str
    allowed: int
    text: str


class LimitExceededError(ValueError):
    """Something that arrived goes beyond a limit. A node turns it into a refusal."""

    def __init__(self, excess: Excess) -> None:
        super().__init__(excess.text)
        self.excess = excess

    def __reduce__(self) -> tuple[object, tuple[Excess]]:
        return type(self), (self.excess,)


DEFAULT_LIMITS: Final = Limits()

# Markup

_ASIDE: Final = re.compile(rb"<!--.*?(?:-->|\Z)|<!\[CDATA\[(.*?)(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)", re.DOTALL)
_TAG: Final = re.compile(rb"""(/?)([^\s<>/="']*+)((?:[^<>"']++|"[^"]*+"|'[^']*+')*+)>?""")
_ATTRIBUTE: Final = re.compile(rb"""(?<![^\s=/"'])([^\s=/"']++)\s*+=\s*+("[^"]*+"|'[^']*+')""")
"""The name begins where one can, so that each octet is looked at once."""


def check_markup(octets: bytes, limits: Limits) -> None:
    """Refuse an XML document with too many elements or attributes, or too long names or text, before it is parsed.

    Only the tags and texts that are long are looked at. A document of up to `limits.harmless` octets breaks no limit.
    Of what is not well-formed the parser tells.

    Args:
        octets: the document, in an encoding that agrees with ASCII on markup.
        limits: what is allowed.

    Raises:
        LimitExceededError: a limit on markup is broken.
    """
    tags = octets
    if len(octets) > 4 * limits.elements:
        tags = _check_elements(octets, limits)
    if _has_long_piece(tags, limits.short):
        if b"<!" in tags or tags.rfind(b"<?") > 0:
            tags = _ASIDE.sub(b"", tags)
        for piece in tags.split(b"<"):
            if len(piece) > limits.short:
                _check_tag(piece, limits)
    if len(octets) > limits.text and any(len(each[1] or b"") > limits.text for each in _ASIDE.finditer(octets)):
        raise limits.excess("text", "a CDATA section has more octets")


def _check_elements(octets: bytes, limits: Limits) -> bytes:
    """Count the elements; return the document, without what is no element if it had to be taken out for that."""
    declared = octets.startswith((b"<?xml ", b"\xef\xbb\xbf<?xml "))
    if octets.count(b"<") - octets.count(b"</") - declared <= limits.elements:
        return octets
    tags, asides = _ASIDE.subn(b"", octets)
    if tags.count(b"<") - tags.count(b"</") + asides - declared > limits.elements:
        raise limits.excess("elements", "the document has more elements")
    return tags


def _has_long_piece(octets: bytes, short: int) -> bool:
    """Say whether a tag with the text after it is longer than `short`: looks at a few octets of each so many."""
    start = 0
    while len(octets) - start > short:
        found = octets.rfind(b"<", start, start + short + 1)
        if found < 0:
            return True
        start = found + 1
    return False


def _check_tag(piece: bytes, limits: Limits) -> None:
    """Check a tag without its opening bracket, and the text after it."""
    tag = _TAG.match(piece)
    assert tag is not None  # it matches anything
    if len(piece) - tag.end() > limits.text:
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
    """Refuse a document that nests too deep, which the parser gave up on.

    Raises:
        LimitExceededError: it does.
    """
    depth = 0
    for closing, empty in _nesting(octets):
        depth -= closing
        if not closing and depth + 1 > limits.depth:
            raise too_deep(limits)
        depth += not closing and not empty


def _nesting(octets: bytes) -> Iterator[tuple[bool, bool]]:
    """Yield for each tag whether it closes, and whether it is an element of its own."""
    for piece in _ASIDE.sub(b"", octets).split(b"<")[1:]:
        tag = _TAG.match(piece)
        assert tag is not None
        yield bool(tag[1]), tag[3].endswith(b"/")


def too_deep(limits: Limits) -> LimitExceededError:
    """Make the refusal of a document that nests too deep."""
    return limits.excess("depth", "the document nests its elements in more levels")
