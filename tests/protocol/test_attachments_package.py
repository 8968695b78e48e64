"""Multipart bodies put together: SwA and MTOM, for both message types, as others read them too."""

from __future__ import annotations

import email
import re
from base64 import b64encode
from email.message import Message as EmailMessage
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from protocol_kit import envelope
from requests import Response
from requests_toolbelt.multipart.decoder import MultipartDecoder
from zeep.wsdl.attachments import MessagePack
from zeep.wsdl.messages.xop import process_xop

from soapjms.protocol import xml
from soapjms.protocol.attachments import (
    XOP_INCLUDE,
    Attachment,
    Attachments,
    Multipart,
    attachments_given,
    optimize,
    packaged,
    read_multipart,
)
from soapjms.protocol.content import parse_content_type
from soapjms.protocol.envelope import as_envelope, serialize
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import SoapVersion

PLAIN = envelope()
TYPE_11 = "text/xml; charset=utf-8"
TYPE_12 = 'application/soap+xml; charset=utf-8; action="urn:a"'
OCTETS = bytes(range(256)) * 3 + b"\r\n--b\r\n\n"


def package(
    *attachments: Attachment, root: bytes = PLAIN, kind: str = TYPE_11, as_text: bool = False, **options: Any
) -> tuple[bytes | str, str]:
    """Put a body together."""
    return packaged(root.decode() if as_text else root, kind, as_envelope(xml.parse(root)), attachments, **options)


def read_back(body: bytes | str, kind: str) -> Multipart:
    """Take a body apart by the content type that was written with it."""
    return read_multipart(body, parse_content_type(kind))


def with_includes(*attachments: Attachment, version: SoapVersion = SoapVersion.SOAP_11) -> bytes:
    """Write an envelope that refers to attachments."""
    root = xml.parse(envelope(version))
    for each in attachments:
        etree.SubElement(root[0][0], "{urn:x}data").append(each.include())
    return serialize(root)


# What is written


def test_soap_with_attachments() -> None:
    """Every octet of a SwA body."""
    body, kind = package(
        Attachment(b"\0\xff", "image/png", "a@b", fields={"Content-Disposition": 'attachment; filename="x.png"'}),
        Attachment(b"<x/>", "text/xml", content_location="http://h/x.xml"),
        root=b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body/></e:Envelope>',
    )
    assert kind == ('multipart/related; boundary="soapjms_part_1_"; type="text/xml"; start="<envelope@soapjms>"')
    assert body == (
        b"--soapjms_part_1_\r\n"
        b"Content-Type: text/xml; charset=utf-8\r\n"
        b"Content-Transfer-Encoding: binary\r\n"
        b"Content-ID: <envelope@soapjms>\r\n"
        b"\r\n"
        b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body/></e:Envelope>\r\n'
        b"--soapjms_part_1_\r\n"
        b"Content-Type: image/png\r\n"
        b"Content-Transfer-Encoding: binary\r\n"
        b"Content-ID: <a@b>\r\n"
        b'Content-Disposition: attachment; filename="x.png"\r\n'
        b"\r\n"
        b"\0\xff\r\n"
        b"--soapjms_part_1_\r\n"
        b"Content-Type: text/xml\r\n"
        b"Content-Transfer-Encoding: binary\r\n"
        b"Content-Location: http://h/x.xml\r\n"
        b"\r\n"
        b"<x/>\r\n"
        b"--soapjms_part_1_--"
    )


@pytest.mark.parametrize(
    ("version", "kind", "outer", "inner"),
    [
        (
            SoapVersion.SOAP_11,
            TYPE_11,
            {"type": "application/xop+xml", "start": "<envelope@soapjms>", "start-info": "text/xml"},
            {"charset": "utf-8", "type": "text/xml"},
        ),
        (
            SoapVersion.SOAP_12,
            TYPE_12,
            {
                "type": "application/xop+xml",
                "start": "<envelope@soapjms>",
                "start-info": "application/soap+xml",
                "action": "urn:a",
            },
            {"charset": "utf-8", "type": "application/soap+xml", "action": "urn:a"},
        ),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_mtom(version: SoapVersion, kind: str, outer: dict[str, str], inner: dict[str, str], as_text: bool) -> None:
    """An envelope with an xop:Include goes as MTOM, with the parameters that MTOM and RFC 2387 ask for."""
    attachment = Attachment(OCTETS, "image/png", "a@b")
    root = with_includes(attachment, version=version)
    body, written = package(attachment, root=root, kind=kind, as_text=as_text)
    parsed = parse_content_type(written)
    assert parsed.media_type == "multipart/related"
    assert {name: each for name, each in parsed.parameters.items() if name != "boundary"} == outer
    found = read_back(body, written)
    assert found.root.content_type is not None
    assert found.root.content_type.media_type == "application/xop+xml" == parsed.parameters["type"]
    assert found.root.content_type.parameters == inner
    assert found.root.document == (root.decode() if as_text else root)
    element = xml.parse(found.root.document)[0][0][0]
    assert found.attachments.octets_of(element) == OCTETS


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(("version", "kind"), [(SoapVersion.SOAP_11, TYPE_11), (SoapVersion.SOAP_12, TYPE_12)])
def test_type_is_that_of_the_first_part(version: SoapVersion, kind: str, as_text: bool) -> None:
    """Protocol-2015, Protocol-2029: nothing is before the first delimiter, and `type` is the first part's."""
    body, written = package(Attachment(b"x"), root=envelope(version), kind=kind, as_text=as_text)
    parameters = parse_content_type(written).parameters
    start = f"--{parameters['boundary']}\r\n"
    assert body.startswith(start) if isinstance(body, str) else body.startswith(start.encode())
    first = read_back(body, written).first.content_type
    assert first is not None
    assert first.media_type == version.media_type == parameters["type"]
    assert parameters.get("action") == parse_content_type(kind).parameters.get("action")


@pytest.mark.parametrize(
    ("kind", "content", "encoding"),
    [
        ("text/plain", b"ascii\n--\t", "8bit"),
        ("text/plain; charset=us-ascii", b"ascii", "8bit"),
        ("text/plain; charset=utf-8", "zoë €".encode(), "8bit"),
        ("text/plain; charset=UTF8", "zoë €".encode(), "8bit"),
        ("text/plain", "zoë €".encode(), "base64"),
        ("text/plain; charset=iso-8859-1", "zoë".encode("latin-1"), "base64"),
        ("text/plain; charset=utf-8", b"\xff", "base64"),
        ("text/plain; charset=utf-16", "zoë".encode("utf-16"), "base64"),
        ("application/xml", b"<x/>", "base64"),
        ("application/octet-stream", b"", "base64"),
        ("image/png", OCTETS, "base64"),
    ],
)
def test_text_messages(kind: str, content: bytes, encoding: str) -> None:
    """SOAP/JMS 2.4.1: what is not text is in base64; lines of it have up to 76 characters."""
    body, written = package(Attachment(content, kind), as_text=True)
    assert isinstance(body, str)
    (part,) = read_back(body, written).attachments
    assert part.transfer_encoding == encoding
    assert part.content == content
    assert encoding != "base64" or max(map(len, bytes(part.raw).split(b"\r\n"))) <= 76


@pytest.mark.parametrize("content", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], memoryview(b"a-b-c")[::2]])
def test_kinds_of_content(content: Any) -> None:
    """Content is octets of any kind; what the caller changes later is not sent."""
    body, kind = package(Attachment(content))
    if isinstance(content, bytearray):
        content[:] = b"xyz"
    assert read_back(body, kind).attachments[0].content == b"abc"


def test_content_of_a_file(tmp_path: Path) -> None:
    """A path is read when the message is made; what cannot be read is an error for the caller."""
    attachment = Attachment(tmp_path / "x")
    with pytest.raises(UsageError, match="x cannot be read: No such file"):
        package(attachment)
    (tmp_path / "x").write_bytes(OCTETS)
    for as_text in (False, True):
        assert read_back(*package(attachment, as_text=as_text)).attachments[0].content == OCTETS


# Boundaries


def test_the_boundary_occurs_in_no_part() -> None:
    """Boundaries are counted up until one occurs nowhere, by one look at each part."""
    hostile = b"".join(b"--soapjms_part_%d_\r\n" % number for number in range(1, 5000) if number != 1234)
    root = PLAIN.replace("ä".encode(), b"--soapjms_part_5000_--soapjms_part_99999999999_")
    started = process_time()
    body, kind = package(Attachment(hostile + b"--soapjms_part_"), root=root)
    assert process_time() - started < 5
    assert parse_content_type(kind).parameters["boundary"] == "soapjms_part_1234_"
    assert [bytes(each.content) for each in read_back(body, kind).attachments] == [hostile + b"--soapjms_part_"]


def test_the_same_message_is_written_the_same() -> None:
    """Nothing is drawn at random."""
    attachment = Attachment(OCTETS, "image/png", "a@b")
    assert package(attachment) == package(attachment)


@pytest.mark.parametrize("boundary", ["b", "a b'()+_,-./:=?", "x" * 70])
def test_a_boundary_of_the_callers_own(boundary: str) -> None:
    """A caller may choose the boundary."""
    body, kind = package(Attachment(b"abc"), boundary=boundary)
    assert isinstance(body, bytes)
    assert body.startswith(f"--{boundary}\r\n".encode())
    assert read_back(body, kind).attachments[0].content == b"abc"


@pytest.mark.parametrize(
    ("boundary", "why"),
    [*((each, "1 to 70") for each in ("", "x" * 71, "a ", 'a"', "ä", "a\r\n")), ("data", "must not occur in a part")],
)
def test_a_boundary_that_cannot_be(boundary: str, why: str) -> None:
    """It is refused, also where it occurs in a part."""
    with pytest.raises(UsageError, match=re.escape(why)):
        package(Attachment(b"abc\r\n--data"), boundary=boundary)


# What a caller can get wrong


@pytest.mark.parametrize(
    "values",
    [
        {"content_type": "image"},
        {"content_type": ""},
        {"content_type": 'image/png; name="a\r\nb"'},
        {"content_type": 'image/png; name="ä"'},
        {"content_id": ""},
        {"content_id": "<a@b>"},
        {"content_id": "a b"},
        {"content_id": "a\r\nX: y"},
        {"content_id": "ä"},
        {"content_location": "a b"},
        {"content_location": "a\n"},
        {"fields": {"Content-ID": "x"}},
        {"fields": {"content-transfer-encoding": "base64"}},
        {"fields": {"X Y": "x"}},
        {"fields": {"X:": "x"}},
        {"fields": {"": "x"}},
        {"fields": {"X": "a\r\nY: b"}},
        {"fields": {"X": "ä"}},
    ],
)
def test_values_that_cannot_stand_in_a_header(values: dict[str, Any]) -> None:
    """Nobody can write header fields of his own through a value."""
    with pytest.raises(UsageError):
        Attachment(b"", **values)


def test_content_ids_are_unique() -> None:
    """Two parts with one Content-ID, or one with the SOAP part's, are refused."""
    for ids in (("a", "a"), ("envelope@soapjms",)):
        with pytest.raises(UsageError, match="Content-ID must be unique"):
            package(*(Attachment(b"", content_id=each) for each in ids))
    assert len(read_back(*package(Attachment(b""), Attachment(b""))).attachments) == 2


def test_references_that_lead_nowhere() -> None:
    """An xop:Include refers to an attachment that goes along."""
    there, missing = Attachment(b"", content_id="there"), Attachment(b"", content_id="missing")
    with pytest.raises(UsageError, match="'cid:missing'; attached are cid:there"):
        package(there, root=with_includes(there, missing))
    with pytest.raises(UsageError, match="attached are none"):
        package(Attachment(b""), root=with_includes(missing))
    with pytest.raises(UsageError, match="must have a content_id"):
        Attachment(b"").include()


def test_references() -> None:
    """A reference is percent-encoded, and found again."""
    attachment = Attachment(b"x", content_id="a%41/b@c#d")
    assert attachment.reference == "cid:a%2541/b@c%23d"
    body, kind = package(attachment, root=with_includes(attachment))
    found = read_back(body, kind).attachments.find(attachment.reference)
    assert found is not None
    assert found.content_id == "a%41/b@c#d"


# Moving binary content out


def test_optimize() -> None:
    """Base64 text becomes an attachment, with the type that the element names; expanded it is as before."""
    root = xml.parse(envelope())
    element = root[0][0]
    text = b64encode(OCTETS).decode()
    for kind in ("image/png", None):
        child = etree.SubElement(element, "{urn:x}data")
        child.text = f"\n {text} "
        if kind:
            child.set("{http://www.w3.org/2005/05/xmlmime}contentType", kind)
    children = element.findall("{urn:x}data")
    attachments = optimize(children, prefix="pic")
    assert [(each.content, each.content_type, each.content_id) for each in attachments] == [
        (OCTETS, "image/png", "pic-1@soapjms"),
        (OCTETS, "application/octet-stream", "pic-2@soapjms"),
    ]
    assert [each.get("href") for each in root.iter(XOP_INCLUDE)] == ["cid:pic-1@soapjms", "cid:pic-2@soapjms"]
    found = read_back(*package(*attachments, root=serialize(root)))
    again = xml.parse(found.root.document)
    assert [each.text for each in found.attachments.expand(again).iter("{urn:x}data")] == [text, text]


def test_what_cannot_be_moved_out() -> None:
    """If one element has no base64 text, none is changed."""
    root = etree.fromstring("<e><a>AP8=</a><b>AP8</b><c>AP8=<x/></c></e>")
    for chosen, why in (
        (root[:2], "the text of b must be base64"),
        ((root[0], root[2]), "c must hold base64 text only"),
    ):
        with pytest.raises(UsageError, match=why):
            optimize(chosen)
    assert root[0].text == "AP8="
    assert len(root[0]) == 0


# Others read it, and write it


def email_of(body: bytes | str, kind: str) -> EmailMessage:
    """Read a body with the standard library."""
    octets = body.encode() if isinstance(body, str) else body
    return email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + octets)


def zeep_pack(body: bytes | str, kind: str) -> MessagePack:
    """Read a body as zeep's transport does."""
    response = Response()
    response._content = body.encode() if isinstance(body, str) else body
    response.headers["Content-Type"] = kind
    parts = MultipartDecoder(response.content, kind, "utf-8").parts
    pack = MessagePack(parts=parts[1:])
    pack._set_root(parts[0])
    return pack


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("mtom", [False, True])
def test_the_standard_library_reads_it(as_text: bool, mtom: bool) -> None:
    """email finds the same parts with the same content."""
    attachments = Attachment(OCTETS, "image/png", "a@b"), Attachment(b"text\r\n", "text/plain", "c@d")
    root = with_includes(*attachments) if mtom else PLAIN
    body, kind = package(*attachments, root=root, as_text=as_text)
    message = email_of(body, kind)
    assert message.defects == []
    first, png, text = message.get_payload()
    assert first.get_payload(decode=True) == root
    assert (png["Content-ID"], png.get_payload(decode=True)) == ("<a@b>", OCTETS)
    assert (text.get_content_type(), text.get_payload(decode=True)) == ("text/plain", b"text\r\n")


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("mtom", [False, True])
def test_zeep_reads_it(as_text: bool, mtom: bool) -> None:
    """zeep's own reader of multipart responses finds the same parts with the same content."""
    content = OCTETS.strip(b"\r\n")  # which zeep takes off
    attachments = Attachment(content, "image/png", "a@b"), Attachment(b"text", "text/plain", "c@d")
    root = with_includes(*attachments) if mtom else PLAIN
    pack = zeep_pack(*package(*attachments, root=root, as_text=as_text))
    assert pack.root.content == root
    assert pack.get_by_content_id("<a@b>").content == content
    assert pack.get_by_content_id("<c@d>").content == b"text"
    assert [each.content_type for each in pack.attachments] == ["image/png", "text/plain"]
    if mtom:
        document = xml.parse(pack.root.content)
        assert process_xop(document, pack)
        assert [each.text for each in document.iter("{urn:x}data")] == [
            b64encode(each).decode() for each in (content, b"text")
        ]


@given(
    st.lists(
        st.tuples(st.binary(max_size=80), st.sampled_from(["image/png", "text/plain", "text/plain; charset=utf-8"])),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.booleans(),
)
def test_round_trip(contents: list[tuple[bytes, str]], as_text: bool, mtom: bool) -> None:
    """Whatever is attached comes back, for both message types, as SwA and as MTOM."""
    attachments = [Attachment(octets, kind, f"{at}@x") for at, (octets, kind) in enumerate(contents)]
    root = with_includes(*attachments) if mtom else PLAIN
    found = read_back(*package(*attachments, root=root, as_text=as_text))
    assert found.root.document == (root.decode() if as_text else root)
    assert [bytes(each.content) for each in found.attachments] == [octets for octets, _ in contents]
    assert isinstance(found.attachments, Attachments)


@pytest.mark.parametrize("content", ["photo.png", None, 5, [b"octets"]])
def test_a_content_that_is_none(content: Any) -> None:
    """A path as text is the likeliest mistake; it is told when the attachment is made."""
    with pytest.raises(UsageError, match=r"must be octets or a pathlib\.Path, got \w+"):
        Attachment(content)


@pytest.mark.parametrize("attachments", [Attachment(b"x"), [b"x"], "abc", {"a": Attachment(b"x")}, [b"x" * 10_000]])
def test_what_is_no_list_of_attachments(attachments: Any) -> None:
    """It is told in one line, however large."""
    with pytest.raises(UsageError, match=r"^attachments must be a list of soapjms\.Attachment, got .{1,200}$"):
        packaged(PLAIN, TYPE_11, as_envelope(xml.parse(PLAIN)), attachments)


@pytest.mark.parametrize("attachments", [None, (), []])
def test_no_attachments(attachments: Any) -> None:
    """None counts as none, so that a caller can hand on what it was given."""
    assert list(attachments_given(attachments)) == []
