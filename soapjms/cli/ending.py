"""How commands end that run until they are told to."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Thread
from types import FrameType


@contextmanager
def ending(stop: Event) -> Iterator[None]:
    """Set `stop` at SIGTERM and SIGINT. A second SIGINT interrupts, for who does not want to wait.

    Another thread sets it. A signal may come while the main thread is within `stop.wait()` and holds the lock that
    setting needs: it would wait for itself.
    """
    signals: SimpleQueue[int] = SimpleQueue()  # `put` may interrupt whatever it likes

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and (stop.is_set() or not signals.empty()):
            raise KeyboardInterrupt
        signals.put(number)

    def listen() -> None:
        while signals.get():
            stop.set()

    listener = Thread(target=listen, name="soapjms-ending", daemon=True)
    listener.start()
    before = {each: signal.signal(each, note) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        signals.put(0)
        listener.join()
