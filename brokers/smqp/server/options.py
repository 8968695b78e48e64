"""The options of a server: its name, limits and times. Times are in seconds, sizes in octets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from brokers.arguments import finite, instance, is_number, items, not_negative, switch
from brokers.errors import UsageError
from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.dialogue import CLIENT_PORT
from brokers.smqp.protocol.messages import SmqpLimits

LEAST: Final[Mapping[str, int]] = {
    "default_priority": 0,
    "max_retries": 0,
    "client_port": 1,
    "max_failures": 1,
    "max_topics": 0,
    "max_children": 1,
    "max_octets": 1,
    "max_subscriptions": 1,
    "max_logins": 1,
    "max_sessions": 1,
    "max_strangers": 1,
    "max_in_answer": 1,
    "max_events": 1,
    "scrypt_cost": 2,
}
"""The options that are whole numbers, with the least of each."""

TIMES: Final = ("retry_timeout", "connect_timeout", "login_timeout")
TIMES_FROM_ZERO: Final = ("retry_pause", "trash_lifetime", "memory")
SWITCHES: Final = ("announces_timeout", "ignores_priority", "hide_accounts", "hide_ports")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The operator's options.

    Attributes:
        context: the server's own name, unique among linked servers: a domain, optionally with a slash and more
            (SM-230).
        software: the name of the software in its first line.
        dialect: the dialect to read and write.
        limits: the limits of lines and messages.
        default_timeout: how long messages stay if neither they nor their topic have a timeout; None for no limit
            (SM-213).
        announces_timeout: whether the reply to a login states `default_timeout` (SM-070).
        default_priority: the priority of messages without one; lower numbers are sent first.
        ignores_priority: whether messages are sent strictly first in, first out (SM-040).
        retry_timeout: how long to wait for an acknowledgement before sending again (SM-177).
        retry_pause: how long to wait after a client has refused a notification.
        max_retries: how often a message is sent again to one client before the server gives up.
        reconnect: shortest and longest time between attempts to connect to a client.
        connect_timeout: how long a client may take to accept its notify connection.
        client_port: the port of clients that do not state one.
        client_ports: the other ports that clients may state; by default those without system services.
        login_timeout: how long a client may take to log in.
        idle_timeout: how long a client that is logged in may send nothing; None for no limit.
        max_failures: number of wrong passwords that ends a connection, and number of consecutive notify ports, without
            a message taken there, after which a client may state no more.
        trash_lifetime: how long messages stay in Trash (SM-046).
        memory: how long origins of forwarded messages are remembered, so that none is delivered twice.
        max_topics: maximum number of topics, at any depth; login topics are created nevertheless.
        max_children: maximum number of topics directly below one; an account has at most half as many temporary ones.
        max_octets: maximum total size of a topic's messages, unless the topic has its own max_octets. Each counts 256
            octets besides its texts; messages in Trash do not count.
        max_subscriptions: maximum number of subscriptions of an account, with those that end with its sessions; each
            part that was excluded from a wildcard counts as one.
        max_logins: maximum number of concurrent sessions of an account.
        max_sessions: maximum number of connections. A further one ends the oldest that is not logged in, of the address
            with most of them.
        max_strangers: maximum number of connections from one address (with IPv6, a network of 64 bits) that are not
            logged in. A further one ends the oldest of those that have had a second to log in and do not wait for a
            reply. With SMQPS as many more may be setting up TLS, for ten seconds each.
        max_in_answer: maximum number of messages in the reply to a GET.
        max_events: maximum number of waiting notifications, other than messages, for a client; beyond it the oldest
            are dropped.
        media_types: the only media types that may be published; None for all.
        hide_accounts: whether LOGIN replies as if every account existed; False replies 404 for missing ones.
        hide_ports: whether SET NOTIFY PORT replies 200 even if nobody listens there; False replies 404 or 408 then.
        scrypt_cost: the cost of hashing a password.

    Raises:
        UsageError: an option has a value of another type or range; or the context is empty, or has blanks or controls.
    """

    context: str = "localhost"
    software: str = "soapjms"
    dialect: SmqpDialect = STRICT
    limits: SmqpLimits = field(default_factory=SmqpLimits)
    default_timeout: float | None = 86_400.0
    announces_timeout: bool = True
    default_priority: int = 10
    ignores_priority: bool = False
    retry_timeout: float = 30.0
    retry_pause: float = 1.0
    max_retries: int = 5
    reconnect: tuple[float, float] = (0.5, 60.0)
    connect_timeout: float = 10.0
    client_port: int = CLIENT_PORT
    client_ports: range = range(1024, 65536)
    login_timeout: float = 60.0
    idle_timeout: float | None = None
    max_failures: int = 3
    trash_lifetime: float = 7 * 86_400.0
    memory: float = 7 * 86_400.0
    max_topics: int = 100_000
    max_children: int = 10_000
    max_octets: int = 1 << 30
    max_subscriptions: int = 1_000
    max_logins: int = 100
    max_sessions: int = 5_000
    max_strangers: int = 200
    max_in_answer: int = 1_000
    max_events: int = 1_000
    media_types: frozenset[str] | None = None
    hide_accounts: bool = True
    hide_ports: bool = True
    scrypt_cost: int = 2**14

    def __post_init__(self) -> None:
        """Check the options; context and software are parts of lines on the wire."""
        if (
            not isinstance(self.context, str)
            or not self.context
            or not self.context.isprintable()
            or " " in self.context
        ):
            raise UsageError(f"context must be a name without blanks, such as mq.example, got {self.context!r}")
        if not isinstance(self.software, str) or not self.software.isprintable():
            raise UsageError(f"software must be a text in one line, got {self.software!r}")
        instance(self.dialect, "dialect", SmqpDialect, "an SmqpDialect")
        instance(self.limits, "limits", SmqpLimits, "SmqpLimits")
        instance(self.client_ports, "client_ports", range, "a range of ports")
        if self.media_types is not None:
            object.__setattr__(
                self, "media_types", frozenset(items(self.media_types, "media_types", "a set of strings"))
            )
        for name in SWITCHES:
            switch(getattr(self, name), name)
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if self.scrypt_cost & (self.scrypt_cost - 1):
            raise UsageError(f"scrypt_cost must be a power of 2, got {self.scrypt_cost}")
        for name in TIMES:
            finite(getattr(self, name), name)
        for name in TIMES_FROM_ZERO:
            not_negative(getattr(self, name), name)
        if self.idle_timeout is not None:
            finite(self.idle_timeout, "idle_timeout")
        if self.default_timeout is not None and not (is_number(self.default_timeout) and self.default_timeout >= 0):
            raise UsageError(
                f"default_timeout must be a number of seconds, at least 0, or None, got {self.default_timeout!r}"
            )
        pauses = items(self.reconnect, "reconnect", "the shortest and the longest time, in seconds", object)
        if len(pauses) != 2 or finite(pauses[0], "reconnect") > finite(pauses[1], "reconnect"):
            raise UsageError(f"reconnect must be the shortest and the longest time, in seconds, got {self.reconnect!r}")
