"""zeep over JMS from asyncio: calls at once, cancelled ones, a loop that goes on; without httpx."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import zeep
from calling_kit import PATIENCE, SOAP_11, OnEachBroker, OnRealBrokers, Wrapped, eventually
from places import ROOT
from real_brokers import RealBroker
from zeep_kit import BINDING, CXF_NS, ECHO, NS, echo, gallery_wsdl, made, written

import soapjms
from brokers import Connection, ConnectionLostError, ConnectionState
from brokers.embedded import Broker
from soapjms import Dispatcher, Request, Service
from soapjms.client import async_client
from soapjms.protocol.names import FailureReason
from soapjms.zeep import AsyncClient, JmsFaultError, JmsTimeoutError, JmsTransport, JmsTransportError


class TestCalls(OnEachBroker):
    """Calls that end."""

    def test_calls_at_once(self, connection: Connection, other: Connection, name: str, tmp_path: Path) -> None:
        """Each has its own answer; one-way messages and faults as without asyncio; zeep's own client works too."""
        path = written(
            tmp_path, ECHO[SOAP_11].read_text(encoding="utf-8").replace("jms:queue:CXF.ECHO", f"jms:queue:{name}")
        )

        async def calls() -> None:
            async with AsyncClient(path, connection=connection, operation_timeout=PATIENCE) as client:
                said = await asyncio.gather(*(client.service.greetMe(str(number)) for number in range(50)))
                assert said == [f"Hello {number}" for number in range(50)]
                assert await client.service.pingMe("there") is None
                with pytest.raises(JmsFaultError, match="it was asked for"):
                    await client.service.testFault("x")
                made_by_us = client.create_service(f"{{{CXF_NS}}}EchoServiceSoapBinding", f"jms:queue:{name}")
                assert await made_by_us.greetMe("you") == "Hello you"
            async with JmsTransport(connection, operation_timeout=PATIENCE) as transport:
                assert await zeep.AsyncClient(str(path), transport=transport).service.greetMe("zeep") == "Hello zeep"

        with Dispatcher(other, f"jms:queue:{name}", echo(), workers=4):
            asyncio.run(calls())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the WSDL of the gallery."""
    return written(tmp_path, gallery_wsdl())


@pytest.fixture
def broker() -> Broker:
    """Return a broker of the test's own."""
    return Broker("asynchronous")


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    """Return a connection to it."""
    with broker.connect() as connection:
        yield connection


def under_way(client: Any) -> int:
    """Count the calls that wait for their response."""
    return sum(each.under_way for each in client.transport._clients.values())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what comes from another thread."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


def hanging(arrived: Event, go: Event) -> Service:
    """Make a service that says which year it was asked for, for the year 1 not before it may go on."""
    service = Service()

    @service.operation(f"{{{NS}}}hang")
    def hang(request: Request) -> Any:
        year = request.findtext(f".//{{{NS}}}year", "?")
        if year == "1":
            arrived.set()
            assert go.wait(PATIENCE)
        return made("hung", place=year)

    return service


def test_a_cancelled_call_leaves_nothing_behind(connection: Connection, path: Path) -> None:
    """No call under way; its late answer is nobody's; the next call has its own."""
    arrived, go = Event(), Event()

    async def calls() -> None:
        async with AsyncClient(path, connection=connection, operation_timeout=PATIENCE) as client:
            call = asyncio.ensure_future(client.service.hang({"year": 1}))
            await asyncio.to_thread(arrived.wait, PATIENCE)
            assert under_way(client) == 1
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: under_way(client) == 0)
            go.set()
            assert await client.service.hang({"year": 2}) == "2"
            (ours,) = client.transport._clients.values()
            await until(lambda: ours.counts == {"late": 1})

    with Dispatcher(connection, "jms:queue:gallery", hanging(arrived, go)):
        asyncio.run(calls())


class TestAtTheBroker(OnRealBrokers):
    """What a real broker counts."""

    def test_a_cancelled_call_leaves_nothing_there(
        self, url: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        """What is there while nobody calls is there again after it: no message, consumer or queue more."""
        broker: RealBroker = request.getfixturevalue(request.node.callspec.params["url"])
        path = written(tmp_path, gallery_wsdl().replace("jms:queue:gallery", f"jms:queue:{name}"))
        arrived, go = Event(), Event()

        earlier = broker.counters()
        foreign = {*earlier.messages, *earlier.consumers, *earlier.temporaries}

        def there() -> tuple[dict[str, int], dict[str, int], list[str]]:
            """Return the messages, consumers and temporary queues that this test is the reason of."""
            seen = broker.counters()
            return (
                {each: count for each, count in seen.messages.items() if each not in foreign},
                {each: count for each, count in seen.consumers.items() if each not in foreign},
                [each for each in seen.temporaries if each not in foreign],
            )

        async def calls(connection: Connection) -> None:
            async with AsyncClient(path, connection=connection, operation_timeout=PATIENCE) as client:
                assert await client.service.hang({"year": 0}) == "0"
                await until(lambda: there()[0] == {})
                before = there()
                kept = 2 if broker.recipe.title == "ActiveMQ" and url.startswith("stomp") else 0  # clocks were compared
                assert len(before[2]) == 1 + kept, "the queue for answers"
                call = asyncio.ensure_future(client.service.hang({"year": 1}))
                await cancelled(call, arrived)
                go.set()
                (ours,) = client.transport._clients.values()
                await until(lambda: ours.counts == {"late": 1})
                await until(lambda: there() == before)
                assert await client.service.hang({"year": 2}) == "2"
                await until(lambda: there() == before)

        with (
            soapjms.connect(url) as ours,
            soapjms.connect(url) as other,
            Dispatcher(other, f"jms:queue:{name}", hanging(arrived, go)),
        ):
            asyncio.run(calls(ours))
        eventually(lambda: there() == ({}, {}, []), "with client and service all of it has gone")


async def cancelled(call: asyncio.Future[Any], reached: Event) -> None:
    """Cancel a call that has got somewhere; who waits for it learns of that."""
    await asyncio.to_thread(reached.wait, PATIENCE)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def slow(connection: Connection, sending: Event, go: Event) -> Connection:
    """Wrap a connection so that sending waits."""

    class Waiting(Wrapped):
        def send(self, message: Any, transaction: Any = None, **options: Any) -> Any:
            sending.set()
            assert go.wait(PATIENCE)
            return super().send(message, transaction, **options)

    return Waiting(connection)


def test_a_call_that_is_cancelled_while_it_is_sent(connection: Connection, path: Path) -> None:
    """It leaves nothing behind either, once the broker lets go of it; meanwhile the loop went on."""
    sending, go = Event(), Event()

    async def calls() -> Any:
        client = AsyncClient(path, connection=slow(connection, sending, go), operation_timeout=PATIENCE)
        call = asyncio.ensure_future(client.service.hang({"year": 1}))
        await cancelled(call, sending)
        go.set()
        await until(lambda: under_way(client) == 0)
        return client

    client = asyncio.run(calls())
    client.close()


def test_a_call_that_fails_while_it_is_sent_and_cancelled(connection: Connection, path: Path) -> None:
    """Nobody is told, and nobody misses it: no error is left for the loop to complain of."""
    sending, go = Event(), Event()

    async def calls() -> list[Any]:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        client = AsyncClient(path, connection=slow(connection, sending, go))
        call = asyncio.ensure_future(client.service.hang({"year": 1}))
        await cancelled(call, sending)
        await asyncio.to_thread(connection.close)
        go.set()
        await client.transport.aclose()
        return complaints

    assert asyncio.run(calls()) == []


def test_an_attachment_that_cannot_be_read(connection: Connection, path: Path, tmp_path: Path) -> None:
    """The error that it would be without asyncio."""

    async def call() -> None:
        async with AsyncClient(path, connection=connection) as client:
            await client.service.frame("Dusk", _attachments=[soapjms.Attachment(tmp_path / "none.png")])

    with pytest.raises(soapjms.UsageError, match=r"none[.]png cannot be read: No such file"):
        asyncio.run(call())


def test_a_call_that_is_cancelled_before_it_is_sent(
    connection: Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While every thread is at work: it never is."""
    monkeypatch.setattr(async_client, "MAX_SENDING_THREADS", 1)
    sending, go, sent = Event(), Event(), []

    class Listening(Wrapped):
        def send(self, message: Any, transaction: Any = None, **options: Any) -> Any:
            sent.append(message)
            return super().send(message, transaction, **options)

    async def calls() -> None:
        client = AsyncClient(path, connection=slow(Listening(connection), sending, go))
        first = asyncio.ensure_future(client.service.note("first"))
        await asyncio.to_thread(sending.wait, PATIENCE)
        call = asyncio.ensure_future(client.service.hang({"year": 1}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go.set()
        await first
        await client.transport.aclose()

    asyncio.run(calls())
    assert len(sent) == 1


class Lost(Wrapped):
    """A connection that was lost, and is not made again."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.is_lost, self.waited_for = Event(), Event()

    @property
    def state(self) -> Any:
        return ConnectionState.LOST if self.is_lost.is_set() else super().state

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait in vain."""
        if self.is_lost.is_set():
            self.waited_for.set()
            Event().wait(timeout)
            raise ConnectionLostError("the connection was lost")
        super().wait_connected(timeout)


def test_many_calls_while_the_connection_is_lost(
    connection: Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends when its own time is over, one-way messages too, and the threads of the loop are free meanwhile."""
    monkeypatch.setattr(async_client, "MAX_SENDING_THREADS", 2)
    lost = Lost(connection)

    async def calls() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        async with AsyncClient(path, connection=lost, operation_timeout=2.0) as client:
            lost.is_lost.set()
            began = loop.time()
            asked = [client.service.hang({"year": 1}) for _ in range(20)] + [client.service.note("x") for _ in range(5)]
            waiting = asyncio.gather(*asked, return_exceptions=True)
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "free") == "free"
            assert not waiting.done()
            found = await waiting
            assert loop.time() - began < 15, "one after the other they would take 24 s and more"
            assert {type(each) for each in found} <= {JmsTransportError, JmsTimeoutError}
            assert {each.reason for each in found} == {FailureReason.TRANSMISSION_FAILURE}

    asyncio.run(calls())


def test_a_broker_that_takes_nothing(connection: Connection, path: Path) -> None:
    """The call ends in time though the thread that sends does not; of what it comes to nothing is left."""
    sending, go = Event(), Event()

    async def calls() -> None:
        client = AsyncClient(path, connection=slow(connection, sending, go), operation_timeout=0.5)
        for call in (client.service.hang({"year": 1}), client.service.note("x")):
            with pytest.raises(JmsTimeoutError, match=r"confirmed nothing within 0\.5 s; whether it has the message"):
                await call
        assert sending.is_set()
        go.set()
        await until(lambda: under_way(client) == 0)
        await client.transport.aclose()

    asyncio.run(calls())


def test_a_close_while_the_connection_is_lost(
    connection: Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends calls that wait for the connection, and those behind them, with the same kind of error."""
    monkeypatch.setattr(async_client, "MAX_SENDING_THREADS", 1)
    lost = Lost(connection)

    async def calls() -> None:
        client = AsyncClient(path, connection=lost, operation_timeout=PATIENCE)
        lost.is_lost.set()
        waiting = asyncio.gather(*(client.service.hang({"year": 1}) for _ in range(3)), return_exceptions=True)
        await asyncio.to_thread(lost.waited_for.wait, PATIENCE)
        await client.transport.aclose()
        async with asyncio.timeout(PATIENCE / 2):
            found = await waiting
        assert [type(each) for each in found] == [JmsTransportError] * 3
        assert all("closed" in str(each) for each in found)

    asyncio.run(calls())


def test_time_out(connection: Connection, path: Path) -> None:
    """A typed error; of a `with` it holds for this task alone."""

    async def calls() -> None:
        async with AsyncClient(path, connection=connection, operation_timeout=PATIENCE) as client:

            async def hasty() -> None:
                with client.transport.settings(timeout=0.05), pytest.raises(JmsTimeoutError):
                    await client.service.hang({"year": 1})

            patient = asyncio.ensure_future(client.service.hang({"year": 2}))
            await hasty()
            assert not patient.done()
            patient.cancel()

    asyncio.run(calls())


def test_a_lost_connection(connection: Connection, path: Path) -> None:
    """Typed errors, for one-way messages too."""

    async def calls() -> None:
        async with AsyncClient(path, connection=connection) as client:
            service = client.create_service(BINDING, "jms:queue:gallery")
            connection.close()
            for call in (service.hang({"year": 1}), service.note("late")):
                with pytest.raises(JmsTransportError, match="could not be sent"):
                    await call

    asyncio.run(calls())


def test_without_httpx(tmp_path: Path) -> None:
    """It is neither needed nor imported."""
    program = f"""
import asyncio, sys
sys.modules["httpx"] = None
import soapjms, soapjms.zeep
from zeep_kit import echo
async def main():
    with soapjms.connect("embedded:") as connection, soapjms.Dispatcher(connection, "jms:queue:CXF.ECHO", echo()):
        async with soapjms.zeep.AsyncClient({str(ECHO[SOAP_11])!r}, connection=connection) as client:
            print(await client.service.greetMe("World"))
asyncio.run(main())
"""
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/support'}", "PATH": ""}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path, env=environment
    )
    assert done.stdout == "Hello World\n"
