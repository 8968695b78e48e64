"""The text of an XML document: finding the position of each element in it, and inserting new elements.

The rest of the text stays as it is, to the last character: comments, line breaks inside tags, quotes, encoding. Works
on parsed documents only, which are known to be well-formed and to have no document type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from soapjms.protocol.content import document_encoding, encoding_name

_MARKUP: Final = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(?P<end>/?)(?P<tag>(?:[^\"'<>]|\"[^\"]*\"|'[^']*')*+)>", re.DOTALL
)
_XML: Final = "http://www.w3.org/XML/1998/namespace"
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class ElementSpan(NamedTuple):
    """The positions of an element's start tag and end tag; after an empty-element tag the end tag is empty."""

    start: int
    inside: int
    end: int
    after: int

    @property
    def is_empty(self) -> bool:
        """True for an element without content and end tag."""
        return self.inside == self.after


class Edit(NamedTuple):
    """Replaces the text from `start` to `end`."""

    start: int
    end: int
    text: str


class Text:
    """A document as text, along with the tree that was parsed from it.

    Args:
        octets: the document; as it was parsed, it is in the encoding that it declares.
        root: the root element.
    """

    def __init__(self, octets: bytes, root: etree._Element) -> None:
        self.encoding = encoding_name(document_encoding(octets))
        self.text = octets.decode(self.encoding)
        self.line_break = "\r\n" if "\r\n" in self.text else "\n"
        self._spans = dict(zip(root.iter("*"), _spans(self.text), strict=True))

    def span(self, element: etree._Element) -> ElementSpan:
        """Return the position of an element."""
        return self._spans[element]

    def indent(self, element: etree._Element) -> str:
        """Return the white space before an element on its line; empty if there is anything else."""
        start = self.span(element).start
        before = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        return before if before.isspace() else ""

    def edited(self, edits: Iterable[Edit]) -> bytes:
        """Return the document with edits; characters that its encoding lacks are written as references."""
        text = self.text
        for edit in sorted(edits, reverse=True):
            lines = edit.text.replace("\n", self.line_break)
            text = text[: edit.start] + lines + text[edit.end :]
        return text.encode(self.encoding, "xmlcharrefreplace")


def _spans(text: str) -> list[ElementSpan]:
    """Return the elements of a document in the order of their start tags."""
    found: list[ElementSpan] = []
    opened: list[int] = []
    for markup in _MARKUP.finditer(text):
        tag = markup["tag"]
        if tag is None:
            continue
        if markup["end"]:
            index = opened.pop()
            found[index] = found[index]._replace(end=markup.start(), after=markup.end())
            continue
        found.append(ElementSpan(markup.start(), markup.end(), markup.end(), markup.end()))
        if not tag.endswith("/"):
            opened.append(len(found) - 1)
    return found


# Writing


@dataclass(slots=True)
class Scope:
    """The namespaces that new elements can use: those in scope at their position, and those that they declare.

    Attributes:
        inherited: prefix to namespace; the default namespace has the prefix None.
        declared: prefix to namespace, for the declarations of the outermost new element.
    """

    inherited: Mapping[str | None, str]
    declared: dict[str, str] = field(default_factory=dict)

    def prefix(self, space: str, wanted: str) -> str:
        """Return a prefix for a namespace; if it has none, declare `wanted`, or a similar one if that is taken."""
        if space == _XML:
            return "xml"
        for known in (self.inherited, self.declared):
            for each, found in known.items():
                if found == space and each is not None:
                    return each
        prefix, number = wanted, 1
        while prefix in self.inherited or prefix in self.declared:
            number += 1
            prefix = f"{wanted}{number}"
        self.declared[prefix] = space
        return prefix

    def element(self, space: str, local: str, wanted: str) -> str:
        """Return the tag of an element, without a prefix in the default namespace."""
        if self.inherited.get(None) == space:
            return local
        return f"{self.prefix(space, wanted)}:{local}"

    def complete(self, node: NewElement) -> NewElement:
        """Return the outermost new element with the declarations that it and its descendants need."""
        return node._replace(
            attributes=[*node.attributes, *((f"xmlns:{prefix}", space) for prefix, space in self.declared.items())]
        )

    def qname(self, clark: str, wanted: str) -> str:
        """Return the prefixed form of a name in Clark notation."""
        space, _, local = clark[1:].partition("}")
        return f"{self.prefix(space, wanted)}:{local}" if space else local


class NewElement(NamedTuple):
    """A new element: its tag, attributes, and either text or children."""

    tag: str
    attributes: Sequence[tuple[str, str]] = ()
    children: Sequence[NewElement] = ()
    text: str = ""

    def lines(self, indent: str, step: str) -> Iterable[str]:
        """Yield the lines of the element."""
        head = indent + "<" + " ".join([self.tag, *(f"{name}={quoteattr(value)}" for name, value in self.attributes)])
        if self.text:
            yield f"{head}>{escape(self.text, {chr(13): '&#13;'})}</{self.tag}>"
        elif not self.children:
            yield f"{head}/>"
        else:
            yield f"{head}>"
            for child in self.children:
                yield from child.lines(indent + step, step)
            yield f"{indent}</{self.tag}>"


def is_xml(text: str) -> bool:
    """Say whether XML can hold a text."""
    return _NOT_XML.search(text) is None
