"""The store of requests: who may work on what, what is remembered, what a transaction keeps, and for how long."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from calling_kit import PATIENCE, eventually

from brokers import Message, MessageType, PropertyType, properties, queue, typed
from soapjms import SqliteStore, StoreError, UsageError
from soapjms.idempotency import Answered, Claim
from soapjms.protocol.errors import OvertakenError
from soapjms.sqlitestore import BATCH

ROOT = Path(__file__).parent.parent
RESPONSE = Message(
    message_type=MessageType.BYTES,
    body=b"<a/>\xff",
    properties=properties([typed("SOAPJMS_isFault", True), typed("n", 7, PropertyType.SHORT)]),
    delivery_mode=2,
    priority=4,
    expiration=5,
    correlation_id="c",
    destination=queue("answers"),
)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[SqliteStore]:
    with SqliteStore(path, lease=60, keep=1000, clock=clock) as store:
        yield store


@pytest.fixture
def other(store: SqliteStore, path: Path, clock: Clock) -> Iterator[SqliteStore]:
    """The store as another process has it open."""
    with SqliteStore(path, lease=60, keep=1000, clock=clock) as other:
        yield other


def begun(store: SqliteStore, key: bytes = b"k") -> Claim:
    """Begin a request that nobody works on."""
    claim = store.begin(key)
    assert isinstance(claim, Claim)
    return claim


def killed(store: SqliteStore, clock: Clock) -> None:
    """Let a process show no sign of life any more."""
    store._closing.set()
    store._keeper.join()
    store._closing.clear()
    clock.seconds += 61


def rows(path: Path, sql: str) -> list[Any]:
    """Read from the file as somebody else would."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


class TestEntries:
    """What is known of a request."""

    def test_finished(self, store: SqliteStore, other: SqliteStore) -> None:
        """A finished request has its response, for everybody; where it went is not kept."""
        claim = begun(store)
        assert (claim.deaths, claim.failures) == (0, 0)
        claim.finish(RESPONSE)
        for each in (store, other):
            found = each.begin(b"k")
            assert isinstance(found, Answered)
            assert found.response is not None
            assert found.response.body == RESPONSE.body
            assert found.response.properties == RESPONSE.properties
            assert (found.response.delivery_mode, found.response.priority, found.response.expiration) == (2, 4, 5)
            assert (found.response.destination, found.response.correlation_id) == (None, None)

    @pytest.mark.parametrize("body", ["", "grüß \ud800".replace("\ud800", ""), "<a/>"])
    def test_text(self, store: SqliteStore, body: str) -> None:
        """A response of text comes back as text."""
        begun(store).finish(Message(message_type=MessageType.TEXT, body=body))
        found = store.begin(b"k")
        assert isinstance(found, Answered)
        assert found.response is not None
        assert (found.response.body, found.response.message_type) == (body, MessageType.TEXT)

    def test_one_way(self, store: SqliteStore) -> None:
        """A one-way message is finished without a response."""
        begun(store).finish(None)
        assert store.begin(b"k") == Answered(None)

    def test_at_work(self, store: SqliteStore, other: SqliteStore) -> None:
        """While somebody works on a request nobody else may; others are free."""
        begun(store)
        assert store.begin(b"k") is None
        assert other.begin(b"k") is None
        begun(other, b"another")

    def test_abandoned(self, store: SqliteStore, other: SqliteStore) -> None:
        """A request that was let go of may be begun again; failures are counted, and nobody died."""
        begun(store).abandon()
        claim = begun(other)
        assert (claim.deaths, claim.failures) == (0, 0)
        claim.abandon(failed=True)
        claim = begun(store)
        claim.abandon(failed=True)
        claim = begun(other)
        assert (claim.deaths, claim.failures) == (0, 2)

    def test_forgotten(self, store: SqliteStore) -> None:
        """A request that was forgotten is as new."""
        begun(store).abandon(failed=True)
        begun(store).forget()
        assert begun(store).failures == 0

    def test_dead_owner(self, store: SqliteStore, other: SqliteStore, clock: Clock) -> None:
        """What a process had begun that shows no sign of life may be begun by another, which is told."""
        begun(store)
        killed(store, clock)
        other._show_life()
        claim = begun(other)
        assert claim.deaths == 1
        claim.abandon()
        assert begun(other).deaths == 1

    def test_closed_owner(self, store: SqliteStore, other: SqliteStore) -> None:
        """Of a process that closed its store nothing has to be waited for."""
        begun(other)
        other.close()
        assert begun(store).deaths == 1

    def test_overtaken(self, store: SqliteStore, other: SqliteStore, clock: Clock) -> None:
        """Who wakes up after another took over finishes nothing, and what it wrote is gone."""
        late = begun(store)
        late.transaction.execute("CREATE TABLE t (a)")
        killed(store, clock)
        late.roll_back()  # for the other to be able to write at all
        assert not rows(store.path, "SELECT * FROM sqlite_master WHERE name = 't'")
        other._show_life()
        claim = begun(other)
        late.transaction.execute("CREATE TABLE t (a)")
        with pytest.raises(OvertakenError, match="begun by another process"):
            late.finish(RESPONSE)
        assert not rows(store.path, "SELECT * FROM sqlite_master WHERE name = 't'")
        late.abandon()
        assert store.begin(b"k") is None
        claim.finish(None)
        assert store.begin(b"k") == Answered(None)

    def test_signs_of_life(self, path: Path, clock: Clock) -> None:
        """A process that works for longer than the lease shows life meanwhile."""
        alive = "SELECT count(*) FROM soapjms_owners WHERE until > {}"
        with SqliteStore(path, lease=0.4, clock=clock) as store, SqliteStore(path, lease=0.4, clock=clock) as other:
            begun(store)
            for _ in range(4):
                clock.seconds += 0.3
                eventually(lambda: rows(path, alive.format(clock.seconds + 0.2)) == [(2,)], "both showed life")
                assert other.begin(b"k") is None

    def test_one_of_many(self, store: SqliteStore, other: SqliteStore) -> None:
        """Of many that begin the same request at once, one may work on it."""
        together = Barrier(16)

        def begin(number: int) -> object:
            together.wait(PATIENCE)
            return (store, other)[number % 2].begin(b"k")

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(begin, range(16)))
        assert sum(isinstance(each, Claim) for each in found) == 1
        assert found.count(None) == 15

    def test_after_a_kill(self, path: Path) -> None:
        """What was finished is there after the process was killed, what it wrote and did not finish is not."""
        program = f"""
import os, signal
from brokers import Message, MessageType
from soapjms import SqliteStore
store = SqliteStore({str(path)!r}, lease=0.2)
first = store.begin(b"first")
first.transaction.execute("CREATE TABLE t (a)")
first.transaction.execute("INSERT INTO t VALUES (1)")
first.finish(Message(message_type=MessageType.BYTES, body=b"first"))
second = store.begin(b"second")
second.transaction.execute("INSERT INTO t VALUES (2)")
os.kill(os.getpid(), signal.SIGKILL)
"""
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False)
        assert done.returncode == -9
        assert rows(path, "SELECT a FROM t") == [(1,)]
        with SqliteStore(path) as store:
            assert isinstance(store.begin(b"first"), Answered)
            eventually(lambda: isinstance(claim := store.begin(b"second"), Claim) and claim.deaths == 1, "it is free")


class TestTransaction:
    """What a service writes."""

    def test_kept(self, store: SqliteStore) -> None:
        """It is there once the request is finished, not before; it is read by who wrote it."""
        claim = begun(store)
        with claim.transaction as database:
            database.execute("CREATE TABLE t (a)")
            database.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
        assert claim.transaction is database
        assert database.execute("SELECT sum(a) FROM t").fetchone() == (3,)
        assert not rows(store.path, "SELECT * FROM sqlite_master WHERE name = 't'")
        claim.finish(RESPONSE)
        assert rows(store.path, "SELECT a FROM t") == [(1,), (2,)]

    @pytest.mark.parametrize("end", ["roll_back", "abandon", "forget"])
    def test_undone(self, store: SqliteStore, end: str) -> None:
        """It is gone where the request is not finished; the next may write."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        getattr(claim, end)()
        assert not rows(store.path, "SELECT * FROM sqlite_master WHERE name = 't'")
        claim = begun(store, b"next")
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(None)
        assert rows(store.path, "SELECT * FROM t") == []

    @pytest.mark.parametrize(
        ("name", "arguments"), [("commit", []), ("rollback", []), ("close", []), ("executescript", ["SELECT 1"])]
    )
    def test_not_the_service_s(self, store: SqliteStore, name: str, arguments: list[str]) -> None:
        """A service does not say when it is committed; the refusal says what does."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        with pytest.raises(UsageError, match=f"{name} on request.transaction: it is committed together with the req"):
            getattr(claim.transaction, name)(*arguments)
        claim.finish(None)
        assert rows(store.path, "SELECT * FROM t") == []

    @pytest.mark.parametrize(
        "sql",
        [
            "COMMIT",
            "ROLLBACK",
            "BEGIN",
            "ATTACH ':memory:' AS other",
            "DELETE FROM soapjms_requests",
            "INSERT INTO SOAPJMS_responses VALUES (1, '', '')",
            "UPDATE soapjms_requests SET octets = 0",
            "DROP TABLE soapjms_requests",
            "CREATE TRIGGER x AFTER INSERT ON soapjms_requests BEGIN SELECT 1; END",
        ],
    )
    def test_forbidden(self, store: SqliteStore, sql: str) -> None:
        """Neither may it in SQL, nor write to our tables; through a cursor it may not either."""
        claim = begun(store)
        for execute in (claim.transaction.execute, claim.transaction.cursor().execute):
            with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
                execute(sql)
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(None)
        assert rows(store.path, "SELECT * FROM t") == []

    def test_savepoints(self, store: SqliteStore) -> None:
        """A part of it may be undone."""
        claim = begun(store)
        for sql in ("CREATE TABLE t (a)", "SAVEPOINT s", "INSERT INTO t VALUES (1)", "ROLLBACK TO s", "RELEASE s"):
            claim.transaction.execute(sql)
        claim.finish(None)
        assert rows(store.path, "SELECT * FROM t") == []

    def test_used_later(self, store: SqliteStore) -> None:
        """A connection that is kept beyond its request writes nothing."""
        claim = begun(store)
        database = claim.transaction
        claim.finish(None)
        for execute in (database.execute, lambda sql: database.executemany(sql, [()])):
            with pytest.raises(UsageError, match=r"request\.transaction has ended"):
                execute("CREATE TABLE t (a)")

    def test_rolled_back_by_the_database(self, store: SqliteStore) -> None:
        """Where an error rolled all of it back, the request is not finished; it may be begun again."""
        setup = begun(store, b"setup")
        setup.transaction.execute("CREATE TABLE t (a UNIQUE ON CONFLICT ROLLBACK)")
        setup.finish(None)
        claim = begun(store)
        claim.transaction.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            claim.transaction.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(StoreError, match="rolled back by an error of the database"):
            claim.finish(None)
        claim.abandon()
        assert rows(store.path, "SELECT * FROM t") == []
        begun(store).finish(None)

    def test_on_the_disk(self, store: SqliteStore) -> None:
        """What a service wrote survives a power cut once it is finished; beginning a request costs no such write."""
        claim = begun(store)
        assert claim.transaction.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        claim.abandon()
        with store._writing() as ledger:
            assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (1,)  # NORMAL

    def test_others_wait(self, store: SqliteStore) -> None:
        """While a service writes others wait, and go on when it is done."""
        claim, done = begun(store), Event()
        claim.transaction.execute("CREATE TABLE t (a)")
        waiting = Thread(target=lambda: (begun(store, b"next"), done.set()))
        waiting.start()
        assert not done.is_set()
        claim.finish(None)
        waiting.join(PATIENCE)
        assert done.is_set()

    def test_waiting_too_long(self, path: Path) -> None:
        """Nobody waits for ever: not for this process, not for another, and what it says names the file."""
        with SqliteStore(path, timeout=0.5) as store, SqliteStore(path, timeout=0.5) as other:
            claim = begun(store)
            claim.transaction.execute("CREATE TABLE t (a)")
            with pytest.raises(StoreError, match=r"somebody else has been writing for 0\.5 s"):
                store.begin(b"next")
            with pytest.raises(StoreError, match=r"requests.db: database is locked"):
                other.begin(b"next")
            claim.finish(None)
            late = begun(other, b"next")
            claim = begun(store, b"another")
            claim.transaction.execute("CREATE TABLE u (a)")
            with pytest.raises(StoreError, match=r"requests.db: database is locked"):
                _ = late.transaction
            with pytest.raises(StoreError, match=r"requests.db: database is locked"):
                SqliteStore(path, timeout=0.5)
            claim.abandon()
            late.transaction.execute("CREATE TABLE u (a)")
            late.finish(None)

    def test_undoing_fails(self, store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
        """A connection that cannot be used any more is followed by another; what was written over it is gone."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        sqlite3.Connection.close(claim.transaction)
        claim.abandon()
        assert "Cannot operate on a closed database" in caplog.text
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (b)")
        claim.finish(None)
        assert rows(store.path, "SELECT b FROM t") == []


class TestCleaningUp:
    """What is too old or too much goes."""

    def test_old(self, store: SqliteStore, clock: Clock) -> None:
        """An entry goes when it was not touched for as long as it is kept, with its response, finished or not."""
        begun(store, b"old").finish(RESPONSE)
        begun(store, b"unfinished").abandon()
        clock.seconds += 600
        begun(store, b"new").finish(RESPONSE)
        clock.seconds += 401
        assert store.sweep() == 2
        assert isinstance(store.begin(b"new"), Answered)
        begun(store, b"old")
        assert rows(store.path, "SELECT count(*) FROM soapjms_responses") == [(1,)]

    def test_touched(self, store: SqliteStore, clock: Clock) -> None:
        """One that was begun again is kept from then on."""
        begun(store).abandon()
        clock.seconds += 999
        begun(store).finish(None)
        clock.seconds += 999
        assert store.sweep() == 0

    @pytest.mark.parametrize("limit", [{"max_entries": 3}, {"max_octets": 15}])
    def test_too_much(self, path: Path, limit: dict[str, int]) -> None:
        """Of too many, or of too many octets, the oldest go."""
        with SqliteStore(path, **limit) as store:  # type: ignore[arg-type]
            for number in range(10):
                begun(store, bytes([number])).finish(RESPONSE)
            assert store.sweep() == 7
            assert store.sweep() == 0
            assert isinstance(store.begin(bytes([7])), Answered)
            begun(store, bytes([6]))

    def test_many(self, path: Path) -> None:
        """More go than fit one transaction; calls go on meanwhile."""
        with SqliteStore(path, max_entries=1) as store:
            for number in range(2 * BATCH + 2):
                begun(store, str(number).encode()).finish(None)
            assert store.sweep() == 2 * BATCH + 1

    def test_by_itself(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It happens without being asked for."""
        monkeypatch.setattr("soapjms.sqlitestore.SWEEP", 0.0)
        with SqliteStore(path, max_entries=1, lease=0.02) as store:
            begun(store, b"first").finish(None)
            begun(store, b"second").finish(None)
            count = "SELECT count(*) FROM soapjms_requests"
            eventually(lambda: rows(path, count) == [(1,)], "the first is gone")

    def test_cannot_now(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Where the file cannot be written, what cannot be removed or shown is logged, and tried again."""
        holder = sqlite3.connect(path, isolation_level=None)
        with SqliteStore(path, timeout=0.3, lease=0.1, max_entries=1) as store:
            begun(store, b"first").finish(None)
            begun(store, b"second").finish(None)
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="database is locked"):
                store.sweep()
            eventually(lambda: "no sign of life could be given" in caplog.text, "it was logged")
            holder.execute("ROLLBACK")
            assert store.sweep() == 1
        holder.close()

    def test_owners(self, store: SqliteStore, other: SqliteStore, clock: Clock) -> None:
        """Processes that died long ago are forgotten."""
        killed(other, clock)
        clock.seconds += 2000
        store._show_life()
        store.sweep()
        assert rows(store.path, "SELECT count(*) FROM soapjms_owners") == [(1,)]


class TestTheFile:
    """What is no file of ours."""

    def test_made_for_its_owner(self, store: SqliteStore) -> None:
        """Nobody else may read it: it holds what services answered."""
        assert {each.stat().st_mode & 0o777 for each in store.path.parent.iterdir()} == {0o600}

    def test_beside_other_tables(self, path: Path) -> None:
        """A database of the service's own may be used; its tables stay."""
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE accounts (a)")
        connection.close()
        with SqliteStore(path) as store:
            begun(store).finish(None)
        assert rows(path, "SELECT * FROM accounts") == []

    def test_no_database(self, path: Path) -> None:
        """A file that is something else is refused, and left alone."""
        path.write_text("something else " * 100)
        with pytest.raises(StoreError, match=r"requests.db cannot be used as a store of requests: file is not a data"):
            SqliteStore(path)
        assert path.read_text().startswith("something else")

    def test_no_folder(self, tmp_path: Path) -> None:
        """A path that leads nowhere is named."""
        with pytest.raises(StoreError, match=r"none/requests.db cannot be opened as a store of requests: .*No such"):
            SqliteStore(tmp_path / "none" / "requests.db")

    def test_other_version(self, path: Path) -> None:
        """A store of another version is refused."""
        SqliteStore(path).close()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE soapjms_version SET version = 99")
        connection.close()
        with pytest.raises(StoreError, match="is a store of version 99, and this soapjms is for version 1"):
            SqliteStore(path)

    @pytest.mark.parametrize("name", ["lease", "keep", "max_entries", "max_octets"])
    def test_arguments(self, path: Path, name: str) -> None:
        """A limit that lets nothing through is refused."""
        with pytest.raises(UsageError, match=f"{name} is 0; it is more than 0"):
            SqliteStore(path, **{name: 0})  # type: ignore[arg-type]

    def test_many_at_once(self, path: Path) -> None:
        """Several processes may make one file at the same moment."""
        program = f"import sys; from soapjms import SqliteStore; SqliteStore({str(path)!r}).close()"
        processes = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) for _ in range(4)]
        assert [each.wait(3 * PATIENCE) for each in processes] == [0] * 4

    def test_closed(self, store: SqliteStore) -> None:
        """A closed store begins nothing; what was begun before is not finished. Closing twice does nothing."""
        claim = begun(store)
        store.close()
        store.close()
        with pytest.raises(StoreError, match="the store is closed"):
            store.begin(b"next")
        with pytest.raises(StoreError, match="the store is closed"):
            claim.finish(None)
        claim.abandon()
