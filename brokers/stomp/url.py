"""The login for one STOMP broker, from its URL, the environment, and the program's arguments.

`brokers.adapter.failover` parses URLs of several brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from brokers.adapter.failover import OPTIONS
from brokers.adapter.login import Login, dialect_named
from brokers.arguments import destination_name
from brokers.errors import UsageError
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, NAMED, StompDialect, StompDialectName
from brokers.tls import Tls
from brokers.url import (
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
"""Characters that CONNECT cannot carry: STOMP does not escape its headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StompLogin(Login):
    """One STOMP broker and the login there.

    Attributes:
        heartbeat: milliseconds between two heart-beats, each way; 0 for none.
        dialect: dialect of the broker; None to choose it by the broker's name.
        version: the version of STOMP to request.
        dead_letters: the queue for dead letters that the adapter has to move itself; with a `.` at the end it is a
            prefix to the name of the message's own destination. None for that of the dialect.
    """

    heartbeat: int
    dialect: StompDialect | None = field(default=None, repr=False)
    version: str = ACTIVEMQ_CLASSIC.version
    dead_letters: str | None = None

    def __str__(self) -> str:
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}"

    @property
    def scheme(self) -> str:
        """The scheme of the URL."""
        return "stomp" if self.tls is None else "stomp+ssl"

    def speaking(self, version: str) -> StompLogin:
        """Return a login for the same broker in another version of STOMP."""
        return replace(self, version=version)

    def headers(self) -> dict[str, str]:
        """Return the headers of the CONNECT frame; asks for user and password.

        Raises:
            ConnectionFailedError: user and password are not available.
            UsageError: host, client id, user or password have a line break or NUL.
        """
        who = self.credentials()
        optional = {"client-id": self.client_id, "login": who.user, "passcode": who.password}
        headers = {"accept-version": self.version, "host": self.host}
        headers.update((name, value) for name, value in optional.items() if value is not None)
        if any(not UNESCAPED.isdisjoint(value) for value in headers.values()):
            raise UsageError("host, client id, user and password must not contain line breaks or NUL")
        return headers


FORM: Final = UrlForm(
    title="a stomp URL",
    schemes=("stomp", "stomp+ssl"),
    options=("passwordFile", "clientId", "dialect", "deadLetters", "heartbeat", "maxMessage"),
    list_options=tuple(OPTIONS),
)


DEFAULT_HEARTBEAT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StompOptions:
    """The options that a program gives besides the URL; see `brokers.stomp.connect`."""

    heartbeat: float | None = None
    credentials: Credentials | Ask | None = None
    tls: Tls | None = None
    dialect: StompDialectName | None = None
    client_id: str | None = None
    dead_letters: str | None = None
    max_message: int | None = None


def login_of(url: str, environment: Mapping[str, str], given: StompOptions) -> StompLogin:
    """Return the login for the URL of one broker.

    Raises:
        UsageError: the URL has a path, a fragment, no host, an invalid port, or an unknown or invalid parameter; or it
            has a user besides `credentials`.
    """
    parts = split(url, FORM)
    options = options_of(parts, FORM)
    dialect = dialect_named(given.dialect or options.get("dialect"), NAMED)
    dead_letters = given.dead_letters or options.get("deadLetters")
    return StompLogin(
        host=parts.hostname or "",
        port=port_of(parts, FORM),
        ask=ask_of(parts, options, environment, given.credentials),
        tls=tls_of(parts, options, environment, given.tls, FORM),
        heartbeat=round(seconds_of(options, "heartbeat", given.heartbeat, DEFAULT_HEARTBEAT_SECONDS, FORM) * 1000),
        client_id=given.client_id or options.get("clientId"),
        dialect=dialect,
        version=(dialect or ACTIVEMQ_CLASSIC).version,
        dead_letters=None if dead_letters is None else destination_name("deadLetters", dead_letters),
        max_message=octets_of(options, "maxMessage", given.max_message, MAX_MESSAGE_OCTETS, FORM),
    )
