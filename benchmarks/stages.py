"""What client and service spend their processor time on for one call over STOMP, stage by stage: no broker, one thread.

    python benchmarks/stages.py [--rounds 5] [--requests 4000]

Prints microseconds of processor time, the least of some rounds. The rest of what `calls.py` prints for either side is
what a loop without a socket does not have: calls of the system, changes of threads, whose turn it is and what becomes
of each call, and caches that others have used meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sides import ENVELOPE
from stomp.utils import parse_frame

import soapjms
from brokers import Destination, DestinationKind, Message, queue
from brokers.stomp.codec import Cutter, WholeFrame, pack
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC
from brokers.stomp.frames import acknowledgement, from_frame, to_frame
from brokers.stomp.heads import HeadReader
from brokers.stomp.send import SendFrames
from soapjms.protocol.assertions import Setting
from soapjms.protocol.names import DEFAULT_PROFILE
from soapjms.protocol.properties import resolve
from soapjms.protocol.requesting import Endpoint, RequestingNode, ResponseReceived
from soapjms.protocol.responding import RequestAccepted, RespondingNode
from soapjms.protocol.uri import checked
from soapjms.service.request import Request

HEADERS = {
    "SOAPJMS_requestURI": "jms:queue:safety.plain",
    "content-length": str(len(ENVELOPE)),
    "expires": "0",
    "destination": "/queue/safety.plain",
    "ack": "ID:host-36389-1763707476547-12",
    "subscription": "subscription-7",
    "priority": "4",
    "SOAPJMS_contentType": "text/xml; charset=utf-8",
    "reply-to": "/remote-temp-queue/ID:host-36389-1763707476547-5:1:1",
    "SOAPJMS_bindingVersion": "1.0",
    "message-id": "ID:host-36389-1763707476547-5:2:-1:1:12",
    "timestamp": "1763707476999",
    "correlation-id": "c-1012",
}
"""As ActiveMQ Classic delivers a request of the row `plain`."""

JUDGED, ANSWERED, STARTED, RECEIVED = "message judged, XML parsed", "answer made", "request made", "response judged"
URI = checked("jms:queue:safety.plain")
ENDPOINT = Endpoint.of(URI, resolve(URI))
PLACE = queue("safety.plain")
REPLIES = Destination(DestinationKind.TEMPORARY_QUEUE, "ID:host-36389-1763707476547-5:1:1")


def frames_of(headers: dict[str, str]) -> dict[str, Callable[[], Any]]:
    """Return how a frame becomes a message, step by step; frames of its shape come all the time."""
    octets, cutter, reader = pack("MESSAGE", headers, ENVELOPE), Cutter(), HeadReader()
    for number in range(3):
        another = headers | {"message-id": f"ID:{number}", "ack": f"ID:{number}", "correlation-id": f"c-{number}"}
        [cut] = cutter.cut(pack("MESSAGE", another, ENVELOPE))
        assert isinstance(cut, WholeFrame)
        reader.read(cut)
    [whole] = cutter.cut(octets)
    assert isinstance(whole, WholeFrame)
    frame = reader.read(whole)
    assert frame is not None
    return {
        "frame cut out of octets": lambda: list(cutter.cut(octets)),
        "frame read": lambda: reader.read(whole),
        "message made of it": lambda: from_frame(frame.headers, frame.body),
    }


def service_stages() -> dict[str, Callable[[], Any]]:
    """Return what is done for a request, in its order, each with what the one before made."""
    made = frames_of(HEADERS)
    message, setting, service = made["message made of it"](), Setting(profile=DEFAULT_PROFILE), soapjms.Service()
    service.operation("{urn:bench}echo")(lambda request: request.element)

    def judged() -> tuple[RespondingNode, RequestAccepted]:
        node = RespondingNode(setting)
        event = node.receive(message)
        assert isinstance(event, RequestAccepted)
        return node, event

    event = judged()[1]
    answer = service.perform(Request.of(event)).prepared.envelope
    response, sends = judged()[0].respond(answer), SendFrames(ACTIVEMQ_CLASSIC)
    return {
        **made,
        JUDGED: judged,
        ANSWERED: lambda: judged()[0].respond(answer),
        "function found and run": lambda: service.perform(Request.of(event)),
        "frame made of the answer": lambda: sends.encode(response, "r-1"),
        "acknowledgement made": lambda: pack("ACK", acknowledgement(HEADERS, ACTIVEMQ_CLASSIC)),
    }


def client_stages() -> dict[str, Callable[[], Any]]:
    """Return what is done for a call, in its order, each with what the one before made."""

    def started() -> tuple[RequestingNode, Message]:
        node = RequestingNode(ENDPOINT)
        return node, node.start(ENVELOPE, destination=PLACE, now=0, correlation_id="c-1012", reply_to=REPLIES)

    node, request = started()
    accepted = RespondingNode(Setting(profile=DEFAULT_PROFILE))
    accepted.receive(request)
    answered, _ = to_frame(accepted.respond(ENVELOPE))
    response = frames_of({**HEADERS, **answered, "content-length": str(len(ENVELOPE))})
    message, sends = response["message made of it"](), SendFrames(ACTIVEMQ_CLASSIC)
    assert isinstance(node.receive(message), ResponseReceived)
    return {
        STARTED: started,
        "frame made of it": lambda: sends.encode(request, "r-1"),
        **response,
        RECEIVED: lambda: started()[0].receive(message),
    }


def measured(stage: Callable[[], Any], rounds: int, requests: int) -> float:
    """Return the least microseconds of processor time of some rounds."""
    found = []
    for _ in range(rounds):
        started = time.thread_time()
        for _ in range(requests):
            stage()
        found.append((time.thread_time() - started) / requests * 1e6)
    return min(found)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4000)
    options = parser.parse_args()
    octets = pack("MESSAGE", HEADERS, ENVELOPE)
    beside = measured(lambda: parse_frame(octets[:-1]), options.rounds, options.requests)
    for side, stages in (("service", service_stages()), ("client", client_stages())):
        costs = {name: measured(stage, options.rounds, options.requests) for name, stage in stages.items()}
        for whole, part in ((ANSWERED, JUDGED), (RECEIVED, STARTED)):  # a node that ends has begun before
            if whole in costs:
                costs[whole] -= costs[part]
        print(f"{side}:")
        for name, cost in costs.items():
            print(f"{cost:6.1f} us  {name}")
        print(f"{sum(costs.values()):6.1f} us  together; stomp.py reads such a frame in {beside:.1f} us")


if __name__ == "__main__":
    main()
