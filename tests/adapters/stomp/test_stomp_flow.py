"""brokers.stomp: consumers with `auto_accept`, which lose nothing and pile nothing up, on both brokers."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Event

import pytest
from proxy_kit import Proxy
from real_brokers import RealBroker
from stomp_kit import PATIENCE, Inbox, accepting, message_to, send, wait_until

import brokers
from brokers import Delivery, queue
from brokers.stomp import Reconnect, StompConnection

NUMBER = 60


def body_of(delivery: Delivery) -> int:
    """Return the number that a message carries."""
    assert isinstance(delivery.message.body, bytes)
    return int(delivery.message.body)


def send_numbers(connection: StompConnection, name: str) -> None:
    """Send messages with numbers for bodies."""
    send(connection, *(message_to(queue(name), b"%d" % number) for number in range(NUMBER)))


@pytest.mark.broker
class TestFlow:
    """What is on the way to a consumer that is slow, that closes, whose connection goes."""

    @pytest.fixture(params=["activemq", "artemis"])
    def real(self, request: pytest.FixtureRequest) -> RealBroker:
        found: RealBroker = request.getfixturevalue(request.param)
        return found

    @pytest.fixture
    def name(self, request: pytest.FixtureRequest) -> str:
        return f"flow.{id(request)}.{request.node.originalname}"

    @pytest.fixture
    def proxy(self, real: RealBroker) -> Iterator[Proxy]:
        with Proxy(real.host, real.ports.stomp) as proxy:
            yield proxy

    @pytest.fixture
    def connection(self, proxy: Proxy) -> Iterator[StompConnection]:
        """A connection by way of the proxy."""
        with brokers.connect(proxy.stomp_url, reconnect=Reconnect(initial=0.02, maximum=0.1)) as connection:
            assert isinstance(connection, StompConnection)
            yield connection

    @pytest.fixture
    def other(self, real: RealBroker) -> Iterator[StompConnection]:
        with brokers.connect(real.stomp_url) as connection:
            assert isinstance(connection, StompConnection)
            yield connection

    @pytest.mark.parametrize("quick", [True, False])
    def test_all_arrive(self, connection: StompConnection, other: StompConnection, name: str, quick: bool) -> None:
        """Many times the prefetch, of every size, come once and in order, and are gone then."""
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox, auto_accept=True, quick=quick, prefetch=10)
        send(
            other, *(message_to(queue(name), b"%d" % number + b" " * (number % 3 * 50_000)) for number in range(NUMBER))
        )
        deliveries = [inbox.next() for _ in range(NUMBER)]
        assert [body_of(each) for each in deliveries] == list(range(NUMBER))
        deliveries[0].accept()
        deliveries[1].release()
        deliveries[2].reject("too late")
        consumer.close()
        rest = accepting()
        with other.consume(queue(name), rest):
            assert rest.nothing()

    def test_slow_consumer(self, connection: StompConnection, other: StompConnection, name: str) -> None:
        """What it does not take stays with the broker, for others, but for the prefetch."""
        go_on, mine, rest = Event(), SimpleQueue[int](), accepting()

        def take(delivery: Delivery) -> None:
            mine.put(body_of(delivery))
            go_on.wait(PATIENCE)

        connection.consume(queue(name), take, auto_accept=True, prefetch=8)
        send_numbers(other, name)
        first = mine.get(timeout=PATIENCE)
        with other.consume(queue(name), rest, prefetch=10):
            seen = [body_of(rest.next()) for _ in range(NUMBER - 8)]
            assert rest.nothing()
        go_on.set()
        seen += [first] + [mine.get(timeout=PATIENCE) for _ in range(7)]
        assert sorted(seen) == list(range(NUMBER))

    def test_closed_midway(self, connection: StompConnection, other: StompConnection, name: str) -> None:
        """What it was done with is gone; what it had under way goes to others, as what it had not begun."""
        seen, rest = list[int](), accepting()

        def take(delivery: Delivery) -> None:
            seen.append(body_of(delivery))
            if len(seen) == 20:
                consumer.close()

        send_numbers(other, name)
        consumer = connection.consume(queue(name), take, auto_accept=True, prefetch=15)
        wait_until(lambda: len(seen) == 20)
        consumer.close()
        with other.consume(queue(name), rest):
            others = [body_of(rest.next()) for _ in range(NUMBER - 19)]
            assert rest.nothing()
        assert seen == list(range(20))
        assert sorted(others) == list(range(19, NUMBER))

    def test_cut_midway(self, proxy: Proxy, connection: StompConnection, other: StompConnection, name: str) -> None:
        """Nothing is lost; what the broker was not told of comes again."""
        seen = SimpleQueue[int]()

        def take(delivery: Delivery) -> None:
            number = body_of(delivery)
            seen.put(number)
            if number in (20, 40) and delivery.generation < 3:
                proxy.cut()

        send_numbers(other, name)
        connection.consume(queue(name), take, auto_accept=True, prefetch=15)
        missing = set(range(NUMBER))
        while missing:
            missing.discard(seen.get(timeout=PATIENCE))
        assert connection.generation > 1

    def test_temporary_queue_cut(self, proxy: Proxy, connection: StompConnection, name: str) -> None:
        """What had come when the connection went is handed over still, as nobody delivers it again."""
        seen, may_go_on, lost = list[bytes](), Event(), Event()
        destination = connection.temporary()

        def take(delivery: Delivery) -> None:
            may_go_on.wait(PATIENCE)
            seen.append(bytes(delivery.message.body or b""))  # type: ignore[arg-type]

        connection.watch(lambda state: lost.set())
        connection.consume(destination, take, auto_accept=True, prefetch=10)
        marker = Inbox()
        connection.consume(queue(name), marker, auto_accept=True)
        send(connection, *(message_to(destination, b"%d" % number) for number in range(5)), message_to(queue(name)))
        marker.next()  # what was sent before has come as well
        proxy.cut()
        assert lost.wait(PATIENCE)
        may_go_on.set()
        wait_until(lambda: len(seen) == 5)
