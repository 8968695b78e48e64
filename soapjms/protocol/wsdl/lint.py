"""Judging a WSDL: what breaks a rule, what contradicts something else, what is probably a mistake.

What makes a port unusable is found by the port itself (`Port.problems`), and is here with the rest.

Spec: SOAP/JMS 3.4 to 3.6; WSDLUsage-3001 to 3004.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from soapjms.protocol.properties import Effective, Origin, read_value
from soapjms.protocol.uri.known import SAME_IN_JNDI
from soapjms.protocol.uri.showing import holds_secret, is_secret_name
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.elements import Extension
from soapjms.protocol.wsdl.findings import Finding, Severity, finding
from soapjms.protocol.wsdl.model import Description, Port
from soapjms.protocol.wsdl.showing import shown_safely


def lint(description: Description) -> tuple[Finding, ...]:
    """Return all that is wrong with a WSDL, each thing once, by file and line."""
    found = [each for check in CHECKS for each in check(description)]
    return tuple(sorted(dict.fromkeys(found), key=lambda each: (each.place, each.code, each.text)))


def _problems(description: Description) -> Iterator[Finding]:
    for port in description.ports:
        yield from port.problems()


# Elements


class _Holder:
    """What holds soapjms elements: a binding, service or port, with the SOAP/JMS ports that its elements reach."""

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
    """Find an element that counts for no port, or is of another edition than the transport that it counts for."""
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
"""The two names of each setting that has two, each with the other."""


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
        for each in port.operations:
            if each.mep is None:
                yield finding("otherPattern", each.place, seen=each.name, port=port.name)


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
