"""A client of AMQP for tests that writes frames of its own making, good or bad, and reads what comes back."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from amqp_broken import ATTACH, BEGIN, FLOW, OPEN, TRANSFER
from amqp_raw import frame, own
from proton import Data, Described, uint, ulong

from brokers.amqp.sasl import AMQP_HEADER

PATIENCE = 20.0

STATE = (uint(0), uint(100), uint(0), uint(100))
"""Of a session, in a flow: the next transfer that comes in, and how many; likewise of those that go out."""


class Frame(NamedTuple):
    """A frame that was read."""

    code: int
    channel: int
    fields: list[Any]

    @property
    def error(self) -> tuple[str, str]:
        """The condition and its description, of what ends something."""
        (said,) = [each for each in self.fields if isinstance(each, Described) and each.descriptor == 0x1D]
        return str(said.value[0]), str(said.value[1])


class Wire:
    """One connection, of octets."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._rest = b""
        self._socket.sendall(AMQP_HEADER)
        assert self._octets(8) == AMQP_HEADER

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def write(self, *frames: bytes) -> None:
        """Write all of it at once."""
        with suppress(OSError):  # the listener has had enough
            self._socket.sendall(b"".join(frames))

    def read(self) -> Frame | None:
        """Read the next frame that is none; None at the end."""
        while (head := self._octets(4)) and len(head) == 4:
            rest = self._octets(int.from_bytes(head, "big") - 4)
            if len(rest) > 4:
                return decoded(head + rest)
        return None

    def until(self, code: int) -> Frame:
        """Read up to the next frame of a kind."""
        seen = []
        while (found := self.read()) is not None:
            seen.append(found)
            if found.code == code:
                return found
        raise AssertionError(f"the connection ended, after {seen}")

    def rest(self) -> list[Frame]:
        """Read to the end."""
        return list(iter(self.read, None))

    def _octets(self, count: int) -> bytes:
        while len(self._rest) < count:
            octets = self._socket.recv(1 << 16)
            if not octets:
                break
            self._rest += octets
        found, self._rest = self._rest[:count], self._rest[count:]
        return found


def decoded(octets: bytes) -> Frame:
    """Read a frame; it must be a performative."""
    data = Data()
    data.decode(octets[octets[4] * 4 :])
    data.rewind()
    data.next()
    found: Any = data.get_object()
    return Frame(int(found.descriptor), int.from_bytes(octets[6:8], "big"), [own(each) for each in found.value])


def source(address: str | None = None, *more: Any) -> Described:
    """Make a source."""
    return Described(ulong(0x28), [address, *more] if address or more else [])


def target(address: str | None = None, *more: Any) -> Described:
    """Make a target."""
    return Described(ulong(0x29), [address, *more] if address or more else [])


OPENED = frame(OPEN, "me")
BEGUN = frame(BEGIN, None, uint(0), uint(100), uint(100))


def sender(name: str = "s", handle: int = 0, channel: int = 0, from_: Described | None = None) -> bytes:
    """Attach a link that messages are sent on, to a queue."""
    return frame(
        ATTACH, name, uint(handle), False, None, None, from_, target("q"), None, None, uint(0), channel=channel
    )


def receiver(name: str = "r", handle: int = 0, channel: int = 0) -> bytes:
    """Attach a link that messages come by, from a queue."""
    return frame(ATTACH, name, uint(handle), True, None, None, source("q"), target(), channel=channel)


def flow(*of_link: Any, channel: int = 0) -> bytes:
    """Write a flow; `echo` is the sixth of the link's fields."""
    return frame(FLOW, *STATE, *of_link, channel=channel)


def transfer(*fields: Any) -> bytes:
    """Write a message."""
    octets = frame(TRANSFER, *fields) + b"\x00\x53\x77\xa1\x02hi"
    return len(octets).to_bytes(4, "big") + octets[4:]


@contextmanager
def begun(port: int) -> Iterator[Wire]:
    """Connect to a listener, and begin a session."""
    with Wire(port) as connected:
        connected.write(OPENED, BEGUN)
        connected.until(BEGIN)
        yield connected
