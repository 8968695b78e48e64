"""On which threads the embedded broker delivers, and that no consumer makes a sender or another consumer wait."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

import pytest
from broker_contract_kit import PATIENCE, Inbox, send, text
from embedded_kit import ORDERS, EmbeddedFixtures

from brokers import Connection, Delivery, queue
from brokers.embedded import Broker
from brokers.embedded.connection import BURST_DELIVERIES, INLINE_DELIVERIES
from brokers.errors import ClosedError, DestinationGoneError

OTHERS = queue("others")


def settled(connection: Connection) -> None:
    """Wait until the consumers that have begun use no thread any more: the next message comes by `submit`."""
    marker, done = queue("marker"), threading.Event()
    with connection.consume(marker, lambda _: done.set()):
        send(connection, text(marker, "a"))
        assert done.wait(PATIENCE)


class LargeBroker(EmbeddedFixtures):
    """A broker without small limits."""

    @pytest.fixture
    def broker(self) -> Broker:
        return Broker("test")


class TestInline(LargeBroker):
    """What needs no thread of its own."""

    def test_on_the_sender(self, connection: Connection) -> None:
        """An inline consumer has the message, on the sender's thread, when `send` returns; so with a commit."""
        threads: list[threading.Thread] = []
        with connection.consume(ORDERS, lambda _: threads.append(threading.current_thread()), inline=True, prefetch=9):
            settled(connection)
            connection.send(text(ORDERS, "a"))
            assert threads == [threading.current_thread()]
            transaction = connection.begin()
            transaction.send(text(ORDERS, "b"))
            transaction.send(text(ORDERS, "c"))
            assert len(threads) == 1
            transaction.commit()
            assert threads == [threading.current_thread()] * 3

    def test_a_chain_is_no_recursion(self, connection: Connection) -> None:
        """Inline consumers that send to each other need no stack for each message, and one that sends to itself goes
        on after it returned."""
        depths: list[int] = []
        depth, hops = 0, 3000

        def pass_on(delivery: Delivery) -> None:
            nonlocal depth
            depth += 1
            depths.append(depth)
            place = int(str(delivery.message.body))
            if place < hops:
                connection.send(text(queue(str((place + 1) % 100)), f"{place + 1}"))
            depth -= 1

        for number in range(100):
            connection.consume(queue(str(number)), pass_on, inline=True, auto_accept=True)
        settled(connection)
        connection.send(text(queue("0"), "0"))
        assert depths == [1] * (hops + 1)

    def test_an_endless_consumer_lets_the_sender_go(self, broker: Broker, connection: Connection) -> None:
        """A sender whose thread an inline consumer has used for some deliveries returns; others go on."""
        threads: list[threading.Thread] = []
        is_over = threading.Event()

        def again(delivery: Delivery) -> None:
            threads.append(threading.current_thread())
            if len(threads) < 5 * INLINE_DELIVERIES:
                connection.send(text(ORDERS, "again"))
            else:
                is_over.set()

        with connection.consume(ORDERS, again, inline=True, auto_accept=True):
            settled(connection)
            connection.send(text(ORDERS, "first"))
            assert is_over.wait(PATIENCE)
        assert threads[0] is threading.current_thread()
        assert threads[-1] is not threading.current_thread()

    def test_an_interrupt_is_the_programs(self, connection: Connection) -> None:
        """Ctrl-C during an inline delivery reaches the program; the message comes again, and so do the next ones."""
        inbox, interrupts = Inbox(), [KeyboardInterrupt()]

        def interrupted(delivery: Delivery) -> None:
            if interrupts:
                raise interrupts.pop()
            inbox(delivery)

        with connection.consume(ORDERS, interrupted, inline=True):
            settled(connection)
            with pytest.raises(KeyboardInterrupt):
                connection.send(text(ORDERS, "a"))
            connection.send(text(ORDERS, "b"))
            assert inbox.bodies(2) == ["a", "b"]


class TestSharedThreads(LargeBroker):
    """What may block."""

    @pytest.mark.parametrize("quick", [False, True])
    def test_a_slow_function_keeps_nobody(self, connection: Connection, *, quick: bool) -> None:
        """While some consumers block, a sender goes on and all others get their messages."""
        go_on, started, inbox = threading.Event(), threading.Semaphore(0), Inbox()

        def block(delivery: Delivery) -> None:
            started.release()
            assert go_on.wait(PATIENCE)
            delivery.accept()

        for number in range(8):
            connection.consume(queue(f"slow {number}"), block, quick=quick)
            connection.send(text(queue(f"slow {number}"), "a"))
        for _ in range(8):
            assert started.acquire(timeout=PATIENCE)
        with connection.consume(ORDERS, inbox, quick=quick):
            send(connection, text(ORDERS, "a"), text(ORDERS, "b"))
            assert inbox.bodies(2) == ["a", "b"]
        go_on.set()

    @pytest.mark.parametrize("quick", [False, True])
    def test_a_function_that_waits_for_another(self, connection: Connection, *, quick: bool) -> None:
        """A consumer may call another one of its own connection, and wait for what that one answers."""
        answers: SimpleQueue[str] = SimpleQueue()
        inbox = Inbox()

        def front(delivery: Delivery) -> None:
            connection.send(replace(delivery.message, destination=OTHERS))
            connection.send(text(queue("results"), answers.get(timeout=PATIENCE)))

        with (
            connection.consume(ORDERS, front, quick=quick, auto_accept=True),
            connection.consume(OTHERS, lambda each: answers.put(f"{each.message.body!r}"), quick=quick),
            connection.consume(queue("results"), inbox),
        ):
            send(connection, text(ORDERS, "a"))
            assert inbox.bodies(1) == ["'a'"]

    def test_competing_consumers_block_side_by_side(self, connection: Connection) -> None:
        """As many messages are under way as there are consumers, however few threads they share."""
        meeting, met = threading.Barrier(5), threading.Semaphore(0)

        def meet(delivery: Delivery) -> None:
            meeting.wait(PATIENCE)
            delivery.accept()
            met.release()

        for _ in range(5):
            connection.consume(ORDERS, meet)
        send(connection, *(text(ORDERS, f"{number}") for number in range(10)))
        for _ in range(10):
            assert met.acquire(timeout=PATIENCE)

    def test_one_busy_consumer_leaves_others_their_turn(self, connection: Connection) -> None:
        """A consumer that always has a message waits after some of them until the others had a turn."""
        order: list[str] = []
        held, is_over = threading.Event(), threading.Event()

        def note(delivery: Delivery) -> None:
            assert held.wait(PATIENCE)
            order.append(str(delivery.message.body))
            delivery.accept()
            if len(order) == 5 * BURST_DELIVERIES + 1:
                is_over.set()

        with connection.consume(ORDERS, note), connection.consume(OTHERS, note):
            for _ in range(5 * BURST_DELIVERIES):
                connection.send(text(ORDERS, "many"))
            connection.send(text(OTHERS, "one"))
            held.set()
            assert is_over.wait(PATIENCE)
        assert "many" in order[order.index("one") :]

    def test_closing_inside(self, broker: Broker, connection: Connection) -> None:
        """A consumer may close itself, and its connection, from within; what it held goes back."""
        closed = threading.Event()
        leaving = broker.connect()

        def leave(delivery: Delivery) -> None:
            consumers.pop().close()
            leaving.close()
            closed.set()

        consumers = [leaving.consume(ORDERS, leave)]
        send(connection, text(ORDERS, "a"))
        assert closed.wait(PATIENCE)
        inbox = Inbox()
        with connection.consume(ORDERS, inbox):
            assert inbox.bodies(1) == ["a"]


class TestAnswers(LargeBroker):
    """Answers of one burst are sent together, before anything else happens to their deliveries."""

    def test_a_function_that_blocks_holds_no_answer(self, connection: Connection) -> None:
        """While a consumer blocks, the answer that another one has begun on the same thread is sent."""
        is_sent, is_over = threading.Event(), threading.Event()

        def answer(delivery: Delivery) -> None:
            connection.begin_answer(delivery, text(OTHERS, "answer"), lambda *_: is_sent.set())

        def block(delivery: Delivery) -> None:
            assert is_sent.wait(PATIENCE)
            is_over.set()

        with connection.consume(ORDERS, answer), connection.consume(queue("slow"), block):
            settled(connection)
            send(connection, text(ORDERS, "a"), text(queue("slow"), "b"))
            assert is_over.wait(PATIENCE)

    def test_each_has_its_outcome(self, broker: Broker, connection: Connection) -> None:
        """One that is refused keeps no other; each is told once, in order."""
        told: SimpleQueue[tuple[str, BaseException | None, str | None]] = SimpleQueue()
        inbox, leaving = Inbox(), broker.connect()
        gone = leaving.temporary()
        leaving.close()

        def answer(delivery: Delivery) -> None:
            for destination in (OTHERS, gone, OTHERS):
                told_of = partial(lambda name, error, message_id: told.put((name, error, message_id)), str(destination))
                connection.begin_answer(delivery, text(destination, "answer"), told_of)

        with connection.consume(ORDERS, answer), connection.consume(OTHERS, inbox):
            send(connection, text(ORDERS, "a"))
            assert inbox.bodies(2) == ["answer", "answer"]
            outcomes = [told.get(timeout=PATIENCE) for _ in range(3)]
        assert [name for name, _, _ in outcomes] == [str(OTHERS), str(gone), str(OTHERS)]
        assert [type(error) for _, error, _ in outcomes] == [type(None), DestinationGoneError, type(None)]
        assert [message_id is None for _, _, message_id in outcomes] == [False, True, False]
        assert told.empty()

    def test_a_connection_that_closes(self, broker: Broker, connection: Connection) -> None:
        """An answer that was begun is sent, and its request may be accepted, before the connection gives it back."""
        closed, inbox = threading.Event(), Inbox()

        def answer(delivery: Delivery) -> None:
            connection.begin_answer(delivery, text(OTHERS, "answer"), lambda *_: delivery.accept())
            connection.close()
            closed.set()

        connection.consume(ORDERS, answer)
        with broker.connect() as other:
            send(other, text(ORDERS, "a"))
            assert closed.wait(PATIENCE)
            with other.consume(OTHERS, inbox):
                assert inbox.bodies(1) == ["answer"]
            assert broker.depth(ORDERS) == 0

    def test_a_connection_that_was_closed(self, broker: Broker, connection: Connection) -> None:
        """It sends no answer."""
        taken: SimpleQueue[Delivery] = SimpleQueue()
        with connection.consume(ORDERS, taken.put):
            send(connection, text(ORDERS, "a"))
            delivery = taken.get(timeout=PATIENCE)
        connection.close()
        with pytest.raises(ClosedError):
            connection.begin_answer(delivery, text(OTHERS, "answer"), lambda *_: None)
        assert broker.depth(OTHERS) == 0
