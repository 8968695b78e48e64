"""Findings grouped by cause: one count and a few samples for all messages that broke one assertion for one reason.

A reason quotes texts of the message, which may differ in each message. So reasons are compared word for word as long
as they are few, and ever more roughly as they become many. The roughness depends on the reasons alone, not on their
order: the parts of a run add up to the same causes however its log was cut. What the reasons of a cause have in common
is shown of them, and dots for the values that differ.

A sample shows one finding: whose message it is, what is wrong with it, and excerpts of the exchange.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple, TypeVar

from soapjms.protocol.assertions import Setting, Verdict, guess_dialect
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import format_time
from soapjms.protocol.text import TIME_PATTERN
from soapjms.replay.differences import Difference, differences
from soapjms.replay.excerpts import KINDS, Excerpt, cut, destination_text, service_place, whole
from soapjms.replay.parties import BROKEN, NODES, PartyKey

MAX_SAMPLES: Final = 3
"""Number of findings of each cause that are kept as samples: the earliest ones."""
MAX_CAUSES: Final = 25
"""Maximum number of causes of an assertion with one verdict before reasons are compared more roughly."""
MAX_REASON_CHARACTERS: Final = 600
MAX_DESTINATIONS: Final = 200
"""Maximum number of destinations that are listed one by one: those where most is broken."""
MAX_COUNTED_DESTINATIONS: Final = 500
"""Maximum number of destinations that are counted one by one: the first in alphabetical order."""
MAX_PARTIES: Final = 20 * MAX_DESTINATIONS
"""More than all nodes with all known stacks at as many destinations."""
MAX_SUBCODE_PAIRS: Final = 20
"""Maximum number of pairs of expected and observed subcodes listed for a cause: the first in alphabetical order."""


class Sample(NamedTuple):
    """One finding that the report shows. The order of its members makes the earliest sample the smallest.

    Attributes:
        time: when the message was captured.
        exchange_id: the id of the exchange.
        message_id: the id of the message; empty if it has none.
        destination: the destination of the message, as `queue:orders`.
        reason: the reason of the verdict.
        expected_subcodes: the faults that would be right as the answer.
        observed_subcode: the subcode of the answer.
        place, direction, stack: whose message it is; its direction is one of `excerpts.KINDS`.
        differences: what is wrong with it, place by place.
        messages: the messages of the exchange; none in a sample of what was not broken.
    """

    time: str
    exchange_id: str
    message_id: str
    destination: str
    reason: str
    expected_subcodes: str
    observed_subcode: str
    place: str = ""
    direction: str = ""
    stack: str = ""
    differences: tuple[Difference, ...] = ()
    messages: tuple[Excerpt, ...] = ()

    @classmethod
    def of(cls, members: list[Any]) -> Sample:
        """Read a sample from its JSON form."""
        found = cls(*members)
        return found._replace(
            differences=tuple(Difference.of([*each]) for each in found.differences),
            messages=tuple(Excerpt(*each) for each in found.messages),
        )


class FindingKey(NamedTuple):
    """The key that a finding is counted by: reason, party that sent the message, subcodes, and `mistake_of` it."""

    reason: str
    party: PartyKey
    expected: str
    observed: str
    mistake: str = ""


@dataclass(slots=True)
class Cause:
    """Findings that broke one assertion for one reason.

    Attributes:
        reason: what the reasons have in common.
        count: the number of findings.
        samples: the earliest findings.
        where: the number of findings by party.
        answers: the number of findings by pair of expected and observed subcodes.
        mistakes: the number of findings by the rule that was broken by the same mistake, as far as one was.
    """

    reason: str
    count: int = 0
    samples: list[Sample] = field(default_factory=list)
    where: Counter[PartyKey] = field(default_factory=Counter)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)

    @property
    def mistake(self) -> str:
        """The rule that all findings broke by the same mistake; empty if there is no such rule."""
        return next((rule for rule, number in self.mistakes.items() if number == self.count), "")

    def take(self, found: FindingKey, time: str, exchange_id: str, sample: Callable[[], Sample]) -> None:
        """Count one finding; its sample is made only if it may be among the earliest."""
        self.count += 1
        self.where[found.party] += 1
        if found.expected or found.observed:
            self.answers[found.expected, found.observed] += 1
        if found.mistake:
            self.mistakes[found.mistake] += 1
        if len(self.samples) < MAX_SAMPLES or (time, exchange_id) <= self.samples[-1][:2]:
            self.samples = nsmallest(MAX_SAMPLES, [*self.samples, sample()])
        self._keep_first()

    def add(self, other: Cause) -> None:
        """Add the findings of another part of the run."""
        self.count += other.count
        self.samples = nsmallest(MAX_SAMPLES, [*self.samples, *other.samples])
        self.where.update(other.where)
        self.answers.update(other.answers)
        self.mistakes.update(other.mistakes)
        self._keep_first()

    def settle(self) -> None:
        """Drop entries beyond the limits on lists; the rest is the same however the run was cut."""
        self.where = keep_first(self.where, MAX_PARTIES)
        self.answers = keep_first(self.answers, MAX_SUBCODE_PAIRS)

    def _keep_first(self) -> None:
        if len(self.where) > 2 * MAX_PARTIES or len(self.answers) > 2 * MAX_SUBCODE_PAIRS:
            self.settle()

    def to_members(self) -> list[Any]:
        """Return the JSON form."""
        mistakes = dict(sorted(self.mistakes.items()))
        return [self.reason, self.count, self.samples, _items(self.where), _items(self.answers), mistakes]

    @classmethod
    def of(cls, members: list[Any]) -> Cause:
        """Read a cause from its JSON form."""
        reason, count, samples, where, answers, *mistakes = members
        return cls(
            reason,
            count,
            [Sample.of(each) for each in samples],
            Counter({PartyKey(*party): number for *party, number in where}),
            Counter({(expected, observed): number for expected, observed, number in answers}),
            Counter(*mistakes),
        )


KeyT = TypeVar("KeyT", bound=tuple[str, ...])


def keep_first(counted: Counter[KeyT], limit: int) -> Counter[KeyT]:
    """Keep the first keys, in alphabetical order, with their counts.

    A key that is dropped once has so many before it that it never returns: every key that is kept was counted in full.
    """
    return Counter({key: counted[key] for key in nsmallest(limit, counted)})


def _items(counted: Counter[KeyT]) -> list[list[Any]]:
    return [[*key, number] for key, number in sorted(counted.items())]


def _as_it_is(reason: str) -> str:
    return reason[:MAX_REASON_CHARACTERS]


def _without_values(reason: str) -> str:
    return VALUE.sub("…", reason[:MAX_REASON_CHARACTERS])


def _up_to_the_first_value(reason: str) -> str:
    return _without_values(reason).partition("…")[0].rstrip() + " …"


def _any(reason: str) -> str:
    return "…"


VALUE: Final = re.compile(
    rf"""(…|(?<![\w…'"])'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|{TIME_PATTERN.pattern}|\w*\d\w*(?:[.:-]\w+)*)"""
)
"""Parts of a reason that probably come from the message: quoted texts, times, words with a digit; and dots.

It finds the same parts, whichever of them are replaced by dots.
"""
LEVELS: Final = (_as_it_is, _without_values, _up_to_the_first_value, _any)
"""Ways to compare reasons, the exact one first."""
LEVELS_WITH_VALUES: Final = 2
"""Number of the ways, from the first one on, by which reasons of one cause have the same number of values."""


def in_common(one: str, other: str) -> str:
    """Return what two reasons have in common that are the same without their values: dots for values that differ."""
    if one == other:
        return one
    pairs = zip(VALUE.split(one), VALUE.split(other), strict=True)
    return "".join([ours if ours == theirs else "…" for ours, theirs in pairs])


@dataclass(slots=True)
class Causes:
    """The causes of one assertion with one verdict, told apart at one of `LEVELS`.

    Attributes:
        level: the index of the way to compare reasons.
        all: the causes, by what that way makes of their reasons.
    """

    level: int = 0
    all: dict[str, Cause] = field(default_factory=dict)

    def take(self, found: FindingKey, time: str, exchange_id: str, sample: Callable[[], Sample]) -> None:
        """Count one finding."""
        self._cause(found.reason).take(found, time, exchange_id, sample)
        self._settle()

    def add(self, other: Causes) -> None:
        """Add the findings of another part of the run."""
        self._compare_at(max(self.level, other.level))
        for cause in other.all.values():
            self._cause(cause.reason).add(cause)
        self._settle()

    def _cause(self, reason: str) -> Cause:
        """Return the cause for a reason, or for what the reasons of another cause have in common."""
        key = LEVELS[self.level](reason)
        told = _as_it_is(reason) if self.level < LEVELS_WITH_VALUES else key
        cause = self.all.get(key)
        if cause is None:
            cause = self.all[key] = Cause(told)
        else:
            cause.reason = in_common(cause.reason, told)
        return cause

    def _settle(self) -> None:
        while len(self.all) > MAX_CAUSES:
            self._compare_at(self.level + 1)

    def _compare_at(self, level: int) -> None:
        if level == self.level:
            return
        self.level, before, self.all = level, self.all, {}
        for cause in before.values():
            self._cause(cause.reason).add(cause)


@dataclass(slots=True)
class Findings:
    """All findings of a run, or of a part of it, by assertion and verdict."""

    groups: dict[tuple[str, str], Causes] = field(default_factory=dict)

    def take(
        self, assertion: str, verdict: str, found: FindingKey, time: str, exchange_id: str, sample: Callable[[], Sample]
    ) -> None:
        """Count one finding; see `Cause.take`."""
        self._group(assertion, verdict).take(found, time, exchange_id, sample)

    def add(self, other: Findings) -> None:
        """Add another part's findings."""
        for (assertion, verdict), causes in other.groups.items():
            self._group(assertion, verdict).add(causes)

    def of(self, assertion: str, verdict: str) -> list[tuple[str, Cause]]:
        """List the causes of an assertion's findings with one verdict, most frequent first."""
        causes = self.groups.get((assertion, verdict), Causes()).all.values()
        return sorted(((each.reason, each) for each in causes), key=lambda each: (-each[1].count, each[0]))

    def settled(self) -> Findings:
        """Drop entries beyond the limits on lists, at the end of a run; return these findings."""
        for causes in self.groups.values():
            for cause in causes.all.values():
                cause.settle()
        return self

    def to_members(self) -> list[Any]:
        """Return the JSON form."""
        return [
            [*place, causes.level, [cause.to_members() for _, cause in sorted(causes.all.items())]]
            for place, causes in sorted(self.groups.items())
        ]

    @classmethod
    def from_members(cls, members: Iterable[list[Any]]) -> Findings:
        """Read findings from their JSON form."""
        groups: Mapping[tuple[str, str], Causes] = {
            (assertion, verdict): Causes(level, {LEVELS[level](cause[0]): Cause.of(cause) for cause in causes})
            for assertion, verdict, level, causes in members
        }
        return cls(dict(groups))

    def _group(self, assertion: str, verdict: str) -> Causes:
        found = self.groups.get((assertion, verdict))
        if found is None:
            found = self.groups[assertion, verdict] = Causes()
        return found


class Scene(NamedTuple):
    """An exchange as the report shows it.

    Attributes:
        exchange: the exchange.
        place: the destination of the service; without its name if it is temporary, empty if it is unknown.
        parties: whose message each is.
    """

    exchange: Exchange
    place: str
    parties: Mapping[Carrier, PartyKey]

    @classmethod
    def of(cls, exchange: Exchange, messages: Mapping[Carrier, Reading]) -> Scene:
        """Make the scene of an exchange that has messages."""
        place = service_place(next(iter(messages.values())).message.destination)
        return cls(
            exchange,
            place,
            {carrier: PartyKey(place, NODES[carrier], guess_dialect(each) or "") for carrier, each in messages.items()},
        )

    def found(self, verdict: Verdict, mistake: str) -> FindingKey:
        """Return the key that a verdict is counted by; see `mistake_of`."""
        return FindingKey(
            reason=whole(verdict.reason or ""),
            party=self.parties[self.carrier(verdict)],
            expected=", ".join(verdict.expected_subcodes),
            observed=cut(verdict.observed_subcode or ""),
            mistake=mistake,
        )

    def sample(self, verdict: Verdict, setting: Setting) -> Sample:
        """Make the sample of a verdict by a setting; it has messages only if the verdict is failed or warning."""
        carrier, record = self.carrier(verdict), verdict.record
        broken = verdict.outcome in BROKEN
        return Sample(
            time=format_time(record.time),
            exchange_id=cut(self.exchange.id),
            message_id=cut(record.message.message_id or ""),
            destination=cut(destination_text(record.message.destination) or ""),
            reason=whole(verdict.reason or "")[:MAX_REASON_CHARACTERS],
            expected_subcodes=", ".join(verdict.expected_subcodes),
            observed_subcode=cut(verdict.observed_subcode or ""),
            stack=self.parties[carrier].stack,
            direction=KINDS[carrier],
            differences=tuple(differences(verdict, self.exchange, setting)) if broken else (),
            messages=tuple(self._excerpts()) if broken else (),
            place=self.place,
        )

    def _excerpts(self) -> Iterator[Excerpt]:
        for carrier, party in self.parties.items():
            record = self.exchange.response if carrier is Carrier.RESPONSE else self.exchange.request
            assert record is not None
            yield Excerpt.of(record, KINDS[carrier], party.stack)

    def carrier(self, verdict: Verdict) -> Carrier:
        """Return which message a verdict is on; of a pair, the response."""
        if verdict.record is self.exchange.response:
            return Carrier.RESPONSE
        return Carrier.ONE_WAY if Carrier.ONE_WAY in self.parties else Carrier.REQUEST
