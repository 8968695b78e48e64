"""`AsyncDispatcher`: `async def` functions run on the loop of the program, and its end is orderly."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import trio
from calling_kit import NS, PATIENCE, URI, OnEachBroker, Peers, element, envelope, eventually, text_of

import soapjms
from brokers import Connection
from soapjms import (
    AsyncClient,
    AsyncDispatcher,
    Client,
    Dispatcher,
    Policy,
    Request,
    Service,
    UsageError,
    connect_async,
)


def answer(request: Request) -> Any:
    return element("greetMeResponse", f"Hello {request.element.text}")


def events(caplog: pytest.LogCaptureFixture) -> set[str]:
    """Return the names of the events that were logged."""
    return {getattr(each, "event", "") for each in caplog.records}


def sleeper(first: float = PATIENCE) -> tuple[Service, list[int]]:
    """Make a service whose function sleeps when it is first run; the list has an item for each run."""
    service, runs = Service(), list[int]()

    @service.operation(f"{{{NS}}}greetMe")
    async def greet(request: Request) -> Any:
        runs.append(1)
        await asyncio.sleep(first if len(runs) == 1 else 0)
        return answer(request)

    return service, runs


class NotingLoop(asyncio.SelectorEventLoop):
    """A loop that tells when another thread has given it something to do while it did not run."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = Event()

    def call_soon_threadsafe(self, *arguments: Any, **options: Any) -> Any:
        is_running = self.is_running()
        handle = super().call_soon_threadsafe(*arguments, **options)
        if not is_running:
            self.is_asked.set()
        return handle


def close_under_way(loop: asyncio.AbstractEventLoop, runs: list[int]) -> None:
    """Close a loop once a function has begun."""

    async def begun() -> None:
        while not runs:
            await asyncio.sleep(0)

    loop.run_until_complete(begun())
    loop.close()


def close_before_its_turn(loop: asyncio.AbstractEventLoop, runs: list[int]) -> None:
    """Close a loop that has not looked at a request yet."""
    loop.close()


def close_before_its_first_step(loop: asyncio.AbstractEventLoop, runs: list[int]) -> None:
    """Close a loop, as `asyncio.run` does, in the turn after which a function would begin."""
    loop.call_soon(loop.stop)
    loop.run_forever()
    (task,) = asyncio.all_tasks(loop)
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


class TestServing(OnEachBroker):
    """A program that calls and serves on one loop."""

    def test_on_the_loop_of_the_program(self, url: str, uri: str) -> None:
        """So a function may use what belongs to it, such as a queue of asyncio; no more than `workers` at a time."""
        service, most, at_work, loops = Service(), 0, 0, set[object]()

        async def calls() -> list[str | None]:
            turns = asyncio.Queue[int]()

            @service.operation(f"{{{NS}}}greetMe")
            async def greet(request: Request) -> Any:
                nonlocal most, at_work
                at_work += 1
                most = max(most, at_work)
                loops.add(asyncio.get_running_loop())
                await turns.get()
                at_work -= 1
                return answer(request)

            for number in range(12):
                turns.put_nowait(number)
            async with (
                connect_async(url) as connection,
                AsyncDispatcher(connection, uri, service, workers=3) as dispatcher,
                AsyncClient(connection, uri, timeout=PATIENCE) as client,
            ):
                health = await dispatcher.health()
                assert health.ready, health
                found = await asyncio.gather(*(client.call(envelope(str(each))) for each in range(12)))
                assert loops == {asyncio.get_running_loop()}
                assert await dispatcher.aclose(), "all were finished"
                return [text_of(each) for each in found]

        assert asyncio.run(calls()) == [f"Hello {each}" for each in range(12)]
        assert 1 <= most <= 3

    def test_cancelled_at_the_end(self, url: str, uri: str, caplog: pytest.LogCaptureFixture) -> None:
        """A function that takes too long is cancelled, and its request is left to the next dispatcher."""
        service, begun, ended = Service(), list[str](), list[str]()

        @service.operation(f"{{{NS}}}greetMe")
        async def greet(request: Request) -> Any:
            begun.append(request.element.text or "")
            try:
                await asyncio.sleep(PATIENCE if len(begun) == 1 else 0)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return answer(request)

        async def serve(client: Client) -> Any:
            async with connect_async(url) as connection:
                dispatcher = await AsyncDispatcher(connection, uri, service, workers=1).start()
                future = client.submit(envelope("Ann"), timeout=PATIENCE)
                await asyncio.to_thread(eventually, lambda: begun, "it is run")
                assert not await dispatcher.aclose(0.1)
                assert ended == ["cancelled"]
            async with connect_async(url) as connection, AsyncDispatcher(connection, uri, service, workers=1):
                return text_of(await future)

        with soapjms.connect(url) as other, Client(other, uri) as client:
            assert asyncio.run(serve(client)) == "Hello Ann"
        assert begun == ["Ann", "Ann"]
        assert "operation.failed" not in {getattr(each, "event", "") for each in caplog.records}


class TestFunctions(Peers):
    """What functions see, and how they fail."""

    def test_plain_functions_on_threads(self, connection: Connection) -> None:
        """They may block; the loop goes on."""
        service, names, go_on = Service(), set[str](), Event()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> Any:
            names.add(threading.current_thread().name)
            assert go_on.wait(PATIENCE)
            return answer(request)

        async def call() -> str | None:
            async with AsyncDispatcher(connection, URI, service), AsyncClient(connection, URI) as client:
                task = asyncio.ensure_future(client.call(envelope("Ann"), timeout=PATIENCE))
                while not names:
                    await asyncio.sleep(0.002)
                go_on.set()
                return text_of(await task)

        assert asyncio.run(call()) == "Hello Ann"
        assert threading.current_thread().name not in names

    def test_context(self, connection: Connection) -> None:
        """What middleware sets in its context reaches the function."""
        service, mark = Service(), ContextVar("mark", default="")

        def marked(request: Request, call_next: Any) -> Any:
            mark.set("seen")
            return call_next(request)

        @service.operation(f"{{{NS}}}greetMe")
        async def greet(request: Request) -> Any:
            return element("greetMeResponse", mark.get())

        async def call() -> str | None:
            dispatcher = AsyncDispatcher(connection, URI, service, middleware=[marked])
            async with dispatcher, AsyncClient(connection, URI, timeout=PATIENCE) as client:
                return text_of(await client.call(envelope()))

        assert asyncio.run(call()) == "seen"

    def test_failure(self, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """It is tried again by the policy, then answered with a fault, and logged with the function's own frame."""
        service, runs = Service(policy=Policy(retries=1, pause=0.01)), list[int]()

        @service.operation(f"{{{NS}}}greetMe")
        async def greet(request: Request) -> Any:
            runs.append(1)
            await asyncio.sleep(0)
            raise ConnectionError("the database is away")

        async def call() -> Any:
            async with AsyncDispatcher(connection, URI, service), AsyncClient(connection, URI) as client:
                return (await client.call(envelope(), timeout=PATIENCE)).fault

        with caplog.at_level(logging.ERROR):
            fault = asyncio.run(call())
        assert fault is not None
        assert "database" not in fault.reason
        assert len(runs) == 2
        assert "in greet" in caplog.text

    def test_store(self, connection: Connection, tmp_path: Path) -> None:
        """A cancelled request is not in the store as finished: it is run again, and answered."""
        service, runs = sleeper()

        async def serve(client: Client) -> str | None:
            store = tmp_path / "requests.db"
            dispatcher = await AsyncDispatcher(connection, URI, service, store=store).start()
            future = client.submit(envelope("Ann"), timeout=PATIENCE)
            await asyncio.to_thread(eventually, lambda: runs, "it is run")
            assert not await dispatcher.aclose(0.1)
            async with AsyncDispatcher(connection, URI, service, store=store):
                return text_of(await future)

        with Client(connection, URI) as client:
            assert asyncio.run(serve(client)) == "Hello Ann"
        assert len(runs) == 2

    def test_close_cancelled(self, connection: Connection) -> None:
        """If `aclose` itself is cancelled, the functions are too: their requests are left to the next dispatcher."""
        service, runs = sleeper()

        async def serve(client: Client) -> str | None:
            dispatcher = await AsyncDispatcher(connection, URI, service).start()
            future = client.submit(envelope("Ann"), timeout=PATIENCE)
            await asyncio.to_thread(eventually, lambda: runs, "it is run")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await dispatcher.aclose(PATIENCE)
            async with AsyncDispatcher(connection, URI, service):
                return text_of(await asyncio.wrap_future(future))

        with Client(connection, URI) as client:
            assert asyncio.run(serve(client)) == "Hello Ann"
        assert len(runs) == 2

    def test_loop_ends(self, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """A program whose loop ends without `aclose` leaves its requests to the next dispatcher."""
        service, runs = sleeper()

        async def serve(client: Client) -> tuple[AsyncDispatcher, Any]:
            dispatcher = await AsyncDispatcher(connection, URI, service, workers=1).start()
            future = client.submit(envelope("Ann"), timeout=PATIENCE)
            await asyncio.to_thread(eventually, lambda: runs, "it is run")
            return dispatcher, future

        with Client(connection, URI) as client:
            dispatcher, future = asyncio.run(serve(client))
            eventually(lambda: "dispatcher.without_loop" in events(caplog), "it is noticed")
            with Dispatcher(connection, URI, service):
                assert text_of(future.result(PATIENCE)) == "Hello Ann"
            assert dispatcher.dispatcher.close(PATIENCE)
        assert len(runs) == 2

    def test_loop_ends_slowly(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """So does one whose loop waits for a thread of its executor: for 20 s, by the clock that runs faster here."""
        monkeypatch.setattr("soapjms.service.event_loop.monotonic", lambda: time.monotonic() * 100)
        service, runs = sleeper()

        async def serve(client: Client) -> Any:
            await AsyncDispatcher(connection, URI, service, workers=1).start()
            future = client.submit(envelope("Ann"), timeout=PATIENCE)
            await asyncio.to_thread(eventually, lambda: runs, "it is run")
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.2)
            return future

        with Client(connection, URI) as client:
            future = asyncio.run(serve(client))
            with Dispatcher(connection, URI, service):
                assert text_of(future.result(PATIENCE)) == "Hello Ann"
        assert len(runs) == 2

    def test_loop_ends_while_a_request_comes(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """So does one that gets a request while its loop, whose tasks are cancelled, waits for its executor."""
        monkeypatch.setattr("soapjms.service.event_loop.LOOP_POLL_SECONDS", 0.02)
        (service, runs), is_cancelled, futures = sleeper(), Event(), list[Any]()

        async def until_cancelled() -> None:
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                is_cancelled.set()

        async def serve(client: Client) -> None:
            def call() -> None:
                assert is_cancelled.wait(PATIENCE)
                futures.append(client.submit(envelope("Ann"), timeout=PATIENCE))
                eventually(lambda: runs, "it is run")

            await AsyncDispatcher(connection, URI, service, workers=1).start()
            asyncio.get_running_loop().run_in_executor(None, call)
            task = asyncio.create_task(until_cancelled())
            await asyncio.sleep(0)
            assert not task.done()

        with Client(connection, URI) as client:
            asyncio.run(serve(client))
            with Dispatcher(connection, URI, service):
                assert text_of(futures[0].result(PATIENCE)) == "Hello Ann"
        assert len(runs) == 2

    @pytest.mark.parametrize(
        ("close", "most"), [(close_under_way, 2), (close_before_its_turn, 1), (close_before_its_first_step, 1)]
    )
    def test_loop_is_closed(
        self,
        connection: Connection,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        close: Callable[[asyncio.AbstractEventLoop, list[int]], None],
        most: int,
    ) -> None:
        """So does one whose loop is closed without more ado, whatever has become of a request by then."""
        monkeypatch.setattr("soapjms.service.event_loop.LOOP_POLL_SECONDS", 0.02)
        service, runs = sleeper(PATIENCE if most > 1 else 0)
        loop = NotingLoop()
        dispatcher = AsyncDispatcher(connection, URI, service, workers=1)
        loop.run_until_complete(dispatcher.start())
        with Client(connection, URI) as client:
            future = client.submit(envelope("Ann"), timeout=PATIENCE)
            assert loop.is_asked.wait(PATIENCE)
            close(loop, runs)
            eventually(lambda: "dispatcher.without_loop" in events(caplog), "it is noticed")
            with Dispatcher(connection, URI, service):
                assert text_of(future.result(PATIENCE)) == "Hello Ann"
            assert dispatcher.dispatcher.close(PATIENCE)
        assert len(runs) == most

    def test_loop_has_ended(self, connection: Connection) -> None:
        """So does one whose loop has ended before a request comes."""
        service, runs = sleeper(0)

        async def serve() -> AsyncDispatcher:
            return await AsyncDispatcher(connection, URI, service, workers=1).start()

        with Client(connection, URI) as client:
            dispatcher = asyncio.run(serve())
            future = client.submit(envelope("Ann"), timeout=PATIENCE)
            eventually(lambda: dispatcher.dispatcher.subscriptions[0] == 0, "it closes")
            with Dispatcher(connection, URI, service):
                assert text_of(future.result(PATIENCE)) == "Hello Ann"
            assert dispatcher.dispatcher.close(PATIENCE)
        assert len(runs) == 1

    def test_slow_to_clean_up(
        self, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A function that does not end when it is cancelled does not hold up `aclose`."""
        monkeypatch.setattr("soapjms.service.event_loop.CANCEL_SECONDS", 0.05)
        service, runs, go_on = Service(), list[int](), asyncio.Event()

        @service.operation(f"{{{NS}}}greetMe")
        async def greet(request: Request) -> Any:
            runs.append(1)
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                await go_on.wait()

        async def serve() -> None:
            dispatcher = await AsyncDispatcher(connection, URI, service).start()
            with Client(connection, URI) as client:
                future = client.submit(envelope("Ann"), timeout=PATIENCE)
                await asyncio.to_thread(eventually, lambda: runs, "it is run")
                assert not await asyncio.wait_for(dispatcher.aclose(0.05), PATIENCE / 2)
                future.cancel()
            go_on.set()

        asyncio.run(serve())
        assert "1 async functions were cancelled and have not ended yet" in caplog.text

    def test_cancels_itself(self, connection: Connection) -> None:
        """A function that is cancelled by something else has failed; its caller is told."""
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        async def greet(request: Request) -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(PATIENCE)

        async def call() -> Any:
            async with AsyncDispatcher(connection, URI, service), AsyncClient(connection, URI) as client:
                return (await client.call(envelope(), timeout=PATIENCE)).fault

        assert asyncio.run(call()) is not None

    def test_own_loop_as_before(self, connection: Connection, client: Client) -> None:
        """A plain dispatcher runs the same service afterwards, on a loop of the service's own."""
        service, loops = Service(), list[object]()

        @service.operation(f"{{{NS}}}greetMe")
        async def greet(request: Request) -> Any:
            loops.append(asyncio.get_running_loop())
            return answer(request)

        async def call() -> None:
            async with AsyncDispatcher(connection, URI, service), AsyncClient(connection, URI) as client:
                await client.call(envelope(), timeout=PATIENCE)
                assert loops == [asyncio.get_running_loop()]

        asyncio.run(call())
        with Dispatcher(connection, URI, service):
            assert text_of(client.call(envelope("Ann"), timeout=PATIENCE)) == "Hello Ann"
        assert len(set(map(id, loops))) == 2

    def test_mistakes(self, connection: Connection) -> None:
        """Started twice, and under trio."""
        service = Service()

        async def twice() -> None:
            async with AsyncDispatcher(connection, URI, service) as dispatcher:
                assert repr(dispatcher).startswith("<soapjms.AsyncDispatcher of <soapjms.Dispatcher of queue:greeter")
                with pytest.raises(UsageError, match="started only once"):
                    await dispatcher.start()

        async def elsewhere() -> None:
            await AsyncDispatcher(connection, URI, service).start()

        asyncio.run(twice())
        with pytest.raises(UsageError, match="runs on asyncio"):
            trio.run(elsewhere)
