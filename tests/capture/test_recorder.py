"""Capture logs as they are written: plain and compressed, whole lines, what cannot be written; the tap."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from calling_kit import GREETER, PATIENCE, Peers, eventually, fresh, greeter, request_message
from capture_kit import no_file_beyond
from places import ROOT

import soapjms
from brokers import Connection, Destination, DestinationKind, Message, MessageType, queue, topic, typed
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Recorder, Tap
from soapjms.capture.recorder import from_mirror
from soapjms.protocol.errors import UsageError
from soapjms.protocol.exchange import Pattern, pair
from soapjms.protocol.record import Direction, Node, Record, from_json
from soapjms.replay import replay
from soapjms.replay.inputs import expand
from soapjms.testing.traffic import read_logs

MESSAGE = replace(request_message("greeter", queue("answers")), message_id="ID:1")
NOON = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)


def records(path: Path) -> list[Record]:
    """Read a log."""
    octets = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [from_json(line) for line in octets.decode().splitlines()]


@pytest.fixture(params=["log.jsonl", "log.jsonl.gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log of each kind."""
    return tmp_path / str(request.param)


class TestWriting:
    """What a log holds."""

    def test_record(self, path: Path) -> None:
        """A message is one line, with the time of capture, direction, node and digest."""
        with Recorder(path, clock=lambda: NOON) as recorder:
            recorder.record(MESSAGE, Direction.REQUEST, Node.REQUESTING)
            assert (recorder.written, recorder.failed) == (1, 0)
        (found,) = records(path)
        assert (found.message, found.time) == (MESSAGE, NOON)
        assert (found.direction, found.node) == (Direction.REQUEST, Node.REQUESTING)
        assert found.sha256 is not None

    def test_own_clock(self, path: Path) -> None:
        """Without a clock of the caller's, the time is now, in UTC."""
        before = datetime.now(UTC)
        with Recorder(str(path)) as recorder:
            recorder.record(MESSAGE)
        (found,) = records(path)
        assert before <= found.time <= datetime.now(UTC)
        assert (found.direction, found.node) == (None, None)

    def test_append(self, path: Path) -> None:
        """What a log holds already stays."""
        for number in range(3):
            with Recorder(path) as recorder:
                recorder.record(replace(MESSAGE, message_id=f"ID:{number}"))
        assert [each.message.message_id for each in records(path)] == ["ID:0", "ID:1", "ID:2"]

    def test_threads(self, path: Path) -> None:
        """Lines of several threads are whole, and all there."""

        def write(first: int) -> None:
            for number in range(first, first + 200):
                recorder.record(replace(MESSAGE, message_id=f"ID:{number}"))

        with Recorder(path) as recorder:
            threads = [Thread(target=write, args=[number * 200]) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            assert recorder.written == 1600
        assert {each.message.message_id for each in records(path)} == {f"ID:{number}" for number in range(1600)}

    def test_plain_log_is_there_at_once(self, tmp_path: Path) -> None:
        """A line of a plain log is in the file when `record` returns: a process that is killed loses none."""
        path = tmp_path / "log.jsonl"
        program = (
            "import os, sys\nfrom soapjms import Recorder\nfrom brokers import Message, MessageType\n"
            "Recorder(sys.argv[1]).record(Message(message_type=MessageType.TEXT, body='x'))\nos._exit(0)\n"
        )
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60, cwd=ROOT)
        assert [each.message.body for each in records(path)] == ["x"]


class TestFork:
    """A process that is forked while a recorder is open, as by a server with workers."""

    def test_lines_are_written_once(self, path: Path) -> None:
        """Those that wait are the first process's; what the new one records goes into the file too."""
        program = (
            "import os, sys\nfrom brokers.message import Message, MessageType\nfrom soapjms import Recorder\n"
            "def said(text): return Message(message_type=MessageType.TEXT, body=text)\n"
            "recorder = Recorder(sys.argv[1])\nrecorder.record(said('before'))\n"
            "child = os.fork()\nrecorder.record(said('after' if child else 'child'))\n"
            "recorder.close()\nchild and os.waitpid(child, 0)\n"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(path)], check=True, timeout=60, cwd=ROOT)
        assert sorted(str(each.message.body) for each in records(path)) == ["after", "before", "child"]


class TestRotation:
    """A file that is full is followed by another."""

    def test_files(self, path: Path) -> None:
        """They are numbered beside the first; all messages are there, in order, and a replay of the folder has them."""
        sent = [replace(MESSAGE, correlation_id=f"call-{n}", body=os.urandom(30_000)) for n in range(40)]
        with Recorder(path, rotation=200_000) as recorder:
            for each in sent:
                recorder.record(each)
        suffix = path.name.removeprefix("log")
        assert len(recorder.files) > 2
        numbers = ["", *(f"-{number:04}" for number in range(2, len(recorder.files) + 1))]
        assert [file.name for file in recorder.files] == [f"log{number}{suffix}" for number in numbers]
        assert all(file.stat().st_size < 300_000 for file in recorder.files)
        assert [each.message for file in recorder.files for each in records(file)] == sent
        assert expand([path.parent]).rejected == []
        assert len(expand([path.parent]).logs) == len(recorder.files)

    def test_it_goes_on_in_the_last_file(self, path: Path) -> None:
        """Also if it is opened for every message; who reads what was recorded reads all files."""
        for _ in range(4):
            with Recorder(path, rotation=1) as recorder:
                recorder.record(MESSAGE)
        assert [len(records(file)) for file in recorder.files] == [1, 1, 1, 1]
        with Recorder(path) as recorder:
            recorder.record(MESSAGE)
        assert [len(records(file)) for file in recorder.files] == [1, 1, 1, 2]
        assert read_logs(recorder.files) == [record for file in recorder.files for record in records(file)]

    def test_no_other_file_can_be_begun(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The last one grows on, so that nothing is lost; it is logged once."""
        large = replace(MESSAGE, body=os.urandom(100_000))  # what is compressed is not on the disk at once
        with Recorder(path, rotation=1) as recorder:
            recorder.record(large)
            path.with_name(f"log-0002{path.name.removeprefix('log')}").mkdir()
            for _ in range(3):
                recorder.record(large)
        assert (recorder.written, recorder.failed, len(records(path))) == (4, 0, 4)
        assert [each.message.count("grows beyond its limit") for each in caplog.records] == [1]

    def test_of_nothing(self, path: Path) -> None:
        """A file without room for anything is a mistake of the caller."""
        with pytest.raises(UsageError, match="rotation must be a number of octets, at least 1, got 0"):
            Recorder(path, rotation=0)


class Sizeless:
    """In the place of `os.fstat`: as soon as something was written in part, another process has written too."""

    def __init__(self) -> None:
        self._fstat = os.fstat

    def __call__(self, file: int) -> Any:
        found = self._fstat(file)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if found.st_size != limit:
            return found
        return os.stat_result([*found[:6], found.st_size + 1, *found[7:10]])


class TestFailures:
    """What cannot be written is counted and logged, and nobody's call fails."""

    def test_no_such_folder(self, tmp_path: Path) -> None:
        """A log that cannot be opened is an error at once."""
        with pytest.raises(UsageError, match=r"path must name a file .*log\.jsonl: No such file"):
            Recorder(tmp_path / "nowhere" / "log.jsonl")

    @pytest.mark.parametrize("given", ["", ".", "/", 5, None, b"log.jsonl"])
    def test_no_path_of_a_file(self, given: Any) -> None:
        """A path that names no file is a mistake of the caller."""
        with pytest.raises(UsageError, match=f"^path must be the path of a file, got {given!r}$"):
            Recorder(given)

    def test_closed(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """After closing, messages are counted as failed; closing twice does nothing."""
        recorder = Recorder(path)
        recorder.close()
        recorder.close()
        recorder.record(MESSAGE)
        assert (recorder.written, recorder.failed) == (0, 1)
        assert "the recorder is closed" in caplog.text
        assert records(path) == []

    def test_message_that_no_record_can_hold(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A message with what no record holds is counted; the next is written."""
        odd: Any = object()
        with Recorder(path) as recorder:
            recorder.record(replace(MESSAGE, correlation_id=odd))
            recorder.record(replace(MESSAGE, body=odd))
            recorder.record(replace(MESSAGE, message_type=MessageType.BYTES, body="text"))
            recorder.record(MESSAGE)
            assert (recorder.written, recorder.failed) == (1, 3)
        assert len(records(path)) == 1
        assert "a bytes message cannot carry a body of type str; accepted is bytes or memoryview" in caplog.text
        assert f"a message was not recorded in {path}" in caplog.text

    def test_hard_link(self, path: Path) -> None:
        """A log with another name too may be somebody's other file: neither its content nor its mode is changed."""
        other = path.with_name("other")
        other.write_text("mine")
        other.chmod(0o644)
        path.hardlink_to(other)
        with pytest.raises(UsageError, match="this log has another name too"):
            Recorder(path)
        assert (other.read_text(), other.stat().st_mode & 0o777) == ("mine", 0o644)

    def test_fifo(self, tmp_path: Path) -> None:
        """One that nobody reads is an error at once; else it would wait for a reader."""
        path = tmp_path / "log.jsonl"
        os.mkfifo(path)
        with pytest.raises(UsageError, match="path must name a file that can be written"):
            Recorder(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with Recorder(path) as recorder:
            recorder.record(MESSAGE)
        assert from_json(os.read(reader, 1 << 16).decode()).message == MESSAGE
        os.close(reader)

    def test_clock_that_fails(self, path: Path) -> None:
        """A caller's clock that fails fails no call."""

        def clock() -> datetime:
            raise RuntimeError("no time")

        with Recorder(path, clock) as recorder:
            recorder.record(MESSAGE)
            assert recorder.failed == 1

    def test_full_disk(self, caplog: pytest.LogCaptureFixture) -> None:
        """A disk without room."""
        with Recorder("/dev/full") as recorder:
            recorder.record(MESSAGE)
            assert (recorder.written, recorder.failed) == (0, 1)
        assert "No space left on device" in caplog.text

    def test_disk_that_fills_up_within_a_line(self, tmp_path: Path) -> None:
        """Of a line that was written in part only itself is lost: it is cut off again, and the next follows."""
        path = tmp_path / "log.jsonl"
        recorder = Recorder(path)
        recorder.record(MESSAGE)
        with no_file_beyond(path.stat().st_size + 10):
            recorder.record(MESSAGE)
            recorder.record(MESSAGE)
        recorder.record(replace(MESSAGE, message_id="ID:2"))
        recorder.close()
        assert (recorder.written, recorder.failed) == (2, 2)
        assert [each.message.message_id for each in records(path)] == ["ID:1", "ID:2"]

    def test_disk_that_is_full_for_a_while(self, path: Path, tmp_path: Path) -> None:
        """What is counted as written can be read, before, while and after; the rest is counted as failed."""
        sent = [replace(MESSAGE, message_id=f"ID:{n}", body=os.urandom(20_000)) for n in range(120)]
        with Recorder(path) as recorder:
            for number, each in enumerate(sent):
                if number == 40:
                    readable = recorder.written
                    assert (readable, recorder.failed) == (40, 0)
                    with no_file_beyond(path.stat().st_size + 10_000):
                        for other in sent[40:80]:
                            recorder.record(other)
                        recorder.flush()
                    assert (recorder.written, recorder.failed) == (40, 40)
                    assert len(records(path)) == 40
                if not 40 <= number < 80:
                    recorder.record(each)
        assert (recorder.written, recorder.failed) == (80, 40)
        assert [each.message for each in records(path)] == sent[:40] + sent[80:]
        summary = replay([path], tmp_path / "out", engine="local")
        assert (summary.members["records"], summary.members["rejected"]) == (80, 0)

    def test_calls_on_a_full_disk(self, path: Path) -> None:
        """They go on as ever."""
        name = fresh()
        with (
            soapjms.connect(f"embedded:{fresh('broker')}") as connection,
            Recorder(path) as recorder,
            Dispatcher(connection, f"jms:queue:{name}", greeter(), recorder=recorder),
            Client(connection, f"jms:queue:{name}", recorder=recorder) as client,
            no_file_beyond(60),
        ):
            for _ in range(20):
                client.call(request_body(), timeout=PATIENCE)
            eventually(lambda: recorder.failed == 80, "none was recorded")
            assert recorder.written == 0

    def test_what_cannot_be_cut_off(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the rest of a line has to stay it is one of its own; of a gzip file a torn member, and told as such."""
        plain, packed = tmp_path / "log.jsonl", tmp_path / "log.jsonl.gz"
        body = os.urandom(5_000)  # so that some of it goes into the file, compressed or not
        monkeypatch.setattr(os, "fstat", Sizeless())
        for path in (plain, packed):
            with Recorder(path) as recorder:
                recorder.record(MESSAGE)
                recorder.flush()
                with no_file_beyond(path.stat().st_size + 3_000):
                    recorder.record(replace(MESSAGE, body=body))
                    recorder.flush()
                recorder.record(replace(MESSAGE, message_id="ID:2"))
                assert (recorder.written, recorder.failed) == (2, 1)
        monkeypatch.undo()
        for path in (plain, packed):
            summary = replay([path], tmp_path / "out", engine="local")
            assert (summary.members["records"], summary.members["rejected"]) == (2, 1)

    def test_killed(self, tmp_path: Path) -> None:
        """Of a compressed log a process that is killed loses the last second, and not what is before it."""
        path = tmp_path / "log.jsonl.gz"
        program = (
            "import sys, time\nfrom soapjms import Recorder\nfrom brokers import Message, MessageType\n"
            "recorder = Recorder(sys.argv[1])\n"
            "for number in range(10**9):\n"
            "    recorder.record(Message(message_type=MessageType.TEXT, body=str(number)))\n"
            "    print(number, flush=True)\n"
            "    time.sleep(0.01)\n"
        )
        begun = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as child:
            assert child.stdout is not None
            try:
                eventually(lambda: path.exists() and len(records(path)) > 10, "something is in the file")
            finally:
                child.kill()
            said = child.stdout.read().split()
        found = [each.message.body for each in records(path)]
        assert found == [str(number) for number in range(len(found))]
        assert len(said) - len(found) < 300, time.monotonic() - begun
        with Recorder(path) as recorder:
            recorder.record(MESSAGE)
        assert len(records(path)) == len(found) + 1

    def test_what_waits_is_written_at_the_end_of_the_process(self, tmp_path: Path) -> None:
        """Also by who forgets to close it."""
        path = tmp_path / "log.jsonl.gz"
        program = (
            "import sys\nfrom soapjms import Recorder\nfrom brokers import Message, MessageType\n"
            "recorder = Recorder(sys.argv[1])\nrecorder.record(Message(message_type=MessageType.TEXT, body='x'))\n"
        )
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60, cwd=ROOT)
        assert [each.message.body for each in records(path)] == ["x"]

    def test_log_that_was_cut_short(self, tmp_path: Path) -> None:
        """What a killed process left of a line does not spoil the lines that are added."""
        path = tmp_path / "log.jsonl"
        path.write_text('{"v":1,"ti')
        with Recorder(path) as recorder:
            recorder.record(MESSAGE)
            recorder.record(MESSAGE)
        cut, *whole = path.read_text().splitlines()
        assert cut == '{"v":1,"ti'
        assert len([from_json(line) for line in whole]) == 2

    @pytest.mark.parametrize("start", [b"\n\n", b'\xef\xbb\xbf{"v":1}\n', b' { "v":1}\n', b"{", b"\0\0"])
    def test_logs_with_odd_beginnings(self, tmp_path: Path, start: bytes) -> None:
        """Blank lines, a byte order mark, a torn line, zeros after a failure of power: it is a log all the same."""
        path = tmp_path / "log.jsonl"
        path.write_bytes(start)
        with Recorder(path) as recorder:
            recorder.record(MESSAGE)
        assert len(path.read_bytes()) > len(start)

    def test_empty_log(self, tmp_path: Path) -> None:
        """An empty file is a log."""
        path = tmp_path / "log.jsonl"
        path.touch()
        with Recorder(path) as recorder:
            recorder.record(MESSAGE)
        assert path.read_text().startswith("{")


class TestTap(Peers):
    """Recording what a broker copies to a destination."""

    def test_tap(self, other: Connection, tmp_path: Path) -> None:
        """A tap records what comes to its destination, as a node outside, and takes it."""
        path = tmp_path / "log.jsonl"
        with Recorder(path) as recorder, Tap(other, topic("copies"), recorder):
            for number in range(3):
                other.send(replace(MESSAGE, destination=topic("copies"), correlation_id=str(number)))
            eventually(lambda: recorder.written == 3, "all were recorded")
        found = records(path)
        assert [each.message.correlation_id for each in found] == ["0", "1", "2"]
        assert {(each.node, each.direction) for each in found} == {(Node.TAP, None)}

    def test_closed(self, other: Connection, broker: Broker, tmp_path: Path) -> None:
        """A tap that was closed takes nothing more."""
        with Recorder(tmp_path / "log.jsonl") as recorder:
            tap = Tap(other, GREETER, recorder)
            tap.close()
            tap.close()
            other.send(MESSAGE).result(PATIENCE)
            assert broker.depth(GREETER) == 1

    def test_translated(self, connection: Connection, other: Connection, tmp_path: Path) -> None:
        """`translate` gives copies their own headers back: so they pair as the messages that they are of."""
        path = tmp_path / "log.jsonl"

        def original(copy: Message) -> Message:
            return replace(copy, destination=GREETER, message_id=copy.properties.text("original"))

        copied = replace(
            MESSAGE,
            destination=queue("copies"),
            properties=MESSAGE.properties.merged([typed("original", "ID:9")]),
        )
        with Recorder(path) as recorder, Tap(connection, queue("copies"), recorder, original):
            other.send(copied)
            eventually(lambda: recorder.written == 1, "it was recorded")
        (found,) = records(path)
        assert (found.message.destination, found.message.message_id) == (GREETER, "ID:9")

    @pytest.mark.parametrize(
        ("seen", "original"),
        [
            (topic("VirtualTopic.Mirror.greeter"), GREETER),
            (topic("VirtualTopic.Mirror.a.b"), queue("a.b")),
            (topic("VirtualTopic.Mirror.ID:a-1:2"), Destination(DestinationKind.TEMPORARY_QUEUE, "ID:a-1:2")),
            (topic("news"), topic("news")),
            (Destination(DestinationKind.TEMPORARY_QUEUE, None, "/temp-queue/r"),) * 2,
            (None, None),
        ],
    )
    def test_mirrored_queues(self, seen: Destination | None, original: Destination | None) -> None:
        """A copy from a mirrored queue of ActiveMQ gets the queue's own name and kind back; nothing else changes."""
        assert from_mirror(replace(MESSAGE, destination=seen)) == replace(MESSAGE, destination=original)

    def test_translation_that_fails(self, connection: Connection, other: Connection, tmp_path: Path) -> None:
        """A copy that cannot be translated is not lost: the broker keeps it, in the end with the dead letters."""

        def original(copy: Message) -> Message:
            raise LookupError("whose copy is this?")

        with Recorder(tmp_path / "log.jsonl") as recorder, Tap(connection, GREETER, recorder, original):
            other.send(MESSAGE)
            with Tap(connection, queue("DLQ.greeter"), recorder):
                eventually(lambda: recorder.written == 1, "it is a dead letter")


class TestBothSides(Peers):
    """What client and dispatcher record into one log."""

    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    def test_one_exchange(
        self, connection: Connection, other: Connection, path: Path, message_type: MessageType
    ) -> None:
        """Four records of one call are one exchange; those of both sides merge."""
        with (
            Recorder(path) as recorder,
            Dispatcher(other, "jms:queue:greeter", greeter(), recorder=recorder) as dispatcher,
            Client(connection, "jms:queue:greeter", message_type=message_type, recorder=recorder) as client,
        ):
            client.call(request_body(), timeout=PATIENCE)
            eventually(lambda: dispatcher.counts["answered"] == 1, "the response was recorded")
        found = sorted(records(path), key=lambda each: each.time)
        (exchange,) = pair(found)
        assert (exchange.pattern, exchange.records) == (Pattern.REQUEST_RESPONSE, 4)
        assert exchange.request is not None
        assert exchange.response is not None
        assert exchange.request.message.message_type is exchange.response.message.message_type is message_type


def request_body() -> bytes:
    """Return an envelope."""
    assert isinstance(MESSAGE.body, bytes)
    return MESSAGE.body
