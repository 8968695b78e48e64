"""What rules may read of a document: its declaration, its SOAP version, its fault, where it redirects responses.

Documents that differ only in texts and values of attributes have the same *markup*. They are equally well-formed, and
alike to every rule that reads no text. So a markup is read once, for all documents that have it.

Spec: XML 1.0 2.4, 3.1; Namespaces in XML 1.0 3.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from soapjms.protocol.assertions.response_checks import redirects
from soapjms.protocol.attachments import read_multipart
from soapjms.protocol.content import ContentType, declared_encoding
from soapjms.protocol.envelope import FaultShape, as_envelope, read_fault
from soapjms.protocol.limits import Limits
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.xml import UNCARRIED, parse

MAX_MARKUP_OCTETS: Final = 1 << 16
"""Size of a document above which it is not reduced: it may come near to a limit."""

MAX_KNOWN: Final = 1024
"""Number of markups that are remembered with their facts."""
MAX_KNOWN_CHARACTERS: Final = 1 << 14
"""Length of a markup above which it is not remembered."""

ANONYMOUS: Final = r"http://www\.w3\.org/2005/08/addressing/anonymous"
"""The only text that a rule reads outside of faults: the address in a WS-Addressing ReplyTo."""

_TEXT: Final = re.compile(rf">(?!{ANONYMOUS}<)[^<>&{UNCARRIED}]++<")
"""A text that is certainly well-formed, between two tags. It begins with a fixed character, as Python finds such a
pattern in a third of the time."""
_START: Final = re.compile("\ufeff?(?:<\\?xml\\s[^?<>]*\\?>(?=[ \\t\\r\\n]*+<)|(?=<(?!\\?xml)))")
"""Byte order mark and XML declaration, before an element or something else that begins like one."""
MAX_START_CHARACTERS: Final = 256
"""Length of a declaration above which it may be too long for a reader."""

LIKE_ASCII: Final = frozenset({None, "us-ascii", "utf-8", "iso-8859-1", "iso-8859-15", "windows-1252"})
"""Encodings in which an octet of US-ASCII is that character, whatever stands around it."""
UNICODE: Final = frozenset({None, "utf-8"})


class DocumentFacts(NamedTuple):
    """What rules may read of a document.

    Attributes:
        start: its byte order mark and XML declaration.
        version: the SOAP version of the envelope.
        redirects: see `redirects`.
        fault: code, subcode, the namespace and the place of the subcode; None for other documents.
    """

    start: str
    version: SoapVersion
    redirects: bool
    fault: tuple[str, str | None, str | None, FaultShape | None] | None


class MultipartFacts(NamedTuple):
    """What rules may read of a body in parts.

    Attributes:
        root: the header fields of the SOAP part.
        first: the Content-Type of the first part.
        has_root_first: whether the SOAP part is the first.
        others: the header fields of the other parts; of those that name a part, only whether there are angle brackets.
        document: what rules may read of the document in the SOAP part.
    """

    root: tuple[tuple[str, str], ...]
    first: str | None
    has_root_first: bool
    others: tuple[tuple[tuple[str, object], ...], ...]
    document: DocumentFacts


def multipart_facts(body: bytes | str, kind: ContentType, limits: Limits) -> MultipartFacts | None:
    """Return what rules may read of a body in parts; None if it cannot be read, or a rule may read anything in it.

    Contents of attachments are read by no rule.

    Args:
        body: octets, or characters.
        kind: the content type of the message.
        limits: see `document_facts`.
    """
    try:
        found = read_multipart(body, kind, limits)
        document = found.root.document
    except ValueError:
        return None
    charset = found.root.charset
    facts = document_facts(document, None if charset is None else charset.lower(), limits)
    if facts is None:
        return None
    return MultipartFacts(
        root=tuple(sorted(found.root.fields.items())),
        first=found.first.fields.get("content-type"),
        has_root_first=found.root is found.first,
        others=tuple([tuple(sorted(map(_told_by_field, each.fields.items()))) for each in found.attachments]),
        document=facts,
    )


def _told_by_field(field: tuple[str, str]) -> tuple[str, object]:
    name, text = field
    return (name, (text[:1], text[-1:])) if name in NAMES_OF_PARTS else field


NAMES_OF_PARTS: Final = frozenset({"content-id", "content-location"})


def document_facts(document: bytes | str, charset: str | None, limits: Limits) -> DocumentFacts | None:
    """Return what rules may read of a document; None if it is no SOAP envelope, or a rule may read anything in it.

    One may in an encoding other than the usual ones, and in a document above `MAX_MARKUP_OCTETS`.

    Args:
        document: octets, or characters.
        charset: the charset of octets, in lower case, if one was stated outside of the document.
        limits: the limits for reading; none of those on size and text is below `MAX_MARKUP_OCTETS`.
    """
    size = len(document) if isinstance(document, bytes) or document.isascii() else 4 * len(document)
    if size > MAX_MARKUP_OCTETS:
        return None
    encodings = None if isinstance(document, str) else LIKE_ASCII if document.isascii() else UNICODE
    if isinstance(document, bytes):
        try:
            document = document.decode()
        except UnicodeDecodeError:
            return None
    # More texts are read, or there is more than tags and texts.
    if "Fault" in document or "<!" in document or document.find("<?", 2) >= 0:
        return _facts(document, charset, encodings, limits)
    end = document.find("?>") + 2 if document.startswith(("<?", "\ufeff<?")) else 0  # what follows it is no text
    markup = document[:end] + _TEXT.sub("><", document[end:])
    return (_known_facts if len(markup) <= MAX_KNOWN_CHARACTERS else _facts)(markup, charset, encodings, limits)


def _facts(
    document: str, charset: str | None, encodings: frozenset[str | None] | None, limits: Limits
) -> DocumentFacts | None:
    """Read a document whose encoding must be stated as one of `encodings`; None for characters, which have none."""
    found = _START.match(document)
    if found is None or found.end() > MAX_START_CHARACTERS:
        return None
    start = found[0]
    declared = declared_encoding(start.removeprefix("\ufeff"))
    stated = {charset, None if declared is None else declared.lower()}
    if encodings is not None and not stated <= encodings:
        return None
    try:
        envelope = as_envelope(parse(document, limits=limits))
    except ValueError:
        return None
    fault = read_fault(envelope)
    told = None if fault is None else (fault.code, fault.subcode, fault.namespace, fault.shape)
    return DocumentFacts(start, envelope.version, redirects(envelope), told)


_known_facts: Final = lru_cache(maxsize=MAX_KNOWN)(_facts)
