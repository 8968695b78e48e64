"""The listener for notifications: the client listens, and the server connects, with one connection at a time.

Spec: SMQP 4.1.12: the client takes a message, sends `310 ACK`, and acts on it once the server has sent that too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import TIMEOUT_MAX, Event, Lock, current_thread
from typing import Final, Protocol

from brokers import events
from brokers.errors import ConnectionFailedError
from brokers.smqp.protocol.commands import Notice
from brokers.smqp.protocol.dialect import SmqpDialect
from brokers.smqp.protocol.dialogue import CommandReader, ReceivedCommand, notice_reader
from brokers.smqp.protocol.messages import SmqpLimits
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, format_reply, plain
from brokers.threads.thread import Thread
from brokers.threads.timer import left

RECEIVE_OCTETS: Final = 64 * 1024

ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Pause after a connection could not be accepted, in seconds."""

ACK: Final = format_reply(plain(ReplyCode.ACKNOWLEDGED))
REFUSED: Final = format_reply(plain(ReplyCode.UNAVAILABLE))


class Hearer(Protocol):
    """Takes notifications. Called on the listener's thread, one after the other."""

    def take(self, heard: ReceivedCommand) -> bool:
        """Take a message; return False if that is not possible now, so that it comes again."""

    def confirmed(self, heard: ReceivedCommand) -> None:
        """Note that the server knows that the message was taken, and will not send it again."""

    def doubted(self, heard: ReceivedCommand) -> None:
        """Note that the connection ended before the server confirmed: it may send the message again, or not."""

    def notice(self, heard: ReceivedCommand) -> None:
        """Take a notification other than a message."""

    def ended(self) -> None:
        """Note that the notify connection has ended, or another takes its place: `take` must not wait any longer."""


class NotifyListener:
    """Listens for the notify connections of a server.

    Attributes:
        port: the port at which it listens.
        is_connected: set when the server has connected.

    Args:
        host: the address to listen at.
        port: the port to listen at, 0 for any free port.
        server_address: the only address from which connections are accepted.
        hearer: takes the notifications.
        secure: starts TLS on a connection, if TLS is used.
        dialect: the dialect to read.
        limits: the limits of lines and messages.
        ack_timeout: maximum time to wait for the server's acknowledgement, in seconds.
        on_end: called when a connection has ended.

    Raises:
        OSError: the port cannot be listened at.
    """

    def __init__(
        self,
        host: str,
        port: int,
        server_address: str,
        hearer: Hearer,
        *,
        secure: Callable[[socket.socket], socket.socket],
        dialect: SmqpDialect,
        limits: SmqpLimits,
        ack_timeout: float,
        on_end: Callable[[], None],
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port: int = self._socket.getsockname()[1]
        self._server_address = server_address
        self._hearer = hearer
        self._secure = secure
        self._dialect = dialect
        self._limits = limits
        self._ack_timeout = ack_timeout
        self._on_end = on_end
        self._lock = Lock()
        self._current: socket.socket | None = None
        self._reader: Thread | None = None
        self.is_connected = Event()
        self._is_closed = Event()
        self._thread = Thread(target=self._accept, name=f"smqp listener {self.port}", daemon=True)
        self._thread.start()

    def close(self, until: float = inf) -> None:
        """Stop listening, and end the current connection.

        A TLS handshake with a silent server may go on when the monotonic clock shows `until`; then it is not awaited.
        """
        with self._lock:
            self._is_closed.set()
            current, self._current = self._current, None
        _shut(self._socket)
        self._socket.close()
        if current is not None:
            _shut(current)
        self._hearer.ended()
        for thread in (self._thread, self._reader):
            if thread is not None and thread is not current_thread():
                thread.join(min(TIMEOUT_MAX, left(until)))

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, (host, *_) = self._socket.accept()
            except OSError as error:  # the listener was closed, the server left at once, or no more files can be opened
                if not self._is_closed.wait(ACCEPT_PAUSE_SECONDS):
                    events.SMQP_CLIENT_NOTIFY_NOT_ACCEPTED.log(error)
                continue
            if host != self._server_address:
                events.SMQP_CLIENT_FOREIGN_PEER.log(host)
                connection.close()
                continue
            try:
                self._begin(connection)
            except RuntimeError as error:  # no more threads can be started
                events.SMQP_CLIENT_NOTIFY_NOT_ACCEPTED.log(error)
                self._let_go(connection)

    def _begin(self, connection: socket.socket) -> None:
        """Make the newest connection the current one; the one before it has ended, or is about to."""
        with self._lock:
            if self._is_closed.is_set():
                connection.close()
                return
            before, self._current = self._current, connection
        self.is_connected.set()
        if before is not None:
            _shut(before)
        self._hearer.ended()
        if self._reader is not None:
            self._reader.join()
        reader = Thread(target=self._read, args=(connection,), name=f"smqp notified {self.port}", daemon=True)
        reader.start()
        self._reader = reader

    def _read(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection = self._secured(connection)
            _Conversation(connection, self._hearer, self._dialect, self._limits, self._ack_timeout).run()
        except (ConnectionFailedError, OSError) as error:
            events.SMQP_CLIENT_NOTIFY_ENDED.log(error)
        except Exception:
            events.SMQP_CLIENT_NOTIFY_FAILED.log()
        finally:
            self._let_go(connection)

    def _let_go(self, connection: socket.socket) -> None:
        with self._lock:
            if self._current is connection:
                self._current = None
        connection.close()
        self._on_end()

    def _secured(self, connection: socket.socket) -> socket.socket:
        """Start TLS on a connection; the secure socket takes its place, so that others can end it."""
        connection.settimeout(self._ack_timeout)
        secured = self._secure(connection)
        secured.settimeout(None)
        with self._lock:
            if self._current is not connection:
                secured.close()
                raise ConnectionAbortedError("another connection took its place, or the listener was closed")
            self._current = secured
        return secured


class _Conversation:
    """The dialogue on one notify connection."""

    def __init__(
        self, connection: socket.socket, hearer: Hearer, dialect: SmqpDialect, limits: SmqpLimits, ack_timeout: float
    ) -> None:
        self._connection = connection
        self._hearer = hearer
        self._reader: CommandReader = notice_reader(limits, dialect)
        self._ack_timeout = ack_timeout

    def run(self) -> None:
        """Read notifications until the connection ends."""
        while True:
            heard = self._reader.next()
            if heard is None:
                if not self._receive(None):
                    return
            elif heard.refusal is not None or heard.command is None:
                events.SMQP_CLIENT_NOTIFICATION_UNREAD.log(heard.refusal)
                self._connection.sendall(format_reply(plain(ReplyCode.BAD_REQUEST)))
            elif heard.command.kind is Notice.MESSAGE and not _is_identified(heard):
                events.SMQP_CLIENT_NO_SMUID.log(heard.command.topic)
                self._connection.sendall(format_reply(plain(ReplyCode.BAD_REQUEST)))
            elif heard.command.kind is Notice.MESSAGE:
                if not self._message(heard):
                    return
            else:
                self._hearer.notice(heard)

    def _message(self, heard: ReceivedCommand) -> bool:
        """Take a message in two phases; return False if the connection ended meanwhile."""
        if not self._hearer.take(heard):
            self._connection.sendall(REFUSED)
            return True
        try:
            self._connection.sendall(ACK)
            answered = self._acknowledged()
        except OSError:
            answered = False
        if answered:
            self._hearer.confirmed(heard)
        else:
            self._hearer.doubted(heard)
        return answered

    def _acknowledged(self) -> bool:
        while True:
            try:
                line = self._reader.line()
            except RefusedError:
                return False
            if line is not None:
                return line.startswith(str(int(ReplyCode.ACKNOWLEDGED)))
            if not self._receive(self._ack_timeout):
                return False

    def _receive(self, timeout: float | None) -> bool:
        self._connection.settimeout(timeout)
        data = self._connection.recv(RECEIVE_OCTETS)
        self._connection.settimeout(None)
        self._reader.feed(data)
        return bool(data)


def _is_identified(heard: ReceivedCommand) -> bool:
    """Say whether a message has a Smuid, which identifies it (SM-167)."""
    return heard.content is not None and bool(heard.content.attributes.text("Smuid"))


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
