"""brokers.amqp.listener: clients that make mistakes, send octets in any pieces, or are many; more in `make soak`."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from amqp_mutations import PATIENCE, Entrance, Phase, conversation, hear_mutated
from amqp_raw import Raw
from amqp_soak import hold, no_thread_left, sending_one
from proton import Message
from waiting import eventually

from brokers import queue
from brokers.amqp.listener import Listener, Options
from brokers.amqp.url import WebSocketBinding
from brokers.embedded import Broker


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a client does is no error of ours."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_mutated_input() -> None:
    """A thousand conversations with mistakes, over TCP and in open WebSockets: others are served, nobody is left."""
    with no_thread_left():
        heard = hear_mutated(1000, seed=20261121)  # `make soak` draws others
    assert dict(heard) == {"tcp": 334, "csprd01": 333, "lenient": 333}


def test_values_that_cannot_be_written() -> None:
    """An attach with an array that leads beyond its end is answered without what is in there."""
    with Listener(Broker(), port=0) as listener:
        said = conversation(listener.port)
        bad = [Phase([unit.replace(GOOD, BEYOND) for unit in phase.units], 0) for phase in said]
        assert bad != said
        for _ in range(10):
            Entrance(listener, None).say(bad)
        with Raw(listener.port) as client:
            client.receive("q")


GOOD, BEYOND = b"\0\0\0\x12amqp:released", b"\0\0\x0d\xc2amqp:released"


# Pieces


@pytest.mark.parametrize("token", [None, "amqp"])
def test_octets_in_any_pieces(token: str | None) -> None:
    """A conversation is understood cut in two at each octet, in pieces of any size, and all at once."""
    broker = Broker()
    with Listener(broker, port=0, options=Options(binding=token and WebSocketBinding.CS01)) as listener:
        with Listener(broker, port=0) as plain:
            said = sending_one(plain.port)
        longest = max(sum(map(len, phase.units)) for phase in said)
        cuts = [partial(in_two, at) for at in range(longest)] + [partial(in_pieces, size) for size in SIZES]
        for cut in cuts:
            Entrance(listener, token).say(said, cut)
        eventually(lambda: listener.guests == 0, "all are gone")
    assert broker.depth(queue("count")) == 1 + len(cuts)


SIZES = (1, 2, 3, 5, 7, 8, 9, 64, 100)


def in_two(at: int, units: list[bytes]) -> list[bytes]:
    """Cut octets in two."""
    octets = b"".join(units)
    return [octets[:at], octets[at:]]


def in_pieces(size: int, units: list[bytes]) -> list[bytes]:
    """Cut octets into pieces of a size."""
    octets = b"".join(units)
    return [octets[at : at + size] for at in range(0, len(octets), size)]


@pytest.mark.parametrize("token", [None, "amqp"])
def test_frames_joined_in_any_way(token: str | None) -> None:
    """One by one, in twos, in threes: over WebSocket in as many messages."""
    broker = Broker()
    with Listener(broker, port=0, options=Options(binding=token and WebSocketBinding.LENIENT)) as listener:
        with Listener(broker, port=0) as plain:
            said = sending_one(plain.port)
        for size in range(1, 5):
            Entrance(listener, token).say(
                said, lambda units, size=size: [b"".join(units[at : at + size]) for at in range(0, len(units), size)]
            )
        eventually(lambda: listener.guests == 0, "all are gone")
    assert broker.depth(queue("count")) == 1 + 4


# Many


@pytest.mark.parametrize("binding", [None, WebSocketBinding.LENIENT])
def test_many_connections(binding: WebSocketBinding | None) -> None:
    """Idle ones do not hold up busy ones, and are still served; all are forgotten when they go."""
    hold(idle=50, busy=5, messages=20, binding=binding)


def test_as_many_as_are_let_in() -> None:
    """The next one is turned away, until somebody goes; who is in notices nothing."""
    with Listener(Broker(), port=0, options=Options(max_connections=3, max_logins=3)) as listener:
        inside = [Raw(listener.port) for _ in range(3)]
        with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as late:
            assert late.recv(10) == b""
        for client in inside:
            client.receive("q")
        inside[0].__exit__(None, None, None)
        eventually(lambda: listener.guests == 2, "one is gone")
        with Raw(listener.port) as next_one:
            next_one.receive("q")
        for client in inside[1:]:
            client.__exit__(None, None, None)


def test_a_silent_client_is_given_up() -> None:
    """One that never reads nor writes again, and keeps the connection."""
    with Listener(Broker(), port=0, options=Options(idle=3.0)) as listener, Raw(listener.port), Raw(listener.port):
        assert listener.guests == 2
        eventually(lambda: listener.guests == 0, "they are gone")


def test_a_client_that_does_not_read() -> None:
    """What it asked for waits in the queue, not in memory; others get on."""
    broker = Broker()
    with Listener(broker, port=0) as listener, Raw(listener.port) as deaf, Raw(listener.port) as sender:
        deaf.receive("q", credit=10_000)
        link = sender.attach("q")
        for _ in range(300):
            assert sender.outcome(sender.send(link, Message(body="x" * 50_000))).state
        assert broker.depth(queue("q")) > 0
        before = threading.active_count()
        assert sender.outcome(sender.send(sender.attach("other"), Message(body="y"))).state
        assert threading.active_count() <= before
