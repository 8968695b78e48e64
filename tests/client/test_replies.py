"""Where replies come in: a destination of the client's, a fixed one, one for each call under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event, Semaphore, active_count
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Peers,
    Refusing,
    Wrapped,
    answer_to,
    arrivals,
    element,
    envelope,
    eventually,
    greeter,
    responder,
    text_of,
)
from lxml import etree

import soapjms
from brokers import (
    BrokerError,
    ClosedError,
    Connection,
    ConnectionLostError,
    Consumer,
    Destination,
    Message,
    NotSentError,
    queue,
    topic,
)
from brokers.embedded import Broker
from soapjms import CallFailedError, CallTimeoutError, Client, Dispatcher, UsageError
from soapjms.client.replies import ExclusiveReplies, OnReply, Replies, SharedReplies
from soapjms.protocol import names


class TestFixedReplies(Peers):
    """`replyToName` and `topicReplyToName`."""

    @pytest.mark.usefixtures("served")
    def test_reply_to_name(self, connection: Connection) -> None:
        """Replies come to the queue that `replyToName` names; the requestURI does not hold it."""
        with Client(connection, URI + "?replyToName=answers", timeout=PATIENCE) as client:
            response = client.call(envelope("Ann"))
        assert text_of(response) == "Hello Ann"
        assert response.request.reply_to == response.message.destination == queue("answers")
        assert response.request.properties.value(names.REQUEST_URI) == URI
        assert response.findings() == ()

    def test_topic_reply_to_name(self, connection: Connection, other: Connection) -> None:
        """Replies may come by a topic; a selector keeps another client's away."""
        with (
            responder(other, GREETER, lambda request: [answer_to(request, "by topic")]),
            Client(connection, URI + "?topicReplyToName=answers", timeout=PATIENCE) as client,
            Client(other, URI + "?topicReplyToName=answers", timeout=PATIENCE) as second,
        ):
            response = client.call(envelope())
            assert text_of(second.call(envelope())) == "by topic"
            assert text_of(client.call(envelope())) == "by topic"
        assert client.counts["foreign"] == second.counts["foreign"] == 0
        assert text_of(response) == "by topic"
        assert response.request.reply_to == topic("answers")

    @pytest.mark.parametrize("uri", [URI + "?replyToName=greeter", "jms:topic:a?topicReplyToName=a"])
    def test_own_destination(self, connection: Connection, uri: str) -> None:
        """Replies do not go where the requests go."""
        with pytest.raises(UsageError, match="the client would read its own requests"):
            Client(connection, uri)

    def test_same_name_of_another_kind(self, connection: Connection) -> None:
        """A topic for replies may be called as the queue of the requests."""
        Client(connection, URI + "?topicReplyToName=greeter").close()


@contextmanager
def answering_2009(connection: Connection) -> Iterator[None]:
    """Answer as the 2009 edition has it: the response repeats the JMSMessageID."""

    def answers(request: Message) -> list[Message]:
        return [answer_to(request, f"for {request.message_id}", names.CR_2009)]

    with responder(connection, GREETER, answers):
        yield


class InterruptedOnce(Wrapped):
    """A connection whose first sender is interrupted once the broker has the message."""

    def __init__(self, inner: Connection, error: BaseException) -> None:
        super().__init__(inner)
        self._errors = [error]

    def begin_send(self, *arguments: Any, **options: Any) -> Callable[[], bool]:
        """Send, and raise the error the first time."""
        give_up = self.inner.begin_send(*arguments, **options)
        if self._errors:
            raise self._errors.pop()
        return give_up


class TestEdition2009(Peers):
    """A responder of the 2009 edition repeats the JMSMessageID, which a sender may never be told."""

    @pytest.fixture
    def client(self, connection: Connection) -> Iterator[Client]:
        with Client(connection, URI, profile=names.CR_2009, timeout=PATIENCE) as client:
            yield client

    def test_with_our_dispatcher(self, client: Client, other: Connection) -> None:
        """Client and dispatcher of that edition understand each other, with many calls under way."""
        with Dispatcher(other, URI, greeter(), profile=names.CR_2009):
            futures = {str(number): client.submit(envelope(str(number))) for number in range(20)}
            for number, future in futures.items():
                response = future.result(PATIENCE)
                assert text_of(response) == f"Hello {number}"
                assert response.message.correlation_id != response.request.correlation_id
        assert client.counts == {}

    def test_a_place_for_each_call_under_way(self, client: Client, other: Connection, broker: Broker) -> None:
        """Calls under way have different reply destinations; later calls use them again."""
        with arrivals(other, GREETER) as found:
            free = Semaphore(0)
            for _ in range(3):  # callbacks run once the destination is free again
                client.submit(envelope()).add_done_callback(lambda _: free.release())
            requests = found.take(3)
            assert len({request.reply_to for request in requests}) == 3
            for request in requests:
                other.send(answer_to(request, profile=names.CR_2009))
            assert all(free.acquire(timeout=PATIENCE) for _ in range(3))
        with answering_2009(other):
            for _ in range(5):
                used = client.call(envelope()).request.reply_to
                assert used in {request.reply_to for request in requests}
        assert len([each for each in broker.destinations() if each.kind.is_temporary]) == 3

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), InterruptedError("by a signal handler")])
    def test_interrupted_as_it_was_sent(self, connection: Connection, other: Connection, error: BaseException) -> None:
        """A call after one that was interrupted does not get that one's reply."""
        go_on = Event()

        service = soapjms.Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: soapjms.Request) -> etree._Element:
            if request.element.text == "interrupted":
                assert go_on.wait(PATIENCE)
            return element("greetMeResponse", request.element.text or "")

        sending = InterruptedOnce(connection, error)
        with (
            Dispatcher(other, URI, service, profile=names.CR_2009, workers=1),
            Client(sending, URI, profile=names.CR_2009, timeout=PATIENCE) as client,
        ):
            with pytest.raises(type(error)):
                client.call(envelope("interrupted"))
            assert client.under_way == 0
            later = client.submit(envelope("later"))
            go_on.set()
            assert text_of(later.result(PATIENCE)) == "later"

    def test_second_reply(self, client: Client, other: Connection) -> None:
        """A second copy of a reply is not handed to the call that has the destination next."""
        with arrivals(other, GREETER) as found:
            first = client.submit(envelope())
            request = found.next()
            other.send(answer_to(request, "first", names.CR_2009))
            free = Event()
            first.add_done_callback(lambda _: free.set())  # callbacks run once the destination is free again
            assert text_of(first.result(PATIENCE)) == "first"
            assert free.wait(PATIENCE)
            second = client.submit(envelope())
            following = found.next()
            assert following.reply_to == request.reply_to
            other.send(answer_to(request, "first", names.CR_2009))
            eventually(lambda: client.counts == {"duplicate": 1}, "the second copy was counted")
            other.send(answer_to(following, "second", names.CR_2009))
            assert text_of(second.result(PATIENCE)) == "second"

    def test_without_correlation_id(self, client: Client, other: Connection) -> None:
        """A message without JMSCorrelationID is no reply."""

        def answers(request: Message) -> list[Message]:
            return [
                answer_to(request, "nobody's", correlation_id=None),
                answer_to(request, "ours", names.CR_2009),
            ]

        with responder(other, GREETER, answers):
            assert text_of(client.call(envelope())) == "ours"
        assert client.counts == {"unknown": 1}

    def test_never_used_again(self, client: Client, other: Connection) -> None:
        """A destination whose call ended without its reply is not used again: a late reply finds nobody."""
        with arrivals(other, GREETER) as found:
            forgotten = client.submit(envelope(), timeout=1)
            cancelled = client.submit(envelope())
            lost = found.take(2)
            cancelled.cancel()
            with pytest.raises(CallTimeoutError):
                forgotten.result(PATIENCE)
            waiting = client.submit(envelope())
            request = found.next()
            assert request.reply_to not in {each.reply_to for each in lost}
            for each in lost:
                other.send(answer_to(each, "late", names.CR_2009))
            other.send(answer_to(request, "in time", names.CR_2009))
            assert text_of(waiting.result(PATIENCE)) == "in time"

    def test_close(self, client: Client, other: Connection) -> None:
        """Closing fails what is under way."""
        with answering_2009(other):
            client.call(envelope())
        future = client.submit(envelope())
        client.close()
        with pytest.raises(CallFailedError, match="the client was closed"):
            future.result(PATIENCE)
        with pytest.raises(UsageError, match="closed"):
            client.call(envelope())

    def test_fixed_reply_destination(self, connection: Connection, other: Connection) -> None:
        """With a fixed reply destination, a responder that repeats the JMSCorrelationID is understood."""
        uri = URI + "?replyToName=answers"
        with (
            Client(connection, uri, profile=names.CR_2009, timeout=PATIENCE) as client,
            responder(other, GREETER, lambda request: [answer_to(request, "hello")]),
        ):
            assert text_of(client.call(envelope())) == "hello"


class Renewed(Wrapped):
    """A connection that was lost and made anew: the test says which generation it is in."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.now = 1

    @property
    def generation(self) -> int:
        return self.now


KINDS: list[Callable[[Connection, OnReply], Replies]] = [
    lambda connection, on_reply: SharedReplies(connection, None, None, on_reply),
    ExclusiveReplies,
]


@pytest.mark.parametrize("make", KINDS)
class TestPlaces(Peers):
    """The places themselves."""

    def test_generations(self, connection: Connection, make: Callable[[Connection, OnReply], Replies]) -> None:
        """A temporary destination is not used beyond its generation of the connection."""
        renewed = Renewed(connection)
        replies = make(renewed, lambda message, key, stray: None)
        first = replies.lease("a")
        replies.end("a", reusable=True)
        assert replies.lease("b") == first
        replies.end("b", reusable=True)
        renewed.now = 2
        second = replies.lease("c")
        assert second != first
        replies.end("c", reusable=True)
        assert replies.lease("d") == second

    def test_closed(self, connection: Connection, make: Callable[[Connection, OnReply], Replies]) -> None:
        """Once closed, there are none."""
        replies = make(connection, lambda message, key, stray: None)
        replies.lease("a")
        replies.close()
        replies.close()
        replies.end("a", reusable=True)
        with pytest.raises(ClosedError, match="the client is closed"):
            replies.lease("b")

    def test_at_once(
        self, connection: Connection, broker: Broker, make: Callable[[Connection, OnReply], Replies]
    ) -> None:
        """Threads that ask at the same time get what each of them needs, and no more is made."""
        replies = make(connection, lambda message, key, stray: None)
        together = Barrier(8)

        def lease(number: int) -> Destination:
            together.wait(PATIENCE)
            return replies.lease(str(number))

        with ThreadPoolExecutor(8) as threads:
            leased = set(threads.map(lease, range(8)))
        assert len(leased) == (8 if replies.by_place else 1)
        assert set(broker.destinations()) == leased

    def test_refused(
        self, connection: Connection, broker: Broker, make: Callable[[Connection, OnReply], Replies]
    ) -> None:
        """If the broker refuses to subscribe, the destination that was made for that ends."""
        replies = make(Refusing(connection), lambda message, key, stray: None)
        for _ in range(3):
            with pytest.raises(BrokerError, match="not authorized"):
                replies.lease("a")
        assert broker.destinations() == []

    def test_consumer_that_was_gone(
        self, connection: Connection, make: Callable[[Connection, OnReply], Replies]
    ) -> None:
        """Consumers and destinations that ended with their connection are closed all the same, each of them."""
        tried = list[Destination]()

        class Gone(Wrapped):
            def _consume(self, options: Any, on_delivery: Any) -> Any:
                consumer = super()._consume(options, on_delivery)
                consumer.close()
                return EndedConsumer()

            def end_temporary(self, destination: Any) -> None:
                tried.append(destination)
                raise ConnectionLostError("gone")

        replies = make(Gone(connection), lambda message, key, stray: None)
        leased = {replies.lease(each) for each in "abc"}
        replies.close()
        assert sorted(tried, key=str) == sorted(leased, key=str)


class TestHungBroker(Peers):
    """Destinations of single calls, while the broker does not answer."""

    def test_few_destinations_are_opened_for_many_calls(
        self, connection: Connection, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Calls that give up leave few requests behind; what these open at last serves later calls."""
        monkeypatch.setattr("soapjms.client.replies.DESTINATION_GRACE_SECONDS", 0.01)
        answers, asked = Event(), Semaphore(0)

        class Hung(Wrapped):
            def temporary(self, *args: Any, **options: Any) -> Destination:
                asked.release()
                answers.wait(PATIENCE)
                return super().temporary(*args, **options)

        replies = ExclusiveReplies(Hung(connection), lambda message, key, stray: None)
        for number in range(20):
            with pytest.raises(NotSentError, match="did not create a reply destination in time"):
                replies.lease(str(number), 0.0)
        answers.set()
        opened = sum(asked.acquire(timeout=PATIENCE) for _ in range(4))
        eventually(lambda: len(broker.destinations()) == opened)
        leased = {replies.lease(str(number)) for number in range(4)}
        assert leased == set(broker.destinations())
        assert not asked.acquire(blocking=False)
        replies.close()
        assert broker.destinations() == []

    def test_calls_without_replies_leave_few_threads(self, connection: Connection) -> None:
        """Ending the destinations of many calls that got no reply keeps few threads waiting for the broker."""
        answers, waiting = Event(), Semaphore(0)

        class Hung(Wrapped):
            def end_temporary(self, destination: Destination) -> None:
                waiting.release()
                answers.wait(PATIENCE)
                super().end_temporary(destination)

        before = active_count()
        with Client(Hung(connection), "jms:queue:nobody", replies="exclusive", timeout=0.1) as client:
            for future in [client.submit(envelope()) for _ in range(20)]:
                with pytest.raises(CallTimeoutError):
                    future.result(PATIENCE)
            assert all(waiting.acquire(timeout=PATIENCE) for _ in range(4))
            assert active_count() - before < 15
            answers.set()


class EndedConsumer(Consumer):
    """A consumer whose connection is lost."""

    def close(self) -> None:
        raise ConnectionLostError("gone")
