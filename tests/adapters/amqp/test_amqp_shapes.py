"""Heads that share a shape are decoded as those are that do not."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import symbol, timestamp, ubyte, uint, ulong

from brokers.amqp.dialect import ACTIVEMQ_CLASSIC, PLAIN, AmqpDialect
from brokers.amqp.message_reader import ReceivedMessage, from_amqp_message
from brokers.amqp.sections import AmqpSection, encode, encode_data
from brokers.amqp.shapes import MAX_HEAD_OCTETS, MAX_PATTERNS, SectionShapes, leaves_of
from brokers.message import topic

SOURCE = topic("source")
IDS: list[Any] = ["ID:a-1", "ID:a-2", "ID:b-12", None, UUID(int=1), UUID(int=2), ulong(7), ulong(8), b"x", b"y"]
STATED: list[list[Any]] = [
    IDS,
    [None, b"user", b"ruse"],
    ["queue://a", "queue://b", "topic://aa", "a", ""],
    [None, "type", "epyt"],
    [None, "temp-queue://1", "temp-queue://2", "temp-topic://33"],
    IDS,
    [None, symbol("text/plain"), symbol("application/octet-stream")],
    [None],
    [None, timestamp(0), timestamp(1 << 40), timestamp(1 << 41)],
    [None, timestamp(1 << 40), timestamp(1 << 41), timestamp(-5)],
    [None, "group", "puorg"],
    [None, uint(1), uint(1 << 31)],
]
OWN: list[Any] = [
    "a",
    "b",
    "cc",
    None,
    True,
    False,
    1,
    2,
    1 << 40,
    1.5,
    ubyte(1),
    ubyte(200),
    b"x",
    b"y",
    ulong(1 << 63),
]
NAMES = ["p", "q", "SOAPJMS_requestURI", "JMSXGroupID", "JMS_AMQP_MA_x", "content-length"]
BODIES = [b"".join(encode_data(b"one")), b"".join(encode_data(b"")), encode(AmqpSection.VALUE, "text")]
BODIES += [
    encode(AmqpSection.VALUE, None),
    b"".join(encode_data(b"a") + encode_data(b"b")),
    b"",
    b"\x00\x53\x75\xa0\x09",
]
BODIES += [encode_data(b"x")[0] + b"x" + encode(AmqpSection.FOOTER, {symbol("x"): 1})]
BODIES += [b"".join(encode_data(b"x")) + encode(AmqpSection.PROPERTIES, ["ID:late"])]


def head(header: list[Any], kind: int | None, stated: list[Any], own: dict[str, Any]) -> bytes:
    """Encode the sections before a body; the maps are left out where they are empty."""
    annotations = {} if kind is None else {symbol("x-opt-jms-msg-type"): ubyte(kind)}
    return (
        encode(AmqpSection.HEADER, header)
        + (encode(AmqpSection.MESSAGE_ANNOTATIONS, annotations) if annotations else b"")
        + encode(AmqpSection.PROPERTIES, stated)
        + (encode(AmqpSection.APPLICATION_PROPERTIES, own) if own else b"")
    )


HEADERS = st.sampled_from(
    [[True, ubyte(4)], [False, ubyte(4)], [True, ubyte(9), uint(5), False, uint(2)], []]
    + [[True, ubyte(4), uint(time_to_live)] for time_to_live in (0, 5, 6, 29_999, 30_000)]
)
MESSAGES = st.lists(st.sampled_from(NAMES), unique=True, max_size=4).flatmap(
    lambda names: st.lists(
        st.builds(
            lambda header, kind, stated, own, body: (
                head(header, kind, stated, dict(zip(names, own, strict=True))) + body
            ),
            HEADERS,
            st.sampled_from([None, 3, 5]),
            st.tuples(*map(st.sampled_from, STATED)).map(list),
            st.tuples(*[st.sampled_from(OWN) for _ in names]),
            st.sampled_from(BODIES),
        ),
        min_size=1,
        max_size=8,
    )
)


RECEIVED = 1 << 40


def expected(octets: bytes) -> ReceivedMessage:
    """Decode section by section."""
    return from_amqp_message(octets, PLAIN, SOURCE, received=RECEIVED)


@given(MESSAGES)
def test_same_as_section_by_section(messages: list[bytes]) -> None:
    """Whatever came before, octets make the same message."""
    shapes = SectionShapes()
    for octets in messages * 2:
        assert from_amqp_message(octets, PLAIN, SOURCE, shapes, RECEIVED) == expected(octets)


@given(st.data())
def test_changed_octets(data: st.DataObject) -> None:
    """Nor does it matter if octets of a head are others than any encoder would write."""
    shapes, stated = SectionShapes(), ["ID:1", None, "queue://a", None, "temp-queue://1", "c1", None, None, None]
    first = head([True, ubyte(4)], 3, [*stated, timestamp(1)], {"p": "1", "q": 7})
    second = head([True, ubyte(4)], 3, ["ID:2", *stated[1:5], "c2", *stated[6:], timestamp(2)], {"p": "2", "q": 8})
    for octets in (first, second, first):
        from_amqp_message(octets + BODIES[0], PLAIN, SOURCE, shapes)
    assert shapes.match(first + BODIES[0]) is not None
    changed = bytearray(data.draw(st.sampled_from([first, second])) + BODIES[0])
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assert from_amqp_message(bytes(changed), PLAIN, SOURCE, shapes, RECEIVED) == expected(bytes(changed))


@pytest.mark.parametrize(
    "values",
    [[b"\xa1\x02\xff\xff", b"\xa1\x02aa", b"\xa1\x02bb", b"\xa1\x02\xff\xff"], [b"\x56\x00", b"\x56\x01", b"\x56\x02"]],
    ids=["no UTF-8, also at first", "a boolean that is neither true nor false"],
)
def test_values_that_no_encoder_writes(values: list[bytes]) -> None:
    """Whenever one comes, neither its own message nor one after it is read in another way."""
    shapes, name = SectionShapes(), b"\xa1\x01p"
    for value in [*values, values[1]]:
        entry = name + value
        octets = b"\x00\x53\x74\xc1" + bytes([len(entry) + 1, 2]) + entry + BODIES[0]
        assert from_amqp_message(octets, PLAIN, SOURCE, shapes, RECEIVED) == expected(octets)
    assert shapes.match(octets) is not None


@pytest.mark.parametrize(
    ("place", "values", "is_known"),
    [
        (0, ("ID:1", "ID:2"), True),
        (4, ("temp-queue://1", "temp-topic://2"), True),
        (9, (timestamp(1 << 40), timestamp(1 << 41)), True),
        (1, (b"user", b"ruse"), False),
        (6, (symbol("text/a"), symbol("text/b")), False),
        (10, ("group", "puorg"), False),
    ],
)
def test_what_may_differ(place: int, values: tuple[Any, Any], is_known: bool) -> None:
    """Ids, destinations and times are read by shapes; user, content type and group are left to the sections."""
    shapes = SectionShapes()
    stated: list[Any] = ["ID:1", b"user", "queue://a", None, "temp-queue://1", "c", symbol("text/plain")]
    stated += [None, None, timestamp(1), "group", uint(1)]
    for value in values * 2:
        octets = head([True], None, [*stated[:place], value, *stated[place + 1 :]], {"p": "1"}) + BODIES[0]
        assert from_amqp_message(octets, PLAIN, SOURCE, shapes) == expected(octets)
    known = shapes.match(octets)
    assert known is not None
    assert [leaf.key for leaf in known[0].differing] == [place]
    assert known[0].plan.works == is_known


@pytest.mark.parametrize("end", [None, timestamp(RECEIVED + 29_997)], ids=["only a time to live", "an expiry time"])
def test_a_time_to_live_that_is_counted_down(end: timestamp | None) -> None:
    """It differs from message to message; the expiration is the expiry time, or else counts from the receipt."""
    shapes, stated = SectionShapes(), ["ID:1", None, "queue://a", None, None, None, None, None, end, timestamp(1 << 39)]
    for time_to_live in (30_000, 29_999, 29_998):
        octets = head([True, ubyte(4), uint(time_to_live)], None, stated, {"p": "1"}) + BODIES[0]
        found = from_amqp_message(octets, PLAIN, SOURCE, shapes, RECEIVED)
        assert found == expected(octets)
        assert found.message.expiration == (end or RECEIVED + time_to_live)
    known = shapes.match(octets)
    assert known is not None
    assert [leaf.section for leaf in known[0].differing] == [AmqpSection.HEADER]
    assert known[0].plan.works


@pytest.mark.parametrize("dialect", [PLAIN, ACTIVEMQ_CLASSIC])
def test_each_message_has_its_own_expiry_time(dialect: AmqpDialect) -> None:
    """Beside a time to live, which is the same in all of them, as brokers write it that do both."""
    shapes = SectionShapes()
    for number in range(6):
        end, received = RECEIVED + 10_000 + number, RECEIVED + number
        stated = [f"ID:{number}", None, "queue://a", None, None, None, None, None, timestamp(end)]
        octets = head([True, ubyte(4), uint(10_000)], None, stated, {"p": "1"}) + BODIES[0]
        found = from_amqp_message(octets, dialect, SOURCE, shapes, received)
        assert found.message.expiration == end
    assert shapes.match(octets) is not None


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer whose heads have nothing in common has no more than so many patterns made, and none of long heads."""
    made = list[bytes]()
    compile_pattern = re.compile
    monkeypatch.setattr(
        "brokers.amqp.shapes.re.compile", lambda text, flags: made.append(text) or compile_pattern(text, flags)
    )
    shapes = SectionShapes()
    for number in range(8 * MAX_PATTERNS):
        own = {f"a{number % 200:03}": "x", "b": f"{number // 600}", "c": f"{number // 400}"}
        shapes.learn(head([], None, [f"ID:{number:05}"], own) + BODIES[0])
    assert len(made) == MAX_PATTERNS
    for number in range(10):
        shapes.learn(head([], None, [f"ID:{number}"], {"p": "x" * MAX_HEAD_OCTETS}) + BODIES[0])
    assert len(made) == MAX_PATTERNS


def test_what_is_not_read_by_shapes_uses_none_up() -> None:
    """Thousands of messages whose users differ leave the shapes of others to be learned."""
    shapes = SectionShapes()
    for number in range(2 * MAX_PATTERNS):
        octets = head([], None, ["ID:1", b"%05d" % number, "queue://a"], {}) + BODIES[0]
        assert from_amqp_message(octets, PLAIN, SOURCE, shapes) == expected(octets)
    octets = head([], None, ["ID:1", None, "queue://a"], {"p": "1"}) + BODIES[0]
    for _ in range(2):
        from_amqp_message(octets, PLAIN, SOURCE, shapes)
    assert shapes.match(octets) is not None


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        head([], None, ["ID:1"], {}),
        head([], None, ["ID:1"], {})[:-1] + BODIES[0],
        head([], None, ["ID:1"], {"p": "1"}) * 2 + BODIES[0],
        encode(AmqpSection.APPLICATION_PROPERTIES, {"p": [1]}) + BODIES[0],
    ],
)
def test_no_plain_head(octets: bytes) -> None:
    """Heads that are cut off, repeated or nested have no values to compare."""
    with pytest.raises((LookupError, ValueError)):
        leaves_of(octets)
