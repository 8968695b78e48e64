"""The judge and its table: what a verdict says, what is judged at all, and the habits that are only noted.

What each assertion says is shown by its vectors; here they serve to show what holds for all of them.
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from protocol_kit import changed, endpoint, envelope, started
from vector_kit import exchange_of, members_of, of_each_case, setting_of

from brokers.message import MessageType
from soapjms.protocol import names
from soapjms.protocol.assertions import (
    ASSERTIONS,
    HABITS,
    MISDIRECTED,
    REQUEST_FAULTS,
    Binds,
    Level,
    Need,
    Sees,
    Setting,
    Verdict,
    VerdictOutcome,
    habits,
    judge,
    judge_readings,
    judge_request,
    not_observable,
    violations,
)
from soapjms.protocol.assertions.judge import readings
from soapjms.protocol.assertions.model import assertion_of, rule_name
from soapjms.protocol.content import gzipped
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.names import CONTENT_ENCODING, CR_2009, REC_2012, Mep, Profile, SoapVersion, Subcode
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import from_members
from soapjms.protocol.requesting import findings

EDITIONS = pytest.mark.parametrize("profile", [CR_2009, REC_2012], ids=lambda each: each.name)
BROKEN = (VerdictOutcome.FAILED, VerdictOutcome.WARNING)


def exchange(*records: dict[str, Any]) -> Exchange:
    """Pair records that are given as patches over the base records of the vectors."""
    return exchange_of({"records": list(records)})


def outcome_of(assertion: str, *records: dict[str, Any], setting: Setting | None = None) -> list[VerdictOutcome]:
    """Judge an exchange and return the outcomes of one assertion."""
    return [each.outcome for each in judge(exchange(*records), setting or Setting()) if each.assertion == assertion]


CALL = ({"base": "request"}, {"base": "response"})
REFUSED = ({"base": "request", "properties": {"SOAPJMS_contentType": None}}, {"base": "fault"})


# The table


@pytest.mark.parametrize("row", ASSERTIONS, ids=lambda row: row.id)
def test_rows_hold_together(row: Any) -> None:
    """A row can be judged, or says why no log can show it; it rests on rows that are judged before it."""
    assert row.title
    assert row.section
    assert (row.check is None) is (row.sees is Sees.NOTHING)
    assert (row.why_not is not None) is (row.check is None or row.by_properties)
    above = [each.id for each in ASSERTIONS[: ASSERTIONS.index(row)]]
    assert set(row.after) <= set(above)
    assert set(row.reaction_to) <= set(above)
    assert not row.reaction_to or row.sees is Sees.PAIR
    for profile in names.EDITIONS.values():
        if row.subcode is not None and profile.assertion_id(row.id) is not None:
            assert row.subcode in profile.subcodes


def test_every_subcode_has_a_row() -> None:
    """Each fault subcode is called for by a rule on messages that a responding node looks at."""
    assert {row.subcode for row in REQUEST_FAULTS} - {None} == set(Subcode)


def test_property_checks_come_before_the_body_is_read() -> None:
    """No rule that needs the body stands before one that needs properties alone."""
    needs_body = [Need.BODY in row.needs for row in REQUEST_FAULTS]
    assert needs_body == sorted(needs_body)


def test_levels() -> None:
    """Only a row of level SHOULD ends in a warning; a row without keyword is judged as a MUST."""
    assert Counter(row.level for row in ASSERTIONS)[Level.NONE] > 0
    assert {row.level for row in ASSERTIONS} == set(Level)
    assert {row.binds for row in ASSERTIONS} == set(Binds)


@pytest.mark.parametrize(
    ("assertion", "of_2009", "of_2012"),
    [
        ("Protocol-2010", Level.MUST, Level.MUST),
        ("Protocol-2025", Level.NONE, Level.MUST),
        ("Protocol-2026", Level.NONE, Level.MUST),
        ("Protocol-2028", Level.NONE, Level.MUST),
        ("Protocol-2071", Level.NONE, Level.MUST),
        ("Protocol-2017", Level.NONE, Level.MUST),  # since 2012 a part of Protocol-2016, which is one
        ("Protocol-2051", Level.MUST_NOT, Level.MUST_NOT),
        ("Local-3.4.2-transport", Level.NONE, Level.MUST),
        ("Local-2.2.2-replyDestination", Level.SHOULD, Level.NONE),
    ],
)
def test_the_level_is_that_of_the_edition(assertion: str, of_2009: Level, of_2012: Level) -> None:
    """What the Recommendation says with another keyword than the Candidate has another level there."""
    (row,) = (each for each in ASSERTIONS if each.id == assertion)
    assert (row.level_in(CR_2009), row.level_in(REC_2012), row.level_in(names.CXF)) == (of_2009, of_2012, of_2012)


def test_assertions_that_an_edition_merged_have_one_level() -> None:
    """Whichever of them ends in a verdict: one id, one level; and no edition has a level for what it does not have."""
    for profile in names.PROFILES.values():
        levels: dict[str, set[Level]] = {}
        for row in ASSERTIONS:
            name = profile.assertion_id(row.id)
            assert name is not None or row.id not in profile.levels
            levels.setdefault(name or "", set()).add(row.level_in(profile))
        levels.pop("", None)
        assert {name: found for name, found in levels.items() if len(found) > 1} == {}
        assert set(profile.levels) <= {row.id for row in ASSERTIONS}


@EDITIONS
def test_a_verdict_has_the_level_of_its_edition(profile: Profile) -> None:
    """A request that names a strange variant and is served: a MUST since 2012, before that nothing that is said."""
    log = {"base": "request", "properties": {"SOAPJMS_requestURI": "jms:strange:orders"}}, {"base": "response"}
    (found,) = (each for each in judge(exchange(*log), Setting(profile=profile)) if each.assertion == "Protocol-2071")
    expected = {"cr-2009": (Level.NONE, VerdictOutcome.NOT_APPLICABLE), "rec-2012": (Level.MUST, VerdictOutcome.FAILED)}
    assert (found.level, found.outcome) == expected[profile.name]
    supported = Setting(profile=profile, variants=frozenset({"strange"}))
    assert outcome_of("Protocol-2071", *log, setting=supported) == [VerdictOutcome.NOT_APPLICABLE]


# Verdicts


@of_each_case
def test_verdicts_of_all_vectors(case: dict[str, Any], profile: str) -> None:
    """Whatever is judged: each verdict's reason, level and subcodes fit its outcome, and nothing is left out."""
    found, setting = exchange_of(case), setting_of(case, profile)
    verdicts = list(judge(found, setting))
    for each in verdicts:
        assert each.record in found.messages
        assert (each.reason is None) is (each.outcome in (VerdictOutcome.PASSED, VerdictOutcome.NOT_APPLICABLE))
        assert each.outcome is not VerdictOutcome.WARNING or each.level is Level.SHOULD
        assert each.outcome is not VerdictOutcome.FAILED or each.level is not Level.SHOULD
        assert set(each.expected_subcodes) <= setting.profile.subcodes
        assert not each.expected_subcodes or each.outcome in BROKEN
        assert each.observed_subcode is None or each.expected_subcodes
    judged = Counter(each.assertion for each in verdicts)
    possible = {setting.profile.assertion_id(row.id) for row in ASSERTIONS if row.check is not None}
    assert set(judged) <= possible
    assert not set(judged) & set(not_observable(setting))
    assert list(violations(verdicts)) == [each for each in verdicts if each.outcome in BROKEN]
    for carrier, message in readings(found, setting).items():
        if carrier is not Carrier.RESPONSE:
            in_full = list(violations(judge_readings(setting, {carrier: message}, REQUEST_FAULTS)))
            assert list(judge_request(message, carrier, setting)) == in_full
            assert list(judge_request(message, carrier, setting)) == in_full  # from what was remembered
    assert pickle.loads(pickle.dumps(setting)) == setting


CHARSETS = ["", *(f"; charset={each}" for each in ("utf-8", "UTF-8", "us-ascii", "utf-7", "utf-16", "ibm037", "none"))]
CONTENT_TYPES = [
    *(f"{media_type}{charset}" for media_type in ("text/xml", "application/soap+xml") for charset in CHARSETS),
    'application/soap+xml; charset=utf-8; action="urn:a"',
    'multipart/related; type="text/xml"',
    "text/plain",
    None,
]


@EDITIONS
@pytest.mark.parametrize("content_type", CONTENT_TYPES)
@pytest.mark.parametrize("carrier", [Carrier.REQUEST, Carrier.ONE_WAY])
def test_plain_documents(profile: Profile, content_type: str | None, carrier: Carrier) -> None:
    """A plain document is judged by its version alone, with the verdicts of all rows: whatever its text, whatever else
    it might be taken for, and in any order.
    """
    version_of = {version: envelope(version, "a") for version in SoapVersion}
    bodies: list[bytes | str] = [
        *version_of.values(),
        *(body.replace(b">a<", b">+AGE- b<") for body in version_of.values()),
        *(body + b" " for body in version_of.values()),  # of another length
        *(b"<?xml version='1.0' encoding='latin-1'?>" + body for body in version_of.values()),
        *(body.replace(b">a<", ">ä<".encode()) for body in version_of.values()),
        *(body.decode() for body in version_of.values()),
        b" " + envelope(),
        envelope()[:-1],
        b"<other/>",
        b"<",
        b"<\0",
        "<".encode("utf-16-be"),
    ]
    setting = Setting(profile=profile)
    _, base = started(endpoint(profile=profile), Mep.REQUEST_RESPONSE if carrier is Carrier.REQUEST else Mep.ONE_WAY)
    base = changed(base, "contentType") if content_type is None else changed(base, contentType=content_type)
    for body in [*bodies, *reversed(bodies)]:
        kind = MessageType.TEXT if isinstance(body, str) else MessageType.BYTES
        message = replace(base, message_type=kind, body=body)
        in_full = judge_readings(setting, {carrier: Reading(message, profile)}, REQUEST_FAULTS)
        found = judge_request(Reading(message, profile), carrier, setting)
        assert [each.assertion for each in found] == [each.assertion for each in violations(in_full)], body


@EDITIONS
def test_every_row_is_judged_or_not_observable(profile: Profile) -> None:
    """Together the patterns show every assertion of an edition; what no log can show has its reason, once."""
    setting = Setting(profile=profile)
    judged = {each.assertion for log in (CALL, ({"base": "one-way"},)) for each in judge(exchange(*log), setting)}
    unseen = not_observable(setting)
    ids = {profile.assertion_id(row.id) for row in ASSERTIONS} - {None}
    assert judged | set(unseen) == ids
    assert not judged & set(unseen)
    assert all(unseen.values())
    assert "WSDLUsage-3003" in unseen
    unseen.clear()
    assert not_observable(setting)


@EDITIONS
def test_a_right_call_breaks_nothing(profile: Profile) -> None:
    """A call as the edition wants it has no violation, and the pair is judged on its response."""
    answer = {"base": "response", "jms": {"correlation_id": "ID:m-1"}} if profile is CR_2009 else {"base": "response"}
    found = exchange({"base": "request"}, answer)
    verdicts = list(judge(found, Setting(profile=profile)))
    assert list(violations(verdicts)) == []
    (correlation,) = [each for each in verdicts if each.assertion == "Protocol-2038"]
    assert correlation == Verdict("Protocol-2038", Level.MUST, VerdictOutcome.PASSED, None, found.messages[1])


def test_a_violation_says_everything() -> None:
    """A violation names the assertion, what was seen, which faults would be right, and which was the answer."""
    found = exchange(*REFUSED)
    (broken,) = violations(judge(found, Setting()))
    assert (broken.assertion, broken.level, broken.outcome) == ("Protocol-2016", Level.MUST, VerdictOutcome.FAILED)
    assert broken.reason == "SOAPJMS_contentType is missing or empty"
    assert broken.expected_subcodes == (Subcode.MISSING_CONTENT_TYPE,)
    assert broken.observed_subcode == "missingContentType"
    assert broken.record == found.request


def test_a_wrong_answer_lists_all_that_would_be_right() -> None:
    """Where several faults would be right the verdict on the answer lists them in order of preference."""
    request = {"base": "request", "properties": {"SOAPJMS_contentType": None, "SOAPJMS_requestURI": None}}
    broken = [
        each for each in violations(judge(exchange(request, {"base": "response"}), Setting())) if each.expected_subcodes
    ]
    reaction = broken[-1]
    assert reaction.assertion == "Protocol-2022"
    assert reaction.expected_subcodes == (Subcode.MISSING_CONTENT_TYPE, Subcode.MISSING_REQUEST_URI)
    assert reaction.observed_subcode is None
    assert reaction.reason == "the request calls for missingContentType or missingRequestURI; the answer is no fault"


def test_the_judge_is_lazy() -> None:
    """Who stops at the first violation has not had the body read."""
    found = exchange(REFUSED[0])
    assert found.request is not None
    message = readings(found, Setting())
    next(iter(violations(judge_readings(Setting(), message, REQUEST_FAULTS))))
    assert not {"_decoded", "_envelope"} & {name for each in message.values() for name in vars(each)}


def test_part_of_the_table() -> None:
    """A caller may ask for some rows only."""
    rows = [row for row in ASSERTIONS if row.id == "Protocol-2010"]
    assert [each.assertion for each in judge(exchange(*CALL), Setting(), among=rows)] == ["Protocol-2010"] * 2


def test_missing_halves() -> None:
    """What needs both messages misses input where one was not captured; what needs one is judged."""
    alone = Exchange(id="1", pattern=Pattern.RESPONSE_ONLY, response=from_members(members_of({"base": "response"})))
    verdicts = {each.assertion: each for each in judge(alone, Setting())}
    assert verdicts["Protocol-2038"].reason == "the request was not captured"
    assert verdicts["Protocol-2010"].outcome is VerdictOutcome.PASSED
    verdicts = {each.assertion: each for each in judge(exchange({"base": "request"}), Setting())}
    assert verdicts["Protocol-2038"].reason == "the response was not captured"
    assert verdicts["Protocol-2011"].outcome is VerdictOutcome.NOT_APPLICABLE


def test_one_way_messages_have_no_answer() -> None:
    """A one-way message is judged on its own: nothing about a response is missing."""
    verdicts = list(judge(exchange({"base": "one-way"}), Setting()))
    assert VerdictOutcome.MISSING_INPUT not in {each.outcome for each in verdicts}
    assert "Protocol-2038" not in {each.assertion for each in verdicts}


@pytest.mark.parametrize(
    ("direction", "mep", "rule"),
    [
        ("request", None, "Protocol-2050"),
        (None, None, None),
        (None, "request-response", "Protocol-2050"),
        ("one-way", "request-response", "Protocol-2050"),
        ("one-way", None, None),
        ("request", "one-way", None),
    ],
)
def test_the_setting_knows_the_pattern_better(direction: str | None, mep: str | None, rule: str | None) -> None:
    """A message without JMSReplyTo breaks Protocol-2050 where the setting, else the capture, says it is a request."""
    case = {"records": [{"base": "one-way", "direction": direction}], "setting": {"mep": mep}}
    broken = {each.assertion for each in violations(judge(exchange_of(case), setting_of(case, "rec-2012")))}
    assert broken == ({rule} if rule else set())


def test_live_answers_to_another_place() -> None:
    """Protocol-2037: a live exchange shows an answer that went elsewhere, which pairing a log would not."""
    found = exchange(*CALL)
    assert found.request is not None
    assert found.response is not None
    answer = replace(found.response.message, destination=found.request.message.destination)
    (broken,) = findings(found.request.message, answer, Setting())
    assert broken.assertion == "Protocol-2037"
    assert broken.reason == "JMSReplyTo of the request is temporary-queue:ID:r-1, the response went to queue:orders"


def test_no_charset_where_nothing_can_be_compared() -> None:
    """A charset is compared with a body that begins as XML does; anything else is for Protocol-2030 to say."""
    for body in (" <a/>", "Zm9v"):
        record = {"base": "request", "body": body, "properties": {"SOAPJMS_contentType": "text/xml; charset=utf-8"}}
        assert outcome_of("Protocol-2012", record)[0] is VerdictOutcome.NOT_APPLICABLE
        assert outcome_of("Protocol-2030", record) == [VerdictOutcome.FAILED]


# Habits

EMPTY_ENVELOPE = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body/></e:Envelope>"


def with_parts(*ids: str, bare: str | None = None) -> str:
    """Write a multipart body of equal parts with these Content-IDs, in angle brackets but for one."""
    head = "--b\r\nContent-Type: text/xml\r\nContent-ID: "
    written = [each if each == bare else f"<{each}>" for each in ids]
    return "".join(f"{head}{each}\r\n\r\n{EMPTY_ENVELOPE}\r\n" for each in written) + "--b--"


def started_at(content_id: str, written: str = "<{}>") -> dict[str, str]:
    """Write the content type whose start parameter names a part."""
    start = written.format(content_id)
    return {"SOAPJMS_contentType": f'multipart/related; boundary=b; type="text/xml"; start="{start}"'}


NOTED: list[tuple[str, tuple[dict[str, Any], ...], Profile]] = [
    ("quotedSoapAction", ({"base": "request", "properties": {"SOAPJMS_soapAction": '"a"'}},), REC_2012),
    ("isFaultOnRequest", ({"base": "request", "properties": {"SOAPJMS_isFault": False}},), REC_2012),
    (
        "soapActionOnResponse",
        ({"base": "request"}, {"base": "response", "properties": {"SOAPJMS_soapAction": "a"}}),
        REC_2012,
    ),
    (
        "isFaultNotBoolean",
        ({"base": "request"}, {"base": "response", "properties": {"SOAPJMS_isFault": "0"}}),
        CR_2009,
    ),
    ("lenientRequestURI", ({"base": "request", "properties": {"SOAPJMS_requestURI": "jms:jndi:a/b"}},), REC_2012),
    ("unknownContentEncoding", ({"base": "request", "properties": {"SOAPJMS_contentEncoding": "identity"}},), CR_2009),
    (
        "SOAPJMS_requestIRI",
        ({"base": "request", "properties": {"SOAPJMS_requestURI": None, "SOAPJMS_requestIRI": "jms:queue:orders"}},),
        names.WEBSPHERE,
    ),
    (
        "Content_Type",
        ({"base": "request", "properties": {"SOAPJMS_contentType": None, "Content_Type": "text/xml"}},),
        names.TIBCO,
    ),
    ("SoapAction", ({"base": "request", "properties": {"SoapAction": "urn:a"}},), names.TIBCO),
    (
        "markedText",
        (
            {
                "base": "request",
                "body": f"\ufeff{EMPTY_ENVELOPE}",
            },
        ),
        REC_2012,
    ),
    (
        "soapPartNotFirst",
        ({"base": "request-multipart", "body": with_parts("a", "b"), "properties": started_at("b")},),
        REC_2012,
    ),
    (
        "startNamesNoPart",
        ({"base": "request-multipart", "body": with_parts("a"), "properties": started_at("b")},),
        REC_2012,
    ),
    (
        "bareStart",
        ({"base": "request-multipart", "body": with_parts("a"), "properties": started_at("a", "{}")},),
        REC_2012,
    ),
    ("bareContentId", ({"base": "request-multipart", "body": with_parts("a", "b", bare="b")},), REC_2012),
    (
        "repeatedParameter",
        ({"base": "request", "properties": {"SOAPJMS_contentType": "text/xml; charset=utf-8; charset=utf-16"}},),
        REC_2012,
    ),
    (
        "emptyParameter",
        ({"base": "request", "properties": {"SOAPJMS_contentType": "text/xml;;charset=utf-8"}},),
        CR_2009,
    ),
    (
        "contentEncodingSpelling",
        ({"base": "request", "properties": {"SOAPJMS_contentEncoding": " Identity "}},),
        REC_2012,
    ),
    ("noRequestURI", ({"base": "request", "properties": {"SOAPJMS_requestURI": None}},), names.SPRING_WS),
    ("noBindingVersion", ({"base": "request", "properties": {"SOAPJMS_bindingVersion": None}},), names.SPRING_WS),
    (
        "otherMediaType",
        ({"base": "request", "properties": {"SOAPJMS_contentType": "application/xml"}},),
        names.TIBCO,
    ),
]


def noted(profile: Profile, *records: dict[str, Any]) -> list[str]:
    """Return the codes of the habits that an exchange shows."""
    return [code for code, _ in habits(exchange(*records), Setting(profile=profile))]


@pytest.mark.parametrize(("code", "records", "profile"), NOTED)
def test_habits(code: str, records: tuple[dict[str, Any], ...], profile: Profile) -> None:
    """A habit is noted for the message that shows it, and nothing fails for it."""
    assert noted(profile, *records) == [code]
    broken = {each.assertion for each in violations(judge(exchange(*records), Setting(profile=profile)))}
    assert not broken - {"Protocol-2038"}


@EDITIONS
def test_no_habits(profile: Profile) -> None:
    """A plain call has nothing to note."""
    assert noted(profile, *CALL) == []


def test_habits_of_the_soap_part() -> None:
    """Its content type is read as liberally as that of the message, and says so too."""
    body = with_parts("a").replace("text/xml", "text/xml;; charset=utf-8; charset=utf-8")
    assert noted(REC_2012, {"base": "request-multipart", "body": body}) == ["repeatedParameter", "emptyParameter"]


def test_gzip_by_another_spelling() -> None:
    """A body is unpacked by the name of its encoding in whatever letters, which is noted."""
    body = b64encode(gzipped(EMPTY_ENVELOPE.encode())).decode()
    record = {"base": "request", "message_type": "bytes", "body": body, "properties": {CONTENT_ENCODING: " GZIP "}}
    assert noted(REC_2012, record) == ["contentEncodingSpelling"]
    assert noted(CR_2009, record) == ["unknownContentEncoding"]
    assert outcome_of("Protocol-2030", record) == [VerdictOutcome.PASSED]


def test_habits_that_a_capture_cannot_show() -> None:
    """Where the way of capturing made strings of all properties, isFault as a string is nobody's habit."""
    response = {"base": "response", "untyped": True, "properties": {"SOAPJMS_isFault": "false"}}
    assert noted(REC_2012, {"base": "request"}, response) == []
    assert noted(REC_2012, {"base": "request", "properties": {"SOAPJMS_requestURI": "jms:"}}) == []
    assert noted(REC_2012, {"base": "request", "properties": {"SOAPJMS_requestURI": None}}) == []


def test_a_misdirected_response_is_noted() -> None:
    """A response that is alone as it came to another destination says so, once; its request does not."""
    found = exchange(*CALL)
    alone = [
        replace(found, response=None, misdirected=True),
        replace(found, request=None, pattern=Pattern.RESPONSE_ONLY, misdirected=True),
    ]
    assert [list(habits(each, Setting())) for each in alone] == [[], [MISDIRECTED]]


def test_each_habit_is_shown() -> None:
    """The table of habits has no row that nothing shows."""
    assert [each.code for each in HABITS] == [code for code, _, _ in NOTED]


@pytest.mark.parametrize("is_answer", [False, True])
def test_the_assertion_of_a_rule(is_answer: bool) -> None:
    """A rule is the assertion itself, or the answer to who breaks it."""
    assert assertion_of(rule_name("Protocol-2012", is_answer=is_answer)) == "Protocol-2012"
