"""Calls one after another, and their lines in the order in which a log has them.

Memory is that of the lines of some seconds, and of the answers that come late.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import accumulate
from random import Random
from typing import Any, Final

from soapjms.generate.calls import Call, Caller
from soapjms.generate.capturing import SECOND, Line, lines
from soapjms.generate.shapes import Answer, draw
from soapjms.generate.table import VIOLATIONS
from soapjms.generate.violations import Violation

START: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)
MESSAGES_OF_A_CALL: Final = 1.85
EARLIEST: Final = 30 * SECOND
"""How long before a call a line of it may stand: that of the request that it repeats."""


class Chances:
    """Draws violations by their shares."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rows = [VIOLATIONS[name] for name in rates]
        self._bounds = list(accumulate(rates.values()))

    def draw(self, random: Random) -> Violation | None:
        """Draw one, mostly none."""
        place = bisect(self._bounds, random.random())
        return self._rows[place] if place < len(self._rows) else None


def calls(caller: Caller, random: Random, chances: Chances, messages: int, pace: float) -> Iterator[Call]:
    """Make calls that have so many messages together, at a pace in messages a second."""
    sent, left = int(START.timestamp()) * SECOND, messages
    while left > 0:
        violation = chances.draw(random) if left > 1 else None
        wanted: dict[str, Any] = {"answer": Answer.NONE} if left == 1 else {}
        if violation is not None:
            wanted = {"redelivered": False, **violation.wants}
        if violation is not None or left < 3:
            wanted["retried"] = False
        call = caller.call(draw(random, wanted), sent, violation)
        left -= len(call.messages)
        sent += int(random.expovariate(pace / MESSAGES_OF_A_CALL / SECOND)) + 1
        yield call


class Traffic:
    """Lines that are still to be written, in the order in which they will be.

    Args:
        disorder: seconds by which a line may stand later than its time says.
    """

    def __init__(self, random: Random, disorder: float) -> None:
        self._random = random
        self._disorder = disorder * SECOND
        self._waiting: list[tuple[int, int, Line]] = []
        self._count = 0

    def add(self, call: Call) -> Iterator[Line]:
        """Take in a call, and give out what is written before it."""
        for line in lines(call, self._random):
            self._count += 1
            written = line.time + int(self._random.random() * self._disorder)
            heappush(self._waiting, (written, self._count, line))
        while self._waiting and self._waiting[0][0] < call.sent - EARLIEST:
            yield heappop(self._waiting)[2]

    def rest(self) -> Iterator[Line]:
        """Give out what is left."""
        while self._waiting:
            yield heappop(self._waiting)[2]
