"""Judging many exchanges, of which most are like others: what follows from the sketch of one is worked out once.

A sketch is what messages have in common by the thousand: their properties, message type, delivery mode, priority. A row
is settled by it where neither its test nor its check looks at anything else. The others, on bodies, ids, destinations
and times, are judged message by message.

`judge` stays the one that says what is right: this gives the same verdicts.

Spec: capture record, "Verdicts".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from brokers.message import MessageType
from soapjms.protocol.assertions import actions, bodies, headers, messages, precedence
from soapjms.protocol.assertions.judge import (
    NOT_APPLICABLE,
    PASSED,
    Ended,
    broken_verdict,
    judge_readings,
    note_end,
    outcome_of,
    rows_for,
)
from soapjms.protocol.assertions.model import BROKEN, Assertion, Case, Need, Outcome, Setting, Verdict, always
from soapjms.protocol.assertions.pairs import copied, is_jndi, same_delivery_mode
from soapjms.protocol.assertions.table import ASSERTIONS
from soapjms.protocol.described import Described
from soapjms.protocol.names import Subcode
from soapjms.protocol.properties import Carrier
from soapjms.protocol.reading import Reading
from soapjms.protocol.record import Direction

BY_SKETCH: Final[frozenset[Callable[[Case], object]]] = frozenset(
    {
        always,
        actions.actions_match,
        actions.has_both_actions,
        actions.is_multipart_with_action,
        actions.is_soap12_with_action,
        actions.soap_action_present,
        copied,
        headers.delivery_mode,
        headers.destination_present,
        headers.has_target_service,
        headers.ignores_reply_topic,
        headers.is_one_way,
        headers.is_request,
        headers.must_be_excluded,
        headers.owes_request_uri,
        headers.priority,
        headers.reply_to_present,
        headers.request_uri_present,
        headers.should_be_excluded,
        headers.shows_request_uri,
        headers.states_reply_queue,
        headers.states_reply_topic,
        headers.states_time_to_live,
        headers.variant_present,
        headers.variant_supported,
        headers.well_formed,
        is_jndi,
        messages.binding_version,
        messages.content_encoding_supported,
        messages.content_type_present,
        messages.fault_flag_type,
        messages.has_content_encoding,
        messages.has_fault_flag,
        messages.is_multipart,
        messages.is_simple,
        messages.media_type_known,
        messages.message_format,
        messages.soap_action,
        messages.states_soap_action,
        messages.states_target_service,
        messages.target_service,
        same_delivery_mode,
    }
)
"""The tests and checks that look at nothing but what is in the sketches."""

MAY_APPLY: Final[Mapping[Callable[[Case], bool], Callable[[Case], bool]]] = {
    bodies.has_charset: lambda case: case.message.is_simple and case.message.charset is not None,
    bodies.has_no_charset: lambda case: case.message.is_simple and case.message.charset is None,
    bodies.is_text_with_charset: lambda case: isinstance(case.message.message.body, str),
    precedence.repeats_a_parameter: lambda case: len(_parameters(case)) > 1,
}
"""Tests that look further, and what a sketch tells of them: False where they cannot hold."""


def _parameters(case: Case) -> Sized:
    return () if case.message.request_uri is None else case.message.request_uri.parameters


NEEDS_BY_SKETCH: Final = frozenset({Need.MESSAGE_TYPE, Need.TYPES, Need.DELIVERY_MODE, Need.PRIORITY})

MOST: Final = 4096
"""Kinds of exchanges that are remembered; beyond them all is forgotten, and begun again."""


class Sketch(NamedTuple):
    """What a message shares with many others. `described` stands for all properties."""

    described: Described
    message_type: MessageType
    body: type
    is_empty: bool
    truncated: bool
    untyped: bool
    direction: Direction | None
    delivery_mode: int | None
    priority: int | None
    has_reply_to: bool


Kind = tuple[Carrier | None, Sketch | None, Sketch | None]
"""What tells exchanges apart for the memory: the carrier of the first message, the sketches of both."""


def sketch_of(reading: Reading) -> Sketch:
    """Return the sketch of a message."""
    message, record = reading.message, reading.record
    return Sketch(
        reading.described,
        message.message_type,
        type(message.body),
        not message.size,
        record.truncated,
        message.untyped,
        record.direction,
        message.delivery_mode,
        message.priority,
        message.reply_to is not None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What is left to do for one message or pair of a kind, in the order of the table.

    Attributes:
        todo: rows with what they are known to end in, None where they have to be judged.
        counts: how the rows end that are not in `todo`: they passed, or do not apply.
    """

    todo: tuple[tuple[Assertion, tuple[Outcome, str | None] | None], ...]
    counts: Counter[tuple[str, Outcome]]


class Plan(NamedTuple):
    """The steps for the messages of an exchange by carrier, then for the pair: if the request calls for no fault."""

    messages: tuple[tuple[Carrier, Steps], ...]
    pair: Steps | None
    accused: Steps | None
    """For the pair if it does call for one."""


class Judge:
    """Judges exchanges one after the other, by one setting, and counts how their assertions end.

    Not thread-safe.

    Attributes:
        setting: what is taken for granted of all of them.
        exchanges: how many there were; for the caller to count.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.exchanges = 0
        self._plans: dict[Kind, Plan | None] = {}
        self._seen: Counter[tuple[Steps, tuple[tuple[int, Outcome], ...]]] = Counter()
        self._counts: Counter[tuple[str, Outcome]] = Counter()

    def findings(self, messages: dict[Carrier, Reading]) -> Iterator[Verdict]:
        """Yield what `judge_readings` yields of all assertions, without those that passed or do not apply.

        All are counted, once the iterator has ended.
        """
        if not all(each.described.is_short for each in messages.values()):
            return self._in_full(messages)
        request = messages.get(Carrier.REQUEST) or messages.get(Carrier.ONE_WAY)
        response = messages.get(Carrier.RESPONSE)
        kind = (
            next(iter(messages)),
            None if request is None else sketch_of(request),
            None if response is None else sketch_of(response),
        )
        plan = self._plans.get(kind)
        if plan is None:
            if not self._is_repeated(kind):
                return self._in_full(messages)
            plan = self._plans[kind] = self._plan(messages, request, response)
        return self._by_plan(plan, messages, request, response)

    def _is_repeated(self, kind: Kind) -> bool:
        """Say whether a kind comes for the second time: a plan for one that comes once costs more than it saves."""
        if kind in self._plans:
            return True
        if len(self._plans) >= MOST:
            self._add_up()
            self._plans.clear()
        self._plans[kind] = None
        return False

    def counts(self) -> Counter[tuple[str, Outcome]]:
        """Return how often the assertions ended how, over all exchanges so far, by the id that the profile has."""
        self._add_up()
        return self._counts

    def _add_up(self) -> None:
        for (steps, ends), number in self._seen.items():
            found = dict(ends)
            for name_and_outcome, each in steps.counts.items():
                self._counts[name_and_outcome] += each * number
            for index, (row, _) in enumerate(steps.todo):
                self._counts[self._id(row), found.get(index, Outcome.PASSED)] += number
        self._seen.clear()

    def _id(self, row: Assertion) -> str:
        return self.setting.profile.assertion_id(row.id) or row.id

    def _in_full(self, messages: dict[Carrier, Reading]) -> Iterator[Verdict]:
        for verdict in judge_readings(self.setting, messages, ASSERTIONS):
            self._counts[verdict.assertion, verdict.outcome] += 1
            if verdict.outcome not in SILENT:
                yield verdict

    # By a plan

    def _by_plan(
        self, plan: Plan, messages: dict[Carrier, Reading], request: Reading | None, response: Reading | None
    ) -> Iterator[Verdict]:
        subcodes: dict[str, Subcode] = {}
        spared: set[Subcode] = set()
        for carrier, steps in plan.messages:
            case = Case(self.setting, messages[carrier], carrier, request, response, subcodes, spared)
            yield from self._take(steps, case)
        steps_of_pair = plan.accused if subcodes else plan.pair
        if steps_of_pair is not None:
            message = response or request
            assert message is not None
            case = Case(self.setting, message, Carrier.RESPONSE, request, response, subcodes, spared, is_pair=True)
            yield from self._take(steps_of_pair, case)

    def _take(self, steps: Steps, case: Case) -> Iterator[Verdict]:
        """Take the steps for one message or pair, and count how they end."""
        ended: Ended = {}
        ends: tuple[tuple[int, Outcome], ...] = ()
        for index, (row, known) in enumerate(steps.todo):
            found = known or outcome_of(row, case, ended)
            if found is PASSED:
                continue
            if found is not NOT_APPLICABLE:
                note_end(row, case, found[0], ended)
                verdict = verdict_of(row, case, found)
                ends = (*ends, (index, verdict.outcome))
                yield verdict
            else:
                ends = (*ends, (index, found[0]))
        self._seen[steps, ends] += 1

    # Making a plan

    def _plan(self, messages: dict[Carrier, Reading], request: Reading | None, response: Reading | None) -> Plan:
        """Settle what the sketches of these messages settle."""
        name, known = self.setting.profile.name, self.setting.properties is not None
        subcodes: dict[str, Subcode] = {}
        steps = []
        for carrier, message in messages.items():
            case = Case(self.setting, message, carrier, request, response, subcodes)
            steps.append((carrier, self._steps(case, rows_for(ASSERTIONS, carrier, name, known))))
        if Carrier.ONE_WAY in messages:
            return Plan(tuple(steps), None, None)
        last = response or request
        assert last is not None
        case = Case(self.setting, last, Carrier.RESPONSE, request, response, is_pair=True)
        rows = rows_for(ASSERTIONS, None, name)
        unaccused = self._steps(case, rows, accused=False)
        return Plan(tuple(steps), unaccused, self._steps(case, rows, accused=True))

    def _steps(self, case: Case, rows: tuple[Assertion, ...], *, accused: bool = False) -> Steps:
        ended: Ended = {}
        todo: list[tuple[Assertion, tuple[Outcome, str | None] | None]] = []
        counts: Counter[tuple[str, Outcome]] = Counter()
        for row in rows:
            found = self._settled(row, case, ended, accused)
            if found is PASSED or found is NOT_APPLICABLE:
                counts[self._id(row), found[0]] += 1
                continue
            if found is not None:
                note_end(row, case, found[0], ended)
            todo.append((replace(row, applies=always) if found is None and row.applies in BY_SKETCH else row, found))
        return Steps(tuple(todo), counts)

    def _settled(self, row: Assertion, case: Case, ended: Ended, accused: bool) -> tuple[Outcome, str | None] | None:
        """Return how a row ends for all exchanges of this kind, None if it has to be judged for each of them."""
        if row.reaction_to:
            return None if accused else NOT_APPLICABLE
        if case.is_pair and (case.request is None or case.response is None):
            return outcome_of(row, case, ended)
        if row.applies not in BY_SKETCH:
            may_apply = MAY_APPLY.get(row.applies)
            return None if may_apply is None or may_apply(case) else NOT_APPLICABLE
        if not row.applies(case):
            return NOT_APPLICABLE
        if row.check in BY_SKETCH and NEEDS_BY_SKETCH.issuperset(row.needs):
            return outcome_of(row, case, ended)
        return None


SILENT: Final = frozenset({Outcome.PASSED, Outcome.NOT_APPLICABLE})


def verdict_of(row: Assertion, case: Case, found: tuple[Outcome, str | None]) -> Verdict:
    """Make the verdict of a row that neither passed nor was not applicable."""
    outcome, reason = found
    if outcome in BROKEN:
        return broken_verdict(row, case, outcome, reason)
    name = case.setting.profile.assertion_id(row.id) or row.id
    return Verdict(name, row.level, outcome, reason, case.message.record)
