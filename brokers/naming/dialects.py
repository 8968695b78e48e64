"""What the entries of a JNDI environment mean to each Java client: a table with one row for each client.

The rows record the observed behaviour of the context factories of ActiveMQ Classic 6.1, Artemis 2.44 and Qpid JMS 2.6.

Deviation: a connection factory without a URL is an error; the Java clients use a broker on their own machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from brokers.arguments import uri_problem
from brokers.message import Destination, queue, topic
from brokers.naming.allow_list import REFUSAL
from brokers.naming.errors import NameNotFoundError, NamingError, listed
from brokers.redaction import SECRET

INITIAL: Final = "java.naming.factory.initial"
PROVIDER_URL: Final = "java.naming.provider.url"

KINDS: Final[Mapping[str, Callable[[str], Destination]]] = {"queue.": queue, "topic.": topic}
"""Prefixes of entries that register a destination; a name that has both is a topic, as with the Java clients."""

DYNAMIC: Final[Mapping[str, Callable[[str], Destination]]] = {"dynamicQueues/": queue, "dynamicTopics/": topic}
"""Prefixes of JNDI names that name a destination directly, in all of these clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JndiDialect:
    """How one Java client interprets its entries.

    Attributes:
        classes: the context factories of this client; the first is the usual one.
        defaults: connection factories that exist without an entry.
        defaults_stay: whether the defaults also exist if other connection factories have entries.
        listed: the entry with the comma-separated names of the connection factories; None if each has its own entry.
        prefix: prefix of the name in the entry of a connection factory.
        any_case: prefixes that may be written in any case.
        urls: entries that may hold the URL of the connection factory `{name}`; the first with a value counts.
        trims: whether blanks around the name of a destination, and options after a `?` in it, are dropped.
        expands: whether `${NAME}` in a value stands for another value.
    """

    classes: tuple[str, ...]
    defaults: tuple[str, ...]
    defaults_stay: bool = False
    listed: str | None = None
    prefix: str | None = None
    any_case: tuple[str, ...] = ()
    urls: tuple[str, ...]
    trims: bool = False
    expands: bool = False


CLASSIC: Final = JndiDialect(
    classes=(
        "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "org.apache.activemq.jndi.ActiveMQSslInitialContextFactory",
    ),
    defaults=("ConnectionFactory", "XAConnectionFactory", "QueueConnectionFactory", "TopicConnectionFactory"),
    listed="connectionFactoryNames",
    urls=("connection.{name}.brokerURL", "brokerURL", f"connection.{{name}}.{PROVIDER_URL}", PROVIDER_URL),
    trims=True,
)
ARTEMIS: Final = JndiDialect(
    classes=("org.apache.activemq.artemis.jndi.ActiveMQInitialContextFactory",),
    defaults=CLASSIC.defaults,
    defaults_stay=True,
    prefix="connectionFactory.",
    urls=("connectionFactory.{name}", PROVIDER_URL),
)
QPID_JMS: Final = JndiDialect(
    classes=("org.apache.qpid.jms.jndi.JmsInitialContextFactory",),
    defaults=("ConnectionFactory", "QueueConnectionFactory", "TopicConnectionFactory"),
    prefix="connectionfactory.",
    any_case=("connectionfactory.", "default.connectionfactory.", "property.connectionfactory."),
    urls=(
        "property.connectionfactory.{name}.remoteURI",
        "connectionfactory.{name}",
        "default.connectionfactory.remoteURI",
        PROVIDER_URL,
    ),
    expands=True,
)

DIALECTS: Final[Mapping[str, JndiDialect]] = {
    name: dialect for dialect in (CLASSIC, ARTEMIS, QPID_JMS) for name in dialect.classes
}
"""The allow-list of `jndiInitialContextFactory`: class name to dialect."""


def dialect_of(class_name: str) -> JndiDialect:
    """Choose the dialect by the class name of a context factory.

    Raises:
        NamingError: the class is unknown; most other factories would connect to a directory.
    """
    try:
        return DIALECTS[class_name.strip()]
    except KeyError:
        known = ", ".join(DIALECTS)
        raise NamingError(
            f"the initial context factory {class_name[:200]!r} is not supported; {REFUSAL}; accepted are: {known}"
        ) from None


def in_dialect(entries: Mapping[str, str], dialect: JndiDialect) -> dict[str, str]:
    """Return the entries with prefixes that may have any case in the case of the table."""
    return {_folded(key, dialect.any_case): value for key, value in entries.items()}


def _folded(key: str, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes:
        if key[: len(prefix)].lower() == prefix:
            return prefix + key[len(prefix) :]
    return key


def destinations_of(entries: Mapping[str, str], dialect: JndiDialect | None) -> Iterator[tuple[str, Destination]]:
    """Yield the destinations that the entries register, with their JNDI names; of two with one name the later counts.

    Raises:
        NamingError: an entry has no value.
    """
    for prefix, make in KINDS.items():
        for key, value in entries.items():
            if key.startswith(prefix):
                yield key.removeprefix(prefix), make(physical_name(key, value, dialect))


def physical_name(key: str, value: str, dialect: JndiDialect | None) -> str:
    """Return the broker's name of a destination.

    Raises:
        NamingError: the entry has no name, or a URI.
    """
    name = value.partition("?")[0].strip() if dialect is not None and dialect.trims else value
    if not name.strip():
        raise NamingError(f"the entry {key[:200]!r} names no destination")
    problem = uri_problem(name.strip()[:200], "destination")
    if problem is not None:
        raise NamingError(f"the entry {key[:200]!r} {problem}")
    return name


def factory_names(entries: Mapping[str, str], dialect: JndiDialect) -> tuple[str, ...]:
    """Return the JNDI names of the existing connection factories."""
    own: tuple[str, ...] = ()
    if dialect.listed is not None:
        own = tuple(name.strip() for name in entries.get(dialect.listed, "").split(",") if name.strip())
    if dialect.prefix is not None:
        own = tuple(key.removeprefix(dialect.prefix) for key in entries if key.startswith(dialect.prefix))
    return own + dialect.defaults if dialect.defaults_stay or not own else own


def factory_url(name: str, entries: Mapping[str, str], dialect: JndiDialect) -> tuple[str, str]:
    """Find the URL of a connection factory, and the entry that holds it.

    Raises:
        NameNotFoundError: there is no such connection factory.
        NamingError: no entry holds its URL; unlike a Java client, this does not default to the local machine.
    """
    known = factory_names(entries, dialect)
    if name not in known:
        raise NameNotFoundError(f"no connection factory has the JNDI name {name[:200]!r}; there are: {listed(known)}")
    places = [place.format(name=name) for place in dialect.urls]
    for place in places:
        if url := entries.get(place, "").strip():
            return url, place
    raise NamingError(f"the connection factory {name!r} has no URL; put it in one of: {', '.join(places)}")


# Variables, as in Qpid JMS

MAX_EXPANDED_CHARACTERS: Final = 4096
MAX_DEPTH: Final = 16
_VARIABLE: Final = re.compile(r"\$\$|\$\{([^}]*)\}")


def expanded(entries: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Expand `${NAME}` and `${NAME:-DEFAULT}` in names of destinations and in URLs; `$$` is a dollar sign.

    Values come from `variables`, then from the entries. Unlike a Java client, this reads neither system properties nor
    the environment of the process.

    Raises:
        NamingError: a variable is unknown, recursive or looks like a secret, or the result is too long.
    """
    resolve = Expansion({**entries, **variables})
    return {key: resolve.expand(key, value) if _matters(key) else value for key, value in entries.items()}


def _matters(key: str) -> bool:
    return key == PROVIDER_URL or key.endswith(".remoteURI") or key.startswith((*KINDS, "connectionfactory."))


class Expansion:
    """Expands variables; the value of each is computed once."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._done: dict[str, str] = {}

    def expand(self, place: str, text: str, under_way: tuple[str, ...] = ()) -> str:
        """Expand a text from the entry `place`."""
        parts: list[str] = []
        end = 0
        for found in _VARIABLE.finditer(text):
            parts += text[end : found.start()], self._value(place, found.group(1), under_way)
            end = found.end()
            if sum(map(len, parts)) > MAX_EXPANDED_CHARACTERS:
                raise NamingError(
                    f"the entry {place[:200]!r} expands to more than {MAX_EXPANDED_CHARACTERS} characters"
                )
        return "".join(parts) + text[end:]

    def _value(self, place: str, variable: str | None, under_way: tuple[str, ...]) -> str:
        if variable is None:
            return "$"
        name, has_default, default = variable.partition(":-")
        if name in under_way or len(under_way) == MAX_DEPTH:
            raise NamingError(f"the entry {place[:200]!r} needs the variable {name[:200]!r}, which refers to itself")
        if SECRET.search(name):
            raise NamingError(f"the entry {place[:200]!r} uses the variable {name[:200]!r}, which looks like a secret")
        if name not in self._values:
            if not has_default:
                raise NamingError(f"the entry {place[:200]!r} needs the unknown variable {name[:200]!r}")
            return self.expand(place, default)  # which holds no variable, as a brace ends it
        if name not in self._done:
            self._done[name] = self.expand(place, self._values[name], (*under_way, name))
        return self._done[name]
