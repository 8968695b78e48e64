"""What the tests of bridges share: a bridge that listens on a port of its own, and requests over HTTP by hand."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from calling_kit import (
    PATIENCE,
    SOAP_11,
)
from lxml import etree

from brokers import Connection
from soapjms import SoapVersion
from soapjms.bridge.http import HttpBridge
from soapjms.bridge.listener import Listener

TYPES: Final = {SOAP_11: "text/xml; charset=utf-8", SoapVersion.SOAP_12: "application/soap+xml; charset=utf-8"}


class Told(NamedTuple):
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def root(self) -> etree._Element:
        """The document in the body."""
        return etree.fromstring(self.body)

    def text(self, name: str) -> str | None:
        """Return the text of the first element of a local name."""
        return next(self.root.iter(f"{{*}}{name}")).text


OF_LISTENERS: Final = ("client_timeout", "max_connections", "certificate")


@contextmanager
def listening(connection: Connection, behind: Any, **options: Any) -> Iterator[tuple[HttpBridge, Listener]]:
    """Have a bridge listen, with options of either."""
    own = {name: options.pop(name) for name in OF_LISTENERS if name in options}
    with (
        HttpBridge(connection, behind, **{"timeout": PATIENCE, **options}) as bridge,
        Listener(bridge, "127.0.0.1:0", **own) as listener,
    ):
        yield bridge, listener


@contextmanager
def bridged(connection: Connection, behind: Any, **options: Any) -> Iterator[Listener]:
    """Have a bridge listen."""
    with listening(connection, behind, **options) as (_, listener):
        yield listener


def ask(
    at: Listener,
    body: bytes | None,
    content_type: str | None = TYPES[SOAP_11],
    *,
    path: str = "/",
    method: str | None = None,
    **headers: str,
) -> Told:
    """Send one request, POST if it has a body; underscores of header names stand for hyphens."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    if content_type is not None and body is not None:
        fields["Content-Type"] = content_type
    line = http.client.HTTPConnection("127.0.0.1", at.port, timeout=PATIENCE)
    try:
        line.request(method or ("GET" if body is None else "POST"), path, body, fields)
        response = line.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Told(response.status, told, response.read())
    finally:
        line.close()


def multipart(root: bytes, *parts: tuple[str, bytes], kind: str, preamble: bytes = b"") -> tuple[bytes, str]:
    """Write a multipart body by hand, as another stack would."""
    heads = [f"Content-Type: {kind}\r\nContent-ID: <root>", *(head for head, _ in parts)]
    pieces = [
        b"--b\r\n" + head.encode() + b"\r\n\r\n" + body
        for head, body in zip(heads, (root, *(body for _, body in parts)), strict=True)
    ]
    return preamble + b"\r\n".join([*pieces, b"--b--\r\n"]), "multipart/related; boundary=b; start=<root>"
