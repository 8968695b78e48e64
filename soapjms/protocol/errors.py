"""The exceptions of soapjms: the caller's mistakes, and outcomes that a caller asked to have raised.

What the peer did wrong is an event or a finding, never one of these out of a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final


class SoapJmsError(Exception):
    """Root of everything that soapjms raises of its own."""


class UsageError(SoapJmsError, ValueError):
    """The caller gave something that the specification or the API does not allow; the message says what would be."""


class InvalidUriError(UsageError):
    """A string that is no `jms:` URI in the mode asked for."""


class InvalidPropertyError(UsageError):
    """A binding property with a value that its type does not allow; the message names property, value, place, rule."""


class InvalidWsdlError(UsageError):
    """A WSDL that cannot be read, or a port of one that cannot be used; the message says file, line, rule, remedy."""


class InvalidEnvelopeError(UsageError):
    """What was to be sent is no SOAP envelope."""


class InvalidAttachmentError(SoapJmsError, ValueError):
    """An attachment that cannot be decoded, or a reference that leads to none: found when somebody looks."""


class InvalidRecordError(SoapJmsError, ValueError):
    """A line or row that is no capture record; the message says which member, what was seen, what is accepted."""


class LocalProtocolError(SoapJmsError):
    """A node was asked for a step that its state does not allow: a mistake in the program that drives it."""


class StoreError(SoapJmsError):
    """The store of requests cannot be opened, read or written; the message says which file, and why."""


class OvertakenError(StoreError):
    """A request was given to somebody else meanwhile, as who worked on it showed no sign of life."""


class PingFailedError(SoapJmsError):
    """A message through the broker did not come back in time, or could not be sent."""


class SendOutcome(StrEnum):
    """What became of a request or one-way message whose call failed.

    NOT_SENT: nothing of it left this program. REFUSED: the broker said that it does not take it. In both cases no
    service will ever see it. UNKNOWN: a service may have carried it out, or may still do so.
    """

    NOT_SENT = "not sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class CallFailedError(SoapJmsError):
    """A call or one-way message ended in the state Fail.

    Attributes:
        reason: the failure reason of the specification.
        outcome: what became of what was to be sent.
        retry: what `retry_of=` needs to send it again; None where that is not known.
    """

    def __init__(
        self, text: str, reason: str, outcome: SendOutcome = SendOutcome.UNKNOWN, retry: object = None
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.outcome = outcome
        self.retry = retry

    @property
    def is_known(self) -> bool:
        """Whether it is known what became of it: no service has it, or ever will."""
        return self.outcome is not SendOutcome.UNKNOWN

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return type(self), (str(self), self.reason, self.outcome, self.retry)


class CallTimeoutError(CallFailedError, TimeoutError):
    """No correlated response came in time."""


BLAMES: Final = ("Sender", "Receiver", "MustUnderstand", "VersionMismatch", "Client", "Server")
"""Whose mistake a fault may say it is: the words of SOAP 1.2, and the two that SOAP 1.1 has for the first two."""


_NAME: Final = re.compile(r"\{[^{}]+\}[^\W\d][\w.-]*")
"""A name in Clark notation, with a namespace."""


def is_name(text: str) -> bool:
    """Say whether it is a qualified name in Clark notation, with a namespace."""
    return _NAME.fullmatch(text) is not None


class SoapFaultError(SoapJmsError):
    """A SOAP fault: raised for a response that holds one, and raised or returned by a service to answer with one.

    Args:
        reason: text for people; of anything else, such as an exception, its text.
        blame: whose mistake it was: `Sender` or `Receiver`, or another of `BLAMES`.
        detail: an element with application detail, if there is any.
        subcodes: names in Clark notation that say more than `blame`, from the general to the special: the Subcodes of
            SOAP 1.2; in SOAP 1.1, which has one code, the last of them.

    Attributes:
        subcode: the subcode of the binding in a fault that was received, None if it had none.
        code: the fault code of a fault that was received, in Clark notation.

    Raises:
        UsageError: `blame` is another word, or a subcode has no namespace.
    """

    def __init__(
        self,
        reason: object,
        *,
        blame: str = "Receiver",
        detail: Any = None,
        subcode: str | None = None,
        code: str | None = None,
        subcodes: Iterable[str] = (),
    ) -> None:
        self.subcodes = tuple(subcodes)
        for each in self.subcodes:
            if not isinstance(each, str) or not is_name(each):
                raise UsageError(f"a subcode is {each!r}; write it {{namespace}}local")
        if blame not in BLAMES:
            raise UsageError(f"blame is {blame!r}; it is one of: {', '.join(BLAMES)}")
        self.reason = "no reason given" if reason is None else str(reason)
        super().__init__(self.reason)
        self.blame = blame
        self.detail = detail
        self.subcode = subcode
        self.code = code
