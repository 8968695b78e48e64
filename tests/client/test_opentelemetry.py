"""Traces, with the SDK of OpenTelemetry and spans that stay in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from calling_kit import (
    NS,
    PATIENCE,
    URI,
    OnEachBroker,
    Peers,
    element,
    envelope,
    eventually,
    greeter,
    request_message,
    take_one,
    text_of,
)
from lxml import etree
from opentelemetry import baggage, context, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from brokers import Connection, queue
from brokers.embedded import Broker
from soapjms import AsyncClient, CallFailedError, Client, Dispatcher, Policy, Request, Service
from soapjms.opentelemetry import MAX_TEXT_CHARACTERS, MAX_VALUE_CHARACTERS, Traces
from soapjms.protocol import names

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Spans:
    """What was traced, by a provider of the test's own."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))

    def take(self, count: int) -> list[ReadableSpan]:
        """Wait until so many have ended, and return them in the order in which they began."""
        eventually(lambda: len(self._memory.get_finished_spans()) >= count, f"{count} spans have ended")
        found = sorted(self._memory.get_finished_spans(), key=lambda each: each.start_time or 0)
        self._memory.clear()
        assert len(found) == count, [each.name for each in found]
        return found


def id_of(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    """Return the id of its parent."""
    return None if span.parent is None else span.parent.span_id


class Tracing(Peers):
    """Spans of the client, and of the service."""

    @pytest.fixture
    def asking(self) -> Spans:
        return Spans()

    @pytest.fixture
    def serving(self) -> Spans:
        return Spans()

    @pytest.fixture
    def client(self, connection: Connection, asking: Spans) -> Iterator[Client]:
        with Client(connection, URI, timeout=PATIENCE, observer=Traces(asking.provider)) as client:
            yield client


class TestAcrossTheBroker(OnEachBroker):
    """Spans of client and service, on the embedded broker, ActiveMQ Classic and Artemis."""

    def test_call(self, connection: Connection, other: Connection, name: str, uri: str) -> None:
        """One trace: the caller's span, the call, the request, what the function does; the answer links back."""
        asking, serving = Spans(), Spans()
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> etree._Element:
            with serving.provider.get_tracer("bank").start_as_current_span("look up"):
                return element("greetMeResponse", f"{baggage.get_baggage('tenant')}")

        with (
            Dispatcher(other, uri, service, observer=Traces(serving.provider)),
            Client(connection, uri, timeout=PATIENCE, observer=Traces(asking.provider)) as client,
            asking.provider.get_tracer("teller").start_as_current_span("counter"),
        ):
            token = context.attach(baggage.set_baggage("tenant", "north & south"))
            response = client.call(envelope(), soap_action="urn:greet")
            context.detach(token)
            process, look_up = serving.take(2)
        counter, call = asking.take(2)
        assert [each.name for each in (counter, call, process, look_up)] == [
            "counter",
            f"call {name}",
            f"process {name}",
            "look up",
        ]
        assert [parent_of(each) for each in (counter, call, process, look_up)] == [
            None,
            *map(id_of, (counter, call, process)),
        ]
        assert len({each.context.trace_id for each in (counter, call, process, look_up) if each.context}) == 1
        assert (call.kind, process.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
        assert [link.context.span_id for link in call.links] == [id_of(process)]
        assert text_of(response) == "north & south"
        assert response.findings() == response.notes() == ()
        assert response.message.properties.lookup("baggage") is None
        assert (process.attributes or {})["messaging.message.conversation_id"] == response.request.correlation_id

    def test_one_way(self, connection: Connection, other: Connection, name: str, uri: str) -> None:
        """A producer, and a consumer that is its child."""
        asking, serving = Spans(), Spans()
        with (
            Dispatcher(other, uri, greeter(), observer=Traces(serving.provider)),
            Client(connection, uri, timeout=PATIENCE, observer=Traces(asking.provider)) as client,
        ):
            client.send(envelope())
            (process,) = serving.take(1)
        (send,) = asking.take(1)
        assert (send.name, process.name) == (f"send {name}", f"process {name}")
        assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert parent_of(process) == id_of(send)
        assert (send.attributes or {})["soapjms.outcome"] == "sent"
        assert (process.attributes or {})["soapjms.outcome"] == "done"


class TestSpans(Tracing):
    """What a span says."""

    def test_the_callers_span_on_another_thread(self, connection: Connection, other: Connection) -> None:
        """It is the parent too where a thread of the client's sends: with middleware, and one-way with asyncio."""
        asking = Spans()
        traces, tracer = Traces(asking.provider), trace.get_tracer("test", tracer_provider=asking.provider)

        async def send() -> None:
            async with AsyncClient(connection, URI, timeout=PATIENCE, observer=traces) as client:
                with tracer.start_as_current_span("caller"):
                    await client.send(envelope())

        plain = [lambda call, call_next: call_next(call)]
        with (
            Dispatcher(other, URI, greeter()),
            Client(connection, URI, timeout=PATIENCE, observer=traces, middleware=plain) as client,
        ):
            with tracer.start_as_current_span("caller"):
                assert text_of(client.submit(envelope("Ann")).result(PATIENCE)) == "Hello Ann"
            caller, call = asking.take(2)
            assert (caller.name, parent_of(call)) == ("caller", id_of(caller))
            asyncio.run(send())
            caller, sent = asking.take(2)
            assert (caller.name, parent_of(sent)) == ("caller", id_of(caller))

    def test_attributes(self, client: Client, other: Connection, asking: Spans, serving: Spans) -> None:
        """The conventions for messaging, and how it ended."""
        with Dispatcher(other, URI, greeter(), observer=Traces(serving.provider)):
            response = client.call(envelope("Ann"), soap_action="urn:greet")
            (process,) = serving.take(1)
        (call,) = asking.take(1)
        common = {
            "messaging.system": "jms",
            "messaging.destination.name": "greeter",
            "messaging.message.conversation_id": response.request.correlation_id,
            "soapjms.outcome": "response",
        }
        assert call.attributes == common | {
            "messaging.operation.name": "call",
            "messaging.operation.type": "send",
            "soapjms.soap_action": "urn:greet",
        }
        attributes = dict(process.attributes or {})
        assert str(attributes.pop("messaging.message.id")).startswith("ID:")
        assert attributes == common | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.message.body.size": len(envelope("Ann")),
            "soapjms.operation": f"{{{NS}}}greetMe",
        }
        assert (call.status.status_code, process.status.status_code) == (StatusCode.UNSET, StatusCode.UNSET)

    def test_faults(self, client: Client, other: Connection, asking: Spans, serving: Spans) -> None:
        """A fault is an error of the call; of the service it is one only if its function failed."""
        service = greeter()
        service.operation(f"{{{NS}}}break")(lambda request: 1 / 0)
        with Dispatcher(other, URI, service, observer=Traces(serving.provider)):
            for operation in ("fail", "break"):
                client.call(envelope(operation=operation))
            answered, broken = serving.take(2)
        for call in asking.take(2):
            assert (call.status.status_code, (call.attributes or {})["error.type"]) == (StatusCode.ERROR, "fault")
        assert answered.status.status_code is StatusCode.UNSET
        assert broken.status.status_code is StatusCode.ERROR
        (event,) = broken.events
        assert (event.name, (event.attributes or {})["exception.type"]) == ("exception", "ZeroDivisionError")

    def test_failed_calls(self, client: Client, asking: Spans) -> None:
        """A call without an answer says why."""
        with pytest.raises(TimeoutError):
            client.call(envelope(), timeout=0.01)
        client._connection.close()
        with pytest.raises(CallFailedError):
            client.call(envelope())
        timeout, failed = asking.take(2)
        assert [(each.attributes or {})["soapjms.outcome"] for each in (timeout, failed)] == ["timeout", "failed"]
        assert [(each.attributes or {})["error.type"] for each in (timeout, failed)] == [
            "CallTimeoutError",
            "CallFailedError",
        ]
        assert "no correlated response came in time" in (timeout.status.description or "")

    def test_an_answer_that_the_propagator_cannot_read(
        self, connection: Connection, other: Connection, asking: Spans
    ) -> None:
        """The span of the call ends all the same."""

        class Failing(TextMapPropagator):
            @property
            def fields(self) -> set[str]:
                return set()

            def inject(self, carrier: Any, *_: Any, **__: Any) -> None:
                """Write nothing."""

            def extract(self, carrier: Any, *_: Any, **__: Any) -> context.Context:
                raise ValueError("no context")

        traces = Traces(asking.provider, propagator=Failing())
        with Dispatcher(other, URI, greeter()), Client(connection, URI, timeout=PATIENCE, observer=traces) as client:
            assert client.call(envelope()).fault is None
            (call,) = asking.take(1)
        assert call.name == "call greeter"

    def test_retried(self, client: Client, other: Connection, serving: Spans) -> None:
        """A function that fails and then returns is no error; its failures are there."""
        runs: list[Request] = []
        service = Service(policy=Policy(retries=1, pause=0))

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> etree._Element:
            runs.append(request)
            assert trace.get_current_span().get_span_context().is_valid
            if len(runs) == 1:
                raise ValueError("not now")
            return element("greetMeResponse", "now")

        with Dispatcher(other, URI, service, observer=Traces(serving.provider)):
            assert text_of(client.call(envelope())) == "now"
            (process,) = serving.take(1)
        assert (process.status.status_code, len(process.events)) == (StatusCode.UNSET, 1)

    def test_redelivered(self, broker: Broker, client: Client, asking: Spans, serving: Spans) -> None:
        """Each delivery has a span below the call; the link is to the one whose answer came."""
        first, service = broker.connect(), greeter()
        service.operation(f"{{{NS}}}leave")(lambda request: first.close(0))
        with Dispatcher(first, URI, service, workers=1, observer=Traces(serving.provider)):
            future = client.submit(envelope(operation="leave"))
            (lost,) = serving.take(1)
        with broker.connect() as second, Dispatcher(second, URI, service, observer=Traces(serving.provider)):
            assert future.result(PATIENCE).fault is None
            (answered,) = serving.take(1)
        (call,) = asking.take(1)
        assert parent_of(lost) == parent_of(answered) == id_of(call)
        assert [link.context.span_id for link in call.links] == [id_of(answered)]
        assert (lost.status.status_code, answered.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
        assert (answered.attributes or {})["soapjms.redelivered"] is True


class TestPropagation(Tracing):
    """Trace context in messages."""

    def test_request(self, client: Client, other: Connection, asking: Spans) -> None:
        """It is in properties that JMS allows, as text, by the names of the W3C."""
        client.send(envelope())
        message = take_one(other, queue("greeter"))
        (send,) = asking.take(1)
        assert send.context is not None
        begun = f"00-{send.context.trace_id:032x}-{id_of(send):016x}-"
        assert str(message.properties.value("traceparent")).startswith(begun)
        ours = {each.name for each in message.properties if each.name.lower().startswith("soapjms_")}
        assert {each.name for each in message.properties} == {"traceparent", *ours}

    def test_other_propagators(self, connection: Connection, other: Connection, asking: Spans) -> None:
        """A hyphen, which JMS has in no name, is written as OpenTelemetry for Java writes it, and read again."""

        class Hyphens(TextMapPropagator):
            fields = frozenset({"x-trace-id"})

            def inject(self, carrier, context=None, setter=None):  # type: ignore[no-untyped-def]
                span = trace.get_current_span(context).get_span_context()
                carrier["x-trace-id"] = f"{span.trace_id:x}/{span.span_id:x}"
                carrier["not.a.name"] = "dropped"

            def extract(self, carrier, context=None, getter=None):  # type: ignore[no-untyped-def]
                assert "x-trace-id" in getter.keys(carrier)
                (value,) = getter.get(carrier, "x-trace-id")
                number, span = (int(each, 16) for each in value.split("/"))
                found = trace.SpanContext(number, span, is_remote=True, trace_flags=trace.TraceFlags(1))
                return trace.set_span_in_context(trace.NonRecordingSpan(found), context)

        traces = Traces(asking.provider, Hyphens())
        seen: list[Request] = []
        service = Service()
        service.operation(f"{{{NS}}}greetMe")(seen.append)
        with (
            Dispatcher(other, URI, service, observer=traces),
            Client(connection, URI, timeout=PATIENCE, observer=traces) as client,
        ):
            client.send(envelope())
            send, process = asking.take(2)
        assert parent_of(process) == id_of(send)
        assert "x__dash__trace__dash__id" in {each.name for each in seen[0].properties}
        assert not any("." in each.name for each in seen[0].properties)

    @pytest.mark.parametrize(
        "carried",
        [
            {"traceparent": "nonsense"},
            {"traceparent": 7},
            {"traceparent": f"00-{TRACE}-{PARENT}-01" + "x" * MAX_VALUE_CHARACTERS},
            {"traceparent": True, "tracestate": None, "baggage": "=,;" * 99_999},
            {},
        ],
    )
    def test_hostile(
        self, connection: Connection, other: Connection, serving: Spans, carried: dict[str, object]
    ) -> None:
        """What is no trace context begins a trace of our own; the answer carries none, as nobody asked."""
        reply_to = connection.temporary()
        with Dispatcher(other, URI, greeter(), observer=Traces(serving.provider)):
            asked = request_message("greeter", reply_to, correlation_id="c" * 99_999, properties=carried)
            connection.send(asked)
            answer = take_one(connection, reply_to)
            (process,) = serving.take(1)
        assert process.parent is None
        assert answer.properties.value("traceparent") is None
        assert (process.attributes or {})["messaging.message.conversation_id"] == "c" * MAX_TEXT_CHARACTERS

    def test_from_another_stack(self, connection: Connection, other: Connection, serving: Spans) -> None:
        """A Java client's trace goes on here; its tracestate is kept for the answer."""
        reply_to = connection.temporary()
        sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "congo=t61rcWkgMzE"}
        with Dispatcher(other, URI, greeter(), observer=Traces(serving.provider)):
            connection.send(request_message("greeter", reply_to, properties=sent))
            answer = take_one(connection, reply_to)
            (process,) = serving.take(1)
        assert process.context is not None
        assert (f"{process.context.trace_id:032x}", f"{parent_of(process):016x}") == (TRACE, PARENT)
        assert str(answer.properties.value("traceparent")).startswith(f"00-{TRACE}-{id_of(process):016x}-")
        assert answer.properties.value("tracestate") == "congo=t61rcWkgMzE"

    def test_no_sdk(self, connection: Connection, other: Connection) -> None:
        """Without an SDK nothing is traced, and nothing is added to messages."""
        traces = Traces(trace.NoOpTracerProvider())
        with (
            Dispatcher(other, URI, greeter(), observer=traces),
            Client(connection, URI, timeout=PATIENCE, observer=traces) as client,
        ):
            response = client.call(envelope())
        for message in (response.request, response.message):
            assert all(each.name.lower().startswith("soapjms_") for each in message.properties)
        assert response.request.properties.value(names.BINDING_VERSION) == "1.0"
