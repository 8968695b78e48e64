"""Clients of the SMQP server that say anything, before and after they are let in."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

from smqp_kit import CREATED, PATIENCE, Raw, Running, eventually, publication, running
from smqp_mutations import PIECES, mutated, session

from brokers.smqp.protocol.replies import NEVER_SENT, ReplyCode
from brokers.smqp.server import Right
from fuzz.row import Case, Row

LOGINS: Final = [
    *("LOGIN alice CLEAR/1.0", "LOGIN alice", "LOGIN eve CLEAR/1.0", "LOGIN alice MD5/9", "LOGIN  X", "LOGIN *"),
    *("PASS alice pw", "PASS alice wrong", "PASS eve pw", "PASS alice", "PASS", "PASS alice " + "x" * 5000, "LOGOUT"),
    *("LOGIN alice CLEAR/1.0\r\n\r\nPASS alice pw", "QUIT", "HELLO x/y SMQP/1.0", "NOOP", "SET NOTIFY PORT 1"),
]  # fmt: skip
TOPICS: Final = (
    "/f/a",
    "/f/new",
    "/safe",
    "/",
    "/f/*",
    "/queue/x",
    "/f/" + "x" * 300,
    "/f//a",
    "/f/a/b/c",
    "f",
    "/ä",
    "",
)
KINDS: Final = ("text/plain", "x/y", "multipart/mixed; boundary=b", "", "text", "x" * 2000)
ATTRIBUTES: Final = [
    *(CREATED, "Created: D99999999T99Z", "Name: a", "Name: " + "n" * 3000, "Priority: -1", "Priority: " + "9" * 30),
    *("Receipt: YES", "Receipt: maybe", "Timeout: 00:00:00", "Timeout: 99:99:99", "Depth: 99", "Sequence: 0", "X-A: b"),
    *("Smuid: mq.example/1", "Cmuid: alice/alice0001/1", "Smuid: x", " folded: x", ": x", "X-\0: \xff", "X: \r"),
]  # fmt: skip


def publishing(chance: Random) -> bytes:
    """Make a command with a message: its attributes, its length and its end are right, or not."""
    verb = chance.choice(["PUB MESSAGE", "PUB MESSAGE", "PUB REPLY", "REPUB MESSAGE", "PUB RECEIPT", "pub message"])
    data = chance.choice(["x", "", ".", "line\r\n.\r\nline", "\0\r\n" * 10, "x" * 20_000, "\r\n\r\n.\r\n"])
    attributes = chance.choices(ATTRIBUTES, k=chance.choice((0, 1, 2, 5, 60)))
    lines = publication(f"{verb} {chance.choice(TOPICS)} {chance.choice('1 m * -1 x'.split())}", *attributes, data=data)
    said = "\r\n".join(lines) + "\r\n\r\n"
    if chance.random() < 0.4:
        said = said.replace("text/plain", chance.choice(KINDS))
    if chance.random() < 0.4:
        wrong = chance.choice(["-1", "0", "1", "99999999999", "9" * 400, f"{len(data) + 5}", "x", "", " 3", "0x10"])
        said = said.replace(f"Content-Length: {len(data.encode())}", f"Content-Length: {wrong}")
    if chance.random() < 0.2:
        said = said.replace("\r\n", chance.choice(["\n", "\r", "\r\n\r\n"]))
    return said.encode("utf-8", "surrogateescape")


class Queues:
    """A server, a topic that nobody but the witness may use, and the witness."""

    def __init__(self, server: Running) -> None:
        self._server = server
        server.accounts("alice", "carol", rights=Right.NONE)
        server.accounts("bob")
        server.topics("/f/a", "/safe")
        server.grant("alice", "/f", Right.ALL)
        self._parts = session()
        self._witness = server.client("bob")
        self._witness.data("SUB MESSAGE /safe")
        self._number = 0
        self._strangers = 0
        self.tally = Counter[str]()

    def make(self, chance: Random) -> Case:
        """Say something, logged in or not, and in one or several pieces."""
        is_in = chance.random() < 0.6
        said = [
            chance.choice(
                [
                    lambda: mutated(self._parts, chance),
                    lambda: mutated(self._parts, chance),
                    lambda: publishing(chance),
                    lambda: f"{chance.choice(LOGINS)}\r\n\r\n".encode(),
                ]
            )()
            for _ in range(chance.choice((1, 2, 4)))
        ]
        if chance.random() < 0.3:
            each = chance.randrange(len(said))
            at = chance.randrange(len(said[each]) + 1)
            said[each] = said[each][:at] + chance.choice(PIECES) + said[each][at:]
        if not is_in and chance.random() < 0.5:
            said.insert(0, f"{chance.choice(LOGINS)}\r\n\r\n".encode())
        if chance.random() < 0.7:
            said.append(b"\r\n.\r\n")
        is_cut = chance.random() < 0.1
        return Case(sum(map(len, said)), lambda: self.say(said, is_in=is_in, is_cut=is_cut))

    def say(self, said: list[bytes], *, is_in: bool, is_cut: bool) -> str:
        """Say it, and read what comes until the server has said all."""
        client = Raw(self._server.address)
        try:
            if is_in:
                client.login("alice", listen=False)
            with suppress(OSError):  # the server has hung up
                for each in said:
                    client.send(each)
                client.socket.shutdown(socket.SHUT_RDWR if is_cut else socket.SHUT_WR)
            answer = b""
            with suppress(ConnectionError, OSError) if is_cut else suppress(ConnectionError):
                while data := client.socket.recv(65536):
                    answer += data
        finally:
            client.close()
        codes = [int(line[:3]) for line in answer.split(b"\r\n") if line[:3].isdigit() and line[3:4] in (b" ", b"-")]
        for each in codes:
            assert ReplyCode(each) not in NEVER_SENT, each
            assert each != ReplyCode.SERVER_ERROR
        return ("in" if is_in else "before") + (" login" if not is_in else "") + (", cut off" if is_cut else "")

    def look(self) -> None:
        """See that the witness is served, has all of its own, and nothing else; and that nobody is left."""
        self._number += 1
        smuid = self._witness.publish("/safe", f"w{self._number}", data="safe")
        assert self._witness.smuid() == smuid
        if self._number % 20 == 0:
            core = self._server.server.engine.core
            assert int(self._witness.data("COUNT MESSAGE /safe")[0]) == self._number
            faults = self._server.server.call(lambda: core.database.rows("PRAGMA integrity_check")).result()
            assert faults == [("ok",)], faults
        sessions = self._server.server.engine.core.sessions
        eventually(lambda: len(sessions) == 1, f"{len(sessions)} sessions are there")


@contextmanager
def queues() -> Iterator[Queues]:
    """Run a server."""
    with running(login_timeout=PATIENCE, max_strangers=1000) as server:
        yield Queues(server)


ROW: Final = Row(
    name="smqp",
    holds="whatever a client says, it is answered by codes of the table, others are served and nobody is left",
    opens=queues,
    cases=20_000,
    gate=300,
)
