"""The allow-list of brokers: which brokers may be reached, and how, whatever a URI, WSDL or file says.

A URL of a Java client (`tcp://host:61616`, `failover:(…)`, `amqp://host`) is only a key into the list; the URL that it
yields was written by the caller, including login and options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from brokers.environment import PASSWORD, USER
from brokers.naming.errors import NamingError, listed
from brokers.network_schemes import NETWORK_SCHEMES, OTHER_NAMES, WEB_SCHEMES
from brokers.redaction import SECRET, shown, without_login
from brokers.schemes import SCHEMES
from brokers.url import bracketed

JAVA_SCHEMES: Final = frozenset({"tcp", "nio", "ssl", "nio+ssl", "auto", "auto+ssl", "ws", "wss", "vm"})
"""Schemes of the URLs of Java clients that are not, by any name, ours."""

OF_ONE_BROKER: Final = frozenset({*JAVA_SCHEMES, *OTHER_NAMES, *SCHEMES}) - {"failover"}
"""Schemes of a URL that names one broker; `failover:` lists several."""

WITHOUT_HOST: Final = frozenset({"embedded", "failover"})
"""Schemes of URLs for `brokers.connect` that have no host of their own."""

REFUSAL: Final = "names are never looked up over a network (ldap, rmi, iiop, corbaname, dns, http) nor in other files"

MAX_URL_CHARACTERS: Final = 4096
MAX_ENDPOINTS: Final = 32
_PLAIN: Final = re.compile(r"[!-\[\]-~]+")  # printable ASCII without space and backslash
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_HOSTS: Final = re.compile(r"(?P<begin>[^:/?#]+://(?:[^/?#]*@)?)(?P<hosts>[^/?#@]*)(?P<rest>.*)", re.DOTALL)
_LOGIN: Final = re.compile(rf"{SECRET.pattern}|[?&;.](?:user|login)=")


class BrokerEndpoint(NamedTuple):
    """One broker as a URL of a Java client names it. `str` of it holds no secret."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        return f"{self.scheme}://{bracketed(self.host)}" + ("" if self.port is None else f":{self.port}")


class AllowedBrokers:
    """The brokers that may be reached: a mapping from Java clients' URLs to URLs for `brokers.connect`.

    A URL matches by scheme, host and port; its options are ignored and dropped. If a URL lists several brokers, all
    must be allowed, and the first is used.

    Args:
        allowed: a mapping; or only URLs for `brokers.connect`, each of which is also its own key.

    Raises:
        NamingError: a URL is invalid, or one broker has two URLs.
    """

    def __init__(self, allowed: AllowedBrokers | Mapping[str, str] | Iterable[str] = ()) -> None:
        self._urls: dict[BrokerEndpoint, str] = {}
        if isinstance(allowed, AllowedBrokers):
            self._urls |= allowed._urls
        elif isinstance(allowed, Mapping):
            for key, url in allowed.items():
                self._allow(endpoints_of(key, "allowed brokers"), url)
        elif isinstance(allowed, str):
            raise NamingError("allowed brokers must be a mapping or a list of URLs, got a string; write [URL]")
        else:
            for url in allowed:
                self._allow(own_endpoints(url), url)

    def _allow(self, endpoints: tuple[BrokerEndpoint, ...], url: str) -> None:
        own_endpoints(url)
        for endpoint in endpoints:
            if self._urls.setdefault(endpoint, url) != url:
                raise NamingError(f"allowed brokers: {endpoint} has two URLs")

    def url_of(self, url: str, place: str) -> str:
        """Return the URL for `brokers.connect` of the broker that a Java client's `url` names.

        Args:
            url: in the form of Java clients.
            place: where the URL was found, for error texts.

        Raises:
            NamingError: `url` names a broker that is not allowed, or is not a broker's URL.
        """
        endpoints = endpoints_of(url, place)
        for endpoint in endpoints:
            if endpoint not in self._urls:
                raise NamingError(f"{place} leads to {endpoint}, which is not allowed; allowed are: {self}")
        return self._urls[endpoints[0]]

    def __len__(self) -> int:
        return len(self._urls)

    def __str__(self) -> str:
        return listed(map(str, self._urls))

    def __repr__(self) -> str:
        return f"<AllowedBrokers {self}>"


def own_endpoints(url: str) -> tuple[BrokerEndpoint, ...]:
    """Parse a URL for `brokers.connect`, which may have several hosts and hold a login.

    Raises:
        NamingError: see `own_endpoint`.
    """
    parts = _HOSTS.fullmatch(url) if isinstance(url, str) else None
    if parts is None:
        return (own_endpoint(url),)
    return tuple(own_endpoint(parts["begin"] + host + parts["rest"]) for host in parts["hosts"].split(","))


def own_endpoint(url: str) -> BrokerEndpoint:
    """Parse a URL for `brokers.connect`, which may hold a login, and has one host.

    Raises:
        NamingError: no adapter serves its scheme, or a part of the login is not percent-encoded.
    """
    if not isinstance(url, str):
        raise NamingError(f"a broker's URL must be a string, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or parts.path, parts.port
    except ValueError:  # its text repeats a part of the URL
        raise NamingError(f"{shown(url)} is not a URL for brokers.connect") from None
    if scheme not in SCHEMES:
        known = ", ".join(sorted(SCHEMES))
        raise NamingError(f"{shown(url)} is not a URL for brokers.connect; known schemes are: {known}")
    if scheme == "failover" and without_login(url) != url:
        raise NamingError(
            f"{shown(url)} must have no user or password within the list; set {USER} and {PASSWORD} in the environment"
        )
    if not parts.hostname and (scheme not in WITHOUT_HOST or without_login(url) != url):
        raise NamingError(f"{shown(url)} is not a URL for brokers.connect; write {scheme}://USER:PASSWORD@HOST:PORT")
    if "@" in parts.path + parts.query + parts.fragment:
        raise NamingError(f"{shown(url)}: any of /?#@ in user or password must be percent-encoded")
    return _of(scheme, host, port)


def _of(scheme: str, host: str, port: int | None) -> BrokerEndpoint:
    """Return a broker by our name of the scheme, with the port that its URL may omit."""
    ours = OTHER_NAMES.get(scheme, scheme)
    usual = NETWORK_SCHEMES.get(WEB_SCHEMES.get(ours, ours))
    return BrokerEndpoint(ours, host, port or (None if usual is None else usual.port))


def endpoints_of(url: str, place: str) -> tuple[BrokerEndpoint, ...]:
    """Parse a Java client's URL: one broker, or a list as in `failover:(…)` and Artemis's `(…,…)`.

    Raises:
        NamingError: the scheme is unknown, the URL holds a login, or `url` is not a URL.
    """
    if not isinstance(url, str) or len(url) > MAX_URL_CHARACTERS or not _PLAIN.fullmatch(url):
        raise NamingError(
            f"{place} is not a broker's URL: that has up to {MAX_URL_CHARACTERS} printable ASCII characters, no blanks"
        )
    found = tuple(_endpoint(part, place) for part in _listed(url, place))
    if len(found) > MAX_ENDPOINTS:
        raise NamingError(f"{place} must list at most {MAX_ENDPOINTS} brokers, got {len(found)}")
    return found


def refuse_login(url: str, place: str) -> None:
    """Refuse a URL whose options look like a login: a URL from outside must not carry one.

    Raises:
        NamingError: the URL carries a login.
    """
    if _LOGIN.search(url):
        raise NamingError(f"{place} carries a login; it belongs in the URL of the allowed broker")


def _listed(url: str, place: str) -> list[str]:
    several = url[:9].lower() == "failover:"
    rest = url[9:].removeprefix("//") if several else url
    if rest.startswith("("):
        rest, bracket, options = rest[1:].rpartition(")")
        if not bracket or (options and options[0] != "?"):
            raise NamingError(f"{place} is not a broker's URL: the brackets of {shown(url)} do not match")
        several = True
    return rest.split(",") if several else [rest]


def _endpoint(url: str, place: str) -> BrokerEndpoint:
    scheme = url.partition(":")[0].lower()
    if scheme not in OF_ONE_BROKER:
        known = ", ".join(sorted({*OF_ONE_BROKER, "failover"}))
        raise NamingError(f"{place} is {shown(url)}, which is not a broker's URL; {REFUSAL}; accepted are: {known}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or parts.path, parts.port
    except ValueError:  # its text repeats a part of the URL
        raise NamingError(f"{place} is {shown(url)}: its host or port is invalid") from None
    if "@" in url:
        raise NamingError(f"{place} is {shown(url)}; the login belongs in the URL of the allowed broker")
    if not _HOST.fullmatch(host) or (parts.hostname and parts.path not in ("", "/")) or parts.fragment:
        raise NamingError(f"{place} must be SCHEME://HOST:PORT, with options after a ?, got {shown(url)}")
    return _of(scheme, host, port)
