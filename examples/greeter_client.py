"""A client of the greeter: calls in both SOAP versions, several calls at once, a fault, a one-way message.

python examples/greeter_client.py [stomp://admin:admin@localhost:61613]

It calls examples/greeter_service.py: at the broker whose URL is given, else at the embedded one, in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext

import greeter_service

import soapjms

NAMESPACE = "urn:greeter"
URI = "jms:queue:greeter"


def envelope(operation: str, name: str, version: soapjms.SoapVersion = soapjms.SoapVersion.SOAP_11) -> str:
    """Write a request."""
    return (
        f'<e:Envelope xmlns:e="{version.namespace}"><e:Body>'
        f'<{operation} xmlns="{NAMESPACE}"><name>{name}</name></{operation}></e:Body></e:Envelope>'
    )


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
            response = client.call(envelope("greetMe", "World", version), soap_action="urn:greeter:greetMe")
            print(f"SOAP {version}: {response.raise_for_fault().envelope.body.findtext('.//{*}greeting')}")

        futures = [client.submit(envelope("greetMe", name)) for name in ("Ann", "Bob", "Cem")]
        for future in futures:
            print(f"at once: {future.result().envelope.body.findtext('.//{*}greeting')}")

        try:
            client.call(envelope("greetMe", "")).raise_for_fault()
        except soapjms.SoapFaultError as fault:
            print(f"a fault: {fault.reason} ({fault.blame})")

        client.send(envelope("pingMe", "World"))
        print("pinged")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
