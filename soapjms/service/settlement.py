"""What a worker hands to the committer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from brokers.connection import Delivery, SendResult
from brokers.message import Message
from brokers.threads.futures import Completion
from soapjms.observing import Observed, Outcome
from soapjms.protocol.responding import RespondingNode


@dataclass(slots=True)
class Finished:
    """A request that was worked on: what is left is to accept it, together with its answer if there is one.

    Attributes:
        delivery: of the request.
        node: of its exchange.
        response: what to answer, None for nothing.
        dead: why the request goes to the dead letters instead of being accepted; None if it does not.
        skipped: what it came to, if it was not worked on: expired, or refused without anybody to tell.
        observed: tells the observers how it ends; None if there are none.
        sending: what becomes of the response, where it was sent before it is settled.
        uncopied: the dead letter is for the broker to make, as whoever copied the request did not live to say so.
        awaited: its client was gone and may come back; what becomes of the response is told then.
        on_settled: called once it is settled for good.
    """

    delivery: Delivery
    node: RespondingNode
    response: Message | None
    dead: str | None = None
    skipped: Outcome | None = None
    observed: Observed | None = None
    sending: Completion[SendResult] | None = None
    uncopied: bool = False
    awaited: bool = False
    on_settled: Callable[[], None] = lambda: None

    def observe(self, observed: Observed) -> None:
        """Have observers follow the request to its end, and its answer carry what they want."""
        self.observed = observed
        if self.response is not None:
            added = observed.properties()
            if added:
                self.response = replace(self.response, properties=added.merged(self.response.properties))
        observed.outcome = self._usual()

    def _usual(self) -> Outcome:
        """Say what it comes to if the broker takes all."""
        if self.dead is not None:
            return Outcome.DEAD_LETTER
        if self.response is not None:
            return Outcome.FAULT if self.node.is_fault else Outcome.RESPONSE
        return self.skipped or Outcome.DONE

    def tell(self, outcome: Outcome | None = None) -> None:
        """Tell the observers the end, or that it is not the usual one."""
        if self.observed is not None:
            self.observed.end(outcome)
