"""A request as middleware and a service's function get it, and the policy for requests that fail.

The policy says what becomes of a request whose function fails, and of one whose fate is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite
from typing import Any, Final, Self

from lxml import etree

from brokers.message import Message, Properties
from soapjms.protocol.assertions import Verdict
from soapjms.protocol.attachments import Attachments
from soapjms.protocol.envelope import Envelope, as_envelope
from soapjms.protocol.errors import UsageError
from soapjms.protocol.responding import RequestAccepted
from soapjms.protocol.wsa import Addressing
from soapjms.reply import Prepared
from soapjms.service.event_loop import refuse_in_a_loop
from soapjms.service.store.base import NO_STORE, Claim, NoStore

MAX_PAUSE_SECONDS: Final = 60.0
"""Seconds that a pause between two tries has at most."""


class FailureRule(StrEnum):
    """What follows when a function failed and is not tried again. A caller who waits gets the fault in either case."""

    FAULT = "fault"
    DEAD_LETTER = "dead-letter"


class UnfinishedRule(StrEnum):
    """What becomes of a request that somebody began, and died before it was finished."""

    RERUN = "rerun"
    FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What becomes of a request whose function fails, for a service or for one operation of it.

    A function fails when anything but a SoapFaultError leaves it, or when what it returned cannot be sent. A fault that
    it raises or returns is its answer, and is never tried again.

    Attributes:
        retries: how often it is tried again. With a store this counts over redeliveries and restarts, else within one
            delivery. The worker waits meanwhile; what it wrote through `request.transaction` is undone before.
        pause: seconds before the first of these; each is twice as long as the one before, and at most a minute.
        then: the fault alone (`fault`), or also the request to the dead letters (`dead-letter`). A one-way request
            becomes a dead letter with either: nobody would get the fault.
        unfinished: whether a request that was begun and never finished is run again (`rerun`) or answered with a fault
            (`fault`), a one-way request being a dead letter instead. Only a store knows of such.

    Raises:
        UsageError: a value is not as it must be.
    """

    retries: int = 0
    pause: float = 0.5
    then: FailureRule | str = FailureRule.FAULT
    unfinished: UnfinishedRule | str = UnfinishedRule.RERUN

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise UsageError(f"retries is {self.retries!r}; it is an integer, at least 0")
        if not isinstance(self.pause, int | float) or not isfinite(self.pause) or self.pause < 0:
            raise UsageError(f"pause is {self.pause!r}; it is a number of seconds, at least 0")
        for name, value, kind in (("then", self.then, FailureRule), ("unfinished", self.unfinished, UnfinishedRule)):
            if value not in list(kind):
                raise UsageError(f"{name} is {value!r}; it is one of: {', '.join(kind)}")

    def pause_after(self, tries: int) -> float:
        """Say how many seconds to wait after the nth try."""
        return min(MAX_PAUSE_SECONDS, self.pause * 2.0 ** min(tries - 1, 32))


DEFAULT: Final = Policy()


@dataclass(slots=True, eq=False)
class StoredAnswer:
    """The answer that a store has for a request: what `verify` and middleware lead to instead of the function.

    Attributes:
        answer: as middleware sees it.
        is_reached: all of them let the request pass.
    """

    answer: Prepared
    is_reached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as a function of a service gets it: the element in the SOAP body, and what came with it.

    Attributes:
        element: the first element of the SOAP body; the Body itself if it is empty.
        envelope: the SOAP envelope.
        message: the JMS message.
        soap_action: SOAPJMS_soapAction, None if it did not come.
        target_service: SOAPJMS_targetService, None if it did not come.
        one_way: nobody waits for a response; what the function returns is dropped.
        delivery_count: 1 for the first delivery; where the broker does not tell, how often the store saw the request
            begun; None without a store.
        redelivered: the request may have been worked on before.
        deadline: JMSExpiration in epoch milliseconds: after it nobody waits; None if the request never expires.
        attachments: the parts that came along.
        tolerated: the rules that the request breaks, and was let pass; each verdict names its assertion.
        addressing: its headers of WS-Addressing, if the service has `addressing`; None without.
        identity: who sent it, as the service's `verify` says; None if there is no `verify`.
        context: what middleware hands on to what comes after it, and to the function.
        understood: names of header blocks that were processed on the way here, in Clark notation.
        delivery: what is known of this delivery, for middleware that is to do something once, and not at each try.
        named: tells `key`.
        accepted: what the node made of it, which `notes` comes from.
        claim: the right to work on it, which `transaction` comes from.
        stored: the answer that the store has for it; None if the function is to run.
    """

    element: etree._Element
    envelope: Envelope
    message: Message
    soap_action: str | None
    target_service: str | None
    one_way: bool
    delivery_count: int | None = None
    redelivered: bool = False
    deadline: int | None
    attachments: Attachments
    tolerated: tuple[Verdict, ...]
    addressing: Addressing | None = None
    identity: Any = None
    context: dict[str, Any] = field(default_factory=dict, compare=False)
    understood: frozenset[str] = frozenset()
    delivery: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    named: Callable[[], bytes | None] = field(default=lambda: None, repr=False, compare=False)
    accepted: RequestAccepted = field(repr=False, compare=False)
    claim: Claim = field(repr=False, compare=False)
    stored: StoredAnswer | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, accepted: RequestAccepted, *, claim: Claim | None = None, **delivered: Any) -> Self:
        """Make it of what a node accepted, and of what its delivery adds: see the attributes, all of which may lack."""
        envelope, message, addressing = accepted.envelope, accepted.message, delivered.get("addressing")
        return cls(
            element=envelope.body if envelope.content is None else envelope.content,
            envelope=envelope,
            message=message,
            soap_action=accepted.soap_action,
            target_service=accepted.target_service,
            one_way=accepted.one_way,
            deadline=message.expiration or None,
            attachments=accepted.attachments,
            tolerated=accepted.tolerated,
            understood=frozenset() if addressing is None else addressing.understood,
            accepted=accepted,
            claim=claim or NoStore(NO_STORE).begin(),
            **delivered,
        )

    @property
    def is_as_it_came(self) -> bool:
        """Nobody changed on the way what says which operation it is for."""
        return (
            self.envelope is self.accepted.envelope
            and self.soap_action == self.accepted.soap_action
            and self.target_service == self.accepted.target_service
        )

    def with_envelope(self, root: etree._Element) -> Self:
        """Return the request with another envelope, such as one that was decrypted. What it is for may change, too.

        Raises:
            UsageError: `root` is no SOAP envelope.
        """
        try:
            envelope = as_envelope(root)
        except ValueError as error:
            raise UsageError(f"the request cannot go on with that: {error}") from None
        return replace(self, envelope=envelope, element=envelope.body if envelope.content is None else envelope.content)

    @property
    def key(self) -> bytes | None:
        """What names the request and is the same at each delivery of it; None if nothing does."""
        return self.named()

    @property
    def finished(self) -> bool:
        """It was finished before: who is let pass gets the answer that the store has, and the function does not run.

        Whoever verified it then took this very message, with the place where its answer goes: it may be old by now.
        """
        return self.stored is not None

    @property
    def copied(self) -> bool:
        """A request of the same name came before, to be answered elsewhere, or for somebody else: one is a copy."""
        return self.claim.copied

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """The habits of other stacks that the request shows, which break nothing: each a code and a text.

        Looked for when asked, and anew each time.
        """
        return self.accepted.notes

    @property
    def transaction(self) -> Any:
        """The transaction of the store's own database that is committed together with the request: happens once.

        With a `SqliteStore` it is a `sqlite3.Connection` to the store's file, for tables of the service's own. What is
        written is kept if the function returns, a fault too, and undone if it raises. From the first use until the
        function returns nobody else gets a transaction: use it late, and call no other service after that. A function
        that has it for longer than the store's `transaction_timeout` loses it, and failed.

        Raises:
            UsageError: there is no store, nothing tells this request from its redelivery, or the function is `async`.
            StoreError: the store cannot be written now.
        """
        refuse_in_a_loop("request.transaction")
        return self.claim.transaction

    @property
    def name(self) -> str:
        """The element's name in Clark notation: `{namespace}local`."""
        return str(self.element.tag)

    @property
    def properties(self) -> Properties:
        """The properties of the JMS message."""
        return self.message.properties

    def find(self, path: str) -> etree._Element | None:
        """Find an element below the request's; see lxml."""
        return self.element.find(path)

    def findtext(self, path: str, default: str | None = None) -> str | None:
        """Return the text of an element below the request's; see lxml."""
        return self.element.findtext(path, default)
