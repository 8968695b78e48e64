"""Recognition of peers that speak another protocol than their URL says: by their first octets, in one table.

A port for another protocol answers in that protocol, closes the connection, or stays silent until the time-out. The
error text is one line of printable characters: what speaks there, what was expected, and the URL to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from brokers.errors import ConnectionFailedError
from brokers.network_schemes import NETWORK_SCHEMES, scheme_of
from brokers.url import bracketed

HEAD_OCTETS: Final = 64
"""Number of first octets by which a peer is recognised, and that an error may show."""

SHOWN_OCTETS: Final = 8
"""Maximum number of octets that an error shows if they are not text."""


class PortUrl(Protocol):
    """The URL of one broker; its text has no login."""

    @property
    def scheme(self) -> str:
        """The scheme."""

    @property
    def host(self) -> str:
        """The host."""

    @property
    def port(self) -> int:
        """The port."""


class Speaker(NamedTuple):
    """A kind of peer.

    Attributes:
        title: name of its protocol.
        begin: matches the beginning of what it writes.
        family: the family of our schemes that reaches it, see `NETWORK_SCHEMES`; empty for none.
        advice: what to do if the URL has a scheme of that family.
    """

    title: str
    begin: re.Pattern[bytes]
    family: str = ""
    advice: str = ""


TLS: Final = Speaker("TLS", re.compile(rb"[\x14-\x17]\x03[\x00-\x04]"))
SPEAKERS: Final = (
    TLS,
    Speaker("HTTP", re.compile(rb"HTTP/"), "amqp+ws"),
    Speaker("HTTP/2", re.compile(rb"\x00\x00.\x04\x00\x00\x00\x00\x00", re.DOTALL)),
    Speaker("AMQP with a login", re.compile(rb"AMQP\x03"), "amqp", "leave out mechanism=none"),
    Speaker("AMQP without a login", re.compile(rb"AMQP\x00\x01"), "amqp", "write mechanism=none"),
    Speaker("AMQP 0-9-1 or older", re.compile(rb"AMQP\x00\x00|AMQP\x01\x01")),
    Speaker("STOMP", re.compile(rb"(ERROR|CONNECTED)\r?\n"), "stomp"),
    Speaker("SMQP", re.compile(rb"SMQP/"), "smqp"),
    Speaker("OpenWire, the protocol of ActiveMQ's Java clients", re.compile(rb"....\x01Ac", re.DOTALL)),
    Speaker("SSH", re.compile(rb"SSH-")),
    Speaker("SMTP", re.compile(rb"(220|554)[ -][^\r\n]*(SMTP|[Mm]ail)")),
    Speaker("SMTP or FTP", re.compile(rb"(220|421|554)[ -]")),
    Speaker("POP3", re.compile(rb"[+]OK")),
    Speaker("IMAP", re.compile(rb"[*] (OK|PREAUTH|BYE)")),
    Speaker("MySQL", re.compile(rb"...\x00(\x0a[0-9]|\xff.[\x04-\x0f])", re.DOTALL)),
    Speaker("Redis", re.compile(rb"-(ERR|DENIED|NOAUTH)")),
    Speaker("NATS", re.compile(rb"INFO \{")),
    Speaker("Telnet", re.compile(rb"\xff[\xfb-\xfe]")),
)
"""Known peers; the first match counts."""

QUOTES: Final = ("'", '"')
OVER_HTTP: Final = "amqp+ws"
"""The family whose usual ports are those of HTTP, which brokers do not use."""

TLS_BEGINNINGS: Final = (b"\x16\x03", b"\x15\x03")
"""The beginnings of what a server with TLS answers to a greeting: its own greeting, or an alert."""


def check(url: PortUrl, said: bytes, expected: Iterable[bytes]) -> None:
    """Check that the first octets of a peer are those of the protocol, as far as they have arrived.

    Args:
        url: the URL of the peer.
        said: the octets; with TLS the decrypted ones.
        expected: the beginnings that the protocol allows.

    Raises:
        ConnectionFailedError: they begin otherwise; the text names what speaks there, and the URL to write.
    """
    if not _fits(said, expected):
        raise _wrong(url, said, is_secure=NETWORK_SCHEMES[url.scheme].is_secure)


def check_tls(url: PortUrl, said: bytes) -> None:
    """Check that the first octets of a peer, in answer to a greeting of TLS, are those of TLS; see `check`."""
    if not _fits(said, TLS_BEGINNINGS):
        raise _wrong(url, said, is_secure=False)


def check_silent(url: PortUrl, said: bytes) -> None:
    """Check what a silent peer said to the greeting of another protocol, without TLS; see `check`."""
    found, own = _speaker(said), NETWORK_SCHEMES[url.scheme]
    is_own = found is TLS if own.is_secure else found is not None and found.family == own.family
    if found is not None and not is_own:
        raise _wrong(url, said, is_secure=False)


def _fits(said: bytes, expected: Iterable[bytes]) -> bool:
    return any(said[: len(each)] == each[: len(said)] for each in expected)


def _wrong(url: PortUrl, said: bytes, *, is_secure: bool) -> ConnectionFailedError:
    """Return the error; `is_secure` says whether the octets came over TLS."""
    own, shown = NETWORK_SCHEMES[url.scheme].title, seen(said)
    found = _speaker(said)
    if found is None:
        what = f"answered {shown}, which is not {own}"
    else:
        what = f"speaks {found.title}" + f" ({shown})" * shown.startswith(QUOTES) + f", not {own}"
    return ConnectionFailedError(f"{url} {what}; {_advice(url, found, is_secure=is_secure or found is TLS)}")


def _speaker(said: bytes) -> Speaker | None:
    return next((each for each in SPEAKERS if each.begin.match(said)), None)


def seen(said: bytes) -> str:
    """Return the first line of octets in quotes if it is text; otherwise the first octets in hexadecimal."""
    line = re.split(rb"[\r\n]", said[:HEAD_OCTETS], maxsplit=1)[0]
    text = line.decode("ascii", "replace")
    return repr(text) if line.isascii() and text.isprintable() and text else said[:SHOWN_OCTETS].hex(" ")


def _advice(url: PortUrl, found: Speaker | None, *, is_secure: bool) -> str:
    """Return the URLs that may be meant: one for what speaks at the port, and one with the usual port."""
    own, host = NETWORK_SCHEMES[url.scheme], bracketed(url.host)
    family = "" if found is None else own.family if found is TLS else found.family
    other = scheme_of(family, is_secure=is_secure) if family else None
    if found is not None and other == url.scheme:
        return found.advice
    ways = [] if other is None else [f"{other}://{host}:{url.port} for {NETWORK_SCHEMES[other].title}"]
    if url.port != own.port and own.family != OVER_HTTP:
        ways.append(f"{url.scheme}://{host}:{own.port}, the usual port for {own.title}")
    return f"write {', or '.join(ways)}" if ways else "check host and port"


def perhaps(url: PortUrl) -> str:
    """Return the end of an error text that names the other possible protocols of a silent peer's port."""
    own = NETWORK_SCHEMES[url.scheme]
    usual = f" (usually {own.port})" * (url.port != own.port and own.family != OVER_HTTP)
    others = ", ".join(f"{scheme}://" for scheme in NETWORK_SCHEMES if scheme != url.scheme)
    return f"; perhaps its port is not for {url.scheme}://{usual} but for one of {others}"
