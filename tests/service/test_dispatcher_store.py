"""A dispatcher with a store: what was finished is answered and not run again, and what it wrote happens once."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Peers,
    Wrapped,
    element,
    envelope,
    eventually,
    request_message,
    take_one,
    text_of,
)
from faulty_sqlite_kit import Died, LosesCommits, limit_pages
from lxml import etree
from places import ROOT

from brokers import Connection, connect, queue
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from brokers.errors import ClosedError
from soapjms import Client, Dispatcher, Policy, Request, Service, SoapFaultError, SqliteStore, StoreError, UsageError
from soapjms.service.store.base import Store
from soapjms.service.store.sqlite import CLOSE_LOCK_SECONDS
from soapjms.service.worker import FIRST_NAP_SECONDS

GREET = f"{{{NS}}}greetMe"
ANSWERS = queue("answers")


class Unstable(Wrapped):
    """A broker that keeps no JMSMessageID, or that one follows which keeps none."""

    def __init__(self, inner: Connection, *, is_stable: bool = False) -> None:
        super().__init__(inner)
        self.is_stable = is_stable

    @property
    def capabilities(self) -> Any:
        return replace(self.inner.capabilities, stable_message_id=self.is_stable)


class WithStore(Peers):
    """A file for a store, and a service that writes a row for each run."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "requests.db"

    @pytest.fixture
    def store(self, path: Path) -> Iterator[SqliteStore]:
        with SqliteStore(path) as store:
            yield store

    @pytest.fixture
    def seen(self) -> list[Request]:
        return []

    @pytest.fixture
    def service(self, seen: list[Request]) -> Service:
        service = Service()

        @service.operation(GREET)
        def greet(request: Request) -> etree._Element:
            seen.append(request)
            write(request)
            return element("greetMeResponse", f"Hello {request.element.text} for the {len(seen)}. time")

        return service


def write(request: Request) -> None:
    """Write a row of the service's own."""
    request.transaction.execute("CREATE TABLE IF NOT EXISTS greeted (name TEXT)")
    request.transaction.execute("INSERT INTO greeted VALUES (?)", (request.element.text,))


def greeted(path: Path) -> list[str]:
    """Read the service's rows."""
    connection = sqlite3.connect(path)
    try:
        return [name for (name,) in connection.execute("SELECT name FROM greeted ORDER BY name")]
    finally:
        connection.close()


class TestRedelivered(WithStore):
    """Requests that come again."""

    def test_answered_before(
        self, client: Client, broker: Broker, service: Service, seen: list[Request], path: Path
    ) -> None:
        """A request whose commit was lost is answered from the store: one run, one effect, the answer of that run."""
        with Dispatcher(LosesCommits(broker.connect()), URI, service, workers=1, store=path) as first:
            future = client.submit(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as connection, Dispatcher(connection, URI, service, store=path) as second:
            assert text_of(future.result(PATIENCE)) == "Hello Ann for the 1. time"
            eventually(lambda: second.counts["answered"] == 1, "it was counted")
            assert second.counts == {"accepted": 1, "repeated": 1, "answered": 1, "commits": 1}
        assert greeted(path) == ["Ann"]
        assert len(seen) == 1

    def test_answered_before_at_shutdown(
        self,
        client: Client,
        broker: Broker,
        service: Service,
        path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Nor is it refused because the program is ending: the next dispatcher answers it."""

        def submit(request: Request, call_next: object) -> None:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")  # as Python does then

        with Dispatcher(LosesCommits(broker.connect()), URI, service, workers=1, store=path) as first:
            future = client.submit(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as ending:
            with monkeypatch.context() as patch:
                patch.setattr(threading, "_SHUTTING_DOWN", True)
                dispatcher = Dispatcher(ending, URI, service, store=path, middleware=[submit])
                with suppress(ClosedError):  # as it closes itself, it may be before all workers have subscribed
                    dispatcher.start()
                eventually(lambda: dispatcher.health().problem == "it was closed", "it closes itself")
            assert dispatcher.close()
        assert "the program is ending: no more requests are taken from queue:greeter" in caplog.text
        with broker.connect() as connection, Dispatcher(connection, URI, service, store=path):
            assert text_of(future.result(PATIENCE)) == "Hello Ann for the 1. time"
        assert broker.depth(GREETER) == 0

    def test_two_machines(self, client: Client, broker: Broker, service: Service, tmp_path: Path) -> None:
        """What one machine finished, and could not tell the broker, runs again on another, which has another store."""
        here, there = tmp_path / "here.db", tmp_path / "there.db"
        with Dispatcher(LosesCommits(broker.connect()), URI, service, workers=1, store=here) as first:
            future = client.submit(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as connection, Dispatcher(connection, URI, service, store=there):
            assert text_of(future.result(PATIENCE)) == "Hello Ann for the 2. time"
        assert greeted(here) == greeted(there) == ["Ann"]

    def test_locked_while_idle(
        self, connection: Connection, service: Service, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where others have the store's file locked for long, it is not ready, though no request waits for it."""
        monkeypatch.setattr("soapjms.service.store.sqlite.LOCKED_SECONDS", 0.2)
        with (
            SqliteStore(path, lease=0.2) as store,
            Dispatcher(connection, URI, service, store=store) as dispatcher,
            closing(sqlite3.connect(path, isolation_level=None)) as holder,
        ):
            assert dispatcher.health(PATIENCE).ready
            holder.execute("BEGIN IMMEDIATE")
            eventually(lambda: "has it locked" in dispatcher.health(PATIENCE).problem, "it is the problem")
            assert not dispatcher.health(PATIENCE).ready
            holder.execute("ROLLBACK")
            eventually(lambda: dispatcher.health(PATIENCE).ready, "it is ready again")

    @pytest.mark.parametrize(("host", "warnings"), [("0.0.0.0", 1), ("127.0.0.1", 0)])
    @pytest.mark.parametrize("is_stored", [True, False])
    def test_store_and_broker_elsewhere(
        self,
        host: str,
        warnings: int,
        is_stored: bool,
        broker: Broker,
        path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A store is for one machine, of which is warned where others may serve as well, as the URL has it."""
        with (
            Listener(broker, port=0) as listener,
            connect(f"failover:(amqp://{host}:{listener.port})") as connection,  # the machine is this one in any case
            Dispatcher(connection, URI, Service(), store=path if is_stored else None),
        ):
            pass
        told = f"the store {path} is for the processes of this machine, and the broker is on another"
        assert caplog.text.count(told) == (warnings if is_stored else 0)

    def test_unstable_message_id(
        self, client: Client, broker: Broker, service: Service, seen: list[Request], path: Path
    ) -> None:
        """Where the JMSMessageID does not last, reply destination and JMSCorrelationID tell."""
        with Dispatcher(Unstable(LosesCommits(broker.connect())), URI, service, workers=1, store=path) as first:
            future = client.submit(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as connection, Dispatcher(Unstable(connection), URI, service, store=path):
            assert text_of(future.result(PATIENCE)) == "Hello Ann for the 1. time"
        assert greeted(path) == ["Ann"]

    def test_next_broker_is_of_another_kind(
        self, client: Client, broker: Broker, service: Service, seen: list[Request], path: Path
    ) -> None:
        """What names a request goes by the broker that delivered it, not by the one that was there at the beginning."""
        turning = Unstable(LosesCommits(broker.connect()), is_stable=True)
        with Dispatcher(turning, URI, service, workers=1, store=path) as first:
            turning.is_stable = False
            future = client.submit(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as connection, Dispatcher(Unstable(connection), URI, service, store=path):
            assert text_of(future.result(PATIENCE)) == "Hello Ann for the 1. time"
        assert (greeted(path), len(seen)) == (["Ann"], 1)

    def test_another_kind_follows_while_it_is_tried_again(self, client: Client, broker: Broker, path: Path) -> None:
        """A request keeps its name until it is done: what its own broker delivers again is answered, and not run."""
        service, runs = Service(policy=Policy(retries=1, pause=0.01)), list[str]()
        turning = Unstable(LosesCommits(broker.connect()), is_stable=True)

        @service.operation(GREET)
        def greet(request: Request) -> etree._Element:
            turning.is_stable = False
            runs.append("run")
            if len(runs) == 1:
                raise ConnectionError("the database is away")
            write(request)
            return element("greetMeResponse", f"Hello {request.element.text}")

        with Dispatcher(turning, URI, service, workers=1, store=path) as first:
            future = client.submit(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as connection, Dispatcher(connection, URI, service, store=path):
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        assert (greeted(path), runs) == (["Ann"], ["run"] * 2)

    def test_one_way(self, client: Client, broker: Broker, service: Service, path: Path) -> None:
        """A one-way message that comes again is accepted, and not run."""
        with Dispatcher(LosesCommits(broker.connect()), URI, service, workers=1, store=path) as first:
            client.send(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as connection, Dispatcher(connection, URI, service, store=path) as second:
            eventually(lambda: second.counts["commits"] == 1, "it was accepted")
            assert second.counts == {"accepted": 1, "one-way": 1, "repeated": 1, "commits": 1}
        assert greeted(path) == ["Ann"]

    def test_one_way_unstable_message_id(
        self, connection: Connection, broker: Broker, service: Service, path: Path
    ) -> None:
        """So it is where the JMSMessageID does not last: the client sets a JMSCorrelationID; two that are alike run."""
        with (
            Dispatcher(Unstable(LosesCommits(broker.connect())), URI, service, workers=1, store=path) as first,
            Client(Unstable(connection), URI, timeout=PATIENCE) as client,
        ):
            client.send(envelope("Ann"))
            client.send(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as other, Dispatcher(Unstable(other), URI, service, store=path) as second:
            eventually(lambda: second.counts["accepted"] == 2 and not second.under_way, "both were accepted")
            assert second.counts["repeated"] == 1
        assert greeted(path) == ["Ann", "Ann"]

    def test_fault(self, client: Client, broker: Broker, path: Path) -> None:
        """A fault is an answer like another; a function that failed is not run again either."""
        service, runs = Service(), list[str]()

        @service.operation(GREET)
        def greet(request: Request) -> None:
            runs.append("run")
            raise ValueError("no")

        with Dispatcher(LosesCommits(broker.connect()), URI, service, workers=1, store=path) as first:
            future = client.submit(envelope("Ann"))
            eventually(lambda: first.counts["lost"] == 1, "the commit was lost")
        with broker.connect() as connection, Dispatcher(connection, URI, service, store=path):
            fault = future.result(PATIENCE).fault
        assert fault is not None
        assert fault.reason == "the service failed"
        assert len(runs) == 1

    def test_at_work_elsewhere(
        self, client: Client, other: Connection, service: Service, seen: list[Request], store: SqliteStore, path: Path
    ) -> None:
        """A request that somebody else works on waits for that, and is answered with what came of it."""
        requests = Blocked(store)
        with Dispatcher(other, URI, service, store=requests):
            future = client.submit(envelope("Ann"))
            assert requests.is_asked.wait(PATIENCE)
            assert seen == []
            requests.is_free.set()
            assert text_of(future.result(PATIENCE)) == "Hello Ann for the 1. time"

    def test_closing_while_waiting(
        self, client: Client, other: Connection, service: Service, store: SqliteStore, broker: Broker
    ) -> None:
        """Closing does not wait for somebody else's work; the broker delivers the request again."""
        requests = Blocked(store)
        dispatcher = Dispatcher(other, URI, service, store=requests).start()
        future = client.submit(envelope("Ann"))
        assert requests.is_asked.wait(PATIENCE)
        assert dispatcher.close(PATIENCE)
        assert broker.depth(GREETER) == 1
        requests.is_free.set()
        with Dispatcher(other, URI, service, store=requests):
            assert text_of(future.result(PATIENCE)) == "Hello Ann for the 1. time"

    def test_not_run_again(self, client: Client, other: Connection, store: SqliteStore, path: Path) -> None:
        """By policy, what was begun and never finished is answered with a fault, and not run again."""
        service, runs = Service(policy=Policy(unfinished="fault")), list[str]()
        service.operation(GREET)(lambda request: runs.append("run"))
        with Dispatcher(other, URI, service, store=Died(store)) as dispatcher:
            fault = client.call(envelope("Ann")).fault
            assert dispatcher.counts["not run again"] == 1
        assert fault is not None
        assert "whether it was carried out is not known; it was not run again" in fault.reason
        assert "Server" in fault.code
        assert runs == []

    def test_run_again(
        self, client: Client, other: Connection, service: Service, seen: list[Request], store: SqliteStore
    ) -> None:
        """Else it is run again, and the function is told."""
        with Dispatcher(other, URI, service, store=Died(store)):
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann for the 1. time"
        assert [each.redelivered for each in seen] == [True]


class Blocked(Store):
    """A store whose requests somebody else works on until the test says otherwise."""

    def __init__(self, inner: SqliteStore) -> None:
        self.inner = inner
        self.is_asked, self.is_free = Event(), Event()

    def begin(self, key: bytes) -> Any:
        if self.is_free.is_set():
            return self.inner.begin(key)
        self.is_asked.set()
        return None

    def close(self) -> None:
        """Nothing; the inner one is the fixture's."""


class TestTransaction(WithStore):
    """`request.transaction`."""

    @pytest.mark.parametrize(
        ("answer", "kept"),
        [
            (lambda: None, True),
            (lambda: SoapFaultError("no"), True),
            (lambda: (_ for _ in ()).throw(SoapFaultError("no")), False),
            (lambda: (_ for _ in ()).throw(ValueError("no")), False),
            (lambda: "no answer", False),
        ],
        ids=["returned", "fault returned", "fault raised", "failed", "wrong type"],
    )
    def test_kept(self, client: Client, other: Connection, path: Path, answer: Any, kept: bool) -> None:
        """What is written is kept if the function returns, a fault too, and undone if it raises or fails."""
        service = Service()

        @service.operation(GREET)
        def greet(request: Request) -> Any:
            write(request)
            return answer()

        @service.operation(f"{{{NS}}}first")
        def first(request: Request) -> None:
            write(request)

        with Dispatcher(other, URI, service, store=path):
            client.call(envelope("first", operation="first"))
            client.call(envelope("Ann"))
        assert greeted(path) == (["Ann", "first"] if kept else ["first"])

    def test_without_store(self, client: Client, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """Without a store there is none; the log says how to get one, the caller gets a fault."""
        service = Service()
        service.operation(GREET)(write)
        with Dispatcher(other, URI, service):
            assert client.call(envelope("Ann")).fault is not None
        assert "the dispatcher has no store; give it one" in caplog.text

    def test_without_key(
        self, other: Connection, service: Service, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nor for a request that nothing tells from its redelivery."""
        with Dispatcher(Unstable(other), URI, service, store=path) as dispatcher:
            other.send(request_message("greeter", ANSWERS, correlation_id=None))
            take_one(other, ANSWERS)
            assert dispatcher.counts["without key"] == 1
        assert "the sender must set a unique one" in caplog.text

    @pytest.mark.parametrize("store", [7, Service(), SqliteStore])
    def test_no_store(self, other: Connection, service: Service, store: Any) -> None:
        """What is no store is refused."""
        with pytest.raises(UsageError, match=r"store must be a soapjms\.SqliteStore, the path of its file, or None"):
            Dispatcher(other, URI, service, store=store)


class TestFailingStore(WithStore):
    """A store that cannot be written."""

    def test_waits(self, client: Client, other: Connection, service: Service, path: Path) -> None:
        """A request waits for its transaction until it can have one; nothing becomes a dead letter."""
        holder = sqlite3.connect(path, isolation_level=None)
        with SqliteStore(path, timeout=0.2) as store, Dispatcher(other, URI, service, store=store) as dispatcher:
            holder.execute("BEGIN IMMEDIATE")
            future = client.submit(envelope("Ann"))
            eventually(lambda: dispatcher.counts["store failed"] > 1, "the store could not be written")
            assert dispatcher.under_way == 1
            health = dispatcher.health()
            assert (health.live, health.ready) == (True, False)
            assert f"process {os.getpid()} has it locked" in health.problem
            holder.execute("ROLLBACK")
            assert text_of(future.result(PATIENCE)).startswith("Hello Ann for the ")
            assert dispatcher.health().ready
        holder.close()
        assert greeted(path) == ["Ann"]

    @pytest.mark.parametrize("caught", ["not", "wrapped", "answered", "ignored"])
    @pytest.mark.parametrize("one_way", [False, True], ids=["call", "one-way"])
    @pytest.mark.parametrize("transactional", [True, False], ids=["transactions", "without"])
    def test_full_disk(
        self, client: Client, other: Connection, path: Path, caught: str, one_way: bool, transactional: bool
    ) -> None:
        """A statement of the function that finds the disk full waits too, whatever the function makes of the error."""
        service, runs, limit = Service(), list[str](), list[int]()

        @service.operation(GREET)
        def greet(request: Request) -> etree._Element:
            runs.append("run")
            database = request.transaction
            limit_pages(database, limit[0] if limit else 1 << 30)
            write(request)
            try:
                database.execute("CREATE TABLE large AS SELECT zeroblob(1000000) AS blob")
            except sqlite3.Error as error:
                if caught == "not":
                    raise
                if caught == "wrapped":
                    raise RuntimeError("it cannot be booked") from None
                if caught == "answered":
                    raise SoapFaultError("it cannot be booked") from error
            return element("greetMeResponse", f"Hello {request.element.text}")

        with (
            SqliteStore(path) as store,
            Dispatcher(other, URI, service, store=store, transactional=transactional) as dispatcher,
        ):
            with closing(sqlite3.connect(path)) as database:
                limit.append(database.execute("PRAGMA page_count").fetchone()[0] + 3)
            if one_way:
                client.send(envelope("Ann"))
            else:
                future = client.submit(envelope("Ann"))
            eventually(lambda: dispatcher.counts["store failed"] > 1, "the disk is full")
            health = dispatcher.health()
            assert (health.live, health.ready) == (True, False)
            assert health.problem == f"{path}: database or disk is full"
            limit.clear()
            if not one_way:
                assert text_of(future.result(PATIENCE)) == "Hello Ann"
            eventually(lambda: dispatcher.under_way == 0, "it is done")
            assert dispatcher.health().ready
            assert (dispatcher.counts["failed"], dispatcher.counts["rejected"]) == (0, 0)
        assert greeted(path) == ["Ann"]

    def test_interrupts_itself(self, client: Client, other: Connection, path: Path) -> None:
        """A function that breaks off its own statement has failed: that is no fault of the file."""
        service, runs = Service(), list[str]()

        @service.operation(GREET)
        def greet(request: Request) -> None:
            runs.append("run")
            write(request)
            request.transaction.set_progress_handler(lambda: 1, 1)
            request.transaction.execute("SELECT count(*) FROM greeted, greeted").fetchone()

        with Dispatcher(other, URI, service, store=path) as dispatcher:
            fault = client.call(envelope("Ann")).fault
            assert fault is not None
            assert fault.reason == "the service failed"
            assert (dispatcher.counts["failed"], dispatcher.counts["store failed"]) == (1, 0)
        assert runs == ["run"]

    @pytest.mark.parametrize("is_replaced", [False, True])
    def test_removed_file(
        self, client: Client, other: Connection, service: Service, path: Path, is_replaced: bool
    ) -> None:
        """Nothing is written to a file that nobody finds again; requests wait until it is back."""
        away = path.with_name("away.db")
        with SqliteStore(path) as store, Dispatcher(other, URI, service, store=store) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann for the 1. time"
            path.rename(away)
            if is_replaced:
                path.write_bytes(b"")
            future = client.submit(envelope("Bob"))
            eventually(lambda: dispatcher.counts["store failed"] > 1, "the store could not be written")
            assert "was removed or replaced while it was in use" in dispatcher.health().problem
            with pytest.raises(StoreError, match="removed or replaced"):
                store.sweep()
            away.replace(path)
            assert text_of(future.result(PATIENCE)) == "Hello Bob for the 2. time"
        assert greeted(path) == ["Ann", "Bob"]

    def test_removed_while_at_work(self, client: Client, other: Connection, path: Path) -> None:
        """What a function wrote is not committed there either; it runs again once the file is back."""
        away, runs, service = path.with_name("away.db"), list[str](), Service()

        @service.operation(GREET)
        def greet(request: Request) -> etree._Element:
            write(request)
            if not runs:
                path.rename(away)
            runs.append("run")
            return element("greetMeResponse", f"Hello {request.element.text}")

        with SqliteStore(path) as store, Dispatcher(other, URI, service, store=store) as dispatcher:
            future = client.submit(envelope("Ann"))
            eventually(lambda: dispatcher.counts["store failed"] > 0, "it could not be finished")
            assert not future.done()
            away.rename(path)
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        assert (greeted(path), runs) == (["Ann"], ["run"] * 2)

    def test_not_run_again(
        self, client: Client, other: Connection, seen: list[Request], service: Service, store: SqliteStore, path: Path
    ) -> None:
        """By policy a function whose end cannot be stored is not run again: what it did elsewhere would come twice."""
        careful = Service(policy=Policy(unfinished="fault"))
        careful.operation(GREET)(service.operations[GREET])
        failures, inner = [sqlite3.OperationalError("disk full")], store._note

        def note(*arguments: Any) -> None:
            if failures:
                raise failures.pop()
            inner(*arguments)

        store._note = note  # type: ignore[method-assign]
        with Dispatcher(other, URI, careful, store=store) as dispatcher:
            fault = client.call(envelope("Ann")).fault
            assert (dispatcher.counts["store failed"], dispatcher.counts["not run again"]) == (1, 1)
        assert fault is not None
        assert "whether it was carried out is not known; it was not run again" in fault.reason
        assert len(seen) == 1
        with closing(sqlite3.connect(path)) as database:  # what it wrote was undone
            assert database.execute("SELECT name FROM sqlite_master WHERE name = 'greeted'").fetchall() == []

    def test_pauses(self, client: Client, other: Connection, store: SqliteStore, service: Service) -> None:
        """A function whose end cannot be stored again and again is run after pauses that get longer."""
        failures, at, inner = [sqlite3.OperationalError("disk full")] * 4, list[float](), store._note

        def note(*arguments: Any) -> None:
            at.append(time.monotonic())
            if failures:
                raise failures.pop()
            inner(*arguments)

        store._note = note  # type: ignore[method-assign]
        with Dispatcher(other, URI, service, store=store):
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann for the 5. time"
        assert all(then - now >= FIRST_NAP_SECONDS * 2**number for number, (now, then) in enumerate(pairwise(at)))

    def test_said_once(
        self, client: Client, other: Connection, service: Service, store: SqliteStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """However often it is tried, why a request waits is an error in the log once."""
        inner, errors = store.begin, [StoreError("the disk is full")] * 5

        def begin(key: bytes) -> Any:
            if errors:
                raise errors.pop()
            return inner(key)

        store.begin = begin  # type: ignore[method-assign]
        with caplog.at_level(logging.DEBUG), Dispatcher(other, URI, service, store=store) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann for the 1. time"
            assert dispatcher.counts["store failed"] == 5
        levels = [each.levelname for each in caplog.records if "a request waits" in each.getMessage()]
        assert levels == ["ERROR"] + ["DEBUG"] * 4

    def test_no_transaction_now(
        self,
        client: Client,
        other: Connection,
        seen: list[Request],
        service: Service,
        store: SqliteStore,
        path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A function that gets no transaction now did not fail: it is run again, and its caller gets no fault."""
        inner, errors = store.begin_effects, [StoreError("somebody else has been writing")]

        def begin(claim: Any) -> Any:
            if errors:
                raise errors.pop()
            return inner(claim)

        store.begin_effects = begin  # type: ignore[method-assign]
        with Dispatcher(other, URI, service, store=store) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann for the 2. time"
            assert (dispatcher.counts["store failed"], dispatcher.counts["failed"]) == (1, 0)
        assert greeted(path) == ["Ann"]
        assert "a request waits, as it could not be stored: somebody else has been writing" in caplog.text
        assert "the function for" not in caplog.text

    def test_finishing_fails(
        self, client: Client, other: Connection, seen: list[Request], service: Service, store: SqliteStore, path: Path
    ) -> None:
        """Where a request cannot be finished it is run again; what the first run wrote is gone."""
        failures = [sqlite3.OperationalError("disk full"), SystemExit("odd")]
        inner = store._note

        def note(*arguments: Any) -> None:
            if failures:
                raise failures.pop(0)
            inner(*arguments)

        store._note = note  # type: ignore[method-assign]
        with Dispatcher(other, URI, service, store=store) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann for the 3. time"
            assert dispatcher.counts["store failed"] == 1
        assert greeted(path) == ["Ann"]
        assert [each.delivery_count for each in seen] == [1, 1, 2]


class TestTooLong(WithStore):
    """A function that has a transaction and does not return."""

    @pytest.mark.parametrize("goes_on", ["writes", "returns", "raises"])
    @pytest.mark.parametrize("transactional", [True, False], ids=["transactions", "without"])
    def test_rolled_back(
        self, client: Client, other: Connection, path: Path, goes_on: str, transactional: bool
    ) -> None:
        """Others go on meanwhile, and write once its time is over; should it go on, it failed, by its policy."""
        is_writing, may_go_on = Event(), Event()
        service = Service(policy=Policy(then="dead-letter"))

        @service.operation(GREET)
        def greet(request: Request) -> etree._Element:
            write(request)
            is_writing.set()
            assert may_go_on.wait(PATIENCE)
            if goes_on == "writes":
                write(request)
            if goes_on == "raises":
                raise SoapFaultError("no")
            return element("greetMeResponse", "Hello")

        @service.operation(f"{{{NS}}}read")
        def read(request: Request) -> etree._Element:
            return element("readResponse", "read")

        @service.operation(f"{{{NS}}}write")
        def write_too(request: Request) -> etree._Element:
            write(request)
            return element("writeResponse", "written")

        with (
            SqliteStore(path, transaction_timeout=1) as store,
            Dispatcher(other, URI, service, store=store, transactional=transactional) as dispatcher,
        ):
            future = client.submit(envelope("Ann"))
            assert is_writing.wait(PATIENCE)
            for _ in range(3):
                assert text_of(client.call(envelope("Bob", operation="read"))) == "read"
            assert text_of(client.call(envelope("Eve", operation="write"))) == "written"
            may_go_on.set()
            fault = future.result(PATIENCE).fault
            assert fault is not None
            assert fault.reason == "the service failed"
            eventually(lambda: dispatcher.counts["rejected"] == 1, "it is a dead letter")
            assert dispatcher.counts["failed"] == 1
            assert dispatcher.counts["store failed"] == 0
        assert greeted(path) == ["Eve"]


class TestClosing(WithStore):
    """A function that is in the middle of its transaction when its dispatcher is closed."""

    def test_not_waited_for(self, client: Client, broker: Broker, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Closing ends within its deadline, or nearly; what the function writes is kept, and answered later."""
        is_writing, may_end, service = Event(), Event(), Service()

        @service.operation(GREET)
        def greet(request: Request) -> etree._Element:
            write(request)
            is_writing.set()
            assert may_end.wait(PATIENCE)
            return element("greetMeResponse", f"Hello {request.element.text}")

        store = SqliteStore(path)
        with broker.connect() as first:
            dispatcher = Dispatcher(first, URI, service, store=store).start()
            future = client.submit(envelope("Ann"))
            assert is_writing.wait(PATIENCE)
            began = time.monotonic()
            assert not dispatcher.close(0.1)
            store.close()
            assert time.monotonic() - began < 3 * CLOSE_LOCK_SECONDS + 10
            assert "closed while somebody writes" in caplog.text
        may_end.set()
        with broker.connect() as second, Dispatcher(second, URI, service, store=path) as following:
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
            assert following.counts["repeated"] == 1
        assert greeted(path) == ["Ann"]
        with pytest.raises(StoreError, match="closed"):
            store.begin(b"another")

    def test_others_write(self, path: Path) -> None:
        """Whoever shares the file and writes for long is not waited for either."""
        holder = sqlite3.connect(path, isolation_level=None)
        store = SqliteStore(path)
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 3 * CLOSE_LOCK_SECONDS + 10
        holder.close()


def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/serving.md runs, and books once what it is told."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    page = page.replace("stomp://admin:admin@localhost:61613", "embedded:")
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "serving.md", "exec"), scope)
    connection = sqlite3.connect("requests.db")
    assert connection.execute("SELECT amount FROM booked").fetchall() == [(7,)]
    connection.close()
