"""The tables of the report: assertions with their results, causes, destinations, peer stacks. All are bounded.

For an assertion that was not judged, the report says why. Each assertion has its address in the specification, which
the report links to and never loads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.assertions.judge import NOT_CAPTURED, RESTS_ON, UNJUDGED
from soapjms.protocol.assertions.model import assertion_of, rule_name
from soapjms.protocol.names import CR_2009, REC_2012, profile
from soapjms.protocol.properties import Carrier
from soapjms.replay.findings import Cause, Sample
from soapjms.replay.parties import BROKEN, JUDGED, NODES, PartyKey, PlaceCounts
from soapjms.replay.report.comparison import Course, PartyChange, RuleChange
from soapjms.replay.report.milestones import has_ceased
from soapjms.replay.report.remedies import STACKS, Remedy, RuleText, rule_texts, rules
from soapjms.replay.report.sentences import (
    COURSES,
    before,
    capital,
    deeds,
    messages_of,
    other_parties,
    own_breaches,
    party_name,
    party_sentence,
    rules_kept,
    stack_of,
    who,
    who_of,
)
from soapjms.replay.report.texts import visible
from soapjms.replay.summary import Summary, quantiles

PAGES: Final[Mapping[str, str]] = {
    CR_2009.name: "https://www.w3.org/TR/2009/CR-soapjms-20090604/",
    REC_2012.name: "https://www.w3.org/TR/2012/REC-soapjms-20120216/",
}
HEADINGS: Final[Mapping[str, str]] = {
    "1.6": "Conformance",
    "2.2": "Properties Affecting Binding",
    "2.2.1": "Connection to a destination",
    "2.2.2": "JMS Message Header properties",
    "2.2.3": "JMS Message properties",
    "2.2.4": "Binding of Properties to URI",
    "2.4": "The JMS Message Body",
    "2.4.1": "Considerations For Using TextMessage",
    "2.5": "Supported Message Exchange Patterns",
    "2.6.1.1": "Init",
    "2.6.1.2": "Requesting",
    "2.6.2.3": "Receiving + Sending",
    "2.7.1": "Behaviour of Sending SOAP Node",
    "2.8": "Faults",
    "3.3": "WSDL 2.0 Extensions Overview",
    "3.4.2": "WSDL 1.1 Transport Identification",
    "3.4.3": "WSDL 1.1 SOAP Action",
}
LOCAL: Final = "Local-"
"""Prefix of the ids of requirements without an id in the specification."""


def specification(edition: str, assertion: str, section: str) -> str:
    """Return the address of an assertion in an edition, with a text fragment that a browser searches in the page.

    The anchors of the two editions differ, but the words do not. A browser that does not support text fragments, or
    does not find the words, shows the page from its top.
    """
    number = section.removeprefix("REC ")
    words = assertion if not assertion.startswith(LOCAL) else f"{number} {HEADINGS.get(number, '')}".rstrip()
    return f"{PAGES[edition]}#:~:text={quote(words, safe='').replace('-', '%2D')}"


NEVER: Final = "not judged"
UNSEEN: Final = "not observable"
STATES: Final = (str(VerdictOutcome.FAILED), str(VerdictOutcome.WARNING), str(VerdictOutcome.PASSED), NEVER, UNSEEN)


class Row(NamedTuple):
    """One assertion as the report lists it."""

    id: str
    title: str
    section: str
    level: str
    state: str
    counts: Mapping[str, int]
    link: str
    not_observable: str | None

    @property
    def judged(self) -> int:
        """How often it passed, failed, or ended with a warning."""
        return sum(self.counts[each] for each in JUDGED)

    @property
    def why_not(self) -> str:
        """Why it was never judged to a result."""
        if self.not_observable is not None:
            return self.not_observable
        return next((reason for outcome, reason in NOT_JUDGED.items() if self.counts[outcome]), NOBODY)


NOT_JUDGED: Final[Mapping[str, str]] = {
    VerdictOutcome.MISSING_INPUT: "the records lack what the check needs",
    VerdictOutcome.PREREQ_FAILED: "a check that it depends on failed",
    VerdictOutcome.NOT_APPLICABLE: "it does not apply to the messages of this log",
}
NOBODY: Final = "no message of this log is subject to it"


def rows(summary: Summary) -> list[Row]:
    """List all assertions: failed ones first, then those with warnings, passed ones, and those never exercised."""
    unseen = summary.members["notObservable"]
    edition = profile(summary.members["profile"]).edition
    listed = [_row(name, each, edition, unseen) for name, each in summary.members["assertions"].items()]
    return sorted(listed, key=lambda row: (STATES.index(row.state), row.id))


def _row(name: str, said: Mapping[str, Any], edition: str, unseen: Mapping[str, str]) -> Row:
    return Row(
        id=name,
        title=said["title"],
        section=said["section"],
        level=said["level"],
        state=_state(said, name in unseen),
        counts={str(outcome): said[outcome] for outcome in VerdictOutcome},
        link=specification(edition, name, said["section"]),
        not_observable=unseen.get(name),
    )


def row_of(rule: str, known: Mapping[str, Row], profile_name: str) -> Row:
    """Return the row of the assertion of a rule, with the title of the rule.

    Args:
        rule: its name, see `rule_name`.
        known: the rows by id.
        profile_name: the profile of the run.
    """
    row = known[assertion_of(rule)]
    return row if rule == row.id else row._replace(title=rules(profile_name)[rule].title)


def _state(counts: Mapping[str, Any], unseen: bool) -> str:
    for outcome in (VerdictOutcome.FAILED, VerdictOutcome.WARNING, VerdictOutcome.PASSED):
        if counts[outcome]:
            return str(outcome)
    return UNSEEN if unseen else NEVER


MAX_SHOWN_CAUSES: Final = 500
"""Maximum number of causes that the report lists: the gravest, and among these the most frequent."""
GRAVITY: Final = (VerdictOutcome.FAILED, VerdictOutcome.WARNING, VerdictOutcome.MISSING_INPUT)
"""The verdicts whose causes are listed. What rests on a broken assertion is folded into the causes of that."""
UNKNOWN_STACK: Final = "no known marks"
REST: Final = "all others"
NAMELESS: Final = "unknown"


class CauseLine(NamedTuple):
    """One line of the list of causes."""

    row: Row
    rule: str
    verdict: str
    reason: str
    cause: Cause
    folded: Mapping[str, int]
    """The rules that could not be judged as they rest on this one, or lack the same, with the number of messages."""
    others: AbstractSet[PartyKey] = frozenset()
    """See `other_parties`."""
    same: Mapping[str, int] = MappingProxyType({})
    """The rules that messages broke by the same mistake, with the number of messages."""

    @property
    def samples(self) -> list[Sample]:
        """The first findings."""
        return self.cause.samples

    @property
    def parties(self) -> list[tuple[str, str]]:
        """The parties, in words: who, and with which stack; those with most findings first."""
        ranked = sorted(self.cause.where.items(), key=lambda each: (-each[1], each[0]))
        return [(who(party.node, party.place, is_other=party in self.others), party.stack) for party, _ in ranked]

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The expected and the observed fault, in words, and how often the pair occurred."""
        ranked = sorted(self.cause.answers.items(), key=lambda each: (-each[1], each[0]))
        return [(_answer(*pair), f": {count:,}") for pair, count in ranked]


def _answer(expected: str, observed: str) -> str:
    """Say what answered a finding; the faults that are expected are separated by commas."""
    if observed and observed in expected.split(", "):
        return f"answered with {observed}, as it should be"
    return f"expected {expected or 'no fault'}, observed {observed or 'none'}"


class CauseLines(NamedTuple):
    """The list of causes, and the numbers of causes and findings beyond it."""

    shown: list[CauseLine]
    causes_left: int
    findings_left: int

    @property
    def numbers(self) -> Counter[str]:
        """The number of causes shown, by verdict."""
        return Counter(line.verdict for line in self.shown)


def lines(summary: Summary, listed: Iterable[Row]) -> CauseLines:
    """List the causes of findings."""
    others = other_parties(summary.members)
    folded, known, edition = _folded(summary), {row.id: row for row in listed}, summary.members["profile"]
    found = [
        CauseLine(row_of(rule, known, edition), rule, outcome, cause.reason, cause, folded.get(rule, {}), others)
        for (rule, outcome), causes in summary.findings.groups.items()
        if outcome in BROKEN
        for cause in causes.all.values()
        if not cause.mistake
    ]
    same = _same_mistakes(summary)
    found = [line._replace(same=same.get(line.rule, {})) for line in found]
    found += _without_input(summary, known, others)
    found.sort(
        key=lambda line: (GRAVITY.index(VerdictOutcome(line.verdict)), -line.cause.count, line.row.id, line.reason)
    )
    rest = found[MAX_SHOWN_CAUSES:]
    return CauseLines(found[:MAX_SHOWN_CAUSES], len(rest), sum(line.cause.count for line in rest))


def _same_mistakes(summary: Summary) -> dict[str, Counter[str]]:
    """Return, for each rule, the rules that messages broke by the same mistake, as far as they have no lines."""
    found: dict[str, Counter[str]] = {}
    for (rule, outcome), causes in sorted(summary.findings.groups.items()):
        for cause in causes.all.values():
            if outcome in BROKEN and cause.mistake:
                found.setdefault(cause.mistake, Counter())[rule] += cause.count
    return found


def _without_input(summary: Summary, known: Mapping[str, Row], others: AbstractSet[PartyKey]) -> Iterator[CauseLine]:
    """Yield a line for each input that was missing: one for all rules that could not be judged without it."""
    missing: dict[str, list[tuple[str, Cause]]] = {}
    for (rule, outcome), causes in sorted(summary.findings.groups.items()):
        if outcome == VerdictOutcome.MISSING_INPUT:
            for cause in causes.all.values():
                missing.setdefault(_input_of(cause.reason, summary), []).append((rule, cause))
    for reason, found in missing.items():
        rule, cause = max(found, key=lambda each: (each[1].count, each[1].reason == reason))
        row = row_of(rule, known, summary.members["profile"])
        folded = {other: each.count for other, each in found if other != rule}
        if folded:
            row = row._replace(title=f"{len(folded) + 1} rules could not be judged")
        yield CauseLine(row, rule, VerdictOutcome.MISSING_INPUT, reason, _laid_to_sender(cause), folded, others)


def _input_of(reason: str, summary: Summary) -> str:
    """Return the reason why an input was missing; of what rests on a rule that was not judged, the reason for that."""
    seen = set()
    while reason.startswith(RESTS_ON) and reason not in seen:
        seen.add(reason)
        above = reason.removeprefix(RESTS_ON).removesuffix(UNJUDGED)
        causes = summary.findings.of(above, VerdictOutcome.MISSING_INPUT)
        reason = causes[0][0] if causes else reason
    return reason


NODE_NOT_CAPTURED: Final[Mapping[str, str]] = {
    NOT_CAPTURED.format("response"): NODES[Carrier.RESPONSE],
    NOT_CAPTURED.format("request"): NODES[Carrier.REQUEST],
}
"""Whose message is missing, by the reason."""


def _laid_to_sender(cause: Cause) -> Cause:
    """Return a cause as one of those whose message is missing, rather than of those whose message was left alone."""
    node = NODE_NOT_CAPTURED.get(cause.reason)
    if node is None:
        return cause
    where: Counter[PartyKey] = Counter()
    for party, number in cause.where.items():
        where[PartyKey(party.place, node, "")] += number
    return replace(cause, where=where)


def _folded(summary: Summary) -> dict[str, Counter[str]]:
    """Return, for each broken assertion, what rests on it, whether directly or on others in between."""
    resting: dict[str, Counter[str]] = {}
    for (assertion, outcome), causes in summary.findings.groups.items():
        if outcome == VerdictOutcome.PREREQ_FAILED:
            for cause in causes.all.values():
                resting.setdefault(cause.reason.removeprefix(RESTS_ON), Counter())[assertion] += cause.count
    broken = {assertion for assertion, outcome in summary.findings.groups if outcome in BROKEN}
    return {
        assertion: Counter({name: resting[above][name] for above, name in _below(assertion, resting, broken)})
        for assertion in broken & resting.keys()
    }


def _below(assertion: str, resting: Mapping[str, Counter[str]], broken: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yield what rests on an assertion, each with what it directly rests on."""
    waiting, seen = [assertion], {assertion}
    while waiting:
        above = waiting.pop()
        for name in sorted(resting.get(above, ())):
            if name not in seen:
                seen.add(name)
                yield above, name
                if name not in broken:
                    waiting.append(name)


class RemedyRow(NamedTuple):
    """What to change about one broken assertion."""

    row: Row
    text: RuleText
    reaction: RuleText | None
    """What the service should have done, if it broke the rule on the answer to a breach, which has the same id."""
    seen: list[tuple[str, Remedy]]
    """The stacks that seem to have broken it, by name, for which a setting is known."""
    others: list[tuple[str, Remedy]]
    """Likewise the other known stacks."""


def remedy_rows(summary: Summary, listed: Iterable[Row]) -> list[RemedyRow]:
    """List what to change, for each assertion that failed or ended with warnings: what most messages broke first."""
    texts, found = rule_texts(summary.members["profile"]), []
    broken_rows = [row for row in listed if row.state in BROKEN]
    for row in sorted(broken_rows, key=lambda row: (STATES.index(row.state), -row.counts[row.state], row.id)):
        answer = rule_name(row.id, is_answer=True)
        causes = {
            rule: [each for outcome in BROKEN for each in summary.findings.of(rule, outcome)]
            for rule in (row.id, answer)
        }
        if all(cause.mistake for each in causes.values() for _, cause in each):
            continue  # what it is the same mistake as has the remedy
        broken = {party.stack for each in causes.values() for _, cause in each for party in cause.where}
        remedies = texts[row.id].by_stack.items()
        found.append(
            RemedyRow(
                row,
                texts[row.id],
                texts[answer] if causes[answer] else None,
                [(STACKS[stack], remedy) for stack, remedy in remedies if stack in broken],
                [(STACKS[stack], remedy) for stack, remedy in remedies if stack not in broken],
            )
        )
    return found


MAX_CARDS: Final = 8
"""Maximum number of parties that the page opens with; the others are listed in one line each."""
MAX_LISTED_PARTIES: Final = 300
MAX_WORST_ROWS: Final = 3


class BrokenRule(NamedTuple):
    """One rule that a party breaks, as the page opens with it."""

    row: Row
    number: int
    """Number of its messages that broke it."""
    text: RuleText
    remedy: Remedy
    first: str | None
    last: str | None
    """When messages broke it first, and last; None if it is not known."""
    has_ceased: bool
    """Whether the party went on without breaking it at the end."""


class Card(NamedTuple):
    """One party as the page opens with it."""

    party: Mapping[str, Any]
    who: str
    stack: str | None
    deeds: str
    sent: str
    state: str
    past: str | None
    """What it did in an earlier run; None if there is nothing to compare with."""
    turned: list[tuple[str, list[str], bool]]
    """The assertions that it broke otherwise then, by how that changed, and whether they are to be named."""
    first: str | None
    last: str | None
    """When its messages broke any rule first, and last."""
    worst: list[BrokenRule]
    """The rules that most of its messages broke."""
    left: int
    """How many more it breaks."""
    has_ceased: bool
    """Whether it went on without breaking any rule at the end."""

    @property
    def kept(self) -> int:
        """How many rules it keeps."""
        return rules_kept(self.party)

    @property
    def numbers(self) -> list[tuple[str, int]]:
        """How many of its messages broke a MUST, missed a SHOULD only, and did neither."""
        party = self.party
        failed = party[f"{VerdictOutcome.FAILED}Messages"]
        warned = min(party[f"{VerdictOutcome.WARNING}Messages"], party["messages"] - failed)
        rest = party["messages"] - failed - warned
        return [
            (str(VerdictOutcome.FAILED), failed),
            (str(VerdictOutcome.WARNING), warned),
            (str(VerdictOutcome.PASSED), rest),
        ]

    @property
    def findings(self) -> str:
        """The address of its findings in the page: a search."""
        party = self.party
        place = REST if party["destination"] is None else visible(party["destination"] or NAMELESS)
        terms = (("q", place), ("n", party["node"]), ("p", party["stack"] or UNKNOWN_STACK))
        return f"#?q={quote_plus(' '.join(search_term(*each) for each in terms), safe=':')}"


MAX_SEARCHED_CHARACTERS: Final = 200


def search_term(field: str, text: str) -> str:
    """Write a term of the page's search language; what it cannot hold, a quote and what follows, is left out."""
    words = text[:MAX_SEARCHED_CHARACTERS].partition('"')[0]
    return f"{field}:{words}" if re.fullmatch(r"[\w:./-]+", words) else f'{field}:"{words}"'


class Cards(NamedTuple):
    """The parties that the page opens with, and a sentence for each of the others."""

    shown: list[Card]
    others: list[str]
    left: int

    @property
    def breaking(self) -> list[Card]:
        """Those shown that break rules."""
        return [card for card in self.shown if card.state in BROKEN]


def cards(summary: Summary, listed: Iterable[Row], changes: Iterable[PartyChange] = ()) -> Cards:
    """List the parties, those that break most first, with what an earlier run says of them."""
    past = {id(each.now): each for each in changes if each.now is not None}
    parties, known = summary.members["parties"], {row.id: row for row in listed}
    others = [capital(party_sentence(each, summary.members)) for each in parties[MAX_CARDS:]]
    return Cards(
        [_card(each, summary, known, past.get(id(each))) for each in parties[:MAX_CARDS]],
        others[:MAX_LISTED_PARTIES],
        max(0, len(others) - MAX_LISTED_PARTIES),
    )


def _card(
    party: Mapping[str, Any],
    summary: Summary,
    known: Mapping[str, Row],
    change: PartyChange | None,
) -> Card:
    # An earlier version counted all rules of a party together.
    times = party.get("times") or {"": {"first": party["firstFailed"], "last": party["lastFailed"]}}
    state = next((each for each in BROKEN if party[each]), VerdictOutcome.PASSED)
    ranked = [
        each
        for outcome in BROKEN
        for each in sorted(own_breaches(party, outcome).items(), key=lambda each: (-each[1], each[0]))
    ]
    return Card(
        party=party,
        who=who_of(party),
        stack=stack_of(party) or None,
        deeds=deeds(party, summary.members),
        sent=messages_of(party),
        state=str(state),
        past=None if change is None else before(change, summary.members),
        turned=[] if change is None or change.before is None else _turned(change),
        first=min((each["first"] for each in times.values() if each["first"]), default=None),
        last=max((each["last"] for each in times.values() if each["last"]), default=None),
        worst=[_broken_rule(party, rule, count, summary, known) for rule, count in ranked[:MAX_WORST_ROWS]],
        left=max(0, len(ranked) - MAX_WORST_ROWS),
        has_ceased=all(has_ceased(party, rule, summary.members) for rule, _ in ranked),
    )


def _broken_rule(
    party: Mapping[str, Any], rule: str, count: int, summary: Summary, known: Mapping[str, Row]
) -> BrokenRule:
    edition, times = summary.members["profile"], party.get("times", {}).get(rule, {})
    text = rule_texts(edition)[rule]
    return BrokenRule(
        row=row_of(rule, known, edition),
        number=count,
        text=text,
        remedy=text.by_stack.get(party["stack"] or "", text.general),
        first=times.get("first"),
        last=times.get("last"),
        has_ceased=has_ceased(party, rule, summary.members),
    )


NAMED_COURSES: Final = frozenset({Course.NEW, Course.FIRST, Course.GONE, Course.UNSEEN})
"""The courses for which a card names the assertions."""


def _turned(change: PartyChange) -> list[tuple[str, list[str], bool]]:
    names = {each: [assertion_of(rule.rule) for rule in change.rules if rule.course is each] for each in COURSES}
    return [(COURSES[each], found, each in NAMED_COURSES) for each, found in names.items() if found]


class RuleCell(NamedTuple):
    """What one party did with one rule: its gravest verdict, and in how many of the messages that were judged."""

    state: str
    broken: int
    judged: int

    @property
    def share(self) -> str:
        """The share of the messages that broke the rule, in words."""
        share = 100 * self.broken / self.judged
        return f"{share:.0f} %" if share >= 10 else f"{share:.1f} %" if share >= 0.1 else "< 0.1 %"


class RuleRow(NamedTuple):
    """One broken rule, with what each party did with it; None stands for parties that it was never judged for."""

    rule: str
    row: Row
    cells: list[RuleCell | None]

    @property
    def number_broken(self) -> int:
        """How many of the parties broke it."""
        return sum(cell is not None and cell.broken > 0 for cell in self.cells)


def rule_rows(shown: Iterable[Card], listed: Iterable[Row], profile_name: str) -> list[RuleRow]:
    """Compare some parties, broken rule by broken rule; what most of them broke comes first."""
    parties, known = [card.party for card in shown], {row.id: row for row in listed}
    names = sorted({rule for party in parties for outcome in BROKEN for rule in own_breaches(party, outcome)})
    found = [
        RuleRow(rule, row_of(rule, known, profile_name), [_rule_cell(party, rule) for party in parties])
        for rule in names
    ]
    return sorted(found, key=lambda each: (STATES.index(each.row.state), -each.number_broken))


def _rule_cell(party: Mapping[str, Any], rule: str) -> RuleCell | None:
    counts = {outcome: party[outcome].get(rule, 0) for outcome in JUDGED}
    state = next((each for each in (*BROKEN, VerdictOutcome.PASSED) if counts[each]), None)
    if state is None:
        return None
    return RuleCell(str(state), counts[state] if state in BROKEN else 0, sum(counts.values()))


MAX_CHANGE_ROWS: Final = 300


class ChangeRow(NamedTuple):
    """One rule that a party breaks otherwise than in an earlier run."""

    party: str
    row: Row
    rule: RuleChange
    words: str


def change_rows(changes: Iterable[PartyChange], listed: Iterable[Row], edition: str) -> list[ChangeRow]:
    """List what changed since an earlier run by the same profile: what is newly broken first."""
    known = {row.id: row for row in listed}
    found = [
        ChangeRow(
            party_name(change.now or change.before or {}), row_of(rule.rule, known, edition), rule, COURSES[rule.course]
        )
        for change in changes
        for rule in change.rules
        if rule.course in COURSES
    ]
    return sorted(found, key=lambda each: list(COURSES).index(each.rule.course))[:MAX_CHANGE_ROWS]


class DestinationRow(NamedTuple):
    """One destination as the report lists it; `name` is None for all those that are not listed one by one."""

    name: str | None
    messages: int
    answered: int
    median: timedelta | None
    slow: timedelta | None
    failed: int
    warning: int
    stacks: Mapping[str, list[tuple[str, int]]]
    """The apparent stacks of senders, with the sending nodes and their numbers of messages."""


def spots(summary: Summary) -> list[DestinationRow]:
    """List the destinations, those with most failures first, and the rest as one."""
    found = _found_at(summary)
    known = [
        _spot(name, seen, found[name, VerdictOutcome.FAILED], found[name, VerdictOutcome.WARNING])
        for name, seen in summary.places.items()
    ]
    known.sort(key=lambda spot: (-spot.failed, -spot.warning, -spot.messages, spot.name or ""))
    if summary.rest.parties:
        failed, warning = (_all(summary, each) - sum(found[name, each] for name in summary.places) for each in BROKEN)
        known.append(_spot(None, summary.rest, failed, warning))
    return known


def _all(summary: Summary, outcome: str) -> int:
    return sum(int(each[outcome]) for each in summary.members["assertions"].values())


def _found_at(summary: Summary) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for _, outcome, party, count in _counted(summary):
        found[party.place, outcome] += count
    return found


def _counted(summary: Summary) -> Iterator[tuple[str, str, PartyKey, int]]:
    """Yield assertion, verdict, party and number of all failures and warnings."""
    for (assertion, outcome), causes in summary.findings.groups.items():
        if outcome in BROKEN:
            for cause in causes.all.values():
                for party, count in cause.where.items():
                    yield assertion, outcome, party, count


def _spot(name: str | None, seen: PlaceCounts, failed: int, warning: int) -> DestinationRow:
    taken = quantiles(seen.latencies, (0.5, 0.95))
    stacks = sorted((*key, party.messages) for key, party in seen.parties.items())
    return DestinationRow(
        name=name,
        messages=sum(count for _, _, count in stacks),
        answered=seen.answered,
        median=taken[0] if taken else None,
        slow=taken[1] if taken else None,
        failed=failed,
        warning=warning,
        stacks=_by_stack(stacks),
    )


def _by_stack(seen: Iterable[tuple[str, str, int]]) -> dict[str, list[tuple[str, int]]]:
    """Group sending nodes and numbers by apparent stack; those of unknown stacks are left out."""
    stacks: dict[str, list[tuple[str, int]]] = {}
    for node, stack, count in seen:
        if stack:
            stacks.setdefault(stack, []).append((node, count))
    return stacks


class StackRow(NamedTuple):
    """The messages of one apparent stack; `name` is empty for messages without known marks."""

    name: str
    messages: int
    nodes: Mapping[str, int]
    failed: int
    warning: int
    worst: list[tuple[str, int]]
    """The assertions that its messages failed most, with the numbers of failures."""


def peers(summary: Summary) -> list[StackRow]:
    """List the apparent stacks by number of messages; messages without known marks come last."""
    nodes: dict[str, Counter[str]] = {}
    for each in summary.members["stacks"]:
        unmarked = each["messages"] - sum(each["stacks"].values())
        for stack, count in [*each["stacks"].items(), *([("", unmarked)] if unmarked else [])]:
            nodes.setdefault(stack, Counter())[each["node"]] += count
    found: Counter[tuple[str, str]] = Counter()
    for _, outcome, party, count in _counted(summary):
        found[party.stack, outcome] += count
    listed = [
        StackRow(
            name=stack,
            messages=seen.total(),
            nodes=dict(sorted(seen.items())),
            failed=found[stack, VerdictOutcome.FAILED],
            warning=found[stack, VerdictOutcome.WARNING],
            worst=_worst(summary, stack),
        )
        for stack, seen in nodes.items()
    ]
    return sorted(listed, key=lambda peer: (not peer.name, -peer.messages, peer.name))


def _worst(summary: Summary, stack: str) -> list[tuple[str, int]]:
    failed: Counter[str] = Counter()
    for assertion, outcome, party, count in _counted(summary):
        if outcome == VerdictOutcome.FAILED and party.stack == stack:
            failed[assertion] += count
    return sorted(failed.items(), key=lambda each: (-each[1], each[0]))[:MAX_WORST_ROWS]
