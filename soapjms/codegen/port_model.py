"""The port of a WSDL as the generator sees it: its operations, with the names that they have in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from lxml import etree

from soapjms.codegen.dataclass_source import DataclassSource, dataclass_source
from soapjms.codegen.python_text import pascal_case, snake_case, unique
from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidWsdlError, UsageError
from soapjms.protocol.text import named
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.documents import WSDL11
from soapjms.protocol.xml import XSD
from soapjms.zeep.description import (
    PortDescription,
    SchemaDocuments,
    add_wrapper,
    element_of,
    is_rpc,
    refuse_unserved,
    schema_root,
)

RESERVED_METHODS: Final = frozenset({"client", "contract", "close", "aclose", "float", "types", "faults"})
"""Names in generated classes that are no operations; the last ones are used in annotations."""

RESERVED_ARGUMENTS: Final = frozenset({"self", "request", "timeout", "expires", "types", "faults"})


@dataclass(frozen=True, slots=True)
class FaultModel:
    """A declared fault: its name in the WSDL, the name of its exception, and the class of its detail."""

    name: str
    error: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationModel:
    """One operation.

    Attributes:
        name: its name in the WSDL.
        method: the name of its method.
        action: its SOAP action, or None.
        documentation: its documentation in the WSDL.
        request, response: the classes of its messages; None for an empty body, or if there is no response.
        one_way: True if there is no response.
        rpc: True in the RPC style.
        headers: the class of each header block of a request, by the name of its argument.
        faults: its declared faults.
    """

    name: str
    method: str
    action: str | None
    documentation: str
    request: str | None
    response: str | None
    one_way: bool
    rpc: bool
    headers: Mapping[str, str]
    faults: tuple[FaultModel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortModel:
    """A port.

    Attributes:
        wsdl: the name of the WSDL's file.
        port: the port.
        client, async_client, service: the names of the generated classes.
        operations: the operations.
        faults: the faults of all operations, each once.
        types: the module of dataclasses.
    """

    wsdl: str
    port: Port
    client: str
    async_client: str
    service: str
    operations: Sequence[OperationModel]
    faults: Sequence[FaultModel]
    types: DataclassSource


def port_model(described: PortDescription) -> PortModel:
    """Make the model of a port.

    Raises:
        InvalidWsdlError: its schemas cannot be mapped to dataclasses.
        UsageError: an operation cannot be generated.
    """
    path = named(Path(described.path).name)
    if described.missing:
        raise InvalidWsdlError(f"{path} is incomplete: {described.missing[0]}")
    for operation in described.operations.values():
        refuse_unserved(operation)
    types = dataclass_source([*SchemaDocuments(described.documents), *_rpc_schemas(described, path)], path)
    taken = set(types.classes)
    base = pascal_case(described.port.service.name).removesuffix("Service") or "Port"
    client, async_client, service = (
        unique(each, taken) for each in (f"{base}Client", f"Async{base}Client", f"{base}Service")
    )
    maker = _ModelMaker(described, types, taken)
    operations = [maker.operation(name, each) for name, each in described.operations.items()]
    return PortModel(
        wsdl=path,
        port=described.port,
        client=client,
        async_client=async_client,
        service=service,
        operations=operations,
        faults=list(maker.faults.values()),
        types=types,
    )


def _rpc_schemas(described: PortDescription, path: str) -> Iterator[tuple[etree._Element, str]]:
    """Yield a schema for each wrapper element of an RPC message, which no schema of the WSDL has."""
    known = {
        etree.QName(namespace or None, each.get("name", "")).text
        for schema, namespace in SchemaDocuments(described.documents)
        for each in schema.iterchildren(f"{{{XSD}}}element")
        if each.get("name")
    }
    for operation in described.operations.values():
        for message in (operation.input, operation.output):
            if not is_rpc(message) or message.body is None:
                continue
            name = etree.QName(_wrapper_of(message))
            if name.text in known:
                raise InvalidWsdlError(
                    f"{path}: the schemas have an element {name.text}, which wraps a message of the RPC operation "
                    f"{operation.name} too; give the soap:body of the operation another namespace"
                )
            known.add(name.text)
            root, parts = schema_root(name.namespace or ""), cast(Any, message).abstract.parts
            add_wrapper(root, name.localname, list(parts.items()))
            yield root, name.namespace or ""


def _wrapper_of(message: Any) -> str:
    """Return the name of the element around an RPC message: that of the operation, with `Response` in a response."""
    name = etree.QName(element_of(message))
    ending = "Response" if message.type == "output" else ""
    return str(etree.QName(name.namespace, f"{message.operation.name}{ending}"))


class _ModelMaker:
    """Makes the models of operations.

    Args:
        described: the port.
        types: the module of dataclasses.
        taken: the names that classes may not have; those of faults are added.

    Attributes:
        faults: the faults so far, by name and class of the detail.
    """

    def __init__(self, described: PortDescription, types: DataclassSource, taken: set[str]) -> None:
        self._described, self._types, self._taken = described, types, taken
        self._methods = set(RESERVED_METHODS)
        self._documentation = dict(_documentation(described))
        self.faults: dict[tuple[str, str], FaultModel] = {}

    def operation(self, name: str, operation: Any) -> OperationModel:
        """Make the model of an operation."""
        arguments = set(RESERVED_ARGUMENTS)
        headers = {
            unique(snake_case(etree.QName(element.qname.text).localname), arguments): self._class(element.qname.text)
            for _, element in operation.input.header.type.elements
        }
        return OperationModel(
            name=name,
            method=unique(snake_case(name), self._methods),
            action=operation.soapaction or operation.abstract.wsa_action or None,
            documentation=self._documentation.get(name, ""),
            request=self._message(operation.input),
            response=None if operation.output is None else self._message(operation.output),
            one_way=operation.output is None,
            rpc=is_rpc(operation.input),
            headers=headers,
            faults=tuple(self._faults(operation)),
        )

    def _message(self, message: Any) -> str | None:
        """Return the class of the body of a message; None for an empty body."""
        if message.body is None:
            return None
        if is_rpc(message):
            return self._class(_wrapper_of(message))
        if message._is_body_wrapped and len(message.body.type.elements) > 1:
            raise UsageError(
                f"the operation {message.operation.name} has {len(message.body.type.elements)} parts in the body of a "
                "message; in document style there must be one (WS-I Basic Profile R2201)"
            )
        return self._class(element_of(message))

    def _class(self, element: str) -> str:
        found = self._types.elements.get(element)
        if found is None:
            raise InvalidWsdlError(f"the schemas of the WSDL have no element {named(element)}, which a message needs")
        return found

    def _faults(self, operation: Any) -> Iterator[FaultModel]:
        for name, message in operation.abstract.fault_messages.items():
            elements = [each.element.qname.text for each in message.parts.values() if each.element is not None]
            if len(elements) != 1:
                continue  # without an element it has no detail
            detail = self._class(elements[0])
            if (name, detail) not in self.faults:
                error = pascal_case(name)
                error = error if error.endswith("Error") and error not in self._taken else f"{error}Error"
                self.faults[name, detail] = FaultModel(name, unique(error, self._taken), detail)
            yield self.faults[name, detail]


def _documentation(described: PortDescription) -> Iterator[tuple[str, str]]:
    """Yield the name and the documentation of each operation of the port type."""
    name = etree.QName(described.binding.port_type.name.text)
    for octets in described.documents.values():
        root = xml.parse(octets)
        if root.get("targetNamespace") != name.namespace:
            continue
        for port_type in root.iterchildren(f"{{{WSDL11}}}portType"):
            if port_type.get("name") == name.localname:
                for each in port_type.iterchildren(f"{{{WSDL11}}}operation"):
                    text = each.find(f"{{{WSDL11}}}documentation")
                    yield each.get("name", ""), "" if text is None else "".join(text.itertext())
