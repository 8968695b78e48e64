"""Accepting requests and sending their answers together, for all workers of a dispatcher.

Finished requests go into one transaction, so that a request is accepted only with its answer. Without transactions the
answer is sent first, and the request accepted once the broker has it. Requests that must not or cannot be answered
become dead letters.

Commits may be lost when a broker restarts; later ones succeed. An answer that the broker will not read, such as one
above its limit for a frame, makes it end the connection each time, and all open commits are lost with it. The two look
the same from here, so the losses of each request's commit in a row are counted, and only the count tells them apart.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from functools import partial
from operator import attrgetter
from threading import Event, Lock
from time import monotonic
from typing import Any, Final

from brokers.adapter.redelivery import DESTINATION_PROPERTY, REASON_PROPERTY, carried_reason
from brokers.connection import Connection, Delivery, RefusedSend, Transaction
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
from brokers.threads.pool import Crew
from brokers.threads.thread import Thread
from soapjms import events
from soapjms.capture.recorder import Recorder, record
from soapjms.observing import Outcome
from soapjms.protocol.mep import Input
from soapjms.protocol.record import Direction, Node
from soapjms.service.comebacks import Comebacks
from soapjms.service.store.base import key_of
from soapjms.service.work import Subscription, Work
from soapjms.tally import Tally

SUBSCRIPTION_OF: Final = attrgetter("subscription")
"""Returns the subscription of a request, without a Python function."""

MAX_KNOWN_REQUESTS: Final = 10_000
"""Most requests that are remembered at a time; the oldest are forgotten first."""


class Losses:
    """Counts how often the commit of each request was lost with its connection. Thread-safe; nearly always empty.

    Requests without a key (see `key_of`) are not counted.

    Args:
        stable_message_id: returns this capability of the current broker; after a failover it may change.

    Attributes:
        by_key: how often the commit of each request was lost.
    """

    def __init__(self, stable_message_id: Callable[[], bool]) -> None:
        self._stable_message_id = stable_message_id
        self._lock = Lock()
        self.by_key: OrderedDict[bytes, int] = OrderedDict()

    def note(self, requests: Sequence[Message]) -> None:
        """Count one more loss for each request."""
        keys = [key for each in requests if (key := self.key(each)) is not None]
        with self._lock:
            for key in keys:
                self.by_key[key] = self.by_key.pop(key, 0) + 1
                if len(self.by_key) > MAX_KNOWN_REQUESTS:
                    self.by_key.popitem(last=False)

    def times(self, request: Message) -> int:
        """Return how often the commit of a request was lost."""
        if not self.by_key:
            return 0
        key = self.key(request)
        return 0 if key is None else self.by_key.get(key, 0)

    def forget(self, request: Message) -> None:
        """Forget a request that was settled."""
        if self.by_key and (key := self.key(request)) is not None:
            with self._lock:
                self.by_key.pop(key, None)

    def key(self, request: Message) -> bytes | None:
        """Return the key of a request; see `key_of`."""
        return key_of(request, stable_message_id=self._stable_message_id())


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

NONE_REFUSED: Final[Mapping[int, SendFailedError]] = {}
ONE_COMMIT: Final[Mapping[str, int]] = {"commits": 1}


class Committer:
    """Settles finished requests. No error of one request stops it, as all workers depend on it.

    One commit is under way at a time; requests that finish meanwhile wait for the next. Nothing here blocks the thread
    that puts a request or hears of a commit, as it may be the one that reads the socket: what may block runs on threads
    of the committer.

    Args:
        connection: the connection to the broker.
        tally: counts what happens.
        recorder: writes the responses to a capture log.
        dead_letters: the queue for dead letters, with the reason; None for the broker's own.
        on_done: called with the subscriptions of requests that were settled, one for each request.
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
        on_done: Callable[[Iterable[Subscription]], None],
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
        self._finished: deque[Work] = deque()
        self._lock = Lock()
        self._is_planned = self._is_busy = False  # a commit is about to begin; a commit is under way
        self._alone: Work | None = None  # whose answer is under way by itself, without transactions
        self._unconfirmed: dict[Completion[Any] | Work, float] = {}  # commits and answers, and when they count as lost
        self._crew = Crew("soapjms-committer")
        self._is_closed = Event()
        self._thread = Thread(target=self._give_up_overdue, name="soapjms-committer", daemon=True)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their commit."""
        return len(self._finished)

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, work: Work) -> None:
        """Have a request settled, together with others that arrived with it or finish during the commit under way.

        Without transactions its answer is sent at once, and the request is accepted once the broker has confirmed it.
        It waits only if its answer, or one under way, was lost with the connection before.
        """
        if self.too_late:
            self.lose([work], TOO_LATE)
            self._on_done([work.subscription])
        elif self.transactional:
            self._finished.append(work)
            if not self._is_planned and not self._is_busy:
                self._is_planned = True
                self._connection.after_arrivals(self._commit_next)
        elif self.losses.by_key or self._finished:
            self._finished.append(work)
            self._send_waiting()
        else:
            self._settle([work])

    def close(self, seconds: float) -> None:
        """End the threads once all requests are settled; wait up to so many seconds for it."""
        self._is_closed.set()
        self._crew.close()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def lose(self, group: Sequence[Work], why: str) -> None:
        """Count and log requests that were not accepted; the broker delivers them again."""
        events.REQUESTS_NOT_ACCEPTED.log(len(group), why)
        self.tally.add("lost", times=len(group))
        for work in group:
            _fail(work)
            work.tell(Outcome.LOST)

    def _give_up_overdue(self) -> None:
        """Give up commits and answers that the broker does not confirm in time, until the committer is closed."""
        while not self._is_closed.wait(CONFIRM_POLL_SECONDS):
            for each, due in list(self._unconfirmed.items()):
                if due > monotonic():
                    continue
                if isinstance(each, Completion):
                    each.cancel()
                    continue
                self._answer_came(each, FutureTimeoutError(UNCONFIRMED))
                if each.give_up is not None:
                    each.give_up()

    # Groups

    def _commit_next(self) -> None:
        """Commit the next group of finished requests, unless a commit is under way."""
        self._is_planned = False
        with self._lock:
            if self._is_busy or not self._finished:
                return
            self._is_busy = True
            group = [self._finished.popleft()]
            while self._finished and len(group) < MAX_GROUP_REQUESTS and not self._is_alone(group[0]):
                if self._is_alone(self._finished[0]):
                    break
                group.append(self._finished.popleft())
        self._settle(group)

    def _send_waiting(self) -> None:
        """Send the answers that wait, without transactions, unless another thread does."""
        with self._lock:
            if self._is_busy:
                return
            self._is_busy = True
        while (work := self._waiting_answer()) is not None:
            self._settle([work])

    def _waiting_answer(self) -> Work | None:
        """Return the next answer that may be sent: one that was lost before is under way by itself.

        Otherwise answers that leave just before one that the broker ends the connection for would be lost with it each
        time, and be taken for the cause.
        """
        with self._lock:
            if self._alone is None and self._finished:
                is_alone = self._is_alone(self._finished[0])
                if not (is_alone and self._unconfirmed):
                    work = self._finished.popleft()
                    self._alone = work if is_alone else None
                    return work
            self._is_busy = False
            return None

    def _is_alone(self, work: Work) -> bool:
        """Say whether a request is settled by itself, as it may make the commit fail or end the connection."""
        if work.dead is not None or work.is_alone:
            return True
        return bool(self.losses.by_key) and self.losses.times(work.delivery.message) > 0

    def _settle(self, group: list[Work]) -> None:
        """Begin to settle a group: one request if it becomes a dead letter, or if there are no transactions."""
        try:
            if self.too_late:
                self._fail_group(group, ClosedError(TOO_LATE))
            elif group[0].dead is not None:
                self._crew.submit(partial(self._guarded, group, partial(self._bury, group[0])))
            else:
                self._begin(group)
        except Exception as error:
            self._failed(group, error)
        except BaseException as error:  # such as SystemExit: it must not end a shared thread
            self._abandon(group, error)
            self._ended(group)

    def _begin(self, group: list[Work]) -> None:
        """Begin the commit of a group, or send the answer of one request; go on once its outcome is known."""
        if not self.transactional:
            self._begin_answer(group[0])
            return
        settling: Completion[tuple[RefusedSend, ...]] = self._transaction(group).commit()
        if settling.done():
            self._heard(group, self._error_of(group, settling), settling)
        else:
            self._unconfirmed[settling] = monotonic() + COMMIT_TIMEOUT
            settling.on_settled(partial(self._outcome_came, group))

    def _begin_answer(self, work: Work) -> None:
        """Send the answer of a request, which is accepted once the broker has it."""
        if work.response is None:
            self._confirmed([work], NONE_REFUSED)
            return
        self._unconfirmed[work] = monotonic() + CONFIRM_TIMEOUT
        try:
            came = partial(self._answer_came, work)
            work.give_up = self._connection.begin_answer(work.delivery, work.response, came)
        except BaseException:
            self._unconfirmed.pop(work, None)
            raise

    def _answer_came(self, work: Work, error: BaseException | None, _: str | None = None) -> None:
        """Hear what became of an answer; only the first time counts."""
        if self._unconfirmed.pop(work, None) is None:
            return
        if error is None:
            self._confirmed([work], NONE_REFUSED)
            return
        self._note_loss([work], error)
        if isinstance(error, DestinationGoneError):
            self._elsewhere([work], partial(self._confirmed, [work], {0: error}))
        else:
            self._failed([work], error)

    def _transaction(self, group: list[Work]) -> Transaction:
        transaction = self._connection.begin()
        try:
            for work in group:
                if work.response is not None:
                    transaction.send(work.response)
                transaction.accept(work.delivery)
        except BaseException:
            transaction.abort()
            raise
        return transaction

    def _outcome_came(self, group: list[Work], settling: Completion[Any]) -> None:
        """Hear of an outcome on the thread that settles it, before the connection can be restored."""
        self._unconfirmed.pop(settling, None)
        settling.call_back(partial(self._heard, group, self._error_of(group, settling)))

    def _error_of(self, group: list[Work], settling: Completion[Any]) -> BaseException | None:
        """Return why a group was not settled, or None; a commit that was lost with its connection is counted.

        The broker delivers the requests of a lost commit again.
        """
        error = FutureTimeoutError(UNCONFIRMED) if settling.cancelled() else settling.exception()
        self._note_loss(group, error)
        return error

    def _note_loss(self, group: list[Work], error: BaseException | None) -> None:
        if isinstance(error, ConnectionLostError):
            self.losses.note([work.delivery.message for work in group])

    def _heard(self, group: list[Work], error: BaseException | None, settling: Future[tuple[RefusedSend, ...]]) -> None:
        if error is None:
            self._confirmed(group, {each.position: each.error for each in settling.result()})
        else:
            self._failed(group, error)

    def _confirmed(self, group: list[Work], refused: Mapping[int, SendFailedError]) -> None:
        """Handle a commit, or a confirmed answer; `refused` has the answers that the broker refused, by position."""
        if not self.transactional and self.too_late:
            self._failed(group, ClosedError(TOO_LATE))
            return
        try:
            if not self.transactional:
                group[0].delivery.accept()
            self._committed(group, refused)
        except BaseException as error:
            self._abandon(group, error)
        self._ended(group)

    def _committed(self, group: list[Work], refused: Mapping[int, SendFailedError]) -> None:
        position = answered = 0
        for work in group:
            if work.response is None:
                continue
            if position in refused:
                self._refused(work, refused[position])
            else:
                self._answered(work, work.response)
                answered += 1
            position += 1
        self.tally.add_all({"commits": 1, "answered": answered} if answered else ONE_COMMIT)
        if self.tally.observers is not None:
            for work in group:
                if not work.awaited:
                    work.tell()
        for work in group:
            if self.losses.by_key or work.on_settled is not None:
                self._note_settled(work)

    def _note_settled(self, work: Work) -> None:
        self.losses.forget(work.delivery.message)
        if work.on_settled is not None:
            work.on_settled()

    def _ended(self, group: list[Work]) -> None:
        """Count the requests of a group as done, and begin the next commit."""
        self._on_done(map(SUBSCRIPTION_OF, group))
        if self.transactional:
            self._go_on()
            return
        if self._alone is group[0]:
            self._alone = None
        if self._finished:
            self._send_waiting()

    def _go_on(self) -> None:
        self._is_busy = False
        self._commit_next()

    # Failures

    def _failed(self, group: list[Work], error: BaseException) -> None:
        """Handle a failure on another thread, as that may block."""
        self._elsewhere(group, partial(self._fail_group, group, error))

    def _elsewhere(self, group: list[Work], step: Callable[[], None]) -> None:
        """Do a step that ends a group on another thread."""
        try:
            self._crew.submit(partial(self._guarded, group, step))
        except RuntimeError:  # the committer was closed, or there is no thread
            self._guarded(group, step)

    def _guarded(self, group: list[Work], step: Callable[[], None]) -> None:
        """Do a step that ends a group; if it fails, the broker gets the requests back."""
        try:
            step()
        except BaseException as error:
            self._abandon(group, error)
            self._ended(group)

    def _abandon(self, group: list[Work], error: BaseException) -> None:
        events.REQUESTS_SETTLEMENT_FAILED.log()
        self.lose(group, f"{error!r}")
        for work in group:
            _release(work.delivery)

    def _fail_group(self, group: list[Work], error: BaseException) -> None:
        """Handle a group that was not committed: commit its requests one by one, and reject one that fails alone."""
        is_lost = self.too_late or isinstance(error, ConnectionLostError | NoAnswerError)
        if isinstance(error, FutureTimeoutError):
            self.lose(group, UNCONFIRMED)
            for work in group:  # else the broker keeps waiting, and delivers nothing more to this worker
                _release(work.delivery)
        elif is_lost or (isinstance(error, ClosedError) and len(group) == 1):
            self.lose(group, f"{error}")
        elif len(group) > 1:
            for work in group:
                work.is_alone = True
            self._finished.extendleft(reversed(group))
            self._go_on()
            return
        else:
            self._reject(group[0], f"its answer could not be sent: {error}")
        self._ended(group)

    # Answers

    def _answered(self, work: Work, response: Message) -> None:
        work.node.sent()
        if self.recorder is not None:
            record(self.recorder, response, Direction.RESPONSE, Node.RESPONDING)

    def _refused(self, work: Work, error: SendFailedError) -> None:
        """Handle an answer that the broker refused; if its client may come back, it is taken for a retry."""
        if isinstance(error, DestinationGoneError) and work.dead is None:
            work.awaited = True  # before `take`, as the retry may end at once
            if self.comebacks.take(work):
                events.ANSWER_REPEATED.log(error)
                self.tally.add("client awaited")
                return
            work.awaited = False
        self._undelivered(work, error)

    def _concluded(self, work: Work, error: SendFailedError | None) -> None:
        """Handle the outcome of an answer that was sent again."""
        assert work.response is not None
        if error is None:
            self._answered(work, work.response)
            self.tally.add("answered")
        else:
            self._undelivered(work, error)
        work.tell()

    def _undelivered(self, work: Work, error: SendFailedError) -> None:
        if work.dead is None:
            work.tell(Outcome.UNDELIVERED)
        work.node.send_failed()
        events.ANSWER_UNDELIVERED.log(
            work.delivery.message.message_id,
            error,
            work.delivery.message.correlation_id,
            work.delivery.message.destination,
        )
        self.tally.add("client gone" if isinstance(error, DestinationGoneError) else "answer refused")

    # Dead letters

    def _bury(self, work: Work) -> None:
        """Put a request on the dead-letter destination, and send its answer if there is one."""
        if self._dead_letters and not work.uncopied and self._write_letter(work, self._dead_letters):
            self.tally.add("rejected")
            try:
                self._begin([work])
            except Exception as error:
                self._fail_group([work], error)
            return
        if work.response is not None:
            self._answer_first(work, work.response)
        self._reject(work, work.dead or "")
        self._ended([work])

    def _write_letter(self, work: Work, dead_letters: Destination) -> bool:
        """Send a copy of a request with the reason; return False if the broker must make the dead letter instead.

        The copy is not sent in the transaction that accepts the request: if the broker refused it there, the request
        would be accepted and lost.
        """
        reason = work.dead or ""
        events.REQUEST_DEAD_LETTER.log(
            dead_letters, reason, work.delivery.message.correlation_id, work.delivery.message.destination
        )
        try:
            letter = _letter(work, dead_letters, reason)
            self._connection.send(letter, timeout=COMMIT_TIMEOUT).result(COMMIT_TIMEOUT)
        except Exception as error:  # whatever it is: if the request went back, its function would run again
            events.REQUEST_DEAD_LETTER_FAILED.log(dead_letters, error)
            return False
        return True

    def _answer_first(self, work: Work, response: Message) -> None:
        try:
            self._connection.send(response, timeout=COMMIT_TIMEOUT).result(COMMIT_TIMEOUT)
            self._answered(work, response)
            self.tally.add("answered")
        except DestinationGoneError as error:
            self._refused(work, error)
        except Exception as error:
            events.ANSWER_DEAD_LETTER_FAILED.log(error)

    def _reject(self, work: Work, reason: str) -> None:
        """Have the broker put a request on its own dead-letter destination."""
        events.REQUEST_REJECTED.log(reason, work.delivery.message.correlation_id, work.delivery.message.destination)
        self.tally.add("rejected")
        _fail(work)
        try:
            work.delivery.reject(reason)
        except BrokerError as late:
            self.lose([work], f"{late}")
        else:
            self._note_settled(work)
            work.tell(Outcome.DEAD_LETTER)


def _letter(work: Work, dead_letters: Destination, reason: str) -> Message:
    """Copy a request, with the reason, its destination and id, and the fault that its caller got as properties."""
    message = work.delivery.message
    said = {
        REASON_PROPERTY: reason,
        DESTINATION_PROPERTY: str(message.destination),
        "dead_letter_message_id": message.message_id or "",
        "dead_letter_fault": _text_of(work.response),
    }
    added = [typed(name, carried_reason(value)) for name, value in said.items() if value]
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
        events.REQUEST_NOT_GIVEN_BACK.log()


def _fail(work: Work) -> None:
    """End the exchange at this node."""
    machine = work.node.machine
    happened = Input.SENDING_FAILED if machine.allows(Input.SENDING_FAILED) else Input.RECEIVING_FAILED
    if machine.allows(happened):  # the exchange of a one-way message ended when it was read
        machine.step(happened)
