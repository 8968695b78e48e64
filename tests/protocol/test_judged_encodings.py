"""Encodings as a responding node judges them: which are read, which are a mismatch, which are refused by name."""

from __future__ import annotations

import codecs
from dataclasses import replace

import pytest
from protocol_kit import changed, envelope, started

from brokers.message import Body, Element, Properties, PropertyType
from soapjms.protocol.assertions import Setting
from soapjms.protocol.names import CR_2009, REC_2012, Profile, SoapVersion, Subcode
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode

TEXT = envelope().decode()
MISMATCH = Subcode.CONTENT_TYPE_MISMATCH


def declared(name: str) -> str:
    """Write the envelope with an XML declaration."""
    return f"<?xml version='1.0' encoding='{name}'?>{TEXT}"


def answer(body: bytes | str, kind: str, profile: Profile = REC_2012) -> RequestAccepted | RequestRefused:
    """Send a request with this body and content type to a responding node."""
    _, message = started(body=envelope())
    message = replace(changed(message, contentType=kind), body=body)
    return RespondingNode(Setting(profile=profile)).receive(message)


@pytest.mark.parametrize("profile", [CR_2009, REC_2012])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (TEXT.encode(), "text/xml"),
        (TEXT.encode(), "TEXT/XML (SOAP) ; (as) CharSet = (of) \"csUTF8\" (old)"),
        (codecs.BOM_UTF8 + declared("UTF-8").encode(), "text/xml; charset=utf8"),
        (declared("ISO_8859-1").encode("latin-1"), "text/xml; charset=csISOLatin1"),
        (declared("latin1").encode("latin-1"), "text/xml"),
        (TEXT.encode("latin-1"), "text/xml; charset=l1"),
        (TEXT.encode("utf-16"), "text/xml; charset=UTF-16"),
        (TEXT.encode("utf-16-be"), "text/xml"),
        (declared("UTF-16LE").encode("utf-16-le"), "text/xml; charset=utf-16"),
        (codecs.BOM_UTF16_BE + declared("UTF-16BE").encode("utf-16-be"), "text/xml; charset=csUTF16BE"),
        (TEXT.encode("utf-32"), "text/xml; charset=utf-32"),
        (declared("ISO-10646-UCS-4").encode("utf-32-be"), "text/xml"),
    ],
)  # fmt: skip
def test_encodings_that_are_read(body: bytes, kind: str, profile: Profile) -> None:
    """XML 1.0 appendix F and the IANA registry: the request is accepted, and its text is whole."""
    event = answer(body, kind, profile)
    assert isinstance(event, RequestAccepted), event
    assert event.tolerated == ()
    assert event.envelope.content is not None
    assert event.envelope.content.text == "ä"


@pytest.mark.parametrize("profile", [CR_2009, REC_2012])
@pytest.mark.parametrize("kind", ["text/xml", "text/xml; charset={}"])
@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (codecs.BOM_UTF8, "utf-8", "ISO-8859-1"),
        (codecs.BOM_UTF8, "utf-8", "US-ASCII"),
        (codecs.BOM_UTF8, "utf-8", "UTF-16"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16BE"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-32"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32BE"),
        (b"", "utf-16-be", "UTF-8"),
        (b"", "utf-8", "UTF-16"),
        (b"", "utf-8", "IBM037"),
    ],
)
def test_first_octets_against_the_declaration(mark: bytes, codec: str, name: str, kind: str, profile: Profile) -> None:
    """A document that contradicts itself is contentTypeMismatch, whatever charset there is; libxml2 reads most."""
    for charset in (name, codec):
        event = answer(mark + declared(name).encode(codec), kind.format(charset), profile)
        assert isinstance(event, RequestRefused)
        assert event.subcode is MISMATCH
        assert f"the XML declaration says {name}" in event.reason


@pytest.mark.parametrize("kind", ["text/xml", 'multipart/related; boundary=b; type="text/xml"'])
@pytest.mark.parametrize("body", [(), Properties(), (Element(PropertyType.INT, 1),)])
def test_a_body_that_its_type_cannot_have(body: Body, kind: str) -> None:
    """A message that contradicts itself as no broker's does is refused, not read further."""
    _, message = started()
    event = RespondingNode(Setting()).receive(replace(changed(message, contentType=kind), body=body))
    assert isinstance(event, RequestRefused)
    assert "the body of a bytes message is no SOAP envelope" in event.reason


@pytest.mark.parametrize(
    ("body", "kind", "subcode", "why"),
    [
        (declared("IBM037").encode("cp037"), "text/xml", None, "in EBCDIC (IBM037), which is refused: send UTF-8"),
        (declared("IBM037").encode("cp037"), "text/xml; charset=cp037", None, "in EBCDIC (IBM037), which is refused"),
        (TEXT.encode("cp037"), "text/xml; charset=IBM037", None, "the encoding 'IBM037' is EBCDIC, which is refused"),
        (TEXT.encode("cp037"), "text/xml", None, "not well-formed XML"),
        (declared("IBM037").encode("cp037"), "text/xml; charset=utf-8", MISMATCH, "the first octets say EBCDIC"),
        (declared("IBM037").encode("cp037"), "text/xml; charset=IBM500", MISMATCH, "the XML declaration says IBM037"),
        (TEXT.encode(), "text/xml; charset=IBM037", MISMATCH, "charset is 'IBM037', the first octets say"),
        (TEXT.encode(), "text/xml; charset=x-odd", MISMATCH, "charset is 'x-odd', which is unknown"),
        (TEXT.encode(), "text/xml; charset=utf-7", MISMATCH, "charset is 'utf-7', which is unknown"),
        (declared("x-odd").encode(), "text/xml", None, "the encoding 'x-odd' is unknown"),
        (declared("x-odd").encode(), "text/xml; charset=x-odd", None, "the encoding 'x-odd' is unknown"),
        (declared("UTF-8").encode("latin-1"), "text/xml", None, "not well-formed XML: Invalid bytes"),
        (declared("UTF-8").encode(), "text/xml; charset=latin1", MISMATCH, "the XML declaration says UTF-8"),
        (
            TEXT.encode(),
            "text/xml; charset=UTF-16",
            MISMATCH,
            "charset is 'UTF-16', the first octets say an encoding that agrees with ASCII",
        ),
        (TEXT.encode("utf-16-le"), "text/xml; charset=UTF-16BE", MISMATCH, "the first octets say UTF-16"),
        (b"\x00\x00<\x00\x00\x00e\x00", "text/xml", None, "UCS-4 in an unusual order of octets"),
        (b"\xfe\xff\x00\x00\x00<\x00\x00", "text/xml", None, "UCS-4 in an unusual order of octets"),
        (TEXT.encode(), "text/xml (no end", MISMATCH, "a comment in 'text/xml (no end' has no end"),
        (TEXT.encode(), "application/soap+xml", MISMATCH, "the envelope is SOAP 1.1"),
        (envelope(SoapVersion.SOAP_12), "text/xml", MISMATCH, "the envelope is SOAP 1.2"),
    ],
)
def test_what_is_refused(body: bytes, kind: str, subcode: Subcode | None, why: str) -> None:
    """Each refusal names what was seen; a disagreement is contentTypeMismatch, an encoding that nobody reads is not."""
    event = answer(body, kind)
    assert isinstance(event, RequestRefused)
    assert event.subcode is subcode, event.reason
    assert any(each in event.reason for each in why.split("|")), event.reason
