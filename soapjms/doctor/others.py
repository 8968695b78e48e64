"""A check that clients of other protocols can read our messages and answer to our temporary queues."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final
from urllib.parse import urlsplit

from brokers.adapter.failover import read_failover
from brokers.connection import Connection, Delivery
from brokers.errors import BrokerError
from brokers.message import DeliveryMode, Message, MessageType
from soapjms.doctor.checks import WAYS, schemes_of, set_url
from soapjms.doctor.model import CheckOutcome, CheckResult, Patient, ok, skipped

WHOLE: Final = {True: "JMS_AMQP_NATIVE = TRUE", False: "JMS_AMQP_NATIVE IS NULL"}
"""Selectors of ActiveMQ Classic for AMQP messages that it keeps whole, and for those that it maps to JMS messages."""

UNMAPPED: Final = (
    "the broker's AMQP connector lacks transport.transformer=jms (over WebSocket wireFormat.transformer=jms): Java and "
    'STOMP clients get a whole AMQP message as the body, and report "Couldn\'t parse stream" or invalid XML'
)
ADD_TRANSFORMER: Final = (
    r"sed -i -E -e 's#transport\.transformer=(native|raw)#transport.transformer=jms#' -e '/transformer=/! {"
    r" s#([\x22\x27]amqp(\+[a-z+]+)?://[^\x22\x27?]*)\?#\1?transport.transformer=jms\&amp;#;"
    r" s#([\x22\x27]amqp(\+[a-z+]+)?://[^\x22\x27?]*)([\x22\x27])#\1?transport.transformer=jms\3# }' conf/activemq.xml"
)
"""A command for GNU sed that gives each AMQP connector the option, whatever its spelling. Idempotent."""

DELETED: Final = (
    "a Java service over OpenWire, such as CXF's, takes our temporary queues as deleted, as Artemis does not announce "
    "those made over AMQP: use topics instead (temporaryQueues=topics), or give the client a replyToName"
)
OPTION: Final = "temporaryQueues=topics"
DELETED_PAGE: Final = "docs/interop.md#cxf-and-temporary-queues-on-artemis"


def check_others(patient: Patient) -> CheckResult:
    """Check that clients of other protocols can read our messages and answer to our temporary queues."""
    connection = patient.connection
    assert connection is not None
    over_amqp = all(WAYS[each].extra == "amqp" for each in schemes_of(patient))
    match connection.capabilities.dialect if over_amqp else None:
        case "activemq":
            return _look_at_connector(connection, patient.timeout)
        case "artemis" if patient.replies is None and not _has_topics(patient):
            return CheckResult(CheckOutcome.NOTE, DELETED, f"{set_url(patient)}?{OPTION}", DELETED_PAGE)
    return skipped("no problem is known for clients of other protocols")


def _has_topics(patient: Patient) -> bool:
    """Say whether temporary queues are topics at all brokers of the URL."""
    urls = read_failover(patient.url or "", True).urls
    return all(OPTION in urlsplit(each).query.split("&") for each in urls)


def _look_at_connector(connection: Connection, timeout: float) -> CheckResult:
    try:
        is_whole = _is_whole(connection, timeout)
    except (BrokerError, FutureTimeoutError, Empty) as error:
        return skipped(f"the AMQP connector could not be checked: {str(error) or 'no message came back'}")
    if is_whole:
        return CheckResult(CheckOutcome.FAILED, UNMAPPED, ADD_TRANSFORMER)
    return ok("the broker's AMQP connector maps our messages to JMS messages")


def _is_whole(connection: Connection, timeout: float) -> bool:
    """Send a message to a temporary queue, and say whether the selector for whole messages finds it."""
    found: SimpleQueue[bool] = SimpleQueue()

    def note(is_whole: bool, delivery: Delivery) -> None:
        found.put(is_whole)

    destination = connection.temporary()
    message = Message(
        message_type=MessageType.BYTES,
        body=b"",
        destination=destination,
        delivery_mode=DeliveryMode.NON_PERSISTENT,
        expiration=round((time.time() + timeout) * 1000),
    )
    with ExitStack() as consumers:
        for is_whole, selector in WHOLE.items():
            taken = partial(note, is_whole)
            consumers.enter_context(connection.consume(destination, taken, auto_accept=True, selector=selector))
        connection.send(message, timeout=timeout).result(timeout)
        is_kept = found.get(timeout=timeout)
    connection.end_temporary(destination)
    return is_kept
