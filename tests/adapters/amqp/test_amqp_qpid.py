"""brokers.amqp with Qpid Broker-J, whose makers wrote the anonymous terminus: SOAP calls, types, and the whole matrix.

The names AT-xx are those of `docs/conformance-amqp.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from amqp_raw import ACCEPTED, REJECTED, Raw
from calling_kit import PATIENCE, arrivals, envelope, fresh, greeter, text_of
from cli_kit import said
from proton import Message as AmqpMessage
from proton import Terminus
from qpid_kit import Qpid

import soapjms
from brokers import Connection, DestinationGoneError, Message, MessageType, connect, properties, queue, topic

pytestmark = pytest.mark.broker

CONTAINERS = count(1)
CELLS = [(settled, rejects, in_transaction) for in_transaction in (0, 1) for settled in (0, 1) for rejects in (1, 0)]


@pytest.fixture(params=["amqp_url", "ws_url"])
def connection(request: pytest.FixtureRequest, qpid: Qpid) -> Iterator[Connection]:
    """Connect over TCP, and over WebSocket."""
    with connect(getattr(qpid, request.param), timeout=PATIENCE) as opened:
        yield opened


@pytest.fixture
def raw(qpid: Qpid) -> Iterator[Raw]:
    """Connect without our client."""
    with Raw(qpid.amqp, container=f"qpid-{next(CONTAINERS)}", user="admin") as client:
        yield client


def test_a_queue_that_does_not_exist(qpid: Qpid) -> None:
    """The doctor says how this broker, not another, makes one."""
    checks = said("doctor", "--connection", qpid.amqp_url, "--uri", "jms:queue:by.hand", status=1)["checks"]
    (seen,) = [each for each in checks if each["check"] == "destination"]
    assert (seen["outcome"], seen["command"].partition(" ")[0]) == ("failed", "curl")
    assert seen["command"].endswith("/queue/default/default/by.hand")


def test_soap_calls(connection: Connection) -> None:
    """Calls and their answers, over a temporary queue; nothing is broken."""
    uri = f"jms:queue:{fresh()}"
    with (
        soapjms.Dispatcher(connection, uri, greeter()),
        soapjms.Client(connection, uri, timeout=PATIENCE) as client,
    ):
        for name in ("Zoë", "Ann"):
            response = client.call(envelope(name))
            assert (text_of(response), response.findings()) == (f"Hello {name}", ())


@pytest.mark.parametrize(("kind", "body"), [(MessageType.BYTES, b"\0\xff"), (MessageType.TEXT, "Zoë")])
def test_types_are_kept(connection: Connection, kind: MessageType, body: bytes | str) -> None:
    """Of messages and of properties; the message id is the sender's."""
    name = fresh()
    stated = properties({"yes": True, "number": 5, "fraction": 0.5, "word": "w"})
    message = Message(message_type=kind, body=body, destination=queue(name), correlation_id="c", properties=stated)
    with arrivals(connection, queue(name)) as got:
        sent = connection.send(message).result(PATIENCE)
        received = got.next()
    assert (received.message_type, received.body, received.correlation_id) == (kind, body, "c")
    assert {each.name: (each.type, each.value) for each in received.properties} == {
        each.name: (each.type, each.value) for each in stated
    }
    assert received.message_id == sent.message_id is not None


@pytest.mark.parametrize("name", ["amq.topic/news", "amq.topic", "amq.fanout"])
def test_topics_are_exchanges(connection: Connection, name: str) -> None:
    """Each subscriber gets a copy, which says what it was sent to."""
    news = topic(name)
    with arrivals(connection, news) as first, arrivals(connection, news) as second:
        connection.send(Message(message_type=MessageType.TEXT, body="x", destination=news)).result(PATIENCE)
        for got in (first, second):
            received = got.next()
            assert (received.body, received.destination) == ("x", news)


def test_what_is_not_there(connection: Connection) -> None:
    """It is an error of the send, and the next one goes."""
    text = Message(message_type=MessageType.TEXT, body="x", destination=queue("nowhere"))
    assert isinstance(connection.send(text).exception(PATIENCE), DestinationGoneError)
    name = fresh()
    with arrivals(connection, queue(name)) as got:
        transaction = connection.begin()
        transaction.send(Message(message_type=MessageType.TEXT, body="in", destination=queue(name)))
        assert transaction.commit().result(PATIENCE) == ()
        assert got.next().body == "in"


def test_at15_at16_at24_what_it_offers(raw: Raw) -> None:
    """AT-15, AT-16, AT-24: as our own listener does."""
    assert "ANONYMOUS-RELAY" in raw.offered
    assert raw.attach(None).remote_target.type == Terminus.TARGET
    link = raw.attach("nowhere")
    assert (link.remote_target.type, raw.end_of(link).condition) == (Terminus.UNSPECIFIED, "amqp:not-found")


@pytest.mark.parametrize(("settled", "rejects", "in_transaction"), CELLS)
def test_the_matrix_of_outcomes(raw: Raw, settled: int, rejects: int, in_transaction: int) -> None:
    """AT-08 to AT-14, AT-21: each cell as our own listener has it, but that the last one detaches the link too."""
    link = raw.attach(None, outcomes=("accepted", "rejected") if rejects else ("accepted",))
    control = raw.control() if in_transaction else None
    transaction = raw.declare(control) if in_transaction else None
    tag = raw.send(link, AmqpMessage(address="nowhere", body="x"), settled=bool(settled), transaction=transaction)
    is_told = not settled and bool(rejects)
    if is_told:
        told = raw.outcome(tag)
        assert (told.state, told.transaction) == (REJECTED, transaction)
    elif not (settled and rejects and in_transaction):
        told = raw.end_of(link)
    else:
        told = None
    assert told is None or (told.condition, told.info) == ("amqp:not-found", {"delivery-tag": tag.encode()})
    if transaction is not None:
        ended = raw.discharge(control, transaction, fail=False)
        expected = (ACCEPTED, None) if is_told else (REJECTED, "amqp:transaction:rollback")
        assert (ended.state, ended.condition) == expected
    assert (link.name in raw.detached) is (told is not None and not is_told)
