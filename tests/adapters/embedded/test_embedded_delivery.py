"""How the embedded broker delivers, expires, refuses and gives up, and what its threads do meanwhile."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue

import pytest
from broker_contract_kit import PATIENCE, Inbox, send, text
from embedded_kit import NEWS, ORDERS, EmbeddedFixtures, SetClock, receive

from brokers import (
    BrokerError,
    ClosedError,
    Connection,
    ConnectionState,
    SendFailedError,
    SendResult,
    queue,
    topic,
)
from brokers.embedded import Broker
from brokers.embedded.connection import EmbeddedDelivery, EmbeddedTransaction


def taken(connection: Connection) -> int:
    """Return how many octets count towards the limit of a broker, which is below a million."""
    told = re.search(
        r"the broker is full: .* it has (\d+),", str(connection.send(text(HUGE, "x" * 1_000_000)).exception())
    )
    assert told is not None
    return int(told[1])


HUGE = queue("huge")


class TestExpiry(EmbeddedFixtures):
    """Time is what the clock shows."""

    def test_an_expired_message_becomes_a_dead_letter(self, connection: Connection, clock: SetClock) -> None:
        """A message whose time passed while it waited goes to the dead-letter queue, where it expires no more."""
        send(connection, replace(text(ORDERS, "late"), expiration=clock.now + 10), text(ORDERS, "lasting"))
        clock.now += 10
        assert receive(connection, ORDERS).body == "lasting"
        letter = receive(connection, queue("DLQ.orders"))
        assert (letter.body, letter.expiration, letter.redelivered) == ("late", 0, False)
        assert letter.properties.value("dead_letter_reason") == "expired"
        assert letter.properties.value("dead_letter_destination") == "queue:orders"

    def test_a_message_in_time(self, connection: Connection, clock: SetClock) -> None:
        """One millisecond earlier it is delivered."""
        send(connection, replace(text(ORDERS, "just"), expiration=clock.now + 10))
        clock.now += 9
        assert receive(connection, ORDERS).body == "just"

    def test_expired_messages_make_room(self, broker: Broker, connection: Connection, clock: SetClock) -> None:
        """A full queue gets rid of what expired before it refuses anything."""
        for offset in (10, 20, 30, 0):
            send(connection, replace(text(ORDERS, f"{offset}"), expiration=offset and clock.now + offset))
        clock.now += 20
        send(connection, text(ORDERS, "new"))
        assert broker.depth(ORDERS) == 3
        assert broker.depth(queue("DLQ.orders")) == 2

    def test_what_comes_back_may_have_expired(self, connection: Connection, clock: SetClock) -> None:
        """A released message is not delivered again once its time is over."""
        inbox = Inbox(accept=False)
        send(connection, replace(text(ORDERS, "a"), expiration=clock.now + 10))
        with connection.consume(ORDERS, inbox):
            delivery = inbox.next()
            clock.now += 10
            delivery.release()
            assert receive(connection, queue("DLQ.orders")).body == "a"


class TestDeadLetters(EmbeddedFixtures):
    """Where messages end that cannot be delivered."""

    def test_max_deliveries(self, connection: Connection) -> None:
        """A message that came back from `max_deliveries` deliveries goes to the dead letters."""
        inbox, counts = Inbox(accept=False), []
        send(connection, text(ORDERS, "a"))
        with connection.consume(ORDERS, inbox):
            for _ in range(3):
                delivery = inbox.next()
                counts.append((delivery.delivery_count, delivery.message.redelivered))
                delivery.release()
            letter = receive(connection, queue("DLQ.orders"))
        assert counts == [(1, False), (2, True), (3, True)]
        assert letter.properties.value("dead_letter_reason") == "delivered 3 times and not accepted"

    def test_reject(self, connection: Connection) -> None:
        """A rejected message is found with the reason given, and with its own id and properties."""
        inbox = Inbox(accept=False)
        message_id = connection.send(text(NEWS, "nobody listens")).result().message_id
        with connection.consume(NEWS, inbox):
            message_id = connection.send(text(NEWS, "a")).result().message_id
            inbox.next().reject("no such order")
        letter = receive(connection, queue("DLQ.news"))
        assert letter.message_id == message_id
        assert letter.properties.value("dead_letter_reason") == "no such order"
        assert letter.properties.value("dead_letter_destination") == "topic:news"

    def test_temporary_destinations_share_a_dead_letter_queue(self, connection: Connection) -> None:
        """Dead letters of temporary destinations are in one queue, as nobody would ever look into one for each."""
        mine, inbox = connection.temporary(), Inbox(accept=False)
        send(connection, text(mine, "a"))
        with connection.consume(mine, inbox):
            inbox.next().reject("unknown")
        letter = receive(connection, queue("DLQ.temporary"))
        assert letter.properties.value("dead_letter_destination") == f"temporary-queue:{mine.name}"

    def test_a_dead_letter_is_delivered_without_limit(self, connection: Connection) -> None:
        """In a dead-letter queue a message may be looked at any number of times."""
        letters, inbox = queue("DLQ.orders"), Inbox(accept=False)
        send(connection, text(letters, "a"))
        with connection.consume(letters, inbox):
            for _ in range(5):
                inbox.next().release()
            assert inbox.next().delivery_count == 6

    def test_a_rejected_dead_letter_is_dropped(
        self, broker: Broker, connection: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Rejecting in a dead-letter queue drops the message, which the log tells."""
        letters, inbox = queue("DLQ.orders"), Inbox(accept=False)
        send(connection, text(letters, "a"))
        with connection.consume(letters, inbox):
            inbox.next().reject("seen")
        assert broker.depth(letters) == 0
        assert "dropped message" in caplog.text
        assert "seen" in caplog.text

    def test_a_full_dead_letter_queue(
        self, broker: Broker, connection: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        """When the dead-letter queue is full the message is dropped, which the log tells."""
        letters, inbox = queue("DLQ.orders"), Inbox(accept=False)
        send(connection, *(text(letters, body) for body in "abcd"), text(ORDERS, "e"))
        with connection.consume(ORDERS, inbox):
            inbox.next().reject("bad")
        assert (broker.depth(letters), broker.depth(ORDERS)) == (4, 0)
        assert "queue:DLQ.orders is full" in caplog.text


class TestLimits(EmbeddedFixtures):
    """A destination keeps `max_messages`, here 4."""

    def test_a_full_queue_refuses(self, connection: Connection) -> None:
        """A send beyond the limit fails, naming it; what was handed over and is not accepted counts."""
        inbox = Inbox(accept=False)
        with connection.consume(ORDERS, inbox):
            send(connection, *(text(ORDERS, body) for body in "abcd"))
            held = inbox.next()
            with pytest.raises(SendFailedError, match="queue:orders is full: max_messages is 4"):
                connection.send(text(ORDERS, "e")).result()
            held.accept()
            send(connection, text(ORDERS, "e"))

    def test_a_queue_that_is_full_of_octets_refuses(self, clock: SetClock) -> None:
        """Whichever way a message comes it is refused then; all that was accepted is delivered, in order."""
        broker, inbox = Broker(clock=clock, max_octets=200_000), Inbox(accept=False)
        with broker.connect() as connection:
            with connection.consume(ORDERS, inbox):
                send(connection, text(ORDERS, "a" * 90_000), text(ORDERS, "é" * 45_000))
                held = inbox.next()
                refused = connection.send(text(ORDERS, "c" * 30_000)).exception()
                said = (
                    r"queue:orders is full: max_octets is 200000, it has 180\d\d\d, and 300\d\d more were to be added"
                )
                assert isinstance(refused, SendFailedError)
                assert re.fullmatch(said, str(refused))
                transaction = connection.begin()
                for _ in range(3):
                    connection.send(text(ORDERS, "d" * 9_000), transaction)
                assert isinstance(transaction.commit().exception(), SendFailedError)
                held.release()
                assert inbox.next().message.redelivered
                assert isinstance(connection.send(text(ORDERS, "c" * 30_000)).exception(), SendFailedError)
            everything = Inbox()
            with connection.consume(ORDERS, everything):
                assert everything.bodies(2) == ["a" * 90_000, "é" * 45_000]
            send(connection, text(ORDERS, "e" * 199_000))
            assert receive(connection, ORDERS).body == "e" * 199_000
            assert broker.depth(ORDERS) == 0

    def test_a_full_broker_refuses(self) -> None:
        """All queues and topics together hold so much; a message for several subscribers counts once."""
        broker = Broker(max_total_octets=100_000)
        with broker.connect() as connection, broker.connect() as other:
            inboxes = [Inbox(accept=False) for _ in range(20)]
            consumers = [connection.consume(NEWS, each) for each in inboxes]
            send(connection, text(NEWS, "n" * 39_000), text(ORDERS, "o" * 39_000))
            said = r"the broker is full: max_total_octets is 100000, it has 79\d\d\d, and 395\d\d more were to be added"
            for full in (queue("another"), ORDERS, NEWS, connection.temporary()):
                assert re.fullmatch(said, str(connection.send(text(full, "x" * 39_000)).exception()))
            assert queue("another") not in broker.destinations()
            connection.send(text(topic("nobody listens"), "x" * 200_000)).result()
            transaction = connection.begin()
            for each in "ab":
                connection.send(text(queue(each), "x" * 19_000), transaction)
            assert isinstance(transaction.commit().exception(), SendFailedError)
            assert [broker.depth(queue(each)) for each in "ab"] == [0, 0]
            held = [each.next() for each in inboxes]
            for each in held[1:]:
                each.accept()
            assert connection.send(text(ORDERS, "x" * 39_000)).exception() is not None
            held[0].reject("to the dead letters, for which there is room")
            assert receive(other, queue("DLQ.news")).body == "n" * 39_000
            send(connection, text(ORDERS, "x" * 39_000))
            for consumer in consumers:
                consumer.close()

    def test_a_long_reason_is_cut(self, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """It may be text of a client's, for a thousand messages at once; the log has no more of it either."""
        inbox, letters, reason = Inbox(accept=False), queue("DLQ.orders"), "r" * 60_000
        send(connection, text(ORDERS, "a"), text(ORDERS, "b"))
        with connection.consume(ORDERS, inbox):
            inbox.next().reject("r" * 1000)
            inbox.next().reject(reason)
        with connection.consume(letters, inbox):
            for expected in ("r" * 1000, "r" * 999 + "…"):
                letter = inbox.next()
                assert letter.message.properties.value("dead_letter_reason") == expected
                letter.reject(reason)
        assert max(len(record.getMessage()) for record in caplog.records) < 1200

    @pytest.mark.parametrize("transactional", [False, True])
    def test_reasons_count_towards_the_limit_of_the_broker(
        self, transactional: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The letters that are too much are dropped, which the log tells; what a transaction sends has its room."""
        broker, inbox = Broker(max_total_octets=100_000), Inbox(accept=False)
        with broker.connect() as connection, connection.consume(ORDERS, inbox, prefetch=200):
            send(connection, *[text(ORDERS, "x") for _ in range(150)])
            transaction = connection.begin()
            if transactional:
                transaction.send(text(queue("sent"), "x" * (100_000 - taken(connection) - 600)))
            for delivery in [inbox.next() for _ in range(150)]:
                assert isinstance(transaction, EmbeddedTransaction)
                assert isinstance(delivery, EmbeddedDelivery)
                (transaction.taking(delivery) if transactional else delivery).reject("r" * 1000)
            transaction.commit().result(PATIENCE)
            letters = broker.depth(queue("DLQ.orders"))
            assert taken(connection) <= 100_000
            assert broker.depth(queue("sent")) == transactional
            assert 50 < letters < 150
            assert caplog.text.count("the broker is full") == 150 - letters

    def test_a_message_that_each_subscriber_rejects(self, caplog: pytest.LogCaptureFixture) -> None:
        """It counted once, and becomes a letter for each of them: as many as there is room for."""
        broker = Broker(max_total_octets=100_000)
        with broker.connect() as connection:
            inboxes = [Inbox(accept=False) for _ in range(10)]
            consumers = [connection.consume(NEWS, each, durable_name=str(at)) for at, each in enumerate(inboxes)]
            send(connection, text(NEWS, "n" * 30_000))
            for each in inboxes:
                each.next().reject("no")
            assert broker.depth(queue("DLQ.news")) == 3
            assert taken(connection) <= 100_000
            assert caplog.text.count("the broker is full") == 7
            for consumer in consumers:
                consumer.close()

    @pytest.mark.parametrize("sends", [0, 1])
    def test_a_queue_for_a_letter_without_room(self, sends: int) -> None:
        """It is not made, unless the transaction that rejects the message sends there."""
        broker, letters = Broker(max_total_octets=100_000), queue("DLQ.news")
        with broker.connect() as connection:
            inbox, transaction = Inbox(accept=False), connection.begin()
            with connection.consume(NEWS, inbox), connection.consume(NEWS, Inbox(accept=False)):
                send(connection, text(NEWS, "n" * 60_000))
                delivery = inbox.next()
                assert isinstance(transaction, EmbeddedTransaction)
                assert isinstance(delivery, EmbeddedDelivery)
                transaction.taking(delivery).reject("no")
                for _ in range(sends):
                    transaction.send(text(letters, "sent"))
                transaction.commit().result(PATIENCE)
                assert (broker.has(letters), broker.depth(letters)) == (bool(sends), sends)

    def test_a_full_broker_loses_nothing_for_a_usual_reason(self) -> None:
        """Reason and destination are part of what each message counts beside its size."""
        broker, inbox = Broker(max_total_octets=100_000), Inbox(accept=False)
        with broker.connect() as connection, connection.consume(ORDERS, inbox, prefetch=200):
            sent = 0
            while connection.send(text(ORDERS, "x")).exception() is None:
                sent += 1
            for delivery in [inbox.next() for _ in range(sent)]:
                delivery.reject("the order has no customer, and nobody knows whom to ask about it")
            assert broker.depth(queue("DLQ.orders")) == sent
            assert taken(connection) <= 100_000

    def test_dead_letters_of_expired_messages_count(self, clock: SetClock) -> None:
        """Also those that a send makes, which then has less room: here by the long name of their queue."""
        broker, long = Broker(clock=clock, max_total_octets=20_000, max_messages=4), queue("q" * 3000)
        with broker.connect() as connection:
            send(connection, *[replace(text(long, "x"), expiration=clock.now + 10) for _ in range(4)])
            clock.now += 20
            last = connection.send(text(long, "x" * (20_000 - taken(connection) - 700)))
            assert "the broker is full" in str(last.exception())
            assert taken(connection) <= 20_000

    @pytest.mark.parametrize("how", ["ended", "closed", "subscriber", "durable"])
    def test_what_is_forgotten_makes_room(self, how: str) -> None:
        """Whatever messages end with, waiting or handed over, there is as much room as before."""
        with Broker(max_total_octets=100_000).connect() as connection:
            for _ in range(3):
                inbox, place = Inbox(accept=False), NEWS if how in ("subscriber", "durable") else connection.temporary()
                consumer = connection.consume(place, inbox, durable_name="d" if how == "durable" else None)
                send(connection, text(place, "a" * 39_000), text(place, "b" * 39_000))
                inbox.next()
                assert "broker is full" in str(connection.send(text(ORDERS, "c" * 39_000)).exception())
                if how == "ended":
                    connection.end_temporary(place)
                consumer.close()
                if how == "closed":
                    connection.end_temporary(place)
                if how == "durable":
                    connection.unsubscribe(place, "d")

    def test_what_expired_makes_room_for_octets(self, clock: SetClock) -> None:
        """It goes to the dead letters when the queue is full, and what is sent then is taken."""
        broker = Broker(clock=clock, max_octets=1000)
        with broker.connect() as connection:
            send(connection, replace(text(ORDERS, "a" * 700), expiration=clock.now + 10))
            clock.now += 10
            send(connection, text(ORDERS, "b" * 700))
            assert [receive(connection, each).body for each in (ORDERS, queue("DLQ.orders"))] == ["b" * 700, "a" * 700]

    def test_a_full_subscriber_refuses_for_all(self, broker: Broker, connection: Connection) -> None:
        """A topic's message goes to every subscriber or, if one of them is full, to none."""
        slow, quick = Inbox(accept=False), Inbox()
        with connection.consume(NEWS, slow), connection.consume(NEWS, quick):
            send(connection, *(text(NEWS, body) for body in "abcd"))
            assert quick.bodies(4) == list("abcd")
            assert isinstance(connection.send(text(NEWS, "e")).exception(), SendFailedError)
            assert broker.depth(NEWS) == 4

    def test_a_refused_commit_is_an_abort(self, broker: Broker, connection: Connection) -> None:
        """A commit that does not fit does nothing at all: the delivery is held as before and may be accepted."""
        inbox = Inbox(accept=False)
        with connection.consume(ORDERS, inbox):
            send(connection, text(ORDERS, "request"))
            delivery = inbox.next()
            transaction = connection.begin()
            transaction.accept(delivery)
            for number in range(5):
                transaction.send(text(queue("replies"), str(number)))
            with pytest.raises(SendFailedError, match="max_messages is 4"):
                transaction.commit().result()
            assert broker.depth(queue("replies")) == 0
            with pytest.raises(ClosedError):
                transaction.accept(delivery)
            delivery.accept()
        assert broker.depth(ORDERS) == 0


class TestDelivery(EmbeddedFixtures):
    """Corners of delivery."""

    def test_an_old_delivery_is_void(self, broker: Broker, connection: Connection) -> None:
        """Accepting a delivery that was released does not accept its redelivery."""
        inbox = Inbox(accept=False)
        with connection.consume(ORDERS, inbox):
            send(connection, text(ORDERS, "a"))
            old = inbox.next()
            old.release()
            inbox.next()
            old.accept()
            assert broker.depth(ORDERS) == 1

    def test_what_comes_back_keeps_its_place(self, connection: Connection) -> None:
        """Messages that come back are delivered in their first order, before what arrived later."""
        inbox, later = Inbox(accept=False), Inbox()
        send(connection, *(text(ORDERS, body) for body in "abc"))
        with connection.consume(ORDERS, inbox, prefetch=3):
            assert inbox.bodies(3) == ["a", "b", "c"]
        send(connection, text(ORDERS, "d"))
        with connection.consume(ORDERS, later):
            assert later.bodies(4) == ["a", "b", "c", "d"]

    def test_a_closed_consumer_passes_its_turn_on(self, connection: Connection) -> None:
        """When the consumer that was next in turn closes, the message reaches another that waits."""
        for number in range(50):
            destination, inbox = queue(str(number)), Inbox()
            with connection.consume(destination, Inbox(accept=False)) as first:
                connection.consume(destination, inbox)
                send(connection, text(destination, "a"))
                first.close()
                assert inbox.bodies(1) == ["a"]

    def test_a_queue_leaves_nothing_behind(self, broker: Broker, connection: Connection) -> None:
        """A queue or topic that is empty and without consumers takes no memory, however many names were used."""
        for number in range(3):
            for destination in (queue(str(number)), topic(str(number))):
                inbox = Inbox()
                with connection.consume(destination, inbox):
                    send(connection, text(destination, "a"))
                    inbox.next()
        assert broker.destinations() == []
        send(connection, text(ORDERS, "a"))
        assert broker.destinations() == [ORDERS]

    @pytest.mark.parametrize("ends", ["commit", "abort"])
    def test_a_transaction_leaves_nothing_behind(self, broker: Broker, connection: Connection, ends: str) -> None:
        """Nor does one that outlives the consumer whose messages it accepted, or that was too large."""
        inbox = Inbox(accept=False)
        with connection.consume(ORDERS, inbox):
            transaction = connection.begin()
            send(connection, text(ORDERS, "a"))
            transaction.accept(inbox.next())
        getattr(transaction, ends)()
        assert broker.destinations() == ([ORDERS] if ends == "abort" else [])
        assert broker.has(ORDERS) is (ends == "abort")
        large = connection.begin()
        for _ in range(5):
            large.send(text(queue("another"), "a"))
        assert isinstance(large.commit().exception(PATIENCE), SendFailedError)
        assert not broker.has(queue("another"))

    def test_there_may_be_so_many_destinations(self, clock: SetClock) -> None:
        """One more is an error of what would make it; dead letters without room are dropped and logged."""
        broker = Broker("test", clock=clock, max_destinations=2)
        with broker.connect() as connection:
            send(connection, text(ORDERS, "a"))
            mine = connection.temporary()
            with pytest.raises(BrokerError, match="max_destinations"):
                connection.temporary()
            with pytest.raises(BrokerError, match="max_destinations"):
                connection.consume(queue("another"), Inbox())
            assert isinstance(connection.send(text(queue("another"), "a")).exception(PATIENCE), SendFailedError)
            inbox = Inbox(accept=False)
            with connection.consume(ORDERS, inbox):
                inbox.next().reject("no room for it")
            connection.end_temporary(mine)
            assert broker.destinations() == []
            send(connection, text(queue("another"), "a"))


class TestThreads(EmbeddedFixtures):
    """What runs, and what is left of it."""

    def test_no_thread_is_left(self) -> None:
        """Closing ends every thread of consumers and callbacks."""
        before = set(threading.enumerate())
        connection = Broker("threads").connect()
        inbox, called = Inbox(), threading.Event()
        connection.consume(ORDERS, inbox)
        connection.send(text(ORDERS, "a")).add_done_callback(lambda _: called.set())
        inbox.next()
        assert called.wait(PATIENCE)
        mine = set(threading.enumerate()) - before
        assert {thread.name for thread in mine} == {
            "embedded-threads-1 crew",
            "embedded-threads-1 watcher",
            "embedded-threads-1-callback_0",
        }
        connection.close()
        assert set(threading.enumerate()) <= before

    def test_close_lets_on_delivery_finish(self, broker: Broker, connection: Connection) -> None:
        """An `on_delivery` under way may still send and commit while its connection closes, but not subscribe."""
        started, refused = threading.Event(), list[Exception]()
        leaving = broker.connect()

        def on_delivery(delivery: object) -> None:
            started.set()
            until = time.monotonic() + PATIENCE
            while not refused and time.monotonic() < until:
                try:
                    leaving.consume(queue("elsewhere"), Inbox()).close()
                except ClosedError as error:
                    refused.append(error)
            with pytest.raises(ClosedError):
                leaving.temporary()
            leaving.send(text(queue("replies"), "done")).result()

        leaving.consume(ORDERS, on_delivery)
        send(connection, text(ORDERS, "a"))
        assert started.wait(PATIENCE)
        leaving.close(PATIENCE)
        assert receive(connection, queue("replies")).body == "done"
        assert receive(connection, ORDERS).redelivered

    def test_close_waits_no_longer_than_its_deadline(self, broker: Broker, connection: Connection) -> None:
        """A stuck `on_delivery` and a stuck callback do not keep `close` beyond its deadline; the message goes back."""
        go_on, started = threading.Event(), threading.Barrier(3)
        leaving = broker.connect()

        def stick(_: object) -> None:
            started.wait(PATIENCE)
            go_on.wait(PATIENCE)

        leaving.consume(ORDERS, stick)
        leaving.send(text(ORDERS, "a")).add_done_callback(stick)
        started.wait(PATIENCE)
        begin = time.monotonic()
        leaving.close(0.05)
        assert time.monotonic() - begin < PATIENCE / 2
        assert receive(connection, ORDERS).redelivered
        go_on.set()

    def test_close_from_a_callback(self, broker: Broker) -> None:
        """A callback may close its connection, and a callback added after that still runs."""
        connection = broker.connect()
        late: SimpleQueue[str] = SimpleQueue()

        def close(future: Future[SendResult]) -> None:
            connection.close()
            future.add_done_callback(lambda _: late.put("ran"))

        connection.send(text(ORDERS, "a")).add_done_callback(close)
        assert late.get(timeout=PATIENCE) == "ran"

    def test_a_watcher_that_fails(self, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        """An exception in a watcher is logged and keeps nobody else from being told."""
        states: SimpleQueue[ConnectionState] = SimpleQueue()
        connection = broker.connect()

        def fail(state: ConnectionState) -> None:
            raise RuntimeError(f"cannot bear {state}")

        connection.watch(fail)
        connection.watch(states.put)
        connection.close()
        assert states.get(timeout=PATIENCE) is ConnectionState.CLOSED
        assert "cannot bear closed" in caplog.text

    def test_system_exit_in_on_delivery(self, connection: Connection) -> None:
        """Even SystemExit does not end a consumer's thread with the message in its hands."""
        inbox = Inbox()

        def leave_once(delivery: object) -> None:
            if not delivery.message.redelivered:  # type: ignore[attr-defined]
                raise SystemExit
            inbox(delivery)  # type: ignore[arg-type]

        with connection.consume(ORDERS, leave_once):
            send(connection, text(ORDERS, "a"))
            assert inbox.bodies(1) == ["a"]
