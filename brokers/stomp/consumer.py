"""Consumers and deliveries over STOMP: subscribing, acknowledging, giving back.

A consumer has one *subscription* at a time. The broker takes an unacknowledged message back only when the subscription
ends, so `release` ends it and begins another, after a pause. A delivery of an ended subscription is void: the broker
redelivers its message, and would silently ignore an acknowledgement. A message that no ACK can name is removed from its
queue in another way: see `brokers.stomp.collection`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import TIMEOUT_MAX, Event, Lock
from time import monotonic
from typing import Final, NamedTuple

from brokers import events
from brokers.adapter.consumer import ConsumerOwner, DeliveryState, LastingConsumer
from brokers.adapter.redelivery import MAX_DELIVERIES, Releases, pause_after
from brokers.connection import Delivery, OnDelivery, SubscribeOptions
from brokers.errors import (
    BrokerError,
    ConnectionLostError,
    DestinationGoneError,
    NoAnswerError,
    NoDestinationError,
    SendFailedError,
)
from brokers.message import Destination, DestinationKind, changed
from brokers.stomp.acknowledge import Acceptances, StompArrival, StompSubscription, new_arrival
from brokers.stomp.codec import NO_MEMORY, pack
from brokers.stomp.collection import COLLECTION_SECONDS, AcceptedMessage, Collection, groups, uncollected
from brokers.stomp.dialect import StompDialect
from brokers.stomp.frames import Headers, acknowledgement, dead_letter, from_frame, spell, subscribe_headers
from brokers.stomp.session import SUBSCRIBE, Settle, StompSession, SubscriptionRoute
from brokers.stomp.strays import Stray, Strays
from brokers.stomp.temporary import Home
from brokers.threads.pool import Crew
from brokers.threads.timer import Later, left

NOT_KEPT: Final = "the dead letter is without its body"
"""Note for a message whose body was not read and whose dead letter the adapter creates."""

ANSWER_SECONDS: Final = 30.0
"""Time after which the answer to an ACK counts as lost, in seconds: ActiveMQ may write an ERROR into another frame."""

DELETE_NOTICE_SECONDS: Final = 1.0
"""Time within which all consumers of a deleted queue are informed, in seconds."""


NO_RECEIPTS: Final[Mapping[str, Settle]] = {}


class StompDelivery(Delivery):
    """A delivery over STOMP. `state` changes only while the link's `writing` is held."""

    __slots__ = ("arrival", "consumer", "state")

    def __init__(self, consumer: StompConsumer, arrival: StompArrival, *, with_body: bool = True) -> None:
        subscription, headers, body = arrival[:3]
        shown = body if with_body else b""
        self.message = from_frame(headers, shown, subscription.link.dialect)
        self.delivery_count, self.generation = None, subscription.generation
        self.consumer = consumer
        if consumer.home is not None:
            self.message = changed(self.message, destination=consumer.options.destination)
        is_told = self.message.redelivered is not None
        if (
            not is_told and consumer.releases.counts and self.key in consumer.releases
        ):  # the broker does not say, but we know
            self.message = changed(self.message, redelivered=True)
        self.arrival = arrival
        self.read_at = arrival.read_at
        self.state = DeliveryState.ACCEPTED if consumer.auto_accept else DeliveryState.HELD

    @property
    def is_held(self) -> bool:
        """Whether the message is still this consumer's to settle."""
        subscription = self.arrival.subscription
        return self.state is DeliveryState.HELD and subscription.is_live and subscription.link.is_up

    @property
    def is_accepted(self) -> bool:
        """Whether it was accepted in this session; the broker may have missed it if the session was lost."""
        return self.state is DeliveryState.ACCEPTED and self.arrival.subscription.link.is_up

    def accept(self) -> None:
        """Acknowledge. Does nothing if the delivery was settled before, or went back with its subscription."""
        arrival = self.arrival
        link = arrival.subscription.link
        if self.state is DeliveryState.HELD:  # otherwise settled, as after `accept_after`, and never held again
            with link.writing:
                if not self._settle(DeliveryState.ACCEPTED):
                    return
                if arrival.is_plain:
                    link.request(pack("ACK", acknowledgement(arrival.headers, link.dialect)), NO_RECEIPTS)
                else:
                    link.request(*self.consumer.acknowledge(arrival))

    def came_by(self, link: StompSession) -> bool:
        """Return whether the message came by a session."""
        return self.arrival.subscription.link is link

    def accept_after(self, frames: bytes) -> None:
        """Write encoded frames together with the ACK; only the frames if there is nothing to accept.

        Raises:
            ConnectionLostError: the session had ended, or this ended it; then the broker delivers again.
        """
        link = self.arrival.subscription.link
        with link.writing:
            is_ours = self._settle(DeliveryState.ACCEPTED)
            is_plain = self.arrival.is_plain
            if is_ours and is_plain:
                frames += self.consumer.acknowledge(self.arrival)[0]
            link.write(frames)
            if is_ours and not is_plain:
                link.request(*self.consumer.acknowledge(self.arrival))

    def release(self) -> None:
        """Give back all messages that this consumer holds; from a topic only this one. Otherwise like `accept`.

        This happens after a pause that grows each time the same message is released; the last time it becomes a dead
        letter; see `brokers.adapter.redelivery`.
        """
        with self.arrival.subscription.link.writing:
            if not self.is_held:
                return
            releases = self.consumer.releases.count(self.key)
            if releases < MAX_DELIVERIES:
                self.state = DeliveryState.RETURNED
                self.consumer.give_back_later(self.arrival, pause_after(releases))
                return
            self._discard(f"delivered {releases} times and not accepted")
        events.STOMP_TOO_MANY_DELIVERIES.log(self.message.message_id, releases)

    def reject(self, reason: str) -> None:
        """Move the message to the dead-letter queue. A NACK cannot carry the reason, so it is logged."""
        if self._discard(reason):
            events.STOMP_DELIVERY_REJECTED.log(self.message.message_id, reason)

    @property
    def key(self) -> Hashable:
        """A short key that all deliveries of the message share; from a topic each consumer has its own copy."""
        return hash((self.consumer.origin, self.message.message_id))

    def _discard(self, reason: str) -> bool:
        link = self.arrival.subscription.link
        if link.dialect.nack_is_dead_letter and self.arrival.can_be_named and not self.arrival.subscription.is_untold:
            with link.writing:
                if not self._settle(DeliveryState.RETURNED):
                    return False
                unknown = partial(self._discard_unknown, reason)
                link.request(*self.consumer.acknowledgement(self.arrival, unknown, "NACK"))
                return True
        with link.writing:
            if not self.is_held:
                return False
            self.state = DeliveryState.RETURNED
            receipt = self.consumer.new_id("receipt")
            queue = link.login.dead_letters or link.dialect.dead_letters
            if self.arrival.refusal:
                reason = f"{reason}; {NOT_KEPT}"
            headers = dead_letter(self.arrival.headers, self.arrival.body, reason, queue, link.dialect)
            try:
                frame = pack("SEND", headers | {"receipt": receipt}, self.arrival.body, link.dialect.version)
            except MemoryError:  # this broker has its own limit of deliveries
                self.consumer.give_back_later(self.arrival, pause_after(MAX_DELIVERIES))
                events.STOMP_DEAD_LETTER_OUT_OF_MEMORY.log(self.message.message_id)
                return False
            done = self.consumer.begin(self.arrival.subscription)
            finish = partial(self._finish_discarding, done)
            link.request(frame, {receipt: lambda error: self.consumer.call(partial(finish, error))})
            return True

    def _finish_discarding(self, done: Callable[[], None], error: BrokerError | None) -> None:
        """Acknowledge once the message is in the dead-letter queue, so that it is not lost; then call `done`."""
        try:
            self._acknowledge_discarded(error)
        finally:
            done()

    def _acknowledge_discarded(self, error: BrokerError | None) -> None:
        if isinstance(error, SendFailedError):
            events.STOMP_DEAD_LETTER_REFUSED.log(self.message.message_id, error)
            releases = self.consumer.releases.count(self.key)
            self.consumer.give_back_later(self.arrival, pause_after(min(releases, MAX_DELIVERIES)))
        elif error is None:
            self.consumer.releases.forget(self.key)
            link = self.arrival.subscription.link
            with link.writing:
                link.request(*self.consumer.acknowledge(self.arrival))

    def _settle(self, state: DeliveryState) -> bool:
        """Record the outcome, with the link's `writing` held; return False if it was settled before."""
        subscription = self.arrival.subscription
        if self.state is not DeliveryState.HELD or not subscription.is_live or not subscription.link.is_up:
            return False
        self.state = state
        if self.consumer.releases.counts:
            self.consumer.releases.forget(self.key)
        return True

    def _discard_unknown(self, reason: str, arrival: StompArrival) -> None:
        """Discard a message that the broker did not know, as the sender chose the id. For the reading thread."""

        done = self.consumer.begin(arrival.subscription)

        def discard() -> None:
            with arrival.subscription.link.writing:
                self.arrival = arrival._replace(body=self.arrival.body)
                self.state = DeliveryState.HELD
                self._discard(reason)
            done()

        self.consumer.call(discard)


class StompConsumerContext(NamedTuple):
    """The context that the consumers of a connection share.

    `on_close` is called when a consumer has ended; `enrol` before each SUBSCRIBE is written, with a function to call if
    the broker ends it.
    """

    new_id: Callable[[str], str]
    timeout: float
    crew: Crew
    releases: Releases
    later: Later
    on_close: Callable[[StompConsumer], None]
    enrol: Callable[[StompSubscription, SubscribeOptions, Callable[[str], None]], None]
    strays: Strays


class StompConsumer(LastingConsumer[StompSession, StompArrival, StompDelivery]):
    """A consumer of one destination, with one subscription after the other."""

    def __init__(
        self,
        options: SubscribeOptions,
        on_delivery: OnDelivery,
        *,
        owner: ConsumerOwner,
        shared: StompConsumerContext,
        home: Home | None = None,
    ) -> None:
        super().__init__(options, on_delivery, owner, shared.crew)
        self.home = home
        self.auto_accept = options.auto_accept
        self.releases = shared.releases
        self.origin: Hashable = self if options.destination.kind.is_topic else options.destination
        self._destination = options.destination
        self._shared = shared
        self._acceptances = Acceptances(
            options.prefetch,
            self.call,
            shared.later,
            self.acknowledgement,
            self._collect_accepted,
        )
        self._replacing = Lock()
        self._subscription: StompSubscription | None = None
        self._beginning = Lock()
        self._under_way: dict[Event, StompSubscription | None] = {}
        self._wanted: list[AcceptedMessage] = []  # with the link's `writing` held
        self._asked: dict[str, float] = {}  # receipts of acknowledgements, and the time of the request
        self._is_watching = False
        is_copy = options.destination.kind.is_topic and options.durable_name is None  # nobody delivers it again
        self._is_untold = options.lazy and options.auto_accept and is_copy

    def start(self, link: StompSession, generation: int) -> None:
        """Subscribe, wait for the broker's receipt, and begin to call `on_delivery`.

        Raises:
            BrokerError: the broker refused, for example a selector that it cannot parse.
            ConnectionLostError: the connection was lost meanwhile.
        """
        try:
            super().start(link if self.home is None else self.home.link, generation)
        except SendFailedError as error:
            kind = NoDestinationError if isinstance(error, DestinationGoneError) else BrokerError
            raise kind(f"cannot consume from {self._destination}: {error}") from error

    def resume(self, link: StompSession, generation: int, *, again: bool = False) -> bool:
        """Subscribe in a session and wait for the receipt; False if the consumer was closed or already subscribed.

        If the broker ended one of several subscriptions without saying which, the same one is requested `again`: if it
        still exists, the broker refuses a second one of its name, and nothing changes. With other brokers the old
        subscription is ended and replaced; for a queue, once `on_delivery` has returned.

        Raises:
            BrokerError: as for `start`.
        """
        before = self._subscription
        if before is not None and before.generation >= generation:
            if not again or before.generation > generation:
                return False
            if link.dialect.subscribed is not None and before.is_live:  # otherwise it was refused, or has ended
                return self._ask_again(before, link.dialect.subscribed)
            if self._turns.is_busy and self._destination.kind not in link.dialect.owns_copies:
                return False  # the next message would wait here, though other consumers may be free
            self._end_if_there(before)
        subscription = self._replace(before, link, generation)
        if subscription is None:
            return False
        if self.options.quick:
            link.lead(self._shared.crew)
        if self.options.lazy:
            link.be_lazy()
        wait = self._ask(subscription)
        if wait is None:
            return False
        try:
            wait(self._shared.timeout)
        except BrokerError:
            if self._problem:  # it will be tried again, by the same name
                raise
            subscription.is_live = False
            link.unroute(subscription.id)
            raise
        return True

    def _ask(self, subscription: StompSubscription) -> Callable[[float], None] | None:
        """Write SUBSCRIBE and return a function that waits for its receipt; None if the subscription has ended."""
        link, receipt = subscription.link, self._shared.new_id(SUBSCRIBE)
        with link.writing:
            if self._is_stopped or not subscription.is_live:
                return None
            self._enrol(subscription)
            return link.begin_to_ask(pack("SUBSCRIBE", self._headers(subscription) | {"receipt": receipt}), receipt)

    def _enrol(self, subscription: StompSubscription) -> None:
        """Record that SUBSCRIBE is written next. With the link's `writing` held."""
        subscription.is_begun = True
        if self.home is None:
            self._shared.enrol(subscription, self.options, partial(self._doubt, subscription))

    def _end_if_there(self, subscription: StompSubscription) -> None:
        """End a subscription that the broker may have ended; held messages went back with it, or go back now."""
        receipt = self._shared.new_id("receipt")
        with subscription.link.writing:
            farewell = self.end({"receipt": receipt})
            if farewell:
                subscription.link.request(farewell, {receipt: lambda _: None})

    def _ask_again(self, subscription: StompSubscription, is_there: str) -> bool:
        """Subscribe again by the same name; False if this was closed. Earlier deliveries can still be settled.

        `is_there` is the broker's error text if the subscription had not ended.
        """
        wait = self._ask(subscription)
        try:
            if wait is not None:
                wait(self._shared.timeout)
        except SendFailedError as error:
            if is_there not in f"{error}":
                raise
            self._suspect(subscription)
        else:
            if subscription.link.routes_to(spell(self._source, subscription.link.dialect)) == 1:
                self._suspect(subscription)
        return wait is not None

    def _suspect(self, subscription: StompSubscription) -> None:
        """Open another session soon if the broker closed one consumer, rather than deleted the queue of all.

        If an operator closes a consumer, Artemis informs the client, but keeps sending it messages, and no longer knows
        its name to end it. If the queue is deleted, all its consumers end; one alone cannot tell the cases apart.
        """
        if not self._is_source_shared:
            return
        later = partial(self._leave_if_same, subscription, self._endings)
        with suppress(RuntimeError):  # the connection was closed meanwhile
            self._shared.later(DELETE_NOTICE_SECONDS, later)

    @property
    def _is_source_shared(self) -> bool:
        """Whether consumers compete for messages; from a topic each has its own, unless it is durable."""
        kind = self._destination.kind
        return kind is DestinationKind.QUEUE or self.options.durable_name is not None

    def _leave_if_same(self, subscription: StompSubscription, endings: int) -> None:
        is_same = endings == self._endings and subscription is self._subscription and subscription.is_live
        if is_same and subscription.link.is_up and not self._is_stopped:
            events.STOMP_CONSUMER_STUCK.log(self._destination)
            subscription.link.drop()

    def _doubt(self, subscription: StompSubscription, why: str) -> None:
        """Record that the broker may have ended a subscription. For the reading thread."""
        if subscription is self._subscription and subscription.is_live:
            self._note_ended(why)

    def _close(self) -> None:
        is_reader = self._is_reader
        until = monotonic() + (0.0 if is_reader else self._shared.timeout)
        self.stop()
        self._settle_up(until)
        receipt = self._shared.new_id("receipt")
        farewell = self.end({"receipt": receipt})
        try:
            if farewell and self._subscription is not None and is_reader:
                self._subscription.link.request(farewell, {receipt: lambda _: None})
            elif farewell and self._subscription is not None:
                with suppress(ConnectionLostError, SendFailedError):  # in that case the subscription has ended anyway
                    self._subscription.link.ask(farewell, receipt, until - monotonic())
        finally:
            self._shared.on_close(self)

    def join(self, until: float) -> None:
        """Wait for the running `on_delivery` and for settlements, until the monotonic clock shows `until`."""
        super().join(until)
        self._settle_up(until)

    def begin(self, subscription: StompSubscription | None = None) -> Callable[[], None]:
        """Record the start of an operation that `close` waits for; the returned function must be called at its end.

        If it belongs to a subscription, that is not ended for a collection until then.
        """
        done = Event()
        with self._beginning:
            self._under_way[done] = subscription

        def end() -> None:
            with self._beginning:
                self._under_way.pop(done, None)
                is_due = subscription is not None and subscription.is_due
            done.set()
            if subscription is not None and is_due:
                self.call(partial(self._collect_now, subscription))

        return end

    def _settle_up(self, until: float) -> None:
        """Report all settlements to the broker, before the monotonic clock shows `until`.

        Otherwise accepted messages would come again, and rejected ones would exist besides their dead letters.
        """
        self._acceptances.tell()
        self._await_all(until)
        subscription = self._subscription
        if subscription is None:
            return
        with subscription.link.writing:
            if self._wanted or self._acceptances.are_left:
                self._collect_now(subscription)
        self._await_all(until)
        with subscription.link.writing:
            self._end_wanted(self._wanted)

    def _await_all(self, until: float) -> None:
        subscription = self._subscription
        while self._under_way and subscription is not None and subscription.link.is_up and monotonic() < until:
            for each in list(self._under_way):  # one may begin another before it ends
                each.wait(left(until))

    def end(self, headers: Headers | None = None) -> bytes:
        """Void all held deliveries, and return the frames to write for that; empty if that was done before."""
        subscription = self._subscription
        if subscription is None:
            return b""
        with subscription.link.writing:
            if subscription is not self._subscription:  # a release has begun another
                return self.end(headers)
            if not subscription.is_live:
                return b""
            accepted, _ = self._acceptances.last_frames(subscription)
            subscription.is_live = False
            subscription.link.unroute(subscription.id)
            if not subscription.is_begun:
                return b""
        return accepted + pack("UNSUBSCRIBE", {"id": subscription.id} | (headers or {}))

    def new_id(self, what: str) -> str:
        """Return an identifier that the connection has not used before."""
        return self._shared.new_id(what)

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` on another thread, where it may write; never once the connection is closed."""
        with suppress(RuntimeError):
            self._shared.crew.submit(function)

    def give_back_later(self, arrival: StompArrival, seconds: float) -> None:
        """Have a message delivered again after a pause. Until then this consumer holds it; other consumers continue."""
        self._shared.later(seconds, partial(self._give_back, arrival))

    def acknowledge(self, arrival: StompArrival) -> tuple[bytes, dict[str, Settle]]:
        """Return the ACK to write next, like `acknowledgement`; a message that it cannot name is collected soon."""
        if not arrival.can_be_named:
            self._acceptances.note(arrival)
        return self.acknowledgement(arrival, self._acceptances.note)

    def acknowledgement(
        self,
        arrival: StompArrival,
        unknown: Callable[[StompArrival], None],
        command: str = "ACK",
        more: Mapping[str, str] | None = None,
    ) -> tuple[bytes, dict[str, Settle]]:
        """Return an ACK or NACK to write next, or nothing if there is none, and the callbacks for its receipt.

        The reading thread calls `unknown` if the broker does not know the message.
        """
        subscription = arrival.subscription
        if subscription.is_untold or not arrival.can_be_named:
            return b"", {}
        headers = {**acknowledgement(arrival.headers, subscription.link.dialect), **(more or {})}
        if not arrival.is_doubtful:
            return pack(command, headers), {}
        receipt, end = self.new_id("receipt"), self.begin(subscription)
        self._asked[receipt] = monotonic()
        if not self._is_watching:
            self._is_watching = True
            self._shared.later(ANSWER_SECONDS, partial(self._require_answers, subscription.link))

        def settle(error: BrokerError | None) -> None:
            self._asked.pop(receipt, None)
            if isinstance(error, SendFailedError):
                arrival.note_unknown()
                unknown(arrival.without_body())
            end()

        return pack(command, headers | {"receipt": receipt}), {receipt: settle}

    def _require_answers(self, link: StompSession) -> None:
        """End a session if the answer to an ACK does not come, because collections would wait for it."""
        first = min(list(self._asked.values()), default=None)
        self._is_watching = first is not None and link.is_up
        if first is None or not self._is_watching:
            return
        if first + ANSWER_SECONDS <= monotonic():
            events.STOMP_ACK_UNANSWERED.log(link, ANSWER_SECONDS)
            link.drop()
        self._shared.later(max(1.0, first + ANSWER_SECONDS - monotonic()), partial(self._require_answers, link))

    def collect(self, wanted: Sequence[AcceptedMessage], ends: Iterable[Callable[[], None]]) -> None:
        """Remove accepted messages of one subscription from the queue that no ACK can name.

        Other held messages go back, once all running operations have ended; this calls their `ends`.
        """
        subscription = wanted[0].arrival.subscription
        with subscription.link.writing:
            self._wanted += wanted
            for end in ends:
                end()
            self._collect_now(subscription)

    def _collect_accepted(self, last: StompArrival) -> None:
        """Remove accepted messages from the queue, once the running `on_delivery` has returned."""
        if self.options.durable_name is not None:
            self._have_unsettled(last, "was accepted, but comes again")
            return
        subscription = last.subscription
        with subscription.link.writing:
            subscription.is_leaving = True  # messages that arrive until then go back with it
        self._turns.join(monotonic() + TIMEOUT_MAX / 2)
        self._collect_now(subscription)

    def _collect_now(self, before: StompSubscription) -> None:
        """End a subscription, remove its accepted messages, and begin another, once its operations have ended."""
        with before.link.writing:
            is_there = before is self._subscription and before.is_live and before.link.is_up
            if is_there and self._owns_copies and self.options.durable_name is None:
                self._stop_telling(before)
            if not is_there or self._owns_copies:
                self._end_wanted([each for each in self._wanted if each.arrival.subscription is before])
                return
            with self._beginning:
                before.is_due = before in self._under_way.values()
            if not before.is_due:
                before.link.request(*self._begin_again(before))

    @property
    def _owns_copies(self) -> bool:
        link = None if self._subscription is None else self._subscription.link
        return link is not None and self._destination.kind in link.dialect.owns_copies

    def _end_wanted(self, wanted: Sequence[AcceptedMessage]) -> None:
        """Report that messages come again to the waiting callers. With the link's `writing` held."""
        self._wanted = [each for each in self._wanted if not any(each is other for other in wanted)]
        for each in wanted:
            is_gone = self._owns_copies and self.options.durable_name is None  # a copy is lost with its subscription
            each.settle(None if is_gone else uncollected(each.arrival, "it went back to its queue before"))

    def _collections(self, before: StompSubscription) -> tuple[bytes, dict[str, Settle]]:
        """Return the frames to write before a subscription ends, with receipts: ACKs, and collections for the rest."""
        link = before.link
        frames, rest = self._acceptances.last_frames(before)
        wanted, self._wanted = self._wanted + [AcceptedMessage(each, _note_uncollected) for each in rest], []
        receipts: dict[str, Settle] = {}
        address, put_back = spell(self._source, link.dialect), partial(self._put_back, link)
        for group in groups(wanted):
            collection = Collection(link, self.new_id, address, group, self.call, self.begin, put_back)
            self._enrol(StompSubscription(collection.id, link, before.generation, is_live=False))
            subscribe, asked = collection.begin()
            frames += subscribe
            receipts |= asked
            self._shared.later(COLLECTION_SECONDS, collection.leave)
        return frames, receipts

    def _put_back(self, link: StompSession, headers: Mapping[str, str], body: bytes | None) -> None:
        """Put back a message that a collection received but did not want: the broker no longer has it."""
        if body is None:
            message_id = headers.get("message-id")
            events.STOMP_MESSAGE_LOST.log(message_id)
        else:
            self._shared.strays.keep(Stray(headers, body, link, is_bound=self.is_temporary), self.begin())

    def _begin_again(self, before: StompSubscription) -> tuple[bytes, dict[str, Settle]]:
        """Return the frames that end a subscription and begin another, and the callbacks for their receipts.

        With `writing` held. Held messages go back, and accepted ones are then collected.
        """
        frames, receipts = self._collections(before)
        frames += self.end()
        subscription = None if self._is_stopped else self._replace(before, before.link, before.generation)
        if subscription is None:
            return frames, receipts
        self._enrol(subscription)
        receipt = self._shared.new_id(SUBSCRIBE)
        headers = self._headers(subscription) | {"receipt": receipt}
        return frames + pack("SUBSCRIBE", headers), receipts | {receipt: self._note_answer}

    def _give_back(self, arrival: StompArrival) -> None:
        """Have a message delivered again, unless it went back meanwhile.

        A topic's copy would be lost with its subscription, so it is passed to the consumer again instead.
        """
        if self._destination.kind in arrival.subscription.link.dialect.owns_copies:
            self._turns.put(arrival._replace(headers={**arrival.headers, "redelivered": "true"}))
            return
        if not self._is_stopped:
            self._collect_now(arrival.subscription)

    def _note_answer(self, error: BrokerError | None) -> None:
        """Record the refusal of a subscription that no caller waits for. For the reading thread."""
        if isinstance(error, SendFailedError):
            self._note_ended(f"{error}")

    def _replace(
        self, before: StompSubscription | None, link: StompSession, generation: int
    ) -> StompSubscription | None:
        """Create a subscription in place of another; None if that was done already."""
        name = self._shared.new_id("subscription")
        subscription = StompSubscription(name, link, generation, is_untold=self._is_untold)
        with self._replacing:
            if self._subscription is not before:
                return None
            self._subscription = subscription
        turns = self._turns
        put, own_ids, is_lazy = turns.put, link.dialect.own_ids, self.options.lazy

        def receive(headers: Mapping[str, str], body: bytes) -> None:
            """Take a message, but skip a frame that ActiveMQ Classic wrote twice, which may happen with an ERROR."""
            ack = headers.get("ack", "")
            if not ack or ack != subscription.last:
                subscription.last = ack
                is_own = own_ids is None or own_ids.fullmatch(headers.get("message-id", "")) is not None
                read_at = link.read_at if is_lazy else None
                put(new_arrival((subscription, headers, body, is_own, 0, "", None, read_at)))

        link.route(
            subscription.id,
            SubscriptionRoute(
                spell(self._source, link.dialect),
                receive,
                partial(self._doubt, subscription),
                lambda headers, size, why: turns.put(
                    StompArrival(subscription, headers, b"", link.dialect.is_own_id(headers), size, why)
                ),
            ),
        )
        return subscription

    @property
    def _source(self) -> Destination:
        return self.options.destination if self.home is None else self.home.own

    def _headers(self, subscription: StompSubscription) -> Headers:
        options, dialect = self.options, subscription.link.dialect
        headers = subscribe_headers(
            self._source,
            dialect,
            prefetch=options.prefetch,
            selector=options.selector,
            durable_name=options.durable_name,
        )
        if subscription.is_untold:
            return {"id": subscription.id, "ack": "auto", **headers, **dialect.untold}
        return {"id": subscription.id, "ack": acknowledgement_mode(options, dialect), **headers}

    def _take(self, arrival: StompArrival) -> None:
        subscription = arrival.subscription
        link = subscription.link
        is_ours = subscription.is_live and (link.is_up or self._is_last_copy(subscription))
        is_ours = is_ours and not subscription.is_leaving and not self._is_stopped
        is_named = arrival.is_own and not link.strangers  # nearly always
        is_ours = is_ours and (is_named or self._can_settle(arrival))
        if is_ours and arrival.refusal == NO_MEMORY:
            self._release_unread(StompDelivery(self, arrival), arrival.size)
        elif is_ours and arrival.refusal:
            self._refuse(StompDelivery(self, arrival), arrival.refusal)
        elif is_ours:
            delivery = self._read(arrival)
            if delivery is not None:
                self._deliver(delivery)

    def _can_settle(self, arrival: StompArrival) -> bool:
        """Return whether a message can be accepted after its delivery, if necessary by changing the subscription."""
        if arrival.can_be_named:
            return True
        if self.options.durable_name is not None:
            self._have_unsettled(arrival, "is left unread")
            return False
        if self._destination.kind in arrival.subscription.link.dialect.owns_copies:
            self._stop_telling(arrival.subscription)
        return True

    def _have_unsettled(self, arrival: StompArrival, what: str) -> None:
        """Report that a durable subscription cannot accept a message: its messages cannot go back to be collected."""
        why = (
            f"the message {arrival.headers.get('message-id', '')[:100]} {what}: as its sender over AMQP chose the id, "
            f"{arrival.subscription.link.server} cannot be told over STOMP that a durable subscription accepted it. "
            "Consume over AMQP (amqp://…), or have the sender choose no ids (JMS: setDisableMessageID)"
        )
        events.STOMP_UNSETTLED.log(why)
        self._have_problem(why)

    def _stop_telling(self, before: StompSubscription) -> None:
        """Have the broker count messages as accepted when it writes them: a topic's copy cannot be collected.

        Messages that it had for the old subscription and had not written are lost.
        """
        with before.link.writing:
            if before is not self._subscription or not before.link.is_up or self._is_stopped:
                return
            self._is_untold = before.is_untold = True
            events.STOMP_ACCEPTED_AT_ONCE.log(self._destination)
            after = self._replace(before, before.link, before.generation)
            if after is None:
                return
            before.link.unroute(before.id)
            self._enrol(after)
            receipt = self._shared.new_id(SUBSCRIBE)
            frames = pack("SUBSCRIBE", self._headers(after) | {"receipt": receipt})
            frames += pack("UNSUBSCRIBE", {"id": before.id})
            before.link.request(frames, {receipt: self._note_answer})

    def _read(self, arrival: StompArrival) -> StompDelivery | None:
        """Return the delivery for an arrival, or None if there was no memory for its body and it was given back."""
        try:
            return StompDelivery(self, arrival)
        except MemoryError:
            pass  # give back outside the block, after the partial result is freed
        self._release_unread(StompDelivery(self, arrival, with_body=False), len(arrival.body))
        return None

    def _drop_session(self, arrival: StompArrival) -> None:
        arrival.subscription.link.drop()

    def _is_last_copy(self, subscription: StompSubscription) -> bool:
        """Return whether a message of a lost session is still delivered, because no broker will redeliver it.

        This is False if `on_delivery` settles deliveries itself, which is no longer possible.
        """
        owns = self._destination.kind in subscription.link.dialect.owns_copies
        return self.auto_accept and (owns or self.is_temporary)

    def _conclude(self, delivery: StompDelivery) -> None:
        if not delivery.arrival.subscription.is_untold:
            self._acceptances.note(delivery.arrival)


def _note_uncollected(error: BrokerError | None) -> None:
    """Log that an accepted message comes again; not if the session is lost, when that holds for all."""
    if isinstance(error, NoAnswerError):
        events.STOMP_ACCEPTANCE_UNANSWERED.log(error)


def acknowledgement_mode(options: SubscribeOptions, dialect: StompDialect) -> str:
    """Return the `ack` header of the SUBSCRIBE frame."""
    if options.auto_accept:  # see `brokers.stomp.acknowledge`
        return "client" if dialect.accepts_earlier else "client-individual"
    # Within transactions `client-individual` gets slower with every message on ActiveMQ Classic; with only one message
    # outstanding, the cumulative `client` acknowledges no other.
    return "client" if options.prefetch == 1 else "client-individual"
