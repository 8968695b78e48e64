"""Answers to clients that are gone just after the service's connection was made again, and come back a moment later."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling_kit import PATIENCE, Wrapped, arrivals, envelope, eventually, fresh, greeter, request_message, text_of
from proxy_kit import Proxy

import soapjms
from brokers import Connection, Destination, Transaction, queue
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from brokers.embedded.connection import EmbeddedConnection
from soapjms import Client, Dispatcher
from soapjms.observing import Begun, Ended, Observation, Observer, Outcome
from soapjms.service import comebacks

BOTH = pytest.mark.parametrize("transactional", [True, False])
STORES = pytest.mark.parametrize("is_stored", [True, False])


@pytest.fixture
def broker() -> Broker:
    """Make a broker of the test's own."""
    return Broker(fresh("broker"))


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    """Stand between that broker and the service."""
    with Listener(broker, port=0) as listener, Proxy("127.0.0.1", listener.port) as proxy:
        yield proxy


@pytest.fixture
def other(proxy: Proxy) -> Iterator[Connection]:
    """The service's connection."""
    with soapjms.connect(f"amqp://127.0.0.1:{proxy.port}") as connection:
        yield connection


@pytest.fixture
def client(broker: Broker) -> Iterator[EmbeddedConnection]:
    """The connection of a client that stays."""
    with broker.connect() as connection:
        yield connection


def made_again(connection: Connection, proxy: Proxy) -> None:
    """Have the connection lost and made again."""
    before = connection.generation
    proxy.cut()
    eventually(lambda: connection.generation > before, "it was made again")
    connection.wait_connected(30)


def ended_temporary(client: EmbeddedConnection) -> Destination:
    """Return a temporary queue of a client that ended, as with its connection."""
    destination = client.temporary()
    client.end_temporary(destination)
    return destination


def make_again(client: EmbeddedConnection, destination: Destination) -> None:
    """Make a temporary queue again under its name, as clients over OpenWire do: those of this broker cannot."""
    core, place = client._core, client.place
    with core._lock:
        place.temporaries[core._nodes.add(destination, place, place)] = None


class Seen(Observer, Observation):
    """Writes down how requests end."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def begun(self, begun: Begun) -> Observation:
        return self

    def ended(self, ended: Ended) -> None:
        self.outcomes.append(ended.outcome)


@BOTH
@STORES
def test_client_that_comes_back(
    broker: Broker,
    other: Connection,
    proxy: Proxy,
    client: EmbeddedConnection,
    transactional: bool,
    is_stored: bool,
    tmp_path: Path,
) -> None:
    """The answer reaches the temporary queue that it makes again; others are not held up meanwhile."""
    name = fresh()
    with Dispatcher(
        other,
        f"jms:queue:{name}",
        greeter(),
        transactional=transactional,
        store=tmp_path / "requests.db" if is_stored else None,
    ) as dispatcher:
        made_again(other, proxy)
        client.send(request_message(name, missing := ended_temporary(client), body=envelope("Ann"))).result(PATIENCE)
        eventually(lambda: dispatcher.counts["client awaited"] == 1, "it waits")
        with Client(client, f"jms:queue:{name}", replies="shared", properties={"replyToName": fresh()}) as staying:
            assert text_of(staying.call(envelope("Bob"), timeout=PATIENCE)) == "Hello Bob"
        eventually(lambda: broker.depth(queue(name)) == 0, "both requests were accepted")
        make_again(client, missing)
        with arrivals(client, missing) as answers:
            assert b"Hello Ann" in answers.next().body
        eventually(lambda: dispatcher.counts["answered"] == 2, "it was counted")
        assert dispatcher.counts["client gone"] == 0


@BOTH
@STORES
def test_client_that_stays_away(
    other: Connection,
    proxy: Proxy,
    client: EmbeddedConnection,
    transactional: bool,
    is_stored: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is given up after some seconds, and its request was accepted long before."""
    monkeypatch.setattr(comebacks, "RETRY_SECONDS", 0.5)
    name, seen = fresh(), Seen()
    ours = f"jms:queue:{name}"
    store = tmp_path / "requests.db" if is_stored else None
    with Dispatcher(other, ours, greeter(), transactional=transactional, store=store, observer=seen) as dispatcher:
        made_again(other, proxy)
        client.send(request_message(name, ended_temporary(client), body=envelope())).result(PATIENCE)
        eventually(lambda: dispatcher.counts["client gone"] == 1, "it was given up")
        assert (dispatcher.counts["client awaited"], dispatcher.counts["answered"]) == (1, 0)
    assert seen.outcomes == [Outcome.UNDELIVERED]


@BOTH
def test_many_at_once(
    other: Connection,
    proxy: Proxy,
    client: EmbeddedConnection,
    transactional: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of many answers waits, whichever thread is the first to learn that the connection was made again."""
    for limit in ("RECONNECT_SECONDS", "RETRY_SECONDS"):  # a busy machine may take longer for all of them
        monkeypatch.setattr(comebacks, limit, 10 * PATIENCE)
    name, many = fresh(), 16  # two for each worker: the first ones are those that learn of it
    before = sys.getswitchinterval()
    with Dispatcher(other, f"jms:queue:{name}", greeter(), workers=8, transactional=transactional) as dispatcher:
        made_again(other, proxy)
        missing = ended_temporary(client)
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(many):
                client.send(request_message(name, missing, body=envelope("Ann"))).result(PATIENCE)
            eventually(lambda: dispatcher.counts["client awaited"] == many, "all wait")
        finally:
            sys.setswitchinterval(before)
        make_again(client, missing)
        with arrivals(client, missing) as answers:
            for _ in range(many):
                assert b"Hello Ann" in answers.next().body
        eventually(lambda: dispatcher.counts["answered"] == many, "all were counted, once each")
    assert dispatcher.counts["client gone"] == 0


@pytest.mark.parametrize(
    ("option", "value"), [("RECONNECT_SECONDS", -1.0), ("MAX_ANSWERS", 0), ("MAX_ANSWERS_OCTETS", 10)]
)
def test_not_later_and_not_too_many(
    other: Connection,
    proxy: Proxy,
    client: EmbeddedConnection,
    option: str,
    value: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the connection is there for a while a client that is gone stays so; nor does without end wait."""
    monkeypatch.setattr(comebacks, option, value)
    name = fresh()
    with Dispatcher(other, f"jms:queue:{name}", greeter()) as dispatcher:
        made_again(other, proxy)
        client.send(request_message(name, ended_temporary(client), body=envelope())).result(PATIENCE)
        eventually(lambda: dispatcher.counts["client gone"] == 1, "nothing waits")
        assert dispatcher.counts["client awaited"] == 0


def test_first_connection(other: Connection, client: EmbeddedConnection) -> None:
    """Who was gone when the service began does not come back."""
    name = fresh()
    with Dispatcher(other, f"jms:queue:{name}", greeter()) as dispatcher:
        client.send(request_message(name, ended_temporary(client), body=envelope())).result(PATIENCE)
        eventually(lambda: dispatcher.counts["client gone"] == 1, "nothing waits")
        assert dispatcher.counts["client awaited"] == 0


class Fails(Wrapped):
    """A connection that begins no transactions from some time on."""

    tries: int | None = None

    def begin(self) -> Transaction:
        if self.tries is not None:
            self.tries += 1
            raise RuntimeError("no new thread")
        return super().begin()


def test_send_that_fails(
    other: Connection, proxy: Proxy, client: EmbeddedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that cannot be sent, for whatever reason, is tried again, and does not wait for ever."""
    name, connection = fresh(), Fails(other)
    monkeypatch.setattr(comebacks, "RETRY_SECONDS", 0.6)
    with Dispatcher(connection, f"jms:queue:{name}", greeter()) as dispatcher:
        made_again(other, proxy)
        client.send(request_message(name, ended_temporary(client), body=envelope())).result(PATIENCE)
        eventually(lambda: dispatcher.counts["client awaited"] == 1, "it waits")
        connection.tries = 0
        eventually(lambda: dispatcher.counts["answer refused"] == 1, "its end is told")
    assert connection.tries > 1


def test_closed(other: Connection, proxy: Proxy, client: EmbeddedConnection, caplog: pytest.LogCaptureFixture) -> None:
    """What waits when the dispatcher is closed is not delivered, and that takes no time; a warning says of whom."""
    name = fresh()
    with Dispatcher(other, f"jms:queue:{name}", greeter()) as dispatcher:
        made_again(other, proxy)
        missing = ended_temporary(client)
        sent = [client.send(request_message(name, missing, body=envelope())).result(PATIENCE) for _ in range(2)]
        eventually(lambda: dispatcher.counts["client awaited"] == 2, "they wait")
    assert dispatcher.counts["client gone"] == 2
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "2 answers wait for clients that were gone, and are not delivered: the dispatcher closes" in warned
    for each in sent:
        assert f"the answer to request {each.message_id} was not delivered: its client was not back" in "\n".join(
            warned
        )


def test_nothing_is_confirmed(
    other: Connection,
    proxy: Proxy,
    client: EmbeddedConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An answer that the broker neither takes nor refuses is waited for so long only, and not sent once more."""
    monkeypatch.setattr(comebacks, "CONFIRM_TIMEOUT", 0.5)
    name = fresh()
    with Dispatcher(other, f"jms:queue:{name}", greeter()) as dispatcher:
        made_again(other, proxy)
        client.send(request_message(name, ended_temporary(client), body=envelope())).result(PATIENCE)
        eventually(lambda: dispatcher.counts["client awaited"] == 1, "it waits")
        proxy.silence()
        eventually(lambda: dispatcher.counts["answer refused"] == 1, "it was given up")
        eventually(lambda: "did not confirm it within" in caplog.text, "the log says why")
        proxy.speak()


def test_connection_that_is_lost_again(other: Connection, proxy: Proxy, client: EmbeddedConnection) -> None:
    """It is tried on once the connection is there again."""
    name = fresh()
    with Dispatcher(other, f"jms:queue:{name}", greeter()) as dispatcher:
        made_again(other, proxy)
        client.send(request_message(name, missing := ended_temporary(client), body=envelope("Ann"))).result(PATIENCE)
        eventually(lambda: dispatcher.counts["client awaited"] == 1, "it waits")
        made_again(other, proxy)
        make_again(client, missing)
        with arrivals(client, missing) as answers:
            assert b"Hello Ann" in answers.next().body
