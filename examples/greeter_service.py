"""A service: answers greetMe, and accepts pingMe, which is one-way.

python examples/greeter_service.py [stomp://admin:admin@localhost:61613]

Ctrl-C ends it, once the requests under way are answered. Without a URL nobody could call it from another process: it is
served at the embedded broker, and called by examples/greeter_client.py, in this one.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from lxml import etree

import soapjms

NAMESPACE = "urn:greeter"
URI = "jms:queue:greeter"

service = soapjms.Service()


@service.operation(f"{{{NAMESPACE}}}greetMe")
def greet(request: soapjms.Request) -> etree._Element:
    """Say hello to the name in the request; without one, answer with a fault."""
    name = request.findtext(f"{{{NAMESPACE}}}name")
    if not name:
        raise soapjms.SoapFaultError("whom shall I greet?", blame="Sender")
    response = etree.Element(f"{{{NAMESPACE}}}greetMeResponse", nsmap={None: NAMESPACE})
    etree.SubElement(response, f"{{{NAMESPACE}}}greeting").text = f"Hello {name}"
    return response


@service.operation(f"{{{NAMESPACE}}}pingMe")
def ping(request: soapjms.Request) -> None:
    """Note that somebody was here."""
    print(f"pinged by {request.findtext(f'{{{NAMESPACE}}}name')}", flush=True)


def main(arguments: Sequence[str], wait: Callable[[], object]) -> int:
    """Serve at the broker whose URL is given until `wait` returns; without one, run examples/greeter_client.py."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    if not arguments:
        from greeter_client import main as call  # which serves, too

        return call([])
    with (
        soapjms.connect(arguments[0]) as connection,
        soapjms.Dispatcher(connection, URI, service, workers=4) as serving,
    ):
        print(f"serving {URI} at {connection.capabilities.broker}", flush=True)
        wait()
    print(f"answered {serving.counts['answered']} requests")
    return 0


if __name__ == "__main__":
    signals = SimpleQueue[int]()  # not an Event: setting one in a handler may deadlock with the interrupted code
    signal.signal(signal.SIGINT, lambda number, _: signals.put(number))
    signal.signal(signal.SIGTERM, lambda number, _: signals.put(number))
    sys.exit(main(sys.argv[1:], signals.get))
