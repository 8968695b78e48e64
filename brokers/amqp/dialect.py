"""How AMQP brokers differ, as one table: a row for a broker, a column for a difference.

AMQP leaves to the broker what an address looks like and which kind of destination is meant. The JMS mapping settles
the second: a capability on a link, an annotation in a message. Code asks the row, never for a broker's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from brokers.connection import Capabilities
from brokers.message import MAX_CACHED_CHARACTERS, Destination, DestinationKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AmqpDialect:
    """What one broker does in its own way. Each is equal to itself alone.

    Attributes:
        name: what a program calls it.
        prefixes: what precedes a destination's name in an address; none where the address is the name.
        takes_ids: the sender may choose the JMSMessageID. (ActiveMQ Classic takes one too, but then does not find the
            message again that a consumer accepts over STOMP.)
        temporary_names: how the names of temporary destinations begin that are topics to the broker, as those made over
            STOMP are; none where there is no such.
        unannotated: kinds of destination of which a message does not say that its own is one. (Where a message to a
            temporary queue that is gone does, Artemis makes a lasting queue of that name, which nobody empties.)
        id_property: the property that tells the JMSMessageID as its sender knows it, of what came by another protocol;
            none for no such.
        selectors: a consumer may have one.
        tells_gone: a message to a temporary destination that is gone is refused; else it vanishes.
        returns_rejected: a rejected message is delivered again at once, until its queue has had enough of it; so there
            is a pause before each.
        shown: how the annotations begin in which the broker says where a copy was, none for no such. They become
            properties, `JMS_AMQP_MA_` before their names, as the broker itself calls them to consumers over STOMP.
    """

    name: str
    prefixes: Mapping[DestinationKind, str] = field(default_factory=dict)
    takes_ids: bool = True
    temporary_names: Mapping[str, DestinationKind] = field(default_factory=dict)
    unannotated: frozenset[DestinationKind] = frozenset()
    tells_gone: bool = True
    returns_rejected: bool = False
    shown: str | None = None
    id_property: str | None = None
    selectors: bool = True


PLAIN: Final = AmqpDialect(name="plain")
"""Addresses are names, as the JMS mapping has it: RabbitMQ, any that is not known."""

ACTIVEMQ_CLASSIC: Final = AmqpDialect(
    name="activemq",
    prefixes={
        DestinationKind.QUEUE: "queue://",
        DestinationKind.TOPIC: "topic://",
        DestinationKind.TEMPORARY_QUEUE: "temp-queue://",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic://",
    },
    takes_ids=False,
)

ARTEMIS: Final = AmqpDialect(
    name="artemis",
    temporary_names={
        "temp-queue.": DestinationKind.TEMPORARY_QUEUE,
        "temp-topic.": DestinationKind.TEMPORARY_TOPIC,
    },
    unannotated=frozenset({DestinationKind.TEMPORARY_QUEUE, DestinationKind.TEMPORARY_TOPIC}),
    tells_gone=False,
    shown="x-opt-ORIG-",
    id_property="__HDR_MESSAGE_ID",  # of what came over OpenWire
)

QPID: Final = AmqpDialect(name="qpid", returns_rejected=True)
"""Qpid Broker-J: addresses are names. A topic is an exchange, or `EXCHANGE/KEY`, as `amq.topic/news`."""

EMBEDDED: Final = AmqpDialect(
    name="embedded",
    prefixes={
        DestinationKind.TEMPORARY_QUEUE: "temp-queue://",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic://",
    },
)
"""Our own listener: temporary destinations say what they are, so that clients that know nothing of JMS can answer."""

PRODUCT: Final = "brokers-embedded"
"""What our own listener calls itself."""

DIALECTS: Final[Mapping[str, AmqpDialect]] = {
    "ActiveMQ": ACTIVEMQ_CLASSIC,
    "apache-activemq-artemis": ARTEMIS,
    "Apache Qpid Broker-J Core": QPID,
    PRODUCT: EMBEDDED,
}
"""By the `product` among the properties of the broker's `open`."""

NAMED: Final[Mapping[str, AmqpDialect]] = {each.name: each for each in (ACTIVEMQ_CLASSIC, ARTEMIS, QPID, PLAIN)}
"""By what a program calls it, for a broker that does not say which it is."""

CAPABILITIES: Final[Mapping[DestinationKind, str]] = {
    DestinationKind.QUEUE: "queue",
    DestinationKind.TOPIC: "topic",
    DestinationKind.TEMPORARY_QUEUE: "temporary-queue",
    DestinationKind.TEMPORARY_TOPIC: "temporary-topic",
}
"""How the source or target of a link says which kind of destination it is. Spec: AMQP JMS Mapping 1.0."""


def dialect_of(product: str | None) -> AmqpDialect:
    """Choose the dialect of a broker by what it calls itself; one that is not known gets what the mapping has."""
    return DIALECTS.get(product or "", PLAIN)


def capabilities_of(dialect: AmqpDialect, broker: str, *, has_client_id: bool, message_ids: bool) -> Capabilities:
    """Say what can be done over AMQP: nearly all that JMS has."""
    return Capabilities(
        broker=broker,
        dialect=dialect.name,
        typed_properties=True,
        message_types=True,
        transactions=True,
        stable_message_id=True,
        tells_message_id=message_ids,
        delivery_count=True,
        tells_redelivery=True,
        accepts_in_transactions=True,
        tells_gone=dialect.tells_gone,
        release=True,
        cumulative_accept=False,
        selectors=dialect.selectors,
        durable_topics=has_client_id,
    )


def spell(destination: Destination, dialect: AmqpDialect) -> str:
    """Return the address of a destination: its own if it has one, else prefix and name.

    Raises:
        ValueError: it has neither address nor name.
    """
    if destination.address is not None:
        return destination.address
    if not destination.name:
        raise ValueError(f"the destination of kind {destination.kind} has no name")
    return dialect.prefixes.get(destination.kind, "") + destination.name


def node_kind(destination: Destination, dialect: AmqpDialect) -> DestinationKind:
    """Return what a destination is to the broker: one of `temporary_names` is a topic, whatever it is to programs."""
    address = destination.address or destination.name or ""
    is_topic = destination.kind.is_temporary and address.startswith(tuple(dialect.temporary_names))
    return DestinationKind.TOPIC if is_topic else destination.kind


def read_address(address: str, kind: DestinationKind | None, dialect: AmqpDialect) -> Destination:
    """Read an address as the broker spells it.

    Args:
        address: what stands in a message or at a link.
        kind: what an annotation or the link says of it; a prefix of the address wins. None is taken for a queue.
    """
    return (_known if len(address) <= MAX_CACHED_CHARACTERS else _known.__wrapped__)(address, kind, dialect)


@lru_cache(maxsize=1024)
def _known(address: str, kind: DestinationKind | None, dialect: AmqpDialect) -> Destination:
    """Read an address; messages come from a few, and name a few for their answers."""
    for known, prefix in dialect.prefixes.items():
        if address.startswith(prefix):
            return Destination(known, address[len(prefix) :])
    for beginning, known in dialect.temporary_names.items():
        if address.startswith(beginning):
            return Destination(known, address)
    return Destination(kind or DestinationKind.QUEUE, address)
