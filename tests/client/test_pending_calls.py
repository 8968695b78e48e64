"""soapjms.client.pending_calls: when pending calls that nobody waits for are ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from soapjms.client.pending_calls import OverdueCalls


class Planned:
    """A timer whose time passes when the test says so.

    Attributes:
        now: the time.
        entries: what is planned, with its time.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.entries: list[tuple[float, Callable[[], None]]] = []

    def start(self) -> None:
        pass

    def call_at(self, seconds: float, function: Callable[[], None]) -> tuple[float, Callable[[], None]]:
        self.entries.append((seconds, function))
        return self.entries[-1]

    def forget(self, entry: tuple[float, Callable[[], None]]) -> None:
        if entry in self.entries:
            self.entries.remove(entry)

    def pass_until(self, now: float) -> None:
        while self.entries and (entry := min(self.entries, key=lambda each: each[0]))[0] <= now:
            self.now = max(self.now, entry[0])
            self.entries.remove(entry)
            entry[1]()
        self.now = now


@contextmanager
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Planned, dict[float, None], OverdueCalls]]:
    """Give a timer, the times at which calls are due, and what ends them."""
    timer, due = Planned(), dict[float, None]()
    calls: Any = SimpleNamespace(all=lambda: [SimpleNamespace(due=each) for each in due])
    with monkeypatch.context() as patch:
        patch.setattr("soapjms.client.pending_calls.Deadlines", lambda name: timer)
        patch.setattr("soapjms.client.pending_calls.monotonic", lambda: timer.now)
        yield timer, due, OverdueCalls(calls, lambda call: due.pop(call.due))


def test_short_calls_beside_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call ends in its time, and one look is planned at most, however many calls were before."""
    with planned(monkeypatch) as (timer, due, overdue):
        due[1000.0] = None
        overdue.look_at(1000.0)
        for second in range(1, 100):
            due[second + 0.5] = None
            overdue.look_at(second + 0.5)
            assert len(timer.entries) == 1
            timer.pass_until(second + 1)
            assert list(due) == [1000.0]
            assert len(timer.entries) == 1
        timer.pass_until(1000.0)
        assert not due
        assert not timer.entries


def test_a_call_is_added_while_others_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that was due at the moment when an earlier one was planned leaves all to that one."""
    with planned(monkeypatch) as (timer, due, overdue):
        due |= {2.0: None, 3.0: None}
        overdue.look_at(3.0)
        (_, late), timer.entries = timer.entries[0], []  # its thread has taken it, and not begun
        overdue.look_at(2.0)
        late()
        assert [at for at, _ in timer.entries] == [2.0]
        timer.pass_until(3.0)
        assert not due
        assert not timer.entries
