"""Values that are not of their type are refused, on their way out and in; in each style of WSDL."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zeep
from calling_kit import SOAP_11, answer_to, responder
from lxml import etree
from zeep_kit import NS, gallery_wsdl, written
from zeep_kit import TYPES as GALLERY

from brokers import Connection, queue
from brokers.embedded import Broker
from soapjms import Dispatcher, Request, Service
from soapjms.protocol.names import REC_NAMESPACE
from soapjms.zeep import ArgumentsError, Client, JmsTransportError

XS = "http://www.w3.org/2001/XMLSchema"


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Return a connection to a broker of the test's own."""
    with Broker("checking").connect() as connection:
        yield connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the WSDL of the gallery."""
    return written(tmp_path, gallery_wsdl())


# Out


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"year": "abc"}, r"hang: hang\.work\.year must be of type int, got 'abc'; it takes: work: ns0:Work"),
        ({"year": True}, r"hang\.work\.year must be of type int, got 'true'"),
        ({"year": 18.89}, r"hang\.work\.year must be of type int, got '18\.89'"),
        ({"year": "9" * 1000 + "!"}, r"hang\.work\.year must be of type int, got '9+…?'?…?"),
        ({"year": 1, "sold": "1889-13-01"}, r"hang\.work\.sold must be of type date, got '1889-13-01'"),
        ({"year": 1, "sold": 5}, r"hang: hang\.work\.sold must be of type date, got '5'; it takes"),
        ({"year": 1, "scan": 5}, r"hang: hang\.work\.scan must be of type base64Binary, got 5; it takes"),
        ({"year": 1, "scan": "abcde"}, r"hang\.work\.scan must be of type base64Binary, got 'abcde'"),
        ({"year": 1, "scan": "abcd!"}, r"hang\.work\.scan must be of type base64Binary, got 'abcd!'"),
        (5, "hang: .*; it takes: work: ns0:Work"),
    ],
)
def test_wrong_values(connection: Connection, path: Path, work: Any, said: str) -> None:
    """Nothing is sent; the message says which value, and what it should be."""
    with Client(path, connection=connection) as client, pytest.raises((ArgumentsError, ValueError), match=said):
        client.service.hang(work)


@pytest.mark.parametrize(
    "work",
    [
        {"year": 1889},
        {"year": "1889"},
        {"year": -1, "sold": datetime.date(1889, 6, 1), "scan": b""},
        {"year": 0, "sold": "1889-06-01", "scan": "cGljdHVyZQ=="},
    ],
)
def test_right_values(connection: Connection, path: Path, work: Any) -> None:
    """Whatever zeep takes for a type, if it comes to a text of that type."""
    service = Service()
    seen = []

    @service.operation(f"{{{NS}}}hang")
    def hang(request: Request) -> etree._Element:
        seen.append(request.findtext(f".//{{{NS}}}year"))
        return etree.fromstring(f'<hung xmlns="{NS}"><place>wall</place></hung>')

    with Dispatcher(connection, "jms:queue:gallery", service), Client(path, connection=connection) as client:
        assert client.service.hang(work) == "wall"
    assert seen == [str(work["year"])]


def test_wrong_values_where_anything_goes(connection: Connection, path: Path) -> None:
    """Without `strict` they are the service's business."""
    settings = zeep.Settings(strict=False)
    with (
        Client(path, connection=connection, settings=settings, operation_timeout=0.01) as client,
        pytest.raises(TimeoutError),
    ):
        client.service.hang({"year": "abc"})


# In, and in other styles


TYPES = f"""<xs:schema xmlns:xs="{XS}" targetNamespace="urn:bank" elementFormDefault="qualified">
  <xs:element name="amount" type="xs:decimal"/><xs:element name="when" type="xs:dateTime"/></xs:schema>"""
PARTS = {
    "rpc": '<wsdl:part name="amount" type="xs:decimal"/><wsdl:part name="when" type="xs:dateTime"/>',
    "document": '<wsdl:part name="amount" element="b:amount"/><wsdl:part name="when" element="b:when"/>',
}


def bank_wsdl(style: str) -> str:
    """Write a WSDL with one operation of two parts, in and out."""
    body = '<s:body use="literal" namespace="urn:bank"/>' if style == "rpc" else '<s:body use="literal"/>'
    return f"""\
<wsdl:definitions targetNamespace="urn:bank" xmlns:b="urn:bank" xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/"
    xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:xs="{XS}">
  <wsdl:types>{TYPES}</wsdl:types>
  <wsdl:message name="pay">{PARTS[style]}</wsdl:message>
  <wsdl:portType name="Bank"><wsdl:operation name="pay"><wsdl:input message="b:pay"/><wsdl:output message="b:pay"/>
  </wsdl:operation></wsdl:portType>
  <wsdl:binding name="Bank" type="b:Bank"><s:binding style="{style}" transport="{REC_NAMESPACE}"/>
    <wsdl:operation name="pay"><s:operation/><wsdl:input>{body}</wsdl:input><wsdl:output>{body}</wsdl:output>
    </wsdl:operation></wsdl:binding>
  <wsdl:service name="Bank"><wsdl:port name="Bank" binding="b:Bank"><s:address location="jms:queue:bank"/></wsdl:port>
  </wsdl:service>
</wsdl:definitions>"""


BODIES = {
    "rpc": '<x:anyName xmlns:x="urn:other"><amount>{}</amount><when>{}</when></x:anyName>',
    "document": '<amount xmlns="urn:bank">{}</amount><when xmlns="urn:bank">{}</when>',
}
WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (("7.5", "2026-01-02T03:04:05"), None),
        (("7,5", "2026-01-02T03:04:05"), "amount must be of type decimal, got '7,5'"),
        (("7.5", "yesterday"), "when must be of type dateTime, got 'yesterday'"),
        (("", "2026-01-02T03:04:05"), "amount must be of type decimal, got ''"),
    ],
)
@pytest.mark.parametrize("style", ["rpc", "document"])
def test_other_styles(
    connection: Connection, tmp_path: Path, style: str, said: tuple[str, str], wrong: str | None
) -> None:
    """RPC, whose response is called anything, and a document with several parts: both ways."""
    body = BODIES[style].format(*said)
    answer = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body>{body}</e:Body></e:Envelope>'.encode()
    with (
        responder(connection, queue("bank"), lambda request: [answer_to(request, body=answer)]),
        Client(written(tmp_path, bank_wsdl(style)), connection=connection) as client,
    ):
        with pytest.raises(ArgumentsError, match=r"pay: (pay\.)?amount must be of type decimal, got 'much'"):
            client.service.pay(amount="much", when=WHEN)
        if wrong is None:
            found = client.service.pay(amount="7.5", when=WHEN)
            assert (str(found.amount), found.when) == (said[0], WHEN)
        else:
            with pytest.raises(JmsTransportError, match=f"the response to pay does not fit the WSDL: .*{wrong}"):
                client.service.pay(amount=7, when=WHEN)


def hung(connection: Connection, folder: Path, inside: str, place: str) -> Any:
    """Return what a client makes of a response with a place, where the WSDL says what a response consists of."""
    types = GALLERY.replace('<xs:element name="place" type="xs:string"/>', inside) + SPOT
    body = f'<hung xmlns="{NS}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xs="{XS}">{place}</hung>'
    answer = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body>{body}</e:Body></e:Envelope>'.encode()
    with (
        responder(connection, queue("gallery"), lambda request: [answer_to(request, body=answer)]),
        Client(written(folder, gallery_wsdl(types=types)), connection=connection) as client,
    ):
        return client.service.hang({"year": 1})


PLACE = '<xs:element name="place" type="xs:int"/>'
SPOT = f'<xs:group name="Spot"><xs:sequence>{PLACE}</xs:sequence></xs:group>'


@pytest.mark.parametrize(
    "inside",
    [
        f'<xs:sequence maxOccurs="unbounded">{PLACE}</xs:sequence>',
        f'<xs:choice maxOccurs="unbounded"><xs:sequence>{PLACE}</xs:sequence><xs:element name="x"/></xs:choice>',
        '<xs:group ref="g:Spot"/>',
    ],
)
def test_within_each_other(connection: Connection, tmp_path: Path, inside: str) -> None:
    """Wherever in sequences, choices and groups an element stands: zeep would read it as nothing."""
    assert "5" in str(hung(connection, tmp_path, inside, "<place>5</place>"))
    for place in ("<place>5</place><place>five</place>", '<place xmlns="">five</place>'):
        with pytest.raises(JmsTransportError, match=r"hung\.place(\[2\])? must be of type int, got 'five'"):
            hung(connection, tmp_path, inside, place)


@pytest.mark.parametrize("type_", ["xs:string", "xs:anyType"])
def test_elements_that_say_their_type(connection: Connection, tmp_path: Path, type_: str) -> None:
    """An xsi:type counts; one that nobody knows is zeep's business."""
    inside = f'<xs:element name="place" type="{type_}"/>'
    assert hung(connection, tmp_path, inside, '<place xsi:type="xs:token">wall</place>') == "wall"
    assert hung(connection, tmp_path, inside, '<place xsi:type="xs:int">5</place>') == 5
    for kind in ("int", "decimal", "dateTime"):
        with pytest.raises(JmsTransportError, match=f"hung.place must be of type {kind}, got 'wall'"):
            hung(connection, tmp_path, inside, f'<place xsi:type="xs:{kind}">wall</place>')


@pytest.mark.parametrize("text", ["!!!!", "cGlj!dHVyZQ==", "cGljdHVyZQ==cGlj", "cGljdHVyZQ", "=cGlj", "cG\u00e9j"])
def test_text_that_is_not_base64(connection: Connection, tmp_path: Path, text: str) -> None:
    """It is an error, and not whatever is left without what is none of it; white space is no harm."""
    inside = '<xs:element name="place" type="xs:base64Binary"/>'
    assert hung(connection, tmp_path, inside, "<place>cGlj dHVy\n ZQ==</place>") == b"picture"
    with pytest.raises(JmsTransportError, match=r"hung\.place must be of type base64Binary, got '.*'"):
        hung(connection, tmp_path, inside, f"<place>{text}</place>")
