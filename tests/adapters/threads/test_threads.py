"""Threads that begin or fail, and never keep who starts them; a few of them that call functions."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from threading import Barrier, Event
from time import monotonic

import pytest
from calling_kit import PATIENCE
from limits_kit import no_more_threads

from brokers.threads import thread as threads
from brokers.threads.thread import Pool, Thread


class Stillborn(Thread):
    """Ends before its first step, as where there is no memory for that."""

    def _bootstrap(self) -> None:
        """Do nothing, not even say so."""


class Late(Thread):
    """Takes its first step when it is told to."""

    may_begin, has_ended = Event(), Event()

    def _bootstrap(self) -> None:
        self.may_begin.wait(PATIENCE)
        super()._bootstrap()  # type: ignore[misc]
        self.has_ended.set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up at once."""
    monkeypatch.setattr(threads, "START_SECONDS", 0.05)


def test_it_runs() -> None:
    """As any thread does."""
    seen = list[object]()
    thread = Thread(target=lambda *args, **options: seen.extend((args, options)), args=(1,), kwargs={"two": 2})
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen == [(1,), {"two": 2}]


@pytest.mark.usefixtures("impatient")
def test_it_never_begins() -> None:
    """Who starts it is told, and goes on."""
    with pytest.raises(RuntimeError, match=r"^a new thread did not begin within 0\.05 s; memory may be short$"):
        Stillborn(target=lambda: None, daemon=True).start()


@pytest.mark.usefixtures("impatient")
def test_it_begins_too_late() -> None:
    """What was given up is not done."""
    done = list[int]()
    thread = Late(target=lambda: done.append(1), daemon=True)
    with pytest.raises(RuntimeError, match="did not begin"):
        thread.start()
    thread.may_begin.set()
    assert thread.has_ended.wait(PATIENCE)
    assert done == []


WITHOUT_MEMORY = """
import resource
from contextlib import suppress
from pathlib import Path
from brokers.threads import thread as threads

threads.START_SECONDS = 0.5

def make():
    return [threads.Thread(target=str, daemon=True) for _ in range(8)]

def start(made):
    begun = 0
    for each in made:
        with suppress(RuntimeError, MemoryError):
            each.start()
            begun += 1
    return begun

assert start(make()) == 8  # whose stacks the C library keeps, so that the system is not asked for any
status = Path("/proc/self/status").read_text("utf-8")
(used,) = (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize:"))
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20),) * 2)
others, held, size = make(), [], 1 << 20
while size >= 64:
    try:
        while True:
            held.append(bytes(size))
    except MemoryError:
        size //= 2
del held[-20:]
begun = start(others)
held.clear()
print(begun, "of 8, then", start(make()), flush=True)
"""


def test_without_memory() -> None:
    """Where a real thread has not the memory for its first step, who starts it goes on, and others begin later."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    begun, rest = done.stdout.split(" ", 1)
    assert int(begun) < 8
    assert rest == "of 8, then 8\n"


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Two threads."""
    with Pool(2, "pooled") as made:
        yield made


class TestPool:
    """Two of them."""

    def test_calls(self, pool: Pool) -> None:
        """Each call has its result, or what it raised."""
        assert [each.result(PATIENCE) for each in [pool.submit(divmod, number, 3) for number in range(20)]] == [
            divmod(number, 3) for number in range(20)
        ]
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result(PATIENCE)

    def test_no_more_threads_than_it_takes(self, pool: Pool) -> None:
        """One while one is enough, two at most."""
        for _ in range(3):
            pool.submit(str).result(PATIENCE)
            until = monotonic() + PATIENCE
            while not pool._idle._value:
                assert monotonic() < until
        assert len(pool.threads) == 1
        together = Barrier(2)
        assert sorted(each.result(PATIENCE) for each in [pool.submit(together.wait, PATIENCE) for _ in range(2)]) == [
            *(0, 1)
        ]
        calls = [pool.submit(threading.current_thread) for _ in range(20)]
        assert {each.result(PATIENCE) for each in calls} <= set(pool.threads)
        assert len(pool.threads) == 2

    def test_no_thread_is_to_be_had(self) -> None:
        """Without any, who calls is told; one does the work of all."""
        with Pool(2, "pooled") as pool:
            with no_more_threads(), pytest.raises(RuntimeError):
                pool.submit(str)
            gate = Event()
            first = pool.submit(gate.wait, PATIENCE)
            with no_more_threads():
                second = pool.submit(str, 2)
            gate.set()
            assert first.result(PATIENCE)
            assert second.result(PATIENCE) == "2"
            assert len(pool.threads) == 1

    @pytest.mark.parametrize("are_cancelled", [False, True])
    def test_shut_down(self, are_cancelled: bool) -> None:
        """What waits is done, or cancelled if so wanted; nothing more is taken."""
        pool, gate = Pool(1, "pooled"), Barrier(2)
        first, second = pool.submit(lambda: (gate.wait(PATIENCE), gate.wait(PATIENCE))), pool.submit(str, 2)
        gate.wait(PATIENCE)
        pool.shutdown(wait=False, cancel_futures=are_cancelled)
        with pytest.raises(RuntimeError, match="pooled was shut down"):
            pool.submit(str)
        gate.wait(PATIENCE)
        pool.shutdown()
        assert not any(each.is_alive() for each in pool.threads)
        assert first.done()
        if are_cancelled:
            with pytest.raises(CancelledError):
                second.result(0)
        else:
            assert second.result(0) == "2"
