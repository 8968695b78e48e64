"""TLS handshakes of an asyncio server that are counted from the start, have a time limit, and make room for others.

asyncio informs a protocol of a connection only after the TLS handshake, for which it gives the client a minute. Until
then the connection is not counted, so silent clients could use up all the files that a process may open.
"""

from __future__ import annotations

import asyncio
import ssl

from brokers import events
from brokers.listeners.room import ClientShare, Room


class Handshakes:
    """The handshakes of one server, on one loop.

    Args:
        room: counts the handshakes. A connection that succeeds leaves it, and its protocol may enter it again.
        timeout: seconds that each handshake may take.
    """

    def __init__(self, room: Room, timeout: float) -> None:
        self.room, self.timeout = room, timeout
        self.tasks: set[asyncio.Task[None]] = set()

    def before(self, protocol: asyncio.BaseProtocol, context: ssl.SSLContext) -> asyncio.Protocol:
        """Return the first protocol of a connection: it sets up TLS and then hands over to `protocol`."""
        return _Arrival(self, protocol, context)

    async def give_up(self) -> None:
        """Cancel all current handshakes."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Arrival(asyncio.Protocol):
    """A client that has connected and is to set up TLS."""

    def __init__(self, handshakes: Handshakes, protocol: asyncio.BaseProtocol, context: ssl.SSLContext) -> None:
        self._handshakes = handshakes
        self._protocol = protocol
        self._context = context
        self._held: ClientShare | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        transport.pause_reading()
        self._held = self._handshakes.room.enter(str(peer[0]) if peer else "", 1, transport.abort)
        if not transport.is_closing():
            task = asyncio.get_running_loop().create_task(self._secure(transport, peer))
            self._handshakes.tasks.add(task)
            task.add_done_callback(self._handshakes.tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._held is not None:
            self._handshakes.room.leave(self._held)

    async def _secure(self, transport: asyncio.Transport, peer: object) -> None:
        first = _First()
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, first, self._context, server_side=True, ssl_handshake_timeout=self._handshakes.timeout
            )
        except OSError as error:  # an SSL error, a lost connection, or the time-out
            events.TLS_HANDSHAKE_FAILED.log(peer, error)
            secured = None
        finally:
            self._leave()
        if secured is None or first.is_lost:
            transport.abort()
            return
        secured.set_protocol(self._protocol)
        self._protocol.connection_made(secured)
        _hand_over(bytes(first.octets), self._protocol)


class _First(asyncio.Protocol):
    """Keeps octets that follow a handshake directly: they may arrive before `start_tls` returns."""

    def __init__(self) -> None:
        self.octets = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.octets += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def _hand_over(octets: bytes, protocol: asyncio.BaseProtocol) -> None:
    if isinstance(protocol, asyncio.BufferedProtocol):
        while octets:
            buffer = memoryview(protocol.get_buffer(len(octets)))
            taken = min(len(buffer), len(octets))
            buffer[:taken] = octets[:taken]
            protocol.buffer_updated(taken)
            octets = octets[taken:]
    elif octets and isinstance(protocol, asyncio.Protocol):
        protocol.data_received(octets)
