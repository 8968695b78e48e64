"""Whether a body fits the WSDL, as far as zeep would not say: it takes any element for the response, writes what it is
given for a number, and reads what is none as nothing. For people who move money that is too little.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

import zeep.exceptions
from lxml import etree
from zeep.utils import qname_attr
from zeep.wsdl.messages import DocumentMessage
from zeep.xsd import AnySimpleType, Base64Binary, ComplexType, Element, Group
from zeep.xsd.elements.indicators import Indicator

from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.uri.showing import quoted

_XSI_TYPE: Final = "{http://www.w3.org/2001/XMLSchema-instance}type"


def misfit(root: etree._Element, message: Any) -> str | None:
    """Say what in the body of an envelope is not as a message of the WSDL has it, None if nothing is.

    Looked at are the name of the element (that of an RPC response is anybody's), and the text of elements of simple
    types, also of those that an xsi:type names. Attributes, facets, what is empty, and what a wildcard lets in are not.

    Args:
        root: the envelope.
        message: zeep's input or output of an operation; None where there is none.
    """
    body = next(root.iterchildren("{*}Body"), None)
    if message is None or message.body is None or body is None:
        return None
    wanted = message.body
    if message._is_body_wrapped:
        return _value_misfit(body, wanted.type, _Types(message.wsdl.types))
    content = next(body.iterchildren(etree.Element), None)
    if isinstance(message, DocumentMessage) and (content is None or content.tag != wanted.qname.text):
        return f"it holds {'nothing' if content is None else content.tag!s}; the WSDL says {wanted.qname.text}"
    return None if content is None else _value_misfit(content, wanted.type, _Types(message.wsdl.types))


class _Types:
    """The types of a WSDL, and what those consist of that one message has: looked up once."""

    def __init__(self, known: Any) -> None:
        self._known = known
        self._members: dict[Any, Mapping[str, Any]] = {}

    def named_by(self, node: etree._Element) -> Any:
        """Return the type that an xsi:type names; None where there is none, of which zeep says what it thinks."""
        try:
            return self._known.get_type(qname_attr(node, _XSI_TYPE), fail_silently=True)
        except (zeep.exceptions.Error, ValueError):
            return None

    def member(self, type_: Any, tag: str) -> Any:
        """Return the type of a child by its name, None if there is none; as zeep has it, a namespace may be missing."""
        members = self._members.get(type_)
        if members is None:
            members = self._members[type_] = _members(type_)
        return members.get(tag) or members.get(f"{{*}}{tag}" if tag[0] != "{" else tag.partition("}")[2])


def _members(type_: Any) -> Mapping[str, Any]:
    """Return the types of elements by name, and under `{*}local` for children without a namespace."""
    found = {each.qname.text: each.type for _, member in type_.elements_nested for each in _elements(member)}
    return {f"{{*}}{etree.QName(name).localname}": inner for name, inner in found.items()} | found


def _value_misfit(node: etree._Element, type_: Any, types: _Types) -> str | None:
    if _XSI_TYPE in node.attrib:
        type_ = types.named_by(node)
    if isinstance(type_, AnySimpleType):
        return _text_misfit(node, type_)
    if not isinstance(type_, ComplexType):
        return None
    for child in node.iterchildren(etree.Element):
        inner = types.member(type_, str(child.tag))
        found = None if inner is None else _value_misfit(child, inner, types)
        if found is not None:
            return found
    return None


def _elements(member: Any) -> Iterator[Any]:
    """Yield the elements of what a type consists of, in sequences and choices within each other too."""
    if isinstance(member, Element):
        yield member
    elif isinstance(member, Indicator):
        inner: Any = [member.child] if isinstance(member, Group) else member
        for each in inner:
            yield from _elements(each)


def _text_misfit(node: etree._Element, type_: Any) -> str | None:
    if node.find(XOP_INCLUDE) is not None and not isinstance(type_, Base64Binary):
        return f"{_path(node)} is an attachment, which is no {_name(type_)}"
    if node.text is None:
        return None
    try:
        if isinstance(type_, Base64Binary):  # of which zeep drops what is none
            b64decode("".join(node.text.split()), validate=True)
        else:
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
