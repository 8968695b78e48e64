"""Temporary destinations: nodes that the broker creates for a link, and that end with it; or topics, on Artemis.

Spec: AMQP 1.0 part 3, section 3.5.10 (dynamic nodes); AMQP JMS Mapping 1.0, temporary destinations.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import Final

from proton import Condition, Described, Receiver, Sender, Terminus, symbol, ulong

from brokers.amqp.dialect import CAPABILITIES, DELETE_ON_CLOSE, LIFETIME, AmqpDialect, read_address
from brokers.amqp.engine import AmqpEngine, AmqpLink
from brokers.amqp.outcomes import refusal
from brokers.amqp.send import OUTCOMES, put_symbols
from brokers.amqp.transfers import Transfer
from brokers.errors import BrokerError, ConnectionLostError, NoAnswerError, UnsupportedError
from brokers.message import Destination, DestinationKind

NAME_OCTETS: Final = 24
"""Number of random octets in the name of a topic for a temporary queue: knowing the name suffices to consume."""


def topic_as_queue(engine: AmqpEngine, dialect: AmqpDialect) -> Destination:
    """Return a new temporary queue that is a topic at the broker, which creates it when it is first consumed from.

    It keeps no messages for later consumers, and two consumers both get each message.

    Raises:
        UnsupportedError: this broker does not support topics as temporary queues.
    """
    kind = DestinationKind.TEMPORARY_QUEUE
    for prefix, known in dialect.temporary_names.items():
        if known is kind:
            name = prefix + token_hex(NAME_OCTETS)
            return Destination(kind, name, address=name)
    raise UnsupportedError(f"temporaryQueues=topics is for Artemis, which {engine} is not: leave it out")


class TemporaryNode(AmqpLink):
    """A link without messages: its target is the temporary destination, which lives as long as the link."""

    def __init__(self, engine: AmqpEngine, kind: DestinationKind, dialect: AmqpDialect) -> None:
        self._engine = engine
        self._kind = kind
        self._dialect = dialect
        self._answers: SimpleQueue[str | BrokerError] = SimpleQueue()
        self._link: Sender | None = None

    def make(self, timeout: float) -> Destination:
        """Ask the broker for a destination.

        Raises:
            BrokerError: the broker refused.
            NoAnswerError: the broker did not answer within `timeout` seconds.
            ConnectionLostError: the connection has ended.
        """
        with self._engine.held():
            link = self._link = self._engine.look_after(self._engine.session.sender(self._engine.new_name()), self)
            put_symbols(link.source.outcomes, *OUTCOMES)
            link.target.dynamic = True
            link.target.properties.put_object({symbol(LIFETIME): Described(ulong(DELETE_ON_CLOSE), [])})
            put_symbols(link.target.capabilities, CAPABILITIES[self._kind])
            link.open()
        try:
            answer = self._answers.get(timeout=timeout)
        except Empty:
            self.end()  # otherwise the destination would exist if the answer were late
            raise NoAnswerError(f"{self._engine} created no {self._kind} within {timeout:.1f} s") from None
        if isinstance(answer, BrokerError):
            raise answer
        named = read_address(answer, self._kind, self._dialect)
        return Destination(self._kind, named.name, address=answer)

    def end(self) -> None:
        """End the destination, unless it has ended with the connection."""
        with suppress(ConnectionLostError), self._engine.held():
            if self._link is not None:
                self._link.close()

    # Called by the engine, with its lock held

    def opened(self, link: Sender | Receiver) -> None:
        """Report the address, unless the link was refused; then `closed` follows."""
        address = link.remote_target.address
        if link.remote_target.type != Terminus.UNSPECIFIED and address:
            self._answers.put(address)

    def flowed(self) -> None:
        """Do nothing: no messages are sent here."""

    def delivered(self, transfer: Transfer) -> None:
        """Check that this is no message: none are sent here."""
        self._engine.require_no_message()

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """Report the refusal to the waiting caller."""
        self._link = None
        self._answers.put(BrokerError(str(refusal(condition, f"the broker creates no {self._kind}"))))

    def lost(self, error: BrokerError) -> None:
        """Report the loss of the connection to the waiting caller."""
        self._link = None
        self._answers.put(error)
