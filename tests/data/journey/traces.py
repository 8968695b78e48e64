"""With the extra `opentelemetry`: a call with a trace, which goes nowhere until a program sets up an exporter."""

from __future__ import annotations

from opentelemetry import trace

import soapjms
from soapjms.opentelemetry import Traces

ENVELOPE = (
    '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><a xmlns="urn:a"/></e:Body></e:Envelope>'
)
PARENT = trace.SpanContext(trace_id=7, span_id=9, is_remote=True, trace_flags=trace.TraceFlags(1))

seen = list[object]()
service = soapjms.Service()


@service.operation("{urn:a}a")
def note(request: soapjms.Request) -> object:
    """Note the trace that the request belongs to."""
    seen.append(trace.get_current_span().get_span_context().trace_id)
    return request.element


with (
    soapjms.connect("embedded:") as connection,
    soapjms.Dispatcher(connection, "jms:queue:a", service, observer=Traces()),
    soapjms.Client(connection, "jms:queue:a", observer=Traces()) as client,
    trace.use_span(trace.NonRecordingSpan(PARENT)),
):
    client.call(ENVELOPE)
print("call", flush=True)
assert seen == [7], "the trace of the caller goes on in the service"
print("trace", flush=True)
