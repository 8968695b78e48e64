"""Wrong arguments of clients and dispatchers: refused early, with what would be right."""

from __future__ import annotations

from typing import Any

import pytest
from calling_kit import (
    GREETER,
    URI,
    Peers,
    envelope,
    greeter,
    take_one,
)

import soapjms
from brokers import (
    BrokerError,
    ClosedError,
    Connection,
    MessageType,
)
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, UsageError
from soapjms.protocol import names
from soapjms.protocol.uri import parse


class TestClient(Peers):
    """What is wrong is refused early, and says what would be right."""

    @pytest.mark.parametrize(
        ("uri", "error", "says"),
        [
            ("http://greeter", soapjms.InvalidUriError, "begins with jms:"),
            ("jms:queue", soapjms.InvalidUriError, "jms:variant:destination"),
            ("jms:queue:", soapjms.InvalidUriError, "the destination is empty"),
            ("jms:mail:greeter", UsageError, "'mail' is none of: jndi, queue, topic"),
            (URI + "?timeToLive=soon", soapjms.InvalidPropertyError, "timeToLive is 'soon' in URI; accepted is milli"),
            (URI + "?priority=11", soapjms.InvalidPropertyError, "an integer from 0 to 9"),
            (parse("jms:queue:"), soapjms.InvalidUriError, "the destination is empty"),
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

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300, "3", None, True])
    def test_timeout(self, connection: Connection, client: Client, timeout: Any) -> None:
        """A time-out is positive and finite."""
        with pytest.raises(UsageError, match="a call waits for a positive, finite number of seconds"):
            Client(connection, URI, timeout=timeout)
        if timeout is not None:
            for function in (client.call, client.submit):
                with pytest.raises(UsageError, match="positive, finite"):
                    function(envelope(), timeout=timeout)

    @pytest.mark.parametrize("message_type", [MessageType.MAP, "object", None])
    def test_message_type(self, connection: Connection, message_type: Any) -> None:
        """A request is a BytesMessage or a TextMessage."""
        with pytest.raises(UsageError, match=r"a request is MessageType\.BYTES or MessageType\.TEXT"):
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
        with pytest.raises(UsageError, match="profile is 'cr-2008'; it is a Profile or its name: cr-2009, rec-2012"):
            Client(connection, URI, profile="cr-2008")

    @pytest.mark.parametrize("profile", [names.REC_2012, names.CR_2009])
    def test_no_envelope(self, connection: Connection, broker: Broker, profile: soapjms.Profile) -> None:
        """What is no envelope is not sent, and leaves nothing under way."""
        with Client(connection, URI, profile=profile) as client:
            for function in (client.call, client.submit):
                with pytest.raises(soapjms.InvalidEnvelopeError):
                    function(b"<greetMe/>")
            assert client.under_way == 0
        assert broker.depth(GREETER) == 0

    def test_closed_connection(self, broker: Broker) -> None:
        """A client of a closed connection cannot be made."""
        connection = broker.connect()
        connection.close()
        with pytest.raises(ClosedError):
            Client(connection, URI)


class TestDispatcher(Peers):
    """What is wrong is refused before anything is subscribed."""

    @pytest.mark.parametrize("workers", [0, -1, 2.5, "3", True, None])
    def test_workers(self, other: Connection, workers: Any) -> None:
        """At least one worker."""
        with pytest.raises(UsageError, match="it is an integer, at least 1"):
            Dispatcher(other, URI, greeter(), workers=workers)

    def test_others(self, other: Connection) -> None:
        """URI, properties, names and profile."""
        for given, options, says in (
            ("jms:queue:", {}, "the destination is empty"),
            ("jms:mail:a", {}, "none of: jndi, queue, topic"),
            ("jms:jndi:a", {}, "no destination is registered"),
            (URI, {"properties": {"colour": "red"}}, "unknown binding property"),
            (URI, {"profile": "cr-2008"}, "it is a Profile or its name"),
        ):
            with pytest.raises((UsageError, BrokerError), match=says):
                Dispatcher(other, given, greeter(), **options)
