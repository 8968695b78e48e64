"""Consumers and deliveries over STOMP: subscribing, acknowledging, giving back.

A consumer has one *subscription* at a time. The broker takes an unacknowledged message back only when the subscription
ends, so `release` ends it and begins another, after a pause. A delivery of an ended subscription is void: the broker
delivers its message again, and an acknowledgement would be lost without a word. A message that no ACK can name is taken
from its queue in another way: see `brokers.stomp.collection`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from threading import Event, Lock
from time import monotonic
from typing import Final, NamedTuple

from brokers.connection import Delivery, OnDelivery
from brokers.crew import Crew, at_once
from brokers.deadlines import Later
from brokers.errors import BrokerError, ConnectionLostError, DestinationGoneError, NoDestinationError, SendFailedError
from brokers.message import Destination, DestinationKind
from brokers.sessions import LastingConsumer, Owner
from brokers.stomp.acceptance import LAZY_SECONDS, SECONDS, Acceptances, Arrival, Subscription
from brokers.stomp.annex import Home
from brokers.stomp.collection import PATIENCE, Collection, is_full
from brokers.stomp.cutting import NO_MEMORY
from brokers.stomp.dialect import Dialect
from brokers.stomp.frames import Headers, acknowledgement, dead_letter, from_frame, spell, subscribe_headers
from brokers.stomp.link import SUBSCRIBE, Link, Route, Settle, pack
from brokers.stomp.releases import MAX_DELIVERIES, Releases, pause_after
from brokers.wishes import Wishes

log = logging.getLogger(__name__)

NOT_KEPT: Final = "the dead letter is without its body"
"""What is said of a message that was not read, where the dead letter is made here."""

SUSPENSE: Final = 1.0
"""Seconds within which all consumers of a queue that is deleted are told."""


class Fate(Enum):
    """What became of a delivery on this side."""

    HELD = auto()
    ACCEPTED = auto()
    RETURNED = auto()


class StompDelivery(Delivery):
    """One message as it reached one consumer. `fate` changes only while the link's `writing` is held."""

    __slots__ = ("arrival", "consumer", "fate")

    def __init__(self, consumer: StompConsumer, arrival: Arrival, *, with_body: bool = True) -> None:
        subscription, headers, body = arrival[:3]
        shown = body if with_body else b""
        super().__init__(from_frame(headers, shown, subscription.link.dialect), None, subscription.generation)
        self.consumer = consumer
        if consumer.home is not None:
            self.message = replace(self.message, destination=consumer.wishes.destination)
        if self.message.redelivered is None and self.key in consumer.releases:  # we know better than the broker
            self.message = replace(self.message, redelivered=True)
        self.arrival = arrival
        self.fate = Fate.ACCEPTED if consumer.auto_accept else Fate.HELD

    @property
    def is_held(self) -> bool:
        """Whether the message is still this consumer's to settle."""
        subscription = self.arrival.subscription
        return self.fate is Fate.HELD and subscription.is_live and subscription.link.is_up

    @property
    def is_accepted(self) -> bool:
        """Whether the broker was told so; what it was told in a session that was lost, it may not have heard."""
        return self.fate is Fate.ACCEPTED and self.arrival.subscription.link.is_up

    def accept(self) -> None:
        """Acknowledge. Does nothing if this was settled before, or if the message went back with its subscription."""
        self._settle(Fate.ACCEPTED, "ACK")

    def came_by(self, link: Link) -> bool:
        """Say whether the message came by a session."""
        return self.arrival.subscription.link is link

    def accept_after(self, frames: bytes) -> None:
        """Write encoded frames and then acknowledge, in one piece; the frames also where there is nothing to accept.

        Raises:
            ConnectionLostError: the session has ended, or ended by this; then the broker delivers again.
        """
        link = self.arrival.subscription.link
        with link.writing:
            if self.is_held:
                self.fate = Fate.ACCEPTED
                self.consumer.releases.forget(self.key)
                frames += self.acknowledgement("ACK")
            link.write(frames)
            if not self.arrival.can_be_named and self.fate is Fate.ACCEPTED:
                self.collect()

    def release(self) -> None:
        """Give back all that this consumer holds; from a topic only this one. Else as `accept`.

        That happens after a pause, longer each time the same message comes back, and the last time it becomes a dead
        letter; see `brokers.stomp.releases`.
        """
        with self.arrival.subscription.link.writing:
            if not self.is_held:
                return
            releases = self.consumer.releases.count(self.key)
            if releases < MAX_DELIVERIES:
                self.fate = Fate.RETURNED
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

    def collect(self, done: Callable[[], None] = lambda: None) -> None:
        """Take the message from its queue, which no ACK can name; `done` is told of the end."""
        self.consumer.collect([self.arrival], done)

    def acknowledgement(self, command: str, more: Mapping[str, str] | None = None) -> bytes:
        """Return the encoded ACK or NACK frame, with more headers; empty where there is none to write."""
        if self.arrival.subscription.is_untold or not self.arrival.can_be_named:
            return b""
        self.consumer.note_told(self.arrival)
        headers = acknowledgement(self.arrival.headers, self.arrival.subscription.link.dialect)
        return pack(command, {**headers, **(more or {})})

    def _discard(self, reason: str) -> bool:
        link = self.arrival.subscription.link
        if link.dialect.nack_is_dead_letter and self.arrival.can_be_named and not self.arrival.subscription.is_untold:
            return self._settle(Fate.RETURNED, "NACK")
        with link.writing:
            if not self.is_held:
                return False
            self.fate = Fate.RETURNED
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
            done = self.consumer.begin_discarding()
            finish = partial(self.consumer.call, partial(self._finish_discarding, done))
            link.request(frame, {receipt: lambda error: finish(error)})
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
            with suppress(ConnectionLostError):
                self._write_settled("ACK")

    def _settle(self, fate: Fate, command: str) -> bool:
        if self.fate is not Fate.HELD:  # as after `accept_after`; it is never held again
            return False
        link = self.arrival.subscription.link
        with link.writing:
            if not self.is_held:
                return False
            self.fate = fate
            self.consumer.releases.forget(self.key)
            with suppress(ConnectionLostError):  # then the broker delivers it again
                self._write_settled(command)
            return True

    def _write_settled(self, command: str) -> None:
        if self.arrival.can_be_named:
            self.arrival.subscription.link.write(self.acknowledgement(command))
        else:
            self.collect()


class Shared(NamedTuple):
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
    enrol: Callable[[Subscription, Wishes, Callable[[str], None]], None]


class StompConsumer(LastingConsumer[Link, Arrival, StompDelivery]):
    """One subscription after the other to one destination."""

    def __init__(
        self,
        wishes: Wishes,
        on_delivery: OnDelivery,
        *,
        owner: Owner,
        shared: Shared,
        home: Home | None = None,
    ) -> None:
        super().__init__(wishes, on_delivery, owner, shared.crew)
        self.home = home
        self.auto_accept = wishes.auto_accept
        self.releases = shared.releases
        self.origin: Hashable = self if wishes.destination.kind.is_topic else wishes.destination
        self._destination = wishes.destination
        self._shared = shared
        # Who reads lazily has time to write, too: to wake another thread for that costs more.
        tell, seconds = (at_once, LAZY_SECONDS) if wishes.lazy else (shared.crew.submit, SECONDS)
        self._acceptances = Acceptances(wishes.prefetch, tell, shared.later, seconds)
        self._replacing = Lock()
        self._subscription: Subscription | None = None
        self._discarding = set[Event]()
        self._is_untold = False
        self._uncollected: list[Arrival] = []  # with `auto_accept`
        self._told: Arrival | None = None

    def start(self, link: Link, generation: int) -> None:
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

    def resume(self, link: Link, generation: int, *, again: bool = False) -> bool:
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
        if self.wishes.quick:
            link.lead(self._shared.crew)
        if self.wishes.lazy:
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

    def _ask(self, subscription: Subscription) -> Callable[[float], None] | None:
        """Write SUBSCRIBE and return what waits for its receipt; None if the subscription was ended."""
        link, receipt = subscription.link, self._shared.new_id(SUBSCRIBE)
        with link.writing:
            if self._is_stopped or not subscription.is_live:
                return None
            self._enrol(subscription)
            return link.begin_to_ask(pack("SUBSCRIBE", self._headers(subscription) | {"receipt": receipt}), receipt)

    def _enrol(self, subscription: Subscription) -> None:
        """Take note that SUBSCRIBE is written next. With the link's `writing` held."""
        subscription.is_begun = True
        if self.home is None:
            self._shared.enrol(subscription, self.wishes, partial(self._doubt, subscription))

    def _end_if_there(self, subscription: Subscription) -> None:
        """End a subscription that the broker may have ended; what was held went back with it, or does now."""
        receipt = self._shared.new_id("receipt")
        with subscription.link.writing:
            farewell = self.end({"receipt": receipt})
            if farewell:
                subscription.link.request(farewell, {receipt: lambda _: None})

    def _ask_again(self, subscription: Subscription, is_there: str) -> bool:
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

    def _suspect(self, subscription: Subscription) -> None:
        """Make another session in a moment, if the broker closed one consumer and did not delete the queue of all.

        Artemis, told by an operator to close a consumer, tells its client so, goes on giving it messages, and forgets
        by which name it could be ended. Where the queue is deleted all its consumers end; a single one tells nothing.
        """
        if not self._is_source_shared:
            return
        later = partial(self._leave_if_same, subscription, self._endings)
        with suppress(RuntimeError):  # the connection was closed meanwhile
            self._shared.later(SUSPENSE, later)

    @property
    def _is_source_shared(self) -> bool:
        """Whether a consumer takes messages from another: from a topic each has its own, unless it is durable."""
        kind = self._destination.kind
        return kind is DestinationKind.QUEUE or self.wishes.durable_name is not None

    def _leave_if_same(self, subscription: Subscription, endings: int) -> None:
        is_same = endings == self._endings and subscription is self._subscription and subscription.is_live
        if is_same and subscription.link.is_up and not self._is_stopped:
            log.error(
                "the broker closed a consumer of %s, and may go on giving messages to it; so there is another session",
                self._destination,
            )
            subscription.link.drop()

    def _doubt(self, subscription: Subscription, why: str) -> None:
        """Note that the broker may have ended a subscription. For the thread that reads."""
        if subscription is self._subscription and subscription.is_live:
            self._note_ended(why)

    def close(self) -> None:
        """End the subscription; what is not accepted goes back at once, from an `on_delivery` under way too."""
        until = monotonic() + self._shared.timeout
        self.stop()
        self._await_discarded(until)
        receipt = self._shared.new_id("receipt")
        farewell = self.end({"receipt": receipt})
        try:
            if farewell and self._subscription is not None:
                with suppress(ConnectionLostError, SendFailedError):  # then the subscription has ended anyway
                    self._subscription.link.ask(farewell, receipt, until - monotonic())
        finally:
            self._shared.on_close(self)

    def join(self, until: float) -> None:
        """Wait for the `on_delivery` under way and for what was rejected, until the monotonic clock shows `until`."""
        super().join(until)
        self._await_discarded(until)

    def begin_discarding(self) -> Callable[[], None]:
        """Note that a dead letter is on its way; call what is returned once its message is acknowledged."""
        done = Event()
        self._discarding.add(done)

        def end() -> None:
            self._discarding.discard(done)
            done.set()

        return end

    def _await_discarded(self, until: float) -> None:
        """Wait for what was rejected to be acknowledged: else it would go back, and be there beside its dead letter."""
        subscription = self._subscription
        for each in self._discarding.copy():
            if subscription is not None and subscription.link.is_up:
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
            accepted = self._acceptances.frames(subscription)
            subscription.is_live = False
            subscription.link.unroute(subscription.id)
            if not subscription.is_begun:
                return b""
        return accepted + pack("UNSUBSCRIBE", {"id": subscription.id} | (headers or {}))

    def new_id(self, what: str) -> str:
        """Make an identifier that the connection used for nothing else."""
        return self._shared.new_id(what)

    def call(self, function: Callable[[BrokerError | None], None], error: BrokerError | None) -> None:
        """Call `function(error)` on another thread, where it may write."""
        self._shared.crew.submit(partial(function, error))

    def give_back_later(self, arrival: Arrival, seconds: float) -> None:
        """Have a message delivered again after a pause. Until then other consumers go on, and this one holds it."""
        self._shared.later(seconds, partial(self._give_back, arrival))

    def note_told(self, arrival: Arrival) -> None:
        """Take note of what an ACK is written for next, in case the broker does not know it."""
        self._told = arrival

    def collect(self, wanted: Sequence[Arrival], done: Callable[[], None] = lambda: None) -> None:
        """Take messages from the queue that are accepted and that no ACK can name; what else is held goes back.

        Args:
            wanted: all of one subscription; those of one that has ended went back with it.
            done: told of the end, by any thread.
        """
        before = wanted[0].subscription
        wanted = [each._replace(body=b"") for each in wanted]
        end = self.begin_discarding()

        def settle(missing: int) -> None:
            if missing:
                log.warning("%d messages that were accepted at %s come again", missing, self._destination)
            with suppress(RuntimeError):  # the connection was closed meanwhile
                self._shared.crew.submit(partial(self._leave_collection, collection))
            end()
            done()

        subscription = Subscription(self.new_id("collection"), before.link, before.generation)
        collection = Collection(subscription, wanted, settle, partial(self._take_spare, before))
        with before.link.writing:
            if before is not self._subscription or not before.is_live or not before.link.is_up:
                collection.end()
                return
            self._write_collection(before, collection)
        self._shared.later(PATIENCE, collection.end)

    def _write_collection(self, before: Subscription, collection: Collection) -> None:
        """Begin a collection, then end the subscription that has the messages, and begin another behind it."""
        link, address = before.link, spell(self._source, before.link.dialect)
        receipt = self.new_id(SUBSCRIBE)
        route = Route(address, collection.receive, lambda _: None, lambda headers, *_: collection.receive(headers, b""))
        link.route(collection.subscription.id, route)
        begin = pack("SUBSCRIBE", collection.headers(address) | {"receipt": receipt})
        self._enrol(collection.subscription)
        again, receipts = self._begin_again(before)
        link.request(begin + again, receipts | {receipt: lambda error: None if error is None else collection.end()})

    def _take_spare(self, before: Subscription, headers: Mapping[str, str], body: bytes) -> None:
        """Hand on what a collection took too much; the broker has it no more."""
        log.warning("%s came by another's id, and counts as accepted", headers.get("message-id"))
        taken = Subscription(self.new_id("collection"), before.link, before.generation, is_untold=True)
        self._turns.put(Arrival(taken, headers, body))

    def _leave_collection(self, collection: Collection) -> None:
        """End its subscription."""
        subscription = collection.subscription
        with subscription.link.writing, suppress(ConnectionLostError):
            subscription.is_live = False
            subscription.link.unroute(subscription.id)
            if subscription.is_begun and subscription.link.is_up:
                subscription.link.write(pack("UNSUBSCRIBE", {"id": subscription.id}))

    def _begin_again(self, before: Subscription) -> tuple[bytes, dict[str, Settle]]:
        """Return the frames that end a subscription and begin another, and who waits for their receipts.

        With `writing` held. What was held goes back.
        """
        farewell = self.end()
        subscription = None if self._is_stopped else self._replace(before, before.link, before.generation)
        if subscription is None:
            return farewell, {}
        self._enrol(subscription)
        receipt = self._shared.new_id(SUBSCRIBE)
        headers = self._headers(subscription) | {"receipt": receipt}
        return farewell + pack("SUBSCRIBE", headers), {receipt: self._note_answer}

    def _unaccepted(self, subscription: Subscription, message_id: str) -> None:
        """Collect what an ACK named in vain: an id of a sender's over AMQP that looks like one of the broker's own.

        For the thread that reads.
        """
        told = self._told
        if told is not None and told.subscription is subscription and told.headers.get("message-id") == message_id:
            self._told = None
            with suppress(RuntimeError):
                self._shared.crew.submit(partial(self.collect, [told]))

    def _give_back(self, arrival: Arrival) -> None:
        """Have a message delivered again, if it did not go back meanwhile.

        A topic's copy is this subscription's own and would be lost with it, so that is put before the consumer again.
        """
        if self._destination.kind in arrival.subscription.link.dialect.owns_copies:
            self._turns.put(arrival._replace(headers={**arrival.headers, "redelivered": "true"}))
            return
        before = arrival.subscription
        with before.link.writing:
            is_there = before.is_live and before.link.is_up  # else it went back with its subscription, or session
            if self._is_stopped or not is_there or before is not self._subscription:
                return
            before.link.request(*self._begin_again(before))

    def _note_answer(self, error: BrokerError | None) -> None:
        """Note whether the broker takes a subscription that nobody waits for. For the thread that reads."""
        if isinstance(error, SendFailedError):
            self._note_ended(f"{error}")

    def _replace(self, before: Subscription | None, link: Link, generation: int) -> Subscription | None:
        """Make a subscription in place of another; None if that was done already."""
        name = self._shared.new_id("subscription")
        subscription = Subscription(name, link, generation, is_untold=self._is_untold)
        with self._replacing:
            if self._subscription is not before:
                return None
            self._subscription = subscription
        turns = self._turns
        link.route(
            subscription.id,
            Route(
                spell(self._source, link.dialect),
                lambda headers, body: turns.put(Arrival(subscription, headers, body)),
                partial(self._doubt, subscription),
                lambda headers, size, why: turns.put(Arrival(subscription, headers, b"", size, why)),
                partial(self._unaccepted, subscription),
            ),
        )
        return subscription

    @property
    def _source(self) -> Destination:
        return self.wishes.destination if self.home is None else self.home.own

    def _headers(self, subscription: Subscription) -> Headers:
        wishes, dialect = self.wishes, subscription.link.dialect
        mode = "auto" if subscription.is_untold else acknowledgement_mode(wishes, dialect)
        return {"id": subscription.id, "ack": mode} | subscribe_headers(
            self._source,
            dialect,
            prefetch=wishes.prefetch,
            selector=wishes.selector,
            durable_name=wishes.durable_name,
        )

    def _take(self, arrival: Arrival) -> None:
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

    def _can_settle(self, arrival: Arrival) -> bool:
        """Say whether a message can be accepted once it is handed on, if need be from now on in another way."""
        if arrival.can_be_named:
            return True
        message_id = arrival.headers.get("message-id", "")
        if self.wishes.durable_name is not None:
            why = (
                f"the message {message_id[:100]} is left unread: as its sender over AMQP chose the id, "
                f"{arrival.subscription.link.server} cannot be told over STOMP that a durable subscription accepted "
                "it. Consume over AMQP (amqp://…), or have the sender choose no ids (JMS: setDisableMessageID)"
            )
            log.error("%s", why)
            self._have_problem(why)
            return False
        if self._destination.kind in arrival.subscription.link.dialect.owns_copies:
            self._stop_telling(arrival.subscription)
        return True

    def _stop_telling(self, before: Subscription) -> None:
        """Have the broker take for accepted what it writes: a topic's copy cannot go back to be collected.

        What it had for the old subscription and had not written is lost.
        """
        with before.link.writing:
            if before is not self._subscription or not before.link.is_up:
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

    def _read(self, arrival: Arrival) -> StompDelivery | None:
        """Make a delivery of what arrived; None if there is no memory for its body, and it was given back."""
        with suppress(MemoryError):
            return StompDelivery(self, arrival)
        self._release_unread(StompDelivery(self, arrival, with_body=False), len(arrival.body))
        return None

    def _drop_session(self, arrival: Arrival) -> None:
        arrival.subscription.link.drop()

    def _is_last_copy(self, subscription: Subscription) -> bool:
        """Say whether what came by a session that was lost is handed over all the same: nobody delivers it again.

        Not where `on_delivery` settles deliveries itself, which it could not any more.
        """
        owns = self._destination.kind in subscription.link.dialect.owns_copies
        return self.auto_accept and (owns or self.is_temporary)

    def _conclude(self, delivery: StompDelivery) -> None:
        arrival = delivery.arrival
        if arrival.can_be_named:
            self._uncollected.clear()  # the ACK covers them
            self._acceptances.note(arrival)
            return
        if self._uncollected and self._uncollected[0].subscription is not arrival.subscription:
            self._uncollected.clear()
        self._uncollected.append(arrival._replace(body=b""))
        if not self._turns.are_waiting or is_full(self._uncollected):
            wanted, self._uncollected = self._uncollected, []
            arrival.subscription.is_leaving = True  # what came by then goes back with it
            collect = partial(self.collect, wanted)
            self._shared.crew.submit(collect) if self.wishes.inline or self.wishes.quick else collect()


def acknowledgement_mode(wishes: Wishes, dialect: Dialect) -> str:
    """Say the `ack` of the SUBSCRIBE frame."""
    if wishes.auto_accept:  # see `brokers.stomp.acceptance`
        return "client" if dialect.accepts_earlier else "client-individual"
    # Within transactions `client-individual` gets slower with every message on ActiveMQ Classic, and with a single
    # message outstanding the cumulative `client` acknowledges no other.
    return "client" if wishes.prefetch == 1 else "client-individual"
