"""Calls go on while all around them fails: `make kills KILLS="--only stomp/activemq/transactions --seed 3"`.

Three services that share a store, three processes of callers, each behind a TCP proxy of its own. By seed, processes
and broker are killed and stopped, services are restarted one after the other, and proxies reset, delay, half-close and
fall silent; the schedule is printed first. `call_checker` then says what became of each call, for all workloads in one
table. With `--results FILE` runs are noted there, and those that it has already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple

from broker_recipes import Artemis, Classic
from call_checker import BAD, Did, Journal, Story, Verdict, check, lines_of, number_in
from calling_kit import eventually, fresh
from kill_schedule import Fault, Kind, schedule
from places import DATA
from processes_kit import Child
from progress_kit import Progress, say
from proxy_kit import Proxy, Way
from real_brokers import ChildBroker

import brokers
import soapjms

PROCESSES: Final = 3
"""Services, and processes of callers."""

WORKERS: Final = 4
"""Of each service."""

CALL_TIMEOUT: Final = 60.0
DURABLE: Final = "booker"
"""The name of the subscription to a topic."""

SILENCE: Final = {"stomp": "heartbeat=4000", "amqp": "idle=4000"}
"""In the URL of each protocol: how many milliseconds the network may be silent."""

LIVE_MILLISECONDS: Final = 3_600_000
"""Of a request: so long that none expires, and each that was sent is carried out."""

DELAY_SECONDS: Final = 0.15
"""By which a proxy delays each chunk of octets."""

START_SECONDS: Final = 300.0
"""Within which a broker is back that was killed."""

END_SECONDS: Final = 40.0
"""Within which a service ends after SIGTERM."""

SETTLING_SECONDS: Final = 150.0
"""Within which what failed has to be as before, once nothing is done to it any more."""

STANDSTILL_SECONDS: Final = 3 * CALL_TIMEOUT
"""Without the end of any call, after which the callers hang."""

MARK: Final = f'"{Did.ASKED}"'.encode()
"""What a line of a journal has for each call that began."""

ANONYMOUS: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""How Artemis calls the temporary queues that clients of AMQP ask for."""

PROGRAMS: Final = DATA / "services"


class Workload(NamedTuple):
    """What is tried: a protocol, a broker, and what the services are like.

    Attributes:
        protocol: the scheme of the URL.
        services: with `transactions` of the broker, or `without`; or `topic`: one, with a durable subscription.
    """

    protocol: str
    broker: str
    services: str

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def is_topic(self) -> bool:
        """Requests go to a topic."""
        return self.services == "topic"

    @property
    def consumers(self) -> int:
        """How many the destination has where all is well."""
        return 1 if self.is_topic else PROCESSES * WORKERS


WORKLOADS: Final = (
    *(
        Workload(protocol, broker, services)
        for protocol in ("stomp", "amqp")
        for broker in ("activemq", "artemis")
        for services in ("transactions", "without")
    ),
    Workload("stomp+ssl", "activemq", "topic"),
    Workload("amqps", "artemis", "topic"),
)
CONNECTORS: Final = {"stomp": "stomp", "stomp+ssl": "tls", "amqp": "amqp", "amqps": "amqps"}
"""The port of each protocol."""

RECIPES: Final = {"activemq": Classic, "artemis": Artemis}


class Place:
    """A process of ours and the proxy that it is behind. One fault at a time.

    Attributes:
        name: `service 0`.
        lock: held by who does something to it.
        lives: all that have run here, the present one last.
    """

    def __init__(self, name: str, proxy: Proxy) -> None:
        self.name = name
        self.proxy = proxy
        self.lock = Lock()
        self.lives: list[Child] = []


class Caller(Place):
    """A process of callers.

    Attributes:
        numbers: what it is to ask for in all its lives.
        journals: a file for each life.
        pauses: in which it was stopped.
        killed: the journals of lives that were killed.
    """

    def __init__(self, name: str, proxy: Proxy, numbers: Iterable[int]) -> None:
        super().__init__(name, proxy)
        self.numbers = list(numbers)
        self.journals: list[Path] = []
        self.pauses: list[tuple[float, float]] = []
        self.killed: set[Path] = set()
        self._read: dict[Path, int] = {}
        self._begun = 0

    def begun(self) -> int:
        """Count the calls in the journals."""
        for journal in self.journals:
            if journal.exists():
                with journal.open("rb") as file:
                    file.seek(self._read.get(journal, 0))
                    self._begun += file.read().count(MARK)
                    self._read[journal] = file.tell()
        return self._begun


class Drama:
    """One run. A `with` statement ends whatever runs.

    Args:
        workload: what is tried.
        broker: that runs.
        directory: for ledgers, journals and logs.
        seed: of the faults.
        calls: how many.
    """

    def __init__(self, workload: Workload, broker: ChildBroker, directory: Path, seed: int, calls: int) -> None:
        self.broker = broker
        self.directory = directory
        self.name = fresh("killed")
        kind = "topic" if workload.is_topic else "queue"
        self.uri = f"jms:{kind}:{self.name}?timeToLive={LIVE_MILLISECONDS}"
        self.store = directory / "requests.db"
        self.other = directory / "other.txt"
        self._workload = workload
        self._calls = calls
        self._faults = schedule(seed, calls, services=1 if workload.is_topic else PROCESSES, callers=PROCESSES)
        self._stack = ExitStack()
        self._broker_lock = Lock()
        self._threads: list[Thread] = []
        self._kills: Counter[str] = Counter()
        self._strange: list[str] = []
        self.services: list[Place] = []
        self.callers: list[Caller] = []

    def __enter__(self) -> Drama:
        port = getattr(self.broker.ports, CONNECTORS[self._workload.protocol])
        for number in range(1 if self._workload.is_topic else PROCESSES):  # a client id is one connection's
            proxy = self._stack.enter_context(Proxy(self.broker.host, port))
            self.services.append(Place(f"service {number}", proxy))
        for number in range(PROCESSES):
            proxy = self._stack.enter_context(Proxy(self.broker.host, port))
            share = range(number, self._calls, PROCESSES)
            self.callers.append(Caller(f"caller {number}", proxy, share))
        self._stack.callback(self._kill_all)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> Verdict:
        """Have it all happen, and judge."""
        for each in self._faults:
            say(f"  {each}")
        for place in self.services:
            self._start_service(place)
        eventually(lambda: self._consumers() == self._workload.consumers, "all workers are there", SETTLING_SECONDS)
        for caller in self.callers:
            self._start_caller(caller)
        self._call()
        ended = time.monotonic()
        self._settle()
        return check(self._story(ended))

    # What goes on

    def _url(self, place: Place) -> str:
        return self._url_at(place.proxy.port, is_service=place in self.services)

    def _url_at(self, port: int, *, is_service: bool) -> str:
        scheme = self._workload.protocol
        parameters = [SILENCE["stomp" if scheme.startswith("stomp") else "amqp"]]
        if scheme in ("stomp+ssl", "amqps"):
            parameters.append(f"caFile={self.broker.certificates.authority}")
        if is_service and self._workload.is_topic:
            parameters.append(f"clientId={self.name}")
        return f"{scheme}://admin:admin@localhost:{port}?{'&'.join(parameters)}"

    def _log(self, place: Place) -> Path:
        return self.directory / f"{place.name.replace(' ', '-')}-{len(place.lives)}.log"

    def _start_service(self, place: Place) -> None:
        transactions = "no" if self._workload.services == "without" else "yes"
        words = [self._url(place), self.uri, str(self.store), str(self.other), transactions]
        words += [DURABLE] * self._workload.is_topic
        place.lives.append(Child(PROGRAMS / "booker.py", *words, log=self._log(place)))

    def _start_caller(self, caller: Caller) -> None:
        """Have the rest of its numbers asked."""
        asked = {line["number"] for journal in caller.journals for line in lines_of(journal)}
        numbers = [number for number in caller.numbers if number not in asked]
        log = self._log(caller)
        log.with_suffix(".numbers").write_text("".join(f"{each}\n" for each in numbers), "utf-8")
        journal = self.directory / f"{self.name}.{log.stem}"
        caller.journals.append(journal)
        words = (self._url(caller), self.uri, str(log.with_suffix(".numbers")), str(journal), str(CALL_TIMEOUT))
        caller.lives.append(Child(PROGRAMS / "customer.py", *words, log=log))

    def _call(self) -> None:
        """Wait until all callers are through, and do what the schedule says at its moments."""
        faults = list(self._faults)
        progress = Progress("calls begun", self._calls)
        begun, last = 0, time.monotonic()
        while not all(self._is_through(caller) for caller in self.callers):
            found = sum(caller.begun() for caller in self.callers)
            if found > begun:
                progress.add(found - begun)
                begun, last = found, time.monotonic()
            while faults and faults[0].moment <= begun:
                self._do(faults.pop(0))
            if time.monotonic() - last > STANDSTILL_SECONDS:
                self._strange.append(f"no call began for {STANDSTILL_SECONDS:.0f} s")
                for caller in self.callers:
                    say(caller.lives[-1].tell() if caller.lives[-1].status is None else "")
                break
            time.sleep(0.1)
        for thread in self._threads:
            thread.join()

    def _is_through(self, caller: Caller) -> bool:
        with caller.lock:
            return caller.lives[-1].status is not None

    # Faults

    def _do(self, fault: Fault) -> None:
        """Begin it, on a thread of its own."""
        thread = Thread(target=self._hurt, args=[fault], name=f"{fault}")
        self._threads.append(thread)
        thread.start()

    def _hurt(self, fault: Fault) -> None:
        try:
            if fault.target == "broker":
                with self._broker_lock:
                    self._hurt_broker(fault)
            elif fault.kind is Kind.ROLL:
                for place in self.services:
                    with place.lock:
                        self._roll(place)
            else:
                place = next(each for each in (*self.services, *self.callers) if each.name == fault.target)
                with place.lock:
                    if place.lives[-1].status is None:
                        self._hurt_place(place, fault)
        except Exception as error:
            self._strange.append(f"the test itself failed at {fault}: {error!r}")

    def _hurt_broker(self, fault: Fault) -> None:
        pid = self.broker.pid
        assert pid is not None
        if fault.kind is Kind.KILL:
            self._kills["broker"] += 1
            self.broker.kill()
            time.sleep(fault.seconds)
            self.broker.start(START_SECONDS)
            return
        os.kill(pid, signal.SIGSTOP)
        time.sleep(fault.seconds)
        os.kill(pid, signal.SIGCONT)

    def _roll(self, place: Place) -> None:
        self._end(place)
        self._start_service(place)

    def _end(self, place: Place) -> None:
        """End a service; one that has just begun knows no other end than that of the signal."""
        life = place.lives[-1]
        status = life.end(END_SECONDS)
        if status not in (0, -signal.SIGTERM):
            told = "did not end" if status is None else f"ended with {status}"
            if status is None:
                say(life.tell())
            self._strange.append(f"{place.name} {told} at SIGTERM; see {life.log.name}")
            life.kill()

    def _hurt_place(self, place: Place, fault: Fault) -> None:
        if fault.kind is Kind.KILL:
            self._kill(place, fault.seconds)
        elif fault.kind is Kind.PAUSE:
            self._pause(place, fault.seconds)
        else:
            NETWORK[fault.kind](place.proxy, fault.seconds)

    def _kill(self, place: Place, seconds: float) -> None:
        self._kills[place.name.split()[0]] += 1
        place.lives[-1].kill()
        if isinstance(place, Caller):
            place.killed.add(place.journals[-1])
        time.sleep(seconds)
        if isinstance(place, Caller):
            self._start_caller(place)
        else:
            self._start_service(place)

    def _pause(self, place: Place, seconds: float) -> None:
        since = time.monotonic()
        place.lives[-1].pause()
        time.sleep(seconds)
        place.lives[-1].resume()
        if isinstance(place, Caller):
            place.pauses.append((since, time.monotonic()))

    # The end

    def _settle(self) -> None:
        """Look for what is still there when nothing is done to anybody any more, and end the services."""
        for caller in self.callers:
            caller.lives[-1].kill()
        for place in self.services:
            if place.lives[-1].status is not None:
                self._strange.append(f"{place.name} ended by itself; see {place.lives[-1].log.name}")
        self._eventually(lambda: not self._waiting(), "no request waits")
        self._eventually(
            lambda: self._consumers() == self._workload.consumers,
            "all workers are there",
            lambda: f"{self._consumers()} are",
        )
        with ThreadPoolExecutor(PROCESSES) as ending:
            list(ending.map(self._end, self.services))
        if self._workload.is_topic and not self._waiting():
            port = getattr(self.broker.ports, CONNECTORS[self._workload.protocol])
            with soapjms.connect(self._url_at(port, is_service=True)) as connection:
                connection.unsubscribe(brokers.topic(self.name), DURABLE)
        for place in (*self.services, *self.callers):
            for life in place.lives:
                found = life.log.read_text("utf-8", "replace").count("Traceback (most recent call last)")
                if found:
                    self._strange.append(f"{place.name} logged {found} tracebacks; see {life.log.name}")

    def _waiting(self) -> list[str]:
        """Name where requests wait; Artemis calls a durable subscription by its client id."""
        return [each for each in self.broker.counters().messages if each in (self.name, f"{self.name}.{DURABLE}")]

    def _consumers(self) -> int:
        return self.broker.counters().consumers.get(self.name, 0)

    def _eventually(self, condition: Callable[[], object], what: str, instead: Callable[[], str] = lambda: "") -> None:
        """Wait until it holds; note that it did not."""
        until = time.monotonic() + SETTLING_SECONDS
        while not condition():
            if time.monotonic() > until:
                self._strange.append(f"not within {SETTLING_SECONDS:.0f} s: {what} {instead()}")
                return
            time.sleep(0.1)

    def _story(self, ended: float) -> Story:
        answers = {
            journal.name: [number_in(each.body) for each in self._drained(journal.name)]
            for caller in self.callers
            for journal in caller.journals
        }
        abandoned, left = self._left_in_broker()
        return Story(
            calls=self._calls,
            timeout=CALL_TIMEOUT,
            journals=[
                Journal(journal.name, lines_of(journal), journal in caller.killed, caller.pauses)
                for caller in self.callers
                for journal in caller.journals
            ],
            ended=ended,
            effects=self._effects(),
            other_effects=[int(line) for line in self.other.read_text("utf-8").split()],
            answers=answers,
            abandoned=abandoned,
            left=left,
            strange=self._strange,
            kills=self._kills.total(),
        )

    def _effects(self) -> list[int]:
        database = sqlite3.connect(self.store)
        try:
            return [number for (number,) in database.execute("SELECT number FROM booked")]
        except sqlite3.OperationalError:  # no function ever came to making the table
            return []
        finally:
            database.close()

    def _drained(self, name: str) -> list[brokers.Message]:
        """Take all messages of a queue."""
        found: list[brokers.Message] = []

        def take(delivery: brokers.Delivery) -> None:
            found.append(delivery.message)
            delivery.accept()

        if name not in self.broker.counters().messages:
            return found
        with (
            soapjms.connect(self.broker.stomp_url) as connection,
            connection.consume(brokers.queue(name), take, prefetch=100),
        ):
            self._eventually(lambda: name not in self.broker.counters().messages, f"{name} is empty")
        return found

    def _left_in_broker(self) -> tuple[list[int], list[str]]:
        """Return the numbers of answers where temporary destinations had been, and what else is left.

        Artemis makes a queue anew for an answer that comes over AMQP after its caller's temporary queue was removed.
        """
        self._eventually(lambda: not self.broker.counters().connections, "no client is connected")
        # Artemis looks only now and then for what a client of its earlier life left behind.
        self._eventually(lambda: not self.broker.counters().temporaries, "no temporary destination is left")
        found = self.broker.counters()
        left = [f"{count} consumers of {name}" for name, count in found.consumers.items()]
        left += [f"temporary destination {name}" for name in found.temporaries]
        abandoned = []
        for name in found.messages:
            messages = self._drained(name)
            if ANONYMOUS.fullmatch(name) and self._workload.broker == "artemis":
                abandoned += [number_in(each.body) or -1 for each in messages]
            else:
                left += [f"{number_in(each.body)} in {name}" for each in messages]
        return abandoned, left

    def _kill_all(self) -> None:
        for place in (*self.services, *self.callers):
            for life in place.lives:
                life.kill()


def silent(proxy: Proxy, seconds: float, *ways: Way) -> None:
    """Have a proxy forward nothing for a while."""
    proxy.silence(*ways)
    time.sleep(seconds)
    proxy.speak()


def swallowed(proxy: Proxy, seconds: float) -> None:
    """Have a proxy keep for good what comes for a while."""
    proxy.silence()
    time.sleep(seconds)
    proxy.cut()
    proxy.speak()


def delayed(proxy: Proxy, seconds: float) -> None:
    """Have a proxy be slow for a while."""
    proxy.delay(DELAY_SECONDS)
    time.sleep(seconds)
    proxy.delay(0)


NETWORK: Final[dict[Kind, Callable[[Proxy, float], None]]] = {
    Kind.RESET: lambda proxy, _: proxy.cut(),
    Kind.DELAY: delayed,
    Kind.SILENCE: silent,
    Kind.SILENCE_UP: lambda proxy, seconds: silent(proxy, seconds, Way.UP),
    Kind.SILENCE_DOWN: lambda proxy, seconds: silent(proxy, seconds, Way.DOWN),
    Kind.SWALLOW: swallowed,
    Kind.END_UP: lambda proxy, _: proxy.half_close(Way.UP),
    Kind.END_DOWN: lambda proxy, _: proxy.half_close(Way.DOWN),
}

# The program


class Result(NamedTuple):
    """What one run came to."""

    workload: Workload
    seed: int
    seconds: float
    counts: dict[str, int]


COLUMNS: Final = ("calls", "kills", *BAD[:4], "unknown", *BAD[4:])


def table(results: Iterable[Result]) -> str:
    """Write a line for each workload, over all seeds."""
    lines = [["workload", "seeds", *(each.replace("_", " ") for each in COLUMNS), "seconds"]]
    for workload in WORKLOADS:
        own = [each for each in results if each.workload == workload]
        if own:
            sums = [sum(each.counts[column] for each in own) for column in COLUMNS]
            seeds = ",".join(str(each.seed) for each in own)
            lines.append([f"{workload}", seeds, *map(str, sums), f"{sum(each.seconds for each in own):.0f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def run(workload: Workload, seed: int, calls: int, keep: Path | None) -> Result:
    """Run once, and print what went wrong."""
    began = time.monotonic()
    say(f"{workload}, seed {seed}, {calls} calls")
    with (
        directory(keep and keep / f"{workload}-{seed}".replace("/", "-")) as path,
        ChildBroker(RECIPES[workload.broker]()) as broker,
        Drama(workload, broker, path, seed, calls) as drama,
    ):
        verdict = drama.run()
        (path / "broker.log").write_text(broker.log(), "utf-8")
    seconds = time.monotonic() - began
    print(f"{workload}, seed {seed}: {verdict.counts()} in {seconds:.0f} s")
    for each in verdict.problems:
        print(f"  {each}")
    if verdict.answered < calls / 2:
        print(f"  too few were answered to say much: {verdict.answered}")
    sys.stdout.flush()
    return Result(workload, seed, seconds, verdict.counts())


@contextmanager
def directory(keep: Path | None) -> Iterator[Path]:
    """Make a directory for one run."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="soapjms-kill-") as name:
        yield Path(name)


def noted(file: Path | None) -> list[Result]:
    """Read the results of earlier runs."""
    lines = file.read_text("utf-8").splitlines() if file is not None and file.exists() else []
    return [Result(Workload(*workload), *rest) for workload, *rest in map(json.loads, lines)]


def is_good(result: Result) -> bool:
    """Say whether nothing went wrong, and enough went well to say so."""
    return not any(result.counts[name] for name in BAD) and result.counts["answered"] >= result.counts["calls"] / 2


def main() -> int:
    """Run what was asked for, and print the table; 1 if anything but `unknown` is in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="", metavar="WORKLOAD", help=f"one of, or a part: {', '.join(map(str, WORKLOADS))}"
    )
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 1, 2 and 3 by default")
    parser.add_argument("--calls", type=int, default=5000, help="of each workload and seed")
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where ledgers, journals and logs are kept")
    options = parser.parse_args()
    chosen = [each for each in WORKLOADS if options.only in f"{each}"]
    if not chosen:
        parser.error(f"no workload is called so; there are: {', '.join(map(str, WORKLOADS))}")
    earlier = {(each.workload, each.seed, each.counts["calls"]): each for each in noted(options.results)}
    results = list[Result]()
    for seed in options.seed or (1, 2, 3):
        for workload in chosen:
            found = earlier.get((workload, seed, options.calls))
            if found is None:
                found = run(workload, seed, options.calls, options.keep)
                if options.results is not None:
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(f"{json.dumps(found)}\n")
            results.append(found)
    print(table(results))
    return 0 if all(map(is_good, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
