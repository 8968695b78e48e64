"""Many runs in one page: for each party a small chart of the share of its messages that broke rules, run by run.

Like the page of a report, it needs no network; it has no script at all, and all texts of logs are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring  # writes, never parses

from markupsafe import Markup

from soapjms import __version__
from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.errors import UsageError
from soapjms.protocol.text import counted
from soapjms.replay.parties import BROKEN
from soapjms.replay.report.comparison import check_comparable, party_key
from soapjms.replay.report.page import asset, hash_of, template
from soapjms.replay.report.sentences import capital, messages_of, party_name
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import Summary

MAX_PARTIES: Final = 60
"""Maximum number of parties in the page: those that broke most in the last run, then in earlier ones."""
MAX_RUNS: Final = 400
WIDTH: Final = 280
HEIGHT: Final = 64
SCALES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The shares that the upper line of all charts may stand for: the smallest that holds the largest share."""
MIN_BAR_HEIGHT: Final = 1.5
"""Least height of a bar, so that a small share stays visible."""
POLICY: Final = "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


class Point(NamedTuple):
    """A party in one run: its messages, and the shares of them that failed and that ended with a warning."""

    messages: int
    failed: float
    warning: float


class PartyTrend(NamedTuple):
    """A party as the page shows it."""

    name: str
    chart: str
    latest: str


def trend(runs: Sequence[Summary]) -> str:
    """Make the page of some runs, the earliest first.

    Args:
        runs: their results, in any order.

    Raises:
        UsageError: there are fewer than two or too many, or they were judged by different profiles.
    """
    if not 2 <= len(runs) <= MAX_RUNS:
        raise UsageError(f"a trend needs 2 to {MAX_RUNS} runs, got {len(runs)}")
    for each in runs[1:]:
        check_comparable(runs[0].members["profile"], each.members["profile"])
    runs = sorted(runs, key=lambda run: run.members["time"]["first"] or "")
    parties = _seen(runs)
    top = next((each for each in SCALES if each >= _largest(parties)), SCALES[-1])  # a message may count twice
    style = asset("page.css")
    return template("trend.html.j2").render(
        runs=[each.members for each in runs],
        parties=[_trend_of(seen, [run.members for run in runs], top) for seen in parties],
        top=_percent(top),
        changed=_most_changed(parties),
        version=__version__,
        policy=POLICY.format(style=hash_of(style)),
        style=Markup(style),  # noqa: S704  # our own
    )


Seen: TypeAlias = "list[Mapping[str, Any] | None]"
"""A party in each run; None where it was not seen."""


def _seen(runs: Sequence[Summary]) -> list[Seen]:
    known = [{party_key(each): each for each in run.members["parties"]} for run in runs]
    keys = dict.fromkeys(key for run in reversed(known) for key in run)
    return [[run.get(key) for run in known] for key in list(keys)[:MAX_PARTIES]]


def _trend_of(seen: Seen, runs: Sequence[Mapping[str, Any]], top: float) -> PartyTrend:
    latest = seen[-1]
    return PartyTrend(
        name=capital(party_name(_last(seen))),
        chart=_chart([None if each is None else _point(each) for each in seen], runs, top),
        latest="not seen in the last run" if latest is None else _share(latest) + _before(seen),
    )


def _last(seen: Seen) -> Mapping[str, Any]:
    return next(each for each in reversed(seen) if each is not None)


def _largest(parties: Iterable[Seen]) -> float:
    return max((sum(_point(each)[1:]) for seen in parties for each in seen if each is not None), default=0.0)


def _before(seen: Seen) -> str:
    """Say what share failed in the last run, and in the one before that has the party."""
    shares = [_point(each).failed for each in seen if each is not None][-2:]
    if not any(shares):
        return ""
    return f": {_percent(shares[-1])}" + (f", {_percent(shares[0])} before" if len(shares) > 1 else "")


def _most_changed(parties: Iterable[Seen]) -> str:
    """Say whose share of failed messages changed most from the first run to the last; empty if none did."""
    ends = [(seen[0], seen[-1]) for seen in parties]
    changes = [(_point(first).failed, _point(last).failed, last) for first, last in ends if first and last]
    if not any(before != after for before, after, _ in changes):
        return ""
    before, after, party = max(changes, key=lambda each: abs(each[1] - each[0]))
    return f"{party_name(party)}: from {_percent(before)} of their messages to {_percent(after)}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _point(party: Mapping[str, Any]) -> Point:
    total = party["messages"] or 1
    return Point(party["messages"], *(party[f"{outcome}Messages"] / total for outcome in BROKEN))


def _share(party: Mapping[str, Any]) -> str:
    said = [
        f"{party[f'{outcome}Messages']:,} {words}"
        for outcome, words in ((VerdictOutcome.FAILED, "failed"), (VerdictOutcome.WARNING, "with warnings"))
        if party[f"{outcome}Messages"]
    ]
    return f"in the last run {', '.join(said) or 'nothing broken'} of {messages_of(party)}"


def _chart(points: Sequence[Point | None], runs: Sequence[Mapping[str, Any]], top: float) -> str:
    """Draw the shares of a party up to the largest, one column a run; a run without its messages is left empty."""
    svg = Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "aria-hidden": "true", "focusable": "false"})
    for y in ("0.5", str(HEIGHT - 0.5)):
        SubElement(svg, "line", {"class": "grid", "x1": "0", "x2": str(WIDTH), "y1": y, "y2": y})
    pitch = WIDTH / len(points)
    for number, (point, run) in enumerate(zip(points, runs, strict=True)):
        if point is None:
            continue
        low = 0.0
        shares = ", ".join(f"{100 * share:.3g} % {name}" for name, share in zip(BROKEN, point[1:], strict=True))
        said = f"{visible(run['time']['first'] or 'a run')}: {counted(point.messages, 'message')}, {shares}"
        for outcome, share in zip(BROKEN, point[1:], strict=True):
            height = max(MIN_BAR_HEIGHT, share / top * HEIGHT) if share else 0
            place = {"x": f"{number * pitch + pitch * 0.1:.1f}", "width": f"{pitch * 0.8:.1f}"}
            place |= {"y": f"{max(0, HEIGHT - low - height):.1f}", "height": f"{min(height, HEIGHT - low):.1f}"}
            if height:
                SubElement(SubElement(svg, "rect", {"class": str(outcome), **place}), "title").text = said
            low += height
        if not low:
            dot = {"class": "passed", "x": f"{number * pitch + pitch * 0.1:.1f}", "width": f"{pitch * 0.8:.1f}"}
            dot |= {"y": str(HEIGHT - MIN_BAR_HEIGHT), "height": str(MIN_BAR_HEIGHT)}
            SubElement(SubElement(svg, "rect", dot), "title").text = said
    return tostring(svg, "unicode", short_empty_elements=False)
