"""Messages whose body is a single element of a simple type: zeep cannot read texts of one character, or before 4.2.1
numbers and dates.
"""

from __future__ import annotations

from typing import Any

from lxml import etree
from zeep.wsdl.messages import DocumentMessage
from zeep.xsd import AnySimpleType
from zeep.xsd.context import XmlParserContext

from soapjms.protocol.envelope import as_envelope


def is_bare(message: Any) -> bool:
    """Say whether the body of a WSDL message is a single element of a simple type, without SOAP headers."""
    if message is None or message.body is None or message.header.type._element or message._is_body_wrapped:
        return False
    return isinstance(message.body.type, AnySimpleType) and isinstance(message, DocumentMessage)


def value_in(root: etree._Element, message: Any) -> Any:
    """Return the value in the body of an envelope, or None if the body is empty."""
    content = as_envelope(root).content
    return None if content is None else value_of(content, message, XmlParserContext(settings=message.wsdl.settings))


def value_of(content: etree._Element, message: Any, context: XmlParserContext) -> Any:
    """Return the value of the element of a message; an empty element is None, or an empty list."""
    return message.body.parse(content, message.wsdl.types, context=context)
