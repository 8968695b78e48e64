"""Clients of the AMQP listener that say anything: conversations with mistakes in them, over TCP and within a WebSocket.

`hear_mutated` says so many of them, and sees between them that the listener serves others as before.
"""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from amqp_raw import ACCEPTED, Raw
from proton import Message, symbol
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from brokers.amqp.listener import Listener, Options
from brokers.amqp.sasl import SASL_HEADER, Performative, pack
from brokers.amqp.url import WebSocketBinding
from brokers.amqp.websocket_stream import units
from brokers.embedded import Broker

PATIENCE: Final = 20.0
SHORT: Final = 0.005
"""Seconds that the answer to a conversation with mistakes may take, as there may be none."""

OFTEN: Final = 50
"""Inputs after which the listener is looked at."""


class Phase(NamedTuple):
    """What a client says without waiting, header and frames, and how many octets are answered before it goes on."""

    units: list[bytes]
    answer: int


LOGIN: Final = Phase([SASL_HEADER, pack(Performative.INIT, symbol("ANONYMOUS"), b"", "localhost")], 1)


class Scribe(Raw):
    """A client that keeps what it says, and how much it hears in between."""

    def __init__(self, port: int) -> None:
        self.phases: list[tuple[bytes, int]] = [(b"", 0)]
        super().__init__(port)

    def pump(self) -> None:
        """Write, and keep it."""
        while (pending := self.transport.pending()) > 0:
            out = bytes(self.transport.peek(pending) or b"")
            said, answer = self.phases[-1]
            if answer:
                self.phases.append((out, 0))
            else:
                self.phases[-1] = (said + out, 0)
            self._socket.sendall(out)
            self.transport.pop(len(out))
        super().pump()

    def heard(self, octets: bytes) -> None:
        """Count."""
        said, answer = self.phases[-1]
        self.phases[-1] = (said, answer + len(octets))

    def said(self) -> list[Phase]:
        """Return all that was said."""
        return [Phase(list(units(said)), answer) for said, answer in self.phases]


def conversation(port: int) -> list[Phase]:
    """Hold one with a listener, of all that a client does, and return what was said."""
    with Scribe(port) as client:
        relay, control, direct = client.attach(None), client.control(), client.attach("q")
        client.receive("q", credit=5)
        client.receive(None, dynamic=True)
        client.outcome(client.send(relay, Message(address="q", body="a", properties={"a": 1, "b": [1, {"c": None}]})))
        client.send(relay, Message(address="topic://t", body=b"\0" * 300), settled=True)
        client.outcome(client.send(direct, Message(body="b", id="1", reply_to="r", correlation_id=5, ttl=1.0)))
        transaction = client.declare(control)
        client.outcome(client.send(relay, Message(address="q", body="c"), transaction=transaction))
        client.until(lambda: len(client.deliveries) == 2)
        client.settle(client.deliveries[0], ACCEPTED, transaction=transaction)
        client.discharge(control, transaction, fail=False)
        client.until(lambda: len(client.deliveries) == 3)
        client.settle(client.deliveries[1], ACCEPTED)
        direct.close()
        client.end_of(direct)
        client.session.close()
        client.connection.close()
        client.until(lambda: client.closed)
        return client.said()


def with_mistakes(said: list[Phase], chance: random.Random) -> list[Phase]:
    """Say it with some mistakes: in frames that are whole, in their heads, and in their order."""
    found = [Phase(list(units), answer) for units, answer in [*([LOGIN] if chance.random() < 0.5 else []), *said]]
    for _ in range(chance.randint(1, 5)):
        units = chance.choice(found).units
        if units:
            at = chance.randrange(len(units))
            units[at : at + 1] = chance.choice(MISTAKES)(units[at], chance)
    return found


def _within(unit: bytes, chance: random.Random) -> list[bytes]:
    """Change octets behind the head; the size stays right."""
    octets = bytearray(unit or b"\0")
    for _ in range(chance.randint(1, 4)):
        octets[chance.randrange(min(8, len(octets) - 1), len(octets))] = chance.randrange(256)
    return [bytes(octets)]


def _longer(unit: bytes, chance: random.Random) -> list[bytes]:
    """Put octets into it, or take some out, and make the size right."""
    at, body = chance.randrange(8, max(9, len(unit))), bytearray(unit)
    body[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(12))
    return [len(body).to_bytes(4, "big") + bytes(body[4:])]


def _elsewhere(unit: bytes, chance: random.Random) -> list[bytes]:
    """Name another address, of one octet, that begins like those of the listener and may lack the name behind it."""
    address = chance.choice((b"queue://", b"topic://", b"temp-queue://", b"temp-topic://", b"", b"queue://q"))
    body = unit.replace(b"\xa1\x01q", b"\xa1" + bytes([len(address)]) + address)
    return [len(body).to_bytes(4, "big") + body[4:]]


def _head(unit: bytes, chance: random.Random) -> list[bytes]:
    """Change size, offset, type or channel."""
    octets = bytearray(unit or b"\0")
    octets[chance.randrange(min(8, len(octets)))] = chance.choice((0, 1, 2, 3, 127, 128, 255))
    return [bytes(octets)]


MISTAKES: Final[tuple[Callable[[bytes, random.Random], list[bytes]], ...]] = (
    _within,
    _within,
    _elsewhere,
    _longer,
    _head,
    lambda unit, chance: [],
    lambda unit, chance: [unit] * chance.choice((2, 2, 300)),
    lambda unit, chance: [unit[: chance.randrange(len(unit) + 1)]],
    lambda unit, chance: [chance.randbytes(chance.randrange(1, 40)), unit],
)


class Entrance:
    """A way to a listener.

    Args:
        listener: whose.
        token: the sub-protocol of a WebSocket, None for TCP.
        patience: seconds that an answer may take; then the next is said.
        garble: changes octets of a WebSocket's frames.
    """

    def __init__(
        self,
        listener: Listener,
        token: str | None,
        patience: float = PATIENCE,
        garble: Callable[[bytes], bytes] = lambda octets: octets,
    ) -> None:
        self._garble = garble
        self._listener = listener
        self._token = token
        self._patience = patience

    def say(self, said: list[Phase], cut: Callable[[list[bytes]], list[bytes]] = lambda units: units) -> None:
        """Say it, and hang up once the listener did.

        Args:
            said: one phase after the other, each once the one before is answered.
            cut: makes pieces of what is said at once; over WebSocket each is a message.
        """
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._listener.port), PATIENCE) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            way = (
                Plain(client) if self._token is None else Masked(client, self._listener.port, self._token, self._garble)
            )
            for units, answer in said:
                way.send(cut(units))
                client.settimeout(self._patience)
                with suppress(TimeoutError):
                    heard = 0
                    while heard < answer and (octets := way.receive()) is not None:
                        heard += octets
            client.settimeout(PATIENCE)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass


class Plain:
    """TCP, as it is."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client

    def send(self, pieces: list[bytes]) -> None:
        """Send each by itself."""
        for each in pieces:
            self._client.sendall(each)

    def receive(self) -> int | None:
        """Wait for octets, and return how many; None at the end."""
        return len(self._client.recv(1 << 16)) or None


class Masked:
    """A WebSocket."""

    def __init__(self, client: socket.socket, port: int, token: str, garble: Callable[[bytes], bytes]) -> None:
        self._client = client
        self._garble = garble
        uri = parse_uri(f"ws://127.0.0.1:{port}/")
        self._websocket = ClientProtocol(uri, subprotocols=[Subprotocol(token)], max_size=None)
        self._websocket.send_request(self._websocket.connect())
        client.sendall(b"".join(self._websocket.data_to_send()))
        while self._websocket.state is State.CONNECTING and self._websocket.handshake_exc is None:
            self._websocket.receive_data(client.recv(4096))
            self._websocket.events_received()
        assert self._websocket.state is State.OPEN, self._websocket.handshake_exc

    def send(self, pieces: list[bytes]) -> None:
        """Send each as a message."""
        for each in pieces:
            if self._websocket.state is State.OPEN:
                self._websocket.send_binary(each)
        self._client.sendall(self._garble(b"".join(self._websocket.data_to_send())))

    def receive(self) -> int | None:
        """Wait for messages, and return how many octets are in them; None at the end."""
        octets = self._client.recv(1 << 16)
        if not octets or self._websocket.state is not State.OPEN:
            return None
        self._websocket.receive_data(octets)
        return sum(len(each.data) for each in self._websocket.events_received() if isinstance(each, Frame))


def cut_anywhere(chance: random.Random) -> Callable[[list[bytes]], list[bytes]]:
    """Return what joins frames and cuts them elsewhere, now and then."""

    def cut(units: list[bytes]) -> list[bytes]:
        if chance.random() < 0.5:
            return units
        octets = b"".join(units)
        cuts = sorted(chance.randrange(len(octets) + 1) for _ in range(chance.randrange(4)))
        return [octets[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True)]

    return cut


def seldom_garbled(chance: random.Random) -> Callable[[bytes], bytes]:
    """Return what changes an octet, seldom."""

    def garble(octets: bytes) -> bytes:
        if not octets or chance.random() < 0.98:
            return octets
        at = chance.randrange(len(octets))
        return octets[:at] + chance.randbytes(1) + octets[at + 1 :]

    return garble


ENTRANCES: Final = (
    (None, None),
    (WebSocketBinding.CSPRD01, "AMQPWSB10"),
    (WebSocketBinding.LENIENT, "amqp"),
)


def hear_mutated(count: int, seed: int) -> Counter[str]:
    """Say so many conversations with mistakes to listeners of each kind, and see that they serve others meanwhile."""
    chance, heard = random.Random(seed), Counter[str]()
    for index, (binding, token) in enumerate(ENTRANCES):
        share = count // len(ENTRANCES) + (index < count % len(ENTRANCES))
        broker = Broker(max_messages=1000)
        with (
            Listener(broker, port=0, options=Options(binding=binding)) as listener,
            Listener(broker, port=0) as other,
            Raw(other.port) as witness,
        ):
            said = conversation(other.port)
            entrance, relay = Entrance(listener, token, SHORT, seldom_garbled(chance)), witness.attach(None)
            witness.receive("witness")
            for number in range(share):
                entrance.say(with_mistakes(said, chance), cut_anywhere(chance))
                heard[f"{binding or 'tcp'}"] += 1
                if number % OFTEN == OFTEN - 1 or number == share - 1:
                    told = witness.outcome(witness.send(relay, Message(address="witness", body=f"{number}")))
                    assert (told.state, witness.take(1)) == (ACCEPTED, [f"{number}"])
            until = time.monotonic() + PATIENCE
            while listener.guests:
                assert time.monotonic() < until, f"{listener.guests} clients are still there"
                time.sleep(0.01)
    return heard
