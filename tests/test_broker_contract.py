"""The broker contract, run for every adapter against a broker of its own."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import pytest

pytest.register_assert_rewrite("broker_contract_messages", "broker_contract_deliveries")

from broker_contract import BrokerContract  # noqa: E402 - after the line above, or its asserts explain nothing

from brokers import Connection, connect  # noqa: E402 - follows the import above

REAL_BROKERS = ("activemq", "artemis")


@dataclass(frozen=True)
class ReachedByUrl:
    """A broker under test, and the queue that it puts dead letters of a queue into."""

    url: str
    dead_letters: str = "DLQ.{}"

    def connect(self) -> Connection:
        """Connect once more."""
        return connect(self.url)


@pytest.fixture(
    params=[
        "embedded",
        *(
            pytest.param(name, marks=pytest.mark.broker)
            for name in (
                "activemq-stomp",
                "artemis-stomp",
                "activemq-amqp",
                "artemis-amqp",
                "activemq-ws",
                "artemis-ws",
            )
        ),
    ]
)
def broker(request: pytest.FixtureRequest) -> ReachedByUrl:
    """Give the broker of one adapter; a real one is started only if its tests are to run."""
    if request.param == "embedded":
        return ReachedByUrl(f"embedded:contract-{uuid4().hex}")
    product, protocol = request.param.split("-")
    url: str = getattr(request.getfixturevalue(product), f"{protocol}_url")
    # As ActiveMQ Classic is configured here, and as the embedded broker does it.
    if request.param == "artemis-stomp":
        return ReachedByUrl(f"{url}?deadLetters=DLQ.")
    return ReachedByUrl(url, "DLQ") if product == "artemis" else ReachedByUrl(url)


class TestBrokerContract(BrokerContract):
    """All of it."""
