"""Calls under way: each ends once, by whoever comes first, and gives its lease back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from queue import SimpleQueue
from threading import Barrier
from types import NoneType
from typing import Any
from weakref import ref

import pytest
from calling_kit import PATIENCE, URI, Wrapped, eventually
from faulty_kit import no_executor

from brokers import (
    BrokerError,
    Completion,
    Connection,
    Destination,
    Message,
    MessageType,
    SendResult,
    Transaction,
    queue,
)
from brokers.embedded import Broker
from soapjms import CallFailedError
from soapjms.client.pending_calls import PendingCall, PendingCalls
from soapjms.client.replies import Replies
from soapjms.client.retry import KEY_OCTETS, KEYS_IN_ADVANCE, Identity, RequestKeys, lock_of
from soapjms.protocol.requesting import Endpoint, RequestingNode
from soapjms.protocol.wsdl.model import read_uri

ENDPOINT = Endpoint.of(*read_uri(URI, {}))


class Leases(Replies):
    """Keeps which leases were given back, and whether for others to use."""

    def __init__(self, *, by_place: bool) -> None:
        self.by_place = by_place
        self.ended: SimpleQueue[tuple[str, bool]] = SimpleQueue()

    def lease(self, key: str) -> Destination:
        return queue(key)

    def end(self, key: str, *, reusable: bool) -> None:
        self.ended.put((key, reusable))

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def leases() -> Leases:
    return Leases(by_place=True)


@pytest.fixture
def calls(leases: Leases) -> PendingCalls:
    return PendingCalls(leases, "a-")


@pytest.fixture
def call(calls: PendingCalls) -> PendingCall:
    """Make a call under way."""
    made = PendingCall(calls, lambda: ThreadPoolExecutor(1), "key", RequestingNode(ENDPOINT), 0.0, Identity())
    calls.add(made)
    return made


def failing(text: str) -> Callable[[], CallFailedError]:
    """Say that a call failed."""
    return lambda: CallFailedError(text, "receptionFailure")


def test_ends_once(calls: PendingCalls, call: PendingCall, leases: Leases) -> None:
    """Of many who end a call at once one does; only its outcome is worked out, and the lease is given back once."""
    together, outcomes = Barrier(8), SimpleQueue[int]()

    def end(number: int) -> bool:
        def outcome() -> CallFailedError:
            outcomes.put(number)
            return failing(f"{number}")()

        together.wait(PATIENCE)
        return calls.end(call, outcome, answered=True)

    with ThreadPoolExecutor(8) as threads:
        ended = list(threads.map(end, range(8)))
    assert ended.count(True) == 1
    with pytest.raises(CallFailedError, match=f"^{ended.index(True)}$"):
        call.result(0)
    assert (outcomes.get(), outcomes.empty()) == (ended.index(True), True)
    assert (leases.ended.get(), leases.ended.empty()) == (("key", True), True)
    assert (len(calls), calls.get("key"), calls.all()) == (0, None, [])


def test_cancelled(calls: PendingCalls, call: PendingCall, leases: Leases) -> None:
    """Cancelling its future ends a call: who waits for it is told, and its reply destination is used no more."""
    assert calls.all() == [call]
    assert call.cancel()
    assert len(calls) == 0
    assert wait([call], PATIENCE).done == {call}
    with pytest.raises(CancelledError):
        call.result(0)
    assert leases.ended.get(timeout=PATIENCE) == ("key", False)
    assert not calls.end(call, failing("late"), answered=True)
    assert leases.ended.empty()


class SendingMeanwhile(PendingCalls):
    """Calls whose sender adds the call right after it was found not to be pending."""

    def end(self, call: PendingCall, *arguments: Any, **options: Any) -> bool:
        is_ended = super().end(call, *arguments, **options)
        if not is_ended and not call.done():
            self.add(call)
        return is_ended


def test_cancelled_while_it_is_sent(leases: Leases) -> None:
    """A call that becomes pending while it is cancelled is cancelled, and pending no more."""
    calls = SendingMeanwhile(leases, "a-")
    call = PendingCall(calls, no_executor, "key", RequestingNode(ENDPOINT), 0.0, Identity())
    assert call.cancel()
    assert wait([call], PATIENCE).done == {call}
    assert len(calls) == 0


def test_cancelled_while_its_sending_fails(calls: PendingCalls) -> None:
    """A call that fails at the moment when it is cancelled has failed."""

    class Failing(PendingCall):
        """A call that fails once it was found not to be done."""

        def done(self) -> bool:
            was_done = super().done()
            if not was_done:
                self.conclude(failing("not sent")())
            return was_done

    call = Failing(calls, no_executor, "key", RequestingNode(ENDPOINT), 0.0, Identity())
    assert not call.cancel()
    with pytest.raises(CallFailedError, match="not sent"):
        call.result(0)


def test_cannot_be_cancelled_once_ended(calls: PendingCalls, call: PendingCall) -> None:
    """While the outcome is worked out it is too late to cancel."""
    seen = list[bool]()

    def outcome() -> CallFailedError:
        seen.append(call.cancel())
        return failing("no")()

    assert calls.end(call, outcome)
    assert seen == [False]


def test_a_mistake_of_ours(
    calls: PendingCalls, call: PendingCall, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    """An outcome that cannot be worked out is the outcome, and logged; the lease is given back all the same."""

    def outcome() -> Any:
        raise ZeroDivisionError("ours")

    assert calls.end(call, outcome)
    with pytest.raises(ZeroDivisionError, match="ours"):
        call.result(0)
    assert "an internal error" in caplog.text
    assert leases.ended.get(timeout=PATIENCE) == ("key", False)


def test_everybodys_destination_is_not_given_back() -> None:
    """Where all calls share a reply destination, one that was not answered gives nothing back."""
    leases = Leases(by_place=False)
    calls = PendingCalls(leases, "a-")
    call = PendingCall(calls, lambda: ThreadPoolExecutor(1), "key", RequestingNode(ENDPOINT), 0.0, Identity())
    calls.add(call)
    assert calls.end(call, failing("no"))
    eventually(call.done, "it ended")
    assert leases.ended.empty()


def test_what_came_is_not_kept() -> None:
    """An answer is freed with the last that refers to it, not whenever garbage is collected: it may be large."""

    class Answer:
        """Something large."""

    def settled(executor: ThreadPoolExecutor) -> ref[Answer]:
        answer, completion = Answer(), Completion[Answer](lambda: executor)
        completion.on_settled(lambda _: completion.done())
        completion.add_done_callback(lambda _: completion.done())
        completion.settle(answer)
        return ref(answer)

    gc.disable()
    try:
        with ThreadPoolExecutor(1) as executor:
            kept = settled(executor)
            eventually(lambda: kept() is None, "it is freed", 10)
    finally:
        gc.enable()


def test_keys_of_requests() -> None:
    """No two are the same, whoever asks and whenever; each has the octets that make it hard to guess."""
    keys = RequestKeys()
    number = KEYS_IN_ADVANCE * 3 + 1
    with ThreadPoolExecutor(4) as threads:
        made = [*threads.map(lambda _: keys.new(), range(number)), *(RequestKeys().new() for _ in range(3))]
    assert len({*made}) == number + 3
    assert {len(bytes.fromhex(each)) for each in made} == {KEY_OCTETS}
    (lock,) = Identity(None, made[0]).properties
    assert lock.value == lock_of(made[0])
    assert Identity().properties != Identity().properties


class Sends(Wrapped):
    """A connection whose sends end as the test says."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.sends = list[Completion[SendResult]]()

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        self.sends.append(Completion(no_executor))
        return self.sends[-1]


def test_sends_of_any_adapter() -> None:
    """What became of a message is told once; of one that was given up, that it was."""
    with Broker().connect() as inner:
        connection, told = Sends(inner), list[tuple[Any, Any]]()

        def note(error: BaseException | None, message_id: str | None = None, /) -> None:
            told.append((error, message_id))

        message = Message(message_type=MessageType.TEXT, body="x", destination=queue("q"))
        for settle in (
            lambda future: future.settle(SendResult("ID:1")),
            lambda future: future.settle(SendResult(), BrokerError("no")),
        ):
            connection.begin_send(message, note)
            settle(connection.sends[-1])
        give_up = connection.begin_send(message, note)
        connection.sends[-1].revoke = lambda: True
        assert give_up()
    assert [(type(error), message_id) for error, message_id in told] == [
        (NoneType, "ID:1"),
        (BrokerError, None),
        (CancelledError, None),
    ]
