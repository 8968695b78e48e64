"""What a large attachment costs the protocol: memory beside the message itself, and time.

    python benchmarks/attachments.py [--mebibytes 8] [--rounds 5]

Memory is what tracemalloc sees at its peak while a node works, less what was there before; neither the body that is
read nor the body that is written counts. Aim: a BytesMessage that is read and judged adds at most the size of the part.
Beside it: what the standard library's `email` takes for the same.
"""

from __future__ import annotations

import argparse
import email
import os
import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any

from lxml import etree

from brokers import Message, MessageType, queue
from soapjms.protocol.assertions import Setting
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.names import CONTENT_TYPE, SoapVersion
from soapjms.protocol.properties import resolve
from soapjms.protocol.requesting import Endpoint, RequestingNode
from soapjms.protocol.responding import RequestAccepted, RespondingNode
from soapjms.protocol.uri import checked

AIM = 1.0


def envelope(attachment: Attachment, *, mtom: bool) -> etree._Element:
    """Make an envelope, which refers to the attachment if it is to go as MTOM."""
    space = f"{{{SoapVersion.SOAP_11.namespace}}}"
    root = etree.Element(f"{space}Envelope")
    element = etree.SubElement(etree.SubElement(root, f"{space}Body"), "{urn:bench}store")
    if mtom:
        element.append(attachment.include())
    return root


def write(attachment: Attachment, message_type: MessageType, *, mtom: bool) -> Message:
    """Make a request."""
    uri = checked("jms:queue:bench")
    node = RequestingNode(Endpoint.of(uri, resolve(uri), message_type=message_type))
    return node.start(
        envelope(attachment, mtom=mtom),
        destination=queue("bench"),
        reply_to=queue("r"),
        correlation_id="c",
        now=1,
        attachments=[attachment],
    )


def read(message: Message, size: int) -> None:
    """Take the request, and look at the part."""
    event = RespondingNode(Setting()).receive(message)
    assert isinstance(event, RequestAccepted)
    assert len(event.attachments[0].content) == size


def read_by_email(message: Message, size: int) -> None:
    """Do the same with the standard library."""
    assert isinstance(message.body, bytes)
    head = f"Content-Type: {message.properties.text(CONTENT_TYPE)}\r\n\r\n".encode()
    parts: Any = email.message_from_bytes(head + message.body).get_payload()
    assert len(parts[1].get_payload(decode=True)) == size


def peak(action: Callable[[], object]) -> tuple[object, int]:
    """Return what an action returns, and the octets that it added at its peak."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result = action()
    highest = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return result, highest


def milliseconds(action: Callable[[], object], rounds: int) -> float:
    """Return the time of the best round."""
    times = []
    for _ in range(rounds):
        started = perf_counter()
        action()
        times.append(perf_counter() - started)
    return min(times) * 1000


def show(what: str, added: int, size: int, action: Callable[[], object], rounds: int, aim: float | None = None) -> None:
    """Print one line."""
    ratio = added / size
    verdict = "" if aim is None else f"; {'within' if ratio <= aim else 'ABOVE'} the aim of {aim:g}"
    print(f"{what}: {ratio:.3f} times the part, {milliseconds(action, rounds):.1f} ms{verdict}")


def measure(attachment: Attachment, message_type: MessageType, size: int, rounds: int, *, mtom: bool) -> None:
    """Print what writing and reading costs."""
    what = f"{'MTOM' if mtom else 'SwA'} in a {message_type} message"
    message, added = peak(lambda: write(attachment, message_type, mtom=mtom))
    assert isinstance(message, Message)
    show(
        f"{what}, written, beside its body",
        max(0, added - message.size),
        size,
        lambda: write(attachment, message_type, mtom=mtom),
        rounds,
    )
    _, added = peak(lambda: read(message, size))
    aim = AIM if message_type is MessageType.BYTES else None
    show(f"{what}, read and judged", added, size, lambda: read(message, size), rounds, aim)
    if message_type is MessageType.BYTES:
        _, added = peak(lambda: read_by_email(message, size))
        show(f"{what}, read by email", added, size, lambda: read_by_email(message, size), rounds)


def main() -> None:
    """Measure both packagings in both message types."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    size = options.mebibytes << 20
    attachment = Attachment(os.urandom(size), "application/octet-stream", "part@bench")
    for message_type in (MessageType.BYTES, MessageType.TEXT):
        for mtom in (False, True):
            measure(attachment, message_type, size, options.rounds, mtom=mtom)


if __name__ == "__main__":
    main()
