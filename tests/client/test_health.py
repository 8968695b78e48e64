"""Pings through the broker, and what a dispatcher says of itself."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest
from calling_kit import PATIENCE, URI, OnEachBroker, Peers, Refusing, Wrapped, eventually, greeter
from limits_kit import no_more_threads

from brokers import Completion, Connection, ConnectionLostError, ConnectionState, Message, SendResult
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, PingFailedError, SqliteStore, UsageError
from soapjms.observing import Health, Observer, Place


class Silent(Wrapped):
    """A broker that takes messages and never delivers any."""

    def send(self, message: Message, transaction: Any = None, **options: Any) -> Completion[SendResult]:
        future: Completion[SendResult] = Completion(lambda: None)  # type: ignore[arg-type, return-value]
        future.set_result(SendResult())
        return future


class Stuck(Wrapped):
    """A broker that takes no message."""

    def send(self, message: Message, transaction: Any = None, **options: Any) -> Completion[SendResult]:
        return Completion(lambda: None)  # type: ignore[arg-type, return-value]


class Blocked(Wrapped):
    """A broker that answers no subscription until the test says so."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.asked, self.answers = Event(), Event()
        self.pings = 0

    def _consume(self, options: Any, on_delivery: Any) -> Any:
        if options.destination.kind.is_temporary:
            self.pings += 1
            self.asked.set()
            assert self.answers.wait(PATIENCE)
        return super()._consume(options, on_delivery)


def pinging() -> list[str]:
    """List the threads that send pings."""
    return [each.name for each in threading.enumerate() if each.name == "soapjms-ping"]


class TestPing(OnEachBroker):
    """`Client.ping` and `Dispatcher.ping`."""

    def test_round_trip(self, connection: Connection, other: Connection, uri: str) -> None:
        """A message comes back, again and again, over one temporary queue; it takes some time.

        Over STOMP there was another for the comparison of the clocks, when the dispatcher started.
        """
        made = list[Any]()

        class Counting(Wrapped):
            def temporary(self, *arguments: Any, **options: Any) -> Any:
                made.append(super().temporary(*arguments, **options))
                return made[-1]

        with Dispatcher(Counting(other), uri, greeter()) as dispatcher, Client(connection, uri) as client:
            for _ in range(3):
                assert 0 < dispatcher.ping() < PATIENCE
                assert 0 < client.ping(PATIENCE) < PATIENCE
            assert dispatcher.counts == {}
        assert len(made) == 1 + other.capabilities.tells_time


class TestFailures(Peers):
    """A ping that does not come back."""

    def test_silent(self, other: Connection) -> None:
        """It ends in time, and says what happened."""
        for kind, seconds, said in (
            (Silent, 1.0, "did not come back within 1 s"),  # time enough to send it
            (Stuck, 0.05, r"the broker did not accept it within 0\.05 s"),
        ):
            started = time.monotonic()
            with Client(kind(other), URI) as client, pytest.raises(PingFailedError, match=said):
                client.ping(seconds)
            assert time.monotonic() - started < 20

    def test_blocked(self, other: Connection) -> None:
        """A broker that does not answer holds up no ping beyond its time, and one thread; then all is well."""
        blocked = Blocked(other)
        eventually(lambda: not pinging(), "those of other tests have ended")
        with Dispatcher(blocked, URI, greeter()) as dispatcher:
            assert not dispatcher.health(0.05).ready
            assert blocked.asked.wait(PATIENCE)
            started = time.monotonic()
            for _ in range(3):
                found = dispatcher.health(0.05)
                assert (found.live, found.ready) == (True, False)
                assert "the broker did not accept it within 0.05 s" in found.problem
            assert time.monotonic() - started < 20
            assert blocked.pings == 1
            assert len(pinging()) == 1
            blocked.answers.set()
            eventually(lambda: dispatcher.health().ready, "it is ready")

    def test_refused(self, broker: Broker, other: Connection) -> None:
        """If the broker refuses to subscribe, pings leave no queues behind."""
        with Client(Refusing(other), URI) as client:
            for _ in range(3):
                with pytest.raises(PingFailedError, match="not authorized"):
                    client.ping()
            assert broker.destinations() == []

    def test_no_thread(self, other: Connection) -> None:
        """Where there is no thread to be had for it, that is told, and the next ping is as ever."""
        with Dispatcher(other, URI, greeter()) as dispatcher:
            assert dispatcher.health().ready
            with no_more_threads():
                found = dispatcher.health()
            assert (found.live, found.ready) == (True, False)
            assert "no message could be sent through the broker: " in found.problem
            assert dispatcher.health().ready

    def test_closed_while_blocked(self, broker: Broker, other: Connection) -> None:
        """Closing does not wait for it, and leaves no consumer at the broker."""
        blocked = Blocked(other)
        with Dispatcher(blocked, URI, greeter()) as dispatcher:
            assert not dispatcher.health(0.05).ready
            assert dispatcher.close(PATIENCE)
        blocked.answers.set()
        eventually(lambda: not pinging(), "nobody waits")
        assert [each for each in broker.destinations() if each.kind.is_temporary] == []

    def test_lost_at_the_end(self, connection: Connection) -> None:
        """That its queue cannot be ended any more keeps nobody from closing."""
        asked = Event()

        class Gone(Wrapped):
            def end_temporary(self, destination: Any) -> None:
                asked.set()
                raise ConnectionLostError("gone")

        with Dispatcher(Gone(connection), URI, greeter()) as dispatcher:
            dispatcher.ping()
            assert dispatcher.close()
        assert asked.is_set()

    def test_closed(self, connection: Connection) -> None:
        """Without a connection it fails at once, with the reason."""
        with Client(connection, URI) as client:
            connection.close()
            with pytest.raises(PingFailedError, match="no message could be sent through the broker: the connection"):
                client.ping()
        with pytest.raises(UsageError, match="the client is closed"):
            client.ping()

    @pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "1"])
    def test_timeout(self, client: Client, timeout: Any) -> None:
        """It always ends, so its time-out does."""
        with pytest.raises(UsageError, match="timeout must be"):
            client.ping(timeout)


class TestHealth(Peers):
    """`Dispatcher.health`."""

    def test_life(self, client: Client, other: Connection) -> None:
        """It is live from the beginning to the end, and ready in between."""
        dispatcher = Dispatcher(other, URI, greeter())
        before = dispatcher.health()
        assert (before.live, before.ready, before.problem) == (True, False, "it was not started")
        with dispatcher:
            within = dispatcher.health()
            assert (within.live, within.ready, within.problem, within.under_way) == (True, True, "", 0)
            assert within.round_trip is not None
            assert within.round_trip > 0
        after = dispatcher.health()
        assert (after.live, after.ready, after.problem, after.round_trip) == (True, False, "it was closed", None)

    def test_connection_closed(self, broker: Broker) -> None:
        """When its connection was closed it is neither: only another process helps."""
        connection = broker.connect()
        with Dispatcher(connection, URI, greeter()) as dispatcher:
            connection.close()
            found = dispatcher.health()
        assert (found.live, found.ready, found.problem) == (False, False, "the connection is closed")

    def test_connection_lost(self, other: Connection) -> None:
        """While its connection is lost it is live, and not ready."""

        class Lost(Wrapped):
            @property
            def state(self) -> ConnectionState:
                return ConnectionState.LOST

        with Dispatcher(Lost(other), URI, greeter()) as dispatcher:
            found = dispatcher.health()
        assert (found.live, found.ready, found.problem) == (True, False, "the connection is lost")

    def test_silent(self, other: Connection) -> None:
        """While nothing comes through the broker it is not ready."""
        with Dispatcher(Silent(other), URI, greeter()) as dispatcher:
            found = dispatcher.health(1.0)  # time enough to send it
        assert (found.live, found.ready, found.round_trip) == (True, False, None)
        assert "did not come back" in found.problem

    def test_busy(self, client: Client, other: Connection) -> None:
        """It says how much is under way, and is ready meanwhile."""
        begun, go_on, service = Event(), Event(), greeter()

        @service.operation("{urn:greeter}wait")
        def wait(request: object) -> None:
            begun.set()
            assert go_on.wait(PATIENCE)

        with Dispatcher(other, URI, service, workers=1) as dispatcher:
            client.submit(
                b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>'
                b'<wait xmlns="urn:greeter"/></e:Body></e:Envelope>'
            )
            assert begun.wait(PATIENCE)
            found = dispatcher.health()
            go_on.set()
        assert (found.ready, found.under_way) == (True, 1)

    def test_stalled(self, client: Client, other: Connection) -> None:
        """It is not ready once all workers are at work and none finishes anything, and is again when one does."""
        begun, go_on, service = Semaphore(0), Event(), greeter()

        @service.operation("{urn:greeter}wait")
        def wait(request: object) -> None:
            begun.release()
            assert go_on.wait(PATIENCE)

        noted = list[Health]()

        class Noting(Observer):
            def health_checked(self, place: Place, health: Health) -> None:
                noted.append(health)

        envelope = (
            b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>'
            b'<wait xmlns="urn:greeter"/></e:Body></e:Envelope>'
        )
        with Dispatcher(other, URI, service, workers=2, stalled_after=0.1, observer=Noting()) as dispatcher:
            client.submit(envelope)
            assert begun.acquire(timeout=PATIENCE)
            time.sleep(0.2)
            assert dispatcher.health().ready  # another worker is free
            client.submit(envelope)
            assert begun.acquire(timeout=PATIENCE)
            eventually(lambda: not dispatcher.health().ready, "it stalls")
            found = dispatcher.health()
            go_on.set()
            eventually(lambda: dispatcher.health().ready, "it goes on")
        assert found.live
        assert "all 2 workers are at work, and none has finished anything for" in found.problem
        assert (found.under_way, found.subscriptions, found.workers) == (2, 2, 2)
        assert found.stalled > 0.1
        assert found in noted

    def test_store_that_cannot_be_written(self, connection: Connection, tmp_path: Path) -> None:
        """It is not ready while the store gives no sign of life, though no request comes."""
        path = tmp_path / "requests.db"
        with (
            SqliteStore(path, lease=0.4, timeout=0.2) as store,
            Dispatcher(connection, URI, greeter(), store=store) as it,
        ):
            assert it.health().ready
            holder = sqlite3.connect(store.claims, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            eventually(lambda: "nothing could be written for" in it.health().problem, "it is told")
            holder.execute("ROLLBACK")
            holder.close()
            eventually(lambda: it.health().ready, "it can be written again")
