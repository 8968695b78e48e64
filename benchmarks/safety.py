"""What safety costs: our dispatcher beside bare stomp.py loops that do the same on the wire, over ActiveMQ Classic.

Both are asked by the same bare stomp.py client, so that what differs is the service; `calls.py` compares both sides.

    python benchmarks/safety.py [--pairs 5] [--seconds 3] [--rows plain receipts transactions long slow]

* `transactions`: answers and acknowledgements in group commits, beside a bare loop with the same commits.
* `plain`: no transactions, non-persistent, beside an echo that answers and acknowledges, with no receipts.
* `receipts`: no transactions, persistent: each send waits for its receipt, beside a bare loop that does so.
* `long`: calls a second after 100,000 requests beside those after 1,000, by the same dispatcher; on Artemis too. One
  run of some minutes, so only where it is asked for.
* `slow`: the 99th percentile of calls while one function takes 10 s, beside the usual one; on Artemis too. At
  most three runs, as they take long.

Each side is a process of its own. Beside the rates stands the processor time that a call takes of the service, of which
`stages.py` says what it goes into. Pairs are interleaved; what counts is the median of their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

from calls import CLOSE, ENVELOPE, OPEN, WARM_UP, BareClient, BareService, bare_connection, run_processes, stay

AIMS: Final = {
    ("transactions", 1): 0.85,
    ("transactions", 8): 0.75,
    ("transactions", 32): 0.75,
    ("plain", 1): 0.65,
    ("plain", 8): 0.65,
    ("plain", 32): 0.65,
    ("receipts", 1): 0.75,
    ("receipts", 8): 0.75,
    ("receipts", 32): 0.75,
}
SLOW_AIM: Final = 2.0
LONG_AIM: Final = 1.0
"""But for what two runs on one machine differ."""

SLOW: Final = 10.0
"""Seconds that a slow function takes."""

SLOW_RUNS: Final = 3
"""The most runs of the row `slow` on each broker: each takes as long as the slow function, and some."""

OURS_ONLY: Final = frozenset({"long", "slow"})
"""Rows that compare our dispatcher with itself, by our client."""

PERSISTENT: Final = frozenset({"transactions", "receipts"})


class PlainEcho(BareService):
    """Echoes at once, on the thread that reads, and acknowledges; with receipts when the broker has the answer."""

    def __init__(self, *, receipts: bool) -> None:
        super().__init__()
        self._receipts = receipts
        self._waiting: dict[str, str] = {}
        self._connection: Any = None

    def on_message(self, frame: Any) -> None:
        headers = {
            "correlation-id": frame.headers["correlation-id"],
            "persistent": frame.headers.get("persistent", "false"),
            "SOAPJMS_requestURI": frame.headers["SOAPJMS_requestURI"],
            "SOAPJMS_bindingVersion": "1.0",
            "SOAPJMS_contentType": "text/xml; charset=utf-8",
            "SOAPJMS_isFault": "false",
            "content-length": str(len(frame.body)),
        }
        if self._receipts:
            headers["receipt"] = frame.headers["correlation-id"]
            self._waiting[headers["receipt"]] = frame.headers["ack"]
        self._connection.send(frame.headers["reply-to"], frame.body, headers=headers)
        if not self._receipts:
            self._connection.ack(frame.headers["ack"])

    def on_receipt(self, frame: Any) -> None:
        acknowledged = self._waiting.pop(frame.headers["receipt-id"], None)
        if acknowledged is not None:
            self._connection.ack(acknowledged)

    def run(self, url: str, name: str, in_flight: int) -> None:
        self._connection = bare_connection(url, self)
        for number in range(in_flight):
            self._connection.subscribe(
                f"/queue/{name}",
                str(number),
                ack="client",
                headers={"activemq.prefetchSize": "1"},
            )
        stay()
        self._connection.disconnect()


def serve(row: str, url: str, name: str, in_flight: int) -> None:
    """Serve an echo with our dispatcher until standard input ends; the text `slow` makes it take its time."""
    import brokers
    import soapjms

    service = soapjms.Service()

    @service.operation("{urn:bench}echo")
    def echo(request: soapjms.Request) -> Any:
        if request.element[0].text == "slow":
            time.sleep(SLOW)
        return request.element

    together = row not in ("plain", "receipts")
    with (
        brokers.connect(url) as connection,
        soapjms.Dispatcher(connection, f"jms:queue:{name}", service, workers=in_flight, transactional=together),
    ):
        stay()


class Caller:
    """Calls with our client, and prints what its row is about."""

    def __init__(self, client: Any, in_flight: int) -> None:
        self._client = client
        self._in_flight = in_flight

    def rate(self, seconds: float, calls: float = float("inf")) -> float:
        """Call for some seconds, or so often; return calls a second."""
        done, waiting, started = 0, deque[Any](), time.perf_counter()
        while time.perf_counter() - started < seconds and done < calls:
            while len(waiting) < self._in_flight:
                waiting.append(self._client.submit(ENVELOPE))
            waiting.popleft().result().raise_for_fault()
            done += 1
        elapsed = time.perf_counter() - started
        for future in waiting:
            future.result()
        return done / elapsed

    def percentile(self, seconds: float) -> float:
        """Return the 99th percentile of the seconds that a call takes, one at a time."""
        taken, until = [], time.perf_counter() + seconds
        while time.perf_counter() < until:
            started = time.perf_counter()
            self._client.call(ENVELOPE).raise_for_fault()
            taken.append(time.perf_counter() - started)
        return statistics.quantiles(taken, n=100)[98]


def call(row: str, url: str, name: str, in_flight: int, seconds: float) -> None:
    """Print what a row of ours alone measures."""
    import brokers
    import soapjms

    uri = f"jms:queue:{name}?deliveryMode=PERSISTENT"
    with brokers.connect(url) as connection, soapjms.Client(connection, uri, timeout=60) as client:
        caller = Caller(client, in_flight)
        caller.rate(60, 200)
        if row == "long":
            caller.rate(60, 1_000)
            first = caller.rate(seconds)
            caller.rate(600, 100_000)
            print(caller.rate(seconds) / first)
        else:
            usual = caller.percentile(seconds)
            slow = client.submit(OPEN + b"slow" + CLOSE)
            print(caller.percentile(SLOW - 0.2) / usual)
            slow.result()


def run_side(side: str, row: str, url: str, name: str, in_flight: int, seconds: float) -> tuple[float, float]:
    """Start a service and a client as processes, and return what they print; see `run_processes`."""
    common = [sys.executable, __file__, "--url", url, "--name", name, "--in-flight", str(in_flight)]
    base = [*common, "--seconds", str(seconds), "--rows", row]
    (rate,), processor = run_processes(base, side, seconds + 900)
    return rate, processor


def compare(options: argparse.Namespace) -> None:
    """Print a line for each row and number of calls in flight."""
    from real_brokers import start_activemq, start_artemis

    with start_activemq(is_measured=True) as broker:
        for row in options.rows:
            if row in OURS_ONLY:
                print_ours(broker, row, options)
            else:
                for in_flight in options.in_flight:
                    print_pairs(broker.stomp_url, row, in_flight, options)
    ours = [row for row in options.rows if row in OURS_ONLY]
    if ours:
        with start_artemis(is_measured=True) as broker:
            for row in ours:
                print_ours(broker, row, options)


def print_ours(broker: Any, row: str, options: argparse.Namespace) -> None:
    """Run a row that compares our dispatcher with itself on one broker."""
    if row == "slow":
        print_slow(broker, options)
        return
    ratio, _ = run_side("our", row, broker.stomp_url, f"safety.{row}", 8, options.seconds)
    print(f"{row}, {broker.recipe.title}: ratio {ratio:.2f}, aim {LONG_AIM:.2f}", flush=True)


def print_slow(broker: Any, options: argparse.Namespace) -> None:
    """Run the pairs of the row `slow` on one broker."""
    ratios = [
        run_side("our", "slow", broker.stomp_url, f"safety.slow.{pair}", 8, options.seconds)[0]
        for pair in range(min(options.pairs, SLOW_RUNS))
    ]
    print(
        f"slow, {broker.recipe.title}: ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"aim below {SLOW_AIM:.2f}",
        flush=True,
    )


def print_pairs(url: str, row: str, in_flight: int, options: argparse.Namespace) -> None:
    """Run the pairs of one row and one number of calls in flight."""
    bare, ours, costs = [], [], []
    for pair in range(options.pairs):
        name = f"safety.{row}.{in_flight}.{pair}"
        cost = []
        for side, rates in (("bare", bare), ("our", ours)):
            rate, processor = run_side(side, row, url, f"{name}.{side}", in_flight, options.seconds)
            rates.append(rate)
            cost.append(1e6 * processor / (rate * options.seconds + WARM_UP))
        costs.append(cost)
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    print(
        f"{row}, {in_flight} in flight: bare {statistics.median(bare):.0f}/s, ours {statistics.median(ours):.0f}/s, "
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"aim {AIMS.get((row, in_flight), 0):.2f}; "
        f"processor time a call, of the service: bare {statistics.median(each[0] for each in costs):.0f} us, "
        f"ours {statistics.median(each[1] for each in costs):.0f} us",
        flush=True,
    )


def main() -> None:
    """Compare, or be one side of a pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rows", nargs="+", default=["transactions", "plain", "receipts", "slow"])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--side", choices=["our-service", "our-client", "bare-service", "bare-client"])
    parser.add_argument("--url")
    parser.add_argument("--name")
    options = parser.parse_args()
    if options.side is None:
        compare(options)
        return
    row, in_flight = options.rows[0], options.in_flight[0]
    match options.side:
        case "our-service":
            serve(row, options.url, options.name, in_flight)
        case "our-client" if row in OURS_ONLY:
            call(row, options.url, options.name, in_flight, options.seconds)
        case "bare-service":
            service = BareService() if row == "transactions" else PlainEcho(receipts=row == "receipts")
            service.run(options.url, options.name, in_flight)
        case _:  # both services have the same bare client
            BareClient().run(options.url, options.name, in_flight, row in PERSISTENT, options.seconds)


if __name__ == "__main__":
    main()
