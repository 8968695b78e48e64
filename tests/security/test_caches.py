"""What a peer writes is kept by no cache, however long it is: caches are bounded in number, and so in memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from lxml import etree

from brokers import Message, MessageType, queue
from brokers.amqp.dialect import EMBEDDED
from brokers.amqp.message_writer import to_amqp_message
from brokers.message import MAX_ADDRESS_CHARACTERS, properties
from brokers.stomp.codec import pack
from brokers.stomp.dialect import ARTEMIS
from brokers.stomp.frames import dead_letter, from_frame
from soapjms import Request, Service
from soapjms.capture.mask import Mask
from soapjms.capture.tap import Backlog, MessageFilter
from soapjms.protocol.envelope import as_envelope, serialize, wrap
from soapjms.protocol.limits import DEFAULT_LIMITS
from soapjms.protocol.names import REC_2012, SoapVersion
from soapjms.protocol.received_message import Reading

CHARACTERS = 100_000
TIMES = 30
MAX_KEPT_OCTETS = 5 * CHARACTERS
"""What may be left of all: the latest one or two, and what Python itself keeps."""

ENVELOPE = serialize(wrap(None, SoapVersion.SOAP_11))
FILTER = MessageFilter((), everything=False)


def message(name: str = "SOAPJMS_x", value: str = "x", **more: object) -> Message:
    """Make a message with a property."""
    content = {"message_type": MessageType.BYTES, "body": ENVELOPE, "properties": properties({name: value})}
    return Message(**content | more)


def read(text: str) -> None:
    """Read a message with a content type."""
    reading = Reading(message("SOAPJMS_contentType", f"text/xml; charset=utf-8; x={text}"), REC_2012, DEFAULT_LIMITS)
    assert reading.envelope is not None


def filter_reply(text: str) -> None:
    """Note a place for answers, and an id that shares it."""
    FILTER.wants(message(reply_to=queue(text)))
    FILTER.wants(message("x", reply_to=queue(text), correlation_id=text))


def read_frame(text: str) -> None:
    """Read a frame of STOMP, and write its dead letter."""
    headers = {
        "message-id": text,
        "destination": text,
        "reply-to": text,
        "correlation-id": text,
        "type": text,
        text: text,
    }
    from_frame(headers, b"", ARTEMIS)
    pack("SEND", dead_letter(headers, b"", text, "DLQ", ARTEMIS), b"", "1.1")


def write_amqp(text: str) -> None:
    """Write a message for AMQP."""
    more = {"destination": queue("a"), "reply_to": queue(text[:MAX_ADDRESS_CHARACTERS]), "correlation_id": text}
    more["type"] = text
    to_amqp_message(message(text, text, **more), EMBEDDED)
    to_amqp_message(message(text, "x", destination=queue("a")), EMBEDDED)


SERVICE = Service()


@SERVICE.operation("{u}e")
def operation(request: Request) -> None:
    """Do nothing."""


def find(text: str) -> None:
    """Find the operation of a request."""
    envelope = as_envelope(wrap(etree.Element("{u}e"), SoapVersion.SOAP_11))
    assert SERVICE.find(SimpleNamespace(envelope=envelope, soap_action=text, target_service=None)).route is not None


@pytest.mark.parametrize(
    "use", [read, lambda text: Mask().apply(message(text)), filter_reply, read_frame, write_amqp, find]
)
def test_long_texts_are_not_kept(use: Callable[[str], object]) -> None:
    """Each time it is another text, as a sender would choose it."""

    def use_some(first: int) -> int:
        for number in range(first, first + TIMES):
            use(f"a{number}" + "y" * CHARACTERS)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = use_some(0)
        assert use_some(TIMES) - before < MAX_KEPT_OCTETS
    finally:
        tracemalloc.stop()


def test_backlog_counts_all_of_a_message() -> None:
    """Copies that wait to be written take room for their properties and names, too."""
    backlog = Backlog(octets=5 * CHARACTERS)
    for what in ({"name": "y" * CHARACTERS}, {"value": "y" * CHARACTERS}, {"reply_to": queue("y" * CHARACTERS)}):
        assert backlog.put(message(**what), datetime.now(UTC))
    assert not backlog.put(message(value="y" * 3 * CHARACTERS), datetime.now(UTC))
    while backlog.take(0) is not None:
        pass
    assert backlog.put(message(value="y" * 3 * CHARACTERS), datetime.now(UTC))
