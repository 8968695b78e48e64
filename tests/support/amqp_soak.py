"""Hostile clients of the AMQP listener, and many at once: `make soak` runs it whole, `test_amqp_hostile` a part.

PYTHONPATH=.:tests/support python tests/support/amqp_soak.py --inputs 10000 --idle 500 --busy 50 --seed 1
"""

from __future__ import annotations

import argparse
import random
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from amqp_mutations import PATIENCE, Masked, Phase, Scribe, hear_mutated
from amqp_raw import Raw
from proton import Message
from waiting import eventually

import brokers
from brokers import MessageType, queue
from brokers.amqp.listener import Listener, Options
from brokers.amqp.listener.send import OutgoingLink
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker

BATCH = 1000
FILES_A_CLIENT = 8
HELD = 300.0
"""Seconds that a silent client may stay."""

GROWTH = 32 << 20
"""Octets by which the process may grow from its first batch of inputs on."""


def resident() -> int:
    """Return how many octets of memory this process has."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def threads_in(*functions: str) -> int:
    """Count the threads that are in all of these functions, or in what those call.

    Nothing here waits, which would let them go on: frames that have ended meanwhile cannot be read.
    """
    return sum({*_functions(top)}.issuperset(functions) for top in sys._current_frames().values())


def _functions(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back


def paused(listener: Listener) -> int:
    """Count the links of a listener that send nothing until their client reads."""
    links = [link for guest in list(listener._guests) for link in list(guest._links.values())]
    return sum(link._is_paused for link in links if isinstance(link, OutgoingLink))


@contextmanager
def no_thread_left() -> Iterator[None]:
    """See that as many threads are there at the end as at the beginning."""
    before = threading.active_count()
    yield
    eventually(lambda: threading.active_count() <= before, "threads have ended")


def busy_client(url: str, number: int, messages: int) -> None:
    """Send messages to a queue of one's own, and get each of them."""
    mine = queue(f"busy-{number}")
    got: SimpleQueue[object] = SimpleQueue()
    with brokers.connect(url, timeout=PATIENCE) as connection:
        connection.consume(mine, lambda delivery: (got.put(delivery.message.body), delivery.accept())[0], prefetch=10)
        for each in range(messages):
            text = brokers.Message(message_type=MessageType.TEXT, body=f"{each}", destination=mine)
            connection.send(text).result(PATIENCE)
        assert [got.get(timeout=PATIENCE) for _ in range(messages)] == [f"{each}" for each in range(messages)]


def sending_one(port: int) -> list[Phase]:
    """Hold a conversation in which one message is sent to `count`, and return what was said."""
    with Scribe(port) as client:
        client.outcome(client.send(client.attach(None), Message(address="count", body="x")))
        client.connection.close()
        client.until(lambda: client.closed)
        return client.said()


@contextmanager
def in_websocket(port: int) -> Iterator[Masked]:
    """Connect, and upgrade."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        yield Masked(client, port, "amqp", lambda octets: octets)


def tell(client: Masked, phase: Phase) -> None:
    """Say something, and wait for the whole answer."""
    client.send(phase.units)
    heard = 0
    while heard < phase.answer:
        octets = client.receive()
        assert octets is not None, "the listener hung up"
        heard += octets


def hold(idle: int, busy: int, messages: int, binding: WebSocketBinding | None = None) -> None:
    """Hold idle clients, have busy ones work meanwhile, and see that the idle ones are still served afterwards."""
    options = Options(binding=binding, idle=HELD, patience=HELD)
    with no_thread_left(), Listener(Broker(), port=0, options=options) as listener, ExitStack() as stack:
        clients, within = list[Raw](), list[Masked]()
        if binding is None:
            clients = [stack.enter_context(Raw(listener.port, container=f"idle-{each}")) for each in range(idle)]
        else:
            with Listener(listener.broker, port=0) as plain:
                opened, *rest = sending_one(plain.port)
            within = [stack.enter_context(in_websocket(listener.port)) for _ in range(idle)]
            for each in within:
                tell(each, opened)
        with ThreadPoolExecutor(busy) as pool:
            for each in [pool.submit(busy_client, listener.url, number, messages) for number in range(busy)]:
                each.result()
        eventually(lambda: listener.guests == idle, "the busy ones are gone")
        for client in clients:
            client.receive("late")
        for each in within:
            for phase in rest:
                tell(each, phase)
        assert listener.broker.depth(queue("count")) == (len(within) + 1 if within else 0)
        stack.close()
        eventually(lambda: listener.guests == 0, "all are gone")


def hear(inputs: int, seed: int) -> None:
    """Hear mutated conversations in batches, and see that nothing grows."""
    before = 0
    for begin in range(0, inputs, BATCH):
        with no_thread_left():
            heard = hear_mutated(min(BATCH, inputs - begin), seed + begin // BATCH)
        size = resident()
        before = before or size
        print(f"--seed {seed + begin // BATCH}: {dict(heard)}, {size >> 20} MiB", flush=True)
        assert size - before < GROWTH, f"grown by {size - before} octets"


def main() -> int:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--idle", type=int, default=500)
    parser.add_argument("--busy", type=int, default=50)
    parser.add_argument("--messages", type=int, default=100, help="of each busy client")
    parser.add_argument("--seed", type=int, default=None, help="of the first batch of inputs; drawn if it is not given")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if options.seed is None else options.seed
    wanted = FILES_A_CLIENT * (options.idle + options.busy)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    for binding in (None, WebSocketBinding.LENIENT):
        began = time.monotonic()
        hold(options.idle, options.busy, options.messages, binding)
        print(f"{options.idle} idle and {options.busy} busy over {binding or 'tcp'}: {time.monotonic() - began:.1f} s")
    hear(options.inputs, seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
