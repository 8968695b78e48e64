"""What a listener takes, from whom and how much of it, and which destinations its clients may use.

Addresses of the embedded broker's destinations are read here. A direct link and the anonymous terminus ask here
alike, so that both refuse with the same error.

Spec: anonymous terminus 2.2.2 (AT-07, AT-09, AT-13).
"""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from proton import Condition, symbol

from brokers.amqp.dialect import CAPABILITIES, EMBEDDED, read_address, spell
from brokers.amqp.outcomes import LIMIT, NOT_ALLOWED
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker
from brokers.errors import BrokerError, DestinationGoneError, StaleDestinationError
from brokers.message import MAX_MESSAGE_OCTETS, Destination, DestinationKind

Check: TypeAlias = Callable[[str, str], bool]
"""Says whether a password is that of a user."""


class Action(StrEnum):
    """What a client may want of a destination."""

    SEND = "send"
    RECEIVE = "receive"


May: TypeAlias = Callable[[str | None, Action, Destination], bool]
"""Says whether a user, None for somebody anonymous, may do something with a destination."""

MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a listener treats its clients.

    Attributes:
        users: passwords by user, or what checks them; None to let everybody in without. Not shown.
        anonymous: let clients in that give no user; unless said, where there are no `users`. At an address that other
            machines reach it has to be said then.
        may: says who may use which destination, `Rights` or a function; everybody everything unless given.
        destinations: the queues and topics there are; None to make them when they are used.
        assume_rejected: take a client that lists no outcomes for one that understands `rejected`, as most do.
        tls: the listener's certificate; None for plain text.
        binding: listen for WebSocket, in this edition; None for TCP.
        paths: request targets over WebSocket; None for any.
        origins: where pages may come from whose scripts connect. Programs are let in: they send no origin, or as some
            do, the host that they ask for, if that is one of `hosts` or cannot be anybody else's. None for any.
        hosts: names that clients know the listener by; that at which it listens is one.
        idle: seconds after which a silent client is given up.
        patience: seconds that logging in may take.
        max_connections: clients at once. Where there are as many, one more ends the first of those who have not opened
            AMQP yet, of the address that has most of them.
        max_logins: of these, of one user, or without a user from one address, who have opened AMQP; half of
            `max_connections` unless given.
        max_strangers: of these, from one address (of IPv6: one network of 64 bits), who have not opened AMQP yet. One
            more ends the first of them that have had a second to do so.
        max_links: links of one client. It may as well have asked for so many that were refused, until it answers their
            end; one more ends its connection.
        max_client_destinations: queues, topics, dynamic nodes and durable subscriptions that there are because one
            client used them; the broker has a limit for all together.
        max_message: octets of a message.
        max_unfinished: octets of a client's messages that have arrived in part, on all its links; never less than one
            message may have.
        transaction_idle: seconds after which a transaction that nothing was done in is rolled back.
        max_transactions: octets of the messages in a client's open transactions, with 512 more for each.
    """

    users: Mapping[str, str] | Check | None = field(default=None, repr=False)
    anonymous: bool | None = None
    may: May | None = None
    destinations: frozenset[Destination] | None = None
    assume_rejected: bool = True
    tls: ssl.SSLContext | None = None
    binding: WebSocketBinding | None = None
    paths: frozenset[str] | None = None
    origins: frozenset[str] | None = frozenset()
    hosts: frozenset[str] = frozenset()
    idle: float = 60.0
    patience: float = 10.0
    max_connections: int = 1000
    max_logins: int | None = None
    max_strangers: int = 100
    max_links: int = 1000
    max_client_destinations: int = 10_000
    max_message: int = MAX_MESSAGE_OCTETS
    max_unfinished: int = 128 * MEBIBYTE
    transaction_idle: float = 300.0
    max_transactions: int = 128 * MEBIBYTE

    @property
    def lets_in_anybody(self) -> bool:
        """Whether a client without a user is let in."""
        return self.users is None if self.anonymous is None else self.anonymous

    @property
    def is_unguarded(self) -> bool:
        """Whether anybody is let in though nobody said so."""
        has_certificates = self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED
        return self.users is None and self.anonymous is None and not has_certificates

    def knows(self, user: str, password: str) -> bool:
        """Say whether that is the user's password; takes as long for a user that there is not."""
        if self.users is None:
            return False
        if callable(self.users):
            return self.users(user, password)
        known = self.users.get(user)
        is_same = hmac.compare_digest((known or "").encode(), password.encode())
        return is_same and known is not None


NOT_FOUND: Final = "amqp:not-found"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
PRECONDITION: Final = "amqp:precondition-failed"
INVALID: Final = "amqp:invalid-field"
DECODE: Final = "amqp:decode-error"
INTERNAL: Final = "amqp:internal-error"

MAX_NAME_CHARACTERS: Final = 1024
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


class AmqpNodes:
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
        if len(address) > MAX_NAME_CHARACTERS:
            raise RefusalError(INVALID, f"an address has at most {MAX_NAME_CHARACTERS} characters")
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
