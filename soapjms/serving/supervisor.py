"""Serving in one process, or in several competing consumers, with status pages.

Each of several processes is spawned, not forked, and opens its own connection. A process that ends is started again,
after a pause that grows while processes end early. All end with the process that started them, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import Event
from typing import Any, Final, NoReturn

from brokers.errors import BrokerError
from brokers.threads.thread import Thread
from brokers.threads.timer import left
from soapjms import events
from soapjms.observing import Health
from soapjms.protocol.errors import StoreError, UsageError
from soapjms.serving.runner import Announce, ServeOptions, ending, log_announcement, run
from soapjms.serving.status_page import Answer, Board, MeasurementSource, StatusPage, health_answers, measuring

STOP_POLL_SECONDS: Final = 0.2
"""Poll interval, in seconds, of the check whether to stop."""

FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A process that ends within this many seconds has ended early."""

KILL_GRACE_SECONDS: Final = 5.0
"""Seconds beyond the grace after which a process that does not end is killed."""

WELL: Final = (0, -signal.SIGTERM)
"""Exit codes of processes that were told to stop; the signal ends one that has not begun to serve."""


def serve(
    options: ServeOptions,
    stop: Event | None = None,
    *,
    announce: Announce = log_announcement,
    initializer: Callable[[], None] | None = None,
) -> bool:
    """Serve until told to stop, in as many processes as the options say, with status pages.

    Several processes are spawned by `multiprocessing`: a program must call this below `if __name__ == "__main__":`.

    Args:
        options: what is served, and how.
        stop: ends serving when it is set; by default SIGTERM, SIGINT and SIGHUP do, which needs the main thread.
        announce: called with what can be reached now, for all processes; logs it by default. If it raises an OSError,
            as for a pipe that nobody reads any more, that is logged, and serving goes on.
        initializer: called first in each of several processes, for example to set up logging; must be picklable.

    Returns:
        True if all went well; False if serving could not go on, or requests were left unfinished.

    Raises:
        UsageError: the options are wrong; trying again cannot help.
        BrokerError, StoreError: with one process, the broker or the store cannot be reached; several try again.
    """
    announce = partial(_announce, announce)
    ends = stop or Event()
    board = Board(options.start_timeout, ends)
    with ExitStack() as stack:
        metrics = None if options.metrics is None else stack.enter_context(measuring(options.processes, board.hung))
        for address, answers in _pages(options, board, metrics).items():
            port = stack.enter_context(StatusPage(address, answers)).port
            what = " and ".join(each for each in ("health", "metrics") if getattr(options, each) == address)
            members = {"telling": what, "port": port, "paths": [*answers]}
            announce(f"{what} at port {port}: {', '.join(answers)}", members)
        if stop is None:
            stack.enter_context(ending(ends))
        if options.processes == 1:
            board.started(os.getpid())
            return run(options, ends, partial(board.note, os.getpid()), announce)
        return Supervisor(options, board, metrics, announce=announce, initializer=initializer).run(ends)


def _announce(announce: Announce, text: str, members: Mapping[str, Any]) -> None:
    """Announce something; if that cannot be written, log it instead."""
    try:
        announce(text, members)
    except OSError as error:
        events.SERVE_NOTE_UNWRITTEN.log(text, error)


def _pages(options: ServeOptions, board: Board, metrics: MeasurementSource | None) -> dict[str, dict[str, Answer]]:
    """Return the answers of the status pages, by address and path."""
    found: dict[str, dict[str, Answer]] = {}
    if options.health is not None:
        found[options.health] = {**health_answers(board)}
    if options.metrics is not None and metrics is not None:
        found.setdefault(options.metrics, {})["/metrics"] = metrics.tell
    return found


@dataclass(slots=True)
class ProcessSlot:
    """A place for one process after the other.

    Attributes:
        process: the process that runs, or None.
        pipe: our end of the pipe for its reports; the process ends when this end is closed.
        since: when it started, or when the next one is to start, by the monotonic clock.
        problem: why the process ends, as it reported itself.
        failures: how many processes in a row ended early.
    """

    process: BaseProcess | None = None
    pipe: Pipe | None = None
    since: float = 0.0
    problem: str = ""
    failures: int = 0

    def pause(self) -> float:
        """Count a process that has ended; return the seconds to wait before the next one starts."""
        soon = time.monotonic() - self.since < STEADY_SECONDS
        self.failures = self.failures + 1 if soon else 1
        return min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures - 1, 16))


class Supervisor:
    """Runs several processes that serve. One starts first, so that an error in the service is reported once.

    Once one has served, the options were right: a process that finds them wrong is replaced as any other that ends.

    Args:
        options: what each process serves, and how many there are.
        board: gets the health reports.
        metrics: told of each process that has ended; None if nothing is measured.
        announce, initializer: see `serve`.
    """

    def __init__(
        self,
        options: ServeOptions,
        board: Board,
        metrics: MeasurementSource | None = None,
        *,
        announce: Announce = log_announcement,
        initializer: Callable[[], None] | None = None,
    ) -> None:
        self._options = options
        self._board = board
        self._metrics = metrics
        self._announce = announce
        self._initializer = initializer
        self._context = multiprocessing.get_context("spawn")
        self._slots = [ProcessSlot() for _ in range(options.processes)]
        self._told: set[int] = set()  # processes that hang, and were logged
        self._has_served = False
        self._refusal: str | None = None  # why the options are wrong, if no process has ever served
        self._is_failed = False

    def run(self, stop: Event) -> bool:
        """Serve until `stop` is set; return False if a process left requests unfinished.

        Raises:
            UsageError: the options are wrong.
        """
        try:
            while not stop.is_set() and self._refusal is None:
                for slot in self._slots if self._has_served else self._slots[:1]:
                    if slot.process is None and time.monotonic() >= slot.since:
                        self._start(slot)
                self._listen(stop)
                self._tell_of_hung()
        finally:
            self._end_all()
        if self._refusal is not None:
            raise UsageError(self._refusal)
        return not self._is_failed

    def _start(self, slot: ProcessSlot) -> None:
        """Start a process; if the system lacks resources, try again later without harm to the others."""
        try:
            process, pipe = self._started()
        except OSError as error:
            pause = slot.pause()
            slot.since = time.monotonic() + pause
            events.PROCESS_NOT_STARTED.log(error, pause)
            return
        slot.process, slot.pipe, slot.since = process, pipe, time.monotonic()
        self._board.started(process.pid or 0)

    def _started(self) -> tuple[BaseProcess, Pipe]:
        """Start a process; return it, and the pipe for its reports."""
        ours, theirs = self._context.Pipe()
        try:
            process = self._context.Process(target=_serve_in_child, args=(self._options, theirs, self._initializer))
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours

    def _tell_of_hung(self) -> None:
        """Log each process that hangs, once. It may recover, so it is not ended."""
        hung = self._board.hung()
        for pid in hung.keys() - self._told:
            events.PROCESS_HUNG.log(pid, hung[pid])
        self._told = set(hung)

    def _listen(self, stop: Event) -> None:
        """Wait a moment for reports, and for processes that end."""
        pipes = {slot.pipe: slot for slot in self._slots if slot.pipe is not None}
        ends = {slot.process.sentinel: slot for slot in self._slots if slot.process is not None}
        if not ends:
            stop.wait(STOP_POLL_SECONDS)
            return
        ready = wait([*pipes, *ends], STOP_POLL_SECONDS)
        for pipe, slot in pipes.items():
            if pipe in ready:
                self._read(slot, pipe)
        for end, slot in ends.items():
            if end in ready and slot.process is not None:
                self._ended(slot, slot.process, stop)

    def _read(self, slot: ProcessSlot, pipe: Pipe) -> None:
        """Read all reports of a process: its health, why it ends, announcements, or why the options are wrong."""
        for said in _received(pipe):
            match said:
                case (Health() as health,):
                    self._has_served = True
                    if slot.process is not None:
                        self._board.note(slot.process.pid or 0, health)
                case (None, problem):
                    slot.problem = problem
                case (text, members):
                    self._announce(text, members)
                case (refusal,) if self._has_served:  # a module is being replaced, say: others go on
                    slot.problem = refusal
                case (refusal,):
                    self._refusal = refusal
        if pipe.closed:  # the process is ending; its exit code tells the rest
            slot.pipe = None

    def _ended(self, slot: ProcessSlot, process: BaseProcess, stop: Event) -> None:
        process.join()
        pid, status = process.pid, process.exitcode
        why = f": {slot.problem}" if slot.problem else ""
        problem = f"process {pid} ended with {status}{why}"
        self._clear(slot, problem)
        if self._refusal is not None:
            return
        if stop.is_set():  # the process was told to stop as well, as by Ctrl-C
            self._is_failed = self._is_failed or status not in WELL
        else:
            pause = slot.pause()
            slot.since = time.monotonic() + pause
            events.PROCESS_ENDED.log(problem, pause)

    def _clear(self, slot: ProcessSlot, problem: str = "") -> None:
        if slot.process is not None:
            slot.process.join()
            pid = slot.process.pid or 0
            self._board.forget(pid, problem)
            if self._metrics is not None:
                self._metrics.forget(pid)
            slot.process.close()
            slot.process, slot.problem = None, ""
        if slot.pipe is not None:
            slot.pipe.close()
            slot.pipe = None

    def _end_all(self) -> None:
        """End all processes, and kill those that do not end within the grace period."""
        running = [each.process for each in self._slots if each.process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + self._options.grace + KILL_GRACE_SECONDS
        for process in running:
            process.join(left(until))
            if process.exitcode is None:
                events.PROCESS_KILLED.log(process.pid)
                process.kill()
                process.join()
            self._is_failed = self._is_failed or process.exitcode not in WELL
        for slot in self._slots:
            self._clear(slot)


def _received(pipe: Pipe) -> Iterator[tuple[Any, ...]]:
    """Yield the reports that have come; close the pipe once its other end is closed."""
    try:
        while pipe.poll():
            yield pipe.recv()
    except (EOFError, OSError):
        pipe.close()


def _serve_in_child(options: ServeOptions, pipe: Pipe, initializer: Callable[[], None] | None) -> NoReturn:
    """Run one of the processes: serve, report, and end when told to, or when the parent is gone."""
    stop = Event()

    def tell(*said: Any) -> None:
        with suppress(OSError):  # the parent is gone: `listen` notices too
            pipe.send(said)

    def listen() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()  # nothing ever comes; this ends when the pipe is closed
        stop.set()

    with ending(stop):
        if initializer is not None:
            initializer()
        Thread(target=listen, name="soapjms-parent", daemon=True).start()
        try:
            is_well = run(options, stop, tell, tell)
        except UsageError as error:
            tell(f"{error}")
            sys.exit(1)
        except (BrokerError, StoreError) as error:
            tell(None, f"{error}")
            sys.exit(1)
        sys.exit(0 if is_well else 1)
