"""The HTTP bridge: HTTP clients reach services over JMS, and are told by status and fault what became of a call."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import re
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
import requests
import trustme
import zeep
from bridge_kit import TYPES, ask, bridged, listening, multipart
from calling_kit import (
    NS,
    PATIENCE,
    SOAP_11,
    SOAP_12,
    OnEachBroker,
    Wrapped,
    answer_to,
    element,
    envelope,
    eventually,
    fresh,
    greeter,
    responder,
    take_one,
)
from lxml import etree
from starlette.applications import Starlette
from starlette.routing import Mount
from zeep.transports import Transport
from zeep_kit import CXF_NS, ECHO, echo

import soapjms
from brokers import Completion, Connection, Message, SendResult, Transaction, queue
from brokers.embedded import Broker
from soapjms import Dispatcher, SoapVersion, UsageError
from soapjms.bridge import http as http_bridge
from soapjms.bridge.backend import Behind
from soapjms.bridge.http import HttpBridge
from soapjms.bridge.listener import READ_OCTETS, Listener
from soapjms.observing import Begun, Observer
from soapjms.protocol import names
from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.errors import InvalidWsdlError

URI = "jms:queue:greeter"
PHOTO = b"\x89PNG\r\n\x1a\n\x00\xff--\r\n"


@pytest.fixture
def connection() -> Iterator[Connection]:
    """A connection to a broker of the test's own."""
    with Broker().connect() as made:
        yield made


@pytest.fixture
def served(connection: Connection) -> Iterator[Dispatcher]:
    """The greeter, which also frames pictures, and knows what it was asked with."""
    service = greeter()

    @service.operation(f"{{{NS}}}frame")
    def frame(request: soapjms.Request) -> soapjms.Reply:
        octets = request.attachments.octets_of(request.element)
        framed = soapjms.Attachment(b"[" + bytes(octets) + b"]", "image/png", "framed@greeter")
        body = element("framed")
        body.append(framed.include())
        return soapjms.Reply(body, [framed])

    @service.operation(f"{{{NS}}}list")
    def list_parts(request: soapjms.Request) -> etree._Element:
        said = [(each.content_id, each.fields.get("content-disposition")) for each in request.attachments]
        return element("listed", f"{said} {[bytes(each.content) for each in request.attachments]}")

    @service.operation(f"{{{NS}}}told")
    def told(request: soapjms.Request) -> etree._Element:
        return element("told", f"{request.soap_action}|{sorted(each.name for each in request.properties)}")

    with Dispatcher(connection, URI, service) as dispatcher:
        yield dispatcher


@pytest.fixture
def bridge(connection: Connection, served: Dispatcher) -> Iterator[Listener]:
    """A bridge to the greeter."""
    with bridged(connection, URI) as listener:
        yield listener


# A stock zeep client


class TestStockZeep(OnEachBroker):
    """zeep as it is, over HTTP, with the WSDL that the bridge tells."""

    @pytest.mark.parametrize("version", list(SoapVersion))
    def test_every_operation(self, connection: Connection, version: SoapVersion) -> None:
        """Request-response, one-way, a declared fault, both SOAP versions; zeep loads the WSDL from the bridge."""
        name = fresh("echo")
        behind = Behind(f"jms:queue:{name}", ECHO[version])
        with (
            Dispatcher(connection, f"jms:queue:{name}", echo()),
            bridged(connection, {"/echo": behind}) as listener,
            requests.Session() as session,
        ):
            transport = Transport(operation_timeout=PATIENCE, session=session)
            client = zeep.Client(f"{listener.url}/echo?wsdl", transport=transport)
            assert client.service.greetMe("World") == "Hello World"
            assert client.service.pingMe("World") is None
            eventually(lambda: client.service.pingCount() == 1, "the ping arrived")
            with pytest.raises(zeep.exceptions.Fault) as raised:
                client.service.testFault("please")
        detail = raised.value.detail
        assert raised.value.message == "it was asked for"
        assert detail.findtext(f"{{{CXF_NS}}}EchoFault/{{{CXF_NS}}}reason") == "please"


# What goes through


@pytest.mark.parametrize("version", list(SoapVersion))
def test_an_answer(bridge: Listener, version: SoapVersion) -> None:
    """The envelope of the service, with the media type of its SOAP version."""
    told = ask(bridge, envelope("Bob", version), TYPES[version])
    assert (told.status, told.headers["content-type"]) == (200, f"{version.media_type}; charset=utf-8")
    assert told.text("greetMeResponse") == "Hello Bob"
    assert told.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("version", "content_type", "header", "action"),
    [
        (SOAP_11, None, '"urn:a"', "urn:a"),
        (SOAP_11, None, "urn:a", "urn:a"),
        (SOAP_11, None, '""', "None"),
        (SOAP_12, 'application/soap+xml; action="urn:b"', None, "urn:b"),
        (SOAP_12, 'application/soap+xml; action="urn:b"', '"urn:a"', "urn:b"),
        (SOAP_12, "application/soap+xml", '"urn:a"', "urn:a"),
    ],
)
def test_the_action(
    bridge: Listener, version: SoapVersion, content_type: str | None, header: str | None, action: str
) -> None:
    """SOAPAction of SOAP 1.1, the parameter of SOAP 1.2; no other header of HTTP becomes a property."""
    fields = {"X_Secret": "s", "Authorization": "Basic eA=="} | ({"SOAPAction": header} if header else {})
    told = ask(bridge, envelope("", version, "told"), content_type or TYPES[version], **fields)
    said, _, properties = (told.text("told") or "").partition("|")
    assert said == action
    assert not {"X-Secret", "Authorization", "SOAPAction"} & set(re.findall(r"[\w-]+", properties))


@pytest.mark.parametrize(
    ("octets", "content_type"),
    [
        (envelope("Jürgen".encode().decode()), "text/xml"),
        (envelope("Jürgen").decode().encode("latin-1"), "text/xml; charset=ISO-8859-1"),
        (b'<?xml version="1.0" encoding="iso-8859-1"?>' + envelope("Jürgen").decode().encode("latin-1"), "text/xml"),
        (b'<?xml version="1.0" encoding="iso-8859-1"?>' + envelope("Jürgen"), "text/xml; charset=utf-8"),
        (envelope("Jürgen").decode().encode("utf-16"), "text/xml; charset=utf-16"),
    ],
)
def test_charsets(bridge: Listener, octets: bytes, content_type: str) -> None:
    """The charset of HTTP counts, then what the document says; the answer is in UTF-8."""
    told = ask(bridge, octets, content_type)
    assert told.text("greetMeResponse") == "Hello Jürgen"
    assert told.headers["content-type"] == "text/xml; charset=utf-8"


def test_a_text_message_is_answered_in_utf_8(connection: Connection) -> None:
    """What a TextMessage says of its encoding means nothing in octets."""

    def in_text(request: Message) -> list[Message]:
        text = '<?xml version="1.0" encoding="iso-8859-1"?>' + envelope("Jürgen", operation="said").decode()
        answer = answer_to(request)
        return [type(answer)(**{**_fields(answer), "message_type": "text", "body": text})]

    with responder(connection, queue("greeter"), in_text), bridged(connection, URI) as listener:
        told = ask(listener, envelope())
    assert told.text("said") == "Jürgen"
    assert told.headers["content-type"] == "text/xml; charset=utf-8"


def _fields(message: Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in Message.__slots__}


def test_gzip_both_ways(bridge: Listener) -> None:
    """A compressed request is read; an answer is compressed for who accepts it, if that is worth it."""
    asked = envelope("x" * 3000)
    told = ask(bridge, gzip.compress(asked), Content_Encoding="gzip", Accept_Encoding="br, gzip;q=0.5")
    assert (told.status, told.headers["content-encoding"]) == (200, "gzip")
    assert b"Hello xxx" in gzip.decompress(told.body)
    for refusing in ("identity", "gzip;q=0"):
        assert "content-encoding" not in ask(bridge, asked, Accept_Encoding=refusing).headers
    assert "content-encoding" not in ask(bridge, envelope(), Accept_Encoding="gzip").headers


@pytest.mark.parametrize("preamble", [b"", b"\r\n", b"This is MIME.\r\n"])
@pytest.mark.parametrize("version", list(SoapVersion))
def test_mtom_both_ways(bridge: Listener, version: SoapVersion, preamble: bytes) -> None:
    """What xop:Include refers to goes to the service, and what it includes comes back, each octet as it was."""
    include = b'<x:Include xmlns:x="http://www.w3.org/2004/08/xop/include" href="cid:a%20b@c"/>'
    asked = envelope("@", version, "frame").replace(b"@", include)
    body, kind = multipart(
        asked,
        ("Content-Type: image/png\r\nContent-ID: <a%20b@c>\r\nContent-Transfer-Encoding: binary", PHOTO),
        kind=f'application/xop+xml; charset=UTF-8; type="{version.media_type}"',
        preamble=preamble,
    )
    told = ask(bridge, body, f'{kind}; type="application/xop+xml"; start-info="{version.media_type}"')
    assert told.status == 200, told.body
    assert told.headers["content-type"].startswith("multipart/related; ")
    assert b"[" + PHOTO + b"]" in told.body
    assert f'start-info="{version.media_type}"' in told.headers["content-type"]
    assert XOP_INCLUDE.partition("}")[0].encode()[1:] in told.body


def test_swa(bridge: Listener) -> None:
    """Parts that nothing includes go along with their names and header fields; what is no plain text there is lost."""
    body, kind = multipart(
        envelope("", SOAP_11, "list"),
        ("Content-Type: text/plain\r\nContent-ID: <a>\r\nContent-Disposition: attachment; filename=x", b"one"),
        ("Content-ID: <b>\r\nContent-Disposition: attachment; filename=\xe4", b"two"),
        kind="text/xml",
    )
    told = ask(bridge, body, f'{kind}; type="text/xml"')
    assert told.text("listed") == "[('a', 'attachment; filename=x'), ('b', None)] [b'one', b'two']"


def test_one_way(connection: Connection) -> None:
    """What the WSDL or `one_way` names gets 202 when the broker has it, and has no JMSReplyTo."""
    behind = Behind(URI, ECHO[SOAP_11])
    with bridged(connection, behind, one_way=["urn:mine", f"{{{NS}}}mine"]) as listener:
        ping = b'<pingMe xmlns="urn:soapjms:echo"/>'
        by_element = re.sub(rb"<greetMe.*greetMe>", ping, envelope())
        for body, action in [
            (by_element, ""),
            (envelope(), "urn:soapjms:echo/pingMe"),
            (envelope(), "urn:mine"),
            (envelope("", operation="mine"), ""),
        ]:
            told = ask(listener, body, SOAPAction=f'"{action}"')
            assert (told.status, told.body) == (202, b"")
            assert take_one(connection, queue("greeter")).reply_to is None


def test_a_one_way_operation_with_a_header(connection: Connection, tmp_path: Path) -> None:
    """Its element is that of the part for the body, wherever it stands in the message."""
    text = ECHO[SOAP_11].read_text(encoding="utf-8")
    head = '<wsdl:input name="pingMe">'
    with_header = text.replace(head, f'{head}<soap:header message="tns:pingMe" part="session" use="literal"/>')
    name = '<wsdl:message name="pingMe">'
    with_part = with_header.replace(name, f'{name}<wsdl:part name="session" element="tns:testFault"/>')
    (tmp_path / "echo.wsdl").write_text(with_part, encoding="utf-8")
    with bridged(connection, Behind(URI, tmp_path / "echo.wsdl")) as listener:
        body = re.sub(rb"<greetMe.*greetMe>", b'<pingMe xmlns="urn:soapjms:echo"/>', envelope())
        assert ask(listener, body).status == 202


def test_a_one_way_action_of_the_properties(connection: Connection) -> None:
    """The action that counts is that of the message, also if the client states none."""
    with bridged(connection, URI, one_way=["urn:mine"], properties={"soapAction": "urn:mine"}) as listener:
        assert ask(listener, envelope(), SOAPAction='""').status == 202
        assert take_one(connection, queue("greeter")).reply_to is None


def test_the_action_of_a_one_way_operation_with_another_element(connection: Connection) -> None:
    """The element's operation has an answer, which is the fault of the service."""
    service = soapjms.Service()

    @service.operation("{urn:soapjms:echo}pingMe", action="urn:soapjms:echo/pingMe")
    def ping(request: soapjms.Request) -> None:
        pytest.fail("it must not run")

    with Dispatcher(connection, URI, service), bridged(connection, Behind(URI, ECHO[SOAP_11])) as listener:
        body = re.sub(rb"<greetMe.*greetMe>", b'<greetMe xmlns="urn:soapjms:echo"/>', envelope())
        told = ask(listener, body, SOAPAction='"urn:soapjms:echo/pingMe"')
    assert told.status == 500
    assert b"goes with the element" in told.body


def test_several_services(connection: Connection) -> None:
    """Each at its path, with or without a slash at the end; nothing elsewhere."""
    places = {"/one": "jms:queue:one", "/two/deep": "jms:queue:two"}
    with (
        Dispatcher(connection, "jms:queue:one", greeter()),
        responder(connection, queue("two"), lambda request: [answer_to(request, "from two")]),
        bridged(connection, places) as listener,
    ):
        assert ask(listener, envelope(), path="/one/").text("greetMeResponse") == "Hello World"
        assert ask(listener, envelope(), path="/two/deep").text("greetMeResponse") == "from two"
        for elsewhere in ("/", "/three", "/one/../two/deep", "/ONE"):
            assert ask(listener, envelope(), path=elsewhere).status == 404


# Faults and failures


@pytest.mark.parametrize(("version", "status"), [(SOAP_11, 500), (SOAP_12, 400)])
def test_a_fault_of_the_sender(bridge: Listener, version: SoapVersion, status: int) -> None:
    """500, but for Sender in SOAP 1.2; with its detail."""
    told = ask(bridge, envelope("Ann", version, "fail"), TYPES[version])
    assert told.status == status
    assert told.text("who") == "Ann"


@pytest.mark.parametrize("version", list(SoapVersion))
def test_a_fault_of_the_receiver(connection: Connection, version: SoapVersion) -> None:
    """500 in both versions."""
    service = soapjms.Service()

    @service.operation(f"{{{NS}}}greetMe")
    def fail(request: soapjms.Request) -> None:
        raise soapjms.SoapFaultError("out of order")

    with Dispatcher(connection, URI, service), bridged(connection, URI) as listener:
        told = ask(listener, envelope("", version), TYPES[version])
    assert told.status == 500
    assert b"out of order" in told.body


def refusal(told: object, version: SoapVersion) -> str:
    """Return the text of a fault."""
    name = "faultstring" if version is SOAP_11 else "Text"
    return told.text(name) or ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", list(SoapVersion))
def test_no_answer_in_time(connection: Connection, version: SoapVersion) -> None:
    """504 with a fault in the version of the request; nothing is left of the call."""
    with HttpBridge(connection, URI, timeout=1.0) as app, Listener(app, "127.0.0.1:0") as listener:
        told = ask(listener, envelope("", version), TYPES[version])
        assert told.status == 504
        assert refusal(told, version) == "no correlated response came in time"
        eventually(lambda: (app.under_way, app.clients["/"].under_way) == (0, 0), "nothing is left")


class Held(Wrapped):
    """A connection to a broker that takes nothing until it is told to. `timeouts` are those of what is sent."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.go_on = Event()
        self.timeouts = list[float]()

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        """Wait."""
        self.timeouts.append(options["timeout"])
        assert self.go_on.wait(PATIENCE)
        return super().send(message, transaction, **options)


def test_a_broker_that_takes_nothing(connection: Connection) -> None:
    """504 in its time, and 503 for those that wait behind unsent; nothing is left of their calls."""
    held = Held(connection)
    with HttpBridge(held, URI, timeout=0.2) as bridge, Listener(bridge, "127.0.0.1:0") as listener:
        with ThreadPoolExecutor(12) as others:
            told = list(others.map(lambda _: ask(listener, envelope()), range(12)))
        assert {each.status for each in told} == {503, 504}
        says = {503: "nothing was sent", 504: "the broker did not take the request within 0.2 s"}
        assert all(says[each.status] in each.body.decode() for each in told)
        held.go_on.set()
        eventually(lambda: bridge.clients["/"].under_way == 0, "their calls are forgotten")


def test_no_soap_answer(connection: Connection) -> None:
    """502: something came back that is no envelope."""
    with (
        responder(connection, queue("greeter"), lambda request: [answer_to(request, body=b"<html/>")]),
        bridged(connection, URI) as listener,
    ):
        told = ask(listener, envelope())
    assert told.status == 502
    assert "no SOAP envelope" in refusal(told, SOAP_11)


def test_no_broker() -> None:
    """503 with Retry-After, as nothing was sent."""
    with Broker().connect() as connection, bridged(connection, URI) as listener:
        connection.close()
        told = ask(listener, envelope())
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert "nothing was sent" in refusal(told, SOAP_11)


class Slow:
    """A service that answers when it is told to."""

    def __init__(self) -> None:
        self.begun = SimpleQueue[None]()
        self.go_on = Event()

    def __call__(self, request: Message) -> list[Message]:
        self.begun.put(None)
        assert self.go_on.wait(PATIENCE)
        return [answer_to(request, "at last")]


def test_a_call_that_waits_for_a_thread(
    connection: Connection, served: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is a part of its time; it does not begin anew."""
    monkeypatch.setattr(http_bridge, "CALL_THREADS", 1)
    held = Held(connection)
    with listening(held, URI) as (bridge, listener), ThreadPoolExecutor(2) as others:
        told = [others.submit(ask, listener, envelope()) for _ in range(2)]
        eventually(lambda: bridge.under_way == 2 and held.timeouts, "one waits for the other")
        began = time.monotonic()
        eventually(lambda: time.monotonic() > began + 0.2, "a part of its time is over")
        held.go_on.set()
        assert [each.result(PATIENCE).status for each in told] == [200, 200]
    assert held.timeouts[1] < PATIENCE - 0.1


def test_an_answer_while_the_broker_takes_nothing(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the threads that send."""
    monkeypatch.setattr(http_bridge, "CALL_THREADS", 1)
    slow, held = Slow(), Held(connection)
    held.go_on.set()
    with (
        responder(connection, queue("greeter"), slow),
        bridged(held, URI) as listener,
        ThreadPoolExecutor(2) as others,
    ):
        first = others.submit(ask, listener, envelope())
        slow.begun.get(timeout=PATIENCE)
        held.go_on.clear()
        second = others.submit(ask, listener, envelope())
        eventually(lambda: len(held.timeouts) == 2, "it holds up the thread")
        slow.go_on.set()
        assert first.result(PATIENCE / 2).text("greetMeResponse") == "at last"
        held.go_on.set()
        assert second.result(PATIENCE).status == 200


def test_too_many_calls(connection: Connection) -> None:
    """503 for one too many, while the others go on."""
    slow = Slow()
    with (
        responder(connection, queue("greeter"), slow),
        bridged(connection, URI, max_calls=1) as listener,
        ThreadPoolExecutor(1) as other,
    ):
        first = other.submit(ask, listener, envelope())
        slow.begun.get(timeout=PATIENCE)
        told = ask(listener, envelope())
        slow.go_on.set()
        assert (told.status, told.headers["retry-after"]) == (503, "1")
        assert first.result(PATIENCE).text("greetMeResponse") == "at last"
        assert ask(listener, envelope()).status == 200


def test_a_client_that_leaves(connection: Connection) -> None:
    """Its call is forgotten at once, and its answer, when it comes, is nobody's."""
    slow = Slow()
    with (
        responder(connection, queue("greeter"), slow),
        HttpBridge(connection, URI, timeout=PATIENCE) as bridge,
        Listener(bridge, "127.0.0.1:0") as listener,
    ):
        client = bridge.clients["/"]
        with line_to(listener) as line:
            head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n"
            line.sendall(head % len(envelope()) + envelope())
            slow.begun.get(timeout=PATIENCE)
            assert client.under_way == 1
        eventually(lambda: (bridge.under_way, client.under_way) == (0, 0), "its call is forgotten")
        slow.go_on.set()
        eventually(lambda: client.counts["late"] == 1, "the answer came")


def test_a_stop_waits_for_the_answers(connection: Connection) -> None:
    """What is under way is answered; who comes later is not let in."""
    slow = Slow()
    with (
        responder(connection, queue("greeter"), slow),
        HttpBridge(connection, URI, timeout=PATIENCE) as bridge,
        ThreadPoolExecutor(2) as others,
    ):
        listener = Listener(bridge, "127.0.0.1:0", grace=PATIENCE).start()
        first = others.submit(ask, listener, envelope())
        slow.begun.get(timeout=PATIENCE)
        stopped = others.submit(listener.stop)
        eventually(lambda: _is_refused(listener), "it takes no more")
        assert not stopped.done()
        slow.go_on.set()
        assert first.result(PATIENCE).text("greetMeResponse") == "at last"
        assert stopped.result(PATIENCE)


def _is_refused(listener: Listener) -> bool:
    try:
        line_to(listener).close()
    except OSError:
        return True
    return False


@pytest.mark.usefixtures("served")
def test_a_stop_ends_tls_clients_that_do_not_close(
    connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They have the time of any client to do so; then the connection is aborted, and nothing waits for `grace`."""
    authority, leaf = trustme.CA(), tmp_path / "leaf.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(leaf)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    head = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/xml\r\nContent-Length: {len(envelope())}\r\n"
    with bridged(connection, URI, certificate=str(leaf), client_timeout=0.5) as listener:
        line = context.wrap_socket(line_to(listener), server_hostname="localhost")
        line.sendall(f"{head}Connection: close\r\n\r\n".encode() + envelope())
        assert b"Hello World" in b"".join(iter(lambda: line.recv(65536), b""))
    with closing(line):
        assert not [each.getMessage() for each in caplog.records if each.name == "asyncio"]


def test_a_stop_does_not_wait_for_ever(connection: Connection) -> None:
    """After the grace what is under way is given up, and nothing is left of it."""
    slow = Slow()
    with (
        responder(connection, queue("greeter"), slow),
        HttpBridge(connection, URI, timeout=PATIENCE) as bridge,
        ThreadPoolExecutor(1) as others,
    ):
        listener = Listener(bridge, "127.0.0.1:0", grace=1).start()
        first = others.submit(ask, listener, envelope())
        slow.begun.get(timeout=PATIENCE)
        listener.stop()
        slow.go_on.set()
        assert (
            isinstance(first.exception(PATIENCE), http.client.HTTPException | OSError) or first.result().status >= 500
        )
        eventually(lambda: bridge.clients["/"].under_way == 0, "its call is forgotten")


# What is refused

BOMB = gzip.compress(b"<a>" + b" " * (40 << 20) + b"</a>")


@pytest.mark.parametrize(
    ("body", "content_type", "headers", "status", "text"),
    [
        (envelope(), "application/json", {}, 415, "not a SOAP media type: 'application/json'"),
        (envelope(), None, {}, 415, "no type/subtype"),
        (envelope(), "text/xml; =", {}, 415, "no parameter"),
        (envelope(), "text/xml", {"Content_Encoding": "br"}, 415, "must be gzip or identity, got 'br'"),
        (envelope(version=SOAP_12), "text/xml", {}, 415, "envelope is SOAP 1.2"),
        (envelope(), "application/soap+xml", {}, 415, "envelope is SOAP 1.1"),
        (b"", "text/xml", {}, 400, "not a SOAP envelope"),
        (b"<html/>", "text/xml", {}, 400, "not a SOAP envelope"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]>" + envelope(), "text/xml", {}, 400, "DOCTYPE"),
        (envelope(), "text/xml; charset=martian", {}, 400, "martian"),
        (b"no gzip", "text/xml", {"Content_Encoding": "gzip"}, 400, "no gzip"),
        (b"--b\r\n\r\n", "multipart/related; boundary=b", {}, 400, "closing delimiter"),
        (envelope(), "multipart/related", {}, 400, "boundary"),
        (envelope("x" * 2000), "text/xml", {}, 413, "more than 2000 octets"),
        (gzip.compress(envelope("x" * 2000)), "text/xml", {"Content_Encoding": "gzip"}, 413, "more than 2000"),
        (envelope().replace(b"World", b"<a>" * 200 + b"</a>" * 200), "text/xml", {}, 400, "depth"),
    ],
)
def test_what_is_no_request(
    connection: Connection, body: bytes, content_type: str | None, headers: dict[str, str], status: int, text: str
) -> None:
    """Refused with what was seen and what would be accepted; as a fault for who speaks SOAP; nothing is sent."""
    with bridged(connection, URI, max_body=2000) as listener:
        told = ask(listener, body, content_type, **headers)
        assert (told.status, text in told.body.decode()) == (status, True), told
    with connection.consume(queue("greeter"), lambda delivery: pytest.fail("it was sent")):
        pass


def test_a_gzip_bomb(connection: Connection) -> None:
    """Refused before it is unpacked."""
    with bridged(connection, URI) as listener:
        told = ask(listener, BOMB, Content_Encoding="gzip")
    assert told.status == 413
    assert "ratio" in told.body.decode()


def test_other_methods(bridge: Listener) -> None:
    """SOAP is sent by POST; without a WSDL there is nothing to GET."""
    for method in ("GET", "PUT", "DELETE", "OPTIONS"):
        told = ask(bridge, None, method=method)
        assert (told.status, told.headers["allow"]) == (405, "POST")
    told = ask(bridge, None, path="/?wsdl")
    assert (told.status, b"the bridge was given no WSDL of this service" in told.body) == (405, True)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Content-Type", (TYPES[SOAP_11], "application/soap+xml")),
        ("Content-Encoding", ("identity", "gzip")),
        ("SOAPAction", ('"urn:a"', '"urn:b"')),
    ],
)
@pytest.mark.usefixtures("served")
def test_a_field_that_is_there_twice(connection: Connection, name: str, values: tuple[str, str]) -> None:
    """400 if its values differ, as a proxy may have gone by the other one."""

    def status(*given: str) -> int:
        with (
            bridged(connection, URI) as listener,
            closing(http.client.HTTPConnection("127.0.0.1", listener.port)) as line,
        ):
            line.putrequest("POST", "/")
            for key, value in [("Content-Type", TYPES[SOAP_11])] * (name != "Content-Type") + [
                (name, each) for each in given
            ]:
                line.putheader(key, value)
            line.putheader("Content-Length", str(len(envelope())))
            line.endheaders(envelope())
            return line.getresponse().status

    assert status(*values) == 400
    assert status(values[0], values[0]) == 200


def asked_of(bridge: HttpBridge, *fields: tuple[bytes, bytes]) -> int:
    """Post a request to the application itself, as another server than ours may do; return the status."""
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": envelope(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        while not coming:  # the client stays
            await asyncio.sleep(PATIENCE)
        return coming.pop()

    async def send(event: Any) -> None:
        sent.append(event)

    headers = [(b"content-type", b"text/xml"), *fields]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    asyncio.run(bridge(scope, receive, send))
    status: int = sent[0]["status"]
    return status


@pytest.mark.usefixtures("served")
def test_a_length_that_is_no_number(connection: Connection) -> None:
    """Another server than ours may pass it on; what counts is the body that comes."""
    with HttpBridge(connection, URI, timeout=PATIENCE) as bridge:
        assert asked_of(bridge, (b"content-length", "²".encode("latin-1"))) == 200


@pytest.mark.usefixtures("served")
def test_an_observer_has_the_context_of_the_request(connection: Connection) -> None:
    """So that a trace that middleware of the server began goes on with the call."""
    current, seen = ContextVar("current", default="none"), list[str]()

    class Seeing(Observer):
        def begun(self, begun: Begun) -> None:
            seen.append(current.get())

    with HttpBridge(connection, URI, timeout=PATIENCE, observer=Seeing()) as bridge:
        current.set("the request's")
        assert asked_of(bridge) == 200
    assert seen == ["the request's"]


def test_a_chunked_body_is_limited_too(connection: Connection) -> None:
    """Its length is not known before; the connection is closed, as nobody reads the rest."""
    with bridged(connection, URI, max_body=2000) as listener, requests.Session() as session:
        chunks = iter([b"x" * 1500, b"x" * 1500])
        told = session.post(listener.url, chunks, headers={"Content-Type": "text/xml"}, timeout=PATIENCE)
    assert (told.status_code, told.headers["connection"]) == (413, "close")


def test_one_client_is_not_read_all_at_once() -> None:
    """Between two pieces of what it sent others have their turn, here the application that takes the body."""
    sizes: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        is_whole = False
        while not is_whole:
            event = await receive()
            sizes.append(len(event["body"]))
            is_whole = not event["more_body"]
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    with Listener(app, "127.0.0.1:0") as listener:
        body = bytes(50 * READ_OCTETS)
        assert ask(listener, body).status == 202
        assert (sum(sizes), max(sizes)) == (len(body), READ_OCTETS)


def line_to(listener: Listener) -> socket.socket:
    """Connect to a bridge, to say whatever one likes."""
    return socket.create_connection(("127.0.0.1", listener.port), PATIENCE)


def test_a_body_that_does_not_come(connection: Connection) -> None:
    """408 after a while."""
    with bridged(connection, URI, read_timeout=0.5) as listener, line_to(listener) as line:
        line.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/xml\r\nContent-Length: 10\r\n\r\n<")
        assert line.recv(100).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "head", [b"POST / HTTP/1.1\r\nHost: a\r\n", b"", b"POST / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1000]
)
def test_a_head_that_does_not_come(connection: Connection, head: bytes) -> None:
    """The connection is closed after a while."""
    with (
        HttpBridge(connection, URI) as bridge,
        Listener(bridge, "127.0.0.1:0", client_timeout=0.5) as listener,
        line_to(listener) as line,
    ):
        line.sendall(head)
        assert line.recv(100) == b""


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"nonsense\r\n\r\n",
    ],
)
def test_hostile_heads(bridge: Listener, head: bytes) -> None:
    """400, and the bridge goes on."""
    with line_to(bridge) as line:
        line.sendall(head)
        assert line.recv(100).startswith(b"HTTP/1.1 400 ")
    assert ask(bridge, envelope()).status == 200


def test_hostile_actions(bridge: Listener) -> None:
    """Whatever the action holds, it arrives as it is, or the request is refused."""
    for action in ("urn:\xe4", "x" * 5000, "a:b\\n\tc", "';--"):
        told = ask(bridge, envelope("", operation="told"), SOAPAction=f'"{action}"')
        assert (told.text("told") or "").startswith(f"{action}|")


def test_a_header_from_the_service_cannot_break_out(connection: Connection) -> None:
    """A content type with line breaks is the peer's; what HTTP gets is written anew."""

    def evil(request: Message) -> list[Message]:
        answer = answer_to(request, "hi")
        kind = "text/xml\r\nSet-Cookie: a=b"
        changed = answer.properties.merged([type(answer.properties[0])(names.CONTENT_TYPE, "String", kind)])
        return [type(answer)(**{**_fields(answer), "properties": changed})]

    with responder(connection, queue("greeter"), evil), bridged(connection, URI) as listener:
        told = ask(listener, envelope())
    assert "set-cookie" not in told.headers
    assert told.headers["content-type"] == "text/xml; charset=utf-8"


# The WSDL


def test_the_wsdl_has_the_address_of_the_bridge(connection: Connection) -> None:
    """By the Host of the client, or as `public_url` says; over HTTP, with nothing that is for JMS, with one port."""
    with bridged(connection, {"/echo": Behind(URI, ECHO[SOAP_12])}) as listener:
        for query in ("?wsdl", "?WSDL", "?wsdl=1"):
            told = ask(listener, None, path=f"/echo{query}", Host="soap.example:8080")
            assert told.status == 200
            assert next(told.root.iter("{*}address")).get("location") == "http://soap.example:8080/echo"
            assert next(told.root.iter("{*}port")).getnext() is None
            assert not list(told.root.iter(f"{{{names.REC_NAMESPACE}}}*"))
            assert not told.root.xpath("//@*[. = $space]", space=names.REC_NAMESPACE)
        told = ask(listener, None, path="/echo?wsdl", Host="soap_bridge")  # as Docker Compose names its services
        assert next(told.root.iter("{*}address")).get("location") == "http://soap_bridge/echo"
        assert ask(listener, None, path="/echo?wsdl", Host="a b/<c>").status == 400
        assert ask(listener, None, path="/echo?doc=1").status == 404
        assert ask(listener, None, path="/echo?doc=-1").status == 404
        assert ask(listener, None, path="/echo?doc=../../x").status == 404
    behind = {"/é": Behind(URI, ECHO[SOAP_12])}
    with bridged(connection, behind, public_url="https://example.org/soap/") as listener:
        told = ask(listener, None, path="/%C3%A9?wsdl")
        assert next(told.root.iter("{*}address")).get("location") == "https://example.org/soap/%C3%A9"


@pytest.mark.parametrize("namespace", ["http://www.w3.org/2005/08/addressing", "urn:other"])
def test_the_wsdl_has_no_other_address(connection: Connection, tmp_path: Path, namespace: str) -> None:
    """A port may give its address over JMS, with credentials, in an endpoint reference too."""
    for version in (SOAP_11, SOAP_12):
        text = ECHO[version].read_text(encoding="utf-8")
        inside = text.index(">", re.search(r"<(\w+:)?(port|endpoint)\b", text).start()) + 1
        secret = "jms:queue:inside?jndi-java.naming.security.credentials=pw"
        reference = f'<a:EndpointReference xmlns:a="{namespace}"><a:Address>{secret}</a:Address></a:EndpointReference>'
        (tmp_path / "a.wsdl").write_text(text[:inside] + reference + text[inside:], encoding="utf-8")
        with bridged(connection, Behind(URI, tmp_path / "a.wsdl")) as listener:
            told = ask(listener, None, path="/?wsdl")
        assert told.status == 200
        assert b"jms:queue" not in told.body


def test_what_a_wsdl_imports_is_told_too(connection: Connection, tmp_path: Path) -> None:
    """zeep reads a WSDL in several files, with schemas that refer to each other, from the bridge alone."""
    text = ECHO[SOAP_11].read_text(encoding="utf-8")
    schema = text[text.index("<xs:schema") : text.index("</xs:schema>") + len("</xs:schema>")]
    rest = text.replace(schema, '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">@</xs:schema>')
    importing = '<xs:import namespace="urn:soapjms:echo" schemaLocation="types/echo.xsd"/>'
    (tmp_path / "types").mkdir()
    (tmp_path / "echo.wsdl").write_text(rest.replace("@", importing), encoding="utf-8")
    looking_back = '<xs:include schemaLocation="other.xsd"/>'
    opened = schema.index(">") + 1
    head = schema[:opened].replace("<xs:schema", '<xs:schema xmlns:tns="urn:soapjms:echo"')
    (tmp_path / "types" / "echo.xsd").write_text(head + looking_back + schema[opened:], encoding="utf-8")
    (tmp_path / "types" / "other.xsd").write_text(
        '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:soapjms:echo">'
        '<xs:include schemaLocation="./echo.xsd"/></xs:schema>',
        encoding="utf-8",
    )
    with (
        Dispatcher(connection, URI, echo()),
        bridged(connection, Behind(URI, tmp_path / "echo.wsdl")) as listener,
        requests.Session() as session,
    ):
        client = zeep.Client(f"{listener.url}/?wsdl", transport=Transport(session=session))
        assert client.service.greetMe("World") == "Hello World"


def test_names_in_the_default_namespace(connection: Connection, tmp_path: Path) -> None:
    """Messages, types and elements may be named without a prefix, while all elements have one."""
    text = ECHO[SOAP_11].read_text(encoding="utf-8").replace("xmlns:tns=", "xmlns=").replace('"tns:', '"')
    (tmp_path / "echo.wsdl").write_text(text, encoding="utf-8")
    with (
        Dispatcher(connection, URI, echo()),
        bridged(connection, Behind(URI, tmp_path / "echo.wsdl")) as listener,
        requests.Session() as session,
    ):
        client = zeep.Client(f"{listener.url}/?wsdl", transport=Transport(session=session))
        assert client.service.greetMe("World") == "Hello World"


@pytest.mark.parametrize("version", list(SoapVersion))
def test_the_wsdl_has_one_service(connection: Connection, tmp_path: Path, version: SoapVersion) -> None:
    """zeep takes the first service, which here is another one, over HTTP."""
    text = ECHO[version].read_text(encoding="utf-8")
    begin, end = text.index("<wsdl:service"), text.index("</wsdl:service>") + len("</wsdl:service>")
    other = text[begin:end].replace("jms:queue:", "http://other.example/").replace('name="Echo', 'name="Other')
    (tmp_path / "two.wsdl").write_text(text[:begin] + other + text[begin:], encoding="utf-8")
    (port,) = set(re.findall(r'"(EchoPort\w*)"', text[begin:end]))
    with (
        Dispatcher(connection, URI, echo()),
        bridged(connection, Behind(URI, tmp_path / "two.wsdl", port)) as listener,
        requests.Session() as session,
    ):
        client = zeep.Client(f"{listener.url}/?wsdl", transport=Transport(session=session))
        assert client.service.greetMe("World") == "Hello World"


def test_an_import_that_is_no_uri(connection: Connection, tmp_path: Path) -> None:
    """It is refused as a WSDL that cannot be read, and the error shows no more than the location."""
    text = ECHO[SOAP_11].read_text(encoding="utf-8")
    for location in ("http://[::1", "http://[x]y/", "//[", "http://a[b"):
        opened = text.index(">", text.index("<xs:schema")) + 1
        importing = f'<xs:import namespace="urn:other" schemaLocation="{location}"/>'
        (tmp_path / "echo.wsdl").write_text(text[:opened] + importing + text[opened:], encoding="utf-8")
        with pytest.raises(InvalidWsdlError, match="check its host"):
            HttpBridge(connection, Behind(URI, tmp_path / "echo.wsdl"))


# Using it


def test_where_the_service_is_may_come_from_the_wsdl(connection: Connection) -> None:
    """Its port has the address, and the edition."""
    with (
        Dispatcher(connection, "jms:queue:CXF.ECHO", echo()),
        bridged(connection, Behind(wsdl=ECHO[SOAP_11])) as listener,
    ):
        asked = re.sub(rb"<greetMe.*greetMe>", b'<greetMe xmlns="urn:soapjms:echo"/>', envelope())
        assert ask(listener, asked).status == 200


def test_mounted_in_another_application(connection: Connection, served: Dispatcher) -> None:
    """Below a path of FastAPI's; the paths of the bridge, and the address in its WSDL, are relative to it."""
    from fastapi import FastAPI

    app = FastAPI()
    with HttpBridge(connection, {"/greeter": Behind(URI, ECHO[SOAP_11])}, timeout=PATIENCE) as bridge:
        app.mount("/soap", bridge)
        with Listener(app, "127.0.0.1:0") as listener:
            assert ask(listener, envelope(), path="/soap/greeter").text("greetMeResponse") == "Hello World"
            told = ask(listener, None, path="/soap/greeter?wsdl")
            assert next(told.root.iter("{*}address")).get("location") == f"{listener.url}/soap/greeter"
            assert ask(listener, envelope(), path="/greeter").status == 404


@pytest.mark.parametrize(
    ("prefix", "sent", "status"),
    [
        ("", "/soap/greeter", 200),
        ("/proxy", "/soap/greeter", 200),
        ("/proxy", "/proxy/soap/greeter", 200),
        ("/so", "/soap/greeter", 200),
        ("/proxy", "/greeter", 404),
    ],
)
@pytest.mark.usefixtures("served")
def test_mounted_behind_a_proxy(connection: Connection, prefix: str, sent: str, status: int) -> None:
    """The proxy's prefix may be taken away from the path or not, and may be the beginning of a path's name."""
    with HttpBridge(connection, {"/greeter": URI}, timeout=PATIENCE) as bridge:
        app = Starlette(routes=[Mount("/soap", bridge)])

        async def proxied(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "root_path": prefix}, receive, send)

        with Listener(proxied, "127.0.0.1:0") as listener:
            assert ask(listener, envelope(), path=sent).status == status


@pytest.mark.parametrize(
    ("behind", "options", "text"),
    [
        ("queue:a", {}, "jms"),
        (Behind(), {}, "the address of the service is missing"),
        ({"bank": URI}, {}, "the path of a service must begin with a slash, as in /bank, got 'bank'"),
        ({}, {}, "behind must have a service, such as {'/bank': 'jms:queue:bank'}, got none"),
        ({"/bank": URI, "/bank/": URI}, {}, "each service must have a path of its own, got two at /bank"),
        (URI, {"timeout": 0}, "positive"),
        (URI, {"max_body": 0}, "max_body"),
        (URI, {"one_way": "urn:greeter:ping"}, "one_way must be a list of SOAP actions and elements"),
        (URI, {"public_url": "soap.example.org"}, "public_url must be a URL such as https://"),
        (URI, {"public_url": "https://soap.example.org/?a"}, "with or without a path, but no query"),
        (Behind(wsdl="none.wsdl"), {}, "none.wsdl"),
        (Behind(wsdl=ECHO[SOAP_11], allow="/usr"), {}, "allow must be a list of folders, got '/usr'; write ['/usr']"),
        (Behind(URI, ECHO[SOAP_11], "none"), {}, "no port 'none'"),
    ],
)
def test_wrong_arguments(connection: Connection, behind: object, options: dict[str, object], text: str) -> None:
    """Said at once."""
    with pytest.raises(UsageError, match=re.escape(text)):
        HttpBridge(connection, behind, **options)  # type: ignore[arg-type]


def test_wrong_addresses(connection: Connection) -> None:
    """Said before anything listens."""
    with HttpBridge(connection, URI) as bridge:
        for address in ("8080", 8080, "localhost:none", "no.such.host.invalid:0"):
            with pytest.raises(UsageError):
                Listener(bridge, address)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="TLS"):
            Listener(bridge, "127.0.0.1:0", certificate="none.pem")


def test_what_a_listener_cannot_serve(connection: Connection) -> None:
    """It is said at once, also that a listener serves once; uvicorn ended the program for a text it cannot import."""
    for app in (URI, None):
        with pytest.raises(UsageError, match="app must be an ASGI application, such as an HttpBridge, got a"):
            Listener(app, "127.0.0.1:0")
    with HttpBridge(connection, URI) as bridge:
        for grace in (-1, float("inf"), "3"):
            with pytest.raises(UsageError, match="grace must be a finite number of seconds, at least 0, got"):
                Listener(bridge, "127.0.0.1:0", grace=grace)  # type: ignore[arg-type]
        listener = Listener(bridge, "127.0.0.1:0")
        with listener:
            pass
        with pytest.raises(UsageError, match="started only once"):
            listener.start()


def test_a_connection_is_kept(bridge: Listener) -> None:
    """Several requests go over one, as HTTP/1.1 has it."""
    line = http.client.HTTPConnection("127.0.0.1", bridge.port, timeout=PATIENCE)
    with closing(line):
        line.connect()
        socket_of_first = line.sock
        for name in ("Ann", "Bob"):
            line.request("POST", "/", envelope(name), {"Content-Type": "text/xml"})
            assert f"Hello {name}".encode() in line.getresponse().read()
            assert line.sock is socket_of_first


@pytest.mark.parametrize("start", ["http://bank.example:81", "HTTP://bank.example", "https://bank.example"])
def test_a_whole_url_is_read_as_its_path(connection: Connection, served: Dispatcher, start: str) -> None:
    """Clients that speak through a proxy send one, and servers have to read it (RFC 9112 3.2.2)."""
    with bridged(connection, {"/": URI, "/deep/greeter": URI}) as listener:
        for path in ("", "/", "/deep/greeter", "/deep/greeter/"):
            assert b"Hello Ann" in ask(listener, envelope("Ann"), path=f"{start}{path}").body
        assert ask(listener, envelope("Ann"), path=f"{start}/other").status == 404
        assert ask(listener, envelope("Ann"), path="/http://bank.example/").status == 404


def test_the_host_of_a_whole_url_counts(connection: Connection) -> None:
    """Over that of the header; what is none is refused, as it is there."""
    with bridged(connection, {"/echo": Behind(URI, ECHO[SOAP_11])}) as listener:
        told = ask(listener, None, path="http://bank.example:81/echo?wsdl", Host="other.example")
        assert b'location="http://bank.example:81/echo"' in told.body
        assert ask(listener, None, path="http://user@bank.example/echo?wsdl").status == 400
