"""Whether a body fits the WSDL, as far as zeep would not say: it takes any element for the response, writes what it is
given for a number, and reads what is none as nothing. For people who move money that is too little.

It reads an empty text as nothing too, which `keep_empty` mends: an element that is empty, one with xsi:nil, and one
that is not there are three things.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

import zeep.exceptions
from lxml import etree
from zeep.utils import qname_attr
from zeep.wsdl.messages import DocumentMessage
from zeep.xsd import AnySimpleType, AnyURI, Base64Binary, ComplexType, Element, Group, HexBinary, String
from zeep.xsd.elements.indicators import Indicator
from zeep.xsd.types.collection import UnionType

from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.uri.redact import quoted

_XSI_TYPE: Final = "{http://www.w3.org/2001/XMLSchema-instance}type"
_XSI_NIL: Final = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_TEXTS: Final = (String, AnyURI, Base64Binary, HexBinary)
"""Types of which an empty text is a value; what is derived of them by restriction is a class below."""
_SIMPLE_CONTENT: Final = "_value_1"
"""What zeep calls the text of an element that has attributes and no elements."""


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
    content = next(body.iterchildren(etree.Element), None)
    is_named = isinstance(message, DocumentMessage) and not message._is_body_wrapped
    if is_named and (content is None or content.tag != wanted.qname.text):
        return f"it holds {'nothing' if content is None else content.tag!s}; the WSDL says {wanted.qname.text}"
    return next((said for node, type_ in _values_in_body(body, message) if (said := _text_misfit(node, type_))), None)


def keep_empty(root: etree._Element, message: Any) -> None:
    """Have zeep read an empty element of a text type as an empty text, in body and declared headers; not one with nil.

    Args:
        root: the envelope, which stays the same document.
        message: zeep's input or output of an operation; None where there is none.
    """
    if message is None:
        return
    for part in root.iterchildren("{*}Header", "{*}Body"):
        is_body = etree.QName(part).localname == "Body"
        for node, type_ in (_values_in_body if is_body else _values_in_header)(part, message):
            if _has_empty(type_) and node.text is None and not len(node) and node.get(_XSI_NIL) not in ("true", "1"):
                node.text = ""


def _has_empty(type_: Any) -> bool:
    """Say whether an empty text is a value of a simple type."""
    if isinstance(type_, UnionType):
        return any(map(_has_empty, type_.item_types))
    return isinstance(type_, _TEXTS) or type(type_) is AnySimpleType


def _values_in_body(body: etree._Element, message: Any) -> Iterator[tuple[etree._Element, Any]]:
    """Yield the elements of simple types in a body, each with its type."""
    if message.body is None:
        return
    content = body if message._is_body_wrapped else next(body.iterchildren(etree.Element), None)
    if content is not None:
        yield from _values(content, message.body.type, _Types(message.wsdl.types))


def _values_in_header(header: etree._Element, message: Any) -> Iterator[tuple[etree._Element, Any]]:
    types = _Types(message.wsdl.types)
    declared = {element.qname.text: element.type for _, element in message.header.type.elements}
    for block in header.iterchildren(etree.Element):
        if block.tag in declared:
            yield from _values(block, declared[block.tag], types)


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


def _values(node: etree._Element, type_: Any, types: _Types) -> Iterator[tuple[etree._Element, Any]]:
    if _XSI_TYPE in node.attrib:
        type_ = types.named_by(node)
    if isinstance(type_, AnySimpleType):
        yield node, type_
    elif isinstance(type_, ComplexType):
        content = types.member(type_, _SIMPLE_CONTENT)
        if content is not None:
            yield node, content
        for child in node.iterchildren(etree.Element):
            inner = types.member(type_, str(child.tag))
            if inner is not None:
                yield from _values(child, inner, types)


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
