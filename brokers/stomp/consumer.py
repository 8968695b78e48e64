"""Consumers and deliveries over STOMP: subscribing, acknowledging, giving back.

A consumer has one *subscription* at a time. The broker takes an unacknowledged message back only when the subscription
ends, so `release` ends it and begins another, after a pause. A delivery of an ended subscription is void: the broker
delivers its message again, and an acknowledgement would be lost without a word. A message that no ACK can name is taken
from its queue in another way: see `brokers.stomp.collection`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from threading import TIMEOUT_MAX, Event, Lock
from time import monotonic
from typing import Final, NamedTuple

from brokers.adapter.consumer import ConsumerOwner, LastingConsumer
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
from brokers.stomp.acknowledge import (
    MAX_DELIVERIES,
    Acceptances,
    Releases,
    StompArrival,
    StompSubscription,
    pause_after,
)
from brokers.stomp.codec import NO_MEMORY
from brokers.stomp.collection import COLLECTION_SECONDS, AcceptedMessage, Collection, groups, uncollected
from brokers.stomp.dialect import StompDialect
from brokers.stomp.frames import Headers, acknowledgement, dead_letter, from_frame, spell, subscribe_headers
from brokers.stomp.session import SUBSCRIBE, Settle, StompSession, SubscriptionRoute, pack
from brokers.stomp.strays import Stray, Strays
from brokers.stomp.temporary import Home
from brokers.threads.pool import Crew
from brokers.threads.timer import Later

log = logging.getLogger(__name__)

NOT_KEPT: Final = "the dead letter is without its body"
"""What is said of a message that was not read, where the dead letter is made here."""

ANSWER_SECONDS: Final = 30.0
"""Seconds after which the answer to an ACK counts as lost: ActiveMQ Classic may write an ERROR into another frame."""

DELETE_NOTICE_SECONDS: Final = 1.0
"""Seconds within which all consumers of a queue that is deleted are told."""


class StompDeliveryState(Enum):
    """What became of a delivery on this side."""

    HELD = auto()
    ACCEPTED = auto()
    RETURNED = auto()


class StompDelivery(Delivery):
    """One message as it reached one consumer. `fate` changes only while the link's `writing` is held."""

    __slots__ = ("arrival", "consumer", "fate")

    def __init__(self, consumer: StompConsumer, arrival: StompArrival, *, with_body: bool = True) -> None:
        subscription, headers, body = arrival[:3]
        shown = body if with_body else b""
        super().__init__(from_frame(headers, shown, subscription.link.dialect), None, subscription.generation)
        self.consumer = consumer
        if consumer.home is not None:
            self.message = changed(self.message, destination=consumer.options.destination)
        is_told = self.message.redelivered is not None
        if not is_told and consumer.releases and self.key in consumer.releases:  # we know better than the broker
            self.message = changed(self.message, redelivered=True)
        self.arrival = arrival
        self.read_at = arrival.read_at
        self.fate = StompDeliveryState.ACCEPTED if consumer.auto_accept else StompDeliveryState.HELD

    @property
    def is_held(self) -> bool:
        """Whether the message is still this consumer's to settle."""
        subscription = self.arrival.subscription
        return self.fate is StompDeliveryState.HELD and subscription.is_live and subscription.link.is_up

    @property
    def is_accepted(self) -> bool:
        """Whether the broker was told so; what it was told in a session that was lost, it may not have heard."""
        return self.fate is StompDeliveryState.ACCEPTED and self.arrival.subscription.link.is_up

    def accept(self) -> None:
        """Acknowledge. Does nothing if this was settled before, or if the message went back with its subscription."""
        link = self.arrival.subscription.link
        if self.fate is StompDeliveryState.HELD:  # else as after `accept_after`; it is never held again
            with link.writing:
                if self._settle(StompDeliveryState.ACCEPTED):
                    link.request(*self.consumer.acknowledge(self.arrival))

    def came_by(self, link: StompSession) -> bool:
        """Say whether the message came by a session."""
        return self.arrival.subscription.link is link

    def accept_after(self, frames: bytes) -> None:
        """Write encoded frames and then acknowledge, in one piece; the frames also where there is nothing to accept.

        Raises:
            ConnectionLostError: the session has ended, or ended by this; then the broker delivers again.
        """
        link = self.arrival.subscription.link
        with link.writing:
            is_ours = self._settle(StompDeliveryState.ACCEPTED)
            is_plain = self.arrival.can_be_named and not self.arrival.is_doubtful
            if is_ours and is_plain:
                frames += self.consumer.acknowledge(self.arrival)[0]
            link.write(frames)
            if is_ours and not is_plain:
                link.request(*self.consumer.acknowledge(self.arrival))

    def release(self) -> None:
        """Give back all that this consumer holds; from a topic only this one. Else as `accept`.

        That happens after a pause, longer each time the same message comes back, and the last time it becomes a dead
        letter; see `brokers.stomp.acknowledge`.
        """
        with self.arrival.subscription.link.writing:
            if not self.is_held:
                return
            releases = self.consumer.releases.count(self.key)
            if releases < MAX_DELIVERIES:
                self.fate = StompDeliveryState.RETURNED
                self.consumer.give_back_later(self.arrival, pause_after(releases))
                return
            self._discard(f"delivered {releases} times and not accepted")
        log.error("message %s is a dead letter: delivered %d times and not accepted", self.message.message_id, releases)

    def reject(self, reason: str) -> None:
        """Put it on the dead-letter queue. A NACK has no place for the reason, so it is logged."""
        if self._discard(reason):
            log.warning("message %s was rejected: %s", self.message.message_id, reason)

    @property
    def key(self) -> Hashable:
        """What is the same for each delivery of the message: from a topic each consumer has its own copy."""
        return self.consumer.origin, self.message.message_id

    def _discard(self, reason: str) -> bool:
        link = self.arrival.subscription.link
        if link.dialect.nack_is_dead_letter and self.arrival.can_be_named and not self.arrival.subscription.is_untold:
            with link.writing:
                if not self._settle(StompDeliveryState.RETURNED):
                    return False
                unknown = partial(self._discard_unknown, reason)
                link.request(*self.consumer.acknowledgement(self.arrival, unknown, "NACK"))
                return True
        with link.writing:
            if not self.is_held:
                return False
            self.fate = StompDeliveryState.RETURNED
            receipt = self.consumer.new_id("receipt")
            was, queue = self.arrival.headers, link.login.dead_letters or link.dialect.dead_letters
            if self.arrival.refusal:
                was, reason = {**was, "content-length": "0"}, f"{reason}; {NOT_KEPT}"
            headers = dead_letter(was, reason, queue, link.dialect)
            try:
                frame = pack("SEND", headers | {"receipt": receipt}, self.arrival.body, link.dialect.version)
            except MemoryError:  # this broker has a limit of its own for how often a message is delivered
                self.consumer.give_back_later(self.arrival, pause_after(MAX_DELIVERIES))
                log.error("there is no memory for the dead letter of %s, so it goes back", self.message.message_id)
                return False
            done = self.consumer.begin(self.arrival.subscription)
            finish = partial(self._finish_discarding, done)
            link.request(frame, {receipt: lambda error: self.consumer.call(partial(finish, error))})
            return True

    def _finish_discarding(self, done: Callable[[], None], error: BrokerError | None) -> None:
        """Acknowledge once the dead-letter queue has it; else it would be lost. And say that it is done."""
        try:
            self._acknowledge_discarded(error)
        finally:
            done()

    def _acknowledge_discarded(self, error: BrokerError | None) -> None:
        if isinstance(error, SendFailedError):
            log.error("message %s was refused as a dead letter, so it comes again: %s", self.message.message_id, error)
            releases = self.consumer.releases.count(self.key)
            self.consumer.give_back_later(self.arrival, pause_after(min(releases, MAX_DELIVERIES)))
        elif error is None:
            self.consumer.releases.forget(self.key)
            link = self.arrival.subscription.link
            with link.writing:
                link.request(*self.consumer.acknowledge(self.arrival))

    def _settle(self, fate: StompDeliveryState) -> bool:
        """Note what became of this, with the link's `writing` held; False if that was done before."""
        if not self.is_held:
            return False
        self.fate = fate
        self.consumer.releases.forget(self.key)
        return True

    def _discard_unknown(self, reason: str, arrival: StompArrival) -> None:
        """Discard what the broker knew no message for, as its sender chose the id. For the thread that reads."""

        done = self.consumer.begin(arrival.subscription)

        def discard() -> None:
            with arrival.subscription.link.writing:
                self.arrival = arrival._replace(body=self.arrival.body)
                self.fate = StompDeliveryState.HELD
                self._discard(reason)
            done()

        self.consumer.call(discard)


class StompConsumerContext(NamedTuple):
    """What the consumers of a connection share.

    `on_close` is told when one has ended; `enrol` of each SUBSCRIBE before it is written, and whom to tell if the
    broker ends it.
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
    """One subscription after the other to one destination."""

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
        self._asked: dict[str, float] = {}  # receipts of acknowledgements, and since when they are waited for
        self._is_watching = False
        is_copy = options.destination.kind.is_topic and options.durable_name is None  # nobody delivers it again
        self._is_untold = options.lazy and options.auto_accept and is_copy

    def start(self, link: StompSession, generation: int) -> None:
        """Subscribe, wait for the broker's receipt, and begin to call `on_delivery`.

        Raises:
            BrokerError: the broker refused, as it does a selector that it cannot read.
            ConnectionLostError: the connection was lost meanwhile.
        """
        try:
            super().start(link if self.home is None else self.home.link, generation)
        except SendFailedError as error:
            kind = NoDestinationError if isinstance(error, DestinationGoneError) else BrokerError
            raise kind(f"cannot consume from {self._destination}: {error}") from error

    def resume(self, link: StompSession, generation: int, *, again: bool = False) -> bool:
        """Subscribe in a session and wait for the broker's receipt; False if this was closed, or subscribed by then.

        Where the broker ended one of several subscriptions and does not say which, the same is asked for `again`: if it
        is there the broker refuses a second one of its name, and nothing has changed. Elsewhere what may be there is
        ended and there is another; to a queue once `on_delivery` has returned.

        Raises:
            BrokerError: as `start` has it.
        """
        before = self._subscription
        if before is not None and before.generation >= generation:
            if not again or before.generation > generation:
                return False
            if link.dialect.subscribed is not None and before.is_live:  # else it was refused, or ended
                return self._ask_again(before, link.dialect.subscribed)
            if self._turns.is_busy and self._destination.kind not in link.dialect.owns_copies:
                return False  # what came next would wait behind that, though others have the time
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
            if self._problem:  # it is tried again, by the same name
                raise
            subscription.is_live = False
            link.unroute(subscription.id)
            raise
        return True

    def _ask(self, subscription: StompSubscription) -> Callable[[float], None] | None:
        """Write SUBSCRIBE and return what waits for its receipt; None if the subscription was ended."""
        link, receipt = subscription.link, self._shared.new_id(SUBSCRIBE)
        with link.writing:
            if self._is_stopped or not subscription.is_live:
                return None
            self._enrol(subscription)
            return link.begin_to_ask(pack("SUBSCRIBE", self._headers(subscription) | {"receipt": receipt}), receipt)

    def _enrol(self, subscription: StompSubscription) -> None:
        """Take note that SUBSCRIBE is written next. With the link's `writing` held."""
        subscription.is_begun = True
        if self.home is None:
            self._shared.enrol(subscription, self.options, partial(self._doubt, subscription))

    def _end_if_there(self, subscription: StompSubscription) -> None:
        """End a subscription that the broker may have ended; what was held went back with it, or does now."""
        receipt = self._shared.new_id("receipt")
        with subscription.link.writing:
            farewell = self.end({"receipt": receipt})
            if farewell:
                subscription.link.request(farewell, {receipt: lambda _: None})

    def _ask_again(self, subscription: StompSubscription, is_there: str) -> bool:
        """Subscribe as before; False if this was closed. What was delivered before is still settled as it was held.

        `is_there` is what the broker says if it had not ended.
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
        """Make another session in a moment, if the broker closed one consumer and did not delete the queue of all.

        Artemis, told by an operator to close a consumer, tells its client so, goes on giving it messages, and forgets
        by which name it could be ended. Where the queue is deleted all its consumers end; a single one tells nothing.
        """
        if not self._is_source_shared:
            return
        later = partial(self._leave_if_same, subscription, self._endings)
        with suppress(RuntimeError):  # the connection was closed meanwhile
            self._shared.later(DELETE_NOTICE_SECONDS, later)

    @property
    def _is_source_shared(self) -> bool:
        """Whether a consumer takes messages from another: from a topic each has its own, unless it is durable."""
        kind = self._destination.kind
        return kind is DestinationKind.QUEUE or self.options.durable_name is not None

    def _leave_if_same(self, subscription: StompSubscription, endings: int) -> None:
        is_same = endings == self._endings and subscription is self._subscription and subscription.is_live
        if is_same and subscription.link.is_up and not self._is_stopped:
            log.error(
                "the broker closed a consumer of %s, and may go on giving messages to it; so there is another session",
                self._destination,
            )
            subscription.link.drop()

    def _doubt(self, subscription: StompSubscription, why: str) -> None:
        """Note that the broker may have ended a subscription. For the thread that reads."""
        if subscription is self._subscription and subscription.is_live:
            self._note_ended(why)

    def close(self) -> None:
        """End the subscription; what is not accepted goes back at once, from an `on_delivery` under way too."""
        until = monotonic() + self._shared.timeout
        self.stop()
        self._settle_up(until)
        receipt = self._shared.new_id("receipt")
        farewell = self.end({"receipt": receipt})
        try:
            if farewell and self._subscription is not None:
                with suppress(ConnectionLostError, SendFailedError):  # then the subscription has ended anyway
                    self._subscription.link.ask(farewell, receipt, until - monotonic())
        finally:
            self._shared.on_close(self)

    def join(self, until: float) -> None:
        """Wait for the `on_delivery` under way and for what was settled, until the monotonic clock shows `until`."""
        super().join(until)
        self._settle_up(until)

    def begin(self, subscription: StompSubscription | None = None) -> Callable[[], None]:
        """Note that something is under way, which `close` waits for; call what is returned at its end.

        It may be about a subscription, which is not ended for a collection until then.
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
        """Have the broker know of all that is settled, before the monotonic clock shows `until`.

        What was accepted would come again, and what was rejected would be there beside its dead letter.
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
            for each in list(self._under_way):  # of which one may begin another before it ends
                each.wait(max(0.0, until - monotonic()))

    def end(self, headers: Headers | None = None) -> bytes:
        """Make all that is held void, and return the frames to write for that; empty if that was done before."""
        subscription = self._subscription
        if subscription is None:
            return b""
        with subscription.link.writing:
            if subscription is not self._subscription:  # what is given back begins another
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
        """Make an identifier that the connection used for nothing else."""
        return self._shared.new_id(what)

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` on another thread, where it may write; not at all once the connection is closed."""
        with suppress(RuntimeError):
            self._shared.crew.submit(function)

    def give_back_later(self, arrival: StompArrival, seconds: float) -> None:
        """Have a message delivered again after a pause. Until then other consumers go on, and this one holds it."""
        self._shared.later(seconds, partial(self._give_back, arrival))

    def acknowledge(self, arrival: StompArrival) -> tuple[bytes, dict[str, Settle]]:
        """Return the ACK to write next, as `acknowledgement` has it; what it cannot name is collected soon."""
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
        """Return an ACK or a NACK to write next, empty where there is none, and who waits for its receipt.

        `unknown` is told by the thread that reads if the broker knows no such message.
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
        """End a session where the answer to an ACK does not come: what is to be collected would wait for it."""
        first = min(list(self._asked.values()), default=None)
        self._is_watching = first is not None and link.is_up
        if first is None or not self._is_watching:
            return
        if first + ANSWER_SECONDS <= monotonic():
            log.error("%s did not answer an ACK within %.0f s, so there is another session", link, ANSWER_SECONDS)
            link.drop()
        self._shared.later(max(1.0, first + ANSWER_SECONDS - monotonic()), partial(self._require_answers, link))

    def collect(self, wanted: Sequence[AcceptedMessage], ends: Iterable[Callable[[], None]]) -> None:
        """Take messages of one subscription from the queue that are accepted and that no ACK can name.

        What else is held goes back, once all that is under way has ended; these `ends` are called for that.
        """
        subscription = wanted[0].arrival.subscription
        with subscription.link.writing:
            self._wanted += wanted
            for end in ends:
                end()
            self._collect_now(subscription)

    def _collect_accepted(self, last: StompArrival) -> None:
        """Take what was accepted from the queue, once the `on_delivery` under way has returned."""
        if self.options.durable_name is not None:
            self._have_unsettled(last, "was accepted, and comes again")
            return
        subscription = last.subscription
        with subscription.link.writing:
            subscription.is_leaving = True  # what comes by then goes back with it
        self._turns.join(monotonic() + TIMEOUT_MAX / 2)
        self._collect_now(subscription)

    def _collect_now(self, before: StompSubscription) -> None:
        """End a subscription, take what was accepted there, and begin another, once nothing is under way for it."""
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
        """Tell who waits that messages come again. With the link's `writing` held."""
        self._wanted = [each for each in self._wanted if not any(each is other for other in wanted)]
        for each in wanted:
            is_gone = self._owns_copies and self.options.durable_name is None  # a copy that goes with its subscription
            each.settle(None if is_gone else uncollected(each.arrival, "it went back to its queue before"))

    def _collections(self, before: StompSubscription) -> tuple[bytes, dict[str, Settle]]:
        """Return what is written before a subscription ends: acceptances, and what takes the rest of them then."""
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
        """Put back what a collection was given beside what it wanted: the broker has it no more."""
        if body is None:
            message_id = headers.get("message-id")
            log.error("message %s is lost, as it is too large to be read and sent to its queue again", message_id)
        else:
            self._shared.strays.keep(Stray(headers, body, link, is_bound=self.is_temporary), self.begin())

    def _begin_again(self, before: StompSubscription) -> tuple[bytes, dict[str, Settle]]:
        """Return the frames that end a subscription and begin another, and who waits for their receipts.

        With `writing` held. What was held goes back, and what was accepted is taken then.
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
        """Have a message delivered again, if it did not go back meanwhile.

        A topic's copy is this subscription's own and would be lost with it, so that is put before the consumer again.
        """
        if self._destination.kind in arrival.subscription.link.dialect.owns_copies:
            self._turns.put(arrival._replace(headers={**arrival.headers, "redelivered": "true"}))
            return
        if not self._is_stopped:
            self._collect_now(arrival.subscription)

    def _note_answer(self, error: BrokerError | None) -> None:
        """Note whether the broker takes a subscription that nobody waits for. For the thread that reads."""
        if isinstance(error, SendFailedError):
            self._note_ended(f"{error}")

    def _replace(
        self, before: StompSubscription | None, link: StompSession, generation: int
    ) -> StompSubscription | None:
        """Make a subscription in place of another; None if that was done already."""
        name = self._shared.new_id("subscription")
        subscription = StompSubscription(name, link, generation, is_untold=self._is_untold)
        with self._replacing:
            if self._subscription is not before:
                return None
            self._subscription = subscription
        turns = self._turns

        def receive(headers: Mapping[str, str], body: bytes) -> None:
            """Take what came, but a frame that ActiveMQ Classic wrote twice, as it may beside an ERROR."""
            if not headers.get("ack") or headers["ack"] != subscription.last:
                subscription.last = headers.get("ack", "")
                turns.put(
                    StompArrival(subscription, headers, body, link.dialect.is_own_id(headers), read_at=link.read_at)
                )

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
        is_ours = subscription.is_live and (subscription.link.is_up or self._is_last_copy(subscription))
        is_ours = is_ours and not subscription.is_leaving and not self._is_stopped and self._can_settle(arrival)
        if is_ours and arrival.refusal == NO_MEMORY:
            self._release_unread(StompDelivery(self, arrival), arrival.size)
        elif is_ours and arrival.refusal:
            self._refuse(StompDelivery(self, arrival), arrival.refusal)
        elif is_ours:
            delivery = self._read(arrival)
            if delivery is not None:
                self._deliver(delivery)

    def _can_settle(self, arrival: StompArrival) -> bool:
        """Say whether a message can be accepted once it is handed on, if need be from now on in another way."""
        if arrival.can_be_named:
            return True
        if self.options.durable_name is not None:
            self._have_unsettled(arrival, "is left unread")
            return False
        if self._destination.kind in arrival.subscription.link.dialect.owns_copies:
            self._stop_telling(arrival.subscription)
        return True

    def _have_unsettled(self, arrival: StompArrival, what: str) -> None:
        """Say that a durable subscription cannot accept a message: it would have to go back for that."""
        why = (
            f"the message {arrival.headers.get('message-id', '')[:100]} {what}: as its sender over AMQP chose the id, "
            f"{arrival.subscription.link.server} cannot be told over STOMP that a durable subscription accepted it. "
            "Consume over AMQP (amqp://…), or have the sender choose no ids (JMS: setDisableMessageID)"
        )
        log.error("%s", why)
        self._have_problem(why)

    def _stop_telling(self, before: StompSubscription) -> None:
        """Have the broker take for accepted what it writes: a topic's copy cannot go back to be collected.

        What it had for the old subscription and had not written is lost.
        """
        with before.link.writing:
            if before is not self._subscription or not before.link.is_up or self._is_stopped:
                return
            self._is_untold = before.is_untold = True
            log.warning(
                "from now on what comes from %s counts as accepted at once, as senders over AMQP choose their ids, "
                "which cannot be accepted over STOMP; what waited at the broker may be lost. Over AMQP it is not",
                self._destination,
            )
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
        """Make a delivery of what arrived; None if there is no memory for its body, and it was given back."""
        try:
            return StompDelivery(self, arrival)
        except MemoryError:
            pass  # what there is of it is let go first
        self._release_unread(StompDelivery(self, arrival, with_body=False), len(arrival.body))
        return None

    def _drop_session(self, arrival: StompArrival) -> None:
        arrival.subscription.link.drop()

    def _is_last_copy(self, subscription: StompSubscription) -> bool:
        """Say whether what came by a session that was lost is handed over all the same: nobody delivers it again.

        Not where `on_delivery` settles deliveries itself, which it could not any more.
        """
        owns = self._destination.kind in subscription.link.dialect.owns_copies
        return self.auto_accept and (owns or self.is_temporary)

    def _conclude(self, delivery: StompDelivery) -> None:
        if not delivery.arrival.subscription.is_untold:
            self._acceptances.note(delivery.arrival)


def _note_uncollected(error: BrokerError | None) -> None:
    """Log that what was accepted comes again; not where the session is lost, as then any acceptance may be."""
    if isinstance(error, NoAnswerError):
        log.warning("%s", error)


def acknowledgement_mode(options: SubscribeOptions, dialect: StompDialect) -> str:
    """Say the `ack` of the SUBSCRIBE frame."""
    if options.auto_accept:  # see `brokers.stomp.acknowledge`
        return "client" if dialect.accepts_earlier else "client-individual"
    # Within transactions `client-individual` gets slower with every message on ActiveMQ Classic, and with a single
    # message outstanding the cumulative `client` acknowledges no other.
    return "client" if options.prefetch == 1 else "client-individual"
