"""Adding a SOAP/JMS port to a WSDL: a binding, unless there is one, and a port with any properties on any level.

The rest of the document stays as it is, to the last character.

Spec: SOAP/JMS 3.4, 3.5, 3.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import quoteattr

from lxml import etree

from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidPropertyError, InvalidWsdlError, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, Profile, SoapVersion
from soapjms.protocol.properties import Origin, Source, check_source, read_value, resolve, shown
from soapjms.protocol.uri import Mode, checked
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.documents import WSDL11, WSDL20, Document, Load, load_documents, load_nothing
from soapjms.protocol.wsdl.levels import without_repeats
from soapjms.protocol.wsdl.markup import Edit, Node, Scope, Text, is_xml
from soapjms.protocol.wsdl.model import Binding, Description, Port, WsdlVersion
from soapjms.protocol.wsdl.nodes import binding11_node, binding20_node, endpoint_node, extension_nodes, port_node
from soapjms.protocol.wsdl.reading import read
from soapjms.protocol.wsdl.wsdl11 import soap_element

_NAME: Final = re.compile(r"[^\W\d][\w.-]*")
LEVELS: Final = (Origin.PORT, Origin.SERVICE, Origin.BINDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPort:
    """What to add.

    Attributes:
        address: the jms: URI, right in the strict grammar.
        service: the service that it goes into; may be left out where there is only one.
        name: of the port; by default the service's name and `Jms`.
        binding: the name of its binding: a SOAP/JMS binding so called is used, else a new one is made. By default a
            new one, with the name of the port type or interface and `Jms`.
        interface: the local name of the port type or interface; by default that of the service's other ports, or the
            only one there is.
        soap_version: of a new binding; by default that of the service's first SOAP port, else SOAP 1.1 in WSDL 1.1 and
            SOAP 1.2 in WSDL 2.0.
        profile: whose namespace the transport and the elements have.
        properties: values by property name (`jndi-NAME` for a jndiContextParameter), for the levels port, service and
            binding. Those of the service count for its other ports too, and must not change what those have already.
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
        octets: the document; the service has to be in this one, not in what it imports.
        new: what to add.
        file: the document's name, for errors.
        load: gets what it imports.

    Raises:
        InvalidWsdlError: the document cannot be read.
        InvalidUriError, InvalidPropertyError: the address or a property is not as it must be.
        UsageError: a name that is taken, or is not there, or cannot be chosen without being told; a property of the
            service that contradicts what is there.
    """
    checked(new.address, Mode.STRICT)
    values = {level: _written(level, new.properties.get(level, {})) for level in LEVELS}
    documents = load_documents(octets, file, load)
    text = Text(octets, documents[0].root)
    result = _Addition(text, documents, read(octets, file, load), new, values).octets()
    try:
        xml.parse(result)  # a targetNamespace that is no URI, as one, makes a document that cannot be read
    except ValueError as error:
        raise InvalidWsdlError(f"{file}: with the port it would be {error}") from None
    return result


def with_address(octets: bytes, port: Port, address: str, file: str = "WSDL") -> bytes:
    """Write another address for a port into a WSDL 1.1, and return the WSDL.

    Args:
        octets: the document that the port stands in.
        port: as it was read.
        address: the jms: URI, right in the strict grammar.
        file: the document's name, for errors.

    Raises:
        InvalidWsdlError: the port does not stand in the document, or has no address there.
        InvalidUriError: the address is not as it must be.
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
        trimmed = name.startswith("jndi-") or text == text.strip(" \t\r\n")
        if name == "jndi-" or not trimmed or not is_xml(name + text):
            raise InvalidPropertyError(
                f"{name} is {text!r} in {level}; a WSDL holds no control characters, no white space around a value, "
                "and no jndiContextParameter without a name"
            )
        written[name] = text
    resolve(wsdl={level: written})  # what may not stand together on one level is refused
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
            raise InvalidWsdlError(f"{self.document.file}: no targetNamespace, so that no port can name a binding")
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
        raise UsageError(f"service is {self.new.service!r}; say which one of those in {self.document.file}: {known}")

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
        raise UsageError(f"interface is {self.new.interface!r}; say which one of: {listed}")

    def _version(self) -> SoapVersion:
        found = [each.soap_version for each in self.ports if each.soap_version is not None]
        default = SoapVersion.SOAP_11 if self.is_11 else SoapVersion.SOAP_12
        return self.new.soap_version or (found[0] if found else default)

    def _existing(self) -> Binding | None:
        """Return the binding that was named, if there is one."""
        for name, binding in self.description.bindings.items():
            if name.rpartition("}")[2] == self.new.binding:
                if binding.profile is not self.new.profile or binding.soap_version is None:
                    raise UsageError(
                        f"the binding {self.new.binding!r} has the transport {binding.transport!r}, not "
                        f"{self.new.profile.namespace!r}; choose another name for a new binding"
                    )
                if self.values[Origin.BINDING] or self.new.soap_version not in (None, binding.soap_version):
                    raise UsageError(
                        f"the binding {self.new.binding!r} is there already, and other ports have it: choose another "
                        "name for one of another SOAP version or with properties"
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
                raise UsageError(f"there is a binding {local!r} already: name it as the binding to use it, or another")
            edits.append(self._binding_edit(local, interface, version))
        else:
            binding = existing.name
        return self.text.edited([*edits, *self._service_edits(binding, version)])

    def _binding_edit(self, name: str, interface: str, version: SoapVersion) -> Edit:
        """Put the binding behind the last one, or before the service."""
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
        """Put the service's elements first, behind its documentation, and the port behind all that is in it."""
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

    def _lines(self, nodes: Iterable[Node]) -> str:
        step = self._step()
        indent = self.text.indent(self.service) + step
        return "".join(f"\n{line}" for node in nodes for line in node.lines(indent, step))

    def _step(self) -> str:
        """Return by how much the document indents: its service's indent, else two spaces."""
        return self.text.indent(self.service) or "  "


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} is no name for a WSDL; accepted are letters, digits, - . _, a letter or _ first")
    return name
