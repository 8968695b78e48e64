"""The options of a client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from brokers.arguments import finite, items
from brokers.errors import UsageError
from brokers.smqp.protocol.commands import MAX_PORT
from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.messages import SmqpLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client; times are in seconds.

    Attributes:
        tls: the SSL context for SMQPS; None for SMQP without TLS.
        notify_host: the address to listen at; by default the client's address on the command connection.
        notify_port: the port to listen at; 0 for any free port, 721 if the server is not told the port.
        timeout: maximum time for connecting, and for each reply.
        ack_timeout: maximum time to wait for the server's part of an acknowledgement.
        in_doubt: time after which a message is handed over even if the server has not confirmed its acknowledgement
            (SM-164).
        keepalive: time of silence after which the connection is checked.
        check: interval of the checks whether the subscription of a consumer of `brokers` still exists.
        renew: shortest and longest time between attempts to re-establish a lost connection; None for no attempts. The
            first attempt is made at once, unless the connection lasted for less than 5 s.
        dialect: the dialect to read and write.
        limits: the limits of lines and messages.

    Raises:
        UsageError: a time or a port is out of range, or no number.
    """

    tls: ssl.SSLContext | None = None
    notify_host: str | None = None
    notify_port: int = 0
    timeout: float = 30.0
    ack_timeout: float = 10.0
    in_doubt: float = 30.0
    keepalive: float = 60.0
    check: float = 5.0
    renew: tuple[float, float] | None = (0.2, 2.0)
    dialect: SmqpDialect = STRICT
    limits: SmqpLimits = field(default_factory=SmqpLimits)

    def __post_init__(self) -> None:
        """Check the times and the port."""
        for name in ("timeout", "ack_timeout", "in_doubt", "keepalive", "check"):
            finite(getattr(self, name), name)
        if self.renew is not None:
            for pause in items(self.renew, "renew", "the shortest and the longest pause, in seconds", object):
                finite(pause, "renew")
        if not isinstance(self.notify_port, int) or not 0 <= self.notify_port <= MAX_PORT:
            raise UsageError(f"notify_port must be a port from 0 to {MAX_PORT}, got {self.notify_port!r}")
