"""The URL of one STOMP broker, the environment, and what a program says beside them, as a `Login`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from brokers.address import Form, ask_of, octets_of, options_of, port_of, seconds_of, split, tls_of
from brokers.credentials import Ask, Credentials
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, NAMED, Dialect
from brokers.stomp.login import Login
from brokers.tls import Tls

FORM: Final = Form(
    title="a stomp URL",
    ports={"stomp": 61613, "stomp+ssl": 61612},
    secure={"stomp+ssl": "stomp"},
    options=("passwordFile", "clientId", "dialect", "deadLetters", "heartbeat", "maxMessage"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a program says beside the URL; see `brokers.stomp.connect`."""

    heartbeat: float = 10.0
    credentials: Credentials | Ask | None = None
    tls: Tls | None = None
    dialect: str | None = None
    client_id: str | None = None
    dead_letters: str | None = None
    max_message: int = MAX_MESSAGE_OCTETS


def login_of(url: str, environment: Mapping[str, str], given: Given) -> Login:
    """Read the URL of one broker.

    Raises:
        ValueError: a path, a fragment, no host, a port that is no number, a parameter that is not known or makes no
            sense; a user in the URL beside `credentials`.
    """
    parts = split(url, FORM)
    options = options_of(parts, FORM)
    dialect = _dialect_of(given.dialect or options.get("dialect"))
    return Login(
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


def _dialect_of(name: str | None) -> Dialect | None:
    if name is None:
        return None
    if name not in NAMED:
        raise ValueError(f"no STOMP dialect is called {name!r}; known are: {', '.join(sorted(NAMED))}")
    return NAMED[name]
