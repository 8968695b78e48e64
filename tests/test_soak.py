"""A program that calls for long holds no more than one that began: a short form of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_brokers import STARTERS
from soak_kit import grows, soak


@pytest.mark.broker
@pytest.mark.parametrize("name", STARTERS)
def test_nothing_grows(name: str, tmp_path: Path) -> None:
    """Threads, files, destinations of the broker and objects do not grow with the number of calls.

    The broker is the test's own: what others left in it would come and go.
    """
    with STARTERS[name]() as broker:
        before, after = soak(broker, 2_000, 1_000, tmp_path / "requests.db")
    assert not grows(before, after), (before, after)
