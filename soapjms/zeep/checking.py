"""Whether a body fits the WSDL, as far as zeep would not say: it takes any element for the response, writes what it is
given for a number, and reads what is none as nothing. For people who move money that is too little.
"""

from __future__ import annotations

from typing import Any, Final

from lxml import etree
from zeep.wsdl.messages import DocumentMessage
from zeep.xsd import AnySimpleType, Base64Binary, ComplexType, Element

from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.uri.showing import quoted

_XSI_TYPE: Final = "{http://www.w3.org/2001/XMLSchema-instance}type"


def misfit(root: etree._Element, message: Any) -> str | None:
    """Say what in the body of an envelope is not as a message of the WSDL has it, None if nothing is.

    Looked at are the name of the element (that of an RPC response is anybody's), and the text of elements of simple
    types. Elements with an xsi:type, attributes, facets, and what is empty are not.

    Args:
        root: the envelope.
        message: zeep's input or output of an operation; None where there is none.
    """
    body = next(root.iterchildren("{*}Body"), None)
    if message is None or message.body is None or body is None:
        return None
    wanted = message.body
    if message._is_body_wrapped:
        return _value_misfit(body, wanted.type)
    content = next(body.iterchildren(etree.Element), None)
    if isinstance(message, DocumentMessage) and (content is None or content.tag != wanted.qname.text):
        return f"it holds {'nothing' if content is None else content.tag!s}; the WSDL says {wanted.qname.text}"
    return None if content is None else _value_misfit(content, wanted.type)


def _value_misfit(node: etree._Element, type_: Any) -> str | None:
    if _XSI_TYPE in node.attrib:
        return None
    if isinstance(type_, AnySimpleType):
        return _text_misfit(node, type_)
    if not isinstance(type_, ComplexType):
        return None
    types = {each.qname.text: each.type for _, each in type_.elements if isinstance(each, Element)}
    found = (_value_misfit(child, types[child.tag]) for child in node if child.tag in types)
    return next((each for each in found if each is not None), None)


def _text_misfit(node: etree._Element, type_: Any) -> str | None:
    if node.find(XOP_INCLUDE) is not None and not isinstance(type_, Base64Binary):
        return f"{_path(node)} is an attachment, which is no {_name(type_)}"
    if node.text is None:
        return None
    try:
        type_.pythonvalue(node.text)
    except Exception:  # zeep's types raise whatever Python does with a text of another type
        return f"{_path(node)} is {quoted(node.text)}, which is no {_name(type_)}"
    return None


def _name(type_: Any) -> str:
    return str(type_.name or type(type_).__name__)


def _path(node: etree._Element) -> str:
    """Say where an element is below the body; the second and later ones of a name with their number."""
    names = [_numbered(each) for each in (node, *node.iterancestors())]
    return ".".join(reversed(names[:-2]))


def _numbered(node: etree._Element) -> str:
    number = 1 + sum(1 for _ in node.itersiblings(str(node.tag), preceding=True))
    return etree.QName(node).localname + (f"[{number}]" if number > 1 else "")
