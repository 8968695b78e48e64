"""Inspection of a client's frames before proton gets them, and of the frames that proton writes.

proton treats missing fields as zero or ignores errors, and the errors that it finds end the connection. This module
checks required fields, and raises the error that the specification demands, for the session or the connection. It also
keeps data on sessions that proton does not provide: channels, handles and the number of transfers.

Spec: AMQP 1.0 part 2, sections 2.3 (framing), 2.4.1, 2.5, 2.6 and 2.7 (performatives); part 1, 1.3 (encodings).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from proton import Data, Described, symbol, uint, ulong

from brokers.amqp.machine import MAX_FRAME_OCTETS
from brokers.amqp.outcomes import DECODE, INVALID, LIMIT, NOT_ALLOWED
from brokers.amqp.sasl import AMQP_HEADER, HEADER_OCTETS
from brokers.amqp.stack import FIRST_SIZED, MAX_FRAME_VALUES, WIDTHS, has_many_values

FRAMING: Final = "amqp:connection:framing-error"
ILLEGAL_STATE: Final = "amqp:illegal-state"
UNATTACHED: Final = "amqp:session:unattached-handle"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"

SIZE_OCTETS: Final = 4
MIN_FRAME_OCTETS: Final = 8
MIN_MAX_FRAME_OCTETS: Final = 512
"""The smallest permitted max-frame-size, in octets. Spec: 2.7.1."""

ERROR: Final = 0x1D

MAX_STOLEN_HANDLES: Final = 1000
"""Maximum number of stolen links of a session whose detach the client has not answered."""

SESSION_WINDOW_FRAMES: Final = 2**31 - 1
"""The window of proton's sessions, in frames."""


MAX_CREDIT_MESSAGES: Final = 2**31 - 1
"""The most credit of a link that proton understands; it takes more for less than none."""


class PerformativeCode(IntEnum):
    """The descriptors of performatives."""

    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    FLOW = 0x13
    TRANSFER = 0x14
    DISPOSITION = 0x15
    DETACH = 0x16
    END = 0x17
    CLOSE = 0x18


UINT: Final = rb"(?:\x43|\x52.|\x70.{4})"
MAX_TAG_OCTETS: Final = 32
"""Maximum size of a delivery tag. Spec: 2.8.7."""

TAG: Final = rb"\xa0(?:" + b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(MAX_TAG_OCTETS + 1)) + b")"
PLAIN_TRANSFER: Final = re.compile(
    rb".{4}\x02\x00(.{2})\x00\x53\x14\xc0(.)(.)"  # channel, transfer, and the size and count of its fields
    rb"(" + UINT + rb")" + UINT + TAG + UINT + rb"([\x40-\x42]?)([\x40\x42]?)",
    re.DOTALL,
)
"""A frame with a transfer as most clients write it: handle, delivery-id, delivery-tag, message-format, perhaps settled,
and perhaps that no more follows."""

SEEN_OF_OURS: Final = frozenset(
    {PerformativeCode.BEGIN, PerformativeCode.ATTACH, PerformativeCode.DETACH, PerformativeCode.END}
)
"""The performatives of ours that are observed, besides transfers."""

CODES: Final[Mapping[int, PerformativeCode]] = {int(each): each for each in PerformativeCode}

UINTS: Final = frozenset({0x43, 0x52, 0x70})
STRINGS: Final = frozenset({0xA1, 0xB1})
BOOLEANS: Final = frozenset({0x41, 0x42, 0x56})
NULL: Final = 0x40

REQUIRED: Final[Mapping[PerformativeCode, tuple[tuple[int, str, frozenset[int]], ...]]] = {
    PerformativeCode.OPEN: ((0, "container-id", STRINGS),),
    PerformativeCode.BEGIN: (
        (1, "next-outgoing-id", UINTS),
        (2, "incoming-window", UINTS),
        (3, "outgoing-window", UINTS),
    ),
    PerformativeCode.ATTACH: ((0, "name", STRINGS), (1, "handle", UINTS), (2, "role", BOOLEANS)),
    PerformativeCode.FLOW: (
        (1, "incoming-window", UINTS),
        (2, "next-outgoing-id", UINTS),
        (3, "outgoing-window", UINTS),
    ),
    PerformativeCode.TRANSFER: ((0, "handle", UINTS),),
    PerformativeCode.DISPOSITION: ((0, "role", BOOLEANS), (1, "first", UINTS)),
    PerformativeCode.DETACH: ((0, "handle", UINTS),),
    PerformativeCode.END: (),
    PerformativeCode.CLOSE: (),
}
"""The required fields of each performative: position, name, and permitted constructors."""

LISTS: Final = {0x45: (0, 0), 0xC0: (1, 1), 0xD0: (4, 4)}
"""Number of octets of the size and of the count of a list, by its constructor."""


class FrameViolation(NamedTuple):
    """A violation of the specification by a client: the condition, and the description."""

    condition: str
    why: str


@dataclass(slots=True)
class LinkHandle:
    """A handle of the client: name and role of its link, and whether a message has arrived only in part."""

    name: str
    is_receiver: bool
    is_partial: bool = False


@dataclass(slots=True)
class AmqpChannel:
    """One session by its channel: the client's handles, stolen ones whose detach is only an echo, and transfer counts.

    `session` is proton's; `is_over` is set once we ended it; `own` and `names_of_ours`, the attached links by our
    handles, with their names and roles, come from frames that proton wrote.
    """

    number: int
    first: int
    session: Any = None
    is_over: bool = False
    attached: dict[int, LinkHandle] = field(default_factory=dict)
    stolen: set[int] = field(default_factory=set)
    received: int = 0
    own: int | None = None
    sent: int = 0
    names_of_ours: dict[int, tuple[str, bool]] = field(default_factory=dict)

    def handle_of_sender(self, name: str) -> int | None:
        """Return our handle of a link that we send on, or None."""
        return next((handle for handle, named in self.names_of_ours.items() if named == (name, False)), None)


class Watch(Protocol):
    """Receives the findings of the inspection. Called with the lock held."""

    def violated(self, violation: FrameViolation, channel: AmqpChannel | None) -> None:
        """End the session of a channel; without a channel, end the connection by raising an error."""

    def stolen(self, channel: AmqpChannel, attached: LinkHandle) -> None:
        """End our end of a link whose name is attached again in the same session."""

    def echoed(self, channel: AmqpChannel, attached: LinkHandle | None) -> None:
        """Report the state of a link, or of the session, on the client's request."""


class Fields:
    """The fields of a performative, parsed only as far as needed, and never beyond the end of their list.

    Attributes:
        count: number of fields.
        end: position after the last field.

    Raises (every method): IndexError, KeyError: the octets are not a valid list.
    """

    __slots__ = ("_body", "_starts", "count", "end")

    def __init__(self, body: bytes, at: int) -> None:
        sizes, counts = LISTS[body[at]]
        begin = at + 1 + sizes
        self.count = int.from_bytes(body[begin : begin + counts], "big")
        self._body = body
        self.end = begin + int.from_bytes(body[at + 1 : begin], "big")
        if self.end > len(body):
            raise IndexError
        self._starts = [begin + counts]

    def code(self, number: int) -> int:
        """Return the constructor of a field; that of null if the field is omitted."""
        return NULL if number >= self.count else self._body[self._start(number)]

    def number(self, number: int) -> int:
        """Return the value of an unsigned integer field."""
        at = self._start(number)
        width = WIDTHS[self._body[at] >> 4]
        return int.from_bytes(self._body[at + 1 : at + 1 + width], "big")

    def capped(self, number: int, limit: int) -> bytes:
        """Return the whole body, in which the value of an unsigned integer field is at most a limit of four octets."""
        if self.code(number) not in UINTS or self.number(number) <= limit:
            return self._body
        at = self._start(number) + 1
        return self._body[:at] + limit.to_bytes(4, "big") + self._body[at + 4 :]

    def text(self, number: int) -> str:
        """Return the value of a string field."""
        at, end = self._start(number), self._start(number + 1)
        return self._body[at + 1 + WIDTHS[self._body[at] >> 4] : end].decode("utf-8", "replace")

    def flag(self, number: int) -> bool:
        """Return the value of a boolean field; False if it is omitted."""
        code = self.code(number)
        return code == 0x41 or (code == 0x56 and self._body[self._start(number) + 1] == 1)

    def _start(self, number: int) -> int:
        starts = self._starts
        while len(starts) <= number:
            starts.append(_end(self._body, starts[-1]))
            if starts[-1] > self.end:  # proton would read fewer fields
                raise IndexError
        return starts[number]


def _end(body: bytes, at: int) -> int:
    """Return the position after a value."""
    left = 1
    while left:
        code = body[at]
        at += 1
        if code == 0:  # described: a descriptor and a value follow
            left += 1
            continue
        width = WIDTHS[code >> 4]
        at += width + (int.from_bytes(body[at : at + width], "big") if code >= FIRST_SIZED else 0)
        left -= 1
    if at > len(body):
        raise IndexError
    return at


class FrameInspection:
    """Inspects the frames of one connection, after SASL."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._rest = b""
        self._own_rest = b""
        self._has_header = False
        self._is_open = False
        self._channels: dict[int, AmqpChannel] = {}
        self._own: dict[int, AmqpChannel] = {}
        self._begun: AmqpChannel | None = None

    def began(self, session: Any) -> None:
        """Record proton's session for the last begin."""
        if self._begun is not None:
            self._begun.session, self._begun = session, None

    def end(self) -> None:
        """Forget the sessions; nothing is inspected any more."""
        self._channels.clear()
        self._own.clear()
        self._begun = None

    def take(self, octets: bytes) -> Iterator[bytes]:
        """Inspect octets that were read, and yield them frame by frame for proton, except frames to be dropped."""
        rest = self._rest + octets
        at = 0
        if not self._has_header:
            if len(rest) < HEADER_OCTETS and AMQP_HEADER.startswith(rest):
                self._rest = rest
                return
            self._has_header, at = True, HEADER_OCTETS
            yield rest[:at]
        begin = at  # of the plain transfers that were not yielded yet
        while (have := len(rest) - at) >= SIZE_OCTETS:
            size = int.from_bytes(rest[at : at + SIZE_OCTETS], "big")
            is_frame = MIN_FRAME_OCTETS <= size <= MAX_FRAME_OCTETS and (
                have == SIZE_OCTETS or 2 <= rest[at + SIZE_OCTETS] <= size // 4
            )
            if is_frame and have < size:
                break
            found = PLAIN_TRANSFER.match(rest, at, at + size) if is_frame else None
            if found is not None and self._is_plain_transfer(found):
                at += size
                continue
            if begin < at:
                yield rest[begin:at]
            if not is_frame:
                why = f"a frame has 8 to {MAX_FRAME_OCTETS} octets here, and its header 8 or more"
                self._violated(FrameViolation(FRAMING, why))
            frame = rest[at : at + size]
            begin = at = at + size
            yield from self._frame(frame)
        if begin < at:
            yield rest[begin:at]
        self._rest = rest[at:]

    def _is_plain_transfer(self, found: re.Match[bytes]) -> bool:
        """Record a transfer of a whole message and return True, unless something is wrong or unusual about it.

        `_frame` then finds what it is.
        """
        number, (size,), (count,), handle, settled, more = found.groups()
        if count != 4 + len(settled) + len(more) or size != found.end() - found.start(3):
            return False
        channel = self._channels.get(int.from_bytes(number, "big"))
        if channel is None or channel.is_over:
            return False
        attached = channel.attached.get(int.from_bytes(handle[1:], "big"))
        if attached is None or attached.is_partial or attached.is_receiver:
            return False
        channel.received += 1
        return True

    def wrote(self, octets: bytes) -> None:
        """Observe octets that proton writes; a large frame comes in several pieces."""
        octets = self._own_rest + octets if self._own_rest else octets
        at = 0 if octets[:4] != AMQP_HEADER[:4] else HEADER_OCTETS
        while len(octets) - at >= SIZE_OCTETS:
            size = int.from_bytes(octets[at : at + SIZE_OCTETS], "big")
            if len(octets) - at < size:
                break
            code = octets[at + MIN_FRAME_OCTETS + 2] if size > MIN_FRAME_OCTETS + 2 else 0
            if code == PerformativeCode.TRANSFER:
                channel = self._own.get(int.from_bytes(octets[at + 6 : at + 8], "big"))
                if channel is not None:
                    channel.sent += 1
            elif code in SEEN_OF_OURS:
                self._wrote(code, int.from_bytes(octets[at + 6 : at + 8], "big"), octets[at : at + size])
            at += size
        self._own_rest = octets[at:]

    def _wrote(self, code: int, number: int, frame: bytes) -> None:
        fields = Fields(frame, MIN_FRAME_OCTETS + 3)
        if code == PerformativeCode.BEGIN and fields.code(0) != NULL:
            channel = self._channels.get(fields.number(0))
            if channel is not None:
                channel.own, self._own[number] = number, channel
        elif code == PerformativeCode.END:
            self._own.pop(number, None)
        elif code == PerformativeCode.ATTACH and number in self._own:
            self._own[number].names_of_ours[fields.number(1)] = fields.text(0), fields.flag(2)
        elif code == PerformativeCode.DETACH and number in self._own:
            self._own[number].names_of_ours.pop(fields.number(0), None)

    def _violated(self, violation: FrameViolation, channel: AmqpChannel | None = None) -> None:
        if channel is not None:
            channel.is_over = True
        self._watch.violated(violation, channel)

    def _frame(self, frame: bytes) -> Iterator[bytes]:
        begin = frame[4] * 4
        if frame[5] != 0 or begin == len(frame):  # an empty keep-alive frame, or a type that proton handles
            yield frame
            return
        number = int.from_bytes(frame[6:8], "big")
        try:
            frame = _with_short_code(frame, begin)
            code, fields = CODES[frame[begin + 2]], Fields(frame, begin + 3)
            if has_many_values(frame, begin, fields.end):
                why = f"{code.name.lower()} has more than {MAX_FRAME_VALUES} values, or arrays within arrays"
                self._violated(FrameViolation(LIMIT, why))
            for place, name, codes in REQUIRED[code]:
                if fields.code(place) not in codes:
                    said = "is missing" if fields.code(place) == NULL else "is of another type"
                    self._violated(FrameViolation(DECODE, f"{name} of {code.name.lower()} {said}"))
            if code is not PerformativeCode.OPEN and not self._is_open:
                self._violated(
                    FrameViolation(ILLEGAL_STATE, f"a connection begins with open, not with {code.name.lower()}")
                )
            yield from CHECKS[code](self, frame, number, fields)
        except (IndexError, KeyError, ValueError):
            self._violated(FrameViolation(DECODE, "a frame holds no performative"))

    def _open(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        if number != 0:
            self._violated(FrameViolation(NOT_ALLOWED, f"open is sent on channel 0, not on {number}"))
        if self._is_open:
            self._violated(FrameViolation(ILLEGAL_STATE, "the connection is open already"))
        if fields.code(2) in UINTS and fields.number(2) < MIN_MAX_FRAME_OCTETS:
            self._violated(
                FrameViolation(INVALID, f"max-frame-size is at least {MIN_MAX_FRAME_OCTETS}, not {fields.number(2)}")
            )
        self._is_open = True
        return iter((frame,))

    def _begin(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        if number in self._channels:
            self._violated(FrameViolation(NOT_ALLOWED, f"channel {number} has a session already"))
        self._begun = self._channels[number] = AmqpChannel(number, fields.number(1))
        return iter((frame,))

    def _in_session(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        return iter(() if self._channel(number).is_over else (frame,))

    def _channel(self, number: int) -> AmqpChannel:
        channel = self._channels.get(number)
        if channel is None:
            self._violated(FrameViolation(NOT_ALLOWED, f"channel {number} has no session"))
            raise KeyError
        return channel

    def _end(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        self._channel(number)
        del self._channels[number]
        return iter((frame,))

    def _close(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        return iter((frame,))

    def _attach(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        channel = self._channel(number)
        if channel.is_over:
            return
        handle, attached = fields.number(1), LinkHandle(fields.text(0), fields.flag(2))
        if handle in channel.attached:
            self._violated(FrameViolation(HANDLE_IN_USE, f"handle {handle} is attached already"), channel)
            return
        for other, known in channel.attached.items():
            if (known.name, known.is_receiver) == (attached.name, attached.is_receiver):
                self._watch.stolen(channel, known)
                yield frame_of(number, PerformativeCode.DETACH, uint(other), True)  # proton does not support stealing
                del channel.attached[other]
                channel.stolen.add(other)
                break
        if len(channel.stolen) > MAX_STOLEN_HANDLES:
            why = f"a client must answer the detach of stolen links, got {len(channel.stolen)} that are not answered"
            self._violated(FrameViolation(LIMIT, why), channel)
            return
        channel.attached[handle] = attached
        channel.stolen.discard(handle)
        yield frame

    def _detach(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        channel = self._channel(number)
        if channel.is_over:
            return iter(())
        handle = fields.number(0)
        if handle in channel.stolen:  # the answer to our detach
            channel.stolen.discard(handle)
            return iter(())
        if channel.attached.pop(handle, None) is None:
            return self._unattached(channel, handle)
        return iter((frame,))

    def _flow(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        channel = self._channel(number)
        if channel.is_over:
            return
        attached = None
        if fields.code(4) != NULL:
            handle = fields.number(4)
            attached = channel.attached.get(handle)
            if attached is None:
                if handle not in channel.stolen:
                    self._unattached(channel, handle)
                return
        yield fields.capped(6, MAX_CREDIT_MESSAGES)
        if fields.flag(9):
            self._watch.echoed(channel, attached)

    def _transfer(self, frame: bytes, number: int, fields: Fields) -> Iterator[bytes]:
        channel = self._channel(number)
        if channel.is_over:
            return iter(())
        channel.received += 1
        handle = fields.number(0)
        attached = channel.attached.get(handle)
        if attached is None:
            return iter(()) if handle in channel.stolen else self._unattached(channel, handle)
        if attached.is_receiver:  # proton would keep the message for ever
            why = f"handle {handle} is that of a link on which the client receives"
            self._violated(FrameViolation(NOT_ALLOWED, why), channel)
            return iter(())
        if not attached.is_partial and fields.code(2) == NULL:
            self._violated(FrameViolation(INVALID, "delivery-tag of the first transfer of a message is missing"))
        attached.is_partial = fields.flag(5) and not fields.flag(9)
        return iter((frame,))

    def _unattached(self, channel: AmqpChannel, handle: int) -> Iterator[bytes]:
        self._violated(FrameViolation(UNATTACHED, f"handle {handle} is not attached"), channel)
        return iter(())


CHECKS: Final = {
    PerformativeCode.OPEN: FrameInspection._open,
    PerformativeCode.BEGIN: FrameInspection._begin,
    PerformativeCode.ATTACH: FrameInspection._attach,
    PerformativeCode.FLOW: FrameInspection._flow,
    PerformativeCode.TRANSFER: FrameInspection._transfer,
    PerformativeCode.DISPOSITION: FrameInspection._in_session,
    PerformativeCode.DETACH: FrameInspection._detach,
    PerformativeCode.END: FrameInspection._end,
    PerformativeCode.CLOSE: FrameInspection._close,
}
"""The checks of each performative, besides its required fields."""


NAMES: Final = {f"amqp:{each.name.lower()}:list".encode(): each for each in PerformativeCode}

ULONGS: Final = frozenset({0x53, 0x80})
SYMBOLS: Final = frozenset({0xA3, 0xB3})


def _with_short_code(frame: bytes, at: int) -> bytes:
    """Return a frame with the shortest descriptor of its performative: proton ignores frames with a symbol there.

    Raises (IndexError, KeyError, ValueError): the descriptor names no performative.

    Spec: 1.2 and 1.3 of part 1; 2.7 of part 2.
    """
    if frame[at : at + 2] == b"\x00\x53":
        return frame
    constructor = frame[at + 1]
    if frame[at] != 0 or constructor not in ULONGS | SYMBOLS:
        raise ValueError("no descriptor, or one that is neither a ulong nor a symbol")
    end = _end(frame, at + 1)
    value = frame[at + 2 + (WIDTHS[constructor >> 4] if constructor >= FIRST_SIZED else 0) : end]
    code = NAMES[value] if constructor in SYMBOLS else CODES[int.from_bytes(value, "big")]
    short = frame[SIZE_OCTETS:at] + bytes([0, 0x53, code]) + frame[end:]
    return (SIZE_OCTETS + len(short)).to_bytes(SIZE_OCTETS, "big") + short


def frame_of(channel: int, code: PerformativeCode, *values: Any) -> bytes:
    """Return the octets of a frame."""
    data = Data()
    data.put_object(Described(ulong(code), list(values)))
    body = bytes(data.encode())
    return (MIN_FRAME_OCTETS + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def close_of(violation: FrameViolation) -> bytes:
    """Return the octets of a close frame with an error."""
    return frame_of(0, PerformativeCode.CLOSE, Described(ulong(ERROR), [symbol(violation.condition), violation.why]))


def flow_of(channel: AmqpChannel, *of_link: Any) -> bytes:
    """Return the octets of a flow frame: the state of a session, and of a link if its fields are given. Spec: 2.7.4."""
    incoming, outgoing = (channel.first + channel.received) % 2**32, channel.sent % 2**32
    own = channel.own or 0
    return frame_of(
        own,
        PerformativeCode.FLOW,
        uint(incoming),
        uint(SESSION_WINDOW_FRAMES),
        uint(outgoing),
        uint(SESSION_WINDOW_FRAMES),
        *of_link,
    )
