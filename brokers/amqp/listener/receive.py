"""Links that clients send on: to one destination, to the anonymous terminus, or to the coordinator.

The answer to an undeliverable message depends on three conditions, the rows of the specification's matrix: whether the
client has settled it, whether the client understands `rejected`, and whether it belongs to a transaction.

Spec: anonymous terminus 2.2 (AT-01 to AT-14).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import cproton
from proton import Delivery, Receiver

from brokers.amqp.dialect import CAPABILITIES
from brokers.amqp.listener.messages import CarriedMessage, MessageCarrier
from brokers.amqp.listener.options import Action, AmqpNodes, RefusalError, kind_of, refusal_of
from brokers.amqp.listener.transactions import ClientTransactions, provisional, transaction_of
from brokers.amqp.outcomes import DECODE, LIMIT, NOT_IMPLEMENTED, OVERSIZED
from brokers.amqp.sections import MalformedError
from brokers.amqp.transfers import (
    PLACE_OCTETS,
    Transfer,
    accept,
    give_credit,
    new_place,
    read,
    read_some,
    settle,
    was_settled,
)
from brokers.embedded.connection import EmbeddedConnection
from brokers.errors import SendFailedError
from brokers.message import Destination

CREDIT_MESSAGES: Final = 1000
"""Number of messages that a client may send before they are answered."""

CREDIT_RENEWAL_MESSAGES: Final = 250
"""Number of messages after which the client gets new credit."""

MAX_LEFT_MESSAGES: Final = 100_000
"""Maximum number of messages of a client that are left unsettled because their links had been detached."""

NOT_TAKEN: Final = "amqp:link:detach-forced"

ACCEPTED, REJECTED = 0x24, 0x25

Take = Callable[[Transfer, bytes], None]


def _nothing(*_: Any) -> None:
    """Do nothing."""


def tag_of(transfer: Transfer) -> bytes:
    """Return the tag of a delivery as octets. proton's binding decodes it as text, which many tags are not."""
    found = cproton.lib.pn_delivery_tag(transfer)
    return bytes(cproton.ffi.unpack(found.start, found.size)) if found.size else b""


class OpenTransfers:
    """The size of a client's partly received messages, and the number of those left unsettled, on all its links.

    Args:
        limit: maximum size of the former, in octets.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.octets = 0
        self.left = 0
        self._place: Any = None

    @property
    def place(self) -> Any:
        """Memory for octets that are read, which clients that only receive do without."""
        if self._place is None:
            self._place = new_place()
        return self._place


class IncomingLink:
    """One receiving end: collects messages, and answers refused ones.

    Args:
        link: proton's link.
        max_message: maximum size of a message, in octets.
        unfinished: the partly received messages of all links of the client.
        works: the client's transactions.
        understands_rejected: whether the client's source lists that outcome.
    """

    def __init__(
        self,
        link: Receiver,
        max_message: int,
        unfinished: OpenTransfers,
        works: ClientTransactions,
        *,
        understands_rejected: bool,
    ) -> None:
        self.take: Take = _nothing
        self.end: Callable[[], None] = _nothing
        self._link = link
        self._understands_rejected = understands_rejected
        self._max_message = max_message
        self._small = min(max_message, PLACE_OCTETS - 1)
        self._unfinished = unfinished
        self._works = works
        self._buffer = bytearray()
        self._taken = 0
        self._lent = 0
        self._left = 0
        self._has_detached = False

    def delivered(self, transfer: Transfer) -> None:
        """Collect octets, and take a message once it is complete; drop data after a detach. With the lock held."""
        if not (self._buffer or self._has_detached):
            some = read_some(transfer, self._link, self._unfinished.place, self._small)
            if some is not None:
                octets, is_partial = some
                if not is_partial:
                    self._renew()
                    self.take(transfer, octets)
                    return
                self._collect(transfer, octets)
        arrived = read(transfer)
        if arrived is None:
            if cproton.lib.pn_delivery_aborted(transfer):
                self._clear()
                settle(transfer)
                self._renew()
            return
        octets = arrived.octets
        if arrived.is_partial or self._buffer or len(octets) > self._max_message:
            self._collect(transfer, octets)
            if arrived.is_partial:
                return
            octets = bytes(self._buffer)
            self._clear()
        if self._has_detached:
            self._poison(transfer, RefusalError(NOT_TAKEN, "a message of it came after its link had been detached"))
            self._leave_open(transfer)
            return
        self._renew()
        self.take(transfer, octets)

    def ended(self) -> None:
        """Drop a partial message, and end the handler of this link. With the lock held.

        The handler refers to this object: such a cycle would leave proton's link to the garbage collector, which may
        free it on any thread.
        """
        self._clear()
        self._unfinished.left -= self._left
        self._left = 0
        self.end()
        self.take, self.end = _nothing, _nothing

    def _collect(self, transfer: Transfer, octets: bytes) -> None:
        if self._has_detached:
            return
        self._buffer += octets
        self._unfinished.octets += len(octets)
        if len(self._buffer) > self._max_message:
            refusal = RefusalError(OVERSIZED, f"a message has at most {self._max_message} octets here")
        elif self._unfinished.octets > self._unfinished.limit:
            refusal = RefusalError(LIMIT, f"unfinished messages have at most {self._unfinished.limit} octets together")
        else:
            return
        self._clear()
        self._poison(transfer, refusal)
        self.detach(refusal, tag_of(transfer))

    def _clear(self) -> None:
        self._unfinished.octets -= len(self._buffer)
        self._buffer.clear()

    def _leave_open(self, transfer: Transfer) -> None:
        """Leave a message unsettled that was not accepted: the client would believe that a settled one was accepted.

        Messages beyond the credit, or beyond `MAX_LEFT_MESSAGES`, are settled anyway; they would only use memory.
        """
        self._left += 1
        self._unfinished.left += 1
        if was_settled(transfer) or self._left > CREDIT_MESSAGES or self._unfinished.left > MAX_LEFT_MESSAGES:
            settle(transfer)

    def _poison(self, transfer: Transfer, refusal: RefusalError) -> None:
        """Prevent the commit of a transaction with a message that was not accepted, because the client may not know."""
        transaction = transaction_of(transfer)
        if transaction is not None:
            self._works.poison(transaction, refusal)

    def _renew(self) -> None:
        self._taken += 1
        if self._taken % CREDIT_RENEWAL_MESSAGES == 0:
            give_credit(self._link, CREDIT_RENEWAL_MESSAGES - self._lent)
            self._lent = 0

    def echo(self) -> None:
        """Report the link's state: proton writes it only if it changes, so the credit goes up by one, or down again."""
        change = 1 if self._lent < CREDIT_RENEWAL_MESSAGES - 1 else -self._lent
        self._lent += change
        self._link.flow(change)

    def detach(self, refusal: RefusalError, tag: bytes | None = None) -> None:
        """End the link, with the error of the first bad message. Spec: 2.2.2 (AT-12 to AT-14)."""
        self._has_detached = True
        self._link.condition = refusal.told(tag)
        self._link.close()

    def reject(self, transfer: Transfer, refusal: RefusalError) -> None:
        """Report the error of one delivery outside a transaction: rows 1 to 4."""
        tag = tag_of(transfer)
        if was_settled(transfer) or not self._understands_rejected:
            self.detach(refusal, tag)
            return
        settle(transfer, Delivery.REJECTED, refusal.told(tag))

    def reject_in(
        self, transfer: Transfer, refusal: RefusalError, transaction: bytes, works: ClientTransactions
    ) -> None:
        """Report the error of one delivery within a transaction: rows 5 to 8."""
        if not was_settled(transfer) and self._understands_rejected:
            provisional(transfer, transaction, REJECTED, refusal.told(tag_of(transfer)))
            return
        works.poison(transaction, refusal)
        if not was_settled(transfer):
            self.detach(refusal, tag_of(transfer))


class Sink(Protocol):
    """The part of a client that takes the messages of its links."""

    @property
    def user(self) -> str | None:
        """The user who sends."""

    @property
    def nodes(self) -> AmqpNodes:
        """The destinations of the broker."""

    @property
    def connection(self) -> EmbeddedConnection:
        """The client's connection to the broker."""

    @property
    def works(self) -> ClientTransactions:
        """The client's transactions."""

    @property
    def carrier(self) -> MessageCarrier:
        """Parses the client's messages."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""


class Posts:
    """Sends the messages of a link to their destinations.

    Args:
        incoming: the link.
        sink: the client.
        destination: destination of the link; None for the anonymous terminus.
        capabilities: capabilities agreed for the link, in the client's order. They are kinds of destinations, of which
            a destination has one: if it is none of them, a message is refused. An address without a kind is of the
            first one, as at a direct link. Spec: 2.2.1 (AT-02, AT-06).
    """

    def __init__(
        self, incoming: IncomingLink, sink: Sink, destination: Destination | None, capabilities: Sequence[str]
    ) -> None:
        self._incoming = incoming
        self._sink = sink
        self._connection = sink.connection
        self._user = sink.user
        self._destination = destination
        self._capabilities = capabilities
        self._kind = kind_of(capabilities) if destination is None else None

    def take(self, transfer: Transfer, octets: bytes) -> None:
        """Send one message, and report the outcome to the client. With the lock held."""
        transaction = transaction_of(transfer)
        if transaction is not None:
            self._take_within(transaction, transfer, octets)
            return
        try:
            self._connection.put(self._addressed(octets))
        except SendFailedError as error:
            self._incoming.reject(transfer, refusal_of(error))
        except RefusalError as refusal:
            self._incoming.reject(transfer, refusal)
        else:
            accept(transfer)

    def _take_within(self, transaction: bytes, transfer: Transfer, octets: bytes) -> None:
        try:
            work = self._sink.works.find(transaction)
        except RefusalError as refusal:
            self._incoming.detach(refusal, tag_of(transfer))
            return
        try:
            self._sink.works.send(work, self._addressed(octets), len(octets))
        except RefusalError as refusal:
            self._incoming.reject_in(transfer, refusal, transaction, self._sink.works)
            return
        if not was_settled(transfer):
            provisional(transfer, transaction, ACCEPTED)
        else:
            settle(transfer)

    def _addressed(self, octets: bytes) -> CarriedMessage:
        """Parse a message and find its destination.

        Raises:
            RefusalError: the message is malformed, or its destination does not exist.
        """
        sink, message_id = self._sink, self._connection.new_message_id()
        try:
            return sink.carrier.carry(octets, self._resolve, message_id, sink.now(), self._user, self._kind)
        except MalformedError as error:
            raise RefusalError(DECODE, str(error)) from error

    def _resolve(self, named: Destination | None) -> Destination:
        if self._destination is not None:
            return self._destination
        address = None if named is None or named.name is None else self._sink.nodes.address_of(named)
        kind = None if named is None else named.kind
        found = self._sink.nodes.resolve(address, kind, self._user, Action.SEND)
        if self._capabilities and CAPABILITIES[found.kind] not in self._capabilities:
            agreed = ", ".join(sorted(self._capabilities))
            raise RefusalError(
                NOT_IMPLEMENTED, f"the capabilities of the link must name the kind of {found}, got {agreed}"
            )
        return found
