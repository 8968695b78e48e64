"""`soapjms call WSDL OPERATION NAME=VALUE…`: typed calls from a shell, by the WSDL alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from queue import SimpleQueue
from time import sleep
from typing import Any

import pytest
from calling_kit import PATIENCE, SOAP_11, SOAP_12, fresh
from cli_kit import process, run, said
from lxml import etree
from places import ROOT
from real_brokers import RealBroker
from typed_kit import shop, shop_wsdl
from wsdl_kit import DATA
from zeep_kit import ECHO, echo, gallery_wsdl, made, written

import soapjms
from brokers import Connection
from soapjms import SoapVersion
from soapjms.service.typed import TypedService

GREETER_WSDL = ROOT / "examples" / "greeter.wsdl"


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a broker of the test's own, which lives while the test does."""
    name = f"embedded:{fresh('broker')}"
    with soapjms.connect(name):
        yield name


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """Another connection to it."""
    with soapjms.connect(url) as made_:
        yield made_


@pytest.fixture
def asked() -> list[dict[str, Any]]:
    """What the shop was asked."""
    return []


@pytest.fixture(params=list(SoapVersion))
def wsdl(request: pytest.FixtureRequest, connection: Connection, asked: list[Any], tmp_path: Path) -> Iterator[Path]:
    """A shop that is served, and its WSDL."""
    service: TypedService = shop(tmp_path, request.param)

    @service.operation("order")
    def order(**values: Any) -> Any:
        asked.append(values)
        if values["discount"] == Decimal("1"):
            raise service.fault("Sold", _message="all of them", article="A1")
        return {"number": "N1", "pieces": sum(each.pieces for each in values["item"])}

    @service.operation("price")
    def price(article: str) -> Decimal:
        return Decimal("12.50")

    @service.operation("stock")
    def stock() -> list[str]:
        return ["A1", "B2"]

    with soapjms.Dispatcher(connection, service.port, service):
        yield tmp_path / "shop.wsdl"


def test_nested_arguments(url: str, wsdl: Path, asked: list[dict[str, Any]]) -> None:
    """Paths, numbers in them, attributes, dates, booleans: each as the WSDL has it; the result as JSON."""
    words = "item.0.article=A1 item.0.pieces=2 item.0.price=9.90 item.1.article=B2 item.1.pieces=3 urgent=true"
    done = run("call", "--connection", url, wsdl, "order", *words.split(), "from=2026-11-21")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"header": None, "body": {"number": "N1", "pieces": 5}}
    (values,) = asked
    assert [(each.article, each.pieces, each.price) for each in values["item"]] == [
        ("A1", 2, Decimal("9.90")),
        ("B2", 3, None),
    ]
    assert (values["urgent"], str(values["from_"])) == (True, "2026-11-21")


def test_json_arguments(url: str, wsdl: Path, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    """A file or standard input, or one value after :=; words beside them."""
    items = [{"article": "A1", "pieces": 2, "price": 9.90}, {"article": "B2", "pieces": 3}]
    (tmp_path / "order.json").write_text(json.dumps({"item": items}), encoding="utf-8")
    call = ["call", "--connection", url, wsdl, "order"]
    for done in (
        run(*call, "--input", tmp_path / "order.json", "urgent=0"),
        run(*call, "--input", "-", stdin=json.dumps({"item": items}).encode()),
        run(*call, f"item:={json.dumps(items)}", "discount=0.5"),
    ):
        assert json.loads(done.stdout)["body"]["pieces"] == 5
    assert [each["urgent"] for each in asked] == [False, None, None]
    assert asked[0]["item"][0].price == Decimal("9.90")


def test_simple_values(url: str, wsdl: Path) -> None:
    """One value goes by the name of its element; a text or number that comes back is printed as it is."""
    done = run("call", "--connection", url, wsdl, "price", "price=A1")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "12.50\n", "")
    done = run("call", "--connection", url, wsdl, "stock")
    assert (done.exit_code, json.loads(done.stdout)) == (0, ["A1", "B2"])


def test_json_output(url: str, wsdl: Path) -> None:
    """The result, beside all that an envelope's call has."""
    call = said("call", "--connection", url, wsdl, "price", "price=A1")
    assert call["result"] == "12.50"
    assert call["request"]["properties"]["SOAPJMS_soapAction"] == "urn:shop:price"
    assert (call["fault"], call["findings"]) == (None, [])


def test_a_fault(url: str, wsdl: Path) -> None:
    """Status 1, and what it says on standard error, with its detail."""
    call = ["call", "--connection", url, wsdl, "order", "item.article=A1", "item.pieces=2", "discount=1"]
    done = run(*call)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("fault {http://")
    said_first, detail = done.stderr.splitlines()
    assert said_first.endswith(": all of them")
    assert detail.startswith("detail <")
    assert ">A1</" in detail
    fault = said(*call, status=1)["fault"]
    assert ">A1</" in fault["detail"]


def test_the_operations_are_listed(wsdl: Path) -> None:
    """With the WSDL alone, nobody is connected to."""
    done = run("call", wsdl)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [each.partition("(")[0] for each in lines] == ["order", "price", "stock", "move"]
    assert "pieces" in lines[0]
    assert said("call", wsdl)["operations"] == lines


def test_an_operation_of_what_is_not_there(wsdl: Path) -> None:
    """A line says what is left out, with its line in the file and what there is; the others can be called."""
    text = wsdl.read_text(encoding="utf-8")
    for mistake in ('<w:operation name="price"', 'element="t:price"'):
        wsdl.write_text(text.replace(mistake, mistake.replace("price", "prize"), 1), encoding="utf-8")
        done = run("call", wsdl)
        assert [each.partition("(")[0] for each in done.stdout.splitlines()] == ["order", "stock", "move"]
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"Warning: parts with missing definitions are left out: {wsdl}:")
        assert "price'" in line
        assert "name one that is there (" in line


def test_a_binding_of_what_is_not_there(wsdl: Path) -> None:
    """The WSDL cannot be used; its line is named, and what there is."""
    text = wsdl.read_text(encoding="utf-8")
    wsdl.write_text(text.replace(' type="t:Shop"', ' type="t:Shed"', 1), encoding="utf-8")
    done = run("call", wsdl)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"Error: {wsdl} cannot be used: {wsdl}:" in done.stderr
    assert "name one that is there (Shop)" in done.stderr


def test_names_without_a_prefix(wsdl: Path) -> None:
    """zeep takes them for those of the WSDL's own namespace, so there is nothing to be told when it is called."""
    text = wsdl.read_text(encoding="utf-8")
    wsdl.write_text(text.replace('message="t:', 'message="'), encoding="utf-8")
    done = run("call", wsdl)
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 4


def test_attachments(url: str, connection: Connection, tmp_path: Path) -> None:
    """=@FILE is an attachment, by MTOM; what comes back is saved."""
    service = soapjms.Service()

    @service.operation("{urn:gallery}frame")
    def frame(request: soapjms.Request) -> soapjms.Reply:
        picture = request.find("{urn:gallery}picture")
        assert picture is not None
        assert len(request.attachments) == 1
        framed = soapjms.Attachment(b"[" + bytes(request.attachments.octets_of(picture)) + b"]", "image/png", "f@g")
        body = made("framed", title=request.findtext("{urn:gallery}title") or "")
        body.append(made("picture"))
        body[1].append(framed.include())
        return soapjms.Reply(body, [framed])

    photo, out = tmp_path / "photo.png", tmp_path / "out"
    photo.write_bytes(b"PNG")
    with soapjms.Dispatcher(connection, "jms:queue:gallery", service):
        call = ["call", "--connection", url, written(tmp_path, gallery_wsdl()), "frame", "title=a", f"picture=@{photo}"]
        done = run(*call, "--save", out)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"header": None, "body": {"title": "a", "picture": "W1BOR10="}}
    assert (out / "attachment-1.png").read_bytes() == b"[PNG]"


def test_a_result_does_not_act_on_the_terminal(url: str, connection: Connection, tmp_path: Path) -> None:
    """Controls and formats that XML can hold are escapes of JSON; letters stay as they are."""
    name = "Bö\x9b2J\x9d0;x\x9c\x7f\u202e\U000e0001"
    service = soapjms.Service()

    @service.operation("{urn:gallery}frame")
    def frame(request: soapjms.Request) -> etree._Element:
        body = made("framed", title=name)
        body.append(made("picture"))
        return body

    with soapjms.Dispatcher(connection, "jms:queue:gallery", service):
        done = run(
            *("call", "--connection", url, written(tmp_path, gallery_wsdl()), "frame", "title=a", 'picture:=""'),
        )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["body"]["title"] == name
    assert r"Bö\u009b2J\u009d0;x\u009c\u007f\u202e\udb40\udc01" in done.stdout


def test_a_wsdl_that_was_made_for_http(url: str, connection: Connection, tmp_path: Path) -> None:
    """--uri says where the service is; it also counts over the address of a JMS port."""
    text = ECHO[SOAP_11].read_text(encoding="utf-8")
    http = text.replace("http://www.w3.org/2010/soapjms/", "http://schemas.xmlsoap.org/soap/http", 2)
    (tmp_path / "http.wsdl").write_text(http.replace("jms:queue:CXF.ECHO", "http://localhost/echo"), encoding="utf-8")
    with soapjms.Dispatcher(connection, "jms:queue:elsewhere", echo()):
        for path in (tmp_path / "http.wsdl", ECHO[SOAP_11]):
            done = run("call", "--connection", url, "--uri", "jms:queue:elsewhere", path, "greetMe", "requestType=Bob")
            assert (done.exit_code, done.stdout, done.stderr) == (0, "Hello Bob\n", "")


BANK = """<definitions name="Bank" targetNamespace="urn:bank" xmlns="http://schemas.xmlsoap.org/wsdl/"
  xmlns:b="urn:bank" xmlns:http="http://schemas.xmlsoap.org/wsdl/http/" xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/">
  <types><schema xmlns="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:bank">
    <element name="pay" type="int"/><element name="payResponse" type="string"/></schema></types>
  <message name="pay"><part name="in" element="b:pay"/></message>
  <message name="paid"><part name="out" element="b:payResponse"/></message>
  <portType name="Bank"><operation name="pay"><input message="b:pay"/><output message="b:paid"/></operation></portType>
  {bindings}
  <binding name="Get" type="b:Bank"><http:binding verb="GET"/>
    <operation name="pay"><http:operation location="pay"/></operation></binding>
  <service name="Bank">
    <port name="Jms" binding="b:Jms"><s:address location="jms:queue:bank"/></port>
    <port name="Http" binding="b:Http"><s:address location="http://localhost/bank"/></port>
    <port name="Get" binding="b:Get"><http:address location="http://localhost/get"/></port>
  </service></definitions>"""
BINDING = """<binding name="{}" type="b:Bank"><s:binding transport="{}"/>
    <operation name="pay"><s:operation soapAction="urn:bank:pay"/><input><s:body use="literal"/></input>
      <output><s:body use="literal"/></output></operation></binding>"""
PAID = '<payResponse xmlns="urn:bank">paid</payResponse>'
TRANSPORTS = {"Jms": "http://www.w3.org/2010/soapjms/", "Http": "http://schemas.xmlsoap.org/soap/http"}


def test_a_wsdl_with_ports_of_both_kinds(url: str, connection: Connection, tmp_path: Path) -> None:
    """With --uri, its port for HTTP works as that of any WSDL; a port without SOAP is refused with those that work."""
    path = tmp_path / "bank.wsdl"
    path.write_text(BANK.format(bindings="".join(BINDING.format(*each) for each in TRANSPORTS.items())))
    service = soapjms.Service()
    service.operation("{urn:bank}pay")(lambda request: soapjms.envelope(etree.fromstring(PAID)))
    words = ["call", "--connection", url, path, "pay", "pay=7"]
    with soapjms.Dispatcher(connection, "jms:queue:bank", service):
        for options in (["--port", "Jms"], ["--port", "Bank/Http", "--uri", "jms:queue:bank"], []):
            done = run(*words, *options)
            assert (done.exit_code, done.stdout, done.stderr) == (0, "paid\n", "")
    without = run(*words, "--port", "Http")
    assert (without.exit_code, without.stdout) == (2, "")
    assert "the port 'Http' is not SOAP over JMS; give its address with --uri jms:…" in without.stderr
    for options in ([], ["--uri", "jms:queue:bank"]):
        get = run(*words, "--port", "Get", *options)
        said = "the port 'Get' cannot be called: it has no SOAP binding; give another with --port: Bank/Jms, Bank/Http"
        assert (get.exit_code, said in get.stderr) == (2, True)


def test_a_wsdl_for_http_with_several_ports(url: str, connection: Connection, tmp_path: Path) -> None:
    """With --uri its first SOAP port is called; without, the error says what to give."""
    path = tmp_path / "bank.wsdl"
    path.write_text(BANK.format(bindings="".join(BINDING.format(each, TRANSPORTS["Http"]) for each in TRANSPORTS)))
    service = soapjms.Service()
    service.operation("{urn:bank}pay")(lambda request: soapjms.envelope(etree.fromstring(PAID)))
    with soapjms.Dispatcher(connection, "jms:queue:bank", service):
        done = run("call", "--connection", url, path, "pay", "pay=7", "--uri", "jms:queue:bank")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "paid\n", "")
    for words in ([], ["pay", "pay=7"]):
        refused = run("call", "--connection", url, path, *words)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "the port 'Jms' is not SOAP over JMS; give its address with --uri jms:…" in refused.stderr


def test_a_time_is_printed_as_it_is_given(url: str, connection: Connection, tmp_path: Path) -> None:
    """It has the form of XML Schema, in JSON too."""
    path = tmp_path / "bank.wsdl"
    text = BANK.format(bindings="".join(BINDING.format(*each) for each in TRANSPORTS.items()))
    path.write_text(text.replace('name="payResponse" type="string"', 'name="payResponse" type="dateTime"'))
    service = soapjms.Service()
    answer = PAID.replace(">paid<", ">2026-01-01T12:30:00Z<")
    service.operation("{urn:bank}pay")(lambda request: soapjms.envelope(etree.fromstring(answer)))
    with soapjms.Dispatcher(connection, "jms:queue:bank", service):
        assert run("call", "--connection", url, path, "pay", "pay=7").stdout == "2026-01-01T12:30:00Z\n"
        assert said("call", "--connection", url, path, "pay", "pay=7")["result"] == "2026-01-01T12:30:00Z"


def test_bad_input_is_one_clear_message(url: str, wsdl: Path, tmp_path: Path) -> None:
    """What was seen and what would be accepted, in one line, before anything is sent."""
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "no.json").write_text("{")
    (tmp_path / "no-port.wsdl").write_text(
        shop_wsdl(uri="http://localhost/").replace("http://www.w3.org/2010/soapjms/", "x")
    )
    at = ["--connection", url]
    for arguments, text in [
        ([*at, wsdl, "none"], "has no operation 'none'; it has: order("),
        (
            [*at, wsdl, "price", "nothing"],
            "an argument must be NAME=VALUE, NAME:=JSON or NAME=@FILE",
        ),
        ([*at, wsdl, "price", "name=A1"], "the only argument must be price=VALUE"),
        ([*at, wsdl, "order", "item.articel=A1"], "there is no 'item.0.articel'; there are: article, pieces, price"),
        ([*at, wsdl, "order", "item.pieces=two"], "item.0.pieces must be of type int, got 'two'; it takes: "),
        ([*at, wsdl, "order", "urgent=yes"], "urgent must be of type boolean, got 'yes'"),
        ([*at, wsdl, "order", "item.article=A1"], "Missing element pieces"),
        ([*at, wsdl, "order", "item=A1", "item.pieces=2"], "contradicts an earlier argument"),
        ([*at, wsdl, "order", "from=a", "from=b"], "from must be a single value"),
        ([*at, wsdl, "order", "item:={"], "the value of item is not JSON"),
        ([*at, wsdl, "order", "item.article=@none.png"], "there is no file 'none.png'"),
        ([*at, wsdl, "order", "--input", tmp_path / "list.json"], "--input must be a JSON object"),
        ([*at, wsdl, "order", "--input", tmp_path / "no.json"], "--input is not JSON"),
        ([*at, wsdl, "stock", "a=1"], "there is no 'a'; it takes: nothing"),
        ([*at, wsdl, "price", "price=A1", "--one-way"], "--one-way is for an envelope"),
        ([*at, "--port", "none", wsdl, "price", "price=A1"], "no port 'none'"),
        ([*at, tmp_path / "no-port.wsdl", "price", "price=A1"], "is not SOAP over JMS; give its address with --uri"),
        ([*at, tmp_path / "none.wsdl", "price"], "none.wsdl"),
        ([wsdl, "price", "price=A1"], "give --connection, such as stomp://"),
        ([*at, "--uri", "jms:queue:a", "--input", tmp_path / "list.json", tmp_path / "list.json"], "--input is for"),
    ]:
        done = run("call", *arguments)
        assert (done.exit_code, done.stdout) == (2, ""), (arguments, done.output)
        assert text in done.stderr, arguments
        assert "bug in soapjms" not in done.stderr


def test_nobody_answers(url: str) -> None:
    """One line, and status 3: the service may have carried it out all the same."""
    done = run("call", "--connection", url, "--timeout", "0.5", ECHO[SOAP_12], "greetMe", "requestType=Bob")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: no correlated response came in time (queue:CXF.ECHO.12, JMSCorrelationID ")
    assert "; soapjms doctor --uri URI says" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_call_given_up_is_not_carried_out(url: str) -> None:
    """As the README calls: a service that starts when the call has timed out does not run it."""
    service, ran = soapjms.Service.from_wsdl(GREETER_WSDL, port="GreeterPort"), SimpleQueue[str]()

    @service.operation("greetMe")
    def greet(name: str) -> str:
        ran.put(f"greet {name}")
        return f"Hello {name}"

    @service.operation("pingMe")
    def ping(name: str) -> None:
        ran.put(f"ping {name}")

    done = run("call", "--connection", url, "--timeout", "0.2", GREETER_WSDL, "greetMe", "name=World")
    assert done.exit_code == 3
    sleep(1)  # the request lives for 0.2 s from when it came, on a busy machine much later than the call began
    with soapjms.connect(url) as connection, soapjms.Dispatcher(connection, service.port, service):
        said("call", "--connection", url, GREETER_WSDL, "pingMe", "name=World")
        assert ran.get(timeout=PATIENCE) == "ping World"
        said("call", "--connection", url, GREETER_WSDL, "greetMe", "name=Ann")
        assert ran.get(timeout=PATIENCE) == "greet Ann"


@pytest.mark.broker
@pytest.mark.parametrize("path", [ECHO[SOAP_11], ECHO[SOAP_12]], ids=lambda path: path.stem)
def test_on_activemq(activemq: RealBroker, path: Path, tmp_path: Path) -> None:
    """From a WSDL to an answer, over STOMP: request-response, one-way, a declared fault."""
    port = soapjms.read_wsdl(path).port()

    def call(*words: str) -> tuple[int, str, str]:
        done = process("call", path, *words, cwd=tmp_path, SOAPJMS_CONNECTION=activemq.stomp_url)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    with soapjms.connect(activemq.stomp_url) as connection, soapjms.Dispatcher(connection, port, echo()):
        assert call("greetMe", "requestType=Bob") == (0, "Hello Bob\n", "")
        assert call("pingMe", "requestType=Bob") == (0, "", "")
        status, shown, why = call("testFault", "requestType=please")
    assert (status, shown) == (1, "")
    assert ": it was asked for\ndetail <" in why


@pytest.mark.parametrize("word", ["work=3", "work:=3", "work:=2.5"])
def test_one_value_for_what_consists_of_several(word: str, tmp_path: Path) -> None:
    """It says what that consists of, before anything is sent."""
    with soapjms.connect("embedded:gallery"):
        done = run("call", "--connection", "embedded:gallery", written(tmp_path, gallery_wsdl()), "hang", word)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "work must have the members work.year, work.sold, work.scan, work.by, got " in done.stderr


@pytest.mark.parametrize("words", [["work.0.year=1", "work.1.year=2"], ['work:=[{"year": 1}, {"year": 2}]']])
def test_several_values_for_what_occurs_once(words: list[str], tmp_path: Path) -> None:
    """They are refused before anything is sent."""
    with soapjms.connect("embedded:gallery"):
        done = run("call", "--connection", "embedded:gallery", written(tmp_path, gallery_wsdl()), "hang", *words)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "hang: work must be one value, got a list of 2; it takes: " in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["on=2026-01-02", "at=2026-01-02T03:04:05"], "Transfer: give on or at, not both; it takes: amount"),
        ([], "Missing choice: give on or at (Transfer); it takes: amount"),
    ],
)
def test_choices_of_none_and_of_both(words: list[str], said: str, tmp_path: Path) -> None:
    """They are refused before anything is sent, and the signature is printed once."""
    accounts = ["from.iban=DE1", "from.owner=A", "to.iban=DE2", "to.owner=B"]
    given = ["amount=1", "currency=EUR", *accounts, *words]
    with soapjms.connect("embedded:bank"):
        done = run("call", "--connection", "embedded:bank", "--timeout", "1", DATA / "bank.wsdl", "Transfer", *given)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert done.stderr.count("amount: xsd:decimal") == 1
