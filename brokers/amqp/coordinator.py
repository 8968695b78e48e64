"""The link to the broker's transaction coordinator, which begins and ends transactions.

Spec: AMQP 1.0 part 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Any, Final, TypeAlias

from proton import Condition, Described, Receiver, Sender, Terminus, ulong

from brokers.amqp.engine import AmqpEngine, AmqpLink
from brokers.amqp.outcomes import LACKING, failure_of, final_outcome, refusal, text_of
from brokers.amqp.sections import AmqpSection, encode
from brokers.amqp.send import OUTCOMES, put_symbols
from brokers.amqp.transfers import Transfer, declared_transaction, send, settle, was_accepted, wrapped
from brokers.errors import BrokerError, SendFailedError, UnsupportedError

DECLARE: Final = 0x31
DISCHARGE: Final = 0x32
LOCAL: Final = "amqp:local-transactions"

FRESH_SECONDS: Final = 10.0
"""Time for which a transaction declared in advance is kept, in seconds; brokers end unused ones."""

MAX_OPEN_TRANSACTIONS: Final = 50
"""Maximum number of open transactions of one client; further ones wait, because brokers refuse too many."""

Tell: TypeAlias = Callable[[bytes | None, BrokerError | None], None]
"""Called with the coordinator's answer: the id of a transaction or None, and the error if it was refused."""


class Coordinator(AmqpLink):
    """The link to the broker's transaction coordinator.

    It is attached on first use, and again after it has ended; a broker without transactions refuses it.
    """

    def __init__(self, engine: AmqpEngine) -> None:
        self._engine = engine
        self._link: Sender | None = None
        self._is_open = False
        self._refusal: BrokerError | None = None
        self._tags = count(1)
        self._waiting: list[tuple[bytes, Tell]] = []
        self._asked: dict[Transfer, Tell] = {}
        self._spare: tuple[bytes, float] | None = None
        self._begun = 0  # transactions declared, or being declared, and not discharged
        self._patient: deque[Tell] = deque()

    def declare(self, tell: Tell) -> None:
        """Begin a transaction, and pass its id to `tell`, perhaps later. Both run with the engine's lock held."""
        spare, self._spare = self._spare, None
        if spare is not None and monotonic() - spare[1] < FRESH_SECONDS:
            tell(spare[0], None)
            return
        if spare is not None:
            self.discharge(spare[0], lambda _, __: None, fail=True)
        if self._begun < MAX_OPEN_TRANSACTIONS:
            self._declare(tell)
        else:
            self._patient.append(tell)

    def prepare(self) -> None:
        """Declare a transaction in advance, so that the next commit need not wait. With the engine's lock held."""
        if self._spare is None and self._begun < MAX_OPEN_TRANSACTIONS:
            self._declare(self._keep)

    def _declare(self, tell: Tell) -> None:
        def told(transaction: bytes | None, error: BrokerError | None) -> None:
            if transaction is None:
                self._one_ended()
            if isinstance(error, SendFailedError) and not error.is_known:
                error = None  # whatever the answer means, it declares no transaction
            tell(transaction, error)

        self._begun += 1
        self._ask(DECLARE, [None], told)

    def _one_ended(self) -> None:
        self._begun -= 1
        if self._patient and self._begun < MAX_OPEN_TRANSACTIONS:
            self._declare(self._patient.popleft())

    def _keep(self, transaction: bytes | None, error: BrokerError | None) -> None:
        if transaction is not None and self._patient:
            self._patient.popleft()(transaction, None)
        elif transaction is not None and self._spare is None:
            self._spare = transaction, monotonic()
        elif transaction is not None:
            self.discharge(transaction, lambda _, __: None, fail=True)

    def discharge(self, transaction: bytes, tell: Tell, *, fail: bool = False) -> None:
        """End a transaction, and call `tell` when that is done. With the engine's lock held."""

        def told(declared: bytes | None, error: BrokerError | None) -> None:
            if declared is not None:
                error = SendFailedError("the broker declared a transaction when asked to end one", is_known=False)
            tell(None, error)
            self._one_ended()

        self._ask(DISCHARGE, [transaction, fail], told)

    def _ask(self, command: int, fields: list[Any], tell: Tell) -> None:
        if self._refusal is not None:
            tell(None, self._refusal)
            return
        if self._link is None:
            self._attach()
        self._waiting.append((encode(AmqpSection.VALUE, Described(ulong(command), fields)), tell))
        self._send_waiting()

    def _attach(self) -> None:
        link = self._link = self._engine.look_after(self._engine.session.sender(self._engine.new_name()), self)
        put_symbols(link.source.outcomes, *OUTCOMES)
        link.target.type = Terminus.COORDINATOR
        put_symbols(link.target.capabilities, LOCAL)
        link.open()

    def _send_waiting(self) -> None:
        link = self._link
        while link is not None and self._is_open and self._waiting and link.credit > 0:
            octets, tell = self._waiting.pop(0)
            self._asked[send(link, b"t%d" % next(self._tags), octets)] = tell

    # Called by the engine, with its lock held

    def opened(self, link: Sender | Receiver) -> None:
        """Begin to send requests, unless the link was refused; then `closed` follows."""
        self._is_open = link.remote_target.type == Terminus.COORDINATOR
        self._send_waiting()

    def flowed(self) -> None:
        """Send the waiting requests."""
        self._send_waiting()

    def delivered(self, transfer: Transfer) -> None:
        """Pass on the coordinator's answer."""
        if transfer not in self._asked:
            self._engine.require_no_message()
        transaction, error = declared_transaction(transfer), None
        if transaction is None and not was_accepted(transfer, None):
            outcome = final_outcome(wrapped(transfer))
            if outcome is None:
                return
            error = failure_of(outcome)
        tell = self._asked.pop(transfer, None)
        settle(transfer)
        if tell is not None:
            tell(transaction, error)

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """Report the failure of all open transactions to the callers."""
        was_open, self._is_open, self._link = self._is_open, False, None
        self._begun -= self._spare is not None
        self._spare = None
        if was_open:
            error: BrokerError = refusal(condition, "the broker ended its transactions")
        elif condition is None or condition.name in LACKING:
            error = self._refusal = UnsupportedError(f"the broker has no transactions: {text_of(condition)}")
        else:  # it may have them later
            error = refusal(condition, "the broker refused to begin transactions")
        self._fail(error)

    def lost(self, error: BrokerError) -> None:
        """Report the loss of the connection to the callers."""
        self._link = None
        self._fail(error)

    def _fail(self, error: BrokerError) -> None:
        waiting, asked, patient = self._waiting, list(self._asked.values()), self._patient
        self._waiting, self._asked, self._patient = [], {}, deque()
        for tell in (*asked, *(each for _, each in waiting), *patient):
            tell(None, error)
