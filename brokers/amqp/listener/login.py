"""Logins to a listener by SASL, and the rights of users to destinations. No I/O.

A client may omit SASL if anonymous clients are admitted. A client that begins another version, or TLS within AMQP, gets
the header of the version spoken here.

Rights are parsed from text, and can be passed as `Options.may` in place of a function:

    # user  action   destination
    ann     send     queue:orders.*
    ann     receive  queue:answers
    *       *        topic:news

Spec: AMQP 1.0 part 2, section 2.2; part 5, section 5.3. WebSocket binding 2.2 and 2.3 (WS-11 to WS-19, WS-34).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, Self

from proton import UNDESCRIBED, Array, Data, symbol, ubyte

from brokers.amqp.listener.options import Action, Options
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, Frames, Performative, SaslError, pack
from brokers.amqp.url import Mechanism
from brokers.errors import LoginRefusedError, UsageError
from brokers.listeners.guesses import Guesses
from brokers.message import Destination

ACCEPTED, REFUSED, LATER = 0, 1, 4


class SaslServer:
    """The server's side of a login.

    Attributes:
        is_done: whether the client was admitted.
        user: name of the user; None for an anonymous client.
    """

    def __init__(self, options: Options, guesses: Guesses, address: str, certified: str | None = None) -> None:
        """Create the server's side.

        Args:
            options: define the users who are admitted.
            guesses: counts the refused logins of all clients.
            address: address of this client.
            certified: user named by the client's TLS certificate, if any.
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
        """The octets after the login."""
        return self._before + bytes(self._frames.rest)

    def begin(self) -> bytes:
        """Return no octets: the client begins."""
        return b""

    def receive(self, octets: bytes) -> Iterator[bytes]:
        """Process octets that were read, and yield octets to write.

        Raises:
            LoginRefusedError: the login was refused.
            SaslError: the client does not speak SASL.
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
        """Check a password, unless too many from the same place were wrong."""
        lane = self._guesses.lane(self._address, user)
        if not self._guesses.allows(lane):
            return LATER
        if not self._options.knows(user, password):
            self._guesses.wrong(lane, user)
            return REFUSED
        self._guesses.right(self._address, user)
        self.user = user
        return ACCEPTED


ANY: Final = "*"
ACTIONS: Final = (*Action, ANY)


class Right(NamedTuple):
    """A right of a user.

    Attributes:
        user: name of the user; `*` for everyone, including anonymous clients.
        action: `send` or `receive`; `*` for both.
        where: `queue:NAME` or `topic:NAME`, with `*`, `?` and `[…]` as in file name patterns.
    """

    user: str
    action: str
    where: str

    def covers(self, user: str | None, action: Action, destination: Destination) -> bool:
        """Return whether this right permits an action of a user."""
        return self.user in (user, ANY) and self.action in (action, ANY) and fnmatchcase(str(destination), self.where)


class Rights:
    """The rights of all users; everything else is refused. Temporary destinations need no right, only their name.

    Attributes:
        rights: the rights as they were given.
    """

    def __init__(self, rights: Iterable[Right]) -> None:
        self.rights = tuple(rights)

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse one right from each line; empty lines and lines that begin with # are skipped.

        Raises:
            UsageError: a line is invalid; the text has its number and the correct form.
        """
        return cls(
            _read(number, line)
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        )

    def __call__(self, user: str | None, action: Action, destination: Destination) -> bool:
        """Return whether a user (None for anonymous) may use a destination for an action."""
        return destination.kind.is_temporary or any(each.covers(user, action, destination) for each in self.rights)


def _read(number: int, line: str) -> Right:
    parts = line.split(None, 2)
    right = Right(*parts) if len(parts) == len(Right._fields) else None
    if right is None or right.action not in ACTIONS or not right.where.startswith(("queue:", "topic:", ANY)):
        raise UsageError(
            f"line {number} must be USER {'|'.join(ACTIONS)} DESTINATION, as: ann send queue:a.*, got {line.strip()!r}"
        )
    return right._replace(where=right.where.rstrip())
