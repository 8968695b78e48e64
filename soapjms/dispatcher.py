"""Serving: takes requests from a connection, runs responding and receiving nodes, accepts and answers together.

Each worker has a subscription of its own, so a slow request holds up nobody. What is finished goes to one committer,
which puts all that is ready into one transaction: a request is accepted only with its answer, and a process that is
killed loses none.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from types import MappingProxyType, TracebackType
from typing import Final, Self

from brokers.connection import Connection, ConnectionState, Consumer, Delivery
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, DestinationGoneError, SendFailedError
from brokers.message import Destination, Message
from brokers.naming import Names
from soapjms.addressing import VARIANTS, destination_of, reply_refusal
from soapjms.arguments import connection_to, edition, service_to_run, worker_count
from soapjms.protocol.assertions import Setting
from soapjms.protocol.errors import UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.mep import Input
from soapjms.protocol.names import DEFAULT_PROFILE, Profile
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.addresses import read_uri
from soapjms.recorder import Recorder, record
from soapjms.replies import stop
from soapjms.service import Prepared, Service, service_failed

log = logging.getLogger("soapjms.dispatcher")

MAX_GROUP: Final = 64
"""Requests that may be accepted and answered in one transaction."""

COMMIT_TIMEOUT: Final = 30.0

TOO_LATE: Final = "the dispatcher was closed meanwhile"


@dataclass(slots=True)
class _Finished:
    """A request that was worked on: what is left is to accept it, together with its answer if there is one."""

    delivery: Delivery
    node: RespondingNode
    response: Message | None
    refusal: str | None = None
    """Why it must not be answered: such a request was not worked on, and goes to the dead letters."""


class Dispatcher:
    """Serves the requests that come to a `jms:` URI or a WSDL's port. A `with` statement starts and closes it.

    Args:
        connection: to the broker; stays the caller's to close.
        uri: where requests come to, with any binding properties as parameters.
        service: what answers them.
        workers: requests worked on at a time, each with a subscription of its own. A topic has one, as each
            subscription would get, and answer, a copy of every request.
        profile: the edition of the specification to judge and to write by.
        strict: refuse what a liberal reader lets pass.
        properties: binding properties that win over those of the URI.
        names: JNDI names, for the variant jndi.
        recorder: writes every message that passes.
        limits: how much of a request is read.

    Attributes:
        counts: what happened: `accepted`, `tolerated` (of those the ones that break a rule, and were let pass),
            `answered`, `one-way`, `refused`, each subcode, `reply refused` (it may not go where JMSReplyTo says),
            `client gone` and `answer refused` (the broker would not take it), `rejected`,
            `commits`, `lost` (not accepted, as when the connection was lost before the commit: the broker delivers
            those again).

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError: the URI or another argument is not as it must be.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        service: Service,
        *,
        workers: int = 4,
        profile: Profile | str = DEFAULT_PROFILE,
        strict: bool = False,
        properties: Mapping[str, Value] = MappingProxyType({}),
        names: Names | None = None,
        recorder: Recorder | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        wanted = worker_count(workers)
        self._connection = connection_to(connection)
        self._service = service_to_run(service)
        parsed, effective = read_uri(uri, properties)
        self.destination: Destination = destination_of(parsed, names or Names(), effective)
        self.setting = Setting(profile=edition(profile), variants=frozenset(VARIANTS), strict=strict, limits=limits)
        self.counts: Counter[str] = Counter()
        self._workers = 1 if self.destination.kind.is_topic else wanted
        self._transactions = connection.capabilities.transactions
        self._most = MAX_GROUP if self._transactions else 1  # without transactions each is accepted for itself
        self._recorder = recorder
        self._finished: SimpleQueue[_Finished | None] = SimpleQueue()
        self._consumers: list[Consumer] = []
        self._committer = Thread(target=self._commit_all, name="soapjms-committer", daemon=True)
        self._idle = Condition()
        self._under_way = 0
        self._stopping = False
        self._too_late = False

    # Life

    def start(self) -> Self:
        """Subscribe, and return once requests are being taken.

        Raises:
            UsageError: it was started before.
            BrokerError: a subscription was refused.
        """
        if self._consumers or self._stopping:
            raise UsageError("a dispatcher is started once; make another")
        self._committer.start()
        try:
            self._connection.watch(self._on_state)
            for _ in range(self._workers):
                self._consumers.append(self._connection.consume(self.destination, self._on_delivery, prefetch=1))
        except BaseException:
            self.close()
            raise
        return self

    def close(self, deadline: float = 10.0) -> None:
        """Take no more requests, finish those under way within `deadline` seconds, and unsubscribe. Idempotent.

        What is not finished by then, the broker delivers again.
        """
        until = time.monotonic() + deadline
        with self._idle:
            if self._stopping:
                return
            self._stopping = True
            self._idle.wait_for(lambda: self._under_way == 0, deadline)
            self._too_late = True
        for consumer in self._consumers:
            stop(consumer)
        self._finished.put(None)
        if self._committer.is_alive():
            self._committer.join(max(0.0, until - time.monotonic()))

    def _on_state(self, state: ConnectionState) -> None:
        if state is not ConnectionState.CONNECTED and not self._stopping:
            log.error("the connection was %s: no more requests come from %s", state, self.destination)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # One request, on the thread of its worker's consumer

    def _on_delivery(self, delivery: Delivery) -> None:
        with self._idle:
            if self._stopping:
                return  # the consumer is about to close, and gives it back
            self._under_way += 1
        node = RespondingNode(self.setting)
        try:
            finished = self._work_on(delivery, node)
        except BaseException:
            self._done(1)
            raise
        with self._idle:
            if not self._too_late:
                self._finished.put(finished)
                return
        self._count_lost([finished], TOO_LATE)
        self._done(1)

    def _work_on(self, delivery: Delivery, node: RespondingNode) -> _Finished:
        message = delivery.message
        event = node.receive(message)
        self._record(message, Direction.ONE_WAY if event.one_way else Direction.REQUEST, _node(event.one_way))
        refusal = None if event.one_way else reply_refusal(message)
        if refusal is not None:
            self._count("reply refused")
            return _Finished(delivery, node, None, refusal)
        prepared = self._answer_event(event, delivery)
        if event.one_way:
            self._count("one-way")
            return _Finished(delivery, node, None)
        return _Finished(delivery, node, _respond(node, event, prepared))

    def _answer_event(self, event: RequestAccepted | RequestRefused, delivery: Delivery) -> Prepared:
        if isinstance(event, RequestRefused):
            self._count("refused", event.subcode or "no envelope")
            if event.one_way:  # nobody else is told
                log.warning("a one-way message was refused: %r (%s)", event.reason, event.subcode)
            else:
                log.info("a request was refused: %r (%s)", event.reason, event.subcode)
            return event.fault, ()
        self._count("accepted")
        if event.tolerated:
            self._count("tolerated")
            log.info("a request was let pass that breaks %s", ", ".join(each.assertion for each in event.tolerated))
        return self._service.answer(event, delivery.delivery_count)

    # Accept and answer together, on the committer's thread

    def _commit_all(self) -> None:
        ending = False
        while not ending:
            group, ending = self._next_group()
            for finished in group:
                if finished.refusal is not None:
                    self._settle([finished], self._refuse)
            self._settle([finished for finished in group if finished.refusal is None], self._commit_group)
            self._done(len(group))

    def _next_group(self) -> tuple[list[_Finished], bool]:
        """Wait for what is finished, and say whether the end follows."""
        following = self._finished.get()
        group: list[_Finished] = []
        while following is not None:
            group.append(following)
            if len(group) == self._most:
                return group, False
            try:
                following = self._finished.get_nowait()
            except Empty:
                return group, False
        return group, True

    def _settle(self, group: list[_Finished], how: Callable[[list[_Finished]], None]) -> None:
        """Settle a group; whatever comes of it, this thread goes on, as all workers depend on it."""
        if not group:
            return
        try:
            how(group)
        except BaseException as error:
            log.exception("requests could not be settled")
            self._count_lost(group, f"{error!r}")
            for finished in group:
                _release(finished.delivery)

    def _refuse(self, group: list[_Finished]) -> None:
        for finished in group:
            self._reject(finished, f"it must not be answered: {finished.refusal}")

    def _commit_group(self, group: list[_Finished]) -> None:
        """Commit a group; what cannot be committed is committed one by one, and what alone cannot is rejected."""
        if self._too_late:
            self._count_lost(group, TOO_LATE)
            return
        try:
            refused = self._commit(group)
        except (ConnectionLostError, FutureTimeoutError) as error:
            self._count_lost(group, f"{error}" or "the broker did not confirm")
        except Exception as error:
            if len(group) > 1:
                for finished in group:
                    self._settle([finished], self._commit_group)
            elif isinstance(error, ClosedError):
                self._count_lost(group, f"{error}")
            else:
                self._reject(group[0], f"its answer could not be sent: {error}")
        else:
            self._count("commits")
            answered = (finished for finished in group if finished.response is not None)
            for position, finished in enumerate(answered):
                self._answered(finished, refused.get(position))

    def _commit(self, group: list[_Finished]) -> dict[int, SendFailedError]:
        """Accept the requests with their answers; return the answers that the broker refused, by their position."""
        if not self._transactions:
            return self._send_then_accept(group[0])
        transaction = self._connection.begin()
        try:
            for finished in group:
                if finished.response is not None:
                    transaction.send(finished.response)
                transaction.accept(finished.delivery)
        except BaseException:
            transaction.abort()
            raise
        return {each.position: each.error for each in transaction.commit().result(COMMIT_TIMEOUT)}

    def _send_then_accept(self, finished: _Finished) -> dict[int, SendFailedError]:
        """Do without transactions: accept the request once the broker has its answer, or refused it by itself."""
        refused: dict[int, SendFailedError] = {}
        if finished.response is not None:
            try:
                self._connection.send(finished.response).result(COMMIT_TIMEOUT)
            except DestinationGoneError as error:
                refused[0] = error
        finished.delivery.accept()
        return refused

    def _answered(self, finished: _Finished, error: SendFailedError | None) -> None:
        assert finished.response is not None
        if error is None:
            finished.node.sent()
            self._count("answered")
            self._record(finished.response, Direction.RESPONSE, Node.RESPONDING)
            return
        finished.node.send_failed()
        self._count("client gone" if isinstance(error, DestinationGoneError) else "answer refused")
        log.warning("an answer was not delivered: %s", error)

    def _reject(self, finished: _Finished, reason: str) -> None:
        """Put a request that cannot be answered on the dead-letter destination: nothing is lost."""
        self._count("rejected")
        log.error("a request was not answered, and rejected: %s", reason)
        _fail(finished)
        try:
            finished.delivery.reject(reason)
        except BrokerError as late:
            self._count_lost([finished], f"{late}")

    def _count_lost(self, group: list[_Finished], why: str) -> None:
        self._count("lost", times=len(group))
        log.warning("%d requests were not accepted, the broker delivers them again: %s", len(group), why)
        for finished in group:
            _fail(finished)

    # Book-keeping

    def _done(self, number: int) -> None:
        with self._idle:
            self._under_way -= number
            self._idle.notify_all()

    def _count(self, *what: str, times: int = 1) -> None:
        with self._idle:
            for each in what:
                self.counts[str(each)] += times

    def _record(self, message: Message, direction: Direction, node: Node) -> None:
        record(self._recorder, message, direction, node)


def _release(delivery: Delivery) -> None:
    """Give back what may not have been settled; what was, stays so."""
    try:
        delivery.release()
    except Exception:
        log.exception("a request could not be given back; it goes back with its connection")


def _respond(node: RespondingNode, event: RequestAccepted | RequestRefused, prepared: Prepared) -> Message:
    """Make the response; of a service whose attachments cannot be sent a fault."""
    try:
        return node.respond(*prepared)
    except (UsageError, OSError):
        log.exception("the attachments of an answer cannot be sent")
        assert isinstance(event, RequestAccepted)
        return node.respond(service_failed(event.envelope.version))


def _fail(finished: _Finished) -> None:
    """End the exchange at this node."""
    machine = finished.node.machine
    happened = Input.SENDING_FAILED if machine.allows(Input.SENDING_FAILED) else Input.RECEIVING_FAILED
    if machine.allows(happened):  # a one-way message that was read has ended before
        machine.step(happened)


def _node(one_way: bool) -> Node:
    return Node.RECEIVING if one_way else Node.RESPONDING
