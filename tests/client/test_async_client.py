"""`AsyncClient` and `connect_async`: calls from asyncio never block its loop, end in time, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any
from weakref import ref

import anyio
import pytest
import trio
import uvloop
from calling_kit import (
    NS,
    PATIENCE,
    REAL_BROKERS,
    URI,
    OnEachBroker,
    Wrapped,
    arrivals,
    element,
    envelope,
    eventually,
    fresh,
    greeter,
    text_of,
)
from proxy_kit import Proxy
from real_brokers import RealBroker

import soapjms
from brokers import Connection, ConnectionState, queue
from brokers.embedded import Broker
from brokers.errors import UnknownSchemeError, UnsentError
from soapjms import (
    AsyncClient,
    CallFailedError,
    CallTimeoutError,
    Dispatcher,
    OutgoingCall,
    PingFailedError,
    UsageError,
    connect_async,
)
from soapjms.client import async_client
from soapjms.event_loop import result_of
from soapjms.observing import Begun, Ended, Observation, Observer


@pytest.fixture
def broker() -> Broker:
    return Broker(fresh("asyncio"))


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with broker.connect() as connection:
        yield connection


def holding(begun: Event, go_on: Event) -> soapjms.Service:
    """Make a greeter that lets the one called `hold` wait."""
    service = soapjms.Service()

    @service.operation(f"{{{NS}}}greetMe")
    def greet(request: soapjms.Request) -> Any:
        if request.element.text == "hold":
            begun.set()
            assert go_on.wait(PATIENCE)
        return element("greetMeResponse", f"Hello {request.element.text}")

    return service


def noting(served: list[str | None]) -> soapjms.Service:
    """Make a service that notes the texts of its requests."""
    service = soapjms.Service()

    @service.operation(f"{{{NS}}}greetMe")
    def greet(request: soapjms.Request) -> Any:
        served.append(request.element.text)
        return element("greetMeResponse")

    return service


class Diary(Observer, Observation):
    """Notes how calls end."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def begun(self, begun: Begun) -> Observation:
        return self

    def ended(self, ended: Ended) -> None:
        self.outcomes.append(ended.outcome)


class Lost(Wrapped):
    """A connection that is lost from `lose` to `restore`. `waiting` says how many wait for it."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.waiting = 0
        self._is_up = Event()
        self.restore = self._is_up.set
        self.lose = self._is_up.clear
        self.restore()

    @property
    def state(self) -> Any:
        return self.inner.state if self._is_up.is_set() else ConnectionState.LOST

    def send(self, *arguments: Any, **options: Any) -> Any:
        self.wait_connected(0)
        return self.inner.send(*arguments, **options)

    def wait_connected(self, timeout: float | None = None) -> None:
        self.waiting += 1
        try:
            if not self._is_up.wait(timeout):
                raise UnsentError("it was lost")
        finally:
            self.waiting -= 1


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


class TestCalls(OnEachBroker):
    """Calls and one-way messages."""

    def test_many(self, url: str, other: Connection, uri: str) -> None:
        """Each gets its own answer; there are never more under way than allowed."""
        most = 0

        async def calls() -> list[str | None]:
            nonlocal most

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, client.under_way)
                    await asyncio.sleep(0)

            async with connect_async(url) as connection, AsyncClient(connection, uri, max_calls=7) as client:
                watcher = asyncio.ensure_future(watch())
                found = await asyncio.gather(
                    *(client.call(envelope(str(each)), timeout=PATIENCE) for each in range(60))
                )
                watcher.cancel()
                assert client.endpoint.properties is not None
                assert 0 < await client.ping() < PATIENCE
                return [text_of(each) for each in found]

        with Dispatcher(other, uri, greeter(), workers=8):
            assert asyncio.run(calls()) == [f"Hello {each}" for each in range(60)]
        assert 1 < most <= 7

    def test_one_way(self, url: str, other: Connection, uri: str, name: str) -> None:
        """It returns when the broker has the message."""

        async def send() -> None:
            async with connect_async(url) as connection, AsyncClient(connection, uri) as client:
                await client.send(envelope("there"), timeout=PATIENCE)

        with arrivals(other, queue(name)) as found:
            asyncio.run(send())
            assert b"there" in bytes(found.next().body or b"")

    def test_cancelled(self, url: str, other: Connection, uri: str) -> None:
        """A cancelled task drops its call, and asyncio's own timeout too; the next call is answered."""
        begun, go_on = Event(), Event()

        async def calls() -> None:
            async with connect_async(url) as connection, AsyncClient(connection, uri, timeout=PATIENCE) as client:
                task = asyncio.ensure_future(client.call(envelope("hold")))
                await asyncio.to_thread(begun.wait, PATIENCE)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert client.under_way == 0
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await client.call(envelope("hold"))
                assert client.under_way == 0
                go_on.set()
                assert text_of(await client.call(envelope("Ann"))) == "Hello Ann"

        with Dispatcher(other, uri, holding(begun, go_on), workers=4):
            asyncio.run(calls())

    def test_in_time(self, url: str, uri: str) -> None:
        """A call that nobody answers ends when its time is over, with the trace of how far it came."""

        async def call() -> CallTimeoutError:
            async with connect_async(url) as connection, AsyncClient(connection, uri) as client:
                for _ in range(2):  # the first is begun on a thread, the second by the loop
                    with pytest.raises(CallTimeoutError) as caught:
                        await client.call(envelope(), timeout=0.2)
                return caught.value

        assert "the broker confirmed the message" in f"{asyncio.run(call())}"


class TestLoop:
    """The event loop is not blocked."""

    @pytest.mark.parametrize("expires", ["timeout", None])
    def test_calls_are_sent_by_the_loop(self, connection: Connection, expires: Any) -> None:
        """But for the first, which needs a destination for its answer, none takes another thread."""
        threads = set[str]()

        class Noting(Wrapped):
            def begin_send(self, *arguments: Any, **options: Any) -> Any:
                found = self.inner.begin_send(*arguments, **options)
                threads.add(threading.current_thread().name)
                return found

        async def calls() -> None:
            async with AsyncClient(Noting(connection), URI, timeout=PATIENCE) as client:
                await client.call(envelope("first"), expires=expires)
                threads.clear()
                await asyncio.gather(*(client.call(envelope("more"), expires=expires) for _ in range(20)))

        with Dispatcher(connection, URI, greeter()):
            asyncio.run(calls())
        assert threads == {threading.current_thread().name}

    @pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.broker) for name in REAL_BROKERS])
    @pytest.mark.parametrize("wire", ["stomp", "amqp"])
    def test_a_broker_that_stops_reading(self, name: str, wire: str, request: pytest.FixtureRequest) -> None:
        """Calls end in their time, and the loop goes on meanwhile; then they are answered again."""
        real: RealBroker = request.getfixturevalue(name)
        url, uri = getattr(real, f"{wire}_url"), f"jms:queue:{fresh()}"
        large = envelope("x" * 4_000_000)

        async def calls(proxy: Proxy) -> float:
            async with (
                connect_async(getattr(proxy, f"{wire}_url")) as connection,
                AsyncClient(connection, uri, timeout=1.0) as client,
            ):
                assert text_of(await client.call(envelope("before"), timeout=PATIENCE)) == "Hello before"
                longest, last = 0.0, time.monotonic()
                proxy.silence()
                try:
                    waiting = asyncio.gather(*(client.call(large) for _ in range(12)), return_exceptions=True)
                    while not waiting.done():
                        await asyncio.sleep(0.01)
                        longest, last = max(longest, time.monotonic() - last), time.monotonic()
                finally:
                    proxy.speak()
                assert {type(each) for each in await waiting} <= {CallTimeoutError, CallFailedError}
                return longest

        with (
            soapjms.connect(url) as other,
            Dispatcher(other, uri, greeter()),
            Proxy(real.host, getattr(real.ports, wire)) as proxy,
        ):
            assert asyncio.run(calls(proxy)) < 1.0, "building twelve large requests takes a part of it"

    def test_a_lost_connection(self, connection: Connection) -> None:
        """The loop does not wait for it."""

        async def calls() -> None:
            lost = Lost(connection)
            async with AsyncClient(lost, URI, timeout=PATIENCE) as client:
                await client.call(envelope("first"))
                lost.lose()
                call, turns = asyncio.ensure_future(client.call(envelope("second"), timeout=0.5)), 0
                while not call.done():
                    await asyncio.sleep(0.01)
                    turns += 1
                assert turns > 2
                with pytest.raises(CallFailedError, match="lost"):
                    await call

        with Dispatcher(connection, URI, greeter()):
            asyncio.run(calls())

    @pytest.mark.parametrize("kind", ["call", "send"])
    def test_cancelled_while_the_connection_is_lost(self, connection: Connection, kind: str) -> None:
        """A call or one-way message that is cancelled before it was sent is never sent."""
        served, diary = list[str | None](), Diary()

        async def calls() -> None:
            lost = Lost(connection)
            async with AsyncClient(lost, URI, timeout=PATIENCE, observer=diary) as client:
                await client.call(envelope("first"))
                lost.lose()
                task = asyncio.ensure_future(getattr(client, kind)(envelope("cancelled")))
                await until(lambda: lost.waiting)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                lost.restore()
                await until(lambda: not lost.waiting)
                await client.call(envelope("last"))

        with Dispatcher(connection, URI, noting(served)):
            asyncio.run(calls())
        assert served == ["first", "last"]
        if kind == "call":
            assert diary.outcomes == ["response", "cancelled", "response"]

    def test_cancelled_before_the_broker_takes_it(self, connection: Connection) -> None:
        """A message that an adapter holds for a broker that takes none is withdrawn when its call is cancelled."""
        given_up = list[bool]()

        class Holding(Wrapped):
            def begin_send(self, message: Any, on_sent: Any, **options: Any) -> Any:
                return lambda: given_up.append(True) or True  # type: ignore[func-returns-value]

        async def calls() -> None:
            async with AsyncClient(Holding(connection), URI, timeout=PATIENCE) as client:
                for _ in range(2):  # the first is begun on a thread, the second by the loop
                    task = asyncio.ensure_future(client.call(envelope()))
                    await until(lambda: client.under_way)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task

        asyncio.run(calls())
        eventually(lambda: len(given_up) >= 2, "both were given up")

    def test_a_call_that_nobody_sends_in_time(self, connection: Connection) -> None:
        """Observers hear that it ended with its time, not that it was cancelled."""
        diary = Diary()

        async def calls() -> None:
            lost = Lost(connection)
            lost.lose()
            async with AsyncClient(lost, URI, observer=diary) as client:
                with pytest.raises(CallFailedError):
                    await client.call(envelope(), timeout=0.05)

        asyncio.run(calls())
        assert diary.outcomes == ["failed"]

    def test_no_turn(self, connection: Connection) -> None:
        """A call that gets no turn in its time says that nothing was sent."""

        async def calls() -> None:
            async with AsyncClient(connection, URI, max_calls=1) as client:
                first = asyncio.ensure_future(client.call(envelope(), timeout=PATIENCE))
                await until(lambda: client.under_way)
                with pytest.raises(CallTimeoutError, match="nothing was sent: earlier messages took all") as caught:
                    await client.call(envelope(), timeout=0.05)
                assert caught.value.is_known
                first.cancel()

        asyncio.run(calls())

    def test_no_thread_is_free(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """What no thread begins to send in its time ends then and was not sent; a ping does not wait for the others."""
        monkeypatch.setattr(async_client, "MAX_SENDING_THREADS", 1)
        monkeypatch.setattr(async_client, "GIVE_UP_SECONDS", 2 * PATIENCE)

        async def calls() -> None:
            lost = Lost(connection)
            lost.lose()
            async with AsyncClient(lost, URI, timeout=PATIENCE) as client, asyncio.timeout(PATIENCE / 2):
                first = asyncio.ensure_future(client.call(envelope()))
                await until(lambda: lost.waiting)
                for late in (client.call, client.send):
                    with pytest.raises(CallTimeoutError, match="nothing was sent: earlier messages took all") as caught:
                        await late(envelope(), timeout=0.05)
                    assert caught.value.is_known
                    with pytest.raises(CallTimeoutError, match="nothing was sent"):
                        await late(envelope(), timeout=0.05, retry_of=caught.value)
                with pytest.raises(PingFailedError, match="it was lost"):
                    await client.ping(timeout=0.05)
                first.cancel()

        asyncio.run(calls())

    def test_no_destination_for_the_reply(self, connection: Connection) -> None:
        """A first call whose reply destination the broker does not make was not sent, as with the plain client."""
        go_on = Event()

        class Silent(Wrapped):
            def _consume(self, options: Any, on_delivery: Any) -> Any:
                assert go_on.wait(PATIENCE)
                return super()._consume(options, on_delivery)

        async def calls() -> None:
            async with AsyncClient(Silent(connection), URI) as client:
                with pytest.raises(CallFailedError, match="did not create a reply destination in time") as caught:
                    await client.call(envelope(), timeout=0.05)
                assert caught.value.is_known
                go_on.set()

        asyncio.run(calls())

    @pytest.mark.parametrize("kind", ["call", "send"])
    def test_a_thread_that_does_not_give_up(
        self, connection: Connection, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The loop does, some time later: whether the message was sent is not known, and a call can be sent again."""
        monkeypatch.setattr(async_client, "GIVE_UP_SECONDS", 0.05)
        go_on = Event()

        class Slow(Wrapped):
            def send(self, *arguments: Any, **options: Any) -> Any:
                assert go_on.wait(PATIENCE)
                return self.inner.send(*arguments, **options)

        async def calls() -> None:
            async with AsyncClient(Slow(connection), URI) as client:
                with pytest.raises(CallTimeoutError, match=r"the broker confirmed nothing within 0\.5 s") as caught:
                    await getattr(client, kind)(envelope(), timeout=0.5)
                assert not caught.value.is_known
                go_on.set()
                if kind == "call":
                    again = client.call(envelope(), timeout=PATIENCE, retry_of=caught.value)
                    assert text_of(await again) == "Hello World"

        with Dispatcher(connection, URI, greeter()):
            asyncio.run(calls())

    @pytest.mark.parametrize("kind", ["call", "send"])
    def test_a_retry_that_is_not_sent(self, connection: Connection, kind: str) -> None:
        """Its error still tells which request it was: the first try may have reached the service."""

        async def calls() -> None:
            async with AsyncClient(connection, URI, max_calls=1) as client:
                with pytest.raises(CallTimeoutError) as first:
                    await client.call(envelope(), timeout=0.05)
                other = asyncio.ensure_future(client.call(envelope(), timeout=PATIENCE))
                await until(lambda: client.under_way)
                with pytest.raises(CallTimeoutError, match="nothing was sent") as second:
                    await getattr(client, kind)(envelope(), timeout=0.05, retry_of=first.value)
                assert second.value.retry is first.value.retry is not None
                other.cancel()

        asyncio.run(calls())

    def test_observers_are_told_of_what_gets_no_turn(self, connection: Connection) -> None:
        """Calls and one-way messages that get no turn are counted once, as failures that their callers see."""
        diary = Diary()

        async def calls() -> None:
            async with AsyncClient(connection, URI, max_calls=1, observer=diary) as client:
                first = asyncio.ensure_future(client.call(envelope(), timeout=PATIENCE))
                await until(lambda: client.under_way)
                for late in (client.call, client.send):
                    with pytest.raises(CallTimeoutError, match="earlier messages took all"):
                        await late(envelope(), timeout=0.05)
                first.cancel()
                await asyncio.wait([first])

        asyncio.run(calls())
        assert diary.outcomes == ["timeout", "failed", "cancelled"]

    def test_a_turn_that_comes_too_late(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor is a call sent that has too little of its time left to be answered."""
        monkeypatch.setattr(async_client, "MIN_TIME_SHARE", 0.9)

        async def calls() -> list[Any]:
            async with AsyncClient(connection, URI, max_calls=1) as client:
                both = [client.call(envelope(), timeout=seconds) for seconds in (0.4, 1.0)]
                return await asyncio.gather(*both, return_exceptions=True)

        first, second = asyncio.run(calls())
        assert not first.is_known
        assert second.is_known
        assert "nothing was sent: earlier messages took nearly all the time" in str(second)

    def test_closed(self, connection: Connection) -> None:
        """`aclose` ends the calls under way; later ones are refused."""

        async def calls() -> None:
            client = AsyncClient(connection, URI)
            call = asyncio.ensure_future(client.call(envelope(), timeout=PATIENCE))
            await until(lambda: client.under_way)
            await client.aclose()
            with pytest.raises(CallFailedError, match="the client was closed"):
                await call
            for late in (partial(client.call, envelope()), partial(client.send, envelope()), client.ping):
                with pytest.raises(UsageError, match="the client is closed"):
                    await late()
            await client.aclose()

        asyncio.run(calls())

    @pytest.mark.parametrize("kind", ["call", "send"])
    def test_closed_while_others_wait(self, connection: Connection, kind: str) -> None:
        """`aclose` ends what waits for its turn at once, even if what has the turn goes on: nothing was sent."""
        begun, go_on = Event(), Event()

        class Slow(Wrapped):
            def send(self, *arguments: Any, **options: Any) -> Any:
                begun.set()
                assert go_on.wait(PATIENCE)
                return self.inner.send(*arguments, **options)

        async def calls() -> None:
            client = AsyncClient(Slow(connection), URI, max_calls=1, timeout=PATIENCE)
            first = asyncio.ensure_future(client.send(envelope("first")))
            await asyncio.to_thread(begun.wait, PATIENCE)
            waiting = [asyncio.ensure_future(getattr(client, kind)(envelope())) for _ in range(3)]
            await asyncio.sleep(0)
            await client.aclose()
            for each in waiting:
                with pytest.raises(CallFailedError, match="nothing was sent: the client was closed") as caught:
                    await each
                assert caught.value.is_known
            assert not first.done()
            go_on.set()
            await first

        asyncio.run(calls())

    def test_no_thread(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no thread can be started nothing was sent, and no ping either."""

        def refuse(self: Any) -> None:
            raise RuntimeError("can't start new thread")

        async def calls() -> None:
            async with AsyncClient(connection, URI) as client:
                with monkeypatch.context() as patch:
                    patch.setattr("brokers.threads.thread.Thread.start", refuse)
                    for late in (partial(client.call, envelope()), partial(client.send, envelope())):
                        with pytest.raises(CallFailedError, match="nothing was sent: can't start new thread"):
                            await late()
                    with pytest.raises(PingFailedError, match="can't start new thread"):
                        await client.ping()

        asyncio.run(calls())


class TestMiddleware:
    """`async def` functions around each call."""

    def test_around(self, connection: Connection) -> None:
        """They see calls and one-way messages, and may change them."""
        seen = list[str]()

        async def note(call: OutgoingCall, call_next: Any) -> Any:
            seen.append("one-way" if call.one_way else "call")
            call.element.text = "Eve"  # type: ignore[union-attr]
            return await call_next(call)

        async def calls() -> None:
            async with AsyncClient(connection, URI, middleware=[note], timeout=PATIENCE) as client:
                assert text_of(await client.call(envelope("Ann"))) == "Hello Eve"
                await client.send(envelope("Ann"))

        with Dispatcher(connection, URI, greeter()):
            asyncio.run(calls())
        assert seen == ["call", "one-way"]

    def test_plain(self, connection: Connection) -> None:
        """A plain function, which would block the loop, is refused."""
        with pytest.raises(UsageError, match="middleware must be async def functions here"):
            AsyncClient(connection, URI, middleware=[lambda call, call_next: call_next(call)])

    @pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
    def test_max_calls(self, connection: Connection, wrong: Any) -> None:
        """What is no number of calls is refused."""
        with pytest.raises(UsageError, match="max_calls must be"):
            AsyncClient(connection, URI, max_calls=wrong)

    def test_wsdl(self, connection: Connection) -> None:
        """The port of a WSDL."""
        client = AsyncClient.from_wsdl(connection, Path("examples/greeter.wsdl"), "GreeterPort")
        assert client.endpoint.uri.destination == "greeter"
        assert repr(client).startswith("<soapjms.AsyncClient of <soapjms.Client of queue:greeter")


class TestConnecting:
    """`connect_async`."""

    def test_errors(self) -> None:
        """They are those of `connect`."""

        async def connect() -> None:
            async with connect_async("nonsense://x"):
                pass

        with pytest.raises(UnknownSchemeError, match="nonsense"):
            asyncio.run(connect())

    def test_cancelled_while_it_connects(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """The connection that comes late is closed."""
        begun, go_on, made = Event(), Event(), list[Connection]()

        def slowly(url: str, **options: Any) -> Connection:
            begun.set()
            assert go_on.wait(PATIENCE)
            made.append(broker.connect())
            return made[0]

        monkeypatch.setattr("soapjms.event_loop.connect", slowly)

        async def connect() -> None:
            async with connect_async("embedded:"):
                pass

        async def cancel() -> None:
            task = asyncio.ensure_future(connect())
            await asyncio.to_thread(begun.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        go_on.set()
        eventually(lambda: made and made[0].state is ConnectionState.CLOSED, "it was closed")

    def test_a_result_that_comes_with_the_cancellation(self) -> None:
        """What is done with a result that nobody takes, such as closing a connection, does not block the event loop."""
        promised, threads, is_done = Future[str](), list[Thread](), Event()

        def forget(result: str) -> None:
            threads.append(threading.current_thread())
            is_done.set()

        async def cancel() -> None:
            task = asyncio.ensure_future(result_of(promised, forget))
            await asyncio.sleep(0)
            promised.set_result("late")
            await asyncio.sleep(0)  # the loop has the result, and the task does not
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        assert is_done.wait(PATIENCE)
        assert threads != [threading.current_thread()]


class TestLoops:
    """Other event loops."""

    def test_uvloop(self, connection: Connection) -> None:
        """On uvloop all is the same."""

        async def call() -> str | None:
            async with AsyncClient(connection, URI, timeout=PATIENCE) as client:
                await client.call(envelope("first"))
                return text_of(await client.call(envelope("uvloop")))

        with Dispatcher(connection, URI, greeter()), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(call()) == "Hello uvloop"

    def test_anyio(self, connection: Connection) -> None:
        """Tasks of anyio, on asyncio, are cancelled as asyncio's own are."""

        async def calls() -> list[str | None]:
            found = list[str | None]()

            async def call(name: str) -> None:
                found.append(text_of(await client.call(envelope(name))))

            async with AsyncClient(connection, URI, timeout=PATIENCE) as client:
                with anyio.move_on_after(0.05) as scope:
                    await client.call(envelope("nobody answers"))
                assert scope.cancelled_caught
                assert client.under_way == 0
                with Dispatcher(connection, URI, greeter()):
                    async with anyio.create_task_group() as group:
                        group.start_soon(call, "Ann")
                        group.start_soon(call, "Bob")
            return sorted(found, key=str)

        assert anyio.run(calls) == ["Hello Ann", "Hello Bob"]

    def test_trio(self, connection: Connection) -> None:
        """Under trio each says that it runs on asyncio, and what to do."""

        async def entered() -> None:
            async with AsyncClient(connection, URI):
                pass

        async def called() -> None:
            await AsyncClient(connection, URI).call(envelope())

        async def connected() -> None:
            async with connect_async("embedded:"):
                pass

        for wrong in (entered, called, connected):
            with pytest.raises(UsageError, match=r"runs on asyncio.*Under trio, call soapjms.Client in trio.to_thread"):
                trio.run(wrong)

    def test_one_client_on_one_loop_after_the_other(self, connection: Connection) -> None:
        """A client outlives the loop it was first used on."""
        client = AsyncClient(connection, URI, max_calls=1, timeout=PATIENCE)

        async def calls() -> list[str | None]:
            return [text_of(each) for each in await asyncio.gather(*(client.call(envelope("x")) for _ in range(3)))]

        with Dispatcher(connection, URI, greeter()):
            assert asyncio.run(calls()) == asyncio.run(calls()) == ["Hello x"] * 3
        asyncio.run(client.aclose())

    def test_loops_are_forgotten(self, connection: Connection) -> None:
        """A loop that has ended is kept by nobody, also if its calls waited for a turn."""
        loops = list[ref[asyncio.AbstractEventLoop]]()
        client = AsyncClient(connection, URI, max_calls=1, timeout=PATIENCE)

        async def calls() -> None:
            loops.append(ref(asyncio.get_running_loop()))
            await asyncio.gather(*(client.call(envelope("x")) for _ in range(3)))

        with Dispatcher(connection, URI, greeter()):
            for _ in range(3):
                asyncio.run(calls())
        asyncio.run(client.aclose())
        gc.collect()
        assert [loop() for loop in loops] == [None] * 3
