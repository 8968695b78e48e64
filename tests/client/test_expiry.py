"""When requests expire: no service works on a request whose caller has stopped waiting, whatever the clocks say."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    REAL_BROKERS,
    URI,
    Arrivals,
    Peers,
    Wrapped,
    arrivals,
    envelope,
    eventually,
    fresh,
    greeter,
    request_message,
    text_of,
)
from codegen_kit import generated
from places import ROOT
from real_brokers import RealBroker

import soapjms
import soapjms.zeep
from brokers import BrokerError, Connection, Destination, Message, queue
from brokers.embedded import Broker
from brokers.threads.thread import Thread
from soapjms import CallTimeoutError, Client, Dispatcher, OutgoingCall, UsageError
from soapjms.client.repetition import repeat
from soapjms.ping import BrokerClock
from soapjms.protocol.record import Direction, capture

HOUR = 3_600_000


def now() -> int:
    return time.time_ns() // 1_000_000


class TestExpiry(Peers):
    """The expiration of requests."""

    def test_not_carried_out_later(self, client: Client, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """A service that starts after a call timed out does not run it; it runs what came one-way meanwhile."""
        service, runs = soapjms.Service(), list[str]()
        service.operation(f"{{{NS}}}greetMe")(lambda request: runs.append(request.element.text))
        with pytest.raises(CallTimeoutError):
            client.call(envelope("given up"), timeout=0.05)
        client.send(envelope("one-way"), timeout=PATIENCE)
        with pytest.raises(CallTimeoutError):
            client.call(envelope("whatever happens"), timeout=0.5, expires=None)
        time.sleep(0.01)
        with Dispatcher(other, URI, service):
            eventually(lambda: len(runs) == 2, "what has not expired was run")
        assert runs == ["one-way", "whatever happens"]

    @pytest.mark.parametrize(
        ("uri", "arguments", "lifetime"),
        [
            (URI, {"timeout": 20}, 20_000),
            (URI, {"timeout": 20, "expires": "timeout"}, 20_000),
            (URI, {}, 30_000),
            (URI, {"timeout": 20, "expires": 300}, 300_000),
            (URI, {"timeout": 20, "expires": None}, None),
            (f"{URI}?timeToLive=50000", {"timeout": 20}, 50_000),
            (f"{URI}?timeToLive=0", {"timeout": 20}, None),
        ],
    )
    def test_time(self, connection: Connection, other: Connection, uri: str, arguments: Any, lifetime: int) -> None:
        """It is that of timeToLive, if that is set, and else what `expires` says."""
        with Client(connection, uri) as client, arrivals(other, GREETER) as found:
            before = now()
            client.submit(envelope(), **arguments)
            expiration, after = found.next().expiration, now()
        if lifetime is None:
            assert not expiration
        else:
            assert before + lifetime <= expiration <= after + lifetime + 1

    def test_one_way(self, client: Client, other: Connection) -> None:
        """One-way messages do not expire by themselves."""
        with arrivals(other, GREETER) as found:
            client.send(envelope(), timeout=1)
            assert not found.next().expiration

    @pytest.mark.parametrize("expires", [0, -1, "never", True, float("inf")])
    def test_mistakes(self, client: Client, expires: Any) -> None:
        """What is no time is refused."""
        with pytest.raises(UsageError, match="expires must be"):
            client.call(envelope(), expires=expires)

    def test_said_twice(self, connection: Connection) -> None:
        """Another `expires` beside a timeToLive is refused, rather than one of them ignored."""
        with Client(connection, f"{URI}?timeToLive=5000") as client:
            for expires in (None, 7):
                with pytest.raises(UsageError, match="timeToLive=5000 is set"):
                    client.call(envelope(), expires=expires)

    def test_middleware(self, connection: Connection, other: Connection) -> None:
        """Middleware sees when a request expires, and may change it."""
        seen = list[Any]()

        def longer(call: OutgoingCall, call_next: Any) -> Any:
            seen.append(call.expires)
            call.expires = 500
            return call_next(call)

        with Client(connection, URI, middleware=[longer]) as client, arrivals(other, GREETER) as found:
            before = now()
            client.submit(envelope())
            assert before + 500_000 <= (found.next().expiration or 0)
        assert seen == ["timeout"]


@pytest.mark.parametrize("skew", [-HOUR, HOUR])
class TestClocks(Peers):
    """A broker whose clock differs from this machine's by an hour."""

    @pytest.fixture
    def broker(self, skew: int) -> Broker:
        return Broker("skewed", clock=lambda: now() + skew)

    def test_answered(self, client: Client, served: Dispatcher, skew: int, caplog: pytest.LogCaptureFixture) -> None:
        """The first call too is answered, expires by the broker's clock, and a warning tells of the clocks."""
        with caplog.at_level(logging.WARNING, "soapjms.clock"):
            response = client.call(envelope("first"), timeout=20)
        assert text_of(response) == "Hello first"
        assert abs((response.request.expiration or 0) - now() - skew - 20_000) < 10_000
        where = "ahead of" if skew > 0 else "behind"
        assert f"the broker's clock is 3600.0 s {where} this machine's" in caplog.text

    def test_one_way(self, connection: Connection, other: Connection, skew: int) -> None:
        """A one-way message with a timeToLive lives as long by the broker's clock, too; else it would be lost."""
        with Client(connection, f"{URI}?timeToLive=50000") as client, arrivals(other, GREETER) as found:
            client.send(envelope("first"), timeout=20)
            assert abs((found.next().expiration or 0) - now() - skew - 50_000) < 10_000

    def test_sent_again(self, connection: Connection, other: Connection, skew: int) -> None:
        """So does a captured one that is sent again."""
        captured = request_message("greeter", None, expiration=60_000, timestamp=10_000)
        record = capture(captured, datetime.now(UTC), Direction.ONE_WAY)
        with arrivals(other, GREETER) as found:
            repeat(connection, record, GREETER, timeout=20)
            assert abs((found.next().expiration or 0) - now() - skew - 50_000) < 10_000


@pytest.mark.parametrize("skew", [-700, 700])
class TestNearClocks(Peers):
    """A broker whose clock differs by less than is worth a warning, but by more than a call may take."""

    @pytest.fixture
    def broker(self, skew: int) -> Broker:
        return Broker("skewed", clock=lambda: now() + skew)

    def test_answered(self, client: Client, served: Dispatcher, caplog: pytest.LogCaptureFixture) -> None:
        """The difference is made up for without a word, so that short calls are answered."""
        with caplog.at_level(logging.WARNING, "soapjms.clock"):
            client.call(envelope("the first waits until the clocks are compared"), timeout=20)
            for _ in range(3):
                assert text_of(client.call(envelope("short"), timeout=0.5)) == "Hello short"
        assert caplog.text == ""


def test_compared_before_anybody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that ends at once has ended: what has expired is thrown away, and later calls know the clock."""
    start = Thread.start

    def start_and_end(thread: Thread) -> None:
        start(thread)
        if thread.name == "soapjms-clock":
            thread.join(0.2)  # as far as it gets; a slow machine may take longer before `start` returns

    monkeypatch.setattr(Thread, "start", start_and_end)
    with Broker("skewed", clock=lambda: now() + HOUR).connect() as connection:
        clock = BrokerClock(connection)
        clock.now()
        eventually(lambda: clock.is_known and not clock.is_measured_now, "the clocks were compared")
        assert abs(clock.lead - HOUR) < 10_000


def test_compared_again_once_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the difference is not known, so that an event loop leaves it to a thread to wait for that."""
    with Broker("skewed", clock=lambda: now() + HOUR).connect() as connection:
        clock = BrokerClock(connection)
        clock.now(time.monotonic() + PATIENCE)
        eventually(lambda: clock.is_known, "the clocks were compared")
        monkeypatch.setattr("soapjms.ping.epoch_milliseconds", lambda: now() + 5000)
        assert not clock.is_known
        clock.now(time.monotonic() + PATIENCE)
        eventually(lambda: clock.is_known, "the clocks were compared again")


def test_compared_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that did not answer once, as while it starts, is asked again later, on the same connection."""
    asked = Event()

    class Starting(Wrapped):
        def temporary(self, *args: Any, **options: Any) -> Destination:
            if not asked.is_set():
                asked.set()
                raise BrokerError("it is starting")
            return super().temporary(*args, **options)

    monkeypatch.setattr("soapjms.ping.CLOCK_RETRY_SECONDS", 0.01)
    with Broker("skewed", clock=lambda: now() + HOUR).connect() as connection:
        clock = BrokerClock(Starting(connection))
        eventually(lambda: abs(clock.now() - now() - HOUR) < 10_000, "the clocks were compared again")
    assert asked.is_set()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.broker) for name in REAL_BROKERS])
class TestRealClocks:
    """Real brokers, of which one side's clock is an hour off."""

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_answered(
        self,
        name: str,
        hours: int,
        request: pytest.FixtureRequest,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Over STOMP calls are answered, and a warning tells of the clocks."""
        real: RealBroker = request.getfixturevalue(name)
        true, uri = time.time_ns, f"jms:queue:{fresh()}"
        monkeypatch.setattr("time.time_ns", lambda: true() + hours * HOUR * 1_000_000)
        monkeypatch.setattr("time.time", lambda: true() / 1e9 + hours * 3600)
        with (
            caplog.at_level(logging.WARNING, "soapjms.clock"),
            soapjms.connect(real.stomp_url) as connection,
            Dispatcher(connection, uri, greeter()),
            Client(connection, uri) as client,
        ):
            assert text_of(client.call(envelope("skewed"), timeout=20)) == "Hello skewed"
        assert f"3600.0 s {'behind' if hours > 0 else 'ahead of'} this machine's" in caplog.text

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_answered_over_amqp(
        self, name: str, hours: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Over AMQP, where no broker tells its time, calls are answered, as what travels is a duration."""
        real: RealBroker = request.getfixturevalue(name)
        true, uri = time.time_ns, f"jms:queue:{fresh()}"
        with soapjms.connect(real.amqp_url) as serving, Dispatcher(serving, uri, greeter()):
            monkeypatch.setattr("time.time_ns", lambda: true() + hours * HOUR * 1_000_000)
            with soapjms.connect(real.amqp_url) as connection, Client(connection, uri) as client:
                assert text_of(client.call(envelope("skewed"), timeout=20)) == "Hello skewed"

    @pytest.mark.parametrize("wire", ["stomp", "amqp"])
    def test_not_carried_out_later(self, name: str, wire: str, request: pytest.FixtureRequest) -> None:
        """A service that starts after a call timed out does not run it."""
        real: RealBroker = request.getfixturevalue(name)
        uri, runs = f"jms:queue:{fresh()}", list[str]()
        service = soapjms.Service()
        service.operation(f"{{{NS}}}greetMe")(lambda request: runs.append(request.element.text))
        with soapjms.connect(getattr(real, f"{wire}_url")) as connection, Client(connection, uri) as client:
            with pytest.raises(CallTimeoutError):
                client.call(envelope("given up"), timeout=0.3)
            client.send(envelope("one-way"), timeout=PATIENCE)
            time.sleep(0.4)  # the broker has both: over AMQP a lifetime counts from when a message reaches it
            with Dispatcher(connection, uri, service):
                eventually(lambda: runs, "the message after it was run")
        assert runs == ["one-way"]


GREETER_WSDL = ROOT / "examples/greeter.wsdl"
LIFETIMES: list[tuple[dict[str, Any], int | None]] = [({}, 50), ({"expires": 300}, 300_000), ({"expires": None}, None)]


class TestFromWsdl:
    """Calls by a WSDL that says nothing of it, as that of the README, expire like any other."""

    @pytest.fixture
    def found(self) -> Iterator[tuple[Connection, Arrivals]]:
        """Give a connection, and what arrives at the service's queue."""
        broker = fresh("wsdl")
        with (
            soapjms.connect(f"embedded:{broker}") as connection,
            soapjms.connect(f"embedded:{broker}") as other,
            arrivals(other, queue("greeter")) as found,
        ):
            yield connection, found

    def lives(self, message: Message, before: int, lifetime: int | None) -> None:
        """Assert when a message expires."""
        if lifetime is None:
            assert not message.expiration
        else:
            assert message.expiration is not None
            assert lifetime <= message.expiration - before <= now() - before + lifetime + 2

    @pytest.mark.parametrize(("options", "lifetime"), LIFETIMES)
    @pytest.mark.parametrize("port", ["GreeterPort", "GreeterPort12"])
    def test_generated(
        self, found: tuple[Connection, Arrivals], tmp_path: Path, port: str, options: Any, lifetime: int | None
    ) -> None:
        """A generated client takes `expires` beside `timeout`."""
        connection, arrived = found
        with generated(GREETER_WSDL, tmp_path, port=port) as package:
            name = next(each for each in dir(package) if each.endswith("Client") and not each.startswith("Async"))
            with getattr(package, name)(connection) as client:
                before = now()
                with pytest.raises(CallTimeoutError):
                    client.greet_me(package.GreetMe(name="Ann"), timeout=0.05, **options)
            self.lives(arrived.next(), before, lifetime)

    @pytest.mark.parametrize(("options", "lifetime"), LIFETIMES)
    def test_zeep(self, found: tuple[Connection, Arrivals], options: Any, lifetime: int | None) -> None:
        """An operation of zeep takes `_expires`; a one-way operation refuses it."""
        connection, arrived = found
        given = {f"_{name}": value for name, value in options.items()}
        with soapjms.zeep.Client(str(GREETER_WSDL), connection=connection, operation_timeout=0.05) as client:
            before = now()
            with pytest.raises(CallTimeoutError):
                client.service.greetMe("Ann", **given)
            self.lives(arrived.next(), before, lifetime)
            if given:
                with pytest.raises(UsageError, match="pingMe is one-way and has no _expires"):
                    client.service.pingMe("Ann", **given)
