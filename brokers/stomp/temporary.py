"""Additional sessions of a connection, whose temporary queues can end before the connection does.

ActiveMQ Classic ends a temporary queue only with the session that made it. So a queue that must end earlier is made in
an additional session, an *annex*, together with some others; the annex is closed when the last of them has ended.
Messages sent over the connection's own session use the broker's name of such a queue: the session's name, which
CONNECTED tells, and a number. This is verified before a queue is used: a message sent to that name must arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from time import monotonic
from typing import Final, NamedTuple

from brokers import events
from brokers.errors import BrokerError
from brokers.message import Destination, DestinationKind
from brokers.stomp.codec import pack
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC
from brokers.stomp.session import SUBSCRIBE, StompSession, SubscriptionRoute
from brokers.threads.timer import left

MAX_ANNEX_QUEUES: Final = 50
"""Maximum number of queues in one annex; it is small, because the broker keeps them until the last has ended."""

ANNEX_SECONDS: Final = 5.0
"""Time limit for making a queue, and for closing an annex, in seconds."""

ANNEX_RETRY_SECONDS: Final = 60.0
"""Pause after a queue could not be made, in seconds."""

QUEUE: Final = DestinationKind.TEMPORARY_QUEUE


class Home(NamedTuple):
    """The session that consumes from a queue, and its name there."""

    link: StompSession
    own: Destination


@dataclass(slots=True, eq=False)
class Annex:
    """One additional session.

    Attributes:
        queues: the queues that have not ended, by the broker's address for them.
        made: number of queues that were made so far.
        is_ours: whether it is in use; otherwise its end does not matter.
    """

    link: StompSession
    queues: dict[str, Home] = field(default_factory=dict)
    made: int = 0
    is_ours: bool = False


class Annexes:
    """All annexes of one generation of a connection. Thread-safe.

    Args:
        main: the connection's own session. It is dropped when an annex is lost, because all destinations of a
            generation must end together.
        new_id: returns unused identifiers.
    """

    def __init__(self, main: StompSession, new_id: Callable[[str], str]) -> None:
        self.main = main
        self._new_id = new_id
        self._making = Lock()
        self._annexes: list[Annex] = []
        self._not_before = 0.0
        self._is_over = False

    def make(self, name: str) -> Destination:
        """Make a queue, which is called `name` in its session.

        Raises:
            BrokerError: no further session could be opened, or the broker's name of the queue is not as expected.
        """
        until = monotonic() + ANNEX_SECONDS
        with self._making:
            if monotonic() < self._not_before:
                raise BrokerError("a moment ago no further session could be opened")
            try:
                annex = next((each for each in self._annexes if each.made < MAX_ANNEX_QUEUES), None) or self._open(
                    until
                )
                return self._make_in(annex, name, until)
            except BrokerError as error:
                self._not_before = monotonic() + ANNEX_RETRY_SECONDS
                events.STOMP_TEMPORARIES_STAY.log(self.main, error)
                raise

    def _make_in(self, annex: Annex, name: str, until: float) -> Destination:
        annex.made += 1
        broker_name = f"{annex.link.session}:{annex.made}"
        made = Destination(QUEUE, broker_name, address=ACTIVEMQ_CLASSIC.prefixes[QUEUE] + broker_name)
        home = Home(annex.link, Destination(QUEUE, None, address=name))
        try:
            self._try(home, made, until)
        except BaseException:
            annex.made = MAX_ANNEX_QUEUES  # its numbers cannot be trusted, so no more queues are made there
            if not annex.queues:
                self._annexes.remove(annex)
                annex.is_ours = False
                annex.link.drop()
            raise
        annex.queues[made.address or ""] = home
        return made

    def home(self, destination: Destination) -> Home | None:
        """Return the session that consumes from a queue; None for a queue without annex."""
        found = (each.queues.get(destination.address or "") for each in list(self._annexes))
        return next((each for each in found if each is not None), None)

    def end(self, destination: Destination) -> bool:
        """End a queue, and its annex with the last one; return False for a queue without annex."""
        with self._making:
            annex = next((each for each in self._annexes if each.queues.pop(destination.address or "", None)), None)
            if annex is None:
                return False
            if annex.queues:
                return True
            self._annexes.remove(annex)
        annex.is_ours = False
        annex.link.close(monotonic() + ANNEX_SECONDS, lambda: b"")
        return True

    def close(self, until: float) -> None:
        """Close all sessions before the monotonic clock shows `until`."""
        self._is_over = True
        for annex in list(self._annexes):
            annex.is_ours = False
            annex.link.close(until, lambda: b"")

    def drop(self) -> None:
        """End all sessions at once, without waiting."""
        self._is_over = True
        for annex in list(self._annexes):
            annex.is_ours = False
            annex.link.drop()

    def _open(self, until: float) -> Annex:
        login = replace(self.main.login, client_id=None)  # only one session may have the client id
        annex = Annex(StompSession(login, lambda _: self._note_end(annex)))
        annex.link.open(left(until))
        self._annexes.append(annex)
        annex.is_ours = True
        if self._is_over:
            self.drop()
            raise self.main.lost()
        return annex

    def _note_end(self, annex: Annex) -> None:
        if annex.is_ours:
            self.main.drop()

    def _try(self, home: Home, made: Destination, until: float) -> None:
        """Check a queue: send a message to it by the one name, and receive it by the other."""
        came, subscription = Event(), self._new_id("subscription")
        route = SubscriptionRoute(home.own.address or "", lambda headers, body: came.set(), lambda why: None)
        home.link.route(subscription, route)
        try:
            self._ask(home.link, "SUBSCRIBE", {"id": subscription, "destination": home.own.address or ""}, until)
            self._ask(self.main, "SEND", {"destination": made.address or "", "content-length": "0"}, until)
            if not came.wait(left(until)):
                raise BrokerError(f"{home.link}: a message to {made} did not arrive there")
        finally:
            home.link.unroute(subscription)
        self._ask(home.link, "UNSUBSCRIBE", {"id": subscription}, until)

    def _ask(self, link: StompSession, command: str, headers: dict[str, str], until: float) -> None:
        receipt = self._new_id(SUBSCRIBE if command == "SUBSCRIBE" else "receipt")
        link.ask(pack(command, headers | {"receipt": receipt}), receipt, until - monotonic())
