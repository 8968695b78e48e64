"""Liveness and readiness over HTTP, for whatever watches a service: `/live` and `/ready`, each with JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any, Final, NamedTuple

from soapjms.cli.page import Answer, Told
from soapjms.observing import Health

STALE: Final = 15.0
"""Seconds after which a process that reported, and did not end, counts as hung."""

START_TIMEOUT: Final = 120.0
"""Seconds that a process has for its first report: it imports the module, connects and subscribes before that."""

NOTHING_KNOWN: Final = Health(live=False, ready=False, problem="", under_way=0, round_trip=None)

HUNG: Final = "the process told nothing of itself for {:.0f} s: it hangs"


class Board:
    """How the processes are, as they reported last. Thread-safe.

    Args:
        start_timeout: seconds after which a process that was started, never reported and did not end counts as hung.
    """

    def __init__(self, start_timeout: float = START_TIMEOUT) -> None:
        self._start_timeout = start_timeout
        self._lock = Lock()
        self._reports: dict[int, tuple[float, Health]] = {}
        self._starting: dict[int, float] = {}
        self._changed = time.monotonic()

    def started(self, pid: int) -> None:
        """Take note that a process was started, which is to report."""
        with self._lock:
            self._starting[pid] = time.monotonic()

    def note(self, pid: int, health: Health) -> None:
        """Take a report."""
        with self._lock:
            self._changed = time.monotonic()
            self._reports[pid] = self._changed, health
            self._starting.pop(pid, None)

    def forget(self, pid: int) -> None:
        """Forget a process that has ended."""
        with self._lock:
            self._reports.pop(pid, None)
            self._starting.pop(pid, None)

    def hung(self) -> dict[int, str]:
        """Return what is to be said of each process that hangs."""
        return {each.pid: each.health.problem for each in self._seen() if each.hangs}

    def members(self) -> dict[str, Any]:
        """Return the JSON form.

        Ready is who has a process that is. Live is who has a process that is, or may be starting one (for some seconds
        after the last report), and has none that hangs: it works on nothing and does not end, so nobody replaces it.
        """
        seen = self._seen()
        may_start = not seen and time.monotonic() - self._changed < STALE
        return {
            "live": not any(each.hangs for each in seen) and (may_start or any(each.health.live for each in seen)),
            "ready": any(each.health.ready for each in seen),
            "processes": [{"pid": each.pid, **asdict(each.health), "age": round(each.age, 3)} for each in seen],
        }

    def _seen(self) -> list[_Seen]:
        """List those that reported, and those that should have."""
        now = time.monotonic()
        with self._lock:
            reports = [(pid, now - at, health) for pid, (at, health) in self._reports.items()]
            silent = [(pid, now - at) for pid, at in self._starting.items() if now - at >= self._start_timeout]
        known = [
            _Seen(pid, age, health if age < STALE else _hung(age, health), age >= STALE) for pid, age, health in reports
        ]
        return known + [_Seen(pid, age, _hung(age, NOTHING_KNOWN), True) for pid, age in silent]


class _Seen(NamedTuple):
    """How a process is, and how many seconds ago it said so, or was started."""

    pid: int
    age: float
    health: Health
    hangs: bool


def _hung(age: float, known: Health) -> Health:
    """Return what a report says after so many seconds."""
    return replace(known, live=False, ready=False, problem=HUNG.format(age))


def health_answers(board: Board) -> Mapping[str, Answer]:
    """Return what is told at each path."""
    return {f"/{what}": partial(_tell, board, what) for what in ("live", "ready")}


def _tell(board: Board, what: str) -> Told:
    members = board.members()
    status = HTTPStatus.OK if members[what] else HTTPStatus.SERVICE_UNAVAILABLE
    return Told("application/json", json.dumps(members).encode(), status)
