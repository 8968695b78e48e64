"""Logs that are judged as they are written: in the end the results are those of a replay of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import closing, suppress
from datetime import timedelta
from html import escape
from operator import itemgetter
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_kit import command, environment, run
from replay_logs import REPLIES, assert_same, at, request, response, rows, summary, write_log

from soapjms.generate import generate
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, capture, format_time, to_json
from soapjms.replay import NoInputError, Summary, follower, replay
from soapjms.replay.engines import EXACT, LOCAL, SPARK, EngineName
from soapjms.replay.follower import follow, steps
from soapjms.replay.follower.held_records import FORMAT, HELD, HeldRecords
from soapjms.replay.report import load
from soapjms.replay.tasks import PartsFound
from soapjms.replay.terms import LateRecord

NO_TIME = timedelta(0)
SOON = timedelta(milliseconds=50)


def caught_up(folder: Path, out: Path, engine: EngineName, **options: Any) -> Summary:
    """Follow until there is nothing new."""
    return follow(folder, out, engine=engine, until_idle=NO_TIME, every=SOON, **options)


def written(logs: Path, made: list[tuple[str, bytes]], share: float) -> None:
    """Write the first octets of some logs, as they stand at some time while they are captured: files only grow."""
    left = int(share * sum(len(octets) for _, octets in made))
    for name, octets in made:
        if left > 0:
            with (logs / name).open("ab") as log:
                log.write(octets[log.tell() : left])
        left -= len(octets)


def captured(folder: Path, form: str, messages: int) -> list[tuple[str, bytes]]:
    """Make logs of some size, which cover a quarter of an hour and more."""
    made = generate(folder, messages, form=form, broken=0.3, pace=messages / 1500, rotation=messages * 150)
    return [(path.name, path.read_bytes()) for path in made.files]


@pytest.mark.parametrize(
    ("form", "engine"),
    [
        pytest.param("jsonl", SPARK, marks=pytest.mark.spark),
        pytest.param("gzip", SPARK, marks=pytest.mark.spark),
        ("jsonl", LOCAL),
        ("gzip", EXACT),
    ],
    indirect=["engine"],
)
@pytest.mark.timeout(600)
def test_logs_that_grow_end_as_a_replay_of_them(tmp_path: Path, form: str, engine: EngineName) -> None:
    """Cut anywhere, by runs that end and go on: the results of each are those of a replay of what is there."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    (logs / "bad.jsonl").write_text("\ufeffno record\n", "utf-8")
    made = captured(tmp_path / "made", form, 1200)
    held = []
    for number, share in enumerate((0.4, 0.777, 1)):
        written(logs, made, share)
        told: list[str] = []
        caught_up(logs, out, engine=engine, progress=told.append)
        held.append("; 0 messages judged" not in told[-1])
        replay(logs, tmp_path / f"batch-{number}", engine="local")
        assert_same(out, tmp_path / f"batch-{number}")
    assert held == [False, True, True]
    assert summary(out)["late"] == 0
    assert "byteOrderMark" in summary(out)["notes"]


def test_records_that_come_too_late_are_listed(tmp_path: Path, engine: EngineName) -> None:
    """What is older than the watermark is counted, kept under late/ and noted; the rest is judged without it."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    calls = [capture(each, at(100 * n)) for n in range(10) for each in (request(n), response(n))]
    write_log(logs / "1.jsonl", *calls)
    replay(logs, tmp_path / "batch", engine="local")
    caught_up(logs, out, engine=engine, disorder=timedelta(seconds=30))
    in_time = capture(request(20), at(875), Direction.REQUEST)
    late = capture(request(21), at(869), Direction.REQUEST)
    write_log(logs / "2.jsonl", late, in_time)
    found = caught_up(logs, out, engine=engine, disorder=timedelta(seconds=30))
    assert (found.members["late"], found.members["messages"], found.exit_status) == (1, 21, 0)
    assert found.members["notes"]["lateRecord"]["count"] == 1
    assert found.members["watermark"] == "2026-11-20T12:14:30.000000Z"
    ((row),) = pq.read_table(out / "late").to_pylist()
    assert (row["file"], row["line"], row["time"]) == (str(logs / "2.jsonl"), 1, late.time)
    assert json.loads(row["raw"]) == json.loads(to_json(late))
    assert found.members["unpaired"] == {"missingResponses": 1, "responsesWithoutRequest": 0}
    assert found.late == (LateRecord(row["file"], 1, format_time(late.time)),)
    page = (out / "report.html").read_text("utf-8")
    assert "Late records" in page
    assert f"{escape(row['file'])}</bdi>" in page
    write_log(logs / "0.jsonl", *[capture(request(n), at(n), Direction.REQUEST) for n in range(30, 60)])
    found = caught_up(logs, out, engine=engine, disorder=timedelta(seconds=30))
    assert found.members["late"] == 31
    assert [(each.file, each.line) for each in found.late] == [(str(logs / "0.jsonl"), n) for n in range(1, 21)]
    assert load(out) == found
    (out / "report.json").unlink()
    assert load(out).late == found.late


def test_copies_that_come_after_a_restart(tmp_path: Path, engine: EngineName) -> None:
    """They join the call that is held, up to the time that it is remembered, and are messages of their own later."""
    logs, out, day = tmp_path / "logs", tmp_path / "out", 86_400
    logs.mkdir()
    write_log(logs / "1.jsonl", capture(request(1), at(0)), capture(request(2), at(1)))
    caught_up(logs, out, engine=engine)
    write_log(logs / "2.jsonl", capture(request(1), at(599)), capture(response(1), at(600)))
    found = caught_up(logs, out, engine=engine)
    assert [found.members[each] for each in ("records", "messages", "exchanges")] == [4, 3, 1]
    replay(logs, tmp_path / "batch", engine="local")
    assert_same(out, tmp_path / "batch")
    write_log(logs / "3.jsonl", capture(request(3), at(day)))
    caught_up(logs, out, engine=engine)
    write_log(logs / "4.jsonl", capture(request(1), at(day + 1)))
    found = caught_up(logs, out, engine=engine)
    assert [found.members[each] for each in ("records", "messages", "exchanges")] == [6, 5, 1]


@pytest.mark.parametrize(("remember", "copied_after", "most"), [(600, 60, 250), (1800, 60, 550), (1800, 1500, 550)])
def test_a_correlation_id_that_is_never_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remember: int, copied_after: int, most: int
) -> None:
    """What no later record can change is judged and no longer held, also if its id recurs all the time."""
    monkeypatch.setattr(steps, "MIN_CROWD", 40)
    logs, out, random = tmp_path / "logs", tmp_path / "out", Random(1)
    logs.mkdir()
    made = []
    for number in range(600):  # of four hours
        seconds = number * 24
        same = {"correlation_id": "always", "reply_to": REPLIES if number % 9 else None}
        made.append((seconds, Direction.REQUEST, request(number, **same)))
        if number % 7:
            answer = response(number, correlation_id="always" if number % 5 else f"ID:client-{number}")
            made.append((seconds + random.uniform(1, 90), Direction.RESPONSE, answer))
        if not number % 11:
            made.append((seconds + random.uniform(copied_after / 2, copied_after), None, request(number, **same)))
    made.sort(key=itemgetter(0))
    held = []
    for first in range(0, len(made), 150):
        some = (capture(message, at(seconds), way) for seconds, way, message in made[first : first + 150])
        write_log(logs / f"{first:04}.jsonl", *some)
        caught_up(logs, out, LOCAL, remember=timedelta(seconds=remember))
        with closing(HeldRecords(tmp_path / "out.checkpoint" / "held")) as records:
            held.append(records.number())
    assert max(held) < most < sum(held)
    replay(logs, tmp_path / "batch", engine="exact")
    if copied_after <= 600:
        assert_same(out, tmp_path / "batch")
    assert rows(out, "verdicts") == rows(tmp_path / "batch", "verdicts")
    assert [summary(each)["messages"] for each in (out, tmp_path / "batch")] == [len(made) - 55] * 2


def test_large_records(tmp_path: Path) -> None:
    """Late, held across a restart, and as a line without its end, they are as those of a replay; then none is left."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    body = b"<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body>%s</e:Body></e:Envelope>"
    large = [request(n, body=body % (b"x" * 100_000)) for n in range(6)]
    write_log(logs / "1.jsonl", capture(large[0], at(0)), capture(large[1], at(1)), capture(response(2), at(1)))
    caught_up(logs, out, engine="local")
    (logs / "2.jsonl").write_text(f"{to_json(capture(large[2], at(2)))}\n{to_json(capture(large[3], at(3)))}", "utf-8")
    caught_up(logs, out, engine="local")
    replay(logs, tmp_path / "batch", engine="exact")
    assert_same(out, tmp_path / "batch")
    assert len(list((tmp_path / "out.checkpoint/held/large").iterdir())) == 3
    with (logs / "2.jsonl").open("ab") as file:
        file.write(b"\n")
    write_log(logs / "3.jsonl", capture(large[4], at(3000)))
    caught_up(logs, out, engine="local")
    write_log(logs / "4.jsonl", capture(large[5], at(10)))
    assert caught_up(logs, out, engine="local").members["late"] == 1
    assert json.loads(pq.read_table(out / "late").to_pylist()[0]["raw"]) == json.loads(
        to_json(capture(large[5], at(10)))
    )
    assert len(list((tmp_path / "out.checkpoint/held/large").iterdir())) == 1


@pytest.mark.parametrize(("is_cut", "messages", "rejected"), [(False, 2, 0), (True, 0, 1)])
def test_a_log_that_is_changed_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: int, rejected: int, *, is_cut: bool
) -> None:
    """One that gets another name is read whole; what is missing of one that is cut is rejected, not passed over."""
    logs = tmp_path / "logs"
    logs.mkdir()
    log = write_log(logs / "log.jsonl", *(capture(request(n), at(n)) for n in range(2)))
    reading = steps.read_parts

    def changed(*given: Any, **named: Any) -> PartsFound:
        if is_cut:
            log.write_bytes(b"")
        elif log.exists():
            log.rename(logs / "log-1.jsonl")
        return reading(*given, **named)

    monkeypatch.setattr(steps, "read_parts", changed)
    monkeypatch.setattr(follower, "cores", lambda: 1)
    done = follow(logs, tmp_path / "out", engine=LOCAL, until_idle=NO_TIME)
    assert (done.members["messages"], done.members["rejected"]) == (messages, rejected)
    assert all("were not read in time" in each["reason"] for each in rows(tmp_path / "out", "rejected"))


def test_logs_in_parquet(tmp_path: Path) -> None:
    """They come file by file, each as a whole."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    (made,) = generate(tmp_path / "made", 1200, form="parquet", broken=0.3, pace=1).files
    table = pq.read_table(made)
    for number in range(3):
        part = table.slice(number * 600, 600 if number < 2 else None)
        pq.write_table(part, logs / f"{number}.parquet", row_group_size=250)
        caught_up(logs, out, engine="local")
    replay(logs, tmp_path / "batch", engine="exact")
    assert_same(out, tmp_path / "batch")


def test_news_are_waited_for(tmp_path: Path) -> None:
    """However often lines are written, there is a look, and a step, each interval only."""
    logs, out, steps = tmp_path / "logs", tmp_path / "out", list[str]()
    logs.mkdir()
    ended = Event()

    def write() -> None:
        for number in range(40):
            write_log(logs / f"{number}.jsonl", capture(request(number), at(number)))
            sleep(0.04)
        ended.set()

    writer, began = Thread(target=write), monotonic()
    writer.start()
    follow(logs, out, engine="local", every=timedelta(seconds=0.5), stop=ended, progress=steps.append)
    writer.join()
    assert 1 <= len(steps) <= (monotonic() - began) / 0.5 + 2


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """It is told, and nothing is lost: with more room the run goes on."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    generate(logs, 6000, pace=10)
    words = command("replay", "--follow", logs, "--out", out, "--local", "--until-idle", "0", "--every", "0.1")
    small = ["bash", "-c", 'ulimit -f 1500; exec "$@"', "bash", *words]
    done = subprocess.run(small, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, out.exists()) == (2, False), done.stderr
    assert "File too large" in done.stderr
    assert "start the command again to resume" in done.stderr
    caught_up(logs, out, engine="local")
    replay(logs, tmp_path / "batch", engine="local")
    assert_same(out, tmp_path / "batch")


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
def test_a_clock_that_is_ahead_makes_nothing_late(tmp_path: Path) -> None:
    """One record from the future does not end time for all others."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    write_log(logs / "1.jsonl", capture(request(1), at(0).replace(year=2999)), capture(request(2), at(1)))
    caught_up(logs, out, SPARK)
    write_log(logs / "2.jsonl", capture(response(2), at(2)))
    found = caught_up(logs, out, SPARK)
    assert (found.members["late"], found.members["exchanges"]) == (0, 1)


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
def test_a_clock_that_never_began(tmp_path: Path) -> None:
    """Records of the first day that there is are judged as any other, and end nothing."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    write_log(logs / "1.jsonl", capture(request(1), at(0).replace(year=1, month=1, day=1, hour=0)))
    assert caught_up(logs, out, SPARK).members["watermark"] == "0001-01-01T00:00:00.000000Z"
    write_log(logs / "2.jsonl", capture(request(2), at(1)), capture(response(2), at(2)))
    found = caught_up(logs, out, SPARK)
    assert (found.members["late"], found.members["messages"], found.members["exchanges"]) == (0, 3, 1)


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
def test_who_watches_gets_reports_at_once(tmp_path: Path) -> None:
    """One when the run starts, one soon after new records, and one at the end; each is in the folder by then."""
    logs, out, stop = tmp_path / "logs", tmp_path / "out", Event()
    logs.mkdir()
    seen: list[Any] = []

    def watch(told: Summary) -> None:
        assert summary(out) == told.members
        seen.append(told.members["messages"])
        if seen == [0]:
            write_log(logs / "1.jsonl", capture(request(1), at(1)), capture(response(1), at(2)))
        elif seen[-1] == 2:
            stop.set()

    last = follow(logs, out, engine=SPARK, every=SOON, stop=stop, on_report=watch)
    assert (seen[0], seen[-2:], last.members["messages"]) == (0, [2, 2], 2)


def test_a_file_among_the_results_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and the report is written once the file is gone; at the end the file is an error."""
    logs, out, stop, told = tmp_path / "logs", tmp_path / "out", Event(), list[str]()
    monkeypatch.setattr(follower, "LIVE_REPORT_SECONDS", 0.05)
    logs.mkdir()
    seen: list[int] = []

    def watch(done: Summary) -> None:
        seen.append(done.members["messages"])
        if seen == [0]:
            (out / ".DS_Store").touch()
            write_log(logs / "1.jsonl", capture(request(1), at(1)))
        elif seen[-1] == 1:
            stop.set()

    def hear(text: str) -> None:
        if text.startswith("the report was not written"):
            told.append(text)
            (out / ".DS_Store").unlink()

    follow(logs, out, engine="local", every=SOON, stop=stop, on_report=watch, progress=hear)
    assert seen == [0, 1, 1]
    assert told == [f"the report was not written: {out} holds .DS_Store, which replay did not write; name a new folder"]
    write_log(logs / "2.jsonl", capture(request(2), at(2)))
    for _ in ("at the end", "at the start"):
        with pytest.raises(UsageError, match=r"holds \.DS_Store"):
            caught_up(logs, out, engine="local", progress=lambda text: (out / ".DS_Store").touch())


def test_results_share_nothing_with_the_checkpoint(tmp_path: Path) -> None:
    """Who changes a file of the results does not change those of the next report."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    write_log(logs / "a.jsonl", capture(request(1, priority=12), at(0)), capture(request(2), at(3000)))
    caught_up(logs, out, engine="local")
    found = rows(out, "verdicts")
    assert found
    for path in (out / "verdicts").iterdir():
        path.write_bytes(b"")
    caught_up(logs, out, engine="local")
    assert rows(out, "verdicts") == found


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
def test_an_event_stops_it(tmp_path: Path) -> None:
    """It ends in good order at once; of an empty folder there is nothing to judge."""
    (tmp_path / "logs").mkdir()
    stop = Event()
    stop.set()
    assert follow(tmp_path / "logs", tmp_path / "out", engine=SPARK, stop=stop).members["verdict"] == "nothingToJudge"
    assert rows(tmp_path / "out", "verdicts") == rows(tmp_path / "out", "late") == []


class Process:
    """The command line in a process of its own, which is ended in any case."""

    def __init__(self, logs: Path, out: Path, said: Path, engine: EngineName) -> None:
        self._said = said
        words = command("replay", "--follow", logs, "--out", out, "--engine", engine, "--every", "0.05", "--json")
        with said.open("wb") as error, said.with_suffix(".out").open("wb") as output:
            self.process = subprocess.Popen(
                words, cwd=said.parent, env=environment(), stdout=output, stderr=error, start_new_session=True
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def wait_for(self, text: str) -> None:
        """Wait until it has said something."""
        deadline = monotonic() + 120
        while text not in (said := self._said.read_text("utf-8")):
            assert self.process.poll() is None, said
            assert monotonic() < deadline, said
            sleep(0.02)

    def is_held_in(self, steps: Path, name: str) -> bool:
        """Stop it in the middle of a step; one that was done before it stopped is past, and it goes on."""
        deadline = monotonic() + 60
        while not (steps / f".{name}").exists() and not (steps / name).exists():
            assert monotonic() < deadline, self._said.read_text("utf-8")
            sleep(0.001)
        os.killpg(self.process.pid, signal.SIGSTOP)
        if not (steps / name).exists():
            return True
        os.killpg(self.process.pid, signal.SIGCONT)
        return False


@pytest.mark.parametrize(
    "engines",
    [
        pytest.param((SPARK, SPARK), marks=[pytest.mark.spark, pytest.mark.soak]),
        (LOCAL, LOCAL),
        pytest.param((SPARK, LOCAL), marks=pytest.mark.spark),
        pytest.param((LOCAL, SPARK), marks=pytest.mark.spark),
    ],
    ids="-".join,
)
def test_a_run_that_was_killed_goes_on(tmp_path: Path, engines: tuple[EngineName, EngineName]) -> None:
    """Killed in the middle of a step, started again on any engine, and told to end: it is as a replay."""
    logs, out, made = tmp_path / "logs", tmp_path / "out", captured(tmp_path / "made", "jsonl", 1200)
    logs.mkdir()
    written(logs, made, 0.7)
    with Process(logs, out, tmp_path / "first.txt", engines[0]) as first:
        first.wait_for("step 0: ")
        steps = tmp_path / "out.checkpoint" / "steps"
        for number, part in enumerate((0.8, 0.85, 0.9), 1):
            written(logs, made, part)
            if first.is_held_in(steps, f"{number:010}"):
                break
        os.killpg(first.process.pid, signal.SIGKILL)
        first.process.wait(30)
    assert not (steps / f"{number:010}").exists()
    with Process(logs, out, tmp_path / "second.txt", engines[1]) as second:
        written(logs, made, 1)
        second.wait_for(f"step {number + 1}: ")
        os.killpg(second.process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C: to Java too
        assert second.process.wait(120) == 1  # something failed
    replay(logs, tmp_path / "batch", engine="local")
    assert_same(out, tmp_path / "batch")
    assert json.loads((tmp_path / "second.out").read_text("utf-8")) == summary(out)
    if engines[0] != engines[1]:
        write_log(logs / "more.jsonl", capture(request(1), at(1)), capture(response(1), at(2)))
        caught_up(logs, out, engine=engines[0])
        replay(logs, tmp_path / "more", engine="local")
        assert_same(out, tmp_path / "more")


@pytest.mark.parametrize("engine", [pytest.param(SPARK, marks=pytest.mark.spark), LOCAL])
def test_sigterm_ends_it_in_good_order(tmp_path: Path, engine: EngineName) -> None:
    """Among files that are no logs, which are left alone; each step is said, and the results are those of a replay."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    (logs / "notes.txt").write_text("no log")
    (logs / "log.jsonl.part").write_text("no log yet")
    with Process(logs, out, tmp_path / "said.txt", engine) as running:
        write_log(logs / "log.jsonl", capture(request(1), at(1)), capture(response(1), at(2)))
        running.wait_for("step 0: 1 file; watermark 2026-11-20T11:59:02.000000Z; 0 messages judged")
        if engine == LOCAL:  # as systemd does, too
            pid = running.process.pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            assert len(children) > 1
            for each in children:
                os.kill(int(each), signal.SIGTERM)
        os.kill(running.process.pid, signal.SIGTERM)
        assert running.process.wait(120) == 0
    replay(logs, tmp_path / "batch", engine="local")
    assert_same(out, tmp_path / "batch")
    assert json.loads((tmp_path / "said.out").read_text("utf-8"))["exchanges"] == 1


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_that_is_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    """At any moment, while the logs grow: there is always a whole report or none, and in the end that of a replay."""
    random = Random(seed)
    logs, out, made = tmp_path / "logs", tmp_path / "out", captured(tmp_path / "made", "jsonl", 6000)
    logs.mkdir()
    for number in range(8):
        written(logs, made, (number + 1) / 8)
        with Process(logs, out, tmp_path / f"{number}.txt", random.choice([SPARK, LOCAL])) as running:
            patience = random.uniform(2, 16)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(patience)
        if out.exists():
            assert len(rows(out, "verdicts")) == sum(
                sum(each[kind] for kind in ("failed", "warning", "missingInput", "prereqFailed"))
                for each in summary(out)["assertions"].values()
            )
    caught_up(logs, out, LOCAL)
    replay(logs, tmp_path / "batch", engine="local")
    assert_same(out, tmp_path / "batch")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "flink"}, "engine must be one of spark, local, exact, got 'flink'"),
        ({"profile": "auto"}, "auto depends on faults that are still to come"),
        ({"remember": timedelta(seconds=5)}, "at least the window"),
        ({"disorder": timedelta(seconds=-1)}, "disorder must be at least 0 seconds, got -1"),
        ({"window": NO_TIME}, "window must be longer than 0 seconds, got 0"),
        ({"out": "hdfs://a/b"}, "hdfs://a/b is a URI; the results of following are written to a folder"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match=said):
        follow(tmp_path, **{"out": tmp_path / "out", "engine": LOCAL, **options})


@pytest.mark.parametrize(
    ("out", "checkpoint", "said"),
    [
        ("logs", "kept", "the results must not go into .*logs, which holds the logs"),
        (".", "kept", "the results must not go into .*, which holds the logs"),
        ("out", "logs", "the checkpoint must not go into .*logs, which holds the logs"),
        ("out", "out", "must be apart, got .*out and .*out"),
        ("out", "out/kept", "must be apart, got .*out and .*out/kept"),
        ("kept/out", "kept", "must be apart, got .*kept/out and .*kept"),
    ],
)
def test_folders_that_would_hide_each_other(tmp_path: Path, out: str, checkpoint: str, said: str) -> None:
    """They are refused before anything is read, and nothing is written into them."""
    top = tmp_path / "top"
    logs = top / "logs"
    (logs if out != "." else top).mkdir(parents=True)
    with pytest.raises(UsageError, match=said):
        follow(logs if out != "." else top, top / out, engine=LOCAL, checkpoint=top / checkpoint, until_idle=NO_TIME)
    assert [each for each in top.rglob("*") if each != logs] == []


def test_a_folder_is_needed(tmp_path: Path) -> None:
    """A single file is none."""
    with pytest.raises(NoInputError, match="is not a folder"):
        follow(tmp_path / "log.jsonl", tmp_path / "out", engine=LOCAL)


def test_a_checkpoint_is_of_one_run(tmp_path: Path) -> None:
    """Other terms than those of the run that it goes on are refused, by name."""
    kept = tmp_path / "kept"
    kept.mkdir()
    terms = {"folder": str(tmp_path), "profile": "cr-2009", FORMAT: ", ".join(HELD.names)}
    (kept / "terms.json").write_text(json.dumps(terms), "utf-8")
    with pytest.raises(UsageError, match=r"with profile cr-2009, but this one has rec-2012"):
        follow(tmp_path, tmp_path / "out", engine=LOCAL, checkpoint=kept)
    (kept / "terms.json").write_text(json.dumps({**terms, FORMAT: "compressed"}), "utf-8")
    with pytest.raises(UsageError, match=r"of another version of soapjms, .*; name another --checkpoint"):
        follow(tmp_path, tmp_path / "out", engine=LOCAL, checkpoint=kept)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give LOG..., or --follow DIR"),
        (["x.jsonl", "--follow", "."], "give LOG..., or --follow DIR"),
        (["--follow", ".", "--local", "--master", "local[2]"], "--master and --conf are for Spark"),
        (["x.jsonl", "--until-idle", "5"], "--until-idle is for --follow"),
        (["--follow", ".", "--every", "nan"], "the time must be 0 to"),
        (["x.jsonl", "--serve", "0"], "--serve is for --follow"),
        (["--follow", ".", "--token", "0123456789abcdef"], "--token is for --serve"),
        (["--follow", ".", "--serve", "0", "--token", "0123"], "a token must have at least 16 characters, got 4"),
        (["--follow", ".", "--serve", "here"], "an address must be HOST:PORT, such as 127.0.0.1:8080, got 'here'"),
        (["--follow", ".", "--serve", "192.0.2.1:0"], "cannot listen at 192.0.2.1:0: "),
    ],
)
def test_the_command_refuses(tmp_path: Path, words: list[str], said: str) -> None:
    """What does not go together."""
    done = run("replay", *words, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert said in done.output
