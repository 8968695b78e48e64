"""The AMQP 1.0 listener of the embedded broker, over TCP and WebSocket.

    with Listener(broker, "127.0.0.1", 5672) as listener: ...

It serves clients of any make; docs/amqp.md describes the features that it offers.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from threading import Event, Lock
from time import monotonic
from types import TracebackType
from typing import Final, Self

from brokers import events
from brokers.adapter.wait import epoch_milliseconds
from brokers.amqp.listener.client import AmqpClient
from brokers.amqp.listener.login import Right, Rights
from brokers.amqp.listener.options import Action, AmqpNodes, Options
from brokers.arguments import instance, time_to_close
from brokers.embedded import Broker
from brokers.listeners.descriptors import OUT_OF_FILES, bounded
from brokers.listeners.guesses import SHOWN_CHARACTERS, Guesses, place_of
from brokers.listeners.reach import check_reach
from brokers.listeners.room import Room
from brokers.threads.thread import Thread
from brokers.threads.timer import left
from brokers.url import bracketed

__all__ = ["Action", "Listener", "Options", "Right", "Rights"]


ACCEPT_BACKLOG: Final = 128
OPEN: Final = "users (--users FILE, Options(users=…)), or the word that anybody may (--open, Options(anonymous=True))"
ACCEPT_PAUSE_SECONDS: Final = 0.05
"""Pause after a client could not be accepted for lack of files or threads, in seconds."""
FILES_PER_CLIENT: Final = 4
"""Number of file descriptors of one client: its socket, two that wake its thread, and the thread's selector."""


class Listener:
    """Listens at one address for clients of an embedded broker. Usable in a `with` statement, which closes it.

    Attributes:
        broker, options: the broker, and the options of the listener.
        name: name of the broker for clients.
        port: port of the listener.
    """

    def __init__(
        self, broker: Broker, host: str = "127.0.0.1", port: int = 5672, options: Options | None = None
    ) -> None:
        """Begin to listen.

        Args:
            broker: the broker that clients connect to.
            host: address of an IPv4 or IPv6 interface; empty for all of IPv4, `::` for all of IPv6.
            port: port number; 0 for any free port.
            options: options of the listener.

        Raises:
            OSError: the address is not available.
            UsageError: other machines can reach it, and the options neither have users nor admit all clients.
        """
        self.broker = broker
        given = Options() if options is None else options
        instance(given, "options", Options, "brokers.amqp.listener.Options")
        self.options = replace(given, hosts=given.hosts | {host} - {""})
        self.name = broker.name or f"embedded-{token_hex(4)}"
        self.nodes = AmqpNodes(broker, self.options)
        self._host = host
        self._lock = Lock()
        self.guesses = Guesses()
        self._guests: dict[AmqpClient, None] = {}
        self._is_closed = False
        self._stopped = Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=ACCEPT_BACKLOG)
        if given.is_unguarded:
            check_reach(self._socket, OPEN)
        self.port: int = self._socket.getsockname()[1]
        most = bounded(self.options.max_connections, FILES_PER_CLIENT, f"clients of {self}")
        self._max_logins = max(1, most // 2) if self.options.max_logins is None else self.options.max_logins
        self.room = Room(most, f"clients of {self} that have not logged in", most_each=self.options.max_strangers)
        self._thread = Thread(target=self._accept, name=f"{self} listener", daemon=True)
        self._thread.start()

    def __str__(self) -> str:
        return f"{self.scheme}://{bracketed(self._host) or '*'}:{self.port}"

    @property
    def url(self) -> str:
        """URL for `brokers.connect`, without user and password."""
        return f"{self.scheme}://{bracketed(self._host) or '127.0.0.1'}:{self.port}"

    @property
    def scheme(self) -> str:
        """Scheme of the URLs of this listener."""
        if self.options.binding is None:
            return "amqp" if self.options.tls is None else "amqps"
        return "amqp+ws" if self.options.tls is None else "amqp+wss"

    @property
    def guests(self) -> int:
        """Number of connected clients."""
        with self._lock:
            return len(self._guests)

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return epoch_milliseconds()

    def close(self, deadline: float = 5.0) -> None:
        """Stop listening, and close the connections of all clients within `deadline` seconds. Idempotent."""
        until = monotonic() + time_to_close(deadline)
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._stopped.set()
            guests = list(self._guests)
        with suppress(OSError):  # some systems report that a listening socket is not connected
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(left(until))
        for guest in guests:
            guest.close(until)

    def admit(self, guest: AmqpClient) -> bool:
        """Admit a client; return False if it has another connection, and one of the two must be its only one.

        This holds across all listeners of the broker.
        """
        return self.broker.claims.admit(guest.client, guest, is_sole=guest.is_sole)

    def settle(self, guest: AmqpClient) -> bool:
        """Protect a logged-in client from making room for others; False if its user has the maximum of connections."""
        owner = f"address {place_of(guest.address)}" if guest.user is None else f"user {guest.user!r}"
        is_kept = self.room.settle(guest.seat, owner, self._max_logins)
        if not is_kept:
            events.AMQP_LISTENER_NO_ROOM.log(self, owner[:SHOWN_CHARACTERS], guest)
        return is_kept

    def let_go(self, guest: AmqpClient) -> None:
        """Forget a client, so that it may connect again."""
        self.broker.claims.leave(guest.client, guest)

    def gone(self, guest: AmqpClient) -> None:
        """Record that a client has left."""
        self.let_go(guest)
        self.room.leave(guest.seat)
        with self._lock:
            self._guests.pop(guest, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                accepted, address = self._socket.accept()
            except OSError as error:  # closed, the client left at once, or no file could be opened
                if error.errno in OUT_OF_FILES:
                    self.room.shed()
                self._stopped.wait(ACCEPT_PAUSE_SECONDS)
                continue
            place = f"{bracketed(address[0])}:{address[1]}"
            try:
                self._welcome(accepted, place, address[0])
            except (OSError, RuntimeError) as error:  # no file could be opened, or no thread started
                accepted.close()
                events.AMQP_LISTENER_TURNED_AWAY.log(self, place, error)
                self._stopped.wait(ACCEPT_PAUSE_SECONDS)

    def _welcome(self, accepted: socket.socket, place: str, address: str) -> None:
        seat = self.room.enter(address, 1, accepted.close)
        if seat.has_to_go:
            return
        try:
            guest = AmqpClient(self, accepted, f"{self.scheme}://{place}", address, seat)
        except OSError:
            self.room.leave(seat)
            raise
        seat.end = guest.make_room
        with self._lock:
            self._guests[guest] = None
            is_closed = self._is_closed
        if is_closed:
            guest.turn_away()
        else:
            guest.start()
