"""Calls while the connection to a real broker is lost, made again, or silent, with each reply strategy."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, Semaphore
from typing import Any

import pytest
from calling_kit import (
    NS,
    PATIENCE,
    REAL_BROKERS,
    OnEachBroker,
    OnRealBrokers,
    Wrapped,
    answer_to,
    arrivals,
    element,
    envelope,
    eventually,
    greeter,
    text_of,
)
from lxml import etree
from proxy_kit import Proxy
from real_brokers import STARTERS, RealBroker

import soapjms
from brokers import ClosedError, Connection, ConnectionLostError, DeliveryMode, queue
from brokers.stomp import Reconnect, StompConnection
from brokers.stomp.temporary import MAX_ANNEX_QUEUES
from soapjms import CallFailedError, CallTimeoutError, Client, Dispatcher, Request, Service, UsageError
from soapjms.protocol import names

HEARTBEAT = 2.4
"""Seconds; Artemis promises no sign of life within less than half a second, and we ask for two in that time."""

NOT_KNOWN = "was lost.*whether the service works on the request is not known"

STRATEGIES: dict[str, dict[str, Any]] = {
    "temporary": {},
    "exclusive": {},
    "shared": {"properties": {"replyToName": "answers"}},
}


@pytest.fixture(scope="module", params=REAL_BROKERS)
def real(request: pytest.FixtureRequest) -> Iterator[RealBroker]:
    """A broker of these tests' own: on a busy machine Artemis may answer nobody for a while after the last one."""
    with STARTERS[request.param]() as broker:
        yield broker


@pytest.mark.broker
class TestFaults(OnEachBroker):
    """A client by way of a proxy, on both real brokers; the service has a connection of its own."""

    @pytest.fixture
    def url(self, real: RealBroker) -> str:
        """Where the service connects."""
        return real.stomp_url

    @pytest.fixture
    def proxy(self, real: RealBroker) -> Iterator[Proxy]:
        with Proxy(real.host, real.ports.stomp) as proxy:
            yield proxy

    @pytest.fixture
    def heartbeat(self) -> float:
        """Seconds between signs of life; so long that a busy machine is no silence."""
        return 10.0

    @pytest.fixture
    def connection(self, proxy: Proxy, heartbeat: float) -> Iterator[Connection]:
        plan = Reconnect(initial=0.02, maximum=0.1)
        with soapjms.connect(proxy.stomp_url, heartbeat=heartbeat, reconnect=plan) as connection:
            yield connection

    @pytest.mark.parametrize("replies", STRATEGIES)
    def test_call_while_lost(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str, replies: str
    ) -> None:
        """It waits for the connection, and works; so does a one-way message; each call gets its own reply."""
        options = STRATEGIES[replies] | {"replies": replies, "timeout": PATIENCE}
        with Dispatcher(other, uri, greeter(), workers=8) as serving, Client(connection, uri, **options) as client:
            assert text_of(client.call(envelope("before"))) == "Hello before"
            for _ in range(3):
                proxy.leave()
                eventually(lambda: connection.state == "lost", "it was noticed")
                with ThreadPoolExecutor(4) as callers:
                    waiting = [callers.submit(client.call, envelope(f"{number}")) for number in range(4)]
                    one_way = callers.submit(client.send, envelope("one way", operation="pingMe"))
                    proxy.come_back()
                    for number, each in enumerate(waiting):
                        assert text_of(each.result(PATIENCE)) == f"Hello {number}"
                    one_way.result(PATIENCE)
            eventually(lambda: serving.counts["one-way"] == 3, "the one-way messages were served")
        assert set(client.counts) <= ({"duplicate"} if replies == "shared" else set())

    def test_nobody_comes_back(self, proxy: Proxy, connection: Connection, uri: str) -> None:
        """The call fails when its time is over, and says that nothing was sent."""
        with Client(connection, uri) as client:
            proxy.leave()
            eventually(lambda: connection.state == "lost", "it was noticed")
            with pytest.raises(CallFailedError, match=r"could not be sent: the connection to .* was lost") as caught:
                client.call(envelope(), timeout=0.1)
            with pytest.raises(CallFailedError, match="could not be sent"):
                client.submit(envelope(), timeout=0.1).result(PATIENCE)
        assert caught.value.reason == "transmissionFailure"

    @pytest.mark.parametrize("replies", ["temporary", "exclusive"])
    def test_under_way(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str, name: str, replies: str
    ) -> None:
        """A call whose replies cannot come any more fails at once; calls of the next generation go on."""
        with (
            arrivals(other, queue(name)) as found,
            Client(connection, uri, replies=replies, timeout=PATIENCE) as client,
        ):
            future = client.submit(envelope())
            request = found.next()
            proxy.cut()
            with pytest.raises(CallFailedError, match=NOT_KNOWN):
                future.result(PATIENCE)
            following = client.submit(envelope("again"))
            second = found.next()
            assert second.reply_to != request.reply_to
            other.send(answer_to(second, "in time"))
            assert text_of(following.result(PATIENCE)) == "in time"

    def test_fixed_replies_outlast_it(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str, name: str
    ) -> None:
        """A call that the broker confirmed gets its reply, sent while the client was away or after."""
        answers = {"properties": {"replyToName": f"{name}.answers"}, "timeout": PATIENCE}
        with arrivals(other, queue(name)) as found, Client(connection, uri, **answers) as client:
            futures = [client.submit(envelope(f"{number}")) for number in range(2)]
            requests = found.take(2)
            eventually(
                lambda: all(call.is_confirmed for call in client._calls.all()), "the requests are with the broker"
            )
            proxy.leave()
            eventually(lambda: connection.state == "lost", "it was noticed")
            other.send(answer_to(requests[0], "meanwhile")).result(PATIENCE)
            proxy.come_back()
            connection.wait_connected(PATIENCE)
            other.send(answer_to(requests[1], "after")).result(PATIENCE)
            assert [text_of(each.result(PATIENCE)) for each in futures] == ["meanwhile", "after"]
            with pytest.raises(CallTimeoutError):
                client.call(envelope(), timeout=0.5, expires=None)
            other.send(answer_to(found.next(), "late")).result(PATIENCE)
            eventually(lambda: client.counts == {"late": 1}, "the late one was counted")

    def test_not_confirmed(self, proxy: Proxy, connection: Connection, uri: str) -> None:
        """With a fixed destination too a call fails whose request the broker may not have, or may lose."""
        for properties in ({}, {"deliveryMode": "NON_PERSISTENT"}):
            fixed = properties | {"replyToName": "answers"}
            with Client(connection, uri, properties=fixed, timeout=PATIENCE) as client:
                connection.wait_connected(PATIENCE)
                client._replies.lease("warm")  # listen before the network is silent
                proxy.silence()
                future = client.submit(envelope())
                proxy.cut()
                with pytest.raises(CallFailedError, match=NOT_KNOWN):
                    future.result(PATIENCE)
                proxy.speak()

    @pytest.mark.parametrize("heartbeat", [HEARTBEAT])
    def test_silent_network(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str, name: str, heartbeat: float
    ) -> None:
        """It is noticed within two heart-beats; calls under way fail; the next works once there is a way again."""
        with arrivals(other, queue(name)) as found, Client(connection, uri, timeout=PATIENCE) as client:
            future = client.submit(envelope())
            found.next()
            time.sleep(1.8 * heartbeat)  # all is well for that long, though nothing but heart-beats passes
            assert connection.generation == 1
            proxy.silence()
            began = time.monotonic()
            with pytest.raises(CallFailedError, match=NOT_KNOWN):
                future.result(PATIENCE)
            assert time.monotonic() - began < 2 * heartbeat + 3  # seconds that a busy machine may take to notice
            proxy.speak()
            following = client.submit(envelope("again"))
            other.send(answer_to(found.next(), "in time"))
            assert text_of(following.result(PATIENCE)) == "in time"

    def test_ping_in_the_next_session(self, proxy: Proxy, connection: Connection, uri: str) -> None:
        """It takes a queue of that session; so a service that was cut off is ready again."""
        with Dispatcher(connection, uri, greeter()) as dispatcher, Client(connection, uri) as client:
            assert client.ping(PATIENCE) > 0
            assert dispatcher.health(PATIENCE).ready
            proxy.cut()
            eventually(lambda: connection.generation == 2, "there is another session")
            connection.wait_connected(PATIENCE)
            assert client.ping(PATIENCE) > 0
            assert dispatcher.health(PATIENCE).ready

    @pytest.mark.parametrize("mode", ["PERSISTENT", "NON_PERSISTENT"])
    def test_frame_above_the_limit(self, activemq: RealBroker, uri: str, mode: str) -> None:
        """Whose call ends the connection is told by the broker why, and so is who called meanwhile."""
        with (
            soapjms.connect(activemq.stomp_url, reconnect=False) as connection,
            Client(connection, f"{uri}?deliveryMode={mode}", timeout=PATIENCE) as client,
        ):
            futures = [client.submit(envelope(text)) for text in ("small", "x" * (17 << 20))]
            for future in futures:
                with pytest.raises(CallFailedError, match=r"maximum data length.*not known"):
                    future.result(PATIENCE)

    def test_closed_clients_leave_nothing(self, connection: Connection, real: RealBroker, uri: str, name: str) -> None:
        """A connection that outlives clients and dispatchers refers to none of them; nor does the broker."""
        gone = []
        for replies in STRATEGIES:
            options = STRATEGIES[replies] | {"replies": replies}
            with Dispatcher(connection, uri, greeter()) as dispatcher, Client(connection, uri, **options) as client:
                client.call(envelope(), timeout=PATIENCE)
            gone += [weakref.ref(client), weakref.ref(dispatcher)]
            del client, dispatcher

        def are_gone() -> bool:
            gc.collect()
            return not [each for each in gone if each() is not None]

        eventually(are_gone, "nothing refers to them")
        eventually(lambda: name not in real.counters().consumers, "the broker has no consumer of theirs")
        connection.close()
        eventually(lambda: real.counters().temporaries == [], "no temporary destination is left")

    @pytest.mark.parametrize("replies", ["temporary", "exclusive"])
    def test_many_clients_leave_no_destinations(
        self, connection: Connection, real: RealBroker, uri: str, replies: str
    ) -> None:
        """Over a connection that lasts; the one that ActiveMQ Classic cannot end is used again and again."""
        with Dispatcher(connection, uri, greeter()):
            for _ in range(30):
                with Client(connection, uri, replies=replies, timeout=PATIENCE) as client:
                    client.call(envelope())
        left = {("ActiveMQ", "temporary"): 2, ("ActiveMQ", "exclusive"): 1}.get((real.recipe.title, replies), 0)
        eventually(lambda: len(real.counters().temporaries) == left, "they were ended")

    def test_calls_without_a_reply_leave_no_destinations(
        self, connection: Connection, other: Connection, real: RealBroker, uri: str, name: str
    ) -> None:
        """Each that timed out ends its own, if not at once then soon; calls under way keep theirs, and late replies
        reach nobody."""
        with (
            arrivals(other, queue(name)) as found,
            Client(connection, uri, profile=names.CR_2009, timeout=PATIENCE) as client,
        ):
            waiting = client.submit(envelope(), expires=None)  # nor is there a queue to compare clocks by
            request = found.next()
            calls = [client.submit(envelope(), timeout=2.0, expires=None) for _ in range(120)]
            for each in calls:
                with pytest.raises(CallTimeoutError):
                    each.result(PATIENCE)
            late = found.take(120)
            eventually(lambda: len(real.counters().temporaries) <= MAX_ANNEX_QUEUES, "most of them were ended")
            for each in late:
                other.send(answer_to(each, "late", names.CR_2009, delivery_mode=DeliveryMode.NON_PERSISTENT))
            other.send(answer_to(request, "in time", names.CR_2009))
            assert text_of(waiting.result(PATIENCE)) == "in time"
            assert client.counts == {}
        eventually(lambda: real.counters().temporaries == [], "they were ended")

    def test_no_session_for_destinations_that_end(
        self,
        connection: Connection,
        other: Connection,
        uri: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Where the broker gives no further one, calls go on all the same, with what it does not end."""
        monkeypatch.setattr("brokers.stomp.temporary.ANNEX_SECONDS", 0.0)
        with (
            Dispatcher(other, uri, greeter()),
            Client(connection, uri, replies="exclusive", timeout=PATIENCE) as client,
        ):
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    def test_close_wakes_who_waits(self, proxy: Proxy, connection: Connection, uri: str) -> None:
        """Calls and one-way messages that wait for a lost connection fail with its client, long before their time."""
        waiting = Semaphore(0)

        class Watched(Wrapped):
            def wait_connected(self, timeout: float | None = None) -> None:
                waiting.release()
                super().wait_connected(timeout)

        client = Client(Watched(connection), uri, timeout=600)
        proxy.leave()
        eventually(lambda: connection.state == "lost", "it was noticed")
        with ThreadPoolExecutor(3) as callers:
            functions = client.call, client.send, lambda request: client.submit(request).result(PATIENCE)
            ends = [callers.submit(function, envelope()) for function in functions]
            for _ in ends:
                assert waiting.acquire(timeout=PATIENCE)
            client.close()
            for each in ends:
                with pytest.raises(CallFailedError, match="could not be sent: the client was closed"):
                    each.result(PATIENCE)

    @pytest.mark.parametrize("is_back", [True, False])
    def test_dispatcher_started_while_lost(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str, is_back: bool
    ) -> None:
        """It waits for the connection, and serves then; or says in the end that there is none."""
        waiting = Event()

        class Watched(Wrapped):
            def wait_connected(self, timeout: float | None = None) -> None:
                waiting.set()
                super().wait_connected(timeout)

        dispatcher = Dispatcher(Watched(connection), uri, greeter())
        proxy.leave()
        eventually(lambda: connection.state == "lost", "it was noticed")
        with ThreadPoolExecutor(1) as starter:
            started = starter.submit(dispatcher.start, PATIENCE if is_back else 0.3)
            assert waiting.wait(PATIENCE)
            if not is_back:
                with pytest.raises(ConnectionLostError):
                    started.result(PATIENCE)
                return
            assert not started.done()
            proxy.come_back()
            assert started.result(PATIENCE) is dispatcher
        with closing(dispatcher), Client(other, uri, timeout=PATIENCE) as client:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    def test_dispatcher_closed_while_it_starts(self, proxy: Proxy, connection: Connection, uri: str) -> None:
        """Who closes it wakes who starts it."""
        dispatcher = Dispatcher(connection, uri, greeter())
        proxy.leave()
        eventually(lambda: connection.state == "lost", "it was noticed")
        with ThreadPoolExecutor(1) as starter:
            started = starter.submit(dispatcher.start, 600)
            dispatcher.close()
            with pytest.raises((ClosedError, UsageError), match=r"closed|started only once"):
                started.result(PATIENCE)

    @pytest.mark.parametrize("heartbeat", [600.0])
    @pytest.mark.parametrize("replies", ["temporary", "exclusive"])
    def test_close_of_a_client_on_a_silent_network(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str, replies: str
    ) -> None:
        """It takes no longer than it was given, though the broker answers nothing and nobody has noticed yet."""
        with Dispatcher(other, uri, greeter()):
            client = Client(connection, uri, replies=replies, timeout=PATIENCE)
            for each in [client.submit(envelope()) for _ in range(3)]:
                each.result(PATIENCE)
        client.ping()
        proxy.silence()
        began = time.monotonic()
        client.close(0.5)
        assert 0.4 < time.monotonic() - began < 10
        connection.close(0.5)

    @pytest.mark.parametrize("heartbeat", [600.0])
    def test_close_of_a_dispatcher_on_a_silent_network(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str
    ) -> None:
        """Likewise, with as many subscriptions as there are workers; and what comes then is another's."""
        dispatcher = Dispatcher(connection, uri, greeter(), workers=3).start()
        dispatcher.ping()
        proxy.silence()
        began = time.monotonic()
        assert dispatcher.close(0.5)
        assert 0.4 < time.monotonic() - began < 5
        connection.close(0.5)
        proxy.speak()
        proxy.cut()
        with Dispatcher(other, uri, greeter()), Client(other, uri, timeout=PATIENCE) as client:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    @pytest.mark.parametrize("heartbeat", [600.0])
    def test_close_of_a_dispatcher_that_writes_and_is_not_read(
        self, proxy: Proxy, connection: Connection, other: Connection, uri: str
    ) -> None:
        """Likewise while an answer is stuck half written, which nothing else can be written before; it comes again."""
        service, begun = Service(), Event()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> etree._Element:
            proxy.silence()
            begun.set()
            return element("greetMeResponse", "x" * 30_000_000)

        dispatcher = Dispatcher(connection, uri, service, workers=3).start()
        with Client(other, uri, timeout=PATIENCE) as client:
            future = client.submit(envelope("Ann"))
            assert begun.wait(PATIENCE)
            eventually(lambda: is_stuck(connection), "the answer is stuck")
            began = time.monotonic()
            assert not dispatcher.close(0.5)
            assert time.monotonic() - began < 5
            connection.close(0.5)
            assert time.monotonic() - began < 10
            proxy.speak()
            proxy.cut()
            with Dispatcher(other, uri, greeter()):
                assert text_of(future.result(PATIENCE)) == "Hello Ann"

    def test_close_on_a_silent_network(self, proxy: Proxy, uri: str) -> None:
        """Leave is taken without an answer, within the deadline, even while a large send is stuck."""
        for size in (0, 30_000_000):
            connection = soapjms.connect(proxy.stomp_url)
            client = Client(connection, uri, timeout=PATIENCE)
            proxy.silence()
            with ThreadPoolExecutor(1) as sending:
                stuck = sending.submit(client.send, envelope("a" * size))
                time.sleep(0.2)
                began = time.monotonic()
                connection.close(0.5)
                assert time.monotonic() - began < 5
                with pytest.raises(CallFailedError):
                    stuck.result(PATIENCE)
            client.close()
            proxy.speak()
            proxy.cut()


def is_stuck(connection: Connection) -> bool:
    """Say whether something is to be written over a STOMP connection, and the broker does not read."""
    assert isinstance(connection, StompConnection)
    return connection._current().is_behind


class TestStrategies(OnRealBrokers):
    """What is told by name, and what is refused."""

    def test_names(self, connection: Connection) -> None:
        """What contradicts itself is refused at once, with what would be accepted."""
        fixed = "jms:queue:a?replyToName=b"
        for uri, options, why in (
            ("jms:queue:a", {"replies": "shared"}, "topicReplyToName, which names nothing"),
            (fixed, {"replies": "temporary"}, r"names queue.*b.*'shared' needs one of them"),
            (fixed, {"replies": "exclusive"}, "exclude both"),
            ("jms:queue:a", {"replies": "temporary", "profile": names.CR_2009}, "use 'exclusive'"),
            ("jms:queue:a", {"replies": "own"}, "must be one of temporary, exclusive, shared"),
        ):
            with pytest.raises(soapjms.UsageError, match=why):
                Client(connection, uri, **options)

    def test_exclusive_for_any_edition(self, connection: Connection, other: Connection, uri: str) -> None:
        """A responder may repeat what it likes: the destination says whose the reply is."""
        with (
            Dispatcher(other, uri, greeter(), workers=4),
            Client(connection, uri, replies="exclusive", timeout=PATIENCE) as client,
        ):
            futures = [client.submit(envelope(f"{number}")) for number in range(8)]
            for number, future in enumerate(futures):
                assert text_of(future.result(PATIENCE)) == f"Hello {number}"
            places = {future.result().request.reply_to for future in futures}
            assert 1 < len(places) <= 8
