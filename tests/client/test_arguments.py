"""Wrong arguments of clients and dispatchers: refused early, with what would be right."""

from __future__ import annotations

import asyncio
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from calling_kit import (
    GREETER,
    PATIENCE,
    URI,
    OnEachBroker,
    Peers,
    envelope,
    greeter,
    take_one,
)
from lxml import etree

import soapjms
from brokers import (
    BrokerError,
    ClosedError,
    Connection,
    ConnectionState,
    MessageType,
    queue,
)
from brokers.amqp.dialect import AmqpDialectName
from brokers.amqp.url import AmqpKeywords
from brokers.embedded import Broker, BrokerOptions
from brokers.schemes import SCHEMES, ConnectArguments, DialectName
from brokers.stomp.dialect import StompDialectName
from soapjms import AsyncClient, AsyncDispatcher, Client, Dispatcher, Service, UsageError
from soapjms.client.async_client import AsyncClientArguments
from soapjms.client.client import ClientArguments, PlainClientArguments
from soapjms.protocol import names
from soapjms.protocol.uri import parse
from soapjms.service.dispatcher import DispatcherArguments
from soapjms.zeep import JmsTransport
from soapjms.zeep.client import TransportArguments
from soapjms.zeep.clients import ClientEndpoints, EndpointArguments


class TestClient(Peers):
    """What is wrong is refused early, and says what would be right."""

    @pytest.mark.parametrize(
        ("uri", "error", "says"),
        [
            ("http://greeter", soapjms.InvalidUriError, "begins with jms:"),
            ("jms:queue", soapjms.InvalidUriError, "jms:variant:destination"),
            ("jms:queue:", soapjms.InvalidUriError, "the destination is empty"),
            ("jms:mail:greeter", UsageError, "must be one of jndi, queue, topic, got 'mail'"),
            (URI + "?timeToLive=soon", soapjms.InvalidPropertyError, "timeToLive is 'soon' in URI; accepted is milli"),
            (URI + "?priority=11", soapjms.InvalidPropertyError, "an integer from 0 to 9"),
            (parse("jms:queue:"), soapjms.InvalidUriError, "the destination is empty"),
            (None, soapjms.InvalidUriError, "uri must be a jms: URI .*, got NoneType"),
            (URI.encode(), soapjms.InvalidUriError, "uri must be a jms: URI .*, got bytes"),
        ],
    )
    def test_uri(self, connection: Connection, uri: Any, error: type[Exception], says: str) -> None:
        """A URI that cannot be used."""
        with pytest.raises(error, match=says):
            Client(connection, uri)

    def test_parsed_uri(self, connection: Connection) -> None:
        """A URI may be parsed already."""
        with Client(connection, parse(URI)) as client:
            assert client.endpoint.request_uri == URI

    @pytest.mark.parametrize(
        ("properties", "says"),
        [
            ({"colour": "red"}, "unknown binding property 'colour' in environment; known are: lookupVariant"),
            ({"deliveryMode": "FAST"}, "accepted is PERSISTENT or NON_PERSISTENT"),
            ({"isFault": True}, "isFault is set in environment; it may be set in: nowhere"),
        ],
    )
    def test_properties(self, connection: Connection, properties: dict[str, Any], says: str) -> None:
        """A property that there is not, or with a value that it cannot have."""
        with pytest.raises(soapjms.InvalidPropertyError, match=says):
            Client(connection, URI, properties=properties)

    @pytest.mark.parametrize(
        ("option", "value", "says"),
        [
            ("recorder", "calls.jsonl", r"recorder must be a soapjms\.Recorder, such as .*, or None, got a str"),
            ("names", "jndi.properties", r"names must be a soapjms\.Names, such as .*, or None, got a str"),
            ("limits", 5, r"limits must be a soapjms\.Limits, such as .*, got an int"),
            ("limits", None, r"limits must be a soapjms\.Limits, such as .*, got a NoneType"),
            ("properties", 5, "properties must be a mapping of binding properties by name, .*, got an int"),
            ("properties", [("priority", 4)], "properties must be a mapping .*, got a list"),
            ("properties", None, "properties must be a mapping .*, got a NoneType"),
        ],
    )
    def test_options_of_all_nodes(self, connection: Connection, option: str, value: Any, says: str) -> None:
        """They are refused when the node is made, whichever it is."""
        makers: list[Any] = [Client, AsyncClient, lambda *given, **options: Dispatcher(*given, greeter(), **options)]
        for make in (*makers, lambda _, __, **options: JmsTransport(connection, **options)):
            with pytest.raises(UsageError, match=says):
                make(connection, URI, **{option: value})

    @pytest.mark.parametrize("wrong", ["no", 1, None])
    def test_addressing(self, connection: Connection, wrong: Any) -> None:
        """It is on or off; nothing else counts as on."""
        for make in (Client, AsyncClient, lambda *_, **options: JmsTransport(connection, **options)):
            with pytest.raises(UsageError, match="addressing must be True or False, got"):
                make(connection, URI, addressing=wrong)

    @pytest.mark.parametrize("wrong", [etree.Comment("x"), etree.ProcessingInstruction("x"), etree.Entity("x")])
    def test_what_is_no_element(self, client: Client, broker: Broker, wrong: Any) -> None:
        """A comment is no content of an envelope."""
        for way in (client.call, client.submit, client.send):
            with pytest.raises(UsageError, match="body and headers must be lxml elements, got _"):
                way(wrong)
        assert broker.depth(GREETER) == 0

    @pytest.mark.parametrize("wrong", [0, {}, b"x"])
    def test_no_attachments(self, client: Client, broker: Broker, wrong: Any) -> None:
        """They are a list, be it an empty one."""
        for way in (client.call, client.submit, client.send):
            with pytest.raises(UsageError, match=r"attachments must be a list of soapjms\.Attachment, got"):
                way(envelope(), attachments=wrong)
        assert broker.depth(GREETER) == 0
        nothing: Any = None
        for none in (nothing, [], ()):
            client.send(envelope(), attachments=none)
        assert broker.depth(GREETER) == 3

    @pytest.mark.parametrize("deadline", ["3", float("nan"), float("inf"), -float("inf"), 1e300, None, True])
    def test_deadline(self, broker: Broker, client: Client, deadline: Any) -> None:
        """That of `close` is a number of seconds; with another one nothing is closed."""
        connection = broker.connect()
        for each in (client, JmsTransport(connection), Dispatcher(connection, URI, soapjms.Service()), connection):
            with pytest.raises(UsageError, match="deadline must be a finite number of seconds, got"):
                each.close(deadline)
        with pytest.raises(UsageError, match="deadline must be a finite number of seconds, got"):
            asyncio.run(AsyncDispatcher(connection, URI, soapjms.Service()).aclose(deadline))
        assert connection.state is ConnectionState.CONNECTED
        client.send(envelope())

    @pytest.mark.parametrize("deadline", [0, -0.001, -3])
    def test_deadline_that_has_passed(self, broker: Broker, client: Client, deadline: float) -> None:
        """A deadline that has passed already closes at once."""
        connection = broker.connect()
        assert Dispatcher(connection, URI, soapjms.Service()).start().close(deadline)
        for each in (client, JmsTransport(connection), connection):
            each.close(deadline)
        assert connection.state is ConnectionState.CLOSED
        with pytest.raises(UsageError, match="closed"):
            client.send(envelope())

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300, "3", None, True])
    def test_timeout(self, connection: Connection, client: Client, timeout: Any) -> None:
        """A time-out is positive and finite."""
        with pytest.raises(UsageError, match="must be a positive, finite number of seconds, got"):
            Client(connection, URI, timeout=timeout)
        if timeout is not None:
            for function in (client.call, client.submit):
                with pytest.raises(UsageError, match="positive, finite"):
                    function(envelope(), timeout=timeout)

    @pytest.mark.parametrize("message_type", [MessageType.MAP, "object", None])
    def test_message_type(self, connection: Connection, message_type: Any) -> None:
        """A request is a BytesMessage or a TextMessage."""
        with pytest.raises(UsageError, match=r"message_type must be 'bytes' or 'text'"):
            Client(connection, URI, message_type=message_type)

    def test_message_type_by_name(self, connection: Connection, other: Connection) -> None:
        """A message type may be given by its name."""
        kind: Any = "text"
        with Client(connection, URI, message_type=kind) as client:
            client.send(envelope())
        assert take_one(other, GREETER).body == envelope().decode()

    def test_profile(self, connection: Connection) -> None:
        """A profile may be given by its name; another name is refused with those there are."""
        with Client(connection, URI, profile="cr-2009") as client:
            assert client.endpoint.profile is names.CR_2009
        with pytest.raises(
            UsageError, match=r"profile must be a Profile, 'auto' or one of cr-2009, rec-2012, .*got 'cr-2008'"
        ):
            Client(connection, URI, profile="cr-2008")

    def test_a_uri_shows_no_edition(self, connection: Connection) -> None:
        """ "auto" is for ports of WSDLs; nothing is chosen in silence."""
        for make in (Client, lambda *given, **options: Dispatcher(*given, greeter(), **options)):
            with pytest.raises(
                UsageError,
                match=r"profile must be one of cr-2009, rec-2012, .*got 'auto', which only the port of a WSDL",
            ):
                make(connection, URI, profile="auto")

    @pytest.mark.parametrize("profile", [names.REC_2012, names.CR_2009])
    def test_no_envelope(self, connection: Connection, broker: Broker, profile: soapjms.Profile) -> None:
        """What is no envelope is not sent, and leaves nothing under way."""
        with Client(connection, URI, profile=profile) as client:
            for function in (client.call, client.submit):
                with pytest.raises(soapjms.InvalidEnvelopeError):
                    function(b"<greetMe/>")
            assert client.under_way == 0
        assert broker.depth(GREETER) == 0

    @pytest.mark.parametrize("made", [None, 5, bytearray(envelope()), ElementTree.fromstring(envelope())])
    def test_no_envelope_at_all(self, client: Client, made: Any) -> None:
        """What is neither text nor an element of lxml is refused with what is accepted; nothing is under way then."""
        for function in (client.call, client.submit, client.send):
            with pytest.raises(soapjms.InvalidEnvelopeError, match="must be bytes, str or an lxml element"):
                function(made)
        assert client.under_way == 0

    @pytest.mark.parametrize("action", [5, b"urn:greeter:greetMe", True])
    def test_soap_action(self, client: Client, action: Any) -> None:
        """A SOAP action is text."""
        for function in (client.call, client.submit, client.send):
            with pytest.raises(
                UsageError, match=r"soap_action must be a string, or None to use the properties' value, got "
            ):
                function(envelope(), soap_action=action)
        assert client.under_way == 0

    @pytest.mark.parametrize(
        ("action", "says"), [("a\0b", "NUL at 1"), ("urn:\udc80", "half of a surrogate pair.* at 4")]
    )
    def test_soap_action_that_no_message_carries(self, client: Client, broker: Broker, action: str, says: str) -> None:
        """It is refused on every broker alike, and nothing is sent."""
        for function in (client.call, client.submit, client.send):
            with pytest.raises(UsageError, match=f"soap_action is .*holds {says}"):
                function(envelope(), soap_action=action)
        assert client.under_way == 0
        assert broker.depth(GREETER) == 0

    @pytest.mark.parametrize(
        ("uri", "properties", "says"),
        [
            (URI, {"soapAction": "a\0b"}, "soapAction holds NUL at 1 in environment; accepted is any string without"),
            (URI, {"targetService": "\ud800"}, "targetService holds half of a surrogate pair"),
            (URI, {"replyToName": "answers\0"}, "replyToName holds NUL at 7"),
            (URI + "?targetService=a%00", {}, "targetService holds NUL at 1 in URI"),
            (URI + "?topicReplyToName=a%00", {}, "topicReplyToName holds NUL at 1 in URI"),
            ("jms:queue:a%00b", {}, "destinationName holds NUL at 1 in URI"),
        ],
    )
    def test_text_that_no_message_carries(
        self, connection: Connection, uri: str, properties: dict[str, Any], says: str
    ) -> None:
        """A property that would be a header or a property of the message is refused early, and named."""
        with pytest.raises(soapjms.InvalidPropertyError, match=says):
            Client(connection, uri, properties=properties)

    @pytest.mark.parametrize("uri", ["jms:jndi:Orders", "jms:jndi:Good?replyToName=Orders"])
    def test_registered_name_that_no_message_carries(self, connection: Connection, uri: str) -> None:
        """So is the name of a destination that JNDI names lead to."""
        known = soapjms.Names({"Orders": queue("a\0b"), "Good": queue("good")})
        with pytest.raises(UsageError, match=r"Orders is 'a\\x00b', which holds NUL at 1"):
            Client(connection, uri, names=known)

    @pytest.mark.parametrize("connection", ["stomp://clerk:s3cr3t@localhost", None, greeter()])
    def test_connection(self, connection: Any) -> None:
        """A connection is an open one; what was given is not repeated, as a URL may hold a password."""
        for make in (lambda: Client(connection, URI), lambda: Dispatcher(connection, URI, greeter())):
            with pytest.raises(UsageError, match=r"connection must be what soapjms\.connect\(URL\) returns") as caught:
                make()
            assert "s3cr3t" not in str(caught.value)

    def test_closed_connection(self, broker: Broker) -> None:
        """A client of a closed connection cannot be made."""
        connection = broker.connect()
        connection.close()
        with pytest.raises(ClosedError):
            Client(connection, URI)


class TestAwkwardText(OnEachBroker):
    """What every message carries, on each broker."""

    @pytest.mark.parametrize("action", ["urn:a:b\\c\nd\te\r\nf", "Grüße 東京 🙂", " x "])
    def test_soap_action_arrives(self, connection: Connection, other: Connection, uri: str, action: str) -> None:
        """Colons, line ends, backslashes and Unicode are what they were at the service."""
        service, seen = Service(), list[str | None]()

        @service.operation("{urn:greeter}greetMe")
        def greet(request: soapjms.Request) -> Any:
            seen.append(request.soap_action)
            return request.element

        with Dispatcher(other, uri, service), Client(connection, uri, timeout=PATIENCE) as client:
            client.call(envelope(), soap_action=action)
        assert seen == [action]


class TestDispatcher(Peers):
    """What is wrong is refused before anything is subscribed."""

    @pytest.mark.parametrize("workers", [0, -1, 2.5, "3", True, None])
    def test_workers(self, other: Connection, workers: Any) -> None:
        """At least one worker."""
        with pytest.raises(UsageError, match="must be a whole number of at least 1, got "):
            Dispatcher(other, URI, greeter(), workers=workers)

    @pytest.mark.parametrize("option", ["strict", "transactional"])
    @pytest.mark.parametrize("wrong", ["no", 0, None])
    def test_switches(self, other: Connection, option: str, wrong: Any) -> None:
        """They are on or off; nothing else counts as either."""
        with pytest.raises(UsageError, match=f"{option} must be True or False, got {wrong!r}"):
            Dispatcher(other, URI, greeter(), **{option: wrong})

    @pytest.mark.parametrize("service", [None, lambda request: None, Service, {}])
    def test_service(self, other: Connection, service: Any) -> None:
        """What answers requests is a Service; a function is registered with one."""
        with pytest.raises(UsageError, match=r"must be a soapjms\.Service, whose functions @service\.operation"):
            Dispatcher(other, URI, service)

    def test_others(self, other: Connection) -> None:
        """URI, properties, names and profile."""
        cases: tuple[tuple[Any, dict[str, Any], str], ...] = (
            (None, {}, "uri must be a jms: URI as text"),
            ("jms:queue:", {}, "the destination is empty"),
            ("jms:mail:a", {}, "must be one of jndi, queue, topic, got 'mail'"),
            ("jms:jndi:a", {}, "no destination is registered"),
            (URI, {"properties": {"colour": "red"}}, "unknown binding property"),
            (URI, {"profile": "cr-2008"}, "profile must be a Profile"),
            (URI, {"dead_letters": "a\0"}, "dead_letters is .* holds NUL at 1"),
            (URI, {"reply_queues": ["a", "\udfff"]}, "reply_queues is .* half of a surrogate pair"),
        )
        for given, options, says in cases:
            with pytest.raises((UsageError, BrokerError), match=says):
                Dispatcher(other, given, greeter(), **options)


def names_and_types(kind: type[Any]) -> dict[str, Any]:
    """List the options of a TypedDict."""
    return {name: getattr(each, "__forward_arg__", each) for name, each in kind.__annotations__.items()}


@pytest.mark.parametrize(
    ("function", "options", "passed_on"),
    [
        (Client, PlainClientArguments, None),
        (AsyncClient, AsyncClientArguments, ClientArguments),
        (ClientEndpoints, EndpointArguments, None),
        (JmsTransport, TransportArguments, EndpointArguments),
        (Dispatcher, DispatcherArguments, None),
    ],
)
def test_the_options_that_are_passed_on(function: Any, options: type[Any], passed_on: type[Any] | None) -> None:
    """Classes that take the options of others name all of them, with their types."""
    own = {
        name: each.annotation
        for name, each in signature(function).parameters.items()
        if each.kind is Parameter.KEYWORD_ONLY
    }
    assert names_and_types(options) == own | ({} if passed_on is None else names_and_types(passed_on))


def test_the_options_of_adapters() -> None:
    """`connect` takes the options that an adapter has, and no others."""
    known = {"timeout"}
    for module in set(SCHEMES.values()) - {"brokers.adapter.failover"}:
        known |= {
            name
            for name, each in signature(import_module(module).connect).parameters.items()
            if each.kind is Parameter.KEYWORD_ONLY
        }
    known |= names_and_types(AmqpKeywords).keys() | names_and_types(BrokerOptions).keys()
    assert names_and_types(ConnectArguments).keys() == known - {"timeout"}


def test_all_dialects() -> None:
    """The words of `dialect` are those of all adapters."""
    assert set(get_args(DialectName)) == {*get_args(AmqpDialectName), *get_args(StompDialectName)}
