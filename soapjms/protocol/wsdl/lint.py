"""Judging a WSDL: broken rules, contradictions, missing components, and probable mistakes.

Problems that make a port unusable are found by the port itself (`Port.problems`), and are listed here with the rest.
Missing components are those that a WSDL refers to and does not have, such as the port type of a binding, the message of
an operation or the type of a part.

Only components that are certainly missing are reported. Names that an import without a location, or a schema that is
not read here, may define are not; references among schemas are not checked.

Spec: SOAP/JMS 3.4 to 3.6; WSDLUsage-3001 to 3004; WSDL 1.1 2.1 to 2.5, 3.7; WSDL 2.0 2.2 to 2.12; XML Schema 1.0
4.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from lxml import etree

from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.properties import Effective, Origin, read_value
from soapjms.protocol.uri.model import SAME_IN_JNDI
from soapjms.protocol.uri.redact import holds_secret, is_secret_name
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.as_json import shown_safely
from soapjms.protocol.wsdl.documents import SCHEMA, WSDL11, WSDL20, Document
from soapjms.protocol.wsdl.elements import Extension
from soapjms.protocol.wsdl.findings import Finding, Severity, finding
from soapjms.protocol.wsdl.model import Description, Port, WsdlVersion
from soapjms.protocol.wsdl.schemas import REFERRING, schemas_in
from soapjms.protocol.wsdl.wsdl11 import SOAP_BINDINGS
from soapjms.protocol.xml import XSD


def lint(description: Description) -> tuple[Finding, ...]:
    """Return all findings about a WSDL, each once, by file and line."""
    found = [each for check in CHECKS for each in check(description)]
    return tuple(sorted(dict.fromkeys(found), key=lambda each: (each.place, each.code, each.text)))


def _problems(description: Description) -> Iterator[Finding]:
    for port in description.ports:
        yield from port.problems()


# Elements


class _Holder:
    """A binding, service or port that holds soapjms elements, with the SOAP/JMS ports that they apply to."""

    def __init__(self, what: str, name: str, extensions: Sequence[Extension], ports: Sequence[Port]) -> None:
        self.what = f"{what} {name!r}"
        self.extensions = extensions
        self.reached = [each for each in ports if each.profile is not None]


def _holders(description: Description) -> Iterator[_Holder]:
    by_binding: dict[str, list[Port]] = {}
    by_service: dict[int, list[Port]] = {}
    for port in description.ports:
        by_binding.setdefault(port.binding_name, []).append(port)
        by_service.setdefault(id(port.service), []).append(port)
        yield _Holder(port.wsdl.port, port.name, port.extensions, [port])
    for binding in description.bindings.values():
        local = binding.name.rpartition("}")[2]
        yield _Holder("binding", local, binding.extensions, by_binding.get(binding.name, []))
    for service in description.services:
        yield _Holder("service", service.name, service.extensions, by_service.get(id(service), []))


def _elements(description: Description) -> Iterator[Finding]:
    for holder in _holders(description):
        counts = Counter(each.name for each in holder.extensions)
        for each in holder.extensions:
            if counts[each.name] > 1:
                seen = {"name": each.called, "count": counts[each.name], "inside": holder.what}
                yield finding("repeatedElement", each.place, **seen)
            if is_secret_name(each.name) or holds_secret(each.value or ""):
                yield finding("secret", each.place, name=each.name, inside=holder.what)
            yield from _reach(each, holder)


def _reach(extension: Extension, holder: _Holder) -> Iterator[Finding]:
    """Report an element that applies to no port, or is of another edition than the transport of its ports."""
    namespaces = {port.profile.namespace for port in holder.reached if port.profile is not None}
    if not namespaces:
        why = "it has no SOAP/JMS transport, or no port has it"
        seen = {"name": extension.element, "inside": holder.what, "why": why, "what": f"the {holder.what}"}
        yield finding("unusedElement", extension.place, **seen)
    elif extension.namespace not in namespaces:
        seen = {"name": extension.element, "seen": extension.namespace, "transport": min(namespaces)}
        yield finding("mixedNamespaces", extension.place, **seen)


def _misplaced(description: Description) -> Iterator[Finding]:
    port = description.version.port
    for each in description.misplaced:
        yield finding("wrongPlace", each.place, name=each.element, inside=each.inside, port=port)


def _schemas(description: Description) -> Iterator[Finding]:
    return (each.finding() for each in description.remote_schemas)


def _missing(description: Description) -> Iterator[Finding]:
    yield from description.missing


# Ports that can be used


def _usable(description: Description) -> Iterator[tuple[Port, Effective]]:
    for port in description.ports:
        if port.profile is not None and all(each.severity is not Severity.ERROR for each in port.problems()):
            yield port, port.effective()


def _contradictions(description: Description) -> Iterator[Finding]:
    for port, effective in _usable(description):
        for origin, extensions in port.levels():
            for each in {extension.name: extension for extension in extensions}.values():
                yield from _contradiction(port, effective, each, origin)


_OTHER_NAME: Final = {**SAME_IN_JNDI, **{own: alias for alias, own in SAME_IN_JNDI.items()}}
"""For each setting with two names, each name with the other."""


def _contradiction(port: Port, effective: Effective, extension: Extension, origin: Origin) -> Iterator[Finding]:
    wins = effective.get(extension.name) or effective.get(_OTHER_NAME.get(extension.name, ""))
    value = read_value(extension.name, extension.value or "", origin)
    if wins is None or wins.origin is origin or wins.value == value:
        return
    code = "overriddenByUri" if wins.origin is Origin.URI else "overridden"
    shown: dict[str, Value] = {
        "seen": shown_safely(extension.name, value),
        "wins": shown_safely(extension.name, wins.value),
    }
    seen = {"name": extension.called, "inside": extension.inside, "port": port.name, "by": wins.origin}
    yield finding(code, extension.place, **shown, **seen)


def _replies(description: Description) -> Iterator[Finding]:
    for port, effective in _usable(description):
        elements = [each for _, extensions in port.levels() for each in extensions if each.name == "topicReplyToName"]
        place = elements[0].place if elements else port.address_place
        if "topicReplyToName" not in effective.overridden or "topicReplyToName" in effective:
            continue
        code = "bothReplyNames" if "replyToName" in effective else "topicReplyWithJndi"
        yield finding(code, place, port=port.name)


def _ports(description: Description) -> Iterator[Finding]:
    for port, effective in _usable(description):
        if effective.value("lookupVariant") == "jndi" and "jndiConnectionFactoryName" not in effective:
            yield finding("missingFactory", port.address_place, port=port.name)
        if port.address_version not in (None, port.soap_version):
            seen = {"port": port.name, "seen": port.address_version, "wanted": port.soap_version}
            yield finding("addressVersion", port.address_place, **seen)
        counts = Counter(each.name for each in port.operations)
        for each in port.operations:
            if each.mep is None:
                yield finding("otherPattern", each.place, seen=each.name, port=port.name)
            if counts[each.name] > 1:
                yield finding("overloaded", each.place, seen=each.name, port=port.name, count=counts[each.name])


CHECKS: Final[Sequence[Callable[[Description], Iterator[Finding]]]] = (
    _problems,
    _elements,
    _misplaced,
    _schemas,
    _missing,
    _contradictions,
    _replies,
    _ports,
)


MAX_REFERENCES: Final = 20_000
MAX_SUGGESTED_NAMES: Final = 5
"""Most names that are suggested in place of a missing one."""

BUILT_IN: Final = (
    "string boolean decimal float double duration dateTime time date gYearMonth gYear gMonthDay gDay gMonth hexBinary "
    "base64Binary anyURI QName NOTATION normalizedString token language NMTOKEN NMTOKENS Name NCName ID IDREF IDREFS "
    "ENTITY ENTITIES integer nonPositiveInteger negativeInteger long int short byte nonNegativeInteger unsignedLong "
    "unsignedInt unsignedShort unsignedByte positiveInteger anyType anySimpleType anyAtomicType dateTimeStamp "
    "dayTimeDuration yearMonthDuration"
).split()
SCHEMA_COMPONENTS: Final[Mapping[str, Sequence[str]]] = {
    "missingElement": (f"{{{XSD}}}element",),
    "missingType": (f"{{{XSD}}}complexType", f"{{{XSD}}}simpleType"),
}
ENCODINGS: Final = ("http://schemas.xmlsoap.org/soap/encoding/", "http://www.w3.org/2003/05/soap-encoding")
"""Namespaces whose types stacks have built in, without an import."""


class Reference(NamedTuple):
    """One row: an attribute that names other components.

    Attributes:
        path: the elements with the attribute, as local names below the root.
        attribute: the name of the attribute.
        code: the row of `RULES` for a missing name.
        section: the section of WSDL 1.1 or 2.0.
        required: True if a missing attribute is reported like a wrong one.
        of: the attribute of the parent that names the owner of the components; if empty, their names are qualified.
    """

    path: str
    attribute: str
    code: str
    section: str
    required: bool = False
    of: str = ""


class WsdlKind(NamedTuple):
    """One version of WSDL: its namespace, its references, and the paths of the components that they name."""

    namespace: str
    references: Sequence[Reference]
    declared: Mapping[str, str]

    def path(self, steps: str) -> str:
        """Return the path to elements, for lxml; a step with a namespace keeps it."""
        return "/".join(each if each[0] == "{" else f"{{{self.namespace}}}{each}" for each in _steps(steps))


def _steps(path: str) -> list[str]:
    """Split a path; the last step may have a namespace, which has slashes itself."""
    plain, brace, last = path.partition("/{")
    return plain.split("/") + ([f"{{{last}"] if brace else [])


KINDS: Final[Mapping[WsdlVersion, WsdlKind]] = {
    WsdlVersion.WSDL_11: WsdlKind(
        WSDL11,
        (
            Reference("binding", "type", "missingInterface", "2.5", required=True),
            Reference("binding/operation", "name", "missingOperation", "2.5", of="type"),
            *(
                Reference(f"portType/operation/{each}", "message", "missingMessage", "2.4", required=True)
                for each in ("input", "output", "fault")
            ),
            *(
                Reference(f"binding/operation/{each}/{{{space}}}header", "message", "missingMessage", "3.7")
                for each in ("input", "output")
                for space in SOAP_BINDINGS.values()
            ),
            Reference("message/part", "element", "missingElement", "2.3"),
            Reference("message/part", "type", "missingType", "2.3"),
        ),
        {"missingInterface": "portType", "missingMessage": "message"},
    ),
    WsdlVersion.WSDL_20: WsdlKind(
        WSDL20,
        (
            Reference("interface", "extends", "missingInterface", "2.2"),
            Reference("interface/fault", "element", "missingElement", "2.3"),
            Reference("interface/operation/input", "element", "missingElement", "2.5"),
            Reference("interface/operation/output", "element", "missingElement", "2.5"),
            Reference("interface/operation/infault", "ref", "missingFault", "2.6"),
            Reference("interface/operation/outfault", "ref", "missingFault", "2.6"),
            Reference("binding", "interface", "missingInterface", "2.7"),
            Reference("binding/fault", "ref", "missingFault", "2.8"),
            Reference("binding/operation", "ref", "missingOperation", "2.9"),
            Reference("service", "interface", "missingInterface", "2.12", required=True),
        ),
        {
            "missingInterface": "interface",
            "missingFault": "interface/fault",
            "missingOperation": "interface/operation",
        },
    ),
}


class ComponentNames:
    """The names of one kind of component, by namespace.

    Args:
        unread: namespaces that were not read completely.
        elsewhere: True if documents that were not read may define names of namespaces other than the known ones.
    """

    def __init__(self, unread: Iterable[str] = (), *, elsewhere: bool = False) -> None:
        self._found: dict[str, dict[str, None]] = {}
        self._unread = frozenset(unread)
        self._elsewhere = elsewhere

    def add(self, namespace: str, names: Iterable[str]) -> None:
        """Add names of a namespace, which counts as read then, even without names."""
        self._found.setdefault(namespace, {}).update(dict.fromkeys(names))

    def lacks(self, namespace: str | None, local: str) -> bool:
        """Say whether a name is certainly missing; `namespace` is None for an undeclared prefix."""
        if namespace is None:
            return True
        if local in self._found.get(namespace, ()) or namespace in self._unread:
            return False
        return namespace in self._found or not self._elsewhere

    def instead(self, namespace: str | None) -> str:
        """Return the remedy: names of the namespace, or if there are none, all names except built-in types."""
        near: Iterable[str] = self._found.get(namespace or "", ())
        others = ((space, each) for space, found in self._found.items() if space != XSD for each in found)
        everywhere = (f"{{{space}}}{each}" for space, each in others)
        some = list(islice(near or everywhere, MAX_SUGGESTED_NAMES + 1))
        if not some:
            return "add it, or import the file that has it"
        more = ", …" if len(some) > MAX_SUGGESTED_NAMES else ""
        return f"name one that is there ({', '.join(some[:MAX_SUGGESTED_NAMES])}{more}), or import the file that has it"


# Known names


def _names_of(documents: Sequence[Document], kind: WsdlKind) -> dict[str, ComponentNames]:
    """Return the known names, by the code of the finding for a missing one."""
    unread = {
        each.get("namespace", "")
        for document in documents
        for each in document.root.iterfind(kind.path("import"))
        if each.get("location") is None
    }
    found = {code: ComponentNames(unread) for code in kind.declared}
    for document in documents:
        for code, path in kind.declared.items():
            found[code].add(document.namespace, _own_names(document.root.iterfind(kind.path(path))))
    return {"missingOperation": _of_port_types(documents)} | found | _schema_names(documents, unread)


def _own_names(elements: Iterable[etree._Element]) -> Iterator[str]:
    return (each.get("name", "") for each in elements)


def _of_port_types(documents: Sequence[Document]) -> ComponentNames:
    """Return the operations of WSDL 1.1 by their port types; those of a missing port type are unknown."""
    found = ComponentNames(elsewhere=True)
    for document in documents:
        for each in document.root.iterchildren(f"{{{WSDL11}}}portType"):
            found.add(document.name_of(each), _own_names(each.iterchildren(f"{{{WSDL11}}}operation")))
    return found


def _schema_names(documents: Sequence[Document], unread: Iterable[str]) -> dict[str, ComponentNames]:
    holders = [each for document in documents for each in schemas_in(document)]
    schemas = {each: each.get("targetNamespace", "") for each in holders if each.tag == SCHEMA}
    outside = {each for holder in holders for each in _outside(holder, frozenset(schemas.values()))}
    found = {
        code: ComponentNames({*unread, *ENCODINGS, *outside}, elsewhere=bool(outside)) for code in SCHEMA_COMPONENTS
    }
    found["missingElement"].add(XSD, ())
    found["missingType"].add(XSD, BUILT_IN)
    for schema, namespace in schemas.items():
        for code, tags in SCHEMA_COMPONENTS.items():
            found[code].add(namespace, _own_names(schema.iterchildren(*tags)))
    return found


def _outside(holder: etree._Element, here: Container[str]) -> Iterator[str]:
    """Yield the namespaces that a schema takes from schemas that are not read; `here` are the namespaces read."""
    for each in holder.iterchildren(*REFERRING):
        if etree.QName(each).localname != "import":
            yield holder.get("targetNamespace", "")
        elif each.get("schemaLocation") is not None or each.get("namespace", "") not in here:
            yield each.get("namespace", "")


# Missing names


def read_missing(documents: Sequence[Document], version: WsdlVersion) -> Iterator[Finding]:
    """Yield the findings for missing components, at the places that refer to them.

    Args:
        documents: the WSDL, with all of its imports that were read.
        version: the version of all documents.

    Raises:
        InvalidWsdlError: there are more than `MAX_REFERENCES` references.
    """
    kind = KINDS[version]
    names = _names_of(documents, kind)
    for number, (row, document, element, seen) in enumerate(_references(documents, kind)):
        if number >= MAX_REFERENCES:
            raise InvalidWsdlError(
                f"{document.place(element)}: the WSDL has more than {MAX_REFERENCES} bindings, operations, messages "
                "and parts"
            )
        namespace, local = (document.qname(_above(element), row.of), seen) if row.of else _cut(seen)
        if names[row.code].lacks(namespace, local):
            rule = f"WSDL {version} {row.section}"
            said = {"attribute": row.attribute, "what": _called(element), "seen": seen, "rule": rule}
            yield finding(row.code, document.place(element), **said, write=names[row.code].instead(namespace))


def _references(
    documents: Sequence[Document], kind: WsdlKind
) -> Iterator[tuple[Reference, Document, etree._Element, str]]:
    """Yield each referenced name in Clark notation, with its row, its document and its element."""
    for document in documents:
        for row in kind.references:
            for element in document.root.iterfind(kind.path(row.path)):
                plain = (element.get(row.attribute, ""),) if row.of else document.qnames(element, row.attribute)
                for seen in plain or ("",) * row.required:
                    if not _cut(seen)[1].startswith("#"):  # #any, #none and #other of WSDL 2.0 name no element
                        yield row, document, element, seen


def _cut(name: str) -> tuple[str | None, str]:
    """Return namespace and local name; the namespace is None for an empty name and an undeclared prefix."""
    if name.startswith("{"):
        namespace, _, local = name[1:].partition("}")
        return namespace, local
    return (None if not name or ":" in name else ""), name


def _above(element: etree._Element) -> etree._Element:
    parent = element.getparent()
    assert parent is not None, "the root refers to nothing"
    return parent


def _called(element: etree._Element) -> str:
    """Describe an element and its ancestors, such as: part 'p' of message 'm'."""
    above = list(element.iterancestors())[:-1]
    return " of ".join(_alone(each) for each in (element, *above))


def _alone(element: etree._Element) -> str:
    name = element.get("name")
    local = etree.QName(element).localname
    return local if name is None else f"{local} {name!r}"
