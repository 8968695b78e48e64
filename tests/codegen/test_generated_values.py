"""Values of generated dataclasses arrive as they were given, or are refused with the name of their field."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from codegen_kit import generated, small_wsdl
from lxml import etree
from xsdata.models.datatype import XmlDate

from soapjms.codegen import NIL
from soapjms.codegen.codec import from_element, to_element

NS = "urn:small"
XS = "http://www.w3.org/2001/XMLSchema"
SPACES = f'xmlns="{NS}" xmlns:xs="{XS}" xmlns:x="{XS}-instance"'
KINDS = "string boolean decimal int double date time dateTime duration base64Binary anyType".split()
MORE = """<xs:element name="size" minOccurs="0"><xs:simpleType><xs:restriction base="xs:string">
    <xs:enumeration value="large"/></xs:restriction></xs:simpleType></xs:element>
    <xs:element name="words" minOccurs="0"><xs:simpleType><xs:list itemType="xs:string"/></xs:simpleType></xs:element>
    <xs:element name="numbers" minOccurs="0"><xs:simpleType><xs:list itemType="xs:int"/></xs:simpleType></xs:element>
    <xs:element name="null" type="xs:int" nillable="true" minOccurs="0"/>
    <xs:element name="inner" minOccurs="0"><xs:complexType><xs:sequence><xs:element name="n" type="xs:int"/>
      </xs:sequence></xs:complexType></xs:element>
    <xs:choice minOccurs="0"><xs:element name="one" type="xs:int"/>
      <xs:element name="two" type="xs:date"/></xs:choice>"""

MANY = 'maxOccurs="unbounded"'
INTS = '<xs:simpleType><xs:list itemType="xs:int"/></xs:simpleType>'
REQUIRED = f"""<xs:complexType><xs:sequence><xs:element name="numbers">{INTS}</xs:element></xs:sequence>
    <xs:attribute name="marks" use="required">{INTS}</xs:attribute>
    <xs:attribute name="others">{INTS}</xs:attribute><xs:attribute name="usual" default="1">{INTS}</xs:attribute>
    </xs:complexType>"""
BOUNDED = """<xs:complexType><xs:sequence><xs:element name="a" type="xs:int" minOccurs="2" maxOccurs="3"/>
    <xs:sequence minOccurs="0"><xs:element name="b" type="xs:int" minOccurs="2" maxOccurs="3"/></xs:sequence>
    <xs:sequence maxOccurs="2"><xs:element name="c" type="xs:int" maxOccurs="2"/></xs:sequence>
    </xs:sequence></xs:complexType>"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Generate a package whose request has an element of each type."""
    folder: Path = tmp_path_factory.mktemp("small")
    elements = "".join(f'<xs:element name="{each}" type="xs:{each}" minOccurs="0"/>' for each in KINDS) + MORE
    attribute = '<xs:attribute name="rate" type="xs:decimal"/>'
    kind = f"<xs:complexType><xs:sequence>{elements}</xs:sequence>{attribute}</xs:complexType>"
    several = (
        f'<xs:complexType><xs:sequence><xs:element name="item" type="xs:string" {MANY}/></xs:sequence></xs:complexType>'
    )
    text = small_wsdl(
        f'<xs:element name="ask">{kind}</xs:element><xs:element name="answer" type="xs:string"/>'
        f'<xs:element name="several">{several}</xs:element>'
        f'<xs:element name="required">{REQUIRED}</xs:element><xs:element name="bounded">{BOUNDED}</xs:element>'
    )
    (folder / "small.wsdl").write_text(text, encoding="utf-8")
    with generated(folder / "small.wsdl", folder, "small_values") as package:
        yield package


FIELDS = {"int": "int_value", "dateTime": "date_time", "base64Binary": "base64_binary", "anyType": "any_type"}
DAY = datetime.date(2026, 1, 2)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Float64(float):
    """A number like numpy's float64, whose repr is not its text."""

    def __repr__(self) -> str:
        return f"Float64({float(self)})"


class Colour(enum.StrEnum):
    """Texts with names."""

    RED = "red"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("string", each) for each in (object(), print, ["a"], ("a",), {"a": 1}, etree.Element("a"), "a\0b")),
        *(("decimal", each) for each in (float("nan"), Decimal("NaN"), Decimal("Infinity"), "1_000", "1e3", "", True)),
        *(("int", each) for each in ("1_0", "٣", 1.0, True, DAY, [1])),
        *(("boolean", each) for each in ("no", "TRUE", 2)),
        *(("double", each) for each in ("1_0", "nan", "Infinity")),
        *(("base64Binary", each) for each in (True, 1234, 5.5, Decimal("1E+3"), DAY, "AQI", "*")),
        *(("words", each) for each in (["1", "2 3"], ["", 1], [None, 1], ["a\u2003b", "c\td"], [object()])),
        *(("numbers", each) for each in (["1", "2 3"], ["", 1], [None, 1], [1.5])),
        *(("time", each) for each in (DAY, datetime.time(12, tzinfo=ZoneInfo("Europe/Berlin")))),
        *(("date", each) for each in (MOMENT, MOMENT.time(), "20260102", "2026-W01-1", 5)),
        *(("dateTime", each) for each in (DAY, "2026-01-02")),
        ("anyType", object()),
        ("rate", object()),
        ("rate", "1_000"),
        ("size", "small"),
    ],
)
def test_what_is_not_written(small: ModuleType, name: str, value: Any) -> None:
    """The error names the field."""
    field = FIELDS.get(name, name)
    with pytest.raises(ValueError, match=rf"(^|Ask\.){field}\b"):
        to_element(small.Ask(**{field: value}), small.Ask)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("string", 7, "7"),
        ("string", True, "true"),
        ("string", Decimal("1E+3"), "1000"),
        ("string", DAY, "2026-01-02"),
        ("string", MOMENT, "2026-01-02T03:04:05Z"),
        ("string", Colour.RED, "red"),
        ("decimal", 0.00001, "0.00001"),
        ("decimal", "1.50", "1.50"),
        ("double", 1e-5, "1E-05"),
        ("double", Float64(1e-5), "1E-05"),
        ("string", Float64(1e-5), "1E-05"),
        ("string", datetime.time(12, tzinfo=datetime.UTC), "12:00:00Z"),
        ("date", DAY, "2026-01-02"),
        ("date", XmlDate(2026, 1, 2), "2026-01-02"),
        ("dateTime", MOMENT, "2026-01-02T03:04:05Z"),
        ("base64Binary", b"", None),
        ("base64Binary", b"\xff", "/w=="),
        ("base64Binary", "/w==", "/w=="),
        ("words", ["a", "b"], "a b"),
        ("words", ["a", 2], "a 2"),
        ("numbers", [1, 2], "1 2"),
        ("rate", 0.00001, "0.00001"),
    ],
)
def test_what_is_written(small: ModuleType, name: str, value: Any, text: str) -> None:
    """It has the form of XML Schema, as with zeep's clients."""
    element = to_element(small.Ask(**{FIELDS.get(name, name): value}), small.Ask)
    found = {each.tag: each.text for each in element} | {f"{{{NS}}}{key}": text for key, text in element.items()}
    assert (f"{{{NS}}}{name}", text) in found.items()


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        *((f"<decimal>{each}</decimal>", "Ask.decimal") for each in ("NaN", "1_000", "1e3", "Infinity", "١", "")),
        *((f"<int>{each}</int>", "Ask.int") for each in ("1_0", "٣", "")),
        *((f"<boolean>{each}</boolean>", "Ask.boolean") for each in ("TRUE", "yes", "")),
        *((f"<double>{each}</double>", "Ask.double") for each in ("1_0", "nan", "Infinity", "")),
        *((f"<date>{each}</date>", "Ask.date") for each in ("2026-W01-1", "2026-02-30", "")),
        ("<dateTime>2026-01-02</dateTime>", "Ask.date_time"),
        ("<duration>P1W</duration>", "Ask.duration"),
        *(
            (f'<anyType x:type="xs:{kind}">{text}</anyType>', f"anyType must be of type {kind}, got '{text}'")
            for kind, text in (("int", "1_0"), ("decimal", "NaN"), ("dateTime", "2026-01-02"), ("boolean", "TRUE"))
        ),
        ('<anyType x:type="xs:int"/>', "anyType must be of type int, got ''"),
        ("<size/>", "Ask.size"),
        ("<inner><n/></inner>", "Ask.Inner.n"),
        ("<one>1_0</one>", "Ask.one_or_two"),
        ("<one/>", "Ask.one_or_two"),
    ],
)
def test_what_is_not_read(small: ModuleType, inside: str, said: str) -> None:
    """A text that is not of its type is an error, not another value; the error names the field."""
    with pytest.raises(ValueError, match=said):
        from_element(etree.fromstring(f"<ask {SPACES}>{inside}</ask>"), small.Ask)


def test_attributes_that_are_not_read(small: ModuleType) -> None:
    """An attribute is as good as an element."""
    with pytest.raises(ValueError, match=r"Ask\.rate"):
        from_element(etree.fromstring(f'<ask xmlns="{NS}" rate="1_000"/>'), small.Ask)


def test_what_is_read(small: ModuleType) -> None:
    """White space does not matter; an empty text is one, and an element with xsi:nil is None."""
    inside = "<string/><boolean> 1 </boolean><decimal> +.50 </decimal><duration>\n P1D\t</duration><base64Binary/>"
    inside += '<anyType x:type="xs:int"> 7 </anyType><null x:nil="true"/>'
    found = from_element(etree.fromstring(f'<ask {SPACES} rate=" 1.5 ">{inside}</ask>'), small.Ask)
    assert (found.string, found.boolean, found.decimal, found.rate) == ("", True, Decimal("0.50"), Decimal("1.5"))
    assert (found.base64_binary, found.any_type, found.null) == (b"", 7, None)
    assert str(found.duration) == "P1D"


def test_nil(small: ModuleType) -> None:
    """None leaves an optional element out; NIL is sent with xsi:nil, and refused where that is not allowed."""
    assert len(to_element(small.Ask(null=None), small.Ask)) == 0
    found = to_element(small.Ask(null=NIL), small.Ask)
    assert (found[0].tag, dict(found[0].attrib), found[0].text) == (
        f"{{{NS}}}null",
        {f"{{{XS}-instance}}nil": "true"},
        None,
    )
    assert to_element(small.Ask(null=0), small.Ask)[0].text == "0"
    assert from_element(found, small.Ask).null is None
    with pytest.raises(ValueError, match="string must not be NIL: its element is not nillable"):
        to_element(small.Ask(string=NIL), small.Ask)
    assert repr(small.Ask(null=NIL)).count("null=NIL") == 1


def test_lists(small: ModuleType) -> None:
    """None is not a text, a required list has an item, and a value of a list type is a list."""
    assert [each.text for each in to_element(small.Several(item=["a", ""]), small.Several)] == ["a", None]
    with pytest.raises(ValueError, match="item must not hold None: its element is not nillable"):
        to_element(small.Several(item=["a", None]), small.Several)
    for nothing in ([], None):
        with pytest.raises(ValueError, match="Several lacks item"):
            to_element(small.Several(item=nothing), small.Several)
    with pytest.raises(ValueError, match="Several lacks item"):
        from_element(etree.fromstring(f'<several xmlns="{NS}"/>'), small.Several)
    with pytest.raises(ValueError, match="numbers must be a list, got 5"):
        to_element(small.Ask(numbers=5), small.Ask)


def test_an_empty_value_of_a_required_list_type(small: ModuleType) -> None:
    """It is written, as an empty element or attribute; one that is optional, and has no default, is left out."""
    found = to_element(small.Required(), small.Required)
    assert found.attrib.pop("usual") == "1"
    assert to_element(small.Required(usual=[]), small.Required).get("usual") == ""
    assert ([(each.tag, each.text) for each in found], dict(found.attrib)) == (
        [(f"{{{NS}}}numbers", None)],
        {"marks": ""},
    )
    assert from_element(found, small.Required) == small.Required(numbers=[], marks=[], others=[], usual=[1])
    assert len(to_element(small.Ask(numbers=[]), small.Ask)) == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"a": [1]}, "a must have at least 2 values, got 1"),
        ({"a": [1, 2, 3, 4]}, "a must have at most 3 values, got 4"),
        ({"b": [1, 2, 3, 4]}, "b must have at most 3 values, got 4"),
        ({"c": [1, 2, 3, 4, 5]}, "c must have at most 4 values, got 5"),
        ({"b": [1], "c": [1, 2, 3, 4]}, None),
    ],
)
def test_the_number_of_values(small: ModuleType, values: dict[str, list[int]], said: str | None) -> None:
    """More or fewer than the schema allows are not sent; what a peer sends is read."""
    bounded = small.Bounded(**{"a": [1, 2], "c": [1], **values})
    if said is None:
        assert len(to_element(bounded, small.Bounded)) == 7
    else:
        with pytest.raises(ValueError, match=said):
            to_element(bounded, small.Bounded)
    inside = "".join(f"<{name}>{each}</{name}>" for name in "abc" for each in getattr(bounded, name))
    assert from_element(etree.fromstring(f"<bounded {SPACES}>{inside}</bounded>"), small.Bounded) == bounded
