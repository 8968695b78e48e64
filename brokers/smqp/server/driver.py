"""The server with its sockets: an asyncio loop on a separate thread.

Everything that arrives in one turn of the loop goes to the engine, is committed together, and is then answered; of one
client's commands only some are executed in a turn. While a client does not read, the server does not read from it
either, so that nothing piles up.

Spec: SMQP 2 (two connections), 4.1.6.5.1, 6 (SMQPS).

Deviation: SMQP does not say how SMQPS works. Here it is TLS from the first octet, on separate ports; on both
connections the SMQP server is the TLS server, so that a client needs no certificate and can verify the server.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from math import isnan
from pathlib import Path
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import WeakValueDictionary

from brokers import events
from brokers.arguments import instance, is_number
from brokers.errors import ClosedError, UsageError
from brokers.listeners.descriptors import bounded
from brokers.listeners.guesses import Guesses, Lane
from brokers.listeners.handshakes import Handshakes
from brokers.listeners.room import Room
from brokers.smqp.protocol.dialogue import SERVER_PORT
from brokers.smqp.protocol.replies import SmqpStoreError
from brokers.smqp.server.accounts import Password
from brokers.smqp.server.actions import (
    Action,
    CheckPassword,
    Close,
    Connect,
    HashPassword,
    NotifyClose,
    NotifyWrite,
    Resume,
    Write,
)
from brokers.smqp.server.admin import Administration
from brokers.smqp.server.database import Database
from brokers.smqp.server.engine import LOGGED_IN_READ_OCTETS, SmqpEngine
from brokers.smqp.server.links import Peer, PeerLink
from brokers.smqp.server.options import Options
from brokers.threads.thread import Pool, Thread


class _Connection(asyncio.BaseProtocol):
    """The base of both connections: writes, and reads only while writing is not blocked."""

    transport: Any = None

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_full = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Set `ended`."""
        if not self.ended.done():
            self.ended.set_result(None)

    def write(self, data: bytes) -> None:
        """Send octets."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Send all pending octets, then close."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self._is_full = True
        self.pause()

    def resume_writing(self) -> None:
        """Read again from a client that reads again."""
        self._is_full = False
        self.resume()

    @property
    def is_drained(self) -> bool:
        """Whether writing is not blocked."""
        return not self._is_full

    def pause(self) -> None:
        """Stop reading for now."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again, unless writing is blocked or the connection is closing."""
        if not self._is_full and not self.transport.is_closing():
            self.transport.resume_reading()


class CommandProtocol(_Connection, asyncio.BufferedProtocol):
    """A client's command connection."""

    def __init__(self, server: Server, *, is_secure: bool) -> None:
        super().__init__(server)
        self._is_secure = is_secure
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the engine that a client has connected."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.number = self._server.engine.accept(peer[0] if peer else "", is_secure=self._is_secure)
        self._server.entered(self)
        self._server.flush_soon()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into: all connections of a server share one, as they take turns."""
        return self._server.buffer[: self._server.engine.room(self.number)]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand octets to the engine."""
        self._server.engine.received(self.number, bytes(self._server.buffer[:nbytes]))
        if self._server.engine.is_busy(self.number):
            self.pause()
        self._server.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the engine that the connection has ended."""
        super().connection_lost(exc)
        self._server.left(self)
        self._server.engine.closed(self.number)
        self._server.flush_soon()

    def resume_writing(self) -> None:
        """Continue to answer a client that reads again."""
        super().resume_writing()
        self._server.drained(self)

    def resume(self) -> None:
        """Read again, unless a reply is still to come."""
        if not self._server.engine.is_busy(self.number):
            super().resume()


NOTIFY_READ_OCTETS: Final = 1024
"""Octets that are read at once from a notify connection, on which clients send only short acknowledgements."""


class NotifyProtocol(_Connection, asyncio.BufferedProtocol):
    """A notify connection that the server opened to a client."""

    def __init__(self, server: Server, session: int, attempt: int, *, is_secure: bool) -> None:
        super().__init__(server)
        self.key = (session, attempt)
        self._is_secure = is_secure

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """With TLS, stop reading, so that TLS gets the first octets."""
        super().connection_made(transport)
        if self._is_secure:
            self.pause()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into, which all connections of the server share."""
        return self._server.buffer[:NOTIFY_READ_OCTETS]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand octets to the engine."""
        self._server.engine.notify_received(*self.key, bytes(self._server.buffer[:nbytes]))
        self._server.flush_soon()

    def resume_writing(self) -> None:
        """Continue to notify a client that reads again."""
        super().resume_writing()
        self._server.notify_drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the engine that the notify connection has ended."""
        super().connection_lost(exc)
        self._server.notify_left(self)
        self._server.engine.notify_closed(*self.key)
        self._server.flush_soon()


T = TypeVar("T")

HASH_THREADS: Final = 2
"""Number of threads that compare and hash passwords."""
MAX_CLOSE_TURNS: Final = 5
HANDSHAKE_TIMEOUT: Final = 10.0
FILES_PER_CLIENT: Final = 2
"""File descriptors of one client: its two connections."""
LINK_FAREWELL_SECONDS: Final = 2.0
"""Maximum time, in seconds, that closing waits for other servers to answer its links."""
FAREWELL_SECONDS: Final = 0.5
"""Maximum time, in seconds, that closing waits for pending octets to be sent."""


class Server:
    """An SMQP server. A `with` statement closes it.

    Args:
        store: the file for accounts, topics, messages and subscriptions; `:memory:` keeps nothing.
        options: the options of the server.
        clock: returns the time in seconds since 1970.

    Raises:
        SmqpStoreError: the file cannot be used, for example because another server uses it.
    """

    def __init__(
        self, store: str | Path, options: Options | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        given = Options() if options is None else options
        instance(given, "options", Options, "brokers.smqp.server.Options")
        given = replace(given, max_sessions=bounded(given.max_sessions, FILES_PER_CLIENT, "SMQP clients"))
        self.engine = SmqpEngine(Database(store), given, clock=clock)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="smqp server", daemon=True)
        self._hashers = Pool(HASH_THREADS, "smqp password")
        self._listeners: list[asyncio.Server] = []
        self._tls: ssl.SSLContext | None = None
        room = Room(2 * self.engine.core.options.max_strangers, "TLS handshakes")
        self._handshakes = Handshakes(room, HANDSHAKE_TIMEOUT)
        self._guesses = Guesses()
        self._turns_of: WeakValueDictionary[Lane, asyncio.Lock] = WeakValueDictionary()
        self.buffer: Final = memoryview(bytearray(LOGGED_IN_READ_OCTETS))
        self._commands: dict[int, CommandProtocol] = {}
        self._notifies: dict[tuple[int, int], NotifyProtocol] = {}
        self._connecting: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._comparing: set[asyncio.Task[None]] = set()
        self._links: dict[str, PeerLink] = {}
        self._waiting: set[CommandProtocol] = set()  # those with further commands, for the next turn
        self._is_flushing = False
        self._alarm: asyncio.TimerHandle | None = None
        self._lock = Lock()  # so that what is given to the loop comes before its closing
        self._is_closed = False
        self._has_ended = False
        self._thread.start()

    def listen(
        self, host: str = "127.0.0.1", port: int = SERVER_PORT, *, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Listen at a further address; return it with its port.

        Args:
            host: the address.
            port: the port; 0 for any free port. The default of 720 needs root.
            tls: the SSL context for SMQPS; it serves command and notify connections.

        Raises:
            OSError: the address cannot be listened at.
            UsageError: `tls` is no SSL context.
        """
        instance(tls, "tls", ssl.SSLContext | None, "an ssl.SSLContext or None")
        return self._wait(self._listen(host, port, tls))

    async def _listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> tuple[str, int]:
        def begin() -> asyncio.BaseProtocol:
            protocol = CommandProtocol(self, is_secure=tls is not None)
            return protocol if tls is None else self._handshakes.before(protocol, tls)

        listener = await self._loop.create_server(begin, host, port)
        self._tls = tls or self._tls
        self._listeners.append(listener)
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    def administer(self, function: Callable[[Administration], T]) -> T:
        """Run a function that makes administrative changes; if it raises, all of them are undone.

        Raises:
            SmqpStoreError: the changes could not be stored, and are undone.
        """
        return self._wait(self._administer(function))

    async def _administer(self, function: Callable[[Administration], T]) -> T:
        try:
            with self.engine.core.database.savepoint():
                result = function(Administration(self.engine.core))
        except BaseException:
            self.engine.core.reload()  # the state in memory still has the changes
            raise
        self.flush()
        if not self.engine.is_stored:
            raise SmqpStoreError("the store did not take the changes; they are undone, and all clients disconnected")
        return result

    def link(self, peer: Peer) -> None:
        """Pass on messages that are published here with a Depth to another server with subscribers.

        Raises:
            UsageError: there is already a link to that server.
        """
        if peer.context in self._links:
            raise UsageError(f"peer must be a server without a link, got {peer.context}, which has one")
        link = PeerLink(self.engine.core, self.call, peer)
        self._links[peer.context] = link
        self._wait(self._call(self._know_links))
        link.start()

    def _know_links(self) -> None:
        self.engine.core.link_names = tuple(self._links)
        self.engine.core.on_forward = self._wake_links

    def _wake_links(self) -> None:
        for link in self._links.values():
            link.wake()

    def close(self, goodbye: float | None = 0.0) -> None:
        """Say goodbye to the clients, close all connections and the store. Idempotent.

        Args:
            goodbye: the number of seconds to announce; None for no announcement.

        Raises:
            UsageError: `goodbye` is not a number; nothing is closed then.
        """
        if goodbye is not None and (not is_number(goodbye) or isnan(goodbye)):
            raise UsageError(f"goodbye must be a number of seconds or None, got {goodbye!r}")
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        until = monotonic() + LINK_FAREWELL_SECONDS
        for link in self._links.values():
            link.stop()
        for link in self._links.values():
            link.join(until)
        asyncio.run_coroutine_threadsafe(self._close(goodbye), self._loop).result()
        with self._lock:
            self._has_ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._hashers.shutdown()
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _close(self, goodbye: float | None) -> None:
        self.engine.is_available = False
        for listener in self._listeners:  # asyncio fails if it accepts a connection while it closes
            for each in listener.sockets:
                self._loop.remove_reader(each.fileno())
        await self._turns()
        for listener in self._listeners:
            listener.close()
        if goodbye is not None:
            self.engine.core.announce.bye(goodbye)
        self.flush()
        await self._give_up()
        protocols = [*self._commands.values(), *self._notifies.values()]
        for protocol in protocols:
            protocol.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(each.ended for each in protocols)), FAREWELL_SECONDS)
        for protocol in protocols:
            protocol.abort()
        await self._turns()
        await self._give_up()
        if self._alarm is not None:
            self._alarm.cancel()

    async def _give_up(self) -> None:
        """Cancel connection attempts, TLS handshakes and password checks that are under way."""
        tasks = [*self._connecting.values(), *self._comparing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._handshakes.give_up()

    async def _turns(self) -> None:
        """Let the loop run callbacks that are due."""
        for _ in range(MAX_CLOSE_TURNS):
            await asyncio.sleep(0)

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function on the server's thread, then commit and execute its actions.

        Raises:
            ClosedError: the server has ended.
        """
        with self._lock:
            if self._has_ended:
                raise ClosedError("the server was closed")
            return asyncio.run_coroutine_threadsafe(self._call(function), self._loop)

    async def _call(self, function: Callable[[], T]) -> T:
        result = function()
        self.flush_soon()
        return result

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise ClosedError("the server was closed")
            running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return running.result()

    # On the loop

    def entered(self, protocol: CommandProtocol) -> None:
        """Add the connection of a client."""
        self._commands[protocol.number] = protocol

    def left(self, protocol: CommandProtocol) -> None:
        """Remove the connection of a client."""
        self._commands.pop(protocol.number, None)

    def notify_left(self, protocol: NotifyProtocol) -> None:
        """Remove a notify connection."""
        self._notifies.pop(protocol.key, None)

    def drained(self, protocol: CommandProtocol) -> None:
        """Answer the commands that a client sent while writing to it was blocked, or while others had their turn."""
        self._waiting.discard(protocol)
        if protocol.is_drained and self.engine.is_full(protocol.number):
            self.engine.drained(protocol.number)
            self.flush_soon()

    def notify_drained(self, protocol: NotifyProtocol) -> None:
        """Send the notifications that waited while writing to a client was blocked."""
        if protocol.is_drained and self.engine.is_notify_full(protocol.key[0]):
            self.engine.notify_drained(*protocol.key)
            self.flush_soon()

    def flush_soon(self) -> None:
        """Flush once everything that has arrived so far is processed."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Commit, and execute the actions."""
        self._is_flushing = False
        for action in self.engine.flush():
            self._do(action)
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_later(self.engine.wait(), self._tick)

    def _tick(self) -> None:
        self.engine.tick()
        self.flush()

    def _do(self, action: Action) -> None:
        if isinstance(action, Write | Close | Resume):
            self._do_command(action)
        elif isinstance(action, Connect):
            key = action.session, action.attempt
            self._connecting[key] = self._loop.create_task(self._connect(action))
        elif isinstance(action, NotifyWrite | NotifyClose):
            self._do_notify(action)
        else:
            task = self._loop.create_task(self._compare_or_hash(action))
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)

    def _do_command(self, action: Write | Close | Resume) -> None:
        protocol = self._commands.get(action.session)
        if protocol is None:
            return
        if isinstance(action, Write):
            protocol.write(action.data)
            if protocol not in self._waiting and protocol.is_drained and self.engine.is_full(action.session):
                self._waiting.add(protocol)
                self._loop.call_soon(self.drained, protocol)
        elif isinstance(action, Close):
            protocol.close()
        else:
            protocol.resume()

    def _do_notify(self, action: NotifyWrite | NotifyClose) -> None:
        key = action.session, action.attempt
        protocol = self._notifies.get(key)
        if protocol is not None and isinstance(action, NotifyWrite):
            protocol.write(action.data)
            if protocol.is_drained and self.engine.is_notify_full(action.session):
                self._loop.call_soon(self.notify_drained, protocol)
        elif protocol is not None:
            protocol.close()
        elif isinstance(action, NotifyClose) and (task := self._connecting.pop(key, None)) is not None:
            task.cancel()

    async def _connect(self, action: Connect) -> None:
        key = action.session, action.attempt
        try:
            async with asyncio.timeout(self.engine.core.options.connect_timeout):
                protocol = await self._connected(action)
        except (OSError, TimeoutError) as error:
            events.SMQP_SERVER_CLIENT_UNREACHABLE.log(action.host, action.port, error or "no response")
            self.engine.notify_failed(*key, timed_out=isinstance(error, TimeoutError))
        else:
            self._notifies[key] = protocol
            self.engine.notify_opened(*key)
        finally:
            self._connecting.pop(key, None)
            self.flush_soon()

    async def _connected(self, action: Connect) -> NotifyProtocol:
        protocol = NotifyProtocol(self, action.session, action.attempt, is_secure=action.is_secure)
        transport, _ = await self._loop.create_connection(lambda: protocol, action.host, action.port)
        if action.is_secure:
            assert self._tls is not None
            try:
                secured = await self._loop.start_tls(transport, protocol, self._tls, server_side=True)
            except BaseException:
                transport.abort()
                raise
            assert secured is not None
            protocol.transport = secured
        return protocol

    async def _compare_or_hash(self, action: CheckPassword | HashPassword) -> None:
        cost = self.engine.core.options.scrypt_cost
        if isinstance(action, HashPassword):
            password = await self._loop.run_in_executor(self._hashers, Password.of, action.text, cost)
            self.engine.hashed(action.session, password)
        else:
            await self._compare(action, cost)
        self.flush_soon()

    async def _compare(self, action: CheckPassword, cost: int) -> None:
        """Compare a password, after earlier ones from the same address."""
        lane = self._guesses.lane(action.address, action.account)
        async with self._turns_of.setdefault(lane, asyncio.Lock()):
            if not self.engine.has(action.session):
                return
            if not self._guesses.allows(lane):
                self.engine.unseen(action.session)
                return
            if action.stored is None:  # this takes as long as for an existing account
                await self._loop.run_in_executor(self._hashers, Password.of, action.text, cost)
                is_right = False
            else:
                is_right = await self._loop.run_in_executor(self._hashers, action.stored.matches, action.text)
            if is_right:
                self._guesses.right(action.address, action.account)
            else:
                self._guesses.wrong(lane, action.account)
        self.engine.checked(action.session, is_right)
