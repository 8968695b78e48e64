"""brokers.adapter.redelivery: how long a released message is kept before it is delivered again."""

from __future__ import annotations

from itertools import pairwise

from brokers.adapter.redelivery import MAX_DELIVERIES, MAX_PAUSE_DELIVERIES, pause_after


def test_pauses_grow() -> None:
    """Each pause is longer than the one before; all of a message's together are a moment."""
    pauses = [pause_after(deliveries) for deliveries in range(1, MAX_DELIVERIES)]
    assert all(shorter < longer for shorter, longer in pairwise(pauses))
    assert 1 < sum(pauses) < 2


def test_pauses_have_a_maximum() -> None:
    """A broker with a higher limit of deliveries gets the message back within half a minute, however often it came."""
    assert pause_after(MAX_PAUSE_DELIVERIES - 1) < pause_after(MAX_PAUSE_DELIVERIES) < 30
    assert pause_after(MAX_PAUSE_DELIVERIES) == pause_after(MAX_PAUSE_DELIVERIES + 1) == pause_after(10_000)
