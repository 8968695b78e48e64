"""junit.xml: a suite for each party with a test case for each rule that it was judged by, and one suite for the rest.

The rest are the assertions that were never judged, which are skipped, and the records that could not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent  # writes, never parses

from soapjms.replay.excerpts import KIND_OF_NODE
from soapjms.replay.findings import Sample
from soapjms.replay.parties import BROKEN, JUDGED, PartyKey
from soapjms.replay.report.sentences import party_name
from soapjms.replay.report.tables import Row, row_of, rows
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import Summary

READING: Final = "records can be read"
"""The test case that has an error if records were rejected, which fails a run as well."""


def junit(summary: Summary) -> ElementTree[Element]:
    """Make the JUnit file.

    Spec: no standard defines the format; these are the elements and attributes of Jenkins' schema (xunit-plugin,
    junit-10.xsd).
    """
    listed = sorted(rows(summary), key=lambda row: row.id)
    name = f"soapjms replay {summary.members['profile']}"
    root = Element("testsuites", {"name": "soapjms replay"})
    for party in summary.members["parties"]:
        _party_suite(
            SubElement(root, "testsuite", name=f"{name}: {visible(party_name(party))}"), party, listed, summary
        )
    # A result folder of an earlier version knows of no parties: then all assertions are in one suite.
    left = [row for row in listed if not row.judged or not summary.members["parties"]]
    _rest_suite(SubElement(root, "testsuite", name=name), left, summary)
    for suite in root:
        for kind, tag in COUNTS.items():
            suite.set(kind, str(len(suite.findall(tag))))
    for kind in ("tests", "failures", "errors"):
        root.set(kind, str(sum(int(suite.attrib[kind]) for suite in root)))
    indent(root)
    return ElementTree(root)


COUNTS: Final = {
    "tests": "testcase",
    "failures": "testcase/failure",
    "errors": "testcase/error",
    "skipped": "testcase/skipped",
}
"""The numbers of a suite, and the elements that they count."""


def _party_suite(suite: Element, party: Mapping[str, Any], listed: Iterable[Row], summary: Summary) -> None:
    key = None if party["destination"] is None else PartyKey.of(party)
    known = {row.id: row for row in listed}
    for rule in sorted({rule for outcome in JUDGED for rule in party[outcome]}):
        row = row_of(rule, known, summary.members["profile"])
        _, failed, warned = (party[outcome].get(rule, 0) for outcome in JUDGED)
        case = SubElement(suite, "testcase", classname=suite.attrib["name"], name=rule)
        _judge(case, row, failed, warned, _lines(summary, rule, key))


def _rest_suite(suite: Element, listed: Iterable[Row], summary: Summary) -> None:
    for row in listed:
        case = SubElement(suite, "testcase", classname=suite.attrib["name"], name=row.id)
        if row.judged:
            _judge(case, row, row.counts["failed"], row.counts["warning"], _lines(summary, row.id, None))
        else:
            SubElement(case, "skipped", message=row.why_not)
    reading = SubElement(suite, "testcase", classname=suite.attrib["name"], name=READING)
    rejected = summary.members["rejected"]
    if rejected:
        lines = [f"{visible(each.file)}:{each.line or ''} {visible(each.reason)}" for each in summary.rejects]
        message = f"{rejected} {'record' if rejected == 1 else 'records'} could not be read: they are in rejected/"
        SubElement(reading, "error", type="rejected", message=message).text = "\n".join(lines)


def _judge(case: Element, row: Row, failed: int, warned: int, lines: Iterator[str]) -> None:
    if failed:
        SubElement(case, "failure", type=row.level, message=f"{row.title}: {failed} failed").text = "\n".join(lines)
    elif warned:
        SubElement(case, "system-out").text = "\n".join(lines)


def _lines(summary: Summary, rule: str, party: PartyKey | None) -> Iterator[str]:
    """Yield each cause with its count, followed by its first messages; of one party, or of all."""
    for outcome in BROKEN:
        for reason, cause in summary.findings.of(rule, outcome):
            count = cause.count if party is None else cause.where[party]
            if count:
                yield f"{count} × {visible(reason)}"
                yield from (_line(each) for each in cause.samples if party is None or _is_by(each, party))


def _line(sample: Sample) -> str:
    where = f"{visible(sample.destination)} {visible(sample.exchange_id)}"
    return f"    {sample.time} {where}: {visible(sample.reason)}"


def _is_by(sample: Sample, party: PartyKey) -> bool:
    return (sample.place, sample.direction, sample.stack) == (party.place, KIND_OF_NODE[party.node], party.stack)
