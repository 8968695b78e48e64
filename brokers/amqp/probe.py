"""Whether an address speaks AMQP, found out without sending a user or password."""

from __future__ import annotations

import os
from time import monotonic

from brokers.adapter.dial import Dial
from brokers.adapter.probe import MIN_TIMEOUT_SECONDS
from brokers.amqp.sasl import HEADER_OCTETS, SASL_HEADER
from brokers.amqp.url import AmqpOptions, login_of
from brokers.errors import ConnectionFailedError


def speaks_amqp(url: str, timeout: float) -> bool:
    """Return whether a listener at a URL offers SASL for AMQP 1.0. No user and no password is sent.

    With TLS the certificate must be valid. A listener without SASL yields False.

    Args:
        url: `amqp://HOST:PORT` or `amqps://…`, with the parameters for TLS.
        timeout: seconds that this may take.

    Raises:
        UsageError: `url` is invalid.
    """
    until = monotonic() + timeout
    try:
        with Dial(login_of(url, os.environ, AmqpOptions())).connect(timeout) as connected:
            connected.settimeout(max(MIN_TIMEOUT_SECONDS, until - monotonic()))
            connected.sendall(SASL_HEADER)
            answer = b""
            while len(answer) < HEADER_OCTETS:
                piece = connected.recv(HEADER_OCTETS - len(answer))
                if not piece:
                    return False
                answer += piece
                connected.settimeout(max(MIN_TIMEOUT_SECONDS, until - monotonic()))
    except (OSError, ConnectionFailedError):
        return False
    return answer == SASL_HEADER
