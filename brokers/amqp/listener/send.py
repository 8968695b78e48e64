"""Links that clients receive messages on.

A client gets as many messages as it gave credit for. They are taken from the broker and sent by the thread of its
connection, many in one go.

Spec: AMQP 1.0 part 2, section 2.6.7; part 3, section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, Protocol

from cproton_ffi import lib
from proton import Delivery, Link, Sender, uint

from brokers.amqp import transfers
from brokers.amqp.listener.bursts import OutputBurst, OutputBursts
from brokers.amqp.listener.messages import uncarried
from brokers.amqp.listener.transactions import ClientTransactions
from brokers.amqp.outcomes import AmqpOutcome, final_outcome
from brokers.amqp.transfers import STATE_ACCEPTED, Transfer, credit_of, settle, wrapped
from brokers.connection import Delivery as BrokerDelivery
from brokers.embedded.connection import EmbeddedConsumer, EmbeddedDelivery, Submit


class Desk(Protocol):
    """The part of a client's connection that its sending links use."""

    bursts: OutputBursts
    """The messages for the client that are not written yet."""

    is_up: bool
    """Whether the connection has not ended."""

    def pause(self, link: OutgoingLink) -> None:
        """Let a link go on once the client has read more."""

    def soon(self, task: Callable[[], None]) -> None:
        """Run a task on the thread of the connection, with the lock held; raise RuntimeError after its end."""

    @property
    def works(self) -> ClientTransactions:
        """The client's transactions."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""


class SentDelivery(NamedTuple):
    """A delivery held by the client, its burst, and the octets of the messages of its session up to its end."""

    delivery: EmbeddedDelivery
    burst: OutputBurst
    octets: int


class OutgoingLink:
    """One sending end.

    Args:
        link: proton's link.
        desk: the client's connection.
        subscribe: creates the consumer, given its `on_delivery` and what runs it.
        forget: called with this object when it has ended, and with whether its link was closed for good.
    """

    def __init__(
        self,
        link: Sender,
        desk: Desk,
        subscribe: Callable[[Callable[[BrokerDelivery], None], Submit], EmbeddedConsumer],
        forget: Callable[..., None],
    ) -> None:
        self._link: Sender | None = link
        self._desk = desk
        self._forget = forget
        self._sent = 0
        self._held: dict[Transfer, SentDelivery] = {}
        self._is_paused = False  # until the client has read more
        self._session = hash(link.session)
        self._handing = Lock()  # while it is held, only the broker's lock may be acquired
        self._is_given_up = False
        self._is_settled = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._consumer = subscribe(self._on_delivery, self._soon)

    def _soon(self, task: Callable[[], None]) -> None:
        self._desk.soon(partial(self._run, task))

    # On the connection's thread

    def _run(self, task: Callable[[], None]) -> None:
        """Let the consumer take messages, unless too much waits for the client."""
        self._pause_if_behind()
        task()

    def _pause_if_behind(self) -> None:
        if not self._is_paused and self._link is not None and self._desk.bursts.is_behind(self._link):
            self._is_paused = True
            self._allow()
            self._desk.pause(self)

    def _on_delivery(self, delivery: BrokerDelivery) -> None:
        """Send one message to the client. The lock is held: the consumer runs only within `_run`."""
        assert isinstance(delivery, EmbeddedDelivery)
        with self._handing:
            if self._link is not None and not self._is_given_up:
                self._hand_on(self._link, delivery)
            # otherwise the consumer is ending, and gives back the unsent delivery

    def _hand_on(self, link: Sender, delivery: EmbeddedDelivery) -> None:
        if self._is_paused or credit_of(link) <= 0:  # it was handed over before the pause; or the client took it back
            delivery.give_back()
            return
        message = delivery.message
        now = self._desk.now() if message.expiration else 0
        try:
            octets = uncarried(message, delivery.delivery_count or 1, now)
        except ValueError as error:  # if it were given back, it would come again at once
            delivery.reject(f"it could not be sent to an AMQP client: {error}")
            self._allow()
        else:
            self._send(link, delivery, octets)

    def _send(self, link: Sender, delivery: EmbeddedDelivery, octets: bytes) -> None:
        self._sent += 1
        transfer, bursts = transfers.send(link, b"%d" % self._sent, octets), self._desk.bursts
        burst, end = bursts.present, bursts.note_sent(self._session, len(octets))
        if self._is_settled:
            settle(transfer)
            delivery.accept()
        else:
            self._held[transfer] = SentDelivery(delivery, burst, end)
        if burst is not bursts.present:
            self._pause_if_behind()

    # Called with the lock held

    def flowed(self) -> None:
        """Let the broker hand over as many messages as there is credit for."""
        self._allow()

    def go_on(self) -> None:
        """Send again, if the client has read enough."""
        self._is_paused = False
        self._pause_if_behind()
        if not self._is_paused:
            self._allow()

    def drain(self) -> bool:
        """Return unused credit of a draining link; False while it is not known whether there are more messages.

        Nothing is returned while the link is paused, or while messages wait for the window of the session: proton would
        not tell the client. Both end when the client reads, after which this is called again.
        """
        link = self._link
        if link is None or self._is_paused or link.queued or not self.is_draining:
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

    def delivered(self, transfer: Transfer) -> None:
        """Settle a message with the client's outcome; within a transaction, at its commit.

        Raises:
            RefusalError: there is no such transaction; the client still holds the message.
        """
        sent = self._held.get(transfer)
        if sent is None:
            return
        if lib.pn_delivery_remote_state(transfer) == STATE_ACCEPTED:
            sent.delivery.accept()
        elif not self._conclude(wrapped(transfer), sent.delivery):
            return
        del self._held[transfer]
        settle(transfer)

    def _conclude(self, delivery: Delivery, held: EmbeddedDelivery) -> bool:
        """Settle a message with any outcome; return False if it has none yet."""
        outcome = final_outcome(delivery)
        if outcome is None:
            return False
        if outcome.transaction is not None:
            held = self._desk.works.find(outcome.transaction).taking(held)
        conclude(held, outcome)
        return True

    def _allow(self) -> None:
        if self._link is not None:
            self._consumer.allow(0 if self._is_paused else max(0, self._link.credit))

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
        if self._desk.is_up:
            for transfer in self._held:
                transfers.drop_unsent(transfer)
        self._held.clear()
        self._consumer.stop()
        self._consumer.leave(seen)
        self._forget(self, for_good=for_good)

    def _seen(self) -> list[EmbeddedDelivery]:
        """Return the held deliveries that were written to the client."""
        passed, session = self._desk.bursts.output.passed, self._session
        return [
            each.delivery for each in list(self._held.values()) if each.burst.is_written(session, each.octets, passed)
        ]


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
