"""Judging many similar exchanges: the verdicts that follow from the sketch of a message are worked out once.

A sketch is what thousands of messages have in common: their properties, message type, direction. It settles a row if
neither the row's test nor its check reads anything else (`Assertion.reads`). The other rows, on bodies,
ids, destinations, numbers and times, are judged for each message.

`judge` defines the right verdicts; this file has to return the same.

Spec: capture record, "Verdicts".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from brokers.message import MessageType
from soapjms.protocol.assertions import body_checks, request_checks
from soapjms.protocol.assertions.judge import (
    NOT_APPLICABLE,
    PASSED,
    Ended,
    broken_verdict,
    note_end,
    outcome_of,
    rows_for,
    shares_id,
    verdict_of,
)
from soapjms.protocol.assertions.model import (
    BROKEN,
    Assertion,
    Case,
    Fact,
    Setting,
    Verdict,
    VerdictOutcome,
    always,
    reads_of,
    rule_name,
)
from soapjms.protocol.assertions.response_checks import is_jndi
from soapjms.protocol.assertions.response_table import ASSERTIONS
from soapjms.protocol.names import Subcode
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import MessageDescription, PropertiesShape, Reading
from soapjms.protocol.record import Direction

MAY_APPLY: Final[Mapping[Callable[[Case], bool], Callable[[Case], bool]]] = {
    body_checks.has_charset: lambda case: case.message.is_simple and case.message.charset is not None,
    body_checks.has_no_charset: lambda case: case.message.is_simple and case.message.charset is None,
    body_checks.is_text_with_charset: lambda case: isinstance(case.message.message.body, str),
    request_checks.repeats_a_parameter: lambda case: len(_parameters(case)) > 1,
}
"""Tests that depend on more than the sketch, and a test of the sketch for each: False if the test cannot hold."""


def _parameters(case: Case) -> Sized:
    return () if case.message.request_uri is None else case.message.request_uri.parameters


SKETCH_FACTS: Final = frozenset(
    {
        Fact.PROPERTIES,
        Fact.MESSAGE_TYPE,
        Fact.BODY_KIND,
        Fact.TRUNCATED,
        Fact.UNTYPED,
        Fact.DIRECTION,
        Fact.ASKS,
    }
)
"""What a sketch holds. A response's rows read of the request only what `owes_request_uri` tells."""

PAIR_FACTS: Final = frozenset({Fact.JNDI})
"""What `Halves` hold."""

MAX_COUNTS: Final = 100_000
"""Most kinds of counts that a judge holds before it is full."""
NO_PARTIES: Final[Mapping[Carrier, Hashable]] = MappingProxyType({})
MAX_SKETCHES: Final = 4096
"""Most sketches that are remembered; when there are more, all are forgotten."""

Found: TypeAlias = tuple[VerdictOutcome, str | None]
"""The outcome of a row, and the reason."""


class Sketch(NamedTuple):
    """What a message has in common with many others.

    `properties` stands for all properties: each value counts if the sender's properties are known, else only the shape.
    """

    carrier: Carrier
    properties: MessageDescription | PropertiesShape
    message_type: MessageType
    body: type
    is_empty: bool
    truncated: bool
    untyped: bool
    direction: Direction | None
    has_reply_to: bool
    owes_request_uri: bool


def sketch_of(case: Case) -> Sketch:
    """Return the sketch of a message."""
    reading = case.message
    message, record = reading.message, reading.record
    return Sketch(
        case.carrier,
        reading.described.shape if case.setting.properties is None else reading.described,
        message.message_type,
        type(message.body),
        not message.size,
        record.truncated,
        message.untyped,
        record.direction,
        message.reply_to is not None,
        request_checks.owes_request_uri(case),
    )


class Halves(NamedTuple):
    """What a pair has in common with many others."""

    is_asked: bool
    is_answered: bool
    is_jndi: bool
    is_accused: bool
    """True if the request calls for a fault."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgeSteps:
    """The rows left to judge for a message or pair, in the order of the table.

    Attributes:
        todo: rows with their known outcome, None for those that must be judged.
        counts: the outcomes of the rows that are not in `todo`: they passed, or do not apply.
    """

    todo: tuple[tuple[Assertion, Found | None], ...]
    counts: Counter[tuple[str, VerdictOutcome]]


NEVER_SEEN: Final = JudgeSteps((), Counter())
"""Stands for the steps of a sketch that is seen for the first time."""


class Memory:
    """The steps that were worked out for one setting; judges with the same setting may share them.

    Attributes:
        messages: steps for messages, by sketch; None for a sketch that was seen once.
        pairs: steps for pairs.
        unsettled: steps for messages of which nothing is known: all rows.
    """

    def __init__(self) -> None:
        self.messages: dict[Sketch, JudgeSteps | None] = {}
        self.pairs: dict[Halves, JudgeSteps] = {}
        self.unsettled: dict[Carrier, JudgeSteps] = {}


class Judge:
    """Judges exchanges one after the other, by one setting, and counts the outcomes of their assertions.

    Not thread-safe. With a `memory` it uses the steps of other judges with the same setting.

    Attributes:
        setting: the given facts of all exchanges.
        exchanges: the number of exchanges; for the caller to count.
    """

    def __init__(self, setting: Setting, memory: Memory | None = None) -> None:
        self.setting = setting
        self.exchanges = 0
        self._memory = memory or Memory()
        self._seen: Counter[tuple[Hashable, JudgeSteps, tuple[tuple[int, VerdictOutcome], ...]]] = Counter()
        self._counts: Counter[tuple[Hashable, str, VerdictOutcome]] = Counter()

    def findings(
        self, readings: dict[Carrier, Reading], parties: Mapping[Carrier, Hashable] = NO_PARTIES
    ) -> Iterator[Verdict]:
        """Yield the verdicts of `judge_readings` by all assertions, without those that passed or do not apply.

        All verdicts are counted once the iterator has ended.

        Args:
            readings: the messages of the exchange.
            parties: whose message each is; the verdicts on a pair count as the response's. None if it is not known.
        """
        request = readings.get(Carrier.REQUEST) or readings.get(Carrier.ONE_WAY)
        response = readings.get(Carrier.RESPONSE)
        subcodes: dict[str, Subcode] = {}
        spared: set[Subcode] = set()
        for carrier, message in readings.items():
            case = Case(self.setting, message, carrier, request, response, subcodes, spared)
            yield from self._take(self._steps_for(case), case, parties.get(carrier))
        if Carrier.ONE_WAY not in readings:
            message = response or readings[Carrier.REQUEST]
            case = Case(self.setting, message, Carrier.RESPONSE, request, response, subcodes, spared, is_pair=True)
            party = parties.get(Carrier.REQUEST if response is None else Carrier.RESPONSE)
            yield from self._take(self._steps_for_pair(case), case, party)

    @property
    def is_full(self) -> bool:
        """Whether so many kinds of counts have come together that they should be taken."""
        return len(self._seen) + len(self._counts) >= MAX_COUNTS

    def take_counts(self) -> Counter[tuple[Hashable, str, VerdictOutcome]]:
        """Return the counts of rules, by party, name (see `rule_name`) and outcome, since they were taken last."""
        self._add_up()
        taken, self._counts = self._counts, Counter()
        return taken

    def _add_up(self) -> None:
        for (party, steps, ends), number in self._seen.items():
            found = dict(ends)
            for (name, outcome), each in steps.counts.items():
                self._counts[party, name, outcome] += each * number
            for index, (row, _) in enumerate(steps.todo):
                self._counts[party, self._rule(row), found.get(index, VerdictOutcome.PASSED)] += number
        self._seen.clear()

    def _rule(self, row: Assertion) -> str:
        profile = self.setting.profile
        return rule_name(profile.assertion_id(row.id) or row.id, is_answer=shares_id(row, profile))

    def _rows(self, carrier: Carrier | None) -> tuple[Assertion, ...]:
        return rows_for(ASSERTIONS, carrier, self.setting.profile.name, self.setting.properties is not None)

    # Judging

    def _take(self, steps: JudgeSteps, case: Case, party: Hashable) -> Iterator[Verdict]:
        """Take the steps for one message or pair, and count their outcomes."""
        ended: Ended = {}
        ends: list[tuple[int, VerdictOutcome]] = []
        for index, (row, known) in enumerate(steps.todo):
            found = known or outcome_of(row, case, ended)
            if found is PASSED:
                continue
            if found is not NOT_APPLICABLE:
                note_end(row, case, found[0], ended)
                verdict = broken_verdict(row, case, *found) if found[0] in BROKEN else verdict_of(row, case, found)
                ends.append((index, verdict.outcome))
                yield verdict
            else:
                ends.append((index, found[0]))
        self._seen[party, steps, tuple(ends)] += 1

    # Working out the steps

    def _steps_for(self, case: Case) -> JudgeSteps:
        """Return the steps for a message: all rows if its sketch is seen for the first time.

        Working out the steps for a sketch costs more than judging one message.
        """
        if not case.message.described.is_short:
            return self._all_steps(case.carrier)
        sketch = sketch_of(case)
        known = self._memory.messages
        steps = known.get(sketch, NEVER_SEEN)
        if steps is NEVER_SEEN:
            if len(known) >= MAX_SKETCHES:
                self._add_up()
                known.clear()
            known[sketch] = None
            return self._all_steps(case.carrier)
        if steps is None:
            alone = Case(self.setting, case.message, case.carrier, case.request, case.response)
            steps = known[sketch] = self._settle(alone, self._rows(case.carrier))
        return steps

    def _all_steps(self, carrier: Carrier) -> JudgeSteps:
        steps = self._memory.unsettled.get(carrier)
        if steps is None:
            rows = tuple((row, None) for row in self._rows(carrier))
            steps = self._memory.unsettled[carrier] = JudgeSteps(rows, Counter())
        return steps

    def _steps_for_pair(self, case: Case) -> JudgeSteps:
        request = case.request
        jndi = request is not None and case.response is not None and is_jndi(case)
        halves = Halves(request is not None, case.response is not None, jndi, bool(case.subcodes))
        steps = self._memory.pairs.get(halves)
        if steps is None:
            steps = self._memory.pairs[halves] = self._settle(case, self._rows(None))
        return steps

    def _settle(self, case: Case, rows: tuple[Assertion, ...]) -> JudgeSteps:
        ended: Ended = {}
        todo: list[tuple[Assertion, Found | None]] = []
        counts: Counter[tuple[str, VerdictOutcome]] = Counter()
        facts = PAIR_FACTS if case.is_pair else SKETCH_FACTS
        for row in rows:
            found = self._settled(row, case, ended, facts)
            if found is PASSED or found is NOT_APPLICABLE:
                counts[self._rule(row), found[0]] += 1
                continue
            if found is not None:
                note_end(row, case, found[0], ended)
            todo.append((_applying(row) if found is None and reads_of(row.applies) <= facts else row, found))
        return JudgeSteps(tuple(todo), counts)

    def _settled(self, row: Assertion, case: Case, ended: Ended, facts: frozenset[Fact]) -> Found | None:
        """Return the outcome of a row for all messages with this sketch; None if each message must be judged."""
        if row.reaction_to:
            return None if case.subcodes else NOT_APPLICABLE
        if case.is_pair and (case.request is None or case.response is None):
            return outcome_of(row, case, ended)
        if not reads_of(row.applies) <= facts:
            may_apply = MAY_APPLY.get(row.applies)
            return None if may_apply is None or may_apply(case) else NOT_APPLICABLE
        if not row.applies(case):
            return NOT_APPLICABLE
        if row.reads <= facts:
            return outcome_of(row, case, ended)
        return None


@cache
def _applying(row: Assertion) -> Assertion:
    return replace(row, applies=always)
