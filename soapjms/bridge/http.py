"""SOAP over HTTP in, SOAP over JMS out: an ASGI application that looks like the service to HTTP clients.

Mount it in a program, or serve it with `soapjms.bridge.listener`. Only the envelope, its attachments and its action
are passed on to the service; HTTP headers are not. Sizes of bodies, numbers of calls and times are limited.

Spec: SOAP 1.1 6; SOAP 1.2 Part 2 7; WS-I Basic Profile 1.1 3.4.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from time import monotonic
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

try:
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.types import Receive, Scope, Send
except ImportError as _error:
    raise ImportError(f"soapjms.bridge.http needs starlette ({_error}): pip install 'soapjms[bridge]'") from _error

from brokers.arguments import at_least_one, finite, items
from brokers.connection import Connection
from brokers.redaction import shown as shown_url
from brokers.threads.thread import Pool
from soapjms import events
from soapjms.bridge.backend import NO_TIME_LEFT, Behind, PathService, RequestHead, serve, too_long, written_answer
from soapjms.bridge.faults import NO_STORE, RETRY, HttpRefusalError, failed, unsent
from soapjms.bridge.limits import MAX_BODY, MAX_CALLS, MAX_HELD
from soapjms.bridge.message import GZIP, soap_version_of
from soapjms.bridge.pace import PIECE_TIMEOUT, Pace
from soapjms.client.call import Response as Answer
from soapjms.client.client import DEFAULT_TIMEOUT, Client
from soapjms.protocol.content import ContentType, parse_content_type
from soapjms.protocol.errors import CallFailedError, UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import KNOWN_MEDIA_TYPES, Auto, Profile, ProfileName
from soapjms.protocol.text import shown
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Port
from soapjms.validation import connection_to

CALL_THREADS: Final = 8
"""Threads that send requests, and as many that write answers, which are not held up by a broker that takes none."""

SINGLE: Final = ("content-type", "content-encoding", "soapaction")
"""Header fields of a request that it may have once."""

_HOST: Final = re.compile(r"[A-Za-z0-9._\-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_WHOLE_URL: Final = re.compile(r"https?://(?P<host>[^/]*)", re.IGNORECASE)
_URL: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


class HttpBridge:
    """An ASGI application that takes SOAP requests by POST and returns the responses of services over JMS.

    A `with` statement closes its clients. It does not need `lifespan` events.

    Args:
        connection: the connection to the broker; the caller closes it.
        behind: where the service is; for several services, a mapping from paths such as `/bank`.
        properties: binding properties, such as timeToLive, that override those of URI and WSDL.
        timeout: maximum duration of a call, in seconds; after it the client gets 504.
        one_way: SOAP actions, and elements in Clark notation, of one-way messages: their clients get 202 once the
            broker has the message. One-way operations of a WSDL need not be listed.
        max_body: maximum size of a request, in octets, before and after decompression; a larger one gets 413.
        max_calls: maximum number of concurrent calls; further ones get 503. A request counts from when it is complete
            until the service has answered.
        max_held: maximum total size, in octets, of incomplete requests, and again of unread answers; one address may
            take half. When it is exceeded, the client that has kept the bridge waiting longest is dropped.
        read_timeout: seconds for each 64 KiB, or the rest, of a request; after it the client gets 408.
        write_timeout: seconds in which a client must take each 64 KiB of an answer; after it its connection ends.
        public_url: the URL that the WSDL gives to clients; None for one made of the Host that they send.
        profile: the edition to write over JMS; None for that of the WSDL's port, or else the default.
        limits: limits for reading requests and responses, in addition to `max_body`.
        options: options of each `Client`: `message_type`, `replies`, `names`, `recorder`, `observer`.

    Raises:
        UsageError: an argument is invalid, or the address of a service is missing.
        InvalidUriError, InvalidPropertyError, InvalidWsdlError, NameNotFoundError: see `Client`.
    """

    def __init__(
        self,
        connection: Connection,
        behind: str | JmsUri | Port | Behind | Mapping[str, str | JmsUri | Port | Behind],
        *,
        properties: Mapping[str, Value] = MappingProxyType({}),
        timeout: float = DEFAULT_TIMEOUT,
        one_way: Collection[str] = (),
        max_body: int = MAX_BODY,
        max_calls: int = MAX_CALLS,
        max_held: int = MAX_HELD,
        read_timeout: float = PIECE_TIMEOUT,
        write_timeout: float = PIECE_TIMEOUT,
        public_url: str | None = None,
        profile: Profile | ProfileName | Auto | None = None,
        limits: Limits = DEFAULT_LIMITS,
        **options: Any,
    ) -> None:
        connection_to(connection)
        self._timeout = finite(timeout)
        self._pace = Pace(finite(read_timeout), finite(write_timeout), at_least_one(max_held, "max_held"))
        self._max_body, self._max_calls = at_least_one(max_body, "max_body"), at_least_one(max_calls, "max_calls")
        self._public_url = None if public_url is None else _url(public_url)
        names = frozenset(items(one_way, "one_way", "a list of SOAP actions and elements"))
        self._calls = 0
        options |= {"properties": properties, "timeout": self._timeout, "limits": limits}
        with ExitStack() as stack:
            self._senders = stack.enter_context(Pool(CALL_THREADS, "soapjms-bridge"))
            self._writers = stack.enter_context(Pool(CALL_THREADS, "soapjms-bridge-answer"))
            self._served = {
                path: serve(stack, connection, each, profile, names, max_body, options)
                for path, each in _by_path(behind).items()
            }
            self._open = stack.pop_all()

    @property
    def under_way(self) -> int:
        """The number of requests without an answer, or with an answer that the client has not taken yet."""
        return self._calls + self._pace.answers.count

    @property
    def clients(self) -> Mapping[str, Client]:
        """The client behind each path."""
        return {path: each.client for path, each in self._served.items()}

    def close(self) -> None:
        """Close the clients; calls under way fail. The connection stays open. Idempotent."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, by the ASGI interface."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            request = Request(_below_the_host(scope), receive)
            response = await self._response(request)
            await self._pace.write(response, scope, send)
        else:  # a WebSocket, which is not supported
            await receive()
            await send({"type": "websocket.close"})

    async def _response(self, request: Request) -> Response:
        kind = parse_content_type(request.headers.get("content-type", ""))
        try:
            served = self._at(request)
            if request.method in ("GET", "HEAD"):
                return self._told(request, served)
            if request.method != "POST":
                raise _only_post()
            return await self._called(request, served, kind)
        except HttpRefusalError as refused:
            events.BRIDGE_REQUEST_REFUSED.log(refused.status, refused)
            return refused.response(soap_version_of(kind))
        except ClientDisconnect:
            return PlainTextResponse("", HTTPStatus.BAD_REQUEST)  # the client has left and does not read it
        except Exception:
            events.BRIDGE_REQUEST_FAILED.log()
            mistake = HttpRefusalError(HTTPStatus.INTERNAL_SERVER_ERROR, "the bridge failed")
            return mistake.response(soap_version_of(kind))

    def _at(self, request: Request) -> PathService:
        found = self._served.get(_trimmed(_below(request)))
        if found is None:
            raise HttpRefusalError(HTTPStatus.NOT_FOUND, "there is no service at this path", is_soap=False)
        return found

    # GET

    def _told(self, request: Request, served: PathService) -> Response:
        """Return the WSDL, or a document that it imports."""
        asked = {name.lower(): value for name, value in request.query_params.items()}
        if not {"wsdl", "doc"} & asked.keys():
            raise _only_post()
        if served.published is None:
            raise _only_post("; the bridge was given no WSDL of this service")
        try:
            number = int(asked.get("doc", "0")[:4])
            octets = served.published.document(number, self._address(request))
        except (ValueError, IndexError):
            raise HttpRefusalError(HTTPStatus.NOT_FOUND, "the WSDL has no such document", is_soap=False) from None
        return Response(octets, headers={**NO_STORE, "Content-Type": "text/xml; charset=utf-8"})

    def _address(self, request: Request) -> str:
        """Return the URL of this path for the client."""
        if self._public_url is not None:
            return self._public_url + quote(_below(request))
        host = request.headers.get("host", "")
        if _HOST.fullmatch(host) is None:
            raise HttpRefusalError(HTTPStatus.BAD_REQUEST, f"Host must be a host, got {shown(host)}", is_soap=False)
        return f"{request.scope['scheme']}://{host}{quote(request.scope['path'])}"

    # POST

    async def _called(self, request: Request, served: PathService, kind: ContentType) -> Response:
        for name in SINGLE:
            if len(set(request.headers.getlist(name))) > 1:
                raise HttpRefusalError(
                    HTTPStatus.BAD_REQUEST, f"the head must have one {name}, got several that differ"
                )
        _check_media_type(kind)
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in GZIP | {"identity", ""}:
            text = f"Content-Encoding must be gzip or identity, got {shown(encoding)}"
            raise HttpRefusalError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text, {"Accept-Encoding": "gzip"})
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated[:20]) > self._max_body:
            raise too_long(self._max_body)
        self._check_calls()  # before reading, so that the client does not send the body for nothing
        octets = await self._pace.read(request, self._max_body)
        self._check_calls()
        self._calls += 1
        try:
            asked = RequestHead(
                request.headers.get("content-type", ""), kind, request.headers.get("soapaction"), encoding in GZIP
            )
            return await self._answered(request, served, asked, octets)
        finally:
            self._calls -= 1

    def _check_calls(self) -> None:
        if self._calls >= self._max_calls:
            text = f"{self._max_calls} calls are under way, which is the maximum; try again"
            raise HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, text, RETRY)

    async def _answered(self, request: Request, served: PathService, asked: RequestHead, octets: bytes) -> Response:
        until = monotonic() + self._timeout
        try:
            answer = await self._submitted(request, partial(served.submit, asked, octets, until), until)
        except CallFailedError as error:
            raise failed(error) from error
        if answer is None:
            return Response(status_code=HTTPStatus.ACCEPTED, headers=NO_STORE)
        accepts = request.headers.get("accept-encoding", "")
        return await asyncio.wrap_future(self._writers.submit(written_answer, answer, accepts=accepts))

    async def _submitted(
        self, request: Request, submit: Callable[[], Future[Answer] | None], until: float
    ) -> Answer | None:
        """Call the service and return its response, or None for a one-way message; cancel if the client leaves."""
        try:
            submitting = self._senders.submit(copy_context().run, submit)
        except RuntimeError as error:
            raise unsent(f"there is no thread for the request: {error}") from error
        future = await self._started(submitting, until)
        if future is None:
            return None
        leaving, waiting = asyncio.create_task(_left(request)), asyncio.wrap_future(future)
        either: set[asyncio.Future[Any]] = {leaving, waiting}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise ClientDisconnect
            return waiting.result()
        finally:
            leaving.cancel()
            waiting.cancel()
            future.cancel()

    async def _started(self, submitting: Future[Future[Answer] | None], until: float) -> Future[Answer] | None:
        """Wait until a request is sent: a broker may block senders, and with them all threads that send.

        Raises:
            HttpRefusalError: sending took too long, or no thread was free to begin it.
            CallFailedError: sending failed.
        """
        try:
            async with asyncio.timeout(until - monotonic()):
                return await asyncio.wrap_future(submitting)
        except CallFailedError:  # one of its subclasses is a TimeoutError too
            raise
        except (asyncio.CancelledError, TimeoutError) as error:
            submitting.add_done_callback(_forget)  # the thread may still send; its result is not wanted any more
            if isinstance(error, asyncio.CancelledError):
                raise
            if submitting.cancel():  # no thread had begun
                raise unsent(NO_TIME_LEFT) from None
            text = f"the broker did not take the request within {self._timeout:g} s"
            raise HttpRefusalError(HTTPStatus.GATEWAY_TIMEOUT, text) from None


def _forget(submitting: Future[Future[Answer] | None]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        future = submitting.result()
        if future is not None:
            future.cancel()


async def _left(request: Request) -> None:
    """Return when the client has left; its request must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    """Confirm the `lifespan` events startup and shutdown."""
    for stage in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{stage}.complete"})


def _url(url: str) -> str:
    """Return the URL of the bridge for clients, without a slash at its end.

    Raises:
        UsageError: `url` is not an HTTP URL.
    """
    if not isinstance(url, str) or _URL.fullmatch(url) is None:
        raise UsageError(
            "public_url must be a URL such as https://soap.example.org, with or without a path, but no query, got "
            f"{shown_url(url)}"
        )
    return url.rstrip("/")


def _by_path(behind: object) -> dict[str, Any]:
    """Return the services by path: with a slash at its start and none at its end.

    Raises:
        UsageError: there is no service, a path does not begin with a slash, or two services have the same path.
    """
    if not isinstance(behind, Mapping):
        return {"/": behind}
    if not behind:
        raise UsageError("behind must have a service, such as {'/bank': 'jms:queue:bank'}, got none")
    found: dict[str, Any] = {}
    for path, each in behind.items():
        if not isinstance(path, str) or (path and not path.startswith("/")):
            raise UsageError(f"the path of a service must begin with a slash, as in /bank, got {path!r}")
        if _trimmed(path) in found:
            raise UsageError(f"each service must have a path of its own, got two at {_trimmed(path)}")
        found[_trimmed(path)] = each
    return found


def _trimmed(path: str) -> str:
    return path.rstrip("/") or "/"


def _below_the_host(scope: Scope) -> Scope:
    """Return the scope with only the path, even if the client sent a whole URL, as clients do to proxies.

    Spec: RFC 9112 3.2.2: the host of the URL overrides that of the header.
    """
    whole = _WHOLE_URL.match(scope["path"])
    if whole is None:
        return scope
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    host = whole["host"].encode("ascii", "replace")
    return {**scope, "path": scope["path"][whole.end() :] or "/", "headers": [*headers, (b"host", host)]}


def _below(request: Request) -> str:
    """Return the path of a request relative to the path at which the application is mounted.

    ASGI has the path begin with `root_path`. Behind a proxy that takes its own prefix away it does not: then it begins
    with what comes after that prefix, which Starlette and FastAPI keep as `app_root_path`.
    """
    path: str = request.scope["path"]
    root: str = request.scope.get("root_path", "")
    for above in (root, root.removeprefix(request.scope.get("app_root_path", ""))):
        if f"{path}/".startswith(f"{above.rstrip('/')}/"):
            return path[len(above.rstrip("/")) :]
    return path


def _check_media_type(kind: ContentType) -> None:
    if kind.problem is None and kind.media_type in KNOWN_MEDIA_TYPES:
        return
    seen = kind.problem or shown(kind.media_type)
    text = f"Content-Type is not a SOAP media type: {seen}; accepted are {', '.join(sorted(KNOWN_MEDIA_TYPES))}"
    raise HttpRefusalError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text, {"Accept-Post": ", ".join(sorted(KNOWN_MEDIA_TYPES))}
    )


def _only_post(hint: str = "") -> HttpRefusalError:
    text = f"SOAP requests must be sent by POST{hint}"
    return HttpRefusalError(HTTPStatus.METHOD_NOT_ALLOWED, text, {"Allow": "POST"}, is_soap=False)
