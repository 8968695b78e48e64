"""What a broker writes into the messages that pass through it, as JMS 1.1 section 3.4 gives it to the provider.

Pure functions from message to message. Anything not named here passes unchanged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from brokers.message import (
    DEFAULT_PRIORITY,
    Body,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    body_problem,
    typed,
)

DEAD_LETTER_PREFIX: Final = "DLQ."
TEMPORARY_DEAD_LETTERS: Final = Destination(DestinationKind.QUEUE, DEAD_LETTER_PREFIX + "temporary")
"""One queue for the dead letters of all temporary destinations: one each would outlive its use for ever."""

REASON_PROPERTY: Final = "dead_letter_reason"
DESTINATION_PROPERTY: Final = "dead_letter_destination"
EXPIRED: Final = "expired"


def received(message: Message, message_id: str, now: int) -> Message:
    """Return the message as the broker stores it: id and time of receipt set, defaults filled, never redelivered.

    The sender's own message id and timestamp are replaced. A `memoryview` body becomes bytes of its own, as the
    sender may go on to change what it views.

    Raises:
        ValueError: the body is of no kind that the message type has.
    """
    return replace(
        message,
        body=_checked_body(message),
        message_id=message_id,
        timestamp=now,
        priority=DEFAULT_PRIORITY if message.priority is None else message.priority,
        delivery_mode=DeliveryMode.PERSISTENT if message.delivery_mode is None else message.delivery_mode,
        expiration=message.expiration or 0,
        redelivered=False,
    )


def redelivered(message: Message) -> Message:
    """Return the message marked as one that was delivered before."""
    return replace(message, redelivered=True)


def is_dead_letter_queue(destination: Destination) -> bool:
    """Say whether dead letters end there: what fails in such a queue has nowhere further to go."""
    return destination.kind is DestinationKind.QUEUE and (destination.name or "").startswith(DEAD_LETTER_PREFIX)


def dead_letter(message: Message, source: Destination, reason: str) -> Message:
    """Return the message addressed to the dead-letter queue of `source`, saying why; it expires no more.

    It keeps its message id, so that it can be matched with what was sent.
    """
    why = (typed(REASON_PROPERTY, reason), typed(DESTINATION_PROPERTY, str(source)))
    return replace(
        message,
        destination=_dead_letter_queue(source),
        properties=message.properties.merged(why),
        expiration=0,
        redelivered=False,
    )


def _dead_letter_queue(source: Destination) -> Destination:
    if source.kind.is_temporary:
        return TEMPORARY_DEAD_LETTERS
    return Destination(DestinationKind.QUEUE, f"{DEAD_LETTER_PREFIX}{source.name}")


def _checked_body(message: Message) -> Body:
    problem = body_problem(message)
    if problem is not None:
        raise ValueError(problem)
    return bytes(message.body) if isinstance(message.body, memoryview) else message.body
