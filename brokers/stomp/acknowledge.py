"""Acknowledgement over STOMP, in batches.

With STOMP's own `ack:auto` a broker sends as fast as it can, so messages for a slow consumer pile up in this process;
and it forgets a message when it writes it, so messages in flight are lost with the connection. Therefore the messages
of an `auto_accept` consumer are acknowledged here, after `on_delivery` has returned: the broker never has more in
flight than the prefetch, keeps the rest itself, and redelivers unacknowledged messages. The ACKs are sent in batches,
which costs little. Only a lazy consumer of a topic uses `ack:auto`: its copies are lost with the connection anyway, and
it takes messages as fast as they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

from brokers.errors import BrokerError
from brokers.stomp.codec import pack
from brokers.stomp.dialect import MIN_FRAME_OCTETS
from brokers.stomp.frames import acknowledgement
from brokers.stomp.session import Settle, StompSession
from brokers.threads.timer import Later

WINDOW_PARTS: Final = 4
"""Divisor of the prefetch: ACKs are sent when this part of the window is done, so that the broker can keep sending."""

ACK_SECONDS: Final = 0.2
"""Time after which ACKs are sent anyway, in seconds."""

SMALL_BODY_OCTETS: Final = 1024
"""Maximum size of a body that is kept with its message until the ACK, in octets: dropping it would cost more."""

MAX_STRANGERS: Final = 1000
"""Maximum number of senders remembered in a session; beyond it all are forgotten, and detected again."""


@dataclass(slots=True, eq=False)
class StompSubscription:
    """One SUBSCRIBE and its end. Its state changes only while the link's `writing` is held.

    Attributes:
        is_begun: whether SUBSCRIBE was written.
        is_live: whether it has not ended.
        is_leaving: whether it is about to end, so that its messages are left to the next subscription.
        is_untold: whether the broker counts messages as accepted when it writes them, and gets no ACKs.
        is_due: whether it must end once all its running operations have ended.
        last: the `ack` header of the last message; for the reading thread.
    """

    id: str
    link: StompSession
    generation: int
    is_begun: bool = False
    is_live: bool = True
    is_leaving: bool = False
    is_untold: bool = False
    is_due: bool = False
    last: str = ""


class StompArrival(NamedTuple):
    """A MESSAGE frame as it arrived, with its subscription.

    If it was above the limit, its body of `size` octets was skipped, and `refusal` says why. `mark` is the hash of a
    dropped body. `is_own` says whether its id may have been given by the broker.
    """

    subscription: StompSubscription
    headers: Mapping[str, str]
    body: bytes
    is_own: bool
    size: int = 0
    refusal: str = ""
    mark: int | None = None
    read_at: float | None = None

    @property
    def can_be_named(self) -> bool:
        """Whether an ACK or a NACK can name the message; see `brokers.stomp.collection`."""
        link = self.subscription.link
        if link.dialect.own_ids is None or self.subscription.is_untold:
            return True
        return self.is_own and (not link.strangers or self._sender not in link.strangers)

    @property
    def is_plain(self) -> bool:
        """Whether the broker expects an ACK for the message and knows it by the id that is in it, without doubt."""
        subscription = self.subscription
        link = subscription.link
        if subscription.is_untold or link.dialect.doubtful in self.headers:
            return False
        return (self.is_own and not link.strangers) or self.can_be_named

    @property
    def _sender(self) -> int:
        return hash(self.headers.get("message-id", "").rpartition(":")[0])

    @property
    def is_doubtful(self) -> bool:
        """Whether the broker may know the message by another id, although this one looks like the broker's own."""
        return self.subscription.link.dialect.doubtful in self.headers

    def note_unknown(self) -> None:
        """Record that the broker found no message for an ACK; it will not find others of the same sender either."""
        strangers = self.subscription.link.strangers
        if len(strangers) >= MAX_STRANGERS:
            strangers.clear()
        strangers.add(self._sender)

    def without_body(self) -> StompArrival:
        """Return the arrival to keep until it is acknowledged: without its body, unless that is small."""
        if len(self.body) <= SMALL_BODY_OCTETS and not self.is_doubtful:
            return self
        mark = hash(self.body) if self.is_doubtful and self.mark is None else self.mark
        return StompArrival(self.subscription, self.headers, b"", self.is_own, self.size, self.refusal, mark)


new_arrival: Final[Callable[[tuple[Any, ...]], StompArrival]] = partial(tuple.__new__, StompArrival)
"""Make an arrival of its eight parts, in half the time of `StompArrival`."""


class Acceptances:
    """The messages of a consumer that are done, but not acknowledged yet.

    Args:
        prefetch: number of messages that the broker may have in flight.
        submit: runs a function soon, on another thread.
        later: runs a function after some seconds.
        acknowledge: returns an ACK and the callbacks for its receipt; its second argument is called if the broker does
            not know the message.
        collect: ends the subscription of an arrival once `on_delivery` has returned, and takes the messages that no ACK
            can name.
    """

    def __init__(
        self,
        prefetch: int,
        submit: Callable[[Callable[[], None]], None],
        later: Later,
        acknowledge: Callable[[StompArrival, Callable[[StompArrival], None]], tuple[bytes, Mapping[str, Settle]]],
        collect: Callable[[StompArrival], None],
    ) -> None:
        self._prefetch = prefetch
        self._submit = submit
        self._later = later
        self._acknowledge = acknowledge
        self._collect = collect
        self._lock = Lock()
        self._done: list[StompArrival] = []
        self._octets = 0
        self._is_asked = self._is_timed = False
        self._awaits_answer = False

    def note(self, arrival: StompArrival) -> None:
        """Record that a message is accepted. Does not block, so the reading thread may call it."""
        with self._lock:
            if self._done and self._done[-1].subscription is not arrival.subscription:
                self._done.clear()  # of an earlier subscription: redelivered, or lost with it
                self._octets = 0
            self._done.append(arrival.without_body())
            self._octets += len(arrival.body) + arrival.size
            share = max(len(self._done), self._octets // MIN_FRAME_OCTETS) * WINDOW_PARTS
            if share >= self._prefetch and not arrival.can_be_named:
                share = len(self._done)
            ask, self._is_asked = share >= self._prefetch and not self._is_asked, share >= self._prefetch
            time, self._is_timed = not self._is_timed, True
        if ask:
            self._submit(self._tell_in_turn)
        elif time:
            self._later(ACK_SECONDS, self._tell_in_time)

    @property
    def are_left(self) -> bool:
        """Whether there are accepted messages without ACK."""
        return bool(self._done)

    def tell(self) -> None:
        """Send the pending ACKs now, except for messages that no ACK can name."""
        with self._lock:
            subscription = self._done[-1].subscription if self._done else None
        if subscription is not None:
            with subscription.link.writing:
                subscription.link.request(*self.frames(subscription))

    def _tell_in_turn(self) -> None:
        """Send the pending ACKs; collect the rest if the window is full."""
        with self._lock:
            is_full = len(self._done) >= self._prefetch
        self.tell()
        if is_full:
            self._collect_rest()

    def _tell_all(self) -> None:
        self.tell()
        self._collect_rest()

    def _collect_rest(self) -> None:
        with self._lock:
            last = self._done[-1] if self._done else None
        if last is not None and not last.can_be_named:
            self._collect(last)

    def frames(self, subscription: StompSubscription) -> tuple[bytes, dict[str, Settle]]:
        """Return the ACK frames for a subscription, and the callbacks for receipts. With the link's `writing` held."""
        with self._lock:
            if self._awaits_answer:  # a later ACK would cover messages that the pending one may not
                return b"", {}
            done = self._take(subscription, lambda each: each.can_be_named)
        frames: list[bytes] = []
        receipts: dict[str, Settle] = {}
        is_cumulative = subscription.link.dialect.accepts_earlier
        for each in done[-1:] if is_cumulative else done:
            data, asked = self._acknowledge(each, partial(self._note_unknown, done if is_cumulative else [each]))
            frames.append(data)
            receipts |= {receipt: partial(self._note_answer, settle) for receipt, settle in asked.items()}
        self._awaits_answer = bool(receipts)
        return b"".join(frames), receipts

    def _note_answer(self, settle: Settle, error: BrokerError | None) -> None:
        settle(error)
        self._awaits_answer = False
        if self._done:
            self._submit(self._tell_in_turn)

    def last_frames(self, subscription: StompSubscription) -> tuple[bytes, list[StompArrival]]:
        """Return the ACK frames of a subscription that ends now, and the messages that they may not cover."""
        with self._lock:
            done = self._take(subscription, lambda each: each.can_be_named and not each.is_doubtful)
            rest, self._done = self._done, []
        dialect = subscription.link.dialect
        told = done[-1:] if dialect.accepts_earlier else done
        return b"".join(pack("ACK", acknowledgement(each.headers, dialect)) for each in told), rest

    def _take(self, subscription: StompSubscription, is_named: Callable[[StompArrival], bool]) -> list[StompArrival]:
        """Take the messages up to the last one that an ACK can name. With the lock held."""
        self._octets = 0
        self._is_asked = False
        done = self._done
        if done and done[-1].subscription is subscription and subscription.is_live and not subscription.is_untold:
            count = next((position for position in range(len(done), 0, -1) if is_named(done[position - 1])), 0)
            self._done = done[count:]
            return done[:count]
        self._done = []
        return []

    def _note_unknown(self, covered: Sequence[StompArrival], unknown: StompArrival) -> None:
        """Restore the messages that an ACK should have covered, after the broker did not know its message."""
        with self._lock:
            if not self._done or self._done[-1].subscription is unknown.subscription:
                self._done[:0] = [*covered[:-1], unknown]
        self._submit(self._tell_all)

    def _tell_in_time(self) -> None:
        with self._lock:
            self._is_timed = False
        self._tell_all()
