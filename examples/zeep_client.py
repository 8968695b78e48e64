"""A client of the greeter made from its WSDL, with zeep: both SOAP versions, a fault, a one-way message, asyncio.

python examples/zeep_client.py [stomp://admin:admin@localhost:61613]

It calls examples/typed_service.py, or examples/greeter_service.py: at the broker whose URL is given, else at the
embedded one, in this process.

It needs: pip install 'soapjms[zeep]'
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from typed_service import service

import soapjms
import soapjms.zeep
from brokers import Connection

WSDL = Path(__file__).parent / "greeter.wsdl"


async def greet_all(connection: Connection, names: Sequence[str]) -> list[str]:
    """Greet several people at once."""
    async with soapjms.zeep.AsyncClient(WSDL, connection=connection, operation_timeout=10) as client:
        greetings: list[str] = await asyncio.gather(*(client.service.greetMe(name) for name in names))
    return greetings


def main(arguments: Sequence[str]) -> int:
    """Call the greeter at the broker whose URL is given, else at the embedded one."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    with (
        soapjms.connect(*arguments or ["embedded:"]) as connection,
        nullcontext() if arguments else soapjms.Dispatcher(connection, service.port, service),
        soapjms.zeep.Client(WSDL, connection=connection, operation_timeout=10) as client,
    ):
        print(f"SOAP 1.1: {client.service.greetMe('World')}")
        print(f"SOAP 1.2: {client.bind(port_name='GreeterPort12').greetMe('World')}")

        for greeting in asyncio.run(greet_all(connection, ["Ann", "Bob", "Cem"])):
            print(f"at once: {greeting}")

        try:
            client.service.greetMe("")
        except soapjms.zeep.JmsFaultError as fault:
            print(f"a fault: {fault.message} ({fault.code})")

        client.service.pingMe("World")
        print("pinged")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
