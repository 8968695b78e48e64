"""A TCP proxy between a test and a real broker: it falls silent, delays, half-closes and cuts what goes through it.

It does so in both directions or in one, and it can be away: nobody else gets its port meanwhile.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack, suppress
from enum import Enum
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Final, Self

from ports import nobody

RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER so that `close` resets the connection, as a broker that was killed does."""


class Way(Enum):
    """A direction through the proxy."""

    UP = "to the broker"
    DOWN = "from the broker"


BOTH: Final = (Way.UP, Way.DOWN)


class Link:
    """One connection: the peer's end and the broker's, and where in it no more is forwarded."""

    def __init__(self, peer: socket.socket, broker: socket.socket) -> None:
        self.sockets = (peer, broker)
        self.ended: set[Way] = set()
        self._threads = 2
        self._lock = Lock()

    def ends(self, way: Way) -> tuple[socket.socket, socket.socket]:
        """Return where octets come from and where they go to."""
        peer, broker = self.sockets
        return (peer, broker) if way is Way.UP else (broker, peer)

    def half_close(self, way: Way) -> None:
        """Tell the end that this way leads to that no more comes. What still does is dropped; the other way stays."""
        self.ended.add(way)
        with suppress(OSError):
            self.ends(way)[1].shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Reset both ends."""
        for each in self.sockets:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def leave(self) -> bool:
        """Note that a way has nobody any more who forwards; close both ends and return True after the second."""
        with self._lock:
            self._threads -= 1
            is_over = self._threads == 0
        if is_over:
            for each in self.sockets:
                each.close()
        return is_over


class Proxy:
    """Forwards every connection to one address. A `with` statement opens and closes it."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = Lock()
        self._links: set[Link] = set()
        self._threads: list[Thread] = []
        self._forwarding = {way: Event() for way in BOTH}
        self._delays = dict.fromkeys(BOTH, 0.0)
        self.octets = dict.fromkeys(BOTH, 0)  # that were forwarded
        self._cut_before = b""
        self.speak()
        self._stack = ExitStack()
        self.port = self._stack.enter_context(nobody())
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.accepted = 0

    @property
    def stomp_url(self) -> str:
        """The broker's URL by way of this proxy."""
        return f"stomp://admin:admin@127.0.0.1:{self.port}"

    @property
    def amqp_url(self) -> str:
        """Likewise over AMQP."""
        return f"amqp://admin:admin@127.0.0.1:{self.port}"

    def silence(self, *ways: Way) -> None:
        """Forward nothing more, in both directions unless one is named, and close nothing."""
        for way in ways or BOTH:
            self._forwarding[way].clear()

    def speak(self) -> None:
        """Forward again, what was held back first."""
        for each in self._forwarding.values():
            each.set()

    def delay(self, seconds: float, *ways: Way) -> None:
        """Hold up whatever comes for so long, in both directions unless one is named; 0 to stop that."""
        for way in ways or BOTH:
            self._delays[way] = seconds

    def half_close(self, way: Way) -> None:
        """End one direction of all connections."""
        with self._lock:
            links = list(self._links)
        for each in links:
            each.half_close(way)

    def cut(self) -> None:
        """Reset all connections; new ones are welcome."""
        with self._lock:
            links, self._links = self._links, set()
        for each in links:
            each.cut()

    def cut_before(self, octets: bytes) -> None:
        """Reset all connections instead of forwarding a piece to the broker that holds these octets; once."""
        self._cut_before = octets

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
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive() or each.ident is None]
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
            link = Link(client, broker)
            with self._lock:
                is_away = listener.fileno() < 0
                if not is_away:
                    self.accepted += 1
                    self._links.add(link)
            if is_away:
                link.cut()
                return
            for way in BOTH:
                self._start(self._forward, link, way)

    def _forward(self, link: Link, way: Way) -> None:
        source, target = link.ends(way)
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(self._delays[way])
                self._forwarding[way].wait()
                if way is Way.UP and self._cut_before and self._cut_before in data:
                    self._cut_before = b""
                    self.cut()
                    break
                if way not in link.ended:
                    target.sendall(data)
                    self.octets[way] += len(data)
        with suppress(OSError):
            self._forwarding[way].wait()
            target.shutdown(socket.SHUT_RDWR)
        if link.leave():
            with self._lock:
                self._links.discard(link)
