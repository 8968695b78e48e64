"""Mutated messages through everything that reads messages, and garbled lines of capture logs.

Hypothesis draws them, a hundred for each seed; what fails is shrunk and shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Final

from fuzz_kit import DIALECTS, Tally, drive, lines, messages, read_line
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from brokers.message import Message
from fuzz.row import KIB, MIB, Case, Row
from fuzz.running import forget_most, memory

BATCH: Final = 100
LINES_OF_BATCH: Final = 10
QUIET: Final = settings(
    max_examples=BATCH, deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
)
SECONDS: Final = 2.0
"""Of processor time for each 64 KiB begun of a message, which three nodes, the judge and the record read."""
SLACK: Final = 16 * MIB
RATIO: Final = 40.0
"""Octets of memory for each of a message, beyond the slack."""


def bounded(octets: int, work: Callable[[], object]) -> None:
    """Do something with a message, within its time and memory."""
    forget_most()
    resident, began = memory("VmRSS"), time.process_time()
    work()
    took, rose = time.process_time() - began, memory("VmHWM") - resident
    assert took <= SECONDS * (1 + octets // (64 * KIB)), f"{took:.2f} s of processor time for {octets} octets"
    assert rose <= SLACK + RATIO * octets, f"{rose / MIB:.1f} MiB of memory for {octets} octets"


def size_of(message: Message) -> int:
    """Return about as many octets as a message has."""
    body = message.body
    inside = len(body) if isinstance(body, str | bytes | memoryview) else len(repr(body))
    return inside + sum(len(each.name) + len(f"{each.value}") for each in message.properties)


class Reading:
    """All that reads messages, and what became of those that it has read."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def make(self, chance: Random) -> Case:
        """Draw a batch."""
        number, tally = chance.randrange(1 << 62), Tally()

        @seed(number)
        @QUIET
        @given(messages(), st.sampled_from(DIALECTS), st.booleans())
        def drive_messages(message: Message, dialect: str, strict: bool) -> None:
            bounded(size_of(message), lambda: drive(message, dialect, strict, tally))

        @seed(number)
        @settings(QUIET, max_examples=LINES_OF_BATCH)
        @given(lines())
        def read_lines(line: str) -> None:
            bounded(len(line), lambda: read_line(line))

        def carry_out() -> str:
            drive_messages()
            read_lines()
            new = tally.became.keys() - self._known
            self._known |= new
            return f"batches with {len(new)} new outcomes"

        return Case(0, carry_out)

    def look(self) -> None:
        """There is nobody else."""


ROW: Final = Row(
    name="messages",
    holds="each message is accepted or refused in its time and memory, and nothing escapes",
    opens=lambda: nullcontext(Reading()),
    cases=20_000,
    gate=300,
    step=BATCH,
    seconds=120.0,
    slack=256 * MIB,
)
