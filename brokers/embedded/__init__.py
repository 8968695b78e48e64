"""The embedded broker: queues, topics and transactions within one process, in memory.

`connect("embedded:")` and `connect("embedded:NAME")` return a connection to the broker of that name in this process;
the broker lives while a connection to it is open. `Broker()` creates one that no URL names. An embedded broker has the
features of a JMS provider (priority, expiry, redelivery, dead letters, temporary destinations, durable topics,
selectors), but does not survive a crash.

Where to read: `queues.py` orders the messages of a queue and writes headers, `core.py` is the broker under its lock,
`lock.py` is that lock, which wakes subscriptions, `connection.py` adds threads and futures, `claims.py` tracks what
only one client may use, and `broker.py` is the entry point.
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
        url: only the scheme and the name.
        timeout: ignored; this adapter never waits, but the others do.
        options: `clock`, `max_deliveries`, `max_messages`, `max_octets`, `max_total_octets` and `max_destinations` of
            the broker; only for the call that starts it.

    Raises:
        ConnectionFailedError: the URL has a host, a login, a query or a fragment.
        UsageError: there are options, but the broker is already running.
    """
    name, question, _ = url.partition(":")[2].partition("?")
    if name.startswith("/") or set("#@") & set(name):
        form = "the URL must be of the form embedded:NAME, without host, login and options"
        raise ConnectionFailedError(f"{form}; got {shown(url)}")
    if question:
        raise ConnectionFailedError(
            f"an embedded broker takes no parameters: write {shown(url)}, without the ? and what follows it"
        )
    return REGISTRY.connect(unquote(name), options)
