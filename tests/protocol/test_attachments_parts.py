"""Multipart bodies taken apart: parts, their header fields and content, references to them."""

from __future__ import annotations

import os
from base64 import b64encode
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from soapjms.protocol.attachments import XOP_INCLUDE, Attachments, Multipart, Part, read_multipart
from soapjms.protocol.content import ContentType, parse_content_type
from soapjms.protocol.errors import InvalidAttachmentError
from soapjms.protocol.limits import LimitExceededError, Limits

KIND = parse_content_type("multipart/related; boundary=b")
HEADERS = b'Content-Type: text/xml;\r\n\tcharset="utf-8"\r\nContent-Transfer-Encoding: BASE64\r\nContent-ID: <a@b>'


def body_of(*parts: bytes, eol: bytes = b"\r\n", close: bytes = b"--") -> bytes:
    """Write a body; a part is its header fields, a blank line, its content."""
    return b"".join(b"--b" + eol + part + eol for part in parts) + b"--b" + close


def read(*parts: bytes, kind: str = "multipart/related; boundary=b", limits: Limits | None = None) -> Multipart:
    """Take a body of these parts apart."""
    return read_multipart(body_of(*parts), parse_content_type(kind), limits or Limits())


def contents(multipart: Multipart) -> list[bytes]:
    """Return what all the parts hold, the SOAP part first."""
    return [bytes(each.content) for each in (multipart.root, *multipart.attachments)]


# Delimiters


@pytest.mark.parametrize("eol", [b"\r\n", b"\n"])
@pytest.mark.parametrize("close", [b"--", b"-- \t", b"--\r\nepilogue", b"--\r\n--b\r\n\r\nnot a part\r\n--b--"])
def test_parts(eol: bytes, close: bytes) -> None:
    """A part ends before the line break of the next delimiter; what follows the closing one is dropped."""
    found = read_multipart(
        body_of(HEADERS.replace(b"\r\n", eol) + eol * 2 + b"PGUvPg==", eol + b"\r\n two\n", eol=eol, close=close), KIND
    )
    assert contents(found) == [b"<e/>", b"\r\n two\n"]
    assert found.first is found.root
    assert found.root.fields == {
        "content-type": 'text/xml; charset="utf-8"',
        "content-transfer-encoding": "BASE64",
        "content-id": "<a@b>",
    }
    assert found.root.charset == "utf-8"
    assert (found.root.content_id, found.root.content_location) == ("a@b", None)
    assert bytes(found.root.raw) == b"PGUvPg=="


def test_a_part_may_have_no_headers_or_nothing_else() -> None:
    """A part of nothing, of headers alone, and of content alone."""
    found = read(b"\r\n<e/>", b"", b"Content-ID: <x>", b"Content-ID: <y>\r\n\r\n", b"\r\n", b"\r\n\r\n")
    assert contents(found) == [b"<e/>", b"", b"", b"", b"", b"\r\n"]
    assert [each.content_id for each in found.attachments] == [None, "x", "y", None, None]
    assert (found.root.content_type, found.root.charset, found.root.transfer_encoding) == (None, None, "binary")


def test_delimiters_with_one_line_break_between() -> None:
    """A part of nothing at all."""
    assert contents(read_multipart(b"--b\r\n--b\r\n--b--", KIND)) == [b"", b""]
    assert contents(read_multipart(b"--b\n--b--", KIND)) == [b""]


def test_boundaries_that_begin_alike() -> None:
    """A line that only begins as the delimiter does is content, as the boundary of an inner multipart often is."""
    inner = b"--bb\r\n<e/>\r\n--bb--\r\n --b\r\nx--b\r\n--b --\r\n--b-"
    assert contents(read(b"\r\n" + inner)) == [inner]
    pattern = ContentType("multipart/related", {"boundary": ".*"})
    assert contents(read_multipart(b"--.*\r\n\r\n<e/>\r\n--.*--", pattern)) == [b"<e/>"]


@pytest.mark.parametrize(
    ("body", "parameters", "why"),
    [
        (b"--b\r\n\r\n<e/>\r\n--b--", {}, "without a boundary parameter"),
        (b"--b\r\n\r\n<e/>\r\n--b--", {"boundary": ""}, "without a boundary parameter"),
        (b"", {"boundary": "b"}, "the body is empty: it has to begin with the delimiter of the boundary 'b'"),
        (b"--b\r\n\r\n<e/>\r\n--b--", {"boundary": "b" * 71}, "the boundary has 71 characters"),
        (b"\r\n--b\r\n\r\n<e/>\r\n--b--", {"boundary": "b"}, "not with the delimiter"),
        (b"Content-Type: text/xml\r\n\r\n--b\r\n\r\n<e/>\r\n--b--", {"boundary": "b"}, "not with the delimiter"),
        (b"preamble\r\n--b\r\n\r\n<e/>\r\n--b--", {"boundary": "b"}, "not with the delimiter"),
        (b"--bb\r\n\r\n<e/>\r\n--bb--", {"boundary": "b"}, "not with the delimiter"),
        (b"--b--\r\n", {"boundary": "b"}, "not with the delimiter"),
        (b"--b", {"boundary": "b"}, "closing delimiter '--b--' is missing"),
        (b"--b\r\n\r\n<e/>\r\n", {"boundary": "b"}, "closing delimiter '--b--' is missing"),
        (b"--b\r\n\r\n<e/>--b--", {"boundary": "b"}, "closing delimiter '--b--' is missing"),
        (b"--b\r\n\r\n<e/>\r\n--b\r\n\r\nx", {"boundary": "b"}, "closing delimiter '--b--' is missing"),
        (b"--b\r\n\r\n<e/>\r\n--b--", {"boundary": "\ud800"}, "surrogates not allowed"),
        ("--b\r\n\r\n\ud800\r\n--b--", {"boundary": "b"}, "surrogates not allowed"),
    ],
)
def test_broken(body: bytes | str, parameters: dict[str, str], why: str) -> None:
    """Protocol-2029: nothing comes before the first delimiter; and the closing one is there."""
    with pytest.raises(ValueError, match=why) as caught:
        read_multipart(body, ContentType("multipart/related", parameters))
    assert not isinstance(caught.value, LimitExceededError)


# The SOAP part


@pytest.mark.parametrize(
    ("start", "root"),
    [("", 0), ('; start="<two>"', 1), ("; start=two", 1), ('; start="<three>"', 0), ('; start=""', 0)],
)
def test_start(start: str, root: int) -> None:
    """The part that `start` names is the SOAP part, else the first is; the others are attachments, in their order."""
    texts = [b"one", b"two", b"3"]
    found = read(*(b"Content-ID: <%s>\r\n\r\n%s" % (each, each) for each in texts), kind=f"{KIND_TEXT}{start}")
    assert bytes(found.root.content) == texts[root]
    assert bytes(found.first.content) == b"one"
    assert [bytes(each.content) for each in found.attachments] == texts[:root] + texts[root + 1 :]


KIND_TEXT = "multipart/related; boundary=b"


# Header fields


def test_header_fields() -> None:
    """Names in any case, folded lines, the first of a repeated field; a line that is no field ends them.

    They are UTF-8, else Latin-1.
    """
    part = read(b"CONTENT-id:<a>\r\nX-One: 1\r\n  more\r\nx-one: 2\r\nno field\r\nX-Lost: 1\r\n\r\nx").root
    assert part.fields == {"content-id": "<a>", "x-one": "1 more"}
    assert read(b"Content-Type:\r\n\ttext/xml;\r\n charset=\xe9\r\n\r\nx").root.charset == "é"
    assert read(b"Content-Type: text/xml; charset=\xc3\xa9\r\n\r\nx").root.charset == "é"
    location = read(b"Content-Location: http://a/b\r\n\r\nx").root
    assert location.content_location == "http://a/b"
    assert str(location) == "the part 'http://a/b'"
    assert str(part) == "the part 'a'"
    assert str(read(b"\r\n").root) == "a part without Content-ID"
    assert repr(part) == "Part('a', None, 1 octets, binary)"


# Limits


@pytest.mark.parametrize(
    ("limit", "allowed", "parts"),
    [
        ("parts", 3, [b"\r\n"] * 3),
        ("part_headers", 3, [b"\r\n", b"A: 1\r\nA: 2\r\nB: 3\r\n 4\r\n\r\nx"]),
        ("header_octets", 30, [b"A: " + b"x" * 27 + b"\r\n\r\n" + b"B: y\r\n" * 20]),
        ("header_octets", 30, [b"A: " + b"x" * 27]),
        ("header_octets", 30, [b"A: x\r\nB: " + b"\n " * 10 + b"x"]),
    ],
)
def test_at_the_limit_and_one_more(limit: str, allowed: int, parts: list[bytes]) -> None:
    """At the limit a body passes, one more is refused by the limit's name."""
    settings: dict[str, Any] = {limit: allowed}
    assert len(read(*parts, limits=Limits(**settings)).attachments) == len(parts) - 1
    settings[limit] -= 1
    with pytest.raises(LimitExceededError) as caught:
        read(*parts, limits=Limits(**settings))
    assert caught.value.excess.limit == limit


def test_ten_thousand_parts() -> None:
    """They are refused at the fifty-first."""
    with pytest.raises(LimitExceededError, match="the limit parts is 50"):
        read(*[b"\r\n"] * 10_000)


# Content


def part(content: bytes, encoding: str | None = None, kind: str | None = None, *, is_text: bool = False) -> Part:
    """Make a part."""
    fields = {"content-transfer-encoding": encoding, "content-type": kind}
    return Part({name: each for name, each in fields.items() if each is not None}, memoryview(content), is_text=is_text)


@pytest.mark.parametrize(
    ("raw", "encoding", "content"),
    [
        (b"\0\r\n\xff", None, b"\0\r\n\xff"),
        (b"\0\r\n\xff", "binary", b"\0\r\n\xff"),
        (b"a", "7BIT", b"a"),
        (b"\xff", "8bit", b"\xff"),
        (b"AP8A\r\n/w==", "Base64", b"\0\xff\0\xff"),
        (b"", "base64", b""),
        (b"a=3D=FF=\r\nb", "quoted-printable", b"a=\xffb"),
    ],
)
def test_transfer_encodings(raw: bytes, encoding: str | None, content: bytes) -> None:
    """RFC 2045 6: each transfer encoding is undone, once."""
    found = part(raw, encoding)
    assert found.content == content
    assert found.content is found.content
    assert found.document == content


@pytest.mark.parametrize(
    ("raw", "encoding", "why"),
    [(b"abc", "base64", "is no base64"), (b"abc", "x-uuencode", "'x-uuencode'; known are 7bit, 8bit, base64, binary")],
)
def test_broken_transfer_encodings(raw: bytes, encoding: str, why: str) -> None:
    """What cannot be decoded is an error of its own, for who looks."""
    with pytest.raises(InvalidAttachmentError, match=why):
        part(raw, encoding).content  # noqa: B018  # looking is what is tested


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text/plain; charset=iso-8859-1", "zoë €".encode()),
        ("text/plain; charset=windows-1252", "zoë €".encode("cp1252")),
        ("text/plain; charset=utf-16le", "zoë €".encode("utf-16-le")),
        ("text/plain; charset=utf-8", "zoë €".encode()),
        ("text/plain; charset=x-unknown", "zoë €".encode()),
        ("text/plain", "zoë €".encode()),
    ],
)
def test_characters_of_a_text_message(kind: str, content: bytes) -> None:
    """The characters of a TextMessage become octets in the charset that the part names, if it has them all."""
    raw = "zoë €".encode()
    assert part(raw, kind=kind, is_text=True).content == content
    assert part(raw, kind=kind, is_text=True).document == "zoë €"
    assert part(raw, kind=kind).content == raw


def test_parts_are_views() -> None:
    """Parts are read-only views of the one body, whatever kind of octets that is."""
    octets = body_of(b"\r\n<e/>", b"\r\n" + bytes(1000))
    for body in (octets, memoryview(octets), memoryview(bytearray(octets))):
        (attached,) = read_multipart(body, KIND).attachments
        assert isinstance(attached.content, memoryview)
        assert attached.content.readonly
        assert len(attached.content) == 1000
        assert attached.content.obj is (octets if isinstance(body, bytes) else body.obj)


# References

XOP = b"<e xmlns:xop=\"http://www.w3.org/2004/08/xop/include\"><a><xop:Include href='%s'/></a><b> AP8=\n</b><c/></e>"


def attached(*parts: bytes, root: bytes = b"Content-ID: <root>\r\n\r\n<e/>") -> Attachments:
    """Read attachments, after a SOAP part."""
    return read(root, *parts).attachments


def includes(href: bytes = b"cid:x") -> etree._Element:
    """Parse an element whose first child has an xop:Include."""
    return etree.fromstring(XOP % href)


X = b"Content-ID: <x@y z%41>\r\nContent-Location: http://h/d/x.png\r\n\r\nthe x"


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("cid:x@y%20z%2541", True),
        ("CID:x@y z%41", True),
        ("cid:x@y%20z%41", False),
        ("cid:x@y", False),
        ("x@y z%41", False),
        ("http://h/d/x.png", True),
        ("http://h/d/y.png", False),
        ("x.png", False),
        ("http://[h/", False),
        ("", False),
    ],
)
def test_references(reference: str, found: bool) -> None:
    """RFC 2392, SwA 3: by Content-ID, percent-encoded or not, or by Content-Location."""
    assert (attached(b"\r\n", X).find(reference) is not None) is found


def test_relative_references() -> None:
    """Relative references count from the Content-Location of the SOAP part."""
    parts = attached(X, b"Content-Location: y.png\r\n\r\ny", root=b"Content-Location: http://h/d/e.xml\r\n\r\n<e/>")
    assert [parts.find(each) for each in ("x.png", "http://h/d/y.png", "y.png", "z.png")] == [*parts, parts[1], None]
    assert parts.find("http://[h/") is None


def test_the_first_of_two_with_one_name_counts() -> None:
    """Content-IDs are unique; where they are not, the first part counts."""
    found = attached(b"Content-ID: <x>\r\n\r\n1", b"Content-ID: <x>\r\n\r\n2").find("cid:x")
    assert found is not None
    assert found.content == b"1"


def test_a_sequence() -> None:
    """Attachments are a sequence of parts."""
    parts = attached(b"\r\n1", b"\r\n2")
    assert len(parts) == 2
    assert [bytes(each.content) for each in parts[:1]] == [b"1"]
    assert parts[-1] in parts
    assert list(Attachments()) == []
    assert Attachments().find("cid:x") is None


def test_binary_content_of_elements() -> None:
    """An element of binary content is read the same whether it is included or is base64 text."""
    parts, element = attached(b"Content-ID: <x>\r\n\r\n\x00\xff"), includes()
    assert [bytes(parts.octets_of(each)) for each in (*element, element[0][0])] == [
        b"\0\xff",
        b"\0\xff",
        b"",
        b"\0\xff",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (XOP % b"cid:y", "refers to 'cid:y', and no part has that Content-ID"),
        (XOP % b"cid:root", "refers to 'cid:root', the part that it stands in: a loop"),
        ((XOP % b"cid:x").replace(b"</a>", b"<x/></a>"), "'cid:x' is not alone in a"),
        ((XOP % b"cid:x").replace(b"<a>", b"<a>text"), "'cid:x' is not alone in a"),
        ((XOP % b"cid:x").replace(b"</a>", b"text</a>"), "'cid:x' is not alone in a"),
        (XOP.replace(b"href='%s'", b""), "has no href"),
        (b"<e><a>AP8</a></e>", "the text of a is no base64"),
        (b"<e><a>AP\xe2\x82\xac</a></e>", "the text of a is no base64"),
    ],
)
def test_broken_references(text: bytes, why: str) -> None:
    """A reference that leads nowhere, or back to the SOAP part, is an error for who follows it."""
    with pytest.raises(InvalidAttachmentError, match=why):
        attached(b"Content-ID: <x>\r\n\r\nx").octets_of(etree.fromstring(text)[0])


def test_expand() -> None:
    """Every xop:Include can be put back as base64 text."""
    parts, element = attached(b"Content-ID: <x>\r\n\r\n\x00\xff"), includes()
    assert parts.expand(element) is element
    assert [each.text for each in element] == ["AP8=", " AP8=\n", None]
    assert not list(element.iter(XOP_INCLUDE))
    with pytest.raises(InvalidAttachmentError, match="is in none"):
        parts.expand(includes()[0][0].__copy__())


def test_expansion_is_limited() -> None:
    """Many references to one large part do not grow beyond the limit."""
    limits = Limits(unpacked=4000)
    parts = read(b"\r\n<e/>", b"Content-ID: <x>\r\n\r\n" + bytes(1000), limits=limits).attachments
    element = etree.Element("e")
    element.extend(includes()[0] for _ in range(4))
    assert len(parts.expand(element)[3].text or "") == 1336
    element.extend(includes()[0] for _ in range(5))
    with pytest.raises(InvalidAttachmentError, match="more than 4000 octets"):
        parts.expand(element)


# Other writers, and anything


def test_written_by_the_standard_library() -> None:
    """What the email package writes is read."""
    message = EmailMessage()
    message.set_content("<e/>", subtype="xml", cid="<root>")
    message.add_related(bytes(range(256)), maintype="image", subtype="png", cid="<png>")
    message.add_related("zoë", subtype="plain", charset="utf-8", cid="<text>", cte="quoted-printable")
    message.set_boundary("=_b")
    octets = message.as_bytes()
    body = octets[octets.index(b"--=_b") :]
    found = read_multipart(body, parse_content_type(message["content-type"]))
    assert found.root.content == b"<e/>\n"
    png, text = found.attachments
    assert png.content == bytes(range(256))
    assert text.content == "zoë\n".encode()
    assert found.attachments.find("cid:png") is png


CONTENT = st.binary(max_size=60) | st.lists(st.sampled_from([b"\r\n", b"--b", b"\n", b"-", b"b", b"x"])).map(b"".join)


@given(st.lists(st.tuples(CONTENT, st.sampled_from(["binary", "base64"])), min_size=1, max_size=5))
def test_round_trip(pieces: list[tuple[bytes, str]]) -> None:
    """Whatever parts hold comes back, as long as no line of it is the delimiter."""
    kind = ContentType("multipart/related", {"boundary": "the boundary"})
    body = b""
    for content, encoding in pieces:
        written = b64encode(content) if encoding == "base64" else content
        body += b"--the boundary\r\nContent-Transfer-Encoding: %s\r\n\r\n%s\r\n" % (encoding.encode(), written)
    body += b"--the boundary--"
    assert contents(read_multipart(body, kind)) == [content for content, _ in pieces]


@given(st.binary(max_size=80) | st.text(max_size=40), st.binary(max_size=40))
def test_anything(start: bytes | str, rest: bytes) -> None:
    """Nothing that arrives raises anything else than what says why."""
    bodies: list[bytes | str] = [start, "--b\r\n" + start + "\r\n--b--"] if isinstance(start, str) else [
        start, body_of(start, rest), body_of(b"Content-Type: " + start + b"\r\n\r\n" + rest)
    ]  # fmt: skip
    for body in bodies:
        try:
            found = read_multipart(body, KIND)
        except ValueError:
            continue
        for each in (found.root, *found.attachments):
            assert isinstance(each.content_id, str | None)
            if each.transfer_encoding == "binary":
                assert isinstance(each.content, bytes | memoryview)


def test_random_megabytes() -> None:
    """Large parts are scanned, not copied; what they hold is untouched."""
    content = os.urandom(1 << 20)
    (attached,) = read(b"\r\n<e/>", b"\r\n" + content).attachments
    assert attached.content == content
