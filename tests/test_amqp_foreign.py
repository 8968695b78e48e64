"""What ActiveMQ Classic and Artemis do otherwise at the anonymous terminus: the table of docs/conformance-amqp.md.

Each deviation is asserted as it is, so that a release that mends it is noticed. The names AT-xx are those of the page.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from amqp_raw import ACCEPTED, REJECTED, Raw
from calling_kit import REAL_BROKERS, fresh
from proton import Message, Terminus
from real_brokers import RealBroker

pytestmark = pytest.mark.broker

ROOT = Path(__file__).resolve().parent.parent
CONTAINERS = count(1)


class Product(NamedTuple):
    """What tests need to know of a broker.

    Attributes:
        prefix: of a queue's address.
        direct: the condition with which it refuses a direct link to what is forbidden.
    """

    prefix: str
    direct: str


PRODUCTS = {
    "activemq": Product("queue://", "amqp:unauthorized-access"),
    "artemis": Product("", "amqp:internal-error"),
}

CELLS = [(settled, rejects, in_transaction) for in_transaction in (0, 1) for settled in (0, 1) for rejects in (1, 0)]


@pytest.fixture(params=REAL_BROKERS)
def name(request: pytest.FixtureRequest) -> str:
    """Name each broker in turn."""
    return str(request.param)


@pytest.fixture
def broker(name: str, request: pytest.FixtureRequest) -> RealBroker:
    """Run it."""
    running: RealBroker = request.getfixturevalue(name)
    return running


@contextmanager
def entered(broker: RealBroker) -> Iterator[Raw]:
    """Log in as somebody who may not do everything."""
    with Raw(broker.ports.amqp, container=f"foreign-{next(CONTAINERS)}", user="limited") as client:
        yield client


def test_at15_at16_both_offer_it(broker: RealBroker) -> None:
    """AT-15, AT-16: the capability is offered, and a null target is answered with one and with credit."""
    with entered(broker) as raw:
        assert "ANONYMOUS-RELAY" in raw.offered
        link = raw.attach(None)
        assert (link.remote_target.type, link.remote_target.address) == (Terminus.TARGET, None)


def test_at01_at03_one_link_for_all_destinations(name: str, broker: RealBroker) -> None:
    """AT-01, AT-03: each message goes where its `to` says."""
    addresses = [f"{PRODUCTS[name].prefix}limited.{fresh()}" for _ in range(2)]
    with entered(broker) as raw:
        for address in addresses:
            raw.receive(address)
        link = raw.attach(None)
        for address in addresses:
            assert raw.outcome(raw.send(link, Message(address=address, body=address))).state == ACCEPTED
        assert sorted(raw.take(2)) == sorted(addresses)


def test_at24_refused_links(name: str, broker: RealBroker) -> None:
    """AT-24: answered without a target, then detached with the reason; Artemis calls it an error of its own."""
    with entered(broker) as raw:
        link = raw.attach(f"{PRODUCTS[name].prefix}forbidden.q")
        assert link.remote_target.type == Terminus.UNSPECIFIED
        assert raw.end_of(link).condition == PRODUCTS[name].direct


@pytest.mark.parametrize(("address", "condition"), [("forbidden.q", "amqp:unauthorized-access"), (None, "failed")])
@pytest.mark.parametrize(("settled", "rejects", "in_transaction"), CELLS)
def test_the_matrix_of_outcomes(
    name: str,
    broker: RealBroker,
    address: str | None,
    condition: str,
    settled: int,
    rejects: int,
    in_transaction: int,
) -> None:
    """AT-08: an unsettled message is rejected. Else than AT-10 to AT-14 and AT-21 have it: see the table."""
    product = PRODUCTS[name]
    kept = f"{product.prefix}limited.{fresh()}"
    bad = Message(body="x") if address is None else Message(body="x", address=f"{product.prefix}{address}")
    with entered(broker) as raw:
        raw.receive(kept)
        link = raw.attach(None, outcomes=("accepted", "rejected") if rejects else ("accepted",))
        control = raw.control() if in_transaction else None
        transaction = raw.declare(control) if in_transaction else None
        if transaction is not None:
            raw.outcome(raw.send(link, Message(body="kept", address=kept), transaction=transaction))
        tag = raw.send(link, bad, settled=bool(settled), transaction=transaction, tag="the-tag")
        if not settled:
            told = raw.outcome(tag)
            assert (told.state, told.condition, told.info) == (REJECTED, condition, {})  # AT-12 to AT-14
            assert told.transaction is None  # AT-21
        after = raw.send(link, Message(body="after", address=kept))
        assert raw.outcome(after).state == ACCEPTED  # so the link goes on, whatever was said before: AT-10, AT-12
        assert tag not in raw.outcomes or not settled
        assert raw.detached == {}
        if transaction is not None:
            assert raw.discharge(control, transaction, fail=False).state == ACCEPTED  # AT-11
        assert sorted(raw.take(1 + in_transaction)) == ["after", "kept"][: 1 + in_transaction]


def test_the_page_tells_what_is_asserted_here() -> None:
    """Each row of the table is about one of the two, or both, and names a requirement that there is."""
    page: dict[str, Any] = tomllib.loads((ROOT / "docs/amqp.toml").read_text("utf-8"))
    known = {row[0] for specification in page["specification"] for row in specification["rows"]}
    assert page["deviations"]["rows"]
    for brokers, names, *_ in page["deviations"]["rows"]:
        assert set(names.split(", ")) <= known
        assert brokers in ("both", "Artemis", "Qpid Broker-J")
