"""What zeep may load while it reads a WSDL: local files, WSDL or schema, so many and so large, no document types.

zeep asks its transport for every document. What it gets here was looked at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import urlsplit

from lxml import etree
from zeep.loader import absolute_location

from brokers.urls import without_login
from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.wsdl import documents
from soapjms.protocol.wsdl.documents import MAX_CHILDREN, MAX_IMPORTS, WSDL11, WSDL20
from soapjms.wsdl import Folders, local_path, read_file, real_path
from soapjms.zeep.groups import Groups

MAX_OCTETS: Final = 64 << 20
"""Of a WSDL with all its imports and schemas."""

ROOTS: Final = (f"{{{WSDL11}}}definitions", "{http://www.w3.org/2001/XMLSchema}schema")
_COUNTED: Final = tuple(f"{{{WSDL11}}}{each}" for each in ("binding", "service"))


class Loader(Protocol):
    """What fetches documents that are no local files; a `zeep.Transport` is one."""

    def load(self, url: str) -> bytes:
        """Return the octets of a document."""


class Loading:
    """Loads the documents of one WSDL for zeep, which takes it for a transport while it reads.

    Args:
        binding_classes: the bindings that zeep is to know.
        loader: fetches what is no local file; without one it is refused.
        allow: folders that imports may be read from, beside that of the WSDL.
        folders: where the document comes from if it is an import of another; None if the first is the WSDL.
    """

    def __init__(
        self,
        binding_classes: Sequence[type],
        loader: Loader | None,
        allow: Iterable[str | Path] = (),
        folders: Folders | None = None,
    ) -> None:
        self.binding_classes = binding_classes
        self.folders = folders
        self._allow = tuple(allow)
        self._loader = loader
        self._documents = 0
        self._octets = 0
        self._groups = Groups()

    def load(self, url: str) -> bytes:
        """Return a document.

        Raises:
            InvalidWsdlError: it cannot be read, is no WSDL 1.1 or schema, or has a document type; or there is more of
                it than any real WSDL has.
        """
        self._documents += 1
        if self._documents > MAX_IMPORTS:
            raise InvalidWsdlError(
                f"{without_login(url)}: the WSDL has more than {MAX_IMPORTS} imports in all its documents"
            )
        return self.checked(self._read(url), without_login(url))

    def begin(self, path: str | Path | None) -> None:
        """Note where the WSDL is whose documents are loaded: its folder is theirs. None if it is no local file."""
        self.folders = Folders(None if path is None else real_path(Path(path)), self._allow)

    def _read(self, url: str) -> bytes:
        try:
            is_local = urlsplit(url).scheme in ("", "file")
        except ValueError:  # its text repeats what is before the host
            raise InvalidWsdlError(f"{without_login(url)} is no URL: look at its host") from None
        path = Path(local_path(url) if url.startswith("file:") else url) if is_local else None
        if self.folders is None:
            self.begin(path)
        elif path is not None:
            self.folders.check(url, real_path(path))
        if path is not None:
            return read_file(path)
        if self._loader is None:
            raise InvalidWsdlError(
                f"{without_login(url)} is refused: nothing is fetched over a network; save it beside the WSDL and "
                "write its name as the location, or give loader=zeep.Transport()"
            )
        return self._loader.load(url)

    def checked(self, octets: bytes, name: str) -> bytes:
        """Return the octets of a document, having looked at them.

        Raises:
            InvalidWsdlError: see `load`.
        """
        self._octets += len(octets)
        for size, limit, what in (
            (len(octets), documents.MAX_OCTETS, "the document"),
            (self._octets, MAX_OCTETS, "the WSDL with all that it imports"),
        ):
            if size > limit:
                raise InvalidWsdlError(f"{name}: {what} has more than {limit >> 20} MiB")
        try:
            root = xml.parse(octets)
        except ValueError as error:
            raise InvalidWsdlError(f"{name}: {error}") from None
        _check_root(root, name)
        self._groups.add(root, name)
        return octets


def imports_of(octets: bytes, url: str) -> Iterator[str]:
    """Yield the addresses at which zeep will ask for what a document imports, which was loaded from `url`."""
    for element in xml.parse(octets).iter(etree.Element):
        for name in ("location", "schemaLocation"):
            if (location := element.get(name)) is not None:
                yield absolute_location(location, url)


def _check_root(root: etree._Element, name: str) -> None:
    if root.tag not in ROOTS:
        hint = ""
        if etree.QName(root).namespace == WSDL20:
            hint = "; zeep does not read WSDL 2.0, call its endpoints with soapjms.Client.from_wsdl"
        raise InvalidWsdlError(f"{name}: the root element is {root.tag!s}; accepted is {' or '.join(ROOTS)}{hint}")
    for tag in _COUNTED:
        count = sum(1 for _ in root.iterchildren(tag))
        if count > MAX_CHILDREN:
            raise InvalidWsdlError(
                f"{name}: {count} elements such as {etree.QName(tag).localname} in one; accepted are {MAX_CHILDREN}"
            )


def octets_of(file: BinaryIO | Any) -> bytes:
    """Read an open file, as far as a WSDL may go.

    Raises:
        InvalidWsdlError: it was opened for text.
    """
    octets = file.read(documents.MAX_OCTETS + 1)
    if not isinstance(octets, bytes):
        raise InvalidWsdlError("the WSDL is a file that was opened for text; open it in binary mode, as 'rb'")
    return octets
