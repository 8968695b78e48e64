"""STOMP 1.2 brokers, on stomp.py: `stomp://USER:PASSWORD@HOST:PORT`, or several. ActiveMQ Classic is known.

Needs the extra `stomp`: `pip install soapjms[stomp]`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from brokers.connection import DEFAULT_TIMEOUT
from brokers.stomp.connection import StompConnection
from brokers.stomp.failover import read_failover
from brokers.stomp.login import Login
from brokers.stomp.reconnect import Reconnect

__all__ = ["Reconnect", "StompConnection", "connect"]

DEFAULT_PORT: Final = 61613
DEFAULT_HEARTBEAT: Final = 10.0
FORM: Final = "write stomp://USER:PASSWORD@HOST:PORT"


def connect(
    url: str,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    heartbeat: float = DEFAULT_HEARTBEAT,
    reconnect: Reconnect | bool = True,
) -> StompConnection:
    """Connect to a STOMP broker, or to the first that answers of several.

    Args:
        url: `stomp://USER:PASSWORD@HOST:PORT`; user and password may be left out, and are percent-encoded where they
            hold what a URL gives a meaning. The port is 61613 unless given. Several brokers, and options for how to
            reconnect, are written as in `brokers.stomp.failover`.
        timeout: seconds that connecting may take, and later subscribing.
        heartbeat: seconds between two signs of life, each way; 0 for none. The connection counts as lost when the
            broker gave none for one and a half times as long.
        reconnect: make a lost connection again, and how; False for not at all.

    Raises:
        ConnectionFailedError: nobody answers there, the credentials were refused, or it is a broker that is not known.
        ValueError: a URL with a path or query, without a host, or with a port that there is not.
    """
    urls, plan = read_failover(url, reconnect)
    connection = StompConnection([login_of(each, heartbeat) for each in urls], timeout, plan)
    connection.open()
    return connection


def login_of(url: str, heartbeat: float) -> Login:
    """Read the URL; no error message repeats the password.

    Raises:
        ValueError: a path, query or fragment, no host, or a port that is no number.
    """
    parts = urlsplit(url)
    if parts.path not in ("", "/") or parts.query or parts.fragment:  # not shown: it may be the end of a password
        raise ValueError(
            f"a stomp URL ends with the port; {FORM}, with /, ? and # in user and password percent-encoded"
        )
    if not parts.hostname:
        raise ValueError(f"the stomp URL names no host; {FORM}")
    return Login(
        host=parts.hostname,
        port=_port_of(parts),
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        heartbeat=round(heartbeat * 1000),
    )


def _port_of(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:  # nobody listens there
        raise ValueError(f"the port in the stomp URL is no number from 1 to 65535; {FORM}")
    return port or DEFAULT_PORT
