"""Operations whose request and response are one element of a simple type: what is given is what arrives, both ways."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from typed_kit import NS, shop_wsdl
from zeep_kit import written

import soapjms
from brokers.embedded import Broker
from soapjms.typed import TypedService
from soapjms.zeep import Client


def shop(folder: Path, kind: str) -> Path:
    """Write the WSDL of the shop, in which the price and what is asked for it are of some type."""
    text = shop_wsdl()
    for name, old in (("price", "b:Code"), ("priced", "xs:decimal")):
        text = text.replace(
            f'<xs:element name="{name}" type="{old}"/>', f'<xs:element name="{name}" type="xs:{kind}"/>'
        )
    return written(folder, text)


def echoing(path: Path, seen: list[Any]) -> TypedService:
    """Make a service that answers with what it was asked."""
    service = soapjms.Service.from_wsdl(path)

    @service.operation("price")
    def price(value: Any) -> Any:
        seen.append(value)
        return value

    return service


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("base64Binary", b"abc", "YWJj"),
        ("base64Binary", b"\xff", "/w=="),
        ("base64Binary", bytearray(b"abc"), "YWJj"),
        ("string", "A", "A"),
        ("string", "AB", "AB"),
        ("anyURI", "u", "u"),
        ("int", 0, "0"),
        ("decimal", Decimal("1.50"), "1.50"),
        ("boolean", False, "false"),
        ("date", datetime.date(2026, 1, 2), "2026-01-02"),
        ("duration", datetime.timedelta(days=1), "P1D"),
    ],
)
def test_there_and_back(kind: str, value: Any, text: str, tmp_path: Path) -> None:
    """Octets are in base64 once, a text may be of one character, and numbers and dates are read by any zeep."""
    path, seen = shop(tmp_path, kind), list[Any]()
    with (
        Broker("bare").connect() as connection,
        soapjms.Dispatcher(connection, "jms:queue:shop", echoing(path, seen)),
        Client(path, connection=connection) as client,
    ):
        assert client.service.price(value) == value
        with client.settings(raw_response=True):
            response = client.service.price(value)
    assert seen == [value, value]
    for octets, name in ((response.jms.request.body, "price"), (response.content, "priced")):
        assert etree.fromstring(octets).findtext(f".//{{{NS}}}{name}") == text


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
