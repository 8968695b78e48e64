"""AMQP messages in the embedded broker, and back.

The broker handles JMS messages. A message that came over AMQP keeps its octets beside its JMS form, and is sent over
AMQP unchanged: the parts that an intermediary must not change stay intact, and parts that JMS lacks are not lost.

Spec: AMQP 1.0 part 3, section 3.2 (bare message); anonymous terminus 2.2 (AT-02).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, cast

from proton import ubyte, uint

from brokers.amqp.dialect import EMBEDDED
from brokers.amqp.listener.options import RefusalError, with_kind
from brokers.amqp.message_reader import ArrivalPlan, from_sections
from brokers.amqp.message_writer import to_amqp_message
from brokers.amqp.outcomes import UNAUTHORIZED
from brokers.amqp.primitives import WRONG
from brokers.amqp.sections import (
    SMALL_MESSAGE_OCTETS,
    AmqpSection,
    MalformedError,
    SectionValue,
    decode,
    encode,
)
from brokers.amqp.shapes import SectionShape, SectionShapes
from brokers.amqp.values import PRIORITIES, UINT
from brokers.message import (
    DEFAULT_PRIORITY,
    ENTRY_OCTETS,
    FIELDS,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageDraft,
    MessageType,
)
from brokers.selector import HEADERS, Headers

MAX_SHAPES: Final = 16
"""Maximum number of layouts of heads that are remembered for one client and one kind of its links."""

MAX_HEAD_OCTETS: Final = 1024
"""Maximum size of a head of a client's messages that can have a shape, in octets."""

SEEN_HEADERS: Final[Headers] = {
    **HEADERS,
    "JMSMessageID": lambda message: message.told_id if _is_as_it_came(message) else message.message_id,
    "JMSTimestamp": lambda message: message.told_timestamp if _is_as_it_came(message) else message.timestamp,
}
"""The headers for a client's selector: as the client will see them."""

HOP_BY_HOP = frozenset({AmqpSection.HEADER, AmqpSection.DELIVERY_ANNOTATIONS})
"""Sections that each hop rewrites."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedMessage(Message):
    """A message that came over AMQP.

    Attributes:
        kept: its octets, except the sections that each hop rewrites.
        taken_for: its destination; at another one, as a dead letter, it is encoded again.
        told_id, told_timestamp: id and timestamp of the sender, which the receivers will read.
    """

    kept: bytes = b""
    taken_for: Destination | None = None
    told_id: str | None = None
    told_timestamp: int | None = None

    @property
    def octets(self) -> int:
        """The size in AMQP, and as in JMS 64 octets for each property, and for each entry of a map or stream.

        A message that is encoded again has the larger of its sizes in AMQP and in JMS. Both may use twice as much
        memory.
        """
        if self.destination is not self.taken_for:
            return max(len(self.kept), super(CarriedMessage, self).octets)  # named, because slots create a new class
        entries = len(self.properties) + (len(self.body) if isinstance(self.body, tuple) else 0)
        return len(self.kept) + ENTRY_OCTETS * entries


class CarriedDraft(Message):
    """A `CarriedMessage` whose fields can still be set. Its arguments are those of `Message`, in the same order."""

    __slots__ = ("kept", "taken_for", "told_id", "told_timestamp")
    __setattr__ = object.__setattr__
    __init__ = cast("Callable[..., None]", MessageDraft.__init__)  # which takes a third of the time

    def frozen(self, destination: Destination, message_id: str, now: int) -> CarriedMessage:
        """Make this object a message for ever, for a destination, with the broker's timestamp.

        Its id is the broker's only if the sender gave none: one that gave an id may know its answer by it. Both classes
        have the same slots.
        """
        made: Any = self
        made.destination = made.taken_for = destination
        made.told_id, made.message_id = made.message_id, made.message_id or message_id
        made.told_timestamp, made.timestamp = made.timestamp, now
        made.__class__ = CarriedMessage
        stored: CarriedMessage = made
        return stored


_values_of: Final = attrgetter(*FIELDS)


Resolve: TypeAlias = Callable[[Destination | None], Destination]
"""Returns the destination of a message, given the one that it names; raises RefusalError if it has none.

Without `to` a message names none: None, or a destination without a name if the link has a kind.
"""


class MessageCarrier:
    """Parses the messages of one client. Not thread-safe.

    Most messages of a client differ in few values before the body; the others are decoded once (see `shapes`).
    """

    def __init__(self) -> None:
        new_shapes = partial(SectionShapes, MAX_SHAPES, MAX_HEAD_OCTETS)
        self._shapes: defaultdict[DestinationKind | None, SectionShapes] = defaultdict(new_shapes)

    def carry(
        self,
        octets: bytes,
        resolve: Resolve,
        message_id: str,
        now: int,
        user: str | None,
        kind: DestinationKind | None = None,
    ) -> CarriedMessage:
        """Parse a message, as the broker will store it.

        A reply address without a name is dropped from the JMS form, not from the octets.

        Args:
            octets: the AMQP message.
            resolve: returns the destination, given what `to` of the message names.
            message_id: the broker's id of the message, used if it has none.
            now: the time of receipt in milliseconds since 1970, from which a time to live counts.
            user: the user who sends; None for anonymous. Always the same.
            kind: kind of a destination that the message names without a kind; None for a queue.

        Raises:
            MalformedError: the message is malformed.
            RefusalError: its user-id is not `user`, or it has no destination. Spec: AMQP 1.0 part 3, 3.2.4.
        """
        shapes, source = self._shapes[kind], None if kind is None else Destination(kind, None)
        known = shapes.match(octets) if len(octets) <= SMALL_MESSAGE_OCTETS else None
        draft = None if known is None else _shaped(octets, *known, source, now, user)
        if draft is None:
            draft = _decoded(octets, source, now, user)
            if known is None:
                shapes.learn(octets)
        return draft.frozen(resolve(draft.destination), message_id, now)


class CarriagePlan(NamedTuple):
    """How messages are carried whose heads have one shape.

    Attributes:
        arrival: makes the JMS message.
        begin: index of the first octet that is kept.
    """

    arrival: ArrivalPlan
    begin: int


def _plan(shape: SectionShape, source: Destination | None, user: str | None) -> CarriagePlan | None:
    """Return the plan of a shape; None if its messages are decoded by section: a wrong user, an unusual order."""
    arrival = ArrivalPlan(shape, EMBEDDED, source)
    sections = list(decode(shape.octets))
    hops = [each for each in sections if each.section in HOP_BY_HOP]
    if not arrival.works or hops != sections[: len(hops)]:
        return None
    try:
        _check_user(sections, user)
        _check_header(sections)
        return CarriagePlan(arrival, sum(len(each.octets) for each in hops))
    except (RefusalError, MalformedError):
        return None


def _shaped(
    octets: bytes,
    shape: SectionShape,
    found: re.Match[bytes],
    source: Destination | None,
    now: int,
    user: str | None,
) -> CarriedDraft | None:
    """Return the message whose head matched the pattern of a shape; None if it must be decoded by section."""
    if shape.plan is None:
        shape.plan = _plan(shape, source, user) or False
    plan: CarriagePlan | None = shape.plan or None
    if plan is None:
        return None
    try:
        draft = plan.arrival.draft(found, octets, CarriedDraft, now)
    except WRONG:  # for example malformed octets
        return None
    return None if draft is None else _completed(draft, octets[plan.begin :])


def _decoded(octets: bytes, source: Destination | None, now: int, user: str | None) -> CarriedDraft:
    sections = list(decode(octets))  # raises errors that the conversion to JMS would ignore
    _check_user(sections, user)
    _check_header(sections)
    kept = b"".join(each.octets for each in sections if each.section not in HOP_BY_HOP)
    message = from_sections(sections, EMBEDDED, source, now).message
    return _completed(CarriedDraft(*_values_of(message)), kept)


def _completed(draft: CarriedDraft, kept: bytes) -> CarriedDraft:
    """Set the fields of a draft that the broker decides on."""
    made: Any = draft
    made.kept = kept
    reply_to = made.reply_to
    if made.priority not in PRIORITIES:
        made.priority = DEFAULT_PRIORITY
    if reply_to is not None:
        reply_to = with_kind(reply_to)
        made.reply_to = reply_to if reply_to.name else None  # otherwise it leads nowhere
    made.redelivered = False
    return draft


def _check_header(sections: Sequence[SectionValue]) -> None:
    header: object = next((each.value for each in sections if each.section is AmqpSection.HEADER), [])
    if not isinstance(header, list):
        raise MalformedError("the header is no list")


def _check_user(sections: Sequence[SectionValue], user: str | None) -> None:
    for stated in [each.value for each in sections if each.section is AmqpSection.PROPERTIES]:
        claimed = stated[1] if isinstance(stated, list) and len(stated) > 1 else None
        octets = bytes(claimed) if isinstance(claimed, bytes | memoryview) else claimed
        if octets not in (None, b"", (user or "").encode()):
            own = "an anonymous client has none" if user is None else f"that of {user!r}"
            raise RefusalError(UNAUTHORIZED, f"the user-id of a message is its sender's or left out: {own}")


def _is_as_it_came(message: Message) -> TypeGuard[CarriedMessage]:
    return isinstance(message, CarriedMessage) and message.destination == message.taken_for


def uncarried(message: Message, delivery_count: int, now: int) -> bytes:
    """Return the octets of a message for a client.

    Args:
        message: the message of the broker.
        delivery_count: number of this delivery, from 1.
        now: milliseconds since 1970.
    """
    left = None
    if message.expiration:
        left = uint(min(max(1, message.expiration - now), UINT))
    priority = DEFAULT_PRIORITY if message.priority is None else message.priority
    header = _encoded_header(message.delivery_mode != DeliveryMode.NON_PERSISTENT, priority, left, delivery_count)
    if _is_as_it_came(message):
        return header + message.kept
    if message.message_type is MessageType.UNKNOWN:  # a body of unknown type is sent as octets
        body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
        message = replace(message, message_type=MessageType.BYTES, body=body)
    return header + to_amqp_message(message, EMBEDDED, with_header=False)


@lru_cache(maxsize=256)
def _encoded_header(is_durable: bool, priority: int, left: uint | None, delivery_count: int) -> bytes:
    header = [is_durable, ubyte(priority), left, delivery_count == 1, uint(delivery_count - 1)]
    return encode(AmqpSection.HEADER, header)
