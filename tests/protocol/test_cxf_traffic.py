"""Real traffic of Apache CXF 4.1.0, judged by both editions."""

from __future__ import annotations

from collections import Counter

import pytest
from places import DATA

from soapjms.protocol.assertions import Setting, Verdict, VerdictOutcome, habits, judge
from soapjms.protocol.exchange import Exchange, Pattern, exchanges_of
from soapjms.protocol.names import EDITIONS
from soapjms.protocol.record import Record, from_json
from soapjms.protocol.responding import reaction

LOG = DATA / "cxf-exchanges.jsonl"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Read the log."""
    return [from_json(line) for line in LOG.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def exchanges(records: list[Record]) -> list[Exchange]:
    """Pair the log."""
    return list(exchanges_of(records))


def judged(exchanges: list[Exchange], profile: str) -> list[Verdict]:
    """Judge all exchanges by a profile."""
    return [verdict for each in exchanges for verdict in judge(each, Setting(profile=EDITIONS[profile]))]


def broken(records: list[Record], verdicts: list[Verdict], outcome: VerdictOutcome) -> set[tuple[int, str]]:
    """Return number of record, counted from 1, and assertion of each verdict with this outcome."""
    numbers = {each.message.message_id: number for number, each in enumerate(records, 1)}
    return {(numbers[each.record.message.message_id], each.assertion) for each in verdicts if each.outcome is outcome}


def test_exchanges(exchanges: list[Exchange]) -> None:
    """The 26 messages are 12 calls, each with its response, and 2 one-way messages."""
    assert Counter(each.pattern for each in exchanges) == {Pattern.REQUEST_RESPONSE: 12, Pattern.ONE_WAY: 2}
    assert sum(each.records for each in exchanges) == 26
    assert not any(each.unpaired for each in exchanges)


def test_under_the_recommendation(records: list[Record], exchanges: list[Exchange]) -> None:
    """Only record 18, with bindingVersion 0.3, breaks a MUST; one response outlives its request."""
    verdicts = judged(exchanges, "rec-2012")
    assert broken(records, verdicts, VerdictOutcome.FAILED) == {(18, "Protocol-2010")}
    assert broken(records, verdicts, VerdictOutcome.WARNING) == {(6, "Local-2.6.2.3-expiration")}
    (failed,) = [each for each in verdicts if each.outcome is VerdictOutcome.FAILED]
    assert failed.expected_subcodes == ("unrecognizedBindingVersion",)
    assert failed.observed_subcode == "unrecognizedBindingVersion"


def test_under_the_candidate_recommendation(records: list[Record], exchanges: list[Exchange]) -> None:
    """Eleven responses repeat the wrong id; gzip is no XML; the fault has the shape and namespace of 2012."""
    verdicts = judged(exchanges, "cr-2009")
    responses = (2, 4, 6, 8, 10, 14, 17, 19, 21, 23, 26)
    assert broken(records, verdicts, VerdictOutcome.FAILED) == {
        *((number, "Protocol-2038") for number in responses),
        (9, "Protocol-2030"),
        (18, "Protocol-2010"),
        (19, "Local-2.8-shape"),
    }
    assert (12, "Protocol-2038") in broken(records, verdicts, VerdictOutcome.PASSED)


@pytest.mark.parametrize("profile", EDITIONS)
def test_nothing_lacks_input(exchanges: list[Exchange], profile: str) -> None:
    """A tap over OpenWire sees everything: no verdict is missing for want of input."""
    assert not [each for each in judged(exchanges, profile) if each.outcome is VerdictOutcome.MISSING_INPUT]


def test_habits(exchanges: list[Exchange]) -> None:
    """What CXF does out of habit is noted, and never counts as a failure."""
    noted = Counter(code for each in exchanges for code, _ in habits(each, Setting()))
    assert set(noted) == {"quotedSoapAction", "isFaultOnRequest", "soapActionOnResponse"}
    assert noted["isFaultOnRequest"] == 14
    under_cr = {code for each in exchanges for code, _ in habits(each, Setting(profile=EDITIONS["cr-2009"]))}
    assert under_cr == {*noted, "unknownContentEncoding"}


def test_our_node_would_have_answered_alike(exchanges: list[Exchange]) -> None:
    """A responding node of the Recommendation agrees with CXF on every request."""
    reactions = [reaction(each, Setting()) for each in exchanges]
    assert [each.agrees for each in reactions if each is not None] == [True] * 12
    assert [each.expected for each in reactions if each and each.expected] == ["unrecognizedBindingVersion"]
