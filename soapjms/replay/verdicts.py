"""Judging a stream of records: one generator, which every engine runs over its sorted records.

An engine only moves data: it groups records by correlation key, in order of time, and writes the rows made here.

Spec: capture record, version 1, "Copies and pairing" and "Verdicts".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from soapjms.protocol.assertions import (
    Judge,
    Memory,
    Setting,
    Verdict,
    habits,
    readings,
)
from soapjms.protocol.assertions.judge import mistake_of
from soapjms.protocol.exchange import Exchange, Pattern, pair
from soapjms.protocol.limits import Limits
from soapjms.protocol.names import Mep
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Record
from soapjms.protocol.responding import reaction
from soapjms.replay.excerpts import destination_text, whole
from soapjms.replay.findings import Scene
from soapjms.replay.flat_records import FlatRecord, Unpacker, microseconds
from soapjms.replay.parties import BROKEN, PartyKey
from soapjms.replay.summary import RunTally
from soapjms.replay.terms import ReplayTerms


class VerdictRow(NamedTuple):
    """One row of verdicts/, in the order of its columns. A destination is written as `queue:orders`."""

    exchange_id: str
    message_id: str | None
    time: datetime
    destination: str | None
    assertion: str
    level: str
    verdict: str
    reason: str | None
    expected_subcodes: list[str]
    observed_subcode: str | None


def judge_all(keyed: Iterable[tuple[str, FlatRecord]], terms: ReplayTerms, tally: RunTally) -> Iterator[VerdictRow]:
    """Pair and judge records.

    Args:
        keyed: records with their keys: those of one key together, in order of time. Memory holds only one key's
            records within a window at a time.
        terms: how to pair and judge.
        tally: counts everything; it is complete when the iterator ends.

    Yields:
        a row for each verdict that has one.
    """
    unpack = Unpacker()
    judges: dict[int | None, Judge] = {}
    for _, group in groupby(keyed, key=itemgetter(0)):
        for exchange in _exchanges((unpack.record(flat) for _, flat in group), terms, judges, tally):
            yield from _judged(*exchange, tally)
        if any(judge.is_full for judge in judges.values()):
            _add_up(judges, tally)
    _add_up(judges, tally)


def counts_if_sound(records: Iterable[Record], terms: ReplayTerms) -> RunTally | None:
    """Pair and judge the records of one key; return the counts, or None if a verdict has a row."""
    judges: dict[int | None, Judge] = {}
    tally = RunTally()
    for scene, messages, judge in _exchanges(records, terms, judges, tally):
        if any(True for _ in judge.findings(messages, scene.parties)):
            return None
    _add_up(judges, tally)
    return tally


def _exchanges(
    records: Iterable[Record], terms: ReplayTerms, judges: dict[int | None, Judge], tally: RunTally
) -> Iterator[tuple[Scene, dict[Carrier, Reading], Judge]]:
    """Pair and count the records of one key; yield each exchange that is to be judged."""
    for exchange in pair(records, terms.window):
        messages = readings(exchange, terms.setting)
        _count(exchange, messages, terms.setting, tally)
        if messages:
            scene = Scene.of(exchange, messages)
            _see(scene, messages, tally)
            judge = _judge_for(messages.get(Carrier.REQUEST) or messages.get(Carrier.ONE_WAY), terms, judges)
            yield scene, messages, judge


def _memory_for(setting: Setting) -> Memory:
    return _shared_memory(setting.profile.name, setting.mep, setting.variants, setting.strict, setting.limits)


@lru_cache(maxsize=4)
def _shared_memory(
    profile_name: str, mep: Mep | None, variants: frozenset[str], strict: bool, limits: Limits
) -> Memory:
    """Return the memory that all judges with a setting share, so that no part of a Spark run begins with none."""
    return Memory()


def _judge_for(message: Reading | None, terms: ReplayTerms, judges: dict[int | None, Judge]) -> Judge:
    """Return the judge with the properties of the sender of a request or one-way message, as far as known."""
    number = terms.senders.find(message)
    judge = judges.get(number)
    if judge is None:
        known = terms.setting.properties if number is None else terms.senders.all[number].properties
        setting = replace(terms.setting, properties=known)
        judge = judges[number] = Judge(setting, None if known is not None else _memory_for(setting))
    judge.exchanges += 1
    return judge


def _add_up(judges: Mapping[int | None, Judge], tally: RunTally) -> None:
    for number, judge in judges.items():
        if number is not None:
            tally.count("sender", str(number), by=judge.exchanges)
            judge.exchanges = 0
        for (party, rule, outcome), times in judge.take_counts().items():
            assert isinstance(party, PartyKey)
            tally.judged(party, rule, outcome, times)


def _judged(scene: Scene, messages: dict[Carrier, Reading], judge: Judge, tally: RunTally) -> Iterator[VerdictRow]:
    broken: dict[Carrier, dict[str, Verdict]] = {}
    for verdict in judge.findings(messages, scene.parties):
        mistake = ""
        if verdict.outcome in BROKEN:
            earlier = broken.setdefault(scene.carrier(verdict), {})
            mistake = mistake_of(verdict, earlier, judge.setting)
            earlier[verdict.rule] = verdict
        tally.find(verdict, scene, judge.setting, mistake)
        yield _row(scene.exchange, verdict)
    for carrier, verdicts in broken.items():
        for outcome in {each.outcome for each in verdicts.values()}:
            tally.broke(scene.parties[carrier], outcome)


def _row(exchange: Exchange, verdict: Verdict) -> VerdictRow:
    message = verdict.record.message
    return VerdictRow(
        exchange_id=exchange.id,
        message_id=message.message_id,
        time=verdict.record.time,
        destination=destination_text(message.destination),
        assertion=verdict.assertion,
        level=str(verdict.level),
        verdict=str(verdict.outcome),
        reason=None if verdict.reason is None else whole(verdict.reason),
        expected_subcodes=[str(each) for each in verdict.expected_subcodes],
        observed_subcode=None if verdict.observed_subcode is None else whole(verdict.observed_subcode),
    )


def _count(exchange: Exchange, messages: dict[Carrier, Reading], setting: Setting, tally: RunTally) -> None:
    tally.count("records", by=exchange.records)
    tally.count("messages", by=len(exchange.messages))
    tally.count(*_kind(exchange))
    for code, text in habits(exchange, setting, messages):
        tally.note(code, text)
    outcome = reaction(exchange, setting, messages)
    if outcome is None:
        return
    if outcome.expected is not None:
        tally.count("expected", str(outcome.expected))
    if outcome.observed is not None:
        tally.count("observed", str(outcome.observed))
    tally.count("reaction", "unanswered" if outcome.agrees is None else "agree" if outcome.agrees else "disagree")


def _see(scene: Scene, messages: dict[Carrier, Reading], tally: RunTally) -> None:
    """Count the messages of an exchange by party and by time."""
    for carrier, message in messages.items():
        tally.see(scene.parties[carrier], microseconds(message.record.time))
    asked, answered = scene.exchange.request, scene.exchange.response
    if asked is not None and answered is not None:
        tally.answered(scene.place, microseconds(asked.time), microseconds(answered.time))


def _kind(exchange: Exchange) -> tuple[str, ...]:
    if exchange.pattern in ALONE:
        return (ALONE[exchange.pattern],)
    if exchange.unpaired:
        return ("unpaired", "responsesWithoutRequest" if exchange.request is None else "missingResponses")
    return ("exchanges",)


ALONE: Final = {Pattern.ONE_WAY: "one_way", Pattern.LATE_COPY: "lateCopies"}
