"""What goes wrong with calls: time-outs, cancelling, connections and clients that close under way."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    PATIENCE,
    URI,
    Peers,
    Wrapped,
    answer_to,
    arrivals,
    envelope,
    eventually,
    responder,
    take_one,
    text_of,
)
from limits_kit import refuse_thread_once

import soapjms
from brokers import (
    Completion,
    Connection,
    ConnectionState,
    Delivery,
    Message,
    Properties,
    SendFailedError,
    SendResult,
    Transaction,
)
from brokers.embedded import Broker
from soapjms import CallFailedError, CallTimeoutError, Client, SendOutcome, UsageError
from soapjms.observing import Begun, Ended, Observation, Observer
from soapjms.protocol import names
from soapjms.protocol.record import Direction


class Choosy(Wrapped):
    """A connection whose adapter cannot carry what it is given."""

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        raise ValueError("a header cannot hold NUL")


class TestTimeouts(Peers):
    """A call that gets no reply ends by itself, and alone."""

    def test_call(self, client: Client) -> None:
        """`call` raises an error that is a TimeoutError too, and forgets the call."""
        with pytest.raises(CallTimeoutError, match="no correlated response came in time") as caught:
            client.call(envelope(), timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.reason == "receptionFailure"
        assert client.under_way == 0

    def test_clock_set_back(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wall clock that is set back by an hour while a call waits makes it wait no longer."""
        hours = iter([2, 1])
        monkeypatch.setattr("soapjms.client.client.epoch_milliseconds", lambda: next(hours) * 3_600_000)
        with pytest.raises(CallTimeoutError, match="in time"):
            client.call(envelope(), timeout=0.01)
        with pytest.raises(CallTimeoutError, match="in time"):
            client.submit(envelope(), timeout=0.01).result(PATIENCE)

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_clock_steps(self, client: Client, other: Connection, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
        """A wall clock that is set while a call waits ends no call early, and its answer is taken."""
        now = time.time_ns
        with arrivals(other, GREETER) as found:
            future = client.submit(envelope(), timeout=PATIENCE, expires=None)
            request = found.next()
            monkeypatch.setattr("time.time_ns", lambda: now() + hours * 3_600_000_000_000)
            monkeypatch.setattr("time.time", lambda: now() / 1e9 + hours * 3600)
            with pytest.raises(CallTimeoutError):
                client.call(envelope(), timeout=0.05)
            assert not future.done()
            other.send(answer_to(request, "in time"))
            assert text_of(future.result(PATIENCE)) == "in time"

    def test_of_the_client(self, connection: Connection) -> None:
        """Without its own, a call has the client's time-out."""
        with Client(connection, URI, timeout=0.01) as client:
            with pytest.raises(CallTimeoutError):
                client.call(envelope())
            with pytest.raises(CallTimeoutError):
                client.submit(envelope()).result(PATIENCE)

    def test_alone(self, client: Client, other: Connection) -> None:
        """One call times out, the others go on and get their replies."""
        with arrivals(other, GREETER) as found:
            before = client.submit(envelope("before"))
            short = client.submit(envelope("short"), timeout=0.5, expires=None)
            after = client.submit(envelope("after"))
            with pytest.raises(CallTimeoutError):
                short.result(PATIENCE)
            assert client.under_way == 2
            for message in found.take(3):
                other.send(answer_to(message, f"for {message.correlation_id}"))
            for future in (before, after):
                assert text_of(future.result(PATIENCE)) == f"for {future.result().request.correlation_id}"
        eventually(lambda: client.counts == {"late": 1}, "the late one was counted")

    def test_interrupted(self, client: Client) -> None:
        """A call that is interrupted is forgotten."""

        def interrupt(*_: object) -> None:
            raise InterruptedError("Ctrl-C")

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            with pytest.raises(InterruptedError):
                client.call(envelope())
        finally:
            signal.signal(signal.SIGALRM, before)
        assert client.under_way == 0

    def test_no_thread_that_ends_it(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """A call that nothing would end is not begun; later ones end in time, once there is a thread."""
        refuse_thread_once(monkeypatch, "soapjms-deadlines")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            client.submit(envelope(), timeout=0.05)
        assert client.under_way == 0
        with pytest.raises(CallTimeoutError):
            client.submit(envelope(), timeout=0.1).result(PATIENCE)


class TestCancelling(Peers):
    """A future that nobody wants any more."""

    def test_cancel(self, client: Client, other: Connection) -> None:
        """Cancelling forgets the call; waiting for the future ends; the reply is counted and dropped."""
        with arrivals(other, GREETER) as found:
            future = client.submit(envelope())
            assert future.cancel()
            assert client.under_way == 0
            assert wait([future], PATIENCE).done == {future}
            with pytest.raises(CancelledError):
                future.result(0)
            other.send(answer_to(found.next()))
            eventually(lambda: client.counts == {"late": 1}, "the reply was counted")

    def test_after_the_reply(self, client: Client, other: Connection) -> None:
        """A future that is done cannot be cancelled."""
        with responder(other, GREETER, lambda request: [answer_to(request)]):
            future = client.submit(envelope())
            future.result(PATIENCE)
            assert not future.cancel()


class TestFailures(Peers):
    """Requests that cannot be sent, connections and clients that close under way."""

    def test_refused_by_the_broker(self) -> None:
        """A request that the broker refuses fails at once, as an error of `call` and of the future."""
        with Broker(max_messages=1).connect() as connection, Client(connection, URI, timeout=PATIENCE) as client:
            kept = client.submit(envelope())
            with pytest.raises(CallFailedError, match=r"the request could not be sent: .*is full") as caught:
                client.call(envelope())
            assert caught.value.reason == "transmissionFailure"
            with pytest.raises(CallFailedError, match="is full"):
                client.submit(envelope()).result(PATIENCE)
            assert (kept.done(), client.under_way) == (False, 1)

    @pytest.mark.parametrize("profile", [names.REC_2012, names.CR_2009])
    def test_closed_connection(self, broker: Broker, profile: soapjms.Profile) -> None:
        """Calls under way fail when their connection closes; later ones at once."""
        connection = broker.connect()
        client = Client(connection, URI, profile=profile, timeout=PATIENCE)
        futures = [client.submit(envelope()) for _ in range(3)]
        connection.close()
        for future in futures:
            with pytest.raises(CallFailedError, match="the connection was closed before a response came") as caught:
                future.result(PATIENCE)
            assert caught.value.reason == "receptionFailure"
        with pytest.raises(CallFailedError, match="the request could not be sent: the connection") as caught:
            client.call(envelope())
        assert caught.value.reason == "transmissionFailure"
        with pytest.raises(CallFailedError, match="could not be sent"):
            client.submit(envelope()).result(PATIENCE)
        assert client.under_way == 0
        client.close()

    def test_closed_connection_before_the_first_call(self, broker: Broker) -> None:
        """A call that finds no connection to listen on fails in the same way."""
        connection = broker.connect()
        with Client(connection, URI) as client:
            connection.close()
            with pytest.raises(CallFailedError, match="could not be sent"):
                client.call(envelope())

    def test_adapter_that_cannot_carry_it(self, connection: Connection) -> None:
        """A message that the adapter cannot carry raises its error, and leaves nothing under way."""
        with Client(Choosy(connection), URI) as client:
            with pytest.raises(ValueError, match="cannot hold NUL"):
                client.submit(envelope())
            assert client.under_way == 0

    def test_close(self, connection: Connection, broker: Broker) -> None:
        """Closing fails what is under way and stops listening; the connection stays open. Twice does nothing."""
        client = Client(connection, URI, timeout=PATIENCE)
        future = client.submit(envelope())
        client.close()
        client.close()
        with pytest.raises(CallFailedError, match="the client was closed before a response came"):
            future.result(0)
        for function in (client.call, client.submit):
            with pytest.raises(UsageError, match="the client is closed"):
                function(envelope())
        take_one(connection, GREETER)

    def test_closed_while_an_observer_blocks(self, connection: Connection) -> None:
        """`close` returns within its deadline, whatever an observer does that is told of a timeout."""
        told, go_on = Event(), Event()

        class Slow(Observer, Observation):
            def begun(self, begun: Begun) -> Observation:
                return self

            def ended(self, ended: Ended) -> None:
                told.set()
                go_on.wait(PATIENCE)

        client = Client(connection, URI, observer=Slow())
        client.submit(envelope(), timeout=0.02)
        assert told.wait(PATIENCE)
        began = time.monotonic()
        client.close(0.05)
        assert time.monotonic() - began < PATIENCE / 2
        go_on.set()

    def test_closed_by_a_callback(self, connection: Connection, other: Connection) -> None:
        """A callback may close the client that it runs on; others under way fail."""
        client = Client(connection, URI, timeout=PATIENCE)
        closed = Event()

        def close(_: Future[soapjms.Response]) -> None:
            client.close()
            closed.set()

        with arrivals(other, GREETER) as found:
            answered, waiting = client.submit(envelope()), client.submit(envelope())
            answered.add_done_callback(close)
            other.send(answer_to(found.next()))
            assert closed.wait(PATIENCE)
        with pytest.raises(CallFailedError, match="the client was closed"):
            waiting.result(PATIENCE)

    def test_callback_after_close(self, client: Client, other: Connection) -> None:
        """A callback that is added once the client is closed still runs, at once."""
        with responder(other, GREETER, lambda request: [answer_to(request)]):
            future = client.submit(envelope())
            future.result(PATIENCE)
        client.close()
        seen = list[int]()
        future.add_done_callback(lambda _: seen.append(get_ident()))
        assert seen == [get_ident()]

    def test_closed_while_sending(self, connection: Connection) -> None:
        """A client that is closed while a request is sent fails it once."""

        class Closes(Wrapped):
            def send(
                self, message: Message, transaction: Transaction | None = None, **options: Any
            ) -> Completion[SendResult]:
                client.close()
                return super().send(message, transaction, **options)

        client = Client(Closes(connection), URI, timeout=PATIENCE)
        with pytest.raises(CallFailedError, match="the client was closed"):
            client.call(envelope())

    def test_send_that_fails_late(self, connection: Connection) -> None:
        """A send that fails when its call has ended already changes nothing."""
        sends: list[Completion[SendResult]] = []

        class Slow(Wrapped):
            def send(
                self, message: Message, transaction: Transaction | None = None, **options: Any
            ) -> Completion[SendResult]:
                sends.append(Completion(lambda: ThreadPoolExecutor(1)))
                return sends[-1]

        with Client(Slow(connection), URI, timeout=PATIENCE) as client:
            cancelled, failing = client.submit(envelope()), client.submit(envelope())
            cancelled.cancel()
            for sent in sends:
                sent.settle(SendResult(), SendFailedError("no room"))
            assert cancelled.cancelled()
            with pytest.raises(CallFailedError, match="could not be sent: no room"):
                failing.result(PATIENCE)
            unsure = client.submit(envelope())
            sends[-1].cancel()
            with pytest.raises(CallFailedError, match=r"^the send was cancelled before a response came") as caught:
                unsure.result(0)
            assert caught.value.outcome is SendOutcome.UNKNOWN

    def test_recorder_fails(
        self, connection: Connection, other: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A recorder of the user's own that raises is logged; calls get their responses all the same."""

        class Moody(soapjms.Recorder):
            def record(self, message: Message, direction: Direction | None = None, *more: object) -> None:
                raise RuntimeError(f"no {direction}")

        with (
            Moody(tmp_path / "log.jsonl") as recorder,
            Client(connection, URI, timeout=PATIENCE, recorder=recorder) as client,
            responder(other, GREETER, lambda request: [answer_to(request, "hello")]),
        ):
            assert text_of(client.call(envelope())) == "hello"
        assert "no request" in caplog.text
        assert "no response" in caplog.text

    def test_connected_again(self, connection: Connection, other: Connection) -> None:
        """That the connection is there again ends no call."""
        watchers: list[Callable[[ConnectionState], None]] = []

        class Watched(Wrapped):
            def watch(self, on_state: Any) -> None:
                watchers.append(on_state)

        with (
            arrivals(other, GREETER) as found,
            Client(Watched(connection), URI, timeout=PATIENCE) as client,
        ):
            future = client.submit(envelope())
            watchers[0](ConnectionState.CONNECTED)
            assert not future.done()
            other.send(answer_to(found.next(), "hello"))
            assert text_of(future.result(PATIENCE)) == "hello"

    def test_reply_that_is_being_read(self, connection: Connection, other: Connection) -> None:
        """A reply that came in time counts, though the time is over before it was read."""

        class Slow(Properties):
            def __hash__(self) -> int:
                eventually(lambda: time.monotonic() > due[0], "the time is over")
                return super().__hash__()

        due: list[float] = []
        with (
            Client(Odd(connection, lambda reply: Slow(reply.properties)), URI) as client,
            responder(other, GREETER, lambda request: [answer_to(request, "hello")]),
        ):
            due.append(time.monotonic() + 2.2)
            assert text_of(client.call(envelope(), timeout=2.0)) == "hello"

    def test_mistake_of_ours(self, connection: Connection, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """An error while a reply is read ends its call with it, and is logged; the next call goes on."""

        class Broken(Properties):
            def __hash__(self) -> int:
                raise ZeroDivisionError

        kinds = [Broken, Properties]
        with (
            Client(Odd(connection, lambda reply: kinds.pop(0)(reply.properties)), URI, timeout=PATIENCE) as client,
            responder(other, GREETER, lambda request: [answer_to(request, "hello")]),
        ):
            with pytest.raises(ZeroDivisionError):
                client.call(envelope())
            assert text_of(client.call(envelope())) == "hello"
        assert "ZeroDivisionError" in caplog.text

    def test_closed_while_a_call_begins(self, connection: Connection) -> None:
        """A call that begins while the client closes fails too: nobody waits for ever."""

        class ClosesMeanwhile(Wrapped):
            def _consume(self, options: Any, on_delivery: Any) -> Any:
                closing.start()
                eventually(lambda: is_closed(client), "the client is being closed")
                return super()._consume(options, on_delivery)

        client = Client(ClosesMeanwhile(connection), URI, timeout=PATIENCE)
        closing = Thread(target=client.close)
        with pytest.raises(
            CallFailedError, match=r"could not be sent: the client is closed|the client was closed before"
        ):
            client.submit(envelope()).result(PATIENCE)
        closing.join(PATIENCE)


class Odd(Wrapped):
    """A connection that brings replies with properties of an odd kind."""

    def __init__(self, inner: Connection, properties: Callable[[Message], Properties]) -> None:
        super().__init__(inner)
        self.properties = properties

    def _consume(self, options: Any, on_delivery: Any) -> Any:
        def odd(delivery: Delivery) -> None:
            delivery.message = replace(delivery.message, properties=self.properties(delivery.message))
            on_delivery(delivery)

        return super()._consume(options, odd)


def is_closed(client: Client) -> bool:
    """Say whether a client takes no calls any more."""
    try:
        client.send(b"")
    except soapjms.InvalidEnvelopeError:
        return False
    except UsageError:
        return True
    raise AssertionError("nothing was sent, and nobody minded")
