"""Sending links: one to the anonymous terminus if the broker has it, otherwise one for each destination.

Every outcome is matched with its send: a rejection by its delivery, a detached link by the tag that its error names.
Messages that wait for credit, or for the broker to read, wait here; if too many wait, senders wait too.

Spec: AMQP 1.0 part 2, section 2.6; anonymous terminus 2.2 and 2.3 (AT-05, AT-17 to AT-19).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from threading import Condition as Signal
from typing import Final, TypeAlias

from proton import Condition, Data, Receiver, Sender, Terminus, symbol

from brokers.amqp.dialect import CAPABILITIES, AmqpDialect, node_kind, spell
from brokers.amqp.engine import AmqpEngine, AmqpLink
from brokers.amqp.outcomes import failing_tag, failure_of, final_outcome, refusal, says_refused
from brokers.amqp.transfers import (
    Transfer,
    begin,
    credit_of,
    drained,
    drop_unsent,
    max_message_of,
    pass_on,
    send,
    settle,
    settle_accepted,
    was_accepted,
    wrapped,
)
from brokers.errors import BrokerError, ConnectionLostError, NotSentError, SendFailedError, UnsentError
from brokers.message import Destination
from brokers.threads.timer import left

Settle: TypeAlias = Callable[[BrokerError | None], None]
"""Called once: with None if the broker accepted the message, otherwise with the error. The reading thread calls it, so
it must not block."""

OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
"""All outcomes of a message: a peer may report only those that are listed. Spec: anonymous terminus 2.2.2."""

MAX_WAITING_MESSAGES: Final = 1000
"""Number of messages that may wait for credit on one link before senders have to wait."""

NOT_SENT: Final = "the broker did not read, or gave no credit, in time, so the message was not sent"

PIECE_OCTETS: Final = 1 << 18
"""Maximum number of octets of a message that are passed to proton at once; it keeps them until they are written."""

MAX_LINKS: Final = 100
"""Maximum number of idle links to destinations; beyond it, the least recently used one is closed."""


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """One message to be sent.

    Attributes:
        octets: the whole AMQP message.
        settle: called with the outcome.
        transaction: the id of the transaction that it belongs to.
        tag: the delivery tag, once it was sent.
        when_sent: called once it is written or never will be; with the lock held.
    """

    octets: bytes
    settle: Settle
    transaction: bytes | None = None
    when_sent: Callable[[], None] | None = None
    tag: bytes = b""

    def note_sent(self) -> None:
        """Record that the message was passed to proton, or failed before that."""
        when_sent, self.when_sent = self.when_sent, None
        if when_sent is not None:
            when_sent()


class Outbox(AmqpLink):
    """One sending link, attached when there is a message to send, and again after it was detached.

    Args:
        engine: the connection.
        target: the destination; None for the anonymous terminus.
        tags: numbers for delivery tags, unique within the connection, so that an error can name one.
    """

    def __init__(self, engine: AmqpEngine, target: Destination | None, dialect: AmqpDialect, tags: count[int]) -> None:
        self._engine = engine
        self._target = target
        self._dialect = dialect
        self._tags = tags
        self._link: Sender | None = None
        self._is_open = False
        self._has_sent = False
        self._max_message = 0  # octets that the broker takes; 0 if it did not say
        self._max_quick = PIECE_OCTETS  # octets of a message that is sent without looking further
        self._credit = 0  # as the broker last gave it, without the messages sent since
        self._waiting: deque[OutgoingMessage] = deque()
        self._unsettled: dict[Transfer, OutgoingMessage] = {}
        self._current: OutgoingMessage | None = None  # the message of which proton has only a part yet
        self._rest = memoryview(b"")  # the octets of that message which follow
        self._room = Signal(engine.lock)

    @property
    def is_idle(self) -> bool:
        """Whether no message waits or is unsettled."""
        return not self._waiting and not self._unsettled

    def post(self, posting: OutgoingMessage, *, until: float | None = None, wait: bool = True) -> bool:
        """Send a message, or queue it for credit; return whether it cannot be withdrawn any more.

        With the engine's lock held.

        Args:
            posting: the message.
            until: time of the monotonic clock until which to wait for room in the queue; None for the reading thread,
                which makes room itself: the message is queued even if the queue is full.
            wait: False for a caller that must not wait.

        Raises:
            NotSentError: there was no room, or not in time.
        """
        if self._is_open and not (self._waiting or self._rest or len(posting.octets) > self._max_quick):
            link = self._link
            if link is not None and self._credit > 0 and self._engine.is_up and not self._engine.is_behind:
                self._unsettled[send(link, self._tagged(posting), posting.octets, posting.transaction)] = posting
                if posting.when_sent is not None:
                    posting.note_sent()
                return True
        while until is not None and len(self._waiting) >= MAX_WAITING_MESSAGES and self._engine.is_up:
            rest = left(until)
            if not wait or not rest or not self._room.wait(None if rest == inf else rest):
                raise NotSentError(f"{NOT_SENT}, nor were {MAX_WAITING_MESSAGES} before it")
        if not self._engine.is_up:
            raise self._engine.lost()
        if self._link is None:
            self._attach()
        self._waiting.append(posting)
        self._send_waiting()
        return not self._waiting or self._waiting[-1] is not posting

    def withdraw(self, posting: OutgoingMessage) -> bool:
        """Remove a waiting message; return False if it was sent already. With the engine's lock held."""
        if posting not in self._waiting:
            return False
        self._waiting.remove(posting)
        posting.note_sent()
        self._room.notify_all()
        return True

    def give_up(self, posting: OutgoingMessage) -> None:
        """Remove a message if it still waits, and settle it with NotSentError."""
        with self._engine.lock:
            is_withdrawn = self.withdraw(posting)
        if is_withdrawn:
            posting.settle(NotSentError(NOT_SENT))

    @property
    def is_held_up(self) -> bool:
        """Whether the broker has to read, or open its window, before more is sent or the credit is returned."""
        return self._engine.is_behind or self._must_drain_later

    @property
    def _must_drain_later(self) -> bool:
        """Whether the broker wants the credit back while messages wait for its window: proton would not tell it."""
        link = self._link
        return link is not None and self._is_done and link.drain_mode and link.queued > 0

    @property
    def _is_done(self) -> bool:
        """Whether proton has all messages."""
        return not self._waiting and self._current is None

    def go_on(self) -> None:
        """Send the messages that waited for the broker to read, or return the credit."""
        self._send_waiting()

    def close(self) -> None:
        """Close the link. With the engine's lock held."""
        if self._link is not None:
            self._link.close()

    def _attach(self) -> None:
        address = "" if self._target is None else spell(self._target, self._dialect)
        link = self._engine.look_after(self._engine.session.sender(self._engine.new_name()), self)
        put_symbols(link.source.outcomes, *OUTCOMES)
        if self._target is not None:
            link.target.address = address
            put_symbols(link.target.capabilities, CAPABILITIES[node_kind(self._target, self._dialect)])
        link.open()
        self._link, self._is_open, self._has_sent, self._credit = link, False, False, 0

    def _send_waiting(self) -> None:
        link, was_full = self._link, len(self._waiting) >= MAX_WAITING_MESSAGES
        while link is not None and self._is_open and (self._rest or (self._waiting and self._credit > 0)):
            if self.is_held_up:
                self._engine.wait(self)
                break
            if not self._rest:
                posting = self._waiting.popleft()
                if 0 < self._max_message < len(posting.octets):
                    self._refuse(posting)
                    continue
                self._begin(link, posting)
            piece, self._rest = bytes(self._rest[:PIECE_OCTETS]), self._rest[PIECE_OCTETS:]
            pass_on(link, piece, is_last=not self._rest)
            if not self._rest:
                self._note_current_sent()
        if self._must_drain_later:
            self._engine.wait(self)
        elif link is not None and self._is_done:
            self._credit -= drained(link)
        if was_full:
            self._room.notify_all()

    def _refuse(self, posting: OutgoingMessage) -> None:
        """Settle a message that the broker would detach the link for, which would make others unknown."""
        why = f"the broker takes messages of {self._max_message} octets here, and this one has {len(posting.octets)}"
        self._engine.later(partial(posting.settle, SendFailedError(why)))
        posting.note_sent()

    def _begin(self, link: Sender, posting: OutgoingMessage) -> None:
        """Begin a delivery, whose octets follow."""
        self._unsettled[begin(link, self._tagged(posting), posting.transaction)] = posting
        self._current, self._rest = posting, memoryview(posting.octets)

    def _tagged(self, posting: OutgoingMessage) -> bytes:
        """Give a message that is about to be sent its tag, and return it."""
        self._credit -= 1
        self._engine.note_sent(len(posting.octets))
        self._has_sent = True
        posting.tag = tag = b"%d" % next(self._tags)
        return tag

    def _note_current_sent(self) -> None:
        """Record that the current message, if there is one, is sent or never will be."""
        current, self._current, self._rest = self._current, None, memoryview(b"")
        if current is not None:
            current.note_sent()

    # Called by the engine, with its lock held

    def opened(self, link: Sender | Receiver) -> None:
        """Begin to send, unless the link was refused; then `closed` follows."""
        self._credit, self._max_message = credit_of(link), max_message_of(link)
        self._max_quick = min(PIECE_OCTETS, self._max_message or PIECE_OCTETS)
        self._is_open = link.remote_target.type != Terminus.UNSPECIFIED
        self._send_waiting()

    def flowed(self) -> None:
        """Send waiting messages."""
        if self._link is not None:
            self._credit = credit_of(self._link) - (self._current is not None)  # its credit is taken at its end
            self._send_waiting()

    def delivered(self, transfer: Transfer) -> None:
        """Settle one message with its outcome."""
        posting = self._unsettled.get(transfer)
        if posting is None:
            self._engine.require_no_message()
            return
        if posting.transaction is None and settle_accepted(transfer):
            del self._unsettled[transfer]
            self._engine.later(partial(posting.settle, None))
            return
        error = None
        if not was_accepted(transfer, posting.transaction):
            outcome = final_outcome(wrapped(transfer))
            if outcome is None:
                return
            error = failure_of(outcome, posting.transaction)
        del self._unsettled[transfer]
        settle(transfer)
        self._engine.later(partial(posting.settle, error))

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """Settle the messages that were sent, and attach again for those that wait."""
        unsettled, self._unsettled = self._unsettled, {}
        self._link, self._is_open = None, False
        self._note_current_sent()
        culprit = failing_tag(condition)
        has_culprit = any(each.tag == culprit for each in unsettled.values())
        for transfer, posting in unsettled.items():
            drop_unsent(transfer)
            error: BrokerError = refusal(condition, "the broker detached the link")
            if has_culprit and posting.tag != culprit:
                kind = ConnectionLostError if posting.transaction is None else SendFailedError
                error = kind("the link was detached for another message; whether this one was accepted is not known")
            elif isinstance(error, SendFailedError) and posting.tag != culprit:
                error.is_known = len(unsettled) == 1 and says_refused(condition)
            self._engine.later(partial(posting.settle, error))
        if self._waiting and self._has_sent:
            self._attach()
            return
        self._fail_waiting(refusal(condition, "the broker refused the link"))

    def lost(self, error: BrokerError) -> None:
        """Settle all messages with the loss of the connection."""
        with self._engine.lock:
            written, unwritten = list(self._unsettled.values()), list(self._waiting)
            self._unsettled.clear()
            self._waiting.clear()
            self._note_current_sent()
            self._link = None
            self._room.notify_all()
        for posting in written:
            posting.settle(error)
        for posting in unwritten:
            posting.settle(UnsentError(f"{error}"))

    def _fail_waiting(self, error: BrokerError) -> None:
        waiting, self._waiting = list(self._waiting), deque()
        for posting in waiting:
            self._engine.later(partial(posting.settle, error))
            posting.note_sent()
        self._room.notify_all()


class Outboxes:
    """The sending links of a connection.

    Args:
        engine: the connection; if it offers the anonymous terminus, one link serves all destinations.
    """

    def __init__(self, engine: AmqpEngine, dialect: AmqpDialect) -> None:
        self._engine = engine
        self._dialect = dialect
        self._tags = count(1)
        self._relay = Outbox(engine, None, dialect, self._tags) if engine.offers_relay else None
        self._outboxes: OrderedDict[Destination, Outbox] = OrderedDict()

    def to(self, destination: Destination) -> Outbox:
        """Return the link to a destination. With the engine's lock held."""
        if self._relay is not None:
            return self._relay
        outbox = self._outboxes.pop(destination, None)
        if outbox is None:
            outbox = Outbox(self._engine, destination, self._dialect, self._tags)
            self._make_room()
        self._outboxes[destination] = outbox
        return outbox

    def _make_room(self) -> None:
        if len(self._outboxes) < MAX_LINKS:
            return
        oldest = next((key for key, outbox in self._outboxes.items() if outbox.is_idle), None)
        if oldest is not None:
            self._outboxes.pop(oldest).close()


def put_symbols(data: Data, *names: str) -> None:
    """Write an array of symbols into a field of a terminus."""
    data.put_array(False, Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(symbol(name))
    data.exit()
