"""Generated logs: a replay finds what their labels say, all of it and nothing else."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_kit import run, said
from replay_logs import rows, summary

from soapjms.generate import VIOLATIONS, generate
from soapjms.protocol.assertions import ASSERTIONS
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import EDITIONS
from soapjms.protocol.record import from_json, to_json
from soapjms.replay import replay
from soapjms.replay.parquet import RECORDS, from_row

MESSAGES = 5000
BY_WHAT_SENDERS_WERE_GIVEN = {row.id for row in ASSERTIONS if row.by_properties} | {"Protocol-2018"}
"""The assertions that no log alone can show broken."""


def logs(folder: Path) -> str:
    """Return the lines of all logs of a folder."""
    return "".join(path.read_text("utf-8") for path in sorted((folder / "logs").glob("*.jsonl")))


def labelled(folder: Path) -> Iterator[dict[str, Any]]:
    """Give out the labels."""
    for line in (folder / "labels.jsonl").read_text("utf-8").splitlines():
        yield json.loads(line)


@pytest.fixture(scope="module", params=EDITIONS)
def replayed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Generate a log in which every second exchange breaks something, and replay it."""
    folder = tmp_path_factory.mktemp("generated")
    generate(folder, MESSAGES, profile=request.param, broken=0.5, seed=2)  # has responses without a request
    replay(folder / "logs", folder / "report", request.param, "local")
    return folder, request.param


def test_precision_and_recall_are_1(replayed: tuple[Path, str]) -> None:
    """Each breach that was put into the log is found at its message, and no other."""
    folder, _ = replayed
    wanted = Counter(
        (label["exchange_id"], each["message_id"], each["assertion"], each["verdict"])
        for label in labelled(folder)
        for each in label.get("broken", ())
    )
    found = Counter(
        (row["exchange_id"], row["message_id"], row["assertion"], row["verdict"])
        for row in rows(folder / "report", "verdicts")
        if row["verdict"] in ("failed", "warning")
    )
    assert found == wanted


def test_every_assertion_that_a_log_can_show_is_broken(replayed: tuple[Path, str]) -> None:
    """No detector goes without a test."""
    folder, profile = replayed
    edition = EDITIONS[profile]
    checked = [row.id for row in ASSERTIONS if row.check is not None and row.id not in BY_WHAT_SENDERS_WERE_GIVEN]
    broken = {each["assertion"] for label in labelled(folder) for each in label.get("broken", ())}
    assert broken >= {edition.assertion_id(name) for name in checked} - {None}
    used = json.loads((folder / "expected.json").read_text("utf-8"))["violations"]
    assert set(used) == {name for name, row in VIOLATIONS.items() if profile in row.editions}


def test_the_totals_are_what_a_replay_counts(replayed: tuple[Path, str]) -> None:
    """Copies, retries, redelivered, late and missing messages come out as the generator meant them."""
    folder, _ = replayed
    wanted, found = json.loads((folder / "expected.json").read_text("utf-8")), summary(folder / "report")
    assert wanted["messages"] == MESSAGES
    assert wanted["copies"] > 100
    assert wanted["unpaired"]["responsesWithoutRequest"] > 0
    for name in ("profile", "records", "messages", "copies", "exchanges", "one_way", "unpaired"):
        assert found[name] == wanted[name], name
    assert (found["rejected"], found["lateCopies"]) == (0, 0)
    counted = {
        name: {kind: number for kind in ("failed", "warning") if (number := each[kind])}
        for name, each in found["assertions"].items()
    }
    assert {name: each for name, each in counted.items() if each} == wanted["assertions"]
    missing = sum(label.get("event") == "missingResponse" for label in labelled(folder))
    assert missing == wanted["unpaired"]["missingResponses"]


def test_clean_traffic_breaks_nothing(tmp_path: Path) -> None:
    """All stacks, versions, packagings and variants keep the rules."""
    generate(tmp_path, 2000, broken=0)
    assert replay(tmp_path / "logs", tmp_path / "report", engine="local").members["verdict"] == "passed"
    stacks = {from_json(line).meta["stack"] for line in logs(tmp_path).splitlines()}
    assert stacks == {"soapjms", "cxf", "own program"}


@pytest.mark.parametrize("form", ["jsonl", "gzip", "parquet"])
def test_the_same_seed_makes_the_same_octets(tmp_path: Path, form: str) -> None:
    """And another seed others."""
    made = [generate(tmp_path / str(n), 300, seed=seed, form=form) for n, seed in enumerate((7, 7, 8))]
    first, again, other = (b"".join(path.read_bytes() for path in each.files) for each in made)
    assert first == again
    assert first != other
    assert made[0].members == made[1].members


def test_all_forms_hold_the_same_records(tmp_path: Path) -> None:
    """Parquet rows and compressed lines are those of the plain log."""
    made = {form: generate(tmp_path / form, 300, form=form).files for form in ("jsonl", "gzip", "parquet")}
    plain = made["jsonl"][0].read_text("utf-8")
    assert gzip.decompress(made["gzip"][0].read_bytes()).decode() == plain
    table = pq.read_table(made["parquet"][0])
    assert table.schema.equals(RECORDS)
    lines = [to_json(from_json(line)) for line in plain.splitlines()]
    assert [to_json(from_row(row)) for row in table.to_pylist()] == lines


@pytest.mark.parametrize("form", ["jsonl", "gzip", "parquet"])
def test_logs_rotate(tmp_path: Path, form: str) -> None:
    """A file that has reached its size is followed by another; nothing is lost between them."""
    whole = generate(tmp_path / "one", 12_000, form=form)
    octets = whole.files[0].stat().st_size
    parts = generate(tmp_path / "several", 12_000, form=form, rotation=octets // 3)
    assert len(whole.files) == 1
    assert 2 <= len(parts.files) <= 4
    assert parts.members == whole.members


def test_a_rate_is_kept(tmp_path: Path) -> None:
    """A violation that is named gets its own share; with nothing else broken the log has that alone."""
    members = generate(tmp_path, 20_000, broken=0, rates={"charset": 0.05}).members
    exchanges = sum(members[name] for name in ("exchanges", "one_way")) + members["unpaired"]["missingResponses"]
    assert set(members["violations"]) == {"charset"}
    assert members["violations"]["charset"] / exchanges == pytest.approx(0.05, rel=0.15)


def test_a_skewed_queue(tmp_path: Path) -> None:
    """One destination takes its share of the traffic, the others the rest."""
    generate(tmp_path, 4000, skew=0.9, queues=5)
    requests = [json.loads(line) for line in logs(tmp_path).splitlines() if '"jms:' in line]
    names = Counter(each["destination"]["name"] for each in requests if each["destination"]["name"].startswith("or"))
    assert names["orders.000"] / names.total() == pytest.approx(0.9, abs=0.03)
    assert len(names) == 5


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"rates": {"nothing": 0.1}}, "rates has 'nothing', which rec-2012 does not have"),
        ({"rates": {"charset": 0.9, "soap-action": 0.2}}, "their sum"),
        ({"profile": "cxf"}, "profile must be one of .*, got 'cxf'"),
        ({"form": "xml"}, "form must be one of .*, got 'xml'"),
        ({"queues": 1, "skew": 0.9}, "two queues"),
        ({"pace": 0}, "pace must be above 0"),
        ({"pace": 1e-9}, "at most a hundred years, got 1e-09 for 10 messages"),
        ({"messages": 10**400}, "at most a hundred years, got 500.0 for 1000"),
        ({"rotation": 0}, "rotation must be at least 1 octet, got 0"),
        ({"messages": -1}, "messages must be at least 0 .* got -1"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, terms: dict[str, Any], said: str) -> None:
    """The error names the argument, and nothing is written."""
    with pytest.raises(UsageError, match=said):
        generate(tmp_path / "out", **{"messages": 10, **terms})
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    """Logs of two runs are never mixed."""
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UsageError, match="is not empty"):
        generate(tmp_path, 10)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("messages", [0, 1, 2, 3])
def test_small_logs(tmp_path: Path, messages: int) -> None:
    """There are as many messages as were asked for, to the last one."""
    assert generate(tmp_path / "out", messages, broken=1).members["messages"] == messages


def test_the_command(tmp_path: Path) -> None:
    """It says what it wrote, as words or JSON, and lists the violations."""
    done = run("generate", tmp_path / "a", "-n", 500, "--rate", "charset=0.1", "--form", "gzip")
    assert done.exit_code == 0, done.output
    assert "500 messages in" in done.output
    assert f"soapjms replay {tmp_path / 'a'}/logs --out report" in done.output
    found = said("generate", tmp_path / "b", "-n", 500, "--rate", "charset=0.1")
    assert found == json.loads((tmp_path / "a" / "expected.json").read_text("utf-8"))
    assert "no-request-uri-on-response" in run("generate", "--list").output


def test_a_rate_that_is_none(tmp_path: Path) -> None:
    """The mistake is named, and how it is right."""
    wrong = run("generate", tmp_path / "c", "-n", 5, "--rate", "charset")
    assert wrong.exit_code == 2
    assert "must be NAME=SHARE, such as charset=0.01" in wrong.output
