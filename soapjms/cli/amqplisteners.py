"""The part of `soapjms broker` that speaks AMQP: the embedded broker listens for it, over TCP and over WebSocket."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Scheme(NamedTuple):
    """What an option listens for."""

    has_tls: bool
    is_websocket: bool
    text: str


SCHEMES: Final[Mapping[str, Scheme]] = {
    "amqp": Scheme(False, False, "AMQP 1.0"),
    "amqps": Scheme(True, False, "AMQP 1.0 over TLS"),
    "ws": Scheme(False, True, "AMQP 1.0 over WebSocket"),
    "wss": Scheme(True, True, "AMQP 1.0 over WebSocket and TLS"),
}
"""Options of the command, which say where to listen."""

MISSING: Final = "for AMQP install the extra: pip install 'soapjms[amqp]'"


def amqp_options(address: Mapping[str, Any], file: click.Path) -> Callable[[F], F]:
    """Add the options of this part to a command."""

    def add(command: F) -> F:
        for name, scheme in reversed(list(SCHEMES.items())):
            command = click.option(f"--{name}", help=f"Listen there for {scheme.text}; repeatable.", **address)(command)
        text = "For AMQP: a line USER:PASSWORD for each who is let in.  [default: everybody is]"
        return click.option("--users", type=file, metavar="FILE", help=text)(command)

    return add


def listen(
    stack: ExitStack, wanted: Mapping[str, list[tuple[str, int]]], users: Path | None, tls: ssl.SSLContext | None
) -> Iterator[tuple[str, str, int]]:
    """Listen until `stack` ends, all for one embedded broker, and yield scheme, host and port of each.

    Raises:
        OSError: an address cannot be had.
        click.UsageError: the extra is not installed, or the file of users holds something else.
    """
    if not any(wanted.values()):
        return
    if find_spec("proton") is None or find_spec("websockets") is None:
        raise click.UsageError(MISSING)
    from brokers.amqp.login import Binding
    from brokers.amqp.provider import Listener, Options
    from brokers.embedded import Broker

    known = None if users is None else read_users(users)
    broker = Broker()
    for name, scheme in SCHEMES.items():
        options = Options(
            users=known,
            tls=tls if scheme.has_tls else None,
            binding=Binding.LENIENT if scheme.is_websocket else None,
        )
        for host, port in wanted.get(name, ()):
            listener = stack.enter_context(Listener(broker, host, port, options))
            yield listener.scheme, host, listener.port


def read_users(file: Path) -> dict[str, str]:
    """Read users and passwords; empty lines and those that begin with # are left out.

    Raises:
        click.UsageError: a line without a colon, or without a user; it is not shown.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not user or not colon:
            raise click.UsageError(f"line {number} of {file} is not USER:PASSWORD")
        found[user] = password
    return found
