"""Violations of the specification: how each changes a message, and which assertions that breaks.

Everything else in the exchange keeps the rules, including the answer: it is the fault required for the violation,
unless the violation is in the answer itself.

Spec: SOAP/JMS appendix E.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from soapjms.generate.shapes import AnswerKind, CaptureSides, Packaging
from soapjms.protocol.names import EDITIONS, Profile, SoapVersion, Subcode

Members: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Members], None]


def nothing(*messages: Members) -> None:
    """Change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One way to break the specification.

    Attributes:
        name: its name for users.
        on_request, on_response: ids (of the CR) of the assertions that it breaks, judged on the request or one-way
            message, and on the response, alone or together with its request.
        wants: attributes that the shape of the exchange must have.
        request: changes a request that keeps the rules.
        response: changes the response; called with the response and the request.
        editions: the editions in which it is a violation.
    """

    name: str
    on_request: tuple[str, ...] = ()
    on_response: tuple[str, ...] = ()
    wants: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    request: Change = nothing
    response: Callable[[Members, Members], None] = nothing
    editions: tuple[str, ...] = tuple(EDITIONS)

    def broken(self, profile: Profile) -> list[tuple[str, str]]:
        """Return pairs of carrier and assertion, by the profile's id, for all that it breaks in the profile."""
        found = [("request", each) for each in self.on_request] + [("response", each) for each in self.on_response]
        return [(carrier, name) for carrier, each in found if (name := profile.assertion_id(each)) is not None]


# Shapes of exchanges

SERVED: Final = AnswerKind.SERVED
PLAIN: Final = {"packaging": Packaging.PLAIN, "seen": CaptureSides.NODES}
REC: Final = ("rec-2012",)
CR: Final = ("cr-2009",)


def served(**more: Any) -> dict[str, Any]:
    return {**PLAIN, "answer": SERVED, **more}


def soap(version: str, kind: str = "bytes", **more: Any) -> dict[str, Any]:
    return served(version=SoapVersion(version), message_type=kind, **more)


def refusable(
    name: str,
    on_request: tuple[str, ...],
    subcode: Subcode,
    reaction: str,
    request: Change,
    wants: Mapping[str, Any] = MappingProxyType({}),
    editions: tuple[str, ...] = tuple(EDITIONS),
) -> tuple[Violation, Violation]:
    """Make two rows: a request that is refused as required, and one that is served nevertheless."""
    kept = served(**wants)
    return (
        Violation(
            name=name, on_request=on_request, wants={**kept, "answer": subcode}, request=request, editions=editions
        ),
        Violation(
            name=f"{name}-served",
            on_request=on_request,
            on_response=(reaction,),
            wants=kept,
            request=request,
            editions=editions,
        ),
    )
