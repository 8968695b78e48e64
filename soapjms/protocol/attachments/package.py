"""Writing a multipart body: SOAP with Attachments, or MTOM if the envelope has an `xop:Include`.

The same message is always written in the same way: a boundary has a number, counted up until it occurs in no part.

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
from soapjms.protocol.text import reason_of

ROOT_ID: Final = "envelope@soapjms"
"""Content-ID of the SOAP part: unique in its message, and only referred to by `start`."""

XMIME_TYPE: Final = "{http://www.w3.org/2005/05/xmlmime}contentType"
UNKNOWN_TYPE: Final = "application/octet-stream"


class ReadsBytes(Protocol):
    """An object whose octets are elsewhere, such as a `pathlib.Path`. They are read when the message is made."""

    def read_bytes(self) -> bytes:
        """Return the octets."""


Content = bytes | bytearray | memoryview | ReadsBytes

_ID: Final = re.compile(r"[!#-;=?-~]+")  # printable ASCII without quotes, angle brackets and space
_FIELD: Final = re.compile(r"[!-9;-~]+")

ONE_LINE: Final = re.compile(r"[ -~\t]*")
"""What the value of a header field may be: ASCII on one line."""
OWN_FIELDS: Final = frozenset({"content-type", "content-id", "content-location", "content-transfer-encoding"})
"""Header fields of a part that an `Attachment` holds in attributes of its own."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment to send with an envelope.

    Args:
        content: the octets, or an object to read them from, such as a Path; copied when the message is made.
        content_type: the media type, with parameters.
        content_id: the name for `cid:` references, without angle brackets; unique in the message.
        content_location: a URI for references instead.
        fields: other header fields of its part, such as Content-Disposition.

    Raises:
        UsageError: `content` is neither octets nor can be read, or a value is not possible in a header field.

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
            raise UsageError(f"the content of an attachment must be octets or a pathlib.Path, got {kind}")
        problem = parse_content_type(self.content_type).problem
        if problem is not None or not ONE_LINE.fullmatch(self.content_type):
            raise UsageError(f"content_type must be a media type, got {self.content_type!r}: {problem or 'one line'}")
        for name, value in (("content_id", self.content_id), ("content_location", self.content_location)):
            if value is not None and not _ID.fullmatch(value):
                raise UsageError(f"{name} must be printable ASCII without space, quotes and <>, got {value!r}")
        for name, value in self.fields.items():
            if name.lower() in OWN_FIELDS or not _FIELD.fullmatch(name) or not ONE_LINE.fullmatch(value):
                raise UsageError(f"fields must be header fields that soapjms does not set, got {name!r}: {value!r}")

    @property
    def reference(self) -> str:
        """The `cid:` URI that refers to the attachment in an envelope.

        Raises:
            UsageError: the attachment has no Content-ID.

        Spec: RFC 2392 2.
        """
        if self.content_id is None:
            raise UsageError("an attachment must have a content_id to be referred to")
        return "cid:" + quote(self.content_id, safe="@!$'()*+,;:=&/?~")

    def include(self) -> etree._Element:
        """Make an `xop:Include` for the content, to be the only child of an element of type xs:base64Binary.

        Raises:
            UsageError: the attachment has no Content-ID.

        Spec: XOP 1.0 2.1.
        """
        return etree.Element(XOP_INCLUDE, {"href": self.reference}, nsmap={"xop": XOP_NAMESPACE})

    def octets(self) -> Octets:
        """Return the content, reading it now if it is elsewhere.

        Raises:
            UsageError: it cannot be read.
        """
        content = self.content
        if isinstance(content, bytes):
            return content
        if isinstance(content, bytearray | memoryview):
            view = memoryview(content)
            return view.cast("B") if view.c_contiguous else view.tobytes()
        try:
            return content.read_bytes()
        except OSError as error:
            raise UsageError(f"the attachment {content} cannot be read: {reason_of(error)}") from error


def optimize(elements: Iterable[etree._Element], *, prefix: str = "binary") -> tuple[Attachment, ...]:
    """Move the base64 text of elements into attachments, and put an `xop:Include` in its place, for MTOM.

    Args:
        elements: elements of type xs:base64Binary, changed in place. The attribute xmime:contentType gives the type.
        prefix: starts the Content-IDs, which are numbered.

    Raises:
        UsageError: the text of an element is not base64; no element is changed then.

    Spec: XOP 1.0 3.1.
    """
    found: list[tuple[etree._Element, Attachment]] = []
    for number, element in enumerate(elements, 1):
        try:
            octets = binascii.a2b_base64("".join((element.text or "").split()), strict_mode=True)
        except ValueError as error:
            raise UsageError(f"the text of {element.tag!s} must be base64: {error}") from None
        if len(element):
            raise UsageError(f"{element.tag!s} must hold base64 text only, got child elements")
        name = f"{prefix}-{number}@soapjms"
        found.append((element, Attachment(octets, element.get(XMIME_TYPE, UNKNOWN_TYPE), name)))
    for element, attachment in found:
        element.text = None
        element.append(attachment.include())
    return tuple(attachment for _, attachment in found)


def attachments_given(attachments: Sequence[Attachment] | None) -> Sequence[Attachment]:
    """Return the attachments that a caller gave; None counts as none.

    Raises:
        UsageError: it is not a sequence of attachments.
    """
    if attachments is None:
        return ()
    if not isinstance(attachments, Sequence) or not all(isinstance(each, Attachment) for each in attachments):
        raise UsageError(f"attachments must be a list of soapjms.Attachment, got {reprlib.repr(attachments)}")
    return attachments


# The body


def packaged(
    root: bytes | str,
    root_type: str,
    envelope: Envelope,
    attachments: Sequence[Attachment],
    boundary: str | None = None,
) -> tuple[bytes | str, str]:
    """Return a multipart body and its content type: MTOM if the envelope has an `xop:Include`, else SwA.

    A BytesMessage has binary parts. In a TextMessage, content that is not text is in base64.

    Args:
        root: the SOAP part, as it would be the body without attachments: octets or characters.
        root_type: the content type of the SOAP part.
        envelope: the SOAP part, parsed.
        attachments: the attachments, in the order of their parts after the SOAP part.
        boundary: a boundary to use; None to choose one.

    Raises:
        UsageError: `attachments` is not a list of attachments, two have the same Content-ID, an `xop:Include` refers to
            none of them, the content of one cannot be read, or `boundary` is not valid or occurs in a part.

    Spec: SOAP/JMS 2.4; MTOM 3; RFC 2387 3; Protocol-2015, 2029.
    """
    attachments = attachments_given(attachments)
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
        raise UsageError(f"each Content-ID must be unique and not {ROOT_ID!r}, got {', '.join(ids)}")
    known = {each.reference for each in attachments if each.content_id is not None}
    for href in includes:
        if href not in known:
            raise UsageError(f"xop:Include refers to {href!r}; attached are {', '.join(sorted(known)) or 'none'}")


def _types(root_type: str, *, is_xop: bool) -> tuple[str, str]:
    """Return the content type of the SOAP part, and the resulting parameters for the multipart body."""
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
    """Return the transfer encoding and content for a TextMessage: ASCII or declared UTF-8 text as it is, else base64.

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
    """Return the numbered boundary with the lowest number that occurs in no part; each part is searched once."""
    used = {int(found[1]) for part in parts for found in _CANDIDATE.finditer(part)}
    number = next(number for number in range(1, len(used) + 2) if number not in used)
    return f"soapjms_part_{number}_"


def _checked_boundary(boundary: str, parts: Iterable[Octets]) -> str:
    """Spec: RFC 2046 5.1.1."""
    if len(boundary) > MAX_BOUNDARY_CHARACTERS or not _BOUNDARY.fullmatch(boundary):
        raise UsageError(f"the boundary must be 1 to 70 letters, digits and '()+_,-./:=?, got {boundary!r}")
    delimiter = re.compile(b"--" + re.escape(boundary.encode("ascii")))
    if any(delimiter.search(part) for part in parts):
        raise UsageError(f"the boundary must not occur in a part, got {boundary!r}; omit it to have one chosen")
    return boundary


def _joined(parts: Sequence[Octets], boundary: str) -> bytes:
    delimiter = b"--" + boundary.encode("ascii")
    pieces: list[Octets] = []
    for head, content in zip(parts[::2], parts[1::2], strict=True):
        pieces += (delimiter, b"\r\n", head, content, b"\r\n")
    return b"".join((*pieces, delimiter, b"--"))
