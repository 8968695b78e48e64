"""Finding out whether somebody speaks AMQP at an address, without telling them who asks."""

from __future__ import annotations

import os
from time import monotonic

from brokers.amqp.address import Given, login_of
from brokers.amqp.dialling import Dial
from brokers.amqp.sasl import HEADER_SIZE, SASL_HEADER
from brokers.endpoints import LEAST


def speaks_amqp(url: str, timeout: float) -> bool:
    """Say whether a URL leads to a listener that wants a login for AMQP 1.0. No user and no password is sent.

    With TLS the certificate has to be good. A listener that lets clients in without SASL counts as none.

    Args:
        url: `amqp://HOST:PORT` or `amqps://…`, with the parameters for TLS.
        timeout: seconds that it may take.

    Raises:
        ValueError: a URL that cannot be.
    """
    until = monotonic() + timeout
    try:
        with Dial(login_of(url, os.environ, Given())).connect(timeout) as connected:
            connected.settimeout(max(LEAST, until - monotonic()))
            connected.sendall(SASL_HEADER)
            answer = b""
            while len(answer) < HEADER_SIZE:
                piece = connected.recv(HEADER_SIZE - len(answer))
                if not piece:
                    return False
                answer += piece
                connected.settimeout(max(LEAST, until - monotonic()))
    except OSError:
        return False
    return answer == SASL_HEADER
