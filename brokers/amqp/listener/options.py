"""The options of a listener, with its limits, and the destinations that its clients may use.

This module parses the addresses of the embedded broker's destinations, for direct links and the anonymous terminus
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
from brokers.amqp.machine import MEBIBYTE
from brokers.amqp.outcomes import INVALID, LIMIT, NOT_ALLOWED, NOT_FOUND, PRECONDITION, UNAUTHORIZED
from brokers.amqp.url import WebSocketBinding
from brokers.arguments import at_least_one, finite, instance, is_coroutine, items, plain_answer
from brokers.embedded import Broker
from brokers.errors import BrokerError, DestinationGoneError, StaleDestinationError, UsageError
from brokers.message import MAX_ADDRESS_CHARACTERS, MAX_MESSAGE_OCTETS, Destination, DestinationKind

Check: TypeAlias = Callable[[str, str], bool]
"""Returns whether a password is that of a user."""


class Action(StrEnum):
    """What a client does with a destination."""

    SEND = "send"
    RECEIVE = "receive"


May: TypeAlias = Callable[[str | None, Action, Destination], bool]
"""Returns whether a user (None for anonymous) may use a destination for an action."""


COUNTS: Final = (
    "max_connections",
    "max_logins",
    "max_strangers",
    "max_links",
    "max_client_destinations",
    "max_message",
    "max_unfinished",
    "max_transactions",
)
"""The options that are whole numbers."""


CLASSES: Final = (
    ("anonymous", bool | None, "True, False or None"),
    ("assume_rejected", bool, "True or False"),
    ("tls", ssl.SSLContext | None, "an ssl.SSLContext or None"),
    ("binding", WebSocketBinding | None, "a WebSocketBinding or None"),
)
"""The options that have a class of their own."""


def check_users(users: object) -> None:
    """Check passwords by user.

    Raises:
        UsageError: they are something else; the text has no password.
    """
    if not isinstance(users, Mapping):
        raise UsageError(f"users must be passwords by user, a function or None, got a {type(users).__name__}")
    for user, password in users.items():
        if not (isinstance(user, str) and isinstance(password, str)):
            raise UsageError(f"users must be texts with texts as passwords, got others for the user {user!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a listener.

    Attributes:
        users: passwords by user, or a function that checks them; None to require no login. Not shown in the repr.
        anonymous: whether to admit clients without a user; by default only if there are no `users`. It must be set for
            an address that other machines can reach, if there are no users.
        may: decides who may use which destination, `Rights` or a function; by default everything is permitted.
        destinations: the existing queues and topics; None to create them when they are used.
        assume_rejected: whether clients that list no outcomes are assumed to understand `rejected`, as most do.
        tls: SSL context with the listener's certificate; None for plain text.
        binding: edition of the WebSocket binding to listen with; None for TCP.
        paths: permitted request targets over WebSocket; None for any.
        origins: permitted origins of web pages whose scripts connect; None for any. Programs are admitted: they send no
            origin, or the requested host, if that is one of `hosts` or cannot belong to anyone else.
        hosts: names by which clients know the listener; the one at which it listens is always included.
        idle: seconds after which a silent client is disconnected; 0 for never.
        patience: seconds that a login may take.
        max_connections: maximum number of clients. Beyond it, a new client ends the oldest one that has not opened AMQP
            yet, from the address with most of them.
        max_logins: maximum number of clients that have opened AMQP, for one user, or for one address without a user; by
            default half of `max_connections`.
        max_strangers: maximum number of clients from one address (for IPv6, a network of 64 bits) that have not opened
            AMQP yet. Beyond it, a new client ends the oldest of them that has had a second to do so.
        max_links: maximum number of links of one client; also of those that were refused, or stolen by another session,
            whose end it has not confirmed: one more of these ends its connection.
        max_client_destinations: maximum number of existing queues, topics, dynamic nodes and durable subscriptions that
            one client has created; the broker has a limit for all clients together.
        max_message: maximum size of a message, in octets.
        max_unfinished: maximum size of a client's partly received messages, in octets, on all its links; at least the
            size of one message.
        transaction_idle: seconds after which an unused transaction is rolled back.
        max_transactions: maximum size of the messages in a client's open transactions, in octets, with 512 more for
            each.

    Raises:
        UsageError: an option has a value of another type or range.
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

    def __post_init__(self) -> None:
        """Check the options; lists of names are taken as sets."""
        for name in COUNTS:
            value = getattr(self, name)
            if not (name == "max_logins" and value is None):
                at_least_one(value, name)
        for name in ("idle", "patience", "transaction_idle"):
            if name != "idle" or self.idle != 0:
                finite(getattr(self, name), name)
        for name, kind in (("destinations", Destination), ("paths", str), ("origins", str), ("hosts", str)):
            value = getattr(self, name)
            if value is not None or name == "hosts":
                what = f"a set of {'destinations' if kind is Destination else 'strings'}"
                object.__setattr__(self, name, frozenset(items(value, name, what, kind)))
        for name, wanted, what in CLASSES:
            instance(getattr(self, name), name, wanted, what)
        for name in ("users", "may"):
            if is_coroutine(getattr(self, name)):  # what it returns would count as true
                raise UsageError(f"{name} must be a plain function, not async def, got {getattr(self, name)!r}")
        if self.may is not None and not callable(self.may):
            raise UsageError(f"may must be Rights, a function or None, got {self.may!r}")
        if not (self.users is None or callable(self.users)):
            check_users(self.users)

    @property
    def lets_in_anybody(self) -> bool:
        """Whether a client without a user is admitted."""
        return self.users is None if self.anonymous is None else self.anonymous

    @property
    def is_unguarded(self) -> bool:
        """Whether all clients are admitted although no option says so."""
        has_certificates = self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED
        return self.users is None and self.anonymous is None and not has_certificates

    def knows(self, user: str, password: str) -> bool:
        """Return whether a password is correct; takes the same time for an unknown user."""
        if self.users is None:
            return False
        if callable(self.users):
            return plain_answer(self.users(user, password), "users")
        known = self.users.get(user)
        is_same = hmac.compare_digest((known or "").encode(), password.encode())
        return is_same and known is not None


MAX_NAME_CHARACTERS: Final = 1024
"""Maximum number of characters of an address."""

PREFIXES: Final = {"queue://": DestinationKind.QUEUE, "topic://": DestinationKind.TOPIC}
"""Prefixes of addresses that contain their kind, like ActiveMQ's."""

KINDS: Final = {capability: kind for kind, capability in CAPABILITIES.items()}

ERRORS: Final = ((DestinationGoneError, NOT_FOUND), (StaleDestinationError, NOT_ALLOWED), (BrokerError, LIMIT))
"""The AMQP conditions for the broker's errors; the first match counts."""


class RefusalError(Exception):
    """A request was refused, with AMQP's condition."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition

    def told(self, tag: bytes | None = None) -> Condition:
        """Return the error for the wire, with the tag of the delivery that caused it. Spec: 2.2.2 (AT-14)."""
        return Condition(self.condition, str(self), None if tag is None else {symbol("delivery-tag"): tag})


def refusal_of(error: BrokerError) -> RefusalError:
    """Return an error of the broker as a refusal with AMQP's condition."""
    condition = next(each for kind, each in ERRORS if isinstance(error, kind))
    return RefusalError(condition, str(error))


def kind_of(capabilities: Iterable[str]) -> DestinationKind | None:
    """Return the kind of destination that capabilities name, or None."""
    return next((KINDS[each] for each in capabilities if each in KINDS), None)


def with_kind(named: Destination) -> Destination:
    """Return a destination by the kind that its name begins with, such as `topic://news`, if it has such a prefix."""
    name = named.name or ""
    for prefix, kind in PREFIXES.items():
        if name.startswith(prefix):
            return Destination(kind, name.removeprefix(prefix))
    return named


class AmqpNodes:
    """The destinations of a broker that clients of a listener may use."""

    def __init__(self, broker: Broker, options: Options) -> None:
        self._broker = broker
        self._options = options

    def resolve(
        self, address: str | None, kind: DestinationKind | None, user: str | None, action: Action
    ) -> Destination:
        """Return the destination at an address.

        Args:
            address: address of a link, or `to` of a message.
            kind: kind from the link or message, which the address itself overrides; None for a queue.
            user: the user; None for anonymous.
            action: the intended action.

        Raises:
            RefusalError: the destination does not exist, or the user has no right to it.
        """
        if not address:
            raise RefusalError(PRECONDITION, "it is not said where to: `to` of the message is missing")
        if len(address) > MAX_NAME_CHARACTERS:
            raise RefusalError(INVALID, f"an address has at most {MAX_NAME_CHARACTERS} characters")
        destination = self._read(address, kind)
        self.check(destination, user, action)
        return destination

    def check(self, destination: Destination, user: str | None, action: Action) -> None:
        """Check that a destination exists, and that a user may use it for an action.

        Raises:
            RefusalError: the destination does not exist, or the user has no right to it.
        """
        if self._options.may is not None and not plain_answer(self._options.may(user, action, destination), "may"):
            raise RefusalError(UNAUTHORIZED, f"{user or 'an anonymous client'} may not {action} at {destination}")
        if not self._is_there(destination):
            raise RefusalError(NOT_FOUND, f"there is no {destination}")

    @staticmethod
    def address_of(destination: Destination) -> str:
        """Return the address of a destination; without a name only its prefix, which is no valid address."""
        if (destination.name or "").startswith(tuple(PREFIXES)):  # the name is an address with a kind of its own
            return str(destination.name)
        return spell(destination, EMBEDDED) if destination.name else EMBEDDED.prefixes.get(destination.kind, "")

    @staticmethod
    def _read(address: str, kind: DestinationKind | None) -> Destination:
        found = with_kind(read_address(address, kind, EMBEDDED))
        if not found.name:
            raise RefusalError(INVALID, f"the address {address!r} names nothing")
        if len(address) > MAX_ADDRESS_CHARACTERS:
            raise RefusalError(INVALID, f"an address has at most {MAX_ADDRESS_CHARACTERS} characters here")
        if kind is not None and kind.is_temporary and found.name == address:
            raise RefusalError(NOT_FOUND, f"there is no {kind} {address}")
        return Destination(found.kind, found.name)

    def _is_there(self, destination: Destination) -> bool:
        if destination.kind.is_temporary:
            return self._broker.has(destination)
        return self._options.destinations is None or destination in self._options.destinations
