"""brokers.amqp: URLs that lead to the port of something else, which is told at once where that says anything."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trustme
from amqp_raw import PATIENCE

import brokers
from brokers import ConnectionFailedError, TlsError
from brokers.amqp.listener import Listener, Options
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker


@contextmanager
def answering(answer: bytes, *, stays: bool = True) -> Iterator[int]:
    """Answer the first octets of one client with these, and then keep the connection, or not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = threading.Event()

        def serve() -> None:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.recv(4096)
                client.sendall(answer)
                if stays:
                    left.wait(PATIENCE)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        left.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


OPENWIRE = b"\x00\x00\x01\x51\x01ActiveMQ\x00\x00\x00\x0c"
ALERT = b"\x15\x03\x03\x00\x02\x02\x50"

STRANGERS = [
    (
        "amqp",
        b"HTTP/1.1 400 Bad Request\r\n\r\n<html>",
        r"HTTP \('HTTP/1\.1 400 Bad Request'\), not AMQP 1.0; write amqp\+ws://127",
    ),
    ("amqp", ALERT, r"speaks TLS, not AMQP 1.0; write amqps://127\.0\.0\.1:\d+ for AMQP over TLS"),
    ("amqp+ws", ALERT, r"speaks TLS, not AMQP over WebSocket; write amqp\+wss://127\.0\.0\.1:\d+ for"),
    (
        "amqp",
        b"ERROR\nmessage:Unknown STOMP action\n\n\0",
        r"speaks STOMP \('ERROR'\), not AMQP 1.0; write stomp://127",
    ),
    ("amqp+ws", b"ERROR\nmessage:Unknown STOMP action\n\n\0", r"speaks STOMP .*; write stomp://127"),
    (
        "amqp",
        OPENWIRE,
        r"speaks OpenWire, .* not AMQP 1.0; write amqp://127\.0\.0\.1:5672, the usual port for AMQP 1\.0$",
    ),
    ("amqp", b"AMQP\x00\x00\x09\x01", "speaks AMQP 0-9-1 or older, not AMQP 1"),
    ("amqp", AMQP_HEADER, "speaks AMQP without a login, not AMQP 1.0; write mechanism=none"),
    (
        "amqp+ws",
        SASL_HEADER,
        r"speaks AMQP with a login, not AMQP over WebSocket; write amqp://127\.0\.0\.1:\d+ for AMQP 1.0$",
    ),
    (
        "amqp",
        b"SSH-2.0-OpenSSH_9\r\n",
        r"speaks SSH \('SSH-2\.0-OpenSSH_9'\), not AMQP 1.0; write amqp://127\.0\.0\.1:5672, the usual port",
    ),
]


@pytest.mark.parametrize(("scheme", "answer", "why"), STRANGERS)
@pytest.mark.parametrize("stays", [True, False])
def test_what_answers_in_its_own_way(scheme: str, answer: bytes, why: str, stays: bool) -> None:
    """The error shows what it said, says what that is, and what to write; long before the time-out."""
    with answering(answer, stays=stays) as port, pytest.raises(ConnectionFailedError, match=why):
        brokers.connect(f"{scheme}://127.0.0.1:{port}", timeout=PATIENCE)


def test_a_broker_that_wants_a_login() -> None:
    """Who left out the login is told so."""
    with (
        answering(SASL_HEADER + bytes(20)) as port,
        pytest.raises(ConnectionFailedError, match="leave out mechanism=none"),
    ):
        brokers.connect(f"amqp://127.0.0.1:{port}?mechanism=none", timeout=PATIENCE)


SCHEMES = ["amqp", "amqp+ws", "amqps", "amqp+wss"]


def test_who_ends_the_connection_without_a_word() -> None:
    """What the port may be for is named."""
    with answering(b"", stays=False) as port, pytest.raises(ConnectionFailedError, match=r"but for one of .* amqps://"):
        brokers.connect(f"amqp://127.0.0.1:{port}", timeout=PATIENCE)
    with answering(b"", stays=False) as port, pytest.raises(TlsError, match="is it the port for TLS"):
        brokers.connect(f"amqps://127.0.0.1:{port}", timeout=PATIENCE)


def test_the_ports_of_the_listener() -> None:
    """Each kind of them tells the clients of each other kind at once; what they spoke is no time-out of anybody's."""
    made = trustme.CA()
    server, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    made.issue_cert("localhost").configure_cert(server)
    made.configure_trust(trusting)
    broker, told = Broker(), {}
    for right in SCHEMES:
        context = server if right in ("amqps", "amqp+wss") else None
        binding = WebSocketBinding.LENIENT if "ws" in right else None
        options = Options(tls=context, binding=binding, patience=10 * PATIENCE)
        with Listener(broker, port=0, options=options) as listener:
            for wrong in SCHEMES:
                more: dict[str, Any] = {"tls": trusting} if wrong in ("amqps", "amqp+wss") else {}
                url = f"{wrong}://localhost:{listener.port}"
                try:
                    with brokers.connect(url, timeout=PATIENCE, **more):
                        told[right, wrong] = "let in"
                except ConnectionFailedError as error:
                    told[right, wrong] = str(error)
    assert {pair for pair, said in told.items() if said == "let in"} == {(each, each) for each in SCHEMES}
    for right, wrong in [("amqp", "amqp+ws"), ("amqp+ws", "amqp"), ("amqps", "amqp+wss"), ("amqp+wss", "amqps")]:
        assert f"write {right}://localhost" in told[right, wrong]
    for right, wrong in [("amqps", "amqp"), ("amqps", "amqp+ws"), ("amqp+wss", "amqp"), ("amqp+wss", "amqp+ws")]:
        assert f" {right}://" in told[right, wrong] or " speaks TLS, " in told[right, wrong]
    for right, wrong in [("amqp", "amqps"), ("amqp", "amqp+wss"), ("amqp+ws", "amqps"), ("amqp+ws", "amqp+wss")]:
        assert f"write {right}://localhost" in told[right, wrong] or "port for TLS?" in told[right, wrong]
