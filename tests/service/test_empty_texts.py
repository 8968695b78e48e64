"""An empty text, xsi:nil and an element that is not there are three things, for typed services and zeep's clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import zeep
from calling_kit import PATIENCE, fresh
from cli_kit import said
from lxml import etree
from typed_kit import NS, shop_wsdl
from zeep_kit import written

import soapjms
from brokers import Connection
from brokers.embedded import Broker
from soapjms.zeep import ArgumentsError, AsyncClient, Client

ELEMENT = """<xs:element name="{}"><xs:complexType><xs:sequence>
    <xs:element name="must" type="xs:string"/>
    <xs:element name="code" type="t:Short"/>
    <xs:element name="octets" type="xs:base64Binary" minOccurs="0"/>
    <xs:element name="may" type="xs:string" minOccurs="0" nillable="true"/>
    <xs:element name="null" type="xs:string" nillable="true"/>
    <xs:element name="line" type="xs:string" minOccurs="0" maxOccurs="unbounded"/>
    <xs:element name="weight" minOccurs="0"><xs:complexType><xs:simpleContent><xs:extension base="xs:string">
      <xs:attribute name="unit" type="xs:string"/></xs:extension></xs:simpleContent></xs:complexType></xs:element>
    <xs:element name="amount" type="xs:int" minOccurs="0"/>
  </xs:sequence></xs:complexType></xs:element>"""
SHORT = '<xs:simpleType name="Short"><xs:restriction base="xs:string"><xs:maxLength value="3"/></xs:restriction>'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a WSDL whose operation `price` takes and returns all kinds of texts."""
    text = shop_wsdl()
    for name, kind in (("price", "b:Code"), ("priced", "xs:decimal")):
        old = f'<xs:element name="{name}" type="{kind}"/>'
        assert old in text
        text = text.replace(old, ELEMENT.format(name))
    end = '<xs:element name="till" type="xs:int"/>'
    assert end in text
    return written(tmp_path, text.replace(end, f"{end}{SHORT}</xs:simpleType>"))


GIVEN: dict[str, Any] = {"must": "", "code": "", "octets": b"", "may": "", "null": "", "line": ["", "a", ""]}
WEIGHT: dict[str, Any] = {"_value_1": "", "unit": ""}
EMPTY: dict[str, Any] = GIVEN | {"weight": WEIGHT}


def echo(path: Path, seen: list[Any]) -> soapjms.Service:
    """Make a service that answers with what it was asked, and keeps it."""
    service = soapjms.Service.from_wsdl(path)

    @service.operation("price")
    def price(**values: Any) -> Any:
        seen.append(values)
        return zeep.helpers.serialize_object(values, dict)  # of types that the answer has not

    return service


def call(path: Path, **values: Any) -> tuple[Any, Any, etree._Element]:
    """Call with these; return what the service saw, what came back, and the request's element."""
    seen = list[Any]()
    with (
        Broker("empty").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:shop", echo(path, seen)),
        Client(path, connection=connection) as client,
    ):
        came = client.service.price(**values)
        with client.settings(raw_response=True):
            request = client.service.price(**values).jms.request
    element = etree.fromstring(request.body)[0][0]
    return seen[0], zeep.helpers.serialize_object(came, dict), element


def test_empty(path: Path) -> None:
    """It arrives as it was sent, wherever it stands, and comes back so."""
    saw, came, element = call(path, **EMPTY)
    for each in (saw, came):
        found = {name: each[name] for name in GIVEN}
        assert found == GIVEN
        assert (each["weight"]["_value_1"], each["weight"]["unit"]) == ("", "")
        assert each["amount"] is None
    assert [etree.QName(each).localname for each in element if each.text is None] == [
        "must", "code", "octets", "may", "null", "line", "line", "weight"
    ]  # fmt: skip


def test_nil_and_absent(path: Path) -> None:
    """None is nil where the schema wants the element, else it is not there; both are read as None."""
    saw, came, element = call(path, must="", code="a", null=None)
    for each in (saw, came):
        assert (each["null"], each["may"], each["octets"], each["weight"]) == (None, None, None, None)
        assert each["line"] == []
    assert [etree.QName(each).localname for each in element] == ["must", "code", "null"]
    assert element[2].get("{http://www.w3.org/2001/XMLSchema-instance}nil") == "true"


def test_nil_where_it_may_be_absent(path: Path) -> None:
    """`zeep.xsd.Nil` writes it; it is not read as an empty text."""
    saw, came, element = call(path, must="", code="", null="", may=zeep.xsd.Nil)
    assert (saw["may"], came["may"]) == (None, None)
    assert element.find(f"{{{NS}}}may").get("{http://www.w3.org/2001/XMLSchema-instance}nil") == "true"


def test_asyncio(path: Path) -> None:
    """An AsyncClient keeps the three apart likewise."""
    seen = list[Any]()

    async def calls(connection: Connection) -> tuple[Any, Any, Any]:
        async with AsyncClient(path, connection=connection, operation_timeout=PATIENCE) as client:
            price = client.service.price
            return (
                await price(**GIVEN),
                await price(must="", code="a", null=None),
                await price(must="", code="", null="", may=zeep.xsd.Nil),
            )

    with Broker("empty").connect() as connection, soapjms.Dispatcher(connection, "jms:queue:shop", echo(path, seen)):
        came = asyncio.run(calls(connection))
    for found in (seen, [zeep.helpers.serialize_object(each, dict) for each in came]):
        empty, absent, nil = found
        assert {name: empty[name] for name in GIVEN} == GIVEN
        assert (absent["must"], absent["null"], absent["may"], absent["octets"], absent["line"]) == (
            "",
            None,
            None,
            None,
            [],
        )
        assert (nil["must"], nil["null"], nil["may"]) == ("", "", None)


def test_command_line(path: Path) -> None:
    """NAME= is an empty text, NAME:=null is nil where the schema wants the element, and what is not named is absent."""
    seen = list[Any]()
    url = f"embedded:{fresh('broker')}"
    with soapjms.connect(url) as connection, soapjms.Dispatcher(connection, "jms:queue:shop", echo(path, seen)):
        call = ["call", "--connection", url, path, "price"]
        empty = said(*call, "must=", "code=", "may=", "null=", "line=", "octets=")
        absent = said(*call, "must=", "code=a", "null:=null")
    names = ("must", "code", "may", "null", "line")
    texts = {"must": "", "code": "", "may": "", "null": "", "line": [""]}
    for found in (seen[0], empty["result"]):
        assert {name: found[name] for name in names} == texts
    assert seen[0]["octets"] == b""
    texts = {"must": "", "code": "a", "may": None, "null": None, "line": []}
    for found in (seen[1], absent["result"]):
        assert {name: found[name] for name in names} == texts


CHOICE = """<xs:element name="{}"><xs:complexType><xs:sequence>
    <xs:element name="note" type="t:Either" minOccurs="0"/>
    <xs:choice minOccurs="0" maxOccurs="unbounded">
      <xs:element name="line" type="xs:string"/><xs:element name="count" type="xs:int"/>
    </xs:choice>
    <xs:choice minOccurs="0">
      <xs:element name="text" type="xs:string"/>
      <xs:element name="number" type="xs:int"/>
      <xs:element name="flag" type="xs:boolean"/>
      <xs:element name="either" type="t:Either"/>
      <xs:element name="none"><xs:complexType/></xs:element>
      <xs:choice><xs:element name="inner" type="xs:string"/><xs:element name="other" type="xs:int"/></xs:choice>
      <xs:sequence><xs:element name="first" type="xs:string"/><xs:element name="second" type="xs:int"/></xs:sequence>
    </xs:choice>
  </xs:sequence></xs:complexType></xs:element>"""
EITHER = '<xs:simpleType name="Either"><xs:union memberTypes="xs:int xs:string"/></xs:simpleType>'


@pytest.fixture
def choice_path(tmp_path: Path) -> Path:
    """Write a WSDL whose operation `price` takes and returns one of several."""
    text = shop_wsdl()
    for name, kind in (("price", "b:Code"), ("priced", "xs:decimal")):
        text = text.replace(f'<xs:element name="{name}" type="{kind}"/>', CHOICE.format(name))
    end = '<xs:element name="till" type="xs:int"/>'
    return written(tmp_path, text.replace(end, end + EITHER))


CHOSEN: list[tuple[dict[str, Any], list[str]]] = [
    ({"text": ""}, ["text"]),
    ({"number": 0}, ["number"]),
    ({"flag": False}, ["flag"]),
    ({"either": ""}, ["either"]),
    ({"none": {}}, ["none"]),
    ({"first": "", "second": 0}, ["first", "second"]),
    ({"inner": ""}, ["inner"]),
    ({"other": 0}, ["other"]),
    ({"_value_1": [{"line": ""}, {"count": 0}, {"line": "a"}]}, ["line", "count", "line"]),
    ({"text": "", "note": ""}, ["note", "text"]),
    ({"note": "a"}, ["note"]),
    ({}, []),
]


@pytest.mark.parametrize(("given", "elements"), CHOSEN)
def test_choices_and_unions(choice_path: Path, given: dict[str, Any], elements: list[str]) -> None:
    """What is chosen is there, though it is an empty text, 0 or False; what is not chosen is None."""
    saw, came, request = call(choice_path, **given)
    assert [etree.QName(each).localname for each in request] == elements
    for found in (saw, came):
        said = {name: value for name, value in found.items() if value is not None and value != []}
        assert said.keys() - {"_value_1"} == given.keys() - {"_value_1"}
        assert all(said[name] == value for name, value in given.items() if name != "none")
        assert list(said.get("none", ())) == []


def test_two_of_a_choice(choice_path: Path) -> None:
    """They are an error of the caller's, though one is empty."""
    with pytest.raises(ArgumentsError, match="number"):
        call(choice_path, text="", number=1)


def test_an_empty_number_is_refused(path: Path) -> None:
    """The schema has no empty number; the caller learns which element it is."""
    body = f'<price xmlns="{NS}"><must/><code/><null/><amount/></price>'
    text = f'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>{body}</e:Body></e:Envelope>'
    with (
        Broker("empty").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:shop", echo(path, [])),
        soapjms.Client(connection, "jms:queue:shop") as client,
    ):
        fault = client.call(text, soap_action="urn:shop:price", timeout=PATIENCE).fault
    assert fault is not None
    assert "amount" in fault.reason
