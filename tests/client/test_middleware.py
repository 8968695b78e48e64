"""Middleware around calls and services: order, changes, answers of its own, faults; with zeep, typed and served too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from calling_kit import GREETER, NS, PATIENCE, OnEachBroker, arrivals, element, envelope, eventually, greeter, text_of
from lxml import etree
from serving_kit import serving
from zeep_kit import CXF_NS, ECHO, echo

import soapjms
import soapjms.zeep
from brokers import Connection
from brokers.embedded import Broker
from soapjms import (
    CallTimeoutError,
    Client,
    Dispatcher,
    OutgoingCall,
    Prepared,
    Reply,
    Request,
    Response,
    Service,
    Services,
    SoapFaultError,
    SoapVersion,
    UsageError,
)
from soapjms.protocol.envelope import serialize

CallNext = Callable[[OutgoingCall], Response]
ServiceNext = Callable[[Request], Prepared]
URI = "jms:queue:greeter"
TRACE = "{urn:trace}id"


def noting(name: str, seen: list[str]) -> Callable[[Any, Any], Any]:
    """Make middleware of either side that notes when it is entered and left."""

    def note(given: Any, call_next: Callable[[Any], Any]) -> Any:
        seen.append(f"> {name}")
        try:
            return call_next(given)
        finally:
            seen.append(f"< {name}")

    return note


@pytest.fixture
def connection() -> Iterator[Connection]:
    with Broker().connect() as connection:
        yield connection


class TestOnBrokers(OnEachBroker):
    """What middleware says goes over the wire."""

    def test_headers_and_properties(self, connection: Connection, other: Connection, uri: str) -> None:
        """A SOAP header and a JMS property go out with the request, others come back with the response."""

        def traced(call: OutgoingCall, call_next: CallNext) -> Response:
            block = etree.Element(TRACE)
            block.text = "7"
            call.add_header(block)
            call.properties["tenant"] = "north"
            call.soap_action = "urn:traced"
            response = call_next(call)
            assert response.message.properties.text("served") == "south"
            assert response.envelope.header is not None
            assert response.envelope.header.findtext(TRACE) == "7"
            return response

        def tracing(request: Request, call_next: ServiceNext) -> Prepared:
            assert request.envelope.header is not None
            assert request.properties.text("tenant") == "north"
            assert request.soap_action == "urn:traced"
            request.context["trace"] = request.envelope.header.findtext(TRACE)
            reply = call_next(request)
            block = etree.Element(TRACE)
            block.text = request.context["trace"]
            reply.add_header(block)
            reply.properties["served"] = "south"
            return reply

        service = greeter()
        with Dispatcher(other, uri, service, middleware=[tracing]), Client(connection, uri, middleware=[traced]) as c:
            response = c.call(envelope("Ann"), timeout=PATIENCE)
            assert text_of(response) == "Hello Ann"
            assert {each.assertion for each in response.findings()} <= {"Local-2.2.3-isFaultType"}
            assert text_of(c.submit(envelope("Bob"), timeout=PATIENCE).result(PATIENCE)) == "Hello Bob"


class TestClient:
    """Around calls."""

    @pytest.fixture
    def served(self, connection: Connection) -> Iterator[Dispatcher]:
        with Dispatcher(connection, URI, greeter()) as dispatcher:
            yield dispatcher

    def test_order(self, connection: Connection, served: Dispatcher) -> None:
        """The first is the outermost; a one-way message goes through all of it too."""
        seen: list[str] = []
        with Client(connection, URI, middleware=[noting("a", seen), noting("b", seen)]) as client:
            client.call(envelope())
            assert seen == ["> a", "> b", "< b", "< a"]
            seen.clear()
            client.send(envelope(operation="pingMe"))
            assert seen == ["> a", "> b", "< b", "< a"]

    def test_the_callers_envelope_stays(self, connection: Connection, served: Dispatcher) -> None:
        """What middleware changes is a copy."""

        def changing(call: OutgoingCall, call_next: CallNext) -> Response:
            assert call.element is not None
            assert call.context == {}
            call.element.text = "Bob"
            return call_next(call)

        given = etree.fromstring(envelope("Ann"))
        before = serialize(given)
        with Client(connection, URI, middleware=[changing]) as client:
            assert text_of(client.call(given)) == "Hello Bob"
        assert serialize(given) == before

    @pytest.mark.parametrize("wrong", [-1, 0, "never", float("nan"), True])
    def test_no_expiry(self, connection: Connection, wrong: Any) -> None:
        """A time that it sets and that is none is refused, and nothing is sent; -1 sent what had expired before."""

        def setting(call: OutgoingCall, call_next: CallNext) -> Response:
            call.expires = wrong
            return call_next(call)

        with arrivals(connection, GREETER) as found, Client(connection, URI, middleware=[setting]) as client:
            with pytest.raises(UsageError, match="expires must be"):
                client.call(envelope(), timeout=PATIENCE)
            with Client(connection, URI) as plain:
                plain.send(envelope("last"))
            assert b"last" in bytes(found.next().body or b"")

    def test_again(self, connection: Connection, served: Dispatcher) -> None:
        """It may call next several times, with another time-out."""
        tries: list[str] = []

        def retrying(call: OutgoingCall, call_next: CallNext) -> Response:
            call.timeout = 0.05
            for _ in range(2):
                try:
                    return call_next(call)
                except CallTimeoutError as error:
                    tries.append(error.reason)
            call.timeout = PATIENCE
            assert call.element is not None
            call.element.tag = f"{{{NS}}}greetMe"
            return call_next(call)

        slow = Service()
        done = Event()

        @slow.operation(f"{{{NS}}}wait")
        def wait(request: Request) -> None:
            done.wait(PATIENCE)

        slow.operation(f"{{{NS}}}greetMe")(lambda request: element("said", "at last"))
        with (
            Dispatcher(connection, "jms:queue:slow", slow, workers=3),
            Client(connection, "jms:queue:slow", middleware=[retrying]) as client,
        ):
            assert text_of(client.call(envelope(operation="wait"))) == "at last"
            done.set()
        assert len(tries) == 2

    @pytest.mark.parametrize("version", SoapVersion)
    @pytest.mark.parametrize("profile", ["rec-2012", "cr-2009"])
    def test_answers_itself(self, connection: Connection, version: SoapVersion, profile: str) -> None:
        """A response can be made without asking anybody; it is as one that came, a fault too."""

        def cached(call: OutgoingCall, call_next: CallNext) -> Response:
            if call.element is not None and call.element.text == "fault":
                return call.answer(SoapFaultError("not today"))
            return call.answer(Reply(element("said", "from the cache"), properties={"age": 7}))

        with Client(connection, URI, middleware=[cached], profile=profile) as client:
            response = client.call(envelope("x", version))
            assert text_of(response) == "from the cache"
            assert response.envelope.version is version
            assert response.message.properties.value("age") == 7
            assert response.findings() == ()
            with pytest.raises(SoapFaultError, match="not today"):
                client.submit(envelope("fault", version)).result(PATIENCE).raise_for_fault()

    def test_raises(self, connection: Connection) -> None:
        """What it raises the caller gets, whichever way the call is made."""

        def refusing(call: OutgoingCall, call_next: CallNext) -> Response:
            raise PermissionError("closed")

        with Client(connection, URI, middleware=[refusing]) as client:
            for way in (client.call, client.send, lambda given: client.submit(given).result(PATIENCE)):
                with pytest.raises(PermissionError, match="closed"):
                    way(envelope())

    def test_cancelled(self, connection: Connection) -> None:
        """A future that is cancelled forgets the call that its middleware waits for; the middleware hears of it."""
        ends: list[BaseException] = []

        def watching(call: OutgoingCall, call_next: CallNext) -> Response:
            try:
                return call_next(call)
            except BaseException as error:
                ends.append(error)
                raise

        with Client(connection, URI, middleware=[watching]) as client:
            future = client.submit(envelope(), timeout=PATIENCE)
            eventually(lambda: client.under_way == 1, "it was sent")
            assert future.cancel()
            eventually(lambda: ends, "it ends")
            assert client.under_way == 0
        assert isinstance(ends[0], CancelledError)

    def test_cancelled_before_it_was_sent(self, connection: Connection) -> None:
        """What is cancelled before its middleware passes it on is never sent."""
        begun, go_on = Event(), Event()
        ends: list[BaseException] = []

        def holding(call: OutgoingCall, call_next: CallNext) -> Response:
            begun.set()
            assert go_on.wait(PATIENCE)
            try:
                return call_next(call)
            except BaseException as error:
                ends.append(error)
                raise

        with arrivals(connection, GREETER) as found, Client(connection, URI, middleware=[holding]) as client:
            future = client.submit(envelope(), timeout=PATIENCE)
            assert begun.wait(PATIENCE)
            assert future.cancel()
            go_on.set()
            eventually(lambda: ends, "it ends")
            client.send(envelope("last"))
            assert b"last" in bytes(found.next().body or b"")
        assert isinstance(ends[0], CancelledError)

    def test_submitted_side_by_side(self, connection: Connection, served: Dispatcher) -> None:
        """Calls that were submitted wait beside each other, though each is waited for by its middleware."""
        gate, waiting = Event(), list[int]()

        def holding(call: OutgoingCall, call_next: CallNext) -> Response:
            waiting.append(1)
            gate.wait(PATIENCE)
            return call_next(call)

        with Client(connection, URI, middleware=[holding]) as client:
            futures: list[Future[Response]] = [
                client.submit(envelope(str(each)), timeout=PATIENCE) for each in range(40)
            ]
            eventually(lambda: len(waiting) == 40, "all are at it")
            gate.set()
            assert [text_of(each.result(PATIENCE)) for each in futures] == [f"Hello {each}" for each in range(40)]

    def test_in_wsdl_operations(self, connection: Connection) -> None:
        """It sees where the call goes."""
        seen: list[Any] = []

        def looking(call: OutgoingCall, call_next: CallNext) -> Response:
            seen.append((str(call.destination), call.endpoint.request_uri, call.one_way, call.timeout))
            return call.answer(None)

        with Client(connection, f"{URI}?priority=7", middleware=[looking]) as client:
            client.call(envelope(), timeout=3)
        assert seen == [("queue:greeter", "jms:queue:greeter", False, 3)]


class TestClientMistakes:
    """Mistakes of middleware are told its author."""

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            (lambda call, call_next: None, "must return a Response, .* got None"),
            (lambda call, call_next: "x", "must return a Response, .* got 'x'"),
            (lambda call, call_next: call_next("x"), "call_next must be given the call, got 'x'"),
            (
                lambda call, call_next: call.properties.update(SOAPJMS_isFault=True) or call_next(call),
                "belongs to the binding",
            ),
            (
                lambda call, call_next: call.properties.update({"a b": 1}) or call_next(call),
                "name of a JMS property must be",
            ),
            (lambda call, call_next: call.properties.update(a=[]) or call_next(call), "JMS does not allow"),
        ],
    )
    def test_wrong(self, connection: Connection, wrong: Any, said: str) -> None:
        with Client(connection, URI, middleware=[wrong]) as client, pytest.raises(UsageError, match=said):
            client.call(envelope())

    def test_one_way(self, connection: Connection) -> None:
        """To a one-way message there is no response."""
        for wrong in (lambda call, call_next: call.answer(None), lambda call, call_next: "x"):
            with Client(connection, URI, middleware=[wrong]) as client, pytest.raises(UsageError, match="one-way"):
                client.send(envelope())

    async def _coroutine(self, call: Any, call_next: Any) -> Any: ...

    @pytest.mark.parametrize("wrong", ["x", 7, [7], [Client], None, [lambda call: call]])
    def test_no_functions(self, connection: Connection, wrong: Any) -> None:
        for make in (lambda: Client(connection, URI, middleware=wrong), lambda: Service(middleware=wrong)):
            with pytest.raises(UsageError, match=r"middleware must be a list of functions \(call, call_next\)"):
                make()

    def test_coroutines(self, connection: Connection) -> None:
        with pytest.raises(UsageError, match=r"plain functions here, .*only an AsyncClient"):
            Client(connection, URI, middleware=[self._coroutine])
        with pytest.raises(UsageError, match="middleware must be plain functions here"):
            Dispatcher(connection, URI, greeter(), middleware=[self._coroutine])


class TestService:
    """Around services."""

    def ask(self, connection: Connection, service: Service, given: bytes, **options: Any) -> Response:
        with Dispatcher(connection, URI, service, **options), Client(connection, URI, timeout=PATIENCE) as client:
            return client.call(given)

    def test_order(self, connection: Connection) -> None:
        """Of the dispatcher, of all services, of one of them."""
        seen: list[str] = []
        service = Service(middleware=[noting("service", seen), noting("inner", seen)])

        @service.operation(f"{{{NS}}}greetMe")
        async def greet(request: Request) -> etree._Element:
            seen.append("function")
            return element("said", "hello")

        services = Services({"a": service, "b": greeter()}, default="a", middleware=[noting("all", seen)])
        assert text_of(self.ask(connection, services, envelope(), middleware=[noting("dispatcher", seen)])) == "hello"
        names = ["dispatcher", "all", "service", "inner"]
        assert seen == [*(f"> {each}" for each in names), "function", *(f"< {each}" for each in reversed(names))]

    def test_faults_are_seen(self, connection: Connection) -> None:
        """A fault that a function raises passes as an exception and may be changed; one returned is an answer."""
        seen: list[Any] = []

        def telling(request: Request, call_next: ServiceNext) -> Any:
            try:
                reply = call_next(request)
            except SoapFaultError as error:
                seen.append(error.reason)
                raise SoapFaultError("sorry", blame="Sender") from error
            seen.append(reply.fault and reply.fault.reason)
            return reply

        service = Service(middleware=[telling])

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> Any:
            if request.element.text == "returned":
                return SoapFaultError("returned")
            raise SoapFaultError("raised")

        fault = self.ask(connection, service, envelope("raised")).fault
        assert fault is not None
        assert fault.reason == "sorry"
        fault = self.ask(connection, service, envelope("returned")).fault
        assert fault is not None
        assert fault.reason == "returned"
        assert seen == ["raised", "returned"]

    def test_unknown_operations(self, connection: Connection) -> None:
        """It sees requests that no function is there for, and may answer them itself."""

        def catching(request: Request, call_next: ServiceNext) -> Any:
            return element("anything", request.name) if "unknown" in request.name else call_next(request)

        response = self.ask(connection, Service(middleware=[catching]), envelope(operation="unknown"))
        assert text_of(response) == f"{{{NS}}}unknown"

    def test_another_envelope(self, connection: Connection) -> None:
        """What it goes on with decides which function answers, and which headers are understood."""

        def opening(request: Request, call_next: ServiceNext) -> Prepared:
            root = etree.fromstring(envelope("Ann"))
            changed = request.with_envelope(root)
            with pytest.raises(UsageError, match="root must be a SOAP envelope"):
                request.with_envelope(etree.Element("x"))
            return call_next(changed)

        sealed = envelope(operation="sealed")
        assert text_of(self.ask(connection, greeter(), sealed, middleware=[opening])) == "Hello Ann"

    def test_effects(self, connection: Connection, tmp_path: Path) -> None:
        """What a function wrote is undone if middleware raises after it, and kept if it answers."""

        def failing(request: Request, call_next: ServiceNext) -> Any:
            call_next(request)
            if request.element.text == "no":
                raise SoapFaultError("no")
            return element("said", "yes")

        service = Service(middleware=[failing])

        @service.operation(f"{{{NS}}}greetMe")
        def write(request: Request) -> None:
            request.transaction.execute("CREATE TABLE IF NOT EXISTS t (text TEXT)")
            request.transaction.execute("INSERT INTO t VALUES (?)", (request.element.text,))

        store = str(tmp_path / "s.db")
        for text in ("yes", "no"):
            self.ask(connection, service, envelope(text), store=store)
        seen: list[str | None] = []

        def peeking(request: Request, call_next: ServiceNext) -> Any:
            seen.extend(text for (text,) in request.transaction.execute("SELECT text FROM t"))
            return Reply(None)

        self.ask(connection, Service(middleware=[peeking]), envelope(), store=store)
        assert seen == ["yes"]

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda request, call_next: call_next("x"),
            lambda request, call_next: 7,
            lambda request, call_next: call_next(request).properties.update(SOAPJMS_isFault=1),
            lambda request, call_next: Reply(None, properties={"SOAPJMS_isFault": True}),
        ],
    )
    def test_mistakes(self, connection: Connection, wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
        """They are the service's: the log says which, the caller that it failed."""

        def outer(request: Request, call_next: ServiceNext) -> Any:
            found = wrong(request, call_next)
            return found if found is not None else Reply(None, properties={"a b": 1})

        fault = self.ask(connection, greeter(), envelope(), middleware=[outer]).fault
        assert fault is not None
        assert fault.reason == "the service failed"
        assert "UsageError" in caplog.text or "TypeError" in caplog.text

    def test_without_a_return(self, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """The answer of the function is not replaced by an empty one: the caller gets a fault, and the log says why."""

        def forgetful(request: Request, call_next: ServiceNext) -> Any:
            call_next(request)

        fault = self.ask(connection, greeter(), envelope(), middleware=[forgetful]).fault
        assert fault is not None
        assert fault.reason == "the service failed"
        assert "middleware must return an answer, such as that of call_next; got None" in caplog.text

    def test_one_way_without_a_return(self, connection: Connection) -> None:
        """Nobody waits for an answer, so None is one."""

        def counting(request: Request, call_next: ServiceNext) -> Any:
            call_next(request)

        with (
            Dispatcher(
                connection, "jms:queue:soapjms.middleware.one-way", greeter(), middleware=[counting]
            ) as dispatcher,
            Client(connection, "jms:queue:soapjms.middleware.one-way") as client,
        ):
            client.send(envelope())
            eventually(lambda: dispatcher.counts["commits"], "it is done")
            assert not dispatcher.counts["failed"]


class TestZeep:
    """Through zeep, plain and asyncio."""

    @pytest.fixture
    def served(self, connection: Connection) -> Iterator[str]:
        with Dispatcher(connection, "jms:queue:soapjms.echo", echo()) as dispatcher:
            yield str(dispatcher.destination)

    def client(self, kind: type, connection: Connection, middleware: list[Any]) -> Any:
        return kind(ECHO[SoapVersion.SOAP_11], connection=connection, middleware=middleware, operation_timeout=PATIENCE)

    def test_plain(self, connection: Connection, served: str) -> None:
        seen: list[Any] = []

        def looking(call: OutgoingCall, call_next: CallNext) -> Any:
            response = call_next(call)
            seen.append((call.operation, call.one_way, response is None))
            return response

        with self.client(soapjms.zeep.Client, connection, [looking]) as client:
            service = client.create_service(next(iter(client.wsdl.bindings)), "jms:queue:soapjms.echo")
            assert service.greetMe("World") == "Hello World"
            service.pingMe("x")
        assert seen == [("greetMe", False, False), ("pingMe", True, True)]

    def test_coroutines(self, connection: Connection, served: str) -> None:
        """`async def` functions go around the calls of an AsyncClient, beside each other."""
        seen: list[Any] = []

        async def slow(call: OutgoingCall, call_next: Any) -> Any:
            await asyncio.sleep(0.2)
            response = await call_next(call)
            seen.append((call.operation, response is None))
            return response

        async def answering(call: OutgoingCall, call_next: Any) -> Any:
            if call.element is not None and call.element.findtext("{*}requestType") == "cached":
                answer = etree.Element(f"{{{CXF_NS}}}greetMeResponse")
                etree.SubElement(answer, f"{{{CXF_NS}}}responseType").text = "cached"
                return call.answer(answer)
            return await call_next(call)

        async def main() -> list[Any]:
            async with self.client(soapjms.zeep.AsyncClient, connection, [slow, answering]) as client:
                service = client.create_service(next(iter(client.wsdl.bindings)), "jms:queue:soapjms.echo")
                began = time.monotonic()
                found = await asyncio.gather(*(service.greetMe(each) for each in ("Ann", "Bob", "cached")))
                assert time.monotonic() - began < PATIENCE
                await service.pingMe("x")
                return list(found)

        assert asyncio.run(main()) == ["Hello Ann", "Hello Bob", "cached"]
        assert seen == [("greetMe", False)] * 3 + [("pingMe", True)]

    def test_of_the_wrong_kind(self, connection: Connection) -> None:
        async def coroutine(call: Any, call_next: Any) -> Any: ...

        with pytest.raises(
            UsageError, match=r"middleware must be plain functions here, .*; only an AsyncClient takes async def"
        ):
            self.client(soapjms.zeep.Client, connection, [coroutine])
        with pytest.raises(UsageError, match="middleware must be async def functions"):
            self.client(soapjms.zeep.AsyncClient, connection, [noting("a", [])])
        with pytest.raises(UsageError, match="middleware must be async def functions"):
            soapjms.zeep.JmsTransport(connection, middleware=[coroutine, noting("a", [])])


def test_typed_and_served(tmp_path: Path, shared_url: str) -> None:
    """`soapjms serve --middleware` puts it around a service; what is not there is a matter of usage."""
    options = ["--connection", shared_url, "--uri", "jms:queue:q"]
    with serving("bank:service", *options, "--middleware", "bank:Audit.passed", marks=tmp_path) as served:
        served.until_serving()
        served.process.terminate()
        assert served.ended() == 0
    with serving("bank:service", *options, "--middleware", "bank:nothing", marks=tmp_path) as served:
        assert served.ended() == 2
        assert "the middleware bank:nothing does not exist" in "".join(served.err)
