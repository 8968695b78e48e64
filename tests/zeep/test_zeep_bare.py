"""Operations whose request and response are one element of a simple type: what is given is what arrives, both ways."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from lxml import etree
from typed_kit import CODE, NS, shop_wsdl
from zeep.xsd.types.builtins import default_types
from zeep_kit import written

import soapjms
from brokers.embedded import Broker
from soapjms.protocol.text import shown
from soapjms.service.typed import TypedService
from soapjms.zeep import Client
from soapjms.zeep.bare import value_in
from soapjms.zeep.words import arguments_of, read_words

OWN = {
    "numbers": '<xs:list itemType="xs:int"/>',
    "octets": '<xs:list itemType="xs:base64Binary"/>',
    "names": '<xs:list itemType="xs:string"/>',
    "some": '<xs:restriction base="b:Numbers"><xs:maxLength value="2"/></xs:restriction>',
    "fewer": '<xs:restriction base="b:Few"/>',
    "own": '<xs:restriction><xs:simpleType><xs:list itemType="xs:string"/></xs:simpleType></xs:restriction>',
    "listed": '<xs:union memberTypes="b:Few"/>',
    "months": '<xs:restriction base="xs:gMonth"/>',
    "either": '<xs:union memberTypes="xs:int xs:boolean"/>',
    "words": '<xs:union memberTypes="xs:string xs:int"/>',
    "year": '<xs:union memberTypes="xs:gYear"/>',
}
"""Types that a schema may make; their names have no prefix of ours."""
BASES = """<xs:simpleType name="Numbers"><xs:list itemType="xs:int"/></xs:simpleType><xs:simpleType name="Few">
    <xs:restriction base="b:Numbers"><xs:maxLength value="3"/></xs:restriction></xs:simpleType>"""


def shop(folder: Path, kind: str) -> Path:
    """Write the WSDL of the shop, in which the price and what is asked for it are of a type, built in or of `OWN`."""
    text = shop_wsdl(code=CODE + BASES)
    type_ = f"<xs:simpleType>{OWN[kind]}</xs:simpleType></xs:element>" if kind in OWN else ""
    for name, old in (("price", "b:Code"), ("priced", "xs:decimal")):
        new = f'<xs:element name="{name}">{type_}' if type_ else f'<xs:element name="{name}" type="xs:{kind}"/>'
        assert f'<xs:element name="{name}" type="{old}"/>' in text
        text = text.replace(f'<xs:element name="{name}" type="{old}"/>', new)
    return written(folder, text)


def echoing(path: Path, seen: list[Any]) -> TypedService:
    """Make a service that answers with what it was asked."""
    service = soapjms.Service.from_wsdl(path)

    @service.operation("price")
    def price(value: Any) -> Any:
        seen.append(value)
        return value

    return service


UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=UTC)

# type, value, the text of it
SAME: list[tuple[str, Any, str]] = [
    ("base64Binary", b"abc", "YWJj"),
    ("base64Binary", b"\xff", "/w=="),
    ("base64Binary", bytearray(b"abc"), "YWJj"),
    ("hexBinary", "FF00", "FF00"),
    ("string", "A", "A"),
    ("string", "AB", "AB"),
    ("boolean", False, "false"),
    ("decimal", Decimal("1.50"), "1.50"),
    ("float", 1.5, "1.5"),
    ("double", 1.5, "1.5"),
    ("duration", datetime.timedelta(days=1), "P1D"),
    ("dateTime", NOON, "2026-01-02T12:00:00Z"),
    ("time", datetime.time(12, 30, tzinfo=UTC), "12:30:00Z"),
    ("date", datetime.date(2026, 1, 2), "2026-01-02"),
    ("gYear", (2026, None), "2026"),
    ("gYear", (2026, EAST), "2026+05:30"),
    ("gYear", (-44, None), "-0044"),
    ("gYear", (-12044, UTC), "-12044Z"),
    ("gYearMonth", (2026, 3, None), "2026-03"),
    ("gYearMonth", (-44, 3, EAST), "-0044-03+05:30"),
    ("gMonth", (3, None), "--03"),
    ("gMonth", (3, UTC), "--03Z"),
    ("gMonth", (12, EAST), "--12+05:30"),
    ("gMonthDay", (3, 1, UTC), "--03-01Z"),
    ("gDay", (1, None), "---01"),
    *((each, "ab", "ab") for each in "anyURI language Name NCName ID NMTOKEN token normalizedString".split()),
    *((each, "a b", "a b") for each in ("NMTOKENS", "anySimpleType")),
    *((each, 7, "7") for each in "integer long int short byte nonNegativeInteger positiveInteger unsignedLong "
      "unsignedInt unsignedShort unsignedByte".split()),
    *((each, -7, "-7") for each in ("nonPositiveInteger", "negativeInteger")),
    ("numbers", [1, 2], "1 2"),
    ("numbers", [3], "3"),
    ("octets", [b"abc", b"\xff"], "YWJj /w=="),
    ("names", ["a\u00a0b", "c"], "a\u00a0b c"),
    ("some", [1, 2], "1 2"),
    ("fewer", [1, 2], "1 2"),
    ("own", ["a", "b"], "a b"),
    ("listed", "1 2", "1 2"),
    ("months", (3, None), "--03"),
    ("either", "7", "7"),
    ("year", (2026, None), "2026"),
]  # fmt: skip

# type, what is sent, what arrives, the text of it
READ: list[tuple[str, Any, Any, str]] = [
    ("hexBinary", b"\xff\x00", "FF00", "FF00"),
    ("NMTOKENS", ["a", "b"], "a b", "a b"),
    ("gYear", "2026", (2026, None), "2026"),
    ("gMonth", "--03", (3, None), "--03"),
    ("numbers", "1 2", [1, 2], "1 2"),
    ("some", "1 2", [1, 2], "1 2"),
    ("some", [], [], ""),
    ("own", [1, True], ["1", "true"], "1 true"),
    ("either", 7, "7", "7"),
    ("either", True, "true", "true"),
    ("anySimpleType", 7, "7", "7"),
    ("string", "", "", ""),
    ("words", "", "", ""),
    ("anySimpleType", "", "", ""),
    ("numbers", [], [], ""),
]


def comparable(value: Any) -> Any:
    """Return a value with the offset of its time zone, which is of pytz with zeep 4.2."""
    if not isinstance(value, tuple):
        return value
    return *value[:-1], None if value[-1] is None else value[-1].utcoffset(None)


@pytest.mark.parametrize(
    ("kind", "value", "arrives", "text"), [*((kind, value, value, text) for kind, value, text in SAME), *READ]
)
def test_there_and_back(kind: str, value: Any, arrives: Any, text: str, tmp_path: Path) -> None:
    """Whatever the type is, by any zeep: the text is that of the schema, and what arrives can be sent again."""
    path, seen = shop(tmp_path, kind), list[Any]()
    with (
        Broker("bare").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:shop", echoing(path, seen)),
        Client(path, connection=connection) as client,
    ):
        assert comparable(client.service.price(value)) == comparable(arrives)
        with client.settings(raw_response=True):
            response = client.service.price(value)
        made = client.create_message(client.service, "price", value)
    assert list(map(comparable, seen)) == [comparable(arrives)] * 2
    for octets, name in ((response.jms.request.body, "price"), (response.content, "priced")):
        assert etree.fromstring(octets).findtext(f".//{{{NS}}}{name}") == text
    assert made.findtext(f".//{{{NS}}}price") == text


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("gMonth", (-3, None), "price must be of type gMonth, got '---3'"),
        ("gYear", (2026,), "price must be of type gYear, got (2026,); it takes"),
        ("gYear", ("2026", None), "price must be of type gYear, got ('2026', None); it takes"),
        ("gYearMonth", (2026, None), "price must be of type gYearMonth, got (2026, None); it takes"),
        ("gYear", 26, "price must be of type gYear, got '26'"),
        ("gYear", (2026, ZoneInfo("Europe/Berlin")), "the time zone Europe/Berlin has no fixed offset"),
        ("gMonth", "3", "price must be of type gMonth, got '3'"),
        ("gDay", "---1", "price must be of type gDay, got '---1'"),
        ("numbers", ["a"], "price must be of type list of int, got 'a'"),
        ("some", ["a"], "price must be of type list of int, got 'a'"),
        ("fewer", [1.5], "price must be of type list of int, got '1.5'"),
        ("names", {"a": 7}, "price must be of type list of string, got {'a': 7}"),
        *(
            ("numbers", [1, each, 2], f", 2]: an item of a list must be a text without white space, got {shown(each)}")
            for each in (None, "", "2 3", "2\n", "\t")
        ),
        ("octets", [b""], "an item of a list must be a text without white space, got ''"),
        ("octets", [1], "price must be of type list of base64Binary, got [1]"),
        ("NMTOKENS", ["a b"], "price must be of type NMTOKENS, got ['a b']: an item of a list"),
        ("numbers", "1\u00a02", r"list of int, got '1\xa02'"),
        ("base64Binary", "AQ\u00a0ID", r"price must be of type base64Binary, got 'AQ\xa0ID'"),
        ("either", "x", "price must be of type int or boolean, got 'x'"),
        ("numbers", {"a": 7}, "got {'a': 7}"),
        ("numbers", 7.5, "got '7.5'"),
        ("int", "x", "price must be of type int, got 'x'"),
    ],
)
def test_what_is_no_value(kind: str, value: Any, said: str, tmp_path: Path) -> None:
    """It is refused before anything is sent, with the value and what the operation takes."""
    path = shop(tmp_path, kind)
    with (
        Broker("bare").connect() as connection,
        Client(path, connection=connection) as client,
        pytest.raises(soapjms.zeep.ArgumentsError) as caught,
    ):
        client.service.price(value)
    assert said in str(caught.value)
    assert "it takes: " in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        ("gYear", "price=2026", (2026, None)),
        ("numbers", "price=1 2", [1, 2]),
        ("numbers", "price:=[1, 2]", [1, 2]),
        ("NMTOKENS", 'price:=["a", "b"]', ["a", "b"]),
    ],
)
def test_as_words(kind: str, word: str, value: Any, tmp_path: Path) -> None:
    """`soapjms call` takes the text, and JSON for a list."""
    with Broker("bare").connect() as connection, Client(shop(tmp_path, kind), connection=connection) as client:
        operation = client.service._binding.get("price")
        assert arguments_of(operation, read_words([word])) == ([value], {})


def test_every_built_in_type_is_tried() -> None:
    """But those that only mean something within a document, or that nobody has: they are texts as NMTOKEN is."""
    tried = {kind for kind, *_ in SAME}
    names = {etree.QName(name).localname for name in default_types}
    assert names - tried == {"anyType", "QName", "NOTATION", "IDREF", "IDREFS", "ENTITY", "ENTITIES"}


@pytest.mark.parametrize(("nil", "value"), [("false", []), ("true", None)])
def test_an_empty_list(nil: str, value: Any, tmp_path: Path) -> None:
    """It is None only if xsi:nil says so."""
    content = f'<priced xmlns="{NS}" xmlns:x="http://www.w3.org/2001/XMLSchema-instance" x:nil="{nil}"/>'
    with Broker("bare").connect() as connection, Client(shop(tmp_path, "numbers"), connection=connection) as client:
        output = client.service._binding.get("price").output
        assert value_in(soapjms.envelope(etree.fromstring(content)), output) == value


def test_an_attachment(tmp_path: Path) -> None:
    """In such an element too."""
    path, seen = shop(tmp_path, "base64Binary"), list[Any]()
    with (
        Broker("bare").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:shop", echoing(path, seen)),
        Client(path, connection=connection) as client,
    ):
        assert client.service.price(soapjms.Attachment(b"abc")) == b"abc"
    assert seen == [b"abc"]


def test_the_detail_of_a_fault(tmp_path: Path) -> None:
    """Which is an element of a simple type."""
    text = shop_wsdl().replace('name="Closed" type="xs:string"', 'name="Closed" type="xs:base64Binary"')
    service = soapjms.Service.from_wsdl(written(tmp_path, text))

    @service.operation("price")
    def price(code: str) -> Decimal:
        raise service.fault("order/Closed", b"abc")

    with (
        Broker("bare").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:shop", service),
        Client(written(tmp_path, text), connection=connection) as client,
        pytest.raises(soapjms.zeep.JmsFaultError) as caught,
    ):
        client.service.price("A1")
    assert caught.value.detail[0].text == "YWJj"
