"""What somebody else asks of a JMS provider: Joram's tests, through Qpid JMS, on our listener and on others.

All of Joram's pass everywhere, so that one that fails here is ours to mend. Of our own, for what JMS 2.0 adds, three
ask for what ActiveMQ Classic does not have.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from joram_kit import COUNT, OF_OURS, OURS, joram_suites, run_joram
from real_brokers import PASSWORD, USER, RealBroker

from brokers.amqp.listener import Listener, Options
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker

SOME = "org.objectweb.jtests.jms.conform.connection.ConnectionTest"


UNSHARED = {
    f"{OURS}.sharedByTwoConsumersOfOneConnection",
    f"{OURS}.sharedByConnectionsWithoutClientId",
    f"{OURS}.clientIdsHaveSubscriptionsOfTheirOwn",
}
"""Tests of ours that need shared subscriptions."""


def assert_all_pass(url: str, folder: Path, *, is_shared: bool = True) -> None:
    """Run them, and name each that fails with its reason; without shared subscriptions those that need them do."""
    ended = run_joram(url, folder, [*joram_suites(), OURS])
    failed = {each.name: each.why for each in ended if each.why}
    lacking = {name for name, why in failed.items() if "Remote peer does not support shared subscriptions" in why}
    assert lacking == (set() if is_shared else UNSHARED), failed
    assert {name: why for name, why in failed.items() if name not in lacking} == {}
    assert len({each.name for each in ended}) == COUNT + OF_OURS


@pytest.mark.peer
def test_on_our_listener(tmp_path: Path) -> None:
    """Selectors, browsers, durable and shared subscriptions, transactions, headers, temporary destinations."""
    with Listener(Broker(), port=0) as listener:
        assert_all_pass(listener.url, tmp_path)
    assert listener.guests == 0


@pytest.mark.peer
def test_over_websocket(tmp_path: Path) -> None:
    """A Java client says the host that it asks for as its origin, and is let in."""
    with Listener(Broker(), port=0, options=Options(binding=WebSocketBinding.LENIENT)) as listener:
        ended = run_joram(f"amqpws://127.0.0.1:{listener.port}", tmp_path, [SOME])
    assert {each.why for each in ended} == {""}


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.parametrize("name", ["activemq", "artemis"])
def test_on_others(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """ActiveMQ and Artemis pass them too: what the tests ask is what JMS asks, not what suits us.

    But for shared subscriptions, which ActiveMQ Classic does not have.
    """
    broker: RealBroker = request.getfixturevalue(name)
    credentials = f"jms.username={USER}&jms.password={PASSWORD}"
    assert_all_pass(f"amqp://{broker.host}:{broker.ports.amqp}?{credentials}", tmp_path, is_shared=name != "activemq")
