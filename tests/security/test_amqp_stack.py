"""AMQP values within values within values, to a process whose threads have little stack: it goes on."""

from __future__ import annotations

import gc
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from amqp_raw import Raw
from places import ROOT
from proton import symbol

from brokers.amqp.driver import without_frames
from brokers.amqp.listener import Listener
from brokers.amqp.message_reader import from_amqp_message
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, Performative, pack
from brokers.amqp.stack import STACK_OCTETS, has_many_values, is_shallow, start, with_stack
from brokers.embedded import Broker
from brokers.errors import ConnectionFailedError
from brokers.message import MessageType

DEEP = 60_000
LITTLE = 256
"""KiB of stack."""


def lists(levels: int) -> bytes:
    """Write lists in each other."""
    return b"".join(b"\xd0" + struct.pack(">II", 5 + 9 * level, 1) for level in reversed(range(levels))) + b"\x40"


def maps(levels: int) -> bytes:
    """Write maps in each other."""
    heads = (b"\xd1" + struct.pack(">II", 6 + 10 * level, 2) + b"\x40" for level in reversed(range(levels)))
    return b"".join(heads) + b"\x40"


def arrays(levels: int) -> bytes:
    """Write arrays of arrays."""
    heads = (struct.pack(">II", 5 + 9 * level, 1) + b"\xf0" for level in reversed(range(levels)))
    return b"\xf0" + b"".join(heads)[:-1] + b"\x40"


def described(levels: int) -> bytes:
    """Write values that are described by values that are described."""
    return b"\x00" * levels + b"\x40" * (levels + 1)


KINDS: list[Callable[[int], bytes]] = [lists, maps, arrays, described]


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_message(kind: Callable[[int], bytes]) -> None:
    """As its body: it is of no kind that is known."""
    message = from_amqp_message(b"\x00\x53\x77" + kind(DEEP)).message
    assert message.message_type is MessageType.UNKNOWN


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["sasl", "open", "message"])
def test_to_the_listener(kind: Callable[[int], bytes], where: str) -> None:
    """In a login, as a property of a connection, in a message: others are served."""
    with Listener(Broker(), port=0) as listener:
        with socket.create_connection(("127.0.0.1", listener.port), 20) as client:
            if where == "sasl":
                client.sendall(SASL_HEADER + body_in_a_frame(b"\x00\x53\x41" + kind(DEEP), 1))
                to_the_end(client)
            elif where == "open":
                client.sendall(SASL_HEADER + pack(Performative.INIT, symbol("ANONYMOUS")) + AMQP_HEADER)
                client.sendall(body_in_a_frame(b"\x00\x53\x10" + kind(DEEP), 0))
                to_the_end(client)
        if where == "message":
            with Raw(listener.port) as sender:
                link = sender.attach("q")
                sender.outcome(sender.send(link, b"\x00\x53\x77" + kind(DEEP)))
        with Raw(listener.port) as other:
            other.receive("q")


def to_the_end(client: socket.socket) -> None:
    """Read until the listener hangs up."""
    with suppress(ConnectionError):
        while client.recv(4096):
            pass


def body_in_a_frame(octets: bytes, kind: int) -> bytes:
    """Write a frame of AMQP (0) or SASL (1)."""
    return struct.pack(">IBBH", 8 + len(octets), 2, kind, 0) + octets


def test_with_little_stack() -> None:
    """All of the above where `ulimit -s` leaves threads a fraction of what proton takes."""
    tests = [f"{Path(__file__).relative_to(ROOT)}::{name}" for name in ("test_in_a_message", "test_to_the_listener")]
    command = f"ulimit -s {LITTLE} && exec {sys.executable} -m pytest -q -p no:cacheprovider {' '.join(tests)}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_shallow() -> None:
    """What has few values within it, or is text however long, needs no thread of its own."""
    for octets in (b"\x00\x53\x77" + lists(20), b"\x00\x53\x77\xb1" + struct.pack(">I", 4000) + b"\xd0" * 4000):
        assert is_shallow(memoryview(octets))
    for octets in (b"\x00\x53\x77" + lists(2000), described(2000), b"", b"\x00", b"\x00\x53\x77\xd0\x00", b"\x10"):
        assert not is_shallow(memoryview(octets))


SYMBOLS = b"\xf0" + struct.pack(">II", 4 + 1 + 100 * 6, 100) + b"\xa3" + b"\x05name0" * 100
BOOLEANS = b"\xf0" + struct.pack(">II", 5, 60_000) + b"\x41"


@pytest.mark.parametrize(
    ("octets", "many"),
    [
        (b"\x00\x53\x10" + SYMBOLS, False),
        (b"\xa1\x04" + b"\xf0" * 4, False),
        (b"\xb0" + struct.pack(">I", 5000) + b"\xf0" * 5000, False),
        (b"\xe0\x02\x01\x40", False),
        (b"\x53\x10" + BOOLEANS, True),
        (b"\xd0" + struct.pack(">II", 4 + len(BOOLEANS), 1) + BOOLEANS, True),
        (b"\xe0" + bytes([2 + len(BOOLEANS), 1]) + BOOLEANS, True),
        (b"\xe0\x06\x01\x00\x53\x10" + BOOLEANS, True),
        (b"\xe0\x02\xff\x40" * 4, True),
        (b"\x40" * 1001, True),
        (b"\xd1" + struct.pack(">II", 4 + 1200, 1200) + b"\x40" * 1200, True),
        (b"\xf0" + struct.pack(">II", 5 + 1100, 1) + b"\xd0" + struct.pack(">II", 1004, 1000) + b"\x40" * 1000, True),
        (b"\xf0", False),
        (b"\xf0\x00\x00", False),
    ],
)
def test_many_values(octets: bytes, many: bool) -> None:
    """Values within others count, however few octets they take; text is one, whatever is in it."""
    assert has_many_values(b"x" + octets, 1, 1 + len(octets)) is many


def test_threads() -> None:
    """What is started has stack enough, and others as much as before; an error comes back."""
    before = threading.stack_size()
    assert with_stack(lambda: threading.current_thread() is not threading.main_thread())
    with pytest.raises(ValueError, match="no"):
        with_stack(lambda: (_ for _ in ()).throw(ValueError("no")))
    thread = threading.Thread(target=lambda: None)
    start(thread)
    thread.join()
    assert threading.stack_size() == before < STACK_OCTETS


class Endpoint:
    """Stands for an object of proton that a frame refers to."""


def test_an_error_of_a_thread_keeps_nothing() -> None:
    """What the frames of the caller refer to is freed with them, not by the garbage collector at another time."""
    gc.disable()
    try:
        seen = failing()
        assert seen() is None
    finally:
        gc.enable()


def failing() -> weakref.ref[Endpoint]:
    """Fail on a thread with enough stack, and return a reference to what the frame of the caller held."""
    endpoint = Endpoint()
    with suppress(ValueError):
        with_stack(lambda: (_ for _ in ()).throw(ValueError("no")))
    return weakref.ref(endpoint)


def test_an_error_that_is_kept_keeps_nothing() -> None:
    """Nor do those that caused it."""

    def fail() -> tuple[ConnectionFailedError, weakref.ref[Endpoint]]:
        endpoint = Endpoint()
        try:
            try:
                raise ValueError("first")
            except ValueError:
                raise KeyError("second")  # noqa: B904  # the context, not the cause
        except KeyError as error:
            try:
                raise ConnectionFailedError("third") from error
            except ConnectionFailedError as kept:
                return kept, weakref.ref(endpoint)

    error, seen = fail()
    assert seen() is not None
    assert without_frames(error) is error
    assert seen() is None
    assert isinstance(error.__cause__, KeyError)
    assert isinstance(error.__cause__.__context__, ValueError)
