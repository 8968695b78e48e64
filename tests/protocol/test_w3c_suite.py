"""The cases of the W3C SOAP/JMS test suite, restated: our result is what the suite expects, or differs as stated."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from places import DATA
from protocol_kit import NOW, REPLIES, envelope
from vector_kit import MEPS, given_properties, members_of

import soapjms
from brokers.embedded import Broker
from brokers.message import Message, MessageType, queue
from soapjms.protocol.assertions import Setting
from soapjms.protocol.content import parse_content_type
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import EDITIONS, Mep, Profile, SoapVersion
from soapjms.protocol.record import from_members
from soapjms.protocol.requesting import Endpoint, RequestingNode, ResponseReceived, findings
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode
from soapjms.protocol.uri import checked

SUITE = json.loads((DATA / "w3c-suite.json").read_text("utf-8"))["cases"]
IN_CXF = [
    "0001", "0002", "0003", "0004", "0005", "0006", "0008", "0009", "0010", "0011", "0012", "0013", "0014",
    "0101", "0102", "1001", "1002", "1003", "1004", "1006", "1007", "1008", "1009",
    "1101", "1102", "1103", "1104", "1105", "1106", "1107", "1108", "1109",
]  # fmt: skip


def cases(kind: str) -> Any:
    """Give out the cases of a kind, for each edition."""
    found = [(case, profile) for case in SUITE if kind in case for profile in EDITIONS.values()]
    return pytest.mark.parametrize(
        ("case", "profile"), [pytest.param(*each, id=f"{each[0]['id']}-{each[1].name}") for each in found]
    )


def wanted(case: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """Return what the suite expects, with what we do otherwise over it."""
    differs = case.get("differs", {}).get(profile.name, {"seen": {}})
    assert differs.get("why") or not differs["seen"]
    for name, seen in differs["seen"].items():
        assert case["expected"][name] != seen, "it does not differ"
    return {**case["expected"], **differs["seen"]}


def shown(message: Message) -> dict[str, Any]:
    """Return what a message shows, in the words of the cases."""
    expiration = message.expiration or NOW
    values = {name: getattr(message, name) for name in ("delivery_mode", "priority", "correlation_id")}
    values |= {
        "message_type": str(message.message_type),
        "lifetime": expiration - NOW,
        "reply_to": message.reply_to and message.reply_to.name,
        "destination": message.destination and message.destination.name,
    }
    for name in ("requestURI", "bindingVersion", "contentType", "soapAction", "targetService", "isFault"):
        values[name] = message.properties.text(f"SOAPJMS_{name}")
    return values


def fits(name: str, wanted: Any, seen: Any) -> bool:
    """Compare a value; of content types what they mean."""
    if not name.endswith("contentType") or wanted is None or seen is None:
        return bool(wanted == seen)
    kinds = [parse_content_type(each.replace("charset=UTF-8", "charset=utf-8")) for each in (wanted, seen)]
    return kinds[0] == kinds[1]


def as_delivered(message: Message, message_id: str) -> Message:
    """Do what a broker does."""
    mode = 2 if message.delivery_mode is None else message.delivery_mode
    priority = 4 if message.priority is None else message.priority
    return replace(message, message_id=message_id, timestamp=NOW, delivery_mode=mode, priority=priority)


@cases("uri")
def test_what_is_sent(case: dict[str, Any], profile: Profile) -> None:
    """The request has what URI, WSDL and environment come to, the response follows it, and neither breaks a rule."""
    uri, version, mep = checked(case["uri"]), SoapVersion(case["version"]), MEPS[case["mep"]]
    given = {name: case[name] for name in ("uri", "wsdl") if name in case}
    effective = given_properties({**given, "properties": case.get("environment", {})})
    node = RequestingNode(Endpoint.of(uri, effective, profile, MessageType(case["message_type"])), mep)
    two_way: dict[str, Any] = {}
    if mep is Mep.REQUEST_RESPONSE:
        # JNDI names are bound to queues of their own name here
        name = effective.value("replyToName")
        two_way = {
            "reply_to": queue(str(name)) if name else REPLIES,
            "correlation_id": case.get("correlation_id", "c-1"),
        }
    sent = node.start(
        envelope(version), destination=queue("orders"), now=NOW, soap_action=case.get("action"), **two_way
    )
    request = as_delivered(sent, "ID:request")
    seen = shown(request)
    answering = RespondingNode(Setting(profile=profile))
    assert isinstance(answering.receive(request), RequestAccepted)
    response = None
    if two_way:
        response = as_delivered(answering.respond(envelope(version)), "ID:response")
        assert isinstance(node.receive(response, "ID:request"), ResponseReceived)
        seen |= {f"response {name}": value for name, value in shown(response).items()}
    for name, value in wanted(case, profile).items():
        assert fits(name, value, seen[name]), (name, value, seen[name])
    assert findings(request, response, Setting(profile=profile, properties=effective)) == ()


@cases("request")
def test_what_is_received(case: dict[str, Any], profile: Profile) -> None:
    """The request is answered with the fault that the suite expects, or with the one that is right by the rules."""
    message = from_members(members_of(case["request"])).message
    node = RespondingNode(Setting(profile=profile))
    event = node.receive(message)
    expected = wanted(case, profile)
    if expected["subcode"] is None:
        assert isinstance(event, RequestAccepted)
        assert [str(each.outcome) for each in event.tolerated] == ["warning"]
        return
    assert isinstance(event, RequestRefused)
    seen = {**shown(node.respond(event.fault)), "subcode": event.subcode}
    for name, value in expected.items():
        assert fits(name, value, seen[name]), (name, value, seen[name])


@pytest.mark.parametrize("case", [case for case in SUITE if "refused" in case], ids=lambda case: str(case["id"]))
def test_what_is_refused(case: dict[str, Any]) -> None:
    """A client does not come to be for a destination that it cannot look up."""
    with Broker("w3c").connect() as connection, pytest.raises(UsageError, match="XXXX"):
        soapjms.Client(connection, case["refused"])


def test_all_cases_are_there() -> None:
    """Every case that CXF mirrors is there once, and two more as they were changed later."""
    ids = [case["id"] for case in SUITE]
    assert len(IN_CXF) == 32
    assert sorted(ids) == sorted([*IN_CXF, "1003 of June 2010", "1103 of June 2010"])
