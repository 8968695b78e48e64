"""junit.xml: one test case for each assertion, and one for records that could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent  # writes, never parses

from soapjms.protocol.assertions import Outcome
from soapjms.replay.report.tables import Row, rows
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import Summary

READING: Final = "records can be read"
"""The test case that has an error if records were rejected, which fails a run as well."""


def junit(summary: Summary) -> ElementTree[Element]:
    """Make the JUnit file: one test case for each assertion; one that was never judged is skipped, with the reason.

    Spec: no standard defines the format; these are the elements and attributes of Jenkins' schema (xunit-plugin,
    junit-10.xsd).
    """
    listed = sorted(rows(summary), key=lambda row: row.id)
    profile, rejected = summary.members["profile"], summary.members["rejected"]
    numbers = {
        "tests": len(listed) + 1,
        "failures": sum(row.state == "failed" for row in listed),
        "errors": int(rejected > 0),
    }
    said = {name: str(number) for name, number in numbers.items()}
    root = Element("testsuites", {"name": "soapjms replay", **said})
    skipped = str(sum(not row.judged for row in listed))
    suite = SubElement(root, "testsuite", {"name": f"soapjms replay {profile}", **said, "skipped": skipped})
    for row in listed:
        _case(SubElement(suite, "testcase", classname=f"soapjms.{profile}", name=row.id), row, summary)
    reading = SubElement(suite, "testcase", classname=f"soapjms.{profile}", name=READING)
    if rejected:
        lines = [f"{visible(each.file)}:{each.line or ''} {visible(each.reason)}" for each in summary.rejects]
        message = f"{rejected} {'record' if rejected == 1 else 'records'} could not be read: they are in rejected/"
        SubElement(reading, "error", type="rejected", message=message).text = "\n".join(lines)
    indent(root)
    return ElementTree(root)


def _case(case: Element, row: Row, summary: Summary) -> None:
    if row.state == Outcome.FAILED:
        failure = SubElement(case, "failure", type=row.level, message=f"{row.title}: {row.counts['failed']} failed")
        failure.text = "\n".join(_lines(summary, row.id, Outcome.FAILED))
    elif not row.judged:
        SubElement(case, "skipped", message=row.why_not)
    elif row.state == Outcome.WARNING:
        SubElement(case, "system-out").text = "\n".join(_lines(summary, row.id, Outcome.WARNING))


def _lines(summary: Summary, assertion: str, verdict: str) -> Iterator[str]:
    """Yield each cause with its count, followed by its first messages."""
    for reason, cause in summary.findings.of(assertion, verdict):
        yield f"{cause.count} × {visible(reason)}"
        for each in cause.samples:
            yield f"    {each.time} {visible(each.destination)} {visible(each.exchange_id)}: {visible(each.reason)}"
