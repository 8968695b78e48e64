"""Messages whose body is one element of a simple type, and no more.

zeep encodes octets in them twice, and cannot read texts of one character; before 4.2.1 no numbers and dates either.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from lxml import etree
from zeep.wsdl.messages import DocumentMessage
from zeep.xsd import AnySimpleType, Base64Binary
from zeep.xsd.context import XmlParserContext

from soapjms.protocol.envelope import as_envelope


def is_bare(message: Any) -> bool:
    """Say whether a message of the WSDL is one, without SOAP headers."""
    if message is None or message.body is None or message.header.type._element or message._is_body_wrapped:
        return False
    return isinstance(message.body.type, AnySimpleType) and isinstance(message, DocumentMessage)


def written(value: Any, type_: Any) -> Any:
    """Return what zeep is given for the value of an element that has no other around it: octets as base64 text."""
    if isinstance(type_, Base64Binary) and isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode("ascii")
    return value


def value_in(root: etree._Element, message: Any) -> Any:
    """Return the value in the body of an envelope, None where it is empty."""
    content = as_envelope(root).content
    context = XmlParserContext(settings=message.wsdl.settings)
    return None if content is None else message.body.parse(content, message.wsdl.types, context=context)
