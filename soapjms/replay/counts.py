"""Counts of exchanges that were not judged: what the one that was judged of each shape stands for."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from brokers.message import Destination, DestinationKind
from soapjms.replay import plan
from soapjms.replay.excerpts import service_place
from soapjms.replay.flat_records import FlatRecord, Unpacker
from soapjms.replay.parquet import to_batch
from soapjms.replay.parties import RESPONDING, Ends, Party, PlaceCounts
from soapjms.replay.summary import (
    BACKWARDS,
    MAX_SPANS,
    MESSAGES,
    WIDTH_MICROSECONDS,
    RunTally,
    Timeline,
)
from soapjms.replay.terms import ReplayTerms
from soapjms.replay.verdicts import counts_if_sound

RECORDS: Final = ("records",)
SOUND: Final = pa.schema([("shape", pa.binary()), ("example", pa.string())])
"""A shape that breaks nothing, and a key of `SoundExamples.counts`."""


class ShapeCounts:
    """What each exchange of a shape adds to the counts of a run, besides times and the number of its records.

    Attributes:
        tally: its counts.
        at_place: what was seen at the destination of its service.
    """

    __slots__ = ("at_place", "tally")

    def __init__(self, tally: RunTally) -> None:
        ((_, seen),) = tally.places.items()
        parties = {key: Party(party.messages, rules=party.rules) for key, party in seen.parties.items()}
        self.at_place = PlaceCounts(parties, seen.answered)
        counts = Counter({path: number for path, number in tally.counts.items() if path != RECORDS})
        self.tally = RunTally(counts=counts, notes=tally.notes)

    def add_to(self, place: PlaceCounts, times: int, asked: Ends, answered: Ends) -> None:
        """Add exchanges to what was seen at a destination.

        Args:
            place: the destination.
            times: how many there are.
            asked: when their requests or one-way messages were captured.
            answered: when their responses were captured.
        """
        place.answered += self.at_place.answered * times
        for (node, stack), party in self.at_place.parties.items():
            place.party(node, stack).add_sound(party, times, answered if node == RESPONDING else asked)


def packed_counts(keyed: Iterable[tuple[str, FlatRecord]], terms: ReplayTerms) -> Iterator[tuple[str, bytes]]:
    """Judge one exchange of each shape; yield the keys of those that break nothing, with their `ShapeCounts`, pickled.

    Args:
        keyed: the records with their keys, as for `judge_all`.
        terms: how to judge.
    """
    unpack = Unpacker()
    for key, group in groupby(keyed, key=itemgetter(0)):
        found = counts_if_sound((unpack.record(flat) for _, flat in group), terms)
        if found is not None:
            yield key, pickle.dumps(ShapeCounts(found))


class SoundExamples(NamedTuple):
    """The exchanges that were judged of shapes and break nothing, by their keys.

    Attributes:
        like: for each the first one that adds the same to the counts; many shapes differ in nothing that is counted.
        counts: what each of these first ones adds.
    """

    like: dict[str, str]
    counts: dict[str, ShapeCounts]

    def shapes(self, examples: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
        """Return the shapes that break nothing, as rows of `SOUND`.

        Args:
            examples: shapes, each with its example.
        """
        return to_batch([(shape, self.like[example]) for shape, example in examples if example in self.like], SOUND)


def unpacked_counts(packed: Iterable[tuple[str, bytes]]) -> SoundExamples:
    """Return what tasks found.

    Args:
        packed: what they yield from `packed_counts`.
    """
    first: dict[bytes, str] = {}
    like = {example: first.setdefault(octets, example) for example, octets in packed}
    return SoundExamples(like, {example: pickle.loads(octets) for octets, example in first.items()})  # noqa: S301  # ours


def add_counted(
    tally: RunTally, sound: Mapping[str, ShapeCounts], rows: Callable[[str], Iterator[tuple[Any, ...]]]
) -> None:
    """Add the counted exchanges to the counts of a run.

    Args:
        tally: the counts.
        sound: what each exchange adds, by the example in its row.
        rows: returns the rows that a query of the plan finds.
    """
    ((records, first, last),) = [*rows(plan.ENDS)]
    if not records:
        return
    tally.count(*RECORDS, by=records)
    for example, group in groupby(rows(plan.TIMES), key=itemgetter(0)):
        total = 0
        for _, kind, name, exchanges, *times in group:
            total += exchanges
            sound[example].add_to(tally.place(_place(kind, name)), exchanges, Ends(*times[:2]), Ends(*times[2:]))
        tally.add_times(sound[example].tally, total)
    level = 0
    while next(rows(plan.number_of(plan.spans(WIDTH_MICROSECONDS[level]))))[0] > MAX_SPANS:
        level += 1
    width = WIDTH_MICROSECONDS[level]
    spans = {beginning // width: Counter({MESSAGES: messages}) for beginning, messages in rows(plan.spans(width))}
    for beginning, bin_, calls in rows(plan.latencies(width)):
        spans[beginning // width][BACKWARDS if bin_ is None else f"latency/{bin_}"] += calls
    for kind, name, bin_, calls in rows(plan.LATENCIES):
        tally.place(_place(kind, name)).latencies[bin_] += calls
    tally.timeline.add(Timeline(level, spans, first, last))


def _place(kind: str | None, name: str | None) -> str:
    """Return the destination as counts by destination name it."""
    return service_place(None if kind is None else Destination(DestinationKind(kind), name))
