"""The pytest plugin: fixtures that begin with `soapjms_`, each documented in docs/testing.md.

pytest loads this wherever soapjms is installed, so nothing happens here that a test did not ask for, but for a line in
the header. `-p no:soapjms.testing.plugin` leaves it out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

import pytest

from brokers.connection import Connection
from brokers.redaction import without_login
from soapjms.client.client import Client
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.protocol.exchange import exchanges_of
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port
from soapjms.service.dispatcher import Dispatcher
from soapjms.service.operations import Operations
from soapjms.testing.broker import CONTAINER, EMBEDDED, BrokerInUse, BrokerNotAvailableError, checked, decided, running
from soapjms.testing.stub import StubService, UnmetExpectationsError
from soapjms.testing.traffic import Traffic, read_log, record_shown

OPTION: Final = "--soapjms-broker"
VARIABLE: Final = "SOAPJMS_TEST_BROKER"
INI: Final = "soapjms_broker"
MESSAGES_SHOWN: Final = 20


class BrokerChoice(NamedTuple):
    """Which broker the tests use, and who said so."""

    broker: str
    origin: str


class Kit:
    """What one test has of the fixtures."""

    def __init__(self) -> None:
        self.broker: BrokerInUse | None = None
        self.traffic: Traffic | None = None
        self.stubs: list[StubService] = []
        self.is_verified = False

    def verify(self) -> None:
        """Assert that every stub got what it expected."""
        problems = []
        for stub in self.stubs:
            try:
                stub.verify()
            except UnmetExpectationsError as error:
                problems.append(str(error))
        self.is_verified = True
        if problems:
            pytest.fail("\n\n".join(problems), pytrace=False)

    def told(self) -> str:
        """Say what somebody wants to know whose test failed."""
        lines = [] if self.broker is None else [f"broker: {self.broker.description}"]
        if not self.is_verified:
            lines += [problem for stub in self.stubs if (problem := stub.problem())]
        if self.traffic is not None:
            lines += _traffic_shown(self.traffic.path)
        return "\n".join(lines)


def _traffic_shown(path: Path) -> list[str]:
    try:
        passed = [each for exchange in exchanges_of(read_log(path)) for each in exchange.messages]
    except (OSError, InvalidRecordError) as error:  # the test wrote there, or took it away
        return [f"what passed cannot be shown: {error}"]
    passed.sort(key=lambda each: each.time)
    first = f"messages that passed: {len(passed)}" if passed else "no message passed that was captured"
    return [f"{first}, see {path}", *(f"  {record_shown(each)}" for each in passed[-MESSAGES_SHOWN:])]


CHOICE: Final = pytest.StashKey[BrokerChoice]()
KIT: Final = pytest.StashKey[Kit]()


def _kit(request: pytest.FixtureRequest) -> Kit:
    return request.node.stash.setdefault(KIT, Kit())  # type: ignore[no-any-return]


# Options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting that choose the broker."""
    said = (
        "embedded (default), container (ActiveMQ, with Docker), auto (container if Docker answers), "
        "process:FOLDER (the ActiveMQ that was unpacked there, with Java), or a URL"
    )
    group = parser.getgroup("soapjms")
    group.addoption(OPTION, metavar="BROKER", default=None, help=f"broker for soapjms fixtures: {said}")
    parser.addini(INI, help=f"broker for soapjms fixtures: {said}", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Find out which broker is wanted, so that a mistake is told before anything runs."""
    said = [
        BrokerChoice(config.getoption(OPTION) or "", OPTION),
        BrokerChoice(os.environ.get(VARIABLE, ""), VARIABLE),
        BrokerChoice(config.getini(INI), INI),
        BrokerChoice(EMBEDDED, f"the default; see {OPTION}"),
    ]
    choice = next(each for each in said if each.broker)
    try:
        checked(choice.broker)
    except UsageError as error:
        raise pytest.UsageError(f"{choice.origin}: {error}") from None
    broker, why = decided(choice.broker)
    config.stash[CHOICE] = BrokerChoice(broker, f"{choice.origin}: {why}" if why else choice.origin)


def pytest_report_header(config: pytest.Config) -> str:
    """Say which broker is wanted."""
    choice = config.stash[CHOICE]
    return f"soapjms: broker: {without_login(choice.broker)} ({choice.origin})"


# What happens around a test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Verify the stubs of a test that passed so far: as part of it, so that it fails."""
    result = yield
    kit = item.stash.get(KIT, None)
    if kit is not None:
        kit.verify()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a test that failed which broker it used, and what passed."""
    report = yield
    kit = item.stash.get(KIT, None)
    if report.failed and kit is not None and (told := kit.told()):
        report.sections.append(("soapjms", told))
    return report


# Brokers


def _opened(stack: ExitStack, choice: str) -> BrokerInUse:
    try:
        return stack.enter_context(running(choice))
    except BrokerNotAvailableError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def soapjms_session_broker(request: pytest.FixtureRequest) -> Iterator[BrokerInUse]:
    """The broker that was chosen, the same for all tests of the session (of one worker, with pytest-xdist)."""
    with ExitStack() as stack:
        yield _opened(stack, request.config.stash[CHOICE].broker)


@pytest.fixture(scope="session")
def soapjms_real_broker(request: pytest.FixtureRequest) -> Iterator[BrokerInUse]:
    """A broker outside of this process: the one that was chosen, and if that is embedded, ActiveMQ in a container.

    Without Docker the tests that ask for it fail, and say so.
    """
    if request.config.stash[CHOICE].broker != EMBEDDED:
        chosen: BrokerInUse = request.getfixturevalue("soapjms_session_broker")
        if not chosen.is_embedded:
            yield chosen
            return
    with ExitStack() as stack:
        yield _opened(stack, CONTAINER)


@pytest.fixture
def soapjms_broker(request: pytest.FixtureRequest) -> Iterator[BrokerInUse]:
    """The broker that was chosen; if it is the embedded one, a broker that no other test has."""
    with ExitStack() as stack:
        if request.config.stash[CHOICE].broker == EMBEDDED:
            yield _opened(stack, EMBEDDED)
        else:
            yield request.getfixturevalue("soapjms_session_broker")


@pytest.fixture
def soapjms_connection(soapjms_broker: BrokerInUse) -> Iterator[Connection]:
    """A connection to the test's broker; stubs have one of their own."""
    with soapjms_broker.connect() as connection:
        yield connection


class UriMaker(Protocol):
    """Makes URIs of destinations that nobody else has."""

    def __call__(self, what: str = "", kind: str = "queue") -> str:
        """Return a `jms:` URI; `what` shows in it, `kind` is `queue` or `topic`."""


@pytest.fixture
def soapjms_uri(request: pytest.FixtureRequest) -> UriMaker:
    """A function that returns the URI of a new destination: `soapjms_uri("orders")`, `soapjms_uri("news", "topic")`."""
    test = _for_name(request.node.name)

    def make(what: str = "", kind: str = "queue") -> str:
        if kind not in ("queue", "topic"):
            raise UsageError(f"kind is {kind!r}; it is queue or topic")
        return f"jms:{kind}:" + ".".join(filter(None, ["soapjms-test", test, _for_name(what), uuid4().hex]))

    return make


def _for_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:60]


# What passes, and who speaks


@pytest.fixture
def soapjms_capture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Traffic]:
    """All that passed in the test at its stubs, and at the clients and services of its fixtures.

    Others take it as their recorder. It is a capture log in the test's `tmp_path`.
    """
    with Traffic(tmp_path / "soapjms-capture.jsonl") as traffic:
        _kit(request).traffic = traffic
        yield traffic


class StubMaker(Protocol):
    """Makes stubs."""

    def __call__(self, uri: str | JmsUri | Port | None = None, **options: Any) -> StubService:
        """Return a stub that serves at `uri`, or at a queue of its own; for `options` see `StubService`."""


@pytest.fixture
def soapjms_stubs(
    request: pytest.FixtureRequest, soapjms_broker: BrokerInUse, soapjms_uri: UriMaker, soapjms_capture: Traffic
) -> Iterator[StubMaker]:
    """A function that returns a stub, which is verified when the test ends: `soapjms_stubs("jms:queue:greeter")`."""
    kit = _kit(request)
    kit.broker = soapjms_broker
    with ExitStack() as stack:

        def make(uri: str | JmsUri | Port | None = None, **options: Any) -> StubService:
            connection = stack.enter_context(soapjms_broker.connect())
            place = soapjms_uri("stub") if uri is None else uri
            stub = StubService(connection, place, **{"recorder": soapjms_capture} | options)
            stack.callback(stub.close)
            kit.stubs.append(stub)
            return stub

        yield make


@pytest.fixture
def soapjms_stub(soapjms_stubs: StubMaker) -> StubService:
    """A stub at a queue of its own, `soapjms_stub.uri`; it is verified when the test ends."""
    return soapjms_stubs()


class ClientMaker(Protocol):
    """Makes clients."""

    def __call__(self, uri: str | JmsUri | Port, **options: Any) -> Client:
        """Return a client of the service at `uri`; for `options` see `soapjms.Client`."""


@pytest.fixture
def soapjms_client(
    request: pytest.FixtureRequest, soapjms_broker: BrokerInUse, soapjms_capture: Traffic
) -> Iterator[ClientMaker]:
    """A function that returns a client, captured and closed when the test ends: `soapjms_client(uri, timeout=2)`."""
    _kit(request).broker = soapjms_broker
    with ExitStack() as stack:

        def make(uri: str | JmsUri | Port, **options: Any) -> Client:
            connection = stack.enter_context(soapjms_broker.connect())
            return stack.enter_context(Client(connection, uri, **{"recorder": soapjms_capture} | options))

        yield make


class ServiceRunner(Protocol):
    """Runs services."""

    def __call__(self, service: Operations, uri: str | None = None, **options: Any) -> str:
        """Serve at `uri`, or at a queue of its own, and return the URI; for `options` see `soapjms.Dispatcher`."""


@pytest.fixture
def soapjms_serve(
    request: pytest.FixtureRequest, soapjms_broker: BrokerInUse, soapjms_uri: UriMaker, soapjms_capture: Traffic
) -> Iterator[ServiceRunner]:
    """A function that runs a `soapjms.Service` until the test ends, captured: `uri = soapjms_serve(service)`."""
    _kit(request).broker = soapjms_broker
    with ExitStack() as stack:

        def serve(service: Operations, uri: str | None = None, **options: Any) -> str:
            place = soapjms_uri("service") if uri is None else uri
            connection = stack.enter_context(soapjms_broker.connect())
            recorded: dict[str, Any] = {"recorder": soapjms_capture, "observer": soapjms_capture.under_way}
            stack.enter_context(Dispatcher(connection, place, service, **recorded | options))
            return place

        yield serve
