"""Transactions over AMQP: everything is kept here and written at the commit.

So an `abort` tells the broker nothing, and the deliveries of an aborted transaction are held as if nothing had been. At
the commit a transaction is declared at the broker's coordinator, or was with the last commit; messages and acceptances
go out with its id, and the discharge after the last of them. A message that the broker refuses fails by itself.

Spec: AMQP 1.0 part 4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

from proton import Condition, Delivery, Described, Receiver, Sender, Terminus, ulong

from brokers.amqp.consumer import AmqpDelivery, Fate
from brokers.amqp.engine import Engine
from brokers.amqp.outcomes import failure_of, is_final, refusal
from brokers.amqp.sections import Section, encode
from brokers.amqp.sending import OUTCOMES, Outboxes, Posting, put_symbols
from brokers.connection import Completion, RefusedSend, Transaction
from brokers.connection import Delivery as BrokerDelivery
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, SendFailedError, UnsupportedError
from brokers.message import Destination, Message

log = logging.getLogger(__name__)

DECLARE: Final = 0x31
DISCHARGE: Final = 0x32
DECLARED: Final = 0x33
LOCAL: Final = "amqp:local-transactions"

FRESH: Final = 10.0
"""Seconds for which a transaction is kept that was declared ahead; brokers end those that nobody uses."""


class Asked(NamedTuple):
    """Who waits for the coordinator's answer: for the id of a transaction, or None, and why it was refused."""

    tell: Callable[[bytes | None, BrokerError | None], None]


class Coordinator:
    """The link to what looks after the broker's transactions.

    It is attached when it is first needed; a broker without transactions refuses it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._link: Sender | None = None
        self._is_open = False
        self._refusal: BrokerError | None = None
        self._tags = count(1)
        self._waiting: list[tuple[bytes, Asked]] = []
        self._asked: dict[str, Asked] = {}
        self._spare: tuple[bytes, float] | None = None

    def declare(self, tell: Callable[[bytes | None, BrokerError | None], None]) -> None:
        """Begin a transaction, and tell its id; with the engine's lock held, as `tell` is called."""
        spare, self._spare = self._spare, None
        if spare is not None and monotonic() - spare[1] < FRESH:
            tell(spare[0], None)
            return
        if spare is not None:
            self.discharge(spare[0], lambda _, __: None, fail=True)
        self._ask([DECLARE, [None]], tell)

    def prepare(self) -> None:
        """Have a transaction at hand for the next commit, which then does not wait for its id; likewise."""
        if self._spare is None:
            self._ask([DECLARE, [None]], self._keep)

    def _keep(self, transaction: bytes | None, error: BrokerError | None) -> None:
        if transaction is not None and self._spare is None:
            self._spare = transaction, monotonic()
        elif transaction is not None:
            self.discharge(transaction, lambda _, __: None, fail=True)

    def discharge(
        self, transaction: bytes, tell: Callable[[bytes | None, BrokerError | None], None], *, fail: bool = False
    ) -> None:
        """End a transaction, and tell when that is done; likewise."""
        self._ask([DISCHARGE, [transaction, fail]], tell)

    def _ask(self, command: list[Any], tell: Callable[[bytes | None, BrokerError | None], None]) -> None:
        if self._refusal is not None:
            tell(None, self._refusal)
            return
        if self._link is None:
            self._attach()
        code, fields = command
        self._waiting.append((encode(Section.VALUE, Described(ulong(code), fields)), Asked(tell)))
        self._send_waiting()

    def _attach(self) -> None:
        with self._engine.working() as session:
            link = self._link = session.sender(self._engine.look_after(self))
            put_symbols(link.source.outcomes, *OUTCOMES)
            link.target.type = Terminus.COORDINATOR
            put_symbols(link.target.capabilities, LOCAL)
            link.open()

    def _send_waiting(self) -> None:
        link = self._link
        while link is not None and self._is_open and self._waiting and link.credit > 0:
            octets, asked = self._waiting.pop(0)
            tag = f"t{next(self._tags)}"
            link.delivery(tag)
            link.stream(octets)
            link.advance()
            self._asked[tag] = asked

    # What the engine tells, with its lock held

    def opened(self, link: Sender | Receiver) -> None:
        """Begin to ask, unless the link is refused; then `closed` follows."""
        self._is_open = link.remote_target.type == Terminus.COORDINATOR
        self._send_waiting()

    def flowed(self, link: Sender | Receiver) -> None:
        """Ask what waits."""
        self._send_waiting()

    def delivered(self, delivery: Delivery) -> None:
        """Pass on the coordinator's answer."""
        if not is_final(delivery):
            return
        asked = self._asked.pop(delivery.tag, None)
        transaction = None
        if delivery.remote_state == DECLARED and delivery.remote.data:
            transaction = bytes(delivery.remote.data[0])
        error = failure_of(delivery)
        delivery.settle()
        if asked is not None:
            asked.tell(transaction, error)

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """Tell all who wait: every transaction that was open has failed."""
        was_open, self._is_open, self._link = self._is_open, False, None
        self._spare = None
        error: BrokerError = refusal(condition, "the broker ended its transactions")
        if not was_open:
            error = self._refusal = UnsupportedError(f"the broker has no transactions: {error}")
        self._fail(error)

    def lost(self, error: BrokerError) -> None:
        """Tell all who wait."""
        self._link = None
        self._fail(error)

    def _fail(self, error: BrokerError) -> None:
        waiting, asked = self._waiting, list(self._asked.values())
        self._waiting, self._asked = [], {}
        for each in (*asked, *(who for _, who in waiting)):
            each.tell(None, error)


class Session(NamedTuple):
    """What belongs to one generation of a connection."""

    engine: Engine
    outboxes: Outboxes
    coordinator: Coordinator


class Owner(Protocol):
    """What a transaction needs of its connection."""

    def encode(self, message: Message) -> bytes:
        """Return the octets of a message."""

    def failure(self, session: Session) -> BrokerError | None:
        """Say why nothing can be done in a generation any more, or None."""

    def completion(self) -> Completion[tuple[RefusedSend, ...]]:
        """Make a future."""

    def owns(self, delivery: BrokerDelivery) -> bool:
        """Say whether a delivery came by this connection."""


class AmqpTransaction(Transaction):
    """Sends and accepts that are carried out together."""

    def __init__(self, owner: Owner, session: Session) -> None:
        self.owner = owner
        self._session = session
        self._lock = Lock()
        self._sends: list[tuple[Message, bytes]] = []
        self._deliveries: list[AmqpDelivery] = []
        self._has_ended = False

    def send(self, message: Message) -> None:
        """Add a message.

        Raises:
            ValueError: no destination, or something that AMQP cannot carry.
            StaleDestinationError: a temporary destination of an earlier generation.
            ClosedError: the transaction was committed or aborted before.
        """
        octets = self.owner.encode(message)
        with self._lock:
            self._require_open()
            self._sends.append((message, octets))

    def accept(self, delivery: BrokerDelivery) -> None:
        """Add an acceptance.

        Raises:
            ValueError: the delivery came by another connection.
            ClosedError: the transaction was committed or aborted before.
        """
        if not isinstance(delivery, AmqpDelivery) or not self.owner.owns(delivery):
            raise ValueError("the delivery came by another connection")
        with self._lock:
            self._require_open()
            self._deliveries.append(delivery)

    def commit(self) -> Future[tuple[RefusedSend, ...]]:
        """Carry out everything. A send that the broker refuses fails by itself.

        If the broker refuses the commit, the future raises SendFailedError and the connection is closed, so that the
        broker delivers again. If a delivery went back to the broker before (its consumer was closed), nothing is
        carried out and the future raises ClosedError.

        Raises:
            ClosedError: the transaction was committed or aborted before.
        """
        future = self.owner.completion()
        with self._lock:
            self._require_open()
            self._has_ended = True
        failure = self.owner.failure(self._session)
        if failure is None:
            try:
                with self._session.engine.working():
                    failure = _Commit(self._session, self._sends, self._deliveries, future).begin()
            except ConnectionLostError as error:
                failure = error
        if failure is not None and not future.done():
            future.set_exception(failure)
        return future

    def abort(self) -> None:
        """Drop everything; the broker knows nothing of it. Idempotent, and does nothing after a commit."""
        with self._lock:
            self._has_ended = True

    def _require_open(self) -> None:
        if self._has_ended:
            raise ClosedError("the transaction was committed or aborted before")


class _Commit:
    """One commit on its way. Everything here happens with the engine's lock held."""

    def __init__(
        self,
        session: Session,
        sends: list[tuple[Message, bytes]],
        deliveries: list[AmqpDelivery],
        future: Completion[tuple[RefusedSend, ...]],
    ) -> None:
        self._engine, self._outboxes, self._coordinator = session
        self._sends = sends
        self._deliveries = [each for each in dict.fromkeys(deliveries) if not each.is_accepted]
        self._future = future
        self._refused: list[RefusedSend] = []
        self._unsent = len(sends)

    def begin(self) -> BrokerError | None:
        """Declare the transaction; return why that cannot be. Nothing to carry out is done at once."""
        if not self._sends and not self._deliveries:
            self._future.set_result(())
            return None
        void = self._void()
        if void is not None:
            return void
        for delivery in self._deliveries:
            delivery.fate = Fate.ACCEPTED
        self._coordinator.declare(self._declared)
        return None

    def _void(self) -> ClosedError | None:
        for delivery in self._deliveries:
            if not delivery.is_held:
                return ClosedError(
                    f"message {delivery.message.message_id} went back to the broker before it was accepted, "
                    "so nothing was committed"
                )
        return None

    def _declared(self, transaction: bytes | None, error: BrokerError | None) -> None:
        for delivery in self._deliveries:
            delivery.fate = Fate.HELD
        if error is None and transaction is not None:
            error = self._void()
        if transaction is None or error is not None:
            if transaction is not None:
                self._coordinator.discharge(transaction, lambda _, __: None, fail=True)
            self._conclude(error or SendFailedError("the broker declared no transaction"))
            return
        for delivery in self._deliveries:
            delivery.fate = Fate.ACCEPTED
            delivery.accept_in(transaction)
        self._transaction = transaction
        for position, (message, octets) in enumerate(self._sends):
            assert message.destination is not None
            self._post(position, message, message.destination, octets)
        if not self._sends:
            self._discharge()

    def _post(self, position: int, message: Message, destination: Destination, octets: bytes) -> None:
        posting = Posting(
            octets, partial(self._note_refusal, position, message), self._transaction, when_sent=self._one_sent
        )
        with suppress(ConnectionLostError):  # the coordinator tells
            self._outboxes.to(destination).post(posting, patient=False)

    def _one_sent(self) -> None:
        self._unsent -= 1
        if not self._unsent:
            self._discharge()

    def _discharge(self) -> None:
        self._coordinator.discharge(self._transaction, lambda _, error: self._conclude(error, discharged=True))
        self._coordinator.prepare()

    def _note_refusal(self, position: int, message: Message, error: BrokerError | None) -> None:
        if isinstance(error, SendFailedError):
            self._refused.append(RefusedSend(position, message, error))
        elif error is not None:  # the connection was lost, perhaps before the discharge was asked for
            self._settle(error, discharged=False)

    def _conclude(self, error: BrokerError | None, *, discharged: bool = False) -> None:
        self._engine.later(partial(self._settle, error, discharged=discharged))

    def _settle(self, error: BrokerError | None, *, discharged: bool) -> None:
        if not self._future.done() and self._future.set_running_or_notify_cancel():
            if error is None:
                self._future.set_result(tuple(sorted(self._refused, key=lambda each: each.position)))
            else:
                self._future.set_exception(error)
        if discharged and isinstance(error, SendFailedError):
            log.error("a commit was refused, so the connection is closed; the broker delivers again: %s", error)
            self._engine.drop()
