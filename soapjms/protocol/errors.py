"""The exceptions of soapjms: the caller's mistakes, and outcomes that a caller asked to have raised.

A node reports the peer's mistakes as events or findings; it never raises one of these for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, get_args

from brokers.errors import SoapJmsError as SoapJmsError
from brokers.errors import UsageError as UsageError


class InvalidUriError(UsageError):
    """The string is not a `jms:` URI in the requested mode."""


class InvalidPropertyError(UsageError):
    """The type of a binding property does not allow its value; the message names property, value, place and rule."""


class InvalidWsdlError(UsageError):
    """A WSDL cannot be read, or its port cannot be used; the message names file, line, rule and remedy."""


class InvalidEnvelopeError(UsageError):
    """The content to send is not a SOAP envelope."""


class InvalidAttachmentError(SoapJmsError, ValueError):
    """An attachment cannot be decoded, or a reference leads to none; raised when the attachment is accessed."""


class InvalidRecordError(SoapJmsError, ValueError):
    """A line or row is not a capture record; the message names the member, its value and what is accepted."""


class LocalProtocolError(SoapJmsError):
    """The state of a node does not allow the requested step: a mistake in the program that drives the node."""


class StoreError(SoapJmsError):
    """The store of requests cannot be opened, read or written; the message names the file and the reason."""


class OvertakenError(StoreError):
    """Another process took a request over, as the one that ran it showed no sign of life."""


class PingFailedError(SoapJmsError):
    """A message through the broker did not come back in time, or could not be sent."""


class SendOutcome(StrEnum):
    """What became of a request or one-way message whose call failed.

    NOT_SENT: it did not leave this program. REFUSED: the broker refused it. In both cases no service will ever see it.
    UNKNOWN: a service may have carried it out, or may still do so.
    """

    NOT_SENT = "not sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CallTrace:
    """How far a call came that failed, for people who look for the cause.

    Attributes:
        destination: where the message went, such as `queue:bank`.
        correlation_id: its JMSCorrelationID, or None.
        waited: seconds from the call to its end.
        is_confirmed: whether the broker said that it has the message; None if that does not show.
        connection_lost: whether the connection was lost or closed meanwhile.
    """

    destination: str
    correlation_id: str | None
    waited: float
    is_confirmed: bool | None = None
    connection_lost: bool = False

    def __str__(self) -> str:
        said = [f"{self.destination}, JMSCorrelationID {self.correlation_id!r}, after {self.waited:.1f} s"]
        if self.is_confirmed is not None:
            said.append(
                "the broker " + ("confirmed the message" if self.is_confirmed else "did not confirm the message")
            )
        if self.connection_lost:
            said.append("the connection was lost or closed meanwhile")
        return "; ".join(said)


class CallFailedError(SoapJmsError):
    """A call got no response, or a one-way message was not sent: the exchange ended in the state Fail.

    `outcome` says whether the service may have carried it out, and so whether calling again is safe: with
    `client.call(envelope, retry_of=error)`, which a service with a store answers without running it twice.

    Attributes:
        text: what happened, without the trace.
        reason: the failure reason of the specification.
        outcome: what became of the message: see `SendOutcome`.
        retry: what `retry_of=` needs to send the message again, or None.
        trace: how far it came; None if the message was never made. Its text is part of the error's.
    """

    def __init__(
        self,
        text: str,
        reason: str,
        outcome: SendOutcome = SendOutcome.UNKNOWN,
        retry: object = None,
        trace: CallTrace | None = None,
    ) -> None:
        super().__init__(text if trace is None else f"{text} ({trace})")
        self.text = text
        self.reason = reason
        self.outcome = outcome
        self.retry = retry
        self.trace = trace

    @property
    def is_known(self) -> bool:
        """True if the outcome is known: no service has the message, or ever will."""
        return self.outcome is not SendOutcome.UNKNOWN

    @property
    def destination(self) -> str | None:
        """Where the message went: see `CallTrace`; None if it was never made, like the four below."""
        return None if self.trace is None else self.trace.destination

    @property
    def correlation_id(self) -> str | None:
        """Its JMSCorrelationID."""
        return None if self.trace is None else self.trace.correlation_id

    @property
    def waited(self) -> float | None:
        """Seconds from the call to its end."""
        return None if self.trace is None else self.trace.waited

    @property
    def is_confirmed(self) -> bool | None:
        """Whether the broker said that it has the message; None also if that does not show."""
        return None if self.trace is None else self.trace.is_confirmed

    @property
    def connection_lost(self) -> bool | None:
        """Whether the connection was lost or closed meanwhile."""
        return None if self.trace is None else self.trace.connection_lost

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return type(self), (self.text, self.reason, self.outcome, self.retry, self.trace)


class CallTimeoutError(CallFailedError, TimeoutError):
    """No correlated response came in time."""


class RequestExpiredError(SoapJmsError, TimeoutError):
    """An `async` function was cancelled, since the request that it works on has expired."""


class Blame(StrEnum):
    """The fault codes that both SOAP versions have, which say whose mistake it is."""

    SENDER = "Sender"
    RECEIVER = "Receiver"
    MUST_UNDERSTAND = "MustUnderstand"
    VERSION_MISMATCH = "VersionMismatch"


BlameName: TypeAlias = Literal["Sender", "Receiver", "MustUnderstand", "VersionMismatch", "Client", "Server"]
BLAMES: Final[tuple[str, ...]] = get_args(BlameName)
"""The fault codes of SOAP 1.2 that say whose mistake it is, and the two that SOAP 1.1 has for the first two."""


_NAME: Final = re.compile(r"\{[^{}]+\}[^\W\d][\w.-]*")
"""A name in Clark notation, with a namespace."""


def is_name(text: str) -> bool:
    """Say whether a text is a qualified name in Clark notation, with a namespace."""
    return _NAME.fullmatch(text) is not None


class SoapFaultError(SoapJmsError):
    """A SOAP fault: raised for a response that holds one, and raised or returned by a service to answer with one.

    Args:
        reason: the text for people; any other object, such as an exception, is converted to its text.
        blame: whose mistake it was: `Sender` or `Receiver`, which SOAP 1.1 calls `Client` and `Server`; or
            `MustUnderstand` or `VersionMismatch`.
        detail: an element with application detail, or None.
        subcodes: names in Clark notation that refine `blame`, from the general to the specific: the Subcodes of SOAP
            1.2; SOAP 1.1, which has one code, gets the last of them.

    Attributes:
        subcode: the subcode of the binding in a received fault, or None.
        code: the fault code of a received fault, in Clark notation.

    Raises:
        UsageError: `blame` is another text, or a subcode has no namespace.
    """

    def __init__(
        self,
        reason: object,
        *,
        blame: Blame | BlameName = "Receiver",
        detail: Any = None,
        subcode: str | None = None,
        code: str | None = None,
        subcodes: Iterable[str] = (),
    ) -> None:
        self.subcodes = tuple(subcodes)
        for each in self.subcodes:
            if not isinstance(each, str) or not is_name(each):
                raise UsageError(f"a subcode must be written {{namespace}}local, got {each!r}")
        if blame not in BLAMES:
            raise UsageError(f"blame must be one of {', '.join(BLAMES)}, got {blame!r}")
        self.reason = "no reason given" if reason is None else str(reason)
        super().__init__(self.reason)
        self.blame: Blame | BlameName = blame
        self.detail = detail
        self.subcode = subcode
        self.code = code
