"""A message that goes straight to a subscription that waits for it: with the same result as one that waits first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from broker_contract_kit import text
from embedded_kit import NEWS, ORDERS, SetClock
from hypothesis import given
from hypothesis import strategies as st

from brokers.embedded.core import EmbeddedCore
from brokers.embedded.queues import BrokerLimits, Handover, Outlet, OutletSubscription, SubscribeTerms
from brokers.message import Destination, queue

DEAD = queue("DLQ.orders")
LIMITS = BrokerLimits(max_messages=100, max_octets=1 << 20, max_total_octets=1 << 20, max_destinations=50)


class Taker:
    """A subscription whose thread is the test's: once woken, it takes at once, or when it is told to."""

    def __init__(self, core: EmbeddedCore, terms: SubscribeTerms, *, accepts: bool, at_once: bool) -> None:
        self.core = core
        self.at_once = at_once
        self.is_woken = False
        self.held: list[Handover] = []
        self.seen: list[tuple[object, int]] = []
        self.subscription: OutletSubscription = core.subscribe(
            ORDERS, core.attach(None), terms, self.wake, accepts=accepts
        )
        self.run()

    def wake(self) -> None:
        """Be woken."""
        self.is_woken = True
        if self.at_once:
            self.run()

    def run(self) -> None:
        """Take what there is."""
        self.is_woken = False
        holding = self.core.begin(self.subscription)
        while holding is not None:
            self.held.append(holding)
            self.seen.append((holding.message.body, holding.delivery_count))
            assert bool(holding.message.redelivered) is (holding.delivery_count > 1)
            holding = self.core.take(self.subscription)

    def end(self) -> None:
        """End the subscription, though it may have been woken."""
        self.core.stop(self.subscription)
        self.core.leave(self.subscription)
        if self.is_woken:
            self.run()


class Case:
    """A broker with some subscriptions to a queue, whose messages have numbers as their bodies."""

    def __init__(self, *, at_once: bool) -> None:
        self.clock = SetClock()
        self.core = EmbeddedCore("", self.clock, 3, LIMITS)
        self.takers: list[Taker] = []
        self.left: list[Taker] = []
        self.at_once = at_once
        self.sent = 0
        self.place = self.core.attach(None)

    def do(self, step: tuple[str, int]) -> None:
        """Do one step; what it cannot be done to is left out."""
        what, number = step
        taker = self.takers[number % len(self.takers)] if self.takers else None
        if what == "send":
            self.send(number)
        elif what == "later":
            self.clock.now += number
        elif what == "join":
            terms = SubscribeTerms(prefetch=1 + number % 3)
            self.takers.append(Taker(self.core, terms, accepts=number % 4 == 0, at_once=self.at_once))
        elif taker is None:
            return
        elif what == "run" and taker.is_woken:
            taker.run()
        elif what == "leave":
            taker.end()
            self.takers.remove(taker)
            self.left.append(taker)
        elif what in ("accept", "release", "reject") and taker.held:
            settle: dict[str, Callable[[Handover], None]] = {
                "accept": self.core.accept,
                "release": self.core.release,
                "reject": lambda holding: self.core.reject(holding, "no"),
            }
            settle[what](taker.held.pop(number % len(taker.held)))

    def send(self, number: int) -> None:
        """Send a message of some priority, that expires soon or never."""
        self.sent += 1
        expiration = self.clock.now + number if number % 3 == 0 else 0
        message = replace(text(ORDERS, f"{self.sent}"), priority=number % 10, expiration=expiration)
        self.core.send(self.core.stamp(message), self.place)

    def drained(self, destination: Destination) -> list[object]:
        """Take all that is left in a queue."""
        subscription = self.core.subscribe(
            destination, self.place, SubscribeTerms(prefetch=1000), lambda: None, accepts=True
        )
        found = []
        while (holding := self.core.take(subscription)) is not None:
            found.append(holding.message.body)
        self.core.stop(subscription)
        self.core.leave(subscription)
        return found


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "run", "accept", "release", "reject", "join", "leave", "later"]),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(STEPS)
def test_both_ways(steps: list[tuple[str, int]]) -> None:
    """Subscriptions that take at once what they are woken for get the same deliveries in either way."""
    straight, stored = Case(at_once=True), Case(at_once=True)
    put = Outlet.put
    for step in steps:
        straight.do(step)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Outlet, "put", lambda outlet, entry: outlet._wake(outlet.store.put(entry)))
            stored.do(step)
        assert Outlet.put is put
        assert [each.seen for each in straight.takers] == [each.seen for each in stored.takers]
        for place in (ORDERS, DEAD):
            assert straight.core.depth(place) == stored.core.depth(place)
    assert straight.drained(ORDERS) == stored.drained(ORDERS)
    assert straight.drained(DEAD) == stored.drained(DEAD)


@given(STEPS)
def test_nothing_is_lost(steps: list[tuple[str, int]]) -> None:
    """However late subscriptions begin, or if they end instead, each message is somewhere, once, and counted once."""
    case, accepted = Case(at_once=False), 0
    for step in steps:
        held = sum(len(each.held) for each in case.takers if not each.subscription.accepts)
        case.do(step)
        if step[0] == "accept":
            accepted += held - sum(len(each.held) for each in case.takers if not each.subscription.accepts)
    for taker in case.takers:
        taker.end()
    accepted += sum(len(each.seen) for each in (*case.takers, *case.left) if each.subscription.accepts)
    left = [*case.drained(ORDERS), *case.drained(DEAD)]
    assert len(set(left)) == len(left) == case.sent - accepted
    assert case.core._nodes._total.octets == 0
    assert case.core.destinations() == []


class TestInHand:
    """What was handed to a subscription that has not begun yet."""

    @pytest.fixture
    def case(self) -> Case:
        return Case(at_once=False)

    @pytest.mark.parametrize("accepts", [False, True])
    def test_it_expires_in_time(self, case: Case, *, accepts: bool) -> None:
        """A message whose time passes before its subscription begins is a dead letter."""
        taker = Taker(case.core, SubscribeTerms(), accepts=accepts, at_once=False)
        case.send(3)
        case.clock.now += 3
        taker.run()
        assert taker.seen == []
        assert case.drained(DEAD) == ["1"]

    @pytest.mark.parametrize("accepts", [False, True])
    def test_it_goes_back_uncounted(self, case: Case, *, accepts: bool) -> None:
        """A subscription that ends before it begins leaves the message to the next one, as if it had not been there."""
        first = Taker(case.core, SubscribeTerms(), accepts=accepts, at_once=False)
        case.send(1)
        first.end()
        second = Taker(case.core, SubscribeTerms(), accepts=False, at_once=False)
        assert (first.seen, second.seen) == ([], [("1", 1)])

    @pytest.mark.parametrize("accepts", [False, True])
    def test_without_a_thread(self, case: Case, *, accepts: bool) -> None:
        """One that gets no thread leaves it to another one that waits, or takes it once it is woken again."""
        first, second = (Taker(case.core, SubscribeTerms(), accepts=accepts, at_once=False) for _ in range(2))
        case.send(1)
        assert (first.is_woken, second.is_woken) == (True, False)
        case.core.put_off(first.subscription)
        assert second.is_woken
        case.core.put_off(second.subscription)
        first.run()
        assert first.seen == [("1", 1)]

    def test_credit(self, case: Case) -> None:
        """A message in the hand of a subscription on credit takes one of the credits, and gives it back."""
        taker = Taker(case.core, SubscribeTerms(prefetch=0), accepts=False, at_once=False)
        case.core.allow(taker.subscription, 2)
        taker.run()
        case.send(1)
        assert taker.subscription.prefetch == 1
        case.core.put_off(taker.subscription)
        assert taker.subscription.prefetch == 2
        case.send(1)
        taker.run()
        assert (taker.seen, taker.subscription.prefetch) == ([("1", 1), ("2", 1)], 0)

    def test_credit_taken_back(self, case: Case) -> None:
        """A message in the hand of a subscription that may take none any more stays for another one."""
        first, second = (Taker(case.core, SubscribeTerms(prefetch=0), accepts=False, at_once=False) for _ in range(2))
        case.core.allow(first.subscription, 1)
        first.run()
        case.send(1)
        assert not case.core.is_idle(first.subscription)
        case.core.allow(first.subscription, 0)
        first.run()
        assert (first.seen, case.core.is_idle(first.subscription)) == ([], True)
        case.core.allow(second.subscription, 1)
        second.run()
        assert second.seen == [("1", 1)]

    @pytest.mark.parametrize("is_durable", [False, True])
    def test_a_named_subscription_to_a_gone_topic(self, case: Case, is_durable: bool) -> None:
        """One that several consumers may share ends in peace after its temporary topic, and counts no more."""
        mine = case.core.temporary(NEWS.kind.TEMPORARY_TOPIC, case.place)
        terms = SubscribeTerms(name="shared", is_durable=is_durable)
        subscription = case.core.subscribe(mine, case.place, terms, lambda: None)
        case.core.end_temporary(mine, case.place)
        case.core.stop(subscription)
        case.core.leave(subscription)
        assert (case.place.made, case.core.destinations()) == (0, [])

    def test_a_gone_destination(self, case: Case) -> None:
        """What is in hand when its temporary destination ends counts no more."""
        mine = case.core.temporary(NEWS.kind.TEMPORARY_QUEUE, case.place)
        subscription = case.core.subscribe(mine, case.place, SubscribeTerms(), lambda: None, accepts=True)
        assert case.core.take(subscription) is None
        case.core.send(case.core.stamp(text(mine, "a")), case.place)
        case.core.end_temporary(mine, case.place)
        case.core.stop(subscription)
        case.core.leave(subscription)
        assert case.core._nodes._total.octets == 0
