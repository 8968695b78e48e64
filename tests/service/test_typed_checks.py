"""What typed services refuse: requests that do not fit the WSDL, and answers that do not."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from calling_kit import SOAP_11, SOAP_12
from service_kit import accepted
from typed_kit import CODE, NS, answer_to, fault_to, shop, shop_wsdl

from brokers.embedded import Broker
from soapjms import Dispatcher, InvalidWsdlError, Reply, Service, Services, SoapVersion
from soapjms.protocol.envelope import as_envelope, read_fault
from soapjms.service.request import Request
from soapjms.service.typed import TypedService

ITEM = "<item><article>A1</article><pieces>2</pieces></item>"
XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'


def served(folder: Path, answer: Any = None, *, version: SoapVersion = SOAP_11, validate: bool = True) -> TypedService:
    """Make a shop in which each operation answers with one and the same."""
    service = shop(folder, version, validate=validate)

    def same(*one: Any, **values: Any) -> Any:
        return answer

    for name in ("order", "price", "stock", "move"):
        service.operation(name)(same)
    return service


def rpc(inside: str, name: str = "move") -> str:
    """Write the body of an RPC request."""
    return f'<r:{name} xmlns:r="{NS}:rpc" xmlns="">{inside}</r:{name}>'


REQUESTS = [
    (f"<order>{ITEM}{ITEM.replace('2', 'two')}</order>", "order.item[2].pieces must be of type int, got 'two'"),
    (f"<order>{ITEM}{ITEM.replace('A1', 'a1')}</order>", "order.item[2].article: [facet 'pattern'] The value 'a1'"),
    (f"<order>{ITEM.replace('A1', 'ABCDEFGHI')}</order>", "order.item.article: [facet 'maxLength']"),
    (f"<order>{ITEM.replace('<pieces>2</pieces>', '')}</order>", "order.item: Missing child element(s). Expected is"),
    (f"<order>{ITEM}<more/></order>", f"order.more: This element is not expected. Expected is one of ( {{{NS}}}item,"),
    (f'<order urgent="perhaps">{ITEM}</order>', "order.urgent must be of type boolean, got 'perhaps'"),
    (f'<order slow="1">{ITEM}</order>', "order: attribute 'slow': The attribute 'slow' is not allowed"),
    ("<order/>", "order: Missing child element(s)"),
    (f"<order>{ITEM}</order><order/>", "the SOAP body has 2 elements; the WSDL says 1"),
    (f'<order {XSI} xsi:type="price">{ITEM}</order>', "order: "),
    ("<price>a1</price>", "price: [facet 'pattern']"),
    ("<price><a/></price>", "price.a: Element content is not allowed, because the type definition is simple"),
    (rpc("<article>A1</article>"), "move: Missing child element(s). Expected is ( to )"),
    (rpc("<article>A1</article><to><shelf>x</shelf></to>"), "move.to.shelf must be of type int, got 'x'"),
    (
        rpc("<to><shelf>1</shelf></to><article>A1</article>"),
        "move.to: This element is not expected. Expected is ( article )",
    ),
]


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
@pytest.mark.parametrize(("body", "says"), REQUESTS)
def test_requests(tmp_path: Path, version: SoapVersion, body: str, says: str) -> None:
    """A request that does not fit is the sender's mistake, and the fault says where."""
    fault = fault_to(served(tmp_path, version=version), body, version)
    assert says in fault.reason
    assert fault.reason.startswith("the request does not fit the WSDL: ")
    assert fault.code.endswith("}Client" if version is SOAP_11 else "}Sender")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (f"<order>{ITEM.replace('2', 'two')}</order>", "order.item.pieces must be of type int, got 'two'"),
        (f"<order>{ITEM}<more/></order>", "more"),
        (f'<order discount="much">{ITEM}</order>', "order.discount must be of type decimal, got 'much'"),
        (f'<order {XSI} xmlns:xs="http://www.w3.org/2001/XMLSchema" xsi:type="xs:string">x</order>', "its xsi:type is"),
    ],
)
def test_without_schema(tmp_path: Path, body: str, says: str) -> None:
    """Without validation it is what zeep's types say; facets are nobody's."""
    service = served(tmp_path, validate=False, answer={"number": "n1", "pieces": 1})
    assert says in fault_to(service, body).reason
    assert answer_to(service, f"<order>{ITEM.replace('A1', 'a1')}</order>").content is not None
    assert answer_to(served(tmp_path, 1, validate=False), rpc("<article>a</article>")).content is not None


def test_headers(tmp_path: Path) -> None:
    """So is a header that the WSDL declares."""
    fault = fault_to(served(tmp_path), f"<order>{ITEM}</order>", header="<customer><name>ann</name></customer>")
    assert fault.reason.startswith("the request does not fit the WSDL: Header.customer.name: [facet 'pattern']")


def test_no_operation(tmp_path: Path) -> None:
    """A request for what is not there is told what there is."""
    service = shop(tmp_path)
    service.operation("order")(lambda **values: None)
    fault = fault_to(service, "<prize>A1</prize>")
    assert fault.reason == f"no operation for the element {{{NS}}}prize; there are: order ({{{NS}}}order)"
    assert fault.code.endswith("}Client")
    reason = fault_to(served(tmp_path), f"<order>{ITEM}</order>", action="urn:shop:price").reason
    assert (
        reason
        == f"the soapAction 'urn:shop:price' goes with the element {{{NS}}}price, and the body holds {{{NS}}}order"
    )


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
@pytest.mark.parametrize(
    ("body", "name"), [("<price>A1</price>", "price"), ("", "stock"), (f"<order>{ITEM}</order>", "order")]
)
def test_an_operation_without_function(tmp_path: Path, version: SoapVersion, body: str, name: str) -> None:
    """A request for an operation of the WSDL is in order; that there is no function for it is the service's mistake."""
    service = shop(tmp_path, version)
    for several in (service, Services({"one": service}), Services({"one": service}, default="one")):
        fault = fault_to(several, body, version)
        assert f"the service has no function for the operation {name} of its WSDL" in fault.reason
        assert fault.code.endswith("}Server" if version is SOAP_11 else "}Receiver")


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_service_without_functions(tmp_path: Path, is_wrapped: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A warning says so when it starts, and which operations they are; one that is complete starts without a word."""
    lacking, complete = shop(tmp_path), served(tmp_path)
    lacking.operation("order")(lambda **values: None)
    middleware = [lambda request, call_next: call_next(request)] if is_wrapped else []
    with Broker("lacking").connect() as connection:
        with Dispatcher(connection, complete.port, complete, middleware=middleware):
            assert "no function" not in caplog.text
        with Dispatcher(connection, lacking.port, lacking, middleware=middleware):
            pass
        with Dispatcher(connection, "jms:queue:both", Services({"a": lacking, "b": complete}), middleware=middleware):
            pass
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert said == [
        "the service at queue:shop has no function for these operations of its WSDL: price, stock, move",
        "the service at queue:both has no function for these operations of its WSDL: a/price, a/stock, a/move",
    ]


ANSWERS: list[tuple[str, Any, str]] = [
    ("order", None, "Missing element"),
    ("order", "N1", "WSDL: the value must be a dict of the elements by name, got 'N1'"),
    ("order", {"number": "N1"}, "Missing element pieces"),
    ("order", {"number": "N1", "pieces": 1, "more": 2}, "more"),
    ("order", {"number": "N1", "pieces": "many"}, "ordered.pieces must be of type int, got 'many'"),
    ("order", {"number": "n1", "pieces": 1}, "ordered.number: [facet 'pattern']"),
    ("order", {"number": "N1", "pieces": 2**40}, "ordered.pieces: '1099511627776' is not a valid value"),
    ("order", Reply({"number": "N1", "pieces": 1}, headers={"till": "x"}), "till must be of type int, got 'x'"),
    ("order", Reply({"number": "N1", "pieces": 1}, headers={"nothing": 1}), "nothing"),
    ("price", "much", "priced must be of type decimal, got 'much'"),
    ("price", {"a": 1}, "priced must be of type decimal, got {'a': 1}"),
    ("stock", "A1B2C3D4E5", "stocked.code: [facet 'maxLength']"),
    ("stock", ["A1", "b2"], "stocked.code[2]: [facet 'pattern']"),
    ("move", None, "Missing element pieces"),
    ("move", 2**40, "moveResponse.pieces: '1099511627776' is not a valid value"),
]
BODIES = {
    "order": f"<order>{ITEM}</order>",
    "price": "<price>A1</price>",
    "stock": "",
    "move": rpc("<article>A1</article><to><shelf>1</shelf></to>"),
}


@pytest.mark.parametrize(("name", "answer", "says"), ANSWERS)
def test_answers(tmp_path: Path, name: str, answer: Any, says: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nonsense is the service's failure: its log says what, and what the WSDL wants; the caller learns no more."""
    fault = fault_to(served(tmp_path, answer), BODIES[name])
    assert (fault.reason, fault.code) == ("the service failed", f"{{{SOAP_11.namespace}}}Server")
    assert f"the result of the function for {name} does not fit the WSDL: " in caplog.text
    assert says in caplog.text
    assert "; it must return: " in caplog.text


def test_a_failure_is_one(tmp_path: Path) -> None:
    """Policies hold for it."""
    body = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body>{BODIES["price"]}</e:Body></e:Envelope>'
    event = accepted(body=body.replace("<price>", f'<price xmlns="{NS}">').encode())
    outcome = served(tmp_path, "much").perform(Request.of(event))
    assert "does not fit the WSDL" in str(outcome.failure)
    assert not outcome.keeps_effects


def test_one_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An operation without response returns nothing; of a message that does not fit the log says where."""
    text = shop_wsdl().replace('<w:output message="t:priced"/>', "")
    before, after = text.split('<w:output><s:body use="literal"/></w:output></w:operation><w:operation name="stock">')
    (tmp_path / "shop.wsdl").write_text(f'{before}</w:operation><w:operation name="stock">{after}')
    service, returned = Service.from_wsdl(tmp_path / "shop.wsdl"), list[Any]([None, 1])
    service.operation("price")(lambda code: returned.pop(0))
    assert answer_to(service, BODIES["price"]).content is None
    assert fault_to(service, BODIES["price"]).reason == "the service failed"
    assert "the function for price must return None, as the WSDL has no output, got 1" in caplog.text
    body = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body><price xmlns="{NS}">a</price></e:Body></e:Envelope>'
    service.answer(accepted(body=body.encode(), reply_to=None))
    assert "a fault, which goes to nobody: the request does not fit the WSDL: price: [facet" in caplog.text


def test_broken_schema(tmp_path: Path) -> None:
    """A schema that is none is refused when the service is made, with what is wrong and the way around it."""
    broken = CODE.replace('value="8"', 'value="eight"')
    with pytest.raises(InvalidWsdlError, match=r"shop\.wsdl: its schemas are not .*maxLength.*or use validate=False"):
        shop(tmp_path, code=broken)
    assert shop(tmp_path, code=broken, validate=False).missing


def test_a_type_that_is_not_there(tmp_path: Path) -> None:
    """A WSDL that refers to a type that it lacks is refused with its name and the type's."""
    with pytest.raises(
        InvalidWsdlError, match=r"shop\.wsdl cannot be used: .*:\d+: type of part .*\{urn:shop:base}Code'"
    ):
        shop(tmp_path, code="")


class TestHostile:
    """What a peer might try."""

    def test_many_mistakes(self, tmp_path: Path) -> None:
        """A hundred thousand mistakes take no longer than one: reading stops at the first."""
        service = served(tmp_path, validate=True)
        begun = time.process_time()
        fault = fault_to(service, f"<order>{ITEM}{'<more/>' * 100_000}</order>")
        assert "order.more: This element is not expected" in fault.reason
        assert time.process_time() - begun < 5

    def test_long_texts(self, tmp_path: Path) -> None:
        """What is repeated of a request is short."""
        assert len(fault_to(served(tmp_path), f"<price>{'a' * 100_000}</price>").reason) < 500
        assert len(fault_to(served(tmp_path), f"<order>{ITEM.replace('2', 'x' * 100_000)}</order>").reason) < 500

    def test_schema_location(self, tmp_path: Path) -> None:
        """Nothing is loaded because a request says where there are schemas."""
        other = tmp_path / "other.xsd"
        other.write_text(
            '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:other">'
            '<xs:element name="order" type="xs:string"/></xs:schema>'
        )
        location = f'{XSI} xsi:schemaLocation="urn:other {other.as_uri()}"'
        assert answer_to(served(tmp_path, Decimal(1)), f"<price {location}>A1</price>").content is not None
        assert "no operation" in fault_to(served(tmp_path), f'<order xmlns="urn:other" {location}>x</order>').reason

    @pytest.mark.parametrize("name", ["self", "_request", "__class__", "function", "_soapheaders"])
    def test_names(self, tmp_path: Path, name: str) -> None:
        """Elements whose names are words of ours do not fit, as no others would."""
        for validate in (True, False):
            fault = fault_to(served(tmp_path, validate=validate), f"<order>{ITEM}<{name}/></order>")
            assert name in fault.reason

    def test_an_answer_to_an_answer(self, tmp_path: Path) -> None:
        """A fault as a request is no operation."""
        body = "<e:Fault><faultcode>e:Server</faultcode><faultstring>x</faultstring></e:Fault>"
        made = answer_to(served(tmp_path), body)
        fault = read_fault(as_envelope(made.root))
        assert fault is not None
        assert fault.reason.startswith("no operation for the element")
