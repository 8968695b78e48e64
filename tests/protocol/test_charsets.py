"""The names of encodings: IANA's aliases, EBCDIC, and what a label cannot reach."""

from __future__ import annotations

import codecs
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soapjms.protocol.content import agree, decode, encoding_name, is_ebcdic, is_known

ALIASES = {
    "utf-8": "UTF-8 utf8 csUTF8 UTF_8",
    "utf-16": "UTF-16 csUTF16 ISO-10646-UCS-2 csUnicode",
    "utf-16-le": "UTF-16LE utf-16-le csUTF16LE",
    "utf-32": "UTF-32 ISO-10646-UCS-4 csUCS4",
    "ascii": "US-ASCII ascii us csASCII ANSI_X3.4-1968 ISO_646.irv:1991 iso-ir-6 IBM367",
    "iso8859-1": "ISO-8859-1 latin1 latin-1 l1 ISO_8859-1:1987 ISO_8859-1 iso-ir-100 csISOLatin1 CP819 IBM819",
    "iso8859-5": "ISO-8859-5 cyrillic csISOLatinCyrillic ISO_8859-5:1988",
    "iso8859-8": "ISO-8859-8 ISO-8859-8-I csISO88598E hebrew",
    "iso8859-9": "ISO-8859-9 latin5 csISOLatin5",
    "iso8859-11": "TIS-620 csTIS620 ISO-8859-11",
    "iso8859-15": "ISO-8859-15 Latin-9 csISO885915",
    "cp1252": "windows-1252 cswindows1252 cp1252",
    "cp437": "IBM437 cp437 437 csPC8CodePage437",
    "cp850": "IBM850 csPC850Multilingual",
    "cp858": "IBM00858 CCSID00858 CP00858 PC-Multilingual-850+euro csIBM00858",
    "cp862": "IBM862 csPC862LatinHebrew",
    "shift_jis": "Shift_JIS MS_Kanji csShiftJIS",
    "cp932": "Windows-31J csWindows31J",
    "euc_jp": "EUC-JP csEUCPkdFmtJapanese Extended_UNIX_Code_Packed_Format_for_Japanese",
    "euc_kr": "EUC-KR csEUCKR KS_C_5601-1987 csKSC56011987 korean",
    "koi8-r": "KOI8-R csKOI8R",
    "mac-roman": "macintosh mac csMacintosh",
    "gb18030": "GB18030 csGB18030",
    "big5": "Big5 csBig5",
}


@pytest.mark.parametrize(
    ("codec", "label"), [(codec, each) for codec, all_ in ALIASES.items() for each in all_.split()]
)
def test_aliases(codec: str, label: str) -> None:
    """Every alias, in any case, means the codec, which Python has by that very name."""
    assert encoding_name(label) == encoding_name(label.upper()) == encoding_name(codec) == codec
    assert codecs.lookup(codec).name == codec
    assert is_known(label)
    assert decode("<e/>".encode(codec), label) == "<e/>"


@pytest.mark.parametrize(
    "label",
    "IBM037 cp037 csIBM037 ebcdic-cp-us ebcdic-us-37+euro IBM1047 IBM01140 CCSID01141 CP00924 csEBCDICATDE".split(),
)
def test_ebcdic_is_refused_by_name(label: str) -> None:
    """Every code page of EBCDIC is known as one, and not decoded."""
    assert is_ebcdic(label)
    assert not is_known(label)
    with pytest.raises(ValueError, match=r"is EBCDIC, which is refused: send UTF-8 or UTF-16"):
        decode(b"abc", label)


LABELS = [
    "punycode",
    "idna",
    "unicode_escape",
    "raw_unicode_escape",
    "undefined",
    "zlib",
    "charmap",
    "utf-8-sig",
    "utf-7",
]


@pytest.mark.parametrize("label", [*LABELS, "aliases", "../os", "mbcs", "x", "", "a\0b", "\ud800", "x" * 1_000_000])
def test_what_is_no_charset(label: str) -> None:
    """Codecs of Python's own, and names of its modules, are no charsets: a peer cannot choose them."""
    assert not is_known(label)
    assert not is_ebcdic(label)
    assert encoding_name(label) == label.lower()
    with pytest.raises(
        ValueError, match="is unknown; a name of the IANA registry, such as UTF-8, is accepted"
    ) as caught:
        decode(b"abc", label)
    assert len(str(caught.value)) < 200


def test_an_unknown_label_reaches_no_module() -> None:
    """Python's look-up, which would import `encodings.zlib_codec` and ask the disk for others, never sees a label."""
    before = set(sys.modules)
    encoding_name("hex_codec_2")
    encoding_name("quopri_codec")
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [
        ("latin1", "ISO-8859-1", True),
        ("utf-16", "UTF-16LE", True),
        ("UTF-32BE", "utf-32", True),
        ("UTF-16BE", "UTF-16LE", False),
        ("utf-8", "utf-16", False),
        ("X-Nonsense", "x-nonsense", True),
        ("iso-8859-1", "iso-8859-15", False),
        ("big5", "big5-hkscs", False),
    ],
)
def test_agreement(one: str, other: str, fits: bool) -> None:
    """Aliases agree, and a family of encodings with each of its byte orders."""
    assert agree(one, other) is agree(other, one) is fits


@given(st.binary(max_size=40), st.text(max_size=20) | st.sampled_from(" ".join(ALIASES.values()).split()))
def test_decoding_gives_text_or_one_kind_of_error(octets: bytes, label: str) -> None:
    """Whatever octets and label arrive."""
    try:
        assert isinstance(decode(octets, label), str)
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either outcome is right
