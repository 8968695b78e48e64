"""A request as Python values, and a function's result as an envelope, both checked against the schema.

A request is checked against the schema, then read by zeep: a misfit is the sender's mistake. An answer is written by
zeep, then checked against the schema: a misfit is the service's mistake; the log has the details, and the caller only
learns that the service failed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import zeep.exceptions
from lxml import etree
from zeep.wsdl.messages import RpcMessage
from zeep.xsd import ComplexType, CompoundValue
from zeep.xsd.context import XmlParserContext

from soapjms.protocol.attachments import XOP_INCLUDE, Attachment, Attachments, Part
from soapjms.protocol.envelope import Envelope, as_envelope, wrap
from soapjms.protocol.errors import Blame, SoapFaultError, UsageError
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.text import named
from soapjms.reply import Reply
from soapjms.service.request import Request
from soapjms.service.typed.signature import element_names
from soapjms.zeep.attachments import Enclosures, replaced
from soapjms.zeep.bare import value_of
from soapjms.zeep.checks import keep_empty, misfit
from soapjms.zeep.description import PortDescription, empty_content
from soapjms.zeep.errors import ArgumentsError, reason_of

SOAP_NAMESPACES: Final = frozenset(version.namespace for version in SoapVersion)


def read_values(request: Request, described: PortDescription, message: Any, *, lazy: bool) -> tuple[Any, Any]:
    """Return the content of the body of a request, and its SOAP headers, in the types of the WSDL.

    Args:
        request: the request; it is not changed.
        described: the port.
        message: zeep's input of the operation.
        lazy: return included parts (XOP) as `Part`, without a copy, instead of bytes.

    Raises:
        SoapFaultError: the request does not fit the WSDL; the reason says where.
        InvalidAttachmentError: an included part cannot be read.
    """
    envelope, marks = checked_envelope(request, described, message, lazy=lazy)
    keep_empty(envelope.root, message)
    try:
        body, headers = _parsed(envelope, described, message)
    except zeep.exceptions.Error as error:
        raise unfit_request(str(error)) from error
    except Exception as error:  # zeep's types raise any Python error for XML of another type
        raise unfit_request(f"{type(error).__name__}: {error}") from error
    return (replaced(body, _changer(marks)) if marks else body), headers


def checked_envelope(
    request: Request, described: PortDescription, message: Any, *, lazy: bool = False
) -> tuple[Envelope, dict[bytes, Part]]:
    """Return a copy of the envelope of a request that fits the WSDL, without comments.

    Included parts (XOP) are base64 text in it. With `lazy` the text is a mark, and the parts are returned by their
    marks.

    Raises:
        SoapFaultError, InvalidAttachmentError: see `read_values`.
    """
    root = deepcopy(request.envelope.root)
    etree.strip_elements(root, etree.Comment, etree.ProcessingInstruction, with_tail=False)  # zeep fails on them
    envelope = as_envelope(root)
    _refuse(misfit(root, message))
    marks = _mark_included(root, request.attachments) if lazy else {}
    request.attachments.expand(root)
    for each in _misfits(envelope, described, message):
        _refuse(each)
    return envelope, marks


def unfit_request(why: str) -> SoapFaultError:
    """Make the fault for a request that does not fit the WSDL."""
    return SoapFaultError(f"the request does not fit the WSDL: {named(why)}", blame=Blame.SENDER)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise unfit_request(why)


def _misfits(envelope: Envelope, described: PortDescription, message: Any) -> Iterator[str | None]:
    """Yield the misfits of a request, and None for each of its elements that fits."""
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


def _parsed(envelope: Envelope, described: PortDescription, message: Any) -> tuple[Any, Any]:
    types, context = described.document.types, XmlParserContext(settings=described.document.settings)
    body = None
    if message.body is not None:
        element = envelope.body if message._is_body_wrapped else envelope.content
        assert element is not None, "a body that fits the WSDL has it"
        body = value_of(element, message, context)
        if isinstance(message.body.type, ComplexType) and not isinstance(body, CompoundValue | None):
            raise TypeError("its xsi:type is not allowed here")
    if envelope.header is None:
        return body, message.header.type()
    return body, message.header.parse(envelope.header, types, context=context)


# Included parts that are not copied


def _mark_included(root: etree._Element, attachments: Attachments) -> dict[bytes, Part]:
    """Replace each XOP reference with a short mark in base64, as zeep and the schema expect; return the parts by mark.

    Raises:
        InvalidAttachmentError: a reference to no part, or other content beside a reference.
    """
    secret, marks = uuid4().hex, dict[bytes, Part]()  # random, so that no content is taken for a mark
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


def reply_with(result: Any, version: SoapVersion, described: PortDescription, operation: Any, *, lazy: bool) -> Reply:
    """Make the envelope for the result of a function.

    Args:
        result: the result, or a Reply with the result and with SOAP headers or attachments.
        version: the SOAP version of the request.
        described: the port.
        operation: zeep's operation.
        lazy: do not read attachments to check them against the schema.

    Raises:
        SoapFaultError: the function returned it.
        UsageError: the result does not fit the WSDL; the error says where, and what the WSDL requires.
        OSError: an attachment could not be read.
    """
    if isinstance(result, SoapFaultError):
        raise result
    reply = result if isinstance(result, Reply) else Reply(result)
    message = operation.output
    if message is None or message.body is None:
        return empty_reply(reply, operation)
    enclosed = Enclosures(reply.attachments)
    try:
        root = _rendered(enclosed, reply, version, message)
        enclosed.fill_in(root, spelled_out=False)
        contents = {} if lazy else {each.reference: each for each in enclosed.attachments if each.content_id}
        problem = misfit(root, message) or _misfit(root, described, message, contents)
    except (zeep.exceptions.ValidationError, ArgumentsError) as error:
        raise _unfit_answer(operation, str(error), described) from None
    except (UsageError, OSError):
        raise
    except Exception as error:  # zeep's types raise any Python error for values that do not fit
        raise _unfit_answer(operation, reason_of(error), described) from None
    if problem is not None:
        raise _unfit_answer(operation, problem, described)
    return Reply(root, enclosed.attachments, properties=reply.properties)


def _unfit_answer(operation: Any, why: str, described: PortDescription) -> UsageError:
    return unfit_answer(operation, why, _signature(operation.output.body, described))


def unfit_answer(operation: Any, why: str, wanted: str) -> UsageError:
    """Make the error for a result of a function that does not fit the WSDL."""
    return UsageError(
        f"the result of the function for {operation.name} does not fit the WSDL: {why}; it must return: {wanted}"
    )


def empty_reply(reply: Reply, operation: Any) -> Reply:
    """Make the reply of an operation whose response is empty, or that has none.

    Raises:
        UsageError: the function returned something.
    """
    if reply.content is not None:
        raise UsageError(
            f"the function for {operation.name} must return None, as the WSDL has no output, got {reply.content!r}"
        )
    return replace(reply, content=empty_content(operation))


def _rendered(enclosed: Enclosures, reply: Reply, version: SoapVersion, message: Any) -> etree._Element:
    """Let zeep write the message, and put it into an envelope of the request's version."""
    arguments, values = _arguments(enclosed.marked(reply.content), message.body.type)
    headers = dict(reply.headers) if isinstance(reply.headers, Mapping) else list(reply.headers)
    made = as_envelope(message.serialize(*arguments, **values, _soapheaders=headers).content)
    root = wrap(None, version)
    body = root[0]
    if made.header is not None:
        header = etree.Element(etree.QName(version.namespace, "Header"))
        root.insert(0, header)
        header.extend(list(made.header))
    body.extend(list(made.body))
    if isinstance(message, RpcMessage):  # zeep names the wrapper after the message
        body[0].tag = etree.QName(etree.QName(body[0]).namespace, f"{message.operation.name}Response").text
    return root


def element_with(
    element: Any, arguments: Sequence[Any], values: Mapping[str, Any], described: PortDescription, what: str
) -> etree._Element:
    """Write an element of the WSDL.

    Args:
        element: zeep's element.
        arguments, values: the values of the element, for zeep.
        described: the port.
        what: the name of the element in errors.

    Raises:
        UsageError: the values do not fit the element.
    """
    holder = etree.Element("holder")
    try:
        element.render(holder, element(*arguments, **values))
        problem = described.misfit(holder[0])
    except Exception as error:  # zeep's types raise any Python error for values that do not fit
        raise UsageError(
            f"{what} does not fit the WSDL: {reason_of(error)}; it takes: {_signature(element, described)}"
        ) from error
    if problem is not None:
        raise UsageError(f"{what} does not fit the WSDL: {problem}; it takes: {_signature(element, described)}")
    return holder[0]


def _signature(element: Any, described: PortDescription) -> str:
    return str(element.type.signature(schema=described.document.types, standalone=False))


def _arguments(value: Any, type_: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments from which zeep writes a message.

    For a message of a single element, `value` is the value of that element, as a zeep client gets it.
    """
    if not isinstance(type_, ComplexType):
        return [value], {}
    names = element_names(type_)
    if len(names) == 1 and not type_.attributes:
        if isinstance(value, dict) and list(value) == names and not _may_hold(type_, names[0]):
            raise ArgumentsError(f"the value of {names[0]} must be returned itself, not in a dict, got {value!r}")
        return [], {names[0]: value}
    if isinstance(value, CompoundValue):
        return [], dict(value.__values__)
    if value is None or isinstance(value, dict):
        return [], dict(value or {})
    raise ArgumentsError(f"the value must be a dict of the elements by name, got {value!r}")


def _may_hold(type_: Any, name: str) -> bool:
    """Say whether the only element of a type may have a member of its own name."""
    inner = type_.elements[0][1].type
    return isinstance(inner, ComplexType) and name in dict((*inner.elements, *inner.attributes))


def _misfit(
    root: etree._Element, described: PortDescription, message: Any, contents: Mapping[str, Attachment]
) -> str | None:
    envelope = as_envelope(root)
    for content in envelope.body:
        element = _spelled_out(content, contents)
        found = described.content_misfit(element, message)
        if found is not None:
            return found
    found = next((said for each in declared_headers(envelope, message) if (said := described.misfit(each))), None)
    return found and f"Header.{found}"


def _spelled_out(element: etree._Element, contents: Mapping[str, Attachment]) -> etree._Element:
    """Return a copy with base64 in place of each XOP reference; the element itself if there are none.

    References that are not in `contents` are replaced with arbitrary base64.
    """
    if next(element.iter(XOP_INCLUDE), None) is None:
        return element
    copy = deepcopy(element)
    for include in list(copy.iter(XOP_INCLUDE)):
        parent, attachment = include.getparent(), contents.get(include.get("href") or "")
        assert parent is not None, "Enclosures put it into an element"
        parent.remove(include)
        parent.text = "AAAA" if attachment is None else b64encode(attachment.octets()).decode("ascii")
    return copy
