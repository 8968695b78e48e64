"""`Client`: calls and one-way messages over JMS, with middleware around them.

A client runs requesting and sending nodes over a connection: the rules are in the protocol, the reply destinations
in `replies.py`, the pending calls in `pending_calls.py`; futures and the clock are here. A one-way message has no
response, so sending one waits for the broker only.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextvars import copy_context
from functools import partial
from itertools import count
from math import ceil
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeAlias, TypedDict, Unpack

from lxml import etree

from brokers.adapter.wait import GivenUp, await_connected, epoch_milliseconds, when_connected, why_lost
from brokers.arguments import finite, switch, time_to_close
from brokers.connection import Connection, ConnectionState, SendResult
from brokers.errors import BrokerError, ClosedError, NotSentError, SendFailedError
from brokers.message import DeliveryMode, Destination, Message, MessageType
from brokers.naming import Names
from brokers.threads.futures import Callbacks, Completion
from brokers.threads.pool import Crew
from brokers.threads.thread import Thread
from brokers.threads.timer import left
from soapjms import events
from soapjms.capture.recorder import OutgoingRecord, Recorder, record
from soapjms.client.addressing import addressed
from soapjms.client.call import (
    UNPARSED_HINT,
    CallContent,
    Expiry,
    OutgoingCall,
    Response,
    check_expiry,
    checked_call,
    checked_response,
    new_content,
)
from soapjms.client.pending_calls import UNKNOWN, UNSENT, OverdueCalls, PendingCall, PendingCalls
from soapjms.client.replies import ReplyCallbacks, ReplyChoice, ReplyStrategy, ReplyStrategyName, reply_strategy
from soapjms.client.retry import Identity, RequestKeys
from soapjms.destinations import destination_of, reply_destination_of, soap_action_of
from soapjms.middleware import around, middleware_given
from soapjms.observing import NOTHING, Observer, Observers, Outcome, Place, Side
from soapjms.ping import DEFAULT_TIMEOUT as PING_TIMEOUT
from soapjms.ping import BrokerClock, Pinger
from soapjms.protocol.attachments import Attachment, attachments_given
from soapjms.protocol.envelope import envelope as wrapped
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, CallTrace, SendOutcome, UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import (
    DEFAULT_PROFILE,
    Auto,
    CorrelationRule,
    FailureReason,
    Mep,
    Profile,
    ProfileName,
    SoapVersion,
)
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.requesting import Endpoint, ExchangeFailed, RequestingNode, ResponseIgnored
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value
from soapjms.protocol.wsa import unrelated
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.model import read_uri
from soapjms.tally import Tally
from soapjms.validation import PayloadTypeName, connection_to, edition, option, payload_type
from soapjms.wsdl import read_wsdl

DEFAULT_TIMEOUT: Final = 30.0

UNREAD: Final = "the service answered, so it worked on the request, but its response was not read: {}"
CLOSED: Final = "the client is closed"
CLOSED_MEANWHILE: Final = "the client was closed"
CANCELLED: Final = "it was cancelled"
OWN_REQUESTS: Final = "replies would go to {}, where the requests go: the client would read its own requests"
NO_REPLY: Final = "the broker ended the destination of the replies ({})"

DEFAULT_DEADLINE: Final = 5.0
"""Seconds that `Client.close` may take."""

OnBegun: TypeAlias = Callable[[Completion[SendResult]], object]

ClientMiddleware: TypeAlias = Callable[[OutgoingCall, Callable[[OutgoingCall], Any]], Any]

FAILED: Final[Mapping[SendOutcome, str]] = {
    SendOutcome.NOT_SENT: "the message could not be sent",
    SendOutcome.REFUSED: "the broker refused the message",
    SendOutcome.UNKNOWN: "whether the message was sent is not known",
}


def outcome_of(error: BaseException) -> SendOutcome:
    """Say what became of a message, by the error that the future of `Connection.send` raised."""
    if isinstance(error, NotSentError | ClosedError):
        return SendOutcome.NOT_SENT
    is_refused = isinstance(error, SendFailedError) and error.is_known
    return SendOutcome.REFUSED if is_refused else SendOutcome.UNKNOWN


def lifetime(content: CallContent, due: float) -> int:
    """Return the milliseconds until a request expires, 0 for never.

    Args:
        content: the request; `expires` says when, and "timeout" is rounded up to a 64th of its seconds to wait, as
            adapters encode a time to live once for many messages.
        due: when its caller stops waiting, by the monotonic clock.
    """
    if content.expires is None:
        return 0
    if content.expires != "timeout":
        return ceil(content.expires * 1000)
    step = content.seconds / 64
    return ceil(ceil(left(due) / step) * step * 1000)


class Sender:
    """Sends one-way messages to one destination. Thread-safe.

    Where a redelivery does not keep its JMSMessageID, each message has a unique JMSCorrelationID instead, by which the
    store of a service recognizes it. The specification does not say anything about that header in a one-way message.

    Args:
        connection: the connection to the broker.
        endpoint: the URI and effective properties that the messages carry.
        destination: the destination of the messages.
        prefix: starts every JMSCorrelationID; unique to this client.
        recorder: writes the messages to the capture log.
        observers: are told of each message.
        clock: the broker's clock, by which messages with a timeToLive expire.
    """

    def __init__(
        self,
        connection: Connection,
        endpoint: Endpoint,
        destination: Destination,
        prefix: str,
        recorder: Recorder | None,
        observers: Observers | None,
        clock: BrokerClock,
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._destination = destination
        self._prefix = prefix
        self._recorder = option(recorder, "recorder", Recorder)
        self._observers = observers
        self._clock = clock
        self._numbers = count(1)
        self._keys = RequestKeys()

    def send(self, content: CallContent, given_up: GivenUp, on_begun: OnBegun | None = None) -> None:
        """Send a message, and return when the broker has it.

        Args:
            content: the message.
            given_up: returns the reason not to send, or an empty string.
            on_begun: called with what the connection's `send` returned, which may be cancelled.

        Raises:
            InvalidEnvelopeError, UsageError: the content cannot be sent.
            CallFailedError: the message was not sent, the broker refused it, or its outcome is not known.

        Spec: SOAP/JMS 2.7.1.
        """
        is_known = self._connection.capabilities.stable_message_id
        key = None if is_known else f"{self._prefix}one-way-{next(self._numbers)}"
        identity = Identity(content.retry_of, self._keys.new())
        others = identity.properties.merged(content.others) if content.others else identity.properties
        if self._observers is None:
            self._send(RequestingNode(self._endpoint, Mep.ONE_WAY, others), content, key, identity, given_up, on_begun)
            return
        spoken = content.action or self._endpoint.soap_action
        observed = self._observers.sending(one_way=True, correlation_id=key, soap_action=spoken)
        try:
            node = RequestingNode(self._endpoint, Mep.ONE_WAY, others.merged(observed.properties()))
            self._send(node, content, key, identity, given_up, on_begun)
        except BaseException as error:
            observed.end(Outcome.FAILED, error=error)
            raise
        observed.end(Outcome.SENT)

    def _send(
        self,
        node: RequestingNode,
        content: CallContent,
        key: str | None,
        identity: Identity,
        given_up: GivenUp,
        on_begun: OnBegun | None,
    ) -> None:
        due = time.monotonic() + content.seconds
        sent: Completion[SendResult] | None = None
        outgoing, message_id = None, None
        try:
            await_connected(self._connection, due, given_up)
            node.start(
                content.envelope,
                destination=self._destination,
                now=self._clock.now(due) if self._endpoint.time_to_live else epoch_milliseconds(),
                soap_action=content.action,
                correlation_id=key,
                attachments=content.attachments,
            )
            message = identity.written(node)
            if self._recorder is not None:
                tells = self._connection.capabilities.tells_message_id
                outgoing = OutgoingRecord(
                    self._recorder, message, Direction.ONE_WAY, Node.SENDING, tells_message_id=tells
                )
            sent = when_connected(
                self._connection, due, lambda: self._connection.send(message, timeout=left(due)), given_up
            )
            if on_begun is not None:
                on_begun(sent)
            message_id = sent.result(left(due)).message_id
        except (BrokerError, FutureTimeoutError) as error:
            outcome = SendOutcome.NOT_SENT if sent is None or sent.withdraw() else outcome_of(error)
            failed = node.send_failed(f"{FAILED[outcome]}: {str(error) or 'no answer from the broker'}")
            trace = CallTrace(str(self._destination), key, time.monotonic() - due + content.seconds)
            raise CallFailedError(failed.text, failed.reason, outcome, identity.retry(node), trace) from error
        except BaseException:  # such as an interrupt: the message must not be sent once the caller has gone on
            if sent is not None:
                sent.cancel()
            raise
        finally:
            if outgoing is not None:
                outgoing.sent(message_id)
        node.sent()


class ClientArguments(TypedDict, total=False):
    """The options that all clients share, those for zeep too; see `Client`."""

    properties: Mapping[str, Value]
    profile: Profile | ProfileName | Auto
    message_type: MessageType | PayloadTypeName
    replies: ReplyStrategy | ReplyStrategyName | None
    names: Names | None
    recorder: Recorder | None
    addressing: bool
    observer: Observer | Iterable[Observer] | None
    limits: Limits


class PlainClientArguments(ClientArguments, total=False):
    """The options of a `Client`, for those that make one; see there."""

    timeout: float
    middleware: Iterable[ClientMiddleware]


class Client:
    """Calls the service behind a `jms:` URI or a WSDL's port. Thread-safe. Usable in a `with` statement.

    `with soapjms.Client(connection, "jms:queue:greeter") as client: response = client.call(envelope, timeout=10)`.

    Args:
        connection: the connection to the broker; the caller closes it.
        uri: the URI of the service, with any binding properties as parameters, or a WSDL's port. Clients may share a
            fixed `replyToName` if the broker has selectors; otherwise each client needs its own. Replies of a service
            of the 2009 edition, which repeats the JMSMessageID, do not reach their calls there.
        properties: binding properties that take precedence over those of the URI.
        profile: the edition of the specification to follow; "auto" for that of a WSDL's port.
        message_type: BYTES or TEXT.
        replies: where replies come in: `temporary`, `exclusive` or `shared`, see `ReplyStrategy`; None for the one
            that suits the URI and the profile.
        timeout: seconds that a call waits by default; always finite.
        names: JNDI names, for the variant jndi.
        recorder: writes every message to a capture log.
        middleware: functions `(call, call_next)` around each call and one-way message, the outermost first; see
            docs/middleware.md.
        addressing: write headers of WS-Addressing, and refuse a response that relates to another request.
        observer: one observer or several, told what happens; see docs/observing.md.
        limits: the limits for reading a response.

    Attributes:
        endpoint: URI and effective properties.
        timeout: seconds that a call waits by default.
        counts: replies that reached no call: `late`, for a call that had ended without a reply; `duplicate`, for a call
            that had its reply; `foreign`, for another client on the fixed reply destination; `unknown`, for no call;
            `too large`, above the connection's limit.

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError: the URI, a property or another argument is not valid.
        NameNotFoundError: `names` does not know a JNDI name.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        *,
        properties: Mapping[str, Value] = MappingProxyType({}),
        profile: Profile | ProfileName | Auto = DEFAULT_PROFILE,
        message_type: MessageType | PayloadTypeName = MessageType.BYTES,
        replies: ReplyStrategy | ReplyStrategyName | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        names: Names | None = None,
        recorder: Recorder | None = None,
        middleware: Iterable[ClientMiddleware] = (),
        addressing: bool = False,
        observer: Observer | Iterable[Observer] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._middleware = middleware_given(middleware, is_async=False)
        self._crew = Crew("soapjms-middleware")
        parsed, effective = read_uri(uri, option(properties, "properties", Mapping))
        limits, names = option(limits, "limits", Limits), option(names, "names", Names) or Names()
        self.endpoint = Endpoint.of(parsed, effective, edition(profile, uri), payload_type(message_type), limits)
        self.timeout = finite(timeout)
        self._addressing = switch(addressing, "addressing")
        self._connection = connection_to(connection)
        self._recorder = recorder
        self._port = uri if isinstance(uri, Port) else None
        self._destination = destination_of(parsed, names, effective)
        fixed = reply_destination_of(parsed, effective, names)
        if fixed is not None and (fixed.kind, fixed.name) == (self._destination.kind, self._destination.name):
            raise UsageError(OWN_REQUESTS.format(fixed))
        self._observers = observers = Observers.of(observer, Place(Side.CLIENT, self._destination))
        self._tally = Tally(observers)
        self.counts = self._tally.counts
        prefix = f"{uuid.uuid4().hex}-"
        by_message_id = self.endpoint.profile.correlation is CorrelationRule.MESSAGE_ID
        self._closed = False
        self._clock = BrokerClock(connection)
        self._sender = Sender(connection, self.endpoint, self._destination, prefix, recorder, observers, self._clock)
        choice = ReplyChoice(reply_strategy(replies), fixed, by_message_id, prefix)
        self._replies = choice.replies(connection, ReplyCallbacks(self._on_reply, self._on_unread, self._on_gone))
        self._calls = PendingCalls(self._replies, prefix)
        self._keys = RequestKeys()
        self._overdue = OverdueCalls(self._calls, self._expire)
        self._pinger = Pinger(connection)
        self._callbacks = Callbacks("soapjms-client")
        connection.watch(self._on_state)
        if observers is not None:
            observers.started()

    @classmethod
    def from_wsdl(
        cls,
        connection: Connection,
        path: str | Path,
        port: str | None = None,
        *,
        allow: Iterable[str | Path] = (),
        **options: Unpack[PlainClientArguments],
    ) -> Self:
        """Make a client for a WSDL file's port (its only SOAP/JMS port if none is named), in the edition it follows.

        Imports may also be read from the folders in `allow`.

        Raises:
            InvalidWsdlError, UsageError: the file or the port cannot be used. For other errors and `options`, see the
                class.
        """
        found = read_wsdl(path, allow=allow).port(port)
        options.setdefault("profile", found.profile or DEFAULT_PROFILE)
        return cls(connection, found, **options)

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
        expires: Expiry = "timeout",
    ) -> Response:
        """Send a request and wait for its response. A fault comes back as a value: see `Response.raise_for_fault`.

        Args:
            envelope: the SOAP envelope, of either version; or the element of its body, which gets an envelope of the
                port's version, or else of SOAP 1.1.
            soap_action: SOAPJMS_soapAction; takes precedence over the one of the properties.
            operation: the name of an operation of the WSDL, whose action is used if there is no other.
            timeout: seconds to wait, including the time to restore a lost connection; None for the client's timeout.
            attachments: the attachments to send: as MTOM if the envelope has an `xop:Include`, else as SwA. None counts
                as none.
            retry_of: the error of an earlier try at the same request, whose `outcome` may be unknown: a service with a
                store does not run the request twice, and sends the answer of the first run.
            expires: when the request expires, so that no service works on it any more: "timeout" for when this call
                stops waiting, a number of seconds from now on, or None for never. A timeToLive of the URI, the WSDL or
                the properties takes the place of "timeout"; beside it nothing else may be given.

        Raises:
            InvalidEnvelopeError: `envelope` is not a SOAP envelope.
            UsageError: `expires` is not "timeout" although timeToLive is set, `operation` is not a request-response
                operation of the WSDL, an attachment does not fit, or `retry_of` is the error of another request.
            CallTimeoutError: no correlated response came in time.
            CallFailedError: the request was not sent, the broker refused it, or its outcome is not known: see
                `outcome`.
        """
        content = self.content(envelope, soap_action, operation, timeout, attachments, retry_of, expires)
        if not self._middleware:
            return self.ask(content)
        return self._answered(self.outgoing(content, operation))

    def submit(
        self,
        envelope: bytes | str | etree._Element,
        *,
        soap_action: str | None = None,
        operation: str | None = None,
        timeout: float | None = None,
        attachments: Sequence[Attachment] = (),
        retry_of: CallFailedError | None = None,
        expires: Expiry = "timeout",
    ) -> Completion[Response]:
        """Send a request and return the future of its response; see `call`, whose errors the future raises.

        In asyncio it can be awaited: `await client.submit(…)`.
        While the connection is lost this waits as `call` does. Callbacks of the future run on the client's own threads
        and may call again. Cancelling the future drops the call. With middleware, `submit` returns at once, and
        another thread runs the middleware.

        Raises:
            InvalidEnvelopeError, UsageError: at once; see `call`. The future raises all other errors.
        """
        content = self.content(envelope, soap_action, operation, timeout, attachments, retry_of, expires)
        if not self._middleware:
            return self._begun(content)
        self._check_open()
        return self._elsewhere(self.outgoing(content, operation))

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
        """Send a one-way message, and return when the broker has it.

        On a broker that does not keep the JMSMessageID with a redelivery, it gets a JMSCorrelationID, by which the
        store of a service recognizes it.

        `timeout` covers restoring a lost connection and the broker's confirmation; for the other arguments see `call`.

        Raises:
            InvalidEnvelopeError, UsageError: see `call`.
            CallFailedError: the message was not sent, the broker refused it, or its outcome is not known: see
                `outcome`.
        """
        content = self.content(envelope, soap_action, operation, timeout, attachments, retry_of, mep=Mep.ONE_WAY)
        if not self._middleware:
            return self.post(content)
        self.run(self.outgoing(content, operation, one_way=True))
        return None

    def outgoing(self, content: CallContent, operation: str | None = None, *, one_way: bool = False) -> OutgoingCall:
        """Make the call object for middleware; `begin` and `post` bypass the client's own middleware.

        Raises:
            InvalidEnvelopeError: the content is not a SOAP envelope.
        """
        return OutgoingCall.of(content, self.endpoint, self._destination, operation, one_way=one_way)

    def run(self, call: OutgoingCall) -> Response | None:
        """Send a call or one-way message through the middleware; see `call` and `send`."""
        return around(self._middleware, self._last, partial(checked_response, one_way=call.one_way))(call)

    def ask(self, content: CallContent) -> Response:
        """Send a request and wait for its response, without middleware; see `call`."""
        return self._waited(self._start(content))

    def begin(self, content: CallContent) -> tuple[PendingCall, Callable[[], None] | None]:
        """Begin a call without waiting for anything, as an event loop must.

        Args:
            content: the request, from `content` or from the call that middleware passed on.

        Returns:
            The call, which is the future of its response; and what has to run on another thread to send its request, if
            that may wait. None if it was sent.

        Raises:
            InvalidEnvelopeError, UsageError: see `call`.
        """
        call, content = self._new_call(content)
        if self._sends_at_once(content):
            try:
                self._attempt(call, content, gather=True, wait=False)
            except BrokerError:
                pass  # on another thread it is sent once that can be, or fails
            except BaseException as error:
                call.tell(error)
                raise
            else:
                self._note_due(call)
                return call, None
        return call, partial(self._begin_elsewhere, call, content)

    def _begin_elsewhere(self, call: PendingCall, content: CallContent) -> None:
        self._carry_out(call, content)
        self._note_due(call)

    def _sends_at_once(self, content: CallContent) -> bool:
        """Return whether a request can be sent without waiting, if the broker reads."""
        if self._connection.state is not ConnectionState.CONNECTED or self._recorder is not None or content.attachments:
            return False
        return self._replies.is_open and (not self._expires(content) or self._clock.is_known)

    def _expires(self, content: CallContent) -> bool:
        return content.expires is not None or bool(self.endpoint.time_to_live)

    def post(self, content: CallContent, given_up: GivenUp = lambda: "", on_begun: OnBegun | None = None) -> None:
        """Send a one-way message, and return when the broker has it; see `send`.

        Args:
            content: the message, from `content` or from the call that middleware passed on.
            given_up: returns the reason not to send, or an empty string.
            on_begun: called with what the connection's `send` returned, which may be cancelled.
        """
        self._check_open()
        if self._addressing:
            content, _ = addressed(content, self.endpoint, one_way=True)
        self._sender.send(content, lambda: given_up() or self._given_up(), on_begun)

    def note_unsent(self, content: CallContent, error: CallFailedError, *, one_way: bool) -> None:
        """Tell the observers of a call or one-way message that failed before it was begun, as it got no turn."""
        if self._observers is not None:
            spoken = content.action or self.endpoint.soap_action
            observed = self._observers.sending(one_way=one_way, correlation_id=None, soap_action=spoken)
            is_timeout = isinstance(error, CallTimeoutError) and not one_way
            observed.end(Outcome.TIMEOUT if is_timeout else Outcome.FAILED, error=error)

    def ping(self, timeout: float = PING_TIMEOUT) -> float:
        """Send a message through the broker and back, not to the service, and return the seconds that it took.

        Raises:
            PingFailedError: the message did not come back within `timeout` seconds, or there is no connection.
        """
        self._check_open()
        return self._pinger.ping(timeout)

    @property
    def under_way(self) -> int:
        """Number of calls that wait for their response."""
        return len(self._calls)

    def close(self, deadline: float = DEFAULT_DEADLINE) -> None:
        """Stop listening for replies, and end the reply destinations. The connection stays open. Idempotent.

        Pending calls fail at once, and calls that wait for a lost connection fail soon after. Returns within `deadline`
        seconds even if the broker does not answer; the remaining destinations end when it does, or with the connection.

        Raises:
            UsageError: `deadline` is not a finite number; nothing is closed then.
        """
        until = time.monotonic() + time_to_close(deadline)
        self._closed = True
        self._connection.unwatch(self._on_state)
        self._give_up_all(CLOSED_MEANWHILE)
        leaving = Thread(target=self._leave, name="soapjms-leaving", daemon=True)
        leaving.start()
        leaving.join(left(until))
        self._overdue.close(left(until))
        self._callbacks.close(time.monotonic())
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.under_way} under way"
        return f"<soapjms.Client of {self._destination}, {state}>"

    def _leave(self) -> None:
        self._replies.close()
        self._pinger.close()

    # Through the middleware

    def content(
        self,
        envelope: bytes | str | etree._Element,
        soap_action: str | None = None,
        operation: str | None = None,
        timeout: float | None = None,
        attachments: Sequence[Attachment] = (),
        retry_of: CallFailedError | None = None,
        expires: Expiry = "timeout",
        mep: Mep = Mep.REQUEST_RESPONSE,
    ) -> CallContent:
        """Check the arguments of a call or one-way message, and return its content; see `call`.

        Raises:
            UsageError: see `call`.
        """
        if soap_action is not None or operation is not None:
            soap_action = soap_action_of(self._port, self.endpoint.properties, soap_action, operation, mep)
        seconds = self.timeout if timeout is None else finite(timeout)
        if expires != "timeout":
            self._check_expiry(expires)
        if attachments != ():
            attachments = attachments_given(attachments)
        if isinstance(envelope, etree._Element) and not str(envelope.tag).endswith("}Envelope"):
            envelope = wrapped(envelope, version=(self._port and self._port.soap_version) or SoapVersion.SOAP_11)
        return new_content((envelope, soap_action, attachments, seconds, NOTHING, retry_of, expires))

    def _check_expiry(self, expires: float | str | None) -> None:
        if self.endpoint.time_to_live is not None:
            raise UsageError(
                f"expires must be left out, got {expires!r}: timeToLive={self.endpoint.time_to_live} is set"
            )
        check_expiry(expires)

    def _begun(self, content: CallContent) -> Completion[Response]:
        """Send a request, and schedule its timeout."""
        call = self._start(content, gather=True)
        self._note_due(call)
        return call

    def _note_due(self, call: PendingCall) -> None:
        """Have a call that nobody waits for end when its time is over."""
        if call.due < self._overdue.next_look:
            try:
                self._overdue.look_at(call.due)
            except BaseException:  # there is no thread that would end it
                call.cancel()
                raise

    def _answered(self, call: OutgoingCall, outer: Completion[Response] | None = None) -> Response:
        checked = partial(checked_response, one_way=False)
        found = around(self._middleware, partial(self._last, outer=outer), checked)(call)
        assert found is not None, "it was checked"
        return found

    def _last(self, given: OutgoingCall, outer: Completion[Response] | None = None) -> Response | None:
        """Send a call or one-way message, innermost in the middleware. Cancelling `outer` drops the call."""
        call = checked_call(given)
        if call.one_way:
            self.post(call.content())
            return None
        started, content = self._new_call(call.content())
        if outer is not None:
            outer.on_settled(lambda _: started.cancel())  # first, as sending may wait for a connection
        self._carry_out(started, content)
        return self._waited(started)

    def _elsewhere(self, call: OutgoingCall) -> Completion[Response]:
        """Run the middleware on another thread, in a copy of the caller's context."""
        future: Completion[Response] = Completion(self._callbacks.executor)
        self._crew.submit(partial(copy_context().run, self._settle, future, call))
        return future

    def _settle(self, future: Completion[Response], call: OutgoingCall) -> None:
        found: Response | BaseException
        try:
            found = self._answered(call, future)
        except BaseException as error:  # SystemExit too: the caller waits for the future
            found = error
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(found, BaseException):
            future.set_exception(found)
        else:
            future.set_result(found)

    # One call

    def _start(self, content: CallContent, *, gather: bool = False) -> PendingCall:
        """Send a request once there is a connection, perhaps together with others, and return its pending call."""
        call, content = self._new_call(content)
        self._carry_out(call, content, gather)
        return call

    def _new_call(self, content: CallContent) -> tuple[PendingCall, CallContent]:
        """Make a call that is not begun yet; return it and its content, with headers of WS-Addressing if wanted."""
        if self._closed:
            raise UsageError(CLOSED)
        due = time.monotonic() + content.seconds
        message_id = ""
        if self._addressing:
            content, message_id = addressed(content, self.endpoint, one_way=False)
        identity = Identity(content.retry_of, self._keys.new())
        if identity.first is not None:
            message_id = identity.first.message_id
        key, others, observed = self._calls.new_key(), identity.properties, None
        if content.others:
            others = others.merged(content.others)
        if self._observers is not None:
            spoken = content.action or self.endpoint.soap_action
            observed = self._observers.sending(one_way=False, correlation_id=key, soap_action=spoken)
            others = others.merged(observed.properties())
        node = RequestingNode(self.endpoint, others=others)
        call = PendingCall(self._calls, self._callbacks.executor, key, node, due, identity, message_id)
        call.observed, call.seconds = observed, content.seconds
        return call, content

    def _carry_out(self, call: PendingCall, content: CallContent, gather: bool = False) -> None:
        """Send the request of a call once there is a connection."""
        attempt = partial(self._attempt, call, content, gather)

        def given_up() -> str:
            return CANCELLED if call.cancelled() else self._given_up()

        try:
            when_connected(self._connection, call.due, attempt, given_up)
        except BrokerError as error:
            call.conclude(self._failure(call, call.node.send_failed(f"{UNSENT}: {error}"), SendOutcome.NOT_SENT))
        except BaseException as error:
            call.tell(error)
            raise

    def _attempt(self, call: PendingCall, content: CallContent, gather: bool, wait: bool = True) -> None:
        """Make and send the request of a call. If this raises, it was not sent, and the call is not pending."""
        call.generation = self._connection.generation
        call.reply_to = reply_to = self._replies.lease(call.key, call.due)
        if call.node.request is not None:  # of an earlier attempt
            call.node = call.node.another()
        try:
            message = call.node.start(
                content.envelope,
                destination=self._destination,
                now=self._clock.now(call.due) if self._expires(content) else epoch_milliseconds(),
                soap_action=content.action,
                correlation_id=call.key,
                reply_to=reply_to,
                timeout=int(content.seconds * 1000),
                time_to_live=lifetime(content, call.due),
                attachments=content.attachments,
            )
            if call.identity.first is not None:
                message = call.identity.written(call.node)
            if self._recorder is not None:
                call.outgoing = self._outgoing(self._recorder, message)
        except BaseException:
            self._replies.end(call.key, reusable=True)
            raise
        self._calls.add(call)
        try:
            if call.cancelled():
                raise ClosedError(CANCELLED)
            on_sent = partial(self._on_sent, call, call.outgoing)
            call.give_up_sending = give_up = self._connection.begin_send(
                message, on_sent, timeout=left(call.due), gather=gather, wait=wait
            )
        except BaseException as error:
            if call.outgoing is not None:
                call.outgoing.sent()
            if not isinstance(error, BrokerError | UsageError):
                call.cancel()  # such as an interrupt: the request may have been sent
            elif not self._calls.withdraw(call) and isinstance(error, BrokerError):
                return  # the call ended at the same moment, and its caller was told
            raise
        if self._closed:  # `close` may have listed the calls before this one was added
            self._give_up(call, CLOSED_MEANWHILE)
        elif call.cancelled():  # likewise for `cancel`
            give_up()
        elif self._replies.gone and call.reply_to in self._replies.gone:  # likewise for `_on_gone`
            self._give_up(call, NO_REPLY.format(self._replies.gone[call.reply_to]))

    def _waited(self, call: PendingCall) -> Response:
        """Wait for the response of a call."""
        try:
            try:
                return call.result(left(call.due))
            except FutureTimeoutError:
                self._expire(call)
                return call.result()  # at once: `_expire` ended the call, or its reply is ending it
        except BaseException:
            call.cancel()  # drops the call after an interrupt
            raise

    def _on_sent(
        self,
        call: PendingCall,
        outgoing: OutgoingRecord | None,
        error: BaseException | None,
        message_id: str | None = None,
    ) -> None:
        if outgoing is not None:
            outgoing.sent(message_id)
        if error is None:
            call.is_confirmed = True
            return
        outcome = outcome_of(error)
        if outcome is SendOutcome.UNKNOWN:
            self._give_up(call, f"{error}")
        else:
            self._calls.end(call, lambda: self._failure(call, call.node.send_failed(f"{UNSENT}: {error}"), outcome))

    def _failure(
        self,
        call: PendingCall,
        event: ExchangeFailed | None,
        outcome: SendOutcome,
        kind: type[CallFailedError] = CallFailedError,
    ) -> CallFailedError:
        """Make the error of a call whose exchange failed, with how far it came."""
        request, waited = call.node.request, time.monotonic() - (call.due - call.seconds)
        connection = self._connection
        is_lost = connection.state is not ConnectionState.CONNECTED or 0 < call.generation != connection.generation
        if outcome is SendOutcome.NOT_SENT and connection.state is ConnectionState.CLOSED:
            is_lost = False  # it was closed before, which the text says
        correlation_id = call.key if request is None else request.correlation_id
        trace = CallTrace(str(self._destination), correlation_id, waited, call.is_confirmed, is_lost)
        assert event is not None, "the exchange was over before"
        return kind(event.text, event.reason, outcome, call.retry(), trace)

    def _expire(self, call: PendingCall) -> None:
        """End a call whose time is over by the monotonic clock of `due`, even if the wall clock was changed."""
        self._calls.end(call, lambda: self._expired(call))

    def _expired(self, call: PendingCall) -> CallFailedError:
        event = call.node.handle_timeout(call.node.deadline or 0)
        is_unsent = call.give_up_sending is not None and call.give_up_sending()
        return self._failure(call, event, SendOutcome.NOT_SENT if is_unsent else SendOutcome.UNKNOWN, CallTimeoutError)

    def _give_up(self, call: PendingCall, why: str) -> None:
        self._calls.end(
            call, lambda: self._failure(call, call.node.receive_failed(UNKNOWN.format(why)), SendOutcome.UNKNOWN)
        )

    # Replies

    def _on_reply(self, message: Message, key: str, stray: str) -> None:
        """Hand a reply to its call; count and log a reply without a pending call."""
        call = self._calls.get(key)
        if self._recorder is not None:
            if call is None or call.outgoing is None:
                record(self._recorder, message, Direction.RESPONSE, Node.REQUESTING)
            else:
                call.outgoing.answered(message, Direction.RESPONSE, Node.REQUESTING)
        if call is None or not self._calls.end(call, self._read, call, message, answered=True):
            what = self._calls.stray(key) or stray
            self._tally.add(what)
            events.REPLY_UNMATCHED.log(what, message.correlation_id)

    def _on_unread(self, message: Message, key: str, reason: str) -> None:
        """End the call whose reply is above the connection's limit: the broker will not deliver it again."""
        call = self._calls.get(key)
        what = "too large" if call is not None else self._calls.stray(key) or "unknown"
        self._tally.add(what)
        events.REPLY_UNREAD.log(what, message.correlation_id, reason)
        if call is not None:
            text = UNREAD.format(reason)
            self._calls.end(
                call, lambda: self._failure(call, call.node.receive_failed(text), SendOutcome.UNKNOWN), answered=True
            )

    def _on_gone(self, destination: Destination, problem: str) -> None:
        """Give up the calls whose reply destination the broker ended."""
        for call in self._calls.all():
            if call.reply_to == destination:
                self._give_up(call, NO_REPLY.format(problem))

    def _read(self, call: PendingCall, message: Message) -> Response | CallFailedError:
        event = call.node.receive(message, message.correlation_id if self._replies.by_place else None)
        assert not isinstance(event, ResponseIgnored), event.text
        if isinstance(event, ExchangeFailed):
            return self._failure(call, event, SendOutcome.UNKNOWN)
        problem = unrelated(event.envelope, call.message_id) if call.message_id else None
        if problem is not None:
            return self._failure(call, ExchangeFailed(FailureReason.RECEPTION_FAILURE, problem), SendOutcome.UNKNOWN)
        assert call.node.request is not None
        response = Response.of(event, call.node.request, self.endpoint)
        if event.fault is not None and response.unparsed:
            events.REPLY_UNPARSED.log(event.fault.reason, UNPARSED_HINT)
        return response

    def _on_state(self, state: ConnectionState) -> None:
        """Give up the calls whose replies cannot come any more."""
        if self._observers is not None:
            self._observers.connection_changed(state)
        if state is ConnectionState.CLOSED:
            self._give_up_all("the connection was closed")
            return
        ended = self._connection.generation  # read before the state: the connection may be restored in between
        if self._connection.state is ConnectionState.CONNECTED:
            ended -= 1
        why = why_lost(self._connection)
        is_lasting = self._replies.is_lasting and self.endpoint.delivery_mode != DeliveryMode.NON_PERSISTENT
        for call in self._calls.all():
            if call.generation <= ended and not (is_lasting and call.is_confirmed):
                self._give_up(call, why)

    def _give_up_all(self, why: str) -> None:
        for call in self._calls.all():
            self._give_up(call, why)

    def _outgoing(self, recorder: Recorder, message: Message) -> OutgoingRecord:
        tells = self._connection.capabilities.tells_message_id
        return OutgoingRecord(recorder, message, Direction.REQUEST, Node.REQUESTING, tells_message_id=tells)

    def _given_up(self) -> str:
        return CLOSED_MEANWHILE if self._closed else ""

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(CLOSED)
