"""Accepting requests and sending their answers together, for all workers of a dispatcher.

Finished requests go into one transaction, so that a request is accepted only with its answer: on the committer's
thread, or for a single request on the thread of its worker. Without transactions the answer is sent first, and the
request accepted once the broker has it. Requests that must not or cannot be answered become dead letters.

Commits may be lost when a broker restarts; later ones succeed. An answer that the broker will not read, such as one
above its limit for a frame, makes it end the connection each time, and all open commits are lost with it. The two look
the same from here, so the losses of each request's commit in a row are counted, and only the count tells them apart.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import Any, Final

from brokers.connection import Connection, Delivery, SendResult
from brokers.errors import (
    BrokerError,
    ClosedError,
    ConnectionLostError,
    DestinationGoneError,
    NoAnswerError,
    SendFailedError,
)
from brokers.message import Destination, Message, typed
from brokers.threads.futures import Completion
from brokers.threads.thread import Thread
from soapjms.capture.recorder import Recorder, record
from soapjms.observing import Outcome
from soapjms.protocol.mep import Input
from soapjms.protocol.record import Direction, Node
from soapjms.service.comebacks import Comebacks
from soapjms.service.store.base import key_of
from soapjms.service.work import Work
from soapjms.tally import Tally

MAX_KNOWN_REQUESTS: Final = 10_000
"""Most requests that are remembered at a time; the oldest are forgotten first."""


class Losses:
    """Counts how often the commit of each request was lost with its connection. Thread-safe; nearly always empty.

    Requests without a key (see `key_of`) are not counted.

    Args:
        stable_message_id: returns this capability of the current broker; after a failover it may change.
    """

    def __init__(self, stable_message_id: Callable[[], bool]) -> None:
        self._stable_message_id = stable_message_id
        self._lock = Lock()
        self._times: OrderedDict[bytes, int] = OrderedDict()

    def watch(self, settling: Completion[Any], requests: Sequence[Message]) -> None:
        """Count one more loss for each request if the connection is lost before `settling` is done.

        The loss is counted before the connection can be restored, so before the broker delivers a request again.
        """
        settling.on_settled(partial(self._heard_of, requests))

    def _heard_of(self, requests: Sequence[Message], settling: Future[Any]) -> None:
        if not settling.cancelled() and isinstance(settling.exception(), ConnectionLostError):
            self.note(requests)

    def note(self, requests: Sequence[Message]) -> None:
        """Count one more loss for each request."""
        keys = [key for each in requests if (key := self.key(each)) is not None]
        with self._lock:
            for key in keys:
                self._times[key] = self._times.pop(key, 0) + 1
                if len(self._times) > MAX_KNOWN_REQUESTS:
                    self._times.popitem(last=False)

    def times(self, request: Message) -> int:
        """Return how often the commit of a request was lost."""
        if not self._times:
            return 0
        key = self.key(request)
        return 0 if key is None else self._times.get(key, 0)

    def forget(self, request: Message) -> None:
        """Forget a request that was settled."""
        if self._times and (key := self.key(request)) is not None:
            with self._lock:
                self._times.pop(key, None)

    def key(self, request: Message) -> bytes | None:
        """Return the key of a request; see `key_of`."""
        return key_of(request, stable_message_id=self._stable_message_id())


log = logging.getLogger("soapjms.dispatcher")

MAX_GROUP_REQUESTS: Final = 64
"""Most requests that are accepted and answered in one transaction."""

COMMIT_TIMEOUT: Final = 30.0

CONFIRM_TIMEOUT: Final = 300.0
"""Seconds after which a request is released if the broker does not confirm its answer, sent without a transaction.

Long, as a broker whose memory or queue is full confirms nothing for a while, but takes the answer later.
"""

UNCONFIRMED: Final = "the broker did not confirm in time"

CONFIRM_POLL_SECONDS: Final = 1.0
"""Poll interval, in seconds, for answers that the broker has not confirmed."""

TOO_LATE: Final = "the dispatcher was closed meanwhile"

MAX_REASON_CHARACTERS: Final = 1000
"""Longest reason that a dead letter carries, in characters; the rest is cut off."""


class Committer:
    """Settles finished requests. No error of one request stops it, as all workers depend on it.

    Args:
        connection: the connection to the broker.
        tally: counts what happens.
        recorder: writes the responses to a capture log.
        dead_letters: the queue for dead letters, with the reason; None for the broker's own.
        on_done: called with the number of requests that were settled.
        transactional: accept and answer together if the broker has transactions; else each request is accepted once
            the broker has its answer.

    Attributes:
        transactional: True if that was asked for and the broker has transactions.
        too_late: True once nothing more may be committed.
        tally, recorder: see the arguments.
        losses: counts of commits that were lost with the connection; a request with a loss is committed alone.
        comebacks: answers that wait for their client to come back.
    """

    def __init__(
        self,
        connection: Connection,
        tally: Tally,
        recorder: Recorder | None,
        dead_letters: Destination | None,
        on_done: Callable[[int], None],
        *,
        transactional: bool,
    ) -> None:
        self.too_late = False
        self._connection = connection
        self.tally = tally
        self.recorder = recorder
        self._dead_letters = dead_letters
        self._on_done = on_done
        self.losses = Losses(lambda: connection.capabilities.stable_message_id)
        self.comebacks = Comebacks(connection, self._concluded)
        self.transactional = transactional and connection.capabilities.transactions
        self._finished: SimpleQueue[Work] = SimpleQueue()
        self._unconfirmed: dict[Future[SendResult], float] = {}  # answers, and when they were sent
        self._turn = Lock()  # held while settling
        self._calls: SimpleQueue[bool] = SimpleQueue()  # for the thread: True if a request waits, False to end
        self._thread = Thread(target=self._commit_all, name="soapjms-committer", daemon=True)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their commit."""
        return self._finished.qsize()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, work: Work, *, is_alone: bool) -> None:
        """Have a request settled soon, together with others.

        A request that is alone is settled at once, on this thread: there is nothing to wait for, and a change of
        threads would take a good part of the time of its call. Without transactions no request waits here: the answer
        is sent, and the thread that gets the broker's confirmation settles the request.
        """
        if self.too_late:
            self.lose([work], TOO_LATE)
            self._on_done(1)
            return
        if not self.transactional and work.dead is None:
            self._answer(work)
            return
        self._finished.put(work)
        if not is_alone or not self._turn.acquire(blocking=False):
            self._calls.put(True)
            return
        try:
            self._settle_next()
        finally:
            self._turn.release()

    def _answer(self, work: Work) -> None:
        """Send an answer outside a transaction, and settle its request once the outcome of the answer is known."""
        if work.response is not None:
            try:
                work.sending = sending = self._sending(work, work.response)
                if not sending.done():
                    self._unconfirmed[sending] = monotonic()
                    sending.add_done_callback(partial(self._heard_of, work))
                    return
            except Exception:  # `_settle_all` sends it again, and handles the error
                log.debug("an answer could not be sent at once", exc_info=True)
        self._settle_all([work])

    def _heard_of(self, work: Work, sending: Future[SendResult]) -> None:
        self._unconfirmed.pop(sending, None)
        self._settle_all([work])

    def close(self, seconds: float) -> None:
        """End the thread once all requests are settled; wait up to so many seconds for it."""
        self._calls.put(False)
        if self._thread.is_alive():
            self._thread.join(seconds)

    def lose(self, group: Sequence[Work], why: str) -> None:
        """Count and log requests that were not accepted; the broker delivers them again."""
        log.warning("%d requests were not accepted; the broker delivers them again: %s", len(group), why)
        self.tally.add("lost", times=len(group))
        for work in group:
            _fail(work)
            work.tell(Outcome.LOST)

    def _commit_all(self) -> None:
        goes_on = True
        while goes_on or self.waiting:
            goes_on = goes_on and self._next_call()
            with self._turn:
                while self._settle_next():
                    pass

    def _next_call(self) -> bool:
        """Wait for a call; meanwhile give up answers that the broker does not confirm in time."""
        while True:
            with suppress(Empty):
                return self._calls.get(timeout=None if self.transactional else CONFIRM_POLL_SECONDS)
            for sending, sent in list(self._unconfirmed.items()):
                if sent + CONFIRM_TIMEOUT <= monotonic():
                    sending.cancel()

    def _settle_next(self) -> bool:
        """Settle the next group of finished requests; return False if there are none."""
        group: list[Work] = []
        with suppress(Empty):
            while len(group) < MAX_GROUP_REQUESTS:
                group.append(self._finished.get_nowait())
        if group:
            self._settle_all(group)
        return bool(group)

    def _settle_all(self, group: list[Work]) -> None:
        together = []
        for work in group:
            if work.dead is not None:
                self._settle([work], self._bury)
            elif not self.transactional or self.losses.times(work.delivery.message):
                self._settle([work], self._commit_group)
            else:
                together.append(work)
        self._settle(together, self._commit_group)
        self._on_done(len(group))

    def _settle(self, group: list[Work], how: Callable[[list[Work]], None]) -> None:
        """Settle a group; no error stops this thread."""
        if not group:
            return
        try:
            how(group)
        except BaseException as error:
            log.exception("requests could not be settled")
            self.lose(group, f"{error!r}")
            for work in group:
                _release(work.delivery)

    # Answers

    def _commit_group(self, group: list[Work]) -> None:
        """Commit a group; if that fails, commit its requests one by one, and reject one that fails alone."""
        if self.too_late:
            self.lose(group, TOO_LATE)
            return
        try:
            refused = self._commit(group)
        except (ConnectionLostError, NoAnswerError) as error:
            self.lose(group, f"{error}")
        except FutureTimeoutError:
            self.lose(group, UNCONFIRMED)
            for work in group:  # else the broker keeps waiting, and delivers nothing more to this worker
                _release(work.delivery)
        except Exception as error:
            if len(group) > 1:
                for work in group:
                    self._settle([work], self._commit_group)
            elif isinstance(error, ClosedError):
                self.lose(group, f"{error}")
            else:
                self._reject(group[0], f"its answer could not be sent: {error}")
        else:
            self.tally.add("commits")
            answered = (work for work in group if work.response is not None)
            for position, work in enumerate(answered):
                self._answered(work, refused.get(position))
            if self.tally.observers is not None:
                for work in group:
                    if not work.awaited:
                        work.tell()
            for work in group:
                self._is_settled(work)

    def _is_settled(self, work: Work) -> None:
        self.losses.forget(work.delivery.message)
        work.on_settled()

    def _commit(self, group: list[Work]) -> dict[int, SendFailedError]:
        """Accept the requests with their answers; return the answers that the broker refused, by their position."""
        return self._together(group) if self.transactional else self._send_then_accept(group[0])

    def _together(self, group: list[Work]) -> dict[int, SendFailedError]:
        transaction = self._connection.begin()
        try:
            for work in group:
                if work.response is not None:
                    transaction.send(work.response)
                transaction.accept(work.delivery)
        except BaseException:
            transaction.abort()
            raise
        commit = transaction.commit()
        self.losses.watch(commit, [work.delivery.message for work in group])
        return {each.position: each.error for each in commit.result(COMMIT_TIMEOUT)}

    def _send_then_accept(self, work: Work) -> dict[int, SendFailedError]:
        """Accept the request once the broker has its answer, or says that its client is gone."""
        refused: dict[int, SendFailedError] = {}
        if work.response is not None:
            error = _confirmed(work.sending or self._sending(work, work.response))
            if error is not None:
                refused[0] = error
        work.delivery.accept()
        return refused

    def _sending(self, work: Work, response: Message) -> Completion[SendResult]:
        """Send an answer outside a transaction."""
        sending = self._connection.answer(work.delivery, response)
        self.losses.watch(sending, [work.delivery.message])
        return sending

    def _answered(self, work: Work, error: SendFailedError | None) -> None:
        """Handle the outcome of an answer; if its client may come back, the answer is taken for a retry."""
        if isinstance(error, DestinationGoneError) and work.dead is None:
            work.awaited = True  # before `take`, as the retry may end at once
            if self.comebacks.take(work):
                log.info("an answer is sent again, as its client may be back soon: %s", error)
                self.tally.add("client awaited")
                return
            work.awaited = False
        self._answer_ended(work, error)

    def _concluded(self, work: Work, error: SendFailedError | None) -> None:
        """Handle the outcome of an answer that was sent again."""
        self._answer_ended(work, error)
        work.tell()

    def _answer_ended(self, work: Work, error: SendFailedError | None) -> None:
        assert work.response is not None
        if error is None:
            work.node.sent()
            self.tally.add("answered")
            record(self.recorder, work.response, Direction.RESPONSE, Node.RESPONDING)
            return
        if work.dead is None:
            work.tell(Outcome.UNDELIVERED)
        work.node.send_failed()
        log.warning("the answer to request %s was not delivered: %s", work.delivery.message.message_id, error)
        self.tally.add("client gone" if isinstance(error, DestinationGoneError) else "answer refused")

    # Dead letters

    def _bury(self, group: list[Work]) -> None:
        """Put a request on the dead-letter destination, and send its answer if there is one."""
        (work,) = group
        if self.too_late:
            self.lose(group, TOO_LATE)
        elif self._dead_letters and not work.uncopied and self._write_letter(work, self._dead_letters):
            self.tally.add("rejected")
            self._commit_group(group)
        else:
            if work.response is not None:
                self._answer_first(work, work.response)
            self._reject(work, work.dead or "")

    def _write_letter(self, work: Work, dead_letters: Destination) -> bool:
        """Send a copy of a request with the reason; return False if the broker must make the dead letter instead.

        The copy is not sent in the transaction that accepts the request: if the broker refused it there, the request
        would be accepted and lost.
        """
        reason = work.dead or ""
        log.error("a request goes to %s: %s", dead_letters, reason)
        try:
            letter = _letter(work, dead_letters, reason)
            self._connection.send(letter, timeout=COMMIT_TIMEOUT).result(COMMIT_TIMEOUT)
        except (BrokerError, ValueError, FutureTimeoutError, MemoryError) as error:
            log.error("a dead letter could not be sent to %s, so it is left to the broker: %s", dead_letters, error)
            return False
        return True

    def _answer_first(self, work: Work, response: Message) -> None:
        try:
            self._answered(work, _confirmed(self._connection.send(response, timeout=COMMIT_TIMEOUT)))
        except (BrokerError, ValueError, FutureTimeoutError) as error:
            log.warning("the answer for a dead letter could not be sent: %s", error)

    def _reject(self, work: Work, reason: str) -> None:
        """Have the broker put a request on its own dead-letter destination."""
        log.error("a request was rejected: %s", reason)
        self.tally.add("rejected")
        _fail(work)
        try:
            work.delivery.reject(reason[:MAX_REASON_CHARACTERS])
        except BrokerError as late:
            self.lose([work], f"{late}")
        else:
            self._is_settled(work)
            work.tell(Outcome.DEAD_LETTER)


def _confirmed(sending: Completion[SendResult]) -> DestinationGoneError | None:
    """Wait until the broker has a response; return the error if its client is gone."""
    try:
        sending.result(COMMIT_TIMEOUT)
    except DestinationGoneError as error:
        return error
    except CancelledError:  # `_next_call` gave it up
        raise FutureTimeoutError from None
    return None


def _letter(work: Work, dead_letters: Destination, reason: str) -> Message:
    """Copy a request, with the reason, its destination and id, and the fault that its caller got as properties."""
    message = work.delivery.message
    said = {
        "dead_letter_reason": reason,
        "dead_letter_destination": str(message.destination),
        "dead_letter_message_id": message.message_id or "",
        "dead_letter_fault": _text_of(work.response),
    }
    added = [typed(name, value.replace("\0", "")[:MAX_REASON_CHARACTERS]) for name, value in said.items() if value]
    return replace(
        message,
        destination=dead_letters,
        properties=message.properties.merged(added),
        expiration=0,
        message_id=None,
        redelivered=None,
    )


def _text_of(response: Message | None) -> str:
    """Return the body of a response as text; empty if it is compressed or no text."""
    body = "" if response is None else response.body
    try:
        return body if isinstance(body, str) else body.decode("utf-8") if isinstance(body, bytes) else ""
    except UnicodeDecodeError:
        return ""


def _release(delivery: Delivery) -> None:
    """Release a delivery that may not have been settled; this has no effect on a settled one."""
    try:
        delivery.release()
    except Exception:
        log.exception("a request could not be given back; it goes back with its connection")


def _fail(work: Work) -> None:
    """End the exchange at this node."""
    machine = work.node.machine
    happened = Input.SENDING_FAILED if machine.allows(Input.SENDING_FAILED) else Input.RECEIVING_FAILED
    if machine.allows(happened):  # the exchange of a one-way message ended when it was read
        machine.step(happened)
