"""The words of the specification and the two profiles, as data."""

from __future__ import annotations

import pickle

import pytest

from soapjms.protocol.names import (
    CR_2009,
    DEFAULT_PROFILE,
    PROFILES,
    REC_2012,
    CorrelationRule,
    Soap11FaultShape,
    SoapVersion,
    Subcode,
    profile,
)


def test_soap_versions() -> None:
    """Each SOAP version has its envelope namespace and the media type that SOAP/JMS 2.4 gives it."""
    assert SoapVersion.SOAP_11.namespace == "http://schemas.xmlsoap.org/soap/envelope/"
    assert SoapVersion.SOAP_12.namespace == "http://www.w3.org/2003/05/soap-envelope"
    assert SoapVersion.SOAP_11.media_type == "text/xml"
    assert SoapVersion.SOAP_12.media_type == "application/soap+xml"


def test_profiles_by_name() -> None:
    """Users choose a profile by name; the Recommendation is the default; a wrong name is told the right ones."""
    assert profile("cr-2009") is CR_2009
    assert profile("rec-2012") is REC_2012 is DEFAULT_PROFILE
    with pytest.raises(ValueError, match=r"unknown profile 'rec'; known are: cr-2009, rec-2012"):
        profile("rec")


def test_what_changed_between_the_editions() -> None:
    """Namespace, correlation, the shape of SOAP 1.1 faults, contentEncoding and two subcodes differ."""
    assert CR_2009.namespace == "http://www.w3.org/2008/07/soap/bindings/JMS/"
    assert REC_2012.namespace == "http://www.w3.org/2010/soapjms/"
    assert CR_2009.correlation is CorrelationRule.MESSAGE_ID
    assert REC_2012.correlation is CorrelationRule.CORRELATION_ID_ELSE_MESSAGE_ID
    assert CR_2009.soap11_fault is Soap11FaultShape.DETAIL
    assert REC_2012.soap11_fault is Soap11FaultShape.FAULTCODE
    assert CR_2009.content_encodings is None
    assert REC_2012.content_encodings == frozenset({"identity", "gzip"})
    assert REC_2012.subcodes - CR_2009.subcodes == {Subcode.MISSING_SOAP_ACTION, Subcode.CONTENT_ENCODING_NOT_SUPPORTED}
    assert len(CR_2009.subcodes) == 9


@pytest.mark.parametrize(
    ("cr_id", "in_cr", "in_rec"),
    [
        ("Protocol-2012", "Protocol-2012", "Protocol-2012"),
        ("Protocol-2013", "Protocol-2013", "Protocol-2012"),
        ("Protocol-2017", "Protocol-2017", "Protocol-2016"),
        ("Protocol-2020", "Protocol-2020", "Protocol-2019"),
        ("Protocol-2023", "Protocol-2023", "Protocol-2022"),
        ("Protocol-2034", "Protocol-2034", None),
        ("Protocol-2039", "Protocol-2039", None),
        ("Conformance-1004", "Conformance-1004", None),
        ("Local-2.2.3-missingSoapAction", None, "Local-2.2.3-missingSoapAction"),
    ],
)
def test_assertion_ids_of_a_profile(cr_id: str, in_cr: str | None, in_rec: str | None) -> None:
    """The Recommendation merged some assertions of the Candidate Recommendation, and dropped others."""
    assert CR_2009.assertion_id(cr_id) == in_cr
    assert REC_2012.assertion_id(cr_id) == in_rec


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_travel(name: str) -> None:
    """A profile can be hashed and pickled; what comes out at a Spark worker is the same object."""
    edition = profile(name)
    assert {edition: 1}[edition] == 1
    assert pickle.loads(pickle.dumps(edition)) is edition
