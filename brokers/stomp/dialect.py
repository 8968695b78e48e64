"""How STOMP brokers differ, as one table: a row for a broker, a column for a difference.

STOMP leaves to the broker how destinations are spelled, what a frame says of the JMS message behind it, and how many
messages a subscription may hold. Code asks the row, never for a broker's name. `docs/brokers.md` says what follows from
the differences for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from brokers.connection import Capabilities
from brokers.errors import ConnectionFailedError
from brokers.message import DestinationKind

Kinds: TypeAlias = Mapping[DestinationKind, str]

MESSAGE_HEADERS: Final = frozenset(
    "ack content-length content-type correlation-id destination expires message-id persistent priority redelivered "
    "reply-to subscription timestamp type".split()
)
"""Headers of MESSAGE that STOMP or the broker gives a meaning; every other header is a property."""

RESERVED: Final = MESSAGE_HEADERS | {"receipt", "transaction", "transformation"}
"""Names that a property cannot have on SEND, because the broker would take it for a header of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StompDialect:
    """What one broker does in its own way.

    Attributes:
        name: what `connect(url, dialect=...)` calls it.
        version: the version of STOMP to speak with it.
        prefixes: what precedes a destination's name on the wire, where every connection may use it.
        own_prefixes: what precedes the address of a temporary destination that a connection makes.
        own_is_private: such an address means something to that connection only; else anybody may send there.
        reply_prefixes: what precedes a name in `reply-to`.
        own_reply_prefix: what precedes the address of a connection's own temporary destination there.
        send_routing: the `destination-type` of a SEND; none for kinds without.
        subscribe_routing: the `subscription-type` of a SUBSCRIBE.
        owns_copies: kinds of destination whose messages are the subscription's own, and lost with it.
        prefetch_header: the header of SUBSCRIBE that limits how much is unacknowledged.
        window: what to write there for so many messages.
        untold: headers of a SUBSCRIBE with `ack:auto`, which replace others of the same name.
        durable_header: the header of SUBSCRIBE that names a durable subscription.
        selector_names: how a selector is to spell the headers of JMS.
        message_headers: headers of MESSAGE that are no properties of the message.
        reserved: names that a property cannot have.
        renamed: how MESSAGE spells properties that SEND spells otherwise.
        is_bytes: whether a MESSAGE with a body is a BytesMessage; else it is a TextMessage.
        id_is_pair: `message-id` is that of the consumer and of the message, with a comma between.
        id_headers: headers of MESSAGE that tell the JMSMessageID as its sender knows it, before `message-id` does.
        accepts_earlier: an ACK in mode `client` makes room for all that it covers; else only for its own message.
        accepts_in_transactions: an ACK may be part of a transaction.
        stable_message_id: a redelivered message keeps its `message-id`, also when the broker starts anew.
        tells_redelivery: `redelivered:false` is true.
        own_ids: the JMSMessageIDs that an ACK can name, None for all; of others see `brokers.stomp.collection`.
        doubtful: the header of what came over AMQP with properties: its sender may have chosen its id.
        dead_letters: the queue for rejected messages that the adapter has to put there, unless the URL says another.
        nack_is_dead_letter: NACK makes a dead letter; else it loses the message.
        tells_gone: a SEND to a temporary destination that is gone is refused.
        gone: what an ERROR says when a destination does not exist.
        ended: how an ERROR begins that ends a subscription, with `address` and `queue` of it; None if none does.
        subscribed: what the ERROR says for a SUBSCRIBE whose `id` a living subscription has; None if there is none, and
            the session has two then.
        has_advisories: it says on topics of its own which subscriptions it has ended; see `brokers.stomp.roll`.
        subscribe_error_has_receipt: the ERROR for a SUBSCRIBE says for which.
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
        """Say whether the id of a message may be one that an ACK can name."""
        return self.own_ids is None or self.own_ids.fullmatch(headers.get("message-id", "")) is not None


MIN_FRAME_OCTETS: Final = 256
"""Octets that a MESSAGE of Artemis has at least, or nearly. It counts a window in octets, and stops when that is used
up: so of no size of message are more on the way than asked for, and of large ones fewer."""

CLASSIC_PREFIXES: Final = {
    DestinationKind.QUEUE: "/queue/",
    DestinationKind.TOPIC: "/topic/",
    DestinationKind.TEMPORARY_QUEUE: "/remote-temp-queue/",
    DestinationKind.TEMPORARY_TOPIC: "/remote-temp-topic/",
}
TOPICS: Final = frozenset({DestinationKind.TOPIC, DestinationKind.TEMPORARY_TOPIC})


def _has_length(headers: Mapping[str, str]) -> bool:
    """A TextMessage has no `content-length`."""
    return "content-length" in headers


def _has_length_first(headers: Mapping[str, str]) -> bool:
    """A TextMessage has it too, but where frames are encoded, at the end; a BytesMessage before the `message-id`."""
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
    ended=None,  # who consumes from a queue that is deleted, consumes from the one that is made next
    subscribed=None,
    has_advisories=True,
    subscribe_error_has_receipt=True,
    confirms_leave=True,
)

SENDERS_IDS: Final = ("__HDR_MESSAGE_ID", "NATIVE_MESSAGE_ID")
"""Where Artemis tells the JMSMessageID of what came over OpenWire, and over AMQP; of what came over its own it does
not."""

ARTEMIS: Final = StompDialect(
    name="artemis",
    # In 1.2 each refusal ends the connection, and with it what others have under way.
    version="1.1",
    prefixes=dict.fromkeys(DestinationKind, ""),
    own_prefixes={
        DestinationKind.TEMPORARY_QUEUE: "temp-queue.",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic.",
    },
    own_is_private=False,
    # As its Java client writes and reads them.
    reply_prefixes={
        DestinationKind.QUEUE: "queue://",
        DestinationKind.TOPIC: "topic://",
        DestinationKind.TEMPORARY_QUEUE: "temp-queue://",
        DestinationKind.TEMPORARY_TOPIC: "temp-topic://",
    },
    own_reply_prefix="topic://",
    # A temporary destination gets none: if it is there it gets the message whichever type it has; if it is gone, only
    # its name is made again, and no queue that keeps what nobody will fetch.
    send_routing={DestinationKind.QUEUE: "ANYCAST", DestinationKind.TOPIC: "MULTICAST"},
    # A temporary queue is a topic: only those have subscriptions that go with the connection.
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
    # It makes properties of headers that are about the frame, and hands them to the receiver.
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
    ended=re.compile(
        r"consumer with ID ServerConsumerImpl \[.*?\[address=(?P<address>.*?), queue=QueueImpl\[name=(?P<queue>.*?), "
        r".*disconnected by server",
        re.DOTALL,
    ),
    subscribed="already is a subscription",
    has_advisories=False,
    subscribe_error_has_receipt=False,
    confirms_leave=False,  # two of its threads wait for each other if the socket ends before that receipt is written
)

DIALECTS: Final[Mapping[str, StompDialect]] = {"ActiveMQ": ACTIVEMQ_CLASSIC, "ActiveMQ-Artemis": ARTEMIS}
"""By the name that the broker gives itself in the header `server` of CONNECTED, without its version."""

NAMED: Final[Mapping[str, StompDialect]] = {dialect.name: dialect for dialect in DIALECTS.values()}


def dialect_of(server: str) -> StompDialect:
    """Choose the dialect of the broker that calls itself `server` (`ActiveMQ/6.1.8`).

    Raises:
        ConnectionFailedError: no row for it; guessing would lose messages.
    """
    try:
        return DIALECTS[server.partition("/")[0]]
    except KeyError:
        known = ", ".join(sorted(DIALECTS))
        raise ConnectionFailedError(
            f"no STOMP dialect for the broker {server!r}; known are: {known}. "
            f"If it is one of them and does not say so, connect with dialect={' or '.join(sorted(NAMED))}"
        ) from None


def capabilities_of(dialect: StompDialect, server: str, *, has_client_id: bool) -> Capabilities:
    """Say what can be done over STOMP: `release` gives back all that a consumer holds, types get lost on the way."""
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
    )
