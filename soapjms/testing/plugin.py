"""The pytest plugin: fixtures whose names begin with `soapjms_`, documented in docs/testing.md.

pytest loads it wherever soapjms is installed, so apart from a line in the header it does only what a test asks for.
`-p no:soapjms.testing.plugin` disables it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol
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
    """The broker that the tests use, and the origin of that choice."""

    broker: str
    origin: str


class Kit:
    """The fixtures that one test uses."""

    def __init__(self) -> None:
        self.broker: BrokerInUse | None = None
        self.traffic: Traffic | None = None
        self.stubs: list[StubService] = []
        self.is_verified = False

    def verify(self) -> None:
        """Assert that every stub received the expected requests."""
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
        """Return the section for the report of a failed test."""
        lines = [] if self.broker is None else [f"broker: {self.broker.description}"]
        if not self.is_verified:
            lines += [problem for stub in self.stubs if (problem := stub.problem())]
        if self.traffic is not None:
            lines += _traffic_shown(self.traffic.path)
        return "\n".join(lines)


def _traffic_shown(path: Path) -> list[str]:
    try:
        passed = [each for exchange in exchanges_of(read_log(path)) for each in exchange.messages]
    except (OSError, InvalidRecordError) as error:  # the test changed or removed the log
        return [f"the captured messages cannot be shown: {error}"]
    passed.sort(key=lambda each: each.time)
    first = f"captured messages: {len(passed)}" if passed else "no message was captured"
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
        "process:FOLDER (the ActiveMQ unpacked there, with Java), or a URL"
    )
    group = parser.getgroup("soapjms")
    group.addoption(OPTION, metavar="BROKER", default=None, help=f"broker for soapjms fixtures: {said}")
    parser.addini(INI, help=f"broker for soapjms fixtures: {said}", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Read the choice of the broker, so that a mistake is reported before any test runs."""
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
    """Return the header line with the chosen broker."""
    choice = config.stash[CHOICE]
    return f"soapjms: broker: {without_login(choice.broker)} ({choice.origin})"


# Hooks around a test


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the stubs of an earlier run of the same test, which some plugins repeat after a failure."""
    if KIT in item.stash:
        del item.stash[KIT]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Verify the stubs of a test that has passed so far, as part of the test, so that it can still fail."""
    result = yield
    kit = item.stash.get(KIT, None)
    if kit is not None:
        kit.verify()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker and the captured messages to the report of a failed test."""
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
    """The chosen broker, the same for all tests of the session (with pytest-xdist, of one worker)."""
    with ExitStack() as stack:
        yield _opened(stack, request.config.stash[CHOICE].broker)


@pytest.fixture(scope="session")
def soapjms_real_broker(request: pytest.FixtureRequest) -> Iterator[BrokerInUse]:
    """A broker outside this process: the chosen one, or if that is embedded, ActiveMQ in a container.

    Without Docker, tests that need the container fail and say so.
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
    """The chosen broker; if it is the embedded one, a new broker for each test."""
    with ExitStack() as stack:
        if request.config.stash[CHOICE].broker == EMBEDDED:
            yield _opened(stack, EMBEDDED)
        else:
            yield request.getfixturevalue("soapjms_session_broker")


@pytest.fixture
def soapjms_connection(soapjms_broker: BrokerInUse) -> Iterator[Connection]:
    """A connection to the test's broker; stubs have their own connections."""
    with soapjms_broker.connect() as connection:
        yield connection


class UriMaker(Protocol):
    """Makes URIs of unique destinations."""

    def __call__(self, what: str = "", kind: Literal["queue", "topic"] = "queue") -> str:
        """Return a `jms:` URI; `what` is a part of its name, `kind` is `queue` or `topic`."""


@pytest.fixture
def soapjms_uri(request: pytest.FixtureRequest) -> UriMaker:
    """A function that returns the URI of a new destination: `soapjms_uri("orders")`, `soapjms_uri("news", "topic")`."""
    test = _for_name(request.node.name)

    def make(what: str = "", kind: Literal["queue", "topic"] = "queue") -> str:
        if kind not in ("queue", "topic"):
            raise UsageError(f"kind must be 'queue' or 'topic', got {kind!r}")
        return f"jms:{kind}:" + ".".join(filter(None, ["soapjms-test", test, _for_name(what), uuid4().hex]))

    return make


def _for_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:60]


# Traffic, stubs, clients and services


@pytest.fixture
def soapjms_capture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Traffic]:
    """The traffic of the test: all messages of its stubs, and of the clients and services of its fixtures.

    Pass it to others as their recorder. It is a capture log in the test's `tmp_path`.
    """
    with Traffic(tmp_path / "soapjms-capture.jsonl") as traffic:
        _kit(request).traffic = traffic
        yield traffic


class StubMaker(Protocol):
    """Makes stubs."""

    def __call__(self, uri: str | JmsUri | Port | None = None, **options: Any) -> StubService:
        """Return a stub that serves at `uri`, or at its own queue; for `options` see `StubService`."""


@pytest.fixture
def soapjms_stubs(
    request: pytest.FixtureRequest, soapjms_broker: BrokerInUse, soapjms_uri: UriMaker, soapjms_capture: Traffic
) -> Iterator[StubMaker]:
    """A function that returns a stub, verified when the test ends: `soapjms_stubs("jms:queue:greeter")`."""
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
    """A stub at its own queue, `soapjms_stub.uri`, verified when the test ends."""
    return soapjms_stubs()


class ClientMaker(Protocol):
    """Makes clients."""

    def __call__(self, uri: str | JmsUri | Port, **options: Any) -> Client:
        """Return a client of the service at `uri`; for `options` see `soapjms.Client`."""


@pytest.fixture
def soapjms_client(
    request: pytest.FixtureRequest, soapjms_broker: BrokerInUse, soapjms_capture: Traffic
) -> Iterator[ClientMaker]:
    """A function that returns a captured client, closed when the test ends: `soapjms_client(uri, timeout=2)`."""
    _kit(request).broker = soapjms_broker
    with ExitStack() as stack:

        def make(uri: str | JmsUri | Port, **options: Any) -> Client:
            connection = stack.enter_context(soapjms_broker.connect())
            return stack.enter_context(Client(connection, uri, **{"recorder": soapjms_capture} | options))

        yield make


class ServiceRunner(Protocol):
    """Runs services."""

    def __call__(self, service: Operations, uri: str | None = None, **options: Any) -> str:
        """Serve at `uri`, or at its own queue, and return the URI; for `options` see `soapjms.Dispatcher`."""


@pytest.fixture
def soapjms_serve(
    request: pytest.FixtureRequest, soapjms_broker: BrokerInUse, soapjms_uri: UriMaker, soapjms_capture: Traffic
) -> Iterator[ServiceRunner]:
    """A function that runs a captured `soapjms.Service` until the test ends: `uri = soapjms_serve(service)`."""
    _kit(request).broker = soapjms_broker
    with ExitStack() as stack:

        def serve(service: Operations, uri: str | None = None, **options: Any) -> str:
            place = soapjms_uri("service") if uri is None else uri
            connection = stack.enter_context(soapjms_broker.connect())
            recorded: dict[str, Any] = {"recorder": soapjms_capture, "observer": soapjms_capture.under_way}
            stack.enter_context(Dispatcher(connection, place, service, **recorded | options))
            return place

        yield serve
