"""What a program sees in its log: our loggers, each event once, and nothing of the libraries underneath."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import stomp
from real_brokers import start_activemq
from waiting import eventually

import brokers
from brokers import BrokerError, ConnectionState, Message, MessageType, queue
from brokers.amqp.listener import Listener, Options
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker

PATIENCE = 30.0
LIBRARIES = ("stomp", "proton", "websockets")
BEGIN = re.compile(r"created thread |listener stomp://[0-9.:]+ has no method on_connecting$")
"""What stomp.py logs at DEBUG on the thread that connects: no octet that was sent or received."""
GREETING = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6\n\n\0"


def of_libraries(caplog: pytest.LogCaptureFixture, level: int) -> list[tuple[str, str]]:
    """Return what was logged, at this level and above, by others than us."""
    return [
        (each.name, each.getMessage())
        for each in caplog.records
        if each.name.startswith(LIBRARIES) and each.levelno >= level
    ]


@contextmanager
def one_answer(words: bytes) -> Iterator[int]:
    """Answer the greeting of one client, and leave."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as client:
                client.recv(4096)
                client.sendall(words)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    "words",
    [
        b"",
        GREETING,
        GREETING + b"WHAT\n\n\0",
        GREETING + b"ERROR\nmessage:no more\n\nbody\0",
        GREETING + b"MESSAGE\n\0\0",
        b"ERROR\nmessage:wrong password\n\n\0",
        b"\x00\x00\x01\x51\x01ActiveMQ",
    ],
)
def test_stomp(words: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of stomp.py, even at DEBUG, but that a thread began; a loss is told once, by us."""
    caplog.set_level(logging.DEBUG)
    with (
        one_answer(words) as port,
        suppress(BrokerError),
        brokers.connect(f"stomp://me:s3cret@127.0.0.1:{port}", timeout=PATIENCE, reconnect=False) as connection,
    ):
        eventually(lambda: connection.state is not ConnectionState.CONNECTED)
    assert [said for _, said in of_libraries(caplog, logging.DEBUG) if not BEGIN.match(said)] == []
    assert "s3cret" not in caplog.text
    lost = [each for each in caplog.records if "was lost" in each.getMessage()]
    assert len(lost) == words.startswith(GREETING)


def test_a_program_with_a_log_of_stomp_py(caplog: pytest.LogCaptureFixture) -> None:
    """What a program's own use of stomp.py logs is left alone."""
    caplog.set_level(logging.DEBUG)
    with one_answer(b"") as port, suppress(stomp.exception.ConnectFailedException):
        stomp.Connection([("127.0.0.1", port)], reconnect_attempts_max=1).connect(wait=True)
    eventually(lambda: "io loop ended" in caplog.text)  # the last that its thread logs
    assert of_libraries(caplog, logging.DEBUG)


def test_websocket(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of websockets, on either side, even at DEBUG, whose lines would hold the login."""
    caplog.set_level(logging.DEBUG)
    with Listener(Broker(), port=0, options=Options(binding=WebSocketBinding.LENIENT)) as listener:
        with brokers.connect(f"amqp+ws://localhost:{listener.port}", timeout=PATIENCE):
            pass
        for words in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"junk\r\n\r\n"):
            with socket.create_connection(("localhost", listener.port), PATIENCE) as client:
                client.sendall(words)
                while client.recv(4096):
                    pass
    assert of_libraries(caplog, logging.DEBUG) == []


@pytest.mark.broker
def test_a_broker_that_dies(caplog: pytest.LogCaptureFixture) -> None:
    """Over each protocol the loss is one warning of ours; the libraries log nothing at INFO and above."""
    caplog.set_level(logging.INFO)
    with start_activemq() as broker:
        urls = [broker.stomp_url, broker.amqp_url, broker.ws_url]
        connections = [brokers.connect(url, timeout=PATIENCE) for url in urls]
        for number, each in enumerate(connections):
            each.consume(queue(f"logs.{number}"), lambda delivery: delivery.accept())
            message = Message(message_type=MessageType.TEXT, body="x", destination=queue(f"logs.{number}"))
            each.send(message).result(PATIENCE)
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
        broker.kill()
        for each in connections:
            eventually(lambda each=each: each.state is ConnectionState.LOST)  # type: ignore[misc]
        for each in connections:
            each.close(1)
    assert of_libraries(caplog, logging.INFO) == []
    lost = [each.getMessage() for each in caplog.records if "was lost" in each.getMessage()]
    assert len(lost) == len(urls), lost
    assert all(each.levelno == logging.WARNING for each in caplog.records if "was lost" in each.getMessage())
