"""What a program may say which service it means by: a `jms:` URI, as text or parsed, or the port of a WSDL.

Spec: SOAP/JMS 2.2.1, 3.4.4, 3.4.5.
"""

from __future__ import annotations

from collections.abc import Mapping

from soapjms.protocol.errors import InvalidUriError
from soapjms.protocol.properties import Effective, resolve
from soapjms.protocol.uri import JmsUri, checked
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl.model import Port


def read_uri(uri: str | JmsUri | Port, environment: Mapping[str, Value]) -> tuple[JmsUri, Effective]:
    """Read a URI that the caller wants to use, or the port of a WSDL, and work out the effective properties.

    Raises:
        InvalidUriError, InvalidPropertyError: the URI or a property is not as the specification has it.
        InvalidWsdlError: the port cannot be used.
    """
    if isinstance(uri, Port):
        return uri.uri(), uri.effective(environment)
    if not isinstance(uri, str | JmsUri):
        raise InvalidUriError(  # without its value, which may hold a secret
            f"uri is of type {type(uri).__name__}; it is a jms: URI as text or parsed, or the port of a WSDL"
        )
    parsed = checked(uri.text, uri.mode) if isinstance(uri, JmsUri) else checked(uri)
    return parsed, resolve(parsed, environment)
