"""How often messages came back over STOMP."""

from __future__ import annotations

import pytest

from brokers.stomp import acknowledge as module
from brokers.stomp.acknowledge import Releases


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
    assert len(releases.counts) == 3
    assert [releases.count(message) for message in ("a", "c", "b")] == [3, 2, 1]
