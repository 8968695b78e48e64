"""The results of a run as numbers: counts that add up with any engine, and the summary made from them.

A timeline counts messages, violations and response times by span of time. The time that a log covers is unknown
beforehand, so spans begin narrow and widen as they become many. Their final width depends on the times alone, so that
the parts of a run add up to the same spans however its log was cut.

Spec: capture record, version 1, "Verdicts".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from itertools import pairwise
from typing import Any, Final, NamedTuple

from soapjms import __version__ as VERSION  # noqa: N812
from soapjms.protocol.assertions import ASSERTIONS, Setting, Verdict, VerdictOutcome, not_observable
from soapjms.protocol.assertions.model import assertion_of
from soapjms.protocol.names import EDITIONS, REC_2012
from soapjms.protocol.record import format_time
from soapjms.protocol.senders import SenderProfiles
from soapjms.replay.excerpts import whole
from soapjms.replay.findings import MAX_COUNTED_DESTINATIONS, MAX_DESTINATIONS, Findings, Scene
from soapjms.replay.flat_records import EPOCH, MICROSECOND, microseconds
from soapjms.replay.inputs import SUFFIXES, LogFile, RejectedRow
from soapjms.replay.marks import PRODUCER
from soapjms.replay.parties import (
    BROKEN,
    JUDGED,
    NEVER,
    RESPONDING,
    Ends,
    Party,
    PartyKey,
    PlaceCounts,
    places_from_members,
    places_to_members,
)
from soapjms.replay.terms import SHOWN, LateRecord, ProfileChoice, ReplayTerms

MAX_SPANS: Final = 400
"""Maximum number of spans that are not empty."""

_SECONDS: Final = (0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600, 10800, 43200)
_DAYS: Final = (1, 7, 28, 364, 3640, 36400)
WIDTHS: Final = (*(timedelta(seconds=each) for each in _SECONDS), *(timedelta(days=each) for each in _DAYS))
"""Possible widths of a span. Each divides the next; all years of the calendar fit into `MAX_SPANS` of the last."""
WIDTH_MICROSECONDS: Final = tuple(each // MICROSECOND for each in WIDTHS)
RATIOS: Final = tuple(wide // narrow for narrow, wide in pairwise(WIDTHS))

MESSAGES: Final = "messages"
BACKWARDS: Final = "backwards"
"""Exchanges whose response was captured before the request, as clocks disagree."""


def latency_bin(microseconds: int) -> int:
    """Return the number of the bin for a latency: four bins for each doubling, from a microsecond up."""
    exponent = max(0, microseconds.bit_length() - 3)
    return 4 * exponent + (microseconds >> exponent)


def latency_of(number: int) -> timedelta:
    """Return the middle of a bin, which is within 12.5 % of any latency in it."""
    exponent = max(0, number // 4 - 1)
    return ((number - 4 * exponent << exponent) + ((1 << exponent) >> 1)) * MICROSECOND


def quantiles(bins: Counter[int], parts: Iterable[float]) -> list[timedelta]:
    """Return the latencies below which the given parts of all are; an empty list without any latency."""
    total = bins.total()
    return [latency_of(_bin_at(bins, part * total)) for part in parts] if total else []


def _bin_at(bins: Counter[int], rank: float) -> int:
    seen = 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= rank:
            break
    return number


@dataclass(slots=True)
class Timeline:
    """Counts by span of time; parts add up in any order.

    Attributes:
        level: the spans are as wide as `WIDTHS[level]`, and begin at multiples of it since 1970.
        spans: counts by number of the span and by name; latencies are counted as `latency/BIN`.
        first: when the first message was captured, in microseconds since 1970, or None.
        last: when the last message was captured, or None.
    """

    level: int = 0
    spans: dict[int, Counter[str]] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None

    @property
    def width(self) -> timedelta:
        """The width of the spans."""
        return WIDTHS[self.level]

    def message(self, time: int) -> None:
        """Count a message; all times are in microseconds since 1970."""
        self.count(time, MESSAGES)
        self.first = time if self.first is None or time < self.first else self.first
        self.last = time if self.last is None or time > self.last else self.last

    def latency(self, asked: int, answered: int) -> int | None:
        """Count a response time at the time of its request; return its bin, or None if time ran backwards."""
        number = None if answered < asked else latency_bin(answered - asked)
        self.count(asked, BACKWARDS if number is None else f"latency/{number}")
        return number

    def count(self, time: int, what: str) -> None:
        """Count anything else by name."""
        number = time // WIDTH_MICROSECONDS[self.level]
        span = self.spans.get(number)
        if span is None:
            span = self.spans[number] = Counter()
        span[what] += 1
        if len(self.spans) > MAX_SPANS:
            self._settle()

    def add(self, other: Timeline) -> None:
        """Add another part's counts."""
        self._widen_to(max(self.level, other.level))
        ratio = WIDTHS[self.level] // WIDTHS[other.level]
        for number, span in other.spans.items():
            self.spans.setdefault(number // ratio, Counter()).update(span)
        self._settle()
        self.first = min((each for each in (self.first, other.first) if each is not None), default=None)
        self.last = max((each for each in (self.last, other.last) if each is not None), default=None)

    def _settle(self) -> None:
        while len(self.spans) > MAX_SPANS:
            self._widen_to(self.level + 1)

    def _widen_to(self, level: int) -> None:
        while self.level < level:
            ratio, before, self.spans = RATIOS[self.level], self.spans, {}
            for number, span in before.items():
                self.spans.setdefault(number // ratio, Counter()).update(span)
            self.level += 1

    def latencies(self) -> Counter[int]:
        """Return the number of responses by latency bin, over the whole time."""
        return sum((latencies_of(span) for span in self.spans.values()), Counter[int]())

    def to_members(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "level": self.level,
            "first": _time(self.first),
            "last": _time(self.last),
            "spans": [[number, dict(sorted(span.items()))] for number, span in sorted(self.spans.items())],
        }

    @classmethod
    def from_members(cls, members: dict[str, Any]) -> Timeline:
        """Read a timeline from its JSON form."""
        ends = (members["first"], members["last"])
        first, last = (None if each is None else microseconds(datetime.fromisoformat(each)) for each in ends)
        return cls(members["level"], {number: Counter(span) for number, span in members["spans"]}, first, last)


def latencies_of(span: Counter[str]) -> Counter[int]:
    """Return the number of responses in one span by latency bin."""
    named = ((name.partition("/"), number) for name, number in span.items())
    return Counter({int(bin_): number for (kind, _, bin_), number in named if kind == "latency"})


REJECTS_SHOWN: Final = 20
LATE_SHOWN: Final = 20
"""Maximum number of rejected, and of late, records that are listed."""

RECONSTRUCTED: Final = (
    "The profile rec-2012 is reconstructed: the Candidate Recommendation of 2009 plus the changes that the working "
    "group is known to have made, under the assertion ids of 2009 where no other is known."
)


class ListedPlaces(NamedTuple):
    """What was seen at the destinations that are listed one by one, by name, and at all others.

    `others` tells how many destinations and parties that were counted are among the others, and how many of these
    parties broke something; it is not all if there were more than are counted.
    """

    places: Mapping[str, PlaceCounts]
    rest: PlaceCounts
    others: Mapping[str, int | bool]


@dataclass(slots=True)
class RunTally:
    """Counts of one part of a run; parts add up in any order.

    Attributes:
        counts: counts by a path of words, such as ("assertion", id, verdict).
        notes: texts of notes by code.
        findings: the findings by assertion, verdict and cause.
        timeline: counts by span of time.
        places: what was seen at the first destinations.
        rest: what was seen at all others.
    """

    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    notes: dict[str, str] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    timeline: Timeline = field(default_factory=Timeline)
    places: dict[str, PlaceCounts] = field(default_factory=dict)
    rest: PlaceCounts = field(default_factory=PlaceCounts)

    def count(self, *path: str, by: int = 1) -> None:
        """Add to one count."""
        self.counts[path] += by

    def note(self, code: str, text: str) -> None:
        """Count a note; of several texts for one code, the first in alphabetical order stays."""
        self.counts["note", code] += 1
        self.notes[code] = min(text, self.notes.get(code, text))

    def find(self, verdict: Verdict, scene: Scene, setting: Setting, mistake: str = "") -> None:
        """Count a verdict by a setting that has a row, by its cause; see `mistake_of`."""
        outcome, time = str(verdict.outcome), verdict.record.time
        found = scene.found(verdict, mistake)
        self.findings.take(
            verdict.rule,
            outcome,
            found,
            format_time(time),
            scene.exchange.id,
            lambda: scene.sample(verdict, setting),
        )
        if outcome in BROKEN:
            at = microseconds(time)
            self.timeline.count(at, f"{outcome}/{verdict.assertion}")
            self.party(found.party).broke(verdict.rule, outcome, Ends(at, at), is_other_mistake=not mistake)

    def see(self, key: PartyKey, time: int) -> None:
        """Count a message by the party that sent it; times are as in `Timeline`."""
        self.timeline.message(time)
        party = self.party(key)
        party.messages += 1
        party.seen = party.seen.over(Ends(time, time))

    def broke(self, key: PartyKey, outcome: VerdictOutcome) -> None:
        """Count a message that broke something: that failed an assertion, or ended with a warning."""
        self.party(key).broken[outcome] += 1

    def judged(self, key: PartyKey | None, rule: str, outcome: VerdictOutcome, times: int) -> None:
        """Count verdicts of a party; rules have the names of `rule_name`."""
        self.count("assertion", assertion_of(rule), outcome, by=times)
        if key is not None and outcome in JUDGED:
            self.party(key).rules[rule, outcome] += times

    def answered(self, place: str, asked: int, answered: int) -> None:
        """Count a response, and its latency, at the destination of its request."""
        number = self.timeline.latency(asked, answered)
        self.place(place).answered += 1
        if number is not None:
            self.place(place).latencies[number] += 1

    def party(self, key: PartyKey) -> Party:
        """Return what was seen of a party."""
        return self.place(key.place).party(key.node, key.stack)

    def place(self, name: str) -> PlaceCounts:
        """Return what was seen at a destination, or at all others if it is not among the first."""
        found = self.places.get(name)
        if found is None:
            found = self.places[name] = PlaceCounts()
            if len(self.places) > 2 * MAX_COUNTED_DESTINATIONS:
                self.settle_places()
                return self.places.get(name, self.rest)
        return found

    def settle_places(self) -> None:
        """Keep the first destinations, and add all others to the rest.

        Those that are kept were counted in full: one that is not has so many before it that it never will be.
        """
        kept = nsmallest(MAX_COUNTED_DESTINATIONS, self.places)
        for name in self.places.keys() - kept:
            self.rest.add(self.places.pop(name))

    def listed_places(self) -> ListedPlaces:
        """Choose the destinations that are listed one by one, once all parts are added."""
        self.settle_places()
        kept = nsmallest(MAX_DESTINATIONS, self.places, key=lambda name: (self.places[name].gravity, name))
        rest, merged = PlaceCounts(), [self.places[name] for name in sorted(self.places.keys() - kept)]
        for place in (self.rest, *merged):
            rest.add(place)
        parties = [party for place in merged for party in place.parties.values()]
        others = {
            "destinations": len(merged),
            "parties": len(parties),
            **{str(outcome): sum(bool(party.broken[outcome]) for party in parties) for outcome in BROKEN},
            "isAll": not self.rest.parties,
        }
        return ListedPlaces({name: self.places[name] for name in sorted(kept)}, rest, others)

    def add(self, other: RunTally) -> None:
        """Add another part's counts."""
        self.add_times(other, 1)
        self.findings.add(other.findings)
        self.timeline.add(other.timeline)
        for name, seen in other.places.items():
            self.place(name).add(seen)
        self.rest.add(other.rest)

    def add_times(self, other: RunTally, times: int) -> None:
        """Add another part's counts and notes several times; findings, times and places are left out."""
        for path, number in other.counts.items():
            self.counts[path] += number * times
        for code, text in other.notes.items():
            self.notes[code] = min(text, self.notes.get(code, text))

    def to_json(self) -> str:
        """Write the tally as JSON, which can travel in a row."""
        return json.dumps(
            {
                "counts": [[*path, number] for path, number in self.counts.items()],
                "notes": self.notes,
                "findings": self.findings.to_members(),
                "timeline": self.timeline.to_members(),
                "places": places_to_members(self.places),
                "rest": self.rest.to_members(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RunTally:
        """Read what `to_json` wrote."""
        members = json.loads(text)
        return cls(
            counts=Counter({tuple(path): number for *path, number in members["counts"]}),
            notes=members["notes"],
            findings=Findings.from_members(members["findings"]),
            timeline=Timeline.from_members(members["timeline"]),
            places=places_from_members(members["places"]),
            rest=PlaceCounts.of(members["rest"]),
        )


def note_files(tally: RunTally, logs: Iterable[LogFile], others: Iterable[str]) -> None:
    """Note the byte order marks of logs, that logs are empty, and the files in folders that were ignored."""
    for log in logs:
        if log.marked:
            tally.note(*MARKED)
    if not (tally.counts["records",] or tally.counts["rejected",]):
        tally.note("noRecords", "the logs have no records: no message was captured")
    note_others(tally, others)


def note_others(tally: RunTally, names: Iterable[str]) -> None:
    """Note what was ignored in folders: files that are not named like logs, and what replays wrote."""
    for name in names:
        text = (
            f"what is not named like a log in a folder ({', '.join(SUFFIXES)}), or was written by a replay, was not "
            f"read, such as {name}"
        )
        tally.note("otherFile", text)


class Provenance(NamedTuple):
    """Where results come from.

    Attributes:
        version: the version of soapjms that made them.
        time: when they were made.
        logs: the names of the first logs.
        logs_left: how many more there were.
    """

    version: str
    time: str
    logs: tuple[str, ...]
    logs_left: int

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Provenance:
        """Read it from its JSON form."""
        return cls(members["version"], members["time"], tuple(members["logs"]), members["logs_left"])

    @classmethod
    def now(cls, logs: Sequence[str]) -> Provenance:
        """Return the origin of results that are made now, from these logs."""
        shown = tuple(whole(each[:MAX_NAME_CHARACTERS]) for each in logs[:MAX_NAMED_LOGS])
        return cls(VERSION, format_time(datetime.now(UTC)), shown, len(logs) - len(shown))


MAX_NAMED_LOGS: Final = 10
MAX_NAME_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a run.

    Attributes:
        members: the content of summary.json; the same with any engine.
        findings: the findings by assertion, verdict and cause.
        timeline: counts by span of time.
        places: what was seen at the first destinations.
        rest: what was seen at all others.
        rejects: the first rejected rows, in order of file and line, without their text.
        origin: where the results come from; None if it is not known.
        late: for a run that followed logs, the first records that came too late to be judged, in the same order.
    """

    members: Mapping[str, Any]
    findings: Findings
    timeline: Timeline
    places: Mapping[str, PlaceCounts]
    rest: PlaceCounts
    rejects: tuple[RejectedRow, ...]
    late: tuple[LateRecord, ...] = ()
    origin: Provenance | None = field(default=None, compare=False)

    @property
    def exit_status(self) -> int:
        """0 if nothing failed, or there was nothing to judge; 1 with failed verdicts or rejected records."""
        return 1 if self.members["verdict"] == VerdictOutcome.FAILED else 0

    def to_json(self) -> str:
        """Write the content of summary.json."""
        return json.dumps(self.members, ensure_ascii=False, indent=2) + "\n"


def summarise(tally: RunTally, rejects: Iterable[RejectedRow], terms: ReplayTerms, logs: Sequence[str] = ()) -> Summary:
    """Make the summary of a whole run from the sum of its parts.

    Args:
        tally: the sum of all parts, including the number of rejected records.
        rejects: the first rejected rows.
        terms: how the run paired and judged.
        logs: the names of the logs, if they are to be named.
    """
    listed = tally.listed_places()
    counts, setting, senders = tally.counts, terms.setting, terms.senders.all
    unseen = not_observable(replace(setting, properties=senders[0].properties) if senders else setting)
    members: dict[str, Any] = {
        "producer": PRODUCER,
        "profile": setting.profile.name,
        "profileChosen": _chosen(counts, terms),
        "profileNote": RECONSTRUCTED if setting.profile.edition == REC_2012.name else None,
        "verdict": _verdict(counts),
        **{name: counts[name,] for name in ("records", "messages")},
        "copies": counts["records",] - counts["messages",],
        "lateCopies": counts["lateCopies",],
        "exchanges": counts["exchanges",],
        "unpaired": {name: counts["unpaired", name] for name in UNPAIRED},
        "one_way": counts["one_way",],
        "rejected": counts["rejected",],
        "assertions": {name: {**said, **_outcomes(counts, name)} for name, said in _assertions(setting).items()},
        "subcodes": _subcodes(counts, setting),
        "reactions": {name: counts["reaction", name] for name in REACTIONS},
        "notes": {code: {"text": tally.notes[code], "count": counts["note", code]} for code in sorted(tally.notes)},
        "time": {"first": _time(tally.timeline.first), "last": _time(tally.timeline.last)},
        "latency": _latency(tally.timeline),
        "parties": sorted(_parties(listed), key=gravity),
        "otherParties": listed.others,
        "stacks": list(_stacks(listed)),
        "senders": [_sender(each, counts["sender", str(number)]) for number, each in enumerate(senders)],
        "notObservable": dict(sorted(unseen.items())),
    }
    return Summary(
        members=members,
        findings=tally.findings.settled(),
        timeline=tally.timeline,
        places=listed.places,
        rest=listed.rest,
        rejects=tuple(each._replace(raw=None) for each in rejects),
        origin=Provenance.now(logs) if logs else None,
    )


UNPAIRED: Final = ("missingResponses", "responsesWithoutRequest")
SUBCODE_COUNTS: Final = ("expected", "observed")
NOTHING: Final = "nothingToJudge"
"""The verdict of a run over logs without messages: nothing failed, and nothing passed."""
MARKED: Final = ("byteOrderMark", "a log begins with a byte order mark, which was skipped")
"""A note: its code and text."""
REACTIONS: Final = ("agree", "disagree", "unanswered")


def _chosen(counts: Counter[tuple[str, ...]], terms: ReplayTerms) -> dict[str, Any] | None:
    """Return what chose the profile, and the number of faults in the logs by edition; None if the user chose it."""
    if terms.choice is None:
        return None
    faults = {name: counts[SHOWN, name] for name in EDITIONS}
    return {"by": str(terms.choice), "text": CHOSEN[terms.choice], "faults": faults}


CHOSEN: Final[Mapping[ProfileChoice, str]] = {
    ProfileChoice.WSDL: "the edition of the WSDL",
    ProfileChoice.FAULTS: "the edition of most faults in the logs",
    ProfileChoice.DEFAULT: "the default, as the faults in the logs favour no edition",
}


def _verdict(counts: Counter[tuple[str, ...]]) -> str:
    if not counts["messages",] and not counts["rejected",]:
        return NOTHING
    seen = {path[2] for path, number in counts.items() if path[0] == "assertion" and number}
    if VerdictOutcome.FAILED in seen or counts["rejected",]:
        return str(VerdictOutcome.FAILED)
    return str(VerdictOutcome.WARNING if VerdictOutcome.WARNING in seen else VerdictOutcome.PASSED)


def _assertions(setting: Setting) -> dict[str, dict[str, str]]:
    """List the profile's assertions; one that the profile merged from several has the title of the first."""
    listed: dict[str, dict[str, str]] = {}
    for each in ASSERTIONS:
        name = setting.profile.assertion_id(each.id)
        if name is not None:
            listed.setdefault(
                name, {"title": each.title, "section": each.section, "level": str(each.level_in(setting.profile))}
            )
    return listed


def _stacks(listed: ListedPlaces) -> Iterator[dict[str, Any]]:
    """Yield the apparent stacks for each destination and sending node; all further destinations are one, called null.

    Stacks are guessed from habits; messages without the marks of a known stack count only in the number of messages.
    """
    for name, place in _all_places(listed):
        seen = sorted((node, stack, party.messages) for (node, stack), party in place.parties.items())
        yield from _stacks_of(name, seen)


def _all_places(listed: ListedPlaces) -> Iterator[tuple[str | None, PlaceCounts]]:
    yield from listed.places.items()
    yield None, listed.rest


def _stacks_of(place: str | None, seen: list[tuple[str, str, int]]) -> Iterator[dict[str, Any]]:
    for node in sorted({node for node, _, _ in seen}):
        stacks = {stack: number for one, stack, number in seen if one == node}
        messages = sum(stacks.values())
        stacks.pop("", None)
        yield {"destination": place, "node": node, "messages": messages, "stacks": stacks}


def _parties(listed: ListedPlaces) -> Iterator[dict[str, Any]]:
    """Yield what was seen of each party; those at all further destinations have None for it."""
    for name, place in _all_places(listed):
        known = sorted((node, stack) for node, stack in place.parties if stack)
        for (node, stack), party in place.parties.items():
            rules: dict[str, dict[str, int]] = {str(outcome): {} for outcome in JUDGED}
            for (rule, outcome), number in sorted(party.rules.items()):
                rules[outcome][rule] = number
            yield {
                "destination": name,
                "node": node,
                "stack": stack or None,
                "otherStacks": [other for one, other in known if one == node and other != stack],
                "messages": party.messages,
                **_ends("first", "last", party.seen),
                "failedMessages": party.broken[VerdictOutcome.FAILED],
                "warningMessages": party.broken[VerdictOutcome.WARNING],
                **_ends("firstFailed", "lastFailed", party.times_of(VerdictOutcome.FAILED)),
                **rules,
                "times": _times(party),
                "sameMistakes": dict(sorted(party.same_mistakes.items())),
            }


def _times(party: Party) -> dict[str, dict[str, str | None]]:
    """Return when messages of a party broke each rule, whether they failed it or ended with a warning."""
    found: dict[str, Ends] = {}
    for (rule, _), ends in sorted(party.times.items()):
        found[rule] = found.get(rule, NEVER).over(ends)
    return {rule: _ends("first", "last", ends) for rule, ends in found.items()}


def _ends(first: str, last: str, ends: Ends) -> dict[str, str | None]:
    return {first: _time(ends.first), last: _time(ends.last)}


def gravity(party: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key by which parties are listed: who breaks most comes first, those without a destination last."""
    return (
        party["destination"] is None,
        *(
            -len(party[VerdictOutcome.FAILED]),
            -party["failedMessages"],
            not (party[VerdictOutcome.FAILED] or party[VerdictOutcome.WARNING]),
        ),
        *(party["node"] == RESPONDING, -len(party[VerdictOutcome.WARNING]), -party["messages"]),
        *(party["destination"] or "", party["node"], party["stack"] or ""),
    )


def _time(time: int | None) -> str | None:
    return None if time is None else format_time(EPOCH + time * MICROSECOND)


def _latency(timeline: Timeline) -> dict[str, Any]:
    """Return response times in milliseconds, within 12.5 %; null if none was measured."""
    bins = timeline.latencies()
    found = dict(zip(QUANTILES, quantiles(bins, QUANTILES.values()), strict=False))  # empty if nothing was measured
    said = {name: _milliseconds(found.get(name)) for name in QUANTILES}
    return {"measured": bins.total(), "backwards": sum(each[BACKWARDS] for each in timeline.spans.values()), **said}


def _milliseconds(taken: timedelta | None) -> float | None:
    return None if taken is None else round(taken / timedelta(milliseconds=1), 3)


QUANTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def _sender(sender: SenderProfiles, messages: int) -> dict[str, Any]:
    return {
        "address": sender.address,
        "targetService": sender.target_service,
        "source": sender.source,
        "messages": messages,
    }


def _outcomes(counts: Counter[tuple[str, ...]], assertion: str) -> dict[str, int]:
    return {str(outcome): counts["assertion", assertion, outcome] for outcome in VerdictOutcome}


def _subcodes(counts: Counter[tuple[str, ...]], setting: Setting) -> dict[str, dict[str, int]]:
    """Count expected and observed subcodes: all of the profile's, and any others that a peer used."""
    seen = {path[1] for path in counts if path[0] in SUBCODE_COUNTS}
    names = sorted(seen.union(map(str, setting.profile.subcodes)))
    return {name: {kind: counts[kind, name] for kind in SUBCODE_COUNTS} for name in names}
