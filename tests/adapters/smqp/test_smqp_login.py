"""The server: connections, login and accounts, by clients that are bare sockets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from smqp_kit import PATIENCE, Clock, Listener, Running, attribute, running

from brokers.errors import ClosedError, UsageError
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, SmqpStoreError
from brokers.smqp.server import CLIENT_PORT, SERVER_PORT, Options, Right, Server
from brokers.smqp.server.accounts import Password
from brokers.smqp.server.actions import CheckPassword, Write
from brokers.smqp.server.database import Database
from brokers.smqp.server.engine import SmqpEngine
from brokers.threads.thread import future_of


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server with two accounts that may do everything."""
    with running() as server:
        server.accounts("alice", "bob")
        server.topics("/a/b")
        yield server


def test_SM_001_SM_002_default_ports() -> None:
    """The draft's ports are the defaults: 720 for the server, 721 for clients."""
    assert (SERVER_PORT, CLIENT_PORT, Options().client_port) == (720, 721, 721)


def test_SM_003_SM_004_the_server_speaks_first(server: Running) -> None:
    """It identifies itself before anything else; when it ends, it says so."""
    assert re.fullmatch(r"SMQP/\d+\.\d+( +(Ready|Not Available)\.( +.*)?)?", server.raw().banner)
    server.server.engine.is_available = False
    late = server.raw()
    assert late.banner.startswith("SMQP/1.0 Not Available.")
    assert late.is_over()


def test_a_server_that_is_administered_while_it_closes() -> None:
    """The administrator is told so, at whatever moment it closes; no thread waits for it for ever."""

    def administer(server: Server, begun: Event) -> None:
        while True:
            server.administer(lambda admin: begun.set())

    for _ in range(20):
        server, begun = Server(":memory:"), Event()
        told = future_of(partial(administer, server, begun), "administrator")
        assert begun.wait(PATIENCE)
        server.close()
        with pytest.raises(ClosedError, match="the server was closed"):
            told.result(PATIENCE)


@pytest.mark.parametrize("goodbye", ["soon", True, float("nan")])
def test_a_server_that_is_closed_with_something_else_than_seconds(server: Running, goodbye: Any) -> None:
    """It says what it takes, and goes on."""
    with pytest.raises(UsageError, match="goodbye must be a number of seconds or None"):
        server.server.close(goodbye)
    assert server.client("alice", listen=False).code("NOOP") == 200


def test_SM_006_one_reply_for_each_command(server: Running) -> None:
    """Commands may be sent ahead; each has one reply, in their order."""
    client = server.client("alice", listen=False)
    client.send("NOOP\r\nCOUNT TOPIC /\r\nNOOP X\r\nHELLO\r\n\r\n\r\nCOUNT TOPIC /a\r\nQUIT\r\nNOOP\r\n")
    replies = [client.reply() for _ in range(6)]
    counted = ["200-OK", "200 1"]
    assert replies == [["200 OK"], counted, ["400 Bad request"], ["501 Not implemented"], counted, ["200 OK"]]
    assert client.is_over()


def test_SM_007_servers_on_one_machine_are_apart(server: Running) -> None:
    """Two servers have topics and accounts of their own."""
    with running(context="other.example") as other:
        other.accounts("carol")
        stranger = other.raw()
        assert stranger.code("LOGIN alice CLEAR/1.0") == 200
        assert stranger.code("PASS alice pw") == 401
        assert other.client("carol", listen=False).code("COUNT TOPIC /a") == 404
        assert server.client("alice", listen=False).code("COUNT TOPIC /a") == 200


def test_SM_008_the_server_connects_to_the_client(server: Running) -> None:
    """Once a client subscribes, the server opens a connection to where it listens, by default to the default port."""
    with ExitStack() as stack:
        listener = Listener()
        stack.callback(listener.close)
        server.server.administer(lambda admin: admin.set_options(client_port=listener.port))
        client = server.client("alice", listen=False)
        client.data("SUB MESSAGE /a/b")
        client.notify = listener.accept()
        stack.callback(client.notify.close)
        client.publish("/a/b", "1")
        assert client.received()[0] == "NOTIFY MESSAGE /a/b"


def test_SM_010_any_stream_will_do() -> None:
    """The engine knows no sockets: octets go in, actions come out."""
    engine = SmqpEngine(Database(":memory:"), Options(context="here", scrypt_cost=2))
    number = engine.accept("nowhere")
    engine.received(number, b"NOOP\r\nPUB MESSAGE /a 1\r\nCreated: D01012001T000000Z\r\n\r\n.\r\n\r\nPASS a b\r\nx\r\n")
    written = b"".join(action.data for action in engine.flush() if isinstance(action, Write))
    codes = [line[:3] for line in written.split(b"\r\n") if line]
    assert codes == [b"SMQ", b"200", b"401", b"400", b"501"]
    engine.close()


def test_SM_023_empty_lines_follow_replies(server: Running) -> None:
    """An empty line follows each reply, but for those of LOGIN; none is waited for."""
    client = server.raw()
    client.send("LOGIN alice CLEAR/1.0\r\nPASS alice pw\r\nNOOP\r\n")
    assert client.line() == "200 OK"
    assert client.until(b"\r\n\r\n").startswith(b"200-OK SMQP/1.0 mq.example\r\n")
    assert client.until(b"\r\n\r\n") == b"200 OK\r\n\r\n"


@pytest.mark.parametrize(
    "command",
    ["COUNT TOPIC /a", "SUB MESSAGE /a", "SET NOTIFY PORT 9", "UNSUB *", "SET LOGIN NAME x", "GET TOPIC KEY /a"],
)
def test_SM_060_first_comes_the_login(server: Running, command: str) -> None:
    """Before it nothing is done but LOGIN, NOOP and QUIT; a message after PUB is passed over."""
    client = server.raw()
    assert client.code("NOOP") == 200
    assert client.code(command) == 401
    assert client.code("PUB MESSAGE /a 1", "Created: D01012001T000000Z", "", ".") == 401
    assert client.code("FLY") == 501
    assert client.code("QUIT") == 200


def test_SM_061_SM_062_clear(server: Running) -> None:
    """CLEAR is there, in any version; without one the command is refused."""
    client = server.raw()
    for method in ("CLEAR/1.0", "clear/9.9"):
        assert client.code(f"LOGIN alice {method}") == 200
    assert client.code("LOGIN alice CLEAR") == 400


def test_SM_063_SM_246_other_methods_are_refused(server: Running) -> None:
    """Then the client may try another on the same connection."""
    client = server.raw()
    assert client.code("LOGIN alice KERBEROS/4.0") == 405
    client.login("alice", listen=False)
    assert client.code("LOGIN alice CLEAR/1.0") == 405
    assert client.code("PASS alice pw") == 400


def test_SM_064_unknown_accounts_and_wrong_passwords(server: Running) -> None:
    """404, where the operator lets that be told, and 401; after three wrong passwords the connection ends."""
    server.server.administer(lambda admin: admin.set_options(hide_accounts=False))
    client = server.raw()
    assert client.code("LOGIN nobody CLEAR/1.0") == 404
    for _ in range(3):
        assert client.code("LOGIN alice CLEAR/1.0") == 200
        assert client.code("PASS alice wrong") == 401
    assert client.is_over()


def test_accounts_are_hidden(server: Running) -> None:
    """Unless the operator wants it otherwise, one that does not exist looks like a wrong password."""
    client = server.raw()
    assert client.code("LOGIN nobody CLEAR/1.0") == 200
    assert client.code("PASS nobody pw") == 401


def test_SM_065_SM_066_pass_follows_login_for_the_same_account(server: Running) -> None:
    """Alone it is refused, and for another account too; LOGIN may be sent anew."""
    client = server.raw()
    assert client.code("PASS alice pw") == 400
    assert client.code("LOGIN alice CLEAR/1.0") == 200
    assert client.code("COUNT TOPIC /") == 400
    assert client.code("PASS alice pw") == 400  # LOGIN and PASS go together
    for other in ("WHAT", "PASS alice", "SET TOPIC"):
        assert client.code("LOGIN alice CLEAR/1.0") == 200
        assert client.code(other) in (400, 501)
        assert client.code("PASS alice pw") == 400
    assert client.code("LOGIN alice CLEAR/1.0") == 200
    assert client.code("NOOP") == 200
    assert client.code("LOGIN bob CLEAR/1.0") == 200
    assert client.code("PASS alice pw") == 401
    assert client.code("PASS bob pw") == 400
    assert client.code("LOGIN Bob CLEAR/1.0") == 200
    assert client.code("PASS bob pw") == 200


def test_SM_067_logins_take_turns(server: Running) -> None:
    """While one client is between LOGIN and PASS, others log in."""
    first, second = server.raw(), server.raw()
    assert first.code("LOGIN alice CLEAR/1.0") == 200
    second.login("bob", listen=False)
    assert first.code("PASS alice pw") == 200


def test_SM_068_to_SM_074_what_a_login_tells() -> None:
    """Version and host, login topic, default timeout, time, and a guid of its own for each login."""
    with running(clock=Clock(1000.25), default_timeout=60.0) as server:
        server.accounts("alice")
        replies = [server.raw() for _ in range(2)]
        for client in replies:
            assert client.code("LOGIN alice CLEAR/1.0") == 200
        first, second = (client.ask("PASS alice pw") for client in replies)
        assert first == [
            "200-OK SMQP/1.0 mq.example",
            "200-Topic: /accounts/alice",
            "200-Timeout: 0000:00:01:00:00",
            "200-Time: D01011970T00164025Z",
            "200 Guid: alice0001",
        ]
        assert second[-1] == "200 Guid: alice0002"


def test_SM_070_the_default_timeout_may_be_kept_back() -> None:
    """It is optional."""
    with running(announces_timeout=False) as server:
        server.accounts("alice")
        client = server.raw()
        assert client.code("LOGIN alice CLEAR/1.0") == 200
        assert [line.split(":")[0] for line in client.ask("PASS alice pw")[1:]] == ["200-Topic", "200-Time", "200 Guid"]


def test_SM_075_accounts_are_unique(server: Running) -> None:
    """A second one of the same name, in whatever case, is refused; so are names that cannot be."""
    with pytest.raises(RefusedError) as found:
        server.accounts("ALICE")
    assert found.value.code is ReplyCode.CONFLICT
    for name in ("", "a/b", "a b"):
        with pytest.raises(ValueError, match="account"):
            server.accounts(name)
    assert server.server.administer(lambda admin: admin.accounts()) == ["alice", "bob"]


def test_SM_076_each_login_gets_each_message(server: Running) -> None:
    """Two sessions of one account get one message each."""
    first, second = server.client("alice"), server.client("alice")
    first.data("SUB MESSAGE /a/b")
    smuid = server.client("bob", listen=False).publish("/a/b", "1")
    assert (first.smuid(), second.smuid()) == (smuid, smuid)


def test_SM_079_after_the_login_everything_is_allowed_that_rights_allow(server: Running) -> None:
    """Publishing and subscribing."""
    client = server.client("alice")
    assert client.code("SUB MESSAGE /a/b") == 200
    assert client.publish("/a/b", "1") == client.smuid()


def test_accounts_with_awkward_names(server: Running) -> None:
    """A name with special characters is quoted in commands; its login topic has a legal name."""
    server.accounts("Joe,Smith")
    client = server.raw()
    assert client.code(r"LOGIN Joe\,Smith CLEAR/1.0") == 200
    reply = client.ask(r"PASS Joe\,Smith pw")
    assert attribute([line[4:] for line in reply], "Topic") == "/accounts/x___4aoe_2c_53mith"


def test_a_client_that_does_not_log_in_is_sent_away() -> None:
    """It has some time to do so."""
    with running(login_timeout=0.05) as server:
        client = server.raw()
        assert client.reply() == ["408 Request timeout"]
        assert client.is_over()


def test_a_client_that_says_nothing_is_sent_away() -> None:
    """If the operator wants it so; every command begins the time anew."""
    with running(idle_timeout=2.0) as server:
        server.accounts("alice")
        client = server.client("alice", listen=False)
        for _ in range(3):
            assert client.code("NOOP") == 200
        assert client.reply() == ["408 Request timeout"]
        assert client.is_over()


def test_logins_and_connections_are_limited(server: Running) -> None:
    """One login too many is forbidden, one connection too many not available."""
    server.server.administer(lambda admin: admin.set_options(max_logins=1, max_sessions=2))
    server.client("alice", listen=False)
    second = server.raw()
    assert second.code("LOGIN alice CLEAR/1.0") == 200
    assert second.code("PASS alice pw") == 403
    server.client("bob", listen=False)
    assert second.reply() == ["408 Request timeout"]
    assert server.raw().banner.startswith("SMQP/1.0 Not Available")


def test_SM_115_to_SM_118_a_client_changes_its_password(server: Running) -> None:
    """The method is accepted or refused; the old password comes first, then the new one, which may be any."""
    client = server.client("alice", listen=False)
    assert client.code("SET LOGIN PASSWORD KERBEROS/4.0") == 405
    assert client.code("SET LOGIN PASSWORD CLEAR/1.0") == 200
    assert client.code("PASS alice wrong") == 401
    assert client.code("PASS alice new") == 400
    assert client.code("SET LOGIN PASS CLEAR/1.0") == 200
    assert client.code("COUNT TOPIC /") == 400
    assert client.code("COUNT TOPIC /") == 200
    assert client.code("SET LOGIN PASS CLEAR/1.0") == 200
    assert client.code("PASS alice pw") == 200
    assert client.code("PASS bob n") == 401
    assert client.code("SET LOGIN PASS CLEAR/1.0") == 200
    assert client.code("PASS alice pw") == 200
    assert client.code("PASS alice n") == 200
    server.client("alice", password="n", listen=False)
    assert server.raw().login("bob", listen=False).code("NOOP") == 200


def test_SM_119_what_clients_set_of_themselves(tmp_path: Path) -> None:
    """Name, mail, address and phone are their account's, and stay."""
    store = tmp_path / "store"
    with running(store) as server:
        server.accounts("alice", "bob")
        client = server.client("alice", listen=False)
        assert client.code('SET LOGIN NAME "Alice Ångström"') == 200
        assert client.code("SET LOGIN EMAIL alice@example.org") == 200
        assert client.code("SET LOGIN ADDRESS Main Street 1, 12345 Town") == 200
        assert client.code("SET LOGIN PHONE +49 30 123456") == 200
    with running(store) as server:
        fields = {
            (name, field): server.server.administer(lambda admin, n=name, f=field: admin.account_field(n, f))  # type: ignore[misc]
            for name in ("alice", "bob")
            for field in ("NAME", "EMAIL", "ADDRESS", "PHONE")
        }
    assert [fields["alice", field] for field in ("NAME", "EMAIL", "ADDRESS", "PHONE")] == [
        "Alice Ångström",
        "alice@example.org",
        "Main Street 1, 12345 Town",
        "+49 30 123456",
    ]
    assert fields["bob", "NAME"] is None


def test_passwords_are_kept_as_hashes(tmp_path: Path) -> None:
    """The file shows none; two accounts with the same password have different hashes; others than its owner cannot read
    the file, and no second server can use it."""
    store = tmp_path / "store"
    with running(store) as server:
        server.accounts("alice", "bob")
        with pytest.raises(SmqpStoreError):
            Database(store)
        hashes = [server.server.engine.core.accounts.password(number) for number in (1, 2)]
    assert store.stat().st_mode & 0o077 == 0
    assert hashes[0].key != hashes[1].key
    assert Password.parse(str(hashes[0])) == hashes[0]
    assert hashes[0].matches("pw")
    assert not hashes[0].matches("PW")
    assert b"scrypt$" in store.read_bytes()
    assert b"s3cret" not in store.read_bytes()


def test_a_password_is_compared_away_from_the_engine() -> None:
    """So logging in holds up nobody, and no command is read meanwhile."""
    engine = SmqpEngine(Database(":memory:"), Options(scrypt_cost=2))
    number = engine.accept("nowhere")
    engine.received(number, b"LOGIN a CLEAR/1.0\r\nPASS a b\r\nNOOP\r\n")
    engine.flush()
    hidden = SmqpEngine(Database(":memory:"), Options(scrypt_cost=2, hide_accounts=True))
    number = hidden.accept("nowhere")
    hidden.received(number, b"LOGIN a CLEAR/1.0\r\nPASS a b\r\nNOOP\r\n")
    actions = hidden.flush()
    assert [action for action in actions if isinstance(action, CheckPassword)] == [
        CheckPassword(number, "b", None, "nowhere", "a")
    ]
    assert hidden.is_busy(number)
    hidden.checked(number, False)
    assert not hidden.is_busy(number)
    written = b"".join(action.data for action in hidden.flush() if isinstance(action, Write))
    assert written == b"401 Unauthorized\r\n200 OK\r\n\r\n"
    engine.close()
    hidden.close()


def test_SM_180_SM_181_noop_and_quit(server: Running) -> None:
    """NOOP does nothing; after QUIT both connections end, and subscriptions stay."""
    client = server.client("alice")
    client.data("SUB MESSAGE /a/b")
    assert client.ask("NOOP") == ["200 OK"]
    assert client.ask("QUIT") == ["200 OK"]
    assert client.is_over()
    assert client.notify.is_over()
    smuid = server.client("bob", listen=False).publish("/a/b", "1")
    assert server.client("alice").smuid() == smuid


def test_rights_are_no_business_of_commands(server: Running) -> None:
    """SM-240: no command reads or writes the User Access List."""
    client = server.client("alice", listen=False)
    for command in ("SET UAL /a bob", "GET UAL /a", "SET TOPIC RIGHTS /a ALL", "LIST RIGHTS /a"):
        assert client.code(command) == 501
    server.grant("alice", "/", Right.NONE)
    assert client.code("COUNT TOPIC /a") == 401
