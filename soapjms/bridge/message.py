"""A SOAP message as HTTP has it, read and written by the rules of SOAP over JMS: media types, charsets, attachments.

Media type, charset, multipart/related and the SOAP versions are the same for both transports, so the reading is the
protocol's. What HTTP has of its own is here: its charset parameter wins, and a multipart body may have a preamble.

Spec: SOAP 1.2 Part 2 7; WS-I Basic Profile 1.1 3.4; RFC 7303 3; RFC 2046 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from lxml import etree

from brokers.message import Message, MessageType, properties
from soapjms.protocol import names
from soapjms.protocol.attachments import XOP_INCLUDE, Attachment, Attachments, Part
from soapjms.protocol.content import ContentType, agree, decode, detect_encoding, is_known, parse_content_type
from soapjms.protocol.envelope import Envelope, as_envelope, serialize
from soapjms.protocol.errors import InvalidAttachmentError
from soapjms.protocol.limits import Limits
from soapjms.protocol.message_parts import written_body
from soapjms.protocol.names import REC_2012, SoapVersion
from soapjms.protocol.received_message import Reading
from soapjms.protocol.text import shown

OURS: Final = frozenset({"content-type", "content-id", "content-location", "content-transfer-encoding"})
"""Header fields of a part that an `Attachment` has by itself."""

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE: Final = re.compile(r"[ -~\t]*")


# Reading


def read_http(octets: bytes, content_type: str, limits: Limits) -> Reading:
    """Read a body, without content encoding, as the message that it would be over JMS.

    Args:
        octets: the body.
        content_type: as HTTP has it; its charset wins over what an XML declaration says, but not over a byte order
            mark.
        limits: how much is read.

    Spec: RFC 7303 3.
    """
    body: bytes | str = octets
    kind = parse_content_type(content_type)
    if kind.media_type == names.MULTIPART:
        body = _without_preamble(octets, kind.parameters.get("boundary", ""))
    elif kind.charset is not None and is_known(kind.charset) and _is_contradicted(octets, kind.charset):
        try:
            body = decode(octets, kind.charset).removeprefix("\ufeff")
        except ValueError:  # the reading says what is wrong with it
            body = octets
    message = Message(
        message_type=MessageType.TEXT if isinstance(body, str) else MessageType.BYTES,
        body=body,
        properties=properties({names.CONTENT_TYPE: content_type}),
    )
    return Reading(message, REC_2012, limits)


def _is_contradicted(octets: bytes, charset: str) -> bool:
    """Say whether the XML declaration names another encoding than the charset, and no byte order mark decides."""
    seen = detect_encoding(octets)
    return not seen.marked and seen.declared is not None and not agree(seen.declared, charset)


def _without_preamble(octets: bytes, boundary: str) -> bytes:
    """Drop what stands before the first delimiter: often a line break.

    Spec: RFC 2046 5.1.1.
    """
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    start = octets.find(b"\n" + delimiter) + 1
    return octets if octets.startswith(delimiter) or not start else octets[start:]


def soap_version_of(kind: ContentType) -> SoapVersion | None:
    """Return the SOAP version that a content type tells, that of a multipart body by `start-info` or `type`; or None.

    Spec: RFC 2387 3; XOP 1.0 4.1; SOAP Messages with Attachments 3.
    """
    told = (kind.media_type, kind.parameters.get("start-info", ""), kind.parameters.get("type", ""))
    found = (names.VERSION_OF_MEDIA_TYPE.get(parse_content_type(each).media_type) for each in told)
    return next((each for each in found if each is not None), None)


def action_of(kind: ContentType, reading: Reading) -> str | None:
    """Return the parameter `action` of SOAP 1.2: of the whole, else of the SOAP part, else in its `start-info`.

    Spec: RFC 3902; MTOM 3.2.
    """
    part = reading.soap_part
    inner = None if part is None else part.content_type
    kinds = (kind, inner, parse_content_type(kind.parameters.get("start-info", "")))
    found = (each.parameters.get("action") for each in kinds if each is not None)
    return next((each for each in found if each), None)


def taken(root: etree._Element, parts: Attachments) -> tuple[Attachment, ...]:
    """Make attachments to send of parts that came, and point each `xop:Include` to its own.

    Header fields of a part that are no ASCII text are dropped.

    Args:
        root: the envelope, changed where it is.
        parts: what came along.

    Raises:
        InvalidAttachmentError: a part cannot be decoded, or an `xop:Include` leads to none.
        UsageError: a Content-Type or Content-ID that cannot be written again.
    """
    made = [_attachment(part) for part in parts]
    for include in root.iter(XOP_INCLUDE):
        href = include.get("href", "")
        part = parts.find(href)
        position = next((number for number, each in enumerate(parts) if each is part), None)
        if position is None:
            raise InvalidAttachmentError(f"xop:Include refers to {shown(href)}, and no attached part has that name")
        if made[position].content_id is None:
            made[position] = _attachment(parts[position], f"part-{position + 1}@soapjms")
        include.set("href", made[position].reference)
    return tuple(made)


def _attachment(part: Part, content_id: str | None = None) -> Attachment:
    fields = {name: value for name, value in part.fields.items() if name not in OURS and _is_plain(name, value)}
    kind = part.fields.get("content-type")
    more = {} if kind is None else {"content_type": kind}
    return Attachment(
        part.content,
        content_id=part.content_id or content_id,
        content_location=part.content_location,
        fields=fields,
        **more,
    )


def _is_plain(name: str, value: str) -> bool:
    return _TOKEN.fullmatch(name) is not None and _LINE.fullmatch(value) is not None


# Writing


def written(
    root: etree._Element, attachments: Sequence[Attachment] = (), action: str | None = None
) -> tuple[bytes, str]:
    """Return the body for an envelope, in UTF-8, and its content type.

    Raises:
        UsageError, OSError: the attachments do not fit the envelope, or cannot be read.
    """
    body, kind, _ = written_body(as_envelope(root), serialize(root), MessageType.BYTES, action, attachments=attachments)
    assert isinstance(body, bytes), "it is for a BytesMessage"
    return body, kind


def http_form(message: Message, envelope: Envelope, parts: Attachments, action: str | None = None) -> tuple[bytes, str]:
    """Return a message that came over JMS as a body for HTTP, without content encoding, and its content type.

    A BytesMessage with attachments stays as it is. Any other is written anew, in UTF-8: what a TextMessage says of its
    encoding means nothing in octets, and of one part the document and its charset may disagree.

    Raises:
        InvalidAttachmentError, UsageError: what came along cannot be decoded or written again.
    """
    body, kind = message.body, message.properties.text(names.CONTENT_TYPE) or ""
    parsed = parse_content_type(kind)
    is_plain = parsed.problem is None and parsed.media_type == names.MULTIPART and _LINE.fullmatch(kind) is not None
    if is_plain and isinstance(body, bytes | memoryview) and message.properties.text(names.CONTENT_ENCODING) is None:
        return bytes(body), kind
    return written(envelope.root, taken(envelope.root, parts), action)
