"""The SMQP server under attack: by who is not logged in, and by accounts that want more than their rights."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from queue import SimpleQueue

import pytest
import trustme
from ports import nobody
from smqp_kit import CREATED, PATIENCE, From, Raw, Running, eventually, publication, running

import brokers
from brokers import Message, MessageType, Property, PropertyType, queue
from brokers.message import Properties
from brokers.smqp.client import Client, ClientOptions
from brokers.smqp.protocol.replies import RefusedError
from brokers.smqp.server import Right
from brokers.smqp.server.accounts import Password

MEBIBYTE = 1 << 20


def announced(command: str, octets: int) -> str:
    """Begin a message with so many octets of data, none of which is there yet."""
    return f"{command}\r\n{CREATED}\r\n\r\nContent-Type: x/y\r\nContent-Length: {octets}\r\n\r\n"


def settled(clients: list[Raw]) -> None:
    """Wait until all that was sent was read."""
    for client in clients:
        client.send("\r\n.\r\nNOOP\r\n")
    for client in clients:
        while client.reply() != ["200 OK"]:
            pass


def test_nothing_of_a_stranger_is_kept() -> None:
    """Six connections that announce a message of 15 MiB before a login cost no memory: all of it is passed over."""
    with running() as server:
        server.accounts("alice")
        server.topics("/t")
        strangers = [server.raw() for _ in range(6)]
        block = b"x" * MEBIBYTE
        tracemalloc.start()
        try:
            for stranger in strangers:
                stranger.send(announced("PUB MESSAGE /t 1", 15 * MEBIBYTE))
            for _ in range(15):
                for stranger in strangers:
                    stranger.send(block)
            settled(strangers)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2 * MEBIBYTE, peak
        assert strangers[0].login("alice", listen=False).publish("/t", "1", data="x" * MEBIBYTE) == 1


def test_attributes_of_a_stranger_are_not_kept() -> None:
    """Nor is the header of a message, however many lines it has; it ends where it says, and what follows is read."""
    with running() as server:
        strangers = [server.raw() for _ in range(20)]
        lines = "".join(f"X-{number}: {'x' * 4000}\r\n" for number in range(200))
        tracemalloc.start()
        try:
            for stranger in strangers:
                stranger.send("PUB MESSAGE /t 1\r\n" + lines)
            for stranger in strangers:
                stranger.send("\r\nContent-Type: x/y\r\nContent-Length: 5\r\n\r\n\r\n.\r\n\r\n.\r\nNOOP\r\n")
                assert stranger.reply() == ["401 Unauthorized"]
                assert stranger.reply() == ["200 OK"]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * MEBIBYTE, peak


def test_a_stranger_that_does_not_read_is_not_read_from() -> None:
    """Few answers wait for it, and few octets of what it sends."""
    with running() as server:
        stranger = server.raw()
        stranger.socket.settimeout(0.5)
        sent = 0
        try:
            while sent < 64 * MEBIBYTE:
                sent += stranger.socket.send(b"NOOP\r\n" * 10_000)
        except TimeoutError:
            pass
        (session,) = server.server.engine.core.sessions.values()
        assert len(session.reader) <= 8 * 1024
        assert session.unsent <= 8 * 1024


@pytest.fixture
def market() -> Iterator[Running]:
    """Run a server for JMS, with a victim and an attacker that have the rights which `docs/smqp.md` shows."""
    with running() as server:
        server.accounts("victim", "attacker", rights=Right.NONE)
        server.server.administer(lambda admin: admin.prepare_for_jms())
        for name in ("victim", "attacker"):
            for path in ("/queue", "/topic", "/temporary"):
                server.grant(name, path, Right.ALL)
        yield server


TEMPORARY = "/temporary/queue/x1b2"


def test_replies_are_for_who_asked(market: Running) -> None:
    """A temporary queue is its session's: no other finds it, and no other account reads it, even knowing its name.
    Whoever was told the name can send there, and its owner has that."""
    victim, attacker = market.client("victim"), market.client("attacker")
    victim.data(f"CREATE TOPIC {TEMPORARY}")
    victim.data(f"SUB MESSAGE {TEMPORARY}")
    for command in ("LIST TOPIC /temporary/queue", "FIND TOPIC /temporary/*", "FIND TOPIC /temporary/queue (X)"):
        assert not [line for line in attacker.ask(command) if "x1b2" in line]
        assert TEMPORARY in victim.data("LIST TOPIC /temporary/queue")
    assert attacker.data("COUNT TOPIC /temporary/queue") == ["0"]
    assert attacker.data("SUB MESSAGE /temporary/queue/*") == []
    for command in (
        "SUB MESSAGE",
        "COUNT MESSAGE",
        "COUNT SUB",
        "REMOVE TOPIC",
        "SUB TOPIC",
        "SUB SUB",
        "GET TOPIC KEY",
    ):
        assert attacker.code(f"{command} {TEMPORARY}") == 401, command
    assert attacker.code(f"LIST MESSAGE {TEMPORARY}") == 404
    for number in range(4):
        sent = attacker.publish(TEMPORARY, str(number))
        assert attacker.code(f"GET MESSAGE {TEMPORARY} {sent}") == 401
        assert victim.smuid() == sent
    assert attacker.notify.is_silent()


def test_no_way_around_the_owner_of_a_temporary_topic(market: Running) -> None:
    """No virtual topic leads there, none is below it, and it keeps its name; changes of it are not told to others."""
    victim, attacker = market.client("victim"), market.client("attacker")
    for resource in ("TOPIC", "SUB"):
        attacker.data(f"SUB {resource} /temporary/*")
        attacker.data(f"SUB {resource} /queue/*")
    victim.data(f"CREATE TOPIC {TEMPORARY}")
    victim.data(f"SUB MESSAGE {TEMPORARY}")
    assert attacker.code(f"CREATE TOPIC /queue/v > {TEMPORARY}") == 405
    assert attacker.code(f"CREATE TOPIC {TEMPORARY}/below") == 405
    assert attacker.code(f"SET TOPIC NAME {TEMPORARY} /queue/mine") == 401
    assert attacker.code(f"SET TOPIC KEYWORD {TEMPORARY} (X)") == 401
    assert attacker.code(f"CREATE TOPIC {TEMPORARY}") == 401
    assert victim.code(f"CREATE TOPIC {TEMPORARY}/below") == 405
    assert victim.code(f"SET TOPIC NAME {TEMPORARY} /queue/mine") == 405
    attacker.data("CREATE TOPIC /queue/mine")
    assert attacker.notified()[0] == "NOTIFY TOPIC /queue/mine"
    assert attacker.code("SET TOPIC NAME /queue/mine /temporary/queue/mine") == 405
    victim.data(f"REMOVE TOPIC {TEMPORARY}")
    assert attacker.notify.is_silent()


def test_sessions_of_one_account_do_not_find_each_others_temporary_topics(market: Running) -> None:
    """They can be told a name, as a consumer is by its connection; wildcards cover one's own alone."""
    one, other = market.client("victim"), market.client("victim")
    other.data("SUB MESSAGE /temporary/*")
    one.data(f"CREATE TOPIC {TEMPORARY}")
    assert other.data("LIST TOPIC /temporary/queue") == []
    sent = market.client("attacker").publish(TEMPORARY, "1")
    assert other.notify.is_silent()
    other.data(f"SUB MESSAGE {TEMPORARY}")
    assert other.smuid() == sent


def test_a_virtual_topic_gives_no_rights(market: Running) -> None:
    """Whoever may create topics somewhere can lead one of them to any other, and has there the rights that he had."""
    market.topics("/orders")
    market.grant("victim", "/orders", Right.ALL)
    market.grant("attacker", "/orders", Right.SUBSCRIBE)
    victim, attacker = market.client("victim"), market.client("attacker")
    attacker.data("CREATE TOPIC /queue/mine > /orders")
    assert attacker.code(*publication("PUB MESSAGE /queue/mine 1")) == 401
    attacker.data("SUB MESSAGE /queue/mine")
    assert victim.publish("/orders", "1") == attacker.smuid()
    assert attacker.code(*publication("PUB MESSAGE /queue/mine 2")) == 401
    assert attacker.code("REMOVE TOPIC /queue/mine") == 200


def test_what_only_the_operator_can_make_stays(market: Running) -> None:
    """Nobody removes or renames the places of queues and temporary topics, whose kind no client can make again."""
    attacker = market.client("attacker")
    for path in ("/queue", "/topic", "/temporary/queue", "/temporary/topic"):
        taken = "/topic/taken" if path == "/queue" else "/queue/taken"
        assert attacker.code(f"REMOVE TOPIC {path}") == 405
        assert attacker.code(f"SET TOPIC NAME {path} {taken}") == 405
    assert attacker.code("SET TOPIC NAME /temporary /queue/taken") == 405
    attacker.data("CREATE TOPIC /queue/mine")
    attacker.data("SET TOPIC NAME /queue/mine /queue/other")
    attacker.data("REMOVE TOPIC /queue/other")


def test_what_is_refused_leaves_nothing(market: Running) -> None:
    """A path for which there is no room is not made in part, and nobody is told of it."""
    victim, attacker = market.client("victim"), market.client("attacker")
    victim.data("SUB TOPIC /queue/*")
    there = len(market.server.engine.core.directory)
    market.server.administer(lambda admin: admin.set_options(max_topics=there + 2))
    assert attacker.code("CREATE TOPIC /queue/a/b/c") == 414
    assert victim.data("LIST TOPIC /queue") == []
    assert victim.notify.is_silent()
    with pytest.raises(RefusedError):
        market.server.administer(lambda admin: admin.create_topic("/queue/a/b/c"))
    assert len(market.server.engine.core.directory) == there
    attacker.data("CREATE TOPIC /queue/a/b")


def test_narrow_rights_are_enough_for_temporary_topics(market: Running) -> None:
    """Who may create and publish there can receive what comes to its own; the name is nobody's before and after."""
    market.grant("victim", "/temporary", Right.TOPICS | Right.PUBLISH)
    victim = market.client("victim")
    victim.data(f"CREATE TOPIC {TEMPORARY}")
    victim.data(f"SUB MESSAGE {TEMPORARY}")
    assert victim.publish(TEMPORARY, "1") == victim.smuid()
    victim.close()
    eventually(lambda: not market.server.engine.core.directory.owners)
    assert market.client("attacker").code(f"SUB MESSAGE {TEMPORARY}") == 404


def test_what_nobody_may_see_is_not_announced(market: Running) -> None:
    """A topic at which an account has no right is as if it were not there, also where it subscribed to those above."""
    market.topics("/queue/closed")
    attacker = market.client("attacker")
    attacker.data("SUB TOPIC /queue/*")
    attacker.data("SUB SUB /queue/*")
    market.grant("attacker", "/queue/closed", Right.NONE)
    victim = market.client("victim")
    victim.data("CREATE TOPIC /queue/closed/plan")
    victim.data("SUB MESSAGE /queue/closed/plan")
    assert attacker.notify.is_silent()


def test_replies_are_to_messages_of_the_topic_where_one_may_reply() -> None:
    """The message named is looked up: at the topic named, with the Cmuid named. So no right at one topic, or where
    nothing is, leads to the login topics of others."""
    with running() as server:
        server.accounts("alice", "mallory")
        server.topics("/open", "/closed")
        server.grant("mallory", "/closed", Right.NONE)
        alice, mallory = server.client("alice"), server.client("mallory", listen=False)
        alice.data("SUB MESSAGE /accounts/alice")
        closed, opened = alice.publish("/closed", "C1"), alice.publish("/open", "O1")
        mallory.publish("/open", "M1")

        def reply(topic: str, smuid: int, cmuid: str) -> int:
            ids = f"Smuid: mq.example/{smuid}", f"Cmuid: {cmuid}"
            return mallory.code(*publication(f"PUB REPLY {topic} {topic[1:]}{smuid}", *ids, data="forged"))

        assert reply("/open", closed, "alice/alice0001/C1") == 404
        assert reply("/open", 99, "alice/alice0001/X") == 404
        assert reply("/open", opened, "alice/alice0001/C1") == 404
        assert reply("/open", opened + 1, "alice/alice0001/O1") == 404
        assert reply("/closed", closed, "alice/alice0001/C1") == 401
        assert alice.notify.is_silent()
        assert reply("/open", opened, "alice/alice0001/O1") == 200
        assert alice.received()[-1] == "forged"


GUESSERS = 100


def test_guessing_keeps_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    """While a hundred strangers guess, who logs in from elsewhere, or has done so from there before, is let in at once.
    After ten wrong passwords from an address most are refused unseen; the log names address and account."""
    with running(scrypt_cost=2**14) as server:
        server.accounts("alice", "bob")
        server.client("alice", listen=False)
        strangers = [server.raw() for _ in range(GUESSERS)]
        for stranger in strangers:
            assert stranger.code("LOGIN bob CLEAR/1.0") == 200
        alice, bob = server.raw(), From("127.0.0.2", server.address)
        for stranger in strangers:
            stranger.send("PASS bob guess\r\n")
        begun = time.monotonic()
        alice.login("alice", listen=False)
        bob.login("bob", listen=False)
        took = time.monotonic() - begun
        codes = [stranger.reply()[0][:3] for stranger in strangers]
        bob.close()
        one = Password.of("pw", 2**14)
        begun = time.monotonic()
        assert one.matches("pw")
        each = time.monotonic() - begun
    assert set(codes) == {"401", "503"}
    assert codes.count("401") < 20
    assert took < max(2.0, 15 * each)
    assert "a login from 127.0.0.1 as 'bob' was refused" in caplog.text
    assert "logins from 127.0.0.1 are refused unseen" in caplog.text


def test_silent_strangers_make_room(caplog: pytest.LogCaptureFixture) -> None:
    """Of connections from one address that do not log in there are so many; once they have had the time to, one more
    ends the first of them. Who is logged in stays."""
    with running(max_strangers=3) as server:
        server.accounts("alice")
        logged_in = [server.client("alice", listen=False) for _ in range(5)]
        silent = [server.raw() for _ in range(3)]

        def is_first_ended() -> bool:
            server.client("alice", listen=False).close()
            return not silent[0].is_silent(0.01)

        eventually(is_first_ended)
        assert silent[0].reply() == ["408 Request timeout"]
        assert silent[0].is_over()
        assert [each.code("NOOP") for each in logged_in] == [200] * 5
    assert (
        "no room for more SMQP clients that have not logged in: 1 were ended, the last for one from 127.0.0.1"
        in caplog.text
    )


def test_silent_strangers_of_many_addresses_make_room() -> None:
    """Where strangers of any number of addresses have all the room there is, who logs in is let in at once, and those
    go that have waited longest. Where all are logged in, one more is turned away."""
    with running(max_sessions=6, max_strangers=2, login_timeout=600.0) as server, ExitStack() as stack:
        server.accounts("alice")
        strangers = [From(f"127.0.0.{number}", server.address) for number in range(2, 12)]
        for stranger in strangers:
            stack.callback(stranger.close)
        inside = [server.client("alice", listen=False) for _ in range(6)]
        assert [each.code("NOOP") for each in inside] == [200] * 6
        assert strangers[0].reply() == ["408 Request timeout"]
        assert strangers[-1].is_over() or strangers[-1].reply()
        assert server.raw().banner.startswith("SMQP/1.0 Not Available")
        assert [each.code("NOOP") for each in inside] == [200] * 6


def test_nobody_is_believed_to_be_another(market: Running) -> None:
    """A JMSXUserID that a publisher sets is handed over only where it is the account that the server tells."""
    host, port = market.address
    victim = brokers.connect(f"smqp://victim:pw@{host}:{port}")
    attacker = brokers.connect(f"smqp://attacker:pw@{host}:{port}")
    arrived: SimpleQueue[Message] = SimpleQueue()
    with victim, attacker:
        victim.consume(queue("q"), lambda delivery: arrived.put(delivery.message), auto_accept=True)
        for name in ("victim", "attacker"):
            said = Properties([Property("JMSXUserID", PropertyType.STRING, name)])
            text = Message(message_type=MessageType.TEXT, body="x", destination=queue("q"), properties=said)
            attacker.send(text).result(PATIENCE)
        users = [arrived.get(timeout=PATIENCE).properties.text("JMSXUserID") for _ in range(2)]
    assert users == [None, "attacker"]


def test_which_accounts_there_are_is_not_told() -> None:
    """By default an unknown account and a wrong password are answered alike."""
    with running() as server:
        server.accounts("alice")
        stranger = server.raw()
        alike = [
            (stranger.ask(f"LOGIN {name} CLEAR/1.0"), stranger.ask(f"PASS {name} x")) for name in ("alice", "none")
        ]
        assert alike[0] == alike[1] == (["200 OK"], ["401 Unauthorized"])


def test_the_server_tries_few_ports_of_a_client(caplog: pytest.LogCaptureFixture) -> None:
    """None of the system's, and none after three in a row where no message was taken; those at which nobody is are in
    the log."""
    with running() as server:
        server.accounts("alice")
        client = server.client("alice", listen=False)
        for port in (1, 22, 25, 1023):
            assert client.code(f"SET NOTIFY PORT {port}") == 403
        with ExitStack() as stack:
            free = [stack.enter_context(nobody()) for _ in range(5)]
            assert [client.code(f"SET NOTIFY PORT {port}") for port in free] == [200, 200, 200, 403, 403]
            eventually(lambda: f"alice is unreachable at port {free[2]} of 127.0.0.1" in caplog.text)
        server.client("alice").close()


def test_what_a_port_does_is_not_told() -> None:
    """Whether somebody listens at a port, nobody does, or nothing comes back: the answer comes at once and is the same,
    and so are those to more ports."""
    with running(connect_timeout=600.0) as server, ExitStack() as stack:
        server.accounts("alice")
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        full = stack.enter_context(socket.socket())  # takes no connection beyond those that wait in it already
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        for port in (listening, stack.enter_context(nobody()), full.getsockname()[1]):
            client = server.client("alice", listen=False)
            begun = time.monotonic()
            assert [client.code(f"SET NOTIFY PORT {port}") for _ in range(5)] == [200, 200, 200, 403, 403]
            assert client.code("NOOP") == 200
            assert time.monotonic() - begun < 5


def test_a_server_that_closes_leaves_nothing_pending(caplog: pytest.LogCaptureFixture) -> None:
    """Also while passwords wait to be compared: what was begun in the background ends with it."""
    with running(scrypt_cost=2**14) as server:
        server.accounts("alice")
        strangers = [server.raw() for _ in range(30)]
        for stranger in strangers:
            stranger.send("LOGIN alice CLEAR/1.0\r\nPASS alice guess\r\n")
        eventually(lambda: "was refused" in caplog.text)
        assert server.server._comparing
    assert asyncio.all_tasks(server.server._loop) == set()


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a server and a client use."""
    authority = trustme.CA()
    servers, clients = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(servers)
    authority.configure_trust(clients)
    return servers, clients


def test_tls_handshakes_make_room(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Who connects for SMQPS and never sets up TLS is one of so many from an address; the first of them end."""
    with running(max_strangers=5) as server, ExitStack() as stack:
        address = server.server.listen("127.0.0.1", 0, tls=contexts[0])
        silent = [stack.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(30)]
        with (
            socket.create_connection(address, PATIENCE) as plain,
            contexts[1].wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            assert secured.recv(4) == b"SMQP"
        assert [each.recv(1) for each in silent[:20]] == [b""] * 20
        assert len(server.server._handshakes.tasks) <= 10


def test_handshakes_that_fail(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """What is no TLS, or breaks off, is ended at once; nothing is said in clear, and the next client is served."""
    with running() as server:
        server.accounts("alice")
        server.topics("/t")
        address = server.server.listen("127.0.0.1", 0, tls=contexts[0])
        for begin in (b"LOGIN alice pw\r\n", b"\x16\x03\x01", b""):
            with socket.create_connection(address, PATIENCE) as client:
                client.sendall(begin)
                client.shutdown(socket.SHUT_WR)
                said = b"".join(iter(lambda: client.recv(4096), b""))
            assert b"SMQP" not in said
        eventually(lambda: not server.server._handshakes.tasks, "nothing is left")
        with Client(*address, account="alice", password="pw", options=ClientOptions(tls=contexts[1])) as honest:
            honest.publish("/t", "x")


def test_closing_amid_handshakes(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """A server that closes does not wait for them."""
    began = time.monotonic()
    with running() as server:
        client = socket.create_connection(server.server.listen("127.0.0.1", 0, tls=contexts[0]), PATIENCE)
        eventually(lambda: bool(server.server._handshakes.tasks), "it is there")
    assert time.monotonic() - began < PATIENCE / 2
    assert client.recv(100) == b""
    client.close()
