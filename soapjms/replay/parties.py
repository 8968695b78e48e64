"""The parties to the captured traffic: who sends at a destination, with which stack, and which rules they keep.

A party is a node, in the role that it has in an exchange, at the destination of a service, with the stack that it seems
to use. Nothing tells two clients of one service and one stack apart, so they are one party. Parts of a run add up in
any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.properties import Carrier

NODES: Final[Mapping[Carrier, str]] = {
    Carrier.REQUEST: "requesting",
    Carrier.ONE_WAY: "sending",
    Carrier.RESPONSE: "responding",
}
"""The nodes that send the messages of an exchange."""
RESPONDING: Final = NODES[Carrier.RESPONSE]
JUDGED: Final = (VerdictOutcome.PASSED, VerdictOutcome.FAILED, VerdictOutcome.WARNING)
"""The outcomes that say whether a party keeps a rule."""
BROKEN: Final = (VerdictOutcome.FAILED, VerdictOutcome.WARNING)


class PartyKey(NamedTuple):
    """What tells parties apart: destination of the service, node, and apparent stack, which is empty if unknown."""

    place: str
    node: str
    stack: str

    @classmethod
    def of(cls, party: Mapping[str, Any]) -> PartyKey:
        """Return the key of a party of summary.json."""
        return cls(party["destination"] or "", party["node"], party["stack"] or "")


class Ends(NamedTuple):
    """The first and the last time of something, in microseconds since 1970; None if there was none."""

    first: int | None = None
    last: int | None = None

    @classmethod
    def at(cls, *times: int | None) -> Ends:
        """Return the ends of some times."""
        known = [each for each in times if each is not None]
        return cls(min(known), max(known)) if known else cls()

    def over(self, other: Ends) -> Ends:
        """Return the ends of both."""
        return self if other.first is None else other if self.first is None else Ends.at(*self, *other)


NEVER: Final = Ends()


@dataclass(slots=True)
class Party:
    """What was seen of a party.

    Attributes:
        messages: the number of its messages.
        seen: when they were captured.
        broken: the number of its messages that failed an assertion, and of those that ended with a warning.
        times: when those were captured that broke a rule, by rule and outcome.
        rules: the number of verdicts by rule and outcome, of the outcomes in `JUDGED`. Rules have the names of
            `rule_name`: the service's duty to answer a breach is apart from the rule that was broken.
        same_mistakes: the number of its messages that broke a rule by the same mistake as another, by rule.
    """

    messages: int = 0
    seen: Ends = NEVER
    broken: Counter[str] = field(default_factory=Counter)
    times: dict[tuple[str, str], Ends] = field(default_factory=dict)
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    same_mistakes: Counter[str] = field(default_factory=Counter)

    def broke(self, rule: str, outcome: str, ends: Ends, *, is_other_mistake: bool = True) -> None:
        """Note when messages were captured that broke a rule."""
        self.times[rule, outcome] = self.times.get((rule, outcome), NEVER).over(ends)
        if not is_other_mistake:
            self.same_mistakes[rule] += 1

    def times_of(self, *outcomes: str) -> Ends:
        """Return when messages broke any rule with one of the outcomes."""
        ends = [each for (_, outcome), both in self.times.items() if outcome in outcomes for each in both]
        return Ends.at(*ends)

    def add(self, other: Party) -> None:
        """Add what another part of the run saw."""
        self.broken.update(other.broken)
        for (rule, outcome), ends in other.times.items():
            self.broke(rule, outcome, ends)
        self.same_mistakes.update(other.same_mistakes)
        self.add_sound(other, 1, other.seen)

    def add_sound(self, other: Party, times: int, seen: Ends) -> None:
        """Add messages that broke nothing, each with the verdicts of another party's.

        Args:
            other: the party that was judged.
            times: how often.
            seen: when all the messages were captured.
        """
        self.messages += other.messages * times
        self.seen = self.seen.over(seen)
        for rule, number in other.rules.items():
            self.rules[rule] += number * times

    def to_members(self) -> list[Any]:
        """Return the JSON form."""
        rules: dict[str, list[int]] = {}
        for (assertion, outcome), number in sorted(self.rules.items()):
            rules.setdefault(assertion, [0] * len(JUDGED))[JUDGED.index(VerdictOutcome(outcome))] = number
        times = [[*key, *ends] for key, ends in sorted(self.times.items())]
        mistakes = dict(sorted(self.same_mistakes.items()))
        return [self.messages, self.seen, dict(sorted(self.broken.items())), times, rules, mistakes]

    @classmethod
    def of(cls, members: list[Any]) -> Party:
        """Read a party from its JSON form."""
        messages, seen, broken, times, counted, *mistakes = members
        rules = {
            (assertion, str(outcome)): number
            for assertion, numbers in counted.items()
            for outcome, number in zip(JUDGED, numbers, strict=True)
            if number
        }
        if times and not isinstance(times[0], list):
            times = []  # of an earlier version, which did not tell rules apart
        broke = {(rule, outcome): Ends(*ends) for rule, outcome, *ends in times}
        return cls(messages, Ends(*seen), Counter(broken), broke, Counter(rules), Counter(*mistakes))


@dataclass(slots=True)
class PlaceCounts:
    """What was seen at the destination of a service.

    Attributes:
        parties: the parties by node and apparent stack.
        answered: the number of requests with a response.
        latencies: the number of responses by latency bin.
    """

    parties: dict[tuple[str, str], Party] = field(default_factory=dict)
    answered: int = 0
    latencies: Counter[int] = field(default_factory=Counter)

    @property
    def gravity(self) -> tuple[int, int, int, int]:
        """The key by which destinations are chosen: where most is broken comes first."""
        parties = self.parties.values()
        rules = max((sum(outcome == VerdictOutcome.FAILED for _, outcome in each.times) for each in parties), default=0)
        failed, warned = (sum(each.broken[outcome] for each in parties) for outcome in BROKEN)
        return -rules, -failed, -warned, -sum(each.messages for each in parties)

    def party(self, node: str, stack: str) -> Party:
        """Return a party, which need not have been seen before."""
        found = self.parties.get((node, stack))
        if found is None:
            found = self.parties[node, stack] = Party()
        return found

    def add(self, other: PlaceCounts) -> None:
        """Add what another part of the run saw."""
        for (node, stack), party in other.parties.items():
            self.party(node, stack).add(party)
        self.answered += other.answered
        self.latencies.update(other.latencies)

    def to_members(self) -> list[Any]:
        """Return the JSON form."""
        parties = [[*key, *party.to_members()] for key, party in sorted(self.parties.items())]
        return [parties, self.answered, sorted(self.latencies.items())]

    @classmethod
    def of(cls, members: list[Any]) -> PlaceCounts:
        """Read a place from its JSON form."""
        parties, answered, latencies = members
        return cls(
            {(node, stack): Party.of(rest) for node, stack, *rest in parties},
            answered,
            Counter({int(number): times for number, times in latencies}),
        )


def places_to_members(places: Mapping[str, PlaceCounts]) -> list[Any]:
    """Return the JSON form of places by destination."""
    return [[name, *place.to_members()] for name, place in sorted(places.items())]


def places_from_members(members: Iterable[list[Any]]) -> dict[str, PlaceCounts]:
    """Read places by destination from their JSON form."""
    return {name: PlaceCounts.of(rest) for name, *rest in members}
