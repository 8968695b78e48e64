"""The files of a report: writing them into a folder, and reading a result folder back.

They go into a new folder, or into one that already holds the results of a replay. report.json holds the report's data
beyond summary.json. In a folder without it, by an earlier version or another program that writes the format, verdicts/
is read instead: then the report has no messages in its samples, no latencies and no stacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import tostring

import pyarrow.parquet as pq
from jinja2 import UndefinedError

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.assertions.model import assertion_of
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import format_time
from soapjms.replay.findings import MAX_DESTINATIONS, Cause, Causes, FindingKey, Findings, Sample
from soapjms.replay.flat_records import microseconds
from soapjms.replay.inputs import RejectedRow
from soapjms.replay.marks import PRODUCER, SUMMARY
from soapjms.replay.output import write_text
from soapjms.replay.parties import BROKEN, RESPONDING, PartyKey, PlaceCounts, places_from_members, places_to_members
from soapjms.replay.report.junit import junit
from soapjms.replay.report.page import html
from soapjms.replay.report.remedies import rule_texts
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import (
    LATE_SHOWN,
    REJECTS_SHOWN,
    Provenance,
    Summary,
    Timeline,
)
from soapjms.replay.terms import LateRecord
from soapjms.replay.terms import place as place_of

REPORT: Final = "report.json"
VERSION: Final = 3
WITH_MIXED_ANSWERS: Final = 2
"""The version of a report.json with one count for a rule and the answer to its breach, and times of parties only."""
WITHOUT_PARTIES: Final = 1
"""The version of a report.json that is left aside."""
TEMPORARY: Final = re.compile(r"\A(temporary-(?:queue|topic)):.*\Z", re.DOTALL)
"""A temporary destination: there are as many as clients, so all of a kind count as one."""
COLUMNS: Final = (
    "exchange_id message_id time destination assertion verdict reason expected_subcodes observed_subcode".split()
)

LATE_COLUMNS: Final = ["file", "line", "time"]


def to_json(summary: Summary) -> str:
    """Write the content of report.json."""
    members = {
        "producer": PRODUCER,
        "version": VERSION,
        "origin": None if summary.origin is None else summary.origin._asdict(),
        "findings": summary.findings.to_members(),
        "timeline": summary.timeline.to_members(),
        "places": places_to_members(summary.places),
        "rest": summary.rest.to_members(),
        "rejects": [[each.file, each.line, each.reason] for each in summary.rejects],
        "late": summary.late,
    }
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")) + "\n"


def load(folder: Path) -> Summary:
    """Read the results of a replay back.

    Raises:
        UsageError: the results are missing, incomplete, or of another version.
    """
    members = _read(folder / SUMMARY)
    if members.get("producer") != PRODUCER:
        raise UsageError(f"{folder / SUMMARY} was not written by {PRODUCER}; name the --out folder of a replay")
    members.setdefault("parties", [])
    with as_written(folder):
        more = _read(folder / REPORT) if (folder / REPORT).exists() else None
        if more is None or more["version"] == WITHOUT_PARTIES:
            return _from_rows(members, folder)
        return _whole(members, more)


@contextmanager
def as_written(*folders: Path) -> Iterator[None]:
    """Turn errors from damaged files of result folders into one that says so.

    The files are not checked before they are used, since a change could be anywhere in them.

    Raises:
        UsageError: a value is missing, or is not of the type that a replay writes.
    """
    try:
        yield
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UndefinedError) as error:
        where = " and ".join(map(str, folders))
        raise UsageError(f"the results in {where} are damaged: {visible(repr(error))}; replay again") from None


def _read(path: Path) -> dict[str, Any]:
    _check_regular(path)
    try:
        members = json.loads(path.read_text("utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; name the folder that a replay wrote") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}; replay again") from None
    if not isinstance(members, dict):
        raise UsageError(f"{path} is not a JSON object; replay again")
    return members


def _check_regular(path: Path) -> None:
    """Refuse a pipe, whose reader waits for a writer, and a device, which may have no end.

    Raises:
        UsageError: there is something else than a file at the path.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be read: it is not a file; name the folder that a replay wrote")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _whole(members: dict[str, Any], more: dict[str, Any]) -> Summary:
    if more["version"] not in (WITH_MIXED_ANSWERS, VERSION):
        raise UsageError(f"{REPORT} must be of version {VERSION} for this program, got {more['version']!r}")
    findings = Findings.from_members(more["findings"])
    if more["version"] == WITH_MIXED_ANSWERS:
        _set_answers_apart(members, findings)
    return Summary(
        members=members,
        findings=findings,
        timeline=Timeline.from_members(more["timeline"]),
        places=places_from_members(more["places"]),
        rest=PlaceCounts.of(more["rest"]),
        rejects=tuple(RejectedRow(*each) for each in more["rejects"]),
        late=tuple(LateRecord(*each) for each in more.get("late", ())),
        origin=None if more["origin"] is None else Provenance.of(more["origin"]),
    )


def _set_answers_apart(members: dict[str, Any], findings: Findings) -> None:
    """Name what services broke in answers to breaches as this version does; what they kept stays as it is."""
    for answer in rule_texts(members["profile"]):
        rule = assertion_of(answer)
        for outcome in BROKEN:
            causes = findings.groups.get((rule, outcome), Causes())
            apart = {reason: each for reason, each in causes.all.items() if answer != rule and _is_on_answers(each)}
            if apart:
                for reason, cause in apart.items():
                    del causes.all[reason]
                    for party in members["parties"]:
                        _move(party, rule, answer, outcome, cause)
                findings.groups[answer, outcome] = Causes(causes.level, apart)


def _is_on_answers(cause: Cause) -> bool:
    return any(party.node == RESPONDING for party in cause.where) and any(expected for expected, _ in cause.answers)


def _move(party: dict[str, Any], rule: str, answer: str, outcome: str, cause: Cause) -> None:
    """Count the findings of a party as broken answers."""
    number = cause.where[PartyKey.of(party)]
    if number:
        party[outcome][answer] = party[outcome].get(answer, 0) + number
        party[outcome][rule] = party[outcome].get(rule, 0) - number
        if party[outcome][rule] <= 0:
            del party[outcome][rule]


def _from_rows(members: dict[str, Any], folder: Path) -> Summary:
    findings, timeline = Findings(), Timeline()
    for row in _rows(folder / "verdicts", COLUMNS):
        sample = _sample(row)
        place = TEMPORARY.sub(r"\1", sample.destination)
        found = FindingKey(sample.reason, PartyKey(place, "", ""), sample.expected_subcodes, sample.observed_subcode)
        findings.take(row["assertion"], row["verdict"], found, sample.time, sample.exchange_id, partial(_same, sample))
        if row["verdict"] in (VerdictOutcome.FAILED, VerdictOutcome.WARNING):
            timeline.count(microseconds(row["time"]), f"{row['verdict']}/{row['assertion']}")
    late = (
        LateRecord(row["file"], row["line"], format_time(row["time"])) for row in _rows(folder / "late", LATE_COLUMNS)
    )
    refused = (RejectedRow(*row.values()) for row in _rows(folder / "rejected", ["file", "line", "reason"]))
    return Summary(
        members={"time": {"first": None, "last": None}, "latency": None, **members},
        findings=findings.settled(),
        timeline=timeline,
        places={name: PlaceCounts() for name in nsmallest(MAX_DESTINATIONS, _places(findings))},
        rest=PlaceCounts(),
        rejects=tuple(nsmallest(REJECTS_SHOWN, refused, key=place_of)),
        late=tuple(nsmallest(LATE_SHOWN, late)),
    )


def _same(sample: Sample) -> Sample:
    return sample


def _places(findings: Findings) -> set[str]:
    return {party.place for group in findings.groups.values() for cause in group.all.values() for party in cause.where}


def _rows(folder: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.parquet")):
        _check_regular(path)
        try:
            for batch in pq.ParquetFile(path).iter_batches(columns=columns):
                yield from batch.to_pylist()
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be read: {visible(error)}; replay again") from None


def _sample(row: dict[str, Any]) -> Sample:
    return Sample(
        time=format_time(row["time"]),
        exchange_id=row["exchange_id"],
        message_id=row["message_id"] or "",
        destination=row["destination"] or "",
        reason=row["reason"] or "",
        expected_subcodes=", ".join(row["expected_subcodes"] or ()),
        observed_subcode=row["observed_subcode"] or "",
    )


def write(summary: Summary, folder: Path, against: Summary | None = None) -> None:
    """Write all files that are made from a summary; the page compares it with an earlier one, if there is any."""
    for name, text in _made(summary, against).items():
        (folder / name).write_text(text, "utf-8")
    (folder / REPORT).write_text(to_json(summary), "utf-8")
    (folder / SUMMARY).write_text(summary.to_json(), "utf-8")


def rewrite(folder: Path, against: Path | None = None) -> Summary:
    """Make the page and the JUnit file of a result folder again; each replaces the existing file atomically.

    Args:
        folder: the folder.
        against: the folder of an earlier replay, which the page compares these results with.

    Raises:
        UsageError: a folder does not hold the complete results of a replay, or the profiles differ.
        OSError: the folder cannot be written to.
    """
    summary = load(folder)
    earlier = None if against is None else load(against)
    with as_written(folder, *([] if against is None else [against])):
        made = _made(summary, earlier)
    for name, text in made.items():
        write_text(folder / name, text)
    return summary


def _made(summary: Summary, against: Summary | None) -> dict[str, str]:
    root = junit(summary).getroot()
    assert root is not None
    return {
        "report.html": html(summary, against),
        "junit.xml": '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, "unicode") + "\n",
    }
