"""A request as middleware and a service's function get it, and the policy for requests that fail.

The policy says what becomes of a request whose function fails, and of one that was begun and never finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from lxml import etree

from brokers.arguments import not_negative
from brokers.message import Message, Properties
from soapjms.protocol.assertions import Verdict
from soapjms.protocol.attachments import Attachments
from soapjms.protocol.envelope import Envelope, as_envelope, body_value
from soapjms.protocol.errors import UsageError
from soapjms.protocol.responding import RequestAccepted
from soapjms.protocol.wsa import Addressing
from soapjms.reply import Prepared
from soapjms.service.store.base import ANY_CLAIM, Claim

if TYPE_CHECKING:
    from soapjms.service.event_loop import LoopTasks

MAX_PAUSE_SECONDS: Final = 60.0
"""Longest pause between two tries, in seconds."""


class FailureRule(StrEnum):
    """What follows when a function failed and is not tried again. A waiting caller gets the fault in either case."""

    FAULT = "fault"
    DEAD_LETTER = "dead-letter"


class UnfinishedRule(StrEnum):
    """What becomes of a request whose worker's process died before the request was finished."""

    RERUN = "rerun"
    FAULT = "fault"


FailureRuleName: TypeAlias = Literal["fault", "dead-letter"]
UnfinishedRuleName: TypeAlias = Literal["rerun", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What becomes of a request whose function fails, for a service or for one operation of it.

    A function fails if it raises anything but a SoapFaultError, or if its answer cannot be sent. A fault that it raises
    or returns is its answer; the function is not run again for it.

    Attributes:
        retries: how often the function is run again. With a store this counts over redeliveries and restarts, else
            within one delivery. The worker waits between two tries; each try's writes through `request.transaction`
            are undone before the next.
        pause: seconds before the first retry; each pause is twice as long as the one before, and at most a minute.
        then: send the fault alone (`fault`), or also move the request to the dead letters (`dead-letter`). A one-way
            request becomes a dead letter in either case, as nobody would get the fault.
        unfinished: run a request again that was begun and never finished (`rerun`), or answer it with a fault
            (`fault`); a one-way request becomes a dead letter then. Needs a store.

    Raises:
        UsageError: a value is not valid.
    """

    retries: int = 0
    pause: float = 0.5
    then: FailureRule | FailureRuleName = FailureRule.FAULT
    unfinished: UnfinishedRule | UnfinishedRuleName = UnfinishedRule.RERUN

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise UsageError(f"retries must be an integer, at least 0, got {self.retries!r}")
        not_negative(self.pause, "pause")
        for name, value, kind in (("then", self.then, FailureRule), ("unfinished", self.unfinished, UnfinishedRule)):
            if value not in list(kind):
                raise UsageError(f"{name} must be one of {', '.join(kind)}, got {value!r}")

    def pause_after(self, tries: int) -> float:
        """Return the seconds to wait after so many tries."""
        return min(MAX_PAUSE_SECONDS, self.pause * 2.0 ** min(tries - 1, 32))


DEFAULT: Final = Policy()


@dataclass(slots=True, eq=False)
class StoredAnswer:
    """The answer that a store has for a request; middleware gets it in place of the function's answer.

    Attributes:
        answer: the answer, as middleware sees it.
        is_reached: True once `verify` and all middleware let the request pass.
    """

    answer: Prepared
    is_reached: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Request:
    """A request as a function of a service gets it: the element in the SOAP body, its message and its context.

    Attributes:
        element: the first element of the SOAP body; the Body itself if it is empty.
        envelope: the SOAP envelope.
        message: the JMS message.
        soap_action: SOAPJMS_soapAction, or None.
        target_service: SOAPJMS_targetService, or None.
        one_way: True for a one-way message; the function's result is dropped.
        delivery_count: 1 for the first delivery; if the broker does not count deliveries, the number of times that the
            store saw the request begun; None without a store.
        redelivered: True if the request may have been run before.
        deadline: JMSExpiration, after which nobody waits, in epoch milliseconds by this machine's clock; None if the
            request never expires.
        attachments: the attachments of the request.
        tolerated: verdicts of the assertions that the request breaks without being refused.
        addressing: its WS-Addressing headers, if the service has `addressing`; otherwise None.
        identity: the sender, as the service's `verify` returned it; None if there is no `verify`.
        context: values for the middleware further in and for the function.
        understood: names of header blocks that middleware has processed, in Clark notation.
        delivery: values that middleware keeps over all tries of this delivery, to do something only once.
        named: computes `key`; None if there is no key.
        accepted: the event of the node that accepted the request; the source of `notes`.
        claim: the store's claim on the request; the source of `transaction`.
        stored: the answer that the store has for the request; None if the function is to run.
        tasks: runs `async` functions on the loop of an `AsyncDispatcher`; None for a loop of the service's own.
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
    named: Callable[[], bytes | None] | None = field(default=None, repr=False, compare=False)
    accepted: RequestAccepted = field(repr=False, compare=False)
    claim: Claim = field(repr=False, compare=False)
    stored: StoredAnswer | None = field(default=None, repr=False, compare=False)
    tasks: LoopTasks | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        accepted: RequestAccepted,
        *,
        claim: Claim = ANY_CLAIM,
        addressing: Addressing | None = None,
        lead: int = 0,
        **delivered: Any,
    ) -> Self:
        """Make the request of what a node accepted.

        Args:
            accepted: what the node accepted.
            claim: the claim of the store.
            addressing: the WS-Addressing headers.
            lead: milliseconds that the clock of JMSExpiration is ahead of this machine's.
            delivered: further attributes, all of them optional.
        """
        message, one_way, tolerated, envelope, action, target, attachments, _ = accepted
        content = envelope.content
        request = cls.__new__(cls)  # and its values at once: a third of the time of its constructor
        request.__dict__.update(
            delivered,
            element=envelope.body if content is None else content,
            envelope=envelope,
            message=message,
            soap_action=action,
            target_service=target,
            one_way=one_way,
            deadline=message.expiration - lead if message.expiration else None,
            attachments=attachments,
            tolerated=tolerated,
            context={},
            accepted=accepted,
            claim=claim,
        )
        if addressing is not None:
            request.__dict__.update(addressing=addressing, understood=addressing.understood)
        if "delivery" not in delivered:
            request.__dict__["delivery"] = {}
        return request

    @property
    def is_as_it_came(self) -> bool:
        """True if nothing that decides the operation of the request was changed since the node accepted it."""
        return (
            self.envelope is self.accepted.envelope
            and self.soap_action == self.accepted.soap_action
            and self.target_service == self.accepted.target_service
        )

    def with_envelope(self, root: etree._Element) -> Self:
        """Return the request with another envelope, such as a decrypted one. Its operation may change, too.

        Raises:
            UsageError: `root` is not a SOAP envelope.
        """
        try:
            envelope = as_envelope(root)
        except ValueError as error:
            raise UsageError(f"root must be a SOAP envelope: {error}") from None
        return replace(self, envelope=envelope, element=envelope.body if envelope.content is None else envelope.content)

    @property
    def key(self) -> bytes | None:
        """The identity of the request, the same at each of its deliveries; None if it has none."""
        return None if self.named is None else self.named()

    @property
    def finished(self) -> bool:
        """True if the request was finished before: the stored answer is sent, and the function does not run.

        `verify` accepted this very message, with its reply destination, when it was finished: it may be old by now.
        """
        return self.stored is not None

    @property
    def copied(self) -> bool:
        """True if the same message came before with another reply destination or sender: one of the two is a copy."""
        return self.claim.copied

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """The code and text of each habit of other stacks that the request shows; habits break no assertion.

        Determined anew at each access.
        """
        return self.accepted.notes

    @property
    def transaction(self) -> Any:
        """The transaction of the store's own database that is committed together with the request, exactly once.

        With a `SqliteStore` it is a `sqlite3.Connection` to the store's file, for the service's own tables. Its writes
        are kept if the function returns, even a fault, and undone if it raises; once the function has ended, also its
        threads can no longer use it. From the first use until the function returns no other function gets a
        transaction: use it late, and call no other service after that. A function that holds it for longer than the
        store's `transaction_timeout` loses it and has failed.

        Raises:
            UsageError: there is no store, the request has no key, or the function is `async`.
            StoreError: the store cannot be written now.
        """
        from soapjms.service.event_loop import refuse_in_a_loop  # needs asyncio

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

    def __repr__(self) -> str:
        return f"<soapjms.Request {self.element.tag!s}, JMSCorrelationID {self.message.correlation_id!r}>"

    def body_value(self) -> Any:
        """Return the content of the request's element as plain Python, without a WSDL; None if the Body is empty.

        An element with text alone is its text, and `xsi:nil` is None. An element with elements in it is a dict of them
        by local name; those of one name that follow each other are a list. Values are text, as no schema is known.
        White space between elements, comments, namespaces, and `xsi:type` are left out.

        Raises:
            UsageError: something would be lost: an attribute, text beside elements, elements of one local name that are
                apart or of two namespaces, content in spite of `xsi:nil`, or a second element in the Body.
        """
        return body_value(self.envelope)

    def find(self, path: str) -> etree._Element | None:
        """Find an element below the request's; see lxml."""
        return self.element.find(path)

    def findtext(self, path: str, default: str | None = None) -> str | None:
        """Return the text of an element below the request's; see lxml."""
        return self.element.findtext(path, default)
