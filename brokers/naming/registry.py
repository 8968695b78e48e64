"""The registry that maps JNDI names to destinations and to the URL of a broker.

Spec: RFC 6167 4.2 (variant jndi), 4.3 (queue, topic), 8.2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from brokers.errors import UsageError
from brokers.message import Destination, queue, topic
from brokers.naming.allow_list import AllowedBrokers, endpoints_of, own_endpoints, refuse_login
from brokers.naming.dialects import (
    DIALECTS,
    DYNAMIC,
    INITIAL,
    KINDS,
    PROVIDER_URL,
    JndiDialect,
    destinations_of,
    dialect_of,
    expanded,
    factory_url,
    in_dialect,
    physical_name,
)
from brokers.naming.errors import NameNotFoundError, NamingError, listed
from brokers.naming.properties_file import (
    MAX_FILE_OCTETS,
    MAX_TOML_OCTETS,
    content_of,
    named,
    read_properties,
    read_toml,
)
from brokers.schemes import SCHEMES

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
USUAL_FACTORY: Final = "ConnectionFactory"
"""The connection factory to use if none is named: it exists by default in every dialect."""


class Names:
    """A registry of JNDI names. Nothing is ever looked up over a network. Immutable, so thread-safe.

    Args:
        destinations: JNDI name to destination.
        connection_factories: JNDI name to a broker's URL, in the form of Java clients or of `brokers.connect`.
        allowed: the brokers that may be reached; see `AllowedBrokers`. Without it, every URL of a Java client is
            refused; a URL for `brokers.connect` in `connection_factories` is always allowed.

    Attributes:
        allowed: the brokers that may be reached; can be passed to other `Names`.

    Raises:
        NamingError: a URL is invalid.
        UsageError: `destinations` is something else than a mapping to destinations.
    """

    def __init__(
        self,
        destinations: Mapping[str, Destination] = MappingProxyType({}),
        *,
        connection_factories: Mapping[str, str] = NOTHING,
        allowed: AllowedBrokers | Mapping[str, str] | Iterable[str] = (),
    ) -> None:
        self._destinations = _checked(destinations)
        self.allowed = AllowedBrokers(allowed)
        self._factories = {name: self._reachable(name, url) for name, url in connection_factories.items()}
        self._entries: Mapping[str, str] = NOTHING
        self._dialect: JndiDialect | None = None

    @classmethod
    def from_properties(
        cls,
        path: str | PathLike[str] | None = None,
        *,
        text: bytes | str | None = None,
        allowed: AllowedBrokers | Mapping[str, str] | Iterable[str] = (),
        variables: Mapping[str, str] = NOTHING,
    ) -> Self:
        """Read the `jndi.properties` of a client of ActiveMQ Classic, Artemis or Qpid JMS.

        `java.naming.factory.initial` selects the dialect. Logins in the file are neither used nor shown: the login is
        part of the URL in `allowed`. Files and directories that an entry names are not read.

        Args:
            path: path of the file; give either this or `text`.
            text: content of the file; octets are decoded as Java decodes them.
            allowed: the brokers that may be reached; see `AllowedBrokers`.
            variables: values for `${NAME}` in a file of Qpid JMS; the environment of the process is not used.

        Raises:
            NamingError: the file is invalid, or an entry would lead to a network look-up.
            OSError: the file cannot be read.
        """
        content = content_of(path, text, MAX_FILE_OCTETS)
        with named(path):
            return cls._of_properties(content, allowed, variables)

    @classmethod
    def _of_properties(
        cls,
        content: bytes | str,
        allowed: AllowedBrokers | Mapping[str, str] | Iterable[str],
        variables: Mapping[str, str],
    ) -> Self:
        entries = read_properties(content)
        dialect = _dialect_in(entries)
        if dialect is not None:
            entries = in_dialect(entries, dialect)
            entries = expanded(entries, variables) if dialect.expands else entries
        if PROVIDER_URL in entries:
            endpoints_of(entries[PROVIDER_URL].strip(), PROVIDER_URL)
        names = cls(dict(destinations_of(entries, dialect)), allowed=allowed)
        names._entries, names._dialect = MappingProxyType(entries), dialect
        return names

    @classmethod
    def from_toml(cls, path: str | PathLike[str] | None = None, *, text: bytes | str | None = None) -> Self:
        """Read names from TOML, in the tables `[queues]`, `[topics]`, `[connection_factories]`, `[allowed_brokers]`.

        Each table maps a JNDI name or a URL to a string; `allowed_brokers` may be an array of URLs instead.

        Raises:
            NamingError: the content is invalid.
            OSError: the file cannot be read.
        """
        content = content_of(path, text, MAX_TOML_OCTETS)
        with named(path):
            return cls._of_toml(content)

    @classmethod
    def _of_toml(cls, content: bytes | str) -> Self:
        tables = read_toml(content)
        queues, topics = tables.get("queues", {}), tables.get("topics", {})
        for name in queues.keys() & topics.keys():
            raise NamingError(f"{name[:200]!r} is both in queues and in topics")
        destinations = {name: queue(physical_name(name, each, None)) for name, each in queues.items()}
        destinations |= {name: topic(physical_name(name, each, None)) for name, each in topics.items()}
        return cls(
            destinations,
            connection_factories=tables.get("connection_factories", {}),
            allowed=tables.get("allowed_brokers", ()),
        )

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read a file: as TOML if its name ends in `.toml`, otherwise as `jndi.properties`.

        Raises:
            NamingError: the file is invalid.
            OSError: the file cannot be read.
        """
        return cls.from_toml(path) if Path(path).suffix == ".toml" else cls.from_properties(path)

    def lookup(self, name: str, environment: Mapping[str, str] = NOTHING) -> Destination:
        """Return the destination of a JNDI name.

        Args:
            name: a registered name, or `dynamicQueues/NAME` or `dynamicTopics/NAME`.
            environment: entries of the JNDI environment, which override those of the file; only `queue.NAME` and
                `topic.NAME` are used.

        Raises:
            NameNotFoundError: the name is neither registered nor dynamic.
        """
        found = None
        for key, make in ((prefix + name, make) for prefix, make in KINDS.items()):
            if key in environment:
                found = make(physical_name(key, environment[key], self._dialect))
        if found is not None:
            return found
        if name in self._destinations:
            return self._destinations[name]
        for prefix, make in DYNAMIC.items():
            if name.startswith(prefix) and len(name) > len(prefix):
                return make(physical_name(name, name.removeprefix(prefix), self._dialect))
        raise NameNotFoundError(
            f"no destination is registered under the JNDI name {name[:200]!r}; "
            f"registered: {listed(self._destinations)}; "
            f"or use {' or '.join(prefix + 'NAME' for prefix in DYNAMIC)}"
        )

    def broker_url(
        self,
        connection_factory: str | None = None,
        provider_url: str | None = None,
        *,
        environment: Mapping[str, str] = NOTHING,
    ) -> str:
        """Return the URL for `brokers.connect` of the broker that a connection factory leads to.

        As with the Java clients, a connection factory's own URL overrides the provider URL. The arguments may come
        from outside: they only choose among the brokers that the configuration allows.

        Args:
            connection_factory: its JNDI name; if None, the provider URL is used, or else `ConnectionFactory`.
            provider_url: overrides that of the environment, which overrides that of the file.
            environment: entries of the JNDI environment, which override those of the file.

        Returns:
            A URL that the caller wrote. It may hold a login, so do not show it.

        Raises:
            NameNotFoundError: there is no such connection factory.
            NamingError: the broker is not allowed, a class or URL would lead to a network look-up, or there is no URL.
        """
        given = {**environment} if provider_url is None else {**environment, PROVIDER_URL: provider_url}
        by_provider = None
        if PROVIDER_URL in given:
            place = f"the provider URL ({PROVIDER_URL} or jndiURL)"
            refuse_login(given[PROVIDER_URL], place)
            by_provider = self.allowed.url_of(given[PROVIDER_URL].strip(), place)
        entries = {**self._entries, **given}
        dialect = _dialect_in(entries)
        if connection_factory is None and by_provider is not None:
            return by_provider
        return self._factory_url(connection_factory or USUAL_FACTORY, entries, dialect)

    def _factory_url(self, name: str, entries: Mapping[str, str], dialect: JndiDialect | None) -> str:
        if name in self._factories:
            return self._factories[name]
        if dialect is None:
            raise NameNotFoundError(
                f"no connection factory is registered under the JNDI name {name[:200]!r}; "
                f"registered: {listed(self._factories)}; "
                f"or name the initial context factory that defines the entries: {', '.join(DIALECTS)}"
            )
        url, place = factory_url(name, in_dialect(entries, dialect), dialect)
        return self.allowed.url_of(url, f"the connection factory {name[:200]!r} ({place[:200]})")

    def _reachable(self, name: str, url: str) -> str:
        """Return the URL for `brokers.connect` of a connection factory registered by the caller."""
        if isinstance(url, str) and url.partition(":")[0] in SCHEMES:
            own_endpoints(url)
            return url
        return self.allowed.url_of(url, f"the connection factory {name!r}")

    def __repr__(self) -> str:
        return f"<Names: {len(self._destinations)} destinations, {len(self.allowed)} allowed brokers>"


def _checked(destinations: Mapping[str, Destination]) -> dict[str, Destination]:
    example = 'a mapping of names to destinations, such as {"bank": brokers.queue("BANK.IN")}'
    if not isinstance(destinations, Mapping):
        raise UsageError(f"destinations must be {example}, got {destinations!r}")
    for name, each in destinations.items():
        if not isinstance(each, Destination):
            raise UsageError(f"destinations must be {example}, got {each!r} for {name!r}")
    return dict(destinations)


def _dialect_in(entries: Mapping[str, str]) -> JndiDialect | None:
    return dialect_of(entries[INITIAL]) if INITIAL in entries else None
