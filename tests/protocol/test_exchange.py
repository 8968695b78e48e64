"""From records to exchanges: copies merge, responses find their request, nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.message import Destination, DestinationKind, Message, MessageType, properties, queue
from soapjms.protocol.exchange import (
    Exchange,
    Keys,
    Pattern,
    exchanges_of,
    keyed,
    keys,
    merge,
    pair,
    pairs,
    record_hash,
    settled,
    stream,
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
    """Pair a log; no record is lost. In order of time, late copies last."""
    log = list(records)
    found = list(exchanges_of(log, window))
    assert sum(exchange.records for exchange in found) == len(log)
    return sorted(found, key=lambda exchange: exchange.messages[0].time if exchange.messages else LAST)


LAST = datetime(9999, 1, 1, tzinfo=UTC)


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


def test_a_misdirected_response() -> None:
    """One that only came to another destination is not paired, and both say why they are alone."""
    away = response(message_id="a2", destination=queue("elsewhere"))
    assert [(each.unpaired, each.misdirected) for each in exchanges([request(), away])] == [(True, True)] * 2
    assert [each.misdirected for each in exchanges([request(), response(), away])] == [False, False]
    assert [each.misdirected for each in exchanges([request(), replace(away, time=START + timedelta(hours=1))])] == [
        False,
        False,
    ]
    assert [each.misdirected for each in exchanges([record(direction="one-way", correlation_id="c1"), away])] == [
        False,
        False,
    ]


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
    assert [each.unpaired for each in exchanges([request(), *busy(5, 10, 15), response(20)], window)] == [
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


LATE = "late copy"


def busy(*seconds: float) -> list[Record]:
    """Capture one-way messages of the same correlation id, so that there is no silence."""
    return [record(at, message_id=f"x{at}", correlation_id="c1", direction="one-way") for at in seconds]


def test_copies_outside_the_window() -> None:
    """A message id is a message's for ever: however late a copy comes, it is no new message."""
    assert shape(exchanges([request(0), request(86_400, redelivered=True)])) == [(PAIRED, True, False, 2)]
    window = timedelta(seconds=10)
    found = exchanges([request(0), *busy(5, 10, 15), request(16)], window)
    assert [each.records for each in found] == [2, 1, 1, 1]
    assert shape(exchanges([request(0, message_id=None), *busy(5, 10, 15), request(16)], window))[0][3] == 1


def test_a_late_copy_of_an_answered_request() -> None:
    """After a silence the exchange was given out; its late copies are counted, one by one, and are no messages."""
    log = [request(), response(), request(900, redelivered=True), response(900), request(5000)]
    found = exchanges(log)
    assert shape(found) == [(PAIRED, True, True, 2)] + [(LATE, False, False, 1)] * 3
    assert [(each.id, each.messages, each.unpaired) for each in found[1:]] == [
        ("m1", (), False),
        ("a1", (), False),
        ("m1", (), False),
    ]


@pytest.mark.parametrize("between", [[], [5, 600, 1200]])
def test_a_late_redelivery_that_is_answered(between: list[float]) -> None:
    """A request that waits long for its second delivery is one request, and the answer to that is its response."""
    (found, *others) = exchanges([request(), *busy(*between), request(1500, redelivered=True), response(1501)])
    assert shape([found]) == [(PAIRED, True, True, 3)]
    assert found.request is not None
    assert found.request.message.redelivered is True
    assert found.request.time == START
    assert len(others) == len(between)


def test_a_late_redelivery_that_is_answered_late() -> None:
    """The window counts from the delivery that is nearest to the answer."""
    assert [each.unpaired for each in exchanges([request(), request(1500), response(2200)])] == [True, True]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest ids and the latest unanswered requests are remembered; a copy of an older one is a new message."""
    monkeypatch.setattr(stream, "MAX_KNOWN_MESSAGES", 2)
    monkeypatch.setattr(stream, "MAX_KEPT_REQUESTS", 2)
    for log, expected in (
        ([each for at in (0, 1000, 2000) for each in busy(at)], [("x0", 1), ("x1000", 1), ("x2000", 1), ("x0", 1)]),
        (
            [request(1000 * at, message_id=f"m{at}", body=b"%d" % at) for at in range(3)],
            [("m0", 1), ("m1", 2), ("m2", 2)],
        ),
    ):
        again = [replace(each, time=START + timedelta(hours=9)) for each in log]
        found = exchanges([*log, *again])
        assert [(each.id, each.records) for each in found if each.messages] == expected
        late = [each.id for each in found if not each.messages]
        assert late == (["x1000", "x2000"] if expected[0][0] == "x0" else ["m0"])


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
    for first, second in ((one, other), (other, one)):
        found = pair([first, replace(second, time=first.time)])
        assert (sum(len(each.messages) for each in found) == 1) is same


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
    assert keys(request()) == Keys("c1", announces="m1")
    assert keys(request(message_id=None)) == Keys("c1")
    assert keys(response()) == Keys("c1", by_alias=True)
    assert keys(response(correlation_id="m1")) == Keys("m1", by_alias=True)
    assert keys(request(correlation_id=None)) == Keys("m1")
    assert keys(record(message_id="x")) == Keys("x")
    assert keys(record()) == Keys(record_hash(record()))
    assert record_hash(record()) != record_hash(record(1))


@pytest.mark.parametrize(
    "captured",
    [
        response(),
        record(message_id="m"),
        request(correlation_id=None),
        request(message_id=None),
        request(correlation_id="m1"),
        request(direction="response"),
    ],
)
def test_only_requests_with_both_ids_have_an_alias(captured: Record) -> None:
    """A response that names a message id can only mean a request's."""
    assert keys(captured).announces is None


def test_an_id_that_several_requests_announce() -> None:
    """The smallest key counts, in whatever order they come."""
    log = [request(correlation_id="c2"), request(correlation_id="c1"), response(correlation_id="m1")]
    for each in (log, log[::-1]):
        assert [found.records for found in exchanges_of(each)] == [2, 1]


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
            assert bool(exchange.messages) is (exchange.pattern is not Pattern.LATE_COPY)
            assert all(from_json(to_json(each)) == each for each in exchange.messages)


# The definition

WINDOW = timedelta(seconds=10)
LONG_WINDOW = timedelta(minutes=10)


def mark(each: Record) -> tuple[Any, ...] | None:
    """Return what the copies of a message share where one lacks the message id."""
    body = each.message.body
    if not each.message.correlation_id or (each.truncated and each.sha256 is None):
        return None
    digest = (each.sha256 or "").lower() or body_digest(body) or repr(body)
    return each.message.correlation_id, asks(each), digest


def asks(each: Record) -> bool:
    """Say whether a record may be a request."""
    return each.direction is Direction.REQUEST or (each.direction is None and each.message.reply_to is not None)


def same_message(one: Record, other: Record) -> bool:
    """Say whether two records show the same message: by message id, else by direction, correlation id and body."""
    first, second = one.message, other.message
    if first.message_id and second.message_id:
        return first.message_id == second.message_id
    if one.direction is not None and other.direction is not None and one.direction is not other.direction:
        return False
    return mark(one) is not None and mark(one) == mark(other)


@dataclass
class Defined:
    """A message as the definition has it."""

    number: int
    record: Record
    mark: Any
    records: int = 1
    times: list[datetime] = field(default_factory=list)
    partner: Defined | None = None
    answers: bool = False
    misdirected: bool = False

    def shows(self, each: Record) -> bool:
        """Say whether a record is a copy of this."""
        ours, theirs = self.record.message.message_id, each.message.message_id
        if ours and theirs:
            return ours == theirs
        directions = {self.record.direction, each.direction} - {None}
        fits = self.mark is not None and self.mark == mark(each) and len(directions) < 2
        return fits and each.time - self.record.time <= WINDOW


def merged(log: list[Record]) -> list[Defined]:
    """Merge copies: by message id first, else with the latest."""
    found: list[Defined] = []
    for each in log:
        message_id = each.message.message_id
        copied = [one for one in found if message_id and one.record.message.message_id == message_id]
        copied = copied or [one for one in reversed(found) if one.shows(each)]
        if not copied:
            found.append(Defined(len(found), each, mark(each), times=[each.time]))
            continue
        one = copied[0]
        one.record, one.records, one.mark = merge(one.record, each), one.records + 1, one.mark or mark(each)
        if each.time - one.times[-1] > WINDOW:
            one.times.append(each.time)
    return found


def belong(request: Record, answer: Record, any_place: bool) -> bool:
    """Say whether a response correlates with a request, by either id, and came to where the request wanted it."""
    sent, came = request.message, answer.message
    if not asks(request) or answer.direction not in (None, Direction.RESPONSE):
        return False
    if not came.correlation_id or came.correlation_id not in (sent.correlation_id, sent.message_id):
        return False
    if answer.direction is None and came.reply_to is not None and came.reply_to == sent.reply_to:
        return False  # the same request, sent again
    wanted, seen = sent.reply_to and sent.reply_to.name, came.destination and came.destination.name
    return any_place or wanted is None or seen is None or wanted == seen


def nearest(found: list[Defined], any_place: bool) -> Iterator[tuple[Defined, Defined]]:
    """Yield the pairs: all that may be, sorted, each message once."""
    name = {one.number: one.record.message.message_id or one.record.message.correlation_id or "" for one in found}
    every = sorted(
        (abs(came - sent), sent, came, name[one.number], one.number, name[other.number], other.number)
        for one in found
        for other in found
        if belong(one.record, other.record, any_place)
        for sent in one.times
        for came in other.times
        if abs(came - sent) <= WINDOW
    )
    taken: set[int] = set()
    by_number = {one.number: one for one in found}
    for *_, request, _, answer in every:
        if not {request, answer} & taken:
            taken |= {request, answer}
            yield by_number[request], by_number[answer]


def defined(log: list[Record]) -> list[tuple[Any, ...]]:
    """Merge and pair one stretch, in quadratic time."""
    found = merged(log)
    for request, answer in nearest(found, any_place=False):
        request.partner, answer.partner, answer.answers = answer, request, True
    halves = (Pattern.REQUEST_RESPONSE, Pattern.RESPONSE_ONLY)
    alone = [each for each in found if each.partner is None and next(iter(pair([each.record]))).pattern in halves]
    for request, answer in nearest(alone, any_place=True):
        request.misdirected = answer.misdirected = True
    return [
        (
            [to_json(each.record), *([to_json(each.partner.record)] if each.partner else [])],
            each.records + (each.partner.records if each.partner else 0),
            each.misdirected,
        )
        for each in found
        if not each.answers
    ]


def as_defined(found: Iterable[Exchange]) -> list[tuple[Any, ...]]:
    """Write exchanges as the definition gives them."""
    return [([to_json(one) for one in each.messages], each.records, each.misdirected) for each in found]


PLACES = [None, NAMELESS, REPLIES, queue("replies"), queue("in"), queue("out")]
FILLING = [record(at, message_id=f"x{at}", direction="one-way") for at in range(0, 24, 4)]
"""Keeps a stretch from ending."""


def crowd(**fixed: Any) -> st.SearchStrategy[list[Record]]:
    """Draw up to 8 records of a stretch that is longer than the window."""
    few = st.sampled_from
    drawn = {
        "second": few([0, 0, 4, 8, 9, 12, 20]),
        "direction": few([None, None, "request", "response"]),
        "body": few([b"<a/>", b"<b/>"]),
        "message_id": few([None, "m1", "m2"]),
        "correlation_id": few(["c1", "c1", "c1", "m1", "m2", None]),
        "reply_to": few(PLACES),
        "destination": few(PLACES),
    }
    return st.lists(st.builds(record, **{**drawn, **fixed}), max_size=8)


def in_time(log: Iterable[Record]) -> list[Record]:
    """Put the records of a stretch in order of time."""
    return sorted([*log, *FILLING], key=lambda each: each.time)


@given(crowd())
def test_the_definition(log: list[Record]) -> None:
    """Copies and pairs are those of the simple, quadratic definition."""
    assert as_defined(pair(in_time(log), WINDOW)) == defined(in_time(log))


@given(crowd(direction=st.sampled_from([None, "request", "response"]), message_id=st.none(), body=st.binary()))
def test_the_definition_for_messages_seen_once(log: list[Record]) -> None:
    """So are the pairs of messages that all have ids of their own."""
    named = [replace(each, message=replace(each.message, message_id=f"m{n}")) for n, each in enumerate(log)]
    assert as_defined(pair(in_time(named), WINDOW)) == defined(in_time(named))


def slid(log: list[Record], messages: int) -> list[tuple[Any, ...]]:
    """Pair the records of a stretch that yields what is settled whenever it has some messages."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream, "MIN_SLIDE_MESSAGES", messages)
        return as_defined(pair(log, WINDOW))


def crowded(random: Random) -> list[Record]:
    """Make a stretch of ten windows, dense or sparse: copies that know more or less, messages of unknown direction."""
    log = []
    places = random.choice([[None], [REPLIES, NAMELESS], [None, REPLIES, queue("in"), queue("out")]])
    directions = random.choice([["request", "response"], [None, "request", "response", "one-way"]])
    for number in range(random.choice([20, 60, 120])):
        at = random.choice([random.uniform(0, 100), random.randrange(100)])
        each = record(
            at,
            direction=random.choice(directions),
            message_id=random.choice([f"m{number}", f"m{number}", None]),
            correlation_id=random.choice(["c1", "c1", "c1", f"m{random.randrange(number + 1)}", None]),
            reply_to=random.choice(places),
            destination=random.choice(places),
        )
        shared, own = b"%d" % -(number % 3), b"%d" % number
        sent = replace(each.message, body=random.choice([own, shared]) if each.message.message_id is None else own)
        seen = replace(sent, **random.choice([{}, {}, {"message_id": None}]))
        if sent.message_id and random.random() < 0.3:
            sent = replace(sent, **random.choice([{"reply_to": None}, {"destination": None}, {"correlation_id": None}]))
        log.append(replace(each, message=sent))
        if random.random() < 0.3:
            log.append(replace(each, time=each.time + timedelta(seconds=random.uniform(0, 9)), message=seen))
    filling = [record(at, message_id=f"x{at}", direction="one-way") for at in range(0, 110, 9)]
    return sorted([*log, *filling], key=lambda each: each.time)


SEEDS = [*range(100), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 400))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stretch_that_never_ends_is_settled_from_its_beginning(seed: int) -> None:
    """What is yielded before the end of a stretch is what its whole gives, if no copy comes later than the window."""
    random = Random(seed)
    log = crowded(random)
    few = slid(log, random.choice([1, 4, 20]))
    assert Counter(map(repr, few)) == Counter(map(repr, as_defined(pair(log, WINDOW))))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_settled_is_judged_without_the_rest(seed: int) -> None:
    """Records that are taken out of a stretch as soon as they are settled, and the rest, give what its whole gives."""
    random = Random(seed)
    log = crowded(random)
    held, found, read = list[Record](), list[tuple[Any, ...]](), 0
    for end in sorted(random.uniform(0, 120) for _ in range(random.choice([1, 5, 20]))):
        while read < len(log) and log[read].time < START + timedelta(seconds=end):
            held.append(log[read])
            read += 1
        over = settled(held, WINDOW, START + timedelta(seconds=end) - WINDOW)
        found += as_defined(pair([held[number] for number in over], WINDOW))
        held = [each for number, each in enumerate(held) if number not in over]
    found += as_defined(pair([*held, *log[read:]], WINDOW))
    assert Counter(map(repr, found)) == Counter(map(repr, as_defined(pair(log, WINDOW))))


def tangled(random: Random) -> list[Record]:
    """Make a log of some keys that recur all the time: what repeats an id, as a copy or not, comes within a window."""
    ids = random.choice([1, 2, 4])
    times = [random.uniform(0, 100) // (step := random.choice([0.1, 1, 5])) * step for _ in range(60)]
    directions = ["request", "response", None, "one-way"][: random.choice([2, 4])]
    places = random.choice([[None], [REPLIES, NAMELESS], [None, REPLIES, queue("in"), queue("out")]])
    log = [
        record(at + number, message_id=f"x{number}-{at}", correlation_id=f"c{number}", direction="one-way")
        for number in range(ids)
        for at in range(0, 110, 9)
    ]
    for number, at in enumerate(times):
        near = [f"m{other}" for other, time in enumerate(times) if abs(time - at) <= 2]
        each = record(
            at,
            direction=random.choice(directions),
            message_id=random.choice([f"m{number}", random.choice(near), None]),
            correlation_id=random.choice(
                [f"c{random.randrange(ids)}", f"c{random.randrange(ids)}", random.choice(near)]
            ),
            reply_to=random.choice(places),
            destination=random.choice(places),
            body=b"%d" % number,
        )
        changes = random.choice([{}, {"message_id": None}, {"reply_to": None}])
        copy = replace(each, time=each.time + timedelta(seconds=random.uniform(0, 5)))
        log += [each, replace(copy, message=replace(copy.message, **changes))][: random.choice([1, 1, 2])]
    return sorted(log, key=lambda each: each.time)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_settled_of_each_key_is_judged_without_the_rest(seed: int) -> None:
    """So it is when ids tie keys to each other: a log that is judged as it comes gives what its whole gives."""
    random = Random(seed)
    log = tangled(random)
    held, found = log, list[tuple[Any, ...]]()
    for end in sorted(START + timedelta(seconds=random.uniform(0, 120)) for _ in range(random.choice([5, 20, 60]))):
        over: list[Record] = []
        for _, group in groupby(keyed(each for each in held if each.time < end), key=itemgetter(0)):
            some = [each for _, each in group]
            over += [some[number] for number in settled(some, WINDOW, end - WINDOW)]
        held = [each for each in held if all(each is not one for one in over)]
        found += as_defined(exchanges_of(sorted(over, key=lambda each: each.time), WINDOW))
    found += as_defined(exchanges_of(held, WINDOW))
    assert Counter(map(repr, found)) == Counter(map(repr, as_defined(exchanges_of(log, WINDOW))))


def test_a_request_waits_for_what_repeats_its_id() -> None:
    """Such a response has the key of the request as long as the request is there."""
    log = [request(0), response(1), record(2, message_id="x", direction="one-way")]
    since = START + timedelta(seconds=20)
    assert settled([*log, response(25, message_id="a2")], WINDOW, since) == [0, 1, 2]
    assert settled([*log, response(25, message_id="a2", correlation_id="m1")], WINDOW, since) == [2]


def test_a_copy_may_show_that_a_message_is_a_request() -> None:
    """An answer is held as long as a message that may turn out to be its request."""
    log = [
        response(0),
        record(8, message_id="m1", correlation_id="c1"),
        *busy(4, 12, 13, 14, 15, 16, 17),
        request(17.5),
    ]
    found = slid(sorted(log, key=lambda each: each.time), 1)
    assert max(len(messages) for messages, *_ in found) == 2


def test_a_stretch_that_never_ends_is_held_for_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls whose correlation id never changes come out while they go on, whole, those without an answer too."""
    monkeypatch.setattr(stream, "MIN_SLIDE_MESSAGES", 40)
    read = 0

    def log() -> Iterator[Record]:
        nonlocal read
        for read in range(2000):
            yield request(read, message_id=f"m{read}", body=b"%d" % read)
            if read % 10:
                yield response(read + 0.4, message_id=f"a{read}", body=b"%d" % read)

    behind = {each.id: (read - int(each.id[1:]), each.unpaired) for each in pair(log(), WINDOW)}
    assert set(behind) == {f"m{number}" for number in range(2000)}
    assert sum(unpaired for _, unpaired in behind.values()) == 200
    assert max(seconds for seconds, unpaired in behind.values() if not unpaired) < 60
    assert max(seconds for seconds, _ in behind.values()) <= 10 * stream.MAX_KEPT_REQUESTS + 60  # for their redelivery


@pytest.mark.parametrize(("seconds", "answered"), [(1.0, 1.0), (0.1, 0.98), (1.0, 0.98), (0.001, 0.9)])
def test_a_stretch_with_coarse_times_is_held_for_a_window(
    monkeypatch: pytest.MonkeyPatch, seconds: float, answered: float
) -> None:
    """Also if many messages have the same time, memory holds those of some windows."""
    monkeypatch.setattr(stream, "MIN_SLIDE_MESSAGES", 500)
    monkeypatch.setattr(stream, "MAX_KEPT_REQUESTS", 0)
    random, read, held = Random(1), 0, 0

    def log() -> Iterator[Record]:
        nonlocal read
        waiting = sorted(
            (at - at % seconds, number, is_answer)
            for number in range(4000)
            for is_answer in (False, True)[: 1 + (random.random() < answered)]
            for at in [number / 20 + is_answer * random.uniform(0, 0.4)]
        )
        for at, number, is_answer in waiting:
            read += 1
            kind = {"direction": "response", "message_id": f"a{number}"} if is_answer else {"message_id": f"m{number}"}
            yield (response if is_answer else request)(at, body=b"%d" % number, **kind)

    yielded = 0
    for each in pair(log(), WINDOW):
        yielded += each.records
        held = max(held, read - yielded if read < 7800 else 0)
    assert yielded == read
    assert held <= 40 * 10 * 3  # messages of three windows


def test_a_stretch_at_the_end_of_time() -> None:
    """Times that leave no room for a window beyond them are as any."""
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    log = [
        replace(each, time=end - timedelta(seconds=50 - number))
        for number in range(50)
        for each in (request(message_id=f"m{number}", body=b"%d" % number),)
    ]
    assert len(slid(log, 4)) == 50


@pytest.mark.parametrize("phase", range(40))
def test_a_response_that_turns_out_to_be_one(phase: int) -> None:
    """A request waits for its response even if none came that could be it, so far."""
    times = range(-25 - phase, 40)
    filling = [record(at, message_id=f"x{at}", correlation_id="c", direction="one-way") for at in times]
    asked = record(0, "request", message_id="X", correlation_id="c", body=b"<ask/>")
    answered, copied = (
        record(at, "response", message_id="c", correlation_id=known, body=b"<answer/>")
        for at, known in ((5, None), (14.5, "X"))
    )
    log = sorted([asked, answered, copied, *filling], key=lambda each: each.time)
    assert max(records for _, records, _ in slid(log, 1)) == 3


def test_a_misdirected_request_that_comes_again() -> None:
    """It stays misdirected, though its response was given out before."""
    elsewhere = Destination(DestinationKind.TEMPORARY_QUEUE, "elsewhere")
    log = [request(0), response(1, destination=elsewhere), *busy(*range(2, 100, 4)), request(60, redelivered=True)]
    found = slid(sorted(log, key=lambda each: each.time), 1)
    assert [strayed for _, records, strayed in found if records == 2] == [True]


def test_what_depends_on_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes long to find out what is settled, all is held, and looked at again when there is twice as much."""
    log = [each for at in range(0, 200, 2) for each in (request(at, message_id=f"m{at}", body=b"%d" % at),)]
    whole = as_defined(pair(log, WINDOW))
    monkeypatch.setattr(pairs, "MAX_SWEEPS", 0)
    assert sorted(map(repr, slid(log, 4))) == sorted(map(repr, whole))


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


@given(
    st.sampled_from(["request", "response", "one-way", None]),
    st.sampled_from(["response", "request", None]),
    st.sampled_from(["m1", "a1", None]),
    st.sampled_from(["c1", "m1", "c2", "", None]),
    st.sampled_from([REPLIES, NAMELESS, queue("elsewhere"), None]),
    st.sampled_from([REPLIES, NAMELESS, None]),
    st.sampled_from([REPLIES, None]),
    st.sampled_from([-1.0, 0.0, 1.0, 600.0, 600.5]),
)
def test_two_records_alone_are_paired_as_among_others(
    one: str | None,
    other: str | None,
    message_id: str,
    correlation_id: str,
    seen: Any,
    wanted: Any,
    further: Any,
    second: float,
) -> None:
    """What is told at first sight of a request and its response is what the pairing of many comes to."""
    ids = {"message_id": message_id, "correlation_id": correlation_id}
    asked = request(direction=one, reply_to=wanted)
    answered = response(second, direction=other, destination=seen, reply_to=further, **ids)
    two = sorted([asked, answered], key=lambda each: each.time)
    assert list(pair(two, LONG_WINDOW)) == slowly(two)
    copied = sorted([*two, replace(asked, node=Node.TAP)], key=lambda each: each.time)
    assert list(pair(copied, LONG_WINDOW)) == slowly(copied)


def slowly(records: list[Record]) -> list[Exchange]:
    """Pair records as those of a key of which many are under way."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream, "is_plain_call", lambda *_: False)
        return list(pair(records, LONG_WINDOW))
