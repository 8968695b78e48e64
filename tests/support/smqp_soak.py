"""Many subscribers of an SMQP server that is killed again and again; and sessions with mutated octets.

`make soak` runs it all; tests/adapters/smqp/test_smqp_soak.py runs a part.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Lock

from places import ROOT
from progress_kit import Progress

from brokers.errors import BrokerError
from brokers.smqp.client import Client, ClientOptions, Received
from brokers.smqp.server import Options, Right, Server

TOPICS = ("/soak/a", "/soak/b")
OPTIONS = ClientOptions(timeout=20.0, in_doubt=60.0, ack_timeout=20.0, renew=(0.05, 0.5), keepalive=10.0)
STARTED = 60.0
ENDED = 600.0


class Broker:
    """The command `soapjms broker` as a process, which can be killed and started again where it was."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "soapjms.cli", "broker", "--store", str(self._store)]
        command += ["--smqp", f"127.0.0.1:{self.port}", "--context", "soak.example"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "listens at" in line, line
        self.port = int(line.rpartition(":")[2])

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass
class Subscriber:
    """What one subscriber was handed over."""

    name: str
    smuids: list[str] = field(default_factory=list)
    data: set[bytes] = field(default_factory=set)
    by_topic: dict[str, list[int]] = field(default_factory=dict)


class Count:
    """How many deliveries there were, for a thread to wait."""

    def __init__(self) -> None:
        self._changed = Condition(Lock())
        self.number = 0

    def add(self) -> None:
        with self._changed:
            self.number += 1
            self._changed.notify_all()

    def wait_for(self, number: int, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.number >= number, timeout)


def soak(subscribers: int, messages: int, kills: int, directory: Path) -> Counter[str]:
    """Publish, kill, and check that each subscriber has each message, once, in the order of its topic."""
    store = directory / "store"
    prepare(store, subscribers)
    broker = Broker(store)
    count = Count()
    everybody = [Subscriber(f"s{number}") for number in range(subscribers)]
    tally: Counter[str] = Counter()
    with ExitStack() as stack:
        stack.callback(broker.kill)
        for each in everybody:
            client = Client(
                "127.0.0.1",
                broker.port,
                account=each.name,
                password="pw",
                inbox=directory / each.name,
                options=OPTIONS,
            )
            stack.enter_context(client)
            client.subscribe("/soak/*", lambda received, each=each: _hand_over(each, received, count))  # type: ignore[misc]
        publisher = stack.enter_context(
            Client("127.0.0.1", broker.port, account="publisher", password="pw", options=OPTIONS)
        )
        published = _publish(publisher, broker, messages, kills, count, subscribers, tally)
        tally["deliveries"] = subscribers * messages
        arrived = count.wait_for(subscribers * messages, ENDED)
        _settle(everybody, messages)
        assert arrived or all(len(each.data) == messages for each in everybody), count.number
    check(everybody, published, messages)
    return tally


def prepare(store: Path, subscribers: int) -> None:
    """Make the accounts and topics; their passwords are hashed at little cost."""
    with Server(store, Options(context="soak.example", scrypt_cost=2)) as server:
        for topic in TOPICS:
            server.administer(lambda admin, topic=topic: admin.create_topic(topic))  # type: ignore[misc]
        server.administer(lambda admin: admin.grant(None, "/", Right.ALL))
        for name in ("publisher", *(f"s{number}" for number in range(subscribers))):
            server.administer(lambda admin, name=name: admin.create_account(name, "pw"))  # type: ignore[misc]


def _hand_over(subscriber: Subscriber, received: Received, count: Count) -> None:
    number = int(received.smuid.rpartition("/")[2])
    subscriber.smuids.append(received.smuid)
    subscriber.by_topic.setdefault(received.topic, []).append(number)
    if received.data not in subscriber.data:
        subscriber.data.add(received.data)
        count.add()


def _publish(
    publisher: Client,
    broker: Broker,
    messages: int,
    kills: int,
    count: Count,
    subscribers: int,
    tally: Counter[str],
) -> dict[int, bytes]:
    """Publish all; kill the server at moments in between, when so many deliveries were made."""
    published: dict[int, bytes] = {}
    progress = Progress("messages published", messages)
    due = [messages * (number + 1) // (kills + 1) for number in range(kills)]
    for number in range(messages):
        if due and number >= due[0]:
            due.pop(0)
            count.wait_for(subscribers * number // 2, STARTED)  # some are under way, some are not
            broker.kill()
            broker.start()
            tally["kills"] += 1
        data = b"%06d" % number
        while True:
            try:
                published[publisher.publish(TOPICS[number % len(TOPICS)], data, timeout=3600.0).smuid] = data
                progress.add()
                break
            except BrokerError:
                tally["retries"] += 1
                time.sleep(0.05)
    return published


def _settle(everybody: list[Subscriber], messages: int) -> None:
    until = time.monotonic() + STARTED
    while any(len(each.data) < messages for each in everybody) and time.monotonic() < until:
        time.sleep(0.05)


def check(everybody: list[Subscriber], published: dict[int, bytes], messages: int) -> None:
    """See that nothing is missing, twice or out of order."""
    for each in everybody:
        twice = [smuid for smuid, times in Counter(each.smuids).items() if times > 1]
        assert not twice, f"{each.name} was handed over twice: {twice}"
        missing = {b"%06d" % number for number in range(messages)} - each.data
        assert not missing, f"{each.name} misses {sorted(missing)[:10]}"
        numbers = {int(smuid.rpartition("/")[2]) for smuid in each.smuids}
        assert set(published) <= numbers, f"{each.name} misses what was answered 200"
        for topic, order in each.by_topic.items():
            assert order == sorted(order), f"{each.name} has {topic} out of order"


def main() -> None:
    """Run it as told."""
    from smqp_mutations import mutate_sessions

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=100)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        tally = soak(options.subscribers, options.messages, options.kills, Path(directory))
        print(f"{dict(tally)}, none lost, twice or out of order, in {time.monotonic() - began:.0f} s")
    print(f"seed {options.seed}: {dict(mutate_sessions(options.mutations, options.seed))}")


if __name__ == "__main__":
    main()
