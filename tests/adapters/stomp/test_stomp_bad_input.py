"""What cannot be: an error that names the cause, or the value intact at the other side; on each real broker."""

from __future__ import annotations

import logging
import socket
import traceback

import pytest
from real_brokers import RealBroker
from stomp_kit import PATIENCE, Inbox, OnBoth, accepting, assert_no_threads, message_to, send

import brokers
from brokers import (
    BrokerError,
    ConnectionFailedError,
    ConnectionLostError,
    DeliveryMode,
    LoginRefusedError,
    SendFailedError,
    properties,
    queue,
)
from brokers.stomp import Credentials, StompConnection
from brokers.stomp.connection import LARGE_MESSAGE_OCTETS
from brokers.stomp.frames import MAX_REASON_CHARACTERS

NAMES = ["a:b", "a\nb", "a\\b", " a ", "ä🙂", "a\tb", "content_length", "x" * 200]
VALUES = [
    "a:b::c",
    "a\nb\n",
    "\\n\\c\\\\",
    " a ",
    "Grüße 東京 🙂",
    "a\rb",
    "a\r\nb\r",
    "\x01\x1f\x7f",
    "\u2028",
    "x" * 9000,
]


def limited(broker: RealBroker) -> StompConnection:
    """Connect as a user who may touch `limited.` and nothing else."""
    found = brokers.connect(
        f"stomp://{broker.host}:{broker.ports.stomp}", timeout=PATIENCE, credentials=Credentials("limited", "limited")
    )
    assert isinstance(found, StompConnection)
    return found


def test_no_such_host() -> None:
    """The error names the host and says what is wrong with it."""
    with pytest.raises(ConnectionFailedError, match=r"no\.such\.host\.invalid.*no host of that name"):
        brokers.connect("stomp://user:tops3cret@no.such.host.invalid:61613", timeout=PATIENCE)
    assert_no_threads()


@pytest.mark.broker
class TestBadInput(OnBoth):
    """All of it."""

    def test_wrong_password(self, broker: RealBroker, caplog: pytest.LogCaptureFixture) -> None:
        """Refused, with the broker's words; the password is in no error, traceback or log, whatever the level."""
        caplog.set_level(logging.DEBUG)
        url = broker.stomp_url.replace(":admin@", ":tops3cret@")
        with pytest.raises(LoginRefusedError, match="password is invalid") as caught:
            brokers.connect(url, timeout=PATIENCE)
        assert "tops3cret" not in "".join(traceback.format_exception(caught.value))
        assert "tops3cret" not in caplog.text
        assert_no_threads()

    def test_nobody_logs_in_without_a_name(self, broker: RealBroker) -> None:
        """Neither broker lets in who says no name; the error is that of a wrong password."""
        with pytest.raises(LoginRefusedError):
            brokers.connect(f"stomp://{broker.host}:{broker.ports.stomp}", timeout=PATIENCE)

    @pytest.mark.parametrize("is_new", [True, False])
    def test_destination_that_is_refused(
        self, broker: RealBroker, connection: StompConnection, name: str, is_new: bool
    ) -> None:
        """To send to or to consume from: a typed error with the destination; the connection goes on."""
        forbidden = queue(f"forbidden.{name}")
        allowed = f"limited.{name}"
        if not is_new:
            send(connection, message_to(forbidden, b"there"))
        with limited(broker) as other:
            with pytest.raises(SendFailedError, match=r"limited|log says why"):
                send(other, message_to(forbidden))
            large = message_to(forbidden, b"x" * LARGE_MESSAGE_OCTETS, delivery_mode=DeliveryMode.NON_PERSISTENT)
            with pytest.raises(SendFailedError, match=r"limited|log says why"):  # a small one would only be logged
                send(other, large)
            with pytest.raises(BrokerError, match="cannot consume from"):
                other.consume(forbidden, Inbox())
            inbox = accepting()
            other.consume(queue(allowed), inbox)
            send(other, message_to(queue(allowed), b"allowed"))
            assert inbox.next().message.body == b"allowed"
            assert other.generation == 1

    @pytest.mark.parametrize("is_new", [True, False])
    def test_commit_with_a_destination_that_is_refused(
        self, broker: RealBroker, connection: StompConnection, name: str, is_new: bool
    ) -> None:
        """The refused send is told; everything else of the transaction is done, once."""
        forbidden = queue(f"forbidden.{name}")
        allowed = f"limited.{name}"
        if not is_new:
            send(connection, message_to(forbidden, b"there"))
        requests, answers = Inbox(), accepting()
        with limited(broker) as other:
            consumer = other.consume(queue(allowed), requests)
            connection.consume(queue(f"{allowed}.answers"), answers)
            send(connection, message_to(queue(allowed), b"request"))
            transaction = other.begin()
            transaction.send(message_to(queue(f"{allowed}.answers"), b"before"))
            transaction.send(message_to(forbidden, b"refused"))
            transaction.send(message_to(queue(f"{allowed}.answers"), b"after"))
            transaction.accept(requests.next())
            (refused,) = transaction.commit().result(PATIENCE)
            assert (refused.position, refused.message.body) == (1, b"refused")
            assert isinstance(refused.error, SendFailedError)
            assert [answers.next().message.body for _ in range(2)] == [b"before", b"after"]
            consumer.close()
            assert other.generation == 1
            send(connection, message_to(queue(allowed), b"marker"), message_to(queue(f"{allowed}.answers"), b"marker"))
            assert answers.next().message.body == b"marker"
            other.consume(queue(allowed), requests)
            assert requests.next().message.body == b"marker"

    def test_frame_above_the_limit(self, broker: RealBroker, connection: StompConnection, name: str) -> None:
        """Whoever sent it learns why, in a line; the next one is carried, over a new session if need be.

        ActiveMQ Classic has limits for a frame and its headers, and ends the connection; Artemis has one for headers.
        """
        frames = {
            "ActiveMQ": [{"body": b"x" * (17 << 20)}, {"properties": properties({"long": "x" * (1 << 20)})}],
            "Artemis": [{"properties": properties({"long": "x" * (2 << 20)})}],
        }
        for frame in frames[broker.recipe.title]:
            future = connection.send(message_to(queue(name), delivery_mode=DeliveryMode.PERSISTENT, **frame))
            error = future.exception(PATIENCE)
            assert isinstance(error, SendFailedError | ConnectionLostError)
            assert "maximum" in str(error) or "log says why" in str(error)
            assert len(str(error)) < MAX_REASON_CHARACTERS + 200
            connection.wait_connected(PATIENCE)
        inbox = accepting()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name), b"next"))
        assert inbox.next().message.body == b"next"

    def test_names_and_values_arrive_intact(self, connection: StompConnection, other: StompConnection) -> None:
        """Colons, line ends, backslashes, blanks, control characters, Unicode: in names, values and headers."""
        for number, name in enumerate(NAMES):
            sent = {name: VALUES[number % len(VALUES)], "other": VALUES[-1 - number % len(VALUES)]}
            destination = queue(f"intact.{number}: ä\\n🙂")
            inbox = accepting()
            with other.consume(destination, inbox):
                send(
                    connection,
                    message_to(
                        destination,
                        correlation_id=f"id: {VALUES[number % len(VALUES)]}",
                        type=name,
                        properties=properties(sent),
                    ),
                )
                got = inbox.next().message
            assert {each.name: each.value for each in got.properties} == sent
            assert (got.correlation_id, got.type) == (f"id: {VALUES[number % len(VALUES)]}", name)
            assert got.destination == destination

    @pytest.mark.parametrize(
        ("more", "complaint"),
        [
            ({"properties": properties({"a\0b": "x"})}, "NUL"),
            ({"properties": properties({"a": "x\0"})}, "NUL"),
            ({"properties": properties({"a": "\ud800"})}, "surrogates"),
            ({"correlation_id": "x\0"}, "NUL"),
            ({"type": "\udfff"}, "surrogates"),
            ({"body": "a\0b"}, "NUL"),
            ({"properties": properties({"destination": "elsewhere"})}, "'destination'"),
        ],
    )
    def test_what_no_frame_can_carry_is_refused(
        self, connection: StompConnection, name: str, more: dict[str, object], complaint: str
    ) -> None:
        """At once, in the caller's own call, and nothing is sent."""
        with pytest.raises(ValueError, match=complaint):
            connection.send(message_to(queue(name), **more))
        with pytest.raises(ValueError, match=complaint):
            connection.begin().send(message_to(queue(name), **more))
        send(connection, message_to(queue(name)))

    def test_selector_that_cannot_be_read(self, connection: StompConnection, name: str) -> None:
        """An error at once, though Artemis does not say which frame it is about; the connection goes on."""
        held = accepting()
        connection.consume(queue(name), held)
        with pytest.raises(BrokerError, match="cannot consume"):
            connection.consume(queue(name), Inbox(), selector="a = = b")
        send(connection, message_to(queue(name)))
        held.next()
        assert connection.generation == 1


def test_host_is_asked_once_in_time() -> None:
    """A server that accepts and says nothing does not hold anybody for longer than was said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for scheme in ("stomp", "stomp+ssl"):
            with pytest.raises(ConnectionFailedError):
                brokers.connect(f"{scheme}://127.0.0.1:{server.getsockname()[1]}", timeout=0.3)
    assert_no_threads()
