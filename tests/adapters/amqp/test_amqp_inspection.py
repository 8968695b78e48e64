"""Transfers of the listener's clients are inspected alike, whether a pattern knows them or each field is read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from amqp_wire import BEGUN, OPENED, sender
from hypothesis import given
from hypothesis import strategies as st

from brokers.amqp.listener import inspection
from brokers.amqp.listener.inspection import AmqpChannel, FrameInspection, FrameViolation, LinkHandle
from brokers.amqp.sasl import AMQP_HEADER
from brokers.errors import ConnectionFailedError

BEGINNING = AMQP_HEADER + OPENED + BEGUN + sender("s", 0) + sender("t", 1) + sender("u", 300)
NOTHING = re.compile(b"(?!)")


class Findings:
    """Collects what is found; as at a listener, a violation outside a session ends the connection."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def violated(self, violation: FrameViolation, channel: AmqpChannel | None) -> None:
        """Note a violation."""
        self.found.append((violation, channel))
        if channel is None:
            raise ConnectionFailedError("over")

    def stolen(self, channel: AmqpChannel, attached: LinkHandle) -> None:
        """Note that a link was attached again."""
        self.found.append((channel, attached))

    def echoed(self, channel: AmqpChannel, attached: LinkHandle | None) -> None:
        """Note that the client wants to know a state."""
        self.found.append((channel, attached))


def inspected(pieces: list[bytes]) -> tuple[bytes, list[Any], dict[int, AmqpChannel]]:
    """Return what proton gets, what is found, and what is known of the sessions afterwards."""
    findings = Findings()
    inspects = FrameInspection(findings)
    passed = b""
    try:
        for piece in [BEGINNING, *pieces]:
            for each in inspects.take(piece):
                passed += each
    except ConnectionFailedError:
        passed += b"the end"
    return passed, findings.found, {number: replace(each) for number, each in inspects._channels.items()}


def both(pieces: list[bytes]) -> None:
    """Compare both ways."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inspection, "PLAIN_TRANSFER", NOTHING)
        expected = inspected(pieces)
    assert inspected(pieces) == expected


NUMBERS = st.sampled_from(
    [b"\x43", b"\x52\x00", b"\x52\x01", b"\x70\x00\x00\x00\x01", b"\x70\x00\x00\x01\x2c", b"\x40"]
)
TAGS = st.one_of(
    st.binary(max_size=40).map(lambda tag: b"\xa0" + bytes([len(tag)]) + tag),
    st.sampled_from([b"\x40", b"\xb0\x00\x00\x00\x01x", b"\xa1\x01x", b"\xa0"]),
)
FLAGS = st.sampled_from([b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
OTHERS = st.sampled_from(
    [b"\x40", b"\x41", b"\x42", b"\x50\x01", b"\x00\x53\x34\xc0\x03\x01\xa0\x00", b"\xe0\x02\x00\x40"]
)


@st.composite
def transfers(draw: st.DrawFn) -> bytes:
    """Write a transfer, mostly a good one, in any encoding."""
    fields = [draw(NUMBERS), draw(NUMBERS), draw(TAGS), draw(NUMBERS)][: draw(st.sampled_from([4, 4, 4, 4, 1, 2, 3]))]
    if len(fields) == 4:
        fields += draw(st.lists(FLAGS, max_size=2))
    if len(fields) == 6:
        fields += draw(st.lists(OTHERS, max_size=5))
    values = b"".join(fields)
    count = len(fields) + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    size = len(values) + 1 + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    short = b"\xc0" + bytes([size % 256, count])
    long = b"\xd0" + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big")
    performative = b"\x00\x53\x14" + draw(st.sampled_from([short, short, short, long])) + values
    body = performative + draw(st.sampled_from([b"\x00\x53\x75\xa0\x02hi", b"\x40\x42", b"", b"\x41" * 300]))
    channel = draw(st.sampled_from([0, 0, 0, 0, 0, 1]))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


@given(st.lists(transfers(), max_size=4), st.data())
def test_both_ways_are_one(frames: list[bytes], data: st.DataObject) -> None:
    """What proton gets, what is found and what is counted is the same, wherever the octets are cut or broken."""
    octets = bytearray(b"".join(frames))
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 2])) if octets else 0):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    at = data.draw(st.integers(0, len(octets)))
    both([bytes(octets[:at]), bytes(octets[at:])])


def test_usual_transfers_are_passed_on_in_one_piece() -> None:
    """Transfers as proton and others write them need no further look."""
    values = b"\x52\x01\x52\x07\xa0\x04abcd\x43\x42\x42"
    body = b"\x00\x53\x14\xc0" + bytes([len(values) + 1, 6]) + values + b"\x00\x53\x75\xa0\x02hi"
    frame = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body
    inspects = FrameInspection(Findings())
    list(inspects.take(BEGINNING))
    assert list(inspects.take(frame * 3)) == [frame * 3]
    assert inspects._channels[0].received == 3
