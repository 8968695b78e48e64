"""junit.xml: one test case for each assertion."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent  # writes, never parses

from soapjms.protocol.assertions import Outcome
from soapjms.replay.report.rows import Row, rows
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import Summary


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
        failure.text = "\n".join(_lines(summary, row.id, Outcome.FAILED))
    elif not row.judged:
        SubElement(case, "skipped", message=row.why_not)
    elif row.state == Outcome.WARNING:
        SubElement(case, "system-out").text = "\n".join(_lines(summary, row.id, Outcome.WARNING))


def _lines(summary: Summary, assertion: str, verdict: str) -> Iterator[str]:
    """Yield each cause with its count, and below it the first messages that it was found in."""
    for reason, cause in summary.findings.of(assertion, verdict):
        yield f"{cause.count} × {visible(reason)}"
        for each in cause.samples:
            yield f"    {each.time} {visible(each.destination)} {visible(each.exchange_id)}: {visible(each.reason)}"
