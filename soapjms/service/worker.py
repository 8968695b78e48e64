"""Working on one request, on the thread of its worker: from the delivery to what is to be committed.

Here is what decides whether a request is run: rules of the protocol, expiration, where its reply would go, what the
store knows of it, and the policy for failures. The answers for it are made here; nothing is accepted or sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Lock, get_ident
from typing import Any, Final

from brokers.connection import Delivery
from brokers.message import Message, MessageType
from soapjms.capture.recorder import record
from soapjms.client.retry import is_locked, may_have
from soapjms.destinations import ReplyRule
from soapjms.middleware import properties_of
from soapjms.observing import Observed
from soapjms.observing import Outcome as Ending
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import Blame, as_envelope, build_fault, wrap
from soapjms.protocol.errors import OvertakenError, StoreError, UsageError
from soapjms.protocol.received import Reading
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.responding import NO_OTHERS, RequestAccepted, RequestRefused, RespondingNode
from soapjms.protocol.wsa import Addressing, AddressingFault
from soapjms.reply import Prepared, service_failed
from soapjms.service.addressing import Conversation, conversation, refused
from soapjms.service.committer import Committer
from soapjms.service.operations import Match, Operations, Outcome
from soapjms.service.request import Context, Policy, Stored, Then, Unfinished
from soapjms.service.settlement import Finished
from soapjms.service.store.base import NO_KEY, NO_STORE, UNCOUNTED, Answered, Claim, Store, Unstored, UnstoredClaim

FIRST_NAP: Final = 0.02
"""Seconds before the first of several further tries."""

LONGEST_PAUSE: Final = 10.0
"""Seconds before a request is run again whose end could not be stored; its effects elsewhere happen each time."""


NOT_NAMED: Final = b""
"""The name of a request that nobody has asked for yet."""


@dataclass(slots=True)
class Job:
    """One request that keeps the rules.

    Attributes:
        delivery, event, node: of the request.
        policy: what becomes of it.
        tries: how often it was run in this delivery.
        pause: seconds to wait before it is run again.
        observed: tells the observers of it; None if there are none.
        key: what names it in the store, None if nothing does.
        known: what is known of the delivery, whenever it is run.
        conversation: what WS-Addressing says of the answer; None if the request says nothing, or nobody looks.
    """

    delivery: Delivery
    event: RequestAccepted
    node: RespondingNode
    policy: Policy
    tries: int = 0
    pause: float = 0.0
    observed: Observed | None = None
    key: bytes | None = NOT_NAMED
    known: dict[object, Any] = field(default_factory=dict)
    conversation: Conversation | None = None

    def fault(self, reason: str | None) -> Message | None:
        """Make a fault of the receiver; None where it would go to nobody. Without a reason it tells nothing."""
        if self.event.one_way:
            return None
        version = self.event.envelope.version
        root = service_failed(version) if reason is None else build_fault(version, reason, blame=Blame.RECEIVER)
        return self.respond(Prepared.of(root))

    def respond(self, answer: Prepared) -> Message | None:
        """Make the response; None if it goes nowhere.

        Raises:
            UsageError, OSError: what goes along with it is not as it must be, or cannot be read.
        """
        root = answer.envelope if self.conversation is None else self.conversation.related(answer.envelope)
        others = properties_of(answer.properties) if answer.properties else NO_OTHERS
        return self.sent(self.node.respond(root, answer.attachments, others))

    def sent(self, response: Message | None) -> Message | None:
        """Return a response with its destination; None if it goes nowhere."""
        if self.conversation is None:
            return response
        return self.conversation.sent(response, is_fault=self.node.is_fault)

    def start_over(self, setting: Setting) -> None:
        """Forget the response that was made, which is not to be sent; wait twice as long as the time before."""
        self.node = RespondingNode(setting)
        self.node.receive(self.event.message)
        self.pause = min(LONGEST_PAUSE, max(FIRST_NAP, self.pause * 2))


log = logging.getLogger("soapjms.dispatcher")

LONGEST_NAP: Final = 0.5
"""Seconds between two looks at a request that somebody else works on, or at a store that fails; fewer at first."""

NOT_RUN_AGAIN: Final = "the request was begun before, and whether it was carried out is not known; it was not run again"
LARGE: Final = 1 << 20
"""Octets of a body from which on a request is noted in the store before the body is read.

Noting it and taking that back are two transactions, which take a thirtieth of the time that it takes at least to parse
so much; what is parsed takes up to forty times its size of memory.
"""

POISONOUS: Final = "no delivery of the request was ever finished; there were {}"
UNANSWERABLE: Final = "the request was carried out, but the connection was lost with each of {} attempts to answer it"


class Worker:
    """Works on requests; one object for all workers of a dispatcher.

    Args:
        service: answers requests.
        setting: what to judge by.
        committer: settles what is finished here; its losses, tally and recorder are used.
        store: what is known of requests, None to run every delivery.
        replies: where they may go.
        max_deliveries: a request that was delivered so often and never finished is a dead letter.

    Attributes:
        closing: set when whoever waits has to stop.
    """

    def __init__(
        self,
        service: Operations,
        setting: Setting,
        committer: Committer,
        store: Store | None,
        replies: ReplyRule,
        *,
        max_deliveries: int,
    ) -> None:
        self._service = service
        self._setting = setting
        self._store = store
        self._max_deliveries = max_deliveries
        self._replies = replies
        self._losses = committer.losses
        self._tally = committer.tally
        self._recorder = committer.recorder
        self._observers = committer.tally.observers
        self.closing = Event()
        self._suspects = Lock()
        self._redelivered = Lock()  # another one, as reading takes a moment, and a function may take for ever
        self._problems: dict[int, str] = {}  # of the requests that wait, by their thread

    @property
    def problem(self) -> str:
        """Why requests wait for the store; empty if they do not."""
        return next(iter(self._problems.values()), "") or ("" if self._store is None else self._store.problem)

    def work_on(self, delivery: Delivery) -> Finished | None:
        """Work on a request; None if it was given up because of `closing`, and is left to the broker."""
        if self._observers is None:
            return self._survive(delivery, None)
        observed = self._observers.received(delivery.message, redelivered=was_delivered_before(delivery))
        finished = None
        try:
            finished = self._survive(delivery, observed)
            if finished is not None:
                finished.observe(observed)
        finally:
            if finished is None:
                observed.end(Ending.LOST)
        return finished

    def _survive(self, delivery: Delivery, observed: Observed | None) -> Finished | None:
        """Work on a request, and give it back if there is no memory for it; others are worked on meanwhile."""
        try:
            return self._arrive(delivery, observed)
        except MemoryError as error:
            why = str(error) or "there is not memory enough"
        finally:
            self._problems.pop(get_ident(), None)
        # What was read of it is gone with the frames of the error.
        self._tally.add("out of memory")
        log.error("a request of %d octets or characters goes back: %s", delivery.message.size, why)
        delivery.release()
        return None

    def _arrive(self, delivery: Delivery, observed: Observed | None) -> Finished | None:
        """Count the deliveries of what may have killed somebody, or may be about to; bury what did so too often."""
        message = delivery.message
        if is_expired(message):
            self._tally.add("expired")
            log.info("a request was skipped, as it expired at %s", message.expiration)
            return Finished(delivery, RespondingNode(self._setting), None, skipped=Ending.EXPIRED)
        if message.size < LARGE and not was_delivered_before(delivery):
            return self._served(self._read(delivery, observed, NOT_NAMED))
        told = max(delivery.delivery_count or 1, 2 if message.redelivered else 1)
        key = NOT_NAMED if self._store is None else self._losses.key(message)
        if self._store is None or key is None:
            if (delivery.delivery_count or 1) > self._max_deliveries and not self._losses.times(message):
                return self._bury_unread(delivery, told, uncopied=told > self._max_deliveries + 1)
            return self._served(self._read(delivery, observed, key))
        return self._served(self._read_noted(delivery, observed, self._store, key, told))

    def _served(self, found: Finished | Job | None) -> Finished | None:
        return self._serve(found) if isinstance(found, Job) else found

    def _read_noted(
        self, delivery: Delivery, observed: Observed | None, store: Store, key: bytes, told: int
    ) -> Finished | Job | None:
        """Read a request that is noted meanwhile; from there on `begin` counts. None because of `closing`.

        One that was delivered before is read alone of its kind: what kills the process then is that one. Of what the
        broker counts only one delivery is believed: it counts also what a process that died had not begun to read.
        """
        told = min(told, 2)
        with self._alone(self._redelivered) if was_delivered_before(delivery) else nullcontext(True) as has_turn:
            before = self._when_stored(partial(store.arrive, key, told)) if has_turn else None
            if before is None:
                return None
            deliveries = max(before + 1, told)
            if deliveries > self._max_deliveries and before != UNCOUNTED:
                finished = self._bury_unread(delivery, deliveries, uncopied=before > self._max_deliveries)
                finished.on_settled = partial(store.depart, key)
                return finished
            found = self._read(delivery, observed, key)
            store.depart(key)  # not where an error left: that was a delivery in vain as well
            return found

    def _bury_unread(self, delivery: Delivery, deliveries: int, *, uncopied: bool) -> Finished:
        """Have a request become a dead letter whose body is not to be read; its caller gets a fault.

        Args:
            delivery: of the request.
            deliveries: how many there were, this one included.
            uncopied: somebody tried to bury it before and died of that, so no copy is made of its body now.
        """
        self._tally.add("poison")
        node, response = self.unread(delivery.message)
        return Finished(delivery, node, response, dead=POISONOUS.format(deliveries - 1), uncopied=uncopied)

    def unread(self, message: Message, why: str = "") -> tuple[RespondingNode, Message | None]:
        """Answer a request whose body is not read: a fault, None for who gets none.

        Args:
            message: the request, with any body or none.
            why: what its sender is told; empty if the service failed, of which nobody is told more.
        """
        node = RespondingNode(self._setting)
        event = node.receive(replace(message, message_type=MessageType.BYTES, body=b""))
        assert isinstance(event, RequestRefused)  # as it has no body
        if event.one_way or self._replies.refusal(message) is not None:
            return node, None
        version = as_envelope(event.fault).version
        fault = build_fault(version, why, blame=Blame.SENDER) if why else service_failed(version)
        return node, node.respond(fault)

    def _read(self, delivery: Delivery, observed: Observed | None, key: bytes | None) -> Finished | Job:
        """Read a request: what is to be run, or what became of it already."""
        message, node = delivery.message, RespondingNode(self._setting)
        event = node.receive(message)
        direction, role = (Direction.ONE_WAY, Node.RECEIVING) if event.one_way else (Direction.REQUEST, Node.RESPONDING)
        record(self._recorder, message, direction, role)
        match = None if isinstance(event, RequestRefused) else self._service.find(event)
        node, event, said = self._addressed(node, event, match)
        refusal = None if event.one_way else self._replies.refusal(event.message)
        if refusal is not None:
            self._tally.add("reply refused")
            return Finished(delivery, node, None, dead=f"it must not be answered: {refusal}")
        if event.one_way:
            self._tally.add("one-way")
        if isinstance(event, RequestRefused):
            self._note_refusal(event)
            if observed is not None:
                observed.fault(event.subcode)
            if event.one_way:
                return Finished(delivery, node, None, skipped=Ending.REFUSED)
            return Finished(delivery, node, node.respond(event.fault))
        if isinstance(said, AddressingFault):
            return self._refuse_addressing(delivery, node, event, said)
        assert match is not None  # as the request was not refused
        self._tally.add("accepted")
        if event.tolerated:
            self._tally.add("tolerated")
            log.info("a request was let pass that breaks %s", ", ".join(each.assertion for each in event.tolerated))
        if observed is not None:
            observed.operation = match.operation
        return Job(delivery, event, node, match.policy, observed=observed, key=key, conversation=said)

    def _addressed(
        self, node: RespondingNode, event: RequestAccepted | RequestRefused, match: Match | None
    ) -> tuple[RespondingNode, RequestAccepted | RequestRefused, Conversation | AddressingFault | None]:
        """Have a request go on as if its JMSReplyTo said what its addressing headers say."""
        if isinstance(event, RequestRefused) or match is None:
            return node, event, None
        found = match.addressing_of(event)
        if not isinstance(found, Addressing):
            return node, event, found
        said = conversation(found, event.message, self._replies, match.reply_action)
        if isinstance(said, AddressingFault) or (message := said.applied(event.message)) is event.message:
            return node, event, said
        node = RespondingNode(self._setting)
        return node, node.receive(message), said

    def _refuse_addressing(
        self, delivery: Delivery, node: RespondingNode, event: RequestAccepted, fault: AddressingFault
    ) -> Finished:
        self._tally.add("refused", fault.code)
        log.warning("the addressing headers of a request were refused: %r", fault.reason)
        if event.one_way:
            return Finished(delivery, node, None, skipped=Ending.REFUSED)
        return Finished(delivery, node, node.respond(refused(fault, fault.build(event.envelope.version))))

    def _note_refusal(self, event: RequestRefused) -> None:
        self._tally.add("refused", event.subcode or "no envelope")
        if event.one_way:  # nobody else is told
            log.warning("a one-way message was refused: %r (%s)", event.reason, event.subcode)
        else:
            log.info("a request was refused: %r (%s)", event.reason, event.subcode)

    # Beginning

    def _serve(self, job: Job) -> Finished | None:
        """Run a request as often as it takes.

        One that somebody died of or with is run alone of its kind: should it be what kills the process, it takes no
        other such request along, again and again. One whose answer ends the connection each time is not run again.
        """
        lost = self._losses.times(job.delivery.message)
        if lost >= self._max_deliveries:
            self._tally.add("poison")
            reason = UNANSWERABLE.format(lost)
            return Finished(job.delivery, job.node, job.fault(reason), dead=reason)
        found = self._begin(job)
        if not isinstance(found, Claim) or not found.deaths:
            return self._serve_from(job, found)
        found.abandon()
        with self._alone(self._suspects) as has_turn:
            return self._serve_from(job, self._begin(job)) if has_turn else None

    @contextmanager
    def _alone(self, kind: Lock) -> Iterator[bool]:
        """Be the only thread that is at what somebody may have died of or with; False because of `closing`."""
        while not (has_turn := kind.acquire(timeout=LONGEST_NAP)):
            if self.closing.is_set():
                break
        try:
            yield has_turn
        finally:
            if has_turn:
                kind.release()

    def _serve_from(self, job: Job, found: Claim | Answered | None) -> Finished | None:
        while found is not None:
            finished = self._run(job, found) if isinstance(found, Claim) else self._answer_again(job, found)
            if finished is not None or self.closing.wait(job.pause):
                return finished
            found = self._begin(job)
        return None

    def _begin(self, job: Job) -> Claim | Answered | None:
        """Begin a request, when nobody else works on it and the store can be written; None because of `closing`."""
        store, key = self._store_for(job)
        found: Claim | Answered | None = self._when_stored(partial(store.begin, key))
        return found

    def _when_stored(self, ask: Callable[[], Any]) -> Any:
        """Ask the store until it can be written and says something; None because of `closing`."""
        nap, waited = FIRST_NAP, False
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
            nap = min(LONGEST_NAP, nap * 2)

    def _store_for(self, job: Job) -> tuple[Store, bytes]:
        if self._store is None:
            return Unstored(NO_STORE), b""
        key = self._key_of(job)
        if key is None:
            self._tally.add("without key")
            return Unstored(NO_KEY), b""
        return self._store, key

    def _key_of(self, job: Job) -> bytes | None:
        """Name a request by what its own broker keeps: before it is done the connection may be one to another kind."""
        if job.key == NOT_NAMED:
            job.key = self._losses.key(job.delivery.message)
        return job.key

    def _answer_again(self, job: Job, found: Answered) -> Finished | None:
        """Answer a request that was finished before, with what it was answered then; its function is not run.

        Who verifies and whatever else is around the function is asked first, and may refuse. None if that was not to be
        had from the store, and is to be asked once more after `job.pause` seconds.
        """
        response, stored = found.response, _stored(job, found.response)
        context = _context(job, found.claim, partial(self._key_of, job), stored)
        outcome = self._service.perform(job.event, context)
        failure = found.claim.problem() or outcome.failure
        found.claim.roll_back()
        if isinstance(failure, StoreError):
            self._note_store_error(failure)
            job.start_over(self._setting)
            return None
        if job.observed is not None:
            job.observed.redelivered = True
        if failure is not None or not (outcome.keeps_effects and stored.is_reached):
            self._tally.add("repeat refused")
            log.warning("a request that was finished before came again, and was not let pass to what the store has")
            refusal = _response_of(job, outcome)[0] if failure is None else None
            return Finished(job.delivery, job.node, refusal or job.fault(None))
        self._tally.add("repeated")
        again = None if response is None or job.event.one_way else job.sent(job.node.respond_again(response))
        if response is not None and again is not None and not may_have(again, job.event.message, response):
            self._note_copy()
            again = None
        return Finished(job.delivery, job.node, again)

    def _refuse_copy(self, job: Job, claim: Claim) -> Finished:
        """Do nothing for a copy of one of our own clients' requests, which is told from that without doubt."""
        claim.finish(None)
        self._note_copy()
        return Finished(job.delivery, job.node, None)

    def _note_copy(self) -> None:
        self._tally.add("reply refused")
        log.warning("a request was repeated, to be answered at another place, and gets no answer")

    def _note_store_error(self, error: StoreError) -> None:
        said, level = str(error), logging.ERROR
        if isinstance(error, OvertakenError):
            self._tally.add("overtaken")
        else:
            self._tally.add("store failed")
            level = logging.DEBUG if said in self._problems.values() else logging.ERROR  # it is tried again and again
            self._problems[get_ident()] = said
        log.log(level, "a request waits, as it could not be stored: %s", said)

    # Running

    def _run(self, job: Job, claim: Claim) -> Finished | None:
        """Run a request; None if it is to be begun again after `job.pause` seconds."""
        job.tries += 1
        try:
            return self._decide(job, claim)
        except StoreError as error:
            self._note_store_error(error)
            _leave_unfinished(job, claim)
            job.start_over(self._setting)
            return None
        except BaseException:
            _leave_unfinished(job, claim)
            raise

    def _decide(self, job: Job, claim: Claim) -> Finished | None:
        if claim.copied and is_locked(job.delivery.message):
            return self._refuse_copy(job, claim)
        told = job.delivery.delivery_count or 1
        if not isinstance(claim, UnstoredClaim):  # as `_read_noted` has it: the broker counts what nobody had begun
            told = min(told, 2)
        delivered = max(told, claim.deaths + 1)
        if job.tries == 1 and delivered > self._max_deliveries:
            self._tally.add("poison")
            return self._bury(job, claim, POISONOUS.format(delivered - 1))
        if claim.deaths and job.policy.unfinished == Unfinished.FAULT:
            self._tally.add("not run again")
            if job.event.one_way:  # nobody would hear of it
                return self._bury(job, claim, NOT_RUN_AGAIN)
            return self._finish(job, claim, job.fault(NOT_RUN_AGAIN))
        claim.name = job.delivery.message.message_id or job.delivery.message.correlation_id or ""
        context = _context(job, claim, partial(self._key_of, job))
        outcome = self._service.perform(job.event, context) if job.observed is None else self._perform(job, context)
        problem = claim.problem()
        response, failure = _response_of(job, outcome) if problem is None else (None, problem)
        if isinstance(
            failure, StoreError
        ):  # of request.transaction: no mistake of the function, whatever it made of it
            raise failure
        if failure is not None:
            claim.roll_back()
            return self._fail(job, claim, failure)
        if not outcome.keeps_effects:
            claim.roll_back()
        return self._finish(job, claim, response)

    def _perform(self, job: Job, context: Context) -> Outcome:
        """Run a function as the observers want it."""
        assert job.observed is not None
        job.observed.redelivered = context.redelivered
        with job.observed.working():
            return self._service.perform(job.event, context)

    def _fail(self, job: Job, claim: Claim, failure: BaseException) -> Finished | None:
        """Do what the policy says for a function that failed."""
        if job.observed is not None:
            job.observed.failed(failure)
        tries, policy = max(job.tries, claim.failures + 1), job.policy
        if tries <= policy.retries and not is_expired(job.delivery.message):
            self._tally.add("retried")
            job.pause = policy.pause_after(tries)
            claim.abandon(failed=True)
            return None
        self._tally.add("failed")
        if policy.then == Then.DEAD_LETTER or job.event.one_way:
            return self._bury(job, claim, f"its function failed {tries} times, at last with {failure!r}")
        return self._finish(job, claim, job.fault(None))

    def _finish(self, job: Job, claim: Claim, response: Message | None) -> Finished:
        claim.finish(response)
        return Finished(job.delivery, job.node, response)

    def _bury(self, job: Job, claim: Claim, reason: str) -> Finished:
        """Have a request become a dead letter, and forgotten: should somebody send it again, it starts anew."""
        claim.forget()
        return Finished(job.delivery, job.node, job.fault(None), dead=reason)


def _leave_unfinished(job: Job, claim: Claim) -> None:
    """Let go of a request that was begun and could not be finished; by policy it is as if somebody had died of it."""
    if job.policy.unfinished == Unfinished.FAULT:
        claim.deaths += 1
    claim.abandon()


def is_expired(message: Message) -> bool:
    """Say whether nobody waits for the answer any more, by the clock of this machine; 0 is never."""
    return 0 < (message.expiration or 0) <= time.time_ns() // 1_000_000


def was_delivered_before(delivery: Delivery) -> bool:
    """Say whether the broker tells that the request was delivered before, to whomever."""
    return bool(delivery.message.redelivered) or (delivery.delivery_count or 1) > 1


def _stored(job: Job, response: Message | None) -> Stored:
    """Return the answer that the store has as middleware gets it."""
    setting = job.node.setting
    found = None if response is None else Reading(response, setting.profile, setting.limits).envelope
    return Stored(Prepared.of(wrap(None, job.event.envelope.version) if found is None else found.root))


def _context(job: Job, claim: Claim, key: Callable[[], bytes | None], stored: Stored | None = None) -> Context:
    delivery = job.delivery
    told = delivery.delivery_count
    return Context(
        delivery_count=told if told is not None or isinstance(claim, UnstoredClaim) else claim.deaths + 1,
        redelivered=was_delivered_before(delivery) or claim.deaths > 0 or stored is not None,
        claim=claim,
        addressing=None if job.conversation is None else job.conversation.addressing,
        delivery=job.known,
        key=key,
        stored=stored,
    )


def _response_of(job: Job, outcome: Outcome) -> tuple[Message | None, BaseException | None]:
    """Make the response, or say what failed: the function, or sending the attachments that it returned."""
    if outcome.failure is not None or job.event.one_way:
        return None, outcome.failure
    try:
        return job.respond(outcome.prepared), None
    except (UsageError, OSError) as error:
        log.exception("an answer, its attachments or its properties cannot be sent")
        return None, error
