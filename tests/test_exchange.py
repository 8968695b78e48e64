"""From records to exchanges: copies merge, responses find their request, nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.message import Destination, DestinationKind, Message, MessageType, properties, queue
from soapjms.protocol.exchange import (
    Exchange,
    Pattern,
    alias,
    correlation_key,
    merge,
    pair,
    record_hash,
    same_message,
)
from soapjms.protocol.record import Direction, Node, Record, body_digest, from_json, to_json

START = datetime(2026, 1, 1, tzinfo=UTC)
REPLIES = Destination(DestinationKind.TEMPORARY_QUEUE, "replies")
NAMELESS = Destination(DestinationKind.TEMPORARY_QUEUE, None)


def record(
    second: float = 0, direction: str | None = None, node: str | None = None, body: Any = b"<a/>", **options: Any
) -> Record:
    """Capture a message `second` seconds after the start; options are the message's and the record's."""
    kind = options.pop("message_type", MessageType.TEXT if isinstance(body, str) else MessageType.BYTES)
    of_record = {name: options.pop(name) for name in ("truncated", "sha256", "meta", "extra") if name in options}
    return Record(
        message=Message(message_type=kind, body=body, **options),
        time=START + timedelta(seconds=second),
        direction=Direction(direction) if direction else None,
        node=Node(node) if node else None,
        **of_record,
    )


def request(second: float = 0, **options: Any) -> Record:
    """Capture a request without direction."""
    return record(
        second,
        **{"message_id": "m1", "correlation_id": "c1", "reply_to": REPLIES, "destination": queue("in"), **options},
    )


def response(second: float = 1, **options: Any) -> Record:
    """Capture a response without direction."""
    return record(
        second, **{"message_id": "a1", "correlation_id": "c1", "destination": REPLIES, "body": b"<b/>", **options}
    )


def exchanges(records: Iterable[Record], window: timedelta = timedelta(minutes=10)) -> list[Exchange]:
    """Sort records by key and time as an engine does, and pair those of each key."""
    log = list(records)
    aliases = dict(filter(None, map(alias, log)))
    by_key: dict[str, list[Record]] = {}
    for each in sorted(log, key=lambda one: one.time):
        by_key.setdefault(correlation_key(each, aliases), []).append(each)
    found = [exchange for together in by_key.values() for exchange in pair(together, window)]
    assert sum(exchange.records for exchange in found) == len(log)
    return sorted(found, key=lambda exchange: exchange.messages[0].time)


def shape(found: Iterable[Exchange]) -> list[tuple[str, bool, bool, int]]:
    """Return pattern, which halves there are, and the number of records of each exchange."""
    return [(each.pattern.value, each.request is not None, each.response is not None, each.records) for each in found]


PAIRED = "request-response"
FAULT_FLAG = properties({"SOAPJMS_isFault": True})

# Pairing


def test_a_call() -> None:
    """A request and its response are one exchange, named by the request's message id."""
    (found,) = exchanges([request(), response()])
    assert (found.id, found.pattern, found.records, found.unpaired) == ("m1", Pattern.REQUEST_RESPONSE, 2, False)
    assert [each.message.message_id for each in found.messages] == ["m1", "a1"]


@pytest.mark.parametrize("answered_by", ["m1", "c1"])
@pytest.mark.parametrize("direction", [True, False])
def test_either_id_pairs(answered_by: str, direction: bool) -> None:
    """A response may repeat the request's JMSCorrelationID or its JMSMessageID: which is right is not for pairing."""
    sent, came = request(), response(correlation_id=answered_by)
    if direction:
        sent, came = replace(sent, direction=Direction.REQUEST), replace(came, direction=Direction.RESPONSE)
    assert shape(exchanges([came, sent])) == [(PAIRED, True, True, 2)]


def test_response_to_another_destination() -> None:
    """Where both are known, the response's destination has to be the request's JMSReplyTo."""
    assert len(exchanges([request(), response(destination=queue("elsewhere"))])) == 2
    assert len(exchanges([request(), response(destination=None)])) == 1
    assert len(exchanges([request(), response(destination=NAMELESS)])) == 1
    assert len(exchanges([request(reply_to=NAMELESS), response()])) == 1
    assert len(exchanges([request(reply_to=None, direction="request"), response()])) == 1


def test_two_responses() -> None:
    """Of two responses the nearest in time is the request's; the other one has no request."""
    found = exchanges([request(), response(5, message_id="a2"), response(1)])
    assert shape(found) == [(PAIRED, True, True, 2), ("response without request", False, True, 1)]
    assert found[0].response is not None
    assert found[0].response.message.message_id == "a1"
    assert found[1].unpaired


def test_two_responses_at_the_same_time() -> None:
    """Of two that are equally near the ids decide, so that every order of the log gives the same."""
    one, other = response(1, message_id="a1"), response(1, message_id="a2")
    for log in ([request(), one, other], [request(), other, one]):
        found = exchanges(log)
        assert found[0].response is not None
        assert found[0].response.message.message_id == "a1"


def test_missing_response() -> None:
    """A request that nobody answered is an exchange without response."""
    (found,) = exchanges([request()])
    assert (found.pattern, found.response, found.unpaired) == (Pattern.REQUEST_RESPONSE, None, True)


@pytest.mark.parametrize(
    "options",
    [{"direction": "response"}, {"correlation_id": "c9"}, {"correlation_id": None, "properties": FAULT_FLAG}],
)  # fmt: skip
def test_response_without_request(options: dict[str, Any]) -> None:
    """A response is known by its direction, else by a correlation id or isFault without a reply destination."""
    (found,) = exchanges([response(**options)])
    assert (found.pattern, found.request, found.unpaired) == (Pattern.RESPONSE_ONLY, None, True)


@pytest.mark.parametrize(
    ("captured", "pattern"),
    [
        (record(message_id="m1"), Pattern.ONE_WAY),
        (record(message_id="m1", direction="one-way", correlation_id="c"), Pattern.ONE_WAY),
        (record(message_id="m1", direction="one-way", reply_to=REPLIES), Pattern.ONE_WAY),
        (record(message_id="m1", direction="request"), Pattern.REQUEST_RESPONSE),
        (record(message_id="m1", reply_to=REPLIES), Pattern.REQUEST_RESPONSE),
    ],
)
def test_what_a_message_alone_is(captured: Record, pattern: Pattern) -> None:
    """Its direction says so; else a reply destination makes a request, and nothing at all a one-way message."""
    (found,) = exchanges([captured])
    assert (found.pattern, found.request, found.response) == (pattern, captured, None)
    assert found.unpaired is (pattern is Pattern.REQUEST_RESPONSE)


def test_one_way_messages_are_not_answered() -> None:
    """A message known to be one-way takes no response, though the ids would fit."""
    sent = record(direction="one-way", message_id="m1", correlation_id="c1")
    assert shape(exchanges([sent, response()])) == [
        ("one-way", True, False, 1),
        ("response without request", False, True, 1),
    ]


def test_an_echo_with_identical_bodies() -> None:
    """An echo service's response has its request's body and correlation id; without directions it is still a pair."""
    for message_id in ("a1", None):
        found = exchanges([request(message_id=None), response(body=b"<a/>", message_id=message_id)])
        assert shape(found) == [(PAIRED, True, True, 2)]


def test_retries_with_the_same_correlation_id() -> None:
    """Two requests that share a correlation id get the response that is nearest to each."""
    found = exchanges(
        [
            request(0), response(1),
            request(60, message_id="m2"), response(61, message_id="a2"),
        ]
    )  # fmt: skip
    assert [(each.messages[0].message.message_id, each.messages[1].message.message_id) for each in found] == [
        ("m1", "a1"),
        ("m2", "a2"),
    ]


@pytest.mark.parametrize("destination", [queue("in"), None])
def test_a_retry_is_no_answer(destination: Destination | None) -> None:
    """The same request sent again, without direction, does not answer the first."""
    log = [request(0, destination=destination), request(1, destination=destination, message_id="m2", body=b"<c/>")]
    assert shape(exchanges(log)) == [(PAIRED, True, False, 1)] * 2


def test_a_chain_of_requests() -> None:
    """A response that wants an answer itself is the first request's response, and is not counted twice."""
    middle = response(1, reply_to=queue("more"))
    found = exchanges([request(), middle, record(2, message_id="z", correlation_id="c1", destination=queue("more"))])
    assert sum(each.records for each in found) == 3
    assert found[0].response == middle


def test_late_responses() -> None:
    """A response outside of the window has no request; a silence of that length ends the stretch."""
    window = timedelta(seconds=10)
    assert shape(exchanges([request(), response(10)], window)) == [(PAIRED, True, True, 2)]
    assert [each.unpaired for each in exchanges([request(), response(10.001)], window)] == [True, True]
    busy = [record(at, message_id=f"x{at}", correlation_id="c1", direction="one-way") for at in (5, 10, 15)]
    assert [each.unpaired for each in exchanges([request(), *busy, response(20)], window)] == [
        True,
        False,
        False,
        False,
        True,
    ]


def test_a_response_that_was_captured_first() -> None:
    """Clocks differ: a response may carry an earlier time than its request."""
    assert shape(exchanges([response(-1), request()])) == [(PAIRED, True, True, 2)]


def test_exchanges_come_out_as_soon_as_their_stretch_ends() -> None:
    """A key that recurs for weeks needs the memory of one stretch only."""
    consumed = 0

    def log() -> Iterable[Record]:
        nonlocal consumed
        for week in range(3):
            for each in (
                request(week * 604_800, message_id=f"m{week}"),
                response(week * 604_800 + 1, message_id=f"a{week}"),
            ):
                consumed += 1
                yield each

    found = pair(log())
    assert next(iter(found)).id == "m0"
    assert consumed == 3
    assert [each.id for each in found] == ["m1", "m2"]


def test_a_correlation_id_that_never_changes() -> None:
    """Thousands of calls under one correlation id, answered by message id, are paired in linear time."""
    log = [
        each
        for number in range(4000)
        for each in (
            request(number, message_id=f"m{number}"),
            response(number + 0.5, message_id=f"a{number}", correlation_id=f"m{number}"),
        )
    ]
    found = exchanges(log, timedelta(days=1))
    assert all(each.response and each.response.message.correlation_id == each.id for each in found)
    assert len(found) == 4000


# Copies


def test_a_call_that_everybody_saw() -> None:
    """Client (no message ids over STOMP), tap and service saw one call: two messages, six records."""
    call = [
        record(0, "request", "requesting", correlation_id="c1", reply_to=NAMELESS, destination=queue("in")),
        request(0.1, node="tap"),
        request(0.2, direction="request", node="responding"),
        record(0.3, "response", "responding", b"<b/>", correlation_id="c1", destination=REPLIES),
        response(0.4, node="tap"),
        record(0.5, "response", "requesting", b"<b/>", message_id="a1", correlation_id="c1", destination=NAMELESS),
    ]
    (found,) = exchanges(call)
    assert found.records == 6
    assert found.id == "m1"
    assert found.request is not None
    assert found.request.message.reply_to == REPLIES
    assert found.response is not None
    assert (found.response.message.message_id, found.response.message.destination) == ("a1", REPLIES)


def test_redelivery() -> None:
    """A redelivered message is a copy: known by its message id, and marked."""
    (found,) = exchanges([request(redelivered=False), request(30, redelivered=True), response(31)])
    assert found.records == 3
    assert found.request is not None
    assert found.request.message.redelivered is True


def test_copies_outside_the_window() -> None:
    """The same message id a day later is another message."""
    log = [request(0), request(86_400)]
    assert len(exchanges(log)) == 2
    busy = [record(at, message_id=f"x{at}", correlation_id="c1", direction="one-way") for at in (5, 10, 15)]
    assert len(exchanges([request(0), *busy, request(16)], timedelta(seconds=10))) == 5


def test_a_copy_without_id_joins_the_nearest() -> None:
    """Where several messages share correlation id and body, a copy without message id belongs to the nearest."""
    log = [request(0), request(60, message_id="m2"), request(60.1, message_id=None)]
    assert [(each.id, each.records) for each in exchanges(log)] == [("m1", 1), ("m2", 2)]
    log = [request(0, message_id=None), request(0.1), request(60, message_id="m2")]
    assert [(each.id, each.records) for each in exchanges(log)] == [("m1", 2), ("m2", 1)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (request(), request(5, correlation_id="other", body=b"<x/>"), True),
        (request(), request(message_id="m2"), False),
        (request(message_id=None), request(), True),
        (request(message_id=None), request(body="<a/>"), True),
        (request(message_id=None), request(body=b"<b/>"), False),
        (request(message_id=None), request(correlation_id="c2"), False),
        (request(message_id=None, correlation_id=None), request(correlation_id=None), False),
        (request(message_id=None), response(body=b"<a/>"), False),
        (request(message_id=None, direction="request"), request(direction="response"), False),
        (response(message_id=None, direction="response"), response(direction="one-way"), False),
        (response(message_id=None, direction="response"), response(), True),
        (request(message_id=None, body=b"<", truncated=True), request(), False),
        (request(message_id=None, body=b"<", truncated=True, sha256=body_digest(b"<a/>")), request(), True),
        (request(message_id=None, sha256=str(body_digest(b"<a/>")).upper()), request(), True),
        (request(message_id=None, body=properties({"a": 1})), request(body=properties({"a": 1})), True),
        (request(message_id=None, body=properties({"a": 1})), request(body=properties({"a": 2})), False),
    ],
)
def test_copies_of_one_message(one: Record, other: Record, same: bool) -> None:
    """By message id where both know it, else by direction, correlation id and body, of whatever type."""
    assert same_message(one, other) is same
    assert same_message(other, one) is same


def test_merging_completes_the_earlier_copy() -> None:
    """What the earlier copy does not know, the later one may; what both know is the earlier's."""
    first = record(
        1,
        None,
        None,
        b"<a",
        truncated=True,
        correlation_id="c1",
        untyped=True,
        priority=4,
        redelivered=False,
        properties=properties({"p": "1"}),
        destination=NAMELESS,
        meta={"host": "a"},
        extra={"x": 1},
    )
    second = record(
        2, "request", "tap", correlation_id="c2", message_id="m1", priority=9, timestamp=5, type="t",
        properties=properties({"p": 1}), destination=queue("in"), reply_to=REPLIES, sha256="ab",
        meta={"host": "b", "release": "1"}, extra={"x": 2, "y": 2},
    )  # fmt: skip
    merged = merge(first, second)
    assert merged == merge(second, first)
    assert merged == Record(
        message=Message(
            message_type=MessageType.BYTES, body=b"<a/>", properties=properties({"p": 1}), destination=queue("in"),
            message_id="m1", correlation_id="c1", reply_to=REPLIES, priority=4, timestamp=5, type="t",
            redelivered=False,
        ),
        time=first.time, direction=Direction.REQUEST, node=Node.TAP, sha256="ab",
        meta={"host": "a", "release": "1"}, extra={"x": 1, "y": 2},
    )  # fmt: skip


UNTYPED = record(0, message_id="m", untyped=True, properties=properties({"p": "1"}))
TYPED = record(0, message_id="m", properties=properties({"p": 1}))
UNKNOWN = record(0, message_id="m", body=b"t", message_type=MessageType.UNKNOWN)
TEXT = record(0, message_id="m", body="t")
CUT = record(0, message_id="m", body="", truncated=True)
MAP = record(0, message_id="m", body=None, message_type=MessageType.MAP)
EMPTY_UNKNOWN = record(0, message_id="m", body=None, message_type=MessageType.UNKNOWN)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (UNTYPED, TYPED, TYPED),
        (UNKNOWN, TEXT, TEXT),
        (CUT, TEXT, TEXT),
        (MAP, EMPTY_UNKNOWN, MAP),
    ],
)
@pytest.mark.parametrize("seconds", [-1, 1])
def test_the_better_copy(one: Record, other: Record, expected: Record, seconds: int) -> None:
    """Typed properties win over untyped, a whole body over a cut one, a known message type over an unknown one."""
    later = replace(other, time=other.time + timedelta(seconds=seconds))
    for merged in (merge(one, later), merge(later, one)):
        assert merged.message == expected.message
        assert merged.truncated is False


@pytest.mark.parametrize(
    ("known", "body", "expected"),
    [
        (MessageType.BYTES, b"<a/>", (MessageType.BYTES, b"<a/>")),
        (MessageType.TEXT, "ä".encode(), (MessageType.TEXT, "ä")),
        (MessageType.TEXT, b"\xff", (MessageType.UNKNOWN, b"\xff")),
        (MessageType.MAP, properties({"a": 1}), (MessageType.MAP, properties({"a": 1}))),
        (MessageType.MAP, b"<a/>", (MessageType.UNKNOWN, b"<a/>")),
        (MessageType.MESSAGE, b"<a/>", (MessageType.UNKNOWN, b"<a/>")),
        (MessageType.MESSAGE, None, (MessageType.MESSAGE, None)),
    ],
)
def test_a_body_whose_type_another_copy_knew(known: MessageType, body: Any, expected: tuple[MessageType, Any]) -> None:
    """The whole body is read as the type that one copy knew, and stays unknown where it is no such body."""
    cut = record(0, message_id="m", body=None, message_type=known, truncated=True)
    whole = record(1, message_id="m", body=body, message_type=MessageType.UNKNOWN)
    for merged in (merge(cut, whole), merge(whole, cut)):
        assert (merged.message.message_type, merged.message.body) == expected
        assert merged.truncated is False


def test_an_empty_id_is_none() -> None:
    """A copy with an empty message id does not know it."""
    for first, second in ((0, 1), (1, 0)):
        assert merge(request(first, message_id=""), request(second)).message.message_id == "m1"


def test_copies_that_contradict_each_other() -> None:
    """Type and body come from one copy, so that they fit."""
    log = [record(0, message_id="m", body=None), record(1, message_id="m", body="t")]
    for merged in (merge(*log), merge(*reversed(log))):
        assert (merged.message.message_type, merged.message.body) == (MessageType.TEXT, "t")


@pytest.mark.parametrize(
    ("one", "other", "redelivered"),
    [(None, None, None), (False, None, False), (None, False, False), (True, None, True), (False, True, True)],
)
def test_redelivered_is_known_by_any_copy(one: bool | None, other: bool | None, redelivered: bool | None) -> None:
    """A message that any copy shows as redelivered was redelivered."""
    assert merge(request(redelivered=one), request(1, redelivered=other)).message.redelivered is redelivered


# Keys


def test_keys_bring_copies_and_partners_together() -> None:
    """The key of every copy and of either kind of response is the request's correlation id, else its message id."""
    aliases = dict(filter(None, map(alias, [request()])))
    assert aliases == {"m1": "c1"}
    for each in (request(), request(message_id=None), response(), response(correlation_id="m1")):
        assert correlation_key(each, aliases) == "c1"
    assert (
        correlation_key(request(correlation_id=None), {}) == correlation_key(response(correlation_id="m1"), {}) == "m1"
    )
    assert correlation_key(record(message_id="x"), {}) == "x"
    assert correlation_key(record(), {}) == record_hash(record())
    assert record_hash(record()) != record_hash(record(1))


@pytest.mark.parametrize(
    "captured",
    [
        response(),
        record(message_id="m"),
        request(correlation_id=None),
        request(message_id=None),
        request(direction="response"),
    ],
)
def test_only_requests_with_both_ids_have_an_alias(captured: Record) -> None:
    """A response that names a message id can only mean a request's."""
    assert alias(captured) is None


def test_an_exchange_without_ids() -> None:
    """A message without any id is named by a hash of its record."""
    (found,) = exchanges([record(body=None, message_type=MessageType.MESSAGE)])
    assert len(found.id) == 64
    (found,) = exchanges([record(correlation_id="c", reply_to=REPLIES)])
    assert found.id == "c"


# Every record, once


def messages() -> st.SearchStrategy[Record]:
    """Draw a record of a small world, in which ids, bodies and destinations often coincide."""
    few = st.sampled_from
    return st.builds(
        record,
        second=few([0, 0, 0, 1, 700]),
        direction=few([None, None, *Direction]),
        body=few([b"<a/>", "<a/>", b"<b/>", None]),
        message_id=few([None, "m1", "m2", ""]),
        correlation_id=few([None, "c1", "m1", "m2", ""]),
        reply_to=few([None, REPLIES, NAMELESS, queue("in")]),
        destination=few([None, REPLIES, queue("in")]),
        truncated=st.booleans(),
    )


@given(st.lists(messages(), max_size=7), st.randoms(use_true_random=False))
def test_every_record_ends_in_one_exchange(log: list[Record], random: Any) -> None:
    """Nothing is dropped and nothing counted twice, in whatever order records of the same time come."""
    for _ in range(2):
        random.shuffle(log)
        found = exchanges(log)  # which asserts that the records add up
        seen = Counter(each.message.message_id for exchange in found for each in exchange.messages)
        captured = Counter(each.message.message_id for each in log)
        assert all(seen[name] <= captured[name] for name in seen if name)
        assert set(filter(None, captured)) <= set(seen)
        for exchange in found:
            assert exchange.messages
            assert all(from_json(to_json(each)) == each for each in exchange.messages)


@given(st.lists(messages().map(lambda each: replace(each, time=START)), max_size=6), st.randoms(use_true_random=False))
def test_order_within_a_moment_does_not_matter(log: list[Record], random: Any) -> None:
    """Records of the same time that all know their message id give the same exchanges in every order."""
    named = [replace(each, message=replace(each.message, message_id=f"n{index}")) for index, each in enumerate(log)]
    first = {(each.id, each.pattern, each.messages) for each in map(frozen, exchanges(named))}
    random.shuffle(named)
    assert {(each.id, each.pattern, each.messages) for each in map(frozen, exchanges(named))} == first


def frozen(exchange: Exchange) -> Exchange:
    """Return the exchange with its messages in a form that can be hashed."""

    def text(each: Record | None) -> Any:
        return None if each is None else to_json(each)

    return replace(exchange, request=text(exchange.request), response=text(exchange.response))
