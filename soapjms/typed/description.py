"""What a typed service goes by: a port of a WSDL, zeep's types for it, and the schema that requests are held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zeep
import zeep.exceptions
from lxml import etree
from zeep.wsdl import Document
from zeep.wsdl.messages import RpcMessage

from soapjms.protocol.errors import InvalidWsdlError, UsageError
from soapjms.protocol.wsdl import Finding, Port
from soapjms.protocol.xml import Misfit, Schema
from soapjms.typed.schemas import WRAPPERS, compiled
from soapjms.wsdl import read_wsdl
from soapjms.zeep.bindings import BINDING_CLASSES
from soapjms.zeep.client import read_document
from soapjms.zeep.loading import Loader, Loading


class _Kept(Loading):
    """Keeps the documents that it loads."""

    def __init__(self, loader: Loader | None, allow: Iterable[str | Path]) -> None:
        super().__init__(BINDING_CLASSES, loader, allow)
        self.documents: dict[str, bytes] = {}

    def load(self, url: str) -> bytes:
        octets = self.documents[url] = super().load(url)
        return octets


@dataclass(frozen=True, slots=True)
class Described:
    """A port of a WSDL.

    Attributes:
        path: of the WSDL.
        port: what the WSDL says of the port.
        document: what zeep made of the WSDL.
        binding: zeep's binding of the port.
        schema: None where nothing is held to it.
        missing: what the WSDL refers to and does not have; what depends on it is not in `operations`.
    """

    path: Path
    port: Port
    document: Document
    binding: Any
    schema: Schema | None
    missing: Sequence[Finding]

    @property
    def operations(self) -> Mapping[str, Any]:
        """zeep's operations, by name."""
        found: Mapping[str, Any] = self.binding.all()
        return found

    def misfit(self, element: etree._Element) -> str | None:
        """Say where and why an element does not fit the schema, None if it does, or there is no schema."""
        return None if self.schema is None else _said(self.schema.misfit(element))

    def content_misfit(self, element: etree._Element, message: Any) -> str | None:
        """Say the same of an element in the body of a message.

        The wrapper of an RPC message is in no schema by its name; the element is the caller's own copy.
        """
        if self.schema is None or not isinstance(message, RpcMessage):
            return self.misfit(element)
        tag, element.tag = element.tag, f"{{{WRAPPERS}}}{wrapper_name(message)}"
        found = self.schema.misfit(element)
        element.tag = tag
        return _said(found and found._replace(path=(etree.QName(element).localname, *found.path[1:])))


def _said(found: Misfit | None) -> str | None:
    return None if found is None else f"{'.'.join(found.path)}: {found.text}"


def wrapper_name(message: Any) -> str:
    """Return how the wrapper of an RPC message is called while it is checked."""
    return f"{message.operation.name}.{message.type}"


def described(
    path: str | Path, port: str | None, *, validate: bool, loader: Loader | None, allow: Iterable[str | Path] = ()
) -> Described:
    """Read a WSDL.

    Args:
        path: of the file.
        port: its name, or SERVICE/PORT; the only SOAP/JMS port where it is None.
        validate: make a schema that requests and answers are held to.
        loader: fetches what is no local file; without one that is refused.
        allow: folders that imports may be read from, beside that of the WSDL.

    Raises:
        InvalidWsdlError: the WSDL or a schema cannot be read or used.
        UsageError: there is no such port, or more than one.
    """
    allow = tuple(allow)
    said = read_wsdl(path, allow=allow)
    chosen = said.port(port)
    kept = _Kept(loader, allow)
    try:
        document = read_document(Path(path), kept, zeep.Settings())
    except (zeep.exceptions.Error, InvalidWsdlError) as error:
        if isinstance(error, InvalidWsdlError) and not said.missing:
            raise
        why = said.missing[0] if said.missing else error
        raise InvalidWsdlError(f"{path} cannot be used: {why}") from error
    try:
        binding = document.services[chosen.service.name].ports[chosen.name].binding
    except KeyError:
        raise UsageError(
            f"the port {chosen.name!r} has no SOAP binding that can be served; {_hint(document)}"
        ) from None
    schema = _schema(path, kept.documents, binding) if validate else None
    return Described(Path(path), chosen, document, binding, schema, said.missing)


def _hint(document: Document) -> str:
    there = [f"{name}/{port}" for name, service in document.services.items() for port in service.ports]
    return f"there are: {', '.join(there) or 'none'}"


def _schema(path: str | Path, documents: Mapping[str, bytes], binding: Any) -> Schema:
    messages: list[Any] = [
        message
        for operation in binding.all().values()
        for message in (operation.input, operation.output)
        if isinstance(message, RpcMessage) and message.body is not None
    ]
    wrappers = {wrapper_name(each): list(each.abstract.parts.items()) for each in messages}
    try:
        return compiled(documents, wrappers)
    except ValueError as error:
        raise InvalidWsdlError(
            f"{path}: its schemas are not as XML Schema has them: {error}; mend them, or give validate=False to go by "
            "the types alone"
        ) from None
