"""Excerpts of captured messages, for people: headers by their JMS names, the beginning of a body, a bounded record.

All texts are limited in length: an excerpt helps people to recognise a message, and the log has the whole of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from brokers.message import Destination, Element, Message, Properties, Property, PropertyValue, as_text, changed
from soapjms.protocol.assertions.spots import MESSAGE_TYPE
from soapjms.protocol.properties import Carrier
from soapjms.protocol.record import Record, body_digest, from_json, to_json
from soapjms.protocol.text import moment
from soapjms.replay.parties import NODES

MAX_SAMPLE_HEADERS: Final = 40
"""Maximum number of headers and properties in an excerpt."""
MAX_VALUE_CHARACTERS: Final = 200
MAX_BODY_CHARACTERS: Final = 600
"""Maximum number of octets or characters of a body that an excerpt shows."""
MAX_KEPT_OCTETS: Final = 4096
"""Maximum number of octets or characters of a body that an excerpt keeps."""
MAX_LINE_CHARACTERS: Final = 16_384
"""Maximum length of the capture record that an excerpt keeps whole, but for its body."""
MAX_DESTINATION_CHARACTERS: Final = 1000
"""Maximum length of a destination's name, in characters; the rest is cut."""

KINDS: Final[Mapping[Carrier, str]] = {
    Carrier.REQUEST: "request",
    Carrier.ONE_WAY: "one-way message",
    Carrier.RESPONSE: "response",
}
KIND_OF_NODE: Final = {node: KINDS[carrier] for carrier, node in NODES.items()}


class Excerpt(NamedTuple):
    """One message of an exchange, as much of it as a report keeps.

    Attributes:
        kind: one of `KINDS`.
        stack: the stack that its sender seems to use; empty if unknown.
        line: its capture record.
        left: the number of octets, characters or elements of its body that the record lacks.
        is_whole: False if anything but the body was cut as well.
    """

    kind: str
    stack: str
    line: str
    left: int
    is_whole: bool

    @classmethod
    def of(cls, record: Record, kind: str, stack: str) -> Excerpt:
        """Make the excerpt of a message."""
        if record.sha256 is not None and not record.truncated:  # one that a program made may state any
            record = replace(record, sha256=body_digest(record.message.body))
        kept, is_whole = _with_short_body(record), True
        line = _line(kept)
        if len(line) > MAX_LINE_CHARACTERS:
            kept, is_whole = _bounded(kept), False
            line = _line(kept)
        return cls(kind, stack, line, record.message.size - kept.message.size, is_whole)

    @property
    def record(self) -> Record:
        """The record that it keeps.

        Raises:
            InvalidRecordError: the excerpt was read from a damaged file.
        """
        return from_json(self.line)


def _with_short_body(record: Record) -> Record:
    body = record.message.body
    if not isinstance(body, str | bytes | memoryview) or len(body) <= MAX_KEPT_OCTETS:
        return record
    begin = body[:MAX_KEPT_OCTETS]
    cut = changed(record.message, body=begin if isinstance(begin, str) else bytes(begin))
    digest = record.sha256 if record.truncated else record.sha256 or body_digest(body)
    return replace(record, message=cut, truncated=True, sha256=digest)


def _line(record: Record) -> str:
    line = to_json(record)
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def _bounded(record: Record) -> Record:
    """Cut all headers, properties and elements of a message, and leave out what the binding does not know."""
    message = record.message
    destinations = {
        name: None if found is None else Destination(found.kind, found.name and _short(found.name))
        for name, found in (("destination", message.destination), ("reply_to", message.reply_to))
    }
    texts = {name: _short(getattr(message, name)) for name in ("message_id", "correlation_id", "type")}
    body = message.body
    if isinstance(body, Properties):
        body = _first(body)
    elif isinstance(body, tuple):
        body = tuple(Element(each.type, _short(each.value)) for each in body[:MAX_SAMPLE_HEADERS])
    cut = changed(message, properties=_first(message.properties), body=body, **destinations, **texts)
    return replace(record, message=cut, sha256=None, truncated=True, meta={}, extra={})


def _first(properties: Properties) -> Properties:
    kept = [*properties][:MAX_SAMPLE_HEADERS]
    return Properties(Property(_short(each.name), each.type, _short(each.value)) for each in kept)


def _short(value: Any) -> Any:
    return value[:MAX_VALUE_CHARACTERS] if isinstance(value, str | bytes) else value


def service_place(destination: Destination | None) -> str:
    """Return the destination of a service as it is counted by: see `Scene.place`."""
    if destination is not None and destination.kind.is_temporary:
        destination = Destination(destination.kind, None)  # each client has its own, a new one each time it starts
    return (destination_text(destination) or "")[:MAX_DESTINATION_CHARACTERS]


def destination_text(destination: Destination | None) -> str | None:
    """Write a destination as `queue:orders`."""
    if destination is None:
        return None
    return str(destination.kind) if destination.name is None else f"{destination.kind}:{destination.name}"


def headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield a message's headers, then its properties, by their JMS names: the first ones, each limited in length."""
    message = record.message
    known = ((name, value) for name, value in jms_headers(message) if value is not None)
    named = [
        (name, f"{value}{f' ({words})' if (words := time_in_words(name, value)) else ''}") for name, value in known
    ]
    named += [(each.name, value_text(each.value)) for each in message.properties]
    for name, value in named[:MAX_SAMPLE_HEADERS]:
        yield cut(name), cut(value)
    if len(named) > MAX_SAMPLE_HEADERS:
        yield "…", f"{len(named) - MAX_SAMPLE_HEADERS} more"
    if record.truncated:
        yield "…", "the body was cut when it was captured"


def jms_headers(message: Message) -> Iterator[tuple[str, str | None]]:
    """Yield a message's headers as texts by their JMS names, the message type first; None for those that it lacks."""
    yield MESSAGE_TYPE, str(message.message_type)
    yield "JMSDestination", destination_text(message.destination)
    yield "JMSMessageID", message.message_id
    yield "JMSCorrelationID", message.correlation_id
    yield "JMSReplyTo", destination_text(message.reply_to)
    yield "JMSDeliveryMode", as_text(message.delivery_mode)
    yield "JMSPriority", as_text(message.priority)
    yield EXPIRATION, as_text(message.expiration)
    yield TIMESTAMP, as_text(message.timestamp)
    yield "JMSType", message.type
    yield "JMSRedelivered", as_text(message.redelivered)


EXPIRATION, TIMESTAMP = "JMSExpiration", "JMSTimestamp"
"""The headers that hold a time, in milliseconds since 1970."""


def time_in_words(name: str, value: str) -> str:
    """Return what the value of a header means if it is a time; empty for other headers."""
    if name not in (EXPIRATION, TIMESTAMP):
        return ""
    if value == "0":
        return "never" if name == EXPIRATION else "not set"
    return moment(int(value))


def body_excerpt(message: Message) -> tuple[str, int]:
    """Return the beginning of a body as text, and how many octets, characters or elements are left out.

    Octets that are not UTF-8 are shown as backslash escapes.
    """
    body = message.body
    if isinstance(body, str):
        return whole(body[:MAX_BODY_CHARACTERS]), max(0, len(body) - MAX_BODY_CHARACTERS)
    if isinstance(body, bytes | memoryview):
        return bytes(body[:MAX_BODY_CHARACTERS]).decode("utf-8", "backslashreplace"), max(
            0, len(body) - MAX_BODY_CHARACTERS
        )
    if body is None:
        return "", 0
    named = [(each.name, each.value) for each in body] if isinstance(body, Properties) else _elements(body)
    lines = [f"{name}: {value_text(value)[:MAX_VALUE_CHARACTERS]}" for name, value in named]
    return whole("\n".join(lines[:MAX_SAMPLE_HEADERS])), max(0, len(lines) - MAX_SAMPLE_HEADERS)


def value_text(value: PropertyValue) -> str:
    """Return the value of a property, or of an entry of a body, as text for people."""
    text = as_text(value)
    return "(null)" if text is None else text


def _elements(body: tuple[Element, ...]) -> list[tuple[str, PropertyValue]]:
    return [(str(number), each.value) for number, each in enumerate(body)]


def cut(text: str) -> str:
    """Limit the length of a text, and escape lone surrogates."""
    return whole(text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…")


def whole(text: str) -> str:
    """Escape lone surrogates, which a peer's text may hold, so that UTF-8 can carry the text."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
