"""One generation of a connection: an engine with its dialect, sending links and coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from brokers.amqp.coordinator import Coordinator
from brokers.amqp.dialect import PLAIN, AmqpDialect, dialect_of
from brokers.amqp.engine import AmqpEngine
from brokers.amqp.management import ManagedQueue, Management
from brokers.amqp.send import Outboxes
from brokers.amqp.temporary import TemporaryNode
from brokers.amqp.url import AmqpLogin
from brokers.connection import SubscribeOptions
from brokers.errors import ConnectionFailedError
from brokers.message import DestinationKind


class AmqpSession(AmqpEngine):
    """An engine with its sending links and its link to the coordinator.

    Attributes:
        dialect: the dialect of the broker.
        outboxes: the sending links; set by `open`, like the coordinator.
        coordinator: begins and ends transactions.
        temporaries: the temporary destinations, by address.
        management: makes queues, at a broker whose dialect says so.
    """

    outboxes: Outboxes
    coordinator: Coordinator
    management: Management

    def __init__(self, login: AmqpLogin, on_end: Callable[[AmqpSession], None]) -> None:
        super().__init__(login, lambda _: on_end(self))
        self.dialect: AmqpDialect = PLAIN
        self.temporaries: dict[str, TemporaryNode | ManagedQueue] = {}

    def open(self, timeout: float) -> None:
        """Connect, log in, and choose the dialect of the broker; see `AmqpEngine`.

        Raises:
            ConnectionFailedError: also if the broker is too old.
        """
        super().open(timeout)
        self.dialect = self.login.dialect or dialect_of(self.product)
        if self._is_too_old:
            self.drop()
            wanted = f"soapjms speaks to version {self.dialect.oldest} and newer"
            raise ConnectionFailedError(f"{self} is {self.product} {self.version}, and {wanted}")
        self.outboxes, self.coordinator = Outboxes(self, self.dialect), Coordinator(self)
        self.management = Management(self)

    @property
    def _is_too_old(self) -> bool:
        major = self.version.partition(".")[0]
        return self.login.dialect is None and major.isdecimal() and int(major) < self.dialect.oldest

    def new_temporary(self, kind: DestinationKind) -> TemporaryNode | ManagedQueue:
        """Return a temporary destination that is still to be made."""
        if self.dialect.has_management:
            return ManagedQueue(self.management, kind, self.dialect)
        return TemporaryNode(self, kind, self.dialect)

    def consumable(self, options: SubscribeOptions, timeout: float) -> SubscribeOptions:
        """Return what to consume from: the queue of a new subscription, if the broker delivers from queues only.

        Raises:
            BrokerError, NoAnswerError, ConnectionLostError: the queue could not be made.
        """
        topic = options.destination
        if not self.dialect.has_management or topic.kind is not DestinationKind.TOPIC or topic.address is not None:
            return options
        return replace(options, destination=replace(topic, address=self.management.subscribe(topic, timeout)))
