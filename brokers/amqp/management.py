"""Queues that are made by requests to a broker's management node, as RabbitMQ 4 has no dynamic nodes.

A request is an AMQP message that stands for one of HTTP: its subject is the verb, its `to` the path, its body a map.
The subject of the answer is the status. Both travel over a pair of links of one name, in a session of their own: the
broker ends the session over a request that it does not understand.

Spec: AMQP Request-Response Messaging with Link Pairing 1.0; HTTP over AMQP 1.0 (working draft); RabbitMQ 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import Any, Final

from proton import Condition, Link, Receiver, Sender, Session, symbol

from brokers.adapter.redelivery import carried_reason
from brokers.amqp.dialect import AmqpDialect, spell
from brokers.amqp.engine import AmqpEngine, AmqpLink
from brokers.amqp.outcomes import LIMIT, text_of
from brokers.amqp.sections import AmqpSection, MalformedError, decode, encode
from brokers.amqp.transfers import Transfer, credit_of, give_credit, read, send, settle
from brokers.errors import BrokerError, NoAnswerError, NoDestinationError, UnsupportedError
from brokers.message import Destination, DestinationKind

NODE: Final = "/management"
REPLY_TO: Final = "$me"
"""The `reply-to` of a request: the link of the pair that leads back."""

NAME_OCTETS: Final = 24
"""Number of random octets in the name of a queue."""

MAX_ANSWER_OCTETS: Final = 1 << 20
"""Maximum size of an answer, in octets; a broker that sends more, or on the wrong link, has its connection ended."""

NOT_FOUND: Final = "404"
"""The status of an answer about what there is not."""

OWN: Final = {"durable": False, "exclusive": True, "auto_delete": False, "arguments": {}}
"""A queue that only this connection consumes from, and that ends with it."""

TOPICS: Final = "amq.topic"
"""The exchange of topics."""


class Management(AmqpLink):
    """The pair of links to the management node; attached on first use, and again after it has ended."""

    def __init__(self, engine: AmqpEngine) -> None:
        self._engine = engine
        self._session: Session | None = None
        self._to: Sender | None = None
        self._back: Receiver | None = None
        self._is_open = False  # whether the link that leads back is: an answer has no other way
        self._numbers = count(1)
        self._waiting: deque[tuple[bytes, bytes]] = deque()  # tags and octets of requests
        self._asked: dict[str, SimpleQueue[Any]] = {}
        self._octets = bytearray()

    def ask(self, verb: str, path: str, body: Any = None) -> SimpleQueue[Any]:
        """Send a request, and return what will get the body of the answer, or the error.

        Raises:
            ConnectionLostError: the connection has ended.
            BrokerError: the broker allows no more sessions.
        """
        answer: SimpleQueue[Any] = SimpleQueue()
        with self._engine.held():
            if self._session is None:
                self._attach()
            number = f"{next(self._numbers)}"
            head = encode(AmqpSection.PROPERTIES, [number, None, path, verb, REPLY_TO])
            self._asked[number] = answer
            self._waiting.append((number.encode(), head + encode(AmqpSection.VALUE, body)))
            self._send_waiting()
        return answer

    def request(self, verb: str, path: str, body: Any = None, *, timeout: float) -> Any:
        """Send a request, and return the body of the answer once the broker has carried it out.

        Raises:
            BrokerError: the broker refused it; NoDestinationError: it does not know what `path` names.
            NoAnswerError: the broker did not answer within `timeout` seconds.
            ConnectionLostError: the connection has ended.
        """
        coming = self.ask(verb, path, body)
        try:
            answer = coming.get(timeout=timeout)
        except Empty:
            with self._engine.lock:
                self._asked = {number: each for number, each in self._asked.items() if each is not coming}
            raise NoAnswerError(f"{self._engine} did not answer {verb} {path} within {timeout:.1f} s") from None
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def _attach(self) -> None:
        session = self._session = self._engine.begin_session(lambda condition: self._session_ended(session, condition))
        name = self._engine.new_name()
        to, back = session.sender(name), session.receiver(name)
        for link in (to, back):
            link.properties = {symbol("paired"): True}
            link.source.address = link.target.address = NODE
            link.snd_settle_mode = Link.SND_SETTLED
        self._to, self._back = self._engine.look_after(to, self), self._engine.look_after(back, self)
        to.open()
        back.open()

    def _send_waiting(self) -> None:
        while self._waiting and self._is_open and self._to is not None and credit_of(self._to) > 0:
            give_credit(self._back, 1)
            settle(send(self._to, *self._waiting.popleft()))

    # Called by the engine, with its lock held

    def opened(self, link: Sender | Receiver) -> None:
        """Send what waits, once both links are open."""
        self._is_open |= isinstance(link, Receiver) and bool(link.remote_source.address)
        self._send_waiting()

    def flowed(self) -> None:
        """Send what waits."""
        self._send_waiting()

    def delivered(self, transfer: Transfer) -> None:
        """Hand on an answer.

        Raises:
            ConnectionFailedError: the broker sends more than an answer has.
        """
        arrived = read(transfer)
        self._octets += b"" if arrived is None else arrived.octets
        kept = 0 if self._session is None else self._session.incoming_bytes
        if len(self._octets) + kept > MAX_ANSWER_OCTETS:
            self._engine.break_off(
                LIMIT, f"the broker sent more than {MAX_ANSWER_OCTETS} octets in answer to a request"
            )
        if arrived is None or arrived.is_partial:
            return
        octets, self._octets = bytes(self._octets), bytearray()
        settle(transfer)
        try:
            found = {each.section: each.value for each in decode(octets)}
            stated = [*found[AmqpSection.PROPERTIES], *[None] * 6]
        except (MalformedError, KeyError, TypeError):
            return
        status, asked = str(stated[3]), self._asked.pop(str(stated[5]), None)
        if asked is None:
            return
        body = found.get(AmqpSection.VALUE)
        if status.startswith("2"):
            asked.put(body)
            return
        kind = NoDestinationError if status == NOT_FOUND else BrokerError
        asked.put(kind(carried_reason(f"the broker refused: {status} {body or ''}".rstrip())))

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """End the pair, with its session, and fail all that was asked."""
        if self._session is not None:
            self._engine.end_session(self._session)
        self._fail(BrokerError(f"{self._engine} ended the link to {NODE}: {text_of(condition)}"))

    def _session_ended(self, session: Session, condition: Condition | None) -> None:
        if session is not self._session:  # the pair that it had has ended
            return
        for link in (self._to, self._back):
            self._engine.forget(link)
        self._fail(BrokerError(f"{self._engine} ended the session of {NODE}: {text_of(condition)}"))

    def lost(self, error: BrokerError) -> None:
        """Report the loss of the connection."""
        with self._engine.lock:
            self._fail(error)

    def _fail(self, error: BrokerError) -> None:
        asked, self._asked = self._asked, {}
        self._session = self._to = self._back = None
        self._is_open = False
        self._waiting.clear()
        self._octets.clear()
        for answer in asked.values():
            answer.put(error)

    # Queues

    def subscribe(self, topic: Destination, timeout: float) -> str:
        """Make a queue that gets the messages of a topic until its consumer has left; return its address.

        Raises:
            BrokerError, NoAnswerError, ConnectionLostError: see `request`.
        """
        name = f"subscription.{token_hex(NAME_OCTETS)}"
        path = f"/queues/{name}"
        self.make(path, {**OWN, "auto_delete": True}, timeout)
        binding: Any = {"source": TOPICS, "binding_key": topic.name, "destination_queue": name, "arguments": {}}
        try:
            self.request("POST", "/bindings", binding, timeout=timeout)
        except BrokerError:
            self.delete(path)
            raise
        return path

    def make(self, path: str, properties: Mapping[str, Any], timeout: float) -> None:
        """Make a queue; without an answer it is deleted, as it may be made later.

        Raises:
            BrokerError, NoAnswerError, ConnectionLostError: see `request`.
        """
        try:
            self.request("PUT", path, properties, timeout=timeout)
        except NoAnswerError:
            self.delete(path)
            raise

    def consumers(self, path: str, timeout: float) -> int:
        """Return the number of consumers of a queue, those of other connections included.

        Raises:
            NoDestinationError: there is no such queue.
            BrokerError, NoAnswerError, ConnectionLostError: see `request`; the answer has no number.
        """
        told = self.request("GET", path, timeout=timeout)
        number = told.get("consumer_count") if isinstance(told, dict) else None
        if not isinstance(number, int):
            raise BrokerError(f"{self._engine} did not say how many consumers {path} has")
        return int(number)

    def delete(self, path: str) -> None:
        """Delete a queue of this connection, without waiting; it ends with the connection anyway."""
        with suppress(BrokerError):
            self.ask("DELETE", path)


class ManagedQueue:
    """A temporary queue: one of this connection's own."""

    def __init__(self, management: Management, kind: DestinationKind, dialect: AmqpDialect) -> None:
        self._management = management
        self._kind = kind
        self._dialect = dialect
        self._path = ""

    def make(self, timeout: float) -> Destination:
        """Have the broker make the queue.

        Raises:
            UnsupportedError: a temporary topic is asked for.
            BrokerError, NoAnswerError, ConnectionLostError: see `Management.make`.
        """
        if self._kind is not DestinationKind.TEMPORARY_QUEUE:
            raise UnsupportedError("RabbitMQ has no temporary topics: use a temporary queue")
        name = token_hex(NAME_OCTETS)
        self._path = spell(Destination(self._kind, name), self._dialect)
        self._management.make(self._path, OWN, timeout)
        return Destination(self._kind, name, address=self._path)

    def end(self) -> None:
        """Delete the queue; see `Management.delete`."""
        self._management.delete(self._path)
