"""`AsyncClient`: calls and one-way messages for asyncio, over the connection and the calls of `Client`.

A request is sent by the event loop itself wherever that does not wait; else, as while a connection is lost or a broker
does not read, on threads of the client's own: those of the loop are shared, for example with host name lookups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self, TypeAlias, TypeVar, Unpack
from weakref import WeakValueDictionary

from lxml import etree

from brokers.arguments import at_least_one
from brokers.connection import Connection, SendResult
from brokers.threads.futures import Completion
from brokers.threads.thread import Pool
from soapjms.client.call import CallContent, Expiry, OutgoingCall, Response, checked_call, checked_response
from soapjms.client.client import CANCELLED, CLOSED, CLOSED_MEANWHILE, DEFAULT_TIMEOUT, Client, ClientArguments
from soapjms.client.replies import DESTINATION_GRACE_SECONDS
from soapjms.event_loop import elsewhere, result_of, running_loop
from soapjms.middleware import around_async, middleware_given
from soapjms.ping import DEFAULT_TIMEOUT as PING_TIMEOUT
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, PingFailedError, SendOutcome, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, FailureReason, Mep
from soapjms.protocol.requesting import Endpoint
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port
from soapjms.wsdl import read_wsdl

T = TypeVar("T")

MAX_SENDING_THREADS: Final = 32
"""Maximum number of messages that are sent on threads at a time; others wait for their turn."""

DEFAULT_MAX_CALLS: Final = 100
"""Calls and one-way messages that one client has under way at a time; others wait for their turn."""

MIN_TIME_SHARE: Final = 0.01
"""The part of its time that a call must have left when its turn comes; else nothing is sent, as nobody could answer."""

GIVE_UP_SECONDS: Final = DESTINATION_GRACE_SECONDS + 0.5
"""Extra seconds to wait for a thread that should have given up: it knows what became of the message."""

NO_TURN: Final = "earlier messages took all the time"

AsyncMiddleware: TypeAlias = Callable[[OutgoingCall, Callable[[OutgoingCall], Awaitable[Any]]], Awaitable[Any]]


class LoopTurns(asyncio.Semaphore):
    """The turns of the calls of one event loop: kept, and the loop with it, by those who have or await one."""

    def __init__(self, most: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(most)
        self.loop = loop


class AsyncSender:
    """Sends calls and one-way messages of clients for the tasks of event loops. Thread-safe.

    Args:
        max_calls: the most that are under way at a time on one event loop.

    Raises:
        UsageError: `max_calls` is not a whole number above zero.
    """

    def __init__(self, max_calls: int = DEFAULT_MAX_CALLS) -> None:
        self._max_calls = at_least_one(max_calls, "max_calls")
        self._pool = Pool(MAX_SENDING_THREADS, "soapjms-sender")
        self._turns: WeakValueDictionary[int, LoopTurns] = WeakValueDictionary()  # by the id of the loop
        self._closed = False

    async def call(self, client: Client, content: CallContent) -> Response:
        """Send a request and await its response.

        Raises:
            CallTimeoutError: no response came in time, or nothing was sent as earlier calls took all of it.
            CallFailedError: see `Client.call`.
            UsageError: the sender or the client is closed.
        """
        turns = self._turns_of_loop()
        content = await self._turn(turns, client, content, one_way=False)
        try:
            call, send = client.begin(content)
            if send is not None:
                try:
                    await self._elsewhere(content, send, call.due, call.retry)
                except BaseException as error:
                    if not isinstance(error, asyncio.CancelledError):
                        call.tell(error)  # first, or observers would hear of a cancelled call
                    call.cancel()
                    raise
            return await call
        finally:
            turns.release()

    async def send(self, client: Client, content: CallContent) -> None:
        """Send a one-way message; see `Client.send`."""
        turns = self._turns_of_loop()
        content = await self._turn(turns, client, content, one_way=True)
        until, is_over, is_posted = monotonic() + content.seconds, False, False
        sent: Completion[SendResult] | None = None

        def begun(promised: Completion[SendResult]) -> None:
            nonlocal sent
            sent = promised
            if is_over:
                promised.cancel()

        def post() -> None:
            nonlocal is_posted
            is_posted = True
            left = content._replace(seconds=until - monotonic())  # its turn may take a while
            client.post(left, lambda: CANCELLED if is_over else "", begun)

        try:
            await self._elsewhere(content, post, until, partial(_earlier_retry, content))
        except CallFailedError as error:
            if not is_posted:
                client.note_unsent(content, error, one_way=True)
            raise
        finally:
            is_over = True
            if sent is not None:
                sent.cancel()
            turns.release()

    async def ping(self, client: Client, timeout: float) -> float:
        """Send a message through the broker and back; see `Client.ping`.

        Raises:
            PingFailedError: see `Client.ping`.
            UsageError: the sender or the client is closed.
        """
        self._check_open()
        try:
            return await elsewhere(partial(client.ping, timeout))
        except (RuntimeError, MemoryError) as error:  # there is no thread
            raise PingFailedError(f"no message could be sent through the broker: {error}") from error

    def close(self) -> None:
        """Send nothing more; what waits for its turn fails. Thread-safe and idempotent."""
        self._closed = True
        self._pool.shutdown(wait=False)
        for turns in filter(None, (each() for each in self._turns.valuerefs())):
            with suppress(RuntimeError):  # the loop is closed
                turns.loop.call_soon_threadsafe(turns.release)  # who gets the turn releases it for the next

    def _turns_of_loop(self) -> LoopTurns:
        loop = running_loop()
        self._check_open()
        turns = self._turns.get(id(loop))
        if turns is None:
            turns = self._turns[id(loop)] = LoopTurns(self._max_calls, loop)
        return turns

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(CLOSED)

    async def _turn(self, turns: LoopTurns, client: Client, content: CallContent, *, one_way: bool) -> CallContent:
        """Wait for a turn; return the content with the seconds that are left of its time."""
        if not turns.locked():
            await turns.acquire()
            return content
        try:
            return await self._later_turn(turns, content)
        except CallFailedError as error:
            client.note_unsent(content, error, one_way=one_way)
            raise

    async def _later_turn(self, turns: LoopTurns, content: CallContent) -> CallContent:
        until = monotonic() + content.seconds
        try:
            async with asyncio.timeout(content.seconds):
                await turns.acquire()
        except TimeoutError:
            raise _unsent(content, CallTimeoutError, NO_TURN) from None
        if self._closed:
            turns.release()
            raise _unsent(content, CallFailedError, CLOSED_MEANWHILE)
        if (seconds := until - monotonic()) < content.seconds * MIN_TIME_SHARE:
            turns.release()
            raise _unsent(content, CallTimeoutError, "earlier messages took nearly all the time")
        return content._replace(seconds=seconds)

    async def _elsewhere(
        self, content: CallContent, send: Callable[[], None], due: float, retry: Callable[[], object]
    ) -> None:
        """Send on another thread, in a copy of the task's context.

        Args:
            content: what is sent; its seconds end at `due`.
            send: sends, and gives up by itself soon after `due`.
            due: the deadline, by the monotonic clock; what no thread has begun by then is not sent.
            retry: returns the `retry` of the error if the thread does not give up.
        """
        sending = self._submit(content, partial(self._in_time, content, send, due))
        for end in (due, due + GIVE_UP_SECONDS):
            try:
                async with asyncio.timeout(end - monotonic()) as limit:
                    return await result_of(sending)
            except TimeoutError as error:
                if isinstance(error, CallFailedError) or not limit.expired():
                    raise
                if sending.cancel():
                    raise _unsent(content, CallTimeoutError, NO_TURN) from None
        raise CallTimeoutError(
            f"the broker confirmed nothing within {content.seconds:g} s; whether it has the message is not known",
            FailureReason.RECEPTION_FAILURE,
            retry=retry(),
        )

    def _submit(self, content: CallContent, send: Callable[[], None]) -> Future[None]:
        try:
            return self._pool.submit(copy_context().run, send)
        except RuntimeError as error:
            raise _unsent(content, CallFailedError, CLOSED_MEANWHILE if self._closed else f"{error}") from error

    def _in_time(self, content: CallContent, send: Callable[[], None], due: float) -> None:
        if self._closed:
            raise _unsent(content, CallFailedError, CLOSED_MEANWHILE)
        if due <= monotonic():
            raise _unsent(content, CallTimeoutError, NO_TURN)
        send()


def _unsent(content: CallContent, kind: type[CallFailedError], why: str) -> CallFailedError:
    reason, outcome = FailureReason.TRANSMISSION_FAILURE, SendOutcome.NOT_SENT
    return kind(f"nothing was sent: {why}", reason, outcome, _earlier_retry(content))


def _earlier_retry(content: CallContent) -> object:
    """Return the `retry` of the try before, which may have reached the service; None for a first try."""
    return getattr(content.retry_of, "retry", None)


class AsyncClientArguments(ClientArguments, total=False):
    """The options of an `AsyncClient`, for those that make one; see there."""

    timeout: float
    max_calls: int
    middleware: Iterable[AsyncMiddleware]


class AsyncClient:
    """Calls the service behind a `jms:` URI or a WSDL's port, from asyncio. Usable in an `async with` statement.

    `async with soapjms.AsyncClient(connection, "jms:queue:greeter") as client: response = await client.call(envelope)`.

    A cancelled task drops its call, and `asyncio.timeout` works as everywhere; the event loop is never blocked, even if
    the broker stops reading.

    Args:
        connection: the connection to the broker, of `connect_async` or `connect`; the caller closes it.
        uri: see `soapjms.Client`.
        max_calls: calls and one-way messages that are under way at a time; others wait for their turn, within their
            timeouts.
        middleware: `async def` functions `(call, call_next)` around each call and one-way message, the outermost first.
        timeout: seconds that a call waits by default; always finite.
        options: see `soapjms.Client`.

    Attributes:
        client: the `soapjms.Client` beneath; `client.counts` and `client.endpoint` are there.

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError, NameNotFoundError: see `soapjms.Client`.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        *,
        max_calls: int = DEFAULT_MAX_CALLS,
        middleware: Iterable[AsyncMiddleware] = (),
        timeout: float = DEFAULT_TIMEOUT,
        **options: Unpack[ClientArguments],
    ) -> None:
        self._middleware = middleware_given(middleware, is_async=True)
        self._sender = AsyncSender(max_calls)
        self.client = Client(connection, uri, timeout=timeout, **options)

    @classmethod
    def from_wsdl(
        cls,
        connection: Connection,
        path: str | Path,
        port: str | None = None,
        *,
        allow: Iterable[str | Path] = (),
        **options: Unpack[AsyncClientArguments],
    ) -> Self:
        """Make a client for a WSDL file's port; see `soapjms.Client.from_wsdl`."""
        found = read_wsdl(path, allow=allow).port(port)
        options.setdefault("profile", found.profile or DEFAULT_PROFILE)
        return cls(connection, found, **options)

    @property
    def endpoint(self) -> Endpoint:
        """URI and effective properties."""
        return self.client.endpoint

    @property
    def under_way(self) -> int:
        """Number of calls that wait for their response."""
        return self.client.under_way

    async def call(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        operation: str | None = None,
        timeout: float | None = None,
        attachments: Sequence[Attachment] = (),
        retry_of: CallFailedError | None = None,
        expires: Expiry = "timeout",
    ) -> Response:
        """Send a request and await its response. A fault comes back as a value: see `Response.raise_for_fault`.

        Arguments and errors are those of `soapjms.Client.call`. `timeout` includes the wait for a turn.

        Raises:
            InvalidEnvelopeError, UsageError, CallTimeoutError, CallFailedError: see `soapjms.Client.call`.
        """
        content = self.client.content(envelope, soap_action, operation, timeout, attachments, retry_of, expires)
        if not self._middleware:
            return await self._sender.call(self.client, content)
        found = await self._around(self.client.outgoing(content, operation))
        assert found is not None, "it was checked"
        return found

    async def send(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        operation: str | None = None,
        timeout: float | None = None,
        attachments: Sequence[Attachment] = (),
        retry_of: CallFailedError | None = None,
    ) -> None:
        """Send a one-way message, and return when the broker has it; see `soapjms.Client.send`."""
        content = self.client.content(envelope, soap_action, operation, timeout, attachments, retry_of, mep=Mep.ONE_WAY)
        if not self._middleware:
            return await self._sender.send(self.client, content)
        await self._around(self.client.outgoing(content, operation, one_way=True))
        return None

    async def _around(self, call: OutgoingCall) -> Response | None:
        last = partial(sent_through, self._sender, self.client)
        checked = partial(checked_response, one_way=call.one_way)
        return await around_async(self._middleware, last, checked)(call)

    async def ping(self, timeout: float = PING_TIMEOUT) -> float:
        """Send a message through the broker and back, not to the service; see `soapjms.Client.ping`."""
        return await self._sender.ping(self.client, timeout)

    async def aclose(self) -> None:
        """Stop listening for replies; calls under way fail. The connection stays open. Idempotent."""
        self._sender.close()
        await elsewhere(self.client.close)

    async def __aenter__(self) -> Self:
        running_loop()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<soapjms.AsyncClient of {self.client!r}>"


async def sent_through(sender: AsyncSender, client: Client, given: OutgoingCall) -> Response | None:
    """Send what the innermost middleware passes on, and return its response; None for a one-way message."""
    call = checked_call(given)
    if call.one_way:
        await sender.send(client, call.content())
        return None
    return await sender.call(client, call.content())
