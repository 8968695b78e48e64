"""Services on real brokers that are killed, stopped, or shared: effects once, an answer for each, nothing left.

Over STOMP the broker tells no delivery count, so it is the store that counts here.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from calling_kit import (
    PATIENCE,
    Gate,
    OnRealBrokers,
    arrivals,
    assert_one_answer_each,
    element,
    envelope,
    eventually,
    greeter,
    request_message,
    take_one,
    text_of,
    url_of,
)
from lxml import etree
from places import ROOT, SUPPORT
from serving_kit import SERVICES, serving

import soapjms
from brokers import Connection, queue
from brokers.stomp import StompConnection
from soapjms import Client, Dispatcher, Policy, Request, Service

LEASE = ["--lease", "0.5"]


def booked(path: Path) -> Counter[str]:
    """Count what the bank has booked."""
    connection = sqlite3.connect(path)
    try:
        return Counter(text for (text,) in connection.execute("SELECT text FROM booked"))
    finally:
        connection.close()


def assert_nothing_left(connection: Connection, name: str) -> None:
    """Check that neither the queue nor its dead letters hold anything."""
    with arrivals(connection, queue(name)) as left, arrivals(connection, queue(f"DLQ.{name}")) as dead:
        for found, destination in ((left, name), (dead, f"DLQ.{name}")):
            marker = request_message(destination, None)
            connection.send(marker).result(PATIENCE)
            assert found.next().correlation_id == marker.correlation_id


def metric(port: str, beginning: str) -> float:
    """Add up the samples of a page of metrics that begin so."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as page:
        text = page.read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(beginning))


def ready(port: int | str) -> list[dict[str, Any]]:
    """Ask whether it is ready; return what each process tells, nothing while it is not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=PATIENCE) as page:
            found: list[dict[str, Any]] = json.load(page)["processes"]
    except urllib.error.HTTPError as error:
        error.close()
        return []
    return found


@contextmanager
def fatal_bank(url: str, uri: str, path: Path, where: str, marks: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the bank that is killed at its commits, or else ends in order: Artemis accepts only after the answers."""
    process = subprocess.Popen(
        [sys.executable, str(SERVICES / "fatal_bank.py"), url, uri, str(path), where],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT, SERVICES))),
            "BANK_MARKS": str(marks),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield process
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


class Killed(OnRealBrokers):
    """SIGKILL at work, on real brokers; the embedded one would die with its service."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """The file of the store."""
        return tmp_path / "requests.db"

    @pytest.fixture
    def common(self, url: str, uri: str, path: Path) -> list[str]:
        """What the command line says each time."""
        return ["--connection", url, "--uri", uri, "--store", str(path), *LEASE]


class TestKilledAtWork(Killed):
    """Processes that die of what they work on; on Artemis `test_kill` does it quicker, and `make soak` this too."""

    @pytest.fixture(
        params=[
            pytest.param("activemq", marks=pytest.mark.broker),
            pytest.param("artemis", marks=[pytest.mark.broker, pytest.mark.soak]),
        ]
    )
    def url(self, request: pytest.FixtureRequest) -> str:
        """Where the broker is."""
        return url_of(request)

    def test_between_effect_and_commit(
        self, url: str, connection: Connection, name: str, uri: str, path: Path, common: list[str], tmp_path: Path
    ) -> None:
        """Functions killed after they wrote: all is booked once, every caller gets its one answer, nothing is left."""
        texts = [f"{number} fatal" if number % 15 == 7 else str(number) for number in range(60)]
        with (
            Client(connection, uri, timeout=120) as client,
            serving("bank:service", *common, "--processes", "2", marks=tmp_path) as served,
        ):
            futures = [client.submit(envelope(text, operation="book")) for text in texts]
            assert [text_of(each.result(120)) for each in futures] == [f"booked {text}" for text in texts]
            assert_one_answer_each(client)
            assert len(served.pids()) >= 2 + 2  # several may die at once
            served.process.terminate()
            assert served.ended() == 0
        assert booked(path) == Counter(texts)
        assert_nothing_left(connection, name)


class TestKilled(Killed):
    """SIGKILL at chosen points, on ActiveMQ Classic and on Artemis."""

    def test_around_the_commit(
        self, url: str, connection: Connection, name: str, uri: str, path: Path, tmp_path: Path
    ) -> None:
        """A process killed before and after the broker's commit: the store has the answers, or they were sent."""
        texts = [str(number) for number in range(60)]
        with Client(connection, uri, timeout=120) as client:
            futures = [client.submit(envelope(text, operation="book")) for text in texts]
            for where in ("before", "after"):
                with fatal_bank(url, uri, path, where, tmp_path) as process:
                    assert process.wait(PATIENCE) == -9
                assert not all(each.done() for each in futures)
            with fatal_bank(url, uri, path, "never", tmp_path):
                assert [text_of(each.result(120)) for each in futures] == [f"booked {text}" for text in texts]
            assert_one_answer_each(client)
        assert booked(path) == Counter(texts)
        assert_nothing_left(connection, name)

    def test_begun_and_not_finished(
        self, connection: Connection, name: str, uri: str, path: Path, common: list[str], tmp_path: Path
    ) -> None:
        """What a process died of is run again, and marked as delivered before; by policy it is answered with a fault.

        The store knows, so this is so as well where the broker does not tell, as Artemis over STOMP.
        """
        with Client(connection, uri, timeout=120) as client:
            with serving("bank:service", *common, marks=tmp_path) as served:
                again, once = (client.submit(envelope(operation=each)) for each in ("again", "once"))
                assert served.ended() == -9
            with serving("bank:service", *common, marks=tmp_path):
                assert text_of(again.result(120)) == "redelivered True, delivery 2"
                fault = once.result(120).fault
            assert_one_answer_each(client)
        assert fault is not None
        assert "whether it was carried out is not known; it was not run again" in fault.reason
        runs = [len((tmp_path / f"runs-{each}").read_text("utf-8").splitlines()) for each in ("again", "once")]
        assert runs == [2, 1]
        assert booked(path) == {"again": 1}
        assert_nothing_left(connection, name)

    def test_poison(
        self, connection: Connection, name: str, uri: str, path: Path, common: list[str], tmp_path: Path
    ) -> None:
        """A request that kills who works on it ends on the dead-letter queue, others are answered."""
        with (
            Client(connection, uri, timeout=120) as client,
            serving("bank:service", *common, "--max-deliveries", "2", "--processes", "2", marks=tmp_path) as served,
        ):
            served.until_serving(2)
            poison = client.submit(envelope("poison", operation="die"))
            futures = [client.submit(envelope(str(number), operation="book")) for number in range(20)]
            assert [text_of(each.result(120)) for each in futures] == [f"booked {number}" for number in range(20)]
            fault = poison.result(120).fault
            letter = take_one(connection, queue(f"DLQ.{name}"))
            assert_one_answer_each(client)
        assert fault is not None
        assert fault.reason == "the service failed"
        assert b"poison" in bytes(letter.body)  # type: ignore[arg-type]
        said = "".join(served.err)
        assert "no delivery of the request was ever finished; there were 2" in said
        assert said.count("ended with -9") == 2
        assert booked(path) == Counter(map(str, range(20)))
        assert_nothing_left(connection, name)


class TestServing(OnRealBrokers):
    """Programs that serve, on ActiveMQ Classic and on Artemis."""

    def test_shared(self, url: str, connection: Connection, uri: str, tmp_path: Path) -> None:
        """Two processes share the requests of one queue, and each has a round trip through the broker to tell."""
        options = ["--connection", url, "--uri", uri, "--processes", "2", "--workers", "2"]
        options += ["--health", "127.0.0.1:0"]
        with (
            Client(connection, uri, timeout=60) as client,
            serving("bank:service", *options, marks=tmp_path) as served,
        ):
            served.until_serving(2)
            futures = [client.submit(envelope(str(number), operation="work")) for number in range(24)]
            workers = Counter(text_of(each.result(60)) for each in futures)
            (port,) = [line.split()[3].rstrip(":") for line in served.out if line.startswith("health at port")]
            eventually(lambda: len(ready(port)) == 2, "both tell their health")
            assert all(each["ready"] and 0 < each["round_trip"] < PATIENCE for each in ready(port))
        assert set(workers) == {str(pid) for pid in served.pids()}
        assert min(workers.values()) >= 3

    def test_metrics(self, url: str, connection: Connection, uri: str, tmp_path: Path) -> None:
        """The metrics of all processes are told in one place; one that is killed leaves what it counted."""
        options = ["--connection", url, "--uri", uri, "--processes", "2", "--metrics", "127.0.0.1:0", *LEASE]
        options += ["--store", str(tmp_path / "requests.db")]
        with (
            Client(connection, uri, timeout=60) as client,
            serving("bank:service", *options, marks=tmp_path) as served,
        ):
            served.until_serving(2)
            (port,) = [line.split()[3].rstrip(":") for line in served.out if line.startswith("metrics at port")]
            done = 'soapjms_service_requests_total{destination="%s",operation="{urn:greeter}work",outcome="response"'
            done = done % f"queue:{uri.removeprefix('jms:queue:')}"
            for future in [client.submit(envelope(str(number), operation="work")) for number in range(6)]:
                future.result(60)
            eventually(lambda: metric(port, done) == 6, "six were answered")
            client.call(envelope("fatal", operation="book"), timeout=60)  # one process dies of it
            booked = done.replace("}work", "}book")
            eventually(lambda: metric(port, booked) == 1, "the other has answered it")
            eventually(lambda: metric(port, "soapjms_service_requests_in_progress") == 0, "nothing is under way")
            assert metric(port, done) == 6

    def test_ends_gracefully(self, url: str, connection: Connection, name: str, uri: str, tmp_path: Path) -> None:
        """At SIGTERM what is under way is answered; what waits stays for the next; the status is 0."""
        options = ["--connection", url, "--uri", uri, "--workers", "2", "--grace", "20"]
        with Client(connection, uri, timeout=60) as client:
            with serving("bank:service", *options, marks=tmp_path, BANK_WORK="1.5") as served:
                served.until_serving()
                futures = [client.submit(envelope(str(number), operation="work")) for number in range(6)]
                eventually(lambda: len(list(tmp_path.glob("work-*"))) == 2, "two are under way")
                served.process.terminate()
                assert served.ended() == 0
            begun = len(list(tmp_path.glob("work-*")))
            eventually(lambda: sum(each.done() for each in futures) == begun, "what was begun was answered")
            assert 2 <= begun < 6
            with serving("bank:service", *options, marks=tmp_path):
                assert all(each.result(60).fault is None for each in futures)
            assert client.counts == {}
        assert_nothing_left(connection, name)

    def test_out_of_grace(self, url: str, connection: Connection, uri: str, tmp_path: Path) -> None:
        """What is not finished within the grace goes back to the broker, and the status is 1."""
        options = ["--connection", url, "--uri", uri, "--grace", "0"]
        with Client(connection, uri, timeout=60) as client:
            with serving("bank:service", *options, marks=tmp_path, BANK_WORK="5") as served:
                served.until_serving()
                future = client.submit(envelope("slow", operation="work"))
                eventually(lambda: (tmp_path / "work-slow").exists(), "it is under way")
                served.process.terminate()
                assert served.ended() == 1
            assert "not all requests were finished within 0 s" in "".join(served.err)
            with serving("bank:service", *options, marks=tmp_path):
                assert future.result(60).fault is None

    def test_dead_letters(self, connection: Connection, other: Connection, name: str, uri: str) -> None:
        """With a queue for them, dead letters carry their reason over STOMP too."""
        service, letters = Service(policy=Policy(then="dead-letter")), queue(f"{name}.letters")
        service.operation("{urn:greeter}greetMe")(lambda request: 1 / 0)
        with (
            Dispatcher(other, uri, service, dead_letters=letters.name),
            Client(connection, uri, timeout=PATIENCE) as client,
        ):
            assert client.call(envelope("Ann")).fault is not None
            letter = take_one(connection, letters)
        assert "ZeroDivisionError" in (letter.properties.text("dead_letter_reason") or "")
        assert letter.properties.text("dead_letter_destination") == f"queue:{name}"
        assert "the service failed" in (letter.properties.text("dead_letter_fault") or "")
        assert_nothing_left(connection, name)


class TestPolicies(OnRealBrokers):
    """What becomes of requests that fail, or come too late, where a real broker hands them out."""

    def test_retried_and_expired(self, connection: Connection, other: Connection, name: str, uri: str) -> None:
        """A function that fails is run again; what expired behind it, at this side, is skipped; the rest is served."""
        runs, is_free = list[str](), Event()
        service = Service(policy=Policy(retries=2, pause=0.01))

        @service.operation("{urn:greeter}greetMe")
        def greet(request: Request) -> etree._Element:
            runs.append(request.element.text or "")
            assert is_free.wait(PATIENCE)
            if len(runs) < 3:
                raise ConnectionError("the database is away")
            return element("greetMeResponse", f"Hello {request.element.text}")

        with (
            Dispatcher(other, uri, service, workers=1, prefetch=10) as dispatcher,
            Client(connection, uri, timeout=PATIENCE) as client,
        ):
            first = client.submit(envelope("Ann"))
            eventually(lambda: runs == ["Ann"], "the first is worked on")
            deadline = time.time_ns() // 1_000_000 + 3_000
            connection.send(request_message(name, None, body=envelope("late"), expiration=deadline)).result(PATIENCE)
            eventually(lambda: time.time_ns() // 1_000_000 > deadline, "it expired")
            last = client.submit(envelope("Eve"))
            is_free.set()
            assert [text_of(each.result(PATIENCE)) for each in (first, last)] == ["Hello Ann", "Hello Eve"]
            eventually(lambda: dispatcher.counts["commits"] >= 2, "all is accepted")
            assert (dispatcher.counts["retried"], dispatcher.counts["expired"]) == (2, 1)
        assert runs == ["Ann"] * 3 + ["Eve"]
        assert_nothing_left(connection, name)


class TestRedelivered(OnRealBrokers):
    """What a function is told of a delivery that is not the first, without a store: as far as the broker tells."""

    @pytest.mark.parametrize("lost", [True, False], ids=["connection", "subscription"])
    def test_marked(self, url: str, connection: Connection, other: Connection, uri: str, lost: bool) -> None:
        """After a lost connection both tell. After an ended subscription Artemis does not: its capability says so."""
        is_begun, is_free, seen = Event(), Event(), list[tuple[bool, int | None, bool | None]]()
        first, second = Service(), Service()

        @first.operation("{urn:greeter}greetMe")
        def begin(request: Request) -> None:
            is_begun.set()
            assert is_free.wait(PATIENCE)

        @second.operation("{urn:greeter}greetMe")
        def greet(request: Request) -> etree._Element:
            seen.append((request.redelivered, request.delivery_count, request.message.redelivered))
            return element("greetMeResponse", f"Hello {request.element.text}")

        with soapjms.connect(url, reconnect=False) as mortal, Client(connection, uri, timeout=PATIENCE) as client:
            dispatcher = Dispatcher(mortal, uri, first).start()
            future = client.submit(envelope("Ann"))
            assert is_begun.wait(PATIENCE)
            if lost:
                assert isinstance(mortal, StompConnection)
                mortal._current().drop()
            else:
                dispatcher.close(0)
            with Dispatcher(other, uri, second) as serving:
                assert text_of(future.result(PATIENCE)) == "Hello Ann"
            is_free.set()
            dispatcher.close()
            assert serving.counts["answered"] == 1
        is_told = lost or other.capabilities.tells_redelivery
        assert seen == [(True, None, True) if is_told else (False, None, None)]


class TestClientGone(OnRealBrokers):
    """Answers to clients that have left."""

    def test_aborts_nothing_else(
        self, url: str, connection: Connection, other: Connection, name: str, uri: str
    ) -> None:
        """Such an answer is counted and logged, and the others of its commit arrive. Artemis lets it vanish untold."""
        gate = Gate(other)
        with (
            Dispatcher(gate, uri, greeter(), workers=5) as dispatcher,
            Client(connection, uri, timeout=PATIENCE) as client,
        ):
            first = client.submit(envelope("first"))
            assert gate.reached.wait(PATIENCE)
            with soapjms.connect(url) as leaving:
                for _ in range(2):
                    leaving.send(request_message(name, leaving.temporary())).result(PATIENCE)
                futures = [client.submit(envelope(each)) for each in ("Ann", "Eve")]
                eventually(lambda: dispatcher._committer.waiting == 4, "all are worked on, and wait for their commit")
            gate.open.set()
            assert [text_of(each.result(PATIENCE)) for each in (first, *futures)] == [
                "Hello first",
                "Hello Ann",
                "Hello Eve",
            ]
            counts = dispatcher.counts
            eventually(lambda: counts["client gone"] + counts["answered"] == 5, "each is counted")
            assert counts["commits"] == 2, "the second commit was all that was left"
            assert counts["client gone"] == (2 if other.capabilities.tells_gone else 0)
            assert text_of(client.call(envelope("next"))) == "Hello next"
        assert_nothing_left(connection, name)


class TestReplyTopic(OnRealBrokers):
    """Where answers may go, from the command line."""

    def test_answers_to_a_topic(self, connection: Connection, url: str, name: str, uri: str, tmp_path: Path) -> None:
        """The topic that --reply-topic names is written to; a queue is not that --reply-queue does not name."""
        options = [
            "--connection",
            url,
            "--uri",
            uri,
            "--reply-topic",
            f"{name}.news",
            "--reply-queue",
            f"{name}.answers",
        ]
        with serving("bank:service", *options, marks=tmp_path) as served:
            served.until_serving()
            with Client(connection, f"{uri}?topicReplyToName={name}.news", timeout=PATIENCE) as client:
                fault = client.call(envelope(operation="nothing")).fault
            connection.send(request_message(name, queue(f"{name}.others"))).result(PATIENCE)
            take_one(connection, queue(f"DLQ.{name}"))
        assert fault is not None
        assert fault.reason.startswith("no operation for the element")
