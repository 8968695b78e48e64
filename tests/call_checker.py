"""What became of many calls: judged from the logs of both sides, what the callers saw, and the effects at the service.

In the manner of Jepsen's checker for queues: of each request that was asked it says whether it was lost, doubled,
answered wrongly, or left without an answer. Every request has a number of its own, in its body and in its answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from soapjms.protocol.record import Direction, Record, from_json

NUMBER: Final = re.compile(r">(?:Hello )?(\d+)<")


@dataclass(slots=True)
class Story:
    """What is known afterwards.

    Attributes:
        callers: the log of each caller, by name.
        services: the logs of the services.
        numbers: of all calls.
        outcomes: by number, what the caller got: the text of the answer, or None for an error.
        confirmed: the JMSCorrelationIDs of requests of which the broker said that it has them.
        unsent: numbers of calls whose error says that the request was not sent.
        effects: the numbers that the service wrote, with its own transaction.
        other_effects: the numbers that it wrote elsewhere, which may be there more than once.
        seed: of the random choices.
    """

    callers: Mapping[str, Path]
    services: Iterable[Path]
    numbers: range
    outcomes: Mapping[int, str | None]
    confirmed: frozenset[str]
    unsent: frozenset[int]
    effects: Iterable[int]
    other_effects: Iterable[int]
    seed: int


@dataclass(slots=True)
class Verdict:
    """The numbers of the requests that went wrong, and of those of which nobody can know.

    Attributes:
        lost: the broker had it, and no service carried it out.
        doubled: it was carried out twice.
        unexpected: an answer to nobody's or somebody else's request, or a wrong one; an effect of what was not sent.
        unknown: its caller has an error that says that the outcome is not known.
        unanswered: neither an answer nor an error.
        answered: the right answer.
        copies: its answer came to its caller's client again, which drops it.
        other_effects_twice: how many other effects came twice.
    """

    seed: int
    answered: int = 0
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    unanswered: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    other_effects_twice: int = 0

    @property
    def is_good(self) -> bool:
        """Nothing went wrong."""
        return not (self.lost or self.doubled or self.unexpected or self.unanswered)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{name} {len(getattr(self, name))}" for name in ("lost", "doubled", "unexpected", "unknown", "unanswered")
        )
        also = f"answered {self.answered}, copies dropped {len(self.copies)}"
        return f"{counts} ({also}, other effects twice {self.other_effects_twice}, seed {self.seed})"


def check(story: Story) -> Verdict:
    """Say what went wrong."""
    verdict = Verdict(story.seed)
    asked: dict[str, int] = {}
    for caller, log in story.callers.items():
        records = read(log)
        own = {key(each): number_in(each) for each in records if each.direction is Direction.REQUEST}
        asked |= own
        _check_answers(verdict, caller, own, [each for each in records if each.direction is Direction.RESPONSE])
    effects = Counter(story.effects)
    _check_outcomes(verdict, story)
    verdict.unexpected += [f"{each} was sent, and no caller logged it" for each in sorted(story.confirmed - set(asked))]
    confirmed = {asked[each] for each in story.confirmed & set(asked)}
    verdict.lost = sorted(confirmed - set(effects))
    verdict.doubled = sorted(number for number, times in effects.items() if times > 1)
    foreign = set(effects) - set(asked.values()) | set(effects) & story.unsent
    verdict.unexpected += [f"an effect of {number}, which was not sent" for number in sorted(foreign)]
    for log in story.services:
        strange = [each for each in read(log) if key(each) not in asked]
        verdict.unexpected += [f"a service saw {key(each)}, which nobody sent" for each in strange]
    verdict.other_effects_twice = sum(times - 1 for times in Counter(story.other_effects).values())
    return verdict


def _check_answers(verdict: Verdict, caller: str, own: Mapping[str, int], answers: Iterable[Record]) -> None:
    """Check that each answer that reached a caller's client is to a request of its own, and count further copies."""
    seen: Counter[str] = Counter()
    for answer in answers:
        number = own.get(key(answer))
        if number is None or number != number_in(answer):
            verdict.unexpected.append(f"{caller} got {key(answer)}")
            continue
        seen[key(answer)] += 1
    verdict.copies += [own[each] for each, times in seen.items() if times > 1]


def _check_outcomes(verdict: Verdict, story: Story) -> None:
    for number in story.numbers:
        if number not in story.outcomes:
            verdict.unanswered.append(number)
            continue
        outcome = story.outcomes[number]
        if outcome is None:
            if number not in story.unsent:
                verdict.unknown.append(number)
        elif outcome == f"Hello {number}":
            verdict.answered += 1
        else:
            verdict.unexpected.append(f"{number} was answered {outcome!r}")


def read(log: Path) -> list[Record]:
    """Read a log; the last line of a process that was killed may be cut, and says nothing."""
    lines = log.read_bytes().split(b"\n") if log.exists() else []
    return [from_json(line.decode()) for line in lines if line.endswith(b"}")]


def key(record: Record) -> str:
    """Return what says which request it is about."""
    return record.message.correlation_id or ""


def number_in(record: Record) -> int:
    """Return the number in the body, -1 if there is none."""
    body = record.message.body
    text = body if isinstance(body, str) else bytes(body).decode() if isinstance(body, bytes) else ""
    found = NUMBER.search(text)
    return int(found[1]) if found else -1
