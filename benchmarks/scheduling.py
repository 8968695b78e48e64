"""What each scheduling option of `brokers.Connection` is worth: our calls with it, beside the same calls without it.

    python benchmarks/scheduling.py [--pairs 5] [--seconds 2] [--in-flight 1 8] [--rows inline quick answer]

* `inline`: replies are handled on the thread that reads the socket.
* `quick`: requests of a service without transactions are begun there, as long as none takes long. Without these two
  another thread gets each of them.
* `answer`: an answer may be written together with the acknowledgement of its request. Without it they are two writes.
* `auto_accept`: the broker is told of many replies at once. Without it each is accepted once it was handled.

Each option is measured over STOMP and over AMQP. `lazy` is measured by `capture.py`. Both sides are our client and our
service, with messages that are not persistent, and figures and ratios are as in `calls.py`: over the side without.
"""

from __future__ import annotations

from comparison import Row, Side, report


def sides(option: str) -> dict[str, Side]:
    """Return the side without an option and the one with it."""
    client, service = "scheduling:client", "scheduling:service"
    return {"without": Side(client, service, {"without": option}), "with": Side(client, service)}


ROWS = {
    option: [
        Row(
            f"{option}, {protocol}, {in_flight} in flight",
            sides(option),
            (),
            {"in_flight": in_flight, "persistent": False},
            protocol,
        )
        for protocol in ("stomp", "amqp")
        for in_flight in (1, 8)
    ]
    for option in ("inline", "quick", "answer", "auto_accept")
}

if __name__ == "__main__":
    report(ROWS, list(ROWS), __doc__)
