"""Requests that end who reads them, before any function is called: each becomes a dead letter, and others are answered.

Real processes on a real ActiveMQ, which delivers again for ever what nobody accepts, over STOMP and AMQP.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling_kit import PATIENCE, envelope, fresh, request_message, take_one, text_of
from real_brokers import RealBroker
from serving_kit import Served, serving

import soapjms
from brokers import Connection, queue
from soapjms import Client

pytestmark = pytest.mark.broker

MIB = 1 << 20
LEASE = ["--lease", "0.5"]


def bulky(mebibytes: int) -> bytes:
    """Write a request within the limits whose elements take thirty times its size of memory once they are parsed."""
    piece = ("<a " + " ".join(f'a{number}=""' for number in range(40)) + "/>").encode()
    whole, hole = envelope("HOLE", operation="work"), b"HOLE"
    return whole.replace(hole, piece * (mebibytes * MIB // len(piece)))


@pytest.fixture(params=["stomp", "amqp"])
def url(request: pytest.FixtureRequest, activemq: RealBroker) -> str:
    """Where the broker is for the service."""
    found: str = getattr(activemq, f"{request.param}_url")
    return found


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """A client's."""
    with soapjms.connect(url) as made:
        yield made


@pytest.fixture
def name() -> str:
    return fresh("frail")


@pytest.fixture
def common(url: str, name: str, tmp_path: Path) -> list[str]:
    """What the command line says each time."""
    options = ["--connection", url, "--uri", f"jms:queue:{name}", "--processes", "2", "--max-deliveries", "2", *LEASE]
    return [*options, "--store", str(tmp_path / "requests.db")]


def assert_buried(connection: Connection, name: str, size: int, served: Served) -> None:
    """Check that the dead letter is there, whole, and that the log says why; over AMQP the broker may count more."""
    letter = take_one(connection, queue(f"DLQ.{name}"))
    assert letter.size == size
    said = "".join(served.err)
    found = re.search(r"no delivery of the request was ever finished; there were (\d)", said)
    assert found is not None
    assert int(found[1]) >= 2


class TestMemory:
    """A request of 15 MiB that takes half a gibibyte once it is parsed, where there is not as much."""

    def test_buried(self, connection: Connection, name: str, common: list[str], tmp_path: Path) -> None:
        """It is a dead letter after `max_deliveries`, its caller has a fault, and others are answered meanwhile."""
        body = bulky(15)
        with (
            Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
            serving(
                "frail:service", *common, marks=tmp_path, FRAIL_MIB="300", BANK_WORK="0.01", MALLOC_ARENA_MAX="2"
            ) as served,
        ):
            served.until_serving(2)
            poison = client.submit(body)
            others = [client.submit(envelope(str(number), operation="work")) for number in range(20)]
            assert all(text_of(each.result(PATIENCE)) for each in others)
            fault = poison.result(PATIENCE).fault
            assert fault is not None
            assert fault.reason == "the service failed"
            assert_buried(connection, name, len(body), served)
            assert text_of(client.call(envelope("after", operation="work")))

    def test_one_that_fits(self, connection: Connection, name: str, common: list[str], tmp_path: Path) -> None:
        """A large one for which there is the memory is answered, and nothing of it is left in the store."""
        with (
            Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
            serving("frail:service", *common, marks=tmp_path, FRAIL_MIB="500", BANK_WORK="0.01", MALLOC_ARENA_MAX="2"),
        ):
            assert text_of(client.call(bulky(3)))
        with soapjms.SqliteStore(tmp_path / "requests.db") as store, store._writing() as ledger:
            assert ledger._connection.execute("SELECT count(*) FROM soapjms_arrivals").fetchone() == (0,)


class TestKilled:
    """A request that kills who reads its body, before it is begun."""

    @pytest.mark.parametrize("size", [0, pytest.param(2 * MIB, marks=pytest.mark.soak)])
    def test_buried(self, connection: Connection, name: str, common: list[str], tmp_path: Path, size: int) -> None:
        """So with one of any size; each that died is followed by another."""
        body = envelope("x" * size, operation="work")
        answers = connection.temporary()
        with (
            Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
            serving("frail:service", *common, marks=tmp_path, BANK_WORK="0.01") as served,
        ):
            served.until_serving(2)
            connection.send(request_message(name, answers, body, properties={"fatal": "yes"})).result(PATIENCE)
            others = [client.submit(envelope(str(number), operation="work")) for number in range(20)]
            assert all(text_of(each.result(PATIENCE)) for each in others)
            fault = take_one(connection, answers)
            assert b"the service failed" in bytes(fault.body)  # type: ignore[arg-type]
            assert_buried(connection, name, len(body), served)
            assert 1 <= "".join(served.err).count("ended with -9") <= 2

    def test_named_letters(self, connection: Connection, name: str, common: list[str], tmp_path: Path) -> None:
        """With a queue for dead letters it goes there, with the reason."""
        letters = [*common, "--dead-letters", f"{name}.letters"]
        with serving("frail:service", *letters, marks=tmp_path) as served:
            served.until_serving(2)
            message = request_message(name, None, envelope(operation="work"), properties={"fatal": "yes"})
            connection.send(message).result(PATIENCE)
            letter = take_one(connection, queue(f"{name}.letters"))
        reason = letter.properties.text("dead_letter_reason")
        assert reason == "no delivery of the request was ever finished; there were 2"
