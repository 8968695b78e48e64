"""A transport for zeep that sends over JMS."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from brokers.connection import Connection
from soapjms.wsdl import Folders
from soapjms.zeep.bindings import BINDING_CLASSES
from soapjms.zeep.endpoints import Endpoints
from soapjms.zeep.loading import Loader, Loading, imports_of


class JmsTransport(Endpoints):
    """Sends the calls of a `zeep.Client` over JMS: `zeep.Client("greeter.wsdl", transport=JmsTransport(connection))`.

    `settings(timeout=…)`, `close` and `operation_timeout` are as zeep's own transports have them.

    Args:
        connection: to the broker; stays the caller's to close.
        loader: fetches WSDLs and schemas that are no local files, such as a `zeep.Transport()`; without one they are
            refused.
        allow: folders that imports may be read from, beside that of the WSDL.
        options: `operation_timeout` in seconds, `properties`, `profile`, `message_type`, `replies`, `names`,
            `middleware`, `addressing`, `recorder`, `observer`, `limits`; see `Endpoints`.

    Attributes:
        binding_classes: the bindings that zeep is to know.
    """

    binding_classes = BINDING_CLASSES

    def __init__(
        self, connection: Connection, *, loader: Loader | None = None, allow: Iterable[str | Path] = (), **options: Any
    ) -> None:
        super().__init__(connection, **options)
        self.loader = loader
        self._allow = tuple(allow)
        self._imports: dict[str, Folders] = {}  # of documents that `load` gave to zeep: where they may come from

    def load(self, url: str) -> bytes:
        """Return a document that zeep reads. Each is looked at alone here; `soapjms.zeep.Client` bounds all together.

        What none of the documents before imports is a WSDL of the caller's, from wherever it is.

        Raises:
            InvalidWsdlError: it cannot be read, or is no WSDL 1.1 or schema, or has a document type.
        """
        loading = Loading(self.binding_classes, self.loader, self._allow, self._imports.get(url))
        octets = loading.load(url)
        assert loading.folders is not None, "it has read something"
        for each in imports_of(octets, url):
            self._imports.setdefault(each, loading.folders)
        return octets

    def loading(self) -> Loading:
        """Make what loads the documents of one WSDL."""
        return Loading(self.binding_classes, self.loader, self._allow)
