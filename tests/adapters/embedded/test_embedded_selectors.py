"""Selectors of the embedded broker: who gets what, in which order, and what is kept for whom."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from broker_contract_kit import Inbox, send, text
from embedded_kit import NEWS, ORDERS, EmbeddedFixtures, SetClock
from hypothesis import given
from hypothesis import strategies as st

from brokers import BrokerError, Connection, Destination, InvalidSelectorError, Message, MessageType, properties
from brokers.embedded import Broker
from brokers.embedded.queues import SPARE_ENTRIES, EntryLine, EntryStore, QueueEntry, SubscribeTerms
from brokers.selector import Selector


def numbered(destination: Destination, number: int, **headers: int) -> Message:
    """Make a message that is told by its number."""
    return replace(text(destination, str(number)), properties=properties({"number": number}), **headers)  # type: ignore[arg-type]


class TestQueues(EmbeddedFixtures):
    """Consumers of one queue with different selectors."""

    def test_the_rest_stays(self, broker: Broker, connection: Connection) -> None:
        """What nobody selects stays, in its order, for a consumer without a selector."""
        send(connection, *(numbered(ORDERS, each) for each in range(4)))
        odd, rest = Inbox(), Inbox()
        with connection.consume(ORDERS, odd, selector="number = 1 OR number = 3"):
            assert odd.bodies(2) == ["1", "3"]
        assert broker.depth(ORDERS) == 2
        with connection.consume(ORDERS, rest, selector=" "):  # which is none
            assert rest.bodies(2) == ["0", "2"]

    def test_by_priority(self, connection: Connection) -> None:
        """What is selected comes by priority, then in the order of arrival."""
        send(connection, *(numbered(ORDERS, each, priority=priority) for each, priority in enumerate((1, 9, 4, 9))))
        inbox = Inbox()
        with connection.consume(ORDERS, inbox, selector="number <> 2"):
            assert inbox.bodies(3) == ["1", "3", "0"]

    def test_who_waits_is_woken(self, connection: Connection) -> None:
        """Of several consumers that wait, one that wants a message gets it, whoever waits the longest."""
        first, second, third = Inbox(), Inbox(), Inbox()
        with (
            connection.consume(ORDERS, first, selector="number = 1"),
            connection.consume(ORDERS, second, selector="number = 2"),
            connection.consume(ORDERS, third, selector="number > 2"),
        ):
            for round_ in range(20):
                send(connection, numbered(ORDERS, 3 + round_), numbered(ORDERS, 2), numbered(ORDERS, 1))
                assert (first.bodies(1), second.bodies(1), third.bodies(1)) == (["1"], ["2"], [str(3 + round_)])

    def test_what_comes_back_is_selected_again(self, connection: Connection) -> None:
        """A message that is released goes to who selects it; the count of its deliveries may decide."""
        send(connection, numbered(ORDERS, 1))
        again, holding = Inbox(), Inbox(accept=False)
        with (
            connection.consume(ORDERS, again, selector="number = 1 AND JMSXDeliveryCount = 2"),
            connection.consume(ORDERS, holding, selector="JMSXDeliveryCount = 1"),
        ):
            holding.next().release()
            assert again.next().delivery_count == 2

    def test_what_expires(self, broker: Broker, connection: Connection, clock: SetClock) -> None:
        """It is delivered to nobody, whatever is selected."""
        send(connection, numbered(ORDERS, 1, expiration=clock.now + 1), numbered(ORDERS, 2))
        clock.now += 2
        inbox = Inbox()
        with connection.consume(ORDERS, inbox, selector="number > 0"):
            assert inbox.bodies(1) == ["2"]
        assert broker.depth(Destination(ORDERS.kind, "DLQ.orders")) == 1

    def test_a_selector_that_searches_much(self, broker: Broker, connection: Connection) -> None:
        """One with very much to search wants nothing, and holds up nobody: what it is asked of is another's."""
        costly = " OR ".join(["text LIKE '%_b%'"] * 400)
        message = replace(text(ORDERS, "long"), properties=properties({"text": "a" * 100_000}))
        idle, inbox = Inbox(), Inbox()
        began = time.process_time()
        with connection.consume(ORDERS, idle, selector=costly), connection.consume(NEWS, idle, selector=costly):
            send(connection, message, replace(message, destination=NEWS))
            assert broker.depth(ORDERS) == 1
            with connection.consume(ORDERS, inbox):
                assert inbox.bodies(1) == ["long"]
        assert time.process_time() - began < 1.0

    def test_no_selector(self, connection: Connection) -> None:
        """What is none is the caller's error."""
        with pytest.raises(InvalidSelectorError, match="must have"):
            connection.consume(ORDERS, Inbox(), selector="number =")


class TestTopics(EmbeddedFixtures):
    """What is not selected is kept for nobody."""

    def test_what_is_not_selected_takes_no_room(self, broker: Broker, connection: Connection) -> None:
        """It is not put into the subscription: limits do not count it."""
        connection.consume(NEWS, Inbox(), selector="number > 90", durable_name="archive").close()
        send(connection, *(numbered(NEWS, each) for each in range(94)))
        assert broker.depth(NEWS) == 3
        inbox = Inbox()
        with connection.consume(NEWS, inbox, selector="number > 90", durable_name="archive"):
            assert inbox.bodies(3) == ["91", "92", "93"]

    def test_another_selector(self, broker: Broker, connection: Connection) -> None:
        """A durable subscription with another selector is another one, unless the old one is in use. Spec: JMS 6.11."""
        with connection.consume(NEWS, Inbox(accept=False), durable_name="archive"):
            with pytest.raises(BrokerError, match="'archive' to topic:news has a consumer with other terms"):
                connection.consume(NEWS, Inbox(), selector="number = 2", durable_name="archive")
            send(connection, numbered(NEWS, 1))
        inbox = Inbox()
        with connection.consume(NEWS, inbox, selector="number = 2", durable_name="archive"):
            assert broker.depth(NEWS) == 0
            send(connection, numbered(NEWS, 1), numbered(NEWS, 2))
            assert inbox.bodies(1) == ["2"]


class TestBrowsing(EmbeddedFixtures):
    """Looking at a queue, as the listener lets its clients."""

    def test_nothing_is_taken(self, broker: Broker) -> None:
        """Whatever becomes of what was looked at, the queue is as before; what comes meanwhile is shown too."""
        with broker.connect() as connection:
            send(connection, *(numbered(ORDERS, each) for each in range(3)))
            wants = Selector("number <> 1").wants
            inbox, taken = Inbox(accept=False), Inbox()
            with connection.subscribe(ORDERS, inbox, SubscribeTerms(prefetch=9, is_browsing=True, wants=wants)):
                seen = [inbox.next() for _ in range(2)]
                seen[0].accept()
                seen[1].reject("not mine")
                send(connection, numbered(ORDERS, 7))
                inbox.next().release()
                assert [each.message.body for each in seen] == ["0", "2"]
                assert broker.depth(ORDERS) == 4
                with connection.consume(ORDERS, taken, prefetch=4):
                    assert taken.bodies(4) == ["0", "1", "2", "7"]
            assert broker.destinations() == []


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "take", "take odd", "give back", "settle"]), st.integers(0, 9)), max_size=80
)


@given(STEPS)
def test_lines(steps: list[tuple[str, int]]) -> None:
    """A line has what waits and is wanted, in order, whatever was taken elsewhere and came back."""
    store, line, waiting, taken = (
        EntryStore(1000, 1000),
        EntryLine(lambda message, count: bool((message.priority or 0) % 2)),
        [],
        [],
    )
    store.add(line)
    for sequence, (step, priority) in enumerate(steps):
        if step == "put":
            waiting.append(QueueEntry(Message(message_type=MessageType.MESSAGE, priority=priority), sequence))
            store.put(waiting[-1])
        elif step.startswith("take"):
            wanted = [each for each in waiting if step == "take" or (each.message.priority or 0) % 2]
            wanted.sort(key=lambda each: (-(each.message.priority or 0), each.sequence))
            found, _ = store.take(0, line if step == "take odd" else None)
            assert found is (wanted[0] if wanted else None)
            if found is not None:
                waiting.remove(found)
                taken.append(found)
        elif taken:
            entry = taken.pop(priority % len(taken))
            if step == "give back":
                waiting.append(entry)
            (store.give_back if step == "give back" else store.settle)(entry)
        assert (store.waiting, len(store)) == (len(waiting), len(waiting) + len(taken))


def test_lines_forget_what_was_taken_elsewhere() -> None:
    """A queue whose consumers all have selectors keeps no message that has left it."""
    store, line = EntryStore(10_000, 1 << 20), EntryLine(lambda message, count: True)
    store.add(line)
    for number in range(5000):
        store.put(QueueEntry(Message(message_type=MessageType.MESSAGE), number))
        entry, _ = store.take(0, line if number % 2 else None)
        assert entry is not None
        store.settle(entry)
    assert len(store._line._heap) <= SPARE_ENTRIES + 1
    assert len(line._heap) <= SPARE_ENTRIES + 1
