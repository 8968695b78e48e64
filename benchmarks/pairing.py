"""That pairing takes no more than its share for calls that all have one correlation id, within a window and for long.

python benchmarks/pairing.py [--calls 10000 20000 40000]

Prints seconds of processor time and the peak of memory (that of the records included), and how many times as much each
is as with the calls of the line before. Wanted: at most 2.5 times for twice the calls. "Without an end" has a call a
second for as long as it takes, so its memory stays the same.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

from brokers.message import Destination, DestinationKind, Message, MessageType, queue
from soapjms.protocol.exchange import DEFAULT_WINDOW, pair
from soapjms.protocol.record import EPOCH, Direction, Record

WANTED_RATIO: Final = 2.5
CORRELATION_ID: Final = "always the same"
REPLIES: Final = Destination(DestinationKind.TEMPORARY_QUEUE, "replies")


def record(time_of: timedelta, direction: Direction | None, body: bytes, **options: Any) -> Record:
    """Make a record of one message."""
    headers = {"correlation_id": CORRELATION_ID, **options}
    return Record(
        message=Message(message_type=MessageType.BYTES, body=body, **headers), time=EPOCH + time_of, direction=direction
    )


def in_turn(calls: int, step: timedelta | None = None) -> Iterator[Record]:
    """Ask and answer, again and again, with all destinations."""
    step = step or DEFAULT_WINDOW / calls
    for number in range(calls):
        body = b"%d" % number
        yield record(
            step * number, Direction.REQUEST, body, message_id=f"m{number}", reply_to=REPLIES, destination=queue("in")
        )
        yield record(step * (number + 0.5), Direction.RESPONSE, body, message_id=f"a{number}", destination=REPLIES)


def endless(calls: int) -> Iterator[Record]:
    """Ask and answer for hours without a pause."""
    return in_turn(calls, timedelta(seconds=1))


def unplaced(calls: int) -> Iterator[Record]:
    """Ask everything first, then answer everything, nobody knowing where to."""
    step = DEFAULT_WINDOW / (2 * calls)
    for number in range(2 * calls):
        asks = number < calls
        yield record(
            step * number,
            Direction.REQUEST if asks else Direction.RESPONSE,
            b"%d" % number,
            message_id=f"m{number}",
            reply_to=REPLIES if asks else None,
        )


def undirected(calls: int) -> Iterator[Record]:
    """Ask with a reply destination of each call's own, answer with a request; no direction is known."""
    step = DEFAULT_WINDOW / (2 * calls)
    for number in range(2 * calls):
        reply_to = Destination(DestinationKind.TEMPORARY_QUEUE, f"r{number}")
        yield record(step * number, None, b"%d" % number, message_id=f"m{number}", reply_to=reply_to)


def copied(calls: int) -> Iterator[Record]:
    """Ask with one body, seen first without message ids and then with them."""
    step = DEFAULT_WINDOW / (2 * calls)
    for number in range(2 * calls):
        name = f"m{number}" if number >= calls else None
        yield record(step * number, Direction.REQUEST, b"the same", message_id=name, reply_to=REPLIES)


def contrary(calls: int) -> Iterator[Record]:
    """Send one-way messages without message ids, and answers that look like their copies."""
    step = DEFAULT_WINDOW / (2 * calls)
    for number in range(2 * calls):
        kind = (Direction.ONE_WAY, None) if number < calls else (Direction.RESPONSE, f"m{number}")
        yield record(step * number, kind[0], b"the same", message_id=kind[1])


KINDS: Final[dict[str, Callable[[int], Iterator[Record]]]] = {
    "in turn": in_turn,
    "without an end": endless,
    "without destinations": unplaced,
    "without directions": undirected,
    "copies without ids": copied,
    "copies that are none": contrary,
}


def seconds(records: Iterator[Record]) -> float:
    """Return the processor time to pair records."""
    gc.collect()
    begun = time.process_time()
    for _ in pair(records):
        pass
    return time.process_time() - begun


def megabytes(records: Iterator[Record]) -> float:
    """Return the peak of memory while records are paired."""
    tracemalloc.start()
    for _ in pair(records):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, nargs="+", default=[10_000, 20_000, 40_000])
    options = parser.parse_args()
    worst = 0.0
    print(f"{'':22}{'calls':>8}{'s':>8}{'times':>7}{'MB':>8}{'times':>7}")
    for name, make in KINDS.items():
        before: tuple[float, float] | None = None
        for calls in options.calls:
            now = seconds(make(calls)), megabytes(make(calls))
            ratios = tuple(one / other for one, other in zip(now, before, strict=True)) if before else ()
            worst = max(worst, *ratios, 0.0)
            shown = [f"{each:.2f}" for each in ratios] or ["", ""]
            print(f"{name:22}{calls:8}{now[0]:8.2f}{shown[0]:>7}{now[1]:8.0f}{shown[1]:>7}", flush=True)
            before = now
    print(f"worst {worst:.2f}, wanted at most {WANTED_RATIO} for twice the calls")


if __name__ == "__main__":
    main()
