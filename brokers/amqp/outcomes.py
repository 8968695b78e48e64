"""What a peer says became of something, as errors of ours: the one place where AMQP's conditions are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from proton import Condition, Delivery, Described

from brokers.errors import BrokerError, DestinationGoneError, SendFailedError

GONE: Final = frozenset({"amqp:not-found", "amqp:resource-deleted"})
"""Conditions of a destination that does not exist, or not any more."""

GONE_WORDS: Final = re.compile(r"DestinationDoesNotExist|does not exist|^(temp-)?(queue|topic)://\S+$")
"""What brokers say of it whose condition is one of their own; ActiveMQ Classic `failed`, and no more than its name."""

LIMIT: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
OVERSIZED: Final = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"

REFUSING: Final = frozenset(
    {
        "amqp:not-found",
        "amqp:unauthorized-access",
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:not-implemented",
        "amqp:precondition-failed",
        LIMIT,
        NOT_ALLOWED,
        OVERSIZED,
        TRANSFER_LIMIT,
    }
)
"""Conditions of a link that ends because of what was sent on it; with any other that may have been taken before."""

LINK_STOLEN: Final = "amqp:link:stolen"
LINK_REDIRECT: Final = "amqp:link:redirect"
REDIRECTS: Final = frozenset({LINK_REDIRECT, "amqp:connection:redirect"})

TRANSACTIONAL: Final = 0x34
"""The delivery state of what belongs to a transaction: its id, and what the outcome will be."""

STATES: Final[Mapping[Any, int]] = {
    0x24: Delivery.ACCEPTED,
    "amqp:accepted:list": Delivery.ACCEPTED,
    0x25: Delivery.REJECTED,
    "amqp:rejected:list": Delivery.REJECTED,
    0x26: Delivery.RELEASED,
    "amqp:released:list": Delivery.RELEASED,
    0x27: Delivery.MODIFIED,
    "amqp:modified:list": Delivery.MODIFIED,
}
"""The outcomes by what describes them."""


class AmqpOutcome(NamedTuple):
    """What a receiver decided about a delivery, at once or at the commit of a transaction.

    Attributes:
        state: proton's; 0 for none that is known.
        condition: why it was rejected.
        failed, undeliverable: what was modified.
    """

    state: int
    condition: Condition | None = None
    failed: bool = False
    undeliverable: bool = False


class RedirectedError(SendFailedError):
    """The broker wants a message sent, or a destination consumed from, elsewhere.

    Attributes:
        info: where: of the error, as AMQP has it.
    """

    def __init__(self, message: str, info: Any) -> None:
        super().__init__(message)
        self.info = info


class StolenError(BrokerError):
    """Another link of its name, at whichever connection, took the place of a link. Spec: AMQP 1.0 part 2, 2.6.1."""


def text_of(condition: Condition | None) -> str:
    """Say what a condition says: its name, its description, and where a redirect leads."""
    if condition is None:
        return "no reason given"
    parts = [condition.name, first_line(condition.description)]
    if condition.name in REDIRECTS:
        parts.append(f"try {_place(condition.info if isinstance(condition.info, dict) else {})}")
    return ": ".join(part for part in parts if part)


def _place(info: Mapping[Any, Any]) -> str:
    known = ("network-host", "hostname", "port", "address", "path", "scheme")
    return ", ".join(f"{name} {info[name]}" for name in known if info.get(name) is not None) or "elsewhere"


def first_line(text: str | None) -> str:
    """Return the first line of a broker's words, which may go on with a stack trace."""
    return (text or "").partition("\n")[0].strip()


def refusal(condition: Condition | None, what: str = "the broker refused") -> SendFailedError:
    """Make the error of a send that was refused."""
    if condition is not None and condition.name == LINK_REDIRECT:
        return RedirectedError(f"{what}: {text_of(condition)}", condition.info)
    kind = DestinationGoneError if says_gone(condition) else SendFailedError
    return kind(f"{what}: {text_of(condition)}")


def says_gone(condition: Condition | None) -> bool:
    """Say whether that is about a destination that does not exist."""
    return condition is not None and (
        condition.name in GONE or GONE_WORDS.search(first_line(condition.description)) is not None
    )


def says_refused(condition: Condition | None) -> bool:
    """Say whether a link was ended because of the one message that was on its way, which was not taken then."""
    return condition is not None and (
        GONE_WORDS.search(first_line(condition.description)) is not None
        or condition.name in REFUSING
        or condition.name in REDIRECTS
    )


def is_final(delivery: Delivery) -> bool:
    """Say whether the receiver decided, or lets us know no more."""
    return delivery.settled or delivery.remote_state not in (0, Delivery.RECEIVED)


def failure_of(delivery: Delivery) -> SendFailedError | None:
    """Return why a message that we sent was not taken, or may not have been; None if it was."""
    if delivery.remote_state in (0, Delivery.RECEIVED):
        return SendFailedError(
            "the broker settled the message without a word: whether it was taken is not known", is_known=False
        )
    outcome = outcome_of(delivery)
    match outcome.state:
        case Delivery.REJECTED:
            return refusal(outcome.condition)
        case Delivery.RELEASED:
            return SendFailedError("the broker gave the message back: released")
        case Delivery.MODIFIED:
            said = [
                word
                for word, is_so in (
                    ("delivery failed", outcome.failed),
                    ("not deliverable here", outcome.undeliverable),
                )
                if is_so
            ]
            return SendFailedError(
                f"the broker gave the message back: modified{' (' * bool(said)}{', '.join(said)}{')' * bool(said)}"
            )
    return None


def outcome_of(delivery: Delivery) -> AmqpOutcome:
    """Read what was decided; of a delivery that belongs to a transaction, what takes effect at its commit."""
    remote = delivery.remote
    if delivery.remote_state != TRANSACTIONAL:
        return AmqpOutcome(delivery.remote_state, remote.condition, remote.failed, remote.undeliverable)
    data: Any = remote.data
    outcome = data[1] if isinstance(data, list) and len(data) > 1 else None
    if not isinstance(outcome, Described) or not isinstance(outcome.descriptor, int | str):
        return AmqpOutcome(0)
    fields = outcome.value if isinstance(outcome.value, list) else []
    state = STATES.get(outcome.descriptor, 0)
    if state == Delivery.MODIFIED:
        return AmqpOutcome(state, None, *(each is True for each in [*fields, None, None][:2]))
    return AmqpOutcome(state, _condition(fields) if state == Delivery.REJECTED else None)


def transaction_of(delivery: Delivery) -> bytes | None:
    """Return the id of the transaction that a state begins with, None for something that is no id."""
    data: Any = delivery.remote.data
    found = data[0] if isinstance(data, list) and data else None
    return bytes(found) if isinstance(found, bytes | memoryview) else None


def _condition(fields: list[Any]) -> Condition | None:
    error = fields[0] if fields else None
    if not isinstance(error, Described) or not isinstance(error.value, list) or not error.value:
        return None
    name, description, info = [*error.value, None, None][:3]
    return Condition(str(name), None if description is None else str(description), info)


def failing_tag(condition: Condition | None) -> str | None:
    """Return the tag of the delivery for which a link was detached, where the peer names it.

    Spec: anonymous terminus 2.2.2 (AT-14).
    """
    info = condition.info if condition is not None else None
    tag = info.get("delivery-tag") if isinstance(info, dict) else None
    if isinstance(tag, bytes | memoryview):
        return bytes(tag).decode("utf-8", "replace")
    return None
