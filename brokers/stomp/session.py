"""One STOMP session: login, frames out and in, and who waits for which receipt.

The socket is in `brokers.stomp.socket`. Nothing about messages or consumers belongs here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from math import inf
from queue import Empty, SimpleQueue
from threading import Event, Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

from brokers.errors import (
    BrokerError,
    ConnectionFailedError,
    ConnectionLostError,
    LoginRefusedError,
    NoAnswerError,
    NotSentError,
    UnsentError,
)
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, StompDialect, dialect_of
from brokers.stomp.frames import refusal, text_of
from brokers.stomp.socket import Wire
from brokers.stomp.url import StompLogin
from brokers.threads.pool import Crew

log = logging.getLogger(__name__)

Settle: TypeAlias = Callable[[BrokerError | None], None]
"""Told once, by the reading thread: None when the receipt came, else why it will not come. It must not block."""

Receive: TypeAlias = Callable[[Mapping[str, str], bytes], None]
"""Given headers and body of a MESSAGE, by the reading thread. It must not block."""

Refuse: TypeAlias = Callable[[Mapping[str, str], int, str], None]
"""Given headers of a MESSAGE that was passed over, octets of its body, and why. It must not block either."""


class SubscriptionRoute(NamedTuple):
    """Who is told of a subscription, by the reading thread; none of them may block.

    Attributes:
        address: of its destination, as SUBSCRIBE has it.
        receive: takes its messages.
        doubt: told why the broker may have ended it: that or another of the same address.
        refuse: takes what is above the limit; None where that does not matter.
    """

    address: str
    receive: Receive
    doubt: Callable[[str], None]
    refuse: Refuse | None = None


BEATS_PER_PROMISE: Final = 2
"""How often in the time that we promised the broker a sign of life it gets one: brokers differ in their patience."""

MAX_SILENT_INTERVALS: Final = 3
"""A broker is gone that gives no sign of life for so many of the intervals that it promised.

ActiveMQ, which looks once an interval whether it wrote anything since, may be silent for nearly two.
"""

LAST_WORDS_SECONDS: Final = 2.0
"""Seconds within which the end of a session follows the ERROR that says why."""

SUBSCRIBE: Final = "subscribe"
"""What the receipt of a SUBSCRIBE begins with, because some brokers do not say which one they refuse."""

WRITTEN: Final = "written "
"""What stands before the name of who waits for what is no receipt: that all is written."""

BROKER_CLOSE_SECONDS: Final = 0.5
"""Seconds that the broker gets to close the socket after it confirmed our leave: its log shows no error then."""

BEATS: Final = re.compile(r"[0-9]{1,9},[0-9]{1,9}")

ESCAPES: Final = {
    "1.1": (("\\", "\\\\"), ("\n", "\\n"), (":", "\\c")),  # and has no escape for CR, which stands for itself
    "1.2": (("\\", "\\\\"), ("\n", "\\n"), (":", "\\c"), ("\r", "\\r")),
}
"""What to write for what has a meaning of its own, the escape character first."""


def pack(command: str, headers: Mapping[str, str], body: bytes = b"", version: str = "1.2") -> bytes:
    """Encode one frame, escaping names and values of its headers.

    stomp.py can do it too, but it escapes no names, puts a question mark for a lone surrogate, and takes four times as
    long, which is felt at thousands of messages a second.

    Raises:
        ValueError: a NUL or a lone surrogate in a header, which no frame can carry.

    Spec: STOMP 1.1 and 1.2, value encoding.
    """
    values = _escape("\0".join(headers.values()), version).split("\0")  # all at once takes a third of the time
    if len(values) != max(1, len(headers)):
        raise ValueError(f"a header of {command} cannot hold NUL")
    names = [_escape_name(name, version) for name in headers]
    return _encode(command, zip(names, values, strict=False), body)


def _escape(text: str, version: str) -> str:
    for special, escape in ESCAPES[version]:
        text = text.replace(special, escape)
    return text


_escape_name = lru_cache(maxsize=1024)(_escape)
"""As `_escape`: a program uses a few names again and again."""


def _encode(command: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> bytes:
    head = "\n".join([command, *[f"{name}:{value}" for name, value in headers], "\n"])
    if "\0" in head:
        raise ValueError(f"a header of {command} cannot hold NUL")
    return b"".join((head.encode(), body, b"\0"))


LEAVE: Final = {
    True: pack("DISCONNECT", {"receipt": "leave"}),
    False: pack("BEGIN", {"transaction": "leave", "receipt": "leave"}) + pack("DISCONNECT", {}),
}
"""How to take leave of a broker and hear that it has read all before, by `StompDialect.confirms_leave`."""


class UnansweredError(ConnectionFailedError):
    """The broker accepted the connection, and did not answer the login in time."""


class StompSession:
    """One session with one broker, from `open` until it ends; it is never opened again.

    Args:
        login: where to, and who asks.
        on_end: told once when the session has ended, by whichever thread notices; it must not block.

    Attributes:
        writing: held while frames are written. Who must act on a state and write in one step holds it around both.
        login: where to, and who asks.
        server: what the broker calls itself.
        session: what it calls this session, empty if it does not say.
        dialect: how that broker speaks.
        roll: the `Roll` of its subscriptions, once there is one; with `writing` held.
        strangers: how ids begin that no ACK can name though they look like the broker's own.
    """

    def __init__(self, login: StompLogin, on_end: Callable[[StompSession], None]) -> None:
        self.server = ""
        self.session = ""
        self.dialect: StompDialect = ACTIVEMQ_CLASSIC
        self.roll: Any = None
        self.strangers: set[str] = set()
        self.login = login
        self._on_end = on_end
        self._state = Lock()
        self._has_ended = False
        self._waiting: dict[str, Settle] = {}
        self._routes: dict[str, SubscriptionRoute] = {}
        self._complaint = ""
        self._complained = -LAST_WORDS_SECONDS
        self._greeting: SimpleQueue[Mapping[str, str] | BrokerError] = SimpleQueue()
        self._wire = Wire(login, self)
        self.writing = self._wire.writing

    def __str__(self) -> str:
        return f"{self.login}"

    def open(self, timeout: float, patience: float = inf) -> None:
        """Connect and log in within `timeout` seconds, of which the broker gets `patience` to answer the login.

        Raises:
            UnansweredError: nobody answered the login in time.
            ConnectionFailedError: nobody is there, the broker refused the login, or no dialect is known for it.
            ValueError: a login that cannot be put in a frame.
        """
        try:
            self._log_in(timeout, patience)
        except OSError as error:
            self._abandon()
            raise self.login.explain(self._wire.failure or error) from error
        except BaseException:
            self._abandon()
            raise

    def _log_in(self, timeout: float, patience: float) -> None:
        until = monotonic() + timeout
        # We promise fewer signs of life than we give, and ask for more than we need.
        beats = {"heart-beat": f"{self.login.heartbeat},{self.login.heartbeat // BEATS_PER_PROMISE}"}
        hello = _encode("CONNECT", (self.login.headers() | beats).items())  # STOMP leaves these headers unescaped
        self._wire.open(timeout)
        self._wire.send(hello)
        try:
            answer = self._greeting.get(timeout=min(patience, max(0.0, until - monotonic())))
        except Empty:
            raise UnansweredError(f"{self.login} did not answer within {min(patience, timeout):.1f} s") from None
        if isinstance(answer, BrokerError):
            raise answer
        self.dialect = self.login.dialect or dialect_of(answer.get("server", ""))
        self.server = answer.get("server", self.dialect.name)
        self.session = answer.get("session", "")

    def _abandon(self) -> None:
        self.drop()
        self._wire.join(monotonic() + BROKER_CLOSE_SECONDS)

    def lead(self, crew: Crew) -> None:
        """Have the thread that reads run quick tasks of a crew too; see `Wire.lead`."""
        self._wire.lead(crew)

    def be_lazy(self) -> None:
        """Let what arrives wait for more of it, from now on."""
        self._wire.is_lazy = True

    @property
    def is_up(self) -> bool:
        """Whether frames can still be written and answered."""
        return not self._has_ended

    def await_room(self, timeout: float | None) -> None:
        """Wait until the broker has read what waits for it. `writing` is held, by nobody further out.

        Raises:
            NotSentError: it did not within so many seconds; None for as long as it takes.
            ConnectionLostError: the session has ended.
        """
        if self.is_behind:
            try:
                self._wire.await_room(inf if timeout is None else monotonic() + timeout)
            except TimeoutError as error:
                raise NotSentError(f"not sent to {self.login} within {timeout:.1f} s: {error}") from None
            if self._has_ended:
                raise self.lost()

    def write(self, data: bytes) -> None:
        """Write encoded frames in one piece, now or when the broker has read what was before. Never waits.

        Raises:
            UnsentError: the session has ended; nothing was written.
            ConnectionLostError: it ended by this.
        """
        with self.writing:
            if self._has_ended:
                raise self.lost(UnsentError)
            try:
                self._wire.send(data)
            except OSError as error:
                self._wire.join(
                    monotonic() + BROKER_CLOSE_SECONDS
                )  # what the broker said before it closed is still to be read
                self.drop()
                raise self.lost() from error

    @property
    def is_behind(self) -> bool:
        """Whether the broker has not read all that was to be written."""
        return self._wire.is_behind

    def when_written(self, name: str, settle: Settle) -> None:
        """Have `settle` told once all is written; under a name that nobody else has, as for a receipt."""
        with self._state:
            error = self.lost() if self.is_behind and self._has_ended else None
            is_to_come = self.is_behind and not self._has_ended
            if is_to_come:
                self._waiting[WRITTEN + name] = settle
        if not is_to_come:
            settle(error)

    def request(self, data: bytes, receipts: Mapping[str, Settle]) -> None:
        """Write encoded frames that ask for receipts; each is told once, at the latest when the session ends.

        Who is told of a session that had ended before has UnsentError. So they wait only from their own turn to write.
        """
        with self.writing:
            with self._state:
                is_too_late = self._has_ended
                if not is_too_late:
                    self._waiting.update(receipts)
            if not is_too_late and data:
                with suppress(ConnectionLostError):  # those who wait were told when the session ended
                    self.write(data)
            if not is_too_late:
                return
        for settle in receipts.values():
            settle(self.lost(UnsentError))

    def forget(self, receipt: str) -> None:
        """Stop waiting for a receipt; when it comes it is dropped."""
        with self._state:
            self._waiting.pop(receipt, None)

    def ask(self, data: bytes, receipt: str, timeout: float) -> None:
        """Write encoded frames and wait for the receipt of one of them; see `begin_to_ask`."""
        self.begin_to_ask(data, receipt)(timeout)

    def begin_to_ask(self, data: bytes, receipt: str) -> Callable[[float], None]:
        """Write encoded frames, and return what waits for the receipt of one of them for so many seconds.

        It raises:
            SendFailedError: the broker answered with an ERROR.
            ConnectionLostError: the session ended before the answer.
            NoAnswerError: no answer in time.
        """
        answers: SimpleQueue[BrokerError | None] = SimpleQueue()
        self.request(data, {receipt: answers.put})
        return partial(self._wait_for, answers, receipt)

    def _wait_for(self, answers: SimpleQueue[BrokerError | None], receipt: str, timeout: float) -> None:
        try:
            error = answers.get(timeout=max(0.0, timeout))
        except Empty:
            self.forget(receipt)
            raise NoAnswerError(f"{self.login} did not answer within {timeout:.1f} s") from None
        if error is not None:
            raise error

    def route(self, subscription: str, route: SubscriptionRoute) -> None:
        """Hand on what arrives for a subscription."""
        self._routes[subscription] = route

    def unroute(self, subscription: str) -> None:
        """Drop what still arrives for a subscription: the broker delivers it again."""
        self._routes.pop(subscription, None)

    def routes_to(self, address: str) -> int:
        """Count the subscriptions to an address."""
        return sum(each.address == address for each in list(self._routes.values()))

    @property
    def read_at(self) -> float | None:
        """When what is handed on was read, in seconds since 1970, where it may be late for that."""
        return self._wire.read_at

    def close(self, until: float, farewell: Callable[[], bytes]) -> None:
        """Write `farewell()`, take leave, end the session and its thread before the monotonic clock shows `until`."""
        if self.is_up and self.writing.acquire(timeout=max(0.0, until - monotonic())):
            gone = Event()
            try:
                data = farewell() + LEAVE[self.dialect.confirms_leave]
                self.request(data, {"leave": lambda _: gone.set()})
            finally:
                self.writing.release()
            gone.wait(max(0.0, until - monotonic()))
            # Then the broker closes the socket; were it closed here first, the broker might log that as a failure.
            self._wire.join(min(until, monotonic() + BROKER_CLOSE_SECONDS))
        if self.is_up:
            self.drop()
        self._wire.join(max(until, monotonic() + BROKER_CLOSE_SECONDS))

    def drop(self) -> None:
        """End at once, waiting for nothing. Everybody who waits is told."""
        self._wire.drop()
        self._end()

    def lost(self, kind: type[ConnectionLostError] = ConnectionLostError) -> ConnectionLostError:
        """Make the error that says that the session has ended, with what the broker complained of before."""
        return kind(f"the connection to {self.login} was lost{self._complaint}")

    def _end(self) -> None:
        with self._state:
            if self._has_ended:
                return
            self._has_ended = True
            waiting, self._waiting = self._waiting, {}
            if monotonic() > self._complained + LAST_WORDS_SECONDS:
                self._complaint = ""
        self._routes.clear()
        cause = self._wire.failure
        closed = ConnectionFailedError(f"{self.login} closed the connection at login")
        self._greeting.put(closed if cause is None else self.login.explain(cause))
        for settle in waiting.values():
            settle(self.lost())
        self._on_end(self)

    # What stomp.py calls, on its reading thread.

    def on_connected(self, frame: Any) -> None:
        """Pass the broker's greeting to `open`, and begin to give signs of life."""
        self._wire.beat(*heartbeats(self.login.heartbeat / 1000, frame.headers.get("heart-beat", "")))
        self._greeting.put(frame.headers)

    def on_message(self, frame: Any) -> None:
        """Pass a message to its subscription; one that has ended gets none."""
        route = self._routes.get(frame.headers.get("subscription"))
        if route is not None and not frame.refusal:
            route.receive(frame.headers, frame.body)
        elif route is not None and route.refuse is not None:
            route.refuse(frame.headers, frame.size, frame.refusal)

    def on_receipt(self, frame: Any) -> None:
        """Tell who waits for the receipt."""
        self._settle(frame.headers.get("receipt-id"), None)

    def on_written(self) -> None:
        """Tell who waits for that."""
        with self._state:
            told = [each for each in self._waiting if each.startswith(WRITTEN)]
        for each in told:
            self._settle(each, None)

    def on_error(self, frame: Any) -> None:
        """Tell who waits for the receipt of the frame that was refused; log it if nobody does."""
        error = refusal(frame.headers, frame.body, self.dialect)
        if not self.server:
            self._greeting.put(LoginRefusedError(f"{self.login}: {error}"))
        elif self.dialect.ended is not None and (ended := self.dialect.ended.match(text_of(frame.body))) is not None:
            self._doubt(ended, f"{error}")
        elif not self._settle(frame.headers.get("receipt-id") or self._refused_subscribe(), error):
            if (
                monotonic() > self._complained + LAST_WORDS_SECONDS
            ):  # the first says why; the rest of the frame makes others
                self._complaint, self._complained = f": {error}", monotonic()
            log.warning("%s: a frame that asked for no receipt failed: %s", self.login, error)

    def on_disconnected(self) -> None:
        """Take note that the socket is closed, by whichever side."""
        self._end()

    def _doubt(self, ended: re.Match[str], why: str) -> None:
        """Tell whose subscription the broker may have ended: all of the address, as it does not say which of them."""
        known = {ended["address"], f"{ended['address']}::{ended['queue']}"}
        found = [each for each in list(self._routes.values()) if each.address in known]
        log.debug("%s: %d subscriptions may have ended: %s", self.login, len(found), why)
        for each in found:
            each.doubt(f"the queue {ended['queue']} was deleted, or its consumer disconnected")

    def _refused_subscribe(self) -> str | None:
        """Guess what an ERROR that does not say it is about: the oldest SUBSCRIBE, as they are answered in order."""
        if self.dialect.subscribe_error_has_receipt:
            return None
        with self._state:
            return next((receipt for receipt in self._waiting if receipt.startswith(SUBSCRIBE)), None)

    def _settle(self, receipt: str | None, error: BrokerError | None) -> bool:
        with self._state:
            settle = self._waiting.pop(receipt, None) if receipt is not None else None
        if settle is not None:
            settle(error)
        return settle is not None


def heartbeats(ours: float, theirs: str) -> tuple[float, float]:
    """Return after how many seconds to give a sign of life, and after what silence the broker is gone; 0 for never.

    Args:
        ours: seconds in which we promised a sign of life; asked was for one in `ours / BEATS_PER_PROMISE`.
        theirs: the header `heart-beat` of CONNECTED: what the broker can promise, and what it asks for, in
            milliseconds. One that cannot be read counts as absent: then nothing was agreed.

    Spec: STOMP 1.2, heart-beating.
    """
    promised, asked = (int(number) / 1000 for number in theirs.split(",")) if BEATS.fullmatch(theirs) else (0.0, 0.0)
    send_every = max(ours, asked) / BEATS_PER_PROMISE if ours and asked else 0.0
    silence = max(ours / BEATS_PER_PROMISE, promised) * MAX_SILENT_INTERVALS if ours and promised else 0.0
    return send_every, silence
