"""With the extra `bridge`: an HTTP client reaches a service over JMS."""

from __future__ import annotations

import urllib.request

import soapjms
from soapjms.bridge.http import HttpBridge
from soapjms.bridge.listener import Listener

ENVELOPE = b"""\
<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/">
  <e:Body><greetMe xmlns="urn:greeter">World</greetMe></e:Body>
</e:Envelope>"""

uri = "jms:queue:greeter"
service = soapjms.Service()
service.operation("{urn:greeter}greetMe")(lambda request: request.element)

with (
    soapjms.connect("embedded:") as connection,
    soapjms.Dispatcher(connection, uri, service),
    HttpBridge(connection, uri) as bridge,
    Listener(bridge, "127.0.0.1:0") as listener,
):
    print("bridge", flush=True)
    request = urllib.request.Request(listener.url, ENVELOPE, {"Content-Type": "text/xml; charset=utf-8"})
    with urllib.request.urlopen(request, timeout=30) as response:
        assert b"World" in response.read()
    print("call", flush=True)
