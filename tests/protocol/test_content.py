"""What the octets of a body are: content types, encodings, gzip."""

from __future__ import annotations

import codecs
import gzip
import zlib
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soapjms.protocol.content import (
    accepts_gzip,
    charset_disagreement,
    contradiction,
    declared_encoding,
    detect_encoding,
    document_encoding,
    fitting_charset,
    gunzip,
    gzipped,
    parse_content_type,
    undecoded,
)
from soapjms.protocol.limits import MIB, LimitExceededError, Limits

# Content type


@pytest.mark.parametrize(
    ("text", "media_type", "parameters"),
    [
        ("text/xml", "text/xml", {}),
        ("TEXT/XML", "text/xml", {}),
        ("text/xml; charset=utf-8", "text/xml", {"charset": "utf-8"}),
        ("text/xml;charset=UTF-8", "text/xml", {"charset": "UTF-8"}),
        ("  text/xml ;  CharSet = utf-8  ", "text/xml", {"charset": "utf-8"}),
        ('text/xml; charset="utf-8"', "text/xml", {"charset": "utf-8"}),
        ("text/xml;", "text/xml", {}),
        ("text/xml; ; charset=a", "text/xml", {"charset": "a"}),
        ("text/xml; charset=a; charset=b", "text/xml", {"charset": "a"}),
        ('application/soap+xml; action="urn:a;b=c"', "application/soap+xml", {"action": "urn:a;b=c"}),
        (r'application/soap+xml; action="say \"hi\" \\"', "application/soap+xml", {"action": 'say "hi" \\'}),
        ('application/soap+xml; action=""', "application/soap+xml", {"action": ""}),
        ("application/soap+xml; action=urn:a/b?c=d", "application/soap+xml", {"action": "urn:a/b?c=d"}),
        (
            'multipart/related;\r\n\ttype="text/xml"; boundary="=_ b"; start="<a@b>"',
            "multipart/related",
            {"type": "text/xml", "boundary": "=_ b", "start": "<a@b>"},
        ),
        ("text/xml (SOAP 1.1)", "text/xml", {}),
        ("(a) text/xml (b (c) d);(e) charset (f) = (g) utf-8 (h)", "text/xml", {"charset": "utf-8"}),
        ("text/xml; charset=utf-8(Plain text)", "text/xml", {"charset": "utf-8"}),
        (r'text/xml; (a\) " ( \" ) b) charset="utf-8" (")', "text/xml", {"charset": "utf-8"}),
        ('application/soap+xml; action="urn:a(b)"', "application/soap+xml", {"action": "urn:a(b)"}),
        (r'application/soap+xml; action="\"(b" (c)', "application/soap+xml", {"action": '"(b'}),
        ("application/x-{a}; b{}=c", "application/x-{a}", {"b{}": "c"}),
    ],
)
def test_content_types(text: str, media_type: str, parameters: dict[str, str]) -> None:
    """MIME's rules hold: names in any case, values quoted or not, space around them; the first of a repeat counts."""
    kind = parse_content_type(text)
    assert (kind.media_type, kind.parameters, kind.problem) == (media_type, parameters, None)
    assert kind.charset == parameters.get("charset")


@pytest.mark.parametrize(
    ("text", "repeats", "has_gap"),
    [
        ("text/xml", False, False),
        ("text/xml; charset=a", False, False),
        ('text/xml; action="a;;b"; charset=a', False, False),
        ("text/xml;", False, True),
        ("text/xml;;charset=utf-8", False, True),
        ("text/xml; ; charset=a", False, True),
        ("text/xml; charset=a;", False, True),
        ("text/xml; charset=a; CHARSET=a", True, False),
        ("text/xml; a=1; charset=a; b=2; charset=b;", True, True),
    ],
)
def test_what_is_read_over(text: str, repeats: bool, has_gap: bool) -> None:
    """A content type tells which of its oddities were read over."""
    kind = parse_content_type(text)
    assert (kind.repeats, kind.has_gap, kind.problem) == (repeats, has_gap, None)


@pytest.mark.parametrize(
    ("text", "media_type", "problem"),
    [
        ("", "", "no type/subtype"),
        ("xml", "", "no type/subtype"),
        ("text/", "", "no type/subtype"),
        ("multipart/related boundary=x", "multipart/related", "'boundary=x' is no parameter"),
        ("text/xml; charset", "text/xml", "'charset' is no parameter"),
        ("text/xml; charset=", "text/xml", "'charset=' is no parameter"),
        ('text/xml; charset="utf-8', "text/xml", "is no parameter"),
        ("text/xml, text/plain", "text/xml", "', text/plain' is no parameter"),
        ("text/xml; (charset=utf-8", "", "has no end"),
        ("text/xml (a (b)", "", "has no end"),
        ("text/xml )", "text/xml", "')' is no parameter"),
        ("te(x)xt/xml", "", "no type/subtype"),
        ('text/xml; (a) b="c', "text/xml", "is no parameter"),
        ("text/xml; (a) \\", "text/xml", "is no parameter"),
        ("text/xml;\xa0charset=utf-8", "text/xml", "is no parameter"),
        ("x" * 100_000, "", "'" + "x" * 80 + "' has no type/subtype"),
        ("text/xml" + "(" * 100_000, "", "has no end"),
    ],
)
def test_broken_content_types(text: str, media_type: str, problem: str) -> None:
    """What breaks the syntax is named, and what was read before it is kept."""
    kind = parse_content_type(text)
    assert kind.media_type == media_type
    assert problem in (kind.problem or "")


@given(st.text())
def test_any_content_type_can_be_read(text: str) -> None:
    """Nothing that arrives as a content type makes the reader raise."""
    assert parse_content_type(text).media_type == parse_content_type(text).media_type.lower()


# Encoding

DECLARED = '<?xml version="1.0" encoding="{}"?><e/>'


@pytest.mark.parametrize(
    ("codec", "mark", "declared", "family", "marked"),
    [
        ("utf-8", b"", None, "ascii", False),
        ("utf-8", b"", "utf-8", "ascii", False),
        ("utf-8", codecs.BOM_UTF8, None, "utf-8", True),
        ("utf-8", codecs.BOM_UTF8, "UTF-8", "utf-8", True),
        ("iso-8859-15", b"", "ISO-8859-15", "ascii", False),
        ("utf-16-le", codecs.BOM_UTF16_LE, None, "utf-16", True),
        ("utf-16-be", codecs.BOM_UTF16_BE, "UTF-16", "utf-16", True),
        ("utf-16-le", b"", "UTF-16LE", "utf-16", False),
        ("utf-16-be", b"", "UTF-16BE", "utf-16", False),
        ("utf-32-le", codecs.BOM_UTF32_LE, "UTF-32", "utf-32", True),
        ("utf-32-be", codecs.BOM_UTF32_BE, None, "utf-32", True),
        ("utf-32-le", b"", "UTF-32LE", "utf-32", False),
        ("utf-32-be", b"", "UTF-32BE", "utf-32", False),
        ("cp037", b"", "IBM037", "ebcdic", False),
        ("cp500", b"", "IBM500", "ebcdic", False),
    ],
)
def test_encoding_of_a_document(codec: str, mark: bytes, declared: str | None, family: str, marked: bool) -> None:
    """Protocol-2014, XML 1.0 appendix F: byte order mark, else first octets, and what the declaration names."""
    text = DECLARED.format(declared) if declared else "<e/>" if codec != "cp037" else "<?xml?>"
    seen = detect_encoding(mark + text.encode(codec))
    assert (seen.family, seen.marked, seen.declared) == (family, marked, declared)


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("<e/>", None),
        ("<?xml version='1.0'?><e encoding='x'/>", None),
        ("<?xml version='1.0' encoding='utf-8'?><e/>", "utf-8"),
        ('<?xml version="1.0"\n  encoding = "UTF-8" standalone="yes"?><e/>', "UTF-8"),
        ("\ufeff<?xml version='1.0' encoding='utf-16'?><e/>", "utf-16"),
        (" <?xml version='1.0' encoding='utf-8'?><e/>", None),
        ("<?xml-stylesheet encoding='utf-8'?><e/>", None),
        ("<?xml version='1.0' encoding=''?><e/>", None),
    ],
)
def test_declared_encoding(text: str, declared: str | None) -> None:
    """Only an XML declaration at the very start names an encoding."""
    assert declared_encoding(text) == declared


UMLAUT = "<e>ä</e>"


@pytest.mark.parametrize(
    ("charset", "octets", "why"),
    [
        # nothing declared: any charset that it decodes in
        ("utf-8", UMLAUT.encode(), None),
        ("UTF8", UMLAUT.encode(), None),
        ("iso-8859-1", UMLAUT.encode("latin-1"), None),
        ("us-ascii", b"<e/>", None),
        ("utf-8", UMLAUT.encode("latin-1"), "does not decode as its charset 'utf-8'"),
        ("us-ascii", UMLAUT.encode(), "does not decode as its charset 'us-ascii'"),
        ("utf-16", b"<e/>", "charset is 'utf-16', the first octets say an encoding that agrees with ASCII"),
        ("utf-8", b" <e/>", "no XML in the charset 'utf-8'"),
        ("utf-16", b"<ee/>", "the first octets say an encoding that agrees with ASCII"),
        ("x-unknown", b"<e/>", "charset is 'x-unknown', which is unknown, and the document declares no encoding"),
        ("punycode", b"<e/>", "charset is 'punycode', which is unknown"),
        ("", b"<e/>", "charset is '', which is unknown"),
        ("a\0b", b"<e/>", "charset is 'a\\x00b', which is unknown"),
        ("x" * 100_000, b"<e/>", "charset is '" + "x" * 299 + "…, which is unknown"),
        ("IBM037", b"<e/>", "charset is 'IBM037', the first octets say an encoding that agrees with ASCII"),
        # declared: the names have to agree
        ("utf-8", DECLARED.format("UTF-8").encode(), None),
        ("latin1", DECLARED.format("ISO-8859-1").encode(), None),
        ("utf-16", DECLARED.format("UTF-8").encode(), "the XML declaration says UTF-8"),
        ("us-ascii", DECLARED.format("UTF-8").encode(), "the XML declaration says UTF-8"),
        ("csISOLatin1", DECLARED.format("ISO_8859-1").encode(), None),
        ("x-unknown", DECLARED.format("X-Unknown").encode(), None),
        (
            "x-unknown",
            DECLARED.format("UTF-8").encode(),
            "'x-unknown', which is unknown, the XML declaration says UTF-8",
        ),
        ("IBM037", DECLARED.format("IBM037").encode("cp037"), None),
        ("csIBM037", DECLARED.format("cp037").encode("cp037"), None),
        ("IBM037", DECLARED.format("x").replace(' encoding="x"', "").encode("cp037"), None),
        ("IBM500", DECLARED.format("IBM037").encode("cp037"), "charset is 'IBM500', the XML declaration says IBM037"),
        ("utf-8", DECLARED.format("IBM037").encode("cp037"), "charset is 'utf-8', the first octets say EBCDIC"),
        ("utf-32", b"\x00\x00<\x00" + bytes(8), "the first octets say UCS-4 in an unusual order"),
        # a byte order mark, or 16 bits: the charset has to be of that family
        ("utf-8", codecs.BOM_UTF8 + UMLAUT.encode(), None),
        ("utf-8", codecs.BOM_UTF8 + DECLARED.format("utf-8").encode(), None),
        ("iso-8859-1", codecs.BOM_UTF8 + UMLAUT.encode(), "first octets say UTF-8"),
        ("utf-16", UMLAUT.encode("utf-16"), None),
        ("utf-16le", UMLAUT.encode("utf-16-le"), None),
        ("utf-16", UMLAUT.encode("utf-16-be"), None),
        ("utf-16", UMLAUT.encode("utf-16-be")[:-1], "does not decode"),
        ("utf-16", codecs.BOM_UTF16_BE + DECLARED.format("utf-16").encode("utf-16-be"), None),
        ("utf-16be", codecs.BOM_UTF16_BE + DECLARED.format("UTF-16").encode("utf-16-be"), None),
        ("utf-16", codecs.BOM_UTF16_BE + DECLARED.format("UTF-16BE").encode("utf-16-be"), None),
        ("ISO-10646-UCS-2", UMLAUT.encode("utf-16"), None),
        ("utf-16be", UMLAUT.encode("utf-16-le"), "charset is 'utf-16be', the first octets say UTF-16"),
        ("utf-8", UMLAUT.encode("utf-16"), "first octets say UTF-16"),
        ("utf-32", UMLAUT.encode("utf-16"), "first octets say UTF-16"),
        ("utf-32", UMLAUT.encode("utf-32"), None),
        # a document that contradicts itself agrees with no charset
        ("utf-8", codecs.BOM_UTF16_LE + DECLARED.format("utf-8").encode("utf-16-le"), "byte order mark says UTF-16-LE"),
        ("utf-8", codecs.BOM_UTF8 + DECLARED.format("iso-8859-1").encode(), "the byte order mark says UTF-8, the XML"),
        ("iso-8859-1", codecs.BOM_UTF8 + DECLARED.format("iso-8859-1").encode(), "the byte order mark says UTF-8"),
        ("utf-16", codecs.BOM_UTF16_LE + DECLARED.format("utf-8").encode("utf-16-le"), "declaration says utf-8"),
    ],
)
def test_charset_and_document(charset: str, octets: bytes, why: str | None) -> None:
    """Protocol-2012: the charset parameter is compared with the encoding that the document shows."""
    found = charset_disagreement(charset, octets)
    if why is None:
        assert found is None
    else:
        assert found is not None
        assert any(each in found for each in why.split("|"))


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"<e/>", None),
        (DECLARED.format("utf-8").encode(), None),
        (DECLARED.format("x-unknown").encode(), None),
        (codecs.BOM_UTF8 + DECLARED.format("UTF8").encode(), None),
        (codecs.BOM_UTF8 + DECLARED.format("US-ASCII").encode(), "the byte order mark says UTF-8"),
        (codecs.BOM_UTF16_LE + DECLARED.format("UTF-16").encode("utf-16-le"), None),
        (codecs.BOM_UTF16_LE + DECLARED.format("UTF-16LE").encode("utf-16-le"), None),
        (codecs.BOM_UTF16_LE + DECLARED.format("ISO-10646-UCS-2").encode("utf-16-le"), None),
        (codecs.BOM_UTF16_LE + DECLARED.format("UTF-16BE").encode("utf-16-le"), "the byte order mark says UTF-16-LE"),
        (codecs.BOM_UTF16_LE + DECLARED.format("utf-8").encode("utf-16-le"), "the byte order mark says UTF-16-LE"),
        (codecs.BOM_UTF32_BE + DECLARED.format("UTF-16").encode("utf-32-be"), "the byte order mark says UTF-32-BE"),
        (
            DECLARED.format("utf-8").encode("utf-16-be"),
            "the first octets say UTF-16-BE, the XML declaration says utf-8",
        ),
        (DECLARED.format("utf-16").encode(), "the first octets say an encoding that agrees with ASCII"),
        (DECLARED.format("UTF-32LE").encode(), "the first octets say an encoding that agrees with ASCII"),
        (DECLARED.format("IBM037").encode(), "the first octets say an encoding that agrees with ASCII"),
        (DECLARED.format("IBM037").encode("cp037"), None),
        (DECLARED.format("utf-8").encode("cp037"), "the first octets say EBCDIC, the XML declaration says utf-8"),
    ],
)
def test_documents_that_contradict_themselves(octets: bytes, why: str | None) -> None:
    """XML 1.0 4.3.3: byte order mark or first octets and the declaration have to tell the same."""
    found = contradiction(detect_encoding(octets))
    assert found is None if why is None else why in (found or "")
    if why is not None:
        with pytest.raises(ValueError, match=r"the XML declaration says|EBCDIC"):
            document_encoding(octets)


@pytest.mark.parametrize(
    ("octets", "charset", "label"),
    [
        (b"<e/>", None, "utf-8"),
        (b"<e/>", "koi8-r", "koi8-r"),
        (DECLARED.format("ISO-8859-2").encode(), "koi8-r", "ISO-8859-2"),
        (codecs.BOM_UTF8 + b"<e/>", "koi8-r", "utf-8"),
        ("<e/>".encode("utf-16-le"), None, "utf-16-le"),
        ("<e/>".encode("utf-32-be"), "utf-32", "utf-32-be"),
    ],
)
def test_the_encoding_to_read_by(octets: bytes, charset: str | None, label: str) -> None:
    """First octets, then the declaration, then the charset, then UTF-8."""
    assert document_encoding(octets, charset) == label


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (DECLARED.format("IBM500").encode("cp500"), r"in EBCDIC \(IBM500\), which is refused: send UTF-8 or UTF-16"),
        ("<?xml version='1.0'?><e/>".encode("cp037"), "in EBCDIC, which is refused"),
        (b"\x00\x00<\x00\x00\x00e\x00", "in UCS-4 in an unusual order of octets, which is refused"),
        (b"\x00<\x00\x00\x00e\x00\x00", "in UCS-4 in an unusual order"),
        (b"\x00\x00\xff\xfe\x00\x00<\x00", "in UCS-4 in an unusual order"),
        (b"\xfe\xff\x00\x00\x00<\x00\x00", "in UCS-4 in an unusual order"),
        (b"<?xml version='1.0'" + b" " * 2000 + b"encoding='latin1'?><e/>", "does not end within 1024 characters"),
        (b"<?xml version='1.0'", "does not end within 1024 characters"),
    ],
)
def test_encodings_that_are_refused(octets: bytes, why: str) -> None:
    """What is not read is refused by name; a declaration that hides behind white space is not passed over."""
    with pytest.raises(ValueError, match=why):
        document_encoding(octets)


@given(st.text(max_size=20), st.binary(max_size=40))
def test_any_charset_can_be_compared(charset: str, octets: bytes) -> None:
    """Nothing that arrives makes the comparison raise."""
    assert isinstance(charset_disagreement(charset, octets), str | None)


# gzip


def packed(octets: bytes, count: int = 1) -> bytes:
    """Compress octets as so many gzip members."""
    size = -(-len(octets) // count)
    return b"".join(gzip.compress(octets[at * size : (at + 1) * size]) for at in range(count))


def test_gunzip() -> None:
    """A gzip body is undone, of one member or of several, up to its limit."""
    assert gunzip(gzip.compress(b"")) == b""
    assert gunzip(packed(b"x" * 1000), Limits(unpacked=1000)) == b"x" * 1000
    assert gunzip(packed(b"<e/>" * 100_000, 7), Limits(members=7)) == b"<e/>" * 100_000
    assert gunzip(memoryview(packed(b"<e/>"))) == b"<e/>"


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"", "cut short"),
        (b"<e/>", "no gzip"),
        (zlib.compress(b"<e/>"), "no gzip"),
        (gzip.compress(b"<e/>")[:-1], "cut short"),
        (gzip.compress(b"<e/>") * 2 + gzip.compress(b"<e/>")[:9], "cut short"),
        (gzip.compress(b"<e/>") + b"\0", "cut short|octets follow"),
        (gzip.compress(b"<e/>") + b"<e/>", "octets follow the gzip body that are no gzip"),
        (gzip.compress(b"<e/>")[:-8] + bytes(8), "no gzip"),
    ],
)
def test_broken_gzip(octets: bytes, why: str) -> None:
    """What is no gzip, is cut, goes on after its end or has a wrong check sum is refused."""
    with pytest.raises(ValueError, match=why) as caught:
        gunzip(octets)
    assert not isinstance(caught.value, LimitExceededError)


@pytest.mark.parametrize(
    ("octets", "limits", "limit"),
    [
        (packed(b"x" * 1001), Limits(unpacked=1000), "unpacked"),
        (packed(b"x" * 1001, 2), Limits(unpacked=1000), "unpacked"),
        (packed(bytes(2 * MIB)), Limits(ratio=10), "ratio"),
        (packed(b"x" * 1000, 3), Limits(members=2), "members"),
    ],
)
def test_gzip_beyond_a_limit(octets: bytes, limits: Limits, limit: str) -> None:
    """A body that grows too big, too fast, or has too many members is refused by the limit's name."""
    with pytest.raises(LimitExceededError) as caught:
        gunzip(octets, limits)
    assert caught.value.excess.limit == limit


def test_ratio() -> None:
    """The ratio counts from a mebibyte on, and then to the octet."""
    octets = packed(bytes(MIB))
    assert len(gunzip(octets, Limits(ratio=1))) == MIB
    octets = packed(bytes(3 * MIB))
    assert len(gunzip(octets, Limits(ratio=-(-3 * MIB // len(octets))))) == 3 * MIB
    with pytest.raises(LimitExceededError, match="ratio"):
        gunzip(octets, Limits(ratio=3 * MIB // len(octets)))


def test_many_members_cost_no_more_than_their_octets() -> None:
    """Members of nothing are taken one by one, without a copy of what follows each."""
    started = process_time()
    gunzip(packed(b"") * 20_000, Limits(members=20_000))
    assert process_time() - started < 5


@given(st.binary(max_size=200), st.integers(1, 5))
def test_gzip_and_back(octets: bytes, count: int) -> None:
    """What was compressed comes back; the same octets always give the same result."""
    assert gunzip(packed(octets, count)) == octets
    assert gunzip(gzipped(octets)) == gzip.decompress(gzipped(octets)) == octets
    assert gzipped(octets) == gzipped(octets)


@pytest.mark.parametrize("header", ["gzip", "br, GZIP", "gzip;q=0.5, *;q=0", "deflate, gzip ; q = 1"])
def test_a_header_that_allows_gzip(header: str) -> None:
    """In any place and case, with any weight but none."""
    assert accepts_gzip(header)


@pytest.mark.parametrize("header", ["", "br", "gzip;q=0", "gzip; q=0.000", "x-gzip", "gzipped", "br," * 20 + "gzip"])
def test_a_header_that_does_not_allow_gzip(header: str) -> None:
    """Another encoding, no weight, or gzip after twenty others."""
    assert not accepts_gzip(header)


@given(st.binary(max_size=100))
def test_anything_as_gzip(octets: bytes) -> None:
    """Nothing that arrives raises anything else than what says why."""
    for each in (octets, gzip.compress(b"x") + octets, b"\x1f\x8b\x08" + octets):
        with suppress(ValueError):
            assert isinstance(gunzip(each), bytes)


@pytest.mark.parametrize(
    ("charset", "octets", "wrong", "fitting"),
    [
        ("utf-8", b"<e>\xe9</e>", (3, 4), None),
        ("us-ascii", "<e>\xe9</e>".encode(), (3, 4), "utf-8"),
        ("utf-8", b"<e/>", None, "utf-8"),
        ("utf-16", b"<e/>", None, "utf-8"),
        ("x-unknown", b"<e/>", None, "utf-8"),
        ("utf-16", UMLAUT.encode("utf-16-be")[:-1], (2 * len(UMLAUT) - 2, 2 * len(UMLAUT) - 1), None),
        ("utf-8", UMLAUT.encode("utf-16"), None, "utf-16"),
    ],
)
def test_octets_that_are_not_of_a_charset(
    charset: str, octets: bytes, wrong: tuple[int, int] | None, fitting: str | None
) -> None:
    """The first ones, if it is only they that are wrong; and a charset that is right for the document."""
    assert undecoded(charset, octets) == wrong
    assert fitting_charset(octets) == fitting
