"""Some of the attacks by chance on each entry point; `make fuzz` carries out more, and others each time."""

from __future__ import annotations

import pytest
from fuzz.row import Row
from fuzz.rows import ROWS
from fuzz.running import run

SEED = 20261123


@pytest.mark.parametrize("row", [pytest.param(each, id=each.name) for each in ROWS.values() if each.gate])
def test_attacks(row: Row) -> None:
    """Each case holds what it must, within its time and memory, and others are served between them."""
    outcome = run(row, SEED, row.gate)
    assert outcome.cases == row.gate
    assert len(outcome.became) > 1  # not all of them are turned away at the door
