"""Values arrive as they were given, or are refused with the name of their element: both ways, on each side."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
import zeep
from calling_kit import SOAP_11, answer_to, responder
from lxml import etree
from typed_kit import NS, fault_to, shop_wsdl
from zeep_kit import written

import soapjms
from brokers import Connection, queue
from brokers.embedded import Broker
from soapjms.service.typed import TypedService
from soapjms.zeep import ArgumentsError, Client, JmsTransport, JmsTransportError
from soapjms.zeep.words import arguments_of, read_words

TYPES: Final = (
    "string boolean decimal int double date time dateTime duration hexBinary base64Binary gMonth anyType".split()
)
XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"


class Colour(enum.StrEnum):
    """Texts with names."""

    RED = "red"


class Mixed(str, enum.Enum):  # noqa: UP042  # as programs for older Pythons have it
    """The same, whose `str` is the name."""

    RED = "red"


class Plain(enum.Enum):
    """Names only."""

    RED = "red"


EITHER: Final = """<xs:simpleType><xs:restriction><xs:simpleType><xs:union memberTypes="xs:string xs:int"/>
    </xs:simpleType></xs:restriction></xs:simpleType>"""


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Return a connection to a broker of the test's own."""
    with Broker("values").connect() as connection:
        yield connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a WSDL whose operation `price` takes and returns an element of each type, and attributes."""
    elements = "".join(f'<xs:element name="{each}" type="xs:{each}" minOccurs="0"/>' for each in TYPES)
    elements += '<xs:element name="preset" type="xs:int" default="7" minOccurs="0"/>'
    elements += '<xs:element name="same" type="xs:int" fixed="8" minOccurs="0"/>'
    elements += '<xs:element name="word" type="xs:string" default="none" minOccurs="0"/>'
    elements += '<xs:element name="null" type="xs:int" nillable="true" minOccurs="0"/>'
    elements += f'<xs:element name="either" nillable="true" minOccurs="0">{EITHER}</xs:element>'
    more = '<xs:attribute name="paid" type="xs:boolean"/><xs:attribute name="rate" type="xs:decimal"/>'
    kind = f"<xs:complexType><xs:sequence>{elements}</xs:sequence>{more}</xs:complexType>"
    text = shop_wsdl()
    for name, old in (("price", "b:Code"), ("priced", "xs:decimal")):
        text = text.replace(
            f'<xs:element name="{name}" type="{old}"/>', f'<xs:element name="{name}">{kind}</xs:element>'
        )
    return written(tmp_path, text)


def sent(connection: Connection, path: Path, *values: Any, **named: Any) -> etree._Element:
    """Call, and return the element that was sent."""
    with (
        responder(connection, queue("shop"), lambda request: [answer_to(request, body=envelope("<priced/>"))]),
        Client(path, connection=connection) as client,
        client.settings(raw_response=True),
    ):
        body = client.service.price(*values, **named).jms.request.body
    return etree.fromstring(body).find(f".//{{{NS}}}price")


def envelope(body: str) -> bytes:
    """Write an envelope with a body."""
    text = body.replace(" ", f' xmlns="{NS}" ', 1) if body.startswith("<priced ") else body
    text = text.replace("<priced>", f'<priced xmlns="{NS}">').replace("<priced/>", f'<priced xmlns="{NS}"/>')
    return f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body>{text}</e:Body></e:Envelope>'.encode()


def received(connection: Connection, path: Path, body: str) -> Any:
    """Return what a client makes of a response."""
    with (
        responder(connection, queue("shop"), lambda request: [answer_to(request, body=envelope(body))]),
        Client(path, connection=connection) as client,
    ):
        return client.service.price()


DAY = datetime.date(2026, 1, 2)
CLOCK = datetime.time(1, 2)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5)
REFUSED: list[tuple[str, Any]] = [
    *(("boolean", each) for each in ("no", "yes", "TRUE", "", 2, 1.0, [], object())),
    *(
        ("decimal", each)
        for each in (float("nan"), float("inf"), Decimal("NaN"), "1e3", "1_000", "١", "", True, MOMENT)
    ),
    *(("int", each) for each in ("1_0", "1.0", 1.0, 1e22, "٣", True, Decimal("5.9"), DAY)),
    *(("double", each) for each in ("nan", "Infinity", "1_0", True)),
    *(("date", each) for each in (CLOCK, MOMENT, 5, "20260102", "2026-W01-1", "2026-02-30")),
    *(("time", each) for each in (DAY, MOMENT, 5, "25:00", "1:2", CLOCK.replace(tzinfo=ZoneInfo("Europe/Berlin")))),
    *(("dateTime", each) for each in (DAY, CLOCK, 5, "2026-01-02", "2026-01-02 03:04:05")),
    *(("duration", each) for each in (5, "P1W", "PT", "1 day")),
    *(("hexBinary", each) for each in ("F", "XY", 5.5, 12, True, Decimal("1E+5"), [b"a"])),
    *(("base64Binary", each) for each in ("AQI", "AQ\u00a0ID", 5.5, 1234, True, Decimal("1E+3"), DAY, [b"a"])),
    *(("gMonth", each) for each in ("3", 3, (3,), (3, "Z"))),
    *(("string", each) for each in (object(), print, ["a"], {"a": 1}, ("a",), Plain.RED, etree.Element("a"))),
    *(("anyType", each) for each in (object(), ["a"], Plain.RED, etree.Element("a"))),
    *(("string", each) for each in ("a\0b", "a\x1bb", "\ud800", "\ufffe")),
    *(("paid", each) for each in ("no", 2, object())),
    *(("rate", each) for each in ("1_000", float("nan"), [1])),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_not_sent(connection: Connection, path: Path, name: str, value: Any) -> None:
    """The error names the element and its type, and nothing is sent."""
    kind = {"paid": "boolean", "rate": "decimal"}.get(name, name)
    with pytest.raises(
        ArgumentsError, match=rf"price\.{name} must be of type (xsd:)?{kind}, got .*; it takes: "
    ) as caught:
        sent(connection, path, **{name: value})
    assert "object has no attribute" not in str(caught.value)


def test_a_character_that_xml_cannot_hold(connection: Connection, path: Path) -> None:
    """It is named."""
    with pytest.raises(ArgumentsError, match=r"got 'a\\x00b': XML cannot hold the character '\\x00'"):
        sent(connection, path, string="a\0b")


ZONE = datetime.timezone(datetime.timedelta(hours=-5))
IDENTITY = uuid.UUID(int=7)
WRITTEN: list[tuple[str, Any, str]] = [
    ("boolean", True, "true"),
    ("boolean", 0, "0"),
    ("boolean", "false", "false"),
    ("decimal", 0.00001, "0.00001"),
    ("decimal", 1e22, "10000000000000000000000"),
    ("decimal", Decimal("1E+3"), "1000"),
    ("decimal", "1.50", "1.50"),
    ("decimal", 7, "7"),
    ("int", Decimal("1E+3"), "1000"),
    ("double", float("nan"), "NaN"),
    ("double", float("-inf"), "-INF"),
    ("double", 1e-5, "1e-05"),
    ("double", Decimal("-Infinity"), "-INF"),
    ("date", DAY, "2026-01-02"),
    ("date", datetime.date(900, 1, 2), "0900-01-02"),
    ("time", CLOCK, "01:02:00"),
    ("dateTime", MOMENT.replace(tzinfo=ZONE), "2026-01-02T03:04:05-05:00"),
    ("dateTime", MOMENT.replace(tzinfo=datetime.UTC), "2026-01-02T03:04:05Z"),
    ("duration", datetime.timedelta(hours=1), "PT1H"),
    ("duration", "P1M", "P1M"),
    ("hexBinary", b"\xff", "FF"),
    ("hexBinary", "ff", "ff"),
    ("base64Binary", b"\xff", "/w=="),
    ("base64Binary", "/w==", "/w=="),
    ("gMonth", (3, None), "--03"),
    ("string", "a", "a"),
    ("string", Colour.RED, "red"),
    ("string", Mixed.RED, "red"),
    ("string", IDENTITY, str(IDENTITY)),
    ("anyType", False, "false"),
    ("paid", False, "false"),
    ("rate", 0.00001, "0.00001"),
]
TEXTS: list[tuple[Any, str]] = [
    (7, "7"),
    (True, "true"),
    (Decimal("1E+3"), "1000"),
    (1e-05, "1e-05"),
    (float("inf"), "INF"),
    (Decimal("Infinity"), "INF"),
    (DAY, "2026-01-02"),
    (MOMENT, "2026-01-02T03:04:05"),
    (CLOCK, "01:02:00"),
]
"""Numbers and dates in place of a text, and the form that they have in XML."""


@pytest.mark.parametrize(("name", "value", "text"), [*WRITTEN, *(("string", *each) for each in TEXTS)])
def test_what_is_sent(connection: Connection, path: Path, name: str, value: Any, text: str) -> None:
    """It has the form of XML Schema."""
    element = sent(connection, path, **{name: value})
    assert element.get(name, element.findtext(f"{{{NS}}}{name}")) == text


def test_anything_with_a_type(connection: Connection, path: Path) -> None:
    """A value of xs:anyType that states its type is checked for that."""
    with pytest.raises(ArgumentsError, match=r"price\.anyType must be of type boolean, got 'no'"):
        sent(connection, path, anyType=zeep.xsd.AnyObject(zeep.xsd.Boolean(), "no"))
    assert sent(connection, path, anyType=zeep.xsd.AnyObject(zeep.xsd.Boolean(), False))[0].text == "false"


def test_too_many_values(connection: Connection, path: Path) -> None:
    """How many there may be is said, not which function of zeep counts them."""
    with pytest.raises(
        ArgumentsError, match="price: it takes at most 20 values by position, got 21; it takes: string: "
    ):
        sent(connection, path, *[None] * 21)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("boolean", each) for each in ("TRUE", "yes", "2", "")),
        *(("decimal", each) for each in ("NaN", "Infinity", "1_000", "1e3", "١", "")),
        *(("int", each) for each in ("1_0", "5.7", "٣", "", "9" * 5000)),
        *(("double", each) for each in ("nan", "1_0", "")),
        *(("date", each) for each in ("2026-W01-1", "20260101", "2026-02-30", "")),
        *(("dateTime", each) for each in ("2026-01-02", "2026-01-02 03:04:05")),
        ("duration", "P1W"),
        ("hexBinary", "XY"),
        ("base64Binary", "AQ\u00a0ID"),
    ],
)
def test_what_is_not_read(connection: Connection, path: Path, name: str, text: str) -> None:
    """A response with a text that is not of its type is an error, not another value."""
    said = rf"the response to price does not fit the WSDL: priced\.{name} must be of type {name}, got '.*'"
    with pytest.raises(JmsTransportError, match=said):
        received(connection, path, f"<priced><{name}>{text}</{name}></priced>")


@pytest.mark.parametrize(("name", "text"), [("paid", "TRUE"), ("rate", "1_000"), ("rate", "NaN")])
def test_attributes_that_are_not_read(connection: Connection, path: Path, name: str, text: str) -> None:
    """An attribute is as good as an element."""
    with pytest.raises(JmsTransportError, match=rf"priced\.{name} must be of type \w+, got '{text}'"):
        received(connection, path, f'<priced {name}="{text}"/>')


def test_what_is_read(connection: Connection, path: Path) -> None:
    """White space does not matter; nothing is read of an element with xsi:nil."""
    inside = "<boolean> 1 </boolean><decimal>\n+.50 </decimal><date>2026-01-02</date><null {nil}/><either {nil}/>"
    inside = inside.replace("{nil}", f'x:nil="true" xmlns:x="{XSI}"')
    found = received(connection, path, f'<priced paid=" true " rate="1.50">{inside}</priced>')
    assert (found.boolean, found.decimal, found.date, found.paid, found.rate) == (
        True,
        Decimal("0.50"),
        DAY,
        True,
        Decimal("1.50"),
    )
    assert (found.null, found.either) == (None, None)


def test_empty_elements(connection: Connection, path: Path) -> None:
    """They have the default or the fixed value of the schema, or an empty text if there is none."""
    found = received(connection, path, "<priced><string/><preset/><same/><word/><either/></priced>")
    assert (found.string, found.preset, found.same, found.word, found.either) == ("", 7, 8, "none", "")
    found = received(connection, path, f'<priced><preset x:nil=" 1 " xmlns:x="{XSI}"/></priced>')
    assert found.preset is None
    assert sent(connection, path, preset="", same="")[0].text is None


def test_fixed_values_without_our_client(connection: Connection, path: Path) -> None:
    """`JmsTransport` knows them too."""
    transport = JmsTransport(connection)
    answer = envelope("<priced><same/></priced>")
    with (
        responder(connection, queue("shop"), lambda request: [answer_to(request, body=answer)]),
        closing(transport),
    ):
        assert zeep.Client(str(path), transport=transport).service.price().same == 8


# Services


def answering(path: Path, answer: Any) -> TypedService:
    """Make a service whose function returns a value."""
    service = soapjms.Service.from_wsdl(path, validate=False)
    service.operation("price")(lambda **values: answer)
    return service


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_not_answered(path: Path, name: str, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The caller learns that the service failed, and the log which element."""
    assert fault_to(answering(path, {name: value}), "<price/>").reason == "the service failed"
    assert f"the result of the function for price does not fit the WSDL: priced.{name} must be of type " in caplog.text


def test_one_element_in_a_dict(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A function whose response has one element returns its value; what to write instead of a dict is said."""
    service = soapjms.Service.from_wsdl(written(tmp_path, shop_wsdl()))
    service.operation("stock")(lambda: {"code": "A1"})
    assert fault_to(service, "").reason == "the service failed"
    assert "the value of code must be returned itself, not in a dict, got {'code': 'A1'}" in caplog.text


@pytest.mark.parametrize("word", ["decimal=1_000", "decimal=NaN", "int=1_0", "date=20260102", "boolean=yes"])
def test_words(connection: Connection, path: Path, word: str) -> None:
    """Texts of a command line are of the type too."""
    name, _, text = word.partition("=")
    with (
        Client(path, connection=connection) as client,
        pytest.raises(soapjms.UsageError, match=f"{name} must be of type {name}, got '{text}'"),
    ):
        arguments_of(client.service._binding.get("price"), read_words([word]))
