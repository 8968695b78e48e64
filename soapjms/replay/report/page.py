"""report.html: one file that needs no network and can be read without scripts.

All content of a log is untrusted. The template escapes all of it. The script's data, the causes with their samples,
is JSON without any `<`, and is only ever inserted as text. The page's policy allows this one style sheet and this one
script, by their hashes, and nothing else: no address is ever loaded.

The page must stay small whatever a log holds, so samples have a budget: the gravest causes come first, and once the
budget is used up, samples are shown without their messages.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.replay.findings import MAX_SAMPLES
from soapjms.replay.parties import BROKEN, PartyKey
from soapjms.replay.report import tables, texts
from soapjms.replay.report.cases import NODE_OF_KIND, about_rule, case, key_of, times_of
from soapjms.replay.report.charts import charts
from soapjms.replay.report.comparison import BETTER, WORSE, PartyChange, compare_parties, no_comparison
from soapjms.replay.report.milestones import milestones
from soapjms.replay.report.remedies import STACKS, stack_name
from soapjms.replay.report.sentences import WORDS, capital, comings, courses, gone, headline, other_parties, who
from soapjms.replay.report.tables import NAMELESS, NEVER, REST, STATES, UNKNOWN_STACK, UNSEEN, CauseLine, Row, rows
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import NOTHING, Summary

SAMPLE_OCTETS: Final = 1_200_000
"""Maximum size of all samples of a page."""
WHERE_SHOWN: Final = 40_000
"""Maximum number of pairs of a cause and a party in a page; all further ones count as other destinations."""
NODES: Final = ("", *WORDS)
"""The nodes of parties; empty if it is not known."""


def _written(data: Mapping[str, Any]) -> str:
    """Write the data for a script element; no text of a log can end that element."""
    return _safe(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def _safe(text: str) -> str:
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


EXAMPLE_OCTETS: Final = 200_000
"""Maximum size of the examples that a page shows without scripts, as JSON; HTML takes twice as much."""


class Example(NamedTuple):
    """The first case of a finding by one party, for readers without scripts."""

    line: CauseLine
    who: str
    rule: Mapping[str, Any] | None
    times: tuple[str, str]
    case: Mapping[str, Any]


def examples(lines: Sequence[CauseLine], data: Mapping[str, Any], most: int = EXAMPLE_OCTETS) -> list[Example]:
    """List the first case of each of the gravest findings, then of each further party, as many as there is room for.

    Args:
        lines: the causes.
        data: what `page_data` returned for them.
        most: maximum size of all cases, which are without copies.
    """
    found: dict[tuple[int, int], Example] = {}
    for nth in range(MAX_SAMPLES):
        for number, (line, cause) in enumerate(zip(lines, data["causes"], strict=True)):
            if nth >= len(cause["s"]) or _party_of(line, nth) in {_party_of(line, each) for each in range(nth)}:
                continue
            shown = {name: value for name, value in cause["s"][nth].items() if name != "c"}
            most -= len(json.dumps(shown))
            if most < 0:
                return [found[each] for each in sorted(found)]
            rule = None if cause["y"] is None else data["rules"][cause["y"]]
            sample = line.samples[nth]
            sender = who(NODE_OF_KIND.get(sample.direction, ""), sample.place)
            found[number, nth] = Example(line, sender, rule, cause["t1"], shown)
    return [found[each] for each in sorted(found)]


def _party_of(line: CauseLine, nth: int) -> tuple[str, str, str]:
    sample = line.samples[nth]
    return sample.place, sample.direction, sample.stack


def page_data(lines: list[CauseLine], places: list[str], summary: Summary, time: Any = None) -> dict[str, Any]:
    """Return what the page's script reads: the causes and their cases, what they refer to by number, and the charts."""
    stacks = sorted({"", *(party.stack for line in lines for party in line.cause.where)})  # "", unknown, comes first
    place_numbers = {name: number for number, name in enumerate(places)}
    known: dict[PartyKey, int] = {}
    rules: list[dict[str, Any]] = []
    others = other_parties(summary.members)
    causes, samples_left, where_left = [], SAMPLE_OCTETS, WHERE_SHOWN
    for line in lines:
        where = _where(line, place_numbers.keys(), known, where_left)
        where_left -= len(where)
        samples = _cases(line, samples_left, summary)
        samples_left -= _size(samples)
        rule = _number_of(about_rule(line, summary), rules) if line.verdict in BROKEN else None
        wheres = [number for each in where for number in each]
        causes.append({**_cause(line), "t1": times_of(line, summary), "w": wheres, "y": rule, "s": samples})
    return {
        "places": [*(visible(each) if each else NAMELESS for each in places), REST],
        "stacks": [each or UNKNOWN_STACK for each in stacks],
        "nodes": list(NODES),
        "rules": rules,
        "names": STACKS,
        "parties": [
            *(
                [
                    place_numbers[each.place],
                    stacks.index(each.stack),
                    NODES.index(each.node),
                    visible(who(each.node, each.place, is_other=each in others)),
                ]
                for each in known
            ),
            [len(places), 0, 0, REST],
        ],
        "causes": causes,
        "time": time,
    }


def _cause(line: CauseLine) -> dict[str, Any]:
    """Return what a cause itself says."""
    return {
        "a": line.row.id,
        "v": line.verdict,
        "l": line.row.level,
        "t": line.row.title,
        "r": visible(line.reason),
        "n": line.cause.count,
        "c": sorted({code for pair in line.cause.answers for code in pair if code}),
        "f": line.folded,
        "b": dict(line.same),
        "k": key_of(line),
    }


def _number_of(rule: dict[str, Any], rules: list[dict[str, Any]]) -> int:
    """Return the place of a rule in the list, which gets it if it is new."""
    if rule not in rules:
        rules.append(rule)
    return rules.index(rule)


def _where(line: CauseLine, places: AbstractSet[str], known: dict[PartyKey, int], most: int) -> list[tuple[int, int]]:
    """Return the numbers of parties and of findings; those beyond the limits have the number -1."""
    ranked = sorted(line.cause.where.items(), key=lambda each: (-each[1], each[0]))
    listed = [each for each in ranked if each[0].place in places][: max(0, most)]
    shown = [(known.setdefault(party, len(known)), count) for party, count in listed]
    rest = line.cause.count - sum(count for _, count in shown)
    return [*shown, (-1, rest)] if rest else shown


def _cases(line: CauseLine, most: int, summary: Summary) -> list[dict[str, Any]]:
    """Return the samples of a cause; where there is no room for them, without copies, then without their messages."""
    if most <= 0:
        return []  # and no work on what is not shown
    shown = [case(line, each, summary) for each in line.samples]
    for left_out in ("c", "ms", "df"):
        if _size(shown) <= most:
            return shown
        shown = [{name: value for name, value in each.items() if name != left_out} | {"x": 1} for each in shown]
    return shown if _size(shown) <= most else []


def _size(samples: list[dict[str, Any]]) -> int:
    return len(_safe(json.dumps(samples, ensure_ascii=False)).encode())


VERDICTS: Final = {
    VerdictOutcome.FAILED: "Failed",
    VerdictOutcome.WARNING: "Passed, with warnings",
    VerdictOutcome.PASSED: "Passed",
    NOTHING: "Nothing to judge",
}
NAMES: Final = {
    VerdictOutcome.FAILED: "failed",
    VerdictOutcome.WARNING: "warning",
    VerdictOutcome.MISSING_INPUT: "input missing",
}
"""The names of verdicts in the page."""
POLICY: Final = (
    "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

SCRIPTS: Final = ("zone.js", "page.js", "time.js")
"""The parts of the page's one script: each uses those before it."""

WITHOUT_SCRIPTS: Final = '<noscript><meta http-equiv="refresh" content="30"></noscript>'
"""How a live page is loaded again, in seconds, where scripts are off."""


def html(summary: Summary, against: Summary | None = None) -> str:
    """Make the page; with an earlier run by the same profile, compared with that."""
    listed = rows(summary)
    changes = _changes(summary, against)
    causes, spots = tables.lines(summary, listed), tables.spots(summary)
    changed = milestones(summary.members)
    drawn = charts(summary.timeline, changed)
    named = [each.name for each in spots if each.name is not None]
    cards = tables.cards(summary, listed, changes)
    data = page_data(causes.shown, named, summary, None if drawn is None else drawn.series)
    style, script = asset("page.css"), "".join(map(asset, SCRIPTS))
    return template("page.html.j2").render(
        summary=summary.members,
        verdict=VERDICTS[summary.members["verdict"]],
        rows=listed,
        numbers={state: sum(row.state == state for row in listed) for state in STATES},
        never=[row for row in listed if row.state == NEVER],
        unseen=[row for row in listed if row.state == UNSEEN],
        causes=causes,
        remedies=tables.remedy_rows(summary, listed),
        spots=spots,
        cards=cards,
        by_party=tables.rule_rows(cards.breaking, listed, summary.members["profile"]),
        **_compared(summary, against, changes, listed),
        origin=summary.origin,
        headline=headline(summary.members),
        peers=tables.peers(summary),
        charts=drawn,
        milestones=changed,
        rejects=summary.rejects,
        late=summary.late,
        number_late=summary.members.get("late", 0),
        examples=examples(causes.shown, data),
        names=NAMES,
        rest=tables.REST,
        nameless=tables.NAMELESS,
        unmarked=tables.UNKNOWN_STACK,
        policy=POLICY.format(style=hash_of(style), script=hash_of(script)),
        style=Markup(style),  # noqa: S704  # our own, like the next two
        script=Markup(script),  # noqa: S704
        data=Markup(_written(data)),  # noqa: S704
    )


def _changes(summary: Summary, against: Summary | None) -> list[PartyChange]:
    if against is None or no_comparison(against, summary) is not None:
        return []
    return compare_parties(against, summary)


def _compared(
    summary: Summary, against: Summary | None, changes: list[PartyChange], listed: list[Row]
) -> dict[str, Any]:
    """Return what the template says about an earlier run."""
    return {
        "against": None if against is None else against.members,
        "no_comparison": None if against is None else no_comparison(against, summary),
        "courses": courses(changes),
        "worse": WORSE,
        "better": BETTER,
        "comings": list(comings(changes)),
        "gone": [] if against is None else gone(changes, against.members)[: tables.MAX_CHANGE_ROWS],
        "changes": tables.change_rows(changes, listed, summary.members["profile"]),
    }


def live(page: str, name: str) -> str:
    """Make the page that updates itself from its server of the content of report.html.

    `live.js` does so without losing what is open; without scripts, the page is loaded again now and then.

    Args:
        page: the content of report.html.
        name: the name by which the server's events know this report: letters and digits.
    """
    script = asset("live.js")
    allowed = f" 'sha256-{hash_of(script)}'; connect-src 'self'"
    page = page.replace("; base-uri", f"{allowed}; base-uri", 1)  # after script-src, before any text of a log
    page = page.replace("</head>", f"{WITHOUT_SCRIPTS}\n</head>", 1)
    body, end, tail = page.rpartition("</body>")
    return f'{body}<script data-report="{name}">{script}</script>\n{end}{tail}'


@cache
def template(name: str) -> Template:
    """Return one of this package's templates, which escape all that they are given."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        visible=texts.visible,
        capitalise=capital,
        number=texts.number,
        duration=texts.duration,
        day=_day,
        svg=Markup,
        clock=_clock,
        lasted=_lasted,
        milliseconds=_milliseconds,
        since_1970=texts.since_1970,
        stack_name=stack_name,
    )
    return environment.from_string(asset(name))


def _day(text: str) -> str:
    return f"{datetime.fromisoformat(text):%-d %b %Y}"


def _clock(text: str) -> str:
    return f"{datetime.fromisoformat(text):%H:%M:%S}"


def _lasted(first: str, last: str) -> str:
    """Return how long it is from one time to another; empty if they are equal."""
    return "" if first == last else texts.length(datetime.fromisoformat(last) - datetime.fromisoformat(first))


def _milliseconds(value: float) -> str:
    return texts.duration(timedelta(milliseconds=value))


def asset(name: str) -> str:
    """Read a file of this package."""
    return files("soapjms.replay.report").joinpath(name).read_text("utf-8")


def hash_of(text: str) -> str:
    """Return the hash of a style sheet or a script as a policy has it."""
    return b64encode(sha256(text.encode()).digest()).decode()
