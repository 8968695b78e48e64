"""The URL of one STOMP broker, the environment, and what a program says beside them, as a `Login`.

What a program says wins over the URL, and the URL over the environment. No error message repeats what may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_more
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, NAMED, Dialect
from brokers.stomp.login import DEAD_LETTERS, NOBODY, Ask, Credentials, Login, from_file
from brokers.stomp.tls import Tls

DEFAULT_PORTS: Final = {"stomp": 61613, "stomp+ssl": 61612}
FORM: Final = "write stomp://USER:PASSWORD@HOST:PORT or stomp+ssl://USER:PASSWORD@HOST:PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a program says beside the URL; see `brokers.stomp.connect`."""

    heartbeat: float = 10.0
    credentials: Credentials | Ask | None = None
    tls: Tls | None = None
    dialect: str | None = None
    client_id: str | None = None
    dead_letters: str | None = None


def _flag(value: str) -> bool:
    return {"true": True, "false": False}[value]


TLS_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object], str | None]]] = {
    "caFile": ("ca_file", Path, "BROKERS_CA_FILE"),
    "certFile": ("cert_file", Path, "BROKERS_CERT_FILE"),
    "keyFile": ("key_file", Path, "BROKERS_KEY_FILE"),
    "keyPasswordFile": ("key_password_file", Path, "BROKERS_KEY_PASSWORD_FILE"),
    "serverName": ("server_name", str, None),
    "verify": ("verify", _flag, None),
}
"""Parameters of a stomp+ssl URL: the attribute of `Tls`, how the value is read, and the variable in the environment."""

OPTIONS: Final = ("passwordFile", "clientId", "dialect", "deadLetters", "heartbeat")
"""Parameters of a URL with and without TLS."""


def login_of(url: str, environment: Mapping[str, str], given: Given) -> Login:
    """Read the URL of one broker.

    Raises:
        ValueError: a path, a fragment, no host, a port that is no number, a parameter that is not known or makes no
            sense; a user in the URL beside `credentials`.
    """
    parts = _split(url)
    options = _options_of(parts)
    dialect = _dialect_of(given.dialect or options.get("dialect"))
    return Login(
        host=parts.hostname or "",
        port=_port_of(parts),
        ask=_ask(parts, options, environment, given),
        tls=_tls_of(parts, options, environment, given),
        heartbeat=round(_seconds(options, given) * 1000),
        client_id=given.client_id or options.get("clientId"),
        dialect=dialect,
        version=(dialect or ACTIVEMQ_CLASSIC).version,
        dead_letters=given.dead_letters or options.get("deadLetters") or DEAD_LETTERS,
    )


def _split(url: str) -> SplitResult:
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None:  # outside, or the error would be kept beside ours, and it repeats what is before the host
        raise ValueError(f"the stomp URL cannot be read, look at its host; {FORM}")
    if parts.path not in ("", "/") or parts.fragment:  # not shown: it may be the end of a password
        raise ValueError(
            f"a stomp URL ends with the port or with parameters; {FORM}, "
            "with /, ? and # in user and password percent-encoded"
        )
    if not parts.hostname:
        raise ValueError(f"the stomp URL names no host; {FORM}")
    return parts


def _port_of(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:  # nobody listens there
        raise ValueError(f"the port in the stomp URL is no number from 1 to 65535; {FORM}")
    return port or DEFAULT_PORTS[parts.scheme.lower()]


def _options_of(parts: SplitResult) -> dict[str, str]:
    """Read the parameters; `+` stands for itself, as in a path it may."""
    known = (*OPTIONS, *(TLS_OPTIONS if parts.scheme.lower() == "stomp+ssl" else ()))
    found: dict[str, str] = {}
    for each in filter(None, parts.query.split("&")):
        name, _, value = each.partition("=")
        if name not in known or not value:  # not shown: a ? in a password begins a query too
            raise ValueError(
                f"a stomp URL has a parameter without value, or that is not known; known are: {', '.join(known)}. "
                "A ? in user and password is percent-encoded"
            )
        found[name] = unquote(value)
    return found


def _ask(parts: SplitResult, options: Mapping[str, str], environment: Mapping[str, str], given: Given) -> Ask:
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    if given.credentials is not None:
        if user is not None or password is not None or "passwordFile" in options:
            raise ValueError("credentials are given, and the stomp URL has some too; leave them out there")
        who = given.credentials
        return (lambda: who) if isinstance(who, Credentials) else who
    if "passwordFile" in options:
        if password is not None:
            raise ValueError("the stomp URL has a password and a passwordFile; leave one out")
        return from_file(user if user is not None else environment.get("BROKERS_USER"), Path(options["passwordFile"]))
    if user is None and password is None:
        return _of_environment(environment)
    found = Credentials(user, password)
    return lambda: found


def _of_environment(environment: Mapping[str, str]) -> Ask:
    user, file = environment.get("BROKERS_USER"), environment.get("BROKERS_PASSWORD_FILE")
    if file is not None:
        return from_file(user, Path(file))
    found = Credentials(user, environment.get("BROKERS_PASSWORD"))
    return (lambda: NOBODY) if found == NOBODY else lambda: found


def _tls_of(parts: SplitResult, options: Mapping[str, str], environment: Mapping[str, str], given: Given) -> Tls | None:
    if parts.scheme.lower() != "stomp+ssl":
        if given.tls is not None:
            raise ValueError("tls is given, and the URL begins with stomp://; write stomp+ssl://")
        return None
    found: dict[str, Any] = {}
    for name, (attribute, read, variable) in TLS_OPTIONS.items():
        if name in options:
            try:
                found[attribute] = read(options[name])
            except KeyError:
                raise ValueError(f"{name} in the stomp URL is true or false") from None
        elif given.tls is None and variable is not None and environment.get(variable):
            found[attribute] = read(environment[variable])
    return with_more(given.tls or Tls(), **found)


def _seconds(options: Mapping[str, str], given: Given) -> float:
    """Return the heart-beat; in the URL it is milliseconds, as ActiveMQ's are."""
    value = options.get("heartbeat")
    if value is None:
        return given.heartbeat
    if not (value.isascii() and value.isdigit()):
        raise ValueError("heartbeat in the stomp URL is a number of milliseconds, 0 for none")
    return int(value) / 1000


def _dialect_of(name: str | None) -> Dialect | None:
    if name is None:
        return None
    if name not in NAMED:
        raise ValueError(f"no STOMP dialect is called {name!r}; known are: {', '.join(sorted(NAMED))}")
    return NAMED[name]
