"""What a peer says became of something, as errors of ours: the one place where AMQP's conditions are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proton import Condition, Delivery, Described

from brokers.errors import DestinationGoneError, SendFailedError

GONE: Final = frozenset({"amqp:not-found", "amqp:resource-deleted"})
"""Conditions of a destination that does not exist, or not any more."""

GONE_WORDS: Final = ("DestinationDoesNotExist", "does not exist")
"""What brokers say of it whose condition is one of their own."""

LINK_REDIRECT: Final = "amqp:link:redirect"
REDIRECTS: Final = frozenset({LINK_REDIRECT, "amqp:connection:redirect"})

TRANSACTIONAL: Final = 0x34
"""The delivery state of what belongs to a transaction: its id, and what the outcome will be."""

ACCEPTED_CODES: Final = frozenset({0x24, "amqp:accepted:list"})
REJECTED: Final = frozenset({0x25, "amqp:rejected:list"})
RELEASED: Final = frozenset({0x26, "amqp:released:list"})
MODIFIED: Final = frozenset({0x27, "amqp:modified:list"})


class RedirectedError(SendFailedError):
    """The broker wants a message sent, or a destination consumed from, elsewhere.

    Attributes:
        info: where: of the error, as AMQP has it.
    """

    def __init__(self, message: str, info: Any) -> None:
        super().__init__(message)
        self.info = info


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
        condition.name in GONE or any(words in (condition.description or "") for words in GONE_WORDS)
    )


def is_final(delivery: Delivery) -> bool:
    """Say whether the receiver decided, or lets us know no more."""
    return delivery.settled or delivery.remote_state not in (0, Delivery.RECEIVED)


def failure_of(delivery: Delivery) -> SendFailedError | None:
    """Return why a message that we sent was not taken, or may not have been; None if it was."""
    match delivery.remote_state:
        case 0 | Delivery.RECEIVED:
            return SendFailedError("the broker settled the message without a word: whether it was taken is not known")
        case Delivery.REJECTED:
            return refusal(delivery.remote.condition)
        case Delivery.RELEASED:
            return SendFailedError("the broker gave the message back: released")
        case Delivery.MODIFIED:
            remote = delivery.remote
            said = [
                word
                for word, is_so in (("delivery failed", remote.failed), ("not deliverable here", remote.undeliverable))
                if is_so
            ]
            return SendFailedError(
                f"the broker gave the message back: modified{' (' * bool(said)}{', '.join(said)}{')' * bool(said)}"
            )
        case state if state == TRANSACTIONAL:
            return _provisional(delivery.remote.data)
    return None


def _provisional(data: Any) -> SendFailedError | None:
    """Read the outcome that a message will have when its transaction is committed."""
    outcome = data[1] if isinstance(data, list) and len(data) > 1 else None
    if not isinstance(outcome, Described):
        return None
    if outcome.descriptor in REJECTED:
        return refusal(_condition(outcome.value))
    for kinds, word in ((RELEASED, "released"), (MODIFIED, "modified")):
        if outcome.descriptor in kinds:
            return SendFailedError(f"the broker gave the message back: {word}")
    return None


def _condition(fields: Any) -> Condition | None:
    error = fields[0] if isinstance(fields, list) and fields else None
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
