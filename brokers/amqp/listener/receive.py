"""Links that clients send on: to one destination, through the anonymous terminus, or to the coordinator.

How a message that goes nowhere is answered depends on three things, as rows of the specification's matrix: whether the
client has settled it, whether it understands `rejected`, and whether it belongs to a transaction.

Spec: anonymous terminus 2.2 (AT-01 to AT-14).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import cproton
from proton import Delivery, Receiver

from brokers.amqp.dialect import CAPABILITIES
from brokers.amqp.listener.options import DECODE, NOT_IMPLEMENTED, Action, AmqpNodes, RefusalError, refusal_of
from brokers.amqp.listener.send import CarriedMessage, bound_for, carry
from brokers.amqp.listener.transactions import ClientTransactions, provisional, transaction_of
from brokers.amqp.outcomes import LIMIT, OVERSIZED
from brokers.amqp.sections import MalformedError
from brokers.embedded.connection import EmbeddedConnection
from brokers.errors import BrokerError
from brokers.message import Destination

CREDIT_MESSAGES: Final = 200
"""Messages that a client may send before they are answered."""

CREDIT_RENEWAL_MESSAGES: Final = 50
"""After so many it gets new credit."""

NOT_TAKEN: Final = "amqp:link:detach-forced"

ACCEPTED, REJECTED = 0x24, 0x25

Take = Callable[[Any, bytes], None]


def _nothing(*_: Any) -> None:
    """Take or end nothing."""


def tag_of(delivery: Any) -> bytes:
    """Return the tag of a delivery. The binding reads it as text, which the tags of many clients are not."""
    found = cproton.lib.pn_delivery_tag(delivery._impl)
    return bytes(cproton.ffi.unpack(found.start, found.size)) if found.size else b""


class OpenTransfers:
    """What a client has begun to send, on all its links together.

    Args:
        limit: octets that it may hold.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.octets = 0


class IncomingLink:
    """One receiving end: collects messages, and answers for those that are refused.

    Args:
        link: proton's.
        max_message: octets of a message.
        unfinished: counts with those of the client's other links.
        works: the client's transactions.
        understands_rejected: the client's source lists that outcome.
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
        self._unfinished = unfinished
        self._works = works
        self._buffer = bytearray()
        self._taken = 0
        self._lent = 0
        self._left = 0
        self._has_detached = False

    def delivered(self, delivery: Any) -> None:
        """Collect octets, and take a message once it is whole; what follows a detach is dropped. With the lock held."""
        link = self._link
        if delivery.aborted:
            self._clear()
            delivery.settle()
            self._renew()
            return
        if not delivery.readable:
            return
        if delivery.pending:
            self._collect(delivery, link.recv(delivery.pending) or b"")
        if delivery.partial:
            return
        octets = bytes(self._buffer)
        self._clear()
        link.advance()
        if self._has_detached:
            self._poison(delivery, RefusalError(NOT_TAKEN, "a message of it came after its link had been detached"))
            self._leave_open(delivery)
            return
        self._renew()
        self.take(delivery, octets)

    def ended(self) -> None:
        """Forget what was begun, and end what was there for this link only. With the lock held.

        What takes its messages knows this object: as long as they know each other, proton's link would be left to the
        garbage collector, which lets go of it in any thread.
        """
        self._clear()
        self.end()
        self.take, self.end = _nothing, _nothing

    def _collect(self, delivery: Any, octets: bytes) -> None:
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
        self._poison(delivery, refusal)
        self.detach(refusal, tag_of(delivery))

    def _clear(self) -> None:
        self._unfinished.octets -= len(self._buffer)
        self._buffer.clear()

    def _leave_open(self, delivery: Any) -> None:
        """Say nothing of a message that is not taken: who hears that it is settled believes that it was.

        Beyond its credit a client has nothing to believe, and would only fill our memory.
        """
        self._left += 1
        if delivery.settled or self._left > CREDIT_MESSAGES:
            delivery.settle()

    def _poison(self, delivery: Any, refusal: RefusalError) -> None:
        """Let the transaction of a message that is not taken never be committed, as the client may think it was."""
        transaction = transaction_of(delivery)
        if transaction is not None:
            self._works.poison(transaction, refusal)

    def _renew(self) -> None:
        self._taken += 1
        if self._taken % CREDIT_RENEWAL_MESSAGES == 0:
            self._link.flow(CREDIT_RENEWAL_MESSAGES - self._lent)
            self._lent = 0

    def echo(self) -> None:
        """Tell the link's state: proton says it only where it changes, so there is credit for one more, or for less."""
        change = 1 if self._lent < CREDIT_RENEWAL_MESSAGES - 1 else -self._lent
        self._lent += change
        self._link.flow(change)

    def detach(self, refusal: RefusalError, tag: bytes | None = None) -> None:
        """End the link, with the error of the first bad message. Spec: 2.2.2 (AT-12 to AT-14)."""
        self._has_detached = True
        self._link.condition = refusal.told(tag)
        self._link.close()

    def reject(self, delivery: Any, refusal: RefusalError) -> None:
        """Tell the error of one delivery outside of a transaction: rows 1 to 4."""
        tag = tag_of(delivery)
        if delivery.settled or not self._understands_rejected:
            self.detach(refusal, tag)
            return
        delivery.local.condition = refusal.told(tag)
        delivery.update(Delivery.REJECTED)
        delivery.settle()

    def reject_in(self, delivery: Any, refusal: RefusalError, transaction: bytes, works: ClientTransactions) -> None:
        """Tell the error of one delivery of a transaction: rows 5 to 8."""
        if not delivery.settled and self._understands_rejected:
            provisional(delivery, transaction, REJECTED, refusal.told(tag_of(delivery)))
            return
        works.poison(transaction, refusal)
        if not delivery.settled:
            self.detach(refusal, tag_of(delivery))


class Sink(Protocol):
    """What the messages of a link go into."""

    @property
    def user(self) -> str | None:
        """Who sends."""

    @property
    def nodes(self) -> AmqpNodes:
        """Where to."""

    @property
    def connection(self) -> EmbeddedConnection:
        """By which way."""

    @property
    def works(self) -> ClientTransactions:
        """In which transaction."""

    def now(self) -> int:
        """Milliseconds since 1970."""


class Posts:
    """Puts the messages of a link where they belong.

    Args:
        incoming: the link.
        sink: the client's place in the broker.
        destination: where the link leads; None for the anonymous terminus.
        capabilities: what the link promised; a destination without any of them is refused. Spec: 2.2.1 (AT-06).
    """

    def __init__(
        self, incoming: IncomingLink, sink: Sink, destination: Destination | None, capabilities: frozenset[str]
    ) -> None:
        self._incoming = incoming
        self._sink = sink
        self._destination = destination
        self._capabilities = capabilities

    def take(self, delivery: Any, octets: bytes) -> None:
        """Send one message on, and tell its sender what became of it. With the lock held."""
        transaction = transaction_of(delivery)
        if transaction is None:
            self._take_alone(delivery, octets)
            return
        try:
            work = self._sink.works.find(transaction)
        except RefusalError as refusal:
            self._incoming.detach(refusal, tag_of(delivery))
            return
        try:
            self._sink.works.send(work, self._addressed(octets), len(octets))
        except RefusalError as refusal:
            self._incoming.reject_in(delivery, refusal, transaction, self._sink.works)
            return
        if not delivery.settled:
            provisional(delivery, transaction, ACCEPTED)
        else:
            delivery.settle()

    def _take_alone(self, delivery: Any, octets: bytes) -> None:
        try:
            error = self._sink.connection.send(self._addressed(octets)).exception()
            if isinstance(error, BrokerError):
                raise refusal_of(error)
        except RefusalError as refusal:
            self._incoming.reject(delivery, refusal)
            return
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()

    def _addressed(self, octets: bytes) -> CarriedMessage:
        """Read a message and find its destination.

        Raises:
            RefusalError: it is no message, or there is no such destination.
        """
        try:
            message = carry(octets, self._destination, self._sink.now(), self._sink.user)
        except MalformedError as error:
            raise RefusalError(DECODE, str(error)) from error
        if self._destination is not None:
            return bound_for(message, self._destination)
        named = message.destination
        address = None if named is None else self._sink.nodes.address_of(named)
        kind = None if named is None else named.kind
        found = self._sink.nodes.resolve(address, kind, self._sink.user, Action.SEND)
        if self._capabilities and CAPABILITIES[found.kind] not in self._capabilities:
            raise RefusalError(NOT_IMPLEMENTED, f"{found} has none of {', '.join(sorted(self._capabilities))}")
        return bound_for(message, found)
