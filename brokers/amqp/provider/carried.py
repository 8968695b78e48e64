"""AMQP messages on their way through the embedded broker.

The broker moves JMS messages. One that came over AMQP keeps its octets beside them, and leaves over AMQP as it came:
what an intermediary must not touch is not touched, and what JMS has no word for is not lost.

Spec: AMQP 1.0 part 3, section 3.2 (bare message); anonymous terminus 2.2 (AT-02).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Final, TypeGuard

from proton import ubyte, uint

from brokers.amqp.dialect import EMBEDDED
from brokers.amqp.mapping import PRIORITIES, UINT, from_amqp_message, to_amqp_message
from brokers.amqp.provider.nodes import UNAUTHORIZED, RefusalError
from brokers.amqp.sections import Found, MalformedError, Section, decode, encode
from brokers.message import DEFAULT_PRIORITY, DeliveryMode, Destination, Message, MessageType
from brokers.selector import HEADERS, Headers

SEEN_HEADERS: Final[Headers] = {
    **HEADERS,
    "JMSMessageID": lambda message: message.told_id if _is_as_it_came(message) else message.message_id,
    "JMSTimestamp": lambda message: message.told_timestamp if _is_as_it_came(message) else message.timestamp,
}
"""What a selector of a client goes by: headers as the client will see them."""

HOP_BY_HOP = frozenset({Section.HEADER, Section.DELIVERY_ANNOTATIONS})
"""Sections that each hop writes anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedMessage(Message):
    """A message that came over AMQP.

    Attributes:
        kept: its octets, but for those that each hop writes anew.
        taken_for: where it was sent; elsewhere, as a dead letter, it is written anew.
        told_id, told_timestamp: as its sender wrote them, which is what its receivers read.
    """

    kept: bytes = b""
    taken_for: Destination | None = None
    told_id: str | None = None
    told_timestamp: int | None = None

    @property
    def octets(self) -> int:
        """What it takes as AMQP, or as a JMS message if that is more; up to twice as much memory is taken."""
        return max(len(self.kept), super(CarriedMessage, self).octets)  # by name, as slots make another class


def carry(octets: bytes, destination: Destination | None, now: int, user: str | None) -> CarriedMessage:
    """Read what a client sent. An address for replies that names nothing is dropped, but for the octets as they came.

    Args:
        octets: the AMQP message.
        destination: where the link leads; None to go by `to` of the message, which is then in `destination`.
        now: milliseconds since 1970, from which a time to live counts.
        user: who sends; None for nobody in particular.

    Raises:
        MalformedError: it is none.
        RefusalError: its user-id is another. Spec: AMQP 1.0 part 3, 3.2.4.
    """
    sections = list(decode(octets))  # raises, where reading for JMS would go on
    _check_user(sections, user)
    message = from_amqp_message(octets, EMBEDDED, destination).message
    header: object = next((each.value for each in sections if each.section is Section.HEADER), [])
    if not isinstance(header, list):
        raise MalformedError("the header is no list")
    time_to_live = header[2] if len(header) > 2 else None
    expiration = message.expiration
    if expiration is None or (expiration == 0 and time_to_live):
        expiration = now + int(time_to_live) if isinstance(time_to_live, int) else 0
    priority = message.priority if message.priority in PRIORITIES else DEFAULT_PRIORITY
    reply_to = message.reply_to if message.reply_to is not None and message.reply_to.name else None  # leads somewhere
    changed = replace(message, expiration=expiration, priority=priority, redelivered=False, reply_to=reply_to)
    values = {each.name: getattr(changed, each.name) for each in fields(Message)}
    kept = b"".join(each.octets for each in sections if each.section not in HOP_BY_HOP)
    return CarriedMessage(**values, kept=kept, told_id=message.message_id, told_timestamp=message.timestamp)


def _check_user(sections: Iterable[Found], user: str | None) -> None:
    for stated in [each.value for each in sections if each.section is Section.PROPERTIES]:
        claimed = stated[1] if isinstance(stated, list) and len(stated) > 1 else None
        octets = bytes(claimed) if isinstance(claimed, bytes | memoryview) else claimed
        if octets not in (None, b"", (user or "").encode()):
            own = "an anonymous client has none" if user is None else f"that of {user!r}"
            raise RefusalError(UNAUTHORIZED, f"the user-id of a message is its sender's or left out: {own}")


def bound_for(message: CarriedMessage, destination: Destination) -> CarriedMessage:
    """Send a message to a destination."""
    return replace(message, destination=destination, taken_for=destination)


def _is_as_it_came(message: Message) -> TypeGuard[CarriedMessage]:
    return isinstance(message, CarriedMessage) and message.destination == message.taken_for


def uncarried(message: Message, delivery_count: int, now: int) -> bytes:
    """Write what a client gets.

    Args:
        message: as the broker has it.
        delivery_count: of this delivery, from 1.
        now: milliseconds since 1970.
    """
    left = None
    if message.expiration:
        left = uint(min(max(1, message.expiration - now), UINT))
    header = [
        message.delivery_mode != DeliveryMode.NON_PERSISTENT,
        ubyte(DEFAULT_PRIORITY if message.priority is None else message.priority),
        left,
        delivery_count == 1,
        uint(delivery_count - 1),
    ]
    if _is_as_it_came(message):
        return encode(Section.HEADER, header) + message.kept
    if message.message_type is MessageType.UNKNOWN:  # octets that no message type fits are octets
        body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
        message = replace(message, message_type=MessageType.BYTES, body=body)
    return encode(Section.HEADER, header) + to_amqp_message(message, EMBEDDED, with_header=False)
