"""Transactions over STOMP: everything is kept here and written at the commit, in one piece.

So the broker's journal and the network are used once, an `abort` sends nothing to the broker, and the deliveries of an
aborted transaction are still held. (After the ABORT of a transaction that the broker knows, ActiveMQ redelivers nothing
on the same subscription.)

Each SEND asks for a receipt, although no caller waits for it. If ActiveMQ refuses a SEND without receipt, it marks the
whole transaction; COMMIT then fails, and the messages acknowledged in it are unavailable until the connection closes.
So one client that has left would make all other requests of the same commit fail. A SEND with a receipt fails alone.

If accepts cannot be part of a transaction (Artemis, and see `brokers.stomp.collection`), the sends are committed first,
and the accepts written once the broker has confirmed them: a crash in between leads to a redelivery of answered
messages, but loses nothing. At Artemis a refused send makes the transaction fail, so it is repeated without that send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import NamedTuple, Protocol

from brokers import events
from brokers.adapter.consumer import DeliveryState
from brokers.adapter.transaction import DeferredTransaction, DeliveryOwner, went_back
from brokers.connection import RefusedSend
from brokers.errors import BrokerError, ClosedError, SendFailedError
from brokers.message import Message, check_message
from brokers.stomp.acknowledge import StompArrival, StompSubscription
from brokers.stomp.codec import Frames, joined, pack, pack_head
from brokers.stomp.collection import AcceptedMessage
from brokers.stomp.consumer import StompConsumer, StompDelivery
from brokers.stomp.frames import acknowledgement
from brokers.stomp.session import Settle, StompSession
from brokers.threads.futures import Completion


class UnnamedAccept(NamedTuple):
    """An accepted message that no ACK can name; `end` must be called before it is collected, or if it will not be."""

    arrival: StompArrival
    consumer: StompConsumer
    end: Callable[[], None]


def _note_unnamed(unnamed: list[UnnamedAccept], consumer: StompConsumer, arrival: StompArrival) -> None:
    unnamed.append(UnnamedAccept(arrival, consumer, consumer.begin(arrival.subscription)))


class TransactionNames:
    """Names for transactions, which are reused: Artemis keeps a session for every name that it has seen."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._free: list[str] = []
        self._made = 0

    def take(self) -> str:
        """Return a name that no current transaction has."""
        with self._lock:
            if self._free:
                return self._free.pop()
            self._made += 1
            return f"transaction-{self._made}"

    def give_back(self, name: str) -> None:
        """Record that the transaction of this name has ended."""
        with self._lock:
            self._free.append(name)


class StompTransactionOwner(DeliveryOwner[StompDelivery], Protocol):
    """The part of a connection that its transactions use."""

    names: TransactionNames

    def encode(self, link: StompSession, message: Message, receipt: str = "", transaction: str = "") -> Frames:
        """Return the SEND frame of a message in a transaction, with the receipt to ask for."""

    def failure(self, link: StompSession) -> BrokerError | None:
        """Return the error that says why a session can no longer be used, or None if it can."""

    def new_id(self, what: str) -> str:
        """Return an identifier that this connection has not used before."""

    def near_completion(self) -> Completion[tuple[RefusedSend, ...]]:
        """Return a new future, whose callbacks may run on the threads of `on_delivery`."""

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` on another thread, where it may write."""


class StompTransaction(DeferredTransaction[StompDelivery]):
    """Sends and accepts that are written together."""

    owner: StompTransactionOwner

    def __init__(self, owner: StompTransactionOwner, link: StompSession) -> None:
        super().__init__(owner)
        self._link = link
        self._name = owner.names.take()
        self._sends: dict[str, Frames] = {}
        self._receipts: dict[str, Settle] = {}
        self._refused: dict[str, RefusedSend] = {}

    def send(self, message: Message) -> None:
        """Add a message.

        Raises:
            UsageError: the message has no destination, or content that STOMP cannot carry.
            StaleDestinationError: the temporary destination belongs to an earlier generation.
            ClosedError: the transaction was committed or aborted before.
        """
        check_message(message)
        receipt = self.owner.new_id("receipt")
        frame = self.owner.encode(self._link, message, receipt, self._name)
        with self._lock:
            if self._has_ended:
                self._require_open()
            self._receipts[receipt] = partial(_note_refusal, self._refused, receipt, len(self._sends), message)
            self._sends[receipt] = frame

    def commit(self) -> Completion[tuple[RefusedSend, ...]]:
        """Write everything in one piece.

        A send that the broker refuses, such as one to the temporary queue of a client that has left, fails alone. If
        the broker refuses the commit, the future raises SendFailedError and the connection is closed, so that the
        broker delivers again. If a delivery has gone back to the broker (its consumer was closed, or released another),
        nothing is written and the future raises ClosedError. If all was sent, but an accepted message may come again
        because no ACK can name it and it could not be removed from its queue, the future raises NoAnswerError.

        Raises:
            ClosedError: the transaction was committed or aborted before.
        """
        future = self.owner.near_completion()
        with self._link.writing, self._lock:
            self._require_open()
            self._has_ended = True
            accepted = DeliveryState.ACCEPTED
            pending = [each for each in self._deliveries if each.state is not accepted or not each.is_accepted]
            failure = self.owner.failure(self._link) or self._void(pending)
            if failure is not None:
                future.set_exception(failure)
            elif not pending and not self._sends:
                future.set_result(())
            else:
                self._write(pending, future)
                return future
        self.owner.names.give_back(self._name)
        return future

    def abort(self) -> None:
        """Drop everything; the broker never knew of it. Idempotent, and does nothing after a commit."""
        with self._lock:
            has_ended, self._has_ended = self._has_ended, True
        if not has_ended:
            self.owner.names.give_back(self._name)

    def _write(self, pending: list[StompDelivery], future: Completion[tuple[RefusedSend, ...]]) -> None:
        for delivery in pending:
            delivery.state = DeliveryState.ACCEPTED
            if delivery.consumer.releases.counts:
                delivery.consumer.releases.forget(delivery.key)
        if self._link.dialect.accepts_in_transactions:
            self._write_with_acceptances(pending, future)
        elif self._sends:
            self._request([*self._sends.values()], self._receipts, partial(self._accept_after, pending, future))
        else:
            self._accept(pending, future)

    def _write_with_acceptances(
        self, pending: list[StompDelivery], future: Completion[tuple[RefusedSend, ...]]
    ) -> None:
        """Write all in one transaction, except accepts of messages that no ACK can name or the broker does not know."""
        frames: list[Frames] = [*self._sends.values()]
        receipts = dict(self._receipts)
        unnamed: list[UnnamedAccept] = []
        dialect = self._link.dialect
        for delivery in pending:
            arrival, consumer = delivery.arrival, delivery.consumer
            if arrival.is_plain:
                headers = acknowledgement(arrival.headers, dialect)
                headers["transaction"] = self._name
                frames.append(pack_head("ACK", headers) + b"\0")
                continue
            note = partial(_note_unnamed, unnamed, consumer)
            if not arrival.can_be_named:
                note(arrival.without_body())
            accept, asked = consumer.acknowledgement(arrival, note, more={"transaction": self._name})
            frames.append(accept)
            receipts |= asked
        self._request(frames, receipts, partial(self._collect_after, unnamed, future))

    def _request(
        self, frames: Sequence[Frames], receipts: Mapping[str, Settle], settle: Settle, first: bytes = b""
    ) -> None:
        """Write a transaction of these frames; `settle` is called with its outcome."""
        receipt = self.owner.new_id("receipt")
        begin = pack("BEGIN", {"transaction": self._name})
        commit = pack("COMMIT", {"transaction": self._name, "receipt": receipt})
        self._link.request(joined([first, begin, *frames, commit]), {**receipts, receipt: settle})

    def _accept_after(
        self, pending: list[StompDelivery], future: Completion[tuple[RefusedSend, ...]], error: BrokerError | None
    ) -> None:
        """Write the accepts once the sends are committed; if some were refused, first commit the others."""
        if error is None:
            self._call(partial(self._accept, pending, future), future)
        elif isinstance(error, SendFailedError) and self._refused.keys() & self._sends.keys():
            self._call(partial(self._send_others, pending, future), future)
        else:
            self._conclude(future, error)

    def _collect_after(
        self, unnamed: list[UnnamedAccept], future: Completion[tuple[RefusedSend, ...]], error: BrokerError | None
    ) -> None:
        """Collect the messages that no ACK can name once the rest is committed, so that none is lost."""
        if error is None and unnamed:
            self._call(partial(self._collect, unnamed, future), future)
            return
        for each in unnamed:
            each.end()
        self._conclude(future, error)

    def _collect(self, unnamed: list[UnnamedAccept], future: Completion[tuple[RefusedSend, ...]]) -> None:
        """Collect the messages, ending each subscription once; the future reports messages that may come again."""
        missing = len(unnamed)
        why: BrokerError | None = None

        def settle(error: BrokerError | None) -> None:
            nonlocal missing, why
            with self._lock:
                missing -= 1
                why = why or error
                is_last = not missing
            if is_last:
                self._conclude(future, why)

        groups: dict[StompSubscription, list[UnnamedAccept]] = {}
        for each in unnamed:
            groups.setdefault(each.arrival.subscription, []).append(each)
        for group in groups.values():
            wanted = [AcceptedMessage(each.arrival, settle) for each in group]
            group[0].consumer.collect(wanted, [each.end for each in group])

    def _call(self, function: Callable[[], None], future: Completion[tuple[RefusedSend, ...]]) -> None:
        """Call a function where it may write; if the connection is closed, the outcome is unknown."""
        try:
            self.owner.call(function)
        except RuntimeError:
            self._conclude(future, self._link.lost())

    def _send_others(self, pending: list[StompDelivery], future: Completion[tuple[RefusedSend, ...]]) -> None:
        for receipt in self._refused:
            self._sends.pop(receipt, None)
            self._receipts.pop(receipt, None)
        abort = pack("ABORT", {"transaction": self._name})
        settle = partial(self._accept_after, pending, future)
        self._request([*self._sends.values()], self._receipts, settle, abort)

    def _accept(self, pending: list[StompDelivery], future: Completion[tuple[RefusedSend, ...]]) -> None:
        """Write the accepts that could not be part of the transaction; the broker confirms the last one."""
        if not pending:
            return self._conclude(future, None)
        receipt = self.owner.new_id("receipt")
        *others, last = pending
        frames = [each.consumer.acknowledge(each.arrival)[0] for each in others]
        frames.append(last.consumer.acknowledgement(last.arrival, lambda _: None, more={"receipt": receipt})[0])
        return self._link.request(b"".join(frames), {receipt: partial(self._conclude, future)})

    def _conclude(self, future: Completion[tuple[RefusedSend, ...]], error: BrokerError | None) -> None:
        self.owner.names.give_back(self._name)
        future.settle(tuple(self._refused.values()), error)
        if isinstance(error, SendFailedError):
            events.STOMP_TRANSACTION_REFUSED.log(error)
            self._link.drop()

    def _void(self, pending: list[StompDelivery]) -> ClosedError | None:
        for delivery in pending:
            subscription = delivery.arrival.subscription
            is_held = delivery.state is DeliveryState.HELD and subscription.is_live
            if not is_held or subscription.link is not self._link:
                return went_back(delivery)
        return None


def _note_refusal(
    refused: dict[str, RefusedSend], receipt: str, position: int, message: Message, error: BrokerError | None
) -> None:
    """Note a refused send. Not a method: in a cycle, every message would wait for the garbage collector."""
    if isinstance(error, SendFailedError):  # the receipt of the commit reports a lost connection
        refused[receipt] = RefusedSend(position, message, error)
