"""report.html: one file that needs no network and can be read without scripts.

Everything that comes from a log is hostile. The template escapes all of it; what the script shows comes as JSON and
becomes text only. The page's policy allows this one style sheet and this one script, by their hashes, and nothing else:
no address is ever loaded.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from soapjms.protocol.assertions import Outcome
from soapjms.replay.report import tables, texts
from soapjms.replay.report.charts import charts
from soapjms.replay.report.data import embedded
from soapjms.replay.report.rows import NEVER, STATES, UNSEEN, rows
from soapjms.replay.summary import NOTHING, Summary

VERDICTS: Final = {
    Outcome.FAILED: "Failed",
    Outcome.WARNING: "Passed, with warnings",
    Outcome.PASSED: "Passed",
    NOTHING: "Nothing to judge",
}
NAMES: Final = {
    Outcome.FAILED: "failed",
    Outcome.WARNING: "warning",
    Outcome.MISSING_INPUT: "input missing",
    Outcome.PREREQ_FAILED: "rests on a failed one",
}
"""What verdicts are called in the page."""
POLICY: Final = (
    "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def html(summary: Summary) -> str:
    """Make the page."""
    listed = rows(summary)
    causes, spots = tables.lines(summary, listed), tables.spots(summary)
    style, script = _asset("page.css"), _asset("page.js")
    return (
        _environment()
        .from_string(_asset("page.html.j2"))
        .render(
            summary=summary.members,
            verdict=VERDICTS[summary.members["verdict"]],
            rows=listed,
            numbers={state: sum(row.state == state for row in listed) for state in STATES},
            never=[row for row in listed if row.state == NEVER],
            unseen=[row for row in listed if row.state == UNSEEN],
            causes=causes,
            spots=spots,
            peers=tables.peers(summary),
            charts=charts(summary.timeline),
            rejects=summary.rejects,
            late=summary.late,
            number_late=summary.members.get("late", 0),
            names=NAMES,
            rest=tables.REST,
            nameless=tables.NAMELESS,
            unmarked=tables.UNKNOWN_STACK,
            policy=POLICY.format(style=_hash(style), script=_hash(script)),
            style=Markup(style),  # noqa: S704  # ours, as are the next two
            script=Markup(script),  # noqa: S704
            data=Markup(embedded(causes.shown, [each.name for each in spots if each.name is not None])),  # noqa: S704
        )
    )


def _environment() -> Environment:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        visible=texts.visible,
        number=texts.number,
        duration=texts.duration,
        day=_day,
        svg=Markup,
        clock=_clock,
        milliseconds=_milliseconds,
    )
    return environment


def _day(text: str) -> str:
    return f"{datetime.fromisoformat(text):%-d %B %Y}"


def _clock(text: str) -> str:
    return f"{datetime.fromisoformat(text):%H:%M:%S}"


def _milliseconds(value: float) -> str:
    return texts.duration(timedelta(milliseconds=value))


def _asset(name: str) -> str:
    return files("soapjms.replay.report").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
