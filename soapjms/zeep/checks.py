"""Checks of an envelope against the WSDL that zeep does not make.

zeep accepts any element as the response, writes any text for a number, reads an invalid number as None, and 1_000 as a
thousand. For people who move money that is too little.

zeep also reads an empty text as None, which `keep_empty` repairs: an empty element, one with xsi:nil, and a missing
one are three different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

import zeep.exceptions
from lxml import etree
from zeep.utils import qname_attr
from zeep.wsdl.messages import DocumentMessage
from zeep.xsd import AnySimpleType, Base64Binary, ComplexType, Element, Group
from zeep.xsd.elements.indicators import Indicator
from zeep.xsd.types.collection import ListType, UnionType

from soapjms.protocol.attachments import XOP_INCLUDE
from soapjms.protocol.envelope import XSI, is_nil
from soapjms.protocol.uri.redact import quoted
from soapjms.zeep.particles import CONTENT
from soapjms.zeep.simple_types import has_form_of, name_of


def misfit(root: etree._Element, message: Any) -> str | None:
    """Say where the body of an envelope does not fit a message of the WSDL, or return None if it fits.

    Checked are the name of the element (except in RPC responses, where it is arbitrary), and the texts of attributes
    and of elements of simple types, including those named by xsi:type, in the body and in declared headers. Facets
    and wildcards are not checked.

    Args:
        root: the envelope.
        message: the input or output of zeep's operation; None if the operation has none.
    """
    body = next(root.iterchildren("{*}Body"), None)
    if message is None or message.body is None or body is None:
        return None
    wanted = message.body
    content = next(body.iterchildren(etree.Element), None)
    is_named = isinstance(message, DocumentMessage) and not message._is_body_wrapped
    if is_named and (content is None or content.tag != wanted.qname.text):
        return f"it holds {'nothing' if content is None else content.tag!s}; the WSDL says {wanted.qname.text}"
    header = next(root.iterchildren("{*}Header"), None)
    values = chain(() if header is None else _values_in_header(header, message), _values_in_body(body, message))
    return next((said for each in values if (said := _value_misfit(*each))), None)


def keep_empty(root: etree._Element, message: Any) -> None:
    """Make zeep read empty elements, but not those with xsi:nil, as the default of the schema, or else as empty texts.

    Empty elements of other types than texts stay as they are.

    Args:
        root: the envelope, whose body and declared headers are changed in place.
        message: the input or output of zeep's operation; None if the operation has none.
    """
    if message is None:
        return
    for part in root.iterchildren("{*}Header", "{*}Body"):
        is_body = etree.QName(part).localname == "Body"
        for node, type_, default in (_values_in_body if is_body else _values_in_header)(part, message):
            if node.text is not None or len(node) or is_nil(node):
                continue
            if default is not None:
                node.text = default
            elif _has_empty(type_):
                node.text = ""


def _has_empty(type_: Any) -> bool:
    """Say whether an empty text is a valid value of a simple type that is not a list."""
    if isinstance(type_, UnionType):
        return any(map(_has_empty, type_.item_types))
    return isinstance(type_, AnySimpleType) and not isinstance(type_, ListType) and has_form_of("", type_)


_Typed: TypeAlias = tuple[etree._Element, Any, str | None]
"""An element of an envelope, its type, and for a simple type the text that counts if the element is empty."""


def _values_in_body(body: etree._Element, message: Any) -> Iterator[_Typed]:
    """Yield the elements in a body whose types are known."""
    if message.body is None:
        return
    content = body if message._is_body_wrapped else next(body.iterchildren(etree.Element), None)
    if content is not None:
        yield from _values(content, message.body, _Types(message.wsdl.types))


def _values_in_header(header: etree._Element, message: Any) -> Iterator[_Typed]:
    types = _Types(message.wsdl.types)
    declared = {element.qname.text: element for _, element in message.header.type.elements}
    for block in header.iterchildren(etree.Element):
        if block.tag in declared:
            yield from _values(block, declared[block.tag], types)


class _Types:
    """The types of a WSDL, and the members of those in one message, looked up once."""

    def __init__(self, known: Any) -> None:
        self._known = known
        self._members: dict[Any, Mapping[str, Any]] = {}

    def named_by(self, node: etree._Element) -> Any:
        """Return the type named by an xsi:type, or None if it is unknown, which zeep reports."""
        try:
            return self._known.get_type(qname_attr(node, XSI + "type"), fail_silently=True)
        except (zeep.exceptions.Error, ValueError):
            return None

    def member(self, type_: Any, tag: str) -> Any:
        """Return zeep's element for a child by its name, or None; as in zeep, the namespace may be missing."""
        members = self._members.get(type_)
        if members is None:
            members = self._members[type_] = _members(type_)
        return members.get(tag) or members.get(f"{{*}}{tag}" if tag[0] != "{" else tag.partition("}")[2])


def _members(type_: Any) -> Mapping[str, Any]:
    """Return zeep's elements by name, and under `{*}local` for children without a namespace."""
    found = {each.qname.text: each for _, member in type_.elements_nested for each in _elements(member)}
    return {f"{{*}}{etree.QName(name).localname}": inner for name, inner in found.items()} | found


def _values(node: etree._Element, element: Any, types: _Types) -> Iterator[_Typed]:
    """Yield an element, which zeep's element describes, and those within it."""
    type_ = element.type if node.get(XSI + "type") is None else types.named_by(node)
    if isinstance(type_, AnySimpleType):
        yield node, type_, _default(element)
    elif isinstance(type_, ComplexType):
        yield node, type_, None
        content = types.member(type_, CONTENT)
        if content is not None:
            yield node, content.type, _default(element)
        for child in node.iterchildren(etree.Element):
            inner = types.member(type_, str(child.tag))
            if inner is not None:
                yield from _values(child, inner, types)


def _default(element: Any) -> str | None:
    """Return the default or fixed value of an element; `repairs.py` adds the latter."""
    default: str | None = element.default
    return getattr(element, "fixed", None) if default is None else default


def _elements(member: Any) -> Iterator[Any]:
    """Yield the elements of a member of a type, also those in nested sequences and choices."""
    if isinstance(member, Element):
        yield member
    elif isinstance(member, Indicator):
        inner: Any = [member.child] if isinstance(member, Group) else member
        for each in inner:
            yield from _elements(each)


def _value_misfit(node: etree._Element, type_: Any, default: str | None) -> str | None:
    if isinstance(type_, ComplexType):
        return _attribute_misfit(node, type_)
    if len(node) and node.find(XOP_INCLUDE) is not None:
        fits = isinstance(type_, Base64Binary)
        return None if fits else f"{_path(node)} must be of type {name_of(type_)}, got an attachment"
    if has_form_of(node.text or default or "", type_) or is_nil(node):
        return None
    return f"{_path(node)} must be of type {name_of(type_)}, got {quoted(node.text or '')}"


def _attribute_misfit(node: etree._Element, type_: Any) -> str | None:
    for name, each in type_.attributes if node.attrib else ():
        text = node.get(each.qname.text) if each.name else None
        if text is not None and not has_form_of(text, each.type):
            return f"{_path(node)}.{name} must be of type {name_of(each.type)}, got {quoted(text)}"
    return None


def _path(node: etree._Element) -> str:
    """Return the path of an element below the body; repeated names have a number from the second on."""
    names = [_numbered(each) for each in (node, *node.iterancestors())]
    return ".".join(reversed(names[:-2]))


def _numbered(node: etree._Element) -> str:
    number = 1 + sum(1 for _ in node.itersiblings(str(node.tag), preceding=True))
    return etree.QName(node).localname + (f"[{number}]" if number > 1 else "")
