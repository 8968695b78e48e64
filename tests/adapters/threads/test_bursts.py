"""A thread that has bursts wakes others when it is about to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from threading import Thread

import pytest
from calling_kit import PATIENCE, eventually

from brokers import Completion
from brokers.threads.bursts import after_burst, begin_bursts, end_burst, leave_bursts


def no_executor() -> Executor:
    """Have callbacks run at once."""
    raise RuntimeError("there is none")


@pytest.fixture
def bursts() -> Iterator[None]:
    """Let this thread have bursts."""
    begin_bursts()
    yield
    leave_bursts()


def test_at_once() -> None:
    """A thread without bursts wakes others at once."""
    woken = list[int]()
    after_burst(lambda: woken.append(1))
    assert woken == [1]


@pytest.mark.usefixtures("bursts")
def test_after() -> None:
    """In order, each once, and at once again when this thread has no more bursts."""
    woken = list[int]()
    for number in range(3):
        after_burst(lambda number=number: woken.append(number))  # type: ignore[misc]
        begin_bursts()
    assert woken == []
    end_burst()
    end_burst()
    assert woken == [0, 1, 2]
    after_burst(lambda: woken.append(3))
    leave_bursts()
    assert woken == [0, 1, 2, 3]
    after_burst(lambda: woken.append(4))
    assert woken == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("bursts")
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
    end_burst()
    for thread in threads:
        thread.join(PATIENCE)
    assert seen == [7, 7]


@pytest.mark.usefixtures("bursts")
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
    end_burst()
    thread.join(PATIENCE)
    assert seen == [7]


def test_other_threads() -> None:
    """Each thread holds its own."""
    woken = list[int]()
    thread = Thread(target=begin_bursts)
    thread.start()
    thread.join(PATIENCE)
    after_burst(lambda: woken.append(1))
    assert woken == [1]
