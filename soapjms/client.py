"""Calling SOAP services over JMS: runs requesting and sending nodes over a connection.

The rules are in the protocol; here are futures, the reply destination and the clock.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import Final, Self

from lxml import etree

from brokers.connection import Completion, Connection, ConnectionState, Consumer, Delivery, SendResult
from brokers.errors import BrokerError
from brokers.message import Destination, Message, MessageType
from brokers.naming import Names
from soapjms.addressing import destination_of, read_uri, reply_destination_of
from soapjms.deadlines import Deadlines
from soapjms.protocol.assertions import Setting, Verdict
from soapjms.protocol.envelope import Envelope, Fault
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, Mep, Profile
from soapjms.protocol.properties import Value
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.requesting import (
    Endpoint,
    ExchangeFailed,
    RequestingNode,
    ResponseIgnored,
    ResponseReceived,
    findings,
)
from soapjms.protocol.uri import JmsUri
from soapjms.recorder import Recorder

log = logging.getLogger("soapjms.client")

DEFAULT_TIMEOUT: Final = 30.0
REPLY_PREFETCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Response:
    """What a call came back with.

    Attributes:
        envelope: the SOAP envelope, parsed.
        fault: the SOAP fault that it holds, None if it holds none.
        message: the JMS message.
        request: the request as it was sent.
        endpoint: where it was sent.
    """

    envelope: Envelope
    fault: Fault | None
    message: Message
    request: Message
    endpoint: Endpoint

    @property
    def element(self) -> etree._Element | None:
        """The first element of the SOAP body; None if the body is empty."""
        return self.envelope.content

    def raise_for_fault(self) -> Self:
        """Return the response itself if it holds no fault.

        Raises:
            SoapFaultError: it holds one.
        """
        if self.fault is not None:
            raise self.fault.as_error()
        return self

    def findings(self) -> tuple[Verdict, ...]:
        """Judge the exchange by every assertion, and return those that were broken."""
        setting = Setting(profile=self.endpoint.profile, properties=self.endpoint.properties)
        return findings(self.request, self.message, setting)


class _Call:
    """One call under way."""

    __slots__ = ("due", "future", "node")

    def __init__(self, node: RequestingNode, future: Completion[Response], due: float) -> None:
        self.node = node
        self.future = future
        self.due = due


class Client:
    """Calls the service behind a `jms:` URI. Thread-safe. Usable in a `with` statement.

    Args:
        connection: to the broker; stays the caller's to close.
        uri: of the service, with any binding properties as parameters.
        properties: binding properties that win over those of the URI.
        profile: the edition of the specification to write by.
        message_type: BYTES or TEXT.
        timeout: seconds that a call waits where it does not say itself; always finite.
        names: JNDI names, for the variant jndi.
        recorder: writes every message that passes.

    Attributes:
        endpoint: URI and effective properties.
        counts: replies that reached nobody (`ignored`, by an exchange that was over; `unknown`, of no exchange here).

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError: the URI, a property or another argument is not as it must be.
        NameNotFoundError: a JNDI name that `names` does not know.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri,
        *,
        properties: Mapping[str, Value] = MappingProxyType({}),
        profile: Profile = DEFAULT_PROFILE,
        message_type: MessageType = MessageType.BYTES,
        timeout: float = DEFAULT_TIMEOUT,
        names: Names | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        if message_type not in (MessageType.BYTES, MessageType.TEXT):
            raise UsageError(f"message_type is {message_type}; a request is BYTES or TEXT (Protocol-2034)")
        parsed, effective = read_uri(uri, properties)
        self.endpoint = Endpoint.of(parsed, effective, profile, message_type)
        self.timeout = _finite(timeout)
        self.counts: Counter[str] = Counter()
        self._connection = connection
        self._recorder = recorder
        self._destination = destination_of(parsed, names or Names())
        self._fixed_reply = reply_destination_of(parsed, effective, names or Names())
        self._prefix = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._calls: dict[str, _Call] = {}
        self._lock = Lock()
        self._replies: tuple[Destination, Consumer, int] | None = None
        self._deadlines = Deadlines()
        self._executor: Executor | None = None
        self._closed = False
        connection.watch(self._on_state)

    # Calling

    def call(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Send a request and wait for its response. A fault comes back as a value: see `Response.raise_for_fault`.

        Args:
            envelope: the SOAP envelope, of either version.
            soap_action: SOAPJMS_soapAction, over the one that the properties give.
            timeout: seconds to wait; the client's own where it is None.

        Raises:
            InvalidEnvelopeError: `envelope` is no SOAP envelope.
            CallTimeoutError: no correlated response came in time.
            CallFailedError: the request could not be sent, or what came back is no SOAP envelope.
        """
        seconds = self.timeout if timeout is None else _finite(timeout)
        call = self._start(envelope, soap_action, seconds)
        try:
            return call.future.result(seconds)
        except FutureTimeoutError:
            if call.future.done():
                return call.future.result()
            self._expire(call)
            return call.future.result()

    def submit(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        timeout: float | None = None,
    ) -> Future[Response]:
        """Send a request and return a future of its response; see `call`, whose errors the future raises.

        Callbacks of the future run on the client's executor and may call again. Cancelling it forgets the call.

        Raises:
            InvalidEnvelopeError: `envelope` is no SOAP envelope.
        """
        call = self._start(envelope, soap_action, self.timeout if timeout is None else _finite(timeout))
        self._deadlines.call_at(call.due, lambda: self._expire(call))
        return call.future

    def send(self, envelope: bytes | str | etree._Element, *, soap_action: str | None = None) -> None:
        """Send a one-way message, and return when the broker has it.

        Raises:
            InvalidEnvelopeError: `envelope` is no SOAP envelope.
            CallFailedError: it could not be sent.

        Spec: SOAP/JMS 2.7.1.
        """
        self._check_open()
        node = RequestingNode(self.endpoint, Mep.ONE_WAY)
        message = node.start(envelope, destination=self._destination, now=_now(), soap_action=soap_action)
        self._record(message, Direction.ONE_WAY, Node.SENDING)
        try:
            self._connection.send(message).result(self.timeout)
        except (BrokerError, FutureTimeoutError) as error:
            failed = node.send_failed(f"the message could not be sent: {error or 'no answer from the broker'}")
            raise CallFailedError(failed.text, failed.reason) from error
        node.sent()

    # One call

    def _start(self, envelope: bytes | str | etree._Element, soap_action: str | None, seconds: float) -> _Call:
        self._check_open()
        node = RequestingNode(self.endpoint)
        correlation_id = f"{self._prefix}-{next(self._numbers)}"
        message = node.start(
            envelope,
            destination=self._destination,
            now=_now(),
            soap_action=soap_action,
            correlation_id=correlation_id,
            reply_to=self._reply_destination(),
            timeout=int(seconds * 1000),
        )
        future: Completion[Response] = Completion(self._callbacks)
        call = _Call(node, future, time.monotonic() + seconds)
        future.on_settled(lambda _: self._calls.pop(correlation_id, None))
        self._calls[correlation_id] = call
        self._record(message, Direction.REQUEST, Node.REQUESTING)
        try:
            sent = self._connection.send(message)
        except BrokerError as error:
            self._fail_sending(call, error)
        else:
            sent.on_settled(lambda done: self._on_sent(call, done))
        return call

    def _on_sent(self, call: _Call, done: Future[SendResult]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._fail_sending(call, error)

    def _fail_sending(self, call: _Call, error: BaseException) -> None:
        if self._claim(call):
            self._settle(call, call.node.send_failed(f"the request could not be sent: {error}"))

    def _expire(self, call: _Call) -> None:
        if self._claim(call):
            failed = call.node.receive_failed("no correlated response came in time")
            assert failed is not None
            call.future.set_exception(CallTimeoutError(failed.text, failed.reason))

    def _claim(self, call: _Call) -> bool:
        """Say whether the call is still to be ended; who asks first ends it."""
        request = call.node.request
        assert request is not None
        assert request.correlation_id is not None
        return self._calls.pop(request.correlation_id, None) is call and call.future.set_running_or_notify_cancel()

    def _settle(self, call: _Call, event: ResponseReceived | ExchangeFailed) -> None:
        if isinstance(event, ExchangeFailed):
            call.future.set_exception(CallFailedError(event.text, event.reason))
            return
        assert call.node.request is not None
        call.future.set_result(Response(event.envelope, event.fault, event.message, call.node.request, self.endpoint))

    # Replies

    def _reply_destination(self) -> Destination:
        """Return the destination of this generation of the connection where replies come in; listen there first."""
        generation = self._connection.generation
        replies = self._replies
        if replies is not None and replies[2] == generation:
            return replies[0]
        with self._lock:
            if self._replies is None or self._replies[2] != generation:
                destination = self._fixed_reply or self._connection.temporary()
                consumer = self._connection.consume(
                    destination, self._on_delivery, prefetch=REPLY_PREFETCH, auto_accept=True
                )
                self._replies = destination, consumer, generation
            return self._replies[0]

    def _on_delivery(self, delivery: Delivery) -> None:
        """Hand a reply to the call that it correlates with; nobody else ever sees it."""
        message = delivery.message
        self._record(message, Direction.RESPONSE, Node.REQUESTING)
        call = self._calls.pop(message.correlation_id or "", None)
        if call is None:
            self.counts["unknown"] += 1
            log.info("a reply correlates with no call under way: %s", message.correlation_id)
            return
        if not call.future.set_running_or_notify_cancel():
            self.counts["ignored"] += 1
            return
        event = call.node.receive(message)
        if isinstance(event, ResponseIgnored):
            self.counts["ignored"] += 1
            return
        self._settle(call, event)

    def _on_state(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED:
            return
        for call in list(self._calls.values()):
            if self._claim(call):
                failed = call.node.receive_failed(f"the connection was {state} before a response came")
                assert failed is not None
                self._settle(call, failed)

    # Life

    def _callbacks(self) -> Executor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix="soapjms-client")
            return self._executor

    def _record(self, message: Message, direction: Direction, node: Node) -> None:
        if self._recorder is not None:
            self._recorder.record(message, direction, node)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the client is closed")

    def close(self) -> None:
        """Stop listening for replies; calls under way fail. The connection stays open. Idempotent."""
        self._closed = True
        self._on_state(ConnectionState.CLOSED)
        self._deadlines.close()
        with self._lock:
            replies, self._replies = self._replies, None
            executor, self._executor = self._executor, None
        if replies is not None:
            try:
                replies[1].close()
            except BrokerError as error:
                log.debug("the reply consumer was gone before: %s", error)
        if executor is not None:
            executor.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _finite(seconds: float) -> float:
    if not 0 < seconds < float("inf"):
        raise UsageError(f"timeout is {seconds}; a call waits for a positive, finite number of seconds")
    return seconds
