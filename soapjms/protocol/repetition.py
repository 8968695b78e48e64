"""A captured request as it is sent again: with its octets, its properties and its mistakes.

Only what belongs to one sending is new. What a connection cannot carry is for its driver to find out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from brokers.message import Destination, Message, Properties, changed
from soapjms.protocol.record import Direction, Record
from soapjms.protocol.text import named
from soapjms.protocol.values import LONGEST_LIFETIME_MILLISECONDS

OF_PROVIDER: Final = frozenset(
    {
        "JMSXUserID",
        "JMSXAppID",
        "JMSXDeliveryCount",
        "JMSXProducerTXID",
        "JMSXConsumerTXID",
        "JMSXRcvTimestamp",
        "JMSXState",
    }
)
"""Properties that a JMS provider writes, and no client. Spec: JMS 1.1 3.5.9."""


def obstacles(record: Record, destination: Destination | None = None) -> Iterator[str]:
    """Yield why a record cannot be sent again by any connection."""
    to = record.message.destination if destination is None else destination
    if record.direction is Direction.RESPONSE:
        yield "the record must be of a request or a one-way message, got one of a response"
    if record.truncated:
        yield "the body was cut when it was captured, so the request cannot be sent as it was"
    if to is None or not to.name:
        yield "the capture does not show the name of the destination: give it as a jms: URI"
    elif to.kind.is_temporary:
        yield f"the destination {named(to)} was temporary, and is gone: give another one as a jms: URI"


def again(record: Record, destination: Destination | None, now: int, correlation_id: str) -> Message:
    """Make the message to send of a captured one; JMSReplyTo is left out.

    Args:
        record: the captured message.
        destination: where to send it; None for its own destination.
        now: the present time, in epoch milliseconds.
        correlation_id: the JMSCorrelationID to send, if the captured one has any.
    """
    message = record.message
    return changed(
        message,
        destination=destination or message.destination,
        reply_to=None,
        message_id=None,
        correlation_id=None if message.correlation_id is None else correlation_id,
        timestamp=None,
        redelivered=None,
        expiration=_expiration(record, now),
        properties=Properties(own_properties(message)),
    )


def own_properties(message: Message) -> Properties:
    """Return the properties that the sender wrote."""
    return Properties(each for each in message.properties if each.name not in OF_PROVIDER)


def _expiration(record: Record, now: int) -> int | None:
    """Return when the message expires, for as long a life as the captured one had; never, if that was over."""
    message = record.message
    if not message.expiration:
        return message.expiration
    began = message.timestamp or round(record.time.timestamp() * 1000)
    lifetime = min(message.expiration - began, LONGEST_LIFETIME_MILLISECONDS)
    return now + lifetime if lifetime > 0 else None
