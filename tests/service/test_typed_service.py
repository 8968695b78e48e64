"""Typed services: functions with Python values, by the types of the WSDL. What does not fit: test_typed_checks.py."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from calling_kit import SOAP_11, SOAP_12
from lxml import etree
from places import ROOT
from typed_kit import CODE, NS, answer_to, fault_to, shop, shop_wsdl
from zeep_kit import ECHO, HTTP, PROPERTIES, binding, gallery_wsdl, port, written

from soapjms import InvalidWsdlError, Policy, Reply, Request, Service, SoapVersion, UsageError
from soapjms.protocol.envelope import Envelope
from soapjms.protocol.errors import InvalidUriError
from soapjms.service.typed import TypedService

BOTH = [SOAP_11, SOAP_12]
ORDER = "<order urgent='1'><item><article>A1</article><pieces>2</pieces><price>1.50</price></item>{}</order>"


def texts(envelope: Envelope) -> dict[str, str | None]:
    """Return what an answer has below its element."""
    assert envelope.content is not None
    return {etree.QName(each).localname: each.text for each in envelope.content}


class TestValues:
    """What functions get and return, in each style."""

    @pytest.mark.parametrize("version", BOTH)
    def test_document(self, tmp_path: Path, version: SoapVersion) -> None:
        """Elements and attributes by name, in their types; a word of Python's has an underscore; a dict goes back."""
        service, seen = shop(tmp_path, version), list[Any]()

        @service.operation("order")
        def order(
            item: list[Any], from_: datetime.date | None, urgent: bool | None, discount: Decimal | None
        ) -> dict[str, Any]:
            seen.append((item[0].article, item[0].pieces, item[0].price, from_, urgent))
            return {"number": "N1", "pieces": sum(each.pieces for each in item)}

        made = answer_to(service, ORDER.format("<from>2024-02-29</from>"), version)
        assert made.version is version
        assert texts(made) == {"number": "N1", "pieces": "2"}
        made = answer_to(service, ORDER.format("").replace(" urgent='1'", ""), version)
        day = datetime.date(2024, 2, 29)
        assert seen == [("A1", 2, Decimal("1.50"), day, True), ("A1", 2, Decimal("1.50"), None, None)]

    def test_other_version(self, tmp_path: Path) -> None:
        """A request of the SOAP version that the port does not have is answered in its own."""
        service = shop(tmp_path, SOAP_11)
        service.operation("price")(lambda code: Decimal(1))
        made = answer_to(service, "<price>A1</price>", SOAP_12)
        assert made.version is SOAP_12
        assert made.content is not None
        assert made.content.text == "1"

    def test_simple(self, tmp_path: Path) -> None:
        """A message of a simple type is one value, either way."""
        service = shop(tmp_path)

        @service.operation("price")
        def price(code: str) -> Decimal:
            return Decimal(len(code)) / 4

        made = answer_to(service, "<price>ABC</price>")
        assert made.content is not None
        assert (made.content.tag, made.content.text) == (f"{{{NS}}}priced", "0.75")

    def test_empty(self, tmp_path: Path) -> None:
        """An empty body is told by its action too; a response of one element is its value, here a list."""
        service = shop(tmp_path)
        service.operation("stock")(lambda: ["A1", "B2"])
        made = answer_to(service, "", action="urn:shop:stock")
        assert made.content is not None
        assert [each.text for each in made.content] == ["A1", "B2"]
        assert answer_to(service, "").content is not None

    def test_rpc(self, tmp_path: Path) -> None:
        """The parts by name; the wrapper of the response is called as WS-I says, not as the message is."""
        service = shop(tmp_path)

        @service.operation("move")
        def move(article: str, to: Any) -> int:
            assert article == "A1"
            return int(to.shelf) * 2

        body = f'<r:move xmlns:r="{NS}:rpc" xmlns=""><article>A1</article><to><shelf>4</shelf></to></r:move>'
        made = answer_to(service, body)
        assert made.content is not None
        assert made.content.tag == f"{{{NS}:rpc}}moveResponse"
        assert texts(made) == {"pieces": "8"}

    def test_object(self, tmp_path: Path) -> None:
        """An object of zeep's is as good as a dict; comments and processing instructions are nothing."""
        service = shop(tmp_path)

        @service.operation("order")
        def order(**values: Any) -> Any:
            assert sorted(values) == ["discount", "from_", "item", "urgent"]
            return service.types.get_element(f"{{{NS}}}ordered")(number="N1", pieces=values["item"][0].pieces)

        request = ORDER.format("").replace("<pieces>", "<!-- so many --><pieces><?a b?>")
        assert texts(answer_to(service, request)) == {"number": "N1", "pieces": "2"}

    @pytest.mark.parametrize("is_async", [False, True])
    def test_async(self, tmp_path: Path, is_async: bool) -> None:
        """A function may be `async`."""
        service = shop(tmp_path)

        async def later(code: str) -> Decimal:
            return Decimal(2)

        service.operation("price")(later if is_async else lambda code: later(code))
        made = answer_to(service, "<price>ABC</price>")
        assert made.content is not None
        assert made.content.text == "2"

    def test_request(self, tmp_path: Path) -> None:
        """`_request` is what functions of an untyped service get."""
        service, seen = shop(tmp_path), list[Request]()

        @service.operation("price", policy=Policy(retries=2))
        def price(code: str, _request: Request) -> Decimal:
            seen.append(_request)
            return Decimal(1)

        answer_to(service, "<price><!-- a -->ABC</price>", action="urn:shop:price")
        assert (seen[0].soap_action, seen[0].element.tag) == ("urn:shop:price", f"{{{NS}}}price")
        assert len(seen[0].element) == 1  # it is as it came


CONTENTS = {
    "repeated choice": (
        '<xs:choice maxOccurs="unbounded"><xs:element name="a" type="xs:int"/><xs:element name="b" type="xs:int"/>'
        "</xs:choice>",
        "<b>1</b><a>2</a>",
        {"_value_1": [{"b": 1}, {"a": 2}]},
    ),
    "choice": (
        '<xs:choice><xs:element name="a" type="xs:int"/><xs:element name="class" type="xs:int"/></xs:choice>',
        "<class>1</class>",
        {"a": None, "class_": 1},
    ),
    "simple content": (
        '<xs:simpleContent><xs:extension base="xs:int"><xs:attribute name="unit"/><xs:anyAttribute/></xs:extension>'
        "</xs:simpleContent>",
        "5",
        {"_value_1": 5, "unit": None, "_attr_1": None},
    ),
    "repeated group in a group": (
        '<xs:sequence><xs:element name="x" type="xs:int"/><xs:choice maxOccurs="2"><xs:element name="a" type="xs:int"/>'
        '<xs:element name="b" type="xs:int"/></xs:choice></xs:sequence>',
        "<x>0</x><b>1</b><a>2</a>",
        {"x": 0, "_value_1": [{"b": 1}, {"a": 2}]},
    ),
    "nothing": ("<xs:sequence/>", "", {}),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_contents(tmp_path: Path, content: str) -> None:
    """What zeep makes of other contents reaches the function, whole."""
    type_, inside, values = CONTENTS[content]
    text = shop_wsdl().replace(
        '<xs:element name="price" type="b:Code"/>',
        f'<xs:element name="price"><xs:complexType>{type_}</xs:complexType></xs:element>',
    )
    service, seen = Service.from_wsdl(written(tmp_path, text)), list[Any]()

    @service.operation("price")
    def price(**values: Any) -> Decimal:
        seen.append(values)
        return Decimal(1)

    made = answer_to(service, f"<price>{inside}</price>")
    assert made.content is not None
    assert made.content.text == "1"
    assert {name: seen[0][name] for name in values} == values


DERIVED = """<xs:element name="price" type="t:Base"/>
    <xs:complexType name="Base"><xs:sequence><xs:element name="a" type="xs:int"/></xs:sequence></xs:complexType>
    <xs:complexType name="More"><xs:complexContent><xs:extension base="t:Base"><xs:sequence>
    <xs:element name="b" type="xs:int"/></xs:sequence></xs:extension></xs:complexContent></xs:complexType>"""


def test_nothing_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A request of a derived type may have more than the function takes; that is not dropped in silence."""
    text = shop_wsdl().replace('<xs:element name="price" type="b:Code"/>', DERIVED)
    path, xsi = written(tmp_path, text), "http://www.w3.org/2001/XMLSchema-instance"
    request = f'<price xmlns:xsi="{xsi}" xmlns:t="{NS}" xsi:type="t:More"><a>1</a><b>2</b></price>'
    service, seen = Service.from_wsdl(path), list[Any]()
    service.operation("price")(lambda a: Decimal(a))
    assert answer_to(service, "<price><a>1</a></price>").content is not None
    assert fault_to(service, request).reason == "the service failed"
    assert "the request holds b, which the function does not take; give it **values" in caplog.text
    other = Service.from_wsdl(path)
    other.operation("price")(lambda a, **values: seen.append((a, values)) or Decimal(a))
    assert answer_to(other, request).content is not None
    assert seen == [(1, {"b": 2})]


@pytest.mark.parametrize(("name", "body"), [("move", "<move xmlns='urn:shop:rpc'/>"), ("stock", "")])
def test_an_answer_without_values(tmp_path: Path, name: str, body: str) -> None:
    """It has its wrapper in the RPC style, as WS-I Basic Profile R2729 says, and the headers of the function."""
    text = re.sub(r'(<w:message name="(move|moved|stocked)">).*?</w:message>', r"\1</w:message>", shop_wsdl())
    service = Service.from_wsdl(written(tmp_path, text))
    service.operation(name)(lambda: Reply(None, headers=[etree.Element("{urn:h}seen")]))
    made = answer_to(service, body, action=f"urn:shop:{name}")
    assert [str(each.tag) for each in made.body] == (["{urn:shop:rpc}moveResponse"] if name == "move" else [])
    assert made.header is not None
    assert [each.tag for each in made.header] == ["{urn:h}seen"]


class TestHeaders:
    """SOAP headers that the WSDL declares."""

    def test_in_and_out(self, tmp_path: Path) -> None:
        """They are values, by the names of their parts."""
        service = shop(tmp_path)

        @service.operation("order")
        def order(_soapheaders: Any, **values: Any) -> Reply:
            name = None if _soapheaders.customer is None else _soapheaders.customer.name
            return Reply({"number": name or "NOBODY", "pieces": 1}, headers={"till": 7})

        must = 'e:mustUnderstand="1"'
        made = answer_to(service, ORDER.format(""), header=f"<other/><customer {must}><name>ANN</name></customer>")
        assert texts(made)["number"] == "ANN"
        assert made.header is not None
        assert [(each.tag, each.text) for each in made.header] == [(f"{{{NS}}}till", "7")]
        assert texts(answer_to(service, ORDER.format("")))["number"] == "NOBODY"

    def test_elements(self, tmp_path: Path) -> None:
        """Others go out as elements."""
        service = shop(tmp_path)
        block = etree.Element("{urn:other}block")
        service.operation("order")(lambda **values: Reply({"number": "N1", "pieces": 1}, headers=[block]))
        made = answer_to(service, ORDER.format(""))
        assert made.header is not None
        assert [each.tag for each in made.header] == ["{urn:other}block"]

    def test_must_understand(self, tmp_path: Path) -> None:
        """A function that takes no headers processes none; what the WSDL does not declare has to be named."""
        service = shop(tmp_path)
        service.operation("order")(lambda **values: {"number": "N1", "pieces": 1})
        customer = '<customer e:mustUnderstand="1"><name>ANN</name></customer>'
        fault = fault_to(service, ORDER.format(""), header=customer)
        assert fault.code.endswith("}MustUnderstand")
        other = Service.from_wsdl(tmp_path / "shop.wsdl", understands=[f"{{{NS}}}customer"])
        other.operation("order")(lambda **values: {"number": "N1", "pieces": 1})
        assert texts(answer_to(other, ORDER.format(""), header=customer))["number"] == "N1"


class TestFaults:
    """Declared faults."""

    @pytest.mark.parametrize("version", BOTH)
    def test_raised(self, tmp_path: Path, version: SoapVersion) -> None:
        """The detail has the types of the WSDL."""
        service = shop(tmp_path, version)

        @service.operation("order")
        def order(**values: Any) -> None:
            raise service.fault("Sold", article="A1", _message="too late", _blame="Sender")

        fault = fault_to(service, ORDER.format(""), version)
        assert (fault.reason, fault.code) == (
            "too late",
            f"{{{version.namespace}}}" + ("Client" if version is SOAP_11 else "Sender"),
        )
        assert fault.detail is not None
        assert [(each.tag, each[0].text) for each in fault.detail] == [(f"{{{NS}}}Sold", "A1")]

    def test_returned(self, tmp_path: Path) -> None:
        """A fault may be returned; one of a simple type has a value; its name is its text by default."""
        service = shop(tmp_path)
        service.operation("order")(lambda **values: service.fault("order/Closed", "on Sundays"))
        fault = fault_to(service, ORDER.format(""))
        assert fault.reason == "order/Closed"
        assert fault.detail is not None
        assert [(each.tag, each.text) for each in fault.detail] == [(f"{{{NS}}}Closed", "on Sundays")]

    def test_not_there(self, tmp_path: Path) -> None:
        """A fault that is not there, or not so, is the program's mistake, and said at once."""
        service = shop(tmp_path)
        with pytest.raises(UsageError, match=r"no fault 'Lost'; there are: order/Sold, order/Closed, price/Closed"):
            service.fault("Lost")
        with pytest.raises(UsageError, match=r"several operations have a fault 'Closed'.*: order/Closed, price/Closed"):
            service.fault("Closed", "x")
        with pytest.raises(UsageError, match=r"the fault 'Text' has no part with an element"):
            service.fault("Text", "x")
        with pytest.raises(UsageError, match=r"the fault Sold does not fit the WSDL: .*pieces.*; it takes: article: "):
            service.fault("Sold", pieces=1)
        with pytest.raises(UsageError, match=r"Sold\.article: .*pattern"):
            service.fault("Sold", article="a1")
        with pytest.raises(UsageError, match=r"blame must be one of .*, got 'Nobody'"):
            service.fault("Sold", article="A1", _blame="Nobody")


class TestRegistering:
    """What is wrong with a function is said when it is registered."""

    @pytest.mark.parametrize(
        ("name", "function", "says"),
        [
            (
                "order",
                lambda item, from_, discount: None,
                "has no parameter urgent; add it, or **values for all missing ones",
            ),
            (
                "order",
                lambda item, from_, urgent, discount, more: None,
                "has more, which no request holds; also allowed: _request,",
            ),
            ("order", lambda: None, "takes, by the WSDL, (item: "),
            ("price", lambda: None, "is called with one value"),
            ("price", lambda code, more: None, "is called with one value"),
            ("price", lambda *, code: None, "is called with one value"),
            ("stock", lambda code: None, "has code, which no request holds"),
        ],
    )
    def test_signature(self, tmp_path: Path, name: str, function: Any, says: str) -> None:
        """Its parameters are those of the WSDL."""
        with pytest.raises(UsageError) as caught:
            shop(tmp_path).operation(name)(function)
        assert says in str(caught.value)

    def test_more_that_has_defaults(self, tmp_path: Path) -> None:
        """Parameters of its own have defaults; methods and `*values` are functions too."""

        class Functions:
            def move(self, article: str, to: Any, own: int = 1) -> int:
                return own

        service = shop(tmp_path)
        service.operation("move")(Functions().move)
        service.operation("price")(lambda *values: Decimal(len(values)))
        service.operation("stock")(lambda own=1: [f"A{own}"])
        body = f'<r:move xmlns:r="{NS}:rpc" xmlns=""><article>A1</article><to><shelf>4</shelf></to></r:move>'
        assert texts(answer_to(service, body)) == {"pieces": "1"}

    @pytest.mark.parametrize("name", ["greet", "{urn:shop}order", 7])
    def test_no_operation(self, tmp_path: Path, name: Any) -> None:
        """What the WSDL has not is refused with what it has."""
        with pytest.raises(
            UsageError, match=r"the port Shop has no operation .*; there are: order, price, stock, move"
        ):
            shop(tmp_path).operation(name)

    @pytest.mark.filterwarnings("ignore:The wsdl")  # zeep's, which knows less
    def test_an_operation_without_its_message(self, tmp_path: Path) -> None:
        """It is left out, and whoever asks for it is told the line of the WSDL and what there is."""
        service = Service.from_wsdl(written(tmp_path, shop_wsdl().replace('element="t:price"', 'element="t:prize"', 1)))
        said = (
            r"there are: order, stock, move; the WSDL is incomplete: .*:\d+: element of part .*; name one that is there"
        )
        with pytest.raises(UsageError, match=said):
            service.operation("price")

    def test_a_binding_without_its_port_type(self, tmp_path: Path) -> None:
        """Such a WSDL is refused, with line and remedy."""
        text = shop_wsdl().replace(' type="t:', ' type="t:Not', 1)
        with pytest.raises(
            InvalidWsdlError, match=r"cannot be used: .*:\d+: type of binding .*; name one that is there"
        ):
            Service.from_wsdl(written(tmp_path, text))

    def test_twice(self, tmp_path: Path) -> None:
        """Each has one function; those that have none are known."""
        service = shop(tmp_path)
        service.operation("stock")(list)
        with pytest.raises(UsageError, match="the operation stock is registered already"):
            service.operation("stock")(list)
        assert service.missing == ("order", "price", "move")
        with pytest.raises(UsageError, match=r"action must be None, .* got 'urn:x'"):
            service.operation("price", action="urn:x")

    def test_encoded(self, tmp_path: Path) -> None:
        """What WS-I has ruled out is not served."""
        with pytest.raises(UsageError, match="the operation move must have use='literal' in the WSDL, got 'encoded'"):
            shop(tmp_path, use="encoded").operation("move")(lambda **values: 1)

    def test_no_input(self, tmp_path: Path) -> None:
        """There are no requests for what the service itself would begin."""
        text = shop_wsdl().replace(
            '<w:operation name="stock"><w:input message="t:nothing"/>', '<w:operation name="stock">'
        )
        before, after = text.split('<s:operation soapAction="urn:shop:stock" style="document"/>')
        after = after.replace('<w:input><s:body use="literal"/></w:input>', "", 1)
        service = Service.from_wsdl(written(tmp_path, before + after))
        with pytest.raises(UsageError, match="the operation stock has no input in the WSDL"):
            service.operation("stock")(list)

    def test_type_in_document_style(self, tmp_path: Path) -> None:
        """A part of the document style is an element."""
        path = tmp_path / "shop.wsdl"
        shop(tmp_path)
        path.write_text(path.read_text().replace('style="rpc"', 'style="document"'))
        with pytest.raises(UsageError, match=r"the part 'article' of the operation move has a type .* use style="):
            Service.from_wsdl(path).operation("move")(lambda **values: 1)


class TestWsdl:
    """Which WSDLs and ports, and writing them out."""

    def test_ports(self) -> None:
        """The only port, or one by its name."""
        assert Service.from_wsdl(ECHO[SOAP_12]).port.name == "EchoPort12"
        assert (
            Service.from_wsdl(str(PROPERTIES), port="EchoServiceQoS/PortOverService").port.address
            == "jms:queue:CXF.PROPS"
        )
        with pytest.raises(
            UsageError, match=r'more than one port .*EchoService/BindingOnly.* \(port="SERVICE/PORT"\)$'
        ):
            Service.from_wsdl(PROPERTIES)
        with pytest.raises(UsageError, match="no port 'Nowhere'"):
            Service.from_wsdl(PROPERTIES, port="Nowhere")

    def test_no_wsdl(self, tmp_path: Path) -> None:
        """A file that is none is refused with its name."""
        with pytest.raises(InvalidWsdlError, match=r"none\.wsdl' cannot be read"):
            Service.from_wsdl(tmp_path / "none.wsdl")

    def test_no_soap(self, tmp_path: Path) -> None:
        """A port that zeep does not know is refused with those it knows."""
        services = f'<wsdl:service name="Gallery">{port("Jms", "Jms", "jms:queue:gallery")}{port("Get", "Get", "x")}'
        text = gallery_wsdl(services=f"{services}</wsdl:service>").replace(
            "<wsdl:service", '<wsdl:binding name="Get" type="g:Gallery"/><wsdl:service'
        )
        path = written(tmp_path, text)
        with pytest.raises(UsageError, match=r"the port 'Get' has no SOAP binding .*; there are: Gallery/Jms"):
            Service.from_wsdl(path, port="Get")

    def test_imported(self, tmp_path: Path) -> None:
        """Schemas in files of their own: they import each other, and include one without a namespace of its own."""
        more = f"{NS}:more"
        files = {
            "base": f"""targetNamespace="{NS}:base"><xs:include schemaLocation="codes.xsd"/>
                <xs:import namespace="{more}" schemaLocation="more.xsd"/>""",
            "more": f"""targetNamespace="{more}" xmlns:b="{NS}:base">
                <xs:import namespace="{NS}:base" schemaLocation="base.xsd"/><xs:element name="more" type="b:Code"/>""",
            "codes": f'><xs:include schemaLocation="codes.xsd"/>{CODE}',
        }
        for name, text in files.items():
            schema = f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" {text}</xs:schema>'
            (tmp_path / f"{name}.xsd").write_text(schema)
        text = shop_wsdl(code="").replace(f'<xs:schema targetNamespace="{NS}:base"></xs:schema>', "")
        old = f'<xs:import namespace="{NS}:base"/>'
        service = Service.from_wsdl(written(tmp_path, text.replace(old, f'{old[:-2]} schemaLocation="base.xsd"/>')))
        service.operation("price")(lambda code: Decimal(1))
        assert answer_to(service, "<price>A1</price>").content is not None
        assert "price: " in fault_to(service, "<price>a1</price>").reason

    @pytest.mark.parametrize("version", BOTH)
    def test_written(self, tmp_path: Path, version: SoapVersion) -> None:
        """The WSDL goes out with another address for the port, and otherwise as it is."""
        service, out = Service.from_wsdl(ECHO[version]), tmp_path / "out.wsdl"
        described = service.write_wsdl(out, "jms:queue:other?priority=7&timeToLive=60000")
        assert described.port().address == "jms:queue:other?priority=7&timeToLive=60000"
        before, after = (each.read_text(encoding="utf-8").splitlines() for each in (ECHO[version], out))
        assert len([one for one, other in zip(before, after, strict=True) if one != other]) == 1
        assert service.write_wsdl(out).port().address == service.port.address
        assert out.read_bytes() == ECHO[version].read_bytes()

    def test_written_over(self, tmp_path: Path) -> None:
        """It may replace the file that it was read from; an address that is none changes nothing."""
        service = shop(tmp_path)
        path = tmp_path / "shop.wsdl"
        before = path.read_bytes()
        with pytest.raises(InvalidUriError):
            service.write_wsdl(path, "http://shop")
        assert path.read_bytes() == before
        service.write_wsdl(path, "jms:queue:elsewhere")
        assert Service.from_wsdl(path).port.address == "jms:queue:elsewhere"

    def test_written_for_http(self, tmp_path: Path) -> None:
        """A WSDL for HTTP gets a port of SOAP over JMS."""
        path = written(tmp_path, gallery_wsdl(bindings=binding("Web", "soap12", HTTP), services=WEB))
        service, out = Service.from_wsdl(path, port="Web"), tmp_path / "out.wsdl"
        with pytest.raises(UsageError, match="address must be given, as the port Web has no jms: address"):
            service.write_wsdl(out)
        described = service.write_wsdl(out, "jms:queue:gallery")
        assert (described.port().address, described.port().soap_version) == ("jms:queue:gallery", SOAP_12)
        assert Service.from_wsdl(out).missing == ("frame", "hang", "note")

    def test_several_parts(self, tmp_path: Path) -> None:
        """A body of several elements, which WS-I has ruled out and zeep reads: each by the name of its part."""
        text = shop_wsdl().replace(
            '<w:part name="p" element="t:price"/>',
            '<w:part name="code" element="t:price"/><w:part name="upto" element="t:priced"/>',
        )
        service = Service.from_wsdl(written(tmp_path, text))

        @service.operation("price")
        def price(code: str, upto: Decimal) -> Decimal:
            return upto + len(code)

        made = answer_to(service, "<price>A1</price><priced>2.5</priced>")
        assert made.content is not None
        assert made.content.text == "4.5"


WEB = f'<wsdl:service name="Gallery">{port("Web", "Web", "http://gallery/", "soap12")}</wsdl:service>'


def test_served_as_it_is() -> None:
    """`Service.from_wsdl` makes a `TypedService`, whose port is where it is served."""
    service = Service.from_wsdl(ECHO[SOAP_11])
    assert isinstance(service, TypedService)
    assert service.port.uri().destination == "CXF.ECHO"


def test_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What docs/services.md shows runs as it stands."""
    text = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")
    block = text.partition("```python\n")[2].partition("```")[0]
    call = """
        import soapjms.zeep
        with soapjms.zeep.Client("greeter.wsdl", connection=connection, operation_timeout=20) as client:
            print(client.service.greetMe(name="World"))
            client.service.pingMe("Ann")
    """
    (tmp_path / "greeter.wsdl").write_bytes((ROOT / "examples" / "greeter.wsdl").read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(compile(block.replace("        ...", call.strip("\n ").join(("        ", ""))), "services.md", "exec"), {})
    assert capsys.readouterr().out.startswith("Hello World\n")
