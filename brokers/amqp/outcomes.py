"""The outcomes and conditions of AMQP, mapped to our errors: the only place where conditions are interpreted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from proton import Condition, Delivery, Described

from brokers.amqp.transfers import TRANSACTIONAL
from brokers.errors import BrokerError, DestinationGoneError, SendFailedError

DECODE: Final = "amqp:decode-error"
INVALID: Final = "amqp:invalid-field"
LIMIT: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_FOUND: Final = "amqp:not-found"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
PRECONDITION: Final = "amqp:precondition-failed"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
CONNECTION_REDIRECT: Final = "amqp:connection:redirect"
LINK_REDIRECT: Final = "amqp:link:redirect"
LINK_STOLEN: Final = "amqp:link:stolen"
OVERSIZED: Final = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"

REDIRECTS: Final = frozenset({CONNECTION_REDIRECT, LINK_REDIRECT})

GONE: Final = frozenset({NOT_FOUND, "amqp:resource-deleted"})
"""Conditions of a destination that does not exist, or no longer exists."""

GONE_WORDS: Final = re.compile(r"DestinationDoesNotExist|does not exist|^(temp-)?(queue|topic)://\S+$")
"""The same in descriptions of brokers with their own conditions; ActiveMQ Classic says `failed` and only the name."""

LACKING: Final = frozenset({NOT_ALLOWED, NOT_FOUND, NOT_IMPLEMENTED, UNAUTHORIZED})
"""Conditions of a broker that has no transactions, or none for this user, as long as the connection lasts."""

REFUSING: Final = LACKING | {DECODE, INVALID, LIMIT, OVERSIZED, PRECONDITION, TRANSFER_LIMIT}
"""Conditions of a link that ends because of a message on it; with any other, the message may have been accepted."""

STATES: Final[Mapping[Any, int]] = {
    0x23: Delivery.RECEIVED,
    "amqp:received:list": Delivery.RECEIVED,
    0x24: Delivery.ACCEPTED,
    "amqp:accepted:list": Delivery.ACCEPTED,
    0x25: Delivery.REJECTED,
    "amqp:rejected:list": Delivery.REJECTED,
    0x26: Delivery.RELEASED,
    "amqp:released:list": Delivery.RELEASED,
    0x27: Delivery.MODIFIED,
    "amqp:modified:list": Delivery.MODIFIED,
}
"""The delivery states by their descriptors."""

NOT_FINAL: Final = frozenset({0, int(Delivery.RECEIVED)})
"""The states of a delivery about which the receiver has not decided."""

UNKNOWN_STATE: Final = -1
"""The state that stands for any other descriptor within a transaction."""


class AmqpOutcome(NamedTuple):
    """The outcome that a receiver gave a delivery, at once or at the commit of a transaction.

    Attributes:
        state: the code of its descriptor; 0 if there is none, `UNKNOWN_STATE` for an unknown one in a transaction.
        condition: why it was rejected.
        failed, undeliverable: the flags of the outcome `modified`.
        transaction: the id of the transaction whose commit it waits for; empty if the state names none validly, None
            outside of a transaction.
    """

    state: int
    condition: Condition | None = None
    failed: bool = False
    undeliverable: bool = False
    transaction: bytes | None = None


class RedirectedError(SendFailedError):
    """The broker wants a message sent, or a destination consumed from, elsewhere.

    Attributes:
        info: the `info` map of AMQP's error, which names the place.
    """

    def __init__(self, message: str, info: Any) -> None:
        super().__init__(message)
        self.info = info


class ReleasedError(SendFailedError):
    """The broker gave a message back, to be sent again or elsewhere. Spec: AMQP 1.0 part 3, 3.4.4."""


class StolenError(BrokerError):
    """Another link of the same name, at any connection, replaced a link. Spec: AMQP 1.0 part 2, 2.6.1."""


def text_of(condition: Condition | None) -> str:
    """Return the text of a condition: its name, its description, and the target of a redirect."""
    if condition is None:
        return "no reason given"
    parts = [condition.name, first_line(condition.description)]
    if condition.name in REDIRECTS:
        parts.append(f"try {_place(condition.info if isinstance(condition.info, dict) else {})}")
    return ": ".join(part for part in parts if part)


def _place(info: Mapping[Any, Any]) -> str:
    """Return the target of a redirect as text; the query of a path may hold a secret."""
    known = ("network-host", "hostname", "port", "address", "path", "scheme")
    named = {name: f"{info[name]}" for name in known if info.get(name) is not None}
    if "path" in named:
        named["path"] = named["path"].partition("?")[0]
    return ", ".join(f"{name} {text}" for name, text in named.items()) or "elsewhere"


def first_line(text: str | None) -> str:
    """Return the first line of a broker's text, which may continue with a stack trace."""
    return (text or "").partition("\n")[0].strip()


def refusal(condition: Condition | None, what: str = "the broker refused") -> SendFailedError:
    """Return the error for a send that was refused."""
    if condition is not None and condition.name == LINK_REDIRECT:
        return RedirectedError(f"{what}: {text_of(condition)}", condition.info)
    kind = DestinationGoneError if says_gone(condition) else SendFailedError
    return kind(f"{what}: {text_of(condition)}")


def says_gone(condition: Condition | None) -> bool:
    """Return whether a condition means that a destination does not exist."""
    return condition is not None and (
        condition.name in GONE or GONE_WORDS.search(first_line(condition.description)) is not None
    )


def says_refused(condition: Condition | None) -> bool:
    """Return whether a condition means that a link was ended because its only unsettled message was refused."""
    return condition is not None and (
        GONE_WORDS.search(first_line(condition.description)) is not None
        or condition.name in REFUSING
        or condition.name in REDIRECTS
    )


def final_outcome(delivery: Delivery) -> AmqpOutcome | None:
    """Return the outcome of a delivery; None as long as the peer may still give another one.

    A delivery that was settled without an outcome has the state 0. Spec: AMQP 1.0 part 3, 3.4; part 4, 4.5.
    """
    outcome = _outcome(delivery)
    return None if outcome.state in NOT_FINAL and not delivery.settled else outcome


def _outcome(delivery: Delivery) -> AmqpOutcome:
    remote = delivery.remote
    if delivery.remote_state != TRANSACTIONAL:
        return AmqpOutcome(delivery.remote_state, remote.condition, remote.failed, remote.undeliverable)
    data: Any = remote.data
    transaction, outcome = transaction_in(data), data[1] if isinstance(data, list) and len(data) > 1 else None
    if not isinstance(outcome, Described) or not isinstance(outcome.descriptor, int | str):
        return AmqpOutcome(0, transaction=transaction)
    fields = outcome.value if isinstance(outcome.value, list) else []
    state = STATES.get(outcome.descriptor, UNKNOWN_STATE)
    if state == Delivery.MODIFIED:
        failed, undeliverable = (each is True for each in [*fields, None, None][:2])
        return AmqpOutcome(state, None, failed, undeliverable, transaction)
    condition = _condition(fields) if state == Delivery.REJECTED else None
    return AmqpOutcome(state, condition, transaction=transaction)


def transaction_in(fields: Any) -> bytes:
    """Return the id of the transaction in the fields of a state within one; empty if there is no valid id."""
    found = fields[0] if isinstance(fields, list) and fields else None
    return bytes(found) if isinstance(found, bytes | memoryview) else b""


def failure_of(outcome: AmqpOutcome, transaction: bytes | None = None) -> SendFailedError | None:
    """Return why a sent message was not accepted, or may not have been; None if it was.

    Args:
        outcome: the outcome.
        transaction: the transaction in which the message was sent. Brokers may leave it out of their answer, as
            ActiveMQ Classic and Artemis do; but an answer about another transaction says nothing about the message.
    """
    if outcome.transaction is not None and outcome.transaction != transaction:
        return _unknown("answered with the state of another transaction")
    match outcome.state:
        case Delivery.ACCEPTED:
            return None
        case Delivery.REJECTED:
            return refusal(outcome.condition)
        case Delivery.RELEASED:
            return ReleasedError("the broker gave the message back: released")
        case Delivery.MODIFIED:
            flags = ("delivery failed", outcome.failed), ("not deliverable here", outcome.undeliverable)
            said = ", ".join(word for word, is_so in flags if is_so)
            return SendFailedError(f"the broker gave the message back: modified{said and f' ({said})'}")
        case 0 | Delivery.RECEIVED:
            return _unknown("settled the message without an outcome")
    return _unknown("answered with a state that is no outcome of a message")


def _unknown(what: str) -> SendFailedError:
    return SendFailedError(f"the broker {what}: whether it was accepted is not known", is_known=False)


def _condition(fields: list[Any]) -> Condition | None:
    error = fields[0] if fields else None
    if not isinstance(error, Described) or not isinstance(error.value, list) or not error.value:
        return None
    name, description, info = [*error.value, None, None][:3]
    return Condition(str(name), None if description is None else str(description), info)


def failing_tag(condition: Condition | None) -> bytes | None:
    """Return the tag of the delivery that caused a link to be detached, or None if the peer does not name it.

    Spec: anonymous terminus 2.2.2 (AT-14).
    """
    info = condition.info if condition is not None else None
    tag = info.get("delivery-tag") if isinstance(info, dict) else None
    if isinstance(tag, bytes | memoryview):
        return bytes(tag)
    return None
