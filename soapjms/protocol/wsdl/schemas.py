"""The schemas that a WSDL refers to. No schema is read here; those on a network are only listed.

Spec: XML Schema 1.0 4.2.1, 4.2.3; WSDL 1.1 2.2; WSDL 2.0 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lxml import etree

from soapjms.protocol.uri.redact import without_user_info
from soapjms.protocol.wsdl.documents import SCHEMA, WSDL11, WSDL20, Document
from soapjms.protocol.wsdl.findings import Finding, Place, finding

_TYPES: Final = (f"{{{WSDL11}}}types", f"{{{WSDL20}}}types")
REFERRING: Final = tuple(
    SCHEMA.replace("}schema", f"}}{each}") for each in ("import", "include", "redefine", "override")
)
"""The elements by which a schema refers to other schemas."""
_LOCAL: Final = re.compile(r"file:(?!//(?!/|localhost/))|(?![a-z][a-z0-9+.-]+:|//)", re.IGNORECASE)
"""A path, or a file: URI of this machine. One letter and a colon are a drive, not a scheme."""


@dataclass(frozen=True, slots=True)
class RemoteSchema:
    """A schema on a network.

    Attributes:
        element: the element that refers to it: import, include, redefine or override.
        namespace: the namespace of the schema; empty if it is not stated.
        location: the location of the schema.
        place: the place of the reference.
    """

    element: str
    namespace: str
    location: str
    place: Place

    def finding(self) -> Finding:
        """Return the finding that the schema is not fetched."""
        what = f"the {self.element} of a schema" + (f" for {self.namespace!r}" if self.namespace else "")
        return finding("remoteSchema", self.place, what=what, seen=without_user_info(self.location))


def schemas_in(document: Document) -> Iterator[etree._Element]:
    """Yield the schemas in a document, which may be one itself, and its types, which in WSDL 2.0 import schemas too.

    Raises:
        InvalidWsdlError: one element has more than `MAX_CHILDREN` schemas.
    """
    if document.root.tag == SCHEMA:
        yield document.root
    for types in document.children(document.root, *_TYPES):
        yield from (types, *document.children(types, SCHEMA))


def read_remote_schemas(document: Document) -> Iterator[RemoteSchema]:
    """Yield the schemas on a network that the schemas in a document, or in WSDL 2.0 its types, refer to.

    Raises:
        InvalidWsdlError: one element has more than `MAX_CHILDREN` references.
    """
    for holder in schemas_in(document):
        for each in document.children(holder, *REFERRING):
            location = each.get("schemaLocation", "").strip()
            if _LOCAL.match(location) is None:
                local = etree.QName(each).localname
                namespace = each.get("namespace") or holder.get("targetNamespace") or ""
                yield RemoteSchema(local, namespace, location, document.place(each))
