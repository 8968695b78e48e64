"""Who may use what: brokers.amqp.listener.login, and the options of `soapjms broker` that say it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amqp_raw import PATIENCE
from cli_kit import run
from places import ROOT
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as open_websocket
from websockets.typing import Origin, Subprotocol

import brokers
from brokers import Destination, DestinationKind, Message, MessageType, SendFailedError, queue, topic
from brokers.amqp.listener import Action, Rights

RIGHTS = """
# who   may      where
ann     send     queue:orders.*
bob     receive  queue:orders.*
*       *        topic:news
"""


@pytest.mark.parametrize(
    ("user", "action", "destination", "may"),
    [
        ("ann", Action.SEND, queue("orders.new"), True),
        ("ann", Action.RECEIVE, queue("orders.new"), False),
        ("ann", Action.SEND, queue("orders"), False),
        ("ann", Action.SEND, topic("orders.new"), False),
        ("bob", Action.RECEIVE, queue("orders.new"), True),
        ("eve", Action.SEND, queue("orders.new"), False),
        (None, Action.SEND, queue("orders.new"), False),
        (None, Action.RECEIVE, topic("news"), True),
        ("*", Action.SEND, queue("orders.new"), False),
        (None, Action.SEND, Destination(DestinationKind.TEMPORARY_QUEUE, "t"), True),
    ],
)
def test_rights(user: str | None, action: Action, destination: Destination, may: bool) -> None:
    """What some line gives is allowed, and no more; temporary destinations are for whom they were told."""
    assert Rights.read(RIGHTS)(user, action, destination) is may


@pytest.mark.parametrize("line", ["ann", "ann send", "ann read queue:q", "ann send orders", "ann SEND queue:q"])
def test_no_rights(line: str) -> None:
    """A line that is none is told by its number: a mistake gives nobody more than was meant, nor less."""
    with pytest.raises(ValueError, match=r"line 2 must be USER send\|receive\|\* DESTINATION"):
        Rights.read(f"* * topic:news\n{line}\n")


def text(to: Destination, body: str = "x") -> Message:
    """Make a message."""
    return Message(message_type=MessageType.TEXT, body=body, destination=to)


@contextmanager
def command(*arguments: str | Path) -> Iterator[str]:
    """Run `soapjms broker`, and yield where it listens."""
    whole = [sys.executable, "-m", "soapjms.cli", "broker", *map(str, arguments)]
    with subprocess.Popen(whole, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split(" listens at ")[1].strip()
        finally:
            process.terminate()
        assert process.wait(PATIENCE) == 0


def test_the_command_gives_rights_and_limits(tmp_path: Path) -> None:
    """`--rights` says who may what, `--max-message` how large a message is, `--max-connections` how many clients."""
    users, rights = tmp_path / "users", tmp_path / "rights"
    users.write_text("ann:a\nbob:b\n")
    rights.write_text(RIGHTS)
    limits = ("--max-message", "1000", "--max-connections", "2")
    with command("--amqp", "127.0.0.1:0", "--users", users, "--rights", rights, *limits) as url:
        as_ann, as_bob = (url.replace("://", f"://{each}@") for each in ("ann:a", "bob:b"))
        with brokers.connect(as_ann, reconnect=False) as ann, brokers.connect(as_bob, reconnect=False) as bob:
            ann.send(text(queue("orders.new"))).result(PATIENCE)
            with pytest.raises(SendFailedError, match="bob may not send at queue:orders"):
                bob.send(text(queue("orders.new"))).result(PATIENCE)
            with pytest.raises(brokers.BrokerError, match="ann may not receive at queue:orders"):
                ann.consume(queue("orders.new"), print)
            bob.send(text(ann.temporary())).result(PATIENCE)
            with pytest.raises(brokers.ConnectionFailedError):
                brokers.connect(as_bob, reconnect=False, timeout=PATIENCE)
            with pytest.raises(SendFailedError, match="takes messages of 1000 octets"):
                ann.send(text(queue("orders.new"), "x" * 2000)).result(PATIENCE)


def test_the_command_over_websocket() -> None:
    """`--path`, `--origin` and `--binding` say who finds it, from where, and in which edition."""
    given = ("--path", "/amqp", "--origin", "https://good.example", "--binding", "csprd01")
    with command("--ws", "127.0.0.1:0", *given) as url:
        with brokers.connect(f"{url}/amqp?binding=csprd01", reconnect=False) as connection:
            connection.send(text(queue("q"))).result(PATIENCE)
        enter = partial(enter_at, url.removeprefix("amqp+"))
        for path, origin, token, status in (
            ("/", "https://good.example", "AMQPWSB10", 404),
            ("/amqp", "https://bad.example", "AMQPWSB10", 403),
            ("/amqp", "https://good.example", "amqp", 400),
        ):
            with pytest.raises(InvalidStatus, match=f"{status}"):
                enter(path, origin, token).__enter__()
        with enter("/amqp", "https://good.example", "AMQPWSB10"):
            pass


def enter_at(place: str, path: str, origin: str, token: str) -> Any:
    """Open a WebSocket as a page of a site does."""
    return open_websocket(f"{place}{path}", origin=Origin(origin), subprotocols=[Subprotocol(token)])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--rights", "{file}"], "--rights is for AMQP"),
        (["--amqp", "localhost:0", "--rights", "{file}"], "line 1 must be USER"),
        (["--amqp", "localhost:0", "--path", "/amqp"], "--path is for WebSocket"),
        (["--ws", "localhost:0", "--path", "amqp"], "must be like /amqp"),
        (["--ws", "localhost:0", "--origin", "https://a.example/"], "must be like https://example.org"),
        (["--ws", "localhost:0", "--binding", "draft"], "csprd01"),
    ],
)
def test_the_command_refuses(arguments: list[str], why: str, tmp_path: Path) -> None:
    """Mistakes are told at once."""
    file = tmp_path / "rights"
    file.write_text("nonsense\n")
    done = run("broker", *(each.format(file=file) for each in arguments))
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.split())
