"""Calls between generated clients and generated services, and between each of them and zeep, through a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from calling_kit import fresh
from codegen_kit import BANK, generated, small_wsdl
from cxf_kit import ECHO
from lxml import etree
from places import ROOT
from typed_kit import shop_wsdl
from xsdata.models.datatype import XmlDate, XmlDateTime

import soapjms
import soapjms.zeep
from brokers.connection import Connection
from soapjms import CallFailedError, Dispatcher, Service, SoapFaultError, SoapVersion, UsageError
from soapjms.codegen import DeclaredFaultError


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Open a connection to a broker of one's own."""
    with soapjms.connect(f"embedded:{fresh('codegen')}") as opened:
        yield opened


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[ModuleType]:
    """Generate the package for the bank."""
    with generated(BANK, tmp_path) as package:
        yield package


def implemented(bank: ModuleType) -> Any:
    """Make an implementation of the bank, which keeps what it got in `seen`."""

    class Bank(bank.BankService):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def transfer(self, request: Any, *, session: Any, _request: soapjms.Request | None = None) -> Any:
            assert _request is not None
            self.seen += [request, session, _request.soap_action]
            if request.amount > 1000:
                refused = bank.TransferRefused(limit=Decimal(1000), class_value="retail")
                raise bank.TransferRefusedError(refused, "too much", blame="Sender")
            if request.amount < 0:
                raise SoapFaultError("no negative amounts", blame="Sender")
            receipt = bank.TransferResponse.Receipt(number=7, booked=XmlDateTime(2026, 11, 27, 10, 0, 0))
            return bank.TransferResponse(receipt=receipt, scan=request.scan)

        async def find(self, request: Any) -> Any:
            if request.number == 0:
                raise bank.ClosedError(bank.Closed(value="on Sundays"))
            return bank.Account(iban="DE1", owner=None, currency=bank.Currency.CHF)

        def import_(self, request: Any) -> None:
            self.seen.append(request)

        def reset(self) -> None:
            self.seen.append("reset")

        def convert(self, request: Any) -> Any:
            return bank.ConvertResponse(amount=request.amount * 2)

    return Bank()


def transfer(bank: ModuleType, amount: str = "12.50", **more: Any) -> Any:
    """Make a request with everything that a schema may say."""
    account = bank.Account2  # the type; an element is called Account too
    return bank.Transfer(
        amount=Decimal(amount),
        currency=bank.Currency.CLASS,
        from_value=account(iban="DE1", owner="Ann"),
        to=account(iban="DE2", owner=None, currency=bank.Currency.CHF),
        on_or_at=XmlDate(2026, 11, 27),
        **more,
    )


def test_round_trip(bank: ModuleType, connection: Connection) -> None:
    """Every kind of value arrives as it was sent: enumerations, choices, nil, lists, dates, octets, a header block."""
    implementation = implemented(bank)
    service = Service.from_wsdl(BANK, implementation)
    sent = transfer(bank, note=["a", ""], tags=["x", "y"], code_or_text=[1, "two", 3], scan=b"\x00\xff")
    with Dispatcher(connection, service.port, service, workers=1), bank.BankClient(connection) as client:
        got = client.transfer(sent, session=bank.Session(token="T"))
        assert implementation.seen == [sent, bank.Session(token="T"), "urn:bank:transfer"]
        assert got.receipt.number == 7
        assert got.scan == b"\x00\xff"
        assert client.find(bank.Find(number=1)) == bank.Account(iban="DE1", owner=None, currency=bank.Currency.CHF)
        assert client.reset() is None
        converted = client.convert(bank.Convert(amount=Decimal("1.5"), to=bank.Currency.VALUE_2))
        assert converted == bank.ConvertResponse(amount=Decimal("3.0"))
        client.import_(bank.Note(value="hello"))
        assert client.find(bank.Find(number=2)).iban == "DE1"
    assert implementation.seen[3:] == ["reset", bank.Note(value="hello")]


def test_subtypes(bank: ModuleType, connection: Connection) -> None:
    """A value of a derived type arrives as that type, by its xsi:type."""
    implementation = implemented(bank)
    service = Service.from_wsdl(BANK, implementation)
    savings = bank.SavingsAccount(iban="DE3", owner="Bob", rate=Decimal("0.01"))
    sent = transfer(bank)
    sent.to = savings
    with Dispatcher(connection, service.port, service), bank.BankClient(connection) as client:
        client.transfer(sent)
    assert implementation.seen[0].to == savings
    assert implementation.seen[1] is None  # there was no header block


def test_asyncio(bank: ModuleType, connection: Connection) -> None:
    """The same with await; calls run concurrently."""
    service = Service.from_wsdl(BANK, implemented(bank))

    async def main() -> None:
        async with bank.AsyncBankClient(connection) as client:
            got = await asyncio.gather(client.transfer(transfer(bank)), client.find(bank.Find(number=1)))
            assert [type(each).__name__ for each in got] == ["TransferResponse", "Account"]
            assert await client.reset() is None
            await client.import_(bank.Note(value="hello"))
            with pytest.raises(bank.TransferRefusedError):
                await client.transfer(transfer(bank, "2000"))
            waiting = asyncio.create_task(client.transfer(transfer(bank), timeout=60))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    with Dispatcher(connection, service.port, service):
        asyncio.run(main())


def test_faults(bank: ModuleType, connection: Connection) -> None:
    """A declared fault is its exception, with the dataclass of its detail; another one is a SoapFaultError."""
    service = Service.from_wsdl(BANK, implemented(bank))
    with Dispatcher(connection, service.port, service), bank.BankClient(connection) as client:
        with pytest.raises(bank.TransferRefusedError, match="too much") as refused:
            client.transfer(transfer(bank, "2000"))
        assert refused.value.detail == bank.TransferRefused(limit=Decimal(1000), class_value="retail")
        assert (refused.value.blame, refused.value.fault_name) == ("Sender", "TransferRefused")
        assert isinstance(refused.value, DeclaredFaultError)
        with pytest.raises(SoapFaultError, match="no negative amounts") as other:
            client.transfer(transfer(bank, "-1"))
        assert not isinstance(other.value, DeclaredFaultError)
        with pytest.raises(SoapFaultError) as undeclared:  # by Find, which another operation's fault is raised in
            client.find(bank.Find(number=0))
        assert not isinstance(undeclared.value, DeclaredFaultError)
        assert undeclared.value.detail[0].text == "on Sundays"


def test_requests_that_do_not_fit(bank: ModuleType, connection: Connection) -> None:
    """Values of other types are the caller's error and are not sent; the service refuses what breaks a facet."""
    implementation = implemented(bank)
    service = Service.from_wsdl(BANK, implementation)
    with Dispatcher(connection, service.port, service), bank.BankClient(connection) as client:
        for change, said in (
            ({"amount": "much"}, "much"),
            ({"currency": None}, "Transfer lacks 'currency'"),
            ({"to": "DE1"}, "Account2 lacks 'iban' and 'owner'"),
            ({"on_or_at": None}, "Transfer lacks 'on_or_at'"),
        ):
            request = transfer(bank)
            for name, value in change.items():
                setattr(request, name, value)
            with pytest.raises(UsageError, match=f"the request of Transfer does not fit the WSDL: .*{said}"):
                client.transfer(request)
        with pytest.raises(UsageError, match="it must be a Transfer, got Note"):
            client.transfer(bank.Note(value="x"))
        with pytest.raises(UsageError, match="session of Transfer does not fit the WSDL"):
            client.transfer(transfer(bank), session=bank.Note(value="x"))
        assert implementation.seen == []
        wrong = transfer(bank)
        wrong.to.iban = "no iban"
        with pytest.raises(SoapFaultError, match=r"Transfer\.to\.iban"):
            client.transfer(wrong)


def test_answers_that_do_not_fit(bank: ModuleType, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """A result that does not fit is the service's error, which its log explains; the caller learns no details."""
    implementation = implemented(bank)
    service = Service.from_wsdl(BANK, implementation)
    results: list[Any] = [None, bank.Note(value="x"), bank.Account(iban="??", owner="")]
    implementation.find = lambda request: results.pop(0)
    service = Service.from_wsdl(BANK, implementation)
    with Dispatcher(connection, service.port, service), bank.BankClient(connection) as client:
        for said in ("it must be an Account, got None", "it must be an Account, got Note", "pattern"):
            caplog.clear()
            with pytest.raises(SoapFaultError) as failed:
                client.find(bank.Find(number=1))
            assert said not in failed.value.reason
            assert said in caplog.text


def test_responses_that_do_not_fit(bank: ModuleType, connection: Connection) -> None:
    """A response of another shape is a CallFailedError, which says what the WSDL says."""
    service, answers = Service(), list[etree._Element]()

    @service.operation("{urn:bank}Find")
    def find(request: soapjms.Request) -> etree._Element:
        return answers.pop(0)

    account = '<Account xmlns="urn:bank" xmlns:b="urn:bank:base">{}</Account>'
    with Dispatcher(connection, "jms:queue:bank", service), bank.BankClient(connection) as client:
        for text, said in (
            ("<other/>", "its body holds other; the WSDL says {urn:bank}Account"),
            (account.format("<b:iban>DE1</b:iban>"), "lacks 'owner'"),
            (account.format("<b:iban>DE1</b:iban><b:owner/><b:more/>"), "more"),
        ):
            answers.append(etree.fromstring(text))
            with pytest.raises(CallFailedError, match="its response does not fit the WSDL") as failed:
                client.find(bank.Find(number=1))
            assert said in str(failed.value)


def test_zeep_calls_a_generated_service(bank: ModuleType, connection: Connection) -> None:
    """A zeep client of the same WSDL is understood, and understands the answers and the declared faults."""
    service = Service.from_wsdl(BANK, implemented(bank))
    with (
        Dispatcher(connection, service.port, service),
        soapjms.zeep.Client(str(BANK), connection=connection) as client,
    ):
        account = {"iban": "DE1", "owner": "Ann"}
        values = {"currency": "EUR", "from": account, "to": account, "on": "2026-11-27", "note": ["a"]}
        got = client.service.Transfer(amount="1.5", **values, _soapheaders={"session": {"token": "T"}})
        assert got.receipt.number == 7
        assert client.service.Convert(amount="2", to="CHF") == Decimal(4)
        with pytest.raises(soapjms.zeep.JmsFaultError, match="too much") as refused:
            client.service.Transfer(amount="2000", **values)
        assert client.wsdl.types.deserialize(refused.value.detail[0])["class"] == "retail"


@pytest.mark.parametrize("version", SoapVersion)
def test_a_generated_client_calls_a_zeep_service(tmp_path: Path, connection: Connection, version: SoapVersion) -> None:
    """A service whose values zeep reads is called in both SOAP versions, with a header, in both styles."""
    path = tmp_path / "store.wsdl"
    path.write_text(shop_wsdl(version), encoding="utf-8")
    service, seen = Service.from_wsdl(path), list[Any]()

    @service.operation("order")
    def order(item: Any, urgent: Any, discount: Any, from_: Any, _soapheaders: Any) -> dict[str, Any]:
        seen.append((item[0].article, urgent, discount, from_.isoformat(), _soapheaders.customer.name))
        if urgent:
            raise service.fault("Sold", article="A1", _message="sold out")
        return {"number": "N1", "pieces": item[0].pieces}

    @service.operation("price")
    def price(article: str) -> Decimal:
        return Decimal("1.50")

    @service.operation("stock")
    def stock() -> list[str]:
        return ["A", "B"]

    @service.operation("move")
    def move(article: str, to: Any) -> int:
        return int(to.shelf)

    with (
        generated(path, tmp_path, "shop") as shop,
        Dispatcher(connection, service.port, service),
        shop.ShopClient(connection) as client,
    ):
        item = shop.Order.Item(article="A1", pieces=2, price=Decimal("0.5"))
        request = shop.Order(item=[item], from_value=XmlDate(2026, 1, 2), discount=Decimal("0.1"))
        assert client.order(request, customer=shop.Customer(name="ANN")) == shop.Ordered(number="N1", pieces=2)
        request.urgent = True
        with pytest.raises(shop.SoldError, match="sold out") as sold:
            client.order(request, customer=shop.Customer(name="ANN"))
        assert sold.value.detail == shop.Sold(article="A1")
        assert client.price(shop.Price(value="A1")) == shop.Priced(value=Decimal("1.50"))
        assert client.stock() == shop.Stocked(code=["A", "B"])
        assert client.move(shop.Move(article="A", to=shop.Place(shelf=3))) == shop.MoveResponse(pieces=3)
    assert seen[0] == ("A1", None, Decimal("0.1"), "2026-01-02", "ANN")


def test_attachments_in_place_of_values(bank: ModuleType, connection: Connection) -> None:
    """Octets that a peer sends as an attachment (MTOM) arrive as bytes, in requests and in responses."""
    implementation = implemented(bank)
    typed, plain = Service.from_wsdl(BANK, implementation), Service()

    @plain.operation("{urn:bank}Transfer")
    def answer(request: soapjms.Request) -> soapjms.Reply:
        photo = soapjms.Attachment(b"photo", "image/png", content_id="photo@bank")
        response = etree.fromstring(
            '<TransferResponse xmlns="urn:bank"><receipt><number>1</number>'
            "<booked>2026-11-27T10:00:00</booked></receipt><scan/></TransferResponse>"
        )
        response[1].append(photo.include())
        return soapjms.Reply(response, [photo])

    with bank.BankClient(connection) as client:
        with Dispatcher(connection, "jms:queue:bank", plain):
            assert client.transfer(transfer(bank)).scan == b"photo"
        with (
            Dispatcher(connection, typed.port, typed),
            soapjms.zeep.Client(str(BANK), connection=connection) as other,
        ):
            account = {"iban": "DE1", "owner": "Ann"}
            values = {"currency": "EUR", "from": account, "to": account, "on": "2026-11-27"}
            other.service.Transfer(amount=1, **values, scan=soapjms.Attachment(b"scan", "image/png"))
    assert implementation.seen[0].scan == b"scan"


def test_addresses_and_properties(bank: ModuleType, connection: Connection) -> None:
    """The properties of the WSDL apply, to another address too; the parameters of an address and arguments override."""
    sent: list[soapjms.OutgoingCall] = []

    def note(call: soapjms.OutgoingCall, call_next: Any) -> Any:
        sent.append(call)
        return call.answer(etree.Element("{urn:bank:rpc}ConvertResponse")) if not call.one_way else None

    for uri, options in (
        (None, {}),
        ("jms:queue:other?timeToLive=5", {}),
        ("jms:queue:other", {"properties": {"priority": 2}}),
    ):
        with bank.BankClient(connection, uri, middleware=[note], **options) as client:
            client.import_(bank.Note(value="x"))
    seen = [(each.destination.name, each.endpoint.time_to_live, each.endpoint.priority) for each in sent]
    assert seen == [("bank", 60000, 7), ("other", 5, None), ("other", 60000, 2)]
    assert [each.operation for each in sent] == ["import"] * 3
    for client, given in ((bank.BankClient, "http://bank"), (bank.AsyncBankClient, "bank")):
        with pytest.raises(soapjms.InvalidUriError, match=f"'{given}' at 0: .* a JMS URI begins with jms:"):
            client(connection, given)
    with pytest.raises(soapjms.InvalidUriError, match="uri must be a jms: URI"):
        bank.BankClient(connection, 7)


@pytest.mark.parametrize("version", SoapVersion)
def test_the_wsdl_of_cxf(tmp_path: Path, connection: Connection, version: SoapVersion) -> None:
    """CXF's WSDL gives a client and a service that understand each other, its declared fault included."""
    with generated(ECHO[version], tmp_path, "echo") as echo:

        class Echo(echo.EchoService):  # type: ignore[name-defined,misc]
            def ping_me(self, request: Any) -> None: ...

            def greet_me(self, request: Any) -> Any:
                return echo.GreetMeResponse(response_type=f"Hello {request.request_type}")

            def test_fault(self, request: Any) -> Any:
                raise echo.EchoFaultError(echo.EchoFault(code=7, reason="it was asked for"))

            def ping_count(self, request: Any) -> Any:
                return echo.PingCountResponse(response_type=0)

        service = Service.from_wsdl(ECHO[version], Echo())
        with Dispatcher(connection, service.port, service), echo.EchoClient(connection) as client:
            assert client.greet_me(echo.GreetMe(request_type="Ann")).response_type == "Hello Ann"
            assert client.ping_count(echo.PingCount()) == echo.PingCountResponse(response_type=0)
            with pytest.raises(echo.EchoFaultError) as fault:
                client.test_fault(echo.TestFault())
            assert (fault.value.detail.code, fault.value.detail.reason) == (7, "it was asked for")


def test_the_greeter(tmp_path: Path, connection: Connection) -> None:
    """The WSDL of the examples, whose ports are chosen by name."""
    with generated(ROOT / "examples/greeter.wsdl", tmp_path, "greeter", port="GreeterPort12") as greeter:

        class Greeter(greeter.GreeterService):  # type: ignore[name-defined,misc]
            def greet_me(self, request: Any) -> Any:
                return greeter.GreetMeResponse(greeting=f"Hello {request.name}")

            def ping_me(self, request: Any) -> None: ...

        service = Service.from_wsdl(ROOT / "examples/greeter.wsdl", Greeter())
        assert service.port.name == "GreeterPort12"
        with Dispatcher(connection, service.port, service), greeter.GreeterClient(connection) as client:
            assert client.greet_me(greeter.GreetMe(name="World")).greeting == "Hello World"


def test_choices_of_one_type(tmp_path: Path, connection: Connection) -> None:
    """Alternatives of one type are told apart, and the order of repeated ones is kept."""
    types = (
        '<xs:element name="ask"><xs:complexType><xs:choice maxOccurs="unbounded">'
        '<xs:element name="a" type="xs:string"/><xs:element name="b" type="xs:string"/>'
        "</xs:choice></xs:complexType></xs:element>"
    )
    path = tmp_path / "small.wsdl"
    path.write_text(small_wsdl(types, response="t:ask"))
    with generated(path, tmp_path, "small") as small:

        class Small(small.SmallService):  # type: ignore[name-defined,misc]
            def ask(self, request: Any) -> Any:
                return request

        service = Service.from_wsdl(path, Small())
        with Dispatcher(connection, service.port, service), small.SmallClient(connection) as client:
            values = [small.Ask.B(value="1"), small.Ask.A(value="2"), small.Ask.B(value="3")]
            assert client.ask(small.Ask(a_or_b=values)) == small.Ask(a_or_b=values)


def test_what_an_implementation_lacks(bank: ModuleType, tmp_path: Path) -> None:
    """Missing methods, another object, and a WSDL that was changed since are errors that say what to do."""

    class Half(bank.BankService):  # type: ignore[name-defined,misc]
        def transfer(self, request: Any, *, session: Any) -> Any: ...

        def find(self, request: Any) -> Any: ...

        reset = None

    with pytest.raises(UsageError, match=r"import_ \(operation import\), reset \(.*\), convert \(operation Convert\)$"):
        Service.from_wsdl(BANK, Half())
    for other in (object(), Half, bank, 7):
        with pytest.raises(UsageError, match="inherits from a service class that `soapjms wsdl generate` wrote"):
            Service.from_wsdl(BANK, other)
    with pytest.raises(UsageError, match="name a port with port='BankJms'"):
        Service.from_wsdl(BANK, "BankJms")
    text = BANK.read_text("utf-8")
    (tmp_path / "bank.xsd").write_bytes(BANK.with_name("bank.xsd").read_bytes())
    changed = tmp_path / "bank.wsdl"
    for old, new, said in (
        ('<w:input message="t:Note"/>', '<w:input message="t:Closed"/>', "the operation import has other messages"),
        ('name="Reset"', 'name="Restart"', "the operation Reset is only in the generated package"),
    ):
        changed.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(UsageError, match=f"{said}; generate it again"):
            Service.from_wsdl(changed, implemented(bank))
