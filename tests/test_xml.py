"""Parsers: the only ones there are, and what they refuse. `test_envelope.py` shows the same through messages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from soapjms.protocol import xml

SOURCES = sorted((Path(__file__).resolve().parent.parent / "soapjms").rglob("*.py"))


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
    ],
    ids=["plain", "after a prolog", "undeclared entity", "default attributes", "broken off"],
)
def test_a_document_type_is_named(text: str) -> None:
    """Whether or not the rest is well-formed, the error names the DOCTYPE and says what to do."""
    with pytest.raises(ValueError, match=r"^a document type declaration \(DOCTYPE\), which is refused: take it out"):
        xml.parse(text.encode())


@pytest.mark.parametrize("text", ["", "<a>", "<a><!-- <!DOCTYPE a> --></b>", "<a>&x;</a>"])
def test_what_is_not_well_formed_is_named(text: str) -> None:
    """Any other mistake is what libxml2 says it is."""
    with pytest.raises(ValueError, match=r"^not well-formed XML: "):
        xml.parse(text.encode())


def test_no_other_module_makes_a_parser() -> None:
    """Neither a parser nor a function that parses is called anywhere else."""
    parsing = {"XMLParser", "fromstring", "XML", "iterparse", "XMLPullParser", "HTMLParser", "ParserCreate"}
    found = {
        path.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in parsing
    }
    assert found == {"xml.py"}
