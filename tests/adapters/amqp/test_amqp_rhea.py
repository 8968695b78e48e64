"""Somebody else's AMQP 1.0, rhea on Node.js, with our listener: over TCP and over WebSocket, and with our client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from calling_kit import eventually
from places import ROOT

import brokers
from brokers import Destination, Message, MessageType, properties, queue
from brokers.amqp.listener import Action, Listener, Options
from brokers.amqp.listener.client import OFFERED
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker

pytestmark = pytest.mark.peer

MODULES = ROOT / "build/rhea/node_modules"
PATIENCE = 60.0

WAYS = [
    pytest.param(None, None, id="tcp"),
    pytest.param(WebSocketBinding.CS01, "amqp", id="cs01"),
    pytest.param(WebSocketBinding.LENIENT, "AMQPWSB10", id="lenient"),
]


def may(user: str | None, action: Action, destination: Destination) -> bool:
    """Let nobody use what is forbidden."""
    return destination.name != "forbidden"


@contextmanager
def listening(binding: WebSocketBinding | None) -> Iterator[Listener]:
    """Listen, for one user."""
    options = Options(users={"ann": "secret"}, may=may, binding=binding)
    with Listener(Broker(), port=0, options=options) as listener:
        yield listener


def talk(listener: Listener, token: str | None, password: str = "secret") -> dict[str, Any]:
    """Run rhea, and return what it was told."""
    node = shutil.which("node") or pytest.fail("no Node.js: `make node` says how to get it")
    assert MODULES.exists(), "run `make packages`"
    command = [node, str(ROOT / "tests/peers/rhea/talk.js"), "127.0.0.1", str(listener.port), "ann", password]
    done = subprocess.run(
        [*command, *([token] if token else [])],
        env={**os.environ, "NODE_PATH": str(MODULES)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row.pop("what"): row for row in rows}


@pytest.mark.parametrize(("binding", "token"), WAYS)
def test_rhea(binding: WebSocketBinding | None, token: str | None) -> None:
    """AT-03, AT-07, AT-12, AT-14, AT-16, AT-24; WS-01, WS-11: login, each outcome, request and reply."""
    with listening(binding) as listener:
        told = talk(listener, token)
    assert told == {
        "open": {"offers": list(OFFERED), "product": "brokers-embedded"},
        "relay orders": {"outcome": "accepted"},
        "relay topic://news": {"outcome": "accepted"},
        "relay temp-queue://nobody": {"outcome": "rejected", "condition": "amqp:not-found", "tag": told_tag(told, 2)},
        "relay forbidden": {"outcome": "rejected", "condition": "amqp:unauthorized-access", "tag": told_tag(told, 3)},
        "relay undefined": {"outcome": "rejected", "condition": "amqp:precondition-failed", "tag": told_tag(told, 4)},
        "topic": {"body": "x", "to": "topic://news"},
        "settled": {"condition": "amqp:not-found", "tag": "the-tag"},
        "direct": {"condition": "amqp:unauthorized-access", "tag": None},
        "reply": {"body": "hello!", "correlation_id": 7},
        "closed": {},
    }


def told_tag(told: dict[str, Any], number: int) -> str:
    """Return rhea's own tag of a delivery, which counts them."""
    return str(list(told.values())[1 + number].get("tag"))


@pytest.mark.parametrize(("binding", "token"), WAYS)
def test_a_wrong_password(binding: WebSocketBinding | None, token: str | None) -> None:
    """WS-16: the login is refused, and that is all."""
    with listening(binding) as listener:
        told = talk(listener, token, password="wrong")
    assert list(told) == ["open"]
    assert told["open"]["refused"]


def test_our_client_beside_it() -> None:
    """A message of our client's, with types and a reply destination, is answered by rhea's service."""
    with listening(None) as listener:
        url = listener.url.replace("://", "://ann:secret@")
        with brokers.connect(url) as connection:
            got: list[brokers.Delivery] = []
            mine = connection.temporary()
            consumer = connection.consume(mine, got.append)
            request = Message(
                message_type=MessageType.TEXT,
                body="ours",
                destination=queue("orders"),
                reply_to=mine,
                correlation_id="c",
                properties=properties({"isFault": False}),
            )
            connection.send(request).result(PATIENCE)
            talk(listener, None)  # its service takes ours first: it came first
            eventually(lambda: got, "it was answered")
            consumer.close()
    assert [delivery.message.body for delivery in got] == ["ours!"]
