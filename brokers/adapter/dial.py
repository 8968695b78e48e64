"""Connecting a socket to a broker: to the first address of its host that answers, with TLS if required, in time.

What is spoken then belongs in the adapters.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias

from brokers.adapter.probe import MIN_TIMEOUT_SECONDS, first_octets, wait_or_ask
from brokers.adapter.wrong_port import PortUrl, check_tls, perhaps
from brokers.threads.fork import after_fork

ALERT: Final = "ALERT"
"""Part of OpenSSL's names of errors that a peer with TLS has told."""

Finish: TypeAlias = Callable[[socket.socket, float], socket.socket]
"""Makes of a connected socket what is used, before the monotonic clock shows a time; closes it if that fails."""

Hold: TypeAlias = Callable[[socket.socket], object]
"""Takes note of a socket before it connects; raises OSError if it must not."""

Prepare: TypeAlias = Callable[[socket.socket], socket.socket]
"""Wraps a connected socket for TLS, before the handshake, or leaves it as it is."""


def connected(host: str, port: int, until: float, finish: Finish, hold: Hold = lambda plain: None) -> socket.socket:
    """Connect to the first address of a host that answers, before the monotonic clock shows `until`.

    Each address gets its share of the time, so that a silent one does not use it up. The look-up of the name is the
    operating system's: it has no limit here, and counts towards the time.

    Args:
        host: name or address.
        port: the port.
        until: the end of the time.
        finish: makes of a connected socket what is returned; after an OSError the next address is tried.
        hold: called with each socket before it connects.

    Raises:
        OSError: no address answered, or the last one failed. Any other error of `finish` is raised too.
    """
    failure = OSError(errno.EADDRNOTAVAIL, "the name has no address")
    addresses = _addresses(host, port)
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        now = monotonic()
        due = now + max(0.0, until - now) / (len(addresses) - position)
        try:
            plain = socket.socket(family, kind, protocol)
            try:
                hold(plain)
                _connect(plain, address, due)
            except BaseException:
                plain.close()
                raise
            made = finish(plain, due)
            after_fork(made, socket.socket.close)  # so that no other process writes into this session
            return made
        except OSError as error:
            failure = error
    raise failure


def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except ValueError:  # Python cannot encode it for the look-up
        raise socket.gaierror(socket.EAI_NONAME, "it is not a valid name") from None


def _connect(plain: socket.socket, address: Any, until: float) -> None:
    plain.settimeout(max(MIN_TIMEOUT_SECONDS, until - monotonic()))
    try:
        plain.connect(address)
    except TimeoutError as error:
        raise OSError(errno.ETIMEDOUT, "timed out") from error
    if plain.getsockname() == plain.getpeername():
        raise ConnectionRefusedError("nothing listens there")  # and the system chose that port for our end
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def shake_hands(safe: ssl.SSLSocket, url: PortUrl, until: float) -> None:
    """Make the handshake of TLS before the monotonic clock shows `until`; if it fails, find out what speaks there.

    Raises:
        ConnectionFailedError: the peer speaks another protocol.
        OSError: the handshake failed.
    """
    address = safe.getpeername()[:2]  # it has none once it was reset

    def handshake(seconds: float) -> None:
        safe.settimeout(max(MIN_TIMEOUT_SECONDS, seconds))
        safe.do_handshake()

    try:
        wait_or_ask(handshake, url, until, lambda: safe.version() is None)
    except TimeoutError as error:
        raise TimeoutError(f"the TLS handshake was not answered in time{perhaps(url)}") from error
    except ssl.SSLCertVerificationError:
        raise
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as error:
        if ALERT not in (getattr(error, "reason", None) or ""):
            check_tls(url, first_octets(address, until))
        raise


class DialledUrl(PortUrl, Protocol):
    """The URL of a broker to connect to."""

    def prepare(self) -> Prepare:
        """Return a function that wraps a connected socket for TLS, before the handshake, or leaves it as it is."""


class Dial:
    """One attempt to connect; `drop` ends it from any thread."""

    def __init__(self, url: DialledUrl) -> None:
        self._url = url
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._is_down = False

    def connect(self, timeout: float) -> socket.socket:
        """Connect to the first address that answers, with the handshake if it is TLS; see `connected`.

        Returns:
            A non-blocking socket.

        Raises:
            OSError: no address answers, the certificate is invalid, or `drop` was called.
            ConnectionFailedError: what answers does not speak TLS.
        """
        until = monotonic() + timeout
        finish = partial(self._finish, self._url.prepare())
        return connected(self._url.host, self._url.port, until, finish, self._hold)

    def drop(self) -> None:
        """Make `connect` fail, or end the socket that it returned. Never waits."""
        with self._lock:
            self._is_down = True
            if self._socket is not None:
                with suppress(OSError):  # not connected yet, or no longer
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not the method of TLS, which would wait

    def _hold(self, attempt: socket.socket) -> None:
        with self._lock:
            if self._is_down:
                raise ConnectionAbortedError("the attempt was ended")
            self._socket = attempt

    def _finish(self, prepare: Prepare, plain: socket.socket, until: float) -> socket.socket:
        made = plain
        try:
            made = prepare(plain)
            self._hold(made)
            if isinstance(made, ssl.SSLSocket):
                shake_hands(made, self._url, until)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
        return made
