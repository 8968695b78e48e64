"""The remedies of the report: each assertion has a rule and a remedy in plain sentences, and none is for nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from soapjms.protocol.assertions import ASSERTIONS, Assertion
from soapjms.protocol.assertions.habits import DIALECT_MARKS
from soapjms.protocol.assertions.model import assertion_of
from soapjms.protocol.names import PROFILES, Subcode
from soapjms.replay.report.remedies import REFERENCE, STACKS, Remedy, rule_text, rule_texts, subcode_texts, table

MAX_QUOTATION_CHARACTERS = 105
MARKUP = re.compile(r"[<>`*]|\]\(|&\w+;")
every_assertion = pytest.mark.parametrize("row", ASSERTIONS, ids=lambda row: row.id)


def remedies_of(row: Assertion) -> Iterator[Remedy]:
    """Yield all remedies of an assertion."""
    text = rule_text(row)
    yield text.general
    yield from text.by_stack.values()


def references(value: Any) -> Iterator[str]:
    """Yield the names of the notes that a part of the file refers to."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name != "code":
                yield from references(each)
    elif isinstance(value, str) and value.startswith(REFERENCE):
        yield value.removeprefix(REFERENCE)


@every_assertion
def test_every_assertion_has_a_remedy(row: Assertion) -> None:
    """In sentences that end with a period, without markup and on one line."""
    text = rule_text(row)
    assert text.section == row.section
    for each in (text.rule, *(remedy.text for remedy in remedies_of(row))):
        assert each.endswith(".")
        assert each == each.strip()
        assert "\n" not in each
        assert not MARKUP.search(each), each


@every_assertion
def test_code_is_one_line(row: Assertion) -> None:
    """A setting or a line of code can be copied."""
    for remedy in remedies_of(row):
        assert remedy.code == remedy.code.strip()
        assert remedy.code.isprintable()
        assert len(remedy.code) <= 120


@every_assertion
def test_quotations_are_short(row: Assertion) -> None:
    """At most one line; none for what only the Recommendation of 2012 says, whose text is not at hand."""
    quotation = rule_text(row).quotation
    assert len(quotation) <= MAX_QUOTATION_CHARACTERS
    assert quotation == " ".join(quotation.split())
    if row.section.startswith("REC"):
        assert quotation == ""
    if not row.id.startswith("Local-"):
        assert quotation


def test_the_file_has_nothing_superfluous() -> None:
    """Its assertions, subcodes and stacks exist, and each note is used."""
    texts = table()
    assert texts.keys() == {"subcode", "note", "assertion"}
    assert texts["assertion"].keys() == {row.id for row in ASSERTIONS}
    assert set(texts["subcode"]) == set(Subcode)
    assert {name for each in texts["assertion"].values() for name in each} == {
        "rule",
        "quotation",
        "general",
        *STACKS,
    }
    assert set(references(texts["assertion"])) == set(texts["note"])


def test_the_stacks_are_those_that_are_guessed() -> None:
    """A remedy is found by the stack that a message shows; soapjms shows no marks."""
    assert set(STACKS) == {name for name, _ in DIALECT_MARKS} | {"soapjms"}


def test_the_remedy_of_a_subcode_is_reused() -> None:
    """A sender that breaks an assertion with a subcode gets the advice of the subcode, unless there is better."""
    row = next(each for each in ASSERTIONS if each.id == "Protocol-2027")
    assert rule_text(row).general == Remedy(subcode_texts()[Subcode.UNSUPPORTED_MESSAGE_FORMAT].remedy)


def test_a_node_that_answers_wrongly_gets_its_own_remedy() -> None:
    """The advice of a subcode is for the sender of the request, not for the service that does not refuse it."""
    for row in ASSERTIONS:
        if row.reaction_to and row.subcode is not None:
            assert rule_text(row).general.text != subcode_texts()[row.subcode].remedy


@pytest.mark.parametrize("name", PROFILES)
def test_texts_by_the_ids_of_a_profile(name: str) -> None:
    """The report finds them by the ids that its verdicts have."""
    edition = PROFILES[name]
    known = rule_texts(name)
    assert set(map(assertion_of, known)) == {edition.assertion_id(row.id) for row in ASSERTIONS} - {None}
    assert known["Protocol-2010"].by_stack["cxf"].code == 'headers.setSOAPJMSBindingVersion("1.0")'
    assert known["Protocol-2010"].rule == "SOAPJMS_bindingVersion is present and 1.0."


def test_settings_of_cxf_exist() -> None:
    """Parameters of a jms: URI that are advised are ones that some stack or the specification knows."""
    known = {"deliveryMode", "timeToLive", "priority", "replyToName", "topicReplyToName", "targetService"}
    known |= {"messageType", "useConduitIdSelector", "jndiConnectionFactoryName"}
    codes = [remedy.code for row in ASSERTIONS for remedy in remedies_of(row)]
    advised = {name for code in codes if code.startswith("jms:") for name in re.findall(r"[?&](\w+)=", code)}
    assert advised
    assert advised <= known


COMMONEST = (
    "Protocol-2010 Protocol-2012 Protocol-2016 Protocol-2021 Protocol-2022 Protocol-2024 Protocol-2027 Protocol-2030 "
    "Protocol-2036 Protocol-2038 Protocol-2050 Protocol-2019 Local-2.2.4-syntax Local-2.2.3-missingSoapAction "
    "Local-2.4-mediaType Local-2.4-version Local-2.6.2.3-expiration Local-2.2.3-isFaultStated "
    "Protocol-2011 Protocol-2013 Protocol-2017 Protocol-2023 Protocol-2025 Protocol-2026 Protocol-2028"
).split()
"""The rules that clients and services break most."""


@pytest.mark.parametrize("name", COMMONEST)
def test_the_commonest_rules_have_a_remedy_for_each_stack(name: str) -> None:
    """Its setting, or plainly that none is known."""
    text = rule_text(next(row for row in ASSERTIONS if row.id == name))
    assert text.by_stack.keys() == STACKS.keys()


def test_no_stack_is_left_with_little() -> None:
    """Of the rules that can be seen, each stack has a remedy for most."""
    seen = [row for row in ASSERTIONS if not rule_text(row).general.text.startswith("No log shows it")]
    for stack in STACKS:
        assert sum(stack in rule_text(row).by_stack for row in seen) >= 0.6 * len(seen), stack
