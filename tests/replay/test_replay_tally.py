"""What a run counts adds up, however its log was cut: causes of findings, spans of time, latencies, destinations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.replay.findings import (
    MAX_CAUSES,
    MAX_PARTIES,
    MAX_SAMPLES,
    MAX_SUBCODE_PAIRS,
    FindingKey,
    Findings,
    Sample,
)
from soapjms.replay.flat_records import microseconds
from soapjms.replay.parties import Ends, PartyKey
from soapjms.replay.summary import MAX_SPANS, WIDTHS, RunTally, Timeline, latency_bin, latency_of, quantiles

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def take(findings: Findings, number: int, reason: str, **more: str) -> None:
    """Take in one finding, the number of which is its time."""
    time = f"{number:08}"
    party = PartyKey(more.pop("place", "queue:a"), "requesting", "")
    found = FindingKey(**{"reason": reason, "party": party, "expected": "", "observed": "", **more})
    findings.take("A", "failed", found, time, "e", lambda: Sample(time, "e", "m", party.place, found.reason, "", ""))


def in_parts(count: int, work: Callable[[Any, int], None], make: Callable[[], Any], back: Callable[[Any], Any]) -> Any:
    """Do some work in one go and in parts of several sizes, and assert that the parts add up to the same."""
    whole = make()
    for number in range(count):
        work(whole, number)
    for size in (1, 3, 7):
        parts = [make() for _ in range(size)]
        for number in range(count):
            work(parts[number % size], number)
        total = make()
        for part in reversed(parts):
            total.add(back(json.loads(json.dumps(part.to_members()))))
        assert total == whole
    return whole


def causes_of(reasons: list[str]) -> dict[str, int]:
    """Return the causes of findings with some reasons, in whatever order and parts they come."""
    found = in_parts(
        len(reasons), lambda each, number: take(each, number, reasons[number]), Findings, Findings.from_members
    )
    return {reason: cause.count for reason, cause in found.of("A", "failed")}


def test_few_reasons_are_told_apart_word_for_word() -> None:
    """One reason is one cause, with a count and its earliest findings; the most frequent stands first."""
    reasons = ["the version is '0.3'", "the version is '0.4'", "the version is '0.4'"] * 20
    assert list(causes_of(reasons).items()) == [("the version is '0.4'", 40), ("the version is '0.3'", 20)]


def test_reasons_with_a_value_of_their_own_are_one_cause() -> None:
    """What is quoted, and words with digits, do not tell apart what is wrong where there are many of them."""
    reasons = [f"the correlation id is 'ID:{n}', not c-{n}" for n in range(MAX_CAUSES + 1)] + ["there is none"]
    assert causes_of(reasons) == {"the correlation id is …, not c-…": MAX_CAUSES + 1, "there is none": 1}


def test_reasons_that_have_nothing_in_common_are_one_cause_in_the_end() -> None:
    """However many texts a hostile log makes up, the causes of an assertion are few."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    reasons = [f"{one}{two} says" for one in letters for two in letters]
    assert causes_of(reasons) == {"…": len(reasons)}
    assert causes_of([f"it is '{n}' {each}" for n, each in enumerate(reasons)]) == {"it is …": len(reasons)}


def test_the_samples_of_a_cause_are_its_earliest_findings() -> None:
    """Also where they came late, and in parts."""
    found = in_parts(50, lambda each, number: take(each, (number * 37) % 50, "r"), Findings, Findings.from_members)
    ((_, cause),) = found.of("A", "failed")
    assert [int(each.time) for each in cause.samples] == list(range(MAX_SAMPLES))


def test_samples_are_made_only_where_they_are_kept() -> None:
    """A finding that is later than those kept costs no excerpt of its message."""
    made = []
    findings = Findings()
    for number in range(100):
        text = f"{number:04}"
        findings.take(
            "A",
            "failed",
            FindingKey("r", PartyKey("", "", ""), "", ""),
            text,
            "e",
            lambda text=text: made.append(text) or Sample(text, *[""] * 6),  # type: ignore[misc]
        )
    assert len(made) == MAX_SAMPLES


def test_lists_within_a_cause_are_bounded() -> None:
    """Of destinations and answers beyond the limit the first in order of the alphabet are kept, counted in full."""
    count = 5 * MAX_PARTIES

    def work(findings: Findings, number: int) -> None:
        take(findings, number, "r", place=f"queue:{number % (count // 2):06}", observed=f"s{number % 100:02}")

    whole, other = Findings(), Findings()
    for number in range(count):
        work(whole, number)
        work(other, count - 1 - number)
    ((_, cause),) = whole.settled().of("A", "failed")
    assert whole == other.settled()
    assert (len(cause.where), set(cause.where.values())) == (MAX_PARTIES, {2})
    assert list(cause.answers) == [("", f"s{n:02}") for n in range(MAX_SUBCODE_PAIRS)]


@given(st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), max_size=60))
def test_spans_of_any_times_add_up(times: list[datetime]) -> None:
    """From the first year of the calendar to the last."""
    whole = in_parts(
        len(times),
        lambda each, number: each.message(microseconds(times[number].replace(tzinfo=UTC))),
        Timeline,
        Timeline.from_members,
    )
    assert sum(span["messages"] for span in whole.spans.values()) == len(times)
    assert (whole.first, whole.last) == (
        min((microseconds(each.replace(tzinfo=UTC)) for each in times), default=None),
        max((microseconds(each.replace(tzinfo=UTC)) for each in times), default=None),
    )


@pytest.mark.parametrize(
    "step", [timedelta(milliseconds=3), timedelta(seconds=11), timedelta(days=5), timedelta(days=2000)]
)
def test_spans_widen_as_they_become_many(step: timedelta) -> None:
    """A day of traffic and an hour of it both have some hundred spans; parts end at the same width."""
    count = 1400

    def work(timeline: Timeline, number: int) -> None:
        timeline.message(microseconds(datetime(1, 1, 1, tzinfo=UTC) + step * number))

    whole = in_parts(count, work, Timeline, Timeline.from_members)
    assert MAX_SPANS / 15 < len(whole.spans) <= MAX_SPANS
    assert whole.width in WIDTHS


@given(st.integers(0, 10**13))
def test_a_latency_is_known_within_an_eighth(number: int) -> None:
    """Its bin's middle is no further away than 12.5 %, and longer ones are in later bins."""
    taken = timedelta(microseconds=number)
    assert abs(latency_of(latency_bin(number)) - taken) <= max(taken / 8, timedelta(microseconds=1))
    assert latency_bin(number) <= latency_bin(number + 1) <= latency_bin(number) + 1


def test_latencies_and_clocks_that_run_backwards() -> None:
    """Of a hundred responses the median and the slow ones are known; one that came before its request is none."""
    timeline = Timeline()
    for number in range(1, 101):
        timeline.latency(*map(microseconds, (NOON, NOON + timedelta(milliseconds=number))))
    assert timeline.latency(*map(microseconds, (NOON, NOON - timedelta(seconds=1)))) is None
    median, slow = quantiles(timeline.latencies(), (0.5, 0.95))
    assert abs(median - timedelta(milliseconds=50)) < timedelta(milliseconds=7)
    assert abs(slow - timedelta(milliseconds=95)) < timedelta(milliseconds=12)
    assert sum(span["backwards"] for span in timeline.spans.values()) == 1
    assert quantiles(Counter(), (0.5,)) == []


def test_tallies_add_up_in_any_order() -> None:
    """Everything that a part of a run counts survives its way through a row."""
    one, other = RunTally(), RunTally()
    for number in range(30):
        tally = one if number % 3 else other
        tally.count("records")
        tally.note("code", "text")
        party, time = (
            PartyKey(f"queue:{number % 4}", "requesting", "cxf"),
            microseconds(NOON + timedelta(seconds=number)),
        )
        tally.see(party, time)
        tally.judged(party, "A", VerdictOutcome.PASSED, 1)
        if number % 8 == 5:
            tally.judged(party, "B", VerdictOutcome.FAILED, 1)
            tally.broke(party, VerdictOutcome.FAILED)
            tally.party(party).broke("B", VerdictOutcome.FAILED, Ends(time, time))
        tally.answered(f"queue:{number % 4}", *map(microseconds, (NOON, NOON + timedelta(milliseconds=number))))
        take(tally.findings, number, "reason")
    sums = []
    for first, second in ((one, other), (other, one)):
        total = RunTally()
        total.add(RunTally.from_json(first.to_json()))
        total.add(second)
        sums.append(total)
    assert sums[0] == sums[1]
    assert sums[0].counts["records",] == 30
    place = sums[0].places["queue:1"]
    assert place.answered == 8
    party = place.parties["requesting", "cxf"]
    at = [microseconds(NOON + timedelta(seconds=number)) for number in (1, 29, 5, 29)]
    assert (party.messages, party.seen) == (8, Ends(*at[:2]))
    assert party.times == {("B", "failed"): Ends(*at[2:])}
    assert party.rules == {("A", "passed"): 8, ("B", "failed"): 4}
    assert party.broken == {"failed": 4}
