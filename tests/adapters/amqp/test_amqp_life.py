"""brokers.amqp: logging in, and how connections, consumers and deliveries begin and end. No broker is needed."""

from __future__ import annotations

import math
import random
import socket
import threading
import time
from contextlib import closing
from typing import Any

import proton
import pytest
from amqp_kit import PATIENCE, Peer, settle, text, wait_until
from ports import nobody
from proton import Condition, Delivery, symbol
from proxy_kit import Proxy

import brokers
from brokers import (
    ClosedError,
    ConnectionFailedError,
    ConnectionLostError,
    ConnectionState,
    LoginRefusedError,
    Message,
    StaleDestinationError,
    UsageError,
    queue,
    topic,
)
from brokers.adapter.endpoints import NEAR_PAUSE_SECONDS
from brokers.amqp import Reconnect, sasl
from brokers.amqp.listener import Listener
from brokers.amqp.session import AmqpSession
from brokers.amqp.url import AmqpOptions, Mechanism, TemporaryQueues, login_of
from brokers.embedded import Broker
from brokers.threads.pool import Crew
from brokers.url import Credentials

AT_ONCE = Reconnect(initial=0.02, maximum=0.1)


@pytest.fixture(autouse=True)
def no_threads_left() -> Any:
    """Fail if a thread of an adapter lives on."""
    yield
    wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("amqp")])


def deliver(peer: Peer, address: str, *bodies: str, settled: bool = False, before: int = 0) -> None:
    """Have the peer send to the consumer of an address."""

    def send() -> None:
        name = next(each.name for each in reversed(peer.attached) if each.address == address and not each.is_sender)
        for body in bodies:
            message: Any = proton.Message(body=body, id=body, delivery_count=before)
            delivery = message.send(peer.links[name])
            if settled:
                delivery.settle()

    peer.do(send)


class Scripted:
    """A socket that answers a client with octets, whatever it says, and then waits for its end, if it `stays`."""

    def __init__(self, *answers: bytes, stays: bool = True) -> None:
        self._answers = answers
        self._stays = stays
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://user:secret@127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with closing(self._listener.accept()[0]) as client:
            for answer in self._answers:
                self.received += client.recv(4096)
                client.sendall(answer)
            while self._stays and (data := client.recv(4096)):
                self.received += data

    def close(self) -> None:
        self._thread.join(PATIENCE)
        self._listener.close()


def mechanisms(*names: str) -> bytes:
    """Encode what a broker offers."""
    data = proton.Data()
    data.put_described()
    data.enter()
    data.put_ulong(0x40)
    data.put_list()
    data.enter()
    data.put_array(False, proton.Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(symbol(name))
    body = bytes(data.encode())
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def outcome(code: int) -> bytes:
    """Encode the end of a login."""
    return sasl.pack(sasl.Performative.OUTCOME, proton.ubyte(code))


@pytest.mark.parametrize(
    ("answers", "error", "why"),
    [
        ([sasl.SASL_HEADER + mechanisms("PLAIN"), outcome(1)], LoginRefusedError, "user or password is wrong"),
        ([sasl.SASL_HEADER + mechanisms("PLAIN"), outcome(4)], LoginRefusedError, "temporary error"),
        ([sasl.SASL_HEADER + mechanisms("GSSAPI", "SCRAM-SHA-256")], LoginRefusedError, "offers GSSAPI, SCRAM-SHA-256"),
        ([sasl.SASL_HEADER + mechanisms()], LoginRefusedError, "does not offer PLAIN"),
        ([sasl.AMQP_HEADER], ConnectionFailedError, "AMQP without a login"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], ConnectionFailedError, "HTTP"),
        ([sasl.SASL_HEADER + b"\x00\x00\xff\xff\x02\x01\x00\x00"], ConnectionFailedError, "invalid SASL frame"),
        ([sasl.SASL_HEADER + b"\x00\x00\x00\x09\x02\x01\x00\x00\xff"], ConnectionFailedError, "invalid SASL frame"),
        ([sasl.SASL_HEADER + sasl.pack(sasl.Performative.CHALLENGE, b"?")], ConnectionFailedError, "challenge"),
        (
            [sasl.SASL_HEADER + mechanisms("PLAIN"), outcome(0) + sasl.AMQP_HEADER + b"\0" * 8],
            ConnectionFailedError,
            "closed the connection",
        ),
    ],
)
def test_logins_that_fail(answers: list[bytes], error: type[Exception], why: str) -> None:
    """What the other side does is told in words, and no password with it."""
    peer = Scripted(*answers)
    with pytest.raises(error, match=why) as caught:
        brokers.connect(peer.url, timeout=PATIENCE)
    peer.close()
    assert "secret" not in str(caught.value)


def test_plain_says_user_password_and_host() -> None:
    """As RFC 4616 has it, with the host that we meant, and only once the broker offered it."""
    peer = Scripted(sasl.SASL_HEADER + mechanisms("ANONYMOUS", "PLAIN"), outcome(1))
    with pytest.raises(LoginRefusedError):
        brokers.connect(peer.url, timeout=PATIENCE)
    peer.close()
    assert peer.received.startswith(sasl.SASL_HEADER)
    performative, fields = sasl.unpack(peer.received[8:])
    assert (performative, fields) == (sasl.Performative.INIT, ["PLAIN", b"\0user\0secret", "127.0.0.1"])


def test_external_says_who_but_no_password() -> None:
    """The certificate of TLS is what counts, as RFC 4422 has it."""
    peer = Scripted(sasl.SASL_HEADER + mechanisms("PLAIN", "EXTERNAL"), outcome(0) + sasl.AMQP_HEADER + b"\0" * 8)
    with pytest.raises(ConnectionFailedError):
        brokers.connect(f"{peer.url}?mechanism=external", timeout=PATIENCE)
    peer.close()
    assert sasl.unpack(peer.received[8:].partition(sasl.AMQP_HEADER)[0])[1][:2] == ["EXTERNAL", b"user"]


def test_a_silent_broker_is_given_up() -> None:
    """Within the time-out that was asked for."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        pytest.raises(ConnectionFailedError, match=r"did not answer within 0\.2 s"),
    ):
        brokers.connect(f"amqp://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)


def test_nobody_listens() -> None:
    """The error names the address."""
    with nobody() as port, pytest.raises(ConnectionFailedError, match=f"no connection to amqp://127.0.0.1:{port}"):
        brokers.connect(f"amqp://127.0.0.1:{port}", timeout=PATIENCE)


def test_a_broker_that_closes_once_open() -> None:
    """A redirect is told with the place to go to."""
    info = {symbol("network-host"): "10.0.0.9", symbol("port"): 5672}
    with (
        Peer(closes_with=Condition("amqp:connection:redirect", "busy", info)) as peer,
        pytest.raises(ConnectionFailedError, match=r"busy: try network-host 10\.0\.0\.9, port 5672"),
    ):
        brokers.connect(peer.url, timeout=PATIENCE, reconnect=False)


def test_no_sasl_at_all() -> None:
    """For brokers that want none: nobody is asked to log in, not even as somebody without a name."""
    with Peer(sasl="PLAIN") as peer:
        with pytest.raises(LoginRefusedError, match="does not offer ANONYMOUS"):
            brokers.connect(peer.url, timeout=PATIENCE, reconnect=False)
        with brokers.connect(f"{peer.url}?mechanism=none", timeout=PATIENCE) as connection:
            connection.send(text()).result(PATIENCE)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://user:tops3cret@host/path", "must end with the port"),
        ("amqp://user:tops3cret@host:0", "from 1 to 65535; write amqp://USER:PASSWORD@HOST:PORT or amqps://"),
        ("amqp://", "must name a host"),
        ("amqp://host?mechanism=GSSAPI", "mechanism must be one of auto, ANONYMOUS"),
        ("amqp://host?dialect=oracle", "dialect must be one of activemq, artemis, plain"),
        ("amqp://host?temporaryQueues=queues", "temporaryQueues must be one of dynamic, topics, got 'queues'"),
        ("amqp://host?clientId=a%00b", "host and client id must be text in UTF-8 without NUL"),
        ("amqp://host?idle=soon", "idle in the amqp URL must be a number of milliseconds"),
        ("amqp://host?caFile=x", "unknown parameter"),
        ("failover:(amqp://user:tops3cret@a,stomp://b)", "speak one protocol"),
        ("failover:(amqp://user:top(s)3cret@a)", "one pair of brackets.*percent-encoded, as %28 and %29"),
        ("failover:(amqp://user:tops3cret@a", "one pair of brackets"),
        ("amqp://user:tops3cret@a?idle=604800001", "idle in the amqp URL must be at most 604800000 milliseconds"),
        (f"amqp://user:tops3cret@a?idle={'9' * 5000}", "idle in the amqp URL must be at most"),
        (f"amqp://user:tops3cret@a?maxMessage={'9' * 5000}", "maxMessage in the amqp URL must be a positive number"),
    ],
)
def test_urls_that_cannot_be(url: str, why: str) -> None:
    """Errors say what would be accepted, and repeat no password."""
    with pytest.raises(ValueError, match=why) as caught:
        brokers.connect(url)
    assert "tops3cret" not in str(caught.value)


def test_addresses_that_cannot_be_sent() -> None:
    """What proton would cut off, or no frame would hold, is refused, also in a transaction; the connection goes on."""
    with Peer(offers=()) as peer, brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as connection:
        for name, why in (("a\0b", "must not hold NUL"), ("a" * 2049, "at most 2048 characters, got 2049")):
            for message in (text(queue(name)), text(queue("a"), reply_to=queue(name))):
                with pytest.raises(UsageError, match=why):
                    connection.send(message)
                with pytest.raises(UsageError, match=why):
                    connection.begin().send(message)
        with pytest.raises(UsageError, match="at most 2048 characters"):
            connection.consume(queue("a" * 2049), lambda delivery: None)
        connection.send(text(queue("a" * 2048))).result(PATIENCE)
        assert [each.address for each in peer.attached] == ["a" * 2048]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"max_message": 0}, "max_message must be a positive number of octets, got 0"),
        ({"idle": -1.0}, "idle must be a number of seconds from 0 to 604,800, got -1.0"),
        ({"idle": 1e12}, "got 1000000000000.0"),
        ({"idle": math.inf}, "got inf"),
        ({"idle": math.nan}, "got nan"),
        ({"idle": "30"}, "got '30'"),
        ({"redirect_hosts": "broker"}, r"redirect_hosts must be a list of hosts, got 'broker'; write \['broker'\]"),
        ({"redirect_hosts": [1]}, r"redirect_hosts must be a list of hosts, got \[1\]"),
        ({"mechanism": 5}, "mechanism must be one of auto, ANONYMOUS, PLAIN, EXTERNAL, none, got 5"),
        ({"anonymous_relay": "no"}, "anonymous_relay must be True or False, got 'no'"),
        ({"message_ids": "no"}, "message_ids must be True or False, got 'no'"),
        ({"virtual_host": "vhost:bänk"}, "virtualHost must be visible ASCII, such as vhost:bank, got 'vhost:bänk'"),
        ({"path": "/ws"}, r"a URL with path= must begin with amqp\+ws:// or amqp\+wss://, got amqp://"),
    ],
)
def test_options_that_cannot_be(wrong: dict[str, Any], why: str) -> None:
    """They are refused before anything is tried, and not ignored."""
    with pytest.raises(UsageError, match=why):
        brokers.connect("amqp://127.0.0.1:1", **wrong)


def test_virtual_host() -> None:
    """AMQP's `open` names it in place of the host; the keyword overrides the URL."""
    with Peer() as peer:
        for url, given in ((peer.url, {}), (f"{peer.url}?virtualHost=vhost:bank", {"virtual_host": "vhost:shop"})):
            brokers.connect(url, timeout=PATIENCE, **given).close()
        brokers.connect(f"{peer.url}?virtualHost=vhost:bank", timeout=PATIENCE).close()
        assert peer.hosts == ["127.0.0.1", "vhost:shop", "vhost:bank"]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("", "perhaps this user has no right to its virtual host, which virtualHost in the URL names"),
        ("?virtualHost=vhost:bank", "perhaps it has no virtual host 'vhost:bank', or this user no right to it"),
    ],
)
def test_a_virtual_host_that_is_not_there(option: str, why: str) -> None:
    """RabbitMQ ends the connection after the login, without a reason: the error says what that may mean."""
    peer = Scripted(sasl.SASL_HEADER + mechanisms("PLAIN"), outcome(0) + sasl.AMQP_HEADER, stays=False)
    with pytest.raises(ConnectionFailedError, match=f"; the login was right: {why}"):
        brokers.connect(peer.url + option, timeout=PATIENCE)
    peer.close()


def test_a_path_without_its_beginning() -> None:
    """It gets one, as that of a redirect does."""
    assert login_of("amqp+ws://host", {}, AmqpOptions(path="ws?a=b")).path == "/ws?a=b"


def test_a_mechanism_that_needs_a_user() -> None:
    """Without one it is refused; nothing empty is sent."""
    with Peer() as peer, pytest.raises(UsageError, match="mechanism PLAIN needs a user and password"):
        brokers.connect(peer.url, timeout=PATIENCE, mechanism="PLAIN")


@pytest.mark.parametrize("prefetch", [0, -1, 1 << 31, 1 << 32, 2.5, "3", True])
def test_a_prefetch_that_cannot_be(prefetch: Any) -> None:
    """It is the caller's mistake, and the connection is none the worse."""
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as connection:
        with pytest.raises(UsageError, match=f"prefetch must be a whole number from 1 to .*, got {prefetch!r}"):
            connection.consume(queue("q"), lambda delivery: None, prefetch=prefetch)
        connection.consume(queue("q"), lambda delivery: None, prefetch=(1 << 31) - 1)
        assert connection.state is ConnectionState.CONNECTED


def test_what_a_url_says() -> None:
    """Parameters are those of STOMP where they mean the same; secrets are not shown."""
    login = login_of(
        "amqps://u:p%40@host?clientId=me&idle=2500&mechanism=external&dialect=plain&caFile=/ca", {}, AmqpOptions()
    )
    assert (login.port, login.container, login.client_id, login.idle) == (5671, "me", "me", 2.5)
    assert (login.mechanism, str(login.tls and login.tls.ca_file)) == (Mechanism.EXTERNAL, "/ca")
    assert login.credentials() == Credentials("u", "p@")
    assert "p@" not in repr(login)
    assert login.temporary_queues is TemporaryQueues.DYNAMIC
    for url, given in (
        ("amqp://host?temporaryQueues=topics", AmqpOptions()),
        ("amqp://host?temporaryQueues=dynamic", AmqpOptions(temporary_queues="topics")),
    ):
        assert login_of(url, {}, given).temporary_queues is TemporaryQueues.TOPICS
    given = AmqpOptions(idle=30.0, max_message=100 << 20)  # the defaults, but said
    login = login_of("amqp://host?idle=2500&maxMessage=5", {}, given)
    assert (login.idle, login.max_message) == (30.0, 100 << 20)
    login = login_of("amqp://[::1]", {}, AmqpOptions())
    assert (f"{login}", login.idle, login.max_message) == ("amqp://[::1]:5672", 30.0, 100 << 20)


def test_a_lost_connection_is_made_again() -> None:
    """What was under way fails; consumers go on in the next generation, temporary destinations do not."""
    got: list[Any] = []
    states: list[ConnectionState] = []
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE, reconnect=AT_ONCE) as connection:
        connection.watch(states.append)
        connection.consume(queue("in"), got.append)
        mine = connection.temporary()
        connection.consume(mine, got.append)
        deliver(peer, "in", "before")
        wait_until(lambda: got)
        peer.on_transfer = lambda delivery, octets: None
        pending = connection.send(text())
        peer.arrived.get(timeout=PATIENCE)
        peer.cut()
        assert isinstance(pending.exception(PATIENCE), ConnectionLostError)
        wait_until(lambda: states == [ConnectionState.LOST, ConnectionState.CONNECTED])
        assert connection.generation == 2
        got[0].accept()  # void
        peer.on_transfer = lambda delivery, octets: settle(delivery, Delivery.ACCEPTED)
        connection.send(text()).result(PATIENCE)
        deliver(peer, "in", "after")
        wait_until(lambda: len(got) == 2)
        assert got[1].message.body == "after"
        with pytest.raises(StaleDestinationError):
            connection.send(text(reply_to=mine))
        with pytest.raises(StaleDestinationError):
            connection.consume(mine, got.append)
    assert [link.address for link in peer.attached if not link.is_sender] == ["in", "node-2", "in"]


def test_a_consumer_that_is_closed_while_it_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It attaches no link, which would keep messages from all others until the connection ends."""
    lead, closed = AmqpSession.lead, threading.Event()

    def close_before(session: AmqpSession, crew: Crew) -> None:
        lead(session, crew)
        consumer.close()
        closed.set()

    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE, reconnect=AT_ONCE) as connection:
        consumer = connection.consume(queue("q"), lambda delivery: None, quick=True)
        monkeypatch.setattr(AmqpSession, "lead", close_before)
        peer.cut()
        assert closed.wait(PATIENCE)
        connection.wait_connected(PATIENCE)
        connection.send(text()).result(PATIENCE)
        assert [each.address for each in peer.attached if not each.is_sender] == ["q"]
        assert connection.generation == 2


def test_failover_to_the_next_broker() -> None:
    """Several brokers in one URL; the first that answers is taken."""
    with nobody() as gone, Peer() as peer:
        for url in (
            f"amqp://127.0.0.1:{gone},127.0.0.1:{peer.port}",
            f"failover:(amqp://127.0.0.1:{gone},amqp://127.0.0.1:{peer.port})",
        ):
            with brokers.connect(url, timeout=PATIENCE) as connection:
                connection.send(text()).result(PATIENCE)


def test_a_silent_connection_is_lost() -> None:
    """A broker that gives no sign of life for the time that was agreed is gone."""
    with (
        Peer() as peer,
        Proxy("127.0.0.1", peer.port) as between,
        brokers.connect(f"amqp://127.0.0.1:{between.port}?idle=2000", timeout=PATIENCE, reconnect=False) as connection,
    ):
        between.silence()
        wait_until(lambda: connection.state is ConnectionState.LOST)


def test_signs_of_life_are_given() -> None:
    """Two sides that say nothing stay connected: empty frames go both ways."""
    with (
        Peer(idle=1.5) as peer,
        brokers.connect(f"{peer.url}?idle=1500", timeout=PATIENCE, reconnect=False) as connection,
    ):
        time.sleep(3.5)  # more than twice the limit, which is what is under test
        connection.send(text()).result(PATIENCE)
        assert connection.generation == 1


@pytest.mark.parametrize("option", ["", "?maxMessage=100000"])
def test_a_message_that_is_too_large(option: str) -> None:
    """It is rejected with the reason, and reaches nobody; the same consumer goes on with the next."""
    got: list[Any] = []
    refused: list[tuple[Message, str]] = []
    options: Any = {} if option else {"max_message": 100_000}
    with Peer() as peer, brokers.connect(f"{peer.url}{option}", timeout=PATIENCE, **options) as connection:
        connection.consume(queue("large"), got.append, on_refused=lambda *told: refused.append(told))
        message: Any = proton.Message(body="x" * 200_000, id="big", correlation_id="call-1", reply_to="answers")
        name = peer.attached[-1].name
        sent: list[Any] = []
        outcome: list[str] = []

        def look() -> None:
            if sent[0].remote_state == proton.Delivery.REJECTED:
                outcome.append(sent[0].remote.condition.description)

        peer.do(lambda: sent.append(message.send(peer.links[name])))
        wait_until(lambda: peer.do(look) or outcome)
        assert "a message may have 100000 here" in outcome[0]
        deliver(peer, "large", "y")
        wait_until(lambda: got)
        assert [each.message.body for each in got] == ["y"]
        ((head, reason),) = refused
        assert (head.message_id, head.correlation_id, head.body) == ("ID:AMQP_NO_PREFIX:big", "call-1", None)
        assert head.reply_to is not None
        assert "max_message" in reason


def test_what_follows_a_message_that_is_too_large(caplog: pytest.LogCaptureFixture) -> None:
    """Tens of megabytes are dropped as they come, and told of once; what is behind them on the same link arrives."""
    got: list[Any] = []
    broker = Broker()
    with Listener(broker, port=0) as listener, broker.connect() as inside:
        for size in (30_000_000, *[60_000] * 20):
            inside.send(text(queue("large"), "x" * size)).result()
        with brokers.connect(listener.url, timeout=PATIENCE, max_message=100_000) as connection:
            connection.consume(queue("small"), got.append)
            connection.consume(queue("large"), got.append, prefetch=100)
            wait_until(lambda: len(got) == 20)
            inside.send(text(queue("small"), "y")).result()
            wait_until(lambda: len(got) == 21)
            assert [each.message.size for each in got] == [60_000] * 20 + [1]
            assert caplog.text.count("a message may have 100000 here") == 1
            assert connection.generation == 1
        assert broker.depth(queue("large")) == 20
        assert broker.depth(queue("DLQ.large")) == 1


@pytest.mark.parametrize(
    ("condition", "how", "reason"),
    [
        (Condition("amqp:resource-deleted", "the queue was deleted"), "close", "amqp:resource-deleted: the queue was"),
        (None, "close", "no reason given"),
        (None, "detach", "no reason given"),
    ],
)
def test_a_consumer_that_the_broker_ends(
    condition: Condition | None, how: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A link that is detached, as when its queue is deleted, is logged with the reason and made again."""
    got: list[Any] = []
    told: list[str] = []
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        consumer = connection.consume(queue("doomed"), got.append, on_problem=told.append)
        link = peer.links[peer.attached[-1].name]

        def end() -> None:
            link.condition = condition
            getattr(link, how)()

        peer.do(end)
        wait_until(lambda: len(told) == 2)
        assert reason in told[0]
        assert reason in caplog.text
        assert (told[1], consumer.problem) == ("", "")
        deliver(peer, "doomed", "again")
        wait_until(lambda: got)
        assert [each.message.body for each in got] == ["again"]
        assert connection.generation == 1


def test_a_temporary_queue_that_the_broker_ends() -> None:
    """Its consumer has ended for good, and says so."""
    told: list[str] = []
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        consumer = connection.consume(connection.temporary(), lambda delivery: None, on_problem=told.append)
        link, count = peer.links[peer.attached[-1].name], len(peer.attached)
        peer.do(link.close)
        wait_until(lambda: told)
        connection.consume(queue("other"), lambda delivery: None)
        assert consumer.problem == told[0] == "no reason given"
        assert len(peer.attached) == count + 1


def test_a_refused_consumer() -> None:
    """The broker's reason is in the error."""
    with (
        Peer(refuses={"secret": Condition("amqp:unauthorized-access", "not you")}) as peer,
        brokers.connect(peer.url, timeout=PATIENCE) as connection,
        pytest.raises(brokers.BrokerError, match="amqp:unauthorized-access: not you"),
    ):
        connection.consume(queue("secret"), lambda delivery: None)


def test_selectors_are_filters_and_must_be_understood() -> None:
    """A broker that does not repeat the filter does not apply it."""
    with (
        Peer() as peer,
        brokers.connect(peer.url, timeout=PATIENCE) as connection,
    ):
        connection.consume(queue("q"), lambda delivery: None, selector="a = 1")
        name = peer.attached[-1].name
        data = peer.links[name].remote_source.filter
        data.rewind()
        data.next()
        found: Any = data.get_object()
        described = found[symbol("apache.org:selector-filter:string")]
        assert (described.descriptor, described.value) == (0x0000468C00000004, "a = 1")


def test_credit_is_the_prefetch() -> None:
    """So many messages are on the way, and one more for each that is settled."""
    got: list[Any] = []
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        connection.consume(queue("q"), got.append, prefetch=2)
        link = peer.links[peer.attached[-1].name]
        wait_until(lambda: link.credit == 2)
        deliver(peer, "q", "a", "b")
        wait_until(lambda: len(got) == 2)
        assert link.credit == 0
        got[0].accept()
        wait_until(lambda: link.credit == 1)


def test_durable_subscriptions_need_a_client_id() -> None:
    """They belong to it: the container's name; the link is detached, not closed, and keeps its name."""
    with Peer() as peer:
        with brokers.connect(peer.url, timeout=PATIENCE) as connection:
            assert not connection.capabilities.durable_topics
            with pytest.raises(brokers.UnsupportedError, match="client_id"):
                connection.consume(topic("t"), lambda delivery: None, durable_name="mine")
        with brokers.connect(peer.url, timeout=PATIENCE, client_id="me") as connection:
            with pytest.raises(ValueError, match="must be a topic"):
                connection.consume(queue("t"), lambda delivery: None, durable_name="mine")
            connection.consume(topic("t"), lambda delivery: None, durable_name="mine").close()
    assert peer.containers[-1] == "me"
    assert peer.attached[-1].name == "mine"


def test_close_while_a_commit_is_on_its_way() -> None:
    """Nobody waits for ever: a commit that is not answered ends with the connection."""
    with Peer(on_transfer=lambda delivery, octets: None) as peer:
        connection = brokers.connect(peer.url, timeout=PATIENCE)
        transaction = connection.begin()
        transaction.send(text())
        future = transaction.commit()
        peer.arrived.get(timeout=PATIENCE)
        connection.close(0.2)
        assert isinstance(future.exception(PATIENCE), ConnectionLostError | ClosedError)


def test_messages_that_the_broker_settled_before() -> None:
    """They arrive once each, get their credit back, and nothing that is decided about them is an error."""
    got: list[Any] = []
    decide = [lambda each: each.accept(), lambda each: each.release(), lambda each: each.reject("no")] * 2
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as connection:

        def on_delivery(delivery: Any) -> None:
            decide[len(got)](delivery)
            got.append(delivery.message.body)

        connection.consume(queue("q"), on_delivery, prefetch=2)
        link = peer.links[peer.attached[0].name]
        for number in range(6):
            wait_until(lambda: link.credit > 0)
            deliver(peer, "q", f"{number}", settled=True)
            wait_until(lambda number=number: len(got) > number)
        wait_until(lambda: link.credit == 2)
        assert got == [f"{number}" for number in range(6)]
        assert connection.state is ConnectionState.CONNECTED


@pytest.mark.parametrize(
    ("dialect", "said"), [("qpid", "goes back, until the limit of its queue"), ("plain", "is a dead letter")]
)
def test_released_too_often(dialect: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is called a dead letter that the broker delivers again."""
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE, dialect=dialect) as connection:
        connection.consume(queue("q"), lambda delivery: delivery.release())
        deliver(peer, "q", "x", before=5)
        wait_until(lambda: "delivered 6 times and not accepted" in caplog.text)
    assert f"{said}: delivered 6 times and not accepted" in caplog.text
    assert ("is a dead letter" in caplog.text) is (dialect == "plain")


def test_all_of_a_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A broker gets the beginning, which is all that it may keep."""
    caplog.set_level("INFO")
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        connection.consume(queue("q"), lambda delivery: delivery.reject("x" * 1500 + "end"))
        deliver(peer, "q", "x")
        wait_until(lambda: "xend" in caplog.text)


@pytest.mark.parametrize("options", [{"inline": True}, {"lazy": True, "auto_accept": True}])
def test_a_consumer_that_closes_itself_on_the_thread_that_reads(options: dict[str, bool]) -> None:
    """It does not wait for the answer, which that thread itself would have to read."""
    took: list[float] = []

    def on_delivery(delivery: Any) -> None:
        began = time.monotonic()
        consumer.close()
        took.append(time.monotonic() - began)

    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        consumer = connection.consume(queue("q"), on_delivery, **options)
        deliver(peer, "q", "x", "y")
        wait_until(lambda: took)
        assert took[0] < PATIENCE / 2
        consumer.close()
        assert len(took) == 1


# Consumers that are sent elsewhere


def send_on(peer: Peer, goal_port: int, address: str = "q") -> None:
    """Have the peer end the consumer of an address, with a redirect to another peer."""
    info = {symbol("network-host"): "127.0.0.1", symbol("port"): goal_port, symbol("address"): "there"}

    def end() -> None:
        name = next(each.name for each in reversed(peer.attached) if each.address == address and not each.is_sender)
        peer.links[name].condition = Condition("amqp:link:redirect", "moved", info)
        peer.links[name].close()

    peer.do(end)


def addresses(peer: Peer) -> list[str | None]:
    """List what clients attached to."""
    return [each.address for each in peer.attached]


def test_redirects_that_come_late_are_followed() -> None:
    """WS-26, over TCP: the consumer goes on at the other broker, one delivery at a time, until it is closed."""
    got: list[Any] = []
    busy, go_on = threading.Event(), threading.Event()

    def on_delivery(delivery: Any) -> None:
        if delivery.message.body == "slow":
            busy.set()
            assert go_on.wait(PATIENCE)
        got.append(delivery.message.body)
        delivery.accept()

    with Peer() as goal, Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        consumer = connection.consume(queue("q"), on_delivery)
        connection.consume(queue("stays"), on_delivery)
        deliver(peer, "q", "slow")
        assert busy.wait(PATIENCE)
        send_on(peer, goal.port)
        wait_until(lambda: addresses(goal) == ["there"])
        deliver(goal, "there", "next")
        go_on.set()
        wait_until(lambda: got == ["slow", "next"])
        deliver(peer, "stays", "here")
        wait_until(lambda: got == ["slow", "next", "here"])
        consumer.close()
        consumer.close()
        assert addresses(peer) == ["q", "stays"]


def test_a_subscription_that_soon_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses before it is renewed grow: a broker that ends each would be asked as often as it can answer."""
    pauses: list[float] = []
    monkeypatch.setattr(random, "uniform", lambda least, most: pauses.append(most) or 0.0)

    def end() -> None:
        link = peer.links[peer.attached[-1].name]
        link.condition = Condition("amqp:resource-limit-exceeded", "go")
        link.close()

    def on_problem(problem: str) -> None:
        if not problem and len(pauses) < 6:
            peer.do(end)

    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        connection.consume(queue("q"), lambda delivery: None, on_problem=on_problem)
        peer.do(end)
        wait_until(lambda: len(pauses) == 6)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, NEAR_PAUSE_SECONDS])


class Turnstile:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.awaited = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.awaited.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_redirects_that_come_late_and_closing() -> None:
    """A delivery there that waits for the running one here does not begin after `close`."""
    got: list[Any] = []
    busy, go_on = threading.Event(), threading.Event()

    def on_delivery(delivery: Any) -> None:
        got.append(delivery.message.body)
        busy.set()
        assert go_on.wait(PATIENCE)

    with Peer() as goal, Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        consumer: Any = connection.consume(queue("q"), on_delivery)
        consumer._in_turn = turnstile = Turnstile()
        deliver(peer, "q", "here")
        assert busy.wait(PATIENCE)
        send_on(peer, goal.port)
        wait_until(lambda: consumer._elsewhere is not None)
        elsewhere = consumer._elsewhere
        deliver(goal, "there", "there")
        assert turnstile.awaited.wait(PATIENCE)
        consumer.close()
        go_on.set()
        elsewhere.join(time.monotonic() + PATIENCE)
        assert got == ["here"]


def test_redirects_that_come_late_follow_a_session_too() -> None:
    """One that a broker answers only after the connection was lost and made again."""
    got: list[Any] = []
    with Peer() as goal, Peer() as peer, brokers.connect(peer.url, reconnect=AT_ONCE) as connection:
        connection.consume(queue("q"), lambda delivery: got.append(delivery.message.body))
        info = {symbol("network-host"): "127.0.0.1", symbol("port"): goal.port, symbol("address"): "there"}
        peer.refuses["q"] = Condition("amqp:link:redirect", "moved", info)
        peer.cut()
        wait_until(lambda: addresses(goal) == ["there"])
        connection.wait_connected(PATIENCE)
        deliver(goal, "there", "x")
        wait_until(lambda: got == ["x"])


def test_redirects_that_come_late_end_somewhere(caplog: pytest.LogCaptureFixture) -> None:
    """In a circle after five; a place where nobody is, or where one may not go, is an error in the log."""
    with nobody() as gone, Peer() as peer:
        for options, port, said in (
            ({"redirect_hosts": ()}, peer.port, "moved: try network-host 127.0.0.1"),
            ({}, gone, "there: no connection to amqp://"),
        ):
            with brokers.connect(peer.url, timeout=PATIENCE, **options) as connection:
                connection.consume(queue("q"), lambda delivery: None)
                send_on(peer, port)
                wait_until(lambda said=said: said in caplog.text)
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        there = {symbol("hostname"): "127.0.0.1", symbol("port"): peer.port, symbol("address"): "there"}
        peer.refuses["there"] = Condition("amqp:link:redirect", "round", there)
        connection.consume(queue("q"), lambda delivery: None)
        send_on(peer, peer.port)
        wait_until(lambda: "amqp:link:redirect: round" in caplog.text)
        assert len(peer.containers) <= 6
