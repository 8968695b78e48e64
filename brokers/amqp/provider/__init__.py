"""AMQP 1.0 for others: the embedded broker listens, over TCP and over WebSocket.

    with Listener(broker, "127.0.0.1", 5672) as listener: ...

The clients may be of anybody's making; docs/amqp.md says what they find.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from threading import Event, Lock
from time import monotonic
from types import TracebackType
from typing import Final, Self

from brokers.address import bracketed
from brokers.amqp.provider.guest import Guest
from brokers.amqp.provider.nodes import Nodes
from brokers.amqp.provider.options import Action, Options
from brokers.amqp.provider.rights import Right, Rights
from brokers.embedded import Broker
from brokers.embedded.broker import epoch_milliseconds
from brokers.guesses import Guesses, place_of
from brokers.reach import check_reach
from brokers.threads import Thread

__all__ = ["Action", "Listener", "Options", "Right", "Rights"]

log = logging.getLogger(__name__)

BACKLOG: Final = 128
OPEN: Final = "users (--users FILE, Options(users=…)), or the word that anybody may (--open, Options(anonymous=True))"
PAUSE: Final = 0.05


class Listener:
    """Listens at one address for clients of an embedded broker. Usable in a `with` statement, which closes it.

    Attributes:
        broker, options: whose clients, and how they are treated.
        name: what the broker calls itself to them.
        port: where it listens.
    """

    def __init__(
        self, broker: Broker, host: str = "127.0.0.1", port: int = 5672, options: Options | None = None
    ) -> None:
        """Begin to listen.

        Args:
            broker: whose clients.
            host: the interface, of IPv4 or IPv6; an empty one for all of IPv4, `::` for all of IPv6.
            port: 0 for any that is free.
            options: how they are treated.

        Raises:
            OSError: that address cannot be had.
            ValueError: other machines reach it, and the options have neither users, nor say that anybody is let in.
        """
        self.broker = broker
        given = options or Options()
        self.options = replace(given, hosts=given.hosts | {host} - {""})
        self.name = broker.name or f"embedded-{token_hex(4)}"
        self.nodes = Nodes(broker, self.options)
        self._host = host
        self._lock = Lock()
        self.guesses = Guesses()
        self._guests: dict[Guest, None] = {}  # the first that came first
        self._is_closed = False
        self._stopped = Event()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        if given.is_unguarded:
            check_reach(self._socket, OPEN)
        self.port: int = self._socket.getsockname()[1]
        self._thread = Thread(target=self._accept, name=f"{self} listener", daemon=True)
        self._thread.start()

    def __str__(self) -> str:
        return f"{self.scheme}://{bracketed(self._host) or '*'}:{self.port}"

    @property
    def url(self) -> str:
        """For `brokers.connect`, without user and password."""
        return f"{self.scheme}://{bracketed(self._host) or '127.0.0.1'}:{self.port}"

    @property
    def scheme(self) -> str:
        """What URLs of this listener begin with."""
        if self.options.binding is None:
            return "amqp" if self.options.tls is None else "amqps"
        return "amqp+ws" if self.options.tls is None else "amqp+wss"

    @property
    def guests(self) -> int:
        """Count the clients that are connected."""
        with self._lock:
            return len(self._guests)

    def now(self) -> int:
        """Milliseconds since 1970."""
        return epoch_milliseconds()

    def close(self, deadline: float = 5.0) -> None:
        """Take leave of all clients, within `deadline` seconds, and listen no more. Idempotent."""
        until = monotonic() + deadline
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._stopped.set()
            guests = list(self._guests)
        with suppress(OSError):  # was not connected, as some systems say
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(max(0.0, until - monotonic()))
        for guest in guests:
            guest.close(until)

    def admit(self, guest: Guest) -> bool:
        """Note who a client is; False if there is another connection of its, and one is to be the only one.

        That goes for all listeners of the broker.
        """
        return self.broker.claims.admit(guest.client, guest, is_sole=guest.is_sole)

    def let_go(self, guest: Guest) -> None:
        """Forget who a client is, so that it may come again."""
        self.broker.claims.leave(guest.client, guest)

    def gone(self, guest: Guest) -> None:
        """Note that a client has left."""
        self.let_go(guest)
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
            except OSError:  # closed, a client that left at once, or there are no more files to be had
                self._stopped.wait(PAUSE)
                continue
            place = f"{bracketed(address[0])}:{address[1]}"
            try:
                self._welcome(accepted, place, address[0])
            except (OSError, RuntimeError) as error:  # there are no more files to be had, or threads
                accepted.close()
                log.warning("%s: %s is turned away: %s", self, place, error)
                self._stopped.wait(PAUSE)

    def _welcome(self, accepted: socket.socket, place: str, address: str) -> None:
        self._make_room(address)
        with self._lock:
            is_full = len(self._guests) >= self.options.max_connections
            if self._is_closed or is_full:
                accepted.close()
                if is_full:
                    log.warning("%s: %d clients are connected, so %s is turned away", self, len(self._guests), place)
                return
            guest = Guest(self, accepted, f"{self.scheme}://{place}", address)
            self._guests[guest] = None
        guest.start()

    def _make_room(self, address: str) -> None:
        """See that there are not too many strangers from one place: the first of them are ended."""
        place = place_of(address)
        with self._lock:
            strangers = [each for each in self._guests if each.is_stranger and place_of(each.address) == place]
        idle = [each for each in strangers if each.is_idle]
        ending = idle[: max(0, len(strangers) + 1 - self.options.max_strangers)]
        if ending:
            said = "%s: %d clients at %s have not logged in, so the first %d of them are ended"
            log.warning(said, self, len(strangers), place, len(ending))
        for each in ending:
            each.make_room()
