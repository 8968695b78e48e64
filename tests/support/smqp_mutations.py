"""Sessions with mutated octets against a real server: it answers with codes of its table, and harms nobody."""

from __future__ import annotations

import random
import socket
from collections import Counter
from contextlib import suppress
from typing import Final

from progress_kit import Progress
from smqp_kit import CREATED, Raw, Running, running

from brokers.smqp.protocol.replies import NEVER_SENT, ReplyCode

PIECES: Final = [
    *(b"", b"\r\n", b".\r\n", b"\r\n.\r\n", b" ", b"\t", b"\0", b"\xff", b"/", b"*", b"\\", b'"', b"(", b")", b">"),
    *(b"9" * 20, b"-1", b":", b"x" * 9000, b"Content-Length: 3\r\n", b"PUB ", b"NOOP\r\n", b"%s%n", b"'; --"),
]
DATA: Final = "line1\r\n.\r\nline2"


def session() -> list[bytes]:
    """Write a session with every kind of command, as its parts."""
    message = (
        f"{CREATED}\r\nName: a\r\nPriority: 1\r\nReceipt: NO\r\nTimeout: 00:01:00\r\nDepth: 0\r\n"
        "Sequence: 1\r\nX-A: b\r\n\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(DATA)}\r\n\r\n{DATA}\r\n.\r\n\r\n"
    )
    ids = "Smuid: mq.example/1\r\nCmuid: alice/alice0001/1\r\n"
    commands = """NOOP
COUNT TOPIC /f/*
COUNT MESSAGE /f/a
COUNT SUB /f/a
LIST TOPIC /f
LIST MESSAGE /f/a
FIND TOPIC /f/* (K)
CREATE TOPIC /f/new (K,L) > /f/a
SET TOPIC KEYWORD /f/a (K)
SET TOPIC NAME /f/new /f/newer
GET TOPIC KEYWORDS /f/a
GET MESSAGE /f/a 1-3,5
SUB MESSAGE /f/* D09092001T10160000Z
SUB TOPIC /f/*
SUB SUB /f/a
SUB SERVER TIMEOUT
SET NOTIFY SUSPEND
SET NOTIFY RESUME
SET LOGIN NAME "A B"
UNSUB MESSAGE /f/a
UNSUB *
REPUB MESSAGE /f/a 1
REMOVE TOPIC /f/newer""".splitlines()
    parts = [f"{command}\r\n\r\n".encode() for command in commands]
    parts += [f"PUB MESSAGE /f/a m\r\n{message}".encode(), f"PUB REPLY /f/a r\r\n{ids}{message}".encode()]
    return parts


def mutated(parts: list[bytes], source: random.Random) -> bytes:
    """Choose some parts, and change some octets of them."""
    octets = bytearray(b"".join(source.choices(parts, k=source.randint(1, 6))))
    for _ in range(source.randint(0, 6)):
        at = source.randrange(len(octets) + 1)
        octets[at : at + source.choice([0, 0, 1, 2, 8])] = source.choice(PIECES)
    return bytes(octets)


def mutate_sessions(number: int, seed: int) -> Counter[str]:
    """Run so many sessions; between them see that the server is unharmed and nothing was lost."""
    source, parts = random.Random(seed), session()
    tally: Counter[str] = Counter()
    progress = Progress("mutated sessions", number)
    with running(login_timeout=5.0) as server:
        server.accounts("alice", "bob")
        server.topics("/f/a", "/safe")
        witness = server.client("bob")
        witness.data("SUB MESSAGE /safe")
        for each in range(number):
            run_one(server, mutated(parts, source), tally, logged_in=source.random() < 0.9)
            progress.add()
            if each % 50 == 49:
                smuid = witness.publish("/safe", f"w{each}", data="safe")
                assert witness.smuid() == smuid
                tally["unharmed"] += 1
        assert int(witness.data("COUNT MESSAGE /safe")[0]) == tally["unharmed"]
        database = server.server.engine.core.database
        faults = server.server.call(lambda: database.rows("PRAGMA integrity_check")).result()
        assert faults == [("ok",)], faults
    assert tally["500"] == 0, "a mutated session led to an error of the server's"
    return tally


def run_one(server: Running, octets: bytes, tally: Counter[str], *, logged_in: bool) -> None:
    """Send octets, and read what comes until the server has said all."""
    client = Raw(server.address)
    try:
        if logged_in:
            client.login("alice", listen=False)
        client.send(octets + b"\r\n.\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionError):
            while data := client.socket.recv(65536):
                answer += data
        for line in answer.split(b"\r\n"):
            if line[:3].isdigit() and line[3:4] in (b" ", b"-"):
                code = ReplyCode(int(line[:3]))
                assert code not in NEVER_SENT
                if line[3:4] == b" ":
                    tally[str(int(code))] += 1
        tally["sessions"] += 1
    finally:
        client.close()
