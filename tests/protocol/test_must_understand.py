"""Header blocks that must be understood, by the rules of both SOAP versions."""

from __future__ import annotations

import pytest
from calling_kit import SOAP_11, SOAP_12
from lxml import etree

from soapjms.protocol.envelope import (
    Envelope,
    as_envelope,
    blocks_for,
    must_understand_fault,
    not_understood,
    read_fault,
)
from soapjms.protocol.names import SoapVersion

NEXT_11 = "http://schemas.xmlsoap.org/soap/actor/next"
ROLE_12 = f"{SOAP_12.namespace}/role"


def with_headers(version: SoapVersion, headers: str) -> Envelope:
    """Make an envelope."""
    return as_envelope(etree.fromstring(f'<e:Envelope xmlns:e="{version.namespace}">{headers}<e:Body/></e:Envelope>'))


def unknown(version: SoapVersion, attributes: str, *understands: str) -> int:
    """Count what of one block is not understood."""
    envelope = with_headers(version, f'<e:Header><!-- a --><b xmlns="urn:b" {attributes}/></e:Header>')
    return len(not_understood(envelope, understands, ["urn:me"]))


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
@pytest.mark.parametrize(
    ("attributes", "number"),
    [
        ("", 0),
        ('e:mustUnderstand="0"', 0),
        ('e:mustUnderstand="false"', 0),
        ('e:mustUnderstand="yes"', 0),
        ('mustUnderstand="1"', 0),
        ('e:mustUnderstand="1"', 1),
        ('e:mustUnderstand=" true "', 1),
    ],
)
def test_what_must_be_understood(version: SoapVersion, attributes: str, number: int) -> None:
    """Those that say it in the namespace of their envelope."""
    assert unknown(version, attributes) == number


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
def test_no_header(version: SoapVersion) -> None:
    """Without headers nothing has to be understood."""
    assert not_understood(with_headers(version, ""), []) == []
    assert not_understood(with_headers(version, "<e:Header/>"), []) == []


@pytest.mark.parametrize(
    ("version", "attribute", "number"),
    [
        (SOAP_11, 'e:actor=""', 1),
        (SOAP_11, f'e:actor="{NEXT_11}"', 1),
        (SOAP_11, 'e:actor="urn:me"', 1),
        (SOAP_11, 'e:actor="urn:somebody"', 0),
        (SOAP_11, f'e:actor="{ROLE_12}/next"', 0),
        (SOAP_12, 'e:role=""', 1),
        (SOAP_12, f'e:role="{ROLE_12}/next"', 1),
        (SOAP_12, f'e:role="{ROLE_12}/ultimateReceiver"', 1),
        (SOAP_12, f'e:role="{ROLE_12}/none"', 0),
        (SOAP_12, 'e:role="urn:me"', 1),
        (SOAP_12, 'e:role="urn:somebody"', 0),
        (SOAP_12, 'e:actor="urn:somebody"', 1),
    ],
)
def test_whom_it_is_for(version: SoapVersion, attribute: str, number: int) -> None:
    """Blocks for others are theirs to understand."""
    assert unknown(version, f'e:mustUnderstand="1" {attribute}') == number


@pytest.mark.parametrize(
    ("understands", "number"), [("{urn:b}b", 0), ("{urn:b}*", 0), ("{urn:b}c", 1), ("b", 1), ("{}*", 1)]
)
def test_what_is_understood(understands: str, number: int) -> None:
    """By name, or by namespace."""
    assert unknown(SOAP_11, 'e:mustUnderstand="1"', understands) == number


def test_no_namespace() -> None:
    """A block without a namespace, which SOAP 1.1 lets pass, is one of the empty namespace."""
    envelope = with_headers(SOAP_11, '<e:Header><b e:mustUnderstand="1"/></e:Header>')
    assert len(not_understood(envelope, [])) == 1
    assert not_understood(envelope, ["{}*"]) == []


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
def test_fault(version: SoapVersion) -> None:
    """It has the code, names the blocks, and in SOAP 1.2 has a header for each; of very many the first."""
    blocks = [etree.Element(f"{{urn:b}}b{number}") for number in range(25)] + [etree.Element("plain")]
    root = must_understand_fault(version, blocks[:1] + blocks[-1:])
    fault = read_fault(as_envelope(root))
    assert fault is not None
    assert fault.code == f"{{{version.namespace}}}MustUnderstand"
    assert fault.reason.endswith(": {urn:b}b0, plain")
    seen = root.findall(f"{{{version.namespace}}}Header/{{{version.namespace}}}NotUnderstood")
    names = [(each.get("qname"), each.nsmap.get("block")) for each in seen]
    assert names == ([] if version is SOAP_11 else [("block:b0", "urn:b"), ("plain", None)])
    many = must_understand_fault(version, blocks)
    assert len(many.findall(f"{{{version.namespace}}}Header/*")) == (0 if version is SOAP_11 else 20)
    assert "{urn:b}b19, …" in etree.tostring(many, encoding="unicode")


@pytest.mark.parametrize(("version", "role"), [(SOAP_11, "e:actor"), (SOAP_12, "e:role")])
def test_blocks_for_this_node(version: SoapVersion, role: str) -> None:
    """Those of a name, but for those of others."""
    blocks = (
        f'<b xmlns="urn:b"/><b xmlns="urn:b" {role}="urn:me"/><b xmlns="urn:b" {role}="urn:you"/><c xmlns="urn:b"/>'
    )
    envelope = with_headers(version, f"<e:Header>{blocks}</e:Header>")
    assert len(blocks_for(envelope, "{urn:b}b")) == 1
    assert len(blocks_for(envelope, "{urn:b}b", ["urn:me"])) == 2
    assert blocks_for(with_headers(version, ""), "{urn:b}b") == []
