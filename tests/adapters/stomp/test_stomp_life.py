"""brokers.stomp: connecting, closing, and what happens when the broker goes."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

import pytest
from broker_recipes import Artemis, Classic, Recipe
from ports import nobody
from real_brokers import ChildBroker, RealBroker
from stomp_kit import (
    PATIENCE,
    Fixtures,
    Inbox,
    OnBoth,
    assert_no_threads,
    message_to,
)

import brokers
from brokers import (
    ClosedError,
    ConnectionFailedError,
    ConnectionLostError,
    ConnectionState,
    Delivery,
    DeliveryMode,
    queue,
)

RECIPES: dict[str, type[Recipe]] = {"activemq": Classic, "artemis": Artemis}


def test_login_cannot_smuggle_a_header() -> None:
    """CONNECT is not escaped, so a line break in the password would begin a header."""
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ValueError, match="line breaks"):
        brokers.connect(f"stomp://u:p%0Ahost%3Ax@127.0.0.1:{server.getsockname()[1]}", timeout=PATIENCE)


def test_nobody_listens() -> None:
    """The error names the address, not the password."""
    with nobody() as port, pytest.raises(ConnectionFailedError, match=str(port)) as caught:
        brokers.connect(f"stomp://admin:tops3cret@127.0.0.1:{port}", timeout=PATIENCE)
    assert "tops3cret" not in str(caught.value)


@contextmanager
def answering(*greetings: bytes) -> Iterator[str]:
    """Run a server that answers the first octets of one client after the other with `greetings`; give its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        clients: list[socket.socket] = []

        def serve() -> None:
            for greeting in greetings:
                try:
                    client, _ = server.accept()
                except OSError:  # closed before anybody came
                    return
                clients.append(client)
                client.recv(4096)
                client.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"stomp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)
        for client in clients:
            client.close()


def test_server_that_never_answers() -> None:
    """stomp.py alone would wait for ever."""
    with answering(b"") as url, pytest.raises(ConnectionFailedError, match="did not answer"):
        brokers.connect(url, timeout=1.0)
    assert_no_threads()


def test_server_that_answers_the_second_time(caplog: pytest.LogCaptureFixture) -> None:
    """Artemis may have locked up one thread of its network: who is given to another is served."""
    greeting = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6\n\n\0"
    greeted = [greeting] * 4  # in other protocols, when the first time takes long
    with answering(b"", *greeted, greeting) as url, brokers.connect(url, timeout=6.0) as connection:
        assert connection.state == "connected"
        connection._link.drop()
    assert "did not answer within 2.0 s; logging in again" in caplog.text


@pytest.mark.parametrize(
    "greeting", [b"CONNECTED\nversion:1.2\nserver:RabbitMQ/4\n\n\0", b"CONNECTED\nversion:1.2\n\n\0"]
)
def test_broker_without_dialect(greeting: bytes) -> None:
    """A broker that is not in the table, or does not say what it is."""
    with answering(greeting) as url, pytest.raises(ConnectionFailedError, match="no STOMP dialect"):
        brokers.connect(url, timeout=PATIENCE)
    assert_no_threads()


@pytest.mark.parametrize(("dialect", "version"), [("activemq", "1.2"), ("artemis", "1.1")])
def test_dialect_that_is_said(dialect: str, version: str) -> None:
    """A broker may be told to hide what it is: then the program says it, and the right version is asked for at once."""
    greeting = f"CONNECTED\nversion:{version}\n\n\0".encode()
    with answering(greeting) as url, brokers.connect(url, timeout=PATIENCE, dialect=dialect) as connection:
        assert connection.capabilities.broker == dialect
        assert connection._link.login.version == version
        connection._link.drop()  # that server does not know how to say good-bye


@pytest.mark.broker
class TestLife(OnBoth):
    """A connection's beginning and end, on each real broker."""

    def test_close_leaves_nothing(self, broker: RealBroker, name: str) -> None:
        """Consumers, reader, heart-beats and callbacks end; closing again does nothing; what comes after is refused."""
        states: SimpleQueue[ConnectionState] = SimpleQueue()
        connection = brokers.connect(broker.stomp_url)
        connection.watch(states.put)
        consumers = [connection.consume(queue(name), Inbox()) for _ in range(3)]
        transaction = connection.begin()
        connection.send(message_to(queue(name))).add_done_callback(lambda _: None)
        connection.close()
        connection.close()
        assert states.get(timeout=PATIENCE) is ConnectionState.CLOSED
        assert_no_threads()
        consumers[0].close()
        with pytest.raises(ClosedError):
            connection.send(message_to(queue(name)))
        with pytest.raises(ClosedError):
            connection.consume(queue(name), Inbox())
        with pytest.raises(ClosedError):
            connection.begin()
        with pytest.raises(ClosedError):
            connection.temporary()
        with pytest.raises(ClosedError):
            transaction.commit().result(PATIENCE)

    def test_close_from_the_consumer_itself(self, broker: RealBroker, name: str) -> None:
        """An `on_delivery` may close its consumer and its connection."""
        connection = brokers.connect(broker.stomp_url)

        def leave(delivery: Delivery) -> None:
            delivery.accept()
            consumer.close()
            connection.close()

        inbox = Inbox(leave)
        consumer = connection.consume(queue(name), inbox)
        connection.send(message_to(queue(name))).result(PATIENCE)
        inbox.next()
        assert_no_threads()


@pytest.fixture(scope="module", params=RECIPES)
def child(request: pytest.FixtureRequest) -> Iterator[ChildBroker]:
    """Run each product."""
    with ChildBroker(RECIPES[request.param]()) as broker:
        yield broker


@pytest.mark.broker
class TestMortal(Fixtures):
    """A broker that falls silent, or dies: one of the tests' own, as a child process that can be stopped and killed."""

    @pytest.fixture
    def mortal(self, child: ChildBroker) -> ChildBroker:
        """Have it run, though the test before killed it."""
        if child.pid is None:
            child.start()
        return child

    def test_broker_that_falls_silent(self, mortal: ChildBroker, name: str) -> None:
        """Without heart-beats for one and a half intervals the connection counts as lost."""
        states: SimpleQueue[ConnectionState] = SimpleQueue()
        assert mortal.pid is not None
        with brokers.connect(mortal.stomp_url, heartbeat=2.0) as connection:
            connection.watch(states.put)
            with pytest.raises(Empty):
                states.get(timeout=5.0)
            os.kill(mortal.pid, signal.SIGSTOP)
            assert states.get(timeout=PATIENCE) is ConnectionState.LOST
            os.kill(mortal.pid, signal.SIGCONT)
        assert_no_threads()

    def test_broker_that_dies(self, mortal: ChildBroker, name: str) -> None:
        """Everything under way fails, the state is told, and what comes after is refused at once."""
        states: SimpleQueue[ConnectionState] = SimpleQueue()
        assert mortal.pid is not None
        with brokers.connect(mortal.stomp_url) as connection:
            connection.watch(states.put)
            inbox = Inbox()
            connection.consume(queue(name), inbox)
            connection.send(message_to(queue(name))).result(PATIENCE)
            delivery = inbox.next()
            os.kill(mortal.pid, signal.SIGSTOP)
            sending = connection.send(message_to(queue(name), delivery_mode=DeliveryMode.PERSISTENT))
            transaction = connection.begin()
            transaction.send(message_to(queue(name)))
            committing = transaction.commit()
            late = connection.begin()
            late.accept(delivery)
            mortal.kill()
            for future in (sending, committing):
                with pytest.raises(ConnectionLostError):
                    future.result(PATIENCE)
            assert states.get(timeout=PATIENCE) is ConnectionState.LOST
            with pytest.raises(ConnectionLostError):
                connection.send(message_to(queue(name)))
            with pytest.raises(ConnectionLostError):
                late.commit().result(PATIENCE)
            delivery.accept()
            delivery.release()
            delivery.reject("nobody listens")
            connection.close()
            assert states.get(timeout=PATIENCE) is ConnectionState.CLOSED
        assert_no_threads()
