"""What an honest client notices at the HTTP bridge while 200 hostile connections do nothing, little, or do not read.

    python benchmarks/bridge_attack.py [--hostile 200] [--seconds 3] [--rounds 3] [--kinds silent …]

The bridge is a process of its own, with the service and a broker in memory; so are the hostile clients, all of one
kind at a time, from the address of the honest one. Who is ended comes again a second later. The honest client makes
one call after the other, each on a connection of its own, for some seconds alone and for some among them, in turns.
Printed are the median and the 95th percentile of its calls, alone and among them, and how many times as long they are:
the goal is twice at most, and that no call fails.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import select
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

MIB = 1 << 20
PAUSE = 1.0
"""Seconds after which a hostile client that was ended comes again."""
DRIP = 0.5
"""Seconds between two octets."""
GOAL = 2.0
NS = "urn:bench"
URI = "jms:queue:bench"
TIMEOUT = 60.0

ENVELOPE = (
    '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><{0} xmlns="urn:bench">{1}</{0}></e:Body>'
    "</e:Envelope>"
)
HEAD = b"POST / HTTP/1.1\r\nHost: bench\r\nContent-Type: text/xml\r\n"
HALF = HEAD + b"Content-Length: 100000\r\n\r\n<"


def post(envelope: str) -> bytes:
    """Write a request."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(envelope) + envelope.encode()


KINDS = {
    "silent": (b"", False),
    "dripping head": (HEAD + b"X: ", True),
    "dripping body": (HALF, True),
    "half an upload": (HALF, False),
    "not reading": (post(ENVELOPE.format("much", MIB)), False),
}
"""What a hostile client says at once, and whether it drips from then on."""


# The bridge


def serve(pipe: Pipe) -> None:
    """Run a service, a broker and the bridge until somebody says something; say first at which port."""
    from lxml import etree

    import soapjms
    from soapjms.bridge.http import HttpBridge
    from soapjms.bridge.listener import Listener

    service = soapjms.Service()

    def answer(text: str) -> etree._Element:
        made = etree.Element(f"{{{NS}}}answer")
        made.text = text
        return made

    service.operation(f"{{{NS}}}greet")(lambda request: answer(f"Hello {request.element.text}"))
    service.operation(f"{{{NS}}}much")(lambda request: answer("x" * int(request.element.text)))
    with (
        soapjms.connect("embedded:") as connection,
        soapjms.Dispatcher(connection, URI, service, workers=8),
        HttpBridge(connection, URI) as bridge,
        Listener(bridge, "127.0.0.1:0") as listener,
    ):
        pipe.send(listener.port)
        pipe.recv()


# The hostile clients


class Hostile:
    """Hostile connections of one kind."""

    def __init__(self, port: int, kind: str, number: int) -> None:
        self._port, self._number = port, number
        self._said, self._drips = KINDS[kind]
        self._reads = kind != "not reading"
        self._poll = select.poll()
        self._lines = dict[int, socket.socket]()
        self._again = list[float]()
        self._next_drip = 0.0

    def begin(self) -> None:
        """Connect all."""
        for _ in range(self._number):
            self._connect()

    def look(self) -> None:
        """Go on for a moment: drip, and connect again for those that were ended."""
        for number, _ in self._poll.poll(20):
            self._read(number)
        now = time.monotonic()
        due = [each for each in self._again if each <= now]
        self._again = [each for each in self._again if each > now]
        for _ in due:
            self._connect()
        if self._drips and now >= self._next_drip:
            self._next_drip = now + DRIP
            for number, line in list(self._lines.items()):
                try:
                    line.send(b"x")
                except OSError:
                    self._lost(number)

    def end(self) -> None:
        """Close all."""
        for number in list(self._lines):
            self._lost(number)

    def _connect(self) -> None:
        line = socket.socket()
        line.settimeout(TIMEOUT)
        if not self._reads:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            line.connect(("127.0.0.1", self._port))
            line.sendall(self._said)
        except OSError:
            line.close()
            self._again.append(time.monotonic() + PAUSE)
            return
        self._lines[line.fileno()] = line
        self._poll.register(line, select.POLLIN if self._reads else 0)  # errors are told in any case

    def _read(self, number: int) -> None:
        try:
            is_there = self._reads and self._lines[number].recv(1 << 16)
        except OSError:
            is_there = b""
        if not is_there:
            self._lost(number)

    def _lost(self, number: int) -> None:
        self._poll.unregister(number)
        self._lines.pop(number).close()
        self._again.append(time.monotonic() + PAUSE)


def attack(pipe: Pipe, port: int, number: int) -> None:
    """Be hostile in the way that is asked for, until another is; None for none."""
    hostile: Hostile | None = None
    while True:
        while hostile is not None and not pipe.poll():
            hostile.look()
        kind = pipe.recv()
        if hostile is not None:
            hostile.end()
        hostile = None if kind is None else Hostile(port, kind, number)
        if hostile is not None:
            hostile.begin()
        pipe.send(kind)


# The honest one


def call(port: int) -> float:
    """Make a call on a connection of its own; return the seconds that it took, a negative number if it failed."""
    started = time.perf_counter()
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        line.request("POST", "/", ENVELOPE.format("greet", "World").encode(), {"Content-Type": "text/xml"})
        response = line.getresponse()
        is_right = response.status == 200 and b"Hello World" in response.read()
    except OSError:
        is_right = False
    finally:
        line.close()
    return (time.perf_counter() - started) * (1 if is_right else -1)


def calls(port: int, seconds: float) -> list[float]:
    """Make calls for so many seconds."""
    until = time.monotonic() + seconds
    made = list[float]()
    while time.monotonic() < until:
        made.append(call(port))
    return made


def settled(port: int) -> float:
    """Wait until the calls of hostile clients are answered, so that they only hold what they have; return how long."""
    started = time.monotonic()
    quick = 0
    while quick < 20 and time.monotonic() - started < TIMEOUT:
        quick = quick + 1 if 0 < call(port) < 0.05 else 0
    return time.monotonic() - started


@contextmanager
def process(target: object, *given: object) -> Iterator[Pipe]:
    """Run a function as a process, which gets the other end of a pipe."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    running = context.Process(target=target, args=(there, *given), daemon=True)  # type: ignore[arg-type]
    running.start()
    try:
        yield here
    finally:
        running.terminate()
        running.join()


def told(title: str, alone: list[float], among: list[float], waited: float) -> bool:
    """Print a line; say whether the goal was met."""
    failed = sum(each < 0 for each in among)
    figures = []
    for each in (alone, among):
        right = sorted(time for time in each if time > 0) or [TIMEOUT]
        figures += [statistics.median(right), right[int(len(right) * 0.95)]]
    ratios = figures[2] / figures[0], figures[3] / figures[1]
    is_met = max(ratios) <= GOAL and not failed
    print(
        f"{title:15} {figures[0] * 1e3:7.2f} {figures[1] * 1e3:7.2f} {figures[2] * 1e3:8.2f} {figures[3] * 1e3:7.2f}"
        f" {ratios[0]:7.2f} {ratios[1]:7.2f} {len(among):7} {failed:7} {waited:7.1f}  {'' if is_met else 'missed'}"
    )
    return is_met


def main() -> None:
    """Measure and print; end with 1 if the goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hostile", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    print(f"calls at a bridge alone, and among {options.hostile} hostile connections; milliseconds\n")
    print(f"{'':15} {'alone':>15} {'among them':>16} {'times as long':>15}")
    heads = ["median", "95 %", "median", "95 %", "median", "95 %", "calls", "failed", "settled"]
    print(f"{'':15} {heads[0]:>7} {heads[1]:>7} {heads[2]:>8}", *(f"{each:>7}" for each in heads[3:]))
    is_met = True
    with process(serve) as bridge:
        port = bridge.recv()
        with process(attack, port, options.hostile) as hostile:
            calls(port, 1.0)
            for kind in options.kinds:
                alone, among, waited = list[float](), list[float](), 0.0
                for _ in range(options.rounds):
                    alone += calls(port, options.seconds)
                    hostile.send(kind)
                    hostile.recv()
                    waited = max(waited, settled(port))
                    among += calls(port, options.seconds)
                    hostile.send(None)
                    hostile.recv()
                    settled(port)
                is_met &= told(kind, alone, among, waited)
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
