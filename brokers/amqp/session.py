"""One generation of a connection: an engine with its dialect, sending links and coordinator."""

from __future__ import annotations

from collections.abc import Callable

from brokers.amqp.coordinator import Coordinator
from brokers.amqp.dialect import PLAIN, AmqpDialect, dialect_of
from brokers.amqp.engine import AmqpEngine
from brokers.amqp.send import Outboxes
from brokers.amqp.temporary import TemporaryNode
from brokers.amqp.url import AmqpLogin


class AmqpSession(AmqpEngine):
    """An engine with its sending links and its link to the coordinator.

    Attributes:
        dialect: the dialect of the broker.
        outboxes: the sending links; set by `open`, like the coordinator.
        coordinator: begins and ends transactions.
        temporaries: the temporary destinations, by address.
    """

    outboxes: Outboxes
    coordinator: Coordinator

    def __init__(self, login: AmqpLogin, on_end: Callable[[AmqpSession], None]) -> None:
        super().__init__(login, lambda _: on_end(self))
        self.dialect: AmqpDialect = PLAIN
        self.temporaries: dict[str, TemporaryNode] = {}

    def open(self, timeout: float) -> None:
        """Connect, log in, and choose the dialect of the broker; see `AmqpEngine`."""
        super().open(timeout)
        self.dialect = self.login.dialect or dialect_of(self.product)
        self.outboxes, self.coordinator = Outboxes(self, self.dialect), Coordinator(self)
