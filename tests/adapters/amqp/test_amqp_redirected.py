"""brokers.amqp: what becomes of deliveries to consumers that were redirected; home is a peer, the goal a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest
from amqp_broken import DISPOSITION, BrokenBroker
from amqp_kit import PATIENCE, Peer, discharged, settle, text
from amqp_raw import frame
from calling_kit import envelope, eventually, greeter, request_message
from proton import Condition, Delivery, Described, Terminus, symbol, uint, ulong

import brokers
from brokers import BrokerError, ClosedError, Connection, Message, SendFailedError, queue
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from brokers.url import Credentials
from soapjms import Dispatcher


class Home:
    """Sends who consumes from `q` to `there` at the goal; it has a coordinator, and keeps what it is sent."""

    def __init__(self, goal: Listener, discharge: Callable[[Any], None]) -> None:
        info = {symbol("network-host"): "127.0.0.1", symbol("port"): goal.port, symbol("address"): "there"}
        moved = Condition("amqp:link:redirect", "moved", info)
        self.sent: SimpleQueue[bytes] = SimpleQueue()
        self.goal_port = goal.port
        self.refusal: Condition | None = None
        self._discharge = discharge
        self.peer = Peer(refuses={"q": moved}, on_transfer=self._answer)

    def _answer(self, delivery: Any, octets: bytes) -> None:
        if delivery.link.remote_target.type != Terminus.COORDINATOR:
            if self.refusal is None:
                self.sent.put(octets)
                settle(delivery, Delivery.ACCEPTED)
            else:
                settle(delivery, Delivery.REJECTED, self.refusal)
            return
        if discharged(delivery, octets) is not None:
            self._discharge(delivery)


@contextmanager
def redirected(
    discharge: Callable[[Any], None] = lambda delivery: settle(delivery, Delivery.ACCEPTED),
) -> Iterator[tuple[Home, Broker, Connection, Connection]]:
    """Start both, and connect to home and to the goal."""
    broker = Broker()
    with Listener(broker, port=0) as goal:
        home = Home(goal, discharge)
        with (
            home.peer as peer,
            brokers.connect(peer.url, timeout=PATIENCE, reconnect=False) as ours,
            brokers.connect(goal.url, timeout=PATIENCE) as theirs,
        ):
            yield home, broker, ours, theirs


def request(name: str) -> Message:
    """Make a request that reached the goal as if its sender had been redirected too."""
    return request_message("there", queue("replies"), envelope(name), properties={"SOAPJMS_requestURI": "jms:queue:q"})


def test_a_dispatcher_that_is_redirected_answers() -> None:
    """It commits, as by default: the answers go home, the requests are accepted at the goal, none is a dead letter."""
    with redirected() as (home, broker, ours, theirs), Dispatcher(ours, "jms:queue:q", greeter()) as dispatcher:
        for name in ("Ann", "Bob", "Cid"):
            theirs.send(request(name)).result(PATIENCE)
        answers = b"".join(home.sent.get(timeout=PATIENCE) for _ in range(3))
        assert all(f"Hello {name}".encode() in answers for name in ("Ann", "Bob", "Cid"))
        eventually(lambda: broker.depth(queue("there")) == 0, "they were accepted")
        assert dispatcher.counts["rejected"] == 0
        assert [each.name for each in broker.destinations() if "DLQ" in each.name] == []


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("home_says", ["not-found", "redirect"])
def test_an_answer_to_a_client_of_the_goal_reaches_it(home_says: str, transactional: bool) -> None:
    """Its temporary queue is there, and not at home: the answer follows, whether home redirects it or knows nothing."""
    with redirected() as (home, broker, ours, theirs):
        inbox: SimpleQueue[brokers.Delivery] = SimpleQueue()
        replies = theirs.temporary()
        consumer = theirs.consume(replies, inbox.put, auto_accept=True)
        info = {symbol("network-host"): "127.0.0.1", symbol("port"): home.goal_port, symbol("address"): replies.address}
        told = {
            "not-found": Condition("amqp:not-found", "no such node"),
            "redirect": Condition("amqp:link:redirect", "it is there", info),
        }
        home.refusal = told[home_says]
        with Dispatcher(ours, "jms:queue:q", greeter(), transactional=transactional) as dispatcher:
            for name in ("Ann", "Bob"):
                asked = replace(request(name), reply_to=replies)
                theirs.send(asked).result(PATIENCE)
            answers = [inbox.get(timeout=PATIENCE).message.body for _ in range(2)]
            assert sorted(b"Ann" in answer for answer in answers if isinstance(answer, bytes)) == [False, True]
            eventually(lambda: broker.depth(queue("there")) == 0, "they were accepted")
            eventually(lambda: dispatcher.counts["answered"] == 2, "both are answered")
            consumer.close()
            theirs.end_temporary(replies)
            eventually(lambda: not broker.has(replies), "it is gone")
            theirs.send(asked).result(PATIENCE)
            eventually(lambda: broker.depth(queue("there")) == 0, "it was accepted")
            eventually(lambda: dispatcher.counts["client gone"] == 1, "nobody was there for it")


class Vault:
    """A source of the login that fails from the second time on, in a way that nobody foresees."""

    def __init__(self) -> None:
        self._is_open = True

    def __call__(self) -> Credentials:
        if not self._is_open:
            raise LookupError("the vault is closed")
        self._is_open = False
        return Credentials("me", "pw")


def test_a_redirect_that_fails_in_an_unforeseen_way() -> None:
    """A send and a commit end with an error all the same."""
    with BrokenBroker() as broken:
        port = int(broken.url.rpartition(":")[2])
        info = {symbol("network-host"): "127.0.0.1", symbol("port"): port, symbol("address"): "there"}
        refused = Described(ulong(0x25), [Described(ulong(0x1D), [symbol("amqp:link:redirect"), "moved", info])])
        answers = {
            0: refused,
            1: Described(ulong(0x33), [b"t"]),
            2: Described(ulong(0x34), [b"t", refused]),
            3: Described(ulong(0x24), []),
        }

        def answer(channel: int, number: int) -> None:
            if number in answers:
                state = answers[number]
                broken.write(frame(DISPOSITION, True, uint(number), uint(number), True, state, channel=channel))

        broken.on_transfer = answer
        with brokers.connect(broken.url, credentials=Vault(), timeout=PATIENCE, reconnect=False) as ours:
            sent = ours.send(text(queue("q")), timeout=PATIENCE)
            with pytest.raises(SendFailedError, match=r"could not be sent on: .*the vault is closed") as caught:
                sent.result(PATIENCE)
            assert not caught.value.is_known
            transaction = ours.begin()
            ours.send(text(queue("q")), transaction)
            (failure,) = transaction.commit().result(PATIENCE)
            assert "the vault is closed" in str(failure.error)


@pytest.mark.parametrize("sends", [0, 1])
def test_a_transaction_accepts_there_what_came_from_there(sends: int) -> None:
    """At the commit and not before, also where nothing else is in it; a second time does nothing."""
    got: SimpleQueue[brokers.Delivery] = SimpleQueue()
    with redirected() as (_, broker, ours, theirs), ours.consume(queue("q"), got.put):
        theirs.send(text(queue("there"))).result(PATIENCE)
        delivery = got.get(timeout=PATIENCE)
        for _ in range(2):
            transaction = ours.begin()
            for _ in range(sends):
                transaction.send(text(queue("out")))
            transaction.accept(delivery)
            assert transaction.commit().result(PATIENCE) == ()
            eventually(lambda: broker.depth(queue("there")) == 0, "it was accepted")


def test_what_came_from_there_goes_back_with_a_commit_that_is_lost() -> None:
    """It is delivered again, and not held for ever."""
    got: SimpleQueue[brokers.Delivery] = SimpleQueue()

    def refuse(delivery: Any) -> None:
        settle(delivery, Delivery.REJECTED, Condition("amqp:transaction:rollback", "no"))

    with redirected(refuse) as (_, _, ours, theirs), ours.consume(queue("q"), got.put):
        theirs.send(text(queue("there"), "again")).result(PATIENCE)
        transaction = ours.begin()
        transaction.send(text(queue("out")))
        transaction.accept(got.get(timeout=PATIENCE))
        assert isinstance(transaction.commit().exception(PATIENCE), BrokerError)
        second = got.get(timeout=PATIENCE)
        assert (second.message.body, second.delivery_count) == ("again", 2)


def test_what_went_back_there_voids_the_commit() -> None:
    """Nothing of the transaction is carried out, as for a delivery from home."""
    got: SimpleQueue[brokers.Delivery] = SimpleQueue()
    with redirected() as (home, _, ours, theirs), ours.consume(queue("q"), got.put):
        theirs.send(text(queue("there"))).result(PATIENCE)
        delivery = got.get(timeout=PATIENCE)
        delivery.release()
        transaction = ours.begin()
        transaction.send(text(queue("out")))
        transaction.accept(delivery)
        assert isinstance(transaction.commit().exception(PATIENCE), ClosedError)
        assert home.sent.empty()
