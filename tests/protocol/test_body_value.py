"""The content of a Body as plain Python: texts, dicts and lists, or a refusal where something would be lost."""

from __future__ import annotations

from typing import Any

import pytest
from lxml import etree

from soapjms.protocol.envelope import as_envelope, body_value
from soapjms.protocol.errors import UsageError

XSI = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'


def value(body: str) -> Any:
    """Return the value of a Body that holds `body`."""
    text = f'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>{body}</e:Body></e:Envelope>'
    return body_value(as_envelope(etree.fromstring(text, etree.XMLParser(huge_tree=True))))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", None),
        ("<!-- nothing -->", None),
        ("<a/>", ""),
        ("<a> two  words\n</a>", " two  words\n"),
        ("<a>o<!-- and -->n<?and?>e</a>", "one"),
        (f"<a {XSI} i:nil='true'/>", None),
        (f"<a {XSI} i:nil='false'>1</a>", "1"),
        (f"<a {XSI} i:type='int'>1</a>", "1"),
        ("<a><b>1</b></a>", {"b": "1"}),
        ("<p:a xmlns:p='urn:a'>\n <p:b>1</p:b> <!-- c --> <p:c/>\n</p:a>", {"b": "1", "c": ""}),
        ("<a><b>1</b><b>2</b><c/></a>", {"b": ["1", "2"], "c": ""}),
        (f"<a {XSI}><b i:nil='1'/><b><c>1</c></b></a>", {"b": [None, {"c": "1"}]}),
    ],
)
def test_values(body: str, expected: object) -> None:
    """Texts are exact; white space between elements, comments, namespaces and types are left out."""
    assert value(body) == expected


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<a id='1'/>", "cannot show 'a', which has the attribute 'id'"),
        ("<a><b><c p:x='1' xmlns:p='urn:p'/></b></a>", r"'a\.b\.c', which has the attribute '\{urn:p\}x'"),
        ("<a>text<b/></a>", "'a', which has text beside elements"),
        ("<a><b/>\u00a0</a>", "text beside elements"),
        ("<a><b/><c/><b/></a>", "elements 'b' that are apart, or of two namespaces"),
        ("<a><b/><b xmlns='urn:b'/></a>", "elements 'b' that are apart, or of two namespaces"),
        (f"<a {XSI} i:nil='true'>1</a>", "content in spite of xsi:nil"),
        (f"<a {XSI} i:nil='true'><b/></a>", "content in spite of xsi:nil"),
        ("<a/><b/>", r"one element of a Body, got 2: read them in `envelope\.body`"),
    ],
)
def test_what_would_be_lost(body: str, said: str) -> None:
    """Nothing is dropped in silence: the error names the element, what it has, and where to read it."""
    with pytest.raises(UsageError, match=said):
        value(body)


def test_deep() -> None:
    """Two thousand levels, the most that limits can allow, are read."""
    found = value("<a>" * 1990 + "end" + "</a>" * 1990)
    for _ in range(1989):
        found = found["a"]
    assert found == "end"
