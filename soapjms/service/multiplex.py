"""Several services behind one destination: SOAPJMS_targetService says which of them a request is for.

Spec: SOAP/JMS 2.2.3 targetService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from soapjms.middleware import middleware_given
from soapjms.protocol.errors import UsageError
from soapjms.protocol.text import shown
from soapjms.reply import Prepared
from soapjms.security import Verify
from soapjms.service.operations import Match, Middleware, Operations, RoutableRequest, action_of
from soapjms.service.request import Request


class Services(Operations):
    """Services by their names, served by one dispatcher as if they were one.

    A request with SOAPJMS_targetService goes to the service of that name. One without goes to `default`; where there is
    none, to the service whose operation it fits: by its action, then by the element in its body. What fits several is
    refused.

    Args:
        services: by what clients set as targetService.
        default: the name of the service for requests that name none.
        middleware, verify: around all of them; see `Service`.

    Raises:
        UsageError: there is none, a name or a service is not as it must be, or `default` is none of them.
    """

    def __init__(
        self,
        services: Mapping[str, Operations],
        *,
        default: str | None = None,
        middleware: Iterable[Middleware] = (),
        verify: Verify | None = None,
    ) -> None:
        super().__init__(middleware=middleware, verify=verify)
        if not isinstance(services, Mapping) or not services:
            raise UsageError(f"services is {services!r}; it is a mapping of names to services, and not an empty one")
        for name, service in services.items():
            if not isinstance(name, str) or not name or not isinstance(service, Operations):
                raise UsageError(f"{name!r}: {service!r} is no name with a soapjms.Service")
        if default is not None and default not in services:
            raise UsageError(f"default is {default!r}; there are: {', '.join(services)}")
        self._services = dict(services)
        self._default = default

    @property
    def operations(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of all services, by `SERVICE/OPERATION`."""
        return {
            f"{name}/{operation}": function
            for name, service in self._services.items()
            for operation, function in service.operations.items()
        }

    def find(self, asked: RoutableRequest) -> Match:
        """Find the operation that a request is for.

        Spec: SOAP/JMS 2.2.3 targetService.
        """
        target = asked.target_service or self._default
        if target is None:
            return self._fitting(asked)
        service = self._services.get(target)
        if service is None:
            known = ", ".join(self._services)
            return Match(self, None, f"no service {shown(target)}, which targetService names; there are: {known}")
        return service.find(asked)

    def knows_action(self, action: str | None) -> bool:
        """Say whether an operation of any service is registered with this SOAP action."""
        return any(each.knows_action(action) for each in self._services.values())

    def _fitting(self, asked: RoutableRequest) -> Match:
        action = action_of(asked)
        chosen = {name: each for name, each in self._services.items() if each.knows_action(action)} or self._services
        found = {name: each.find(asked) for name, each in chosen.items()}
        fitting = {name: match for name, match in found.items() if match.route is not None}
        if len(fitting) == 1:
            return next(iter(fitting.values()))
        if fitting:
            names = ", ".join(fitting)
            return Match(self, None, f"several services have this operation; SOAPJMS_targetService says which: {names}")
        return Match(self, None, "; ".join(f"{name}: {match.problem}" for name, match in found.items()))


class WrappedService(Operations):
    """A service with more middleware around it, as a dispatcher was told."""

    def __init__(self, service: Operations, middleware: Iterable[Middleware], verify: Verify | None) -> None:
        super().__init__(middleware=middleware, verify=verify, roles=service.roles)
        self._service = service

    def find(self, asked: RoutableRequest) -> Match:
        """Find the operation that a request is for."""
        return self._service.find(asked)

    def _process(self, request: Request, match: Match | None) -> Prepared:
        return self._service.process(request, match)


def surrounded(service: Operations, middleware: Iterable[Middleware], verify: Verify | None) -> Operations:
    """Return a service with more around it; the service itself if there is nothing.

    Raises:
        UsageError: it is no list of plain functions; `verify` is none.
    """
    more = middleware_given(middleware)
    return WrappedService(service, more, verify) if more or verify is not None else service
