"""What the octets of a body are: content type, character encoding, content encoding.

Pure functions on octets and strings; no XML tree, no SOAP.

Spec: SOAP/JMS 2.2.3 contentType; REC 2.2.3 contentEncoding; RFC 2045 5.1; XML 1.0 appendix F; RFC 1952.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from soapjms.protocol.charsets import agree, decode, encoding_name, is_ebcdic, is_known
from soapjms.protocol.limits import DEFAULT_LIMITS, MIB, Limits
from soapjms.protocol.showing import named, shown

# Content type


@dataclass(frozen=True, slots=True)
class ContentType:
    """A media type with its parameters, read by the rules of MIME.

    Attributes:
        media_type: `type/subtype` in lower case; empty where there is none.
        parameters: by name in lower case; values as they are, without quotes.
        problem: what breaks the syntax, None if nothing does.
        repeats: a parameter stands there more than once.
        has_gap: there is a semicolon without a parameter after it.
    """

    media_type: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    repeats: bool = False
    has_gap: bool = False

    @property
    def charset(self) -> str | None:
        """The charset parameter, None if absent."""
        return self.parameters.get("charset")


_SPACE: Final = r"[ \t\r\n]*"
_WORD: Final = r"[!#$%&'*+\-.^_`{|}~0-9A-Za-z]+"
_MEDIA_TYPE: Final = re.compile(rf"{_SPACE}({_WORD}/{_WORD}){_SPACE}")
_PARAMETER: Final = re.compile(
    rf';{_SPACE}(?:({_WORD}){_SPACE}={_SPACE}(?:"((?:[^"\\]|\\.)*)"|([^ \t\r\n;"]+)){_SPACE})?', re.DOTALL
)
_COMMENT_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|\\.|[()]|[^"\\()]+|\\', re.DOTALL)
_SHOWN: Final = 80


@lru_cache(maxsize=1024)
def parse_content_type(text: str) -> ContentType:
    """Read a content type: names case-insensitive, values quoted or not, the first of a repeated parameter counts.

    Comments, in parentheses and outside quotes, are dropped.

    Spec: RFC 2045 5.1; RFC 822 3.4.3; SOAP/JMS 2.2.3 contentType.
    """
    if "(" in text:
        text, problem = _without_comments(text)
        if problem is not None:
            return ContentType("", {}, problem)
    found = _MEDIA_TYPE.match(text)
    if found is None:
        return ContentType("", {}, f"{text[:_SHOWN]!r} has no type/subtype")
    position, parameters, number = found.end(), dict[str, str](), 0
    has_gap = False
    while position < len(text):
        parameter = _PARAMETER.match(text, position)
        if parameter is None:
            rest = text[position : position + _SHOWN]
            return ContentType(found[1].lower(), parameters, f"{rest!r} is no parameter (;name=value)")
        has_gap |= parameter[1] is None
        if parameter[1]:
            number += 1
            value = parameter[3] if parameter[3] is not None else re.sub(r"\\(.)", r"\1", parameter[2], flags=re.DOTALL)
            parameters.setdefault(parameter[1].lower(), value)
        position = parameter.end()
    return ContentType(found[1].lower(), parameters, repeats=number > len(parameters), has_gap=has_gap)


def _without_comments(text: str) -> tuple[str, str | None]:
    """Put a space for each comment, which may hold others; say what is wrong if one has no end."""
    kept: list[str] = []
    depth = position = 0
    while position < len(text):
        if depth and text[position] == '"':  # a quote means nothing in a comment
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
    return "".join(kept), f"a comment in {text[:_SHOWN]!r} has no end" if depth else None


# Character encoding


@dataclass(frozen=True, slots=True)
class Encoding:
    """What the octets of an XML document say of its encoding.

    Attributes:
        family: by byte order mark or first octets: `utf-8`, `utf-16`, `utf-32`, `ebcdic`, `ucs-4` for 32 bits in an
            order that nothing reads, or `ascii` for any encoding that agrees with ASCII on the declaration.
        codec: the one member of the family that the first octets tell: with its byte order, of EBCDIC the code page
            that the declaration can be read in.
        marked: there is a byte order mark.
        declared: the name in the XML declaration, None if it has none.
        cut: there is a declaration, but its end is further off than anybody writes it.
    """

    family: str
    codec: str
    marked: bool
    declared: str | None
    cut: bool = False

    @property
    def is_unicode(self) -> bool:
        """The first octets alone tell how to decode the document."""
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
_LONGEST_DECLARATION: Final = 1024


_PLAIN: Final = re.compile(rb"<(?![?\x00])")
"""How nearly every document begins: without byte order mark and declaration, in an encoding that agrees with ASCII."""

_UNDECLARED: Final = Encoding("ascii", "utf-8", False, None)


def detect_encoding(octets: bytes) -> Encoding:
    """Tell the encoding of an XML document from its first octets, as XML 1.0 appendix F does. Protocol-2014."""
    if _PLAIN.match(octets):
        return _UNDECLARED
    for table, marked in ((_MARKS, True), (_FIRST_OCTETS, False)):
        for first, family, codec in table:
            if octets.startswith(first):
                return _encoding(family, codec, marked, octets)
    return _encoding("ascii", "utf-8", False, octets)


def _encoding(family: str, codec: str, marked: bool, octets: bytes) -> Encoding:
    head = octets[: 4 * _LONGEST_DECLARATION].decode("latin-1" if family == "ascii" else codec, "replace")
    head = head[:_LONGEST_DECLARATION]
    cut = _DECLARATION_BEGINS.match(head) is not None and ">" not in head
    return Encoding(family, codec, marked, declared_encoding(head), cut)


def declared_encoding(text: str) -> str | None:
    """Return the encoding that an XML declaration names, None if it names none."""
    found = _DECLARATION.match(text[:_LONGEST_DECLARATION])
    return found[1] if found else None


def contradiction(seen: Encoding) -> str | None:
    """Say why byte order mark or first octets and the XML declaration disagree, None if they do not.

    Spec: XML 1.0 4.3.3 (a fatal error), appendix F.
    """
    if seen.declared is None:
        return None
    declared = encoding_name(seen.declared)
    if seen.is_unicode:
        fits = declared in (seen.family, seen.codec)
    elif seen.family == "ascii":
        fits = not (is_ebcdic(declared) or declared.startswith(("utf-16", "utf-32")))
    else:
        fits = seen.family == "ucs-4" or is_ebcdic(declared)
    if fits:
        return None
    what = "byte order mark" if seen.marked else "first octets"
    told = seen.codec.upper() if seen.family in ("utf-16", "utf-32") else FIRST_OCTETS_SAY[seen.family]
    return f"the {what} {'says' if seen.marked else 'say'} {told}, the XML declaration says {named(seen.declared)}"


def document_encoding(octets: bytes, charset: str | None = None) -> str:
    """Return the label to decode an XML document by: as its octets tell, else its declaration, else the charset.

    Args:
        octets: the document.
        charset: used where the document is silent; None for UTF-8.

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
        raise ValueError(f"the XML declaration does not end within {_LONGEST_DECLARATION} characters")
    return seen.codec if seen.is_unicode else seen.declared or charset or "utf-8"


def charset_disagreement(charset: str, octets: bytes) -> str | None:
    """Say why a charset parameter and the document's octets disagree, None if they do not.

    The byte order mark counts most, then the XML declaration. A document that declares nothing may be in any charset
    that it decodes in and that fits its first octets.

    Spec: SOAP/JMS 2.2.3 contentType; XML 1.0 appendix F; Protocol-2012.
    """
    seen = detect_encoding(octets)
    if seen is _UNDECLARED and (charset == "utf-8" or not is_ebcdic(charset)):
        return _undeclared(charset, charset, octets)
    if (problem := contradiction(seen)) is not None:
        return problem
    if not _fits_first_octets(encoding_name(charset), seen):
        return f"charset is {_charset(charset)}, the first octets say {FIRST_OCTETS_SAY[seen.family]}"
    if seen.declared is None:
        codec = seen.codec if seen.is_unicode else charset
        return None if seen.family == "ebcdic" else _undeclared(charset, codec, octets)
    if agree(charset, seen.declared):
        return None
    return f"charset is {_charset(charset)}, the XML declaration says {named(seen.declared)}"


def _charset(charset: str) -> str:
    return shown(charset) if is_known(charset) or is_ebcdic(charset) else f"{shown(charset)}, which is unknown"


def _fits_first_octets(wanted: str, seen: Encoding) -> bool:
    if seen.is_unicode:
        return wanted in (seen.family, seen.codec)
    return is_ebcdic(wanted) is (seen.family == "ebcdic") and seen.family != "ucs-4"


def _undeclared(charset: str, codec: str, octets: bytes) -> str | None:
    try:
        document = decode(octets, codec)
    except ValueError as error:
        if not is_known(charset):
            return f"charset is {_charset(charset)}, and the document declares no encoding"
        return f"the document does not decode as its charset {_charset(charset)}: {error}"
    return (
        None
        if document.startswith(("<", "\ufeff<"))
        else f"the first octets are no XML in the charset {_charset(charset)}"
    )


# Content encoding

ANY_RATIO: Final = MIB
"""Octets that a body may grow to whatever its ratio: of a small one it says nothing."""

_WINDOW: Final = 16 * 1024


def gunzip(octets: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Decompress a gzip body, of one member or several. It never grows beyond what is allowed.

    Raises:
        LimitExceededError: it would grow too big, or has too many members.
        ValueError: it is no gzip, is cut short, or has something else after its end.

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
            unpacked.append(_inflate(machine, rest[:_WINDOW], most - size, members))
            size += len(unpacked[-1])
            if size > most:
                limit = "unpacked" if most == limits.unpacked else "ratio"
                raise limits.excess(limit, f"the gzip body of {len(octets)} octets grows beyond {most} octets")
            rest = rest[min(_WINDOW, len(rest)) - len(machine.unused_data) :]
    return b"".join(unpacked)


def _inflate(machine: zlib._Decompress, octets: memoryview, most: int, member: int) -> bytes:
    """Decompress some octets; one more than `most` come back where there are more."""
    try:
        return machine.decompress(octets, most + 1)
    except zlib.error as error:
        what = "no gzip" if member == 1 else "octets follow the gzip body that are no gzip"
        raise ValueError(f"{what}: {error}") from None


def gzipped(octets: bytes) -> bytes:
    """Compress a body with gzip; the same octets always give the same result.

    Spec: RFC 1952; REC 2.2.3 contentEncoding.
    """
    machine = zlib.compressobj(wbits=31)
    return machine.compress(octets) + machine.flush()


Decoder = Callable[[bytes | memoryview, Limits], bytes]

DECODERS: Final[Mapping[str, Decoder]] = {"gzip": gunzip}
ENCODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"gzip": gzipped}
"""Content encodings by their names in the IANA registry, in lower case."""
