"""asyncio on both sides: a service with an `async` function, and a program that makes many calls at once.

python examples/asyncio_greeter.py [stomp://admin:admin@localhost:61613]

Without a URL it runs on the embedded broker.

With a WSDL, use `soapjms.zeep.AsyncClient`: see examples/zeep_client.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from lxml import etree

import soapjms

NAMESPACE = "urn:greeter"
URI = "jms:queue:greeter.asyncio"

service = soapjms.Service()


@service.operation(f"{{{NAMESPACE}}}greetMe")
async def greet(request: soapjms.Request) -> etree._Element:
    """Say hello, after awaiting whatever is needed: a database, another service."""
    await asyncio.sleep(0)
    response = etree.Element(f"{{{NAMESPACE}}}greetMeResponse", nsmap={None: NAMESPACE})
    response.text = f"Hello {request.element.text}"
    return response


def envelope(name: str) -> str:
    """Write a request."""
    space = soapjms.SoapVersion.SOAP_11.namespace
    return f'<e:Envelope xmlns:e="{space}"><e:Body><greetMe xmlns="{NAMESPACE}">{name}</greetMe></e:Body></e:Envelope>'


async def call(client: soapjms.Client, name: str) -> str | None:
    """Make a call without blocking the event loop."""
    # `submit` waits while the connection is lost, so it runs on a thread; the future needs none.
    future = await asyncio.to_thread(client.submit, envelope(name))
    response = (await future).raise_for_fault()
    return None if response.element is None else response.element.text


async def greet_all(client: soapjms.Client) -> None:
    """Make several calls at once."""
    for greeting in await asyncio.gather(*(call(client, name) for name in ("Ann", "Bob", "Cem"))):
        print(greeting)


def main(arguments: Sequence[str]) -> int:
    """Serve and call at the broker whose URL is given, else at the embedded one."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    with (
        soapjms.connect(*arguments or ["embedded:"]) as connection,
        soapjms.Dispatcher(connection, URI, service, workers=4),
        soapjms.Client(connection, URI, timeout=10) as client,
    ):
        asyncio.run(greet_all(client))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
