"""A request as Python values: held to the schema, then read by zeep. What does not fit is the sender's mistake."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final
from uuid import uuid4

import zeep.exceptions
from lxml import etree
from zeep.xsd import ComplexType, CompoundValue
from zeep.xsd.context import XmlParserContext

from soapjms.protocol.attachments import XOP_INCLUDE, Attachments, Part
from soapjms.protocol.envelope import Blame, Envelope, as_envelope
from soapjms.protocol.errors import SoapFaultError
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.showing import named
from soapjms.request import Request
from soapjms.typed.description import Described
from soapjms.zeep.bare import value_of
from soapjms.zeep.checking import keep_empty, misfit
from soapjms.zeep.enclosed import replaced

SOAP_NAMESPACES: Final = frozenset(version.namespace for version in SoapVersion)


def read_values(request: Request, described: Described, message: Any, *, lazy: bool) -> tuple[Any, Any]:
    """Return what is in the body of a request, and its SOAP headers, in the types of the WSDL.

    Args:
        request: stays as it is.
        described: the port.
        message: zeep's input of the operation.
        lazy: give what is included (XOP) as the `Part` that it is, which nobody copied, and not as bytes.

    Raises:
        SoapFaultError: it does not fit the WSDL; the reason says where.
        InvalidAttachmentError: what is included cannot be had.
    """
    root = deepcopy(request.envelope.root)
    etree.strip_elements(root, etree.Comment, etree.ProcessingInstruction, with_tail=False)  # zeep stumbles there
    envelope = as_envelope(root)
    _refuse(misfit(root, message))
    marks = _mark_included(root, request.attachments) if lazy else {}
    request.attachments.expand(root)
    for each in _misfits(envelope, described, message):
        _refuse(each)
    keep_empty(root, message)
    try:
        body, headers = _parsed(envelope, described, message)
    except zeep.exceptions.Error as error:
        raise _unfit(str(error)) from error
    except Exception as error:  # zeep's types raise whatever Python does with XML of another type
        raise _unfit(f"{type(error).__name__}: {error}") from error
    return (replaced(body, _changer(marks)) if marks else body), headers


def _unfit(why: str) -> SoapFaultError:
    return SoapFaultError(f"the request does not fit the WSDL: {named(why)}", blame=Blame.SENDER)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise _unfit(why)


def _misfits(envelope: Envelope, described: Described, message: Any) -> Iterator[str | None]:
    """Yield what is wrong with a request, None for each of its elements that fits."""
    contents = list(envelope.body.iterchildren(etree.Element))
    wanted = 0 if message.body is None else len(message.body.type.elements) if message._is_body_wrapped else 1
    if len(contents) > wanted:
        yield f"the SOAP body has {len(contents)} elements; the WSDL says {wanted}"
    yield from (described.content_misfit(each, message) for each in contents)
    for block in declared_headers(envelope, message):
        found = described.misfit(without_soap_attributes(block))
        yield found and f"Header.{found}"


def declared_headers(envelope: Envelope, message: Any) -> Iterator[etree._Element]:
    """Yield the header blocks that the WSDL declares for a message."""
    names = header_names(message)
    if envelope.header is not None:
        yield from (each for each in envelope.header.iterchildren(etree.Element) if each.tag in names)


def header_names(message: Any) -> frozenset[str]:
    """Return the names of the header blocks that the WSDL declares for a message, in Clark notation."""
    return frozenset(element.qname.text for _, element in message.header.type.elements)


def without_soap_attributes(block: etree._Element) -> etree._Element:
    """Return a header block without the attributes that SOAP gives it, which its schema does not know."""
    copy = deepcopy(block)
    for name in list(copy.attrib):
        if etree.QName(name).namespace in SOAP_NAMESPACES:
            del copy.attrib[name]
    return copy


def _parsed(envelope: Envelope, described: Described, message: Any) -> tuple[Any, Any]:
    types, context = described.document.types, XmlParserContext(settings=described.document.settings)
    body = None
    if message.body is not None:
        element = envelope.body if message._is_body_wrapped else envelope.content
        assert element is not None, "a body that fits the WSDL has it"
        body = value_of(element, message, context)
        if isinstance(message.body.type, ComplexType) and not isinstance(body, CompoundValue | None):
            raise TypeError("its xsi:type is none that goes there")
    if envelope.header is None:
        return body, message.header.type()
    return body, message.header.parse(envelope.header, types, context=context)


# What is included, and stays where it is


def _mark_included(root: etree._Element, attachments: Attachments) -> dict[bytes, Part]:
    """Put a short text into the place of each part that is included; it is base64, as zeep and the schema want it.

    Raises:
        InvalidAttachmentError: a reference that leads nowhere, or something beside it.
    """
    secret, marks = uuid4().hex, dict[bytes, Part]()  # so that nobody's content is taken for a mark
    for include in list(root.iter(XOP_INCLUDE)):
        attachments.octets_of(include)
        parent, part = include.getparent(), attachments.find(include.get("href") or "")
        assert parent is not None, "it stands in an envelope"
        assert part is not None, "it has octets"
        mark = f"{secret}:{len(marks)}".encode()
        marks[mark] = part
        parent.remove(include)
        parent.text = b64encode(mark).decode("ascii")
    return marks


def _changer(marks: dict[bytes, Part]) -> Callable[[Any], Any]:
    return lambda value: marks.get(value, value) if isinstance(value, bytes) else value
