"""Calls a second of our client and dispatcher over ActiveMQ, beside a bare stomp.py loop with the same wire traffic.

    python benchmarks/calls.py [--pairs 5] [--seconds 3] [--modes persistent non-persistent] [--in-flight 1 8 32]

Persistent is what JMS has by default, and so has the client.

Both do the same on the wire: requests of 256 octets, one subscription with prefetch 1 for each call in flight, group
commits (BEGIN, each SEND with its receipt, each ACK, COMMIT with a receipt), replies with `ack:auto` on a temporary
queue, TCP_NODELAY. The bare loop uses stomp.py as its documentation shows, reads no SOAP and judges nothing. Each side
is a process of its own. Pairs are interleaved; what counts is the median of their ratios. The last column is our client
and dispatcher over AMQP 1.0 on the same broker.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

OCTETS = 256
GROUP = 64
WARM_UP = 200
"""Calls before the measured ones."""
MODES = ["persistent", "non-persistent"]
OPEN, CLOSE = (
    b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><echo xmlns="urn:bench"><t>',
    b"</t></echo></e:Body></e:Envelope>",
)
ENVELOPE = OPEN + b"x" * (OCTETS - len(OPEN) - len(CLOSE)) + CLOSE


# Ours


def our_service(url: str, name: str, in_flight: int, persistent: bool) -> None:
    """Serve an echo until standard input ends."""
    import brokers
    import soapjms

    service = soapjms.Service()
    service.operation("{urn:bench}echo")(lambda request: request.element)
    with (
        brokers.connect(url) as connection,
        soapjms.Dispatcher(connection, f"jms:queue:{name}", service, workers=in_flight),
    ):
        stay()


def our_client(url: str, name: str, in_flight: int, persistent: bool, seconds: float) -> None:
    """Call for some seconds and print calls a second."""
    import brokers
    import soapjms

    uri = f"jms:queue:{name}?deliveryMode={'PERSISTENT' if persistent else 'NON_PERSISTENT'}"
    with brokers.connect(url) as connection, soapjms.Client(connection, uri, timeout=60) as client:
        for _ in range(WARM_UP):
            client.call(ENVELOPE)
        calls, waiting, started = 0, deque[Any](), time.perf_counter()
        while time.perf_counter() - started < seconds:
            if in_flight == 1:
                client.call(ENVELOPE).raise_for_fault()
            else:
                while len(waiting) < in_flight:
                    waiting.append(client.submit(ENVELOPE))
                waiting.popleft().result().raise_for_fault()
            calls += 1
        elapsed = time.perf_counter() - started
        for future in waiting:
            future.result()
    print(calls / elapsed)


# Bare stomp.py


def bare_connection(url: str, listener: Any) -> Any:
    """Connect with stomp.py."""
    import socket
    from urllib.parse import urlsplit

    import stomp

    parts = urlsplit(url)
    connection = stomp.StompConnection12(
        [(parts.hostname, parts.port)], auto_decode=False, auto_content_length=False, heartbeats=(10000, 10000)
    )
    connection.set_listener("bare", listener)
    connection.connect(parts.username, parts.password, wait=True)
    connection.transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class BareService:
    """Echoes in group commits."""

    def __init__(self) -> None:
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.committed: queue.SimpleQueue[str] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.arrived.put(frame)

    def on_receipt(self, frame: Any) -> None:
        if frame.headers["receipt-id"].startswith("commit"):
            self.committed.put(frame.headers["receipt-id"])

    def run(self, url: str, name: str, in_flight: int) -> None:
        connection = bare_connection(url, self)
        for number in range(in_flight):
            connection.subscribe(f"/queue/{name}", str(number), ack="client", headers={"activemq.prefetchSize": "1"})
        threading.Thread(target=self.commit_all, args=(connection,), daemon=True).start()
        stay()
        connection.disconnect()

    def commit_all(self, connection: Any) -> None:
        number = 0
        while True:
            group = [self.arrived.get()]
            while len(group) < GROUP:
                try:
                    group.append(self.arrived.get_nowait())
                except queue.Empty:
                    break
            number += 1
            self.commit(connection, f"t{number}", group)
            self.committed.get()

    def commit(self, connection: Any, transaction: str, group: list[Any]) -> None:
        connection.begin(transaction)
        for position, frame in enumerate(group):
            headers = {
                "correlation-id": frame.headers["correlation-id"],
                "persistent": frame.headers.get("persistent", "false"),
                "SOAPJMS_requestURI": frame.headers["SOAPJMS_requestURI"],
                "SOAPJMS_bindingVersion": "1.0",
                "SOAPJMS_contentType": "text/xml; charset=utf-8",
                "SOAPJMS_isFault": "false",
                "content-length": str(len(frame.body)),
                "transaction": transaction,
                "receipt": f"{transaction}-{position}",
            }
            connection.send(frame.headers["reply-to"], frame.body, headers=headers)
            connection.ack(frame.headers["ack"], transaction=transaction)
        connection.commit(transaction, headers={"receipt": f"commit-{transaction}"})


class BareClient:
    """Keeps a number of requests in flight."""

    def __init__(self) -> None:
        self.replies: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.replies.put(frame)

    def run(self, url: str, name: str, in_flight: int, persistent: bool, seconds: float) -> None:
        connection = bare_connection(url, self)
        connection.subscribe("/temp-queue/r", "r", ack="auto", headers={"activemq.prefetchSize": "1000"})
        headers = {
            "reply-to": "/temp-queue/r",
            "persistent": "true" if persistent else "false",
            "SOAPJMS_requestURI": f"jms:queue:{name}",
            "SOAPJMS_bindingVersion": "1.0",
            "SOAPJMS_contentType": "text/xml; charset=utf-8",
            "content-length": str(len(ENVELOPE)),
        }

        def send(number: int) -> None:
            extra = {"correlation-id": f"c-{number}"}
            if persistent:
                extra["receipt"] = f"r-{number}"
            connection.send(f"/queue/{name}", ENVELOPE, headers=headers | extra)

        for number in range(WARM_UP):
            send(number)
            self.replies.get(timeout=30)
        sent = calls = 0
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            while sent - calls < in_flight:
                send(1000 + sent)
                sent += 1
            self.replies.get(timeout=30)
            calls += 1
        elapsed = time.perf_counter() - started
        for _ in range(sent - calls):
            self.replies.get(timeout=30)
        connection.disconnect()
        print(calls / elapsed)


# Pairs


def run_side(kind: str, url: str, name: str, in_flight: int, options: argparse.Namespace) -> float:
    """Start a service and a client as processes, and return the client's calls a second."""
    common = ["--url", url, "--name", name, "--in-flight", str(in_flight), "--seconds", str(options.seconds)]
    if options.persistent:
        common.append("--persistent")
    return run_processes([sys.executable, __file__, *common], kind, options.seconds + 60)[0][0]


def stay() -> None:
    """Serve until standard input ends; print the seconds of processor time that this process took meanwhile."""
    started = time.process_time()
    print("ready", flush=True)
    sys.stdin.read()
    print(time.process_time() - started, flush=True)


def run_processes(base: list[str], kind: str, timeout: float) -> tuple[list[float], float]:
    """Start a service and a client as processes of a benchmark; return what the client prints, and the number of the
    service: the seconds of processor time that it took.
    """
    with subprocess.Popen(
        [*base, "--side", f"{kind}-service"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        try:
            if service.stdout.readline().strip() != b"ready":
                raise RuntimeError(f"the {kind} service did not start")
            client = [*base, "--side", f"{kind}-client"]
            done = subprocess.run(client, capture_output=True, text=True, timeout=timeout, check=True)
        finally:
            service.stdin.close()
            service.wait(30)
        return [float(each) for each in done.stdout.split()], float(service.stdout.read())


def compare(options: argparse.Namespace) -> None:
    """Print a table for each delivery mode, a row for each number of calls in flight."""
    from real_brokers import start_activemq

    with start_activemq(is_measured=True) as broker:
        for mode in options.modes:
            options.persistent = mode == "persistent"
            print(f"{OCTETS} octets, {mode}, {options.pairs} interleaved pairs of {options.seconds:g} s each")
            print(
                f"{'in flight':>9}  {'bare/s':>7}  {'ours/s':>7}  {'ratio':>5}  {'spread':<12}  {'amqp/s':>7}",
                flush=True,
            )
            for in_flight in options.in_flight:
                print_row(broker.stomp_url, broker.amqp_url, f"bench.{mode}", in_flight, options)


def print_row(url: str, amqp_url: str, prefix: str, in_flight: int, options: argparse.Namespace) -> None:
    """Run the pairs of one number of calls in flight."""
    bare, ours, amqp = [], [], []
    for pair in range(options.pairs):
        name = f"{prefix}.{in_flight}.{pair}"
        bare.append(run_side("bare", url, f"{name}.b", in_flight, options))
        ours.append(run_side("our", url, f"{name}.o", in_flight, options))
        amqp.append(run_side("our", amqp_url, f"{name}.a", in_flight, options))
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(
        f"{in_flight:>9}  {statistics.median(bare):>7.0f}  {statistics.median(ours):>7.0f}  "
        f"{statistics.median(ratios):>5.2f}  {spread:<12}  {statistics.median(amqp):>7.0f}",
        flush=True,
    )


def main() -> None:
    """Compare, or be one side of a pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--persistent", action="store_true", help="of one side")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--side", choices=["our-service", "our-client", "bare-service", "bare-client"])
    parser.add_argument("--url")
    parser.add_argument("--name")
    options = parser.parse_args()
    if options.side is None:
        compare(options)
        return
    in_flight = options.in_flight[0]
    match options.side:
        case "our-service":
            our_service(options.url, options.name, in_flight, options.persistent)
        case "our-client":
            our_client(options.url, options.name, in_flight, options.persistent, options.seconds)
        case "bare-service":
            BareService().run(options.url, options.name, in_flight)
        case "bare-client":
            BareClient().run(options.url, options.name, in_flight, options.persistent, options.seconds)


if __name__ == "__main__":
    main()
