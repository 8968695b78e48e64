"""Without any extra: serve, call and capture, on the embedded broker."""

from __future__ import annotations

import sys
from pathlib import Path

from lxml import etree

import soapjms

ENVELOPE = """\
<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/">
  <e:Body><greetMe xmlns="urn:greeter"><name>World</name></greetMe></e:Body>
</e:Envelope>"""

folder = Path(sys.argv[1])
service = soapjms.Service()


@service.operation("{urn:greeter}greetMe")
def greet(request: soapjms.Request) -> etree._Element:
    """Say hello."""
    response = etree.Element("{urn:greeter}greetMeResponse")
    response.text = f"Hello {request.findtext('{urn:greeter}name')}"
    return response


with (
    soapjms.connect("embedded:") as connection,
    soapjms.Recorder(folder / "capture.jsonl") as recorder,
    soapjms.Dispatcher(connection, "jms:queue:greeter", service, recorder=recorder),
):
    print("service", flush=True)
    with soapjms.Client(connection, "jms:queue:greeter", recorder=recorder) as client:
        response = client.call(ENVELOPE)
    assert response.element.text == "Hello World"
    assert response.findings() == ()
    print("call", flush=True)
assert len((folder / "capture.jsonl").read_text("utf-8").splitlines()) == 4, "both sides, request and response"
print("capture", flush=True)
