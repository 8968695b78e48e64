"""STOMP 1.2 brokers, on stomp.py: `stomp://USER:PASSWORD@HOST:PORT`. ActiveMQ Classic is known.

Needs the extra `stomp`: `pip install soapjms[stomp]`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

from brokers.connection import DEFAULT_TIMEOUT
from brokers.stomp.connection import StompConnection
from brokers.stomp.link import Login

__all__ = ["StompConnection", "connect"]

DEFAULT_PORT: Final = 61613
DEFAULT_HEARTBEAT: Final = 10.0


def connect(url: str, *, timeout: float = DEFAULT_TIMEOUT, heartbeat: float = DEFAULT_HEARTBEAT) -> StompConnection:
    """Connect to a STOMP broker.

    Args:
        url: `stomp://USER:PASSWORD@HOST:PORT`; user and password may be left out, and are percent-encoded where they
            hold what a URL gives a meaning. The port is 61613 unless given.
        timeout: seconds that connecting may take, and later subscribing.
        heartbeat: seconds between two signs of life, each way; 0 for none. The connection counts as lost when the
            broker gave none for one and a half times as long.

    Raises:
        ConnectionFailedError: nobody answers there, the credentials were refused, or it is a broker that is not known.
        ValueError: a URL with a path or query, or without a host.
    """
    connection = StompConnection(login_of(url, heartbeat), timeout)
    connection.open()
    return connection


def login_of(url: str, heartbeat: float) -> Login:
    """Read the URL; no error message repeats the password.

    Raises:
        ValueError: a path, query or fragment, no host, or a port that is no number.
    """
    parts = urlsplit(url)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"a stomp URL ends with the port, but there is {parts.path!r} and {parts.query!r}")
    if not parts.hostname:
        raise ValueError("the stomp URL names no host")
    return Login(
        host=parts.hostname,
        port=parts.port or DEFAULT_PORT,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        heartbeat=round(heartbeat * 1000),
    )
