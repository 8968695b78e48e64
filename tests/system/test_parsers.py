"""XML parsers are made in one place: any other call of one is found in the syntax tree, however it is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from places import ROOT

FACTORY = ROOT / "soapjms" / "protocol" / "xml.py"
SOURCES = [
    path
    for folder in ("brokers", "soapjms", "examples", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != FACTORY
]

MODULES = frozenset("xml lxml.html lxml.objectify lxml.sax lxml.isoschematron pyexpat expat defusedxml".split()) | (
    frozenset("xmltodict xmlschema bs4 html5lib html.parser untangle".split())
)
"""Modules that parse XML or HTML, with all that is in them."""
HARMLESS = (
    "xml.sax.saxutils",
    *(
        f"xml.etree.ElementTree.{each}"
        for each in ("Element", "SubElement", "ElementTree", "QName", "indent", "tostring")
    ),
)
"""What only writes."""
FUNCTIONS = frozenset(
    "XMLParser XMLPullParser HTMLParser HTMLPullParser ETCompatXMLParser iterparse fromstring fromstringlist parse "
    "parseid XML XMLID XMLDTDID HTML ElementTree DTD XMLSchema RelaxNG Schematron XSLT XInclude".split()
)
"""What in lxml.etree parses, or can load what it is told to."""
TELLING = frozenset("XMLParser XMLPullParser HTMLParser iterparse ParserCreate parseString xinclude read_xml".split())
"""Names that mean a parser wherever they stand: as a method, or in a string that getattr gets."""


def parser_calls(tree: ast.Module) -> Iterator[str]:
    """Yield what a module uses to parse XML, each with its line."""
    known: dict[str, str] = {}  # what names of the module mean
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                known[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
                yield from found(each.name, node)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                known[each.asname or each.name] = f"{node.module}.{each.name}"
                yield from found(f"{node.module}.{each.name}", node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from found(meaning(node, known), node)
            if node.attr in TELLING:
                yield f"{node.attr} in line {node.lineno}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from found(node.value, node)
            if node.value in TELLING:
                yield f"{node.value!r} in line {node.lineno}"


def meaning(node: ast.expr, known: dict[str, str]) -> str:
    """Return the dotted name that an expression means, as far as imports tell."""
    if isinstance(node, ast.Attribute):
        return f"{meaning(node.value, known)}.{node.attr}"
    return known.get(node.id, "") if isinstance(node, ast.Name) else ""


def found(name: str, node: ast.stmt | ast.expr) -> Iterator[str]:
    """Yield a dotted name if it is a parser, or a module of them."""
    parts = name.split(".")
    modules = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    by_module = bool(modules & MODULES) and not name.startswith(HARMLESS) and (len(parts) > 1 or name != "xml")
    if by_module or (name.startswith("lxml.etree.") and parts[2] in FUNCTIONS) or name == "lxml.etree.*":
        yield f"{name} in line {node.lineno}"


def test_no_other_module_makes_a_parser() -> None:
    """Whatever is parsed goes through `soapjms.protocol.xml`."""
    assert len(SOURCES) > 100
    calls = {path: list(parser_calls(ast.parse(path.read_text("utf-8")))) for path in SOURCES}
    assert {path: each for path, each in calls.items() if each} == {}


def test_the_factory_makes_one() -> None:
    """The rule above would find those that there are."""
    calls = {each.partition(" ")[0] for each in parser_calls(ast.parse(FACTORY.read_text("utf-8")))}
    parsers = {"XMLParser", "XMLPullParser"}
    assert calls == {*parsers, *(f"lxml.etree.{each}" for each in (*parsers, "fromstring", "XMLSchema"))}


@pytest.mark.parametrize(
    "program",
    [
        "from lxml import etree\netree.fromstring(b'')",
        "from lxml import etree as e\ne.parse('f')",
        "import lxml.etree\nlxml.etree.XML(b'')",
        "import lxml.etree as x\nread = x.iterparse",
        "from lxml.etree import fromstring",
        "from lxml.etree import *",
        "from lxml import etree\ndef f():\n    return etree.XMLSchema(file='f')",
        "from lxml import etree\ngetattr(etree, 'XMLParser')",
        "from lxml import html",
        "import lxml.objectify",
        "import xml.etree.ElementTree as ET",
        "from xml.etree import ElementTree",
        "from xml.dom import minidom",
        "from xml.dom.minidom import parseString",
        "from xml import sax",
        "import xml.sax",
        "import xml.parsers.expat",
        "import pyexpat",
        "import importlib\nimportlib.import_module('xml.dom.minidom')",
        "def f(tree):\n    tree.xinclude()",
        "import pandas\npandas.read_xml('f')",
        "import xmltodict",
        "import defusedxml.ElementTree",
    ],
)
def test_what_counts_as_a_parser(program: str) -> None:
    """Every way to come by a parser is found."""
    assert list(parser_calls(ast.parse(program)))


@pytest.mark.parametrize(
    "program",
    [
        "from lxml import etree\netree.Element('a')\netree.tostring(etree.SubElement)",
        "from xml.sax.saxutils import escape",
        "from soapjms.protocol import xml\nxml.parse(b'')",
        "from xml.etree.ElementTree import Element, ElementTree\nElementTree(Element('a')).write('f')",
        "from soapjms.protocol.uri import parse\nparse('jms:queue:q')",
        "import json\njson.loads('xml')",
    ],
)
def test_what_is_no_parser(program: str) -> None:
    """Making elements and writing them is free, and so are other things called parse."""
    assert list(parser_calls(ast.parse(program))) == []
