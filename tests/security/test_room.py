"""Room for clients: who goes when there is none left, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from brokers.listeners.room import ClientShare, Room


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class House:
    """A room, and which clients had to go, in order."""

    def __init__(self, most: int, most_each: int | None = None) -> None:
        self.clock = Clock()
        self.gone: list[str] = []
        self.room = Room(most, "clients", self.clock, most_each=most_each)

    def enter(self, name: str, address: str, after: float = 0.01) -> ClientShare:
        """Let a client in, some time after the last one."""
        self.clock.now += after
        return self.room.enter(address, 1, self._end(name))

    def _end(self, name: str) -> Callable[[], None]:
        return lambda: self.gone.append(name)


def test_longest_of_the_fullest_address() -> None:
    """Where the whole is full, the one goes that waits longest, of the address that has most of those that wait."""
    house = House(4)
    house.enter("alone", "10.0.0.1")
    for name in ("first", "second", "third"):
        house.enter(name, "10.0.0.2")
    house.enter("another", "10.0.0.3")
    assert house.gone == ["first"]
    house.enter("one more", "10.0.0.4")
    assert house.gone == ["first", "second"]


def test_an_address_has_its_part() -> None:
    """Above its part, those of an address go that have waited for a second; there may be more for so long."""
    house = House(100, 2)
    for name in ("first", "second", "third"):
        house.enter(name, "10.0.0.1")
    house.enter("another", "10.0.0.2")
    assert house.gone == []
    house.enter("late", "10.0.0.1", after=2.0)
    assert house.gone == ["first", "second"]


def test_settled_never_go_and_count_for_themselves() -> None:
    """Who has logged in stays, and takes room of the whole, but none of the strangers' of its address."""
    house = House(4, 2)
    assert [house.room.settle(house.enter(f"{n}", "10.0.0.1"), "ann", 3) for n in range(4)] == [True, True, True, False]
    assert house.room.count == 4
    house.enter("a", "10.0.0.1")
    assert house.gone == ["3"]
    house.enter("b", "10.0.0.2")
    assert house.gone == ["3", "a"]


def test_who_works_stays_and_who_is_gone_does_not_settle() -> None:
    """What is worked on never goes; who had to go cannot log in any more, and a full room turns the next one away."""
    house = House(2)
    one, two = house.enter("one", "10.0.0.1"), house.enter("two", "10.0.0.2")
    house.room.works(one)
    three = house.enter("three", "10.0.0.3")
    assert house.gone == ["two"]
    assert two.has_to_go
    assert not house.room.settle(two, "ann", 9)
    house.room.works(three)
    assert house.enter("four", "10.0.0.4").has_to_go
    house.room.waits(one)
    assert not house.enter("five", "10.0.0.5").has_to_go
    assert house.gone == ["two", "four", "one"]


def test_leaving_twice() -> None:
    """Whatever leaves, how often and after what: nothing is counted any more."""
    house = House(5)
    held = [house.enter(f"{n}", "10.0.0.1") for n in range(5)]
    assert house.room.settle(held[0], "ann", 1)
    house.room.shed()
    for each in held * 2:
        house.room.leave(each)
        house.room.waits(each)
        house.room.grow(each, 3)
    assert house.gone == ["1"]
    assert house.room.count == 0
    assert [house.enter(f"{n}", "10.0.0.1").has_to_go for n in range(5)] == [False] * 5


def test_a_full_room_costs_no_more_for_each() -> None:
    """A newcomer costs about the same whether a thousand wait in a full room, or twenty thousand."""

    def seconds(most: int) -> float:
        house = House(most)
        for number in range(most):
            house.enter("", f"10.0.0.{number % 50}")
        begun = monotonic()
        for number in range(2000):
            house.enter("", f"10.0.0.{number % 50}")
        assert len(house.gone) == 2000
        return monotonic() - begun

    small = min(seconds(1000) for _ in range(3))
    assert min(seconds(20_000) for _ in range(3)) < 4 * small


def test_a_network_of_ipv6_is_one_address() -> None:
    """One of 64 bits."""
    house = House(4)
    for number in range(3):
        house.enter(f"{number}", f"2001:db8::{number}")
    house.enter("late", "2001:db8::9", after=2.0)
    assert house.gone == ["0", "1"]


def test_what_is_alone_stays() -> None:
    """However large it is; the next one takes its room."""
    gone = list[str]()
    room = Room(4, "octets")
    room.enter("10.0.0.1", 10, lambda: gone.append("a"))
    assert gone == []
    room.enter("10.0.0.2", 1, lambda: gone.append("b"))
    assert gone == ["a"]
    assert room.count == 1
