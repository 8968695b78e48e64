"""The content of a WSDL in the form of JSON, with apparent secrets redacted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from soapjms.protocol.names import Mep
from soapjms.protocol.properties import Effective, EffectiveValue, shown
from soapjms.protocol.uri import REDACTED, parse
from soapjms.protocol.uri.redact import holds_secret, is_secret_name
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.findings import Finding
from soapjms.protocol.wsdl.model import Description, Port

MEP_WORDS: Final[Mapping[Mep | None, str]] = {
    Mep.REQUEST_RESPONSE: "request-response",
    Mep.ONE_WAY: "one-way",
    None: "other",
}


def members(description: Description, environment: Mapping[str, Value] = MappingProxyType({})) -> dict[str, Any]:
    """Return the ports, each with its service, its effective properties with origin, and its operations.

    A port of another transport has no properties; if the transport is a known one, `not_soap_jms` describes it.

    Raises:
        InvalidWsdlError: a SOAP/JMS port has an error.
    """
    return {"ports": [_port_members(each, environment) for each in description.ports]}


def _port_members(port: Port, environment: Mapping[str, Value]) -> dict[str, Any]:
    effective = Effective() if port.profile is None else port.effective(environment)
    foreign = port.foreign_transport()
    said = {
        "service": port.service.name,
        "port": port.name,
        "soap_version": port.soap_version,
        "address": None if port.address is None else parse(port.address).redacted,
        "properties": property_members(effective),
        "operations": [
            {"name": each.name, "soap_action": each.soap_action, "mep": MEP_WORDS[each.mep]} for each in port.operations
        ],
    }
    return said if foreign is None else said | {"not_soap_jms": f"{foreign.text} ({foreign.rule}); {foreign.write}"}


def property_members(effective: Effective) -> dict[str, dict[str, Any]]:
    """Return each effective property: its value as people write it, and its origin in lower case."""
    return {name: _value_members(name, each) for name, each in effective.items()}


def overridden_members(effective: Effective, name: str) -> list[dict[str, Any]]:
    """Return each value of a property that was set but is overridden."""
    return [_value_members(name, each) for each in effective.overridden.get(name, ())]


def _value_members(name: str, value: EffectiveValue) -> dict[str, Any]:
    return {"value": shown_safely(name, value.value), "origin": value.origin.lower()}


def shown_safely(name: str, value: Value) -> Value:
    """Return a property's value as people write it, redacted if it looks like a secret."""
    secret = is_secret_name(name) or (isinstance(value, str) and holds_secret(value))
    return REDACTED if secret else shown(name, value)


def finding_members(found: Finding) -> dict[str, Any]:
    """Return the members of a finding."""
    return {
        "file": found.place.file,
        "line": found.place.line,
        "code": found.code,
        "severity": found.severity,
        "rule": found.rule,
        "text": found.text,
        "write": found.write,
    }
