"""`soapjms broker`: run an SMQP server, and an embedded broker that listens for AMQP over TCP and WebSocket.

The servers themselves are in `brokers`; this module has their options, their files of users and rights, and the output.
"""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple

import click

from brokers.errors import BrokerError, UsageError
from brokers.listeners.descriptors import raise_limit
from brokers.message import Destination, DestinationKind
from brokers.redaction import shown
from brokers.smqp.protocol.dialect import LENIENT, STRICT
from brokers.smqp.server import Options, Server
from brokers.smqp.server.setup import Setup
from brokers.tls import server_context
from brokers.url import bracketed
from soapjms.cli.commands import AT_LEAST_ONE, SECONDS, DestinationName, F, grouped
from soapjms.cli.paths import CERTIFICATE, KEY, InputFile, OutputFile, error_text
from soapjms.cli.status import USAGE_STATUS
from soapjms.cli.terminal import ANNOUNCED_OPTION, announce
from soapjms.serving.runner import ending


class Scheme(NamedTuple):
    """The protocol that an option listens for."""

    has_tls: bool
    is_websocket: bool
    text: str


SCHEMES: Final[Mapping[str, Scheme]] = {
    "amqp": Scheme(False, False, "AMQP 1.0"),
    "amqps": Scheme(True, False, "AMQP 1.0 over TLS"),
    "ws": Scheme(False, True, "AMQP 1.0 over WebSocket"),
    "wss": Scheme(True, True, "AMQP 1.0 over WebSocket and TLS"),
}
"""Protocols by the option of the command that says where to listen for them."""

LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "max_connections": ("NUMBER", "maximum clients at a time, for each listening address.  [default: 1000]"),
    "max_logins": (
        "NUMBER",
        "maximum of these for one user or, without a user, from one address.  [default: half of --max-connections]",
    ),
    "max_message": ("OCTETS", "maximum size of a message.  [default: 104857600, 100 MiB]"),
    "transaction_idle": (
        "SECONDS",
        "roll back a transaction that has been idle for this long.  [default: 300]",
    ),
    "max_transactions": (
        "OCTETS",
        "maximum size of all messages in one client's open transactions.  [default: 134217728, 128 MiB]",
    ),
    "max_client_destinations": ("NUMBER", "maximum destinations in use that one client has made.  [default: 10000]"),
    "max_messages": ("NUMBER", "maximum messages in one queue, or for one subscriber to a topic.  [default: 100000]"),
    "max_total_octets": (
        "OCTETS",
        "maximum size of all messages together, counting 512 more for each.  [default: 1073741824, 1 GiB]",
    ),
    "max_destinations": ("NUMBER", "maximum destinations in use, by all clients together.  [default: 100000]"),
}
"""Options of the command that limit clients, by their names in `Options` and `Broker`: unit and meaning."""

OF_BROKER: Final = frozenset({"max_messages", "max_total_octets", "max_destinations"})
"""The limits that apply to all listeners together."""

WEBSOCKET: Final[Mapping[str, tuple[str, str, str, str, str]]] = {
    "paths": (
        "--path", "PATH", r"/[^\s?#]*", "/amqp",
        "a path that clients may request, such as /amqp; repeatable.  [default: any]",
    ),
    "hosts": (
        "--served-as", "NAME", r"[^\s/:@]+", "broker.example.org",
        "a name that clients use for this host, such as broker.example.org; repeatable. Some send it as their origin."
        "  [default: that of --ws or --wss]",
    ),
    "origins": (
        "--origin", "URL", r"https?://[^\s/]+", "https://example.org",
        "a site whose pages may connect, such as https://example.org; repeatable.  [default: none]",
    ),
}  # fmt: skip
"""Options of the command for WebSocket, by their names in `Options`: name, unit, pattern, example, meaning."""

DESTINATIONS: Final[Mapping[str, str]] = {
    "queue": "a queue that exists; repeatable. No others are made then.  [default: any queue that is used]",
    "topic": "a topic that exists; likewise.  [default: any topic that is used]",
}
"""Options of the command that name destinations, by kind."""

MISSING: Final = "for AMQP install the extra: pip install 'soapjms[amqp]'"

EXAMPLES: Final = {
    "smqp": "localhost:7200",
    "smqps": "localhost:7201",
    "amqp": "localhost:5672",
    "amqps": "localhost:5671",
    "ws": "localhost:8080",
    "wss": "localhost:8443",
}
"""Example addresses by option, with ports that need no root privileges."""


def _address(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[tuple[str, int]]:
    return [_one(each, EXAMPLES[param.name or ""]) for each in value]


def _one(text: str, example: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if set("/?#@") & set(host) or not (colon and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.BadParameter(
            f"an address must be HOST:PORT, such as {example} (port 0 takes any free one), got {shown(text)}"
        )
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


ADDRESS: Final[Mapping[str, Any]] = {"multiple": True, "callback": _address, "metavar": "HOST:PORT"}


def _like(
    pattern: str, example: str, context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        if re.fullmatch(pattern, value) is None:
            raise click.BadParameter(f"the value must be like {example}, got {value!r}")
    return values


def _amqp(option: str, meaning: str, **rest: Any) -> Callable[[F], F]:
    return click.option(option, help=f"For AMQP: {meaning}", **rest)


amqp_options: Final = grouped(
    _amqp(
        "--users",
        "a line USER:PASSWORD for each user.  [default: everybody is let in, at addresses of this machine only]",
        type=InputFile("a file with users", Path), metavar="FILE",
    ),
    _amqp(
        "--rights",
        "a line `USER send|receive|* queue:NAME` for each right, `*` as in file names; all else is forbidden."
        "  [default: everybody may do everything]",
        type=InputFile("a file with rights", Path), metavar="FILE",
    ),
    _amqp("--anonymous", "with --users, let in clients without a user, too.", is_flag=True),
    _amqp("--open", "let everybody in without --users, also at addresses that other machines reach.", is_flag=True),
    _amqp(
        "--fixed",
        "make no queue or topic on use: clients that ask for one not named by --queue or --topic are refused,"
        " as the anonymous terminus specification says.",
        is_flag=True,
    ),
    *(
        _amqp(f"--{name}", meaning, multiple=True, type=DestinationName(name), metavar="NAME")
        for name, meaning in DESTINATIONS.items()
    ),
    *(
        click.option(
            option, name, multiple=True, metavar=unit, callback=partial(_like, pattern, example),
            help=f"For WebSocket: {meaning}",
        )
        for name, (option, unit, pattern, example, meaning) in WEBSOCKET.items()
    ),
    click.option(
        "--binding", type=click.Choice(["csprd01", "cs01", "lenient"]),
        help="For WebSocket: edition of the specification.  [default: lenient]",
    ),
    *(
        _amqp(
            f"--{name.replace('_', '-')}", meaning, metavar=unit,
            type=SECONDS if unit == "SECONDS" else AT_LEAST_ONE,
        )
        for name, (unit, meaning) in LIMITS.items()
    ),
    *(
        click.option(f"--{name}", help=f"Listen there for {scheme.text}; repeatable.", **ADDRESS)
        for name, scheme in SCHEMES.items()
    ),
)  # fmt: skip


def addresses(given: Mapping[str, Any]) -> dict[str, list[tuple[str, int]]]:
    """Return the addresses to listen at, by scheme, from the options of the command.

    Raises:
        click.UsageError: an option needs an AMQP or WebSocket address that is not given, or contradicts another.
    """
    wanted: dict[str, list[tuple[str, int]]] = {name: given[name] for name in SCHEMES}
    idle = [name for name in ("users", "rights", *LIMITS) if given[name] is not None]
    idle += [name for name in (*DESTINATIONS, "fixed", "anonymous", "open") if given[name]]
    if idle and not any(wanted.values()):
        raise click.UsageError(
            f"--{idle[0].replace('_', '-')} is for AMQP: give an address to listen at, such as --amqp localhost:5672"
        )
    if given["anonymous"] and given["users"] is None:
        raise click.UsageError("--anonymous needs --users: without it everybody is let in")
    if given["open"] and given["users"] is not None:
        raise click.UsageError("--open must not be used with --users; use --anonymous to let in clients without a user")
    idle = [option for name, (option, *_) in WEBSOCKET.items() if given[name]]
    idle += ["--binding"] if given["binding"] else []
    if idle and not any(wanted[name] for name, scheme in SCHEMES.items() if scheme.is_websocket):
        raise click.UsageError(f"{idle[0]} is for WebSocket: give an address to listen at, such as --ws localhost:8080")
    return wanted


def listen(
    stack: ExitStack, given: Mapping[str, Any], tls: ssl.SSLContext | None, max_octets: int | None
) -> Iterator[tuple[str, str, int]]:
    """Listen for one embedded broker until `stack` ends, and yield scheme, host and port of each listener.

    Args:
        stack: ends the listeners.
        given: the options for AMQP by name; limits that are None default to those of `Options` and `Broker`.
        tls: the certificate, if one is needed.
        max_octets: maximum size of the messages of one queue; None for the default of `Broker`.

    Raises:
        OSError: it is not possible to listen at an address.
        ValueError: other machines reach an address, and neither --users nor --open is given.
        click.UsageError: the extra is not installed, or a file of users or rights is malformed.
    """
    wanted, users = addresses(given), given["users"]
    if not any(wanted.values()):
        return
    if find_spec("proton") is None or find_spec("websockets") is None:
        raise click.UsageError(MISSING)
    from brokers.amqp.listener import Listener, Options
    from brokers.amqp.url import WebSocketBinding
    from brokers.embedded import Broker

    known = None if users is None else read_users(users)
    binding = WebSocketBinding(given["binding"] or WebSocketBinding.LENIENT)
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
            anonymous=True if given["anonymous"] or given["open"] else None,
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
    """Read the rights of users on destinations.

    Raises:
        click.UsageError: a line is not a right.
    """
    from brokers.amqp.listener import Rights

    try:
        return Rights.read(file.read_text("utf-8-sig"))
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}") from error


def read_users(file: Path) -> dict[str, str]:
    """Read users and passwords; empty lines and lines that begin with # are skipped.

    Raises:
        click.UsageError: the file is not UTF-8, or a line has no colon, no user or that of another line; the error does
            not show the line.
    """
    found: dict[str, str] = {}
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} must be text in UTF-8, got an octet that is not, at {error.start}") from None
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not user or not colon:
            raise click.UsageError(f"line {number} of {file} must be USER:PASSWORD")
        if user in found:
            raise click.UsageError(f"line {number} of {file} must be for another user than those before")
        found[user] = password
    return found


@click.command("broker")
@click.option("--smqp", help="Listen there for SMQP; repeatable.", **ADDRESS)
@click.option("--smqps", help="Listen there for SMQP over TLS; repeatable.", **ADDRESS)
@click.option("--cert", type=CERTIFICATE, metavar="FILE", help="The server's certificate, in PEM, for TLS.")
@click.option("--key", type=KEY, metavar="FILE", help="The certificate's key, in PEM, if it is in another file.")
@click.option(
    "--store",
    type=OutputFile("a file for the store", Path),
    metavar="FILE",
    help="For SMQP: keep everything in this file.  [default: in memory only]",
)
@click.option(
    "--setup",
    type=InputFile("a TOML file with the set-up", Path),
    metavar="FILE",
    help="For SMQP: TOML with accounts, rights, topics and links.",
)
@click.option("--context", metavar="NAME", help="The server's own name.  [default: that of --setup, else localhost]")
@click.option("--jms/--no-jms", default=True, show_default=True, help="Create the topics that smqp:// URLs need.")
@click.option("--lenient", is_flag=True, help="Also accept what clients written after the draft's examples would send.")
@click.option(
    "--max-topics",
    type=AT_LEAST_ONE,
    default=100_000,
    show_default=True,
    help="For SMQP: maximum topics of the server.",
)
@click.option(
    "--max-octets",
    type=AT_LEAST_ONE,
    metavar="OCTETS",
    help="Maximum size of all messages of one queue or topic; more are refused.  [default: for AMQP 268435456, 256 MiB;"
    " for SMQP 1073741824, 1 GiB]",
)
@amqp_options
@ANNOUNCED_OPTION
def command(
    smqp: list[tuple[str, int]],
    smqps: list[tuple[str, int]],
    cert: str | None,
    key: str | None,
    store: Path | None,
    setup: Path | None,
    context: str | None,
    jms: bool,
    lenient: bool,
    max_topics: int,
    max_octets: int | None,
    as_json: bool,
    **amqp: Any,
) -> None:
    """Run an SMQP server, a broker for AMQP, or both, until SIGTERM or Ctrl-C.

    The SMQP server keeps all that it has confirmed in the file of --store, however it ends; the broker for AMQP keeps
    everything in memory. The two do not share messages. Each listening address is printed on a line of its own.

    Exit status: 0 ended as told, 2 usage, or it could not listen or use the store.
    """
    places = {"smqp": smqp, "smqps": smqps, **addresses(amqp)}
    if not any(places.values()):
        raise click.UsageError("give an address to listen at, such as --smqp localhost:7200 or --amqp localhost:5672")
    _check_smqp(smqp or smqps, store=store, setup=setup, context=context)
    try:
        setting = Setup() if setup is None else Setup.read(setup)
        tls = _tls([each for each in ("smqps", "amqps", "wss") if places[each]], cert, key)
        name = next((each for each in (context, setting.context) if each is not None), "localhost")
        options = _smqp_options(max_octets, context=name, dialect=LENIENT if lenient else STRICT, max_topics=max_topics)
    except (UsageError, OSError) as error:
        raise click.UsageError(error_text(error)) from error
    ended = Event()
    raise_limit()
    try:
        with ending(ended), ExitStack() as stack:
            if smqp or smqps:
                server = stack.enter_context(Server(":memory:" if store is None else store, options))
                _prepare(server, setting, jms=jms)
                for address in smqp:
                    _tell(name, as_json, "smqp", *server.listen(*address))
                for address in smqps:
                    _tell(name, as_json, "smqps", *server.listen(*address, tls=tls))
            for place in listen(stack, amqp, tls, max_octets):
                _tell(name, as_json, *place)
            ended.wait()
    except (BrokerError, OSError, ValueError) as error:
        click.echo(f"Error: {error_text(error)}", err=True)
        sys.exit(USAGE_STATUS)


def _smqp_options(max_octets: int | None, **given: Any) -> Options:
    """Return the options of the SMQP server; `max_octets` is None for its default."""
    return Options(**given) if max_octets is None else Options(**given, max_octets=max_octets)


def _check_smqp(places: list[tuple[str, int]], **given: object) -> None:
    """Refuse options for SMQP if there is no address for it."""
    for name, value in given.items():
        if value is not None and not places:
            raise click.UsageError(f"--{name} is for SMQP: give an address to listen at, such as --smqp localhost:7200")


def _tls(needing: list[str], cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Read the certificate that the options in `needing` need; return None if there are no such options."""
    if key is not None and cert is None:
        raise click.UsageError("--key must come with its certificate: --cert FILE")
    if not needing:
        if cert is not None:
            raise click.UsageError("--cert is for TLS: give an address to listen at, such as --amqps localhost:5671")
        return None
    if cert is None:
        raise click.UsageError(f"--{needing[0]} needs a certificate: --cert FILE")
    return server_context(cert, key)


def _tell(name: str, as_json: bool, scheme: str, host: str, port: int) -> None:
    url = f"{scheme}://{bracketed(host)}:{port}"
    announce(f"{name} listens at {url}", {"broker": name, "listening": url}, as_json=as_json)


def _prepare(server: Server, wanted: Setup, *, jms: bool) -> None:
    if jms:
        server.administer(lambda admin: admin.prepare_for_jms())
    server.administer(wanted.apply)
    if not server.administer(lambda admin: admin.accounts()):
        click.echo(
            "Warning: the SMQP server has no account, so nobody can log in; --setup FILE adds accounts", err=True
        )
    for peer in wanted.links:
        server.link(peer)
