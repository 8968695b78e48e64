"""JNDI names without network JNDI."""

from __future__ import annotations

import pytest

from brokers import BrokerError, Destination, queue, topic
from brokers.naming import NameNotFoundError, Names


@pytest.mark.parametrize(
    ("name", "destination"),
    [
        ("jms/orders", queue("orders")),
        ("dynamicQueues/orders", queue("orders")),
        ("dynamicQueues/a/b", queue("a/b")),
        ("dynamicTopics/news", topic("news")),
        ("dynamicQueues/mine", topic("registered")),
    ],
)
def test_lookup(name: str, destination: Destination) -> None:
    """Registered names come first; dynamic names name a queue or topic themselves."""
    names = Names({"jms/orders": queue("orders"), "dynamicQueues/mine": topic("registered")})
    assert names.lookup(name) == destination


@pytest.mark.parametrize("name", ["", "orders", "dynamicQueues/", "dynamicTopics/", "dynamicqueues/a", "ldap://host/a"])
def test_unknown(name: str) -> None:
    """Any other name is an error that says what there is; nothing is looked up over a network."""
    with pytest.raises(NameNotFoundError) as caught:
        Names({"jms/b": queue("b"), "jms/a": queue("a")}).lookup(name)
    assert str(caught.value) == (
        f"no destination is registered under the JNDI name {name!r}; registered: jms/a, jms/b; "
        "or use dynamicQueues/NAME or dynamicTopics/NAME"
    )
    assert isinstance(caught.value, BrokerError)
    assert isinstance(caught.value, LookupError)


def test_empty_registry() -> None:
    """Without registered names, the error says so."""
    with pytest.raises(NameNotFoundError, match="registered: none;"):
        Names().lookup("orders")


def test_the_registry_is_a_copy() -> None:
    """What happens to the mapping later changes nothing."""
    mapping = {"a": queue("a")}
    names = Names(mapping)
    mapping.clear()
    assert names.lookup("a") == queue("a")
