"""What of an exchange the report shows: where it belongs, who speaks in it, and its messages as samples.

Everything is cut to a length: a sample is for a person to recognise a message by, the log has the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from brokers.message import Destination, Element, Message, Properties
from soapjms.protocol.assertions import Outcome, Verdict, guess_dialect
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.properties import Carrier
from soapjms.protocol.reading import Reading
from soapjms.protocol.record import Record, format_time
from soapjms.replay.findings import LONGEST_REASON, Found, Sample

HEADERS: Final = 40
"""How many headers and properties of a message a sample has."""
LONGEST_VALUE: Final = 200
LONGEST_BODY: Final = 600
LONGEST_PLACE: Final = 1000
"""Characters of a destination's name that are kept."""

NODES: Final[Mapping[Carrier, str]] = {
    Carrier.REQUEST: "requesting",
    Carrier.ONE_WAY: "sending",
    Carrier.RESPONSE: "responding",
}
"""The nodes that send the messages of an exchange."""
KINDS: Final[Mapping[Carrier, str]] = {
    Carrier.REQUEST: "request",
    Carrier.ONE_WAY: "one-way message",
    Carrier.RESPONSE: "response",
}


class Scene(NamedTuple):
    """An exchange as the report sees it.

    Attributes:
        exchange: the exchange.
        place: the destination of the service; temporary ones without their name, empty where it is not known.
        stacks: the stack that the sender of each message looks of, empty for none.
    """

    exchange: Exchange
    place: str
    stacks: Mapping[Carrier, str]

    @classmethod
    def of(cls, exchange: Exchange, messages: Mapping[Carrier, Reading]) -> Scene:
        """Look at an exchange that has messages."""
        first = next(iter(messages.values())).message.destination
        if first is not None and first.kind.is_temporary:
            first = Destination(first.kind, None)  # a client has its own, and another each time that it starts
        place = (destination_text(first) or "")[:LONGEST_PLACE]
        return cls(exchange, place, {carrier: guess_dialect(each) or "" for carrier, each in messages.items()})

    def found(self, verdict: Verdict) -> Found:
        """Say what a verdict counts under."""
        return Found(
            reason=whole(verdict.reason or ""),
            place=self.place,
            stack=self.stacks[self._carrier(verdict)],
            expected=", ".join(verdict.expected_subcodes),
            observed=_cut(verdict.observed_subcode or ""),
        )

    def sample(self, verdict: Verdict) -> Sample:
        """Make the sample of a verdict; the message is in it only where the verdict says that something is wrong."""
        carrier, record = self._carrier(verdict), verdict.record
        broken = verdict.outcome in (Outcome.FAILED, Outcome.WARNING)
        body, more = body_excerpt(record.message) if broken else ("", 0)
        return Sample(
            time=format_time(record.time),
            exchange_id=_cut(self.exchange.id),
            message_id=_cut(record.message.message_id or ""),
            destination=_cut(destination_text(record.message.destination) or ""),
            reason=whole(verdict.reason or "")[:LONGEST_REASON],
            expected_subcodes=", ".join(verdict.expected_subcodes),
            observed_subcode=_cut(verdict.observed_subcode or ""),
            stack=self.stacks[carrier],
            direction=KINDS[carrier],
            headers=tuple(headers(record)) if broken else (),
            body=body,
            more=more,
        )

    def _carrier(self, verdict: Verdict) -> Carrier:
        if verdict.record is self.exchange.response:
            return Carrier.RESPONSE
        return Carrier.ONE_WAY if Carrier.ONE_WAY in self.stacks else Carrier.REQUEST


def destination_text(destination: Destination | None) -> str | None:
    """Write a destination as `queue:orders`."""
    if destination is None:
        return None
    return str(destination.kind) if destination.name is None else f"{destination.kind}:{destination.name}"


def headers(record: Record) -> Iterator[tuple[str, str]]:
    """Yield a message's headers, then its properties, by the names that JMS gives them: the first ones, each cut."""
    message = record.message
    known = [(name, value) for name, value in _jms_headers(message) if value is not None]
    named = [*known, *((each.name, each.value) for each in message.properties)]
    for name, value in named[:HEADERS]:
        yield _cut(name), _cut(str(value).lower() if isinstance(value, bool) else str(value))
    if len(named) > HEADERS:
        yield "…", f"{len(named) - HEADERS} more"
    if record.truncated:
        yield "…", "the body was cut when it was captured"


def _jms_headers(message: Message) -> Iterator[tuple[str, object]]:
    yield "JMS message type", message.message_type
    yield "JMSDestination", destination_text(message.destination)
    yield "JMSMessageID", message.message_id
    yield "JMSCorrelationID", message.correlation_id
    yield "JMSReplyTo", destination_text(message.reply_to)
    yield "JMSDeliveryMode", message.delivery_mode
    yield "JMSPriority", message.priority
    yield "JMSExpiration", message.expiration
    yield "JMSTimestamp", message.timestamp
    yield "JMSType", message.type
    yield "JMSRedelivered", message.redelivered


def body_excerpt(message: Message) -> tuple[str, int]:
    """Return the beginning of a body as text, and how many octets, characters or elements of it are left out.

    Octets that are no UTF-8 show as backslash escapes.
    """
    body = message.body
    if isinstance(body, str):
        return whole(body[:LONGEST_BODY]), max(0, len(body) - LONGEST_BODY)
    if isinstance(body, bytes | memoryview):
        return bytes(body[:LONGEST_BODY]).decode("utf-8", "backslashreplace"), max(0, len(body) - LONGEST_BODY)
    if body is None:
        return "", 0
    named = [(each.name, each.value) for each in body] if isinstance(body, Properties) else _elements(body)
    shown = [f"{name}: {str(value)[:LONGEST_VALUE]}" for name, value in named]
    return whole("\n".join(shown[:HEADERS])), max(0, len(shown) - HEADERS)


def _elements(body: tuple[Element, ...]) -> list[tuple[str, object]]:
    return [(str(number), each.value) for number, each in enumerate(body)]


def _cut(text: str) -> str:
    return whole(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…")


def whole(text: str) -> str:
    """Make a text one that UTF-8 can carry: what a peer wrote may hold half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode()
