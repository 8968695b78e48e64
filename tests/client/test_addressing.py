"""What a `jms:` URI means on a connection, and where a reply may go."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from calling_kit import request_message

from brokers import Destination, DestinationKind, queue, topic
from brokers.naming import NameNotFoundError, Names
from soapjms.destinations import ReplyRule, destination_of, reply_destination_of
from soapjms.protocol.errors import InvalidPropertyError, InvalidUriError, UsageError
from soapjms.protocol.properties import Origin
from soapjms.protocol.uri import Mode, parse
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.model import read_uri

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
    with pytest.raises(UsageError, match="the lookup variant must be one of jndi, queue, topic, got 'mail'"):
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
        ("jms:queue:orders?replyToName=", {}, None),
        ("jms:jndi:jms/orders?replyToName=", {}, None),
        ("jms:topic:news?topicReplyToName=", {}, None),
        ("jms:queue:orders?replyToName=answers", {"replyToName": ""}, None),
        ("jms:jndi:jms/orders?topicReplyToName=jms/news", {}, None),
    ],
)
def test_reply_destination(uri: str, given: dict[str, Value], destination: Destination | None) -> None:
    """Protocol-2008, Protocol-2070: `replyToName` wins; `topicReplyToName` means nothing with the variant jndi."""
    parsed, properties = read_uri(uri, given)
    assert reply_destination_of(parsed, properties, NAMES) == destination


@pytest.mark.parametrize(("name", "kind"), [("replyToName", "queue"), ("topicReplyToName", "topic")])
def test_a_uri_is_no_name_of_a_reply_destination(name: str, kind: str) -> None:
    """It would be taken as the name of a queue that nobody has."""
    parsed, properties = read_uri(f"jms:queue:orders?{name}=jms:{kind}:a", {})
    with pytest.raises(UsageError, match=f"^{name} must be the name of a {kind}, such as 'a', not a URI"):
        reply_destination_of(parsed, properties, NAMES)


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
    """`ReplyRule`: a JMSReplyTo is anybody's wish."""

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
        assert ReplyRule().refusal(request_message("orders", reply_to)) is None

    @pytest.mark.parametrize(
        ("reply_to", "says"),
        [
            (None, "the message has no JMSReplyTo"),
            (
                topic("news"),
                "JMSReplyTo is topic:news, a topic that the option reply_topics does not allow; "
                "use reply_topics=True, or a list with that name (`soapjms serve`: --reply-topic NAME)",
            ),
            (queue("orders"), "the destination of the request itself"),
            (queue(""), "a queue without a name"),
            (Destination(TEMPORARY, None), "a temporary-queue without a name"),
            (Destination(DestinationKind.QUEUE, None, address="/queue/a"), "a queue without a name"),
            *(
                (Destination(kind, name, address), "which holds NUL at 3")
                for kind, name, address in (
                    (DestinationKind.QUEUE, "DLQ\0x", None),
                    (TEMPORARY, "DLQ\0x", None),
                    (TEMPORARY, None, "DLQ\0x"),
                )
            ),
            (queue("a\udc80"), "which holds half of a surrogate pair"),
            (queue("a" * 2049), "which has 2049 characters, more than 2048"),
            (Destination(TEMPORARY, "a" * 70_000), "which has 70000 characters, more than 2048"),
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
        assert says in (ReplyRule().refusal(request_message("orders", reply_to)) or "")

    def test_request_without_destination(self) -> None:
        """A request that does not say where it came to has no destination to compare with."""
        message = replace(request_message("orders", queue("orders")), destination=None)
        assert ReplyRule().refusal(message) is None

    @pytest.mark.parametrize(
        ("reply_to", "says"),
        [
            (topic("news"), None),
            (topic("prices"), "JMSReplyTo is topic:prices, a topic that the option reply_topics does not allow"),
            (topic("orders"), "the destination of the request itself"),
            (queue("answers"), None),
            (queue("others"), "JMSReplyTo is queue:others, a queue that the option reply_queues does not allow"),
            (Destination(TEMPORARY, "ID:host-1-2:3:1"), None),
        ],
    )
    def test_those_that_are_meant(self, reply_to: Destination, says: str | None) -> None:
        """Where names are given, only these; temporary destinations are allowed whatever is given."""
        refusal = ReplyRule.of(["answers"], {"news"}).refusal(request_message("orders", reply_to))
        assert (says or "") in (refusal or "")
        assert (refusal is None) is (says is None)

    def test_any_topic_but_the_broker_s_own(self) -> None:
        """True allows any topic, but none that the broker speaks on, and no pattern."""
        rule = ReplyRule.of(queues=False, topics=True)
        said = [
            rule.refusal(request_message("orders", each))
            for each in (topic("news"), topic("ActiveMQ.Advisory.Queue"), topic("news.>"), queue("answers"))
        ]
        assert said[0] is None
        assert "the broker's own" in str(said[1])
        assert "pattern" in str(said[2])
        assert "reply_queues" in str(said[3])

    def test_what_a_peer_wrote_is_shown_on_one_line(self) -> None:
        """A reason is a line of a log, and a property of a dead letter."""
        for reply_to in (topic("news\nERROR all is lost"), queue("dlq.\r\n" + "x" * 1000)):
            said = ReplyRule().refusal(request_message("orders", reply_to))
            assert said is not None
            assert said.isprintable()
            assert len(said) < 500

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ("news", "reply_topics must be True for any, False for none, or a list of names, got 'news'"),
            (1, "or a list of names, got 1"),
            ([queue("a")], "or a list of names"),
            (["news", ""], "reply_topics allows '', which is not a name; leave it out"),
            (["ActiveMQ.Advisory.Queue"], "a destination of the broker's own; leave it out"),
            (["news.>"], "several destinations or a pattern; leave it out"),
            (["jms:topic:news"], "each of reply_topics must be the name of a topic, such as 'news', not a URI"),
        ],
    )
    def test_a_rule_that_cannot_be(self, given: Any, says: str) -> None:
        """Names come as a list, and none that is never allowed."""
        with pytest.raises(UsageError, match=re.escape(says)):
            ReplyRule.of(queues=True, topics=given)
