"""The differences between STOMP brokers, as one table: a row for each broker, a column for each difference.

STOMP leaves the spelling of destinations, the mapping of JMS messages to frames, and the window of a subscription to
the broker. Code checks the row, never a broker's name. `docs/brokers.md` describes the consequences for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from brokers.connection import Capabilities
from brokers.errors import ConnectionFailedError
from brokers.message import DestinationKind

Kinds: TypeAlias = Mapping[DestinationKind, str]

MESSAGE_HEADERS: Final = frozenset(
    "ack content-length content-type correlation-id destination expires message-id persistent priority redelivered "
    "reply-to subscription timestamp type".split()
)
"""Headers of MESSAGE with a meaning in STOMP or for the broker; all other headers are properties."""

RESERVED: Final = MESSAGE_HEADERS | {"receipt", "transaction", "transformation"}
"""Names that a property cannot have on SEND, because the broker would interpret them as its own headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StompDialect:
    """The particular behaviour of one broker.

    Attributes:
        name: name of the dialect in `connect(url, dialect=...)`.
        version: the version of STOMP to use with it.
        prefixes: prefix of a destination's name on the wire, for destinations that every connection may use.
        own_prefixes: prefix of the address of a connection's own temporary destination.
        own_is_private: such an address is valid only in that connection; otherwise anyone may send there.
        reply_prefixes: prefix of a name in `reply-to`.
        own_reply_prefix: prefix of the address of a connection's own temporary destination in `reply-to`.
        send_routing: the `destination-type` of a SEND, for kinds that need one.
        subscribe_routing: the `subscription-type` of a SUBSCRIBE.
        owns_copies: kinds of destination whose messages belong to the subscription, and are lost with it.
        prefetch_header: the header of SUBSCRIBE that limits unacknowledged messages.
        window: returns the value of that header for a number of messages.
        untold: headers of a SUBSCRIBE with `ack:auto`, which replace others of the same name.
        durable_header: the header of SUBSCRIBE that names a durable subscription.
        selector_names: names of the JMS headers in a selector.
        message_headers: headers of MESSAGE that are not properties of the message.
        reserved: names that a property cannot have.
        renamed: names in MESSAGE of properties that have other names in SEND.
        is_bytes: whether a MESSAGE with a body is a BytesMessage; otherwise it is a TextMessage.
        id_is_pair: `message-id` has the ids of the consumer and of the message, with a comma between.
        id_headers: headers of MESSAGE with the sender's JMSMessageID, which take precedence over `message-id`.
        accepts_earlier: an ACK in mode `client` makes room for all messages that it covers; otherwise only for its own.
        accepts_in_transactions: an ACK may be part of a transaction.
        stable_message_id: a redelivered message keeps its `message-id`, even after a restart of the broker.
        tells_redelivery: `redelivered:false` is reliable.
        own_ids: the JMSMessageIDs that an ACK can name, None for all; for others see `brokers.stomp.collection`.
        doubtful: a header of messages that came over AMQP with properties: the sender may have chosen the id.
        dead_letters: default queue for rejected messages that the adapter has to move itself.
        nack_is_dead_letter: a NACK makes a dead letter; otherwise it loses the message.
        tells_gone: a SEND to a temporary destination that is gone is refused.
        gone: text of an ERROR for a destination that does not exist.
        ended: matches an ERROR for the end of a subscription, with groups `address` and `queue`; None if there is none.
        subscribed: text of the ERROR for a SUBSCRIBE whose `id` is in use; None if there is none, and the session then
            has two subscriptions.
        has_advisories: it reports ended subscriptions on its advisory topics; see `brokers.stomp.roll`.
        subscribe_error_has_receipt: the ERROR for a SUBSCRIBE has its receipt.
        confirms_leave: a DISCONNECT may ask for a receipt.
    """

    name: str
    version: str
    prefixes: Kinds
    own_prefixes: Kinds
    own_is_private: bool
    reply_prefixes: Kinds
    own_reply_prefix: str
    send_routing: Kinds
    subscribe_routing: Kinds
    owns_copies: frozenset[DestinationKind]
    prefetch_header: str
    window: Callable[[int], int]
    untold: Mapping[str, str]
    durable_header: str
    selector_names: Mapping[str, str]
    message_headers: frozenset[str]
    reserved: frozenset[str]
    renamed: Mapping[str, str]
    is_bytes: Callable[[Mapping[str, str]], bool]
    id_is_pair: bool
    id_headers: tuple[str, ...]
    accepts_earlier: bool
    accepts_in_transactions: bool
    stable_message_id: bool
    tells_redelivery: bool
    own_ids: re.Pattern[str] | None
    doubtful: str
    dead_letters: str
    nack_is_dead_letter: bool
    tells_gone: bool
    gone: str
    ended: re.Pattern[str] | None
    subscribed: str | None
    has_advisories: bool
    subscribe_error_has_receipt: bool
    confirms_leave: bool

    def is_own_id(self, headers: Mapping[str, str]) -> bool:
        """Return whether an ACK may be able to name the id of a message."""
        return self.own_ids is None or self.own_ids.fullmatch(headers.get("message-id", "")) is not None


MIN_FRAME_OCTETS: Final = 269
"""Approximate minimum size of a MESSAGE of Artemis, in octets. Its window counts octets, and it stops when that is used
up: so it never sends more messages than requested, and fewer large ones."""

CLASSIC_PREFIXES: Final = {
    DestinationKind.QUEUE: "/queue/",
    DestinationKind.TOPIC: "/topic/",
    DestinationKind.TEMPORARY_QUEUE: "/remote-temp-queue/",
    DestinationKind.TEMPORARY_TOPIC: "/remote-temp-topic/",
}
TOPICS: Final = frozenset({DestinationKind.TOPIC, DestinationKind.TEMPORARY_TOPIC})


def _has_length(headers: Mapping[str, str]) -> bool:
    """Return whether there is a `content-length`, which a TextMessage does not have."""
    return "content-length" in headers


def _has_length_first(headers: Mapping[str, str]) -> bool:
    """Return whether `content-length` precedes `message-id`, as in a BytesMessage; a TextMessage has it at the end."""
    for name in headers:
        if name in ("content-length", "message-id"):
            return name == "content-length"
    return False


ACTIVEMQ_CLASSIC: Final = StompDialect(
    name="activemq",
    version="1.2",
    prefixes=CLASSIC_PREFIXES,
    own_prefixes={
        DestinationKind.TEMPORARY_QUEUE: "/temp-queue/",
        DestinationKind.TEMPORARY_TOPIC: "/temp-topic/",
    },
    own_is_private=True,
    reply_prefixes=CLASSIC_PREFIXES,
    own_reply_prefix="",
    send_routing={},
    subscribe_routing={},
    owns_copies=TOPICS,
    prefetch_header="activemq.prefetchSize",
    window=lambda count: count,
    untold={},
    durable_header="activemq.subscriptionName",
    selector_names={},
    message_headers=MESSAGE_HEADERS,
    reserved=RESERVED,
    renamed={},
    is_bytes=_has_length,
    id_is_pair=False,
    id_headers=(),
    accepts_earlier=True,
    accepts_in_transactions=True,
    stable_message_id=True,
    tells_redelivery=True,
    own_ids=re.compile(r"ID:.+-\d+-\d+-\d+:\d+:-?\d+:-?\d+:-?\d+", re.DOTALL),
    doubtful="JMS_AMQP_PROPERTIES",
    dead_letters="ActiveMQ.DLQ",
    nack_is_dead_letter=True,
    tells_gone=True,
    gone="DestinationDoesNotExistException",
    ended=None,  # a consumer of a deleted queue consumes from the next queue of that name
    subscribed=None,
    has_advisories=True,
    subscribe_error_has_receipt=True,
    confirms_leave=True,
)

SENDERS_IDS: Final = ("__HDR_MESSAGE_ID", "NATIVE_MESSAGE_ID")
"""Headers of Artemis with the JMSMessageID of messages that came over OpenWire or AMQP; those that came over its own
protocol have none."""

ARTEMIS: Final = StompDialect(
    name="artemis",
    # In 1.2 each refusal ends the connection, including other operations on it.
    version="1.1",
    prefixes=dict.fromkeys(DestinationKind, ""),
    own_prefixes={
        DestinationKind.TEMPORARY_QUEUE: "temp-queue.",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic.",
    },
    own_is_private=False,
    # In the form of its Java client.
    reply_prefixes={
        DestinationKind.QUEUE: "queue://",
        DestinationKind.TOPIC: "topic://",
        DestinationKind.TEMPORARY_QUEUE: "temp-queue://",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic://",
    },
    own_reply_prefix="topic://",
    # None for a temporary destination: if it exists it gets the message, whatever its type; if it is gone, only its
    # address is created again, not a queue that would keep the message forever.
    send_routing={DestinationKind.QUEUE: "ANYCAST", DestinationKind.TOPIC: "MULTICAST"},
    # A temporary queue is a topic: only topics have subscriptions that end with the connection.
    subscribe_routing=dict.fromkeys(DestinationKind, "MULTICAST") | {DestinationKind.QUEUE: "ANYCAST"},
    owns_copies=TOPICS | {DestinationKind.TEMPORARY_QUEUE},
    prefetch_header="consumer-window-size",
    window=lambda count: 0 if count == 1 else count * MIN_FRAME_OCTETS,
    untold={"consumer-window-size": "-1"},  # else it stops once that is used up
    durable_header="durable-subscription-name",
    selector_names={
        "JMSDeliveryMode": "AMQDurable",
        "JMSExpiration": "AMQExpiration",
        "JMSMessageID": "AMQUserID",
        "JMSPriority": "AMQPriority",
        "JMSTimestamp": "AMQTimestamp",
    },
    # Artemis turns headers of the frame into properties, and passes them to the receiver.
    message_headers=MESSAGE_HEADERS | {"destination-type", "receipt", "transaction", "__AMQ_CID", *SENDERS_IDS},
    reserved=RESERVED | {"destination-type", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "__AMQ_CID", *SENDERS_IDS},
    renamed={"_AMQ_GROUP_ID": "JMSXGroupID"},
    is_bytes=_has_length_first,
    id_is_pair=True,
    id_headers=SENDERS_IDS,
    accepts_earlier=False,
    accepts_in_transactions=False,
    stable_message_id=False,
    tells_redelivery=False,
    own_ids=None,
    doubtful="",
    dead_letters="DLQ",
    nack_is_dead_letter=False,
    tells_gone=False,
    gone="AMQ339001",
    ended=re.compile(  # the first of each is enough: to try others takes hours for a long text
        r"consumer with ID ServerConsumerImpl \[(?>.*?\[address=)(?>(?P<address>.*?), queue=QueueImpl\[name=)"
        r"(?>(?P<queue>.*?), ).*disconnected by server",
        re.DOTALL,
    ),
    subscribed="already is a subscription",
    has_advisories=False,
    subscribe_error_has_receipt=False,
    confirms_leave=False,  # two of its threads deadlock if the socket ends before that receipt is written
)

DIALECTS: Final[Mapping[str, StompDialect]] = {"ActiveMQ": ACTIVEMQ_CLASSIC, "ActiveMQ-Artemis": ARTEMIS}
"""Dialects by the broker's name in the header `server` of CONNECTED, without its version."""

StompDialectName: TypeAlias = Literal["activemq", "artemis"]
NAMED: Final[Mapping[str, StompDialect]] = {dialect.name: dialect for dialect in DIALECTS.values()}


def dialect_of(server: str) -> StompDialect:
    """Return the dialect of a broker by its `server` header, such as `ActiveMQ/6.1.8`.

    Raises:
        ConnectionFailedError: the broker is unknown; guessing would lose messages.
    """
    try:
        return DIALECTS[server.partition("/")[0]]
    except KeyError:
        known = ", ".join(sorted(DIALECTS))
        raise ConnectionFailedError(
            f"no STOMP dialect for the broker {server!r}; known are: {known}. "
            f"If it is one of them under another name, connect with dialect={' or '.join(sorted(NAMED))}"
        ) from None


def capabilities_of(dialect: StompDialect, server: str, *, has_client_id: bool) -> Capabilities:
    """Return the capabilities over STOMP: `release` gives back all that a consumer holds, and types are lost."""
    return Capabilities(
        broker=server,
        dialect=dialect.name,
        typed_properties=False,
        message_types=False,
        transactions=True,
        stable_message_id=dialect.stable_message_id,
        tells_message_id=False,
        delivery_count=False,
        tells_redelivery=dialect.tells_redelivery,
        accepts_in_transactions=dialect.accepts_in_transactions,
        tells_gone=dialect.tells_gone,
        release=False,
        cumulative_accept=False,
        selectors=True,
        durable_topics=has_client_id,
        tells_time=True,
    )
