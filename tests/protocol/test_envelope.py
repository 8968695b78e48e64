"""SOAP envelopes: hostile XML, SOAP versions, faults of both shapes and both profiles."""

from __future__ import annotations

import codecs
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from soapjms.protocol import xml
from soapjms.protocol.envelope import (
    Blame,
    Envelope,
    Fault,
    FaultShape,
    as_envelope,
    build_fault,
    header_of,
    read_envelope,
    read_fault,
    serialize,
    wrap,
)
from soapjms.protocol.errors import InvalidEnvelopeError
from soapjms.protocol.names import CR_2009, CR_NAMESPACE, REC_2012, REC_NAMESPACE, Profile, SoapVersion, Subcode

SOAP11, SOAP12 = SoapVersion.SOAP_11.namespace, SoapVersion.SOAP_12.namespace
EMPTY = f'<e:Envelope xmlns:e="{SOAP11}"><e:Body/></e:Envelope>'


def fault_of(inside: str, version: SoapVersion = SoapVersion.SOAP_11) -> Fault | None:
    """Read the fault of an envelope with `inside` in its Fault element."""
    text = f'<e:Envelope xmlns:e="{version.namespace}"><e:Body><e:Fault>{inside}</e:Fault></e:Body></e:Envelope>'
    return read_fault(as_envelope(xml.parse(text)))


# Parsing


@pytest.mark.parametrize(
    ("octets", "charset"),
    [
        ("<e>ä</e>".encode(), None),
        ("<e>ä</e>".encode(), "utf-8"),
        ("<e>ä</e>".encode("latin-1"), "iso-8859-1"),
        ("<?xml version='1.0' encoding='iso-8859-1'?><e>ä</e>".encode("latin-1"), "utf-8"),
        (codecs.BOM_UTF8 + "<e>ä</e>".encode(), "iso-8859-1"),
        ("<e>ä</e>".encode("utf-16"), None),
        ("<e>ä</e>".encode("utf-16-le"), "utf-16le"),
        ("<e>ä</e>".encode("utf-16-be"), "utf-16"),
        ("<?xml version='1.0' encoding='utf-16be'?><e>ä</e>".encode("utf-16-be"), None),
        ("<e>ä</e>".encode("utf-32"), None),
        ("<e>ä</e>".encode("utf-32-le"), "utf-32"),
        ("<?xml version='1.0' encoding='utf-16'?><e>ä</e>".encode("utf-16"), None),
        ("<?xml version='1.0' encoding='ISO-10646-UCS-4'?><e>ä</e>".encode("utf-32-be"), None),
        ("<?xml version='1.0' encoding='csISOLatin2'?><e>ä</e>".encode("iso8859-2"), None),
        ("<?xml version='1.0' encoding='Windows-31J'?><e>ä</e>".replace("ä", "あ").encode("cp932"), None),
        ("<?xml version='1.0' encoding='ISO-2022-JP'?><e>ä</e>".replace("ä", "あ").encode("iso2022-jp"), None),
    ],
)
def test_documents_in_many_encodings(octets: bytes, charset: str | None) -> None:
    """Byte order mark, declaration and first octets tell the encoding; the charset parameter where they do not."""
    assert xml.parse(octets, charset).text in ("ä", "あ")


@pytest.mark.parametrize("start", ["", "\ufeff", "<?xml version='1.0' encoding='utf-16'?>"])
def test_text_has_no_encoding(start: str) -> None:
    """What an XML declaration says of the encoding of characters is ignored."""
    assert xml.parse(f"{start}<e>ä</e>").text == "ä"


DEEP = "<a>" * 100_000
BOMB = (
    "<!DOCTYPE b [<!ENTITY a0 'x'>"
    + "".join(f"<!ENTITY a{level} '{f'&a{level - 1};' * 10}'>" for level in range(1, 12))
    + "]><b>&a11;</b>"
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "no XML",
        "<a>",
        "<a/><b/>",
        "<a>\0</a>",
        "<a b='1' b='2'/>",
        "<a>&unknown;</a>",
        "<n:a/>",
        "\ud800",
        DEEP,
        DEEP + "</a>" * 100_000,
        f"<a {'b' * 11_000_000}=''/>",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_broken_documents(text: str) -> None:
    """What is not well-formed, or nested or long beyond libxml2's limits, is refused: as text and as octets."""
    with pytest.raises(ValueError):  # noqa: PT011  # libxml2 words it
        xml.parse(text)
    with pytest.raises(ValueError):  # noqa: PT011
        xml.parse(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("charset", ["x-unknown", "punycode", "a\0b", "\ud800", "ascii", "utf-16", "IBM037", "utf-7"])
def test_charsets_that_do_not_help(charset: str) -> None:
    """A charset that is none, or in which the document is not, makes it unreadable."""
    with pytest.raises(ValueError):  # noqa: PT011
        xml.parse("<e>ä</e>".encode(), charset)


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE a><a/>",
        "<!DOCTYPE a []><a/>",
        "<!DOCTYPE a PUBLIC '-//x' 'urn:x'><a/>",
        "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        "<!DOCTYPE a [<!ENTITY x 'y'>]><a b='&x;'/>",
        BOMB,
        BOMB.replace("<b>&a11;</b>", "<b c='&a11;'/>"),
    ],
)
def test_document_types_are_refused(text: str) -> None:
    """SOAP forbids a document type: entities, and bombs made of them, come to nothing."""
    with pytest.raises(ValueError, match=r"document type|not well-formed"):
        xml.parse(text)


@pytest.mark.parametrize("declaration", ["<!ENTITY x SYSTEM '{}'>", "<!ENTITY % x SYSTEM '{}'> %x;"])
def test_nothing_is_loaded(declaration: str) -> None:
    """An external entity or DTD is fetched neither from a file nor over the network."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        for where in (address, Path(tempfile.gettempdir()).as_uri()):
            inside = declaration.format(where)
            for text in (f"<!DOCTYPE a [{inside}]><a>&x;</a>", f"<!DOCTYPE a SYSTEM '{where}'><a/>"):
                with pytest.raises(ValueError):  # noqa: PT011
                    xml.parse(text)
        with pytest.raises(BlockingIOError):
            listener.accept()


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60)), st.none() | st.text(max_size=8))
def test_hostile_documents_raise_one_kind_of_error(body: bytes | str, charset: str | None) -> None:
    """Whatever arrives is parsed or refused with ValueError."""
    try:
        xml.parse(body, charset)
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either outcome is right


# Envelopes


@pytest.mark.parametrize("version", list(SoapVersion))
def test_envelope_of_each_version(version: SoapVersion) -> None:
    """The version is that of the envelope's namespace; header, body and its first element are found."""
    text = (
        f'<e:Envelope xmlns:e="{version.namespace}"><e:Header><h/></e:Header>'
        "<e:Body><!-- c --><?p i?><x/><y/></e:Body></e:Envelope>"
    )
    envelope = as_envelope(xml.parse(text))
    assert envelope.version is version
    assert envelope.header is not None
    assert envelope.content is not None
    assert envelope.content.tag == "x"
    assert as_envelope(xml.parse(EMPTY)).header is None
    assert as_envelope(xml.parse(EMPTY)).content is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<Envelope/>", "no SOAP envelope"),
        ("<e:Envelope xmlns:e='urn:other'><e:Body/></e:Envelope>", "no SOAP envelope"),
        (f"<e:Body xmlns:e='{SOAP11}'/>", "no SOAP envelope"),
        (f"<e:Envelope xmlns:e='{SOAP11}'/>", "no Body"),
        (f"<e:Envelope xmlns:e='{SOAP11}'><Body/></e:Envelope>", "no Body"),
        (f"<e:Envelope xmlns:e='{SOAP11}'><f:Body xmlns:f='{SOAP12}'/></e:Envelope>", "no Body"),
    ],
)
def test_what_is_no_envelope(text: str, why: str) -> None:
    """Another root, another namespace, or no Body in the same namespace is no SOAP envelope."""
    with pytest.raises(ValueError, match=why):
        as_envelope(xml.parse(text))


def test_what_a_caller_may_send() -> None:
    """Octets go as they are, without white space before them; text and elements go as UTF-8."""
    latin = f"<?xml version='1.0' encoding='iso-8859-1'?>{EMPTY}".encode("latin-1")
    assert read_envelope(latin)[1] == latin
    assert read_envelope(b"\n  " + EMPTY.encode() + b"\n")[1] == EMPTY.encode() + b"\n"
    assert read_envelope(EMPTY)[1] == EMPTY.encode()
    assert read_envelope("<?xml version='1.0' encoding='utf-16'?>" + EMPTY)[1] == EMPTY.encode()
    inside = xml.parse(f"<outer>{EMPTY}tail</outer>")[0]
    assert read_envelope(inside)[1] == EMPTY.encode()


@pytest.mark.parametrize("envelope", [b"", "<a/>", b"<!DOCTYPE a><a/>", etree.Comment("x"), etree.Element("a"), 7])
def test_what_a_caller_may_not_send(envelope: Any) -> None:
    """What is no envelope is the caller's mistake, and said so before anything is sent."""
    with pytest.raises(InvalidEnvelopeError, match="the content to send is not a SOAP envelope: "):
        read_envelope(envelope)


@pytest.mark.parametrize("version", SoapVersion)
@pytest.mark.parametrize("parts", ["BB", "HHB", "BH", "xB", "HxB"])
def test_one_header_at_most_then_one_body(version: SoapVersion, parts: str) -> None:
    """An envelope has one Header at most, then one Body, and nothing before it; what is signed is what is read."""
    tags = {"H": f"{{{version.namespace}}}Header", "B": f"{{{version.namespace}}}Body", "x": "{urn:x}other"}
    root = etree.Element(f"{{{version.namespace}}}Envelope")
    for part in parts:
        etree.SubElement(root, tags[part])
    with pytest.raises(ValueError, match="it has one Header at most, then one Body"):
        as_envelope(root)


def test_what_stands_behind_the_body() -> None:
    """SOAP 1.1 lets elements follow the Body; no part of SOAP among them."""
    root = wrap(None, SoapVersion.SOAP_11)
    etree.SubElement(root, "{urn:x}trailer")
    assert as_envelope(root).content is None


def test_header() -> None:
    """The Header is made where there is none, before the Body, and only once."""
    root = wrap(None, SoapVersion.SOAP_12)
    made = header_of(root)
    assert header_of(root) is made
    assert [etree.QName(each).localname for each in root] == ["Header", "Body"]


def test_wrapping() -> None:
    """An element is put into the body of an envelope; without one the body is empty."""
    wrapped = wrap(etree.Element("{urn:x}y"), SoapVersion.SOAP_12)
    envelope = as_envelope(xml.parse(serialize(wrapped)))
    assert envelope.version is SoapVersion.SOAP_12
    assert envelope.content is not None
    assert envelope.content.tag == "{urn:x}y"
    assert as_envelope(wrap(None, SoapVersion.SOAP_11)).content is None


# Faults


@pytest.mark.parametrize("namespace", [CR_NAMESPACE, REC_NAMESPACE])
@pytest.mark.parametrize(
    ("version", "inside", "code", "shape"),
    [
        (
            SoapVersion.SOAP_11,
            "<faultcode>e:Client</faultcode><faultstring> why </faultstring>"
            '<detail><s:missingContentType xmlns:s="{}"/></detail>',
            f"{{{SOAP11}}}Client",
            FaultShape.DETAIL,
        ),
        (
            SoapVersion.SOAP_11,
            '<faultcode xmlns:s="{}">\n s:missingContentType </faultcode><faultstring>why</faultstring>',
            "{{{}}}missingContentType",
            FaultShape.FAULTCODE,
        ),
        (
            SoapVersion.SOAP_12,
            '<e:Code><e:Value>e:Sender</e:Value><e:Subcode><e:Value xmlns:s="{}">s:missingContentType</e:Value>'
            '</e:Subcode></e:Code><e:Reason><e:Text xml:lang="en">why</e:Text></e:Reason>',
            f"{{{SOAP12}}}Sender",
            FaultShape.SUBCODE,
        ),
    ],
)
def test_faults_of_the_binding(namespace: str, version: SoapVersion, inside: str, code: str, shape: FaultShape) -> None:
    """SOAP/JMS 2.8: both SOAP 1.1 shapes, the SOAP 1.2 shape, and both namespaces are read."""
    fault = fault_of(inside.replace("{}", namespace), version)
    assert fault is not None
    assert (fault.version, fault.subcode, fault.namespace, fault.shape) == (
        version,
        "missingContentType",
        namespace,
        shape,
    )
    assert fault.reason == "why"
    assert fault.code == code.replace("{{{}}}", f"{{{namespace}}}")


@pytest.mark.parametrize(
    ("version", "inside", "code"),
    [
        (SoapVersion.SOAP_11, "", ""),
        (SoapVersion.SOAP_11, "<faultcode/>", ""),
        (SoapVersion.SOAP_11, "<faultcode>e:Server</faultcode><detail/>", f"{{{SOAP11}}}Server"),
        (SoapVersion.SOAP_11, "<faultcode>x:y</faultcode>", "x:y"),
        (SoapVersion.SOAP_11, "<faultcode>Server</faultcode>", "Server"),
        (SoapVersion.SOAP_11, '<faultcode xmlns="">Server</faultcode>', "Server"),
        (
            SoapVersion.SOAP_11,
            f'<faultcode>e:Client</faultcode><detail xmlns:s="{CR_NAMESPACE}"><s:a/><s:b/></detail>',
            f"{{{SOAP11}}}Client",
        ),
        (SoapVersion.SOAP_12, "", ""),
        (SoapVersion.SOAP_12, "<e:Code><e:Value>e:Receiver</e:Value></e:Code>", f"{{{SOAP12}}}Receiver"),
        (
            SoapVersion.SOAP_12,
            '<e:Code><e:Value>e:Sender</e:Value><e:Subcode><e:Value xmlns:m="urn:m">m:x</e:Value></e:Subcode></e:Code>',
            f"{{{SOAP12}}}Sender",
        ),
    ],
)
def test_other_faults(version: SoapVersion, inside: str, code: str) -> None:
    """A fault of the application, however bare, is read, and has no subcode of the binding."""
    fault = fault_of(inside, version)
    assert fault is not None
    assert fault.code == code
    assert (fault.subcode, fault.namespace, fault.shape) == (None, None, None)


def test_no_fault() -> None:
    """An envelope without a Fault of its own namespace holds none."""
    assert read_fault(as_envelope(xml.parse(EMPTY))) is None
    other = EMPTY.replace("<e:Body/>", f'<e:Body><f:Fault xmlns:f="{SOAP12}"/></e:Body>')
    assert read_fault(as_envelope(xml.parse(other))) is None


def built(version: SoapVersion, profile: Profile, **options: object) -> tuple[Envelope, Fault]:
    """Build a fault, send it over the wire, and read it."""
    envelope = as_envelope(xml.parse(serialize(build_fault(version, "why", profile=profile, **options))))  # type: ignore[arg-type]
    fault = read_fault(envelope)
    assert fault is not None
    return envelope, fault


@pytest.mark.parametrize("subcode", list(Subcode))
@pytest.mark.parametrize("profile", [CR_2009, REC_2012], ids=lambda each: each.name)
@pytest.mark.parametrize("version", list(SoapVersion))
def test_every_subcode_is_built_as_the_profile_has_it(version: SoapVersion, profile: Profile, subcode: Subcode) -> None:
    """SOAP 1.2: Sender with a Subcode. SOAP 1.1: the detail in the CR, the faultcode in the REC."""
    envelope, fault = built(version, profile, subcode=subcode)
    assert envelope.version is version
    assert (fault.subcode, fault.namespace, fault.reason) == (subcode, profile.namespace, "why")
    if version is SoapVersion.SOAP_12:
        assert fault.shape is FaultShape.SUBCODE
        assert fault.code == f"{{{SOAP12}}}Sender"
        assert [etree.QName(each).localname for each in fault.element] == ["Code", "Reason"]
        assert fault.element.find(f"{{{SOAP12}}}Reason/*").get("{http://www.w3.org/XML/1998/namespace}lang") == "en"  # type: ignore[union-attr]
    elif profile is CR_2009:
        assert fault.shape is FaultShape.DETAIL
        assert fault.code == f"{{{SOAP11}}}Client"
        assert [each.tag for each in fault.element] == ["faultcode", "faultstring", "detail"]
    else:
        assert fault.shape is FaultShape.FAULTCODE
        assert [each.tag for each in fault.element] == ["faultcode", "faultstring"]


@pytest.mark.parametrize("version", SoapVersion)
@pytest.mark.parametrize("profile", [CR_2009, REC_2012])
@pytest.mark.parametrize("subcode", Subcode)
def test_a_subcode_is_read_without_its_envelope(version: SoapVersion, profile: Profile, subcode: Subcode) -> None:
    """The element that names a subcode declares its prefix: CXF reads a SOAP 1.2 fault apart from its envelope."""
    root = build_fault(version, "no", profile=profile, subcode=subcode)
    naming = [each for each in root.iter() if (each.text or "").startswith("soapjms:")]
    for element in naming:
        alone = etree.tostring(element).split(b">")[0]
        assert f'xmlns:soapjms="{profile.namespace}"'.encode() in alone
        assert "soapjms" not in root.nsmap
    assert len(naming) == (version is SoapVersion.SOAP_12 or profile is REC_2012)


def test_subcodes_of_an_application_are_read_without_their_envelope() -> None:
    """Each of several declares its own."""
    root = build_fault(SoapVersion.SOAP_12, "no", subcodes=("{urn:a}one", "{urn:b}two"))
    naming = [each for each in root.iter() if (each.text or "").startswith("sub:")]
    assert [(each.nsmap["sub"], each.getparent().nsmap.get("sub")) for each in naming] == [
        ("urn:a", None),
        ("urn:b", None),
    ]


@pytest.mark.parametrize(
    ("version", "blame", "code"),
    [
        (SoapVersion.SOAP_11, Blame.SENDER, "Client"),
        (SoapVersion.SOAP_11, Blame.RECEIVER, "Server"),
        (SoapVersion.SOAP_11, Blame.MUST_UNDERSTAND, "MustUnderstand"),
        (SoapVersion.SOAP_12, Blame.RECEIVER, "Receiver"),
        (SoapVersion.SOAP_12, Blame.VERSION_MISMATCH, "VersionMismatch"),
    ],
)
def test_faults_of_an_application(version: SoapVersion, blame: Blame, code: str) -> None:
    """A fault without subcode says whose mistake it was, and carries the application's detail."""
    detail = etree.Element("{urn:app}cause")
    _, fault = built(version, REC_2012, blame=blame, detail=detail)
    assert fault.code == f"{{{version.namespace}}}{code}"
    assert fault.subcode is None
    assert fault.detail is not None
    assert [each.tag for each in fault.detail] == ["{urn:app}cause"]


@pytest.mark.parametrize("version", list(SoapVersion))
def test_reasons_hold_any_text(version: SoapVersion) -> None:
    """Characters that XML cannot hold are replaced in a reason; the others, markup among them, arrive."""
    root = build_fault(version, "a\0b\x0bc\ud800d\ufffee <f> & \t\U0001f600")
    fault = read_fault(as_envelope(xml.parse(serialize(root))))
    assert fault is not None
    assert fault.reason == "a�b�c�d�e <f> & \t\U0001f600"


# Faults as exceptions


@pytest.mark.parametrize(
    ("version", "options", "blame"),
    [
        (SoapVersion.SOAP_11, {"subcode": Subcode.MISSING_CONTENT_TYPE}, Blame.SENDER),
        (SoapVersion.SOAP_11, {"blame": Blame.SENDER}, Blame.SENDER),
        (SoapVersion.SOAP_11, {"blame": Blame.RECEIVER}, Blame.RECEIVER),
        (SoapVersion.SOAP_12, {"blame": Blame.SENDER}, Blame.SENDER),
        (SoapVersion.SOAP_12, {"blame": Blame.RECEIVER}, Blame.RECEIVER),
        (SoapVersion.SOAP_12, {"subcode": Subcode.MISSING_CONTENT_TYPE}, Blame.SENDER),
    ],
)
def test_fault_as_error(version: SoapVersion, options: dict[str, object], blame: Blame) -> None:
    """A caller who wants a fault raised gets its reason, code, subcode and detail, and whose mistake it was."""
    _, fault = built(version, REC_2012, **options)
    error = fault.as_error()
    assert str(error) == error.reason == "why"
    assert error.blame == blame
    assert error.subcode == fault.subcode
    assert error.code == fault.code
    assert error.detail is fault.detail is None


@pytest.mark.parametrize("version", SoapVersion)
def test_subcodes(version: SoapVersion) -> None:
    """SOAP 1.2 has all of them, one in the other; SOAP 1.1 the last, in the place of its own code."""
    names = ["{urn:a}General", "{urn:b}Special"]
    root = build_fault(version, "no", blame=Blame.SENDER, subcodes=names)
    fault = read_fault(as_envelope(etree.fromstring(etree.tostring(root))))
    assert fault is not None
    assert fault.reason == "no"
    if version is SoapVersion.SOAP_12:
        assert (fault.code, fault.subcodes) == (f"{{{version.namespace}}}Sender", tuple(names))
    else:
        assert (fault.code, fault.subcodes) == ("{urn:b}Special", ("{urn:b}Special",))
    assert fault.as_error().subcodes == fault.subcodes


@pytest.mark.parametrize("version", SoapVersion)
def test_no_subcodes(version: SoapVersion) -> None:
    """The codes of SOAP and of the binding are none of them, nor is what cannot be read as a name."""
    for options in ({}, {"subcode": Subcode.MISSING_CONTENT_TYPE}):
        fault = read_fault(as_envelope(build_fault(version, "no", **options)))  # type: ignore[arg-type]
        assert fault is not None
        assert fault.subcodes == ()
    root = build_fault(version, "no", subcodes=["{urn:a}A"])
    for each in root.iter("faultcode", "{*}Value"):
        each.text = "nobody:A"
    fault = read_fault(as_envelope(root))
    assert fault is not None
    assert fault.subcodes == ()


@pytest.mark.parametrize("before", [b"", b"<!-- c -->", b"<?p i?>", b" "])
@pytest.mark.parametrize("element", [b"", b"<a/>", b"<a/><b/>"])
def test_the_content_of_a_body(before: bytes, element: bytes) -> None:
    """It is the first element, whatever stands before it."""
    space = SoapVersion.SOAP_11.namespace.encode()
    document = b"<e:Envelope xmlns:e='%b'><e:Body>%b%b</e:Body></e:Envelope>" % (space, before, element)
    content = as_envelope(xml.parse(document)).content
    assert (None if content is None else content.tag) == ("a" if element else None)
