"""A request on a topic with several responders: the first reply is the response, the others are counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from calling_kit import NS, PATIENCE, OnEachBroker, element, envelope, eventually, text_of
from lxml import etree

import soapjms
from brokers import Connection
from soapjms import Client, Dispatcher
from soapjms.protocol.names import EDITIONS, SoapVersion

RESPONDERS = ("one", "two", "three")
CALLS = 20


def service_of(name: str) -> soapjms.Service:
    """Make a service that says who it is, and what it was asked."""
    service = soapjms.Service()

    @service.operation(f"{{{NS}}}greetMe")
    def greet_me(request: soapjms.Request) -> etree._Element:
        return element("greetMeResponse", f"{name}: {request.element.text}")

    return service


@pytest.mark.parametrize("profile", EDITIONS)
class TestSeveralResponders(OnEachBroker):
    """Three services listen on one topic, each over its own connection."""

    @pytest.fixture
    def uri(self, name: str) -> str:
        return f"jms:topic:{name}"

    @pytest.fixture
    def dispatchers(self, url: str, uri: str, profile: str) -> Iterator[list[Dispatcher]]:
        with ExitStack() as stack:
            yield [
                stack.enter_context(
                    Dispatcher(stack.enter_context(soapjms.connect(url)), uri, service_of(each), profile=profile)
                )
                for each in RESPONDERS
            ]

    def test_the_first_reply_wins(
        self, connection: Connection, uri: str, dispatchers: list[Dispatcher], profile: str
    ) -> None:
        """Each call has one response, to itself; of every other responder there is a reply that is counted."""
        with Client(connection, uri, profile=profile, timeout=PATIENCE) as client:
            for number in range(CALLS):
                version = list(SoapVersion)[number % 2]
                said = text_of(client.call(envelope(f"call {number}", version)))
                assert said is not None
                responder, _, asked = said.partition(": ")
                assert responder in RESPONDERS
                assert asked == f"call {number}"
            others = CALLS * (len(RESPONDERS) - 1)
            eventually(lambda: client.counts["duplicate"] == others, "the replies of the others")
            assert client.under_way == 0
            assert client.counts["unknown"] == 0
        eventually(lambda: [each.counts["answered"] for each in dispatchers] == [CALLS] * 3, "answers of all")

    def test_one_way_reaches_all(self, connection: Connection, uri: str, dispatchers: list[Dispatcher]) -> None:
        """A one-way message is every responder's, and nobody answers."""
        with Client(connection, uri, timeout=PATIENCE) as client:
            client.send(envelope())
            eventually(lambda: [each.counts["one-way"] for each in dispatchers] == [1, 1, 1], "each has it")
            assert client.counts == {}
