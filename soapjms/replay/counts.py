"""Counts of exchanges that were not judged: what the one that was judged of each shape stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from brokers.message import Destination, DestinationKind
from soapjms.replay import plan
from soapjms.replay.findings import service_place
from soapjms.replay.summary import (
    BACKWARDS,
    MAX_SPANS,
    MESSAGES,
    WIDTH_MICROSECONDS,
    RunTally,
    Timeline,
)

RECORDS: Final = ("records",)


class ShapeCounts:
    """What each exchange of a shape adds to the counts of a run, besides times and the number of its records.

    Attributes:
        tally: its counts.
        at_place: its counts at the destination of its service.
    """

    __slots__ = ("at_place", "tally")

    def __init__(self, tally: RunTally) -> None:
        ((_, seen),) = tally.places.items()
        self.at_place = Counter({path: number for path, number in seen.items() if path[0] != "latency"})
        counts = Counter({path: number for path, number in tally.counts.items() if path != RECORDS})
        self.tally = RunTally(counts=counts, notes=tally.notes)


def add_counted(
    tally: RunTally, sound: Mapping[str, ShapeCounts], rows: Callable[[str], Iterator[tuple[Any, ...]]]
) -> None:
    """Add the counted exchanges to the counts of a run.

    Args:
        tally: the counts.
        sound: what each exchange adds, by the place of the one that was judged of its shape.
        rows: returns the rows that a query of the plan finds.
    """
    ((records, first, last),) = [*rows(plan.ENDS)]
    if not records:
        return
    tally.count(*RECORDS, by=records)
    for example, group in groupby(rows(plan.TIMES), key=itemgetter(0)):
        times = Counter[str]()
        for _, kind, name, exchanges in group:
            times[_place(kind, name)] += exchanges
        tally.add_times(sound[example].tally, sound[example].at_place, times)
    level = 0
    while next(rows(plan.number_of(plan.spans(WIDTH_MICROSECONDS[level]))))[0] > MAX_SPANS:
        level += 1
    width = WIDTH_MICROSECONDS[level]
    spans = {beginning // width: Counter({MESSAGES: messages}) for beginning, messages in rows(plan.spans(width))}
    for beginning, bin_, calls in rows(plan.latencies(width)):
        spans[beginning // width][BACKWARDS if bin_ is None else f"latency/{bin_}"] += calls
    for kind, name, bin_, calls in rows(plan.LATENCIES):
        tally.add_latency(_place(kind, name), bin_, calls)
    tally.timeline.add(Timeline(level, spans, first, last))


def _place(kind: str | None, name: str | None) -> str:
    """Return the destination as counts by destination name it."""
    return service_place(None if kind is None else Destination(DestinationKind(kind), name))
