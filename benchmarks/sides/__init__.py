"""Client and service programs that the benchmarks compare. Each runs as a process of its own: see `sides/__main__.py`.

`ours` has our client and service, `bare` loops over stomp.py, `bare_amqp` loops over python-qpid-proton, `raw` frames
written by hand over sockets: the limit. How calls are driven and measured is here, once for all of them. What is
compared with what is in `calls.py` and `safety.py`.
"""

from __future__ import annotations

import resource
import statistics
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import inf
from threading import Thread

OPEN, CLOSE = (
    b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><echo xmlns="urn:bench"><t>',
    b"</t></echo></e:Body></e:Envelope>",
)
WARM_UP = 300
"""Calls before the measured ones, for at most as long as those."""

GROUP = 64
"""Requests that a group commit may have."""


def envelope(octets: int) -> bytes:
    """Return a request with so many octets."""
    return OPEN + b"x" * (octets - len(OPEN) - len(CLOSE)) + CLOSE


ENVELOPE = envelope(256)


@dataclass(frozen=True)
class Setting:
    """What a run is to do; the same for its client and its service.

    Attributes:
        url: the broker.
        queue: the name of the queue for requests, which no other run uses.
        in_flight: number of calls in flight.
        seconds: length of the measured part.
        octets: size of a request and of its answer.
        persistent: messages are persistent, and each send is confirmed with a receipt.
        transactional: answers and acknowledgements go in group commits; otherwise a request is accepted once its answer
            was confirmed.
        store: name for the file of the service's store, which becomes a path; none if empty.
        processes: number of service processes.
        rate: calls a second by a schedule, 0 for as many as possible.
        command: arguments of Python whose processor time is measured.
        without: an option of `brokers.Connection` that is not to be used: see `scheduling.py`.
        processes_of: the ids of the processes whose processor time is measured, by role.
    """

    url: str = ""
    queue: str = ""
    in_flight: int = 1
    seconds: float = 2.0
    octets: int = 256
    persistent: bool = True
    transactional: bool = False
    store: str = ""
    processes: int = 1
    rate: float = 0.0
    command: list[str] = field(default_factory=list)
    without: str = ""
    processes_of: dict[str, list[int]] = field(default_factory=dict)


def processor_seconds(process: int) -> float:
    """Return the processor time of all threads of a process, ended ones too: the clock of clock_getcpuclockid(3)."""
    return time.clock_gettime((~process << 3) | 2)


class Measured(ABC):
    """A side that is measured."""

    @abstractmethod
    async def figures(self, setting: Setting) -> dict[str, float]:
        """Measure."""


class Caller(Measured):
    """The client of a side: sends calls and takes their answers, in any order.

    Attributes:
        most: number of calls after which the measured part ends early.
    """

    most: float = inf

    @abstractmethod
    def submit(self, number: int) -> None:
        """Send the call of this number."""

    @abstractmethod
    async def take(self) -> int:
        """Wait for the next answer and return the number of its call. The clients without asyncio block in it."""

    async def figures(self, setting: Setting) -> dict[str, float]:
        """Measure."""
        load = Load(self, setting.in_flight)
        await load.run(setting.seconds, WARM_UP)
        if setting.rate:
            await load.drain()
            return await scheduled(self, setting)
        with Processors(setting) as used:
            started = time.perf_counter()
            calls = await load.run(setting.seconds, self.most)
            elapsed = time.perf_counter() - started
        await load.drain()
        return {"rate": calls / elapsed} | used.microseconds(calls)


class Load:
    """Keeps a number of calls in flight: the same loop for every side."""

    def __init__(self, caller: Caller, in_flight: int) -> None:
        self._caller, self._in_flight = caller, in_flight
        self._sent = self._done = 0

    async def run(self, seconds: float, calls: float = inf) -> int:
        """Call for some seconds, or so often; return the number of answers. Calls stay in flight."""
        first, until = self._done, time.perf_counter() + seconds
        while self._done - first < calls and time.perf_counter() < until:
            while self._sent - self._done < self._in_flight:
                self._caller.submit(self._sent)
                self._sent += 1
            await self._caller.take()
            self._done += 1
        return self._done - first

    async def drain(self) -> None:
        """Take the answers of the calls in flight."""
        while self._done < self._sent:
            await self._caller.take()
            self._done += 1


async def scheduled(caller: Caller, setting: Setting) -> dict[str, float]:
    """Call at fixed times, whether or not answers are late; return percentiles of the time from then to the answer."""
    number = round(setting.rate * setting.seconds)
    started = time.perf_counter() + 0.01

    def submit_all() -> None:
        for each in range(number):
            time.sleep(max(0.0, started + each / setting.rate - time.perf_counter()))
            caller.submit(each)

    thread = Thread(target=submit_all)
    thread.start()
    taken = []
    for _ in range(number):
        which = await caller.take()
        taken.append(1e3 * (time.perf_counter() - started - which / setting.rate))
    thread.join()
    hundredths = statistics.quantiles(taken, n=100)
    return {"p50 ms": hundredths[49], "p99 ms": hundredths[98]}


class Processors:
    """Measures the processor time of the processes of a run, within a `with` statement."""

    def __init__(self, setting: Setting) -> None:
        self._processes = setting.processes_of
        self._used = dict[str, float]()

    def _now(self) -> dict[str, float]:
        of_others = {role: sum(map(processor_seconds, them)) for role, them in self._processes.items()}
        return of_others | {"client": time.process_time()}

    def __enter__(self) -> Processors:
        self._used = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self._used = {role: now - self._used[role] for role, now in self._now().items()}

    def microseconds(self, calls: int) -> dict[str, float]:
        """Return microseconds a call by role, and those of client and service together."""
        roles = (role for role in ("broker", "client", "service") if role in self._used)
        found = {f"{role} µs": 1e6 * self._used[role] / calls for role in roles}
        return found | {"client+service µs": found["client µs"] + found.get("service µs", 0.0)}


def children_seconds() -> float:
    """Return the processor time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
