"""The coordinator of a listener: local transactions of one client.

Spec: AMQP 1.0 part 4; anonymous terminus 2.2.2 (AT-11), AT-21 to AT-23 of `docs/conformance-amqp.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final, Protocol

from proton import Condition, Delivery, Described, symbol, ulong

from brokers.amqp.outcomes import TRANSACTIONAL
from brokers.amqp.provider.nodes import DECODE, LIMIT, NOT_IMPLEMENTED, RefusalError
from brokers.amqp.sections import MalformedError, Section, decode
from brokers.connection import Transaction
from brokers.embedded.connection import EmbeddedConnection, EmbeddedDelivery
from brokers.errors import SendFailedError
from brokers.message import Message

DECLARE: Final = frozenset({0x31, "amqp:declare:list"})
DISCHARGE: Final = frozenset({0x32, "amqp:discharge:list"})
DECLARED: Final = 0x33
ERROR: Final = 0x1D

ROLLBACK: Final = "amqp:transaction:rollback"
UNKNOWN: Final = "amqp:transaction:unknown-id"

MAX_OPEN: Final = 100
"""Transactions that a client may have open at once."""


class Work:
    """One transaction of a client.

    Attributes:
        poison: why it can only be rolled back. Spec: AT-11.
    """

    def __init__(self, transaction: Transaction) -> None:
        self.poison: RefusalError | None = None
        self._transaction = transaction
        self._returned: list[EmbeddedDelivery] = []

    def send(self, message: Message) -> None:
        """Keep a message until the commit."""
        self._transaction.send(message)

    def accept(self, delivery: EmbeddedDelivery) -> None:
        """Keep an acceptance, which the client has no more to do with: after a rollback the message goes back."""
        self._transaction.accept(delivery)
        self._returned.append(delivery)

    def commit(self) -> None:
        """Carry out everything.

        Raises:
            RefusalError: nothing was carried out.
        """
        if self.poison is not None:
            self.abort()
            raise RefusalError(ROLLBACK, f"rolled back: {self.poison}")
        error = self._transaction.commit().exception()
        if isinstance(error, SendFailedError):
            self._return()
            raise RefusalError(ROLLBACK, f"rolled back: {error}")

    def abort(self) -> None:
        """Carry out nothing."""
        self._transaction.abort()
        self._return()

    def _return(self) -> None:
        for delivery in self._returned:
            delivery.release()


class Works:
    """The open transactions of a client, by their ids."""

    def __init__(self, connection: EmbeddedConnection) -> None:
        self._connection = connection
        self._ids = count(1)
        self._open: dict[bytes, Work] = {}

    def find(self, transaction: bytes) -> Work:
        """Return an open transaction.

        Raises:
            RefusalError: there is none of this id.
        """
        try:
            return self._open[transaction]
        except KeyError:
            raise RefusalError(UNKNOWN, f"there is no transaction {transaction.hex()}") from None

    def declare(self) -> bytes:
        """Begin one, and return its id."""
        if len(self._open) >= MAX_OPEN:
            raise RefusalError(LIMIT, f"{MAX_OPEN} transactions are open already")
        transaction = next(self._ids).to_bytes(8, "big")
        self._open[transaction] = Work(self._connection.begin())
        return transaction

    def discharge(self, transaction: bytes, *, fail: bool) -> None:
        """End one; whatever happens it is no longer open.

        Raises:
            RefusalError: there is none of this id, or it could not be committed.
        """
        work = self.find(transaction)
        del self._open[transaction]
        if fail:
            work.abort()
        else:
            work.commit()

    def abort_all(self) -> None:
        """End all that are open, as the client's control link has ended."""
        works, self._open = list(self._open.values()), {}
        for work in works:
            work.abort()


class Outcomes(Protocol):
    """How a link tells what became of a delivery."""

    def reject(self, delivery: Any, refusal: RefusalError) -> None:
        """Reject it, or detach the link where that is not understood."""


class CoordinatorLink:
    """The control link: it takes commands."""

    def __init__(self, works: Works, outcomes: Outcomes) -> None:
        self._works = works
        self._outcomes = outcomes

    def take(self, delivery: Any, octets: bytes) -> None:
        """Carry out one command. With the lock held."""
        try:
            command, fields = read_command(octets)
            transaction = COMMANDS[command](self._works, fields)
        except RefusalError as refusal:
            self._outcomes.reject(delivery, refusal)
            return
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(DECLARED)
        else:
            delivery.update(Delivery.ACCEPTED)
        delivery.settle()

    def end(self) -> None:
        """Roll back what is open."""
        self._works.abort_all()


def read_command(octets: bytes) -> tuple[str, list[Any]]:
    """Read declare or discharge.

    Raises:
        RefusalError: it is neither.
    """
    try:
        found = [each.value for each in decode(octets) if each.section is Section.VALUE]
    except MalformedError as error:
        raise RefusalError(DECODE, str(error)) from error
    command = found[0] if found else None
    if isinstance(command, Described) and isinstance(command.value, list):
        for name, descriptors in (("declare", DECLARE), ("discharge", DISCHARGE)):
            if command.descriptor in descriptors:
                return name, command.value
    raise RefusalError(NOT_IMPLEMENTED, "the coordinator takes declare and discharge")


def _declare(works: Works, fields: list[Any]) -> bytes | None:
    if fields and fields[0] is not None:
        raise RefusalError(NOT_IMPLEMENTED, "there are no distributed transactions")
    return works.declare()


def _discharge(works: Works, fields: list[Any]) -> bytes | None:
    transaction = fields[0] if fields else None
    if not isinstance(transaction, bytes):
        raise RefusalError(UNKNOWN, "the discharge names no transaction")
    works.discharge(transaction, fail=len(fields) > 1 and fields[1] is True)
    return None


COMMANDS: Final[dict[str, Callable[[Works, list[Any]], bytes | None]]] = {"declare": _declare, "discharge": _discharge}


def transaction_of(delivery: Any) -> bytes | None:
    """Return the id of the transaction that a delivery's state names."""
    if delivery.remote_state != TRANSACTIONAL:
        return None
    data = delivery.remote.data
    return bytes(data[0]) if isinstance(data, list) and data and isinstance(data[0], bytes | memoryview) else b""


def provisional(delivery: Any, transaction: bytes, state: int, error: Condition | None = None) -> None:
    """Tell the outcome that a delivery will have when its transaction is committed. Spec: AT-21."""
    fields: list[Any] = []
    if error is not None:
        fields = [Described(ulong(ERROR), [symbol(error.name), error.description, error.info])]
    delivery.local.data = [transaction, Described(ulong(state), fields)]
    delivery.update(TRANSACTIONAL)
    delivery.settle()
