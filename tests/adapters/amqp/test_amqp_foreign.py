"""What other brokers do at the anonymous terminus, requirement by requirement: AT-xx of docs/conformance-amqp.md.

Where a broker does otherwise, the page has a row, and the test is expected to fail until the broker changes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import pytest
from amqp_foreign import ROOT, ROWS, THREE, TITLES, expect_deviation
from amqp_kit import symbols
from amqp_raw import ACCEPTED, REJECTED, Outcome, Raw
from calling_kit import fresh
from proton import Message, Terminus

pytestmark = pytest.mark.broker

CONTAINERS = count(1)


class Product(NamedTuple):
    """What tests need to know of a broker.

    Attributes:
        user: who logs in; on two of them not everything is allowed.
        good: the address of a queue, but for its own name.
        bad: an address that nothing can be sent to.
        topic: the address of a topic, but for its own name.
    """

    user: str
    good: str
    bad: str
    topic: str


PRODUCTS = {
    "activemq": Product("limited", "queue://limited.{}", "queue://forbidden.q", "topic://{}"),
    "artemis": Product("limited", "limited.{}", "forbidden.q", "{}"),
    "qpid": Product("admin", "{}", "nowhere", "amq.topic/{}"),
}


class Listening(Protocol):
    """A broker, as far as it matters here."""

    @property
    def amqp_url(self) -> str: ...


@pytest.fixture(params=THREE)
def product(request: pytest.FixtureRequest) -> Product:
    """Name each broker in turn, and expect what the page says of it."""
    expect_deviation(request, str(request.param))
    return PRODUCTS[request.param]


@contextmanager
def logged_in(request: pytest.FixtureRequest, user: str) -> Iterator[Raw]:
    """Log in at the broker of a test."""
    running: Listening = request.getfixturevalue(request.node.callspec.params["product"])
    port = urlsplit(running.amqp_url).port
    assert port is not None
    with Raw(port, container=f"foreign-{next(CONTAINERS)}", user=user) as client:
        yield client


@pytest.fixture
def raw(product: Product, request: pytest.FixtureRequest) -> Iterator[Raw]:
    """Log in."""
    with logged_in(request, product.user) as client:
        yield client


@pytest.fixture
def admin(product: Product, request: pytest.FixtureRequest) -> Iterator[Raw]:
    """Log in as somebody who may do everything."""
    with logged_in(request, "admin") as client:
        yield client


def relay(raw: Raw, *, rejects: bool = True) -> Any:
    """Attach to the anonymous terminus, from a source that lists `rejected` or does not."""
    return raw.attach(None, outcomes=("accepted", "rejected") if rejects else ("accepted",))


def bad(product: Product) -> Message:
    """Make a message that goes nowhere."""
    return Message(body="x", address=product.bad)


def refused_directly(raw: Raw, product: Product) -> str | None:
    """Return the condition with which a link to where nothing may be sent is refused."""
    return raw.end_of(raw.attach(product.bad)).condition


def is_detached(raw: Raw, link: Any, product: Product) -> bool:
    """Say whether a link has ended, after one more message on it that goes somewhere."""
    address = product.good.format(fresh())
    if link.name not in raw.detached:
        tag = raw.send(link, Message(address=address, body="after"))
        raw.until(lambda: tag in raw.outcomes or link.name in raw.detached)
    return link.name in raw.detached


def told(raw: Raw, link: Any, tag: str) -> Outcome:
    """Wait for the error of a message: of its own, or of the link's end."""
    raw.until(lambda: tag in raw.outcomes or link.name in raw.detached)
    return raw.outcomes[tag] if tag in raw.outcomes else raw.detached[link.name]


def test_at03_one_link_for_all_destinations(raw: Raw, product: Product) -> None:
    """AT-01, AT-02, AT-03: each message goes where its `to` says."""
    addresses = [product.good.format(fresh()) for _ in range(2)]
    for address in addresses:
        raw.receive(address)
    link = relay(raw)
    for address in addresses:
        assert raw.outcome(raw.send(link, Message(address=address, body=address))).state == ACCEPTED
    assert sorted(raw.take(2)) == sorted(addresses)


def test_at04_what_no_node_has_is_not_agreed(raw: Raw) -> None:
    """AT-04: a capability that no destination has is not in the answer to an attach."""
    link = raw.attach(None, capabilities=("queue", "x-none"))
    assert "x-none" not in symbols(link.remote_target.capabilities)


def test_at06_a_node_without_what_was_promised(admin: Raw, product: Product) -> None:
    """AT-06: where a link is for queues, and the answer says so, a message to a topic is an error."""
    address = product.topic.format(fresh())
    admin.receive(address, capabilities=("topic",))
    link = admin.attach(None, capabilities=("queue",))
    if "queue" in symbols(link.remote_target.capabilities):
        tag = admin.send(link, Message(address=address, body="x"))
        assert told(admin, link, tag).state in (REJECTED, "closed", "detached")


def test_at08_an_unsettled_message_is_rejected(raw: Raw, product: Product) -> None:
    """AT-07, AT-08, and the link goes on."""
    link = relay(raw)
    assert raw.outcome(raw.send(link, bad(product))).state == REJECTED
    assert not is_detached(raw, link, product)


def test_at09_with_the_error_of_a_direct_link(raw: Raw, product: Product) -> None:
    """AT-09; and that of a message without `to` is one of AMQP's."""
    link = relay(raw)
    assert raw.outcome(raw.send(link, bad(product))).condition == refused_directly(raw, product)
    assert str(raw.outcome(raw.send(link, Message(body="x"))).condition).startswith("amqp:")


def test_at10_a_settled_message_is_an_error_too(raw: Raw, product: Product) -> None:
    """AT-10, AT-12: the link is detached."""
    link = relay(raw)
    raw.send(link, bad(product), settled=True)
    assert is_detached(raw, link, product)


@pytest.mark.parametrize(("settled", "rejects"), [(True, True), (True, False), (False, False)])
def test_at11_a_transaction_cannot_be_committed(raw: Raw, product: Product, settled: bool, rejects: bool) -> None:
    """AT-11: where it cannot be told of the message alone."""
    link, control = relay(raw, rejects=rejects), raw.control()
    transaction = raw.declare(control)
    tag = raw.send(link, bad(product), settled=settled, transaction=transaction)
    if not settled:
        told(raw, link, tag)
    assert raw.discharge(control, transaction, fail=False).state == REJECTED


def test_at12_without_rejected_the_link_is_detached(raw: Raw, product: Product) -> None:
    """AT-12."""
    link = relay(raw, rejects=False)
    tag = raw.send(link, bad(product))
    assert is_detached(raw, link, product)
    assert tag not in raw.outcomes


def test_settled_in_a_transaction_the_link_goes_on(raw: Raw, product: Product) -> None:
    """AT-11, AT-12: that it cannot be committed is enough."""
    link, control = relay(raw, rejects=False), raw.control()
    raw.send(link, bad(product), settled=True, transaction=raw.declare(control))
    assert not is_detached(raw, link, product)


def test_at13_with_the_error_of_a_direct_link(raw: Raw, product: Product) -> None:
    """AT-13."""
    link, expected = relay(raw), refused_directly(raw, product)
    raw.send(link, bad(product), settled=True)
    assert is_detached(raw, link, product)
    assert raw.detached[link.name].condition == expected


def test_at14_with_the_tag_of_the_delivery(raw: Raw, product: Product) -> None:
    """AT-14: in the error, whichever way that is told."""
    link = relay(raw)
    assert told(raw, link, raw.send(link, bad(product), tag="the-tag")).info == {"delivery-tag": b"the-tag"}


def test_at16_the_capability_is_offered(raw: Raw) -> None:
    """AT-15, AT-16: and a target without address is answered with one."""
    assert "ANONYMOUS-RELAY" in raw.offered
    link = relay(raw)
    assert (link.remote_target.type, link.remote_target.address) == (Terminus.TARGET, None)


def test_at21_provisional_outcomes(raw: Raw, product: Product) -> None:
    """AT-21: what is told within a transaction names it."""
    link, control = relay(raw), raw.control()
    transaction = raw.declare(control)
    assert raw.outcome(raw.send(link, bad(product), transaction=transaction)).transaction == transaction


def test_at22_nobody_sees_it_before_its_end(raw: Raw, product: Product) -> None:
    """AT-22: a message of a transaction comes after one that was sent later, outside of it."""
    address = product.good.format(fresh())
    raw.receive(address)
    link, control = relay(raw), raw.control()
    transaction = raw.declare(control)
    raw.outcome(raw.send(link, Message(address=address, body="in"), transaction=transaction))
    raw.outcome(raw.send(link, Message(address=address, body="out")))
    assert raw.take(1) == ["out"]
    assert raw.discharge(control, transaction, fail=False).state == ACCEPTED
    assert raw.take(1) == ["in"]


def test_at23_a_rollback_succeeds(raw: Raw, product: Product) -> None:
    """AT-23: whatever was in it."""
    link, control = relay(raw), raw.control()
    transaction = raw.declare(control)
    raw.outcome(raw.send(link, bad(product), transaction=transaction))
    assert raw.discharge(control, transaction, fail=True).state == ACCEPTED


def test_at24_refused_links(raw: Raw, product: Product) -> None:
    """AT-24: answered without a target, then detached with the reason."""
    link = raw.attach(product.bad)
    assert link.remote_target.type == Terminus.UNSPECIFIED
    assert raw.end_of(link).condition is not None


def test_the_page_tells_what_is_expected_here() -> None:
    """Each row is about one of the three and a requirement that there is, and is expected of some test."""
    page = tomllib.loads((ROOT / "tools/docs/amqp.toml").read_text("utf-8"))
    known = {row[0] for specification in page["specification"] for row in specification["rows"]}
    files = ROOT.glob("tests/adapters/amqp/test_amqp_foreign*.py")
    tests = [name for each in files for name in re.findall(r"def (test_\w+)", each.read_text("utf-8"))]
    assert ROWS
    for broker, name, _, *only in ROWS:
        assert broker in TITLES.values()
        assert name in known
        assert [each for each in tests if each in only or each.split("_")[1] == name.replace("-", "").lower()]
