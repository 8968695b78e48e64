"""What a WSDL refers to and does not have: told with its line and what there is, never where an import may have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from wsdl_kit import CXF, WSDL_11, WSDL_20, line_of, wsdl, wsdl11

import soapjms
from soapjms.cli.commands import soapjms as command
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.wsdl import Finding, Loaded, read
from soapjms.protocol.wsdl.lint import KINDS, lint

XSD = "http://www.w3.org/2001/XMLSchema"
NAMES = f'xmlns:x="{XSD}" xmlns:t="urn:ledger" xmlns:a="urn:a" xmlns:e="http://schemas.xmlsoap.org/soap/encoding/"'
OWN = '<x:element name="posting" type="x:string"/><x:complexType name="Posting"/><x:simpleType name="Code"/>'


def found(text: str, **others: str) -> list[Finding]:
    """Judge a document; `others` are those that it imports."""
    return list(
        lint(read(text.encode(), "ledger.wsdl", lambda location, _: Loaded(location, others[location].encode())))
    )


def types(inside: str) -> str:
    """Write the types of either version."""
    return f"<wsdl:types {NAMES}>{inside}</wsdl:types>"


def schema(inside: str = OWN, namespace: str = "urn:ledger") -> str:
    """Write a schema; what it has by default are an element and two types."""
    return f'<x:schema {NAMES} targetNamespace="{namespace}">{inside}</x:schema>'


def with_part(part: str, head: str) -> str:
    """Write a WSDL 1.1 with one part of a message, on its own line."""
    text = wsdl11(head=head)
    return text.replace(
        '<wsdl:message name="m"/>', f'<wsdl:message name="m" {NAMES}>\n<wsdl:part name="p" {part}/></wsdl:message>'
    )


FAULTY = """<interface name="LedgerPT">
<fault name="closed" element="#any"/>
<operation name="post"><input element="t:posting"/>
<outfault ref="t:{}"/></operation></interface>"""
TYPED = """<interface name="LedgerPT"><fault name="closed" element="{}"/>
<operation name="post"><input element="{}"/></operation></interface>"""
SOME = types(schema())
NOTE = '<wsdl:operation name="note"><wsdl:input><s:body use="literal"/></wsdl:input></wsdl:operation>'

DANGLING: dict[str, list[tuple[str, dict[str, Any], str, str]]] = {
    "missingInterface": [
        (
            WSDL_11,
            {"interface": ""},
            "<wsdl:binding",
            "type of binding 'LedgerJms' is '{urn:ledger}LedgerPT', and no such "
            "port type or interface is there (WSDL 1.1 2.5); add it, or import the file that has it",
        ),
        (
            WSDL_11,
            {"interface": '<wsdl:portType name="LedgerPt"/>'},
            "<wsdl:binding",
            "name one that is there (LedgerPt), or import the file that has it",
        ),
        (
            WSDL_20,
            {"interface": "", "operations": ""},
            "<binding",
            "interface of binding 'LedgerJms' is '{urn:ledger}L",
        ),
        (
            WSDL_20,
            {"head": '<interface name="More" extends="t:LedgerPT t:Less"/>'},
            "<interface",
            "extends of interface "
            "'More' is '{urn:ledger}Less', and no such port type or interface is there (WSDL 2.0 2.2); name one that "
            "is there (More, LedgerPT)",
        ),
    ],
    "missingOperation": [
        (
            WSDL_11,
            {"operations": NOTE.replace("note", "nite")},
            '<wsdl:operation name="nite"',
            "name of operation 'nite' of "
            "binding 'LedgerJms' is 'nite', and no such operation is there (WSDL 1.1 2.5); name one that is there "
            "(post, note)",
        ),
        (
            WSDL_20,
            {"operations": '<operation ref="t:nite"/>'},
            "<operation ref",
            "ref of operation of binding 'LedgerJms' is "
            "'{urn:ledger}nite', and no such operation is there (WSDL 2.0 2.9); name one that is there (post, note)",
        ),
    ],
    "missingMessage": [
        (
            WSDL_11,
            {
                "head": '<wsdl:portType name="Other"><wsdl:operation name="o">\n<wsdl:input name="i" message="t:n"/>'
                "</wsdl:operation></wsdl:portType>"
            },
            "<wsdl:input name",
            "message of input 'i' of operation 'o' of "
            "portType 'Other' is '{urn:ledger}n', and no such message is there (WSDL 1.1 2.4); name one that is there "
            "(m)",
        ),
        (
            WSDL_11,
            {
                "head": '<wsdl:portType name="Other"><wsdl:operation name="o">\n<wsdl:output/>'
                "</wsdl:operation></wsdl:portType>"
            },
            "<wsdl:output/>",
            "message of output of operation 'o' of port",
        ),
        (
            WSDL_11,
            {
                "head": '<wsdl:portType name="Other"><wsdl:operation name="o">\n<wsdl:fault message="none:m"/>'
                "</wsdl:operation></wsdl:portType>"
            },
            "<wsdl:fault",
            "is 'none:m', and no such message is there (WSDL 1.1 2.4); name one that is there ({urn:ledger}m)",
        ),
        (
            WSDL_11,
            {"operations": NOTE.replace("<s:body", '\n<s:header message="t:h" part="p"/><s:body')},
            "<s:header",
            "message of header of input of operation 'note' of binding 'LedgerJms' is '{urn:ledger}h', and no such",
        ),
    ],
    "missingFault": [
        (
            WSDL_20,
            {"interface": FAULTY.format("shut"), "head": SOME},
            "<outfault",
            "ref of outfault of operation 'post' of "
            "interface 'LedgerPT' is '{urn:ledger}shut', and no such fault is there (WSDL 2.0 2.6); name one that is "
            "there (closed)",
        ),
    ],
    "missingElement": [
        (
            WSDL_20,
            {"interface": TYPED.format("t:posting", "t:pisting"), "head": SOME},
            "<operation name",
            "element of input of "
            "operation 'post' of interface 'LedgerPT' is '{urn:ledger}pisting', and no such element of a schema is "
            "there (WSDL 2.0 2.5); name one that is there (posting)",
        ),
        (
            WSDL_20,
            {"interface": TYPED.format("t:pisting", "#none"), "head": SOME},
            "<interface",
            "element of fault 'closed'",
        ),
    ],
}


@pytest.mark.parametrize(
    ("code", "version", "parts", "at", "said"),
    [
        pytest.param(code, *case, id=f"{code}-{number}")
        for code in DANGLING
        for number, case in enumerate(DANGLING[code])
    ],
)
def test_what_is_not_there(code: str, version: str, parts: dict[str, Any], at: str, said: str) -> None:
    """It is found once, on its line, with its rule, and with the names that there are."""
    text = wsdl(version, **parts)
    first, *_ = reported = found(text)
    assert {each.code for each in reported} == {code}, reported
    assert (first.place, str(first.severity)) == (("ledger.wsdl", line_of(text, at)), "error")
    assert said in str(first)


def test_every_kind_of_reference_has_a_case() -> None:
    """The table and the cases are about the same; types are below."""
    assert {row.code for kind in KINDS.values() for row in kind.references} == {*DANGLING, "missingType"}


LOCATED = '<x:import namespace="urn:a" schemaLocation="a.xsd"/>'
UNLOCATED = '<x:import namespace="urn:a"/>'

PARTS: list[tuple[str, str, str]] = [
    ('element="t:pasting"', SOME, "element of part 'p' of message 'm' is '{urn:ledger}pasting', and no such element of "
     "a schema is there (WSDL 1.1 2.3); name one that is there (posting), or import the file that has it"),
    ('type="t:Pasting"', SOME, "name one that is there (Posting, Code), or import"),
    ('element="t:Posting"', SOME, "no such element"),
    ('type="t:posting"', SOME, "no such type"),
    ('element="t:posting"', "", "{urn:ledger}posting"),
    ('type="x:strnig"', SOME, "name one that is there (string, boolean, decimal, float, double, …)"),
    ('element="x:string"', SOME, "no such element"),
    ('type="a:Thing"', "", "is there (WSDL 1.1 2.3); add it, or import the file that has it"),
    ('element="posting"', SOME, "is 'posting'"),
    ('element="none:posting"', types(schema(LOCATED)), "is 'none:posting'"),
    ('element="t:posting"', types(schema(LOCATED)), "add it, or"),
    ('element="a:thing"', types(schema(UNLOCATED) + schema(namespace="urn:a")), "is '{urn:a}thing'"),
    ('element="a:thing"', SOME, "is '{urn:a}thing'"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "head", "said"), PARTS)
def test_parts_that_are_in_no_schema(part: str, head: str, said: str) -> None:
    """Nor in one that an import could supply: all that there is was read."""
    text = with_part(part, head)
    (reported,) = found(text)
    assert reported.code == ("missingElement" if part.startswith("element") else "missingType")
    assert reported.place.line == line_of(text, "<wsdl:part")
    assert said in str(reported)


@pytest.mark.parametrize(
    ("part", "head"),
    [
        ('element="t:posting"', SOME),
        ('type="t:Posting"', SOME),
        ('type="t:Code"', SOME),
        ('type="x:string"', ""),
        ('type="e:Array"', SOME),
        ('element="a:thing"', types(schema(LOCATED))),
        ('element="a:thing"', types(schema(UNLOCATED))),
        ('element="a:thing"', types(schema(LOCATED) + schema(namespace="urn:a"))),
        ('element="a:thing"', types(schema('<x:import namespace="urn:b" schemaLocation="b.xsd"/>'))),
        ('element="thing"', types(schema('<x:import schemaLocation="b.xsd"/>'))),
        *(
            ('element="t:thing"', types(schema(f'<x:{each} schemaLocation="b.xsd"/>')))
            for each in ("include", "redefine", "override")
        ),
    ],
)
def test_parts_that_are_there_or_may_be(part: str, head: str) -> None:
    """In a schema of the WSDL, or in one that nobody reads: then nothing is known, and nothing is said."""
    assert found(with_part(part, head)) == []


def test_schemas_that_the_wsdl_imports_itself() -> None:
    """They are read, so that what they do not have is not there."""
    text = with_part('element="a:posting"', '<wsdl:import namespace="urn:a" location="a"/>')
    assert found(text, a=schema(namespace="urn:a")) == []
    (reported,) = found(text.replace("a:posting", "a:pasting"), a=schema(namespace="urn:a"))
    assert "name one that is there (posting)" in reported.write


@pytest.mark.parametrize("what", ["message", "type", "element"])
def test_an_import_without_location(what: str) -> None:
    """Whoever reads the WSDL is to know what it means: what is in its namespace may be there."""
    head = '<wsdl:import namespace="urn:a"/>'
    if what == "message":
        assert found(wsdl11(head=head).replace('message="t:m"', 'xmlns:a="urn:a" message="a:m"')) == []
    else:
        assert found(with_part(f'{what}="a:m"', head)) == []


def test_an_interface_in_another_file() -> None:
    """An abstract WSDL with its types, imported by one with bindings and services, is one with it."""
    abstract = f"""<wsdl:definitions xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/" targetNamespace="urn:a" {NAMES}>
    {types(schema(namespace="urn:a"))}
    <wsdl:message name="m"><wsdl:part name="p" element="a:posting"/></wsdl:message>
    <wsdl:portType name="LedgerPT">
      <wsdl:operation name="post"><wsdl:input message="a:m"/></wsdl:operation>
    </wsdl:portType>
    </wsdl:definitions>"""
    operation = '<wsdl:operation name="post"><wsdl:input><s:body use="literal"/></wsdl:input></wsdl:operation>'
    text = wsdl11(head='<wsdl:import namespace="urn:a" location="abstract"/>', interface="", operations=operation)
    text = text.replace('type="t:LedgerPT"', 'xmlns:a="urn:a" type="a:LedgerPT"')
    assert found(text, abstract=abstract) == []
    (reported,) = found(text, abstract=abstract.replace("a:posting", "a:pasting"))
    assert (reported.code, reported.place.file) == ("missingElement", "abstract")


def test_more_than_any_wsdl_has() -> None:
    """What is looked up has an end."""
    parts = '<wsdl:message name="n">' + '<wsdl:part type="t:P"/>' * 20_001 + "</wsdl:message>"
    with pytest.raises(InvalidWsdlError, match="more than 20000 bindings, operations, messages and parts"):
        read(wsdl11(head=parts).encode())


@pytest.mark.parametrize("path", [*CXF, *Path("examples").glob("*.wsdl")], ids=lambda path: path.name)
def test_nothing_is_missing_in_files_of_others(path: Path) -> None:
    """Those that CXF wrote, and that of the examples."""
    assert soapjms.read_wsdl(path).missing == ()


def test_at_the_command_line(tmp_path: Path) -> None:
    """With its line, and as JSON; the status says that there are findings."""
    path = tmp_path / "ledger.wsdl"
    path.write_text(with_part('element="t:pasting"', SOME), "utf-8")
    done = CliRunner().invoke(command, ["wsdl", "lint", str(path)])
    line = line_of(path.read_text("utf-8"), "<wsdl:part")
    assert done.exit_code == 1
    assert done.stdout.startswith(
        f"{path}:{line}: error: element of part 'p' of message 'm' is '{{urn:ledger}}pasting'"
    )
    done = CliRunner().invoke(command, ["wsdl", "lint", "--json", str(path)])
    (reported,) = json.loads(done.stdout)["findings"]
    assert (reported["line"], reported["code"], reported["rule"]) == (line, "missingElement", "WSDL 1.1 2.3")
