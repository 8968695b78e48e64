"""Findings grouped by cause: what their reasons have in common stays, whatever the number and the order of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soapjms.protocol.text import lasting, moment
from soapjms.replay.findings import MAX_CAUSES, VALUE, FindingKey, Findings, Sample, in_common
from soapjms.replay.parties import PartyKey

PARTY: Final = PartyKey("queue:q", "requesting", "")
SAMPLE: Final = Sample("", "", "", "", "", "", "")


def found(*reasons: str) -> Findings:
    """Return a finding for each reason."""
    findings = Findings()
    for reason in reasons:
        findings.take("Protocol-2010", "failed", FindingKey(reason, PARTY, "", ""), "", "", lambda: SAMPLE)
    return findings


def told(findings: Findings) -> list[tuple[str, int]]:
    """Return what the report says of the causes."""
    return [(reason, cause.count) for reason, cause in findings.of("Protocol-2010", "failed")]


MANY: Final = range(2 * MAX_CAUSES)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (
            [f"SOAPJMS_bindingVersion is '0.{number}', not 1.0" for number in MANY],
            "SOAPJMS_bindingVersion is …, not 1.0",
        ),
        (
            [f"SOAPJMS_requestURI is 'jms:queue:a.{n}', the request's is 'jms:queue:b{n}.1'" for n in MANY],
            "SOAPJMS_requestURI is …, the request's is …",
        ),
        (
            [f"the response never expires, its request does on {moment(number * 12_345_678_901)}" for number in MANY],
            "the response never expires, its request does on …",
        ),
        (
            [f"timeToLive was set to 5 s, JMSExpiration is {lasting(n * 1001)} after JMSTimestamp" for n in MANY],
            "timeToLive was set to 5 s, JMSExpiration is … after JMSTimestamp",
        ),
        (
            [f"the envelope is SOAP 1.1, the body has {number} octets" for number in MANY],
            "the envelope is SOAP 1.1, the body has … octets",
        ),
    ],
)
def test_what_is_the_same_stays(reasons: list[str], expected: str) -> None:
    """Only the values that differ between the reasons become dots."""
    assert told(found(*reasons)) == [(expected, len(reasons))]


def test_few_reasons_stay_as_they_are() -> None:
    """Each is a cause of its own."""
    reasons = [f"SOAPJMS_bindingVersion is '0.{number}', not 1.0" for number in range(MAX_CAUSES)]
    assert told(found(*reasons)) == [(each, 1) for each in sorted(reasons)]


PARTS: Final = ["'a'", "'b 1'", '"c"', "'", '"', "\\", "…", " ", ".", ":", "x", "1", "20 Nov 2026, 19:32:08 UTC", "5 s"]
TEXTS: Final = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@given(TEXTS, st.data())
def test_values_are_found_again(reason: str, data: st.DataObject) -> None:
    """Whichever of them are dots, in texts that a peer may have written."""
    parts = VALUE.split(reason)
    kept = [part if number % 2 == 0 or data.draw(st.booleans()) else "…" for number, part in enumerate(parts)]
    assert VALUE.split("".join(kept)) == kept
    assert in_common(reason, "".join(kept)) == "".join(kept)


@given(st.lists(st.tuples(TEXTS, st.sampled_from(MANY)), max_size=8), st.integers(0, 100), st.integers(0, 100))
def test_the_causes_do_not_depend_on_the_order(texts: list[tuple[str, int]], one: int, other: int) -> None:
    """Nor on how the log was cut, nor on a way through JSON."""
    reasons = [f"{text} '{number * each}' {text}" for text, each in texts for number in range(6)]
    wanted = told(found(*reasons))
    cuts = [0, *sorted((min(one, len(reasons)), min(other, len(reasons)))), len(reasons)]
    assert told(added(found(*reasons[begin:end]) for begin, end in pairwise(cuts))) == wanted
    assert told(found(*reversed(reasons))) == wanted


def added(parts: Iterable[Findings]) -> Findings:
    """Add up the findings of parts, each after a way through JSON, the last one first."""
    whole = Findings()
    for each in reversed([*parts]):
        whole.add(Findings.from_members(json.loads(json.dumps(each.to_members()))))
    return whole
