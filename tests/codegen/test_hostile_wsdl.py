"""A hostile WSDL makes no code: what is generated from it does nothing but define classes, or nothing is generated."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from codegen_kit import small_wsdl
from places import ROOT

from soapjms import InvalidWsdlError, UsageError
from soapjms.codegen import generate_package
from soapjms.codegen.audit import audit

CODE = "open('done','w')"
PAYLOADS = {
    "plain": CODE,
    "double": f'"+{CODE}+"',
    "single": '\'+open("done","w")+\'',
    "triple": f'"""\n{CODE}\n"""',
    "closed": f'"\n{CODE}\n#',
    "closed inside": f'"\n    {CODE}\n    x = "',
    "raw": '\\\'+""+open("done","w")#',
    "backslash": "x\\",
    "named": "\\N{BULLET}",
    "type": f"Type[{CODE}]",
    "literal": f"Literal[{CODE}]",
    "forward": f"ForwardRef({CODE})",
    "template": "{{ ''.__class__.__mro__ }}{% set x = 1 %}",
    "enumeration": f"@enum@x::{CODE}",
    "statement": f"x\n{CODE}",
    "quoted forward": f'ForwardRef("{CODE}")',
    "dunder": "__init_subclass__",
}
SLOTS = (
    "other namespace element field attribute enumeration enumName pattern documentation fieldDoc default fixed "
    "qnameDefault attributeDefault simpleType operation operationDoc fault action address service port part property "
    "file"
).split()

WSDL = """\
<w:definitions targetNamespace="@namespace@" xmlns:t="@namespace@" xmlns:w="http://schemas.xmlsoap.org/wsdl/"
    xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:xs="http://www.w3.org/2001/XMLSchema"
    xmlns:soapjms="http://www.w3.org/2010/soapjms/">
  <w:types><xs:schema targetNamespace="@namespace@" elementFormDefault="qualified">
    <xs:simpleType name="@enumName@"><xs:restriction base="xs:string"><xs:enumeration value="@enumeration@">
      <xs:annotation><xs:documentation>@documentation@</xs:documentation></xs:annotation></xs:enumeration>
      </xs:restriction></xs:simpleType>
    <xs:simpleType name="@simpleType@"><xs:restriction base="xs:string"><xs:pattern value="@pattern@"/>
      </xs:restriction></xs:simpleType>
    <xs:element name="@element@"><xs:complexType>
      <xs:annotation><xs:documentation>@documentation@</xs:documentation></xs:annotation><xs:sequence>
      <xs:element name="@field@" type="xs:string" default="@default@">
        <xs:annotation><xs:documentation>@fieldDoc@</xs:documentation></xs:annotation></xs:element>
      <xs:element name="c" type="xs:string" fixed="@fixed@"/>
      <xs:element name="q" type="xs:QName" default="t:@qnameDefault@"/>
      <xs:element name="e" type="t:@enumName@" default="@enumeration@"/>
      <xs:element name="s" type="t:@simpleType@"/>
      <xs:choice maxOccurs="unbounded"><xs:element name="x1" type="xs:string" default="@default@"/>
        <xs:element name="x2" type="xs:string"/></xs:choice>
      </xs:sequence><xs:attribute name="@attribute@" type="xs:string" default="@attributeDefault@"/>
      </xs:complexType></xs:element>
  </xs:schema>
  <xs:schema targetNamespace="@other@"><xs:element name="o" type="xs:string"/></xs:schema></w:types>
  <w:message name="ask"><w:part name="@part@" element="t:@element@"/></w:message>
  <w:message name="rpc"><w:part name="@part@" type="xs:string"/></w:message>
  <w:portType name="P">
    <w:operation name="@operation@"><w:documentation>@operationDoc@</w:documentation>
      <w:input message="t:ask"/><w:output message="t:ask"/><w:fault name="@fault@" message="t:ask"/></w:operation>
    <w:operation name="rpc"><w:input message="t:rpc"/></w:operation></w:portType>
  <w:binding name="B" type="t:P"><s:binding transport="http://www.w3.org/2010/soapjms/"/>
    <soapjms:replyToName>@property@</soapjms:replyToName>
    <w:operation name="@operation@"><s:operation soapAction="@action@"/>
      <w:input><s:header message="t:ask" part="@part@" use="literal"/><s:body use="literal"/></w:input>
      <w:output><s:body use="literal"/></w:output></w:operation>
    <w:operation name="rpc"><s:operation style="rpc"/><w:input><s:body use="literal" namespace="@namespace@"/></w:input>
    </w:operation></w:binding>
  <w:service name="@service@"><w:port name="@port@" binding="t:B"><s:address location="@address@"/></w:port>
  </w:service>
</w:definitions>
"""
PLAIN = {
    "namespace": "urn:hostile", "address": "jms:queue:hostile", "enumeration": "one", "pattern": "[a-z]+",
} | {each: each for each in SLOTS if each not in ("namespace", "address", "enumeration", "pattern")}  # fmt: skip

PROGRAM = """\
import sys
from importlib import import_module
from inspect import getmembers, isclass
from dataclasses import is_dataclass
for package in sys.argv[1:]:
    module = import_module(package)
    from soapjms.codegen.codec import element_name
    for _, each in getmembers(module.types, isclass):
        if is_dataclass(each):
            element_name(each)  # evaluates its annotations
    module.CONTRACT.target(None)
print("imported", len(sys.argv) - 1)
"""

OURS = frozenset("operation operationDoc fault action address service port part property file".split())
"""Places whose text xsdata does not write; a few payloads are enough."""

FEW = frozenset({"double", "triple", "closed inside", "backslash", "statement", "dunder"})

TEXTS = frozenset(
    "enumeration pattern documentation fieldDoc default fixed attributeDefault operation operationDoc fault action "
    "service port file".split()
)
"""Places that may hold any text, which must not keep a package from being written."""


def wsdl_with(slot: str, payload: str) -> str:
    """Write the WSDL with a payload in one place."""
    text = WSDL
    for name, plain in PLAIN.items():
        value = (
            escape(f"jms:queue:{payload}" if name == "address" else payload, {'"': "&quot;", "\n": "&#10;"})
            if name == slot
            else plain
        )
        text = text.replace(f"@{name}@", value)
    return text


def test_nothing_is_executed(tmp_path: Path) -> None:
    """Whatever a name, a namespace, a default or a documentation holds, generating and importing execute none of it."""
    packages, refused = [], []
    for number, (slot, (kind, payload)) in enumerate(product(SLOTS, PAYLOADS.items())):
        if slot in OURS and kind not in FEW:
            continue
        name = f"{payload.replace('/', '')}.wsdl" if slot == "file" else "hostile.wsdl"
        (tmp_path / name).write_text(wsdl_with(slot, payload), encoding="utf-8")
        package = f"hostile_{number}"
        try:
            generate_package(tmp_path / name, package, out=tmp_path, validate=False)
        except UsageError:
            refused.append((slot, kind))
        else:
            packages.append(package)
    assert "done" not in os.listdir()  # the folder of the tests
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *packages],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == f"imported {len(packages)}\n", done.stderr
    assert not (tmp_path / "done").exists()
    assert [each for each in refused if each[0] in TEXTS and each[1] != "enumeration"] == []  # a mark of xsdata's own
    assert {each[1] for each in refused if each[0] == "other"} >= {"double", "triple", "closed inside", "backslash"}


def test_no_document_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """xsdata opens nothing, neither a file beside the WSDL's folder nor an address; an import of one is refused."""

    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr("xsdata.codegen.opener.open", refuse)
    outside = tmp_path / "outside.xsd"
    outside.write_text('<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"/>')
    folder = tmp_path / "inside"
    folder.mkdir()
    for location, reason in (
        ("../outside.xsd", "outside"), ("http://127.0.0.1:1/a.xsd", "nothing is fetched over a network"),
    ):  # fmt: skip
        more = f'<xs:schema><xs:import namespace="urn:a" schemaLocation="{location}"/></xs:schema>'
        path = folder / "small.wsdl"
        path.write_text(small_wsdl('<xs:element name="ask" type="xs:string"/>', response="t:ask", more=more))
        with pytest.raises(InvalidWsdlError, match=reason):
            generate_package(path, "small", out=folder)
    types = '<xs:import namespace="http://www.w3.org/1999/xlink"/><xs:element name="ask" type="xs:string"/>'
    path.write_text(small_wsdl(types, response="t:ask"))  # xsdata has a copy of this schema, and would read it
    generate_package(path, "small", out=folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<!DOCTYPE a [<!ENTITY e "x">]>' + small_wsdl('<xs:element name="ask" type="xs:string"/>'), "DOCTYPE"),
        (small_wsdl('<xs:redefine schemaLocation="small.xsd"/><xs:element name="ask" type="xs:string"/>'), "redefine"),
        (
            small_wsdl(
                '<xs:complexType name="A"><xs:complexContent><xs:extension base="t:B"/></xs:complexContent>'
                '</xs:complexType><xs:complexType name="B"><xs:complexContent><xs:extension base="t:A"/>'
                '</xs:complexContent></xs:complexType><xs:element name="ask" type="t:A"/>',
                response="t:ask",
            ),
            "refer to themselves|circular|valid XML Schema",
        ),
    ],
)
@pytest.mark.timeout(30)
def test_what_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """Document types, redefinitions and circular types are refused, soon; nothing is written."""
    (tmp_path / "small.xsd").write_text('<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"/>')
    path = tmp_path / "small.wsdl"
    path.write_text(text)
    for validate in (True, False):
        with pytest.raises(UsageError, match=reason):
            generate_package(path, "small", out=tmp_path, validate=validate)
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "from os import system",
        "from decimal import Decimal as field",
        "x = 1",
        "open('done', 'w')",
        "class A(open('done', 'w')): pass",
        "class A(metaclass=B): pass",
        "@open\nclass A: pass",
        "class A:\n    def f(self): pass",
        "class A:\n    x: open('done', 'w') = field()",
        "class A:\n    x: 'open(1)' = field()",
        "class A:\n    x: int = field(default=open('done', 'w'))",
        "class A:\n    x: int = field(default_factory=lambda: open('done', 'w'))",
        "class A:\n    x: int = field(default=(lambda x=open('done', 'w'): 1))",
        "class A:\n    x: int = field(**{'default': 1})",
        "class A:\n    x: int = field(metadata={'type': ForwardRef(\"open('done')\")})",
        "class A:\n    x: int = field(metadata={'type': A.__mro__})",
        "class A:\n    __slots__ = ('x',)",
        "class A:\n    x = f'{open(1)}'",
        "class A:\n    x = [y for y in (1,)]",
        "class Decimal: pass",
        "class A: pass\nclass A: pass",
        "class A:\n    x = (yield)",
        "class A(",
    ],
)
def test_what_the_audit_refuses(source: str) -> None:
    """Anything but classes with fields of literals is refused, whatever xsdata may write one day."""
    with pytest.raises(ValueError, match=r"what no schema needs|no Python|names of their own"):
        audit(f"from dataclasses import dataclass, field\n{source}\n")
