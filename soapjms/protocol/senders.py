"""What is known about the senders of captured messages: for each address, the settings of its senders.

A sender has a URI or the port of a WSDL, and the properties that its program sets. The destination of a captured
message shows whether it is from such a sender.

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
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Description, Port
from soapjms.protocol.wsdl.model import read_uri

Place: TypeAlias = tuple[str, str]
"""A lookup variant, and the name of a destination in that variant."""

VARIANTS: Final[Mapping[DestinationKind, str]] = {DestinationKind.QUEUE: "queue", DestinationKind.TOPIC: "topic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderProfiles:
    """The known settings of the senders to one address.

    Attributes:
        address: the URI without its parameters and without secrets, for people.
        target_service: the service at that address; None if the URI does not name one.
        source: the source of the settings: `URI`, or `SERVICE/PORT`.
        properties: the effective binding properties.
    """

    address: str
    target_service: str | None
    source: str
    properties: Effective

    def differs_from(self, other: SenderProfiles) -> list[str]:
        """List the properties whose values, or the origins of their values, differ from those of another sender."""
        mine, others = self.properties, other.properties
        every = dict.fromkeys([*mine, *others, *mine.overridden, *others.overridden])
        return [name for name in every if _said(mine, name) != _said(others, name)]


def _said(properties: Effective, name: str) -> tuple[object, object]:
    return properties.get(name), properties.overridden.get(name)


@dataclass(frozen=True, slots=True)
class Senders:
    """All senders with known settings, in the order given."""

    all: tuple[SenderProfiles, ...] = ()
    _at: Mapping[Place, list[int]] = field(default_factory=dict)

    def find(self, message: Reading | None) -> int | None:
        """Return the index in `all` of the sender of a request or one-way message; None if it is unknown.

        The sender is found by the address in the requestURI, else by JMSDestination, if that is a queue or topic; and
        among senders to one address by targetService. A message without targetService may come from a sender that
        omitted it by mistake, if only one sender has the address.
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
    """Work out the settings of senders.

    Args:
        given: URIs, ports, and WSDLs, which stand for all their SOAP/JMS ports.
        environment: properties that the programs of all senders set; they take precedence.

    Raises:
        InvalidUriError, InvalidPropertyError: a URI or property is not valid.
        InvalidWsdlError: a port cannot be used.
        UsageError: a WSDL has no SOAP/JMS port, one address has different properties, or there is an environment but
            no sender.
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
                f"{', '.join(differing)}; a message does not show which of them its sender used: give only one of them"
            )
    if environment and not found:
        raise UsageError("a URI or WSDL of the senders must be given along with the properties that their programs set")
    return Senders(tuple(found), at)


def editions_of(given: Iterable[str | JmsUri | Port | Description]) -> list[Profile]:
    """Return the editions that WSDLs follow, by the namespace of their transport; a URI does not show its edition.

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
        address=uri.redacted_base,
        target_service=str(target) if target else None,
        source=f"{given.service.name}/{given.name}" if isinstance(given, Port) else "URI",
        properties=properties,
    )
