"""Which function a request is for: by its action, then by the element in its body.

An action that operations are registered with leaves only those; then the element decides. So a request whose action is
of another operation than its element is refused, rather than taken for either. Without an action, or with one that is
nobody's, the element decides alone. Above that stands SOAPJMS_targetService, for which see `soapjms.services`.

Spec: SOAP/JMS 2.2.3 soapAction, targetService; WS-I Basic Profile 1.1 R2710.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lxml import etree

from soapjms.policy import Policy
from soapjms.protocol.errors import UsageError
from soapjms.protocol.showing import named


@dataclass(frozen=True, slots=True)
class Route:
    """An operation, and what leads to it.

    Attributes:
        name: of the operation, for people.
        element: the name of the element in the body, in Clark notation; empty for an empty body.
        action: the SOAP action; None if it has none.
        function: as it was registered.
        run: what runs it: takes a Request, returns an answer.
        policy: what becomes of a request for which it fails.
        understands: the header blocks that it processes, in Clark notation.
        reply_action: what WS-Addressing calls its answers; None to make it of the action of the request.
    """

    name: str
    element: str
    action: str | None
    function: Callable[..., Any]
    run: Callable[[Any], Any]
    policy: Policy
    understands: frozenset[str] = field(default=frozenset())
    reply_action: str | None = None


class Routes:
    """The operations of a service. Register them before requests come."""

    def __init__(self) -> None:
        self._by_element: dict[str, list[Route]] = {}
        self._by_action: dict[str, list[Route]] = {}

    def __iter__(self) -> Iterator[Route]:
        for each in self._by_element.values():
            yield from each

    def add(self, route: Route) -> None:
        """Add an operation.

        Raises:
            UsageError: there is one already for this element and action.
        """
        for each in self._by_element.get(route.element, ()):
            if each.action == route.action:
                raise UsageError(f"the operation {route.name} is registered already, as {each.function}")
        self._by_element.setdefault(route.element, []).append(route)
        if route.action:
            self._by_action.setdefault(route.action, []).append(route)

    def knows_action(self, action: str | None) -> bool:
        """Say whether an operation has this action."""
        return action in self._by_action

    def find(self, element: str, action: str | None) -> Route | str:
        """Return the operation for a request, or what is wrong with it, for people."""
        by_action = self._by_action.get(action or "")
        candidates = by_action or self._by_element.get(element, [])
        found = [each for each in candidates if each.element == element]
        if len(found) == 1:
            return found[0]
        seen = named(element) or "(none)"
        if found:
            actions = ", ".join(repr(each.action) for each in found)
            return f"the element {seen} is of {len(found)} operations, which soapAction tells apart: {actions}"
        if by_action:
            wanted = ", ".join(each.element or "(none)" for each in by_action)
            return f"the soapAction {named(repr(action))} goes with the element {wanted}, and the body holds {seen}"
        return f"no operation for the element {seen}; there are: {', '.join(sorted(self._names())) or 'none'}"

    def _names(self) -> Iterator[str]:
        for each in self:
            yield each.name if each.name == each.element else f"{each.name} ({each.element or 'an empty body'})"


def element_name(element: etree._Element | None) -> str:
    """Return the name of an element in Clark notation, empty for none."""
    return "" if element is None else str(element.tag)
