"""The files made of a summary: summary.json, report.html, junit.xml.

Everything that comes from a log is hostile: the page's template escapes all of it, the page runs no script and loads
nothing, and characters that a terminal, a browser or an XML parser would act on are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent  # writes, never parses

from jinja2 import Environment, StrictUndefined

from soapjms.protocol.assertions import Outcome
from soapjms.protocol.uri import showing
from soapjms.replay.findings import Sample
from soapjms.replay.summary import Summary

LONGEST: Final = 600
"""Characters of one text that the report shows."""
SHOWN: Final = 5
"""How many offenders of each assertion and verdict are listed."""
JUDGED: Final = (Outcome.PASSED, Outcome.FAILED, Outcome.WARNING)


def write(summary: Summary, folder: Path) -> None:
    """Write the three files into a folder."""
    (folder / "report.html").write_text(html(summary), "utf-8")
    junit(summary).write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)
    (folder / "summary.json").write_text(summary.to_json(), "utf-8")


def visible(text: object) -> str:
    """Show a text of a log: control characters and those that turn the direction of writing as escapes; cut if long."""
    characters = str(text)
    shown = showing.visible(characters[:LONGEST])
    return shown if len(characters) <= LONGEST else f"{shown}… ({len(characters) - LONGEST} more characters)"


class Row(NamedTuple):
    """One assertion as the report lists it."""

    id: str
    title: str
    section: str
    level: str
    state: str
    counts: Mapping[str, int]
    not_observable: str | None

    @property
    def judged(self) -> int:
        """How often it was judged to an end."""
        return sum(self.counts[each] for each in JUDGED)


def rows(summary: Summary) -> list[Row]:
    """List all assertions: the failed ones first, then warnings, passed ones, and those never exercised."""
    unseen = summary.members["notObservable"]
    listed = [
        Row(
            id=name,
            title=each["title"],
            section=each["section"],
            level=each["level"],
            state=_state(each, name in unseen),
            counts={str(outcome): each[outcome] for outcome in Outcome},
            not_observable=unseen.get(name),
        )
        for name, each in summary.members["assertions"].items()
    ]
    return sorted(listed, key=lambda row: (STATES.index(row.state), row.id))


STATES: Final = ("failed", "warning", "passed", "not judged", "not observable")


def _state(counts: Mapping[str, Any], unseen: bool) -> str:
    for outcome in (Outcome.FAILED, Outcome.WARNING, Outcome.PASSED):
        if counts[outcome]:
            return str(outcome)
    return "not observable" if unseen else "not judged"


def html(summary: Summary) -> str:
    """Make the page: one file, readable without scripts and without a network."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["visible"] = visible
    template = files("soapjms.replay").joinpath("report.html.j2").read_text("utf-8")
    listed = rows(summary)
    return environment.from_string(template).render(
        summary=summary.members,
        rows=listed,
        states=STATES,
        findings=_findings(summary, listed),
        rejects=summary.rejects,
        outcomes=[str(each) for each in Outcome],
    )


class Finding(NamedTuple):
    """The first offenders of one assertion with one verdict."""

    row: Row
    verdict: str
    number: int
    samples: list[Sample]

    @property
    def faults(self) -> bool:
        """True where the responding node had to answer with a fault, or did."""
        return any(each.expected_subcodes or each.observed_subcode for each in self.samples)


def _findings(summary: Summary, listed: list[Row]) -> list[Finding]:
    found = [
        Finding(row, outcome, row.counts[outcome], samples(summary, row.id, outcome))
        for outcome in (Outcome.FAILED, Outcome.WARNING)
        for row in listed
    ]
    return [each for each in found if each.samples]


def samples(summary: Summary, assertion: str, verdict: str) -> list[Sample]:
    """Return the earliest samples of an assertion's findings with one verdict."""
    return nsmallest(SHOWN, [each for _, cause in summary.findings.of(assertion, verdict) for each in cause.samples])


def junit(summary: Summary) -> ElementTree[Element]:
    """Make the JUnit file: one test case for each assertion; one that was never judged is skipped, with the reason."""
    listed = sorted(rows(summary), key=lambda row: row.id)
    profile = summary.members["profile"]
    numbers = {
        "tests": len(listed),
        "failures": sum(row.state == "failed" for row in listed),
        "errors": 0,
        "skipped": sum(not row.judged for row in listed),
    }
    said = {name: str(number) for name, number in numbers.items()}
    root = Element("testsuites", {"name": "soapjms replay", **said})
    suite = SubElement(root, "testsuite", {"name": f"soapjms replay {profile}", **said})
    for row in listed:
        _case(SubElement(suite, "testcase", classname=f"soapjms.{profile}", name=row.id), row, summary)
    if summary.members["rejected"]:
        lines = [f"{summary.members['rejected']} records could not be read; the first:"]
        lines += [f"{visible(each.file)}:{each.line or ''} {visible(each.reason)}" for each in summary.rejects]
        SubElement(suite, "system-err").text = "\n".join(lines)
    indent(root)
    return ElementTree(root)


def _case(case: Element, row: Row, summary: Summary) -> None:
    if row.state == Outcome.FAILED:
        failure = SubElement(case, "failure", type=row.level, message=f"{row.title}: {row.counts['failed']} failed")
        failure.text = _lines(samples(summary, row.id, Outcome.FAILED))
    elif not row.judged:
        SubElement(case, "skipped", message=row.not_observable or _why_not_judged(row))
    elif row.state == Outcome.WARNING:
        SubElement(case, "system-out").text = _lines(samples(summary, row.id, Outcome.WARNING))


def _why_not_judged(row: Row) -> str:
    for outcome, reason in NOT_JUDGED.items():
        if row.counts[outcome]:
            return reason
    return "no message of this log is subject to it"


NOT_JUDGED: Final[Mapping[str, str]] = {
    Outcome.MISSING_INPUT: "the records lack what the check needs",
    Outcome.PREREQ_FAILED: "a check that it rests on failed",
    Outcome.NOT_APPLICABLE: "it says nothing about the messages of this log",
}


def _lines(found: list[Sample]) -> str:
    return "\n".join(
        f"{each.time} {visible(each.destination)} {visible(each.exchange_id)}: {visible(each.reason)}" for each in found
    )
