"""brokers.stomp: what a quick `on_delivery` on the thread that reads must not hold up, with a broker of a few lines."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread

import pytest
from stomp_kit import PATIENCE, assert_no_threads, message_to, wait_until

import brokers
from brokers import BrokerError, ConnectionState, Delivery, DeliveryMode, queue
from brokers.stomp import StompConnection
from brokers.stomp import socket as wire
from brokers.threads import pool
from brokers.threads.pool import Crew

SLOWLY = 1_000_000
"""Looks: nobody is relieved."""


class Scripted:
    """A broker for one client: greets it, gives receipts, keeps what it gets, and sends what the test says."""

    def __init__(self) -> None:
        self.got: SimpleQueue[str] = SimpleQueue()
        self.signs: SimpleQueue[float] = SimpleQueue()
        self.listens = Event()
        self.listens.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._client: socket.socket
        self._subscription = ""
        self._count = 0
        self._thread = Thread(target=self._serve, name="scripted broker")
        self._thread.start()

    @property
    def url(self) -> str:
        return f"stomp://127.0.0.1:{self._listener.getsockname()[1]}"

    def messages(self, number: int) -> None:
        """Send messages, with bodies that count from 0, in one piece."""
        frames = []
        for _ in range(number):
            head = f"subscription:{self._subscription}\nmessage-id:ID:host-1-1-1:1:1:1:{self._count}\nack:{self._count}"
            frames.append(f"MESSAGE\n{head}\ndestination:/queue/q\n\n{self._count}\0".encode())
            self._count += 1
        self.send(b"".join(frames))

    def send(self, octets: bytes) -> None:
        self._client.sendall(octets)

    def leave(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def next(self, command: str) -> None:
        """Wait for a frame."""
        while self.got.get(timeout=PATIENCE) != command:
            pass

    def close(self) -> None:
        self.listens.set()
        self.leave()
        self._listener.close()
        self._thread.join(PATIENCE)
        self._client.close()

    def _serve(self) -> None:
        self._client, _ = self._listener.accept()
        rest = b""
        with suppress(OSError):
            while data := self._client.recv(65536):
                self.listens.wait(PATIENCE)
                *frames, rest = (rest + data).split(b"\0")
                for frame in frames:
                    self._take(frame.lstrip(b"\n").decode())
                if not rest.strip(b"\n"):
                    if rest:
                        self.signs.put(time.monotonic())
                    rest = b""

    def _take(self, frame: str) -> None:
        command, *lines = frame.partition("\n\n")[0].split("\n")
        headers = dict(line.split(":", 1) for line in lines)
        if command == "CONNECT":
            beats = headers["heart-beat"]
            self.send(f"CONNECTED\nversion:1.2\nserver:ActiveMQ/6\nheart-beat:{beats}\n\n\0".encode())
        if command == "SUBSCRIBE":
            self._subscription = headers["id"]
        if "receipt" in headers:
            self.send(f"RECEIPT\nreceipt-id:{headers['receipt']}\n\n\0".encode())
        self.got.put(command)
        if command == "DISCONNECT":
            self.leave()


@pytest.fixture
def broker() -> Iterator[Scripted]:
    """Run a broker."""
    broker = Scripted()
    yield broker
    broker.close()
    assert_no_threads()


def connect(broker: Scripted, heartbeat: float = 0.0) -> StompConnection:
    """Connect; a connection that is lost is not made again."""
    made = brokers.connect(broker.url, timeout=PATIENCE, heartbeat=heartbeat, reconnect=False)
    assert isinstance(made, StompConnection)
    return made


def answer_to(connection: StompConnection, delivery: Delivery) -> None:
    """Answer as a dispatcher does; the answer is nothing that the broker confirms."""
    connection.answer(delivery, message_to(queue("answers"), delivery_mode=DeliveryMode.NON_PERSISTENT)).result(
        PATIENCE
    )


def is_relieved(connection: StompConnection) -> bool:
    """Say whether another thread reads than the one that should."""
    return any(guest.is_relieved for guest in connection._crew._guests.values())


def test_close_keeps_its_deadline(broker: Scripted) -> None:
    """Though the thread that reads is at a task that goes on and on."""
    began, gate = Event(), Event()

    def wait(delivery: Delivery) -> None:
        began.set()
        gate.wait(PATIENCE)

    connection = connect(broker)
    connection.consume(queue("q"), wait, quick=True)
    broker.messages(1)
    assert began.wait(PATIENCE)
    since = time.monotonic()
    connection.close(1.5)
    assert time.monotonic() - since < PATIENCE / 2  # a busy machine has deadlines of its own; the task has none
    broker.next("DISCONNECT")
    gate.set()


def test_close_by_a_task(broker: Scripted) -> None:
    """It takes leave, hears the answer, and what came with the message goes back; nothing waits for itself."""
    closed = Event()

    def close(delivery: Delivery) -> None:
        connection.close(PATIENCE)
        closed.set()

    connection = connect(broker)
    connection.consume(queue("q"), close, quick=True, prefetch=10)
    broker.messages(5)
    assert closed.wait(PATIENCE / 2)
    broker.next("DISCONNECT")
    assert connection.state is ConnectionState.CLOSED


def test_a_crew_that_is_closed_relieves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was to relieve a guest and had not begun when the crew was closed does so: the guest may wait for it."""
    relieved, may_begin, begin = Event(), Event(), Crew._work
    monkeypatch.setattr(Crew, "_work", lambda *arguments: may_begin.wait(PATIENCE) and begin(*arguments))
    short = Crew("short-lived")
    guest = short.admit(relieved.set)
    short.run(lambda: wait_until(lambda: guest.is_relieved))
    short.close()
    assert not relieved.is_set()
    may_begin.set()
    assert relieved.wait(PATIENCE)


def test_why_a_broker_left(broker: Scripted) -> None:
    """Who writes to a broker that complained and left hears why, also where it is the one that should read that."""
    began, go, errors = Event(), Event(), SimpleQueue[BrokerError]()

    def write(delivery: Delivery) -> None:
        began.set()
        assert go.wait(PATIENCE)
        message = message_to(queue("others"), b"x" * 60_000, delivery_mode=DeliveryMode.NON_PERSISTENT)
        while (error := connection.send(message).exception(PATIENCE)) is None:
            pass
        assert isinstance(error, BrokerError)
        errors.put(error)

    with connect(broker) as connection:
        connection.consume(queue("q"), write, quick=True)
        broker.listens.clear()
        broker.messages(1)
        assert began.wait(PATIENCE)
        broker.send(b"ERROR\nmessage:enough of that\n\n\0")
        broker.leave()
        go.set()
        assert "enough of that" in str(errors.get(timeout=PATIENCE))


def test_answers_do_not_wait_for_the_last(broker: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what came together takes long together the first answer leaves after some milliseconds."""
    monkeypatch.setattr(pool, "BEHIND_TICKS", SLOWLY)
    monkeypatch.setattr(wire, "KEEP_SECONDS", 0.0)
    done = Event()

    def answer(delivery: Delivery) -> None:
        if delivery.message.body == "2":
            broker.next("SEND")
            broker.next("SEND")
            done.set()
        answer_to(connection, delivery)

    with connect(broker) as connection:
        connection.consume(queue("q"), answer, quick=True, prefetch=10)
        broker.messages(10)
        assert done.wait(PATIENCE)


def test_signs_of_life(broker: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are given between tasks too; and what the broker sent meanwhile is one, however late it is read."""
    monkeypatch.setattr(pool, "BEHIND_TICKS", SLOWLY)
    monkeypatch.setattr(wire, "KEEP_SECONDS", 0.0)
    last = Event()

    def wait(delivery: Delivery) -> None:
        if delivery.message.body == "0":
            assert not last.wait(1.2)  # the broker's silence may last 0.75 s
            broker.send(b"\n")
        elif delivery.message.body == "1":
            assert broker.signs.get(timeout=PATIENCE)
            broker.messages(1)
        else:
            last.set()

    with connect(broker, heartbeat=0.5) as connection:
        connection.consume(queue("q"), wait, quick=True, auto_accept=True, prefetch=10)
        broker.messages(2)
        assert last.wait(PATIENCE)


def test_the_lead_is_handed_back_though_nothing_comes(broker: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a connection that is quiet after one slow task would be watched, and use the processor, until it is not."""
    monkeypatch.setattr(wire, "STAND_IN_SECONDS", 0.0)
    seen = SimpleQueue[bool]()

    def be_slow(delivery: Delivery) -> None:
        wait_until(lambda: is_relieved(connection))
        seen.put(True)

    with connect(broker) as connection:
        connection.consume(queue("q"), be_slow, quick=True)
        broker.messages(1)
        assert seen.get(timeout=PATIENCE)
        wait_until(lambda: not is_relieved(connection))


def test_what_is_lost_with_a_connection(broker: Scripted) -> None:
    """An answer that was kept never leaves without its request's acknowledgement, so the broker delivers that again."""
    states = SimpleQueue[ConnectionState]()

    def answer(delivery: Delivery) -> None:
        answer_to(connection, delivery)
        if delivery.message.body == "1":
            connection._link.drop()  # type: ignore[union-attr]

    connection = connect(broker)
    connection.watch(states.put)
    connection.consume(queue("q"), answer, quick=True, prefetch=10)
    broker.next("SUBSCRIBE")
    broker.messages(5)
    assert states.get(timeout=PATIENCE) is ConnectionState.LOST
    connection.close()
    broker.close()
    got = [broker.got.get() for _ in range(broker.got.qsize())]
    assert got.count("SEND") == got.count("ACK")


def test_a_task_ends_its_own_consumer(broker: Scripted) -> None:
    """The broker's answer to that is read meanwhile, and nothing more is delivered."""
    taken = SimpleQueue[Delivery]()

    def leave(delivery: Delivery) -> None:
        consumer.close()
        taken.put(delivery)

    with connect(broker) as connection:
        consumer = connection.consume(queue("q"), leave, quick=True, prefetch=10)
        broker.messages(5)
        taken.get(timeout=PATIENCE)
        broker.next("UNSUBSCRIBE")
        with connection.consume(queue("q"), taken.put, quick=True):
            broker.messages(1)
            assert taken.get(timeout=PATIENCE).message.body == "5"
    assert taken.empty()


@pytest.mark.parametrize("options", [{"inline": True}, {"lazy": True, "auto_accept": True}])
def test_a_consumer_that_closes_itself_on_the_thread_that_reads(broker: Scripted, options: dict[str, bool]) -> None:
    """It does not wait for the answer, which that thread itself would have to read."""
    took: SimpleQueue[float] = SimpleQueue()

    def on_delivery(delivery: Delivery) -> None:
        began = time.monotonic()
        consumer.close()
        took.put(time.monotonic() - began)

    with brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        consumer = connection.consume(queue("q"), on_delivery, **options)
        broker.messages(2)
        assert took.get(timeout=PATIENCE) < PATIENCE / 2
        broker.next("UNSUBSCRIBE")
        consumer.close()
        assert took.empty()
