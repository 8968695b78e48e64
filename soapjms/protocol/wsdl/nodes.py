"""The new elements of a port that is added: binding, operations, port, soapjms elements, in both WSDL versions.

Spec: SOAP/JMS 3.4, 3.5, 3.6; WSDL 1.1 3; WSDL 2.0 Adjuncts 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lxml import etree

from soapjms.protocol.names import Profile, SoapVersion
from soapjms.protocol.wsdl.documents import WSDL11, WSDL20, Document
from soapjms.protocol.wsdl.elements import CONTEXT_PARAMETER, NAMESPACES
from soapjms.protocol.wsdl.markup import Node, Scope
from soapjms.protocol.wsdl.wsdl11 import SOAP_BINDINGS, soap_element
from soapjms.protocol.wsdl.wsdl20 import WSOAP

_WSDL11: Final = f"{{{WSDL11}}}"
_WSDL20: Final = f"{{{WSDL20}}}"
_SOAP_PREFIX: Final[Mapping[SoapVersion, str]] = {SoapVersion.SOAP_11: "soap", SoapVersion.SOAP_12: "soap12"}
_LEFT_OUT: Final = frozenset({f"{_WSDL11}documentation"})


def extension_nodes(scope: Scope, profile: Profile, values: Mapping[str, str]) -> list[Node]:
    """Make the soapjms elements for property values."""
    nodes = []
    for name, value in values.items():
        is_parameter = name.startswith("jndi-")
        tag = scope.element(profile.namespace, CONTEXT_PARAMETER if is_parameter else name, "soapjms")
        attributes = [("name", name.removeprefix("jndi-")), ("value", value)] if is_parameter else []
        nodes.append(Node(tag, attributes, text="" if is_parameter else value))
    return nodes


# WSDL 1.1


def port_node(
    scope: Scope, name: str, binding: str, address: str, version: SoapVersion, extensions: Sequence[Node]
) -> Node:
    """Make a port."""
    location = Node(scope.element(SOAP_BINDINGS[version], "address", _SOAP_PREFIX[version]), [("location", address)])
    attributes = [("name", name), ("binding", scope.qname(binding, "tns"))]
    return Node(scope.element(WSDL11, "port", "wsdl"), attributes, [*extensions, location])


def binding11_node(
    scope: Scope,
    name: str,
    interface: str,
    version: SoapVersion,
    profile: Profile,
    extensions: Sequence[Node],
    documents: Sequence[Document],
) -> Node:
    """Make a binding: its operations are those of another SOAP binding of the port type, else document and literal."""
    source = _source(documents, interface, version)
    soap = None if source is None else soap_element(source, "binding")[0]
    style = "document" if soap is None else soap.get("style", "document")
    if source is None:
        operations = [_plain_operation(scope, each, version) for each in _operations(documents, interface)]
    else:
        operations = [_copy(scope, each, version) for each in source.iterchildren(f"{_WSDL11}operation")]
    attributes = [("style", style), ("transport", profile.namespace)]
    head = Node(scope.element(SOAP_BINDINGS[version], "binding", _SOAP_PREFIX[version]), attributes)
    own = [("name", name), ("type", scope.qname(interface, "tns"))]
    return Node(scope.element(WSDL11, "binding", "wsdl"), own, [head, *extensions, *operations])


def _source(documents: Sequence[Document], interface: str, version: SoapVersion) -> etree._Element | None:
    """Return a SOAP binding of the port type, rather one of the same SOAP version, None if there is none."""
    found = [
        element
        for document in documents
        for element in document.root.iterchildren(f"{_WSDL11}binding")
        if document.qname(element, "type") == interface and soap_element(element, "binding")[0] is not None
    ]
    found.sort(key=lambda each: soap_element(each, "binding")[1] is not version)
    return found[0] if found else None


def _operations(documents: Sequence[Document], interface: str) -> Iterator[etree._Element]:
    for document in documents:
        for element in document.root.iterchildren(f"{_WSDL11}portType"):
            if document.name_of(element) == interface:
                yield from element.iterchildren(f"{_WSDL11}operation")


def _plain_operation(scope: Scope, operation: etree._Element, version: SoapVersion) -> Node:
    def soap(local: str, *attributes: tuple[str, str]) -> Node:
        return Node(scope.element(SOAP_BINDINGS[version], local, _SOAP_PREFIX[version]), attributes)

    children = [soap("operation")]
    for part in operation.iterchildren(*(f"{_WSDL11}{each}" for each in ("input", "output", "fault"))):
        local, name = etree.QName(part).localname, part.get("name")
        named = [] if name is None else [("name", name)]
        inside = soap("fault", *named, ("use", "literal")) if local == "fault" else soap("body", ("use", "literal"))
        children.append(Node(scope.element(WSDL11, local, "wsdl"), named, [inside]))
    return Node(scope.element(WSDL11, "operation", "wsdl"), [("name", operation.get("name", ""))], children)


def _copy(scope: Scope, element: etree._Element, version: SoapVersion) -> Node:
    """Copy an element of a binding, with its SOAP elements for a SOAP version; documentation and ours are left out."""
    space = _moved(element, version)
    children = [
        _copy(scope, each, version)
        for each in element.iterchildren("*")
        if each.tag not in _LEFT_OUT and etree.QName(each).namespace not in NAMESPACES
    ]
    wanted = _SOAP_PREFIX[version] if space == SOAP_BINDINGS[version] else element.prefix or "ns"
    return Node(
        scope.element(space, etree.QName(element).localname, wanted),
        list(_attributes(scope, element, version)),
        children,
        "" if children else (element.text or "").strip(),
    )


def _moved(element: etree._Element, version: SoapVersion) -> str:
    space = etree.QName(element).namespace or ""
    return SOAP_BINDINGS[version] if space in SOAP_BINDINGS.values() else space


def _attributes(scope: Scope, element: etree._Element, version: SoapVersion) -> Iterator[tuple[str, str]]:
    is_soap = etree.QName(element).namespace in SOAP_BINDINGS.values()
    for key, value in element.items():
        name = etree.QName(key)
        if is_soap and name.localname == "soapActionRequired" and version is SoapVersion.SOAP_11:
            continue  # SOAP 1.1 has no such attribute
        if is_soap and name.localname == "message":  # of a header: the prefix may mean something else over there
            prefix, colon, local = str(value).rpartition(":")
            space = element.nsmap.get(prefix if colon else None, "")
            yield str(key), scope.qname(f"{{{space}}}{local}", "tns")
        else:
            written = f"{scope.prefix(name.namespace, 'ns')}:{name.localname}" if name.namespace else str(key)
            yield written, str(value)


# WSDL 2.0


def endpoint_node(scope: Scope, name: str, binding: str, address: str, extensions: Sequence[Node]) -> Node:
    """Make an endpoint."""
    attributes = [("name", name), ("binding", scope.qname(binding, "tns")), ("address", address)]
    return Node(scope.element(WSDL20, "endpoint", "wsdl"), attributes, extensions)


def binding20_node(
    scope: Scope,
    name: str,
    interface: str,
    version: SoapVersion,
    profile: Profile,
    extensions: Sequence[Node],
    documents: Sequence[Document],
) -> Node:
    """Make a binding; what other bindings of the interface say of actions is repeated."""
    soap = scope.prefix(WSOAP, "wsoap")
    actions: dict[str, str] = {}
    for document in documents:
        for element in document.root.iterchildren(f"{_WSDL20}binding"):
            if document.qname(element, "interface") == interface:
                for each in element.iterchildren(f"{_WSDL20}operation"):
                    actions.setdefault(document.qname(each, "ref"), each.get(f"{{{WSOAP}}}action", ""))
    tag = scope.element(WSDL20, "operation", "wsdl")
    operations = [
        Node(tag, [("ref", scope.qname(ref, "tns")), (f"{soap}:action", action)])
        for ref, action in actions.items()
        if action
    ]
    attributes = [
        ("name", name),
        ("interface", scope.qname(interface, "tns")),
        ("type", WSOAP),
        (f"{soap}:version", str(version)),
        (f"{soap}:protocol", profile.namespace),
    ]
    return Node(scope.element(WSDL20, "binding", "wsdl"), attributes, [*extensions, *operations])
