"""Attachments of a call through zeep, out and in: zeep itself sends none.

Out: an `Attachment` given as a value becomes an `xop:Include`, which makes the request MTOM; those in `_attachments` go
along as they are. In: what `xop:Include` brings in becomes base64 text, which zeep reads; the rest goes into a
`MessagePack`, as zeep has it for HTTP.

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
    """What goes along with one request.

    Args:
        listed: the attachments in `_attachments`.

    Attributes:
        attachments: all of them, those given as values too.

    Raises:
        UsageError: `listed` is no sequence of attachments.
    """

    def __init__(self, listed: object = ()) -> None:
        if not isinstance(listed, Sequence) or not all(isinstance(each, Attachment) for each in listed):
            raise UsageError(f"{ARGUMENT} is {listed!r}; it is a list of soapjms.Attachment")
        self.attachments: list[Attachment] = list(listed)
        self._secret = uuid4().hex  # so that nobody's text is taken for a mark
        self._marked: list[tuple[str, Attachment, Attachment]] = []  # the mark, as given, with a Content-ID
        self._elements: list[tuple[etree._Element, Attachment]] = []

    # zeep writes base64 for octets and leaves text alone. So an attachment is put in as a text that marks the place.

    def marked(self, value: Any) -> Any:
        """Return a value with a mark in the place of each attachment; the same object if it has none."""
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
            envelope: changed where it is.
            spelled_out: put base64 text there first, for those who sign or read the envelope as XOP says that it is;
                `include` comes later.

        Raises:
            UsageError: an attachment did not become the content of an element.
            OSError: its content is elsewhere, and cannot be read.

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
                    f"the attachment {each.content_id!r} is the value of something that is no element; it stands for "
                    f"the content of an element of type xs:base64Binary, others are listed in {ARGUMENT}"
                )
        if not spelled_out:
            self.include(envelope)

    def include(self, envelope: etree._Element) -> None:
        """Put an `xop:Include` into each element that an attachment is the content of.

        In an envelope that somebody made anew meanwhile the base64 text stays, and the attachment is not sent.
        """
        for element, attachment in self._elements:
            if element.getroottree().getroot() is envelope:
                element.text = None
                element.append(attachment.include())
            else:
                self.attachments = [each for each in self.attachments if each is not attachment]
        self._elements.clear()


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value of zeep's with what `change` makes of each part of it; the same object if nothing changes."""
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
    """Return an object of the same type of the schema with other values; the caller's stays as it is."""
    made = type(value)()
    for name, each in vars(value).items():
        setattr(made, name, each)
    made.__values__ = inner
    return made


# In


class _Part:
    """A part as zeep's `Attachment` takes it; decoded, so it says nothing of a transfer encoding."""

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
    """List the parts that no `xop:Include` brings in."""
    included = [attachments.find(each.get("href") or "") for each in root.iter(XOP_INCLUDE)]
    return [part for part in attachments if not any(part is each for each in included)]


def packed(result: Any, parts: Sequence[Part]) -> Any:
    """Put a result and the parts that came along into zeep's `MessagePack`; without parts it stays as it is."""
    if not parts:
        return result
    pack = MessagePack(parts=[_Part(each) for each in parts])
    pack._set_root(result)
    return pack
