"""Conversion of IRIs, which are URIs with characters beyond ASCII, to and from URIs.

The grammar of `jms:` is ASCII only, so text that people type is converted first. ASCII characters that a URI must not
have, such as a space, are left for the parser to find.

Spec: RFC 3987 2.2, 3.1, 3.2, 4.1; RFC 6167 5.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final
from urllib.parse import quote

from soapjms.protocol.errors import InvalidUriError

_ASCII: Final = "".join(map(chr, range(128)))
_PLANES: Final = "".join(f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 14))
_UCSCHAR: Final = f"\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef{_PLANES}\U000e1000-\U000efffd"
_IPRIVATE: Final = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_BIDI: Final = "\u200e\u200f\u202a-\u202e"
_NOT_IN_BASE: Final = rf"[^\x00-\x7f{_UCSCHAR}]|[{_BIDI}]"
_NOT_IN_QUERY: Final = rf"[^\x00-\x7f{_UCSCHAR}{_IPRIVATE}]|[{_BIDI}]"
_NOT_UCSCHAR: Final = rf"[^{_UCSCHAR}]"
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9\-._~]")
# Not after a broken escape: `%%4141` must not become the escape `%A4`.
_ESCAPES: Final = re.compile(r"(?<!%)(?<!%[0-9A-Fa-f])(?:%[0-9A-Fa-f]{2})+")


def from_iri(text: str) -> str:
    """Convert an IRI to a URI: each character beyond ASCII becomes its escaped UTF-8 octets. A URI stays as it is.

    Raises:
        InvalidUriError: the text has a character that no IRI may have: half of a surrogate pair, a control character,
            one that changes the direction of writing, or, outside the query, one of private use.

    Spec: RFC 3987 3.1.
    """
    if text.isascii():
        return text
    query = text.partition("?")[0] + "?"
    refused = _pattern(_NOT_IN_BASE).search(text, 0, len(query)) or _pattern(_NOT_IN_QUERY).search(text, len(query))
    if refused:
        raise InvalidUriError(
            f"{refused.group()!r} at {refused.start()} may not stand in an IRI (RFC 3987 2.2, 4.1); in a name it must "
            f"be written as escaped UTF-8"
        )
    return quote(text, safe=_ASCII)


def to_iri(uri: str) -> str:
    """Convert a URI to an IRI that is safe to show: escapes of characters that an IRI may have are decoded.

    Other escapes are kept: of reserved characters and `%`, of octets that are not UTF-8, and of characters that are
    invisible or change the direction of writing. `from_iri` of the result is the same URI without needless escapes.

    Spec: RFC 3987 3.2, 4.1.
    """
    return _ESCAPES.sub(_decoded, uri)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern when it is first needed: these take some milliseconds each."""
    return re.compile(text)


def _decoded(found: re.Match[str]) -> str:
    octets = bytes.fromhex(found.group().replace("%", ""))
    return "".join(map(_shown, octets.decode("utf-8", "surrogateescape")))


def _shown(character: str) -> str:
    if _UNRESERVED.match(character) or (character.isprintable() and not _pattern(_NOT_UCSCHAR).match(character)):
        return character
    return "".join(f"%{octet:02X}" for octet in character.encode("utf-8", "surrogateescape"))
