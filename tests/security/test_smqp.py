"""The SMQP server under attack: by who is not logged in, and by accounts that want more than their rights."""

from __future__ import annotations

import tracemalloc

from smqp_kit import CREATED, Raw, running

MEBIBYTE = 1 << 20


def announced(command: str, octets: int) -> str:
    """Begin a message with so many octets of data, none of which is there yet."""
    return f"{command}\r\n{CREATED}\r\n\r\nContent-Type: x/y\r\nContent-Length: {octets}\r\n\r\n"


def settled(clients: list[Raw]) -> None:
    """Wait until all that was sent was read."""
    for client in clients:
        client.send("\r\n.\r\nNOOP\r\n")
    for client in clients:
        while client.reply() != ["200 OK"]:
            pass


def test_nothing_of_a_stranger_is_kept() -> None:
    """Six connections that announce a message of 15 MiB before a login cost no memory: all of it is passed over."""
    with running() as server:
        server.accounts("alice")
        server.topics("/t")
        strangers = [server.raw() for _ in range(6)]
        block = b"x" * MEBIBYTE
        tracemalloc.start()
        try:
            for stranger in strangers:
                stranger.send(announced("PUB MESSAGE /t 1", 15 * MEBIBYTE))
            for _ in range(15):
                for stranger in strangers:
                    stranger.send(block)
            settled(strangers)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2 * MEBIBYTE, peak
        assert strangers[0].login("alice", listen=False).publish("/t", "1", data="x" * MEBIBYTE) == 1


def test_attributes_of_a_stranger_are_not_kept() -> None:
    """Nor is the header of a message, however many lines it has; it ends where it says, and what follows is read."""
    with running() as server:
        strangers = [server.raw() for _ in range(20)]
        lines = "".join(f"X-{number}: {'x' * 4000}\r\n" for number in range(200))
        tracemalloc.start()
        try:
            for stranger in strangers:
                stranger.send("PUB MESSAGE /t 1\r\n" + lines)
            for stranger in strangers:
                stranger.send("\r\nContent-Type: x/y\r\nContent-Length: 5\r\n\r\n\r\n.\r\n\r\n.\r\nNOOP\r\n")
                assert stranger.reply() == ["401 Unauthorized"]
                assert stranger.reply() == ["200 OK"]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * MEBIBYTE, peak


def test_a_stranger_that_does_not_read_is_not_read_from() -> None:
    """Few answers wait for it, and few octets of what it sends."""
    with running() as server:
        stranger = server.raw()
        stranger.socket.settimeout(0.5)
        sent = 0
        try:
            while sent < 64 * MEBIBYTE:
                sent += stranger.socket.send(b"NOOP\r\n" * 10_000)
        except TimeoutError:
            pass
        (session,) = server.server.engine.core.sessions.values()
        assert len(session.reader) <= 8 * 1024
        assert session.unsent <= 8 * 1024
