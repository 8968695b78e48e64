"""The order, expiry and counting of one embedded queue, without a thread."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from brokers.embedded.queues import EntryStore, MessageShare, QueueEntry, Total
from brokers.message import Message, MessageType

PRIORITIES = st.none() | st.integers(-1, 11)
EXPIRATIONS = st.none() | st.integers(0, 20)


def entry(sequence: int, priority: int | None = 4, expiration: int | None = 0) -> QueueEntry:
    return QueueEntry(Message(message_type=MessageType.MESSAGE, priority=priority, expiration=expiration), sequence)


def rank(item: QueueEntry) -> tuple[int, int]:
    """Say the order that JMS asks for: priority within 0 to 9, 4 by default, then arrival."""
    priority = 4 if item.message.priority is None else item.message.priority
    return -min(max(priority, 0), 9), item.sequence


def drain(store: EntryStore, now: int = 0) -> list[QueueEntry]:
    """Take all that can be taken."""
    taken = []
    while (item := store.take(now)[0]) is not None:
        taken.append(item)
    return taken


@given(st.lists(PRIORITIES))
def test_order(priorities: list[int | None]) -> None:
    """Entries leave by priority, then by arrival; a priority outside 0 to 9 counts as the nearest."""
    store = EntryStore(100, 1000)
    entries = [entry(number, priority) for number, priority in enumerate(priorities)]
    for item in entries:
        store.put(item)
    assert drain(store) == sorted(entries, key=rank)


@given(st.lists(PRIORITIES, min_size=1), st.data())
def test_order_after_coming_back(priorities: list[int | None], data: st.DataObject) -> None:
    """Whatever is given back, in whatever order, takes its old place."""
    store = EntryStore(100, 1000)
    entries = [entry(number, priority) for number, priority in enumerate(priorities)]
    for item in entries:
        store.put(item)
    taken = [back for _ in range(data.draw(st.integers(0, len(entries)))) if (back := store.take(0)[0])]
    for back in data.draw(st.permutations(taken)):
        store.give_back(back)
    again = drain(store)
    assert again == sorted(entries, key=rank)
    assert {item.sequence for item in again if item.deliveries == 2} == {item.sequence for item in taken}


@given(st.lists(EXPIRATIONS), st.integers(0, 20))
def test_expiry(expirations: list[int | None], now: int) -> None:
    """`take` passes over what expired; `expire` removes the same; an expiration of 0 or None means never."""
    taking, sweeping = EntryStore(100, 1000), EntryStore(100, 1000)
    entries = [entry(number, 4, expiration) for number, expiration in enumerate(expirations)]
    for item in entries:
        taking.put(replace(item))  # an entry is of one store
        sweeping.put(item)
    dead = [item for item in entries if item.message.expiration and item.message.expiration <= now]
    swept = sweeping.expire(now)
    assert sorted(swept, key=rank) == dead
    assert sweeping.expire(now) == []
    found: list[int] = []
    living: list[int] = []
    while taking.waiting:
        alive, expired = taking.take(now)
        found += [item.sequence for item in expired]
        living += [alive.sequence] if alive else []
    assert found == [item.sequence for item in dead]
    assert living == [item.sequence for item in drain(sweeping, now)]
    assert living == [item.sequence for item in entries if item not in dead]
    assert len(taking) == len(living)


def test_the_next_to_expire_is_known_after_a_sweep() -> None:
    """A sweep leaves what expires later, and a later sweep finds it."""
    store = EntryStore(10, 1000)
    for number, expiration in enumerate((30, 10, 0, 20)):
        store.put(entry(number, 4, expiration))
    assert [[item.sequence for item in store.expire(now)] for now in (9, 10, 19, 20, 30, 99)] == [
        [],
        [1],
        [],
        [3],
        [0],
        [],
    ]
    assert [item.sequence for item in store] == [2]


def test_limit() -> None:
    """Waiting and taken entries count towards the limit; settled ones do not."""
    store = EntryStore(2, 1000)
    store.put(entry(1))
    assert store.excess(1, 0) is None
    assert store.excess(2, 0) == "max_messages is 2, it has 1, and 2 more were to be added"
    store.put(entry(2))
    taken, _ = store.take(0)
    assert taken is not None
    assert (len(store), store.waiting, bool(store.excess(1, 0))) == (2, 1, True)
    store.settle(taken)
    assert (len(store), store.waiting, bool(store.excess(1, 0))) == (1, 1, False)


STEPS = st.lists(st.sampled_from(["put", "take", "give_back", "settle", "expire"]) | st.integers(1, 9), max_size=60)


@given(STEPS)
def test_octets_are_those_of_what_is_there(steps: list[str | int]) -> None:
    """Whatever is done, the octets are those of waiting and taken entries: no step counts twice, or forgets to."""
    store, taken, numbers, now, octets = EntryStore(1000, 100), [], iter(range(1000)), 0, 0
    total = Total()
    for step in steps:
        match step:
            case int():
                octets = step
            case "put":
                item = entry(next(numbers), 4, octets * 3)
                item.octets, item.share = octets, MessageShare(total, octets)
                store.put(item)
            case "take":
                found, _ = store.take(now)
                taken += [found] if found else []
            case "expire":
                store.expire(now := now + 1)
            case "settle" if taken:
                store.settle(taken.pop())
            case "give_back" if taken:
                store.give_back(taken.pop())
    held = sum(each.octets for each in (*store, *taken))
    assert total.octets == held
    assert (held <= 100) is (store.excess(0, 0) is None)
    room = 100 - held
    assert store.excess(0, room) is None
    assert store.excess(0, room + 1) == f"max_octets is 100, it has {held}, and {room + 1} more were to be added"
    store.end()
    assert total.octets == sum(each.octets for each in taken)
    for number, item in enumerate(taken):
        (store.settle if number % 2 else store.give_back)(item)
    assert (total.octets, list(store)) == (0, [])
