"""How a client is set up."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.messages import SmqpLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client is set up; times are seconds.

    Attributes:
        tls: makes it SMQPS.
        notify_host: where to listen; by default at the address that the server is reached from.
        notify_port: the port to listen at; 0 for any, 721 where the server is never told.
        timeout: that connecting, and each reply, may take.
        ack_timeout: to wait for the server's part of an acknowledgement.
        in_doubt: after which a message is handed over whose acknowledgement the server did not confirm (SM-164).
        keepalive: of silence after which the connection is tried.
        check: between two looks whether what a consumer of `brokers` subscribed to is there still.
        renew: shortest and longest time between attempts to make a lost connection anew; None does not.
        dialect: how to read and write.
        limits: what a line and a message may have.
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
