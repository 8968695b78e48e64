"""`soapjms broker`: run an SMQP server, and an embedded broker that listens for AMQP."""

from __future__ import annotations

import ssl
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

import click

from brokers.address import bracketed
from brokers.descriptors import raise_limit
from brokers.errors import BrokerError
from brokers.files import check_files
from brokers.smqp.dialect import LENIENT, STRICT
from brokers.smqp.server import Options, Server
from brokers.smqp.server.setup import Setup, SetupError
from brokers.urls import shown
from soapjms.cli.amqplisteners import addresses, amqp_options, listen
from soapjms.cli.ending import ending
from soapjms.cli.status import USAGE
from soapjms.cli.terminal import ANNOUNCED_OPTION, announce

EXAMPLES: Final = {
    "smqp": "localhost:7200",
    "smqps": "localhost:7201",
    "amqp": "localhost:5672",
    "amqps": "localhost:5671",
    "ws": "localhost:8080",
    "wss": "localhost:8443",
}
"""Addresses to begin with, by the option, at ports that need no rights of root."""


def _address(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[tuple[str, int]]:
    return [_one(each, EXAMPLES[param.name or ""]) for each in value]


def _one(text: str, example: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if set("/?#@") & set(host) or not (colon and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.BadParameter(f"an address is HOST:PORT, as {example}; port 0 takes any that is free: {shown(text)}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


FILE: Final = click.Path(dir_okay=False, path_type=Path)
ADDRESS: Final = {"multiple": True, "callback": _address, "metavar": "HOST:PORT"}


@click.command("broker")
@click.option("--smqp", help="Listen there for SMQP; repeatable.", **ADDRESS)  # type: ignore[arg-type]
@click.option("--smqps", help="Listen there for SMQP over TLS; repeatable.", **ADDRESS)  # type: ignore[arg-type]
@click.option("--cert", type=FILE, metavar="FILE", help="PEM, the server's certificate, for TLS.")
@click.option("--key", type=FILE, metavar="FILE", help="PEM, its key, if it is not in the same file.")
@click.option(
    "--store", type=FILE, metavar="FILE", help="Keep everything in this file.  [default: in memory, until it ends]"
)
@click.option("--setup", type=FILE, metavar="FILE", help="TOML: accounts, rights, topics and links to be there.")
@click.option("--context", metavar="NAME", help="The server's own name.  [default: of --setup, else localhost]")
@click.option("--jms/--no-jms", default=True, show_default=True, help="Have the topics that smqp:// URLs need.")
@click.option("--lenient", is_flag=True, help="Read what implementers of the draft's examples would send, too.")
@click.option(
    "--max-topics",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="For SMQP: topics of the server.",
)
@click.option(
    "--max-octets",
    type=click.IntRange(min=1),
    metavar="OCTETS",
    help="Size of the messages of one queue, or of one topic: more are refused.  [default: for AMQP 268435456, 256 MiB;"
    " for SMQP 1073741824, 1 GiB]",
)
@amqp_options(ADDRESS, FILE)
@ANNOUNCED_OPTION
def command(
    smqp: list[tuple[str, int]],
    smqps: list[tuple[str, int]],
    cert: Path | None,
    key: Path | None,
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

    What the SMQP server answered is kept in the file of --store, whatever ends it; the broker for AMQP keeps all in
    memory. They know nothing of each other. Where they listen is written to standard output, a line for each address.

    Exit status: 0 ended as told, 2 usage, or it could not listen or use the store.
    """
    places = {"smqp": smqp, "smqps": smqps, **addresses(amqp)}
    if not any(places.values()):
        raise click.UsageError("say where to listen, as --smqp localhost:7200 or --amqp localhost:5672")
    try:
        setting = Setup() if setup is None else Setup.read(setup)
        tls = _tls([each for each in ("smqps", "amqps", "wss") if places[each]], cert, key)
    except (SetupError, OSError) as error:
        raise click.UsageError(str(error)) from error
    name = context or setting.context or "localhost"
    options = Options(context=name, dialect=LENIENT if lenient else STRICT, max_topics=max_topics)
    options = options if max_octets is None else replace(options, max_octets=max_octets)
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
        click.echo(f"Error: {error}", err=True)
        sys.exit(USAGE)


def _tls(needing: list[str], cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Read the certificate that the options in `needing` need; None where there are none."""
    if not needing:
        return None
    if cert is None:
        raise click.UsageError(f"--{needing[0]} needs a certificate: --cert FILE")
    check_files(cert, key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    return tls


def _tell(name: str, as_json: bool, scheme: str, host: str, port: int) -> None:
    url = f"{scheme}://{bracketed(host)}:{port}"
    announce(f"{name} listens at {url}", {"broker": name, "listening": url} if as_json else None)


def _prepare(server: Server, wanted: Setup, *, jms: bool) -> None:
    if jms:
        server.administer(lambda admin: admin.prepare_for_jms())
    server.administer(wanted.apply)
    for peer in wanted.links:
        server.link(peer)
