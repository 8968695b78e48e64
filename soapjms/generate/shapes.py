"""What one exchange is to look like, and the shares in which real traffic has such looks.

Spec: SOAP/JMS 2.2, 2.4, 2.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from random import Random
from typing import Any, Final, Generic, TypeVar

from soapjms.protocol.names import SoapVersion, Subcode

T = TypeVar("T")


class Packaging(StrEnum):
    """How an envelope travels."""

    PLAIN = "plain"
    ATTACHMENTS = "SOAP with attachments"


class AnswerKind(StrEnum):
    """What becomes of a request, where it is not a fault of the binding."""

    SERVED = "served"
    FAULT = "a fault of the application"
    MISSING = "never answered"
    LATE = "answered when nobody waits any more"
    NONE = "one-way"


class CaptureSides(StrEnum):
    """Who captured the messages of an exchange."""

    TAP = "tap"
    NODES = "both nodes"
    ALL = "both nodes and a tap"
    STOMP = "a client over STOMP, and the service"


@dataclass(frozen=True, slots=True)
class Stack:
    """What gives a SOAP/JMS stack away, and breaks nothing.

    Attributes:
        quotes_action: SOAPJMS_soapAction stands in quotes with SOAP 1.1.
        flags_request: SOAPJMS_isFault is on requests.
        returns_action: SOAPJMS_soapAction is on responses.
        correlates: requests have a JMSCorrelationID.
        declares: documents begin with an XML declaration.
    """

    name: str
    quotes_action: bool = False
    flags_request: bool = False
    returns_action: bool = False
    correlates: bool = True
    declares: bool = False


class Shares(Generic[T]):
    """Things with the share that each has; draws one."""

    def __init__(self, shares: Mapping[T, float]) -> None:
        self._things = list(shares)
        self._bounds = list(accumulate(shares.values()))

    def draw(self, random: Random) -> T:
        """Draw one."""
        found: T = random.choices(self._things, cum_weights=self._bounds)[0]
        return found


PLAIN_STACK: Final = Stack("soapjms")
STACKS: Final = Shares(
    {
        PLAIN_STACK: 0.4,
        Stack("cxf", quotes_action=True, flags_request=True, returns_action=True): 0.4,
        Stack("own program", correlates=False, declares=True): 0.2,
    }
)
VERSIONS: Final = Shares({SoapVersion.SOAP_11: 0.7, SoapVersion.SOAP_12: 0.3})
MESSAGE_TYPES: Final = Shares({"bytes": 0.6, "text": 0.4})
PACKAGINGS: Final = Shares({Packaging.PLAIN: 0.95, Packaging.ATTACHMENTS: 0.05})
VARIANTS: Final = Shares({"queue": 0.85, "topic": 0.07, "jndi": 0.08})
ANSWERS: Final = Shares(
    {
        AnswerKind.SERVED: 0.83,
        AnswerKind.FAULT: 0.02,
        AnswerKind.MISSING: 0.004,
        AnswerKind.LATE: 0.003,
        AnswerKind.NONE: 0.143,
    }
)
SEEN: Final = Shares({CaptureSides.TAP: 0.7, CaptureSides.NODES: 0.15, CaptureSides.ALL: 0.1, CaptureSides.STOMP: 0.05})
PRIORITIES: Final = Shares({4: 0.9, 0: 0.02, 7: 0.05, 9: 0.03})
DELIVERY_MODES: Final = Shares({2: 0.9, 1: 0.1})
LIFETIMES: Final = Shares({0: 0.7, 30_000: 0.15, 60_000: 0.1, 3_600_000: 0.05})
"""Milliseconds; 0 for messages that never expire."""


@dataclass(slots=True)
class ExchangeShape:
    """One exchange to come.

    Attributes:
        answer: what becomes of the request; a subcode for a fault of the binding.
        retried: the client sent the request before, in vain.
        redelivered: the service got it twice.
    """

    stack: Stack
    version: SoapVersion
    message_type: str
    packaging: Packaging
    variant: str
    answer: AnswerKind | Subcode
    seen: CaptureSides
    priority: int
    delivery_mode: int
    lifetime: int
    retried: bool = False
    redelivered: bool = False

    @property
    def quotes_action(self) -> bool:
        """Whether SOAPJMS_soapAction stands in quotes; no stack does that with SOAP 1.2."""
        return self.stack.quotes_action and self.version is SoapVersion.SOAP_11


RETRY_SHARE: Final = 0.003
REDELIVERY_SHARE: Final = 0.005


def draw(random: Random, wanted: Mapping[str, Any]) -> ExchangeShape:
    """Draw the looks of an exchange; some may be wanted."""
    shape = ExchangeShape(
        STACKS.draw(random),
        VERSIONS.draw(random),
        MESSAGE_TYPES.draw(random),
        PACKAGINGS.draw(random),
        VARIANTS.draw(random),
        ANSWERS.draw(random),
        SEEN.draw(random),
        PRIORITIES.draw(random),
        DELIVERY_MODES.draw(random),
        LIFETIMES.draw(random),
        random.random() < RETRY_SHARE,
        random.random() < REDELIVERY_SHARE,
    )
    for name, value in wanted.items():
        setattr(shape, name, value)
    return shape
