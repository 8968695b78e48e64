"""Reads and writes SOAP messages of HTTP by the rules of SOAP over JMS: media types, charsets, attachments.

Media type, charset, multipart/related and SOAP versions are the same for both transports, so the protocol reads them.
Only what is special to HTTP is here: its charset parameter wins, and a multipart body may have a preamble.

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
from soapjms.protocol.attachments.package import ONE_LINE, OWN_FIELDS
from soapjms.protocol.content import ContentType, agree, decode, detect_encoding, is_known, parse_content_type
from soapjms.protocol.envelope import Envelope, as_envelope, serialize
from soapjms.protocol.errors import InvalidAttachmentError
from soapjms.protocol.limits import Limits
from soapjms.protocol.message_parts import written_body
from soapjms.protocol.names import REC_2012, SoapVersion
from soapjms.protocol.received_message import Reading
from soapjms.protocol.text import shown

GZIP: Final = frozenset({"gzip", "x-gzip"})
"""Content encodings that are unpacked."""

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


# Reading


def read_http(octets: bytes, content_type: str, limits: Limits) -> Reading:
    """Read a body, without content encoding, as the message that it would be over JMS.

    Args:
        octets: the body.
        content_type: the Content-Type of HTTP; its charset wins over an XML declaration, but not over a byte order
            mark.
        limits: limits for reading.

    Spec: RFC 7303 3.
    """
    body: bytes | str = octets
    kind = parse_content_type(content_type)
    if kind.media_type == names.MULTIPART:
        body = _without_preamble(octets, kind.parameters.get("boundary", ""))
    elif kind.charset is not None and is_known(kind.charset) and _is_contradicted(octets, kind.charset):
        try:
            body = decode(octets, kind.charset).removeprefix("\ufeff")
        except ValueError:  # the Reading says what is wrong with the body
            body = octets
    message = Message(
        message_type=MessageType.TEXT if isinstance(body, str) else MessageType.BYTES,
        body=body,
        properties=properties({names.CONTENT_TYPE: content_type}),
    )
    return Reading(message, REC_2012, limits)


def _is_contradicted(octets: bytes, charset: str) -> bool:
    """Say whether the XML declaration contradicts the charset and there is no byte order mark."""
    seen = detect_encoding(octets)
    return not seen.marked and seen.declared is not None and not agree(seen.declared, charset)


def _without_preamble(octets: bytes, boundary: str) -> bytes:
    """Drop everything before the first delimiter; often that is a line break.

    Spec: RFC 2046 5.1.1.
    """
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    start = octets.find(b"\n" + delimiter) + 1
    return octets if octets.startswith(delimiter) or not start else octets[start:]


def soap_version_of(kind: ContentType) -> SoapVersion | None:
    """Return the SOAP version of a content type, for a multipart body that of `start-info` or `type`; or None.

    Spec: RFC 2387 3; XOP 1.0 4.1; SOAP Messages with Attachments 3.
    """
    told = (kind.media_type, kind.parameters.get("start-info", ""), kind.parameters.get("type", ""))
    found = (names.VERSION_OF_MEDIA_TYPE.get(parse_content_type(each).media_type) for each in told)
    return next((each for each in found if each is not None), None)


def action_of(kind: ContentType, reading: Reading) -> str | None:
    """Return SOAP 1.2's `action` parameter: of the content type, else of the SOAP part, else of `start-info`; or None.

    Spec: RFC 3902; MTOM 3.2.
    """
    part = reading.soap_part
    inner = None if part is None else part.content_type
    kinds = (kind, inner, parse_content_type(kind.parameters.get("start-info", "")))
    found = (each.parameters.get("action") for each in kinds if each is not None)
    return next((each for each in found if each), None)


def taken(root: etree._Element, parts: Attachments) -> tuple[Attachment, ...]:
    """Make attachments to send from received parts, and point each `xop:Include` to its attachment.

    Header fields of a part that are not ASCII text are dropped.

    Args:
        root: the envelope, which is changed in place.
        parts: the received parts.

    Raises:
        InvalidAttachmentError: a part cannot be decoded, or an `xop:Include` refers to no part.
        UsageError: a Content-Type or Content-ID cannot be written again.
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
    fields = {name: value for name, value in part.fields.items() if name not in OWN_FIELDS and _is_plain(name, value)}
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
    return _TOKEN.fullmatch(name) is not None and ONE_LINE.fullmatch(value) is not None


# Writing


def written(
    root: etree._Element, attachments: Sequence[Attachment] = (), action: str | None = None
) -> tuple[bytes, str]:
    """Return the body of an envelope, in UTF-8, and its content type.

    Raises:
        UsageError: the attachments do not fit the envelope.
        OSError: an attachment cannot be read.
    """
    body, kind, _ = written_body(as_envelope(root), serialize(root), MessageType.BYTES, action, attachments=attachments)
    assert isinstance(body, bytes), "it is for a BytesMessage"
    return body, kind


def http_form(message: Message, envelope: Envelope, parts: Attachments, action: str | None = None) -> tuple[bytes, str]:
    """Return the HTTP body, without content encoding, and the content type of a message received over JMS.

    A BytesMessage with attachments is kept as it is. Any other message is written anew, in UTF-8: the encoding that a
    TextMessage declares does not apply to octets, and in a body without parts document and charset may disagree.

    Raises:
        InvalidAttachmentError, UsageError: an attachment cannot be decoded or written again.
    """
    body, kind = message.body, message.properties.text(names.CONTENT_TYPE) or ""
    parsed = parse_content_type(kind)
    is_plain = parsed.problem is None and parsed.media_type == names.MULTIPART and ONE_LINE.fullmatch(kind) is not None
    if is_plain and isinstance(body, bytes | memoryview) and message.properties.text(names.CONTENT_ENCODING) is None:
        return bytes(body), kind
    return written(envelope.root, taken(envelope.root, parts), action)
