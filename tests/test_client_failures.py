"""What goes wrong with calls: wrong arguments, time-outs, cancelling, connections and clients that close under way."""

from __future__ import annotations

import signal
from concurrent.futures import CancelledError, Future, wait
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

import soapjms
from brokers import (
    ClosedError,
    Completion,
    Connection,
    Message,
    MessageType,
    SendResult,
    Transaction,
)
from brokers.embedded import Broker
from soapjms import CallFailedError, CallTimeoutError, Client, UsageError
from soapjms.protocol import names
from soapjms.protocol.uri import parse


class TestWrongArguments(Peers):
    """What is wrong is refused early, and says what would be right."""

    @pytest.mark.parametrize(
        ("uri", "error", "says"),
        [
            ("http://greeter", soapjms.InvalidUriError, "begins with jms:"),
            ("jms:queue", soapjms.InvalidUriError, "jms:variant:destination"),
            ("jms:queue:", soapjms.InvalidUriError, "the destination is empty"),
            ("jms:mail:greeter", UsageError, "'mail' is none of: jndi, queue, topic"),
            (URI + "?timeToLive=soon", soapjms.InvalidPropertyError, "timeToLive is 'soon' in URI; accepted is milli"),
            (URI + "?priority=11", soapjms.InvalidPropertyError, "an integer from 0 to 9"),
            (parse("jms:queue:"), soapjms.InvalidUriError, "the destination is empty"),
        ],
    )
    def test_uri(self, connection: Connection, uri: Any, error: type[Exception], says: str) -> None:
        """A URI that cannot be used."""
        with pytest.raises(error, match=says):
            Client(connection, uri)

    def test_parsed_uri(self, connection: Connection) -> None:
        """A URI may be parsed already."""
        with Client(connection, parse(URI)) as client:
            assert client.endpoint.request_uri == URI

    @pytest.mark.parametrize(
        ("properties", "says"),
        [
            ({"colour": "red"}, "unknown binding property 'colour' in environment; known are: lookupVariant"),
            ({"deliveryMode": "FAST"}, "accepted is PERSISTENT or NON_PERSISTENT"),
            ({"isFault": True}, "isFault is set in environment; it may be set in: nowhere"),
        ],
    )
    def test_properties(self, connection: Connection, properties: dict[str, Any], says: str) -> None:
        """A property that there is not, or with a value that it cannot have."""
        with pytest.raises(soapjms.InvalidPropertyError, match=says):
            Client(connection, URI, properties=properties)

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300, "3", None, True])
    def test_timeout(self, connection: Connection, client: Client, timeout: Any) -> None:
        """A time-out is positive and finite."""
        with pytest.raises(UsageError, match="a call waits for a positive, finite number of seconds"):
            Client(connection, URI, timeout=timeout)
        if timeout is not None:
            for function in (client.call, client.submit):
                with pytest.raises(UsageError, match="positive, finite"):
                    function(envelope(), timeout=timeout)

    @pytest.mark.parametrize("message_type", [MessageType.MAP, "object", None])
    def test_message_type(self, connection: Connection, message_type: Any) -> None:
        """A request is a BytesMessage or a TextMessage."""
        with pytest.raises(UsageError, match=r"a request is MessageType\.BYTES or MessageType\.TEXT"):
            Client(connection, URI, message_type=message_type)

    def test_message_type_by_name(self, connection: Connection, other: Connection) -> None:
        """A message type may be given by its name."""
        kind: Any = "text"
        with Client(connection, URI, message_type=kind) as client:
            client.send(envelope())
        assert take_one(other, GREETER).body == envelope().decode()

    def test_profile(self, connection: Connection) -> None:
        """A profile is no string."""
        name: Any = "cr-2009"
        with pytest.raises(UsageError, match="profile is 'cr-2009'; it is a Profile: "):
            Client(connection, URI, profile=name)

    @pytest.mark.parametrize("profile", [names.REC_2012, names.CR_2009])
    def test_no_envelope(self, connection: Connection, broker: Broker, profile: soapjms.Profile) -> None:
        """What is no envelope is not sent, and leaves nothing under way."""
        with Client(connection, URI, profile=profile) as client:
            for function in (client.call, client.submit):
                with pytest.raises(soapjms.InvalidEnvelopeError):
                    function(b"<greetMe/>")
            assert client.under_way == 0
        assert broker.depth(GREETER) == 0

    def test_closed_connection(self, broker: Broker) -> None:
        """A client of a closed connection cannot be made."""
        connection = broker.connect()
        connection.close()
        with pytest.raises(ClosedError):
            Client(connection, URI)


class Choosy(Wrapped):
    """A connection whose adapter cannot carry what it is given."""

    def send(self, message: Message, transaction: Transaction | None = None) -> Completion[SendResult]:
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
            short = client.submit(envelope("short"), timeout=0.01)
            after = client.submit(envelope("after"))
            with pytest.raises(CallTimeoutError):
                short.result(PATIENCE)
            assert client.under_way == 2
            for message in found.take(3):
                other.send(answer_to(message, f"for {message.correlation_id}"))
            for future in (before, after):
                assert text_of(future.result(PATIENCE)) == f"for {future.result().request.correlation_id}"
        eventually(lambda: client.counts == {"ignored": 1}, "the late one was ignored")

    def test_interrupted(self, client: Client) -> None:
        """A call that is interrupted is forgotten."""

        def interrupt(*_: object) -> None:
            raise InterruptedError("Ctrl-C")

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(InterruptedError):
                client.call(envelope())
        finally:
            signal.signal(signal.SIGALRM, before)
        assert client.under_way == 0


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
            eventually(lambda: client.counts == {"ignored": 1}, "the reply was ignored")

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

    def test_closed_while_a_call_begins(self, connection: Connection) -> None:
        """A call that begins while the client closes fails too: nobody waits for ever."""

        class ClosesMeanwhile(Wrapped):
            def consume(self, destination: Any, on_delivery: Any, **options: Any) -> Any:
                closing.start()
                eventually(lambda: is_closed(client), "the client is being closed")
                return super().consume(destination, on_delivery, **options)

        client = Client(ClosesMeanwhile(connection), URI, timeout=PATIENCE)
        closing = Thread(target=client.close)
        with pytest.raises(CallFailedError, match="the client was closed before a response came"):
            client.submit(envelope()).result(PATIENCE)
        closing.join(PATIENCE)


def is_closed(client: Client) -> bool:
    """Say whether a client takes no calls any more."""
    try:
        client.send(b"")
    except soapjms.InvalidEnvelopeError:
        return False
    except UsageError:
        return True
    raise AssertionError("nothing was sent, and nobody minded")
