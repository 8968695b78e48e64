"""What metrics and traces cost a call, and that they cost nothing where there are none.

    python benchmarks/observing.py [--calls 2000] [--rounds 7]

A client and a dispatcher in one process on the embedded broker, one call after the other, without observers and with:
the processor time of a call counts, so that other work of the machine disturbs little. The rows are interleaved; a
ratio is the median over the rounds of the row's time beside that of the first row in the same round.

* `none` is measured twice: how far the second is from 1.00 is what the machine makes of it.
* `entered` says how many functions of `soapjms.observing`, `soapjms.prometheus` and `soapjms.opentelemetry` a call goes
  through, on all threads. With no observer none: what is left are questions whether there is one.
* `traces` has the SDK of OpenTelemetry, which makes real spans that go nowhere.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import soapjms
from brokers.embedded import Broker
from soapjms import Client, Dispatcher
from soapjms.observing import Observer

ENVELOPE: Final = (
    b'<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><echo xmlns="urn:bench"><t>'
    + b"x" * 140
    + b"</t></echo></e:Body></e:Envelope>"
)
OBSERVING: Final = ("soapjms.observing", "soapjms.prometheus", "soapjms.opentelemetry")
COUNTED: Final = 20
"""Calls for which the functions are counted, which makes them slow."""


class Idle(Observer):
    """Is told of everything, and follows nothing."""


def metrics() -> Observer:
    """Make what counts, in a registry of its own."""
    from prometheus_client import CollectorRegistry

    from soapjms.prometheus import Metrics

    return Metrics(registry=CollectorRegistry())


def traces() -> Observer:
    """Make what traces, with spans that end nowhere."""
    from opentelemetry.sdk.trace import TracerProvider

    from soapjms.opentelemetry import Traces

    return Traces(tracer_provider=TracerProvider())


ROWS: Final[dict[str, Callable[[], list[Observer]]]] = {
    "none": list,
    "none again": list,
    "one that does nothing": lambda: [Idle()],
    "metrics": lambda: [metrics()],
    "traces": lambda: [traces()],
    "metrics and traces": lambda: [metrics(), traces()],
}


@contextmanager
def calling(observers: list[Observer]) -> Iterator[Client]:
    """Serve an echo, and give its client; both have the observers, which are not to be seen where there are none."""
    service = soapjms.Service()
    service.operation("{urn:bench}echo")(lambda request: request.element)
    seen: dict[str, Any] = {"observer": observers} if observers else {}
    broker = Broker()
    with (
        broker.connect() as there,
        broker.connect() as here,
        Dispatcher(there, "jms:queue:bench", service, workers=1, **seen),
        Client(here, "jms:queue:bench", timeout=60, **seen) as client,
    ):
        call(client, 200)
        yield client


def call(client: Client, calls: int) -> None:
    """Call so often, one after the other."""
    for _ in range(calls):
        client.call(ENVELOPE).raise_for_fault()


def processor_time(client: Client, calls: int) -> float:
    """Return the microseconds of processor time that a call takes, of all threads."""
    began = time.process_time()
    call(client, calls)
    return (time.process_time() - began) / calls * 1e6


def entered(observers: list[Observer]) -> float:
    """Return how many functions of observing a call goes through."""
    found = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        found += event == "call" and frame.f_globals.get("__name__") in OBSERVING

    threading.setprofile(note)  # before there are threads
    sys.setprofile(note)
    try:
        with calling(observers) as client:
            found = 0
            call(client, COUNTED)
            return found / COUNTED
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in ROWS}
    for _ in range(options.rounds):
        for name, made in ROWS.items():
            with calling(made()) as client:
                times[name].append(processor_time(client, options.calls))
    for name, taken in times.items():
        ratios = [mine / first for mine, first in zip(taken, times["none"], strict=True)]
        print(
            f"{name}: {statistics.median(taken):.0f} us a call, ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), {entered(ROWS[name]()):.1f} entered",
            flush=True,
        )


if __name__ == "__main__":
    main()
