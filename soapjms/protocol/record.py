"""Reading and writing a captured message as one line of a capture log.

The format is fixed; other tools write it too. JSON is read strictly: its size is limited, and each member must be of a
certain kind. An invalid record raises InvalidRecordError with the member, its value and what is accepted; nothing is
guessed.

Spec: capture record, version 1.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from math import isfinite
from operator import attrgetter
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
    body_problem,
    infer_type,
    is_finite,
    typed,
)
from soapjms.protocol.errors import InvalidRecordError, UsageError

E = TypeVar("E", bound=StrEnum)

MAX_DEPTH: Final = 64
"""Deepest nesting of the JSON of a record; low, as a record may be written again from deep in a program's stack."""


MAX_JSON_PARTS: Final = 1 << 20
"""Maximum number of strings, commas and opening brackets of a JSON text: each may take some 70 octets of memory."""
JSON_PART: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,{\[]', re.DOTALL)


def may_have_too_many_parts(text: str | bytes) -> bool:
    """Say whether a JSON text may have more than `MAX_JSON_PARTS`: those within its strings are counted too."""
    count: Callable[[Any], int] = text.count
    return len(text) > MAX_JSON_PARTS and sum(map(count, '",{[' if isinstance(text, str) else b'",{[')) > MAX_JSON_PARTS


def has_too_many_parts(text: str) -> bool:
    """Say whether a JSON text has more than `MAX_JSON_PARTS`; only of texts that may have, each character is read."""
    if not may_have_too_many_parts(text):
        return False
    return next(islice(JSON_PART.finditer(text), MAX_JSON_PARTS, None), None) is not None


def read_json(text: str) -> Any:
    """Read a JSON text: no NaN or Infinity, no number beyond a double, not nested too deeply, not of too many parts.

    Raises:
        InvalidRecordError: the text is not JSON, or exceeds a limit.
    """
    if has_too_many_parts(text):
        raise InvalidRecordError(MANY_PARTS)
    try:
        value = DECODER.decode(text)
    except RecursionError:
        raise InvalidRecordError(NESTED) from None
    except json.JSONDecodeError as error:
        raise InvalidRecordError(f"not JSON: {_json_problem(error)}") from None
    except ValueError as error:  # our own, or of a number
        why = "a number has more digits than are read" if "digits" in str(error) else error
        raise InvalidRecordError(f"not JSON: {why}") from None
    if text.count("{") + text.count("[") > MAX_DEPTH:  # else it cannot be
        check_depth(value)
    return value


def _json_problem(error: json.JSONDecodeError) -> str:
    """Say where a text is no JSON, counted in characters from 1 on, and why."""
    if error.pos >= len(error.doc):
        return f"it ends too early, with character {len(error.doc)}" if error.doc else "it is empty"
    why = next((words for begin, words in JSON_PROBLEMS.items() if error.msg.startswith(begin)), error.msg)
    return f"{why} at {'its first character' if not error.pos else f'character {error.pos + 1}'}"


JSON_PROBLEMS: Final[Mapping[str, str]] = {
    "Expecting value": "no value begins",
    "Expecting property name": "a name in double quotes is missing",
    "Expecting ':'": "a colon is missing",
    "Expecting ','": "a comma is missing",
    "Illegal trailing comma": "nothing follows the comma",
    "Extra data": "something follows the value",
    "Unterminated string": "a string without an end begins",
    "Invalid control character": "a control character stands in a string",
    "Invalid \\": "an escape is not one of JSON",
}
"""The beginnings of the errors of Python's reader of JSON, and what they mean in words of people."""


MANY_PARTS: Final = f"JSON of more than {MAX_JSON_PARTS} strings, commas and opening brackets"
NESTED: Final = f"JSON that is nested more than {MAX_DEPTH} deep"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; write it as a string and its type under types")


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"the number {shown(text)} is beyond a double")
    return number


DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def check_depth(value: Any, left: int = MAX_DEPTH) -> None:
    """Refuse a JSON value that is nested too deeply.

    Raises:
        InvalidRecordError: the value is nested too deeply.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if not left:
            raise InvalidRecordError(NESTED)
        for each in value.values() if kind is dict else value:
            if type(each) in NESTING:
                check_depth(each, left - 1)


NESTING: Final = frozenset({dict, list})


class MemberKind(NamedTuple):
    """A JSON type that a member must have, and its description; integers must fit 64 bits."""

    wanted: str
    type: type

    def test(self, value: object) -> bool:
        """Say whether a value is of this kind."""
        return type(value) is self.type and (type(value) is not int or -(1 << 63) <= value < 1 << 63)


OBJECT: Final = MemberKind("an object", dict)
LIST: Final = MemberKind("a list", list)
TEXT: Final = MemberKind("a string", str)
FLAG: Final = MemberKind("true or false", bool)
INTEGER: Final = MemberKind("an integer of at most 64 bits", int)


def shown(value: object) -> str:
    """Return a value for an error message, as JSON but for the quotes of a string, and cut if it is long."""
    text = repr(value) if isinstance(value, str) else ESCAPED.encode(value)
    return text if len(text) <= 80 else text[:77] + "..."


def member(members: Mapping[str, Any], name: str, kind: MemberKind, default: Any, place: str = "") -> Any:
    """Return a member of the given kind; the default if it is absent or null.

    Raises:
        InvalidRecordError: the member is of another kind; the message names the member, prefixed with `place`.
    """
    value = members.get(name)
    if value is None:
        return default
    if not kind.test(value):
        raise InvalidRecordError(f"member {place}{name} is {shown(value)}; {kind.wanted} is required")
    return value


@cache
def _by_value(choices: type[StrEnum]) -> dict[Any, Any]:
    return {each.value: each for each in choices}


def choice(choices: type[E], members: Mapping[str, Any], name: str, place: str = "", *, required: bool = False) -> Any:
    """Return a member with a value of an enumeration; None if it is absent or null and not required.

    Raises:
        InvalidRecordError: the member has another value, or is required and absent.
    """
    value = members.get(name)
    if value is None and not required:
        return None
    try:
        return _by_value(choices)[value]
    except (KeyError, TypeError):  # TypeError: a list or an object
        known = ", ".join(choices)
        raise InvalidRecordError(f"member {place}{name} is {shown(value)}; accepted are: {known}") from None


def of_kind(kind: MemberKind, value: Any) -> Any:
    """Return a value that must be of the given kind.

    Raises:
        ValueError: the value is of another kind.
    """
    if not kind.test(value):
        raise ValueError(f"{kind.wanted} is required, not {shown(value)}")
    return value


def union(members: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the members of two objects; objects in both are merged likewise, otherwise the second value counts."""
    both = dict(members)
    for name, value in more.items():
        inside = both.get(name)
        both[name] = union(inside, value) if isinstance(inside, dict) and isinstance(value, dict) else value
    return both


VERSION: Final = 1

EPOCH: Final = datetime.fromtimestamp(0, UTC)
"""The time of a record that was never captured."""


NOTHING: Final[Mapping[str, Any]] = {}


class Direction(StrEnum):
    """What a captured message is, if the capturing node knows it."""

    REQUEST = "request"
    RESPONSE = "response"
    ONE_WAY = "one-way"


class Node(StrEnum):
    """The node that captured a message; a tap watches a broker from outside."""

    REQUESTING = "requesting"
    RESPONDING = "responding"
    SENDING = "sending"
    RECEIVING = "receiving"
    TAP = "tap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One captured message.

    Attributes:
        message: the captured message; a cut body is only its first part.
        time: the time of capture, in UTC.
        direction: what the message is; None if the capturing node did not know.
        node: the node that captured it, or None.
        truncated: True if the body was cut, so that checks that need it are not possible.
        sha256: SHA-256 of the whole body's octets (UTF-8 for text) in hex, also of a cut body; verified on reading if
            the body is whole.
        meta: further information, such as host, broker, release or trace ids.
        extra: members that this version does not know, kept in their places: those of `jms` in an object `jms`, those
            of its `reply_to` in an object `reply_to` inside it.
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
    """Return the SHA-256 of a bytes or text body in hex (text as UTF-8); None for other bodies and no body."""
    if isinstance(body, str):
        return sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(body, bytes | memoryview):
        return sha256(body).hexdigest()
    return None


def capture(
    message: Message,
    time: datetime,
    direction: Direction | None = None,
    node: Node | None = None,
    meta: Mapping[str, Any] = NOTHING,
) -> Record:
    """Make the record of a whole message, with its digest; the arguments are attributes of `Record`.

    Raises:
        UsageError: the body does not fit the message's type, so that the record could not be read again.
    """
    problem = body_problem(message)
    if problem is not None:
        raise UsageError(problem)
    digest = body_digest(message.body)
    return Record(message=message, time=time, direction=direction, node=node, sha256=digest, meta=meta)


# Reading


def from_json(line: str) -> Record:
    """Read one line of a capture log.

    Raises:
        InvalidRecordError: the line is not a JSON object, is of another version, or a member is not valid.
    """
    members = read_json(line)
    if not isinstance(members, dict):
        raise InvalidRecordError(f"not a JSON object but {shown(members)}")
    return from_members(members)


def from_members(members: Mapping[str, Any]) -> Record:
    """Read a record from its members, as `json.loads` returns them.

    Raises:
        InvalidRecordError: a member is missing or not valid.
    """
    _check_version(members.get("v"))
    jms = member(members, "jms", OBJECT, {})
    message = Message(
        message_type=choice(MessageType, members, "message_type", required=True),
        body=_body(members),
        properties=read_properties(member(members, "properties", OBJECT, {}), member(members, "types", OBJECT, {})),
        destination=_destination(members, "destination"),
        reply_to=_destination(jms, "reply_to", "jms."),
        untyped=member(members, "untyped", FLAG, False),
        **{name: member(jms, name, kind, None, "jms.") for name, kind in JMS_SCALARS.items()},
    )
    return Record(
        message=message,
        time=parse_time(member(members, "time", TEXT, None)),
        direction=choice(Direction, members, "direction"),
        node=choice(Node, members, "node"),
        truncated=member(members, "truncated", FLAG, False),
        sha256=_digest(members, message.body),
        meta=member(members, "meta", OBJECT, {}),
        extra=_unknown_members(members, jms),
    )


def _digest(members: Mapping[str, Any], body: Body) -> str | None:
    """Read the digest of the body, and verify it if the body is whole."""
    stated: str | None = member(members, "sha256", TEXT, None)
    found = None if stated is None or members.get("truncated") else body_digest(body)
    if stated is not None and found is not None and stated.lower() != found:
        raise InvalidRecordError(
            f"member sha256 is {shown(stated)}, and the body has the SHA-256 {found}: one of them was changed; for a "
            "body that was cut, the member truncated must be true"
        )
    return stated


def parse_time(text: str | None) -> datetime:
    """Read an RFC 3339 time as UTC; digits beyond microseconds are dropped.

    Raises:
        InvalidRecordError: the time is absent, not RFC 3339, without an offset from UTC, a leap second, or not within
            the years 1 to 9999 in UTC.
    """
    if text is None:
        raise InvalidRecordError("member time is missing; an RFC 3339 time in UTC is required")
    try:
        if not RFC_3339.fullmatch(text):
            raise ValueError(text)
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRecordError(f"member time is {shown(text)}; {TIME_NEEDED}") from None


TIME_NEEDED: Final = "an RFC 3339 time in UTC is required, of the years 1 to 9999 and without leap seconds"
RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
JMS_SCALARS: Final = {
    "message_id": TEXT,
    "correlation_id": TEXT,
    "delivery_mode": INTEGER,
    "priority": INTEGER,
    "expiration": INTEGER,
    "timestamp": INTEGER,
    "type": TEXT,
    "redelivered": FLAG,
}
jms_scalars_of = attrgetter(*JMS_SCALARS)
JMS_NAMES: Final = tuple(f'"{name}":' for name in JMS_SCALARS)
FLAGS: Final = ("false", "true")
MEMBERS: Final = frozenset(
    "v time direction node destination jms properties types untyped message_type body truncated sha256 meta".split()
)
JMS: Final = frozenset({*JMS_SCALARS, "reply_to"})
DESTINATION: Final = frozenset({"kind", "name"})


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidRecordError(f"member v is {shown(version)}; the format version {VERSION} is required")
    if version != VERSION:
        raise InvalidRecordError(f"format version {version}; this program reads version {VERSION}")


def _unknown_members(members: Mapping[str, Any], jms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that this version does not know, in their places."""
    extra, inside = _unknown(members, MEMBERS), _unknown(jms, JMS)
    if answers := _unknown(jms.get("reply_to"), DESTINATION):
        inside["reply_to"] = answers
    for name, more in (("jms", inside), ("destination", _unknown(members.get("destination"), DESTINATION))):
        if more:
            extra[name] = more
    return extra


def _unknown(members: Mapping[str, Any] | None, known: frozenset[str]) -> dict[str, Any]:
    if not members or members.keys() <= known:
        return {}
    return {name: value for name, value in members.items() if name not in known}


def _destination(members: Mapping[str, Any], name: str, place: str = "") -> Destination | None:
    value = member(members, name, OBJECT, None, place)
    if value is None:
        return None
    inside = f"{place}{name}."
    kind = choice(DestinationKind, value, "kind", inside, required=True)
    return Destination(kind, member(value, "name", TEXT, None, inside))


def read_properties(values: Mapping[str, Any], types: Mapping[str, Any]) -> Properties:
    """Read properties from their JSON values, and from the types that the values do not show.

    Raises:
        InvalidRecordError: an entry is not a valid property.
    """
    kinds: Mapping[str, PropertyType | None] = {}
    if types:
        kinds = {name: choice(PropertyType, types, name, "types.") for name in values}
        if PropertyType.BYTES in kinds.values():
            raise InvalidRecordError("a property has no type bytes; only an entry of a map or stream has")
    return Properties([_entry(name, value, kinds.get(name)) for name, value in values.items()])


def _entry(name: str, value: Any, kind: PropertyType | None) -> Property:
    """Make a typed property from its JSON value and its type in `types`, if any."""
    if kind is None and type(value) is str:
        return Property(name, PropertyType.STRING, value)
    try:
        if kind in (PropertyType.FLOAT, PropertyType.DOUBLE) and (type(value) in (int, float) or value in NON_FINITE):
            return Property(name, kind, float(value))  # rounded if need be: JSON has one type of numbers
        return typed(name, value, kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRecordError(f"property {name} is {shown(value)}: {error}") from None


NON_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def _body(members: Mapping[str, Any]) -> Body:
    value = members.get("body")
    if value is None:
        return None
    kind = members.get("message_type")
    try:
        return BODY_READERS[kind](value)
    except KeyError:
        raise InvalidRecordError(f"a message of type {shown(kind)} has no body, but there is a member body") from None
    except ValueError as error:
        raise InvalidRecordError(f"member body does not fit message_type {kind}: {error}") from None


def _octets(value: Any) -> bytes:
    try:
        return b64decode(of_kind(TEXT, value), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None


def _map_body(value: Any) -> Properties:
    return Properties(_entry(name, *_element_of(entry)) for name, entry in of_kind(OBJECT, value).items())


def _stream_body(value: Any) -> tuple[Element, ...]:
    entries = [_entry(f"element {index}", *_element_of(each)) for index, each in enumerate(of_kind(LIST, value))]
    return tuple(Element(entry.type, entry.value) for entry in entries)


def _element_of(entry: Any) -> tuple[Any, PropertyType]:
    if not isinstance(entry, dict) or "value" not in entry:
        raise ValueError(f'an object with "type" and "value" is required, not {shown(entry)}')
    return entry["value"], choice(PropertyType, entry, "type", required=True)


def _unknown_body(value: Any) -> Body:
    """Read the body of a message whose type its capture did not know, by the shape of the JSON value."""
    return (_map_body if isinstance(value, dict) else _stream_body if isinstance(value, list) else _octets)(value)


BODY_READERS: Final[Mapping[Any, Callable[[Any], Body]]] = {
    "bytes": _octets,
    "object": _octets,
    "text": partial(of_kind, TEXT),
    "map": _map_body,
    "stream": _stream_body,
    "unknown": _unknown_body,
}


# Writing


PLAIN: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
ESCAPED: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def to_json(record: Record) -> str:
    """Write a record as one line, without the line break; members that are None or at their default are left out."""
    return to_octets(record).decode("utf-8")


def to_octets(record: Record) -> bytes:
    """Write a record as `to_json` does, in UTF-8."""
    try:
        return _line(record).encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can write but UTF-8 cannot
        return ESCAPED.encode(to_members(record)).encode("ascii")


def to_members(record: Record) -> dict[str, Any]:
    """Return the record's members, as a reader of its line gets them.

    Of several properties with the same name, which JMS does not allow, the first is written, as a lookup finds it.
    """
    members: dict[str, Any] = json.loads(_line(record))
    return members


quoted: Final = json.encoder.encode_basestring
"""Writes a string as JSON, without escapes for characters that UTF-8 can carry."""


def _line(record: Record) -> str:
    """Write a record as one line of JSON, by joining texts: dictionaries and an encoder take twice the time."""
    if record.extra:
        return PLAIN.encode(union(json.loads(_line(replace(record, extra=NOTHING))), record.extra))
    message = record.message
    direction, node, destination, meta = record.direction, record.node, message.destination, record.meta
    values, types = _properties_of(message.properties)
    return "".join(
        (
            f'{{"v":{VERSION},"time":"{format_time(record.time)}"',
            "" if direction is None else f',"direction":"{direction}"',
            "" if node is None else f',"node":"{node}"',
            "" if destination is None else f',"destination":{_destination_of(destination)}',
            f',"jms":{{{_jms_of(message)}}},"properties":{{{values}}}',
            f',"types":{{{types}}}' if types else "",
            ',"untyped":true' if message.untyped else "",
            f',"message_type":"{message.message_type}"',
            "" if message.body is None else f',"body":{_body_of(message)}',
            ',"truncated":true' if record.truncated else "",
            f',"sha256":{quoted(record.sha256)}' if record.sha256 else "",
            f',"meta":{_meta_of(meta)}' if meta else "",
            "}",
        )
    )


def _jms_of(message: Message) -> str:
    """Write the headers that are set."""
    written = [
        name + (quoted(value) if isinstance(value, str) else _plain_of(value))
        for name, value in zip(JMS_NAMES, jms_scalars_of(message), strict=True)
        if value is not None
    ]
    if message.reply_to is not None:
        written.append(f'"reply_to":{_destination_of(message.reply_to)}')
    return ",".join(written)


def _properties_of(properties: Properties) -> tuple[str, str]:
    """Write the values of properties, and the types that the values do not show."""
    values: dict[str, str] = {}
    types: list[str] = []
    for entry in properties:
        name, kind, value = entry
        if name in values:
            continue
        if type(value) is str:
            values[name] = f"{quoted(name)}:{quoted(value)}"
            tells = kind is PropertyType.STRING
        else:
            values[name] = f"{quoted(name)}:{_plain_of(value)}"
            tells = kind is PropertyType.BOOLEAN if type(value) is bool else _tells_its_type(entry)
        if not tells:
            types.append(f'{quoted(name)}:"{kind}"')
    return ",".join(values.values()), ",".join(types)


def _plain_of(value: PropertyValue) -> str:
    """Write a value that is not text; numbers that JSON does not have are written as strings."""
    if type(value) is bool:
        return FLAGS[value]
    return f"{value:d}" if isinstance(value, int) else PLAIN.encode(_json_value(value))


def _meta_of(meta: Mapping[str, Any]) -> str:
    written: list[str] = []
    for name, value in meta.items():
        if type(name) is not str or type(value) is not str:
            return PLAIN.encode(meta)
        written.append(f"{quoted(name)}:{quoted(value)}")
    return f"{{{','.join(written)}}}"


def _body_of(message: Message) -> str:
    body = _written_body(message)
    if type(body) is bytes:
        return f'"{b2a_base64(body, newline=False).decode("ascii")}"'
    return quoted(body) if type(body) is str else PLAIN.encode(body_to_json(body))


def _destination_of(destination: Destination) -> str:
    name = destination.name
    return f'{{"kind":"{destination.kind}","name":{"null" if name is None else quoted(name)}}}'


def _written_body(message: Message) -> Body:
    """Return a message's body; text in a message of unknown type is returned as octets, as a reader expects it."""
    if message.message_type is MessageType.UNKNOWN and isinstance(message.body, str):
        return message.body.encode("utf-8", "surrogatepass")
    return message.body


def format_time(time: datetime) -> str:
    """Write a time as RFC 3339 in UTC, with microseconds."""
    return (time if time.tzinfo is UTC else time.astimezone(UTC)).isoformat(timespec="microseconds")[:-6] + "Z"


def body_to_json(body: Body) -> Any:
    """Return a body in the form of a capture record: base64, text, or typed entries."""
    if isinstance(body, str):
        return body
    if isinstance(body, Properties):
        return {each.name: {"type": each.type, "value": _json_value(each.value)} for each in body}
    if isinstance(body, tuple):
        return [{"type": each.type, "value": _json_value(each.value)} for each in body]
    return None if body is None else b64encode(body).decode("ascii")


def _json_value(value: PropertyValue) -> Any:
    if is_finite(value):
        return value
    assert isinstance(value, float)
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _tells_its_type(entry: Property) -> bool:
    """Say whether a reader would get the property's type from its JSON value alone."""
    return is_finite(entry.value) and infer_type(entry.value) is entry.type
