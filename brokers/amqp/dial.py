"""Connecting a socket to an AMQP broker: within a time limit, with TLS if required; any thread may end the attempt.

This also finds out whether an address speaks AMQP, without sending a user or password.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import TypeAlias

from brokers.adapter.endpoints import connect_to, shake_hands
from brokers.adapter.probe import MIN_TIMEOUT_SECONDS
from brokers.amqp.sasl import HEADER_OCTETS, SASL_HEADER
from brokers.amqp.url import AmqpLogin, AmqpOptions, login_of
from brokers.errors import ConnectionFailedError

Prepare: TypeAlias = Callable[[socket.socket], socket.socket]


class Dial:
    """One attempt to connect; `drop` ends it from any thread."""

    def __init__(self, login: AmqpLogin) -> None:
        self._login = login
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._is_down = False

    def connect(self, timeout: float) -> socket.socket:
        """Connect to the first address that answers, with the handshake if it is TLS.

        Returns:
            A non-blocking socket.

        Raises:
            OSError: no address answers, the certificate is invalid, or `drop` was called.
            ConnectionFailedError: what answers does not speak TLS.
        """
        until = monotonic() + timeout
        prepare = self._login.prepare()
        error: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(
            self._login.host, self._login.port, type=socket.SOCK_STREAM
        ):
            attempt = self._hold(socket.socket(family, kind, protocol))
            try:
                connect_to(attempt, address, until - monotonic())
                return self._secure(attempt, prepare, until)
            except OSError as failed:
                self._close()
                error = failed
            except BaseException:
                self._close()
                raise
            if self._is_down:
                break
        raise error or OSError("no address")

    def drop(self) -> None:
        """Make `connect` fail. Never waits."""
        with self._lock:
            self._is_down = True
            if self._socket is not None:
                with suppress(OSError):  # not connected yet, or no longer
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not the method of TLS, which would wait

    def _close(self) -> None:
        """Close the socket held last: with TLS that is not the one that was connected."""
        if self._socket is not None:
            self._socket.close()

    def _hold(self, attempt: socket.socket) -> socket.socket:
        with self._lock:
            if self._is_down:
                attempt.close()
                raise ConnectionAbortedError("the attempt was ended")
            self._socket = attempt
        return attempt

    def _secure(self, attempt: socket.socket, prepare: Prepare, until: float) -> socket.socket:
        attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = self._hold(prepare(attempt))
        if isinstance(made, ssl.SSLSocket):
            shake_hands(made, self._login, until)
        made.setblocking(False)
        return made


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
