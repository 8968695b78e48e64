"""Observers: what they are told of calls, requests and connections, and that one that fails harms nobody."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Peers,
    TellsNoTime,
    answer_to,
    arrivals,
    element,
    envelope,
    eventually,
    greeter,
    request_message,
    responder,
    take_one,
    text_of,
)
from lxml import etree
from places import ROOT

from brokers import Connection, ConnectionState
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, InvalidEnvelopeError, Policy, Request, Service, SqliteStore, UsageError
from soapjms.observing import Begun, Ended, Observation, Observer, Outcome, Place, Side, is_property_name
from soapjms.protocol import names


class Story(Observation):
    """One thing that is followed."""

    def __init__(self, begun: Begun, carried: Mapping[str, str]) -> None:
        self.begun = begun
        self.carried = carried
        self.works = 0
        self.failures: list[BaseException] = []
        self.ends: list[Ended] = []

    def properties(self) -> Mapping[str, str]:
        return self.carried

    @contextmanager
    def working(self) -> Iterator[None]:
        self.works += 1
        yield

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)

    def ended(self, ended: Ended) -> None:
        self.ends.append(ended)


class Diary(Observer):
    """Writes down everything."""

    def __init__(self, **carried: str) -> None:
        self.carried = carried
        self.stories: list[Story] = []
        self.starts: list[Place] = []
        self.counts: list[tuple[str, int]] = []
        self.states: list[ConnectionState] = []
        self._lock = Lock()

    def started(self, place: Place) -> None:
        self.starts.append(place)

    def begun(self, begun: Begun) -> Observation:
        with self._lock:
            self.stories.append(Story(begun, self.carried))
            return self.stories[-1]

    def counted(self, place: Place, what: str, times: int) -> None:
        self.counts.append((what, times))

    def connection_changed(self, place: Place, state: ConnectionState) -> None:
        self.states.append(state)

    def outcomes(self) -> list[tuple[str, str]]:
        """List outcome and subcode of what has ended, in the order in which it began."""
        return [(end.outcome, end.subcode) for story in self.stories for end in story.ends]

    def until_ended(self, count: int = 1) -> list[tuple[str, str]]:
        """Wait until so many have ended."""
        eventually(lambda: len(self.outcomes()) >= count, f"{count} have ended")
        return self.outcomes()


class Broken(Observer):
    """Fails whenever it can."""

    def __init__(self, observation: Observation | None = None) -> None:
        self.observation = observation

    def started(self, place: Place) -> None:
        raise ValueError("started")

    def begun(self, begun: Begun) -> Observation:
        if self.observation is None:
            raise ValueError("begun")
        return self.observation

    def counted(self, place: Place, what: str, times: int) -> None:
        raise ValueError("counted")

    def connection_changed(self, place: Place, state: ConnectionState) -> None:
        raise ValueError("state")


class BrokenStory(Observation):
    """Fails whenever it can."""

    def properties(self) -> Mapping[str, str]:
        raise ValueError("properties")

    @contextmanager
    def working(self) -> Iterator[None]:
        yield
        raise ValueError("working")

    def ended(self, ended: Ended) -> None:
        raise ValueError("ended")


class Illegal(Observation):
    """Wants a property that no message can have."""

    def __init__(self, name: str, value: str) -> None:
        self.wanted = {name: value}

    def properties(self) -> Mapping[str, str]:
        return self.wanted


class Observing(Peers):
    """A diary of the client, another of the service."""

    @pytest.fixture
    def asking(self) -> Diary:
        return Diary()

    @pytest.fixture
    def serving(self) -> Diary:
        return Diary()

    @pytest.fixture
    def client(self, connection: Connection, asking: Diary) -> Iterator[Client]:
        with Client(connection, URI, timeout=PATIENCE, observer=asking) as client:
            yield client


class TestCalls(Observing):
    """What a client tells."""

    @pytest.mark.usefixtures("served")
    def test_response_and_fault(self, client: Client, asking: Diary) -> None:
        """A call has ended for the observer before its caller goes on."""
        response = client.call(envelope("Ann"), soap_action="urn:greet")
        assert asking.outcomes() == [(Outcome.RESPONSE, "")]
        client.call(envelope("Bob", operation="fail"))
        assert asking.outcomes()[1:] == [(Outcome.FAULT, "")]
        begun = asking.stories[0].begun
        assert begun.place == asking.starts[0] == Place(Side.CLIENT, GREETER)
        assert (begun.soap_action, begun.correlation_id) == ("urn:greet", response.request.correlation_id)
        assert (begun.message, begun.one_way) == (None, False)
        assert asking.stories[0].ends[0].response == response.message

    def test_subcodes(self, client: Client, other: Connection, asking: Diary) -> None:
        """The subcode of the binding is told; one that a peer made up is `other`, however many it makes up."""
        fault = (
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><e:Fault xmlns:j="{}">'
            "<faultcode>j:{}</faultcode><faultstring>no</faultstring></e:Fault></e:Body></e:Envelope>"
        )
        said = iter(["missingContentType", "madeUp1", "madeUp2"])

        def answers(message: object) -> list[object]:
            body = fault.format(names.REC_2012.namespace, next(said)).encode()
            return [answer_to(message, body=body)]  # type: ignore[arg-type]

        with responder(other, GREETER, answers):  # type: ignore[arg-type]
            for _ in range(3):
                assert client.call(envelope()).fault is not None
        assert [subcode for _, subcode in asking.outcomes()] == ["missingContentType", "other", "other"]

    def test_nobody_answers(self, client: Client, asking: Diary) -> None:
        """Time-outs, calls that are given up, and what was never sent."""
        with pytest.raises(TimeoutError):
            client.call(envelope(), timeout=0.01)
        assert client.submit(envelope()).cancel()
        with pytest.raises(InvalidEnvelopeError):
            client.call("<greetMe/>")
        left = client.submit(envelope())
        client.close()
        assert left.exception() is not None
        outcomes = [outcome for outcome, _ in asking.outcomes()]
        assert outcomes == [Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.FAILED, Outcome.FAILED]
        assert isinstance(asking.stories[2].ends[0].error, InvalidEnvelopeError)

    def test_one_way(self, client: Client, asking: Diary) -> None:
        """A one-way message is sent, or fails."""
        client.send(envelope())
        with pytest.raises(InvalidEnvelopeError):
            client.send("<greetMe/>")
        assert [outcome for outcome, _ in asking.outcomes()] == [Outcome.SENT, Outcome.FAILED]
        assert all(story.begun.one_way for story in asking.stories)

    def test_stray_replies(self, client: Client, asking: Diary, other: Connection) -> None:
        """What the client counts is told as well."""
        with arrivals(other, GREETER) as found:
            with pytest.raises(TimeoutError):
                client.call(envelope(), timeout=0.5, expires=None)
            other.send(answer_to(found.next()))
            eventually(lambda: asking.counts == [("late", 1)], "the late reply was told")

    def test_connection(self, connection: Connection, client: Client, asking: Diary) -> None:
        """The end of the connection is told."""
        connection.close()
        eventually(lambda: asking.states == [ConnectionState.CLOSED], "the end was told")


class TestRequests(Observing):
    """What a dispatcher tells."""

    def test_outcomes(self, client: Client, other: Connection, serving: Diary) -> None:
        """Answers, faults of a function, of the binding, and functions that fail; each with its operation, if known."""
        service = greeter()
        service.operation(f"{{{NS}}}break")(lambda request: 1 / 0)
        with Dispatcher(other, URI, service, observer=serving):
            for operation in ("greetMe", "fail", "break", "madeUp"):
                client.call(envelope(operation=operation))
            reply_to = client._connection.temporary()
            wrong = request_message("greeter", reply_to, properties={names.CONTENT_TYPE: None})
            client._connection.send(wrong)
            found = serving.until_ended(5)
        assert serving.starts == [Place(Side.SERVICE, GREETER)]
        assert found == [
            (Outcome.RESPONSE, ""),
            *[(Outcome.FAULT, "")] * 3,
            (Outcome.FAULT, "missingContentType"),
        ]
        ends = [story.ends[0] for story in serving.stories]
        local = [end.operation.removeprefix(f"{{{NS}}}") for end in ends]
        assert local == ["greetMe", "fail", "break", "", ""]
        assert [story.works for story in serving.stories] == [1, 1, 1, 1, 0]
        assert [type(error) for story in serving.stories for error in story.failures] == [ZeroDivisionError]
        assert serving.counts.count(("accepted", 1)) == 4

    def test_one_way(self, client: Client, other: Connection, serving: Diary) -> None:
        """A one-way message is done, one that breaks a rule refused, one that comes too late expired."""
        with Dispatcher(other, URI, greeter(), observer=serving, workers=1):
            client.send(envelope())
            client._connection.send(request_message("greeter", None, properties={names.CONTENT_TYPE: None}))
            assert serving.until_ended(2) == [(Outcome.DONE, ""), (Outcome.REFUSED, "missingContentType")]

    def test_expired(self, client: Client, serving: Diary) -> None:
        """A request that nobody waits for any more is told as expired; here the broker's clock is behind."""
        broker = Broker(clock=lambda: 1)
        with TellsNoTime(broker.connect()) as connection, Dispatcher(connection, URI, greeter(), observer=serving):
            connection.send(request_message("greeter", None, expiration=2))
            assert serving.until_ended() == [(Outcome.EXPIRED, "")]

    def test_retried(self, client: Client, other: Connection, serving: Diary) -> None:
        """Each failure is told; a dead letter is one, whatever its caller was answered."""
        service = Service(policy=Policy(retries=2, pause=0, then="dead-letter"))
        service.operation(f"{{{NS}}}greetMe")(lambda request: 1 / 0)
        with Dispatcher(other, URI, service, observer=serving, dead_letters="dead"):
            assert client.call(envelope()).fault is not None
            assert serving.until_ended() == [(Outcome.DEAD_LETTER, "")]
        assert (serving.stories[0].works, len(serving.stories[0].failures)) == (3, 3)

    def test_client_gone(self, client: Client, other: Connection, broker: Broker, serving: Diary) -> None:
        """An answer that the broker would not take is told as such."""
        with broker.connect() as third:
            third.send(request_message("greeter", third.temporary())).result(PATIENCE)
        with Dispatcher(other, URI, greeter(), observer=serving):
            assert serving.until_ended() == [(Outcome.UNDELIVERED, "")]

    def test_lost_and_redelivered(self, client: Client, broker: Broker, serving: Diary, tmp_path: Path) -> None:
        """A request whose commit is lost comes again, and says so; it is answered from the store."""
        runs: list[str] = []
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> object:
            runs.append("run")
            first_connection.close(0)
            return element("greetMeResponse", "hello")

        with SqliteStore(tmp_path / "requests.db") as store:
            first_connection = broker.connect()
            with Dispatcher(first_connection, URI, service, workers=1, store=store, observer=serving):
                future = client.submit(envelope())
                assert serving.until_ended() == [(Outcome.LOST, "")]
            with broker.connect() as second, Dispatcher(second, URI, service, store=store, observer=serving):
                assert text_of(future.result(PATIENCE)) == "hello"
                assert serving.until_ended(2)[1] == (Outcome.RESPONSE, "")
        assert [story.ends[0].redelivered for story in serving.stories] == [False, True]
        assert [story.works for story in serving.stories] == [1, 0]
        assert runs == ["run"]


class TestProperties(Observing):
    """What messages carry for observers."""

    def test_carried(self, connection: Connection, other: Connection) -> None:
        """Request, one-way message and answer carry what observers want, break no rule by it, and keep what is ours."""
        ours, theirs = Diary(traceparent="a", SOAPJMS_bindingVersion="7"), Diary(answered="c")
        seen: list[Request] = []
        service = Service()
        service.operation(f"{{{NS}}}greetMe")(lambda request: seen.append(request) or element("greetMeResponse"))
        with (
            Dispatcher(other, URI, service, strict=True, observer=[theirs]),
            Client(connection, URI, timeout=PATIENCE, observer=(ours, Diary(second="d"))) as client,
        ):
            response = client.call(envelope())
            client.send(envelope())
            eventually(lambda: len(seen) == 2, "both came")
        for request in seen:
            assert [request.properties.value(name) for name in ("traceparent", "second")] == ["a", "d"]
            assert request.tolerated == request.notes == ()
        assert response.message.properties.value("answered") == "c"
        assert response.findings() == response.notes() == ()

    def test_not_in_the_store(self, client: Client, other: Connection, serving: Diary, tmp_path: Path) -> None:
        """What an answer carries for observers is of its delivery: the store does not keep it."""
        serving.carried["answered"] = "c"
        path = tmp_path / "requests.db"
        with Dispatcher(other, URI, greeter(), store=path, observer=serving):
            assert client.call(envelope()).message.properties.value("answered") == "c"
        database = sqlite3.connect(f"{path}-claims")
        kept = "".join(database.iterdump())
        database.close()
        assert "greetMeResponse" in kept or "67726565744d65526573706f6e7365" in kept.lower()
        assert "answered" not in kept

    @pytest.mark.parametrize("name", ["traceparent", "tracestate", "baggage", "b3", "x__dash__b3", "_a1"])
    def test_legal_names(self, name: str) -> None:
        """Identifiers are names of properties."""
        assert is_property_name(name)

    @pytest.mark.parametrize("name", ["x-b3", "1a", "", "a b", "null", "Between", "JMSXGroupID", "ä"])
    def test_illegal_names(self, name: str) -> None:
        """Nothing else is, nor the words of selectors, nor what JMS keeps for itself."""
        assert not is_property_name(name)


class TestBroken(Observing):
    """Observers that fail."""

    @pytest.mark.parametrize("observation", [None, BrokenStory()])
    def test_harms_nobody(
        self,
        connection: Connection,
        other: Connection,
        observation: Observation | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Calls go on, an observer beside it is told everything, and the log has each way to fail once."""
        diary, broken = Diary(), Broken(observation)
        with caplog.at_level(logging.ERROR, "soapjms.observing"):
            with (
                Dispatcher(other, URI, greeter(), observer=[broken, diary]),
                Client(connection, URI, timeout=PATIENCE, observer=[broken, diary]) as client,
            ):
                for _ in range(3):
                    assert text_of(client.call(envelope())) == "Hello World"
                client.send(envelope())
                outcomes = [outcome for outcome, _ in diary.until_ended(8)]
            connection.close()
        assert sorted(outcomes) == sorted([*[Outcome.RESPONSE] * 6, Outcome.SENT, Outcome.DONE])
        logged = [record.getMessage() for record in caplog.records]
        said = (
            ["BrokenStory failed in ended", "Broken failed in counted"] if observation else ["Broken failed in begun"]
        )
        for each in said:  # by the client's and by the service's
            assert 1 <= sum(each in line for line in logged) <= 2
        assert all(logged.count(line) <= 2 for line in logged)

    @pytest.mark.parametrize("method", ["begun", "counted", "started", "properties", "working", "failed", "ended"])
    @pytest.mark.parametrize("raises", [ValueError, SystemExit, asyncio.CancelledError])
    def test_a_function_that_fails(
        self, connection: Connection, method: str, raises: type[BaseException], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whatever fails and however, a function without a name for instance: requests run, and the log says what."""

        def fail(*_: object) -> None:
            raise raises("no")

        class Failing(Observer, Observation):
            def __init__(self) -> None:
                setattr(self, method, partial(fail))

            def begun(self, begun: Begun) -> Observation:
                return self

        service = greeter()

        @service.operation("{urn:x}raise")
        def fails(request: Request) -> None:
            raise ZeroDivisionError

        with Dispatcher(connection, URI, service, observer=Failing()), Client(connection, URI) as client:
            assert text_of(client.call(envelope(), timeout=PATIENCE)) == "Hello World"
            assert client.call(etree.Element("{urn:x}raise"), timeout=PATIENCE).fault is not None
        assert f"Failing failed in {method}" in caplog.text

    def test_what_is_no_observation(self, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """An observer that begins with something else harms nobody either."""

        class Failing(Observer):
            def begun(self, begun: Begun) -> Any:
                return "x"

        with (
            Dispatcher(connection, URI, greeter(), observer=Failing()),
            Client(connection, URI, observer=Failing()) as client,
        ):
            assert text_of(client.call(envelope(), timeout=PATIENCE)) == "Hello World"
        assert "str failed in working" in caplog.text

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("x-b3-traceid", "1", "with JMS, got 'x-b3-traceid'"),
            ("trace", "a\0b", "the property trace is 'a\\x00b', which holds NUL at 1"),
        ],
    )
    def test_illegal_property(
        self,
        connection: Connection,
        other: Connection,
        caplog: pytest.LogCaptureFixture,
        name: str,
        value: str,
        says: str,
    ) -> None:
        """A property that JMS has no name for, or whose value nothing carries, is not sent; the log says which."""
        with Client(connection, URI, observer=Broken(Illegal(name, value))) as client:
            client.send(envelope())
            client.send(envelope())
        message = take_one(other, GREETER)
        assert message.properties.value(name) is None
        assert caplog.text.count(says) == 1

    def test_no_observer(self, connection: Connection) -> None:
        """What is no observer is refused at once."""
        for wrong in (Diary, "metrics", [Diary(), None], 7):
            with pytest.raises(
                UsageError, match=r"observer must be one or several Observers such as soapjms\.prometheus\.Metrics\(\)"
            ):
                Client(connection, URI, observer=wrong)  # type: ignore[arg-type]


def test_no_cost_when_absent() -> None:
    """Without an observer a call goes through no function of observing, on any thread; with one it does."""
    root = ROOT
    program = [sys.executable, str(root / "benchmarks" / "observing.py"), "--calls", "20", "--rounds", "1"]
    done = subprocess.run(
        program, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=120, check=True
    )
    entered = dict(re.findall(r"^([^:]+): .*, ([\d.]+) entered$", done.stdout, re.MULTILINE))
    assert [float(entered.pop(name)) for name in ("none", "none again")] == [0, 0]
    assert set(entered) == {"one that does nothing", "metrics", "traces", "metrics and traces"}
    assert all(float(each) > 0 for each in entered.values())
