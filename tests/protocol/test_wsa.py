"""WS-Addressing as headers: what is read of hostile ones, the faults, what is written; no message is sent."""

from __future__ import annotations

from typing import Any

import pytest
from calling_kit import SOAP_11, SOAP_12
from lxml import etree

from brokers.message import MAX_ADDRESS_CHARACTERS
from soapjms.protocol import xml
from soapjms.protocol.envelope import Envelope, as_envelope, read_fault, wrap
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.wsa import (
    EDITIONS,
    WSA_2004,
    WSA_2005,
    Addressing,
    AddressingFault,
    Edition,
    EndpointReference,
    answer_headers,
    mismatch,
    read_addressing,
    request_headers,
    stated_action,
    unrelated,
)

A, ID = "<a:Action>urn:do</a:Action>", "<a:MessageID>urn:1</a:MessageID>"


def said(headers: str, edition: Edition = WSA_2005, version: SoapVersion = SOAP_11) -> Envelope:
    """Write a message with headers."""
    text = (
        f'<e:Envelope xmlns:e="{version.namespace}" xmlns:a="{edition.namespace}"><e:Header>{headers}</e:Header>'
        "<e:Body/></e:Envelope>"
    )
    return as_envelope(xml.parse(text))


def read(headers: str, edition: Edition = WSA_2005) -> Addressing:
    found = read_addressing(said(headers, edition))
    assert isinstance(found, Addressing), found
    return found


def refused(headers: str, edition: Edition = WSA_2005) -> AddressingFault:
    found = read_addressing(said(headers, edition))
    assert isinstance(found, AddressingFault), found
    return found


def end(name: str, inside: str) -> str:
    return f"<a:{name}>{inside}</a:{name}>"


@pytest.mark.parametrize("edition", EDITIONS)
class TestReading:
    """Both editions."""

    def test_all_of_it(self, edition: Edition) -> None:
        """Every header; white space around texts is dropped."""
        holder = "ReferenceParameters" if edition is WSA_2005 else "ReferenceProperties"
        found = read(
            f"{A}{ID}<a:To>  urn:me\n</a:To>"
            + end("From", "<a:Address>urn:you</a:Address>")
            + end("ReplyTo", f'<a:Address>urn:r</a:Address><a:{holder}><k xmlns="urn:k">7</k></a:{holder}>')
            + end("FaultTo", "<a:Address>urn:f</a:Address>")
            + '<a:RelatesTo>urn:0</a:RelatesTo><a:RelatesTo RelationshipType="urn:x">urn:9</a:RelatesTo>',
            edition,
        )
        assert (found.edition, found.action, found.message_id, found.to) == (edition, "urn:do", "urn:1", "urn:me")
        assert found.source == EndpointReference("urn:you")
        assert found.relates_to == ((edition.reply, "urn:0"), ("urn:x", "urn:9"))
        assert found.endpoint(is_fault=False).address == "urn:r"
        assert [each.tag for each in found.endpoint(is_fault=False).parameters] == ["{urn:k}k"]
        assert found.endpoint(is_fault=True).address == "urn:f"
        assert edition.tag("ReplyTo") in found.understood

    def test_nearly_nothing(self, edition: Edition) -> None:
        """What is not said is the anonymous address; a fault goes where an answer does."""
        found = read(A, edition)
        assert (found.to, found.message_id, found.reply_to) == (edition.anonymous, None, None)
        assert found.endpoint(is_fault=True) == EndpointReference(edition.anonymous)
        found = read(A + end("ReplyTo", "<a:Address>urn:r</a:Address>"), edition)
        assert found.endpoint(is_fault=True).address == "urn:r"

    def test_no_action(self, edition: Edition) -> None:
        """Who has one of the headers has an Action."""
        found = refused(ID, edition)
        assert (found.code, found.header, found.message_id) == (edition.required, "Action", "urn:1")

    @pytest.mark.parametrize(
        ("headers", "header", "more"),
        [
            (A + A, "Action", "InvalidCardinality"),
            (A + ID + ID, "MessageID", "InvalidCardinality"),
            (A + end("ReplyTo", "<a:Address>u</a:Address>") * 2, "ReplyTo", "InvalidCardinality"),
            ("<a:Action/>", "Action", "InvalidAddress"),
            ("<a:Action><b/></a:Action>", "Action", "InvalidAddress"),
            (A + f"<a:MessageID>{'x' * (MAX_ADDRESS_CHARACTERS + 1)}</a:MessageID>", "MessageID", "InvalidAddress"),
            (A + "<a:RelatesTo/>", "RelatesTo", "InvalidAddress"),
            (A + "<a:RelatesTo>u</a:RelatesTo>" * 21, "RelatesTo", ""),
            (A + end("FaultTo", ""), "FaultTo", "MissingAddressInEPR"),
            (A + end("ReplyTo", "<a:Address>u</a:Address>" * 2), "ReplyTo", "InvalidEPR"),
            (A + end("From", "<a:Address/>"), "From", "InvalidAddress"),
            *(
                (
                    A
                    + end("ReplyTo", f"<a:Address>u</a:Address><a:ReferenceParameters>{block}</a:ReferenceParameters>"),
                    "ReplyTo",
                    "InvalidEPR",
                )
                for block in ("<a:To>u</a:To>", "<e:Body/>", "<plain/>")
            ),
        ],
    )
    def test_wrong(self, edition: Edition, headers: str, header: str, more: str) -> None:
        found = refused(headers, edition)
        assert (found.code, found.header, found.more) == (edition.invalid, header, more)

    @pytest.mark.parametrize("version", SoapVersion)
    def test_faults(self, edition: Edition, version: SoapVersion) -> None:
        """They have the code where each SOAP version has it, and name the header where the edition does."""
        root = refused(A + A, edition).build(version)
        envelope = as_envelope(etree.fromstring(etree.tostring(root)))
        fault = read_fault(envelope)
        assert fault is not None
        names = [edition.tag(edition.invalid), edition.tag("InvalidCardinality")]
        if edition is WSA_2004:
            names = names[:1]
        assert fault.subcodes == tuple(names if version is SOAP_12 else names[-1:])
        named = root.findall(f".//{edition.tag('ProblemHeaderQName')}")
        assert [each.text for each in named] == (["wsa:Action"] if edition is WSA_2005 else [])
        if named:
            where = named[0].getparent()
            assert where is not None
            assert str(where.tag) == (
                edition.tag("FaultDetail") if version is SOAP_11 else f"{{{version.namespace}}}Detail"
            )

    def test_answers(self, edition: Edition) -> None:
        """They relate to the request, and carry the parameters of where they go."""
        parameter = etree.Element("{urn:k}k")
        parameter.tail = "x"
        made = list(answer_headers(edition, "urn:did", "urn:2", "urn:1", EndpointReference("urn:r", (parameter,))))
        assert [(each.tag, each.text) for each in made[:4]] == [
            (edition.tag("Action"), "urn:did"),
            (edition.tag("MessageID"), "urn:2"),
            (edition.tag("To"), "urn:r"),
            (edition.tag("RelatesTo"), "urn:1"),
        ]
        assert made[4].get(edition.tag("IsReferenceParameter")) == ("true" if edition is WSA_2005 else None)
        assert (made[4].tail, parameter.tail, parameter.attrib) == (None, "x", {})
        last = list(answer_headers(edition, "urn:did", "urn:2", None, EndpointReference("urn:r")))[-1]
        assert last.text == edition.unspecified

    @pytest.mark.parametrize(
        ("headers", "is_wrong"),
        [
            ("", False),
            ("<a:RelatesTo>urn:1</a:RelatesTo>", False),
            ("<a:RelatesTo> urn:1 </a:RelatesTo>", False),
            ("<a:RelatesTo>urn:2</a:RelatesTo>", True),
            ("<a:RelatesTo/>", True),
            ("<a:RelatesTo>urn:2</a:RelatesTo><a:RelatesTo>urn:1</a:RelatesTo>", False),
            ('<a:RelatesTo RelationshipType="urn:x">urn:2</a:RelatesTo>', False),
            ("UNSPECIFIED", False),
        ],
    )
    def test_relation(self, edition: Edition, headers: str, is_wrong: bool) -> None:
        """A response says which request it is for, or nothing of it."""
        headers = headers.replace("UNSPECIFIED", f"<a:RelatesTo>{edition.unspecified}</a:RelatesTo>")
        assert (unrelated(said(headers, edition), "urn:1") is not None) is is_wrong


def test_none() -> None:
    """Messages without."""
    for envelope in (as_envelope(wrap(None, SOAP_11)), said('<b xmlns="urn:b"/>')):
        assert read_addressing(envelope) is None
        assert stated_action(envelope) is None
        assert unrelated(envelope, "urn:1") is None
    assert stated_action(said("<a:Action> </a:Action>")) is None
    assert stated_action(said(A, WSA_2004)) == "urn:do"


def test_whose() -> None:
    """Headers for others are not read; of two editions the newer counts."""
    assert read_addressing(said('<a:Action e:actor="urn:you">x</a:Action>')) is None
    other = said(f'{A}<a:Action e:actor="urn:me">x</a:Action>')
    assert isinstance(read_addressing(other), Addressing)
    assert isinstance(read_addressing(other, ["urn:me"]), AddressingFault)
    both = said(f'<o:Action xmlns:o="{WSA_2004.namespace}">old</o:Action>{A}')
    found = read_addressing(both)
    assert isinstance(found, Addressing)
    assert found.action == "urn:do"


def test_ids_that_cannot_be_read() -> None:
    """A fault relates to nothing then."""
    assert refused("<a:MessageID><b/></a:MessageID>").message_id is None
    assert refused(A + ID + ID).message_id is None


@pytest.mark.parametrize(("action", "is_wrong"), [(None, False), ("", False), ("urn:do", False), ("urn:other", True)])
def test_actions(action: Any, is_wrong: bool) -> None:
    """The action of the transport is the same, or none."""
    found = mismatch(read(A + ID), action)
    assert (found is not None) is is_wrong
    if found is not None:
        assert (found.more, found.message_id) == ("ActionMismatch", "urn:1")


@pytest.mark.parametrize("one_way", [False, True])
def test_requests(one_way: bool) -> None:
    """What the envelope has stays; of a one-way message nobody expects an answer."""
    made = request_headers(said(ID), "urn:do", "urn:2", "jms:queue:q", one_way=one_way)
    assert [etree.QName(each).localname for each in made] == ["Action", "To", "ReplyTo"]
    assert made[-1][0].text == (WSA_2005.none if one_way else WSA_2005.anonymous)
    assert len(request_headers(as_envelope(wrap(None, SOAP_12)), "a", "b", "c", one_way=one_way)) == 4
