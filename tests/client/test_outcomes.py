"""What a caller is told of a request that failed, against what became of it; and what sending it again comes to."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any, Final

import pytest
from amqp_kit import Peer, detach, text
from calling_kit import (
    NS,
    PATIENCE,
    REAL_BROKERS,
    URI,
    Wrapped,
    arrivals,
    element,
    envelope,
    eventually,
    fresh,
    text_of,
)
from faulty_kit import no_executor
from lxml import etree
from places import ROOT
from proton import Condition
from proxy_kit import Proxy, Way
from real_brokers import RealBroker
from zeep.wsse import UsernameToken

import brokers
import soapjms.zeep
from brokers import (
    Completion,
    Connection,
    ConnectionLostError,
    Message,
    MessageType,
    Properties,
    SendFailedError,
    SendResult,
    Transaction,
    UnsentError,
    queue,
    typed,
)
from brokers.embedded import Broker
from brokers.stomp import Reconnect
from brokers.url import Credentials
from soapjms import (
    AsyncClient,
    Attachment,
    CallFailedError,
    CallTimeoutError,
    Client,
    Dispatcher,
    OutgoingCall,
    Request,
    SendOutcome,
    Service,
    SqliteStore,
    UsageError,
)
from soapjms.bridge.faults import failed
from soapjms.client.retry import KEY_PROPERTY, LOCK_PROPERTY, Retry
from soapjms.zeep import JmsTransportError

PLAN: Final = Reconnect(initial=0.02, maximum=0.1)
WIRES: Final = ("stomp", "amqp")
SEED: Final = 20_261
SENDS: Final = 300
GREETER_WSDL: Final = str(ROOT / "examples" / "greeter.wsdl")


class Ledger:
    """A service that writes down what it was asked for, twice if it is asked twice.

    Attributes:
        runs: how often each text was worked on.
        seconds: how long that takes.
        done: how often it was done.
    """

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.seconds = 0.0
        self.done = 0
        self.service = Service()
        for name in ("greetMe", "pingMe"):
            self.service.operation(f"{{{NS}}}{name}")(self._run)

    def _run(self, request: Request) -> etree._Element | None:
        text = "".join(request.element.itertext())
        self.runs[text] += 1
        sleep(self.seconds)
        self.done += 1
        if request.one_way:
            return None
        if not len(request.element):
            return element("greetMeResponse", f"Hello {text}")
        answer = element("greetMeResponse")
        answer.append(element("greeting", f"Hello {text}"))  # as the WSDL has it
        return answer


class Scene:
    """A client by way of a proxy, and a service with a store on a connection of its own."""

    def __init__(self, real: RealBroker, wire: str, name: str, path: Path, stack: ExitStack) -> None:
        self.uri = f"jms:queue:{name}"
        self.name = name
        self.wire = wire
        self.real = real
        self.proxy = stack.enter_context(Proxy(real.host, getattr(real.ports, wire)))
        self.ledger = Ledger()
        self.store = stack.enter_context(SqliteStore(path))
        self.other = stack.enter_context(brokers.connect(getattr(real, f"{wire}_url"), timeout=PATIENCE))
        self.connection = stack.enter_context(
            brokers.connect(getattr(self.proxy, f"{wire}_url"), timeout=PATIENCE, reconnect=PLAN)
        )
        self._stack = stack

    def serve(self) -> Dispatcher:
        """Begin to serve."""
        return self._stack.enter_context(
            Dispatcher(self.other, self.uri, self.ledger.service, workers=2, store=self.store)
        )

    def client(self, **options: Any) -> Client:
        """Make a client."""
        return self._stack.enter_context(Client(self.connection, self.uri, **{"timeout": PATIENCE} | options))

    def waits(self) -> list[Message]:
        """Return what came to the queue, up to a message that is sent now by the client's connection; nobody serves."""
        last = Message(message_type=MessageType.TEXT, body="the last", destination=queue(self.name))
        self.connection.send(last).result(PATIENCE)
        with arrivals(self.other, queue(self.name)) as found:
            return list(takewhile(lambda each: each.body != last.body, iter(found.next, None)))


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.broker) for name in REAL_BROKERS])
def scene(request: pytest.FixtureRequest, wire: str, tmp_path: Path) -> Iterator[Scene]:
    real: RealBroker = request.getfixturevalue(request.param)
    with ExitStack() as stack:
        yield Scene(real, wire, fresh(), tmp_path / "store.db", stack)


def failure_of(what: Callable[[], object]) -> CallFailedError:
    """Return the error that something ends with."""
    with pytest.raises(CallFailedError) as caught:
        what()
    return caught.value


@contextmanager
def in_the_background(what: Callable[[], object]) -> Iterator[list[CallFailedError]]:
    """Do something that fails, and hand out the error once the block is over."""
    errors: list[CallFailedError] = []
    thread = Thread(target=lambda: errors.append(failure_of(what)))
    thread.start()
    try:
        yield errors
    finally:
        thread.join(PATIENCE)


def lose_confirmation(scene: Scene, client: Client, text: str) -> CallFailedError:
    """Send a one-way message that the broker has, and cannot say so; return what the caller is told."""
    scene.proxy.silence(Way.DOWN)
    with in_the_background(lambda: client.send(envelope(text, operation="pingMe"))) as errors:
        eventually(lambda: scene.ledger.runs[text], "it is carried out")
        scene.proxy.cut()
        scene.proxy.speak()
    (error,) = errors
    return error


def send_in_the_end(client: Client, text: str) -> None:
    """Send a one-way message, and again if that comes to nothing: the connection may be cut, and nobody knows yet."""
    try:
        client.send(envelope(text, operation="pingMe"))
    except CallFailedError as error:
        client.send(envelope(text, operation="pingMe"), retry_of=error)


@contextmanager
def gone(scene: Scene) -> Iterator[None]:
    """Have no connection to the broker while the block lasts."""
    scene.proxy.leave()
    try:
        eventually(lambda: scene.connection.state == "lost", "it was noticed")
        yield
    finally:
        scene.proxy.come_back()
    scene.connection.wait_connected(PATIENCE)


def test_confirmation_lost(scene: Scene) -> None:
    """A one-way message that the broker has, and could not say so: unknown; sent again it is not run again."""
    serving = scene.serve()
    client = scene.client()
    client.send(envelope("before", operation="pingMe"))
    error = lose_confirmation(scene, client, "Ann")
    assert (error.outcome, error.is_known, error.reason) == (SendOutcome.UNKNOWN, False, "transmissionFailure")
    client.send(envelope("Ann", operation="pingMe"), retry_of=pickle.loads(pickle.dumps(error)))
    client.send(envelope("after", operation="pingMe"))
    eventually(lambda: scene.ledger.runs["after"], "what came later is carried out")
    eventually(lambda: not serving.under_way, "all is done")
    assert scene.ledger.runs == {"before": 1, "Ann": 1, "after": 1}


def test_confirmation_late(scene: Scene) -> None:
    """A one-way message that is not confirmed in time is unknown too."""
    scene.serve()
    client = scene.client()
    client.send(envelope("before", operation="pingMe"))
    scene.proxy.silence(Way.DOWN)
    error = failure_of(lambda: client.send(envelope("Ann", operation="pingMe"), timeout=0.5))
    assert error.outcome is SendOutcome.UNKNOWN
    eventually(lambda: scene.ledger.runs["Ann"], "it is carried out")
    scene.proxy.speak()  # or closing the client waits for its time


def test_answer_lost(scene: Scene) -> None:
    """A call whose answer was lost is unknown; again it has the answer of its one run, at another reply destination."""
    scene.serve()
    client = scene.client()
    assert text_of(client.call(envelope("before"))) == "Hello before"
    scene.proxy.silence(Way.DOWN)
    with in_the_background(lambda: client.call(envelope("Ann"))) as errors:
        eventually(lambda: scene.ledger.runs["Ann"], "it is carried out")
        scene.proxy.cut()
        scene.proxy.speak()
    (error,) = errors
    assert (error.outcome, error.is_known) == (SendOutcome.UNKNOWN, False)
    assert text_of(client.call(envelope("Ann"), retry_of=error)) == "Hello Ann"
    assert text_of(client.submit(envelope("Ann"), retry_of=error).result(PATIENCE)) == "Hello Ann"
    assert scene.ledger.runs == {"before": 1, "Ann": 1}


def test_lost_before_it_was_served(scene: Scene) -> None:
    """The first try waits in the queue while the retry comes: whichever is first, the function runs once."""
    client = scene.client()
    error = failure_of(lambda: client.call(envelope("Ann"), timeout=0.5))
    assert isinstance(error, CallTimeoutError)
    assert error.outcome is SendOutcome.UNKNOWN
    future = client.submit(envelope("Ann"), retry_of=error)
    scene.serve()
    assert text_of(future.result(PATIENCE)) == "Hello Ann"
    assert scene.ledger.runs == {"Ann": 1}


def test_finished_after_the_first_caller_had_gone(scene: Scene) -> None:
    """The answer to the first try has expired by then; the retry gets one that has not, and the function runs once."""
    scene.ledger.seconds = 1.0
    dispatcher = scene.serve()
    client = scene.client()
    error = failure_of(lambda: client.call(envelope("Ann"), timeout=0.5))
    assert isinstance(error, CallTimeoutError)
    eventually(lambda: dispatcher.counts["answered"] == 1, "its answer is stored, and sent")
    assert text_of(client.call(envelope("Ann"), retry_of=error)) == "Hello Ann"
    assert scene.ledger.runs == {"Ann": 1}


def test_nothing_written(scene: Scene) -> None:
    """While there is no connection nothing is sent, and nothing arrives later."""
    client = scene.client()
    with gone(scene):
        errors = [
            failure_of(lambda: client.send(envelope("Ann", operation="pingMe"), timeout=0.2)),
            failure_of(lambda: client.call(envelope("Ann"), timeout=0.2)),
            failure_of(lambda: client.submit(envelope("Ann"), timeout=0.2).result(PATIENCE)),
        ]
    assert {(each.outcome, each.is_known) for each in errors} == {(SendOutcome.NOT_SENT, True)}
    assert scene.waits() == []


def test_refused(scene: Scene) -> None:
    """What the broker refuses is known, and nobody ever gets it."""
    url = f"{scene.wire}://{scene.real.host}:{getattr(scene.real.ports, scene.wire)}"
    with (
        brokers.connect(url, timeout=PATIENCE, credentials=Credentials("limited", "limited")) as limited,
        Client(limited, f"{scene.uri}?replyToName=limited.{scene.name}", timeout=PATIENCE) as client,
    ):
        for error in (
            failure_of(lambda: client.send(envelope("Ann", operation="pingMe"))),
            failure_of(lambda: client.call(envelope("Ann"))),
        ):
            assert (error.outcome, error.is_known, error.reason) == (SendOutcome.REFUSED, True, "transmissionFailure")
    assert scene.waits() == []


def test_ledger(scene: Scene) -> None:
    """Cut anywhere, no message that is said to be not sent or refused was carried out; sent again, each was, once.

    Chance may bring no message that was not sent, and none whose confirmation was lost, so the first two are these.
    """
    chance = random.Random(SEED)
    dispatcher = scene.serve()
    client, over = scene.client(), Event()

    def disturb() -> None:
        while not over.wait(chance.uniform(0.0, 0.06)):
            if chance.random() < 0.5:
                scene.proxy.silence(Way.DOWN)
                over.wait(chance.uniform(0.0, 0.03))
            scene.proxy.cut()
            scene.proxy.speak()

    failed: dict[str, CallFailedError] = {}
    with gone(scene):
        failed["unsent"] = failure_of(lambda: client.send(envelope("unsent", operation="pingMe"), timeout=0.2))
    client.send(envelope("first", operation="pingMe"))  # over AMQP the link has to be there before the silence
    failed["unconfirmed"] = lose_confirmation(scene, client, "unconfirmed")
    thread = Thread(target=disturb)
    thread.start()
    try:
        for number in range(SENDS):
            try:
                client.send(envelope(f"{number}", operation="pingMe"), timeout=chance.choice([0.02, 0.2, PATIENCE]))
            except CallFailedError as error:
                failed[f"{number}"] = error
    finally:
        over.set()
        thread.join()
    send_in_the_end(client, "last")
    eventually(lambda: scene.ledger.runs["last"] and not dispatcher.under_way, "all is done")
    known = {each for each, error in failed.items() if error.is_known}
    carried_out = {each for each in failed if scene.ledger.runs[each]}
    assert "unsent" in known
    assert "unconfirmed" in carried_out
    assert known & carried_out == set()
    for each, error in failed.items():
        client.send(envelope(each, operation="pingMe"), retry_of=error)
    everything = {*map(str, range(SENDS)), "unsent", "first", "unconfirmed", "last"}
    eventually(lambda: set(scene.ledger.runs) == everything and not dispatcher.under_way, "all of them are done")
    assert set(scene.ledger.runs.values()) == {1}


# On the embedded broker


class Losing(Wrapped):
    """A connection that hides from its user what became of a message, as long as it is told to.

    Attributes:
        loses: how many more sends.
    """

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.loses = 1

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        sent = super().send(message, transaction, **options)
        if not self.loses:
            return sent
        self.loses -= 1
        sent.result(PATIENCE)
        lost: Completion[SendResult] = Completion(no_executor)
        lost.set_exception(ConnectionLostError("the connection was lost"))
        return lost


class Small:
    """A broker, a service with a store, and a connection that loses the news of the first send."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.broker = Broker("outcomes")
        self.ledger = Ledger()
        self.losing = Losing(stack.enter_context(self.broker.connect()))
        self.other = stack.enter_context(self.broker.connect())
        store = stack.enter_context(SqliteStore(path))
        self.serving = stack.enter_context(Dispatcher(self.other, URI, self.ledger.service, store=store))
        self._stack = stack

    def client(self, **options: Any) -> Client:
        """Make a client whose first send is lost sight of."""
        return self._stack.enter_context(Client(self.losing, URI, **{"timeout": PATIENCE} | options))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with ExitStack() as stack:
        yield Small(tmp_path / "store.db", stack)


@pytest.mark.parametrize("addressing", [False, True])
def test_again(small: Small, addressing: bool) -> None:
    """A retry, and a retry of one, has the answer of the one run; any other request has its own."""
    client = small.client(addressing=addressing)
    request = {"soap_action": "urn:greet"}
    small.losing.loses = 2
    first = failure_of(lambda: client.call(envelope("Ann"), **request))
    second = failure_of(lambda: client.call(envelope("Ann"), retry_of=first, **request))
    assert not first.is_known
    assert not second.is_known
    assert text_of(client.call(envelope("Ann"), retry_of=second, **request)) == "Hello Ann"
    assert small.ledger.runs == {"Ann": 1}
    assert text_of(client.call(envelope("Ann"), **request)) == "Hello Ann"
    assert small.ledger.runs == {"Ann": 2}


def test_another_request(small: Small) -> None:
    """The error of another request is refused, and so is one that does not hold what was sent."""
    client = small.client()
    error = failure_of(lambda: client.call(envelope("Ann")))
    with pytest.raises(UsageError, match="error of another request"):
        client.call(envelope("Bob"), retry_of=error)
    with pytest.raises(UsageError, match="must hold the request that was sent"):
        client.call(envelope("Ann"), retry_of=CallFailedError("gone", "receptionFailure"))
    with pytest.raises(UsageError, match="must be the CallFailedError"):
        client.send(envelope("Ann"), retry_of="Ann")  # type: ignore[arg-type]
    assert client.under_way == 0


@pytest.mark.parametrize("others", [[b"old", b"more"], [b"new"], []])
def test_other_attachments(others: list[bytes]) -> None:
    """They are refused, rather than the first ones sent in their place; the same may be given again."""

    def attached(*contents: bytes) -> list[Attachment]:
        return [Attachment(each, content_type="text/plain") for each in contents]

    with brokers.connect("embedded:attached") as connection, Client(connection, URI) as client:
        old = attached(b"old")
        error = failure_of(lambda: client.call(envelope("Ann"), timeout=0.2, attachments=old))
        with pytest.raises(UsageError, match="or of an attachment, is not the same"):
            client.call(envelope("Ann"), retry_of=error, attachments=attached(*others))
        assert not failure_of(
            lambda: client.call(envelope("Ann"), timeout=0.2, retry_of=error, attachments=old)
        ).is_known


def test_by_middleware(small: Small) -> None:
    """Middleware can send again what it is not known of."""

    def persistent(call: OutgoingCall, call_next: Callable[[OutgoingCall], Any]) -> Any:
        try:
            return call_next(call)
        except CallFailedError as error:
            call.retry_of = error
            return call_next(call)

    client = small.client(middleware=[persistent])
    assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
    small.losing.loses = 1
    client.send(envelope("Bob", operation="pingMe"))
    eventually(lambda: not small.serving.under_way and not small.broker.depth(queue("greeter")), "all is done")
    assert small.ledger.runs == {"Ann": 1, "Bob": 1}


def test_who_repeats_the_lock(small: Small) -> None:
    """Somebody who saw a request and repeats it does not get its answer; its sender does, wherever it is."""
    client = small.client()
    error = failure_of(lambda: client.call(envelope("Ann")))
    assert isinstance(error.retry, Retry)
    request = error.retry.request
    assert request.properties.lookup(LOCK_PROPERTY) is not None
    assert error.retry.key not in str(request)
    assert error.retry.key not in repr(error.retry)
    eventually(lambda: small.serving.counts["answered"], "it is answered")
    elsewhere = small.other.temporary()
    with arrivals(small.other, elsewhere) as found:
        small.other.send(replace(request, reply_to=elsewhere)).result(PATIENCE)
        eventually(lambda: small.serving.counts["reply refused"], "it is seen")
        opened = [each for each in request.properties if each.name != LOCK_PROPERTY]
        opened.append(typed(KEY_PROPERTY, error.retry.key))
        small.other.send(replace(request, reply_to=elsewhere, properties=Properties(opened))).result(PATIENCE)
        assert b"Hello Ann" in bytes(found.next().body)  # type: ignore[arg-type]
    assert small.serving.counts["repeated"] == 1
    assert small.ledger.runs == {"Ann": 1}


class TestZeep:
    """The same through zeep."""

    @pytest.fixture
    def made(self, small: Small) -> dict[str, Any]:
        """The arguments of a client whose envelopes are never the same twice."""
        return {
            "wsdl": GREETER_WSDL,
            "wsse": UsernameToken("ann", "secret", use_digest=True),
            "connection": small.losing,
        }

    def test_again(self, small: Small, made: dict[str, Any]) -> None:
        """Its errors have the outcome, and a call that is signed anew is the same request."""
        with soapjms.zeep.Client(**made) as client:
            with pytest.raises(JmsTransportError) as caught:
                client.service.greetMe("Ann")
            assert caught.value.outcome is SendOutcome.UNKNOWN
            assert client.service.greetMe("Ann", _retry_of=caught.value) == "Hello Ann"
        assert small.ledger.runs == {"Ann": 1}

    def test_again_from_asyncio(self, small: Small, made: dict[str, Any]) -> None:
        """Likewise."""

        async def call() -> str:
            async with soapjms.zeep.AsyncClient(**made) as client:
                with pytest.raises(JmsTransportError) as caught:
                    await client.service.greetMe("Ann")
                assert not caught.value.is_known
                found: str = await client.service.greetMe("Ann", _retry_of=caught.value)
                return found

        assert asyncio.run(call()) == "Hello Ann"
        assert small.ledger.runs == {"Ann": 1}


@pytest.mark.parametrize(
    ("error", "status", "again"),
    [
        (CallFailedError("x", "transmissionFailure", SendOutcome.NOT_SENT), 503, True),
        (CallTimeoutError("x", "timeout", SendOutcome.NOT_SENT), 503, True),
        (CallFailedError("x", "transmissionFailure", SendOutcome.REFUSED), 503, False),
        (CallFailedError("x", "transmissionFailure"), 502, False),
        (CallTimeoutError("x", "timeout"), 504, False),
    ],
)
def test_over_http(error: CallFailedError, status: int, again: bool) -> None:
    """Only what was not sent is to be tried again."""
    refused = failed(error)
    assert (refused.status, "Retry-After" in refused.headers) == (status, again)


# Over AMQP, with a broker that does as it is told


def test_without_credit() -> None:
    """What waits for credit was not sent, and is not sent later."""
    with (
        Peer(credit=0) as peer,
        brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as connection,
        Client(connection, URI) as client,
    ):
        errors = [
            failure_of(lambda: client.send(envelope("Ann"), timeout=0.2)),
            failure_of(lambda: client.call(envelope("Ann"), timeout=0.2)),
        ]
        assert [each.outcome for each in errors] == [SendOutcome.NOT_SENT] * 2
        assert not any(each.is_confirmed for each in errors)
        assert_only_this_is_sent(peer, connection)


def links_to_send(peer: Peer) -> list[Any]:
    """List the links by which a client sends."""
    return [peer.links[each.name] for each in peer.attached if each.is_sender and not each.dynamic]


def assert_only_this_is_sent(peer: Peer, connection: Connection) -> None:
    """Let the client send, and check that nothing is sent but one message more."""
    last = connection.send(text())
    (link,) = links_to_send(peer)
    peer.do(lambda: link.flow(10))
    last.result(PATIENCE)
    assert (peer.arrived.get(timeout=PATIENCE), peer.arrived.empty()) == ("1", True)


@pytest.mark.parametrize("kind", ["call", "send"])
def test_cancelled_without_credit(kind: str) -> None:
    """What waits for credit is not sent once the task of its call or one-way message was cancelled."""

    async def cancelled(peer: Peer, connection: Connection) -> None:
        async with AsyncClient(connection, URI, timeout=PATIENCE) as client:
            task = asyncio.ensure_future(getattr(client, kind)(envelope("Ann")))
            while not links_to_send(peer):
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with Peer(credit=0) as peer, brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as connection:
        asyncio.run(cancelled(peer, connection))
        assert_only_this_is_sent(peer, connection)


class Interrupted(Wrapped):
    """A connection whose caller is interrupted while it waits for the broker to have a message."""

    def send(self, *arguments: Any, **options: Any) -> Any:
        sent = super().send(*arguments, **options)

        def interrupt(timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

        sent.result = interrupt
        return sent


def test_interrupted_without_credit() -> None:
    """What waits for credit is not sent once its caller was interrupted, as by Ctrl+C."""
    with (
        Peer(credit=0) as peer,
        brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as connection,
        Client(Interrupted(connection), URI, timeout=PATIENCE) as client,
    ):
        with pytest.raises(KeyboardInterrupt):
            client.send(envelope("Ann"))
        eventually(lambda: links_to_send(peer), "it is attached")
        assert_only_this_is_sent(peer, connection)


@pytest.mark.parametrize("credit", [0, 1])
def test_connection_ends(credit: int) -> None:
    """What was not written is known when the connection ends, what was written is not."""
    with (
        Peer(credit=credit, on_transfer=lambda delivery, octets: None) as peer,
        brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as connection,
    ):
        sent = [connection.send(text()) for _ in range(2)]
        if credit:
            peer.arrived.get(timeout=PATIENCE)
        eventually(lambda: peer.attached, "it is attached")
        peer.cut()
        found = [type(each.exception(PATIENCE)) for each in sent]
    assert found == [ConnectionLostError if credit else UnsentError, UnsentError]


@pytest.mark.parametrize(
    ("condition", "sends", "names_it", "known"),
    [
        ("amqp:not-found", 1, False, [True]),
        ("amqp:unauthorized-access", 1, False, [True]),
        ("amqp:resource-deleted", 1, False, [False]),
        ("amqp:resource-deleted", 1, True, [True]),
        ("amqp:internal-error", 1, False, [False]),
        ("amqp:not-found", 2, False, [False, False]),
    ],
)
def test_link_ends(condition: str, sends: int, names_it: bool, known: list[bool]) -> None:
    """A link that ends says of a message that it was refused only where it can be no other, or is named."""
    seen: list[Any] = []

    def transfer(delivery: Any, octets: bytes) -> None:
        seen.append(delivery)
        if len(seen) == sends:
            detach(delivery, Condition(condition, "why"), names_it=names_it)

    with Peer(on_transfer=transfer) as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        errors = [each.exception(PATIENCE) for each in [connection.send(text()) for _ in range(sends)]]
    assert all(isinstance(each, SendFailedError) for each in errors)
    assert [each.is_known for each in errors if isinstance(each, SendFailedError)] == known
