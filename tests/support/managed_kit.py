"""A broker of the test's own whose queues are made by requests to its management node, as RabbitMQ 4 was seen to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import proton
from amqp_kit import Peer, settle
from proton import Condition, Delivery, Receiver, Sender


@dataclass
class Managed(Peer):
    """A broker that makes queues on request.

    Attributes:
        asked: the requests: verb, path, body.
        answers: status and body of an answer by verb; a verb that is not there is not answered.
        released: addresses that messages are given back from.
        refuses_subscriptions: whether nobody may consume from the queue of a subscription.
    """

    product: str | None = "RabbitMQ"
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    answers: dict[str, tuple[str, Any]] = field(
        default_factory=lambda: {"PUT": ("201", {"name": "x"}), "POST": ("204", None), "DELETE": ("200", None)}
    )
    released: set[str] = field(default_factory=set)
    refuses_subscriptions: bool = False
    back: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.on_transfer = self._serve_message

    def _attach(self, link: Any) -> None:
        if isinstance(link, Sender):
            self.back[link.name] = link
            if self.refuses_subscriptions and "/subscription." in link.remote_source.address:
                self.refuses[link.remote_source.address] = Condition("amqp:unauthorized-access")
        super()._attach(link)

    def _serve_message(self, delivery: Any, octets: bytes) -> None:
        message = proton.Message()
        message.decode(octets)
        if delivery.link.target.address != "/management":
            settle(delivery, Delivery.RELEASED if message.address in self.released else Delivery.ACCEPTED)
            return
        assert delivery.settled
        assert message.reply_to == "$me"
        self.asked.append((str(message.subject), str(message.address), message.body))
        if message.subject in self.answers:
            self.answer(delivery.link, message)

    def answer(self, link: Receiver, message: proton.Message) -> None:
        """Answer a request by the other link of its pair."""
        back = self.back[link.name]
        assert back.credit >= 1
        status, body = self.answers[str(message.subject)]
        answer = proton.Message(
            subject=status, correlation_id=message.id, body=body, properties={"http:response": "1.1"}
        )
        sent = back.delivery(f"{message.id}")
        back.send(answer.encode())
        back.advance()
        sent.settle()
