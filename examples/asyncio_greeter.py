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


def body(name: str) -> etree._Element:
    """Make the body of a request; a client puts it into an envelope."""
    element = etree.Element(f"{{{NAMESPACE}}}greetMe", nsmap={None: NAMESPACE})
    element.text = name
    return element


async def greet_all(url: str) -> None:
    """Serve on this event loop, and make several calls at once."""
    async with (
        soapjms.connect_async(url) as connection,
        soapjms.AsyncDispatcher(connection, URI, service, workers=4),
        soapjms.AsyncClient(connection, URI, timeout=10) as client,
    ):
        for response in await asyncio.gather(*(client.call(body(name)) for name in ("Ann", "Bob", "Cem"))):
            answer = response.raise_for_fault().element
            print(None if answer is None else answer.text)


def main(arguments: Sequence[str]) -> int:
    """Serve and call at the broker whose URL is given, else at the embedded one."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    asyncio.run(greet_all(*arguments or ["embedded:"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
