"""Lists and maps that are read and written without proton: as it would have done, or not at all."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import pytest
from amqp_values import by_proton, encoded, typed
from hypothesis import given
from hypothesis import strategies as st
from proton import Described, byte, char, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort

from brokers.amqp.primitives import MAX_VALUES, read_value, write_value
from brokers.amqp.sections import AmqpSection, MalformedError, decode, encode

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SYMBOLS: Final = st.text(st.characters(max_codepoint=127), max_size=300).map(symbol)
PRIMITIVES: Final = st.one_of(
    st.none(),
    st.booleans(),
    TEXTS,
    SYMBOLS,
    st.binary(max_size=300),
    st.uuids(),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(float32),
    *(
        st.integers(-(1 << bits - 1), (1 << bits - 1) - 1).map(kind)
        for bits, kind in ((8, byte), (16, short), (32, int32), (64, int), (64, timestamp))
    ),
    *(st.integers(0, (1 << bits) - 1).map(kind) for bits, kind in ((8, ubyte), (16, ushort), (32, uint), (64, ulong))),
)
KEYS: Final = st.one_of(TEXTS, SYMBOLS)
COMPOUNDS: Final = st.one_of(st.lists(PRIMITIVES), st.dictionaries(KEYS, PRIMITIVES))
OTHERS: Final = st.one_of(st.characters(exclude_categories=["Cs"]).map(char), st.lists(COMPOUNDS, min_size=1))


@given(st.one_of(PRIMITIVES, COMPOUNDS), st.binary(max_size=3), st.binary(max_size=3))
def test_as_proton(value: Any, before: bytes, after: bytes) -> None:
    """Whatever it stands among: the same value, with the same types, and where it ends."""
    octets = encoded(value)
    found = read_value(before + octets + after, len(before))
    assert found is not None
    assert found[0] == len(before) + len(octets)
    assert typed(found[1]) == typed(by_proton(octets)[1])
    assert typed(read_value(bytearray(octets), 0)) == typed(read_value(octets, 0))


@given(st.one_of(PRIMITIVES, COMPOUNDS), st.data())
def test_broken_is_left_to_proton(value: Any, data: st.DataObject) -> None:
    """With octets that are cut off or changed it is read as proton does, or not at all."""
    octets = bytearray(encoded(value))
    for _ in range(data.draw(st.integers(0, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(octets[: data.draw(st.integers(1, len(octets)))])
    found = read_value(cut, 0)
    if found is not None:
        size, same = by_proton(cut)
        assert (found[0], typed(found[1])) == (size, typed(same))


@given(st.one_of(PRIMITIVES, COMPOUNDS))
def test_written_for_proton(value: Any) -> None:
    """proton reads the same value, with the same types."""
    octets = write_value(value)
    assert octets is not None
    size, same = by_proton(octets)
    assert (size, typed(same)) == (len(octets), typed(value))


@given(OTHERS)
def test_what_is_not_read(value: Any) -> None:
    """What is nested, and characters."""
    assert read_value(encoded(value), 0) is None
    assert write_value(value) is None


@pytest.mark.parametrize(
    "value", ["\ud800", ["\ud800"], {"\udfff": 1}, 1 << 63, [-1 << 70], symbol("\xe9"), [None] * 1001]
)
def test_what_is_not_written(value: Any) -> None:
    """Text that UTF-8 cannot encode, too large numbers, symbols that are not ASCII, and lists that are too long."""
    assert write_value(value) is None


def test_too_many() -> None:
    """So long a list is for proton, which has a limit."""
    assert read_value(encoded([None] * MAX_VALUES), 0) is not None
    assert read_value(encoded([None] * (MAX_VALUES + 1)), 0) is None


@pytest.mark.parametrize(
    "octets",
    [
        b"\xc1\x06\x03\xa1\x01a\x41\x40",  # a map of three values
        b"\xc0\x03\x01\x40\x40",  # a list that goes on after its values
        b"\xc0\x01\x01\x40",  # or ends before them
        b"\x56\x02",
        b"\xa1\x02\xc3(",
        b"\xa3\x01\xc3",
        b"\x98\x00",
        b"\x72\x00",
        b"\xa1",
        b"\xd0\x00\x00",
        b"\x00\x53\x70\x45",
        b"\x00",
    ],
)
def test_what_is_not_right(octets: bytes) -> None:
    """It is left to proton."""
    assert read_value(octets, 0) is None


def test_sections_either_way() -> None:
    """A message has the same sections whether its descriptors, and so what follows them, are read here or by proton."""
    value = {symbol("a"): ubyte(1), symbol("b"): UUID(int=5), symbol("c"): "Zoë"}
    short_form = encode(AmqpSection.MESSAGE_ANNOTATIONS, value) + encode(AmqpSection.VALUE, "body")
    long_form = b"".join(
        b"\x00\x80" + section.to_bytes(8, "big") + encoded(each)
        for section, each in ((AmqpSection.MESSAGE_ANNOTATIONS, value), (AmqpSection.VALUE, "body"))
    )
    for octets in (short_form, long_form):
        found = list(decode(octets))
        assert [(each.section, each.value) for each in found] == [
            (AmqpSection.MESSAGE_ANNOTATIONS, value),
            (AmqpSection.VALUE, "body"),
        ]
        assert b"".join(each.octets for each in found) == octets
    nested = encode(AmqpSection.VALUE, [["a"], Described(ulong(5), "b")])
    assert [each.value for each in decode(nested)] == [[["a"], Described(ulong(5), "b")]]
    with pytest.raises(MalformedError):
        list(decode(short_form[:-1]))
