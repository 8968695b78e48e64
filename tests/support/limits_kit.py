"""Limits of this process, lowered for a moment."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from brokers.amqp.stack import STACK_OCTETS
from brokers.threads.thread import Thread


@contextmanager
def files_for(more: int) -> Iterator[None]:
    """Let this process open so many more files."""
    gc.collect()  # what that closes is not closed meanwhile
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(int(each) for each in os.listdir("/proc/self/fd"))
    held = [os.dup(0)]
    while held[-1] <= top:  # no gap is left below
        held.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in held:
            os.close(each)


def refuse_thread_once(monkeypatch: pytest.MonkeyPatch, name: str) -> list[RuntimeError]:
    """Let the first thread not start that has this in its name; return the refusals that are still to come."""
    start, refusals = Thread.start, [RuntimeError("can't start new thread")]

    def start_but_once(thread: Thread) -> None:
        if name in thread.name and refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(Thread, "start", start_but_once)
    return refusals


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Ask for stacks that there is no memory for, once no thread is being started that restores the size after that."""
    while threading.stack_size() >= STACK_OCTETS:
        time.sleep(0.001)
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)
