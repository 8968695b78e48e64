"""A greeter for HTTP, made of the standard library and lxml alone: a WSGI application that knows nothing of JMS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lxml import etree

NS = "urn:greeter"
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer greetMe."""
    if environ["PATH_INFO"] != "/soap":
        start_response("404 Not Found", [("Content-Type", "text/html")])
        return [b"<html/>"]
    root = etree.fromstring(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    answer = etree.Element(f"{{{SOAP}}}Envelope")
    body = etree.SubElement(etree.SubElement(answer, f"{{{SOAP}}}Body"), f"{{{NS}}}greetMeResponse")
    body.text = f"Hello {root.findtext(f'.//{{{NS}}}greetMe')}"
    start_response("200 OK", [("Content-Type", "text/xml; charset=utf-8")])
    return [etree.tostring(answer)]


not_callable = "application"
