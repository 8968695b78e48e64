"""One request that is worked on, and the answers that are made for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from brokers.connection import Delivery
from brokers.message import Message
from soapjms.answers import Prepared, service_failed
from soapjms.conversing import Conversation
from soapjms.middleware import properties_of
from soapjms.observing import Observed
from soapjms.policy import Policy
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import Blame, build_fault
from soapjms.protocol.responding import NO_OTHERS, RequestAccepted, RespondingNode

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
