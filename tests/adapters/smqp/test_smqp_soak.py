"""Many subscribers, kills, mutated sessions: a tenth of what `make soak` runs."""

from __future__ import annotations

from pathlib import Path

from smqp_mutations import mutate_sessions
from smqp_soak import soak


def test_SM_165_SM_221_a_server_that_is_killed(tmp_path: Path) -> None:
    """A hundred subscribers have each message, once, in order, though the server is killed in between."""
    tally = soak(100, 20, 1, tmp_path)
    assert (tally["deliveries"], tally["kills"]) == (2000, 1)


def test_mutated_sessions() -> None:
    """Each is answered with codes of the table; the server, and what others publish, come to no harm."""
    tally = mutate_sessions(1000, 20260101)
    assert tally["sessions"] == 1000
    assert tally["unharmed"] == 20
    assert {"200", "400", "401", "404", "501"} <= set(tally)
