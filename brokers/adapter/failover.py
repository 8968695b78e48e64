"""URLs that list several brokers and reconnect options, in the syntax of ActiveMQ's own clients.

`stomp://USER:PASSWORD@HOST:PORT,HOST:PORT?maxReconnectAttempts=20` or `failover:(stomp://HOST:PORT,stomp://HOST:PORT)`.
The URL of a single broker is parsed elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from brokers.adapter.endpoints import Reconnect
from brokers.connection import Connection
from brokers.errors import UsageError
from brokers.foreign_urls import NEXT_URL, understood
from brokers.schemes import SCHEMES, adapter
from brokers.url import completed, flag

FAILOVER: Final = re.compile(r"failover:(?://)?(?:\((?P<inner>[^()]*)\)|(?P<bare>[^()?]*))(?:\?(?P<query>.*))?", re.I)

SEVERAL: Final = re.compile(r"(?P<scheme>[^:/?#]+://)(?P<login>[^/?#]*@)?(?P<hosts>[^/?#@]*)(?P<rest>.*)")


def _seconds(value: str) -> float:
    return int(value) / 1000


def _attempts(value: str) -> int | None:
    return None if value == "-1" else int(value)


OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object], str]]] = {
    "initialReconnectDelay": ("initial", _seconds, "milliseconds"),
    "maxReconnectDelay": ("maximum", _seconds, "milliseconds"),
    "maxReconnectAttempts": ("attempts", _attempts, "a number, -1 for no end, 0 for no reconnecting"),
    "randomize": ("randomize", flag, "true or false"),
}
"""ActiveMQ's name of each option, with the field of `Reconnect`, the parser of its value, and the permitted values."""


EXAMPLE: Final = "failover:(stomp://HOST:PORT,stomp://HOST:PORT)"
KNOWN: Final = f"known options are: {', '.join(OPTIONS)}"


class Failover(NamedTuple):
    """The URLs of the brokers, in the order in which they are tried, and how to reconnect, or None to stay lost."""

    urls: tuple[str, ...]
    reconnect: Reconnect | None


def connect(url: str, **options: Any) -> Connection:
    """Connect to the first of several brokers that answers, with the adapter for the scheme of their URLs.

    Raises:
        UsageError: `url` lists no broker, or brokers that speak different protocols, or its brackets do not match.
    """
    if FAILOVER.fullmatch(url) is None:
        raise UsageError(
            f"a failover: list must have one pair of brackets, as in {EXAMPLE}; in user and password ( and ) must be "
            "percent-encoded, as %28 and %29"
        )
    schemes = [each.partition(":")[0].lower() for each in read_failover(url, reconnect=True).urls]
    modules = {SCHEMES.get(scheme) for scheme in schemes if scheme != "failover"} - {"brokers.embedded"}
    if len(modules) != 1 or None in modules:
        raise UsageError(f"the brokers of a failover: list must all speak one protocol, as in {EXAMPLE}")
    connection: Connection = adapter(str(modules.pop())).connect(url, **options)
    return connection


def read_failover(url: str, reconnect: Reconnect | bool) -> Failover:
    """Parse a URL of one or more brokers. No error text repeats a part that may be a password.

    An unknown option of `stomp://` stays in the URL, for the adapter to parse.

    Args:
        url: of either form. In `stomp://` user and password stand once, before the first host, and hold for all hosts.
        reconnect: overrides the URL; True for the options of the URL alone. See `brokers.url`.

    Raises:
        UnknownSchemeError: a URL leads to no adapter; see `brokers.foreign_urls`.
        UsageError: there is no broker, an option of `failover:` is unknown, or an option has an invalid value.
    """
    url = understood(url)
    listed = FAILOVER.fullmatch(url)
    if listed is None:
        urls, found = _hosts_of(url)
    else:
        inner = listed["inner"] if listed["inner"] is not None else listed["bare"]
        urls = tuple(each.strip() for each in NEXT_URL.split(inner) if each.strip())
        urls = tuple(each if _is_list(each) else understood(each) for each in urls)
        found, unknown = _options(listed["query"])
        if unknown or not urls:
            raise UsageError(f"write {EXAMPLE}?OPTION=VALUE; {KNOWN}")
    if not isinstance(reconnect, bool | Reconnect):
        raise UsageError(f"reconnect must be True, False or a brokers.Reconnect, got {reconnect!r:.100}")
    plan = Reconnect() if isinstance(reconnect, bool) else reconnect
    if reconnect is False or (found.get("attempts") == 0 and plan.attempts is None):
        return Failover(urls, None)
    return Failover(urls, completed(plan, found))


def _is_list(url: str) -> bool:
    """Return whether a URL within a list is a list itself, which is refused elsewhere."""
    return FAILOVER.fullmatch(url) is not None


def _hosts_of(url: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return one URL for each host, and the reconnect options."""
    parts = SEVERAL.fullmatch(url)
    if parts is None:
        return (url,), {}
    path, mark, query = parts["rest"].partition("?")
    found, unknown = _options(query)
    rest = path + mark * bool(unknown or not found) + unknown
    return tuple(f"{parts['scheme']}{parts['login'] or ''}{host}{rest}" for host in parts["hosts"].split(",")), found


def _options(query: str | None) -> tuple[dict[str, Any], str]:
    """Parse the known options of a query, and return the rest unchanged."""
    found: dict[str, Any] = {}
    unknown = []
    for each in (query or "").split("&"):
        name, _, value = each.partition("=")
        if name in OPTIONS:
            ours, read, form = OPTIONS[name]
            try:
                found[ours] = read(value)
            except (ValueError, KeyError, OverflowError):
                raise UsageError(f"{name} must be {form}, got {value!r}") from None
        elif each:
            unknown.append(each)
    return found, "&".join(unknown)
