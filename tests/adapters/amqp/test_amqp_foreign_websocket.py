"""What other brokers do of the WebSocket binding, requirement by requirement: WS-xx of docs/conformance-amqp.md.

Where a broker does otherwise, the page has a row, and the test is expected to fail until the broker changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from urllib.parse import urlsplit

import pytest
from amqp_foreign import THREE, expect_deviation
from proton import Connection, Transport, symbol
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, Performative, pack, unpack
from brokers.amqp.websocket_stream import is_unit, units

pytestmark = pytest.mark.broker

PATIENCE = 20.0
PERSISTENCE = 10.0
"""Seconds after which a broker that should have ended a connection counts as going on."""


CLOSE = b"\0\0\0\x0c\2\0\0\0\0\x53\x18\x45"
EMPTY = b"\0\0\0\x08\2\0\0\0"
"""Frames: AMQP's `close`, and one of nothing."""


class Listening(Protocol):
    """A broker, as far as it matters here."""

    @property
    def ws_url(self) -> str: ...


@pytest.fixture(params=THREE)
def broker(request: pytest.FixtureRequest) -> Listening:
    """Run each broker in turn, and expect what the page says of it."""
    expect_deviation(request, str(request.param))
    running: Listening = request.getfixturevalue(request.param)
    return running


def upgrade(broker: Listening, token: str = "amqp") -> ClientConnection:
    """Open a WebSocket."""
    parts = urlsplit(broker.ws_url)
    return connect(
        f"ws://{parts.hostname}:{parts.port}{parts.path}",
        subprotocols=[Subprotocol(token)],
        open_timeout=PATIENCE,
        close_timeout=PATIENCE,
        compression=None,
        ping_interval=None,
        proxy=None,
    )


@pytest.fixture
def socket(broker: Listening) -> Iterator[ClientConnection]:
    """Open a WebSocket, with the sub-protocol that all three have."""
    with upgrade(broker) as opened:
        yield opened


class Reader:
    """Messages of a broker, and the headers and frames in them."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._units: list[bytes] = []
        self._rest = b""
        self.messages: list[bytes] = []

    def next(self) -> bytes:
        """Wait for the next header or frame."""
        while not self._units:
            try:
                got = self._socket.recv(PATIENCE)
            except ConnectionClosed as error:
                raise AssertionError(f"the broker ended the connection: {error}") from error
            assert isinstance(got, bytes)
            self.messages.append(got)
            found = list(units(self._rest + got))
            self._rest = b"" if is_unit(found[-1]) else found.pop()
            self._units += found
        return self._units.pop(0)


def log_in(socket: ClientConnection) -> Reader:
    """Go through SASL, a unit a message, and return what is read with."""
    reader = Reader(socket)
    socket.send(SASL_HEADER)
    assert reader.next() == SASL_HEADER
    assert unpack(reader.next())[0] is Performative.MECHANISMS
    socket.send(pack(Performative.INIT, symbol("PLAIN"), b"\0admin\0admin", "localhost"))
    assert unpack(reader.next())[0] is Performative.OUTCOME
    return reader


def opening(idle: float = 0.0) -> list[bytes]:
    """Make AMQP's header and an `open`, that of who gives up a silent broker after `idle` seconds; 0 for never."""
    connection, transport = Connection(), Transport()
    transport.idle_timeout = idle
    connection.container, connection.hostname = "foreign", "localhost"
    transport.bind(connection)
    connection.open()
    out = transport.peek(transport.pending())
    assert out is not None
    return list(units(bytes(out)))


def opened(socket: ClientConnection, idle: float = 0.0) -> Reader:
    """Log in and open AMQP; return what is read with."""
    reader = log_in(socket)
    for unit in opening(idle):
        socket.send(unit)
    for _ in range(2):
        reader.next()
    return reader


def until_the_end(socket: ClientConnection) -> bytes:
    """Read until the broker ends the connection, and return what came."""
    read = b""
    try:
        while True:
            got = socket.recv(PERSISTENCE)
            assert isinstance(got, bytes)
            read += got
    except ConnectionClosed:
        return read
    except TimeoutError as error:
        raise AssertionError("the connection goes on") from error


def test_ws05_the_sub_protocol(socket: ClientConnection) -> None:
    """WS-01, WS-05: an upgrade as RFC 6455 has it, and the sub-protocol of the specification of 2016 is echoed."""
    assert socket.subprotocol == "amqp"


@pytest.mark.parametrize("token", ["AMQPWSB10"])
def test_ws04_the_sub_protocol_of_the_draft(broker: Listening, token: str) -> None:
    """WS-04, WS-05, in the draft of 2014: it is echoed likewise."""
    try:
        with upgrade(broker, token) as opened:
            assert opened.subprotocol == token
    except InvalidHandshake as error:
        raise AssertionError(str(error)) from error


def test_ws11_sasl_or_none(socket: ClientConnection) -> None:
    """WS-11: who begins without SASL is let in, or told that it is needed."""
    socket.send(AMQP_HEADER)
    assert Reader(socket).next() in (AMQP_HEADER, SASL_HEADER)


def test_ws12_no_mechanism_that_encrypts(socket: ClientConnection) -> None:
    """WS-12: none is offered, as that would be for TLS to do."""
    reader = Reader(socket)
    socket.send(SASL_HEADER)
    assert reader.next() == SASL_HEADER
    offered = unpack(reader.next())[1][0]
    assert not {"DIGEST-MD5", "GSSAPI", "NTLM"} & {str(each) for each in getattr(offered, "elements", [offered])}


def test_ws14_the_sasl_header_is_a_message(socket: ClientConnection) -> None:
    """WS-13, WS-14: it comes first, and alone."""
    assert log_in(socket).messages[0] == SASL_HEADER


def test_ws15_each_sasl_frame_is_a_message(socket: ClientConnection) -> None:
    """WS-15."""
    assert all(is_unit(each) for each in log_in(socket).messages)


def test_ws16_a_refused_login_is_the_end(socket: ClientConnection) -> None:
    """WS-16: it is told, and the connection ends."""
    reader = Reader(socket)
    socket.send(SASL_HEADER)
    for _ in range(2):
        reader.next()
    socket.send(pack(Performative.INIT, symbol("PLAIN"), b"\0admin\0wrong", "localhost"))
    performative, fields = unpack(reader.next())
    assert performative is Performative.OUTCOME
    assert fields[0] != 0
    until_the_end(socket)


def test_ws18_the_header_is_a_message(socket: ClientConnection) -> None:
    """WS-17, WS-18: AMQP's header comes first, and alone."""
    reader = log_in(socket)
    for unit in opening():
        socket.send(unit)
    assert reader.next() == AMQP_HEADER
    reader.next()
    assert AMQP_HEADER in reader.messages


def test_ws19_another_version(socket: ClientConnection) -> None:
    """WS-19: a header that is not known is answered with one that is, and the end."""
    socket.send(b"AMQP\0\0\x09\x01")
    assert until_the_end(socket)[:8] in (SASL_HEADER, AMQP_HEADER)


def test_ws20_text_is_refused(socket: ClientConnection) -> None:
    """WS-20: a text message ends the connection."""
    socket.send("AMQP")
    until_the_end(socket)


def test_ws21_each_frame_is_a_message(socket: ClientConnection) -> None:
    """WS-21, in the draft."""
    reader = log_in(socket)
    for unit in opening():
        socket.send(unit)
    for _ in range(2):
        reader.next()
    assert all(is_unit(each) for each in reader.messages)


def test_ws22_messages_may_be_cut(socket: ClientConnection) -> None:
    """WS-22: into as many WebSocket frames as one likes."""
    socket.send(bytes([each]) for each in SASL_HEADER)
    assert Reader(socket).next() == SASL_HEADER


def test_ws28_amqp_is_closed_first(socket: ClientConnection) -> None:
    """WS-28: `close` is answered with one, before the WebSocket ends."""
    reader = opened(socket)
    socket.send(CLOSE)
    while reader.next()[8:11] != CLOSE[8:11]:
        pass


def test_ws29_the_websocket_follows(socket: ClientConnection) -> None:
    """WS-29: it is closed as soon as AMQP is."""
    opened(socket)
    socket.send(CLOSE)
    until_the_end(socket)


def test_ws34_no_tls_within_amqp(socket: ClientConnection) -> None:
    """WS-34: its header is answered with one that is known, and the end."""
    socket.send(b"AMQP\2\1\0\0")
    assert until_the_end(socket)[:8] in (SASL_HEADER, AMQP_HEADER)


def test_ws37_clients_mask(socket: ClientConnection) -> None:
    """WS-37: a frame without a mask is the end; what the broker writes has none, or our library would not read it."""
    socket.socket.sendall(b"\x82\x08" + SASL_HEADER)
    until_the_end(socket)


def test_ws39_signs_of_life(socket: ClientConnection) -> None:
    """WS-39: empty frames of AMQP for a client that asked for them."""
    reader = opened(socket, idle=2.0)
    while reader.next() != EMPTY:
        pass


def test_ws30_a_close_is_answered(socket: ClientConnection) -> None:
    """WS-30: with one."""
    socket.close()
    assert socket.close_code == 1000


def test_ws38_a_ping_is_answered(socket: ClientConnection) -> None:
    """WS-38: at any time."""
    assert socket.ping().wait(PATIENCE)


def test_ws41_frames_may_be_joined(socket: ClientConnection) -> None:
    """WS-41, in the specification of 2016: what is in a message is a stream."""
    reader = log_in(socket)
    socket.send(b"".join(opening()))
    assert reader.next() == AMQP_HEADER
    assert reader.next()[8:11] == b"\0\x53\x10"
