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
from brokers.errors import ConnectionFailedError, UsageError
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
            UsageError: the broker would show another virtual host than the one that is asked for.
        """
        super().open(timeout)
        self.dialect = self.login.dialect or dialect_of(self.product)
        try:
            self._check_broker()
        except (ConnectionFailedError, UsageError):
            self.drop()
            raise
        self.outboxes, self.coordinator = Outboxes(self, self.dialect), Coordinator(self)
        self.management = Management(self)

    def _check_broker(self) -> None:
        """Check the version of the broker, and that it knows the virtual host by the name that it was given.

        Raises:
            ConnectionFailedError, UsageError: see `open`.
        """
        major, dialect = self.version.partition(".")[0], self.dialect
        if self.login.dialect is None and major.isdecimal() and int(major) < dialect.oldest:
            wanted = f"soapjms speaks to version {dialect.oldest} and newer"
            raise ConnectionFailedError(f"{self} is {self.product} {self.version}, and {wanted}")
        host, prefix = self.login.virtual_host, dialect.host_prefix
        if host is not None and not host.startswith(prefix):
            meaning = f"got {host!r}, which stands for the default one there"
            raise UsageError(
                f"virtualHost must begin with {prefix} at {self.product or dialect.name}, as {prefix}{host}, {meaning}"
            )

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
