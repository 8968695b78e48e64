"""Messages to STOMP frames and back: pure functions, tested without a broker.

Headers are unescaped here; `brokers.stomp.codec` escapes them for the wire.

Spec: STOMP 1.2, frames SEND, MESSAGE and ERROR.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from brokers.adapter.redelivery import REASON_PROPERTY, carried_reason
from brokers.errors import DestinationGoneError, SendFailedError, UsageError
from brokers.message import (
    FIELDS,
    MAX_CACHED_CHARACTERS,
    Body,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageDraft,
    MessageType,
    Properties,
    Property,
    PropertyType,
    as_text,
    new_property,
)
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, NAMED, StompDialect
from brokers.stomp.heads import ShapedHeaders

Headers: TypeAlias = dict[str, str]

LITERAL_OR_HEADER: Final = re.compile(r"'(?:[^']|'')*'|\bJMS[A-Za-z]+\b")
"""Matches quoted strings in a selector, and names that may be JMS headers."""

MESSAGE_DUMP: Final = re.compile(r" \w*Message\[.*", re.DOTALL)
"""Matches the dump of the whole message that Artemis appends to its errors."""

MAX_REASON_CHARACTERS: Final = 500
"""Maximum number of characters of a broker's text in an error."""

NOT_REPEATED: Final = frozenset({"_AMQ_DUPL_ID"})
"""The property by which Artemis drops duplicates; a dead letter must not count as one."""


def to_frame(message: Message, dialect: StompDialect = ACTIVEMQ_CLASSIC) -> tuple[Headers, bytes]:
    """Return headers and body of the SEND frame that carries `message`.

    Every property becomes a string; a null property is left out. So are `message_id` and `timestamp`, which the broker
    sets, and `redelivered`, which has no meaning in a sent message.

    Raises:
        UsageError: the message has no destination, a type other than text and bytes, a body that does not fit its type,
            or a property whose name has another meaning for the broker.
    """
    if message.destination is None:
        raise UsageError("the message has no destination")
    headers = {"destination": spell(message.destination, dialect)}
    if routing := dialect.send_routing.get(message.destination.kind):
        headers["destination-type"] = routing
    if message.reply_to is not None:
        headers["reply-to"] = spell_reply_to(message.reply_to, dialect)
    # The default of JMS is persistent, that of the broker over STOMP is not.
    headers["persistent"] = "false" if message.delivery_mode == DeliveryMode.NON_PERSISTENT else "true"
    if message.correlation_id is not None:
        headers["correlation-id"] = message.correlation_id
    if message.priority is not None:
        headers["priority"] = f"{message.priority:d}"
    if message.expiration is not None:
        headers["expires"] = f"{message.expiration:d}"
    if message.type is not None:
        headers["type"] = message.type
    for name, _, value in message.properties:
        if not name or name in dialect.reserved:
            raise UsageError(f"a property cannot be called {name!r} over STOMP: the broker would read it as a header")
        text = value if type(value) is str else as_text(value)
        if text is not None:
            headers[name] = text
    body = octets_of(message)
    if message.message_type is MessageType.BYTES:
        headers["content-length"] = str(len(body))
    return headers, body


def octets_of(message: Message) -> bytes:
    """Return the body of the SEND frame that carries `message`.

    Raises:
        UsageError: the message has a type other than text and bytes, or a body that does not fit its type.
    """
    if type(message.body) is bytes and message.message_type is MessageType.BYTES:  # as nearly always
        return message.body
    match message.message_type, message.body:
        case MessageType.BYTES, bytes() as body:
            return body
        case MessageType.BYTES, memoryview() as body:
            return bytes(body)
        case MessageType.TEXT, str() as body:
            if "\0" in body:
                raise UsageError("a text body with a NUL character cannot be sent over STOMP, where NUL ends the frame")
            return body.encode()
        case (MessageType.BYTES | MessageType.TEXT) as kind, body:
            raise UsageError(f"the body of a message of type {kind} cannot be {type(body).__name__} over STOMP")
        case kind, _:
            raise UsageError(f"over STOMP a message must be of type text or bytes, got {kind}")


def from_frame(headers: Mapping[str, str], body: bytes, dialect: StompDialect = ACTIVEMQ_CLASSIC) -> Message:
    """Return the message that a MESSAGE frame carries; never raises, whatever it contains.

    All properties are strings, so the message is `untyped`. A frame without body and `content-length` may carry an
    empty TextMessage, or a map, stream, object or plain message, so its type is `unknown`. `redelivered` is None if the
    header is not `true` and the broker does not report redelivery reliably. A number that is invalid, because a peer
    set a property of the same name, is None. `content-type` is dropped, because no JMS header holds it.
    """
    if type(headers) is ShapedHeaders:
        plan: MessagePlan | None = headers.shape.plan
        if plan is None or plan.dialect is not dialect:
            plan = headers.shape.plan = MessagePlan(headers, headers.shape.differing, dialect)
        return plan.message(headers, body)
    draft = MessageDraft(*_content(dialect.is_bytes(headers), body), untyped=True)
    draft.properties = Properties(_properties(headers, dialect))
    for field, read in FIELDS_OF_HEADERS.items():
        setattr(draft, field, read(headers, dialect))
    return draft.frozen()


class MessagePlan:
    """Makes messages from headers of one shape; values that do not differ are read once.

    Args:
        headers: headers of any frame of the shape.
        differing: names of the headers whose values differ.
        dialect: dialect of the broker.

    Attributes:
        dialect: dialect of the broker.
    """

    __slots__ = ("_fields", "_is_bytes", "_numbers", "_own", "_properties", "_shared", "_texts", "_values", "dialect")

    def __init__(self, headers: Mapping[str, str], differing: Sequence[str], dialect: StompDialect) -> None:
        self.dialect = dialect
        self._is_bytes = dialect.is_bytes(headers)
        self._values = [*(FIELDS_OF_HEADERS[each](headers, dialect) for each in FIELDS[3:-1]), True]  # untyped
        self._properties = _properties(headers, dialect)
        fields = {SOURCES.get(name) for name in differing} - {None}
        fields |= {"message_id"} if set(dialect.id_headers) & set(differing) else set()
        texts = TEXTS if dialect.id_headers or dialect.id_is_pair else {**TEXTS, "message_id": "message-id"}
        self._texts = [(each, texts[each]) for each in FIELDS if each in fields and each in texts]
        self._numbers = [(each, NUMBERS[each]) for each in FIELDS if each in fields and each in NUMBERS]
        plain = texts.keys() | NUMBERS.keys()
        self._fields = [(each, FIELDS_OF_HEADERS[each]) for each in FIELDS if each in fields - plain]
        names = [name for name in headers if name not in dialect.message_headers]
        self._own = [(names.index(each), each) for each in differing if each in names]
        self._shared = Properties(self._properties)

    def message(self, headers: Mapping[str, str], body: bytes) -> Message:
        """Return the message of a frame, like `from_frame`."""
        content = (MessageType.BYTES, body) if self._is_bytes else _content(False, body)
        draft = MessageDraft(*content, self._shared, *self._values)
        for field, name in self._texts:
            setattr(draft, field, headers[name])
        for field, name in self._numbers:
            value = headers[name]
            is_usual = len(value) <= USUAL_DIGITS and value.isascii() and value.isdigit()
            setattr(draft, field, int(value) if is_usual else _number(headers, name))
        for field, read in self._fields:
            setattr(draft, field, read(headers, self.dialect))
        if self._own:
            made = self._properties.copy()
            for place, name in self._own:
                made[place] = new_property((made[place][0], PropertyType.STRING, headers[name]))
            draft.properties = Properties(made)
        return draft.frozen()


def _properties(headers: Mapping[str, str], dialect: StompDialect) -> list[Property]:
    known, renamed, text = dialect.message_headers, dialect.renamed, PropertyType.STRING
    return [
        new_property((renamed.get(name, name), text, value)) for name, value in headers.items() if name not in known
    ]


def _content(is_bytes: bool, body: bytes) -> tuple[MessageType, Body]:
    if is_bytes:
        return MessageType.BYTES, body
    if not body:
        return MessageType.UNKNOWN, None
    try:
        return MessageType.TEXT, body.decode()
    except UnicodeDecodeError:  # not a TextMessage; its octets are kept as evidence
        return MessageType.UNKNOWN, body


def _message_id(headers: Mapping[str, str], dialect: StompDialect) -> str | None:
    for name in dialect.id_headers:
        if (told := headers.get(name)) is not None and told.startswith("ID:"):
            return told
    value = headers.get("message-id")
    return value.rpartition(",")[2] if value is not None and dialect.id_is_pair else value


def _number(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    return int(value) if value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 20 else None


def _destination(headers: Mapping[str, str], dialect: StompDialect) -> Destination | None:
    address = headers.get("destination")
    if not address:
        return None
    destination = parse_destination(address, dialect)
    if destination.kind is DestinationKind.QUEUE and headers.get("destination-type") == "MULTICAST":
        return Destination(DestinationKind.TOPIC, destination.name)
    return destination


def _reply_to(headers: Mapping[str, str], dialect: StompDialect) -> Destination | None:
    return parse_destination(headers["reply-to"], dialect) if headers.get("reply-to") else None


def _delivery_mode(headers: Mapping[str, str], dialect: StompDialect) -> DeliveryMode:
    return DeliveryMode.PERSISTENT if headers.get("persistent") == "true" else DeliveryMode.NON_PERSISTENT


def _redelivered(headers: Mapping[str, str], dialect: StompDialect) -> bool | None:
    return headers.get("redelivered") == "true" or (False if dialect.tells_redelivery else None)


TEXTS: Final[Mapping[str, str]] = {"correlation_id": "correlation-id", "type": "type"}
NUMBERS: Final[Mapping[str, str]] = {"priority": "priority", "expiration": "expires", "timestamp": "timestamp"}
"""Fields that are the text of a header, or the number in it; the others depend on the dialect."""

USUAL_DIGITS: Final = 18

FIELDS_OF_HEADERS: Final[Mapping[str, Callable[[Mapping[str, str], StompDialect], Any]]] = {
    "destination": _destination,
    "message_id": _message_id,
    "correlation_id": lambda headers, _: headers.get("correlation-id"),
    "reply_to": _reply_to,
    "delivery_mode": _delivery_mode,
    "priority": lambda headers, _: _number(headers, "priority"),
    "expiration": lambda headers, _: _number(headers, "expires"),
    "timestamp": lambda headers, _: _number(headers, "timestamp"),
    "type": lambda headers, _: headers.get("type"),
    "redelivered": _redelivered,
}
"""How the fields of a message are read from headers."""

SOURCES: Final[Mapping[str, str]] = {
    "destination": "destination",
    "destination-type": "destination",
    "message-id": "message_id",
    "correlation-id": "correlation_id",
    "reply-to": "reply_to",
    "persistent": "delivery_mode",
    "priority": "priority",
    "expires": "expiration",
    "timestamp": "timestamp",
    "type": "type",
    "redelivered": "redelivered",
}
"""The field that each header determines; the `id_headers` of a dialect determine `message_id` too."""


def parse_destination(text: str, dialect: StompDialect = ACTIVEMQ_CLASSIC) -> Destination:
    """Read a destination as a frame spells it, in `destination` or in `reply-to`.

    Text without a known prefix is the name of a queue. A temporary destination that a connection made over STOMP has no
    name there, only its address.
    """
    return (_known if len(text) <= MAX_CACHED_CHARACTERS else _known.__wrapped__)(text, dialect.name)


@lru_cache(maxsize=1024)
def _known(text: str, dialect_name: str) -> Destination:
    """Read a destination. The cache helps because requests name few destinations."""
    dialect = NAMED[dialect_name]
    kind, name = DestinationKind.QUEUE, text
    for each, prefix in dialect.reply_prefixes.items():
        if text.startswith(prefix):
            kind, name = each, text[len(prefix) :]
            break
    for own, prefix in dialect.own_prefixes.items():
        if name.startswith(prefix) and (name is text or not dialect.own_is_private):
            return Destination(own, None, address=name)
    return Destination(kind, name)


def spell(destination: Destination, dialect: StompDialect = ACTIVEMQ_CLASSIC) -> str:
    """Return a destination in the form for SEND and SUBSCRIBE: its address if it has one, else prefix and name.

    Raises:
        UsageError: it has neither address nor name.
    """
    return destination.address or dialect.prefixes[destination.kind] + _name_of(destination)


def spell_reply_to(destination: Destination, dialect: StompDialect = ACTIVEMQ_CLASSIC) -> str:
    """Return a destination in the form for `reply-to`, so that JMS clients can parse it too.

    Raises:
        UsageError: it has neither address nor name.
    """
    if destination.address:
        return dialect.own_reply_prefix + destination.address
    return dialect.reply_prefixes[destination.kind] + _name_of(destination)


def _name_of(destination: Destination) -> str:
    if not destination.name:
        raise UsageError(f"a destination must have a name or an address, got {destination.kind} without either")
    return destination.name


def subscribe_headers(
    destination: Destination,
    dialect: StompDialect,
    *,
    prefetch: int,
    selector: str | None = None,
    durable_name: str | None = None,
) -> Headers:
    """Return the headers of the SUBSCRIBE frame: destination, selector and prefetch."""
    headers = {
        "destination": spell(destination, dialect),
        dialect.prefetch_header: str(dialect.window(prefetch)),
    }
    if routing := dialect.subscribe_routing.get(destination.kind):
        headers["subscription-type"] = routing
    if selector is not None:
        headers["selector"] = spell_selector(selector, dialect)
    if durable_name is not None:
        headers[dialect.durable_header] = durable_name
    return headers


def spell_selector(selector: str, dialect: StompDialect) -> str:
    """Return a JMS selector with the broker's names of headers; quoted strings stay unchanged."""
    return LITERAL_OR_HEADER.sub(lambda found: dialect.selector_names.get(found[0], found[0]), selector)


def acknowledgement(headers: Mapping[str, str], dialect: StompDialect) -> Headers:
    """Return headers of the ACK or NACK frame for a MESSAGE frame with these headers.

    Spec: STOMP 1.1 and 1.2, frame ACK, which differ.
    """
    if dialect.version == "1.1":
        return {"message-id": headers.get("message-id", ""), "subscription": headers.get("subscription", "")}
    return {"id": headers.get("ack", "")}


def dead_letter(headers: Mapping[str, str], body: bytes, reason: str, queue: str, dialect: StompDialect) -> Headers:
    """Return the headers of the SEND frame that moves a message to the dead-letter queue, without expiration.

    A `queue` that ends with `.` is a prefix to the name of the destination. Correlation id, reply-to and properties
    stay, and the type unless it is a text with NUL, which becomes a BytesMessage; the original address and the reason
    are added as properties.
    """
    address = headers.get("destination", "")
    destination = Destination(DestinationKind.QUEUE, queue + address * queue.endswith("."))
    return _kept(headers, body, dialect) | {
        "destination": spell(destination, dialect),
        **({"destination-type": routing} if (routing := dialect.send_routing.get(destination.kind)) else {}),
        "_AMQ_ORIG_ADDRESS": address,
        REASON_PROPERTY: carried_reason(reason),
    }


def sent_again(headers: Mapping[str, str], body: bytes, dialect: StompDialect) -> Headers:
    """Return the headers of the SEND frame that puts a message back on its queue; a text with NUL as BytesMessage."""
    more = {name: headers[name] for name in ("destination", "expires") if name in headers}
    return _kept(headers, body, dialect) | more


def _kept(headers: Mapping[str, str], body: bytes, dialect: StompDialect) -> Headers:
    """Return the headers of a MESSAGE frame that a message keeps when it is sent again."""
    kept = {
        name: value
        for name, value in headers.items()
        if name not in dialect.message_headers | dialect.reserved | NOT_REPEATED
        or name in ("correlation-id", "reply-to", "type", "priority", "persistent", "content-type")
    }
    if dialect.is_bytes(headers) or b"\0" in body:  # without a length, NUL would end the frame
        kept["content-length"] = str(len(body))
    return kept


def text_of(body: bytes) -> str:
    """Return the text of the body of an ERROR frame."""
    return body.decode("utf-8", "replace").strip()


def refusal(headers: Mapping[str, str], body: bytes, dialect: StompDialect = ACTIVEMQ_CLASSIC) -> SendFailedError:
    """Return the error for an ERROR frame, shortened: without stack trace and message contents."""
    said = text_of(body) or headers.get("message", "").strip() or "no reason given"
    text = MESSAGE_DUMP.sub("; its log says why", said.partition("\n")[0].strip())
    if len(text) > MAX_REASON_CHARACTERS:
        text = text[:MAX_REASON_CHARACTERS] + "…"
    kind = DestinationGoneError if dialect.gone in text else SendFailedError
    return kind(f"the broker refused: {text}")
