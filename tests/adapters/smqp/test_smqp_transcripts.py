"""The dialogues of tests/data/smqp, octet for octet, against a real server over sockets.

A line is a tag and text: `B>` is what bob sends on his command connection, `B<` what the server answers, `BN<` and
`BN>` the connection that the server opened to him; a bare tag is an empty line. Between two lines that begin with `;;`
something may happen that is no octet: the tests say what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby

import pytest
from places import DATA as DATA_FOLDER
from smqp_kit import Clock, Listener, Raw, Running, Wire, eventually, running

from brokers.smqp.protocol.ids import parse_date
from brokers.smqp.server import Peer, Right

DATA = DATA_FOLDER / "smqp"
BOBS_PORT = "9721"
TIME = re.compile(r"Time: (D\S+)|(?s:Created: (D\S+)(?=.*X-Receipt-Count))")


class Play:
    """Plays transcripts: sends what clients send, and compares what the server does."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.clock = Clock()
        self.default = Listener()
        self.bobs = Listener()
        stack.callback(self.default.close)
        stack.callback(self.bobs.close)
        self.servers: dict[str, Running] = {}
        self.wires: dict[str, Wire] = {}
        self.happenings: dict[str, Callable[[], None]] = {}

    def server(self, of: str, context: str, first: int) -> Running:
        """Run a server for the clients named by letters."""
        server = self._stack.enter_context(
            running(clock=self.clock, context=context, software="ExampleMQ/0.1", client_port=self.default.port)
        )
        server.server.administer(lambda admin: admin.number_messages_from(first))
        self.servers.update(dict.fromkeys(of, server))
        return server

    def play(self, name: str) -> None:
        """Play a transcript."""
        blocks = list(self._blocks((DATA / name).read_text("utf-8")))
        for place, (tag, lines) in enumerate(blocks):
            if tag == ";;":
                for line in lines:
                    self._happen(line)
            elif tag.endswith(">"):
                self._set_clock(lines, blocks[place + 1 :])
                self._wire(tag[:-1]).send(self._octets(lines))
            else:
                expected = self._octets(lines)
                found = self._wire(tag[:-1]).read(len(expected))
                assert found == expected, f"{name}, block {place}, {tag}"

    def _blocks(self, text: str) -> Iterator[tuple[str, list[str]]]:
        split = [line.partition(" ") for line in text.splitlines()]
        for tag, lines in groupby(split, key=lambda line: line[0]):
            yield tag, [text for _, _, text in lines]

    def _octets(self, lines: list[str]) -> bytes:
        return "".join(f"{line}\r\n" for line in lines).replace(BOBS_PORT, str(self.bobs.port)).encode()

    def _set_clock(self, sent: list[str], following: list[tuple[str, list[str]]]) -> None:
        """Let it be the time at which a message is created, or that the server's next answers tell."""
        created = [line.partition(" ")[2] for line in sent if line.startswith("Created")]
        for date in created:
            self.clock.now = parse_date(date).timestamp()
        for tag, lines in following:
            if tag.endswith(">"):
                return
            if (found := TIME.search("\n".join(lines))) is not None:
                self.clock.now = parse_date(found[1] or found[2]).timestamp()

    def _wire(self, name: str) -> Wire:
        if name not in self.wires:
            if name.endswith("N"):
                self.wires[name] = (self.bobs if name == "BN" else self.default).accept()
            else:
                self.wires[name] = Wire(Raw.connect(self.servers[name].address))
            self._stack.callback(self.wires[name].close)
        return self.wires[name]

    def _happen(self, line: str) -> None:
        for text, happening in self.happenings.items():
            if text in line:
                happening()

    def forget(self, *names: str) -> None:
        """Let connections end."""
        for name in names:
            if name in self.wires:
                self.wires.pop(name).close()


@pytest.fixture
def play() -> Iterator[Play]:
    """Give something that plays transcripts."""
    with ExitStack() as stack:
        yield Play(stack)


def prepare(play: Play) -> None:
    """Run the server of the first four transcripts."""
    server = play.server("AB", "mq.example", 1001)
    server.accounts("bob", rights=Right.SUBSCRIBE | Right.PUBLISH | Right.REPLY)
    server.accounts("alice")
    server.server.administer(lambda admin: admin.set_password("bob", "s3cret"))
    server.server.administer(lambda admin: admin.set_password("alice", "pa55"))
    server.topics("/stocks/quotes/acme", "/stocks/quotes/zeta", "/news")
    deliveries = server.server.engine.core.database

    def break_before_acknowledgement() -> None:
        play.forget("BN")

    def break_after_it() -> None:
        eventually(lambda: deliveries.row("SELECT COUNT(*) FROM deliveries")[0] == 0)
        play.forget("BN")

    def leave() -> None:
        play.forget("B")

    def come_back() -> None:
        play.bobs, bobs = play.default, play.bobs
        bobs.close()
        server.server.administer(lambda admin: admin.set_options(announces_timeout=False))

    def much_later() -> None:
        play.clock.now += 7200
        server.sweep()

    play.happenings = {
        "link breaks before bob's ACK": break_before_acknowledgement,
        "link breaks again": break_after_it,
        "published while bob is away": leave,
        "bob returns": come_back,
        "much later": much_later,
        "administrator stops the server": lambda: server.server.administer(lambda admin: admin.say_goodbye(300.0)),
    }


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_transcripts_of_one_server(play: Play, last: int) -> None:
    """SM-003 SM-023 and most others: login, delivery, receipt, reply, topics, errors, lost acknowledgements, Trash."""
    prepare(play)
    for number in range(1, last + 1):
        play.play(f"t{number}.txt")


def test_transcript_of_two_servers(play: Play) -> None:
    """SM-231 to SM-238: what a server does for another one that is its client."""
    ours, theirs = play.server("A", "a.example", 2001), play.server("L", "b.example", 501)
    for server in (ours, theirs):
        server.topics("/stocks/quotes/acme")
        server.server.administer(lambda admin: admin.set_options(announces_timeout=False))
    ours.accounts("alice")
    theirs.accounts("bob")
    theirs.accounts("peer-a", is_peer=True, rights=Right.SUBSCRIBE | Right.PUBLISH)
    theirs.server.administer(lambda admin: admin.set_password("peer-a", "l1nk"))
    play.wires["A"] = alice = ours.client("alice", listen=False)
    bob = theirs.client("bob")
    play.wires["BN"] = bob.notify
    assert alice.code("NOOP") == 200
    alice.read(2)
    play.happenings = {"bob subscribes": lambda: bob.data("SUB MESSAGE /stocks/quotes/acme") and None}
    play.play("t5.txt")


def test_our_link_speaks_as_in_the_transcript(play: Play) -> None:
    """Our server as the client of T5: it says, octet for octet, what `L>` does, and where it listens besides."""
    server = play.server("A", "a.example", 2001)
    server.topics("/stocks/quotes/acme")
    server.accounts("alice")
    door = Listener()
    host, port = door.socket.getsockname()
    topic = "/stocks/quotes/acme"
    server.server.link(
        Peer(context="b.example", host=host, port=port, account="peer-a", password="l1nk", topics=(topic,))
    )
    counts = server.server._links["b.example"]._interest.counts
    line = door.accept()
    notify: Wire | None = None
    alice = server.client("alice", listen=False)
    alice.read(2)
    for tag, lines in play._blocks((DATA / "t5.txt").read_text("utf-8")):
        octets = play._octets(lines)
        if tag == "L<":
            line.send(octets)
        elif tag == "L>" and b" F2" in octets:  # the same again, as another server might send it
            break
        elif tag == "L>":
            if octets.startswith(b"SUB SUB"):
                command = line.until(b"\r\n\r\n").split()
                assert command[:3] == [b"SET", b"NOTIFY", b"PORT"]
                notify = Wire(Raw.connect((host, int(command[3]))))
                line.send("200 OK\r\n\r\n")
            assert line.read(len(octets)) == octets
        elif tag == "LN<":
            assert notify is not None
            notify.send(octets)
            eventually(lambda: counts.get(topic) == 1)
        elif tag == "A>":
            alice.send(octets)
        elif tag == "A<":
            assert alice.read(len(octets)) == octets
    assert notify is not None
    for wire in (line, notify):
        wire.close()
    door.close()
