"""The facts of a document agree with the whole reading of it, and are all that rules read of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokers.message import Message, MessageType, properties, queue
from soapjms.protocol.assertions import Setting, judge, markup
from soapjms.protocol.assertions.markup import (
    MAX_MARKUP_OCTETS,
    DocumentFacts,
    MultipartFacts,
    document_facts,
    multipart_facts,
)
from soapjms.protocol.assertions.response_checks import WSA_ANONYMOUS, redirects
from soapjms.protocol.content import declared_encoding, detect_encoding, parse_content_type
from soapjms.protocol.envelope import Fault, FaultShape
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import (
    CR_NAMESPACE,
    PROFILES,
    REC_2012,
    REC_NAMESPACE,
    SoapVersion,
    Subcode,
)
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import EPOCH, Record

Draw = Callable[[st.SearchStrategy[Any]], Any]
Document = bytes | str

MANY: Final = settings(max_examples=300)

SOAP_11, SOAP_12 = (version.namespace for version in SoapVersion)
WSA: Final = "http://www.w3.org/2005/08/addressing"


def envelope(inside: str = "<x/>", space: str = SOAP_11, header: str = "") -> str:
    """Write an envelope."""
    return f"<e:Envelope xmlns:e='{space}'>{header}<e:Body>{inside}</e:Body></e:Envelope>"


def reply_to(address: str) -> str:
    """Write a Header with a WS-Addressing ReplyTo."""
    return f"<e:Header><w:ReplyTo xmlns:w='{WSA}'><w:Address>{address}</w:Address></w:ReplyTo></e:Header>"


# Documents: right ones with much that is odd

PLAIN: Final = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<>&\ufffe\uffff"), max_size=8)
"""Texts without markup."""
ODD_TEXTS: Final = [
    *("", "x", "ä", "€", "😀", "\U0010ffff", "\t", "\r\n", " ", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "\ufffd"),
    *("'", '"', ">", "a>b", "]]", "]]]", "]] >", "?>", "/>", "--", "-->", "!", "=", "Fault", "xmlns", WSA_ANONYMOUS),
    *("&amp;", "&lt;", "&gt;", "&#65;", "&#x10FFFF;", "&quot;", "<![CDATA[<&>]]>", "<![CDATA[]]>x", "<!-- <&> -->"),
    *("<?p?>", "<?p > ?>", "<?p '<' ?>", "<?p ]]> ?>", "<!---->", "<y/>", "<y a='>'>b</y>", '<y a=">" b=\'"\'/>'),
]
WRONG_TEXTS: Final = [
    *("\0", "\x01", "\x08", "\x0b", "\x0c", "\x1f", "\ufffe", "\uffff", "\ud800", "\udfff"),
    *("]]>", "&", "<", "&x;", "&#0;", "&#xD800;", "&#xFFFE;", "&;", "a & b", "<y", "</y>", "<y>", "<y a=1/>"),
    *("<!-- -- -->", "<!--", "<![CDATA[", "<?", "<?xml version='1.0'?>", "<?XML?>", "<y a='<'/>", "<y a='&'/>"),
    *("<y a='' a=''/>", "<y a=''b=''/>", "<n:y/>", "<y n:a=''/>", "<1/>", "<y xmlns:n=''/>", "<!DOCTYPE a>"),
]
TEXTS: Final = st.lists(st.sampled_from(ODD_TEXTS) | PLAIN, max_size=3).map("".join)
ADDRESSES: Final = [
    *(WSA_ANONYMOUS, WSA_ANONYMOUS, f"{WSA}/none", "", " ", f"{WSA_ANONYMOUS} ", f"\n{WSA_ANONYMOUS}", "urn:x"),
    *(f"{WSA_ANONYMOUS}>", f">{WSA_ANONYMOUS}", f"{WSA_ANONYMOUS}>x", f"x>{WSA_ANONYMOUS}", f"{WSA}/anonymou&#115;"),
    *(f"{WSA_ANONYMOUS}<?p?>", f"<?p?>{WSA_ANONYMOUS}", f"{WSA_ANONYMOUS}<y/>x", f"<!-- -->{WSA_ANONYMOUS}"),
    *(f"<![CDATA[{WSA_ANONYMOUS}]]>x", f"x<![CDATA[{WSA_ANONYMOUS}]]>", f"{WSA_ANONYMOUS}<![CDATA[]]>x"),
    *(f"<![CDATA[{WSA_ANONYMOUS}]]>", f"{WSA}/<![CDATA[anonymous]]>", f"{WSA}<!-- -->/anonymous", f"{WSA}/Fault"),
    *(WSA_ANONYMOUS.upper(), WSA_ANONYMOUS.replace(".", "x"), f"{WSA_ANONYMOUS}\ud800", f"{WSA_ANONYMOUS}s"),
]
CODES: Final = [
    *("e:Client", "e:Server", "e:Client.x", "b:missingContentType", "c:targetServiceNotAllowed", "n:x", "Client", ""),
    *(" b:missingSoapAction\n", "b:<!-- -->x", "b:mis<![CDATA[sing]]>", "<?p?>b:x", "b&#58;x", "b:", ":b", "a:b:c"),
    *(f"{{{REC_NAMESPACE}}}missingRequestURI", "{}", "{b}x", "b:ä", "d:unknown", "b:mal\rformed", "b:x&#13;", "é"),
]
OF_BINDING: Final = f" xmlns:b='{REC_NAMESPACE}' xmlns:c='{CR_NAMESPACE}' xmlns:d='urn:d'"


@st.composite
def contents(draw: Draw, space: str) -> str:
    """Draw what stands in a Body."""
    if draw(st.booleans()):
        return f"<x y='{draw(TEXTS.filter(is_fit_for_attribute))}'>{draw(TEXTS)}</x >{draw(TEXTS)}"
    code, text, other = draw(st.sampled_from(CODES)), draw(TEXTS), draw(st.sampled_from(CODES))
    detail = draw(st.sampled_from(["", "<b:missingContentType/>", "<c:x/>", "<d:x/>", "<c:x/><d:x/>", "<b:é/>", "y"]))
    if draw(st.sampled_from([space == SOAP_12, space == SOAP_12, space == SOAP_11])):
        subcode = draw(st.sampled_from(["", f"<e:Subcode><e:Value>{other}</e:Value></e:Subcode>"]))
        inside = (
            f"<e:Code><e:Value>{code}</e:Value>{subcode}</e:Code><e:Reason><e:Text>{text}</e:Text></e:Reason>"
            f"<e:Detail>{detail}</e:Detail>"
        )
    else:
        inside = f"<faultcode>{code}</faultcode><faultstring>{text}</faultstring><detail>{detail}</detail>"
    before = draw(st.sampled_from(["", "", "<x/>", "<!-- -->", "y"]))
    return f"{before}<e:Fault{OF_BINDING}>{inside}</e:Fault>"


def is_fit_for_attribute(text: str) -> bool:
    """Say whether a text may be the value of an attribute in single quotes."""
    return "'" not in text and "<" not in text


@st.composite
def headers(draw: Draw) -> str:
    """Draw a Header, or none."""
    blocks = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        address = f"<w:Address>{draw(st.sampled_from(ADDRESSES))}</w:Address>"
        inside = draw(
            st.sampled_from([address, address, f"<!-- -->{address}", f"<?p?>{address}", f"<y/>{address}", ""])
        )
        space = draw(st.sampled_from([WSA, WSA, WSA, "http://schemas.xmlsoap.org/ws/2004/08/addressing"]))
        name = draw(st.sampled_from(["ReplyTo", "ReplyTo", "FaultTo"]))
        blocks.append(f"<w:{name} xmlns:w='{space}'>{draw(TEXTS)}{inside}</w:{name}>{draw(TEXTS)}")
    header = f"<e:Header>{''.join(blocks)}</e:Header>"
    return header if blocks else str(draw(st.sampled_from(["", "", header, "<w:Header xmlns:w='urn:w'/>"])))


def declaration(encoding: str, version: str = "1.0", space: int = 1) -> str:
    """Write an XML declaration."""
    return f"<?xml version='{version}'{' ' * space}encoding='{encoding}'?>"


DECLARATIONS: Final = [
    *("<?xml version='1.0'?>", '<?xml version="1.0" standalone="yes" ?>', "<?xml\tversion = '1.0'\n?>"),
    *(declaration("utf-8"), declaration("UTF-8"), declaration("utf-8", "1.1"), declaration("utf-8", space=900)),
    *("<?xml version='1.1'?>", "<?xml version='1.0' encoding='us-ascii' standalone='no'?>"),
]
ODD_DECLARATIONS: Final = [
    *(declaration("iso-8859-1"), declaration("ISO-8859-15"), declaration("windows-1252"), declaration("IBM037")),
    *(declaration("utf-16"), declaration("UTF-16LE"), declaration("utf8"), declaration("x"), declaration("")),
    *(declaration("utf-8", space=985), declaration("utf-8", space=1100), f"<?xml version='1.0'{' ' * 1200}?>"),
    *(declaration("utf-8", "2.0"), declaration("utf-8", "1."), declaration(" utf-8"), declaration("utf-8?")),
    *("<?xml?>", "<?xml ?>", "<?xml encoding='utf-8'?>", "<?xml version='1.0'encoding='utf-8'?>", "<?XML ?>"),
    *("<?xml version='1.0' x='y'?>", "<?xml version='1.0' x='encoding=\"utf-16\"'?>", "<?xml-stylesheet x='y'?>"),
    *("<?xml\x0bversion='1.0'?>", "<?xml\xa0version='1.0'?>", "<?xml version='1.0'>", "<?xml version='1.0' ?", "<?"),
    *("<?xml version='1.0' standalone='encoding=\"utf-16\"'?>", "<?xml version='1.0'?><?xml version='1.0'?>"),
]
BESIDE: Final = ["", "\n", " \r\n\t", "<?p?>", "<?p?>\n<!-- <&> -->", "<!-- -->", "\n<?p > ?>\n"]
ODD_BESIDE: Final = [
    *("x", "<?p?>x", "x<?p?>", "<?p?>x<?p?>", "\xa0<?p?>", "<?p?>\ufeff", "\ufeff", "\0", "]]>", "&amp;", "<?p?>\x01"),
    *("<![CDATA[]]>", "<y/>", "<?p?>x<y/>", "<?xml version='1.0'?>", "<?xml version='1.0'?>x", "<!DOCTYPE a>"),
]


@st.composite
def texts_of_documents(draw: Draw, odd: str | None = None) -> str:
    """Draw a document, an envelope as a rule; odd at its start, or before or after the root."""
    space = draw(st.sampled_from([SOAP_11, SOAP_11, SOAP_12, SOAP_12, "urn:other"]))
    text = envelope(draw(contents(space)), space, draw(headers()))
    start = draw(st.sampled_from(ODD_DECLARATIONS if odd == "start" else ["", "", "", *DECLARATIONS]))
    before = draw(st.sampled_from(ODD_BESIDE if odd == "before" else BESIDE))
    after = draw(st.sampled_from(ODD_BESIDE if odd == "after" else BESIDE))
    return f"{draw(st.sampled_from(['', '', MARK]))}{start}{before}{text}{after}"


MARK: Final = "\ufeff"
CHARSETS: Final = [None, "utf-8", "us-ascii", "iso-8859-1", "windows-1252"]
ODD_CHARSETS: Final = [
    *("utf-16", "utf-16le", "utf8", "iso-8859-2", "shift_jis", "iso-2022-jp", "utf-7", "ibm037", "x", ""),
]
CODECS: Final = ["iso-8859-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037", "iso-8859-2", "utf-7"]


@st.composite
def encoded(draw: Draw, text: str) -> tuple[Document, str | None]:
    """Draw the body that a document becomes, and the charset that is stated for it."""
    charset = draw(st.sampled_from([None, None, None, "utf-8", "utf-8", *CHARSETS, *ODD_CHARSETS]))
    kind = draw(st.sampled_from(["text", "utf-8", "utf-8", "ascii", "other"]))
    if kind == "text":
        return text, charset
    if kind == "utf-8":
        return text.encode("utf-8", "surrogatepass"), charset
    encoding = "ascii" if kind == "ascii" else draw(st.sampled_from(CODECS))
    return text.encode("utf-8", "replace").decode().encode(encoding, "xmlcharrefreplace"), charset


# Broken ones

TOKENS: Final = [
    *("<", ">", "&", "'", '"', "/", "=", "!", "?", "-", "]", ":", ";", "]]>", "?>", "<?", "</", "/>", "<!", "-->"),
    *("<!--", "<![CDATA[", "<?p?>", "<?p", "<y/>", "<y>", "</y>", " a='b'", " a=''", " xmlns=''", " xmlns:e='urn:x'"),
    *("Fault", WSA_ANONYMOUS, "&amp;", "&#0;", "&x;", "\0", "\x0b", "\x1f", "\ufffe", "\uffff", "\ud800", "\ufeff"),
    *(" ", "\n", "\xa0", "\x85", "x", "ä", "<?xml version='1.0'?>", "<!DOCTYPE a>", "</e:Body><e:Body>", "<e:Header/>"),
]  # fmt: skip


SMALL: Final = [
    envelope("<x>a</x>"),
    envelope("a<x b='c>d' e=\"'\">f>g</x>h<?p i > j?>k", SOAP_12),
    envelope("<x>a</x>", SOAP_12, reply_to(WSA_ANONYMOUS)),
    envelope("<x>ä</x>", header=reply_to("urn:x")),
    f"<?xml version='1.0'?>\n{envelope('<x>a</x>')}\n",
    f"<?xml version='1.0' encoding='utf-8'?><?p?>{envelope('<x>a</x>')}<?p?>",
    f"<?p?>\n<?p?>{envelope('<x>€</x>')}\n<?p?>\n<?p?>",
    envelope(f"<e:Fault{OF_BINDING}><faultcode>b:x</faultcode><faultstring>a</faultstring></e:Fault>"),
    envelope("<x><![CDATA[a]]></x>b<!-- c -->d"),
    envelope(header=reply_to(f"<![CDATA[{WSA_ANONYMOUS}]]>")),
]


@st.composite
def garbled(draw: Draw, document: Document) -> Document:
    """Draw a document with pieces put in, cut out, doubled or swapped: at its brackets, or anywhere."""
    for _ in range(draw(st.integers(1, 3))):
        bracketed = [at + more for at, each in enumerate(document) if each in BRACKETS for more in (0, 1)]
        start, end = sorted(draw(st.sampled_from(bracketed or [0]) | st.integers(0, len(document))) for _ in range(2))
        if draw(st.booleans()):
            end = min(start + draw(st.integers(0, 2)), len(document))
        if isinstance(document, str):
            document = document[:start] + draw(_pieces(document[start:end])) + document[end:]
        else:
            token: bytes | str = draw(_pieces(document[start:end]))
            piece = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token
            document = document[:start] + piece + document[end:]
    return document


BRACKETS: Final = frozenset({"<", ">", *b"<>"})


def _pieces(old: Document) -> st.SearchStrategy[Document]:
    return st.sampled_from([*TOKENS, *WRONG_TEXTS]) | st.sampled_from([old * 2, old[1:], old[:-1], old[::-1]])


@st.composite
def documents(draw: Draw) -> tuple[Document, str | None]:
    """Draw a body that is a document, right or broken, and the charset that is stated for it."""
    kind = draw(st.sampled_from([*["right"] * 5, "start", "before", "after", "garbled", "small"]))
    if kind == "small":
        text = draw(st.sampled_from(SMALL))
    else:
        text = draw(texts_of_documents(kind if kind in ("start", "before", "after") else None))
    document, charset = draw(encoded(text))
    return (draw(garbled(document)) if kind in ("garbled", "small") else document), charset


# The whole reading


def message_of(document: Document, charset: str | None, **more: Any) -> Message:
    """Make a request with a document and a content type that states its charset."""
    stated = "" if charset is None else f'; charset="{charset}"'
    return Message(
        message_type=MessageType.BYTES if isinstance(document, bytes) else MessageType.TEXT,
        body=document,
        properties=properties(
            {
                "SOAPJMS_requestURI": "jms:queue:in",
                "SOAPJMS_bindingVersion": "1.0",
                "SOAPJMS_contentType": f"text/xml{stated}",
                **more,
            }
        ),
        message_id="ID:1",
        correlation_id="c-1",
        reply_to=queue("replies"),
        destination=queue("in"),
    )


def agreed(document: Document, charset: str | None, limits: Limits = DEFAULT_LIMITS) -> DocumentFacts | None:
    """Return the facts of a document, and assert that the whole reading finds the same, with each way to read."""
    facts = document_facts(document, charset, limits)
    if facts is None:
        return None
    reading = Reading(message_of(document, charset), REC_2012, limits)
    assert reading.envelope is not None, reading.envelope_problem
    assert reading.envelope_problem is None
    assert reading.is_whole
    assert facts.version is reading.envelope.version
    assert facts.redirects is redirects(reading.envelope)
    assert facts.fault == told(reading.fault)
    if isinstance(document, bytes):
        assert detect_encoding(document) == detect_encoding(f"{facts.start}<a/>".encode())
    else:
        assert declared_encoding(document) == declared_encoding(facts.start)
        assert document.startswith("\ufeff") is facts.start.startswith("\ufeff")
    return facts


def told(fault: Fault | None) -> tuple[str, str | None, str | None, FaultShape | None] | None:
    """Return what the facts say of a fault."""
    return None if fault is None else (fault.code, fault.subcode, fault.namespace, fault.shape)


def is_usual(document: Document, charset: str | None) -> bool:
    """Say whether a document is characters or UTF-8 by all that says so, and nothing is around its envelope."""
    if isinstance(document, bytes):
        seen = detect_encoding(document)
        if charset not in (None, "utf-8") or seen.codec != "utf-8" or seen.declared not in (None, "utf-8", "UTF-8"):
            return False
        document = document.decode("utf-8", "replace")
    return document.removeprefix("\ufeff").startswith(("<e:Envelope", "<?xml version='1.0'?><e:Envelope"))


@MANY
@given(documents())
def test_facts_agree_with_the_whole_reading(found: tuple[Document, str | None]) -> None:
    """What has facts is an envelope that can be read, with these facts; a usual envelope has some."""
    document, charset = found
    facts = agreed(document, charset)
    if facts is None and is_usual(document, charset):
        assert Reading(message_of(document, charset), REC_2012).envelope is None


LIMITS: Final = [
    *(Limits(depth=2), Limits(depth=4), Limits(elements=3), Limits(elements=8), Limits(attributes=1), Limits(name=9)),
    Limits(size=MAX_MARKUP_OCTETS, text=MAX_MARKUP_OCTETS),
]


@MANY
@given(documents(), st.sampled_from(LIMITS))
def test_facts_agree_within_other_limits(found: tuple[Document, str | None], limits: Limits) -> None:
    """What exceeds a limit on markup has no facts."""
    agreed(*found, limits)


@MANY
@given(st.data(), st.sampled_from(WRONG_TEXTS), st.booleans())
def test_what_is_broken_in_one_place_has_no_facts(data: st.DataObject, wrong: str, as_octets: bool) -> None:
    """Wherever in a text or beside the root it stands: in what rules read, and in what they do not."""
    before, after = data.draw(TEXTS), data.draw(TEXTS)
    text = f"{before}{wrong}{after}"
    places = [
        envelope(f"<x>{text}</x>"),
        envelope(text),
        envelope(f"<x/>{text}<x/>"),
        envelope(header=f"<e:Header>{text}</e:Header>"),
        envelope(header=reply_to(f"{WSA_ANONYMOUS}{wrong}")),
        f"<?p?>{text}{envelope()}",
        f"{envelope()}{text}<?p?>",
    ]
    document: Document = data.draw(st.sampled_from(places))
    if as_octets:
        document = str(document).encode("utf-8", "surrogatepass")
    agreed(document, None)


def at_brackets(document: str) -> list[int]:
    """Return the places beside each bracket."""
    return sorted({at + more for at, each in enumerate(document) if each in "<>" for more in (0, 1)})


@pytest.mark.parametrize("document", SMALL)
def test_pieces_put_in_at_brackets(document: str) -> None:
    """Whatever stands between two tags, or in one, as octets and as characters."""
    for at in at_brackets(document):
        for piece in {*TOKENS, *WRONG_TEXTS, *ODD_TEXTS, *ODD_BESIDE}:
            body = document[:at] + piece + document[at:]
            agreed(body, None)
            agreed(body.encode("utf-8", "surrogatepass"), None)


@pytest.mark.parametrize("document", SMALL)
def test_pieces_cut_out(document: str) -> None:
    """Whatever is missing between two brackets, and each character that may be."""
    places = at_brackets(document)
    cuts = {(start, end) for start in places for end in places if start < end}
    for start, end in sorted(cuts | {(at, at + 1) for at in range(len(document))}):
        agreed(document[:start] + document[end:], None)
        agreed((document[:start] + document[end:]).encode(), None)


BROKEN: Final = {
    "text after the declaration": f"<?xml version='1.0'?>x{envelope()}",
    "a byte order mark after the declaration": f"<?xml version='1.0'?>\ufeff{envelope()}",
    "a no-break space after the declaration": f"<?xml version='1.0'?>\xa0{envelope()}",
    "text before the root": f"<?p?>x{envelope()}",
    "text after the root": f"{envelope()}x<?p?>",
    "text between two instructions": f"{envelope()}<?p?>x<?p?>",
    "text between two roots": f"{envelope()}x{envelope()}",
    "text at the start": f"x{envelope()}",
    "text at the end": f"{envelope()}x",
    "an entity in a text": envelope("<x>a&b;c</x>"),
    "an ampersand in a text": envelope("<x>a & b</x>"),
    "an ampersand in an attribute": envelope("<x a='&'>b</x>"),
    "the end of a CDATA section in a text": envelope("<x>a]]>b</x>"),
    "a bracket in an attribute": envelope("<x a='b>c<d'>e</x>"),
    "an attribute without an end": envelope("<x a='b>c' <x d='e'>f</x>"),
    "an attribute twice": envelope("<x a='' a=''>b</x>"),
    "a character that XML does not have": envelope("<x>\x01</x>"),
    "the last of the characters that XML does not have": envelope("<x>\uffff</x>"),
    "half of a pair": envelope("<x>\ud800</x>"),
    "an element without an end": envelope("<x>a"),
    "an end without a start": envelope("a</x>"),
    "a prefix without a namespace": envelope("<n:x>a</n:x>"),
    "a second declaration": f"<?p?>a<?xml version='1.0'?>{envelope()}",
    "a document type": f"<!DOCTYPE a>{envelope()}",
    "two bodies": envelope("a</e:Body><e:Body>"),
}


@pytest.mark.parametrize("as_octets", [True, False], ids=["octets", "characters"])
@pytest.mark.parametrize("document", BROKEN.values(), ids=BROKEN)
def test_what_is_no_envelope_has_no_facts(document: str, as_octets: bool) -> None:
    """None that is not well-formed has facts, also not where what is wrong is a text."""
    body: Document = document.encode("utf-8", "surrogatepass") if as_octets else document
    assert Reading(message_of(body, None), REC_2012).envelope is None
    assert document_facts(body, None, DEFAULT_LIMITS) is None


@pytest.mark.parametrize("space", [900, 970, 980, 990, 1000, 1100])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("as_octets", [True, False])
def test_long_declarations(space: int, mark: str, as_octets: bool) -> None:
    """Octets with a declaration that is longer than what is read of it have no facts."""
    for start in (declaration("utf-8", space=space), f"<?xml version='1.0'{' ' * space}?>"):
        document = f"{mark}{start}{envelope()}"
        agreed(document.encode() if as_octets else document, None)


# What rules read


def plain_document(facts: DocumentFacts, like: Document) -> Document:
    """Write the shortest document with the same facts."""
    space = facts.version.namespace
    inside = ""
    if facts.fault is not None:
        code, subcode, namespace, shape = facts.fault
        if facts.version is SoapVersion.SOAP_12:
            name = spelled(f"{{{namespace}}}{subcode}")
            more = "" if subcode is None else f"<e:Subcode><e:Value>{name}</e:Value></e:Subcode>"
            inside = f"<e:Fault><e:Code><e:Value>{spelled(code)}</e:Value>{more}</e:Code></e:Fault>"
        else:
            more = f"<detail><{subcode} xmlns='{namespace}'/></detail>" if shape is FaultShape.DETAIL else ""
            inside = f"<e:Fault><faultcode>{spelled(code)}</faultcode>{more}</e:Fault>"
    text = facts.start + envelope(inside, space, reply_to("") if facts.redirects else "")
    return text if isinstance(like, str) else text.encode()


def spelled(text: str) -> str:
    """Write a text in character references."""
    return "".join(f"&#{ord(each)};" for each in text)


GOOD: Final = envelope().encode()
ASKED: Final[list[dict[str, Any]]] = [
    {},
    {"SOAPJMS_requestURI": None},
    {"SOAPJMS_bindingVersion": "2.0"},
    {"SOAPJMS_requestURI": "jms:jndi:x"},
    {"SOAPJMS_requestURI": "jms:queue:q?targetService=t"},
    {"SOAPJMS_requestURI": "jms:x:y"},
]
ANSWERED: Final[list[dict[str, Any]]] = [{}, {"SOAPJMS_isFault": True}, {"SOAPJMS_isFault": "x"}]
KINDS: Final = ["text/xml", "application/soap+xml", "text/xml", "text/plain"]


def verdicts(
    document: Document, charset: str | None, setting: Setting, asked: Any, answered: Any, kind: str
) -> list[Any]:
    """Judge a document as a request and as a response; return all outcomes with their reasons and faults."""
    own = {"SOAPJMS_contentType": kind if charset is None else f'{kind}; charset="{charset}"'}
    answer: dict[str, Any] = {"message_id": "ID:2", "reply_to": None, "destination": queue("elsewhere")}
    pairs = [
        (message_of(document, charset, **asked, **own), message_of(GOOD, None)),
        (message_of(GOOD, None, **asked), message_of(document, charset, **answered, **own)),
    ]
    return [
        (each.assertion, each.outcome, each.reason, each.expected_subcodes, each.observed_subcode)
        for request, response in pairs
        for each in judge(exchange_of(request, replace(response, **answer)), setting)
    ]


def exchange_of(request: Message, response: Message) -> Exchange:
    """Make an exchange of two messages."""
    one, other = (Record(message=each, time=EPOCH) for each in (request, response))
    return Exchange(id="", pattern=Pattern.REQUEST_RESPONSE, request=one, response=other)


@MANY
@given(
    documents(),
    st.sampled_from(sorted(PROFILES)),
    st.sampled_from(ASKED),
    st.sampled_from(ANSWERED),
    st.sampled_from(KINDS),
)
def test_rules_read_no_more_than_the_facts(
    found: tuple[Document, str | None], profile: str, asked: Any, answered: Any, kind: str
) -> None:
    """A document gets the verdicts of the shortest one with its facts, and so do all others with these facts."""
    document, charset = found
    facts = document_facts(document, charset, DEFAULT_LIMITS)
    if facts is None:
        return
    shortest = plain_document(facts, document)
    assert document_facts(shortest, charset, DEFAULT_LIMITS) == facts
    given_facts = charset, Setting(profile=PROFILES[profile]), asked, answered, kind
    assert verdicts(document, *given_facts) == verdicts(shortest, *given_facts)


@given(PLAIN, PLAIN, PLAIN, st.sampled_from([SOAP_11, SOAP_12]), st.booleans())
@example("", "a" * 5000, "Fault", SOAP_11, True)
@example("", "\t\r\n\x7f\x85\xa0\u2028\ufeff\ufffd\U0010ffff'\"]]", "x", SOAP_12, False)
def test_texts_are_no_facts(one: str, other: str, place: str, space: str, as_octets: bool) -> None:
    """Documents that differ in texts have the same facts; but the anonymous address is told from others."""

    def facts(text: str, address: str) -> DocumentFacts:
        document = envelope(f"{text}<x a='>'>{text}<y/>{text}</x>", space, reply_to(address))
        found = agreed(document.encode() if as_octets else document, None)
        assert found is not None
        return found

    assert facts(one, place) == facts(other, f"{place}x")
    assert facts(one, place).redirects
    assert not facts(other, WSA_ANONYMOUS).redirects


def test_documents_that_differ_in_texts_are_read_once() -> None:
    """Their markup is remembered with its facts; that of a document whose tags are long is not."""
    texts = [envelope(f"<unusual>{number}</unusual>") for number in range(20)]
    before = markup._known_facts.cache_info()
    assert len({agreed(text, None) for text in texts}) == 1
    after = markup._known_facts.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 19)
    long = envelope(f"<x a='{'b' * markup.MAX_KNOWN_CHARACTERS}'>c</x>")
    assert agreed(long, None) is not None
    assert markup._known_facts.cache_info() == after


def test_large_documents_have_no_facts() -> None:
    """One at the limit has some, whatever it consists of; one above it has none."""
    room = MAX_MARKUP_OCTETS - len(envelope("<x></x>"))
    assert agreed(envelope(f"<x>{'a' * room}</x>"), None) is not None
    assert agreed(envelope(f"<x>{'a' * room}b</x>"), None) is None
    assert agreed(envelope(f"<x>{'a' * room}</x>").encode(), None) is not None
    assert agreed(envelope(f"<x>{'a' * room}b</x>").encode(), None) is None


@pytest.mark.parametrize("character", ["a", "ä", "€", "😀"])
def test_limits_at_the_size_of_the_largest_document(character: str) -> None:
    """A text counts in octets: where the limits are as low as they may be, one above them has no facts."""
    limits = Limits(size=MAX_MARKUP_OCTETS, text=MAX_MARKUP_OCTETS)
    room = MAX_MARKUP_OCTETS - len(envelope("<x></x>"))
    for number in (room, room // 2, room // 3, room // 4):
        document = envelope(f"<x>{character * number}</x>")
        agreed(document, None, limits)
        agreed(document.encode(), None, limits)


@pytest.mark.parametrize("charset", [*CHARSETS, *ODD_CHARSETS])
@pytest.mark.parametrize("declared", [None, "utf-8", "US-ASCII", "iso-8859-1", "Windows-1252", "utf-16", "x"])
@pytest.mark.parametrize("text", ["a", "ä", "\u0080"])
def test_encodings(charset: str | None, declared: str | None, text: str) -> None:
    """Octets have facts only in an encoding in which those of US-ASCII are US-ASCII, and others only in UTF-8."""
    document = ("" if declared is None else declaration(declared)) + envelope(f"<x>{text}</x>")
    assert agreed(document, charset) is not None
    for codec in ("utf-8", "utf-8-sig", "iso-8859-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037"):
        agreed(document.encode(codec), charset)


BINDING_FAULTS: Final = {
    FaultShape.FAULTCODE: (SOAP_11, "<faultcode>b:missingContentType</faultcode>", REC_NAMESPACE),
    FaultShape.DETAIL: (SOAP_11, "<detail>x<c:missingContentType>y</c:missingContentType></detail>", CR_NAMESPACE),
    FaultShape.SUBCODE: (
        SOAP_12,
        "<e:Code><e:Value>e:Sender</e:Value><e:Subcode><e:Value>b:missingContentType</e:Value></e:Subcode></e:Code>",
        REC_NAMESPACE,
    ),
}


@pytest.mark.parametrize("shape", BINDING_FAULTS)
def test_faults_are_told_apart(shape: FaultShape) -> None:
    """The facts of a fault are its code, the subcode of the binding, its namespace and place; not the other texts."""
    space, inside, namespace = BINDING_FAULTS[shape]
    found = [
        agreed(envelope(f"<e:Fault{OF_BINDING}>{inside}<e:Reason>{text}</e:Reason></e:Fault>", space), None)
        for text in ("a", "b")
    ]
    facts = found[0]
    assert found == [facts, facts]
    assert facts is not None
    assert facts.fault is not None
    assert facts.fault[1:] == (Subcode.MISSING_CONTENT_TYPE, namespace, shape)
    other = agreed(envelope(f"<e:Fault{OF_BINDING}>{inside.replace('missing', 'mis')}</e:Fault>", space), None)
    assert other is not None
    assert other.fault != facts.fault


# Bodies in parts


def parts(root: str = "", other: str = "", content: str = "", inside: str = "<x/>", boundary: str = "b") -> bytes:
    """Write a body of two parts, with header fields in addition to those that are always there."""
    return (
        f"--{boundary}\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-ID: <root>\r\n{root}\r\n"
        f"{envelope(inside)}\r\n"
        f"--{boundary}\r\nContent-Type: text/plain\r\n{other}\r\n{content}\r\n--{boundary}--\r\n"
    ).encode()


def parts_told(body: bytes | str, parameters: str = "boundary=b") -> MultipartFacts | None:
    """Return the facts of a body in parts."""
    return multipart_facts(body, parse_content_type(f"multipart/related; {parameters}"), DEFAULT_LIMITS)


def test_boundaries_and_contents_of_attachments_are_no_facts() -> None:
    """Neither are the names of attachments, the texts of the document, or whether the body is text."""
    found = parts_told(parts(other="Content-ID: <one>\r\n", inside="<x>1</x>"))
    assert found is not None
    assert found == parts_told(parts(other="Content-ID: <two>\r\n", content="more", inside="<x>22</x>"))
    assert found == parts_told(parts(other="Content-ID: <one>\r\n", boundary="c", inside="<x>1</x>"), "boundary=c")
    assert found == parts_told(parts(other="Content-ID: <one>\r\n", inside="<x>1</x>").decode())
    assert (found.has_root_first, found.first) == (True, "text/xml; charset=UTF-8")


def test_what_is_told_apart_in_bodies_with_parts() -> None:
    """The fields of the SOAP part, where it stands, the kinds of the others, brackets around names, and the fault."""
    fault = f"<e:Fault xmlns:e='{SOAP_11}'><faultcode>e:Server</faultcode><faultstring>no</faultstring></e:Fault>"
    bodies = [
        (parts(), "boundary=b"),
        (parts(root="X: y\r\n"), "boundary=b"),
        (parts(other="X: y\r\n"), "boundary=b"),
        (parts(other="Content-ID: <one>\r\n"), "boundary=b"),
        (parts(other="Content-ID: one\r\n"), "boundary=b"),
        (parts(other="Content-ID: <one>\r\n", content=envelope()), "boundary=b; start=one"),
        (parts(inside=fault), "boundary=b"),
    ]
    assert len({parts_told(*each) for each in bodies} - {None}) == len(bodies)


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        (parts(), "boundary=c"),
        (parts(), "type=x"),
        (parts(inside="<x>"), "boundary=b"),
        (parts(root="Content-Transfer-Encoding: strange\r\n"), "boundary=b"),
        (parts()[:-8], "boundary=b"),
    ],
)
def test_parts_that_cannot_be_read_have_no_facts(body: bytes, parameters: str) -> None:
    """A rule says what is wrong with them, and with a document that is none."""
    assert parts_told(body, parameters) is None
    assert parts_told(parts().replace(b"; charset=UTF-8", b"")) is not None
