"""How a dispatcher starts and ends: what is under way is finished, the rest goes back, even if the program ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from time import monotonic
from typing import Any, Final

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Arrivals,
    OnEachBroker,
    Peers,
    Wrapped,
    element,
    envelope,
    eventually,
    greeter,
    text_of,
)
from places import ROOT, SUPPORT

from brokers import BrokerError, ClosedError, Connection, ConnectionState, Delivery
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Request, Service, UsageError, connect

GREET = f"{{{NS}}}greetMe"


def serving(function: Callable[[Request], Any]) -> Service:
    """Make a service of one function."""
    service = Service()
    service.operation(GREET)(function)
    return service


class TestBesideAnother(OnEachBroker):
    """What comes while a dispatcher closes goes to the next one at once, on each broker."""

    def test_takes_no_more(self, url: str, uri: str) -> None:
        """Workers without a request unsubscribe although another worker is busy, and hoard nothing."""
        begun, ready = Event(), Event()

        def greet(request: Request) -> Any:
            begun.set()
            assert ready.wait(PATIENCE)
            return element("greetMeResponse", "done")

        with connect(url) as first, connect(url) as second, connect(url) as third, Client(third, uri) as client:
            dispatcher = Dispatcher(first, uri, serving(greet), workers=3).start()
            slow = client.submit(envelope("Ann"), timeout=PATIENCE)
            assert begun.wait(PATIENCE)
            with Dispatcher(second, uri, greeter(), workers=2):
                closing = Thread(target=dispatcher.close, args=[PATIENCE])
                closing.start()
                futures = [client.submit(envelope(str(each)), timeout=PATIENCE) for each in range(8)]
                assert [text_of(each.result(PATIENCE / 2)) for each in futures] == [
                    f"Hello {each}" for each in range(8)
                ]
                ready.set()
                closing.join(PATIENCE)
                assert text_of(slow.result(PATIENCE)) == "done"
                assert dispatcher.counts["answered"] == 1


UNCLOSED: Final = """
import atexit

atexit.register(lambda: look())  # first, so that it is called last

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore, main_thread

from brokers import queue
from brokers.embedded import Broker
from calling_kit import NS, envelope
from soapjms import Client, Dispatcher, Service
from waiting import eventually

begun, executor, broker = Semaphore(0), ThreadPoolExecutor(), Broker()


def submit(request):
    begun.release()
    main_thread().join()
    executor.submit(print).result()


def wrapped(request):
    try:
        submit(request)
    except RuntimeError:
        raise ValueError("no price")


async def to_thread(request):
    begun.release()
    while main_thread().is_alive():
        await asyncio.sleep(0.001)
    await asyncio.to_thread(print)


async def sleep(request):
    begun.release()
    await asyncio.sleep(60)


def look():
    eventually(lambda: not any(each.under_way for each in dispatchers), "no request is held")
    print([broker.depth(queue(each)) for each in names], [call.done() for call in calls], flush=True)


names, dispatchers, calls = [], [], []
for function in submit, wrapped, to_thread, sleep:
    service = Service()
    service.operation(f"{{{NS}}}greetMe")(function)
    names.append(function.__name__)
    uri = f"jms:queue:{function.__name__}"
    dispatchers.append(Dispatcher(broker.connect(), uri, service, workers=2).start())
    calls.append(Client(broker.connect(), uri).submit(envelope()))
    begun.acquire()
"""
"""A program that ends without closing its dispatchers, while they run functions that then fail."""


def test_unclosed() -> None:
    """Requests whose functions fail because Python is shutting down go back to the broker."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}"}
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[1, 1, 1, 1] [False, False, False, False]\n", done.stderr
    assert done.stderr.count("the program is ending: no more requests are taken from queue:") == 4


class TestClosing(Peers):
    """`close` finishes what is under way."""

    def test_an_error_that_only_says_so(self, client: Client, other: Connection) -> None:
        """What a function says of the interpreter, in words of a sender, closes nothing while the program runs."""

        def greet(request: Request) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

        with Dispatcher(other, URI, serving(greet)) as dispatcher:
            for _ in range(2):
                assert client.call(envelope(), timeout=PATIENCE).fault is not None
            assert dispatcher.health().problem == ""

    def test_finishes_what_is_under_way(self, client: Client, other: Connection, broker: Broker) -> None:
        """A request that is being worked on is still answered; one that waits stays on the queue."""
        begun, ready = Event(), Event()

        def greet(request: Request) -> None:
            begun.set()
            assert ready.wait(PATIENCE)

        dispatcher = Dispatcher(other, URI, serving(greet), workers=1).start()
        first = client.submit(envelope())
        assert begun.wait(PATIENCE)
        client.submit(envelope())
        closing = Thread(target=dispatcher.close)
        closing.start()
        eventually(lambda: dispatcher.health().problem == "it was closed", "the first close is under way")
        assert not dispatcher.close(0.01)  # a second one waits for the same requests, and takes no time from the first
        again = Thread(target=dispatcher.close)
        again.start()
        again.join(0.05)
        assert again.is_alive()
        ready.set()
        again.join(PATIENCE)
        closing.join(PATIENCE)
        assert first.result(PATIENCE).fault is None
        assert broker.depth(GREETER) == 1
        with Dispatcher(other, URI, greeter()):
            eventually(lambda: client.under_way == 0, "the next dispatcher answers what was left")

    def test_interrupted(
        self, client: Client, other: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C while it waits leaves no subscription, and no open store."""
        begun, ready = Event(), Event()

        def greet(request: Request) -> None:
            begun.set()
            assert ready.wait(PATIENCE)

        def interrupt(*_: object) -> bool:
            raise KeyboardInterrupt

        dispatcher = Dispatcher(other, URI, serving(greet), workers=1, store=tmp_path / "store.db").start()
        future = client.submit(envelope("Ann"))
        assert begun.wait(PATIENCE)
        monkeypatch.setattr("soapjms.service.dispatcher.OpenRequests.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            dispatcher.close()
        ready.set()
        monkeypatch.undo()
        with Dispatcher(other, URI, greeter()):
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        eventually(lambda: "soapjms-store" not in {each.name for each in enumerate_threads()}, "the store is closed")

    def test_deadline(self, client: Client, other: Connection) -> None:
        """What is not finished in time is delivered again, and answered once."""
        begun, ready = Event(), Event()

        def greet(request: Request) -> None:
            begun.set()
            assert ready.wait(PATIENCE)

        dispatcher = Dispatcher(other, URI, serving(greet), workers=1).start()
        future = client.submit(envelope("Ann"))
        assert begun.wait(PATIENCE)
        assert not dispatcher.close(deadline=0.01)
        begun_at = monotonic()
        assert not dispatcher.close(PATIENCE)  # the first one has given up
        assert monotonic() - begun_at < PATIENCE / 2
        ready.set()
        eventually(lambda: dispatcher.counts["lost"] == 1, "the late answer was dropped")
        with Dispatcher(other, URI, greeter()):
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        assert dispatcher.counts == {"accepted": 1, "lost": 1}
        assert client.counts == {}

    def test_second_close_after_the_deadline(self, client: Client, other: Connection) -> None:
        """It returns what the first one did, at once, also when the function that was given up has ended meanwhile."""
        begun, ready, ended = Event(), Event(), Event()

        def greet(request: Request) -> None:
            begun.set()
            assert ready.wait(PATIENCE)
            ended.set()

        dispatcher = Dispatcher(other, URI, serving(greet), workers=1).start()
        client.submit(envelope())
        assert begun.wait(PATIENCE)
        before = monotonic()
        assert not dispatcher.close(0.01)
        assert not dispatcher.close(PATIENCE)
        assert monotonic() - before < PATIENCE / 2
        ready.set()
        assert ended.wait(PATIENCE)
        eventually(lambda: dispatcher.under_way == 0, "the request is left to the broker")
        assert not dispatcher.close()

    def test_delivery_after_the_end(self, client: Client, other: Connection, broker: Broker) -> None:
        """A request that reaches a worker only when the dispatcher is closed is left to the broker."""
        arrived, go_on, left = Event(), Event(), Event()

        class Slow(Wrapped):
            def _consume(self, options: Any, on_delivery: Any) -> Any:
                def later(delivery: Delivery) -> None:
                    arrived.set()
                    assert go_on.wait(PATIENCE)
                    on_delivery(delivery)
                    left.set()

                return super()._consume(options, later)

        seen: list[Request] = []
        dispatcher = Dispatcher(Slow(other), URI, serving(seen.append), workers=1).start()
        client.send(envelope())
        assert arrived.wait(PATIENCE)
        dispatcher.close()
        go_on.set()
        assert left.wait(PATIENCE)
        assert (seen, dispatcher.counts) == ([], {})
        assert broker.depth(GREETER) == 1

    def test_by_a_function(self, client: Client, other: Connection) -> None:
        """A function may close the dispatcher that runs it; its own request is delivered again."""
        closed = Event()

        def greet(request: Request) -> None:
            dispatcher.close(deadline=0.01)
            closed.set()

        dispatcher = Dispatcher(other, URI, serving(greet)).start()
        future = client.submit(envelope("Ann"))
        assert closed.wait(PATIENCE)
        with Dispatcher(other, URI, greeter()):
            assert text_of(future.result(PATIENCE)) == "Hello Ann"

    def test_never_started(self, other: Connection) -> None:
        """A dispatcher that was not started can be closed, and not be started then."""
        dispatcher = Dispatcher(other, URI, greeter())
        dispatcher.close()
        with pytest.raises(UsageError, match="a dispatcher must be started only once; make a new one"):
            dispatcher.start()

    def test_started_twice(self, other: Connection) -> None:
        """A dispatcher starts once."""
        with Dispatcher(other, URI, greeter()) as dispatcher, pytest.raises(UsageError, match="started only once"):
            dispatcher.start()

    def test_closed_while_it_starts(self, client: Client, other: Connection) -> None:
        """A subscription that is made while it is closed takes no request out of the others' reach."""

        class Closes(Wrapped):
            def _consume(self, options: Any, on_delivery: Any) -> Any:
                made = super()._consume(options, on_delivery)
                dispatcher.close(deadline=0.1)
                return made

        dispatcher = Dispatcher(Closes(other), URI, greeter(), workers=1)
        with pytest.raises(ClosedError, match="closed while it started"):
            dispatcher.start()
        with Dispatcher(other, URI, greeter(), workers=1):
            assert text_of(client.submit(envelope("Ann")).result(PATIENCE)) == "Hello Ann"

    @pytest.mark.parametrize("error", [BrokerError("no more"), ValueError("no such destination")])
    def test_subscription_refused(self, client: Client, other: Connection, error: Exception) -> None:
        """If one subscription is refused, `start` raises, and the others are closed."""

        class Two(Wrapped):
            subscriptions = 0

            def _consume(self, options: Any, on_delivery: Any) -> Any:
                self.subscriptions += 1
                if self.subscriptions > 2:
                    raise error
                return super()._consume(options, on_delivery)

        with pytest.raises(type(error), match="no"):
            Dispatcher(Two(other), URI, greeter(), workers=3).start()
        found = Arrivals()
        with other.consume(GREETER, found):
            client.submit(envelope())
            found.next()

    def test_connection_closed_before(self, client: Client, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        """A connection that closes under a dispatcher is told of; closing then does nothing more."""
        connection = broker.connect()
        with Dispatcher(connection, URI, greeter()):
            client.call(envelope())
            connection.close()
        assert "the connection was closed: no more requests come from queue:greeter" in caplog.text

    def test_connected_again(self, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """Other news of the connection is nothing to tell, and after closing none is."""
        watchers: list[Callable[[ConnectionState], None]] = []

        class Watched(Wrapped):
            def watch(self, on_state: Callable[[ConnectionState], None]) -> None:
                watchers.append(on_state)

        with Dispatcher(Watched(other), URI, greeter()):
            watchers[0](ConnectionState.CONNECTED)
        watchers[0](ConnectionState.LOST)
        assert caplog.text == ""
