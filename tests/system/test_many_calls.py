"""Many callers at a time, each strategy for replies, services of both editions: each call gets its own answer.

A tenth of what `make soak` runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from threading import Event

import pytest
from calling_kit import NS, PATIENCE, OnEachBroker, element, envelope, eventually, fresh, greeter, text_of
from lxml import etree
from many_calls_kit import CALLERS, IN_VAIN, IN_VAIN_SECONDS, PAIRINGS, Pairing, call_in_vain, call_many, pair
from places import DATA, ROOT

import soapjms
from brokers import Connection
from soapjms import Client, Dispatcher, Request, Service

CALLER = DATA / "services" / "shared_caller.py"
CALLS = 400

BROKERS = pytest.mark.parametrize(
    "broker", [pytest.param(each, marks=pytest.mark.broker) for each in ("activemq", "artemis")]
)


@BROKERS
@pytest.mark.parametrize("pairing", PAIRINGS, ids="-".join)
def test_no_mix_up(pairing: Pairing, broker: str, request: pytest.FixtureRequest) -> None:
    """Nobody gets another's answer, and no answer is astray."""
    with pair(request.getfixturevalue(broker).stomp_url, pairing) as client:
        assert call_many(client, CALLS) == []
    assert client.counts == {}


@BROKERS
@pytest.mark.parametrize(("client", "service"), [("stomp", "amqp"), ("amqp", "stomp")])
@pytest.mark.parametrize("profile", ["cr-2009", "rec-2012"])
def test_two_protocols(profile: str, client: str, service: str, broker: str, request: pytest.FixtureRequest) -> None:
    """Each edition works from one protocol to the other, also where the broker tells the service no JMSMessageID."""
    running, uri = request.getfixturevalue(broker), f"jms:queue:{fresh('two')}"
    with (
        soapjms.connect(getattr(running, f"{service}_url")) as there,
        soapjms.connect(getattr(running, f"{client}_url")) as here,
        Dispatcher(there, uri, greeter(), profile=profile),
        Client(here, uri, profile=profile, timeout=PATIENCE) as calling,
    ):
        assert call_many(calling, CALLERS) == []
    assert calling.counts == {}


@BROKERS
@pytest.mark.parametrize(("pairing", "counted"), [*zip(IN_VAIN, ("unknown", None, "foreign"), strict=True)])
def test_answers_that_nobody_can_tell(
    pairing: Pairing, counted: str | None, broker: str, request: pytest.FixtureRequest
) -> None:
    """A service of the 2009 edition repeats an id that this client was never told: nobody gets what is another's.

    Each call fails by itself. The answer is counted, unless a selector leaves it at the shared queue.
    """
    with pair(request.getfixturevalue(broker).stomp_url, pairing, IN_VAIN_SECONDS) as client:
        assert call_in_vain(client, CALLERS) == []
        wanted = {} if counted is None else {counted: CALLERS}
        eventually(lambda: client.counts == wanted, "the answers were counted")


@BROKERS
def test_a_reply_queue_of_two_processes(broker: str, request: pytest.FixtureRequest) -> None:
    """Two client processes share a fixed reply queue: each gets its own answers, and none of the other's."""
    url, name = request.getfixturevalue(broker).stomp_url, fresh("shared")
    uri = f"jms:queue:{name}?replyToName={name}.answers"
    command = [sys.executable, str(CALLER), url, uri, "200"]
    with soapjms.connect(url) as connection, Dispatcher(connection, f"jms:queue:{name}", greeter(), workers=4):
        callers = [
            subprocess.Popen(
                [*command, each], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for each in "ab"
        ]  # fmt: skip
        try:
            for each in callers:
                assert each.stdout is not None
                assert each.stdout.readline() == "ready\n"
            told = [each.communicate("go\n", timeout=3 * PATIENCE)[0] for each in callers]
        finally:
            for each in callers:
                each.kill()
                each.wait()
    assert [json.loads(each) for each in told] == [{"calls": 200, "wrong": [], "counts": {}}] * 2


class TestSlowOne(OnEachBroker):
    """One service function that takes its time."""

    def test_holds_up_nobody(self, connection: Connection, other: Connection, uri: str) -> None:
        """While one call is worked on, any number of others begin and end."""
        service, is_free = Service(), Event()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> etree._Element:
            if request.element.text == "slow":
                assert is_free.wait(PATIENCE)
            return element("greetMeResponse", f"Hello {request.element.text}")

        with Dispatcher(other, uri, service, workers=2), Client(connection, uri, timeout=PATIENCE) as client:
            slow = client.submit(envelope("slow"))
            for number in range(50):
                assert text_of(client.call(envelope(str(number)))) == f"Hello {number}"
            assert not slow.done()
            is_free.set()
            assert text_of(slow.result(PATIENCE)) == "Hello slow"
