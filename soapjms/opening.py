"""Opening a connection by what a `jms:` URI says of it: connection factory, context factory, provider URL.

These are for URIs of the caller's own configuration, never for one out of a message. They choose among the brokers that
`Names` allows; they bring no login, no host and no option of their own.

Spec: RFC 6167 4.2.1, 4.2.2.1, 4.3.2, 8.2.2; SOAP/JMS 2.2.1; Protocol-2060.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from brokers.connecting import connect
from brokers.connection import DEFAULT_TIMEOUT, Connection
from brokers.naming import INITIAL, PROVIDER_URL, SECRET, Names
from soapjms.addressing import jndi_entries
from soapjms.protocol.errors import UsageError
from soapjms.protocol.properties import Effective, Origin
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.addresses import read_uri

ENTRIES: Final[Mapping[str, str]] = {"jndiInitialContextFactory": INITIAL, "jndiURL": PROVIDER_URL}
"""Properties that are an entry of the JNDI environment under another name; `resolve` leaves one name of the two."""


def connect_uri(
    uri: str | JmsUri | Port,
    names: Names,
    *,
    properties: Mapping[str, Value] = MappingProxyType({}),
    timeout: float = DEFAULT_TIMEOUT,
    **options: Any,
) -> Connection:
    """Connect to the broker that a URI or a WSDL's port leads to.

    It does so by its jndiConnectionFactoryName, jndiURL and `jndi-` parameters. Without any of them the connection
    factory is called `ConnectionFactory`. The variants queue and topic may have these parameters too.

    Args:
        uri: of the caller's own configuration, or the port of a WSDL.
        names: what the names mean, and the brokers that may be reached.
        properties: binding properties that win over those of the URI.
        timeout: seconds that connecting may take.
        options: the adapter's own; see `brokers.connect`.

    Raises:
        InvalidUriError, InvalidPropertyError: the URI or a property is not as the specification has it.
        InvalidWsdlError: the port cannot be used.
        UsageError: the URI carries what looks like a secret.
        NameNotFoundError: no such connection factory.
        NamingError: the broker is not allowed, or the URI names a class or URL that would reach out.
        ConnectionFailedError: nobody answers there, or the credentials were refused.
    """
    _, effective = read_uri(uri, properties)
    return connect(broker_url_of(effective, names), timeout=timeout, **options)


def broker_url_of(properties: Effective, names: Names) -> str:
    """Find the URL for `brokers.connect` of the broker that effective properties lead to; it may hold a login.

    Raises:
        UsageError: a JNDI entry out of a URI or WSDL looks like a secret.
        NameNotFoundError, NamingError: as `connect_uri` has it.
    """
    for name, found in properties.items():
        if name.startswith("jndi-") and SECRET.search(name) and found.origin is not Origin.ENVIRONMENT:
            raise UsageError(
                f"{name} in {found.origin} looks like a secret, which must not be there (RFC 6167 4.4); "
                "the login of a broker is in the URL of the allowed broker"
            )
    stated = {name: str(found.value) for name, found in properties.items()}
    environment = jndi_entries(stated) | {entry: stated[name] for name, entry in ENTRIES.items() if name in stated}
    return names.broker_url(stated.get("jndiConnectionFactoryName"), environment=environment)
