"""A check of what clients that speak another protocol make of our messages, and of our temporary queues."""

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
from soapjms.doctor.model import CheckResult, Outcome, Patient, ok, skipped

WHOLE: Final = {True: "JMS_AMQP_NATIVE = TRUE", False: "JMS_AMQP_NATIVE IS NULL"}
"""Selectors of ActiveMQ Classic for messages over AMQP that it keeps whole, and that it makes messages of JMS of."""

UNMAPPED: Final = (
    "the broker's AMQP connector lacks transport.transformer=jms (over WebSocket wireFormat.transformer=jms): Java and "
    'STOMP clients get a whole AMQP message as the body, and say "Couldn\'t parse stream" or that it is no XML'
)
ADD_TRANSFORMER: Final = (
    r"sed -i -E -e 's#transport\.transformer=(native|raw)#transport.transformer=jms#' -e '/transformer=/! {"
    r" s#([\x22\x27]amqp(\+[a-z+]+)?://[^\x22\x27?]*)\?#\1?transport.transformer=jms\&amp;#;"
    r" s#([\x22\x27]amqp(\+[a-z+]+)?://[^\x22\x27?]*)([\x22\x27])#\1?transport.transformer=jms\3# }' conf/activemq.xml"
)
"""For GNU sed: each connector of AMQP has the option after that, however it is spelled and often this is done."""

DELETED: Final = (
    "a Java service over OpenWire, as CXF's, takes our temporary queues for deleted, since Artemis tells it of none "
    "made over AMQP: have them be topics (temporaryQueues=topics), or give the client a replyToName"
)
OPTION: Final = "temporaryQueues=topics"
DELETED_PAGE: Final = "docs/interop.md#cxf-and-temporary-queues-on-artemis"


def check_others(patient: Patient) -> CheckResult:
    """Who speaks another protocol can read our messages, and answer to our temporary queues."""
    connection = patient.connection
    assert connection is not None
    over_amqp = all(WAYS[each].extra == "amqp" for each in schemes_of(patient))
    match connection.capabilities.dialect if over_amqp else None:
        case "activemq":
            return _look_at_connector(connection, patient.timeout)
        case "artemis" if patient.replies is None and not _has_topics(patient):
            return CheckResult(Outcome.NOTE, DELETED, f"{set_url(patient)}?{OPTION}", DELETED_PAGE)
    return skipped("nothing is known to be in the way of clients over other protocols")


def _has_topics(patient: Patient) -> bool:
    """Say whether temporary queues are topics, whichever of the brokers of the URL it is."""
    urls = read_failover(patient.url or "", True).urls
    return all(OPTION in urlsplit(each).query.split("&") for each in urls)


def _look_at_connector(connection: Connection, timeout: float) -> CheckResult:
    try:
        is_whole = _is_whole(connection, timeout)
    except (BrokerError, FutureTimeoutError, Empty) as error:
        return skipped(f"it was not seen what the AMQP connector makes of messages: {str(error) or 'nothing came'}")
    if is_whole:
        return CheckResult(Outcome.FAILED, UNMAPPED, ADD_TRANSFORMER)
    return ok("the broker's AMQP connector makes messages of JMS of ours")


def _is_whole(connection: Connection, timeout: float) -> bool:
    """Send a message to a temporary queue, and see by which selector it is found."""
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
