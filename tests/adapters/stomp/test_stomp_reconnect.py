"""brokers.stomp: a connection that is lost and made again, at the same broker or another."""

from __future__ import annotations

import gc
import logging
import re
import socket
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event

import pytest
from ports import nobody
from proxy_kit import RESET, Proxy
from real_brokers import STARTERS, RealBroker
from stomp_kit import PATIENCE, Fixtures, Inbox, OnBoth, accepting, assert_no_threads, message_to, send, wait_until

import brokers
from brokers import (
    ClosedError,
    ConnectionFailedError,
    ConnectionLostError,
    ConnectionState,
    Delivery,
    StaleDestinationError,
    queue,
)
from brokers.stomp import Reconnect, StompConnection

AT_ONCE = Reconnect(initial=0.02, maximum=0.1)

CONNECTED, LOST, CLOSED = ConnectionState.CONNECTED, ConnectionState.LOST, ConnectionState.CLOSED


class States:
    """The states that a connection reports."""

    def __init__(self, connection: StompConnection) -> None:
        self._seen: SimpleQueue[ConnectionState] = SimpleQueue()
        connection.watch(self._seen.put)

    def next(self) -> ConnectionState:
        return self._seen.get(timeout=PATIENCE)


def connect(url: str, **options: object) -> StompConnection:
    """Connect, with short pauses between attempts unless `options` say else."""
    made = brokers.connect(url, timeout=PATIENCE, **{"reconnect": AT_ONCE} | options)
    assert isinstance(made, StompConnection)
    return made


def test_no_broker_at_all() -> None:
    """The error names each and says why."""
    with (
        nobody() as first,
        nobody() as second,
        pytest.raises(ConnectionFailedError, match="none of 2 brokers") as caught,
    ):
        brokers.connect(f"stomp://u:tops3cret@127.0.0.1:{first},127.0.0.1:{second}", timeout=PATIENCE)
    for port in (first, second):
        assert f"no connection to stomp://127.0.0.1:{port}: Connection refused" in str(caught.value)
    assert "tops3cret" not in str(caught.value)
    assert_no_threads()


@pytest.mark.broker
class TestReconnecting(OnBoth):
    """A proxy before each real broker loses connections, refuses them, and takes them again."""

    @pytest.fixture
    def cut(self, proxy: Proxy) -> Iterator[StompConnection]:
        """A connection by way of the proxy."""
        with connect(proxy.stomp_url) as connection:
            yield connection

    def test_consumers_go_on(self, proxy: Proxy, cut: StompConnection, name: str) -> None:
        """The same consumers get what is sent after; each state is told once; the generation counts."""
        states, inboxes = States(cut), [accepting() for _ in range(3)]
        consumers = [cut.consume(queue(f"{name}.{number}"), inbox) for number, inbox in enumerate(inboxes)]
        for _ in range(2):
            proxy.cut()
            assert (states.next(), states.next()) == (LOST, CONNECTED)
            cut.wait_connected(0)
            for number, inbox in enumerate(inboxes):
                send(cut, message_to(queue(f"{name}.{number}")))
                assert inbox.next().generation == cut.generation
        assert cut.generation == 3
        consumers[0].close()
        proxy.cut()
        assert (states.next(), states.next()) == (LOST, CONNECTED)
        send(cut, message_to(queue(f"{name}.0")), message_to(queue(f"{name}.1")))
        assert inboxes[1].next().generation == 4
        assert inboxes[0].nothing()

    def test_while_lost(self, proxy: Proxy, cut: StompConnection, name: str) -> None:
        """All that would begin something is refused at once; waiting ends in time, or when there is a session again."""
        states = States(cut)
        proxy.leave()
        assert states.next() is LOST
        for begin in (lambda: cut.send(message_to(queue(name))), cut.begin, cut.temporary):
            with pytest.raises(ConnectionLostError, match="was lost"):
                begin()
        with pytest.raises(ConnectionLostError):
            cut.consume(queue(name), Inbox())
        with pytest.raises(ConnectionLostError):
            cut.wait_connected(0.05)
        proxy.come_back()
        cut.wait_connected(PATIENCE)
        send(cut, message_to(queue(name)))

    def test_what_was_under_way(self, proxy: Proxy, cut: StompConnection, name: str) -> None:
        """What waited for an answer fails at once; the delivery held is void and comes again, to the same consumer."""
        held = Inbox()
        cut.consume(queue(name), held)
        send(cut, message_to(queue(name)))
        before = held.next()
        early = cut.begin()
        early.accept(before)
        proxy.silence()
        sending = cut.send(message_to(queue(name)))
        transaction = cut.begin()
        transaction.send(message_to(queue(name)))
        committing = transaction.commit()
        states = States(cut)
        proxy.cut()
        for future in (sending, committing):
            with pytest.raises(ConnectionLostError):
                future.result(PATIENCE)
        proxy.speak()
        assert (states.next(), states.next()) == (LOST, CONNECTED)
        with pytest.raises(ConnectionLostError):
            early.commit().result(PATIENCE)
        again = held.next()
        assert again.message.message_id == before.message.message_id
        assert again.message.redelivered
        before.accept()
        before.release()
        before.reject("void")
        late = cut.begin()
        late.accept(before)
        with pytest.raises(ClosedError, match="went back to the broker"):
            late.commit().result(PATIENCE)
        again.accept()

    def test_temporary_destinations_end(self, proxy: Proxy, cut: StompConnection, name: str) -> None:
        """Their consumers end with them; new ones work."""
        states, inbox = States(cut), accepting()
        old = cut.temporary()
        consumer = cut.consume(old, inbox)
        proxy.cut()
        assert (states.next(), states.next()) == (LOST, CONNECTED)
        for begin in (
            lambda: cut.consume(old, inbox),
            lambda: cut.send(message_to(old)),
            lambda: cut.send(message_to(queue(name), reply_to=old)),
        ):
            with pytest.raises(StaleDestinationError):
                begin()
        consumer.close()
        new = cut.temporary()
        assert new != old
        cut.consume(new, inbox)
        send(cut, message_to(new))
        assert inbox.next().generation == 2

    def test_release_that_waits(self, proxy: Proxy, cut: StompConnection, name: str) -> None:
        """A message whose release waits when the connection goes comes again, once."""
        states, seen = States(cut), SimpleQueue[Delivery]()

        def on_delivery(delivery: Delivery) -> None:
            if delivery.generation == 1:
                delivery.release()
                proxy.cut()
            else:
                delivery.accept()
            seen.put(delivery)

        cut.consume(queue(name), on_delivery)
        send(cut, message_to(queue(name), b"1"))
        assert (states.next(), states.next()) == (LOST, CONNECTED)
        assert [seen.get(timeout=PATIENCE).generation for _ in range(2)] == [1, 2]
        send(cut, message_to(queue(name), b"2"))
        assert seen.get(timeout=PATIENCE).message.body == b"2"

    def test_handler_that_answers_at_once(self, proxy: Proxy, cut: StompConnection, name: str) -> None:
        """What is delivered while other consumers still subscribe may be answered in a transaction."""
        states, answers = States(cut), accepting()
        may_answer = Event()

        def answer(delivery: Delivery) -> None:
            if not may_answer.is_set():
                return
            transaction = cut.begin()
            transaction.accept(delivery)
            transaction.send(message_to(queue(f"{name}.answers")))
            transaction.commit().result(PATIENCE)

        cut.consume(queue(name), answer)
        for number in range(20):
            cut.consume(queue(f"{name}.{number}"), accepting())
        cut.consume(queue(f"{name}.answers"), answers)
        send(cut, message_to(queue(name)))
        may_answer.set()
        proxy.cut()
        assert (states.next(), states.next()) == (LOST, CONNECTED)
        answers.next()

    def test_close_while_reconnecting(
        self, proxy: Proxy, cut: StompConnection, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is prompt and leaves no thread and no socket; the same failure again and again is logged once."""
        states = States(cut)
        consumer = cut.consume(queue(name), Inbox())
        proxy.leave()
        assert states.next() is LOST
        wait_until(lambda: "attempt 1 failed" in caplog.text)
        with ThreadPoolExecutor(1) as waiting:
            waiter = waiting.submit(cut.wait_connected)
            began = time.monotonic()
            cut.close(3 * PATIENCE)
            assert time.monotonic() - began < 5.0
            assert states.next() is CLOSED
            with pytest.raises(ClosedError):
                waiter.result(PATIENCE)
        consumer.close()
        assert_no_threads()
        with pytest.raises(ClosedError):
            cut.wait_connected()
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len([record for record in warnings if "attempt" in record.message]) == 1

    def test_attempts_that_are_reset(
        self, proxy: Proxy, cut: StompConnection, caplog: pytest.LogCaptureFixture
    ) -> None:
        """However an attempt ends, no socket and no thread of it stays."""
        caplog.set_level(logging.DEBUG, "brokers")
        proxy.leave()
        with socket.create_server(("127.0.0.1", proxy.port)) as rude:
            rude.settimeout(PATIENCE)
            for _ in range(30):
                client, _ = rude.accept()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
        wait_until(lambda: "attempt 30 failed" in caplog.text)
        cut.close()
        assert_no_threads()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            gc.collect()
        assert [str(each.message) for each in found] == []

    def test_close_while_a_broker_does_not_answer(self, proxy: Proxy, cut: StompConnection) -> None:
        """A login under way does not hold it up."""
        states = States(cut)
        proxy.silence()
        proxy.cut()
        assert states.next() is LOST
        wait_until(lambda: proxy.accepted > 1)
        began = time.monotonic()
        cut.close(3 * PATIENCE)
        assert time.monotonic() - began < 5.0
        assert_no_threads()

    def test_attempts_end(self, proxy: Proxy, name: str) -> None:
        """After so many the connection is closed, and says why."""
        with connect(proxy.stomp_url + "?maxReconnectAttempts=2") as connection:
            states = States(connection)
            proxy.leave()
            assert (states.next(), states.next()) == (LOST, CLOSED)
            with pytest.raises(ClosedError, match="could not reconnect in 2 attempts: no connection"):
                connection.send(message_to(queue(name)))
            assert_no_threads()

    def test_without_reconnecting(self, proxy: Proxy, name: str) -> None:
        """`reconnect=False`: lost is lost."""
        with connect(proxy.stomp_url, reconnect=False) as connection:
            states, accepted = States(connection), proxy.accepted
            proxy.cut()
            assert states.next() is LOST
            with pytest.raises(ConnectionLostError):
                connection.wait_connected()
            assert proxy.accepted == accepted
        assert states.next() is CLOSED
        assert_no_threads()

    def test_unwatch(self, proxy: Proxy, cut: StompConnection) -> None:
        """Who watches no more is told nothing."""
        told: list[ConnectionState] = []
        cut.watch(told.append)
        cut.unwatch(told.append)
        cut.unwatch(told.append)
        states = States(cut)
        proxy.cut()
        assert (states.next(), states.next()) == (LOST, CONNECTED)
        assert told == []

    def test_queues_that_end_before_the_connection(self, activemq: RealBroker, name: str) -> None:
        """They are in a session beside; when that is lost, so is the connection, and all of them are made again."""
        with connect(f"{activemq.stomp_url}?clientId={name}") as connection:
            states, inbox, held = States(connection), accepting(), Inbox()
            destination = connection.temporary(ends=True)
            connection.consume(destination, inbox, auto_accept=True)
            assert connection._annexes is not None
            (annex,) = connection._annexes._annexes
            annex.link.drop()
            assert (states.next(), states.next()) == (LOST, CONNECTED)
            with pytest.raises(StaleDestinationError):
                connection.consume(destination, inbox, auto_accept=True)
            with pytest.raises(StaleDestinationError):
                connection.send(message_to(queue(name), reply_to=destination))
            again = connection.temporary(ends=True)
            with connection.consume(again, held):
                send(connection, message_to(again, b"1"))
                transaction = connection.begin()
                transaction.accept(held.next())  # of another session: the broker could not
                with pytest.raises(ClosedError, match="nothing was committed"):
                    transaction.commit().result(PATIENCE)
            connection.end_temporary(again)
            assert (connection.state, connection.generation) == (CONNECTED, 2)
        assert_no_threads()

    def test_silent_broker_is_passed_over(self, proxy: Proxy, broker: RealBroker) -> None:
        """One that takes the connection and says nothing gets its part of the time only."""
        proxy.silence()
        urls = f"failover:({proxy.stomp_url},{broker.stomp_url})"
        with brokers.connect(urls, timeout=6.0) as connection:
            assert connection.generation == 1
        assert proxy.accepted == 2 + 4  # and was asked once more, and greeted in other protocols

    def test_refused_login_is_tried_again(
        self, proxy: Proxy, cut: StompConnection, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Credentials that are refused when the connection is made again are logged, without them, and tried again."""
        states = States(cut)
        proxy.leave()
        with socket.create_server(("127.0.0.1", proxy.port)) as strict:
            strict.settimeout(PATIENCE)
            for _ in range(2):
                client, _ = strict.accept()
                with client:
                    client.recv(4096)
                    client.sendall(b"ERROR\nmessage:User name [admin] or password is invalid.\n\n\0")
        proxy.come_back()
        assert (states.next(), states.next()) == (LOST, CONNECTED)
        assert re.search(r"attempt \d failed: stomp://", caplog.text)
        assert "password is invalid" in caplog.text
        assert "passcode" not in caplog.text


@pytest.mark.broker
class TestSeveral(OnBoth):
    """A list of brokers: one that nobody is at, a proxy that leaves, and a real one."""

    def test_first_of_several(self, proxy: Proxy, broker: RealBroker, name: str) -> None:
        """`connect` takes the first that answers; when that goes, the next; what is sent then arrives there."""
        direct = f"127.0.0.1:{broker.ports.stomp}"
        with (
            nobody() as gone,
            connect(f"stomp://admin:admin@127.0.0.1:{gone},127.0.0.1:{proxy.port},{direct}") as connection,
        ):
            assert proxy.accepted >= 1  # twice where the broker is spoken to in another version of STOMP
            states, inbox = States(connection), accepting()
            connection.consume(queue(name), inbox)
            proxy.leave()
            assert (states.next(), states.next()) == (LOST, CONNECTED)
            send(connection, message_to(queue(name)))
            inbox.next()

    def test_the_other_kind(self, proxy: Proxy, request: pytest.FixtureRequest, broker: RealBroker, name: str) -> None:
        """The next may be of the other kind: each is spoken to in its own dialect, and consumers go on."""
        next_one = request.getfixturevalue("artemis" if broker.recipe.title == "ActiveMQ" else "activemq")
        with connect(f"failover:({proxy.stomp_url},{next_one.stomp_url})") as connection:
            states, inbox, before = States(connection), accepting(), connection.capabilities
            connection.consume(queue(name), inbox)
            for _ in range(2):
                reply_to = connection.temporary()
                replies = accepting()
                connection.consume(reply_to, replies)
                send(connection, message_to(queue(name), b"asked", reply_to=reply_to))
                asked = inbox.next().message
                assert (asked.body, asked.reply_to is not None) == (b"asked", True)
                send(connection, message_to(reply_to, b"answered"))
                assert replies.next().message.body == b"answered"
                if connection.generation == 1:
                    proxy.leave()
                    assert (states.next(), states.next()) == (LOST, CONNECTED)
            assert connection.capabilities.stable_message_id is not before.stable_message_id


@pytest.mark.broker
class TestRestart(Fixtures):
    """A broker that is killed and started again on its port."""

    @pytest.mark.parametrize("product", STARTERS)
    def test_killed_and_started_again(self, product: str, name: str) -> None:
        """What it held comes again, what is sent then arrives, consumers go on, temporary queues are new."""
        with STARTERS[product]() as mortal, connect(mortal.stomp_url) as connection:
            states, inbox = States(connection), accepting()
            send(connection, message_to(queue(f"{name}.kept"), b"kept"))
            connection.consume(queue(name), inbox)
            old = connection.temporary()
            mortal.kill()
            assert states.next() is LOST
            mortal.start()
            connection.wait_connected(PATIENCE)
            send(connection, message_to(queue(name), reply_to=connection.temporary()))
            inbox.next()
            connection.consume(queue(f"{name}.kept"), inbox)
            assert inbox.next().message.body == b"kept"
            with pytest.raises(StaleDestinationError):
                connection.consume(old, inbox)
            assert states.next() is CONNECTED
        assert_no_threads()
