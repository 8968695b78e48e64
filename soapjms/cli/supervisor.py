"""Several processes that serve the same, as competing consumers, and the one that looks after them.

Each is started anew, not forked, and connects by itself. One that ends is started again, after a pause that gets longer
while it ends soon. All end with the one that started them, however that ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import Event
from typing import Final

from brokers.threads.thread import Thread
from soapjms.cli.configuration import show_debug
from soapjms.cli.runner import FAILED, Serving, ending, log_to_terminal, run
from soapjms.cli.status import USAGE
from soapjms.cli.status_page import Board
from soapjms.observing import Health

log = logging.getLogger("soapjms.serve")

LOOK: Final = 0.2
"""Seconds between two looks at whether to end."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 60.0
"""Seconds after which a process that ends has not ended soon."""

LAST_GRACE: Final = 5.0
"""Seconds beyond the grace after which a process that does not end is killed."""

WELL: Final = (0, -signal.SIGTERM)
"""How processes end that were told to; a signal ends one that had not begun to serve."""


@dataclass(slots=True)
class Place:
    """Where one process after the other runs.

    Attributes:
        process: the one that runs; None for none.
        pipe: it reports there, and it ends when this end is closed.
        since: when it started, or when the next one is to start, by the monotonic clock.
        failures: how many in a row ended soon.
    """

    process: BaseProcess | None = None
    pipe: Pipe | None = None
    since: float = 0.0
    failures: int = 0

    def pause(self) -> float:
        """Return the seconds before the next one, now that one has ended."""
        soon = time.monotonic() - self.since < STEADY
        self.failures = self.failures + 1 if soon else 1
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failures - 1, 16))


class Supervisor:
    """Runs so many processes that serve: first one, so that what is wrong with the service is said once.

    Args:
        serving: what each serves.
        count: how many.
        board: how each is, is noted there.
        forget: told the process id of each that has ended.
    """

    def __init__(self, serving: Serving, count: int, board: Board, forget: Callable[[int], None]) -> None:
        self._serving = serving
        self._board = board
        self._forget = forget
        self._context = multiprocessing.get_context("spawn")
        self._places = [Place() for _ in range(count)]
        self._told: set[int] = set()  # processes that hang, and of which that was logged
        self._has_served = False
        self._is_usage = False
        self._is_failed = False

    def run(self, stop: Event) -> int:
        """Serve until `stop` is set; return 0, 1 if one left something undone, 2 if what they serve makes no sense."""
        try:
            while not stop.is_set() and not self._is_usage:
                for place in self._places if self._has_served else self._places[:1]:
                    if place.process is None and time.monotonic() >= place.since:
                        self._start(place)
                self._listen(stop)
                self._tell_of_hung()
        finally:
            self._end_all()
        if self._is_usage:
            return USAGE
        return FAILED if self._is_failed else 0

    def _start(self, place: Place) -> None:
        """Start a process, or try again later: that the system has no more of what it takes harms no other."""
        try:
            process, pipe = self._started()
        except OSError as error:
            pause = place.pause()
            place.since = time.monotonic() + pause
            log.error("no process could be started (%s); it is tried again in %g s", error, pause)
            return
        place.process, place.pipe, place.since = process, pipe, time.monotonic()
        self._board.started(process.pid or 0)

    def _started(self) -> tuple[BaseProcess, Pipe]:
        """Start a process; return it, and where it reports."""
        ours, theirs = self._context.Pipe()
        try:
            process = self._context.Process(target=serve, args=(self._serving, theirs))
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours

    def _tell_of_hung(self) -> None:
        """Log once of each process that hangs; it may go on, so it is not ended."""
        hung = self._board.hung()
        for pid in hung.keys() - self._told:
            log.error("process %s: %s; it is not ended, as it might go on: SIGKILL makes another start", pid, hung[pid])
        self._told = set(hung)

    def _listen(self, stop: Event) -> None:
        """Wait a moment for reports and ends."""
        pipes = {place.pipe: place for place in self._places if place.pipe is not None}
        ends = {place.process.sentinel: place for place in self._places if place.process is not None}
        if not ends:
            stop.wait(LOOK)
            return
        ready = wait([*pipes, *ends], LOOK)
        for pipe, place in pipes.items():
            if pipe in ready:
                self._read(place, pipe)
        for end, place in ends.items():
            if end in ready and place.process is not None:
                self._ended(place, place.process, stop)

    def _read(self, place: Place, pipe: Pipe) -> None:
        try:
            health: Health = pipe.recv()
        except (EOFError, OSError):  # it is ending; its exit tells the rest
            pipe.close()
            place.pipe = None
            return
        self._has_served = True
        if place.process is not None:
            self._board.note(place.process.pid or 0, health)

    def _ended(self, place: Place, process: BaseProcess, stop: Event) -> None:
        process.join()
        pid, status = process.pid, process.exitcode
        self._clear(place)
        if status == USAGE:
            self._is_usage = True
        elif stop.is_set():  # it was told to end as well, as by Ctrl-C
            self._is_failed = self._is_failed or status not in WELL
        else:
            pause = place.pause()
            place.since = time.monotonic() + pause
            log.error("process %s ended with %s; another starts in %g s", pid, status, pause)

    def _clear(self, place: Place) -> None:
        if place.process is not None:
            place.process.join()
            self._forget(place.process.pid or 0)
            place.process.close()
            place.process = None
        if place.pipe is not None:
            place.pipe.close()
            place.pipe = None

    def _end_all(self) -> None:
        """End all, and kill those that do not within their grace."""
        running = [each.process for each in self._places if each.process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + self._serving.grace + LAST_GRACE
        for process in running:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                log.error("process %s did not end, and is killed", process.pid)
                process.kill()
                process.join()
            self._is_failed = self._is_failed or process.exitcode not in WELL
        for place in self._places:
            self._clear(place)


def serve(serving: Serving, pipe: Pipe) -> None:
    """Be one of the processes: serve, report, and end when told to, or when the one that started this is gone."""
    stop = Event()

    def report(health: Health) -> None:
        with suppress(OSError):  # nobody is there to read it: `listen` notices too
            pipe.send(health)

    def listen() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()  # nothing ever comes but the end
        stop.set()

    with ending(stop):
        if serving.debug:
            show_debug()
        log_to_terminal(serving.log_level, debug=serving.debug)
        Thread(target=listen, name="soapjms-parent", daemon=True).start()
        sys.exit(run(serving, stop, report))
