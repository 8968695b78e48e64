"""Traces with OpenTelemetry: `Client(..., observer=Traces())`, `Dispatcher(..., observer=Traces())`.

Needs the extra `opentelemetry`, and the OpenTelemetry SDK to export spans. The client's message carries the trace
context as properties, so that the service's span is a child of the client's. The answer carries the service's context,
and the client's span gets a link to it: of several deliveries of a request, the link shows which one was answered.

Spec: W3C Trace Context; OpenTelemetry semantic conventions for messaging, with JMS as the messaging system.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, TextMapPropagator
    from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider
except ImportError as _error:
    raise ImportError(
        f"soapjms.opentelemetry needs opentelemetry-api ({_error}): pip install 'soapjms[opentelemetry]'"
    ) from _error

from brokers.message import Message, Properties
from soapjms.observing import Begun, Ended, Observation, Observer, Outcome, Side, is_property_name

DASH: Final = "__dash__"
"""Replaces a hyphen, which JMS property names cannot have; OpenTelemetry for Java does the same."""

MAX_VALUE_CHARACTERS: Final = 8192
"""Maximum length of a property that is read as trace context, in characters."""

MAX_TEXT_CHARACTERS: Final = 256
"""Maximum length of a span attribute, in characters: a peer's ids can have any length."""

KINDS: Final = {
    (Side.CLIENT, False): ("call", "send", SpanKind.CLIENT),
    (Side.CLIENT, True): ("send", "send", SpanKind.PRODUCER),
    (Side.SERVICE, False): ("process", "process", SpanKind.SERVER),
    (Side.SERVICE, True): ("process", "process", SpanKind.CONSUMER),
}
"""Name and type of the operation, and kind of the span, by side and by whether the message is one-way."""

ERRORS: Final = {
    Side.CLIENT: frozenset({Outcome.FAULT, Outcome.TIMEOUT, Outcome.FAILED}),
    Side.SERVICE: frozenset({Outcome.DEAD_LETTER, Outcome.UNDELIVERED, Outcome.LOST}),
}
"""The outcomes that are errors, by side. A fault is an error of the service only if its function failed."""


class _Carried(Getter[Properties]):
    """Reads trace context from the properties of a message."""

    def get(self, carrier: Properties, key: str) -> list[str] | None:
        """Return the text of a property as a list of one value."""
        value = carrier.value(key.replace("-", DASH))
        return [value] if isinstance(value, str) and len(value) <= MAX_VALUE_CHARACTERS else None

    def keys(self, carrier: Properties) -> list[str]:
        """List the names of the properties."""
        return [each.name.replace(DASH, "-") for each in carrier]


CARRIED: Final = _Carried()


class _Propagation:
    """Writes and reads trace context in messages, with the given propagator or the program's global one."""

    def __init__(self, propagator: TextMapPropagator | None) -> None:
        self._propagator = propagator

    @property
    def propagator(self) -> TextMapPropagator:
        return self._propagator or propagate.get_global_textmap()

    def written(self, context: Context) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        self.propagator.inject(carrier, context)
        named = ((name.replace("-", DASH), value) for name, value in carrier.items())
        return {name: value for name, value in named if is_property_name(name)}

    def read(self, message: Message) -> Context:
        return self.propagator.extract(message.properties, Context(), CARRIED)


class _Traced(Observation):
    """One span.

    Args:
        span: the span, already started.
        context: the context that has the span, with baggage.
        begun: the call, one-way message or request.
        propagation: writes and reads trace context in messages.
        answers: whether the client sent its context, so that the answer carries the service's.
    """

    def __init__(self, span: Span, context: Context, begun: Begun, propagation: _Propagation, *, answers: bool) -> None:
        self._span = span
        self._context = context
        self._side = begun.place.side
        self._propagation = propagation
        self._answers = answers
        self._has_failed = False

    def properties(self) -> Mapping[str, str]:
        """Return the trace context as properties; baggage goes to the service, but not back."""
        if self._side is Side.CLIENT:
            return self._propagation.written(self._context)
        return self._propagation.written(trace.set_span_in_context(self._span, Context())) if self._answers else {}

    @contextmanager
    def working(self) -> Iterator[None]:
        """Make the span the current one, so that spans of the function become its children."""
        self._has_failed = False
        token = contexts.attach(self._context)
        try:
            yield
        finally:
            contexts.detach(token)

    def failed(self, error: BaseException) -> None:
        """Add the failure to the span."""
        self._has_failed = True
        self._span.record_exception(error)

    def ended(self, ended: Ended) -> None:
        """End the span."""
        try:
            if self._span.is_recording():
                self._describe(ended)
        finally:  # even if the propagator cannot read the answer, or the error has no text
            self._span.end()

    def _describe(self, ended: Ended) -> None:
        said = {"outcome": ended.outcome, "subcode": ended.subcode, "operation": ended.operation}
        self._span.set_attributes({f"soapjms.{name}": str(value) for name, value in said.items() if value})
        if ended.redelivered:
            self._span.set_attribute("soapjms.redelivered", True)
        if ended.response is not None:
            answered = trace.get_current_span(self._propagation.read(ended.response)).get_span_context()
            if answered.is_valid:
                self._span.add_link(answered)
        if ended.outcome in ERRORS[self._side] or self._has_failed:
            kind = ended.subcode or (type(ended.error).__name__ if ended.error else ended.outcome)
            self._span.set_attribute("error.type", str(kind))
            self._span.set_status(StatusCode.ERROR, None if ended.error is None else str(ended.error))


class Traces(Observer):
    """Makes a span of each call, one-way message and request, for any number of clients and dispatchers.

    Args:
        tracer_provider: makes the spans; by default the program's global one.
        propagator: writes and reads the trace context; by default the one that the program or OTEL_PROPAGATORS sets,
            else W3C trace context and baggage.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self._tracer: Tracer = trace.get_tracer("soapjms", tracer_provider=tracer_provider)
        self._propagation = _Propagation(propagator)

    def begun(self, begun: Begun) -> Observation:
        """Start a span: at a client a child of the current span, at a service a child of the client's span."""
        parent = contexts.get_current() if begun.message is None else self._propagation.read(begun.message)
        operation, _, kind = KINDS[begun.place.side, begun.one_way]
        span = self._tracer.start_span(
            f"{operation} {begun.place.destination.name}", parent, kind, attributes=attributes(begun)
        )
        return _Traced(
            span,
            trace.set_span_in_context(span, parent),
            begun,
            self._propagation,
            answers=trace.get_current_span(parent).get_span_context().is_valid,
        )


def attributes(begun: Begun) -> dict[str, str | bool | int]:
    """Return the span attributes that the semantic conventions define for a message, without unknown values."""
    operation, kind, _ = KINDS[begun.place.side, begun.one_way]
    message = begun.message
    found: dict[str, str | bool | int | None] = {
        "messaging.system": "jms",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": begun.place.destination.name,
        "messaging.message.conversation_id": begun.correlation_id,
        "messaging.message.id": None if message is None else message.message_id,
        "messaging.message.body.size": None if message is None else message.size,
        "soapjms.soap_action": begun.soap_action,
    }
    return {
        name: value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) else value
        for name, value in found.items()
        if value is not None
    }
