"""A service made from its WSDL: functions take and return Python values; both SOAP versions, a fault, one-way.

python examples/typed_service.py [stomp://admin:admin@localhost:61613]

examples/zeep_client.py calls it; without a URL, in this process, at the embedded broker. Ctrl-C ends it, once the
requests under way are answered. The same from the command line, in this folder:
soapjms serve typed_service:service --connection stomp://admin:admin@localhost:61613

It needs: pip install 'soapjms[zeep]'
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

import soapjms

WSDL = Path(__file__).parent / "greeter.wsdl"

service = soapjms.Service.from_wsdl(WSDL, port="GreeterPort")


@service.operation("greetMe")
async def greet(name: str, _request: soapjms.Request) -> str:
    """Say hello to the name in the request; an empty one is answered with a fault."""
    if not name:
        raise soapjms.SoapFaultError("whom shall I greet?", blame="Sender")
    print(f"greeting {name} in SOAP {_request.envelope.version}", flush=True)
    return f"Hello {name}"


@service.operation("pingMe")
def ping(name: str) -> None:
    """Note that somebody was here."""
    print(f"pinged by {name}", flush=True)


def main(arguments: Sequence[str], wait: Callable[[], object]) -> int:
    """Serve at the broker whose URL is given until `wait` returns; without one, run examples/zeep_client.py."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    if not arguments:
        from zeep_client import main as call  # which serves, too

        return call([])
    with (
        soapjms.connect(arguments[0]) as connection,
        soapjms.Dispatcher(connection, service.port, service, workers=4) as serving,
    ):
        print(f"serving {service.port.address} at {connection.capabilities.broker}", flush=True)
        wait()
    print(f"answered {serving.counts['answered']} requests")
    return 0


if __name__ == "__main__":
    signals = SimpleQueue[int]()  # not an Event: setting one in a handler may deadlock with the interrupted code
    signal.signal(signal.SIGINT, lambda number, _: signals.put(number))
    signal.signal(signal.SIGTERM, lambda number, _: signals.put(number))
    sys.exit(main(sys.argv[1:], signals.get))
