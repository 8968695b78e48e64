"""Messages to STOMP frames and back: pure functions, tested without a broker.

Headers here are as they mean, not as they are escaped on the wire; `brokers.stomp.link` does that.

Spec: STOMP 1.2, frames SEND, MESSAGE and ERROR.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from brokers.errors import DestinationGoneError, SendFailedError
from brokers.message import (
    Body,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    as_text,
)
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, Dialect

Headers: TypeAlias = dict[str, str]

MESSAGE_HEADERS: Final = frozenset(
    "ack content-length content-type correlation-id destination expires message-id persistent priority redelivered "
    "reply-to subscription timestamp type".split()
)
"""Headers of MESSAGE that STOMP or the broker gives a meaning; every other header is a property."""

RESERVED: Final = MESSAGE_HEADERS | {"receipt", "transaction", "transformation"}
"""Names that a property cannot have on SEND, because the broker would take it for a header of its own."""


def to_frame(message: Message, dialect: Dialect = ACTIVEMQ_CLASSIC) -> tuple[Headers, bytes]:
    """Return headers and body of the SEND frame that carries `message`.

    Every property becomes a string there; a null property is left out. `message_id` and `timestamp` are the broker's to
    set, and `redelivered` means nothing on the way there, so they are left out as well.

    Raises:
        ValueError: no destination; a message type other than text and bytes, or a body that does not go with it; a
            property whose name means something else to the broker.
    """
    if message.destination is None:
        raise ValueError("the message has no destination")
    headers = {"destination": spell(message.destination, dialect)}
    if message.reply_to is not None:
        headers["reply-to"] = spell(message.reply_to, dialect)
    # JMS's default is persistent, the broker's over STOMP is not.
    headers["persistent"] = "false" if message.delivery_mode == DeliveryMode.NON_PERSISTENT else "true"
    optional = {
        "correlation-id": message.correlation_id,
        "priority": message.priority,
        "expires": message.expiration,
        "type": message.type,
    }
    headers.update((name, str(value)) for name, value in optional.items() if value is not None)
    for name, _, value in message.properties:
        if not name or name in RESERVED:
            raise ValueError(f"a property cannot be called {name!r} over STOMP: the broker would take it for a header")
        text = as_text(value)
        if text is not None:
            headers[name] = text
    body = _octets(message)
    if message.message_type is MessageType.BYTES:
        headers["content-length"] = str(len(body))
    return headers, body


def _octets(message: Message) -> bytes:
    match message.message_type, message.body:
        case MessageType.BYTES, bytes() as body:
            return body
        case MessageType.BYTES, memoryview() as body:
            return bytes(body)
        case MessageType.TEXT, str() as body:
            if "\0" in body:
                raise ValueError("a text body with a NUL character cannot be sent over STOMP, where NUL ends the frame")
            return body.encode()
        case (MessageType.BYTES | MessageType.TEXT) as kind, body:
            raise ValueError(f"the body of a message of type {kind} cannot be {type(body).__name__} over STOMP")
        case kind, _:
            raise ValueError(f"STOMP carries messages of type text and bytes, not {kind}")


def from_frame(headers: Mapping[str, str], body: bytes, dialect: Dialect = ACTIVEMQ_CLASSIC) -> Message:
    """Return the message that a MESSAGE frame carries.

    Every property is a string, so the message is `untyped`. A frame without body and without `content-length` looks the
    same for an empty TextMessage and for a map, stream, object or plain message: its type is `unknown`. A header whose
    value makes no sense (a peer may set a property of that name) is None; `content-type` is dropped, no JMS header
    holds it. Never raises for what arrived.
    """
    message_type, content = _content(headers, body, dialect)
    return Message(
        message_type=message_type,
        body=content,
        properties=Properties(
            Property(name, PropertyType.STRING, value) for name, value in headers.items() if name not in MESSAGE_HEADERS
        ),
        destination=_destination(headers, "destination", dialect),
        message_id=headers.get("message-id"),
        correlation_id=headers.get("correlation-id"),
        reply_to=_destination(headers, "reply-to", dialect),
        delivery_mode=DeliveryMode.PERSISTENT if headers.get("persistent") == "true" else DeliveryMode.NON_PERSISTENT,
        priority=_number(headers, "priority"),
        expiration=_number(headers, "expires"),
        timestamp=_number(headers, "timestamp"),
        type=headers.get("type"),
        redelivered=headers.get("redelivered") == "true",
        untyped=True,
    )


def _content(headers: Mapping[str, str], body: bytes, dialect: Dialect) -> tuple[MessageType, Body]:
    if not dialect.length_tells_type:
        return MessageType.UNKNOWN, body
    if "content-length" in headers:
        return MessageType.BYTES, body
    if not body:
        return MessageType.UNKNOWN, None
    try:
        return MessageType.TEXT, body.decode()
    except UnicodeDecodeError:  # no TextMessage is like that; whoever judges it shall see what came
        return MessageType.UNKNOWN, body


def _number(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name, "")
    return int(value) if value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 20 else None


def _destination(headers: Mapping[str, str], name: str, dialect: Dialect) -> Destination | None:
    value = headers.get(name)
    return parse_destination(value, dialect) if value else None


def parse_destination(text: str, dialect: Dialect = ACTIVEMQ_CLASSIC) -> Destination:
    """Read a destination as a frame spells it. Text without a known prefix is the name of a queue.

    A temporary destination of the connection itself has no name there, only its address.
    """
    for kind, prefix in dialect.prefixes.items():
        if text.startswith(prefix):
            return Destination(kind, text[len(prefix) :])
    for kind, prefix in dialect.own_prefixes.items():
        if text.startswith(prefix):
            return Destination(kind, None, address=text)
    return Destination(DestinationKind.QUEUE, text)


def spell(destination: Destination, dialect: Dialect = ACTIVEMQ_CLASSIC) -> str:
    """Spell a destination as a frame wants it: its address if it has one, else prefix and name.

    Raises:
        ValueError: it has neither address nor name.
    """
    if destination.address is not None:
        return destination.address
    if not destination.name:
        raise ValueError(f"the destination of kind {destination.kind} has no name")
    return dialect.prefixes[destination.kind] + destination.name


def refusal(headers: Mapping[str, str], body: bytes, dialect: Dialect = ACTIVEMQ_CLASSIC) -> SendFailedError:
    """Return what an ERROR frame says as an error; the stack trace in its body is dropped but for the first line."""
    first = body.decode("utf-8", "replace").partition("\n")[0].strip()
    text = first or headers.get("message", "no reason given")
    kind = DestinationGoneError if dialect.gone in first else SendFailedError
    return kind(f"the broker refused: {text}")
