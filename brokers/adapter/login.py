"""The address of one broker and the login there, shared by the adapters of all protocols.

No secret appears in a repr, log or pickle.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

from brokers.adapter.endpoints import no_connection
from brokers.errors import ConnectionFailedError, UsageError
from brokers.files import reason_of
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.tls import Tls, TlsFileError
from brokers.url import NOBODY, Ask, Credentials

LOGIN_TEXT_FORM: Final = "must be text in UTF-8 without NUL"
"""What texts of a login must be, for errors, which must not repeat them."""

DialectT = TypeVar("DialectT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """One broker and the login there.

    Attributes:
        host, port: address of the broker.
        ask: returns user and password.
        tls: TLS settings; None for plain text.
        client_id: owner of the durable subscriptions.
        max_message: maximum size of the body of a received message, in octets.

    Raises:
        UsageError: host or client id cannot be encoded.
    """

    host: str
    port: int
    ask: Ask = field(default=lambda: NOBODY, repr=False)
    tls: Tls | None = None
    client_id: str | None = None
    max_message: int = MAX_MESSAGE_OCTETS

    def __post_init__(self) -> None:
        if not can_be_sent(self.host, self.client_id):
            raise UsageError(f"the login cannot be encoded: host and client id {LOGIN_TEXT_FORM}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a login cannot be pickled: it may hold a password")

    @property
    def host_name(self) -> str:
        """The host name that is sent to the broker and that its certificate must have."""
        return self.host

    def prepare(self) -> Callable[[socket.socket], socket.socket]:
        """Return a function that wraps a connected socket for TLS, before the handshake, or leaves it as it is.

        Raises:
            OSError: a certificate or key cannot be read.
        """
        return (lambda plain: plain) if self.tls is None else self.tls.prepare(self.host_name)

    def explain(self, error: OSError) -> ConnectionFailedError:
        """Return the error that explains why the broker could not be reached, with advice."""
        if self.tls is not None and isinstance(error, ssl.SSLError | TlsFileError):
            return self.tls.explain(error, f"{self}", self.host_name)
        is_odd = self.tls is not None and isinstance(error, ConnectionResetError | BrokenPipeError)
        return no_connection(self, error, "; is it a port for TLS?" * is_odd)

    def credentials(self) -> Credentials:
        """Ask for user and password; see `credentials_of`."""
        return credentials_of(self.ask, self)


def credentials_of(ask: Ask, broker: object) -> Credentials:
    """Ask for user and password.

    Args:
        ask: returns them.
        broker: the broker in error texts.

    Raises:
        ConnectionFailedError: `ask` failed, or returned something else.
        UsageError: user or password cannot be encoded; the text repeats neither.
    """
    try:
        found = ask()
    except OSError as error:
        raise ConnectionFailedError(f"no connection to {broker}: {reason_of(error)}") from error
    if not isinstance(found, Credentials):
        raise ConnectionFailedError(
            f"no connection to {broker}: the source of the login must return Credentials, got {type(found).__name__}"
        )
    if not can_be_sent(found.user, found.password):
        raise UsageError(f"the login cannot be encoded: user and password {LOGIN_TEXT_FORM}")
    return found


def can_be_sent(*texts: object) -> bool:
    """Return whether each is None, or text that every protocol can carry in a login.

    Python's own error has the text as an attribute, so it must not get out, not even as the context of ours.
    """
    try:
        return all(each is None or (isinstance(each, str) and b"\0" not in each.encode()) for each in texts)
    except UnicodeEncodeError:
        return False


def dialect_named(name: str | None, known: Mapping[str, DialectT]) -> DialectT | None:
    """Return the dialect called `name`, or None if `name` is None.

    Raises:
        UsageError: there is no dialect of that name.
    """
    if name is not None and name not in known:
        raise UsageError(f"dialect must be one of {', '.join(sorted(known))}, got {name!r}")
    return None if name is None else known[name]
