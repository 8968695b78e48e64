"""SASL as a server, without I/O: who is let in.

A client may leave SASL out where anybody is let in. One that speaks another version, or wants TLS within AMQP, is told
what is spoken here.

Spec: AMQP 1.0 part 2, section 2.2; part 5, section 5.3. WebSocket binding 2.2 and 2.3 (WS-11 to WS-19, WS-34).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proton import UNDESCRIBED, Array, Data, symbol, ubyte

from brokers.amqp.login import Mechanism
from brokers.amqp.provider.options import Options
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, Frames, Performative, SaslError, pack
from brokers.errors import LoginRefusedError
from brokers.guesses import Guesses

ACCEPTED, REFUSED, LATER = 0, 1, 4


class SaslServer:
    """The server's side of a login.

    Attributes:
        is_done: the client was let in.
        user: who it is; None for nobody in particular.
    """

    def __init__(self, options: Options, guesses: Guesses, address: str, certified: str | None = None) -> None:
        """Take what is offered.

        Args:
            options: who is let in.
            guesses: counts logins that were refused, of all clients.
            address: where this one comes from.
            certified: who the certificate of TLS says the client is.
        """
        self.is_done = False
        self.user: str | None = None
        self._options = options
        self._guesses = guesses
        self._address = address
        self._certified = certified
        self._frames = Frames()
        self._has_header = False
        self._mechanism: Mechanism | None = None
        self._before = b""

    @property
    def rest(self) -> bytes:
        """What came after the login."""
        return self._before + bytes(self._frames.rest)

    def begin(self) -> bytes:
        """The client begins."""
        return b""

    def receive(self, octets: bytes) -> Iterator[bytes]:
        """Take what was read, and yield what to write.

        Raises:
            LoginRefusedError: the client is not let in.
            SaslError: it speaks something else.
        """
        if not self._has_header:
            header = self._frames.header(octets)
            if header is None:
                return
            self._has_header = True
            yield from self._greet(header)
        else:
            self._frames.rest += octets
        while not self.is_done and (frame := self._frames.next()) is not None:
            yield from self._answer(*frame)

    def _greet(self, header: bytes) -> Iterator[bytes]:
        if header == SASL_HEADER:
            yield SASL_HEADER
            undescribed: Any = UNDESCRIBED
            offered = Array(undescribed, Data.SYMBOL, *(symbol(each) for each in self._offered()))
            yield pack(Performative.MECHANISMS, offered)
        elif header == AMQP_HEADER and self._options.lets_in_anybody:
            self._before, self.is_done = header, True
        else:
            yield AMQP_HEADER if self._options.lets_in_anybody else SASL_HEADER
            raise SaslError(f"the client began with {header!r}")

    def _offered(self) -> Iterator[Mechanism]:
        if self._certified is not None:
            yield Mechanism.EXTERNAL
        if self._options.users is not None:
            yield Mechanism.PLAIN
        if self._options.lets_in_anybody:
            yield Mechanism.ANONYMOUS

    def _answer(self, performative: Performative, fields: list[Any]) -> Iterator[bytes]:
        if performative is Performative.INIT and self._mechanism is None:
            chosen = str(fields[0]) if fields else ""
            self._mechanism = next((each for each in self._offered() if each == chosen), None)
            response = fields[1] if len(fields) > 1 else None
            if self._mechanism is Mechanism.PLAIN and response is None:
                yield pack(Performative.CHALLENGE, b"")
                return
        elif performative is Performative.RESPONSE and self._mechanism is not None:
            response = fields[0] if fields else None
        else:
            raise SaslError(f"the client sent {performative.name.lower()} out of turn")
        outcome = self._outcome(response if isinstance(response, bytes) else b"")
        if outcome != ACCEPTED:
            yield pack(Performative.OUTCOME, ubyte(outcome))
            raise LoginRefusedError("the login was refused")
        self.is_done = True
        yield pack(Performative.OUTCOME, ubyte(ACCEPTED))

    def _outcome(self, response: bytes) -> int:
        if self._mechanism is Mechanism.EXTERNAL:
            self.user = self._certified
        elif self._mechanism is Mechanism.PLAIN:
            parts = response.decode("utf-8", "replace").split("\0")
            if len(parts) != 3 or (parts[0] and parts[0] != parts[1]):
                return REFUSED
            return self._compare(parts[1], parts[2])
        return REFUSED if self._mechanism is None else ACCEPTED

    def _compare(self, user: str, password: str) -> int:
        """Compare a password, unless too many from there were wrong."""
        lane = self._guesses.lane(self._address, user)
        if not self._guesses.allows(lane):
            return LATER
        if not self._options.knows(user, password):
            self._guesses.wrong(lane, user)
            return REFUSED
        self._guesses.right(self._address, user)
        self.user = user
        return ACCEPTED
