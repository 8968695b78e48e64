"""The coordinator of a listener: local transactions of one client.

Spec: AMQP 1.0 part 4; anonymous terminus 2.2.2 (AT-11), AT-21 to AT-23 of `docs/conformance-amqp.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from time import monotonic
from typing import Any, Final, Protocol

from cproton_ffi import lib
from proton import Condition, Delivery, Described, symbol, ulong

from brokers import events
from brokers.amqp.listener.options import RefusalError
from brokers.amqp.outcomes import DECODE, LIMIT, NOT_IMPLEMENTED, transaction_in
from brokers.amqp.sections import AmqpSection, MalformedError, decode, is_described
from brokers.amqp.transfers import TRANSACTIONAL, Transfer, wrapped
from brokers.embedded.connection import EmbeddedConnection, EmbeddedDelivery, EmbeddedTransaction
from brokers.embedded.queues import MESSAGE_OVERHEAD_OCTETS
from brokers.errors import SendFailedError
from brokers.message import Message

DECLARE: Final = frozenset({0x31, "amqp:declare:list"})
DISCHARGE: Final = frozenset({0x32, "amqp:discharge:list"})
DECLARED: Final = 0x33
ERROR: Final = 0x1D

ROLLBACK: Final = "amqp:transaction:rollback"
UNKNOWN: Final = "amqp:transaction:unknown-id"
TIMEOUT: Final = "amqp:transaction:timeout"

MAX_OPEN_TRANSACTIONS: Final = 100
"""Maximum number of open transactions of one client."""


MAX_ROLLED_BACK_TRANSACTIONS: Final = 1000
"""Maximum number of transactions of one client that are remembered as rolled back by us."""

COMMIT_REFUSED: Final = (ROLLBACK, "rolled back: its commit was refused")


class ClientTransaction:
    """One transaction of a client.

    Attributes:
        control: the control link on which it was declared.
        poison: why it can only be rolled back, or None. Spec: AT-11.
        octets: size of the messages in it, with overhead.
        used: when it was last used, by the monotonic clock.
    """

    def __init__(self, transaction: EmbeddedTransaction, control: object) -> None:
        self.control = control
        self.poison: RefusalError | None = None
        self.octets = 0
        self.used = monotonic()
        self._transaction = transaction
        self._returned: list[EmbeddedDelivery] = []

    def send(self, message: Message) -> None:
        """Keep a message until the commit."""
        self._transaction.send(message)

    def taking(self, delivery: EmbeddedDelivery) -> EmbeddedDelivery:
        """Return a delivery that is settled at the commit; after a rollback the message goes back.

        Spec: AMQP 1.0 part 4, 4.4.2 (transactional retirement).
        """
        self._returned.append(delivery)
        return self._transaction.taking(delivery)

    def commit(self) -> None:
        """Carry out the transaction.

        Raises:
            RefusalError: it was rolled back.
        """
        if self.poison is not None:
            self.abort()
            raise RefusalError(ROLLBACK, f"rolled back: {self.poison}")
        done = self._transaction.commit()
        error = done.exception()
        if isinstance(error, SendFailedError):
            self._return()
            raise RefusalError(ROLLBACK, f"rolled back: {error}")
        for refused in done.result():
            events.AMQP_LISTENER_LEFT_OUT_OF_COMMIT.log(refused.error)

    def abort(self) -> None:
        """Roll the transaction back."""
        self._transaction.abort()
        self._return()

    def _return(self) -> None:
        for delivery in self._returned:
            delivery.release()


class ClientTransactions:
    """The open transactions of a client, by their ids.

    The last ones that we rolled back, as they timed out or their commit was refused, are remembered: rolling them back
    succeeds. Spec: AMQP 1.0 part 4, 4.3 (AT-23).

    Args:
        connection: the client's connection to the broker.
        patience: seconds after which an unused transaction is rolled back.
        max_octets: maximum size of the messages in all of them together.
    """

    def __init__(self, connection: EmbeddedConnection, patience: float, max_octets: int) -> None:
        self._connection = connection
        self._patience = patience
        self._max_octets = max_octets
        self._ids = count(1)
        self._open: dict[bytes, ClientTransaction] = {}
        self._rolled_back: dict[bytes, tuple[str, str]] = {}  # with the condition and description of the reason

    def find(self, transaction: bytes) -> ClientTransaction:
        """Return an open transaction, which counts as used by this.

        Raises:
            RefusalError: there is no open transaction of this id.
        """
        work = self._open.get(transaction)
        if work is not None:
            work.used = monotonic()
            return work
        if transaction in self._rolled_back:
            raise RefusalError(*self._rolled_back[transaction])
        raise RefusalError(UNKNOWN, f"there is no transaction {transaction.hex()}")

    def poison(self, transaction: bytes, refusal: RefusalError) -> None:
        """Prevent the commit of a transaction, if it is open; the first reason is kept."""
        work = self._open.get(transaction)
        if work is not None and work.poison is None:
            work.poison = refusal

    def send(self, work: ClientTransaction, message: Message, octets: int) -> None:
        """Keep a message until the commit.

        Raises:
            RefusalError: the client's transactions hold too many octets.
        """
        octets += MESSAGE_OVERHEAD_OCTETS
        if sum(each.octets for each in self._open.values()) + octets > self._max_octets:
            raise RefusalError(LIMIT, f"the open transactions of a client hold at most {self._max_octets} octets")
        work.octets += octets
        work.send(message)

    def declare(self, control: object) -> bytes:
        """Begin a transaction of a control link, and return its id."""
        if len(self._open) >= MAX_OPEN_TRANSACTIONS:
            raise RefusalError(LIMIT, f"{MAX_OPEN_TRANSACTIONS} transactions are open already")
        transaction = next(self._ids).to_bytes(8, "big")
        self._open[transaction] = ClientTransaction(self._connection.begin(), control)
        return transaction

    def discharge(self, transaction: bytes, *, fail: bool) -> None:
        """End a transaction; it is no longer open, even after an error.

        Raises:
            RefusalError: there is no transaction of this id, or it could not be committed.
        """
        if fail and self._rolled_back.pop(transaction, None) is not None:
            return
        work = self.find(transaction)
        del self._open[transaction]
        if fail:
            work.abort()
            return
        try:
            work.commit()
        except RefusalError:
            self._remember(transaction, COMMIT_REFUSED)
            raise

    def abort(self, control: object) -> None:
        """Roll back the open transactions of a control link."""
        self._abort([each for each, work in self._open.items() if work.control is control])

    def _abort(self, transactions: Iterable[bytes]) -> None:
        for each in transactions:
            self._open.pop(each).abort()

    def _remember(self, transaction: bytes, why: tuple[str, str]) -> None:
        self._rolled_back[transaction] = why
        if len(self._rolled_back) > MAX_ROLLED_BACK_TRANSACTIONS:
            del self._rolled_back[next(iter(self._rolled_back))]

    def expire(self) -> float | None:
        """Roll back timed-out transactions; return the seconds until the next time-out, or None if there is none."""
        now = monotonic()
        late = [each for each, work in self._open.items() if now - work.used >= self._patience]
        for each in late:
            self._remember(each, (TIMEOUT, f"rolled back: it was not used for {self._patience:g} s"))
        self._abort(late)
        return min((work.used + self._patience - now for work in self._open.values()), default=None)


class Outcomes(Protocol):
    """The part of a link that reports outcomes."""

    def reject(self, transfer: Transfer, refusal: RefusalError) -> None:
        """Reject a delivery, or detach the link if the client does not understand that."""


class CoordinatorLink:
    """A control link: it takes commands, and its transactions end with it. Spec: AMQP 1.0 part 4, 4.3."""

    def __init__(self, works: ClientTransactions, outcomes: Outcomes) -> None:
        self._works = works
        self._outcomes = outcomes

    def take(self, transfer: Transfer, octets: bytes) -> None:
        """Carry out one command. With the lock held."""
        try:
            command, fields = read_command(octets)
            transaction = COMMANDS[command](self._works, fields, self)
        except RefusalError as refusal:
            self._outcomes.reject(transfer, refusal)
            return
        delivery: Any = wrapped(transfer)
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(DECLARED)
        else:
            delivery.update(Delivery.ACCEPTED)
        delivery.settle()

    def end(self) -> None:
        """Roll back the open transactions that were declared on this link."""
        self._works.abort(self)


def read_command(octets: bytes) -> tuple[str, list[Any]]:
    """Parse a declare or discharge command, and return its name and fields.

    Raises:
        RefusalError: the message is neither.
    """
    try:
        found = [each.value for each in decode(octets) if each.section is AmqpSection.VALUE]
    except MalformedError as error:
        raise RefusalError(DECODE, str(error)) from error
    command = found[0] if found else None
    for name, descriptors in (("declare", DECLARE), ("discharge", DISCHARGE)):
        if is_described(command, descriptors) and isinstance(command.value, list):
            return name, command.value
    raise RefusalError(NOT_IMPLEMENTED, "the coordinator takes declare and discharge")


def _declare(works: ClientTransactions, fields: list[Any], control: CoordinatorLink) -> bytes | None:
    if fields and fields[0] is not None:
        raise RefusalError(NOT_IMPLEMENTED, "there are no distributed transactions")
    return works.declare(control)


def _discharge(works: ClientTransactions, fields: list[Any], control: CoordinatorLink) -> bytes | None:
    transaction = fields[0] if fields else None
    if not isinstance(transaction, bytes):
        raise RefusalError(UNKNOWN, "the discharge names no transaction")
    works.discharge(transaction, fail=len(fields) > 1 and fields[1] is True)
    return None


COMMANDS: Final[dict[str, Callable[[ClientTransactions, list[Any], CoordinatorLink], bytes | None]]] = {
    "declare": _declare,
    "discharge": _discharge,
}


def transaction_of(transfer: Transfer) -> bytes | None:
    """Return the id of the transaction in which a message was sent; empty if it is not valid, None if there is none."""
    if lib.pn_delivery_remote_state(transfer) != TRANSACTIONAL:
        return None
    return transaction_in(wrapped(transfer).remote.data)


def provisional(transfer: Transfer, transaction: bytes, state: int, error: Condition | None = None) -> None:
    """Report the outcome that a delivery will have once its transaction is committed. Spec: AT-21."""
    delivery: Any = wrapped(transfer)
    fields: list[Any] = []
    if error is not None:
        fields = [Described(ulong(ERROR), [symbol(error.name), error.description, error.info])]
    delivery.local.data = [transaction, Described(ulong(state), fields)]
    delivery.update(TRANSACTIONAL)
    delivery.settle()
