"""A captured request, sent again as it was captured: with its octets, its properties and its mistakes.

A `Client` writes what the specification wants, so it cannot show what a service does with a request that is wrong. Only
what belongs to one sending is new here: JMSMessageID, JMSTimestamp, JMSCorrelationID, and JMSReplyTo, which becomes a
temporary queue, so that nobody else's replies are taken. A lifetime is counted from now on, by the broker's clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import cached_property
from secrets import token_hex
from typing import Final

from brokers.adapter.wait import epoch_milliseconds
from brokers.arguments import finite
from brokers.connection import Capabilities, Connection, Delivery, end_temporary, stop
from brokers.errors import BrokerError, UnsupportedError
from brokers.message import Destination, Message, PropertyType, changed
from brokers.threads.timer import left
from soapjms.client.call import UNPARSED
from soapjms.client.client import DEFAULT_TIMEOUT, UNREAD, outcome_of
from soapjms.client.pending_calls import UNSENT
from soapjms.ping import BrokerClock
from soapjms.protocol.assertions import Setting, Verdict, habits_of
from soapjms.protocol.attachments import Attachments
from soapjms.protocol.envelope import Envelope, Fault, read_fault
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, SendOutcome, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, FailureReason, Profile
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import NO_ATTACHMENTS, Reading
from soapjms.protocol.record import Direction, Record
from soapjms.protocol.repetition import again, obstacles, own_properties
from soapjms.protocol.requesting import findings
from soapjms.protocol.text import named

PRIORITIES: Final = range(10)
DELIVERY_MODES: Final = (1, 2)
UNCARRIED: Final = "the request cannot be sent as it was captured: {}"


@dataclass(frozen=True)
class Repetition:
    """A captured request that was sent again, and what came back. It is read like a `Response`.

    Attributes:
        request: the request as it was sent.
        message: the answer; None for a one-way message.
        profile: the edition or dialect by which both are read and judged.
    """

    request: Message
    message: Message | None
    profile: Profile

    @cached_property
    def _reading(self) -> Reading | None:
        return None if self.message is None else Reading(self.message, self.profile, direction=Direction.RESPONSE)

    @property
    def envelope(self) -> Envelope | None:
        """The SOAP envelope of the answer; None if it has none, for which `problem` has the reason."""
        return None if self._reading is None else self._reading.envelope

    @property
    def problem(self) -> str:
        """Why the answer is no SOAP envelope; empty if it is one, or if there is no answer."""
        return "" if self._reading is None or self.envelope is not None else self._reading.envelope_problem or ""

    @cached_property
    def fault(self) -> Fault | None:
        """The fault in the answer, or None."""
        return None if self.envelope is None else read_fault(self.envelope)

    @property
    def unparsed(self) -> bool:
        """True if it is the fault of a service that could not parse the request as the broker delivered it."""
        return self.fault is not None and self.fault.reason.startswith(UNPARSED)

    @property
    def attachments(self) -> Attachments:
        """The attachments of the answer."""
        reading = self._reading
        return reading.attachments if reading is not None and reading.described.is_multipart else NO_ATTACHMENTS

    def findings(self) -> tuple[Verdict, ...]:
        """Judge the exchange by every assertion, and return the verdicts of those that were broken."""
        return findings(self.request, self.message, Setting(profile=self.profile))

    def notes(self) -> tuple[tuple[str, str], ...]:
        """Return the code and text of each habit of real stacks that the answer shows."""
        return () if self._reading is None else tuple(habits_of(self._reading, Carrier.RESPONSE))


def repeat(
    connection: Connection,
    record: Record,
    destination: Destination | None = None,
    *,
    profile: Profile = DEFAULT_PROFILE,
    timeout: float = DEFAULT_TIMEOUT,
) -> Repetition:
    """Send a captured request or one-way message again, and wait for the answer if there was a JMSReplyTo.

    Args:
        connection: the connection to the broker.
        record: the captured message.
        destination: where to send it instead of its own destination.
        profile: the edition or dialect to judge by.
        timeout: seconds to wait for the answer.

    Raises:
        UsageError: the record is no whole request, or this connection cannot carry it as it was captured.
        CallFailedError: it could not be sent, or no answer came.
    """
    until = time.monotonic() + finite(timeout)
    if problem := next(obstacles(record, destination), None):
        raise UsageError(problem)
    if problem := next(losses(record, connection.capabilities), None):
        raise UsageError(UNCARRIED.format(problem))
    now = BrokerClock(connection).now(until) if record.message.expiration else epoch_milliseconds()
    message = again(record, destination, now, f"soapjms-{token_hex(12)}")
    if record.message.reply_to is None:
        return Repetition(_sent(connection, message, until), None, profile)
    place, answer = connection.temporary(), Future[Message]()
    try:
        asked = changed(message, reply_to=place)
        return Repetition(*_answered(connection, asked, place, answer, until), profile)
    finally:
        end_temporary(connection, place)


def losses(record: Record, capabilities: Capabilities) -> Iterator[str]:
    """Yield what a connection would change about a captured request."""
    message = record.message
    if message.priority is not None and message.priority not in PRIORITIES:
        yield f"JMSPriority must be from 0 to 9 for a provider, got {message.priority}"
    if message.delivery_mode is not None and message.delivery_mode not in DELIVERY_MODES:
        yield f"JMSDeliveryMode must be 1 or 2 for a provider, got {message.delivery_mode}"
    if capabilities.typed_properties:
        return
    for name, kind, value in own_properties(message):
        if value is None or (kind is not PropertyType.STRING and not message.untyped):
            what = "a null string" if value is None else f"a JMS {kind}"
            yield (
                f"{named(name)} is {what}, and this connection to {capabilities.broker} carries every property as a "
                "string; one over AMQP keeps the types, such as amqp://localhost:5672"
            )


def _answered(
    connection: Connection, message: Message, place: Destination, answer: Future[Message], until: float
) -> tuple[Message, Message]:
    """Send a request; return it and its answer."""

    def take(delivery: Delivery) -> None:
        if not answer.done():
            answer.set_result(delivery.message)

    def refuse(_: Message, reason: str) -> None:
        if not answer.done():
            answer.set_exception(_failure(message, UNREAD.format(reason), SendOutcome.UNKNOWN))

    consumer = connection.consume(place, take, auto_accept=True, inline=True, on_refused=refuse)
    try:
        sent = _sent(connection, message, until)
        return sent, answer.result(left(until))
    except FutureTimeoutError:
        text = "no answer came in time"
        raise _failure(message, text, SendOutcome.UNKNOWN, CallTimeoutError) from None
    finally:
        stop(consumer)


def _sent(connection: Connection, message: Message, until: float) -> Message:
    """Send a message, and return it with its JMSMessageID if the broker tells it.

    Raises:
        UsageError: this connection cannot carry it.
        CallFailedError: the broker did not take it, or not in time.
    """
    try:
        result = connection.send(message, timeout=left(until)).result(left(until))
    except FutureTimeoutError:
        text = f"{UNSENT}: the broker did not confirm it in time"
        raise _failure(message, text, SendOutcome.UNKNOWN, CallTimeoutError) from None
    except (ValueError, TypeError, OverflowError, UnsupportedError) as error:  # what an adapter cannot write
        raise UsageError(UNCARRIED.format(named(error))) from error
    except BrokerError as error:
        raise _failure(message, f"{UNSENT}: {error}", outcome_of(error)) from error
    return message if result.message_id is None else changed(message, message_id=result.message_id)


def _failure(
    message: Message, text: str, outcome: SendOutcome, kind: type[CallFailedError] = CallFailedError
) -> CallFailedError:
    is_received = outcome is SendOutcome.UNKNOWN
    reason = FailureReason.RECEPTION_FAILURE if is_received else FailureReason.TRANSMISSION_FAILURE
    return kind(f"{text}, from {named(message.destination)}", reason, outcome)
