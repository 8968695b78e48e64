"""Replay gives the verdicts of the vectors: all of them in one log, without Spark and on Spark."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from replay_logs import rows
from vector_kit import VECTORS, exchange_of, members_of, paired, setting_of, shows
from wsdl_kit import wsdl

from soapjms.protocol.assertions import ASSERTIONS, judge
from soapjms.protocol.names import CR_2009, EDITIONS, REQUEST_URI, Profile
from soapjms.protocol.wsdl import Description
from soapjms.replay import replay
from soapjms.wsdl import read_wsdl

CASES = [case for vector in VECTORS.values() for case in vector["cases"] if "setting" not in case]
"""Those that a log alone shows: no sender's properties, no strict reader."""

BY_WHAT_THE_SENDER_WAS_GIVEN = [row.id for row in ASSERTIONS if row.by_properties] + ["Protocol-2018"]
"""The assertions that a log alone cannot show broken and kept: all others are, three times each."""

GIVEN = [
    case
    for name in BY_WHAT_THE_SENDER_WAS_GIVEN
    for case in VECTORS[name]["cases"]
    if "setting" in case and "targetService" not in case["setting"].get("properties", {})
]
"""Those of their cases that replay with senders shows. One with another targetService is by another sender there."""

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


WITH_ROW = ("failed", "warning", "missingInput", "prereqFailed")


def expected(cases: list[dict[str, Any]], profile: str) -> dict[tuple[str, str], Counter[str]]:
    """Return the rows that vectors call for: by exchange and assertion, how often which outcome."""
    wanted: dict[tuple[str, str], Counter[str]] = {}
    for number, case in enumerate(cases):
        exchange = paired([apart(each, number) for each in case["records"]])
        for name, outcome in case["expected"][profile]["verdicts"].items():
            outcomes = outcome if isinstance(outcome, list) else [outcome]
            wanted[exchange.id, name] = Counter(each for each in outcomes if each in WITH_ROW)
    return wanted


def found(out: Path) -> dict[tuple[str, str], Counter[str]]:
    """Return the rows that a replay wrote, counted likewise."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows(out, "verdicts"):
        counts[row["exchange_id"], row["assertion"]][row["verdict"]] += 1
    return counts


def test_the_logs_show_every_assertion_kept_and_broken() -> None:
    """Of each assertion three cases that satisfy it and three that do not are in the logs that the engines judge."""
    for row in ASSERTIONS:
        if row.check is not None:
            outcomes = [shows(row, case) for case in VECTORS[row.id]["cases"] if case in CASES or case in GIVEN]
            assert sum("passed" in each for each in outcomes) >= 3, row.id
            assert sum(bool(each & {"failed", "warning"}) for each in outcomes) >= 3, row.id


@pytest.mark.parametrize("profile", EDITIONS)
def test_verdicts_of_all_vectors(log: Path, tmp_path: Path, engine: str, profile: str) -> None:
    """One run over all vectors ends in the verdicts that each of them states."""
    replay(log, tmp_path / "out", profile, engine)
    assert rows(tmp_path / "out", "rejected") == []
    counts, wanted = found(tmp_path / "out"), expected(CASES, profile)
    assert {key: counts[key] for key in wanted} == wanted
    assert len(CASES) > 250


# What the sender was given

ALL_SET = {name: value for case in GIVEN for name, value in case["setting"].get("properties", {}).items()}
"""What the programs of all senders set, where they set anything: each case needs one of these."""


@pytest.mark.parametrize("profile", EDITIONS)
@pytest.mark.parametrize("environment", [{}, ALL_SET], ids=["by URI and WSDL", "by the program"])
def test_verdicts_by_what_senders_were_given(
    tmp_path: Path, engine: str, environment: dict[str, Any], profile: str
) -> None:
    """Each case has an address of its own, so that one run judges each by its own URI or WSDL."""
    cases = [case for case in GIVEN if ("properties" in case["setting"]) is bool(environment)]
    records = [elsewhere(apart(each, n), n) for n, case in enumerate(cases) for each in case["records"]]
    path = tmp_path / "vectors.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    senders = [sender_of(case, number, tmp_path, EDITIONS[profile]) for number, case in enumerate(cases)]
    summary = replay(path, tmp_path / "out", profile, engine, senders=senders, properties=environment)
    counts, wanted = found(tmp_path / "out"), expected(cases, profile)
    assert {key: counts[key] for key in wanted} == wanted
    assert [each["messages"] for each in summary.members["senders"]] == [1] * len(cases)
    assert passed(cases, profile) == {
        name: number for name in IDS_OF[profile] if (number := summary.members["assertions"][name]["passed"])
    }


IDS_OF = {
    edition.name: sorted({edition.assertion_id(name) or "" for name in BY_WHAT_THE_SENDER_WAS_GIVEN})
    for edition in EDITIONS.values()
}


def passed(cases: list[dict[str, Any]], profile: str) -> Counter[str]:
    """Count how often each of the assertions is kept, by the judge, each case in its own setting."""
    verdicts = chain.from_iterable(judge(exchange_of(case), setting_of(case, profile)) for case in cases)
    return Counter(
        each.assertion for each in verdicts if each.outcome == "passed" and each.assertion in IDS_OF[profile]
    )


def elsewhere(members: dict[str, Any], number: int) -> dict[str, Any]:
    """Send a record to an address that no other case has."""
    own = {name: moved(value, number) for name, value in members["properties"].items() if name == REQUEST_URI}
    destination = {**members["destination"], "name": moved(members["destination"]["name"], number)}
    return {**members, "destination": destination, "properties": {**members["properties"], **own}}


def moved(text: str, number: int) -> str:
    """Return a name or URI with the address of a case in the place of the one that all have."""
    return text.replace("orders", f"orders-{number}", 1)


def sender_of(case: dict[str, Any], number: int, folder: Path, edition: Profile) -> str | Description:
    """Return the URI that the sender of a case was given, or the WSDL if it was given one."""
    given = case["setting"]
    uri = moved(given.get("uri", "jms:queue:orders"), number)
    if "wsdl" not in given:
        return uri
    prefix = "cr" if edition is CR_2009 else "j"
    markup = {
        level: "".join(f"<{prefix}:{name}>{value}</{prefix}:{name}>" for name, value in elements.items())
        for level, elements in given["wsdl"].items()
    }
    path = folder / f"{number}.wsdl"
    path.write_text(wsdl("1.1", address=uri, transport=edition.namespace, **markup), "utf-8")
    return read_wsdl(path)
