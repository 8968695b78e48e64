"""One request on its way through a service, from its delivery until it is settled together with its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from brokers.connection import Delivery, SendResult
from brokers.message import Message
from brokers.threads.futures import Completion
from soapjms.middleware import properties_of
from soapjms.observing import Observed, Outcome
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import Blame, build_fault
from soapjms.protocol.responding import NO_OTHERS, RequestAccepted, RespondingNode
from soapjms.reply import Prepared, service_failed
from soapjms.service.addressing import Conversation
from soapjms.service.operations import Match

FIRST_PAUSE_SECONDS: Final = 0.02
"""Before the first of several further tries."""

MAX_PAUSE_SECONDS: Final = 10.0
"""Before a request is run again whose end could not be stored; its effects elsewhere happen each time."""

NOT_NAMED: Final = b""
"""The key of a request whose key nobody has asked for yet."""


@dataclass(slots=True, eq=False)
class Work:
    """A request, what is known of it, and how it ends. The worker fills it in; the committer settles it.

    Attributes:
        delivery: of the request.
        node: of its exchange.
        observed: tells the observers of it; None if there are none.
        key: what names it in the store, None if nothing does; NOT_NAMED until somebody asks.
        accepted: what the node made of it; there is none of what breaks a rule, or was not read.
        match: the operation that it is for; set once the node accepted it.
        conversation: what WS-Addressing says of the answer; None if the request says nothing, or nobody looks.
        known: what middleware keeps for this delivery over all its tries; see `Request.delivery`.
        tries: how often it was run in this delivery.
        pause: seconds to wait before it is run again.
        is_finished: what is left is to accept the request, together with its answer if there is one.
        response: what to answer, None for nothing.
        dead: why the request goes to the dead letters instead of being accepted; None if it does not.
        skipped: what it came to, if it was not worked on: expired, or refused without anybody to tell.
        uncopied: no copy is made of it here, as somebody died making one: the broker is to make the dead letter.
        sending: what becomes of the response, where it was sent before it is settled.
        awaited: its client was gone and may come back; what becomes of the response is told then.
        on_settled: called once it is settled for good.
    """

    delivery: Delivery
    node: RespondingNode
    observed: Observed | None = None
    key: bytes | None = NOT_NAMED
    accepted: RequestAccepted = field(init=False)
    match: Match = field(init=False)
    conversation: Conversation | None = None
    known: dict[object, Any] = field(default_factory=dict)
    tries: int = 0
    pause: float = 0.0
    is_finished: bool = False
    response: Message | None = None
    dead: str | None = None
    skipped: Outcome | None = None
    uncopied: bool = False
    sending: Completion[SendResult] | None = None
    awaited: bool = False
    on_settled: Callable[[], None] = lambda: None

    # Answers

    def fault(self, reason: str | None) -> Message | None:
        """Make a fault of the receiver; None where it would go to nobody. Without a reason it tells nothing."""
        if self.accepted.one_way:
            return None
        version = self.accepted.envelope.version
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
        """Take note how it ends; see the attributes."""
        self.is_finished = True
        self.response, self.dead, self.skipped, self.uncopied = response, dead, skipped, uncopied
        if self.observed is not None:
            self._observe(self.observed)

    def _observe(self, observed: Observed) -> None:
        """Have the answer carry what observers want, and tell them what it comes to if the broker takes all."""
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
        """Tell the observers the end, or that it is not the usual one."""
        if self.observed is not None:
            self.observed.end(outcome)
