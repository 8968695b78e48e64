"""Receiving links: credit, assembly of messages from octets, and settlement.

The broker may send one message for each credit, and gets credit back for each settled message, so at most `prefetch`
are held. If it sends more, it violates AMQP, and the connection is closed; if it does not read, it gets no credit.
proton's deliveries stay here, under the engine's lock; other code knows only their numbers.

Spec: AMQP 1.0 part 2, section 2.6.7 (flow control); part 3, section 3.4 (delivery state).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from proton import Condition, Delivery, Described, Link, Receiver, Sender, Session, Terminus, symbol, ulong

from brokers.amqp.dialect import CAPABILITIES, AmqpDialect, node_kind, spell
from brokers.amqp.engine import AmqpEngine, discard
from brokers.amqp.outcomes import (
    LINK_REDIRECT,
    LINK_STOLEN,
    TRANSFER_LIMIT,
    RedirectedError,
    StolenError,
    says_gone,
    text_of,
)
from brokers.amqp.send import OUTCOMES, put_symbols
from brokers.amqp.shapes import SectionShapes
from brokers.amqp.transfers import (
    PLACE_OCTETS,
    Transfer,
    accept,
    accept_in,
    give_credit,
    read,
    read_some,
    settle,
    was_settled,
    wrapped,
)
from brokers.connection import SubscribeOptions
from brokers.errors import BrokerError, ConnectionLostError, NoAnswerError, NoDestinationError

SELECTOR: Final = "apache.org:selector-filter:string"
SELECTOR_CODE: Final = 0x0000_468C_0000_0004

CREDIT_PARTS: Final = 4
"""Divisor of `prefetch`: for settled messages, credit is returned in batches of this part."""

MAX_HEAD_OCTETS: Final = 65_536
"""Number of octets kept of a message above the limit: enough for the sections before its body, unless very long."""


@dataclass(slots=True, eq=False)
class AmqpArrival:
    """A message as it arrived, with its link and its number there. The reader of `octets` clears them.

    `size` is the size of the whole message; `octets` has only its beginning if it was above the limit or did not fit in
    memory. If `is_settled`, the broker forgot the message when it sent it, and is not informed of its outcome.
    """

    inlet: Inlet
    number: int
    octets: bytes | bytearray
    size: int
    is_settled: bool = False
    read_at: float | None = None


class Inlet:
    """One receiving link, from attaching to detaching.

    Attributes:
        is_live: whether the link has not ended. Like all state of a link, it changes with the engine's lock held.
        last_seen: number of the last message that was delivered to the program: it, and those before it, count as
            delivered if they go back.
        limit: maximum size of a message, in octets. It is not sent: the broker would end the link over a larger one.
    """

    def __init__(
        self, engine: AmqpEngine, generation: int, options: SubscribeOptions, dialect: AmqpDialect, limit: int
    ) -> None:
        self.engine = engine
        self.generation = generation
        self.is_live = False
        self.dialect = dialect
        self.options = options
        self.limit = limit
        self._small = min(limit, PLACE_OCTETS - 1)
        self.shapes = SectionShapes()
        self._first_credit = options.prefetch
        self._is_let_in = False
        self._is_left = False  # whether it was detached, perhaps before it was attached
        self._is_unsubscribed = False  # whether the broker was asked to delete the subscription
        self._link: Receiver | None = None
        self._session: Session | None = None
        self.last_seen = 0
        self._number = 0  # of the last message
        self._transfers: dict[int, Transfer] = {}
        self._credit = 0  # that the broker has
        self._owed = 0
        self._done = 0
        self._concluded: deque[int] = deque()
        self._is_concluding = False  # whether those will soon be accepted
        self._buffer = bytearray()
        self._size = 0  # octets of the current message that arrived, including dropped ones
        self._receive: Callable[[AmqpArrival], None] = lambda arrival: None
        self._on_detach: Callable[[BrokerError], None] = lambda error: None
        self._answers: SimpleQueue[BrokerError | None] = SimpleQueue()

    def unsubscribe(self, timeout: float) -> None:
        """Attach without credit and close the link, which ends its durable subscription; detaching would keep it.

        Raises:
            BrokerError: the broker refused.
            NoAnswerError: the broker did not answer in time.
            ConnectionLostError: the connection has ended.

        Spec: AMQP 1.0 part 2, section 2.6.4; as Qpid JMS does it.
        """
        self._first_credit = 0
        wait = self.attach(lambda arrival: None, lambda error: None)
        assert wait is not None  # nobody else knows the link
        wait(timeout)
        with self.engine.held():
            self.is_live, self._is_unsubscribed = False, True
            if self._link is not None:
                self._link.close()
        self._wait(timeout)

    def attach(
        self, receive: Callable[[AmqpArrival], None], on_detach: Callable[[BrokerError], None]
    ) -> Callable[[float], None] | None:
        """Attach; return a function that waits for the broker's answer, for a number of seconds.

        Credit follows the answer: it counts from the number with which the broker begins, which proton takes for 0
        before the answer is here. RabbitMQ begins five below the largest number, and would send six messages for one
        credit. Spec: AMQP 1.0 part 2, section 2.7.4, delivery-count.

        Return None if the link was detached before: its consumer was closed, on another thread.

        The function raises:
            BrokerError: the broker refused, or did not answer in time.
            ConnectionLostError: the connection has ended.
        """
        self._receive, self._on_detach = receive, on_detach
        address = spell(self.options.destination, self.dialect)  # before the session, as it may raise
        with self.engine.held():
            if self._is_left:
                return None
            session = self._session = self.engine.begin_session(self._session_ended)
            durable = self.options.durable_name
            receiver = session.receiver(self.engine.new_name() if durable is None else durable)
            link = self._link = self.engine.look_after(receiver, self)
            self._describe(link, address)
            link.open()
            self.engine.is_lazy |= self.options.lazy
            self.is_live = True
        return self._wait

    def _describe(self, link: Receiver, address: str) -> None:
        destination, selector = self.options.destination, self.options.selector
        link.source.address = address
        put_symbols(link.source.capabilities, CAPABILITIES[node_kind(destination, self.dialect)])
        put_symbols(link.source.outcomes, *OUTCOMES)
        if selector is not None:
            link.source.filter.put_object({symbol(SELECTOR): Described(ulong(SELECTOR_CODE), selector)})
        if self.options.auto_accept and self._has_copies:
            link.snd_settle_mode = Link.SND_SETTLED
        if self.options.durable_name is not None:
            link.source.durability = Terminus.DELIVERIES
            link.source.expiry_policy = Terminus.EXPIRE_NEVER

    @property
    def _has_copies(self) -> bool:
        """Whether messages are lost with the link, so that the broker need not be informed of their outcome.

        This is False for a queue of a topic at Artemis, `topic::queue`, which outlives the link.
        """
        place = self.options.destination
        return place.kind.is_topic and self.options.durable_name is None and "::" not in (place.name or "")

    def _wait(self, timeout: float) -> None:
        try:
            error = self._answers.get(timeout=max(0.0, timeout))
        except Empty:
            with suppress(ConnectionLostError), self.engine.held():
                self.detach()  # otherwise it would hold messages if the answer were late
            error = NoAnswerError(f"{self.engine} did not answer within {timeout:.1f} s")
        if error is not None:
            raise error

    def is_holding(self, number: int) -> bool:
        """Return whether a message is unsettled on this link. With the engine's lock held."""
        return self.is_live and number in self._transfers and self.engine.is_up

    def settle(
        self, number: int, state: int, *, error: Condition | None = None, transaction: bytes | None = None
    ) -> bool:
        """Settle a message, and give the broker credit for another; return False if it is not held any more.

        With the engine's lock held.
        """
        transfer = self._transfers.pop(number, None)
        if transfer is None or self._link is None:
            return False
        if transaction is not None:
            accept_in(transfer, transaction)
        elif state == Delivery.ACCEPTED:
            accept(transfer)
        else:
            settle(transfer, state, error)
        self._give(1)
        return True

    def conclude(self, number: int) -> None:
        """Accept a message that was handled, together with the others that were read with it. For one thread at a time.

        If the connection is lost before, the broker delivers it again.
        """
        self._concluded.append(number)
        if not self._is_concluding:
            self._is_concluding = True
            self.engine.after_arrivals(self._accept_concluded)

    def _accept_concluded(self) -> None:
        self._is_concluding = False
        with suppress(ConnectionLostError), self.engine.held():
            self._settle_concluded()

    def _settle_concluded(self) -> None:
        """Accept the messages that were handled. With the engine's lock held."""
        done = 0
        while self._concluded:
            number = self._concluded.popleft()
            transfer = self._transfers.pop(number, None)
            if transfer is not None and self._link is not None:
                accept(transfer)
                done += 1
        if done:
            self._give(done)

    def note_done(self) -> None:
        """Record that a message that arrived settled was handled. For one thread at a time.

        Credit is returned in batches, early enough that the broker does not run out of it.
        """
        self._done += 1
        if self._done * CREDIT_PARTS >= self.options.prefetch:
            done, self._done = self._done, 0
            with suppress(ConnectionLostError), self.engine.held():
                self._give(done)

    def _give(self, credit: int) -> None:
        """Give the broker credit once it has as little left, and has read the pending output."""
        self._owed += credit
        if self._owed < self._credit:
            return
        if self.engine.is_unread:
            self.engine.wait(self)
        else:
            self.go_on()

    @property
    def is_held_up(self) -> bool:
        """Whether the broker has to read before it gets credit. Its session window does not count, because that may
        depend on our consuming."""
        return self.engine.is_unread

    def go_on(self) -> None:
        """Give the credit that is owed."""
        owed, self._owed = self._owed, 0
        if owed and self.is_live and self._link is not None:
            self._credit += owed
            give_credit(self._link, owed)

    def _complain(self) -> None:
        """Close the connection, because there was no credit for a message. Raises ConnectionFailedError."""
        where = self.options.destination
        self.engine.break_off(TRANSFER_LIMIT, f"the broker sent more messages from {where} than it had credit for")

    def detach(self) -> None:
        """Give back held messages, delivered or not, and end link and session. With the engine's lock held.

        ActiveMQ Classic loses the delivery count of returned messages when a link is detached, but not when a session
        ends.
        """
        self._is_left = True
        if not self.is_live or self._link is None or self._session is None:
            return
        self._settle_concluded()
        self.is_live = False
        for number, transfer in self._transfers.items():
            settle(transfer, Delivery.MODIFIED if number <= self.last_seen else Delivery.RELEASED)
        self._transfers.clear()
        if self.options.durable_name is not None:  # otherwise the subscription would end with the session
            self._link.detach()
        self.engine.end_session(self._session)

    def await_detached(self, timeout: float) -> None:
        """Wait until the broker has confirmed the end, at most `timeout` seconds."""
        with suppress(BrokerError):  # in that case the link has ended anyway
            self._wait(timeout)

    # Called by the engine, with its lock held

    def opened(self, link: Sender | Receiver) -> None:
        """Inform the waiting caller, unless the link was refused; then `closed` follows."""
        if link.remote_source.type == Terminus.UNSPECIFIED or self._is_let_in:
            return
        if self.options.selector is not None and not self._has_filter(link):
            self._answers.put(BrokerError(f"the broker supports no selector for {self.options.destination}"))
            self.detach()
            return
        self._is_let_in = True
        self._give(self._first_credit)
        self._answers.put(None)

    def _has_filter(self, link: Sender | Receiver) -> bool:
        data = link.remote_source.filter
        data.rewind()
        if not data.next():
            return False
        found = data.get_object()
        return isinstance(found, dict) and SELECTOR in found

    def flowed(self) -> None:
        """Do nothing: on a receiving link, this side gives the credit."""

    def delivered(self, transfer: Transfer) -> None:
        """Collect the octets of a message, and pass it on once it is complete."""
        if self.is_live and not self._size:
            some = read_some(transfer, self._link, self.engine.place, self._small)
            if some is not None:
                octets, is_partial = some
                if not is_partial:
                    self._take(transfer, octets, len(octets))
                    return
                self._keep(octets)
        arrived = read(transfer) if self.is_live else None
        if arrived is None:
            self._drop(wrapped(transfer))
            return
        if arrived.octets:
            self._keep(arrived.octets)
        if arrived.is_partial:
            return
        whole, size, self._buffer, self._size = self._buffer, self._size, bytearray(), 0  # no copy: it may be large
        self._take(transfer, whole, size)

    def _drop(self, delivery: Delivery) -> None:
        """Handle a delivery that was aborted, has no data, or came after the end of the link."""
        if self._link is None or not (delivery.readable or delivery.aborted):
            return
        if not self.is_live:
            if not delivery.partial:
                delivery.update(Delivery.RELEASED)  # settled without an outcome, it might count as accepted
            discard(delivery)
            return
        self._clear()
        delivery.settle()
        self._credit -= 1
        if self._credit < 0:
            self._complain()
        self._give(1)

    def _keep(self, octets: bytes) -> None:
        """Add octets to a message; above the limit, or without memory for it, keep only its head.

        Raises:
            MemoryError: there is no memory even for the head.
        """
        is_whole = len(self._buffer) == self._size
        self._size += len(octets)
        if is_whole and self._size <= self.limit:
            try:
                self._buffer += octets
                return
            except MemoryError:  # the buffer is unchanged
                pass
        if is_whole and len(self._buffer) < MAX_HEAD_OCTETS:
            self._buffer += octets[: MAX_HEAD_OCTETS - len(self._buffer)]
        else:
            del self._buffer[MAX_HEAD_OCTETS:]

    def let_go(self) -> bool:
        """Drop all but the head of a partial message to free memory; return False if there was no more."""
        has_body = len(self._buffer) > MAX_HEAD_OCTETS
        del self._buffer[MAX_HEAD_OCTETS:]
        return has_body

    def _clear(self) -> None:
        self._buffer.clear()
        self._size = 0

    def _take(self, transfer: Transfer, octets: bytes | bytearray, size: int) -> None:
        self._credit -= 1
        if self._credit < 0:
            self._complain()
        self._number = number = self._number + 1
        is_settled = self.options.auto_accept and was_settled(transfer)  # otherwise it is held and settled like others
        if is_settled:
            settle(transfer)
        else:
            self._transfers[number] = transfer
        self.engine.later(
            partial(self._receive, AmqpArrival(self, number, octets, size, is_settled, self.engine.read_at))
        )

    def closed(self, link: Sender | Receiver | None, condition: Condition | None) -> None:
        """Inform the caller that waits for the link, or the consumer that the broker has ended it."""
        was_live, self.is_live = self.is_live, False
        if self._session is not None:
            self._session.close()
        self._link = self._session = None
        self._transfers.clear()
        why = text_of(condition)
        if self._is_unsubscribed and condition is None:
            self._answers.put(None)
        else:
            what = "delete the subscription to" if self._is_unsubscribed else "consume from"
            self._answers.put(_refused(f"cannot {what} {self.options.destination}: {why}", condition))
        error = _refused(why, condition)
        if was_live and self._is_let_in:  # otherwise the caller of `attach` gets the error
            self.engine.later(partial(self._on_detach, error))

    def _session_ended(self, condition: Condition | None) -> None:
        """Report the end of the session, and with it of the link."""
        self.engine.forget(self._link)
        self.closed(None, condition)

    def lost(self, error: BrokerError) -> None:
        """Report the loss of the connection to the waiting caller."""
        with self.engine.lock:
            self.is_live = False
            self._link = self._session = None
            self._transfers.clear()
        self._answers.put(error)


def _refused(why: str, condition: Condition | None) -> BrokerError:
    if condition is not None and condition.name == LINK_REDIRECT:
        return RedirectedError(why, condition.info)
    if condition is not None and condition.name == LINK_STOLEN:
        return StolenError(why)
    return NoDestinationError(why) if says_gone(condition) else BrokerError(why)
