"""What is gone keeps its number: a late answer, or the end of a session, concerns nothing that came after it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from smqp_kit import Clock, Raw, Running, eventually, prepared, running

from brokers.smqp.server.database import RENUMBERED


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


def test_a_store_of_version_1(tmp_path: Path) -> None:
    """It is turned into one of today; all that is in it stays."""
    store = tmp_path / "store"
    with running(store) as server:
        jms(server, "alice")
        server.topics("/t", "/queue/a")
        alice = server.client("alice", listen=False)
        alice.data("SUB MESSAGE /t")
        alice.publish("/queue/a", "1", data="of the queue")
        alice.publish("/t", "2", data="of the topic")
    as_version_1(store)
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


def as_version_1(store: Path) -> None:
    """Give the tables the form that they had, in which numbers were used again."""
    with closing(sqlite3.connect(store)) as file:
        for table in RENUMBERED:
            (made,) = file.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
            others = file.execute(
                "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND name <> ? AND sql IS NOT NULL", (table, table)
            ).fetchall()
            file.execute(f"CREATE TABLE before AS SELECT * FROM {table}")
            file.execute(f"DROP TABLE {table}")
            file.execute(made.replace(" AUTOINCREMENT", ""))
            file.execute(f"INSERT INTO {table} SELECT * FROM before")
            file.execute("DROP TABLE before")
            for (sql,) in others:
                file.execute(sql)
        file.execute("UPDATE smqp SET version = 1")
        file.commit()
