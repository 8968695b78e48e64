"""What the engine wants done with sockets: values, which a driver carries out in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from brokers.smqp.server.accounts import Password


@dataclass(frozen=True, slots=True)
class Write:
    """Send octets on the command connection."""

    session: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """Send what is to be sent, then close the command connection."""

    session: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Take octets from the command connection again; see `Engine.is_busy`."""

    session: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a notify connection; `attempt` tells it from those before."""

    session: int
    attempt: int
    host: str
    port: int
    is_secure: bool


@dataclass(frozen=True, slots=True)
class NotifyWrite:
    """Send octets on a notify connection."""

    session: int
    attempt: int
    data: bytes


@dataclass(frozen=True, slots=True)
class NotifyClose:
    """Close a notify connection, or give up opening it."""

    session: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Check:
    """Compare a password with a stored one, away from the engine's thread; None stands for no account.

    Those of one `address` take turns, and are not compared where too many were wrong.
    """

    session: int
    text: str
    stored: Password | None
    address: str
    account: str


@dataclass(frozen=True, slots=True)
class Hash:
    """Hash a new password, away from the engine's thread."""

    session: int
    text: str


Action: TypeAlias = Write | Close | Resume | Connect | NotifyWrite | NotifyClose | Check | Hash
