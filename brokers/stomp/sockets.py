"""Reading and writing one socket from two threads: one waits for what arrives, others write and never wait here.

Reading costs one system call for each arrival where the system can do that: each one more is a chance for the other
threads to take Python's lock, and under load the message waits for it. Nothing about STOMP belongs here.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from selectors import EVENT_READ, DefaultSelector
from threading import Lock
from typing import Final

CHUNK: Final = 65_536
"""Octets that are read at once."""

NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What `send` raises when there is no room, and `receive` when nothing came."""

AT_ONCE: Final = socket.MSG_DONTWAIT if sys.platform == "linux" else 0
"""The flag of a write that does not wait though reading does; 0 where there is none, or where it is not kept."""

TIMEVAL: Final = struct.Struct("@ll")


class Polled:
    """A socket that never blocks, and is used by one thread at a time, as TLS wants it."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._using = Lock()
        self._readable = DefaultSelector()
        self._readable.register(connected, EVENT_READ)

    def send(self, data: memoryview | bytes) -> int:
        """Write what there is room for; return how many octets that is."""
        with self._using:
            return self._socket.send(data)

    def receive(self, pause: float | None) -> bytes:
        """Return what came, nothing at the end; wait so many seconds for it, None for as long as it takes."""
        try:
            with self._using:
                return self._socket.recv(CHUNK)
        except NOT_NOW:
            self._readable.select(pause)
            raise

    def close(self) -> None:
        """Close it. For the thread that reads; idempotent."""
        self._readable.close()
        with self._using:
            self._socket.close()


class Waited:
    """A socket whose reader waits in the system; see `Polled`."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        self._socket = connected
        self._writing = Lock()
        self._limit: float | None = None

    def send(self, data: memoryview | bytes) -> int:
        """Write what there is room for; return how many octets that is."""
        with self._writing:
            return self._socket.send(data, AT_ONCE)

    def receive(self, pause: float | None) -> bytes:
        """Return what came, nothing at the end; raise BlockingIOError after `pause` seconds, or sooner."""
        if pause != self._limit and (pause is None or self._limit is None or not pause / 2 <= self._limit <= pause):
            self._limit_to(pause)
        return self._socket.recv(CHUNK)

    def close(self) -> None:
        """Close it. For the thread that reads; idempotent."""
        with self._writing:
            self._socket.close()

    def _limit_to(self, pause: float | None) -> None:
        # No time at all would be for ever.
        seconds, rest = divmod(0 if pause is None else max(1, int(pause * 1_000_000)), 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(seconds, rest))
        self._limit = pause


def of(connected: socket.socket) -> Polled | Waited:
    """Choose how to use a socket that is connected."""
    return Polled(connected) if isinstance(connected, ssl.SSLSocket) or not AT_ONCE else Waited(connected)
