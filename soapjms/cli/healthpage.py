"""Liveness and readiness over HTTP, for whatever watches a service: `/live` and `/ready`, each with JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any, Final

from soapjms.cli.page import Answer, Told
from soapjms.health import Health

STALE: Final = 15.0
"""Seconds after which a report says nothing any more."""


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

        Ready is who has a process that is. Live is who has a process that is, or may be starting one: after some
        seconds without any report it is not.
        """
        now = time.monotonic()
        with self._lock:
            fresh = {pid: each for pid, each in self._reports.items() if now - each[0] < STALE}
            may_start = not fresh and now - self._changed < STALE
        processes = [{"pid": pid, **asdict(health), "age": round(now - at, 3)} for pid, (at, health) in fresh.items()]
        return {
            "live": may_start or any(each["live"] for each in processes),
            "ready": any(each["ready"] for each in processes),
            "processes": processes,
        }


def health_answers(board: Board) -> Mapping[str, Answer]:
    """Return what is told at each path."""
    return {f"/{what}": partial(_tell, board, what) for what in ("live", "ready")}


def _tell(board: Board, what: str) -> Told:
    members = board.members()
    status = HTTPStatus.OK if members[what] else HTTPStatus.SERVICE_UNAVAILABLE
    return Told("application/json", json.dumps(members).encode(), status)
