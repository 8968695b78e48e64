"""`Service`: functions take the envelope of a request and return that of its answer; `from_wsdl` makes a typed one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from lxml import etree

from soapjms.middleware import takes
from soapjms.protocol.errors import UsageError
from soapjms.service.operations import OperationRoute, Operations, ServiceArguments
from soapjms.service.request import Policy
from soapjms.validation import string_or_none

if TYPE_CHECKING:
    from soapjms.codegen.contract import ServiceInterface
    from soapjms.service.typed import TypedService

F = TypeVar("F", bound=Callable[[Any], Any])


class Service(Operations):
    """Functions by the SOAP action and element they answer. Register them before a dispatcher runs the service.

    `service = soapjms.Service()`, then `@service.operation("{urn:greeter}greetMe")` above each function: it gets the
    `Request`, and returns the element of the answer. `Service.from_wsdl` makes one whose functions take values.

    Args:
        policy: what becomes of a request whose function fails, for operations without their own policy.
        understands: SOAP header blocks that the functions process, in Clark notation; `{namespace}*` for all of a
            namespace. Any other block with mustUnderstand is answered with a mustUnderstand fault.
        roles: URIs of the roles of the service beside the ultimate receiver; SOAP 1.1 calls them actors.
        middleware: functions `(request, call_next)` around all operations, the outermost first.
        addressing: understand headers of WS-Addressing, and answer by them; "required" refuses requests without them.
        verify: `(request, security)` returns who sent a request, or raises a fault; see `soapjms.security`.

    Attributes:
        port: the port of the WSDL that the service was made from, or None.

    Raises:
        UsageError: an argument is not valid.
    """

    @classmethod
    def from_wsdl(
        cls,
        wsdl: str | Path,
        implementation: ServiceInterface | None = None,
        *,
        port: str | None = None,
        validate: bool = True,
        loader: Any = None,
        allow: Iterable[str | Path] = (),
        **options: Unpack[ServiceArguments],
    ) -> TypedService:
        """Make a service of a WSDL 1.1, whose functions take Python values and return them.

        `service = soapjms.Service.from_wsdl("greeter.wsdl")`, then `@service.operation("greetMe")` above
        `def greet(name): return f"Hello {name}"`. docs/services.md says what functions take and return.

        Args:
            wsdl: the path of the WSDL file.
            implementation: an object of a class that inherits from a service class that `soapjms wsdl generate` wrote;
                its methods take and return dataclasses. None for functions that `operation` registers.
            port: the name of the port, or SERVICE/PORT; None for that of the implementation, or else for the only
                SOAP/JMS port.
            validate: validate requests and answers against the WSDL's schemas; False checks the types only.
            loader: fetches imports that are not local files, such as a `zeep.Transport()`; None refuses them.
            allow: folders that imports may be read from, beside that of the WSDL.
            options: `policy`, `understands`, `roles`, `middleware`, `verify`, `addressing`; see `Service`.

        Raises:
            InvalidWsdlError: the WSDL or a schema cannot be read or used.
            UsageError: there is no such port, or more than one; the implementation lacks methods; another argument is
                not valid.
            ImportError: zeep is not installed, or for an implementation xsdata.
        """
        from soapjms.codegen.contract import port_of
        from soapjms.service.typed import TypedService
        from soapjms.zeep.description import described

        port = port or port_of(implementation)
        found = described(wsdl, port, validate=validate, loader=loader, allow=allow)
        return TypedService(found, implementation, **options)

    def operation(
        self, name: str, *, action: str | None = None, policy: Policy | None = None, reply_action: str | None = None
    ) -> Callable[[F], F]:
        """Register the decorated function for requests whose body element is called `name`. It may be `async`.

        It gets the `Request`, and returns the element of the answer, a `Reply`, or None for an empty body; or it raises
        a `SoapFaultError`.

        Args:
            name: the element's name in Clark notation, `{namespace}local`; `{}local` for one without a namespace.
            action: the SOAP action of such requests. A request with this element and the action of another operation
                is refused then, and several operations may have the same element.
            policy: what becomes of a request for which the function fails; None for the policy of the service.
            reply_action: the WS-Addressing Action of the answers; None for the request's action followed by `Response`.

        Raises:
            UsageError: name and action are already registered or not valid; the decorated object is not a function.
        """
        if not isinstance(name, str):
            raise UsageError(f"operation must be given the name of an element, got {name!r}: @service.operation(NAME)")
        action, reply_action = string_or_none(action, "action"), string_or_none(reply_action, "reply_action")
        given = name
        try:
            name = etree.QName(given.removeprefix("{}")).text
        except ValueError:
            raise UsageError(f"name of an element must be written {{namespace}}local, got {given!r}") from None
        if not given.startswith("{"):
            raise UsageError(
                f"operation must be given {{namespace}}local, got {given!r}, which has no namespace: write {{}}{given} "
                "if the element has none"
            )
        chosen = self._chosen(policy)

        def route(function: Callable[..., Any]) -> OperationRoute:
            if not takes(function, 1):
                raise UsageError(f"@service.operation(NAME) must decorate a function (request), got {function!r}")
            return OperationRoute(name, name, action, function, function, chosen, reply_action=reply_action)

        return self._registering(route)
