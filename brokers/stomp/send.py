"""SEND frames of messages that resemble earlier ones: what they share is encoded once. No I/O.

A program sends many messages that share nearly everything: destination, reply-to, delivery mode, most properties. The
head of such a message is kept by its destination; of the next one, only what differs is encoded. Two messages share a
property if it is the same object in both, which takes no time to find out. All other messages go through `to_frame` and
`pack`, with the same result but for the order of the headers.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from brokers.message import Message, MessageType, Property, as_text
from brokers.stomp.codec import LARGE_OCTETS, Frames, escaped, header_lines, pack_apart, pack_head
from brokers.stomp.dialect import StompDialect
from brokers.stomp.frames import Headers, octets_of, to_frame

MAX_HEADS: Final = 256
"""Maximum number of heads that are kept."""

MAX_HEAD_CHARACTERS: Final = 4096
"""Maximum number of characters of a head that is kept."""

ALWAYS_DIFFERENT: Final = frozenset({"correlation-id", "expires", "content-length"})
"""Headers that are encoded for each message."""

parts_of: Final = attrgetter("destination", "reply_to", "message_type", "delivery_mode", "priority", "type")
"""Return the parts of a message, beside its properties, that messages with the same head share."""


class SendFrames:
    """Encodes SEND frames. Thread-safe.

    Args:
        dialect: dialect of the broker.
    """

    __slots__ = ("_heads", "dialect")

    def __init__(self, dialect: StompDialect) -> None:
        self.dialect = dialect
        self._heads: dict[str | None, SendHead] = {}

    def encode(self, message: Message, receipt: str = "", transaction: str = "") -> Frames:
        """Return the SEND frame of a message; a large body stays a piece of its own.

        Args:
            message: the message.
            receipt: the receipt to ask for, or an empty text. It needs no escapes.
            transaction: the transaction that the message belongs to, or an empty text. It needs no escapes.

        Raises:
            UsageError: see `to_frame` and `pack_head`.
        """
        place = message.destination
        name = None if place is None else place.address or place.name
        known = self._heads.get(name)
        if known is not None and (frame := known.frame(message, receipt, transaction)) is not None:
            return frame
        headers, body = to_frame(message, self.dialect)
        head = SendHead(message, headers, self.dialect, known)
        if transaction:
            headers["transaction"] = transaction
        if receipt:
            headers["receipt"] = receipt
        frame = pack_apart("SEND", headers, body, self.dialect.version)
        if head.is_reusable:  # last, as there may be no such frame
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[name] = head
        return frame


class SendHead:
    """The head of the messages that resemble one message.

    Args:
        message: the message.
        headers: its headers.
        dialect: dialect of the broker.
        before: the head that was kept before: properties that differ from it are taken to differ again.

    Attributes:
        is_reusable: whether it is worth keeping: not too large, and without a repeated property.
    """

    __slots__ = (
        *("_is_bytes", "_is_uncorrelated", "_parts", "_properties", "_shared", "_shared_octets", "_template"),
        *("_version", "is_reusable"),
    )

    def __init__(self, message: Message, headers: Headers, dialect: StompDialect, before: SendHead | None) -> None:
        self._parts = parts_of(message)
        self._is_bytes = message.message_type is MessageType.BYTES
        self._is_uncorrelated = message.correlation_id is None
        self._version = dialect.version
        names = [each.name for each in message.properties]
        self._properties: list[Property | str] = [*message.properties]  # of those that differ, only the name
        if before is not None and [_name_of(each) for each in before._properties] == names:
            known = zip(before._properties, message.properties, strict=True)
            self._properties = [new if new is old else new.name for old, new in known]
        different = ALWAYS_DIFFERENT.union(each for each in self._properties if isinstance(each, str))
        self._shared = {name: value for name, value in headers.items() if name not in different}
        self._shared_octets = b""  # encoded when first needed
        self._template = ""
        size = sum(map(len, names)) + sum(map(len, self._shared.values()))
        self.is_reusable = size <= MAX_HEAD_CHARACTERS and len({*names}) == len(names)

    def frame(self, message: Message, receipt: str, transaction: str) -> Frames | None:
        """Return the frame of a message that resembles the one of this head; None if it does not.

        Raises:
            UsageError: see `to_frame` and `pack_head`.
        """
        correlation_id, properties = message.correlation_id, message.properties
        if (
            parts_of(message) != self._parts
            or (correlation_id is None) is not self._is_uncorrelated
            or len(properties) != len(self._properties)
        ):
            return None
        values = [] if correlation_id is None else [correlation_id]
        for entry, known in zip(properties, self._properties, strict=True):
            if entry is known:
                continue
            name, _, value = entry
            text = value if type(value) is str else as_text(value)
            if name != known or text is None:
                return None
            values.append(text)
        if not self._template:
            self._encode_shared()
        body = octets_of(message)
        last = f"content-length:{len(body)}\n" if self._is_bytes else ""
        if message.expiration is not None:
            last += f"expires:{message.expiration:d}\n"
        if transaction:
            last += f"transaction:{transaction}\n"
        if receipt:
            last += f"receipt:{receipt}\n"
        different = self._template % (*escaped("SEND", values, self._version), last)
        if len(body) < LARGE_OCTETS:
            return b"".join((self._shared_octets, different.encode(), body, b"\0"))
        return self._shared_octets + different.encode(), body, b"\0"

    def _encode_shared(self) -> None:
        names = [] if self._is_uncorrelated else ["correlation-id"]
        names += [each for each in self._properties if isinstance(each, str)]
        self._shared_octets = pack_head("SEND", self._shared, self._version)[:-1]  # without the empty line
        self._template = header_lines(names, self._version) + "%s\n"


def _name_of(known: Property | str) -> str:
    return known if isinstance(known, str) else known.name
