"""A service whose functions take the request's envelope and return that of the answer, and the way to a typed one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lxml import etree

from soapjms.protocol.errors import UsageError
from soapjms.security import Verify
from soapjms.service.operations import Middleware, OperationRoute, Operations
from soapjms.service.request import DEFAULT, Policy

if TYPE_CHECKING:
    from soapjms.service.typed import TypedService

F = TypeVar("F", bound=Callable[[Any], Any])


class Service(Operations):
    """Functions by what they answer: SOAP action and element. Register them before a dispatcher runs the service.

    Args:
        policy: what becomes of a request whose function fails, for operations that do not say it themselves.
        understands: SOAP header blocks that the functions process, in Clark notation, `{namespace}*` for all of a
            namespace. Any other that says mustUnderstand is answered with that fault.
        roles: URIs of what the service acts as beside the ultimate receiver; SOAP 1.1 calls them actors.
        middleware: functions `(request, call_next)` around all operations, the outermost first.
        addressing: understand headers of WS-Addressing, and answer by them; "required" refuses requests without.
        verify: `(request, security)` returns who sent a request, or raises a fault; see `soapjms.security`.

    Attributes:
        port: the port of the WSDL that it was made from; None for one that was not.

    Raises:
        UsageError: an argument is not as it must be.
    """

    @classmethod
    def from_wsdl(
        cls,
        wsdl: str | Path,
        port: str | None = None,
        *,
        policy: Policy = DEFAULT,
        understands: Collection[str] = (),
        roles: Collection[str] = (),
        middleware: Iterable[Middleware] = (),
        verify: Verify | None = None,
        addressing: bool | str = False,
        validate: bool = True,
        loader: Any = None,
        allow: Iterable[str | Path] = (),
    ) -> TypedService:
        """Make a service of a WSDL 1.1, whose functions take Python values and return them.

        Args:
            wsdl: the path of its file.
            port: its name, or SERVICE/PORT; the only SOAP/JMS port where it is None.
            policy, understands, roles, middleware, verify, addressing: see `Service`.
            validate: hold requests and answers to the WSDL's schemas; False goes by the types alone.
            loader: fetches what is no local file, such as a `zeep.Transport()`; without one that is refused.
            allow: folders that imports may be read from, beside that of the WSDL.

        Raises:
            InvalidWsdlError: the WSDL or a schema cannot be read or used.
            UsageError: there is no such port, or more than one; another argument is not as it must be.
            ImportError: zeep is not installed.
        """
        from soapjms.service.typed import TypedService
        from soapjms.service.typed.schema import described

        found = described(wsdl, port, validate=validate, loader=loader, allow=allow)
        return TypedService(
            found,
            policy=policy,
            understands=understands,
            roles=roles,
            middleware=middleware,
            verify=verify,
            addressing=addressing,
        )

    def operation(
        self, name: str, *, action: str | None = None, policy: Policy | None = None, reply_action: str | None = None
    ) -> Callable[[F], F]:
        """Register the decorated function for requests whose body element is called `name`. It may be `async`.

        Args:
            name: in Clark notation, `{namespace}local`.
            action: the SOAP action of such requests. Then one of them with the action of another operation is refused,
                and several operations may have the same element.
            policy: what becomes of a request for which it fails; the service's where it is None.
            reply_action: what WS-Addressing calls its answers; the request's action and `Response` where it is None.

        Raises:
            UsageError: name and action are taken, or are none; what is decorated is no function.
        """
        if not isinstance(name, str):
            raise UsageError(f"operation takes the name of an element, not {name!r}: @service.operation(NAME)")
        try:
            name = etree.QName(name).text
        except ValueError:
            raise UsageError(f"{name!r} is no name of an element; write it {{namespace}}local") from None
        chosen = self._chosen(policy)
        return self._registering(
            lambda function: OperationRoute(name, name, action, function, function, chosen, reply_action=reply_action)
        )
