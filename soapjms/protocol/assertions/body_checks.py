"""Checks of a body: its first octets, its encoding against charset and declaration, and its SOAP part.

Spec: SOAP/JMS 2.2.3 contentType, 2.4; REC 2.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from soapjms.protocol import names
from soapjms.protocol.assertions.model import Case, Fact, by_plain_document, reads
from soapjms.protocol.assertions.request_checks import is_multipart, is_simple
from soapjms.protocol.assertions.spots import Reason, Spot, beginning, in_body, in_property, malformed_span, span_of
from soapjms.protocol.attachments import Part
from soapjms.protocol.content import (
    ContentType,
    agree,
    charset_disagreement,
    contradiction,
    declared_encoding,
    decode,
    detect_encoding,
    document_encoding,
    fitting_charset,
    is_ebcdic,
    is_known,
    parameter_span,
    parse_content_type,
    span_in_octets,
    text_of,
    undecodable,
    undecoded,
    with_parameter,
)
from soapjms.protocol.text import named, shown
from soapjms.protocol.xml import DOCTYPE


@by_plain_document
@reads(Fact.PROPERTIES, Fact.BODY)
def has_charset(case: Case) -> bool:
    """Say whether there is a charset to compare; under the REC the declaration of a TextMessage has no meaning."""
    body = case.message.body
    if case.message.charset is None or not case.message.is_simple or not starts_as_xml(body):
        return False
    return isinstance(body, bytes) or not case.setting.profile.text_encoding_ignored


@by_plain_document
@reads(Fact.PROPERTIES, Fact.BODY)
def charset_matches_encoding(case: Case) -> str | None:
    """Say why the charset parameter and the encoding of the XML disagree, or None.

    Spec: SOAP/JMS 2.2.3 contentType; Protocol-2012, Protocol-2013.
    """
    charset, body = case.message.charset, case.message.body
    assert charset is not None
    assert body is not None
    problem = charset_disagreement(charset, body) if isinstance(body, bytes) else _of_text(charset, body)
    return None if problem is None else Reason(problem, *_encodings(case, body))


def _encodings(case: Case, body: bytes | str) -> Iterator[Spot]:
    """Yield the spots that state the encoding: the charset, and what of the body disagrees with it."""
    charset, text = case.message.charset or "", case.message.text(names.CONTENT_TYPE) or ""
    declared = declared_encoding(body) if isinstance(body, str) else detect_encoding(body).declared
    if isinstance(body, bytes) and contradiction(detect_encoding(body)) is not None:
        yield in_body("the encoding that the first octets tell, or none", _declared_span(body))
        return
    right = declared or ("utf-8" if isinstance(body, str) else fitting_charset(body))
    if right is None:
        span = parameter_span(text, "charset")
        yield in_property(case.message, names.CONTENT_TYPE, "the charset of the body", is_value=False, span=span)
    else:
        yield in_property(case.message, names.CONTENT_TYPE, with_parameter(text, "charset", right))
    if declared is not None:
        yield in_body("the encoding that the charset parameter names", _declared_span(body))
    elif isinstance(body, bytes) and (is_known(charset) or is_ebcdic(charset)):
        wrong = undecoded(charset, body) or beginning(body, OCTETS_THAT_TELL)
        yield in_body(f"a document in the charset {named(charset)}", wrong)


OCTETS_THAT_TELL: Final = 4
"""Number of first octets that tell the encoding of a document without a declaration."""


def _declared_span(body: bytes | str) -> tuple[int, int] | None:
    """Return where the XML declaration of a document names its encoding."""
    if isinstance(body, str):
        return span_of(declared_encoding(body), body)
    seen = detect_encoding(body)
    return span_of(seen.declared, body, seen.codec)


def _of_text(charset: str | None, document: str) -> str | None:
    """Say why a charset, if there is one, is unknown or contradicts the declaration of characters, or None."""
    if charset is None:
        return None
    if not is_known(charset) and not is_ebcdic(charset):
        return f"charset is {shown(charset)}, which is unknown"
    declared = declared_encoding(document)
    if declared is None or agree(charset, declared):
        return None
    return f"charset is {shown(charset)}, the XML declaration says {named(declared)}"


@reads(Fact.PROPERTIES, Fact.BODY)
def text_charset_disagreement(case: Case) -> str | None:
    """Say why the charset and the XML declaration of a TextMessage, or of its SOAP part, disagree, or None.

    Spec: SOAP/JMS 2.2.3 contentType; REC 2.4.1 (WG-49), by which the declaration is ignored.
    """
    kind, body, part = case.message.content_type, case.message.body, case.message.soap_part
    if part is not None:
        kind, body = part.content_type, _document(part)
    problem = _of_text(kind.charset, body) if kind is not None and isinstance(body, str) else None
    if problem is None or not isinstance(body, str):
        return None
    if part is None and kind is not None and not is_known(kind.charset or ""):
        span = parameter_span(case.message.text(names.CONTENT_TYPE) or "", "charset")
        known = "a charset of the IANA registry, such as utf-8"
        return Reason(problem, in_property(case.message, names.CONTENT_TYPE, known, is_value=False, span=span))
    declared = span_of(declared_encoding(body), case.message.body)
    return Reason(problem, in_body("no encoding in the XML declaration, or that of the charset", declared))


@reads(Fact.PROPERTIES, Fact.BODY)
def is_text_with_charset(case: Case) -> bool:
    """Say whether it is a TextMessage with a charset in its content type, or with parts, which have content types."""
    if not isinstance(case.message.body, str):
        return False
    return is_multipart(case) or (is_simple(case) and case.message.charset is not None)


@by_plain_document
@reads(Fact.PROPERTIES, Fact.BODY)
def has_no_charset(case: Case) -> bool:
    """Say whether the body is octets of an XML document whose encoding must be inferred."""
    body = case.message.body
    return is_simple(case) and case.message.charset is None and isinstance(body, bytes) and starts_as_xml(body)


@by_plain_document
@reads(Fact.PROPERTIES, Fact.BODY)
def reads_as_inferred(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 contentType; XML 1.0 4.3.3, appendix F; Protocol-2014."""
    body = case.message.body
    assert isinstance(body, bytes)
    try:
        decode(body, document_encoding(body))
    except ValueError as error:
        told = _declared_span(body) or beginning(body)
        wrong = (error.start, error.end) if isinstance(error, UnicodeDecodeError) else told
        why = undecodable(error)
        return Reason(
            f"there is no charset, and the document does not read in the encoding that its octets tell: {why}",
            in_body("a document in the encoding that its first octets and its XML declaration tell", wrong),
        )
    return None


@reads(Fact.PROPERTIES, Fact.BODY)
def contradicts_itself(case: Case) -> bool:
    """Say whether byte order mark or first octets contradict the declaration, which is a mismatch too."""
    body = case.message.body
    assert isinstance(body, bytes)
    return contradiction(detect_encoding(body)) is not None


@by_plain_document
@reads(Fact.PROPERTIES, Fact.BODY, Fact.MESSAGE_TYPE)
def first_is_xml(case: Case) -> str | None:
    """Say why the first octet or character does not start an XML document, or None; a byte order mark is part of it.

    Spec: SOAP/JMS 2.4; Protocol-2030.
    """
    body = case.message.body
    if body is None:
        return Reason(case.message.body_problem or "", in_body("a SOAP envelope as octets or text"))
    if not starts_as_xml(body) and not has_ebcdic_charset(case):
        return Reason(
            f"{_beginning_text(body)}, not with an XML document" if body else "the body is empty",
            in_body("an XML document from the first octet on: <", beginning(body) if body else None),
        )
    problem = case.message.envelope_problem
    if problem is None:
        return None
    return Reason(problem, in_body("a well-formed XML document, a SOAP envelope", _problem_span(case, body)))


def _problem_span(case: Case, body: bytes | str) -> tuple[int, int] | None:
    """Return the range of what is wrong in a document that is no envelope; None if it is no certain part of it."""
    place = case.message.malformed_place
    if place is None:
        codec = "" if isinstance(body, str) else detect_encoding(body).codec
        return span_of("<!DOCTYPE", body, codec) if case.message.envelope_problem == DOCTYPE else None
    if isinstance(body, str):
        return malformed_span(body, *place)
    label = document_encoding(body, case.message.charset)
    return span_in_octets(body, label, malformed_span(text_of(body, label), *place))


def _beginning_text(body: bytes | str) -> str:
    return f"the body begins with {shown(body[:SHOWN_AT_START])}"


SHOWN_AT_START: Final = 20
"""Number of octets or characters of a body that are quoted if it does not begin as it should."""


def has_ebcdic_charset(case: Case) -> bool:
    """Say whether the charset is a code page of EBCDIC: a document in it need not begin like one in ASCII."""
    return case.message.charset is not None and is_ebcdic(case.message.charset)


def starts_as_xml(body: bytes | str | None) -> bool:
    """Say whether a body begins as an XML document may, in any encoding that the first octets can show."""
    if isinstance(body, str):
        return body.startswith(("<", "\ufeff<"))
    return body is not None and body[:6].startswith(XML_STARTS)


XML_STARTS = (
    b"<",
    b"\xef\xbb\xbf<",
    b"\xfe\xff\x00<",
    b"\xff\xfe<\x00",
    b"\x00<\x00",
    b"\x00\x00\xfe\xff",
    b"\xff\xfe\x00\x00<",
    b"\x00\x00\x00<",
    b"\x00\x00<\x00",  # an unusual order of octets, as the next two: refused by name
    b"\xfe\xff\x00\x00",
    b"\x00\x00\xff\xfe",
    b"\x4c\x6f\xa7\x94",
)


@reads(Fact.PROPERTIES, Fact.BODY)
def multipart_type(case: Case) -> str | None:
    """Say why `type` is not the media type of the first part, or None. Spec: SOAP/JMS 2.2.3; Protocol-2015."""
    kind, part = case.message.content_type, case.message.first_part
    assert kind is not None
    assert part is not None
    stated = kind.parameters.get("type")
    inner = None if part.content_type is None else part.content_type.media_type
    if stated is not None and inner is not None and stated.lower() == inner:
        return None
    said = "there is no type parameter" if stated is None else f"the type parameter is {shown(stated)}"
    said += (
        ", the first part has no Content-Type"
        if inner is None
        else f", the Content-Type of the first part is {shown(inner)}"
    )
    if inner is None:
        return Reason(said, in_body("a first part with a Content-Type"))
    right = with_parameter(case.message.text(names.CONTENT_TYPE) or "", "type", inner)
    return Reason(said, in_property(case.message, names.CONTENT_TYPE, right))


@reads(Fact.PROPERTIES, Fact.BODY)
def soap_part_fits(case: Case) -> str | None:
    """Say why the SOAP part's Content-Type and its XML disagree, or None; other checks report unreadable XML.

    Spec: SOAP/JMS 2.4; RFC 3023 3.1; XOP 5 (the `type` of application/xop+xml).
    """
    part = case.message.soap_part
    assert part is not None
    document = _document(part)
    if document is None:
        return None
    problem = _part_charset_problem(part, document, case)
    problem = f"in the SOAP part {problem}" if problem is not None else _part_version_problem(part, case)
    if problem is None:
        return None
    stated = span_of(part.fields.get("content-type"), case.message.body)
    return Reason(problem, in_body("a Content-Type of the SOAP part that says its charset and SOAP version", stated))


def _document(part: Part) -> bytes | str | None:
    """Return the XML of a part; None if its transfer encoding cannot be undone."""
    try:
        return part.document
    except ValueError:
        return None


def _part_charset_problem(part: Part, document: bytes | str, case: Case) -> str | None:
    """Say why charset and XML disagree; under the REC the declaration in a TextMessage is judged elsewhere."""
    charset = part.charset
    if isinstance(document, str):
        return None if case.setting.profile.text_encoding_ignored else _of_text(charset, document)
    return charset_disagreement(charset, document) if charset else contradiction(detect_encoding(document))


def _part_version_problem(part: Part, case: Case) -> str | None:
    envelope, whole = case.message.envelope, case.message.content_type
    assert whole is not None
    kind = part.content_type or ContentType("")
    known = {names.XOP, *names.VERSION_OF_MEDIA_TYPE, *case.setting.profile.media_types.values()}
    if kind.media_type not in known:
        return f"the media type of the SOAP part is {shown(kind.media_type)}; accepted are {', '.join(sorted(known))}"
    stated = {"the media type of the SOAP part": kind.media_type}
    if kind.media_type == names.XOP:
        stated = {
            "the media type of the SOAP part": kind.parameters.get("type", ""),
            "start-info": whole.parameters.get("start-info", ""),
        }
    for what, said in stated.items():
        version = names.VERSION_OF_MEDIA_TYPE.get(parse_content_type(said).media_type)
        if version is not None and envelope is not None and version is not envelope.version:
            return f"{what} is {shown(said)}, its envelope is SOAP {envelope.version}"
    return None


@reads(Fact.PROPERTIES, Fact.BODY)
def part_is_envelope(case: Case) -> str | None:
    """Say why the SOAP part cannot be read as an envelope, or None. Spec: SOAP/JMS 2.4."""
    problem = case.message.envelope_problem
    if problem is None:
        return None
    return Reason(f"the SOAP part cannot be read: {problem}", in_body("a SOAP envelope as the SOAP part"))


BOUNDARY: Final = "-- and the value of the parameter boundary, the start of the first part"


@reads(Fact.PROPERTIES, Fact.BODY, Fact.MESSAGE_TYPE)
def multipart_start(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.4; Protocol-2029."""
    problem = case.message.multipart_problem or case.message.body_problem
    if problem is None:
        return None
    return Reason(problem, in_body(BOUNDARY, beginning(case.message.body)))
