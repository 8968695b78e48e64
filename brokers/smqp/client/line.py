"""The command connection of a client: a command out, its reply in, and so on. For one thread at a time.

Spec: SMQP 4, 4.1, 4.1.1.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Final, NamedTuple, TypeAlias, TypeVar

from brokers.errors import ConnectionFailedError, ConnectionLostError
from brokers.smqp.attributes import Attributes, parse_line
from brokers.smqp.commands import Command, Kind, format_command
from brokers.smqp.content import Content
from brokers.smqp.dialect import Dialect
from brokers.smqp.dialogue import ReplyReader, parse_banner
from brokers.smqp.errors import ProtocolError, RefusedError
from brokers.smqp.reading import Limits
from brokers.smqp.replies import MEANINGS, Reply
from brokers.smqp.times import Timeout, parse_timeout

RECEIVE: Final = 64 * 1024

LEAST: Final = 0.001
"""Seconds: a socket's time-out of nothing would mean not to wait at all."""

T = TypeVar("T")


Secure: TypeAlias = Callable[[socket.socket], socket.socket]
"""Makes TLS on a connected socket, as its client, and returns what to speak over."""


class Address(NamedTuple):
    """Where a server is, and how to reach it; `secure` is None for SMQP without TLS."""

    host: str
    port: int
    secure: Secure | None


def secured_by(tls: ssl.SSLContext, host: str) -> Secure:
    """Make TLS with a context, for a server of that name."""
    return partial(tls.wrap_socket, server_hostname=host)


class Welcome(NamedTuple):
    """What the answer to a login tells.

    Attributes:
        topic: the account's login topic.
        guid: of this login.
        context: the server's own name, empty where it does not tell it.
        timeout: how long messages stay that do not say so; `has_timeout` says whether the server told it.
        has_timeout: see `timeout`.
    """

    topic: str
    guid: str
    context: str
    timeout: Timeout
    has_timeout: bool


class CommandLine:
    """One connection to a server.

    Args:
        address: of the server.
        timeout: seconds that connecting, and each reply, may take.
        dialect: how to read and write.
        limits: what a line and a message may have.

    Raises:
        ConnectionFailedError: nobody is there, or no server of SMQP 1, or it is not available.
    """

    def __init__(self, address: Address, timeout: float, dialect: Dialect, limits: Limits) -> None:
        self._dialect = dialect
        self._timeout = timeout
        self._reader = ReplyReader(limits, dialect)
        self._socket = _connected(address, timeout)
        try:
            self.own_address: str = self._socket.getsockname()[0]
            self.server_address: str = self._socket.getpeername()[0]  # there is none where it has ended already
            banner = parse_banner(self._until(self._reader.line))
        except (ProtocolError, ConnectionLostError, OSError) as error:
            self.close()
            raise ConnectionFailedError(f"{address.host}:{address.port}: {error}") from error
        if not banner.is_available:
            self.close()
            raise ConnectionFailedError(f"{address.host}:{address.port} says that it is not available")

    def login(self, account: str, password: str) -> Welcome:
        """Log in with the method CLEAR.

        Raises:
            ConnectionFailedError: the server refused it.
        """
        try:
            self.ask(Command(kind=Kind.LOGIN, account=account, method="CLEAR", version="1.0"))
            reply = self.ask(Command(kind=Kind.PASSWORD, account=account, password=password))
        except RefusedError as error:
            raise ConnectionFailedError(f"the login of {account!r} was refused: {error}") from error
        return self._welcome(reply)

    def _welcome(self, reply: Reply) -> Welcome:
        attributes = Attributes(parse_line(line) for line in reply.data if ":" in line)
        if not (attributes.text("Topic") and attributes.text("Guid")) and not self._dialect.bare_login:
            raise ConnectionFailedError("the server answers a login without Topic and Guid")
        timeout = attributes.value("Timeout")
        words = reply.lines[0].split()
        context = words[words.index("SMQP/1.0") + 1] if "SMQP/1.0" in words[:-1] else ""
        return Welcome(
            attributes.text("Topic"),
            attributes.text("Guid"),
            context,
            None if timeout is None else parse_timeout(timeout),
            timeout is not None,
        )

    def ask(self, command: Command, content: bytes = b"", until: float = inf) -> Reply:
        """Send a command, with its message if it has one; return the reply, which is 200.

        Each of both gets what time is left until the monotonic clock shows `until`, and no more than it ever does.

        Raises:
            RefusedError: another code was the answer.
            ConnectionLostError: whether the server carried it out is not known; the connection is of no more use.
        """
        reply = self.exchange(command, content, until)
        if not reply.is_success:
            raise RefusedError(reply.code, f"{command.kind}: {' '.join(reply.lines) or MEANINGS[reply.code]}")
        return reply

    def exchange(self, command: Command, content: bytes = b"", until: float = inf) -> Reply:
        """Send a command; return the reply, whatever it is."""
        octets = format_command(command, self._dialect) + content
        try:
            self._limit(until)
            self._socket.sendall(octets)
            self._limit(until)
        except OSError as error:
            raise self._lost(error) from error
        reply = self._until(self._reader.reply)
        if until != inf:
            self._socket.settimeout(self._timeout)
        return reply

    def _limit(self, until: float) -> None:
        if until != inf:
            self._socket.settimeout(min(self._timeout, max(LEAST, until - monotonic())))

    def content(self) -> Content:
        """Return a message that follows a reply."""
        return self._until(self._reader.content)

    def quit(self, within: float) -> None:
        """Log out; wait up to `within` seconds for the answer.

        Raises:
            ConnectionLostError: there was none.
        """
        with suppress(OSError):
            self._socket.settimeout(within)
        self.exchange(Command(kind=Kind.QUIT))

    def close(self) -> None:
        """Close the connection, also one that another thread waits on. Idempotent."""
        with suppress(OSError, ValueError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def has_something(self) -> bool:
        """Say whether there is something to read, or the connection has ended."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                return bool(selector.select(0))
        except (OSError, ValueError):
            return True

    def _until(self, take: Callable[[], T | None]) -> T:
        try:
            while (taken := take()) is None:
                data = self._socket.recv(RECEIVE)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                self._reader.feed(data)
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from error
        return taken

    def _lost(self, error: Exception) -> ConnectionLostError:
        self.close()
        return ConnectionLostError(f"the connection to the server was lost: {error}")


def _connected(address: Address, timeout: float) -> socket.socket:
    try:
        plain = socket.create_connection((address.host, address.port), timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.secure is None:
            return plain
        try:
            return address.secure(plain)
        except BaseException:
            plain.close()
            raise
    except OSError as error:  # ssl.SSLError is one
        raise ConnectionFailedError(f"no server of SMQP at {address.host}:{address.port}: {error}") from error
