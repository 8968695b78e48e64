"""Liveness and readiness over HTTP, for whatever watches a service: `/live` and `/ready`, each with JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any, Final

from soapjms.cli.page import Answer, Told
from soapjms.health import Health

STALE: Final = 15.0
"""Seconds after which a process that reported, and did not end, counts as hung."""

HUNG: Final = "the process told nothing of itself for {:.0f} s: it hangs"


class Board:
    """How the processes are, as they reported last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reports: dict[int, tuple[float, Health]] = {}
        self._changed = time.monotonic()

    def note(self, pid: int, health: Health) -> None:
        """Take a report."""
        with self._lock:
            self._changed = time.monotonic()
            self._reports[pid] = self._changed, health

    def forget(self, pid: int) -> None:
        """Forget a process that has ended."""
        with self._lock:
            self._reports.pop(pid, None)

    def members(self) -> dict[str, Any]:
        """Return the JSON form.

        Ready is who has a process that is. Live is who has a process that is, or may be starting one (for some seconds
        after the last report), and has none that hangs: it works on nothing and does not end, so nobody replaces it.
        """
        now = time.monotonic()
        with self._lock:
            reports = [(pid, now - at, health) for pid, (at, health) in self._reports.items()]
            may_start = not reports and now - self._changed < STALE
        hangs = any(age >= STALE for _, age, _ in reports)
        processes = [{"pid": pid, **asdict(_aged(health, age)), "age": round(age, 3)} for pid, age, health in reports]
        return {
            "live": not hangs and (may_start or any(each["live"] for each in processes)),
            "ready": any(each["ready"] for each in processes),
            "processes": processes,
        }


def _aged(health: Health, age: float) -> Health:
    """Return what a report says after so many seconds."""
    return health if age < STALE else replace(health, live=False, ready=False, problem=HUNG.format(age))


def health_answers(board: Board) -> Mapping[str, Answer]:
    """Return what is told at each path."""
    return {f"/{what}": partial(_tell, board, what) for what in ("live", "ready")}


def _tell(board: Board, what: str) -> Told:
    members = board.members()
    status = HTTPStatus.OK if members[what] else HTTPStatus.SERVICE_UNAVAILABLE
    return Told("application/json", json.dumps(members).encode(), status)
