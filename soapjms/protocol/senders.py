"""What is known of the senders of captured messages: for each address, what its senders were given.

A sender is given a URI or the port of a WSDL, and what its program sets. Whether a captured message is by such a sender
shows in where it went.

Spec: SOAP/JMS 2.2.3 targetService, requestURI; 3.4.4, 3.4.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from brokers.message import DestinationKind
from soapjms.protocol import names
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import Profile
from soapjms.protocol.properties import Effective
from soapjms.protocol.received_message import Reading
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.uri.redact import without_user_info
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Description, Port
from soapjms.protocol.wsdl.model import read_uri

Place: TypeAlias = tuple[str, str]
"""A lookup variant and the name of a destination in it."""

VARIANTS: Final[Mapping[DestinationKind, str]] = {DestinationKind.QUEUE: "queue", DestinationKind.TOPIC: "topic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderProfiles:
    """What the senders to one address are known to have been given.

    Attributes:
        address: the URI without its parameters, for people; without a secret.
        target_service: the service behind that address, None if the URI names none.
        source: where this is known from: `URI`, or `SERVICE/PORT`.
        properties: their effective binding properties.
    """

    address: str
    target_service: str | None
    source: str
    properties: Effective

    def differs_from(self, other: SenderProfiles) -> list[str]:
        """Name the properties that have other values, or values from elsewhere, than those of another sender."""
        mine, others = self.properties, other.properties
        every = dict.fromkeys([*mine, *others, *mine.overridden, *others.overridden])
        return [name for name in every if _said(mine, name) != _said(others, name)]


def _said(properties: Effective, name: str) -> tuple[object, object]:
    return properties.get(name), properties.overridden.get(name)


@dataclass(frozen=True, slots=True)
class Senders:
    """All senders that something is known of, in the order given."""

    all: tuple[SenderProfiles, ...] = ()
    _at: Mapping[Place, list[int]] = field(default_factory=dict)

    def find(self, message: Reading | None) -> int | None:
        """Return the place in `all` of the sender of a request or one-way message, None if nothing is known of it.

        By the address in its requestURI, else by its JMSDestination, if that is a queue or topic. Among those with one
        address by targetService. A message without one may be by a sender that forgot it, where there is one only.
        """
        if message is None or not self.all:
            return None
        places = next((self._at[place] for place in _places(message) if place in self._at), [])
        seen = message.text(names.TARGET_SERVICE)
        for number in places:
            if self.all[number].target_service == seen:
                return number
        return places[0] if seen is None and len(places) == 1 else None


def _places(message: Reading) -> Iterator[Place]:
    uri, destination = message.request_uri, message.message.destination
    if uri is not None:
        yield str(uri.variant), str(uri.destination)
    if destination is not None and destination.name is not None and destination.kind in VARIANTS:
        yield VARIANTS[destination.kind], destination.name


def senders_of(
    given: Iterable[str | JmsUri | Port | Description], environment: Mapping[str, Value] = MappingProxyType({})
) -> Senders:
    """Work out what senders were given.

    Args:
        given: URIs, ports, and WSDLs, which stand for all their SOAP/JMS ports.
        environment: what the programs of all of them set; it wins over the rest.

    Raises:
        InvalidUriError, InvalidPropertyError: a URI or property is not as the specification has it.
        InvalidWsdlError: a port cannot be used.
        UsageError: a WSDL without a SOAP/JMS port; one address with different properties; an environment for nobody.
    """
    at: dict[Place, list[int]] = {}
    found: list[SenderProfiles] = []
    for each in (single for some in given for single in _singles(some)):
        uri, properties = read_uri(each, environment)
        sender = _sender(each, uri, properties)
        numbers = at.setdefault((str(uri.variant), str(uri.destination)), [])
        same = [found[number] for number in numbers if found[number].target_service == sender.target_service]
        if not same:
            numbers.append(len(found))
            found.append(sender)
        elif differing := sender.differs_from(same[0]):
            raise UsageError(
                f"{sender.address} is given twice, by {same[0].source} and by {sender.source}, with different "
                f"{', '.join(differing)}; a message does not show which of them its sender had: give one of them"
            )
    if environment and not found:
        raise UsageError("what the senders' programs set is given, and no URI or WSDL says which senders they are")
    return Senders(tuple(found), at)


def editions_of(given: Iterable[str | JmsUri | Port | Description]) -> list[Profile]:
    """Return the editions that WSDLs follow, by the namespace of their transport; a URI shows none.

    Spec: SOAP/JMS 3.4.2.
    """
    ports = (each for some in given for each in _singles(some) if isinstance(each, Port))
    return list(dict.fromkeys(each.profile for each in ports if each.profile is not None))


def _singles(given: str | JmsUri | Port | Description) -> list[str | JmsUri | Port]:
    if not isinstance(given, Description):
        return [given]
    return [each for each in given.ports if each.profile is not None] or [given.port()]


def _sender(given: str | JmsUri | Port, uri: JmsUri, properties: Effective) -> SenderProfiles:
    target = properties.stated("targetService")
    return SenderProfiles(
        address=without_user_info(uri.base),
        target_service=None if target is None else str(target),
        source=f"{given.service.name}/{given.name}" if isinstance(given, Port) else "URI",
        properties=properties,
    )
