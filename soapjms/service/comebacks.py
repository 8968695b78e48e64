"""Answers to clients that were gone just after the connection was restored, and may come back soon.

When a broker restarts, all clients reconnect, in any order. A client whose temporary destination keeps its name, such
as a Java client over OpenWire, may recreate the destination only after its answer was first sent there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from math import inf
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple

from brokers.connection import Connection
from brokers.errors import ClosedError, DestinationGoneError, SendFailedError
from brokers.threads.futures import Completion
from brokers.threads.timer import Deadline, Deadlines
from soapjms import events
from soapjms.service.work import Work

RECONNECT_SECONDS: Final = 30.0
"""Seconds after the connection was restored in which a missing client may still come back."""

RETRY_SECONDS: Final = 40.0
"""Seconds for which an answer is retried: ActiveMQ's failover transport reconnects at least every 30 s by default."""

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 1.0
"""Seconds between two tries; each pause is twice as long as the one before."""

MAX_ANSWERS: Final = 1000
"""Most answers that may wait at a time."""

MAX_ANSWERS_OCTETS: Final = 64 << 20
"""Limit for the total size of their bodies, in octets."""

SEND_TIMEOUT: Final = 1.0

CONFIRM_TIMEOUT: Final = 30.0
"""Seconds for the broker to confirm or refuse an answer; after that its outcome is not known."""


class WaitingAnswer(NamedTuple):
    """An answer that waits: its request, its deadline by the monotonic clock, and the seconds to its next try."""

    work: Work
    until: float
    pause: float


class Comebacks:
    """Resends answers whose client was gone, each by itself, on its own thread. Thread-safe.

    Their requests are accepted already, so answers that wait here are lost if the process dies.

    Args:
        connection: the connection to the broker.
        on_end: called with the request of each answer that was taken: with None if the broker has it, else its error.
    """

    def __init__(self, connection: Connection, on_end: Callable[[Work, SendFailedError | None], None]) -> None:
        self._connection = connection
        self._on_end = on_end
        self._lock = Lock()
        self._generation, self._made_again = connection.generation, -inf
        self._waiting: dict[int, WaitingAnswer] = {}  # by the id of the work
        self._octets = 0
        self._is_closed = False
        self._deadlines = Deadlines("soapjms-comebacks")

    def note_connected(self) -> None:
        """Note a restored connection; an answer may be refused before its watchers are told of it."""
        with self._lock:
            self._note_connected()

    def _note_connected(self) -> None:
        generation = self._connection.generation
        if generation != self._generation:
            self._generation, self._made_again = generation, monotonic()

    def take(self, work: Work) -> bool:
        """Take an answer whose client was gone, to retry it; return False if it came too late or there is no room."""
        size = _size(work)
        with self._lock:
            self._note_connected()
            if monotonic() > self._made_again + RECONNECT_SECONDS:
                return False
            if self._is_closed or len(self._waiting) >= MAX_ANSWERS or self._octets + size > MAX_ANSWERS_OCTETS:
                return False
            waiting = WaitingAnswer(work, monotonic() + RETRY_SECONDS, FIRST_PAUSE_SECONDS)
            try:
                self._plan(waiting)
            except RuntimeError:  # no thread could be started
                return False
            self._octets += size
            self._waiting[id(work)] = waiting
            return True

    def close(self) -> None:
        """Stop retrying; answers that still wait are not delivered, and `on_end` is called for each."""
        with self._lock:
            self._is_closed = True
            left = list(self._waiting.values())
        self._deadlines.close()
        if left:
            events.ANSWERS_NOT_DELIVERED.log(len(left))
        for each in left:
            self._end(each.work, DestinationGoneError("its client was not back when the dispatcher was closed"))

    def _plan(self, waiting: WaitingAnswer) -> None:
        """Schedule the next try, with the lock held; a try finds out itself whether its answer has ended meanwhile."""
        self._deadlines.call_at(monotonic() + waiting.pause, partial(self._try, waiting))

    def _try(self, waiting: WaitingAnswer) -> None:
        with self._lock:
            if id(waiting.work) not in self._waiting:
                return
        try:
            sending = self._send(waiting.work)
        except Exception as error:  # such as no memory: it must not wait forever
            self._conclude(waiting, error)
            return
        deadline = self._deadlines.call_at(monotonic() + CONFIRM_TIMEOUT, partial(self._give_up, waiting))
        sending.add_done_callback(partial(self._heard, waiting, deadline))

    def _give_up(self, waiting: WaitingAnswer) -> None:
        """End an answer that the broker neither confirmed nor refused; it may have it, so it is not sent again."""
        why = f"the broker did not confirm it within {CONFIRM_TIMEOUT:.0f} s, so its outcome is not known"
        self._end(waiting.work, SendFailedError(why))

    def _send(self, work: Work) -> Completion[Any]:
        """Send an answer so that the broker confirms or refuses it, which some brokers only do in a transaction."""
        assert work.response is not None
        if not self._connection.capabilities.transactions:
            return self._connection.send(work.response, timeout=SEND_TIMEOUT)
        transaction = self._connection.begin()
        try:
            transaction.send(work.response)
        except BaseException:
            transaction.abort()
            raise
        return transaction.commit()

    def _heard(self, waiting: WaitingAnswer, deadline: Deadline, sending: Future[Any]) -> None:
        self._deadlines.forget(deadline)
        error = CancelledError() if sending.cancelled() else sending.exception()
        if error is None and isinstance(refused := sending.result(), tuple) and refused:  # of a transaction
            error = refused[0].error
        self._conclude(waiting, error)

    def _conclude(self, waiting: WaitingAnswer, error: BaseException | None) -> None:
        """End an answer, or schedule its next try; an answer whose connection was lost may arrive twice."""
        is_over = isinstance(error, ClosedError | ValueError) or monotonic() + waiting.pause > waiting.until
        is_refused = isinstance(error, SendFailedError) and not isinstance(error, DestinationGoneError)
        with self._lock:
            if id(waiting.work) not in self._waiting:  # it was given up
                return
            if error is not None and not is_over and not is_refused and not self._is_closed:
                self._plan(waiting._replace(pause=min(MAX_PAUSE_SECONDS, waiting.pause * 2)))
                return
        known = error if error is None or isinstance(error, SendFailedError) else SendFailedError(f"{error}")
        self._end(waiting.work, known)

    def _end(self, work: Work, error: SendFailedError | None) -> None:
        if self._forget(work):
            self._on_end(work, error)

    def _forget(self, work: Work) -> bool:
        """Drop an answer; return False if it was dropped before."""
        with self._lock:
            if self._waiting.pop(id(work), None) is None:
                return False
            self._octets -= _size(work)
            return True


def _size(work: Work) -> int:
    body = None if work.response is None else work.response.body
    return len(body) if isinstance(body, str | bytes | memoryview) else 0
