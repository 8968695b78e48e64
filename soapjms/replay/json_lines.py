"""Usual lines of capture logs, read straight into columns: no object is made that a column does not need.

Every line that is read here is one that `soapjms.protocol.record.from_json` reads, with the same content. Whatever may
not be such a line is left to it, and so are records with members that few have.

Spec: capture record, version 1, "JSON Lines".
"""

from __future__ import annotations

from binascii import a2b_base64
from hashlib import sha256
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from brokers.message import DestinationKind, MessageType, PropertyType
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import FLAGS, Direction, Node, may_have_too_many_parts, parse_time, read_properties
from soapjms.replay.columns import ListValues, RecordRow, list_values, meta_values, plain_values
from soapjms.replay.flat_records import microseconds

Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Scalar: TypeAlias = str | bool | Long | float | None


class _Members(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An object; a member that is not named makes the line unusual."""


class _Destination(_Members):
    kind: DestinationKind
    name: str | None = None


class _Headers(_Members):
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: _Destination | None = None
    delivery_mode: Long | None = None
    priority: Long | None = None
    expiration: Long | None = None
    timestamp: Long | None = None
    type: str | None = None
    redelivered: bool | None = None


class _Line(_Members):
    v: Literal[1]
    time: str
    message_type: MessageType
    direction: Direction | None = None
    node: Node | None = None
    destination: _Destination | None = None
    jms: _Headers | None = None
    properties: dict[str, Scalar] | None = None
    types: dict[str, str] | None = None
    untyped: bool | None = None
    body: str | None = None
    truncated: bool | None = None
    sha256: str | None = None
    meta: dict[str, Scalar] | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode
NO_HEADERS: Final = _Headers()
PLAIN_VALUES: Final = frozenset({str, bool})
"""The types of values whose JSON tells the type of a property."""


def usual_row(number: int, octets: bytes) -> RecordRow | None:
    """Read a line; return None if it is unusual, or no record.

    Args:
        number: the number of the line.
        octets: all of the line.
    """
    if may_have_too_many_parts(octets):
        return None
    try:
        line = _decode(octets)
        body = _body(line)
        properties = _properties(line)
        time = microseconds(parse_time(line.time))
    except (msgspec.MsgspecError, ValueError, InvalidRecordError, RecursionError):  # ValueError: UTF-8, base64
        return None
    values = plain_values(number, time, line, line, line.jms or NO_HEADERS, body, None)
    return RecordRow(values, properties, meta_values(line.meta or {}), len(octets))


def _body(line: _Line) -> bytes | None:
    """Return the body as octets.

    Raises:
        ValueError: it is not certain that it is a valid body of usual form.
    """
    if line.body is None:
        return None
    if line.message_type is MessageType.TEXT:
        body = line.body.encode()
    elif line.message_type is MessageType.BYTES:
        body = a2b_base64(line.body, strict_mode=True)
    else:
        raise ValueError(line.message_type)
    if line.sha256 is not None and not line.truncated and sha256(body).hexdigest() != line.sha256.lower():
        raise ValueError(line.sha256)
    return body


def _properties(line: _Line) -> ListValues:
    values = line.properties or {}
    if line.types or not PLAIN_VALUES.issuperset(map(type, values.values())):
        return list_values(read_properties(values, line.types or {}))
    kinds = [PropertyType.STRING if type(each) is str else PropertyType.BOOLEAN for each in values.values()]
    return [*values], kinds, [each if type(each) is str else FLAGS[bool(each)] for each in values.values()]
