"""A connection that dies at one chosen operation, before its effect or after it, and says nothing more."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from threading import Event, Lock
from typing import Any, TypeVar

from calling_kit import PATIENCE, Wrapped

from brokers import (
    Completion,
    Connection,
    ConnectionLostError,
    Consumer,
    Delivery,
    Destination,
    DestinationKind,
    Message,
    RefusedSend,
    SendResult,
    Transaction,
)

T = TypeVar("T")


class Faults:
    """Counts the operations of a connection, and lets one of them fail.

    Args:
        at: the position of that operation, None for none.
        after: it fails after its effect, and not before.

    Attributes:
        names: the operations so far.
        fired: set once one failed.
    """

    def __init__(self, at: int | None = None, *, after: bool = False) -> None:
        self.at = at
        self.after = after
        self.names: list[str] = []
        self.fired = Event()
        self._lock = Lock()

    def run(self, name: str, connection: Connection, operation: Callable[[], T]) -> T:
        """Carry out an operation, or let it and its connection fail."""
        with self._lock:
            is_mine = len(self.names) == self.at
            self.names.append(name)
        if not is_mine:
            return operation()
        if self.after:
            done = operation()
            if isinstance(done, Future):
                done.result(PATIENCE)
        connection.close(0)
        self.fired.set()
        raise ConnectionLostError(f"the connection was lost {'after' if self.after else 'before'} {name}")


class FaultyConnection(Wrapped):
    """A connection of which one operation fails; then it is gone.

    Args:
        inner: the connection.
        faults: which one.
        transactional: False hides that the broker has transactions.
    """

    def __init__(self, inner: Connection, faults: Faults, *, transactional: bool = True) -> None:
        super().__init__(inner)
        self._faults = faults
        self._transactional = transactional

    @property
    def capabilities(self) -> Any:
        return replace(self.inner.capabilities, transactions=self._transactional)

    def run(self, name: str, operation: Callable[[], T]) -> T:
        """Carry out an operation, or let it fail."""
        return self._faults.run(name, self.inner, operation)

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        try:
            return self.run("send", lambda: self.inner.send(message, transaction, **options))
        except ConnectionLostError as error:
            if not self._faults.after:
                raise
            lost: Completion[SendResult] = Completion(no_executor)  # raised here, it would say that nothing was sent
            lost.set_exception(error)
            return lost

    def _consume(self, options: Any, on_delivery: Any) -> Any:
        def deliver(delivery: Delivery) -> None:
            self.run("deliver", lambda: on_delivery(FaultyDelivery(delivery, self)))

        return FaultyConsumer(self.run("consume", lambda: self.inner._consume(options, deliver)), self)

    def begin(self) -> Transaction:
        return FaultyTransaction(self.run("begin", self.inner.begin), self)

    def temporary(self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, **options: bool) -> Any:
        return self.run("temporary", lambda: self.inner.temporary(kind, **options))

    def end_temporary(self, destination: Destination) -> None:
        self.run("end temporary", lambda: self.inner.end_temporary(destination))


def no_executor() -> Executor:
    """Have callbacks run at once, as there is nobody else to run them."""
    raise RuntimeError("the connection is gone")


class FaultyConsumer(Consumer):
    """A consumer of such a connection."""

    def __init__(self, inner: Consumer, owner: FaultyConnection) -> None:
        self._inner = inner
        self._owner = owner

    def close(self) -> None:
        self._owner.run("close", self._inner.close)


class FaultyDelivery(Delivery):
    """A delivery that such a connection brought."""

    __slots__ = ("inner", "owner")

    def __init__(self, inner: Delivery, owner: FaultyConnection) -> None:
        super().__init__(inner.message, inner.delivery_count, inner.generation)
        self.inner = inner
        self.owner = owner

    def accept(self) -> None:
        self.owner.run("accept", self.inner.accept)

    def release(self) -> None:
        self.owner.run("release", self.inner.release)

    def reject(self, reason: str) -> None:
        self.owner.run("reject", partial(self.inner.reject, reason))


class FaultyTransaction(Transaction):
    """A transaction that such a connection began."""

    def __init__(self, inner: Transaction, owner: FaultyConnection) -> None:
        self._inner = inner
        self._owner = owner

    def send(self, message: Message) -> None:
        self._owner.run("send in a transaction", lambda: self._inner.send(message))

    def accept(self, delivery: Delivery) -> None:
        assert isinstance(delivery, FaultyDelivery)
        self._owner.run("accept in a transaction", lambda: self._inner.accept(delivery.inner))

    def commit(self) -> Completion[tuple[RefusedSend, ...]]:
        try:
            return self._owner.run("commit", self._inner.commit)
        except ConnectionLostError as error:  # as its future tells it
            future: Completion[tuple[RefusedSend, ...]] = Completion(no_executor)
            future.set_exception(error)
            return future

    def abort(self) -> None:
        self._inner.abort()
