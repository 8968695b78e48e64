"""The URL of one STOMP broker, the environment, and what a program says beside them, read as one login.

A login says where the broker is, who asks, and how the way there is made safe. Secrets are in no repr, log or
pickle. URLs that name several brokers are read in `brokers.adapter.failover`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from brokers.adapter.endpoints import no_connection
from brokers.errors import ConnectionFailedError
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, NAMED, StompDialect
from brokers.tls import Tls
from brokers.url import (
    NOBODY,
    Ask,
    Credentials,
    UrlForm,
    ask_of,
    bracketed,
    octets_of,
    options_of,
    port_of,
    seconds_of,
    split,
    tls_of,
)

UNESCAPED: Final = frozenset("\r\n\0")
"""What CONNECT cannot hold: STOMP leaves its headers unescaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StompLogin:
    """One broker, and how to log in there.

    Attributes:
        host, port: where it listens.
        ask: gives user and password.
        tls: how to make the way safe; None for plain text.
        heartbeat: milliseconds between two heart-beats, each way; 0 for none.
        client_id: what durable subscriptions belong to.
        dialect: how to speak with the broker whatever it calls itself; None to go by what it calls itself.
        version: of STOMP, to ask for.
        dead_letters: the queue for dead letters where the adapter has to put them there; with a `.` at the end it is a
            prefix, and the name of the message's own destination follows. None for the one of the dialect.
        max_message: octets that the body of a message may have which is received.
    """

    host: str
    port: int
    ask: Ask = field(default=lambda: NOBODY, repr=False)
    tls: Tls | None = None
    heartbeat: int
    client_id: str | None = None
    dialect: StompDialect | None = field(default=None, repr=False)
    version: str = ACTIVEMQ_CLASSIC.version
    dead_letters: str | None = None
    max_message: int = MAX_MESSAGE_OCTETS

    def __str__(self) -> str:
        return f"{'stomp' if self.tls is None else 'stomp+ssl'}://{bracketed(self.host)}:{self.port}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a login is not pickled: it may hold a password")

    def speaking(self, version: str) -> StompLogin:
        """Return a login with the same broker in another version of STOMP."""
        return replace(self, version=version)

    def headers(self) -> dict[str, str]:
        """Return the headers of the CONNECT frame; asks for user and password.

        Raises:
            ConnectionFailedError: they cannot be had.
            ValueError: a line break or NUL in the host, client id, user or password.
        """
        who = self._credentials()
        optional = {"client-id": self.client_id, "login": who.user, "passcode": who.password}
        headers = {"accept-version": self.version, "host": self.host}
        headers.update((name, value) for name, value in optional.items() if value is not None)
        if any(not UNESCAPED.isdisjoint(value) for value in headers.values()):
            raise ValueError("host, client id, user and password cannot hold line breaks or NUL")
        return headers

    def prepare(self) -> Callable[[socket.socket], socket.socket]:
        """Return what makes the socket to speak over of a connected one; with TLS before the handshake.

        Raises:
            OSError: a certificate or key that cannot be read.
        """
        return (lambda plain: plain) if self.tls is None else self.tls.prepare(self.host)

    def explain(self, error: OSError) -> ConnectionFailedError:
        """Say what an error on the way to the broker means, and what to do about it."""
        if self.tls is not None and isinstance(error, ssl.SSLError):
            return self.tls.explain(error, f"{self}", self.host)
        is_odd = self.tls is not None and isinstance(error, ConnectionResetError | BrokenPipeError | TimeoutError)
        return no_connection(self, error, "; is it a port for TLS?" * is_odd)

    def _credentials(self) -> Credentials:
        try:
            found = self.ask()
        except OSError as error:
            raise ConnectionFailedError(f"no connection to {self}: no password, {error}") from error
        if not isinstance(found, Credentials):
            raise ConnectionFailedError(
                f"no connection to {self}: what gives the credentials returned {type(found).__name__}, not Credentials"
            )
        return found


FORM: Final = UrlForm(
    title="a stomp URL",
    ports={"stomp": 61613, "stomp+ssl": 61612},
    secure={"stomp+ssl": "stomp"},
    options=("passwordFile", "clientId", "dialect", "deadLetters", "heartbeat", "maxMessage"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StompOptions:
    """What a program says beside the URL; see `brokers.stomp.connect`."""

    heartbeat: float = 10.0
    credentials: Credentials | Ask | None = None
    tls: Tls | None = None
    dialect: str | None = None
    client_id: str | None = None
    dead_letters: str | None = None
    max_message: int = MAX_MESSAGE_OCTETS


def login_of(url: str, environment: Mapping[str, str], given: StompOptions) -> StompLogin:
    """Read the URL of one broker.

    Raises:
        ValueError: a path, a fragment, no host, a port that is no number, a parameter that is not known or makes no
            sense; a user in the URL beside `credentials`.
    """
    parts = split(url, FORM)
    options = options_of(parts, FORM)
    dialect = _dialect_of(given.dialect or options.get("dialect"))
    return StompLogin(
        host=parts.hostname or "",
        port=port_of(parts, FORM),
        ask=ask_of(parts, options, environment, given.credentials),
        tls=tls_of(parts, options, environment, given.tls, FORM),
        heartbeat=round(seconds_of(options, "heartbeat", given.heartbeat, FORM) * 1000),
        client_id=given.client_id or options.get("clientId"),
        dialect=dialect,
        version=(dialect or ACTIVEMQ_CLASSIC).version,
        dead_letters=given.dead_letters or options.get("deadLetters"),
        max_message=octets_of(options, "maxMessage", given.max_message, FORM),
    )


def _dialect_of(name: str | None) -> StompDialect | None:
    if name is None:
        return None
    if name not in NAMED:
        raise ValueError(f"no STOMP dialect is called {name!r}; known are: {', '.join(sorted(NAMED))}")
    return NAMED[name]
