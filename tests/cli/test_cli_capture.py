"""The command `soapjms capture` as a user types it, on brokers that were told what it prints, and on others."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from calling_kit import PATIENCE, Wrapped, arrivals, envelope, eventually, fresh, greeter, text_of
from cli_kit import command, environment, on_terminal, process, records_in, run
from real_brokers import RealBroker, start_activemq, start_artemis

import soapjms
from brokers import Connection, DestinationKind, Message, MessageType, queue, topic
from soapjms.protocol.record import Direction, Node, Record

CALLS = [200, pytest.param(2_000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
AT_ONCE = 8

OURS = {"SOAPJMS", "soapjms"}
"""How the names of the properties begin that our client sends: those of the binding, and by which it sends again."""


@dataclass
class Tapping:
    """A capture at work, and what it printed when it ended."""

    url: str
    folder: Path
    child: subprocess.Popen[str]
    said: dict[str, Any] = field(default_factory=dict)

    def end(self, status: int = 0) -> None:
        """End it as Ctrl-C does."""
        self.child.send_signal(signal.SIGINT)
        out, _ = self.child.communicate(timeout=PATIENCE)
        assert self.child.returncode == status, out
        self.said = json.loads(out)

    def records(self) -> list[Record]:
        """Read what was captured, as the replay does."""
        return records_in(self.folder)


@contextmanager
def tapping(url: str, folder: Path, *options: object, as_json: bool = True) -> Iterator[Tapping]:
    """Run the command; it captures within the block."""
    arguments = command("capture", "--out", folder / "captures", *["--json"] * as_json, *options)
    variables = environment(SOAPJMS_CONNECTION=url)
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=variables
    ) as child:
        try:
            assert child.stderr is not None
            first = child.stderr.readline()
            assert first.startswith("capturing from "), first + child.stderr.read()
            yield Tapping(url, folder / "captures", child)
        finally:
            if child.poll() is None:
                child.kill()


def greet(url: str, name: str, whom: str = "Ann") -> None:
    """Serve a queue and call the service there once, over a connection of its own."""
    with (
        soapjms.connect(url) as connection,
        soapjms.Dispatcher(connection, f"jms:queue:{name}", greeter()),
        soapjms.Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
    ):
        assert text_of(client.call(envelope(whom))) == f"Hello {whom}"


@pytest.fixture(scope="module", params=["activemq", "artemis"])
def broker(request: pytest.FixtureRequest) -> Iterator[RealBroker]:
    """A broker that was told what `--setting` prints."""
    told = run("capture", "--setting", request.param)
    assert (told.exit_code, told.stderr) == (0, "")
    setting = told.stdout.partition("\n\n")[2]
    mirrored = 'useMirroredQueues="true"' in setting
    with start_activemq(mirrored=mirrored) if request.param == "activemq" else start_artemis(setting=setting) as broker:
        yield broker


@pytest.mark.broker
class TestOnEachBroker:
    """ActiveMQ with mirrored queues, Artemis with a divert."""

    @pytest.mark.parametrize("calls", CALLS)
    def test_calls(self, broker: RealBroker, calls: int, tmp_path: Path) -> None:
        """Calls on temporary reply queues: each message once, all paired, nothing broken; pings are left out."""
        name, messages = fresh(), 2 * calls + 1
        with (
            tapping(broker.stomp_url, tmp_path) as tap,
            soapjms.connect(broker.stomp_url) as asking,
            soapjms.connect(broker.stomp_url) as serving,
            soapjms.Dispatcher(serving, f"jms:queue:{name}", greeter(), workers=4) as dispatcher,
            soapjms.Client(asking, f"jms:queue:{name}?timeToLive=600000", timeout=PATIENCE) as client,
            ThreadPoolExecutor(AT_ONCE) as callers,
        ):
            dispatcher.ping()
            answers = list(callers.map(lambda number: text_of(client.call(envelope(f"{number}"))), range(calls)))
            client.send(envelope("alone"))
            asking.send(Message(message_type=MessageType.TEXT, body="no SOAP", destination=queue(fresh()))).result(9)
            eventually(lambda: len(tap.records()) == messages, "all is in the files")
            tap.end()
        assert answers == [f"Hello {number}" for number in range(calls)]
        assert {key: tap.said[key] for key in ("seen", "recorded", "other", "dropped", "failed", "gaps")} == {
            "seen": messages + 1,
            "recorded": messages,
            "other": 1,
            "dropped": 0,
            "failed": 0,
            "gaps": [],
        }
        records = tap.records()
        assert len({record.message.message_id for record in records}) == len(records) == messages
        assert {(each.node, each.message.untyped) for each in records} == {(Node.TAP, True)}
        assert [each.direction for each in records if each.direction] == [Direction.ONE_WAY]
        requests = [each.message for each in records if each.message.reply_to is not None]
        replies = [each.message for each in records if each.message.destination != queue(name)]
        assert {str(each.destination) for each in requests} == {f"queue:{name}"}
        assert {each.destination.kind for each in replies if each.destination} == {DestinationKind.TEMPORARY_QUEUE}
        assert {each.destination for each in replies} == {each.reply_to for each in requests}
        self.replays_clean(tap, calls, tmp_path)

    def replays_clean(self, tap: Tapping, calls: int, folder: Path) -> None:
        """The command that it printed finds every pair and nothing broken."""
        words = tap.said["replay"].split()
        assert words[:2] == ["soapjms", "replay"]
        done = process(*words[1:], "--local", "--json", cwd=folder)
        assert (done.returncode, done.stderr) == (0, b"")
        summary = json.loads(done.stdout)
        assert (summary["exchanges"], summary["one_way"]) == (calls, 1)
        assert summary["unpaired"] == {"missingResponses": 0, "responsesWithoutRequest": 0}
        assert summary["verdict"] != "failed"

    def test_hidden_and_of_one_queue(self, broker: RealBroker, tmp_path: Path) -> None:
        """Only requests to the queue that was asked for, and their answers, without what is not for a log."""
        ours, theirs = fresh(), fresh()
        masks = ["--mask-element", "greetMe", "--mask-pattern", "Hello [A-Z]+", "--plain"]
        with tapping(broker.stomp_url, tmp_path, "--queue", ours, *masks) as tap:
            for name in (ours, theirs):
                greet(broker.stomp_url, name, "SECRET")
            tap.end()
        (log,) = (tmp_path / "captures").iterdir()
        assert log.suffix == ".jsonl"
        assert (tap.said["recorded"], tap.said["masked"], tap.said["other"]) == (2, 2, 2)
        request, response = tap.records()
        assert (request.meta["masked"], response.meta["masked"]) == (["element greetMe"], ["pattern 1"])
        assert not any("SECRET" in str(record) for record in (request, response))

    def test_calls_over_amqp(self, broker: RealBroker, tmp_path: Path) -> None:
        """A tap over STOMP sees them as well: with the queue's name, paired, nothing broken."""
        name = fresh()
        with tapping(broker.stomp_url, tmp_path) as tap:
            greet(broker.amqp_url, name)
            tap.end()
        request, response = (each.message for each in tap.records())
        assert request.destination == queue(name)
        assert request.reply_to is not None
        assert response.destination is not None
        assert request.reply_to.name == response.destination.name
        assert not any("ORIG-" in each.name for each in (*request.properties, *response.properties))
        done = process(*tap.said["replay"].split()[1:], "--local", "--json", cwd=tmp_path)
        assert (done.returncode, json.loads(done.stdout)["exchanges"]) == (0, 1)

    def test_types_are_kept_over_amqp(self, broker: RealBroker, tmp_path: Path) -> None:
        """Told where AMQP is, the tap reads there: types, JMSMessageIDs, the queue's name; paired, nothing broken."""
        name = fresh()
        with tapping(broker.stomp_url, tmp_path, "--amqp-port", broker.ports.amqp) as tap:
            greet(broker.amqp_url, name)
            tap.end()
        request, response = (each.message for each in tap.records())
        assert (request.destination, request.untyped, response.untyped) == (queue(name), False, False)
        assert response.properties.value("SOAPJMS_isFault") is False
        assert {each.name.partition("_")[0] for each in (*request.properties, *response.properties)} == OURS
        assert request.message_id is not None
        assert request.message_id.startswith("ID:")
        assert request.reply_to is not None
        assert response.destination is not None
        assert request.reply_to.name == response.destination.name
        assert response.correlation_id == request.correlation_id
        done = process(*tap.said["replay"].split()[1:], "--local", "--json", cwd=tmp_path)
        assert (done.returncode, json.loads(done.stdout)["exchanges"]) == (0, 1)

    def test_what_others_send_is_seen_over_amqp(self, broker: RealBroker, tmp_path: Path) -> None:
        """Over STOMP all are strings in truth; of a Java client each type of message and property is as it sent it."""
        name = fresh()
        with tapping(broker.stomp_url, tmp_path, "--amqp-port", broker.ports.amqp) as tap:
            greet(broker.stomp_url, name)
            broker.send_special("map,bytes", f"{name}.java", reply_to="temporary")
            eventually(lambda: len(tap.records()) == 4, "all is in the files")
            tap.end()
        request, response, first, second = (each.message for each in tap.records())
        assert (request.destination, first.destination) == (queue(name), queue(f"{name}.java"))
        assert response.properties.value("SOAPJMS_isFault") == "false"
        assert {each.name.partition("_")[0] for each in (*request.properties, *first.properties)} == OURS
        assert request.reply_to == response.destination
        assert response.correlation_id == request.correlation_id
        assert (first.message_type, second.message_type) == (MessageType.MAP, MessageType.BYTES)
        assert first.properties.value("SOAPJMS_isFault") is False
        assert first.reply_to is not None
        assert first.reply_to.kind is DestinationKind.TEMPORARY_QUEUE
        with soapjms.connect(broker.stomp_url) as taker, arrivals(taker, queue(f"{name}.java")) as left:
            left.take(2)  # or other tests would find them in the counters

    def test_a_killed_capture_leaves_what_it_had_written(self, broker: RealBroker, tmp_path: Path) -> None:
        """SIGKILL at work: every file reads to its end."""
        name = fresh()
        with (
            tapping(broker.stomp_url, tmp_path, "--rotate", "0.001") as tap,
            soapjms.connect(broker.stomp_url) as sender,
        ):
            with soapjms.Client(sender, f"jms:queue:{name}") as client:
                for number in range(50):
                    client.send(envelope(f"{number}"))
                eventually(lambda: tap.folder.exists() and tap.records(), "something is in a file")
                for number in range(50):
                    client.send(envelope(f"{number}"))
            tap.child.kill()
            tap.child.wait(PATIENCE)
            assert len(tap.records()) >= 1
            with soapjms.connect(broker.stomp_url) as taker, arrivals(taker, queue(name)) as left:
                left.take(100)  # or other tests would find it in the counters


def fill(child: subprocess.Popen[str], *, room: int = resource.RLIM_INFINITY) -> None:
    """Have the system refuse a process to write beyond so much of any file, as a full disk does; without it no more."""
    hard = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (room, hard))


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["activemq"], indirect=True)
@pytest.mark.parametrize("plain", [[], ["--plain"]], ids=["gzip", "plain"])
def test_a_disk_that_is_full_for_a_while(broker: RealBroker, plain: list[str], tmp_path: Path) -> None:
    """It says so, what comes waits, and is written once there is room; nothing is lost, and the status is 0."""
    name = fresh()
    with tapping(broker.stomp_url, tmp_path, *plain) as tap:
        assert tap.child.stderr is not None
        send_one_way(broker.stomp_url, name, 3)
        eventually(lambda: len(tap.records()) == 3, "what passed before")
        (file,) = tap.folder.iterdir()
        fill(tap.child, room=file.stat().st_size + 10)
        send_one_way(broker.stomp_url, name, 50)
        assert "nothing can be written to " in tap.child.stderr.readline()
        assert len(tap.records()) == 3
        fill(tap.child)
        eventually(lambda: len(tap.records()) == 53, "what waited")
        assert "can be written to again" in tap.child.stderr.readline()
        tap.end()
    assert (tap.said["recorded"], tap.said["dropped"], tap.said["failed"]) == (53, 0, 0)


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["activemq"], indirect=True)
def test_a_disk_that_stays_full(broker: RealBroker, tmp_path: Path) -> None:
    """What is lost is counted, and the status is 1; what was written before can be read."""
    name = fresh()
    with tapping(broker.stomp_url, tmp_path) as tap:
        assert tap.child.stderr is not None
        send_one_way(broker.stomp_url, name, 3)
        eventually(lambda: len(tap.records()) == 3, "what passed before")
        fill(tap.child, room=1)
        send_one_way(broker.stomp_url, name, 20)
        assert "nothing can be written to " in tap.child.stderr.readline()
        tap.end(status=1)
    assert (tap.said["seen"], tap.said["recorded"], tap.said["failed"]) == (23, 3, 20)
    assert len(tap.records()) == 3


def send_one_way(url: str, name: str, count: int) -> None:
    """Send one-way messages to a queue, and take them from there, or other tests would find them in the counters."""
    with soapjms.connect(url) as sender, soapjms.Client(sender, f"jms:queue:{name}") as client:
        for number in range(count):
            client.send(envelope(f"{number}"))
    with soapjms.connect(url) as taker, arrivals(taker, queue(name)) as left:
        left.take(count)


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["activemq"], indirect=True)  # Artemis takes long to come back
def test_the_broker_goes_and_comes_back(broker: RealBroker, tmp_path: Path) -> None:
    """The capture goes on by itself; it says from when to when it saw nothing, in the log too; status 1."""
    name = fresh()

    def send(count: int) -> None:
        with soapjms.connect(broker.stomp_url) as sender, soapjms.Client(sender, f"jms:queue:{name}") as client:
            for number in range(count):
                client.send(envelope(f"{number}"))

    with tapping(broker.stomp_url, tmp_path) as tap:
        assert tap.child.stderr is not None
        send(3)
        eventually(lambda: len(tap.records()) == 3, "what passed before")
        broker.kill()
        assert "was lost; reconnecting" in tap.child.stderr.readline()
        broker.start()
        while "connected again" not in tap.child.stderr.readline():
            assert tap.child.poll() is None
        send(4)
        eventually(lambda: len(tap.records()) == 7, "what passed after")
        tap.end(status=1)
    ((begun, ended),) = tap.said["gaps"]
    assert begun < ended
    assert tap.records()[3].meta["not_connected_before"] == [[begun, ended]]


@pytest.mark.broker
def test_the_end_after_some_time(activemq: RealBroker, tmp_path: Path) -> None:
    """A terminal shows how it goes and how much of its time is over; at the end the command to run, if there is one."""
    arguments = ["capture", "--connection", activemq.stomp_url, "--no-check", "--for", "3"]
    status, shown = on_terminal(*arguments, "--source", "somewhere.else", cwd=tmp_path)
    assert status == 0, shown
    assert "0 recorded; connected; capture-" in shown
    assert re.search(r"\b[4-9]\d%", shown), shown
    assert "soapjms replay" not in shown
    assert list((tmp_path / "captures").iterdir()) == []


@pytest.mark.broker
def test_the_words_at_the_end(activemq: RealBroker, tmp_path: Path) -> None:
    """Counts, and the command with the file in it; a topic is recorded as it is; SIGTERM ends it too."""
    name = fresh("news")
    options = ["--no-check", "--source", fresh(), "--topic", name]
    with (
        tapping(activemq.stomp_url, tmp_path, *options, as_json=False) as tap,
        soapjms.connect(activemq.stomp_url) as sender,
        soapjms.Client(sender, f"jms:topic:{name}") as client,
    ):
        client.send(envelope())
        eventually(tap.records, "it is in the file")
        tap.child.send_signal(signal.SIGTERM)
        out, _ = tap.child.communicate(timeout=PATIENCE)
    (log,) = (tmp_path / "captures").iterdir()
    assert tap.child.returncode == 0
    assert out == f"1 recorded\nsoapjms replay {log} --out report\n"
    (record,) = tap.records()
    assert record.message.destination == topic(name)


@contextmanager
def virtual(url: str) -> Iterator[tuple[str, soapjms.Client]]:
    """Serve a virtual topic, by a queue of its consumers; give its name and a client."""
    name = f"VirtualTopic.{fresh()}"
    with (
        soapjms.connect(url) as serving,
        soapjms.connect(url) as asking,
        soapjms.Dispatcher(serving, f"jms:queue:Consumer.A.{name}", greeter()),
        soapjms.Client(asking, f"jms:topic:{name}", timeout=PATIENCE) as client,
    ):
        yield name, client


@pytest.mark.broker
@pytest.mark.parametrize("source", ["{name}", "VirtualTopic.>"])
def test_virtual_topics_need_no_setting(activemq: RealBroker, source: str, tmp_path: Path) -> None:
    """On a broker that mirrors nothing: requests as they were sent to the topic, and no answers."""
    with (
        virtual(activemq.stomp_url) as (name, client),
        tapping(activemq.stomp_url, tmp_path, "--no-check", "--source", source.format(name=name)) as tap,
    ):
        assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
        client.send(envelope("Bob"))
        eventually(lambda: len(tap.records()) == 2, "both are in the file")
        tap.end()
    records = tap.records()
    assert {record.message.destination for record in records} == {topic(name)}
    assert [record.message.reply_to is None for record in records] == [False, True]


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["activemq"], indirect=True)
def test_virtual_topics_beside_mirrored_queues(broker: RealBroker, tmp_path: Path) -> None:
    """Requests are there already, by the queue of who consumes them, and answers; `--topic` has a request once more."""
    with (
        virtual(broker.stomp_url) as (name, client),
        tapping(broker.stomp_url, tmp_path, "--topic", name) as tap,
    ):
        assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
        eventually(lambda: len(tap.records()) == 3, "all is in the file")
        tap.end()
    messages = [record.message for record in tap.records()]
    copies = {each.destination: each.message_id for each in messages if each.reply_to is not None}
    assert copies.keys() == {queue(f"Consumer.A.{name}"), topic(name)}
    assert len(set(copies.values())) == 1
    (answer,) = (each for each in messages if each.reply_to is None)
    assert answer.destination == messages[0].reply_to


@pytest.mark.broker
def test_a_broker_that_was_not_told(activemq: RealBroker, tmp_path: Path) -> None:
    """It prints what to write and where, and ends with 2; nothing is left behind."""
    done = process("capture", "--connection", activemq.stomp_url, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"ActiveMQ/6.1.8 makes no copies" in done.stderr
    assert b"conf/activemq.xml" in done.stderr
    assert b'useMirroredQueues="true"' in done.stderr
    assert list((tmp_path / "captures").iterdir()) == []


@pytest.mark.broker
def test_amqp_at_the_port_of_stomp_is_found(tmp_path: Path) -> None:
    """As with most acceptors of Artemis: nothing has to be said for it."""
    setting = run("capture", "--setting", "artemis").stdout.partition("\n\n")[2]
    with start_artemis(setting=setting) as broker:
        both = broker.stomp_url.replace(f":{broker.ports.stomp}", f":{broker.ports.ws}")
        with tapping(both, tmp_path) as tap:
            broker.send_special("bytes", fresh())
            tap.end()
    (record,) = tap.records()
    assert record.message.properties.value("SOAPJMS_isFault") is False


@pytest.mark.broker
def test_a_port_where_amqp_is_not(broker: RealBroker, activemq: RealBroker, tmp_path: Path) -> None:
    """Of no use, or another broker's: it says so, and ends with 2."""
    for port, why in [
        (broker.ports.stomp, b"asks for an AMQP 1.0 login"),
        (activemq.ports.amqp, b"it is another broker"),
    ]:
        done = process("capture", "--connection", broker.stomp_url, "--amqp-port", port, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"no AMQP at port %d: " % port in done.stderr
        assert why in done.stderr
        assert b"admin:" not in done.stderr


class Named(Wrapped):
    """A connection to a broker whose name would clear a terminal."""

    @property
    def capabilities(self) -> Any:
        return replace(super().capabilities, broker="ActiveMQ/6\x1b[2J\x9b")


def test_a_name_does_not_act_on_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's name has escapes where it is printed."""

    @contextmanager
    def named(*given: Any) -> Iterator[Connection]:
        with soapjms.connect("embedded:named") as connection:
            yield Named(connection)

    monkeypatch.setattr("soapjms.cli.capture.connect_url", named)
    monkeypatch.setattr("soapjms.cli.capture.PROBE_TIMEOUT", 0.05)
    words = ["capture", "--connection", "embedded:named", "--out", tmp_path, "--amqp-port", "0"]
    refused = run(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(r"Error: ActiveMQ/6\x1b[2J\x9b makes no copies: ")
    done = run(*words, "--no-check", "--for", "0.05")
    assert done.exit_code == 0
    assert done.stderr.startswith(r"capturing from ActiveMQ/6\x1b[2J\x9b")


def test_what_cannot_be(tmp_path: Path) -> None:
    """One message each, status 2."""
    (tmp_path / "file").touch()
    for arguments, text in [
        ([], "give --connection"),
        (["--connection", "embedded:"], "to be tapped, got 'embedded'"),
        (["--connection", "embedded:", "--mask-element", "a:b"], "must be a local name"),
        (["--connection", "embedded:", "--mask-pattern", "("], "must be a regular expression"),
        (["--connection", "embedded:", "--out", tmp_path / "file"], "which is not a folder"),
        (["--connection", "embedded:", "--rotate", "0"], "--rotate"),
        (["--connection", "embedded:", "--rotate", "1e308"], "--rotate"),
        (
            ["--connection", "embedded:", "--queue", "jms:queue:a"],
            "must be the name of a queue, such as 'a', not a URI",
        ),
        (
            ["--connection", "embedded:", "--topic", "jms:topic:a"],
            "must be the name of a topic, such as 'a', not a URI",
        ),
        (
            ["--connection", "embedded:", "--source", "jms:topic:a"],
            "must be the name of a topic, such as 'a', not a URI",
        ),
        (["--setting", "ibm-mq"], "activemq"),
    ]:
        out = [] if "--out" in arguments else ["--out", tmp_path / "captures"]
        done = run("capture", *arguments, *out)
        assert (done.exit_code, done.stdout) == (2, ""), arguments
        assert text in done.stderr
