"""Recognition of peers that do not speak AMQP: by their first octets, with the URL that would reach them.

A port for another protocol either answers in that protocol, which is recognised at once, or stays silent until the
time-out.
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
"""The beginning of every HTTP answer."""

HEAD_OCTETS: Final = 64
"""Number of first octets by which a peer is recognised, and that an error shows."""

WAYS: Final[Mapping[str, str]] = {
    "amqp": "AMQP",
    "amqps": "AMQP over TLS",
    "amqp+ws": "AMQP over WebSocket",
    "amqp+wss": "AMQP over WebSocket with TLS",
    "stomp": "STOMP",
    "stomp+ssl": "STOMP over TLS",
}
"""The protocols of brokers' ports, by the scheme of their URLs."""


class Stranger(NamedTuple):
    """A known kind of peer that does not speak AMQP.

    Attributes:
        begin: matches the beginning of its answer.
        who: name of its protocol.
        schemes: the scheme to write in the URL, by the scheme that was used.
        advice: other advice; empty for none.
    """

    begin: re.Pattern[bytes]
    who: str
    schemes: Mapping[str, str] = {}
    advice: str = ""


STRANGERS: Final = (
    Stranger(re.compile(HTTP), "HTTP", {"amqp": "amqp+ws", "amqps": "amqp+wss"}),
    Stranger(re.compile(rb"\x15\x03"), "TLS", {"amqp": "amqps", "amqp+ws": "amqp+wss"}),
    Stranger(re.compile(rb"AMQP\x00\x00|AMQP\x01\x01"), "AMQP 0-9-1 or older", advice="this client speaks AMQP 1.0"),
    Stranger(re.compile(rb"AMQP"), "AMQP without WebSocket", {"amqp+ws": "amqp", "amqp+wss": "amqps"}),
    Stranger(
        re.compile(rb"(ERROR|CONNECTED)\r?\n"),
        "STOMP",
        {"amqp": "stomp", "amqps": "stomp+ssl", "amqp+ws": "stomp", "amqp+wss": "stomp+ssl"},
    ),
    Stranger(re.compile(rb"....\x01Ac", re.DOTALL), "OpenWire", advice="AMQP has another port"),
)
"""Known peers; the first match counts."""

OTHER_LOGIN: Final[Mapping[bytes, Stranger]] = {
    SASL_HEADER: Stranger(re.compile(rb""), "AMQP with a login", advice="leave out mechanism=none"),
    AMQP_HEADER: Stranger(re.compile(rb""), "AMQP without a login", advice="write mechanism=none"),
}
"""Brokers that require SASL when we do not use it, or the reverse."""


def check(login: AmqpLogin, said: bytes) -> None:
    """Check that the first octets of a broker are what AMQP begins with, as far as they have arrived.

    Raises:
        ConnectionFailedError: they are not; the text shows them, and the URL to use if it is known.
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
    """Return the end of an error text that names the other possible protocols of a silent peer's port."""
    others = ", ".join(f"{scheme}:// ({way})" for scheme, way in WAYS.items() if scheme != login.scheme)
    return f"; perhaps its port is not for {login.scheme}:// but for {others}"
