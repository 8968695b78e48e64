"""Checks of callers' arguments before anything happens; each error says what would be accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from brokers.arguments import is_number
from brokers.connection import Connection
from brokers.message import Destination, DestinationKind, MessageType
from brokers.redaction import shown
from soapjms.protocol.errors import UsageError, is_name
from soapjms.protocol.names import AUTO, PROFILES, Profile
from soapjms.protocol.text import with_article
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port

T = TypeVar("T")


def connection_to(connection: Connection) -> Connection:
    """Return the connection.

    Raises:
        UsageError: it is not a Connection; the error does not repeat it, as a URL may hold a password.
    """
    if not isinstance(connection, Connection):
        raise UsageError(f"connection must be what soapjms.connect(URL) returns, got {with_article(type(connection))}")
    return connection


OPTIONS: Final[Mapping[str, str]] = {
    "mask": 'a soapjms.capture.Mask, such as soapjms.capture.Mask(elements=["CardNumber"]), or None',
    "recorder": 'a soapjms.Recorder, such as soapjms.Recorder("calls.jsonl"), or None',
    "names": 'a soapjms.Names, such as soapjms.Names.from_file("jndi.properties"), or None',
    "limits": "a soapjms.Limits, such as soapjms.Limits(depth=100)",
    "properties": 'a mapping of binding properties by name, such as {"priority": 4}',
}
"""What is accepted for the options that all nodes, and all that write captures, share."""


def option(value: T, name: str, kind: type[Any]) -> T:
    """Return the value of one of `OPTIONS`.

    Raises:
        UsageError: it is not of the given class, nor None where that is accepted; the error does not repeat it, as it
            may hold a password.
    """
    accepted = OPTIONS[name]
    if isinstance(value, kind) or (value is None and accepted.endswith("or None")):
        return value
    raise UsageError(f"{name} must be {accepted}, got {with_article(type(value))}")


def durable_on(connection: Connection, destination: Destination, name: str | None) -> str | None:
    """Return the name of a durable subscription, or None.

    Raises:
        UsageError: the name is no string or empty, the destination is not a topic, or there are none on this
            connection.
    """
    if name is None:
        return None
    if not isinstance(name, str) or not name:
        raise UsageError(f"durable must be the name of a durable subscription, or None, got {name!r}")
    if destination.kind is not DestinationKind.TOPIC:
        raise UsageError(f"durable must be None, got {name!r}: only a topic has them; requests come to {destination}")
    if not connection.capabilities.durable_topics:
        raise UsageError(
            f"durable must be None, got {name!r}: {connection.capabilities.broker} has no durable subscriptions on "
            "this connection (capability `durable_topics`); those of ActiveMQ, Artemis and Qpid need a client id: "
            "connect with clientId=NAME in the URL"
        )
    return name


def file_path(path: str | PathLike[str], name: str = "path") -> Path:
    """Return the path of a file, which need not exist.

    Raises:
        UsageError: it is no path, or is empty or otherwise without the name of a file, such as `.` or `/`.
    """
    if not isinstance(path, str | PathLike) or not Path(path).name:
        raise UsageError(f"{name} must be the path of a file, got {path!r}")
    return Path(path)


def host_and_port(address: str) -> tuple[str, int]:
    """Return where to listen: an interface (empty for all), and a port (0 for any free one).

    Raises:
        UsageError: the address is not HOST:PORT, or `[HOST]:PORT` for IPv6.
    """
    host, colon, port = str(address).rpartition(":")
    if not colon or set("/?#@") & set(host) or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"an address must be HOST:PORT, such as 127.0.0.1:8080, got {shown(str(address))}")
    return host.strip("[]"), int(port)


def positive(seconds: float, name: str) -> float:
    """Return a time that is positive; it may be infinite.

    Raises:
        UsageError: it is not a positive number of seconds.
    """
    if not is_number(seconds) or not seconds > 0:
        raise UsageError(f"{name} must be a positive number of seconds, got {seconds!r}")
    return seconds


def string_or_none(value: str | None, name: str) -> str | None:
    """Return a string that may be left out.

    Raises:
        UsageError: it is neither a string nor None.
    """
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name} must be a string, or None, got {value!r}")
    return value


PayloadTypeName: TypeAlias = Literal["bytes", "text"]


def payload_type(kind: MessageType | PayloadTypeName) -> MessageType:
    """Return the message type of requests, which may be given by name.

    Raises:
        UsageError: it is neither BYTES nor TEXT (Protocol-2034).
    """
    if kind not in (MessageType.BYTES, MessageType.TEXT):
        raise UsageError(f"message_type must be 'bytes' or 'text', got {kind!r}")
    return MessageType(kind)


def edition(profile: Profile | str, place: str | JmsUri | Port) -> Profile:
    """Return the profile, which may be given by name; "auto" is the edition that a WSDL's port follows.

    Raises:
        UsageError: there is no profile of that name, or "auto" is given for a URI, which shows no edition.

    Spec: SOAP/JMS 3.4.2.
    """
    if isinstance(profile, Profile):
        return profile
    if profile == AUTO and isinstance(place, Port) and place.profile is not None:
        return place.profile
    if profile == AUTO:
        raise UsageError(
            f"profile must be one of {KNOWN_PROFILES}, got {profile!r}, which only the port of a WSDL can resolve"
        )
    if profile not in PROFILES:
        raise UsageError(f"profile must be a Profile, {AUTO!r} or one of {KNOWN_PROFILES}, got {profile!r}")
    return PROFILES[profile]


KNOWN_PROFILES: Final = ", ".join(PROFILES)


def block_names(names: Iterable[str], name: str) -> frozenset[str]:
    """Check names of header blocks, in Clark notation; `{namespace}*` is any block of a namespace.

    Raises:
        UsageError: one has another form, such as `wsa:To`, and so would be the name of no block.
    """
    found = frozenset(names)
    for each in sorted(found):
        if not is_name(f"{each[:-1]}any" if each.endswith("}*") else each):
            raise UsageError(
                f"{name} must be names of header blocks such as '{{http://www.w3.org/2005/08/addressing}}To', or with *"
                f" for any block of a namespace, got {each!r}"
            )
    return found
