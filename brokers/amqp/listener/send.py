"""AMQP messages on their way through the embedded broker, and the links that clients receive them on.

The broker moves JMS messages. A message that came over AMQP keeps its octets beside its JMS form, and leaves over
AMQP as it came: what an intermediary must not touch is not touched, and what JMS has no word for is not lost. A
client is handed as much as it gave credit for.

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
"""What a selector of a client goes by: headers as the client will see them."""

HOP_BY_HOP = frozenset({AmqpSection.HEADER, AmqpSection.DELIVERY_ANNOTATIONS})
"""Sections that each hop writes anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedMessage(Message):
    """A message that came over AMQP.

    Attributes:
        kept: its octets, but for those that each hop writes anew.
        taken_for: where it was sent; elsewhere, as a dead letter, it is written anew.
        told_id, told_timestamp: as its sender wrote them, which is what its receivers read.
    """

    kept: bytes = b""
    taken_for: Destination | None = None
    told_id: str | None = None
    told_timestamp: int | None = None

    @property
    def octets(self) -> int:
        """What it takes as AMQP, or as a JMS message if that is more; up to twice as much memory is taken."""
        return max(len(self.kept), super(CarriedMessage, self).octets)  # by name, as slots make another class


def carry(octets: bytes, destination: Destination | None, now: int, user: str | None) -> CarriedMessage:
    """Read what a client sent. An address for replies that names nothing is dropped, but for the octets as they came.

    Args:
        octets: the AMQP message.
        destination: where the link leads; None to go by `to` of the message, which is then in `destination`.
        now: milliseconds since 1970, from which a time to live counts.
        user: who sends; None for nobody in particular.

    Raises:
        MalformedError: it is none.
        RefusalError: its user-id is another. Spec: AMQP 1.0 part 3, 3.2.4.
    """
    sections = list(decode(octets))  # raises, where reading for JMS would go on
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
    """Send a message to a destination."""
    return replace(message, destination=destination, taken_for=destination)


def _is_as_it_came(message: Message) -> TypeGuard[CarriedMessage]:
    return isinstance(message, CarriedMessage) and message.destination == message.taken_for


def uncarried(message: Message, delivery_count: int, now: int) -> bytes:
    """Write what a client gets.

    Args:
        message: as the broker has it.
        delivery_count: of this delivery, from 1.
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
    if message.message_type is MessageType.UNKNOWN:  # octets that no message type fits are octets
        body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
        message = replace(message, message_type=MessageType.BYTES, body=body)
    return encode(AmqpSection.HEADER, header) + to_amqp_message(message, EMBEDDED, with_header=False)


class Desk(Protocol):
    """What a link needs of its connection."""

    written: Signal

    def is_behind(self, link: Sender) -> bool:
        """Say whether so much waits for the client to read that nothing more is to be sent on a link."""

    def held(self) -> AbstractContextManager[None]:
        """Hold the lock, and have written what is to be written."""

    def mark(self) -> int:
        """Return what stands for the end of all that is to be written by now."""

    def has_passed(self, mark: int) -> bool:
        """Say whether everything before a mark was written."""

    @property
    def is_up(self) -> bool:
        """Whether anything can still be written."""

    @property
    def works(self) -> ClientTransactions:
        """The client's transactions."""

    def now(self) -> int:
        """Milliseconds since 1970."""


class SentDelivery(NamedTuple):
    """A delivery that is the client's, and the mark that is passed once it was written."""

    delivery: EmbeddedDelivery
    mark: int


class OutgoingLink:
    """One sending end.

    Args:
        link: proton's.
        desk: the client's connection.
        subscribe: makes the consumer.
        forget: ends what was there for this one only, told it, and whether its link has ended for good.
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
        self._handing = Lock()  # held outside no other but the broker's
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
                # else the consumer is ending, and gives back what was not sent

    def _hand_on(self, link: Sender, delivery: EmbeddedDelivery) -> None:
        if link.credit <= 0:  # taken back meanwhile
            delivery.give_back()
            return
        try:
            octets = uncarried(delivery.message, delivery.delivery_count or 1, self._desk.now())
        except ValueError as error:  # given back it would come again at once
            delivery.reject(f"a client of AMQP was to get it: {error}")
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

    # With the lock held

    def flowed(self) -> None:
        """Let the broker hand over as much as there is credit for."""
        self._allow()

    def drain(self) -> bool:
        """Give back the credit that nothing is there for; False while that is not known yet."""
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
        """Whether the client asked for what there is, and no more."""
        return self._link is not None and bool(self._link.drain_mode) and self._link.credit > 0

    @property
    def state(self) -> list[Any]:
        """What a flow says of the link, once all that was sent has been written: count, credit, available, drain."""
        assert self._link is not None
        return [uint(self._sent), uint(max(0, self._link.credit)), None, bool(self._link.drain_mode)]

    def delivered(self, delivery: Any) -> None:
        """Do with a message what the client decided.

        Within a transaction that is done at its commit.

        Raises:
            RefusalError: there is no such transaction; the message stays the client's.
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
        """Give back what is held, and get nothing more; by any thread, which holds no lock of this connection.

        What is being sent is sent before that. As with `end`, what the client was never written does not count as a
        delivery.
        """
        with self._handing:
            self._is_given_up = True
        self._consumer.stop()
        self._consumer.leave(self._seen())

    def end(self, *, for_good: bool) -> None:
        """Give back what is held; a durable subscription stays, unless that is for good.

        What the client was never written does not count as a delivery.
        """
        self._link = None
        seen = self._seen()
        self._held.clear()
        self._desk.written.notify_all()
        self._consumer.stop()
        self._consumer.leave(seen)
        self._forget(self, for_good=for_good)

    def _seen(self) -> list[EmbeddedDelivery]:
        """Return what the client was written, of what it holds."""
        return [each.delivery for each in list(self._held.values()) if self._desk.has_passed(each.mark)]


def conclude(held: EmbeddedDelivery, outcome: AmqpOutcome) -> None:
    """Do with a message what was decided.

    Only what is said to have failed counts as a delivery. Spec: AMQP 1.0 part 3, 3.4.4 and 3.4.5.
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
