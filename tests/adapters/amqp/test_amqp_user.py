"""brokers.amqp as a user of the anonymous terminus, against a peer that does as it is told.

The names AT-xx are those of `docs/conformance-amqp.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import proton
import pytest
from amqp_kit import PATIENCE, RELAY, Peer, detach, discharged, settle, text, wait_until
from ports import nobody
from proton import Condition, Delivery, Described, Terminus, symbol, ulong

import brokers
from brokers import (
    BrokerError,
    Completion,
    ConnectionFailedError,
    ConnectionLostError,
    DestinationGoneError,
    DestinationKind,
    Message,
    SendFailedError,
    SendResult,
    queue,
    topic,
)
from brokers.amqp import AmqpConnection
from brokers.amqp.endpoints import redirected
from brokers.amqp.outcomes import RedirectedError, ReleasedError
from brokers.amqp.send import OutgoingMessage
from brokers.amqp.url import AmqpOptions, login_of

TRANSACTIONAL = 0x34


def connect(peer: Peer, **options: Any) -> brokers.Connection:
    """Connect to the peer."""
    return brokers.connect(peer.url, timeout=PATIENCE, reconnect=False, **options)


def error_of(future: Future[Any]) -> BaseException | None:
    """Wait for the error of a send."""
    return future.exception(PATIENCE)


def read(octets: bytes) -> proton.Message:
    """Read a message as somebody else would."""
    message = proton.Message()
    message.decode(octets)
    return message


def test_at01_at18_one_link_for_all_destinations() -> None:
    """AT-01, AT-18: with the capability desired and offered, `to` names the destination and the target is null."""
    seen: list[tuple[str | None, Any]] = []

    def keep(delivery: Any, octets: bytes) -> None:
        message = read(octets)
        seen.append((message.address, message.body))
        settle(delivery, Delivery.ACCEPTED)

    with Peer(on_transfer=keep) as peer, connect(peer) as connection:
        for number, name in enumerate(("a", "b", "a")):
            connection.send(text(queue(name), str(number))).result(PATIENCE)
        connection.send(text(topic("t"), "3")).result(PATIENCE)
    assert seen == [("a", "0"), ("b", "1"), ("a", "2"), ("t", "3")]
    assert peer.desired == [[RELAY]]
    (link,) = peer.attached
    assert (link.is_sender, link.address, link.dynamic, link.target_type) == (True, None, False, Terminus.TARGET)
    assert link.outcomes == [f"amqp:{each}:list" for each in ("accepted", "rejected", "released", "modified")]


def test_at17_without_the_offer_each_destination_has_a_link() -> None:
    """AT-17: a partner that does not offer it is never sent a null target; links are kept for the next message."""
    with Peer(offers=()) as peer, connect(peer) as connection:
        for name in ("a", "b", "a"):
            connection.send(text(queue(name))).result(PATIENCE)
        connection.send(text(topic("a"))).result(PATIENCE)
    assert [(link.address, link.capabilities) for link in peer.attached] == [
        ("a", ["queue"]),
        ("b", ["queue"]),
        ("a", ["topic"]),
    ]


def test_at19_not_used_unless_desired() -> None:
    """AT-19: a client that did not desire the capability never uses it, though it is offered."""
    with Peer() as peer, connect(peer, anonymous_relay=False) as connection:
        connection.send(text(queue("a"))).result(PATIENCE)
    assert peer.desired == [[]]
    assert [link.address for link in peer.attached] == ["a"]


def test_links_that_were_not_used_for_long_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the anonymous terminus links do not pile up."""
    monkeypatch.setattr("brokers.amqp.send.MAX_LINKS", 2)
    with Peer(offers=()) as peer, connect(peer) as connection:
        for name in ("a", "b", "c", "a"):
            connection.send(text(queue(name))).result(PATIENCE)
    assert [link.address for link in peer.attached] == ["a", "b", "c", "a"]


def not_found(**info: Any) -> Condition:
    """Make the condition of a destination that there is not."""
    return Condition("amqp:not-found", "no such queue\n\tat org.example", {symbol(k): v for k, v in info.items()})


OUTCOMES: dict[str, tuple[Callable[[Any], None], type[Exception], str]] = {
    "rejected": (
        lambda d: settle(d, Delivery.REJECTED, Condition("amqp:precondition-failed", "no")),
        SendFailedError,
        "amqp:precondition-failed: no$",
    ),
    "rejected without a reason": (lambda d: settle(d, Delivery.REJECTED), SendFailedError, "no reason given"),
    "not found": (lambda d: settle(d, Delivery.REJECTED, not_found()), DestinationGoneError, "no such queue$"),
    "redirect": (
        lambda d: settle(
            d,
            Delivery.REJECTED,
            Condition(
                "amqp:link:redirect",
                "moved",
                {symbol("network-host"): "10.0.0.1", symbol("port"): 5672, symbol("address"): "q2"},
            ),
        ),
        RedirectedError,
        "amqp:link:redirect: moved: try network-host 10.0.0.1, port 5672, address q2",
    ),
    "not implemented": (
        lambda d: settle(d, Delivery.REJECTED, Condition("amqp:not-implemented")),
        SendFailedError,
        "amqp:not-implemented",
    ),
    "released": (lambda d: settle(d, Delivery.RELEASED), ReleasedError, "released"),
    "modified": (
        lambda d: settle(d, Delivery.MODIFIED, failed=True, undeliverable=True),
        SendFailedError,
        r"modified \(delivery failed, not deliverable here\)",
    ),
    "settled": (
        lambda d: d.settle(),
        SendFailedError,
        "settled the message without an outcome: whether .* is not known",
    ),
    "detached": (lambda d: detach(d, not_found()), DestinationGoneError, "detached the link: amqp:not-found"),
    "detached, unnamed": (lambda d: detach(d, not_found(), names_it=False), DestinationGoneError, "amqp:not-found"),
}


@pytest.mark.parametrize("what", OUTCOMES)
def test_at05_every_outcome_surfaces_at_its_send(what: str) -> None:
    """AT-05, AT-07, AT-10: whatever the partner makes of one message, its sender is told; the next one is sent."""
    act, kind, why = OUTCOMES[what]

    def answer(delivery: Any, octets: bytes) -> None:
        act(delivery) if read(octets).address == "bad" else settle(delivery, Delivery.ACCEPTED)

    with Peer(on_transfer=answer) as peer, connect(peer, redirect_hosts=()) as connection:
        error = error_of(connection.send(text(queue("bad"))))
        connection.send(text(queue("good"))).result(PATIENCE)
    assert type(error) is kind
    with pytest.raises(kind, match=why):
        raise error


def test_at14_the_tag_tells_which_of_several_failed() -> None:
    """AT-14: of messages in flight when the link is detached, the one that its error names failed; of the others it is
    not known; what was not sent yet goes out over the next link."""
    held: list[Any] = []

    def answer(delivery: Any, octets: bytes) -> None:
        held.append(delivery)
        if read(octets).address == "late":
            settle(delivery, Delivery.ACCEPTED)
        elif len(held) == 3:
            detach(held[1], not_found())

    with Peer(on_transfer=answer, credit=3) as peer, connect(peer) as connection:
        futures = [connection.send(text(queue(name))) for name in ("a", "bad", "b", "late")]
        errors = [error_of(future) for future in futures]
    assert [type(error) for error in errors] == [
        ConnectionLostError,
        DestinationGoneError,
        ConnectionLostError,
        type(None),
    ]
    assert len(peer.attached) == 2


def test_refused_links_fail_their_sends() -> None:
    """Without the anonymous terminus a destination that there is not is known when its link is refused (AT-24)."""
    with Peer(offers=(), refuses={"bad": not_found()}) as peer, connect(peer) as connection:
        futures = [connection.send(text(queue("bad"))) for _ in range(2)]
        errors = [error_of(future) for future in futures]
        connection.send(text(queue("good"))).result(PATIENCE)
    assert [type(error) for error in errors] == [DestinationGoneError] * 2


def test_no_more_is_sent_than_there_is_credit() -> None:
    """What has no credit waits; it goes out as credit comes."""
    with Peer(credit=2, on_transfer=lambda delivery, octets: None) as peer, connect(peer) as connection:
        futures = [connection.send(text(queue(str(number)))) for number in range(5)]
        tags = [peer.arrived.get(timeout=PATIENCE) for _ in range(2)]
        peer.on_transfer = lambda delivery, octets: settle(delivery, Delivery.ACCEPTED)
        (link,) = peer.links.values()
        assert peer.arrived.empty()
        peer.do(lambda: link.flow(10))
        tags += [peer.arrived.get(timeout=PATIENCE) for _ in range(3)]
        assert len(set(tags)) == 5
        for future in futures[2:]:
            future.result(PATIENCE)
        peer.cut()
        assert [type(error_of(future)) for future in futures[:2]] == [ConnectionLostError] * 2


def test_at21_provisional_outcomes_of_a_transaction() -> None:
    """AT-21: a message refused within a transaction is told as such by the commit, which stands."""

    def answer(delivery: Any, octets: bytes) -> None:
        if delivery.link.remote_target.type == Terminus.COORDINATOR:
            over = discharged(delivery, octets, b"\x00\xfftxn")
            if over is not None:
                ended.append(over)
                settle(delivery, Delivery.ACCEPTED)
            return
        states.append(bytes(delivery.remote.data[0]))
        error = Described(ulong(0x1D), [symbol("amqp:not-found"), "no such queue", None])
        outcome = Described(ulong(0x25), [error]) if read(octets).address == "bad" else Described(ulong(0x24), [])
        delivery.local.data = [b"\x00\xfftxn", outcome]
        delivery.update(TRANSACTIONAL)
        delivery.settle()

    states: list[Any] = []
    ended: list[Any] = []
    with Peer(on_transfer=answer) as peer, connect(peer) as connection:
        transaction = connection.begin()
        for name in ("a", "bad", "b"):
            transaction.send(text(queue(name)))
        (refused,) = transaction.commit().result(PATIENCE)
    assert (refused.position, type(refused.error)) == (1, DestinationGoneError)
    assert states == [b"\x00\xfftxn"] * 3
    assert ended == [(b"\x00\xfftxn", False)]


def test_at11_a_refused_discharge_fails_the_commit() -> None:
    """AT-11: a partner that does not carry out a transaction says so, and the connection ends; nothing is silent."""

    def answer(delivery: Any, octets: bytes) -> None:
        if delivery.link.remote_target.type != Terminus.COORDINATOR:
            return
        if discharged(delivery, octets) is not None:
            settle(delivery, Delivery.REJECTED, Condition("amqp:transaction:rollback", "poisoned"))

    with Peer(on_transfer=answer) as peer, connect(peer) as connection:
        transaction = connection.begin()
        transaction.send(text(queue("a")))
        with pytest.raises(SendFailedError, match="amqp:transaction:rollback: poisoned"):
            transaction.commit().result(PATIENCE)


@pytest.mark.parametrize("condition", ["amqp:not-implemented", "amqp:unauthorized-access", "amqp:not-allowed"])
def test_a_partner_without_transactions(condition: str) -> None:
    """A coordinator that is refused makes the commit say what is missing, at all, or for this user."""
    refusal = Condition(condition, "no transactions")
    with Peer(refuses={None: refusal}, offers=()) as peer, connect(peer) as connection:
        transaction = connection.begin()
        transaction.send(text(queue("a")))
        with pytest.raises(brokers.UnsupportedError, match="no transactions"):
            transaction.commit().result(PATIENCE)


def test_a_coordinator_that_is_refused_for_now() -> None:
    """The commit fails; the next one asks again."""

    def answer(delivery: Any, octets: bytes) -> None:
        is_control = delivery.link.remote_target.type == Terminus.COORDINATOR
        if not is_control or discharged(delivery, octets) is not None:
            settle(delivery, Delivery.ACCEPTED)

    refusal = Condition("amqp:resource-limit-exceeded", "too many links")
    with Peer(on_transfer=answer, refuses={None: refusal}, offers=()) as peer, connect(peer) as connection:
        transaction = connection.begin()
        transaction.send(text(queue("a")))
        with pytest.raises(SendFailedError, match=r"refused to begin transactions: .*: too many links"):
            transaction.commit().result(PATIENCE)
        peer.refuses.clear()
        again = connection.begin()
        again.send(text(queue("a")))
        assert again.commit().result(PATIENCE) == ()


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_message_above_the_size_that_the_broker_takes(in_transaction: bool) -> None:
    """It is refused alone: were it sent, the broker would detach the link, and of the others it would not be known."""

    def answer(delivery: Any, octets: bytes) -> None:
        if delivery.link.remote_target.type != Terminus.COORDINATOR:
            sizes.append(len(octets))
            settle(delivery, Delivery.ACCEPTED)
        elif discharged(delivery, octets) is not None:
            settle(delivery, Delivery.ACCEPTED)

    sizes: list[int] = []
    with Peer(on_transfer=answer, max_message=1000) as peer, connect(peer) as connection:
        messages = [text(queue("q"), "x" * size) for size in (1, 2000, 1, 300_000, 1)]
        if in_transaction:
            transaction = connection.begin()
            for message in messages:
                transaction.send(message)
            refused = {each.position: each.error for each in transaction.commit().result(PATIENCE)}
        else:
            sent = [connection.send(message) for message in messages]
            errors = [error_of(each) for each in sent]
            refused = {at: error for at, error in enumerate(errors) if isinstance(error, SendFailedError)}
    assert {at: error.is_known for at, error in refused.items()} == {1: True, 3: True}
    assert "takes messages of 1000 octets here, and this one has 300" in str(refused[3])
    assert len(sizes) == 3


def test_more_consumers_than_the_broker_has_sessions_for() -> None:
    """Each further one is refused at once, and says why; when one has ended there is room again."""
    with Peer(sessions=3) as peer, connect(peer) as connection:
        first, _ = (connection.consume(queue(name), lambda delivery: None) for name in "ab")
        with pytest.raises(BrokerError, match="allows 3 sessions on a connection"):
            connection.consume(queue("c"), lambda delivery: None)
        first.close()
        connection.consume(queue("c"), lambda delivery: None)
        assert [each.address for each in peer.attached] == ["a", "b", "c"]


def test_messages_that_wait_are_not_compared_with_each_other() -> None:
    """A commit of many messages without credit takes time in proportion to their number."""
    compared: list[object] = []

    class Counted(OutgoingMessage):
        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return self is other

        __hash__ = OutgoingMessage.__hash__

    with Peer(credit=0) as peer, connect(peer) as connection:
        assert isinstance(connection, AmqpConnection)
        session = connection._current()
        with session.held():
            outbox = session.outboxes.to(queue("q"))
            assert not any(outbox.post(Counted(b"x", lambda error: None)) for _ in range(100))
    assert compared == []


async def awaited(sent: Completion[SendResult]) -> None:
    """Await a send in a task that is cancelled."""

    async def wait() -> SendResult:
        return await sent

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(
    "give_up",
    [
        lambda connection, message: connection.send(message).withdraw(),
        lambda connection, message: connection.send(message).cancel(),
        lambda connection, message: asyncio.run(awaited(connection.send(message))),
        lambda connection, message: connection.begin_send(message, lambda *_: None)(),
        lambda connection, message: connection.begin_answer(None, message, lambda *_: None)(),
    ],
    ids=["withdraw", "cancel", "await", "begin_send", "begin_answer"],
)
def test_what_waits_for_credit_is_never_sent_once_its_sender_has_given_up(
    give_up: Callable[[brokers.Connection, Message], object],
) -> None:
    """Whichever way the sender gives up."""
    with Peer(credit=0) as peer, connect(peer) as connection:
        give_up(connection, text())
        last = connection.send(text())
        wait_until(lambda: peer.links)
        (link,) = peer.links.values()
        peer.do(lambda: link.flow(10))
        assert error_of(last) is None
        assert (peer.arrived.get(timeout=PATIENCE), peer.arrived.empty()) == ("1", True)


def test_unused_credit_that_the_broker_wants_back() -> None:
    """It is given back once nothing waits. Spec: AMQP 1.0 part 2, 2.6.7."""
    with Peer(credit=1, on_transfer=lambda delivery, octets: None) as peer, connect(peer) as connection:
        for _ in range(3):
            connection.send(text(queue("q")))
        peer.arrived.get(timeout=PATIENCE)
        (link,) = peer.links.values()
        peer.do(lambda: link.drain(10))
        for _ in range(2):
            peer.arrived.get(timeout=PATIENCE)
        wait_until(lambda: link.credit == 0 and not link.draining())


def test_temporary_destinations_are_dynamic_targets() -> None:
    """The peer names them, and is told their kind."""
    with Peer() as peer, connect(peer) as connection:
        made = connection.temporary(DestinationKind.TEMPORARY_TOPIC)
    (link,) = peer.attached
    assert (link.dynamic, link.address, link.capabilities) == (True, None, ["temporary-topic"])
    assert (made.kind, made.name) == (DestinationKind.TEMPORARY_TOPIC, "node-1")


# Redirects of links


def elsewhere(port: int, **more: Any) -> Condition:
    """Make the error that sends a link on."""
    info = {symbol("network-host"): "127.0.0.1", symbol("port"): port, symbol("address"): "there"}
    return Condition("amqp:link:redirect", "moved", info | {symbol(key): value for key, value in more.items()})


@pytest.mark.parametrize("offers", [(), (RELAY,)])
def test_redirected_sends_are_followed(offers: tuple[str, ...]) -> None:
    """WS-24, WS-26, over TCP: to the place and address that the broker says, and for the next message too."""
    with Peer() as goal:

        def answer(delivery: Any, octets: bytes) -> None:
            settle(delivery, Delivery.REJECTED, elsewhere(goal.port))

        with (
            Peer(offers=offers, refuses={"q": elsewhere(goal.port)}, on_transfer=answer) as peer,
            connect(peer) as connection,
        ):
            for _ in range(2):
                assert connection.send(text(queue("q"))).result(PATIENCE).message_id
            assert len(peer.containers) == len(goal.containers) == 1
        assert goal.arrived.qsize() == 2


def test_redirected_consumers_are_followed() -> None:
    """The consumer is at the other broker, and gets what is there; other links stay."""
    with Peer() as goal, Peer(refuses={"q": elsewhere(goal.port)}) as peer, connect(peer) as connection:
        consumer = connection.consume(queue("q"), lambda delivery: None)
        connection.consume(queue("stays"), lambda delivery: None)
        assert [link.address for link in goal.attached] == ["there"]
        assert [link.address for link in peer.attached] == ["q", "stays"]
        consumer.close()


@pytest.mark.parametrize(
    ("given", "info", "is_allowed"),
    [
        (["good"], {"network-host": "good"}, True),
        (["good"], {"hostname": "good"}, True),
        (["good"], {"network-host": "good", "hostname": "GOOD"}, True),
        (["good"], {"network-host": "good", "hostname": "evil"}, False),
        (["good"], {"network-host": "evil", "hostname": "good"}, False),
        (["good"], {}, False),
        (None, {"network-host": "one", "hostname": "another"}, True),
    ],
)
def test_both_hosts_of_a_redirect_must_be_allowed(given: list[str] | None, info: Any, is_allowed: bool) -> None:
    """The login goes to one, and TLS believes the certificate of the other."""
    login = login_of("amqps://broker", {}, AmqpOptions(redirect_hosts=given))
    assert (redirected(login, info) is not None) is is_allowed


def test_what_is_said_of_a_redirect_shows_no_query() -> None:
    """It may hold a secret."""
    closes = Condition("amqp:connection:redirect", "x", elsewhere(1, path="/there?token=tops3cret").info)
    with Peer(closes_with=closes) as peer, pytest.raises(ConnectionFailedError, match="path /there") as caught:
        connect(peer, redirect_hosts=())
    assert "tops3cret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"redirect_hosts": ()}, {"redirect_hosts": ["broker.example"]}])
def test_redirects_lead_only_where_they_may(options: dict[str, Any]) -> None:
    """The error says where it would have gone."""
    with Peer() as goal, Peer(offers=(), refuses={"q": elsewhere(goal.port)}) as peer:
        with connect(peer, **options) as connection:
            error = error_of(connection.send(text(queue("q"))))
            with pytest.raises(SendFailedError, match=f"try network-host 127.0.0.1, port {goal.port}, address there"):
                raise error or AssertionError
            with pytest.raises(RedirectedError, match="cannot consume from queue:q"):
                connection.consume(queue("q"), lambda delivery: None)
        assert goal.containers == []
    closes = Condition("amqp:connection:redirect", "x", elsewhere(1).info)
    with Peer(closes_with=closes) as peer, pytest.raises(brokers.ConnectionFailedError, match="try network-host"):
        connect(peer, **options)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("path", "/x HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET /"),
        ("path", "/a b"),
        ("path", "/\u00e4"),
        ("hostname", "127.0.0.1\r\nX-Evil: 1"),
        ("hostname", "b\u00fccher.example"),
        ("network-host", "127.0.0.1\t"),
        ("network-host", 5),
        *[("scheme", each) for each in ("amqps", "AMQPS", "amqp+ssl", "amqp+nio+ssl", "https")],
        *[("scheme", each) for each in ("wss", "WSS", "amqp+wss", "amqpwss", "AMQPWSS")],
        ("scheme", symbol("amqpwss")),
    ],
)
def test_redirects_that_cannot_be_followed_safely(key: str, value: object) -> None:
    """WS-23: what would write lines of its own into the HTTP request, or wants TLS where we have none, is an error."""
    with Peer() as goal:
        closes = Condition("amqp:connection:redirect", "x", elsewhere(goal.port, **{key: value}).info)
        with Peer(closes_with=closes) as peer, pytest.raises(brokers.ConnectionFailedError, match="try"):
            connect(peer)
        with Peer(offers=(), refuses={"q": elsewhere(goal.port, **{key: value})}) as peer, connect(peer) as connection:
            with pytest.raises(RedirectedError, match="amqp:link:redirect"):
                connection.consume(queue("q"), lambda delivery: None)
            assert isinstance(error_of(connection.send(text(queue("q")))), SendFailedError)
        assert goal.containers == []


@pytest.mark.parametrize(
    ("url", "path", "why"),
    [
        ("amqp+ws://host", "/x\r\nX-Evil: 1", "the path"),
        ("amqp+ws://host", "/a b", "write other characters as %XX"),
        ("amqp+ws://host", "/\u00e4", "the path"),
        ("amqp+ws://b\u00fccher.example", None, "Punycode"),
    ],
)
def test_hosts_and_paths_are_visible_ascii(url: str, path: str | None, why: str) -> None:
    """Anything else would end up in the request as it is."""
    with pytest.raises(ValueError, match=why):
        login_of(url, {}, AmqpOptions(path=path))


def test_credentials_that_are_none() -> None:
    """What gives them returns something else: an error that names it, and nothing is said to the broker."""
    with Peer() as peer, pytest.raises(ConnectionFailedError, match="must return Credentials, got tuple"):
        connect(peer, credentials=lambda: ("me", "pw"))


def test_redirects_in_a_circle_end() -> None:
    """After five the error is told."""
    with Peer(offers=()) as peer:
        peer.refuses.update({name: elsewhere(peer.port) for name in ("q", "there")})
        with connect(peer) as connection:
            error = error_of(connection.send(text(queue("q"))))
            assert isinstance(error, SendFailedError)
            assert "amqp:link:redirect" in str(error)
            assert len(peer.containers) == 6


def test_a_redirect_to_nobody() -> None:
    """Both errors are told: who sent us on, and what was there."""
    with (
        nobody() as port,
        Peer(offers=(), refuses={"q": elsewhere(port)}) as peer,
        connect(peer) as connection,
    ):
        error = error_of(connection.send(text(queue("q"))))
    with pytest.raises(SendFailedError, match=r"amqp:link:redirect: moved.*; there: no connection to amqp://"):
        raise error or AssertionError
