"""brokers.amqp.listener: what clients take of files, threads, memory and time has limits, and others are served on."""

from __future__ import annotations

import socket
import ssl
import tracemalloc
from contextlib import suppress
from select import select

import pytest
import trustme
from amqp_raw import ACCEPTED, PATIENCE, REJECTED, Raw, frame
from amqp_soak import paused
from broker_contract_kit import text
from limits_kit import files_for, no_more_threads
from proton import Message, Terminus, uint
from waiting import eventually

from brokers import BrokerError, queue, topic
from brokers.amqp.listener import Listener, Options
from brokers.amqp.sasl import AMQP_HEADER
from brokers.amqp.sections import MAX_SECTIONS
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker


def is_turned_away(listener: Listener) -> None:
    """Connect, and find the connection closed."""
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as client:
        assert client.recv(1) == b""


def test_no_more_files(caplog: pytest.LogCaptureFixture) -> None:
    """A client for which there are no files is turned away; once there are some again the next one is served."""
    with Listener(Broker(), port=0) as listener:
        with files_for(2):  # the client's socket and the listener's, but none to wait for it
            is_turned_away(listener)
        with Raw(listener.port) as client:
            client.receive("q")
    assert "is turned away: [Errno 24]" in caplog.text


def test_no_more_threads(caplog: pytest.LogCaptureFixture) -> None:
    """A client for which there is no thread is turned away, and forgotten; the next one is served."""
    with Listener(Broker(), port=0) as listener:
        with no_more_threads():
            is_turned_away(listener)
        eventually(lambda: listener.guests == 0, "it is forgotten")
        with Raw(listener.port) as client:
            client.receive("q")
    assert "is turned away: can't start new thread" in caplog.text


def test_no_thread_for_a_consumer() -> None:
    """A link needs none; a consumer of the embedded broker is refused, and nothing is left of it."""
    broker = Broker()
    with Listener(broker, port=0) as listener, Raw(listener.port) as client, broker.connect() as connection:
        with no_more_threads():
            client.receive("q", credit=1)
            connection.send(text(queue("q"), "a"))
            client.until(lambda: client.received)
            with pytest.raises(BrokerError, match="cannot consume from topic:t"):
                connection.consume(topic("t"), print)
        assert topic("t") not in broker.destinations()
        connection.consume(topic("t"), print).close()


# Time and memory


MASKED_PING = b"\x89\xfd" + bytes(4) + b"x" * 125
PONG = b"\x8a\x7d" + b"x" * 125
PINGS = 300_000
"""Some forty MiB, more than the sockets of both sides hold."""


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_client_that_pings_and_does_not_read(has_tls: bool) -> None:
    """It is not listened to until it reads; then each ping is answered."""
    made = trustme.CA()
    server, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    made.issue_cert("localhost").configure_cert(server)
    made.configure_trust(trusting)
    options = Options(binding=WebSocketBinding.CS01, tls=server if has_tls else None, patience=TEST)  # it never logs in
    with (
        Listener(Broker(), port=0, options=options) as listener,
        socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") if has_tls else plain as client,
    ):
        upgrade(client)
        client.setblocking(False)
        to_send, to_read = memoryview(MASKED_PING * PINGS), len(PONG) * PINGS
        while to_send and select([], [client], [], STALLED)[1]:
            to_send = sent(client, to_send)
        assert to_send
        while to_read:
            assert any(select([client], [client] if to_send else [], [], PATIENCE))
            to_send = sent(client, to_send)
            to_read -= read(client)


def sent(client: socket.socket, octets: memoryview) -> memoryview:
    """Send as much as there is room for; return the rest."""
    with suppress(BlockingIOError, ssl.SSLWantWriteError):
        while octets:
            octets = octets[client.send(octets[: 1 << 16]) :]
    return octets


def read(client: socket.socket) -> int:
    """Count the octets that are there to be read; fail at the end of the connection."""
    count = 0
    with suppress(BlockingIOError, ssl.SSLWantReadError):
        while True:
            octets = client.recv(1 << 16)
            assert octets
            count += len(octets)
    return count


STALLED = 3.0
"""Seconds in which all would have been taken by who takes all."""

TEST = 600.0
"""Seconds, more than a test may take."""


def upgrade(client: socket.socket) -> None:
    """Make a WebSocket."""
    client.sendall(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: amqp\r\n\r\n"
    )
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += client.recv(1)
    assert answer.startswith(b"HTTP/1.1 101")


BEGIN, END = frame(0x11, None, uint(0), uint(100), uint(100), channel=1), frame(0x17, channel=1)


def test_sessions_that_begin_and_end_at_once() -> None:
    """More of them than there are channels come in one piece; each is answered."""
    with (
        Listener(Broker(), port=0) as listener,
        socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as client,
    ):
        client.sendall(AMQP_HEADER + frame(0x10, "me") + (BEGIN + END) * 300)
        heard = b""
        while heard.count(b"\x00\x53\x17") < 300:
            octets = client.recv(1 << 16)
            assert octets
            heard += octets


def test_sessions_on_one_channel() -> None:
    """A client that begins again and again, and ends none, is told so: a channel has one."""
    with (
        Listener(Broker(), port=0) as listener,
        socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as client,
    ):
        client.sendall(AMQP_HEADER + frame(0x10, "me") + BEGIN * 1000)
        heard = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert b"amqp:not-allowed" in heard
    assert b"channel 1 has a session already" in heard


def test_a_client_that_wants_too_many_signs_of_life() -> None:
    """It is told how many there may be."""
    with Listener(Broker(), port=0) as listener:
        with Raw(listener.port, idle=0.02) as client:
            client.until(lambda: client.closed)
            assert client.closed is not None
            assert client.closed.condition == "amqp:not-allowed"
            assert client.closed.description == "idle-time-out must be at least 100 ms"
        with Raw(listener.port, idle=1.0) as client:
            client.receive("q")


def test_many_links_of_a_client_that_does_not_read() -> None:
    """A large message waits for all of them as it is, and is not written for each."""
    size = 4 << 20
    with Listener(Broker(), port=0) as listener, Raw(listener.port, container="deaf") as deaf:
        for _ in range(40):
            deaf.receive("topic://t", credit=1)
        with Raw(listener.port) as sender:
            link = sender.attach("topic://t")
            octets = bytes(Message(body=b"x" * size).encode())
            tracemalloc.start()
            try:
                assert sender.outcome(sender.send(link, octets)).state == ACCEPTED
                eventually(lambda: paused(listener) > 30, "they wait")
                assert tracemalloc.get_traced_memory()[1] < 12 * size
            finally:
                tracemalloc.stop()
        assert len(deaf.take(40)) == 40


@pytest.mark.parametrize("section", [b"\x00\x53\x75\xa0\x00", b"\x00\x53\x77\x40"])
def test_messages_of_many_sections(section: bytes) -> None:
    """Small sections take far more memory and time than octets, so there is a limit of their number."""
    with Listener(Broker(), port=0) as listener, Raw(listener.port) as client:
        link = client.attach("q")
        refused = client.outcome(client.send(link, section * (MAX_SECTIONS + 1)))
        assert (refused.state, refused.condition) == (REJECTED, "amqp:decode-error")
        assert refused.description == f"a message has at most {MAX_SECTIONS} sections here"
        assert client.outcome(client.send(link, section * 100)).state == ACCEPTED


def test_small_messages_in_a_transaction() -> None:
    """Each counts for what it takes, which is far more than its octets."""
    with Listener(Broker(), port=0, options=Options(max_transactions=50_000)) as listener, Raw(listener.port) as client:
        link, control = client.attach("q"), client.control()
        transaction = client.declare(control)
        tags = [client.send(link, b"\x00\x53\x77\x40", transaction=transaction, now=False) for _ in range(100)]
        told = [client.outcome(tag) for tag in tags]
        assert [each.condition for each in told[96:]] == ["amqp:resource-limit-exceeded"] * 4
        assert [each.state for each in told[:96]] == [ACCEPTED] * 96


def test_durable_subscriptions_with_long_names() -> None:
    """What is kept after its client has gone has a name of bounded length; other links may be called as they like."""
    with Listener(Broker(), port=0) as listener, Raw(listener.port, container="c" * 1000) as client:
        refused = client.receive("topic://t", name="n" * 100, durability=Terminus.DELIVERIES)
        assert client.end_of(refused).condition == "amqp:invalid-field"
        client.receive("topic://t", name="m" * 100)
        client.receive("topic://t", name="n", durability=Terminus.DELIVERIES)
    assert listener.broker.destinations() == [topic("t")]
