"""Calling SOAP services over JMS: what users call, and the middleware around it.

How that is done is in `soapjms.calling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeAlias

from lxml import etree

from brokers.completion import Completion
from brokers.connection import Connection
from brokers.crew import Crew
from brokers.message import MessageType
from brokers.naming import Names
from soapjms.addressing import soap_action_of
from soapjms.arguments import finite
from soapjms.calling import DEFAULT_DEADLINE, DEFAULT_TIMEOUT, Caller
from soapjms.health import DEFAULT_TIMEOUT as PING_TIMEOUT
from soapjms.middleware import around, plain
from soapjms.observing import Observer
from soapjms.outgoing import Content, OutgoingCall, checked_call, checked_response
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.errors import CallFailedError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import DEFAULT_PROFILE, Mep, Profile
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Port
from soapjms.recorder import Recorder
from soapjms.replies import ReplyStrategy
from soapjms.response import Response
from soapjms.wsdl import read_wsdl

ClientMiddleware: TypeAlias = Callable[[OutgoingCall, Callable[[OutgoingCall], Any]], Any]


class Client(Caller):
    """Calls the service behind a `jms:` URI or a WSDL's port. Thread-safe. Usable in a `with` statement.

    Args:
        connection: to the broker; stays the caller's to close.
        uri: of the service, with any binding properties as parameters. A fixed `replyToName` may be shared by clients
            where the broker has selectors, or else is one client's own; a service of the 2009 edition, which repeats
            the JMSMessageID, reaches nobody there.
        properties: binding properties that win over those of the URI.
        profile: the edition of the specification to write by; "auto" for that of a WSDL's port.
        message_type: BYTES or TEXT.
        replies: where replies come in: `temporary`, `exclusive` or `shared`, see `ReplyStrategy`; None for what goes
            with the URI and the profile.
        timeout: seconds that a call waits where it does not say itself; always finite.
        names: JNDI names, for the variant jndi.
        recorder: writes every message that passes.
        middleware: functions `(call, call_next)` around each call and one-way message, the outermost first; see
            docs/middleware.md.
        addressing: write headers of WS-Addressing, and refuse a response that relates to another request.
        observer: is told what happens, or several are; see docs/observing.md.
        limits: how much of a response is read.

    Attributes:
        endpoint: URI and effective properties.
        counts: replies that reached nobody: `late`, of a call that had ended without one; `duplicate`, of one that had
            its reply; `foreign`, of another client that shares the fixed reply destination; `unknown`, of no call.

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError: the URI, a property or another argument is not as it must be.
        NameNotFoundError: a JNDI name that `names` does not know.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        *,
        properties: Mapping[str, Value] = MappingProxyType({}),
        profile: Profile | str = DEFAULT_PROFILE,
        message_type: MessageType = MessageType.BYTES,
        replies: ReplyStrategy | str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        names: Names | None = None,
        recorder: Recorder | None = None,
        middleware: Iterable[ClientMiddleware] = (),
        addressing: bool = False,
        observer: Observer | Iterable[Observer] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._middleware = plain(middleware, "soapjms.zeep.AsyncClient takes async def functions")
        self._crew = Crew("soapjms-middleware")
        super().__init__(
            connection,
            uri,
            properties=properties,
            profile=profile,
            message_type=message_type,
            replies=replies,
            timeout=timeout,
            names=names,
            recorder=recorder,
            addressing=addressing,
            observer=observer,
            limits=limits,
        )

    @classmethod
    def from_wsdl(cls, connection: Connection, path: str | Path, port: str | None = None, **options: Any) -> Self:
        """Make a client of a WSDL file's port (its only SOAP/JMS port if none is named) and of the edition it follows.

        Raises:
            InvalidWsdlError, UsageError: the file or the port cannot be used; for more, and `options`, see the class.
        """
        found = read_wsdl(path).port(port)
        return cls(connection, found, **{"profile": found.profile or DEFAULT_PROFILE} | options)

    # Calling

    def call(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        operation: str | None = None,
        timeout: float | None = None,
        attachments: Sequence[Attachment] = (),
        retry_of: CallFailedError | None = None,
    ) -> Response:
        """Send a request and wait for its response. A fault comes back as a value: see `Response.raise_for_fault`.

        Args:
            envelope: the SOAP envelope, of either version.
            soap_action: SOAPJMS_soapAction, over the one that the properties give.
            operation: name of an operation of the WSDL, whose action is used where nobody else says one.
            timeout: seconds to wait, also for a lost connection to be made again; None for the client's own.
            attachments: what goes along: as MTOM if the envelope has an `xop:Include`, else as SwA.
            retry_of: the error of an earlier try at the same request, whose `outcome` may be unknown: a service with a
                store then does not run it twice, and answers what it answered, or would have.

        Raises:
            InvalidEnvelopeError: `envelope` is no SOAP envelope.
            UsageError: `operation` is no request-response operation of the WSDL, an attachment does not fit, or
                `retry_of` is of another request.
            CallTimeoutError: no correlated response came in time.
            CallFailedError: the request was not sent, or refused, or it is not known what became of it: see `outcome`.
        """
        content = self._content(envelope, soap_action, operation, timeout, attachments, retry_of)
        if not self._middleware:
            return self._waited(self._start(content))
        return self._answered(self._outgoing_call(content, operation))

    def submit(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        operation: str | None = None,
        timeout: float | None = None,
        attachments: Sequence[Attachment] = (),
        retry_of: CallFailedError | None = None,
    ) -> Future[Response]:
        """Send a request and return a future of its response; see `call`, whose errors the future raises.

        While the connection is lost this waits as `call` does. Callbacks of the future run on the client's executor and
        may call again. Cancelling it forgets the call. With middleware it returns at once, and a thread runs that.

        Raises:
            InvalidEnvelopeError: `envelope` is no SOAP envelope.
        """
        content = self._content(envelope, soap_action, operation, timeout, attachments, retry_of)
        if not self._middleware:
            return self._begun(content)
        self._check_open()
        return self._elsewhere(self._outgoing_call(content, operation))

    def send(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        operation: str | None = None,
        timeout: float | None = None,
        attachments: Sequence[Attachment] = (),
        retry_of: CallFailedError | None = None,
    ) -> None:
        """Send a one-way message, and return when the broker has it. See `Sender` for its JMSCorrelationID.

        `timeout` is for a lost connection to be made again and for the broker to have it; else see `call`.

        Raises:
            InvalidEnvelopeError: `envelope` is no SOAP envelope.
            CallFailedError: it was not sent, or refused, or it is not known whether the broker has it: see `outcome`.
        """
        content = self._content(envelope, soap_action, operation, timeout, attachments, retry_of, Mep.ONE_WAY)
        if not self._middleware:
            return self._send(content)
        self.run(self._outgoing_call(content, operation, one_way=True))
        return None

    def outgoing(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None,
        operation: str | None,
        timeout: float | None,
        attachments: Sequence[Attachment],
        one_way: bool,
        retry_of: CallFailedError | None = None,
    ) -> OutgoingCall:
        """Make what middleware gets, for who runs some of its own; `begin` and `post` send it past that of the client.

        Raises:
            InvalidEnvelopeError: `envelope` is no SOAP envelope.
        """
        seconds = self.timeout if timeout is None else finite(timeout)
        content = Content(envelope, soap_action, attachments, seconds, retry_of=retry_of)
        return self._outgoing_call(content, operation, one_way=one_way)

    def run(self, call: OutgoingCall) -> Response | None:
        """Send it through the middleware; see `call` and `send`."""
        return around(self._middleware, self._last, partial(checked_response, one_way=call.one_way))(call)

    def begin(self, call: OutgoingCall) -> Future[Response]:
        """Send a request; see `submit`."""
        return self._begun(call.content())

    def post(self, call: OutgoingCall) -> None:
        """Send a one-way message; see `send`."""
        self._send(call.content())

    def ping(self, timeout: float = PING_TIMEOUT) -> float:
        """Send a message through the broker and back, not to the service, and return the seconds that it took.

        Raises:
            PingFailedError: it did not come back within `timeout` seconds, or there is no connection.
        """
        self._check_open()
        return self._pinger.ping(timeout)

    # Through the middleware

    def _content(
        self,
        envelope: bytes | str | etree._Element,
        soap_action: str | None,
        operation: str | None,
        timeout: float | None,
        attachments: Sequence[Attachment],
        retry_of: CallFailedError | None,
        mep: Mep = Mep.REQUEST_RESPONSE,
    ) -> Content:
        action = soap_action_of(self._port, self.endpoint.properties, soap_action, operation, mep)
        seconds = self.timeout if timeout is None else finite(timeout)
        return Content(envelope, action, attachments, seconds, retry_of=retry_of)

    def _outgoing_call(self, content: Content, operation: str | None, *, one_way: bool = False) -> OutgoingCall:
        return OutgoingCall.of(content, self.endpoint, self._destination, operation, one_way=one_way)

    def _begun(self, content: Content) -> Future[Response]:
        """Send a request, whose time runs out by itself."""
        call = self._start(content)
        deadline = self._deadlines.call_at(call.due, lambda: self._expire(call))
        call.future.on_settled(lambda _: self._deadlines.forget(deadline))
        return call.future

    def _answered(self, call: OutgoingCall, outer: Completion[Response] | None = None) -> Response:
        checked = partial(checked_response, one_way=False)
        found = around(self._middleware, partial(self._last, outer=outer), checked)(call)
        assert found is not None, "it was checked"
        return found

    def _last(self, given: OutgoingCall, outer: Completion[Response] | None = None) -> Response | None:
        """Do what is inside of all middleware. If `outer` is cancelled the call is forgotten."""
        call = checked_call(given)
        if call.one_way:
            self._send(call.content())
            return None
        started = self._start(call.content())
        if outer is not None:
            outer.on_settled(lambda _: started.future.cancel())
        return self._waited(started)

    def _elsewhere(self, call: OutgoingCall) -> Future[Response]:
        """Run the middleware on another thread."""
        future: Completion[Response] = Completion(self._callbacks.executor)
        self._crew.submit(partial(self._settle, future, call))
        return future

    def _settle(self, future: Completion[Response], call: OutgoingCall) -> None:
        found: Response | BaseException
        try:
            found = self._answered(call, future)
        except BaseException as error:  # SystemExit too: somebody waits for the future
            found = error
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(found, BaseException):
            future.set_exception(found)
        else:
            future.set_result(found)

    def close(self, deadline: float = DEFAULT_DEADLINE) -> None:
        """Stop listening for replies, and end the reply destinations. The connection stays open. Idempotent.

        Calls under way fail; so does, within a moment, what waits for a lost connection. Returns within `deadline`
        seconds, also if the broker answers nothing: what is left ends by itself once it does, or with the connection.
        """
        super().close(deadline)
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
