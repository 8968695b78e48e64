"""Our AMQP and SMQP clients at servers that say something else than they should: it is told, in time, as an error.

Between a client and an honest server of ours stands somebody who changes what the server says.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from random import Random
from threading import Thread
from typing import Any, Final

from smqp_kit import running

import brokers
from brokers import BrokerError, Message, MessageType, queue
from brokers.amqp.listener import Listener, Options
from brokers.embedded import Broker
from brokers.smqp.client import ClientOptions
from brokers.smqp.server import Right
from fuzz.row import KIB, Case, Row

WAIT: Final = 1.0
"""Seconds that the client waits for an answer."""

PIECES: Final = (
    *(b"", b"\0", b"\xff", b"\0" * 40, b"\xd0\xff\xff\xff\xff", b"AMQP\0\1\0\0"),
    *(b"\r\n", b"200 OK\r\n\r\n", b"9" * 30, b"NOTIFY SERVER BYE\r\n"),
)


class Between:
    """Passes on what a client says, and with one mistake what its server says.

    Args:
        server: where it is.
        spoil: makes the mistake in what has come by then.
        at: after so many octets.
    """

    def __init__(self, server: tuple[str, int], spoil: Callable[[bytes], bytes], at: int) -> None:
        self._server, self._spoil, self._at = server, spoil, at
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._threads = [Thread(target=self._serve, name="between", daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Listen no more, and wait for the end of what is under way."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in list(self._threads):
            each.join(10)
            assert not each.is_alive()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                thread = Thread(target=self._stand, args=(client,), name="between", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _stand(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            up = Thread(target=self._pass, args=(client, server), name="between up", daemon=True)
            up.start()
            self._pass(server, client, is_spoilt=True)
            for each in (client, server):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            up.join(10)

    def _pass(self, one: socket.socket, other: socket.socket, *, is_spoilt: bool = False) -> None:
        seen = 0
        with suppress(OSError):
            while octets := one.recv(64 * KIB):
                if is_spoilt and seen <= self._at < seen + len(octets):
                    at = self._at - seen
                    other.sendall(octets[:at] + self._spoil(octets[at:]))
                else:
                    other.sendall(octets)
                seen += len(octets)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)


def spoilt(octets: bytes, *, cut: int, piece: bytes, flip: int) -> bytes:
    """Leave octets out, put others in, or change one."""
    octets = piece + octets[cut:]
    return bytes([octets[0] ^ flip]) + octets[1:] if octets else octets


class Clients:
    """Clients of one server, one after the other.

    Args:
        server: where it is.
        url: of somebody at another port.
        said: octets that it says to a client on a connection, or so: the mistake is among them.
        options: of the clients.
    """

    def __init__(self, server: tuple[str, int], url: str, said: int, **options: Any) -> None:
        self._server, self._url, self._said, self._options = server, url, said, options

    def make(self, chance: Random) -> Case:
        """Choose the mistake."""
        piece = chance.choice(PIECES) if chance.random() < 0.4 else b""
        cut = chance.choice((0, 1, 4, 50)) if chance.random() < 0.5 else 0
        spoil = partial(spoilt, cut=cut, piece=piece, flip=1 << chance.randrange(8) if chance.random() < 0.6 else 0)
        at = chance.randrange(self._said)
        return Case(self._said, lambda: self._visit(Between(self._server, spoil, at)))

    def look(self) -> None:
        """See that the server serves who comes without a mistake."""
        assert self._visit(Between(self._server, lambda octets: octets, 0)) == "all came"

    def _visit(self, between: Between) -> str:
        """Connect, send and receive; say how far that came."""
        became = "not connected"
        try:
            with suppress(BrokerError, TimeoutError):
                url = self._url.format(port=between.port)
                with brokers.connect(url, timeout=WAIT, **self._options) as connection:
                    became = "connected"
                    arrived: SimpleQueue[Any] = SimpleQueue()
                    connection.consume(queue("q"), arrived.put, auto_accept=True)
                    became = "consumes"
                    for number in range(3):
                        text = Message(message_type=MessageType.TEXT, body=f"{number}", destination=queue("q"))
                        connection.send(text).result(WAIT)
                    became = "sent"
                    with suppress(Empty):
                        for _ in range(3):
                            arrived.get(timeout=WAIT)
                        became = "all came"
        finally:
            between.close()
        return became


@contextmanager
def amqp() -> Iterator[Clients]:
    """An AMQP listener of ours."""
    with Listener(Broker(), port=0, options=Options(users={"ann": "secret"})) as listener:
        yield Clients(("127.0.0.1", listener.port), "amqp://ann:secret@127.0.0.1:{port}", 1500, reconnect=False)


@contextmanager
def smqp() -> Iterator[Clients]:
    """An SMQP server of ours."""
    with running() as server:
        server.accounts("ann")
        server.server.administer(lambda admin: admin.prepare_for_jms())
        for path in ("/queue", "/topic", "/temporary"):
            server.grant("ann", path, Right.ALL)
        options = ClientOptions(renew=None, ack_timeout=WAIT)
        yield Clients(server.address, "smqp://ann:pw@127.0.0.1:{port}", 400, options=options)


EXPECTED: Final = "ended the consumer|cannot be renewed|cannot be read|failed"
AMQP: Final = Row(
    name="amqp-client",
    holds="whatever a server says, our client works or is told why not, in time",
    opens=amqp,
    cases=2_000,
    gate=20,
    expected=EXPECTED,
)
SMQP: Final = Row(
    name="smqp-client",
    holds="whatever a server says, our client works or is told why not, in time",
    opens=smqp,
    cases=2_000,
    gate=20,
    expected=EXPECTED,
)
