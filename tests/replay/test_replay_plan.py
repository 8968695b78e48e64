"""The plan in SQL takes together only what no rule tells apart, and takes together what it may."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_log import (
    TINY_CALL,
    TINY_GIVEN,
    TINY_ONE_WAY,
    Members,
    exchange_number,
    give_attachment,
    give_attribute,
    give_trace,
    hostile_call,
    hostile_group,
    hostile_parts,
    renamed,
    write_hostile_log,
)
from replay_logs import assert_equal, assert_same_results, summary

from soapjms.generate import generate
from soapjms.protocol.assertions.markup import document_facts
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.limits import DEFAULT_LIMITS
from soapjms.protocol.record import from_json
from soapjms.replay import column_store, facts, replay
from soapjms.replay.column_store import ColumnStore
from soapjms.replay.parquet import RECORDS, to_row
from soapjms.replay.spark_plan import task_store

MORE_SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))]


# Small groups


def write_groups(path: Path, groups: Iterable[list[Members]], turns: int) -> Path:
    """Write a log of calls that break nothing, and of groups, each in as many turns, with ids of their own."""
    with path.open("w", encoding="utf-8") as log:
        for number, group in enumerate((list(TINY_CALL), [TINY_ONE_WAY], *groups)):
            for turn in range(turns):
                log.writelines(json.dumps(each) + "\n" for each in renamed(group, f"{turn}{number:06}."))
    return path


@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_records_that_may_be_copies_of_each_other(tmp_path: Path, seed: int) -> None:
    """Records that have few ids, and differ in little, are merged and paired as they are one by one."""
    random = Random(seed)
    assert_same_results(tmp_path, write_groups(tmp_path / "a.jsonl", (hostile_group(random) for _ in range(300)), 3))


@pytest.mark.parametrize("given", [[], [TINY_GIVEN, "jms:queue:orders.000"]], ids=["unknown", "known"])
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_calls_that_differ_in_little(tmp_path: Path, seed: int, given: list[str]) -> None:
    """Calls that differ in at most three things get the verdicts that they deserve, by known senders or others."""
    random = Random(seed)
    log = write_groups(tmp_path / "a.jsonl", (hostile_call(random) for _ in range(600)), 1)
    assert_same_results(tmp_path, log, senders=given)


@pytest.mark.parametrize("given", [[], [TINY_GIVEN]], ids=["unknown", "known"])
@pytest.mark.parametrize("profile", ["rec-2012", "cxf"])
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_bodies_in_parts(tmp_path: Path, seed: int, profile: str, given: list[str]) -> None:
    """Messages whose parts differ in at most three things get the verdicts that they deserve."""
    random = Random(seed)
    log = write_groups(tmp_path / "a.jsonl", (hostile_parts(random) for _ in range(500)), 2)
    assert_same_results(tmp_path, log, profile, senders=given)


def test_a_hostile_log_as_parquet(tmp_path: Path) -> None:
    """Its records give the same from rows as from lines."""
    lines = write_hostile_log(tmp_path / "hostile.jsonl", 3, 1000).read_bytes().splitlines()
    records = [each for line in lines if (each := read(line)) is not None]
    (tmp_path / "sound.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each, _ in records), "utf-8")
    pq.write_table(pa.Table.from_pylist([row for _, row in records], RECORDS), tmp_path / "sound.parquet")
    assert_same_results(tmp_path, tmp_path / "sound.parquet")
    replay(tmp_path / "sound.jsonl", tmp_path / "lines", engine="local")
    assert_equal(tmp_path / "lines", tmp_path / "local")


def read(line: bytes) -> tuple[Any, dict[str, Any]] | None:
    """Return the members of a line, and its row; None for what is no record."""
    try:
        record = from_json(line.decode())
        return json.loads(line), to_row(record)
    except (UnicodeDecodeError, InvalidRecordError):
        return None


# Different traffic


def judged_by_itself(logs: Path, out: Path) -> float:
    """Replay; return the share of records that were judged and not only counted."""
    seen: list[str] = []
    replay(logs, out, engine="local", progress=seen.append)
    (told,) = {each.partition(" of ")[2] for each in seen if each.startswith("judging: ")} or {"0 records"}
    return int(told.partition(" ")[0]) / summary(out)["records"]


@pytest.mark.parametrize("change", [give_trace, give_attribute, give_attachment])
def test_what_differs_in_each_message_is_counted(tmp_path: Path, change: Callable[[int, Members], None]) -> None:
    """What no rule reads keeps no exchange from being counted: a property, an attribute, an attachment."""
    generate(tmp_path / "made", 2000, broken=0)
    (path,) = (tmp_path / "made" / "logs").iterdir()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    before = judged_by_itself(path, tmp_path / "before")
    numbers: dict[str, int] = {}
    for each in lines:
        change(exchange_number(each, numbers), each)
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
    assert judged_by_itself(changed, tmp_path / "after") < before + 0.2


# Memory


def test_a_task_beyond_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on in the folder that Spark gave it, where two stores do not meet, and leaves nothing there."""
    monkeypatch.setattr(column_store, "MEMORY_LIMIT", "50MB")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path}/other")
    with closing(task_store()) as one, closing(task_store()) as other:
        for store in (one, other):
            store.define("large", "SELECT i, repeat('x', 100) || i AS text FROM range(1000000) AS numbers(i)")
        assert one.fetch("SELECT count(DISTINCT text) FROM large") == [(1_000_000,)]
        assert other.fetch("SELECT count(DISTINCT text) FROM large") == [(1_000_000,)]
        assert len([*tmp_path.glob("columns-*/*")]) > 2
    assert [*tmp_path.iterdir()] == []


# Outlines

START = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'>"
ALIKE = (
    ("<a>1</a>", "<a>2 &#228;</a>".replace("&#228;", "ä")),
    ('<a b="1"/>', '<a b="2"/>'),
    ('<a b="1" c="x=y"/>', '<a b="2" c=""/>'),
    ('<a xmlns="urn:a" b="1"/>', '<a xmlns="urn:a" b="2"/>'),
)
UNLIKE = (
    ("<a>1</a>", "<a>&lt;</a>"),
    ("<a>1</a>", "<a>]]></a>"),
    ('<a xmlns="urn:a"/>', '<a xmlns="urn:b"/>'),
    ('<a xml:lang="de"/>', '<a xml:lang="en"/>'),
    ("""<t v='k a="zz"'>x</t>""", """<t v='k a="' w="'>x</t>"""),
    ("""<t p="x a=" b="">x</t>""", """<t p="x a="!!!"">x</t>"""),
    ("""<t xmlns="x a=" b="">x</t>""", """<t xmlns="x a="!!!"">x</t>"""),
    ('<a b="1"/>', '<a b="\x01"/>'),
    ('<a b="1"/>', '<a b="<"/>'),
    ("<a>1</a>", "<a>\ufffe</a>"),
    ("<a>1</a>", "<a>\x0c</a>"),
)


def outlines(store: ColumnStore, *texts: str) -> list[str]:
    """Return the outline of each text, as the plan draws it."""
    table = pa.table({"number": list(range(len(texts))), "text": list(texts)})
    store.create("texts", table.schema)
    store.insert("texts", table)
    bare = f"(SELECT *, substr(text, 1, {facts.PROLOGUE}) AS prologue, {facts.BARE} AS bare FROM texts)"
    return [outline for _, outline in sorted(store.rows(f"SELECT number, {facts.OUTLINE} FROM {bare}"))]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColumnStore]:
    """Open a store."""
    with closing(ColumnStore(tmp_path_factory.mktemp("store"))) as opened:
        yield opened


@pytest.mark.parametrize("declaration", ["", "<?xml version='1.0' encoding='utf-8'?>"])
@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_bodies_that_differ_in_texts_and_values_are_alike(
    store: ColumnStore, declaration: str, one: str, other: str
) -> None:
    """They have one outline."""
    first, second = outlines(
        store, *(f"{declaration}{START}<e:Body>{each}</e:Body></e:Envelope>" for each in (one, other))
    )
    assert first == second


@pytest.mark.parametrize(("one", "other"), UNLIKE)
def test_bodies_of_which_one_may_be_broken_are_not(store: ColumnStore, one: str, other: str) -> None:
    """A namespace, a reference or a quote in the wrong place make another outline."""
    first, second = outlines(store, one, other)
    assert first != second


PIECES = (
    "<a>",
    "</a>",
    '<a b="',
    "<a b='",
    '"',
    "'",
    ">",
    "/>",
    "x",
    " a=",
    "<",
    " xmlns='u'",
    ' xmlns="',
    "<e:Body>",
    "\n",
)


@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_documents_of_an_outline_are_alike(store: ColumnStore, seed: int) -> None:
    """Whatever quotes, tags and texts they are made of, the same may be read of them."""
    random = Random(seed)
    texts = [
        f"{START}<e:Body>{''.join(random.choices(PIECES, k=random.randint(1, 7)))}</e:Body></e:Envelope>"
        for _ in range(4000)
    ]
    known: dict[str, Any] = {}
    for text, outline in zip(texts, outlines(store, *texts), strict=True):
        found = document_facts(text, None, DEFAULT_LIMITS)
        assert known.setdefault(outline, found) == found, text
