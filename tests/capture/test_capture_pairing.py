"""The same calls as the clients, the services and a tap recorded them over STOMP: the exchanges are those made."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Final

import pytest
from calling_kit import (
    NS,
    PATIENCE,
    SOAP_11,
    SOAP_12,
    OnEachBroker,
    Wrapped,
    element,
    envelope,
    eventually,
    fresh,
    greeter,
    text_of,
)
from lxml import etree
from real_brokers import RealBroker, start_activemq

import soapjms
from brokers import Connection, MessageType, Transaction, topic
from brokers.stomp import StompConnection
from soapjms import Client, Dispatcher, Recorder, Request, Service, Tap
from soapjms.capture.recorder import from_mirror
from soapjms.protocol.exchange import Exchange, Pattern, exchanges_of
from soapjms.protocol.record import Direction, Node, Record, from_json, to_json
from soapjms.replay import replay

ON_ACTIVEMQ: Final = pytest.mark.broker

PLAIN: Final = ("Ann", "Bob", "Cem", "Dan")
"""Calls that nothing happens to: seen three times each way."""
REDELIVERED, LATE, MISSING = "redelivered", "late", "missing"
RECORDS: Final = {**dict.fromkeys(PLAIN, 6), REDELIVERED: 7, LATE: 6, MISSING: 3}
"""How many records there are of each exchange: at the client, the service, the tap."""


class CutBeforeCommit(Wrapped):
    """A connection that the network cuts when the dispatcher is about to commit."""

    def begin(self) -> Transaction:
        assert isinstance(self.inner, StompConnection)
        self.inner._link.drop()
        return self.inner.begin()


@dataclass
class Calls:
    """Makes calls of every kind on one broker, and has all of them recorded.

    `ids` holds the JMSMessageID of each request by the name in it, as the services saw it.
    """

    url: str
    client_log: Recorder
    service_log: Recorder
    name: str = field(default_factory=fresh)
    ids: dict[str, str | None] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"jms:queue:{self.name}?timeToLive=600000"

    def service(self, begun: Event | None = None, go_on: Event | None = None) -> Service:
        """Make a greeter that notes the ids; with events, it says when it began and waits until it may go on."""
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> etree._Element:
            self.ids[request.element.text or ""] = request.message.message_id
            if begun is not None and go_on is not None:
                begun.set()
                assert go_on.wait(PATIENCE)
            return element("greetMeResponse", f"Hello {request.element.text}")

        return service

    def dispatcher(self, connection: Wrapped | StompConnection, service: Service) -> Dispatcher:
        return Dispatcher(connection, self.uri, service, workers=2, recorder=self.service_log)

    def client(self, connection: StompConnection, kind: MessageType = MessageType.BYTES) -> Client:
        return Client(connection, self.uri, message_type=kind, timeout=PATIENCE, recorder=self.client_log)

    def plain(self, asking: StompConnection, serving: StompConnection) -> None:
        """In both SOAP versions and message types."""
        kinds = [(version, kind) for version in (SOAP_11, SOAP_12) for kind in (MessageType.BYTES, MessageType.TEXT)]
        with self.dispatcher(serving, self.service()):
            for name, (version, kind) in zip(PLAIN, kinds, strict=True):
                with self.client(asking, kind) as client:
                    assert text_of(client.call(envelope(name, version))) == f"Hello {name}"

    def redelivered(self, asking: StompConnection, cut: StompConnection, serving: StompConnection) -> None:
        """A service loses its connection before it commits, and another gets the request again."""
        with self.client(asking) as client:
            with self.dispatcher(CutBeforeCommit(cut), self.service()) as first:
                future = client.submit(envelope(REDELIVERED))
                eventually(lambda: first.counts["lost"] == 1, "the connection was lost before the commit")
            with self.dispatcher(serving, self.service()):
                assert text_of(future.result(PATIENCE)) == f"Hello {REDELIVERED}"

    def late(self, asking: StompConnection, serving: StompConnection) -> None:
        """An operation outlives its call; its answer still arrives where the client listens."""
        go_on = Event()
        with self.client(asking) as client, self.dispatcher(serving, self.service(Event(), go_on)):
            with pytest.raises(soapjms.CallTimeoutError):
                client.call(envelope(LATE), timeout=0.5)
            go_on.set()
            eventually(lambda: client.counts["late"] == 1, "the late answer arrived")

    def missing(self, leaving: StompConnection, serving: StompConnection) -> None:
        """The client leaves before its answer comes, which the broker then takes for nobody."""
        begun, go_on = Event(), Event()
        with self.dispatcher(serving, self.service(begun, go_on)) as dispatcher:
            self.client(leaving).submit(envelope(MISSING))
            assert begun.wait(PATIENCE)
            leaving.close()
            go_on.set()
            eventually(lambda: dispatcher.counts["client gone"] == 1, "the answer was not delivered")


@dataclass(frozen=True)
class Captured:
    """The logs, and the JMSMessageID of each request by the name in it."""

    logs: list[Path]
    ids: dict[str, str | None]


@pytest.fixture(scope="module")
def mirrored() -> Iterator[RealBroker]:
    """An ActiveMQ that copies what is sent to a queue to a topic."""
    with start_activemq(mirrored=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def captured(mirrored: RealBroker, tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Make the calls, once for all tests here."""
    folder = tmp_path_factory.mktemp("captured")
    logs = [folder / "client.jsonl", folder / "service.jsonl.gz", folder / "tap.jsonl"]
    with ExitStack() as opened:

        def connect(**options: bool) -> StompConnection:
            connection = opened.enter_context(soapjms.connect(mirrored.stomp_url, **options))
            assert isinstance(connection, StompConnection)
            return connection

        clients, services, outside = (opened.enter_context(Recorder(path)) for path in logs)
        opened.enter_context(Tap(connect(), topic("VirtualTopic.Mirror.>"), outside, from_mirror))
        calls = Calls(mirrored.stomp_url, clients, services)
        asking, serving = connect(), connect()
        calls.plain(asking, serving)
        calls.redelivered(asking, connect(reconnect=False), serving)  # or the first would get it again, too
        calls.late(asking, serving)
        calls.missing(connect(), serving)
        total = sum(RECORDS.values())
        eventually(lambda: clients.written + services.written + outside.written == total, f"{total} records")
    return Captured(logs, calls.ids)


def read(path: Path) -> list[Record]:
    """Read a log."""
    octets = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [from_json(line) for line in octets.decode().splitlines()]


def without_direction(records: Iterable[Record]) -> list[Record]:
    """Forget what the capturing nodes knew, as tools do that know nothing of SOAP."""
    return [replace(record, direction=None, node=None) for record in records]


def exchanges(records: list[Record]) -> dict[str, Exchange]:
    """Pair the records, by the exchange's id."""
    found = list(exchanges_of(records))
    assert len(found) == len({exchange.id for exchange in found})
    return {exchange.id: exchange for exchange in found}


def assert_as_made(found: dict[str, Exchange], captured: Captured) -> None:
    """Check count, ids, records merged, and which exchange has a response."""
    by_name = {name: found.pop(str(message_id)) for name, message_id in captured.ids.items()}
    assert found == {}
    assert {name: exchange.records for name, exchange in by_name.items()} == RECORDS
    for name, exchange in by_name.items():
        assert exchange.pattern is Pattern.REQUEST_RESPONSE
        assert exchange.request is not None
        assert name in str(exchange.request.message.body)
        assert exchange.request.message.redelivered is (name == REDELIVERED)
        assert exchange.unpaired is (name == MISSING)
        if exchange.response is not None:
            assert f"Hello {name}" in str(exchange.response.message.body)
            assert exchange.response.message.correlation_id == exchange.request.message.correlation_id
            assert exchange.request.message.reply_to is not None
            assert exchange.response.message.destination is not None
            assert exchange.response.message.destination.name == exchange.request.message.reply_to.name is not None


@ON_ACTIVEMQ
def test_what_was_captured(captured: Captured) -> None:
    """Each observer saw what was there for it to see: nobody all of it."""
    client, service, tap = (read(path) for path in captured.logs)
    assert {record.node for record in client} == {Node.REQUESTING}
    assert {record.node for record in service} == {Node.RESPONDING}
    assert {(record.node, record.direction) for record in tap} == {(Node.TAP, None)}
    assert all(record.message.message_id is None for record in client if record.message.reply_to is not None)
    assert len([record for record in service if record.message.redelivered]) == 1
    assert (len(client), len(service), len(tap)) == (13, 14, 13)


@ON_ACTIVEMQ
def test_pairing(captured: Captured) -> None:
    """The merged logs of all three give exactly the exchanges that were made."""
    records = [record for path in captured.logs for record in read(path)]
    assert_as_made(exchanges(records), captured)


@ON_ACTIVEMQ
def test_pairing_without_direction(captured: Captured) -> None:
    """So does a copy whose records have no direction."""
    records = without_direction(record for path in captured.logs for record in read(path))
    assert_as_made(exchanges(records), captured)


@ON_ACTIVEMQ
@pytest.mark.parametrize("seen", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_pairing_of_some(captured: Captured, seen: tuple[int, ...]) -> None:
    """Any of the logs by itself, and any two, give as many exchanges, and the same ones answered."""
    records = [record for index in seen for record in read(captured.logs[index])]
    for each in (records, without_direction(records)):
        found = exchanges(each).values()
        assert len(found) == len(RECORDS)
        assert [MISSING in str(exchange.request) for exchange in found if exchange.unpaired] == [True]


@ON_ACTIVEMQ
@pytest.mark.parametrize("directions", [True, False])
def test_replay(captured: Captured, directions: bool, tmp_path: Path) -> None:
    """The replay counts the same, and finds no rule broken."""
    logs = captured.logs
    if not directions:
        records = without_direction(record for path in logs for record in read(path))
        logs = [tmp_path / "all.jsonl"]
        logs[0].write_text("".join(to_json(record) + "\n" for record in records))
    summary = replay(logs, tmp_path / "out", engine="local")
    found = summary.members
    messages = 2 * len(RECORDS) - 1
    assert (found["records"], found["messages"]) == (sum(RECORDS.values()), messages)
    assert found["exchanges"] == len(RECORDS) - 1
    assert found["unpaired"] == {"missingResponses": 1, "responsesWithoutRequest": 0}
    assert (found["one_way"], found["rejected"]) == (0, 0)
    broken = {name: counts["failed"] for name, counts in found["assertions"].items() if counts["failed"]}
    assert broken == {}
    assert summary.exit_status == 0


class TestSenderAndReceiver(OnEachBroker):
    """What both ends record of the same messages."""

    def captured(self, connection: Connection, other: Connection, name: str, folder: Path) -> list[Record]:
        """Send two one-way messages that are alike, and make a call."""
        logs = [folder / "client.jsonl", folder / "service.jsonl"]
        with (
            Recorder(logs[0]) as sender,
            Recorder(logs[1]) as receiver,
            Client(connection, f"jms:queue:{name}", timeout=PATIENCE, recorder=sender) as client,
            Dispatcher(other, f"jms:queue:{name}", greeter(), recorder=receiver),
        ):
            client.send(envelope())
            client.send(envelope())
            assert text_of(client.call(envelope())) == "Hello World"
            eventually(lambda: receiver.written == 4, "the service has recorded everything")
        return [record for log in logs for record in read(log)]

    def test_one_way(self, connection: Connection, other: Connection, name: str, tmp_path: Path) -> None:
        """A one-way message is one where both ends know an id: the broker's, or on Artemis a JMSCorrelationID."""
        records = self.captured(connection, other, name, tmp_path)
        found = list(exchanges_of(records))
        one_way = [each.records for each in found if each.pattern is Pattern.ONE_WAY]
        known = connection.capabilities
        is_one = known.tells_message_id or not known.stable_message_id
        assert one_way == ([2, 2] if is_one else [1, 1, 1, 1])
        (call,) = [each for each in found if each.pattern is not Pattern.ONE_WAY]
        assert (call.pattern, call.unpaired, call.records) == (Pattern.REQUEST_RESPONSE, False, 4)

    def test_the_sender_of_a_request(
        self, connection: Connection, other: Connection, name: str, tmp_path: Path
    ) -> None:
        """The id that the broker told is that which the receiver sees, and the request is before its response."""
        records = self.captured(connection, other, name, tmp_path)
        ids = {record.node: record.message.message_id for record in records if record.direction is Direction.REQUEST}
        told = ids[Node.RESPONDING] if connection.capabilities.tells_message_id else None
        assert ids[Node.REQUESTING] == told
        assert ids[Node.RESPONDING] is not None
        calls = [record for record in records if record.node is Node.REQUESTING]
        assert [record.direction for record in calls] == [Direction.REQUEST, Direction.RESPONSE]
        assert calls[0].time <= min(record.time for record in records if record.direction is Direction.RESPONSE)
