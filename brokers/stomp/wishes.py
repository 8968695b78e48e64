"""What a consumer over STOMP asks for, and whether it can be had."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.connection import Capabilities
from brokers.errors import UnsupportedError
from brokers.message import Destination, DestinationKind
from brokers.stomp.dialect import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The arguments of `Connection.consume`."""

    destination: Destination
    prefetch: int
    selector: str | None
    durable_name: str | None
    auto_accept: bool
    inline: bool

    def check(self, capabilities: Capabilities) -> None:
        """See that this can be asked of the broker.

        Raises:
            UnsupportedError: a durable name, and the connection has no client id.
            ValueError: a durable name for anything but a topic, or no room for a message.
        """
        if self.durable_name is not None and self.destination.kind is not DestinationKind.TOPIC:
            raise ValueError(f"a durable subscription is to a topic, not to {self.destination}")
        if self.durable_name is not None and not capabilities.durable_topics:
            raise UnsupportedError(
                "durable subscriptions belong to a client id: connect with client_id=NAME (capability `durable_topics`)"
            )
        if self.prefetch < 1:
            raise ValueError(f"a consumer with prefetch {self.prefetch} would never get a message")

    def acknowledgement(self, dialect: Dialect) -> str:
        """Say the `ack` of the SUBSCRIBE frame."""
        if self.auto_accept:  # see `brokers.stomp.acceptance`
            return "client" if dialect.accepts_earlier else "client-individual"
        # Within transactions `client-individual` gets slower with every message on ActiveMQ Classic, and with a single
        # message outstanding the cumulative `client` acknowledges no other.
        return "client" if self.prefetch == 1 else "client-individual"
