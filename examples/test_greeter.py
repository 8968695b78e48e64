"""How to test a service, and a client of one, with pytest and without a broker.

pytest examples/test_greeter.py (or python examples/test_greeter.py)

The fixtures come with pip install 'soapjms[testing]'; docs/testing.md describes them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from greeter_service import service
from lxml import etree

import soapjms

try:
    import pytest

    from soapjms.testing import StubService, Traffic, assert_conforms
    from soapjms.testing.plugin import ClientMaker, ServiceRunner
except ImportError as error:
    sys.exit(f"{error}: this example needs pip install 'soapjms[testing]'")

GREET = "{urn:greeter}greetMe"


def body(name: str) -> etree._Element:
    """Make the body of a request; a client puts it into an envelope."""
    element = etree.Element(GREET)
    etree.SubElement(element, "{urn:greeter}name").text = name
    return element


class Reception:
    """The code under test, which uses the greeter: it greets guests, and copes when nobody answers."""

    def __init__(self, greeter: soapjms.Client) -> None:
        self.greeter = greeter

    def welcome(self, guest: str) -> str:
        """Return the greeting for a guest."""
        try:
            response = self.greeter.call(body(guest)).raise_for_fault()
        except soapjms.CallTimeoutError:
            return "Please wait."
        return response.envelope.body.findtext(".//{*}greeting") or ""


def test_the_service(soapjms_serve: ServiceRunner, soapjms_client: ClientMaker, soapjms_capture: Traffic) -> None:
    """The greeter greets, answers an empty name with a fault, and follows the rules of SOAP over JMS."""
    client = soapjms_client(soapjms_serve(service))
    response = client.call(body("World"))
    assert response.envelope.body.findtext(".//{*}greeting") == "Hello World"
    with pytest.raises(soapjms.SoapFaultError, match="whom shall I greet"):
        client.call(body("")).raise_for_fault()
    assert_conforms(soapjms_capture)


def naming(guest: str) -> Callable[[soapjms.Request], bool]:
    """Expect requests for one guest."""
    return lambda request: request.findtext("{*}name") == guest


def test_the_client(soapjms_stub: StubService, soapjms_client: ClientMaker, soapjms_capture: Traffic) -> None:
    """The reception asks the greeter for each guest, by name."""
    for guest in ("Ann", "Bob"):
        soapjms_stub.expect(GREET, where=naming(guest)).respond(
            f'<greetMeResponse xmlns="urn:greeter"><greeting>Dear {guest}</greeting></greetMeResponse>'
        )
    reception = Reception(soapjms_client(soapjms_stub.uri))
    assert reception.welcome("Bob") == "Dear Bob"
    assert reception.welcome("Ann") == "Dear Ann"
    assert_conforms(soapjms_capture)


def test_a_slow_greeter(soapjms_stub: StubService, soapjms_client: ClientMaker) -> None:
    """The reception asks guests to wait when the greeter does not answer in time."""
    soapjms_stub.expect(GREET).delay(60)
    assert Reception(soapjms_client(soapjms_stub.uri, timeout=0.2)).welcome("Ann") == "Please wait."


def test_faults(soapjms_stub: StubService, soapjms_client: ClientMaker) -> None:
    """Faults reach the caller: first one of the binding, then one of the application."""
    with soapjms_stub.in_sequence():
        soapjms_stub.expect(GREET).fault("missingContentType")
        soapjms_stub.expect(GREET).respond(soapjms.SoapFaultError("closed today", detail=etree.Element("closed")))
    reception = Reception(soapjms_client(soapjms_stub.uri))
    with pytest.raises(soapjms.SoapFaultError) as fault:
        reception.welcome("Ann")
    assert fault.value.subcode == "missingContentType"
    with pytest.raises(soapjms.SoapFaultError, match="closed today"):
        reception.welcome("Ann")


if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "soapjms.testing.plugin", "-p", "no:cacheprovider", __file__]
    sys.exit(subprocess.call(command))
