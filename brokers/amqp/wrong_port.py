"""Who else may listen where AMQP was to be spoken: what gives them away, and which URL would reach them.

A port that is for something else either answers in its own way, which is told at once, or waits for more and says
nothing until the time-out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.amqp.sasl import AMQP_HEADER, HEADER_OCTETS, SASL_HEADER
from brokers.amqp.url import AmqpLogin, Mechanism
from brokers.errors import ConnectionFailedError
from brokers.url import bracketed

HTTP: Final = b"HTTP/"
"""What every answer of HTTP begins with."""

HEAD_OCTETS: Final = 64
"""Octets by which a stranger is known, and that an error shows of it."""

WAYS: Final[Mapping[str, str]] = {
    "amqp": "AMQP",
    "amqps": "AMQP over TLS",
    "amqp+ws": "AMQP over WebSocket",
    "amqp+wss": "AMQP over WebSocket with TLS",
    "stomp": "STOMP",
    "stomp+ssl": "STOMP over TLS",
}
"""What the ports of brokers are for, by the scheme of their URLs."""


class Stranger(NamedTuple):
    """One that is known.

    Attributes:
        begin: of what it says.
        who: what it is.
        schemes: what to write in the URL in place of which scheme.
        advice: what else may be done; empty if nothing is known.
    """

    begin: re.Pattern[bytes]
    who: str
    schemes: Mapping[str, str] = {}
    advice: str = ""


STRANGERS: Final = (
    Stranger(re.compile(HTTP), "HTTP", {"amqp": "amqp+ws", "amqps": "amqp+wss"}),
    Stranger(re.compile(rb"\x15\x03"), "TLS", {"amqp": "amqps", "amqp+ws": "amqp+wss"}),
    Stranger(re.compile(rb"AMQP\x00\x00|AMQP\x01\x01"), "AMQP 0-9-1 or older", advice="here AMQP 1.0 is spoken"),
    Stranger(re.compile(rb"AMQP"), "AMQP without WebSocket", {"amqp+ws": "amqp", "amqp+wss": "amqps"}),
    Stranger(
        re.compile(rb"(ERROR|CONNECTED)\r?\n"),
        "STOMP",
        {"amqp": "stomp", "amqps": "stomp+ssl", "amqp+ws": "stomp", "amqp+wss": "stomp+ssl"},
    ),
    Stranger(re.compile(rb"....\x01Ac", re.DOTALL), "OpenWire", advice="AMQP has a port of its own"),
)
"""The first that fits says who it is."""

OTHER_LOGIN: Final[Mapping[bytes, Stranger]] = {
    SASL_HEADER: Stranger(re.compile(rb""), "AMQP with a login", advice="leave out mechanism=none"),
    AMQP_HEADER: Stranger(re.compile(rb""), "AMQP without a login", advice="write mechanism=none"),
}
"""Brokers that want to be spoken to with SASL where we do not, or without."""


def check(login: AmqpLogin, said: bytes) -> None:
    """See that what a broker said first is what it should begin with, as far as it came.

    Raises:
        ConnectionFailedError: it is not; with what was seen, and what URL would be accepted.
    """
    expected = HTTP if login.binding is not None else AMQP_HEADER if login.mechanism is Mechanism.NONE else SASL_HEADER
    if said[: len(expected)] == expected[: len(said)]:
        return
    line = re.split(rb"[\r\n]", said, maxsplit=1)[0] or said
    found = OTHER_LOGIN.get(said[:HEADER_OCTETS]) if login.binding is None else None
    found = found or next((each for each in STRANGERS if each.begin.match(said)), None)
    if found is None:
        raise ConnectionFailedError(f"{login} answered {line!r}, which is not {WAYS[login.scheme]}{perhaps(login)}")
    other = found.schemes.get(login.scheme)
    advice = f"write {other}://{bracketed(login.host)}:{login.port}" if other else found.advice
    raise ConnectionFailedError(f"{login} answered {line!r}, which is {found.who}" + f"; {advice}" * bool(advice))


def perhaps(login: AmqpLogin) -> str:
    """Name what the port of a silent peer may be for, as the end of an error."""
    others = ", ".join(f"{scheme}:// ({way})" for scheme, way in WAYS.items() if scheme != login.scheme)
    return f"; perhaps its port is not for {login.scheme}:// but for {others}"
