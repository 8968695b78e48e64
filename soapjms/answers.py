"""What a function of a service may return, and the envelope that is made of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

from lxml import etree

from soapjms.protocol.attachments import Attachment
from soapjms.protocol.envelope import Blame, as_envelope, build_fault, wrap
from soapjms.protocol.errors import SoapFaultError
from soapjms.protocol.names import SoapVersion

log = logging.getLogger("soapjms.service")

Content: TypeAlias = etree._Element | SoapFaultError | None
"""An element for the SOAP body (or a whole Envelope), a fault, or None for an empty body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with attachments, which make it MTOM if it has an `xop:Include`, else SwA; or with SOAP headers.

    Attributes:
        content: what a function would return without them.
        attachments: what goes along.
        headers: the SOAP header blocks: elements. A typed function may give values by the names that its WSDL has.
    """

    content: Any
    attachments: Sequence[Attachment] = ()
    headers: Sequence[etree._Element] | Mapping[str, Any] = ()


Answer: TypeAlias = Content | Reply
"""What a function may return."""

Prepared: TypeAlias = tuple[etree._Element, Sequence[Attachment]]
"""An envelope, and what goes along with it."""

ENVELOPE_TAGS: Final = frozenset(f"{{{version.namespace}}}Envelope" for version in SoapVersion)
DETAIL_TAGS: Final = frozenset({"detail", *(f"{{{version.namespace}}}Detail" for version in SoapVersion)})
SOAP_11_BLAMES: Final[Mapping[str, Blame]] = {"Client": Blame.SENDER, "Server": Blame.RECEIVER}


def prepared(version: SoapVersion, answer: Answer) -> Prepared:
    """Make of what a function returned what is sent.

    Raises:
        SoapFaultError: the function returned one.
        TypeError, ValueError: it returned what no answer is.
    """
    if not isinstance(answer, Reply):
        return as_envelope_of(version, answer), ()
    root = as_envelope_of(version, answer.content)
    if answer.headers:
        _add_headers(root, answer)
    return root, answer.attachments


def _add_headers(root: etree._Element, reply: Reply) -> None:
    if root is reply.content:
        raise ValueError("the operation returned headers beside an envelope, which has its own Header")
    if not all(isinstance(each, etree._Element) for each in reply.headers):
        raise TypeError(f"the headers of a Reply are elements, not {reply.headers!r}")
    header = etree.Element(etree.QName(etree.QName(root).namespace, "Header"))
    root.insert(0, header)
    header.extend(deepcopy(each) for each in reply.headers if isinstance(each, etree._Element))


def service_failed(version: SoapVersion) -> etree._Element:
    """Build the fault for a failure of the service itself: nothing of its insides, as the peer may be anybody."""
    return build_fault(version, "the service failed", blame=Blame.RECEIVER)


def as_envelope_of(version: SoapVersion, answer: Content) -> etree._Element:
    """Turn what a function returned into an envelope. An element is copied: the function may return it again.

    Raises:
        SoapFaultError: the function returned one.
        TypeError: it returned something else than an element, a fault or None; a comment is no element.
        ValueError: it returned an envelope of the other SOAP version, or one without Body.
    """
    if answer is None:
        return wrap(None, version)
    if isinstance(answer, SoapFaultError):
        raise answer
    if not isinstance(answer, etree._Element) or not isinstance(answer.tag, str):
        seen = type(answer).__name__
        raise TypeError(f"an operation returns an element, a SoapFaultError, None or a Reply, not {seen}")
    if answer.tag not in ENVELOPE_TAGS:
        return wrap(deepcopy(answer), version)
    if as_envelope(answer).version is not version:
        raise ValueError(f"the operation returned an envelope of another version than the request's SOAP {version}")
    return answer


def fault_of(version: SoapVersion, error: SoapFaultError) -> etree._Element:
    """Build the envelope for a fault that a function raised or returned, perhaps one that it had received itself.

    A `detail` that is no element is logged and left out.
    """
    parts = _details(error.detail)
    blame = SOAP_11_BLAMES.get(error.blame) or Blame(error.blame)
    root = build_fault(version, error.reason, blame=blame, detail=parts[0] if parts else None)
    for earlier, part in pairwise(parts):
        earlier.addnext(part)
    return root


def _details(detail: object) -> list[etree._Element]:
    """Return copies of the elements that go into the fault's detail: of a fault received, those that were in its."""
    if detail is None:
        return []
    if not isinstance(detail, etree._Element):
        log.error("the detail of a fault is an element, not %r; it is left out", detail)
        return []
    found = detail.iterchildren(etree.Element) if detail.tag in DETAIL_TAGS else [detail]
    return [deepcopy(each) for each in found]
