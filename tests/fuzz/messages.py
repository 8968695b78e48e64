"""Mutated messages through everything that reads messages, and garbled lines of capture logs.

Hypothesis draws them, a thousand for each seed; what fails is shrunk and shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from fuzz_kit import DIALECTS, Tally, drive, lines, messages, read_line
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from brokers.message import Message
from fuzz.row import MIB, Case, Row

BATCH: Final = 1000
LINES_OF_BATCH: Final = 100
QUIET: Final = settings(
    max_examples=BATCH, deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
)


class Reading:
    """All that reads messages."""

    def make(self, chance: Random) -> Case:
        """Draw a batch."""
        number = chance.randrange(1 << 62)

        @seed(number)
        @QUIET
        @given(messages(), st.sampled_from(DIALECTS), st.booleans())
        def drive_messages(message: Message, dialect: str, strict: bool) -> None:
            drive(message, dialect, strict, Tally())

        @seed(number)
        @settings(QUIET, max_examples=LINES_OF_BATCH)
        @given(lines())
        def read_lines(line: str) -> None:
            read_line(line)

        def carry_out() -> str:
            drive_messages()
            read_lines()
            return f"batches of {BATCH} messages and {LINES_OF_BATCH} lines of a log"

        return Case(0, carry_out)

    def look(self) -> None:
        """There is nobody else."""


@contextmanager
def reading() -> Iterator[Reading]:
    """Nothing has to be there."""
    yield Reading()


ROW: Final = Row(
    name="messages",
    holds="each message is accepted or refused, and nothing escapes",
    opens=reading,
    cases=100_000,
    gate=0,
    step=BATCH,
    seconds=600.0,
    slack=256 * MIB,
    growth=256 * MIB,
)
