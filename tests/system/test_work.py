"""How much work a call makes, counted and not timed: parses, copies, system calls and changes of threads, by name.

Client and service are in this process, each with its own connection, so the counts are those of both.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, FrameType
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from calling_kit import PATIENCE, envelope, fresh, greeter, text_of
from real_brokers import RealBroker

import brokers
from soapjms import Client, Dispatcher, SqliteStore

CALLS: Final = 60

ATTEMPTS: Final = 5
"""On a slow machine nothing may arrive together for a while; what is made always is more each time."""

NAMES: Final[Mapping[str, str]] = {
    "parse_utf8 soapjms/protocol/xml.py": "parses",
    "copy copy.py": "copies of elements",
    "deepcopy copy.py": "copies of elements",
    "send _socket.socket": "writes",
    "recv _socket.socket": "reads",
    "recv_into _socket.socket": "reads",
    "poll select.socket": "waits",
    "select builtins.socket": "waits",
    "begin service/store/tables.py": "store transactions",
    "submit brokers/threads/pool.py": "hand-offs",
    "submit brokers/threads/thread.py": "hand-offs",
    "_call_up brokers/threads/pool.py": "wake-ups",
    "call_at brokers/threads/timer.py": "deadlines",
}
"""What is counted, by the name of the function and its file or type."""

MADE_ALWAYS: Final = {"parses": 3, "copies of elements": 0, "hand-offs": 0, "deadlines": 0}

LIMITS: Final[Mapping[tuple[str, bool, str], Mapping[str, float]]] = {
    ("stomp", True, "one_by_one"): {"writes": 2, "reads": 6, "calls": 282},
    ("stomp", True, "eight_in_flight"): {"writes": 1.5, "reads": 3, "calls": 240},
    ("stomp", False, "one_by_one"): {"writes": 3, "reads": 6, "calls": 243},
    ("stomp", False, "eight_in_flight"): {"writes": 2, "reads": 4, "calls": 235},
    ("amqp", True, "one_by_one"): {"writes": 3, "reads": 6, "waits": 6, "calls": 570},
    ("amqp", True, "eight_in_flight"): {"writes": 3, "reads": 4, "waits": 4, "calls": 450},
    ("amqp", False, "one_by_one"): {"writes": 4, "reads": 6, "waits": 5, "calls": 430},
    ("amqp", False, "eight_in_flight"): {"writes": 4, "reads": 4, "waits": 4, "calls": 400},
}
"""The most for each call, by protocol, with or without transactions, and how calls are made. `calls` are those of our
Python functions, but for the threads' own, which depend on the time. With eight in flight the last three depend on how
much arrives together, so their limits are wide; they show that requests are written, and requests answered, together.
"""

STORE_LIMITS: Final[Mapping[str, Mapping[str, float]]] = {
    "one_by_one": {"writes": 2, "reads": 6, "store transactions": 2, "calls": 362},
    "eight_in_flight": {"writes": 1.5, "reads": 3, "store transactions": 2, "calls": 312},
}
"""The same over STOMP with a store."""

EMBEDDED_LIMITS: Final[Mapping[bool, Mapping[str, float]]] = {
    True: {"parses": 3, "copies of elements": 0, "hand-offs": 1, "deadlines": 0, "calls": 250},
    False: {"parses": 3, "copies of elements": 0, "hand-offs": 1, "deadlines": 0, "calls": 218},
}
"""The same in one process, by whether there are transactions."""

WAKE_UPS: Final[Mapping[str, float]] = {"one_by_one": 1.0, "eight_in_flight": 0.125}
"""The most threads that are woken for a call in one process: one for all the calls before which nobody waits."""

SLACK: Final = 0.25
"""What heart-beats, acknowledgements in batches, and a slow machine may add for each call."""


class Counts:
    """Counts function calls on all threads that start while it is on."""

    def __init__(self) -> None:
        self._of_threads: list[Counter[str]] = []
        self._own = threading.local()

    def note(self, frame: FrameType, event: str, function: Any) -> None:
        """Count one event of the interpreter; see `sys.setprofile`."""
        counts = getattr(self._own, "counts", None)
        if counts is None:
            counts = self._own.counts = Counter()
            self._of_threads.append(counts)
        if event == "call":
            code = frame.f_code
            path = code.co_filename
            counts["calls"] += ("/soapjms/" in path or "/brokers/" in path) and "/brokers/threads/" not in path
            counts[f"{code.co_name} {'/'.join(code.co_filename.rsplit('/', 3)[-3:])}"] += 1
        elif event == "c_call" and isinstance(function, BuiltinFunctionType):
            counts[f"{function.__name__} {type(function.__self__).__mro__[-2].__module__}.socket"] += 1

    def total(self) -> Counter[str]:
        """Return the counts of all threads, under the names of `NAMES`."""
        found: Counter[str] = Counter()
        for counts in self._of_threads:
            for name, number in counts.copy().items():
                known = next((each for what, each in NAMES.items() if _is(name, what)), None)
                if name == "calls" or known is not None:
                    found[known or name] += number
        return found


def _is(name: str, what: str) -> bool:
    function, _, where = what.partition(" ")
    seen, _, place = name.partition(" ")
    return seen == function and place.endswith(where)


@contextmanager
def counting() -> Iterator[Counts]:
    """Count on this thread and on those that start meanwhile."""
    counts = Counts()
    threading.setprofile(counts.note)
    sys.setprofile(counts.note)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def check_work(url: str, run: Callable[[Client], None], limits: Mapping[str, float], **options: Any) -> None:
    """Check that what `CALLS` calls do, for each call, is within limits, once in a few times."""
    name = fresh()
    with (
        counting() as counts,
        brokers.connect(url) as serving,
        brokers.connect(url) as calling,
        Dispatcher(serving, f"jms:queue:{name}", greeter(), workers=8, **options),
        Client(calling, f"jms:queue:{name}", timeout=PATIENCE) as client,
    ):
        run(client)  # what is made once
        for _ in range(ATTEMPTS):
            before = counts.total()
            run(client)
            found = {name: number / CALLS for name, number in (counts.total() - before).items()}
            assert set(found) <= {*limits, "wake-ups"}, found
            assert found["parses"] == limits["parses"], "or nothing was counted"
            if all(number <= limits.get(name, 0) * 1.02 + SLACK for name, number in found.items()):
                return
    pytest.fail(f"more than {limits}: {found}")


def one_by_one(client: Client) -> None:
    """Make calls, each after the response to the one before."""
    for _ in range(CALLS):
        assert text_of(client.call(envelope("Ann"))) == "Hello Ann"


def eight_in_flight(client: Client) -> None:
    """Make calls of which eight are under way."""
    waiting: deque[Any] = deque()
    for _ in range(CALLS):
        if len(waiting) == 8:
            assert text_of(waiting.popleft().result(PATIENCE)) == "Hello Ann"
        waiting.append(client.submit(envelope("Ann")))
    for each in waiting:
        assert text_of(each.result(PATIENCE)) == "Hello Ann"


@pytest.mark.broker
@pytest.mark.parametrize("run", [one_by_one, eight_in_flight])
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_work_of_a_call(
    activemq: RealBroker,
    protocol: str,
    run: Callable[[Client], None],
    transactional: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No call makes more work than it did: see `LIMITS`."""
    monkeypatch.setattr("brokers.threads.pool.BEHIND_TICKS", 10_000)  # however slow the machine, no thread stands in
    url = {"stomp": activemq.stomp_url, "amqp": activemq.amqp_url}[protocol]
    limits = MADE_ALWAYS | LIMITS[urlsplit(url).scheme, transactional, run.__name__]
    check_work(url, run, limits, transactional=transactional)


@pytest.mark.broker
@pytest.mark.parametrize("run", [one_by_one, eight_in_flight])
def test_work_of_a_call_with_a_store(
    activemq: RealBroker, run: Callable[[Client], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store costs two transactions of its own, and no change of threads: see `STORE_LIMITS`."""
    monkeypatch.setattr("brokers.threads.pool.BEHIND_TICKS", 10_000)
    with SqliteStore(tmp_path / "requests.db", lease=600) as store:
        check_work(activemq.stomp_url, run, MADE_ALWAYS | STORE_LIMITS[run.__name__], store=store)


@pytest.mark.parametrize("run", [one_by_one, eight_in_flight])
@pytest.mark.parametrize("transactional", [True, False])
def test_work_of_a_call_in_one_process(
    run: Callable[[Client], None], transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call over the embedded broker makes no more work than it did: see `EMBEDDED_LIMITS`."""
    for name in ("TICK_SECONDS", "BURST_SECONDS"):  # however slow the machine, no thread stands in
        monkeypatch.setattr(f"brokers.threads.pool.{name}", PATIENCE)
    limits = {**EMBEDDED_LIMITS[transactional], "wake-ups": WAKE_UPS[run.__name__]}
    check_work(f"embedded:{fresh()}", run, limits, transactional=transactional)
