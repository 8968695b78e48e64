"""With the extra `testing`: a test of a client, whose service is a stub. run as a program it runs pytest."""

from __future__ import annotations

import subprocess
import sys

from soapjms.testing import StubService, Traffic, assert_conforms
from soapjms.testing.plugin import ClientMaker

ENVELOPE = """\
<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/">
  <e:Body><greetMe xmlns="urn:greeter">World</greetMe></e:Body>
</e:Envelope>"""


def test_our_client(soapjms_stub: StubService, soapjms_client: ClientMaker, soapjms_capture: Traffic) -> None:
    """The client gets what the stub answers."""
    soapjms_stub.expect("{urn:greeter}greetMe").respond('<greeting xmlns="urn:greeter">Hello</greeting>')
    assert soapjms_client(soapjms_stub.uri).call(ENVELOPE).element.text == "Hello"
    assert_conforms(soapjms_capture)


if __name__ == "__main__":
    done = subprocess.run([sys.executable, "-m", "pytest", __file__], capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout
    print("test", flush=True)
