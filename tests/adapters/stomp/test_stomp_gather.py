"""Messages that a thread sends before it waits are written together when it does, and never much later."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Thread

import pytest
from stomp_kit import PATIENCE, assert_no_threads, message_to, wait_until

import brokers
from brokers import BrokerError, Connection, ConnectionLostError
from brokers.message import queue
from brokers.threads import pool
from brokers.threads.bursts import SUBMITTERS
from brokers.threads.futures import Callbacks, Completion

GREETING = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6\nheart-beat:0,0\n\n\0"


class Reader:
    """A broker that greets, and keeps what comes with each read, as the bodies of its SEND frames."""

    def __init__(self) -> None:
        self.reads: SimpleQueue[list[str]] = SimpleQueue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._client: socket.socket
        self._thread = Thread(target=self._serve, name="reader")
        self._thread.start()

    @property
    def url(self) -> str:
        return f"stomp://127.0.0.1:{self._listener.getsockname()[1]}"

    def leave(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.leave()
        self._listener.close()
        self._thread.join(PATIENCE)
        self._client.close()

    def _serve(self) -> None:
        self._client, _ = self._listener.accept()
        with suppress(OSError):
            while data := self._client.recv(1 << 20):
                if data.startswith(b"CONNECT"):
                    self._client.sendall(GREETING)
                elif b"DISCONNECT" in data:
                    self.leave()
                frames = [each.lstrip(b"\n") for each in data.split(b"\0")]
                sent = [each.partition(b"\n\n")[2].decode() for each in frames if each.startswith(b"SEND")]
                if sent:
                    self.reads.put(sent)
                    receipts = [line for each in frames for line in each.split(b"\n") if line.startswith(b"receipt:")]
                    for each in receipts:
                        self._client.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0" % each[8:])


@pytest.fixture
def broker() -> Iterator[Reader]:
    """Run a broker."""
    broker = Reader()
    yield broker
    broker.close()
    assert_no_threads()


@pytest.fixture
def connection(broker: Reader, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Connect, and be a thread that waited the last time, however slow the machine; its watcher looks."""
    monkeypatch.setattr("brokers.threads.bursts.SOON_SECONDS", PATIENCE)
    with brokers.connect(broker.url, timeout=PATIENCE, heartbeat=0, reconnect=False) as made:
        made._crew.submit(lambda: None)  # type: ignore[attr-defined]
        SUBMITTERS.own.submitted_at = inf
        SUBMITTERS.own.about_to_wait()
        yield made
    SUBMITTERS.own.waits, SUBMITTERS.own.submitted_at = False, inf


@pytest.fixture
def is_unwatched(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the watcher sleep from its next look on."""
    monkeypatch.setattr(pool, "TICK_SECONDS", 10 * PATIENCE)
    time.sleep(0.05)


def sent(connection: Connection, *bodies: str) -> SimpleQueue[BaseException | None]:
    """Send messages that may be gathered; return what becomes of each."""
    outcomes = SimpleQueue[BaseException | None]()
    for each in bodies:
        connection.begin_send(message_to(queue("q"), each), lambda error, _=None: outcomes.put(error), gather=True)
    return outcomes


def waits() -> None:
    """Wait for a future, in vain."""
    with pytest.raises(TimeoutError):
        Completion[int](Callbacks("test").executor).result(0)


@pytest.mark.usefixtures("is_unwatched")
class TestGathered:
    """The thread waits."""

    def test_together(self, connection: Connection, broker: Reader) -> None:
        """They are written in one piece when it does, in order, and each is confirmed."""
        outcomes = sent(connection, "1", "2", "3")
        with pytest.raises(Empty):
            broker.reads.get(timeout=0.05)
        waits()
        assert broker.reads.get(timeout=PATIENCE) == ["1", "2", "3"]
        assert [outcomes.get(timeout=PATIENCE) for _ in range(3)] == [None, None, None]

    @pytest.mark.parametrize(
        "end", [lambda made: made.send(message_to(queue("q"), "3")), lambda made: made.close()], ids=["send", "close"]
    )
    def test_in_order(self, connection: Connection, broker: Reader, end: Callable[[Connection], object]) -> None:
        """Nothing that is written later comes before them, and closing the connection writes them."""
        sent(connection, "1", "2")
        end(connection)
        assert broker.reads.get(timeout=PATIENCE)[:2] == ["1", "2"]

    def test_many(self, connection: Connection, broker: Reader) -> None:
        """As much as one read takes is written, though the thread does not wait."""
        sent(connection, *(f"{number}" + "x" * 1000 for number in range(100)))
        assert broker.reads.get(timeout=PATIENCE)[0].startswith("0x")

    def test_lost(self, connection: Connection, broker: Reader) -> None:
        """If the session ends before, what became of them is not known."""
        outcomes = sent(connection, "1")
        broker.leave()
        assert isinstance(outcomes.get(timeout=PATIENCE), ConnectionLostError)
        waits()  # which writes nothing, and does not fail
        with pytest.raises(BrokerError):
            sent(connection, "2")


def test_not_for_long(connection: Connection, broker: Reader) -> None:
    """If the thread does not wait, they are written some milliseconds later, and the next ones at once."""
    sent(connection, "1")
    assert broker.reads.get(timeout=PATIENCE) == ["1"]
    wait_until(lambda: not SUBMITTERS.own.waits)
    sent(connection, "2")
    assert broker.reads.get(timeout=PATIENCE) == ["2"]
