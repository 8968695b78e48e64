"""The server: subscriptions and the notify connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from ports import nobody
from smqp_kit import Clock, Listener, Running, attribute, eventually, running

from brokers.errors import UsageError
from brokers.smqp.protocol.ids import format_date
from brokers.smqp.server import Right


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server with two accounts that may do everything."""
    with running() as server:
        server.accounts("alice", "bob")
        server.topics("/q/a", "/q/b")
        yield server


# Subscriptions


def test_SM_052_a_wildcard_covers_what_is_to_come(server: Running) -> None:
    """Topics that are created after the subscription too, at any depth."""
    client = server.client("alice")
    assert client.data("SUB MESSAGE /q/*") == ["/q/a", "/q/b"]
    client.data("CREATE TOPIC /q/new/deep")
    for topic in ("/q/new/deep", "/q/a"):
        client.publish(topic, topic.strip("/"))
        assert client.received()[0] == f"NOTIFY MESSAGE {topic}"
    assert client.code("SUB MESSAGE /none/*") == 404
    server.topics("/empty")
    assert client.ask("SUB MESSAGE /empty/*") == ["200 OK"]


def test_SM_053_not_everything_can_be_subscribed_to(server: Running) -> None:
    """All messages of all topics: 510."""
    client = server.client("alice", listen=False)
    assert client.ask("SUB MESSAGE /*") == ["510 Maximum quantity exceeded"]
    assert client.code("SUB MESSAGE *") == 400
    assert client.code("SUB TOPIC /*") == 200


def test_SM_054_subscriptions_are_limited(server: Running) -> None:
    """One too many is refused with 414; one that is there already may be changed."""
    server.server.administer(lambda admin: admin.set_options(max_subscriptions=1))
    client = server.client("alice", listen=False)
    assert [client.code(f"SUB MESSAGE /q/{name}") for name in "aba"] == [200, 414, 200]
    assert client.code("SUB MESSAGE /q/a D01012001T000000Z") == 200


def test_SM_054_all_kinds_of_subscriptions_are_limited(server: Running) -> None:
    """So are those that end with their session, of all sessions of an account; and what is left out of a wildcard."""
    server.server.administer(lambda admin: admin.prepare_for_jms())
    server.server.administer(lambda admin: admin.set_options(max_subscriptions=3))
    first, second = (server.client("alice", listen=False) for _ in range(2))
    assert [first.code(f"SUB MESSAGE /queue/*/{name}") for name in "ab"] == [200, 200]
    assert [second.code(f"SUB MESSAGE /queue/*/{name}") for name in "abb"] == [200, 414, 414]
    assert first.code("SUB TOPIC /q/a") == 414
    assert first.code("SUB MESSAGE /queue/*/a") == 200
    first.close()
    eventually(lambda: [second.code(f"SUB TOPIC {topic}") for topic in ("/q/*", "/q/b")] == [200, 200])
    assert second.code("UNSUB TOPIC /q/a") == 414
    assert second.code("UNSUB TOPIC /q/b") == 200
    assert second.code("UNSUB MESSAGE /queue/*/a") == 200
    assert second.code("UNSUB TOPIC /q/a") == 200
    server.server.administer(lambda admin: admin.set_options(max_subscriptions=4))
    assert second.code("CREATE TOPIC /q/b/c") == 200
    assert second.code("SUB TOPIC /q/b/c") == 200
    assert second.code("UNSUB TOPIC /q/a") == 404  # already
    assert second.code("UNSUB TOPIC /q/b/*") == 200  # one more, two less
    assert [second.code(f"UNSUB TOPIC /q/{name}") for name in "cd"] == [200, 414]
    assert second.code("UNSUB TOPIC /q/*") == 200


def test_SM_055_SM_149_SM_172_changes_of_topics_are_told(server: Running) -> None:
    """Of the topic and, with a wildcard, of those below: added, renamed, keywords, deleted."""
    client, other = server.client("alice"), server.client("bob", listen=False)
    client.data("SUB TOPIC /q/*")
    other.data("CREATE TOPIC /q/c/d")
    other.data("SET TOPIC KEYWORD /q/a (X,Y)")
    other.data("SET TOPIC NAME /q/a /q/z")
    other.data("REMOVE TOPIC /q/b")
    other.data("SET TOPIC NAME /q /r")
    other.data("CREATE TOPIC /elsewhere")
    other.data("CREATE TOPIC /r/last")
    assert [client.notified() for _ in range(7)] == [
        ["NOTIFY TOPIC /q/c", "Action: ADDED"],
        ["NOTIFY TOPIC /q/c/d", "Action: ADDED"],
        ["NOTIFY TOPIC /q/a", "Action: KEYWORDS (X,Y)"],
        ["NOTIFY TOPIC /q/a", "Action: RENAME /q/z"],
        ["NOTIFY TOPIC /q/b", "Action: DELETED"],
        ["NOTIFY TOPIC /q", "Action: RENAME /r"],
        ["NOTIFY TOPIC /r/last", "Action: ADDED"],  # the subscription went with the topic
    ]


def test_SM_150_SM_173_the_number_of_subscribers_is_told(server: Running) -> None:
    """When it changes, up and down; the number is that of COUNT."""
    client, other = server.client("alice"), server.client("bob", listen=False)
    assert client.data("SUB SUB /q/a") == ["/q/a"]
    other.data("SUB MESSAGE /q/*")
    assert client.notified() == ["NOTIFY SUB /q/a", "Count: 1"]
    assert client.data("COUNT SUB /q/a") == ["1"]
    other.data("SUB MESSAGE /q/a")  # the same account again
    client.data("SUB MESSAGE /q/a")
    assert client.notified() == ["NOTIFY SUB /q/a", "Count: 2"]
    other.data("UNSUB *")
    assert client.notified() == ["NOTIFY SUB /q/a", "Count: 1"]
    client.data("UNSUB SUB /q/a")
    client.data("UNSUB MESSAGE /q/a")
    client.publish("/q/a", "1")
    client.data("SUB MESSAGE /q/b")
    client.publish("/q/b", "marker")
    assert client.received()[0] == "NOTIFY MESSAGE /q/b"


def test_SM_078_SM_151_SM_175_the_default_timeout_is_told(server: Running) -> None:
    """When an administrator changes it, to those sessions that asked."""
    client, other = server.client("alice"), server.client("bob")
    assert client.ask("SUB SERVER TIMEOUT") == ["200 OK"]
    server.server.administer(lambda admin: admin.set_default_timeout(60.0))
    assert client.notified() == ["NOTIFY SERVER TIMEOUT 0000:00:01:00:00"]
    assert client.code("UNSUB SERVER TIMEOUT") == 200
    assert client.code("UNSUB SERVER TIMEOUT") == 404
    client.data("SUB SERV TIMEOUT")
    assert client.data("UNSUB *") == ["SERVER TIMEOUT"]
    server.server.administer(lambda admin: admin.set_default_timeout(None))
    for each in (client, other):
        each.data("SUB TOPIC /q/a")
    other.data("SET TOPIC KEYWORD /q/a (A)")
    for each in (client, other):
        assert each.notified()[0] == "NOTIFY TOPIC /q/a"


@pytest.mark.parametrize("timeout", ["1 h", -1.0, float("nan")])
def test_a_default_timeout_that_cannot_be(server: Running, timeout: Any) -> None:
    """It is refused, and messages are accepted as before."""
    with pytest.raises(UsageError, match="timeout must be a number of seconds, at least 0, got"):
        server.server.administer(lambda admin: admin.set_default_timeout(timeout))
    assert server.client("alice", listen=False).publish("/q/a", "1") == 1


def test_SM_152_SM_176_the_end_is_told_to_all(server: Running) -> None:
    """Nobody needs to subscribe; without a time it is now."""
    clients = [server.client(name) for name in ("alice", "bob")]
    server.server.administer(lambda admin: admin.say_goodbye(300.0))
    for client in clients:
        assert client.notified() == ["NOTIFY SERVER BYE 0000:00:05:00:00"]
    server.server.close()
    for client in clients:
        assert client.notified() == ["NOTIFY SERVER BYE"]
        assert client.is_over()
        assert client.notify.is_over()


def test_SM_056_SM_154_SM_155_SM_156_subscriptions_end() -> None:
    """One, those that a wildcard covers, all of a resource, all; what is ended is listed; nothing there is 404."""
    with running() as server:
        server.accounts("alice")
        server.topics("/s/q/ibm", "/s/q/sony", "/l/os")
        client = server.client("alice", listen=False)

        def subscribe() -> None:
            for command in ("SUB MESSAGE /s/q/ibm", "SUB MESSAGE /l/*", "SUB TOPIC /s/*", "SUB SUB /s/q/ibm"):
                client.data(command)

        subscribe()
        assert client.data("UNSUB MESSAGE /s/q/ibm") == ["MESSAGE /s/q/ibm"]
        assert client.code("UNSUB MESSAGE /s/q/ibm") == 404
        assert client.code("UNSUB MESSAGE /s/*") == 404
        assert client.data("UNSUB MESSAGE *") == ["MESSAGE /l/os"]
        assert client.data("UNSUB TOPIC /s/q/*") == ["TOPIC /s/q", "TOPIC /s/q/ibm", "TOPIC /s/q/sony"]
        assert client.data("UNSUB TOPIC /s/*") == ["TOPIC /s"]
        assert client.data("UNSUB SUB /s/q/ibm") == ["SUB /s/q/ibm"]
        assert client.code("UNSUB SUB /s/q/ibm") == 404
        assert client.code("UNSUB *") == 404
        subscribe()
        assert client.data("UNSUB *") == [
            "MESSAGE /l/os",
            "MESSAGE /s/q/ibm",
            "TOPIC /s",
            "TOPIC /s/q",
            "TOPIC /s/q/ibm",
            "TOPIC /s/q/sony",
            "SUB /s/q/ibm",
        ]


def test_part_of_a_wildcard_ends(server: Running) -> None:
    """What is taken out of a wildcard is not delivered; subscribed to anew, it is."""
    client = server.client("alice")
    client.data("SUB MESSAGE /q/*")
    assert client.data("UNSUB MESSAGE /q/a") == ["MESSAGE /q/a"]
    assert client.code("UNSUB MESSAGE /q/a") == 404
    client.publish("/q/a", "1")
    client.publish("/q/b", "2")
    assert client.smuid() == 2
    client.data("SUB MESSAGE /q/a")
    assert client.smuid() == 1  # it is kept still
    client.data("UNSUB MESSAGE /q/a")
    client.data("SUB MESSAGE /q/*")
    client.publish("/q/a", "3")
    assert client.smuid() == 3


def test_SM_146_a_new_subscriber_gets_what_is_kept() -> None:
    """What has not expired, and each message once however often it subscribes."""
    clock = Clock()
    with running(clock=clock) as server:
        server.accounts("alice", "bob")
        server.topics("/t")
        publisher = server.client("alice", listen=False)
        publisher.publish("/t", "1", "Timeout: 00:00:30")
        kept = publisher.publish("/t", "2", "Timeout: 00:01:00")
        clock.now += 31
        server.sweep()
        client = server.client("bob")
        client.data("SUB MESSAGE /t")
        assert client.smuid() == kept
        client.data("UNSUB MESSAGE /t")
        client.data("SUB MESSAGE /t")
        assert publisher.publish("/t", "3") == client.smuid()


def test_SM_147_a_subscription_begins_at_a_time() -> None:
    """What came before it is not delivered, whether that is past or to come."""
    clock = Clock()
    with running(clock=clock) as server:
        server.accounts("alice", "bob")
        server.topics("/t")
        publisher, client = server.client("alice", listen=False), server.client("bob")

        def date(seconds: float) -> str:
            return format_date(datetime.fromtimestamp(clock.now + seconds, UTC))

        publisher.publish("/t", "1")
        clock.now += 100
        second = publisher.publish("/t", "2")
        client.data(f"SUB MESSAGE /t {date(-50)}")
        assert client.smuid() == second
        client.data(f"SUB MESSAGE /t {date(50)}")
        publisher.publish("/t", "3")
        clock.now += 51
        fourth = publisher.publish("/t", "4")
        assert client.smuid() == fourth
        assert client.code("SUB MESSAGE /t yesterday") == 400


def test_SM_148_what_was_subscribed_to_is_listed(server: Running) -> None:
    """After the code, one topic on each line."""
    client = server.client("alice", listen=False)
    assert client.ask("SUB MESSAGE /q/a") == ["200-OK", "200 /q/a"]
    assert client.ask("SUB MESSAGE /q/*") == ["200-OK", "200-/q/a", "200 /q/b"]
    assert client.code("SUB MESSAGE /none") == 404


def test_SM_153_SM_223_a_subscription_outlives_the_session(server: Running) -> None:
    """What was published meanwhile comes with the next login, in order."""
    client = server.client("alice")
    client.data("SUB MESSAGE /q/a")
    client.data("QUIT")
    publisher = server.client("bob", listen=False)
    smuids = [publisher.publish("/q/a", str(number)) for number in range(3)]
    back = server.client("alice")
    assert [back.smuid() for _ in smuids] == smuids


def test_a_wildcard_covers_what_rights_allow(server: Running) -> None:
    """A topic without the right is not subscribed to; one alone is refused."""
    server.accounts("carol", rights=Right.NONE)
    server.grant("carol", "/q/a", Right.SUBSCRIBE)
    client = server.client("carol", listen=False)
    assert client.data("SUB MESSAGE /q/*") == ["/q/a"]
    assert client.code("SUB MESSAGE /q/b") == 401
    assert client.code("SUB MESSAGE /q/b/*") == 401
    assert client.data("COUNT SUB /q/a") == ["1"]


# The notify connection


def test_SM_120_SM_124_SM_125_SM_126_suspend_and_resume(server: Running) -> None:
    """Nothing of any topic comes until RESUME, then all in order; RESUME alone changes nothing."""
    client, publisher = server.client("alice"), server.client("bob", listen=False)
    client.data("SUB MESSAGE /q/*")
    assert client.ask("SET NOTIFY RESUME") == ["200 OK"]
    assert publisher.publish("/q/a", "0") == client.smuid()
    assert client.ask("SET NOTIFY SUS") == ["200 OK"]
    smuids = [publisher.publish(topic, f"s{number}") for number, topic in enumerate(("/q/a", "/q/b", "/q/a"))]
    assert client.notify.is_silent()
    assert client.data("COUNT MESSAGE /q/*") == ["4"]
    client.data("SET NOTIFY RES")
    assert [client.smuid() for _ in smuids] == smuids


def test_SM_121_SM_122_the_client_moves_to_another_port(server: Running) -> None:
    """The server leaves the old connection, and has made the new one when it answers; what waited comes there."""
    server.server.administer(lambda admin: admin.set_options(hide_ports=False))
    client = server.client("alice")
    client.data("SUB MESSAGE /q/a")
    smuid = client.publish("/q/a", "1")
    assert client.notified()[0] == "NOTIFY MESSAGE /q/a"
    old, listener = client.notify, Listener()
    client.send(f"SET NOTIFY PORT {listener.port}\r\n")
    client.notify = listener.accept()
    assert client.reply() == ["200 OK"]
    assert old.is_over()
    assert client.smuid() == smuid
    listener.close()
    old.close()


def test_SM_123_a_port_that_nobody_listens_at(server: Running) -> None:
    """404; the next command is answered as ever. One that never answers: 408. That is as the draft has it; see
    tests/security/test_smqp.py."""
    server.server.administer(lambda admin: admin.set_options(hide_ports=False))
    client = server.client("alice", listen=False)
    with nobody() as port:
        assert client.code(f"SET NOTIFY PORT {port}") == 404
    assert client.code("NOOP") == 200
    server.server.administer(lambda admin: admin.set_options(connect_timeout=0.2))
    with socket.socket() as full:  # takes no connection beyond those that wait in it already
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        assert client.code(f"SET NOTIFY PORT {full.getsockname()[1]}") == 408
        for each in waiting:
            each.close()


def test_notify_connections_go_to_the_client_alone(server: Running) -> None:
    """SM-008: a command names a port, never a host; the connection goes to where the login came from."""
    client = server.client("alice", listen=False)
    for port in ("10.0.0.1:9", "example.org 9", "0", "65536", "-1", ""):
        assert client.code(f"SET NOTIFY PORT {port}") == 400
    session = next(iter(server.server.engine.core.sessions.values()))
    assert session.address == client.socket.getsockname()[0]


def test_SM_160_one_message_is_on_its_way_at_a_time(server: Running) -> None:
    """The next is not sent before the client acknowledged this one and the server answered."""
    client = server.client("alice")
    client.data("SUB MESSAGE /q/a")
    first, second = client.publish("/q/a", "1"), client.publish("/q/a", "2")
    assert attribute(client.notified(), "Smuid") == f"mq.example/{first}"
    assert client.notify.is_silent()
    client.acknowledge()
    assert client.smuid() == second


def test_a_stray_acknowledgement_counts_for_nothing(server: Running) -> None:
    """One that nothing was sent for is answered; the next message still waits for its own."""
    client = server.client("alice")
    client.data("SUB MESSAGE /q/a")
    client.acknowledge()
    smuid = client.publish("/q/a", "1")
    client.notified()
    assert server.server.engine.core.database.row("SELECT COUNT(*) FROM deliveries")[0] == 1
    client.acknowledge()
    assert client.publish("/q/a", "2") == smuid + 1 == client.smuid()


def test_SM_162_a_delivery_that_is_not_acknowledged_is_made_again(server: Running) -> None:
    """When the connection ends before; not when it ends after the server has recorded it."""
    client = server.client("alice")
    client.data("SUB MESSAGE /q/a")
    smuid = client.publish("/q/a", "1")
    client.notified()
    client.notified_anew()
    assert attribute(client.notified(), "Smuid") == f"mq.example/{smuid}"
    client.notify.send("310 ACK\r\n")
    eventually(lambda: server.server.engine.core.database.row("SELECT COUNT(*) FROM deliveries")[0] == 0)
    client.notify.close()
    after = client.publish("/q/a", "2")
    client.notify = client.listener.accept()
    assert client.smuid() == after


@pytest.mark.parametrize("answer", ["400 Bad request", "503 Service unavailable", "hello", "\x00", "x" * 9000])
def test_a_client_may_refuse_a_message_for_now(server: Running, answer: str) -> None:
    """Whatever it answers but 310, the message is sent again later."""
    client = server.client("alice")
    client.data("SUB MESSAGE /q/a")
    smuid = client.publish("/q/a", "1")
    assert attribute(client.notified(), "Smuid") == f"mq.example/{smuid}"
    client.notify.send(answer + "\r\n")
    assert client.smuid() == smuid


def test_SM_177_retries_end(server: Running) -> None:
    """A client that never acknowledges is sent a message so often, on a connection of its own each time; then it is
    given up, and goes the way of all messages."""
    server.server.administer(lambda admin: admin.set_parameters("/q/a", max_retries=2, retry_timeout=0.05, timeout=0.0))
    client = server.client("alice")
    client.data("SUB MESSAGE /q/*")
    client.publish("/q/a", "1")
    marker = client.publish("/q/b", "2")
    for _ in range(3):
        assert client.notified()[0] == "NOTIFY MESSAGE /q/a"
        assert client.notify.is_over()
        client.notified_anew()
    assert client.smuid() == marker
    assert client.data("LIST MESSAGE /q/a/Trash") == ["1"]


def test_events_wait_for_the_message_that_is_on_its_way(server: Running) -> None:
    """They are no part of the dialogue of acknowledgements."""
    client = server.client("alice")
    client.data("SUB MESSAGE /q/a")
    client.data("SUB TOPIC /q/*")
    client.publish("/q/a", "1")
    client.publish("/q/a", "2")
    assert client.notified()[0] == "NOTIFY MESSAGE /q/a"
    client.data("CREATE TOPIC /q/new")
    assert client.notify.is_silent()
    client.acknowledge()
    assert client.notified() == ["NOTIFY TOPIC /q/new", "Action: ADDED"]
    assert client.smuid() == 2


def test_what_a_dead_session_had_not_acknowledged_goes_on(server: Running) -> None:
    """To another session of the account, even if that came later, or to the next; not if another session has it."""
    first, second = server.client("alice"), server.client("alice")
    first.data("SUB MESSAGE /q/a")
    publisher = server.client("bob", listen=False)
    one = publisher.publish("/q/a", "1")
    assert first.smuid() == one
    second.notified()
    second.close()
    eventually(lambda: len(server.server.engine.core.sessions) == 2)
    assert server.server.engine.core.database.row("SELECT COUNT(*) FROM deliveries")[0] == 0
    first.data("SET NOTIFY SUSPEND")
    two = publisher.publish("/q/a", "2")
    first.close()
    third = server.client("alice")
    assert third.smuid() == two
    third.data("SET NOTIFY SUSPEND")
    three = publisher.publish("/q/a", "3")
    suspended, present = server.client("alice"), server.client("alice")  # both came too late for that message
    suspended.data("SET NOTIFY SUSPEND")
    third.close()
    assert present.smuid() == three


def test_one_client_that_is_slow_holds_up_nobody(server: Running) -> None:
    """SM-213: others get their messages while it does not answer; its messages wait for it."""
    slow, quick, publisher = server.client("alice"), server.client("bob"), server.client("bob", listen=False)
    for client in (slow, quick):
        client.data("SUB MESSAGE /q/a")
    smuids = [publisher.publish("/q/a", str(number)) for number in range(20)]
    assert [quick.smuid() for _ in smuids] == smuids
    assert [slow.smuid() for _ in smuids] == smuids
