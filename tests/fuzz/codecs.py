"""Octets that our own codecs read: what comes out is what stomp.py and python-qpid-proton make of them, or nothing."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any, Final
from uuid import UUID

from amqp_values import by_proton, encoded, typed
from proton import byte, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort
from stomp.utils import parse_frame

from brokers.amqp.primitives import read_value, write_value
from brokers.stomp.codec import ESCAPES, Cutter, Frame, WholeFrame, escaped, pack, read
from brokers.stomp.heads import HeadReader, ShapedHeaders
from fuzz.row import Case, Row

NAMES: Final = ("destination", "message-id", "a", "b:c", "\\", "x\ny", "é", "\u2028", " lead", "ack", "content-length ")
PIECES: Final = (
    *("", "a", "1", ":", "\\", "\\c", "\\n", "\\\\", "\\t", "\n", "\r", "\u2028", "é", " ", "\t"),
    "x" * 300,
)


class Frames:
    """What is written is read, in any pieces, whatever version wrote it; heads are read as stomp.py reads them."""

    def make(self, chance: Random) -> Case:
        """Write some frames, or heads that have names in common, or spoil one."""
        kind = chance.randrange(3)
        if kind == 0:
            heads = self._alike(chance)
        elif kind == 1:
            heads = [self._spoilt(chance)]
        else:
            return self._stream(chance)
        return Case(sum(map(len, heads)), lambda: self._compare([WholeFrame(head, b"x") for head in heads]))

    def _stream(self, chance: Random) -> Case:
        version = chance.choice([*ESCAPES])
        frames = [self._frame(chance, version) for _ in range(chance.choice((1, 2, 5)))]
        stream = b"\n".join(pack(*each, version) for each in frames)
        cuts = sorted(chance.randrange(len(stream) + 1) for _ in range(chance.choice((0, 1, 3, 20))))
        return Case(len(stream), lambda: self._cut(stream, cuts, frames))

    def _frame(self, chance: Random, version: str) -> tuple[str, dict[str, str], bytes]:
        bare = {"1.0": "\n:\r\\", "1.1": "\r", "1.2": ""}[version]  # what it has no escape for
        headers = {self._text(chance, bare) or "n": self._text(chance, bare) for _ in range(chance.randrange(6))}
        body = chance.choice((b"", b"x", b"a\0b\n\nMESSAGE\n\n\0", chance.randbytes(40)))
        return "MESSAGE", {**headers, "content-length": str(len(body))}, body

    def _text(self, chance: Random, without: str = "") -> str:
        text = "".join(chance.choice(PIECES) for _ in range(chance.randrange(4)))
        return text.translate({ord(each): None for each in without})

    def _cut(self, stream: bytes, cuts: list[int], frames: list[tuple[str, dict[str, str], bytes]]) -> str:
        cutter, found = Cutter(), list[WholeFrame]()
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            for each in cutter.cut(stream[start:end]):
                assert isinstance(each, WholeFrame)
                found.append(each)
        assert [read(each) for each in found] == [Frame(*each) for each in frames]
        self._compare(found)
        return "cut"

    def _alike(self, chance: Random) -> list[bytes]:
        """Make heads with the same names, some of them twice, so that the later ones have the shape of the first."""
        names = chance.choices(NAMES, k=chance.randrange(1, 8))
        values = [self._text(chance, "\n\r") for _ in names]
        heads = []
        for _ in range(chance.randrange(3, 7)):
            values = [each if chance.random() < 0.6 else self._text(chance, "\n\r") for each in values]
            written = zip(escaped("MESSAGE", names, "1.1"), escaped("MESSAGE", values, "1.1"), strict=True)
            lines = (f"{name}:{value}\n" for name, value in written)
            heads.append("".join(["MESSAGE\n", *lines, "\n"]).encode())
        return heads

    def _spoilt(self, chance: Random) -> bytes:
        lines = ["MESSAGE"]
        for name in chance.choices(NAMES, k=chance.randrange(len(NAMES))):
            value = self._text(chance)
            lines.append(chance.choice((f"{name}:{value}", f"{name}:{value}", name, f":{value}")))
        octets = bytearray("\n".join([*filter(None, lines), "", ""]).encode())
        if chance.random() < 0.2:
            octets[chance.randrange(len(octets))] = chance.randrange(1, 256)
        return bytes(octets).lstrip(b"\n").partition(b"\n\n")[0].rstrip(b"\n") + b"\n\n"  # as the cutter has heads

    def _compare(self, frames: list[WholeFrame]) -> str:
        heads, became = HeadReader(), "left"
        for each in frames:
            found = heads.read(each)
            assert found == read(each), f"{each.head!r} is read otherwise by its shape"
            if found is not None:  # else it is left to stomp.py
                theirs = parse_frame(each.head + each.body)
                assert found == Frame(theirs.cmd, theirs.headers, theirs.body), (
                    f"stomp.py reads {each.head!r} otherwise"
                )
                became = "by shape" if isinstance(found.headers, ShapedHeaders) else "read"
        return became

    def look(self) -> None:
        """Nobody else is served."""


NUMBERS: Final = (
    *((kind, bits, 0) for kind, bits in ((ubyte, 8), (ushort, 16), (uint, 32), (ulong, 64))),
    *((kind, bits, -1 << bits - 1) for kind, bits in ((byte, 8), (short, 16), (int32, 32), (int, 64), (timestamp, 64))),
)
"""Types of numbers, with their bits and their lowest value."""


class Values:
    """Values of AMQP, in lists and maps too, right and spoilt."""

    def make(self, chance: Random) -> Case:
        """Encode one as proton does, and change some octets."""
        value = self._value(chance, depth=2)
        octets = bytearray(encoded(value))
        for _ in range(chance.choice((0, 0, 1, 3))):
            octets[chance.randrange(len(octets))] = chance.randrange(256)
        whole = len(octets) if chance.random() < 0.8 else chance.randrange(1, len(octets) + 1)
        cut = bytes(octets[:whole])
        return Case(len(cut), lambda: self._read(value, cut))

    def _value(self, chance: Random, depth: int) -> Any:
        if depth and chance.random() < 0.4:
            inside = [self._value(chance, 0) for _ in range(chance.choice((0, 1, 5, 300)))]
            return inside if chance.random() < 0.5 else {f"k{number}": each for number, each in enumerate(inside)}
        return chance.choice((_simple, _number))(chance)

    def _read(self, value: Any, octets: bytes) -> str:
        found = read_value(octets, 0)
        # proton cannot read maps whose keys are octets
        if found is not None and not (isinstance(found[1], dict) and any(isinstance(each, bytes) for each in found[1])):
            size, same = by_proton(octets)
            assert (found[0], typed(found[1])) == (size, typed(same)), f"proton reads {octets!r} otherwise"
        written = write_value(value)
        if written is not None:
            assert typed(by_proton(written)[1]) == typed(value), "proton reads what was written otherwise"
        return "left" if found is None else "read"

    def look(self) -> None:
        """Nobody else is served."""


def _simple(chance: Random) -> Any:
    size = chance.choice((0, 1, 127, 128, 255, 256, 300))
    texts = "é" * size, "a" * size, symbol("a" * size), chance.randbytes(size)
    return chance.choice(
        (*texts, None, True, False, 0.5, chance.random(), float32(0.25), UUID(int=chance.getrandbits(128)))
    )


def _number(chance: Random) -> Any:
    kind, bits, low = chance.choice(NUMBERS)
    high = (1 << bits) + low - 1
    edges = (low, low + 1, -129, -128, -1, 0, 1, 127, 128, 255, 256, high - 1, high, chance.randint(low, high))
    return kind(chance.choice([each for each in edges if low <= each <= high]))


STOMP: Final = Row(
    name="stomp-codec",
    holds="our codec reads frames as stomp.py does, in any pieces and by their shapes, or leaves them to it",
    opens=lambda: nullcontext(Frames()),
    cases=100_000,
    gate=2000,
)
AMQP: Final = Row(
    name="amqp-values",
    holds="our codec reads and writes values as proton does, or leaves them to it",
    opens=lambda: nullcontext(Values()),
    cases=100_000,
    gate=2000,
)
