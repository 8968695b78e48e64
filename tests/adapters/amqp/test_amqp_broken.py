"""brokers.amqp, the user's role: brokers that do what AMQP forbids, or that do not read.

What they do ends the connection with one error that names it, which the broker is told, too; it is then made again.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha1
from queue import SimpleQueue
from select import select
from typing import Any

import pytest
from amqp_broken import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    TRANSFER,
    WINDOW,
    BrokenBroker,
    flow,
    message,
    mutating,
)
from amqp_kit import text
from amqp_raw import PATIENCE, frame
from amqp_soak import threads_in
from limits_kit import no_more_threads
from proton import Described, symbol, uint, ulong, ushort
from waiting import eventually

import brokers
from brokers import (
    BrokerError,
    ConnectionFailedError,
    ConnectionLostError,
    ConnectionState,
    NoAnswerError,
    NotSentError,
    SendFailedError,
    queue,
    topic,
)
from brokers.amqp import AmqpConnection, Reconnect
from brokers.amqp.listener import Listener
from brokers.amqp.sasl import SASL_HEADER, Performative, pack
from brokers.embedded import Broker

QUICKLY = Reconnect(initial=0.01, maximum=0.01)


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Fail if a thread of an adapter lives on."""
    yield
    eventually(
        lambda: not [each for each in threading.enumerate() if each.name.startswith(("amqp", "mutating"))],
        "threads have ended",
    )


def attach(channel: int, handle: int, name: str) -> bytes:
    """Write the frame of an attach that nobody asked for."""
    ends = Described(ulong(0x28), []), Described(ulong(0x29), [])
    return frame(ATTACH, name, uint(handle), False, None, None, *ends, None, None, uint(0), channel=channel)


def begin(channel: int, answers: int | None = None) -> bytes:
    """Write the frame of a begin, which answers the client's on a channel, or one that nobody asked for."""
    return frame(
        BEGIN, None if answers is None else ushort(answers), uint(0), uint(WINDOW), uint(WINDOW), channel=channel
    )


FORBIDDEN: dict[str, tuple[Callable[[int, int, int], bytes], str, str]] = {
    "more messages than there is credit for": (
        lambda channel, handle, number: message(channel, handle, number),
        "amqp:link:transfer-limit-exceeded",
        "the broker sent more messages from queue:q than it had credit for",
    ),
    "aborted messages likewise": (
        lambda channel, handle, number: message(channel, handle, number, aborted=number % 2 > 0),
        "amqp:link:transfer-limit-exceeded",
        "the broker sent more messages from queue:q than it had credit for",
    ),
    "sessions that it begins": (
        lambda channel, handle, number: begin(100 + number % 1000),
        "amqp:not-allowed",
        "the broker began a session, but only the client may begin sessions",
    ),
    "sessions on one channel": (
        lambda channel, handle, number: begin(100),
        "amqp:not-allowed",
        "the broker began a session, but only the client may begin sessions",
    ),
    "links that it attaches": (
        lambda channel, handle, number: attach(channel, 100 + number, f"mine-{number}"),
        "amqp:not-allowed",
        "the broker attached a link, but only the client may attach links",
    ),
}


def test_no_thread_that_ends_the_wait_for_credit() -> None:
    """The message is not sent, then or later; without a time limit, it waits."""
    with BrokenBroker(credit=0) as broken, brokers.connect(broken.url, timeout=PATIENCE, reconnect=False) as connection:
        with no_more_threads(), pytest.raises(NotSentError, match="its time limit cannot be kept"):
            connection.send(text(queue("q"), "limited"), timeout=PATIENCE)
        sent = connection.send(text(queue("q"), "patient"))
        broken.until(lambda: broken.links)
        ((channel, handle),) = broken.links.values()
        broken.write(flow(channel, handle, credit=10, window=WINDOW))
        broken.until(lambda: broken.got(TRANSFER))
        broken.write(frame(DISPOSITION, True, uint(0), uint(0), True, Described(ulong(0x24), []), channel=channel))
        sent.result(PATIENCE)
        assert len(broken.got(TRANSFER)) == 1


def test_credit_counts_from_the_brokers_number() -> None:
    """It is given once the broker has said with which number it begins, as RabbitMQ does just below the largest.

    Before that proton states the number 0, and RabbitMQ would send five messages more than it may.
    """
    with BrokenBroker() as broken, brokers.connect(broken.url, timeout=PATIENCE, reconnect=False) as connection:
        broken.leaves_out = {ATTACH}
        consuming = ThreadPoolExecutor(1).submit(connection.consume, queue("q"), lambda delivery: None, prefetch=3)
        broken.until(lambda: broken.got(ATTACH))
        ((name, handle, *_),) = broken.got(ATTACH)
        ((channel, _),) = {(channel, kind) for kind, channel, _ in broken.received if kind == ATTACH}
        ends = Described(ulong(0x28), ["q"]), Described(ulong(0x29), [])
        begins = uint(2**32 - 5)
        broken.write(
            frame(ATTACH, name, uint(int(handle)), False, None, None, *ends, None, None, begins, channel=channel)
        )
        broken.until(lambda: broken.got(FLOW))
        consuming.result(PATIENCE)
        assert [fields[5:7] for fields in broken.got(FLOW)] == [[begins, 3]]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_no_broker_may_do(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """It ends the connection, with an error for both sides; what a program holds by then is bounded."""
    make, condition, why = FORBIDDEN[what]
    got: SimpleQueue[Any] = SimpleQueue()
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=QUICKLY) as connection:
        connection.consume(queue("q"), got.put, prefetch=3)
        ((channel, handle),) = broker.links.values()
        with caplog.at_level(logging.WARNING), suppress(OSError):  # the client has had enough
            broker.write(*(make(channel, handle, number) for number in range(5000)))
        broker.until(lambda: broker.clients == 2 and broker.links)
        connection.wait_connected(PATIENCE)
        ((error, description, *_),) = (each[0].value for each in broker.got(CLOSE))
        assert (str(error), description) == (condition, why)
        assert f"the connection to {broker.url} was lost: {why} ({condition}); reconnecting" in caplog.messages
        assert got.qsize() <= 3
        ((channel, handle),) = broker.links.values()
        broker.write(message(channel, handle, 0, b"afterwards"))
        eventually(lambda: got.get(timeout=PATIENCE).message.body == b"afterwards", "it goes on")


@pytest.mark.parametrize("in_transaction", [False, True])
def test_messages_on_a_link_that_sends(in_transaction: bool) -> None:
    """They would be kept for ever, as nobody reads them; so the first one ends the connection."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        if in_transaction:
            transaction = connection.begin()
            connection.send(text(queue("q")), transaction)
            transaction.commit()
        else:
            connection.send(text(queue("q")))
        broker.until(lambda: broker.got(TRANSFER))
        ((channel, handle),) = broker.links.values()
        broker.write(message(channel, handle, 0))
        broker.until(lambda: broker.got(CLOSE))
        (error,) = (each for each in broker.got(CLOSE)[0] if each is not None)
        assert error.value[0] == "amqp:not-allowed"
        assert error.value[1] == "the broker sent a message on a link on which only the client sends"


def test_what_answers_the_same_twice() -> None:
    """A broker that says again and again that a session has begun, or a link was attached, fills no memory."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE) as connection:
        consumer = connection.consume(queue("q"), lambda delivery: None)
        ((channel, handle),) = broker.links.values()
        again = frame(BEGIN, ushort(0), uint(0), uint(WINDOW), uint(WINDOW)) * 1000
        broker.write(again, message(channel, handle, 0))
        eventually(lambda: not connection._crew.waiting, "all was read")
        consumer.close()
        assert connection.state is ConnectionState.CONNECTED


def hold_up(broker: BrokenBroker, connection: brokers.Connection, size: int, count: int) -> threading.Thread:
    """Send messages to a broker that reads no more, until nothing more is sent; return the thread that goes on."""
    before = len(broker.links)

    def send() -> None:
        with suppress(BrokerError):  # it was lost
            for _ in range(count):
                connection.send(text(queue("elsewhere"), "x" * size))

    thread = threading.Thread(target=send, name="sends", daemon=True)
    thread.start()
    broker.until(lambda: len(broker.links) > before)  # otherwise it would have given no credit
    broker.is_deaf = True
    return thread


def is_unread(connection: Any) -> bool:
    """Say whether so much waits for the broker to read that it gets no more credit."""
    session = connection._current()
    with session.held():
        return bool(session.is_unread)


SIZE, MANY = 100_000, 1500
"""A hundred and fifty mebibytes."""


def test_sends_to_a_broker_that_gives_any_credit_and_does_not_read() -> None:
    """A thousand messages wait, then who sends waits, however much credit there is; all of it arrives in the end."""
    with BrokenBroker(credit=WINDOW) as broker, brokers.connect(broker.url, timeout=PATIENCE) as connection:
        thread = hold_up(broker, connection, SIZE, MANY)
        eventually(lambda: threads_in("send", "post", "wait") > 0, "who sends waits")
        assert thread.is_alive()
        broker.hear()
        broker.until(lambda: len({fields[1] for fields in broker.got(TRANSFER) if fields[1] is not None}) == MANY)
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("goes_on", [False, True])
def test_credit_for_a_broker_that_does_not_read(goes_on: bool) -> None:
    """It gets none back for what was settled until it has read that; if it goes on then, it had no credit."""
    got: SimpleQueue[Any] = SimpleQueue()
    with (
        BrokenBroker(credit=WINDOW) as broker,
        brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection,
    ):
        connection.consume(queue("q"), lambda delivery: (delivery.accept(), got.put(delivery))[0], prefetch=5)
        ((channel, handle),) = broker.links.values()
        thread = hold_up(broker, connection, SIZE, MANY)
        eventually(lambda: threads_in("send", "post", "wait") > 0, "who sends waits")
        eventually(lambda: is_unread(connection), "so much waits that nothing is given back")
        broker.write(*(message(channel, handle, number) for number in range(5)))
        for _ in range(5):
            got.get(timeout=PATIENCE)
        given = len(broker.got(FLOW))
        if goes_on:
            broker.write(message(channel, handle, 5))
            eventually(lambda: connection.state is not ConnectionState.CONNECTED, "it is over")
            broker.hear()
        else:
            broker.hear()
            broker.until(lambda: len(broker.got(FLOW)) > given and broker.got(FLOW)[-1][6] == 5)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_credit_while_a_session_takes_no_more_messages() -> None:
    """Who consumes goes on, as it may be what makes room for what is to be sent."""
    got: SimpleQueue[Any] = SimpleQueue()
    with (
        BrokenBroker(credit=WINDOW, window=3) as broker,
        brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection,
    ):
        connection.consume(queue("q"), lambda delivery: (delivery.accept(), got.put(delivery))[0], prefetch=1)
        ((channel, handle),) = broker.links.values()
        for _ in range(30):
            connection.send(text(queue("elsewhere"), "x" * SIZE))
        for number in range(3):
            given = len(broker.got(FLOW))
            broker.write(message(channel, handle, number))
            got.get(timeout=PATIENCE)
            broker.until(lambda given=given: len(broker.got(FLOW)) > given)  # type: ignore[misc]


def test_a_link_that_ends_while_a_session_takes_no_more_messages() -> None:
    """What had not gone out on it holds up nothing once the session takes messages again."""
    with (
        BrokenBroker(window=3) as broker,
        brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection,
    ):
        broker.leaves_out = {DETACH}  # the broker begins to detach
        sent = [connection.send(text(queue("q"), "x" * 200_000)) for _ in range(12)]
        broker.until(lambda: len(broker.got(TRANSFER)) == 3)
        ((channel, handle),) = broker.links.values()
        gone = Described(ulong(0x1D), [symbol("amqp:resource-deleted"), "gone"])
        broker.write(frame(DETACH, uint(handle), True, gone, channel=channel))
        with pytest.raises(SendFailedError, match="gone"):
            sent[0].result(PATIENCE)
        broker.until(lambda: len(broker.links) == 2)  # for the messages that were not begun
        broker.write(frame(FLOW, uint(3), uint(WINDOW), uint(0), uint(WINDOW), channel=channel))
        broker.until(lambda: len(broker.got(TRANSFER)) > 3)


def test_a_broker_that_wants_its_credit_back_while_a_session_takes_no_more_messages() -> None:
    """It gets it once the last message has gone out, and may give it again."""
    with (
        BrokenBroker(window=3) as broker,
        brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection,
    ):
        for _ in range(4):
            connection.send(text(queue("q")))
        broker.until(lambda: len(broker.got(TRANSFER)) == 3)
        ((channel, handle),) = broker.links.values()
        state = [uint(3), uint(WINDOW), uint(0), uint(WINDOW)]
        broker.write(
            frame(FLOW, uint(3), uint(0), *state[2:], uint(handle), uint(3), uint(7), None, True, channel=channel)
        )
        broker.write(frame(FLOW, *state, channel=channel))
        broker.until(lambda: broker.got(FLOW))
        assert len(broker.got(TRANSFER)) == 4
        assert broker.got(FLOW)[-1][5:7] == [10, 0]
        broker.write(frame(FLOW, *state, uint(handle), uint(10), uint(1), channel=channel))
        connection.send(text(queue("q")))
        broker.until(lambda: len(broker.got(TRANSFER)) == 5)


def test_a_broker_that_pings_and_does_not_read() -> None:
    """What it is answered with is bounded."""

    def flood() -> None:
        client, _ = listener.accept()
        with client, suppress(OSError):  # it has had enough
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(4096)
            key = next(line for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
            accept = b64encode(sha1(key.split(b":")[1].strip() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            client.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Protocol: amqp\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            )
            while True:
                client.sendall((b"\x89\x7d" + b"x" * 125) * 1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        with pytest.raises(ConnectionFailedError, match=r"keeps writing and does not read: 1\d{7} octets wait"):
            brokers.connect(f"amqp+ws://127.0.0.1:{listener.getsockname()[1]}", timeout=150)  # they take processor time
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("late", "durable"),
    [
        ({ATTACH, DETACH, END}, None),
        ({BEGIN, ATTACH, DETACH, END}, None),
        ({BEGIN, ATTACH, DETACH, END}, "lasting"),
    ],
)
def test_a_consumer_that_is_answered_too_late(late: set[int], durable: str | None) -> None:
    """It ends for the broker too, which would else send it messages that nobody takes; the connection goes on."""
    with (
        BrokenBroker() as broker,
        brokers.connect(f"{broker.url}?clientId=me", timeout=1.0, reconnect=False) as connection,
    ):
        broker.leaves_out = late
        with pytest.raises(BrokerError, match=r"did not answer within 1\.0 s"):
            connection.consume(topic("t"), lambda delivery: None, durable_name=durable)
        ((channel, (name, handle, *_)),) = ((on, fields) for kind, on, fields in broker.received if kind == ATTACH)
        if BEGIN in late:
            assert not broker.got(END)
            broker.write(begin(channel, answers=channel))
        broker.write(attach(channel, int(handle), str(name)))
        if durable is not None:
            broker.until(lambda: broker.got(DETACH))
            broker.write(frame(DETACH, handle, channel=channel))
        broker.until(lambda: broker.got(END))
        broker.write(frame(END, channel=channel))
        connection.send(text(queue("q")))
        broker.until(lambda: len(broker.got(ATTACH)) == 2)
        assert connection.state is ConnectionState.CONNECTED


def answered(channel: int, number: int, state: Any) -> bytes:
    """Write the frame that settles a message with a state."""
    return frame(DISPOSITION, True, uint(number), uint(number), True, state, channel=channel)


def state(code: int, *fields: Any) -> Described:
    """Make a delivery state."""
    return Described(ulong(code), list(fields))


ACCEPTED = state(0x24)

NO_OUTCOMES = {
    "an unknown one": state(0x99),
    "a declared transaction": state(0x33, b"t"),
    "within a transaction that is none": state(0x34, None, ACCEPTED),
    "within a transaction, none": state(0x34, b"t"),
    "within a transaction, an unknown one": state(0x34, b"t", state(0x99)),
    "within a transaction, not yet one": state(0x34, b"t", state(0x23, uint(0), ulong(0))),
    "within another transaction": state(0x34, b"another", ACCEPTED),
}
"""What a broker may answer to a message that does not say that it took it."""


@pytest.mark.parametrize("what", NO_OUTCOMES)
def test_a_message_that_is_answered_without_an_outcome(what: str) -> None:
    """It does not count as accepted, nor as refused."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        broker.on_transfer = lambda channel, number: broker.write(answered(channel, number, NO_OUTCOMES[what]))
        error = connection.send(text(queue("q"))).exception(PATIENCE)
        assert isinstance(error, SendFailedError)
        assert not error.is_known


def test_a_message_that_is_answered_without_an_outcome_at_first() -> None:
    """Its sender waits for the outcome."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        first = frame(DISPOSITION, True, uint(0), uint(0), False, state(0x34, b"t"))
        broker.on_transfer = lambda channel, number: broker.write(first, answered(channel, number, ACCEPTED))
        connection.send(text(queue("q"))).result(PATIENCE)


def answering(broker: BrokenBroker, *states: Described) -> Callable[[int, int], None]:
    """Return what answers the steps of a transaction: its beginning, messages and end."""
    return lambda channel, number: broker.write(answered(channel, number, states[number]))


@pytest.mark.parametrize("what", NO_OUTCOMES)
def test_a_message_of_a_transaction_that_is_answered_without_an_outcome(what: str) -> None:
    """The commit names it as one of which it is not known whether it was accepted."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        broker.on_transfer = answering(broker, state(0x33, b"t"), NO_OUTCOMES[what], ACCEPTED, state(0x33, b"u"))
        transaction = connection.begin()
        transaction.send(text(queue("q")))
        (refused,) = transaction.commit().result(PATIENCE)
        assert not refused.error.is_known


@pytest.mark.parametrize("answer", [ACCEPTED, state(0x34, b"t", ACCEPTED), state(0x34, b"t", ACCEPTED, None)])
def test_a_message_of_a_transaction_that_is_accepted(answer: Described) -> None:
    """Whether the broker names the transaction or not."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        broker.on_transfer = answering(broker, state(0x33, b"t"), answer, ACCEPTED, state(0x33, b"u"))
        transaction = connection.begin()
        transaction.send(text(queue("q")))
        assert transaction.commit().result(PATIENCE) == ()


@pytest.mark.parametrize("what", [*NO_OUTCOMES, "within its transaction"])
def test_a_commit_that_is_answered_without_an_outcome(what: str) -> None:
    """It may have been carried out, so it does not count as done, and the connection ends."""
    states = NO_OUTCOMES | {"within its transaction": state(0x34, b"t", ACCEPTED)}
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        broker.on_transfer = answering(broker, state(0x33, b"t"), ACCEPTED, states[what], state(0x33, b"u"))
        transaction = connection.begin()
        transaction.send(text(queue("q")))
        with pytest.raises(ConnectionLostError):
            transaction.commit().result(PATIENCE)
        eventually(lambda: connection.state is ConnectionState.LOST, "it ends")


def test_a_subscription_that_ends_too_late() -> None:
    """The answer to its end is not taken for the end of the one of its name that came after it."""
    got: SimpleQueue[Any] = SimpleQueue()
    with (
        BrokenBroker() as broker,
        brokers.connect(f"{broker.url}?clientId=me", timeout=1.0, reconnect=False) as connection,
    ):
        broker.leaves_out = {DETACH, END}
        first = connection.consume(topic("t"), got.put, durable_name="lasting")
        before = broker.links["lasting"]
        first.close()
        broker.leaves_out, broker.offset = set(), 10
        connection.consume(topic("t"), got.put, durable_name="lasting")
        after = broker.links["lasting"]
        broker.write(frame(DETACH, uint(before[1]), False, channel=before[0]), frame(END, channel=before[0]))
        broker.write(message(*after, 0, b"for the second"))
        assert got.get(timeout=PATIENCE).message.body == b"for the second"


def test_a_temporary_queue_that_is_made_too_late() -> None:
    """It ends for the broker too."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=1.0, reconnect=False) as connection:
        broker.leaves_out = {ATTACH}
        with pytest.raises(NoAnswerError, match=r"created no temporary-queue within 1\.0 s"):
            connection.temporary()
        broker.until(lambda: broker.got(DETACH))


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        ([], NoAnswerError, r"did not answer within 1\.0 s"),
        (
            [state(0x1D, symbol("amqp:unauthorized-access"), "you may not")],
            BrokerError,
            "cannot delete .*: you may not",
        ),
    ],
)
def test_a_subscription_that_is_not_deleted(answer: list[Any], error: type[Exception], why: str) -> None:
    """Who asks for it is told: it may still be there, and collect messages."""

    def refuse() -> None:
        broker.until(lambda: broker.got(DETACH))
        channel, handle = broker.links["lasting"]
        broker.write(frame(DETACH, uint(handle), True, *answer, channel=channel))

    with (
        BrokenBroker() as broker,
        brokers.connect(f"{broker.url}?clientId=me", timeout=PATIENCE if answer else 1.0, reconnect=False) as client,
    ):
        broker.leaves_out = {DETACH}
        refusing = threading.Thread(target=refuse if answer else lambda: None)
        refusing.start()
        with pytest.raises(error, match=why) as caught:
            client.unsubscribe(topic("t"), "lasting")
        refusing.join(PATIENCE)
    assert type(caught.value) is error


@pytest.mark.parametrize("declared", [[uint(2**32 - 1)], [], [None], ["t"]])
def test_transactions_without_an_id(declared: list[Any]) -> None:
    """What names no transaction is none; a number would else be taken for so many octets."""
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        broker.on_transfer = lambda channel, number: broker.write(
            frame(
                DISPOSITION, True, uint(number), uint(number), True, Described(ulong(0x33), declared), channel=channel
            )
        )
        transaction = connection.begin()
        transaction.send(text(queue("q")))
        with pytest.raises(SendFailedError, match="the broker declared no transaction"):
            transaction.commit().result(PATIENCE)


def test_an_answer_that_comes_while_the_connection_ends() -> None:
    """Who waits for a commit hears that it was lost, though the answer to its first step is there to be read."""
    asked: SimpleQueue[tuple[int, int]] = SimpleQueue()
    with BrokenBroker() as broker, brokers.connect(broker.url, timeout=PATIENCE, reconnect=False) as connection:
        assert isinstance(connection, AmqpConnection)
        broker.on_transfer = lambda channel, number: asked.put((channel, number))
        transaction = connection.begin()
        transaction.send(text(queue("q")))
        committed = transaction.commit()
        channel, number = asked.get(timeout=PATIENCE)
        session, declared = connection._current(), Described(ulong(0x33), [b"t"])
        wake, reader = session._waker.wake, session._thread
        assert reader is not None

        def let_it_read() -> None:
            session.lock.release()
            wake()
            reader.join(PATIENCE)

        session.lock.acquire()
        broker.write(frame(DISPOSITION, True, uint(number), uint(number), True, declared, channel=channel))
        assert select([session._socket], [], [], PATIENCE)[0]
        session._waker.wake = let_it_read  # type: ignore[method-assign]  # when it has ended, and nobody was told yet
        session.drop()
        with pytest.raises(ConnectionLostError):
            committed.result(PATIENCE)


def test_a_login_that_is_asked_for_twice() -> None:
    """The password goes out once."""
    said = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def ask() -> None:
            nonlocal said
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(SASL_HEADER + pack(Performative.MECHANISMS, "PLAIN") * 1000)
                while octets := client.recv(4096):
                    said += octets

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        with pytest.raises(ConnectionFailedError, match="the broker sent mechanisms, which PLAIN does not expect here"):
            brokers.connect(f"amqp://me:secret@127.0.0.1:{listener.getsockname()[1]}", timeout=PATIENCE)
        thread.join(PATIENCE)
    assert said.count(b"secret") <= 1


SEEDS = 20
SHORT = 0.1


def test_answers_with_mistakes(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a broker says, a program gets errors of `brokers`, in time, and its log no traceback."""
    with Listener(Broker(), port=0) as listener:
        for seed in range(SEEDS):
            with (
                mutating(listener.port, random.Random(seed)) as url,
                suppress(BrokerError, TimeoutError),
                brokers.connect(url, timeout=SHORT, reconnect=False) as connection,
            ):
                use(connection)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def use(connection: brokers.Connection) -> None:
    """Do all that a program does."""
    connection.consume(queue("q"), lambda delivery: delivery.accept(), prefetch=3)
    for _ in range(2):
        connection.send(text(queue("q"))).result(SHORT)
    transaction = connection.begin()
    transaction.send(text(queue("r")))
    transaction.commit().result(SHORT)
    connection.temporary()
