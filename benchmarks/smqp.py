"""Messages a second over our SMQP server, beside ActiveMQ over STOMP, on this machine.

    python benchmarks/smqp.py [--seconds 3] [--octets 256] [--threads 1 8] [--without-activemq]

Each server is a process of its own. Both keep what they take: our server commits to SQLite (WAL, synchronous=FULL)
before it answers, ActiveMQ to KahaDB. `published` is how many messages threads of one connection publish, each once
the one before was answered; `delivered` how many of a queue a consumer then takes, each acknowledged before the next.
`to 10 subscribers` is SMQP alone: one publisher, ten subscribers of one topic, two phases for each delivery.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from brokers import Connection, Delivery, Message, MessageType, connect, queue  # noqa: E402 - after the line above
from brokers.smqp.client import Client, Received  # noqa: E402 - after the line above
from brokers.smqp.server import Options, Right, Server  # noqa: E402 - after the line above

SUBSCRIBERS = 10


@contextmanager
def our_server(directory: Path) -> Iterator[int]:
    """Run our server as a process; give its port."""
    store = directory / "store"
    with Server(store, Options(scrypt_cost=2)) as server:
        server.administer(lambda admin: admin.prepare_for_jms())
        server.administer(lambda admin: admin.create_topic("/bench"))
        server.administer(lambda admin: admin.grant(None, "/", Right.ALL))
        for name in ("bench", *(f"s{number}" for number in range(SUBSCRIBERS))):
            server.administer(lambda admin, name=name: admin.create_account(name, "pw"))  # type: ignore[misc]
    command = [sys.executable, "-m", "soapjms.cli", "broker", "--smqp", "127.0.0.1:0", "--store", str(store)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rpartition(":")[2])
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def published(connection: Connection, name: str, octets: int, threads: int, seconds: float) -> tuple[int, float]:
    """Publish from threads for some seconds; return how many, and how many a second."""
    message = Message(message_type=MessageType.BYTES, body=b"x" * octets, destination=queue(name))
    counts = [0] * threads
    started = time.perf_counter()

    def work(thread: int) -> None:
        while time.perf_counter() - started < seconds:
            connection.send(message).result()
            counts[thread] += 1

    workers = [Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts), sum(counts) / (time.perf_counter() - started)


def delivered(connection: Connection, name: str, number: int) -> float:
    """Take so many messages; return how many a second."""
    done, left = Event(), [number]

    def on_delivery(delivery: Delivery) -> None:
        delivery.accept()
        left[0] -= 1
        if not left[0]:
            done.set()

    started = time.perf_counter()
    with connection.consume(queue(name), on_delivery):
        done.wait()
        return number / (time.perf_counter() - started)


def over(url: str, octets: int, threads: list[int], seconds: float, title: str) -> None:
    """Measure one broker."""
    with connect(url) as connection:
        published(connection, "warm-up", octets, 1, 0.5)
        for number in threads:
            name = f"bench-{number}"
            total, rate = published(connection, name, octets, number, seconds)
            print(f"{title}, {number} thread(s): published {rate:,.0f}/s", end="", flush=True)
            print(f", delivered {delivered(connection, name, total):,.0f}/s")


def fan_out(port: int, octets: int, seconds: float) -> None:
    """Publish to ten subscribers."""
    clients = [Client("127.0.0.1", port, account=f"s{number}", password="pw") for number in range(SUBSCRIBERS)]
    arrived, last = [0] * SUBSCRIBERS, time.perf_counter()

    def hand_over(number: int, received: Received) -> None:
        nonlocal last
        arrived[number] += 1
        last = time.perf_counter()

    for number, client in enumerate(clients):
        client.subscribe("/bench", lambda received, number=number: hand_over(number, received))  # type: ignore[misc]
    with Client("127.0.0.1", port, account="bench", password="pw") as publisher:
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            publisher.publish("/bench", b"x" * octets)
            count += 1
        rate = count / (time.perf_counter() - started)
        while sum(arrived) < count * SUBSCRIBERS:
            time.sleep(0.01)
    deliveries = count * SUBSCRIBERS / (last - started)
    print(f"SMQP to {SUBSCRIBERS} subscribers: published {rate:,.0f}/s, delivered {deliveries:,.0f}/s")
    for client in clients:
        client.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--octets", type=int, default=256)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--without-activemq", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, our_server(Path(directory)) as port:
        over(f"smqp://bench:pw@127.0.0.1:{port}", options.octets, options.threads, options.seconds, "SMQP")
        fan_out(port, options.octets, options.seconds)
    if not options.without_activemq:
        from real_brokers import start_activemq

        with start_activemq(is_measured=True) as activemq:
            over(activemq.stomp_url, options.octets, options.threads, options.seconds, "ActiveMQ over STOMP")


if __name__ == "__main__":
    main()
