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
        marked: there is a byte order mark.
        declared: the name in the XML declaration, None if it has none.
    """

    family: str
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


def detect_encoding(octets: bytes) -> Encoding:
    """Tell the encoding of an XML document from its first octets, as XML 1.0 appendix F does. Protocol-2014."""
    for table, marked in ((_MARKS, True), (_FIRST_OCTETS, False)):
        for first, family, codec in table:
            if octets.startswith(first):
                return Encoding(family, marked, declared_encoding(_head(octets, codec)))
    return Encoding("ascii", False, declared_encoding(_head(octets, "latin-1")))


def _head(octets: bytes, codec: str) -> str:
    return octets[:_LONGEST_DECLARATION].decode(codec, "replace")


def declared_encoding(text: str) -> str | None:
    """Return the encoding that an XML declaration names, None if it names none."""
    found = _DECLARATION.match(text[:_LONGEST_DECLARATION])
    return found[1] if found else None


def encoding_name(label: str) -> str:
    """Return one name for all the aliases of an encoding; an unknown label only in lower case."""
    try:
        return codecs.lookup(label).name
    except LookupError:
        return label.lower()


def charset_disagreement(charset: str, octets: bytes) -> str | None:
    """Say why a charset parameter and the document's octets disagree, None if they do not.

    A document that declares nothing may be in any charset that it decodes in and that fits its first octets.

    Spec: SOAP/JMS 2.2.3 contentType; Protocol-2012.
    """
    wanted, seen = encoding_name(charset), detect_encoding(octets)
    if seen.declared is not None:
        declared = encoding_name(seen.declared)
        if wanted == declared or (seen.family == declared and wanted.startswith(declared)):
            return None
        return f"charset is {charset}, the XML declaration says {seen.declared}"
    if seen.family == "ascii":
        return _undeclared(charset, wanted, octets)
    if wanted == seen.family or wanted.startswith(seen.family + "-"):
        return None
    return f"charset is {charset}, the first octets say {seen.family.upper()}"


def _undeclared(charset: str, wanted: str, octets: bytes) -> str | None:
    if wanted.startswith(("utf-16", "utf-32")):
        return f"charset is {charset}, the first octets say an encoding of 8 bits"
    try:
        octets.decode(wanted)
    except LookupError:
        return f"charset {charset} is unknown, and the document declares no encoding"
    except ValueError as error:
        return f"the document does not decode as its charset {charset}: {error}"
    return None


# Content encoding


def gunzip(octets: bytes, limit: int = MAX_DECODED) -> bytes:
    """Decompress a gzip body.

    Raises:
        ValueError: it is no gzip, is cut short, has something after its end, or grows beyond `limit` octets.
    """
    machine = zlib.decompressobj(wbits=31)
    try:
        decoded = machine.decompress(octets, limit)
    except zlib.error as error:
        raise ValueError(f"no gzip: {error}") from None
    if machine.unconsumed_tail:
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


def first_part(body: bytes, boundary: str) -> Part:
    """Read the first part of a multipart body.

    Raises:
        ValueError: the body does not begin with the delimiter of the boundary, or the part has no end.

    Spec: RFC 2046 5.1; SOAP/JMS 2.4; Protocol-2029.
    """
    delimiter = b"--" + boundary.encode("utf-8")
    if not body.startswith(delimiter):
        raise ValueError(f"the body begins with {body[:40]!r}, not with the delimiter of the boundary {boundary!r}")
    end = body.find(b"\n" + delimiter, len(delimiter))
    if end < 0:
        raise ValueError(f"no delimiter of the boundary {boundary!r} ends the first part")
    head, separator, content = body[len(delimiter) : end].partition(b"\r\n\r\n")
    if not separator:
        head, separator, content = body[len(delimiter) : end].partition(b"\n\n")
    fields = dict(_part_header(line) for line in head.decode("latin-1").splitlines() if ":" in line)
    kind = fields.get("content-type")
    encoding = fields.get("content-transfer-encoding", "binary").lower()
    return Part(parse_content_type(kind) if kind else None, encoding, content.removesuffix(b"\r"))


def _part_header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()
