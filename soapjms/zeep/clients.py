"""The clients behind a transport: a `soapjms.Client` for each port and address, with timeouts, waiting and asyncio.

This module knows no WSDL and no XML: it sends an envelope and returns a `Response`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import Any, Self

from lxml import etree

from brokers.arguments import finite, is_coroutine, switch, time_to_close
from brokers.connection import Connection
from brokers.message import MessageType
from brokers.naming import Names
from brokers.threads.timer import left
from soapjms.capture.recorder import Recorder
from soapjms.client.async_client import AsyncSender, sent_through
from soapjms.client.call import CallContent, Expiry, Response, checked_response
from soapjms.client.client import DEFAULT_DEADLINE, DEFAULT_TIMEOUT, Client, ClientArguments
from soapjms.client.replies import ReplyStrategy, ReplyStrategyName, reply_strategy
from soapjms.event_loop import elsewhere
from soapjms.middleware import around_async, middleware_given
from soapjms.observing import Observer, observers_given
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.errors import CallFailedError, UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import AUTO, DEFAULT_PROFILE, Auto, Profile, ProfileName
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Port
from soapjms.validation import PayloadTypeName, connection_to, edition, option, payload_type
from soapjms.zeep.errors import failure


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request or one-way message that is ready to be sent.

    Attributes:
        client: the client of its port or address.
        envelope: the SOAP envelope.
        soap_action: the value of SOAPJMS_soapAction, or None for that of the properties.
        attachments: the attachments.
        one_way: whether there is no response.
        operation: the name of the operation.
        retry_of: the error of the previous try, or None.
        expires: when the request expires, see `soapjms.Client.call`.
    """

    client: Client
    envelope: etree._Element
    soap_action: str | None
    attachments: Sequence[Attachment]
    one_way: bool
    operation: str = ""
    retry_of: CallFailedError | None = None
    expires: Expiry = "timeout"


class EndpointArguments(ClientArguments, total=False):
    """The options of `ClientEndpoints`, for those that make one; see there."""

    operation_timeout: float
    middleware: Iterable[Callable[..., Any]]


class ClientEndpoints:
    """The ports and addresses that calls go to, each with a client made when first needed. Thread-safe.

    Args:
        connection: the connection to the broker; the caller closes it.
        operation_timeout: seconds that a call waits for its response; must be finite.
        profile: the edition to write; "auto" for that of the WSDL's port, or else the default.
        middleware: functions around each call, the outermost first: plain ones, or `async def` for an AsyncClient.
        properties, message_type, replies, names, addressing, recorder, observer, limits: see `soapjms.Client`.

    Raises:
        UsageError: an argument is invalid.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        operation_timeout: float = DEFAULT_TIMEOUT,
        properties: Mapping[str, Value] = MappingProxyType({}),
        profile: Profile | ProfileName | Auto = AUTO,
        message_type: MessageType | PayloadTypeName = MessageType.BYTES,
        replies: ReplyStrategy | ReplyStrategyName | None = None,
        names: Names | None = None,
        middleware: Iterable[Callable[..., Any]] = (),
        addressing: bool = False,
        recorder: Recorder | None = None,
        observer: Observer | Iterable[Observer] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._connection = connection_to(connection)
        self.operation_timeout = finite(operation_timeout, "operation_timeout")
        self._profile = None if profile == AUTO else edition(profile, "")
        self._middleware = middleware_given(middleware, is_async=None)
        self.addressing = switch(addressing, "addressing")
        self._is_async = any(map(is_coroutine, self._middleware))
        self._options = {
            "middleware": () if self._is_async else self._middleware,
            "properties": dict(option(properties, "properties", Mapping)),
            "message_type": payload_type(message_type),
            "replies": reply_strategy(replies),
            "names": option(names, "names", Names),
            "addressing": addressing,
            "recorder": option(recorder, "recorder", Recorder),
            "observer": observers_given(observer),
            "limits": option(limits, "limits", Limits),
        }
        self._lock = Lock()
        self._sender = AsyncSender()
        self._clients: dict[str | Port, Client] = {}
        self._closed = False
        self._timeout: ContextVar[float] = ContextVar("soapjms.zeep.timeout")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._clients)} addresses"
        return f"<soapjms.zeep.{type(self).__name__} over {self._connection!r}, {state}>"

    def client_of(self, place: str | Port) -> Client:
        """Return the client of a `jms:` URI or a port; it is made at the first request and kept until `close`.

        Raises:
            InvalidUriError, InvalidWsdlError, InvalidPropertyError, NameNotFoundError: the place cannot be called.
            UsageError: the transport is closed.
        """
        with self._lock:
            if self._closed:
                raise UsageError("the transport is closed; make another")
            if place not in self._clients:
                profile = self._profile or (place.profile if isinstance(place, Port) else None) or DEFAULT_PROFILE
                self._clients[place] = Client(self._connection, place, profile=profile, **self._options)  # type: ignore[arg-type]
            return self._clients[place]

    @contextmanager
    def settings(self, timeout: float | None = None) -> Iterator[None]:
        """Change the timeout of calls inside a `with`, for the current thread or asyncio task only.

        Args:
            timeout: seconds; None for `operation_timeout`.

        Raises:
            UsageError: `timeout` is not a positive, finite number.
        """
        token = self._timeout.set(self.operation_timeout if timeout is None else finite(timeout))
        try:
            yield
        finally:
            self._timeout.reset(token)

    @property
    def _seconds(self) -> float:
        return self._timeout.get(self.operation_timeout)

    def check_middleware(self, *, is_async: bool) -> None:
        """Check that the middleware fits the way calls are made.

        Raises:
            UsageError: there are plain functions with asyncio, whose loop they would block, or `async def` without it.
        """
        middleware_given(self._middleware, is_async=is_async)

    # Calling

    def call(self, outgoing: OutgoingRequest) -> Response | None:
        """Send a message and return its response, or None for a one-way message once the broker has it.

        Raises:
            JmsTimeoutError: no correlated response came in time.
            JmsTransportError: sending failed, or the response is not a SOAP envelope.
        """
        self.check_middleware(is_async=False)
        client, content = outgoing.client, self._content(outgoing)
        try:
            if self._middleware:
                return client.run(client.outgoing(content, outgoing.operation, one_way=outgoing.one_way))
            if outgoing.one_way:
                client.post(content)
                return None
            return client.ask(content)
        except CallFailedError as error:
            raise failure(error) from error

    async def call_async(self, outgoing: OutgoingRequest) -> Response | None:
        """Do the same without blocking the event loop. A cancelled task leaves nothing behind.

        Raises:
            JmsTimeoutError, JmsTransportError: see `call`.
        """
        self.check_middleware(is_async=True)
        client, content = outgoing.client, self._content(outgoing)
        try:
            if self._middleware:
                call = client.outgoing(content, outgoing.operation, one_way=outgoing.one_way)
                checked = partial(checked_response, one_way=outgoing.one_way)
                last = partial(sent_through, self._sender, client)
                return await around_async(self._middleware, last, checked)(call)
            if outgoing.one_way:
                await self._sender.send(client, content)
                return None
            return await self._sender.call(client, content)
        except CallFailedError as error:
            raise failure(error) from error

    def _content(self, outgoing: OutgoingRequest) -> CallContent:
        return outgoing.client.content(
            outgoing.envelope,
            outgoing.soap_action,
            timeout=self._seconds,
            attachments=outgoing.attachments,
            retry_of=outgoing.retry_of,
            expires=outgoing.expires,
        )

    # Life

    def close(self, deadline: float = DEFAULT_DEADLINE) -> None:
        """Stop listening for replies within `deadline` seconds; calls under way fail. The connection stays open.

        Idempotent. See `soapjms.Client.close`.
        """
        until = monotonic() + time_to_close(deadline)
        with self._lock:
            self._closed = True
            clients = list(self._clients.values())
            self._clients.clear()
        self._sender.close()
        for client in clients:
            client.close(left(until))

    async def aclose(self) -> None:
        """Do the same without blocking the event loop."""
        await elsewhere(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.aclose()
