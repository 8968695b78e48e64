"""SASL before AMQP, without I/O: headers and frames in, headers and frames out.

proton has SASL too, but its mechanisms depend on how it was compiled, and its listener cannot check a password.
The mechanisms here install no security layer; TLS is for that.

Spec: AMQP 1.0 part 5, section 5.3; RFC 4616 (PLAIN), RFC 4505 (ANONYMOUS), RFC 4422 (EXTERNAL).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from proton import Array, Data, DataException, Described, symbol, ulong

from brokers.amqp.stack import MAX_FRAME_VALUES, has_many_values
from brokers.amqp.url import AmqpLogin, Mechanism
from brokers.errors import ConnectionFailedError, LoginRefusedError, UsageError

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
HEADER_OCTETS: Final = 8

SASL_FRAME: Final = 1
DATA_OFFSET: Final = 2
"""Offset of the body of a frame, in words of four octets."""

MAX_FRAME_OCTETS: Final = 4096
"""Maximum size of a SASL frame, in octets. AMQP allows 512; many mechanisms, or long passwords, need more."""


class Performative(IntEnum):
    """The descriptors of SASL frames."""

    MECHANISMS = 0x40
    INIT = 0x41
    CHALLENGE = 0x42
    RESPONSE = 0x43
    OUTCOME = 0x44


OUTCOMES: Final = {
    1: "the user or password is wrong",
    2: "an error of the broker",
    3: "a permanent error of the broker",
    4: "a temporary error of the broker",
}


class SaslError(ConnectionFailedError):
    """The peer violates SASL."""


def pack(performative: Performative, *fields: Any) -> bytes:
    """Encode one frame."""
    data = Data()
    data.put_object(Described(ulong(performative), list(fields)))
    body = bytes(data.encode())
    size = HEADER_OCTETS + len(body)
    return size.to_bytes(4, "big") + bytes([DATA_OFFSET, SASL_FRAME, 0, 0]) + body


def unpack(frame: bytes) -> tuple[Performative, list[Any]]:
    """Decode one frame.

    Raises:
        SaslError: it is not a valid SASL frame.
    """
    if has_many_values(frame, frame[4] * 4, len(frame)):
        raise SaslError(f"invalid SASL frame: it has more than {MAX_FRAME_VALUES} values, or arrays within arrays")
    data = Data()
    try:
        data.decode(frame[frame[4] * 4 :])
        data.rewind()
        data.next()
        described: Any = data.get_object()
        fields = [bytes(each) if isinstance(each, memoryview) else each for each in described.value]
        return Performative(described.descriptor), fields
    except (DataException, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise SaslError(f"invalid SASL frame: {error}") from error


class Frames:
    """Splits octets into header and frames. The octets after the SASL frames stay in `rest`."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def header(self, octets: bytes) -> bytes | None:
        """Add octets, and return the protocol header once it is complete, or None."""
        self.rest += octets
        if len(self.rest) < HEADER_OCTETS:
            return None
        head = bytes(self.rest[:HEADER_OCTETS])
        del self.rest[:HEADER_OCTETS]
        return head

    def next(self) -> tuple[Performative, list[Any]] | None:
        """Return the next frame once it is complete, or None.

        Raises:
            SaslError: it is invalid or too large.
        """
        if len(self.rest) < HEADER_OCTETS:
            return None
        size = int.from_bytes(self.rest[:4], "big")
        if (
            not HEADER_OCTETS <= size <= MAX_FRAME_OCTETS
            or self.rest[5] != SASL_FRAME
            or not 2 <= self.rest[4] <= size // 4
        ):
            raise SaslError(f"invalid SASL frame: it begins with {bytes(self.rest[:HEADER_OCTETS]).hex()}")
        if len(self.rest) < size:
            return None
        frame = bytes(self.rest[:size])
        del self.rest[:size]
        return unpack(frame)


class SaslClient:
    """The client's side of a login.

    Attributes:
        is_done: whether the broker accepted the login; `rest` has the octets after it.
    """

    def __init__(self, login: AmqpLogin) -> None:
        """Ask for user and password.

        Raises:
            ConnectionFailedError: they are not available.
            UsageError: the mechanism is PLAIN, and there is no user.
        """
        self.is_done = False
        self._login = login
        self._who = login.credentials()
        self._mechanism = login.mechanism
        if self._mechanism is Mechanism.AUTO:
            self._mechanism = Mechanism.ANONYMOUS if self._who.user is None else Mechanism.PLAIN
        if self._mechanism is Mechanism.PLAIN and self._who.user is None:
            raise UsageError(f"mechanism {Mechanism.PLAIN} needs a user and password, and {login} has none")
        self._frames = Frames()
        self._has_header = False
        self._has_begun = False

    @property
    def rest(self) -> bytes:
        """The octets after the outcome."""
        return bytes(self._frames.rest)

    def begin(self) -> bytes:
        """Return the first octets to write."""
        return SASL_HEADER

    def receive(self, octets: bytes) -> Iterator[bytes]:
        """Process octets that were read, and yield octets to write.

        Raises:
            ConnectionFailedError: the broker refused the login, lacks our mechanism, or does not speak SASL.
        """
        if not self._has_header:
            header = self._frames.header(octets)
            if header is None:
                return
            if header != SASL_HEADER:
                raise SaslError(f"the broker must begin SASL, got {header!r}")
            self._has_header = True
        else:
            self._frames.rest += octets
        while not self.is_done and (frame := self._frames.next()) is not None:
            answer = self._answer(*frame)
            if answer is not None:
                yield answer

    def _answer(self, performative: Performative, fields: list[Any]) -> bytes | None:
        first = fields[0] if fields else None
        match performative:
            case Performative.MECHANISMS if not self._has_begun:
                self._has_begun = True
                self._require_mechanism(mechanisms(first))
                return pack(Performative.INIT, symbol(self._mechanism), self._secret(), self._login.host_name)
            case Performative.OUTCOME:
                if first != 0:
                    reason = OUTCOMES.get(first, "an unknown reason") if isinstance(first, int) else "unknown"
                    raise LoginRefusedError(f"{self._login} refused the login with {self._mechanism}: {reason}")
                self.is_done = True
                return None
        raise SaslError(f"the broker sent {performative.name.lower()}, which {self._mechanism} does not expect here")

    def _require_mechanism(self, offered: list[str]) -> None:
        if self._mechanism in offered:
            return
        hint = ": give a user and password" if self._mechanism is Mechanism.ANONYMOUS else ""
        takes = ", ".join(offered) or "no mechanism"
        raise LoginRefusedError(f"{self._login} does not offer {self._mechanism}{hint}; it offers {takes}")

    def _secret(self) -> bytes:
        user, password = self._who.user or "", self._who.password or ""
        if self._mechanism is Mechanism.PLAIN:
            return f"\0{user}\0{password}".encode()
        return b"anonymous" if self._mechanism is Mechanism.ANONYMOUS else user.encode()


def mechanisms(value: object) -> list[str]:
    """Return the names in the field of SASL mechanisms: one symbol or an array of symbols."""
    if isinstance(value, Array):
        return [str(each) for each in value.elements]
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    return [] if value is None else [str(value)]
