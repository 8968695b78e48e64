"""A client of the greeter: calls in both SOAP versions, several calls at once, a fault, a one-way message.

python examples/greeter_client.py [stomp://admin:admin@localhost:61613]

It calls examples/greeter_service.py: at the broker whose URL is given, else at the embedded one, in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext

import greeter_service
from lxml import etree

import soapjms

NAMESPACE = "urn:greeter"
URI = "jms:queue:greeter"


def body(operation: str, name: str) -> etree._Element:
    """Make the body of a request; a client puts it into an envelope."""
    element = etree.Element(f"{{{NAMESPACE}}}{operation}", nsmap={None: NAMESPACE})
    etree.SubElement(element, f"{{{NAMESPACE}}}name").text = name
    return element


def main(arguments: Sequence[str]) -> int:
    """Call the greeter at the broker whose URL is given, else at the embedded one."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    with (
        soapjms.connect(*arguments or ["embedded:"]) as connection,
        nullcontext() if arguments else soapjms.Dispatcher(connection, greeter_service.URI, greeter_service.service),
        soapjms.Client(connection, URI, timeout=10) as client,
    ):
        for version in soapjms.SoapVersion:
            response = client.call(
                soapjms.envelope(body("greetMe", "World"), version=version), soap_action="urn:greeter:greetMe"
            )
            print(f"SOAP {version}: {response.raise_for_fault().envelope.body.findtext('.//{*}greeting')}")

        futures = [client.submit(body("greetMe", name)) for name in ("Ann", "Bob", "Cem")]
        for future in futures:
            print(f"at once: {future.result().envelope.body.findtext('.//{*}greeting')}")

        try:
            client.call(body("greetMe", "")).raise_for_fault()
        except soapjms.SoapFaultError as fault:
            print(f"a fault: {fault.reason} ({fault.blame})")

        client.send(body("pingMe", "World"))
        print("pinged")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
