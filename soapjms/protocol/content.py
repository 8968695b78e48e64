"""The content type, character encoding and content encoding of a body.

Pure functions on octets and strings; no XML tree, no SOAP. The names of character encodings are a closed table, so that
a peer's label cannot choose anything else. Python's own look-up is never used for a label, as it searches for unknown
labels as modules on disk, knows codecs that are not charsets, and lacks many names of the IANA registry.

Spec: SOAP/JMS 2.2.3 contentType; REC 2.2.3 contentEncoding; RFC 2045 5.1; XML 1.0 appendix F; RFC 1952; IANA
character sets; RFC 2978; UTS #22 1.4 (matching of aliases).
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from soapjms.protocol.limits import DEFAULT_LIMITS, MIB, Limits
from soapjms.protocol.text import named, reason_of, shown

_ROWS: Final = """\
utf-8           utf8
utf-16          utf16 iso10646ucs2 csunicode
utf-16-be       utf16be
utf-16-le       utf16le
utf-32          utf32 iso10646ucs4 csucs4
utf-32-be       utf32be
utf-32-le       utf32le
ascii           usascii ascii us iso646us isoir6 iso646irv1991 ansix341968 ansix341986 ibm367 cp367
iso8859-1       iso88591 iso885911987 isoir100 latin1 l1 isolatin1 ibm819 cp819
iso8859-2       iso88592 iso885921987 isoir101 latin2 l2 isolatin2
iso8859-3       iso88593 iso885931988 isoir109 latin3 l3 isolatin3
iso8859-4       iso88594 iso885941988 isoir110 latin4 l4 isolatin4
iso8859-5       iso88595 iso885951988 isoir144 cyrillic isolatincyrillic
iso8859-6       iso88596 iso885961987 isoir127 ecma114 asmo708 arabic isolatinarabic
iso8859-7       iso88597 iso885971987 isoir126 elot928 ecma118 greek greek8 isolatingreek
iso8859-8       iso88598 iso885981988 isoir138 hebrew isolatinhebrew iso88598e iso88598i
iso8859-9       iso88599 iso885991989 isoir148 latin5 l5 isolatin5
iso8859-10      iso885910 iso8859101992 isoir157 latin6 l6 isolatin6
iso8859-11      iso885911 tis620
iso8859-13      iso885913
iso8859-14      iso885914 iso8859141998 isoir199 latin8 l8 isoceltic
iso8859-15      iso885915 latin9
iso8859-16      iso885916 iso8859162001 isoir226 latin10 l10
cp1250          windows1250 cp1250
cp1251          windows1251 cp1251
cp1252          windows1252 cp1252
cp1253          windows1253 cp1253
cp1254          windows1254 cp1254
cp1255          windows1255 cp1255
cp1256          windows1256 cp1256
cp1257          windows1257 cp1257
cp1258          windows1258 cp1258
cp874           windows874 cp874
cp437           ibm437 cp437 437 pc8codepage437
cp775           ibm775 cp775 pc775baltic
cp850           ibm850 cp850 850 pc850multilingual
cp852           ibm852 cp852 852 pcp852
cp855           ibm855 cp855 855
cp857           ibm857 cp857 857
cp858           ibm00858 ccsid00858 cp00858 cp858 pcmultilingual850euro
cp860           ibm860 cp860 860
cp861           ibm861 cp861 861 cpis
cp862           ibm862 cp862 862 pc862latinhebrew
cp863           ibm863 cp863 863
cp864           ibm864 cp864
cp865           ibm865 cp865 865
cp866           ibm866 cp866 866
cp869           ibm869 cp869 869 cpgr
koi8-r          koi8r
koi8-u          koi8u
mac-roman       macintosh mac
hp-roman8       hproman8 roman8 r8
kz1048          kz1048 strk10482002 rk1048
ptcp154         ptcp154 pt154 cp154 cyrillicasian
shift_jis       shiftjis mskanji
cp932           windows31j cp932 ms932
euc_jp          eucjp extendedunixcodepackedformatforjapanese eucpkdfmtjapanese
iso2022_jp      iso2022jp
iso2022_jp_2    iso2022jp2
euc_kr          euckr ksc56011987 ksc56011989 ksc5601 korean isoir149
iso2022_kr      iso2022kr
gb2312          gb2312
gbk             gbk cp936 ms936 windows936
gb18030         gb18030
hz              hzgb2312
big5            big5
big5hkscs       big5hkscs
"""
"""A codec of Python, and its names in the form that `_squeezed` returns; each name may also have the prefix `cs`.

UTF-7 is not included, as it hides markup in the octets.
"""

CODECS: Final = frozenset(row.split()[0] for row in _ROWS.splitlines())
"""Every codec that a label can choose. Python loads a codec from its own library at the first use."""

_EBCDIC_PAGES: Final = (
    "037 273 274 275 277 278 280 281 284 285 290 297 420 423 424 500 870 871 880 905 918 924 1026 1047 "
    "1140 1141 1142 1143 1144 1145 1146 1147 1148 1149"
).split()
_EBCDIC: Final = "ebcdic"

_PUNCTUATION: Final = {ord(each): None for each in "-_.:()+ "}
_MAX_LABEL_CHARACTERS: Final = 60


def _names() -> dict[str, str]:
    """Return the codec, or the code page of EBCDIC, for each squeezed name."""
    names: dict[str, str] = {}
    for row in _ROWS.splitlines():
        codec, *aliases = row.split()
        names[codec] = codec  # found without squeezing, as nearly every label is utf-8
        names.update((prefix + alias, codec) for alias in aliases for prefix in ("", "cs"))
    for page in _EBCDIC_PAGES:
        for width in (3, 5):
            names.update((maker + page.zfill(width), _EBCDIC + page) for maker in ("ibm", "csibm", "cp", "ccsid"))
    return names


_NAMES: Final[Mapping[str, str]] = _names()


def _squeezed(label: str) -> str:
    """Return a label in lower case without punctuation, as aliases are compared."""
    return label[:_MAX_LABEL_CHARACTERS].lower().translate(_PUNCTUATION)


def encoding_name(label: str) -> str:
    """Return the same name for all aliases of an encoding; an unknown label is returned in lower case."""
    return _meant(label) or label.lower()


def _meant(label: str) -> str | None:
    """Return the codec or the code page of EBCDIC that a label means; None if it is unknown."""
    return _NAMES.get(label.lower()) or _NAMES.get(_squeezed(label))


def is_known(label: str) -> bool:
    """Say whether a label names an encoding that can be decoded."""
    name = _meant(label)
    return name is not None and not name.startswith(_EBCDIC)


def is_ebcdic(label: str) -> bool:
    """Say whether a label names a code page of EBCDIC."""
    name = _meant(label)
    return (_squeezed(label).removeprefix("cs") if name is None else name).startswith(_EBCDIC)


def agree(one: str, other: str) -> bool:
    """Say whether two labels can mean the same octets: aliases, or UTF-16 and UTF-32 with and without byte order."""
    first, second = sorted((encoding_name(one), encoding_name(other)), key=len)
    return first == second or (first in ("utf-16", "utf-32") and second.startswith(first + "-"))


def decode(octets: bytes, label: str) -> str:
    """Decode octets in the encoding that a charset or an XML declaration names.

    Raises:
        ValueError: the encoding is unknown, or is EBCDIC, which is refused, or the octets are not valid in it.
    """
    name = _meant(label)
    if name is not None and not name.startswith(_EBCDIC):
        return octets.decode(name)
    shown = repr(label[:_MAX_LABEL_CHARACTERS])
    if is_ebcdic(label):
        raise ValueError(f"the encoding {shown} is EBCDIC, which is refused: send UTF-8 or UTF-16")
    raise ValueError(f"the encoding {shown} is unknown; a name of the IANA registry, such as UTF-8, is accepted")


def undecodable(error: ValueError) -> str:
    """Say why octets do not decode, from the error of `decode`."""
    if isinstance(error, UnicodeDecodeError):
        return f"octet {error.start}, {error.object[error.start]:#04x}, is not of it"
    return str(error)


# Content type


@dataclass(frozen=True, slots=True)
class ContentType:
    """A media type with its parameters, read by the rules of MIME.

    Attributes:
        media_type: `type/subtype` in lower case; empty if there is none.
        parameters: values by parameter name in lower case; values as they are, without quotes.
        problem: the syntax error, or None.
        repeats: True if a parameter occurs more than once.
        has_gap: True if there is a semicolon without a parameter after it.
    """

    media_type: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    repeats: bool = False
    has_gap: bool = False

    @property
    def charset(self) -> str | None:
        """The charset parameter; None if absent."""
        return self.parameters.get("charset")


_SPACE: Final = r"[ \t\r\n]*"
_WORD: Final = r"[!#$%&'*+\-.^_`{|}~0-9A-Za-z]+"
_MEDIA_TYPE: Final = re.compile(rf"{_SPACE}({_WORD}/{_WORD}){_SPACE}")
_PARAMETER: Final = re.compile(
    rf';{_SPACE}(?:({_WORD}){_SPACE}={_SPACE}(?:"((?:[^"\\]|\\.)*)"|([^ \t\r\n;"]+)){_SPACE})?', re.DOTALL
)
_COMMENT_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|\\.|[()]|[^"\\()]+|\\', re.DOTALL)
_SHOWN_CHARACTERS: Final = 80

MAX_CACHED_CHARACTERS: Final = 1024
"""Maximum number of characters of a content type that is cached after parsing."""


def parse_content_type(text: str) -> ContentType:
    """Read a content type: names case-insensitive, values quoted or not, the first of a repeated parameter counts.

    Comments, in parentheses and outside quotes, are dropped.

    Spec: RFC 2045 5.1; RFC 822 3.4.3; SOAP/JMS 2.2.3 contentType.
    """
    return (_known if len(text) <= MAX_CACHED_CHARACTERS else _known.__wrapped__)(text)


@lru_cache(maxsize=1024)
def _known(text: str) -> ContentType:
    """Read a content type; cached, because messages use few."""
    if "(" in text:
        text, problem = _without_comments(text)
        if problem is not None:
            return ContentType("", {}, problem)
    found = _MEDIA_TYPE.match(text)
    if found is None:
        return ContentType("", {}, f"{text[:_SHOWN_CHARACTERS]!r} has no type/subtype")
    position, parameters, number = found.end(), dict[str, str](), 0
    has_gap = False
    while position < len(text):
        parameter = _PARAMETER.match(text, position)
        if parameter is None:
            rest = text[position : position + _SHOWN_CHARACTERS]
            return ContentType(found[1].lower(), parameters, f"{rest!r} is no parameter (;name=value)")
        has_gap |= parameter[1] is None
        if parameter[1]:
            number += 1
            value = parameter[3] if parameter[3] is not None else re.sub(r"\\(.)", r"\1", parameter[2], flags=re.DOTALL)
            parameters.setdefault(parameter[1].lower(), value)
        position = parameter.end()
    return ContentType(found[1].lower(), parameters, repeats=number > len(parameters), has_gap=has_gap)


def with_media_type(text: str, media_type: str) -> str:
    """Return a content type with another media type; the parameters stay as they are written."""
    found = _MEDIA_TYPE.match(text)
    return media_type if found is None else text[: found.start(1)] + media_type + text[found.end(1) :]


def with_parameter(text: str, name: str, value: str) -> str:
    """Return a content type with another value of a parameter, or with the parameter at its end if it has none."""
    span = parameter_span(text, name)
    return f'{text}; {name}="{value}"' if span is None else text[: span[0]] + value + text[span[1] :]


def parameter_span(text: str, name: str) -> tuple[int, int] | None:
    """Return the range of the value of a parameter in a content type, without quotes; None if it is not found."""
    found = _MEDIA_TYPE.match(text)
    position = 0 if found is None else found.end()
    while (parameter := _PARAMETER.match(text, position)) is not None:
        if (parameter[1] or "").lower() == name:
            return parameter.span(2 if parameter[2] is not None else 3)
        position = parameter.end()
    return None


def _without_comments(text: str) -> tuple[str, str | None]:
    """Replace each comment, which may hold others, with a space; return an error too if a comment has no end."""
    kept: list[str] = []
    depth = position = 0
    while position < len(text):
        if depth and text[position] == '"':  # a quote has no meaning in a comment
            position += 1
            continue
        piece = _COMMENT_PIECE.match(text, position)
        assert piece is not None
        position = piece.end()
        if piece[0] == "(":
            depth += 1
        elif piece[0] == ")" and depth:
            depth -= 1
            kept.append(" ")
        elif not depth:
            kept.append(piece[0])
    return "".join(kept), f"a comment in {text[:_SHOWN_CHARACTERS]!r} has no end" if depth else None


# Character encoding


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of an XML document, as its octets show it.

    Attributes:
        family: by byte order mark or first octets: `utf-8`, `utf-16`, `utf-32`, `ebcdic`, `ucs-4` for 32 bits in an
            unusual order, or `ascii` for any encoding that agrees with ASCII on the declaration.
        codec: the member of the family that the first octets show: with its byte order, or for EBCDIC a code page in
            which the declaration can be read.
        marked: True if there is a byte order mark.
        declared: the name in the XML declaration, or None.
        cut: True if the declaration does not end within the first `_MAX_DECLARATION_CHARACTERS` characters.
    """

    family: str
    codec: str
    marked: bool
    declared: str | None
    cut: bool = False

    @property
    def is_unicode(self) -> bool:
        """True if the first octets alone show how to decode the document."""
        return self.family in ("utf-8", "utf-16", "utf-32")


_MARKS: Final[tuple[tuple[bytes, str, str], ...]] = (
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),
    (b"\x00\x00\xff\xfe", "ucs-4", "latin-1"),
    (b"\xfe\xff\x00\x00", "ucs-4", "latin-1"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF8, "utf-8", "utf-8"),
)
_FIRST_OCTETS: Final[tuple[tuple[bytes, str, str], ...]] = (
    (b"\x00\x00\x00<", "utf-32", "utf-32-be"),
    (b"<\x00\x00\x00", "utf-32", "utf-32-le"),
    (b"\x00\x00<\x00", "ucs-4", "latin-1"),
    (b"\x00<\x00\x00", "ucs-4", "latin-1"),
    (b"\x00<", "utf-16", "utf-16-be"),
    (b"<\x00", "utf-16", "utf-16-le"),
    (b"\x4c\x6f\xa7\x94", "ebcdic", "cp037"),
)
FIRST_OCTETS_SAY: Final[Mapping[str, str]] = {
    "utf-8": "UTF-8",
    "utf-16": "UTF-16",
    "utf-32": "UTF-32",
    "ebcdic": "EBCDIC",
    "ucs-4": "UCS-4 in an unusual order of octets",
    "ascii": "an encoding that agrees with ASCII",
}
_DECLARATION: Final = re.compile(r"""\ufeff?<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._\-]*)["']""")
_DECLARATION_BEGINS: Final = re.compile(r"\ufeff?<\?xml\s")
_MAX_DECLARATION_CHARACTERS: Final = 1024


_PLAIN: Final = re.compile(rb"<(?![?\x00])")
"""The start of nearly every document: no byte order mark, no declaration, an encoding that agrees with ASCII."""

PLAIN_CHARSETS: Final = frozenset({None, "utf-8", "UTF-8"})
"""The charset parameters with which octets of US-ASCII always decode to themselves, as most are written."""


def is_plain(octets: object, charset: str | None) -> bool:
    """Say whether a body is octets of US-ASCII that begin with a tag, and UTF-8 by the charset parameter."""
    return type(octets) is bytes and octets.isascii() and charset in PLAIN_CHARSETS and _PLAIN.match(octets) is not None


UNDECLARED: Final = Encoding("ascii", "utf-8", False, None)
"""The encoding of a document that begins with a tag: nothing but a charset says what it is, and it may be UTF-8."""


def detect_encoding(octets: bytes) -> Encoding:
    """Detect the encoding of an XML document by its first octets, as in XML 1.0 appendix F. Protocol-2014."""
    if _PLAIN.match(octets):
        return UNDECLARED
    for table, marked in ((_MARKS, True), (_FIRST_OCTETS, False)):
        for first, family, codec in table:
            if octets.startswith(first):
                return _encoding(family, codec, marked, octets)
    return _encoding("ascii", "utf-8", False, octets)


def _encoding(family: str, codec: str, marked: bool, octets: bytes) -> Encoding:
    head = octets[: 4 * _MAX_DECLARATION_CHARACTERS].decode("latin-1" if family == "ascii" else codec, "replace")
    head = head[:_MAX_DECLARATION_CHARACTERS]
    cut = _DECLARATION_BEGINS.match(head) is not None and ">" not in head
    return Encoding(family, codec, marked, declared_encoding(head), cut)


def declared_encoding(text: str) -> str | None:
    """Return the encoding that an XML declaration names, or None."""
    found = _DECLARATION.match(text[:_MAX_DECLARATION_CHARACTERS])
    return found[1] if found else None


def contradiction(seen: Encoding) -> str | None:
    """Say why byte order mark or first octets and the XML declaration disagree; None if they agree.

    Spec: XML 1.0 4.3.3 (a fatal error), appendix F.
    """
    if seen.declared is None:
        return None
    declared = encoding_name(seen.declared)
    if seen.is_unicode:
        fits = declared in (seen.family, seen.codec)
    elif seen.family == "ascii":
        fits = _agrees_with_ascii(declared)
    else:
        fits = seen.family == "ucs-4" or is_ebcdic(declared)
    if fits:
        return None
    what = "byte order mark" if seen.marked else "first octets"
    told = seen.codec.upper() if seen.family in ("utf-16", "utf-32") else FIRST_OCTETS_SAY[seen.family]
    return f"the {what} {'says' if seen.marked else 'say'} {told}, the XML declaration says {named(seen.declared)}"


def _agrees_with_ascii(encoding: str) -> bool:
    """Say whether a document in an encoding has octets of US-ASCII for the characters of its markup."""
    return not (is_ebcdic(encoding) or encoding.startswith(("utf-16", "utf-32")))


def document_encoding(octets: bytes, charset: str | None = None) -> str:
    """Return the label to decode an XML document by: as its octets show, else its declaration, else the charset.

    Args:
        octets: the document.
        charset: the encoding if the document does not show it; None for UTF-8.

    Raises:
        ValueError: the document contradicts itself, or is in EBCDIC or another encoding that is refused.

    Spec: XML 1.0 4.3.3, appendix F.
    """
    if _PLAIN.match(octets):
        return charset or "utf-8"
    seen = detect_encoding(octets)
    if seen.family in ("ebcdic", "ucs-4"):
        declared = f" ({named(seen.declared)})" if seen.declared else ""
        what = f"{FIRST_OCTETS_SAY[seen.family]}{declared}"
        raise ValueError(f"the document is in {what}, which is refused: send UTF-8 or UTF-16")
    if (problem := contradiction(seen)) is not None:
        raise ValueError(problem)
    if seen.cut:
        raise ValueError(f"the XML declaration does not end within {_MAX_DECLARATION_CHARACTERS} characters")
    return seen.codec if seen.is_unicode else seen.declared or charset or "utf-8"


def charset_disagreement(charset: str, octets: bytes) -> str | None:
    """Say why a charset parameter and the document's octets disagree; None if they agree.

    The byte order mark takes precedence over the XML declaration. A document without a declaration may be in any
    charset that fits its first octets and in which it can be decoded.

    Spec: SOAP/JMS 2.2.3 contentType; XML 1.0 appendix F; Protocol-2012.
    """
    seen = detect_encoding(octets)
    if seen is UNDECLARED and (charset == "utf-8" or _agrees_with_ascii(encoding_name(charset))):
        return _undeclared(charset, charset, octets)
    if (problem := contradiction(seen)) is not None:
        return problem
    if not _fits_first_octets(encoding_name(charset), seen):
        return f"charset is {_charset(charset)}, the first octets say {FIRST_OCTETS_SAY[seen.family]}"
    if seen.declared is None:
        return None if seen.family == "ebcdic" else _undeclared(charset, _codec(charset, seen), octets)
    if agree(charset, seen.declared):
        return None
    return f"charset is {_charset(charset)}, the XML declaration says {named(seen.declared)}"


def _charset(charset: str) -> str:
    return shown(charset) if is_known(charset) or is_ebcdic(charset) else f"{shown(charset)}, which is unknown"


def _fits_first_octets(wanted: str, seen: Encoding) -> bool:
    if seen.is_unicode:
        return wanted in (seen.family, seen.codec)
    if seen.family == "ascii" and seen.declared is None:  # else the declaration tells more
        return _agrees_with_ascii(wanted)
    return is_ebcdic(wanted) is (seen.family == "ebcdic") and seen.family != "ucs-4"


def _codec(charset: str, seen: Encoding) -> str:
    """Return the label to decode a document by that declares no encoding."""
    return seen.codec if seen.is_unicode else charset


def undecoded(charset: str, octets: bytes) -> tuple[int, int] | None:
    """Return the range of the first octets that do not decode in a charset, in a document that declares no encoding.

    None if all do, or the first octets tell another charset already, or it is unknown or refused.
    """
    seen = detect_encoding(octets)
    if not _fits_first_octets(encoding_name(charset), seen):
        return None
    try:
        decode(octets, _codec(charset, seen))
    except UnicodeDecodeError as error:
        return error.start, error.end
    except ValueError:
        return None
    return None


def fitting_charset(octets: bytes) -> str | None:
    """Return a charset that a document without a declaration certainly agrees with; None if none is certain."""
    seen = detect_encoding(octets)
    wanted = seen.family if seen.is_unicode else "utf-8"
    return wanted if seen.declared is None and charset_disagreement(wanted, octets) is None else None


def text_of(octets: bytes, label: str) -> str:
    """Decode octets in an encoding that is known; each octet that is not of it becomes a character of its own."""
    return octets.decode(encoding_name(label), "surrogateescape")


def span_in_octets(octets: bytes, label: str, span: tuple[int, int]) -> tuple[int, int]:
    """Return the range of octets of a range of characters of their text; see `text_of`."""
    text = text_of(octets, label)
    begin, end = (len(text[:each].encode(encoding_name(label), "surrogateescape")) for each in span)
    return min(begin, len(octets)), min(end, len(octets))


def _undeclared(charset: str, codec: str, octets: bytes) -> str | None:
    if codec == "utf-8" and octets.isascii():  # this takes a quarter of the time of decoding
        is_xml = octets.startswith(b"<")
    else:
        try:
            is_xml = decode(octets, codec).startswith(("<", "\ufeff<"))
        except ValueError as error:
            if not is_known(charset):
                return f"charset is {_charset(charset)}, and the document declares no encoding"
            return f"the document does not decode as its charset {_charset(charset)}: {undecodable(error)}"
    return None if is_xml else f"the first octets are no XML in the charset {_charset(charset)}"


# Content encoding

ANY_RATIO: Final = MIB
"""Octets up to which a body may grow by any ratio, as the ratio of a small body means nothing."""

_INFLATE_OCTETS: Final = 16 * 1024


def gunzip(octets: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Decompress a gzip body of one or more members, without ever exceeding the limits.

    Raises:
        LimitExceededError: the body would grow too big, or has too many members.
        ValueError: the body is not gzip, is cut short, or is followed by other octets.

    Spec: RFC 1952 2.2; REC 2.2.3 contentEncoding.
    """
    most = min(limits.unpacked, max(limits.ratio * len(octets), ANY_RATIO))
    rest, members, unpacked, size = memoryview(octets), 0, list[bytes](), 0
    while rest or not members:
        members += 1
        if members > limits.members:
            raise limits.excess("members", "the gzip body has more members")
        machine = zlib.decompressobj(wbits=31)
        while not machine.eof:
            if not rest:
                raise ValueError("the gzip body is cut short")
            unpacked.append(_inflate(machine, rest[:_INFLATE_OCTETS], most - size, members))
            size += len(unpacked[-1])
            if size > most:
                limit = "unpacked" if most == limits.unpacked else "ratio"
                raise limits.excess(limit, f"the gzip body of {len(octets)} octets grows beyond {most} octets")
            rest = rest[min(_INFLATE_OCTETS, len(rest)) - len(machine.unused_data) :]
    return b"".join(unpacked)


def _inflate(machine: zlib._Decompress, octets: memoryview, most: int, member: int) -> bytes:
    """Decompress some octets; return one more than `most` if there are more."""
    try:
        return machine.decompress(octets, most + 1)
    except zlib.error as error:
        what = "no gzip" if member == 1 else "octets follow the gzip body that are no gzip"
        raise ValueError(f"{what}: {reason_of(error)}") from None


def gzipped(octets: bytes) -> bytes:
    """Compress a body with gzip; the same octets always give the same result.

    Spec: RFC 1952; REC 2.2.3 contentEncoding.
    """
    machine = zlib.compressobj(wbits=31)
    return machine.compress(octets) + machine.flush()


def accepts_gzip(header: str) -> bool:
    """Say whether an Accept-Encoding header of HTTP allows gzip; only the first 20 encodings in it count.

    Spec: RFC 9110 12.5.3.
    """
    for each in header.lower().split(",")[:20]:
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "").rstrip("0.") != "q="
    return False


Decoder = Callable[[bytes | memoryview, Limits], bytes]

DECODERS: Final[Mapping[str, Decoder]] = {"gzip": gunzip}
ENCODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"gzip": gzipped}
"""Content encodings by their names in the IANA registry, in lower case."""
