"""A broker that lives and reads nothing: no caller waits beyond its time; what was not sent is never carried out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Event

import pytest
from calling_kit import PATIENCE, envelope, eventually, fresh, greeter, text_of
from proxy_kit import Proxy, Way
from real_brokers import RealBroker, start_activemq

import soapjms
from brokers import Connection, Delivery, Message, MessageType, NotSentError, queue
from soapjms import CallFailedError, Client, Dispatcher
from soapjms.protocol.errors import PingFailedError, SendOutcome

CALLERS = 12
TIMEOUT = 1.0
LATE = 3.0
"""Seconds beyond its time-out after which no caller is held up, on a busy machine; else it is half a second."""

LARGE = 400_000
"""Octets of a request: a few fill all that is between us and who does not read."""

PROTOCOLS = ("stomp", "amqp")

SCHEMES = {"stomp": "stomp", "amqp": "amqp", "ws": "amqp+ws"}
"""By the name of a broker's port."""

WAYS = (
    "activemq stomp",
    "activemq amqp",
    "artemis stomp",
    "artemis ws",
    pytest.param("artemis amqp", marks=pytest.mark.soak),
)


@pytest.fixture
def broker(request: pytest.FixtureRequest, way: str) -> RealBroker:
    """The broker that a way leads to."""
    found: RealBroker = request.getfixturevalue(way.partition(" ")[0])
    return found


@pytest.fixture
def proxy(broker: RealBroker, way: str) -> Iterator[Proxy]:
    with Proxy(broker.host, getattr(broker.ports, way.partition(" ")[2])) as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: Proxy, way: str) -> Iterator[Connection]:
    """The client's connection; it would not notice within the test that its signs of life are not heard."""
    scheme = SCHEMES[way.partition(" ")[2]]
    with soapjms.connect(f"{scheme}://admin:admin@127.0.0.1:{proxy.port}") as connection:
        yield connection


@contextmanager
def timely(seconds: float = TIMEOUT) -> Iterator[None]:
    """Check that something does not take much longer than so many seconds."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds + LATE


def call(client: Client, text: str) -> CallFailedError | None:
    """Call, and return why that failed, in time."""
    with timely():
        try:
            client.call(envelope(text), timeout=TIMEOUT)
        except CallFailedError as error:
            return error
        return None


def send(client: Client, text: str) -> CallFailedError | None:
    """Send, likewise."""
    with timely():
        try:
            client.send(envelope(text), timeout=TIMEOUT)
        except CallFailedError as error:
            return error
        return None


def bodies(connection: Connection, name: str) -> list[str]:
    """Take all that is in a queue; return the beginning of each text."""
    found: SimpleQueue[Delivery] = SimpleQueue()
    texts = []
    with connection.consume(queue(name), found.put, auto_accept=True, prefetch=100):
        while True:
            try:
                body = found.get(timeout=1 if "last" in texts else PATIENCE).message.body
            except Empty:
                return texts
            assert isinstance(body, bytes)
            texts.append(body.partition(b"#")[2].partition(b"#")[0].decode())


@pytest.mark.broker
@pytest.mark.parametrize("way", WAYS)
class TestDeaf:
    """What is between us and the broker takes nothing more; its signs of life still come."""

    def test_calls(self, proxy: Proxy, connection: Connection, broker: RealBroker) -> None:
        """Each ends in time, again and again; then all is well, in the same session."""
        uri = f"jms:queue:{fresh()}"
        with (
            soapjms.connect(broker.amqp_url) as other,
            Dispatcher(other, uri, greeter()),
            Client(connection, uri, timeout=PATIENCE) as client,
            ThreadPoolExecutor(CALLERS) as callers,
        ):
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            proxy.silence(Way.UP)
            for _ in range(2):
                futures = [callers.submit(call, client, "x" * LARGE) for _ in range(CALLERS)]
                assert all(each.result(PATIENCE) for each in futures)
            with timely(), pytest.raises(PingFailedError):
                client.ping(TIMEOUT)
            proxy.speak()
            assert text_of(client.call(envelope("Eve"))) == "Hello Eve"
            assert client.ping(PATIENCE) > 0
            assert connection.generation == 1

    def test_first_call(self, proxy: Proxy, connection: Connection) -> None:
        """So it is where the destination for the replies is still to be made; the next finds it."""
        uri = f"jms:queue:{fresh()}"
        with Client(connection, uri) as client, ThreadPoolExecutor(CALLERS) as callers:
            proxy.silence(Way.UP)
            for each in [callers.submit(call, client, "x") for _ in range(CALLERS)]:
                failed = each.result(PATIENCE)
                assert failed is not None
                assert failed.outcome is SendOutcome.NOT_SENT
            proxy.speak()
            with Dispatcher(connection, uri, greeter()):
                assert text_of(client.call(envelope("Eve"), timeout=PATIENCE)) == "Hello Eve"

    def test_what_was_not_sent(self, proxy: Proxy, connection: Connection, broker: RealBroker) -> None:
        """It is never carried out; what was, or may have been, says so."""
        name = fresh()
        with Client(connection, f"jms:queue:{name}") as client, ThreadPoolExecutor(CALLERS) as callers:
            client.send(envelope("#first#"), timeout=PATIENCE)
            proxy.silence(Way.UP)
            texts = [f"#{number}#" for number in range(2 * CALLERS)]
            said = dict(zip(texts, callers.map(lambda each: send(client, each + "x" * LARGE), texts), strict=True))
            proxy.speak()
            client.send(envelope("#last#"), timeout=PATIENCE)
        not_sent = {
            each.strip("#") for each, why in said.items() if why is not None and why.outcome is SendOutcome.NOT_SENT
        }
        assert len(not_sent) >= CALLERS // 2
        with soapjms.connect(broker.amqp_url) as other:
            found = bodies(other, name)
        assert {"first", "last"} <= set(found)
        assert not not_sent & set(found)
        assert len(found) == len(set(found))

    def test_what_has_no_end(self, proxy: Proxy, connection: Connection) -> None:
        """Who gives no time waits for as long as it takes; who gives some gets an error that says how it is."""
        name = fresh()
        message = Message(message_type=MessageType.BYTES, body=b"x" * LARGE, destination=queue(name))
        connection.send(message).result(PATIENCE)
        proxy.silence(Way.UP)
        with ThreadPoolExecutor(2 * CALLERS) as sending:
            patient = [sending.submit(lambda: connection.send(message).result(PATIENCE)) for _ in range(2 * CALLERS)]
            time.sleep(TIMEOUT)
            with timely(0.5), pytest.raises(NotSentError):
                connection.send(message, timeout=0.5).result(PATIENCE)
            proxy.speak()
            for each in patient:
                each.result(PATIENCE)


@pytest.mark.broker
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("memory", "store"), [("1mb", "1gb"), pytest.param("128mb", "4mb", marks=pytest.mark.soak)])
def test_full_broker(memory: str, store: str, protocol: str) -> None:
    """ActiveMQ Classic that has no room, and lets producers wait: each call ends in time; with room all is well."""
    uri, room = f"jms:queue:{fresh()}", Event()

    def take(delivery: Delivery) -> None:
        """Make room, once the test wants some: a broker that is full may let nobody begin to."""
        assert room.wait(2 * PATIENCE)
        delivery.accept()

    with start_activemq(memory=memory, store=store) as full:
        url = getattr(full, f"{protocol}_url")
        with (
            soapjms.connect(url) as other,
            other.consume(queue(uri.rpartition(":")[2]), take),
            soapjms.connect(url) as connection,
            Client(connection, uri) as client,
        ):
            with ThreadPoolExecutor(CALLERS) as callers:
                for _ in range(3):
                    futures = [callers.submit(call, client, "x" * LARGE) for _ in range(CALLERS)]
                    assert all(each.result(PATIENCE) for each in futures)
            room.set()
            if store != "4mb":  # what is on the disk stays there for a while
                eventually(lambda: is_well(client), "it reads again")


def is_well(client: Client) -> bool:
    """Say whether a message goes through the broker."""
    try:
        client.ping(TIMEOUT)
    except PingFailedError:
        return False
    return True
