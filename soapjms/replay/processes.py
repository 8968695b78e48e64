"""Processes of this machine that do tasks, as Python lets one thread of a process work at a time.

A task is a function of a module and its argument; both, and the result, pass through pipes. Not multiprocessing: that
would import the caller's program again, which may be a script that starts a replay.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, Final, NamedTuple, Self, TypeVar

from soapjms.replay.errors import ProcessLostError

Item = TypeVar("Item")
Result = TypeVar("Result")

START: Final = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from {module} import work
work({pipe}, {parent})
"""
"""The program of a process. It finds modules where its parent does, and nowhere else (-I)."""
SETTINGS: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "OPENBLAS_NUM_THREADS": "1",
}
"""Settings of libraries in their environment, unless the user chose others: a process keeps the memory of a task for
the next one, as to get it from the system again takes a tenth of the time; and it has no threads that only wait."""
GARBAGE_OBJECTS: Final = 50_000
"""Number of new objects after which a process looks for garbage: as a task makes many that are none, Python's 700 would
take a twelfth of the time."""
END_SECONDS: Final = 5.0
PARENT_SECONDS: Final = 1.0
"""Interval, in seconds, at which a process looks whether its parent is still there."""
WAITING_TASKS: Final = 2
"""Number of tasks for each process that are under way, or wait for their turn or for somebody to take the result."""
INTERPRETERS: Final = ("python", "pypy")
"""How the names of programs begin that can be such a process."""


class _Worker(NamedTuple):
    """A process, and the pipes to it and from it."""

    process: subprocess.Popen[bytes]
    tasks: IO[bytes]
    results: IO[bytes]


class Processes:
    """Does tasks in processes. To be used in a `with` statement, at whose end they end.

    Attributes:
        number: how many tasks are done at a time.

    Args:
        number: how many processes; fewer than two are none, and then tasks are done here.
    """

    def __init__(self, number: int) -> None:
        is_python = Path(sys.executable or "").name.lower().startswith(INTERPRETERS) and not hasattr(sys, "frozen")
        self.number = number if number > 1 and is_python and sys.platform != "win32" else 1
        self._all = list[_Worker]()
        self._free = SimpleQueue[_Worker]()

    def __enter__(self) -> Self:
        try:
            for _ in range(self.number if self.number > 1 else 0):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        """Start a process, in a group of its own: Ctrl-C goes to that of this one."""
        results, pipe = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603  # this Python, with a program of ours
                [sys.executable, "-I", "-c", START.format(module=__name__, pipe=pipe, parent=os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # what a task prints is no result
                stderr=subprocess.DEVNULL if sys.stderr is None else None,
                env=SETTINGS | os.environ,
                pass_fds=[pipe],
                process_group=0,
            )
        except BaseException:
            os.close(results)
            raise
        finally:
            os.close(pipe)
        assert process.stdin is not None
        worker = _Worker(process, process.stdin, os.fdopen(results, "rb"))
        self._all.append(worker)
        self._free.put(worker)
        _send(worker, [each for each in sys.path if isinstance(each, str)])

    def __exit__(self, *_: object) -> None:
        self._kill()
        for worker in self._all:
            worker.process.wait()
            with suppress(BrokenPipeError):  # half of a task is left in it
                worker.tasks.close()
            worker.results.close()

    def _kill(self) -> None:
        for worker in self._all:
            worker.process.kill()

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Do a task for each item, and yield the results in the order of the items. After an error there are no more.

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
            self._kill()  # a thread that waits for a result goes on then
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def _do(self, task: Callable[[Item], Result], item: Item) -> Result:
        worker = self._free.get()
        try:
            _send(worker, (task, item))
            is_done, found = pickle.load(worker.results)  # noqa: S301  # our own process made it
        except (EOFError, OSError, pickle.UnpicklingError):
            raise ProcessLostError(_ended(_code_of(worker.process))) from None
        finally:
            self._free.put(worker)
        if not is_done:
            raise found
        result: Result = found
        return result


def _send(worker: _Worker, what: object) -> None:
    pickle.dump(what, worker.tasks, pickle.HIGHEST_PROTOCOL)
    worker.tasks.flush()


def _code_of(process: subprocess.Popen[bytes]) -> int:
    """Return the code that a process ends with, which closed its end of a pipe; kill it if it goes on."""
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _ended(code: int) -> str:
    if code >= 0:
        return f"a process that read or judged records ended with the code {code}; its error, if it wrote one, is above"
    return (
        f"a process that read or judged records was ended by a signal, {signal.strsignal(-code)}, as happens when "
        "memory runs out: give it more memory, or run on fewer cores, as each has a process"
    )


# Inside of the processes


def work(pipe: int, parent: int) -> None:
    """Be one of the processes: do tasks until there are no more.

    Args:
        pipe: the file descriptor for results.
        parent: the number of the process that they go to; this one ends when it has ended.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends when its parent does, which systemd ends together with it
    gc.set_threshold(GARBAGE_OBJECTS)
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(BrokenPipeError, EOFError, pickle.UnpicklingError), os.fdopen(pipe, "wb") as results:
        while True:
            task, item = pickle.load(sys.stdin.buffer)  # noqa: S301  # our parent made it
            pickle.dump(_outcome(task, item), results, pickle.HIGHEST_PROTOCOL)
            results.flush()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


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
