"""brokers.amqp: many commits at the same time, at our own listener, which has room for 100 transactions a client."""

from __future__ import annotations

from amqp_kit import PATIENCE, text
from calling_kit import eventually

import brokers
from brokers import ConnectionLostError, Transaction, queue
from brokers.amqp.coordinator import MAX_OPEN_TRANSACTIONS
from brokers.amqp.listener import Listener
from brokers.amqp.listener import transactions as provider
from brokers.embedded import Broker

MANY = 300


def filled(connection: brokers.Connection) -> Transaction:
    """Begin a transaction with a message in it."""
    transaction = connection.begin()
    transaction.send(text(queue("q")))
    return transaction


def test_any_number_of_commits_may_be_under_way() -> None:
    """The broker is asked for no more transactions at a time than it has room for: each commit succeeds in its turn."""
    assert MAX_OPEN_TRANSACTIONS < provider.MAX_OPEN_TRANSACTIONS < MANY
    broker = Broker()
    with Listener(broker, port=0) as listener, brokers.connect(listener.url, reconnect=False) as connection:
        for _ in range(2):
            commits = [filled(connection).commit() for _ in range(MANY)]
            assert [commit.result(PATIENCE) for commit in commits] == [()] * MANY
        eventually(lambda: broker.depth(queue("q")) == 2 * MANY, "all of it is there")


def test_commits_that_wait_are_told_that_the_connection_is_lost() -> None:
    """None is left without an answer."""
    broker = Broker()
    with Listener(broker, port=0) as listener:
        connection = brokers.connect(listener.url, reconnect=False)
        commits = [filled(connection).commit() for _ in range(MANY)]
    errors = [commit.exception(PATIENCE) for commit in commits]
    connection.close()
    assert all(each is None or isinstance(each, ConnectionLostError) for each in errors), errors
