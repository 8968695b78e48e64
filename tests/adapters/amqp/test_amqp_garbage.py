"""brokers.amqp: no object of proton's is left to the garbage collector while its connection is open.

The collector runs in any thread, without the lock of the connection, and in any order; and proton frees a link twice
that is let go of after its session was freed (seen with 0.40), which ends the process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from amqp_kit import PATIENCE, text
from amqp_raw import Raw
from proton import Endpoint, Message
from proton._wrapper import Wrapper
from waiting import eventually

import brokers
from brokers import BrokerError, Connection, Delivery, queue
from brokers.amqp.listener import Listener, Options
from brokers.embedded import Broker

LIMIT = 10_000
"""Octets of a message."""


@contextmanager
def no_garbage_of_protons() -> Iterator[None]:
    """Fail if the collector finds an object of proton's that was made meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = [repr(each) for each in gc.garbage if isinstance(each, Wrapper)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == []


def send(client: Raw) -> None:
    """To a queue, to any destination, and within a transaction."""
    client.outcome(client.send(client.attach("q"), Message(body="a")))
    client.outcome(client.send(client.attach(None), Message(address="q", body="b")))
    control = client.control()
    transaction = client.declare(control)
    client.outcome(client.send(client.attach("q"), Message(body="c"), transaction=transaction))
    client.discharge(control, transaction, fail=False)


def receive(client: Raw) -> None:
    """From a queue, with messages that are held; from a topic; from a node of its own."""
    send(client)
    client.receive("q", credit=2)
    client.until(lambda: len(client.deliveries) == 2)
    client.receive("topic://t")
    client.receive(None, dynamic=True)


def ask_too_much(client: Raw) -> None:
    """Links that lead nowhere, and a message above the limit."""
    client.attach("queue://" + "x" * 300)
    client.receive("topic://a/#/b")
    link = client.attach("q")
    client.send(link, b"x" * (LIMIT + 1))
    client.end_of(link)


@pytest.mark.parametrize("what", [send, receive, ask_too_much])
def test_listener(what: Callable[[Raw], None]) -> None:
    """A client that ends its session without a word about the links in it."""
    with Listener(Broker(), port=0, options=Options(max_message=LIMIT)) as listener, Raw(listener.port) as client:
        with no_garbage_of_protons():
            what(client)
            client.session.close()
            client.until(lambda: client.session.state & Endpoint.REMOTE_CLOSED)
        assert listener.guests == 1


def consume(connection: Connection) -> None:
    """A message that is taken and one that is given back, with their consumer."""
    for _ in range(2):
        connection.send(text()).result(PATIENCE)
    taken: list[Delivery] = []
    with connection.consume(queue("q"), taken.append, prefetch=2):
        eventually(lambda: len(taken) == 2, "they are there")
        taken.pop().accept()


def do_in_a_transaction(connection: Connection) -> None:
    """A request that is answered in one, and one that is abandoned."""
    mine, taken = connection.temporary(), []
    connection.send(text()).result(PATIENCE)
    with connection.consume(queue("q"), taken.append, prefetch=2):
        eventually(lambda: taken, "it is there")
        transaction = connection.begin()
        transaction.accept(taken[0])
        transaction.send(text(mine))
        transaction.commit().result(PATIENCE)
        connection.begin().abort()
    connection.end_temporary(mine)


def be_refused(connection: Connection) -> None:
    """A consumer, and messages, that the broker refuses."""
    with pytest.raises(BrokerError):
        connection.consume(queue("q"), lambda delivery: None, selector="no (selector")
    with pytest.raises(BrokerError):
        connection.send(text(body="x" * (LIMIT + 1))).result(PATIENCE)


@pytest.mark.parametrize("what", [consume, do_in_a_transaction, be_refused])
def test_client(what: Callable[[Connection], None]) -> None:
    """Our client, on the listener, whose end has nothing left either."""
    with (
        Listener(Broker(), port=0, options=Options(max_message=LIMIT)) as listener,
        brokers.connect(f"amqp://127.0.0.1:{listener.port}") as connection,
        no_garbage_of_protons(),
    ):
        what(connection)
