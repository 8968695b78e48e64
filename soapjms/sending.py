"""Sending one-way messages: runs a sending node over a connection for each of them.

Nobody answers, so nothing is waited for but the broker. Calls are in `soapjms.client`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import count
from typing import Final

from brokers.completion import Completion
from brokers.connection import Connection, SendResult
from brokers.errors import BrokerError, ClosedError, NotSentError, SendFailedError
from brokers.message import Destination, Message
from soapjms.observing import Observers, Outcome
from soapjms.outgoing import Content
from soapjms.protocol.errors import CallFailedError, SendOutcome
from soapjms.protocol.names import Mep
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.requesting import Endpoint, RequestingNode
from soapjms.recorder import Outgoing, Recorder
from soapjms.retry import Identity
from soapjms.waiting import GivenUp, await_connected, epoch_milliseconds, left, when_connected

FAILED: Final[Mapping[SendOutcome, str]] = {
    SendOutcome.NOT_SENT: "the message could not be sent",
    SendOutcome.REFUSED: "the broker refused the message",
    SendOutcome.UNKNOWN: "whether the message was sent is not known",
}


def outcome_of(error: BaseException) -> SendOutcome:
    """Say what became of a message, of what the future of `Connection.send` raised."""
    if isinstance(error, NotSentError | ClosedError):
        return SendOutcome.NOT_SENT
    is_refused = isinstance(error, SendFailedError) and error.is_known
    return SendOutcome.REFUSED if is_refused else SendOutcome.UNKNOWN


class Sender:
    """Sends one-way messages to one destination. Thread-safe.

    Where the broker keeps no JMSMessageID with a redelivery, each has a unique JMSCorrelationID instead, by which the
    store of a service knows it again. The specification says nothing of that header in a one-way message.

    Args:
        connection: to the broker.
        endpoint: what the messages say of where they go.
        destination: where they go.
        prefix: of the JMSCorrelationIDs, which nobody else's have.
        given_up: says that nobody waits for the connection any more.
        recorder: writes them.
        observers: are told of each.
    """

    def __init__(
        self,
        connection: Connection,
        endpoint: Endpoint,
        destination: Destination,
        prefix: str,
        given_up: GivenUp,
        recorder: Recorder | None,
        observers: Observers | None,
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._destination = destination
        self._prefix = prefix
        self._given_up = given_up
        self._recorder = recorder
        self._observers = observers
        self._numbers = count(1)

    def send(self, content: Content) -> None:
        """Send a message, and return when the broker has it.

        Raises:
            InvalidEnvelopeError, UsageError: what is to be sent is not as it must be.
            CallFailedError: it was not sent, or refused, or it is not known whether the broker has it.

        Spec: SOAP/JMS 2.7.1.
        """
        is_known = self._connection.capabilities.stable_message_id
        key = None if is_known else f"{self._prefix}one-way-{next(self._numbers)}"
        identity = Identity(content.retry_of)
        others = identity.properties.merged(content.others) if content.others else identity.properties
        if self._observers is None:
            self._send(RequestingNode(self._endpoint, Mep.ONE_WAY, others), content, key, identity)
            return
        spoken = content.action or self._endpoint.soap_action
        observed = self._observers.sending(one_way=True, correlation_id=key, soap_action=spoken)
        try:
            node = RequestingNode(self._endpoint, Mep.ONE_WAY, others.merged(observed.properties()))
            self._send(node, content, key, identity)
        except BaseException as error:
            observed.end(Outcome.FAILED, error=error)
            raise
        observed.end(Outcome.SENT)

    def _send(self, node: RequestingNode, content: Content, key: str | None, identity: Identity) -> None:
        due = time.monotonic() + content.seconds
        sent: Completion[SendResult] | None = None
        outgoing, message_id = None, None
        try:
            await_connected(self._connection, due, self._given_up)
            node.start(
                content.envelope,
                destination=self._destination,
                now=epoch_milliseconds(),
                soap_action=content.action,
                correlation_id=key,
                attachments=content.attachments,
            )
            message = identity.written(node)
            outgoing = self._outgoing(message)
            sent = when_connected(
                self._connection, due, lambda: self._connection.send(message, timeout=left(due)), self._given_up
            )
            message_id = sent.result(left(due)).message_id
        except (BrokerError, FutureTimeoutError) as error:
            outcome = SendOutcome.NOT_SENT if sent is None or sent.withdraw() else outcome_of(error)
            failed = node.send_failed(f"{FAILED[outcome]}: {str(error) or 'no answer from the broker'}")
            raise CallFailedError(failed.text, failed.reason, outcome, identity.retry(node)) from error
        finally:
            if outgoing is not None:
                outgoing.sent(message_id)
        node.sent()

    def _outgoing(self, message: Message) -> Outgoing:
        tells = self._connection.capabilities.tells_message_id
        return Outgoing(self._recorder, message, Direction.ONE_WAY, Node.SENDING, tells_message_id=tells)
