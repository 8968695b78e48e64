"""Parsers: the only ones there are, and what they refuse. `test_envelope.py` shows the same through messages."""

from __future__ import annotations

import pytest

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
