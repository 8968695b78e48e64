"""The broker contract, run for every adapter against a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import uuid4

import broker_contract_kit
import pytest
from rabbitmq_kit import make_queue

pytest.register_assert_rewrite("broker_contract_messages", "broker_contract_deliveries")

from broker_contract import BrokerContract  # noqa: E402 - after the line above, or its asserts explain nothing
from broker_contract_kit import ReachedByUrl  # noqa: E402 - as above

from brokers import UnsupportedError  # noqa: E402
from brokers.amqp.listener import Listener, Options  # noqa: E402
from brokers.amqp.url import WebSocketBinding  # noqa: E402
from brokers.embedded import Broker  # noqa: E402

REAL = [f"{product}-{protocol}" for protocol in ("stomp", "amqp", "ws") for product in ("activemq", "artemis")]
REAL += ["qpid-amqp", "qpid-ws", "artemis-topics"]

RABBITMQ = pytest.param("rabbitmq", marks=[pytest.mark.broker, pytest.mark.soak])
"""In `make soak` only, as it needs a Debian of its own."""

CALLED = {"artemis": ("DLQ",), "qpid": ("DLQ", "amq.topic/{}")}

OF_TRANSACTIONS = (
    "test_abort",
    "test_accept_in_a_second_transaction",
    "test_a_transaction_of_a_closed_connection",
    "test_an_ended_transaction",
    "test_commit",
    "test_commit_over_several_consumers",
    "test_commit_with_a_reply_to_a_client_that_left",
    "test_on_delivery_may_use_the_connection",
    "test_redelivery_after_abort",
)

DEVIATIONS = {
    **{("rabbitmq", name): "RabbitMQ 4 has no transactions over AMQP 1.0" for name in OF_TRANSACTIONS},
    ("rabbitmq", "test_priority"): "a quorum queue of RabbitMQ 4 has two priorities",
    ("rabbitmq", "test_temporary_topic"): "RabbitMQ 4 makes no destinations for clients, and we make only queues there",
    ("qpid", "test_reject"): "Broker-J delivers a rejected message again, until maximumDeliveryAttempts of its queue",
    ("qpid", "test_reject_with_any_reason"): "as for test_reject",
}
"""What a broker does otherwise than the contract has it, which fails here once it does not."""

WRONG = (AssertionError, UnsupportedError)

OWN = {"own-amqp": None, "own-ws": WebSocketBinding.LENIENT}
"""The embedded broker, as clients over the network see it."""


@pytest.fixture(params=["embedded", *OWN, *(pytest.param(name, marks=pytest.mark.broker) for name in REAL), RABBITMQ])
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReachedByUrl]:
    """Give the broker of one adapter; a real one is started only if its tests are to run."""
    if request.param == "embedded":
        yield ReachedByUrl(f"embedded:contract-{uuid4().hex}")
    elif request.param in OWN:
        with Listener(Broker(), port=0, options=Options(binding=OWN[request.param])) as listener:
            yield ReachedByUrl(listener.url)
    elif request.param == "rabbitmq":
        url = request.getfixturevalue("rabbitmq")
        monkeypatch.setattr(broker_contract_kit, "make_queue", partial(make_queue, url))
        yield ReachedByUrl(url)
    else:
        yield real(request, *request.param.split("-"))


@pytest.fixture(autouse=True)
def expect_deviations(request: pytest.FixtureRequest) -> None:
    """Expect a test to fail where the broker deviates."""
    product = request.node.callspec.params["broker"].partition("-")[0]
    reason = DEVIATIONS.get((product, request.node.originalname))
    if reason is not None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason, raises=WRONG))


def real(request: pytest.FixtureRequest, product: str, protocol: str) -> ReachedByUrl:
    """Start a real broker; `topics` is AMQP with temporary queues that are topics."""
    if protocol == "topics":
        return ReachedByUrl(f"{request.getfixturevalue(product).amqp_url}?temporaryQueues=topics", *CALLED[product])
    url: str = getattr(request.getfixturevalue(product), f"{protocol}_url")
    # As ActiveMQ Classic is configured here, and as the embedded broker does it.
    if (product, protocol) == ("artemis", "stomp"):
        return ReachedByUrl(f"{url}?deadLetters=DLQ.")
    return ReachedByUrl(url, *CALLED.get(product, ()))


class TestBrokerContract(BrokerContract):
    """All of it."""
