"""Attachments of a call through zeep, sent and received: zeep itself sends none.

Sent: an `Attachment` given as a value becomes an `xop:Include`, which makes the request MTOM; those in `_attachments`
are added as they are. Received: parts that an `xop:Include` refers to become base64 text, which zeep reads; the others
are put into a `MessagePack`, as zeep does over HTTP.

Spec: SOAP/JMS 2.4; XOP 1.0 2, 3; SOAP Messages with Attachments.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from lxml import etree
from zeep.wsdl.attachments import MessagePack
from zeep.xsd import AnyObject, CompoundValue

from soapjms.protocol.attachments import XOP_INCLUDE, Attachment, Attachments, Part
from soapjms.protocol.errors import UsageError

ARGUMENT = "_attachments"
"""The keyword argument of an operation that lists attachments, beside zeep's own `_soapheaders`."""


class Enclosures:
    """The attachments of one request.

    Args:
        listed: the attachments in `_attachments`.

    Attributes:
        attachments: all attachments, including those given as values.

    Raises:
        UsageError: `listed` is not a sequence of attachments.
    """

    def __init__(self, listed: object = ()) -> None:
        if not isinstance(listed, Sequence) or not all(isinstance(each, Attachment) for each in listed):
            raise UsageError(f"{ARGUMENT} must be a list of soapjms.Attachment, got {listed!r}")
        self.attachments: list[Attachment] = list(listed)
        self._secret = uuid4().hex  # so that no other text is taken for a mark
        self._marked: list[tuple[str, Attachment, Attachment]] = []  # the mark; as given; with a Content-ID
        self._elements: list[tuple[etree._Element, Attachment]] = []

    # zeep encodes octets as base64 but leaves text alone. So a text marks the place of an attachment.

    def marked(self, value: Any) -> Any:
        """Return a value with a mark in place of each attachment; the same object if it has no attachments."""
        return replaced(value, lambda each: self._mark(each) if isinstance(each, Attachment) else each)

    def _mark(self, given: Attachment) -> str:
        for mark, known, _ in self._marked:
            if known is given:
                return mark
        number = len(self._marked) + 1
        named = given
        if given.content_id is None:
            named = replace(given, content_id=f"{number}.{self._secret}@soapjms")
        self.attachments = [*(each for each in self.attachments if each is not given), named]
        mark = f"soapjms:{self._secret}:{number}"
        self._marked.append((mark, given, named))
        return mark

    def fill_in(self, envelope: etree._Element, *, spelled_out: bool) -> None:
        """Replace the marks in an envelope.

        Args:
            envelope: the envelope, which is changed in place.
            spelled_out: put in base64 text first, for plugins and signatures that need the envelope before XOP; call
                `include` afterwards.

        Raises:
            UsageError: an attachment did not become the content of an element, or its content cannot be read.

        Spec: XOP 1.0 2, 5.
        """
        marks = {mark: attachment for mark, _, attachment in self._marked}
        if not marks:
            return
        for element in envelope.iter(etree.Element):
            attachment = marks.get(element.text or "")
            if attachment is not None:
                element.text = b64encode(attachment.octets()).decode("ascii") if spelled_out else None
                self._elements.append((element, attachment))
        placed = [attachment for _, attachment in self._elements]
        for each in marks.values():
            if not any(each is other for other in placed):
                raise UsageError(
                    f"an attachment given as a value must be the content of an element of type xs:base64Binary, got "
                    f"{each.content_id!r} elsewhere; list other attachments in {ARGUMENT}"
                )
        if not spelled_out:
            self.include(envelope)

    def include(self, envelope: etree._Element) -> None:
        """Put an `xop:Include` into each element whose content is an attachment.

        If the envelope was replaced meanwhile, the base64 text stays in it, and the attachment is not sent.
        """
        for element, attachment in self._elements:
            if element.getroottree().getroot() is envelope:
                element.text = None
                element.append(attachment.include())
            else:
                self.attachments = [each for each in self.attachments if each is not attachment]
        self._elements.clear()


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a zeep value with `change` applied to each of its parts; the same object if nothing changes."""
    if (new := change(value)) is not value:
        return new
    if isinstance(value, dict):
        items = {name: replaced(each, change) for name, each in value.items()}
        return value if _same(items.values(), value.values()) else items
    if isinstance(value, list | tuple):
        parts = [replaced(each, change) for each in value]
        return value if _same(parts, value) else type(value)(parts)
    if isinstance(value, CompoundValue):
        inner = replaced(value.__values__, change)
        return value if inner is value.__values__ else _with_values(value, inner)
    if isinstance(value, AnyObject):
        inner = replaced(value.value, change)
        return value if inner is value.value else AnyObject(value.xsd_obj, inner)
    return value


def _same(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))


def _with_values(value: Any, inner: Mapping[str, Any]) -> Any:
    """Return an object of the same schema type with other values; the caller's object is not changed."""
    made = type(value)()
    for name, each in vars(value).items():
        setattr(made, name, each)
    made.__values__ = inner
    return made


# Received


class _Part:
    """A part in the form that zeep's `Attachment` takes; it is decoded, so it has no transfer encoding."""

    encoding = "latin-1"

    def __init__(self, part: Part) -> None:
        self._part = part
        self.headers = {
            name.encode(self.encoding): value.encode(self.encoding)
            for name, value in part.fields.items()
            if name != "content-transfer-encoding"
        }

    @property
    def content(self) -> bytes:
        return bytes(self._part.content)


def apart(root: etree._Element, attachments: Attachments) -> list[Part]:
    """List the parts that no `xop:Include` refers to."""
    included = [attachments.find(each.get("href") or "") for each in root.iter(XOP_INCLUDE)]
    return [part for part in attachments if not any(part is each for each in included)]


def packed(result: Any, parts: Sequence[Part]) -> Any:
    """Put a result and the received parts into zeep's `MessagePack`; without parts return the result itself."""
    if not parts:
        return result
    pack = MessagePack(parts=[_Part(each) for each in parts])
    pack._set_root(result)
    return pack
