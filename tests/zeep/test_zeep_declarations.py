"""What zeep does not keep of schemas, and what becomes of types and elements with it."""

from __future__ import annotations

from typing import Any

import pytest
import zeep
from lxml import etree

from soapjms.zeep.declarations import Declarations
from soapjms.zeep.repairs import repair

XS = 'xmlns:xs="http://www.w3.org/2001/XMLSchema"'
LISTS = f"""<xs:schema {XS} xmlns:t="urn:t" targetNamespace="urn:t">
  <xs:simpleType name="Numbers"><xs:list itemType="xs:int"/></xs:simpleType>
  <xs:simpleType name="Few"><xs:restriction base="t:Numbers"><xs:maxLength value="2"/></xs:restriction></xs:simpleType>
  <xs:element name="r"><xs:complexType><xs:sequence><xs:element name="some" type="t:Few"/>
    <xs:element name="here"><xs:simpleType><xs:restriction base="t:Few"/></xs:simpleType></xs:element></xs:sequence>
    </xs:complexType></xs:element></xs:schema>"""


def declared(*schemas: str) -> Declarations:
    """Return what schemas declare."""
    declarations = Declarations()
    for each in schemas:
        declarations.add(etree.fromstring(each))
    return declarations


@pytest.mark.parametrize(("declarations", "items"), [(declared(LISTS), [1, 2]), (None, ["1", "2"])])
def test_restricted_lists(declarations: Declarations | None, items: list[Any]) -> None:
    """Their items are of the type that the base has; they are texts if the base is unknown."""
    schema: Any = zeep.xsd.Schema(etree.fromstring(LISTS))
    repair(schema, (), declarations)
    repair(schema, (), declarations)
    element, holder = schema.get_element("{urn:t}r"), etree.Element("holder")
    found = element.parse(etree.fromstring('<t:r xmlns:t="urn:t"><some>1 2</some><here> 1\n2 </here></t:r>'), schema)
    assert (found.some, found.here) == (items, items)
    element.render(holder, found)
    assert [each.text for each in holder[0]] == ["1 2", "1 2"]


def test_bases() -> None:
    """By names with and without a prefix; a type without a name has that of its element."""
    declarations = declared(
        LISTS,
        '<schema xmlns="http://www.w3.org/2001/XMLSchema"><simpleType name="A"><restriction base="int"/></simpleType>'
        '<element name="b"><simpleType><restriction base=" A "/></simpleType></element>'
        "<simpleType name='C'><list itemType='int'/></simpleType></schema>",
    )
    assert declarations.base_of("{urn:t}Few") == "{urn:t}Numbers"
    assert declarations.base_of("{urn:t}here") == "{urn:t}Few"
    assert declarations.base_of("A") == "{http://www.w3.org/2001/XMLSchema}int"
    assert [declarations.base_of(each) for each in ("C", "D")] == [None, None]


def test_fixed_values() -> None:
    """Elements in a type have the namespace of the schema only where it says so."""
    inner = (
        '<xs:complexType name="{}"><xs:sequence><xs:element name="{}" {} type="xs:int"/></xs:sequence></xs:complexType>'
    )
    members = inner.format("A", "a", 'fixed="1"') + inner.format("B", "b", 'fixed="2" form="qualified"')
    declarations = declared(
        f'<xs:schema {XS} targetNamespace="urn:t">{members}<xs:element name="c" fixed="3"/></xs:schema>',
        f'<xs:schema {XS} targetNamespace="urn:q" elementFormDefault="qualified">{members}</xs:schema>',
    )
    fixed = {
        name: declarations.fixed_value(name) for name in ("a", "{urn:t}a", "{urn:t}b", "b", "{urn:t}c", "{urn:q}a")
    }
    assert fixed == {"a": "1", "{urn:t}a": None, "{urn:t}b": "2", "b": None, "{urn:t}c": "3", "{urn:q}a": "1"}


def test_what_one_name_has_in_two_ways() -> None:
    """It is unknown."""
    inner = f'<xs:schema {XS}><xs:complexType name="{{}}"><xs:sequence><xs:element name="a" {{}}>{{}}</xs:element>'
    inner += "</xs:sequence></xs:complexType></xs:schema>"
    kinds = [f'<xs:simpleType><xs:restriction base="{each}"/></xs:simpleType>' for each in ("xs:int", "xs:date")]
    declarations = declared(inner.format("A", 'fixed="1"', kinds[0]), inner.format("B", "", kinds[1]))
    assert (declarations.fixed_value("a"), declarations.base_of("a")) == (None, None)
