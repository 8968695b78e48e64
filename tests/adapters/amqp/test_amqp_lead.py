"""brokers.amqp: consumers whose `on_delivery` is quick: it runs on the thread that reads the socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Event

import pytest
from amqp_kit import PATIENCE, text, wait_until
from proxy_kit import Proxy

import brokers
from brokers import Connection, ConnectionLostError, ConnectionState, Delivery, queue
from brokers.amqp import AmqpConnection, Reconnect, driver
from brokers.amqp.consumer import AmqpDelivery
from brokers.amqp.listener import Listener
from brokers.amqp.receive import Inlet
from brokers.amqp.session import AmqpSession
from brokers.embedded import Broker
from brokers.threads import pool

AT_ONCE = Reconnect(initial=0.02, maximum=0.1)
NUMBER = 200


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Fail if a thread of an adapter lives on."""
    yield
    wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("amqp")])


@pytest.fixture
def broker() -> Broker:
    """A broker in this process."""
    return Broker()


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    """The AMQP listener of the broker."""
    with Listener(broker, port=0) as made:
        yield made


@pytest.fixture
def connection(listener: Listener) -> Iterator[AmqpConnection]:
    """The connection whose consumers are quick."""
    with brokers.connect(listener.url, reconnect=False) as made:
        assert isinstance(made, AmqpConnection)
        yield made


@pytest.fixture
def other(broker: Broker) -> Iterator[Connection]:
    """A connection without AMQP, to send and to receive."""
    with broker.connect() as made:
        yield made


@pytest.fixture
def never_relieved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reading thread take as long as it likes, as the machine may have much else to do."""
    monkeypatch.setattr(pool, "BEHIND_TICKS", 1_000_000)


def put(connection: Connection, name: str, *bodies: str) -> None:
    """Send messages, and wait until the broker has them."""
    for sent in [connection.send(text(queue(name), body)) for body in bodies]:
        sent.result(PATIENCE)


def on_thread(names: SimpleQueue[str], delivery: Delivery) -> None:
    """Accept, and tell the name of the thread."""
    delivery.accept()
    names.put(threading.current_thread().name)


@pytest.mark.usefixtures("never_relieved")
def test_no_change_of_threads(connection: Connection, other: Connection) -> None:
    """A quick consumer and the callback of its answer run on the reading thread."""
    names = SimpleQueue[str]()

    def answer(delivery: Delivery) -> None:
        names.put(threading.current_thread().name)
        sending = connection.answer(delivery, text(queue("answers")))
        sending.add_done_callback(lambda _: on_thread(names, delivery))

    with connection.consume(queue("q"), answer, quick=True):
        put(other, "q", "1", "2", "3")
        assert all(names.get(timeout=PATIENCE).endswith("reader") for _ in range(6))


def test_it_may_block(connection: Connection, other: Connection) -> None:
    """It may wait for outcomes, for commits, for other messages, and for a further subscription."""
    news, answers = Event(), SimpleQueue[Delivery]()

    def answer(delivery: Delivery) -> None:
        assert news.wait(PATIENCE)
        connection.send(text(queue("answers"), "sent")).result(PATIENCE)
        connection.consume(queue("answers"), answers.put, auto_accept=True)
        transaction = connection.begin()
        transaction.send(text(queue("answers"), "committed"))
        transaction.accept(delivery)
        assert transaction.commit().result(PATIENCE) == ()

    with (
        connection.consume(queue("q"), answer, quick=True),
        connection.consume(queue("news"), lambda delivery: news.set(), auto_accept=True, quick=True),
    ):
        put(other, "q", "1")
        put(other, "news", "1")
        assert [answers.get(timeout=PATIENCE).message.body for _ in range(2)] == ["sent", "committed"]


def test_lead_handed_back(connection: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one blocks, the others run elsewhere; some time after it, they run on the reading thread again."""
    monkeypatch.setattr(driver, "STAND_IN_SECONDS", 0.05)
    began, gate, names = Event(), Event(), SimpleQueue[str]()

    def block(delivery: Delivery) -> None:
        began.set()
        assert gate.wait(PATIENCE)

    with (
        connection.consume(queue("slow"), block, auto_accept=True, quick=True),
        connection.consume(queue("q"), lambda delivery: on_thread(names, delivery), quick=True),
    ):
        put(other, "slow", "1")
        assert began.wait(PATIENCE)
        put(other, "q", "1")
        assert names.get(timeout=PATIENCE).endswith("crew")
        gate.set()

        def is_back() -> bool:
            put(other, "q", "2")
            return names.get(timeout=PATIENCE).endswith("reader")

        wait_until(is_back)


def test_lead_handed_back_though_nothing_comes(
    connection: AmqpConnection, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is quiet after a slow task is not watched forever."""
    monkeypatch.setattr(driver, "STAND_IN_SECONDS", 0.05)
    done = Event()

    def work(delivery: Delivery) -> None:
        wait_until(lambda: connection._current()._is_relieved)
        done.set()

    with connection.consume(queue("q"), work, auto_accept=True, quick=True):
        put(other, "q", "1")
        assert done.wait(PATIENCE)
        wait_until(lambda: not connection._current()._is_relieved)


def test_loss_noticed_meanwhile(listener: Listener, other: Connection) -> None:
    """The connection is lost and restored while `on_delivery` blocks; its message is delivered again."""
    states, gate, deliveries = SimpleQueue[ConnectionState](), Event(), SimpleQueue[Delivery]()

    def wait(delivery: Delivery) -> None:
        deliveries.put(delivery)
        assert gate.wait(PATIENCE)
        delivery.accept()

    with (
        Proxy("127.0.0.1", listener.port) as proxy,
        brokers.connect(f"amqp://127.0.0.1:{proxy.port}", reconnect=AT_ONCE) as connection,
    ):
        connection.watch(states.put)
        connection.consume(queue("q"), wait, quick=True)
        put(other, "q", "1")
        assert deliveries.get(timeout=PATIENCE).generation == 1
        proxy.cut()
        assert states.get(timeout=PATIENCE) is ConnectionState.LOST
        assert states.get(timeout=PATIENCE) is ConnectionState.CONNECTED
        gate.set()
        assert deliveries.get(timeout=PATIENCE).generation == 2


def test_each_gets_an_answer(listener: Listener, other: Connection) -> None:
    """Quick ones and slow ones, over a connection that is cut: each gets its answer."""
    answers, missing = SimpleQueue[object](), {str(number) for number in range(NUMBER)}

    def answer(delivery: Delivery) -> None:
        body = delivery.message.body
        assert isinstance(body, str)
        Event().wait((0, 0, 0, 0.003, 0.02)[int(body) % 5])
        try:
            sending = connection.answer(delivery, text(queue("answers"), body))
        except ConnectionLostError:
            return
        sending.add_done_callback(lambda _: sending.exception() or delivery.accept())

    other.consume(queue("answers"), lambda delivery: answers.put(delivery.message.body), auto_accept=True)
    with (
        Proxy("127.0.0.1", listener.port) as proxy,
        brokers.connect(f"amqp://127.0.0.1:{proxy.port}", reconnect=AT_ONCE) as connection,
    ):
        for _ in range(8):
            connection.consume(queue("q"), answer, quick=True)
        put(other, "q", *missing)
        cuts = [NUMBER // 4, NUMBER // 2]
        while missing:
            missing.discard(str(answers.get(timeout=PATIENCE)))
            if cuts and len(missing) < cuts[-1]:
                cuts.pop()
                proxy.cut()


def waiting(session: AmqpSession) -> int:
    """Count the messages with a body of one character that have arrived and that nobody has yet."""
    octets = b""
    assert session._socket is not None
    with suppress(BlockingIOError):
        octets = session._socket.recv(1 << 20, socket.MSG_PEEK)
    return len(session._deeds) + octets.count(b"\x00\x53\x77\xa1\x01")


@pytest.mark.usefixtures("never_relieved")
@pytest.mark.parametrize("keeps", [True, False])
def test_answers_leave_together(
    connection: AmqpConnection, other: Connection, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """Answers to messages that came together leave in one piece; if that takes long, the first leave earlier."""
    monkeypatch.setattr(driver, "KEEP_SECONDS", PATIENCE if keeps else 0.0)
    session, came, passed = connection._current(), Event(), SimpleQueue[int]()

    def answer(delivery: Delivery) -> None:
        if delivery.message.body == "0":
            wait_until(lambda: waiting(session) == 9)
        elif delivery.message.body == "9" and not keeps:
            assert came.wait(PATIENCE)
        connection.answer(delivery, text(queue("answers")))
        delivery.accept()
        passed.put(session._passed)

    other.consume(queue("answers"), lambda delivery: came.set(), auto_accept=True, prefetch=100)
    put(connection, "other", "the link to send on")
    with connection.consume(queue("q"), answer, quick=True, prefetch=100):
        put(other, "q", *map(str, range(10)))
        assert came.wait(PATIENCE)
        marks = {passed.get(timeout=PATIENCE) for _ in range(10)}
    assert len(marks) <= 2 if keeps else len(marks) == 10  # some may have come together with the first


def test_close_by_a_task(connection: AmqpConnection, other: Connection) -> None:
    """A task may close its own connection; nothing waits for itself."""
    closed = Event()

    def work(delivery: Delivery) -> None:
        connection.close(PATIENCE)
        closed.set()

    connection.consume(queue("q"), work, auto_accept=True, quick=True)
    put(other, "q", "1")
    assert closed.wait(PATIENCE / 2)
    assert connection.state is ConnectionState.CLOSED


def test_close_keeps_its_deadline(connection: Connection, other: Connection) -> None:
    """Although the reading thread is at a task that does not end."""
    began, gate = Event(), Event()

    def block(delivery: Delivery) -> None:
        began.set()
        gate.wait(PATIENCE)

    connection.consume(queue("q"), block, auto_accept=True, quick=True)
    put(other, "q", "1")
    assert began.wait(PATIENCE)
    closing = threading.Thread(target=connection.close, args=(0.5,))
    closing.start()
    closing.join(PATIENCE / 2)
    assert not closing.is_alive()
    gate.set()


def test_task_ends_its_own_consumer(connection: Connection, other: Connection) -> None:
    """The broker's answer is read meanwhile, and nothing more is delivered."""
    taken = SimpleQueue[Delivery]()

    def work(delivery: Delivery) -> None:
        consumer.close()
        taken.put(delivery)

    consumer = connection.consume(queue("q"), work, quick=True, prefetch=1)
    put(other, "q", "1", "2")
    assert taken.get(timeout=PATIENCE).message.body == "1"
    with other.consume(queue("q"), taken.put, auto_accept=True):
        assert {taken.get(timeout=PATIENCE).message.body for _ in range(2)} == {"1", "2"}


def test_without_a_further_thread(
    connection: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If no thread can stand in, the reading thread goes on after its task."""

    def refuse(work: object) -> None:
        raise RuntimeError("no thread")

    monkeypatch.setattr(driver, "with_stack", refuse)
    names = SimpleQueue[str]()

    def work(delivery: Delivery) -> None:
        if delivery.message.body == "slow":
            wait_until(lambda: "no thread stands in" in caplog.text)
        on_thread(names, delivery)

    with connection.consume(queue("q"), work, quick=True):
        put(other, "q", "slow", "next")
        assert [names.get(timeout=PATIENCE).split()[-1] for _ in range(2)] == ["reader", "reader"]


@pytest.mark.usefixtures("never_relieved")
@pytest.mark.parametrize("keeps", [True, False])
def test_what_came_together_is_accepted_together(
    connection: AmqpConnection, other: Connection, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """Messages that count as accepted once they were handled; if that takes long, the first are accepted earlier."""
    monkeypatch.setattr(driver, "KEEP_SECONDS", PATIENCE if keeps else 0.0)
    session, held = connection._current(), SimpleQueue[int]()

    def work(delivery: Delivery) -> None:
        assert isinstance(delivery, AmqpDelivery)
        if delivery.message.body == "0":
            wait_until(lambda: waiting(session) == 9)
        held.put(sum(delivery.inlet.is_holding(number) for number in range(1, delivery.number)))
        if delivery.message.body == "9":
            inlets.append(delivery.inlet)

    inlets = list[Inlet]()
    with connection.consume(queue("q"), work, auto_accept=True, inline=True, prefetch=100):
        put(other, "q", *map(str, range(10)))
        before = [held.get(timeout=PATIENCE) for _ in range(10)]
        wait_until(lambda: not any(inlets[0].is_holding(number) for number in range(1, 11)))
    assert before.count(0) <= 3 if keeps else before.count(0) == 10  # they may have come in two or three pieces
    with other.consume(queue("q"), lambda delivery: held.put(0), auto_accept=True):
        put(other, "q", "new")
        held.get(timeout=PATIENCE)
    assert held.empty()


@pytest.mark.usefixtures("never_relieved")
def test_what_was_handled_does_not_go_back(connection: AmqpConnection, other: Connection) -> None:
    """If the consumer is closed before the broker was told; only the message that is being handled goes back."""
    session, taken = connection._current(), SimpleQueue[object]()

    def work(delivery: Delivery) -> None:
        if delivery.message.body == "0":
            wait_until(lambda: waiting(session) == 9)
        elif delivery.message.body == "5":
            assert isinstance(delivery, AmqpDelivery)
            closing.start()
            wait_until(lambda: not delivery.inlet.is_live)
            taken.put(None)

    consumer = connection.consume(queue("q"), work, auto_accept=True, inline=True, prefetch=100)
    closing = threading.Thread(target=consumer.close)
    put(other, "q", *map(str, range(10)))
    assert taken.get(timeout=PATIENCE) is None
    closing.join(PATIENCE)
    with other.consume(queue("q"), lambda delivery: taken.put(delivery.message.body), auto_accept=True):
        assert {taken.get(timeout=PATIENCE) for _ in range(5)} == set("56789")
    assert taken.empty()


@pytest.mark.usefixtures("never_relieved")
def test_after_arrivals(connection: AmqpConnection, other: Connection) -> None:
    """A function runs once the messages that came together were handled; at once on any other thread."""
    session, events = connection._current(), SimpleQueue[str]()

    def work(delivery: Delivery) -> None:
        body = str(delivery.message.body)
        if body == "0":
            wait_until(lambda: waiting(session) == 9)
        if body == "1":
            connection.after_arrivals(lambda: events.put("after"))
        events.put(body)
        delivery.accept()

    with connection.consume(queue("q"), work, quick=True, prefetch=100):
        put(other, "q", *map(str, range(10)))
        told = [events.get(timeout=PATIENCE) for _ in range(11)]
    assert told[:2] == ["0", "1"]
    assert told.index("after") > 2
    connection.after_arrivals(lambda: events.put("at once"))
    assert events.get_nowait() == "at once"
