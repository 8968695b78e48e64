"""Adding a SOAP/JMS port to a WSDL: a binding, unless there is one, and a port with any properties on any level.

The rest of the document stays as it is, to the last character. The new elements (binding, operations, port, soapjms
elements) are made for both WSDL versions. Properties of a service are added only if they do not change those that it
and its ports already have.

Spec: SOAP/JMS 3.4, 3.4.4, 3.5, 3.6; WSDL 1.1 3; WSDL 2.0 Adjuncts 5; WSDLUsage-3001, WSDLUsage-3002.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from xml.sax.saxutils import quoteattr

from lxml import etree

from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidPropertyError, InvalidWsdlError, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, Profile, SoapVersion
from soapjms.protocol.properties import Origin, Source, check_source, read_value, resolve, shown
from soapjms.protocol.uri import Mode, checked
from soapjms.protocol.uri.model import SAME_IN_JNDI
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.as_json import shown_safely
from soapjms.protocol.wsdl.documents import WSDL11, WSDL20, Document, Load, load_documents, load_nothing
from soapjms.protocol.wsdl.elements import CONTEXT_PARAMETER, NAMESPACES, Extension
from soapjms.protocol.wsdl.findings import Finding, Severity
from soapjms.protocol.wsdl.markup import Edit, NewElement, Scope, Text, is_xml
from soapjms.protocol.wsdl.model import Binding, Description, Port, Service, WsdlVersion
from soapjms.protocol.wsdl.reader import read
from soapjms.protocol.wsdl.wsdl11 import SOAP_BINDINGS, soap_element
from soapjms.protocol.wsdl.wsdl20 import WSOAP
from soapjms.protocol.xml import WHITE_SPACE

_WSDL11: Final = f"{{{WSDL11}}}"
_WSDL20: Final = f"{{{WSDL20}}}"
_SOAP_PREFIX: Final[Mapping[SoapVersion, str]] = {SoapVersion.SOAP_11: "soap", SoapVersion.SOAP_12: "soap12"}
_LEFT_OUT: Final = frozenset({f"{_WSDL11}documentation"})


def extension_nodes(scope: Scope, profile: Profile, values: Mapping[str, str]) -> list[NewElement]:
    """Make the soapjms elements for property values."""
    nodes = []
    for name, value in values.items():
        is_parameter = name.startswith("jndi-")
        tag = scope.element(profile.namespace, CONTEXT_PARAMETER if is_parameter else name, "soapjms")
        attributes = [("name", name.removeprefix("jndi-")), ("value", value)] if is_parameter else []
        nodes.append(NewElement(tag, attributes, text="" if is_parameter else value))
    return nodes


# WSDL 1.1


def port_node(
    scope: Scope, name: str, binding: str, address: str, version: SoapVersion, extensions: Sequence[NewElement]
) -> NewElement:
    """Make a port."""
    location = NewElement(
        scope.element(SOAP_BINDINGS[version], "address", _SOAP_PREFIX[version]), [("location", address)]
    )
    attributes = [("name", name), ("binding", scope.qname(binding, "tns"))]
    return NewElement(scope.element(WSDL11, "port", "wsdl"), attributes, [*extensions, location])


def binding11_node(
    scope: Scope,
    name: str,
    interface: str,
    version: SoapVersion,
    profile: Profile,
    extensions: Sequence[NewElement],
    documents: Sequence[Document],
) -> NewElement:
    """Make a binding with the operations of another SOAP binding of the port type, else in document/literal style."""
    source = _source(documents, interface, version)
    soap = None if source is None else soap_element(source, "binding")[0]
    style = "document" if soap is None else soap.get("style", "document")
    if source is None:
        operations = [_plain_operation(scope, each, version) for each in _operations(documents, interface)]
    else:
        operations = [_copy(scope, each, version) for each in source.iterchildren(f"{_WSDL11}operation")]
    attributes = [("style", style), ("transport", profile.namespace)]
    head = NewElement(scope.element(SOAP_BINDINGS[version], "binding", _SOAP_PREFIX[version]), attributes)
    own = [("name", name), ("type", scope.qname(interface, "tns"))]
    return NewElement(scope.element(WSDL11, "binding", "wsdl"), own, [head, *extensions, *operations])


def _source(documents: Sequence[Document], interface: str, version: SoapVersion) -> etree._Element | None:
    """Return a SOAP binding of the port type, preferably of the same SOAP version; None if there is none."""
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


def _plain_operation(scope: Scope, operation: etree._Element, version: SoapVersion) -> NewElement:
    def soap(local: str, *attributes: tuple[str, str]) -> NewElement:
        return NewElement(scope.element(SOAP_BINDINGS[version], local, _SOAP_PREFIX[version]), attributes)

    children = [soap("operation")]
    for part in operation.iterchildren(*(f"{_WSDL11}{each}" for each in ("input", "output", "fault"))):
        local, name = etree.QName(part).localname, part.get("name")
        named = [] if name is None else [("name", name)]
        inside = soap("fault", *named, ("use", "literal")) if local == "fault" else soap("body", ("use", "literal"))
        children.append(NewElement(scope.element(WSDL11, local, "wsdl"), named, [inside]))
    return NewElement(scope.element(WSDL11, "operation", "wsdl"), [("name", operation.get("name", ""))], children)


def _copy(scope: Scope, element: etree._Element, version: SoapVersion) -> NewElement:
    """Copy an element of a binding for a SOAP version, without documentation and soapjms elements."""
    space = _moved(element, version)
    children = [
        _copy(scope, each, version)
        for each in element.iterchildren("*")
        if each.tag not in _LEFT_OUT and etree.QName(each).namespace not in NAMESPACES
    ]
    wanted = _SOAP_PREFIX[version] if space == SOAP_BINDINGS[version] else element.prefix or "ns"
    return NewElement(
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
        if is_soap and name.localname == "message":  # of a header: the prefix may mean something else at the new place
            prefix, colon, local = str(value).rpartition(":")
            space = element.nsmap.get(prefix if colon else None, "")
            yield str(key), scope.qname(f"{{{space}}}{local}", "tns")
        else:
            written = f"{scope.prefix(name.namespace, 'ns')}:{name.localname}" if name.namespace else str(key)
            yield written, str(value)


# WSDL 2.0


def endpoint_node(scope: Scope, name: str, binding: str, address: str, extensions: Sequence[NewElement]) -> NewElement:
    """Make an endpoint."""
    attributes = [("name", name), ("binding", scope.qname(binding, "tns")), ("address", address)]
    return NewElement(scope.element(WSDL20, "endpoint", "wsdl"), attributes, extensions)


def binding20_node(
    scope: Scope,
    name: str,
    interface: str,
    version: SoapVersion,
    profile: Profile,
    extensions: Sequence[NewElement],
    documents: Sequence[Document],
) -> NewElement:
    """Make a binding, with the actions that other bindings of the interface state."""
    soap = scope.prefix(WSOAP, "wsoap")
    actions: dict[str, str] = {}
    for document in documents:
        for element in document.root.iterchildren(f"{_WSDL20}binding"):
            if document.qname(element, "interface") == interface:
                for each in element.iterchildren(f"{_WSDL20}operation"):
                    actions.setdefault(document.qname(each, "ref"), each.get(f"{{{WSOAP}}}action", ""))
    tag = scope.element(WSDL20, "operation", "wsdl")
    operations = [
        NewElement(tag, [("ref", scope.qname(ref, "tns")), (f"{soap}:action", action)])
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
    return NewElement(scope.element(WSDL20, "binding", "wsdl"), attributes, [*extensions, *operations])


REPLY_NAMES = ("replyToName", "topicReplyToName")


def without_repeats(new: Mapping[str, str], service: Service, ports: Iterable[Port]) -> dict[str, str]:
    """Return the new properties that a service does not have already.

    Args:
        new: the checked properties, by name.
        service: the service.
        ports: its ports; effects on ports that cannot be used are not checked.

    Raises:
        InvalidPropertyError: there would be both reply names, one of them new.
        UsageError: the service has the property with another value, or one of its ports has another value that the new
            one would override.
    """
    there = {each.name: each.value or "" for each in service.extensions}
    both = {**there, **new}
    resolve(wsdl={Origin.SERVICE: {name: both[name] for name in REPLY_NAMES if name in both}})
    written = {name: text for name, text in new.items() if not _is_there(name, text, there, service)}
    usable = [each for each in ports if each.profile is not None and not any(map(_is_error, each.problems()))]
    for name, text in written.items():
        extensions = (*service.extensions, _element(name, text, service))
        for port in usable:
            _refuse_to_change(name, text, port, replace(port, service=replace(service, extensions=extensions)))
    return written


def _is_error(found: Finding) -> bool:
    return found.severity is Severity.ERROR


def _is_there(name: str, text: str, there: Mapping[str, str], service: Service) -> bool:
    """Say whether a service has a property already; refuse another value."""
    seen = next((each for each in _names_of(name) if each in there), None)
    if seen is None:
        return False
    old, new = (read_value(name, value, Origin.SERVICE) for value in (there[seen], text))
    if old == new:
        return True
    raise UsageError(
        f"{name} of the service {service.name!r} cannot be set to {shown_safely(name, new)!r}, as {seen} is "
        f"{shown_safely(seen, old)!r} there already ({service.place}); omit it, or set it on the port"
    )


def _names_of(name: str) -> Iterator[str]:
    """Yield the names of a setting; some JNDI settings have two."""
    yield name
    yield from (other for pair in SAME_IN_JNDI.items() if name in pair for other in pair if other != name)


def _element(name: str, text: str, service: Service) -> Extension:
    """Make the element of a property as if it had been read."""
    element = CONTEXT_PARAMETER if name.startswith("jndi-") else name
    return Extension(element, "", name, text, "service", nested=False, place=service.place)


def _refuse_to_change(new: str, text: str, before: Port, after: Port) -> None:
    now, then = before.effective(), after.effective()
    value = shown_safely(new, read_value(new, text, Origin.SERVICE))
    for name, found in now.items():
        if now.stated(name) is not None and then.value(name) != found.value:
            raise UsageError(
                f"{new} {value!r} of the service would override {name} "
                f"{shown_safely(name, found.value)!r} of the {found.origin} for the {before.wsdl.port} "
                f"{before.name!r}, which is there already (WSDLUsage-3002); set it on the new port only"
            )


_NAME: Final = re.compile(r"[^\W\d][\w.-]*")
LEVELS: Final = (Origin.PORT, Origin.SERVICE, Origin.BINDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPort:
    """A port to add.

    Attributes:
        address: the jms: URI, valid in the strict grammar.
        service: the service to add the port to; None for the only one.
        name: the name of the port; by default the service's name and `Jms`.
        binding: the name of its binding: an existing SOAP/JMS binding of that name is used, else a new one is made. By
            default a new one, with the name of the port type or interface and `Jms`.
        interface: the local name of the port type or interface; by default that of the service's other ports, or the
            only one.
        soap_version: the SOAP version of a new binding; by default that of the service's first SOAP port, else SOAP 1.1
            in WSDL 1.1 and SOAP 1.2 in WSDL 2.0.
        profile: the profile whose namespace the transport and the elements have.
        properties: values by property name (`jndi-NAME` for a jndiContextParameter), for the levels port, service and
            binding. Those of the service apply to its other ports too, and must not change their properties.
    """

    address: str
    service: str | None = None
    name: str | None = None
    binding: str | None = None
    interface: str | None = None
    soap_version: SoapVersion | None = None
    profile: Profile = DEFAULT_PROFILE
    properties: Mapping[Origin, Mapping[str, Value]] = field(default_factory=dict)


def add_port(octets: bytes, new: NewPort, file: str = "WSDL", load: Load = load_nothing) -> bytes:
    """Add a SOAP/JMS port to a WSDL, and return the WSDL.

    Args:
        octets: the document; the service must be in this one, not in an imported one.
        new: the port to add.
        file: the document's name, for errors.
        load: loads imported documents.

    Raises:
        InvalidWsdlError: the document cannot be read.
        InvalidUriError, InvalidPropertyError: the address or a property is not valid.
        UsageError: a name is taken, does not exist, or must be given; or a property of the service contradicts an
            existing one.
    """
    checked(new.address, Mode.STRICT)
    values = {level: _written(level, new.properties.get(level, {})) for level in LEVELS}
    documents = load_documents(octets, file, load)
    text = Text(octets, documents[0].root)
    result = _Addition(text, documents, read(octets, file, load), new, values).octets()
    try:
        xml.parse(result)  # a targetNamespace that is not a URI makes the document unreadable
    except ValueError as error:
        raise InvalidWsdlError(f"{file}: with the port it would be {error}") from None
    return result


def with_address(octets: bytes, port: Port, address: str, file: str = "WSDL") -> bytes:
    """Write another address for a port into a WSDL 1.1, and return the WSDL.

    Args:
        octets: the document that has the port.
        port: the port, as it was read.
        address: the jms: URI, valid in the strict grammar.
        file: the document's name, for errors.

    Raises:
        InvalidWsdlError: the document does not have the port, or the port has no address there.
        InvalidUriError: the address is not valid.
    """
    checked(address, Mode.STRICT)
    root = xml.parse(octets)
    text = Text(octets, root)
    for element in root.iterfind(f"{{{WSDL11}}}service/{{{WSDL11}}}port"):
        parent, (soap, _) = element.getparent(), soap_element(element, "address")
        if (
            parent is None
            or soap is None
            or (parent.get("name"), element.get("name")) != (port.service.name, port.name)
        ):
            continue
        span = text.span(soap)
        for found in _ATTRIBUTE.finditer(text.text, span.start, span.inside):
            if found["name"] == "location":
                return text.edited([Edit(found.start("value"), found.end("value"), quoteattr(address))])
    raise InvalidWsdlError(f"{file}: the port {port.service.name}/{port.name} has no address in this document")


_ATTRIBUTE: Final = re.compile(r"""\s(?P<name>[^\s="'<>]+)\s*=\s*(?P<value>"[^"]*"|'[^']*')""")


def _written(level: Origin, properties: Mapping[str, Value]) -> dict[str, str]:
    """Check properties for a level, and return their values as they are written."""
    written = {}
    for name, value in properties.items():
        check_source(name, Source.WSDL, level)
        text = str(shown(name, read_value(name, str(value), level)))
        trimmed = name.startswith("jndi-") or text == text.strip(WHITE_SPACE)
        if name == "jndi-" or not trimmed or not is_xml(name + text):
            raise InvalidPropertyError(
                f"{name} is {text!r} in {level}; a WSDL holds no control characters, no white space around a value, "
                "and no jndiContextParameter without a name"
            )
        written[name] = text
    resolve(wsdl={level: written})  # refuses properties that exclude each other on one level
    return written


class _Addition:
    """One port to be added to one document."""

    def __init__(
        self,
        text: Text,
        documents: Sequence[Document],
        description: Description,
        new: NewPort,
        values: Mapping[Origin, Mapping[str, str]],
    ) -> None:
        self.text, self.documents, self.description, self.new, self.values = text, documents, description, new, values
        self.is_11 = description.version is WsdlVersion.WSDL_11
        self.wsdl = WSDL11 if self.is_11 else WSDL20
        self.document = documents[0]
        self.root = self.document.root
        if not self.document.namespace:
            raise InvalidWsdlError(f"{self.document.file}: no targetNamespace, so ports cannot refer to a binding")
        self.service = self._choose_service()
        place = self.document.place(self.service)
        name = self.service.get("name", "")
        self.ports = [each for each in description.ports if (each.service.place, each.service.name) == (place, name)]
        here = next(each for each in description.services if (each.place, each.name) == (place, name))
        self.of_service = without_repeats(values[Origin.SERVICE], here, self.ports)

    # Choices

    def _choose_service(self) -> etree._Element:
        found = self.document.children(self.root, f"{{{self.wsdl}}}service")
        chosen = [each for each in found if self.new.service in (None, each.get("name"))]
        if len(chosen) == 1:
            return chosen[0]
        known = ", ".join(each.get("name", "") for each in found) or "none"
        raise UsageError(f"service must be one of those in {self.document.file} ({known}), got {self.new.service!r}")

    def _port_name(self) -> str:
        name = self.new.name or f"{self.service.get('name', '')}Jms"
        if any(each.name == name for each in self.ports):
            raise UsageError(f"the service has a {self.description.version.port} {name!r} already; choose another name")
        return _checked_name(name)

    def _interface(self) -> str:
        """Return the port type or interface in Clark notation."""
        tag = f"{{{self.wsdl}}}{'portType' if self.is_11 else 'interface'}"
        known = [document.name_of(each) for document in self.documents for each in document.root.iterchildren(tag)]
        wanted = [each.binding.interface for each in self.ports if each.binding is not None and each.binding.interface]
        if not self.is_11:
            wanted.insert(0, self.document.qname(self.service, "interface"))
        if self.new.interface is not None:
            found = [each for each in known if each.rpartition("}")[2] == self.new.interface]
        else:
            found = [each for each in dict.fromkeys(wanted) if each in known] or known
        if len(found) == 1:
            return found[0]
        listed = ", ".join(each.rpartition("}")[2] for each in known) or "none"
        raise UsageError(f"interface must be one of {listed}, got {self.new.interface!r}")

    def _version(self) -> SoapVersion:
        found = [each.soap_version for each in self.ports if each.soap_version is not None]
        default = SoapVersion.SOAP_11 if self.is_11 else SoapVersion.SOAP_12
        return self.new.soap_version or (found[0] if found else default)

    def _existing(self) -> Binding | None:
        """Return the existing binding of the given name, or None."""
        for name, binding in self.description.bindings.items():
            if name.rpartition("}")[2] == self.new.binding:
                if binding.profile is not self.new.profile or binding.soap_version is None:
                    raise UsageError(
                        f"the binding {self.new.binding!r} has the transport {binding.transport!r}, not "
                        f"{self.new.profile.namespace!r}; choose another name for a new binding"
                    )
                if self.values[Origin.BINDING] or self.new.soap_version not in (None, binding.soap_version):
                    raise UsageError(
                        f"the binding {self.new.binding!r} exists already, and other ports may use it: choose another "
                        "name for a binding of another SOAP version or with properties"
                    )
                return binding
        return None

    # Writing

    def octets(self) -> bytes:
        """Return the document with the port."""
        existing = self._existing()
        version = self._version() if existing is None else existing.soap_version
        assert version is not None
        edits = []
        if existing is None:
            interface = self._interface()
            local = _checked_name(self.new.binding or f"{interface.rpartition('}')[2]}Jms")
            binding = f"{{{self.document.namespace}}}{local}"
            if binding in self.description.bindings:
                raise UsageError(f"there is a binding {local!r} already: set binding to use it, or to another name")
            edits.append(self._binding_edit(local, interface, version))
        else:
            binding = existing.name
        return self.text.edited([*edits, *self._service_edits(binding, version)])

    def _binding_edit(self, name: str, interface: str, version: SoapVersion) -> Edit:
        """Insert the binding after the last one, or before the service."""
        scope = Scope(self.root.nsmap)
        extensions = extension_nodes(scope, self.new.profile, self.values[Origin.BINDING])
        make = binding11_node if self.is_11 else binding20_node
        node = scope.complete(make(scope, name, interface, version, self.new.profile, extensions, self.documents))
        indent = self.text.indent(self.service)
        lines = "\n".join(node.lines(indent, self._step()))
        others = self.document.children(self.root, f"{{{self.wsdl}}}binding")
        if others:
            at = self.text.span(others[-1]).after
            return Edit(at, at, f"\n{lines}")
        at = self.text.span(self.service).start
        return Edit(at, at, f"{lines.lstrip()}\n{indent}")

    def _service_edits(self, binding: str, version: SoapVersion) -> list[Edit]:
        """Insert the service's elements after its documentation, and the port at its end."""
        elements = []
        for name, value in self.of_service.items():
            scope = Scope(self.service.nsmap)
            elements += [scope.complete(each) for each in extension_nodes(scope, self.new.profile, {name: value})]
        scope = Scope(self.service.nsmap)
        extensions = extension_nodes(scope, self.new.profile, self.values[Origin.PORT])
        if self.is_11:
            node = port_node(scope, self._port_name(), binding, self.new.address, version, extensions)
        else:
            node = endpoint_node(scope, self._port_name(), binding, self.new.address, extensions)
        port = scope.complete(node)
        span = self.text.span(self.service)
        if span.is_empty:
            close = f"\n{self.text.indent(self.service)}</{self._tag()}>"
            return [Edit(span.inside - 2, span.inside, f">{self._lines([*elements, port])}{close}")]
        documentation = self.service.find(f"{{{self.wsdl}}}documentation")
        children = list(self.service.iterchildren("*"))
        first = span.inside if documentation is None else self.text.span(documentation).after
        last = self.text.span(children[-1]).after if children else span.inside
        if first == last:
            return [Edit(first, first, self._lines([*elements, port]))]
        return [Edit(first, first, self._lines(elements)), Edit(last, last, self._lines([port]))]

    def _tag(self) -> str:
        prefix = f"{self.service.prefix}:" if self.service.prefix else ""
        return prefix + etree.QName(self.service).localname

    def _lines(self, nodes: Iterable[NewElement]) -> str:
        step = self._step()
        indent = self.text.indent(self.service) + step
        return "".join(f"\n{line}" for node in nodes for line in node.lines(indent, step))

    def _step(self) -> str:
        """Return the indentation step of the document: its service's indent, else two spaces."""
        return self.text.indent(self.service) or "  "


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"a name must have letters, digits, - . _ only, with a letter or _ first, got {name!r}")
    return name
