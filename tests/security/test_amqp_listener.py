"""Our AMQP listener under attack: by strangers that guess names and passwords, by users that pretend to be others."""

from __future__ import annotations

import socket
import ssl
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from queue import SimpleQueue
from time import monotonic
from typing import Any

import proton
import pytest
import trustme
from amqp_raw import Raw
from calling_kit import eventually
from proton import symbol, uint

import brokers
from brokers import (
    ConnectionFailedError,
    Destination,
    DestinationGoneError,
    Message,
    MessageType,
    Property,
    PropertyType,
    SendFailedError,
    queue,
)
from brokers.amqp.listener import Listener, Options, Rights
from brokers.amqp.listener.inspection import PerformativeCode, frame_of
from brokers.amqp.sasl import AMQP_HEADER, MAX_FRAME_OCTETS, SASL_HEADER, Frames, Performative, pack
from brokers.embedded import Broker
from brokers.message import Properties

PATIENCE = 20.0
USERS = {"ann": "secret-of-ann", "eve": "secret-of-eve"}
RIGHTS = "ann * queue:orders"


@contextmanager
def listening(**options: Any) -> Iterator[Listener]:
    """Listen at a free port, with two users of whom one has no rights."""
    options = {"users": USERS, "may": Rights.read(RIGHTS), **options}
    with Listener(Broker(), port=0, options=Options(**options)) as listener:
        yield listener


@contextmanager
def user(listener: Listener, name: str) -> Iterator[brokers.Connection]:
    """Connect as a user."""
    url = listener.url.replace("://", f"://{name}:{USERS[name]}@")
    with brokers.connect(url, reconnect=False) as connection:
        yield connection


def text(body: str, to: Destination) -> Message:
    """Make a TextMessage."""
    return Message(message_type=MessageType.TEXT, body=body, destination=to)


def test_temporary_names_are_not_guessed() -> None:
    """Names of temporary queues tell nothing of each other; who was told one can send there, with no other right."""
    with listening() as listener, user(listener, "ann") as ann, user(listener, "eve") as eve:
        arrived: SimpleQueue[Any] = SimpleQueue()
        own, asked = eve.temporary(), ann.temporary()
        ann.consume(asked, lambda delivery: arrived.put(delivery.message.body), auto_accept=True)
        assert own.name is not None
        assert asked.name is not None
        beginning, _, mine = own.name.rpartition("-")
        near = int(mine, 16)
        for number in range(max(0, near - 30), near + 30):
            for guess in (f"{beginning}-{number}", f"{beginning}-{number:x}"):
                if guess != own.name:
                    with pytest.raises(DestinationGoneError):
                        eve.send(text("forged", replace(asked, name=guess, address=None))).result(20)
        assert len(set(asked.name.rpartition("-")[2])) > 4
        assert len(asked.name.rpartition("-")[2]) * 4 >= 128
        eve.send(text("told", asked)).result(20)
        assert arrived.get(timeout=20) == "told"


def test_who_knows_a_temporary_queue_does_not_receive_from_it() -> None:
    """Of another connection's temporary queue nobody receives, of another user or the same: it is told, whoever made it
    is answered."""
    users = {"ann": "ann", "eve": "eve"}
    with listening(users=users, may=None) as listener:
        url = listener.url.replace("://", "://ann:ann@")
        with brokers.connect(url, reconnect=False) as ann:
            arrived: SimpleQueue[Any] = SimpleQueue()
            own = ann.temporary()
            ann.consume(own, lambda delivery: arrived.put(delivery.message.body), auto_accept=True)
            assert own.address is not None
            for name in users:
                with Raw(listener.port, user=name) as other:
                    end = other.end_of(other.receive(own.address))
                    assert end.condition in ("amqp:not-allowed", "amqp:unauthorized-access")
                    other.send(other.attach(own.address), proton.Message(body=f"from {name}"))
                    assert arrived.get(timeout=PATIENCE) is not None


def guess(port: int, name: str, password: str, host: str = "127.0.0.1") -> int:
    """Log in by PLAIN; return SASL's outcome."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(host, 0)) as connected:
        return outcome_of(connected, name, password)


def outcome_of(connected: socket.socket, name: str, password: str) -> int:
    """Go through SASL; return the outcome."""
    frames = Frames()
    connected.sendall(SASL_HEADER)
    header = None
    while header is None:
        header = frames.header(connected.recv(4096))
    connected.sendall(pack(Performative.INIT, symbol("PLAIN"), f"\0{name}\0{password}".encode(), "localhost"))
    while True:
        while (frame := frames.next()) is None:
            octets = connected.recv(4096)
            assert octets, "the connection was closed"
            frames.rest += octets
        if frame[0] is Performative.OUTCOME:
            return int(frame[1][0])


MEBIBYTE = 1 << 20


@pytest.mark.parametrize("announced", [0, MAX_FRAME_OCTETS, MAX_FRAME_OCTETS + 1, 1 << 30])
def test_nothing_of_a_stranger_is_kept(announced: int) -> None:
    """Over TCP: strangers that announce a SASL frame of any size, or write without end behind one, cost no memory."""
    begin = announced.to_bytes(4, "big") + b"\x02\x01\0\0"
    with listening() as listener, ExitStack() as stack:
        to = ("127.0.0.1", listener.port)
        strangers = [stack.enter_context(socket.create_connection(to, PATIENCE)) for _ in range(6)]
        block = bytes(MEBIBYTE)
        tracemalloc.start()
        try:
            for stranger in strangers:
                stranger.sendall(SASL_HEADER + begin)
            for _ in range(8):
                for stranger in strangers:
                    with suppress(ConnectionError):
                        stranger.sendall(block)
            eventually(lambda: listener.guests == 0, "all are hung up on")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * MEBIBYTE, peak
        assert guess(listener.port, "ann", USERS["ann"]) == RIGHT


@pytest.mark.parametrize("place", ["filter of a link", "login"])
def test_values_that_take_no_octets(place: str) -> None:
    """An array of 60,000 of them in a frame of some octets ends who sent it: proton would keep them in 4 MiB."""
    many = b"\xf0" + (5).to_bytes(4, "big") + (60_000).to_bytes(4, "big") + b"\x41"
    with listening() as listener, socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as stranger:
        if place == "login":
            body = b"\x00\x53\x41\xc0" + bytes([1 + len(many), 1]) + many
            stranger.sendall(SASL_HEADER + (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\0\0" + body)
        else:
            assert outcome_of(stranger, "ann", USERS["ann"]) == RIGHT
            source = b"\x00\x53\x28\xc0" + bytes([1 + 7 + len(many), 8]) + b"\x40" * 7 + many
            fields = b"\xa1\x01n" + b"\x43" + b"\x41" + b"\x40" * 2 + source
            attach = b"\x00\x53\x12\xc0" + bytes([1 + len(fields), 6]) + fields
            stranger.sendall(
                AMQP_HEADER
                + frame_of(0, PerformativeCode.OPEN, "somebody")
                + frame_of(0, PerformativeCode.BEGIN, None, uint(0), uint(10), uint(10))
                + (8 + len(attach)).to_bytes(4, "big")
                + b"\x02\0\0\0"
                + attach
            )
        said = b""
        while octets := stranger.recv(4096):
            said += octets
        if place != "login":
            assert b"amqp:resource-limit-exceeded" in said
            assert b"attach has more than 1000 values" in said
        eventually(lambda: listener.guests == 0, "it is hung up on")


RIGHT, WRONG, LATER = 0, 1, 4


def test_guesses_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Ten wrong passwords from an address are free, then one is looked at now and then; the log has each. Who comes
    from elsewhere, or has logged in from there before, is let in."""
    with listening() as listener:
        assert guess(listener.port, "ann", USERS["ann"]) == RIGHT
        outcomes = [guess(listener.port, "eve", f"guess {number}") for number in range(200)]
        assert outcomes[:10] == [WRONG] * 10
        assert outcomes.count(LATER) > 150
        assert guess(listener.port, "ann", USERS["ann"]) == RIGHT
        assert guess(listener.port, "eve", USERS["eve"], "127.0.0.2") == RIGHT
    assert caplog.text.count("a login from 127.0.0.1 as 'eve' was refused") == outcomes.count(WRONG)
    assert "logins from 127.0.0.1 are refused unseen" in caplog.text


def test_guesses_in_one_go(caplog: pytest.LogCaptureFixture) -> None:
    """Of a thousand guesses that come at once on one connection the first is looked at, and logged; it ends."""
    guesses = [pack(Performative.INIT, symbol("PLAIN"), f"\0ann\0guess {n}".encode(), "x") for n in range(1000)]
    guesses[-1] = pack(Performative.INIT, symbol("PLAIN"), f"\0ann\0{USERS['ann']}".encode(), "x")
    looked_at: list[str] = []

    def check(name: str, password: str) -> bool:
        looked_at.append(password)
        return USERS.get(name) == password

    with listening(users=check) as listener:
        with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as connected:
            with suppress(ConnectionError):
                connected.sendall(SASL_HEADER + b"".join(guesses))
            with suppress(ConnectionError):
                while connected.recv(4096):
                    pass
        eventually(lambda: listener.guests == 0, "it is gone")
    assert looked_at == ["guess 0"]
    assert caplog.text.count("a login from 127.0.0.1 as 'ann' was refused") == 1


def test_guesses_of_who_is_known_are_counted_too() -> None:
    """Of a user who has logged in from an address, no more passwords are tried from there than of strangers."""
    with listening() as listener:
        for _ in range(3):
            assert guess(listener.port, "ann", USERS["ann"]) == RIGHT
        assert [guess(listener.port, "ann", f"guess {number}") for number in range(12)] == [WRONG] * 10 + [LATER] * 2
        assert guess(listener.port, "eve", "wrong") == WRONG


@pytest.mark.parametrize("has_tls", [False, True])
def test_silent_strangers_make_room(has_tls: bool) -> None:
    """Connections that say nothing lock nobody out: after a second they make room for more from their address."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with listening(max_connections=6, max_strangers=3, patience=600.0, tls=server if has_tls else None) as listener:
        silent = [socket.create_connection(("127.0.0.1", listener.port), PATIENCE) for _ in range(8)]
        url = listener.url.replace("://", f"://ann:{USERS['ann']}@")

        def is_let_in() -> bool:
            with suppress(ConnectionFailedError):
                brokers.connect(url, reconnect=False, tls=trusted if has_tls else None).close()
                return True
            return False

        eventually(is_let_in, "who logs in is let in")
        assert silent[0].recv(10) == b""
        for each in silent:
            each.close()


def test_silent_strangers_of_many_addresses_make_room() -> None:
    """Where strangers of any number of addresses have all the room there is, who logs in is let in at once."""
    with listening(max_connections=6, max_logins=6, max_strangers=3, patience=600.0) as listener, ExitStack() as stack:
        for number in range(2, 14):
            to = ("127.0.0.1", listener.port)
            source = (f"127.0.0.{number}", 0)
            stack.enter_context(socket.create_connection(to, PATIENCE, source_address=source))
        for _ in range(6):
            begun = monotonic()
            stack.enter_context(user(listener, "ann"))
            assert monotonic() - begun < 5
        with pytest.raises(ConnectionFailedError), user(listener, "eve"):
            pass


def test_one_user_does_not_use_up_the_room(caplog: pytest.LogCaptureFixture) -> None:
    """Of one user there are so many connections, by default half of all; without users, of one address. One more is
    told, and logged; other users are let in, and who is there stays."""
    with listening(max_connections=6) as listener, ExitStack() as stack:
        own = [stack.enter_context(user(listener, "eve")) for _ in range(3)]
        with pytest.raises(ConnectionFailedError, match="as many connections of this user as may be"):
            user(listener, "eve").__enter__()
        stack.enter_context(user(listener, "ann"))
        own[0].close()
        eventually(lambda: listener.guests == 3, "it is gone")
        stack.enter_context(user(listener, "eve"))
    assert "no room for another client of user 'eve'" in caplog.text
    with listening(users=None, may=None, max_logins=2) as listener, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(brokers.connect(listener.url, reconnect=False))
        with pytest.raises(ConnectionFailedError, match="as many connections"):
            brokers.connect(listener.url, reconnect=False)


def test_nobody_sends_in_the_name_of_another() -> None:
    """A user-id is that of the login, or left out: so JMSXUserID can be believed. Another is refused, alone and in a
    transaction, as is any from who gave no user."""
    orders = queue("orders")

    def order(name: str) -> Message:
        said = Properties([Property("JMSXUserID", PropertyType.STRING, name)] if name else [])
        return replace(text(f"from {name}", orders), properties=said)

    arrived: SimpleQueue[Any] = SimpleQueue()
    with listening(may=None, anonymous=True) as listener, user(listener, "ann") as ann, user(listener, "eve") as eve:
        ann.consume(orders, lambda delivery: arrived.put(delivery.message), auto_accept=True)
        with brokers.connect(listener.url, reconnect=False) as nobody:
            for connection in (eve, nobody):
                with pytest.raises(SendFailedError, match="user-id"):
                    connection.send(order("ann")).result(PATIENCE)
            transaction = eve.begin()
            eve.send(order("ann"), transaction)
            (refused,) = transaction.commit().result(PATIENCE)
            assert "user-id" in str(refused.error)
            nobody.send(order("")).result(PATIENCE)
        eve.send(order("eve")).result(PATIENCE)
        users = [arrived.get(timeout=PATIENCE).properties.text("JMSXUserID") for _ in range(2)]
    assert users == [None, "eve"]
