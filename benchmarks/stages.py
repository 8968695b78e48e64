"""What our dispatcher spends its processor time on for one request over STOMP, stage by stage: no broker, one thread.

    python benchmarks/stages.py [--rounds 5] [--requests 4000]

Prints microseconds of processor time a request, the least of some rounds. The rest of what `calls.py` prints for a
service is what a loop without a socket does not have: calls of the system, whose turn it is and what becomes of each
request, and caches that others have used meanwhile.
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
from brokers.stomp.codec import Cutter, WholeFrame, pack
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC
from brokers.stomp.frames import acknowledgement, from_frame, to_frame
from brokers.stomp.heads import HeadReader
from soapjms.protocol.assertions import Setting
from soapjms.protocol.names import DEFAULT_PROFILE
from soapjms.protocol.responding import RequestAccepted, RespondingNode
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

JUDGED, ANSWERED, STOMP_PY = "message judged, XML parsed", "answer made", "frame read by stomp.py"


def stages() -> dict[str, Callable[[], Any]]:
    """Return what is done for a request, in its order, each with what the one before made."""
    octets = pack("MESSAGE", HEADERS, ENVELOPE)
    cutter, reader = Cutter(), HeadReader()
    for number in range(3):  # heads of this shape come all the time
        another = HEADERS | {"message-id": f"ID:{number}", "ack": f"ID:{number}", "correlation-id": f"c-{number}"}
        [cut] = cutter.cut(pack("MESSAGE", another, ENVELOPE))
        assert isinstance(cut, WholeFrame)
        reader.read(cut)
    [cut] = cutter.cut(octets)
    assert isinstance(cut, WholeFrame)
    frame = reader.read(cut)
    assert frame is not None
    message, setting, service = (
        from_frame(frame.headers, frame.body),
        Setting(profile=DEFAULT_PROFILE),
        soapjms.Service(),
    )
    service.operation("{urn:bench}echo")(lambda request: request.element)

    def judged() -> tuple[RespondingNode, RequestAccepted]:
        node = RespondingNode(setting)
        event = node.receive(message)
        assert isinstance(event, RequestAccepted)
        return node, event

    event = judged()[1]
    answer = service.perform(Request.of(event)).prepared.envelope
    response = judged()[0].respond(answer)

    def answered() -> None:
        headers, body = to_frame(response)
        pack("SEND", headers, body)

    return {
        "frame cut out of octets": lambda: list(cutter.cut(octets)),
        "frame read": lambda: reader.read(cut),
        "message made of it": lambda: from_frame(frame.headers, frame.body),
        JUDGED: judged,
        ANSWERED: lambda: judged()[0].respond(answer),
        "function found and run": lambda: service.perform(Request.of(event)),
        "frame made of the answer": answered,
        "acknowledgement made": lambda: pack("ACK", acknowledgement(frame.headers, ACTIVEMQ_CLASSIC)),
        STOMP_PY: lambda: parse_frame(octets[:-1]),
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
    costs = {name: measured(stage, options.rounds, options.requests) for name, stage in stages().items()}
    costs[ANSWERED] -= costs[JUDGED]  # a node that answers has judged before
    beside = costs.pop(STOMP_PY)
    for name, cost in costs.items():
        print(f"{cost:6.1f} us  {name}")
    print(f"{sum(costs.values()):6.1f} us  together; stomp.py reads the same frame in {beside:.1f} us")


if __name__ == "__main__":
    main()
