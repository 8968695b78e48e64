"""A thread that holds wakings wakes others when it is about to wait, or has held many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from threading import Thread

import pytest
from calling_kit import PATIENCE, eventually

from brokers import Completion
from brokers.threads.wakings import MAX_HELD_WAKINGS, hold_no_wakings, hold_wakings, wake, wake_held


def no_executor() -> Executor:
    """Have callbacks run at once."""
    raise RuntimeError("there is none")


@pytest.fixture
def holding() -> Iterator[None]:
    """Hold the wakings of this thread."""
    hold_wakings()
    yield
    hold_no_wakings()


def test_at_once() -> None:
    """A thread that holds nothing wakes at once."""
    woken = list[int]()
    wake(lambda: woken.append(1))
    assert woken == [1]


@pytest.mark.usefixtures("holding")
def test_held() -> None:
    """In order, each once, and at once again when this thread stops holding."""
    woken = list[int]()
    for number in range(3):
        wake(lambda number=number: woken.append(number))  # type: ignore[misc]
        hold_wakings()
    assert woken == []
    wake_held()
    wake_held()
    assert woken == [0, 1, 2]
    wake(lambda: woken.append(3))
    hold_no_wakings()
    assert woken == [0, 1, 2, 3]
    wake(lambda: woken.append(4))
    assert woken == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("holding")
def test_not_many() -> None:
    """However much this thread has at hand."""
    woken = list[int]()
    for number in range(MAX_HELD_WAKINGS):
        assert woken == []
        wake(lambda number=number: woken.append(number))  # type: ignore[misc]
    assert woken == [*range(MAX_HELD_WAKINGS)]


@pytest.mark.usefixtures("holding")
def test_who_waits_for_a_future() -> None:
    """Each thread that waits for a future is woken when the thread that settled it is about to wait."""
    future, seen = Completion[int](no_executor), list[int]()
    threads = [Thread(target=lambda: seen.append(future.result(PATIENCE)), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(future._gates or ()) == 2, "both wait")
    future.set_result(7)
    assert future.result() == 7, "it is done"
    assert seen == []
    wake_held()
    for thread in threads:
        thread.join(PATIENCE)
    assert seen == [7, 7]


@pytest.mark.usefixtures("holding")
def test_who_awaits_a_future() -> None:
    """So is an event loop."""
    future, seen = Completion[int](no_executor), list[int]()

    async def wait() -> None:
        seen.append(await future)

    thread = Thread(target=lambda: asyncio.run(wait()), daemon=True)
    thread.start()
    eventually(lambda: bool(future._done_callbacks), "it waits")
    future.set_result(7)
    assert seen == []
    wake_held()
    thread.join(PATIENCE)
    assert seen == [7]


def test_others_hold_nothing() -> None:
    """Each thread holds its own."""
    woken = list[int]()
    thread = Thread(target=hold_wakings)
    thread.start()
    thread.join(PATIENCE)
    wake(lambda: woken.append(1))
    assert woken == [1]
