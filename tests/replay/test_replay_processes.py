"""Without Spark, large logs are read and judged by several processes: the results are the same, and nothing is left."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling_kit import eventually
from hostile_log import write_hostile_log
from lxml import etree
from places import ROOT
from replay_logs import CXF, assert_same_reports, bad_logs, child, rows, summary

from soapjms.generate import generate
from soapjms.protocol.record import from_json
from soapjms.replay import ProcessLostError, StoreFailedError, column_store, inputs, local, replay, stored_facts
from soapjms.replay.column_store import ColumnStore, failures_told
from soapjms.replay.inputs import LogFile, LogForm, Split, small_together
from soapjms.replay.parquet import RECORDS, to_row
from soapjms.replay.processes import Processes

SMALL_PARTS = 20_000


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read even small logs in many parts."""
    monkeypatch.setattr(inputs, "MIN_SPLIT_OCTETS", SMALL_PARTS)
    monkeypatch.setattr(inputs, "TASKS_OF_CORE", 50)


def replay_in_processes(logs: Path | list[Path], out: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay with three processes, whatever the size of the logs, and the number of cores."""
    with monkeypatch.context() as patch:
        patch.setattr(local, "SMALL_OCTETS", 0)
        patch.setattr(local, "cores", lambda: 3)
        patch.setattr(stored_facts, "MIN_JUDGED", 20)
        replay(logs, out, engine=engine)  # type: ignore[arg-type]  # one of the engines


def made_logs(folder: Path) -> list[Path]:
    """Write logs in all forms: of generated and of hostile messages, with what is no record among them."""
    generate(folder / "made", 400)
    lines = [line for log in sorted((folder / "made/logs").iterdir()) for line in log.read_text("utf-8").splitlines()]
    plain, zipped, columns = (folder / name for name in ("plain.jsonl", "zipped.jsonl.gz", "columns.parquet"))
    third = len(lines) // 3
    noisy = [each for number, line in enumerate(lines[:third]) for each in [line, *["no record"] * (number % 30 == 7)]]
    plain.write_text("\n".join(noisy) + "\n", "utf-8")
    zipped.write_bytes(gzip.compress("\n".join(lines[third : 2 * third]).encode()))
    records = [to_row(from_json(line)) for line in lines[2 * third :]]
    pq.write_table(pa.Table.from_pylist(records, RECORDS), columns, row_group_size=100)
    write_hostile_log(folder / "hostile.jsonl", 3, 900)
    return [plain, zipped, columns, folder / "hostile.jsonl", *bad_logs(folder), CXF]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("engine", ["local", "exact"])
def test_the_same_results(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in one process: verdicts, rejected records with their lines, counts and report."""
    logs = made_logs(tmp_path)
    replay(logs, tmp_path / "one", engine=engine)  # type: ignore[arg-type]  # one of the engines
    replay_in_processes(logs, tmp_path / "several", engine, monkeypatch)
    assert_same_reports(tmp_path / "one", tmp_path / "several")
    refused = [each for each in rows(tmp_path / "several", "rejected") if each["raw"] == "no record"]
    written = (tmp_path / "plain.jsonl").read_text("utf-8").splitlines()
    assert {each["line"] for each in refused} == {at for at, line in enumerate(written, 1) if line == "no record"}
    assert len(refused) > 5
    assert summary(tmp_path / "several")["messages"] > 600


@pytest.mark.usefixtures("small_parts")
def test_a_damaged_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are rejected, and no others, in however many parts the log is read."""
    generate(tmp_path / "made", 600, form="parquet")
    (made,) = (tmp_path / "made/logs").iterdir()
    log = tmp_path / "log.parquet"
    pq.write_table(pq.read_table(made), log, row_group_size=100, compression="none")
    about = pq.read_metadata(log)
    octets = bytearray(log.read_bytes())
    start = about.row_group(3).column(0).data_page_offset
    octets[start : start + 20] = b"\xff" * 20
    log.write_bytes(octets)
    replay_in_processes(log, tmp_path / "several", "local", monkeypatch)
    monkeypatch.setattr(inputs, "MIN_SPLIT_OCTETS", 1 << 30)
    replay(log, tmp_path / "one", engine="local")
    assert_same_reports(tmp_path / "one", tmp_path / "several")
    (refused,) = rows(tmp_path / "one", "rejected")
    assert refused["reason"].startswith("rows 301 to 400 cannot be read: ")
    assert summary(tmp_path / "one")["records"] == about.num_rows - 100


@pytest.mark.parametrize("processes", [False, True])
def test_small_logs_are_read_together(tmp_path: Path, processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As each by itself: what is no record has its own file and line, in each form of a log."""
    monkeypatch.setattr(inputs, "GATHERED_PARTS", 7)
    logs = tmp_path / "logs"
    generate(tmp_path / "made", 300)
    (made,) = (tmp_path / "made/logs").iterdir()
    lines = made.read_text("utf-8").splitlines()
    logs.mkdir()
    for number in range(len(lines) // 15):
        some, name = lines[15 * number : 15 * number + 15], logs / f"{number}"
        if number % 3:
            rows_of_some = [to_row(from_json(line)) | {"v": 2 if at == 4 else 1} for at, line in enumerate(some)]
            pq.write_table(pa.Table.from_pylist(rows_of_some, RECORDS), name.with_suffix(".parquet"))
        elif number % 2:
            name.with_suffix(".jsonl.gz").write_bytes(gzip.compress("\n".join(["no record", *some]).encode()))
        else:
            name.with_suffix(".jsonl").write_text("\n".join([*some, "no record"]), "utf-8")
    replay(logs, tmp_path / "one", engine="exact")
    if processes:
        replay_in_processes(logs, tmp_path / "several", "local", monkeypatch)
    else:
        replay(logs, tmp_path / "several", engine="local")
    assert_same_reports(tmp_path / "one", tmp_path / "several")
    places = {(Path(each["file"]).name, each["line"]) for each in rows(tmp_path / "several", "rejected")}
    assert len(places) == len(list(logs.iterdir())) > 20
    assert {line for name, line in places if name.endswith("parquet")} == {5}
    assert {line for name, line in places if name.endswith("gz")} == {1}


def test_an_empty_log_behind_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of what is no record are still counted from the beginning of its log."""
    monkeypatch.setattr(inputs, "MIN_SPLIT_OCTETS", SMALL_PARTS)
    (tmp_path / "logs").mkdir()
    line = CXF.read_text("utf-8").splitlines()[0]
    lines = [line] * (3 * SMALL_PARTS // len(line)) + ["no record"]
    (tmp_path / "logs/a.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "logs/b.jsonl").touch()
    replay(tmp_path / "logs", tmp_path / "out", engine="local")
    assert [each["line"] for each in rows(tmp_path / "out", "rejected")] == [len(lines)]


def test_which_parts_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones, up to a number and a size; one whose lines are counted anew stays by itself."""
    monkeypatch.setattr(inputs, "GATHERED_PARTS", 3)
    monkeypatch.setattr(inputs, "MIN_SPLIT_OCTETS", 100)
    log = LogFile(0, "a.jsonl", "a.jsonl", 1, LogForm.LINES)

    def together(*octets: int) -> list[range]:
        """Gather parts of so many octets; those of less than none are counted anew."""
        return small_together([Split(log, 0, None if each >= 0 else 9, octets=abs(each)) for each in octets])

    assert together() == []
    assert together(10, 10, 10, 10) == [range(3), range(3, 4)]
    assert together(60, 40, 10) == [range(2), range(2, 3)]
    assert together(500, 10, 10) == [range(1), range(1, 3)]
    assert together(10, -1, 10, 10) == [range(1), range(1, 2), range(2, 4)]
    assert together(0, -1, -1, 0, 0) == [range(1), range(1, 2), range(2, 3), range(3, 5)]


def test_more_logs_than_files_may_be_open(tmp_path: Path) -> None:
    """Only a few files are open at a time, however many logs there are."""
    line = CXF.read_text("utf-8").splitlines()[0]
    (tmp_path / "logs").mkdir()
    for number in range(300):
        (tmp_path / "logs" / f"{number}.jsonl").write_text(f"{line}\n", "utf-8")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 150, limit[1]))
    try:
        replay(tmp_path / "logs", tmp_path / "out", engine="local")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert summary(tmp_path / "out")["records"] == 300


def test_what_does_not_fit(tmp_path: Path) -> None:
    """It is an error of ours, which says what is missing; a mistake in a statement stays what it is."""
    with closing(ColumnStore(tmp_path, 1, in_memory=True, memory="1MB")) as store:
        said = r"what is kept in between cannot be stored: .*[Mm]emory"
        with pytest.raises(StoreFailedError, match=said), failures_told():
            store.define("large", "SELECT i, repeat('x', 5000) || i AS text FROM range(100000) AS numbers(i)")
        with pytest.raises(duckdb.ProgrammingError), failures_told():
            store.fetch("SELECT nothing")


# Processes


def test_tasks_in_order() -> None:
    """Results come in the order of the items; what a task prints is not taken for one."""
    with Processes(3) as processes:
        assert list(processes.map(str, range(100))) == [str(each) for each in range(100)]
        assert list(processes.map(print, ["this is no result"])) == [None]
        assert list(processes.map(len, [])) == []


def test_what_a_task_raises() -> None:
    """It is raised here, and says where it was raised."""
    with Processes(2) as processes, pytest.raises(ValueError, match="no number") as raised:
        list(processes.map(int, ["1", "no number"]))
    assert any("Traceback" in note for note in raised.value.__notes__)


def test_an_error_that_cannot_be_made_again() -> None:
    """What it said is told all the same."""
    with Processes(2) as processes, pytest.raises(RuntimeError, match=r"(?s)Traceback.*XMLSyntaxError"):
        list(processes.map(etree.fromstring, [b"<"]))


@pytest.mark.parametrize(
    ("task", "item", "how"),
    [
        (os._exit, 3, "ended with the code 3; its error"),
        (signal.raise_signal, signal.SIGKILL, "was ended by a signal, Killed, as happens when memory runs out"),
    ],
)
def test_a_process_that_ends(task: object, item: object, how: str) -> None:
    """The error says how it ended, and what may help; the others end, too."""
    processes = Processes(2)
    with processes, pytest.raises(ProcessLostError, match=how):
        list(processes.map(task, [item, item]))  # type: ignore[arg-type]  # any function
    assert all(worker.process.poll() is not None for worker in processes._all)


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of an earlier run stay; no process, and no file, is left."""
    out = tmp_path / "out"
    replay(CXF, out, engine="local")
    before = (out / "summary.json").read_bytes()
    reading = Processes.map

    def and_kill(self: Processes, *task: object) -> Iterator[object]:
        for found in reading(self, *task):  # type: ignore[arg-type,var-annotated]  # as it was called
            self._all[0].process.kill()
            self._all[0].process.wait()
            yield found

    monkeypatch.setattr(Processes, "map", and_kill)
    with pytest.raises(ProcessLostError):
        replay_in_processes([CXF, *bad_logs(tmp_path)], out, "local", monkeypatch)
    assert (out / "summary.json").read_bytes() == before
    assert list(tmp_path.glob(".*")) == []
    assert children_of(os.getpid()) == []


def children_of(parent: int) -> list[tuple[int, str]]:
    """Return the numbers and commands of the processes that do tasks for a process."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                status, command = (each / "status").read_text(), (each / "cmdline").read_bytes().decode()
            except OSError:  # it has ended
                continue
            if f"PPid:\t{parent}\n" in status and "soapjms.replay.processes" in command:
                found.append((int(each.name), command))
    return found


PROGRAM = """
import sys
from soapjms.replay import local, replay
local.SMALL_OCTETS, local.cores = 0, lambda: 2
def told(what):
    print(what, flush=True)
print(replay(sys.argv[1], "out", engine="local", progress=told).members["messages"])
"""


def test_a_script_and_a_hostile_folder(tmp_path: Path) -> None:
    """A script needs no guard around its start; modules in the current folder are not taken for ours, or Python's."""
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "program.py").write_text(PROGRAM, "utf-8")
    for name in ("soapjms", "pickle", "pyarrow"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the current folder')", "utf-8")
    script = str(tmp_path / "script" / "program.py")
    with child(sys.executable, script, str(CXF), cwd=tmp_path, PYTHONPATH=str(ROOT)) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.splitlines()[-1] == str(summary(tmp_path / "out")["messages"])
    assert said.count("counting") == 1


def test_modules_of_the_environment(tmp_path: Path) -> None:
    """Only what its parent looks in is looked in by a process, and what is no folder is passed over."""
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("json", "sitecustomize", "pyarrow"):
        (hostile / f"{name}.py").write_text("print('a module of the environment')", "utf-8")
    (tmp_path / "program.py").write_text(f"import sys; sys.path += [{str(ROOT)!r}, None]\n{PROGRAM}", "utf-8")
    script, log = str(tmp_path / "program.py"), str(CXF)
    with child(sys.executable, "-I", script, log, cwd=hostile, PYTHONPATH=str(hostile)) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "environment" not in said


def test_without_an_output_for_errors(tmp_path: Path) -> None:
    """A daemon may have closed it."""
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    command = f"exec {shlex.join([sys.executable, 'program.py', str(CXF)])} 2>&-"
    with child("sh", "-c", command, cwd=tmp_path, PYTHONPATH=str(ROOT)) as process:
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert (tmp_path / "out").exists()


def test_a_parent_that_is_killed(tmp_path: Path) -> None:
    """The processes end, too, even in the middle of a task."""
    line = CXF.read_text("utf-8").splitlines()[0]
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(f"{line}\n".encode() * 200_000, 1))
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    with child(sys.executable, "program.py", "log.jsonl.gz", cwd=tmp_path, PYTHONPATH=str(ROOT)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("reading")
        eventually(lambda: len(children_of(process.pid)) == 2, "the processes have started")
        begun = [pid for pid, _ in children_of(process.pid)]
        eventually(lambda: any(map(has_open, begun)), "one of them reads the log")
        process.kill()
        process.wait()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in begun), "they have ended")


def has_open(pid: int) -> bool:
    """Say whether a process has a log open."""
    with suppress(OSError):  # it closes files meanwhile
        return any(each.resolve().name == "log.jsonl.gz" for each in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_ctrl_c(tmp_path: Path) -> None:
    """It ends all processes, without a word of theirs, and nothing was written."""
    line = CXF.read_text("utf-8").splitlines()[0]
    (tmp_path / "log.jsonl").write_text(f"{line}\n" * 60_000, "utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    with child(sys.executable, "program.py", "log.jsonl", cwd=tmp_path, PYTHONPATH=str(ROOT)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("reading")
        eventually(lambda: len(children_of(process.pid)) == 2, "the processes have started")
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1, said
    assert not (tmp_path / "out").exists()
    assert children_of(process.pid) == []


def test_without_a_python_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen program is no Python: then this process does the tasks."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    replay_in_processes([CXF], tmp_path / "out", "local", monkeypatch)
    assert json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["messages"] > 0
    assert Processes(4).number == 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", 4),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("900000 100000", 4),
        ("-1 100000", 4),
        ("1 0", 4),
        ("nonsense", 4),
        (None, 4),
    ],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: int
) -> None:
    """It has no more processes than its share of processor time can keep busy, rounded up."""
    of_both = (tmp_path / "cpu.max",), (tmp_path / "quota", tmp_path / "period")
    monkeypatch.setattr(column_store, "CORES_OF_CONTAINER", of_both)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    for files in of_both if limit is not None else ():
        for file, text in zip(files, (limit or "").split(" ", len(files) - 1), strict=False):
            file.write_text(f"{text}\n")
        assert column_store.cores() == expected
        for file in files:
            file.unlink(missing_ok=True)
    assert column_store.cores() == 4


@pytest.mark.parametrize(
    ("machine", "limit", "expected"),
    [
        (16 << 30, None, 4 << 30),
        (16 << 30, "max", 4 << 30),
        (16 << 30, str(8 << 30), 2 << 30),
        (16 << 30, str(64 << 30), 4 << 30),
        (16 << 30, "9223372036854771712", 4 << 30),
        (16 << 30, str(1 << 30), 1 << 30),
        (2 << 30, None, 1 << 30),
        (256 << 30, None, 8 << 30),
    ],
)
def test_a_run_takes_a_quarter_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: int, limit: str | None, expected: int
) -> None:
    """Of what the container may have, if that is less than the machine has; but at least 1 GiB and at most 8."""
    file = tmp_path / "memory.max"
    if limit is not None:
        file.write_text(f"{limit}\n")
    monkeypatch.setattr(column_store, "MEMORY_OF_CONTAINER", (tmp_path / "none", file))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": machine // 4096}.__getitem__)
    with closing(ColumnStore(tmp_path, memory=column_store.memory_of_run())) as store:
        ((shown,),) = store.fetch("SELECT current_setting('memory_limit')")
    assert shown == f"{expected >> 30}.0 GiB"
