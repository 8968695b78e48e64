"""How STOMP brokers differ, as one table: a row for a broker, a column for a difference.

STOMP leaves to the broker how destinations are spelled, what a frame says of the JMS message behind it, and how many
messages a subscription may hold. Code asks the row, never for a broker's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from brokers.errors import ConnectionFailedError
from brokers.message import DestinationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one broker does in its own way.

    Attributes:
        prefixes: what precedes a destination's name on the wire, where every connection may use it.
        own_prefixes: what precedes the address of a temporary destination at the connection that made it.
        prefetch_header: the header of SUBSCRIBE that limits how many messages are unacknowledged.
        length_tells_type: a `content-length` makes a BytesMessage, its absence a TextMessage, both ways.
        stable_message_id: a redelivered message keeps its `message-id`.
        gone: what an ERROR says when a destination does not exist.
    """

    prefixes: Mapping[DestinationKind, str]
    own_prefixes: Mapping[DestinationKind, str]
    prefetch_header: str
    length_tells_type: bool
    stable_message_id: bool
    gone: str


ACTIVEMQ_CLASSIC: Final = Dialect(
    prefixes={
        DestinationKind.QUEUE: "/queue/",
        DestinationKind.TOPIC: "/topic/",
        DestinationKind.TEMPORARY_QUEUE: "/remote-temp-queue/",
        DestinationKind.TEMPORARY_TOPIC: "/remote-temp-topic/",
    },
    own_prefixes={
        DestinationKind.TEMPORARY_QUEUE: "/temp-queue/",
        DestinationKind.TEMPORARY_TOPIC: "/temp-topic/",
    },
    prefetch_header="activemq.prefetchSize",
    length_tells_type=True,
    stable_message_id=True,
    gone="DestinationDoesNotExistException",
)

DIALECTS: Final[Mapping[str, Dialect]] = {"ActiveMQ": ACTIVEMQ_CLASSIC}
"""By the name that the broker gives itself in the header `server` of CONNECTED, without its version."""


def dialect_of(server: str) -> Dialect:
    """Choose the dialect of the broker that calls itself `server` (`ActiveMQ/6.1.8`).

    Raises:
        ConnectionFailedError: no row for it; guessing would lose messages.
    """
    try:
        return DIALECTS[server.partition("/")[0]]
    except KeyError:
        known = ", ".join(sorted(DIALECTS))
        raise ConnectionFailedError(f"no STOMP dialect for the broker {server!r}; known are: {known}") from None
