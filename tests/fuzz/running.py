"""Carrying out the cases of a row in this process, with an eye on time, memory, threads and the log."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from fuzz.row import MIB, Case, Row, Target

SETTLED: Final = 100
"""Cases after which the process has all that it keeps, so that its growth counts."""

STATUS: Final = Path("/proc/self/status")
BLOCK: Final = 128
"""Octets of a block of Python's own allocator, which says how many are held: a guess, as they have from 16 to 512."""


class FailedError(AssertionError):
    """A case did not hold what it must."""


@dataclass
class Outcome:
    """What came of a run."""

    cases: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    largest: int = 0
    grown: int = 0
    became: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        told = ", ".join(f"{times} {what}" for what, times in self.became.most_common())
        return (
            f"{self.cases} cases in {self.seconds:.0f} s, slowest {self.slowest:.3f} s of processor time, "
            f"most memory {self.largest / MIB:.1f} MiB, grown by {self.grown / MIB:.1f} MiB: {told}"
        )


class Trouble(logging.Handler):
    """Keeps what must not be: errors in the log, exceptions that end a thread or are lost in a finaliser."""

    def __init__(self, expected: str | None) -> None:
        super().__init__(logging.ERROR)
        self._expected = expected
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is logged as an error."""
        if self._expected is not None and re.search(self._expected, record.getMessage()):
            return
        cause = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self.found.append(f"logged: {record.getMessage()}\n{cause}")

    def note(self, what: str) -> Callable[[Any], None]:
        """Make a hook of `threading` or `sys`."""

        def hook(told: Any) -> None:
            lines = traceback.format_exception(told.exc_type, told.exc_value, told.exc_traceback)
            self.found.append(f"{what}: {''.join(lines)}")

        return hook


@contextmanager
def watched(expected: str | None) -> Iterator[Trouble]:
    """Keep trouble meanwhile."""
    trouble, root = Trouble(expected), logging.getLogger()
    hooks = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = trouble.note("a thread ended"), trouble.note("lost")
    root.addHandler(trouble)
    try:
        yield trouble
    finally:
        root.removeHandler(trouble)
        threading.excepthook, sys.unraisablehook = hooks


def memory(what: str) -> int:
    """Return octets of this process: `VmRSS` now, `VmHWM` at most since `forget_most`."""
    found = re.search(rf"{what}:\s+(\d+) kB", STATUS.read_text("ascii"))
    assert found is not None
    return int(found[1]) << 10


class Mallinfo(ctypes.Structure):
    """What glibc tells of its memory: `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def in_use() -> int:
    """Return about as many octets of this process as something holds: of C, and of Python.

    What is resident says less: both keep what was freed, in pieces among what is held, and glibc in a place of its own
    for each of some threads. Where threads come and go, as with each session of a client, that grows by tens of MiB in
    thousands of cases while nothing more is held.
    """
    gc.collect()
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:  # another C library
        return memory("VmRSS")
    tell.restype = Mallinfo
    told = tell()
    return int(told.uordblks + told.hblkhd) + sys.getallocatedblocks() * BLOCK


def forget_most() -> None:
    """Begin `VmHWM` anew."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def run(
    row: Row,
    seed: int,
    cases: int,
    *,
    seconds: float = float("inf"),
    begins: Callable[[int], None] = lambda seed: None,
    tells: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Carry out cases until there were enough, or so many seconds are over.

    Args:
        row: of the table.
        seed: of the first case; each further one has the next.
        cases: how many.
        seconds: after which no case begins.
        begins: told the seed of each case before it.
        tells: told now and then how far it is.

    Raises:
        FailedError: one did not hold; it names the seed.
    """
    outcome, began, before = Outcome(), time.monotonic(), gc.get_threshold()
    if row.thresholds is not None:
        gc.set_threshold(*row.thresholds)
    settled = 0
    try:
        with watched(row.expected) as trouble:
            with row.opens() as target:
                for number in range(0, cases, row.step):
                    if time.monotonic() - began > seconds:
                        break
                    each = seed + number // row.step
                    begins(each)
                    _one(row, target, each, outcome, trouble)
                    if number // row.step % row.look_every == row.look_every - 1:
                        _look(row, target, each, outcome)
                        outcome.seconds = time.monotonic() - began
                        tells(outcome)
                    if number // row.step == SETTLED:
                        settled = in_use()
                _look(row, target, each, outcome)
                if settled:  # while the target is there, as that may be what holds it
                    outcome.grown = max(0, in_use() - settled)
            _check_trouble(row, each, trouble)
    finally:
        gc.set_threshold(*before)
    outcome.seconds = time.monotonic() - began
    if outcome.grown > row.growth:
        raise FailedError(
            f"{row.name}: what the process holds has grown by {outcome.grown / MIB:.0f} MiB in {cases} cases"
        )
    return outcome


def _one(row: Row, target: Target, seed: int, outcome: Outcome, trouble: Trouble) -> None:
    case: Case | None = None
    try:
        case = target.make(Random(f"{row.name} {seed}"))
        forget_most()
        resident, began = memory("VmRSS"), time.process_time()
        became = case.carry_out()
        took, rose = time.process_time() - began, max(0, memory("VmHWM") - resident)
        assert took <= row.seconds_of(case.octets), f"{took:.2f} s of processor time"
        assert rose <= row.memory_of(case.octets), f"{rose / MIB:.1f} MiB of memory"
    except Exception as error:
        size = "" if case is None else f", of {case.octets} octets,"
        raise FailedError(
            f"{row.name}: the case of seed {seed}{size} failed, where {row.holds}: {error}\nagain: {row.command(seed)}"
        ) from error
    _check_trouble(row, seed, trouble)
    outcome.cases += row.step
    outcome.slowest, outcome.largest = max(outcome.slowest, took), max(outcome.largest, rose)
    outcome.became[became] += 1


def _look(row: Row, target: Target, seed: int, outcome: Outcome) -> None:
    first = seed - (outcome.cases // row.step - 1) % row.look_every
    try:
        target.look()
    except Exception as error:
        raise FailedError(
            f"{row.name}: after the cases {first} to {seed} others are not served as before: {error}\n"
            f"again: {row.command(first, (seed - first + 1) * row.step)}"
        ) from error


def _check_trouble(row: Row, seed: int, trouble: Trouble) -> None:
    if trouble.found:
        first = max(0, seed - row.look_every)
        raise FailedError(
            f"{row.name}: at the case of seed {seed}, or shortly before: {trouble.found[0]}\n"
            f"again: {row.command(seed)}\nwith those before it: {row.command(first, (seed - first + 1) * row.step)}"
        )


class Seed:
    """The seed of the case that a process is at, in a file, as whoever started it is told when it crashes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, seed: int) -> None:
        """Note it."""
        os.pwrite(self._file, b"%20d" % seed, 0)

    def read(self) -> int | None:
        """Return what was noted last; None if nothing was."""
        with suppress(ValueError):
            return int(os.pread(self._file, 20, 0))
        return None

    def close(self) -> None:
        """Forget it."""
        os.close(self._file)
        self._path.unlink(missing_ok=True)
