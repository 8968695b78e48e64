"""Some hundreds of mutated messages through both nodes, the judge, the record and the pairing; `make fuzz` has more."""

from __future__ import annotations

from fuzz_kit import DIALECTS, Tally, drive, lines, messages, read_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokers.message import Message

QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(messages(), st.sampled_from(DIALECTS), st.booleans())
def test_mutated_messages(message: Message, dialect: str, strict: bool) -> None:
    """Nothing that arrives raises; each is accepted or refused with a fault, in bounded time."""
    drive(message, dialect, strict, Tally())


@QUICK
@given(lines())
def test_garbled_lines(line: str) -> None:
    """A line of a capture log is a record, or InvalidRecordError says why not."""
    read_line(line)
