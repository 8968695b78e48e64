"""Calls of our client and our service, beside loops that give the same guarantees on the wire, over ActiveMQ Classic.

    python benchmarks/calls.py [--rows plain transactions store …] [--in-flight 1 8 32] [--pairs 5] [--seconds 2]
                               [--data disk] [--results FOLDER]

Client, service and broker are processes of their own, and both ends are of one kind. `bare` is a loop over stomp.py or
python-qpid-proton, which reads no SOAP and judges nothing; `raw` has frames written by hand over sockets: the limit of
Python. Requests and answers are persistent SOAP messages of 256 octets, and the broker keeps its data in memory where
the system can; `--data disk` keeps it in the folder for temporary files. All clients are driven by the same loop, which
keeps a number of calls in flight.

The rows are:

* `plain`: a request is accepted once its answer was confirmed; no transactions.
* `transactions`: answers and acknowledgements in group commits.
* `store`: transactions, with a `SqliteStore`, beside the same bare loop without a store.
* `amqp`: as `plain`, over AMQP 1.0, beside a loop over python-qpid-proton.
* `embedded`: client, service and broker in one process.
* `asyncio`: futures of `submit` that are awaited, and tasks that call with `AsyncClient`, beside futures of `submit`
  that are waited for.
* `sizes`: 16 KiB with 8 in flight, 1 MiB with one.
* `mtom`: the memory that an MTOM part of 8 MiB takes at its peak, in multiples of its size, over a warm process.
* `processes`: four service processes beside one.
* `latency`: percentiles at half of the highest rate of 8 in flight, the same rate for both sides, by a schedule.
* `listener`: messages a second into our AMQP listener and out of it by one proton client, beside a server of proton
  that accepts unread and keeps nothing (`bare`: what proton leaves in Python) and ActiveMQ.
* `start`: processor time of `import soapjms` and of `soapjms --help`, with the interpreter's.

A figure is the median of the rounds, in which each side runs once; a ratio is the median of the rounds' ratios over the
first side. Microseconds are processor time a call, of all threads of the process. Goals that depend on the machine are
ratios. `benchmarks/plot.py` draws the results.
"""

from __future__ import annotations

from collections.abc import Mapping

from comparison import OURS, Goal, Row, Side, report

MIB = 1 << 20
BARE = Side("bare:client", "bare:service")
RAW = Side("raw:client", "raw:service")
STORED = Side("ours:Client", "ours:service", {"store": "file"})

RATES = {"plain": {1: 1.0, 8: 1.25, 32: 1.25}, "transactions": {1: 1.0, 8: 1.15, 32: 1.0}}
"""The least ratio of calls a second over the bare loop."""

COSTS = {"plain": {1: 1.02, 8: 1.15, 32: 1.32}, "transactions": {1: 0.98, 8: 1.07, 32: 1.15}}
"""The most processor time of client and service together over the bare loop's: half of what it was before."""

AMQP_GOALS = [Goal("ours", "rate", 0.9), Goal("ours", "client+service µs", 0.9, is_most=True)]


def stomp_rows(mode: str, sides: Mapping[str, Side], share: float = 1.0, *, has_costs: bool = True) -> list[Row]:
    """Make the rows of a mode; `share` of its goals is to be met."""
    return [
        Row(
            f"{mode}, {in_flight} in flight",
            sides,
            [
                Goal("ours", "rate", share * bound),
                *[Goal("ours", "client+service µs", COSTS[mode][in_flight], is_most=True)] * has_costs,
            ],
            {"in_flight": in_flight, "transactional": mode == "transactions"},
        )
        for in_flight, bound in RATES[mode].items()
    ]


def sized(octets: int, in_flight: int) -> Row:
    """Make a row of one size of bodies.

    If several large ones are in flight, a bare service that answers on the thread that reads waits for the broker,
    which waits for it.
    """
    return Row(
        f"{octets >> 10} KiB, {in_flight} in flight",
        {"bare": BARE, "ours": OURS, "raw": RAW},
        [Goal("ours", "rate", 0.9)],
        {"in_flight": in_flight, "octets": octets},
    )


def embedded(mode: str) -> Row:
    """Make the row of one mode in one process."""
    sides = {f"{count} in flight": Side("ours:embedded", None, {"in_flight": count}) for count in (1, 8, 32)}
    goals = [Goal(f"{count} in flight", "rate", 12_000, by_ratio=False) for count in (8, 32)]
    goals.append(Goal("32 in flight", "rate", 1.0))
    return Row(f"embedded, {mode}", sides, goals, {"transactional": mode == "transactions"}, protocol=None)


def moved(direction: str, client: str, bound: float) -> Row:
    """Make the row of one direction of messages."""
    here = {"url": "amqp://127.0.0.1:PORT"}
    sides = {
        "bare": Side(client, "bare_amqp:listener", here),
        "ours": Side(client, "listener:service", here),
        "activemq": Side(client),
    }
    goals = [
        Goal("ours", "rate", bound, by_ratio=False),
        Goal("ours", "rate", 1.0),
        Goal("ours", "service µs", 1.0, is_most=True),
    ]
    return Row(f"messages {direction}", sides, goals, {"in_flight": 1000}, "amqp")


def command(title: str, words: list[str], milliseconds: float) -> Row:
    """Make the row of one Python command."""
    goal = Goal("ours", "ms", milliseconds, by_ratio=False, is_most=True)
    return Row(title, {"ours": Side("ours:start")}, [goal], {"command": words}, protocol=None)


SIDES = {"bare": BARE, "ours": OURS, "raw": RAW}
ROWS = {
    "plain": stomp_rows("plain", SIDES),
    "transactions": stomp_rows("transactions", SIDES),
    "store": stomp_rows("transactions", {"bare": BARE, "ours": STORED}, 0.8, has_costs=False),
    "amqp": [
        Row(
            f"amqp, {in_flight} in flight",
            {"bare": Side("bare_amqp:Client", "bare_amqp:service"), "ours": OURS},
            AMQP_GOALS if in_flight > 1 else [],
            {"in_flight": in_flight},
            "amqp",
        )
        for in_flight in (1, 8, 32)
    ],
    "embedded": [embedded("plain"), embedded("transactions")],
    "asyncio": [
        Row(
            f"asyncio, {in_flight} in flight",
            {
                "waited": Side("ours:Submitted", "ours:service"),
                "awaited": Side("ours:Awaited", "ours:service"),
                "tasks": Side("ours:Tasks", "ours:service"),
            },
            [
                *[Goal(name, "rate", 0.9) for name in ("awaited", "tasks") if in_flight > 1],
                Goal("tasks", "client µs", 1.3, is_most=True),
            ],
            {"in_flight": in_flight},
        )
        for in_flight in (1, 8, 32)
    ],
    "sizes": [sized(16 << 10, 8), sized(MIB, 1)],
    "mtom": [
        Row(
            "an MTOM part of 8 MiB",
            {"ours": Side("ours:Mtom", "ours:service")},
            [Goal("ours", f"{role} × part", 1.1, by_ratio=False, is_most=True) for role in ("client", "service")],
            {"octets": 8 * MIB},
        )
    ],
    "processes": [
        Row(
            f"{mode}, 32 in flight",
            {"one process": OURS, "four": Side("ours:Client", "ours:service", {"processes": 4})},
            [Goal("four", "rate", 1.0)],
            {"in_flight": 32, "transactional": mode == "transactions"},
        )
        for mode in ("plain", "transactions")
    ],
    "latency": [
        Row(
            "plain, at half of the highest rate",
            {"bare": BARE, "ours": OURS},
            [Goal("ours", "p99 ms", 1.5, is_most=True)],
            {"in_flight": 8},
            at_half_rate=True,
        )
    ],
    "listener": [moved("in", "bare_amqp:Into", 12_000), moved("out", "bare_amqp:OutOf", 20_000)],
    "start": [
        command("import soapjms", ["-c", "import soapjms"], 80),
        command("soapjms --help", ["-m", "soapjms.cli", "--help"], 150),
    ],
}

if __name__ == "__main__":
    report(ROWS, ["plain", "transactions"], __doc__)
