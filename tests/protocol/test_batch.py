"""Judging many exchanges gives what judging each of them gives, whatever was remembered of others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from fuzz_kit import messages
from hypothesis import given
from hypothesis import strategies as st
from vector_kit import CASES, exchange_of, of_each_case, setting_of

from brokers.message import Message, MessageType, properties
from soapjms.protocol import received_message
from soapjms.protocol.assertions import (
    ASSERTIONS,
    Judge,
    Memory,
    Sees,
    Setting,
    Verdict,
    VerdictOutcome,
    batch,
    guess_dialect,
    habits_of,
    judge,
    readings,
)
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.names import EDITIONS, REC_2012
from soapjms.protocol.properties import PROPERTY_NAMES, Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import EPOCH, Direction, Record

SILENT = (VerdictOutcome.PASSED, VerdictOutcome.NOT_APPLICABLE)


def agrees(by: Judge, found: Exchange, times: int = 3) -> list[Verdict]:
    """Assert that a judge finds what `judge` finds, at first, at second and at third sight; return all verdicts."""
    verdicts = list(judge(found, by.setting))
    for _ in range(times):
        messages = readings(found, by.setting)
        seen = list(by.findings(messages, {carrier: carrier for carrier in messages}))
        assert seen == [each for each in verdicts if each.outcome not in SILENT]
        assert by.take_counts() == Counter((party_of(each, found), each.rule, each.outcome) for each in verdicts)
    return verdicts


def party_of(verdict: Verdict, found: Exchange) -> Carrier:
    """Return whose message a verdict is on."""
    if verdict.record is found.response:
        return Carrier.RESPONSE
    return Carrier.ONE_WAY if found.pattern is Pattern.ONE_WAY else Carrier.REQUEST


@of_each_case
def test_vectors_alone(case: dict[str, Any], profile: str) -> None:
    """A vector that comes again and again is judged as it is the first time."""
    agrees(Judge(setting_of(case, profile)), exchange_of(case))


@pytest.mark.parametrize("profile", EDITIONS)
def test_vectors_one_after_the_other(profile: str) -> None:
    """What was remembered of one exchange does not show in another, also where the memory is full."""
    exchanges = [exchange_of(case) for case, edition in CASES if edition == profile]
    one = Judge(Setting(profile=EDITIONS[profile]))
    for each in exchanges * 3:
        agrees(one, each, times=1)


def test_a_judge_remembers_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit the kinds of exchanges are forgotten; no count is lost."""
    monkeypatch.setattr(batch, "MAX_SKETCHES", 2)
    one = Judge(Setting())
    exchanges = [exchange_of(case) for case, _ in CASES[:40]]
    for each in exchanges:
        agrees(one, each)
        assert len(one._memory.messages) <= 2


def test_a_judge_is_full_at_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By how many kinds of counts it has; it has none when they were taken."""
    monkeypatch.setattr(batch, "MAX_COUNTS", 2)
    one = Judge(Setting())
    assert not one.is_full
    found = exchange_of(CASES[0][0])
    for number in range(2):
        list(one.findings(readings(found, one.setting), dict.fromkeys(Carrier, number)))
    assert one.is_full
    assert {party for party, _, _ in one.take_counts()} == {0, 1}
    assert not one.is_full


CHANGES: dict[str, list[Any]] = {
    "destination": [None],
    "correlation_id": ["c-1", "c-2", None],
    "delivery_mode": [1, 2, 3, None],
    "priority": [4, 12, None],
    "expiration": [0, 5, 1795201951945, None],
    "timestamp": [0, 1795201951945, None],
    "untyped": [True, False],
}


@given(messages(), messages(), st.sampled_from(["cr-2009", "rec-2012"]), st.booleans(), st.data())
def test_hostile_messages(asked: Message, answered: Message, profile: str, strict: bool, data: st.DataObject) -> None:
    """Neither do messages that nobody would send, nor others that differ from them in a header."""
    by = Judge(Setting(profile=EDITIONS[profile], strict=strict))
    for _ in range(3):
        name = data.draw(st.sampled_from(sorted(CHANGES)))
        answered = replace(answered, **{name: data.draw(st.sampled_from(CHANGES[name]))})
        pair = record(asked, Direction.REQUEST), record(answered, data.draw(st.sampled_from([None, *Direction])))
        agrees(by, Exchange(id="", pattern=Pattern.REQUEST_RESPONSE, request=pair[0], response=pair[1]), 2)
        agrees(by, Exchange(id="", pattern=Pattern.ONE_WAY, request=pair[1]), 2)
        agrees(by, Exchange(id="", pattern=Pattern.RESPONSE_ONLY, response=pair[1]), 2)


def record(message: Message, direction: Direction | None) -> Record:
    """Capture a message."""
    return Record(message=message, time=EPOCH, direction=direction)


def test_what_is_settled_rests_on_what_is_settled() -> None:
    """No row whose end is remembered rests on one that is judged message by message."""
    settled = {
        row.id: row
        for row in ASSERTIONS
        if row.check is not None and row.sees is not Sees.PAIR and row.reads <= batch.SKETCH_FACTS
    }
    assert len(settled) > 20
    for row in settled.values():
        assert set(row.after) <= settled.keys(), row.id


def test_properties_of_others_are_not_described() -> None:
    """Messages that differ in what is no property of the binding, such as the id of a trace, share what was read."""
    base = {"SOAPJMS_contentType": "text/xml", "SOAPJMS_requestURI": "jms:queue:a"}
    one, two = (
        Reading(Message(message_type=MessageType.BYTES, properties=properties({"trace": n, **base})), REC_2012)
        for n in range(2)
    )
    assert one.described is two.described
    assert one.message.properties != two.message.properties
    assert {each.name for each in one.described.properties} == set(base) < PROPERTY_NAMES


@given(messages(), st.sampled_from(sorted(EDITIONS)), st.sampled_from(list(Carrier)))
def test_habits_and_stacks_at_second_sight(message: Message, profile: str, carrier: Carrier) -> None:
    """They are the same for messages of the same properties, as often as they come."""
    message_read = Reading(message, EDITIONS[profile], direction=Direction.RESPONSE)
    seen = [(tuple(habits_of(message_read, carrier)), guess_dialect(message_read)) for _ in range(2)]
    assert seen[0] == seen[1]
    other = Reading(replace(message, body=b"<a/>"), EDITIONS[profile], direction=Direction.RESPONSE)
    assert guess_dialect(other) == seen[0][1]


def test_long_properties_are_not_remembered() -> None:
    """What could fill the memory is judged in full each time; habits and stack are told all the same."""
    long = properties({"SOAPJMS_soapAction": f'"{"x" * 5000}"', "SOAPJMS_contentType": "text/xml"})
    message = Message(message_type=MessageType.BYTES, body=b"<a/>", properties=long)
    one = Judge(Setting())
    agrees(one, Exchange(id="", pattern=Pattern.ONE_WAY, request=record(message, None)))
    assert not one._memory.messages
    reading = Reading(message, REC_2012)
    assert "quotedSoapAction" in [code for code, _ in habits_of(reading, Carrier.ONE_WAY)]
    assert guess_dialect(reading) == "spring-ws"


def test_properties_that_come_by_the_thousand_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of properties is bounded; what was forgotten is worked out anew."""
    monkeypatch.setattr(received_message._Memory, "MOST", 2)
    memory = received_message._Memory()
    for text in ["a", "b", "c", "a", "a"]:
        found = memory.describe(properties({"SOAPJMS_soapAction": text}), REC_2012)
        assert found.soap_action == text
        assert len(memory._known) <= 2
    assert memory.describe(found.properties, REC_2012) is found


@pytest.mark.parametrize("profile", EDITIONS)
def test_judges_who_share_a_memory_say_the_same(profile: str) -> None:
    """One that goes on where another stopped finds and counts what it did, and settles nothing anew."""
    exchanges = [exchange_of(case) for case, edition in CASES if edition == profile]
    memory, setting = Memory(), Setting(profile=EDITIONS[profile])
    known = []
    for _ in range(3):
        one = Judge(setting, memory)
        for each in exchanges:
            agrees(one, each, times=1)
        known.append(dict(memory.messages))
    assert known[1] == known[2]
