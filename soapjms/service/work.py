"""One request on its way through a service, from its delivery until it is settled together with its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from brokers.connection import Consumer, Delivery
from brokers.message import Message
from soapjms.middleware import properties_of
from soapjms.observing import Observed, Outcome
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import build_fault
from soapjms.protocol.errors import Blame
from soapjms.protocol.responding import NO_OTHERS, RequestAccepted, RespondingNode
from soapjms.reply import Prepared, service_failed
from soapjms.service.addressing import Conversation
from soapjms.service.operations import Match

FIRST_PAUSE_SECONDS: Final = 0.02
"""Pause before the first retry."""

MAX_PAUSE_SECONDS: Final = 10.0
"""Longest pause before a request whose end could not be stored is run again; its effects elsewhere are repeated."""

NOT_NAMED: Final = b""
"""The key of a request whose key was not computed yet."""


class Subscription:
    """The subscription of one worker.

    Attributes:
        consumer: the consumer; set once it was made.
        open: the number of its requests that are not settled yet.
    """

    consumer: Consumer

    def __init__(self) -> None:
        self.open = 0


class Work:
    """A request, its state and its outcome. The worker fills it in; the committer settles it.

    Attributes:
        delivery: the delivery of the request.
        subscription: the subscription that it came from; set once it was worked on.
        node: the node of its exchange.
        observed: tells the observers about it; None if there are none.
        key: its key in the store; None if it has none, NOT_NAMED until the key is computed.
        accepted: the event of the node that accepted it; not set for a request that was refused or not read, and
            dropped at the end.
        match: the operation of the request; set once the node accepted it.
        conversation: what WS-Addressing says about the answer; None without addressing headers, or if the service
            does not read them.
        known: values that middleware keeps for this delivery over all its tries; see `Request.delivery`.
        came_before: True if the broker reports that it was delivered before, to any consumer.
        tries: how often it was run in this delivery.
        pause: seconds to wait before it is run again.
        is_finished: True if only accepting it is left, together with sending its answer if there is one.
        response: the answer to send, or None.
        dead: why the request becomes a dead letter instead of being accepted, or None.
        skipped: its outcome if it was not run and is not answered: expired, or refused as a one-way message.
        uncopied: True if a process died copying it, so that the broker must make the dead letter.
        is_alone: True if it is settled by itself, as its group could not be committed.
        awaited: True while its client is gone and may come back; the outcome is told then.
        on_settled: called once the request is settled, or None.
        give_up: stops waiting for the broker to confirm the answer; None until that is sent.
    """

    subscription: Subscription
    accepted: RequestAccepted
    match: Match
    observed: Observed | None = None  # these are attributes of an object only once they are set, as most never are
    key: bytes | None = NOT_NAMED
    conversation: Conversation | None = None
    tries: int = 0
    pause: float = 0.0
    is_finished: bool = False
    response: Message | None = None
    dead: str | None = None
    skipped: Outcome | None = None
    uncopied: bool = False
    is_alone: bool = False
    awaited: bool = False
    on_settled: Callable[[], None] | None = None
    give_up: Callable[[], object] | None = None

    def __init__(self, delivery: Delivery, node: RespondingNode) -> None:
        self.delivery = delivery
        self.node = node
        self.known: dict[object, Any] = {}
        self.came_before = bool(delivery.message.redelivered) or (delivery.delivery_count or 1) > 1

    # Answers

    def fault(self, reason: str | None) -> Message | None:
        """Make a fault of the receiver, with a general text if `reason` is None; None for a one-way message."""
        if self.accepted.one_way:
            return None
        version = self.accepted.envelope.version
        root = service_failed(version) if reason is None else build_fault(version, reason, blame=Blame.RECEIVER)
        return self.respond(Prepared(root))

    def respond(self, answer: Prepared) -> Message | None:
        """Make the response; None if it is not sent.

        Raises:
            UsageError: an attachment or property of the answer is not valid or cannot be read.
        """
        conversation = self.conversation
        if conversation is None and (content := answer.content) is not None:
            return self.node.respond_with(content, self.accepted.envelope.version)
        root = answer.envelope if conversation is None else conversation.related(answer.envelope)
        others = properties_of(answer.properties) if answer.properties else NO_OTHERS
        return self.sent(self.node.respond(root, answer.attachments, others))

    def sent(self, response: Message | None) -> Message | None:
        """Return a response with its destination; None if it is not sent."""
        if self.conversation is None:
            return response
        return self.conversation.sent(response, is_fault=self.node.is_fault)

    def start_over(self, setting: Setting) -> None:
        """Discard the response that was made, and double the pause before the next try."""
        self.node = RespondingNode(setting)
        self.node.receive(self.accepted.message)
        self.pause = min(MAX_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, self.pause * 2))

    # The end

    def finish(
        self,
        response: Message | None,
        *,
        dead: str | None = None,
        skipped: Outcome | None = None,
        uncopied: bool = False,
    ) -> None:
        """Set the outcome of the request; see the attributes."""
        self.is_finished = True
        self.__dict__.pop("accepted", None)  # the parsed request may take much memory, and the commit may take long
        self.response = response
        if dead is not None or skipped is not None:
            self.dead, self.skipped, self.uncopied = dead, skipped, uncopied
        if self.observed is not None:
            self._observe(self.observed)

    def _observe(self, observed: Observed) -> None:
        """Add the observers' properties to the answer, and set the outcome they are told if settling succeeds."""
        if self.response is not None and (added := observed.properties()):
            self.response = replace(self.response, properties=added.merged(self.response.properties))
        observed.outcome = self._usual()

    def _usual(self) -> Outcome:
        if self.dead is not None:
            return Outcome.DEAD_LETTER
        if self.response is not None:
            return Outcome.FAULT if self.node.is_fault else Outcome.RESPONSE
        return self.skipped or Outcome.DONE

    def tell(self, outcome: Outcome | None = None) -> None:
        """Tell the observers that the request ended, with `outcome` if it is not the one that `finish` set."""
        if self.observed is not None:
            self.observed.end(outcome)
