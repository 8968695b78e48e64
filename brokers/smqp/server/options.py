"""How a server is set up: its name, its limits, its times. Times are seconds, sizes octets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.messages import SmqpLimits

SERVER_PORT: Final = 720
CLIENT_PORT: Final = 721


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator decides.

    Attributes:
        context: the server's own name, unique among linked servers: a domain, and perhaps a slash and more (SM-230).
        software: what it says of itself in its first line.
        dialect: how it reads and writes.
        limits: what a line and a message may have.
        default_timeout: how long messages stay whose own Timeout and topic say nothing; None for ever (SM-213).
        announces_timeout: the answer to a login tells it (SM-070).
        default_priority: of messages without one; lower is sent first.
        ignores_priority: messages go strictly first in, first out (SM-040).
        retry_timeout: how long to wait for an acknowledgement before sending again (SM-177).
        retry_pause: how long to wait after a client refused a notification.
        max_retries: how often one message is sent again to one client before it is given up.
        reconnect: shortest and longest time between attempts to reach a client that cannot be reached.
        connect_timeout: how long a client may take to accept its notify connection.
        client_port: where clients listen that did not say.
        client_ports: where else clients may have themselves notified: by default no ports of services of the system.
        login_timeout: how long a client may take to log in.
        idle_timeout: how long one that is logged in may send nothing; None for ever.
        max_failures: wrong passwords before the connection ends, and ports that a client may name in a row without
            taking a message there, before no further one is tried.
        trash_lifetime: how long messages stay in Trash (SM-046).
        memory: how long origins of forwarded messages are remembered, so that none is delivered twice.
        max_topics: topics of the server, at any depth; an account's own is made nevertheless.
        max_children: topics directly below one.
        max_octets: of the messages of a topic together, where the topic has no max_octets of its own. Those in Trash
            do not count.
        max_subscriptions: of one account.
        max_logins: sessions of one account at a time.
        max_sessions: connections at a time. Where there are as many, one more ends the first of those that are not
            logged in, of the address that has most of them.
        max_strangers: connections from one address (of IPv6: one network of 64 bits) that are not logged in. One
            more ends the first of them that have had a second to log in and wait for no answer. With SMQPS as many
            may be setting up TLS besides, for ten seconds each.
        max_in_answer: messages in the answer to one GET.
        max_events: notifications other than messages that wait for one client; more are dropped, oldest first.
        media_types: the only ones that may be published; None for all.
        hide_accounts: LOGIN answers as if every account existed; False tells those that there are not by 404.
        hide_ports: SET NOTIFY PORT is answered 200, whether somebody listens there or not; False tells by 404 and 408.
        scrypt_cost: the cost of hashing a password.
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
