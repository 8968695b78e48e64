"""Putting a multipart body together: SOAP with Attachments, or MTOM where the envelope has an `xop:Include`.

What is written is the same for the same message: a boundary is counted up until it occurs in no part.

Spec: SOAP/JMS 2.4; SOAP Messages with Attachments; MTOM 3; XOP 1.0 4; RFC 2046 5.1; RFC 2387; Protocol-2015, 2029.
"""

from __future__ import annotations

import binascii
import re
import reprlib
from base64 import encodebytes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Final, Protocol
from urllib.parse import quote

from lxml import etree

from soapjms.protocol import names
from soapjms.protocol.attachments.parts import MAX_BOUNDARY_CHARACTERS, XOP_INCLUDE, XOP_NAMESPACE, Octets
from soapjms.protocol.content import encoding_name, parse_content_type
from soapjms.protocol.envelope import Envelope
from soapjms.protocol.errors import UsageError

ROOT_ID: Final = "envelope@soapjms"
"""Content-ID of the SOAP part: unique in its message, and referred to by `start` only."""

XMIME_TYPE: Final = "{http://www.w3.org/2005/05/xmlmime}contentType"
UNKNOWN_TYPE: Final = "application/octet-stream"


class ReadsBytes(Protocol):
    """What has its octets elsewhere, as a `pathlib.Path` has. They are read when the message is made."""

    def read_bytes(self) -> bytes:
        """Return the octets."""


Content = bytes | bytearray | memoryview | ReadsBytes

_ID: Final = re.compile(r"[!#-;=?-~]+")  # printable ASCII but quotes, angle brackets and space
_FIELD: Final = re.compile(r"[!-9;-~]+")
_LINE: Final = re.compile(r"[ -~\t]*")
_OURS: Final = frozenset({"content-type", "content-id", "content-location", "content-transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Attachment:
    """Something to send along with an envelope.

    Args:
        content: the octets, or where they are, such as a Path; a copy is made when the message is.
        content_type: its media type, with parameters.
        content_id: what `cid:` references name it by, without angle brackets; unique in the message.
        content_location: a URI that references may name it by instead.
        fields: other header fields of its part, such as Content-Disposition.

    Raises:
        UsageError: a content that is neither octets nor a place of some; a value that cannot stand in a header field.

    Spec: RFC 2045 7; RFC 2392; RFC 2557 4.
    """

    content: Content
    content_type: str = UNKNOWN_TYPE
    content_id: str | None = None
    _: KW_ONLY
    content_location: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.content, bytes | bytearray | memoryview) and not hasattr(self.content, "read_bytes"):
            kind = type(self.content).__name__
            raise UsageError(f"the content of an attachment is of the type {kind}; it is octets, or a pathlib.Path")
        problem = parse_content_type(self.content_type).problem
        if problem is not None or not _LINE.fullmatch(self.content_type):
            raise UsageError(f"the content type of an attachment is {self.content_type!r}: {problem or 'one line'}")
        for name, value in (("content_id", self.content_id), ("content_location", self.content_location)):
            if value is not None and not _ID.fullmatch(value):
                raise UsageError(f"{name} is {value!r}; it is printable ASCII without space, quotes and <>")
        for name, value in self.fields.items():
            if name.lower() in _OURS or not _FIELD.fullmatch(name) or not _LINE.fullmatch(value):
                raise UsageError(f"the field {name!r}: {value!r} is one that is written anyway, or no header field")

    @property
    def reference(self) -> str:
        """The `cid:` URI that refers to it in an envelope.

        Raises:
            UsageError: it has no Content-ID.

        Spec: RFC 2392 2.
        """
        if self.content_id is None:
            raise UsageError("an attachment is referred to by its content_id, and this one has none")
        return "cid:" + quote(self.content_id, safe="@!$'()*+,;:=&/?~")

    def include(self) -> etree._Element:
        """Make an `xop:Include` that stands for the content: the only child of an element of type xs:base64Binary.

        Raises:
            UsageError: it has no Content-ID.

        Spec: XOP 1.0 2.1.
        """
        return etree.Element(XOP_INCLUDE, {"href": self.reference}, nsmap={"xop": XOP_NAMESPACE})

    def octets(self) -> Octets:
        """Return the content, read now if it is elsewhere."""
        content = self.content
        if isinstance(content, bytes):
            return content
        if isinstance(content, bytearray | memoryview):
            view = memoryview(content)
            return view.cast("B") if view.c_contiguous else view.tobytes()
        return content.read_bytes()


def optimize(elements: Iterable[etree._Element], *, prefix: str = "binary") -> tuple[Attachment, ...]:
    """Move the base64 text of elements into attachments, and leave an `xop:Include` in its place, for MTOM.

    Args:
        elements: of type xs:base64Binary, changed where they are. The attribute xmime:contentType gives the type.
        prefix: the Content-IDs begin with it, and are counted.

    Raises:
        UsageError: the text of one is no base64; then none is changed.

    Spec: XOP 1.0 3.1.
    """
    found: list[tuple[etree._Element, Attachment]] = []
    for number, element in enumerate(elements, 1):
        try:
            octets = binascii.a2b_base64("".join((element.text or "").split()), strict_mode=True)
        except ValueError as error:
            raise UsageError(f"the text of {element.tag!s} is no base64: {error}") from None
        if len(element):
            raise UsageError(f"{element.tag!s} has child elements; base64 text stands alone")
        name = f"{prefix}-{number}@soapjms"
        found.append((element, Attachment(octets, element.get(XMIME_TYPE, UNKNOWN_TYPE), name)))
    for element, attachment in found:
        element.text = None
        element.append(attachment.include())
    return tuple(attachment for _, attachment in found)


# The body


def packaged(
    root: bytes | str,
    root_type: str,
    envelope: Envelope,
    attachments: Sequence[Attachment],
    boundary: str | None = None,
) -> tuple[bytes | str, str]:
    """Return a multipart body and its content type: MTOM if the envelope has an `xop:Include`, else SwA.

    A BytesMessage has binary parts. In a TextMessage what is not text is in base64.

    Args:
        root: the SOAP part as it would be the body without attachments: octets or characters.
        root_type: its content type.
        envelope: the same, parsed.
        attachments: what goes along, in this order after the SOAP part.
        boundary: of the caller's own choice.

    Raises:
        UsageError: no list of attachments; two with one Content-ID, an `xop:Include` that refers to none of them, or a
            boundary that is none or occurs in a part.
        OSError: an attachment that is elsewhere could not be read.

    Spec: SOAP/JMS 2.4; MTOM 3; RFC 2387 3; Protocol-2015, 2029.
    """
    if not isinstance(attachments, Sequence) or not all(isinstance(each, Attachment) for each in attachments):
        raise UsageError(f"attachments is {reprlib.repr(attachments)}; it is a list of soapjms.Attachment")
    includes = [each.get("href") for each in envelope.root.iter(XOP_INCLUDE)]
    _check_references(includes, attachments)
    is_text = isinstance(root, str)
    kind, outer = _types(root_type, is_xop=bool(includes))
    octets = root.encode("utf-8") if isinstance(root, str) else root
    parts: list[Octets] = [_head(kind, "8bit" if is_text else "binary", ROOT_ID), octets]
    for each in attachments:
        encoding, content = _encoded(each) if is_text else ("binary", each.octets())
        parts += [_head(each.content_type, encoding, each.content_id, each.content_location, each.fields), content]
    boundary = _unused_boundary(parts) if boundary is None else _checked_boundary(boundary, parts)
    body = _joined(parts, boundary)
    return body.decode("utf-8") if is_text else body, f"{names.MULTIPART}; boundary={_quoted(boundary)}; {outer}"


def _check_references(includes: list[str | None], attachments: Sequence[Attachment]) -> None:
    ids = [each.content_id for each in attachments if each.content_id is not None]
    if len({ROOT_ID, *ids}) <= len(ids):
        raise UsageError(f"each part has a Content-ID of its own, and none is {ROOT_ID!r}; given were {', '.join(ids)}")
    known = {each.reference for each in attachments if each.content_id is not None}
    for href in includes:
        if href not in known:
            raise UsageError(f"xop:Include refers to {href!r}; attached are {', '.join(sorted(known)) or 'none'}")


def _types(root_type: str, *, is_xop: bool) -> tuple[str, str]:
    """Return the content type of the SOAP part, and the parameters of the whole that follow from it."""
    kind = parse_content_type(root_type)
    soap = kind.media_type
    action = kind.parameters.get("action")
    shown = "" if action is None else f"; action={_quoted(action)}"
    start = f"start={_quoted(f'<{ROOT_ID}>')}"
    if not is_xop:
        return root_type, f"type={_quoted(soap)}; {start}{shown}"
    inner = f"{names.XOP}; charset={kind.charset}; type={_quoted(soap)}{shown}"
    return inner, f"type={_quoted(names.XOP)}; {start}; start-info={_quoted(soap)}{shown}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _head(
    kind: str,
    encoding: str,
    content_id: str | None,
    location: str | None = None,
    fields: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    lines = [f"Content-Type: {kind}", f"Content-Transfer-Encoding: {encoding}"]
    lines += [] if content_id is None else [f"Content-ID: <{content_id}>"]
    lines += [] if location is None else [f"Content-Location: {location}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("utf-8")


def _encoded(attachment: Attachment) -> tuple[str, Octets]:
    """Put content into characters: text in ASCII or declared UTF-8 as it is, anything else in base64.

    Spec: SOAP/JMS 2.4.1; RFC 2045 6.
    """
    octets = attachment.octets()
    kind = parse_content_type(attachment.content_type)
    if kind.media_type.startswith("text/"):
        label = "utf-8" if encoding_name(kind.charset or "us-ascii") == "utf-8" else "ascii"
        try:
            str(octets, label)
        except ValueError:
            return "base64", _base64(octets)
        return "8bit", octets
    return "base64", _base64(octets)


def _base64(octets: Octets) -> bytes:
    return encodebytes(octets).replace(b"\n", b"\r\n").removesuffix(b"\r\n")


_CANDIDATE: Final = re.compile(rb"--soapjms_part_([0-9]{1,9})_")
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]*[0-9A-Za-z'()+_,\-./:=?]")


def _unused_boundary(parts: Iterable[Octets]) -> str:
    """Return the first boundary, counting up, that occurs in no part: each part is looked through once."""
    used = {int(found[1]) for part in parts for found in _CANDIDATE.finditer(part)}
    number = next(number for number in range(1, len(used) + 2) if number not in used)
    return f"soapjms_part_{number}_"


def _checked_boundary(boundary: str, parts: Iterable[Octets]) -> str:
    """Spec: RFC 2046 5.1.1."""
    if len(boundary) > MAX_BOUNDARY_CHARACTERS or not _BOUNDARY.fullmatch(boundary):
        raise UsageError(f"the boundary is {boundary!r}; it has 1 to 70 letters, digits and '()+_,-./:=?")
    delimiter = re.compile(b"--" + re.escape(boundary.encode("ascii")))
    if any(delimiter.search(part) for part in parts):
        raise UsageError(f"the boundary {boundary!r} occurs in a part; leave it out to have one that does not")
    return boundary


def _joined(parts: Sequence[Octets], boundary: str) -> bytes:
    delimiter = b"--" + boundary.encode("ascii")
    pieces: list[Octets] = []
    for head, content in zip(parts[::2], parts[1::2], strict=True):
        pieces += (delimiter, b"\r\n", head, content, b"\r\n")
    return b"".join((*pieces, delimiter, b"--"))
