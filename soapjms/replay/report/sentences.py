"""Sentences about the parties of a replay: who breaks what, in how many messages.

All take the members of summary.json, or of one of its parties. Texts of a log are in them as they are: whoever shows
them has to escape them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import Outcome
from soapjms.protocol.assertions.model import assertion_of
from soapjms.protocol.names import Level
from soapjms.replay.parties import BROKEN
from soapjms.replay.report.comparison import BETTER, WORSE, Course, PartyChange
from soapjms.replay.report.remedies import stack_name
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
    return ELSEWHERE if destination is None else TEMPORARY.get(destination, destination)


def party_name(party: Members) -> str:
    """Name a party: `clients of queue:orders (Apache CXF)`."""
    stack = party["stack"]
    return who(party["node"], party["destination"]) + (f" ({stack_name(stack)})" if stack else "")


def who(node: str, destination: str | None) -> str:
    """Name a party without its stack; of a result folder without report.json, only its destination is known."""
    words = WORDS.get(node)
    return f"{words.who} {words.where} {place_name(destination)}" if words else place_name(destination)


def party_sentence(party: Members, summary: Members) -> str:
    """Say what a party does: `clients of queue:orders break 2 MUSTs in 3 of 13 requests`."""
    return f"{party_name(party)} {deeds(party, summary)}"


def deeds(party: Members, summary: Members, outcomes: Iterable[Outcome] = BROKEN) -> str:
    """Say what a party does, without its name.

    Args:
        party: the party.
        summary: the members of summary.json.
        outcomes: what is told of it, if there is any such.
    """
    words = WORDS[party["node"]]
    verbs = {
        Outcome.FAILED: "break" if words.is_many else "breaks",
        Outcome.WARNING: "miss" if words.is_many else "misses",
    }
    said = [f"{verbs[each]} {breach(party, each, summary)}" for each in outcomes if party[each]]
    if said:
        return " and ".join(said)
    kept, verb = rules_kept(party), "keep" if words.is_many else "keeps"
    if not kept:
        return f"{'send' if words.is_many else 'sends'} {messages_of(party)}; no rule could be judged"
    return f"{verb} {'the one rule' if kept == 1 else f'all {kept} rules'} that could be seen"


def breach(party: Members, outcome: Outcome, summary: Members) -> str:
    """Say how many rules a party breaks with an outcome, and in how many messages: `2 MUSTs in 3 of 13 requests`."""
    share = _share(party[f"{outcome}Messages"], party["messages"], WORDS[party["node"]])
    return f"{_rules(party[outcome], summary)} in {share}"


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
    return len(party[Outcome.PASSED].keys() - party[Outcome.FAILED].keys() - party[Outcome.WARNING].keys())


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


def headline(summary: Members) -> str:
    """Say in one sentence, as far as this run can tell, who broke the rules."""
    parties = summary["parties"]
    wrong = [each for each in parties if each[Outcome.FAILED]]
    if summary["verdict"] == NOTHING:
        return "Nothing to judge"
    if not parties:
        return {Outcome.FAILED: "Failed", Outcome.WARNING: "Passed, with warnings"}.get(summary["verdict"], "Passed")
    if len(wrong) == 1:
        return capital(f"{party_name(wrong[0])} {deeds(wrong[0], summary, [Outcome.FAILED])}")
    if wrong:
        return f"{len(wrong)} of {len(parties)} parties break MUSTs, most of all {party_name(wrong[0])}"
    short = sum(bool(each[Outcome.WARNING]) for each in parties)
    every = "The only party keeps" if len(parties) == 1 else f"All {len(parties)} parties keep"
    if short:
        return f"{every} every MUST; {short} {'misses' if short == 1 else 'miss'} a SHOULD"
    return f"{every} the rules{', but records could not be read' if summary['rejected'] else ''}"


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
