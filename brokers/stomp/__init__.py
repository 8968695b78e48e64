"""STOMP brokers: ActiveMQ Classic and Artemis, at `stomp://USER:PASSWORD@HOST:PORT` or `stomp+ssl://…`.

`codec.py` encodes all frames and parses messages and receipts; stomp.py runs the reading thread and parses rare frames.

Needs the extra `stomp`: `pip install soapjms[stomp]`. `docs/brokers.md` describes how the two differ.
"""

from __future__ import annotations

import os
import ssl

from brokers.adapter.endpoints import Reconnect
from brokers.adapter.failover import read_failover
from brokers.connection import DEFAULT_TIMEOUT
from brokers.stomp.connection import StompConnection
from brokers.stomp.dialect import StompDialectName
from brokers.stomp.url import StompOptions, login_of
from brokers.tls import Tls
from brokers.url import Ask, Credentials, are_local

__all__ = ["Credentials", "Reconnect", "StompConnection", "Tls", "connect"]


def connect(
    url: str,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    heartbeat: float | None = None,
    reconnect: Reconnect | bool = True,
    credentials: Credentials | Ask | None = None,
    tls: Tls | ssl.SSLContext | None = None,
    dialect: StompDialectName | None = None,
    client_id: str | None = None,
    dead_letters: str | None = None,
    max_message: int | None = None,
) -> StompConnection:
    """Connect to a STOMP broker, or to the first that answers of several.

    Args:
        url: `stomp://USER:PASSWORD@HOST:PORT`, or `stomp+ssl://` for TLS; user and password are optional, and
            percent-encoded if necessary. The default port is 61613, or 61612 with TLS. See `brokers.adapter.failover`
            for several brokers and reconnect options, and `brokers.url` for parameters; arguments override them.
        timeout: seconds that connecting may take, and later subscribing.
        heartbeat: seconds between heart-beats each way: 10 by default, 0 for none. 1.5 times that in silence is a loss.
        reconnect: how to restore a lost connection; False to leave it lost.
        credentials: user and password, or a function that returns them at every attempt to connect. By default they
            come from the URL or the environment: SOAPJMS_USER, and SOAPJMS_PASSWORD or SOAPJMS_PASSWORD_FILE.
        tls: TLS settings, or an SSL context. By default the system's certificates are trusted, and files come from the
            environment: SOAPJMS_CA_FILE, SOAPJMS_CERT_FILE, SOAPJMS_KEY_FILE, SOAPJMS_KEY_PASSWORD_FILE.
        dialect: `activemq` or `artemis`, for a broker that does not identify itself.
        client_id: owner of the durable subscriptions; only one connection at a time may have it.
        dead_letters: the queue for rejected messages if the broker has none (Artemis), by default `DLQ`; with a `.` at
            the end, as in `DLQ.`, it is a prefix to the name of the message's own destination.
        max_message: maximum octets of the body of a received message, by default 100 MiB; others are rejected unread.

    Raises:
        ConnectionFailedError: no broker, or no known one, answered; TlsError, LoginRefusedError: a broker refused.
        UsageError: `url` has a path, no host, an invalid port, or an unknown parameter.
    """
    given = StompOptions(
        heartbeat=heartbeat,
        credentials=credentials,
        tls=Tls(context=tls) if isinstance(tls, ssl.SSLContext) else tls,
        dialect=dialect,
        client_id=client_id,
        dead_letters=dead_letters,
        max_message=max_message,
    )
    urls, plan = read_failover(url, reconnect)
    connection = StompConnection([login_of(each, os.environ, given) for each in urls], timeout, plan)
    connection.is_local = are_local(urls)
    connection.open()
    return connection
