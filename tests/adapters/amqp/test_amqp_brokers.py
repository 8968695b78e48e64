"""brokers.amqp on real brokers: SOAP calls, STOMP on the other side, refusals, a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from calling_kit import (
    NS,
    PATIENCE,
    REAL_BROKERS,
    arrivals,
    envelope,
    eventually,
    fresh,
    greeter,
    text_of,
)
from proton import Terminus
from real_brokers import RealBroker, start_activemq, start_artemis

import soapjms
from brokers import (
    BrokerError,
    Connection,
    ConnectionFailedError,
    ConnectionState,
    DestinationKind,
    LoginRefusedError,
    Message,
    MessageType,
    SendFailedError,
    UnsupportedError,
    connect,
    properties,
    queue,
    topic,
)
from brokers.amqp import AmqpConnection, Reconnect
from soapjms import Client, Dispatcher

pytestmark = pytest.mark.broker

SIDES = [("amqp", "amqp"), ("amqp", "stomp"), ("stomp", "amqp"), ("ws", "ws"), ("ws", "stomp")]


@pytest.fixture(params=REAL_BROKERS)
def product(request: pytest.FixtureRequest) -> RealBroker:
    """Run both real brokers, one after the other."""
    broker: RealBroker = request.getfixturevalue(request.param)
    return broker


@pytest.fixture(params=SIDES, ids="-".join)
def sides(request: pytest.FixtureRequest, product: RealBroker) -> Iterator[tuple[Connection, Connection]]:
    """Connect a client and a service, each in its protocol."""
    first, second = (getattr(product, f"{protocol}_url") for protocol in request.param)
    with connect(first) as client, connect(second) as service:
        yield client, service


def test_soap_calls(sides: tuple[Connection, Connection]) -> None:
    """A SOAP call and a fault, whichever protocol client and service speak with the broker."""
    ours, theirs = sides
    uri = f"jms:queue:{fresh()}"
    with Dispatcher(theirs, uri, greeter()), Client(ours, uri, timeout=PATIENCE) as client:
        response = client.call(envelope("Zoë"), soap_action="urn:greetMe")
        assert text_of(response) == "Hello Zoë"
        assert response.message.message_type is MessageType.BYTES
        # Over STOMP every property is sent as a string, which AMQP shows.
        broken = set() if theirs.capabilities.typed_properties else {"Local-2.2.3-isFaultType"}
        assert {verdict.assertion for verdict in response.findings()} <= broken
        fault = client.call(envelope("Ann", operation="fail"))
        with pytest.raises(soapjms.SoapFaultError, match="no such person") as caught:
            fault.raise_for_fault()
        assert caught.value.detail.findtext(f"{{{NS}}}who") == "Ann"


def targets(connection: Connection) -> list[tuple[int, str | None]]:
    """List the targets of the links that a connection sends on, as proton has them: kind and address."""
    assert isinstance(connection, AmqpConnection)
    session = connection._current()
    found = []
    with session.lock:
        assert session._machine is not None
        link = session._machine.connection.link_head(0)
        while link is not None:
            if link.is_sender:
                found.append((link.target.type, link.target.address))
            link = link.next(0)
    return found


def test_one_link_answers_everybody(product: RealBroker) -> None:
    """The dispatcher answers each client's own temporary queue, and on a queue that the client names."""
    uri = f"jms:queue:{fresh()}"
    replies = fresh("replies")
    with (
        connect(product.amqp_url) as service,
        connect(product.amqp_url) as first,
        connect(product.amqp_url) as second,
        Dispatcher(service, uri, greeter()),
        Client(first, uri, timeout=PATIENCE) as one,
        Client(second, f"{uri}?replyToName={replies}", timeout=PATIENCE) as other,
    ):
        for number in range(3):
            assert text_of(one.call(envelope(f"one {number}"))) == f"Hello one {number}"
            assert text_of(other.call(envelope(f"two {number}"))) == f"Hello two {number}"
        # One for all answers, and the way to the coordinator.
        assert sorted(targets(service)) == sorted([(Terminus.TARGET, None), (Terminus.COORDINATOR, None)])


def test_types_cross_from_amqp_to_stomp_as_text(product: RealBroker) -> None:
    """What one protocol types the other spells; text and bytes stay what they are."""
    name = fresh()
    with connect(product.amqp_url) as ours, connect(product.stomp_url) as theirs, arrivals(theirs, queue(name)) as got:
        for kind, body in ((MessageType.BYTES, b"\0\xff"), (MessageType.TEXT, "Zoë")):
            sent = Message(
                message_type=kind,
                body=body,
                destination=queue(name),
                correlation_id="c-1",
                properties=properties({"yes": True, "number": 5}),
            )
            ours.send(sent).result(PATIENCE)
            received = got.next()
            assert (received.message_type, received.body, received.correlation_id) == (kind, body, "c-1")
            assert (received.properties.text("yes"), received.properties.text("number")) == ("true", "5")


def test_the_sender_may_choose_the_message_id(product: RealBroker) -> None:
    """Other AMQP clients, and Java's, see it as the JMSMessageID."""
    name = fresh()
    with connect(product.amqp_url, message_ids=True) as connection, arrivals(connection, queue(name)) as got:
        sent = connection.send(Message(message_type=MessageType.TEXT, body="x", destination=queue(name))).result(
            PATIENCE
        )
        assert got.next().message_id == sent.message_id is not None


def test_reply_destinations_cross(product: RealBroker) -> None:
    """A temporary queue made over one protocol is understood, and reached, over the other."""
    name = fresh()
    for ours_url, theirs_url in ((product.amqp_url, product.stomp_url), (product.stomp_url, product.amqp_url)):
        with connect(ours_url) as ours, connect(theirs_url) as theirs:
            mine = ours.temporary()
            with arrivals(ours, mine) as replies, arrivals(theirs, queue(name)) as requests:
                text = Message(message_type=MessageType.TEXT, body="?", destination=queue(name), reply_to=mine)
                ours.send(text).result(PATIENCE)
                reply_to = requests.next().reply_to
                assert reply_to is not None
                theirs.send(Message(message_type=MessageType.TEXT, body="!", destination=reply_to)).result(PATIENCE)
                assert replies.next().body == "!"


def test_a_temporary_queue_that_is_a_topic(artemis: RealBroker) -> None:
    """Services over each protocol answer to it, also by a link of its own; nothing of it is left at last."""
    name, url = fresh(), f"{artemis.amqp_url}?temporaryQueues=topics"
    with connect(url) as client, arrivals(client, mine := client.temporary()) as replies:
        assert mine.name in artemis.counters().temporaries
        text = Message(message_type=MessageType.TEXT, body="?", destination=queue(name), reply_to=mine)
        for other, options in ((artemis.stomp_url, {}), (artemis.amqp_url, {"anonymous_relay": False}), (url, {})):
            with connect(other, **options) as service, arrivals(service, queue(name)) as requests:
                client.send(text).result(PATIENCE)
                reply_to = requests.next().reply_to
                assert reply_to is not None
                assert reply_to.kind is DestinationKind.TEMPORARY_QUEUE
                service.send(Message(message_type=MessageType.TEXT, body="!", destination=reply_to)).result(PATIENCE)
                assert replies.next().body == "!"
    eventually(lambda: mine.name not in artemis.counters().temporaries, "it is gone")
    with connect(artemis.amqp_url, anonymous_relay=False) as service:
        late = Message(message_type=MessageType.TEXT, body="late", destination=mine)
        assert isinstance(service.send(late).exception(PATIENCE), SendFailedError | None)
    assert mine.name not in artemis.counters().messages


@pytest.mark.parametrize(
    ("setting", "heard"),
    [
        ("", {"stomp": True, "amqp topics": True, "amqp": False}),
        (
            "<wildcard-addresses><routing-enabled>false</routing-enabled></wildcard-addresses>",
            {"stomp": False, "amqp topics": False, "amqp": False},
        ),
    ],
    ids=["usual", "no patterns"],
)
def test_who_listens_to_all_on_artemis(artemis: RealBroker, setting: str, heard: dict[str, bool]) -> None:
    """Who subscribes to a pattern gets what goes to temporary queues that are topics, unless the broker has none."""
    running = start_artemis(setting=setting) if setting else nullcontext(artemis)
    with running as broker, connect(broker.amqp_url) as other:
        urls = {
            "stomp": broker.stomp_url,
            "amqp topics": f"{broker.amqp_url}?temporaryQueues=topics",
            "amqp": broker.amqp_url,
        }
        found = {}
        for way, url in urls.items():
            listened: list[object] = []
            with (
                connect(url) as owner,
                arrivals(owner, mine := owner.temporary()) as replies,
                other.consume(topic("#"), lambda each, got=listened: got.append(each.message.body), auto_accept=True),
                arrivals(other, topic(mark := fresh())) as marks,
            ):
                owner.send(Message(message_type=MessageType.TEXT, body="!", destination=mine)).result(PATIENCE)
                assert replies.next().body == "!"
                other.send(Message(message_type=MessageType.TEXT, body=mark, destination=topic(mark))).result(PATIENCE)
                assert marks.next().body == mark
                if not setting:  # the mark comes behind it
                    eventually(lambda got=listened, last=mark: last in got, "the mark was listened to")
                found[way] = "!" in listened
            where = mine.name or mine.address
            eventually(lambda gone=where: gone not in broker.counters().temporaries, "it is gone")
        assert found == heard


def test_topics_for_temporary_queues_elsewhere(activemq: RealBroker) -> None:
    """Only on Artemis they are; another broker's user is told so."""
    with connect(f"{activemq.amqp_url}?temporaryQueues=topics") as connection:
        with pytest.raises(
            UnsupportedError, match=r"temporaryQueues=topics is for Artemis, which .* is not: leave it out"
        ):
            connection.temporary()
        assert connection.temporary(DestinationKind.TEMPORARY_TOPIC).kind is DestinationKind.TEMPORARY_TOPIC


def test_a_user_who_may_not(artemis: RealBroker) -> None:
    """What a broker forbids is an error of the send or the consumer that it forbids, and of nobody else."""
    url = artemis.amqp_url.replace("admin:admin", "limited:limited")
    forbidden = queue("forbidden.orders")
    with connect(url) as limited:
        message = Message(message_type=MessageType.TEXT, body="x", destination=forbidden)
        error = limited.send(message).exception(PATIENCE)
        with pytest.raises(SendFailedError, match="amqp:unauthorized-access"):
            raise error or AssertionError("it was taken")
        with pytest.raises(BrokerError, match=r"forbidden\.orders"):
            limited.consume(forbidden, lambda delivery: None)
        allowed = Message(message_type=MessageType.TEXT, body="x", destination=queue(f"limited.{fresh()}"))
        limited.send(allowed).result(PATIENCE)


def test_wrong_passwords_are_refused(product: RealBroker) -> None:
    """The error says so, and names no password."""
    with pytest.raises(LoginRefusedError) as caught:
        connect(product.amqp_url.replace("admin:admin", "admin:tops3cret"), timeout=PATIENCE)
    assert "tops3cret" not in str(caught.value)


def test_urls_of_other_ports(activemq: RealBroker) -> None:
    """What answers is known by what it says, and what says nothing by what it says to other greetings."""
    ports = activemq.ports
    for url, why in {
        f"amqp://localhost:{ports.ws}": f"speaks HTTP .*; write amqp[+]ws://localhost:{ports.ws}",
        f"amqp+ws://localhost:{ports.amqp}": f"write amqp://localhost:{ports.amqp}",
        f"amqp://localhost:{ports.amqps}": f"write amqps://localhost:{ports.amqps}",
        f"amqp://localhost:{ports.openwire}": "speaks OpenWire",
        f"amqps://localhost:{ports.amqp}": f"not AMQP over TLS; write amqp://localhost:{ports.amqp} for AMQP",
        f"amqp://localhost:{ports.stomp}": f"speaks STOMP .*; write stomp://localhost:{ports.stomp} for STOMP",
    }.items():
        with pytest.raises(ConnectionFailedError, match=why):
            connect(url, timeout=PATIENCE)


def test_abandoned_replies_leave_nothing_behind(product: RealBroker) -> None:
    """A reply to a client that has left neither stays in a queue nor makes one."""
    with connect(product.amqp_url) as service:
        with connect(product.amqp_url) as client:
            gone = client.temporary()
            client.consume(gone, lambda delivery: None)
        eventually(lambda: gone.name not in product.counters().temporaries, "the broker noticed that the client left")
        before = product.counters().messages
        message = Message(message_type=MessageType.TEXT, body="late", destination=gone)
        assert isinstance(service.send(message).exception(PATIENCE), SendFailedError | None)
        service.send(Message(message_type=MessageType.TEXT, body="x", destination=service.temporary())).result(PATIENCE)
        left = {name: count for name, count in product.counters().messages.items() if name == gone.name}
        assert left == {}, before


def test_a_restarted_broker_is_found_again() -> None:
    """A connection outlives its broker: persistent messages, consumers and sends go on; temporary queues do not."""
    name = fresh()
    with start_activemq() as broker:
        options = {"timeout": PATIENCE, "reconnect": Reconnect(initial=0.05, maximum=0.2)}
        with connect(broker.amqp_url, **options) as connection, arrivals(connection, queue(name)) as got:
            mine = connection.temporary(DestinationKind.TEMPORARY_QUEUE)
            broker.kill()
            eventually(lambda: connection.state is ConnectionState.LOST, "it was lost")
            broker.start()
            connection.wait_connected(PATIENCE)
            connection.send(Message(message_type=MessageType.TEXT, body="x", destination=queue(name))).result(PATIENCE)
            assert got.next().body == "x"
            with pytest.raises(BrokerError):
                connection.consume(mine, lambda delivery: None)
