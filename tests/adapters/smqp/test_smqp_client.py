"""The client, against a real server; and against servers that do what they should not."""

from __future__ import annotations

import socket
import sqlite3
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import signature
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import trustme
from ports import nobody
from smqp_kit import (
    PATIENCE,
    FakeServer,
    Inbox,
    Running,
    Wire,
    connected,
    eventually,
    notification,
    running,
)
from smqp_kit import QUICK as SERVER_QUICK

from brokers.errors import ClosedError, ConnectionFailedError, ConnectionLostError
from brokers.smqp.client import (
    Client,
    DefaultTimeout,
    Goodbye,
    Received,
    SubscriberCount,
    TopicChange,
    notifications,
)
from brokers.smqp.client.inbox import InboxState
from brokers.smqp.protocol.dialect import LENIENT
from brokers.smqp.protocol.ids import parse_date
from brokers.smqp.protocol.messages import Attribute, SmqpSection
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.server import Server


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server with two accounts that may do everything."""
    with running(dialect=LENIENT) as server:
        server.accounts("alice", "bob")
        server.topics("/t", "/news/us")
        yield server


def test_SM_002_the_clients_defaults() -> None:
    """It looks for a server at 720."""
    assert signature(Client).parameters["port"].default == 720


def test_SM_009_SM_077_SM_079_messages_come_while_the_client_is_idle(server: Running) -> None:
    """It logs in, listens, subscribes to its login topic by itself, publishes and is called back."""
    inbox = Inbox()
    with connected(server.address) as alice, connected(server.address, "bob") as bob:
        assert alice.welcome.topic == "/accounts/alice"
        assert server.server.engine.core.subscriptions.count(1) == 1
        assert alice.subscribe("/t", inbox) == ["/t"]
        published = bob.publish("/t", "hello", name="A name", priority=3, attributes={"X-Desk": "metals"})
        received = inbox.next()
        assert (received.topic, received.data, received.smuid) == ("/t", b"hello", f"mq.example/{published.smuid}")
        assert (received.cmuid, received.wants_reply) == (published.cmuid, False)
        assert received.attributes.value("x-desk") == "metals"
        assert received.sections[0].content_type == "text/plain; charset=utf-8"


def test_every_question(server: Running) -> None:
    """Counting, listing, finding, getting, arranging: each with one command."""
    with connected(server.address) as client:
        client.create_topic("/stocks/ibm", keywords=("IBM", "BIG BLUE"))
        client.create_topic("/ibm", target="/stocks/ibm")
        assert client.list_topics() == [("/ibm", "/stocks/ibm"), ("/news", None), ("/stocks", None), ("/t", None)]
        assert client.find_topics("/stocks/*", "blue") == [("/stocks/ibm", ("IBM", "BIG BLUE"))]
        assert client.find_topics("/t") == [("/t", ())]
        assert client.keywords("/stocks/ibm") == ("IBM", "BIG BLUE")
        client.set_keywords("/stocks/ibm", "NEW")
        assert client.keywords("/stocks/ibm") == ("NEW",)
        numbers = [client.publish("/ibm", str(number)).smuid for number in range(3)]
        assert client.count_messages("/stocks/ibm") == 3
        assert client.list_messages("/ibm") == ((numbers[0], numbers[-1]),)
        assert client.list_messages("/t") == ()
        assert [each.sections[0].data for each in client.messages("/ibm")] == [b"0", b"1", b"2"]
        assert client.message("/ibm", numbers[1]).attributes.value("Topic") == "/ibm"
        client.remove_message("/ibm", numbers[0])
        client.republish("/ibm", numbers[0])
        assert (client.count_topics("/stocks"), client.count_subscribers("/t")) == (1, 0)
        client.rename_topic("/t", "/u")
        assert client.remove_topic("/u") == 0
        client.set_name('Alice "A" \\ B')
        client.set_email("a@example.org")
        client.set_address("Main Street 1")
        client.set_phone("1")
        field = server.server.administer(lambda admin: admin.account_field("alice", "NAME"))
        assert field == 'Alice "A" \\ B'
        client.noop()
        with pytest.raises(RefusedError, match="404") as found:
            client.count_topics("/none")
        assert found.value.code is ReplyCode.NOT_FOUND


def test_receipts_and_replies(server: Running) -> None:
    """Futures of what was published; what nobody waits for goes to a callback of the login topic."""
    inbox, own = Inbox(), Inbox()
    with connected(server.address) as alice, connected(server.address, "bob") as bob:
        alice.subscribe("/accounts/alice", own)
        bob.subscribe("/t", inbox)
        published = alice.publish("/t", "?", receipt=True, reply=True)
        assert published.receipt is not None
        assert published.reply is not None
        assert published.receipt.result(PATIENCE).attributes.value("X-Receipt-Cmuid") == published.cmuid
        asked = inbox.next()
        assert asked.wants_reply
        bob.reply(asked, b"!", content_type="application/octet-stream")
        answer = published.reply.result(PATIENCE)
        assert (answer.data, answer.cmuid.split("/")[0]) == (b"!", "bob")
        bob.reply(asked, "once more")
        assert own.next().data == b"once more"
        left = alice.publish("/t", "nobody answers", reply=True)
    assert left.reply is not None
    assert left.reply.cancelled()


def test_SM_137_callbacks_may_use_the_client(server: Running) -> None:
    """One that replies when the publisher wishes it: the subscriber's part of a dialogue."""
    with connected(server.address) as alice, connected(server.address, "bob") as bob:

        def answer(received: Received) -> None:
            if received.wants_reply:
                bob.reply(received, received.data.upper())

        bob.subscribe("/t", answer)
        alice.publish("/t", "no reply wanted")
        reply = alice.publish("/t", "hello", reply=True).reply
        assert reply is not None
        assert reply.result(PATIENCE).data == b"HELLO"


def test_SM_071_a_timeout_where_the_server_tells_none(server: Running) -> None:
    """Then the client sets one on each message; where it tells one, none."""
    with connected(server.address) as client:
        smuid = client.publish("/t").smuid
        assert client.message("/t", smuid).attributes.value("Timeout") is None
    server.server.administer(lambda admin: admin.set_options(announces_timeout=False))
    with connected(server.address) as client:
        smuid = client.publish("/t").smuid
        assert client.message("/t", smuid).attributes.value("Timeout") == "0001:00:00:00:00"
        state = client.publish("/t", timeout=None, depth=-1).smuid
        assert client.message("/t", state).attributes.value("Timeout") == "-0000:00:00:00:01"


def test_SM_192_created_is_now(server: Running) -> None:
    """It is set when the message is sent."""
    with connected(server.address) as client:
        before = datetime.now(UTC) - timedelta(seconds=1)
        content = client.message(
            "/t", client.publish("/t", sections := [SmqpSection("a/b", b"1"), SmqpSection("c/d", b"2")]).smuid
        )
        assert before <= parse_date(content.attributes.text("Created")) <= datetime.now(UTC)
        assert content.sections == tuple(sections)


def test_SM_197_sequences_are_counted(server: Running) -> None:
    """One more for each message of a topic, unless the caller says otherwise; not for one that was refused."""
    with connected(server.address) as client:
        numbers = [client.publish("/t", sequence=True).smuid for _ in range(2)]
        with pytest.raises(RefusedError):
            client.publish("/none", sequence=True)
        numbers += [client.publish("/t", sequence=each).smuid for each in (True, 9, True)]
        found = [client.message("/t", number).attributes.value("Sequence") for number in numbers]
        assert found == ["1", "2", "3", "9", "10"]


def test_subscriptions_and_callbacks(server: Running) -> None:
    """The most exact pattern is called; what is unsubscribed from, is not; since when may be said."""
    all_news, us = Inbox(), Inbox()
    with connected(server.address) as client:
        client.subscribe("/news/*", all_news)
        client.subscribe("/news/us", us)
        client.create_topic("/news/de")
        client.publish("/news/us", "1")
        client.publish("/news/de", "2")
        assert (us.data(1), all_news.data(1)) == ([b"1"], [b"2"])
        assert client.unsubscribe("/news/*") == ["/news/de", "/news/us"]
        client.subscribe("/t", us, since=datetime.now(UTC) + timedelta(hours=1))
        client.publish("/t", "too early")
        client.publish("/news/us", "3")
        client.subscribe("/t", us)
        assert client.publish("/t", "4")
        assert us.next().data in (b"too early", b"4")
        assert client.unsubscribe_all()


@pytest.mark.parametrize("error", [RuntimeError("not today"), SystemExit("not today")])
def test_a_failing_callback_is_logged(server: Running, caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """And what comes next handed over, even if the callback wanted to end the program."""
    inbox, changes = Inbox(), Inbox()

    def fail(keep: Inbox, told: object) -> None:
        keep(told)
        raise error

    with connected(server.address) as client:
        client.watch_topics("/news/*", partial(fail, changes))
        client.subscribe("/t", partial(fail, inbox))
        for name in ("one", "two"):
            client.create_topic(f"/news/{name}")
            client.publish("/t", name)
        assert inbox.data(2) == [b"one", b"two"]
        assert [changes.next().topic for _ in range(2)] == ["/news/one", "/news/two"]
    assert caplog.text.count("SystemExit: not today" if isinstance(error, SystemExit) else "Error: not today") == 4


def test_SM_166_what_cannot_be_interpreted_is_taken(server: Running) -> None:
    """The server does not judge data, nor does the client: it is acknowledged and handed over."""
    inbox = Inbox()
    with connected(server.address) as client:
        client.subscribe("/t", inbox)
        client.publish("/t", [SmqpSection("application/x-nobody-knows", bytes(range(256)))])
        assert inbox.data(1) == [bytes(range(256))]
        eventually(lambda: server.server.engine.core.database.row("SELECT COUNT(*) FROM deliveries")[0] == 0)


def test_SM_174_what_else_the_server_tells(server: Running) -> None:
    """Changes of topics, of the number of subscribers, of the default timeout, and its end."""
    topics, counts, timeouts, goodbyes = Inbox(), Inbox(), Inbox(), Inbox()
    with connected(server.address) as alice, connected(server.address, "bob") as bob:
        alice.watch_topics("/news/*", topics)
        assert alice.watch_subscribers("/t", counts) == 0
        alice.watch_timeout(timeouts)
        alice.on_goodbye(goodbyes)
        bob.create_topic("/news/fr")
        bob.rename_topic("/news/fr", "/news/it")
        bob.subscribe("/t", Inbox())
        server.server.administer(lambda admin: admin.set_default_timeout(90.0))
        server.server.administer(lambda admin: admin.say_goodbye(5.0))
        assert [topics.next(), topics.next()] == [
            TopicChange("/news/fr", "ADDED", ""),
            TopicChange("/news/fr", "RENAME", "/news/it"),
        ]
        assert counts.next() == SubscriberCount("/t", 1)
        bob.unsubscribe("/t")
        assert counts.next() == SubscriberCount("/t", 0)  # nobody listens: a publisher may stop
        assert timeouts.next() == DefaultTimeout(90.0)
        assert goodbyes.next() == Goodbye(5.0)
        assert alice.unwatch_topics("/news/*")
        assert alice.unwatch_subscribers("/t")


def test_suspend_and_resume(server: Running) -> None:
    """Nothing comes between."""
    inbox = Inbox()
    with connected(server.address) as client:
        client.subscribe("/t", inbox)
        client.suspend()
        client.publish("/t", "1")
        assert client.count_messages("/t") == 1
        assert inbox.is_empty
        client.resume()
        assert inbox.data(1) == [b"1"]


def test_SM_116_a_password_is_changed(server: Running) -> None:
    """By the method of the login; the old one is of no more use, and renewals use the new one."""
    with connected(server.address) as client:
        client.set_password("secret")
    with pytest.raises(ConnectionFailedError, match="401"), connected(server.address):
        pass
    with connected(server.address, password="secret") as client:
        client.noop()
    with pytest.raises(ConnectionFailedError, match="401"), connected(server.address, "nobody"):
        pass


def test_many_threads(server: Running) -> None:
    """They share one client; each gets the answers to its own commands."""
    inbox = Inbox()
    with connected(server.address) as client:
        client.subscribe("/t", inbox)

        def work(thread: int) -> None:
            for number in range(20):
                client.publish("/t", f"{thread}-{number}")
                assert client.count_topics("/news") == 1

        threads = [Thread(target=work, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        found = inbox.data(80)
        for thread in threads:
            thread.join()
    assert sorted(found) == sorted(f"{thread}-{number}".encode() for thread in range(4) for number in range(20))
    for thread in range(4):
        own = [each for each in found if each.startswith(b"%d-" % thread)]
        assert own == [b"%d-%d" % (thread, number) for number in range(20)]


def test_a_client_that_was_closed(server: Running) -> None:
    """Takes no more commands; closing again does nothing."""
    with connected(server.address) as client:
        pass
    client.close()
    with pytest.raises(ClosedError):
        client.noop()


def test_messages_wait_for_a_callback(server: Running) -> None:
    """A durable subscription delivers at the next login; that waits until the program says what to do with it."""
    with connected(server.address) as client:
        client.subscribe("/t", Inbox())
    with connected(server.address, "bob") as other:
        for number in range(3):
            other.publish("/t", str(number))
    inbox = Inbox()
    with connected(server.address) as client:
        eventually(lambda: server.server.engine.core.database.row("SELECT COUNT(*) FROM deliveries")[0] == 0)
        client.subscribe("/t", inbox)
        assert inbox.data(3) == [b"0", b"1", b"2"]


def test_what_waited_comes_first(server: Running) -> None:
    """A callback that is registered late gets a topic's messages in their order, those on their way included."""
    inbox, begun, go_on = Inbox(), Event(), Event()
    with connected(server.address) as client, connected(server.address, "bob") as other:
        client.subscribe("/t", Inbox())
        client._hearing.unregister("/t")
        handing = client._hearing._handing
        other.publish("/t", "0")
        eventually(lambda: handing._unclaimed)
        handing.call(lambda: (begun.set(), go_on.wait(PATIENCE))[0])
        assert begun.wait(PATIENCE)
        for number in (1, 2):
            other.publish("/t", str(number))
        eventually(lambda: handing._tasks.qsize() == 2)
        client.subscribe("/t", inbox)
        go_on.set()
        assert inbox.data(3) == [b"0", b"1", b"2"]


@pytest.fixture
def fail_twice(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client, str], None]:
    """Let something fail twice in the inbox of a client, as on a full disk."""
    monkeypatch.setattr(notifications, "PAUSE_SECONDS", 0.05)

    def begin(client: Client, what: str) -> None:
        kept, failures = client._hearing._inbox, iter(range(2))
        working = getattr(kept, what)

        def failing(*arguments: str) -> Any:
            if next(failures, None) is not None:
                raise sqlite3.OperationalError("database or disk is full")
            return working(*arguments)

        monkeypatch.setattr(kept, what, failing)

    return begin


@pytest.mark.parametrize("fails", ["doubtful", "confirm", "read", "given"])
def test_an_inbox_that_fails_for_a_moment(
    server: Running, fail_twice: Callable[[Client, str], None], fails: str
) -> None:
    """What it could not do is tried again, each message is handed over once, and nothing is left behind."""
    inbox = Inbox()
    with connected(server.address, options={"in_doubt": 60.0}) as client:
        client.subscribe("/t", inbox)
        fail_twice(client, fails)
        client.publish("/t", "0")
        assert inbox.data(1) == [b"0"]
        eventually(lambda: not any(map(client._hearing._inbox.waiting, InboxState)))
        client.publish("/t", "1")
        assert inbox.data(1) == [b"1"]


@pytest.mark.parametrize(("in_doubt", "numbers"), [(0.05, (1,)), (60.0, (1, 2))])
def test_an_inbox_that_fails_for_a_message_in_doubt(
    fail_twice: Callable[[Client, str], None], in_doubt: float, numbers: tuple[int, ...]
) -> None:
    """It is handed over all the same: after a while, or before the next one of its topic."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address, options={"in_doubt": in_doubt}) as client:
        client.subscribe("/t", inbox)
        fail_twice(client, "trust")
        for number in numbers:
            wire = fake.tell(number)
            if number == 1:
                wire.close()
            else:
                wire.send("310 ACK\r\n\r\n")
        assert [inbox.next().smuid for _ in numbers] == [f"h/{number}" for number in numbers]
        wire.close()


def test_an_inbox_outlives_the_program(server: Running, tmp_path: Path) -> None:
    """What was acknowledged and not handed over is, by the next client with the same inbox; what was, is not."""
    first, second, store = Inbox(), Inbox(), tmp_path / "inbox"
    with connected(server.address, inbox=store) as client:
        client.subscribe("/t", first)
        client.publish("/t", "handed over")
        assert first.data(1) == [b"handed over"]
        client._hearing.unregister("/t")
        client.publish("/t", "waits")
        eventually(lambda: server.server.engine.core.database.row("SELECT COUNT(*) FROM deliveries")[0] == 0)
    with connected(server.address, inbox=store) as client:
        client.subscribe("/t", second)
        assert second.data(1) == [b"waits"]


def test_smqps(server: Running) -> None:
    """SM-244: both connections by TLS, with the server's certificate on both; without TLS nobody understands it."""
    authority = trustme.CA()
    servers, clients = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(servers)
    authority.configure_trust(clients)
    address = server.server.listen("127.0.0.1", 0, tls=servers)
    inbox = Inbox()
    with connected(address, options={"tls": clients}) as client:
        client.subscribe("/t", inbox)
        client.publish("/t", "secret")
        assert inbox.data(1) == [b"secret"]
    with pytest.raises(ConnectionFailedError), connected(address, options={"timeout": 0.5}):
        pass
    with pytest.raises(ConnectionFailedError), connected(server.address, options={"tls": clients}):
        pass


# Connections that are lost


def test_the_connection_is_renewed(server: Running, kept_port: int, tmp_path: Path) -> None:
    """After the server was away the client logs in again; subscriptions go on, calls meanwhile fail and say so."""
    inbox, states = Inbox(), Inbox()
    store = tmp_path / "store"
    with ExitStack() as stack:
        first = stack.enter_context(running(store, port=kept_port))
        first.accounts("alice")
        first.topics("/t")
        client = stack.enter_context(connected(first.address))
        client.watch(states)
        client.subscribe("/t", inbox)
        guid = client.welcome.guid
        first.close()
        assert states.next() is False
        with pytest.raises(ConnectionLostError):
            client.publish("/t", "lost")
        second = stack.enter_context(Server(store, SERVER_QUICK))
        second.listen("127.0.0.1", kept_port)
        assert states.next() is True
        assert client.welcome.guid != guid
        client.publish("/t", "again")
        assert inbox.data(1) == [b"again"]


def test_nobody_is_there() -> None:
    """The first connection is not tried again."""
    with (
        nobody() as port,
        pytest.raises(ConnectionFailedError, match="no SMQP server"),
        connected(("127.0.0.1", port)),
    ):
        pass


@pytest.mark.parametrize(
    "banner", ["SMQP/2.0 Ready.", "SMQP/1.0 Not Available.", "HTTP/1.1 400", "", "x" * 9000, "\xff"]
)
def test_SM_005_what_is_no_server(banner: str) -> None:
    """Another version, another protocol, one that is not available, or nonsense: there is no client."""
    with (
        FakeServer(banner) as fake,
        pytest.raises(ConnectionFailedError),
        connected(fake.address, options={"timeout": 0.5}),
    ):
        pass


@pytest.mark.parametrize(
    "reply",
    [
        b"299 Fine\r\n",
        b"20 x\r\n",
        b"hello\r\n",
        b"200-OK\r\n400 no\r\n",
        b"\xff\r\n",
        b"x" * 9000 + b"\r\n",
        b"200-OK\r\n",
    ],
)
def test_wrong_replies_end_the_connection(reply: bytes) -> None:
    """A code that SMQP has not, a reply that is none or does not end: the call fails, and the client does not hang."""
    with (
        FakeServer(replies={"COUNT": reply}) as fake,
        connected(fake.address, options={"timeout": 2.0, "renew": None}) as client,
    ):
        client.noop()
        with pytest.raises(ConnectionLostError):
            client.count_topics("/")
        with pytest.raises(ConnectionLostError):
            client.noop()


def test_a_login_without_attributes() -> None:
    """Topic and Guid are required; the lenient do without."""
    bare = {"PASS": b"200 OK\r\n\r\n"}
    with FakeServer(replies=bare) as fake, pytest.raises(ConnectionFailedError, match="Topic"), connected(fake.address):
        pass
    with FakeServer(replies=bare) as fake, connected(fake.address, options={"dialect": LENIENT}) as client:
        client.noop()


def test_SM_132_a_publisher_without_an_answer_fails() -> None:
    """It has to take the message for not published."""
    with (
        FakeServer(replies={"PUB": b""}) as fake,
        connected(fake.address, options={"timeout": 2.0, "renew": None}) as client,
    ):
        with pytest.raises(ConnectionLostError):
            client.publish("/t", "x")
        assert [line.split()[0] for line in fake.heard[:4]] == ["LOGIN", "PASS", "SET", "SUB"]  # SM-060 SM-065 SM-121


def test_SM_161_SM_163_a_message_is_kept_then_acknowledged_then_handed_over() -> None:
    """In this order: nobody sees it before the server said that it knows."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address, options={"in_doubt": 60.0}) as client:
        client.subscribe("/t", inbox)
        wire = fake.tell(1)
        assert client._hearing._inbox.waiting(0) == ["h/1"]  # type: ignore[arg-type]
        assert inbox.is_empty
        wire.send("310 ACK\r\n\r\n")
        assert inbox.next().smuid == "h/1"
        wire.close()


def test_SM_164_SM_165_a_message_in_doubt_is_handed_over_once() -> None:
    """Without the server's acknowledgement it may come again, or not; after a while it is handed over; if it comes
    again then, it is acknowledged and not handed over; published anew later, it is."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address) as client:
        client.subscribe("/t", inbox)
        wire = fake.tell(1)
        wire.close()
        assert inbox.next().smuid == "h/1"
        for number in (1, 2, 1):
            wire = fake.tell(number)
            wire.send("310 ACK\r\n")
            if number == 2:
                assert inbox.next().smuid == "h/2"
            eventually(lambda: not client._hearing._inbox.waiting(0))  # type: ignore[arg-type]
            wire.close()
        assert inbox.next().smuid == "h/1"
        assert inbox.is_empty


def test_a_message_comes_again_before_its_time_is_up() -> None:
    """It replaces the one in doubt."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address, options={"in_doubt": 60.0}) as client:
        client.subscribe("/t", inbox)
        for confirmed in (False, True):
            wire = fake.tell(1)
            if confirmed:
                wire.send("310 ACK\r\n")
                assert inbox.next().smuid == "h/1"
            wire.close()


def test_notifications_that_cannot_be_read() -> None:
    """They are answered with 400 and harm nobody; what is legal after them is heard. The lengths decide."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address) as client:
        client.subscribe("/t", inbox)
        wire = fake.notify()
        for wrong in (
            "HELLO\r\n",
            "NOTIFY MESSAGE t\r\n\r\n.\r\n",
            "NOTIFY MESSAGE /t\r\nno colon\r\n\r\n.\r\n",
            "x" * 20_000 + "\r\n",
            "NOTIFY SERVER BYE soon\r\n",
            notification(7).replace("Content-Length: 1", "Content-Length: 9"),
        ):
            wire.send(wrong + ("\r\n.\r\n\r\n" if "Length" in wrong else ""))
            line = wire.line() or wire.line()
            assert line.startswith("400"), wrong[:80]
        wire.send(notification(1, "a\r\n.\r\nb"))
        assert (wire.line() or wire.line()) == "310 ACK"
        wire.send("310 ACK\r\n")
        assert inbox.data(1) == [b"a\r\n.\r\nb"]
        wire.close()


def test_only_the_server_may_notify() -> None:
    """A connection from another address than the server's is closed at once."""
    with FakeServer() as fake, connected(fake.address, options={"notify_host": "0.0.0.0"}):
        stranger = socket.socket()
        stranger.bind(("127.0.0.2", 0))
        stranger.connect(("127.0.0.1", fake.port))
        wire = Wire(stranger)
        assert wire.is_over()
        wire.close()


def test_the_newest_notify_connection_counts() -> None:
    """A server that connects anew has given up the one before."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address) as client:
        client.subscribe("/t", inbox)
        first, second = fake.notify(), fake.notify()
        assert first.is_over()
        second.send(notification(1))
        assert second.line() == "310 ACK"
        second.send("310 ACK\r\n")
        assert inbox.next().smuid == "h/1"
        first.close()
        second.close()


def test_what_cannot_be_sent_is_the_callers_mistake(server: Running) -> None:
    """A value with a line break is never sent."""
    with connected(server.address) as client:
        for call in (
            lambda: client.publish("/t", name="a\r\nb"),
            lambda: client.publish("/t", attributes=[Attribute("X y", "1")]),
            lambda: client.set_name("a\r\nQUIT"),
            lambda: client.create_topic("/a\r\nQUIT"),
        ):
            with pytest.raises(ValueError, match=r"attribute|line break"):
                call()
        client.noop()


def test_a_server_that_resets_new_connections(server: Running) -> None:
    """At whatever moment: the client goes on trying, until it is let in."""
    with socket.create_server(("127.0.0.1", 0)) as door, ExitStack() as stack:
        door.settimeout(PATIENCE)

        def reset(times: int) -> None:
            for _ in range(times):
                stranger = door.accept()[0]
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                stranger.close()

        resetting = Thread(target=reset, args=(20,))
        resetting.start()
        states = Inbox()
        client = stack.enter_context(connected(server.address))
        client.watch(states)
        good, client._address = client._address, client._address._replace(port=door.getsockname()[1])
        client._line.close()
        assert states.next() is False
        resetting.join()
        client._address = good
        assert states.next() is True
        client.noop()
