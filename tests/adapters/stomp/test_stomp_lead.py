"""brokers.stomp: consumers whose `on_delivery` is quick: it runs on the thread that reads the socket."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import suppress
from queue import SimpleQueue
from threading import Event

import pytest
from proxy_kit import Proxy
from stomp_kit import PATIENCE, Inbox, OnBoth, accepting, assert_empty, message_to, send, wait_until

import brokers
from brokers import ConnectionState, Delivery, DeliveryMode, queue
from brokers.stomp import Reconnect, StompConnection
from brokers.stomp import socket as wire
from brokers.threads import pool

NUMBER = 200


class Threads:
    """An `on_delivery` that accepts, and keeps the name of the thread it ran on."""

    def __init__(self) -> None:
        self._names: SimpleQueue[str] = SimpleQueue()

    def __call__(self, delivery: Delivery) -> None:
        delivery.accept()
        self._names.put(threading.current_thread().name)

    def next(self) -> str:
        return self._names.get(timeout=PATIENCE)


def arrived(connection: StompConnection) -> int:
    """Count the messages that have arrived and were handed to nobody: those that were read, and those that were not."""
    assert connection._link is not None
    transport = connection._link._wire
    octets = b""
    with suppress(BlockingIOError):
        octets = transport._socket.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return len(transport._frames) + octets.count(b"MESSAGE\n")


@pytest.mark.broker
class TestLead(OnBoth):
    """The reader works; where that takes long, another thread reads."""

    def test_no_change_of_threads(
        self, connection: StompConnection, other: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is quick runs where it was read."""
        monkeypatch.setattr(pool, "BEHIND_TICKS", 10_000)  # looks: it is quick though the machine has much else to do
        threads = Threads()
        with connection.consume(queue(name), threads, quick=True):
            for _ in range(3):
                send(other, message_to(queue(name)))
                assert threads.next().endswith("reader")

    def test_a_receipt_is_no_change_of_threads(
        self, connection: StompConnection, other: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who waits for what the broker says of an answer is called where that is read."""
        monkeypatch.setattr(pool, "BEHIND_TICKS", 10_000)  # as above
        called = SimpleQueue[str]()

        def answer(delivery: Delivery) -> None:
            sending = connection.answer(delivery, message_to(queue(f"{name}.answers")))
            sending.add_done_callback(lambda _: (delivery.accept(), called.put(threading.current_thread().name)))

        with connection.consume(queue(name), answer, quick=True):
            send(other, message_to(queue(name)))
            assert called.get(timeout=PATIENCE).endswith("reader")
        assert_empty(other, name)

    def test_it_may_block(self, connection: StompConnection, other: StompConnection, name: str) -> None:
        """It may wait for receipts, for other messages, and for the broker's answer to a further subscription."""
        news, answers = Event(), accepting()

        def answer(delivery: Delivery) -> None:
            assert news.wait(PATIENCE)
            send(connection, message_to(queue(f"{name}.answers"), b"answer"))
            connection.consume(queue(f"{name}.answers"), answers)
            delivery.accept()

        with (
            connection.consume(queue(name), answer, quick=True),
            connection.consume(queue(f"{name}.news"), lambda delivery: news.set(), auto_accept=True, quick=True),
        ):
            send(other, message_to(queue(name)), message_to(queue(f"{name}.news")))
            assert answers.next().message.body == b"answer"

    def test_the_lead_is_handed_back(
        self, connection: StompConnection, other: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While one blocks the others run elsewhere; some time after it they run where they are read again."""
        monkeypatch.setattr(wire, "STAND_IN_SECONDS", 0.0)
        begun, gate, threads = Event(), Event(), Threads()

        def block(delivery: Delivery) -> None:
            begun.set()
            gate.wait(PATIENCE)

        with (
            connection.consume(queue(f"{name}.slow"), block, auto_accept=True, quick=True),
            connection.consume(queue(name), threads, quick=True),
        ):
            send(other, message_to(queue(f"{name}.slow")))
            assert begun.wait(PATIENCE)  # brokers promise no order of two queues
            send(other, message_to(queue(name)))
            assert threads.next().endswith("crew")
            gate.set()

            def is_back() -> bool:
                send(other, message_to(queue(name)))
                return threads.next().endswith("reader")

            wait_until(is_back)

    def test_a_connection_is_lost_meanwhile(self, proxy: Proxy, other: StompConnection, name: str) -> None:
        """It is noticed and made again while `on_delivery` blocks; what that had is delivered again."""
        states, gate, inbox = SimpleQueue[ConnectionState](), Event(), Inbox()

        def wait_once(delivery: Delivery) -> None:
            first = not gate.is_set()
            inbox(delivery)
            assert gate.wait(PATIENCE)
            delivery.accept()
            assert delivery.is_accepted is not first  # type: ignore[attr-defined]

        with brokers.connect(proxy.stomp_url, reconnect=Reconnect(initial=0.02, maximum=0.1)) as connection:
            connection.watch(states.put)
            connection.consume(queue(name), wait_once, quick=True)
            send(other, message_to(queue(name)))
            inbox.next()
            proxy.cut()
            assert states.get(timeout=PATIENCE) is ConnectionState.LOST
            assert states.get(timeout=PATIENCE) is ConnectionState.CONNECTED
            gate.set()
            assert inbox.next().generation == 2

    def test_each_gets_an_answer(self, proxy: Proxy, other: StompConnection, name: str) -> None:
        """Quick ones and slow ones, with receipts and without, and a connection that is cut: each gets its answer."""
        answers, missing = accepting(), {str(number) for number in range(NUMBER)}

        def answer(delivery: Delivery) -> None:
            number = int(delivery.message.correlation_id or "")
            Event().wait((0, 0, 0, 0.003, 0.02)[number % 5])
            mode = list(DeliveryMode)[number % 2]
            message = message_to(queue(f"{name}.answers"), correlation_id=str(number), delivery_mode=mode)
            sending = connection.answer(delivery, message)
            sending.add_done_callback(lambda _: sending.exception() or delivery.accept())

        other.consume(queue(f"{name}.answers"), answers)
        with brokers.connect(proxy.stomp_url, reconnect=Reconnect(initial=0.02, maximum=0.1)) as connection:
            for _ in range(8):
                connection.consume(queue(name), answer, quick=True)
            send(other, *(message_to(queue(name), correlation_id=number) for number in missing))
            cuts = [NUMBER // 4, NUMBER // 2]
            while missing:
                missing.discard(answers.next().message.correlation_id or "")
                if cuts and len(missing) < cuts[-1]:
                    cuts.pop()
                    proxy.cut()

    def test_answers_leave_together(
        self, connection: StompConnection, other: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is written for messages that came together goes out in one piece; but waits for none that takes long."""
        writes, before, usual = SimpleQueue[int](), SimpleQueue[int](), pool.BEHIND_TICKS
        came = Event()
        answers = Inbox(lambda delivery: (delivery.accept(), came.set()))
        monkeypatch.setattr(wire, "KEEP_SECONDS", PATIENCE)
        monkeypatch.setattr(
            pool, "BEHIND_TICKS", 10_000
        )  # looks: nobody is relieved, though the first waits for the others

        def answer(delivery: Delivery) -> None:
            number = delivery.message.correlation_id
            if number == "0":
                wait_until(lambda: arrived(connection) == 9)
                monkeypatch.setattr(through, "send", lambda data: writes.put(len(data)) or send_now(data))
            message = message_to(queue(f"{name}.answers"), delivery_mode=DeliveryMode.NON_PERSISTENT)
            if number == "9":
                before.put(writes.qsize())
                monkeypatch.setattr(pool, "BEHIND_TICKS", usual)
                assert came.wait(PATIENCE)
            connection.answer(delivery, message)
            delivery.accept()

        through = connection._link._wire._use  # type: ignore[union-attr]
        assert through is not None
        send_now = through.send
        other.consume(queue(f"{name}.answers"), answers)
        with connection.consume(queue(name), answer, quick=True, prefetch=1_000):
            send(other, *(message_to(queue(name), correlation_id=str(number)) for number in range(10)))
            for _ in range(10):
                answers.next()
        assert before.get(timeout=PATIENCE) <= 1  # some may have come together with the first

    def test_answers_that_did_not_leave(
        self, proxy: Proxy, other: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When the connection ends before they do, their requests were not acknowledged either: both come again."""
        monkeypatch.setattr(wire, "KEEP_SECONDS", PATIENCE)
        monkeypatch.setattr(pool, "BEHIND_TICKS", 10_000)  # as above
        begun, runs, answers = Event(), Counter[str](), accepting()

        def answer(delivery: Delivery) -> None:
            number = delivery.message.correlation_id or ""
            runs[number] += 1
            if delivery.generation == 1 and number == "0":
                begun.set()
                wait_until(lambda: arrived(connection) == 9)
            if delivery.generation == 1 and number == "5":
                proxy.cut()
            message = message_to(
                queue(f"{name}.answers"), correlation_id=number, delivery_mode=DeliveryMode.NON_PERSISTENT
            )
            sending = connection.answer(delivery, message)
            assert sending.done()
            delivery.accept()

        other.consume(queue(f"{name}.answers"), answers)
        with brokers.connect(proxy.stomp_url, reconnect=Reconnect(initial=0.02, maximum=0.1)) as connection:
            assert isinstance(connection, StompConnection)
            connection.consume(queue(name), answer, quick=True, prefetch=1_000)
            send(other, message_to(queue(name), correlation_id="0"))
            assert begun.wait(PATIENCE)
            send(other, *(message_to(queue(name), correlation_id=str(number)) for number in range(1, 10)))
            came = Counter[str]()
            while len(came) < 10:
                came[answers.next().message.correlation_id or ""] += 1
        kept = {str(number) for number in range(1, 10)}
        assert {each for each in kept if runs[each] == 2} == kept
        assert {each for each in kept if came[each] == 1} == kept
        assert_empty(other, name)
