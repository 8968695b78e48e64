"""The server against clients that do what they should not, and with a store that fails."""

from __future__ import annotations

import socket
import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from smqp_kit import CREATED, Raw, Running, Wire, eventually, prepared, publication, running

from brokers import DestinationKind, MessageType, Property, PropertyType, topic
from brokers.smqp.adapter.messages import to_message
from brokers.smqp.client import Received
from brokers.smqp.protocol.dialect import STRICT
from brokers.smqp.protocol.messages import Attribute, Attributes, SmqpLimits, SmqpMessage, SmqpSection
from brokers.smqp.protocol.replies import SmqpStoreError
from brokers.smqp.server.actions import Action, NotifyWrite, Write

MEBIBYTE = 1024 * 1024


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server with two accounts that may do everything."""
    with running() as server:
        server.accounts("alice", "bob")
        server.topics("/t")
        yield server


def unharmed(server: Running) -> None:
    """See that others are served as ever."""
    other = server.client("bob")
    other.data("SUB MESSAGE /t")
    marker = other.publish("/t", "marker")
    while other.smuid() != marker:
        pass


def test_a_line_of_a_mebibyte(server: Running) -> None:
    """It is refused with 414, before a login and after, and the connection goes on."""
    client = server.raw()
    for _ in range(2):
        client.send(b"x" * MEBIBYTE + b"\r\n")
        assert client.reply() == ["414 Resource too large"]
        if client.code("NOOP") == 200 and client.code("COUNT TOPIC /t") == 401:
            client.login("alice", listen=False)
    assert client.data("COUNT TOPIC /t") == ["0"]
    head = ["PUB MESSAGE /t 1", CREATED, "X-Long: " + "x" * MEBIBYTE, "", "."]
    assert client.code(*head) == 414
    unharmed(server)


def six_octets(length: str) -> str:
    """Return the command for a message of six octets that states another length."""
    head = f"PUB MESSAGE /t 1\r\n{CREATED}\r\n\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
    return f"{head}24.567\r\n.\r\n\r\n"


@pytest.mark.parametrize("length", ["5", "7", "0", "-1", "6x", "99999999999999999999"])
def test_wrong_lengths(server: Running, length: str) -> None:
    """A length that is not that of the data is refused once the next end of a message came; then all goes on."""
    client = server.client("alice", listen=False)
    client.send(f"{six_octets(length)}GARBAGE\r\n.\r\nNOOP\r\n")
    assert client.reply() == ["400 Bad request"]
    while client.reply() != ["200 OK"]:  # what was garbage may have been taken for commands
        pass
    assert client.data("COUNT MESSAGE /t") == ["0"]
    unharmed(server)


@pytest.mark.parametrize("length", ["5", "7"])
def test_a_length_that_is_wrong_by_one(server: Running, length: str) -> None:
    """As in the draft's own examples: the message is refused, and the command that follows is answered."""
    client = server.client("alice", listen=False)
    client.send(f"{six_octets(length)}COUNT MESSAGE /t\r\n")
    assert client.reply() == ["400 Bad request"]
    assert client.reply() == ["200-OK", "200 0"]


def test_a_message_that_is_too_large_is_not_kept_in_memory() -> None:
    """It is refused when it has ended, however long it is."""
    with running(limits=SmqpLimits(message=1000)) as server:
        server.accounts("alice", "bob")
        server.topics("/t")
        client = server.client("alice", listen=False)
        head = f"PUB MESSAGE /t 1\r\n{CREATED}\r\n\r\nContent-Type: x/y\r\nContent-Length: {8 * MEBIBYTE}\r\n\r\n"
        client.send(head)
        for _ in range(8):
            client.send(b"\r\n.\r\n".ljust(MEBIBYTE, b"x"))
            session = next(each for each in server.server.engine.core.sessions.values())
            assert len(session.reader) < MEBIBYTE
        client.send("\r\n.\r\n\r\n")
        assert client.reply() == ["413 Entity too large"]
        unharmed(server)


def test_a_message_whose_client_leaves(server: Running) -> None:
    """Half a message is no message."""
    client = server.client("alice", listen=False)
    client.send(f"PUB MESSAGE /t 1\r\n{CREATED}\r\n\r\nContent-Type: x/y\r\nContent-Length: 100\r\n\r\nhalf")
    client.close()
    eventually(lambda: not server.server.engine.core.sessions)
    assert server.client("bob", listen=False).data("COUNT MESSAGE /t") == ["0"]


def test_a_client_that_does_not_read(server: Running) -> None:
    """It is not read from either, once what was written to it does not go out: answers do not pile up."""
    client = server.client("alice", listen=False)
    for number in range(20):
        client.publish("/t", str(number), data="x" * 100_000)
    client.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.socket.sendall(b"GET MESSAGE /t *\r\n" * 1_000_000)
    unharmed(server)
    client.close()
    unharmed(server)


@pytest.fixture
def written(server: Running, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each turn of the server's loop adds how many replies and acknowledgements it writes."""
    numbers: list[int] = []
    engine, flush = server.server.engine, server.server.engine.flush

    def noted() -> list[Action]:
        actions = flush()
        numbers.append(sum(isinstance(each, Write | NotifyWrite) for each in actions))
        return actions

    monkeypatch.setattr(engine, "flush", noted)
    return numbers


@pytest.mark.parametrize(("account", "most"), [("alice", 100), (None, 10)])
def test_a_client_that_sends_many_commands_at_once(
    server: Running, written: list[int], account: str | None, most: int
) -> None:
    """Only some of them are executed before others get their turn, before a login as after it; all are answered."""
    client = server.raw() if account is None else server.client(account, listen=False)
    written.clear()
    client.send("NOOP\r\n" * 1000)
    assert [client.reply() for _ in range(1000)] == [["200 OK"]] * 1000
    assert max(written) == most
    unharmed(server)


def test_a_client_that_sends_many_lines_to_the_notify_connection(server: Running, written: list[int]) -> None:
    """Few are read before others get their turn; all are answered."""
    client = server.client("alice")
    written.clear()
    client.notify.send("310\r\n" * 10_000)
    for _ in range(10_000):
        client.notify.until(b"310 ACK\r\n")
    assert max(written) < 250
    unharmed(server)


def test_a_client_that_does_not_read_notifications(server: Running) -> None:
    """They do not pile up: the oldest of those that wait are dropped."""
    server.server.administer(lambda admin: admin.set_options(max_events=10))
    deaf, name = server.client("alice"), "/t/" + "x" * 7000
    deaf.data("SUB TOPIC /t/*")
    busy = server.client("bob", listen=False)
    for _ in range(200):
        busy.send(f"CREATE TOPIC {name}\r\nREMOVE TOPIC {name}\r\n" * 10)
        for _ in range(20):
            assert busy.reply()[0][:3] == "200"
    busy.data("CREATE TOPIC /t/last")
    told = [deaf.notified()[0]]
    while told[-1] != "NOTIFY TOPIC /t/last":
        told.append(deaf.notified()[0])
    assert len(told) < 4000
    unharmed(server)


@contextmanager
def memory_within(octets: int) -> Iterator[None]:
    """Check that the memory that Python allocates never grows by more octets."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < octets
    finally:
        tracemalloc.stop()


def test_messages_that_are_too_many_for_an_answer(server: Running) -> None:
    """They are refused without being read."""
    client = server.client("alice", listen=False)
    for number in range(20):
        client.publish("/t", str(number), data="x" * MEBIBYTE)
    with memory_within(4 * MEBIBYTE):
        assert client.code("GET MESSAGE /t *") == 414
    assert client.ask("GET MESSAGE /t 1-2") == ["200-OK", "200 2"]


def test_one_cmuid_for_many_messages(server: Running) -> None:
    """At different topics they are different messages; what came before is not read for each."""
    topics = [f"/t/t{number}" for number in range(20)]
    server.topics(*topics)
    client = server.client("alice", listen=False)
    numbers = [client.publish(topic, "same", data="x" * MEBIBYTE) for topic in topics]
    with memory_within(4 * MEBIBYTE):
        assert client.publish("/t", "same") == numbers[-1] + 1
        assert client.publish(topics[0], "same") == numbers[0]


def test_what_only_the_server_writes(server: Running) -> None:
    """A publisher can forge neither how often a message was delivered, nor a receipt, nor whom it replies to."""
    client = server.client("bob")
    client.data("SUB MESSAGE /t")
    forged = ("X-Delivery-Count: 7", "x-receipt-cmuid: bob/bob0001/1", "X-In-Reply-To-Smuid: mq.example/1", "X-Own: 1")
    server.client("alice", listen=False).publish("/t", "1", *forged)
    lines = client.received()
    assert "X-Own: 1" in lines
    assert not [line for line in lines if line.lower().startswith(("x-delivery", "x-receipt", "x-in-reply"))]


def test_messages_that_are_names_only(server: Running) -> None:
    """They have room as any others do: what counts is what is stored."""
    server.server.administer(lambda admin: admin.set_options(max_octets=50_000))
    client = server.client("alice", listen=False)
    codes = [client.code(*publication(f"PUB MESSAGE /t {number}{'y' * 7900}")) for number in range(5)]
    assert codes == [200, 200, 200, 414, 414]


def test_many_keywords_to_find(server: Running) -> None:
    """They are too many, as others wait while topics are searched."""
    client = server.client("alice", listen=False)
    assert client.code("SET TOPIC KEYWORD /t (BIG BLUE,RED)") == 200
    wanted = [f"w{number}" for number in range(19)]
    assert client.data(f"FIND TOPIC /* ({','.join([*wanted, 'blue'])})") == ["/t (BIG BLUE,RED)"]
    assert client.code(f"FIND TOPIC /* ({','.join([*wanted, 'x', 'blue'])})") == 414


def test_a_flood_of_acknowledgements(server: Running) -> None:
    """They count for nothing, and are answered."""
    client = server.client("alice")
    client.data("SUB MESSAGE /t")
    client.notify.send("310 ACK\r\n" * 1000)
    for _ in range(1000):
        assert (client.notify.line() or client.notify.line()) == "310 ACK"
    assert client.publish("/t", "1") == client.smuid()


def test_many_connections_that_say_nothing(server: Running) -> None:
    """They hold up nobody; they are sent away when it is time."""
    silent = [Wire(Raw.connect(server.address)) for _ in range(100)]
    unharmed(server)
    for each in silent:
        each.close()


def test_a_full_store(tmp_path: Path) -> None:
    """What does not fit is refused with 503, or its connection closed without an answer; what was answered stays, and
    all goes on once there is room."""
    with running(tmp_path / "store") as server:
        server.accounts("alice", "bob")
        server.topics("/t")
        database = server.server.engine.core.database
        client = server.client("alice", listen=False)
        kept = [client.publish("/t", str(number), data="x" * 10_000) for number in range(3)]
        pages = server.server.call(lambda: database.row("PRAGMA page_count")[0]).result()
        server.server.call(lambda: database.row(f"PRAGMA max_page_count = {pages + 2}")).result()
        try:
            assert client.code(*publication("PUB MESSAGE /t big", data="x" * 100_000)) == 503
        except EOFError:
            client = server.client("alice", listen=False)
        server.server.call(lambda: database.row("PRAGMA max_page_count = 1000000")).result()
        client = server.client("alice", listen=False)
        kept.append(client.publish("/t", "after", data="x" * 100_000))
        assert client.data("LIST MESSAGE /t") == [f"{kept[0]}-{kept[2]},{kept[3]}" if kept[3] > 4 else "1-4"]
        unharmed(server)


def test_changes_of_an_operator_that_the_store_does_not_take(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is told that they are undone."""
    with monkeypatch.context() as patch:

        def fail() -> None:
            raise sqlite3.OperationalError("database or disk is full")

        patch.setattr(server.server.engine.core.database, "commit", fail)
        with pytest.raises(SmqpStoreError, match="did not take the changes; they are undone"):
            server.accounts("carol")
    assert server.server.administer(lambda admin: admin.accounts()) == ["alice", "bob"]
    server.accounts("carol")
    unharmed(server)


def test_one_account_with_many_temporary_topics() -> None:
    """It has half of the room for them, however many sessions it has."""
    with running(max_children=6) as server:
        prepared(server)
        server.accounts("alice")
        first, second = (server.client("alice", listen=False) for _ in range(2))
        made = [first.code(f"CREATE TOPIC /temporary/queue/t{number}") for number in range(3)]
        assert made == [200, 200, 200]
        (refusal,) = second.ask("CREATE TOPIC /temporary/topic/t3")
        assert refusal.endswith("an account may have at most 3 temporary topics, so that others have room too")
        assert server.client("jms", listen=False).code("CREATE TOPIC /temporary/queue/other") == 200
        assert first.code("REMOVE TOPIC /temporary/queue/t0") == 200
        assert second.code("CREATE TOPIC /temporary/queue/t4") == 200


def test_a_store_that_is_gone() -> None:
    """Nobody is told that something was done which was not kept: the connections are closed."""
    with running() as server:
        server.accounts("alice")
        server.topics("/t")
        client = server.client("alice", listen=False)
        database = server.server.engine.core.database
        server.server.call(database._connection.close).result()
        answer = b""
        with suppress(ConnectionError):  # the server may be quicker to close than the client to send
            client.send("\r\n".join([*publication("PUB MESSAGE /t 1"), ""]))
            while data := client.socket.recv(65536):
                answer += data
        assert b"200" not in answer


def test_what_others_send_as_jms() -> None:
    """Headers and properties that cannot be are as if they were not there; nothing raises."""

    def read(*attributes: tuple[str, str], sections: tuple[SmqpSection, ...] = ()) -> object:
        content = SmqpMessage(Attributes(Attribute(*each) for each in attributes), sections)
        return to_message(Received("/topic/t", content), topic("t"), STRICT, 0)

    strange = read(
        ("Created", "yesterday"),
        ("Priority", "x"),
        ("X-JMS-Expiration", "9" * 30),
        ("X-JMS-Delivery-Mode", "٣"),
        ("X-JMS-Reply-To", "telephone:123"),
        ("X-JMS-Property-n", "int many"),
        ("X-JMS-Property-m", "color red"),
        ("X-Delivery-Count", "9" * 5000),
        sections=(SmqpSection("text/plain", b"\xff\xfe"),),
    )
    assert strange.timestamp is None  # type: ignore[attr-defined]
    assert strange.reply_to is None  # type: ignore[attr-defined]
    assert (strange.priority, strange.expiration, strange.delivery_mode) == (4, 0, None)  # type: ignore[attr-defined]
    assert strange.properties == (  # type: ignore[attr-defined]
        Property("n", PropertyType.STRING, "int many"),
        Property("m", PropertyType.STRING, "color red"),
    )
    assert not strange.redelivered  # type: ignore[attr-defined]
    assert (strange.message_type, strange.body) == (MessageType.BYTES, b"\xff\xfe")  # type: ignore[attr-defined]
    empty = read(("X-JMS-Reply-To", "queue:a"))
    assert (empty.body, empty.reply_to.kind) == (None, DestinationKind.QUEUE)  # type: ignore[attr-defined]


def test_sockets_that_reset(server: Running) -> None:
    """Connections that end by a reset, at any moment, leave nothing behind."""
    for sent in ("", "LOGIN alice CLEAR/1.0\r\n", "LOGIN alice CLEAR/1.0\r\nPASS alice pw\r\n", "PUB MESSAGE /t 1\r\n"):
        wire = Wire(Raw.connect(server.address))
        wire.send(sent)
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wire.close()
    eventually(lambda: not server.server.engine.core.sessions)
    unharmed(server)
