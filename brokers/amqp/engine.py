"""A client's connection with an AMQP broker: dialling, greeting, one session, and what looks after each link.

What a link has to be told is defined here; what goes over a link is in `send.py`, `receive.py` and `coordinator.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, NoReturn, Protocol, TypeVar

from proton import Condition, Delivery, Endpoint, Event, Receiver, Sender, Session

from brokers.amqp.dial import Dial
from brokers.amqp.driver import JOIN_SECONDS, Driver
from brokers.amqp.endpoints import DetourError, redirected
from brokers.amqp.machine import RELAY, AmqpMachine, Handlers, client_machine
from brokers.amqp.outcomes import LIMIT, NOT_ALLOWED, text_of
from brokers.amqp.url import AmqpLogin
from brokers.amqp.wrong_port import perhaps
from brokers.errors import BrokerError, ConnectionFailedError


def discard(delivery: Any) -> None:
    """Take what came of a delivery, and drop it: for links that nobody takes from any more, as proton would keep it."""
    link = delivery.link
    if delivery.pending and not delivery.aborted:
        link.recv(delivery.pending)
    if delivery.aborted or not delivery.partial:
        link.advance()
        delivery.settle()


class AmqpLink(Protocol):
    """What looks after one link. Called with the engine's lock held; it must not block."""

    def opened(self, link: Sender | Receiver) -> None:
        """The peer attached its end, or refuses to: then it has neither source nor target, and closes at once."""

    def flowed(self, link: Sender | Receiver) -> None:
        """There is credit, or less of it."""

    def delivered(self, delivery: Delivery) -> None:
        """Something arrived, or the state of what was sent has changed."""

    def let_go(self) -> bool:
        """Let go what came of a message, for want of memory; False if there is nothing to let go."""
        return False

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """The peer detached its end, or the answer to our detaching came."""

    def lost(self, error: BrokerError) -> None:
        """The connection has ended. Called without the lock, by any thread, once."""


REDIRECT: Final = "amqp:connection:redirect"

MEBIBYTE: Final = 1 << 20

MAX_UNWRITTEN: Final = MEBIBYTE
"""Octets that wait for the broker to read before nothing more is sent, and no more messages are asked for."""

MAX_UNREAD: Final = 16 * MEBIBYTE
"""Octets, besides what is sent, that may wait for a broker that writes and does not read: far more than it takes to
settle all that it was asked for."""


LinkT = TypeVar("LinkT", Sender, Receiver)


class WriteWaiter(Protocol):
    """Who has something to say, and waits for the broker to read first."""

    @property
    def is_held_up(self) -> bool:
        """Whether it has to wait still."""

    def go_on(self) -> None:
        """Say it now; with the lock held."""


class AmqpEngine(Driver):
    """One connection with one broker, from `open` until it ends; it is never opened again.

    Args:
        login: where to, and who asks.
        on_end: told once when it has ended, by whichever thread notices; it must not block.

    Attributes:
        login: where to, and who asks.
        product, version: what the broker calls itself.
        offers_relay: we asked for the anonymous terminus and the broker has it. Spec: anonymous terminus 2.3.
    """

    def __init__(self, login: AmqpLogin, on_end: Callable[[AmqpEngine], None]) -> None:
        super().__init__(f"{login}")
        self.product: str | None = None
        self.version = ""
        self.offers_relay = False
        self.login = login
        self._on_end = on_end
        self._dial = Dial(login)
        self._links: dict[int, tuple[Any, AmqpLink]] = {}  # by the hash of the link, which stays as long as it is here
        self._sessions: dict[Session, Callable[[Condition | None], None]] = {}
        self._names = 0
        self._largest = 0
        self._patient: dict[WriteWaiter, None] = {}  # in the order in which they began to wait
        self._is_greeted = False
        self._greeting: SimpleQueue[BrokerError | None] = SimpleQueue()
        self._session: Session | None = None
        self._at: Handlers = {
            Event.CONNECTION_REMOTE_OPEN: self._on_connection_open,
            Event.CONNECTION_REMOTE_CLOSE: self._on_connection_close,
            Event.SESSION_REMOTE_OPEN: self._on_session_open,
            Event.SESSION_REMOTE_CLOSE: self._on_session_close,
            Event.LINK_REMOTE_OPEN: self._on_link_open,
            Event.LINK_FLOW: lambda event: self._tell(event.link, "flowed"),
            Event.LINK_REMOTE_CLOSE: lambda event: self._tell_closed(event.link, event.link.close),
            Event.LINK_REMOTE_DETACH: lambda event: self._tell_closed(event.link, event.link.detach),
            Event.DELIVERY: self._on_delivery,
            Event.TRANSPORT_ERROR: self._on_transport_error,
        }

    @property
    def _handlers(self) -> Handlers:
        return self._at

    def open(self, timeout: float) -> None:
        """Connect, log in, open the connection and one session.

        Raises:
            ConnectionFailedError: nobody answers in time, or the broker does not let us in.
        """
        until = monotonic() + timeout
        try:
            connected = self._socket = self._dial.connect(timeout)
            machine = client_machine(self.login)
            machine.connection.open()
            self._session = machine.connection.session()
            self._session.open()
            self._start(machine, connected)
            self._await_greeting(until, timeout)
        except OSError as error:
            self._abandon()
            raise self.login.explain(error) from error
        except BaseException:
            self._abandon()
            raise

    def _await_greeting(self, until: float, timeout: float) -> None:
        try:
            error = self._greeting.get(timeout=max(0.0, until - monotonic()))
        except Empty:
            raise self._explain(f"did not answer within {timeout:.1f} s") from None
        if error is not None:
            raise error

    def _explain(self, why: str) -> BrokerError:
        heard = b"" if self._machine is None else self._machine.heard
        return ConnectionFailedError(f"{self.login} {why}{'' if heard else perhaps(self.login)}")

    def _abandon(self) -> None:
        self.drop()
        self._join(monotonic() + JOIN_SECONDS)
        if self._thread is None:
            self._hang_up()

    # For those who use proton

    @contextmanager
    def working(self) -> Iterator[Session]:
        """Hold the lock and have what proton wants written afterwards.

        Raises:
            ConnectionLostError: the connection has ended.
        """
        with self.held():
            assert self._session is not None  # from `open` on
            yield self._session

    @property
    def is_unread(self) -> bool:
        """Whether so much waits for the broker to read that nothing more is to be asked for."""
        return self.unwritten > MAX_UNWRITTEN

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the broker to read, or to take by its session's window, that nothing is sent."""
        assert self._session is not None
        return self.unwritten + self._session.outgoing_bytes > MAX_UNWRITTEN

    def note_sent(self, octets: int) -> None:
        """Note the size of a message that is to be written. With the lock held."""
        self._largest = max(self._largest, octets)

    def wait(self, patient: WriteWaiter) -> None:
        """Have somebody told to go on once nothing holds it up. With the lock held."""
        self._patient[patient] = None

    def _flush(self) -> None:
        super()._flush()
        while self.is_up and (ready := [each for each in self._patient if not each.is_held_up]):
            for each in ready:
                del self._patient[each]
                each.go_on()
            super()._flush()

    def _tick(self, machine: AmqpMachine) -> float | None:
        # While this is behind no more than one message is among it, which frames make at most twice as large.
        if self.unwritten > MAX_UNREAD + 2 * self._largest:
            self.break_off(LIMIT, f"the broker goes on writing, and reads nothing: {self.unwritten} octets wait for it")
        return super()._tick(machine)

    def new_name(self) -> str:
        """Return a name for a link. With the lock held."""
        self._names += 1
        return f"{self.login.container}-{self._names}"

    def _let_go(self) -> bool:
        return any(each.let_go() for _, each in self._links.values())

    def look_after(self, link: LinkT, who: AmqpLink) -> LinkT:
        """Have `who` told about a link, which is returned. With the lock held.

        Not by its name: another may have that before the broker has answered the end of this one.
        """
        self._links[hash(link)] = link, who
        return link

    def begin_session(self, ended: Callable[[Condition | None], None]) -> Session:
        """Begin another session, and have `ended` told when it has ended. With the lock held.

        Sessions have no window of their own: credit says what may come, and it is taken at once. Qpid Broker-J looks at
        a window only between messages; and one that is used up by what follows the end of a link proton opens again in
        the name of that link, which ends the connection (seen with 0.40).
        """
        assert self._machine is not None
        session = self._machine.connection.session()
        session.open()
        self._sessions[session] = ended
        return session

    def forget(self, link: Sender | Receiver | None) -> None:
        """Tell nobody about a link any more. With the lock held."""
        if link is not None:
            self._links.pop(hash(link), None)

    def drop(self) -> None:
        """End at once, waiting for nothing. Everybody who waits is told."""
        self._dial.drop()
        super().drop()

    def _ended(self, error: BrokerError) -> None:
        with self.lock:
            links, self._links = list(self._links.values()), {}
        self._greeting.put(error)
        for _, who in links:
            who.lost(self.lost())
        self._on_end(self)

    # What proton tells

    def _on_connection_open(self, event: Any) -> None:
        offered = event.connection.remote_offered_capabilities or ()
        self.offers_relay = self.login.relay and RELAY in offered
        properties = event.connection.remote_properties
        if not isinstance(properties, dict):
            return
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
        if event.session.state & Endpoint.LOCAL_UNINIT:
            self.break_off(NOT_ALLOWED, "the broker began a session, and sessions are this client's to begin")
        if event.session == self._session and not self._is_greeted:
            self._is_greeted = True
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

    def _on_link_open(self, event: Any) -> None:
        if event.link.state & Endpoint.LOCAL_UNINIT:
            self.break_off(NOT_ALLOWED, "the broker attached a link, and links are this client's to attach")
        self._tell(event.link, "opened")

    def _on_delivery(self, event: Any) -> None:
        found = self._links.get(event.link_key)
        if found is not None:
            found[1].delivered(event.delivery)

    def _tell(self, link: Any, what: str) -> None:
        found = self._links.get(hash(link))
        if found is not None:
            getattr(found[1], what)(link)

    def _tell_closed(self, link: Any, answer: Callable[[], None]) -> None:
        condition = link.remote_condition
        found = self._links.pop(hash(link), None)
        answer()
        if found is not None:
            found[1].closed(link, condition)
        link.free()
