"""Judging an exchange: a verdict for every assertion that applies to its messages.

The live node and the replay both judge here, by different rows of the table.

Spec: capture record, "Verdicts".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from brokers.message import Message, MessageType
from soapjms.protocol.assertions.model import (
    BROKEN,
    CARRIERS,
    MET,
    Assertion,
    Case,
    Sees,
    Setting,
    Verdict,
    VerdictOutcome,
    always,
    depends_on_version,
)
from soapjms.protocol.assertions.request_checks import is_multipart, is_simple
from soapjms.protocol.assertions.request_table import BODY_ASSERTIONS, PROPERTY_ASSERTIONS
from soapjms.protocol.assertions.response_table import ASSERTIONS, REQUEST_FAULTS
from soapjms.protocol.content import is_plain
from soapjms.protocol.envelope import serialize, wrap
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.names import Level, Profile, SoapVersion, Subcode, profile
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import PropertiesShape, Reading

Ended = dict[str, VerdictOutcome]
"""The outcomes of the rows judged so far, except those that passed or were not applicable."""


def judge(exchange: Exchange, setting: Setting, among: Iterable[Assertion] = ASSERTIONS) -> Iterator[Verdict]:
    """Yield a verdict for each assertion of the profile and each message or pair of the exchange that it is about.

    Lazy: a caller that stops at the first violation has judged no further. `not_observable` has the assertions that no
    log can show.

    Args:
        exchange: the exchange to judge.
        setting: the given facts.
        among: rows of the table, in its order.
    """
    return judge_readings(setting, readings(exchange, setting), tuple(among))


def readings(exchange: Exchange, setting: Setting) -> dict[Carrier, Reading]:
    """Return the messages of an exchange, read for judging."""
    first = Carrier.ONE_WAY if exchange.pattern is Pattern.ONE_WAY else Carrier.REQUEST
    found = ((first, exchange.request), (Carrier.RESPONSE, exchange.response))
    return {
        carrier: Reading.of(record, setting.profile, setting.limits) for carrier, record in found if record is not None
    }


def judge_readings(
    setting: Setting, messages: dict[Carrier, Reading], rows: tuple[Assertion, ...]
) -> Iterator[Verdict]:
    """Judge messages that `readings` returned; see `judge`."""
    request = messages.get(Carrier.REQUEST) or messages.get(Carrier.ONE_WAY)
    response = messages.get(Carrier.RESPONSE)
    subcodes: dict[str, Subcode] = {}
    spared: set[Subcode] = set()
    known = setting.properties is not None
    for carrier, message in messages.items():
        case = Case(setting, message, carrier, request, response, subcodes, spared)
        yield from judge_case(case, rows_for(rows, carrier, setting.profile.name, known))
    pairs = rows_for(rows, None, setting.profile.name)
    if pairs and Carrier.ONE_WAY not in messages:
        message = messages.get(Carrier.RESPONSE) or messages[Carrier.REQUEST]
        case = Case(setting, message, Carrier.RESPONSE, request, response, subcodes, spared, is_pair=True)
        yield from judge_case(case, pairs)


def judge_request(reading: Reading, carrier: Carrier, setting: Setting) -> Iterable[Verdict]:
    """Judge a request or one-way message by the rows for a responding node; return the verdicts of the broken ones.

    The rows on properties do not depend on the body, and which other rows apply depends on the properties too. So the
    rows that are left to judge are cached by the properties, as most senders repeat the same ones. Of a plain document
    the others depend on the SOAP version alone.
    """
    described, message = reading.described, reading.message
    rows = None
    if described.is_short and message.body and described.content_encoding is None:
        key = setting.variants, setting.strict, carrier, message.message_type
        left = described.rows_left.get(key, UNKNOWN)
        if left is UNKNOWN:
            left = described.rows_left[key] = _rows_left(described.shape, *key)
        if left is not None:
            rows, fitting = left
            if fitting and is_plain(message.body, described.charset):
                envelope = reading.read_plain()
                if envelope is not None and envelope.version in fitting:
                    return ()
    if rows is None:
        rows = rows_for(REQUEST_FAULTS, carrier, setting.profile.name)
    return judge_case(Case(setting, reading, carrier, request=reading), rows, only_broken=True)


UNKNOWN: Final[Any] = object()


class RowsLeft(NamedTuple):
    """The rows on the body that are left to judge for a message, and the SOAP versions in which a plain document passes
    them all."""

    rows: tuple[Assertion, ...]
    fitting: frozenset[SoapVersion]


@lru_cache(maxsize=1024)
def _rows_left(
    shape: PropertiesShape, variants: frozenset[str], strict: bool, carrier: Carrier, message_type: MessageType
) -> RowsLeft | None:
    """Return the rows on the body of a message with these properties; None if a row on the properties is broken."""
    described = shape.described
    edition = described.profile
    setting = Setting(profile=edition, variants=variants, strict=strict)

    def case_of(body: bytes | str) -> Case:
        message = Message(message_type=message_type, body=body, properties=described.properties)
        reading = Reading(message, edition)
        return Case(setting, reading, carrier, request=reading)

    case = case_of("<" if message_type is MessageType.TEXT else b"<")
    verdicts = judge_case(case, rows_for(PROPERTY_ASSERTIONS, carrier, edition.name), only_broken=False)
    if any(each.outcome not in (VerdictOutcome.PASSED, VerdictOutcome.NOT_APPLICABLE) for each in verdicts):
        return None
    rows = tuple(row for row in rows_for(BODY_ASSERTIONS, carrier, edition.name) if row.applies(case))
    fitting = frozenset[SoapVersion]()
    if all(depends_on_version(row.check) for row in rows):
        samples = {version: case_of(serialize(wrap(None, version))) for version in SoapVersion}
        fitting = frozenset(each for each, sample in samples.items() if not [*judge_case(sample, rows, True)])
    return RowsLeft(
        tuple(replace(row, applies=always) if row.applies in BY_PROPERTIES else row for row in rows), fitting
    )


BY_PROPERTIES: Final = frozenset({is_simple, is_multipart})
"""Tests that depend on the properties alone, so that they are not repeated for messages with the same properties."""


@lru_cache(maxsize=256)
def rows_for(
    rows: tuple[Assertion, ...], carrier: Carrier | None, profile_name: str, properties_known: bool = False
) -> tuple[Assertion, ...]:
    """Return a profile's rows for a message, or for a pair if `carrier` is None, with their levels in the profile."""
    edition = profile(profile_name)
    return tuple(
        replace(row, level=row.level_in(edition))
        for row in rows
        if (row.sees is Sees.PAIR if carrier is None else carrier in CARRIERS[row.sees])
        and edition.assertion_id(row.id) is not None
        and (properties_known or not row.by_properties)
    )


def judge_case(case: Case, rows: tuple[Assertion, ...], only_broken: bool = False) -> Iterator[Verdict]:
    """Judge one message or pair; with `only_broken`, yield only the verdicts of broken rows."""
    ended: Ended = {}
    for row in rows:
        found = outcome_of(row, case, ended)
        if only_broken and (found is PASSED or found is NOT_APPLICABLE):
            continue  # nearly always
        outcome, reason = found
        if found is not PASSED and found is not NOT_APPLICABLE:
            note_end(row, case, outcome, ended)
            if outcome in BROKEN:
                yield broken_verdict(row, case, outcome, reason)
                continue
        if not only_broken:
            yield verdict_of(row, case, (outcome, reason))


def note_end(row: Assertion, case: Case, outcome: VerdictOutcome, ended: Ended) -> None:
    """Note the outcome of a row that did not pass, if the rows that depend on it cannot be judged then."""
    if outcome not in BROKEN or row.blocks is always or row.blocks(case):
        ended[row.id] = outcome


def broken_verdict(row: Assertion, case: Case, outcome: VerdictOutcome, reason: str | None) -> Verdict:
    """Note the fault that a broken row calls for, and make its verdict; a warning if the dialect tolerates it."""
    tolerated = row.id in case.setting.profile.tolerated
    if tolerated:
        outcome = VerdictOutcome.WARNING
    if row.subcode is not None and case.carrier is not Carrier.RESPONSE:
        subcode = row.subcode
        assert subcode in case.setting.profile.subcodes, f"{subcode} is no subcode of {case.setting.profile.name}"
        if tolerated or not row.faults_when(case):
            case.spared.add(subcode)
        else:
            case.subcodes[row.id] = subcode
    expected = _expected(row, case)
    observed = None
    if expected and case.response is not None and case.response.fault is not None:
        observed = case.response.fault.subcode
    name, is_answer = _named(row.id, case), shares_id(row, case.setting.profile)
    return Verdict(name, row.level, outcome, reason, case.message.record, expected, observed, is_answer)


def verdict_of(row: Assertion, case: Case, found: tuple[VerdictOutcome, str | None]) -> Verdict:
    """Make the verdict of a row that was not broken."""
    outcome, reason = found
    is_answer = shares_id(row, case.setting.profile)
    return Verdict(_named(row.id, case), row.level, outcome, reason, case.message.record, is_answer=is_answer)


def shares_id(row: Assertion, profile: Profile) -> bool:
    """Say whether a row is on the answer to a breach, and the profile has its id for the breach as well."""
    return bool(row.reaction_to) and row.id in _sharing(profile.name)


@lru_cache(maxsize=16)
def _sharing(profile_name: str) -> frozenset[str]:
    edition = profile(profile_name)
    breaches = {edition.assertion_id(row.id) for row in ASSERTIONS if not row.reaction_to}
    return frozenset(row.id for row in ASSERTIONS if row.reaction_to and edition.assertion_id(row.id) in breaches)


def _expected(row: Assertion, case: Case) -> tuple[Subcode, ...]:
    if row.sees is Sees.PAIR:
        return tuple(dict.fromkeys(case.subcodes.values())) if row.reaction_to else ()
    return (case.subcodes[row.id],) if row.id in case.subcodes and case.carrier is not Carrier.RESPONSE else ()


def outcome_of(row: Assertion, case: Case, ended: Ended) -> tuple[VerdictOutcome, str | None]:
    if row.reaction_to and case.subcodes.keys().isdisjoint(row.reaction_to):
        return NOT_APPLICABLE
    if case.is_pair and (case.request is None or case.response is None):
        half = "request" if case.request is None else "response"
        return VerdictOutcome.MISSING_INPUT, NOT_CAPTURED.format(half)
    if row.applies is not always and not row.applies(case):
        return NOT_APPLICABLE
    if ended:
        for earlier in row.after:
            found = ended.get(earlier)
            if found is VerdictOutcome.MISSING_INPUT:
                return found, f"{RESTS_ON}{_named(earlier, case)}{UNJUDGED}"
            if found is not None:
                return VerdictOutcome.PREREQ_FAILED, f"{RESTS_ON}{_named(earlier, case)}"
    for need in row.needs:
        if not MET[need](case):
            return VerdictOutcome.MISSING_INPUT, f"the capture lacks {need}"
    assert row.check is not None
    reason = row.check(case)
    if reason is None:
        return PASSED
    return (VerdictOutcome.WARNING if row.level is Level.SHOULD else VerdictOutcome.FAILED), reason


RESTS_ON: Final = "rests on "
"""How the reason of a verdict begins whose prerequisite failed; the id of the prerequisite follows."""
UNJUDGED: Final = ", which could not be judged"
"""How the reason of a verdict ends whose prerequisite could not be judged."""
NOT_CAPTURED: Final = "the {} was not captured"
"""The reason of a verdict on half a pair: without its request, or without its response."""
PASSED: Final = (VerdictOutcome.PASSED, None)
NOT_APPLICABLE: Final = (VerdictOutcome.NOT_APPLICABLE, None)


def _named(cr_id: str, case: Case) -> str:
    return case.setting.profile.assertion_id(cr_id) or cr_id


SAME_MISTAKES: Final = {"Protocol-2009": "Protocol-2021", "Protocol-2024": "Protocol-2021"}
"""Assertions that a message may break by the same mistake as another: targetService left in the requestURI."""


def mistake_of(verdict: Verdict, broken: Mapping[str, Verdict], setting: Setting) -> str:
    """Return the rule that was broken by the same mistake as a verdict's, which mending that mends; empty if none was.

    Args:
        verdict: the verdict of a broken assertion.
        broken: the earlier ones of the same message, by rule.
        setting: the setting by which it was judged.
    """
    other = broken.get(SAME_MISTAKES.get(verdict.assertion, ""))
    if other is None or other.outcome is not verdict.outcome:
        return ""
    is_by_uri = verdict.assertion == "Protocol-2009" and setting.properties is None  # nothing else states the value
    return other.rule if is_by_uri or other.reason == verdict.reason else ""


def violations(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Yield the verdicts of broken assertions."""
    return (verdict for verdict in verdicts if verdict.outcome in BROKEN)


@lru_cache(maxsize=16)
def _unseen(profile_name: str, properties_known: bool) -> dict[str, str]:
    edition = profile(profile_name)
    rows = [row for row in ASSERTIONS if row.check is None or (row.by_properties and not properties_known)]
    seen = {edition.assertion_id(row.id) for row in ASSERTIONS if row not in rows}
    named = ((edition.assertion_id(row.id), row.why_not) for row in rows)
    return {name: why for name, why in named if name is not None and why is not None and name not in seen}


def not_observable(setting: Setting) -> dict[str, str]:
    """Return the reason for each assertion that no log can show, by its id; the same for a whole run."""
    return dict(_unseen(setting.profile.name, setting.properties is not None))
