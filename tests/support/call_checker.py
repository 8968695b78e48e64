"""What became of many calls: judged from the callers' journals, two ledgers of the service, and the broker's counters.

In the manner of Jepsen's checker for queues. It trusts nothing that the product says of itself but what it told a
caller: that is what it is held to. Every request has a number of its own, in its body and in its answer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

NUMBER: Final = re.compile(r">(?:Hello )?(\d+)<")

ONE_WAY_EACH: Final = 4
"""Each number that this divides is a one-way message."""

SLACK_SECONDS: Final = 15.0
"""Seconds beyond its time-out after which a call hangs, on a machine with much else to do too."""

PROMISED: Final = "CallFailedError"
"""The class of the errors that a call may end with."""

SENT_NOTHING: Final = ("not sent", "refused")
"""What `CallFailedError.outcome` says of a request that no service can have seen."""


class Did(StrEnum):
    """What a line of a journal says of a number."""

    ASKED = "asked"
    CONFIRMED = "confirmed"
    SENT = "sent"
    ANSWERED = "answered"
    FAILED = "failed"
    ENDED = "ended"


Line = Mapping[str, Any]


@dataclass(frozen=True)
class Journal:
    """What the callers of one process wrote down.

    Attributes:
        name: of the process.
        lines: with `did`, `number`, and `at` in seconds of a clock that all processes share; ANSWERED has `text`,
            FAILED `classes` of the error, `text` and `outcome`, ENDED what is `left` in the process and its counts of
            `strays`.
        was_killed: the process was, on purpose.
        pauses: from when to when it was stopped.
    """

    name: str
    lines: Sequence[Line]
    was_killed: bool = False
    pauses: Sequence[tuple[float, float]] = ()

    @cached_property
    def asked(self) -> dict[int, float]:
        """When each number was asked."""
        return {line["number"]: line["at"] for line in self.lines if line["did"] == Did.ASKED}

    @cached_property
    def asked_again(self) -> set[int]:
        """The numbers of which there were several tries: the reply destination of all but the last may be gone."""
        times = Counter(line["number"] for line in self.lines if line["did"] == Did.ASKED)
        return {number for number, count in times.items() if count > 1}

    @cached_property
    def outcomes(self) -> dict[int, Line]:
        """The line of each number that says how it ended."""
        ends = (Did.SENT, Did.ANSWERED, Did.FAILED)
        return {line["number"]: line for line in self.lines if line["did"] in ends}

    @cached_property
    def confirmed(self) -> set[int]:
        """The numbers of which the broker, or who called, was told that the broker has them."""
        return {line["number"] for line in self.lines if line["did"] in (Did.CONFIRMED, Did.SENT, Did.ANSWERED)}

    def seconds(self, since: float, until: float) -> float:
        """Say how long it was between the two, without the time in which the process was stopped."""
        return until - since - sum(max(0.0, min(until, end) - max(since, start)) for start, end in self.pauses)


def lines_of(path: Path) -> list[Line]:
    """Read a journal; the last line of a process that was killed may be cut, and says nothing."""
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text.split(b"\n") if line.endswith(b"}")]


def number_in(body: object) -> int | None:
    """Return the number in the body of a request or an answer, None if there is none."""
    text = body if isinstance(body, str) else bytes(body).decode() if isinstance(body, bytes | memoryview) else ""
    found = NUMBER.search(text)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Story:
    """What is known afterwards.

    Attributes:
        calls: how many numbers were to be asked, from 0 on.
        timeout: of each call, in seconds.
        journals: of the callers.
        ended: when the callers were over, by the clock of the journals.
        effects: the numbers that the service wrote, with its own transaction.
        other_effects: the numbers that it wrote elsewhere before, which may be there more than once.
        answers: by the name of a journal, the numbers of the answers that were found in its fixed reply queue.
        abandoned: numbers of the answers that were found where a temporary destination had been.
        left: what else is left in the broker.
        strange: what went wrong with a process.
        kills: how many processes were killed.
    """

    calls: int
    timeout: float
    journals: Sequence[Journal]
    ended: float
    effects: Sequence[int]
    other_effects: Sequence[int]
    answers: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    abandoned: Sequence[int] = ()
    left: Sequence[str] = ()
    strange: Sequence[str] = ()
    kills: int = 0


@dataclass(slots=True)
class Verdict:
    """What went wrong, in words, and the numbers of the requests of which nobody can know.

    Attributes:
        lost: the broker or the caller was told that it is there or done, and no service carried it out.
        doubled: it was carried out twice.
        wrong: an answer to somebody else's request, or to nobody's.
        unexpected: an error that is not promised, a fault, an effect of what nobody asked, a process that ended.
        unknown: the caller has an error, or was killed, and so cannot know the outcome; this is allowed.
        not_sent_but_done: the error says that the request was not sent, or refused, and it was carried out.
        hung: neither an answer nor an error, a time-out's seconds and some more later.
        left_over: what is left in the broker or in a process of callers.
        answered: the right answer, or a one-way message that the broker has.
        duplicates: answers that came again, which the client drops; these are allowed.
        repeats: other effects that came again; these are allowed.
        abandoned: answers to callers who had left, which wait at the broker till they expire; these are allowed.
    """

    calls: int = 0
    kills: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    not_sent_but_done: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    answered: int = 0
    duplicates: int = 0
    repeats: int = 0
    abandoned: int = 0

    @property
    def problems(self) -> list[str]:
        """Everything that is not allowed."""
        return [f"{name.replace('_', ' ')}: {each}" for name in BAD for each in getattr(self, name)]

    def counts(self) -> dict[str, int]:
        """Count all of it, by name."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value if isinstance(value, int) else len(value) for name, value in found.items()}


BAD: Final = ("lost", "doubled", "wrong", "unexpected", "not_sent_but_done", "hung", "left_over")
"""The attributes of a verdict that are empty where all is well."""


def check(story: Story) -> Verdict:
    """Say what went wrong."""
    verdict = Verdict(calls=story.calls, kills=story.kills, unexpected=[*story.strange], left_over=[*story.left])
    effects = Counter(story.effects)
    others = Counter(story.other_effects)
    for journal in story.journals:
        _check_outcomes(verdict, story, journal, effects.keys() | others.keys())
        _check_end(verdict, journal)
    asked = {number for journal in story.journals for number in journal.asked}
    confirmed = {number for journal in story.journals for number in journal.confirmed}
    verdict.hung += [f"{number} was never asked" for number in sorted(set(range(story.calls)) - asked)]
    verdict.lost += [f"{_kind(number)} {number}" for number in sorted(confirmed - effects.keys())]
    verdict.doubled += [f"{_kind(each)} {each}, {times} times" for each, times in sorted(effects.items()) if times > 1]
    verdict.unexpected += [f"an effect of {each}, which nobody asked" for each in sorted(effects.keys() - asked)]
    verdict.unexpected += [f"an effect of {each}, which never ran" for each in sorted(effects.keys() - others.keys())]
    verdict.repeats = others.total() - len(others)
    verdict.abandoned = len(story.abandoned)
    again = {number for journal in story.journals for number in journal.asked_again}
    strays = sorted(set(story.abandoned) - set(verdict.unknown) - again)
    verdict.left_over += [f"an answer to {number}, whose caller was there" for number in strays]
    for name, numbers in story.answers.items():
        own = {number for journal in story.journals if journal.name == name for number in journal.asked}
        verdict.wrong += [f"{name} would have got an answer to {each}" for each in numbers if each not in own]
    return verdict


def _kind(number: int) -> str:
    return "message" if number % ONE_WAY_EACH == 0 else "call"


def _check_outcomes(verdict: Verdict, story: Story, journal: Journal, done: Iterable[int]) -> None:
    limit = story.timeout + SLACK_SECONDS
    for number, since in journal.asked.items():
        outcome = journal.outcomes.get(number)
        until = story.ended if outcome is None else outcome["at"]
        if journal.seconds(since, until) > limit and (outcome is not None or not journal.was_killed):
            seconds = f"{journal.seconds(since, until):.0f} s"
            verdict.hung.append(f"{_kind(number)} {number} of {journal.name} for {seconds}")
        if outcome is None:
            verdict.unknown.append(number)
        elif outcome["did"] == Did.FAILED:
            _check_failure(verdict, number, outcome, done)
        elif outcome["did"] == Did.ANSWERED and outcome["text"] != f"Hello {number}":
            is_other = number_in(f">{outcome['text']}<") is not None
            (verdict.wrong if is_other else verdict.unexpected).append(f"{number} was answered {outcome['text']!r}")
        else:
            verdict.answered += 1


def _check_failure(verdict: Verdict, number: int, outcome: Line, done: Iterable[int]) -> None:
    if PROMISED not in outcome["classes"]:
        verdict.unexpected.append(f"{_kind(number)} {number} ended with {outcome['classes'][0]}: {outcome['text']}")
    elif outcome["outcome"] not in SENT_NOTHING:
        verdict.unknown.append(number)
    elif number in done:
        told = f"{outcome['classes'][0]}, {outcome['outcome']}: {outcome['text']}"
        verdict.not_sent_but_done.append(f"{_kind(number)} {number}, of which its caller was told {told}")


def _check_end(verdict: Verdict, journal: Journal) -> None:
    """Check what a process told of itself at its end; one that was not killed comes to it."""
    ends = [line for line in journal.lines if line["did"] == Did.ENDED]
    if not ends and not journal.was_killed:
        verdict.unexpected.append(f"{journal.name} did not come to its end")
    for line in ends:
        verdict.left_over += [f"{each} in {journal.name}" for each in line["left"]]
        verdict.duplicates += line["strays"]["duplicate"]
        for kind in ("unknown", "foreign"):
            if line["strays"][kind]:
                verdict.wrong.append(f"{journal.name} got {line['strays'][kind]} answers for calls of nobody ({kind})")
