"""The broker contract, run for every adapter against a broker of its own."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import pytest

pytest.register_assert_rewrite("broker_contract_messages", "broker_contract_deliveries")

from broker_contract import BrokerContract  # noqa: E402 - after the line above, or its asserts explain nothing

from brokers import Connection, connect  # noqa: E402 - follows the import above


@dataclass(frozen=True)
class ReachedByUrl:
    """A broker under test."""

    url: str

    def connect(self) -> Connection:
        """Connect once more."""
        return connect(self.url)


@pytest.fixture(
    params=["embedded", *(pytest.param(name, marks=pytest.mark.broker) for name in ("activemq", "artemis"))]
)
def broker(request: pytest.FixtureRequest) -> ReachedByUrl:
    """Give the broker of one adapter; a real one is started only if its tests are to run."""
    if request.param == "embedded":
        return ReachedByUrl(f"embedded:contract-{uuid4().hex}")
    url = request.getfixturevalue(request.param).stomp_url
    # As ActiveMQ Classic is configured here, and as the embedded broker does it.
    return ReachedByUrl(f"{url}?deadLetters=DLQ." if request.param == "artemis" else url)


class TestBrokerContract(BrokerContract):
    """All of it."""
