"""The values that a function of a service may return, and the envelopes made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias

from lxml import etree

from brokers.message import PropertyValue
from soapjms import events
from soapjms.protocol.attachments import Attachment, attachments_given
from soapjms.protocol.envelope import Fault, as_envelope, build_fault, enclosed, header_of, read_fault, wrap
from soapjms.protocol.errors import Blame, SoapFaultError, UsageError
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.xml import parse_own

Content: TypeAlias = etree._Element | SoapFaultError | None
"""An element for the SOAP body (or a whole Envelope), a fault, or None for an empty body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with attachments, SOAP headers or properties. With an `xop:Include` it is sent as MTOM, else as SwA.

    Attributes:
        content: what a function would return without them.
        attachments: the attachments; None counts as none.
        headers: the SOAP header blocks, as elements; None counts as none. A typed function may give values by their
            names in its WSDL.
        properties: properties of the JMS message, beside those of the binding.

    Raises:
        UsageError: attachments, headers or properties have another type.
    """

    content: Any
    attachments: Sequence[Attachment] = ()
    headers: Iterable[etree._Element] | Mapping[str, Any] = ()
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attachments", attachments_given(self.attachments))
        object.__setattr__(self, "headers", _headers_given(self.headers))
        if not isinstance(self.properties, Mapping):
            raise UsageError(f"properties must be a mapping of names to values, got {self.properties!r}")


def _headers_given(headers: Iterable[etree._Element] | Mapping[str, Any] | None) -> Any:
    if headers is None or isinstance(headers, Mapping):
        return headers or ()
    if not isinstance(headers, Iterable) or isinstance(headers, str | bytes | etree._Element):
        raise UsageError(f"headers must be a list of elements, got {headers!r}")
    return headers if isinstance(headers, Sequence) else tuple(headers)


class Prepared:
    """An answer that is ready to be sent. Middleware sees it in this form, and may change or replace it.

    Args:
        envelope: the SOAP envelope.
        attachments: the attachments sent with it.
        properties: properties of the JMS message, beside those of the binding; not shared with other answers.
    """

    __slots__ = ("_content", "_envelope", "_version", "attachments", "properties")

    _content: etree._Element | None
    _envelope: etree._Element | None
    _version: SoapVersion

    def __init__(
        self,
        envelope: etree._Element | None,
        attachments: Sequence[Attachment] = (),
        properties: dict[str, PropertyValue] | None = None,
    ) -> None:
        self._envelope = envelope
        self._content = None
        self.attachments = attachments
        self.properties = {} if properties is None else properties

    @classmethod
    def around(cls, content: etree._Element, version: SoapVersion) -> Self:
        """Make an answer whose body holds an element, which is copied when the envelope is asked for."""
        made = cls.__new__(cls)
        made._content, made._version, made._envelope = content, version, None
        made.attachments, made.properties = (), {}
        return made

    @property
    def content(self) -> etree._Element | None:
        """The element to send in an envelope that nobody has asked for, without attachments and properties.

        None for any other answer.
        """
        return None if self.attachments or self.properties else self._content

    @property
    def envelope(self) -> etree._Element:
        """The SOAP envelope. It may be changed."""
        if self._envelope is None:
            assert self._content is not None
            self._envelope = parse_own(enclosed(self._content, self._version))
            self._content = None
        return self._envelope

    @property
    def element(self) -> etree._Element | None:
        """The first element of the SOAP body; None if the body is empty."""
        return as_envelope(self.envelope).content

    @property
    def fault(self) -> Fault | None:
        """The SOAP fault in the envelope, or None."""
        return read_fault(as_envelope(self.envelope))

    def add_header(self, block: etree._Element) -> None:
        """Add a SOAP header block."""
        header_of(self.envelope).append(block)


Answer: TypeAlias = Content | Reply | Prepared
"""What a function may return."""

ENVELOPE_TAGS: Final = frozenset(f"{{{version.namespace}}}Envelope" for version in SoapVersion)
SOAP_TAGS: Final = ENVELOPE_TAGS | {f"{{{version.namespace}}}Fault" for version in SoapVersion}
DETAIL_TAGS: Final = frozenset({"detail", *(f"{{{version.namespace}}}Detail" for version in SoapVersion)})
SOAP_11_BLAMES: Final[Mapping[str, Blame]] = {"Client": Blame.SENDER, "Server": Blame.RECEIVER}


def prepared(version: SoapVersion, answer: Answer) -> Prepared:
    """Make an answer to send from what a function returned. A returned fault becomes a fault envelope.

    Raises:
        TypeError, ValueError: the function returned something that is not an answer.
    """
    if type(answer) is etree._Element and answer.tag not in SOAP_TAGS:
        return Prepared.around(answer, version)
    if isinstance(answer, Prepared):
        return answer
    if not isinstance(answer, Reply):
        return Prepared(as_envelope_of(version, answer))
    if isinstance(answer.content, SoapFaultError):  # sent without attachments and headers
        return Prepared(fault_of(version, answer.content), (), dict(answer.properties))
    root = as_envelope_of(version, answer.content)
    if answer.headers:
        _add_headers(root, answer)
    return Prepared(root, answer.attachments, dict(answer.properties))


def _add_headers(root: etree._Element, reply: Reply) -> None:
    if root is reply.content:
        raise ValueError("the operation returned headers together with an envelope, which has its own Header")
    if not all(isinstance(each, etree._Element) for each in reply.headers):
        raise TypeError(f"the headers of a Reply must be elements, got {reply.headers!r}")
    header_of(root).extend(deepcopy(each) for each in reply.headers if isinstance(each, etree._Element))


def service_failed(version: SoapVersion) -> etree._Element:
    """Build the fault for a failure of the service itself. It tells no details, as the peer may be anybody."""
    return build_fault(version, "the service failed", blame=Blame.RECEIVER)


def as_envelope_of(version: SoapVersion, answer: Content) -> etree._Element:
    """Turn what a function returned into an envelope. An element is copied, as the function may return it again.

    Raises:
        TypeError: the function returned anything but an element, a fault or None; a comment is not an element.
        ValueError: the function returned an envelope of the other SOAP version, or one without a Body.
    """
    if answer is None:
        return wrap(None, version)
    if isinstance(answer, SoapFaultError):
        return fault_of(version, answer)
    if not isinstance(answer, etree._Element) or not isinstance(answer.tag, str):
        seen = type(answer).__name__
        raise TypeError(f"an operation must return an element, a SoapFaultError, None or a Reply, got {seen}")
    if answer.tag not in ENVELOPE_TAGS:
        return parse_own(enclosed(answer, version))
    if as_envelope(answer).version is not version:
        raise ValueError(f"the operation must return an envelope of the request's version, SOAP {version}, got another")
    return answer


def fault_of(version: SoapVersion, error: SoapFaultError) -> etree._Element:
    """Build the envelope for a fault that a function raised or returned, perhaps after receiving it itself.

    A `detail` that is not an element is logged and left out.
    """
    parts = _details(error.detail)
    blame = SOAP_11_BLAMES.get(error.blame) or Blame(error.blame)
    root = build_fault(version, error.reason, blame=blame, detail=parts[0] if parts else None, subcodes=error.subcodes)
    for earlier, part in pairwise(parts):
        earlier.addnext(part)
    return root


def _details(detail: object) -> list[etree._Element]:
    """Return copies of the elements for the fault's detail; if `detail` is a detail element itself, of its children."""
    if detail is None:
        return []
    if not isinstance(detail, etree._Element):
        events.FAULT_DETAIL_LEFT_OUT.log(detail)
        return []
    found = detail.iterchildren(etree.Element) if detail.tag in DETAIL_TAGS else [detail]
    return [deepcopy(each) for each in found]
