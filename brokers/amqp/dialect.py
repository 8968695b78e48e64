"""The differences between AMQP brokers, as one table: a row for each broker, a column for each difference.

AMQP leaves the form of addresses and the kind of destination to the broker. The JMS mapping defines the second: a
capability on a link, an annotation in a message. Code checks the row, never a broker's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from brokers.connection import Capabilities
from brokers.errors import UsageError
from brokers.message import MAX_ADDRESS_CHARACTERS, MAX_CACHED_CHARACTERS, Destination, DestinationKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AmqpDialect:
    """The particular behaviour of one broker. Compared by identity.

    Attributes:
        name: name of the dialect, for programs.
        prefixes: prefix of a destination's name in an address, by kind; empty if the address is the name.
        takes_ids: the sender may choose the JMSMessageID. (ActiveMQ Classic accepts one too, but then cannot find the
            message when a consumer accepts it over STOMP.)
        temporary_names: prefixes of the names of temporary destinations that are topics to the broker, such as those
            made over STOMP, with their kinds.
        unannotated: kinds of destination that messages to them do not carry as an annotation. (If a message to a
            temporary queue that is gone has one, Artemis creates a permanent queue of that name.)
        id_property: property with the sender's JMSMessageID in messages that came by another protocol; None if the
            broker sets none.
        tells_gone: a message to a temporary destination that is gone is refused; otherwise it is lost.
        returns_rejected: a rejected message is delivered again at once, up to the limit of its queue; so rejections
            are sent after a pause.
        counts_down: the time to live of a message that arrives is what is left of it; otherwise what it was at first.
        shown: prefix of the annotations with the origin of a copy; None if the broker sets none. They become properties
            with `JMS_AMQP_MA_` before their names, like the broker's own names for consumers over STOMP.
        encodes_names: names are percent-encoded in addresses.
        has_management: queues are made and bound by requests to the broker's management node: it has no dynamic nodes,
            and delivers from queues only. It releases a message for which there is no queue, and says of a message only
            by `first-acquirer` that it was delivered before, unless its queue counts deliveries.
        host_prefix: prefix of the names of virtual hosts; to other names the broker shows its default one.
        transactions, selectors, durable_topics: whether the broker has them.
        oldest: the first major version of the broker that does so.
    """

    name: str
    prefixes: Mapping[DestinationKind, str] = field(default_factory=dict)
    takes_ids: bool = True
    temporary_names: Mapping[str, DestinationKind] = field(default_factory=dict)
    unannotated: frozenset[DestinationKind] = frozenset()
    tells_gone: bool = True
    returns_rejected: bool = False
    counts_down: bool = False
    shown: str | None = None
    id_property: str | None = None
    encodes_names: bool = False
    has_management: bool = False
    host_prefix: str = ""
    transactions: bool = True
    selectors: bool = True
    durable_topics: bool = True
    oldest: int = 0


PLAIN: Final = AmqpDialect(name="plain")
"""Addresses are names, as in the JMS mapping: for all unknown brokers."""

ACTIVEMQ_CLASSIC: Final = AmqpDialect(
    name="activemq",
    prefixes={
        DestinationKind.QUEUE: "queue://",
        DestinationKind.TOPIC: "topic://",
        DestinationKind.TEMPORARY_QUEUE: "temp-queue://",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic://",
    },
    takes_ids=False,
    counts_down=True,
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
    id_property="__HDR_MESSAGE_ID",  # of messages that came over OpenWire
)

QPID: Final = AmqpDialect(name="qpid", returns_rejected=True, counts_down=True)
"""Qpid Broker-J: addresses are names. A topic is an exchange, or `EXCHANGE/KEY`, such as `amq.topic/news`."""

RABBITMQ: Final = AmqpDialect(
    name="rabbitmq",
    prefixes={
        DestinationKind.TEMPORARY_QUEUE: "/queues/temporary-queue.",
        DestinationKind.QUEUE: "/queues/",
        DestinationKind.TOPIC: "/exchanges/amq.topic/",
    },
    encodes_names=True,
    has_management=True,
    host_prefix="vhost:",
    transactions=False,
    selectors=False,
    durable_topics=False,
    oldest=4,
)
"""RabbitMQ 4, by its addresses of the second version. A topic is a routing key of the exchange `amq.topic`."""

EMBEDDED: Final = AmqpDialect(
    name="embedded",
    prefixes={
        DestinationKind.TEMPORARY_QUEUE: "temp-queue://",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic://",
    },
    counts_down=True,
)
"""Our own listener: addresses of temporary destinations show their kind, so that clients without JMS can answer."""

PRODUCT: Final = "brokers-embedded"
"""The product name of our own listener."""

DIALECTS: Final[Mapping[str, AmqpDialect]] = {
    "ActiveMQ": ACTIVEMQ_CLASSIC,
    "apache-activemq-artemis": ARTEMIS,
    "Apache Qpid Broker-J Core": QPID,
    "RabbitMQ": RABBITMQ,
    PRODUCT: EMBEDDED,
}
"""Dialects by the `product` in the properties of the broker's `open`."""

AmqpDialectName: TypeAlias = Literal["activemq", "artemis", "qpid", "rabbitmq", "plain"]
NAMED: Final[Mapping[str, AmqpDialect]] = {
    each.name: each for each in (ACTIVEMQ_CLASSIC, ARTEMIS, QPID, RABBITMQ, PLAIN)
}
"""Dialects by the name that a program gives, for brokers that do not identify themselves."""

CAPABILITIES: Final[Mapping[DestinationKind, str]] = {
    DestinationKind.QUEUE: "queue",
    DestinationKind.TOPIC: "topic",
    DestinationKind.TEMPORARY_QUEUE: "temporary-queue",
    DestinationKind.TEMPORARY_TOPIC: "temporary-topic",
}
"""Capabilities of a source or target for each kind of destination. Spec: AMQP JMS Mapping 1.0."""

LIFETIME: Final = "lifetime-policy"
"""The property of a dynamic node that says when it is deleted. Spec: AMQP 1.0 part 3, section 3.5.10."""

DELETE_ON_CLOSE: Final = 0x2B
"""Descriptor of the lifetime of a temporary destination: until the link closes that created it."""


def dialect_of(product: str | None) -> AmqpDialect:
    """Return the dialect of a broker by its product name; an unknown one gets `PLAIN`."""
    return DIALECTS.get(product or "", PLAIN)


def capabilities_of(dialect: AmqpDialect, broker: str, *, has_client_id: bool, message_ids: bool) -> Capabilities:
    """Return the capabilities over AMQP: nearly all of JMS, but for what the broker lacks."""
    return Capabilities(
        broker=broker,
        dialect=dialect.name,
        typed_properties=True,
        message_types=True,
        transactions=dialect.transactions,
        stable_message_id=True,
        tells_message_id=message_ids,
        delivery_count=True,
        tells_redelivery=True,
        accepts_in_transactions=dialect.transactions,
        tells_gone=dialect.tells_gone,
        release=True,
        cumulative_accept=False,
        selectors=dialect.selectors,
        durable_topics=dialect.durable_topics and has_client_id,
        tells_time=False,
    )


def spell(destination: Destination, dialect: AmqpDialect) -> str:
    """Return the address of a destination: its own if it has one, else prefix and name.

    Raises:
        UsageError: it has neither address nor name; or proton would cut the address, or a frame may not hold it.
    """
    address = destination.address
    if address is None:
        name = destination.name
        if not name:
            raise UsageError(f"a destination must have a name or an address, got {destination.kind} without either")
        if "\0" in name:  # which could be encoded
            raise UsageError(
                f"the name of an AMQP destination must not hold NUL, got {name[:MAX_ADDRESS_CHARACTERS]!r}"
            )
        address = dialect.prefixes.get(destination.kind, "") + (encoded(name) if dialect.encodes_names else name)
    if "\0" in address:
        raise UsageError(f"an AMQP address must not hold NUL, got {address[:MAX_ADDRESS_CHARACTERS]!r}")
    if len(address) > MAX_ADDRESS_CHARACTERS:
        raise UsageError(f"an AMQP address must have at most {MAX_ADDRESS_CHARACTERS} characters, got {len(address)}")
    return address


def encoded(name: str) -> str:
    """Return a name as a segment of an address.

    Raises:
        UsageError: UTF-8 cannot encode it.
    """
    from urllib.parse import quote  # slow to import, and rarely needed

    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise UsageError(f"UTF-8 cannot encode the name of the destination {name!r}: {error.reason}") from None


def decoded(segment: str) -> str:
    """Return the name that a segment of an address stands for."""
    from urllib.parse import unquote  # see above

    return unquote(segment)


def node_kind(destination: Destination, dialect: AmqpDialect) -> DestinationKind:
    """Return the kind of a destination at the broker: one of `temporary_names` is a topic there."""
    address = destination.address or destination.name or ""
    is_topic = destination.kind.is_temporary and address.startswith(tuple(dialect.temporary_names))
    return DestinationKind.TOPIC if is_topic else destination.kind


def read_address(address: str, kind: DestinationKind | None, dialect: AmqpDialect) -> Destination:
    """Parse an address as the broker spells it.

    Args:
        address: address in a message or at a link.
        kind: kind from an annotation or the link; a prefix of the address overrides it. None means a queue.
    """
    return (_known if len(address) <= MAX_CACHED_CHARACTERS else _known.__wrapped__)(address, kind, dialect)


@lru_cache(maxsize=1024)
def _known(address: str, kind: DestinationKind | None, dialect: AmqpDialect) -> Destination:
    """Parse an address; cached, because messages use few addresses."""
    for known, prefix in dialect.prefixes.items():
        if address.startswith(prefix):
            name = address[len(prefix) :]
            return Destination(known, decoded(name) if dialect.encodes_names else name)
    for beginning, known in dialect.temporary_names.items():
        if address.startswith(beginning):
            return Destination(known, address)
    return Destination(kind or DestinationKind.QUEUE, address)
