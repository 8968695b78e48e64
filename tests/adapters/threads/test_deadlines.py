"""One thread that calls back when a deadline passes."""

from __future__ import annotations

import time
from queue import SimpleQueue
from threading import Event, Thread, current_thread

import pytest
from calling_kit import PATIENCE, eventually

from brokers.threads.timer import MIN_SWEEP_DEADLINES, Deadlines

FAR = 3600.0


@pytest.fixture
def deadlines() -> Deadlines:
    """Closed by its test, or ended with the process: its thread is a daemon."""
    return Deadlines("deadlines")


def soon(seconds: float = 0.0) -> float:
    """Return a time of the monotonic clock."""
    return time.monotonic() + seconds


def test_in_order_of_time(deadlines: Deadlines) -> None:
    """Functions are called when they are due, the earliest first, on one thread; a tie in order of arrival."""
    called: SimpleQueue[tuple[str, str, float]] = SimpleQueue()
    base = soon(0.5)

    def note(name: str) -> None:
        called.put((name, current_thread().name, time.monotonic()))

    for name, due in (("last", base + 0.02), ("first", base), ("second", base), ("passed", base - 60)):
        deadlines.call_at(due, lambda name=name: note(name))  # type: ignore[misc]
    found = [called.get(timeout=PATIENCE) for _ in range(4)]
    assert [each[0] for each in found] == ["passed", "first", "second", "last"]
    assert {each[1] for each in found} == {"deadlines"}
    assert all(at >= base for name, _, at in found if name != "passed")
    assert len(deadlines) == 0
    deadlines.close()


def test_earlier_than_what_is_waited_for(deadlines: Deadlines) -> None:
    """A deadline before the one that the thread waits for is not late."""
    done = Event()
    deadlines.call_at(soon(FAR), lambda: None)
    deadlines.call_at(soon(0.01), done.set)
    assert done.wait(PATIENCE)
    deadlines.close()


def test_after_everything_was_called(deadlines: Deadlines) -> None:
    """With nothing to wait for the thread goes on."""
    for _ in range(3):
        done = Event()
        deadlines.call_at(soon(), done.set)
        assert done.wait(PATIENCE)
    deadlines.close()


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_function_that_fails(
    deadlines: Deadlines, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """An exception that leaves a function is logged, and the next is called."""
    done = Event()

    def fail() -> None:
        raise error

    deadlines.call_at(soon(), fail)
    deadlines.call_at(soon(), done.set)
    assert done.wait(PATIENCE)
    assert error.__name__ in caplog.text
    deadlines.close()


def test_forget(deadlines: Deadlines) -> None:
    """What was forgotten is not called; forgetting twice, or too late, does nothing."""
    called: SimpleQueue[str] = SimpleQueue()
    dropped = deadlines.call_at(soon(0.5), lambda: called.put("dropped"))
    kept = deadlines.call_at(soon(0.55), lambda: called.put("kept"))
    deadlines.forget(dropped)
    deadlines.forget(dropped)
    assert called.get(timeout=PATIENCE) == "kept"
    deadlines.forget(kept)
    eventually(lambda: len(deadlines) == 0, "nothing is kept")
    assert called.empty()
    deadlines.close()


def test_what_is_forgotten_is_let_go(deadlines: Deadlines) -> None:
    """A million calls that were answered long before their deadline take no memory."""
    waiting = [deadlines.call_at(soon(FAR), lambda: None) for _ in range(10)]
    for _ in range(100 * MIN_SWEEP_DEADLINES):
        deadlines.forget(deadlines.call_at(soon(FAR), lambda: None))
    assert len(deadlines) <= 2 * MIN_SWEEP_DEADLINES + len(waiting)
    done = Event()
    deadlines.call_at(soon(), done.set)
    assert done.wait(PATIENCE)
    deadlines.close()


def test_close(deadlines: Deadlines) -> None:
    """Closing ends the thread and forgets everything, before and after; twice does nothing."""
    called = Event()
    before = deadlines.call_at(soon(FAR), called.set)
    deadlines.close()
    deadlines.close()
    after = deadlines.call_at(soon(), called.set)
    assert len(deadlines) == 0
    deadlines.forget(before)
    deadlines.forget(after)
    assert not called.wait(0.02)


def test_no_thread_to_be_had(deadlines: Deadlines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for the first deadline is told; once there is a thread it works, and what failed is not called."""

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    called: SimpleQueue[str] = SimpleQueue()
    with monkeypatch.context() as scarce:
        scarce.setattr(Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            deadlines.call_at(soon(), lambda: called.put("first"))
    deadlines.call_at(soon(), lambda: called.put("second"))
    assert called.get(timeout=PATIENCE) == "second"
    deadlines.close()


def test_close_unused() -> None:
    """What was never used has no thread to end."""
    Deadlines("deadlines").close()


def test_closed_by_a_function(deadlines: Deadlines) -> None:
    """A function that is due may close."""
    closed = Event()

    def close() -> None:
        deadlines.close()
        closed.set()

    deadlines.call_at(soon(), close)
    assert closed.wait(PATIENCE)
