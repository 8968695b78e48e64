"""Calls go on while the broker and the services are killed: `python tests/kill_kit.py --requests 2000 --seed 7`.

Eight callers with each strategy for replies, two services that share a store. The broker and single services are killed
with SIGKILL at moments drawn at random, and started again. `call_checker` then says what became of each call.
"""

from __future__ import annotations

import argparse
import gc
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from call_checker import Story, Verdict, check
from calling_kit import Wrapped, envelope, eventually, fresh, text_of
from processes_kit import Child
from progress_kit import Progress, say
from real_brokers import STARTERS, RealBroker

import soapjms
from brokers import Completion, Message, SendResult, Transaction
from brokers.stomp.connection import StompConnection
from brokers.stomp.consumer import StompConsumer
from soapjms import CallFailedError, Client, Recorder
from soapjms.calls import Call
from soapjms.protocol.names import FailureReason

CALLERS: Final = 8
SERVICES: Final = 2
CALL_TIMEOUT: Final = 90.0
RESTART: Final = 3 * CALL_TIMEOUT
"""Seconds in which what a broker that restarts holds up has to happen."""

BOOKER: Final = Path(__file__).parent / "data" / "services" / "booker.py"


class Confirming(Wrapped):
    """A connection that notes the requests of which the broker said that it has them."""

    def __init__(self, inner: soapjms.Connection, confirmed: set[str]) -> None:
        super().__init__(inner)
        self._confirmed = confirmed

    def send(self, message: Message, transaction: Transaction | None = None) -> Completion[SendResult]:
        done = self.inner.send(message, transaction)
        done.on_settled(lambda settled: settled.exception() or self._confirmed.add(message.correlation_id or ""))
        return done


class Drama:
    """One run.

    Args:
        broker: which runs.
        directory: for logs and store.
        requests: how many calls.
        broker_kills, service_kills: how often.
        transactions: whether the services use those of the broker.
        seed: of the random choices.
    """

    def __init__(
        self,
        broker: RealBroker,
        directory: Path,
        *,
        requests: int,
        broker_kills: int,
        service_kills: int,
        transactions: bool,
        seed: int,
    ) -> None:
        self.broker = broker
        self.directory = directory
        self.requests = requests
        self.name = fresh("killed")
        self.store = directory / "requests.db"
        self.other = directory / "other.txt"
        self._dice = random.Random(seed)
        self._seed = seed
        self._transactions = "yes" if transactions else "no"
        kills = [self._kill_broker] * broker_kills + [self._kill_service] * service_kills
        self._dice.shuffle(kills)
        moments = sorted(self._dice.sample(range(requests // 20, requests * 9 // 10), len(kills)))
        self._kills = list(zip(moments, kills, strict=True))
        self._services: list[Child] = []
        self._service_logs: list[Path] = []
        self._lock = Lock()
        self._progress = Progress("calls are over", requests)
        self._outcomes: dict[int, str | None] = {}
        self._unsent: set[int] = set()
        self._confirmed: set[str] = set()

    def run(self) -> Verdict:
        """Have it all happen, and judge."""
        logs = {f"caller {each}": self.directory / f"caller-{each}.jsonl" for each in range(CALLERS)}
        with ExitStack() as stack:
            stack.callback(self._end_services)
            for _ in range(SERVICES):
                self._start_service()
            with ThreadPoolExecutor(CALLERS) as callers:
                done = [callers.submit(self._call, each, log) for each, log in enumerate(logs.values())]
                for moment, kill in self._kills:
                    eventually(lambda: len(self._outcomes) >= moment, f"{moment} calls are over", RESTART)  # noqa: B023
                    kill()
                for each in done:
                    each.result()
            eventually(lambda: self.name not in self.broker.counters().messages, "no request is left", RESTART)
        return check(self._story(logs))

    def _call(self, caller: int, log: Path) -> None:
        """Call again and again, one call at a time."""
        fixed = f"?replyToName={self.name}.answers" if is_shared(caller) else ""
        profile = ("rec-2012", "cr-2009", "rec-2012")[caller % 3]
        with (
            soapjms.connect(self.broker.stomp_url) as connection,
            Recorder(log) as recorder,
            Client(
                Confirming(connection, self._confirmed),
                f"jms:queue:{self.name}{fixed}",
                recorder=recorder,
                profile=profile,
                timeout=CALL_TIMEOUT,
            ) as client,
        ):
            for number in range(caller, self.requests, CALLERS):
                self._note(number, *ask(client, number))

    def _note(self, number: int, outcome: str | None, was_sent: bool) -> None:
        with self._lock:
            self._outcomes[number] = outcome
            if not was_sent:
                self._unsent.add(number)
        self._progress.add()

    def _start_service(self) -> None:
        log = self.directory / f"service-{len(self._service_logs)}.jsonl"
        self._service_logs.append(log)
        files = map(str, (self.store, log, self.other))
        words = self.broker.stomp_url, f"jms:queue:{self.name}", *files, self._transactions
        self._services.append(Child(BOOKER, *words, says="serving"))

    def _kill_service(self) -> None:
        say(f"  after {len(self._outcomes)} calls a service is killed")
        time.sleep(self._dice.uniform(0, 0.05))
        self._services.pop(self._dice.randrange(len(self._services))).kill()
        self._start_service()

    def _kill_broker(self) -> None:
        say(f"  after {len(self._outcomes)} calls the broker is killed")
        time.sleep(self._dice.uniform(0, 0.05))
        self.broker.kill()
        time.sleep(self._dice.uniform(0, 0.5))
        self.broker.start()

    def _end_services(self) -> None:
        for each in self._services:
            each.kill()

    def _story(self, logs: Mapping[str, Path]) -> Story:
        database = sqlite3.connect(self.store)
        try:
            effects = [number for (number,) in database.execute("SELECT number FROM booked")]
        finally:
            database.close()
        return Story(
            callers=logs,
            services=self._service_logs,
            numbers=range(self.requests),
            outcomes=self._outcomes,
            confirmed=frozenset(self._confirmed),
            unsent=frozenset(self._unsent),
            effects=effects,
            other_effects=[int(line) for line in self.other.read_text("utf-8").splitlines()],
            seed=self._seed,
        )


def is_shared(caller: int) -> bool:
    """Say whether a caller's replies come in at the fixed queue that it shares with others."""
    return caller % 3 == 2


def strays(broker: str, verdict: Verdict, *, transactions: bool) -> list[int]:
    """Name the copies of answers that nothing explains.

    A fixed reply queue outlasts the connection: what the broker had handed over and was not told of comes again.
    Artemis lets answers out and delivers their requests again where a service dies at the moment of its commit; they
    are answered from the store then, as everywhere without transactions. The client drops the second answer each time.
    """
    return (
        []
        if broker == "artemis" or not transactions
        else [each for each in verdict.copies if not is_shared(each % CALLERS)]
    )


def ask(client: Client, number: int) -> tuple[str | None, bool]:
    """Call once; return the answer, None for an error, and whether the request may have been sent."""
    try:
        return text_of(client.call(envelope(str(number)))), True
    except CallFailedError as error:
        return None, error.reason is not FailureReason.TRANSMISSION_FAILURE


def leftovers(broker: RealBroker) -> list[str]:
    """Name what is left in the broker and in this process that should not be."""
    eventually(lambda: not broker.counters().connections, "no client is connected")
    # Artemis looks only now and then for what a client of its earlier life left behind.
    eventually(lambda: not broker.counters().temporaries, "no temporary destination is left", RESTART)
    found = broker.counters()
    left = [f"{count} messages in {name}" for name, count in found.messages.items()]
    left += [f"{count} consumers of {name}" for name, count in found.consumers.items()]
    left += [f"temporary destination {name}" for name in found.temporaries]
    gc.collect()
    left += [repr(each) for each in gc.get_objects() if isinstance(each, StompConnection | StompConsumer | Call)]
    return left + broker.problems()


@contextmanager
def directory() -> Iterator[Path]:
    """Make a directory for one run."""
    with tempfile.TemporaryDirectory(prefix="soapjms-kill-") as name:
        yield Path(name)


def main() -> int:
    """Run once, print one line and what is left; 1 if anything is wrong, or fewer than three quarters are answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=STARTERS, default="activemq")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--broker-kills", type=int, default=3)
    parser.add_argument("--service-kills", type=int, default=5)
    parser.add_argument("--no-transactions", dest="transactions", action="store_false")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    with STARTERS[options.broker]() as broker, directory() as path:
        verdict = Drama(
            broker,
            path,
            requests=options.requests,
            broker_kills=options.broker_kills,
            service_kills=options.service_kills,
            transactions=options.transactions,
            seed=options.seed,
        ).run()
        left = leftovers(broker)
    print(f"{options.broker}: {verdict}")
    copies = [
        f"a second answer for {each}" for each in strays(options.broker, verdict, transactions=options.transactions)
    ]
    for each in (*verdict.unexpected, *copies, *left):
        print(f"  {each}")
    is_useful = verdict.answered >= 0.75 * options.requests
    return 0 if verdict.is_good and is_useful and not copies and not left else 1


if __name__ == "__main__":
    sys.exit(main())
