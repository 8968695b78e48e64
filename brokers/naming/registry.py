"""From names to destinations and to the URL of a broker.

Spec: RFC 6167 4.2 (variant jndi), 4.3 (queue, topic), 8.2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from brokers.message import Destination, queue, topic
from brokers.naming.allow_list import AllowedBrokers, endpoints_of, own_endpoint, refuse_login
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
from brokers.naming.properties_file import MAX_FILE_OCTETS, MAX_TOML_OCTETS, content_of, read_properties, read_toml
from brokers.schemes import SCHEMES

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
USUAL_FACTORY: Final = "ConnectionFactory"
"""The connection factory where nobody names one: it is there by default in every dialect."""


class Names:
    """A registry of JNDI names. Nothing is ever looked up over a network. Immutable, so thread-safe.

    Args:
        destinations: JNDI name to destination.
        connection_factories: JNDI name to a broker's URL, as Java clients have it or for `brokers.connect`.
        allowed: the brokers that may be reached; see `AllowedBrokers`. Without it, no URL of a Java client leads
            anywhere; a URL for `brokers.connect` in `connection_factories` is allowed by being there.

    Attributes:
        allowed: the brokers that may be reached, to be passed on to other `Names`.

    Raises:
        NamingError: a URL that is not as it must be.
    """

    def __init__(
        self,
        destinations: Mapping[str, Destination] = MappingProxyType({}),
        *,
        connection_factories: Mapping[str, str] = NOTHING,
        allowed: AllowedBrokers | Mapping[str, str] | Iterable[str] = (),
    ) -> None:
        self._destinations = dict(destinations)
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
        """Read a `jndi.properties`, as ActiveMQ Classic, Artemis and Qpid JMS have it.

        `java.naming.factory.initial` says how it is meant. Logins in it are not used, and shown nowhere: that of the
        broker is in `allowed`. No file or directory that an entry names is looked at.

        Args:
            path: of the file; or else
            text: its content; octets are read as Java reads them.
            allowed: the brokers that may be reached; see `AllowedBrokers`.
            variables: what `${NAME}` stands for in a file of Qpid JMS; the process's environment is not looked at.

        Raises:
            NamingError: the file is not as it must be, or an entry would reach out.
            OSError: the file cannot be read.
        """
        entries = read_properties(content_of(path, text, MAX_FILE_OCTETS))
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

        Each maps a JNDI name or a URL to a string; `allowed_brokers` may be an array of URLs instead.

        Raises:
            NamingError: the file is not as it must be.
            OSError: the file cannot be read.
        """
        tables = read_toml(content_of(path, text, MAX_TOML_OCTETS))
        queues, topics = tables.get("queues", {}), tables.get("topics", {})
        for name in queues.keys() & topics.keys():
            raise NamingError(f"{name[:200]!r} is in queues and in topics")
        destinations = {name: queue(physical_name(name, each, None)) for name, each in queues.items()}
        destinations |= {name: topic(physical_name(name, each, None)) for name, each in topics.items()}
        return cls(
            destinations,
            connection_factories=tables.get("connection_factories", {}),
            allowed=tables.get("allowed_brokers", ()),
        )

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Read a file whose name ends in `.toml` as TOML, another as `jndi.properties`.

        Raises:
            NamingError: the file is not as it must be.
            OSError: the file cannot be read.
        """
        return cls.from_toml(path) if Path(path).suffix == ".toml" else cls.from_properties(path)

    def lookup(self, name: str, environment: Mapping[str, str] = NOTHING) -> Destination:
        """Return the destination of a JNDI name.

        Args:
            name: as registered, or `dynamicQueues/NAME`, `dynamicTopics/NAME`.
            environment: entries of the JNDI environment over those of the file; `queue.NAME` and `topic.NAME` count.

        Raises:
            NameNotFoundError: it is neither registered nor dynamic.
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

        As with the Java clients, a connection factory's own URL wins over the provider URL. The arguments may come
        from outside: they choose among the brokers that the configuration allows, and add nothing to them.

        Args:
            connection_factory: its JNDI name; without it the provider URL counts, or else `ConnectionFactory`.
            provider_url: over that of the environment, which is over that of the file.
            environment: entries of the JNDI environment over those of the file.

        Returns:
            A URL that the caller wrote, which may hold a login: it is not to be shown.

        Raises:
            NameNotFoundError: no such connection factory.
            NamingError: a broker that is not allowed, a class or URL that would reach out, or no URL at all.
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
                f"or let an initial context factory say what the entries mean: {', '.join(DIALECTS)}"
            )
        url, place = factory_url(name, in_dialect(entries, dialect), dialect)
        return self.allowed.url_of(url, f"the connection factory {name[:200]!r} ({place[:200]})")

    def _reachable(self, name: str, url: str) -> str:
        """Return the URL for `brokers.connect` of a connection factory that the caller registers."""
        if isinstance(url, str) and url.partition(":")[0] in SCHEMES:
            own_endpoint(url)
            return url
        return self.allowed.url_of(url, f"the connection factory {name!r}")

    def __repr__(self) -> str:
        return f"<Names: {len(self._destinations)} destinations, {len(self.allowed)} allowed brokers>"


def _dialect_in(entries: Mapping[str, str]) -> JndiDialect | None:
    return dialect_of(entries[INITIAL]) if INITIAL in entries else None
