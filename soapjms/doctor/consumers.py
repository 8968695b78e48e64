"""The check of how many consumers a destination has, by whatever its broker tells: a table of brokers.

Whether a consumer is a service, and answers, nobody knows without a call.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from brokers.adapter.advisories import advisory_topic
from brokers.connection import Connection
from brokers.embedded.connection import EmbeddedConnection
from brokers.errors import BrokerError
from brokers.message import DeliveryMode, Destination, Message, MessageType, properties, queue, topic
from brokers.schemes import connect
from soapjms.doctor.checks import NOTHING_FITS, WAYS, consumers_told, schemes_of
from soapjms.doctor.jolokia import consumers_by_jolokia
from soapjms.doctor.model import CheckOutcome, CheckResult, Patient, ok, skipped

MANAGEMENT: Final = queue("activemq.management")
"""The address where Artemis answers questions about itself."""

MAX_QUEUES: Final = 1000
"""Maximum number of queues of one address of Artemis that are counted."""

REMOVED: Final = "RemoveInfo"
"""What an advisory of ActiveMQ Classic is about when a consumer has gone."""


class ConsumerCounter(NamedTuple):
    """A way to count consumers: its name for people, and a function that may raise BrokerError."""

    title: str
    ask: Callable[[Patient, Destination], int]


def check_consumers(patient: Patient) -> CheckResult:
    """Count the consumers of the destination, where the broker tells."""
    destination = patient.destination
    if destination is None:
        return skipped("give --uri or --wsdl to check it")
    assert patient.connection is not None
    dialect = patient.connection.capabilities.dialect
    source = JOLOKIA if patient.jolokia is not None else SOURCES.get(dialect)
    if source is EMBEDDED and not isinstance(patient.connection, EmbeddedConnection):
        source = None  # it is over a network
    if source is RABBITMQ and destination.kind.is_topic:
        source = None
    if source is None:
        return skipped(f"cannot be known here: {UNTOLD.get(dialect, 'this broker does not tell its clients')}")
    try:
        number = source.ask(patient, destination)
    except (FutureTimeoutError, Empty):
        return skipped(f"cannot be known here: {source.title} gave no answer within {patient.timeout:g} s{ADVICE}")
    except (BrokerError, ValueError) as error:
        return skipped(
            f"cannot be known here: {source.title}: {error}{'' if patient.jolokia or source is RABBITMQ else ADVICE}"
        )
    return _result(destination, number, source)


def _result(destination: Destination, number: int, source: ConsumerCounter) -> CheckResult:
    if number:
        counted = "1 consumer" if number == 1 else f"{number} consumers"
        return ok(f"{destination} has {counted}, by {source.title}; whether they answer is not checked")
    meaning = "what is sent now is lost" if destination.kind.is_topic else "requests wait there until something does"
    text = f"nothing consumes from {destination}, by {source.title}: {meaning}"
    kind = "topic" if destination.kind.is_topic else "queue"
    uri = shlex.quote(f"jms:{kind}:{destination.name}")
    if source is EMBEDDED:  # no command can serve there
        text += "; no other process reaches a broker that is embedded in this one"
        return CheckResult(CheckOutcome.NOTE, text, f"soapjms doctor --connection URL --uri {uri}")
    return CheckResult(CheckOutcome.NOTE, text, f"soapjms serve MODULE:SERVICE --uri {uri}")


def _ask_jolokia(patient: Patient, destination: Destination) -> int:
    return consumers_by_jolokia(patient.jolokia or "", destination, patient.timeout)


def _ask_embedded(patient: Patient, destination: Destination) -> int:
    assert isinstance(patient.connection, EmbeddedConnection)
    return patient.connection.consumers(destination)


def _ask_rabbitmq(patient: Patient, destination: Destination) -> int:
    assert patient.connection is not None
    return consumers_told(patient.connection, destination) or 0


def _ask_advisories(patient: Patient, destination: Destination) -> int:
    """Come and go as a consumer: the advisory that says so has the number of those that are left."""
    connection, name = patient.connection, advisory_topic(destination)
    assert connection is not None
    if name is None:
        raise BrokerError(f"{destination} has no topic of its own there")
    left: SimpleQueue[int] = SimpleQueue()

    def note(message: Message) -> None:
        is_json = isinstance(message.body, str) and message.body.startswith(f'{{"{REMOVED}"')
        count = message.properties.text("consumerCount")
        if count is not None and (is_json or message.properties.text("ActiveMqDataStructureType") == REMOVED):
            left.put(int(count))

    with connection.consume(topic(name), lambda delivery: note(delivery.message), auto_accept=True):
        connection.consume(destination, lambda delivery: delivery.release(), selector=NOTHING_FITS).close()
        return left.get(timeout=patient.timeout)


def _ask_management(patient: Patient, destination: Destination) -> int:
    """Ask Artemis for the queues of the address, and for the consumers of each."""
    assert patient.connection is not None
    if any(WAYS[each].extra != "amqp" for each in schemes_of(patient)):
        return _count_by_management(patient.connection, destination, patient.timeout)
    # Artemis 2.44 fails at such a message if it comes through the anonymous terminus.
    with closing(connect(patient.url or "", timeout=patient.timeout, anonymous_relay=False)) as other:
        return _count_by_management(other, destination, patient.timeout)


def _count_by_management(connection: Connection, destination: Destination, timeout: float) -> int:
    replies, answers = connection.temporary(), SimpleQueue[Message]()

    def ask(resource: str, attribute: str) -> Any:
        question = Message(
            message_type=MessageType.TEXT,
            body="",
            destination=MANAGEMENT,
            reply_to=replies,
            delivery_mode=DeliveryMode.NON_PERSISTENT,
            properties=properties({"_AMQ_ResourceName": resource, "_AMQ_Attribute": attribute}),
        )
        connection.send(question, timeout=timeout).result(timeout)
        answer = answers.get(timeout=timeout)
        has_succeeded = answer.properties.text("_AMQ_OperationSucceeded") == "true"
        return json.loads(answer.body)[0] if has_succeeded and isinstance(answer.body, str | bytes) else None

    with connection.consume(replies, lambda delivery: answers.put(delivery.message), auto_accept=True):
        names = ask(f"address.{destination.name}", "queueNames")
        counts = [ask(f"queue.{each}", "consumerCount") for each in (names or ())[:MAX_QUEUES]]
    connection.end_temporary(replies)
    return sum(each for each in counts if isinstance(each, int))


EMBEDDED: Final = ConsumerCounter("the broker in this process", _ask_embedded)
JOLOKIA: Final = ConsumerCounter("Jolokia", _ask_jolokia)
RABBITMQ: Final = ConsumerCounter("the broker's management node", _ask_rabbitmq)
SOURCES: Final[Mapping[str, ConsumerCounter]] = {
    "activemq": ConsumerCounter("the broker's advisories", _ask_advisories),
    "artemis": ConsumerCounter("the broker's management address", _ask_management),
    "embedded": EMBEDDED,
    "rabbitmq": RABBITMQ,
}
"""How each broker is asked, by its dialect."""

ADVICE: Final = "; --jolokia URL asks the broker's console instead"
UNTOLD: Final = {
    "embedded": "soapjms broker does not tell its clients",
    "smqp": "SMQP has no command for it",
    "rabbitmq": "RabbitMQ has a queue for each subscriber to a topic, and counts the consumers of queues only",
    "qpid": "Qpid Broker-J tells it only over HTTP, in its own console",
}
"""Why other brokers do not tell, by their dialect."""
