"""One received message as the rules look at it: each part, or why it is not there."""

from __future__ import annotations

import gzip
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.message import Element, Message, MessageType, PropertyType, PropertyValue, properties
from soapjms.protocol.limits import Limits
from soapjms.protocol.names import CR_2009, REC_2012, Profile, SoapVersion
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import EPOCH, Record

SOAP11 = "http://schemas.xmlsoap.org/soap/envelope/"
ENVELOPE = f'<e:Envelope xmlns:e="{SOAP11}"><e:Body><x>ä</x></e:Body></e:Envelope>'
OCTETS = ENVELOPE.encode()


def read(body: Any = OCTETS, profile: Profile = REC_2012, *, truncated: bool = False, **values: Any) -> Reading:
    """Read a message with this body and the SOAPJMS_ properties of these names; text/xml unless they say otherwise."""
    kinds: dict[type, MessageType] = {str: MessageType.TEXT, bytes: MessageType.BYTES, memoryview: MessageType.BYTES}
    kind = kinds.get(type(body), MessageType.MAP)
    named = {f"SOAPJMS_{name}": value for name, value in {"contentType": "text/xml", **values}.items()}
    message = Message(message_type=kind, body=body, properties=properties(named))
    return Reading.of(Record(message=message, time=datetime(2026, 1, 1, tzinfo=UTC), truncated=truncated), profile)


def multipart(*parts: bytes, kind: str = 'multipart/related; boundary=b; type="text/xml"', **values: Any) -> Reading:
    """Read a message with these parts, each with its headers."""
    return read(b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--", contentType=kind, **values)


@pytest.mark.parametrize("body", [OCTETS, ENVELOPE, memoryview(OCTETS)])
def test_an_envelope(body: Any) -> None:
    """An envelope is found in octets and in text."""
    reading = read(body)
    assert reading.envelope is not None
    assert reading.envelope.version is SoapVersion.SOAP_11
    assert reading.envelope.content is not None
    assert reading.envelope.content.text == "ä"
    assert (reading.envelope_problem, reading.body_problem, reading.multipart_problem) == (None, None, None)
    assert reading.envelope is reading.envelope
    assert reading.fault is None


def test_parts_are_lazy() -> None:
    """What nobody asks for is not worked out: an unreadable body does not keep the properties from being read."""
    reading = read(b"\xff", requestURI="jms:queue:q", soapAction="a")
    assert reading.request_uri is not None
    assert reading.request_uri.destination == "q"
    assert reading.soap_action == "a"


@pytest.mark.parametrize("value", [None, ""])
def test_empty_properties_count_as_missing(value: str | None) -> None:
    """A null or empty property is as good as none."""
    reading = read(contentType=value, requestURI=value, soapAction=value, isFault=value, contentEncoding=value)
    assert (reading.content_type, reading.request_uri, reading.soap_action) == (None, None, None)
    assert reading.is_fault is False
    assert reading.content_encoding is None
    assert reading.envelope is not None


@pytest.mark.parametrize(
    ("value", "action"),
    [("urn:a", "urn:a"), ('"urn:a"', "urn:a"), ('""', ""), ('"', '"'), ('"a', '"a'), ("a b", "a b")],
)
def test_quotes_around_the_action(value: str, action: str) -> None:
    """Quotes around SOAPJMS_soapAction, as the HTTP header has them, are taken off."""
    assert read(soapAction=value).soap_action == action


@pytest.mark.parametrize(
    ("value", "is_fault"),
    [(True, True), ("true", True), ("1", True), (1, True), (False, False), ("false", False), ("0", False), (0, False),
     ("TRUE", None), ("yes", None), (2, None)],
)  # fmt: skip
def test_is_fault(value: PropertyValue, is_fault: bool | None) -> None:
    """SOAP/JMS 2.2.3: true or 1; false, 0 or absent; as boolean, number or string."""
    assert read(isFault=value).is_fault is is_fault
    assert read().is_fault is False


def test_a_fault() -> None:
    """The fault that an envelope holds is read."""
    text = ENVELOPE.replace("<x>ä</x>", "<e:Fault><faultcode>e:Server</faultcode></e:Fault>")
    fault = read(text).fault
    assert fault is not None
    assert fault.code == f"{{{SOAP11}}}Server"
    assert read("<broken").fault is None


# Content encoding


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " gzip "])
def test_gzip(encoding: str) -> None:
    """REC: a gzip body is undone before it is read. The CR does not know the property."""
    packed = gzip.compress(OCTETS)
    reading = read(packed, contentEncoding=encoding)
    assert reading.content_encoding == "gzip"
    assert reading.body == OCTETS
    assert reading.envelope is not None
    under_cr = read(packed, CR_2009, contentEncoding=encoding)
    assert under_cr.content_encoding is None
    assert under_cr.body == packed
    assert under_cr.envelope is None


@pytest.mark.parametrize("encoding", ["identity", "Identity"])
def test_identity(encoding: str) -> None:
    """identity is no encoding."""
    assert read(contentEncoding=encoding).content_encoding is None
    assert read(contentEncoding=encoding).body == OCTETS


@pytest.mark.parametrize(
    ("body", "encoding", "why"),
    [
        (OCTETS, "gzip", "no gzip"),
        (OCTETS, "deflate", "the content encoding 'deflate' of a bytes message"),
        (ENVELOPE, "gzip", "the content encoding 'gzip' of a text message"),
        (None, None, "the body of a map message is no SOAP envelope"),
        (properties({"a": 1}), None, "the body of a map message is no SOAP envelope"),
        ((Element(PropertyType.INT, 1),), None, "is no SOAP envelope"),
    ],
)
def test_why_there_is_no_body(body: Any, encoding: str | None, why: str) -> None:
    """A body that cannot be decoded, or is of another kind, is None, with the reason."""
    reading = read(body, contentEncoding=encoding)
    assert reading.body is None
    assert why in (reading.body_problem or "")
    assert reading.envelope is None
    assert reading.envelope_problem == reading.body_problem


# Multipart


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("8bit", OCTETS),
        ("BASE64", b64encode(OCTETS)),
        ("quoted-printable", ENVELOPE.replace("=", "=3D").replace("ä", "=C3=A4").encode()),
    ],
)
def test_root_part(encoding: str, content: bytes) -> None:
    """The envelope is in the first part, whose Content-Transfer-Encoding is undone."""
    headers = f"Content-Type: text/xml\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode()
    reading = multipart(headers + content, b"\r\nattachment")
    assert reading.first_part is not None
    assert [bytes(each.content) for each in reading.attachments] == [b"attachment"]
    assert reading.envelope is not None
    assert reading.envelope.content is not None
    assert reading.envelope.content.text == "ä"


def test_multipart_text() -> None:
    """A TextMessage may have attachments too."""
    text = f"--b\r\nContent-Type: text/xml\r\n\r\n{ENVELOPE}\r\n--b--"
    assert read(text, contentType="multipart/related; boundary=b").envelope is not None


def test_charset_of_the_root_part() -> None:
    """The part's own charset says how to read it, where its octets do not."""
    part = b"Content-Type: text/xml; charset=iso-8859-1\r\n\r\n" + ENVELOPE.encode("latin-1")
    reading = multipart(part)
    assert reading.envelope is not None
    assert multipart(part.replace(b"; charset=iso-8859-1", b"")).envelope is None


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (read(contentType="multipart/related"), "without a boundary parameter"),
        (read(contentType='multipart/related; boundary=""'), "without a boundary parameter"),
        (read(contentType="multipart/related; boundary=b"), "not with the delimiter"),
        (read("--b\r\n\ud800", contentType="multipart/related; boundary=b"), "surrogates not allowed"),
        (read(b"--b\r\n\r\n<e/>", contentType="multipart/related; boundary=b"), "delimiter '--b--' is missing"),
    ],
)
def test_broken_multipart(reading: Reading, why: str) -> None:
    """A multipart body without a first part has no envelope, with the reason."""
    assert reading.first_part is None
    assert len(reading.attachments) == 0
    assert why in (reading.multipart_problem or "")
    assert reading.envelope_problem == reading.multipart_problem


@pytest.mark.parametrize("encoding", ["base64", "x-unknown"])
def test_transfer_encoding_of_the_soap_part(encoding: str) -> None:
    """A SOAP part that is not in the encoding that it names, or in one that nobody knows, is no envelope."""
    reading = multipart(f"Content-Transfer-Encoding: {encoding}\r\n\r\nabc".encode())
    assert reading.first_part is not None
    assert reading.envelope is None
    assert encoding in (reading.envelope_problem or "")


def test_a_view_of_a_multipart_body_is_not_copied() -> None:
    """The parts of a body that came as a view are views of the same octets."""
    octets = b"--b\r\nContent-Type: text/xml\r\n\r\n" + OCTETS + b"\r\n--b\r\n\r\nattached\r\n--b--"
    reading = read(memoryview(octets), contentType="multipart/related; boundary=b")
    (part,) = reading.attachments
    assert isinstance(part.content, memoryview)
    assert part.content.obj is octets
    assert part.content.readonly
    assert reading.body == octets
    assert reading.envelope is not None


@pytest.mark.parametrize(
    ("kind", "body", "version"),
    [
        ("text/xml", b"", SoapVersion.SOAP_11),
        ("application/soap+xml; charset=utf-8", b"", SoapVersion.SOAP_12),
        ('multipart/related; type="text/xml"', b"", SoapVersion.SOAP_11),
        ('multipart/related; type="application/soap+xml"', b"", SoapVersion.SOAP_12),
        ('multipart/related; type="application/xop+xml"; start-info="application/soap+xml"', b"", SoapVersion.SOAP_12),
        ("text/plain", OCTETS, SoapVersion.SOAP_11),
        ("text/plain", b"", None),
        (None, OCTETS, SoapVersion.SOAP_11),
    ],
)
def test_soap_version(kind: str | None, body: bytes, version: SoapVersion | None) -> None:
    """The content type tells the SOAP version, with its parameters, else the body does."""
    assert read(body, contentType=kind).soap_version is version


# Limits


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(size=len(OCTETS) - 1), "size"),
        (Limits(elements=2), "elements"),
        (Limits(depth=2), "depth"),
        (Limits(attributes=1, name=5), "name"),
    ],
)
def test_beyond_a_limit(limits: Limits, limit: str) -> None:
    """What goes beyond a limit has no envelope, and the limit is named."""
    message = read().message
    reading = Reading.of(Record(message=message, time=EPOCH), REC_2012, limits)
    assert reading.envelope is None
    assert reading.excess is not None
    assert reading.excess.limit == limit
    assert reading.envelope_problem == reading.excess.text
    assert read().excess is None
    assert read(b"<broken").excess is None


# Types


@pytest.mark.parametrize(
    ("kind", "body", "truncated", "known"),
    [
        (MessageType.TEXT, "", False, True),
        (MessageType.UNKNOWN, None, False, True),
        (MessageType.UNKNOWN, b"", False, True),
        (MessageType.UNKNOWN, b"x", False, False),
        (MessageType.UNKNOWN, None, True, False),
    ],
)
def test_types_that_the_wire_does_not_show(kind: MessageType, body: Any, truncated: bool, known: bool) -> None:
    """An empty message of unknown type is none that can carry SOAP; one with a body may be Bytes or Text."""
    message = Message(message_type=kind, body=body)
    record = Record(message=message, time=datetime(2026, 1, 1, tzinfo=UTC), truncated=truncated)
    assert Reading.of(record, REC_2012).type_known is known


@given(
    body=st.none() | st.binary(max_size=30) | st.text(max_size=30),
    kind=st.none()
    | st.text(max_size=20)
    | st.sampled_from(["text/xml; charset=\0", "multipart/related; boundary=\ud800"]),
    encoding=st.none() | st.sampled_from(["gzip", "deflate"]),
    uri=st.none() | st.text(max_size=12),
    profile=st.sampled_from([CR_2009, REC_2012]),
)
def test_nothing_that_arrives_raises(
    body: Any, kind: str | None, encoding: str | None, uri: str | None, profile: Profile
) -> None:
    """Each part of whatever arrives is there, or there is a reason why not."""
    reading = read(body, profile, contentType=kind, contentEncoding=encoding, requestURI=uri)
    assert (reading.body is None) is (reading.body_problem is not None)
    assert (reading.envelope is None) is (reading.envelope_problem is not None)
    assert reading.fault is None
    assert reading.is_fault is False
    assert reading.soap_action is None
    assert (reading.request_uri is None) is (not uri)
