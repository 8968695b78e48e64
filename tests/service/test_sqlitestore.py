"""The store of requests: who may work on what, what is remembered, what a transaction keeps, and for how long."""

from __future__ import annotations

import math
import os
import pwd
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from calling_kit import PATIENCE, eventually
from faulty_sqlite_kit import limit_pages
from places import ROOT

from brokers import Message, MessageType, PropertyType, properties, queue, typed
from soapjms import SqliteStore, StoreError, UsageError
from soapjms.protocol.errors import OvertakenError
from soapjms.service.store.base import UNCOUNTED_DELIVERIES, Claim, FinishedBefore
from soapjms.service.store.clock import BEATS_PER_LEASE, FileTime
from soapjms.service.store.effects import Effects
from soapjms.service.store.sqlite import SWEEP_ENTRIES

FIRST_VERSION = """
CREATE TABLE soapjms_version (version INTEGER NOT NULL);
CREATE TABLE soapjms_owners (owner TEXT PRIMARY KEY, until REAL NOT NULL);
CREATE TABLE soapjms_requests (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, owner TEXT, starts INTEGER NOT NULL,
    deaths INTEGER NOT NULL, failures INTEGER NOT NULL, touched REAL NOT NULL, octets INTEGER);
CREATE TABLE soapjms_responses (number INTEGER PRIMARY KEY, head TEXT NOT NULL, body BLOB);
INSERT INTO soapjms_version VALUES (1)
"""
OPENING = """\
import os, sys
from soapjms import SqliteStore, StoreError
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({group}), os.setuid({user})
try:
    SqliteStore(sys.argv[1])
except StoreError as error:
    print(error)
"""
"""Opens a store as the user `nobody`, if this user may be another one."""


def opened_by_another(path: Path) -> str:
    """Open a store as another user; return the error."""
    user = pwd.getpwnam("nobody")
    program = OPENING.format(group=user.pw_gid, user=user.pw_uid)
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", program, path], env=where, capture_output=True, text=True, check=True, cwd=path.parent
    )
    return done.stdout


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
    with SqliteStore(path, lease=60, keep=1000, steady=clock) as store:
        yield store


@pytest.fixture
def other(store: SqliteStore, path: Path, clock: Clock) -> Iterator[SqliteStore]:
    """The store as another process has it open."""
    with SqliteStore(path, lease=60, keep=1000, steady=clock) as other:
        yield other


def begun(store: SqliteStore, key: bytes = b"k") -> Claim:
    """Begin a request that nobody works on."""
    claim = store.begin(key)
    assert isinstance(claim, Claim)
    return claim


def killed(store: SqliteStore, other: SqliteStore) -> None:
    """Let a process give no sign of life any more, while another gives as many as it takes."""
    store._closing.set()
    store._keeper.join()
    store._closing.clear()
    for _ in range(BEATS_PER_LEASE + 1):  # by the first of which the other's last is seen
        other._show_life()


def claims(path: Path) -> Path:
    """Return the second file of a store."""
    return path.with_name(f"{path.name}-claims")


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
        """A finished request has its response, for everybody, with where it went."""
        claim = begun(store)
        assert (claim.deaths, claim.failures) == (0, 0)
        claim.finish(RESPONSE)
        for each in (store, other):
            found = each.begin(b"k")
            assert isinstance(found, FinishedBefore)
            assert found.response is not None
            assert found.response.body == RESPONSE.body
            assert found.response.properties == RESPONSE.properties
            assert (found.response.delivery_mode, found.response.priority, found.response.expiration) == (2, 4, 5)
            assert (found.response.destination, found.response.correlation_id) == (RESPONSE.destination, None)

    @pytest.mark.parametrize("body", ["", "grüß \ud800".replace("\ud800", ""), "<a/>"])
    def test_text(self, store: SqliteStore, body: str) -> None:
        """A response of text comes back as text."""
        begun(store).finish(Message(message_type=MessageType.TEXT, body=body))
        found = store.begin(b"k")
        assert isinstance(found, FinishedBefore)
        assert found.response is not None
        assert (found.response.body, found.response.message_type) == (body, MessageType.TEXT)

    def test_one_way(self, store: SqliteStore) -> None:
        """A one-way message is finished without a response."""
        begun(store).finish(None)
        assert store.begin(b"k") == FinishedBefore(None)

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

    def test_dead_owner(self, store: SqliteStore, other: SqliteStore) -> None:
        """What a process had begun that shows no sign of life may be begun by another, which is told."""
        begun(store)
        killed(store, other)
        claim = begun(other)
        assert claim.deaths == 1
        claim.abandon()
        assert begun(other).deaths == 1

    def test_closed_owner(self, store: SqliteStore, other: SqliteStore) -> None:
        """Of a process that closed its store nothing has to be waited for."""
        begun(other)
        other.close()
        assert begun(store).deaths == 1

    def test_overtaken(self, store: SqliteStore, other: SqliteStore) -> None:
        """Who wakes up after another took over finishes nothing, and gets no transaction."""
        late = begun(store)
        killed(store, other)
        claim = begun(other)
        with pytest.raises(OvertakenError, match="taken over by another process"):
            _ = late.transaction
        with pytest.raises(OvertakenError, match="taken over by another process"):
            late.finish(RESPONSE)
        late.abandon()
        assert store.begin(b"k") is None
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(None)
        assert store.begin(b"k") == FinishedBefore(None)

    def test_not_while_it_writes(self, path: Path) -> None:
        """Of who counts as dead, and has a transaction, nothing is taken over: it may commit yet, and then it has."""
        with (
            SqliteStore(path, lease=60, timeout=0.2) as store,
            SqliteStore(path, lease=60, timeout=0.2) as other,
        ):
            late, idle = begun(store), begun(store, b"idle")
            late.transaction.execute("CREATE TABLE t (a)")
            killed(store, other)
            with pytest.raises(StoreError, match=f"process {os.getpid()} has had a request.transaction since"):
                other.begin(b"k")
            assert begun(other, b"idle").deaths == 1  # it has none, so nobody waits for it
            with pytest.raises(OvertakenError):
                idle.finish(None)
            late.finish(RESPONSE)
            assert isinstance(other.begin(b"k"), FinishedBefore)
            assert rows(path, "SELECT * FROM t") == []

    def test_signs_of_life(self, path: Path) -> None:
        """A process that works for longer than the lease shows life meanwhile."""
        with SqliteStore(path, lease=2) as store, SqliteStore(path, lease=2) as other:
            begun(store)
            while other._life.signs < 2 * BEATS_PER_LEASE:
                assert other.begin(b"k") is None
                time.sleep(0.01)

    def test_nobody_could_write(self, store: SqliteStore, other: SqliteStore) -> None:
        """While somebody else writes for long nobody can give a sign of life, and so nobody counts as dead."""
        begun(store)
        holder = sqlite3.connect(claims(store.path), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        other._ledger.hurry(0)
        for _ in range(2 * BEATS_PER_LEASE):
            with pytest.raises(StoreError, match="locked"):
                other._show_life()
        holder.execute("ROLLBACK")
        holder.close()
        assert other.begin(b"k") is None

    @pytest.mark.parametrize("step", [-3600.0, 3600.0, 10 * 365 * 86_400.0])
    def test_clock_steps(self, path: Path, step: float) -> None:
        """Whatever becomes of the clock: who lives keeps its requests, who died loses them within the lease or two."""
        clock = Clock()
        with SqliteStore(path, lease=2, clock=clock) as store, SqliteStore(path, lease=2, clock=clock) as other:
            begun(store)
            clock.seconds += step
            with SqliteStore(path, lease=2, clock=clock) as late:
                while late._life.signs < BEATS_PER_LEASE + 2:
                    assert late.begin(b"k") is None
                    time.sleep(0.01)
                store._closing.set()
                store._keeper.join()
                store._closing.clear()
                eventually(lambda: isinstance(late.begin(b"k"), Claim), "it is free")
                assert other.begin(b"k") is None

    @pytest.mark.parametrize("step", [-3600.0, 3600.0])
    def test_killed_before_the_clock_is_set(self, path: Path, step: float) -> None:
        """A process died at work, and the clock was set: the lease counts, and not the step."""
        clock = Clock()
        store = SqliteStore(path, lease=0.4, clock=clock)
        begun(store)
        store._closing.set()
        store._keeper.join()
        clock.seconds += step
        with SqliteStore(path, lease=0.4, clock=clock) as other:
            assert other.begin(b"k") is None
            eventually(lambda: isinstance(found := other.begin(b"k"), Claim) and found.deaths == 1, "it is free")
        store.close()

    def test_taken_over_and_forgotten(self, store: SqliteStore, other: SqliteStore) -> None:
        """Who wakes up cannot finish its next request in place of the one that was taken from it and is gone."""
        asleep = begun(store, b"first")
        killed(store, other)
        begun(other, b"first").forget()
        following = begun(store, b"following")
        with pytest.raises(OvertakenError):
            asleep.finish(RESPONSE)
        asleep.abandon()
        following.finish(None)
        found = other.begin(b"following")
        assert isinstance(found, FinishedBefore)
        assert found.response is None

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
            assert isinstance(store.begin(b"first"), FinishedBefore)
            eventually(lambda: isinstance(claim := store.begin(b"second"), Claim) and claim.deaths == 1, "it is free")


class TestArrivals:
    """Deliveries that are noted before a body is read."""

    def test_counted(self, store: SqliteStore, other: SqliteStore) -> None:
        """Each that was not taken back counts, for everybody, with those that the broker told of before."""
        assert [each.arrive(b"k", 1) for each in (store, other, store)] == [0, 1, 2]
        assert store.arrive(b"k", 9) == 3
        assert store.arrive(b"k", 1) == 9
        assert store.arrive(b"another", 2) == 0
        assert store.arrive(b"another", 2) == 2
        other.depart(b"k")
        assert store.arrive(b"k", 1) == 0

    @pytest.mark.parametrize("with_effects", [False, True])
    def test_finished(self, store: SqliteStore, with_effects: bool) -> None:
        """A request that is finished may be delivered any number of times."""
        claim = begun(store)
        if with_effects:
            claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(None)
        assert [store.arrive(b"k", 99) for _ in range(3)] == [UNCOUNTED_DELIVERIES] * 3

    def test_forgotten(self, store: SqliteStore, clock: Clock) -> None:
        """They are kept as long as anything."""
        store.arrive(b"k", 1)
        clock.seconds += 999
        store.sweep()
        assert store.arrive(b"k", 1) == 1
        clock.seconds += 1001
        store.sweep()
        assert store.arrive(b"k", 1) == 0

    def test_not_taken_back(self, store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
        """Where the store cannot be written, that one counts all the same is told."""
        store.arrive(b"k", 1)
        store.close()
        store.depart(b"k")
        assert "counts as a failed one" in caplog.text


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
        ("name", "arguments"),
        [
            *(("commit", []), ("rollback", []), ("close", [])),
            *(("executescript", ["SELECT 1"]), ("set_authorizer", [None])),
            *(("setlimit", [sqlite3.SQLITE_LIMIT_COLUMN, 20]), ("setconfig", [1005, True])),
            *(("enable_load_extension", [True]), ("blobopen", ["t", "a", 1]), ("deserialize", [b""])),
            ("backup", [None]),
        ],
    )
    def test_not_the_service_s(self, store: SqliteStore, name: str, arguments: list[str]) -> None:
        """A service does not say when it is committed; the refusal says what does."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        with pytest.raises(UsageError, match=f"{name} must not be called on request.transaction: it is committed"):
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

    @pytest.mark.parametrize(
        "sql", ["query_only = ON", "recursive_triggers(1)", "max_page_count = 1", "LOCKING_MODE = EXCLUSIVE"]
    )
    def test_settings(self, store: SqliteStore, sql: str) -> None:
        """A setting that would hold for later requests, or for the end of this one, is refused."""
        claim = begun(store)
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            claim.transaction.execute(f"PRAGMA {sql}")
        claim.finish(None)

    def test_pragmas_that_read(self, store: SqliteStore) -> None:
        """Those that read, or hold for this transaction, are allowed."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        assert claim.transaction.execute("PRAGMA table_info(t)").fetchone()[1] == "a"
        assert claim.transaction.execute("PRAGMA query_only").fetchone() == (0,)
        claim.transaction.execute("PRAGMA defer_foreign_keys = ON")
        claim.finish(None)

    @pytest.mark.parametrize("kind", ["TABLE soapjms_requests (a)", "VIEW soapjms_requests AS SELECT 1"])
    def test_temporary_tables(self, store: SqliteStore, kind: str) -> None:
        """Temporary tables do not take the place of ours, and end with their transaction."""
        claim = begun(store)
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            claim.transaction.execute(f"CREATE TEMP {kind}")
        claim.transaction.execute("CREATE TEMP TABLE t (a)")
        claim.finish(None)
        begun(store, b"next").transaction.execute("CREATE TEMP TABLE t (a)")

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

    def test_used_in_the_next(self, store: SqliteStore) -> None:
        """Nor does it write while another request has a transaction, and it reads nothing; a cursor likewise."""
        claim = begun(store)
        database = claim.transaction
        cursor = database.execute("SELECT 1")
        claim.roll_back()
        following = begun(store, b"next")
        following.transaction.execute("CREATE TABLE t (a)")
        for use in (
            lambda: database.execute("INSERT INTO t VALUES (1)"),
            lambda: cursor.execute("INSERT INTO t VALUES (1)"),
            lambda: database.create_function("f", 0, lambda: 1),
            cursor.fetchone,
            lambda: claim.transaction,
        ):
            with pytest.raises(UsageError, match=r"request\.transaction has ended"):
                use()
        following.finish(None)
        assert rows(store.path, "SELECT a FROM t") == []

    def test_passed_on(self, store: SqliteStore) -> None:
        """A connection that nobody has kept is used again, without what its function has set."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(None)
        effects = store._effects
        claim = begun(store, b"next")
        claim.transaction.row_factory, claim.transaction.text_factory = sqlite3.Row, bytes
        claim.transaction.set_progress_handler(lambda: 1, 1)
        claim.finish(RESPONSE)
        claim = begun(store, b"last")
        assert claim.transaction.execute("SELECT 'a'").fetchone() == ("a",)
        assert store._effects is effects
        assert effects is not None

    def test_another_isolation_level(self, store: SqliteStore) -> None:
        """It holds for the transaction of the function that sets it."""
        claim = begun(store)
        claim.transaction.isolation_level = "IMMEDIATE"
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(None)
        claim = begun(store, b"next")
        assert claim.transaction.isolation_level is None
        assert claim.transaction.execute("SELECT * FROM t").fetchall() == []

    def test_opened_once(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """One connection serves many requests, and sweeps between them: opening one takes as long as a transaction."""
        opened, original = list[Effects](), Effects.open.__func__  # type: ignore[attr-defined]

        def counted(*arguments: Any) -> Effects:
            opened.append(original(*arguments))
            return opened[-1]

        monkeypatch.setattr(Effects, "open", classmethod(counted))
        for number in range(10):
            claim = begun(store, b"%d" % number)
            claim.transaction.execute("CREATE TABLE IF NOT EXISTS t (a)").connection.execute("INSERT INTO t VALUES (1)")
            claim.finish(None)
        store._max_entries = 2
        assert store.sweep()
        claim = begun(store, b"last")
        assert claim.transaction.execute("SELECT count(*) FROM t").fetchone() == (10,)
        claim.finish(None)
        assert len(opened) == 1

    def test_functions_of_its_own(self, store: SqliteStore) -> None:
        """Functions and collations that a function creates are its own."""
        claim = begun(store)
        claim.transaction.create_function("one", 0, lambda: 1)
        claim.transaction.create_collation("backwards", lambda a, b: (a < b) - (a > b))
        assert claim.transaction.execute("SELECT one() ORDER BY 'a' COLLATE backwards").fetchone() == (1,)
        claim.finish(None)
        claim = begun(store, b"next")
        for sql in ("SELECT one()", "SELECT 1 ORDER BY 'a' COLLATE backwards"):
            with pytest.raises(sqlite3.OperationalError, match="no such"):
                claim.transaction.execute(sql)

    def test_rows_left(self, store: SqliteStore, other: SqliteStore) -> None:
        """Rows that a function has left unread hold up no later request."""
        claim = begun(store)
        left = claim.transaction.execute("SELECT 1 UNION SELECT name FROM sqlite_master")
        left.fetchone()
        claim.finish(None)
        claim = begun(other, b"other")
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(None)
        begun(store, b"next").transaction.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(UsageError, match="has ended"):
            left.fetchone()

    def test_rolled_back_by_the_database(self, store: SqliteStore) -> None:
        """Where an error rolled all of it back, the request is not finished; it may be begun again."""
        setup = begun(store, b"setup")
        setup.transaction.execute("CREATE TABLE t (a UNIQUE ON CONFLICT ROLLBACK)")
        setup.finish(None)
        claim = begun(store)
        claim.transaction.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            claim.transaction.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(
            UsageError, match="rolled back by an error of the database while its function ran: UNIQUE c"
        ):
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
        """While a service writes others wait who want to write too, and go on when it is done."""
        claim, done = begun(store), Event()
        claim.transaction.execute("CREATE TABLE t (a)")

        def write_next() -> None:
            _ = begun(store, b"next").transaction
            done.set()

        waiting = Thread(target=write_next)
        waiting.start()
        assert not done.wait(0.1)
        claim.finish(None)
        waiting.join(PATIENCE)
        assert done.is_set()

    def test_others_go_on(self, store: SqliteStore, other: SqliteStore) -> None:
        """Who does not want to write waits for nobody: requests are begun, finished, and answered from the store."""
        begun(store, b"before").finish(RESPONSE)
        written = begun(store, b"written")
        written.transaction.execute("CREATE TABLE t (a)")
        written.finish(RESPONSE)
        begun(store).transaction.execute("INSERT INTO t VALUES (1)")
        for each in (store, other):
            assert isinstance(each.begin(b"before"), FinishedBefore)
            assert isinstance(each.begin(b"written"), FinishedBefore)
            assert each.begin(b"k") is None
        begun(store, b"here").finish(RESPONSE)
        begun(other, b"there").finish(RESPONSE)
        begun(other, b"failed").abandon(failed=True)
        begun(store, b"failed").forget()
        assert isinstance(store.begin(b"there"), FinishedBefore)
        assert store.sweep() == 0
        with SqliteStore(store.path) as third:
            assert isinstance(third.begin(b"here"), FinishedBefore)

    def test_waiting_too_long(self, path: Path) -> None:
        """Nobody waits for ever: not for this process, not for another; what it says names file, process, request."""
        said = rf"requests\.db: process {os.getpid()} has had a request\.transaction since 2\S+ \S+, for ID:7"
        with SqliteStore(path, timeout=0.5) as store, SqliteStore(path, timeout=0.5) as other:
            claim, here, there = begun(store), begun(store, b"next"), begun(other, b"another")
            claim.name = "ID:7"
            claim.transaction.execute("CREATE TABLE t (a)")
            for each in (here, there):
                with pytest.raises(StoreError, match=said):
                    _ = each.transaction
            claim.finish(None)
            there.transaction.execute("CREATE TABLE u (a)")
            there.finish(None)

    def test_locked_by_somebody_else(self, path: Path) -> None:
        """Another program that has the file locked is named by its process, where the system tells."""
        program = f"""
import sqlite3, sys
holder = sqlite3.connect({str(path)!r}, isolation_level=None)
holder.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""
        with SqliteStore(path, timeout=0.2) as store:
            claim = begun(store)
            holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            with holder:
                assert holder.stdout is not None
                assert holder.stdout.readline() == b"locked\n"
                with pytest.raises(StoreError, match=f"requests.db: process {holder.pid} has it locked"):
                    _ = claim.transaction
                begun(store, b"next").finish(None)
                holder.communicate(timeout=PATIENCE)

    def test_locked_while_nobody_waits(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """That others have the file for long is a problem before anybody wants it, until they let go."""
        monkeypatch.setattr("soapjms.service.store.sqlite.LOCKED_SECONDS", 0.2)
        with SqliteStore(path, lease=0.2) as store, closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            eventually(lambda: f"{path}: process {os.getpid()} has it locked" in store.problem, "it is the problem")
            begun(store).finish(None)
            assert "has it locked" in store.problem
            holder.execute("ROLLBACK")
            eventually(lambda: store.problem == "", "it is not any more")
            _ = begun(store, b"next").transaction
            signs = store._life.signs
            eventually(lambda: store._life.signs > signs + 8, "it looked at it")
            assert store.problem == ""  # who has it is one of ours

    def test_often_locked(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Transactions of others are no problem while they are short, however many there are."""
        monkeypatch.setattr("soapjms.service.store.sqlite.LOCKED_SECONDS", 10.0)
        problems = set[str]()
        with SqliteStore(path, lease=0.2) as store, closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("PRAGMA synchronous = OFF")  # a commit takes no time
            holder.execute("CREATE TABLE theirs (n)")
            signs = store._life.signs
            while store._life.signs < signs + 30:
                holder.execute("BEGIN IMMEDIATE")
                holder.execute("INSERT INTO theirs VALUES (1)")
                time.sleep(0.05)  # longer than the store tries
                holder.execute("COMMIT")
                problems.add(store.problem)
        assert problems == {""}

    def test_told_while_it_waits(
        self, store: SqliteStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who has it is told while somebody waits for long, in the log and as the store's problem."""
        monkeypatch.setattr("soapjms.service.store.sqlite.LOCK_WARNING_SECONDS", 0.05)
        claim, following = begun(store), begun(store, b"next")
        claim.name = "ID:7"
        claim.transaction.execute("CREATE TABLE t (a)")
        assert store.problem == ""
        waiting = Thread(target=lambda: following.transaction)
        waiting.start()
        eventually(lambda: "for ID:7" in store.problem, "it is the problem")
        assert (
            f"a request waits: {store.path}: process {os.getpid()} has had a request.transaction since" in caplog.text
        )
        claim.finish(None)
        waiting.join(PATIENCE)
        assert store.problem == ""

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


class TestTooLong:
    """A function that has its transaction for longer than it may."""

    @pytest.fixture
    def store(self, path: Path) -> Iterator[SqliteStore]:
        with SqliteStore(path, transaction_timeout=0.2) as store:
            claim = begun(store, b"setup")
            claim.transaction.execute("CREATE TABLE t (a)")
            claim.finish(None)
            yield store

    def test_rolled_back(self, store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
        """What it wrote is undone and others write; its next statement, and its end, are refused; it is told who."""
        late = begun(store)
        late.name = "ID:late"
        database = late.transaction
        rows_of_it = database.execute("INSERT INTO t VALUES (1) RETURNING a")
        following = begun(store, b"next")
        following.transaction.execute("INSERT INTO t VALUES (2)")
        following.finish(None)
        assert f"process {os.getpid()} has had a request.transaction since" in caplog.text
        assert "for ID:late for too long: it is rolled back" in caplog.text
        refused = r"rolled back, as its function had it for longer than 0\.2 s"
        for use in (
            lambda: database.execute("INSERT INTO t VALUES (3)"),
            lambda: late.transaction.execute("INSERT INTO t VALUES (3)"),
            lambda: database.executemany("INSERT INTO t VALUES (?)", [(3,)]),
            rows_of_it.fetchone,
            rows_of_it.fetchall,
            rows_of_it.fetchmany,
            lambda: next(rows_of_it),
        ):
            with pytest.raises(UsageError, match=refused):
                use()
        assert isinstance(late.problem(), UsageError)
        with pytest.raises(UsageError, match=refused):
            late.finish(RESPONSE)
        late.abandon(failed=True)
        assert rows(store.path, "SELECT a FROM t") == [(2,)]
        assert begun(store).failures == 1

    def test_in_a_statement(self, store: SqliteStore) -> None:
        """A statement that goes on for ever is interrupted."""
        late = begun(store)
        endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO t SELECT i FROM n"
        with pytest.raises(UsageError, match="had it for longer than"):
            late.transaction.execute(endless)
        with pytest.raises(UsageError, match="had it for longer than"):
            late.transaction.execute("INSERT INTO t VALUES (3)")
        late.forget()
        assert rows(store.path, "SELECT a FROM t") == []

    def test_in_rows(self, store: SqliteStore) -> None:
        """So are rows that never end."""
        late = begun(store)
        endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
        with pytest.raises(UsageError, match="had it for longer than"):
            late.transaction.execute(endless).fetchall()
        late.abandon()

    def test_not_its_end(self, store: SqliteStore) -> None:
        """Once the function has ended its time does not count."""
        claim = begun(store)
        claim.transaction.execute("INSERT INTO t VALUES (1)")
        assert claim.problem() is None
        time.sleep(0.5)
        claim.finish(None)
        assert rows(store.path, "SELECT a FROM t") == [(1,)]

    def test_many(self, path: Path) -> None:
        """However close to its end it comes, all is kept that was finished, and nothing else."""
        kept = []
        with SqliteStore(path, transaction_timeout=0.05) as store:
            claim = begun(store, b"setup")
            claim.transaction.execute("CREATE TABLE u (a)")
            claim.finish(None)
            for number in range(60):
                claim = begun(store, b"%d" % number)
                try:
                    database = claim.transaction
                    database.execute("INSERT INTO u VALUES (?)", (number,))
                    time.sleep(0.04 + number % 10 / 500)
                    database.execute("INSERT INTO u VALUES (?)", (number,))
                    claim.finish(None)
                    kept += [(number,)] * 2
                except UsageError:
                    claim.abandon()
        assert rows(path, "SELECT a FROM u") == kept


class TestFailures:
    """What the file cannot do, and what a function does wrong."""

    def full(self, store: SqliteStore) -> Claim:
        """Begin a request, in whose transaction the file cannot grow any more."""
        setup = begun(store, b"setup")
        setup.transaction.execute("CREATE TABLE IF NOT EXISTS t (a UNIQUE)")
        setup.finish(None)
        claim = begun(store)
        pages = claim.transaction.execute("PRAGMA page_count").fetchone()[0]
        limit_pages(claim.transaction, pages)
        return claim

    @pytest.mark.parametrize("how", ["execute", "executemany", "cursor", "subclass"])
    def test_of_the_file(self, store: SqliteStore, how: str) -> None:
        """A full disk is the store's failure, whatever the function makes of the error, and whichever way it came."""
        claim = self.full(store)
        database, sql, large = claim.transaction, "INSERT INTO t VALUES (zeroblob(?))", 1 << 20

        class Own(sqlite3.Cursor):
            pass

        ways: dict[str, Any] = {
            "execute": lambda: database.execute(sql, (large,)),
            "executemany": lambda: database.executemany(sql, [(large,)]),
            "cursor": lambda: database.cursor().execute(sql, (large,)),
            "subclass": lambda: database.cursor(Own).execute(sql, (large,)),
        }
        with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
            ways[how]()
        assert isinstance(claim.problem(), StoreError)
        with pytest.raises(StoreError, match=r"requests.db: database or disk is full"):
            claim.finish(None)
        claim.abandon()

    @pytest.mark.parametrize(
        ("sql", "error"),
        [
            ("INSERT INTO t VALUES (1)", sqlite3.IntegrityError),
            ("INSERT INTO nowhere VALUES (1)", sqlite3.OperationalError),
            ("INSRET", sqlite3.OperationalError),
            ("INSERT INTO t VALUES (?)", sqlite3.ProgrammingError),
            ("COMMIT", sqlite3.DatabaseError),
        ],
    )
    def test_of_the_function(self, store: SqliteStore, sql: str, error: type[sqlite3.Error]) -> None:
        """What a function does wrong is its own; it may go on."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a UNIQUE)")
        claim.transaction.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(error):
            claim.transaction.execute(sql)
        assert claim.problem() is None
        claim.finish(None)
        assert rows(store.path, "SELECT a FROM t") == [(1,)]

    def test_tables_in_use(self, store: SqliteStore) -> None:
        """So is a table that its own cursor reads: waiting would not help."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.transaction.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
        cursor = claim.transaction.execute("SELECT a FROM t")
        cursor.fetchone()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            claim.transaction.execute("DROP TABLE t")
        assert claim.problem() is None

    def test_transaction_that_comes_later(self, path: Path) -> None:
        """A function that got no transaction, and tried again, has nothing held against it."""
        with SqliteStore(path, timeout=0.1) as store:
            holder, claim = begun(store, b"holder"), begun(store)
            _ = holder.transaction
            with pytest.raises(StoreError):
                _ = claim.transaction
            assert isinstance(claim.problem(), StoreError)
            holder.finish(None)
            claim.transaction.execute("CREATE TABLE t (a)")
            assert claim.problem() is None
            claim.finish(None)


class TestLate:
    """Whose time is over, while another transaction begins."""

    def test_only_who_was_late(self, path: Path) -> None:
        """One that begins as a late one is about to be ended, keeps what it writes."""
        with SqliteStore(path, transaction_timeout=0.2) as store:
            late, following = begun(store, b"late"), begun(store, b"following")
            late.transaction.execute("CREATE TABLE t (a)")
            effects = store._effects
            assert effects is not None
            span = effects.late(time.monotonic() + 1)
            assert span is not None
            late.finish(None)
            following.transaction.execute("INSERT INTO t VALUES (1)")
            assert store._effects is effects
            assert not effects.break_off(span)
            following.finish(None)
        assert rows(path, "SELECT a FROM t") == [(1,)]


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
        assert isinstance(store.begin(b"new"), FinishedBefore)
        begun(store, b"old")
        assert rows(claims(store.path), "SELECT count(*) FROM soapjms_responses") == [(1,)]

    @pytest.mark.parametrize("years", [-50, 50])
    def test_clock_steps(self, path: Path, years: int) -> None:
        """No entry goes because the clock is wrong by years: neither in a process that runs, nor in the next."""
        clock, steady = Clock(), Clock()
        clock.seconds = 2e9

        def opened() -> SqliteStore:
            return SqliteStore(path, keep=1000, clock=clock, steady=steady)

        with opened() as store:
            begun(store).finish(RESPONSE)
            clock.seconds += years * 365 * 86_400
            assert store.sweep() == 0
            begun(store, b"later").finish(RESPONSE)
        with opened() as store:
            assert store.sweep() == 0
            assert isinstance(store.begin(b"k"), FinishedBefore)
            steady.seconds += 1001
            assert store.sweep() == 2

    @pytest.mark.parametrize("flaps", [False, True], ids=["stays wrong", "right and wrong in turn"])
    def test_wrong_at_each_start(self, path: Path, flaps: bool) -> None:
        """A wrong clock counts once, however often the file is opened: what was answered minutes ago is known."""
        clock, steady = Clock(), Clock()
        clock.seconds = right = 2e9
        with SqliteStore(path, keep=1000, clock=clock, steady=steady) as store:
            begun(store, b"0").finish(RESPONSE)
        for start in range(1, 9):
            clock.seconds = right + (0 if flaps and start % 2 else 365 * 86_400)
            with SqliteStore(path, keep=1000, clock=clock, steady=steady) as store:
                assert store.sweep() == 0
                assert all(isinstance(store.begin(b"%d" % before), FinishedBefore) for before in range(start))
                begun(store, b"%d" % start).finish(RESPONSE)

    def test_time_while_nobody_has_it_open(self, path: Path) -> None:
        """It goes on by the clock, up to half of what entries are kept."""
        clock, steady = Clock(), Clock()
        clock.seconds = 2e9
        with SqliteStore(path, keep=1000, clock=clock, steady=steady) as store:
            begun(store).finish(RESPONSE)
        for away in (400, 400):
            clock.seconds += away
            with SqliteStore(path, keep=1000, clock=clock, steady=steady) as store:
                assert store.sweep() == 0
        clock.seconds += 400
        with SqliteStore(path, keep=1000, clock=clock, steady=steady) as store:
            assert store.sweep() == 1

    def test_time_of_a_file(self) -> None:
        """Who began with a clock that was wrong catches up with the others."""
        clock = Clock()
        time = FileTime(lambda: 5.0, clock, keep=1000, newest=0)
        assert time() == 5
        time.catch_up(2e9)
        clock.seconds += 1
        assert time() == 2e9 + 1
        time.catch_up(7.0)
        assert time() == 2e9 + 1

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
            assert isinstance(store.begin(bytes([7])), FinishedBefore)
            begun(store, bytes([6]))

    def test_many(self, path: Path) -> None:
        """More go than fit one transaction; calls go on meanwhile."""
        with SqliteStore(path, max_entries=1) as store:
            for number in range(2 * SWEEP_ENTRIES + 2):
                begun(store, str(number).encode()).finish(None)
            assert store.sweep() == 2 * SWEEP_ENTRIES + 1

    def test_by_itself(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It happens without being asked for."""
        monkeypatch.setattr("soapjms.service.store.sqlite.SWEEP_SECONDS", 0.0)
        with SqliteStore(path, max_entries=1, lease=0.02) as store:
            begun(store, b"first").finish(None)
            begun(store, b"second").finish(None)
            count = "SELECT count(*) FROM soapjms_requests"
            eventually(lambda: rows(claims(path), count) == [(1,)], "the first is gone")

    def test_with_effects(self, store: SqliteStore, clock: Clock) -> None:
        """What was finished with what its service wrote goes likewise; what the service wrote stays."""
        for key in (b"old", b"new"):
            claim = begun(store, key)
            claim.transaction.execute("CREATE TABLE IF NOT EXISTS t (a)")
            claim.transaction.execute("INSERT INTO t VALUES (1)")
            claim.finish(RESPONSE)
            clock.seconds += 600
        assert store.sweep() == 2  # in each of the two files
        assert isinstance(store.begin(b"new"), FinishedBefore)
        begun(store, b"old")
        assert rows(store.path, "SELECT count(*) FROM soapjms_responses") == [(1,)]
        assert rows(store.path, "SELECT a FROM t") == [(1,), (1,)]

    def test_while_somebody_writes(self, store: SqliteStore, other: SqliteStore, clock: Clock) -> None:
        """Of who may be about to commit nothing goes, however old; it goes once that is over."""
        begun(store, b"idle").abandon()
        late = begun(store)
        late.transaction.execute("CREATE TABLE t (a)")
        clock.seconds += 2000
        assert other.sweep() == 1
        late.finish(RESPONSE)
        assert isinstance(other.begin(b"k"), FinishedBefore)
        assert other.sweep() == 1
        assert isinstance(other.begin(b"k"), FinishedBefore)

    def test_cannot_now(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Where the file cannot be written, what cannot be removed or shown is logged, and tried again."""
        with SqliteStore(path, timeout=0.3, lease=0.1, max_entries=1) as store:
            begun(store, b"first").finish(None)
            begun(store, b"second").finish(None)
            holder = sqlite3.connect(claims(path), isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=rf"requests.db-claims: database is locked by process {os.getpid()}"):
                store.sweep()
            eventually(lambda: "no sign of life could be given" in caplog.text, "it was logged")
            holder.execute("ROLLBACK")
            assert store.sweep() == 1
            holder.close()

    def test_owners(self, store: SqliteStore, other: SqliteStore) -> None:
        """Processes that died are forgotten."""
        killed(other, store)
        store.sweep()
        assert rows(claims(store.path), "SELECT count(*) FROM soapjms_owners") == [(1,)]


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
        with pytest.raises(
            StoreError, match=r"the store of requests cannot be created: No such file or directory: .*none/requests.db"
        ):
            SqliteStore(tmp_path / "none" / "requests.db")

    @pytest.mark.parametrize(
        ("barred", "mode"),
        [("requests.db", 0o600), ("requests.db", 0o644), ("requests.db-shm", 0o600), ("requests.db-claims", 0o644)],
    )
    def test_files_of_another_user(self, barred: str, mode: int) -> None:
        """The error names what may not be written to, such as what an administrator's program left behind."""
        with tempfile.TemporaryDirectory() as name, SqliteStore(Path(name, "requests.db")) as store:
            folder = store.path.parent
            folder.chmod(0o777)
            for each in folder.iterdir():
                each.chmod(0o666)
            (folder / barred).chmod(mode)
            said = opened_by_another(store.path)
            assert said.endswith(
                f" cannot be used as a store of requests: this user may not read and write {folder / barred}\n"
            )

    def test_a_folder_of_another_user(self) -> None:
        """SQLite makes files beside the file, so it needs the folder too."""
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "requests.db")
            SqliteStore(path).close()
            for each in path.parent.iterdir():
                each.chmod(0o666)
            path.parent.chmod(0o555)
            said = opened_by_another(path)
            path.parent.chmod(0o700)
            assert said == f"{path} cannot be used as a store of requests: this user may not read and write {name}\n"

    def test_other_version(self, path: Path) -> None:
        """A store of another version is refused."""
        SqliteStore(path).close()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE soapjms_version SET version = 99")
        connection.close()
        with pytest.raises(StoreError, match="is a store of version 99, and this soapjms is for version 2"):
            SqliteStore(path)

    def test_first_version(self, path: Path, clock: Clock) -> None:
        """A file of version 1 goes on as one of ours, once nobody has it in use who knows that version only."""
        old = sqlite3.connect(path, isolation_level=None)
        for sql in FIRST_VERSION.strip().split(";\n"):
            old.execute(sql)
        head = '{"type": "bytes", "delivery_mode": 2, "priority": 4, "expiration": 0, "properties": []}'
        old.execute("INSERT INTO soapjms_requests VALUES (1, X'01', NULL, 1, 0, 0, ?, 4)", (clock.seconds,))
        old.execute("INSERT INTO soapjms_responses VALUES (1, ?, X'02')", (head,))
        old.execute("INSERT INTO soapjms_requests VALUES (2, X'03', 'dead', 2, 1, 1, ?, NULL)", (clock.seconds,))
        old.execute("INSERT INTO soapjms_requests VALUES (3, X'04', NULL, 1, 0, 2, ?, NULL)", (clock.seconds,))
        old.execute("INSERT INTO soapjms_owners VALUES ('alive', ?)", (clock.seconds + 5,))
        with pytest.raises(
            StoreError, match="of version 1, which a process of an older soapjms is using: it is converted"
        ):
            SqliteStore(path, clock=clock)
        clock.seconds += 10
        for _ in range(2):
            with SqliteStore(path, clock=clock) as store:
                found = store.begin(b"\x01")
                assert isinstance(found, FinishedBefore)
                assert found.response is not None
                assert found.response.body == b"\x02"
        with SqliteStore(path, clock=clock) as store:
            assert (claim := begun(store, b"\x03")).deaths == 2
            assert claim.failures == 1
            assert (claim := begun(store, b"\x04")).deaths == 0
            assert claim.failures == 2
        with pytest.raises(sqlite3.OperationalError, match="no column"):  # as a process that was stopped would go on
            old.execute(
                "INSERT INTO soapjms_requests (key, owner, starts, deaths, failures) VALUES (X'05', '', 1, 0, 0)"
            )
        old.close()

    def test_without_claims(self, store: SqliteStore, path: Path, clock: Clock) -> None:
        """Who lost the second file, as a power cut may take its end, answers what was finished with effects."""
        claim = begun(store)
        claim.transaction.execute("CREATE TABLE t (a)")
        claim.finish(RESPONSE)
        store.close()
        for each in path.parent.glob("*-claims*"):
            each.unlink()
        with SqliteStore(path, clock=clock) as again:
            assert isinstance(again.begin(b"k"), FinishedBefore)

    def test_network_file_system(
        self, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder that other machines may have too is warned of; one that they cannot is not."""
        device = path.parent.stat().st_dev
        for kind, is_told in (("ext4", False), ("nfs4", True)):
            mounts = path.with_name("mountinfo")
            line = f"36 35 {os.major(device)}:{os.minor(device)} / {path.parent} rw - {kind} server:/ rw\n"
            mounts.write_text(f"22 1 0:0 / / rw shared:1 - nfs x rw\n{line}")
            monkeypatch.setattr("soapjms.service.store.place.MOUNTS", mounts)
            SqliteStore(path).close()
            assert (f"requests.db is on a network file system ({kind})" in caplog.text) == is_told

    def test_no_waiting(self, path: Path) -> None:
        """With a time-out of 0, a transaction that others hold up is an error at once, and others are as ever."""
        with SqliteStore(path, lease=60, timeout=0) as store, SqliteStore(path, lease=60) as other:
            holder, claim = begun(other), begun(store, b"k2")
            holder.transaction.execute("CREATE TABLE t (a)")
            with pytest.raises(StoreError, match=r"has had a request\.transaction since"):
                _ = claim.transaction
            holder.finish(None)
            claim.transaction.execute("INSERT INTO t VALUES (1)")
            claim.finish(None)
            assert rows(path, "SELECT a FROM t") == [(1,)]

    @pytest.mark.parametrize("value", [-1, math.nan, "5", None, True])
    @pytest.mark.parametrize("name", ["transaction_timeout", "lease", "keep", "timeout", "max_entries", "max_octets"])
    def test_arguments(self, path: Path, name: str, value: Any) -> None:
        """A limit that lets nothing through, or is no number, is refused before there is a file."""
        with pytest.raises(UsageError, match=f"{name} must be .*, got {value!r}"):
            SqliteStore(path, **{name: value})
        assert not path.exists()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, 0) for name in ("transaction_timeout", "lease", "keep", "max_entries", "max_octets")),
            *(("lease", math.inf), ("timeout", math.inf), ("max_entries", 1.5), ("max_octets", math.inf)),
        ],
    )
    def test_no_limit(self, path: Path, name: str, value: Any) -> None:
        """So is one that cannot be kept; only entries and transactions may last for ever."""
        with pytest.raises(UsageError, match=f"{name} must be .*, got {value!r}"):
            SqliteStore(path, **{name: value})
        with SqliteStore(path, keep=math.inf, transaction_timeout=math.inf) as store:
            begun(store).transaction.execute("CREATE TABLE t (a)")
            assert store.sweep() == 0

    @pytest.mark.parametrize("path", ["", 5, None, True, ".", ":memory:"])
    def test_path(self, path: Any) -> None:
        """What is no path of a file is refused."""
        with pytest.raises(UsageError, match=f"path must be the path of a file, got {path!r}"):
            SqliteStore(path)

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
