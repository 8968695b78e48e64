"""Addresses of the embedded broker's destinations, who may use them, and what is said where that is not so.

A direct link and the anonymous terminus ask here alike, so that both refuse with the same error.

Spec: anonymous terminus 2.2.2 (AT-07, AT-09, AT-13).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from proton import Condition, symbol

from brokers.amqp.dialect import CAPABILITIES, EMBEDDED, read_address, spell
from brokers.amqp.outcomes import LIMIT, NOT_ALLOWED
from brokers.amqp.provider.options import Action, Options
from brokers.embedded import Broker
from brokers.errors import BrokerError, DestinationGoneError, StaleDestinationError
from brokers.message import Destination, DestinationKind

NOT_FOUND: Final = "amqp:not-found"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
PRECONDITION: Final = "amqp:precondition-failed"
INVALID: Final = "amqp:invalid-field"
DECODE: Final = "amqp:decode-error"
INTERNAL: Final = "amqp:internal-error"

MAX_NAME: Final = 1024
"""Characters of an address."""

PREFIXES: Final = {"queue://": DestinationKind.QUEUE, "topic://": DestinationKind.TOPIC}
"""How an address may say its kind itself, as ActiveMQ's do."""

KINDS: Final = {capability: kind for kind, capability in CAPABILITIES.items()}

ERRORS: Final = ((DestinationGoneError, NOT_FOUND), (StaleDestinationError, NOT_ALLOWED), (BrokerError, LIMIT))
"""What errors of the broker are in AMQP; the first that fits."""


class RefusalError(Exception):
    """Something is refused; AMQP's condition says what."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition

    def told(self, tag: bytes | None = None) -> Condition:
        """Make the error for the wire, with the tag of the delivery that it is about. Spec: 2.2.2 (AT-14)."""
        return Condition(self.condition, str(self), None if tag is None else {symbol("delivery-tag"): tag})


def refusal_of(error: BrokerError) -> RefusalError:
    """Say in AMQP's words what the broker says."""
    condition = next(each for kind, each in ERRORS if isinstance(error, kind))
    return RefusalError(condition, str(error))


def kind_of(capabilities: Iterable[str]) -> DestinationKind | None:
    """Return the kind of destination that capabilities name, None for none."""
    return next((KINDS[each] for each in capabilities if each in KINDS), None)


class Nodes:
    """The destinations of a broker, as clients of a listener may use them."""

    def __init__(self, broker: Broker, options: Options) -> None:
        self._broker = broker
        self._options = options

    def resolve(
        self, address: str | None, kind: DestinationKind | None, user: str | None, action: Action
    ) -> Destination:
        """Return the destination at an address.

        Args:
            address: of a link, or `to` of a message.
            kind: what link or message say of it; the address itself wins. None for a queue.
            user: who asks.
            action: what for.

        Raises:
            RefusalError: there is none, or not for this user.
        """
        if not address:
            raise RefusalError(PRECONDITION, "it is not said where to: `to` of the message is missing")
        if len(address) > MAX_NAME:
            raise RefusalError(INVALID, f"an address has at most {MAX_NAME} characters")
        destination = self._read(address, kind)
        self.check(destination, user, action)
        return destination

    def check(self, destination: Destination, user: str | None, action: Action) -> None:
        """See that there is a destination, and that a user may do something with it.

        Raises:
            RefusalError: there is none, or not for this user.
        """
        if self._options.may is not None and not self._options.may(user, action, destination):
            raise RefusalError(UNAUTHORIZED, f"{user or 'an anonymous client'} may not {action} at {destination}")
        if not self._is_there(destination):
            raise RefusalError(NOT_FOUND, f"there is no {destination}")

    @staticmethod
    def address_of(destination: Destination) -> str:
        """Return the address of a destination; of one without a name its prefix, which no destination has."""
        return spell(destination, EMBEDDED) if destination.name else EMBEDDED.prefixes.get(destination.kind, "")

    @staticmethod
    def _read(address: str, kind: DestinationKind | None) -> Destination:
        prefix = next((each for each in PREFIXES if address.startswith(each)), None)
        if prefix is None:
            found = read_address(address, kind, EMBEDDED)
        else:
            found = Destination(PREFIXES[prefix], address.removeprefix(prefix))
        if not found.name:
            raise RefusalError(INVALID, f"the address {address!r} names nothing")
        if kind is not None and kind.is_temporary and found.name == address:
            raise RefusalError(NOT_FOUND, f"there is no {kind} {address}")
        return Destination(found.kind, found.name)

    def _is_there(self, destination: Destination) -> bool:
        if destination.kind.is_temporary:
            return self._broker.has(destination)
        return self._options.destinations is None or destination in self._options.destinations
