"""AMQP 1.0 brokers, on Apache Qpid Proton: ActiveMQ Classic, Artemis and others, at `amqp://USER:PASSWORD@HOST:PORT`.

Needs the extra `amqp`: `pip install soapjms[amqp]`. `docs/brokers.md` describes how brokers differ.
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
        url: `amqp://USER:PASSWORD@HOST:PORT`, or `amqps://` for TLS. See `brokers.adapter.failover` for several brokers
            and reconnect options, and `brokers.url` for parameters; arguments override them.
        timeout: seconds that connecting may take, and later subscribing.
        reconnect: how to restore a lost connection; False to leave it lost.
        tls: TLS settings, or an SSL context.
        options: see `brokers.amqp.url.AmqpOptions`.

    Raises:
        ConnectionFailedError: no broker answered; its subclasses TlsError and LoginRefusedError: one refused.
        UsageError: `url` is invalid or has an unknown parameter.
    """
    given = AmqpOptions(tls=Tls(context=tls) if isinstance(tls, ssl.SSLContext) else tls, **options)
    urls, plan = read_failover(url, reconnect)
    connection = AmqpConnection([login_of(each, os.environ, given) for each in urls], timeout, plan)
    connection.is_local = are_local(urls)
    connection.open()
    return connection
