"""One AMQP connection: proton, the socket under it, and the thread that reads.

proton is not made for threads, so whoever uses it holds `lock`; what it wants written is written before the lock is
let go. The reading thread takes what arrives, has the links look at it, and only then, without the lock, does what they
asked for with `later`: it may lead into code that waits for others. Nothing about messages or consumers belongs here.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from threading import RLock, Thread, current_thread
from time import monotonic
from typing import Any, Final, NoReturn

from proton import Condition, Event, ProtonException, Session

from brokers.amqp.detours import DetourError, redirected
from brokers.amqp.dialling import Dial
from brokers.amqp.links import Link
from brokers.amqp.login import Login
from brokers.amqp.machine import Handlers, Machine
from brokers.amqp.outcomes import text_of
from brokers.amqp.waker import Waker
from brokers.errors import BrokerError, ConnectionFailedError, ConnectionLostError

log = logging.getLogger(__name__)

CHUNK: Final = 65_536
"""Octets that are read at once."""

READS: Final = 16
"""Chunks that are read before others get the lock."""

REDIRECT: Final = "amqp:connection:redirect"

WINDOW: Final = 1 << 20
"""Octets that the peer may send before they are taken."""

GOODBYE: Final = 0.5
"""Seconds that the thread gets to end."""

NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Engine:
    """One connection with one broker, from `open` until it ends; it is never opened again.

    Args:
        login: where to, and who asks.
        on_end: told once when it has ended, by whichever thread notices; it must not block.

    Attributes:
        lock: held while proton is used.
        login: where to, and who asks.
        product, version: what the broker calls itself.
    """

    def __init__(self, login: Login, on_end: Callable[[Engine], None]) -> None:
        self.lock = RLock()
        self.product: str | None = None
        self.version = ""
        self.login = login
        self._on_end = on_end
        self._dial = Dial(login)
        self._machine: Machine | None = None
        self._socket: socket.socket | None = None
        self._waker = Waker()
        self._thread: Thread | None = None
        self._out = b""
        self._deeds: deque[Callable[[], None]] = deque()
        self._links: dict[str, Link] = {}
        self._sessions: dict[Session, Callable[[Condition | None], None]] = {}
        self._names = 0
        self._has_ended = False
        self._why = ""
        self._greeting: SimpleQueue[BrokerError | None] = SimpleQueue()
        self._session: Session | None = None
        self._handlers: Handlers = {
            Event.CONNECTION_REMOTE_OPEN: self._on_connection_open,
            Event.CONNECTION_REMOTE_CLOSE: self._on_connection_close,
            Event.SESSION_REMOTE_OPEN: self._on_session_open,
            Event.SESSION_REMOTE_CLOSE: self._on_session_close,
            Event.LINK_REMOTE_OPEN: lambda event: self._tell(event.link, "opened"),
            Event.LINK_FLOW: lambda event: self._tell(event.link, "flowed"),
            Event.LINK_REMOTE_CLOSE: lambda event: self._tell_closed(event.link, event.link.close),
            Event.LINK_REMOTE_DETACH: lambda event: self._tell_closed(event.link, event.link.detach),
            Event.DELIVERY: self._on_delivery,
            Event.TRANSPORT_ERROR: self._on_transport_error,
        }

    def __str__(self) -> str:
        return f"{self.login}"

    @property
    def is_up(self) -> bool:
        """Whether anything can still be written and answered."""
        return not self._has_ended

    @property
    def offers_relay(self) -> bool:
        """Whether we asked for the anonymous terminus and the broker has it. Spec: anonymous terminus 2.3."""
        return self.login.relay and self._machine is not None and self._machine.offers_relay

    def open(self, timeout: float) -> None:
        """Connect, log in, open the connection and one session.

        Raises:
            ConnectionFailedError: nobody answers in time, or the broker does not let us in.
        """
        until = monotonic() + timeout
        try:
            self._socket = self._dial.connect(timeout)
            self._begin(Machine(self.login), self._socket)
            self._await_greeting(until, timeout)
        except OSError as error:
            self._abandon()
            raise self.login.explain(error) from error
        except BaseException:
            self._abandon()
            raise

    def _begin(self, machine: Machine, connected: socket.socket) -> None:
        self._machine = machine
        machine.connection.open()
        self._session = machine.connection.session()
        self._session.incoming_capacity = WINDOW
        self._session.open()
        with self.lock:
            self._flush()
        thread = Thread(target=self._run, args=(machine, connected), name=f"{self.login} reader", daemon=True)
        self._thread = thread
        thread.start()

    def _await_greeting(self, until: float, timeout: float) -> None:
        try:
            error = self._greeting.get(timeout=max(0.0, until - monotonic()))
        except Empty:
            raise ConnectionFailedError(f"{self.login} did not answer within {timeout:.1f} s") from None
        if error is not None:
            raise error

    def _abandon(self) -> None:
        self.drop()
        self._join(monotonic() + GOODBYE)
        if self._thread is None:
            self._hang_up()

    # For those who use proton

    @contextmanager
    def working(self) -> Iterator[Session]:
        """Hold the lock and have what proton wants written afterwards.

        Raises:
            ConnectionLostError: the connection has ended.
        """
        with self.lock:
            if self._has_ended or self._session is None:
                raise self.lost()
            yield self._session
            if current_thread() is not self._thread:  # which does it when it is done with all that arrived
                self._flush()

    def look_after(self, link: Link) -> str:
        """Return a name for a link that `link` is told about. With the lock held."""
        self._names += 1
        name = f"{self.login.container}-{self._names}"
        self._links[name] = link
        return name

    def look_after_named(self, name: str, link: Link) -> None:
        """Have `link` told about the link of this name. With the lock held."""
        self._links[name] = link

    def begin_session(self, ended: Callable[[Condition | None], None]) -> Session:
        """Begin another session, and have `ended` told when it has ended. With the lock held."""
        assert self._machine is not None
        session = self._machine.connection.session()
        session.incoming_capacity = WINDOW
        session.open()
        self._sessions[session] = ended
        return session

    def forget(self, name: str) -> None:
        """Tell nobody about a link any more. With the lock held."""
        self._links.pop(name, None)

    def later(self, deed: Callable[[], None]) -> None:
        """Have the reading thread do something once it holds no lock; after the end it is done at once."""
        if self._has_ended:
            deed()
        else:
            self._deeds.append(deed)

    def lost(self) -> ConnectionLostError:
        """Make the error of those who find that the connection has ended."""
        return ConnectionLostError(f"the connection to {self.login} was lost{self._why}")

    def close(self, until: float) -> None:
        """Take leave and end the thread before the monotonic clock shows `until`."""
        if self.is_up and self.lock.acquire(timeout=max(0.0, until - monotonic())):
            try:
                if self.is_up and self._machine is not None:
                    self._machine.connection.close()
                    self._flush()
            finally:
                self.lock.release()
            self._join(until)
        self.drop()
        self._join(max(until, monotonic() + GOODBYE))

    def drop(self) -> None:
        """End at once, waiting for nothing. Everybody who waits is told."""
        self._dial.drop()
        self._end(ConnectionFailedError(f"{self.login}: closed meanwhile"))

    def _join(self, until: float) -> None:
        thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join(max(0.0, until - monotonic()))

    def _end(self, error: BrokerError) -> None:
        with self.lock:
            if self._has_ended:
                return
            self._has_ended = True
            links, self._links = list(self._links.values()), {}
        self._waker.wake()
        self._greeting.put(error)
        for link in links:
            link.lost(self.lost())
        self._on_end(self)

    # Writing, with the lock held

    def _flush(self) -> None:
        """Write what there is to write, as far as the socket takes it; the reading thread writes the rest."""
        while not self._has_ended and self._machine is not None and self._socket is not None:
            self._out = self._out or self._machine.take()
            if not self._out:
                return
            try:
                self._out = self._out[self._socket.send(self._out) :]
            except OSError:  # no room now, or never again: the reading thread finds out
                self._waker.wake()
                return

    # Reading

    def _run(self, machine: Machine, connected: socket.socket) -> None:
        error: BrokerError = ConnectionFailedError(f"{self.login} closed the connection at login")
        try:
            with DefaultSelector() as selector:
                selector.register(self._waker, EVENT_READ)
                selector.register(connected, EVENT_READ)
                self._read_on(machine, selector, connected)
        except BrokerError as failed:
            error = failed
        except (OSError, ProtonException) as failed:
            error = ConnectionFailedError(f"{self.login}: {failed}")
        except Exception as failed:
            log.exception("%s: the reading thread failed", self.login)
            error = ConnectionFailedError(f"{self.login}: {failed!r}")
        self._do_deeds()
        self._end(error)
        self._do_deeds()
        self._hang_up()

    def _read_on(self, machine: Machine, selector: DefaultSelector, connected: socket.socket) -> None:
        goes_on = True
        while goes_on and not self._has_ended:
            with self.lock:
                wait = self._tick(machine)
                selector.modify(connected, EVENT_READ | (EVENT_WRITE if self._out else 0))
            selector.select(wait)
            self._waker.rest()
            with self.lock:
                try:
                    goes_on = self._read(machine, connected)
                finally:
                    self._flush()
            self._do_deeds()
        self._await_leave(machine, connected)

    def _await_leave(self, machine: Machine, connected: socket.socket) -> None:
        """Let the peer take leave of what is below AMQP, so that it finds no broken socket."""
        until = monotonic() + GOODBYE
        connected.settimeout(GOODBYE)
        while not machine.may_hang_up and monotonic() < until and (octets := connected.recv(CHUNK)):
            machine.feed(octets, self._handlers)

    def _tick(self, machine: Machine) -> float | None:
        """Let proton look at its clock, and return the seconds until it wants to do so again; None for never."""
        now = monotonic()
        due = machine.tick(now)
        machine.dispatch(self._handlers)
        self._flush()
        return None if due is None else max(0.0, due - now)

    def _read(self, machine: Machine, connected: socket.socket) -> bool:
        """Take what arrived; False at the end."""
        for _ in range(READS):
            try:
                octets = connected.recv(CHUNK)
            except NOT_NOW:
                return True
            machine.feed(octets, self._handlers)
            if not octets or machine.is_over:
                return False
            if len(octets) < CHUNK and not isinstance(connected, ssl.SSLSocket):
                return True
        self._waker.wake()
        return True

    def _do_deeds(self) -> None:
        while self._deeds:
            deed = self._deeds.popleft()
            try:
                deed()
            except Exception:
                log.exception("%s: what arrived could not be handled", self.login)

    def _hang_up(self) -> None:
        with self.lock:
            if self._socket is not None:
                self._socket.close()
            self._waker.close()
            if self._machine is not None:
                self._machine.end()

    # What proton tells

    def _on_connection_open(self, event: Any) -> None:
        properties = event.connection.remote_properties or {}
        product, version = properties.get("product"), properties.get("version")
        self.product = None if product is None else str(product)
        self.version = "" if version is None else str(version)

    def _on_connection_close(self, event: Any) -> None:
        condition = event.connection.remote_condition
        event.connection.close()
        if condition is not None and condition.name == REDIRECT:
            self._why = f": {text_of(condition)}"
            self._flush()
            login = redirected(self.login, condition.info)
            if login is not None:
                raise DetourError(f"{self.login} closed the connection{self._why}", login)
        self._fail("" if condition is None else text_of(condition))

    def _on_transport_error(self, event: Any) -> None:
        self._fail(text_of(event.transport.condition))

    def _fail(self, why: str) -> NoReturn:
        """End the connection for a reason that the broker gave, or that proton found."""
        self._why = f": {why}" if why else ""
        self._flush()
        raise ConnectionFailedError(f"{self.login} closed the connection{self._why}")

    def _on_session_open(self, event: Any) -> None:
        if event.session == self._session:
            self._greeting.put(None)

    def _on_session_close(self, event: Any) -> None:
        session = event.session
        if session != self._session:
            ended = self._sessions.pop(session, None)
            condition = session.remote_condition
            if ended is not None:
                ended(condition)
            session.close()
            session.free()
            return
        self._fail(f"the broker ended the session: {text_of(session.remote_condition)}")

    def _on_delivery(self, event: Any) -> None:
        link = self._links.get(event.link.name)
        if link is not None:
            link.delivered(event.delivery)

    def _tell(self, link: Any, what: str) -> None:
        looking = self._links.get(link.name)
        if looking is not None:
            getattr(looking, what)(link)

    def _tell_closed(self, link: Any, answer: Callable[[], None]) -> None:
        condition = link.remote_condition
        looking = self._links.pop(link.name, None)
        answer()
        if looking is not None:
            looking.closed(link, condition)
        link.free()
