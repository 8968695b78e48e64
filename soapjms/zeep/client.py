"""zeep's clients for SOAP over JMS, with all features of zeep over a `soapjms` connection, and their transport.

`clients.py` sends calls and waits for responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Unpack

import zeep
import zeep.exceptions
from zeep.proxy import AsyncServiceProxy, ServiceProxy
from zeep.wsdl import Document

from brokers.connection import Connection
from brokers.redaction import without_login, without_logins
from soapjms.protocol.errors import InvalidWsdlError, UsageError
from soapjms.protocol.text import with_article
from soapjms.wsdl import Folders, folders_given
from soapjms.zeep.bindings import BINDING_CLASSES
from soapjms.zeep.clients import ClientEndpoints, EndpointArguments
from soapjms.zeep.declarations import Declarations
from soapjms.zeep.loader import DocumentLoader, Loader, imports_of, octets_of

UNKNOWN_OPTIONS: Final[Mapping[str, str]] = {
    "timeout": ": seconds to wait are given as operation_timeout",
    "uri": ": an address in place of the WSDL's is given to create_service(BINDING, URI)",
}
"""Options that other clients have, and what to give here."""


class TransportArguments(EndpointArguments, total=False):
    """The options of a `JmsTransport`, for those that make one; see there."""

    loader: Loader | None
    allow: Iterable[str | Path]


class JmsTransport(ClientEndpoints):
    """Sends the calls of a `zeep.Client` over JMS: `zeep.Client("greeter.wsdl", transport=JmsTransport(connection))`.

    `settings(timeout=…)`, `close` and `operation_timeout` work as in zeep's own transports.

    Args:
        connection: the connection to the broker; the caller closes it.
        loader: fetches WSDLs and schemas that are not local files, such as a `zeep.Transport()`; without a loader they
            are refused.
        allow: folders that imports may be read from, in addition to the WSDL's folder.
        options: `operation_timeout` in seconds, `properties`, `profile`, `message_type`, `replies`, `names`,
            `middleware`, `addressing`, `recorder`, `observer`, `limits`; see `ClientEndpoints`.

    Raises:
        TypeError: there is no such option.
        UsageError: an option is invalid.

    Attributes:
        binding_classes: the binding classes for zeep.
        declarations: what the schemas of the WSDLs declare that zeep does not keep.
    """

    binding_classes = BINDING_CLASSES

    def __init__(
        self,
        connection: Connection,
        *,
        loader: Loader | None = None,
        allow: Iterable[str | Path] = (),
        **options: Unpack[EndpointArguments],
    ) -> None:
        unknown = [each for each in options if each not in EndpointArguments.__optional_keys__]
        if unknown:
            known = ", ".join(sorted(EndpointArguments.__optional_keys__ | {"loader", "allow"}))
            hint = UNKNOWN_OPTIONS.get(unknown[0], "")
            raise TypeError(f"unexpected keyword argument {unknown[0]!r}{hint}; there are: {known}")
        super().__init__(connection, **options)
        self.loader = loader
        self.declarations = Declarations()
        self._allow = folders_given(allow)
        self._imports: dict[str, Folders] = {}  # for each import of a loaded document, the folders that are allowed

    def load(self, url: str) -> bytes:
        """Return a document for zeep. Limits apply to each document; `soapjms.zeep.Client` also limits their total.

        A document that none of the previous ones imports is taken as a WSDL of the caller, and may be anywhere.

        Raises:
            InvalidWsdlError: the document cannot be read, is not a WSDL 1.1 or schema, or has a document type.
        """
        folders = self._imports.get(url)
        loading = DocumentLoader(self.binding_classes, self.loader, self._allow, folders, self.declarations)
        octets = loading.load(url)
        assert loading.folders is not None, "it has read something"
        for each in imports_of(octets, url):
            self._imports.setdefault(each, loading.folders)
        return octets

    def loading(self) -> DocumentLoader:
        """Make the loader for the documents of one WSDL."""
        return DocumentLoader(self.binding_classes, self.loader, self._allow)


class _Named:
    """Lists the operations when a missing one is asked for."""

    def __getitem__(self, key: str) -> Any:
        try:
            return super().__getitem__(key)  # type: ignore[misc]
        except AttributeError:
            known = ", ".join(name for name, _ in self) or "none"  # type: ignore[attr-defined]
            raise AttributeError(f"the service has no operation {key!r}; there are: {known}") from None


class _Service(_Named, ServiceProxy):
    """The operations of a port."""


class _AsyncService(_Named, AsyncServiceProxy):
    """The operations of a port, for asyncio."""


class Client(zeep.Client):
    """A `zeep.Client` over JMS. A `with` statement closes its transport.

    `soapjms.zeep.Client("greeter.wsdl", connection=connection).service.greetMe("World")`.

    Args:
        wsdl: a path, an open binary file, a `zeep.wsdl.Document`, or with a `loader` a URL.
        wsse, plugins, settings: see zeep.
        transport: a transport to share between several clients, instead of `connection`.
        service_name, port_name: the port of `client.service`; without them the first with a SOAP/JMS transport.
        connection: the connection to the broker; the caller closes it.
        options: see `JmsTransport`.

    Raises:
        InvalidWsdlError: the WSDL cannot be read.
        UsageError: an argument is invalid.
    """

    _service_class: type = _Service

    def __init__(
        self,
        wsdl: Any,
        wsse: Any = None,
        transport: JmsTransport | None = None,
        service_name: str | None = None,
        port_name: str | None = None,
        plugins: Any = None,
        settings: zeep.Settings | None = None,
        *,
        connection: Connection | None = None,
        **options: Unpack[TransportArguments],
    ) -> None:
        transport = _transport(transport, connection, options)
        transport.check_middleware(is_async=issubclass(self._service_class, AsyncServiceProxy))
        _check_arguments(wsse, plugins, settings)
        settings = settings or zeep.Settings()
        document = wsdl if isinstance(wsdl, Document) else read_document(wsdl, transport.loading(), settings)
        super().__init__(document, wsse, transport, service_name, port_name, plugins, settings)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        services = ", ".join(self.wsdl.services) or "no services"
        return f"<soapjms.zeep.{type(self).__name__} of {services}, {self.transport!r}>"

    def bind(self, service_name: str | None = None, port_name: str | None = None) -> Any:
        """Return the operations of a port; without names those of the first with a SOAP/JMS transport.

        Raises:
            UsageError: there is no such port; the message lists the known ones.
            InvalidWsdlError, InvalidPropertyError, NameNotFoundError: the port cannot be called.
        """
        port = self._jms_port(service_name, port_name)
        return self._proxy(port.binding, port.binding_options)

    def create_service(self, binding_name: str, address: str) -> Any:
        """Return the operations of a binding at a given address, with the properties of the binding.

        Args:
            binding_name: the name in Clark notation, `{namespace}local`; a binding for HTTP is accepted too.
            address: a `jms:` URI, whose parameters override the properties.

        Raises:
            UsageError: there is no such binding; the message lists the known ones.
            InvalidUriError, InvalidWsdlError, InvalidPropertyError, NameNotFoundError: the address cannot be called.
        """
        binding = self.wsdl.bindings.get(binding_name)
        if binding is None:
            known = ", ".join(self.wsdl.bindings) or "none"
            raise UsageError(f"there is no binding {binding_name!r}; there are: {known}")
        return self._proxy(binding, {"address": address})

    def close(self) -> None:
        """Close the transport; calls under way fail. The connection stays open."""
        self.transport.close()

    def _proxy(self, binding: Any, options: dict[str, Any]) -> Any:
        self.transport.client_of(binding.place_of(options))  # so that its errors are raised now
        return self._service_class(self, binding, **options)

    def _jms_port(self, service_name: str | None, port_name: str | None) -> Any:
        found = [
            port
            for service, port in self._ports()
            if service_name in (None, service) and port_name in (None, port.name)
        ]
        if service_name is None and port_name is None:
            found = [port for port in found if port.binding.standing.is_jms]
        if found:
            return found[0]
        wanted = "/".join(each for each in (service_name, port_name) if each is not None)
        raise UsageError(f"no port {wanted!r}; {self._choice()}" if wanted else f"no SOAP/JMS port; {self._choice()}")

    def _ports(self) -> Iterator[tuple[str, Any]]:
        for name, service in self.wsdl.services.items():
            yield from ((name, port) for port in service.ports.values())

    @property
    def _place(self) -> str:
        return without_login(str(self.wsdl.location))

    def _choice(self) -> str:
        """Say which ports or bindings can be called."""
        ports = [f"{service}/{port.name}" for service, port in self._ports() if port.binding.standing.is_jms]
        if ports:
            return f"there are: {', '.join(ports)}"
        bindings = ", ".join(self.wsdl.bindings)
        if not bindings:
            return f"{self._place} has no SOAP binding at all"
        return (
            f"{self._place} has no binding with a SOAP/JMS transport; call another at an address of your own, as in "
            f"create_service(BINDING, 'jms:queue:NAME'), with one of: {bindings}"
        )


class AsyncClient(Client):
    """A `zeep.AsyncClient` over JMS, for asyncio: `await client.service.greetMe("World")`. It needs no httpx.

    `async with` closes its transport. As in zeep, the WSDL is read synchronously, which blocks the event loop. A
    cancelled call leaves nothing behind.
    """

    _service_class = _AsyncService

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: object = None, error: object = None, trace: object = None) -> None:
        await self.transport.aclose()


def _transport(
    transport: JmsTransport | None, connection: Connection | None, options: TransportArguments
) -> JmsTransport:
    """Return the transport that was given, or make one."""
    if transport is None:
        if connection is None:
            raise UsageError("connection or transport must be given; soapjms.connect(URL) returns a connection")
        return JmsTransport(connection, **options)
    if connection is not None or options:
        given = ", ".join(["connection"] * (connection is not None) + list(options))
        raise UsageError(f"transport has its own connection and options; it must be given alone, got {given} too")
    if not isinstance(transport, JmsTransport):
        raise UsageError(f"transport must be a soapjms.zeep.JmsTransport, got {with_article(type(transport))}")
    return transport


def _check_arguments(wsse: Any, plugins: Any, settings: Any) -> None:
    """Check the arguments that are zeep's own, as zeep fails on others only with a call.

    Raises:
        UsageError: one of them is not what zeep takes.
    """
    if not isinstance(settings, zeep.Settings | None):
        raise UsageError(
            f"settings must be zeep.Settings(strict=False) or the like, got {with_article(type(settings))}"
        )
    if not isinstance(plugins, list | tuple | None):
        raise UsageError(f"plugins must be a list of zeep's plugins, got {with_article(type(plugins))}")
    for each in wsse if isinstance(wsse, list) else [wsse]:
        if each and not hasattr(each, "apply"):
            raise UsageError(
                "wsse must be an object such as zeep.wsse.UsernameToken(NAME, PASSWORD), or a list of them, got "
                f"{with_article(type(each))}"
            )


def read_document(wsdl: Any, loading: DocumentLoader, settings: zeep.Settings) -> Document:
    """Let zeep read a WSDL.

    Raises:
        InvalidWsdlError: the WSDL cannot be read; zeep's own errors, such as for a missing type, are passed on.
    """
    if not wsdl:
        raise InvalidWsdlError("wsdl must be a path or an open binary file, got nothing")
    location, name = str(wsdl) if isinstance(wsdl, Path) else wsdl, without_login(str(getattr(wsdl, "name", wsdl)))
    if hasattr(location, "read"):
        loading.begin(name if isinstance(getattr(wsdl, "name", None), str) else None)
        location = BytesIO(loading.checked(octets_of(location), str(name)))
    try:
        return Document(location, loading, settings=settings)  # type: ignore[arg-type]  # zeep only calls its `load`
    except (zeep.exceptions.Error, UsageError):
        raise
    except RecursionError as error:
        why = "imports or types refer to themselves, or are nested too deep"
        raise InvalidWsdlError(f"{name} cannot be read: {why}") from error
    except Exception as error:  # zeep assumes a valid WSDL, and fails on others in many ways
        raise InvalidWsdlError(
            f"{name} cannot be read: {type(error).__name__}: {without_logins(str(error))}"
        ) from error
