"""The calls of a client that are under way: each ends once, by whatever comes first, and gives its lease back then.

A reply, a time-out, a lost connection, a cancelled future and an interrupt may come at the same moment, on threads of
their own. All of them ask `PendingCalls.end`. Of those that ended without a reply some are remembered, so that a
reply that comes later can be told from a second one. No broker and no rule in here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import Final, TypeAlias

from brokers.connection import SendResult
from brokers.message import Destination
from brokers.threads.futures import Completion
from brokers.threads.thread import Thread
from soapjms.capture.recorder import OutgoingRecord
from soapjms.client.call import Response
from soapjms.client.replies import Replies
from soapjms.client.retry import Identity
from soapjms.observing import NOTHING, Observed
from soapjms.observing import Outcome as End
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, SendOutcome
from soapjms.protocol.requesting import ExchangeFailed, RequestingNode

log = logging.getLogger("soapjms.calls")

MAX_KNOWN_CALLS: Final = 10_000
"""Calls without a reply whose late replies are known as such."""

UNSENT: Final = "the request could not be sent"

UNKNOWN: Final = (
    "{} before a response came: whether the service works on the request is not known, "
    "so call again only if working on it twice does no harm"
)

Outcome: TypeAlias = Callable[[], Response | CallFailedError]
"""Says what a call comes to, moving its node; called by who ends the call, so once at most."""


class PendingCall:
    """One call under way.

    Attributes:
        key: names its lease of a reply destination.
        future: of its response.
        generation: of the connection, in which its request was sent.
        reply_to: where its reply is to come, once that is known.
        is_confirmed: the broker said that it has the request, for good.
        node: of its exchange; only who makes or ends the call touches it.
        due: when its time is over, by the monotonic clock, which nobody sets back.
        message_id: what WS-Addressing calls the request; empty without.
        outgoing: the record of its request, once there is one.
        observed: tells the observers how it ends; None if there are none.
        others: what its request carries for them.
        identity: tells the service which request it is.
        sending: what becomes of its request at the broker, once it was handed over.
    """

    __slots__ = (
        "due",
        "future",
        "generation",
        "identity",
        "is_confirmed",
        "key",
        "message_id",
        "node",
        "observed",
        "others",
        "outgoing",
        "reply_to",
        "sending",
    )

    def __init__(
        self, key: str, future: Completion[Response], node: RequestingNode, due: float, identity: Identity
    ) -> None:
        self.key = key
        self.future = future
        self.node = node
        self.due = due
        self.generation = 0
        self.reply_to: Destination | None = None
        self.is_confirmed = False
        self.message_id = ""
        self.outgoing: OutgoingRecord | None = None
        self.observed: Observed | None = None
        self.others = NOTHING
        self.identity = identity
        self.sending: Completion[SendResult] | None = None

    def observe(self, observed: Observed) -> None:
        """Have observers follow the call."""
        self.observed = observed
        self.others = observed.properties()

    def failure(
        self, event: ExchangeFailed | None, outcome: SendOutcome, kind: type[CallFailedError] = CallFailedError
    ) -> CallFailedError:
        """Make the error of a call whose exchange failed."""
        assert event is not None, "the exchange was over before"
        return kind(event.text, event.reason, outcome, self.identity.retry(self.node, self.message_id))

    def settle(self, found: Response | BaseException) -> None:
        """Hand the caller what the call came to."""
        if self.observed is not None:
            self.tell(found)
        if isinstance(found, BaseException):
            self.future.set_exception(found)
        else:
            self.future.set_result(found)

    def tell(self, found: Response | BaseException | None) -> None:
        """Tell the observers what the call came to, before its caller goes on; None for a future that was cancelled."""
        if self.observed is None:
            return
        if isinstance(found, Response):
            if found.fault is not None:
                self.observed.fault(found.fault.subcode)
            self.observed.end(End.RESPONSE if found.fault is None else End.FAULT, response=found.message)
        elif found is None:
            self.observed.end(End.CANCELLED)
        else:
            self.observed.end(End.TIMEOUT if isinstance(found, CallTimeoutError) else End.FAILED, error=found)


class PendingCalls:
    """The calls that wait for their end, by key. Thread-safe.

    Args:
        replies: where the leases come from.
        prefix: of the keys, which nobody else's have.
    """

    def __init__(self, replies: Replies, prefix: str) -> None:
        self._replies = replies
        self._prefix = prefix
        self._numbers = count(1)
        self._calls: dict[str, PendingCall] = {}
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

    def get(self, key: str) -> PendingCall | None:
        """Return the call under way of this key."""
        return self._calls.get(key)

    def add(self, call: PendingCall) -> None:
        """Take note of a call whose request is about to be sent. Cancelling its future ends it."""
        self._calls[call.key] = call
        call.future.on_settled(lambda _: self.end(call, None))

    def withdraw(self, call: PendingCall) -> bool:
        """Forget a call whose request was not sent after all; it may be added again. False if it has ended since."""
        if self._calls.pop(call.key, None) is not call:
            return False
        self._replies.end(call.key, reusable=True)
        return True

    def stray(self, key: str) -> str | None:
        """Say what a reply is for whose key no call waits: `late`, `duplicate`, or None if it is no key of ours."""
        if not key.startswith(self._prefix):
            return None
        with self._remembering:
            is_first = key in self._unanswered
            self._unanswered.pop(key, None)
        return "late" if is_first else "duplicate"

    def end(self, call: PendingCall, outcome: Outcome | None, *, answered: bool = False) -> bool:
        """End a call and give its lease back; return whether somebody waits for the outcome.

        False if it ended before, or if its future was cancelled; then `outcome` is not called.

        Args:
            call: the call.
            outcome: what it comes to; None for a future that was cancelled.
            answered: its reply came, so that the next call may have its reply destination.
        """
        if self._calls.pop(call.key, None) is not call:
            return False
        if answered:  # before the caller goes on, who may call again
            self._replies.end(call.key, reusable=True)
        else:
            self._remember(call.key)
        is_wanted = call.future.set_running_or_notify_cancel()
        if is_wanted and outcome is not None:
            _settle(call, outcome)
        else:
            call.tell(None)
        if not answered and self._replies.by_place:  # it asks the broker, and this thread may be that of the deadlines
            Thread(target=self._replies.end, args=[call.key], kwargs={"reusable": False}, daemon=True).start()
        return is_wanted

    def _remember(self, key: str) -> None:
        with self._remembering:
            self._unanswered[key] = None
            if len(self._unanswered) > MAX_KNOWN_CALLS:
                del self._unanswered[next(iter(self._unanswered))]


def _settle(call: PendingCall, outcome: Outcome) -> None:
    found: Response | BaseException
    try:
        found = outcome()
    except BaseException as error:  # a mistake of ours must not leave the caller without an end
        log.exception("a call ended in a mistake of ours")
        found = error
    call.settle(found)
