"""Many calls of many callers, each of which must get its own answer.

python tests/support/many_calls_kit.py --calls 20000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

from calling_kit import PATIENCE, envelope, fresh, greeter, text_of
from progress_kit import Progress
from real_brokers import STARTERS

import soapjms
from soapjms import CallTimeoutError, Client, Dispatcher

CALLERS: Final = 32


class Pairing(NamedTuple):
    """Who calls whom: the edition of the service and of the client, and where the client's replies come in."""

    service: str
    client: str
    replies: str


PAIRINGS: Final = (
    Pairing("rec-2012", "rec-2012", "temporary"),
    Pairing("rec-2012", "rec-2012", "exclusive"),
    Pairing("rec-2012", "rec-2012", "shared"),
    Pairing("rec-2012", "cr-2009", "exclusive"),
    Pairing("cr-2009", "cr-2009", "exclusive"),
)
"""A service of the CR repeats the JMSMessageID, which STOMP tells no sender: only the place tells whose it is."""


IN_VAIN: Final = (
    Pairing("cr-2009", "rec-2012", "temporary"),
    Pairing("cr-2009", "rec-2012", "shared"),
    Pairing("cr-2009", "cr-2009", "shared"),
)
"""Where nothing tells whose an answer is: nobody gets it, and each call fails by itself when its time is over."""

IN_VAIN_SECONDS: Final = 1.0

IN_VAIN_SHARE: Final = 100
"""The part of the calls that is made so: each takes its whole time."""


@contextmanager
def pair(url: str, pairing: Pairing, timeout: float = 60.0) -> Iterator[Client]:
    """Serve a greeter, and give a client for it."""
    name = fresh("many")
    uri = f"jms:queue:{name}" + (f"?replyToName={name}.answers" if pairing.replies == "shared" else "")
    with (
        soapjms.connect(url) as there,
        soapjms.connect(url) as here,
        Dispatcher(there, f"jms:queue:{name}", greeter(), workers=8, profile=pairing.service),
        Client(here, uri, profile=pairing.client, replies=pairing.replies, timeout=timeout) as client,
    ):
        yield client


def call_many(client: Client, calls: int) -> list[str]:
    """Call from many threads at a time; return what was answered wrongly."""
    return wrong(calls, lambda word: text_of(client.call(envelope(word))) == f"Hello {word}")


def call_in_vain(client: Client, calls: int) -> list[str]:
    """Call likewise where nobody can tell whose an answer is; return what did not end as it must: with a time-out."""

    def is_alone(word: str) -> bool:
        try:
            client.call(envelope(word), expires=PATIENCE)  # so that a slow service answers it, too
        except CallTimeoutError:
            return True
        return False

    return wrong(calls, is_alone)


def wrong(calls: int, is_right: Callable[[str], bool]) -> list[str]:
    """Call from many threads at a time, each call with a word of its own; return the words that went wrong."""
    progress = Progress("calls", calls // CALLERS * CALLERS)

    def ask(caller: int) -> list[str]:
        words = [f"{caller}-{number}" for number in range(calls // CALLERS)]
        return [word for word in words if not is_good(word)]

    def is_good(word: str) -> bool:
        try:
            return is_right(word)
        finally:
            progress.add()

    with ThreadPoolExecutor(CALLERS) as callers:
        return [word for found in callers.map(ask, range(CALLERS)) for word in found]


def named(pairing: Pairing) -> str:
    """Say who calls whom."""
    return f"{pairing.service} service, {pairing.client} client, {pairing.replies} replies"


def main() -> int:
    """Run each pairing on a broker; 1 if any answer went astray."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=STARTERS, default="activemq")
    parser.add_argument("--calls", type=int, default=20_000)
    options = parser.parse_args()
    astray = 0
    with STARTERS[options.broker]() as broker:
        for pairing in PAIRINGS:
            with pair(broker.stomp_url, pairing) as client:
                found = call_many(client, options.calls // len(PAIRINGS))
            astray += len(found) + sum(client.counts.values())
            shown = f"{options.broker}: {named(pairing)}"
            print(f"{shown}: {len(found)} of {options.calls // len(PAIRINGS)} wrong, {dict(client.counts)}", flush=True)
        for pairing in IN_VAIN:
            with pair(broker.stomp_url, pairing, IN_VAIN_SECONDS) as client:
                found = call_in_vain(client, calls := max(CALLERS, options.calls // IN_VAIN_SHARE))
            astray += len(found)
            shown = f"{options.broker}: {named(pairing)}, which nobody can tell apart"
            print(f"{shown}: {len(found)} of {calls} ended otherwise than alone, {dict(client.counts)}", flush=True)
    return 1 if astray else 0


if __name__ == "__main__":
    sys.exit(main())
