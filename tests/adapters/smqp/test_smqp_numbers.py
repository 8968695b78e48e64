"""What is gone keeps its number: a late answer, or the end of a session, concerns nothing that came after it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from smqp_kit import Clock, Raw, Running, eventually, prepared, running

from brokers.smqp.server.database import RENUMBERED
from brokers.smqp.server.topics import TopicKind


def jms(server: Running, *names: str) -> list[Raw]:
    """Prepare a server for JMS, and log in as these accounts, without a notify connection."""
    prepared(server)
    server.accounts(*names)
    return [server.client(name, listen=False) for name in names]


def test_a_late_acknowledgement() -> None:
    """It does not take away the message that was published after its own had expired."""
    clock = Clock()
    with running(clock=clock) as server:
        jms(server, "alice", "bob")
        server.topics("/queue/a", "/queue/b")
        slow, bob = server.client("alice"), server.client("bob")
        slow.data("SUB MESSAGE /queue/a")
        bob.publish("/queue/a", "1", "Timeout: 00:00:01", data="slow")
        assert slow.notified()[-1] == "slow"
        clock.now += 2
        server.sweep()
        number = bob.publish("/queue/b", "2", data="precious")
        slow.acknowledge()
        assert bob.data("SUB MESSAGE /queue/b") == ["/queue/b"]
        assert bob.smuid() == number


def test_a_temporary_topic_that_was_removed() -> None:
    """The end of the session that made it leaves a topic alone that another one made since."""
    with running() as server:
        alice, bob = jms(server, "alice", "bob")
        assert alice.code("CREATE TOPIC /temporary/queue/t1") == 200
        assert alice.code("REMOVE TOPIC /temporary/queue/t1") == 200
        assert bob.code("CREATE TOPIC /queue/orders") == 200
        assert alice.code("CREATE TOPIC /temporary/queue/t2") == 200
        bob.publish("/queue/orders", "1", data="precious")
        alice.close()
        directory = server.server.engine.core.directory
        eventually(lambda: directory.find("/temporary/queue/t2") is None, "what is left of the session ends with it")
        assert bob.data("COUNT MESSAGE /queue/orders") == ["1"]


def test_a_message_whose_topic_ended_with_another_session() -> None:
    """The session that has it under way ends as any other: an account is never locked out."""
    with running(max_logins=2) as server:
        jms(server)
        core = server.server.engine.core
        for number in range(3):
            owner, other = server.client("jms", listen=False), server.client("jms")
            assert owner.code(f"CREATE TOPIC /temporary/queue/t{number}") == 200
            other.data(f"SUB MESSAGE /temporary/queue/t{number}")
            owner.publish(f"/temporary/queue/t{number}", "1", data="under way")
            assert other.notified()[-1] == "under way"
            owner.close()
            eventually(lambda: len(core.sessions) == 1, "the owner left")
            if number == 0:
                other.acknowledge()  # of what is gone
            if number == 1:
                other.notify.send("400 no\r\n\r\n")
                assert other.code("NOOP") == 200
            other.close()
            eventually(lambda: not core.sessions and not core.sessions_of(1), "the other left, too")


@pytest.mark.parametrize("is_older", [False, True])
def test_a_store_of_version_1(tmp_path: Path, is_older: bool) -> None:
    """It is turned into one of today; all that is in it stays. The first ones had no sums of octets."""
    store = tmp_path / "store"
    with running(store) as server:
        jms(server, "alice")
        server.topics("/t", "/queue/a")
        alice = server.client("alice", listen=False)
        alice.data("SUB MESSAGE /t")
        alice.publish("/queue/a", "1", data="of the queue")
        alice.publish("/t", "2", data="of the topic")
    as_version_1(store, is_older=is_older)
    with running(store) as server:
        alice = server.client("alice")
        alice.data("SUB MESSAGE /queue/a")
        assert sorted(alice.received()[-1] for _ in range(2)) == ["of the queue", "of the topic"]
        octets, directory = server.server.engine.core.messages.octets, server.server.engine.core.directory
        number = server.server.call(lambda: directory.find("/queue/a")).result().number
        assert alice.code("REMOVE TOPIC /queue/a") == 200
        assert server.server.call(lambda: octets(number)).result() == 0
        assert alice.code("CREATE TOPIC /queue/b") == 200
        assert server.server.call(lambda: directory.find("/queue/b")).result().number > number


VERSION_1 = """
CREATE TABLE topics (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, folded TEXT NOT NULL UNIQUE, target INTEGER,
    keywords TEXT NOT NULL DEFAULT '', is_removing INTEGER NOT NULL DEFAULT 0, is_login INTEGER NOT NULL DEFAULT 0,
    kind TEXT NOT NULL, timeout REAL, retry_timeout REAL, max_retries INTEGER, max_messages INTEGER,
    max_message INTEGER, max_octets INTEGER);
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY, smuid INTEGER NOT NULL, topic INTEGER NOT NULL, account INTEGER, session INTEGER,
    name TEXT NOT NULL, priority INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, current INTEGER NOT NULL);
CREATE INDEX deliveries_by_session ON deliveries (session, priority, smuid);
CREATE INDEX deliveries_by_message ON deliveries (smuid, account);
CREATE INDEX deliveries_by_account ON deliveries (account, session);
CREATE INDEX deliveries_by_topic ON deliveries (topic, priority, smuid);
CREATE TRIGGER held_ended AFTER DELETE ON topics BEGIN DELETE FROM held WHERE topic = old.id; END;
"""
"""The tables in which numbers were used again, as the first version made them."""


def as_version_1(store: Path, *, is_older: bool) -> None:
    """Give a store the form that it had in the first version."""
    with closing(sqlite3.connect(store)) as file:
        for table in RENUMBERED:
            file.execute(f"CREATE TABLE {table}_before AS SELECT * FROM {table}")
            file.execute(f"DROP TABLE {table}")
        file.executescript(VERSION_1)
        for table in RENUMBERED:
            file.execute(f"INSERT INTO {table} SELECT * FROM {table}_before")
            file.execute(f"DROP TABLE {table}_before")
        if is_older:
            for trigger in ("added", "moved", "removed", "ended"):
                file.execute(f"DROP TRIGGER held_{trigger}")
            file.execute("DROP TABLE held")
        file.execute("UPDATE smqp SET version = 1")
        file.commit()


@pytest.mark.parametrize("where", ["the store", "what the session leaves"])
def test_a_session_that_cannot_be_settled(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """It ends all the same, with its connections; what it left is settled once that can be."""
    with running() as server:
        jms(server)
        server.accounts("alice", "bob")
        server.topics("/queue/a")
        alice = server.client("alice")
        bob = server.client("bob", listen=False)
        assert alice.code("CREATE TOPIC /temporary/queue/t") == 200
        alice.data("SUB MESSAGE /queue/a")
        number = bob.publish("/queue/a", "1", data="under way")
        assert alice.notified()[-1] == "under way"
        core = server.server.engine.core
        owner, name = (core.database, "begin") if where == "the store" else (core, "session_topics")
        with monkeypatch.context() as broken:
            broken.setattr(owner, name, fail)
            alice.socket.close()
            assert alice.notify.is_over()
        eventually(lambda: len(core.sessions) == 1, "it ended")
        eventually(lambda: core.directory.find("/temporary/queue/t") is None, "what it made is gone")
        bob.listen()
        bob.data("SUB MESSAGE /queue/a")
        assert bob.smuid() == number


def fail(*_: object) -> None:
    """Fail as a disk does."""
    raise sqlite3.OperationalError("disk I/O error")


def test_a_queue_that_becomes_a_topic() -> None:
    """What is under way of it counts as refused, and its session goes on."""
    with running() as server:
        jms(server)
        server.accounts("alice")
        server.topics("/queue/a")
        alice = server.client("alice")
        alice.data("SUB MESSAGE /queue/a")
        alice.publish("/queue/a", "1", data="under way")
        assert alice.notified()[-1] == "under way"
        server.server.administer(lambda admin: admin.set_parameters("/queue/a", kind=TopicKind.TOPIC))
        alice.notify.send("400 no\r\n\r\n")
        assert alice.code("NOOP") == 200
        alice.close()
        eventually(lambda: not server.server.engine.core.sessions, "it left")
