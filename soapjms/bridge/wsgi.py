"""A WSGI application as a service over JMS: the requesting node gets the answer that it would give over HTTP.

`Dispatcher(connection, "jms:queue:bank", WsgiService(app))` serves it. It sees each request as a POST of SOAP over
HTTP, on a worker's thread; the envelope that it returns is the answer, whatever the status.

Spec: PEP 3333; SOAP 1.1 6; SOAP 1.2 Part 2 7.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from lxml import etree

from brokers.arguments import is_plain_function
from soapjms import events
from soapjms.bridge.message import GZIP, http_form, read_http, taken
from soapjms.protocol.content import gunzip
from soapjms.protocol.errors import SoapJmsError, UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.reply import Answer, Reply
from soapjms.service.operations import Match, OperationRoute, Operations, RoutableRequest
from soapjms.service.request import DEFAULT, Policy, Request
from soapjms.validation import option

Environ: TypeAlias = MutableMapping[str, Any]
StartResponse: TypeAlias = Callable[..., Callable[[bytes], None]]
Application: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]

NAME: Final = "(WSGI application)"
EMPTY: Final = frozenset({HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT})
"""Statuses with which an application accepts the message without an answer."""


class WsgiError(SoapJmsError):
    """A response of the application that is not a SOAP answer; the service has failed."""


class WsgiService(Operations):
    """A service whose only function is a WSGI application, which gets every request.

    Header blocks that must be understood are left to the application. A response that is not a SOAP envelope, such as
    an HTML page, is a failure of the service, as is any exception of the application: it is logged, and `policy`
    decides about the request. A one-way message needs a status below 300, with any body.

    Args:
        app: the application.
        path: PATH_INFO of the requests, for an application that answers at one path only.
        environ: further keys of the environ, such as SERVER_NAME or those that a framework needs.
        policy: decides about a request for which the application failed.
        limits: limits for reading a response.

    Raises:
        UsageError: an argument is invalid.
    """

    def __init__(
        self,
        app: Application,
        *,
        path: str = "/",
        environ: Mapping[str, Any] = MappingProxyType({}),
        policy: Policy = DEFAULT,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(policy=policy)
        if not is_plain_function(app):
            seen = f"the ASGI application {app!r}" if callable(app) else f"{app!r}"
            raise UsageError(f"app must be a WSGI application, called with (environ, start_response), got {seen}")
        if not isinstance(path, str) or not path.startswith("/"):
            raise UsageError(f"path must begin with a slash, as in /bank, got {path!r}")
        self._app, self._path, self._environ, self._limits = app, path, dict(environ), option(limits, "limits", Limits)
        self._route = OperationRoute(NAME, "", None, app, self._answered_by_app, policy)

    @property
    def operations(self) -> Mapping[str, Callable[..., Any]]:
        """The application, under a name that no element can have."""
        return {NAME: self._app}

    def find(self, asked: RoutableRequest) -> Match:
        """Find the application: it takes every request and understands all header blocks."""
        header = asked.envelope.header
        blocks = frozenset[str]() if header is None else frozenset(str(each.tag) for each in header)
        return Match(self, replace(self._route, understands=blocks))

    def _answered_by_app(self, request: Request) -> Answer:
        body, kind = http_form(request.message, request.envelope, request.attachments, request.soap_action)
        response = _Response(self._limits)
        response.run(self._app, {**environ_of(request, body, kind, self._path), **self._environ})
        return response.answer(request.one_way)


def environ_of(request: Request, body: bytes, content_type: str, path: str) -> Environ:
    """Make the environ of a request: a POST over HTTP/1.1, with the request itself as `soapjms.request`.

    Spec: PEP 3333.
    """
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": _native(path),
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "CONTENT_TYPE": _native(content_type),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_SOAPACTION": _native(f'"{request.soap_action or ""}"'),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": _Errors(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "soapjms.request": request,
    }


def _native(text: str) -> str:
    """Return a text as WSGI has it: each character is an octet, here of its form in UTF-8.

    Spec: PEP 3333, Unicode Issues.
    """
    return text.encode("utf-8", "replace").decode("latin-1")


class _Errors(io.TextIOBase):
    """The stream for an application's errors: it writes to the log."""

    def write(self, text: str) -> int:
        if text.strip():
            events.BRIDGE_WSGI_ERROR.log(text.rstrip())
        return len(text)


@dataclass(slots=True)
class _Response:
    """The response of an application, as far as it has been written."""

    limits: Limits
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)

    def run(self, app: Application, environ: Environ) -> None:
        """Run the application; close its result, whatever happens."""
        result = app(environ, self._start)
        with ExitStack() as stack:
            stack.callback(getattr(result, "close", lambda: None))
            for each in result:
                self._write(each)

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        """Take status and headers; a second call needs `exc_info`, and is allowed as nothing has been sent yet."""
        if self.status and exc_info is None:
            raise WsgiError("the WSGI application called start_response twice")
        self.status = int(status.partition(" ")[0])
        self.headers = {}
        for name, value in headers:
            before = self.headers.get(name.lower())
            self.headers[name.lower()] = value if before is None else f"{before}, {value}"
        self.body.clear()
        return self._write

    def _write(self, octets: bytes) -> None:
        self.body += octets
        if len(self.body) > self.limits.size:
            raise WsgiError(f"the WSGI application answered with more than {self.limits.size} octets")

    def answer(self, one_way: bool) -> Answer:
        """Return the answer in the response, or None if it is empty.

        Raises:
            WsgiError: the response is not a SOAP answer.
        """
        if not self.status:
            raise WsgiError("the WSGI application did not call start_response")
        stated = self.headers.get("content-length", "").strip()
        if stated and stated != str(len(self.body)):
            raise WsgiError(f"the WSGI application stated {stated} octets and answered with {len(self.body)}")
        if (one_way and self.status < HTTPStatus.MULTIPLE_CHOICES) or (self.status in EMPTY and not self.body):
            return None
        octets = bytes(self.body)
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding in GZIP:
            octets = gunzip(octets, self.limits)
        elif encoding not in ("identity", ""):
            raise WsgiError(f"the WSGI application answered with the Content-Encoding {encoding!r}; gzip is read")
        reading = read_http(octets, self.headers.get("content-type", ""), self.limits)
        if reading.envelope is None:
            seen = f"{self.status}, Content-Type {self.headers.get('content-type')!r}"
            raise WsgiError(f"the WSGI application did not answer with SOAP: {seen}: {reading.envelope_problem}")
        root: etree._Element = reading.envelope.root
        return Reply(root, taken(root, reading.attachments))
