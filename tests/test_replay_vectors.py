"""Replay gives the verdicts of the vectors: all of them in one log, without Spark and on Spark."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from replay_logs import rows
from vector_kit import VECTORS, members_of, paired, shows

from soapjms.protocol.assertions import ASSERTIONS
from soapjms.protocol.names import EDITIONS
from soapjms.replay import replay
from soapjms.replay.judging import ROW_OUTCOMES

CASES = [case for vector in VECTORS.values() for case in vector["cases"] if "setting" not in case]
"""Those that a log alone shows: no sender's properties, no strict reader."""

BY_WHAT_THE_SENDER_WAS_GIVEN = {"Protocol-2001", "Protocol-2018", "WSDLUsage-3001", "WSDLUsage-3002", "WSDLUsage-3003"}
"""The assertions that a log alone cannot show broken and kept: all others are, three times each."""

IDS = ("message_id", "correlation_id")


def apart(record: dict[str, Any], number: int) -> dict[str, Any]:
    """Give a record ids that no other case has; one without ids is told apart by what it is."""
    members = members_of(record)
    ids = {name: f"{number}.{value}" for name in IDS if (value := members["jms"].get(name))}
    return {**members, "jms": {**members["jms"], **ids}, "meta": {"case": number}}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all cases into one log, all requests before all responses."""
    records = [apart(record, number) for number, case in enumerate(CASES) for record in case["records"]]
    records.sort(key=lambda each: each.get("direction") == "response")
    path = tmp_path_factory.mktemp("vectors") / "vectors.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    return path


def expected(profile: str) -> dict[tuple[str, str], Counter[str]]:
    """Return the rows that the vectors call for: by exchange and assertion, how often which outcome."""
    wanted: dict[tuple[str, str], Counter[str]] = {}
    for number, case in enumerate(CASES):
        exchange = paired([apart(each, number) for each in case["records"]])
        for name, outcome in case["expected"][profile]["verdicts"].items():
            outcomes = outcome if isinstance(outcome, list) else [outcome]
            wanted[exchange.id, name] = Counter(each for each in outcomes if each in ROW_OUTCOMES)
    return wanted


def test_the_log_shows_every_assertion_kept_and_broken() -> None:
    """Of each assertion three cases that satisfy it and three that do not are in the log that the engines judge."""
    fewer = set()
    for row in ASSERTIONS:
        if row.check is not None:
            outcomes = [shows(row, case) for case in VECTORS[row.id]["cases"] if "setting" not in case]
            kept = sum("passed" in each for each in outcomes)
            broken = sum(bool(each & {"failed", "warning"}) for each in outcomes)
            fewer |= {row.id} if min(kept, broken) < 3 else set()
    assert fewer == BY_WHAT_THE_SENDER_WAS_GIVEN


@pytest.mark.parametrize("profile", EDITIONS)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_verdicts_of_all_vectors(log: Path, tmp_path: Path, engine: str, profile: str) -> None:
    """One run over all vectors ends in the verdicts that each of them states."""
    replay(log, tmp_path / "out", profile, engine)
    assert rows(tmp_path / "out", "rejected") == []
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows(tmp_path / "out", "verdicts"):
        found[row["exchange_id"], row["assertion"]][row["verdict"]] += 1
    wanted = expected(profile)
    assert {key: found[key] for key in wanted} == wanted
    assert len(CASES) > 250
