"""What happened when: messages, violations, and how long responses took, in spans of time.

Nobody knows beforehand how much time a log covers. The spans begin narrow and widen as they become many; how wide they
end depends on the times alone, so that parts of a run add up to the same spans however its log was cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from soapjms.protocol.record import format_time
from soapjms.replay.packing import EPOCH, MICROSECOND

SPANS: Final = 400
"""How many spans with something in them are kept apart."""

_SECONDS: Final = (0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600, 10800, 43200)
_DAYS: Final = (1, 7, 28, 364, 3640, 36400)
WIDTHS: Final = (*(timedelta(seconds=each) for each in _SECONDS), *(timedelta(days=each) for each in _DAYS))
"""How wide a span may be. Each divides the next; all the years of a calendar fit into `SPANS` of the last."""
RATIOS: Final = tuple(wide // narrow for narrow, wide in pairwise(WIDTHS))

MESSAGES: Final = "messages"
BACKWARDS: Final = "backwards"
"""Exchanges whose response was captured before the request: clocks that do not agree."""


def latency_bin(taken: timedelta) -> int:
    """Return the number of the bin that a latency falls into: four to each doubling, from a microsecond up."""
    microseconds = taken // MICROSECOND
    exponent = max(0, microseconds.bit_length() - 3)
    return 4 * exponent + (microseconds >> exponent)


def latency_of(number: int) -> timedelta:
    """Return the middle of a bin; it is within 12.5 % of any latency in it."""
    exponent = max(0, number // 4 - 1)
    return ((number - 4 * exponent << exponent) + ((1 << exponent) >> 1)) * MICROSECOND


def quantiles(bins: Counter[int], parts: Iterable[float]) -> list[timedelta]:
    """Return the latencies below which the given parts of all are; none where there is no latency."""
    total = bins.total()
    return [latency_of(_bin_at(bins, part * total)) for part in parts] if total else []


def _bin_at(bins: Counter[int], rank: float) -> int:
    seen = 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= rank:
            break
    return number


@dataclass(slots=True)
class Timeline:
    """Counts by span of time; parts add up in any order.

    Attributes:
        level: the spans are as wide as `WIDTHS[level]`, and begin at multiples of it since 1970.
        spans: by number of the span: how often each thing was seen; a latency under `latency/BIN`.
        first: when the first message was captured, None before there is one.
        last: when the last one was.
    """

    level: int = 0
    spans: dict[int, Counter[str]] = field(default_factory=dict)
    first: datetime | None = None
    last: datetime | None = None

    @property
    def width(self) -> timedelta:
        """How wide the spans are."""
        return WIDTHS[self.level]

    def message(self, time: datetime) -> None:
        """Count a message."""
        self.count(time, MESSAGES)
        self.first = time if self.first is None or time < self.first else self.first
        self.last = time if self.last is None or time > self.last else self.last

    def latency(self, asked: datetime, answered: datetime) -> int | None:
        """Count how long a response took, at the time of its request; return its bin, None where time ran backwards."""
        taken = answered - asked
        number = None if taken < timedelta(0) else latency_bin(taken)
        self.count(asked, BACKWARDS if number is None else f"latency/{number}")
        return number

    def count(self, time: datetime, what: str) -> None:
        """Count anything else."""
        number = (time - EPOCH) // WIDTHS[self.level]
        span = self.spans.get(number)
        if span is None:
            span = self.spans[number] = Counter()
        span[what] += 1
        if len(self.spans) > SPANS:
            self._settle()

    def add(self, other: Timeline) -> None:
        """Add another part's counts."""
        self._widen_to(max(self.level, other.level))
        ratio = WIDTHS[self.level] // WIDTHS[other.level]
        for number, span in other.spans.items():
            self.spans.setdefault(number // ratio, Counter()).update(span)
        self._settle()
        self.first = min((each for each in (self.first, other.first) if each is not None), default=None)
        self.last = max((each for each in (self.last, other.last) if each is not None), default=None)

    def _settle(self) -> None:
        while len(self.spans) > SPANS:
            self._widen_to(self.level + 1)

    def _widen_to(self, level: int) -> None:
        while self.level < level:
            ratio, before, self.spans = RATIOS[self.level], self.spans, {}
            for number, span in before.items():
                self.spans.setdefault(number // ratio, Counter()).update(span)
            self.level += 1

    def latencies(self) -> Counter[int]:
        """Return how many responses took how long, over the whole time."""
        return sum((latencies_of(span) for span in self.spans.values()), Counter[int]())

    def to_members(self) -> dict[str, Any]:
        """Return what JSON can write."""
        return {
            "level": self.level,
            "first": None if self.first is None else format_time(self.first),
            "last": None if self.last is None else format_time(self.last),
            "spans": [[number, dict(sorted(span.items()))] for number, span in sorted(self.spans.items())],
        }

    @classmethod
    def from_members(cls, members: dict[str, Any]) -> Timeline:
        """Read what `to_members` returned, after JSON."""
        ends = (members["first"], members["last"])
        first, last = (None if each is None else datetime.fromisoformat(each) for each in ends)
        return cls(members["level"], {number: Counter(span) for number, span in members["spans"]}, first, last)


def latencies_of(span: Counter[str]) -> Counter[int]:
    """Return how many responses took how long, of one span."""
    named = ((name.partition("/"), number) for name, number in span.items())
    return Counter({int(bin_): number for (kind, _, bin_), number in named if kind == "latency"})
