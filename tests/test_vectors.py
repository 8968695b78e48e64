"""The test vectors: each exchange ends in its verdicts, and a live node answers its request with its subcode."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from vector_kit import BASE, CASES, VECTORS, exchange_of, setting_of

from soapjms.protocol.assertions import ASSERTIONS, Assertion, judge
from soapjms.protocol.exchange import Pattern
from soapjms.protocol.names import EDITIONS
from soapjms.protocol.record import from_members, to_members
from soapjms.protocol.responding import RequestRefused, RespondingNode

SPECIFIED = [
    *(f"Conformance-{number}" for number in range(1000, 1005)),
    *(f"Protocol-{number}" for number in range(2001, 2042)),
    *(f"Protocol-{number}" for number in (2050, 2051, 2060, 2070, 2071)),
    *(f"WSDLUsage-{number}" for number in range(3001, 3005)),
]


@pytest.mark.parametrize(("case", "profile"), CASES)
def test_verdicts(case: dict[str, Any], profile: str) -> None:
    """The exchange ends in the verdicts and the subcodes that the vector states."""
    verdicts = list(judge(exchange_of(case), setting_of(case, profile)))
    expected = case["expected"][profile]
    for name, outcome in expected["verdicts"].items():
        found = [str(each.outcome) for each in verdicts if each.assertion == name]
        wanted = [] if outcome is None else outcome if isinstance(outcome, list) else [outcome]
        assert found == wanted, [each for each in verdicts if each.assertion == name]
    own = [code for each in verdicts if each.record.direction != "response" for code in each.expected_subcodes]
    assert list(dict.fromkeys(map(str, own))) == expected["subcodes"]


@pytest.mark.parametrize(("case", "profile"), CASES)
def test_live_node(case: dict[str, Any], profile: str) -> None:
    """A live responding node answers the request with the first of the subcodes, or takes it where there is none."""
    exchange = exchange_of(case)
    if exchange.request is None or exchange.request.truncated:
        assert case["expected"][profile]["subcodes"] == []
        return
    event = RespondingNode(setting_of(case, profile)).receive(exchange.request.message)
    subcode = event.subcode if isinstance(event, RequestRefused) else None
    assert [subcode] == (case["expected"][profile]["subcodes"] or [None])[:1]
    if isinstance(event, RequestRefused):
        assert event.one_way is (exchange.request.message.reply_to is None)


def shows(row: Assertion, case: dict[str, Any]) -> set[str]:
    """Return how an assertion ends in a case, in the editions where it has an id of its own."""
    outcomes = set()
    for profile in EDITIONS.values():
        name = profile.assertion_id(row.id)
        if name is not None and OWNERS[profile.name][name] == 1:
            named = case["expected"][profile.name]["verdicts"][name]
            outcomes.update(named if isinstance(named, list) else [named])
    return outcomes


OWNERS = {
    profile.name: Counter(profile.assertion_id(row.id) for row in ASSERTIONS if row.check is not None)
    for profile in EDITIONS.values()
}


@pytest.mark.parametrize("row", [row for row in ASSERTIONS if row.check is not None], ids=lambda row: row.id)
def test_every_check_has_its_vector(row: Assertion) -> None:
    """Each assertion that can be judged has a vector of its name: three exchanges that satisfy it, three that do not.

    Where it needs input or rests on others there is a case without the input, and one where another is broken.
    """
    outcomes = [shows(row, case) for case in VECTORS[row.id]["cases"]]
    assert sum("passed" in each for each in outcomes) >= 3
    assert sum(bool(each & {"failed", "warning"}) for each in outcomes) >= 3
    assert any("missingInput" in each for each in outcomes) or not row.needs
    assert any("prereqFailed" in each for each in outcomes) or not set(row.after) - {"Protocol-2016"}
    assert len({case["description"] for case in VECTORS[row.id]["cases"]}) == len(outcomes)


def test_no_vector_without_an_assertion() -> None:
    """Each vector is named for an assertion that is judged."""
    assert set(VECTORS) == {row.id for row in ASSERTIONS if row.check is not None}


def test_every_assertion_of_the_specification_is_in_the_table() -> None:
    """All 55 assertions of the specification are there exactly once; what has no id of its own is called Local."""
    ids = [row.id for row in ASSERTIONS]
    assert len(SPECIFIED) == 55
    assert sorted(name for name in ids if not name.startswith("Local-")) == sorted(SPECIFIED)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", BASE)
def test_base_records(name: str) -> None:
    """The base records are whole capture records."""
    assert to_members(from_members(BASE[name])) == BASE[name]


def test_patterns_are_covered() -> None:
    """The vectors show every pattern of exchange."""
    patterns = {exchange_of(case).pattern for vector in VECTORS.values() for case in vector["cases"]}
    assert patterns == set(Pattern)
