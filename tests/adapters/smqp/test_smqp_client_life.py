"""What keeps a client whole: how it closes, what it subscribes to anew, and answers that say too little."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import pytest
import trustme
from proxy_kit import Proxy, Way
from smqp_kit import (
    PATIENCE,
    QUICK,
    FakeServer,
    Inbox,
    Listener,
    Running,
    connected,
    interrupted,
    notification,
    running,
)

from brokers.errors import BrokerError, ConnectionLostError, UnsentError
from brokers.smqp.client import Client
from brokers.smqp.client.connection import secured_by
from brokers.smqp.client.listener import Hearer, NotifyListener
from brokers.smqp.protocol.dialect import STRICT
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.messages import SmqpLimits
from brokers.smqp.protocol.replies import ProtocolError
from brokers.smqp.server import Server


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server with two accounts that may do everything."""
    with running() as server:
        server.accounts("alice", "bob")
        server.topics("/stocks/acme", "/stocks/ibm")
        yield server


def test_a_callback_may_close_its_client(server: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The message that it was called with is done: the next program with the same inbox does not get it."""
    again, closed = Inbox(), Event()
    client = Client(*server.address, account="alice", password="pw", inbox=tmp_path / "inbox")

    def close(message: object) -> None:
        client.close()
        closed.set()

    client.subscribe("/stocks/acme", close)
    with caplog.at_level(logging.WARNING), connected(server.address, "bob") as bob:
        bob.publish("/stocks/acme", "1", timeout=None)
        assert closed.wait(PATIENCE)
        client.close()  # waits for the callback
        bob.publish("/stocks/acme", "2", timeout=None)
        with connected(server.address, inbox=tmp_path / "inbox") as later:
            later.subscribe("/stocks/acme", again)
            assert again.data(1) == [b"2"]
    assert again.is_empty
    assert not caplog.records


def test_a_watcher_that_wants_to_end_the_program(server: Running) -> None:
    """It is called by the thread that makes the connection anew, which goes on doing so."""
    states = Inbox()

    def watch(is_connected: bool) -> None:
        states(is_connected)
        raise SystemExit("enough")

    with connected(server.address) as client:
        client.watch(watch)
        for _ in range(2):
            client._line.close()
            assert [states.next(), states.next()] == [False, True]


def test_closing_does_not_wait_for_an_answer() -> None:
    """A thread waits for a server that says nothing, for a long time: closing ends that too."""
    failed: SimpleQueue[BrokerError] = SimpleQueue()
    with (
        FakeServer(replies={"COUNT": b""}) as fake,
        connected(fake.address, options={"timeout": 600.0}) as client,
    ):

        def count() -> None:
            try:
                client.count_topics("/")
            except BrokerError as error:
                failed.put(error)

        waiting = Thread(target=count)
        waiting.start()
        while not any(line.startswith("COUNT") for line in fake.heard):
            time.sleep(0.01)
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < PATIENCE
        assert isinstance(failed.get(timeout=PATIENCE), ConnectionLostError)
        waiting.join()


def test_closing_does_not_wait_for_quit() -> None:
    """A server that leaves QUIT without an answer is left."""
    with FakeServer(replies={"QUIT": b""}) as fake, connected(fake.address, options={"timeout": 600.0}) as client:
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize(
    "call", [lambda client: client.publish("/t", receipt=True), lambda client: client.messages("/t")]
)
def test_an_interrupted_command(server: Running, call: Callable[[Client], object]) -> None:
    """Its answer is taken for that to no other command: the session is made anew."""
    states = Inbox()
    server.topics("/t", keywords=("tea",))
    with Proxy(*server.address) as proxy, connected(("127.0.0.1", proxy.port)) as client:
        client.watch(states)
        sent = proxy.octets[Way.UP]
        proxy.silence(Way.DOWN)
        with interrupted(lambda: proxy.octets[Way.UP] > sent):
            call(client)
        proxy.speak()
        assert [states.next(), states.next()] == [False, True]
        assert client.keywords("/t") == ("tea",)
        assert not client._hearing._receipts


def test_messages_that_were_not_read_to_their_end() -> None:
    """Interrupted between them, a client takes the rest of them for no answer."""
    with (
        FakeServer(replies={"GET": b"200-OK\r\n200 2\r\n\r\n"}) as fake,
        connected(fake.address, options={"renew": None}) as client,
    ):
        with interrupted(lambda: any(line.startswith("GET") for line in fake.heard)):
            client.messages("/t")
        with pytest.raises(UnsentError):
            client.noop()


def test_an_interrupted_login() -> None:
    """Its connection ends, although the program still has the traceback."""
    with FakeServer(replies={"PASS": b""}) as fake:
        with (
            interrupted(lambda: any(line.startswith("PASS") for line in fake.heard)) as found,
            connected(fake.address, options={"timeout": 600.0}),
        ):
            pass
        assert found.tb
        assert fake.ended.wait(PATIENCE)


def serve_and_end(listener: Listener, logins: SimpleQueue[float]) -> None:
    """Serve one client after the other until its login is done, and end its connections then."""
    replies = {"PASS": b"200-OK\r\n200-Topic: /accounts/alice\r\n200 Guid: g\r\n\r\n"}
    with suppress(OSError, EOFError):  # the test is over
        while True:
            wire, line = listener.accept(), ""
            with ExitStack() as stack:
                stack.callback(wire.close)
                wire.send("SMQP/1.0 Ready.\r\n")
                while not line.startswith("SUB"):
                    line = wire.line()
                    if line.startswith("SET NOTIFY PORT"):
                        stack.enter_context(socket.create_connection(("127.0.0.1", int(line.split()[-1]))))
                    wire.send(replies.get(line.partition(" ")[0], b"200 OK\r\n\r\n") if line else b"")
                logins.put(time.monotonic())


def test_a_server_that_ends_each_session_gets_few_logins() -> None:
    """The pauses grow as they do where no attempt succeeds."""
    listener, logins = Listener(), SimpleQueue[float]()
    thread = Thread(target=serve_and_end, args=(listener, logins), daemon=True)
    thread.start()
    with connected(("127.0.0.1", listener.port), options={"renew": (0.05, 0.2)}):
        times = [logins.get(timeout=PATIENCE) for _ in range(5)]
    listener.close()
    assert times[4] - times[1] > 0.1 + 0.2 + 0.2


class Nobody(Hearer):
    """Takes notifications and does nothing with them."""

    def take(self, heard: ReceivedCommand) -> bool:
        return True

    def confirmed(self, heard: ReceivedCommand) -> None:
        """Nothing follows."""

    def doubted(self, heard: ReceivedCommand) -> None:
        """Nothing follows."""

    def notice(self, heard: ReceivedCommand) -> None:
        """Nothing follows."""

    def ended(self) -> None:
        """Nothing follows."""


@pytest.fixture
def notify_by_tls() -> Iterator[tuple[NotifyListener, Callable[[], ssl.SSLSocket]]]:
    """Listen as a client of SMQPS does; give what connects to it as its server does."""
    authority = trustme.CA()
    servers, clients = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(servers)
    authority.configure_trust(clients)
    listener = NotifyListener(
        "127.0.0.1",
        0,
        "127.0.0.1",
        Nobody(),
        secure=secured_by(clients, "127.0.0.1"),
        dialect=STRICT,
        limits=SmqpLimits(),
        ack_timeout=PATIENCE,
        on_end=lambda: None,
    )
    made: list[ssl.SSLSocket] = []

    def connect() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", listener.port), PATIENCE)
        made.append(servers.wrap_socket(plain, server_side=True))
        return made[-1]

    yield listener, connect
    listener.close()
    for each in made:
        each.close()


def acknowledged(wire: ssl.SSLSocket, number: int) -> bytes:
    """Notify of a message; return the answer."""
    wire.sendall(notification(number).encode())
    answer = wire.recv(100)
    wire.sendall(b"310 ACK\r\n\r\n")
    return answer


def test_smqps_a_listener_ends_a_silent_connection(
    notify_by_tls: tuple[NotifyListener, Callable[[], ssl.SSLSocket]],
) -> None:
    """A server that keeps its notify connection open, and says nothing, does not keep a client from closing."""
    listener, connect = notify_by_tls
    wire = connect()
    assert acknowledged(wire, 1).startswith(b"310")
    closing = Thread(target=listener.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()


def test_smqps_a_listener_does_not_wait_for_a_handshake(
    notify_by_tls: tuple[NotifyListener, Callable[[], ssl.SSLSocket]],
) -> None:
    """A server that connects and does not begin TLS keeps no client from closing either."""
    listener, _ = notify_by_tls
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as silent:
        silent.recv(1)  # the client says hello
        began = time.monotonic()
        listener.close(began + 0.1)
        assert time.monotonic() - began < PATIENCE / 2


def test_smqps_the_newest_notify_connection_counts(
    notify_by_tls: tuple[NotifyListener, Callable[[], ssl.SSLSocket]],
) -> None:
    """Also where the one before was never ended by its server."""
    _, connect = notify_by_tls
    for number in range(3):
        assert acknowledged(connect(), number).startswith(b"310")


@pytest.mark.parametrize(
    ("own", "ended", "left"),
    [
        ("/stocks/acme", "/Stocks/*", []),
        ("/stocks/acme", "/STOCKS/acme", []),
        ("/stocks/*", "/stocks/acme", ["/stocks/ibm"]),
    ],
)
def test_what_was_unsubscribed_from_stays_so(
    own: str, ended: str, left: list[str], kept_port: int, tmp_path: Path
) -> None:
    """A connection that is made anew subscribes to nothing that was ended in other words than it was begun with."""
    inbox, states = Inbox(), Inbox()
    with running(tmp_path / "store", port=kept_port) as first:
        first.accounts("alice", "bob")
        first.topics("/stocks/acme", "/stocks/ibm")
        client = Client(*first.address, account="alice", password="pw")
        client.watch(states)
        client.subscribe(own, inbox)
        assert client.unsubscribe(ended) == ["/stocks/acme"]
        first.close()
        assert states.next() is False
    with client, Server(tmp_path / "store", QUICK) as second:
        second.listen("127.0.0.1", kept_port)
        assert states.next() is True
        with connected(("127.0.0.1", kept_port), "bob") as bob:
            counts = {topic: bob.count_subscribers(topic) for topic in ("/stocks/acme", "/stocks/ibm")}
    assert [topic for topic, count in counts.items() if count] == left


@pytest.mark.parametrize("said", [b"200 OK\r\n\r\n", b"200-OK\r\n200 many\r\n\r\n", b"200-OK\r\n200 \r\n\r\n"])
def test_answers_without_the_number_that_was_asked_for(said: bytes) -> None:
    """They are the server's mistake, and an error of brokers; what is asked next has its own answer."""
    replies = {"COUNT": said, "PUB": said, "REM": said, "REMOVE": said}
    with FakeServer(replies=replies) as fake, connected(fake.address) as client:
        for call in (
            lambda: client.count_topics("/t"),
            lambda: client.publish("/t", "x", receipt=True),
            lambda: client.remove_topic("/t"),
        ):
            with pytest.raises(ProtocolError, match="no number"):
                call()
        client.noop()


def test_messages_without_their_number() -> None:
    """Where the next answer begins is not known: the connection is given up."""
    with (
        FakeServer(replies={"GET": b"200-OK\r\n200 many\r\n\r\n"}) as fake,
        connected(fake.address, options={"renew": None}) as client,
    ):
        with pytest.raises(ConnectionLostError, match="no number"):
            client.messages("/t")
        with pytest.raises(ConnectionLostError):
            client.noop()
    with (
        FakeServer(replies={"GET": b"200-OK\r\n200 0\r\n\r\n"}) as fake,
        connected(fake.address) as client,
        pytest.raises(ProtocolError, match="must have the message 1, got none"),
    ):
        client.message("/t", 1)


def test_SM_167_a_message_without_smuid_is_refused() -> None:
    """Nothing would tell it from others; the next one is heard."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address) as client:
        client.subscribe("/t", inbox)
        wire = fake.notify()
        wire.send(notification(1).replace("Smuid: h/1\r\n", ""))
        assert wire.line().startswith("400")
        wire.send(notification(2))
        assert (wire.line() or wire.line()) == "310 ACK"
        wire.send("310 ACK\r\n")
        assert inbox.next().smuid == "h/2"
        wire.close()


def test_SM_073_SM_168_times_of_others_are_handed_over_and_not_acted_on() -> None:
    """A server whose clock is years off, and a message created in the past: both work, and Created is as it came."""
    inbox = Inbox()
    welcome = b"200-OK\r\n200-Topic: /accounts/alice\r\n200-Time: D09092001T10160000Z\r\n200 Guid: g\r\n\r\n"
    with FakeServer(replies={"PASS": welcome}) as fake, connected(fake.address) as client:
        client.subscribe("/t", inbox)
        wire = fake.notify()
        for number, created in enumerate(("D01011980T00000000Z", "D12319998T23595900Z"), 1):
            wire.send(notification(number).replace("D09092001T10160000Z", created))
            assert (wire.line() or wire.line()) == "310 ACK"
            wire.send("310 ACK\r\n")
            assert inbox.next().attributes.value("Created") == created
        wire.close()


def test_SM_214_priority_is_what_moves_messages(server: Running) -> None:
    """Of what an administrator suspended, the urgent goes first; else the order is that of publishing."""
    inbox = Inbox()
    with connected(server.address) as alice, connected(server.address, "bob") as bob:
        alice.subscribe("/stocks/*", inbox)
        alice.suspend()
        for data, priority in (("a", None), ("b", None), ("urgent", 1)):
            bob.publish("/stocks/acme", data, priority=priority)
        alice.resume()
        assert inbox.data(3) == [b"urgent", b"a", b"b"]


def test_SM_222_a_client_hears_and_asks_at_the_same_time(server: Running) -> None:
    """While a callback takes its time, commands are answered and further messages acknowledged."""
    entered, go_on = Event(), Event()

    def wait(message: object) -> None:
        entered.set()
        go_on.wait(PATIENCE)

    with connected(server.address) as alice, connected(server.address, "bob") as bob:
        alice.subscribe("/stocks/acme", wait)
        receipts = [bob.publish("/stocks/acme", str(number), receipt=True).receipt for number in range(3)]
        assert entered.wait(PATIENCE)
        alice.noop()
        for receipt in receipts:
            assert receipt is not None
            receipt.result(PATIENCE)
        go_on.set()
