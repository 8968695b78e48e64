"""Running one request, on the thread of its worker: from its delivery to the outcome to commit.

This file decides whether a request is run: by the rules of the protocol, its expiration, its reply destination, the
store, and the policy for failures. It makes the answers; it does not accept or send anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Event, Lock, get_ident
from typing import TYPE_CHECKING, Any, Final

from lxml import etree

from brokers.connection import Delivery
from brokers.message import Message, MessageType
from soapjms import events
from soapjms.capture.recorder import record
from soapjms.client.retry import is_locked, may_have
from soapjms.destinations import ReplyRule
from soapjms.observing import Outcome
from soapjms.ping import BrokerClock
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import as_envelope, build_fault, wrap
from soapjms.protocol.errors import Blame, OvertakenError, StoreError, UsageError
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode
from soapjms.protocol.wsa import Addressing, AddressingFault
from soapjms.reply import Prepared, service_failed
from soapjms.service.addressing import Conversation, conversation, refused
from soapjms.service.committer import Committer
from soapjms.service.operations import FunctionOutcome, Operations
from soapjms.service.request import FailureRule, Request, StoredAnswer, UnfinishedRule
from soapjms.service.store.base import (
    ANY_CLAIM,
    UNCOUNTED_DELIVERIES,
    UNNAMED_CLAIM,
    Claim,
    FinishedBefore,
    NoStoreClaim,
    Store,
)
from soapjms.service.work import NOT_NAMED, Work

if TYPE_CHECKING:
    from soapjms.service.event_loop import LoopTasks

FIRST_NAP_SECONDS: Final = 0.02
MAX_NAP_SECONDS: Final = 0.5
"""First and longest wait, in seconds, for a request that another worker is running, or for a store that fails."""

NOT_RUN_AGAIN: Final = "the request was begun before, and whether it was carried out is not known; it was not run again"
LARGE_BODY_OCTETS: Final = 1 << 20
"""Size of a body, in octets, from which on a request is noted in the store before the body is read.

Noting a request and removing the note are two transactions: about a thirtieth of the time that parsing a body of this
size takes. The parsed body takes up to forty times its size in memory.
"""

FREE: Final = nullcontext(True)
"""No-op context, used without a lock or observers."""


POISONOUS: Final = "no delivery of the request was ever finished; there were {}"
UNANSWERABLE: Final = "the request was carried out, but the connection was lost with each of {} attempts to answer it"


class Worker:
    """Runs requests; one object for all workers of a dispatcher.

    Args:
        service: answers the requests.
        setting: the setting to judge requests by.
        committer: settles the requests that are finished here; its losses, tally and recorder are used.
        store: remembers requests; None to run every delivery.
        replies: the rule for reply destinations.
        clock: the clock by which requests expire.
        max_deliveries: a request that was delivered this often and never finished becomes a dead letter.

    Attributes:
        closing: set when all waiting must end.
        tasks: runs `async` functions; None for the loops of the services.
        on_shutdown: called when a function failed because the interpreter is shutting down.
    """

    tasks: LoopTasks | None = None
    on_shutdown: Callable[[], object]

    def __init__(
        self,
        service: Operations,
        setting: Setting,
        committer: Committer,
        store: Store | None,
        replies: ReplyRule,
        clock: BrokerClock,
        max_deliveries: int,
    ) -> None:
        self._service = service
        self._setting = setting
        self._store = store
        self._max_deliveries = max_deliveries
        self._replies = replies
        self._clock = clock
        self._losses = committer.losses
        self._tally = committer.tally
        self._recorder = committer.recorder
        self._observers = committer.tally.observers
        self.closing = Event()
        self._suspects = Lock()
        self._redelivered = Lock()  # not the same: reading takes a moment, but a function may never end
        self._problems: dict[int, str] = {}  # why requests wait, by their thread

    @property
    def problem(self) -> str:
        """Why requests wait for the store; empty if they do not."""
        return next(iter(self._problems.values()), "") or ("" if self._store is None else self._store.problem)

    def work_on(self, delivery: Delivery) -> Work | None:
        """Run a request; return None if it is left to the broker because of `closing` or a lack of memory.

        A request that does not fit into memory is released; other requests are run meanwhile.
        """
        work = Work(delivery, RespondingNode(self._setting))
        if self._observers is not None:
            work.observed = self._observers.received(delivery.message, redelivered=work.came_before)
        is_over, message = False, delivery.message
        try:
            if message.expiration or work.came_before or message.size >= LARGE_BODY_OCTETS:
                is_over = self._read_counted(work)
            else:
                is_over = self._read(work)
            is_over = is_over and (work.is_finished or self._serve(work))
            return work if is_over else None
        except MemoryError as error:
            why = str(error) or "there is not enough memory"
        finally:
            if self._problems:
                self._problems.pop(get_ident(), None)
            if not is_over and work.observed is not None:
                work.observed.end(Outcome.LOST)
        del work  # frees the parts of the request that were read; the error's frames have freed the rest already
        events.REQUEST_NO_MEMORY.log(delivery.message.size, why)
        self._tally.add("out of memory")
        delivery.release()
        return None

    def _is_expired(self, message: Message) -> bool:
        return 0 < (message.expiration or 0) <= self._clock.now() and not self._clock.is_measured_now

    # Reading

    def _read_counted(self, work: Work) -> bool:
        """Read a request, or settle it unread; return False because of `closing`.

        The deliveries of a request that may have killed a process, or may yet do so, are counted; after too many of
        them it becomes a dead letter.
        """
        delivery, message = work.delivery, work.delivery.message
        if message.expiration and self._is_expired(message):
            events.REQUEST_EXPIRED.log(
                message.correlation_id, (self._clock.now() - message.expiration) / 1000, message.destination
            )
            self._tally.add("expired")
            work.finish(None, skipped=Outcome.EXPIRED)
            return True
        if work.came_before or message.size >= LARGE_BODY_OCTETS:
            told = max(delivery.delivery_count or 1, 2 if message.redelivered else 1)
            work.key = NOT_NAMED if self._store is None else self._losses.key(message)
            if self._store is not None and work.key is not None:
                return self._read_noted(work, self._store, work.key, told)
            if (delivery.delivery_count or 1) > self._max_deliveries and not self._losses.times(message):
                self._bury_unread(work, told, uncopied=told > self._max_deliveries + 1)
                return True
        return self._read(work)

    def _read_noted(self, work: Work, store: Store, key: bytes, told: int) -> bool:
        """Read a request that the store notes meanwhile; afterwards `begin` counts. Return False because of `closing`.

        Redelivered requests are read one at a time: if the process dies, that one is to blame. Of the broker's count
        only one earlier delivery is believed, as it includes deliveries that a dead process had not begun to read.
        """
        told = min(told, 2)
        with self._alone(self._redelivered) if work.came_before else FREE as has_turn:
            before = self._when_stored(partial(store.arrive, key, told)) if has_turn else None
            if before is None:
                return False
            deliveries = max(before + 1, told)
            if deliveries > self._max_deliveries and before != UNCOUNTED_DELIVERIES:
                self._bury_unread(work, deliveries, uncopied=before > self._max_deliveries)
                work.on_settled = partial(store.depart, key)
                return True
            self._read(work)
            store.depart(key)  # not after an error: that delivery counts as failed
            return True

    def _bury_unread(self, work: Work, deliveries: int, *, uncopied: bool) -> None:
        """Make a request a dead letter without reading its body; its caller gets a fault.

        Args:
            work: the request.
            deliveries: the number of its deliveries, including this one.
            uncopied: True if a process died making it a dead letter before, so that its body must not be copied now.
        """
        self._tally.add("poison")
        work.node, response = self.unread(work.delivery.message)
        work.finish(response, dead=POISONOUS.format(deliveries - 1), uncopied=uncopied)

    def unread(self, message: Message, why: str = "") -> tuple[RespondingNode, Message | None]:
        """Make the fault for a request whose body is not read; None if the request is not answered.

        Args:
            message: the request, with any body or none.
            why: the reason in the fault; empty for the general fault of a service that failed.
        """
        node = RespondingNode(self._setting)
        event = node.receive(replace(message, message_type=MessageType.BYTES, body=b""))
        assert isinstance(event, RequestRefused)  # as it has no body
        if event.one_way or self._replies.refusal(message) is not None:
            return node, None
        version = as_envelope(event.fault).version
        fault = build_fault(version, why, blame=Blame.SENDER) if why else service_failed(version)
        return node, node.respond(fault)

    def _read(self, work: Work) -> bool:
        """Read a request: set what is to be run, or settle it. Return True."""
        message, node = work.delivery.message, work.node
        event = node.receive(message)
        if self._recorder is not None:
            direction = Direction.ONE_WAY if event.one_way else Direction.REQUEST
            record(self._recorder, message, direction, Node.RECEIVING if event.one_way else Node.RESPONDING)
        said: Conversation | AddressingFault | None = None
        if isinstance(event, RequestAccepted):
            work.match = match = self._service.find(event)
            if match.service.addressing:
                event, said = self._addressed(work, event)
        refusal = None if event.one_way else self._replies.refusal(event.message)
        if refusal is not None:
            self._tally.add("reply refused")
            work.finish(None, dead=f"it must not be answered: {refusal}")
            return True
        if event.one_way:
            self._tally.add("one-way")
        if isinstance(event, RequestRefused):
            self._note_refusal(work.delivery.message, event)
            if work.observed is not None:
                work.observed.fault(event.subcode)
            self._refuse(work, event, event.fault)
        elif isinstance(said, AddressingFault):
            events.REQUEST_ADDRESSING_REFUSED.log(
                said.reason, work.delivery.message.correlation_id, work.delivery.message.destination
            )
            self._tally.add("refused", said.code)
            self._refuse(work, event, refused(said, said.build(event.envelope.version)))
        else:
            self._tally.add("accepted")
            if event.tolerated:
                events.REQUEST_TOLERATED.log(", ".join(each.assertion for each in event.tolerated))
                self._tally.add("tolerated")
            if work.observed is not None:
                work.observed.operation = work.match.operation
            work.accepted = event
            if said is not None:
                work.conversation = said
        return True

    def _addressed(
        self, work: Work, event: RequestAccepted
    ) -> tuple[RequestAccepted | RequestRefused, Conversation | AddressingFault | None]:
        """Have the node receive the request again with the JMSReplyTo that its addressing headers ask for."""
        found = work.match.addressing_of(event)
        if not isinstance(found, Addressing):
            return event, found
        said = conversation(found, event.message, self._replies, work.match.reply_action)
        if isinstance(said, AddressingFault) or (message := said.applied(event.message)) is event.message:
            return event, said
        work.node = RespondingNode(self._setting)
        return work.node.receive(message), said

    @staticmethod
    def _refuse(work: Work, event: RequestAccepted | RequestRefused, fault: etree._Element) -> None:
        """Answer a refused request with a fault; a one-way message is dropped."""
        if event.one_way:
            work.finish(None, skipped=Outcome.REFUSED)
        else:
            work.finish(work.node.respond(fault))

    def _note_refusal(self, message: Message, event: RequestRefused) -> None:
        self._tally.add("refused", event.subcode or "no envelope")
        if event.one_way:  # nobody else is told
            events.MESSAGE_REFUSED.log(event.reason, event.subcode, message.correlation_id, message.destination)
        else:
            events.REQUEST_REFUSED.log(event.reason, event.subcode, message.correlation_id, message.destination)

    # Beginning

    def _serve(self, work: Work) -> bool:
        """Run a request as often as needed; return False because of `closing`.

        Requests that were under way when a process died are run one at a time: if one of them kills the process, it
        does not count against the others. A request whose answer ends the connection each time is not run again.
        """
        if self._losses.by_key and (lost := self._losses.times(work.delivery.message)) >= self._max_deliveries:
            self._tally.add("poison")
            reason = UNANSWERABLE.format(lost)
            work.finish(work.fault(reason), dead=reason)
            return True
        if self._store is None:
            return self._run(work, ANY_CLAIM) or (not self.closing.wait(work.pause) and self._repeat(work, ANY_CLAIM))
        found = self._begin(work)
        if found is None or isinstance(found, FinishedBefore) or not found.deaths:
            return self._repeat(work, found)
        found.abandon()
        with self._alone(self._suspects) as has_turn:
            return self._repeat(work, self._begin(work) if has_turn else None)

    def _repeat(self, work: Work, found: Claim | FinishedBefore | None) -> bool:
        """Run a request that was begun, again and again until it is over; return False because of `closing`."""
        while found is not None:
            is_over = self._answer_again(work, found) if isinstance(found, FinishedBefore) else self._run(work, found)
            if is_over or self.closing.wait(work.pause):
                return is_over
            found = self._begin(work)
        return False

    @contextmanager
    def _alone(self, kind: Lock) -> Iterator[bool]:
        """Hold the lock for requests that may have killed a process; yield False because of `closing`."""
        while not (has_turn := kind.acquire(timeout=MAX_NAP_SECONDS)):
            if self.closing.is_set():
                break
        try:
            yield has_turn
        finally:
            if has_turn:
                kind.release()

    def _begin(self, work: Work) -> Claim | FinishedBefore | None:
        """Begin a request once no other worker runs it and the store can be written; None because of `closing`."""
        if self._store is None:
            return ANY_CLAIM
        key = self._key_of(work)
        if key is None:
            self._tally.add("without key")
            return UNNAMED_CLAIM
        found: Claim | FinishedBefore | None = self._when_stored(partial(self._store.begin, key))
        return found

    def _when_stored(self, ask: Callable[[], Any]) -> Any:
        """Call `ask` until the store can be written and returns a result; return None because of `closing`."""
        nap, waited = FIRST_NAP_SECONDS, False
        while True:
            try:
                found = ask()
                if waited:
                    self._problems.pop(get_ident(), None)
                if found is not None:
                    return found
            except StoreError as error:
                waited = True
                self._note_store_error(error)
            if self.closing.wait(nap):
                return None
            nap = min(MAX_NAP_SECONDS, nap * 2)

    def _key_of(self, work: Work) -> bytes | None:
        """Return the key of a request, computed once: a failover may bring another kind of broker before its end."""
        if work.key == NOT_NAMED:
            work.key = self._losses.key(work.delivery.message)
        return work.key

    def _answer_again(self, work: Work, found: FinishedBefore) -> bool:
        """Answer a request that was finished before with the stored answer; its function is not run.

        `verify` and the middleware run first, and may refuse the request. Return False if the store failed, and the
        request is to be begun again after `work.pause` seconds.
        """
        response, stored = found.response, _stored(work, found.response)
        outcome = self._service.perform(self._request(work, found.claim, stored), work.match)
        failure = found.claim.problem() or outcome.failure
        found.claim.roll_back()
        if isinstance(failure, StoreError):
            self._note_store_error(failure)
        if isinstance(failure, StoreError) or self._is_of_shutdown(failure):
            work.start_over(self._setting)
            return False
        if work.observed is not None:
            work.observed.redelivered = True
        if failure is not None or not (outcome.keeps_effects and stored.is_reached):
            events.REQUEST_REPEAT_REFUSED.log(work.delivery.message.correlation_id, work.delivery.message.destination)
            self._tally.add("repeat refused")
            refusal, failure = _response_of(work, outcome) if failure is None else (None, failure)
            work.finish(refusal if failure is None else work.fault(None))
            return True
        self._tally.add("repeated")
        again = None if response is None or work.accepted.one_way else work.sent(work.node.respond_again(response))
        if response is not None and again is not None and not may_have(again, work.accepted.message, response):
            self._note_copy()
            again = None
        work.finish(again)
        return True

    def _note_copy(self) -> None:
        events.REQUEST_REPLY_CHANGED.log()
        self._tally.add("reply refused")

    def _note_store_error(self, error: StoreError) -> None:
        said, level = str(error), logging.ERROR
        if isinstance(error, OvertakenError):
            self._tally.add("overtaken")
        else:
            self._tally.add("store failed")
            level = logging.DEBUG if said in self._problems.values() else logging.ERROR  # it is tried again and again
            self._problems[get_ident()] = said
        events.REQUEST_STORE_WAITS.log(said, level=level)

    # Running. Each of these returns whether the request is over; False if it is to be begun again after a pause.

    def _run(self, work: Work, claim: Claim) -> bool:
        """Run a request, unless the store or the policy settles it without running."""
        work.tries += 1
        try:
            delivery, observed = work.delivery, work.observed
            is_first = not (claim.copied or claim.deaths or delivery.delivery_count)
            if not is_first and self._is_settled_unrun(work, claim):
                return True
            if not isinstance(claim, NoStoreClaim):
                claim.name = delivery.message.message_id or delivery.message.correlation_id or ""
            request = self._request(work, claim)
            if observed is None:
                outcome = self._service.perform(request, work.match)
            else:
                with observed.working(redelivered=request.redelivered):
                    outcome = self._service.perform(request, work.match)
            if self.tasks is not None and self.tasks.was_cancelled(outcome.failure):
                return _withdraw(work, claim, self._setting)
            failure = claim.problem() or outcome.failure
            response, failure = _response_of(work, outcome) if failure is None else (None, failure)
            if isinstance(failure, StoreError):
                raise failure  # of request.transaction: not the function's mistake, even if the function caught it
            if failure is not None:
                claim.roll_back()
                return self._fail(work, claim, failure)
            if not outcome.keeps_effects:
                claim.roll_back()
            claim.finish(response)
            work.finish(response)
            return True
        except StoreError as error:
            self._note_store_error(error)
            return _withdraw(work, claim, self._setting)
        except BaseException:
            _leave_unfinished(work, claim)
            raise

    def _is_settled_unrun(self, work: Work, claim: Claim) -> bool:
        """Settle a request that must not be run; return False for one to run."""
        if claim.copied and is_locked(work.delivery.message):  # a copy of a request of a soapjms client, without doubt
            self._note_copy()
            return _finish(work, claim, None)
        told = work.delivery.delivery_count or 1
        if not isinstance(claim, NoStoreClaim):  # as in `_read_noted`: the broker also counts deliveries never begun
            told = min(told, 2)
        delivered = max(told, claim.deaths + 1)
        if work.tries == 1 and delivered > self._max_deliveries:
            self._tally.add("poison")
            return _bury(work, claim, POISONOUS.format(delivered - 1))
        if claim.deaths and work.match.policy.unfinished == UnfinishedRule.FAULT:
            self._tally.add("not run again")
            if work.accepted.one_way:  # nobody would get the fault
                return _bury(work, claim, NOT_RUN_AGAIN)
            return _finish(work, claim, work.fault(NOT_RUN_AGAIN))
        return False

    def _fail(self, work: Work, claim: Claim, failure: BaseException) -> bool:
        """Apply the policy to a function that failed; leave its request to the broker if the program is ending."""
        if self._is_of_shutdown(failure):
            return _withdraw(work, claim, self._setting)
        if work.observed is not None:
            work.observed.failed(failure)
        tries, policy = max(work.tries, claim.failures + 1), work.match.policy
        if tries <= policy.retries and not self._is_expired(work.delivery.message):
            self._tally.add("retried")
            work.pause = policy.pause_after(tries)
            claim.abandon(failed=True)
            return False
        self._tally.add("failed")
        if policy.then == FailureRule.DEAD_LETTER or work.accepted.one_way:
            return _bury(work, claim, f"its function failed {tries} times, at last with {failure!r}")
        return _finish(work, claim, work.fault(None))

    def _is_of_shutdown(self, failure: BaseException | None) -> bool:
        """Say whether a function failed because Python's executors take no work while it shuts down; end waits then.

        The state of the interpreter alone does not say that: other threads may run long after the main thread has
        ended. Nor does the text of the error, which may be a sender's.
        """
        if failure is None or not getattr(threading, "_SHUTTING_DOWN", True):
            return False
        causes = failure, failure.__cause__, failure.__context__
        if not any(isinstance(each, RuntimeError) and "interpreter shutdown" in str(each) for each in causes):
            return False
        if not self.closing.is_set():
            self.closing.set()
            self.on_shutdown()
        return True

    def _request(self, work: Work, claim: Claim, stored: StoredAnswer | None = None) -> Request:
        told = work.delivery.delivery_count
        return Request.of(
            work.accepted,
            claim=claim,
            addressing=None if work.conversation is None else work.conversation.addressing,
            lead=self._clock.lead,
            delivery_count=told if told is not None or isinstance(claim, NoStoreClaim) else claim.deaths + 1,
            redelivered=work.came_before or claim.deaths > 0 or stored is not None,
            delivery=work.known,
            tasks=self.tasks,
            named=partial(self._key_of, work),
            stored=stored,
        )


def _finish(work: Work, claim: Claim, response: Message | None) -> bool:
    claim.finish(response)
    work.finish(response)
    return True


def _bury(work: Work, claim: Claim, reason: str) -> bool:
    """Make a request a dead letter, and remove it from the store: if it is sent again, it starts anew."""
    claim.forget()
    work.finish(work.fault(None), dead=reason)
    return True


def _leave_unfinished(work: Work, claim: Claim) -> None:
    """Abandon a request that was begun and could not be finished; by policy it counts as a death of its process."""
    if work.match.policy.unfinished == UnfinishedRule.FAULT and not isinstance(claim, NoStoreClaim):
        claim.deaths += 1
    claim.abandon()


def _withdraw(work: Work, claim: Claim, setting: Setting) -> bool:
    """Leave a request as if it had never been begun here; return that it is not over."""
    _leave_unfinished(work, claim)
    work.start_over(setting)
    return False


def _stored(work: Work, response: Message | None) -> StoredAnswer:
    """Return the stored answer in the form that middleware gets."""
    setting = work.node.setting
    found = None if response is None else Reading(response, setting.profile, setting.limits).envelope
    return StoredAnswer(Prepared(wrap(None, work.accepted.envelope.version) if found is None else found.root))


def _response_of(work: Work, outcome: FunctionOutcome) -> tuple[Message | None, BaseException | None]:
    """Make the response to a function that did not fail, or return the failure of an answer that cannot be sent."""
    if work.accepted.one_way:
        return None, None
    try:
        return work.respond(outcome.prepared), None
    except UsageError as error:
        events.ANSWER_UNSENDABLE.log()
        return None, error
