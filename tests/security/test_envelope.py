"""Envelopes under attack: a second Body or Header, of which one is signed and another read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from calling_kit import NS, SOAP_11, SOAP_12, envelope
from lxml import etree
from service_kit import accepted
from signature_kit import ANN

from brokers.message import Message
from soapjms import SoapVersion
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import as_envelope
from soapjms.protocol.responding import RequestRefused, RespondingNode


def envelope_of(*children: str, version: SoapVersion = SOAP_11) -> etree._Element:
    """Write an envelope with children: `11:Body` is that of SOAP 1.1, and a name without a version no part of SOAP."""
    root = etree.Element(f"{{{version.namespace}}}Envelope")
    spaces = {"11": SOAP_11.namespace, "12": SOAP_12.namespace}
    for child in children:
        space, colon, name = child.rpartition(":")
        etree.SubElement(root, f"{{{spaces[space]}}}{name}" if colon else f"{{urn:other}}{name}")
    return root


@pytest.mark.parametrize(
    ("children", "version"),
    [
        (("11:Body", "11:Body"), SOAP_11),
        (("11:Body", "12:Body"), SOAP_11),
        (("12:Body", "11:Body"), SOAP_12),
        (("12:Body", "11:Body"), SOAP_11),
        (("12:Body", "other", "12:Body"), SOAP_12),
        (("11:Header", "11:Header", "11:Body"), SOAP_11),
        (("11:Header", "12:Header", "11:Body"), SOAP_11),
        (("11:Body", "11:Header"), SOAP_11),
        (("12:Header", "11:Header", "12:Body"), SOAP_12),
        (("other", "11:Body"), SOAP_11),
        (("11:Header", "other", "11:Body"), SOAP_11),
    ],
)
def test_another_part(children: Iterable[str], version: SoapVersion) -> None:
    """One Header at most, then one Body, whichever version; nothing between them."""
    with pytest.raises(ValueError, match=r"the SOAP envelope has .* it has one Header at most, then one Body"):
        as_envelope(envelope_of(*children, version=version))


@pytest.mark.parametrize("children", [("11:Body",), ("11:Header", "11:Body"), ("11:Body", "trailer")])
def test_as_it_must_be(children: Iterable[str]) -> None:
    """So are others; SOAP 1.1 lets elements be behind the Body."""
    assert as_envelope(envelope_of(*children)).body.tag == f"{{{SOAP_11.namespace}}}Body"


def refusal_of(body: bytes) -> str:
    """Return why a node refuses a request."""
    message: Message = accepted(body=envelope()).message
    event = RespondingNode(Setting()).receive(replace(message, body=body))
    assert isinstance(event, RequestRefused)
    return event.reason


@pytest.mark.parametrize("version", ["11", "12"])
def test_behind_a_signed_body(version: str) -> None:
    """A Body behind the one that is signed gets no further than the node: neither a hook nor an application sees it."""
    root = ANN.sign(envelope())
    space = {"11": SOAP_11, "12": SOAP_12}[version].namespace
    body = etree.SubElement(root, f"{{{space}}}Body")
    etree.SubElement(body, f"{{{NS}}}transfer").text = "4711"
    assert "it has one Header at most, then one Body" in refusal_of(etree.tostring(root))
