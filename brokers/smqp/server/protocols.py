"""The two kinds of connections as asyncio sees them: what arrives goes to the engine, and is answered after a flush.

A client that does not read what it is sent is not read from either, so that nothing piles up.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brokers.smqp.server.driver import Server


class _Connection(asyncio.BaseProtocol):
    """What both have: writing, and reading only while what was written goes out."""

    transport: Any = None

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_full = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that it ended."""
        if not self.ended.done():
            self.ended.set_result(None)

    def write(self, data: bytes) -> None:
        """Send octets."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Send what is to be sent, then close."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client does not read: do not read from it either."""
        self._is_full = True
        self.pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_full = False
        self.resume()

    @property
    def is_drained(self) -> bool:
        """Whether what was written went out, or is about to."""
        return not self._is_full

    def pause(self) -> None:
        """Read no more for now."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again, if nothing speaks against it."""
        if not self._is_full and not self.transport.is_closing():
            self.transport.resume_reading()


class CommandProtocol(_Connection, asyncio.BufferedProtocol):
    """A client's command connection. With TLS it counts from the first, and what is written waits for the handshake."""

    def __init__(self, server: Server, tls: ssl.SSLContext | None) -> None:
        super().__init__(server)
        self._tls = tls
        self._waiting: bytearray | None = None if tls is None else bytearray()
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the engine that a client is there."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.number = self._server.engine.accept(peer[0] if peer else "", is_secure=self._tls is not None)
        self._server.entered(self)
        self._server.flush_soon()
        if self._tls is not None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()  # TLS reads what comes
            self._server.shake_hands(self, transport, self._tls)

    def secured(self, transport: asyncio.Transport) -> None:
        """Go on over TLS."""
        waiting, self._waiting = self._waiting, None
        self.transport = transport
        if waiting:
            self.write(bytes(waiting))
        if self._server.engine.is_busy(self.number):  # with what came with the end of the handshake
            self.pause()

    def write(self, data: bytes) -> None:
        """Send octets, once there is TLS where it is used."""
        if self._waiting is None:
            super().write(data)
        else:
            self._waiting += data

    def close(self) -> None:
        """Send what is to be sent, then close; at once where it cannot be sent yet."""
        if self._waiting is None:
            super().close()
        else:
            self.abort()

    def pause(self) -> None:
        """Read no more for now; TLS reads on, where it is being made."""
        if self._waiting is None:
            super().pause()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to put what is read: all connections of a server share one place, as they take turns."""
        return self._server.buffer[: self._server.engine.room(self.number)]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand octets to the engine."""
        self._server.engine.received(self.number, bytes(self._server.buffer[:nbytes]))
        if self._server.engine.is_busy(self.number):
            self.pause()
        self._server.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the engine that the client is gone."""
        if self.ended.done():  # a handshake that failed
            return
        super().connection_lost(exc)
        self._server.left(self)
        self._server.engine.closed(self.number)
        self._server.flush_soon()

    def resume_writing(self) -> None:
        """The client reads again: go on answering it."""
        super().resume_writing()
        self._server.drained(self)

    def resume(self) -> None:
        """Read again, unless an answer is still to come."""
        if self._waiting is None and not self._server.engine.is_busy(self.number):
            super().resume()


class NotifyProtocol(_Connection, asyncio.Protocol):
    """A connection that the server made to a client."""

    def __init__(self, server: Server, session: int, attempt: int, *, is_secure: bool) -> None:
        super().__init__(server)
        self.key = (session, attempt)
        self._is_secure = is_secure

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Leave what comes first to TLS, where it is used."""
        super().connection_made(transport)
        if self._is_secure:
            self.pause()

    def data_received(self, data: bytes) -> None:
        """Hand octets to the engine."""
        self._server.engine.notify_received(*self.key, data)
        self._server.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the engine that the connection ended."""
        super().connection_lost(exc)
        self._server.notify_left(self)
        self._server.engine.notify_closed(*self.key)
        self._server.flush_soon()
