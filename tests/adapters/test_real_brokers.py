"""The harness that starts real brokers."""

import os
from pathlib import Path

import pytest
from broker_recipes import Artemis, Classic, Recipe
from real_brokers import (
    ActiveMQ,
    BrokerStartError,
    ChildBroker,
    RealBroker,
    answers_stomp,
    broker_ports,
    java,
    key_properties,
)
from stomp_kit import PATIENCE, Inbox, message_to, wait_until

import brokers
from brokers import queue


def test_java_that_is_missing_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is skipped for want of a JVM: the error says what to type."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerStartError, match="make java"):
        java()


def test_java_that_is_too_old_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The version is read, not assumed."""
    fake = tmp_path / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerStartError, match="too old"):
        java()


def test_broker_ports_differ() -> None:
    """All ports are held until the last is known."""
    ports = broker_ports()
    assert len({*ports}) == len(ports)


@pytest.mark.broker
def test_broker_answers_and_leaves_nothing_behind() -> None:
    """The child process lets our user in; after stop it is gone, as are its files."""
    with ActiveMQ() as broker:
        pid, port = broker.pid, broker.ports.stomp
        assert pid is not None
        assert answers_stomp(broker.host, port)
        directory = broker.directory
        assert (directory / "broker.log").exists()
    assert not directory.exists()
    assert not answers_stomp("127.0.0.1", port)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.broker
@pytest.mark.parametrize("recipe", [Classic(), Artemis()], ids=lambda recipe: recipe.title)
def test_killed_broker_starts_again_with_its_data(recipe: Recipe) -> None:
    """On the same ports, so that clients find it; it tells what it holds, and its log has no error."""
    with ChildBroker(recipe) as broker:
        ports = broker.ports
        with brokers.connect(broker.stomp_url) as connection:
            connection.send(message_to(queue("kept"))).result(PATIENCE)
        assert broker.counters().messages == {"kept": 1}
        broker.kill()
        assert not answers_stomp(broker.host, ports.stomp)
        broker.start()
        assert broker.ports == ports
        with brokers.connect(broker.stomp_url) as connection:
            inbox = Inbox(lambda delivery: delivery.accept())
            connection.consume(queue("kept"), inbox)
            inbox.next()
            wait_until(lambda: not broker.counters().messages)
            assert broker.counters().consumers == {"kept": 1}
            wait_until(lambda: broker.counters().connections == 1)
        wait_until(lambda: not broker.counters().connections)
        assert broker.counters().consumers == {}
        assert broker.counters().temporaries == []
        assert broker.problems() == []


def test_names_of_mbeans_are_read() -> None:
    """Values may be quoted, and hold what separates them."""
    name = r'org.example:component=queues,address="a,b=\"c\"",queue="q"'
    assert key_properties(name) == {"component": "queues", "address": 'a,b="c"', "queue": "q"}


@pytest.mark.broker
def test_taken_port_is_answered_with_other_ports(monkeypatch: pytest.MonkeyPatch, activemq: RealBroker) -> None:
    """A port that somebody took in between costs one more start, not the test run."""
    offers = iter([activemq.ports, broker_ports()])
    monkeypatch.setattr("real_brokers.broker_ports", lambda: next(offers))
    with ActiveMQ() as broker:
        assert broker.ports != activemq.ports
        assert answers_stomp(broker.host, broker.ports.stomp)


@pytest.mark.broker
def test_bytes_sent_by_java_come_back_to_java(activemq: RealBroker) -> None:
    """`send_special` speaks for a JMS client: typed properties, a reply as JSON."""
    name = "harness.echo"
    reply = activemq.send_special("bytes", name, reply_to=name, wait=30.0)
    assert reply is not None
    assert reply["type"] == "bytes"
    assert reply["properties"]["SOAPJMS_requestURI"] == f"jms:queue:{name}"
    assert reply["messageId"].startswith("ID:")


@pytest.mark.broker
def test_failing_java_program_is_reported(activemq: RealBroker) -> None:
    """What the program wrote is in the error."""
    with pytest.raises(BrokerStartError, match="unknown kind of message: fax"):
        activemq.send_special("fax", "harness.never")
