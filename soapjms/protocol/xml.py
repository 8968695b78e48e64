"""The one place where XML parsers are made: whatever is parsed may be hostile.

No DTD, no entity, nothing loaded from anywhere, libxml2's limits on depth, length and amplification. No other module of
soapjms makes a parser.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from lxml import etree

DOCTYPE: Final = "a document type declaration (DOCTYPE), which is refused: take it out, with the entities it declares"

_DOCTYPE_FIRST: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s++|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE", re.DOTALL)


@lru_cache(maxsize=64)
def _parser(encoding: str | None) -> etree.XMLParser:
    """Return the parser for an encoding (None: the document's own)."""
    return etree.XMLParser(encoding=encoding, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)


def parse(octets: bytes, encoding: str | None = None) -> etree._Element:
    """Parse an XML document that may be hostile; its elements know their lines (`sourceline`).

    Args:
        octets: the document.
        encoding: what it is in, over what it says itself; None to believe the document.

    Raises:
        ValueError: not well-formed, has a document type, or in an encoding that is unknown.
    """
    try:
        root = etree.fromstring(octets, _parser(encoding))
    except (etree.XMLSyntaxError, LookupError) as error:
        why = DOCTYPE if _DOCTYPE_FIRST.match(octets) else f"not well-formed XML: {error}"
        raise ValueError(why) from None
    if root.getroottree().docinfo.doctype:
        raise ValueError(DOCTYPE)
    return root
