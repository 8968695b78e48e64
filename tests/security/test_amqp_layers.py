"""AMQP under attack by peers that begin SASL or TLS again where AMQP is to follow: proton is not to take them up."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
from amqp_raw import Raw, log_in
from proton import Connection, Transport, symbol

from brokers import ConnectionFailedError
from brokers.amqp.listener import Listener, Options
from brokers.amqp.machine import AmqpMachine
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, Performative, pack
from brokers.amqp.stream import PlainStream
from brokers.embedded import Broker

OTHERS = [
    SASL_HEADER + pack(Performative.INIT),  # proton's own SASL ends the process here
    SASL_HEADER + pack(Performative.INIT, symbol("ANONYMOUS")),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    b"HTTP/1.1 200 OK",
    b"AMQQ",
]


def to_the_end(client: socket.socket) -> bytes:
    """Return all that comes."""
    heard = b""
    with suppress(ConnectionError):
        while octets := client.recv(4096):
            heard += octets
    return heard


def feed(machine: AmqpMachine, octets: bytes, piece: int) -> None:
    """Let it have octets in pieces."""
    for at in range(0, len(octets), piece):
        machine.feed(octets[at : at + piece])


@pytest.mark.parametrize("octets", OTHERS)
@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("users", [{"ann": "ann"}, None])
def test_after_a_login(octets: bytes, piece: int, users: dict[str, str] | None) -> None:
    """Whoever was let in and goes on with it is told what is spoken, and hung up on; others are served."""
    with Listener(Broker(), port=0, options=Options(users=users)) as listener:
        with socket.create_connection(("127.0.0.1", listener.port), 20) as client:
            if users is None:
                client.sendall(SASL_HEADER + pack(Performative.INIT, symbol("ANONYMOUS")))
            else:
                assert log_in(client, "ann", "ann") == b""
            for at in range(0, len(octets), piece):
                with suppress(ConnectionError):
                    client.sendall(octets[at : at + piece])
            assert to_the_end(client).endswith(AMQP_HEADER)
        with Raw(listener.port, user=None if users is None else "ann") as other:
            other.receive("q")


@pytest.mark.parametrize("octets", OTHERS)
@pytest.mark.parametrize("transport", [Transport.CLIENT, Transport.SERVER])
def test_either_side(octets: bytes, transport: int) -> None:
    """Neither as a client nor as a listener; the error says what came."""
    for piece in (1, 1000):
        machine = AmqpMachine(Connection(), Transport(transport), None, PlainStream())
        with pytest.raises(ConnectionFailedError, match=r"the peer must begin AMQP 1\.0 now, got b'"):
            feed(machine, octets, piece)


@pytest.mark.parametrize("piece", [1, 3, 8])
def test_amqp_in_pieces(piece: int) -> None:
    """The header of AMQP is understood however it comes."""
    machine = AmqpMachine(Connection(), Transport(Transport.SERVER), None, PlainStream())
    feed(machine, AMQP_HEADER, piece)
    assert not machine.is_over
    assert machine._transport.condition is None
