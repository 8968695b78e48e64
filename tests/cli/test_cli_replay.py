"""The command `soapjms replay` as a user types it: what it prints, what it writes, how it ends."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from select import select

import pytest
from places import ROOT
from replay_logs import CXF, at, bad_logs, request, response, summary, write_log
from rich.console import Console

from soapjms.cli.summary import show
from soapjms.protocol.record import Direction, capture
from soapjms.replay import replay
from soapjms.replay.terms import LateRecord


def soapjms(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment}
    command = [sys.executable, "-m", "soapjms.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=150, check=False)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Write a log in which nothing fails."""
    records = capture(request(1), at(1), Direction.REQUEST), capture(response(1), at(2), Direction.RESPONSE)
    return write_log(tmp_path / "good.jsonl", *records)


def test_a_good_log_ends_with_0_without_java(good: Path) -> None:
    """--local needs no Java; the six results are written, and their place is printed."""
    done = soapjms("replay", good, "--out", "results", "--local", cwd=good.parent, PATH="", JAVA_HOME="")
    assert (done.returncode, done.stderr) == (0, "")
    assert "PASSED" in done.stdout or "WARNING" in done.stdout
    assert "1 exchange," in done.stdout
    assert f"report: {Path('results') / 'report.html'}" in done.stdout
    results = {each.name for each in (good.parent / "results").iterdir()}
    assert results == {"summary.json", "verdicts", "rejected", "report.html", "report.json", "junit.xml"}


def test_a_log_without_records_has_nothing_to_judge(tmp_path: Path) -> None:
    """It does not say that anything passed; nothing failed, so it ends with 0."""
    (tmp_path / "log.jsonl").write_bytes(b"\n")
    done = soapjms("replay", "log.jsonl", "--out", "out", "--local", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("NOTHING TO JUDGE by profile rec-2012: 0 records")
    assert "PASSED" not in done.stdout


def test_failed_verdicts_end_with_1(tmp_path: Path) -> None:
    """What failed is in a table, with what it says and the first reason; notes follow."""
    done = soapjms("replay", CXF, "--out", "out", "--local", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("FAILED by profile rec-2012: 26 records, 26 messages, 12 exchanges, 2 one-way")
    assert "Protocol-2010" in done.stdout
    assert "Protocol-2038" not in done.stdout
    assert "note: SOAPJMS_soapAction stands in quotes" in done.stdout
    assert soapjms("replay", CXF, "-o", "out", "--local", "--profile", "cr-2009", cwd=tmp_path).returncode == 1
    assert summary(tmp_path / "out")["assertions"]["Protocol-2038"]["failed"] == 11


def test_one_of_each_is_singular(tmp_path: Path) -> None:
    """A log with one message is told as people count."""
    log = write_log(tmp_path / "log.jsonl", capture(request(1), at(1), Direction.ONE_WAY))
    done = soapjms("replay", log, "--out", "out", "--local", cwd=tmp_path)
    assert "1 record, 1 message, 0 exchanges, 1 one-way" in done.stdout
    assert "in the only one-way message." in done.stdout


def test_rejected_records_end_with_1_and_are_listed(tmp_path: Path) -> None:
    """Each is printed with file and line and reason; a missing file among others is one of them."""
    bad, *others = bad_logs(tmp_path)
    done = soapjms("replay", bad, *others, "--out", tmp_path / "out", "--local", cwd=tmp_path)
    assert done.returncode == 1
    assert f"rejected {bad}:2: not JSON" in done.stdout
    assert f"rejected {bad}:7: not UTF-8" in done.stdout
    assert f"rejected {others[-1]}: cannot be opened: No such file or directory" in done.stdout


def test_json_prints_the_summary(good: Path) -> None:
    """--json prints what summary.json holds and nothing else."""
    done = soapjms("replay", good, "--out", "out", "--local", "--json", cwd=good.parent)
    assert done.returncode == 0
    assert json.loads(done.stdout) == summary(good.parent / "out")


def test_what_senders_were_given(good: Path) -> None:
    """--wsdl, --port, --uri and --set; how many messages went to each address is printed."""
    wsdl = ROOT / "tests" / "data" / "wsdl" / "echo-soap11-properties.wsdl"
    options = [
        "--wsdl",
        wsdl,
        "--port",
        "BindingOnly",
        "--uri",
        "jms:queue:greeter?priority=7",
        "--set",
        "timeToLive=0",
    ]
    done = soapjms("replay", good, "--out", "out", "--local", *options, cwd=good.parent)
    assert done.returncode == 1
    assert "Protocol-2007" in done.stdout
    assert "sent to jms:queue:CXF.PROPS (EchoService/BindingOnly): 0 messages" in done.stdout
    assert "sent to jms:queue:greeter (URI): 1 message" in done.stdout
    counts = summary(good.parent / "out")["assertions"]
    assert (counts["Protocol-2007"]["failed"], counts["Protocol-2001"]["failed"]) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "good.jsonl", "--out", "o", "--port", "P"], "--port needs exactly one --wsdl, got none"),
        (
            ["replay", "good.jsonl", "--out", "o", "--wsdl", "no.wsdl"],
            "a WSDL file, got 'no.wsdl', which does not exist",
        ),
        (["replay", "good.jsonl", "--out", "o", "--uri", "http://x"], "http://x"),
        (["replay", "good.jsonl", "--out", "o", "--set", "priority=7"], "a URI or WSDL of the senders must be given"),
        (["replay", "good.jsonl", "--out", "o", "--set", "priority"], "must be NAME=VALUE"),
        (["replay", "--out", "o"], "give LOG..., or --follow DIR"),
        (["replay", "good.jsonl"], "Missing option '--out'"),
        (["replay", "missing.jsonl", "--out", "o", "--local"], "no input can be read: missing.jsonl: cannot be opened"),
        (["replay", "good.jsonl", "--out", ".", "--local"], "good.jsonl, which replay did not write"),
        (["replay", "good.jsonl", "--out", "o", "--local", "--master", "local[1]"], "are for Spark"),
        (["replay", "good.jsonl", "--out", "o", "--conf", "spark.x"], "must be NAME=VALUE"),
        (["replay", "good.jsonl", "--out", "o", "--window", "0"], "--window"),
        (["replay", "good.jsonl", "--out", "o", "--window", "nan"], "--window"),
        (["replay", "good.jsonl", "--out", "o", "--profile", "2012"], "'cr-2009', 'cxf', 'rec-2012'"),
        (["replya"], "No such command 'replya'"),
    ],
)
def test_usage_errors_end_with_2_and_say_what_would_be_right(good: Path, arguments: list[str], said: str) -> None:
    """Nothing is written."""
    done = soapjms(*arguments, cwd=good.parent)
    assert done.returncode == 2
    assert said in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr
    assert list(good.parent.iterdir()) == [good]


def test_without_java_spark_says_how_to_get_on(good: Path) -> None:
    """The error names what is missing, how to install it, and the way without it."""
    for environment in ({"PATH": "", "JAVA_HOME": ""}, {"JAVA_HOME": str(good.parent)}):
        done = soapjms("replay", good, "--out", "out", "--engine", "spark", cwd=good.parent, **environment)
        assert done.returncode == 2
        assert "Java 17" in done.stderr
        assert "apt-get install openjdk-17-jre-headless" in done.stderr
        assert "--local" in done.stderr
        assert not (good.parent / "out").exists()


@pytest.mark.parametrize(
    ("package", "arguments", "line"),
    [
        ("click", ["--help"], "soapjms: click is not installed. Type: pip install 'soapjms[cli]'"),
        ("rich", ["replay", "good.jsonl", "--out", "o"], "rich is not installed. Type: pip install 'soapjms[cli]'"),
        *(
            (name, ["replay", "good.jsonl", "--out", "o"], "pip install 'soapjms[replay]'")
            for name in ("jinja2", "pyarrow", "duckdb", "msgspec")
        ),
        ("jinja2", ["report", "."], "pip install 'soapjms[replay]'"),
        (
            "pyspark",
            ["replay", "good.jsonl", "--out", "o", "--engine", "spark"],
            "pyspark is not installed. Type: pip install 'soapjms[spark]'",
        ),
    ],
)
def test_a_missing_package_is_named_with_the_line_to_type(
    good: Path, package: str, arguments: list[str], line: str
) -> None:
    """A package that an extra would have installed is no traceback."""
    block = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv[0] = 'soapjms'; from soapjms.cli import main; main()"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", block, *arguments]
    done = subprocess.run(command, cwd=good.parent, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert line in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr


def test_help_imports_neither_spark_nor_arrow(tmp_path: Path) -> None:
    """The help of the group is quick: it imports no command."""
    block = (
        "import sys\nfrom soapjms.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'pyspark', 'pyarrow', 'jinja2', 'rich'} & set(sys.modules), sys.modules\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", block, "--help"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "replay" in done.stdout


def test_what_a_log_says_does_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    """Control characters in a name, a line or a property are shown as escapes; brackets are no markup."""
    log = tmp_path / "a\x1b[31m.jsonl"
    log.write_text('{"v":1,"message_type":"[bold]\\u001b[31m"}\n')
    done = soapjms("replay", log, "--out", "out", "--local", cwd=tmp_path)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "[bold]" in done.stdout


def test_late_records_are_told_and_fail_nothing(good: Path) -> None:
    """Beside the other counts, and one by one; a run without --follow says nothing of them."""
    found, out = replay([good], good.parent / "out", engine="local"), StringIO()
    show(found, "out", Console(file=out, width=200))
    assert "late" not in out.getvalue()
    late = (LateRecord("a.jsonl", 7, "2026-11-20T12:00:00.000000Z"),)
    found = dataclasses.replace(found, members={**found.members, "late": 25}, late=late)
    show(found, "out", Console(file=out, width=200))
    assert ", 0 rejected, 25 late\n" in out.getvalue()
    assert "late a.jsonl:7: captured 2026-11-20T12:00:00.000000Z\nand 24 more under out/late\n" in out.getvalue()
    assert found.exit_status == 0


def test_clocks_that_disagree_are_told(tmp_path: Path) -> None:
    """Responses that were captured before their requests are a note; who reads the table need not open the report."""
    records = capture(request(1), at(2), Direction.REQUEST), capture(response(1), at(1), Direction.RESPONSE)
    found = replay(write_log(tmp_path / "log.jsonl", *records), tmp_path / "out", engine="local")
    said = StringIO()
    show(found, "out", Console(file=said, width=200))
    assert "note: clocks disagree: a response was captured before its request (once)\n" in said.getvalue()


@pytest.mark.spark
def test_spark_is_quiet_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The command runs on Spark from any folder; the terminal shows the result and nothing of Spark's."""
    work = tmp_path / "work"
    work.mkdir()
    arguments = ["replay", CXF, "--out", tmp_path / "out", "--conf", "spark.sql.shuffle.partitions=1"]
    done = soapjms(*arguments, cwd=work, PYSPARK_PYTHON="no-such-python")
    progress = (
        "engine spark: settings of Spark are given",
        "starting Spark",
        "reading ",
        "counting",
        "judging",
        "writing ",
    )  # of a slow machine
    assert (done.returncode, [each for each in done.stderr.splitlines() if not each.startswith(progress)]) == (1, [])
    assert done.stdout.startswith("FAILED by profile rec-2012")
    assert list(work.iterdir()) == []
    assert [each.name for each in tmp_path.iterdir() if each != work] == ["out"]


@pytest.mark.spark
def test_a_spark_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The last words of its log are in the error, with the way without it."""
    done = soapjms("replay", CXF, "--out", "out", "--master", "nonsense", cwd=tmp_path)
    assert done.returncode == 2
    assert "Spark did not start" in done.stderr
    assert "Master must" in done.stderr
    assert "--local" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "moment"),
    [
        (["--local"], "reading"),
        pytest.param(["--engine", "spark"], "starting Spark", marks=pytest.mark.spark),
        pytest.param(["--engine", "spark"], "judging", marks=pytest.mark.spark),
    ],
)
def test_ctrl_c_ends_with_130(tmp_path: Path, options: list[str], moment: str) -> None:
    """A run that is interrupted says so in one line; it writes nothing and leaves nothing behind."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(CXF.read_bytes() * 1200)
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "soapjms.cli", "replay", log, "--out", tmp_path / "out", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        start_new_session=True,  # Ctrl-C goes to all processes of a terminal, Spark's too
        stdout=other_end,
        stderr=other_end,
    )
    said = ""
    # Our own end stays open until all is read: a terminal that hangs up may take its last words with it.
    while select([terminal], [], [], 0.2)[0] or process.poll() is None:
        if select([terminal], [], [], 0)[0]:
            said += os.read(terminal, 4096).decode("utf-8", "replace")
        if moment in said:
            os.killpg(process.pid, signal.SIGINT)
            moment, said = "once only\0", ""
    os.close(terminal)
    os.close(other_end)
    deadline = time.monotonic() + 20
    while is_there(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_there(process.pid), "Spark's Java goes on"
    assert process.wait(60) == 130
    assert "Interrupted." in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == [log]


def is_there(group: int) -> bool:
    """Say whether there is a process of a group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
