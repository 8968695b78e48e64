"""How often messages came back over STOMP, and how long they are kept before they do."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokers.stomp import acknowledge as module
from brokers.stomp.acknowledge import MAX_DELIVERIES, Releases, pause_after


def test_pauses_grow() -> None:
    """Each pause is longer than the one before; all of a message's together are a moment."""
    pauses = [pause_after(releases) for releases in range(1, MAX_DELIVERIES)]
    assert all(shorter < longer for shorter, longer in pairwise(pauses))
    assert 1 < sum(pauses) < 2


def test_each_message_is_counted_for_itself() -> None:
    """Releases are counted by message, until it is forgotten."""
    releases = Releases()
    assert [releases.count("a"), releases.count("a"), releases.count("b"), releases.count("a")] == [1, 2, 1, 3]
    releases.forget("a")
    releases.forget("a")
    assert (releases.count("a"), releases.count("b")) == (1, 2)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many messages those whose last release is longest ago are forgotten."""
    monkeypatch.setattr(module, "MAX_RELEASED_MESSAGES", 3)
    releases = Releases()
    for message in ("a", "b", "c", "a", "d"):
        releases.count(message)
    assert len(releases) == 3
    assert [releases.count(message) for message in ("a", "c", "b")] == [3, 2, 1]
