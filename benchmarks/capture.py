"""What a tap costs those who call, and whether it sees all: `soapjms capture` on ActiveMQ and Artemis.

    python benchmarks/capture.py [--brokers activemq artemis] [--rounds 5] [--seconds 3] [--in-flight 8] [--calls 2000]

Three rates of calls, interleaved, with persistent requests of 256 octets; client, service and tap are processes of
their own: at a broker that makes no copies; at one that makes them, and nobody takes them; at that one with a capture
at work, over STOMP. What counts is the median of the ratios of a round. Then a number of calls is captured, over STOMP
and over AMQP, which `soapjms capture` takes where the broker speaks it at its usual port, and the log replayed: each
message has to be there once, paired, and nothing may be broken. Beside that stands the processor time that the tap took
for each message, but for its start and its end; at most 100 µs are wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT)]

from comparison import OURS, run  # noqa: E402  # beside this file
from real_brokers import RealBroker, start_activemq, start_artemis  # noqa: E402
from sides import ENVELOPE, Setting  # noqa: E402

import soapjms  # noqa: E402
from soapjms.capture.sources import ARTEMIS  # noqa: E402

BROKERS = {
    "activemq": (partial(start_activemq, is_measured=True), partial(start_activemq, is_measured=True, mirrored=True)),
    "artemis": (
        partial(start_artemis, is_measured=True),
        partial(start_artemis, is_measured=True, setting=ARTEMIS.setting),
    ),
}
"""How each is started that makes no copies, and one that does."""

WRITTEN = 1.5
"""Seconds after which all that came is written."""


@contextmanager
def capturing(url: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Capture within the block; what it printed is in the result after it, with its `seconds` of processor time."""
    command = [sys.executable, "-m", "soapjms.cli", "capture", "--out", str(folder), "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SOAPJMS_CONNECTION": url}
    said: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stderr is not None
        if not (first := child.stderr.readline()).startswith("capturing from"):
            raise RuntimeError(f"the capture did not start: {first}")
        begun = used(child.pid)
        try:
            yield said
            time.sleep(WRITTEN)
            said["seconds"] = used(child.pid) - begun
        finally:
            child.send_signal(signal.SIGINT)
            out, _ = child.communicate(timeout=60)
        said |= json.loads(out)


def used(pid: int) -> float:
    """Return the processor time that a process took until now, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rate(broker: RealBroker, name: str, options: argparse.Namespace) -> float:
    """Return calls a second with transactions."""
    setting = Setting(broker.stomp_url, name, options.in_flight, options.seconds, transactional=True)
    return run(OURS, setting)["rate"]


def rates(plain: RealBroker, told: RealBroker, folder: Path, options: argparse.Namespace) -> None:
    """Print the rates and their ratios."""
    found: dict[str, list[float]] = {"no copies": [], "copies": [], "capture": []}
    dropped = 0
    for number in range(options.rounds):
        name = f"bench.{number}"
        found["no copies"].append(rate(plain, name, options))
        found["copies"].append(rate(told, f"{name}.a", options))
        with capturing(told.stomp_url, folder / name) as said:
            found["capture"].append(rate(told, f"{name}.b", options))
        dropped += said["dropped"]
    print(f"{'':>9}  {'calls/s':>7}  beside copies  beside no copies")
    for name, values in found.items():
        ratios = [ratio(values, found[beside]) for beside in ("copies", "no copies")]
        print(f"{name:>9}  {statistics.median(values):>7.0f}  {ratios[0]:>13}  {ratios[1]:>16}")
    print(f"dropped: {dropped}", flush=True)


def ratio(values: list[float], others: list[float]) -> str:
    """Show the median of the ratios, and their spread."""
    each = [mine / theirs for mine, theirs in zip(values, others, strict=True)]
    return f"{statistics.median(each):.2f}" + (f" ({min(each):.2f}-{max(each):.2f})" if each[0] != 1 else "")


def proof(told: RealBroker, protocol: str, folder: Path, options: argparse.Namespace) -> None:
    """Capture so many calls by a protocol, replay them, and say what was found."""
    service = soapjms.Service()
    service.operation("{urn:bench}echo")(lambda request: request.element)
    uri = f"jms:queue:bench.proof.{protocol}"
    with (
        capturing(getattr(told, f"{protocol}_url"), folder) as said,
        soapjms.connect(told.stomp_url) as serving,
        soapjms.connect(told.stomp_url) as asking,
        soapjms.Dispatcher(serving, uri, service, workers=8),
        soapjms.Client(asking, uri, timeout=120) as client,
    ):
        for future in [client.submit(ENVELOPE) for _ in range(options.calls)]:
            future.result().raise_for_fault()
    summary = soapjms_replay(folder)
    kept = ("messages", "exchanges", "unpaired", "one_way", "rejected", "verdict")
    print(
        f"{options.calls} calls, tap over {protocol}: recorded {said['recorded']}, dropped {said['dropped']};", end=" "
    )
    print(", ".join(f"{name} {summary[name]}" for name in kept))
    print(f"processor time of the capture: {said['seconds'] / said['recorded'] * 1e6:.0f} µs a message", flush=True)
    assert said["recorded"] == summary["messages"] == 2 * options.calls
    assert summary["exchanges"] == options.calls
    assert summary["verdict"] != "failed"


def soapjms_replay(folder: Path) -> dict[str, Any]:
    """Replay a log without Spark."""
    from soapjms.replay import replay

    return dict(replay([folder], folder / "report", engine="local").members)


def main() -> None:
    """Run it on each broker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", nargs="+", choices=sorted(BROKERS), default=sorted(BROKERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    for name in options.brokers:
        start_plain, start_told = BROKERS[name]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            plain, told = stack.enter_context(start_plain()), stack.enter_context(start_told())
            print(
                f"{name}, {options.rounds} rounds of {options.seconds:g} s, {options.in_flight} in flight", flush=True
            )
            rates(plain, told, folder, options)
            for protocol in ("stomp", "amqp"):
                proof(told, protocol, folder / protocol, options)


if __name__ == "__main__":
    main()
