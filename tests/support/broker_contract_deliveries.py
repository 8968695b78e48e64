"""The part of the broker contract about deliveries, transactions and the life of a connection."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from queue import SimpleQueue
from threading import Barrier, Event, Lock, Thread, get_ident
from typing import Any

import pytest
from broker_contract_kit import (
    PATIENCE,
    BrokerUnderTest,
    Fixtures,
    Inbox,
    assert_marked,
    fresh,
    next_in_queue,
    send,
    text,
)

from brokers import (
    BrokerError,
    ClosedError,
    Connection,
    ConnectionState,
    Delivery,
    DeliveryMode,
    Destination,
    DestinationKind,
    UnsupportedError,
    UsageError,
    connect,
    properties,
    queue,
    topic,
)
from brokers.errors import SoapJmsError


class DeliveryContract(Fixtures):
    """What becomes of a delivery."""

    def assert_redelivered(self, connection: Connection, first: Delivery, destination: Destination) -> None:
        """Consume from the queue and see the delivery again, marked as such."""
        inbox = Inbox()
        with connection.consume(destination, inbox):
            again = inbox.next()
        assert again.message.body == first.message.body
        assert_marked(again.message, connection.capabilities)
        if connection.capabilities.delivery_count:
            assert again.delivery_count == 2
        if connection.capabilities.stable_message_id:
            assert again.message.message_id == first.message.message_id

    def test_after_the_consumer_closed(self, connection: Connection) -> None:
        """What a consumer did not accept before it closed is delivered again, marked redelivered."""
        destination, inbox = queue(fresh()), Inbox(accept=False)
        send(connection, text(destination, "a"))
        with connection.consume(destination, inbox):
            first = inbox.next()
        self.assert_redelivered(connection, first, destination)

    def test_after_the_connection_closed(self, broker: BrokerUnderTest, connection: Connection) -> None:
        """What a connection did not accept before it closed is delivered again, marked redelivered."""
        destination, inbox = queue(fresh()), Inbox(accept=False)
        send(connection, text(destination, "a"))
        with broker.connect() as leaving:
            leaving.consume(destination, inbox)
            first = inbox.next()
        self.assert_redelivered(connection, first, destination)
        first.accept()  # it is void, and says nothing

    def test_quick(self, connection: Connection) -> None:
        """What says that it is quick may block all the same: send, wait, and open a further consumer."""
        destination, others, inbox, seen = queue(fresh()), queue(fresh()), Inbox(), SimpleQueue[object]()

        def look(delivery: Delivery) -> None:
            send(connection, text(others, "b"))
            with connection.consume(others, inbox):
                seen.put(inbox.next().message.body)
            delivery.accept()

        with connection.consume(destination, look, quick=True):
            send(connection, text(destination, "a"))
            assert seen.get(timeout=PATIENCE) == "b"

    def test_lazy(self, connection: Connection) -> None:
        """What may come late comes all the same, in order, and the connection can be used meanwhile."""
        destination, inbox = topic(fresh()), Inbox()
        with connection.consume(destination, inbox, prefetch=3, auto_accept=True, lazy=True):
            send(connection, text(destination, "alone"))
            assert inbox.bodies(1) == ["alone"]
            send(connection, *(text(destination, str(number)) for number in range(10)))
            assert inbox.bodies(10) == [str(number) for number in range(10)]

    @pytest.mark.parametrize("mode", DeliveryMode)
    def test_answer(self, connection: Connection, mode: DeliveryMode) -> None:
        """An answer is delivered; its request is accepted then, whether the adapter did that before or not."""
        destination, answers, inbox, answered = queue(fresh()), queue(fresh()), Inbox(accept=False), Inbox()
        send(connection, text(destination, "a"))
        with connection.consume(answers, answered):
            with connection.consume(destination, inbox):
                delivery = inbox.next()
                connection.answer(delivery, replace(text(answers, "b"), delivery_mode=mode)).result(PATIENCE)
                delivery.accept()
                assert answered.next().message.body == "b"
            assert next_in_queue(connection, destination) == "marker"

    @pytest.mark.parametrize("mode", DeliveryMode)
    def test_begin_send(self, connection: Connection, mode: DeliveryMode) -> None:
        """Whoever waits for something else is told once that the broker has a message, or that it refused it."""
        destination, told = queue(fresh()), SimpleQueue[tuple[BaseException | None, str | None]]()

        def note(error: BaseException | None, message_id: str | None = None, /) -> None:
            told.put((error, message_id))

        message = replace(text(destination, "a"), delivery_mode=mode)
        give_up = connection.begin_send(message, note, timeout=PATIENCE)
        error, message_id = told.get(timeout=PATIENCE)
        assert error is None
        assert (message_id is not None) == connection.capabilities.tells_message_id
        assert not give_up(), "it was sent"
        is_unsent = connection.begin_send(message, note)()
        inbox = Inbox()
        with connection.consume(destination, inbox):
            assert inbox.bodies(2 - is_unsent) == ["a"] * (2 - is_unsent)
        with pytest.raises(UsageError, match="destination"):
            connection.begin_send(replace(message, destination=None), note)

    def test_release(self, connection: Connection) -> None:
        """A released message is delivered again, marked redelivered."""
        destination, inbox = queue(fresh()), Inbox(accept=False)
        send(connection, text(destination, "a"))
        with connection.consume(destination, inbox):
            inbox.next().release()
            again = inbox.next()
            assert (again.message.body, again.message.redelivered) == ("a", True)
            again.accept()
        assert next_in_queue(connection, destination) == "marker"

    def test_an_exception_releases(self, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """When an exception leaves `on_delivery` it is logged, the message is released and the consumer goes on."""
        destination, inbox = queue(fresh()), Inbox()
        failed = Event()

        def fail_once(delivery: Delivery) -> None:
            if not failed.is_set():
                failed.set()
                raise RuntimeError("not today")
            inbox(delivery)

        with connection.consume(destination, fail_once):
            send(connection, text(destination, "a"))
            again = inbox.next().message
        assert (again.body, again.redelivered) == ("a", True)
        assert "not today" in caplog.text

    def test_reject(self, connection: Connection) -> None:
        """A rejected message does not come back to its queue; the next one is delivered."""
        destination, inbox = queue(fresh()), Inbox(accept=False)
        send(connection, text(destination, "bad"), text(destination, "good"))
        with connection.consume(destination, inbox):
            inbox.next().reject("cannot be read")
            good = inbox.next()
            assert good.message.body == "good"
            good.accept()
        assert next_in_queue(connection, destination) == "marker"

    def test_reject_with_any_reason(self, connection: Connection) -> None:
        """A reason that no protocol can carry as it is neither keeps the message here nor ends the connection."""
        destination, inbox = queue(fresh()), Inbox(accept=False)
        reasons = ["bad \udc80", "a\0b", "x" * 200_000]
        send(connection, *(text(destination, "bad") for _ in reasons), text(destination, "good"))
        with connection.consume(destination, inbox):
            for reason in reasons:
                inbox.next().reject(reason)
            good = inbox.next()
            assert (good.message.body, good.generation) == ("good", 1)
            good.accept()
        assert next_in_queue(connection, destination) == "marker"

    def test_accept_twice(self, connection: Connection) -> None:
        """Settling a delivery a second time, in whatever way, does nothing."""
        destination, inbox = queue(fresh()), Inbox(accept=False)
        send(connection, text(destination, "a"))
        with connection.consume(destination, inbox):
            delivery = inbox.next()
            delivery.accept()
            delivery.accept()
            delivery.release()
            delivery.reject("late")
        assert next_in_queue(connection, destination) == "marker"

    def test_prefetch(self, connection: Connection, other: Connection) -> None:
        """A consumer holds no more than its prefetch: another gets the message beyond it; accepting makes room."""
        destination, holding, witness = queue(fresh()), Inbox(accept=False), Inbox()
        with connection.consume(destination, holding, prefetch=2):
            send(connection, *(text(destination, body) for body in "abc"))
            held = [holding.next(), holding.next()]
            with other.consume(destination, witness):
                assert witness.bodies(1) == ["c"]
            for delivery in held:
                delivery.accept()
            send(connection, text(destination, "d"))
            assert holding.next().message.body == "d"

    def test_one_delivery_at_a_time(self, connection: Connection) -> None:
        """A consumer calls `on_delivery` for one delivery at a time, in order, never on the thread of who sends."""
        destination, inbox = queue(fresh()), Inbox()
        busy, threads = Lock(), set[int]()

        def on_delivery(delivery: Delivery) -> None:
            assert busy.acquire(blocking=False)
            threads.add(get_ident())
            connection.send(text(queue(fresh("elsewhere")), "x")).result(PATIENCE)
            busy.release()
            inbox(delivery)

        with connection.consume(destination, on_delivery, prefetch=5):
            send(connection, *(text(destination, body) for body in "abcdefgh"))
            assert inbox.bodies(8) == list("abcdefgh")
        assert get_ident() not in threads

    def test_consumers_that_block(self, connection: Connection) -> None:
        """An `on_delivery` that blocks holds up no other consumer: each may wait for all the others."""
        destinations, together, inbox = [queue(fresh()) for _ in range(4)], Barrier(4), Inbox()

        def on_delivery(delivery: Delivery) -> None:
            together.wait(PATIENCE)
            inbox(delivery)

        with ExitStack() as consumers:
            for destination in destinations:
                consumers.enter_context(connection.consume(destination, on_delivery))
            send(connection, *(text(destination, "a") for destination in destinations))
            assert inbox.bodies(4) == ["a"] * 4

    @pytest.mark.parametrize("raised", [True, False])
    def test_always_failing(
        self, broker: BrokerUnderTest, connection: Connection, other: Connection, raised: bool
    ) -> None:
        """A message that comes back each time becomes a dead letter after some deliveries; the next is delivered."""
        destination, inbox, dead = queue(fresh()), Inbox(accept=False), Inbox()
        bad, tries = fresh("bad"), list[object]()

        def on_delivery(delivery: Delivery) -> None:
            if delivery.message.body != bad:
                return inbox(delivery)
            tries.append(delivery.message.redelivered)
            if raised:
                raise SystemExit("not today, nor any other day")
            return delivery.release()

        with (
            other.consume(queue(broker.dead_letters.format(destination.name)), dead),
            connection.consume(destination, on_delivery),
            connection.consume(destination, on_delivery),  # they count together
        ):
            send(connection, text(destination, bad), text(destination, "good"))
            while dead.next().message.body != bad:  # some brokers have one queue for all dead letters
                pass
            good = inbox.next()
            assert good.message.body == "good"
            good.accept()
        assert not tries[0]
        assert all(tries[1:])
        assert 2 <= len(tries) <= 20

    def test_on_delivery_may_use_the_connection(self, connection: Connection) -> None:
        """`on_delivery` may send and wait for it, subscribe, begin and commit, on the connection it came by."""
        requests, steps, inbox = queue(fresh()), queue(fresh()), Inbox()

        def on_delivery(delivery: Delivery) -> None:
            connection.send(text(steps, "sent")).result(PATIENCE)
            connection.consume(steps, inbox)
            transaction = connection.begin()
            transaction.send(text(steps, "committed"))
            transaction.accept(delivery)
            transaction.commit().result(PATIENCE)

        with connection.consume(requests, on_delivery):
            send(connection, text(requests, "go"))
            assert inbox.bodies(2) == ["sent", "committed"]

    def test_a_callback_may_use_the_connection(self, connection: Connection) -> None:
        """The callback of a future may call the connection again and wait for it."""
        destination, inbox = queue(fresh()), Inbox()
        with connection.consume(destination, inbox):
            future = connection.send(text(destination, "first"))
            future.add_done_callback(lambda _: connection.send(text(destination, "second")).result(PATIENCE))
            assert inbox.bodies(2) == ["first", "second"]

    def test_many_threads(self, connection: Connection, other: Connection) -> None:
        """What four threads send over one connection arrives once each."""
        destination, inbox = queue(fresh()), Inbox()

        def send_fifty(thread: int) -> None:
            futures = [connection.send(text(destination, f"{thread}-{number}")) for number in range(50)]
            for future in futures:
                future.result(PATIENCE)

        with other.consume(destination, inbox, prefetch=10):
            threads = [Thread(target=send_fifty, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            received = inbox.bodies(200)
            for thread in threads:
                thread.join()
        assert sorted(received, key=str) == sorted(f"{thread}-{number}" for thread in range(4) for number in range(50))
        assert next_in_queue(connection, destination) == "marker"


class TransactionContract(Fixtures):
    """Sends and accepts that happen together."""

    def test_commit(self, connection: Connection, other: Connection) -> None:
        """A transaction's sends are seen by nobody before the commit; with it they arrive and the request is gone."""
        requests, replies = queue(fresh()), queue(fresh())
        inbox, witness = Inbox(accept=False), Inbox()
        with connection.consume(requests, inbox), other.consume(replies, witness):
            send(other, text(requests, "request"))
            transaction = connection.begin()
            connection.send(text(replies, "reply 1"), transaction).result(PATIENCE)
            transaction.send(text(replies, "reply 2"))
            transaction.accept(inbox.next())
            send(connection, text(replies, "outside"))
            assert witness.bodies(1) == ["outside"]
            transaction.commit().result(PATIENCE)
            assert witness.bodies(2) == ["reply 1", "reply 2"]
        assert next_in_queue(connection, requests) == "marker"

    def test_abort(self, connection: Connection) -> None:
        """After an abort the sends are gone, and the consumer holds the delivery as before and may accept it."""
        requests, replies = queue(fresh()), queue(fresh())
        inbox = Inbox(accept=False)
        with connection.consume(requests, inbox):
            send(connection, text(requests, "request"))
            delivery = inbox.next()
            transaction = connection.begin()
            transaction.send(text(replies, "never"))
            transaction.accept(delivery)
            transaction.abort()
            assert next_in_queue(connection, replies) == "marker"
            delivery.accept()
        assert next_in_queue(connection, requests) == "marker"

    def test_accept_in_a_second_transaction(self, connection: Connection) -> None:
        """A delivery whose transaction was aborted can be accepted in another one."""
        requests, inbox = queue(fresh()), Inbox(accept=False)
        with connection.consume(requests, inbox):
            send(connection, text(requests, "request"))
            delivery = inbox.next()
            first = connection.begin()
            first.accept(delivery)
            first.abort()
            second = connection.begin()
            second.accept(delivery)
            second.commit().result(PATIENCE)
        assert next_in_queue(connection, requests) == "marker"

    def test_redelivery_after_abort(self, connection: Connection) -> None:
        """A delivery that was accepted only in an aborted transaction goes back with its consumer."""
        requests, inbox, again = queue(fresh()), Inbox(accept=False), Inbox()
        with connection.consume(requests, inbox):
            send(connection, text(requests, "request"))
            transaction = connection.begin()
            transaction.accept(inbox.next())
            transaction.abort()
        with connection.consume(requests, again):
            message = again.next().message
        assert message.body == "request"
        assert_marked(message, connection.capabilities)

    def test_commit_over_several_consumers(self, connection: Connection) -> None:
        """One commit takes the deliveries of several consumers of the connection."""
        queues, inbox = [queue(fresh()), queue(fresh())], Inbox(accept=False)
        consumers = [connection.consume(destination, inbox) for destination in queues]
        send(connection, *(text(destination, "a") for destination in queues))
        transaction = connection.begin()
        for _ in queues:
            transaction.accept(inbox.next())
        transaction.commit().result(PATIENCE)
        for consumer in consumers:
            consumer.close()
        assert [next_in_queue(connection, destination) for destination in queues] == ["marker", "marker"]

    def test_an_ended_transaction(self, connection: Connection) -> None:
        """A transaction that was committed or aborted takes nothing more."""
        committed, aborted = connection.begin(), connection.begin()
        committed.commit().result(PATIENCE)
        aborted.abort()
        for transaction in (committed, aborted):
            with pytest.raises(ClosedError):
                transaction.send(text(queue(fresh()), "late"))
            with pytest.raises(ClosedError):
                transaction.commit()


class LifeCycleContract(Fixtures):
    """How connections and consumers begin and end."""

    def test_connect_by_url(self, broker: BrokerUnderTest, connection: Connection) -> None:
        """`brokers.connect` with the broker's URL reaches the same broker."""
        destination, inbox = queue(fresh()), Inbox()
        with connect(broker.url) as by_url, connection.consume(destination, inbox):
            send(by_url, text(destination, "a"))
            assert inbox.bodies(1) == ["a"]
            assert by_url.capabilities == connection.capabilities
            assert by_url.generation == 1

    def test_close_twice(self, broker: BrokerUnderTest) -> None:
        """Closing a connection or a consumer again does nothing."""
        connection = broker.connect()
        consumer = connection.consume(queue(fresh()), Inbox())
        consumer.close()
        consumer.close()
        connection.close()
        connection.close()
        consumer.close()

    def test_calls_after_close(self, broker: BrokerUnderTest) -> None:
        """A closed connection raises ClosedError from every call."""
        connection = broker.connect()
        connection.close()
        destination = queue(fresh())
        for call in (
            lambda: connection.send(text(destination, "a")),
            lambda: connection.begin_send(text(destination, "a"), lambda *_: None),
            lambda: connection.consume(destination, Inbox()),
            lambda: connection.begin(),
            lambda: connection.temporary(),
            lambda: connection.watch(lambda state: None),
        ):
            with pytest.raises(ClosedError):
                call()

    def test_a_transaction_of_a_closed_connection(self, broker: BrokerUnderTest, connection: Connection) -> None:
        """A transaction that is open when its connection closes cannot be committed, and its sends are gone."""
        destination = queue(fresh())
        with broker.connect() as leaving:
            transaction = leaving.begin()
            transaction.send(text(destination, "never"))
        with pytest.raises(ClosedError):
            transaction.commit().result(PATIENCE)
        assert next_in_queue(connection, destination) == "marker"

    def test_watch(self, broker: BrokerUnderTest) -> None:
        """Who watches a connection is told that it was closed."""
        states: SimpleQueue[ConnectionState] = SimpleQueue()
        connection = broker.connect()
        connection.watch(states.put)
        connection.close()
        assert states.get(timeout=PATIENCE) is ConnectionState.CLOSED

    def test_errors_after_the_end(self, broker: BrokerUnderTest) -> None:
        """Whatever is asked of a closed connection, its error has the root of all others."""
        closed = broker.connect()
        uses: list[Callable[[], object]] = [
            lambda: closed.send(text(queue("q"), "a")).result(PATIENCE),
            lambda: closed.consume(queue("q"), Inbox()),
            lambda: closed.unsubscribe(topic("t"), "d"),
            closed.begin,
            closed.temporary,
            closed.wait_connected,
        ]
        closed.close()
        for use in uses:
            with pytest.raises(SoapJmsError):
                use()

    @pytest.mark.parametrize(
        "odd", [{"selector": "\ud800"}, {"selector": "\0"}, {"destination": queue("\ud800")}], ids=str
    )
    def test_odd_subscriptions(self, connection: Connection, odd: dict[str, Any]) -> None:
        """A subscription that cannot be asked for is refused with an error that has the root of all others."""
        with suppress(SoapJmsError):
            connection.consume(**{"destination": queue(fresh()), "on_delivery": Inbox(), **odd}).close()

    @pytest.mark.parametrize("consumer_first", [True, False])
    def test_close_from_on_delivery(
        self, broker: BrokerUnderTest, connection: Connection, consumer_first: bool
    ) -> None:
        """`on_delivery` may close its connection, and its consumer before that."""
        destination, done = queue(fresh()), Event()
        leaving = broker.connect()

        def on_delivery(delivery: Delivery) -> None:
            delivery.accept()
            if consumer_first:
                consumer.close()
            leaving.close()
            done.set()

        consumer = leaving.consume(destination, on_delivery)
        send(connection, text(destination, "a"))
        assert done.wait(PATIENCE)
        assert next_in_queue(connection, destination) == "marker"

    def test_a_closed_consumer_gets_nothing(self, connection: Connection) -> None:
        """After `close` no further `on_delivery` starts; what is sent then reaches others."""
        destination, inbox, witness = queue(fresh()), Inbox(), Inbox()
        closed = connection.consume(destination, inbox)
        closed.close()
        with connection.consume(destination, witness):
            send(connection, *(text(destination, body) for body in "abc"))
            assert witness.bodies(3) == ["a", "b", "c"]

    def test_no_problem(self, connection: Connection) -> None:
        """A consumer whose subscription lives has no problem, and tells of none; nothing small is refused unread."""
        told: list[object] = []
        destination, inbox = queue(fresh()), Inbox()
        consumer = connection.consume(
            destination, inbox, on_problem=told.append, on_refused=lambda *refused: told.append(refused)
        )
        send(connection, text(destination, "one"))
        assert inbox.next().message.body == "one"
        assert consumer.problem == ""
        consumer.close()
        assert told == []

    @pytest.mark.parametrize("place", [queue, topic])
    def test_selector(self, connection: Connection, place: Callable[[str], Destination]) -> None:
        """A consumer gets what it selects, of a queue the others get the rest; what is no selector is refused."""
        if not connection.capabilities.selectors:
            return
        destination, red, rest = place(fresh(place.__name__)), Inbox(), Inbox()
        colours = ["red", "green", "red", "blue"]
        sent = [replace(text(destination, each), properties=properties({"colour": each})) for each in colours]
        with connection.consume(destination, red, selector="colour = 'red'"):
            send(connection, *sent)
            assert red.bodies(2) == ["red", "red"]
        if destination.kind is DestinationKind.QUEUE:
            with connection.consume(destination, rest, selector="NOT (colour = 'red')"):
                assert rest.bodies(2) == ["green", "blue"]
        with pytest.raises(BrokerError):
            connection.consume(destination, Inbox(), selector="colour = = 'red'")

    def test_missing_capabilities_are_refused(self, connection: Connection) -> None:
        """Asking for what the broker lacks raises UnsupportedError, which names the capability."""
        if not connection.capabilities.selectors:
            with pytest.raises(UnsupportedError, match="selector"):
                connection.consume(queue(fresh()), Inbox(), selector="a = 1")
        if not connection.capabilities.durable_topics:
            with pytest.raises(UnsupportedError, match="durable"):
                connection.consume(topic(fresh("topic")), Inbox(), durable_name="me")
        if not connection.capabilities.transactions:
            with pytest.raises(UnsupportedError, match="transaction"):
                connection.begin()

    def test_prefetch_must_be_positive(self, connection: Connection) -> None:
        """A consumer that may hold nothing is the caller's error."""
        with pytest.raises(UsageError, match="prefetch"):
            connection.consume(queue(fresh()), Inbox(), prefetch=0)
        with pytest.raises(ValueError, match="prefetch must be"):
            connection.consume(queue(fresh()), Inbox(), prefetch=1 << 31)
