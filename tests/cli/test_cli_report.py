"""`soapjms report`: the report of a replay made again, and two replays held against each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from replay_logs import CXF, TO_SERVICE, at, request, summary, write_log

from brokers.message import properties
from soapjms.cli.commands import soapjms
from soapjms.protocol.record import Direction, capture
from soapjms.replay import replay
from soapjms.replay.report import compare, load
from soapjms.replay.report.comparison import Turn, ViolationShare


def run(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(soapjms, ["report", *map(str, arguments)])


def replayed(folder: Path, name: str, good: int, bad: dict[str, int] | None = None, profile: str = "rec-2012") -> Path:
    """Replay a log of requests, some of which have another bindingVersion; return the results."""
    versions = ["1.0"] * good + [version for version, count in (bad or {}).items() for _ in range(count)]
    records = [
        capture(
            request(n, properties=properties({**TO_SERVICE, "SOAPJMS_bindingVersion": each})), at(n), Direction.REQUEST
        )
        for n, each in enumerate(versions)
    ]
    replay(write_log(folder / f"{name}.jsonl", *records), folder / name, profile, "local")
    return folder / name


# Making it again


def test_a_report_is_made_again_from_what_is_beside_it(tmp_path: Path) -> None:
    """A page that was lost, or is of an earlier version, is there again; nothing else is touched."""
    out = tmp_path / "out"
    replay(CXF, out, engine="local")
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    (out / "report.html").unlink()
    (out / "junit.xml").write_text("old")
    done = run(out)
    assert (done.exit_code, done.output) == (0, f"report: {out / 'report.html'}\n")
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    done = run(out, "--json")
    assert json.loads(done.output) == summary(out)


def test_a_folder_that_is_no_result_is_refused(tmp_path: Path) -> None:
    """With the file that is missing, and what to name."""
    done = run(tmp_path)
    assert done.exit_code == 2
    assert "summary.json cannot be read: No such file or directory" in done.output
    assert list(tmp_path.iterdir()) == []
    out = replayed(tmp_path, "out", 1)
    assert run(out, tmp_path / "nowhere").exit_code == 2
    assert run(out, out, "--tolerance", "nan").exit_code == 2


@pytest.mark.parametrize("words", [[], ["--against", "out"], ["out", "--trend", "trend.html"]])
def test_a_tolerance_where_nothing_is_compared_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """It is refused, as it would change nothing."""
    replayed(tmp_path, "out", 1)
    monkeypatch.chdir(tmp_path)
    done = run("out", *words, "--tolerance", "0")
    assert done.exit_code == 2
    assert "--tolerance is for two folders" in done.output
    assert not (tmp_path / "trend.html").exists()


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("summary.json", ["messages"], "many"),
        ("summary.json", ["verdict"], ["failed"]),
        ("summary.json", ["profile"], "none"),
        ("summary.json", ["assertions"], None),
        ("summary.json", ["assertions", "Protocol-2010", "failed"], None),
        ("summary.json", ["assertions", "Protocol-2010"], {}),
        ("summary.json", ["subcodes"], {"<b>": 5}),
        ("summary.json", ["parties", 0, "destination"], 7),
        ("summary.json", ["time", "first"], "yesterday"),
        ("summary.json", ["latency", "p50"], 1e300),
        ("summary.json", ["stacks"], [5]),
        ("report.json", ["timeline", "level"], 1000),
        ("report.json", ["timeline", "spans"], [[1e300, {"messages": 1}]]),
        ("report.json", ["places"], [["x", [["answered", None]]]]),
        ("report.json", ["findings"], [["Protocol-2010", "failed", 0, [["r", None, [], [], []]]]]),
    ],
)
def test_results_of_other_types_are_refused(tmp_path: Path, name: str, path: list[Any], value: Any) -> None:
    """Whatever stands where something else ought to be: the error says so, and the page is as it was."""
    out = tmp_path / "out"
    replay(CXF, out, engine="local")
    before = (out / "report.html").read_bytes()
    members = json.loads((out / name).read_text("utf-8"))
    place = members
    for each in path[:-1]:
        place = place[each]
    place[path[-1]] = value
    (out / name).write_text(json.dumps(members), "utf-8")
    done = run(out)
    assert done.exit_code == 2, done.exception
    assert "are damaged: " in " ".join(done.output.split())
    assert (out / "report.html").read_bytes() == before
    replay(CXF, tmp_path / "sound", engine="local")
    for words in ([out, out], [out, tmp_path / "sound"], [out, tmp_path / "sound", "--trend", tmp_path / "trend.html"]):
        done = run(*words)
        assert done.exit_code in (0, 1, 2), done.exception
        assert done.exception is None or isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1.5"])
def test_counts_that_are_no_whole_numbers_are_refused(tmp_path: Path, value: str) -> None:
    """Fractions, and what JSON has no numbers for: the error is one line."""
    out = replayed(tmp_path, "out", 80, {"0.3": 20})
    summary = out / "summary.json"
    summary.write_text(re.sub(r'"failed": [1-9]\d*', f'"failed": {value}', summary.read_text("utf-8")), "utf-8")
    done = run(out, replayed(tmp_path, "sound", 70, {"0.3": 230}))
    assert done.exit_code == 2, done.exception
    assert re.search("are damaged|is not JSON", done.output)


@pytest.mark.parametrize("name", ["summary.json", "report.json"])
def test_a_pipe_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    """Its reader would wait for a writer for ever."""
    out = replayed(tmp_path, "out", 1)
    (out / name).unlink()
    os.mkfifo(out / name)
    done = run(out)
    assert done.exit_code == 2
    assert f"{name} cannot be read: it is not a file" in " ".join(done.output.split())


def test_a_file_that_cannot_hold_all_characters(tmp_path: Path) -> None:
    """Such as one that Windows writes in its own code page: others than its own are printed as escapes."""
    words = [
        "report",
        str(replayed(tmp_path, "old", 80, {"0.3": 20})),
        str(replayed(tmp_path, "new", 70, {"0.3": 230})),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "soapjms", *words],
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert b"20 % \\u2192 76.7 %" in done.stdout


# Two runs


def turns(old: Path, new: Path, tolerance: float = 0.0) -> dict[str, str]:
    """Return what became of each assertion that changed."""
    found = compare(load(old), load(new), tolerance)
    return {each.assertion: str(each.turn) for each in found.changes if each.turn not in (Turn.SAME, Turn.NEVER)}


def test_what_fails_more_often_is_worse(tmp_path: Path) -> None:
    """By the share of those judged, not by their number; the other way round it is better; chance is neither."""
    old, new = replayed(tmp_path, "old", 80, {"0.3": 20}), replayed(tmp_path, "new", 700, {"0.3": 300})
    assert turns(old, new)["Protocol-2010"] == "worse"
    assert turns(new, old)["Protocol-2010"] == "better"
    same = replayed(tmp_path, "same", 400, {"0.3": 120})
    assert turns(old, same) == {}
    done = run(old, new)
    assert done.exit_code == 1
    assert done.output.startswith("WORSE by profile rec-2012: failed with 100 messages, then failed with 1,000")
    assert "20 % → 30 %" in done.output
    assert "parties: worse: 1 broken more often" in done.output
    assert "clients of queue:greeter: broken more often, 20 of 100 → 300 of 1,000" in " ".join(done.output.split())
    done = run(new, old)
    assert done.exit_code == 0
    assert done.output.startswith("NOT WORSE")
    assert run(old, same).exit_code == 0


def test_a_tolerance_lets_small_changes_pass(tmp_path: Path) -> None:
    """But not what fails for the first time."""
    old, new = replayed(tmp_path, "old", 900, {"0.3": 100}), replayed(tmp_path, "new", 860, {"0.3": 140})
    assert run(old, new).exit_code == 1
    assert run(old, new, "--tolerance", "5").exit_code == 0
    clean = replayed(tmp_path, "clean", 100)
    assert run(clean, new, "--tolerance", "50").exit_code == 1
    assert run(clean, clean).exit_code == 0


def test_reasons_that_are_new_or_gone_are_named(tmp_path: Path) -> None:
    """Also where the share is the same."""
    old, new = replayed(tmp_path, "old", 50, {"0.3": 50}), replayed(tmp_path, "new", 20, {"0.4": 80})
    done = run(old, new, "--json")
    assert done.exit_code == 1
    members: dict[str, Any] = json.loads(done.output)
    assert (members["worse"], members["profile"], members["messages"]) == (True, "rec-2012", {"old": 100, "new": 100})
    found = members["assertions"]["Protocol-2010"]
    assert found["turn"] == "worse"
    assert found["old"] == {"judged": 100, "failed": 50, "warning": 0, "failedShare": 0.5, "warningShare": 0.0}
    assert found["newReasons"] == ["SOAPJMS_bindingVersion is '0.4', not 1.0"]
    assert found["goneReasons"] == ["SOAPJMS_bindingVersion is '0.3', not 1.0"]
    assert members["parties"] == [
        {
            "destination": "queue:greeter",
            "node": "requesting",
            "stack": None,
            "seen": {"old": True, "new": True},
            "rules": {
                "Protocol-2010": {
                    "course": "more",
                    "old": {"broken": 50, "judged": 100},
                    "new": {"broken": 80, "judged": 100},
                }
            },
        }
    ]
    text = run(old, new).output
    assert "+ SOAPJMS_bindingVersion is '0.4'" in text
    assert "- SOAPJMS_bindingVersion is '0.3'" in text


def test_rejected_records_count(tmp_path: Path) -> None:
    """A larger share of them is worse."""
    old = replayed(tmp_path, "old", 5)
    log = tmp_path / "old.jsonl"
    log.write_text(log.read_text() + "nonsense\n")
    replay(log, tmp_path / "new", engine="local")
    done = run(old, tmp_path / "new")
    assert done.exit_code == 1
    assert "rejected records: 0, then 1, a larger share" in done.output
    assert json.loads(run(old, tmp_path / "new", "--json").output)["rejected"] == {"old": 0, "new": 1, "worse": True}


def test_what_only_one_run_judged_is_said(tmp_path: Path) -> None:
    """Something that is judged no longer is no better; what is broken at the first time of judging is worse."""
    old = replayed(tmp_path, "old", 3)
    (tmp_path / "none.jsonl").write_bytes(b"\n")
    replay(tmp_path / "none.jsonl", tmp_path / "none", engine="local")
    assert set(turns(old, tmp_path / "none").values()) == {"no longer judged"}
    assert set(turns(tmp_path / "none", old).values()) <= {"newly judged", "worse"}
    bad = replayed(tmp_path, "bad", 3, {"0.3": 1})
    assert turns(tmp_path / "none", bad)["Protocol-2010"] == "worse"
    assert run(old, tmp_path / "none").exit_code == 0


def test_runs_by_two_profiles_are_not_compared(tmp_path: Path) -> None:
    """Their assertions are not the same ones."""
    old, new = replayed(tmp_path, "old", 1), replayed(tmp_path, "new", 1, profile="cr-2009")
    done = run(old, new)
    assert done.exit_code == 2
    assert "judged by profile rec-2012, the second by cr-2009" in " ".join(done.output.split())


@pytest.mark.parametrize(("failed", "judged", "share"), [(0, 0, 0), (1, 4, 0.25)])
def test_shares(failed: int, judged: int, share: float) -> None:
    """Of nothing judged nothing failed."""
    assert ViolationShare(judged=judged, failed=failed, warning=0).of("failed") == share
