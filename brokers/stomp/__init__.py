"""STOMP brokers, on stomp.py: ActiveMQ Classic and Artemis, at `stomp://USER:PASSWORD@HOST:PORT` or `stomp+ssl://…`.

Needs the extra `stomp`: `pip install soapjms[stomp]`. How the two differ is in `docs/brokers.md`.
"""

from __future__ import annotations

import os
import ssl
from typing import Final

from brokers.adapter.endpoints import Reconnect
from brokers.adapter.failover import read_failover
from brokers.connection import DEFAULT_TIMEOUT
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.stomp.connection import StompConnection
from brokers.stomp.url import StompOptions, login_of
from brokers.tls import Tls
from brokers.url import Ask, Credentials, are_local

__all__ = ["Credentials", "Reconnect", "StompConnection", "Tls", "connect"]

DEFAULT_HEARTBEAT: Final = 10.0


def connect(
    url: str,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    heartbeat: float = DEFAULT_HEARTBEAT,
    reconnect: Reconnect | bool = True,
    credentials: Credentials | Ask | None = None,
    tls: Tls | ssl.SSLContext | None = None,
    dialect: str | None = None,
    client_id: str | None = None,
    dead_letters: str | None = None,
    max_message: int = MAX_MESSAGE_OCTETS,
) -> StompConnection:
    """Connect to a STOMP broker, or to the first that answers of several.

    Args:
        url: `stomp://USER:PASSWORD@HOST:PORT`, or `stomp+ssl://` for TLS; user and password may be left out, and are
            percent-encoded where need be. The port is 61613 unless given, with TLS 61612. Several brokers, and how to
            reconnect, are written as in `brokers.adapter.failover`; parameters: `brokers.url`.
        timeout: seconds that connecting may take, and later subscribing.
        heartbeat: seconds between signs of life, each way, 0 for none; without any for 1.5 times as long it is lost.
        reconnect: make a lost connection again, and how; False for not at all.
        credentials: user and password, or what is called for them at every attempt to connect. Else, and without any in
            the URL, the environment is asked: BROKERS_USER, and BROKERS_PASSWORD or BROKERS_PASSWORD_FILE.
        tls: whom to trust and what to show, or a context of one's own. Without, the certificates of the system count,
            and the environment: BROKERS_CA_FILE, BROKERS_CERT_FILE, BROKERS_KEY_FILE, BROKERS_KEY_PASSWORD_FILE.
        dialect: `activemq` or `artemis`, for a broker that does not say which it is.
        client_id: what durable subscriptions belong to; only one connection at a time may have it.
        dead_letters: the queue for rejected messages where the broker has none (Artemis), `DLQ` unless given; `DLQ.` is
            a prefix to the name of the message's own destination.
        max_message: octets that the body of a received message may have; a larger one is rejected unread.

    Raises:
        ConnectionFailedError: nobody, or no known broker, answers; TlsError, LoginRefusedError: or not as we want.
        ValueError: a URL with a path, without a host, with a port that there is not, or a parameter that is not known.
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
