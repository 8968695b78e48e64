"""How a client calls: runs requesting and sending nodes over a connection.

The rules are in the protocol, the reply destinations in `soapjms.replies`; here are futures and the clock. What users
call, and the middleware, is in `soapjms.client`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import MappingProxyType
from typing import Final

from brokers.callbacks import Callbacks
from brokers.completion import Completion
from brokers.connection import Connection, ConnectionState, SendResult
from brokers.deadlines import Deadlines
from brokers.errors import BrokerError
from brokers.message import DeliveryMode, Destination, Message, MessageType
from brokers.naming import Names
from brokers.threads import Thread
from soapjms.addressed import addressed
from soapjms.addressing import destination_of, reply_destination_of
from soapjms.arguments import connection_to, edition, finite, payload_type
from soapjms.calls import UNKNOWN, UNSENT, Call, Calls
from soapjms.health import Pinger
from soapjms.observing import Observer, Observers, Place, Side
from soapjms.outgoing import Content
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, SendOutcome, UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import DEFAULT_PROFILE, CorrelationRule, FailureReason, Profile
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.requesting import (
    Endpoint,
    ExchangeFailed,
    RequestingNode,
    ResponseIgnored,
)
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value
from soapjms.protocol.wsa import unrelated
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.addresses import read_uri
from soapjms.recorder import Outgoing, Recorder, record
from soapjms.replies import ReplyChoice, ReplyStrategy, Told, reply_strategy
from soapjms.response import UNPARSED_HINT, Response
from soapjms.retry import Identity
from soapjms.sending import Sender, outcome_of
from soapjms.tally import Tally
from soapjms.waiting import epoch_milliseconds, left, when_connected, why_lost

log = logging.getLogger("soapjms.client")

DEFAULT_TIMEOUT: Final = 30.0

UNREAD: Final = "the service answered, so it worked on the request, but its response was not read: {}"
NO_REPLY: Final = "the broker ended the destination of the replies ({})"

DEFAULT_DEADLINE: Final = 5.0
"""Seconds within which a client is closed."""


class Caller:
    """What a `Client` calls with; see there for the arguments and attributes."""

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
        addressing: bool = False,
        observer: Observer | Iterable[Observer] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        parsed, effective = read_uri(uri, properties)
        self.endpoint = Endpoint.of(parsed, effective, edition(profile, uri), payload_type(message_type), limits)
        self.timeout = finite(timeout)
        self._addressing = addressing
        self._connection = connection_to(connection)
        self._recorder = recorder
        self._port = uri if isinstance(uri, Port) else None
        self._destination = destination_of(parsed, names or Names(), effective)
        fixed = reply_destination_of(parsed, effective, names or Names())
        if fixed is not None and (fixed.kind, fixed.name) == (self._destination.kind, self._destination.name):
            raise UsageError(
                f"replies would go to {fixed}, where the requests go: the client would read its own requests"
            )
        self._observers = observers = Observers.of(observer, Place(Side.CLIENT, self._destination))
        self._tally = Tally(observers)
        self.counts = self._tally.counts
        prefix = f"{uuid.uuid4().hex}-"
        by_message_id = self.endpoint.profile.correlation is CorrelationRule.MESSAGE_ID
        self._closed = False
        self._given_up = lambda: "the client was closed" if self._closed else ""
        self._sender = Sender(connection, self.endpoint, self._destination, prefix, self._given_up, recorder, observers)
        choice = ReplyChoice(reply_strategy(replies), fixed, by_message_id, prefix)
        told = Told(self._on_reply, self._on_unread, self._on_gone)
        self._replies = choice.replies(self._connection, told)
        self._calls = Calls(self._replies, prefix)
        self._deadlines = Deadlines("soapjms-deadlines")
        self._pinger = Pinger(connection)
        self._callbacks = Callbacks("soapjms-client")
        connection.watch(self._on_state)
        if observers is not None:
            observers.started()

    @property
    def under_way(self) -> int:
        """How many calls wait for their response."""
        return len(self._calls)

    # One call

    def _start(self, content: Content) -> Call:
        """Send a request, once there is a connection; return the call, which ends with its future."""
        self._check_open()
        due = time.monotonic() + content.seconds
        message_id = ""
        if self._addressing:
            content, message_id = addressed(content, self.endpoint, one_way=False)
        identity, node = Identity(content.retry_of), RequestingNode(self.endpoint)
        call = Call(self._calls.new_key(), Completion(self._callbacks.executor), node, due, identity)
        call.message_id = message_id if identity.first is None else identity.first.message_id

        if self._observers is not None:
            spoken = content.action or self.endpoint.soap_action
            call.observe(self._observers.sending(one_way=False, correlation_id=call.key, soap_action=spoken))

        others = identity.properties
        for each in (content.others, call.others):
            others = others.merged(each) if each else others

        def attempt() -> None:
            call.generation = self._connection.generation
            call.reply_to = reply_to = self._replies.lease(call.key, due)
            call.node = RequestingNode(self.endpoint, others=others)
            try:
                call.node.start(
                    content.envelope,
                    destination=self._destination,
                    now=epoch_milliseconds(),
                    soap_action=content.action,
                    correlation_id=call.key,
                    reply_to=reply_to,
                    timeout=int(content.seconds * 1000),
                    attachments=content.attachments,
                )
                message = identity.written(call.node)
            except BaseException:
                self._replies.end(call.key, reusable=True)
                raise
            self._send_request(call, message)

        try:
            when_connected(self._connection, due, attempt, self._given_up)
        except BrokerError as error:
            call.settle(call.failure(call.node.send_failed(f"{UNSENT}: {error}"), SendOutcome.NOT_SENT))
        except BaseException as error:
            call.tell(error)
            raise
        return call

    def _send(self, content: Content) -> None:
        """Send a one-way message, and return when the broker has it."""
        self._check_open()
        if self._addressing:
            content, _ = addressed(content, self.endpoint, one_way=True)
        self._sender.send(content)

    def _waited(self, call: Call) -> Response:
        """Wait for what a call comes to."""
        try:
            return call.future.result(left(call.due))
        except FutureTimeoutError:
            self._expire(call)
            return call.future.result()  # at once: it ended above, or is being ended by the reply
        finally:
            call.future.cancel()  # an interrupt leaves nothing behind either

    def _send_request(self, call: Call, message: Message) -> None:
        """Send a request. What is raised was not sent, and its call is as if it had not been added."""
        call.outgoing = outgoing = self._outgoing(message)
        self._calls.add(call)
        try:
            sent = self._connection.send(message, timeout=left(call.due))
        except BaseException as error:
            outgoing.sent()
            if not self._calls.withdraw(call) and isinstance(error, BrokerError):
                return  # it was given up at the same moment, and its caller was told
            raise
        call.sending = sent
        is_lasting = message.delivery_mode != DeliveryMode.NON_PERSISTENT
        sent.on_settled(lambda done: self._on_sent(call, outgoing, done, is_lasting))
        if self._closed:  # meanwhile: `close` may have looked before this call was there
            self._give_up(call, "the client was closed")
        elif self._replies.gone and call.reply_to in self._replies.gone:  # likewise
            self._give_up(call, NO_REPLY.format(self._replies.gone[call.reply_to]))

    def _on_sent(self, call: Call, outgoing: Outgoing, done: Future[SendResult], is_lasting: bool) -> None:
        error = None if done.cancelled() else done.exception()
        outgoing.sent(None if done.cancelled() or error is not None else done.result().message_id)
        outcome = None if error is None else outcome_of(error)
        if outcome is None:
            call.is_confirmed = is_lasting
        elif outcome is SendOutcome.UNKNOWN:
            self._give_up(call, f"{error}")
        else:
            self._calls.end(call, lambda: call.failure(call.node.send_failed(f"{UNSENT}: {error}"), outcome))

    def _expire(self, call: Call) -> None:
        """Tell the node that its deadline is there: the clock of `due` says so, whatever became of the wall clock."""
        self._calls.end(call, lambda: self._expired(call))

    def _expired(self, call: Call) -> CallFailedError:
        event = call.node.handle_timeout(call.node.deadline or 0)
        is_unsent = call.sending is not None and call.sending.withdraw()
        return call.failure(event, SendOutcome.NOT_SENT if is_unsent else SendOutcome.UNKNOWN, CallTimeoutError)

    def _give_up(self, call: Call, why: str) -> None:
        self._calls.end(call, lambda: call.failure(call.node.receive_failed(UNKNOWN.format(why)), SendOutcome.UNKNOWN))

    # Replies

    def _on_reply(self, message: Message, key: str, stray: str) -> None:
        """Hand a reply to the call that it is for; nobody else ever sees it."""
        call = self._calls.get(key)
        if call is None or call.outgoing is None:
            record(self._recorder, message, Direction.RESPONSE, Node.REQUESTING)
        else:
            call.outgoing.answered(message, Direction.RESPONSE, Node.REQUESTING)
        if call is None or not self._calls.end(call, lambda: self._read(call, message), answered=True):
            what = self._calls.stray(key) or stray
            self._tally.add(what)
            log.info("a reply is for no call under way (%s): JMSCorrelationID %r", what, message.correlation_id)

    def _on_unread(self, message: Message, key: str, reason: str) -> None:
        """End the call whose reply is above the connection's limit: it will not come another time."""
        call = self._calls.get(key)
        what = "too large" if call is not None else self._calls.stray(key) or "unknown"
        self._tally.add(what)
        log.warning("a reply was not read (%s), JMSCorrelationID %r: %s", what, message.correlation_id, reason)
        if call is not None:
            text = UNREAD.format(reason)
            self._calls.end(
                call, lambda: call.failure(call.node.receive_failed(text), SendOutcome.UNKNOWN), answered=True
            )

    def _on_gone(self, destination: Destination, problem: str) -> None:
        """Give up the calls whose replies would come where nobody listens any more."""
        for call in self._calls.all():
            if call.reply_to == destination:
                self._give_up(call, NO_REPLY.format(problem))

    def _read(self, call: Call, message: Message) -> Response | CallFailedError:
        event = call.node.receive(message, message.correlation_id if self._replies.by_place else None)
        assert not isinstance(event, ResponseIgnored), event.text
        if isinstance(event, ExchangeFailed):
            return call.failure(event, SendOutcome.UNKNOWN)
        problem = unrelated(event.envelope, call.message_id) if call.message_id else None
        if problem is not None:
            return call.failure(ExchangeFailed(FailureReason.RECEPTION_FAILURE, problem), SendOutcome.UNKNOWN)
        assert call.node.request is not None
        response = Response.of(event, call.node.request, self.endpoint)
        if response.unparsed:
            log.warning("the service answered %r: %s", event.fault and event.fault.reason, UNPARSED_HINT)
        return response

    def _on_state(self, state: ConnectionState) -> None:
        """Give up the calls whose replies cannot come any more."""
        if self._observers is not None:
            self._observers.connection_changed(state)
        if state is ConnectionState.CLOSED:
            self._give_up_all("the connection was closed")
            return
        ended = self._connection.generation  # in this order: it may be made again between
        if self._connection.state is ConnectionState.CONNECTED:
            ended -= 1
        why = why_lost(self._connection)
        for call in self._calls.all():
            if call.generation <= ended and not (self._replies.is_lasting and call.is_confirmed):
                self._give_up(call, why)

    def _give_up_all(self, why: str) -> None:
        for call in self._calls.all():
            self._give_up(call, why)

    # Life

    def _outgoing(self, message: Message) -> Outgoing:
        tells = self._recorder is not None and self._connection.capabilities.tells_message_id
        return Outgoing(self._recorder, message, Direction.REQUEST, Node.REQUESTING, tells_message_id=tells)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the client is closed")

    def close(self, deadline: float = DEFAULT_DEADLINE) -> None:
        """Stop listening; see `Client.close`."""
        until = time.monotonic() + deadline
        self._closed = True
        self._connection.unwatch(self._on_state)
        self._give_up_all("the client was closed")
        self._deadlines.close()
        leaving = Thread(target=self._leave, name="soapjms-leaving", daemon=True)
        leaving.start()
        leaving.join(max(0.0, until - time.monotonic()))
        self._callbacks.close(time.monotonic())

    def _leave(self) -> None:
        self._replies.close()
        self._pinger.close()
