"""A TCP proxy between a test and a real broker: it can fall silent, cut what goes through it, and be away.

Nobody else gets its port while it is away.
"""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack, suppress
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Final, Self

from ports import nobody

RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER so that `close` resets the connection, as a broker that was killed does."""


class Proxy:
    """Forwards every connection to one address. A `with` statement opens and closes it."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[Thread] = []
        self._forwarding = Event()
        self._forwarding.set()
        self._stack = ExitStack()
        self.port = self._stack.enter_context(nobody())
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.accepted = 0

    @property
    def stomp_url(self) -> str:
        """The broker's URL by way of this proxy."""
        return f"stomp://admin:admin@127.0.0.1:{self.port}"

    def silence(self) -> None:
        """Forward nothing more, and close nothing."""
        self._forwarding.clear()

    def speak(self) -> None:
        """Forward again."""
        self._forwarding.set()

    def cut(self) -> None:
        """Reset all connections; new ones are welcome."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def leave(self) -> None:
        """Be away: reset all connections and refuse new ones."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def come_back(self) -> None:
        """Listen again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._start(self._accept, self._listener)

    def __enter__(self) -> Self:
        self._start(self._accept, self._listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        self.speak()
        for thread in self._threads:
            thread.join()
        self.cut()
        self._stack.close()

    def _start(self, target: object, *arguments: object) -> None:
        thread = Thread(target=target, args=arguments, name="proxy")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed
                return
            try:
                broker = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                is_away = listener.fileno() < 0
                if not is_away:
                    self.accepted += 1
                    self._sockets |= {client, broker}
            if is_away:
                client.close()
                broker.close()
                return
            self._start(self._forward, client, broker)
            self._start(self._forward, broker, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._forwarding.wait()
                target.sendall(data)
        with suppress(OSError):
            self._forwarding.wait()
            target.shutdown(socket.SHUT_RDWR)
