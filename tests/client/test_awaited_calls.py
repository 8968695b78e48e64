"""Calls that are awaited in asyncio: `await client.submit(…)`."""

from __future__ import annotations

import asyncio

import pytest
from calling_kit import PATIENCE, Peers, envelope, eventually, text_of

from brokers import Connection
from soapjms import CallTimeoutError, Client, Dispatcher, Request, Service


class TestAwaited(Peers):
    """Over the embedded broker."""

    def test_many(self, client: Client, served: Dispatcher) -> None:
        """Each task gets its own response, also when many come at once."""

        async def ask(number: int) -> list[str | None]:
            return [text_of(await client.submit(envelope(f"{number}.{turn}"))) for turn in range(5)]

        async def ask_all() -> list[list[str | None]]:
            return await asyncio.gather(*(ask(number) for number in range(20)))

        found = asyncio.run(ask_all())
        assert found == [[f"Hello {number}.{turn}" for turn in range(5)] for number in range(20)]

    def test_done_before(self, client: Client, served: Dispatcher) -> None:
        """A response that is there is returned at once; any loop may ask for it."""
        future = client.submit(envelope("Ann"))
        future.result(PATIENCE)

        async def ask() -> str | None:
            return text_of(await future)

        assert [asyncio.run(ask()), asyncio.run(ask())] == ["Hello Ann", "Hello Ann"]

    def test_errors(self, client: Client) -> None:
        """What the future raises is raised."""

        async def ask() -> None:
            await client.submit(envelope("Ann"), timeout=0.05)

        with pytest.raises(CallTimeoutError):
            asyncio.run(ask())

    def test_cancelled_task(self, client: Client, other: Connection) -> None:
        """Cancelling the task drops the call."""

        async def ask() -> None:
            future = client.submit(envelope("Ann"))
            task = asyncio.ensure_future(future)
            await asyncio.sleep(0)
            assert client.under_way == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert future.cancelled()

        asyncio.run(ask())
        eventually(lambda: client.under_way == 0, "the call is dropped")

    def test_closed_loop(self, client: Client, other: Connection) -> None:
        """A response that comes after its loop was closed disturbs nobody."""
        loop = asyncio.new_event_loop()
        service, future = Service(), client.submit(envelope("Ann"))

        @service.operation("{http://apache.org/hello_world_soap_http/types}greetMe")
        def greet(request: Request) -> None:
            return None

        async def wait() -> None:
            await future

        task = loop.create_task(wait())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        with Dispatcher(other, "jms:queue:greeter", service):
            eventually(future.done, "it was answered")
        assert client.under_way == 0
        del task
