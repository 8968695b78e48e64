"""The pending calls of a client: the first event ends a call, which then returns its lease of a reply destination.

A reply, a timeout, a lost connection, a cancelled future and an interrupt may come at the same moment, each on its own
thread. All of them call `PendingCalls.end`. The latest calls that ended without a reply are remembered, so that a late
reply can be told from a duplicate one. No broker and no rule of the protocol belongs here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from itertools import count
from math import inf
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeAlias

from brokers.message import Destination
from brokers.threads.futures import Completion
from brokers.threads.timer import Deadline, Deadlines
from soapjms import events
from soapjms.capture.recorder import OutgoingRecord
from soapjms.client.call import Response
from soapjms.client.replies import Replies
from soapjms.client.retry import Identity, Retry
from soapjms.observing import Observed, Outcome
from soapjms.protocol.errors import CallFailedError, CallTimeoutError
from soapjms.protocol.requesting import RequestingNode

MAX_KNOWN_CALLS: Final = 10_000
"""Calls that ended without a reply and are remembered, so that their late replies are recognized."""

UNSENT: Final = "the request could not be sent"

UNKNOWN: Final = (
    "{} before a response came: whether the service works on the request is not known, "
    "so call again only if working on it twice does no harm"
)

Conclusion: TypeAlias = Callable[..., Response | CallFailedError]
"""Moves the node of a call to its end and returns the outcome; called at most once, by the event that ends the call."""


class PendingCall(Completion[Response]):
    """One pending call, which is the future of its response. Cancelling it ends the call.

    Attributes:
        key: names its lease of a reply destination.
        generation: the generation of the connection in which its request was sent.
        reply_to: the destination of its reply, once it is known.
        is_confirmed: True once the broker has confirmed the request.
        is_ended: True once it was pending and is no more; its outcome may still be worked out.
        seconds: seconds that its caller waits at most.
        node: the node of its exchange; only the code that makes or ends the call touches it.
        due: its deadline, by the monotonic clock.
        message_id: the WS-Addressing MessageID of the request; empty without WS-Addressing.
        outgoing: the capture record of its request, once there is one; None without a recorder.
        observed: tells the observers how the call ends; None if there are none.
        identity: identifies the request to the service.
        give_up_sending: says that nobody waits for the broker's confirmation any more, and returns whether the request
            will never be sent; None until the request was handed over, and at the end.
    """

    generation: int = 0
    reply_to: Destination | None = None
    is_confirmed: bool = False
    is_ended: bool = False
    seconds: float = 0.0
    outgoing: OutgoingRecord | None = None
    observed: Observed | None = None
    give_up_sending: Callable[[], bool] | None = None

    def __init__(
        self,
        calls: PendingCalls,
        executor: Callable[[], Executor],
        key: str,
        node: RequestingNode,
        due: float,
        identity: Identity,
        message_id: str = "",
    ) -> None:
        super().__init__(executor)
        self._calls = calls
        self.key = key
        self.node = node
        self.due = due
        self.identity = identity
        self.message_id = message_id

    def retry(self) -> Retry | None:
        """Return what sending the request again needs; None if its message was never made."""
        return self.identity.retry(self.node, self.message_id)

    def cancel(self) -> bool:
        """Cancel the call, unless it has ended; return whether it is cancelled.

        A request that waits for a connection, or over AMQP for credit, is never sent.
        """
        if not self._calls.end(self, None) and not self.is_ended and not self.done():  # it is not sent yet
            self.note_cancelled()
            self._calls.end(self, None)  # who sends it looks whether it is cancelled after adding it
        return self.cancelled()

    def note_cancelled(self) -> None:
        """Tell all who wait that the call was cancelled, once it is not pending, unless it ended at the same moment."""
        if not super().cancel():
            return
        if (give_up := self.give_up_sending) is not None:
            give_up()
        self.notify_cancelled()
        self.tell(None)

    def conclude(self, found: Response | BaseException) -> None:
        """Give the caller the response or the error of the call."""
        self.give_up_sending = None
        if self.observed is not None:
            self.tell(found)
        if isinstance(found, Response):
            self._finish(found, None)
        else:
            self._finish(None, found)

    def tell(self, found: Response | BaseException | None) -> None:
        """Tell the observers how the call ended, before its caller goes on; None for a cancelled future."""
        if self.observed is None:
            return
        if isinstance(found, Response):
            if found.fault is not None:
                self.observed.fault(found.fault.subcode)
            self.observed.end(Outcome.RESPONSE if found.fault is None else Outcome.FAULT, response=found.message)
        elif found is None:
            self.observed.end(Outcome.CANCELLED)
        else:
            self.observed.end(Outcome.TIMEOUT if isinstance(found, CallTimeoutError) else Outcome.FAILED, error=found)


class PendingCalls:
    """The pending calls, by key. Thread-safe.

    Args:
        replies: the source of the leases.
        prefix: starts every key; unique to this client.
    """

    def __init__(self, replies: Replies, prefix: str) -> None:
        self._replies = replies
        self._prefix = prefix
        self._numbers = count(1)
        self._calls: dict[str, PendingCall] = {}
        self.get: Final[Callable[[str], PendingCall | None]] = self._calls.get
        self._remembering = Lock()
        self._unanswered: dict[str, None] = {}

    def __len__(self) -> int:
        """Count the calls under way."""
        return len(self._calls)

    def new_key(self) -> str:
        """Make a key that no other call has."""
        return f"{self._prefix}{next(self._numbers)}"

    def all(self) -> list[PendingCall]:
        """List the calls under way."""
        return list(self._calls.values())

    def add(self, call: PendingCall) -> None:
        """Add a call whose request is about to be sent."""
        self._calls[call.key] = call

    def withdraw(self, call: PendingCall) -> bool:
        """Remove a call whose request was not sent; it may be added again. Return False if it has ended meanwhile."""
        if self._calls.pop(call.key, None) is not call:
            return False
        self._replies.end(call.key, reusable=True)
        return True

    def stray(self, key: str) -> str | None:
        """Classify a reply whose call is not pending: `late`, `duplicate`, or None for a key of another client."""
        if not key.startswith(self._prefix):
            return None
        with self._remembering:
            is_first = key in self._unanswered
            self._unanswered.pop(key, None)
        return "late" if is_first else "duplicate"

    def end(self, call: PendingCall, outcome: Conclusion | None, *arguments: Any, answered: bool = False) -> bool:
        """End a call and return its lease. Return False if it had ended before; `outcome` is not called then.

        Args:
            call: the call.
            outcome: makes the response or error of the call; None to cancel it.
            arguments: those of `outcome`.
            answered: True if the reply came, so that the next call may use the same reply destination.
        """
        if self._calls.pop(call.key, None) is not call:
            return False
        call.is_ended = True
        if not answered:
            self._remember(call.key)
        elif self._replies.by_place:  # before the caller goes on, since it may call again
            self._replies.end(call.key, reusable=True)
        if outcome is None:
            call.note_cancelled()
        else:
            found: Response | BaseException
            try:
                found = outcome(*arguments)
            except BaseException as error:  # a bug in soapjms must not leave the caller waiting
                events.CALL_FAILED_INTERNALLY.log()
                found = error
            call.conclude(found)
        if not answered and self._replies.by_place:
            self._replies.end(call.key, reusable=False)
        return True

    def _remember(self, key: str) -> None:
        with self._remembering:
            self._unanswered[key] = None
            if len(self._unanswered) > MAX_KNOWN_CALLS:
                del self._unanswered[next(iter(self._unanswered))]


CHECK_SECONDS: Final = 0.01
"""Shortest time, in seconds, between two looks at the pending calls for overdue ones."""


class OverdueCalls:
    """Ends the pending calls whose time is over. One look serves many calls, as most are answered in time.

    Args:
        calls: the pending calls.
        expire: ends a call.

    Attributes:
        next_look: when it looks next, by the monotonic clock.
    """

    def __init__(self, calls: PendingCalls, expire: Callable[[PendingCall], None]) -> None:
        self._calls = calls
        self._expire = expire
        self._deadlines = Deadlines("soapjms-deadlines")
        self._lock = Lock()
        self._planned: Deadline | None = None
        self.next_look = inf

    def look_at(self, at: float) -> None:
        """Look when the monotonic clock shows `at`, instead of later; this must be called if a call is due then."""
        self._deadlines.start()  # first, as it may raise
        with self._lock:
            if at >= self.next_look:
                return
            if self._planned is not None:
                self._deadlines.forget(self._planned)
            self.next_look = at
            self._planned = self._deadlines.call_at(at, partial(self._look, at))

    def close(self, timeout: float) -> None:
        """End no more calls; wait up to `timeout` seconds for those that are ending. Idempotent."""
        self._deadlines.close(timeout)

    def _look(self, at: float) -> None:
        with self._lock:
            if at != self.next_look:  # an earlier look was planned at this moment, and plans the next one
                return
            self.next_look = inf  # so that a call that is added meanwhile has its own look
            self._planned = None
        now, soonest = monotonic(), inf
        for call in self._calls.all():
            if call.due <= now:
                self._expire(call)
            else:
                soonest = min(soonest, call.due)
        if soonest < inf:
            self.look_at(max(soonest, now + CHECK_SECONDS))
