"""What a consumer asks for, and whether the broker can do it: the same for every adapter."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.connection import Capabilities, OnProblem, OnRefused
from brokers.errors import UnsupportedError
from brokers.message import Destination, DestinationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The arguments of `Connection.consume`."""

    destination: Destination
    prefetch: int = 1
    selector: str | None = None
    durable_name: str | None = None
    auto_accept: bool = False
    inline: bool = False
    quick: bool = False
    lazy: bool = False
    on_refused: OnRefused | None = None
    on_problem: OnProblem | None = None

    def check(self, capabilities: Capabilities) -> None:
        """See that this can be asked of the broker.

        Raises:
            UnsupportedError: a selector, or a durable name, and the broker has none (through this connection).
            ValueError: a durable name for anything but a topic, or no room for a message.
        """
        broker = capabilities.broker
        if self.selector is not None and not capabilities.selectors:
            raise UnsupportedError(f"{broker} has no selectors (capability `selectors`); ActiveMQ has")
        if self.durable_name is not None and self.destination.kind is not DestinationKind.TOPIC:
            raise ValueError(f"a durable subscription needs a topic, and {self.destination} is none")
        if self.durable_name is not None and not capabilities.durable_topics:
            raise UnsupportedError(
                f"no durable subscriptions at {broker} (capability `durable_topics`): ActiveMQ has them, where they "
                "belong to a client id: connect with client_id=NAME"
            )
        if self.prefetch < 1:
            raise ValueError(f"a consumer with prefetch {self.prefetch} would never get a message")


def temporary_kind(kind: DestinationKind) -> DestinationKind:
    """Return the kind of a temporary destination.

    Raises:
        ValueError: it is not temporary.
    """
    if not kind.is_temporary:
        raise ValueError(f"{kind} is no temporary kind of destination")
    return kind
