"""The command connection of a client: it sends commands, reads replies, checks a silent server, and reconnects.

A `CommandLine` is for one thread at a time; a `KeptConnection` is thread-safe. Notifications come over a separate
connection, see `listener.py`.

Spec: SMQP 4, 4.1, 4.1.1; 4.1.6.5.1 (the client listens before it says where).
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from threading import TIMEOUT_MAX, Event, RLock, current_thread
from time import monotonic
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

from brokers import events
from brokers.adapter.dial import connected
from brokers.adapter.endpoints import MAX_DOUBLINGS, ShortLives
from brokers.adapter.probe import MIN_TIMEOUT_SECONDS, wait_or_ask
from brokers.adapter.wrong_port import HEAD_OCTETS, check, perhaps
from brokers.errors import (
    BrokerError,
    ClosedError,
    ConnectionFailedError,
    ConnectionLostError,
    NotSentError,
    UnsentError,
)
from brokers.files import reason_of
from brokers.smqp.client.commands import Questions, number_in
from brokers.smqp.client.listener import Hearer, NotifyListener
from brokers.smqp.client.options import ClientOptions
from brokers.smqp.protocol.commands import Command, CommandKind, format_command
from brokers.smqp.protocol.dialect import SmqpDialect
from brokers.smqp.protocol.dialogue import ReplyReader, parse_banner
from brokers.smqp.protocol.ids import Timeout, parse_timeout
from brokers.smqp.protocol.messages import Attributes, SmqpLimits, SmqpMessage, parse_line
from brokers.smqp.protocol.replies import MEANINGS, ProtocolError, RefusedError, ReplyCode, SmqpReply
from brokers.smqp.protocol.topics import covers_all_of, fold
from brokers.threads.thread import Thread
from brokers.threads.timer import left
from brokers.url import bracketed

RECEIVE_OCTETS: Final = 64 * 1024

FIRST_WORD: Final = b"SMQP"
"""The word with which a server begins."""

T = TypeVar("T")


Secure: TypeAlias = Callable[[socket.socket], socket.socket]
"""Starts TLS as the client on a connected socket, within its timeout, and returns the secure socket."""


class Address(NamedTuple):
    """The address of a server; `secure` starts TLS, or is None for SMQP without TLS."""

    host: str
    port: int
    secure: Secure | None

    @property
    def scheme(self) -> str:
        """The scheme of the URL."""
        return "smqp" if self.secure is None else "smqps"

    def __str__(self) -> str:
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}"


def secured_by(tls: ssl.SSLContext, host: str) -> Secure:
    """Return a function that starts TLS with a context, for the server `host`."""
    return partial(tls.wrap_socket, server_hostname=host)


class Welcome(NamedTuple):
    """The data in the reply to a login.

    Attributes:
        topic: the account's login topic.
        guid: the guid of this login.
        context: the server's own name, empty if it does not state it.
        timeout: how long messages without a timeout of their own stay, in seconds; None for no limit, or if unknown.
        has_timeout: whether the server stated `timeout`.
    """

    topic: str
    guid: str
    context: str
    timeout: Timeout
    has_timeout: bool


class CommandLine:
    """One connection to a server.

    Args:
        address: the address of the server.
        timeout: maximum time for connecting, and for each reply, in seconds.
        dialect: the dialect to read and write.
        limits: the limits of lines and messages.

    Raises:
        ConnectionFailedError: the server does not answer, does not speak SMQP 1, or is not available.
    """

    def __init__(self, address: Address, timeout: float, dialect: SmqpDialect, limits: SmqpLimits) -> None:
        self._dialect = dialect
        self._timeout = timeout
        self._reader = ReplyReader(limits, dialect)
        self._address = address
        self._heard: bytes | None = b""  # the first octets, until they are recognised as SMQP
        self._socket = _connected(address, timeout)
        try:
            self.own_address: str = self._socket.getsockname()[0]
            self.server_address: str = self._socket.getpeername()[0]  # raises if the connection has ended already
            if address.secure is None:
                wait_or_ask(self._first_word, address, monotonic() + timeout, lambda: not self._heard)
                self._heard = b""
                self._limit(inf)
            banner = parse_banner(self._read(self._reader.line))
            if not banner.is_available:
                raise ConnectionFailedError(f"{address.host}:{address.port} reports that it is not available")
        except (ProtocolError, OSError) as error:
            self.close()
            other = perhaps(address) if self._heard == b"" else ""
            why = reason_of(error) if isinstance(error, OSError) else error
            raise ConnectionFailedError(f"{address.host}:{address.port}: {why}{other}") from error
        except BaseException:
            self.close()
            raise

    def login(self, account: str, password: str) -> Welcome:
        """Log in with the method CLEAR.

        Raises:
            ConnectionFailedError: the server refused it.
        """
        try:
            self.ask(Command(kind=CommandKind.LOGIN, account=account, method="CLEAR", version="1.0"))
            reply = self.ask(Command(kind=CommandKind.PASSWORD, account=account, password=password))
        except RefusedError as error:
            raise ConnectionFailedError(f"the login of {account!r} was refused: {error}") from error
        return self._welcome(reply)

    def _welcome(self, reply: SmqpReply) -> Welcome:
        attributes = Attributes(parse_line(line) for line in reply.data if ":" in line)
        if not (attributes.text("Topic") and attributes.text("Guid")) and not self._dialect.bare_login:
            raise ConnectionFailedError("the server's answer to the login must have Topic and Guid")
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

    def ask(self, command: Command, content: bytes = b"", until: float = inf) -> SmqpReply:
        """Send a command, with its message if it has one; return the reply, which is 200.

        Sending and reading each take at most the connection's timeout, and end when the monotonic clock shows `until`.

        Raises:
            RefusedError: the reply has another code.
            ConnectionLostError: it is not known whether the server executed the command; the connection is closed.
        """
        reply = self.exchange(command, content, until)
        if not reply.is_success:
            raise RefusedError(reply.code, f"{command.kind}: {' '.join(reply.lines) or MEANINGS[reply.code]}")
        return reply

    def exchange(self, command: Command, content: bytes = b"", until: float = inf) -> SmqpReply:
        """Send a command; return the reply, whatever its code."""
        octets = format_command(command, self._dialect) + content
        with self._closed_unless_read():
            self._limit(until)
            self._socket.sendall(octets)
            self._limit(until)
            return self._read(self._reader.reply)

    def fetch(self, command: Command) -> list[SmqpMessage]:
        """Send a GET MESSAGE; return the messages that follow the reply."""
        reply = self.ask(command)
        with self._closed_unless_read():
            return [self._read(self._reader.content) for _ in range(number_in(reply) if reply.data else 1)]

    @contextmanager
    def _closed_unless_read(self) -> Iterator[None]:
        """Close the connection if an answer is not read to its end: it would be taken for that to the next command.

        Raises:
            ConnectionLostError: instead of OSError and ProtocolError.
        """
        try:
            yield
        except (OSError, ProtocolError) as error:
            self.close()
            why = reason_of(error) if isinstance(error, OSError) else error
            raise ConnectionLostError(f"the connection to the server was lost: {why}") from error
        except BaseException:  # such as KeyboardInterrupt
            self.close()
            raise

    def _limit(self, until: float) -> None:
        self._socket.settimeout(min(self._timeout, max(MIN_TIMEOUT_SECONDS, until - monotonic())))

    def quit(self, until: float) -> None:
        """Log out; wait for the reply until the monotonic clock shows `until`.

        Raises:
            ConnectionLostError: no reply came.
        """
        self.exchange(Command(kind=CommandKind.QUIT), until=until)

    def close(self) -> None:
        """Close the connection, even while another thread waits for a reply. Idempotent."""
        with suppress(OSError, ValueError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed on this side."""
        return self._socket.fileno() < 0

    def has_something(self) -> bool:
        """Say whether there is something to read, or the connection has ended."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                return bool(selector.select(0))
        except (OSError, ValueError):
            return True

    def _first_word(self, seconds: float) -> None:
        """Wait for the first octet, which stays unread."""
        self._socket.settimeout(max(MIN_TIMEOUT_SECONDS, seconds))
        self._heard = self._socket.recv(1, socket.MSG_PEEK)
        if not self._heard:
            raise ConnectionResetError("the server closed the connection")

    def _read(self, take: Callable[[], T | None]) -> T:
        while (taken := take()) is None:
            data = self._socket.recv(RECEIVE_OCTETS)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            if self._heard is not None:
                self._recognise(data)
            self._reader.feed(data)
        return taken

    def _recognise(self, data: bytes) -> None:
        """Check that the first octets are those of SMQP.

        Raises:
            ConnectionFailedError: they are not.
        """
        assert self._heard is not None
        self._heard = (self._heard + data[:HEAD_OCTETS]).lstrip(b"\r\n")[:HEAD_OCTETS]
        check(self._address, self._heard[: len(FIRST_WORD)].upper() + self._heard[len(FIRST_WORD) :], (FIRST_WORD,))
        if len(self._heard) >= len(FIRST_WORD):
            self._heard = None


def _connected(address: Address, timeout: float) -> socket.socket:
    def finish(plain: socket.socket, until: float) -> socket.socket:
        try:
            plain.settimeout(max(MIN_TIMEOUT_SECONDS, until - monotonic()))
            made = plain if address.secure is None else address.secure(plain)
        except BaseException:
            plain.close()
            raise
        made.settimeout(timeout)
        return made

    try:
        return connected(address.host, address.port, monotonic() + timeout, finish)
    except OSError as error:  # including ssl.SSLError
        raise ConnectionFailedError(f"no SMQP server at {address.host}:{address.port}: {reason_of(error)}") from error


END_POLL_SECONDS: Final = 0.5
"""Interval between checks whether the connection has ended, in seconds."""
CLOSE_GRACE_SECONDS: Final = 2.0
"""Maximum time, in seconds, that each step of closing waits for a server that does not answer."""


class KeptConnection(Questions):
    """A session that is renewed when it is lost, with its listener for notifications. Thread-safe.

    Args:
        address: the address of the server.
        account: the account to log in to.
        password: the password of the account.
        options: the options of the client.
        hearer: takes the notifications; without it there is no listener, and no subscription is possible.
        takes_login_topic: whether to subscribe to the account's login topic (SM-077).

    Raises:
        ConnectionFailedError: the server does not answer, or refused the login.
    """

    def __init__(
        self,
        address: Address,
        account: str,
        password: str,
        options: ClientOptions,
        hearer: Hearer | None,
        *,
        takes_login_topic: bool,
    ) -> None:
        self.options = options
        self.account = account
        self.password = password
        self.generation = 0
        self.lock = RLock()
        self._address = address
        self._hearer = hearer
        self._takes_login_topic = takes_login_topic
        self._subscriptions: dict[str, Command] = {}
        self._listener: NotifyListener | None = None
        self._closing = Event()
        self._is_lost = Event()
        self._wake = Event()
        self._watchers: list[Callable[[bool], None]] = []
        self._check: Callable[[], None] | None = None
        self._lives = ShortLives()
        try:
            self._line, self.welcome = self._connect()
        except BaseException:
            self._close_listener(_grace(inf))
            raise
        self._keeper = Thread(target=self._keep, name=f"smqp client {account}", daemon=True)
        self._keeper.start()

    def _connect(self) -> tuple[CommandLine, Welcome]:
        """Connect, log in, state the notify port, and subscribe again."""
        options = self.options
        line = CommandLine(self._address, options.timeout, options.dialect, options.limits)
        try:
            welcome = line.login(self.account, self.password)
            if self._hearer is not None:
                self._listener = self._listener or self._listen(line, self._hearer)
                self._listener.is_connected.clear()
                line.ask(Command(kind=CommandKind.SET_NOTIFY_PORT, port=self._listener.port))
                if not self._listener.is_connected.wait(options.timeout):
                    why = f"it did not connect to port {self._listener.port} within {options.timeout:g} s"
                    raise ConnectionFailedError(f"the server cannot notify this client: {why}")
            if self._takes_login_topic and welcome.topic:
                line.ask(Command(kind=CommandKind.SUBSCRIBE_MESSAGE, topic=welcome.topic))
            for command in list(self._subscriptions.values()):
                _again(line, command)
        except (BrokerError, OSError) as error:
            line.close()
            if isinstance(error, ConnectionFailedError):
                raise
            raise ConnectionFailedError(f"the server cannot notify this client: {error}") from error
        except BaseException:
            line.close()
            raise
        self.generation += 1
        return line, welcome

    def _listen(self, line: CommandLine, hearer: Hearer) -> NotifyListener:
        options = self.options
        return NotifyListener(
            options.notify_host or line.own_address,
            options.notify_port,
            line.server_address,
            hearer,
            secure=self._secured,
            dialect=options.dialect,
            limits=options.limits,
            ack_timeout=options.ack_timeout,
            on_end=self._wake.set,  # if one connection has ended, the other may have ended too
        )

    def _secured(self, connection: socket.socket) -> socket.socket:
        return connection if self._address.secure is None else self._address.secure(connection)

    def ask(self, command: Command, content: bytes = b"", until: float = inf) -> SmqpReply:
        """Send a command; return the reply, which is 200.

        Raises:
            NotSentError: other commands kept the connection busy until the monotonic clock showed `until`.
            RefusedError: the reply has another code.
            UnsentError: the connection is lost; nothing was sent.
            ConnectionLostError: the connection was lost meanwhile, or no reply came before `until`; it is not known
                whether the command was executed.
            ClosedError: the connection was closed by `close`.
        """
        with self._in_use(until) as line:
            return line.ask(command, content, until)

    def fetch(self, command: Command) -> list[SmqpMessage]:
        """Send a GET MESSAGE; return the messages."""
        with self._in_use() as line:
            return line.fetch(command)

    @contextmanager
    def _in_use(self, until: float = inf) -> Iterator[CommandLine]:
        """Lend the connection to one thread; it is lost if it is closed meanwhile."""
        if not self.lock.acquire(timeout=min(TIMEOUT_MAX, left(until))):
            raise NotSentError("the command was not sent in time: the server has not answered earlier commands")
        try:
            line = self._usable()
            try:
                yield line
            except BaseException:
                if line.is_closed:
                    self._lose()
                raise
        finally:
            self.lock.release()

    def _usable(self) -> CommandLine:
        if self._closing.is_set():
            raise ClosedError("the client was closed")
        if self._is_lost.is_set():
            raise UnsentError("the connection is lost, and not yet re-established")
        return self._line

    def _lose(self) -> None:
        if not self._is_lost.is_set():
            self._is_lost.set()
            self._wake.set()
            self._tell_watchers(False)

    def _keep(self) -> None:
        """Check the connection, and re-establish it when it is lost, until the client is closed."""
        tried = checked = monotonic()
        while not self._closing.is_set():
            self._wake.wait(min(END_POLL_SECONDS, self.options.keepalive, self.options.check))
            is_called, now = self._wake.is_set(), monotonic()
            self._wake.clear()
            try:
                if self._is_lost.is_set():
                    self._renew()
                    checked = -inf
                elif self._check is not None and now - checked > self.options.check:
                    tried = checked = now
                    self._check()
                elif is_called or now - tried > self.options.keepalive or self._has_ended():
                    tried = now
                    self.noop()
            except BrokerError as error:
                events.SMQP_CLIENT_NO_ANSWER.log(error)
            except BaseException:  # SystemExit too: the thread must go on, as only it re-establishes the connection
                events.SMQP_CLIENT_CHECK_FAILED.log()

    def _has_ended(self) -> bool:
        """Say whether there is unrequested data to read, which means that the connection has ended."""
        if not self.lock.acquire(blocking=False):
            return False  # it is in use
        try:
            return self._line.has_something()
        finally:
            self.lock.release()

    def _renew(self) -> None:
        if self.options.renew is None:
            return
        pause, longest = self.options.renew
        if short := self._lives.end():
            pause = min(longest, pause * 2.0 ** min(short, MAX_DOUBLINGS))
            self._closing.wait(pause)
        while not self._closing.is_set():
            self._lives.begin()
            try:
                line, welcome = self._connect()
            except BrokerError as error:
                events.SMQP_CLIENT_NOT_CONNECTED.log(error)
                self._closing.wait(pause)
                pause = min(longest, pause * 2)
                continue
            with self.lock:
                self._line, self.welcome = line, welcome
                self._is_lost.clear()
                if self._closing.is_set():
                    line.close()
                    return
            self._tell_watchers(True)
            return

    def watch(self, on_state: Callable[[bool], None]) -> None:
        """Call `on_state` with False when the connection is lost, and with True when it is re-established."""
        self._watchers.append(on_state)

    def check_with(self, check: Callable[[], None]) -> None:
        """Call `check` regularly, and after the connection is re-established; it may send commands, and raise."""
        self._check = check

    def _tell_watchers(self, is_connected: bool) -> None:
        for watcher in self._watchers:
            try:
                watcher(is_connected)
            except Exception:
                events.SMQP_CLIENT_WATCHER_FAILED.log()

    def close(self) -> None:
        """Log out; subscriptions stay (SM-181). It does not wait long for a server that does not answer. Idempotent."""
        self.leave(inf)

    def leave(self, until: float) -> None:
        """Close as `close` does, but wait only until the monotonic clock shows `until`."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake.set()
        self._quit(until)
        self._line.close()  # a command that another thread waits with fails now
        if self._keeper is not current_thread():
            self._keeper.join(left(_grace(until)))  # if it is just reconnecting, it soon sees that the client is closed
        self._close_listener(_grace(until))

    def _quit(self, until: float) -> None:
        if not self.lock.acquire(timeout=left(_grace(until))):
            return  # a server that has not answered a command would not answer QUIT either
        try:
            if not self._is_lost.is_set():
                self._line.quit(_grace(until))
        except BrokerError as error:
            events.SMQP_CLIENT_QUIT_UNANSWERED.log(error)
        finally:
            self.lock.release()

    def _close_listener(self, until: float) -> None:
        if self._listener is not None:
            self._listener.close(until)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Subscriptions, which are renewed with each new connection

    def subscribed(self, command: Command) -> list[str]:
        """Subscribe, now and with each new connection; return the topics in the reply."""
        topics = [line.rpartition(" ")[2] for line in self.ask(command).data]
        self._subscriptions[f"{command.kind} {command.topic}"] = command
        return topics

    def unsubscribed(self, kind: CommandKind, subscribed: CommandKind, topic: str, until: float = inf) -> list[str]:
        """End a subscription, as `ask` does; return the topics in the reply."""
        gone, itself = fold(topic), subscribed is CommandKind.SUBSCRIBE_TOPIC
        self._forget(subscribed, lambda own: covers_all_of(gone, own, itself=itself))
        topics = [line.rpartition(" ")[2] for line in self.ask(Command(kind=kind, topic=topic), until=until).data]
        # The account keeps a wildcard that has lost a part; to subscribe to it again would bring the part back.
        self._forget(subscribed, lambda own: covers_all_of(own, gone, itself=itself))
        return topics

    def _forget(self, kind: CommandKind, is_meant: Callable[[str], bool]) -> None:
        """Stop renewing some subscriptions with new connections."""
        for key, each in list(self._subscriptions.items()):
            if each.kind is kind and is_meant(fold(each.topic)):
                self._subscriptions.pop(key, None)

    def unsubscribe_all(self) -> list[str]:
        """End all subscriptions of the account, of every kind; return the lines of the reply, one for each."""
        self._subscriptions.clear()
        return list(self.ask(Command(kind=CommandKind.UNSUBSCRIBE_ALL)).data)


def _grace(until: float) -> float:
    """Return when a step of closing that begins now must end."""
    return min(until, monotonic() + CLOSE_GRACE_SECONDS)


def _again(line: CommandLine, command: Command) -> None:
    try:
        line.ask(command)
    except RefusedError as error:
        if error.code is not ReplyCode.NOT_FOUND:
            events.SMQP_CLIENT_SUBSCRIPTION_NOT_RENEWED.log(error)
