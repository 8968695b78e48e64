"""One STOMP session: the only file that touches stomp.py, and the only one that sees its errors.

stomp.py connects, reads, parses frames and keeps the heart-beats. This file adds what it leaves open: an answer to a
login that never comes, TCP_NODELAY, several frames in one write, and who waits for which receipt. Nothing about
messages or consumers belongs here.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import Event, Lock, RLock, Thread, current_thread
from time import monotonic
from typing import Any, Final, TypeAlias

import stomp
from stomp.exception import StompException

from brokers.errors import BrokerError, ConnectionFailedError, ConnectionLostError
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, Dialect, dialect_of
from brokers.stomp.frames import refusal
from brokers.stomp.login import Login

log = logging.getLogger(__name__)

Settle: TypeAlias = Callable[[BrokerError | None], None]
"""Told once, by the reading thread: None when the receipt came, else why it will not come. It must not block."""

Receive: TypeAlias = Callable[[Mapping[str, str], bytes], None]
"""Given headers and body of a MESSAGE, by the reading thread. It must not block."""

FOREIGN: Final = (StompException, OSError, AttributeError)
"""What stomp.py raises on a connection that is gone; AttributeError when its socket vanished in between."""

BROKER_CLOSES: Final = 0.5
"""Seconds that the broker gets to close the socket after it confirmed our leave."""

SPECIAL: Final = re.compile(r"[\\\n\r:]")
ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c"})


def pack(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Encode one frame, escaping names and values of its headers.

    stomp.py can do it too, but it escapes no names, puts a question mark for a lone surrogate, and takes four times as
    long, which is felt at thousands of messages a second.

    Raises:
        ValueError: a NUL or a lone surrogate in a header, which no frame can carry.

    Spec: STOMP 1.2, value encoding.
    """
    return _encode(command, {_escape_name(name): _escape(value) for name, value in headers.items()}, body)


def _escape(text: str) -> str:
    return text.translate(ESCAPES) if SPECIAL.search(text) else text


_escape_name = lru_cache(maxsize=1024)(_escape)
"""As `_escape`: a program uses a few names again and again."""


def _encode(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    head = "".join([command, "\n", *(f"{name}:{value}\n" for name, value in headers.items()), "\n"])
    if "\0" in head:
        raise ValueError(f"a header of {command} cannot hold NUL")
    return b"".join((head.encode(), body, b"\0"))


class Link:
    """One session with one broker, from `open` until it ends; it is never opened again.

    Attributes:
        writing: held while frames are written. Who must act on a state and write in one step holds it around both.
        server: what the broker calls itself.
        dialect: how that broker speaks.
    """

    def __init__(self, login: Login, timeout: float, on_end: Callable[[], None]) -> None:
        self.writing = RLock()
        self.server = ""
        self.dialect: Dialect = ACTIVEMQ_CLASSIC
        self._login = login
        self._timeout = timeout
        self._on_end = on_end
        self._state = Lock()
        self._has_ended = False
        self._waiting: dict[str, Settle] = {}
        self._receivers: dict[str, Receive] = {}
        self._greeting: SimpleQueue[Mapping[str, str] | BrokerError] = SimpleQueue()
        self._threads: list[Thread] = []
        self._engine: Any = stomp.StompConnection12(
            [(login.host, login.port)],
            prefer_localhost=False,
            try_loopback_connect=False,
            reconnect_attempts_max=1,
            reconnect_sleep_initial=0.0,
            timeout=timeout,
            heartbeats=(login.heartbeat, login.heartbeat),
            auto_decode=False,
            auto_content_length=False,
        )
        self._engine.transport.override_threading(self._start_reader)
        # stomp.py calls its listeners in the order of their names; heart-beats first.
        self._engine.set_listener("session", self)

    def open(self) -> None:
        """Connect and log in.

        Raises:
            ConnectionFailedError: nobody answers in time, the broker refused the login, or no dialect is known for it.
            ValueError: a login that cannot be put in a frame.
        """
        try:
            self._log_in(_encode("CONNECT", self._login.headers()))  # STOMP leaves these headers unescaped
        except FOREIGN as error:
            self.close(monotonic() + self._timeout)
            raise ConnectionFailedError(f"no connection to {self._login}: {reason(error)}") from error
        except BaseException:
            self.close(monotonic() + self._timeout)
            raise

    def _log_in(self, hello: bytes) -> None:
        transport = self._engine.transport
        transport.start()
        transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Not by stomp.py's connect, which writes the password to its log at level DEBUG.
        transport.send(hello)
        try:
            answer = self._greeting.get(timeout=self._timeout)
        except Empty:
            raise ConnectionFailedError(f"{self._login} did not answer within {self._timeout} s") from None
        if isinstance(answer, BrokerError):
            raise answer
        if self._engine.heartbeat_thread is not None:
            self._threads.append(self._engine.heartbeat_thread)
        self.dialect = dialect_of(answer.get("server", ""))
        self.server = answer["server"]

    @property
    def is_up(self) -> bool:
        """Whether frames can still be written and answered."""
        return not self._has_ended

    def write(self, data: bytes) -> None:
        """Write encoded frames in one piece.

        Raises:
            ConnectionLostError: the session has ended, or ended by this.
        """
        with self.writing:
            if self._has_ended:
                raise self._lost()
            try:
                self._engine.transport.send(data)
            except FOREIGN as error:
                self.drop()
                raise self._lost() from error

    def request(self, data: bytes, receipts: Mapping[str, Settle]) -> None:
        """Write encoded frames that ask for receipts; each is told once, at the latest when the session ends."""
        with self._state:
            is_too_late = self._has_ended
            if not is_too_late:
                self._waiting.update(receipts)
        if is_too_late:
            for settle in receipts.values():
                settle(self._lost())
            return
        with suppress(ConnectionLostError):  # those who wait were told when the session ended
            self.write(data)

    def forget(self, receipt: str) -> None:
        """Stop waiting for a receipt; when it comes it is dropped."""
        with self._state:
            self._waiting.pop(receipt, None)

    def ask(self, data: bytes, receipt: str, timeout: float) -> None:
        """Write encoded frames and wait for the receipt of one of them.

        Raises:
            SendFailedError: the broker answered with an ERROR.
            ConnectionLostError: the session ended before the answer.
            BrokerError: no answer within `timeout` seconds.
        """
        answers: SimpleQueue[BrokerError | None] = SimpleQueue()
        self.request(data, {receipt: answers.put})
        try:
            error = answers.get(timeout=max(0.0, timeout))
        except Empty:
            self.forget(receipt)
            raise BrokerError(f"{self._login} did not answer within {timeout:.1f} s") from None
        if error is not None:
            raise error

    def route(self, subscription: str, receive: Receive) -> None:
        """Hand what arrives for a subscription to `receive`."""
        self._receivers[subscription] = receive

    def unroute(self, subscription: str) -> None:
        """Drop what still arrives for a subscription: the broker delivers it again."""
        self._receivers.pop(subscription, None)

    def close(self, until: float, farewell: bytes = b"") -> None:
        """Write `farewell`, take leave, end the session and its threads before the monotonic clock shows `until`."""
        if self.is_up and self.server and self.writing.acquire(timeout=max(0.0, until - monotonic())):
            try:
                gone = Event()
                leave = pack("DISCONNECT", {"receipt": "leave"})
                self.request(farewell + leave, {"leave": lambda _: gone.set()})
            finally:
                self.writing.release()
            gone.wait(max(0.0, until - monotonic()))
            # Then the broker closes the socket; closing it here at the same moment makes stomp.py log a warning.
            self._join(min(until, monotonic() + BROKER_CLOSES))
        if self.is_up:
            self.drop()
        self._join(until)

    def _join(self, until: float) -> None:
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(max(0.0, until - monotonic()))

    def drop(self) -> None:
        """Close the socket. Everybody who waits is told."""
        with suppress(*FOREIGN):  # the reading thread may be closing it too
            self._engine.transport.disconnect_socket()
        self._end()

    def _start_reader(self, loop: Callable[[], None]) -> Thread:
        thread = Thread(target=loop, name=f"{self._login} reader", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self._login} was lost")

    def _end(self) -> None:
        with self._state:
            if self._has_ended:
                return
            self._has_ended = True
            waiting, self._waiting = self._waiting, {}
        self._receivers.clear()
        self._greeting.put(ConnectionFailedError(f"{self._login} closed the connection at login"))
        for settle in waiting.values():
            settle(self._lost())
        self._on_end()

    # What stomp.py calls, on its reading thread.

    def on_connected(self, frame: Any) -> None:
        """Pass the broker's greeting to `open`."""
        self._greeting.put(frame.headers)

    def on_message(self, frame: Any) -> None:
        """Pass a message to its subscription; one that has ended gets none."""
        receive = self._receivers.get(frame.headers.get("subscription"))
        if receive is not None:
            receive(frame.headers, frame.body)

    def on_receipt(self, frame: Any) -> None:
        """Tell who waits for the receipt."""
        self._settle(frame.headers.get("receipt-id"), None)

    def on_error(self, frame: Any) -> None:
        """Tell who waits for the receipt of the frame that was refused; log it if nobody does."""
        error = refusal(frame.headers, frame.body, self.dialect)
        if not self.server:
            self._greeting.put(ConnectionFailedError(f"{self._login}: {error}"))
        elif not self._settle(frame.headers.get("receipt-id"), error):
            log.warning("%s: a frame that asked for no receipt failed: %s", self._login, error)

    def on_disconnected(self) -> None:
        """Take note that the socket is closed, by whichever side."""
        self._end()

    def on_heartbeat_timeout(self) -> None:
        """Log why; stomp.py has closed the socket already."""
        log.warning("%s: no heart-beat from the broker in time", self._login)

    def _settle(self, receipt: str | None, error: BrokerError | None) -> bool:
        with self._state:
            settle = self._waiting.pop(receipt, None) if receipt is not None else None
        if settle is not None:
            settle(error)
        return settle is not None


def reason(error: BaseException) -> str:
    """Say in words why stomp.py could not connect; its own errors carry none."""
    return str(error) or "nobody listens there, or not any more"
