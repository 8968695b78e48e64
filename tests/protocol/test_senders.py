"""What is known of the senders of captured messages, and to which messages it applies."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from places import DATA
from replay_logs import REPLIES, at, request

from brokers.message import Destination, DestinationKind, Message, properties, queue, topic
from soapjms.protocol.errors import InvalidPropertyError, InvalidUriError, UsageError
from soapjms.protocol.names import REC_2012
from soapjms.protocol.properties import Origin
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import capture
from soapjms.protocol.senders import Senders, editions_of, senders_of
from soapjms.wsdl import read_wsdl

WSDLS = DATA / "wsdl"
PROPERTIES = read_wsdl(WSDLS / "echo-soap11-properties.wsdl")


def found(senders: Senders, message: Message) -> str | None:
    """Return the address of the sender that a message is taken to be by, with its targetService."""
    number = senders.find(Reading.of(capture(message, at(0)), REC_2012))
    if number is None:
        return None
    sender = senders.all[number]
    return sender.address if sender.target_service is None else f"{sender.address} {sender.target_service}"


def sent(uri: str | None, **changes: Any) -> Message:
    """Make a request with a requestURI."""
    service = changes.pop("service", None)
    values = {"SOAPJMS_requestURI": uri, "SOAPJMS_targetService": service}
    named = properties({name: value for name, value in values.items() if value is not None})
    return request(1, properties=named, **changes)


@pytest.mark.parametrize(
    ("uri", "destination", "address"),
    [
        ("jms:queue:a", queue("a"), "jms:queue:a"),
        ("jms:queue:%61?x=1", queue("a"), "jms:queue:a"),  # the same name, otherwise written
        ("jms:queue:a", queue("mirror.of.a"), "jms:queue:a"),  # as a tap on a mirrored queue sees it
        ("jms:jndi:A", queue("physical"), "jms:jndi:A"),
        ("jms:jndi:B", queue("a"), "jms:queue:a"),
        (None, queue("a"), "jms:queue:a"),
        (None, topic("a"), None),
        (None, topic("t"), "jms:topic:t"),
        (None, Destination(DestinationKind.QUEUE, None), None),
        (None, REPLIES, None),
        (None, None, None),
        ("jms:queue:b", queue("b"), None),
        ("nonsense", queue("a"), "jms:queue:a"),
    ],
)
def test_by_requesturi_else_by_destination(uri: str | None, destination: Destination | None, address: str) -> None:
    """A message is by the sender whose address it went to."""
    senders = senders_of(["jms:queue:a?priority=7", "jms:topic:t", "jms:jndi:A?jndi-java.naming.x=y"])
    assert found(senders, sent(uri, destination=destination)) == address


@pytest.mark.parametrize(
    ("given", "service", "address"),
    [
        (["jms:queue:a?targetService=x", "jms:queue:a?targetService=y"], "x", "jms:queue:a x"),
        (["jms:queue:a?targetService=x", "jms:queue:a?targetService=y"], "y", "jms:queue:a y"),
        (["jms:queue:a?targetService=x", "jms:queue:a?targetService=y"], "z", None),
        (["jms:queue:a?targetService=x", "jms:queue:a?targetService=y"], None, None),
        (["jms:queue:a?targetService=x", "jms:queue:a"], None, "jms:queue:a"),
        (["jms:queue:a?targetService=x"], None, "jms:queue:a x"),  # it may have been forgotten: Protocol-2009
        (["jms:queue:a"], "x", None),
        (["jms:queue:a?targetService=x", "jms:queue:a?targetService="], None, "jms:queue:a"),
    ],
)
def test_several_services_at_one_address(given: list[str], service: str | None, address: str | None) -> None:
    """They are told apart by targetService; a message for another service is by another sender."""
    assert found(senders_of(given), sent("jms:queue:a", service=service)) == address


def test_nothing_is_known_of_nobody() -> None:
    """No message, or no sender."""
    assert senders_of(["jms:queue:a"]).find(None) is None
    assert senders_of([]).find(Reading.of(capture(request(1), at(0)), REC_2012)) is None


def test_a_wsdl_stands_for_its_jms_ports() -> None:
    """Without a choice it is all of them, each with its own address."""
    (sender,) = senders_of([read_wsdl(WSDLS / "echo-soap12.wsdl")]).all
    assert (sender.address, sender.source) == ("jms:queue:CXF.ECHO.12", "EchoService/EchoPort12")


def test_a_port_has_the_properties_of_all_levels() -> None:
    """What the program sets wins over URI, port, service and binding."""
    (sender,) = senders_of([PROPERTIES.port("PortOverBinding")], {"replyToName": "answers"}).all
    assert sender.source == "EchoService/PortOverBinding"
    assert {name: str(sender.properties[name].origin) for name in ("replyToName", "priority", "timeToLive")} == {
        "replyToName": "environment",
        "priority": "port",
        "timeToLive": "binding",
    }
    assert sender.properties["destinationName"].origin is Origin.URI


def test_senders_travel() -> None:
    """They are pickled whole, as engines send them to their workers."""
    senders = senders_of(["jms:queue:a?priority=7&targetService=x"], {"priority": 8})
    again = pickle.loads(pickle.dumps(senders))
    assert again == senders
    assert again.all[0].properties.overridden == senders.all[0].properties.overridden


def test_the_same_twice_is_the_same() -> None:
    """Two ports of one address with the same properties are one sender."""
    port = read_wsdl(WSDLS / "echo-soap11.wsdl").port()
    assert len(senders_of([port, port]).all) == 1
    assert len(senders_of(["jms:queue:a?priority=7", "jms:queue:%61?priority=7"]).all) == 1


@pytest.mark.parametrize(
    ("given", "environment", "error", "said"),
    [
        (
            ["jms:queue:a?priority=7", "jms:queue:a?priority=8&timeToLive=1"], {}, UsageError,
            "jms:queue:a is given twice, by URI and by URI, with different priority, timeToLive; .* give only one",
        ),
        (["jms:queue:a?priority=11"], {}, InvalidPropertyError, "priority is '11' in URI; .* 0 to 9"),
        (["queue:a"], {}, InvalidUriError, "queue:a"),
        ([5], {}, InvalidUriError, "uri must be a jms: URI .*, got int"),
        (["jms:queue:a"], {"priority": "high"}, InvalidPropertyError, "priority is 'high' in environment"),
        ([], {"priority": "8"}, UsageError, "a URI or WSDL of the senders must be given"),
    ],
)  # fmt: skip
def test_mistakes_of_the_caller(given: Any, environment: Any, error: type[Exception], said: str) -> None:
    """Each error says what was seen, and what would be accepted."""
    with pytest.raises(error, match=said):
        senders_of(given, environment)


def test_a_difference_in_what_is_overridden_counts() -> None:
    """The same value from the same place may have won over something in one of the two only."""
    port = PROPERTIES.port("UriOverBinding")
    said = "jms:queue:CXF.PROPS is given twice, by EchoService/UriOverBinding and by URI, with different .*priority"
    with pytest.raises(UsageError, match=said):
        senders_of([port, str(port.address)])


def test_a_wsdl_without_jms_is_refused(tmp_path: Path) -> None:
    """There is nothing to hold messages against."""
    wsdl = tmp_path / "other.wsdl"
    text = (WSDLS / "echo-soap11.wsdl").read_text("utf-8")
    wsdl.write_text(text.replace('transport="http://www.w3.org/2010/soapjms/"', 'transport="urn:other"'))
    with pytest.raises(UsageError, match="no port with a SOAP/JMS transport"):
        senders_of([read_wsdl(wsdl)])


def test_editions() -> None:
    """WSDLs tell the edition that they follow, each once; a URI tells none."""
    assert editions_of([PROPERTIES, "jms:queue:in", PROPERTIES]) == [PROPERTIES.ports[0].profile]
