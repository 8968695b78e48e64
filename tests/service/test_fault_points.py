"""Every point of an exchange at which a connection can be lost: nothing is lost with it, and no effect happens twice.

A service whose connection fails is started again, as whoever supervises it would; its store is the same file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from calling_kit import GREETER, NS, PATIENCE, URI, element, envelope, eventually, text_of
from faulty_kit import Faults, FaultyConnection
from faulty_sqlite_kit import BROKEN, Failures, FaultySqlite
from lxml import etree

from brokers import BrokerError, Destination
from brokers.embedded import Broker
from soapjms import CallFailedError, Client, Dispatcher, Request, Response, Service, SoapFaultError, SqliteStore
from soapjms.protocol.errors import StoreError

PATTERNS: Final = {
    "temporary": (URI, "rec-2012"),
    "exclusive": (URI, "cr-2009"),
    "shared": (f"{URI}?replyToName=answers", "rec-2012"),
    "one-way": (URI, "rec-2012"),
    "fault": (URI, "rec-2012"),
}
"""The URI that the client of each pattern has, and the edition that both sides follow."""

LEAVING: Final[dict[str, set[str]]] = {
    "temporary": {"close", "end temporary"},
    "exclusive": {"close", "end temporary"},
    "shared": {"close"},
    "one-way": set(),
    "fault": {"close", "end temporary"},
}
"""What the client of each pattern does at its end."""

LEASE: Final = 60.0
"""Seconds, so long that no sign of life comes in between."""


class Exchange:
    """One exchange on a broker of its own.

    Args:
        pattern: which.
        path: the file of the service's store.
        asking, answering: what fails at the client and at the service.
        storing: what fails in the service's store.
        transactional: whether the service's broker has transactions.
        is_stored: whether the service has a store.

    Attributes:
        runs: what the service's functions were run with.
    """

    def __init__(
        self,
        pattern: str,
        path: Path,
        asking: Faults,
        answering: Faults,
        storing: Failures | None = None,
        *,
        transactional: bool,
        is_stored: bool = True,
    ) -> None:
        self.broker = Broker("faulty")
        self.pattern = pattern
        self.path = path
        self.asking = asking
        self.answering = answering
        self.storing = storing or Failures()
        self.transactional = transactional
        self.is_stored = is_stored
        self.runs: list[str | None] = []
        self.strays = 0
        self.failed = False

    def run(self) -> Response | BaseException | None:
        """Have the exchange happen, the service being started again when its connection fails; return how it ended."""
        uri, profile = PATTERNS[self.pattern]
        with ExitStack() as stack:
            connection = FaultyConnection(stack.enter_context(self.broker.connect()), self.asking)
            client = stack.enter_context(Client(connection, uri, profile=profile, timeout=PATIENCE))
            outcome = self._ask(client)
            if isinstance(outcome, Response):  # else nobody listens any more
                eventually(
                    lambda: not any(self.broker.depth(each) for each in self.broker.destinations()), "all is read"
                )
        # A reply is accepted before it is counted; whoever closes a connection waits for what its consumers do.
        self.strays = client.counts.total()
        return outcome

    def _ask(self, client: Client) -> Response | BaseException | None:
        future, outcome = None, None
        sqlite = FaultySqlite(self.storing)
        files = (
            patch("soapjms.service.store.tables.sqlite3", sqlite),
            patch("soapjms.service.store.effects.sqlite3", sqlite),
        )
        with files[0], files[1], self._served(self.answering) as first:
            try:
                if self.pattern == "one-way":
                    client.send(envelope("Ann"))
                else:
                    future = client.submit(envelope("Ann", operation="fail" if self.pattern == "fault" else "greetMe"))
            except (BrokerError, CallFailedError) as error:
                outcome = error
            eventually(
                lambda: first is None or self.answering.fired.is_set() or self._is_over(first), "it is over, or failed"
            )
            self.failed = first is not None and first.counts["failed"] > 0
        with self._served(Faults()) as second:
            eventually(lambda: self._is_over(second), "it is over")
        return outcome if future is None else future.exception(PATIENCE) or future.result(PATIENCE)

    def _is_over(self, dispatcher: Dispatcher | None) -> bool:
        return dispatcher is not None and self.broker.depth(GREETER) == 0 and dispatcher.under_way == 0

    @contextmanager
    def _served(self, faults: Faults) -> Iterator[Dispatcher | None]:
        """Serve, as long as the connection lives; None if it did not even live until then."""
        _, profile = PATTERNS[self.pattern]
        with self.broker.connect() as inner:
            connection = FaultyConnection(inner, faults, transactional=self.transactional)
            with ExitStack() as stack:
                try:
                    store = stack.enter_context(SqliteStore(self.path, lease=LEASE)) if self.is_stored else None
                    served = service(self._write)
                    dispatcher = Dispatcher(connection, URI, served, workers=1, store=store, profile=profile)
                    stack.callback(dispatcher.close)
                    dispatcher.start()
                except (BrokerError, StoreError):
                    dispatcher = None
                yield dispatcher

    def _write(self, request: Request) -> None:
        """Have an effect."""
        self.runs.append(request.element.text)
        if self.is_stored:
            request.transaction.execute("CREATE TABLE IF NOT EXISTS greeted (name TEXT)")
            request.transaction.execute("INSERT INTO greeted VALUES (?)", (request.element.text,))

    @property
    def effects(self) -> int:
        """How often the service's effect happened."""
        connection = sqlite3.connect(self.path)
        try:
            rows = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'greeted'").fetchone()[0]
            return connection.execute("SELECT count(*) FROM greeted").fetchone()[0] if rows else 0
        finally:
            connection.close()

    @property
    def left(self) -> list[Destination]:
        """The destinations that have messages, but for the answers of a client that is gone."""
        found = [each for each in self.broker.destinations() if self.broker.depth(each)]
        return [each for each in found if each.name != "answers"]


def service(write: Callable[[Request], None]) -> Service:
    """Make a greeter that writes for each greeting; `fail` writes and then fails."""
    made = Service()

    @made.operation(f"{{{NS}}}greetMe")
    def greet(request: Request) -> etree._Element:
        write(request)
        return element("greetMeResponse", f"Hello {request.element.text}")

    @made.operation(f"{{{NS}}}fail")
    def fail(request: Request) -> etree._Element:
        write(request)
        raise SoapFaultError("no such person", blame="Sender")

    return made


def check_answer(pattern: str, outcome: Response | BaseException | None) -> None:
    """Check that the caller got what it asked for."""
    if pattern == "one-way":
        assert outcome is None
        return
    assert isinstance(outcome, Response), outcome
    if pattern == "fault":
        assert outcome.fault is not None
        assert outcome.fault.reason == "no such person"
    else:
        assert text_of(outcome) == "Hello Ann"


def wanted_effects(pattern: str) -> int:
    """Return how many effects one request has: those of a function that fails are undone."""
    return 0 if pattern == "fault" else 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("transactional", [True, False], ids=["transactions", "no transactions"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_service(pattern: str, transactional: bool, after: bool, tmp_path: Path) -> None:
    """Wherever a service fails, the caller gets its one answer and the effect happens once."""
    smooth = Exchange(pattern, tmp_path / "smooth.db", Faults(), Faults(), transactional=transactional)
    check_answer(pattern, smooth.run())
    points = smooth.answering.names
    assert {"consume", "deliver", "commit" if transactional else "accept", "close"} <= set(points)
    for at, name in enumerate(points):
        faults = Faults(at, after=after)
        exchange = Exchange(pattern, tmp_path / f"{at}.db", Faults(), faults, transactional=transactional)
        check_answer(pattern, exchange.run())
        assert faults.fired.is_set(), name
        assert exchange.effects == wanted_effects(pattern), name
        assert exchange.left == [], name
        # Without a transaction a second answer goes out where the first was not accepted with its request.
        is_twice = not transactional and pattern != "one-way" and (name, after) in {("send", True), ("accept", False)}
        assert exchange.strays == is_twice, name


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("transactional", [True, False], ids=["transactions", "no transactions"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_service_without_store(pattern: str, transactional: bool, after: bool, tmp_path: Path) -> None:
    """Without a store too nothing is lost: the function runs again where the request was not accepted."""
    path, options = tmp_path / "none.db", {"transactional": transactional, "is_stored": False}
    smooth = Exchange(pattern, path, Faults(), Faults(), **options)
    check_answer(pattern, smooth.run())
    assert smooth.runs == ["Ann"]
    for at, name in enumerate(smooth.answering.names):
        faults = Faults(at, after=after)
        exchange = Exchange(pattern, path, Faults(), faults, **options)
        check_answer(pattern, exchange.run())
        assert faults.fired.is_set(), name
        assert exchange.left == [], name
        was_run = at > smooth.answering.names.index("deliver") or (name == "deliver" and after)
        was_accepted = name == "close" or (after and name in {"accept", "commit", "deliver"})
        assert exchange.runs == ["Ann"] * (1 if was_accepted or not was_run else 2), name
        is_twice = not transactional and pattern != "one-way" and (name, after) in {("send", True), ("accept", False)}
        assert exchange.strays == is_twice, name


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_client(pattern: str, after: bool, tmp_path: Path) -> None:
    """Wherever a client fails, its caller has the answer or an error; what was sent is carried out, once."""
    smooth = Exchange(pattern, tmp_path / "smooth.db", Faults(), Faults(), transactional=True)
    check_answer(pattern, smooth.run())
    points = smooth.asking.names
    assert {"send"} | LEAVING[pattern] <= set(points)
    for at, name in enumerate(points):
        faults = Faults(at, after=after)
        exchange = Exchange(pattern, tmp_path / f"{at}.db", faults, Faults(), transactional=True)
        outcome = exchange.run()
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, BrokerError | CallFailedError), name
            assert "lost" in str(outcome) or "closed" in str(outcome), name
        else:
            assert name in {"deliver"} | LEAVING[pattern], name
            check_answer(pattern, outcome)
        was_sent = at > points.index("send") or (name == "send" and after)
        assert exchange.effects == (wanted_effects(pattern) if was_sent else 0), name
        assert exchange.left == [], name
        if isinstance(outcome, CallFailedError):
            assert not (outcome.is_known and was_sent), name


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("pattern", "times"),
    [
        *(pytest.param(pattern, 1, id=f"{pattern}-once") for pattern in PATTERNS),
        *(pytest.param(pattern, 8, id=f"{pattern}-for a while") for pattern in ("temporary", "one-way")),
    ],
)
def test_store(pattern: str, times: int, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the store fails, in a statement of the function too, the request waits; the effect happens once."""
    monkeypatch.setattr("soapjms.service.worker.MAX_NAP_SECONDS", 0.02)
    monkeypatch.setattr("soapjms.service.work.MAX_PAUSE_SECONDS", 0.02)

    def run(at: int | None, broken: str = "full") -> tuple[Exchange, Response | BaseException | None]:
        storing = Failures(at, times=times, after=after, broken=broken)
        exchange = Exchange(pattern, tmp_path / f"{at}.db", Faults(), Faults(), storing, transactional=True)
        return exchange, exchange.run()

    smooth, outcome = run(None)
    check_answer(pattern, outcome)
    points = smooth.storing.names
    assert {"BEGIN IMMEDIATE", "COMMIT"} <= set(points)
    assert not smooth.failed
    for at, sql in enumerate(points):
        exchange, outcome = run(at, list(BROKEN)[at % len(BROKEN)])
        what = f"{at}: {sql}"
        assert exchange.storing.fired.is_set(), what
        assert exchange.left == [], what
        assert exchange.strays == 0, what
        assert not exchange.failed, what
        check_answer(pattern, outcome)
        assert exchange.effects == wanted_effects(pattern), what
