"""What a listener takes, from whom, and how much of it."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from brokers.amqp.login import Binding
from brokers.message import MAX_MESSAGE_OCTETS, Destination

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
    binding: Binding | None = None
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
