"""How messages are acknowledged over STOMP: in chunks, with a count of how often each came back.

STOMP has no word for how often a message came back from its consumers: the broker delivers it again at once, and
tells nobody. So a message that always fails would be delivered for ever, thousands of times a second. Counting here
makes a pause possible, and at last the dead letters.

With STOMP's own `ack:auto` a broker sends as fast as it can, and what a slow consumer has not taken piles up in this
process; and it forgets a message the moment that it writes it, so one that is on the way when the connection goes is
lost. So the messages of an `auto_accept` consumer are acknowledged here, after `on_delivery` has returned: the
broker never has more on the way than the prefetch, keeps the rest itself, and delivers again what it was not told
of. It is told in chunks, which costs next to nothing. Only a lazy consumer of a topic has `ack:auto`: its copies are
lost with the connection anyway, and it takes what comes as fast as the socket gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

from brokers.errors import BrokerError
from brokers.stomp.dialect import MIN_FRAME_OCTETS
from brokers.stomp.frames import acknowledgement
from brokers.stomp.session import Settle, StompSession, pack
from brokers.threads.timer import Later

MAX_DELIVERIES: Final = 6
"""A message that comes back from this many deliveries is a dead letter, as with the embedded broker."""

FIRST_PAUSE_SECONDS: Final = 0.05
"""Seconds before a message is given back for the first time; they double each time, to 1.55 s in all."""

MAX_RELEASED_MESSAGES: Final = 10_000
"""Messages whose releases are counted; of more, those that came back first are forgotten."""


def pause_after(releases: int) -> float:
    """Say how many seconds a message is kept before it is given back for the nth time."""
    return FIRST_PAUSE_SECONDS * 2.0 ** (releases - 1)


class Releases:
    """Counts the releases of each message over one connection. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Count the messages that are remembered."""
        return len(self._counts)

    def __contains__(self, message: Hashable) -> bool:
        """Say whether a message came back and was not settled since. Costs nothing while no message came back."""
        return message in self._counts

    def count(self, message: Hashable) -> int:
        """Note one more release of a message, and return how many there were."""
        with self._lock:
            releases = self._counts.pop(message, 0) + 1
            self._counts[message] = releases
            if len(self._counts) > MAX_RELEASED_MESSAGES:
                del self._counts[next(iter(self._counts))]
            return releases

    def forget(self, message: Hashable) -> None:
        """Forget a message that was accepted or rejected. Costs nothing while no message came back."""
        if self._counts:
            with self._lock:
                self._counts.pop(message, None)


WINDOW_PARTS: Final = 4
"""The broker is told when this part of what it may have on the way is done, so that it never runs dry."""

ACK_SECONDS: Final = 0.2
"""After so long it is told anyway."""

SMALL_BODY_OCTETS: Final = 1024
"""Octets of a body that is kept with its message until the broker was told, as to let go of it would cost more."""

MAX_STRANGERS: Final = 1000
"""Senders that are remembered over a session; more are forgotten, and found out once more."""


@dataclass(slots=True, eq=False)
class StompSubscription:
    """One SUBSCRIBE and its end. What is true of it changes only while the link's `writing` is held.

    Attributes:
        is_begun: SUBSCRIBE was written.
        is_live: it was not ended.
        is_leaving: it is about to end, so what comes by it is left to the next one.
        is_untold: the broker takes for accepted what it writes, and is told nothing.
        is_due: it is to end once all that is under way for it has ended.
        last: what the `ack` of the message was that came last; for the thread that reads.
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
    """A MESSAGE frame as it came, and the subscription that it came by.

    Of one above the limit the body was passed over, `size` octets; `refusal` says why. `mark` stands for a body that
    was let go of. `is_own` says whether its id may be one that the broker gives.
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
    def _sender(self) -> str:
        return self.headers.get("message-id", "").rpartition(":")[0]

    @property
    def is_doubtful(self) -> bool:
        """Whether the broker may know the message by another id though this one looks like its own."""
        return self.subscription.link.dialect.doubtful in self.headers

    def note_unknown(self) -> None:
        """Take note that the broker found no message for an ACK: it will not for other ids of the sender's either."""
        strangers = self.subscription.link.strangers
        if len(strangers) >= MAX_STRANGERS:
            strangers.clear()
        strangers.add(self._sender)

    def without_body(self) -> StompArrival:
        """Return what is kept of it until the broker was told: not its body, unless that is small."""
        if len(self.body) <= SMALL_BODY_OCTETS and not self.is_doubtful:
            return self
        mark = hash(self.body) if self.is_doubtful and self.mark is None else self.mark
        return StompArrival(self.subscription, self.headers, b"", self.is_own, self.size, self.refusal, mark)


class Acceptances:
    """What a consumer is done with and the broker was not told of yet.

    Args:
        prefetch: messages that the broker may have on the way.
        submit: runs a function at once, which does not wait.
        later: runs one after some seconds.
        acknowledge: returns an ACK and who waits for its receipt; who is given here is told if the broker knows no such
            message.
        collect: ends the subscription of what is given once `on_delivery` returned, and takes what no ACK can name.
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
        """Take note that a message is accepted. Does not block: the thread that reads may call it."""
        with self._lock:
            if self._done and self._done[-1].subscription is not arrival.subscription:
                self._done.clear()  # an earlier session's: it is delivered again, or was its session's alone
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
        """Whether there are some."""
        return bool(self._done)

    def tell(self) -> None:
        """Tell the broker now, but for what no ACK can name."""
        with self._lock:
            subscription = self._done[-1].subscription if self._done else None
        if subscription is not None:
            with subscription.link.writing:
                subscription.link.request(*self.frames(subscription))

    def _tell_in_turn(self) -> None:
        """Tell the broker; have it all collected if no more may be on the way."""
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
        """Return the ACK frames to write for a subscription, whose link's `writing` is held, and who waits for what."""
        with self._lock:
            if self._awaits_answer:  # a later ACK would cover what this one may not
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
        """Return the ACK frames of a subscription that ends now, and what they do not cover for certain."""
        with self._lock:
            done = self._take(subscription, lambda each: each.can_be_named and not each.is_doubtful)
            rest, self._done = self._done, []
        dialect = subscription.link.dialect
        told = done[-1:] if dialect.accepts_earlier else done
        return b"".join(pack("ACK", acknowledgement(each.headers, dialect)) for each in told), rest

    def _take(self, subscription: StompSubscription, is_named: Callable[[StompArrival], bool]) -> list[StompArrival]:
        """Take what the broker can be told of, with the lock held; what came after the last such message stays."""
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
        """Take back what an ACK was to cover that the broker knew no message for."""
        with self._lock:
            if not self._done or self._done[-1].subscription is unknown.subscription:
                self._done[:0] = [*covered[:-1], unknown]
        self._submit(self._tell_all)

    def _tell_in_time(self) -> None:
        with self._lock:
            self._is_timed = False
        self._tell_all()
