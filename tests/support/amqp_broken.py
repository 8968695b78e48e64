"""A broker of AMQP for tests: it answers as it should, frame by frame, until a test has it write what no broker should.

Everything is written and read here as octets, so that nothing has to be right.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition as Signal
from threading import Thread
from types import TracebackType
from typing import Any, Self

from amqp_mutations import MISTAKES
from amqp_raw import PATIENCE, frame
from proton import UNDESCRIBED, Array, Data, Described, symbol, ubyte, uint, ulong, ushort

from brokers.amqp.sasl import AMQP_HEADER, HEADER_OCTETS, SASL_HEADER, Performative, pack

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)

WINDOW = 2**31 - 1

undescribed: Any = UNDESCRIBED
GREETING = (
    SASL_HEADER
    + pack(Performative.MECHANISMS, Array(undescribed, Data.SYMBOL, symbol("ANONYMOUS"), symbol("PLAIN")))
    + pack(Performative.OUTCOME, ubyte(0))
    + AMQP_HEADER
)
"""What is said before AMQP begins, whatever the client says."""


class BrokenBroker:
    """Listens, and serves one client after the other.

    Attributes:
        url: for `brokers.connect`.
        received: the frames that were read from the clients: performative, channel and fields.
        links: the names of what was attached, with channel and handle.
        clients: how many have come.
        is_deaf: read nothing more, until told to `hear`.
        leaves_out: performatives that it does not answer, until told to `write` the answer.
        offset: how far its own channels are from those of the client.
        on_transfer: told channel and number of each message.
    """

    def __init__(self, credit: int = 1000, window: int = WINDOW) -> None:
        """Listen; `credit` is for each link that sends, `window` for the transfers of each session."""
        self._credit = credit
        self._window = window
        self.leaves_out: set[int] = set()
        self.offset = 0
        self.on_transfer: Callable[[int, int], None] = lambda channel, number: None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received: list[tuple[int, int, list[Any]]] = []
        self.links: dict[str, tuple[int, int]] = {}
        self.clients = 0
        self.is_deaf = False
        self._changed = Signal()
        self._client: socket.socket | None = None
        self._thread = Thread(target=self._accept, name="broken broker", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hear()
        with suppress(OSError):  # there is none, or it has gone
            assert self._client is not None
            self._client.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def write(self, *frames: bytes) -> None:
        """Write to the client that came last."""
        assert self._client is not None
        self._client.sendall(b"".join(frames))

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is so, of what clients did."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), self.received

    def got(self, performative: int) -> list[list[Any]]:
        """Return the fields of all frames of a kind."""
        return [fields for kind, _, fields in list(self.received) if kind == performative]

    def hear(self) -> None:
        """Read on, if it is deaf."""
        with self._changed:
            self.is_deaf = False
            self._changed.notify_all()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                self._client, _ = self._listener.accept()
                with self._client, suppress(OSError):
                    self._serve(self._client)

    def _serve(self, client: socket.socket) -> None:
        client.sendall(GREETING)
        with self._changed:
            self.links = {}
            self.clients += 1
            self._changed.notify_all()
        rest = b""
        while octets := client.recv(1 << 16):
            rest += octets
            while (unit := _first(rest)) is not None:
                rest = rest[len(unit) :]
                if not unit.startswith(b"AMQP") and unit[5] == 0 and len(unit) > 8:
                    self._take(client, unit)
            with self._changed:
                self._changed.wait_for(lambda: not self.is_deaf)

    def _take(self, client: socket.socket, unit: bytes) -> None:
        data, channel = Data(), int.from_bytes(unit[6:8], "big")
        data.decode(unit[unit[4] * 4 :])
        data.rewind()
        data.next()
        described: Any = data.get_object()
        performative, fields = int(described.descriptor), described.value
        own = channel + self.offset
        match performative:
            case _ if performative in self.leaves_out:
                pass
            case _ if performative == TRANSFER and fields[1] is not None:
                self.on_transfer(channel, int(fields[1]))
            case _ if performative == OPEN:
                client.sendall(frame(OPEN, "broken"))
            case _ if performative == BEGIN:
                client.sendall(frame(BEGIN, ushort(channel), uint(0), uint(self._window), uint(WINDOW), channel=own))
            case _ if performative == ATTACH:
                self._attach(client, own, fields)
            case _ if performative in (DETACH, END, CLOSE):
                client.sendall(frame(performative, *fields[:2], channel=own))
        with self._changed:
            self.received.append((performative, channel, fields))
            self._changed.notify_all()

    def _attach(self, client: socket.socket, channel: int, fields: list[Any]) -> None:
        name, handle, is_receiver = fields[0], int(fields[1]), fields[2]
        source, target = (
            each or Described(ulong(kind), []) for each, kind in zip(fields[5:7], (0x28, 0x29), strict=True)
        )
        more = (source, target, None, None, uint(0) if is_receiver else None)
        answer = frame(ATTACH, name, uint(handle), not is_receiver, None, None, *more, channel=channel)
        if not is_receiver:
            answer += flow(channel, handle, credit=self._credit, window=self._window)
        with self._changed:  # the client may go on before this thread does
            self.links[str(name)] = channel, handle
            client.sendall(answer)


def flow(channel: int, handle: int, *, credit: int, window: int) -> bytes:
    """Write the frame of a flow for a link that nothing was sent on."""
    link = [uint(handle), uint(0), uint(credit)]
    return frame(FLOW, uint(0), uint(window), uint(0), uint(WINDOW), *link, channel=channel)


def message(channel: int, handle: int, number: int, body: bytes = b"x", *, aborted: bool = False) -> bytes:
    """Write the frame of a whole message; its delivery id and tag are its number."""
    sections = b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body
    head = [uint(handle), uint(number), number.to_bytes(4, "big"), uint(0), False, False]
    made = frame(TRANSFER, *head, *[None] * 3, aborted, channel=channel)
    return (len(made) + len(sections)).to_bytes(4, "big") + made[4:] + sections


def _first(octets: bytes) -> bytes | None:
    size = 8 if octets.startswith(b"AMQP") else int.from_bytes(octets[:4], "big")
    return octets[:size] if len(octets) >= max(size, 8) else None


@contextmanager
def mutating(port: int, chance: random.Random) -> Iterator[str]:
    """Hand one client on to a broker, whose answers reach it with mistakes from some frame on; the URL for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=_hand_on, args=(listener, port, chance), name="mutating", daemon=True)
        thread.start()
        yield f"amqp://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _hand_on(listener: socket.socket, port: int, chance: random.Random) -> None:
    client, _ = listener.accept()
    with client, socket.create_connection(("127.0.0.1", port)) as broker:
        up = Thread(target=_copy, args=(client, broker), name="mutating", daemon=True)
        up.start()
        rest, left = b"", chance.randrange(1, 30)
        with suppress(OSError):  # the client has had enough
            while octets := broker.recv(1 << 16):
                rest += octets
                while (unit := _first(rest)) is not None:
                    rest, left = rest[len(unit) :], left - 1
                    wrong = left <= 0 and len(unit) > HEADER_OCTETS and chance.random() < 0.4
                    client.sendall(b"".join(chance.choice(MISTAKES)(unit, chance)) if wrong else unit)
        for each in (client, broker):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        up.join(PATIENCE)


def _copy(source: socket.socket, goal: socket.socket) -> None:
    with suppress(OSError):
        while octets := source.recv(1 << 16):
            goal.sendall(octets)
    with suppress(OSError):
        goal.shutdown(socket.SHUT_WR)
