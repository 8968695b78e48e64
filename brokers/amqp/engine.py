"""A client's connection to an AMQP broker: dialling, greeting, one session, and the interface of links.

`send.py`, `receive.py` and `coordinator.py` implement the links.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, NoReturn, Protocol, TypeVar

from proton import Condition, Endpoint, Event, Receiver, Sender, Session

from brokers.adapter.dial import Dial
from brokers.adapter.probe import wait_or_ask
from brokers.adapter.wrong_port import perhaps
from brokers.amqp.driver import JOIN_SECONDS, Driver
from brokers.amqp.endpoints import DetourError, redirected
from brokers.amqp.events import TRANSFER, key_of
from brokers.amqp.machine import MEBIBYTE, RELAY, AmqpMachine, Handlers, client_machine
from brokers.amqp.outcomes import CONNECTION_REDIRECT, LIMIT, NOT_ALLOWED, text_of
from brokers.amqp.transfers import Transfer, new_place, outgoing_octets
from brokers.amqp.url import AmqpLogin
from brokers.errors import BrokerError, ConnectionFailedError


def discard(delivery: Any) -> None:
    """Read and drop the data of a delivery on a link that is no longer used; proton would keep it otherwise."""
    link = delivery.link
    if delivery.pending and not delivery.aborted:
        link.recv(delivery.pending)
    if delivery.aborted or not delivery.partial:
        link.advance()
        delivery.settle()


class AmqpLink(Protocol):
    """The handler of one link. Called with the engine's lock held; it must not block."""

    def opened(self, link: Sender | Receiver) -> None:
        """The peer attached its end, or refused: then it has neither source nor target, and `closed` follows."""

    def flowed(self) -> None:
        """The credit has changed."""

    def delivered(self, transfer: Transfer) -> None:
        """Data arrived, or the state of a sent message has changed."""

    def let_go(self) -> bool:
        """Drop a partial message to free memory; return False if there is none."""
        return False

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """The peer detached its end, or answered our detach."""

    def lost(self, error: BrokerError) -> None:
        """The connection has ended. Called without the lock, by any thread, once."""


MAX_UNWRITTEN: Final = MEBIBYTE
"""Number of octets waiting for the broker to read beyond which nothing is sent and no credit given."""

MAX_UNREAD: Final = 16 * MEBIBYTE
"""Maximum number of octets, besides sent messages, that may wait for a broker that writes and does not read: far more
than settling all its deliveries takes."""


LinkT = TypeVar("LinkT", Sender, Receiver)


class WriteWaiter(Protocol):
    """A writer that waits for the broker to read first."""

    @property
    def is_held_up(self) -> bool:
        """Whether it still has to wait."""

    def go_on(self) -> None:
        """Write now. With the lock held."""


class AmqpEngine(Driver):
    """One connection to one broker, from `open` until it ends; it is never opened again.

    Args:
        login: address and login of the broker.
        on_end: called once when it has ended, by the thread that notices; it must not block.

    Attributes:
        login: address and login of the broker.
        product, version: the broker's name and version.
        place: memory for arriving messages, for use with the lock held.
        offers_relay: whether we asked for the anonymous terminus and the broker has it. Spec: anonymous terminus 2.3.
    """

    def __init__(self, login: AmqpLogin, on_end: Callable[[AmqpEngine], None]) -> None:
        super().__init__(f"{login}")
        self.product: str | None = None
        self.version = ""
        self.offers_relay = False
        self.login = login
        self._on_end = on_end
        self._dial = Dial(login)
        self._links: dict[Any, tuple[Any, AmqpLink]] = {}  # by the key of the link, which is valid while it is kept
        self._sessions: dict[Session, Callable[[Condition | None], None]] = {}
        self._leaving: set[Session] = set()
        self._names = 0
        self.place = new_place()
        self._largest = 0
        self._room = 0  # octets that may be sent before `is_behind` has to look again
        self._patient: dict[WriteWaiter, None] = {}  # in the order in which they began to wait
        self._is_opened = False
        self._is_greeted = False
        self._greeting: SimpleQueue[BrokerError | None] = SimpleQueue()
        self._session: Session | None = None
        self._at: Handlers = {
            Event.CONNECTION_REMOTE_OPEN: self._on_connection_open,
            Event.CONNECTION_REMOTE_CLOSE: self._on_connection_close,
            Event.SESSION_REMOTE_OPEN: self._on_session_open,
            Event.SESSION_REMOTE_CLOSE: self._on_session_close,
            Event.LINK_REMOTE_OPEN: self._on_link_open,
            Event.LINK_FLOW: self._on_link_flow,
            Event.LINK_REMOTE_CLOSE: lambda event: self._tell_closed(event.link, event.link.close),
            Event.LINK_REMOTE_DETACH: lambda event: self._tell_closed(event.link, event.link.detach),
            TRANSFER: self._on_transfer,
            Event.TRANSPORT_ERROR: self._on_transport_error,
        }

    @property
    def _handlers(self) -> Handlers:
        return self._at

    def open(self, timeout: float) -> None:
        """Connect, log in, open the connection and one session.

        Raises:
            ConnectionFailedError: the broker did not answer in time, or refused the login.
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
            error = wait_or_ask(lambda seconds: self._greeting.get(timeout=seconds), self.login, until, self._is_silent)
        except Empty:
            raise self._explain(f"did not answer within {timeout:.1f} s") from None
        if error is not None:
            raise error

    def _is_silent(self) -> bool:
        return self.login.tls is None and self._machine is not None and not self._machine.heard

    def _explain(self, why: str) -> BrokerError:
        heard = b"" if self._machine is None else self._machine.heard
        return ConnectionFailedError(f"{self.login} {why}{self._advice if heard else perhaps(self.login)}")

    @property
    def _advice(self) -> str:
        """The end of an error text if the broker let the user in, and did not open the connection: RabbitMQ ends it so,
        without a reason, for a virtual host that there is not, or to which the user has no right."""
        if self._is_opened or self._machine is None or not self._machine.is_let_in:
            return ""
        name = self.login.virtual_host
        if name is None:
            wrong = "this user has no right to its virtual host, which virtualHost in the URL names"
        else:
            wrong = f"it has no virtual host {name!r}, or this user no right to it"
        return f"; the login was right: perhaps {wrong}"

    def _abandon(self) -> None:
        self.drop()
        self._join(monotonic() + JOIN_SECONDS)
        if self._thread is None:
            self._hang_up()

    # Used by the links

    @property
    def session(self) -> Session:
        """The session of all links that send. With the lock held."""
        assert self._session is not None  # from `open` on
        return self._session

    @property
    def is_unread(self) -> bool:
        """Whether so much waits for the broker to read that it gets no more credit.

        What waits for its session window counts only while it does not read at all, as proton may not have encoded it.
        """
        return bool(self._out) and self.unwritten + outgoing_octets(self._session) > MAX_UNWRITTEN

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the broker, or for its session window, that nothing more is sent."""
        if self._room > 0:
            return False
        self._room = MAX_UNWRITTEN - self.unwritten - outgoing_octets(self._session)
        return self._room < 0

    def note_sent(self, octets: int) -> None:
        """Record the size of a message to be written. With the lock held."""
        self._room -= octets
        if octets > self._largest:
            self._largest = octets

    def wait(self, patient: WriteWaiter) -> None:
        """Call `go_on` of a writer once it need not wait. With the lock held."""
        self._patient[patient] = None

    def _flush(self) -> None:
        super()._flush()
        while self._patient and self.is_up and (ready := [each for each in self._patient if not each.is_held_up]):
            for each in ready:
                del self._patient[each]
                each.go_on()
            super()._flush()

    def _tick(self, machine: AmqpMachine) -> float | None:
        # While `is_behind`, the output has at most one message, which frames make at most twice as large.
        if self._out and self.unwritten > MAX_UNREAD + 2 * self._largest:
            self.break_off(LIMIT, f"the broker keeps writing and does not read: {self.unwritten} octets wait for it")
        return super()._tick(machine)

    def new_name(self) -> str:
        """Return a name for a link. With the lock held."""
        self._names += 1
        return f"{self.login.container}-{self._names}"

    def _let_go(self) -> bool:
        return any(each.let_go() for _, each in self._links.values())

    def look_after(self, link: LinkT, who: AmqpLink) -> LinkT:
        """Register `who` as the handler of a link, and return the link. With the lock held.

        Links are not registered by name: a new one may have the name before the broker confirms the end of the old one.
        """
        self._links[key_of(link)] = link, who
        return link

    def begin_session(self, ended: Callable[[Condition | None], None]) -> Session:
        """Begin another session, and call `ended` when it has ended. With the lock held.

        Sessions have no window: credit limits what may arrive, and it is handled at once. Qpid Broker-J checks a window
        only between messages; and if data after the end of a link uses a window up, proton reopens it in the name of
        that link, which ends the connection (seen with 0.40).

        Raises:
            BrokerError: the broker allows no more sessions on one connection. An ended one counts until the broker has
                confirmed its end.
        """
        assert self._machine is not None
        allowed = self._machine.max_sessions
        if len(self._sessions) + 1 >= allowed:
            raise BrokerError(
                f"{self} allows {allowed} sessions on a connection, one for each consumer until its end is confirmed, "
                "and one for everything else: open another connection for further consumers"
            )
        session = self._machine.connection.session()
        session.open()
        self._sessions[session] = ended
        return session

    def end_session(self, session: Session) -> None:
        """End a session, once the broker has answered its beginning: proton does not know its channel after the end.

        It would take the broker's `begin` for a violation, and close the connection. With the lock held.
        """
        if session.state & Endpoint.REMOTE_UNINIT:
            self._leaving.add(session)
        else:
            session.close()

    def require_no_message(self) -> None:
        """Close the connection if the broker sent a message on a link that sends: proton would keep it for ever.

        Called by the handlers of these links for what is no answer to a message of theirs. With the lock held.

        Raises:
            ConnectionFailedError: there is a message; no other link of this session receives any.
        """
        if self.session.incoming_bytes:
            self.break_off(NOT_ALLOWED, "the broker sent a message on a link on which only the client sends")

    def forget(self, link: Sender | Receiver | None) -> None:
        """Unregister the handler of a link. With the lock held."""
        if link is not None:
            self._links.pop(key_of(link), None)

    def drop(self) -> None:
        """End at once, without waiting. All waiting callers are informed."""
        self._dial.drop()
        super().drop()

    def _ended(self, error: BrokerError) -> None:
        with self.lock:
            links, self._links = list(self._links.values()), {}
        self._greeting.put(error)
        for _, who in links:
            who.lost(self.lost())
        self._on_end(self)

    # Handlers of proton's events

    def _on_connection_open(self, event: Any) -> None:
        self._is_opened = True
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
        if condition is not None and condition.name == CONNECTION_REDIRECT:
            self._why = f": {text_of(condition)}"
            self._flush()
            login = redirected(self.login, condition.info)
            if login is not None:
                raise DetourError(f"{self.login} closed the connection{self._why}", login)
        self._fail("" if condition is None else text_of(condition))

    def _on_transport_error(self, event: Any) -> None:
        self._fail(text_of(event.transport.condition))

    def _fail(self, why: str) -> NoReturn:
        """End the connection for a reason given by the broker or found by proton."""
        self._why = f": {why}" if why else ""
        self._flush()
        raise ConnectionFailedError(f"{self.login} closed the connection{self._why}{self._advice}")

    def _on_session_open(self, event: Any) -> None:
        if event.session.state & Endpoint.LOCAL_UNINIT:
            self.break_off(NOT_ALLOWED, "the broker began a session, but only the client may begin sessions")
        if event.session in self._leaving:
            self._leaving.remove(event.session)
            event.session.close()
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
            self.break_off(NOT_ALLOWED, "the broker attached a link, but only the client may attach links")
        found = self._links.get(event.link_key)
        if found is not None:
            found[1].opened(event.link)

    def _on_link_flow(self, event: Any) -> None:
        found = self._links.get(event.link_key)
        if found is not None:
            found[1].flowed()

    def _on_transfer(self, link_key: Any, transfer: Transfer) -> None:
        found = self._links.get(link_key)
        if found is not None:
            found[1].delivered(transfer)

    def _tell_closed(self, link: Any, answer: Callable[[], None]) -> None:
        condition = link.remote_condition
        found = self._links.pop(key_of(link), None)
        answer()
        if found is not None:
            found[1].closed(link, condition)
        link.free()
