"""brokers.stomp: frames without a broker, and what the adapter leans on of a real ActiveMQ Classic."""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from real_brokers import ActiveMQ, RealActiveMQ
from stomp.utils import parse_frame

import brokers
from brokers import (
    BrokerError,
    ClosedError,
    ConnectionFailedError,
    ConnectionLostError,
    ConnectionState,
    Delivery,
    DeliveryMode,
    Destination,
    DestinationGoneError,
    DestinationKind,
    Message,
    MessageType,
    Property,
    PropertyType,
    SendFailedError,
    StaleDestinationError,
    UnsupportedError,
    properties,
    queue,
    topic,
)
from brokers.stomp import StompConnection, login_of
from brokers.stomp.dialect import dialect_of
from brokers.stomp.frames import RESERVED, from_frame, parse_destination, refusal, spell, to_frame
from brokers.stomp.link import pack

PATIENCE = 20.0

# ---------------------------------------------------------------------------------------------------------- frames

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NAMES = TEXTS.filter(lambda name: name and name not in RESERVED)
DESTINATIONS = st.one_of(
    st.builds(Destination, st.sampled_from(DestinationKind), TEXTS.filter(lambda name: name != "")),
    st.builds(
        lambda name: Destination(DestinationKind.TEMPORARY_QUEUE, None, address=f"/temp-queue/{name}"),
        TEXTS,
    ),
)
MESSAGES = st.builds(
    lambda content, names, **headers: Message(
        message_type=content[0],
        body=content[1],
        properties=properties(Property(name, PropertyType.STRING, value) for name, value in names.items()),
        redelivered=False,
        untyped=True,
        **headers,
    ),
    st.one_of(
        st.tuples(st.just(MessageType.BYTES), st.binary()),
        st.tuples(st.just(MessageType.TEXT), TEXTS.filter(lambda body: body != "")),
    ),
    st.dictionaries(NAMES, TEXTS),
    destination=DESTINATIONS,
    reply_to=st.none() | DESTINATIONS,
    correlation_id=st.none() | TEXTS,
    type=st.none() | TEXTS,
    delivery_mode=st.sampled_from(DeliveryMode),
    priority=st.none() | st.integers(0, 9),
    expiration=st.none() | st.integers(0, 2**63 - 1),
)


@given(MESSAGES)
def test_message_survives_both_ways(message: Message) -> None:
    """What to_frame writes, from_frame reads, through the very octets of the wire."""
    headers, body = to_frame(message)
    frame = parse_frame(pack("SEND", headers, body).removesuffix(b"\0"))
    assert frame.headers == headers
    arrived = from_frame(frame.headers, frame.body)
    assert replace(arrived, properties=message.properties) == message
    assert sorted(arrived.properties) == sorted(message.properties)  # stomp.py sorts headers
    assert pickle.loads(pickle.dumps(message)) == message


@given(st.dictionaries(TEXTS.filter(bool), TEXTS))
@example({"a:b\\c": "x:\\n\r\n\\c", " lead": "  trail  "})
def test_headers_are_escaped_both_ways(headers: dict[str, str]) -> None:
    """Colon, backslash, line feed and carriage return, in names as in values; blanks stay where they are."""
    octets = pack("SEND", headers)
    assert octets.count(b"\n") == len(headers) + 2
    assert b"\r" not in octets
    assert parse_frame(octets.removesuffix(b"\0")).headers == headers


@given(st.dictionaries(TEXTS.filter(bool), TEXTS), st.binary())
def test_any_frame_makes_a_message(headers: dict[str, str], body: bytes) -> None:
    """A peer may send what it likes: from_frame never raises."""
    assert from_frame(headers, body).untyped


@pytest.mark.parametrize("name", ["priority", "expires", "timestamp"])
@pytest.mark.parametrize("value", ["", "high", "-", "٣", "1e9", "9" * 400])
def test_number_that_is_none_is_dropped(name: str, value: str) -> None:
    """A JMS client may set a property called `priority`; it then stands where the number was."""
    message = from_frame({"destination": "/queue/q", name: value}, b"x")
    assert (message.priority, message.expiration, message.timestamp) == (None, None, None)


@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
def test_text_that_no_header_can_carry_is_refused(bad: str) -> None:
    """NUL would end the frame; a lone surrogate would become a question mark."""
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        pack("SEND", {"name": bad})
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        pack("SEND", {bad: "value"})


def message_to(destination: Destination | None, body: bytes | str = b"<m/>", **more: Any) -> Message:
    """Make a BytesMessage or a TextMessage."""
    kind = MessageType.BYTES if isinstance(body, bytes) else MessageType.TEXT
    return Message(message_type=kind, body=body, destination=destination, **more)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (message_to(None), "no destination"),
        (message_to(Destination(DestinationKind.QUEUE, "")), "no name"),
        (message_to(queue("q"), "a\0b"), "NUL"),
        (message_to(queue("q"), properties=properties({"priority": 5})), "'priority'"),
        (message_to(queue("q"), properties=properties({"receipt": "r"})), "'receipt'"),
        (message_to(queue("q"), properties=properties({"": "r"})), "''"),
        (Message(message_type=MessageType.BYTES, body="text", destination=queue("q")), "str"),
        (Message(message_type=MessageType.TEXT, body=None, destination=queue("q")), "NoneType"),
        (Message(message_type=MessageType.MAP, body=properties({}), destination=queue("q")), "not map"),
        (Message(message_type=MessageType.UNKNOWN, destination=queue("q")), "not unknown"),
    ],
)
def test_message_that_stomp_cannot_carry_is_refused(message: Message, complaint: str) -> None:
    """The caller's mistake is an exception that names it."""
    with pytest.raises(ValueError, match=complaint):
        to_frame(message)


def test_headers_of_a_frame() -> None:
    """Bytes have a content-length, text has none; booleans are lower case; null properties are left out."""
    more = {"SOAPJMS_isFault": False, "number": 7, "nothing": None}
    headers, body = to_frame(
        message_to(
            queue("q"),
            memoryview(b"ab").tobytes(),
            delivery_mode=2,
            expiration=0,
            message_id="ID:mine",
            timestamp=5,
            properties=properties(more),
        )
    )
    assert body == b"ab"
    assert headers == {
        "destination": "/queue/q",
        "persistent": "true",
        "expires": "0",
        "content-length": "2",
        "SOAPJMS_isFault": "false",
        "number": "7",
    }
    assert "content-length" not in to_frame(message_to(queue("q"), "text"))[0]


def test_view_of_bytes_is_sent() -> None:
    """A part of a larger buffer needs no copy before it gets here."""
    message = Message(message_type=MessageType.BYTES, body=memoryview(b"abcd")[1:3], destination=queue("q"))
    assert to_frame(message)[1] == b"bc"


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("/queue/a/b", queue("a/b")),
        ("/topic/t", topic("t")),
        ("/remote-temp-queue/ID:x", Destination(DestinationKind.TEMPORARY_QUEUE, "ID:x")),
        ("/remote-temp-topic/ID:x", Destination(DestinationKind.TEMPORARY_TOPIC, "ID:x")),
        ("/temp-queue/r", Destination(DestinationKind.TEMPORARY_QUEUE, None, address="/temp-queue/r")),
        ("/temp-topic/r", Destination(DestinationKind.TEMPORARY_TOPIC, None, address="/temp-topic/r")),
    ],
)
def test_destinations_are_spelled_as_activemq_does(text: str, destination: Destination) -> None:
    """Both ways."""
    assert parse_destination(text) == destination
    assert spell(destination) == text


def test_destination_without_prefix_is_a_queue() -> None:
    """As ActiveMQ takes it."""
    assert parse_destination("plain") == queue("plain")


def test_text_that_is_no_utf8_is_unknown() -> None:
    """The octets are kept for whoever judges the message."""
    message = from_frame({}, b"\xff")
    assert (message.message_type, message.body) == (MessageType.UNKNOWN, b"\xff")


def test_error_frame_is_told_without_its_stack_trace() -> None:
    """A destination that is gone has an error of its own."""
    gone = refusal({"message": "m"}, b"org.x.DestinationDoesNotExistException: The destination q\n\tat org.x.Y")
    assert isinstance(gone, DestinationGoneError)
    assert "at org.x" not in str(gone)
    other = refusal({"message": "not allowed"}, b"")
    assert not isinstance(other, DestinationGoneError)
    assert "not allowed" in str(other)


def test_unknown_broker_is_refused() -> None:
    """Without a row in the table messages would go astray."""
    with pytest.raises(ConnectionFailedError, match="RabbitMQ"):
        dialect_of("RabbitMQ/4.0")


# ------------------------------------------------------------------------------------------------------ connecting


def test_url_is_read() -> None:
    """User and password are percent-encoded there; the port has a default; neither secret is shown."""
    login = login_of("stomp://us%40er:p%3Aw%2F@broker.example:61000", 10.0)
    assert (login.host, login.port, login.user, login.password) == ("broker.example", 61000, "us@er", "p:w/")
    assert login.heartbeat == 10_000
    assert "us@er" not in f"{login} {login!r}"
    assert "p:w/" not in f"{login} {login!r}"
    plain = login_of("stomp://[::1]", 0)
    assert (plain.host, plain.port, plain.user, plain.password, plain.heartbeat) == ("::1", 61613, None, None, 0)


@pytest.mark.parametrize("url", ["stomp://", "stomp://host/queue", "stomp://host?a=b", "stomp://host#f"])
def test_url_that_says_more_is_refused(url: str) -> None:
    """What would be ignored is better refused."""
    with pytest.raises(ValueError, match="stomp URL"):
        brokers.connect(url)


def test_login_cannot_smuggle_a_header() -> None:
    """CONNECT is not escaped, so a line break in the password would begin a header."""
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ValueError, match="line breaks"):
        brokers.connect(f"stomp://u:p%0Ahost%3Ax@127.0.0.1:{server.getsockname()[1]}", timeout=PATIENCE)


def test_nobody_listens() -> None:
    """The error names the address, not the password."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailedError, match=str(port)) as caught:
            brokers.connect(f"stomp://admin:tops3cret@127.0.0.1:{port}", timeout=PATIENCE)
    assert "tops3cret" not in str(caught.value)


@contextmanager
def answering(greeting: bytes) -> Iterator[str]:
    """Run a server that answers every client's first octets with `greeting`; give its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        clients: list[socket.socket] = []

        def serve() -> None:
            try:
                client, _ = server.accept()
            except OSError:  # closed before anybody came
                return
            clients.append(client)
            client.recv(4096)
            client.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"stomp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)
        for client in clients:
            client.close()


def test_server_that_never_answers() -> None:
    """stomp.py alone would wait for ever."""
    with answering(b"") as url, pytest.raises(ConnectionFailedError, match="did not answer"):
        brokers.connect(url, timeout=0.3)
    assert_no_threads()


@pytest.mark.parametrize(
    "greeting", [b"CONNECTED\nversion:1.2\nserver:RabbitMQ/4\n\n\0", b"CONNECTED\nversion:1.2\n\n\0"]
)
def test_broker_without_dialect(greeting: bytes) -> None:
    """A broker that is not in the table, or does not say what it is."""
    with answering(greeting) as url, pytest.raises(ConnectionFailedError, match="no STOMP dialect"):
        brokers.connect(url, timeout=1.0)
    assert_no_threads()


def assert_no_threads() -> None:
    """Fail if a thread of an adapter lives on after its grace of a few seconds."""
    wait_until(lambda: not [thread for thread in threading.enumerate() if "stomp" in thread.name.lower()])


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.mark.broker
def test_wrong_password(activemq: RealActiveMQ, caplog: pytest.LogCaptureFixture) -> None:
    """Refused with the broker's words; the password is in no error and no log, whatever the level."""
    caplog.set_level(logging.DEBUG)
    url = activemq.stomp_url.replace(":admin@", ":tops3cret@")
    with pytest.raises(ConnectionFailedError, match="password is invalid") as caught:
        brokers.connect(url, timeout=PATIENCE)
    assert "tops3cret" not in str(caught.value)
    assert "tops3cret" not in caplog.text
    assert_no_threads()


# ------------------------------------------------------------------------------------------- on a real ActiveMQ


class Inbox:
    """An `on_delivery` that keeps what it gets."""

    def __init__(self, then: Callable[[Delivery], object] = lambda delivery: None) -> None:
        self._then = then
        self._deliveries: SimpleQueue[Delivery] = SimpleQueue()

    def __call__(self, delivery: Delivery) -> None:
        self._then(delivery)
        self._deliveries.put(delivery)

    def next(self) -> Delivery:
        return self._deliveries.get(timeout=PATIENCE)

    def nothing(self, seconds: float = 0.3) -> bool:
        """Say whether nothing came."""
        try:
            self._deliveries.get(timeout=seconds)
        except Empty:
            return True
        return False


def accepting() -> Inbox:
    """Make an inbox that accepts."""
    return Inbox(lambda delivery: delivery.accept())


NUMBERS = count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Name a queue that is this test's own."""
    return f"{request.node.originalname}.{os.getpid()}.{next(NUMBERS)}"


@pytest.fixture
def connection(activemq: RealActiveMQ) -> Iterator[StompConnection]:
    """Connect."""
    with brokers.connect(activemq.stomp_url, timeout=PATIENCE) as made:
        assert isinstance(made, StompConnection)
        yield made


@pytest.fixture
def other(activemq: RealActiveMQ) -> Iterator[StompConnection]:
    """Connect a second time."""
    with brokers.connect(activemq.stomp_url, timeout=PATIENCE) as made:
        assert isinstance(made, StompConnection)
        yield made


def send(connection: StompConnection, *messages: Message) -> None:
    """Send and wait until the broker has them."""
    for message in messages:
        connection.send(replace(message, delivery_mode=DeliveryMode.PERSISTENT)).result(PATIENCE)


def writes(connection: StompConnection, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record what is written to the socket, each write an entry."""
    transport = connection._link._engine.transport
    written: list[bytes] = []
    through = transport.send

    def send_and_note(data: bytes) -> None:
        written.append(data)
        through(data)

    monkeypatch.setattr(transport, "send", send_and_note)
    return written


@pytest.mark.broker
def test_who_and_how(connection: StompConnection) -> None:
    """The broker names itself; what STOMP lacks is a capability that is False; no secret in the repr; no Nagle."""
    assert connection.capabilities.broker.startswith("ActiveMQ/6.")
    assert not connection.capabilities.typed_properties
    assert not connection.capabilities.release
    assert "admin" not in repr(connection)
    assert connection.generation == 1
    nagle = connection._link._engine.transport.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert nagle != 0


@pytest.mark.broker
def test_owner_sees_its_temporary_queue_as_it_made_it(
    connection: StompConnection, other: StompConnection, name: str
) -> None:
    """One reply queue has two names: its address at the owner, `ID:...` at everybody else."""
    mine = connection.temporary()
    requests, replies = accepting(), accepting()
    connection.consume(mine, replies)
    other.consume(queue(name), requests)
    send(connection, message_to(queue(name), reply_to=mine))
    reply_to = requests.next().message.reply_to
    assert reply_to is not None
    assert reply_to.kind is DestinationKind.TEMPORARY_QUEUE
    assert reply_to.name is not None
    assert reply_to.name.startswith("ID:")
    send(other, message_to(reply_to, b"reply"))
    reply = replies.next().message
    assert (reply.body, reply.destination) == (b"reply", mine)


@pytest.fixture
def gone(activemq: RealActiveMQ, connection: StompConnection, name: str) -> Destination:
    """Learn the name of a temporary queue whose owner has left."""
    inbox = accepting()
    with connection.consume(queue(name), inbox), brokers.connect(activemq.stomp_url) as leaving:
        leaving.send(message_to(queue(name), reply_to=leaving.temporary())).result(PATIENCE)
        reply_to = inbox.next().message.reply_to
    assert reply_to is not None
    return reply_to


@pytest.mark.broker
def test_send_to_a_client_that_left(connection: StompConnection, gone: Destination, name: str) -> None:
    """It fails by itself with an ERROR; the connection and everybody else on it go on."""
    with pytest.raises(DestinationGoneError):
        send(connection, message_to(gone))
    connection.send(message_to(gone)).result(PATIENCE)  # not persistent: done when written
    send(connection, message_to(queue(name)))


@pytest.mark.broker
def test_commit_stands_though_one_client_left(
    connection: StompConnection, gone: Destination, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The answers to the others and all acceptances are carried out."""
    send(connection, message_to(queue(name)))
    held, answers = Inbox(), accepting()
    connection.consume(queue(name), held)
    connection.consume(queue(f"{name}.answers"), answers)
    transaction = connection.begin()
    transaction.accept(held.next())
    transaction.send(message_to(gone))
    transaction.send(message_to(queue(f"{name}.answers"), b"answer"))
    transaction.commit().result(PATIENCE)
    assert answers.next().message.body == b"answer"
    assert "DestinationDoesNotExist" in caplog.text


@pytest.mark.broker
def test_refused_send_in_a_transaction_is_reported(connection: StompConnection, gone: Destination, name: str) -> None:
    """ActiveMQ carries out the rest of the transaction all the same, and the caller learns of it."""
    answers = accepting()
    connection.consume(queue(name), answers)
    transaction = connection.begin()
    transaction.send(message_to(Destination(DestinationKind.QUEUE, None, address=spell(gone))))
    transaction.send(message_to(queue(name), b"stands"))
    with pytest.raises(SendFailedError, match="the rest was committed"):
        transaction.commit().result(PATIENCE)
    assert answers.next().message.body == b"stands"


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["map", "stream", "object", "message", "null-text"])
def test_other_kinds_of_message_are_unknown(
    activemq: RealActiveMQ, connection: StompConnection, name: str, kind: str
) -> None:
    """Over STOMP they all look like an empty text; the properties come, each a string."""
    inbox = accepting()
    connection.consume(queue(name), inbox)
    activemq.send_special(kind, name)
    message = inbox.next().message
    assert (message.message_type, message.body) == (MessageType.UNKNOWN, None)
    assert message.untyped
    assert message.properties.lookup("SOAPJMS_isFault") == Property("SOAPJMS_isFault", PropertyType.STRING, "false")


@pytest.mark.broker
@pytest.mark.parametrize(
    ("kind", "body"), [(MessageType.BYTES, b"<a>\xc3\xbc\0</a>"), (MessageType.TEXT, "<a>\u00fc</a>")]
)
def test_content_length_decides_the_type_both_ways(
    activemq: RealActiveMQ, connection: StompConnection, name: str, kind: MessageType, body: bytes | str
) -> None:
    """Java and Python see the same kind of message, in both directions."""

    def answer(delivery: Delivery) -> None:
        delivery.accept()
        assert delivery.message.reply_to is not None
        connection.send(message_to(delivery.message.reply_to, body, properties=properties({"answer": True})))

    inbox = Inbox(answer)
    connection.consume(queue(name), inbox)
    reply = activemq.send_special(kind.value, name, reply_to="temporary", wait=PATIENCE)
    assert inbox.next().message.message_type is kind
    assert reply is not None
    assert reply["type"] == kind.value
    assert reply["body"] == (body if isinstance(body, str) else body.decode())
    assert reply["properties"]["answer"] == "true"


@pytest.mark.broker
def test_empty_bodies(connection: StompConnection, name: str) -> None:
    """Empty bytes stay bytes; an empty text cannot be told from the kinds that STOMP does not carry."""
    inbox = accepting()
    connection.consume(queue(name), inbox)
    send(connection, message_to(queue(name), b""), message_to(queue(name), ""))
    assert inbox.next().message.message_type is MessageType.BYTES
    assert inbox.next().message.message_type is MessageType.UNKNOWN


@pytest.mark.broker
def test_release_gives_back_all_that_is_held(connection: StompConnection, name: str) -> None:
    """The broker redelivers under the same message id; the older deliveries are void."""
    inbox = Inbox()
    consumer = connection.consume(queue(name), inbox, prefetch=2)
    send(connection, message_to(queue(name), b"1"), message_to(queue(name), b"2"))
    first, second = inbox.next(), inbox.next()
    first.release()
    again = [inbox.next(), inbox.next()]
    assert [delivery.message.body for delivery in again] == [b"1", b"2"]
    assert [delivery.message.redelivered for delivery in again] == [True, True]
    assert [delivery.message.message_id for delivery in again] == [first.message.message_id, second.message.message_id]
    second.accept()  # void: the message is in `again`
    transaction = connection.begin()
    transaction.accept(second)
    transaction.send(message_to(queue(f"{name}.answers")))
    with pytest.raises(ClosedError, match="went back"):
        transaction.commit().result(PATIENCE)
    for delivery in again:
        delivery.accept()
    consumer.close()
    assert_empty(connection, f"{name}.answers", name)


def assert_empty(connection: StompConnection, *names: str) -> None:
    """Show that queues are empty: what is sent now is what comes first."""
    for name in names:
        inbox = accepting()
        send(connection, message_to(queue(name), b"marker"))
        with connection.consume(queue(name), inbox):
            assert inbox.next().message.body == b"marker"


@pytest.mark.broker
def test_release_from_a_topic_keeps_the_message(connection: StompConnection, name: str) -> None:
    """Its copy would go with the subscription, so it is put before the consumer again."""
    inbox = Inbox()
    connection.consume(topic(name), inbox)
    send(connection, message_to(topic(name), b"1"), message_to(topic(name), b"2"))
    inbox.next().release()
    again = inbox.next()
    assert (again.message.body, again.message.redelivered) == (b"1", True)
    again.accept()
    assert inbox.next().message.body == b"2"


@pytest.mark.broker
def test_failing_consumer_gets_the_message_again(connection: StompConnection, name: str) -> None:
    """An exception is a release."""
    tries: list[bool | None] = []

    def fail_once(delivery: Delivery) -> None:
        tries.append(delivery.message.redelivered)
        if len(tries) == 1:
            raise RuntimeError("the first try fails")
        delivery.accept()

    inbox = Inbox(fail_once)
    connection.consume(queue(name), inbox)
    send(connection, message_to(queue(name)))
    inbox.next()
    assert tries == [False, True]


@pytest.mark.broker
def test_rejected_message_is_a_dead_letter(
    connection: StompConnection, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """NACK puts this one there and no other; the reason is in our log."""
    dead = accepting()
    connection.consume(queue(f"DLQ.{name}"), dead)
    inbox = Inbox()
    consumer = connection.consume(queue(name), inbox, prefetch=2)
    send(connection, message_to(queue(name), b"good"), message_to(queue(name), b"bad"))
    good, bad = inbox.next(), inbox.next()
    bad.reject("it is bad")
    assert dead.next().message.body == b"bad"
    assert "it is bad" in caplog.text
    good.accept()
    consumer.close()
    assert_empty(connection, name)


@pytest.mark.broker
@pytest.mark.parametrize("prefetch", [1, 10])
def test_aborted_acceptance_can_be_repeated(connection: StompConnection, name: str, prefetch: int) -> None:
    """The broker never heard of the transaction: nothing is redelivered, and the consumer still holds the message."""
    inbox = Inbox()
    consumer = connection.consume(queue(name), inbox, prefetch=prefetch)
    send(connection, message_to(queue(name), b"1"))
    delivery = inbox.next()
    transaction = connection.begin()
    transaction.accept(delivery)
    transaction.send(message_to(queue(f"{name}.answers")))
    transaction.abort()
    assert inbox.nothing()
    delivery.accept()
    consumer.close()
    assert_empty(connection, name, f"{name}.answers")


@pytest.mark.broker
def test_commit_is_one_write(connection: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything from BEGIN to COMMIT goes out together; before that, nothing."""
    inbox = Inbox()
    connection.consume(queue(name), inbox)
    send(connection, message_to(queue(name)))
    delivery = inbox.next()
    written = writes(connection, monkeypatch)
    transaction = connection.begin()
    transaction.send(message_to(queue(f"{name}.1")))
    transaction.send(message_to(queue(f"{name}.2")))
    transaction.accept(delivery)
    assert written == []
    transaction.commit().result(PATIENCE)
    frames = [frame.lstrip(b"\n").partition(b"\n")[0] for frame in b"".join(written).split(b"\0")]
    assert len(written) == 1
    assert frames == [b"BEGIN", b"SEND", b"SEND", b"ACK", b"COMMIT", b""]


@pytest.mark.broker
def test_refused_commit_ends_the_connection(
    activemq: RealActiveMQ, connection: StompConnection, gone: Destination, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ActiveMQ keeps what was acknowledged in it out of reach until the connection closes; then it delivers again.

    The commit is made to fail by taking the receipts from its sends: that is why they have some.
    """
    states: SimpleQueue[ConnectionState] = SimpleQueue()
    connection.watch(states.put)
    inbox = Inbox()
    connection.consume(queue(name), inbox)
    send(connection, message_to(queue(name), b"request"))
    transaction = connection.begin()
    transaction.accept(inbox.next())
    transaction.send(message_to(gone))
    transport = connection._link._engine.transport
    through = transport.send
    receipt_of_send = re.compile(rb"(?<=\n)receipt:[^\n]*\n(?=transaction:[^\n]*\n\n<m/>)")
    monkeypatch.setattr(transport, "send", lambda data: through(receipt_of_send.sub(b"", data)))
    with pytest.raises(SendFailedError, match="rollback only"):
        transaction.commit().result(PATIENCE)
    assert states.get(timeout=PATIENCE) is ConnectionState.LOST
    again = accepting()
    with brokers.connect(activemq.stomp_url) as another, another.consume(queue(name), again):
        assert again.next().message.redelivered


@pytest.mark.broker
def test_accepting_twice_in_one_way_or_another(connection: StompConnection, other: StompConnection, name: str) -> None:
    """What is accepted already is left out of a transaction; what came by another connection is refused."""
    inbox = Inbox()
    consumer = connection.consume(queue(name), inbox)
    send(connection, message_to(queue(name)))
    delivery = inbox.next()
    delivery.accept()
    delivery.accept()
    delivery.release()
    delivery.reject("too late")
    transaction = connection.begin()
    transaction.accept(delivery)
    transaction.commit().result(PATIENCE)
    with pytest.raises(ValueError, match="another connection"):
        other.begin().accept(delivery)
    with pytest.raises(ValueError, match="another connection"):
        other.send(message_to(queue(name)), connection.begin())
    with pytest.raises(ClosedError):
        transaction.send(message_to(queue(name)))
    transaction.abort()
    consumer.close()
    assert_empty(connection, name, f"DLQ.{name}")


@pytest.mark.broker
def test_prefetch_of_one_holds_one(connection: StompConnection, name: str) -> None:
    """The broker hands over no second message before the first is accepted."""
    inbox = Inbox()
    connection.consume(queue(name), inbox)
    send(connection, message_to(queue(name), b"1"), message_to(queue(name), b"2"))
    first = inbox.next()
    assert inbox.nothing()
    first.accept()
    assert inbox.next().message.body == b"2"


@pytest.mark.broker
def test_broker_accepts_for_the_consumer(connection: StompConnection, name: str) -> None:
    """With `auto_accept` it hands over all it has and keeps nothing back; settling does nothing."""
    inbox = Inbox()
    with connection.consume(queue(name), inbox, auto_accept=True):
        send(connection, *(message_to(queue(name), body) for body in (b"1", b"2", b"3")))
        deliveries = [inbox.next() for _ in range(3)]
        deliveries[0].accept()
        deliveries[1].release()
        deliveries[2].reject("too late")
    assert_empty(connection, name, f"DLQ.{name}")


@pytest.mark.broker
def test_selector(connection: StompConnection, name: str) -> None:
    """It is passed on; one that the broker cannot read is an error at once."""
    inbox = accepting()
    connection.consume(queue(name), inbox, selector="JMSCorrelationID = 'a:b'")
    send(connection, message_to(queue(name), correlation_id="c"), message_to(queue(name), b"2", correlation_id="a:b"))
    assert inbox.next().message.body == b"2"
    with pytest.raises(BrokerError, match="cannot consume"):
        connection.consume(queue(name), inbox, selector="a = = b")


@pytest.mark.broker
def test_what_consume_refuses(connection: StompConnection, other: StompConnection, name: str) -> None:
    """Durable names, a prefetch of none, and temporary destinations of others, which ActiveMQ would hand out."""
    with pytest.raises(UnsupportedError, match="durable_topics"):
        connection.consume(topic(name), Inbox(), durable_name="d")
    with pytest.raises(ValueError, match="prefetch 0"):
        connection.consume(queue(name), Inbox(), prefetch=0)
    with pytest.raises(StaleDestinationError):
        connection.consume(other.temporary(), Inbox())
    with pytest.raises(StaleDestinationError):
        connection.consume(Destination(DestinationKind.TEMPORARY_QUEUE, "ID:of-another"), Inbox())
    with pytest.raises(StaleDestinationError):
        connection.send(message_to(other.temporary()))
    with pytest.raises(StaleDestinationError):
        connection.send(message_to(queue(name), reply_to=other.temporary()))
    with pytest.raises(ValueError, match="no temporary kind"):
        connection.temporary(DestinationKind.QUEUE)


@pytest.mark.broker
def test_cancelled_send_is_forgotten(activemq: RealActiveMQ, connection: StompConnection, name: str) -> None:
    """Its receipt finds nobody; the connection goes on."""
    future = connection.send(message_to(queue(name), delivery_mode=DeliveryMode.PERSISTENT))
    future.cancel()
    send(connection, message_to(queue(name)))
    wait_until(lambda: not connection._link._waiting)


@pytest.mark.broker
def test_large_message(connection: StompConnection, name: str) -> None:
    """A few mebibytes with every octet, NUL among them."""
    body = bytes(range(256)) * 8192
    inbox = accepting()
    connection.consume(queue(name), inbox)
    send(connection, message_to(queue(name), body))
    assert inbox.next().message.body == body


@pytest.mark.broker
def test_close_leaves_nothing(activemq: RealActiveMQ, name: str) -> None:
    """Consumers, reader, heart-beats and callbacks end; closing again does nothing; what comes after is refused."""
    states: SimpleQueue[ConnectionState] = SimpleQueue()
    connection = brokers.connect(activemq.stomp_url)
    connection.watch(states.put)
    consumers = [connection.consume(queue(name), Inbox()) for _ in range(3)]
    transaction = connection.begin()
    connection.send(message_to(queue(name))).add_done_callback(lambda _: None)
    connection.close()
    connection.close()
    assert states.get(timeout=PATIENCE) is ConnectionState.CLOSED
    assert_no_threads()
    consumers[0].close()
    with pytest.raises(ClosedError):
        connection.send(message_to(queue(name)))
    with pytest.raises(ClosedError):
        connection.consume(queue(name), Inbox())
    with pytest.raises(ClosedError):
        connection.begin()
    with pytest.raises(ClosedError):
        connection.temporary()
    with pytest.raises(ClosedError):
        transaction.commit().result(PATIENCE)


@pytest.mark.broker
def test_close_from_the_consumer_itself(activemq: RealActiveMQ, name: str) -> None:
    """An `on_delivery` may close its consumer and its connection."""
    connection = brokers.connect(activemq.stomp_url)

    def leave(delivery: Delivery) -> None:
        delivery.accept()
        consumer.close()
        connection.close()

    inbox = Inbox(leave)
    consumer = connection.consume(queue(name), inbox)
    connection.send(message_to(queue(name))).result(PATIENCE)
    inbox.next()
    assert_no_threads()


# ------------------------------------------------------------------------------------------- when the broker goes


@pytest.fixture
def mortal() -> Iterator[ActiveMQ]:
    """Run a broker of one's own, as a child process that can be stopped and killed."""
    with ActiveMQ() as broker:
        yield broker


@pytest.mark.broker
def test_broker_that_dies(mortal: ActiveMQ, name: str) -> None:
    """Everything under way fails, the state is told, and what comes after is refused at once."""
    states: SimpleQueue[ConnectionState] = SimpleQueue()
    assert mortal.pid is not None
    with brokers.connect(mortal.stomp_url) as connection:
        connection.watch(states.put)
        inbox = Inbox()
        connection.consume(queue(name), inbox)
        connection.send(message_to(queue(name))).result(PATIENCE)
        delivery = inbox.next()
        os.kill(mortal.pid, signal.SIGSTOP)
        sending = connection.send(message_to(queue(name), delivery_mode=DeliveryMode.PERSISTENT))
        transaction = connection.begin()
        transaction.send(message_to(queue(name)))
        committing = transaction.commit()
        late = connection.begin()
        late.accept(delivery)
        mortal.kill()
        for future in (sending, committing):
            with pytest.raises(ConnectionLostError):
                future.result(PATIENCE)
        assert states.get(timeout=PATIENCE) is ConnectionState.LOST
        with pytest.raises(ConnectionLostError):
            connection.send(message_to(queue(name)))
        with pytest.raises(ConnectionLostError):
            late.commit().result(PATIENCE)
        delivery.accept()
        delivery.release()
        delivery.reject("nobody listens")
        connection.close()
        assert states.get(timeout=PATIENCE) is ConnectionState.CLOSED
    assert_no_threads()


@pytest.mark.broker
def test_broker_that_falls_silent(mortal: ActiveMQ, name: str) -> None:
    """Without heart-beats for one and a half intervals the connection counts as lost."""
    states: SimpleQueue[ConnectionState] = SimpleQueue()
    assert mortal.pid is not None
    with brokers.connect(mortal.stomp_url, heartbeat=0.5) as connection:
        connection.watch(states.put)
        with pytest.raises(Empty):
            states.get(timeout=1.5)
        os.kill(mortal.pid, signal.SIGSTOP)
        assert states.get(timeout=PATIENCE) is ConnectionState.LOST
        os.kill(mortal.pid, signal.SIGCONT)
    assert_no_threads()
