"""AMQP 1.0 brokers, on Apache Qpid Proton: ActiveMQ Classic, Artemis and others, at `amqp://USER:PASSWORD@HOST:PORT`.

Needs the extra `amqp`: `pip install soapjms[amqp]`. How brokers differ is in `docs/brokers.md`.
"""

from __future__ import annotations

import os
import ssl
from typing import Unpack

from brokers.adapter.endpoints import Reconnect
from brokers.adapter.failover import read_failover
from brokers.amqp.connection import AmqpConnection
from brokers.amqp.url import AmqpKeywords, AmqpOptions, Mechanism, login_of
from brokers.connection import DEFAULT_TIMEOUT
from brokers.tls import Tls
from brokers.url import Credentials, are_local

__all__ = ["AmqpConnection", "Credentials", "Mechanism", "Reconnect", "Tls", "connect"]


def connect(
    url: str,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    reconnect: Reconnect | bool = True,
    tls: Tls | ssl.SSLContext | None = None,
    **options: Unpack[AmqpKeywords],
) -> AmqpConnection:
    """Connect to an AMQP broker, or to the first that answers of several.

    Args:
        url: `amqp://USER:PASSWORD@HOST:PORT`, or `amqps://` for TLS. Several brokers, and options for how to reconnect,
            are written as in `brokers.adapter.failover`, parameters for what follows here as in `brokers.url`.
        timeout: seconds that connecting may take, and later subscribing.
        reconnect: make a lost connection again, and how; False for not at all.
        tls: whom to trust and what to show, or a context of one's own.
        options: see `brokers.amqp.url.AmqpOptions`.

    Raises:
        ConnectionFailedError: nobody answers there; TlsError, LoginRefusedError: or not as we want.
        ValueError: a URL that cannot be, or with a parameter that is not known.
    """
    given = AmqpOptions(tls=Tls(context=tls) if isinstance(tls, ssl.SSLContext) else tls, **options)
    urls, plan = read_failover(url, reconnect)
    connection = AmqpConnection([login_of(each, os.environ, given) for each in urls], timeout, plan)
    connection.is_local = are_local(urls)
    connection.open()
    return connection
