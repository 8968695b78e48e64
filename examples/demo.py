"""The whole path in under a minute: serve, call, provoke every fault, capture, replay, report.

    python examples/demo.py [--out build/demo] [--url stomp://admin:admin@localhost:61613] [--engine spark]

All output goes into `build/demo` below the current folder, unless `--out` names another, which is emptied first.
Without `--url` it runs on the embedded broker, without `--engine` the replay runs without Spark. The exit status is 0
if all results are as expected.

It needs: pip install 'soapjms[cli,zeep,replay]'
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import NamedTuple

from lxml import etree
from rich.console import Console
from rich.table import Table

import brokers
import soapjms
from brokers import Message, MessageType, Properties, queue, typed
from soapjms.protocol import names, xml
from soapjms.protocol.envelope import as_envelope, read_fault
from soapjms.protocol.names import SoapVersion, Subcode
from soapjms.protocol.requesting import RequestingNode
from soapjms.replay import ENGINES
from soapjms.replay.engines import EngineName

GREETER = "urn:soapjms:greeter"
URI = "jms:queue:demo.greeter?timeToLive=10000"
"""Its requests live as long as somebody waits for the answer, also those that `provoke` sends without a client."""


class Step(NamedTuple):
    """One line of the final table: the action, its result, and the expected result."""

    what: str
    seen: str
    wanted: str

    @property
    def fine(self) -> bool:
        return self.wanted == self.seen


# The service


def greeter(pinged: Event) -> soapjms.Service:
    """Make the service: `greetMe` answers, `pingMe` is one-way."""
    service = soapjms.Service()

    @service.operation(f"{{{GREETER}}}greetMe")
    def greet_me(request: soapjms.Request) -> etree._Element:
        response = etree.Element(f"{{{GREETER}}}greetMeResponse", nsmap={None: GREETER})
        name = request.findtext(f"{{{GREETER}}}name")
        etree.SubElement(response, f"{{{GREETER}}}greeting").text = f"Hello {name}"
        return response

    @service.operation(f"{{{GREETER}}}pingMe")
    def ping_me(request: soapjms.Request) -> None:
        pinged.set()

    return service


def envelope(version: SoapVersion, operation: str, name: str) -> bytes:
    """Write a request."""
    root = etree.Element(f"{{{version.namespace}}}Envelope", nsmap={"env": version.namespace, None: GREETER})
    call = etree.SubElement(etree.SubElement(root, f"{{{version.namespace}}}Body"), f"{{{GREETER}}}{operation}")
    etree.SubElement(call, f"{{{GREETER}}}name").text = name
    return etree.tostring(root)


# How to spoil a good request to get each fault


def with_property(name: str, value: str) -> Callable[[Message], Message]:
    """Set one property to a wrong value."""
    return lambda good: replace(good, properties=good.properties.merged([typed(name, value)]))


def without_property(name: str) -> Callable[[Message], Message]:
    """Leave one property out."""
    return lambda good: replace(good, properties=Properties(each for each in good.properties if each.name != name))


def as_map(good: Message) -> Message:
    """Send a MapMessage."""
    return replace(good, message_type=MessageType.MAP, body=Properties([typed("name", "World")]))


SPOILERS: dict[Subcode, Callable[[Message], Message]] = {
    Subcode.UNRECOGNIZED_BINDING_VERSION: with_property(names.BINDING_VERSION, "0.3"),
    Subcode.MISSING_CONTENT_TYPE: without_property(names.CONTENT_TYPE),
    Subcode.CONTENT_TYPE_MISMATCH: with_property(names.CONTENT_TYPE, "application/soap+xml; charset=utf-16"),
    Subcode.CONTENT_ENCODING_NOT_SUPPORTED: with_property(names.CONTENT_ENCODING, "compress"),
    Subcode.MISSING_REQUEST_URI: without_property(names.REQUEST_URI),
    Subcode.MALFORMED_REQUEST_URI: with_property(names.REQUEST_URI, "jms:queue:demo%"),
    Subcode.TARGET_SERVICE_NOT_ALLOWED: with_property(names.REQUEST_URI, "jms:queue:demo.greeter?targetService=x"),
    Subcode.UNSUPPORTED_LOOKUP_VARIANT: with_property(names.REQUEST_URI, "jms:vnd.example.x:demo.greeter"),
    Subcode.MISSING_SOAP_ACTION: without_property(names.SOAP_ACTION),
    Subcode.MISMATCHED_SOAP_ACTION: with_property(names.SOAP_ACTION, "urn:another"),
    Subcode.UNSUPPORTED_MESSAGE_FORMAT: as_map,
}


def provoke(connection: brokers.Connection, client: soapjms.Client, subcode: Subcode) -> str:
    """Send a request that breaks one rule, and return the subcode of the fault that comes back."""
    replies: list[Message] = []
    came = Event()

    def on_reply(delivery: brokers.Delivery) -> None:
        replies.append(delivery.message)
        came.set()

    reply_to = connection.temporary()
    with connection.consume(reply_to, on_reply, auto_accept=True, prefetch=100):
        good = RequestingNode(client.endpoint).start(
            envelope(SoapVersion.SOAP_12, "greetMe", "World"),
            destination=queue("demo.greeter"),
            now=time.time_ns() // 1_000_000,
            soap_action="urn:soapjms:greeter:greetMe",
            correlation_id=f"demo-{subcode}",
            reply_to=reply_to,
        )
        connection.send(SPOILERS[subcode](good)).result(10)
        if not came.wait(10):
            return "no answer"
    body = replies[0].body
    assert isinstance(body, str | bytes), "text or octets, as in all our responses"
    fault = read_fault(as_envelope(xml.parse(body)))
    return "no fault" if fault is None else str(fault.subcode)


# The whole path


def exchange(url: str, log: Path) -> list[Step]:
    """Serve, call, and provoke faults; the service captures all messages."""
    steps, pinged = [], Event()
    # No mask: it would leave out a body in an unknown encoding, and one of the requests has such a body.
    with brokers.connect(url) as connection, soapjms.Recorder(log, mask=None) as recorder:
        service = soapjms.Dispatcher(connection, URI, greeter(pinged), workers=4, recorder=recorder)
        with service, soapjms.Client(connection, URI, timeout=10) as client:
            for version in SoapVersion:
                response = client.call(
                    envelope(version, "greetMe", "World"), soap_action="urn:soapjms:greeter:greetMe"
                ).raise_for_fault()
                assert response.element is not None
                seen = response.element.findtext(f"{{{GREETER}}}greeting") or ""
                steps.append(Step(f"call, SOAP {version}", seen, "Hello World"))
            client.send(envelope(SoapVersion.SOAP_11, "pingMe", "World"))
            steps.append(Step("one-way message", "arrived" if pinged.wait(10) else "lost", "arrived"))
            steps += [Step("broken request", provoke(connection, client, each), str(each)) for each in Subcode]
    return steps


def replay(log: Path, out: Path, engine: EngineName | None) -> tuple[list[Step], Path]:
    """Replay the captured log: each provoked fault must show as a broken rule with the right answer."""
    from soapjms.replay import replay as run

    found = run([str(log)], str(out), engine=engine).members
    right = [each for each in Subcode if found["subcodes"][each] == {"expected": 1, "observed": 1}]
    steps = [
        Step("replay: requests with their responses", str(found["exchanges"]), str(len(Subcode) + 2)),
        Step("replay: one-way messages", str(found["one_way"]), "1"),
        Step("replay: faults expected and seen", str(len(right)), str(len(Subcode))),
        Step("replay: records that could not be read", str(found["rejected"]), "0"),
    ]
    return steps, out / "report.html"


def main() -> int:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for all output")
    parser.add_argument("--url", default="embedded:demo", help="URL of the broker")
    parser.add_argument("--engine", choices=ENGINES, help="what runs the replay")
    options = parser.parse_args()
    console = Console()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    started = time.monotonic()
    log = options.out / "capture.jsonl"
    with console.status("serving and calling"):
        steps = exchange(options.url, log)
    with console.status("replaying"):
        replayed, report = replay(log, options.out / "replay", options.engine)
    table = Table("action", "result", title="soapjms demo")
    for step in steps + replayed:
        table.add_row(step.what, step.seen if step.fine else f"[bold red]{step.seen}, not {step.wanted}")
    console.print(table)
    console.print(f"capture log  {log}\nreport       {report}\n{time.monotonic() - started:.1f} s", highlight=False)
    return 0 if all(step.fine for step in steps + replayed) else 1


if __name__ == "__main__":
    sys.exit(main())
