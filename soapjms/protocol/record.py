"""A captured message as one line of a capture log, both ways.

The format is fixed; tools elsewhere write it. What cannot be read raises InvalidRecordError with the member, what was
seen and what is accepted; nothing is guessed.

Spec: capture record, version 1.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from brokers.message import (
    Body,
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    PropertyValue,
    infer_type,
    is_finite,
    typed,
)
from soapjms.protocol.errors import InvalidRecordError

VERSION: Final = 1

E = TypeVar("E", bound=StrEnum)


class Direction(StrEnum):
    """What a captured message is, where the capturing node knows."""

    REQUEST = "request"
    RESPONSE = "response"
    ONE_WAY = "one-way"


class Node(StrEnum):
    """Who captured a message; a tap sees a broker from outside."""

    REQUESTING = "requesting"
    RESPONDING = "responding"
    SENDING = "sending"
    RECEIVING = "receiving"
    TAP = "tap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One captured message.

    Attributes:
        message: what was captured; a body that was cut is its first part.
        time: when, in UTC.
        direction: what it is, None where the capturing node did not know.
        node: who captured it.
        truncated: the body was cut: a check that needs it has nothing to go by.
        sha256: of the whole body's octets (UTF-8 for text) in hex, also when cut.
        meta: anything: host, broker, release, trace ids.
        extra: members that this version does not know, kept as they were; those of `jms` and `destination` under
            these names.
    """

    message: Message
    time: datetime
    direction: Direction | None = None
    node: Node | None = None
    truncated: bool = False
    sha256: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def body_digest(body: Body) -> str | None:
    """Return the SHA-256 of a bytes or text body in hex (text as UTF-8), None for other bodies and none."""
    if isinstance(body, str):
        return sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(body, bytes | memoryview):
        return sha256(body).hexdigest()
    return None


def capture(message: Message, time: datetime, direction: Direction | None = None, node: Node | None = None) -> Record:
    """Make the record of a whole message, with its digest."""
    return Record(message=message, time=time, direction=direction, node=node, sha256=body_digest(message.body))


# Reading


def from_json(line: str) -> Record:
    """Read one line of a capture log.

    Raises:
        InvalidRecordError: it is not JSON, not an object, of a later version, or a member is not as the format says.
    """
    try:
        members = json.loads(line, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidRecordError("not a capture record: the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidRecordError(f"not JSON: {error}") from None
    if not isinstance(members, dict):
        raise InvalidRecordError(f"not a JSON object but {_shown(members)}")
    return from_members(members)


def from_members(members: Mapping[str, Any]) -> Record:
    """Read a record from its members, as `json.loads` gives them.

    Raises:
        InvalidRecordError: a member is missing or not as the format says.
    """
    _check_version(members.get("v"))
    jms = _get(members, "jms", OBJECT, {})
    message = Message(
        message_type=_choice(MessageType, members, "message_type", required=True),
        body=_body(members),
        properties=_properties(_get(members, "properties", OBJECT, {}), _get(members, "types", OBJECT, {})),
        destination=_destination(members, "destination"),
        reply_to=_destination(jms, "reply_to"),
        untyped=_get(members, "untyped", FLAG, False),
        **{name: _get(jms, name, kind, None) for name, kind in JMS_SCALARS.items()},
    )
    return Record(
        message=message,
        time=parse_time(_get(members, "time", TEXT, None)),
        direction=_choice(Direction, members, "direction"),
        node=_choice(Node, members, "node"),
        truncated=_get(members, "truncated", FLAG, False),
        sha256=_get(members, "sha256", TEXT, None),
        meta=_get(members, "meta", OBJECT, {}),
        extra=_unknown_members(members, jms),
    )


def parse_time(text: str | None) -> datetime:
    """Read an RFC 3339 time as UTC; digits beyond microseconds are dropped.

    Raises:
        InvalidRecordError: absent, not RFC 3339, or without an offset from UTC.
    """
    if text is None:
        raise InvalidRecordError("member time is missing; an RFC 3339 time in UTC is required")
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError("no offset")
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRecordError(f"member time is {text!r}; an RFC 3339 time in UTC is required") from None


class _Kind(NamedTuple):
    """A JSON type that a member must have, and how to say so."""

    wanted: str
    test: Callable[[Any], bool]


OBJECT: Final = _Kind("an object", lambda value: isinstance(value, dict))
TEXT: Final = _Kind("a string", lambda value: isinstance(value, str))
FLAG: Final = _Kind("true or false", lambda value: isinstance(value, bool))
INTEGER: Final = _Kind(
    "an integer of at most 64 bits",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63,
)

JMS_SCALARS: Final[Mapping[str, _Kind]] = {
    "message_id": TEXT,
    "correlation_id": TEXT,
    "delivery_mode": INTEGER,
    "priority": INTEGER,
    "expiration": INTEGER,
    "timestamp": INTEGER,
    "type": TEXT,
    "redelivered": FLAG,
}
MEMBERS: Final = frozenset(
    "v time direction node destination jms properties types untyped message_type body truncated sha256 meta".split()
)
NESTED: Final[Mapping[str, frozenset[str]]] = {
    "destination": frozenset({"kind", "name"}),
    "jms": frozenset({*JMS_SCALARS, "reply_to"}),
}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write it as a string and its type under types")


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidRecordError(f"member v is {_shown(version)}; the format version {VERSION} is required")
    if version != VERSION:
        raise InvalidRecordError(f"format version {version}; this program reads version {VERSION}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _get(members: Mapping[str, Any], name: str, kind: _Kind, default: Any) -> Any:
    """Return a member of the given kind; absent and null give the default."""
    value = members.get(name)
    if value is None:
        return default
    if not kind.test(value):
        raise InvalidRecordError(f"member {name} is {_shown(value)}; {kind.wanted} is required")
    return value


def _choice(choices: type[E], members: Mapping[str, Any], name: str, *, required: bool = False) -> Any:
    value = members.get(name)
    if value is None and not required:
        return None
    try:
        return choices(value)  # type: ignore[arg-type]  # whatever it is: a value that is no choice raises
    except ValueError:
        known = ", ".join(choices)
        raise InvalidRecordError(f"member {name} is {_shown(value)}; accepted are: {known}") from None


def _unknown_members(members: Mapping[str, Any], jms: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what this version does not know; of `jms` and `destination` under their own names."""
    extra = {name: value for name, value in members.items() if name not in MEMBERS}
    for name, nested in (("jms", jms), ("destination", members.get("destination") or {})):
        unknown = {key: value for key, value in nested.items() if key not in NESTED[name]}
        if unknown:
            extra[name] = unknown
    return extra


def _destination(members: Mapping[str, Any], name: str) -> Destination | None:
    value = _get(members, name, OBJECT, None)
    if value is None:
        return None
    return Destination(_choice(DestinationKind, value, "kind", required=True), _get(value, "name", TEXT, None))


def _properties(values: Mapping[str, Any], types: Mapping[str, Any]) -> Properties:
    return Properties(_entry(name, value, _choice(PropertyType, types, name)) for name, value in values.items())


def _entry(name: str, value: Any, kind: PropertyType | None) -> Property:
    """Make one typed property from its JSON value and the type that `types` names for it."""
    if kind in (PropertyType.FLOAT, PropertyType.DOUBLE) and value in NON_FINITE:
        return Property(name, kind, float(value))
    try:
        return typed(name, value, kind)
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(f"property {name} is {_shown(value)}: {error}") from None


NON_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def _body(members: Mapping[str, Any]) -> Body:
    value = members.get("body")
    if value is None:
        return None
    kind = members.get("message_type")
    try:
        return BODY_READERS[kind](value)
    except KeyError:
        raise InvalidRecordError(f"a message of type {kind!r} has no body, but there is a member body") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidRecordError(f"member body does not fit message_type {kind}: {error}") from None


def _octets(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"base64 text is required, not {_shown(value)}")
    try:
        return b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None


def _characters(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a string is required, not {_shown(value)}")
    return value


def _map_body(value: Any) -> Properties:
    return Properties(_entry(name, *_element_of(entry)) for name, entry in value.items())


def _stream_body(value: Any) -> tuple[Element, ...]:
    if not isinstance(value, list):
        raise ValueError(f"a list is required, not {_shown(value)}")
    entries = [_entry(f"element {index}", *_element_of(entry)) for index, entry in enumerate(value)]
    return tuple(Element(entry.type, entry.value) for entry in entries)


def _element_of(entry: Any) -> tuple[Any, PropertyType]:
    if not isinstance(entry, dict) or "value" not in entry:
        raise ValueError(f'an object with "type" and "value" is required, not {_shown(entry)}')
    return entry["value"], _choice(PropertyType, entry, "type", required=True)


def _unknown_body(value: Any) -> Body:
    """Read the body of a message whose type its capture could not tell: base64, as bytes have it."""
    return _octets(value)


BODY_READERS: Final[Mapping[Any, Callable[[Any], Body]]] = {
    "bytes": _octets,
    "object": _octets,
    "text": _characters,
    "map": _map_body,
    "stream": _stream_body,
    "unknown": _unknown_body,
}


# Writing


def to_json(record: Record) -> str:
    """Write a record as one line, without the line break; members that are unknown or at their default are left out."""
    members = to_members(record)
    line = json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can write but UTF-8 cannot
        return json.dumps(members, allow_nan=False, separators=(",", ":"))
    return line


def to_members(record: Record) -> dict[str, Any]:
    """Return the record's members, ready for `json.dumps`."""
    message = record.message
    jms = {name: getattr(message, name) for name in JMS_SCALARS if getattr(message, name) is not None}
    if message.reply_to is not None:
        jms["reply_to"] = _destination_members(message.reply_to)
    members: dict[str, Any] = {"v": VERSION, "time": format_time(record.time)}
    _put(members, direction=record.direction, node=record.node)
    if message.destination is not None:
        members["destination"] = _destination_members(message.destination)
    members["jms"] = jms
    members["properties"] = {each.name: _json_value(each.value) for each in message.properties}
    _put(members, types={each.name: each.type for each in message.properties if not _tells_its_type(each)})
    _put(members, untyped=message.untyped)
    members["message_type"] = message.message_type
    if message.body is not None:
        members["body"] = body_to_json(message.body)
    _put(members, truncated=record.truncated, sha256=record.sha256, meta=dict(record.meta))
    for name, value in record.extra.items():
        members[name] = {**members[name], **value} if name in NESTED and name in members else value
    return members


def format_time(time: datetime) -> str:
    """Write a time as RFC 3339 in UTC, with microseconds."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def body_to_json(body: Body) -> Any:
    """Return a body as its capture record has it: base64, text, or typed entries."""
    if isinstance(body, str):
        return body
    if isinstance(body, Properties):
        return {each.name: {"type": each.type, "value": _json_value(each.value)} for each in body}
    if isinstance(body, tuple):
        return [{"type": each.type, "value": _json_value(each.value)} for each in body]
    return None if body is None else b64encode(body).decode("ascii")


def _put(members: dict[str, Any], **values: Any) -> None:
    members.update((name, value) for name, value in values.items() if value)


def _destination_members(destination: Destination) -> dict[str, Any]:
    return {"kind": destination.kind, "name": destination.name}


def _json_value(value: PropertyValue) -> Any:
    if is_finite(value):
        return value
    assert isinstance(value, float)
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _tells_its_type(entry: Property) -> bool:
    """Say whether a reader would get the property's type from its JSON value alone."""
    return is_finite(entry.value) and infer_type(entry.value) is entry.type
