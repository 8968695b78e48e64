"""With the extra `prometheus`: a call, and the metrics of it."""

from __future__ import annotations

import prometheus_client

import soapjms
from soapjms.prometheus import Metrics

ENVELOPE = (
    '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><a xmlns="urn:a"/></e:Body></e:Envelope>'
)

service = soapjms.Service()
service.operation("{urn:a}a")(lambda request: request.element)

with (
    soapjms.connect("embedded:") as connection,
    soapjms.Dispatcher(connection, "jms:queue:a", service),
    soapjms.Client(connection, "jms:queue:a", observer=Metrics()) as client,
):
    client.call(ENVELOPE)
print("call", flush=True)
assert b'soapjms_client_calls_total{destination="queue:a"' in prometheus_client.generate_latest()
print("metrics", flush=True)
