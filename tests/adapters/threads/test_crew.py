"""Threads that share work: few where tasks are quick, enough where they block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from math import inf
from queue import SimpleQueue
from threading import Event

import pytest

from brokers.threads import pool as module
from brokers.threads.bursts import SUBMITTERS, after_burst
from brokers.threads.futures import Callbacks, Completion
from brokers.threads.pool import Crew, Turns, at_once

PATIENCE = 30.0


def threads_of(name: str) -> list[str]:
    """Return the names of the threads of a crew."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(name)]


def wait_until_gone(name: str) -> None:
    """Wait for the end of a crew's threads."""
    until = time.monotonic() + PATIENCE
    while threads_of(name):
        assert time.monotonic() < until, threads_of(name)
        time.sleep(0.005)


def note_thread(into: SimpleQueue[int]) -> None:
    """Put the identity of this thread into a queue."""
    into.put(threading.get_ident())


def test_tasks_run_in_order_and_never_on_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing that blocks one thread does everything, in the order in which it was handed in."""
    monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)  # else what a busy machine holds up counts as blocked
    crew, done = Crew("orderly"), SimpleQueue[tuple[int, int]]()
    for number in range(200):
        crew.submit(lambda number=number: done.put((number, threading.get_ident())))
    seen = [done.get(timeout=PATIENCE) for _ in range(200)]
    crew.close()
    assert [number for number, _ in seen] == list(range(200))
    assert threading.get_ident() not in {thread for _, thread in seen}


def test_tasks_that_block_hold_up_nobody() -> None:
    """Thirty tasks that all wait for the last one come to an end: each gets a thread."""
    crew, together, done = Crew("blocking"), threading.Barrier(30), SimpleQueue[int]()
    for _ in range(30):
        crew.submit(lambda: done.put(together.wait(PATIENCE)))
    assert sorted(done.get(timeout=PATIENCE) for _ in range(30)) == list(range(30))
    crew.close()
    wait_until_gone("blocking")


def test_a_slow_task_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a task is known to be slow, each that follows has a thread at once, whether the watcher looks or not."""
    crew, gate, begun = Crew("patient"), Event(), Event()

    def be_slow() -> None:
        begun.set()
        gate.wait(PATIENCE)

    crew.submit(be_slow)
    assert begun.wait(PATIENCE)
    until = time.monotonic() + PATIENCE
    while not crew._stuck:
        assert time.monotonic() < until
        time.sleep(0.001)
    monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
    for _ in range(20):
        done = Event()
        crew.submit(done.set)
        assert done.wait(PATIENCE)
    assert len(threads_of("patient crew")) <= 3  # the look that was on its way may have called up one more
    gate.set()
    crew.close()
    wait_until_gone("patient")


def test_a_guest_runs_quick_tasks_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task is run before `run` returns; one that is handed in by a task, or by nobody's guest, goes to another."""
    monkeypatch.setattr(
        module, "BEHIND_TICKS", 10_000
    )  # looks: what is quick is so though the machine has much else to do
    crew, done = Crew("host"), SimpleQueue[int]()
    crew.run(partial(note_thread, done))
    assert done.get(timeout=PATIENCE) != threading.get_ident()
    guest = crew.admit(lambda: None)
    crew.run(partial(note_thread, done))
    assert done.get_nowait() == threading.get_ident()
    crew.run(lambda: crew.run(partial(note_thread, done)))
    assert done.get(timeout=PATIENCE) != threading.get_ident()
    assert not guest.is_relieved
    crew.dismiss()
    crew.run(partial(note_thread, done))
    assert done.get(timeout=PATIENCE) != threading.get_ident()
    crew.close()


def test_what_a_guest_runs_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, as with any task, and the guest goes on."""
    crew = Crew("lenient")
    crew.admit(lambda: None)
    crew.run(partial(note_thread, None))  # type: ignore[arg-type]
    crew.close()
    assert "a task of lenient failed" in caplog.text


@pytest.mark.parametrize("tasks", [1, 1000])
def test_a_guest_at_slow_tasks_is_relieved(tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it one that takes long or some that take a few milliseconds each; then tasks go elsewhere until it is back."""
    crew, relieved, done = Crew("fair"), Event(), SimpleQueue[int]()
    guest = crew.admit(relieved.set)
    for _ in range(tasks):
        crew.run(lambda: relieved.wait(PATIENCE if tasks == 1 else 3 * module.TICK_SECONDS) and None)
        if guest.is_relieved:
            break
    assert relieved.wait(PATIENCE)
    crew.run(partial(note_thread, done))
    assert done.get(timeout=PATIENCE) != threading.get_ident()
    monkeypatch.setattr(module, "BEHIND_TICKS", 10_000)
    crew.resume(guest)
    crew.run(partial(note_thread, done))
    assert done.get_nowait() == threading.get_ident()
    crew.close()


class Scarce:
    """Where there are no threads to be had for a while; each attempt takes `seconds` to fail."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None, *, seconds: float = 0.0
    ) -> None:
        self.left = 0
        self.refused = Event()
        start = threading.Thread.start

        def start_if_there_is_one(thread: threading.Thread) -> None:
            if "scarce" in thread.name and self.left <= 0:
                self.refused.set()
                time.sleep(seconds)
                raise error or RuntimeError("can't start new thread")
            self.left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_there_is_one)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError("no memory")])
def test_tasks_wait_for_threads(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While there is no further thread to be had those that are there work; then the others have theirs. Said once."""
    scarce, crew, gate, done = Scarce(monkeypatch, error), Crew("scarce"), Event(), SimpleQueue[int]()
    scarce.left = 2  # the first, and the watcher
    crew.submit(lambda: gate.wait(PATIENCE) and None)
    for number in range(3):
        crew.submit(partial(done.put, number))
    assert scarce.refused.wait(PATIENCE)
    assert done.empty()
    scarce.left = 100
    assert sorted(done.get(timeout=PATIENCE) for _ in range(3)) == [0, 1, 2]
    gate.set()
    crew.close()
    wait_until_gone("scarce")
    assert caplog.text.count(f"tasks wait, because no further thread could be started: {error}") == 1


def test_the_watcher_outlives_a_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks again a moment later, and no task waits behind another for ever."""
    crew, gate, done, short = Crew("scanty"), Event(), SimpleQueue[int](), Event()
    count = Crew._count_stuck

    def count_or_fail(watched: Crew) -> None:
        if not short.is_set():
            short.set()
            raise MemoryError
        count(watched)

    monkeypatch.setattr(Crew, "_count_stuck", count_or_fail)
    crew.submit(lambda: gate.wait(PATIENCE) and None)
    assert short.wait(PATIENCE)
    crew.submit(partial(done.put, 1))
    assert done.get(timeout=PATIENCE) == 1
    gate.set()
    crew.close()
    wait_until_gone("scanty")


def test_without_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hands in a task that nobody can run is told; once there are threads it works at once, for turns too."""
    scarce, crew, done = Scarce(monkeypatch, seconds=0.1), Crew("scarce"), SimpleQueue[int]()
    turns = Turns(crew.submit, done.put)
    for put in (turns.put, lambda number: crew.submit(partial(done.put, number))):
        with pytest.raises(RuntimeError, match="scarce has no thread, and none could be started"):
            put(1)
    assert crew.waiting == 0
    scarce.left = 100
    turns.put(2)
    assert [done.get(timeout=PATIENCE) for _ in range(2)] == [1, 2]
    crew.close()
    wait_until_gone("scarce")


def test_threads_are_sent_home_when_work_is_quick_again() -> None:
    """After a stretch of blocking, quick work goes on with fewer threads."""
    crew, together, over = Crew("homebound"), threading.Barrier(8), Event()
    for _ in range(8):
        crew.submit(lambda: together.wait(PATIENCE) and None)
    workers: set[int] = set()
    until = time.monotonic() + PATIENCE
    while not over.is_set() and time.monotonic() < until:
        batch = SimpleQueue[int]()
        for _ in range(500):
            crew.submit(partial(note_thread, batch))
        workers = {batch.get(timeout=PATIENCE) for _ in range(500)}
        if len(workers) == 1:
            over.set()
    crew.close()
    assert len(workers) == 1


def test_a_failing_task_takes_nobody_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """What leaves a task is logged, SystemExit too, and the next one runs."""
    crew, done = Crew("failing"), Event()

    def fail() -> None:
        raise SystemExit(3)

    crew.submit(fail)
    crew.submit(done.set)
    assert done.wait(PATIENCE)
    crew.close()
    wait_until_gone("failing")  # the tasks may have been two threads'
    assert "a task of failing failed" in caplog.text


def test_close_finishes_what_was_handed_in() -> None:
    """Tasks that wait still run; then the threads end, and no more is taken. A second close does nothing."""
    crew, gate, done = Crew("closing"), Event(), SimpleQueue[int]()
    crew.submit(lambda: gate.wait(PATIENCE) and None)
    crew.submit(lambda: done.put(1))
    crew.close()
    crew.close()
    gate.set()
    assert done.get(timeout=PATIENCE) == 1
    with pytest.raises(RuntimeError, match="closing is closed"):
        crew.submit(gate.set)
    wait_until_gone("closing")


def test_idle_threads_end_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crew without work has no worker after a while, and works again when there is some."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    crew = Crew("sleepy")
    for _ in range(2):
        done = Event()
        crew.submit(done.set)
        assert done.wait(PATIENCE)
        wait_until_gone("sleepy crew")
    time.sleep(0.2)  # long enough for the watcher to lie down too
    done = Event()
    crew.submit(done.set)
    assert done.wait(PATIENCE)
    crew.close()
    wait_until_gone("sleepy")


def test_a_crew_that_never_worked_closes() -> None:
    """There is no thread to end."""
    crew = Crew("unused")
    crew.close()
    assert threads_of("unused") == []


class TestBursts:
    """What waits for the end of the tasks that a thread takes one after the other."""

    def test_the_end_comes_after_the_tasks_that_wait(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is called once no task waits, on the thread of the tasks, in order, and may leave more for the end."""
        monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
        monkeypatch.setattr(module, "BURST_SECONDS", 10 * PATIENCE)
        crew, gate, done, threads = Crew("bursting"), Event(), SimpleQueue[str](), SimpleQueue[int]()

        def leave(number: int) -> None:
            gate.wait(PATIENCE)
            threads.put(threading.get_ident())
            done.put(f"task {number}")
            after_burst(partial(end, number))

        def end(number: int) -> None:
            threads.put(threading.get_ident())
            done.put(f"end {number}")
            after_burst(partial(done.put, f"very end {number}"))

        for number in range(2):
            crew.submit(partial(leave, number))
        gate.set()
        seen = [done.get(timeout=PATIENCE) for _ in range(6)]
        assert seen == ["task 0", "task 1", "end 0", "end 1", "very end 0", "very end 1"]
        assert len({threads.get_nowait() for _ in range(4)}) == 1
        crew.close()

    def test_on_other_threads_it_comes_at_once(self) -> None:
        """A thread that is none of a crew has no bursts."""
        done = SimpleQueue[int]()
        after_burst(partial(done.put, 1))
        assert done.get_nowait() == 1

    def test_a_long_burst_has_ends_on_its_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After some time they come between two tasks, however many wait."""
        monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
        monkeypatch.setattr(module, "BURST_SECONDS", 0.0)
        crew, gate, done = Crew("busy"), Event(), SimpleQueue[str]()

        def leave() -> None:
            gate.wait(PATIENCE)
            done.put("task")
            after_burst(partial(done.put, "end"))

        for _ in range(2):
            crew.submit(leave)
        gate.set()
        assert [done.get(timeout=PATIENCE) for _ in range(4)] == ["task", "end"] * 2
        crew.close()

    def test_a_task_that_blocks_holds_up_no_end(self) -> None:
        """Another thread calls what waits for the end of a task that takes long; one that fails is logged."""
        crew, ended, done = Crew("stopped"), Event(), Event()

        def block() -> None:
            after_burst(ended.set)
            if ended.wait(PATIENCE):
                done.set()

        crew.submit(block)
        assert done.wait(PATIENCE)
        crew.close()

    def test_an_end_that_fails(self, caplog: pytest.LogCaptureFixture) -> None:
        """It is logged, and the next one is called."""
        crew, done = Crew("failing"), Event()
        crew.submit(lambda: after_burst(partial(note_thread, None)))  # type: ignore[arg-type]
        crew.submit(lambda: after_burst(done.set))
        assert done.wait(PATIENCE)
        crew.close()
        wait_until_gone("failing")
        assert "a task of failing failed" in caplog.text

    def test_who_waits_for_a_future_is_woken_at_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A future that a task settles is done at once; a thread that waits for it goes on once the burst is over."""
        monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
        monkeypatch.setattr(module, "BURST_SECONDS", 10 * PATIENCE)
        crew, begin, settled, gate, order = Crew("waking"), Event(), Event(), Event(), SimpleQueue[str]()
        future = Completion[int](Callbacks("waking").executor)

        def wait() -> None:
            assert future.result(PATIENCE) == 1
            order.put("woken")

        def settle() -> None:
            begin.wait(PATIENCE)
            future.settle(1)
            settled.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        while not future._gates:
            time.sleep(0.001)
        crew.submit(settle)
        crew.submit(lambda: (gate.wait(PATIENCE) and order.put("last task")) or None)
        begin.set()
        assert settled.wait(PATIENCE)
        assert future.result(0) == 1
        gate.set()
        assert [order.get(timeout=PATIENCE) for _ in range(2)] == ["last task", "woken"]
        waiter.join()
        crew.close()


class TestSenders:
    """Whom a crew leaves it to, to wake a thread."""

    @pytest.fixture(autouse=True)
    def _stranger(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr("brokers.threads.bursts.SOON_SECONDS", PATIENCE)  # however slow the machine
        SUBMITTERS.own.waits, SUBMITTERS.own.submitted_at = False, inf
        yield
        SUBMITTERS.own.waits, SUBMITTERS.own.submitted_at = False, inf

    def watched(self, name: str) -> Crew:
        """Make a crew whose watcher looks, and whose thread is asleep."""
        crew, done = Crew(name), Event()
        crew.submit(done.set)
        assert done.wait(PATIENCE)
        while not crew._asleep:
            time.sleep(0.001)
        return crew

    def test_a_stranger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A thread that never waited for a future has its tasks run at once."""
        monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
        crew, done = self.watched("open"), Event()
        crew.submit_soon(done.set)
        assert done.wait(PATIENCE)
        crew.close()

    def test_one_that_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The tasks of one that waited the last time are run, all together, when it waits for a future again."""
        monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
        crew, done, future = self.watched("left"), SimpleQueue[int](), Completion[int](Callbacks("left").executor)
        SUBMITTERS.own.about_to_wait()
        for number in range(3):
            crew.submit_soon(partial(done.put, number))
        assert (crew.waiting, len(SUBMITTERS.own.owed)) == (3, 1)
        crew.submit(partial(future.settle, 4))  # this one wakes a thread
        assert future.result(PATIENCE) == 4
        assert [done.get(timeout=PATIENCE) for _ in range(3)] == [0, 1, 2]
        for number in range(3):
            crew.submit_soon(partial(done.put, number))
        future = Completion[int](Callbacks("left").executor)
        crew.submit_soon(partial(future.settle, 5))
        assert future.result(PATIENCE) == 5
        assert [done.get(timeout=PATIENCE) for _ in range(3)] == [0, 1, 2]
        crew.close()

    def test_one_that_waits_no_more(self) -> None:
        """Its tasks are run some milliseconds later, and the next ones at once."""
        crew, done = self.watched("found"), Event()
        SUBMITTERS.own.about_to_wait()
        crew.submit_soon(done.set)
        assert done.wait(PATIENCE)
        assert not SUBMITTERS.own.waits
        SUBMITTERS.own.owed.clear()
        crew.close()

    def test_a_thread_of_another_crew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is left to a thread of a crew is woken when its tasks are done, though it does not wait again."""
        monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
        crew, other, done = self.watched("first"), self.watched("second"), Event()

        def hand_on() -> None:
            SUBMITTERS.own.about_to_wait()
            other.submit_soon(done.set)
            assert other.waiting == 1

        crew.submit(hand_on)
        assert done.wait(PATIENCE)
        crew.close()
        other.close()

    def test_what_is_done_when_a_thread_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It does itself what was left to it, when it waits for a future again."""
        monkeypatch.setattr(module, "TICK_SECONDS", 10 * PATIENCE)
        crew, done, future = self.watched("kept"), SimpleQueue[int](), Completion[int](Callbacks("kept").executor)
        assert not crew.leave(SUBMITTERS.own, lambda: done.put(threading.get_ident())), "it never waited"
        SUBMITTERS.own.about_to_wait()
        assert crew.leave(SUBMITTERS.own, lambda: done.put(threading.get_ident()))
        assert done.empty()
        crew.submit(partial(future.settle, 4))
        assert future.result(PATIENCE) == 4
        assert done.get(timeout=PATIENCE) == threading.get_ident()
        assert done.empty()
        crew.close()

    def test_what_is_done_though_no_thread_waits(self) -> None:
        """A thread of the crew does it some milliseconds later, and the next time nothing is left to this thread."""
        crew, done = self.watched("late"), SimpleQueue[int]()
        SUBMITTERS.own.about_to_wait()
        while not crew.leave(
            SUBMITTERS.own, lambda: done.put(threading.get_ident())
        ):  # its watcher may have gone to sleep
            time.sleep(0.001)
        assert done.get(timeout=PATIENCE) != threading.get_ident()
        assert not crew.leave(SUBMITTERS.own, lambda: done.put(threading.get_ident()))
        SUBMITTERS.own.owed.clear()
        crew.close()

    def test_what_nobody_would_notice(self) -> None:
        """Nothing is left to a thread while no watcher looks, as after the end."""
        crew = self.watched("ended")
        crew.close(time.monotonic() + PATIENCE)
        SUBMITTERS.own.about_to_wait()
        crew._is_watched = False
        assert not crew.leave(SUBMITTERS.own, lambda: None)

    def test_one_that_waits_late(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A thread that has much to do between sending and waiting is none that waits."""
        monkeypatch.setattr("brokers.threads.bursts.SOON_SECONDS", 0.0)
        crew = self.watched("busy")
        SUBMITTERS.own.about_to_wait()
        assert SUBMITTERS.own.waits, "it has sent nothing yet"
        crew.leave(SUBMITTERS.own, lambda: None)
        SUBMITTERS.own.about_to_wait()
        assert not SUBMITTERS.own.waits
        crew.close()

    def test_a_crew_that_is_closed(self) -> None:
        """What was left to a sender is done before the threads end."""
        crew, done = self.watched("shut"), Event()
        SUBMITTERS.own.about_to_wait()
        crew.submit_soon(done.set)
        crew.close(time.monotonic() + PATIENCE)
        assert done.is_set()
        SUBMITTERS.own.about_to_wait()


class TestTurns:
    """Items one at a time, on a crew."""

    def test_one_at_a_time_in_order(self) -> None:
        """Items put by several threads are handled one after the other, those of each thread in its order."""
        crew, seen = Crew("turns"), SimpleQueue[tuple[int, int]]()
        inside: list[int] = []

        def handle(item: tuple[int, int]) -> None:
            inside.append(1)
            assert len(inside) == 1
            inside.pop()
            seen.put(item)

        turns = Turns(crew.submit, handle)
        writers = [
            threading.Thread(target=lambda who=who: [turns.put((who, number)) for number in range(100)])
            for who in range(4)
        ]
        for writer in writers:
            writer.start()
        items = [seen.get(timeout=PATIENCE) for _ in range(400)]
        for writer in writers:
            writer.join()
        crew.close()
        for who in range(4):
            assert [number for each, number in items if each == who] == list(range(100))

    def test_a_failure_is_logged_and_the_next_item_follows(self, caplog: pytest.LogCaptureFixture) -> None:
        """An exception does not end the turns."""
        crew, seen = Crew("failing turns"), SimpleQueue[int]()

        def handle(item: int) -> None:
            if item == 0:
                raise RuntimeError("the first fails")
            seen.put(item)

        turns = Turns(crew.submit, handle)
        turns.put(0)
        turns.put(1)
        assert seen.get(timeout=PATIENCE) == 1
        crew.close()
        assert "the first fails" in caplog.text

    def test_stop_and_join(self) -> None:
        """After `stop` no call starts; `join` waits for the one under way, but not within it, nor beyond its time."""
        crew, begun, gate = Crew("stopping"), Event(), Event()
        seen: list[int] = []

        def handle(item: int) -> None:
            seen.append(item)
            begun.set()
            turns.join(time.monotonic() + PATIENCE)
            gate.wait(PATIENCE)

        turns = Turns(crew.submit, handle)
        turns.put(1)
        turns.put(2)
        assert begun.wait(PATIENCE)
        turns.stop()
        turns.put(3)
        turns.join(time.monotonic() + 0.01)
        gate.set()
        turns.join(time.monotonic() + PATIENCE)
        crew.close()
        assert seen == [1]

    def test_at_once(self) -> None:
        """Where the function never blocks, the thread that puts an item may handle it itself."""
        seen: list[tuple[int, int]] = []
        turns = Turns(at_once, lambda item: seen.append((item, threading.get_ident())))
        turns.put(1)
        turns.put(2)
        assert seen == [(1, threading.get_ident()), (2, threading.get_ident())]
