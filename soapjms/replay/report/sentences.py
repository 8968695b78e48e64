"""Sentences about the parties of a replay: who breaks what, in how many messages.

All take the members of summary.json, or of one of its parties. Texts of a log are in them as they are: whoever shows
them has to escape them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.assertions.model import assertion_of
from soapjms.protocol.names import Level
from soapjms.replay.parties import BROKEN, PartyKey
from soapjms.replay.report.comparison import BETTER, WORSE, Course, PartyChange
from soapjms.replay.report.remedies import rules, stack_name
from soapjms.replay.summary import NOTHING

Members = Mapping[str, Any]

ELSEWHERE: Final = "all other destinations"
TEMPORARY: Final[Mapping[str, str]] = {
    "temporary-queue": "temporary queues",
    "temporary-topic": "temporary topics",
    "": "a destination that the log does not show",
}


class Words(NamedTuple):
    """How sentences call a party."""

    who: str
    where: str
    messages: str
    message: str
    is_many: bool


WORDS: Final[Mapping[str, Words]] = {
    "requesting": Words("clients", "of", "requests", "request", True),
    "sending": Words("senders", "to", "one-way messages", "one-way message", True),
    "responding": Words("the service", "at", "responses", "response", False),
}
"""The words by the node of a party."""


def place_name(destination: str | None) -> str:
    """Name the destination of a service; None stands for all those that are not told apart."""
    if destination is None:
        return ELSEWHERE
    return f"{destination} (empty name)" if destination.endswith(":") else TEMPORARY.get(destination, destination)


def party_name(party: Members) -> str:
    """Name a party: `clients of queue:orders (Apache CXF)`."""
    stack = stack_of(party)
    return who_of(party) + (f" ({stack})" if stack else "")


def who_of(party: Members) -> str:
    """Name a party without its stack: `other clients of queue:orders` if those that are known by a stack are apart."""
    return who(party["node"], party["destination"], is_other=is_other(party))


def stack_of(party: Members) -> str:
    """Name the stack of a party; empty if none is known of any party at its destination."""
    stack = party["stack"]
    return stack_name(stack) if stack else UNKNOWN_STACK if is_other(party) else ""


UNKNOWN_STACK: Final = "no known stack"


def is_other(party: Members) -> bool:
    """Say whether a party is the rest of the nodes at its destination, beside those that are known by their stacks."""
    return not party["stack"] and bool(party.get("otherStacks"))


def other_parties(summary: Members) -> frozenset[PartyKey]:
    """Return the parties that are the rest at their destinations: see `is_other`."""
    return frozenset(PartyKey(each["destination"], each["node"], "") for each in summary["parties"] if is_other(each))


def who(node: str, destination: str | None, *, is_other: bool = False) -> str:
    """Name a party without its stack; of a result folder without report.json, only its destination is known."""
    words = WORDS.get(node)
    if words is None:
        return place_name(destination)
    return f"{'other ' if is_other and words.is_many else ''}{words.who} {words.where} {place_name(destination)}"


def party_sentence(party: Members, summary: Members) -> str:
    """Say what a party does: `clients of queue:orders break 2 MUSTs in 3 of 13 requests`."""
    return f"{party_name(party)} {deeds(party, summary)}"


def deeds(party: Members, summary: Members, outcomes: Iterable[VerdictOutcome] = BROKEN) -> str:
    """Say what a party does, without its name.

    Args:
        party: the party.
        summary: the members of summary.json.
        outcomes: what is told of it, if there is any such.
    """
    words = WORDS[party["node"]]
    verbs = {
        VerdictOutcome.FAILED: "break" if words.is_many else "breaks",
        VerdictOutcome.WARNING: "miss" if words.is_many else "misses",
    }
    said = [f"{verbs[each]} {breach(party, each, summary)}" for each in outcomes if party[each]]
    if said:
        return " and ".join(said)
    kept, verb = rules_kept(party), "keep" if words.is_many else "keeps"
    if not kept:
        return f"{'send' if words.is_many else 'sends'} {messages_of(party)}; no rule could be judged"
    every = {1: "the one rule", 2: "both rules"}.get(kept, f"all {kept} rules")
    return f"{verb} {every} that could be seen"


def breach(party: Members, outcome: VerdictOutcome, summary: Members) -> str:
    """Say how many rules a party breaks with an outcome, and in how many messages: `2 MUSTs in 3 of 13 requests`."""
    share = _share(party[f"{outcome}Messages"], party["messages"], WORDS[party["node"]])
    return f"{_rules(own_breaches(party, outcome), summary)} in {share}"


def own_breaches(party: Members, outcome: VerdictOutcome) -> dict[str, int]:
    """Count the messages of a party by rule, without those that broke the rule by the same mistake as another."""
    same = party.get("sameMistakes", {})
    counts = {rule: number - same.get(rule, 0) for rule, number in party[outcome].items()}
    return {rule: number for rule, number in counts.items() if number > 0}


def before(change: PartyChange, summary: Members) -> str:
    """Say what a party did in an earlier run, and how that changed."""
    if change.before is None:
        return "new: not seen before"
    said = " and ".join(breach(change.before, each, summary) for each in BROKEN if change.before[each])
    return f"before: {said}" if said else f"before: no rule broken in {messages_of(change.before)}"


def courses(changes: Iterable[PartyChange]) -> str:
    """Count the rules of all parties that changed since an earlier run: `2 newly broken, 1 no longer broken`."""
    seen = [*changes]
    if seen and all(change.before is None or change.now is None for change in seen):
        return "no party of one replay is in the other"
    counted = Counter(rule.course for change in seen for rule in change.rules)
    worse, better = counted.keys() & WORSE, counted.keys() & BETTER
    said = ", ".join(f"{counted[each]} {words}" for each, words in COURSES.items() if counted[each])
    if worse or better:
        return f"{'partly worse' if worse and better else 'worse' if worse else 'better'}: {said}"
    if counted[Course.SAME]:
        return f"the same rules are broken{said and ', '}{said}"
    return said or "no rule was broken then or now"


COURSES: Final[Mapping[Course, str]] = {
    Course.NEW: "newly broken",
    Course.FIRST: "broken and not judged before",
    Course.MORE: "broken more often",
    Course.FEWER: "broken less often",
    Course.GONE: "no longer broken",
    Course.UNSEEN: "not judged now",
}
MAX_NAMED_PARTIES: Final = 3


def comings(changes: Iterable[PartyChange]) -> Iterator[str]:
    """Yield which parties only one of two runs has: `New: clients of queue:orders.`"""
    seen = [*changes]
    for word, one in (
        ("New", [each.now for each in seen if each.before is None]),
        ("Not seen now", [each.before for each in seen if each.now is None]),
    ):
        names = [party_name(party) for party in one if party is not None]
        more = len(names) - MAX_NAMED_PARTIES
        if names:
            yield f"{word}: {', '.join(names[:MAX_NAMED_PARTIES])}{f' and {more} more' if more > 0 else ''}."


def gone(changes: Iterable[PartyChange], old: Members) -> list[str]:
    """List the parties that an earlier run has, and this one has not, with what they did then."""
    return [
        capital(party_sentence(each.before, old)) for each in changes if each.now is None and each.before is not None
    ]


def rules_kept(party: Members) -> int:
    """Count the rules that a party was judged by and never broke."""
    return len(
        party[VerdictOutcome.PASSED].keys() - party[VerdictOutcome.FAILED].keys() - party[VerdictOutcome.WARNING].keys()
    )


def _share(broken: int, total: int, words: Words) -> str:
    if broken < total:
        return f"{broken:,} of {_number(total, words)}"
    return f"the only {words.message}" if total == 1 else f"all {_number(total, words)}"


def messages_of(party: Members) -> str:
    """Count a party's messages: `13 requests`."""
    return _number(party["messages"], WORDS[party["node"]])


def _number(total: int, words: Words) -> str:
    return f"{total:,} {words.message if total == 1 else words.messages}"


def _rules(broken: Iterable[str], summary: Members) -> str:
    """Count rules by level: `2 MUSTs and 1 MUST NOT`; a rule without a level counts as a MUST."""
    levels = Counter(summary["assertions"][assertion_of(rule)]["level"] for rule in broken)
    levels[Level.MUST] += levels.pop(Level.NONE, 0)
    return " and ".join(f"{levels[each]} {each}{'' if levels[each] == 1 else 's'}" for each in Level if levels[each])


def _party_counts(summary: Members) -> tuple[int, int, int]:
    """Count the parties, those that break MUSTs, and those that miss SHOULDs; at least so many, see `otherParties`."""
    others = summary.get("otherParties")
    named = [each for each in summary["parties"] if each["destination"] is not None or others is None]
    counts = [len(named), *(sum(bool(each[outcome]) for each in named) for outcome in BROKEN)]
    more = (0, 0, 0) if others is None else (others["parties"], *(others[outcome] for outcome in BROKEN))
    total, wrong, short = map(sum, zip(counts, more, strict=True))
    return total, wrong, short


def _wrong(summary: Members, total: int, wrong: int) -> str:
    """Say which parties break MUSTs: the only one, what all have in common, or the worst if there is one."""
    others = summary.get("otherParties") or {"isAll": True}
    broken = [each for each in summary["parties"] if each[VerdictOutcome.FAILED]]
    named = [each for each in broken if each["destination"] is not None]
    if wrong == 1 and others["isAll"] and named:
        return capital(f"{party_name(named[0])} {deeds(named[0], summary, [VerdictOutcome.FAILED])}")
    if not others["isAll"]:
        who_breaks = f"{wrong:,} of more than {total:,} parties"
    else:
        who_breaks = _all_parties(total) if wrong == total else f"{wrong:,} of {total:,} parties"
    verb = "breaks" if wrong == 1 else "break"
    rule, *more = {rule for each in broken for rule in own_breaches(each, VerdictOutcome.FAILED)}
    if not more:
        return f"{who_breaks} {verb} one MUST: {title_of(rule, summary)}"
    is_one_worst = bool(named) and (len(named) == 1 or _extent(named[0]) != _extent(named[1]))
    return f"{who_breaks} {verb} MUSTs{f'; worst: {party_name(named[0])}' if is_one_worst else ''}"


def _all_parties(total: int) -> str:
    return "Both parties" if total == 2 else f"All {total:,} parties"


def _extent(party: Members) -> tuple[int, int]:
    return len(own_breaches(party, VerdictOutcome.FAILED)), party["failedMessages"]


def title_of(rule: str, summary: Members) -> str:
    """Return what a rule demands, in words: see `rule_name`."""
    assertion = assertion_of(rule)
    if rule != assertion:
        return rules(summary["profile"])[rule].title
    return str(summary["assertions"][assertion]["title"])


def headline(summary: Members) -> str:
    """Say in one sentence, as far as this run can tell, who broke the rules."""
    parties, rejected = summary["parties"], summary["rejected"]
    if summary["verdict"] == NOTHING:
        return "Nothing to judge"
    if not parties and rejected and not summary["messages"]:
        return "The only record could not be read" if rejected == 1 else f"None of {rejected:,} records could be read"
    if not parties:
        return {VerdictOutcome.FAILED: "Failed", VerdictOutcome.WARNING: "Passed, with warnings"}.get(
            summary["verdict"], "Passed"
        )
    total, wrong, short = _party_counts(summary)
    if wrong:
        return _wrong(summary, total, wrong)
    every = "The only party keeps" if total == 1 else f"{_all_parties(total)} keep"
    if short:
        return f"{every} every MUST; {short:,} {'misses' if short == 1 else 'miss'} a SHOULD"
    return f"{every} the rules{', but records could not be read' if rejected else ''}"


def capital(sentence: str) -> str:
    """Begin a sentence with a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def party_lines(summary: Members, most: int = 12) -> Iterator[str]:
    """Yield a sentence for each party, those that break most first, and one for those beyond a limit."""
    parties = summary["parties"]
    for party in parties[:most]:
        yield f"{capital(party_sentence(party, summary))}."
    if len(parties) > most:
        yield f"{len(parties) - most} more parties are in summary.json."
