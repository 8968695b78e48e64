"""What a client asks of a source, and what our listener says that it gets: nothing is shown that is not applied."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from amqp_broken import ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, OPEN, TRANSFER
from amqp_raw import frame
from amqp_wire import BEGUN, OPENED, Wire, begun, flow, source, target
from broker_contract_kit import Inbox, text
from calling_kit import eventually
from proton import UNDESCRIBED, Array, Data, Described, symbol, ubyte, uint, ulong

import brokers
from brokers import Delivery, Destination, Message, MessageType, queue, topic
from brokers.amqp.consumer import AmqpDelivery
from brokers.amqp.listener import Listener, Options
from brokers.amqp.listener.links import MAX_SELECTOR_CHARACTERS
from brokers.embedded import Broker

ACCEPTED = 0x24
SELECTOR, NO_LOCAL = "apache.org:selector-filter:string", "apache.org:no-local-filter:list"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(Broker(), port=0) as listening:
        yield listening


@pytest.fixture
def wire(listener: Listener) -> Iterator[Wire]:
    with begun(listener.port) as connected:
        yield connected


def wanted(
    address: str | None,
    durable: int = 0,
    expiry: str | None = None,
    mode: str | None = None,
    filters: dict[str, Any] | None = None,
    capabilities: tuple[str, ...] = (),
) -> Described:
    """Make a source."""
    named = {symbol(key): value for key, value in (filters or {}).items()} or None
    fields = [address, uint(durable), expiry and symbol(expiry), uint(77), False, None, mode and symbol(mode), named]
    outcomes = [symbol("amqp:accepted:list")]
    told = symbols(*capabilities) if capabilities else None
    return source(*fields, None, outcomes[0], told)


def attach(wire: Wire, asked: Described | None, name: str = "r", handle: int = 0) -> dict[str, Any]:
    """Attach a receiving link; return what the answer's source says, by its fields; empty for none."""
    wire.write(frame(ATTACH, name, uint(handle), True, None, None, asked, target()))
    said = wire.until(ATTACH).fields[5]
    if said is None:
        return {}
    names = ["address", "durable", "expiry", "timeout", "dynamic", "properties", "mode", "filter", "default"]
    return dict(zip([*names, "outcomes", "capabilities"], said.value, strict=False))


def symbols(*names: str) -> Array:
    """Make an array of symbols."""
    return Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, names))


def described(name: str | int, value: Any) -> Described:
    """Make a filter."""
    return Described(symbol(name) if isinstance(name, str) else ulong(name), value)


@pytest.mark.parametrize("descriptor", [SELECTOR, 0x468C00000004])
def test_a_selector_is_applied_and_shown(descriptor: str | int, listener: Listener, wire: Wire) -> None:
    """It is known by its descriptor, symbol or number, and shown by the name that the client has for it."""
    said = attach(wire, wanted("q", filters={"mine": described(descriptor, "JMSType = 'b'")}))
    assert {key: value.value for key, value in said["filter"].items()} == {"mine": "JMSType = 'b'"}
    with listener.broker.connect() as connection:
        for kind in "abc":
            connection.send(Message(message_type=MessageType.TEXT, body=kind, type=kind, destination=queue("q")))
    wire.write(flow(uint(0), uint(0), uint(9)))
    wire.until(TRANSFER)
    assert listener.broker.depth(queue("q")) == 3
    rest = Inbox()
    with listener.broker.connect() as connection, connection.consume(queue("q"), rest):
        assert rest.bodies(2) == ["a", "c"]


def test_what_is_not_applied_is_not_shown(wire: Wire) -> None:
    """Filters that nobody knows here, what is no filter, and noLocal of a queue are left out of the answer."""
    filters = {
        "x": described("x:other-filter:string", "a"),
        "plain": "JMSType = 'a'",
        "local": described(NO_LOCAL, []),
        "s": described(SELECTOR, "TRUE"),
        "float": Described(0.5, "JMSType = 'a'"),
        "list": Described([], "JMSType = 'a'"),
    }
    assert set(attach(wire, wanted("q", filters=filters), "one", 0)["filter"]) == {"s"}
    assert set(attach(wire, wanted("topic://t", filters=filters), "two", 1)["filter"]) == {"s", "local"}
    assert attach(wire, wanted("q", filters={"x": filters["x"]}), "three", 2).get("filter") is None


def test_what_a_target_does_not_do_is_not_shown(listener: Listener, wire: Wire) -> None:
    """Here no target lasts, and whoever receives settles first; a durable message is taken, and kept in memory."""
    asked = target("q", uint(2), symbol("never"), uint(77), False, None, symbols("queue", "x:other"))
    wire.write(frame(ATTACH, "s", uint(0), False, ubyte(0), ubyte(1), source(), asked, None, None, uint(0)))
    fields = wire.until(ATTACH).fields
    address, durable, expiry, timeout, _, _, capabilities = fields[6].value
    assert (address, durable, expiry, timeout, fields[4]) == ("q", 0, "link-detach", 0, 0)
    assert [*capabilities.elements] == ["queue"]
    header = b"\x00\x53\x70\xc0\x02\x01\x41"  # which says that it is durable
    octets = frame(TRANSFER, uint(0), uint(0), b"t", uint(0)) + header + b"\x00\x53\x77\xa1\x02hi"
    wire.write(len(octets).to_bytes(4, "big") + octets[4:])
    assert wire.until(DISPOSITION).fields[4].descriptor == ACCEPTED
    assert listener.broker.depth(queue("q")) == 1


ASKED = {
    "a queue": (wanted("q"), ("q", 0, "link-detach", "move")),
    "a queue that is durable": (wanted("q", 2, "never", "move"), ("q", 0, "link-detach", "move")),
    "a queue to look at": (wanted("q", mode="copy"), ("q", 0, "link-detach", "copy")),
    "a topic": (wanted("topic://t", mode="move"), ("topic://t", 0, "link-detach", "copy")),
    "a durable subscription": (wanted("topic://t", 2, "never", "copy"), ("topic://t", 1, "never", "copy")),
    "one by its configuration": (wanted("topic://t", 1), ("topic://t", 1, "never", "copy")),
}
"""What is asked of a source, and of the answer: address, durability, expiry, and mode."""


@pytest.mark.parametrize("what", ASKED)
def test_how_long_and_for_whom(what: str, wire: Wire) -> None:
    """A terminus lasts as long as its link, but for durable subscriptions, whose unsettled state is not kept."""
    asked, (address, durable, expiry, mode) = ASKED[what]
    said = attach(wire, asked)
    assert said["address"] == address
    assert (said["durable"] or 0, said["expiry"], said["timeout"] or 0, said["mode"]) == (durable, expiry, 0, mode)


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"s": described(SELECTOR, "a = = 1")}, "must have a name, a literal"),
        ({"s": described(SELECTOR, uint(5))}, "a selector must be a string"),
        ({"s": described(SELECTOR, "a" * 9000)}, "8192 characters"),
        (
            {"s": described(SELECTOR, "a = 1"), "t": described(0x468C00000004, "a = 2")},
            "must have at most one selector",
        ),
    ],
)
def test_a_selector_that_is_none(filters: dict[str, Any], why: str, wire: Wire) -> None:
    """The link is refused with `amqp:invalid-field`, and the session goes on."""
    assert attach(wire, wanted("q", filters=filters)) == {}
    condition, said = wire.until(DETACH).error
    assert condition == "amqp:invalid-field"
    assert why in said
    assert attach(wire, wanted("q"), "next", 1)["address"] == "q"


def test_selectors_of_one_client_together(wire: Wire) -> None:
    """They are bounded, and make room as their links end."""
    long = wanted("q", filters={"s": described(SELECTOR, "TRUE OR " * 1000 + "TRUE")})
    room = MAX_SELECTOR_CHARACTERS // 8004
    for handle in range(room):
        assert attach(wire, long, f"l{handle}", handle)["filter"]
    assert attach(wire, long, "more", room) == {}
    assert wire.until(DETACH).error[0] == "amqp:resource-limit-exceeded"
    wire.write(frame(DETACH, uint(room), True), frame(DETACH, uint(0), True))
    wire.until(DETACH)
    assert attach(wire, long, "again", room + 1)["filter"]


LONG = {"s": described(SELECTOR, "TRUE OR " * 1000 + "TRUE")}
ROOM = MAX_SELECTOR_CHARACTERS // 8004


def fill(wire: Wire, room: int = ROOM) -> None:
    """Attach as many links with a long selector as there is room for, and see that there is no more."""
    for handle in range(100, 100 + room):
        assert attach(wire, wanted("q", filters=LONG), f"l{handle}", handle)["filter"]
    assert attach(wire, wanted("q", filters=LONG), "more", 100 + room) == {}
    assert wire.until(DETACH).error[0] == "amqp:resource-limit-exceeded"


def test_the_selector_of_a_durable_subscription_counts_once(wire: Wire) -> None:
    """However often its link was detached and attached again; and not any more once it was closed."""
    for handle in range(ROOM + 2):
        assert attach(wire, wanted("topic://t", 2, filters=LONG), "mine", handle)["filter"]
        wire.write(frame(DETACH, uint(handle)))
        wire.until(DETACH)
    assert attach(wire, None, "mine", 90)["filter"]
    fill(wire, ROOM - 1)
    wire.write(frame(DETACH, uint(90), True))
    wire.until(DETACH)
    assert attach(wire, wanted("q", filters=LONG), "last", 91)["filter"]


def test_the_selector_of_a_durable_subscription_may_be_left_out(wire: Wire) -> None:
    """Then it counts no more."""
    for filters in (LONG, None):
        attach(wire, wanted("topic://t", 2, filters=filters), "mine", 0)
        wire.write(frame(DETACH, uint(0)))
        wire.until(DETACH)
    fill(wire)


def test_what_is_refused_counts_not(wire: Wire) -> None:
    """A subscription that others share cannot be had with another selector, and takes no room then."""
    assert attach(wire, wanted("topic://t", capabilities=("shared",)), "s|1")
    for handle in range(1, ROOM + 3):
        other = wanted("topic://t", filters=LONG, capabilities=("shared",))
        assert attach(wire, other, f"s|{handle + 1}", handle) == {}
        assert "has a consumer with other terms" in wire.until(DETACH).error[1]
    fill(wire)


def test_a_selector_that_was_kept_counts(listener: Listener, wire: Wire) -> None:
    """That of a durable subscription, which an earlier connection made, counts for who attaches to it."""
    attach(wire, wanted("topic://t", 2, filters=LONG), "mine", 0)
    wire.write(frame(CLOSE))
    wire.until(CLOSE)
    with Wire(listener.port) as again:
        again.write(OPENED, BEGUN)
        fill(again)
        assert attach(again, None, "mine", 0) == {}
        assert again.until(DETACH).error[0] == "amqp:resource-limit-exceeded"


def test_without_a_source(wire: Wire) -> None:
    """A link to a durable subscription that is there is answered with what it is; one that is not, with nothing."""
    kept = wanted("topic://t", 2, "never", "copy", {"jms-selector": described(SELECTOR, "TRUE")})
    attach(wire, kept, "mine", 0)
    wire.write(frame(DETACH, uint(0)))
    wire.until(DETACH)
    said = attach(wire, None, "mine", 1)
    assert (said["address"], said["durable"], said["expiry"], said["mode"]) == ("t", 1, "never", "copy")
    assert said["filter"]["jms-selector"].value == "TRUE"
    assert "topic" in str(said["capabilities"])
    wire.write(frame(DETACH, uint(1), True))
    wire.until(DETACH)
    assert attach(wire, None, "mine", 2) == {}
    assert wire.until(DETACH).error == ("amqp:not-found", "there is no durable subscription 'mine' of 'me'")


def test_without_a_source_only_who_may() -> None:
    """A right that was taken back is asked for again."""
    allowed = True
    options = Options(may=lambda user, action, destination: allowed)
    with Listener(Broker(), port=0, options=options) as listener, Wire(listener.port) as wire:
        wire.write(OPENED, BEGUN)
        attach(wire, wanted("topic://t", 2), "mine", 0)
        wire.write(frame(DETACH, uint(0)))
        wire.until(DETACH)
        allowed = False
        assert attach(wire, None, "mine", 1) == {}
        assert wire.until(DETACH).error[0] == "amqp:unauthorized-access"


SHARED_LINKS = {  # of container `me`: link, and capabilities; those of one line are one subscription, of two lines two
    "a": [("a", "shared"), ("a|2", "shared"), ("a|17", "shared")],
    "a|b": [("a|b", "shared"), ("a|b|2", "shared")],
    "a|globally": [("a|globally", "shared")],
    "global a": [("a|global", "shared global"), ("a|global2", "shared global")],
    "global a|b": [("a|b|global", "shared global")],
    "|2": [("|2", "shared")],
}


def test_names_of_shared_subscriptions(listener: Listener) -> None:
    """What is behind a `|` tells links apart only if it is what Qpid JMS puts there; else it is part of the name."""
    with Wire(listener.port) as wire:
        wire.write(OPENED, BEGUN)
        handle = 0
        for links in SHARED_LINKS.values():
            for name, capabilities in links:
                attach(wire, wanted("topic://t", 2, capabilities=tuple(capabilities.split())), name, handle)
                handle += 1
        eventually(lambda: subscribers(listener) == len(SHARED_LINKS), "each has its own")


def subscribers(listener: Listener) -> int:
    """Count the copies of a message to a topic."""
    with listener.broker.connect() as connection:
        before = listener.broker.depth(topic("t"))
        connection.send(text(topic("t"), "1")).result(10)
        return listener.broker.depth(topic("t")) - before


def test_a_global_subscription_of_a_containers_name(listener: Listener) -> None:
    """One called as a container that does not last is another one than the durable `volatile` of that container."""
    with Wire(listener.port) as wire:
        wire.write(OPENED, BEGUN)
        assert attach(wire, wanted("topic://t", 2), "volatile", 0) is not None
        assert (
            attach(wire, wanted("topic://t", capabilities=("shared", "global")), "me|global-volatile1", 1) is not None
        )
        assert subscribers(listener) == 2


def sole(container: str = "me", *desired: str) -> bytes:
    """Open a connection with capabilities that are desired, one at most."""
    wanted = symbol(desired[0]) if desired else None
    return frame(OPEN, container, None, None, None, None, None, None, None, wanted)


SOLE = "sole-connection-for-container"


@pytest.mark.parametrize(("first", "second"), [((SOLE,), (SOLE,)), ((SOLE,), ()), ((), (SOLE,))])
def test_a_sole_connection(first: tuple[str, ...], second: tuple[str, ...], listener: Listener) -> None:
    """Where one of two is to be the only one of its container, the second is told so; when the first ends, it may."""
    with Wire(listener.port) as one:
        one.write(sole("me", *first))
        opened = one.until(OPEN)
        assert SOLE in str(opened.fields[7])
        with Wire(listener.port) as two:
            two.write(sole("me", *second))
            assert {str(key): value for key, value in two.until(OPEN).fields[9].items()}[
                "amqp:connection-establishment-failed"
            ]
            (error,) = two.until(CLOSE).fields
            assert str(error.value[0]) == "amqp:invalid-field"
            assert error.value[2] == {symbol("invalid-field"): symbol("container-id")}
        with Wire(listener.port) as other:
            other.write(sole("other", SOLE), BEGUN)
            other.until(BEGIN)
        one.write(frame(CLOSE))
        one.until(CLOSE)
        with Wire(listener.port) as again:
            again.write(sole("me", *second), BEGUN)
            again.until(BEGIN)


def test_two_that_do_not_mind(listener: Listener) -> None:
    """A container may have several connections where none is to be the only one."""
    with Wire(listener.port) as one, Wire(listener.port) as two:
        for each in (one, two):
            each.write(sole(), BEGUN)
            each.until(BEGIN)


def test_a_sole_connection_at_two_listeners(listener: Listener) -> None:
    """It is the only one of all listeners that the broker has, as `soapjms broker --amqp --ws` has two."""
    with Listener(listener.broker, port=0) as beside, Wire(listener.port) as one:
        one.write(sole("me", SOLE), BEGUN)
        one.until(BEGIN)
        with Wire(beside.port) as two:
            two.write(sole("me"))
            (error,) = two.until(CLOSE).fields
            assert str(error.value[0]) == "amqp:invalid-field"
        one.write(frame(CLOSE))
        one.until(CLOSE)
        with Wire(beside.port) as again:
            again.write(sole("me", SOLE), BEGUN)
            again.until(BEGIN)
            with Wire(listener.port) as other:
                other.write(sole("me"))
                other.until(CLOSE)


@pytest.mark.parametrize("place", [queue("q"), topic("t")])
def test_our_own_client(place: Destination, listener: Listener) -> None:
    """It selects too; a selector that is none is an error, and the connection goes on."""
    with brokers.connect(listener.url) as connection:
        with pytest.raises(brokers.BrokerError, match="amqp:invalid-field"):
            connection.consume(place, Inbox(), selector="a = = 1")
        inbox = Inbox()
        connection.consume(place, inbox, selector="JMSType LIKE 'b%'")
        for kind in ("a", "b1", "c", "b2"):
            message = Message(message_type=MessageType.TEXT, body=kind, type=kind, destination=place)
            connection.send(message).result(10)
        assert inbox.bodies(2) == ["b1", "b2"]


@pytest.mark.parametrize(("place", "is_settled"), [(topic("t"), True), (queue("q"), False)])
def test_copies_that_are_taken_for_accepted_come_settled(
    place: Destination, is_settled: bool, listener: Listener
) -> None:
    """A topic's copy is lost with its link anyway; the broker gets credit nevertheless, before it runs dry."""
    arrived = list[Delivery]()
    with (
        brokers.connect(listener.url) as connection,
        connection.consume(place, arrived.append, prefetch=8, auto_accept=True),
    ):
        for number in range(50):
            connection.send(text(place, f"{number}")).result(10)
        eventually(lambda: len(arrived) == 50, "all have come")
    assert [each.message.body for each in arrived] == [f"{number}" for number in range(50)]
    assert {each.is_settled for each in arrived if isinstance(each, AmqpDelivery)} == {is_settled}


def test_what_was_read_for_somebody_lazy_says_when(listener: Listener) -> None:
    """Within the time that it took; for others nothing is late."""
    lazily, at_once = list[Delivery](), list[Delivery]()
    begun = time.time()
    with (
        brokers.connect(listener.url) as lazy,
        brokers.connect(listener.url) as connection,
        lazy.consume(topic("t"), lazily.append, prefetch=100, auto_accept=True, lazy=True),
        connection.consume(topic("t"), at_once.append, prefetch=100, auto_accept=True),
    ):
        for number in range(9):
            connection.send(text(topic("t"), f"{number}")).result(10)
        eventually(lambda: len(lazily) == len(at_once) == 9, "all have come")
    times = [each.read_at or 0.0 for each in lazily]
    assert begun <= times[0] <= times[-1] <= time.time()
    assert times == sorted(times)
    assert {each.read_at for each in at_once} == {None}
