"""Temporary destinations: nodes that the broker makes for a link, and that end with it; or, on Artemis, topics.

Spec: AMQP 1.0 part 3, section 3.5.10 (dynamic nodes); AMQP JMS Mapping 1.0, temporary destinations.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import Final

from proton import Condition, Delivery, Described, Receiver, Sender, Terminus, symbol, ulong

from brokers.amqp.dialect import CAPABILITIES, AmqpDialect, read_address
from brokers.amqp.engine import AmqpEngine, AmqpLink
from brokers.amqp.outcomes import refusal
from brokers.amqp.send import OUTCOMES, put_symbols
from brokers.errors import BrokerError, ConnectionLostError, UnsupportedError
from brokers.message import Destination, DestinationKind

LIFETIME: Final = "lifetime-policy"
DELETE_ON_CLOSE: Final = 0x2B

NAME_OCTETS: Final = 24
"""Random octets in the name of a topic that stands for a temporary queue: who knows the name may consume from it."""


def topic_as_queue(engine: AmqpEngine, dialect: AmqpDialect) -> Destination:
    """Name a temporary queue that is a topic to the broker, which makes it when it is consumed from.

    It holds nothing for consumers that come later, and two of them get each message both.

    Raises:
        UnsupportedError: to this broker no topic stands for a temporary queue.
    """
    kind = DestinationKind.TEMPORARY_QUEUE
    for prefix, known in dialect.temporary_names.items():
        if known is kind:
            name = prefix + token_hex(NAME_OCTETS)
            return Destination(kind, name, address=name)
    raise UnsupportedError(f"temporaryQueues=topics is for Artemis, which {engine} is not: leave it out")


class TemporaryNode(AmqpLink):
    """A link that nothing is sent on: its target is the temporary destination, and lives as long as the link."""

    def __init__(self, engine: AmqpEngine, kind: DestinationKind, dialect: AmqpDialect) -> None:
        self._engine = engine
        self._kind = kind
        self._dialect = dialect
        self._answers: SimpleQueue[str | BrokerError] = SimpleQueue()
        self._link: Sender | None = None

    def make(self, timeout: float) -> Destination:
        """Ask the broker for a destination.

        Raises:
            BrokerError: it makes none, or did not answer within `timeout` seconds.
            ConnectionLostError: the connection has ended.
        """
        with self._engine.working() as session:
            link = self._link = self._engine.look_after(session.sender(self._engine.new_name()), self)
            put_symbols(link.source.outcomes, *OUTCOMES)
            link.target.dynamic = True
            link.target.properties.put_object({symbol(LIFETIME): Described(ulong(DELETE_ON_CLOSE), [])})
            put_symbols(link.target.capabilities, CAPABILITIES[self._kind])
            link.open()
        try:
            answer = self._answers.get(timeout=timeout)
        except Empty:
            self.end()  # else it would be there, should the answer be late
            raise BrokerError(f"{self._engine} made no {self._kind} within {timeout:.1f} s") from None
        if isinstance(answer, BrokerError):
            raise answer
        named = read_address(answer, self._kind, self._dialect)
        return Destination(self._kind, named.name, address=answer)

    def end(self) -> None:
        """End the destination, as far as the connection has not ended it."""
        with suppress(ConnectionLostError), self._engine.working():
            if self._link is not None:
                self._link.close()

    # What the engine tells, with its lock held

    def opened(self, link: Sender | Receiver) -> None:
        """Tell the address, unless the link is refused; then `closed` follows."""
        address = link.remote_target.address
        if link.remote_target.type != Terminus.UNSPECIFIED and address:
            self._answers.put(address)

    def flowed(self, link: Sender | Receiver) -> None:
        """Nothing is sent here."""

    def delivered(self, delivery: Delivery) -> None:
        """Nothing is sent here."""

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """Tell who waits."""
        self._link = None
        self._answers.put(BrokerError(str(refusal(condition, f"the broker makes no {self._kind}"))))

    def lost(self, error: BrokerError) -> None:
        """Tell who waits."""
        self._link = None
        self._answers.put(error)
