"""What each scheduling option of `brokers.Connection` is worth: our calls with it, beside the same calls without it.

    python benchmarks/scheduling.py [--pairs 5] [--seconds 3] [--in-flight 1 8] [--options inline quick answer]
                                    [--protocol amqp]

* `inline`: replies are handled on the thread that reads the socket.
* `quick`: requests of a service without transactions are begun there, as long as none takes long. Without these two
  another thread gets each of them.
* `answer`: an answer may be written together with the acknowledgement of its request. Without it they are two writes.
* `auto_accept`: the broker is told of many replies at once. Without it each is accepted once it was handled.

`lazy` is measured by `capture.py`. Both sides are our client and our service over ActiveMQ, each a process of its own;
what an option is worth to the side that has it is seen there. Runs are interleaved; the medians of their ratios count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import deque
from typing import Any, NamedTuple

from calls import ENVELOPE, WARM_UP, run_processes, stay

OPTIONS = ["inline", "quick", "answer", "auto_accept"]


def forbid(connection: Any, option: str | None) -> None:
    """Have a connection know nothing of an option."""
    if option == "answer":
        connection.answer = lambda delivery, message: connection.send(message)
    elif option is not None:
        consume = connection.consume

        def consume_without(destination: Any, on_delivery: Any, **named: Any) -> Any:
            def deliver(delivery: Any) -> None:
                on_delivery(delivery)
                delivery.accept()

            is_accepted = option == "auto_accept" and named.get(option)
            return consume(destination, deliver if is_accepted else on_delivery, **named | {option: False})

        connection.consume = consume_without


def service(url: str, name: str, in_flight: int, without: str | None) -> None:
    """Serve an echo without transactions until standard input ends."""
    import brokers
    import soapjms

    echo = soapjms.Service()
    echo.operation("{urn:bench}echo")(lambda request: request.element)
    with brokers.connect(url) as connection:
        forbid(connection, without)
        with soapjms.Dispatcher(connection, f"jms:queue:{name}", echo, workers=in_flight, transactional=False):
            stay()


def client(url: str, name: str, in_flight: int, without: str | None, seconds: float) -> None:
    """Call for some seconds; print calls a second, and the microseconds of processor time that one took here."""
    import brokers
    import soapjms

    with brokers.connect(url) as connection:
        forbid(connection, without)
        with soapjms.Client(connection, f"jms:queue:{name}?deliveryMode=NON_PERSISTENT", timeout=60) as made:
            for _ in range(WARM_UP):
                made.call(ENVELOPE)
            waiting = deque(made.submit(ENVELOPE) for _ in range(in_flight))
            calls, started, used = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - started < seconds:
                waiting.popleft().result().raise_for_fault()
                waiting.append(made.submit(ENVELOPE))
                calls += 1
            print(calls / (time.perf_counter() - started), (time.process_time() - used) / calls * 1e6)
            for future in waiting:
                future.result()


class Cost(NamedTuple):
    """Calls a second, and the microseconds of processor time that a call takes of client and service."""

    rate: float
    client: float
    service: float


def cost(url: str, name: str, in_flight: int, seconds: float, without: str) -> Cost:
    """Start both sides, and return what calls cost."""
    words = ["--url", url, "--name", name, "--in-flight", str(in_flight), "--seconds", str(seconds)]
    if without:
        words += ["--without", without]
    (rate, client), service = run_processes([sys.executable, __file__, *words], "our", seconds + 60)
    return Cost(rate, client, service / (rate * seconds + WARM_UP) * 1e6)


def compare(options: argparse.Namespace) -> None:
    """Print a row for each option and number of calls in flight."""
    from real_brokers import start_activemq

    print("each with the option / without it, and the median of the ratios; processor time in us a call")
    print(f"{'option':<12}{'in flight':>10}{'calls a second':>22}{'client':>22}{'service':>22}")
    with start_activemq(is_measured=True) as broker:
        url = broker.amqp_url if options.protocol == "amqp" else broker.stomp_url
        for option in options.options:
            for in_flight in options.in_flight:
                pairs = list[tuple[Cost, Cost]]()
                for number in range(options.pairs):
                    name = f"scheduling.{option}.{in_flight}.{number}"
                    ours = cost(url, f"{name}.with", in_flight, options.seconds, "")
                    pairs.append((ours, cost(url, f"{name}.without", in_flight, options.seconds, option)))
                cells = (told([(one[at], other[at]) for one, other in pairs]) for at in range(len(Cost._fields)))
                print(f"{option:<12}{in_flight:>10}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


def told(pairs: list[tuple[float, float]]) -> str:
    """Write the medians of both sides, and of their ratios."""
    one, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return f"{one:.0f} / {other:.0f} = {statistics.median(one / other for one, other in pairs):.2f}"


def main() -> None:
    """Compare, or be one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--options", nargs="+", choices=OPTIONS, default=OPTIONS)
    parser.add_argument("--protocol", choices=["stomp", "amqp"], default="stomp")
    parser.add_argument("--side", choices=["our-service", "our-client"])
    parser.add_argument("--without", choices=OPTIONS)
    parser.add_argument("--url")
    parser.add_argument("--name")
    options = parser.parse_args()
    common = (options.url, options.name, options.in_flight[0], options.without)
    match options.side:
        case None:
            compare(options)
        case "our-service":
            service(*common)
        case "our-client":
            client(*common, options.seconds)


if __name__ == "__main__":
    main()
