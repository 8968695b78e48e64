"""With the extra `stomp` or `amqp`: a service and its client, each with a connection of its own to a broker."""

from __future__ import annotations

import sys

import soapjms

ENVELOPE = """\
<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/">
  <e:Body><greetMe xmlns="urn:greeter">World</greetMe></e:Body>
</e:Envelope>"""

url, uri = sys.argv[2], "jms:queue:journey.greeter"
service = soapjms.Service()
service.operation("{urn:greeter}greetMe")(lambda request: request.element)

with soapjms.connect(url) as there, soapjms.Dispatcher(there, uri, service):
    print("service", flush=True)
    with soapjms.connect(url) as here, soapjms.Client(here, uri) as client:
        assert client.call(ENVELOPE).element.text == "World"
    print("call", flush=True)
