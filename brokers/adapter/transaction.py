"""The transaction that broker adapters extend: the deliveries that it accepts, and its end; and who owns what.

What is sent, and what a commit writes, belong in the adapter.
"""

from __future__ import annotations

from threading import Lock
from typing import Generic, Protocol, TypeGuard, TypeVar

from brokers.connection import Delivery, Transaction
from brokers.errors import ClosedError, UsageError

DeliveryT = TypeVar("DeliveryT", bound=Delivery)
OwnedDeliveryT = TypeVar("OwnedDeliveryT", bound=Delivery, covariant=True)


class DeliveryOwner(Protocol[OwnedDeliveryT]):
    """The part of a connection that knows its deliveries."""

    def owns(self, delivery: Delivery) -> TypeGuard[OwnedDeliveryT]:
        """Return whether a delivery belongs to a consumer of this connection."""


class OwnedTransaction(Transaction):
    """A transaction that only its connection can use.

    Attributes:
        owner: the connection.
    """

    owner: object


TransactionT = TypeVar("TransactionT", bound=OwnedTransaction)


def own_delivery(delivery: Delivery, owner: DeliveryOwner[DeliveryT]) -> DeliveryT:
    """Return `delivery`, having checked that it belongs to a connection.

    Raises:
        UsageError: it belongs to another connection, or is something else, such as its message.
    """
    if not owner.owns(delivery):
        given = "one of another connection" if isinstance(delivery, Delivery) else type(delivery).__name__
        raise UsageError(f"delivery must be one that a consumer of this connection got, got {given}")
    return delivery


def own_transaction(transaction: Transaction, owner: object, kind: type[TransactionT]) -> TransactionT:
    """Return `transaction`, having checked that it belongs to a connection, whose transactions are of a `kind`.

    Raises:
        UsageError: it belongs to another connection, or is something else.
    """
    if not isinstance(transaction, kind) or transaction.owner is not owner:
        given = "one of another connection" if isinstance(transaction, Transaction) else f"{transaction!r:.100}"
        raise UsageError(f"transaction must be what begin() of this connection returned, got {given}")
    return transaction


class DeferredTransaction(OwnedTransaction, Generic[DeliveryT]):
    """A transaction that is kept here, and that the broker learns of at the commit. Thread-safe.

    Args:
        owner: the connection.
    """

    owner: DeliveryOwner[DeliveryT]

    def __init__(self, owner: DeliveryOwner[DeliveryT]) -> None:
        self.owner = owner
        self._lock = Lock()
        self._deliveries: list[DeliveryT] = []
        self._has_ended = False

    def accept(self, delivery: Delivery) -> None:
        """Add the acknowledgement of a delivery.

        Raises:
            UsageError: the delivery belongs to another connection.
            ClosedError: the transaction was committed or aborted before.
        """
        own = own_delivery(delivery, self.owner)
        with self._lock:
            if self._has_ended:
                self._require_open()
            self._deliveries.append(own)

    def _require_open(self) -> None:
        if self._has_ended:
            raise ClosedError("the transaction was committed or aborted before")


def went_back(delivery: Delivery) -> ClosedError:
    """Return the error of a commit that would accept a delivery which the consumer no longer holds."""
    return ClosedError(
        f"message {delivery.message.message_id} went back to the broker before it was accepted, "
        "so nothing was committed"
    )
