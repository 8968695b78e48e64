"""brokers.foreign_urls: URLs in the form of other clients, which are understood, or answered with the URL to write."""

from __future__ import annotations

import re

import pytest

import brokers
from brokers import UnknownSchemeError
from brokers.adapter.failover import read_failover
from brokers.foreign_urls import FOREIGN, LISTS, OURS, understood
from brokers.network_schemes import NETWORK_SCHEMES, OTHER_NAMES
from brokers.schemes import SCHEMES


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("stomp://u:P%20p@Host:1?heartbeat=5", "stomp://u:P%20p@Host:1?heartbeat=5"),
        (" \tSTOMP://host:1\r\n", "stomp://host:1"),
        ("Amqp+WS://host/Path", "amqp+ws://host/Path"),
        ("stomp+nio://host:1", "stomp://host:1"),
        ("stomps://host", "stomp+ssl://host"),
        ("AMQP+SSL://host", "amqps://host"),
        ("amqpwss://host", "amqp+wss://host"),
        ("EMBEDDED:Name", "embedded:Name"),
        ("embedded", "embedded:"),
        ("failover:(stomp://a,stomp://b)", "failover:(stomp://a,stomp://b)"),
    ],
)
def test_what_is_meant_without_doubt(url: str, ours: str) -> None:
    """Blanks around it, capitals, and the names that brokers give to the same protocol."""
    assert understood(url) == ours
    assert understood(ours) == ours


def test_lists() -> None:
    """Our schemes within `failover:` have been understood before, and so are other names of them."""
    assert read_failover(" FAILOVER:( STOMP://a:1 , stomps://b?x=1)\n", True).urls == (
        "stomp://a:1",
        "stomp+ssl://b?x=1",
    )


@pytest.mark.parametrize(
    ("url", "write"),
    [
        ("tcp://host:61616", "stomp://host:61613 or amqp://host:5672"),
        ("TCP://me:s3cret@host:61616?jms.prefetchPolicy.all=1", "stomp://USER:PASSWORD@host:61613 or amqp://USER:PASS"),
        ("tcp://host:61613", "stomp://host:61613"),
        ("ssl://host:61617", "stomp+ssl://host:61612 or amqps://host:5671"),
        ("nio+ssl://host:5671", "amqps://host:5671"),
        ("activemq://host", "stomp://host:61613 or amqp://host:5672"),
        ("http://host:8161/admin", "stomp://host:61613 or amqp://host:5672"),
        ("https://me:s3cret@host", "stomp+ssl://USER:PASSWORD@host:61612 or amqps://USER"),
        ("ws://host:61614", "amqp+ws://host:61614"),
        ("wss://host:61619/path", "amqp+wss://host:61619"),
        ("localhost:61613", "stomp://localhost:61613"),
        ("localhost:5672", "amqp://localhost:5672"),
        ("//10.0.0.1:5671", "amqps://10.0.0.1:5671"),
        ("localhost", "stomp://localhost:61613 or amqp://localhost:5672"),
        ("localhost:61616", "stomp://localhost:61613 or amqp://localhost:5672"),
        ("broker.example:7000", "stomp://broker.example:7000 or amqp://broker.example:7000"),
        ("[::1]:61613", "stomp://[::1]:61613"),
        ("me:s3cret@host:61613", "stomp://USER:PASSWORD@host:61613"),
        ("mqtt://host:1883", "stomp://host:61613 or"),
        ("vm://localhost", "stomp://HOST:61613 or"),
        ("jms:queue:orders?replyToName=s3cret", "stomp://HOST:61613 or amqp://HOST:5672"),
        ("", "stomp://HOST:61613 or amqp://HOST:5672"),
        ("failover:(tcp://a:61616,tcp://b:61616)?randomize=false", "failover:(stomp://a:61613,stomp://b:61613)"),
        ("failover:tcp://a:61616", "failover:(stomp://a:61613)"),
        (
            "failover:(ssl://u:s3cret@a,amqps://me:s3cret@b:1)",
            "failover:(stomp+ssl://USER:PASSWORD@a:61612,amqps://USER",
        ),
        ("failover:(localhost:61613,localhost:61623)", "failover:(stomp://localhost:61613,stomp://localhost:61623)"),
        ("(tcp://a:61616,tcp://b:61616)?ha=true", "failover:(stomp://a:61613,stomp://b:61613)"),
        ("static:(tcp://a:61616)", "failover:(stomp://a:61613)"),
        ("discovery:(multicast://default)", "failover:(stomp://HOST:PORT)"),
    ],
)
def test_what_to_write(url: str, write: str) -> None:
    """The error has the URL to write, with the host and without the password, and what is wrong with this one."""
    with pytest.raises(UnknownSchemeError, match=f"; write {re.escape(write)}") as caught:
        brokers.connect(url)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_uri_of_a_destination() -> None:
    """It is said that this is another thing than the URL of a broker."""
    with pytest.raises(
        UnknownSchemeError, match=r"is the URI of a destination, .* a connection has the URL of a broker"
    ):
        brokers.connect("jms:queue:orders")


def test_slips() -> None:
    """The scheme that was perhaps meant is named; else all are."""
    with pytest.raises(UnknownSchemeError, match=r"'stmop'; perhaps stomp: was meant; known are: amqp, "):
        brokers.connect("stmop://host")
    with pytest.raises(UnknownSchemeError, match="'carrier-pigeon'; known are: amqp, "):
        brokers.connect("carrier-pigeon://x")
    with pytest.raises(UnknownSchemeError, match="must be a string, got int"):
        brokers.connect(5)  # type: ignore[arg-type]


def test_the_tables() -> None:
    """Each scheme is in one of them, and ours are those that have an adapter."""
    assert set(OURS) == set(SCHEMES)
    assert set(OTHER_NAMES.values()) <= set(NETWORK_SCHEMES)
    assert not (set(OURS) & set(FOREIGN)) | (set(OTHER_NAMES) & set(FOREIGN)) | (set(LISTS) & {*OURS, *FOREIGN})
