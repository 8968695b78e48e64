"""One STOMP session: login, sending and receiving frames, and callbacks for receipts.

The socket is in `brokers.stomp.socket`. Messages and consumers do not belong here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import Event, Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

from brokers import events
from brokers.adapter.probe import wait_or_ask
from brokers.adapter.wrong_port import perhaps
from brokers.arguments import end_of
from brokers.errors import (
    BrokerError,
    ConnectionFailedError,
    ConnectionLostError,
    LoginRefusedError,
    NoAnswerError,
    NotSentError,
    UnsentError,
)
from brokers.stomp.codec import Frames, pack
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, StompDialect, dialect_of
from brokers.stomp.frames import acknowledgement, refusal, text_of
from brokers.stomp.socket import Wire
from brokers.stomp.url import StompLogin
from brokers.threads.pool import Crew
from brokers.threads.timer import left

Settle: TypeAlias = Callable[[BrokerError | None], None]
"""Called once, by the reading thread: with None when the receipt came, otherwise with the error. It must not block."""

Receive: TypeAlias = Callable[[Mapping[str, str], bytes], None]
"""Called with headers and body of a MESSAGE, by the reading thread. It must not block."""

Refuse: TypeAlias = Callable[[Mapping[str, str], int, str], None]
"""Called with the headers of a skipped MESSAGE, the size of its body in octets, and the reason. It must not block."""


class SubscriptionRoute(NamedTuple):
    """The callbacks of a subscription; the reading thread calls them, so they must not block.

    Attributes:
        address: address of its destination in SUBSCRIBE.
        receive: called with its messages.
        doubt: called with the reason if the broker may have ended it, or another one of the same address.
        refuse: called for messages above the limit; None to ignore them.
    """

    address: str
    receive: Receive
    doubt: Callable[[str], None]
    refuse: Refuse | None = None


BEATS_PER_PROMISE: Final = 2
"""Number of heart-beats that we send in the interval promised to the broker: brokers differ in their patience."""

MAX_SILENT_INTERVALS: Final = 3
"""Number of promised intervals without a heart-beat after which a broker counts as gone.

ActiveMQ checks once per interval whether it has written anything, so it may be silent for nearly two.
"""

LAST_WORDS_SECONDS: Final = 2.0
"""Time within which the end of a session follows the ERROR with its reason, in seconds."""

SUBSCRIBE: Final = "subscribe"
"""Prefix of the receipts of SUBSCRIBE frames, because some brokers do not say which one they refuse."""

WRITTEN: Final = "written "
"""Prefix of the names of callers that wait for all data to be written, rather than for a receipt."""

BROKER_CLOSE_SECONDS: Final = 0.5
"""Time that the broker has to close the socket after it confirmed DISCONNECT, in seconds, so that it logs no error."""

BEATS: Final = re.compile(r"[0-9]{1,9},[0-9]{1,9}")

LEAVE: Final = {
    True: pack("DISCONNECT", {"receipt": "leave"}),
    False: pack("BEGIN", {"transaction": "leave", "receipt": "leave"}) + pack("DISCONNECT", {}),
}
"""Frames that end a session, with a receipt for everything before, by `StompDialect.confirms_leave`."""


class UnansweredError(ConnectionFailedError):
    """The broker accepted the connection, but did not answer the login in time."""


class StompSession:
    """One session with one broker, from `open` until it ends; it is never opened again.

    Args:
        login: address and login of the broker.
        on_end: called once when the session has ended, by the thread that notices; it must not block.

    Attributes:
        writing: held while frames are written. To check a state and write in one step, hold it around both.
        login: address and login of the broker.
        server: name and version of the broker.
        session: the broker's name of this session; empty if it does not tell.
        is_up: whether the session has not ended.
        dialect: dialect of the broker.
        roll: the `Roll` of its subscriptions, or None; used with `writing` held.
        strangers: hashes of prefixes of ids that no ACK can name although they look like the broker's own.
    """

    def __init__(self, login: StompLogin, on_end: Callable[[StompSession], None]) -> None:
        self.server = ""
        self.session = ""
        self.dialect: StompDialect = ACTIVEMQ_CLASSIC
        self.roll: Any = None
        self.strangers: set[int] = set()
        self.login = login
        self._on_end = on_end
        self._state = Lock()
        self.is_up = True
        self._waiting: dict[str, Settle] = {}
        self._routes: dict[str, SubscriptionRoute] = {}
        self._latest: Mapping[str, str] = {}  # headers of the latest message
        self._complaint = ""
        self._complained = -LAST_WORDS_SECONDS
        self._greeting: SimpleQueue[Mapping[str, str] | BrokerError] = SimpleQueue()
        self._wire = Wire(login, self)
        self.writing = self._wire.writing

    def __str__(self) -> str:
        return f"{self.login}"

    def open(self, timeout: float, patience: float = inf) -> None:
        """Connect and log in within `timeout` seconds; the broker has `patience` seconds to answer the login.

        Raises:
            UnansweredError: the broker did not answer the login in time.
            ConnectionFailedError: no broker answered, it refused the login, or no dialect is known for it.
            UsageError: the login cannot be encoded in a frame.
        """
        try:
            self._log_in(timeout, patience)
        except OSError as error:
            self._abandon()
            raise self._wire.stranger or self.login.explain(self._wire.failure or error) from error
        except BaseException:
            self._abandon()
            raise

    def _log_in(self, timeout: float, patience: float) -> None:
        until = monotonic() + timeout
        # We promise fewer heart-beats than we send, and ask for more than we need.
        beats = {"heart-beat": f"{self.login.heartbeat},{self.login.heartbeat // BEATS_PER_PROMISE}"}
        # All versions leave the headers of CONNECT unescaped, as 1.0 does.
        hello = pack("CONNECT", self.login.headers() | beats, version="1.0")
        self._wire.open(timeout)
        self._wire.send(hello)
        try:
            until = min(until, monotonic() + patience)
            answer = wait_or_ask(
                lambda seconds: self._greeting.get(timeout=seconds), self.login, until, self._is_silent
            )
        except Empty:
            seconds = min(patience, timeout)
            raise UnansweredError(f"{self.login} did not answer within {seconds:.1f} s{perhaps(self.login)}") from None
        if isinstance(answer, BrokerError):
            raise answer
        self.dialect = self.login.dialect or dialect_of(answer.get("server", ""))
        self.server = answer.get("server", self.dialect.name)
        self.session = answer.get("session", "")

    def _is_silent(self) -> bool:
        return self.login.tls is None and self._wire.is_silent

    def _abandon(self) -> None:
        self.drop()
        self._wire.join(monotonic() + BROKER_CLOSE_SECONDS)

    def lead(self, crew: Crew) -> None:
        """Let the reading thread run quick tasks of a crew too; see `Wire.lead`."""
        self._wire.lead(crew)

    def after_arrivals(self, task: Callable[[], None]) -> None:
        """Run a task after the frames of the current arrival; see `Wire.after_arrivals`."""
        self._wire.after_arrivals(task)

    def be_lazy(self) -> None:
        """Collect arriving data before it is handled, from now on."""
        self._wire.is_lazy = True

    def await_room(self, timeout: float | None) -> None:
        """Wait until the broker has read the pending data. `writing` is held, exactly once by this thread.

        Raises:
            NotSentError: it did not within `timeout` seconds; None to wait without limit.
            ConnectionLostError: the session has ended.
        """
        if self.is_behind:
            try:
                self._wire.await_room(end_of(timeout))
            except TimeoutError as error:
                raise NotSentError(f"not sent to {self.login} within {timeout:.1f} s: {error}") from None
            if not self.is_up:
                raise self.lost()

    def write(self, data: Frames) -> None:
        """Write encoded frames one after the other, now or when the broker has read the pending data. Never waits.

        Raises:
            UnsentError: the session has ended; nothing was written.
            ConnectionLostError: this ended the session.
        """
        with self.writing:
            if not self.is_up:
                raise self.lost(UnsentError)
            error = self._send(data)
            if error is not None:
                raise self.lost() from error

    def _send(self, data: Frames) -> OSError | None:
        """Write encoded frames, with `writing` held; if that ends the session, return why."""
        try:
            self._wire.send(data)
        except OSError as error:
            self._wire.join(monotonic() + BROKER_CLOSE_SECONDS)  # so that the last frames of the broker are still read
            self.drop()
            return error
        return None

    @property
    def is_behind(self) -> bool:
        """Whether data waits for the broker to read."""
        return self._wire.is_behind

    def when_written(self, name: str, settle: Settle) -> None:
        """Call `settle` once all data is written; `name` must be unique, like a receipt."""
        with self._state:
            error = self.lost() if self.is_behind and not self.is_up else None
            is_to_come = self.is_behind and self.is_up
            if is_to_come:
                self._waiting[WRITTEN + name] = settle
        if not is_to_come:
            settle(error)

    def request(self, data: Frames, receipts: Mapping[str, Settle]) -> None:
        """Write encoded frames that ask for receipts; each callback is called once, at the latest at the session's end.

        If the session had ended before, the callbacks get UnsentError, so they wait only once their frames are written.
        """
        with self.writing:
            if receipts:
                with self._state:
                    is_in_time = self.is_up
                    if is_in_time:
                        self._waiting.update(receipts)
            else:
                is_in_time = self.is_up
            if is_in_time:
                if data:
                    self._send(data)
                return
        for settle in receipts.values():
            settle(self.lost(UnsentError))

    def confirm(self, data: Frames, receipt: str, settle: Settle, crew: Crew | None = None) -> None:
        """Write encoded frames that ask for one receipt; the callback is called once, as for `request`.

        Args:
            data: the frames.
            receipt: the receipt.
            settle: the callback.
            crew: if it is given, the frames may be kept until the calling thread waits for something; see `Crew.leave`.

        Raises:
            UnsentError: the session had ended before; nothing was written, and the callback is not called.
        """
        with self.writing:
            with self._state:
                if not self.is_up:
                    raise self.lost(UnsentError)
                self._waiting[receipt] = settle
            if crew is None or not isinstance(data, bytes) or not self._wire.keep(data, crew):
                self._send(data)

    def forget(self, receipt: str) -> None:
        """Stop waiting for a receipt; when it comes it is dropped."""
        with self._state:
            self._waiting.pop(receipt, None)

    def ask(self, data: bytes, receipt: str, timeout: float) -> None:
        """Write encoded frames and wait for the receipt of one of them; see `begin_to_ask`."""
        self.begin_to_ask(data, receipt)(timeout)

    def begin_to_ask(self, data: bytes, receipt: str) -> Callable[[float], None]:
        """Write encoded frames, and return a function that waits for the receipt of one of them, for some seconds.

        It raises:
            SendFailedError: the broker answered with an ERROR.
            ConnectionLostError: the session ended before the answer.
            NoAnswerError: there was no answer in time.
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
        """Register the callbacks of a subscription."""
        self._routes[subscription] = route

    def unroute(self, subscription: str) -> None:
        """Drop messages that still arrive for a subscription: the broker delivers them again."""
        self._routes.pop(subscription, None)

    def routes_to(self, address: str) -> int:
        """Return the number of subscriptions to an address."""
        return sum(each.address == address for each in list(self._routes.values()))

    @property
    def read_at(self) -> float | None:
        """When the current frame was read, in seconds since 1970, if frames may be handled late; otherwise None."""
        return self._wire.read_at

    def close(self, until: float, farewell: Callable[[], bytes]) -> None:
        """Write `farewell()`, disconnect, end the session and its thread before the monotonic clock shows `until`."""
        if self.is_up and self.writing.acquire(timeout=left(until)):
            gone = Event()
            try:
                data = farewell() + LEAVE[self.dialect.confirms_leave]
                self.request(data, {"leave": lambda _: gone.set()})
            finally:
                self.writing.release()
            gone.wait(left(until))
            # The broker closes the socket now; if we closed it first, the broker might log a failure.
            self._wire.join(min(until, monotonic() + BROKER_CLOSE_SECONDS))
        if self.is_up:
            self.drop()
        self._wire.join(max(until, monotonic() + BROKER_CLOSE_SECONDS))

    def drop(self) -> None:
        """End at once, without waiting. All callbacks are called."""
        self._wire.drop()
        self._end()

    def lost(self, kind: type[ConnectionLostError] = ConnectionLostError) -> ConnectionLostError:
        """Return the error that says that the session has ended, with the broker's last ERROR."""
        return kind(f"the connection to {self.login} was lost{self._complaint}")

    def _end(self) -> None:
        with self._state:
            if not self.is_up:
                return
            self.is_up = False
            waiting, self._waiting = self._waiting, {}
            if monotonic() > self._complained + LAST_WORDS_SECONDS:
                self._complaint = ""
        self._routes.clear()
        self._greeting.put(self._why_failed())
        for settle in waiting.values():
            settle(self.lost())
        self._on_end(self)

    def _why_failed(self) -> ConnectionFailedError:
        """Return the reason why the session ended before the greeting of the broker."""
        if self._wire.stranger is not None:
            return self._wire.stranger
        if self._wire.failure is not None:
            return self.login.explain(self._wire.failure)
        return ConnectionFailedError(f"{self.login} closed the connection at login{perhaps(self.login)}")

    # Called on the reading thread, by the wire or by stomp.py.

    def on_connected(self, frame: Any) -> None:
        """Pass the broker's greeting to `open`, and begin to send heart-beats."""
        self._wire.beat(*heartbeats(self.login.heartbeat / 1000, frame.headers.get("heart-beat", "")))
        self._greeting.put(frame.headers)

    def on_message(self, frame: Any) -> None:
        """Pass a message to its subscription, unless that has ended."""
        route = self._routes.get(frame.headers.get("subscription"))
        if route is None:
            return
        self._latest = frame.headers
        if not frame.refusal:
            route.receive(frame.headers, frame.body)
        elif route.refuse is not None:
            route.refuse(frame.headers, frame.size, frame.refusal)

    def on_no_frame(self) -> None:
        """Log which message the octets may belong to that are no frame, and move it away if it came before.

        ActiveMQ Classic writes a TextMessage as it is, so that a NUL in it ends the frame early. The session ends then,
        and the message comes again, which would go on forever.
        """
        headers = self._latest
        if not headers or "content-length" in headers:
            return
        came_before = headers.get("redelivered") == "true"
        is_moved = came_before and self.dialect.nack_is_dead_letter and self.dialect.is_own_id(headers)
        if is_moved:
            self.request(pack("NACK", acknowledgement(headers, self.dialect)), {})
        then = "becomes a dead letter" if is_moved else "comes again"
        events.STOMP_TEXT_CUT.log(self.login, headers.get("message-id"), then)

    def on_receipt(self, receipt: str | None) -> None:
        """Call the callback of a receipt."""
        with self._state:
            settle = None if receipt is None else self._waiting.pop(receipt, None)
        if settle is not None:
            settle(None)

    def on_written(self) -> None:
        """Call the callbacks that wait for all data to be written."""
        with self._state:
            told = [each for each in self._waiting if each.startswith(WRITTEN)]
        for each in told:
            self._settle(each, None)

    def on_error(self, frame: Any) -> None:
        """Call the callback of the refused frame with the error; log it if there is none."""
        error = refusal(frame.headers, frame.body, self.dialect)
        if not self.server:
            self._greeting.put(LoginRefusedError(f"{self.login}: {error}"))
        elif self.dialect.ended is not None and (ended := self.dialect.ended.match(text_of(frame.body))) is not None:
            self._doubt(ended, f"{error}")
        elif not self._settle(frame.headers.get("receipt-id") or self._refused_subscribe(), error):
            if (
                monotonic() > self._complained + LAST_WORDS_SECONDS
            ):  # the first has the reason; the rest of the refused frame causes others
                self._complaint, self._complained = f": {error}", monotonic()
            events.STOMP_FRAME_REFUSED.log(self.login, error)

    def on_disconnected(self) -> None:
        """Record that the socket was closed, by either side."""
        self._end()

    def _doubt(self, ended: re.Match[str], why: str) -> None:
        """Inform all subscriptions of an address that one may have ended: the broker does not say which."""
        known = {ended["address"], f"{ended['address']}::{ended['queue']}"}
        found = [each for each in list(self._routes.values()) if each.address in known]
        events.STOMP_SUBSCRIPTIONS_DOUBTED.log(self.login, len(found), why)
        for each in found:
            each.doubt(f"the queue {ended['queue']} was deleted, or its consumer disconnected")

    def _refused_subscribe(self) -> str | None:
        """Guess the receipt of an ERROR without one: the oldest SUBSCRIBE, because they are answered in order."""
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
    """Return the interval of our heart-beats, and the silence after which the broker is gone, in seconds; 0 for never.

    Args:
        ours: interval that we promised, in seconds; we asked for heart-beats every `ours / BEATS_PER_PROMISE`.
        theirs: the header `heart-beat` of CONNECTED: the intervals that the broker promises and requests, in
            milliseconds. If it is invalid, it counts as absent, and nothing was agreed.

    Spec: STOMP 1.2, heart-beating.
    """
    promised, asked = (int(number) / 1000 for number in theirs.split(",")) if BEATS.fullmatch(theirs) else (0.0, 0.0)
    send_every = max(ours, asked) / BEATS_PER_PROMISE if ours and asked else 0.0
    silence = max(ours / BEATS_PER_PROMISE, promised) * MAX_SILENT_INTERVALS if ours and promised else 0.0
    return send_every, silence
