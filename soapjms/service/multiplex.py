"""Several services behind one destination: SOAPJMS_targetService selects the service of a request.

Spec: SOAP/JMS 2.2.3 targetService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from soapjms.protocol.errors import Blame, UsageError
from soapjms.protocol.text import shown
from soapjms.reply import Prepared
from soapjms.security import Verify
from soapjms.service.operations import Match, Middleware, Operations, RoutableRequest, action_of
from soapjms.service.request import Request


class Services(Operations):
    """Services by their names, served by one dispatcher as if they were one.

    A request with SOAPJMS_targetService goes to the service of that name. A request without it goes to `default`, or if
    there is no default to the service with a matching operation: by its action, then by the element in its body. A
    request that matches several services is refused.

    Args:
        services: the services by the targetService that clients set.
        default: the name of the service for requests without targetService.
        middleware, verify: around all services; see `Service`.

    Raises:
        UsageError: there is no service, a name or a service is not valid, or `default` is not one of the names.
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
            raise UsageError(f"services must be a mapping of names to services that is not empty, got {services!r}")
        for name, service in services.items():
            if not isinstance(name, str) or not name or not isinstance(service, Operations):
                raise UsageError(f"services must map a name to a soapjms.Service, got {name!r}: {service!r}")
        if default is not None and default not in services:
            raise UsageError(f"default must be one of {', '.join(services)}, got {default!r}")
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

    @property
    def missing(self) -> tuple[str, ...]:
        """The operations without a function of all services, by `SERVICE/OPERATION`."""
        return tuple(f"{name}/{each}" for name, service in self._services.items() for each in service.missing)

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
        problem = "; ".join(f"{name}: {match.problem}" for name, match in found.items())
        is_ours = any(match.blame is Blame.RECEIVER for match in found.values())
        return Match(self, None, problem, Blame.RECEIVER if is_ours else Blame.SENDER)


class WrappedService(Operations):
    """A service with the middleware of a dispatcher around it."""

    def __init__(self, service: Operations, middleware: Iterable[Middleware], verify: Verify | None) -> None:
        super().__init__(middleware=middleware, verify=verify, roles=service.roles)
        self._service = service

    @property
    def missing(self) -> tuple[str, ...]:
        """The operations of the WSDL that have no function."""
        return self._service.missing

    def find(self, asked: RoutableRequest) -> Match:
        """Find the operation that a request is for."""
        return self._service.find(asked)

    def _process(self, request: Request, match: Match | None) -> Prepared:
        return self._service.process(request, match)


def surrounded(service: Operations, middleware: Iterable[Middleware], verify: Verify | None) -> Operations:
    """Return a service with more middleware around it; the service itself if there is none to add.

    Raises:
        UsageError: `middleware` is not a list of plain functions, or `verify` is not a function.
    """
    wrapped = WrappedService(service, middleware, verify)
    return wrapped if wrapped._middleware else service
