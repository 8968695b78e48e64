"""How commands end that run until they are told to."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final

from brokers.threads import Thread

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
OVER: Final = b"\0"
"""What tells the listener to end; no signal has that number."""


@contextmanager
def ending(stop: Event) -> Iterator[None]:
    """Set `stop` at SIGTERM and SIGINT. A second SIGINT interrupts, for who does not want to wait.

    Another thread sets it, and hears of the signal from the interpreter itself, by a socket. The main thread may be
    within `stop.wait()`: if it holds the lock that setting needs, it would wait for itself; and it does not wake for a
    signal that reaches another thread, as after SIGSTOP, so no handler in Python would be called.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and seen:
            raise KeyboardInterrupt
        seen.append(number)

    def listen() -> None:
        while (octets := heard.recv(1)) != OVER:
            if octets[0] in SIGNALS:
                stop.set()

    listener = Thread(target=listen, name="soapjms-ending", daemon=True)
    listener.start()
    before = {each: signal.signal(each, note) for each in SIGNALS}
    woken = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        for each, handler in before.items():
            signal.signal(each, handler)
        told.send(OVER)
        listener.join()
        told.close()
        heard.close()
