"""When a lost connection is made again, and what follows where nobody can."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import pytest
from ports import nobody

import brokers
from brokers.adapter.endpoints import NEAR_PAUSE_SECONDS, STEADY_SECONDS, Reconnect, Reconnector
from brokers.errors import BrokerError, ConnectionFailedError, LoginRefusedError, UnreachableError, UsageError

REFUSED, SILENT = ConnectionFailedError("refused"), UnreachableError("nobody")


class Waits(Event):
    """An event that nobody sets: notes how long it would be waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Note it."""
        assert timeout is not None
        self.seconds.append(timeout)
        return False


def longest_pauses(
    plan: Reconnect, failures: list[BrokerError], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], list[float]]:
    """Return the longest pause before each attempt, and for how long the connection was lost at each."""
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    waits, lost_for, left = Waits(), list[float](), list(failures)
    monkeypatch.setattr("brokers.adapter.endpoints.monotonic", lambda: sum(waits.seconds))

    def attempt(seconds: float) -> None:
        lost_for.append(seconds)
        if left:
            raise left.pop(0)

    reconnector = Reconnector("broker", plan, attempt, lambda cause: None)
    reconnector._stopped = waits
    reconnector._run()
    return waits.seconds, lost_for


class TestPauses:
    """How long it stays away."""

    def test_nothing_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pauses double until they are the maximum."""
        plan = Reconnect(initial=1.0, maximum=10.0)
        pauses, lost_for = longest_pauses(plan, [SILENT] * 6, monkeypatch)
        assert pauses == [1, 1, 2, 4, 8, 10, 10]
        assert lost_for == [1, 2, 4, 8, 16, 26, 36]

    @pytest.mark.parametrize("failure", [REFUSED, LoginRefusedError("starting"), BrokerError("odd")])
    def test_something_answers(self, failure: BrokerError, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long it does, none is longer than two seconds."""
        pauses, _ = longest_pauses(Reconnect(maximum=60.0), [failure] * 200, monkeypatch)
        assert pauses[:6] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, NEAR_PAUSE_SECONDS])
        assert set(pauses[5:]) == {NEAR_PAUSE_SECONDS}
        assert set(longest_pauses(Reconnect(initial=0.3, maximum=0.5), [failure] * 9, monkeypatch)[0]) == {0.3, 0.5}

    def test_begins_to_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then the first pauses are short again: the machine is back, and the broker will be soon."""
        plan = Reconnect(initial=1.0, maximum=10.0)
        failures = [REFUSED, REFUSED, SILENT, SILENT, SILENT, SILENT, SILENT, SILENT, REFUSED, REFUSED]
        pauses, _ = longest_pauses(plan, failures, monkeypatch)
        assert pauses == [1, 2, 2, 1, 2, 4, 8, 10, 10, 1, 2]

    def test_a_session_that_soon_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It counts as a failed attempt: the broker may end each, and would get a login as often as it can."""
        monkeypatch.setattr(random, "uniform", lambda least, most: most)
        waits, now = Waits(), [0.0]
        monkeypatch.setattr("brokers.adapter.endpoints.monotonic", lambda: now[0])
        reconnector = Reconnector("broker", Reconnect(), lambda lost_for: None, lambda cause: None)
        reconnector._stopped = waits
        for lasted in (0.1, 0.1, STEADY_SECONDS - 1, 0.1, 0.1, 0.1, STEADY_SECONDS, 0.1):
            reconnector._run()
            now[0] += lasted
        assert waits.seconds == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, NEAR_PAUSE_SECONDS, NEAR_PAUSE_SECONDS, 0.1])

    def test_a_session_that_ends_before_its_attempt_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It counts as one that soon ended, though the next loss is told first."""
        monkeypatch.setattr(random, "uniform", lambda least, most: most)
        waits = Waits()

        def attempt(lost_for: float) -> None:
            if len(waits.seconds) < 4:
                reconnector._run()

        reconnector = Reconnector("broker", Reconnect(), attempt, lambda cause: None)
        reconnector._stopped = waits
        reconnector._run()
        assert waits.seconds == pytest.approx([0.1, 0.2, 0.4, 0.8])

    def test_a_session_that_soon_ends_after_an_outage(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The attempts that failed during the outage do not count: the broker is back."""
        monkeypatch.setattr(random, "uniform", lambda least, most: most)
        waits, failures = Waits(), [REFUSED] * 10

        def attempt(lost_for: float) -> None:
            if failures:
                raise failures.pop()

        reconnector = Reconnector("broker", Reconnect(), attempt, lambda cause: None)
        reconnector._stopped = waits
        reconnector._run()
        reconnector._run()
        assert waits.seconds[-2:] == pytest.approx([NEAR_PAUSE_SECONDS, 0.2])

    @pytest.mark.parametrize(
        "wrong",
        [
            {"initial": "1"},
            {"initial": True},
            {"maximum": float("nan")},
            {"attempts": 0},
            {"attempts": 2.5},
            {"attempts": "3"},
            {"attempts": True},
        ],
    )
    def test_what_is_no_plan(self, wrong: dict[str, Any]) -> None:
        """It is the caller's mistake, and the value is shown."""
        with pytest.raises(UsageError, match=f"must be .*, got {next(iter(wrong.values()))!r}"):
            Reconnect(**wrong)

    def test_differ(self) -> None:
        """Any time up to the bound, so that clients come one by one."""
        pauses = [Reconnect(initial=0.1, maximum=1.0).pause(3, is_silent=True) for _ in range(200)]
        assert 0 <= min(pauses) < 0.2
        assert 0.6 < max(pauses) <= 0.8


@contextmanager
def full(port: int) -> Iterator[None]:
    """Listen at a port with no room for anybody: what comes is not answered, as if the machine was off."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        for _ in range(2):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        yield


@pytest.mark.parametrize("scheme", ["stomp", "amqp"])
def test_what_does_not_answer(scheme: str) -> None:
    """The error says whether anything answered: one that nobody listens to does, one that is silent does not."""
    with nobody() as port:
        with pytest.raises(ConnectionFailedError, match="refused") as refused:
            brokers.connect(f"{scheme}://127.0.0.1:{port}", timeout=0.5)
        assert not isinstance(refused.value, UnreachableError)
        with full(port):
            for url in (f"{scheme}://127.0.0.1:{port}", f"{scheme}://127.0.0.1:{port},127.0.0.1:{port}"):
                with pytest.raises(UnreachableError, match="timed out"):
                    brokers.connect(url, timeout=0.5)


@pytest.mark.parametrize(
    ("error", "why"), [(RuntimeError("can't start new thread"), "can't start new thread"), (MemoryError(), "no memory")]
)
def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch, error: Exception, why: str) -> None:
    """The connection is given up, so that whoever looks knows; it would stay lost for ever."""

    def refuse(thread: Thread) -> None:
        raise error

    causes: SimpleQueue[str] = SimpleQueue()
    reconnector = Reconnector("broker", Reconnect(), lambda lost_for: None, causes.put)
    monkeypatch.setattr(Thread, "start", refuse)
    reconnector.start()
    assert causes.get_nowait() == f"broker was lost, and no thread could be started to reconnect: {why}"
    reconnector.stop()
    reconnector.start()
    assert causes.empty(), "it was stopped"
