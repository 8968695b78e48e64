"""A hostile STOMP broker, or a peer behind an honest one: what it sends costs a bounded amount of memory."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from time import sleep

import fuzz.stomp
import pytest
from calling_kit import PATIENCE, arrivals, eventually, fresh, take_one
from real_brokers import RealBroker

import brokers
from brokers import ConnectionState, Message, MessageType, queue
from brokers.adapter.endpoints import Reconnect
from brokers.message import Properties, Property, PropertyType
from brokers.stomp import StompConnection
from brokers.stomp.codec import Cutter, pack
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, ARTEMIS, StompDialect
from brokers.stomp.frames import dead_letter, refusal, sent_again

MIB = 1 << 20
LARGE = 300
"""MiB of a frame."""

SPARE = 40
"""MiB by which this process may grow meanwhile: some pieces of frames, and what the system keeps."""

PIECE = b"x" * (1 << 16)
HEADER = re.compile(rb"\n(id|receipt|destination):([^\n]*)")


class Hostile:
    """Speaks as ActiveMQ does, and sends to each subscription what it is told.

    Attributes:
        url: where it listens.
        heard: ACK and NACK frames.
        grown: MiB by which this process has grown at most while it sent.
    """

    def __init__(self, send: Callable[[str], Iterator[bytes]]) -> None:
        self.heard: Queue[bytes] = Queue()
        self.grown = 0
        self._send = send
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"stomp://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            client, _ = self._listening.accept()
        except OSError:
            return
        with client:
            held = b""
            while octets := client.recv(65536):
                held += octets
                *frames, held = held.split(b"\0")
                for frame in frames:
                    self._answer(client, frame.lstrip(b"\n"))

    def _answer(self, client: socket.socket, frame: bytes) -> None:
        command, headers = frame.partition(b"\n")[0], dict(HEADER.findall(frame))
        if command == b"CONNECT":
            client.sendall(b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8\nsession:1\n\n\0")
        if b"receipt" in headers:
            client.sendall(b"RECEIPT\nreceipt-id:" + headers[b"receipt"] + b"\n\n\0")
        if command in (b"ACK", b"NACK"):
            self.heard.put(frame)
        if command == b"SUBSCRIBE" and b"ActiveMQ.Advisory" not in headers[b"destination"]:
            before = resident()
            for piece in self._send(headers[b"id"].decode()):
                client.sendall(piece)
                self.grown = max(self.grown, resident() - before)


def resident() -> int:
    """Return the MiB of memory that this process has."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB


@contextmanager
def hostile(send: Callable[[str], Iterator[bytes]]) -> Iterator[Hostile]:
    """Have such a broker."""
    broker = Hostile(send)
    try:
        yield broker
    finally:
        broker.close()


def message(subscription: str, number: int, more: str = "") -> bytes:
    """Return the head of a MESSAGE."""
    return (
        f"MESSAGE\nsubscription:{subscription}\nmessage-id:ID:host-1-1-1:1:1:1:{number}\nack:{number}\ndestination:/queue/a\n"
        f"correlation-id:c-{number}\n{more}\n"
    ).encode()


def with_length(subscription: str) -> Iterator[bytes]:
    """A body whose length is said."""
    yield message(subscription, 1, f"content-length:{LARGE * MIB}\n")
    yield from [PIECE] * (LARGE * MIB // len(PIECE))
    yield b"\0"


def without_length(subscription: str) -> Iterator[bytes]:
    """A body that ends with a NUL, at some time."""
    yield message(subscription, 1)
    yield from [PIECE] * (LARGE * MIB // len(PIECE))
    yield b"\0"


def long_header(subscription: str) -> Iterator[bytes]:
    """A header that does not end."""
    yield message(subscription, 1)[:-1] + b"a:"
    yield from [PIECE] * (LARGE * MIB // len(PIECE))
    yield b"\n\n\0"


def many_headers(subscription: str) -> Iterator[bytes]:
    """Headers without end."""
    yield message(subscription, 1)[:-1]
    lines = b"".join(b"header-%d:value\n" % number for number in range(4000))
    yield from [lines] * (LARGE * MIB // len(lines))
    yield b"\n\0"


@pytest.mark.parametrize("frame", [with_length, without_length, long_header, many_headers])
@pytest.mark.parametrize("auto_accept", [False, True])
def test_large_frame(frame: Callable[[str], Iterator[bytes]], auto_accept: bool) -> None:
    """It is passed over, refused with its reason, and becomes a dead letter; the next message is delivered."""
    refused, got = list[tuple[str | None, str]](), Queue[bytes]()

    def send(subscription: str) -> Iterator[bytes]:
        yield from frame(subscription)
        yield message(subscription, 2, "content-length:5\n") + b"small\0"

    with (
        hostile(send) as broker,
        brokers.connect(broker.url, max_message=MIB, heartbeat=0) as connection,
        connection.consume(
            queue("a"),
            lambda delivery: (got.put(delivery.message.body), delivery.accept()),
            auto_accept=auto_accept,
            on_refused=lambda message, reason: refused.append((message.correlation_id, reason)),
        ),
    ):
        assert got.get(timeout=3 * PATIENCE) == b"small"
        assert broker.grown < SPARE
        assert [each[0] for each in refused] == ["c-1"]
        limit = "headers have more than 1048576 octets" if "header" in frame.__name__ else f"{LARGE * MIB} octets"
        assert limit in refused[0][1]
        first = broker.heard.get(timeout=PATIENCE)
        assert first.startswith(b"ACK" if auto_accept else b"NACK")
        assert auto_accept or b"\nid:1\n" in first
        assert connection.generation == 1


class Refusing(fuzz.stomp.Broker):
    """A broker that refuses as many subscriptions as it is told to, and does not say which."""

    refusals = 0

    def _answer(self, session: fuzz.stomp.Session, command: str, headers: dict[str, str]) -> None:
        if command == "SUBSCRIBE" and self.refusals:
            self.refusals -= 1
            session.send(fuzz.stomp.frame("ERROR", message="not now"))
        else:
            super()._answer(session, command, headers)


@pytest.mark.parametrize("dialect", fuzz.stomp.SERVERS)
def test_who_is_refused_once_comes_again(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription that is refused after the connection was made again is asked for until it is there; before, a
    consumer at Artemis stayed without one for ever, and said that it would be made again."""
    monkeypatch.setattr(fuzz.stomp, "Broker", Refusing)
    with ExitStack() as stack:
        client = fuzz.stomp.Client(dialect, stack)
        first = client.broker.session()
        assert isinstance(client.broker, Refusing)
        client.broker.refusals = 1
        first.hang_up()
        eventually(lambda: client.broker.refusals == 0 and client.broker.latest is not first, "it is there again")
        assert client.hear(b"", holds=False, cut=1).endswith("no messages")


@pytest.mark.parametrize("command", [b"ERROR", b"RECEIPT", b"NONSENSE"])
def test_large_frame_of_another_kind(command: bytes) -> None:
    """What is no message is passed over too, and what follows is read."""
    got = Queue[bytes]()

    def send(subscription: str) -> Iterator[bytes]:
        yield command + b"\nreceipt-id:nobody\nmessage:no\ncontent-length:%d\n\n" % (LARGE * MIB)
        yield from [PIECE] * (LARGE * MIB // len(PIECE))
        yield b"\0"
        yield message(subscription, 2, "content-length:5\n") + b"small\0"

    with (
        hostile(send) as broker,
        brokers.connect(broker.url, heartbeat=0) as connection,
        connection.consume(queue("a"), lambda delivery: got.put(delivery.message.body), auto_accept=True),
    ):
        assert got.get(timeout=3 * PATIENCE) == b"small"
        assert broker.grown < SPARE


def test_frame_of_no_kind() -> None:
    """ActiveMQ Classic may write an ERROR into another frame: what follows is in doubt, so the session ends."""

    def send(subscription: str) -> Iterator[bytes]:
        yield b".apache.activemq.transport.stomp.onstompack(protocolconverter.java:477)\n\n\0"

    with (
        hostile(send) as broker,
        brokers.connect(broker.url, heartbeat=0) as connection,
        connection.consume(queue("a"), lambda delivery: None, auto_accept=True),
    ):
        eventually(lambda: connection.state is not ConnectionState.CONNECTED, "it has ended")


def test_what_came_before_a_broken_frame() -> None:
    """It is handed on before the session ends, also where it was held to be handed on together."""
    got = Queue[bytes]()

    def send(subscription: str) -> Iterator[bytes]:
        for number in range(5):
            yield message(subscription, number, "content-length:1\n") + b"%d\0" % number
            sleep(0.004)  # so that each is read for itself
        yield message(subscription, 5, "content-length:1\n") + b"longer\0"

    with (
        hostile(send) as broker,
        brokers.connect(broker.url, heartbeat=0, reconnect=False) as connection,
        connection.consume(queue("a"), lambda delivery: got.put(delivery.message.body), auto_accept=True, lazy=True),
    ):
        eventually(lambda: connection.state is not ConnectionState.CONNECTED, "it has ended")
        assert [got.get(timeout=PATIENCE) for _ in range(5)] == [b"%d" % number for number in range(5)]
    assert got.empty()


def test_frame_that_is_written_twice() -> None:
    """As it may be beside an ERROR: the message is handed on once."""
    got = Queue[bytes]()

    def send(subscription: str) -> Iterator[bytes]:
        for number in (1, 1, 2):
            yield message(subscription, number, "content-length:1\n") + b"%d\0" % number

    with (
        hostile(send) as broker,
        brokers.connect(broker.url, heartbeat=0) as connection,
        connection.consume(queue("a"), lambda delivery: got.put(delivery.message.body), auto_accept=True),
    ):
        assert [got.get(timeout=PATIENCE) for _ in range(2)] == [b"1", b"2"]


@pytest.mark.broker
def test_dead_letter_of_artemis(artemis: RealBroker) -> None:
    """Of a message that was not read, the dead letter says which it was and why; it has no body."""
    name = fresh()
    with (
        brokers.connect(artemis.amqp_url) as other,
        brokers.connect(f"{artemis.stomp_url}?maxMessage=1000&deadLetters=dead.{name}") as connection,
        connection.consume(queue(name), lambda delivery: delivery.accept()),
    ):
        sent = Message(
            message_type=MessageType.BYTES, body=bytes(5000), destination=queue(name), correlation_id=f"c-{name}"
        )
        other.send(sent).result(PATIENCE)
        letter = take_one(other, queue(f"dead.{name}"))
    assert (letter.correlation_id, letter.body) == (f"c-{name}", b"")
    assert "it has 5000 octets" in str(letter.properties)
    assert "the dead letter is without its body" in str(letter.properties)


# What a dead letter takes along


def properties(**values: str) -> Properties:
    """Make properties."""
    return Properties([Property(name, PropertyType.STRING, value) for name, value in values.items()])


def test_no_header_that_send_reserves() -> None:
    """A property that SEND would take for a header of its own is not copied, others are."""
    headers = {"message-id": "1,2", "destination": "a", "content-length": "3", "x": "y", "correlation-id": "c"}
    reserved = dict.fromkeys(ARTEMIS.reserved - ARTEMIS.message_headers, "1")
    assert {"AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "transformation"} <= reserved.keys()
    copied = dead_letter(headers | reserved | {"_AMQ_DUPL_ID": "1"}, b"abc", "why", "DLQ", ARTEMIS)
    assert not copied.keys() & {*reserved, "_AMQ_DUPL_ID"}
    assert (copied["x"], copied["correlation-id"]) == ("y", "c")


CUT = "may have a NUL, where the broker ends its frame, so that the connection ends too; the message "


@pytest.mark.broker
def test_frames_in_a_text(activemq: RealBroker) -> None:
    """ActiveMQ Classic writes a text as it is: frames in it reach no consumer, as no peer can guess their names."""
    name, got = fresh(), Queue[Message]()

    def forged(number: int) -> str:
        head = f"message-id:ID:a-1-1-1:1:1:1:{number}\nack:x{number}\ndestination:/queue/{name}\nJMSXUserID:admin"
        return f"MESSAGE\nsubscription:subscription-{number}\n{head}\ncontent-length:1\n\nx\0"

    text = "<x/>\0" + "".join(map(forged, range(100))) + "RECEIPT\nreceipt-id:receipt-9\n\n"
    with (
        brokers.connect(activemq.amqp_url) as other,
        brokers.connect(activemq.stomp_url) as connection,
        connection.consume(queue(name), lambda delivery: got.put(delivery.message), auto_accept=True),
    ):
        for body in (text, "last"):
            sent = Message(message_type=MessageType.TEXT, body=body, destination=queue(name))
            other.send(sent).result(PATIENCE)
        assert [got.get(timeout=PATIENCE).body for _ in range(2)] == ["<x/>", "last"]


def test_names_are_of_one_connection() -> None:
    """Whoever knows the names of one connection cannot tell those of another, nor of other things there."""

    def send(subscription: str) -> Iterator[bytes]:
        names.append(subscription)
        yield b""

    names: list[str] = []
    for _ in range(2):
        with (
            hostile(send) as broker,
            brokers.connect(broker.url, heartbeat=0) as connection,
            connection.consume(queue("a"), lambda delivery: None),
        ):
            assert isinstance(connection, StompConnection)
            secrets = {connection.new_id(what).split("-", 1)[1] for what in ("receipt", "subscription")}
            assert len({each[:12] for each in secrets}) == 2
    first, second = (re.fullmatch(r"subscription-([A-Za-z0-9_-]{12})-[0-9]+", each) for each in names)
    assert first is not None
    assert second is not None
    assert first[1] != second[1]


@pytest.mark.parametrize("rest", [b"the rest\n\n\0", b"MESSAGE\n\0"])
@pytest.mark.parametrize(
    ("more", "then"), [("", "comes again"), ("redelivered:true\n", "becomes a dead letter"), ("content-length:1\n", "")]
)
def test_text_that_is_cut(more: str, then: str, rest: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A text with NUL ends the session, as what follows is no frame: the second time it does not come again."""

    def send(subscription: str) -> Iterator[bytes]:
        yield message(subscription, 7, more) + b"x\0" + rest

    with (
        hostile(send) as broker,
        brokers.connect(broker.url, heartbeat=0, reconnect=False) as connection,
        connection.consume(queue("a"), lambda delivery: None),
    ):
        eventually(lambda: connection.state is not ConnectionState.CONNECTED, "it has ended")
    said = [each.message.partition(CUT)[2] for each in caplog.records if each.event == "stomp.text_cut"]
    assert said == [then] * bool(then)
    assert all("ID:host-1-1-1:1:1:1:7" in each.message for each in caplog.records if each.event == "stomp.text_cut")
    if "redelivered" in more:
        assert broker.heard.get(timeout=PATIENCE) == b"NACK\nid:7\n\n"
    assert broker.heard.empty()


@pytest.mark.broker
def test_text_that_is_cut_again_and_again(activemq: RealBroker) -> None:
    """It is a dead letter in the end, and those behind it are delivered."""
    name, got = fresh(), Queue[Message]()
    with (
        brokers.connect(activemq.amqp_url) as other,
        brokers.connect(activemq.stomp_url, reconnect=Reconnect(initial=0.01)) as connection,
    ):
        for body in ("<x/>\0the rest", "last"):
            sent = Message(message_type=MessageType.TEXT, body=body, destination=queue(name))
            other.send(sent).result(PATIENCE)
        connection.consume(queue(name), lambda delivery: got.put(delivery.message))
        eventually(lambda: not got.empty() and got.get().body == "last", "the next one is there")
        assert take_one(other, queue(f"DLQ.{name}")).body == "<x/>\0the rest"


FURTHER = "<x/>\0SEND\ndestination:{}\ndestination-type:ANYCAST\npersistent:true\ncontent-length:4\n\nevil\0"
"""A text whose sender would have the consumer's session send another message."""


@pytest.mark.parametrize("dialect", [ACTIVEMQ_CLASSIC, ARTEMIS])
@pytest.mark.parametrize("told", [{}, {"content-length": "3"}])
def test_message_that_is_sent_again_is_one_frame(dialect: StompDialect, told: dict[str, str]) -> None:
    """The length that is written is that of the body, whatever length the message came with."""
    body = FURTHER.format("victim").encode()
    headers = {"message-id": "1,2", "destination": "a", "x\n\ny": "\n\n", **told}
    for again in (dead_letter(headers, body, "why\n\n", "DLQ", dialect), sent_again(headers, body, dialect)):
        [frame] = Cutter().cut(pack("SEND", again, body, dialect.version))
        assert (again["content-length"], frame.head.count(b"\n\n")) == (f"{len(body)}", 1)


@pytest.mark.broker
def test_rejected_text_with_frames(artemis: RealBroker) -> None:
    """The text that a sender over AMQP chose is the body of the dead letter, and its rest is carried out by nobody."""
    name, victim = fresh(), fresh()
    text = FURTHER.format(victim)
    with (
        brokers.connect(artemis.amqp_url) as other,
        brokers.connect(f"{artemis.stomp_url}?deadLetters=dead.{name}") as connection,
        connection.consume(queue(name), lambda delivery: delivery.reject("no")),
    ):
        other.send(Message(message_type=MessageType.TEXT, body=text, destination=queue(name))).result(PATIENCE)
        assert take_one(other, queue(f"dead.{name}")).body == text.encode()
        assert connection.generation == 1
        assert not artemis.counters().messages.get(victim)
        eventually(lambda: not artemis.counters().messages.get(name), "it is accepted")


@pytest.mark.broker
@pytest.mark.parametrize("name", ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "_AMQ_DUPL_ID"])
def test_dead_letter_that_is_there(name: str, artemis: RealBroker) -> None:
    """No sender puts off the dead letter of its message, or has it taken for one that was there before."""
    first, second = fresh(), fresh()
    letters = queue(f"dead.{first}")
    value = "4102444800000" if name == "AMQ_SCHEDULED_TIME" else "3600000"
    with (
        brokers.connect(artemis.amqp_url) as other,
        brokers.connect(f"{artemis.stomp_url}?deadLetters={letters.name}") as connection,
        connection.consume(queue(first), lambda delivery: delivery.reject("no")),
        connection.consume(queue(second), lambda delivery: delivery.reject("no")),
    ):
        for place in (first, second):
            other.send(labelled(place, properties(**{name: value, "kept": place}))).result(PATIENCE)
        eventually(lambda: artemis.counters().messages.get(letters.name or "", 0) == 2, "both are dead letters")
        with arrivals(other, letters) as found:
            assert {found.next().properties.value("kept") for _ in range(2)} == {first, second}


def labelled(name: str, more: Properties) -> Message:
    """Make a message with properties."""
    return Message(message_type=MessageType.BYTES, body=b"x", destination=queue(name), properties=more)


@pytest.mark.parametrize("kind", [brokers.BrokerError, brokers.ConnectionLostError, brokers.SendFailedError])
def test_what_a_peer_says_does_nothing_to_a_terminal(kind: type[brokers.BrokerError]) -> None:
    """An error shows escape sequences and the like by their codes, whichever transport they came by."""
    said = refusal({}, "\x1b[31mred\x07\u202e tèxt".encode())
    assert str(said) == r"the broker refused: \x1b[31mred\x07\u202e tèxt"
    assert str(kind(f"it said: \x9b2J{said}")) == rf"it said: \x9b2J{said}"
