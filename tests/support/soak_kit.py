"""Calls for a long time: what a program holds must not grow. `python tests/support/soak_kit.py --calls 50000`."""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import tempfile
import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple

from calling_kit import envelope, eventually, fresh, greeter, text_of
from progress_kit import Progress
from real_brokers import STARTERS, RealBroker

import soapjms
from soapjms import Client, Dispatcher, SqliteStore

IN_FLIGHT: Final = 16
WORKERS: Final = 8
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Held(NamedTuple):
    """What the program and the broker hold at one moment.

    Attributes:
        threads: of this process.
        files: open files and sockets of this process.
        destinations: of the broker that have messages or consumers, or are temporary.
        objects: that Python's collector knows.
        megabytes: of memory in use.
    """

    threads: int
    files: int
    destinations: int
    objects: int
    megabytes: float


def look(broker: RealBroker) -> Held:
    """Look at what is held now."""
    gc.collect()
    give_back()
    found = broker.counters()
    return Held(
        threads=threading.active_count(),
        files=len(os.listdir("/proc/self/fd")),
        destinations=len({*found.messages, *found.consumers, *found.temporaries}),
        objects=len(gc.get_objects()),
        megabytes=int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6,
    )


def give_back() -> None:
    """Have the C library give what is free back to the system, where it can (glibc).

    It keeps some of what each thread ever had free for that thread's next request, and a program of many threads comes
    to the most of it only after many calls: that is no memory that anything holds, and it would count as if it were.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def soak(broker: RealBroker, calls: int, warm: int, path: Path) -> tuple[Held, Held]:
    """Call so often; return what was held after the first calls, and at the end, when all is answered."""
    name = fresh("soak")
    with (
        soapjms.connect(broker.stomp_url) as there,
        soapjms.connect(broker.stomp_url) as here,
        SqliteStore(path, max_entries=warm // 2) as store,
        Dispatcher(there, f"jms:queue:{name}", greeter(), workers=WORKERS, store=store),
        Client(here, f"jms:queue:{name}", timeout=60) as client,
    ):
        call(client, warm)
        store.sweep()  # the first takes memory and a file number, which SQLite keeps; each half minute has another
        eventually(lambda: not broker.counters().messages, "all is answered and accepted")
        before = look(broker)
        call(client, calls - warm)
        eventually(lambda: not broker.counters().messages, "all is answered and accepted")
        return before, look(broker)


def call(client: Client, calls: int) -> None:
    """Call so often, several calls at a time, and check each answer."""
    waiting: deque[tuple[int, Future[soapjms.Response]]] = deque()
    progress = Progress("calls", calls)
    for number in range(calls):
        if len(waiting) == IN_FLIGHT:
            check(*waiting.popleft())
            progress.add()
        waiting.append((number, client.submit(envelope(str(number)))))
    for number, future in waiting:
        check(number, future)
        progress.add()


def check(number: int, future: Future[soapjms.Response]) -> None:
    """Check one answer."""
    assert text_of(future.result(60)) == f"Hello {number}"


def grows(before: Held, after: Held) -> bool:
    """Say whether more is held than before: of threads at most one for each worker, of objects what is remembered."""
    return (
        after.threads > before.threads + WORKERS
        or after.files > before.files
        or after.destinations > before.destinations
        or after.objects > before.objects + 1_000
    )


def main() -> int:
    """Print what was held before and after; 1 if that grows, memory by more than a tenth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=STARTERS, default="activemq")
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--warm", type=int, default=1_000)
    options = parser.parse_args()
    with STARTERS[options.broker]() as broker, tempfile.TemporaryDirectory(prefix="soapjms-soak-") as folder:
        before, after = soak(broker, options.calls, options.warm, Path(folder) / "requests.db")
    for what, first, last in zip(Held._fields, before, after, strict=True):
        print(f"{options.broker}: {what}: {first:g} after {options.warm} calls, {last:g} after {options.calls}")
    return 0 if not grows(before, after) and after.megabytes <= before.megabytes * 1.1 else 1


if __name__ == "__main__":
    sys.exit(main())
