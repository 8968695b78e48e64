"""How fast `jms:` URIs are read, and that a hostile one costs no more than its length.

python benchmarks/uri.py [--count 50000] [--octets 1048576] [--repeat 3]

Prints URIs a second of processor time, for distinct URIs and with nothing remembered between them, and for each kind
of nasty URI the seconds for it (read in three modes, compared, written) and how many times as long one of twice the
length takes. Wanted: 50,000 a second, and at most 2.5 times.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterable
from typing import Final

from soapjms.protocol.uri import Mode, canonical, from_iri, read, to_iri

WANTED_RATE: Final = 50_000
WANTED_RATIO: Final = 2.5

USUAL: Final = (
    "jms:queue:orders.{}?timeToLive=60000&priority=7&deliveryMode=PERSISTENT",
    "jms:jndi:jms%2FOrders{}?jndiURL=tcp%3A%2F%2Fbroker%3A61616&jndiConnectionFactoryName=CF&replyToName=replies",
    "jms:topic:prices.{}",
    "jms:jndi:dynamicQueues/orders{}?jndiURL=tcp://broker:61616&targetService=ledger",
    "jms:queue:R%C3%A9serv%C3%A9.{}?note=a%20b&userprop=mystuff",
)
NASTY: Final = {
    "repeated parameters": ("jms:queue:q?", "a=1&"),
    "repeated known parameters": ("jms:queue:q?", "priority=10&"),
    "empty parameters": ("jms:queue:q?", "&"),
    "parameters without =": ("jms:queue:q?", "a&"),
    "names without end": ("jms:queue:q?", "password"),
    "secrets": ("jms:queue:q?", "token=1&"),
    "addresses in a value": ("jms:queue:q?a=", "://"),
    "assignments in a value": ("jms:queue:q?a=", "pass="),
    "bad escapes": ("jms:queue:", "%zz"),
    "percent signs": ("jms:queue:", "%"),
    "percent signs in a value": ("jms:queue:q?a=", "%"),
    "needless escapes": ("jms:queue:", "%41"),
    "octets that are not UTF-8": ("jms:queue:", "%E9"),
    "bad octets in parameters": ("jms:queue:q?", "a=%E9&"),
    "bad octets at the end": ("jms:queue:q?a=", "%C3%A9%E9"),
    "colons": ("jms:queue:", ":"),
    "colons only": ("", ":"),
    "question marks": ("jms:queue:q?", "?"),
    "slashes": ("jms:jndi:q", "/"),
    "characters no URI may hold": ("jms:queue:", "\u00e9\ud800"),
    "number signs": ("jms:queue:q?a=", "#"),
    "digits": ("jms:queue:q?timeToLive=", "0"),
    "a variant without end": ("jms:", "vnd."),
    "a class name": ("jms:jndi:q?jndiInitialContextFactory=", "a."),
    "a class name of long words": ("jms:jndi:q?jndiInitialContextFactory=", "abc."),
    "a class name in escapes": ("jms:jndi:q?jndiInitialContextFactory=", "%41abc"),
    "a class name that is not UTF-8": ("jms:jndi:q?jndiInitialContextFactory=", "%E9abc"),
}


def usual(count: int, repeat: int) -> float:
    """Return URIs a second, the best of some rounds."""
    best = 0.0
    for turn in range(repeat):
        uris = [USUAL[number % len(USUAL)].format(f"{turn}.{number}") for number in range(count)]
        started = time.process_time()
        for uri in uris:
            read(uri)
        best = max(best, count / (time.process_time() - started))
    return best


def distinct(prefix: str, octets: int) -> str:
    """Write a URI of parameters that all have other names."""
    return prefix + "&".join(f"p{number:06}=1" for number in range(octets // 10))


def nasty(octets: int) -> Iterable[tuple[str, str]]:
    """Write each kind of nasty URI at a length."""
    for name, (prefix, piece) in NASTY.items():
        yield name, prefix + piece * ((octets - len(prefix)) // len(piece))
    yield "distinct parameters", distinct("jms:queue:q?", octets)


def everything(text: str) -> None:
    """Do all that one does with a URI that somebody else wrote."""
    for mode in Mode:
        uri = read(text, mode)
    assert uri.text == text
    uri.effective()
    uri.without(("a",))
    assert uri.redacted
    canonical(uri)


def convert(text: str) -> None:
    """Turn a URI into an IRI and back."""
    from_iri(to_iri(text))


def seconds(work: Callable[[str], None], text: str, repeat: int) -> float:
    """Return the best of some rounds."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        started = time.process_time()
        work(text)
        best = min(best, time.process_time() - started)
    return best


def compared(name: str, work: Callable[[str], None], texts: tuple[str, str], repeat: int) -> float:
    """Print how long a text takes and how many times as long one of twice the length, and return that."""
    once, twice = (seconds(work, text, repeat) for text in texts)
    print(f"{name:30} {once:8.3f} s   twice the length: {twice / once:5.2f} times", flush=True)
    return twice / once


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=WANTED_RATE, help="URIs of the first figure")
    parser.add_argument("--octets", type=int, default=1 << 20, help="length of the shorter nasty URI")
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the best counts")
    arguments = parser.parse_args()
    print(f"{usual(arguments.count, arguments.repeat):,.0f} distinct URIs a second (wanted: {WANTED_RATE:,})")
    texts = dict(nasty(arguments.octets))
    ratios = [
        compared(name, everything, (texts[name], longer), arguments.repeat)
        for name, longer in nasty(2 * arguments.octets)
    ]
    escaped = "jms:queue:" + "%C3%A9" * (arguments.octets // 6)
    ratios.append(compared("an IRI and back", convert, (escaped, escaped * 2), arguments.repeat))
    worst = max(ratios)
    print(f"worst: {worst:.2f} times (wanted: at most {WANTED_RATIO})")


if __name__ == "__main__":
    main()
