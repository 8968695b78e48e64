"""The test vectors: each exchange ends in its verdicts, and a live node answers its request with its subcode."""

from __future__ import annotations

from typing import Any

import pytest
from vector_kit import BASE, VECTORS, exchange_of, of_each_case, setting_of, shows

from soapjms.protocol.assertions import ASSERTIONS, Assertion, judge
from soapjms.protocol.exchange import Pattern
from soapjms.protocol.record import from_members, to_members
from soapjms.protocol.responding import RequestRefused, RespondingNode

SPECIFIED = [
    *(f"Conformance-{number}" for number in range(1000, 1005)),
    *(f"Protocol-{number}" for number in range(2001, 2042)),
    *(f"Protocol-{number}" for number in (2050, 2051, 2060, 2070, 2071)),
    *(f"WSDLUsage-{number}" for number in range(3001, 3005)),
]


@of_each_case
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


@of_each_case
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


REQUIREMENTS = {
    "2.2 what is present is processed as specified": ["Local-2.2-processed"],
    "2.2.1 jndiContextParameter: name, value, String, may repeat": ["Local-2.2.1-contextParameter"],
    "2.2.2 topicReplyToName is ignored for jndi": ["Local-2.2.2-topicReplyToName"],
    "2.2.2 topicReplyToName is ignored beside replyToName": ["Local-2.2.2-topicReplyToName"],
    "2.2.2 the response goes where it is to go": ["Local-2.2.2-replyDestination"],
    "2.2.3 a fault has isFault": ["Local-2.2.3-isFault", "Local-2.2.3-isFaultType"],
    "2.2.3 isFault is false if absent or 0": ["Local-2.2.3-isFaultRead"],
    "2.4 contentType and body match": ["Local-2.4-mediaType", "Local-2.4-version"],
    "2.4 text/xml, application/soap+xml, multipart/related": ["Local-2.4-mediaType", "Local-2.4-version"],
    "2.6.2.3 the response has the request's delivery mode": ["Local-2.6.2.3-deliveryMode"],
    "2.6.1.2 which response is correlated": ["Local-2.6.1.2-correlated"],
    "2.8 where a fault has its subcode": ["Local-2.8-shape"],
    "3.4.2 the transport attribute": ["Local-3.4.2-transport"],
    "3.4.3 soapAction on the SOAP operation": ["Local-3.4.3-soapAction"],
    "REC 2.2.3 contentEncoding, missingSoapAction": ["Local-2.2.3-contentEncoding", "Local-2.2.3-missingSoapAction"],
    "REC 2.4 BytesMessage and TextMessage": ["Local-2.4-writeBytes", "Local-2.4-bothTypes"],
    "REC 2.4.1 the declared encoding of a TextMessage": ["Local-2.4.1-textEncoding"],
    "REC 3.3 the location is a JMS destination": ["Local-3.4.2-location"],
}
"""What the specification demands without an id, and the ids that we gave it."""


def test_what_has_no_id_has_one_of_ours() -> None:
    """Each requirement that carries no assertion id is in the table all the same."""
    ids = {row.id for row in ASSERTIONS}
    assert {each for named in REQUIREMENTS.values() for each in named} <= ids


@pytest.mark.parametrize("name", BASE)
def test_base_records(name: str) -> None:
    """The base records are whole capture records."""
    assert to_members(from_members(BASE[name])) == BASE[name]


def test_patterns_are_covered() -> None:
    """The vectors show every pattern of exchange that has a message."""
    patterns = {exchange_of(case).pattern for vector in VECTORS.values() for case in vector["cases"]}
    assert patterns == set(Pattern) - {Pattern.LATE_COPY}
