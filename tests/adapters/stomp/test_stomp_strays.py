"""What a collection is given beside what it wanted is sent to its queue until the broker confirms that it is there.

The broker is one of a few lines, which takes it as the test says; one of ActiveMQ is in `test_stomp_foreign_ids.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

import fuzz.stomp
import pytest
from fuzz.stomp import Session, frame
from stomp_kit import PATIENCE, assert_no_threads, wait_until

import brokers
from brokers import queue
from brokers.adapter.endpoints import Reconnect
from brokers.stomp import StompConnection, strays

MESSAGE = {"destination": "/queue/victim", "message_id": "chosen by its sender", "timestamp": "1"}


class Broker(fuzz.stomp.Broker):
    """Gives a collection what it wants and another message, and does with what is sent back what it is told.

    Attributes:
        answers: to one SEND after the other: `hang up`, `refuse`, `nothing`; then it confirms.
        back: the headers of what was sent back.
    """

    def __init__(self, *answers: str) -> None:
        super().__init__("activemq")
        self.answers = list(answers)
        self.back: SimpleQueue[dict[str, str]] = SimpleQueue()

    def _answer(self, session: Session, command: str, headers: dict[str, str]) -> None:
        answer = self.answers.pop(0) if command == "SEND" and self.answers else ""
        if answer == "hang up":
            session.hang_up()
        elif answer == "refuse":
            session.send(frame("ERROR", message="not now", receipt_id=headers["receipt"]))
        if not answer:
            super()._answer(session, command, headers)
        if command == "SEND":
            self.back.put(headers)
        elif command == "SUBSCRIBE" and "JMSRedelivered" in headers.get("selector", ""):
            for which in ("wanted", "other"):
                session.send(frame("MESSAGE", b"x", subscription=headers["id"], which=which, **MESSAGE))

    def give(self) -> None:
        """Deliver the message that is accepted."""
        session = self.session()
        session.send(frame("MESSAGE", b"x", subscription=session.victim or "", ack="1", which="wanted", **MESSAGE))


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Run a broker with the answers of the test."""
    broker = Broker(*getattr(request, "param", ()))
    yield broker
    broker.close()
    assert_no_threads()


def connect(broker: Broker, **more: object) -> StompConnection:
    """Connect, and accept what comes."""
    options = {"reconnect": Reconnect(initial=0.01, maximum=0.01)} | more
    made = brokers.connect(f"stomp://127.0.0.1:{broker.port}", timeout=PATIENCE, **options)
    assert isinstance(made, StompConnection)
    made.consume(queue("victim"), lambda delivery: delivery.accept())
    return made


def returned(broker: Broker) -> str:
    """Wait for what is sent back, and say which it is."""
    return broker.back.get(timeout=PATIENCE)["which"]


def is_settled(connection: StompConnection) -> bool:
    """Say whether nothing is kept."""
    return not connection._strays._kept


@pytest.mark.parametrize(
    "broker", [("hang up",), ("hang up", "hang up"), ("refuse", "refuse"), ("refuse", "hang up")], indirect=True
)
def test_until_it_is_confirmed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the session ends before the answer, or the broker refuses; before, it was lost. Then no more."""
    monkeypatch.setattr(strays, "FIRST_RETRY_SECONDS", 0.01)
    times = len(broker.answers) + 1
    with connect(broker) as connection:
        broker.give()
        assert [returned(broker) for _ in range(times)] == ["other"] * times
        wait_until(lambda: is_settled(connection))
    assert broker.back.empty()


@pytest.mark.parametrize("broker", [("nothing",)], indirect=True)
def test_session_ends_after_it_was_sent(broker: Broker) -> None:
    """Nothing confirmed it, so it is sent again: it may be there twice, and is not lost."""
    with connect(broker) as connection:
        broker.give()
        assert returned(broker) == "other"
        broker.session().hang_up()
        assert returned(broker) == "other"
        wait_until(lambda: is_settled(connection))


@pytest.mark.parametrize("broker", [("nothing",), ("refuse",)], indirect=True)
@pytest.mark.parametrize("reconnect", [True, False])
def test_connection_is_closed(broker: Broker, reconnect: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It is an error in the log that names the message and its queue, once; one that was confirmed is none."""
    connection = connect(broker, reconnect=reconnect)
    broker.give()
    assert returned(broker) == "other"
    connection.close(0.5)
    lost = "message chosen by its sender of /queue/victim may be lost"
    assert caplog.text.count(lost) == 1
    with connect(broker, reconnect=reconnect):
        broker.give()
        assert returned(broker) == "other"
    assert caplog.text.count(lost) == 1


@pytest.mark.parametrize("broker", [("hang up",)], indirect=True)
def test_connection_is_not_made_again(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged when the only session ends, not when the program closes the connection, if it does."""
    with connect(broker, reconnect=False):
        broker.give()
        assert returned(broker) == "other"
        wait_until(lambda: "may be lost" in caplog.text)
    assert caplog.text.count("may be lost") == 1
