"""Many calls of many callers, each of which must get its own answer: `python tests/many_calls_kit.py --calls 20000`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

from calling_kit import envelope, fresh, greeter, text_of
from real_brokers import STARTERS

import soapjms
from soapjms import Client, Dispatcher

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


@contextmanager
def pair(url: str, pairing: Pairing) -> Iterator[Client]:
    """Serve a greeter, and give a client for it."""
    name = fresh("many")
    uri = f"jms:queue:{name}" + (f"?replyToName={name}.answers" if pairing.replies == "shared" else "")
    with (
        soapjms.connect(url) as there,
        soapjms.connect(url) as here,
        Dispatcher(there, f"jms:queue:{name}", greeter(), workers=8, profile=pairing.service),
        Client(here, uri, profile=pairing.client, replies=pairing.replies, timeout=60) as client,
    ):
        yield client


def call_many(client: Client, calls: int) -> list[str]:
    """Call from many threads at a time; return what was answered wrongly."""

    def ask(caller: int) -> list[str]:
        words = [f"{caller}-{number}" for number in range(calls // CALLERS)]
        return [word for word in words if text_of(client.call(envelope(word))) != f"Hello {word}"]

    with ThreadPoolExecutor(CALLERS) as callers:
        return [word for found in callers.map(ask, range(CALLERS)) for word in found]


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
                wrong = call_many(client, options.calls // len(PAIRINGS))
            astray += len(wrong) + sum(client.counts.values())
            shown = f"{pairing.service} service, {pairing.client} client, {pairing.replies} replies"
            print(f"{options.broker}: {shown}: {len(wrong)} of {options.calls // len(PAIRINGS)} wrong, {client.counts}")
    return 1 if astray else 0


if __name__ == "__main__":
    sys.exit(main())
