"""Reading a multipart body: its parts are read-only views of the body, decoded at the first access.

Spec: RFC 2046 5.1; RFC 2387; RFC 2392; XOP 1.0; SOAP/JMS 2.4; Protocol-2029.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, overload
from urllib.parse import unquote, urljoin

from lxml import etree

from soapjms.protocol.content import ANY_RATIO, ContentType, encoding_name, is_known, parse_content_type
from soapjms.protocol.errors import InvalidAttachmentError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.text import named, shown

XOP_NAMESPACE: Final = "http://www.w3.org/2004/08/xop/include"
XOP_INCLUDE: Final = f"{{{XOP_NAMESPACE}}}Include"

MAX_BOUNDARY_CHARACTERS: Final = 70  # RFC 2046 5.1.1

MAX_BASE_CHARACTERS: Final = 1024
"""Longest Content-Location of a SOAP part, in characters, that is used as a base; each reference is joined to it."""

Octets = bytes | memoryview

AS_IT_IS: Final = frozenset({"7bit", "8bit", "binary"})
_DECODERS: Final[Mapping[str, Callable[[Octets], bytes]]] = {
    "base64": binascii.a2b_base64,
    "quoted-printable": binascii.a2b_qp,
}
_FOLD: Final = re.compile(r"[\r\n]+[ \t]*")


class Part:
    """One part of a multipart body.

    Attributes:
        fields: the header fields, by name in lower case, unfolded; the first of repeated ones.
        raw: the content in the body: a read-only view, still in its transfer encoding.
        is_text: True for a part of a TextMessage, whose characters `raw` has in UTF-8.
    """

    __slots__ = ("_content", "fields", "is_text", "raw")

    def __init__(self, fields: Mapping[str, str], raw: memoryview, *, is_text: bool = False) -> None:
        self.fields = fields
        self.raw = raw
        self.is_text = is_text
        self._content: Octets | None = None

    @property
    def content_type(self) -> ContentType | None:
        """The Content-Type, or None."""
        text = self.fields.get("content-type")
        return None if text is None else parse_content_type(text)

    @property
    def charset(self) -> str | None:
        """The charset parameter of the Content-Type, or None."""
        kind = self.content_type
        return None if kind is None else kind.charset

    @property
    def content_id(self) -> str | None:
        """The Content-ID without its angle brackets, or None."""
        return _unbracketed(self.fields.get("content-id"))

    @property
    def content_location(self) -> str | None:
        """The Content-Location, or None."""
        return self.fields.get("content-location")

    @property
    def transfer_encoding(self) -> str:
        """The Content-Transfer-Encoding in lower case; `binary` if absent."""
        return self.fields.get("content-transfer-encoding", "binary").lower()

    @property
    def content(self) -> Octets:
        """The octets: a view of the body if they need no decoding, else decoded, once.

        Raises:
            InvalidAttachmentError: the transfer encoding is unknown, or the content is not valid in it.

        Spec: RFC 2045 6.
        """
        if self._content is None:
            self._content = self._decoded()
        return self._content

    def _decoded(self) -> Octets:
        encoding = self.transfer_encoding
        if encoding in AS_IT_IS:
            return self._in_charset() if self.is_text else self.raw
        decoder = _DECODERS.get(encoding)
        if decoder is None:
            known = ", ".join(sorted({*AS_IT_IS, *_DECODERS}))
            raise InvalidAttachmentError(
                f"{self}: the Content-Transfer-Encoding is {shown(encoding)}; known are {known}"
            )
        try:
            return decoder(self.raw)
        except ValueError as error:
            raise InvalidAttachmentError(f"{self}: the content is no {encoding}: {error}") from None

    @property
    def document(self) -> bytes | str:
        """The content for an XML parser: characters in a TextMessage, unless transfer-encoded; else octets.

        Raises:
            ValueError: see `content`.
        """
        if self.is_text and self.transfer_encoding in AS_IT_IS:
            return str(self.raw, "utf-8")
        return bytes(self.content)

    def _in_charset(self) -> Octets:
        """Encode the characters of a TextMessage in the charset that the part names; in UTF-8 if that fails."""
        charset = self.charset
        if charset is None or not is_known(charset):
            return self.raw
        name = encoding_name(charset)
        try:
            return self.raw if name == "utf-8" else str(self.raw, "utf-8").encode(name)
        except ValueError:
            return self.raw

    def __str__(self) -> str:
        name = self.content_id or self.content_location
        return f"the part {shown(name)}" if name else "a part without Content-ID"

    def __repr__(self) -> str:
        kind = self.fields.get("content-type")
        return f"Part({self.content_id!r}, {kind!r}, {len(self.raw)} octets, {self.transfer_encoding})"


def _unbracketed(text: str | None) -> str | None:
    return None if text is None else text.removeprefix("<").removesuffix(">")


class Attachments(Sequence[Part]):
    """The parts of a message beside its SOAP part, in order; empty for a message that is not multipart.

    Args:
        parts: the parts.
        root: the SOAP part.
        limits: the limits for `expand`.
    """

    def __init__(self, parts: Sequence[Part] = (), root: Part | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._parts = tuple(parts)
        self._root = root
        self._limits = limits

    @overload
    def __getitem__(self, position: int) -> Part: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Part]: ...
    def __getitem__(self, position: int | slice) -> Part | Sequence[Part]:
        return self._parts[position]

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, reference: str) -> Part | None:
        """Return the first part that a reference names, or None.

        Args:
            reference: `cid:` with a Content-ID, or the URI of a part's Content-Location, which may be relative to that
                of the SOAP part.

        Spec: RFC 2392 2; SOAP Messages with Attachments 3.
        """
        ids, locations = self._names
        scheme, colon, name = reference.partition(":")
        if colon and scheme.lower() == "cid":
            found = [ids[each] for each in (unquote(name), name) if each in ids]
            return self._candidates[min(found)] if found else None
        position = locations.get(self._absolute(reference)) if locations else None
        return None if position is None else self._candidates[position]

    @cached_property
    def _candidates(self) -> tuple[Part, ...]:
        return self._parts if self._root is None else (*self._parts, self._root)

    @cached_property
    def _names(self) -> tuple[dict[str, int], dict[str, int]]:
        """The first part of each Content-ID and Content-Location, indexed, as a message may have many references."""
        ids: dict[str, int] = {}
        locations: dict[str, int] = {}
        for position, part in enumerate(self._candidates):
            if part.content_id is not None:
                ids.setdefault(part.content_id, position)
            if part.content_location is not None:
                locations.setdefault(self._absolute(part.content_location), position)
        return ids, locations

    def _absolute(self, reference: str) -> str:
        base = "" if self._root is None else self._root.content_location or ""
        try:
            return urljoin(base if len(base) <= MAX_BASE_CHARACTERS else "", reference)
        except ValueError:  # not a URI: compared as it is
            return reference

    def octets_of(self, element: etree._Element) -> Octets:
        """Return the octets of an element of type xs:base64Binary: of the included part, or its own text decoded.

        Args:
            element: an element with an `xop:Include` as its only child, or with base64 text; or the `xop:Include`.

        Raises:
            InvalidAttachmentError: a reference leads to no part or back to the SOAP part, there is other content beside
                the `xop:Include`, or the text is not base64.

        Spec: XOP 1.0 3.2.
        """
        include = element if element.tag == XOP_INCLUDE else next(element.iterchildren(XOP_INCLUDE), None)
        if include is not None:
            return self._included(include)
        try:
            return binascii.a2b_base64("".join((element.text or "").split()), strict_mode=True)
        except ValueError as error:
            raise InvalidAttachmentError(f"the text of {named(element.tag)} is no base64: {error}") from None

    def _included(self, include: etree._Element) -> Octets:
        href = include.get("href")
        if href is None:
            raise InvalidAttachmentError("xop:Include has no href; it refers to a part as cid:CONTENT-ID")
        parent = include.getparent()
        if parent is not None and (len(parent) > 1 or (parent.text or "").strip() or (include.tail or "").strip()):
            raise InvalidAttachmentError(f"xop:Include {shown(href)} is not alone in {named(parent.tag)}")
        part = self.find(href)
        if part is None:
            raise InvalidAttachmentError(f"xop:Include refers to {shown(href)}, and no part has that Content-ID")
        if part is self._root:
            raise InvalidAttachmentError(f"xop:Include refers to {shown(href)}, the part that it stands in: a loop")
        return part.content

    def expand(self, element: etree._Element) -> etree._Element:
        """Replace every `xop:Include` below an element with base64 text, and return the element.

        Raises:
            InvalidAttachmentError: see `octets_of`; or the included content has more octets than the limits `unpacked`
                and `ratio` allow for a message of this size.

        Spec: XOP 1.0 3.2.
        """
        own = sum(len(each.raw) for each in self._parts) + (0 if self._root is None else len(self._root.raw))
        most = min(self._limits.unpacked, max(self._limits.ratio * own, ANY_RATIO))
        size = 0
        for include in list(element.iter(XOP_INCLUDE)):
            octets, parent = self._included(include), include.getparent()
            if parent is None:
                raise InvalidAttachmentError("an xop:Include stands for the content of an element, and is in none")
            size += len(octets)
            if size > most:
                raise InvalidAttachmentError(f"xop:Include elements bring in more than {most} octets")
            parent.remove(include)
            parent.text = b64encode(octets).decode("ascii")
        return element


@dataclass(frozen=True, slots=True)
class Multipart:
    """A multipart body that was read.

    Attributes:
        first: the first part, which must be the SOAP part by SOAP/JMS.
        root: the SOAP part: the one that `start` names, else the first.
        attachments: the other parts.
    """

    first: Part
    root: Part
    attachments: Attachments


@lru_cache(maxsize=64)
def _patterns(boundary: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    delimiter = rb"--" + re.escape(boundary.encode("utf-8"))
    line_end = rb"[ \t]*+(?=\r?\n|\Z)"
    return re.compile(delimiter + line_end), re.compile(rb"\n" + delimiter + rb"(--)?" + line_end)


def read_multipart(body: Octets | str, kind: ContentType, limits: Limits = DEFAULT_LIMITS) -> Multipart:
    """Read a multipart body. Content after the closing delimiter is dropped.

    Args:
        body: octets, of which the parts become views, or characters.
        kind: the content type, with the parameter `boundary` and possibly `start`.
        limits: the limits on parts and their headers.

    Raises:
        LimitExceededError: there are too many parts, or a part has too many or too long header fields.
        ValueError: there is no boundary, the body does not begin with its delimiter, or the closing delimiter is
            missing.

    Spec: RFC 2046 5.1; RFC 2387 3; SOAP/JMS 2.4; Protocol-2029.
    """
    boundary = kind.parameters.get("boundary")
    if not boundary:
        raise ValueError("multipart/related without a boundary parameter")
    if len(boundary) > MAX_BOUNDARY_CHARACTERS:
        raise ValueError(f"the boundary has {len(boundary)} characters; it has 1 to {MAX_BOUNDARY_CHARACTERS}")
    is_text = isinstance(body, str)
    view = memoryview(body.encode("utf-8") if isinstance(body, str) else body).toreadonly()
    parts = [_read_part(piece, limits, is_text) for piece in _split(view, boundary, limits)]
    start = _unbracketed(kind.parameters.get("start"))
    root = next((each for each in parts if start is not None and each.content_id == start), parts[0])
    others = Attachments([each for each in parts if each is not root], root, limits)
    return Multipart(parts[0], root, others)


def _split(body: memoryview, boundary: str, limits: Limits) -> list[memoryview]:
    """Return the pieces between the delimiters: header fields, blank line, content."""
    first, following = _patterns(boundary)
    begin = first.match(body)
    if begin is None:
        wanted = f"the delimiter of the boundary {shown(boundary)}"
        if not body:
            raise ValueError(f"the body is empty: it has to begin with {wanted}")
        raise ValueError(f"the body begins with {shown(bytes(body[:40]))}, not with {wanted}")
    pieces: list[memoryview] = []
    position = begin.end()
    for delimiter in following.finditer(body, position):
        if len(pieces) == limits.parts:
            raise limits.excess("parts", "the multipart body has more parts")
        pieces.append(_without_line_breaks(body[position : delimiter.start() + 1]))
        if delimiter[1]:
            return pieces
        position = delimiter.end()
    raise ValueError(
        f"the closing delimiter {shown(f'--{boundary}--')} is missing: the body is cut short, or has another boundary"
    )


def _without_line_breaks(piece: memoryview) -> memoryview:
    """Remove the line breaks after the preceding and before the following delimiter; they may be the same one."""
    begin = 2 if piece[0] == CR else 1
    end = len(piece) - (2 if len(piece) > 1 and piece[-2] == CR else 1)
    return piece[begin : max(begin, end)]


CR: Final = 0x0D
_BLANK_LINE: Final = re.compile(rb"(?:\A|\n)\r?\n")


def _read_part(piece: memoryview, limits: Limits, is_text: bool) -> Part:
    """Spec: RFC 2046 5.1."""
    blank = _BLANK_LINE.search(piece[: limits.header_octets + 4])
    head = bytes(piece[: limits.header_octets + 4 if blank is None else blank.start()]).removesuffix(b"\r")
    if len(head) > limits.header_octets:
        raise limits.excess("header_octets", "the header fields of a part have more octets")
    fields, number = (_known_fields if len(head) <= MAX_KNOWN_OCTETS else _fields_of)(head)
    if number > limits.part_headers:
        raise limits.excess("part_headers", "a part has more header fields")
    return Part(dict(fields), piece[len(piece) :] if blank is None else piece[blank.end() :], is_text=is_text)


MAX_KNOWN_OCTETS: Final = 512
"""Size of header fields up to which they are remembered: parts of many messages have the same ones."""


def _fields_of(head: bytes) -> tuple[dict[str, str], int]:
    """Return header fields, the first of each name, and how many there are; those that are no UTF-8 are of Latin-1.

    Spec: RFC 5322 2.2; RFC 6532 3.
    """
    from email.parser import HeaderParser

    try:
        text = head.decode()
    except UnicodeDecodeError:
        text = head.decode("latin-1")
    message = HeaderParser().parsestr(text)
    fields: dict[str, str] = {}
    for name, value in message.items():
        fields.setdefault(name.lower(), _FOLD.sub(" ", value).strip())
    return fields, len(message)


_known_fields: Final = lru_cache(maxsize=256)(_fields_of)
