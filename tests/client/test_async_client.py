"""`AsyncClient` and `connect_async`: calls from asyncio never block its loop, end in time, and leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

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
from soapjms import AsyncClient, CallFailedError, CallTimeoutError, Dispatcher, OutgoingCall, UsageError, connect_async


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

    def test_calls_are_sent_by_the_loop(self, connection: Connection) -> None:
        """But for the first, which needs a destination for its answer, none takes another thread."""
        threads = set[str]()

        class Noting(Wrapped):
            def begin_send(self, *arguments: Any, **options: Any) -> Any:
                found = self.inner.begin_send(*arguments, **options)
                threads.add(threading.current_thread().name)
                return found

        async def calls() -> None:
            async with AsyncClient(Noting(connection), URI, timeout=PATIENCE) as client:
                await client.call(envelope("first"))
                threads.clear()
                await asyncio.gather(*(client.call(envelope("more")) for _ in range(20)))

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

        class Lost(Wrapped):
            is_lost = False

            @property
            def state(self) -> Any:
                return ConnectionState.LOST if self.is_lost else self.inner.state

            def begin_send(self, *arguments: Any, **options: Any) -> Any:
                if self.is_lost:
                    raise UnsentError("it was lost")
                return self.inner.begin_send(*arguments, **options)

            def wait_connected(self, timeout: float | None = None) -> None:
                Event().wait(timeout)
                raise UnsentError("it was lost")

        async def calls() -> None:
            lost = Lost(connection)
            async with AsyncClient(lost, URI, timeout=PATIENCE) as client:
                await client.call(envelope("first"))
                lost.is_lost = True
                began = time.monotonic()
                call = asyncio.ensure_future(client.call(envelope("second"), timeout=0.5))
                await asyncio.sleep(0)
                assert time.monotonic() - began < 0.4
                with pytest.raises(CallFailedError, match="lost"):
                    await call

        with Dispatcher(connection, URI, greeter()):
            asyncio.run(calls())

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

    def test_a_turn_that_comes_too_late(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor is a call sent that has too little of its time left to be answered."""
        monkeypatch.setattr("soapjms.client.async_client.MIN_TIME_SHARE", 0.9)

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
            for late in (client.call, client.send):
                with pytest.raises(UsageError, match="the client is closed"):
                    await late(envelope())
            await client.aclose()

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
