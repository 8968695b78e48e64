"""brokers.adapter.redelivery: how often a message was released, and how long it is kept before it comes again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokers.adapter import redelivery
from brokers.adapter.redelivery import MAX_DELIVERIES, MAX_PAUSE_DELIVERIES, Releases, pause_after


def test_pauses_grow() -> None:
    """Each pause is longer than the one before; all of a message's together are a moment."""
    pauses = [pause_after(deliveries) for deliveries in range(1, MAX_DELIVERIES)]
    assert all(shorter < longer for shorter, longer in pairwise(pauses))
    assert 1 < sum(pauses) < 2


def test_pauses_have_a_maximum() -> None:
    """A broker with a higher limit of deliveries gets the message back within half a minute, however often it came."""
    assert pause_after(MAX_PAUSE_DELIVERIES - 1) < pause_after(MAX_PAUSE_DELIVERIES) < 30
    assert pause_after(MAX_PAUSE_DELIVERIES) == pause_after(MAX_PAUSE_DELIVERIES + 1) == pause_after(10_000)


def test_each_message_is_counted_for_itself() -> None:
    """Releases are counted by message, until it is forgotten."""
    releases = Releases()
    assert [releases.count("a"), releases.count("a"), releases.count("b"), releases.count("a")] == [1, 2, 1, 3]
    releases.forget("a")
    releases.forget("a")
    assert (releases.count("a"), releases.count("b")) == (1, 2)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many messages those whose last release is longest ago are forgotten."""
    monkeypatch.setattr(redelivery, "MAX_RELEASED_MESSAGES", 3)
    releases = Releases()
    for message in ("a", "b", "c", "a", "d"):
        releases.count(message)
    assert len(releases.counts) == 3
    assert [releases.count(message) for message in ("a", "c", "b")] == [3, 2, 1]
