"""What wakes a thread that waits for a socket."""

from __future__ import annotations

import socket
from contextlib import suppress


class Waker:
    """A pair of sockets: what any thread writes on one, the thread that waits finds on the other."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)

    def fileno(self) -> int:
        """Say what to wait for."""
        return self._far.fileno()

    def wake(self) -> None:
        """Wake the thread, now or as soon as it would wait."""
        with suppress(OSError):  # it is awake, or gone
            self._near.send(b"!")

    def doze(self, seconds: float) -> None:
        """Have the thread wait for nothing but to be woken, so many seconds at most; that it was is not noted."""
        with suppress(OSError):  # it is gone, or the time is over
            self._far.settimeout(seconds)
            self._far.recv(1, socket.MSG_PEEK)
        with suppress(OSError):
            self._far.setblocking(False)

    def rest(self) -> None:
        """Note that the thread is awake."""
        with suppress(OSError):
            self._far.recv(4096)

    def close(self) -> None:
        """Let go of both."""
        self._near.close()
        self._far.close()
