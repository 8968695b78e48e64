"""URLs as people bring them from other clients and from a broker's configuration: understood, or told what to write.

A URL is understood only where there is no doubt: blanks around it, capitals in its scheme, another name of one of our
schemes. Otherwise the error has the URL to write, without user and password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from brokers.errors import UnknownSchemeError
from brokers.network_schemes import NETWORK_SCHEMES, OTHER_NAMES, scheme_of
from brokers.redaction import MAX_URL_CHARACTERS, shown, without_logins_of_words

IN_PROCESS: Final = "embedded"
FAILOVER: Final = "failover"
OURS: Final = (IN_PROCESS, FAILOVER, *NETWORK_SCHEMES)
"""The schemes that have an adapter."""

KNOWN: Final = f"known are: {', '.join(sorted(OURS))}, as in embedded:NAME or stomp://USER:PASSWORD@HOST:PORT"


class ForeignScheme(NamedTuple):
    """A scheme that leads to no broker here.

    Attributes:
        meaning: what its URLs are.
        families: families of our schemes that may be meant, see `NETWORK_SCHEMES`.
        is_secure: whether it means TLS; None if it does not say.
        keeps_port: whether the same port may serve our scheme.
        has_no_host: whether what follows it is no host of a broker.
    """

    meaning: str
    families: tuple[str, ...] = ("stomp", "amqp")
    is_secure: bool | None = False
    keeps_port: bool = False
    has_no_host: bool = False


_JAVA: Final = "is for the Java clients of ActiveMQ and Artemis"
_LIST: Final = "is a list of brokers in the form of Java clients"
_HTTP: Final = "is for HTTP, such as a broker's web console"
_JMS: Final = (
    "is the URI of a destination, for a client's or service's address (--uri); a connection has the URL of a broker"
)

FOREIGN: Final[Mapping[str, ForeignScheme]] = {
    "": ForeignScheme("has no scheme", is_secure=None, keeps_port=True),
    "activemq": ForeignScheme("has no scheme that says the protocol", is_secure=None),
    "artemis": ForeignScheme("has no scheme that says the protocol", is_secure=None),
    "auto": ForeignScheme(_JAVA),
    "auto+nio": ForeignScheme(_JAVA),
    "auto+nio+ssl": ForeignScheme(_JAVA, is_secure=True),
    "auto+ssl": ForeignScheme(_JAVA, is_secure=True),
    "http": ForeignScheme(_HTTP),
    "https": ForeignScheme(_HTTP, is_secure=True),
    "jms": ForeignScheme(_JMS, has_no_host=True),
    "mqtt": ForeignScheme("is for MQTT"),
    "nio": ForeignScheme(_JAVA),
    "nio+ssl": ForeignScheme(_JAVA, is_secure=True),
    "openwire": ForeignScheme(_JAVA),
    "ssl": ForeignScheme(_JAVA, is_secure=True),
    "tcp": ForeignScheme(_JAVA),
    "udp": ForeignScheme(_JAVA),
    "vm": ForeignScheme("is for a broker inside a Java program", has_no_host=True),
    "ws": ForeignScheme("does not say what goes over the WebSocket", ("amqp+ws",), keeps_port=True),
    "wss": ForeignScheme("does not say what goes over the WebSocket", ("amqp+ws",), is_secure=True, keeps_port=True),
}
"""Schemes that are brought along; the empty one is that of a host without a scheme."""

LISTS: Final = ("discovery", "fanout", "static", "randomize")
"""Schemes of Java clients whose URLs list several brokers."""

PORTS: Final = {each.port: name for name, each in NETWORK_SCHEMES.items() if each.family in ("stomp", "amqp")}
"""Our schemes by ports that say which protocol is meant."""

JAVA_PORT: Final = 61616

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PLACE: Final = re.compile(
    r"(?://)?(?P<login>[^/?#]*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?(?:[/?#].*)?",
    re.DOTALL,
)
_SEVERAL: Final = re.compile(r"(?:[A-Za-z]+:)?(?://)?\((?P<inner>[^()]*)\).*|failover:(?://)?(?P<bare>[^()?]*).*", re.I)
_NEXT: Final = re.compile(r",(?=[^,]*:|[^,]*$)")
NEXT_URL: Final = re.compile(r"\s*,\s*(?=[A-Za-z][A-Za-z0-9+.-]*:)")
"""Matches what separates the URLs of a list."""


def understood(url: str) -> str:
    """Return a URL in the form of `connect`; its login and its options stay as they are.

    Raises:
        UnknownSchemeError: it leads to no adapter; the text has the URL to write, without user and password.
    """
    if not isinstance(url, str):
        raise UnknownSchemeError(f"the URL of a broker must be a string, got {type(url).__name__}; {KNOWN}")
    url = url.strip()
    if url.lower() == IN_PROCESS:
        return f"{IN_PROCESS}:"
    scheme = _scheme_of(url)
    if scheme in LISTS or url.startswith("("):
        raise UnknownSchemeError(f"{shown(url)} {_LIST}; write {_written_list(url)}")
    if scheme == FAILOVER:
        _check_list(url)
    if scheme in OURS:
        return scheme + url[len(scheme) :]
    if scheme in OTHER_NAMES:
        return OTHER_NAMES[scheme] + url[len(scheme) :]
    ways = _ways(url, scheme)
    if ways:
        url_shown = _shown_words(url) if FOREIGN[scheme].has_no_host else shown(url)
        raise UnknownSchemeError(f"{url_shown} {FOREIGN[scheme].meaning}; write {' or '.join(ways)}")
    near = get_close_matches(scheme, OURS, n=1)
    meant = f"; perhaps {near[0]}: was meant" if near else ""
    raise UnknownSchemeError(f"no broker adapter for the URL scheme {scheme!r}{meant}; {KNOWN}")


def _shown_words(url: str) -> str:
    return repr(without_logins_of_words(url).partition("?")[0][:MAX_URL_CHARACTERS])


def _scheme_of(url: str) -> str:
    """Return the scheme in small letters; empty for a host without one, and without a host."""
    found = _SCHEME.match(url)
    scheme = "" if found is None else found[1].lower()
    if scheme in OURS or scheme in OTHER_NAMES or scheme in FOREIGN or scheme in LISTS:
        return scheme
    is_place = _PLACE.fullmatch(url) is not None and "://" not in url
    return "" if is_place or not url else scheme


def _ways(url: str, scheme: str) -> Sequence[str]:
    """Return the URLs that may be meant, the likeliest first; none for an unknown scheme."""
    foreign = FOREIGN.get(scheme)
    if foreign is None:
        return ()
    place = _PLACE.fullmatch(url[len(scheme) + bool(scheme) :])
    if place is None or foreign.has_no_host:
        return [f"{name}://HOST:{NETWORK_SCHEMES[name].port}" for name in foreign.families]
    port = int(place["port"] or 0)
    meant = NETWORK_SCHEMES.get(PORTS.get(port, ""))
    if meant is not None and foreign.is_secure in (None, meant.is_secure) and "amqp+ws" not in foreign.families:
        return [_written(place, PORTS[port], port)]
    names = [scheme_of(family, is_secure=bool(foreign.is_secure)) for family in foreign.families]
    keeps_port = foreign.keeps_port and port not in (0, JAVA_PORT)
    return [_written(place, name, port if keeps_port else NETWORK_SCHEMES[name].port) for name in names]


def _written(place: re.Match[str], scheme: str, port: int) -> str:
    """Return a URL with placeholders for the login, if there was one."""
    return f"{scheme}://{'USER:PASSWORD@' * bool(place['login'])}{place['host']}:{port}"


def _check_list(url: str) -> None:
    """Check that all brokers of a list are understood.

    Raises:
        UnknownSchemeError: one is not; the text has the list to write.
    """
    for each in _listed(url, NEXT_URL):
        scheme = _scheme_of(each)
        if scheme in FOREIGN:
            raise UnknownSchemeError(f"{shown(each)} {FOREIGN[scheme].meaning}; write {_written_list(url)}")


def _listed(url: str, between: re.Pattern[str]) -> Sequence[str]:
    found = _SEVERAL.fullmatch(url)
    inner = "" if found is None else found["inner"] if found["inner"] is not None else found["bare"]
    return [each.strip() for each in between.split(inner or "") if each.strip()]


def _written_list(url: str) -> str:
    """Return a list in our form: each broker as it is likely meant, without login and options."""
    ways = [_as_listed(each) for each in _listed(url, _NEXT)] or ["stomp://HOST:PORT", "stomp://HOST:PORT"]
    return f"{FAILOVER}:({','.join(ways)})"


def _as_listed(url: str) -> str:
    scheme = _scheme_of(url)
    ways = _ways(url, scheme)
    name = OTHER_NAMES.get(scheme, scheme)
    place = _PLACE.fullmatch(url[len(scheme) + 1 :])
    if ways or place is None or name not in NETWORK_SCHEMES:
        return ways[0] if ways else "stomp://HOST:PORT"
    return _written(place, name, int(place["port"] or NETWORK_SCHEMES[name].port))
