"""Serving: takes requests from a connection, runs responding and receiving nodes, accepts and answers together.

Each worker has a subscription of its own, so a slow request holds up nobody. What is finished goes to one committer,
which puts all that is ready into one transaction: a request is accepted only with its answer, and a process that is
killed loses none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from types import MappingProxyType, TracebackType
from typing import Final, Self

from lxml import etree

from brokers.connection import Connection, Consumer, Delivery
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, DestinationGoneError, SendFailedError
from brokers.message import Destination, Message
from brokers.naming import Names
from soapjms.addressing import VARIANTS, destination_of, read_uri, reply_refusal
from soapjms.protocol.assertions import Setting
from soapjms.protocol.errors import UsageError
from soapjms.protocol.mep import Input
from soapjms.protocol.names import DEFAULT_PROFILE, Profile
from soapjms.protocol.properties import Value
from soapjms.protocol.record import Direction, Node
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode
from soapjms.protocol.uri import JmsUri
from soapjms.recorder import Recorder
from soapjms.service import Service

log = logging.getLogger("soapjms.dispatcher")

MAX_GROUP: Final = 64
"""Requests that may be accepted and answered in one transaction."""

COMMIT_TIMEOUT: Final = 30.0


@dataclass(slots=True)
class _Finished:
    """A request that was worked on: what is left is to accept it, together with its answer if there is one."""

    delivery: Delivery
    node: RespondingNode
    response: Message | None


class Dispatcher:
    """Serves the requests that come to a `jms:` URI. Usable in a `with` statement, which starts and closes it.

    Args:
        connection: to the broker; stays the caller's to close.
        uri: where requests come to.
        service: what answers them.
        workers: requests worked on at a time, each with a subscription of its own.
        profile: the edition of the specification to judge and to write by.
        strict: refuse what a liberal reader lets pass.
        properties: binding properties that win over those of the URI.
        names: JNDI names, for the variant jndi.
        recorder: writes every message that passes.

    Attributes:
        counts: what happened: `accepted`, `answered`, `one-way`, `refused`, each subcode, `reply refused` (it may not
            go where JMSReplyTo says), `client gone` and `answer refused` (the broker would not take it), `rejected`,
            `commits`, `lost` (the connection was lost before the commit: the broker delivers those again).

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError: the URI or another argument is not as it must be.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri,
        service: Service,
        *,
        workers: int = 4,
        profile: Profile = DEFAULT_PROFILE,
        strict: bool = False,
        properties: Mapping[str, Value] = MappingProxyType({}),
        names: Names | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        if workers < 1:
            raise UsageError(f"workers is {workers}; at least one is needed")
        parsed, _ = read_uri(uri, properties)
        self.destination: Destination = destination_of(parsed, names or Names())
        self.setting = Setting(profile=profile, variants=frozenset(VARIANTS), strict=strict)
        self.counts: Counter[str] = Counter()
        self._connection = connection
        self._service = service
        self._workers = workers
        self._recorder = recorder
        self._finished: SimpleQueue[_Finished | None] = SimpleQueue()
        self._consumers: list[Consumer] = []
        self._committer = Thread(target=self._commit_all, name="soapjms-committer", daemon=True)
        self._idle = Condition()
        self._under_way = 0
        self._stopping = False

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
            for _ in range(self._workers):
                self._consumers.append(self._connection.consume(self.destination, self._on_delivery, prefetch=1))
        except BrokerError:
            self.close()
            raise
        return self

    def close(self, deadline: float = 10.0) -> None:
        """Take no more requests, finish those under way within `deadline` seconds, and unsubscribe. Idempotent.

        What is not finished by then, the broker delivers again.
        """
        with self._idle:
            if self._stopping:
                return
            self._stopping = True
            self._idle.wait_for(lambda: self._under_way == 0, deadline)
        for consumer in self._consumers:
            try:
                consumer.close()
            except BrokerError as error:
                log.debug("the consumer was gone before: %s", error)
        self._finished.put(None)
        if self._committer.is_alive():
            self._committer.join(deadline)

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
            response = self._answer(delivery, node)
        except BaseException:
            self._done(1)
            raise
        self._finished.put(_Finished(delivery, node, response))

    def _answer(self, delivery: Delivery, node: RespondingNode) -> Message | None:
        message = delivery.message
        event = node.receive(message)
        one_way = event.one_way
        self._record(message, Direction.ONE_WAY if one_way else Direction.REQUEST, _node(one_way))
        envelope = self._answer_event(event, delivery)
        if one_way:
            self._count("one-way")
            return None
        refusal = reply_refusal(message)
        if refusal is not None:
            self._count("reply refused")
            log.warning("a request is not answered: %s", refusal)
            node.machine.step(Input.RECEIVING_FAILED)
            return None
        return node.respond(envelope)

    def _answer_event(self, event: RequestAccepted | RequestRefused, delivery: Delivery) -> etree._Element:
        if isinstance(event, RequestRefused):
            self._count("refused", event.subcode or "no envelope")
            log.info("a request was refused: %s (%s)", event.reason, event.subcode)
            return event.fault
        self._count("accepted")
        return self._service.answer(event, delivery.delivery_count)

    # Accept and answer together, on the committer's thread

    def _commit_all(self) -> None:
        while (first := self._finished.get()) is not None:
            group = [first]
            ending = False
            while len(group) < MAX_GROUP:
                try:
                    following = self._finished.get_nowait()
                except Empty:
                    break
                if following is None:
                    ending = True
                    break
                group.append(following)
            self._commit_group(group)
            if ending:
                return

    def _commit_group(self, group: list[_Finished]) -> None:
        """Commit a group; what the broker refuses is committed one by one, and what it refuses alone is rejected."""
        try:
            self._commit(group)
        except (ConnectionLostError, ClosedError, FutureTimeoutError) as error:
            self._count_lost(group, error)
        except BrokerError as error:
            if len(group) > 1:
                for finished in group:
                    self._commit_group([finished])
                return
            self._reject(group[0], error)
        except Exception:
            log.exception("%d requests could not be accepted", len(group))
        self._done(len(group))

    def _commit(self, group: list[_Finished]) -> None:
        if not self._connection.capabilities.transactions:
            refused = self._send_then_accept(group)
        else:
            transaction = self._connection.begin()
            for finished in group:
                if finished.response is not None:
                    transaction.send(finished.response)
                transaction.accept(finished.delivery)
            refused = {each.position: each.error for each in transaction.commit().result(COMMIT_TIMEOUT)}
        self._count("commits")
        answered = (finished for finished in group if finished.response is not None)
        for position, finished in enumerate(answered):
            self._answered(finished, refused.get(position))

    def _send_then_accept(self, group: list[_Finished]) -> dict[int, SendFailedError]:
        """Do without transactions: accept the requests once the broker has their answers."""
        sends = [self._connection.send(each.response) for each in group if each.response is not None]
        errors = [send.exception(COMMIT_TIMEOUT) for send in sends]
        refused = {position: error for position, error in enumerate(errors) if isinstance(error, SendFailedError)}
        for error in errors:
            if error is not None and not isinstance(error, SendFailedError):
                raise error
        for finished in group:
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

    def _reject(self, finished: _Finished, error: BrokerError) -> None:
        """Put a request whose answer the broker will not take on the dead-letter destination: nothing is lost."""
        self._count("rejected")
        log.error("the answer to a request could not be sent: %s", error)
        if finished.response is not None:
            finished.node.send_failed()
        try:
            finished.delivery.reject(f"its answer could not be sent: {error}")
        except BrokerError as late:
            self._count_lost([finished], late)

    def _count_lost(self, group: list[_Finished], error: Exception) -> None:
        self._count("lost", times=len(group))
        log.warning("%d requests were not accepted, the broker delivers them again: %s", len(group), error)
        for finished in group:
            if finished.node.machine.allows(Input.SENDING_FAILED):
                finished.node.send_failed()

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
        if self._recorder is not None:
            self._recorder.record(message, direction, node)


def _node(one_way: bool) -> Node:
    return Node.RECEIVING if one_way else Node.RESPONDING
