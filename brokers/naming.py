"""From names to destinations without network JNDI: a registry in code, with the dynamic names that ActiveMQ knows.

Spec: RFC 6167 4.2 (variant jndi), 4.3 (queue, topic).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from brokers.errors import BrokerError
from brokers.message import Destination, queue, topic

DYNAMIC: Final = MappingProxyType({"dynamicQueues/": queue, "dynamicTopics/": topic})
"""Prefixes of JNDI names that name a destination themselves."""


class NameNotFoundError(BrokerError, LookupError):
    """A JNDI name that the registry does not know; the message lists those it does."""


class Names:
    """A registry of JNDI names. Nothing is ever looked up over a network.

    Args:
        destinations: JNDI name to destination.
    """

    def __init__(self, destinations: Mapping[str, Destination] = MappingProxyType({})) -> None:
        self._destinations = dict(destinations)

    def lookup(self, name: str) -> Destination:
        """Return the destination of a JNDI name.

        Raises:
            NameNotFoundError: it is neither registered nor dynamic (`dynamicQueues/NAME`, `dynamicTopics/NAME`).
        """
        if name in self._destinations:
            return self._destinations[name]
        for prefix, make in DYNAMIC.items():
            if name.startswith(prefix) and len(name) > len(prefix):
                return make(name.removeprefix(prefix))
        known = ", ".join(sorted(self._destinations)) or "none"
        raise NameNotFoundError(
            f"no destination is registered under the JNDI name {name!r}; registered: {known}; "
            f"or use {' or '.join(prefix + 'NAME' for prefix in DYNAMIC)}"
        )
