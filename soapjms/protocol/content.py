"""What the octets of a body are: content type, content encoding, character encoding, the first part of a multipart.

Pure functions on octets and strings; no XML tree, no SOAP.

Spec: SOAP/JMS 2.2.3 contentType, 2.4; RFC 2045 5.1; RFC 2046 5.1; XML 1.0 appendix F.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

MAX_DECODED: Final = 64 * 1024 * 1024
"""Octets that a content-encoded body may grow to."""

# Content type


@dataclass(frozen=True, slots=True)
class ContentType:
    """A media type with its parameters, read by the rules of MIME.

    Attributes:
        media_type: `type/subtype` in lower case; empty where there is none.
        parameters: by name in lower case; values as they are, without quotes.
        problem: what breaks the syntax, None if nothing does.
    """

    media_type: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None

    @property
    def charset(self) -> str | None:
        """The charset parameter, None if absent."""
        return self.parameters.get("charset")


_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_MEDIA_TYPE: Final = re.compile(rf"\s*({_WORD}/{_WORD})\s*")
_PARAMETER: Final = re.compile(rf';\s*(?:({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))\s*)?', re.DOTALL)


@lru_cache(maxsize=1024)
def parse_content_type(text: str) -> ContentType:
    """Read a content type: names case-insensitive, values quoted or not, the first of a repeated parameter counts.

    Spec: RFC 2045 5.1; SOAP/JMS 2.2.3 contentType.
    """
    found = _MEDIA_TYPE.match(text)
    if found is None:
        return ContentType("", {}, f"{text!r} has no type/subtype")
    position, parameters = found.end(), dict[str, str]()
    while position < len(text):
        parameter = _PARAMETER.match(text, position)
        if parameter is None:
            return ContentType(found[1].lower(), parameters, f"{text[position:]!r} is no parameter (;name=value)")
        if parameter[1]:
            value = parameter[3] if parameter[3] is not None else re.sub(r"\\(.)", r"\1", parameter[2])
            parameters.setdefault(parameter[1].lower(), value)
        position = parameter.end()
    return ContentType(found[1].lower(), parameters)


# Character encoding


@dataclass(frozen=True, slots=True)
class Encoding:
    """What the octets of an XML document say of its encoding.

    Attributes:
        family: by byte order mark or first octets: `utf-8`, `utf-16`, `utf-32`, `ebcdic`, or `ascii` for any encoding
            that agrees with ASCII on the declaration.
        codec: the one member of the family that the first octets tell: with its byte order, of EBCDIC the code page
            that the declaration can be read in.
        marked: there is a byte order mark.
        declared: the name in the XML declaration, None if it has none.
    """

    family: str
    codec: str
    marked: bool
    declared: str | None


_MARKS: Final[tuple[tuple[bytes, str, str], ...]] = (
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF8, "utf-8", "utf-8"),
)
_FIRST_OCTETS: Final[tuple[tuple[bytes, str, str], ...]] = (
    (b"\x00\x00\x00<", "utf-32", "utf-32-be"),
    (b"<\x00\x00\x00", "utf-32", "utf-32-le"),
    (b"\x00<", "utf-16", "utf-16-be"),
    (b"<\x00", "utf-16", "utf-16-le"),
    (b"\x4c\x6f\xa7\x94", "ebcdic", "cp037"),
)
_DECLARATION: Final = re.compile(r"""\ufeff?<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._\-]*)["']""")
_LONGEST_DECLARATION: Final = 1024


_UNDECLARED: Final = Encoding("ascii", "utf-8", False, None)


def detect_encoding(octets: bytes) -> Encoding:
    """Tell the encoding of an XML document from its first octets, as XML 1.0 appendix F does. Protocol-2014."""
    if octets[:1] == b"<" and octets[1:2] not in (b"?", b"\x00"):
        return _UNDECLARED  # what nearly every message is
    for table, marked in ((_MARKS, True), (_FIRST_OCTETS, False)):
        for first, family, codec in table:
            if octets.startswith(first):
                return Encoding(family, codec, marked, declared_encoding(_head(octets, codec)))
    return Encoding("ascii", "utf-8", False, declared_encoding(_head(octets, "latin-1")))


def _head(octets: bytes, codec: str) -> str:
    return octets[:_LONGEST_DECLARATION].decode(codec, "replace")


def declared_encoding(text: str) -> str | None:
    """Return the encoding that an XML declaration names, None if it names none."""
    found = _DECLARATION.match(text[:_LONGEST_DECLARATION])
    return found[1] if found else None


_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python's own that a charset cannot mean; some of them take quadratic time."""


def encoding_name(label: str) -> str:
    """Return one name for all the aliases of an encoding; an unknown label only in lower case."""
    try:
        return codecs.lookup(label).name
    except (LookupError, ValueError):  # a label with a NUL or half a surrogate pair is a ValueError
        return label.lower()


def decode(octets: bytes, label: str) -> str:
    """Decode octets in the encoding that a charset or an XML declaration names.

    Raises:
        LookupError: there is no such encoding.
        ValueError: the octets are not in it.
    """
    name = encoding_name(label)
    if name in _NO_CHARSETS:
        raise LookupError(f"unknown encoding: {label}")
    return octets.decode(name)


def charset_disagreement(charset: str, octets: bytes) -> str | None:
    """Say why a charset parameter and the document's octets disagree, None if they do not.

    The byte order mark counts most, then the XML declaration. A document that declares nothing may be in any charset
    that it decodes in and that fits its first octets.

    Spec: SOAP/JMS 2.2.3 contentType; XML 1.0 appendix F; Protocol-2012.
    """
    wanted, seen = encoding_name(charset), detect_encoding(octets)
    fits_octets = wanted == seen.family or wanted.startswith(seen.family + "-")
    if seen.family.startswith("utf") and not fits_octets:
        return f"charset is {charset}, the first octets say {seen.family.upper()}"
    if seen.declared is None:
        return _undeclared(charset, seen.codec if seen.family.startswith("utf") else wanted, octets)
    declared = encoding_name(seen.declared)
    if wanted == declared or (fits_octets and declared.startswith(seen.family)):
        return None
    return f"charset is {charset}, the XML declaration says {seen.declared}"


def _undeclared(charset: str, codec: str, octets: bytes) -> str | None:
    try:
        document = decode(octets, codec)
    except LookupError:
        return f"charset {charset} is unknown, and the document declares no encoding"
    except ValueError as error:
        return f"the document does not decode as its charset {charset}: {error}"
    return None if document.startswith(("<", "\ufeff<")) else f"the first octets are no XML in the charset {charset}"


# Content encoding


def gunzip(octets: bytes, limit: int = MAX_DECODED) -> bytes:
    """Decompress a gzip body.

    Raises:
        ValueError: it is no gzip, is cut short, has something after its end, or grows beyond `limit` octets.
    """
    machine = zlib.decompressobj(wbits=31)
    try:
        decoded = machine.decompress(octets, limit + 1)
    except zlib.error as error:
        raise ValueError(f"no gzip: {error}") from None
    if len(decoded) > limit:
        raise ValueError(f"the body grows beyond {limit} octets")
    if not machine.eof or machine.unused_data:
        raise ValueError("the gzip body is cut short" if not machine.eof else "octets follow the gzip body")
    return decoded


# Multipart


@dataclass(frozen=True, slots=True)
class Part:
    """The first part of a multipart body: its own content type (None if it has none) and its octets, still encoded."""

    content_type: ContentType | None
    transfer_encoding: str
    content: bytes


_BLANK_LINE: Final = re.compile(rb"(?:\A|\r?\n)\r?\n")
_FOLD: Final = re.compile(rb"\r?\n[ \t]+")


def first_part(body: bytes, boundary: str) -> Part:
    """Read the first part of a multipart body.

    Raises:
        ValueError: the body does not begin with the delimiter of the boundary, or the part has no end.

    Spec: RFC 2046 5.1; SOAP/JMS 2.4; Protocol-2029.
    """
    delimiter = rb"--" + re.escape(boundary.encode("utf-8"))
    begin = re.compile(delimiter + rb"[ \t]*\r?\n").match(body)
    if begin is None:
        raise ValueError(f"the body begins with {body[:40]!r}, not with the delimiter of the boundary {boundary!r}")
    end = re.compile(rb"\n" + delimiter + rb"(?:--)?[ \t]*(?:\r?\n|\Z)").search(body, begin.end() - 1)
    if end is None:
        raise ValueError(f"no delimiter of the boundary {boundary!r} ends the first part")
    part = body[begin.end() : end.start()].removesuffix(b"\r")
    blank = _BLANK_LINE.search(part)
    head, content = (part, b"") if blank is None else (part[: blank.start()], part[blank.end() :])
    lines = _FOLD.sub(b" ", head).decode("latin-1").split("\n")
    fields = dict(_part_header(line) for line in lines if ":" in line)
    kind = fields.get("content-type")
    encoding = fields.get("content-transfer-encoding", "binary").lower()
    return Part(parse_content_type(kind) if kind else None, encoding, content)


def _part_header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()
