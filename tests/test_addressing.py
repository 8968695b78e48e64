"""What a `jms:` URI means on a connection, and where a reply may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from calling_kit import request_message

from brokers import Destination, DestinationKind, queue, topic
from brokers.naming import NameNotFoundError, Names
from soapjms.addressing import destination_of, reply_destination_of, reply_refusal
from soapjms.protocol.errors import InvalidPropertyError, InvalidUriError, UsageError
from soapjms.protocol.properties import Origin
from soapjms.protocol.uri import Mode, parse
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.addresses import read_uri

NAMES = Names({"jms/orders": queue("orders"), "jms/news": topic("news")})


@pytest.mark.parametrize(
    ("uri", "destination"),
    [
        ("jms:queue:orders", queue("orders")),
        ("jms:queue:a%2Fb", queue("a/b")),
        ("jms:topic:news?priority=3", topic("news")),
        ("jms:jndi:jms/orders", queue("orders")),
        ("jms:jndi:jms/news", topic("news")),
        ("jms:jndi:dynamicQueues/a.b", queue("a.b")),
        ("jms:jndi:dynamicTopics/a.b", topic("a.b")),
    ],
)
def test_destination(uri: str, destination: Destination) -> None:
    """Each lookup variant finds its destination; names are decoded."""
    assert destination_of(read_uri(uri, {})[0], NAMES) == destination


def test_unsupported_variant() -> None:
    """A variant that is no lookup of ours is refused, with those that are."""
    with pytest.raises(UsageError, match="the lookup variant 'mail' is none of: jndi, queue, topic"):
        destination_of(read_uri("jms:mail:a", {})[0], NAMES)


def test_unregistered_name() -> None:
    """A JNDI name is looked up in the registry only."""
    with pytest.raises(NameNotFoundError, match="'rmi://evil/a'"):
        destination_of(read_uri("jms:jndi:rmi://evil/a", {})[0], NAMES)


@pytest.mark.parametrize(
    ("uri", "given", "destination"),
    [
        ("jms:queue:orders", {}, None),
        ("jms:queue:orders?replyToName=answers", {}, queue("answers")),
        ("jms:queue:orders?replyToName=answers", {"replyToName": "mine"}, queue("mine")),
        ("jms:topic:news?replyToName=answers", {}, queue("answers")),
        ("jms:queue:orders?topicReplyToName=answers", {}, topic("answers")),
        ("jms:queue:orders?topicReplyToName=answers", {"replyToName": "mine"}, queue("mine")),
        ("jms:jndi:jms/orders?replyToName=jms/news", {}, topic("news")),
        ("jms:jndi:jms/orders?topicReplyToName=jms/news", {}, None),
    ],
)
def test_reply_destination(uri: str, given: dict[str, Value], destination: Destination | None) -> None:
    """Protocol-2008, Protocol-2070: `replyToName` wins; `topicReplyToName` means nothing with the variant jndi."""
    parsed, properties = read_uri(uri, given)
    assert reply_destination_of(parsed, properties, NAMES) == destination


class TestReading:
    """`read_uri`."""

    def test_properties(self) -> None:
        """The effective properties come with the URI, each with its origin."""
        parsed, properties = read_uri("jms:queue:a?priority=3&timeToLive=5", {"priority": 4})
        assert parsed.destination == "a"
        assert properties["priority"] == (4, Origin.ENVIRONMENT)
        assert properties["timeToLive"] == (5, Origin.URI)

    @pytest.mark.parametrize("uri", ["", "queue:a", "jms:queue:", "jms::a", "jms:queue:a?=b", "jms:queue:%ZZ"])
    def test_invalid(self, uri: str) -> None:
        """What cannot be read is refused, also when it was parsed before."""
        for given in (uri, parse(uri)):
            with pytest.raises(InvalidUriError):
                read_uri(given, {})

    def test_mode(self) -> None:
        """A parsed URI is held to the mode that it was parsed in."""
        text = "jms:queue:a/b"
        assert read_uri(parse(text), {})[0].destination == "a/b"
        with pytest.raises(InvalidUriError, match="RFC 6167 wants %2F"):
            read_uri(parse(text, Mode.STRICT), {})

    def test_invalid_property(self) -> None:
        """A value that its type does not allow is refused."""
        with pytest.raises(InvalidPropertyError, match="priority is 'high'"):
            read_uri("jms:queue:a", {"priority": "high"})


TEMPORARY = DestinationKind.TEMPORARY_QUEUE


class TestWhereRepliesGo:
    """`reply_refusal`: a JMSReplyTo is anybody's wish."""

    @pytest.mark.parametrize(
        "reply_to",
        [
            queue("answers"),
            queue("orders.answers"),
            queue("mydlq.a"),
            Destination(TEMPORARY, "ID:host-1-2:3:1"),
            Destination(DestinationKind.TEMPORARY_TOPIC, "ID:host-1-2:3:2"),
            Destination(TEMPORARY, None, address="/temp-queue/r-1"),
        ],
    )
    def test_allowed(self, reply_to: Destination) -> None:
        """Any queue and temporary destination but those below."""
        assert reply_refusal(request_message("orders", reply_to)) is None

    @pytest.mark.parametrize(
        ("reply_to", "says"),
        [
            (None, "the message has no JMSReplyTo"),
            (topic("news"), "JMSReplyTo is topic:news; a reply goes to a queue or temporary destination"),
            (queue("orders"), "the destination of the request itself"),
            (queue(""), "a queue without a name"),
            (Destination(TEMPORARY, None), "a temporary-queue without a name"),
            (Destination(DestinationKind.QUEUE, None, address="/queue/a"), "a queue without a name"),
            *(
                (queue(name), "a destination of the broker's own")
                for name in (
                    "ActiveMQ.Advisory.Queue",
                    "activemq.management",
                    "ActiveMQ.DLQ",
                    "DLQ",
                    "dlq.orders",
                    "DLQ::DLQ",
                    "ExpiryQueue",
                    "$sys.mqtt.queue",
                )
            ),
            *(
                (queue(name), "several destinations or a pattern")
                for name in ("a,ActiveMQ.DLQ", "orders.>", "a.*", "topic://news", "a?consumer.exclusive=true")
            ),
        ],
    )
    def test_refused(self, reply_to: Destination | None, says: str) -> None:
        """Topics, the request's own destination, the broker's own, and names that mean more than one destination."""
        assert says in (reply_refusal(request_message("orders", reply_to)) or "")

    def test_request_without_destination(self) -> None:
        """A request that does not say where it came to has no destination to compare with."""
        assert reply_refusal(replace(request_message("orders", queue("orders")), destination=None)) is None
