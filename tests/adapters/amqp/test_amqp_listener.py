"""brokers.amqp.listener: who is let in, over TCP and WebSocket, and other people's clients.

The names WS-xx are those of `docs/conformance-amqp.md`.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import proton
import pytest
import trustme
from calling_kit import envelope, fresh, greeter, text_of
from places import ROOT
from proton import Connection, Transport, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached, SendException
from waiting import eventually
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as open_websocket

import brokers
from brokers import (
    ConnectionFailedError,
    Destination,
    DestinationGoneError,
    LoginRefusedError,
    Message,
    MessageType,
    NoDestinationError,
    TlsError,
    queue,
    topic,
)
from brokers.amqp.listener import Listener, Options
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, Performative, pack, unpack
from brokers.amqp.url import WebSocketBinding
from brokers.amqp.websocket_stream import is_unit, units
from brokers.embedded import Broker
from brokers.errors import UsageError
from soapjms import Client, Dispatcher

PATIENCE = 60.0


def text(body: str = "x", name: str = "q") -> Message:
    """Make a TextMessage."""
    return Message(message_type=MessageType.TEXT, body=body, destination=queue(name))


async def asleep(*_: Any) -> bool:
    """Stand for a function that would have to be awaited."""
    return False


class Later:
    """What such a function returns, without the warning that nobody awaits it."""

    def __await__(self) -> Generator[Any, None, bool]:
        yield
        return False


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"max_connections": 0}, "max_connections must be a whole number of at least 1, got 0"),
        ({"max_logins": 1.5}, "max_logins must be a whole number of at least 1, got 1.5"),
        ({"max_message": "9"}, "max_message must be a whole number of at least 1, got '9'"),
        ({"idle": -1}, "idle must be a positive, finite number of seconds, got -1"),
        ({"idle": float("nan")}, "idle must be a positive, finite number of seconds, got nan"),
        ({"patience": 0}, "patience must be a positive, finite number of seconds, got 0"),
        ({"transaction_idle": None}, "transaction_idle must be a positive, finite number of seconds, got None"),
        ({"paths": "/amqp"}, r"paths must be a set of strings, got '/amqp'; write \['/amqp'\]"),
        ({"origins": "https://a"}, "origins must be a set of strings, got 'https://a'"),
        ({"hosts": None}, "hosts must be a set of strings, got None"),
        ({"destinations": ["a"]}, r"destinations must be a set of destinations, got \['a'\]"),
        ({"anonymous": "no"}, "anonymous must be True, False or None, got 'no'"),
        ({"assume_rejected": None}, "assume_rejected must be True or False, got None"),
        ({"tls": "server.pem"}, "tls must be an ssl.SSLContext or None, got 'server.pem'"),
        ({"binding": "csprd01"}, "binding must be a WebSocketBinding or None, got 'csprd01'"),
        ({"may": "ann"}, "may must be Rights, a function or None, got 'ann'"),
        ({"may": asleep}, "may must be a plain function, not async def"),
        ({"users": asleep}, "users must be a plain function, not async def"),
        ({"users": ["ann:s3cret"]}, "users must be passwords by user, a function or None, got a list"),
        ({"users": {"ann": b"s3cret"}}, "users must be texts with texts as passwords, got others for the user 'ann'"),
    ],
)
def test_options_that_cannot_be(option: dict[str, Any], said: str) -> None:
    """They are refused before anything listens; passwords are not shown."""
    with pytest.raises(UsageError, match=said) as found:
        Options(**option)
    assert "s3cret" not in str(found.value)


def test_names_in_options() -> None:
    """Lists of them will do."""
    options = Options(paths=["/amqp"], hosts=["broker"], destinations=[queue("a")], idle=0)  # type: ignore[arg-type]
    assert (options.paths, options.hosts, options.destinations) == ({"/amqp"}, {"broker"}, {queue("a")})


@contextmanager
def listening(**options: Any) -> Iterator[Listener]:
    """Listen at a free port."""
    with Listener(Broker(), port=0, options=Options(**options)) as listener:
        yield listener


def send_one(url: str, **options: Any) -> None:
    """Connect, and send a message."""
    with brokers.connect(url, timeout=PATIENCE, reconnect=False, **options) as connection:
        connection.send(text()).result(PATIENCE)


# Who is let in


def with_user(listener: Listener, user: str) -> str:
    """Put user and password into the URL."""
    return listener.url.replace("://", f"://{user}@")


@pytest.mark.parametrize("binding", [None, WebSocketBinding.LENIENT])
def test_users_and_passwords(binding: WebSocketBinding | None) -> None:
    """The right password lets in; wrong ones, unknown users and nobody do not."""
    with listening(users={"ann": "secret", "zoë": ""}, binding=binding) as listener:
        for user in ("ann:secret", "zo%C3%AB:"):
            send_one(with_user(listener, user))
        for user in ("ann:wrong", "ann:", "bob:secret", "bob:", ":secret"):
            with pytest.raises(LoginRefusedError, match="user or password is wrong"):
                send_one(with_user(listener, user))
        with pytest.raises(LoginRefusedError, match=r"does not offer ANONYMOUS.*offers PLAIN"):
            send_one(listener.url, mechanism="ANONYMOUS")
        with pytest.raises(brokers.ConnectionFailedError):
            send_one(listener.url, mechanism="none")
        eventually(lambda: listener.guests == 0)


def test_passwords_are_checked_by_a_function_and_by_nobody_else() -> None:
    """It gets user and password; anonymous clients may be let in beside."""
    with listening(users=lambda user, password: password == user[::-1], anonymous=True) as listener:
        send_one(with_user(listener, "abc:cba"))
        send_one(listener.url)
        with pytest.raises(LoginRefusedError):
            send_one(with_user(listener, "abc:abc"))
    assert "secret" not in repr(Options(users={"ann": "secret"}))


def test_functions_that_nobody_awaits() -> None:
    """What they return lets nobody in, and permits nothing: an awaitable would count as true."""

    def later(*_: Any) -> Any:
        return Later()

    with listening(users=later) as listener, pytest.raises(brokers.ConnectionFailedError):
        send_one(with_user(listener, "ann:wrong"))
    with listening(may=later) as listener, pytest.raises(brokers.BrokerError):
        send_one(listener.url)


def test_destinations_by_user() -> None:
    """Each user is asked for by name."""
    asked: list[Any] = []

    def may(user: str | None, action: str, destination: Any) -> bool:
        asked.append((user, str(action), destination))
        return user == "ann"

    with listening(users={"ann": "a", "bob": "b"}, may=may) as listener:
        send_one(with_user(listener, "ann:a"))
        with pytest.raises(brokers.SendFailedError, match="amqp:unauthorized-access: bob may not send at queue:q"):
            send_one(with_user(listener, "bob:b"))
    assert asked == [("ann", "send", queue("q")), ("bob", "send", queue("q"))]


@pytest.mark.parametrize("binding", [None, WebSocketBinding.LENIENT])
def test_tls_and_certificates_of_clients(binding: WebSocketBinding | None, tmp_path: Path) -> None:
    """WS-31, and over TCP: EXTERNAL is who the certificate says; without one there is no such mechanism."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    trusted, shown = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("ann.example", common_name="ann").private_key_and_cert_chain_pem.write_to_path(shown)
    seen: list[Any] = []

    def may(user: str | None, action: str, destination: Any) -> bool:
        seen.append(user)
        return True

    with listening(tls=context, may=may, binding=binding) as listener:
        url = f"{listener.url.replace('127.0.0.1', 'localhost')}?caFile={trusted}"
        send_one(f"{url}&certFile={shown}&mechanism=external")
        send_one(url)
        with pytest.raises(LoginRefusedError, match="does not offer EXTERNAL"):
            send_one(f"{url}&mechanism=external")
        with suppress(OSError), socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as plain:
            plain.sendall(b"AMQP\0\1\0\0" * 100)  # no TLS: it is left without an answer
            plain.recv(10)
        send_one(url)
    assert seen == ["ann", None, None]


class Watched(ssl.SSLSocket):
    """Takes its time where it is a client's, and notes when a second thread comes meanwhile."""

    seconds: ClassVar[list[str]] = []

    def recv(self, *arguments: Any) -> bytes:
        with self._use("recv"):
            return super().recv(*arguments)

    def send(self, *arguments: Any) -> int:
        with self._use("send"):
            return super().send(*arguments)

    @contextmanager
    def _use(self, what: str) -> Iterator[None]:
        if self.server_side:
            yield
            return
        using: threading.Lock = vars(self).setdefault("using", threading.Lock())
        if using.locked():
            self.seconds.append(what)
        with using:
            time.sleep(0.001)
            yield


def test_a_lazy_consumer_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads, and others send, by the same connection; TLS is used by one thread at a time."""
    monkeypatch.setattr(ssl.SSLContext, "sslsocket_class", Watched)
    monkeypatch.setattr(Watched, "seconds", [])
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    arrived = list[object]()
    with listening(tls=context) as listener:
        url = f"{listener.url.replace('127.0.0.1', 'localhost')}?caFile={tmp_path / 'ca.pem'}"
        with (
            brokers.connect(url, timeout=PATIENCE) as other,
            brokers.connect(url, timeout=PATIENCE, reconnect=False) as connection,
            connection.consume(
                topic("t"),
                lambda delivery: arrived.append(delivery.message.body),
                prefetch=1000,
                auto_accept=True,
                lazy=True,
            ),
        ):
            for _ in range(50):
                for _ in range(10):
                    other.send(replace(text("x" * 5000), destination=topic("t")))
                connection.send(text()).result(PATIENCE)
            eventually(lambda: len(arrived) == 500)
    assert Watched.seconds == []


def test_a_client_that_never_logs_in_is_left() -> None:
    """However slowly it begins."""
    with listening(patience=1.0) as listener, socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as slow:
        slow.sendall(b"AMQP")
        assert slow.recv(10) == b""


# WebSocket


class Pump:
    """What a client of proton's would say, without a socket."""

    def __init__(self, idle: float = 0.0) -> None:
        self.transport, self.connection = Transport(), Connection()
        self.transport.idle_timeout = idle
        self.connection.container = "pump"
        self.transport.bind(self.connection)
        self.connection.open()

    def take(self) -> list[bytes]:
        """Return headers and frames."""
        out = b""
        while (pending := self.transport.pending()) > 0:
            piece: Any = self.transport.peek(pending)
            out += bytes(piece)
            self.transport.pop(len(piece))
        return list(units(out))


def enter(listener: Listener, token: str = "amqp", path: str = "/", **more: Any) -> ClientConnection:
    """Open a WebSocket."""
    uri = f"ws://127.0.0.1:{listener.port}{path}"
    return open_websocket(uri, subprotocols=[token], compression=None, open_timeout=PATIENCE, **more)  # type: ignore[list-item]


def receive(websocket: ClientConnection) -> bytes:
    """Wait for a message, which is binary."""
    message = websocket.recv(PATIENCE)
    assert isinstance(message, bytes)
    return message


def end_of(websocket: ClientConnection) -> int:
    """Read to the end, and return the code of the Close."""
    for message in iter(lambda: _next(websocket), None):
        assert isinstance(message, bytes)
    close = websocket.protocol.close_rcvd
    assert close is not None
    return close.code


def _next(websocket: ClientConnection) -> bytes | str | None:
    try:
        return websocket.recv(PATIENCE)
    except ConnectionClosed:
        return None


@pytest.mark.parametrize(
    ("binding", "known", "unknown"),
    [
        (WebSocketBinding.CSPRD01, ["AMQPWSB10"], ["amqp", "amqpwsb10"]),
        (WebSocketBinding.CS01, ["amqp"], ["AMQPWSB10", "AMQP"]),
        (WebSocketBinding.LENIENT, ["amqp", "AMQPWSB10"], ["stomp"]),
    ],
)
def test_ws01_ws04_ws05_the_sub_protocol(binding: WebSocketBinding, known: list[str], unknown: list[str]) -> None:
    """WS-01, WS-04, WS-05, WS-06: exactly what was asked for and is spoken is echoed; else there is no WebSocket."""
    with listening(binding=binding) as listener:
        for token in known:
            with enter(listener, token) as websocket:
                assert websocket.subprotocol == token
        for token in unknown:
            with pytest.raises(InvalidStatus) as caught:
                enter(listener, token).__enter__()
            assert caught.value.response.status_code == 400


def test_ws02_paths_and_origins() -> None:
    """WS-02: any path unless some are named; pages of other origins are kept out, programs are not."""
    with listening(binding=WebSocketBinding.LENIENT) as listener:
        for path in ("/", "/x", "/a?b=c"):
            with enter(listener, path=path):
                pass
        with pytest.raises(InvalidStatus, match="403"):
            enter(listener, origin="http://evil.example").__enter__()
    with listening(
        binding=WebSocketBinding.CS01, paths=frozenset({"/amqp"}), origins=frozenset({"http://good"})
    ) as listener:
        with enter(listener, path="/amqp?x", origin="http://good"):
            pass
        for path in ("/", "/amqp/x"):
            with pytest.raises(InvalidStatus, match="404"):
                enter(listener, path=path).__enter__()


def log_in(websocket: ClientConnection) -> None:
    """Go through SASL."""
    websocket.send(SASL_HEADER)
    assert receive(websocket) == SASL_HEADER
    performative, fields = unpack(receive(websocket))
    assert (performative, fields[0].elements) == (Performative.MECHANISMS, ("ANONYMOUS",))
    websocket.send(pack(Performative.INIT, symbol("ANONYMOUS"), b"", "localhost"))
    assert unpack(receive(websocket)) == (Performative.OUTCOME, [0])


@pytest.mark.parametrize("with_sasl", [True, False])
def test_ws11_to_ws21_ws28_ws29_a_whole_conversation(with_sasl: bool) -> None:
    """WS-11 to WS-18, WS-20, WS-21, WS-28, WS-29: header by header, frame by frame; then close, close, Close, Close."""
    with listening(binding=WebSocketBinding.CSPRD01) as listener, enter(listener, "AMQPWSB10") as websocket:
        if with_sasl:
            log_in(websocket)
        pump = Pump()
        for unit in pump.take():
            websocket.send(unit)
        assert receive(websocket) == AMQP_HEADER
        opened = receive(websocket)
        assert is_unit(opened)
        assert opened[8:11] == b"\x00\x53\x10"
        pump.transport.push(AMQP_HEADER + opened)
        pump.connection.close()
        for unit in pump.take():
            websocket.send(unit)
        closed = receive(websocket)
        assert closed[8:11] == b"\x00\x53\x18"
        assert end_of(websocket) == 1000


def test_ws16_after_a_refused_login() -> None:
    """WS-12, WS-16: the outcome says so in a message of its own, and the WebSocket is closed."""
    with listening(binding=WebSocketBinding.CS01, users={}) as listener, enter(listener) as websocket:
        websocket.send(SASL_HEADER)
        assert receive(websocket) == SASL_HEADER
        assert unpack(receive(websocket))[1][0].elements == ("PLAIN",)
        websocket.send(pack(Performative.INIT, symbol("PLAIN"), b"\0a\0b", "localhost"))
        assert unpack(receive(websocket)) == (Performative.OUTCOME, [1])
        assert end_of(websocket) == 1000


@pytest.mark.parametrize("header", [b"AMQP\x00\x02\x00\x00", b"AMQP\x02\x01\x00\x00", b"GET / HT"])
def test_ws19_ws34_other_headers_are_answered(header: bytes) -> None:
    """WS-19, WS-34: another version, and TLS within AMQP, are answered with what is spoken here, and the end."""
    with listening(binding=WebSocketBinding.CS01) as listener, enter(listener) as websocket:
        websocket.send(header)
        assert receive(websocket) == AMQP_HEADER
        assert end_of(websocket) == 1000


def test_ws20_text_is_refused() -> None:
    """WS-20: AMQP is binary."""
    with listening(binding=WebSocketBinding.LENIENT) as listener, enter(listener) as websocket:
        websocket.send("AMQP")
        assert end_of(websocket) == 1003


@pytest.mark.parametrize(
    ("binding", "goes"),
    [(WebSocketBinding.CSPRD01, False), (WebSocketBinding.CS01, True), (WebSocketBinding.LENIENT, True)],
)
def test_ws21_one_frame_a_message_by_edition(binding: WebSocketBinding, goes: bool) -> None:
    """WS-21: who joins or cuts is refused by the draft's listener, and read by the others."""
    token = "AMQPWSB10" if binding is WebSocketBinding.CSPRD01 else "amqp"
    joined = b"".join(Pump().take())
    for messages in ([joined], [joined[at : at + 1] for at in range(len(joined))]):
        with listening(binding=binding) as listener, enter(listener, token) as websocket:
            with suppress(ConnectionClosed):
                for message in messages:
                    websocket.send(message)
            if goes:
                assert receive(websocket) == AMQP_HEADER
            else:
                assert end_of(websocket) == 1002


@pytest.mark.parametrize("token", ["amqp", "AMQPWSB10"])
def test_ws22_ws38_fragments_and_pings(token: str) -> None:
    """WS-22, WS-38: a message may come in WebSocket frames, with pings between; they are answered."""
    binding = WebSocketBinding.CSPRD01 if token == "AMQPWSB10" else WebSocketBinding.CS01
    with listening(binding=binding) as listener, enter(listener, token) as websocket:

        def pieces(unit: bytes) -> Iterator[bytes]:
            for at in range(0, len(unit), 3):
                pongs.append(websocket.ping())
                yield unit[at : at + 3]

        pongs: list[threading.Event] = []
        for unit in Pump().take():
            websocket.send(pieces(unit))
        assert receive(websocket) == AMQP_HEADER
        assert all(pong.wait(PATIENCE) for pong in pongs)


def test_ws30_a_close_is_answered() -> None:
    """WS-30, WS-40: also without AMQP's own before it; the client is forgotten."""
    with listening(binding=WebSocketBinding.CS01) as listener:
        with enter(listener) as websocket:
            log_in(websocket)
            websocket.close(1001)
            assert websocket.protocol.close_rcvd is not None
        eventually(lambda: listener.guests == 0)


def test_ws37_frames_without_a_mask_are_refused() -> None:
    """WS-37: a client has to mask; what comes from here is not masked, or the tests' client would not read it."""
    with (
        listening(binding=WebSocketBinding.CS01) as listener,
        socket.create_connection(("127.0.0.1", listener.port)) as client,
    ):
        key = base64.b64encode(bytes(16)).decode()
        client.sendall(
            f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: amqp\r\n\r\n".encode()
        )
        client.settimeout(PATIENCE)
        assert client.recv(4096).startswith(b"HTTP/1.1 101")
        client.sendall(b"\x82\x08" + AMQP_HEADER)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer[:4] == b"\x88" + bytes([len(answer) - 2]) + (1002).to_bytes(2, "big")


def test_ws39_signs_of_life() -> None:
    """WS-39: empty frames of AMQP for a client that asked for them, each a message."""
    with listening(binding=WebSocketBinding.CSPRD01) as listener, enter(listener, "AMQPWSB10") as websocket:
        for unit in Pump(idle=0.4).take():
            websocket.send(unit)
        empty = b"\0\0\0\x08\x02\0\0\0"
        while receive(websocket) != empty:
            pass


def test_ws41_large_messages() -> None:
    """WS-41: as large as AMQP frames may be, and far larger than any is the end."""
    with listening(binding=WebSocketBinding.CS01) as listener:
        with brokers.connect(listener.url, timeout=PATIENCE) as connection:
            connection.send(text("x" * 1_000_000)).result(PATIENCE)
        with enter(listener, max_size=None) as websocket:
            with suppress(ConnectionClosed):
                websocket.send(bytes(2 << 20))
            assert end_of(websocket) == 1009


@pytest.mark.parametrize(("max_message", "code"), [(1 << 20, 1000), (1000, 1009)])
def test_ws41_frames_joined_into_a_large_message(max_message: int, code: int) -> None:
    """WS-41: who is let in may put all frames of the largest AMQP message into one of WebSocket."""
    with listening(binding=WebSocketBinding.CS01, max_message=max_message) as listener, enter(listener) as websocket:
        pump = Pump()
        websocket.send(b"".join(pump.take()))
        assert receive(websocket) == AMQP_HEADER
        pump.transport.push(AMQP_HEADER + receive(websocket))
        pump.connection.close()
        with suppress(ConnectionClosed):
            websocket.send(b"\0\0\0\x08\x02\0\0\0" * (3 << 16))  # empty frames, a MiB and a half
            for unit in pump.take():
                websocket.send(unit)
        assert end_of(websocket) == code


@pytest.mark.parametrize("binding", [None, WebSocketBinding.LENIENT])
def test_ipv6(binding: WebSocketBinding | None) -> None:
    """Listener and client go by an address in brackets."""
    with Listener(Broker(), "::1", 0, Options(binding=binding)) as listener:
        assert f"://[::1]:{listener.port}" in listener.url
        assert str(listener) == listener.url
        send_one(listener.url)


# Other people's clients


def test_protons_blocking_client() -> None:
    """Request and reply with proton's own client, which knows nothing of JMS."""
    with listening() as listener:
        connection = BlockingConnection(listener.url, timeout=PATIENCE)
        replies = connection.create_receiver(None, dynamic=True)
        relay = connection.create_sender(None)
        requests = connection.create_receiver("requests")
        relay.send(proton.Message(address="requests", reply_to=replies.remote_source.address, body="?", id=1))
        request = requests.receive(PATIENCE)
        requests.accept()
        relay.send(proton.Message(address=request.reply_to, correlation_id=request.id, body="!"))
        reply = replies.receive(PATIENCE)
        assert (reply.body, reply.correlation_id) == ("!", 1)
        connection.close()


def test_protons_blocking_client_on_the_anonymous_terminus() -> None:
    """AT-07, AT-08, AT-12: a queue, a topic, and what does not exist; the link goes on after what is rejected."""
    with listening() as listener:
        connection = BlockingConnection(listener.url, timeout=PATIENCE)
        news = connection.create_receiver("topic://news")
        relay = connection.create_sender(None)
        for address in ("orders", "topic://news"):
            assert relay.send(proton.Message(address=address, body="x")).remote_state == proton.Delivery.ACCEPTED
        assert news.receive(PATIENCE).body == "x"
        for address in ("temp-queue://nobody", None):
            with pytest.raises(SendException) as caught:
                relay.send(proton.Message(address=address, body="x"))
            assert caught.value.state == proton.Delivery.REJECTED
        assert relay.send(proton.Message(address="orders", body="y")).remote_state == proton.Delivery.ACCEPTED
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            connection.create_sender("temp-queue://nobody")
        connection.close()


def test_protons_reactor_on_the_anonymous_terminus() -> None:
    """AT-03, AT-09, AT-14: outcomes by delivery, with the error and the tag."""
    told: dict[str, Any] = {}

    class Relay(MessagingHandler):
        def __init__(self, url: str) -> None:
            super().__init__()
            self.url, self.left = url, ["a", "topic://t", "temp-queue://nobody", "b"]

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(self.url, reconnect=False)
            event.container.create_sender(connection, None)

        def on_sendable(self, event: Any) -> None:
            while self.left and event.sender.credit:
                address = self.left.pop(0)
                event.sender.send(proton.Message(address=address, body="x"), tag=address)

        def on_accepted(self, event: Any) -> None:
            told[event.delivery.tag] = "accepted"
            if event.delivery.tag == "b":
                event.connection.close()

        def on_rejected(self, event: Any) -> None:
            condition = event.delivery.remote.condition
            told[event.delivery.tag] = (condition.name, bytes(condition.info["delivery-tag"]))

    with listening() as listener:
        Container(Relay(listener.url)).run()
    gone = "temp-queue://nobody"
    assert told == {"a": "accepted", "topic://t": "accepted", gone: ("amqp:not-found", gone.encode()), "b": "accepted"}


def test_protons_reactor() -> None:
    """A hundred messages through proton's event loop."""

    class Echo(MessagingHandler):
        def __init__(self, url: str) -> None:
            super().__init__()
            self.url, self.got, self.accepted = url, list[Any](), 0

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(self.url, reconnect=False)
            event.container.create_receiver(connection, "loop")
            self.sender = event.container.create_sender(connection, "loop")
            self.left = 100

        def on_sendable(self, event: Any) -> None:
            while self.left and event.sender.credit:
                self.left -= 1
                event.sender.send(proton.Message(body=self.left))

        def on_accepted(self, event: Any) -> None:
            self.accepted += 1

        def on_message(self, event: Any) -> None:
            self.got.append(event.message.body)
            if len(self.got) == 100:
                event.connection.close()

    with listening() as listener:
        handler = Echo(listener.url)
        Container(handler).run()
    assert handler.got == list(reversed(range(100)))


@pytest.mark.parametrize("binding", [None, WebSocketBinding.LENIENT])
def test_soap_calls(binding: WebSocketBinding | None) -> None:
    """Client and dispatcher meet on the embedded broker over the network."""
    uri = f"jms:queue:{fresh()}"
    with (
        listening(binding=binding) as listener,
        brokers.connect(listener.url) as ours,
        brokers.connect(listener.url) as theirs,
        Dispatcher(theirs, uri, greeter()),
        Client(ours, uri, timeout=PATIENCE) as client,
    ):
        response = client.call(envelope("Zoë"), soap_action="urn:greetMe")
        assert text_of(response) == "Hello Zoë"
        assert [verdict.assertion for verdict in response.findings()] == []


SERVICE = """
import sys, soapjms
sys.path.insert(0, "tests/support")
from calling_kit import greeter
with soapjms.connect(sys.argv[1]) as connection, soapjms.Dispatcher(connection, sys.argv[2], greeter()):
    print("up", flush=True)
    sys.stdin.read()
"""


def test_client_and_service_are_two_processes() -> None:
    """The embedded broker is in one of them, and listens for the other."""
    uri = f"jms:queue:{fresh()}"
    broker = Broker()
    with Listener(broker, port=0) as listener, broker.connect() as connection:
        command = [sys.executable, "-c", SERVICE, listener.url, uri]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as service:  # type: ignore[call-overload]
            assert service.stdout.readline() == "up\n"
            with Client(connection, uri, timeout=PATIENCE) as client:
                assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            service.stdin.close()


def test_the_command(tmp_path: Path) -> None:
    """`soapjms broker` listens for AMQP, over TCP and WebSocket, for those whose passwords are in a file."""
    users = tmp_path / "users"
    users.write_text("# who may\nann:a:b\n")
    command = [sys.executable, "-m", "soapjms.cli", "broker", "--amqp", "127.0.0.1:0", "--ws", "127.0.0.1:0"]
    command += ["--max-transactions", "1000", "--transaction-idle", "60"]
    command += ["--max-client-destinations", "2", "--max-destinations", "100"]
    command += ["--max-messages", "2", "--max-octets", "5000", "--max-total-octets", "9000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, "--users", str(users)], cwd=ROOT, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            urls = [process.stdout.readline().split(" listens at ")[1].strip() for _ in range(2)]
            assert [url.partition(":")[0] for url in urls] == ["amqp", "amqp+ws"]
            got: list[Any] = []
            with brokers.connect(urls[1].replace("://", "://ann:a%3Ab@")) as connection:
                connection.consume(queue("q"), got.append)
                send_one(urls[0].replace("://", "://ann:a%3Ab@"))
                eventually(lambda: got)
                transaction = connection.begin()
                transaction.send(text("x" * 2000))
                [refused] = transaction.commit().result(PATIENCE)
                assert "at most 1000 octets" in str(refused.error)
                with pytest.raises(
                    brokers.SendFailedError,
                    match=r"resource-limit-exceeded.*max_octets is 5000, it has 1.., and 5... more",
                ):
                    connection.send(text("x" * 5000)).result(PATIENCE)
                connection.send(text("x" * 3000)).result(PATIENCE)
                with pytest.raises(brokers.SendFailedError, match=r"limit-exceeded.*max_total_octets is 9000"):
                    connection.send(text("x" * 4500, "other")).result(PATIENCE)
                connection.temporary()
                with pytest.raises(brokers.BrokerError, match=r"resource-limit-exceeded.*2 destinations"):
                    connection.temporary()
            with pytest.raises(LoginRefusedError):
                send_one(urls[0])
        finally:
            process.terminate()
        assert process.wait(PATIENCE) == 0


def test_the_command_over_tls(tmp_path: Path) -> None:
    """`--amqps` and `--wss` show the certificate of `--cert`, with its key in a file of its own; a client that does not
    know who made it, or that it is for another host, sends nothing."""
    authority = trustme.CA()
    made = authority.issue_cert("localhost")
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key", "authority", "wrong")}
    made.cert_chain_pems[0].write_to_path(files["certificate"])
    made.private_key_pem.write_to_path(files["key"])
    authority.cert_pem.write_to_path(files["authority"])
    trustme.CA().cert_pem.write_to_path(files["wrong"])
    command = [sys.executable, "-m", "soapjms.cli", "broker", "--amqps", "localhost:0", "--wss", "localhost:0"]
    command += ["--cert", str(files["certificate"]), "--key", str(files["key"])]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            urls = [process.stdout.readline().split(" listens at ")[1].strip() for _ in range(2)]
            assert [url.rpartition(":")[0] for url in urls] == ["amqps://localhost", "amqp+wss://localhost"]
            for number, url in enumerate(urls):
                with pytest.raises(TlsError, match="not trusted here"):
                    brokers.connect(f"{url}?caFile={files['wrong']}", timeout=PATIENCE)
                with pytest.raises(TlsError, match=r"for another name than 127\.0\.0\.1"):
                    brokers.connect(
                        f"{url.replace('localhost', '127.0.0.1')}?caFile={files['authority']}", timeout=PATIENCE
                    )
                with brokers.connect(f"{url}?caFile={files['authority']}", timeout=PATIENCE) as connection:
                    uri = f"jms:queue:q{number}"
                    with Dispatcher(connection, uri, greeter()), Client(connection, uri, timeout=PATIENCE) as client:
                        assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
        finally:
            process.terminate()
        assert process.wait(PATIENCE) == 0


@contextmanager
def command(*arguments: str) -> Iterator[str]:
    """Run `soapjms broker` for AMQP; yield its URL."""
    line = [sys.executable, "-m", "soapjms.cli", "broker", "--amqp", "127.0.0.1:0", *arguments]
    with subprocess.Popen(line, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split(" listens at ")[1].strip()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "there", "missing"),
    [
        (["--queue", "orders", "--topic", "news"], [queue("orders"), topic("news")], [queue("other"), topic("orders")]),
        (["--fixed", "--queue", "orders"], [queue("orders")], [queue("other")]),
        (["--fixed"], [], [queue("orders"), topic("news")]),
        ([], [queue("orders"), topic("news")], []),
    ],
)
def test_a_fixed_set(arguments: list[str], there: list[Destination], missing: list[Destination]) -> None:
    """Of a command that was told which queues and topics there are, others are refused; dynamic ones are made."""
    with command(*arguments) as url, brokers.connect(url) as connection:
        for each in [*there, connection.temporary()]:
            connection.consume(each, lambda delivery: delivery.accept())
            connection.send(replace(text("a"), destination=each)).result(PATIENCE)
        for each in missing:
            with pytest.raises(DestinationGoneError, match="amqp:not-found"):
                connection.send(replace(text("a"), destination=each)).result(PATIENCE)
            with pytest.raises(NoDestinationError):
                connection.consume(each, lambda delivery: delivery.accept())


def test_anonymous_beside_users(tmp_path: Path) -> None:
    """Who gives a user is to be that user; who gives none is let in where that was said."""
    users = tmp_path / "users"
    users.write_text("ann:secret\n")
    with command("--users", str(users), "--anonymous") as url:
        for login in ("", "ann:secret@"):
            with brokers.connect(url.replace("://", f"://{login}")) as connection:
                connection.send(text("a")).result(PATIENCE)
        with pytest.raises(LoginRefusedError):
            brokers.connect(url.replace("://", "://ann:wrong@"))
    with command("--users", str(users)) as url, pytest.raises(ConnectionFailedError):
        brokers.connect(url)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "give an address to listen at, such as --smqp localhost:7200 or --amqp localhost:5672"),
        (["--amqps", "localhost:0"], "--amqps needs a certificate"),
        (["--wss", "localhost:0"], "--wss needs a certificate"),
        (["--amqp", "localhost"], "an address must be HOST:PORT"),
        (["--amqp", "localhost:0", "--anonymous"], "--anonymous needs --users"),
        (["--smqp", "localhost:0", "--fixed"], "--fixed is for AMQP"),
        (["--smqp", "localhost:0", "--open"], "--open is for AMQP"),
        (["--amqp", "localhost:0", "--users", "{users}", "--open"], "--open must not be used with --users"),
        (["--smqp", "localhost:0", "--queue", "a"], "--queue is for AMQP"),
        (["--amqp", "localhost:0", "--served-as", "broker"], "--served-as is for WebSocket"),
        (["--ws", "localhost:0", "--served-as", "http://broker"], "must be like broker.example.org"),
        (["--amqp", "localhost:0", "--users", "{users}"], "line 1 of .* must be USER:PASSWORD"),
    ],
)
def test_the_command_refuses(arguments: list[str], why: str, tmp_path: Path) -> None:
    """Mistakes are told, and no secret with them."""
    users = tmp_path / "users"
    users.write_text("tops3cret\n")
    command = [sys.executable, "-m", "soapjms.cli", "broker", *(each.format(users=users) for each in arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert re.search(why, " ".join(done.stderr.split()))
    assert "tops3cret" not in done.stderr
