"""Properties that a WSDL's service is to have, beside those that it and its ports have already.

Spec: SOAP/JMS 3.4.4; WSDLUsage-3001, WSDLUsage-3002.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from soapjms.protocol.errors import UsageError
from soapjms.protocol.properties import Origin, read_value, resolve
from soapjms.protocol.uri.known import SAME_IN_JNDI
from soapjms.protocol.wsdl.elements import CONTEXT_PARAMETER, Extension
from soapjms.protocol.wsdl.findings import Finding, Severity
from soapjms.protocol.wsdl.model import Port, Service
from soapjms.protocol.wsdl.showing import shown_safely

REPLY_NAMES = ("replyToName", "topicReplyToName")


def without_repeats(new: Mapping[str, str], service: Service, ports: Iterable[Port]) -> dict[str, str]:
    """Return those of some properties that a service does not have already.

    Args:
        new: by name, checked.
        service: the service.
        ports: its ports. What becomes of one that cannot be used, nobody can tell.

    Raises:
        InvalidPropertyError: both reply names, one of them new.
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
    """Say whether a service has a property already; another value of it is refused."""
    seen = next((each for each in _names_of(name) if each in there), None)
    if seen is None:
        return False
    old, new = (read_value(name, value, Origin.SERVICE) for value in (there[seen], text))
    if old == new:
        return True
    raise UsageError(
        f"{name} of the service {service.name!r} is to be {shown_safely(name, new)!r}, and {seen} is "
        f"{shown_safely(seen, old)!r} there already ({service.place}); leave it out, or set it on the port"
    )


def _names_of(name: str) -> Iterator[str]:
    """Yield the names of a setting: some of JNDI have two."""
    yield name
    yield from (other for pair in SAME_IN_JNDI.items() if name in pair for other in pair if other != name)


def _element(name: str, text: str, service: Service) -> Extension:
    """Make the element of a property as if it were read."""
    element = CONTEXT_PARAMETER if name.startswith("jndi-") else name
    return Extension(element, "", name, text, "service", nested=False, place=service.place)


def _refuse_to_change(new: str, text: str, before: Port, after: Port) -> None:
    now, then = before.effective(), after.effective()
    value = shown_safely(new, read_value(new, text, Origin.SERVICE))
    for name, found in now.items():
        if now.stated(name) is not None and then.value(name) != found.value:
            raise UsageError(
                f"{new} {value!r} of the service would win over {name} "
                f"{shown_safely(name, found.value)!r} of the {found.origin} for the {before.wsdl.port} "
                f"{before.name!r}, which is there already (WSDLUsage-3002); set it on the new port only"
            )
