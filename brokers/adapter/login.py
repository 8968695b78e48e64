"""One broker and how to log in there: what adapters have in common, whatever they speak.

Secrets are in no repr, log or pickle.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from brokers.adapter.endpoints import no_connection
from brokers.errors import ConnectionFailedError
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.tls import Tls
from brokers.url import NOBODY, Ask, Credentials

DialectT = TypeVar("DialectT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """One broker, and how to log in there.

    Attributes:
        host, port: where it listens.
        ask: gives user and password.
        tls: how to make the way safe; None for plain text.
        client_id: what durable subscriptions belong to.
        max_message: octets that the body of a message may have which is received.
    """

    host: str
    port: int
    ask: Ask = field(default=lambda: NOBODY, repr=False)
    tls: Tls | None = None
    client_id: str | None = None
    max_message: int = MAX_MESSAGE_OCTETS

    def __reduce__(self) -> NoReturn:
        raise TypeError("a login is not pickled: it may hold a password")

    @property
    def virtual_host(self) -> str:
        """What the broker is told that it is called, and its certificate has to say."""
        return self.host

    def prepare(self) -> Callable[[socket.socket], socket.socket]:
        """Return what makes the socket to speak over of a connected one; with TLS before the handshake.

        Raises:
            OSError: a certificate or key that cannot be read.
        """
        return (lambda plain: plain) if self.tls is None else self.tls.prepare(self.virtual_host)

    def explain(self, error: OSError) -> ConnectionFailedError:
        """Say what an error on the way to the broker means, and what to do about it."""
        if self.tls is not None and isinstance(error, ssl.SSLError):
            return self.tls.explain(error, f"{self}", self.virtual_host)
        is_odd = self.tls is not None and isinstance(error, ConnectionResetError | BrokenPipeError | TimeoutError)
        return no_connection(self, error, "; is it a port for TLS?" * is_odd)

    def credentials(self) -> Credentials:
        """Ask for user and password.

        Raises:
            ConnectionFailedError: they cannot be had.
        """
        try:
            found = self.ask()
        except OSError as error:
            raise ConnectionFailedError(f"no connection to {self}: no password, {error}") from error
        if not isinstance(found, Credentials):
            raise ConnectionFailedError(
                f"no connection to {self}: what gives the credentials returned {type(found).__name__}, not Credentials"
            )
        return found


def dialect_named(name: str | None, known: Mapping[str, DialectT], protocol: str) -> DialectT | None:
    """Return the dialect of a name; None for none.

    Raises:
        ValueError: no dialect is called so.
    """
    if name is not None and name not in known:
        raise ValueError(f"no {protocol} dialect is called {name!r}; known are: {', '.join(sorted(known))}")
    return None if name is None else known[name]
