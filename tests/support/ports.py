"""Ports of this machine: where nobody listens, or only sometimes somebody does, and where a child process may."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

PORT_RANGE: Final = range(20_000, 30_000)
"""Below what systems give to clients and to those who ask for any port: else somebody else may have it before the child
has, or a client that tries to reconnect may get the port of its broker for its own end, and be connected to itself."""


@contextmanager
def nobody() -> Iterator[int]:
    """Keep a port where nobody listens, so that nobody else gets it meanwhile, not even a client as its own end of a
    connection. Who knows it may listen there, leave, and come back."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def free_ports(number: int) -> list[int]:
    """Find ports that nobody listens on now; all are held until the last is known, so they differ."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < number:
            listener = held.enter_context(socket.socket())
            port = random.choice(PORT_RANGE)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:  # somebody has it
                continue
            found.append(port)
    return found
