"""Parsers: the only ones there are, and what they refuse. `test_envelope.py` shows the same through messages."""

from __future__ import annotations

import time

import pytest
from lxml import etree

from soapjms.protocol import xml


def test_elements_know_their_lines() -> None:
    """Positions are kept."""
    assert [each.sourceline for each in xml.parse(b"<a>\n\n<b/>\n</a>").iter()] == [1, 3]


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE a><a/>",
        "\ufeff<?xml version='1.0'?>\n<!-- <a/> -->\n<!DOCTYPE a><a/>",
        "<!-- a --><!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;&z;</a>",
        "<!DOCTYPE a [<!ATTLIST b c CDATA '" + "x" * 100_000 + "'>]><a>" + "<b/>" * 10_000 + "</a>",
        "<!DOCTYPE",
        "<?xml version='1.0'><!DOCTYPE a><a/>",
        "text <!DOCTYPE a><a/>",
        "<a/><!DOCTYPE a>",
        "<a><!-- > --><b c='<!DOCTYPE d>'/></a>",
    ],
    ids=[
        *("plain", "after a prolog", "undeclared entity", "default attributes", "broken off"),
        *("after a declaration without end", "after text", "after the root", "in an attribute"),
    ],
)
@pytest.mark.parametrize("codec", ["utf-8", "utf-16", "utf-32-be"])
def test_a_document_type_is_named(text: str, codec: str) -> None:
    """In any encoding, whether or not the rest is well-formed, the error names the DOCTYPE and says what to do."""
    what = r"^a document type declaration \(DOCTYPE\), which is refused: take it out"
    with pytest.raises(xml.DocumentTypeError, match=what):
        xml.parse(text)
    with pytest.raises(xml.DocumentTypeError if text[0] in "\ufeff<" else ValueError):  # first octets tell no encoding
        xml.parse(text.encode(codec))


@pytest.mark.parametrize(
    "text",
    [
        "<a><!-- <!DOCTYPE a> --></a>",
        "<a><![CDATA[<!DOCTYPE a>]]></a>",
        "<a><?b <!DOCTYPE a>?></a>",
        "<a>&lt;!DOCTYPE a></a>",
        "<?xml version='1.0'?><!--<!DOCTYPE a>--><a/><?xml-b <!DOCTYPE a> ?>",
        "<doctype>!DOCTYPE</doctype>",
    ],
)
def test_what_only_looks_like_a_document_type(text: str) -> None:
    """The characters of one are nothing in a comment, a processing instruction, CDATA or escaped."""
    assert xml.parse(text.encode()).tag in ("a", "doctype")


@pytest.mark.parametrize("piece", ["<!--", "<?", "<![CDATA[", "<?xml ", "<", "<!--a-->", "<?a?>"])
def test_looking_for_a_document_type_takes_linear_time(piece: str) -> None:
    """A megabyte of markup that never ends is looked at once."""
    with pytest.raises(ValueError, match=r"DOCTYPE|not well-formed"):
        xml.parse(piece * (1_000_000 // len(piece)) + "<!DOCTYPE")


@pytest.mark.parametrize("text", ["", "<a>", "<a><!-- <!DOCTYPE a> --></b>", "<a>&x;</a>"])
def test_what_is_not_well_formed_is_named(text: str) -> None:
    """Any other mistake is what libxml2 says it is."""
    with pytest.raises(ValueError, match=r"^not well-formed XML: "):
        xml.parse(text.encode())


XS = 'xmlns:xs="http://www.w3.org/2001/XMLSchema"'
SCHEMA = {
    "first": f"""<xs:schema {XS} targetNamespace="urn:a" elementFormDefault="qualified" xmlns:b="urn:b">
        <xs:import namespace="urn:b" schemaLocation="second"/>
        <xs:element name="list"><xs:complexType><xs:sequence>
        <xs:element name="item" type="b:number" maxOccurs="unbounded"/></xs:sequence></xs:complexType></xs:element>
        </xs:schema>""".encode(),
    "second": f"""<xs:schema {XS} targetNamespace="urn:b"><xs:complexType name="number"><xs:simpleContent>
        <xs:extension base="xs:int"/></xs:simpleContent></xs:complexType></xs:schema>""".encode(),
}


@pytest.mark.parametrize("start", [b"\0Sp\xd0\0\0\0\x07", b"\0Sr\xd1", b"\0Sw\xa1\x03<a>"])
def test_a_whole_amqp_message_is_named(start: bytes) -> None:
    """What makes a broker hand one over, whatever section it begins with."""
    with pytest.raises(ValueError, match=r"a whole AMQP message.*transport.transformer=jms"):
        xml.parse(start)
    with pytest.raises(ValueError, match=r"^not well-formed XML: "):
        xml.parse(b"\0S" + start[3:])


class TestSchema:
    """Validation: `xml.Schema`."""

    @pytest.mark.parametrize(
        ("inside", "path", "text"),
        [
            ("<item>1</item><item> 2 </item>", None, None),
            (
                "<item>1</item><item>x</item><item>y</item>",
                "list item[2]",
                "'x' is not a valid value of the atomic type",
            ),
            ("<item>1</item><item a='1'>2</item>", "list item[2]", "attribute 'a': The attribute 'a' is not allowed."),
            ("<item>1</item><more/>", "list more", "This element is not expected. Expected is ( {urn:a}item )."),
            ("", "list", "Missing child element(s). Expected is ( {urn:a}item )."),
            ("<item>1</item>text", "list", "Character content other than whitespace is not allowed"),
        ],
    )
    def test_misfit(self, inside: str, path: str | None, text: str | None) -> None:
        """The first mistake, with its place and what libxml2 says of it."""
        root = etree.fromstring(f'<x><list xmlns="urn:a">{inside}</list>behind</x>')
        found = xml.Schema(SCHEMA, "first").misfit(root[0])
        if path is None or text is None:
            assert found is None
        else:
            assert found is not None
            assert found.path == tuple(path.split())
            assert found.text.startswith(text)

    def test_other_root(self) -> None:
        """An element that the schema does not have."""
        found = xml.Schema(SCHEMA, "first").misfit(etree.Element("{urn:c}list"))
        assert found is not None
        assert found.text == "No matching global declaration available for the validation root."

    def test_stops(self) -> None:
        """Of a hundred thousand mistakes one is looked at."""
        root = etree.fromstring('<list xmlns="urn:a">' + "<item a='1'>x</item>" * 100_000 + "</list>")
        begun = time.process_time()
        found = xml.Schema(SCHEMA, "first").misfit(root)
        assert found is not None
        assert found.path == ("list", "item")
        assert time.process_time() - begun < 5

    def test_no_schema(self) -> None:
        """Documents that make no schema are refused with the reason."""
        with pytest.raises(ValueError, match="does not resolve to a\\(n\\) type definition"):
            xml.Schema(SCHEMA | {"second": f'<xs:schema {XS} targetNamespace="urn:b"/>'.encode()}, "first")


def test_want_of_memory_is_no_mistake_in_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """What libxml2 says of memory is no mistake in the document, which lxml would have it."""

    def fromstring(*_: object) -> None:
        raise etree.XMLSyntaxError("unknown error", etree.ErrorTypes.ERR_NO_MEMORY, 0, 0)

    monkeypatch.setattr("soapjms.protocol.xml.etree.fromstring", fromstring)
    with pytest.raises(MemoryError, match="not enough memory to parse 4 octets of XML"):
        xml.parse(b"<a/>")


def test_want_of_memory_without_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the text of the error could be kept, it was memory too."""

    def fromstring(*_: object) -> None:
        raise etree.XMLSyntaxError(None, etree.ErrorTypes.ERR_INTERNAL_ERROR, 0, 0)

    monkeypatch.setattr("soapjms.protocol.xml.etree.fromstring", fromstring)
    with pytest.raises(MemoryError, match="not enough memory to parse 4 octets of XML"):
        xml.parse(b"<a/>")


def test_want_of_memory_for_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The depth is asked of XPath, which calls it an unknown error."""

    def evaluate(*_: object) -> None:
        raise etree.XPathEvalError("unknown error")

    monkeypatch.setattr(xml, "_deeper_than", lambda depth: evaluate)
    with pytest.raises(MemoryError, match="not enough memory to see how deep the XML is"):
        xml.parse(b"<a>" + b"<b/>" * 1000 + b"</a>")


@pytest.mark.parametrize("text", ["x", "x" * xml.LARGE_DOCUMENT_OCTETS])
def test_a_document_of_our_own(text: str) -> None:
    """It is read, however large."""
    assert xml.parse_own(f"<a>{text}</a>".encode()).text == text


@pytest.mark.parametrize(
    ("prefixes", "written"),
    [
        ([], b'<p:b xmlns:p="urn:p"></p:b>'),
        (["#default"], b'<p:b xmlns="urn:x" xmlns:p="urn:p"></p:b>'),
        (["#default", "q"], b'<p:b xmlns="urn:x" xmlns:p="urn:p" xmlns:q="urn:q"></p:b>'),
    ],
)
def test_prefixes_of_a_canonical_form(prefixes: list[str], written: bytes) -> None:
    """The default namespace can be one of those that are written though nothing uses them."""
    root = xml.parse_canonical(b'<a xmlns="urn:x" xmlns:p="urn:p" xmlns:q="urn:q"><p:b/></a>')
    assert etree.tostring(root[0], method="c14n", exclusive=True, inclusive_ns_prefixes=prefixes) == written
