"""What the protocol itself costs for one call: build a request, judge it, build the response, judge that.

    python benchmarks/engine.py [--octets 600] [--calls 2000] [--rounds 15]

Printed beside the time that lxml takes to parse the same body once, which no SOAP stack can do without. No broker, no
socket. The best of the rounds counts, as everything else is the machine's doing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from timeit import repeat

from lxml import etree

from brokers import Message, queue
from soapjms.protocol.assertions import Setting
from soapjms.protocol.names import PROFILES, SoapVersion
from soapjms.protocol.properties import resolve
from soapjms.protocol.requesting import Endpoint, RequestingNode, ResponseReceived
from soapjms.protocol.responding import RequestAccepted, RespondingNode
from soapjms.protocol.uri import checked

AIM = 16.0


def envelope(octets: int) -> bytes:
    """Write a SOAP 1.1 envelope of a given size."""
    start = f'<e:Envelope xmlns:e="{SoapVersion.SOAP_11.namespace}"><e:Body><post xmlns="urn:bench"><entry>'.encode()
    end = b"</entry></post></e:Body></e:Envelope>"
    return start + b"x" * (octets - len(start) - len(end)) + end


def stamped(message: Message) -> Message:
    """Give a message its id, as the broker between the nodes does; the time for that does not count."""
    return replace(message, message_id="ID:1")


def best(function: Callable[[], object], options: argparse.Namespace) -> float:
    """Return microseconds a call, in the best of the rounds."""
    return min(repeat(function, number=options.calls, repeat=options.rounds)) / options.calls * 1e6


def measure(profile_name: str, options: argparse.Namespace) -> None:
    """Print one profile's steps and their sum."""
    profile, body = PROFILES[profile_name], envelope(options.octets)
    bench, replies = queue("bench"), queue("r")
    uri = checked("jms:queue:bench?timeToLive=60000")
    endpoint, setting = Endpoint.of(uri, resolve(uri), profile), Setting(profile=profile)

    def request() -> RequestingNode:
        node = RequestingNode(endpoint)
        node.start(body, destination=bench, reply_to=replies, correlation_id="c", now=1, timeout=9)
        return node

    def call() -> None:
        client, service = request(), RespondingNode(setting)
        assert client.request is not None
        arrived = stamped(client.request)
        assert isinstance(service.receive(arrived), RequestAccepted)
        response = service.respond(body)
        assert isinstance(client.receive(response, response.correlation_id), ResponseReceived)

    sample = request().request
    assert sample is not None
    parse, between = best(lambda: etree.fromstring(body), options), best(lambda: stamped(sample), options)
    building, whole = best(request, options), best(call, options) - between
    ratio = whole / parse
    verdict = "within the aim" if ratio <= AIM else f"above the aim of {AIM:g}"
    print(
        f"{profile_name}: parse {parse:.1f} us; build the request {building:.1f} us; all four steps {whole:.1f} us: "
        f"{ratio:.1f} parses, {verdict}"
    )


def main() -> None:
    """Measure both editions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--octets", type=int, default=600)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for name in ("cr-2009", "rec-2012"):
        measure(name, options)


if __name__ == "__main__":
    main()
