"""The part of `soapjms broker` that speaks AMQP: the embedded broker listens for it, over TCP and over WebSocket."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from brokers.files import check_files
from brokers.message import Destination, DestinationKind
from soapjms.cli.numbers import SECONDS

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

LIMITS: Final[Mapping[str, tuple[click.ParamType[Any], str, str]]] = {
    "max_connections": (
        click.IntRange(min=1),
        "NUMBER",
        "For AMQP: clients at once, of each address that is listened at.  [default: 1000]",
    ),
    "max_logins": (
        click.IntRange(min=1),
        "NUMBER",
        "For AMQP: of these, of one user; of clients without a user, from one address."
        "  [default: half of --max-connections]",
    ),
    "max_message": (
        click.IntRange(min=1),
        "OCTETS",
        "For AMQP: size of a message.  [default: 104857600, 100 MiB]",
    ),
    "transaction_idle": (
        SECONDS,
        "SECONDS",
        "For AMQP: roll a transaction back in which nothing was done for so long.  [default: 300]",
    ),
    "max_transactions": (
        click.IntRange(min=1),
        "OCTETS",
        "For AMQP: size of all messages in one client's open transactions.  [default: 134217728, 128 MiB]",
    ),
    "max_client_destinations": (
        click.IntRange(min=1),
        "NUMBER",
        "For AMQP: destinations in use that one client may have made.  [default: 10000]",
    ),
    "max_messages": (
        click.IntRange(min=1),
        "NUMBER",
        "For AMQP: messages of one queue, or of one subscriber to a topic.  [default: 100000]",
    ),
    "max_total_octets": (
        click.IntRange(min=1),
        "OCTETS",
        "For AMQP: size of all messages together, with 512 more for each.  [default: 1073741824, 1 GiB]",
    ),
    "max_destinations": (
        click.IntRange(min=1),
        "NUMBER",
        "For AMQP: destinations in use, of all clients together.  [default: 100000]",
    ),
}
"""Options of the command that limit clients, as `Options` and `Broker` call them: values, unit, meaning."""

OF_BROKER: Final = frozenset({"max_messages", "max_total_octets", "max_destinations"})
"""Those of them that hold for all listeners together."""


def _like(
    pattern: str, example: str, context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        if re.fullmatch(pattern, value) is None:
            raise click.BadParameter(f"it is to be as {example}, not {value!r}")
    return values


WEBSOCKET: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "paths": (
        "--path",
        {
            "metavar": "PATH",
            "multiple": True,
            "callback": partial(_like, r"/[^\s?#]*", "/amqp"),
            "help": "For WebSocket: what may be asked for, as /amqp; repeatable.  [default: anything]",
        },
    ),
    "hosts": (
        "--served-as",
        {
            "metavar": "NAME",
            "multiple": True,
            "callback": partial(_like, r"[^\s/:@]+", "broker.example.org"),
            "help": "For WebSocket: a name that clients know this host by, as broker.example.org; repeatable. Some send"
            " it as their origin.  [default: that of --ws or --wss]",
        },
    ),
    "origins": (
        "--origin",
        {
            "metavar": "URL",
            "multiple": True,
            "callback": partial(_like, r"https?://[^\s/]+", "https://example.org"),
            "help": "For WebSocket: a site whose pages may connect, as https://example.org; repeatable."
            "  [default: none]",
        },
    ),
    "binding": (
        "--binding",
        {
            "type": click.Choice(["csprd01", "cs01", "lenient"]),
            "help": "For WebSocket: edition of the specification.  [default: lenient]",
        },
    ),
}
"""Options of the command that are about WebSocket, as `Options` calls them: how they are called here, and read."""

DESTINATIONS: Final[Mapping[str, str]] = {
    "queue": "For AMQP: a queue that there is; repeatable. Then no others are made.  [default: any that is used]",
    "topic": "For AMQP: a topic that there is; likewise.  [default: any that is used]",
}
"""Options of the command that name destinations, by their kinds."""

MISSING: Final = "for AMQP install the extra: pip install 'soapjms[amqp]'"


def amqp_options(address: Mapping[str, Any], file: click.Path) -> Callable[[F], F]:
    """Add the options of this part to a command."""

    def add(command: F) -> F:
        for name, scheme in reversed(list(SCHEMES.items())):
            command = click.option(f"--{name}", help=f"Listen there for {scheme.text}; repeatable.", **address)(command)
        for name, (kind, unit, meaning) in reversed(list(LIMITS.items())):
            command = click.option(f"--{name.replace('_', '-')}", type=kind, metavar=unit, help=meaning)(command)
        for name, (option, how) in reversed(list(WEBSOCKET.items())):
            command = click.option(option, name, **how)(command)
        for name, meaning in reversed(list(DESTINATIONS.items())):
            command = click.option(f"--{name}", multiple=True, metavar="NAME", help=meaning)(command)
        text = "For AMQP: make no queue or topic because it is used: who asks for one that is not named by --queue or"
        text += " --topic is refused, as the anonymous terminus has it."
        command = click.option("--fixed", is_flag=True, help=text)(command)
        text = "For AMQP: let everybody in without --users, also at addresses that other machines reach."
        command = click.option("--open", "is_open", is_flag=True, help=text)(command)
        text = "For AMQP: let in clients without a user, too, where there are --users."
        command = click.option("--anonymous", is_flag=True, help=text)(command)
        text = "For AMQP: a line `USER send|receive|* queue:NAME` for each right, `*` as in names of files; nobody may"
        text += " anything else.  [default: everybody may everything]"
        command = click.option("--rights", type=file, metavar="FILE", help=text)(command)
        text = "For AMQP: a line USER:PASSWORD for each who is let in.  [default: everybody is, at addresses"
        text += " of this machine alone]"
        return click.option("--users", type=file, metavar="FILE", help=text)(command)

    return add


def addresses(given: Mapping[str, Any]) -> dict[str, list[tuple[str, int]]]:
    """Return where each scheme is to be listened for, of what the command was given.

    Raises:
        click.UsageError: an option that is about AMQP only, and no address for it.
    """
    wanted: dict[str, list[tuple[str, int]]] = {name: given[name] for name in SCHEMES}
    idle = [name for name in ("users", "rights", *LIMITS) if given[name] is not None]
    idle += [name for name in (*DESTINATIONS, "fixed", "anonymous") if given[name]]
    idle += ["open"] if given["is_open"] else []
    if idle and not any(wanted.values()):
        raise click.UsageError(
            f"--{idle[0].replace('_', '-')} is for AMQP: say where to listen, as --amqp localhost:5672"
        )
    if given["anonymous"] and given["users"] is None:
        raise click.UsageError("--anonymous goes with --users: without them everybody is let in")
    if given["is_open"] and given["users"] is not None:
        raise click.UsageError("--open goes without --users; with them --anonymous lets in who gives no user")
    idle = [option for name, (option, _) in WEBSOCKET.items() if given[name]]
    if idle and not any(wanted[name] for name, scheme in SCHEMES.items() if scheme.is_websocket):
        raise click.UsageError(f"{idle[0]} is for WebSocket: say where to listen, as --ws localhost:8080")
    return wanted


def listen(
    stack: ExitStack, given: Mapping[str, Any], tls: ssl.SSLContext | None, max_octets: int | None
) -> Iterator[tuple[str, str, int]]:
    """Listen until `stack` ends, all for one embedded broker, and yield scheme, host and port of each.

    Args:
        stack: what ends the listeners.
        given: the options of this part by their names; limits that are None are those of `Options` and `Broker`.
        tls: the certificate, where one is needed.
        max_octets: of the messages of one queue, which is not of this part only; None as above.

    Raises:
        OSError: an address cannot be had.
        ValueError: other machines reach it, and there are neither --users nor --open.
        click.UsageError: the extra is not installed, or a file of users or rights holds something else.
    """
    wanted, users = addresses(given), given["users"]
    if not any(wanted.values()):
        return
    if find_spec("proton") is None or find_spec("websockets") is None:
        raise click.UsageError(MISSING)
    from brokers.amqp.login import Binding
    from brokers.amqp.provider import Listener, Options
    from brokers.embedded import Broker

    known = None if users is None else read_users(users)
    binding = Binding(given["binding"] or Binding.LENIENT)
    limits = {name: given[name] for name in LIMITS if given[name] is not None}
    of_broker = {name: limits.pop(name) for name in limits.keys() & OF_BROKER}
    if max_octets is not None:
        of_broker["max_octets"] = max_octets
    broker = Broker(**of_broker)
    may = None if given["rights"] is None else read_rights(given["rights"])
    named = frozenset(Destination(DestinationKind(kind), name) for kind in DESTINATIONS for name in given[kind])
    for name, scheme in SCHEMES.items():
        options = Options(
            users=known,
            may=may,
            anonymous=True if given["anonymous"] or given["is_open"] else None,
            destinations=named if named or given["fixed"] else None,
            **limits,
            paths=frozenset(given["paths"]) or None,
            origins=frozenset(given["origins"]),
            hosts=frozenset(given["hosts"]),
            tls=tls if scheme.has_tls else None,
            binding=binding if scheme.is_websocket else None,
        )
        for host, port in wanted.get(name, ()):
            listener = stack.enter_context(Listener(broker, host, port, options))
            yield listener.scheme, host, listener.port


def read_rights(file: Path) -> Callable[..., bool]:
    """Read who may use which destination.

    Raises:
        click.UsageError: a line that is no right.
    """
    from brokers.amqp.provider import Rights

    check_files(file)
    try:
        return Rights.read(file.read_text("utf-8"))
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}") from error


def read_users(file: Path) -> dict[str, str]:
    """Read users and passwords; empty lines and those that begin with # are left out.

    Raises:
        click.UsageError: a line without a colon, or without a user; it is not shown.
    """
    check_files(file)
    found: dict[str, str] = {}
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not user or not colon:
            raise click.UsageError(f"line {number} of {file} is not USER:PASSWORD")
        found[user] = password
    return found
