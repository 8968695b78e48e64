"""AMQP messages in the embedded broker, and the links that clients receive them on.

The broker handles JMS messages. A message that came over AMQP keeps its octets beside its JMS form, and is sent over
AMQP unchanged: the parts that an intermediary must not change stay intact, and parts that JMS lacks are not lost. A
client gets as many messages as it gave credit for.

Spec: AMQP 1.0 part 3, section 3.2 (bare message); anonymous terminus 2.2 (AT-02); AMQP 1.0 part 2, section 2.6.7;
part 3, section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields, replace
from threading import Condition as Signal
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

from proton import Delivery, Link, Sender, ubyte, uint

from brokers.amqp.dialect import EMBEDDED
from brokers.amqp.listener.options import UNAUTHORIZED, RefusalError
from brokers.amqp.listener.transactions import ClientTransactions, transaction_of
from brokers.amqp.message import PRIORITIES, UINT, from_amqp_message, to_amqp_message
from brokers.amqp.outcomes import AmqpOutcome, is_final, outcome_of
from brokers.amqp.sections import AmqpSection, MalformedError, SectionValue, decode, encode
from brokers.connection import Delivery as BrokerDelivery
from brokers.embedded.connection import EmbeddedConsumer, EmbeddedDelivery
from brokers.errors import ConnectionLostError
from brokers.message import DEFAULT_PRIORITY, DeliveryMode, Destination, Message, MessageType
from brokers.selector import HEADERS, Headers

SEEN_HEADERS: Final[Headers] = {
    **HEADERS,
    "JMSMessageID": lambda message: message.told_id if _is_as_it_came(message) else message.message_id,
    "JMSTimestamp": lambda message: message.told_timestamp if _is_as_it_came(message) else message.timestamp,
}
"""The headers for a client's selector: as the client will see them."""

HOP_BY_HOP = frozenset({AmqpSection.HEADER, AmqpSection.DELIVERY_ANNOTATIONS})
"""Sections that each hop rewrites."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedMessage(Message):
    """A message that came over AMQP.

    Attributes:
        kept: its octets, except the sections that each hop rewrites.
        taken_for: its destination; at another one, as a dead letter, it is encoded again.
        told_id, told_timestamp: id and timestamp of the sender, which the receivers will read.
    """

    kept: bytes = b""
    taken_for: Destination | None = None
    told_id: str | None = None
    told_timestamp: int | None = None

    @property
    def octets(self) -> int:
        """The larger of its sizes in AMQP and in JMS; it may use twice as much memory."""
        return max(len(self.kept), super(CarriedMessage, self).octets)  # named, because slots create a new class


def carry(octets: bytes, destination: Destination | None, now: int, user: str | None) -> CarriedMessage:
    """Parse a message of a client. A reply address without a name is dropped from the JMS form, not from the octets.

    Args:
        octets: the AMQP message.
        destination: destination of the link; None to use `to` of the message, which is then in `destination`.
        now: milliseconds since 1970, from which a time to live counts.
        user: the user who sends; None for anonymous.

    Raises:
        MalformedError: the message is malformed.
        RefusalError: its user-id is not `user`. Spec: AMQP 1.0 part 3, 3.2.4.
    """
    sections = list(decode(octets))  # raises errors that the conversion to JMS would ignore
    _check_user(sections, user)
    message = from_amqp_message(octets, EMBEDDED, destination).message
    header: object = next((each.value for each in sections if each.section is AmqpSection.HEADER), [])
    if not isinstance(header, list):
        raise MalformedError("the header is no list")
    time_to_live = header[2] if len(header) > 2 else None
    expiration = message.expiration
    if expiration is None or (expiration == 0 and time_to_live):
        expiration = now + int(time_to_live) if isinstance(time_to_live, int) else 0
    priority = message.priority if message.priority in PRIORITIES else DEFAULT_PRIORITY
    reply_to = message.reply_to if message.reply_to is not None and message.reply_to.name else None  # leads somewhere
    changed = replace(message, expiration=expiration, priority=priority, redelivered=False, reply_to=reply_to)
    values = {each.name: getattr(changed, each.name) for each in fields(Message)}
    kept = b"".join(each.octets for each in sections if each.section not in HOP_BY_HOP)
    return CarriedMessage(**values, kept=kept, told_id=message.message_id, told_timestamp=message.timestamp)


def _check_user(sections: Iterable[SectionValue], user: str | None) -> None:
    for stated in [each.value for each in sections if each.section is AmqpSection.PROPERTIES]:
        claimed = stated[1] if isinstance(stated, list) and len(stated) > 1 else None
        octets = bytes(claimed) if isinstance(claimed, bytes | memoryview) else claimed
        if octets not in (None, b"", (user or "").encode()):
            own = "an anonymous client has none" if user is None else f"that of {user!r}"
            raise RefusalError(UNAUTHORIZED, f"the user-id of a message is its sender's or left out: {own}")


def bound_for(message: CarriedMessage, destination: Destination) -> CarriedMessage:
    """Return the message addressed to a destination."""
    return replace(message, destination=destination, taken_for=destination)


def _is_as_it_came(message: Message) -> TypeGuard[CarriedMessage]:
    return isinstance(message, CarriedMessage) and message.destination == message.taken_for


def uncarried(message: Message, delivery_count: int, now: int) -> bytes:
    """Return the octets of a message for a client.

    Args:
        message: the message of the broker.
        delivery_count: number of this delivery, from 1.
        now: milliseconds since 1970.
    """
    left = None
    if message.expiration:
        left = uint(min(max(1, message.expiration - now), UINT))
    header = [
        message.delivery_mode != DeliveryMode.NON_PERSISTENT,
        ubyte(DEFAULT_PRIORITY if message.priority is None else message.priority),
        left,
        delivery_count == 1,
        uint(delivery_count - 1),
    ]
    if _is_as_it_came(message):
        return encode(AmqpSection.HEADER, header) + message.kept
    if message.message_type is MessageType.UNKNOWN:  # a body of unknown type is sent as octets
        body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
        message = replace(message, message_type=MessageType.BYTES, body=body)
    return encode(AmqpSection.HEADER, header) + to_amqp_message(message, EMBEDDED, with_header=False)


class Desk(Protocol):
    """The part of a client's connection that its sending links use."""

    written: Signal

    def is_behind(self, link: Sender) -> bool:
        """Return whether so much waits for the client to read that nothing more is sent on a link."""

    def held(self) -> AbstractContextManager[None]:
        """Hold the lock, and write pending output afterwards."""

    def mark(self) -> int:
        """Return a mark for the end of all pending output."""

    def has_passed(self, mark: int) -> bool:
        """Return whether all output before a mark was written."""

    @property
    def is_up(self) -> bool:
        """Whether the connection has not ended."""

    @property
    def works(self) -> ClientTransactions:
        """The client's transactions."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""


class SentDelivery(NamedTuple):
    """A delivery held by the client, and the mark that is passed once it was written."""

    delivery: EmbeddedDelivery
    mark: int


class OutgoingLink:
    """One sending end.

    Args:
        link: proton's link.
        desk: the client's connection.
        subscribe: creates the consumer.
        forget: called with this object when it has ended, and with whether its link was closed for good.
    """

    def __init__(
        self,
        link: Sender,
        desk: Desk,
        subscribe: Callable[[Callable[[BrokerDelivery], None]], EmbeddedConsumer],
        forget: Callable[..., None],
    ) -> None:
        self._link: Sender | None = link
        self._desk = desk
        self._forget = forget
        self._sent = 0
        self._held: dict[str, SentDelivery] = {}
        self._handing = Lock()  # while it is held, only the broker's lock may be acquired
        self._is_given_up = False
        self._is_settled = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._consumer = subscribe(self._on_delivery)

    # On the consumer's thread

    def _on_delivery(self, delivery: BrokerDelivery) -> None:
        """Send one message to the client."""
        assert isinstance(delivery, EmbeddedDelivery)
        with suppress(ConnectionLostError), self._desk.held():
            while (
                self._link is not None
                and not self._is_given_up
                and self._desk.is_up
                and self._desk.is_behind(self._link)
            ):
                self._desk.written.wait()
            with self._handing:
                if self._link is not None and not self._is_given_up and self._desk.is_up:
                    self._hand_on(self._link, delivery)
                # otherwise the consumer is ending, and gives back the unsent delivery

    def _hand_on(self, link: Sender, delivery: EmbeddedDelivery) -> None:
        if link.credit <= 0:  # the client took the credit back meanwhile
            delivery.give_back()
            return
        try:
            octets = uncarried(delivery.message, delivery.delivery_count or 1, self._desk.now())
        except ValueError as error:  # if it were given back, it would come again at once
            delivery.reject(f"it could not be sent to an AMQP client: {error}")
        else:
            self._send(link, delivery, octets)

    def _send(self, link: Sender, delivery: EmbeddedDelivery, octets: bytes) -> None:
        self._sent += 1
        tag = str(self._sent)
        transfer = link.delivery(tag)
        link.stream(octets)
        link.advance()
        if self._is_settled:
            transfer.settle()
            self._allow()
            delivery.accept()
        else:
            self._held[tag] = SentDelivery(delivery, self._desk.mark() + link.session.outgoing_bytes)

    # Called with the lock held

    def flowed(self) -> None:
        """Let the broker hand over as many messages as there is credit for."""
        self._allow()

    def drain(self) -> bool:
        """Return unused credit of a draining link; False while it is not known whether there are more messages."""
        link = self._link
        if link is None or not link.drain_mode or link.credit <= 0:
            return True
        if not self._consumer.is_idle:
            return False
        link.drained()
        self._allow()
        return True

    @property
    def is_draining(self) -> bool:
        """Whether the client is draining the link: it wants only the messages available now."""
        return self._link is not None and bool(self._link.drain_mode) and self._link.credit > 0

    @property
    def state(self) -> list[Any]:
        """The link fields of a flow, valid once all sent messages are written: count, credit, available, drain."""
        assert self._link is not None
        return [uint(self._sent), uint(max(0, self._link.credit)), None, bool(self._link.drain_mode)]

    def delivered(self, delivery: Any) -> None:
        """Settle a message with the client's outcome; within a transaction, at its commit.

        Raises:
            RefusalError: there is no such transaction; the client still holds the message.
        """
        sent = self._held.get(delivery.tag)
        if sent is None or not is_final(delivery):
            return
        transaction, held = transaction_of(delivery), sent.delivery
        if transaction is not None:
            held = self._desk.works.find(transaction).taking(held)
        conclude(held, outcome_of(delivery))
        del self._held[delivery.tag]
        self._allow()
        delivery.settle()

    def _allow(self) -> None:
        if self._link is not None:
            self._consumer.allow(len(self._held) + max(0, self._link.credit))

    def give_up(self) -> None:
        """Give back held messages, and take no more. Any thread may call this, without a lock of this connection.

        A message that is being sent is sent first. As with `end`, messages that were never written to the client do not
        count as delivered.
        """
        with self._handing:
            self._is_given_up = True
        self._consumer.stop()
        self._consumer.leave(self._seen())

    def end(self, *, for_good: bool) -> None:
        """Give back held messages; a durable subscription is kept, unless `for_good`.

        Messages that were never written to the client do not count as delivered.
        """
        self._link = None
        seen = self._seen()
        self._held.clear()
        self._desk.written.notify_all()
        self._consumer.stop()
        self._consumer.leave(seen)
        self._forget(self, for_good=for_good)

    def _seen(self) -> list[EmbeddedDelivery]:
        """Return the held deliveries that were written to the client."""
        return [each.delivery for each in list(self._held.values()) if self._desk.has_passed(each.mark)]


def conclude(held: EmbeddedDelivery, outcome: AmqpOutcome) -> None:
    """Settle a delivery with an outcome.

    A returned message counts as delivered only if the client marked it as failed. Spec: AMQP 1.0 part 3, 3.4.4, 3.4.5.
    """
    match outcome.state:
        case Delivery.ACCEPTED:
            held.accept()
        case Delivery.REJECTED:
            condition = outcome.condition
            held.reject("rejected" if condition is None else f"{condition.description or condition.name}")
        case Delivery.MODIFIED if outcome.undeliverable:
            held.reject("modified: not deliverable here")
        case Delivery.MODIFIED if outcome.failed:
            held.release()
        case _:
            held.give_back()
