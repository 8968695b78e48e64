"""The broker contract over SMQP."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any, cast

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from smqp_kit import QUICK, eventually, prepared, running

pytest.register_assert_rewrite("broker_contract_messages", "broker_contract_deliveries")

from broker_contract_deliveries import DeliveryContract, LifeCycleContract  # noqa: E402 - after the line above
from broker_contract_kit import PATIENCE, Inbox, ReachedByUrl, fresh, send, text  # noqa: E402 - as above
from broker_contract_messages import DestinationContract, MessageContract  # noqa: E402 - as above

from brokers import (  # noqa: E402 - follows the imports above
    ConnectionFailedError,
    Delivery,
    DestinationGoneError,
    Message,
    MessageType,
    NotSentError,
    SendFailedError,
    StaleDestinationError,
    TlsError,
    UsageError,
    connect,
    properties,
    queue,
    topic,
)
from brokers.smqp.adapter import SmqpConnection  # noqa: E402 - as above
from brokers.smqp.adapter import connect as connect_with  # noqa: E402 - as above
from brokers.smqp.adapter.messages import to_content, to_message  # noqa: E402 - as above
from brokers.smqp.client import ClientOptions, Received  # noqa: E402 - as above
from brokers.smqp.protocol.dialect import STRICT  # noqa: E402 - as above
from brokers.smqp.protocol.dialogue import CommandReader  # noqa: E402 - as above
from brokers.smqp.protocol.messages import SmqpLimits  # noqa: E402 - as above
from brokers.smqp.server import Right, Server  # noqa: E402 - as above


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a server for all tests."""
    with running(limits=SmqpLimits()) as server:
        yield prepared(server)


@pytest.fixture
def broker(url: str) -> ReachedByUrl:
    """Give the server."""
    return ReachedByUrl(url)


WITHOUT = {
    "test_prefetch": "a session of SMQP has one message on its way at a time, so a consumer holds one",
    "test_on_delivery_may_use_the_connection": "it commits, and SMQP has no transactions; see below for the rest",
    "test_commit_with_a_reply_to_a_client_that_left": "it commits, and SMQP has no transactions",
    "test_a_transaction_of_a_closed_connection": "SMQP has no transactions",
}
"""What of the contract SMQP cannot keep, and why; all of `TransactionContract` too, for the same reason."""


class TestContract(MessageContract, DestinationContract, DeliveryContract, LifeCycleContract):
    """The contract, but for `WITHOUT`."""


for name in WITHOUT:
    setattr(TestContract, name, None)


def test_on_delivery_may_use_the_connection(broker: ReachedByUrl) -> None:
    """`on_delivery` may send and wait for it, and subscribe, on the connection it came by."""
    requests, steps, inbox = queue(fresh()), queue(fresh()), Inbox()
    with broker.connect() as connection:

        def on_delivery(delivery: Delivery) -> None:
            connection.send(text(steps, "sent")).result(PATIENCE)
            connection.consume(steps, inbox)
            delivery.accept()

        with connection.consume(requests, on_delivery):
            send(connection, text(requests, "go"))
            assert inbox.bodies(1) == ["sent"]


def test_a_consumer_holds_one_message(broker: ReachedByUrl) -> None:
    """Whatever its prefetch: others get the next ones."""
    destination, holding, witness = queue(fresh()), Inbox(accept=False), Inbox()
    with (
        broker.connect() as connection,
        broker.connect() as other,
        connection.consume(destination, holding, prefetch=5),
    ):
        send(connection, *(text(destination, body) for body in "abc"))
        held = holding.next()
        with other.consume(destination, witness):
            assert witness.bodies(2) == ["b", "c"]
        held.accept()


def test_a_consumer_that_closes_itself(broker: ReachedByUrl) -> None:
    """Another message that has arrived meanwhile is not delivered, but goes back."""
    destination, got = queue(fresh()), SimpleQueue[object]()
    with broker.connect() as connection, broker.connect() as other:

        def on_delivery(delivery: Delivery) -> None:
            got.put(delivery.message.body)
            delivery.accept()
            eventually(lambda: not consumer._deliveries.empty(), "another has arrived")
            consumer.close()

        consumer: Any = connection.consume(destination, on_delivery)
        send(connection, text(destination, "a"), text(destination, "b"))
        assert got.get(timeout=PATIENCE) == "a"
        consumer.join(monotonic() + PATIENCE)
        inbox = Inbox()
        with other.consume(destination, inbox):
            assert inbox.bodies(1) == ["b"]
        assert got.empty()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("smqp://jms@localhost:1", "password"),
        ("smqp://localhost:1", "account"),
        ("smqp://jms:pw@localhost:0", "port"),
        ("smqp://jms:pw@localhost/path", "must end with the port"),
        ("smqp://jms:pw@localhost?color=red", "known are"),
    ],
)
def test_urls_that_cannot_be(url: str, said: str) -> None:
    """The error says what to write, and no password."""
    with pytest.raises(ValueError, match=said) as found:
        connect(url)
    assert "pw" not in str(found.value)


def test_the_wrong_password(url: str) -> None:
    """It is refused, and not shown."""
    with pytest.raises(ConnectionFailedError, match="401") as found:
        connect(url.replace(":pw@", ":s3cret@"))
    assert "s3cret" not in str(found.value)


def test_smqps() -> None:
    """With TLS, by the parameters that all adapters share."""
    authority = trustme.CA()
    servers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(servers)
    with running() as server, authority.cert_pem.tempfile() as trusted:
        prepared(server)
        _, port = server.server.listen("127.0.0.1", 0, tls=servers)
        inbox, destination = Inbox(), queue("a")
        url = f"smqps://jms:pw@localhost:{port}?caFile={trusted}"
        with connect(url) as connection, connection.consume(destination, inbox):
            send(connection, text(destination, "secret"))
            assert inbox.bodies(1) == ["secret"]
        with pytest.raises(TlsError, match=r"no connection to smqps://localhost:\d+: .*not trusted here.*caFile=FILE"):
            connect(url.partition("?")[0])


def test_topics_of_smqp_as_they_are() -> None:
    """A name that begins with a slash is a topic as it stands: messages of other programs are read, and theirs can read
    ours; nothing is created, and no subscription is left behind."""
    with running() as server:
        url = prepared(server)
        server.accounts("alice")
        server.grant("jms", "/", Right.ALL)
        server.topics("/stocks/acme")
        alice = server.client("alice")
        alice.data("SUB MESSAGE /stocks/acme")
        inbox, stocks = Inbox(), topic("/stocks/acme")
        with connect(url) as connection:
            with connection.consume(stocks, inbox):
                alice.publish("/stocks/acme", "1", "Priority: 3", data="24.5")
                assert alice.received()[-1] == "24.5"
                received = inbox.next().message
                assert (received.message_type, received.body, received.priority) == (MessageType.TEXT, "24.5", 7)
                send(connection, text(stocks, "25.0"))
                assert alice.received()[-1] == "25.0"
            assert server.server.engine.core.subscriptions.count(1) == 0
            with pytest.raises(SendFailedError, match="404"):
                connection.send(text(topic("/none"), "x")).result(PATIENCE)


def test_consumers_follow_a_renamed_queue() -> None:
    """They get what is sent to its new name, and, as they look after their own name, what is sent to the old one."""
    inbox = Inbox()
    with running(limits=SmqpLimits()) as server:
        url = prepared(server)
        server.accounts("operator", is_admin=True)
        operator = server.client("operator", listen=False)
        with (
            connect_with(url, options=ClientOptions(check=0.2)) as connection,
            connect(url) as other,
            connection.consume(queue("orders"), inbox),
        ):
            operator.data("SET TOPIC NAME /queue/orders /queue/sales")
            for name in ("sales", "orders"):
                send(other, text(queue(name), name))
            assert inbox.bodies(2) == ["sales", "orders"]


def test_a_message_whose_time_is_over(broker: ReachedByUrl) -> None:
    """It is not sent, and the session stays, whose end would be that of its temporary destinations."""
    destination = queue(fresh())
    with broker.connect() as connection:
        with pytest.raises(NotSentError, match="not sent in time"):
            connection.send(text(destination, "late"), timeout=0.0).result(PATIENCE)
        with pytest.raises(UsageError, match="timeout must be a number of seconds or None, got 'soon'"):
            connection.send(text(destination, "odd"), timeout=cast(Any, "soon"))
        send(connection, text(destination, "next"))
        assert connection.generation == 1


def test_temporary_destinations_end_with_their_connection(broker: ReachedByUrl) -> None:
    """Also when it ends without a word: a reply then fails."""
    with broker.connect() as other, broker.connect() as connection:
        mine = connection.temporary()
        assert isinstance(connection, SmqpConnection)
        connection._sender._line.close()  # as if the program had died
        eventually(lambda: connection.generation == 2, "the connection was not renewed")
        with pytest.raises(DestinationGoneError):
            other.send(text(mine, "reply")).result(PATIENCE)
        with pytest.raises(StaleDestinationError):
            connection.consume(mine, Inbox())


def test_a_queue_survives_its_server(kept_port: int, tmp_path: Path) -> None:
    """What was sent is there after a restart; consumers go on by themselves."""
    store = tmp_path / "store"
    destination, inbox = queue("orders"), Inbox(accept=False)
    options = ClientOptions(renew=(0.02, 0.1), keepalive=0.2)
    with running(store, port=kept_port) as server:
        connection = connect(prepared(server), options=options)
        consumer = connection.consume(destination, inbox)
        send(connection, text(destination, "first"), text(destination, "second"))
        assert inbox.next().message.body == "first"
    with Server(store, QUICK) as again, connection:
        again.listen("127.0.0.1", kept_port)
        first = inbox.next()
        assert (first.message.body, first.message.redelivered) == ("first", True)
        first.accept()
        second = inbox.next()
        assert second.message.body == "second"
        second.accept()
        consumer.close()


NOW = 1_767_268_800_000


@given(
    st.builds(
        Message,
        message_type=st.just(MessageType.TEXT),
        body=st.text(st.characters(codec="utf-8")),
        destination=st.just(queue("q")),
        correlation_id=st.none() | st.text(st.characters(codec="utf-8"), min_size=1),
        type=st.none() | st.text(st.characters(codec="utf-8"), min_size=1),
        priority=st.integers(0, 9),
        reply_to=st.none() | st.text(st.characters(codec="utf-8"), min_size=1).map(queue),
        properties=st.dictionaries(
            st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,8}", fullmatch=True),
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False)
            | st.text(st.characters(codec="utf-8")),
            max_size=4,
        ).map(properties),
    )
)
def test_messages_survive(message: Message) -> None:
    """Headers and properties with any characters are read as they were written, over the wire form."""
    written = b"PUB MESSAGE /queue/q 1\r\n" + to_content(message, 1e9, STRICT).written()
    reader = CommandReader(SmqpLimits(line=1_000_000))
    reader.feed(written)
    heard = reader.next()
    assert heard is not None
    assert heard.content is not None, heard.refusal
    read = to_message(Received("/queue/q", heard.content), queue("q"), STRICT, 0)
    for name in ("body", "correlation_id", "type", "priority", "reply_to", "properties"):
        assert getattr(read, name) == getattr(message, name)


@pytest.mark.parametrize(("hours", "expiration"), [(0, 20_000), (-1, 25_000), (1, 25_000)])
def test_expiration(hours: int, expiration: int) -> None:
    """The timeout counts from the receipt, five seconds after the sending, if the sender's clock cannot be right."""
    skew = hours * 3_600_000
    sent = Message(message_type=MessageType.TEXT, body="", destination=queue("q"), expiration=NOW + skew + 20_000)
    written = to_content(sent, (NOW + skew) / 1000, STRICT)
    read = to_message(Received("/queue/q", written), queue("q"), STRICT, NOW + 5_000)
    assert read.expiration == NOW + expiration
