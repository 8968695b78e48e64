"""The result of a replay on the terminal: verdict, counts, a table of what was broken, and where the report is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soapjms.protocol.assertions.model import rule_name
from soapjms.protocol.text import counted
from soapjms.replay import Summary
from soapjms.replay.parties import BROKEN
from soapjms.replay.report import visible
from soapjms.replay.report.remedies import rules
from soapjms.replay.report.sentences import party_lines
from soapjms.replay.summary import NOTHING
from soapjms.replay.uris import shown

VERDICTS: Final[Mapping[str, str]] = {NOTHING: "nothing to judge"}
"""Printed texts of verdicts that differ from their names."""
COLOURS: Final[Mapping[str, str]] = {"failed": "bold red", "warning": "yellow", "passed": "green"}


def show(summary: Summary, out: str, console: Console) -> None:
    """Print the result: verdict, counts, failures and warnings, rejected records, notes, and the report's path."""

    def place(name: str) -> str:
        return visible(os.path.join(shown(out), name))

    members = summary.members
    said = VERDICTS.get(members["verdict"], members["verdict"])
    verdict = Text(said.upper(), style=COLOURS.get(members["verdict"], ""))
    chosen = "" if members["profileChosen"] is None else f" ({members['profileChosen']['text']})"
    console.print(verdict, Text(f"by profile {members['profile']}{chosen}: {_counts(members)}"))
    for sentence in party_lines(members):
        console.print(Text(visible(sentence)), soft_wrap=True)
    broken = {name: each for name, each in members["assertions"].items() if each["failed"] or each["warning"]}
    if broken:
        console.print(_findings(summary, broken))
    for reject in summary.rejects:
        where = reject.file if reject.line is None else f"{reject.file}:{reject.line}"
        console.print(Text(f"rejected {visible(where)}: {visible(reject.reason)}"), soft_wrap=True)
    if members["rejected"] > len(summary.rejects):
        console.print(Text(f"and {members['rejected'] - len(summary.rejects)} more under {place('rejected')}"))
    for late in summary.late:
        console.print(Text(f"late {visible(late.file)}:{late.line}: captured {late.time}"), soft_wrap=True)
    if members.get("late", 0) > len(summary.late):
        console.print(Text(f"and {members['late'] - len(summary.late)} more under {place('late')}"))
    for each in members["senders"]:
        console.print(Text(_sender(each)), soft_wrap=True)
    for note in _notes(members):
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print(Text(f"report: {place('report.html')}"), soft_wrap=True)


def _notes(members: Mapping[str, Any]) -> Iterator[str]:
    backwards = members["latency"]["backwards"]
    if backwards:
        yield f"clocks disagree: a response was captured before its request ({_times(backwards)})"
    for note in members["notes"].values():
        yield f"{visible(note['text'])} ({_times(note['count'])})"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _sender(each: Mapping[str, Any]) -> str:
    service = "" if each["targetService"] is None else f", service {each['targetService']}"
    return visible(f"sent to {each['address']}{service} ({each['source']}): {counted(each['messages'], 'message')}")


def _counts(members: Mapping[str, Any]) -> str:
    unpaired = sum(members["unpaired"].values())
    late = f", {members['late']} late" if "late" in members else ""
    return (
        f"{counted(members['records'], 'record')}, {counted(members['messages'], 'message')}, "
        f"{counted(members['exchanges'], 'exchange')}, "
        f"{members['one_way']} one-way, {unpaired} unpaired, {members['rejected']} rejected{late}"
    )


def _findings(summary: Summary, broken: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table()
    table.add_column("assertion", no_wrap=True)
    for name in ("level", "failed", "warned"):
        table.add_column(name)
    table.add_column("meaning, and the first reason", overflow="fold")
    for name in sorted(broken, key=lambda each: (not broken[each]["failed"], each)):
        for rule in (name, rule_name(name, is_answer=True)):
            row = _row(summary, rule, broken[name])
            if row is not None:
                table.add_row(*row)
    return table


def _row(summary: Summary, rule: str, said: Mapping[str, Any]) -> list[Text] | None:
    """Return the row of a rule; None if it was not broken."""
    found = {kind: summary.findings.of(rule, kind) for kind in BROKEN}
    kind = next((kind for kind in BROKEN if found[kind]), None)
    if kind is None:
        return None
    counts = [str(sum(cause.count for _, cause in found[each])) for each in BROKEN]
    title = rules(summary.members["profile"])[rule].title
    return [
        Text(rule, style=COLOURS[kind]),
        *map(Text, [said["level"], *counts, f"{title}:\n{visible(found[kind][0][0])}"]),
    ]
