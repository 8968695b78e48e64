"""Durable topic subscriptions of a service: what is sent while it is down arrives after; unsubscribing ends that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from calling_kit import NS, PATIENCE, Wrapped, envelope, eventually, fresh
from cli_kit import said
from click.testing import CliRunner
from real_brokers import RealBroker
from serving_kit import serving

import soapjms
from brokers import BrokerError, Connection, UnsupportedError, queue, topic
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Request, UsageError
from soapjms.cli.commands import soapjms as command

WAYS = [("activemq", "stomp"), ("activemq", "amqp"), ("artemis", "stomp"), ("artemis", "amqp")]
EACH = [pytest.param(way, marks=pytest.mark.broker, id="-".join(way)) for way in WAYS]


class News:
    """A service that takes notifications, and keeps what they say."""

    def __init__(self) -> None:
        self.came: SimpleQueue[str | None] = SimpleQueue()
        self.service = soapjms.Service()
        self.service.operation(f"{{{NS}}}greetMe")(self._take)

    def _take(self, request: Request) -> None:
        self.came.put(request.element.text)

    def next(self) -> str | None:
        """Wait for the next."""
        return self.came.get(timeout=PATIENCE)


@pytest.fixture(params=["embedded", *EACH])
def urls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Where the broker is: for those who notify, and for a service with a client id of its own."""
    if request.param == "embedded":
        url = f"embedded:{fresh('broker')}"
        return url, url
    broker, protocol = request.param
    url = getattr(request.getfixturevalue(broker), f"{protocol}_url")
    return url, f"{url}?clientId={fresh('client')}"


@pytest.fixture
def notifier(urls: tuple[str, str]) -> Iterator[Connection]:
    """The connection of those who notify, which is there all the time."""
    with soapjms.connect(urls[0]) as connection:
        yield connection


def test_what_was_missed_arrives(urls: tuple[str, str], notifier: Connection) -> None:
    """What is sent while nobody serves comes to the next service of that name, once; after unsubscribing no more."""
    name = fresh("news")
    uri = f"jms:topic:{name}"
    with Client(notifier, uri, timeout=PATIENCE) as client:
        first = News()
        with soapjms.connect(urls[1]) as connection, Dispatcher(connection, uri, first.service, durable="archive") as d:
            client.send(envelope("one"))
            assert first.next() == "one"
            eventually(lambda: d.under_way == 0, "it is accepted")
        client.send(envelope("two"))
        client.send(envelope("three"))
        second = News()
        with (
            soapjms.connect(urls[1]) as connection,
            Dispatcher(connection, uri, second.service, durable="archive") as d,
        ):
            assert [second.next(), second.next()] == ["two", "three"]
            eventually(lambda: d.under_way == 0, "they are accepted")
            with pytest.raises(BrokerError):
                connection.unsubscribe(topic(name), "archive")  # somebody serves
        with soapjms.connect(urls[1]) as connection:
            connection.unsubscribe(topic(name), "archive")
            client.send(envelope("four"))
            third = News()
            with Dispatcher(connection, uri, third.service, durable="archive"):
                client.send(envelope("five"))
                assert third.next() == "five"
            connection.unsubscribe(topic(name), "archive")


class Untold(Wrapped):
    """A connection without client id."""

    @property
    def capabilities(self) -> Any:
        return replace(self.inner.capabilities, durable_topics=False)


class TestMistakes:
    """What is refused at once, with what would be accepted."""

    @pytest.fixture
    def connection(self) -> Iterator[Connection]:
        with Broker().connect() as connection:
            yield connection

    def test_no_topic(self, connection: Connection) -> None:
        with pytest.raises(UsageError, match="only a topic has them; requests come to queue:q"):
            Dispatcher(connection, "jms:queue:q", soapjms.Service(), durable="archive")

    @pytest.mark.parametrize("name", ["", 7])
    def test_no_name(self, connection: Connection, name: str) -> None:
        with pytest.raises(UsageError, match="durable must be the name of a durable subscription"):
            Dispatcher(connection, "jms:topic:t", soapjms.Service(), durable=name)

    def test_no_client_id(self, connection: Connection) -> None:
        """Or a broker that has none for any, as RabbitMQ: the error names it."""
        why = "embedded has no durable subscriptions on this connection .*: connect with clientId=NAME in the URL"
        with pytest.raises(UsageError, match=why):
            Dispatcher(Untold(connection), "jms:topic:t", soapjms.Service(), durable="archive")

    def test_unsubscribing(self, connection: Connection) -> None:
        """What is not there is nothing to end, and a closed connection ends nothing."""
        connection.unsubscribe(topic("t"), "archive")
        connection.close()
        with pytest.raises(BrokerError):
            connection.unsubscribe(topic("t"), "archive")

    def test_several_processes(self) -> None:
        options = ["--connection", "embedded:", "--uri", "jms:topic:t", "--durable", "archive", "--processes", "2"]
        done = CliRunner().invoke(command, ["serve", "bank:service", *options])
        assert done.exit_code == 2
        assert "--durable needs --processes 1" in done.output


@pytest.mark.broker
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_without_client_id(request: pytest.FixtureRequest, protocol: str) -> None:
    """Unsubscribing needs a client id too, and a topic."""
    url = getattr(request.getfixturevalue("activemq"), f"{protocol}_url")
    with soapjms.connect(url) as connection, pytest.raises(UnsupportedError, match="client_id=NAME"):
        connection.unsubscribe(topic("t"), "archive")
    with soapjms.connect(f"{url}?clientId={fresh()}") as connection, pytest.raises(ValueError, match="must be a topic"):
        connection.unsubscribe(queue("q"), "archive")


@pytest.mark.broker
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_the_command_unsubscribes(way: tuple[str, str], request: pytest.FixtureRequest) -> None:
    """What comes after it is not kept; it is refused while somebody serves."""
    broker, protocol = way
    url = getattr(request.getfixturevalue(broker), f"{protocol}_url")
    own, name = f"{url}?clientId={fresh('client')}", fresh("news")
    uri = f"jms:topic:{name}"
    words = ["unsubscribe", "archive", "--connection", own, "--uri", uri]
    with soapjms.connect(url) as notifier, Client(notifier, uri) as client:
        first = News()
        with soapjms.connect(own) as connection, Dispatcher(connection, uri, first.service, durable="archive"):
            client.send(envelope("one"))
            assert first.next() == "one"
            refused = CliRunner().invoke(command, words)
            assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        client.send(envelope("missed"))
        told = said(*words)
        assert (told["unsubscribed"], told["destination"]) == ("archive", f"topic:{name}")
        second = News()
        with soapjms.connect(own) as connection, Dispatcher(connection, uri, second.service, durable="archive"):
            client.send(envelope("two"))
            assert second.next() == "two"
        done = CliRunner().invoke(command, words)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith(f"the durable subscription 'archive' to topic:{name} at ")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--uri", "jms:queue:q"], "only a topic has them"),
        (["--uri", "jms:topic:t", "--wsdl", __file__], "give either --uri or --wsdl"),
        ([], "give either --uri or --wsdl"),
    ],
)
def test_what_the_command_does_not_take(options: list[str], text: str) -> None:
    """One message, status 2."""
    with soapjms.connect("embedded:"):
        done = CliRunner().invoke(command, ["unsubscribe", "archive", "--connection", "embedded:", *options])
    assert (done.exit_code, done.stdout) == (2, "")
    assert text in done.stderr


def test_no_subscription_is_in_an_embedded_broker() -> None:
    """The command refuses one that nobody else in its process uses: it can have no subscription to delete."""
    words = ["unsubscribe", "archive", "--connection", "embedded:nobody", "--uri", "jms:topic:t"]
    done = CliRunner().invoke(command, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is a broker inside of this process, where no durable subscription is. Run a broker" in done.stderr


@pytest.mark.broker
def test_the_command_needs_a_client_id(activemq: RealBroker) -> None:
    """It says what to write."""
    words = ["unsubscribe", "archive", "--connection", activemq.stomp_url, "--uri", "jms:topic:t"]
    done = CliRunner().invoke(command, words)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "clientId=NAME in the URL" in done.stderr


@pytest.mark.broker
def test_served(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """`soapjms serve --durable` gets what was sent while it was down."""
    url, uri = request.getfixturevalue("activemq").stomp_url, f"jms:topic:{fresh('news')}"
    options = ["--connection", f"{url}?clientId={fresh()}", "--uri", uri, "--durable", "archive"]
    with soapjms.connect(url) as connection, Client(connection, uri) as client:
        with serving("bank:service", *options, marks=tmp_path) as served:
            served.until_serving()
            served.process.terminate()
            assert served.ended() == 0
        client.send(envelope("missed", operation="work"))
        with serving("bank:service", *options, marks=tmp_path):
            eventually(lambda: (tmp_path / "work-missed").exists(), "it arrives")
