"""Want of memory: it ends one message, or one connection that is made again, and leaves no consumer deaf.

That there is none is told by functions that fail where memory is asked for; `test_deaths` has processes without.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from calling_kit import PATIENCE, URI, Peers, arrivals, envelope, eventually, fresh, greeter, take_one, text_of
from real_brokers import RealBroker

import soapjms
from brokers import Connection, Delivery, Message, MessageType, queue
from brokers.amqp.consumer import AmqpDelivery
from brokers.amqp.receive import Inlet
from brokers.stomp.codec import Cutter
from brokers.stomp.consumer import StompDelivery
from soapjms import Client, Dispatcher
from soapjms.protocol import xml

MARK = b"takes too much"


def failing(original: Callable[..., Any], when: Callable[..., bool], times: int) -> Callable[..., Any]:
    """Wrap a function so that it fails for want of memory, so many times."""
    left = iter(range(times))

    def function(*arguments: Any, **options: Any) -> Any:
        if when(*arguments, **options) and next(left, None) is not None:
            raise MemoryError
        return original(*arguments, **options)

    return function


def fail_to_read(scheme: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no memory for a marked body, so many times."""
    function = {"stomp": "from_frame", "amqp": "from_amqp_message"}[scheme]
    original = __import__(f"brokers.{scheme}.consumer", fromlist=[function]).__dict__[function]

    def is_marked(first: Any, second: Any, *others: Any, with_body: bool = True) -> bool:
        return with_body and any(isinstance(each, bytes | bytearray) and MARK in each for each in (first, second))

    monkeypatch.setattr(f"brokers.{scheme}.consumer.{function}", failing(original, is_marked, times))


def octets(body: bytes, name: str) -> Message:
    """Make a message."""
    return Message(message_type=MessageType.BYTES, body=body, destination=queue(name))


@pytest.mark.broker
class TestConsumers:
    """On a real ActiveMQ, over both protocols."""

    @pytest.fixture(params=["stomp", "amqp"])
    def scheme(self, request: pytest.FixtureRequest) -> str:
        """The protocol."""
        found: str = request.param
        return found

    @pytest.fixture
    def connection(self, scheme: str, activemq: RealBroker) -> Iterator[Connection]:
        """A connection."""
        with soapjms.connect(getattr(activemq, f"{scheme}_url"), reconnect=True) as made:
            yield made

    def test_reader(
        self, scheme: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A connection on which nothing can be read is lost, and made again: then the message is there."""
        name = fresh()
        with arrivals(connection, queue(name)) as found:
            if scheme == "stomp":
                cut = failing(Cutter.cut, lambda cutter, data: MARK in data, 1)
                monkeypatch.setattr(Cutter, "cut", cut)
            else:
                delivered = failing(Inlet.delivered, lambda inlet, delivery: inlet.options.destination.name == name, 1)
                monkeypatch.setattr(Inlet, "delivered", delivered)
            connection.send(octets(MARK, name)).exception(PATIENCE)  # its receipt may come too late
            assert found.next().body == MARK
        assert connection.generation == 2
        assert "there is no memory for the" in caplog.text

    def test_reader_within_a_body(
        self, scheme: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Where nothing more can be read, what came of a body makes room; the message goes back, and comes again."""
        name, body = fresh(), MARK + bytes(1 << 20)
        came, fails = list[bool](), iter([True])
        kind, take = {"stomp": (Cutter, "cut"), "amqp": (Inlet, "_keep")}[scheme]
        keep = getattr(kind, take)

        def note(keeper: object, octets: bytes) -> object:
            if came or MARK in octets:
                came.append(True)
            return keep(keeper, octets)

        def recv(sock: socket.socket, *arguments: Any) -> bytes:
            if len(came) > 4 and next(fails, False):
                raise MemoryError
            return receive(sock, *arguments)

        receive = socket.socket.recv
        monkeypatch.setattr(kind, take, note)
        monkeypatch.setattr(socket.socket, "recv", recv)
        with arrivals(connection, queue(name)) as found:
            connection.send(octets(body, name)).result(PATIENCE)
            assert found.next().body == body
        assert connection.generation == 1
        assert caplog.text.count("is released: there is no memory to read it") == 1

    def test_body(
        self, scheme: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A message whose body cannot be had becomes a dead letter in the end; others are delivered meanwhile."""
        name = fresh()
        fail_to_read(scheme, 6, monkeypatch)
        with arrivals(connection, queue(name)) as found:
            connection.send(octets(MARK, name)).result(PATIENCE)
            connection.send(octets(b"next", name)).result(PATIENCE)
            assert found.next().body == b"next"
            letter = take_one(connection, queue(f"DLQ.{name}"))
        assert letter.body == MARK
        assert caplog.text.count("is released: there is no memory to read it") == 6
        assert connection.generation == 1

    def test_body_that_is_accepted_anyway(
        self, scheme: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What cannot go back is dropped, who asked for it is told why, and the next message comes."""
        name, refused, got = fresh(), list[str](), SimpleQueue[Any]()
        fail_to_read(scheme, 2, monkeypatch)
        with connection.consume(
            queue(name),
            lambda delivery: got.put(delivery.message.body),
            auto_accept=True,
            on_refused=lambda message, reason: refused.append(reason),
        ):
            for body in (MARK, MARK, b"next"):
                connection.send(octets(body, name)).result(PATIENCE)
            assert got.get(timeout=PATIENCE) == b"next"
        assert len(refused) == 2
        assert all("octets, and there is no memory to read it" in each for each in refused)

    def test_neither_handed_on_nor_given_back(
        self, scheme: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What can neither be worked on nor given back comes again with the next connection."""
        name, seen = fresh(), list[int]()
        kind = {"stomp": StompDelivery, "amqp": AmqpDelivery}[scheme]
        monkeypatch.setattr(kind, "release", failing(kind.release, lambda delivery: True, 1))

        def on_delivery(delivery: Delivery) -> None:
            seen.append(delivery.generation)
            if len(seen) == 1:
                raise MemoryError
            delivery.accept()

        with connection.consume(queue(name), on_delivery):
            connection.send(octets(b"one", name)).result(PATIENCE)
            eventually(lambda: seen == [1, 2], "it came again")


PROGRAM = """
import resource, sys, threading
from pathlib import Path
import soapjms
from lxml import etree

url, name, transactional, store = sys.argv[1:]
options = {"transactional": transactional == "True", "store": store or None}
service = soapjms.Service()

@service.operation("{urn:greeter}greetMe")
def greet(request):
    if request.element.text == "limit":
        status = Path("/proc/self/status").read_text("utf-8")
        (used,) = (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize:"))
        resource.setrlimit(resource.RLIMIT_AS, (used + (10 << 20),) * 2)
    answer = etree.Element("{urn:greeter}greetMeResponse")
    answer.text = f"Hello {request.element.text}"
    return answer

threading.stack_size(1 << 18)
with (
    soapjms.connect(url) as connection,
    soapjms.Dispatcher(connection, f"jms:queue:{name}", service, **options),
):
    sys.stdin.read()
    print("generation", connection.generation, flush=True)
"""
"""Greets; once it was told so it has 10 MiB more."""


@pytest.mark.broker
@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_larger_than_the_memory(
    protocol: str, transactional: bool, is_stored: bool, activemq: RealBroker, tmp_path: Path
) -> None:
    """What there is no room for, once it comes, is a dead letter in the end, and costs no connection."""
    name, size = fresh(), 16 << 20
    url = activemq.amqp_url if protocol == "amqp" else activemq.stomp_url
    store = str(tmp_path / "requests.db") if is_stored else ""
    with (
        soapjms.connect(activemq.amqp_url) as connection,
        Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, name, str(transactional), store],
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        assert text_of(client.call(envelope("limit"))) == "Hello limit"
        connection.send(octets(bytes(size), name)).result(PATIENCE)
        assert text_of(client.call(envelope("next"))) == "Hello next"
        assert take_one(connection, queue(f"DLQ.{name}")).size == size
        out, said = program.communicate("", PATIENCE)
    assert out == "generation 1\n"
    assert said.count("octets is released: there is no memory to read it") == 6


class TestDispatcher(Peers):
    """A service on the embedded broker."""

    def test_parsing(self, client: Client, other: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """A request for which there is no memory goes back, and is answered once there is."""
        marked = failing(xml.parse_utf8, lambda octets, limits: MARK in octets, 2)
        monkeypatch.setattr("soapjms.protocol.received_message.parse_utf8", marked)
        with Dispatcher(other, URI, greeter(), workers=1) as dispatcher:
            future = client.submit(envelope(MARK.decode()))
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            assert text_of(future.result(PATIENCE)) == f"Hello {MARK.decode()}"
            assert dispatcher.counts["out of memory"] == 2


PARSING = """
import resource
from collections import Counter
from pathlib import Path
from threading import Barrier, stack_size
from brokers.threads.thread import Thread
from soapjms.protocol import xml

piece = ("<a " + " ".join(f'a{number}=""' for number in range(40)) + "/>").encode()
body = b"<r>" + piece * ((4 << 20) // len(piece)) + b"</r>"
said, gate = Counter(), Barrier(5)

def parse():
    gate.wait()
    try:
        xml.parse(body)
    except MemoryError:
        said["no memory"] += 1

stack_size(1 << 18)
threads = [Thread(target=parse) for _ in range(4)]
for each in threads:
    each.start()
status = Path("/proc/self/status").read_text("utf-8")
(used,) = (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize:"))
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20),) * 2)
gate.wait()
for each in threads:
    each.join()
print(dict(said))
"""
"""Parses on new threads what there is no room for."""


def test_parsing_on_new_threads() -> None:
    """libxml2 finds no room for the error of a thread that had none before, and does not end the process for it."""
    done = subprocess.run(
        [sys.executable, "-c", PARSING],
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == "{'no memory': 4}\n", done.stderr[-2000:]
