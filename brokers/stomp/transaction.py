"""Transactions over STOMP: everything is kept here and written at the commit, in one piece.

So the broker's journal and the network are asked once, an `abort` tells the broker nothing, and the deliveries of an
aborted transaction are held as if nothing had been. (After the ABORT of a transaction that the broker knows, ActiveMQ
redelivers nothing on the same subscription.)

Each SEND asks for a receipt, though nobody waits for it. When ActiveMQ refuses a SEND that asked for none, it marks the
whole transaction; COMMIT then fails, and the messages that were acknowledged in it stay out of reach until the
connection closes. So one client that left would take down everybody whose request is in the same commit. A SEND that
asked for a receipt fails by itself.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Protocol

from brokers.connection import Completion, Delivery, RefusedSend, Transaction
from brokers.errors import BrokerError, ClosedError, SendFailedError
from brokers.message import Message
from brokers.stomp.consumer import Fate, StompDelivery
from brokers.stomp.frames import Headers
from brokers.stomp.link import Link, Settle, pack

log = logging.getLogger(__name__)


class Owner(Protocol):
    """What a transaction needs of its connection."""

    def frame(self, message: Message) -> tuple[Headers, bytes]:
        """Return headers and body of a SEND frame."""

    def failure(self, link: Link) -> BrokerError | None:
        """Say why nothing can be done over a session any more, or None."""

    def new_id(self, what: str) -> str:
        """Make an identifier that this connection used for nothing else."""

    def completion(self) -> Completion[tuple[RefusedSend, ...]]:
        """Make a future."""

    def owns(self, delivery: Delivery) -> bool:
        """Say whether a delivery came by this connection."""


class StompTransaction(Transaction):
    """Sends and accepts that are written together."""

    def __init__(self, owner: Owner, link: Link) -> None:
        self.owner = owner
        self._link = link
        self._id = owner.new_id("transaction")
        self._lock = Lock()
        self._sends: list[bytes] = []
        self._receipts: dict[str, Settle] = {}
        self._deliveries: list[StompDelivery] = []
        self._refused: list[RefusedSend] = []
        self._has_ended = False

    def send(self, message: Message) -> None:
        """Add a message.

        Raises:
            ValueError: no destination, or something that the adapter cannot carry.
            StaleDestinationError: a temporary destination of an earlier generation.
            ClosedError: the transaction was committed or aborted before.
        """
        headers, body = self.owner.frame(message)
        headers["transaction"] = self._id
        with self._lock:
            self._require_open()
            headers["receipt"] = receipt = self.owner.new_id("receipt")
            self._receipts[receipt] = partial(self._note_refusal, len(self._sends), message)
            self._sends.append(pack("SEND", headers, body))

    def accept(self, delivery: Delivery) -> None:
        """Add an acceptance.

        Raises:
            ValueError: the delivery came by another connection.
            ClosedError: the transaction was committed or aborted before.
        """
        if not isinstance(delivery, StompDelivery) or not self.owner.owns(delivery):
            raise ValueError("the delivery came by another connection")
        with self._lock:
            self._require_open()
            self._deliveries.append(delivery)

    def commit(self) -> Future[tuple[RefusedSend, ...]]:
        """Write everything in one piece.

        A send that the broker refuses, as one to the temporary queue of a client that left, fails by itself. If the
        broker refuses the commit, the future raises SendFailedError and the connection is closed, so that the broker
        delivers again. If a delivery went back to the broker before (its consumer was closed, or released another),
        nothing is written and the future raises ClosedError.

        Raises:
            ClosedError: the transaction was committed or aborted before.
        """
        future = self.owner.completion()
        with self._link.writing, self._lock:
            self._require_open()
            self._has_ended = True
            pending = [delivery for delivery in self._deliveries if not delivery.is_accepted]
            failure = self.owner.failure(self._link) or self._void(pending)
            if failure is not None:
                future.set_exception(failure)
            elif not pending and not self._sends:
                future.set_result(())
            else:
                self._write(pending, future)
        return future

    def abort(self) -> None:
        """Drop everything; the broker knows nothing of it. Idempotent, and does nothing after a commit."""
        with self._lock:
            self._has_ended = True

    def _write(self, pending: list[StompDelivery], future: Completion[tuple[RefusedSend, ...]]) -> None:
        receipt = self.owner.new_id("receipt")
        frames = [pack("BEGIN", {"transaction": self._id}), *self._sends]
        for delivery in pending:
            delivery.fate = Fate.ACCEPTED
            delivery.consumer.releases.forget(delivery.key)
            frames.append(delivery.acknowledgement("ACK", self._id))
        frames.append(pack("COMMIT", {"transaction": self._id, "receipt": receipt}))
        future.on_settled(lambda _: self._link.forget(receipt))
        self._link.request(b"".join(frames), self._receipts | {receipt: self._conclude(future)})

    def _conclude(self, future: Completion[tuple[RefusedSend, ...]]) -> Settle:
        def settle(error: BrokerError | None) -> None:
            if future.set_running_or_notify_cancel():
                if error is None:
                    future.set_result(tuple(self._refused))
                else:
                    future.set_exception(error)
            if isinstance(error, SendFailedError):
                log.error("a commit was refused, so the connection is closed; the broker delivers again: %s", error)
                self._link.drop()

        return settle

    def _note_refusal(self, position: int, message: Message, error: BrokerError | None) -> None:
        if isinstance(error, SendFailedError):  # if the connection was lost, the commit's own receipt tells
            self._refused.append(RefusedSend(position, message, error))

    def _void(self, pending: list[StompDelivery]) -> ClosedError | None:
        for delivery in pending:
            if not delivery.is_held:
                return ClosedError(
                    f"message {delivery.message.message_id} went back to the broker before it was accepted, "
                    "so nothing was committed"
                )
        return None

    def _require_open(self) -> None:
        if self._has_ended:
            raise ClosedError("the transaction was committed or aborted before")
