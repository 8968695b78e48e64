"""Processes of this machine that do tasks, as Python lets one thread of a process work at a time.

A task is a function of a module and its argument; both, and the result, pass through pipes. Not multiprocessing: that
would import the caller's program again, which may be a script that starts a replay.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Self, TypeVar

from soapjms.replay.errors import ProcessLostError

Item = TypeVar("Item")
Result = TypeVar("Result")

START: Final = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import work; work()"
"""The program of a process. It finds modules where its parent does, and not in the current folder besides (-P)."""
SETTINGS: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "OPENBLAS_NUM_THREADS": "1",
}
"""Settings of libraries in their environment, unless the user chose others: a process keeps the memory of a task for
the next one, as to get it from the system again takes a tenth of the time; and it has no threads that only wait."""
GARBAGE_OBJECTS: Final = 50_000
"""Number of new objects after which a process looks for garbage: as a task makes many that are none, Python's 700 would
take a twelfth of the time."""
END_SECONDS: Final = 5.0
WAITING_TASKS: Final = 2
"""Number of tasks for each process that are under way, or wait for their turn or for somebody to take the result."""


class Processes:
    """Does tasks in processes. To be used in a `with` statement, at whose end they end.

    Args:
        number: how many processes; fewer than two are none, and then tasks are done here.
    """

    def __init__(self, number: int) -> None:
        self.number = number if number > 1 and sys.executable and not getattr(sys, "frozen", False) else 1
        self._all = list[subprocess.Popen[bytes]]()
        self._free = SimpleQueue[subprocess.Popen[bytes]]()

    def __enter__(self) -> Self:
        if self.number > 1:
            program = START.format(module=__name__)
            command = [sys.executable, "-P", "-c", program, json.dumps(sys.path)]
            for _ in range(self.number):
                process = subprocess.Popen(  # noqa: S603  # this Python, with a program of ours
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=SETTINGS | os.environ
                )
                self._all.append(process)
                self._free.put(process)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
        for process in self._all:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):  # half of a task is left in it
                    pipe.close()

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Do a task for each item, and yield the results in the order of the items.

        Raises:
            ProcessLostError: a process ended.
            Exception: what a task raises.
        """
        if not self._all:
            yield from map(task, items)
            return
        waiting = deque[Future[Result]]()
        threads = ThreadPoolExecutor(self.number, "soapjms-replay")
        try:
            for item in items:
                if len(waiting) >= WAITING_TASKS * self.number:
                    yield waiting.popleft().result()
                waiting.append(threads.submit(self._do, task, item))
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            for process in self._all:  # a thread that waits for a result goes on then
                process.kill()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def _do(self, task: Callable[[Item], Result], item: Item) -> Result:
        process = self._free.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((task, item), process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            is_done, found = pickle.load(process.stdout)  # noqa: S301  # our own process made it
        except (EOFError, OSError, pickle.UnpicklingError):
            raise ProcessLostError(_ended(_code_of(process))) from None
        finally:
            self._free.put(process)
        if not is_done:
            raise found
        result: Result = found
        return result


def _code_of(process: subprocess.Popen[bytes]) -> int:
    """Return the code that a process ends with, which closed its end of a pipe; kill it if it goes on."""
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _ended(code: int) -> str:
    how = f"by a signal, {signal.strsignal(-code)}" if code < 0 else f"with the code {code}"
    return (
        f"a process that read or judged records ended {how}, as happens when memory runs out: give it more memory, or "
        "run on fewer cores, as each has a process"
    )


def work() -> None:
    """Be one of the processes: do tasks until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the first one ends the others
    gc.set_threshold(GARBAGE_OBJECTS)
    coming = sys.stdin.buffer
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as going:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a task prints is no result
        while True:
            try:
                task, item = pickle.load(coming)  # noqa: S301  # our parent made it
            except EOFError:
                return
            pickle.dump(_outcome(task, item), going, pickle.HIGHEST_PROTOCOL)
            going.flush()


def _outcome(task: Callable[[Any], Any], item: Any) -> tuple[bool, Any]:
    try:
        return True, task(item)
    except Exception as error:
        told = traceback.format_exc()
        try:
            error.add_note(told)
            pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
        except Exception:  # of any kind: one whose arguments do not make it again, for example
            return False, RuntimeError(told)
        return False, error
