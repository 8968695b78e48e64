"""What a typed function returned, as an envelope: written by zeep, then held to the schema.

What does not fit is the service's mistake: its log says it in full, and the caller learns that the service failed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import zeep.exceptions
from lxml import etree
from zeep.wsdl.messages import RpcMessage
from zeep.xsd import ComplexType, CompoundValue

from soapjms.answers import Reply
from soapjms.protocol.attachments import XOP_INCLUDE, Attachment
from soapjms.protocol.envelope import as_envelope, wrap
from soapjms.protocol.errors import SoapFaultError, UsageError
from soapjms.protocol.names import SoapVersion
from soapjms.typed.description import Described
from soapjms.typed.reading import declared_headers
from soapjms.typed.signature import element_names
from soapjms.zeep.bare import once, sendable
from soapjms.zeep.checking import misfit
from soapjms.zeep.enclosed import Enclosed


def reply_with(result: Any, version: SoapVersion, described: Described, operation: Any, *, lazy: bool) -> Reply:
    """Make the envelope for what a function returned.

    Args:
        result: it; or a Reply with it and with SOAP headers or attachments.
        version: of the request.
        described: the port.
        operation: zeep's.
        lazy: do not read attachments to hold them to the schema.

    Raises:
        SoapFaultError: the function returned one.
        UsageError: it does not fit the WSDL; the message says where, and what the WSDL says.
        OSError: an attachment could not be read.
    """
    if isinstance(result, SoapFaultError):
        raise result
    reply = result if isinstance(result, Reply) else Reply(result)
    message = operation.output
    if message is None or message.body is None:
        return _nothing(reply, version, operation)
    enclosed = Enclosed(reply.attachments)
    try:
        root = _rendered(enclosed, reply, version, message)
        enclosed.fill_in(root, spelled_out=False)
        contents = {} if lazy else {each.reference: each for each in enclosed.attachments if each.content_id}
        problem = misfit(root, message) or _misfit(root, described, message, contents)
    except zeep.exceptions.ValidationError as error:
        raise _unfit(operation, str(error), described) from None
    except (UsageError, OSError):
        raise
    except Exception as error:  # zeep's types raise whatever Python does with a value of another type
        raise _unfit(operation, f"{type(error).__name__}: {error}", described) from None
    if problem is not None:
        raise _unfit(operation, problem, described)
    return Reply(root, enclosed.attachments, properties=reply.properties)


def _unfit(operation: Any, why: str, described: Described) -> UsageError:
    wanted = _signature(operation.output.body, described)
    return UsageError(
        f"what the function for {operation.name} returned does not fit the WSDL: {why}; it returns: {wanted}"
    )


def _nothing(reply: Reply, version: SoapVersion, operation: Any) -> Reply:
    if reply.content is not None:
        raise UsageError(
            f"the function for {operation.name} returned {reply.content!r}; by the WSDL nothing is returned"
        )
    return Reply(wrap(None, version), reply.attachments, properties=reply.properties)


def _rendered(enclosed: Enclosed, reply: Reply, version: SoapVersion, message: Any) -> etree._Element:
    """Let zeep write the message, and put it into an envelope of the request's version."""
    arguments, values = _arguments(enclosed.marked(reply.content), message.body.type)
    headers = dict(reply.headers) if isinstance(reply.headers, Mapping) else list(reply.headers)
    made = as_envelope(sendable(message).serialize(*arguments, **values, _soapheaders=headers).content)
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
    element: Any, arguments: Sequence[Any], values: Mapping[str, Any], described: Described, what: str
) -> etree._Element:
    """Write an element of the WSDL.

    Args:
        element: zeep's.
        arguments, values: what zeep is to write.
        described: the port.
        what: it is, for people.

    Raises:
        UsageError: the values do not fit it.
    """
    holder = etree.Element("holder")
    try:
        writable = once(element)
        writable.render(holder, writable(*arguments, **values))
        problem = described.misfit(holder[0])
    except Exception as error:  # zeep's types raise whatever Python does with a value of another type
        raise UsageError(
            f"{what} does not fit the WSDL: {error}; it takes: {_signature(element, described)}"
        ) from error
    if problem is not None:
        raise UsageError(f"{what} does not fit the WSDL: {problem}; it takes: {_signature(element, described)}")
    return holder[0]


def _signature(element: Any, described: Described) -> str:
    return str(element.type.signature(schema=described.document.types, standalone=False))


def _arguments(value: Any, type_: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return what zeep writes a message from.

    A message that consists of one element takes its value: the function returns what a zeep client gets.
    """
    if not isinstance(type_, ComplexType):
        return [value], {}
    names = element_names(type_)
    if len(names) == 1 and not type_.attributes:
        return [], {names[0]: value}
    if isinstance(value, CompoundValue):
        return [], dict(value.__values__)
    if value is None or isinstance(value, dict):
        return [], dict(value or {})
    raise TypeError(f"it is {value!r}, and not a dict of the elements by name")


def _misfit(root: etree._Element, described: Described, message: Any, contents: Mapping[str, Attachment]) -> str | None:
    envelope = as_envelope(root)
    for content in envelope.body:
        element = _spelled_out(content, contents)
        found = described.content_misfit(element, message)
        if found is not None:
            return found
    found = next((said for each in declared_headers(envelope, message) if (said := described.misfit(each))), None)
    return found and f"Header.{found}"


def _spelled_out(element: etree._Element, contents: Mapping[str, Attachment]) -> etree._Element:
    """Return a copy with base64 in the place of what is included; the element itself if nothing is.

    What is not in `contents` has some other base64 there.
    """
    if next(element.iter(XOP_INCLUDE), None) is None:
        return element
    copy = deepcopy(element)
    for include in list(copy.iter(XOP_INCLUDE)):
        parent, attachment = include.getparent(), contents.get(include.get("href") or "")
        assert parent is not None, "Enclosed put it into an element"
        parent.remove(include)
        parent.text = "AAAA" if attachment is None else b64encode(attachment.octets()).decode("ascii")
    return copy
