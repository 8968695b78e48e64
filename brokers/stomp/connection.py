"""A STOMP broker as a `brokers.Connection`: how messages, consumers and transactions go over a session.

Each broker of a connection gets the version of STOMP that suits it. `frames.py` creates the frames, `session.py` does
the login.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from secrets import token_hex, token_urlsafe
from time import monotonic
from typing import Final, TypeGuard

from brokers import events
from brokers.adapter.connection import LastingConnection
from brokers.adapter.endpoints import BrokerEndpoints, Reconnect
from brokers.adapter.redelivery import Releases
from brokers.adapter.transaction import own_transaction
from brokers.connection import Capabilities, Delivery, OnDelivery, OnSent, SendResult, SubscribeOptions, Transaction
from brokers.errors import BrokerError, ConnectionLostError, SendFailedError, UnsentError, UsageError
from brokers.message import DeliveryMode, Destination, DestinationKind, Message, check_message, field_problem
from brokers.stomp.acknowledge import StompSubscription
from brokers.stomp.codec import Frames, pack
from brokers.stomp.consumer import StompConsumer, StompConsumerContext, StompDelivery
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC, StompDialect, capabilities_of
from brokers.stomp.frames import octets_of, spell
from brokers.stomp.roll import Roll
from brokers.stomp.send import SendFrames
from brokers.stomp.session import StompSession, UnansweredError
from brokers.stomp.strays import Strays
from brokers.stomp.temporary import Annexes
from brokers.stomp.transaction import StompTransaction, TransactionNames
from brokers.stomp.url import StompLogin
from brokers.threads.futures import Completion
from brokers.threads.timer import left

FIRST_LOGIN_SHARE: Final = 1 / 3
"""Share of the time for a login after which the login is tried again."""

LEAVE_SECONDS: Final = 1.0
"""Time that a broker has to confirm a DISCONNECT before a login in another version of STOMP, in seconds."""


class StompEndpoints(BrokerEndpoints[StompLogin, StompSession]):
    """The brokers of a connection, with their versions of STOMP.

    Attributes:
        versions: the version of STOMP for each broker, once it is known.
    """

    versions: dict[str, str]

    def __init__(
        self, logins: Sequence[StompLogin], on_end: Callable[[StompSession], None], *, randomize: bool
    ) -> None:
        """Take the arguments of `BrokerEndpoints`, with the `on_end` of a `StompSession`."""
        super().__init__(logins, lambda login: StompSession(login, on_end), randomize=randomize)
        self.versions = {}

    def _enter(self, login: StompLogin, timeout: float) -> StompSession:
        """Log in, and again if the broker turns out to need another version of STOMP."""
        until = monotonic() + timeout
        link = self._log_in(login.speaking(self.versions.get(str(login), login.version)), until)
        wanted = link.dialect.version
        if wanted == link.login.version:
            return link
        link.close(min(until, monotonic() + LEAVE_SECONDS), lambda: b"")
        self.versions[str(login)] = wanted
        return self._log_in(login.speaking(wanted), until)

    def _log_in(self, login: StompLogin, until: float) -> StompSession:
        """Log in; again, on another socket, if the broker accepts the first one and then does not answer.

        A broker with some deadlocked threads may answer on others: Artemis does, see `confirms_leave`.
        """
        seconds = left(until)
        link = self._next(login)
        try:
            link.open(seconds, seconds * FIRST_LOGIN_SHARE)
        except UnansweredError as error:
            events.STOMP_LOGIN_AGAIN.log(f"{error}".partition(";")[0])
            link = self._next(login)
            link.open(left(until))
        return link


SECRET_OCTETS: Final = 9
"""Number of random octets in the identifiers of a connection."""

SENT: Final = SendResult()
"""The result of every send: STOMP never reports the JMSMessageID to the sender."""

LARGE_MESSAGE_OCTETS: Final = 1 << 16
"""Size in octets from which even non-persistent messages need a receipt: the broker may disconnect above a limit."""


class StompConnection(LastingConnection[StompSession, StompConsumer]):
    """A connection to a STOMP broker, as returned by `brokers.connect`.

    With a `prefetch` above 1, transactions get slower with every message (ActiveMQ Classic). With `auto_accept`, ACKs
    are sent in batches, see `brokers.stomp.acknowledge`. The broker creates a temporary destination when it is first
    consumed from or named as a reply-to. ActiveMQ Classic ends it with the session, Artemis with its last consumer.
    """

    def __init__(self, logins: Sequence[StompLogin], timeout: float, reconnect: Reconnect | None) -> None:
        endpoints = StompEndpoints(logins, self._session_ended, randomize=reconnect is not None and reconnect.randomize)
        super().__init__(",".join(map(str, logins)), endpoints, timeout, reconnect)
        self._ids = count(1)
        self._secrets: defaultdict[str, str] = defaultdict(lambda: token_urlsafe(SECRET_OCTETS))
        self.names = TransactionNames()
        self._strays = Strays(self.new_id, self.later)
        self._shared = StompConsumerContext(
            self.new_id, timeout, self._crew, Releases(), self.later, self.forget, self._enrol, self._strays
        )
        self._annexes: Annexes | None = None
        self._spare: list[tuple[StompSession, Destination]] = []  # temporary ones that the broker still has
        self._mark = token_hex(8)  # in the address of each temporary destination of this connection
        self._send_frames = SendFrames(ACTIVEMQ_CLASSIC)
        self._written: Completion[SendResult] = self.completion()  # of every send that waits for no answer
        self._written.set_result(SENT)

    @property
    def capabilities(self) -> Capabilities:
        """The features of the broker: `release` gives back all that a consumer holds, empty text is `unknown`."""
        link = self._current()
        return capabilities_of(link.dialect, link.server, has_client_id=link.login.client_id is not None)

    def send(
        self, message: Message, transaction: Transaction | None = None, *, timeout: float | None = None
    ) -> Completion[SendResult]:
        """Send. The broker is asked for a receipt, unless the message is NON_PERSISTENT and small.

        The refusal of a message without receipt is only logged.

        Raises:
            NotSentError: the broker did not read the pending data within `timeout` seconds.
            UsageError: the message has no destination, or content that STOMP cannot carry; see `to_frame`.
            StaleDestinationError: the temporary destination was not made by this generation of the connection.
        """
        link = self._usable()
        if transaction is not None:
            check_message(message)
            own_transaction(transaction, self, StompTransaction).send(message)
            return self._written
        with link.writing:
            if link.is_behind:
                link.await_room(timeout)
            if is_confirmed(message):
                return self._ask(link, message, self.completion())
            return self._write(link, link.write, self._unconfirmed(link, message))

    def begin_send(
        self,
        message: Message,
        on_sent: OnSent,
        *,
        timeout: float | None = None,
        gather: bool = False,
        wait: bool = True,
    ) -> Callable[[], bool]:
        """Send as `send` does; nothing is made for the receipt but its name."""
        if not wait:
            timeout = 0.0
        if not is_confirmed(message):
            return super().begin_send(message, on_sent, timeout=timeout)
        link = self._usable()
        receipt = self.new_id("receipt")
        frames = self.encode(link, message, receipt)
        with link.writing:
            if link.is_behind:
                link.await_room(timeout)
            link.confirm(frames, receipt, on_sent, self._crew if gather else None)
        return partial(_give_up, link, receipt)

    def answer(self, delivery: Delivery, message: Message) -> Completion[SendResult]:
        """Send; a message without receipt is written together with the ACK of the delivery, in one system call.

        Raises:
            UsageError, StaleDestinationError: as for `send`.
        """
        link = self._usable()
        if is_confirmed(message):
            return self._ask(link, message, self.near_completion())
        frame = self._unconfirmed(link, message)
        if isinstance(delivery, StompDelivery) and delivery.came_by(link):
            return self._write(link, delivery.accept_after, frame)
        return self._write(link, link.write, frame)

    def begin_answer(self, delivery: Delivery, message: Message, on_sent: OnSent) -> Callable[[], object]:
        """Send as `answer` does; nothing is made for the receipt but its name."""
        if not is_confirmed(message):
            return super().begin_answer(delivery, message, on_sent)
        link = self._usable()
        receipt = self.new_id("receipt")
        link.confirm(self.encode(link, message, receipt), receipt, on_sent)
        return partial(_give_up, link, receipt)

    def _unconfirmed(self, link: StompSession, message: Message) -> bytes:
        """Return the SEND frame of a message that needs no receipt."""
        frame = self.encode(link, message)
        assert isinstance(frame, bytes), "it is small"
        return frame

    def _ask(self, link: StompSession, message: Message, future: Completion[SendResult]) -> Completion[SendResult]:
        """Send with a receipt, and complete a future once the broker confirms it."""
        receipt = self.new_id("receipt")
        frames = self.encode(link, message, receipt)
        future.revoke = partial(_give_up, link, receipt)
        link.confirm(frames, receipt, partial(future.settle, SENT))
        return future

    def _write(self, link: StompSession, write: Callable[[bytes], None], frames: bytes) -> Completion[SendResult]:
        """Write frames that need no receipt."""
        try:
            write(frames)
        except UnsentError:
            raise
        except ConnectionLostError as error:
            future: Completion[SendResult] = self.completion()
            future.set_exception(error)
            return future
        if not link.is_behind:
            return self._written
        future = self.completion()
        link.when_written(self.new_id("message"), partial(future.settle, SENT))
        return future

    def after_arrivals(self, function: Callable[[], None]) -> None:
        """Call `function` after the last frame that was read together with the current one; see the base class."""
        self._current().after_arrivals(function)

    def begin(self) -> Transaction:
        """Begin a transaction; the broker learns of it only at the commit."""
        return StompTransaction(self, self._usable())

    def _make_consumer(self, options: SubscribeOptions, on_delivery: OnDelivery) -> StompConsumer:
        home = None if self._annexes is None else self._annexes.home(options.destination)
        return StompConsumer(options, on_delivery, owner=self, shared=self._shared, home=home)

    def _enrol(self, subscription: StompSubscription, options: SubscribeOptions, doubt: Callable[[str], None]) -> None:
        """Have the end of a subscription detected if the broker does not report it. With the link's `writing` held."""
        link = subscription.link
        if link.dialect.has_advisories and link.is_up:
            if link.roll is None:
                link.roll = Roll(link, self.new_id, self.later)
            link.roll.enrol(subscription, options.destination, doubt, is_watched=options.on_problem is not None)

    def _make_temporary(self, link: StompSession, kind: DestinationKind, *, fresh: bool, ends: bool) -> Destination:
        address = f"{link.dialect.own_prefixes[kind]}{self._mark}-{token_hex(16)}"
        if not fresh and (spare := self._take_spare(link, kind)) is not None:
            return spare
        if ends and link.dialect.own_is_private and kind is DestinationKind.TEMPORARY_QUEUE:
            try:
                return self._annexes_of(link).make(address)
            except BrokerError:  # logged already
                if not link.is_up:
                    raise
        return Destination(kind, None, address=address)

    def _annexes_of(self, link: StompSession) -> Annexes:
        with self._lock:
            if self._annexes is None or self._annexes.main is not link:
                self._annexes = Annexes(link, self.new_id)
            return self._annexes

    def _take_spare(self, link: StompSession, kind: DestinationKind) -> Destination | None:
        with self._lock:
            self._spare = [each for each in self._spare if each[0] is link]
            for position, (_, destination) in enumerate(self._spare):
                if destination.kind is kind:
                    del self._spare[position]
                    return destination
            return None

    def _end_temporary(self, link: StompSession, destination: Destination) -> None:
        if not link.dialect.own_is_private or (self._annexes is not None and self._annexes.end(destination)):
            return
        with self._lock:
            self._spare.append((link, destination))

    def _unsubscribe(self, link: StompSession, options: SubscribeOptions) -> None:
        """End a subscription by client id and name; the `id` is only in the frame because STOMP requires one."""
        receipt, topic = self.new_id("receipt"), options.destination
        headers = {"id": receipt, "destination": spell(topic, link.dialect), "receipt": receipt}
        headers[link.dialect.durable_header] = options.durable_name or ""
        try:
            link.ask(pack("UNSUBSCRIBE", headers), receipt, self._timeout)
        except SendFailedError as error:
            raise BrokerError(
                f"cannot end the durable subscription {options.durable_name!r} to {topic}: {error}"
            ) from error

    def _take_leave(self, link: StompSession, consumers: Sequence[StompConsumer], until: float) -> None:
        link.close(until, lambda: b"".join(consumer.end() for consumer in consumers if consumer.home is None))
        if self._annexes is not None:
            self._annexes.close(until)
        self._strays.give_up()

    def _be_connected(self, link: StompSession) -> None:
        self._strays.go_on(link)
        super()._be_connected(link)

    def _session_ended(self, link: StompSession) -> None:
        super()._session_ended(link)
        if self._reconnector is None:
            self._strays.give_up()
        annexes = self._annexes
        if annexes is not None and annexes.main is link and not self._is_closing:
            annexes.drop()

    # Used by transactions.

    def encode(self, link: StompSession, message: Message, receipt: str = "", transaction: str = "") -> Frames:
        """Return the SEND frame for a session, having checked the generation of its temporary destinations.

        Args:
            link: the session.
            message: the message.
            receipt: the receipt to ask for; empty for none.
            transaction: the name of the transaction that the message belongs to; empty for none.

        Raises:
            UsageError: see `SendFrames.encode`.
            StaleDestinationError: a temporary destination belongs to an earlier generation.
        """
        sends = self._send_frames
        if sends.dialect is not link.dialect:
            sends = self._send_frames = SendFrames(link.dialect)
        try:
            self._require_own_places(message, link.dialect)
            return sends.encode(message, receipt, transaction)
        except UsageError:
            raise
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"STOMP cannot carry this message: {field_problem(message) or error}") from error

    def new_id(self, what: str) -> str:
        """Return an identifier that this connection has not used before, and that no peer can guess.

        ActiveMQ Classic writes a TextMessage as it is: what follows a NUL there is read as further frames, which must
        not name our subscriptions and receipts. Each kind has its own secret, because Artemis tells receipts to the
        receivers of a message.
        """
        return f"{what}-{self._secrets[what]}-{next(self._ids)}"

    def owns(self, delivery: Delivery) -> TypeGuard[StompDelivery]:
        """Return whether a delivery belongs to this connection."""
        return isinstance(delivery, StompDelivery) and delivery.consumer.owner is self

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` on another thread, where it may write."""
        self._crew.submit(function)

    def _require_own_places(self, message: Message, dialect: StompDialect) -> None:
        """Refuse a message from or to a temporary destination of an earlier generation."""
        for place in (message.destination, message.reply_to):
            if place is None or place.address is None or self._temporaries.get(place.address) == self.generation:
                continue
            if place.address in self._temporaries or self._is_own_form(place, dialect):
                self._require_own(place)

    def _is_own_form(self, destination: Destination, dialect: StompDialect) -> bool:
        prefix = dialect.own_prefixes.get(destination.kind)
        if prefix is None or destination.address is None:
            return False
        return destination.address.startswith(prefix if dialect.own_is_private else prefix + self._mark)


def _give_up(link: StompSession, receipt: str) -> bool:
    """Stop waiting for a receipt; the message may have been sent."""
    link.forget(receipt)
    return False


def is_confirmed(message: Message) -> bool:
    """Return whether the broker is asked for a receipt for a message.

    Raises:
        UsageError: it is no message; or see `octets_of`.
    """
    try:
        mode = message.delivery_mode
    except AttributeError:
        check_message(message)
        raise
    return mode != DeliveryMode.NON_PERSISTENT or len(octets_of(message)) >= LARGE_MESSAGE_OCTETS
