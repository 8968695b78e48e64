"""The embedded broker: queues, topics and transactions within one process, in memory.

`connect("embedded:")` and `connect("embedded:NAME")` give a connection to the broker of that name in this process;
it lives while a connection to it is open. `Broker()` makes one that nobody else finds. It keeps what a JMS provider
promises (priority, expiry, redelivery, dead letters, temporary destinations, durable topics, selectors), and does
not survive a crash.

Where to read: `queues.py` orders the messages of a queue and writes headers, `core.py` is the broker under its lock,
`connection.py` puts threads and futures around it, `claims.py` has what only one client may use, `broker.py` is the
way in.
"""

from typing import Unpack
from urllib.parse import unquote

from brokers.connection import DEFAULT_TIMEOUT, Connection
from brokers.embedded.broker import REGISTRY, Broker, BrokerOptions
from brokers.errors import ConnectionFailedError
from brokers.redaction import shown

__all__ = ["Broker", "BrokerOptions", "connect"]


def connect(url: str, *, timeout: float = DEFAULT_TIMEOUT, **options: Unpack[BrokerOptions]) -> Connection:
    """Connect to the broker that `url` names, `embedded:` or `embedded:NAME`, starting it if need be.

    Args:
        url: nothing but the scheme and the name.
        timeout: taken for the sake of the other adapters; this one never waits.
        options: `clock`, `max_deliveries`, `max_messages`, `max_octets`, `max_total_octets` and `max_destinations` of
            the broker, for the call that starts it.

    Raises:
        ConnectionFailedError: the URL has a host, a login, a query or a fragment.
        ValueError: options for a broker that runs already.
    """
    name = url.partition(":")[2]
    if name.startswith("/") or set("?#@") & set(name):
        raise ConnectionFailedError(f"{shown(url)} is not of the form embedded:NAME")
    return REGISTRY.connect(unquote(name), options)
