"""Dialects of real stacks: what is written under each, what is read under which profile, whose habits a message shows.

The messages are built by hand from what docs/dialects.md says of the stacks, or are real traffic.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from lxml import etree
from places import DATA
from protocol_kit import changed, delivered, endpoint, envelope, started

import soapjms
from brokers.embedded import Broker
from brokers.message import Message, MessageType, Property, PropertyType, properties
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting, VerdictOutcome, guess_dialect, habits_of, judge
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.names import DIALECTS, EDITIONS, PROFILES, REC_2012, Mep, Profile, SoapVersion, Subcode
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import EPOCH, Direction, Record, from_members
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode

CXF_LOG = DATA / "cxf-exchanges.jsonl"
URI = "jms:queue:in?targetService=s"
EVERY = pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda each: each.name)


def written(profile: Profile, version: SoapVersion = SoapVersion.SOAP_11) -> dict[str, Any]:
    """Return the properties of a request under a profile."""
    _, request = started(endpoint(URI, profile), version=version, soap_action="urn:a")
    return {each.name: each.value for each in request.properties}


# Writing


def test_what_each_dialect_writes() -> None:
    """The names, the quotes and the flags of each stack; the specification's own where it has no other."""
    right = {
        "SOAPJMS_requestURI": "jms:queue:in",
        "SOAPJMS_bindingVersion": "1.0",
        "SOAPJMS_contentType": "text/xml; charset=utf-8",
        "SOAPJMS_soapAction": "urn:a",
        "SOAPJMS_targetService": "s",
    }
    quoted = {**right, "SOAPJMS_soapAction": '"urn:a"'}
    kept = {name: value for name, value in quoted.items() if name != "SOAPJMS_requestURI"}
    assert {name: written(profile) for name, profile in PROFILES.items()} == {
        "cr-2009": right,
        "rec-2012": right,
        "cxf": {**quoted, "SOAPJMS_isFault": False},
        "websphere": {**kept, "SOAPJMS_requestIRI": "jms:queue:in"},
        "spring-ws": {name: value for name, value in kept.items() if name != "SOAPJMS_bindingVersion"},
        "tibco": {"Content_Type": "application/xml; charset=utf-8", "SoapAction": "urn:a", "Mime_Version": "1.0"},
    }


def test_soap12_action() -> None:
    """The action parameter belongs to application/soap+xml; under another media type the property alone has it."""
    assert written(names.CXF, SoapVersion.SOAP_12)["SOAPJMS_contentType"].endswith('; action="urn:a"')
    assert written(names.TIBCO, SoapVersion.SOAP_12)["Content_Type"] == "application/xml; charset=utf-8"


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (names.CXF, {"requestURI": "jms:queue:in", "bindingVersion": "1.0", "isFault": False}),
        (names.WEBSPHERE, {"requestIRI": "jms:queue:in", "bindingVersion": "1.0", "isFault": False}),
        (names.SPRING_WS, {}),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_what_a_response_repeats(profile: Profile, expected: dict[str, Any]) -> None:
    """The response is in the dialect too, and repeats the URI that came under the dialect's name."""
    _, request = started(endpoint(URI, profile))
    node = RespondingNode(Setting(profile=profile))
    assert isinstance(node.receive(request), RequestAccepted)
    made = {each.name.removeprefix("SOAPJMS_"): each.value for each in node.respond(envelope()).properties}
    assert made == {**expected, "contentType": "text/xml; charset=utf-8"}


@EVERY
def test_a_profile_is_found_by_its_name(profile: Profile) -> None:
    """Also after it was pickled; a dialect knows its edition."""
    assert names.profile(profile.name) is profile
    assert pickle.loads(pickle.dumps(profile)) is profile
    assert profile.edition in EDITIONS
    assert EDITIONS[profile.edition].namespace == profile.namespace


def test_an_edition_is_no_dialect() -> None:
    """The two editions write the specification's own names, and tolerate nothing by name."""
    for profile in EDITIONS.values():
        assert (profile.edition, profile.spelling, profile.also_on, profile.constants) == (profile.name, {}, {}, {})
        assert (profile.quotes_action, profile.tolerated) == (frozenset(), frozenset())
    assert names.ALIASES == {
        "SOAPJMS_requestURI": ("SOAPJMS_requestIRI",),
        "SOAPJMS_contentType": ("Content_Type",),
        "SOAPJMS_soapAction": ("SoapAction",),
    }


# Reading


def message_of(*, one_way: bool = False, body: bytes | str = b"", **values: Any) -> Message:
    """Make a message with these properties and no others; `S_` stands for `SOAPJMS_`."""
    _, message = started(mep=Mep.ONE_WAY if one_way else Mep.REQUEST_RESPONSE, body=body or envelope())
    found = {
        name.replace("S_", "SOAPJMS_", 1) if name.startswith("S_") else name: value for name, value in values.items()
    }
    return Message(
        message_type=MessageType.TEXT if isinstance(body, str) else MessageType.BYTES,
        body=message.body,
        properties=properties(found),
        destination=message.destination,
        reply_to=message.reply_to,
        message_id=message.message_id,
    )


WEBSPHERE = message_of(
    S_contentType="text/xml; charset=UTF-8",
    S_targetService="Orders",
    S_requestIRI="jms:jndi:jms/In?jndiConnectionFactoryName=jms/Factory&targetService=Orders",
    S_soapAction='"getQuote"',
    S_bindingVersion="1.0",
    JMS_IBM_MsgType=1,
)
SPRING = message_of(
    S_contentType="text/xml; charset=utf-8", S_soapAction='""', S_contentLength="100", S_acceptEncoding="gzip"
)
SPRING_12 = message_of(
    S_contentType="application/soap+xml; charset=utf-8; action=urn:a", body=envelope(SoapVersion.SOAP_12)
)
TIBCO = message_of(Content_Type="application/xml; charset=UTF-8", Mime_Version="1.0", SoapAction="urn:a")
CXF = message_of(
    S_contentType="text/xml; charset=UTF-8", S_requestURI="jms:queue:in", S_bindingVersion="1.0",
    S_soapAction='"urn:a"', S_isFault=False,
)  # fmt: skip
STACKS = {"websphere": WEBSPHERE, "spring-ws": SPRING, "tibco": TIBCO, "cxf": CXF}


def taken(message: Message, profile: Profile, *, strict: bool = False) -> RequestAccepted | RequestRefused:
    """Have a new node take a message."""
    return RespondingNode(Setting(profile=profile, strict=strict)).receive(message)


def broken(event: RequestAccepted | RequestRefused) -> list[str]:
    """Return the assertions that were broken and let pass."""
    assert isinstance(event, RequestAccepted), event
    return [each.assertion for each in event.tolerated]


@pytest.mark.parametrize(
    ("message", "profile", "tolerated", "notes"),
    [
        (WEBSPHERE, "websphere", ["Protocol-2021", "Protocol-2024"], ["quotedSoapAction", "SOAPJMS_requestIRI"]),
        (SPRING, "spring-ws", [], ["quotedSoapAction", "noRequestURI", "noBindingVersion"]),
        (SPRING_12, "spring-ws", ["Local-2.2.3-missingSoapAction"], ["noRequestURI", "noBindingVersion"]),
        (TIBCO, "tibco", [], ["Content_Type", "SoapAction", "noRequestURI", "noBindingVersion", "otherMediaType"]),
        (CXF, "cxf", [], ["quotedSoapAction", "isFaultOnRequest"]),
    ],
)
def test_a_stack_is_understood_in_its_dialect(
    message: Message, profile: str, tolerated: list[str], notes: list[str]
) -> None:
    """It is accepted, and what differs from the specification is named: as a warning, or as a note."""
    event = taken(message, PROFILES[profile])
    assert broken(event) == tolerated
    assert isinstance(event, RequestAccepted)
    assert {each.outcome for each in event.tolerated} <= {VerdictOutcome.WARNING}
    assert {"lenientRequestURI", *notes} >= {code for code, _ in event.notes} >= set(notes)
    assert event.soap_action in ("urn:a", "getQuote", "", None)


@pytest.mark.parametrize(
    ("message", "subcode"),
    [
        (WEBSPHERE, Subcode.TARGET_SERVICE_NOT_ALLOWED),
        (SPRING, Subcode.MISSING_REQUEST_URI),
        (TIBCO, Subcode.CONTENT_TYPE_MISMATCH),
        (CXF, None),
    ],
)
def test_a_stack_under_the_recommendation(message: Message, subcode: Subcode | None) -> None:
    """Under another name a property is read, and judged as if it were the right one."""
    event = taken(message, REC_2012)
    assert (event.subcode if isinstance(event, RequestRefused) else None) is subcode


ALIASED = [
    ({"S_requestURI": None, "S_requestIRI": "jms:queue:in"}, "Protocol-2022", Subcode.MISSING_REQUEST_URI),
    ({"S_contentType": None, "Content_Type": "text/xml"}, "Protocol-2016", Subcode.MISSING_CONTENT_TYPE),
    (
        {"S_contentType": 'application/soap+xml; action="urn:a"', "SoapAction": "urn:a"},
        "Local-2.2.3-missingSoapAction",
        Subcode.MISSING_SOAP_ACTION,
    ),
]


@pytest.mark.parametrize(("values", "assertion", "subcode"), ALIASED)
def test_other_names_under_the_recommendation(values: dict[str, Any], assertion: str, subcode: Subcode) -> None:
    """A property under another stack's name is read; the breach is a finding that names both, and no fault.

    A strict reader refuses it.
    """
    right = {"S_requestURI": "jms:queue:in", "S_contentType": "text/xml", "S_bindingVersion": "1.0"}
    version = SoapVersion.SOAP_12 if "SoapAction" in values else SoapVersion.SOAP_11
    kept = {name: value for name, value in {**right, **values}.items() if value is not None}
    message = message_of(body=envelope(version), **kept)
    event = taken(message, REC_2012)
    assert broken(event) == [assertion]
    assert isinstance(event, RequestAccepted)
    (verdict,) = event.tolerated
    assert verdict.outcome is VerdictOutcome.FAILED
    assert verdict.reason is not None
    assert "was read in its place" in verdict.reason
    (note,) = event.notes
    assert note[0] in verdict.reason
    refused = taken(message, REC_2012, strict=True)
    assert isinstance(refused, RequestRefused)
    assert refused.subcode is subcode


def test_what_stands_under_another_name_is_judged_too() -> None:
    """An alias is no way around the rules on the value."""
    right = {"S_bindingVersion": "1.0", "S_contentType": "text/xml", "S_requestURI": "jms:queue:in"}
    for gone, name, value, subcode in (
        ("S_contentType", "Content_Type", "text/plain", Subcode.CONTENT_TYPE_MISMATCH),
        ("S_requestURI", "S_requestIRI", "jms:xmpp:in", Subcode.UNSUPPORTED_LOOKUP_VARIANT),
        ("S_requestURI", "S_requestIRI", "queue:in", Subcode.MALFORMED_REQUEST_URI),
    ):
        kept = {each: text for each, text in right.items() if each != gone}
        event = taken(message_of(**kept, **{name: value}), REC_2012)
        assert isinstance(event, RequestRefused)
        assert event.subcode is subcode


def test_the_right_name_wins() -> None:
    """Where both are there, the specification's name counts, and nothing is noted."""
    both = changed(started()[1])
    both = Message(
        message_type=both.message_type,
        body=both.body,
        reply_to=both.reply_to,
        properties=both.properties.merged(properties({"Content_Type": "text/plain", "SOAPJMS_requestIRI": "x"})),
    )
    event = taken(both, REC_2012)
    assert broken(event) == []
    assert isinstance(event, RequestAccepted)
    assert event.notes == ()


def test_a_dialect_still_refuses() -> None:
    """What a dialect has, it must have right: version, media type, a URI under its own name."""
    for message, profile, subcode in (
        (changed(CXF, bindingVersion="2"), names.CXF, Subcode.UNRECOGNIZED_BINDING_VERSION),
        (changed(CXF, bindingVersion="0.3"), names.SPRING_WS, Subcode.UNRECOGNIZED_BINDING_VERSION),
        (changed(CXF, "requestURI"), names.CXF, Subcode.MISSING_REQUEST_URI),
        (changed(WEBSPHERE, "requestIRI"), names.WEBSPHERE, Subcode.MISSING_REQUEST_URI),
        (changed(SPRING, requestURI="jms:queue:%"), names.SPRING_WS, Subcode.MALFORMED_REQUEST_URI),
        (changed(SPRING, "contentType"), names.SPRING_WS, Subcode.MISSING_CONTENT_TYPE),
        (message_of(SoapAction="urn:a"), names.TIBCO, Subcode.MISSING_CONTENT_TYPE),
        (message_of(Content_Type="text/plain"), names.TIBCO, Subcode.CONTENT_TYPE_MISMATCH),
    ):
        event = taken(message, profile)
        assert isinstance(event, RequestRefused), (profile.name, event)
        assert event.subcode is subcode


@pytest.mark.parametrize(
    ("answered_as_if", "outcome"),
    [({"requestIRI": None}, VerdictOutcome.PASSED), ({"bindingVersion": "2"}, VerdictOutcome.WARNING)],
)
def test_a_fault_to_what_was_let_pass_has_its_cause(answered_as_if: dict[str, Any], outcome: VerdictOutcome) -> None:
    """A stricter responder that refuses what we let pass is right too; one that refuses something else is not."""
    request = message_of(S_requestIRI="jms:queue:in", S_contentType="text/xml", S_bindingVersion="1.0")
    node = RespondingNode(Setting())
    event = node.receive(changed(request, **answered_as_if))
    assert isinstance(event, RequestRefused)
    answer = delivered(node.respond(event.fault))
    first, second = (Record(message=each, time=EPOCH) for each in (request, answer))
    exchange = Exchange(id="x", pattern=Pattern.REQUEST_RESPONSE, request=first, response=second)
    assert [each.outcome for each in judge(exchange, Setting()) if each.assertion == "Local-2.8-cause"] == [outcome]


# Guessing


def reading(message: Message, direction: Direction | None = Direction.REQUEST) -> Reading:
    """Read a message as one that was captured."""
    return Reading.of(Record(message=message, time=EPOCH, direction=direction), REC_2012)


@pytest.mark.parametrize("name", STACKS)
def test_a_guess(name: str) -> None:
    """Each stack gives itself away."""
    assert guess_dialect(reading(STACKS[name])) == name


@pytest.mark.parametrize("profile", DIALECTS.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("version", SoapVersion)
def test_what_we_write_in_a_dialect_is_guessed(profile: Profile, version: SoapVersion) -> None:
    """Our request in a dialect shows its marks."""
    _, request = started(endpoint(URI, profile), version=version, soap_action="urn:a")
    assert guess_dialect(reading(request)) == profile.name


def test_cxf_quotes_with_soap11_only() -> None:
    """The profile writes soapAction as the captured requests of CXF have it, with either SOAP version."""
    actions = {version: written(DIALECTS["cxf"], version)["SOAPJMS_soapAction"] for version in SoapVersion}
    assert actions == {SoapVersion.SOAP_11: '"urn:a"', SoapVersion.SOAP_12: "urn:a"}


def test_no_guess() -> None:
    """A message that keeps the rules, or that shows nothing at all, is nobody's."""
    assert guess_dialect(reading(started()[1])) is None
    assert guess_dialect(reading(started(soap_action="urn:a")[1])) is None
    assert guess_dialect(reading(message_of())) is None
    assert guess_dialect(reading(message_of(), Direction.RESPONSE)) is None


def test_real_traffic_is_cxf() -> None:
    """Every message of the CXF log shows that it is of CXF, with SOAP 1.2 too, whose actions have no quotes."""
    records = [from_members(json.loads(line)) for line in CXF_LOG.read_text("utf-8").splitlines()]
    guesses = [guess_dialect(Reading.of(record, REC_2012)) for record in records]
    assert set(guesses) == {"cxf"}


def test_the_marks_are_habits() -> None:
    """What a guess rests on is noted, so that a reader of a report can see it."""
    for name, message in STACKS.items():
        assert list(habits_of(reading(message), Carrier.REQUEST)), name
    numbered = Message(
        message_type=MessageType.BYTES,
        body=b"",
        properties=type(properties())([Property("Mime_Version", PropertyType.DOUBLE, 1.0)]),
    )
    assert guess_dialect(reading(numbered)) == "tibco"


# Over a broker


@pytest.mark.parametrize(
    ("asks", "answers", "subcode"),
    [
        *((name, name, None) for name in PROFILES),
        ("cxf", "rec-2012", None),
        ("rec-2012", "cxf", None),
        ("websphere", "rec-2012", None),
        ("cr-2009", "websphere", None),
        ("spring-ws", "rec-2012", "missingRequestURI"),
        ("tibco", "cr-2009", "contentTypeMismatch"),
        ("rec-2012", "spring-ws", None),
        ("cr-2009", "tibco", None),
    ],
)
def test_a_call_over_a_broker(asks: str, answers: str, subcode: str | None) -> None:
    """Client and service may be of different profiles, as far as the service reads what the client writes."""
    service = soapjms.Service()

    @service.operation("{urn:x}x")
    def answer(request: soapjms.Request) -> etree._Element:
        return etree.Element("{urn:x}y")

    with (
        Broker("dialects").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:in", service, profile=answers),
        soapjms.Client(connection, "jms:queue:in", profile=asks, timeout=20) as client,
    ):
        for version in SoapVersion:
            response = client.call(envelope(version), soap_action="urn:a")
            fault = response.fault
            assert (None if fault is None else fault.subcode) == subcode
            assert fault is not None or response.element is not None


def test_what_a_client_reads_over_is_noted() -> None:
    """A caller learns what was odd in a response that broke no rule."""
    service = soapjms.Service()
    service.operation("{urn:x}x")(lambda request: etree.Element("{urn:x}y"))
    with (
        Broker("notes").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:in", service, profile="spring-ws"),
        soapjms.Client(connection, "jms:queue:in", profile="spring-ws", timeout=20) as client,
    ):
        response = client.call(envelope())
    assert response.findings() == ()
    assert [code for code, _ in response.notes()] == ["noRequestURI", "noBindingVersion"]
