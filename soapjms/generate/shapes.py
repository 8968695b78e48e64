"""The shape of an exchange, and the shares of shapes in real traffic.

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
    """How an envelope is packaged."""

    PLAIN = "plain"
    ATTACHMENTS = "SOAP with attachments"


class AnswerKind(StrEnum):
    """The result of a request, unless it is a fault of the binding."""

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
    """The traits by which a SOAP/JMS stack can be recognized; none of them is a violation.

    Attributes:
        quotes_action: whether SOAPJMS_soapAction is in quotes with SOAP 1.1.
        flags_request: whether requests have SOAPJMS_isFault.
        returns_action: whether responses have SOAPJMS_soapAction.
        correlates: whether requests have a JMSCorrelationID.
        declares: whether documents begin with an XML declaration.
    """

    name: str
    quotes_action: bool = False
    flags_request: bool = False
    returns_action: bool = False
    correlates: bool = True
    declares: bool = False


class Shares(Generic[T]):
    """Draws one of several things, each with its share."""

    def __init__(self, shares: Mapping[T, float]) -> None:
        self._things = list(shares)
        self._bounds = list(accumulate(shares.values()))

    def draw(self, random: Random) -> T:
        """Draw one thing."""
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
"""Times to live, in milliseconds; 0 for messages that never expire."""


@dataclass(slots=True)
class ExchangeShape:
    """The shape of one exchange.

    Attributes:
        answer: the result of the request; a subcode for a fault of the binding.
        retried: whether the client sent the request before, without an answer.
        redelivered: whether the service got the request twice.
        lifetime: the time to live, in milliseconds; 0 for no limit.
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
        """Whether SOAPJMS_soapAction is in quotes; no stack does that with SOAP 1.2."""
        return self.stack.quotes_action and self.version is SoapVersion.SOAP_11


RETRY_SHARE: Final = 0.003
REDELIVERY_SHARE: Final = 0.005


def draw(random: Random, wanted: Mapping[str, Any]) -> ExchangeShape:
    """Draw the shape of an exchange; `wanted` sets some of its attributes."""
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
