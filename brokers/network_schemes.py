"""The schemes of URLs that lead to a broker over a network: one table of their protocols and usual ports.

Which adapter serves a scheme is in `brokers.schemes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class NetworkScheme(NamedTuple):
    """A scheme of URLs.

    Attributes:
        title: name of the protocol.
        port: the usual port, which a URL may omit.
        family: the scheme of the same protocol without TLS.
        is_secure: whether it means TLS.
    """

    title: str
    port: int
    family: str
    is_secure: bool = False


NETWORK_SCHEMES: Final[Mapping[str, NetworkScheme]] = {
    "stomp": NetworkScheme("STOMP", 61613, "stomp"),
    "stomp+ssl": NetworkScheme("STOMP over TLS", 61612, "stomp", is_secure=True),
    "amqp": NetworkScheme("AMQP 1.0", 5672, "amqp"),
    "amqps": NetworkScheme("AMQP over TLS", 5671, "amqp", is_secure=True),
    "amqp+ws": NetworkScheme("AMQP over WebSocket", 80, "amqp+ws"),
    "amqp+wss": NetworkScheme("AMQP over WebSocket with TLS", 443, "amqp+ws", is_secure=True),
    "smqp": NetworkScheme("SMQP", 720, "smqp"),
    "smqps": NetworkScheme("SMQP over TLS", 720, "smqp", is_secure=True),
}
"""The schemes, in the order in which an error text lists them."""


OTHER_NAMES: Final[Mapping[str, str]] = {
    "amqp+nio": "amqp",
    "amqp+nio+ssl": "amqps",
    "amqp+ssl": "amqps",
    "amqpws": "amqp+ws",
    "amqpwss": "amqp+wss",
    "stomp+nio": "stomp",
    "stomp+nio+ssl": "stomp+ssl",
    "stomps": "stomp+ssl",
}
"""Names of our schemes in the configuration of ActiveMQ and in the URLs of Qpid JMS."""

WEB_SCHEMES: Final[Mapping[str, str]] = {"ws": "amqp+ws", "wss": "amqp+wss", "http": "amqp+ws", "https": "amqp+wss"}
"""Schemes of HTTP and WebSocket, each with ours that has the same usual port and the same TLS."""


def scheme_of(family: str, *, is_secure: bool) -> str:
    """Return the scheme of a family, with or without TLS."""
    return next(name for name, each in NETWORK_SCHEMES.items() if (each.family, each.is_secure) == (family, is_secure))
