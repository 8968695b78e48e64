"""How much work a message makes in the listener, counted and not timed: the calls of our functions and of proton's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import pytest
from amqp_raw import ACCEPTED, Raw
from proton import Message

from brokers.amqp.listener import Listener
from brokers.embedded import Broker

MESSAGES: Final = 200
"""Messages that are sent together; as many as the client gives credit for."""

INTO: Final = 44, 13
OUT_OF: Final = 41, 13
"""The most calls for each message: of our Python functions, and of proton's library."""


class CallCounts:
    """Counts calls on the threads that start while it is on.

    Attributes:
        own, of_proton: number of calls of our functions, and of proton's library.
    """

    def __init__(self) -> None:
        self.own = self.of_proton = 0

    def for_each(self) -> tuple[float, float]:
        """Return the numbers for each message, and begin at zero again."""
        found = self.own / MESSAGES, self.of_proton / MESSAGES
        self.own = self.of_proton = 0
        return found

    def note(self, frame: FrameType, event: str, function: Any) -> None:
        """Count one event of the interpreter; see `sys.setprofile`. Only one thread is at work in these tests."""
        if event == "call":
            self.own += "/brokers/" in frame.f_code.co_filename
        elif event == "c_call":
            self.of_proton += str(getattr(function, "__name__", "")).startswith("pn_")


@pytest.fixture
def counts() -> Iterator[CallCounts]:
    counted = CallCounts()
    threading.setprofile(counted.note)
    yield counted
    threading.setprofile(None)  # type: ignore[arg-type]


@pytest.fixture
def raw(counts: CallCounts) -> Iterator[Raw]:
    with Listener(Broker(), port=0) as listening, Raw(listening.port) as connected:
        yield connected


def send_all(raw: Raw, link: Any) -> None:
    """Send messages that a shape knows, and wait until they are accepted."""
    for number in range(MESSAGES):
        message = Message(id=f"ID:{number:06}", body=b"x" * 256, inferred=True, properties={"name": "value"})
        tag = raw.send(link, message, now=False)
    assert raw.outcome(tag).state == ACCEPTED


def take_all(raw: Raw) -> None:
    """Take as many messages, and accept them together."""
    raw.until(lambda: len(raw.deliveries) >= MESSAGES)
    for delivery in raw.deliveries:
        delivery.update(ACCEPTED)
        delivery.settle()
    raw.deliveries.clear()


def within(found: tuple[float, float], most: tuple[int, int]) -> None:
    """Compare what was counted with the limits."""
    own, of_proton = found
    assert 0 < own <= most[0], found
    assert 0 < of_proton <= most[1], found


def test_work_of_a_message_into_the_listener(raw: Raw, counts: CallCounts) -> None:
    """No message makes more work than it did."""
    link = raw.attach("q")
    send_all(raw, link)  # what is made once
    counts.for_each()
    send_all(raw, link)
    within(counts.for_each(), INTO)


def test_work_of_a_message_out_of_the_listener(raw: Raw, counts: CallCounts) -> None:
    """Likewise, from the credit of the client to its settlement."""
    send_all(raw, raw.attach("q"))
    receiver = raw.receive("q", credit=0)
    raw.settle_down()
    counts.for_each()
    receiver.flow(MESSAGES)
    take_all(raw)
    raw.settle_down()
    within(counts.for_each(), OUT_OF)
