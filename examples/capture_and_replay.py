"""Capture messages, and replay them to see which rules are broken: a client that forgets a property is found.

python examples/capture_and_replay.py [stomp://admin:admin@localhost:61613 FOLDER]

FOLDER gets the capture log and the report. Without arguments it is a new one, and the broker is the embedded one.

It needs: pip install 'soapjms[replay]'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkdtemp

from greeter_client import body
from greeter_service import service

import brokers
import soapjms
from soapjms.replay import replay

QUEUE = "greeter.captured"
URI = f"jms:queue:{QUEUE}"


def forget_the_content_type(connection: brokers.Connection, good: brokers.Message) -> None:
    """Send a request again without its content type, as a faulty client would, and wait for the answer."""
    answers: SimpleQueue[brokers.Message] = SimpleQueue()
    reply_to = connection.temporary()
    properties = brokers.Properties(each for each in good.properties if each.name != "SOAPJMS_contentType")
    bad = replace(good, properties=properties, reply_to=reply_to, correlation_id="forgetful-1", message_id=None)
    with connection.consume(reply_to, lambda delivery: answers.put(delivery.message), auto_accept=True):
        connection.send(replace(bad, destination=brokers.queue(QUEUE))).result(10)
        answers.get(timeout=10)


def main(arguments: Sequence[str]) -> int:
    """Capture and replay at the broker whose URL is given, else at the embedded one."""
    if not arguments:
        arguments = ["embedded:", mkdtemp(prefix="soapjms-")]
        print(f"all files are in {arguments[1]}")
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    url, folder = arguments[0], Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "capture.jsonl"
    with soapjms.connect(url) as connection, soapjms.Recorder(log) as recorder:
        with soapjms.Dispatcher(connection, URI, service, recorder=recorder), soapjms.Client(connection, URI) as client:
            response = client.call(body("greetMe", "World"), timeout=10)
            forget_the_content_type(connection, response.request)
        print(f"captured {recorder.written} messages")

    summary = replay(log, folder / "report")
    print(f"replayed {summary.members['exchanges']} exchanges: {summary.members['verdict']}")
    for assertion, counts in summary.members["assertions"].items():
        if counts.get("failed"):
            (reason, _), *_ = summary.findings.of(assertion, "failed")
            print(f"{assertion}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
