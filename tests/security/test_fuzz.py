"""Some of the attacks by chance on each entry point; `make fuzz` carries out more, and others each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
from fuzz.row import MIB, Case, Row
from fuzz.rows import ROWS
from fuzz.running import SETTLED, FailedError, run

SEED = 20261123


@pytest.mark.parametrize("row", [pytest.param(each, id=each.name) for each in ROWS.values() if each.gate])
def test_attacks(row: Row) -> None:
    """Each case holds what it must, within its time and memory, and others are served between them."""
    outcome = run(row, SEED, row.gate)
    assert outcome.cases == row.gate
    assert len(outcome.became) > 1  # not all of them are turned away at the door


class Leaking:
    """Takes memory for each case, and keeps it or not."""

    def __init__(self, take: Callable[[], object], *, keeps: bool) -> None:
        self._take = take
        self._keeps = keeps
        self._kept: list[object] = []

    def make(self, chance: Random) -> Case:
        return Case(0, self._carry_out)

    def _carry_out(self) -> str:
        taken = self._take()
        if self._keeps:
            self._kept.append(taken)
        return "done"

    def look(self) -> None:
        """There is nobody else."""


@pytest.mark.parametrize("take", [lambda: bytes(MIB // 4), lambda: [f"{number}" for number in range(3000)]])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_leak_is_found(take: Callable[[], object], keeps: bool) -> None:
    """What is kept of each case is counted, few large pieces or many small ones; what was let go of is not."""

    @contextmanager
    def opens() -> Iterator[Leaking]:
        yield Leaking(take, keeps=keeps)

    row = Row(name="leaking", holds="nothing is kept", opens=opens, gate=0)
    if keeps:
        with pytest.raises(FailedError, match="has grown by"):
            run(row, SEED, SETTLED + 300)
    else:
        assert run(row, SEED, SETTLED + 300).grown < 8 * MIB
