"""What callers give, checked before anything happens: a refusal says what would be accepted."""

from __future__ import annotations

from threading import TIMEOUT_MAX
from typing import Final

from brokers.connection import Connection
from brokers.message import Destination, DestinationKind, MessageType
from brokers.redaction import shown
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import AUTO, PROFILES, Profile
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port


def connection_to(connection: Connection) -> Connection:
    """Return the connection.

    Raises:
        UsageError: it is something else, such as a URL, which is not repeated: it may hold a password.
    """
    if not isinstance(connection, Connection):
        raise UsageError(f"connection is of type {type(connection).__name__}; it is what soapjms.connect(URL) returns")
    return connection


def durable_on(connection: Connection, destination: Destination, name: str | None) -> str | None:
    """Return the name of a durable subscription; None for none.

    Raises:
        UsageError: it is no name, the destination is no topic, or the connection has no client id.
    """
    if name is None:
        return None
    if not isinstance(name, str) or not name:
        raise UsageError(f"durable is {name!r}; it is the name of a durable subscription, or None for none")
    if destination.kind is not DestinationKind.TOPIC:
        raise UsageError(
            f"durable is {name!r}; only a topic has durable subscriptions, and requests come to {destination}"
        )
    if not connection.capabilities.durable_topics:
        raise UsageError(
            f"durable is {name!r}; durable subscriptions belong to a client id, and the connection has none: connect "
            "with clientId=NAME in the URL, where the broker has them (capability `durable_topics`)"
        )
    return name


def host_and_port(address: str) -> tuple[str, int]:
    """Return where to listen: an interface, empty for all, and a port, 0 for any that is free.

    Raises:
        UsageError: it is not HOST:PORT, of IPv6 `[HOST]:PORT`.
    """
    host, colon, port = address.rpartition(":")
    if not colon or set("/?#@") & set(host) or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{shown(address)} is not HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def finite(seconds: float, name: str = "timeout") -> float:
    """Return a time that is positive and finite.

    Raises:
        UsageError: it is no positive, finite number of seconds, or more than the machine can wait (centuries).
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= TIMEOUT_MAX:
        raise UsageError(f"{name} must be a positive, finite number of seconds, got {seconds!r}")
    return seconds


def payload_type(kind: MessageType) -> MessageType:
    """Return the message type of requests, which may be given by its name.

    Raises:
        UsageError: it is neither BYTES nor TEXT (Protocol-2034).
    """
    if kind not in (MessageType.BYTES, MessageType.TEXT):
        raise UsageError(f"message_type is {kind!r}; a request is MessageType.BYTES or MessageType.TEXT")
    return MessageType(kind)


def edition(profile: Profile | str, place: str | JmsUri | Port) -> Profile:
    """Return the profile, which may be given by its name; "auto" is the edition that a WSDL's port follows.

    Raises:
        UsageError: there is none of that name, or it is something else; "auto" for a URI, which shows no edition.

    Spec: SOAP/JMS 3.4.2.
    """
    if isinstance(profile, Profile):
        return profile
    if profile == AUTO and isinstance(place, Port) and place.profile is not None:
        return place.profile
    if profile == AUTO:
        raise UsageError(
            f"profile is {profile!r}, and only the port of a WSDL shows it; accepted are: {KNOWN_PROFILES}"
        )
    if profile not in PROFILES:
        raise UsageError(f"profile is {profile!r}; it is a Profile or its name, or {AUTO!r}: {KNOWN_PROFILES}")
    return PROFILES[profile]


KNOWN_PROFILES: Final = ", ".join(PROFILES)


def at_least_one(name: str, value: int) -> int:
    """Return a number of things of which there has to be one.

    Raises:
        UsageError: it is no integer of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} is {value!r}; it is an integer, at least 1")
    return value
