"""A hostile STOMP broker: whatever it sends, our client goes on or connects again, and hands over whole messages."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from random import Random
from threading import Lock, Thread
from typing import Any, Final

from stomp_kit import assert_no_threads

import brokers
from brokers import BrokerError, Delivery, DeliveryMode, Message, MessageType, queue
from brokers.adapter.endpoints import Reconnect
from brokers.stomp.codec import MAX_LENGTH_DIGITS, Cutter, WholeFrame, read
from fuzz.row import Case, Row

PATIENCE: Final = 30.0
SHORT: Final = 0.1
"""Seconds after which a broker hangs up whose client says nothing: its greeting was none."""

SERVERS: Final = {"activemq": ("ActiveMQ/6.1.8", "1.2"), "artemis": ("ActiveMQ-Artemis/2.44.0", "1.1")}
VICTIM: Final = queue("victim")
HELD: Final = "held"
"""Correlation id of what is sent by the row: our client also puts back what it was given by mistake."""
HEAD_ENDS: Final = re.compile(rb"\r?\n\r?\n")
LENGTH: Final = re.compile(rb"content-length:[ \t]*([0-9]+)[ \t]*")


@dataclass(eq=False)
class Session:
    """A client that is connected: what it subscribed to, in order, and who waits for which receipt.

    `number` counts those of a broker.
    """

    socket: socket.socket
    number: int = 0
    subscriptions: dict[str, str] = field(default_factory=dict)
    held: str = ""
    is_over: bool = False
    lock: Any = field(default_factory=Lock)

    def send(self, octets: bytes) -> None:
        """Write; a client that hung up hears nothing."""
        with suppress(OSError), self.lock:
            self.socket.sendall(octets)

    def hang_up(self) -> None:
        """End it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    @property
    def victim(self) -> str | None:
        """The subscription of the consumer that is looked at."""
        names = [name for name, destination in list(self.subscriptions.items()) if destination.endswith("victim")]
        return names[-1] if names and not self.is_over else None


def frame(command: str, body: bytes = b"", **headers: str) -> bytes:
    """Write a frame; underscores of header names stand for hyphens, and nothing is escaped."""
    head = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
    return f"{command}\n{head}\n".encode() + body + b"\0"


class UnknownProtocolError(Exception):
    """A client that was greeted strangely tries which other protocol is spoken."""


class Broker:
    """Listens, and answers as a broker does, but for what a case has it say.

    Attributes:
        greeting: what the next client hears in the place of CONNECTED.
        holds: the receipt of the next SEND of `HELD` is kept back.
        latest: the session that there is.
    """

    def __init__(self, dialect: str) -> None:
        self.server, self.version = SERVERS[dialect]
        self.greeting: bytes | None = None
        self.holds = False
        self.latest: Session | None = None
        self._lock = Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        Thread(target=self._accept, name="hostile", daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            for number in count(1):
                client, _ = self._socket.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Thread(target=self._serve, args=(Session(client, number),), name="hostile", daemon=True).start()

    def _serve(self, session: Session) -> None:
        cutter, greeting = Cutter(), self.greeting
        self.greeting = None
        with suppress(OSError, UnknownProtocolError), session.socket:
            try:
                while octets := session.socket.recv(65536):
                    for each in cutter.cut(octets):
                        found = read(each) if isinstance(each, WholeFrame) else None
                        if found is None:
                            raise UnknownProtocolError
                        if found.cmd in ("CONNECT", "STOMP") and greeting is not None:
                            session.send(greeting)
                            session.socket.settimeout(SHORT)
                        else:
                            session.socket.settimeout(None)
                            self._answer(session, found.cmd, found.headers)
            finally:  # before the client sees the end
                session.is_over = True

    def _answer(self, session: Session, command: str, headers: dict[str, str]) -> None:
        if command in ("CONNECT", "STOMP"):
            told = {"server": self.server, "version": self.version, "session": "ID:s-1-1:1", "heart-beat": "0,0"}
            session.send(frame("CONNECTED", **told))
        elif command == "SUBSCRIBE":
            session.subscriptions[headers["id"]] = headers["destination"]
            with self._lock:  # what an earlier session wrote before its end may be read after this one subscribed
                if self.latest is None or self.latest.number < session.number:
                    self.latest = session
        elif command == "UNSUBSCRIBE":
            session.subscriptions.pop(headers["id"], None)
        if command == "SEND" and self.holds and headers.get("correlation-id") == HELD:
            session.held = headers.get("receipt", "")
        elif "receipt" in headers:
            session.send(frame("RECEIPT", receipt_id=headers["receipt"]))

    def session(self) -> Session:
        """Wait for a client that has subscribed."""
        until = time.monotonic() + PATIENCE
        while self.latest is None or self.latest.victim is None:
            assert time.monotonic() < until, "the client did not come back and subscribe"
            time.sleep(0.0005)
        return self.latest


# What it says

ESCAPES: Final = ("\\x", "\\", "\\\\c", "\\r\\n", "\\c\\c", "\\t", "a\\", "\ud800", "\u2028", "ä")
LENGTHS: Final = (
    "0",
    "1",
    "-1",
    "99",
    "9" * 9,
    "9" * 10,
    "9" * 5000,
    "x",
    "",
    "+3",
    "3 ",
    " 3",
    "0x3",
    "٣",
    "3;4",
    "3,3",
)
DESTINATIONS: Final = (
    "/queue/victim",
    "/queue/other",
    "/topic/t",
    "",
    "/temp-queue/x",
    "queue://q",
    "/remote-temp-queue/ID:x",
)
NUMBERS: Final = ("1", "-1", "9" * 19, "9" * 4000, "x", "", "1.5", "٣")
ADVISORY: Final = "/topic/ActiveMQ.Advisory.Consumer.Queue.victim"


class Says:
    """Makes frames, right ones first, then with mistakes. `{…}` stands for what is known when it is said."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._number = 0

    def octets(self) -> bytes:
        """Say some frames."""
        pieces = [self._piece() for _ in range(self._chance.choice((1, 1, 2, 4, 12)))]
        return b"".join(pieces)

    def _piece(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.05:
            return chance.choice([b"\n", b"\r\n", b"\n\r", b"\r"]) * chance.choice((1, 100, 300_000))
        if chance.random() < 0.03:
            return chance.choice([b"\0", b"\0" * 5000, b"X" * 70_000, chance.randbytes(300), b"\n\0\n", b"\xff\xfe"])
        lines, body = self._frame()
        for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
            self._spoil(lines)
        end = chance.choice([b"\r\n", b"\n\n", b"\r"]) if chance.random() < 0.1 else b"\n"
        head = end.join(each.encode("utf-8", "surrogatepass") for each in lines) + end
        if chance.random() < 0.95:
            head += end
        return head + body + (b"\0" if chance.random() < 0.95 else chance.choice([b"", b"\n", b"\0\0\0"]))

    def _frame(self) -> tuple[list[str], bytes]:
        return self._chance.choice(
            [self._message, self._message, self._message, self._receipt, self._error, self._connected, self._odd]
        )()

    def _message(self) -> tuple[list[str], bytes]:
        chance = self._chance
        self._number += 1
        said = chance.choice(
            [b"", b"x", b"\xff\xfe", b"MESSAGE\nsubscription:{victim}\n\nforged", b"a\n\nb\n", b"y" * 9000]
        )
        body = b"%d %s" % (self._number, said)
        to = chance.choice(["{victim}", "{victim}", "{victim}", "{other}", "none", ""])
        lines = ["MESSAGE", f"subscription:{to}", f"message-id:ID\\cx-{self._number}", f"ack:{self._number}"]
        lines += [f"destination:{ADVISORY if to == '{other}' else DESTINATIONS[0]}", "persistent:true", "priority:4"]
        if to == "{other}":
            lines += ["originBrokerId:x", "consumerCount:1", "transformation:jms-advisory-json"]
            body = b'{"ConsumerInfo":{"consumerId":{"connectionId":"ID:s-1-1:1","sessionId":-1,"value":1}}}'
        if chance.random() < 0.6:
            lines.append(f"content-length:{len(body)}")
            body = body.replace(b"x", b"\0") if chance.random() < 0.3 else body
        if chance.random() < 0.3:
            chance.shuffle(lines[1:])
        return lines, body

    def _receipt(self) -> tuple[list[str], bytes]:
        return [
            "RECEIPT",
            f"receipt-id:{self._chance.choice(['{held}', '{held}', 'leave', 'x', ''])}",
        ], b""

    def _error(self) -> tuple[list[str], bytes]:
        said = self._chance.choice(
            ["no\nstack", "", "x" * 20_000, "\x1b[31mred\r", "User name [x] or password is invalid."]
        )
        to = self._chance.choice(["{held}", "x", "", "leave"])
        return ["ERROR", f"message:{said[:50]!r}", f"receipt-id:{to}"], said.encode()

    def _connected(self) -> tuple[list[str], bytes]:
        chance = self._chance
        server = chance.choice(["ActiveMQ/6.1.8", "ActiveMQ-Artemis/2.44.0", "Other/1", "", "x" * 9000])
        beat = chance.choice(["0,0", "1,1", "10,10", "x", "9999999999,1", "-1,-1", "1000,1000,1", ""])
        return [
            "CONNECTED",
            f"server:{server}",
            f"version:{chance.choice(['1.2', '1.1', '9', ''])}",
            f"heart-beat:{beat}",
        ], b""

    def _odd(self) -> tuple[list[str], bytes]:
        command = self._chance.choice(
            ["MESSAGES", "message", "", " MESSAGE", "SEND", "HEARTBEAT", "NACK", "X" * 3000, "\\n"]
        )
        return [command, "a:b"], b"body"

    def _spoil(self, lines: list[str]) -> None:
        """Make one mistake in the head."""
        chance = self._chance
        if not lines:
            return
        at = chance.randrange(len(lines))
        name, _, value = lines[at].partition(":")
        numbers = [
            "priority",
            "timestamp",
            "expires",
            "redelivered",
            "reply-to",
            "correlation-id",
            "type",
            "persistent",
        ]
        changes: list[Callable[[], object]] = [
            lambda: lines.insert(at + 1, lines[at]),
            lambda: lines.insert(1, f"{name}:{chance.choice([*ESCAPES, *NUMBERS, *DESTINATIONS])}"),
            lambda: lines.append(f"{name}:{chance.choice(ESCAPES)}"),
            lambda: lines.append(f"{chance.choice(ESCAPES)}:x"),
            lambda: lines.insert(chance.randrange(1, len(lines) + 1), f"content-length:{chance.choice(LENGTHS)}"),
            lambda: lines.append(f"content-length :{chance.choice(LENGTHS)}"),
            lambda: lines.append(f"Content-Length:{chance.choice(LENGTHS)}"),
            lambda: lines.insert(
                chance.randrange(1, len(lines) + 1), f"{chance.choice(numbers)}:{chance.choice(NUMBERS)}"
            ),
            lambda: lines.__setitem__(at, name),
            lambda: lines.__setitem__(at, f"{name}:"),
            lambda: lines.__setitem__(at, f"{name}: {value} "),
            lambda: lines.__setitem__(at, f"{name}:{value}\0"),
            lambda: lines.__setitem__(at, f"{name}:{value}\r"),
            lambda: lines.__delitem__(at),
            lambda: lines.extend(f"h{number}:x" for number in range(chance.choice((3, 3000)))),
            lambda: lines.append("long:" + "x" * chance.choice((300, 100_000))),
        ]
        chance.choice(changes)()


def whole(octets: bytes, subscription: str) -> tuple[set[bytes], bool]:
    """Read what a broker said, as STOMP has it.

    Returns:
        The bodies of the messages for a subscription that are whole, and whether a frame begins where it ends.
    """
    bodies, at = set[bytes](), 0
    while True:
        while octets[at : at + 1] in (b"\n", b"\r"):
            at += 1
        if at >= len(octets):
            return bodies, True
        nul = octets.find(b"\0", at)
        head = HEAD_ENDS.search(octets, at, len(octets) if nul < 0 else nul)
        if head is None:
            if nul < 0 or octets.startswith(b"MESSAGE", at):
                return bodies, False
            at = nul + 1
            continue
        lines = re.split(rb"\r?\n", octets[at : head.start()])
        lengths = [found for each in lines[1:] if (found := LENGTH.fullmatch(each)) is not None]
        if lengths and len(lengths[0][1]) > MAX_LENGTH_DIGITS:
            return bodies, False
        end = octets.find(b"\0", head.end()) if not lengths else head.end() + int(lengths[0][1])
        if end < 0 or octets[end : end + 1] != b"\0":
            return bodies, False
        if lines[0] == b"MESSAGE" and b"subscription:" + subscription.encode() in [each.strip() for each in lines]:
            bodies.add(octets[head.end() : end])
        at = end + 1


class Client:
    """Our client at such a broker: one consumer, and somebody who sends."""

    def __init__(self, dialect: str, stack: ExitStack) -> None:
        self.broker = Broker(dialect)
        stack.callback(self.broker.close)
        self.got: SimpleQueue[Message] = SimpleQueue()
        self._connection = stack.enter_context(
            brokers.connect(
                f"stomp://a:b@127.0.0.1:{self.broker.port}",
                timeout=PATIENCE / 3,  # an answer that never comes is not waited for as long as for the next client
                reconnect=Reconnect(initial=0.001, maximum=0.01),
            )
        )
        self._connection.consume(VICTIM, self._take, prefetch=10)
        self._number = 0

    def _take(self, delivery: Delivery) -> None:
        self.got.put(delivery.message)
        delivery.accept()

    def _send(self) -> Any:
        return self._connection.send(
            Message(
                message_type=MessageType.TEXT,
                body="x",
                destination=VICTIM,
                delivery_mode=DeliveryMode.PERSISTENT,
                correlation_id=HELD,
            )
        )

    def hear(self, octets: bytes, *, holds: bool, cut: int) -> str:
        """Have the broker say something, perhaps while a SEND waits for its receipt, and see what comes of it."""
        session, sending = self.broker.session(), None
        if holds:
            self.broker.holds, session.held = True, ""
            sending = self._send()
            until = time.monotonic() + PATIENCE
            while not session.held and time.monotonic() < until:
                time.sleep(0.0005)
            self.broker.holds = False
        victim = session.victim or ""
        others = [each for each in list(session.subscriptions) if each != victim] or ["none"]
        known = {b"{victim}": victim.encode(), b"{other}": others[0].encode(), b"{held}": session.held.encode()}
        for name, value in known.items():
            octets = octets.replace(name, value)
        bodies, is_whole = whole(octets, victim)
        for at in range(0, len(octets), cut):
            session.send(octets[at : at + cut])
        if is_whole:
            if holds:
                session.send(frame("RECEIPT", receipt_id=session.held))
        else:
            session.hang_up()
        heard = self._await_marker()
        self._check(heard, bodies)
        if sending is not None:
            with suppress(BrokerError):
                sending.result(PATIENCE)
        return f"{'goes on' if session is self.broker.latest else 'again'}, {'some' if heard else 'no'} messages"

    def greet(self, octets: bytes) -> str:
        """Have the broker greet with something."""
        for name in (b"{victim}", b"{other}", b"{held}"):
            octets = octets.replace(name, b"x")
        session = self.broker.session()
        self.broker.greeting = octets
        session.hang_up()
        until = time.monotonic() + PATIENCE
        while self.broker.latest is session or not session.is_over:
            assert time.monotonic() < until, "the client did not connect again"
            time.sleep(0.0005)
        self._check(self._await_marker(), set())
        return "greeted"

    def _await_marker(self) -> list[bytes]:
        """Say something right until that arrives, and return what did before."""
        self._number += 1
        marker, heard, told = f"marker {self._number}".encode(), list[bytes](), None
        until = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < until, "what the broker says rightly does not arrive"
            session = self.broker.session()
            if told != (session, session.victim):
                told = session, session.victim
                headers = {"subscription": session.victim or "", "destination": "/queue/victim", "ack": marker.decode()}
                session.send(frame("MESSAGE", marker, **headers, message_id=marker.decode()))
            with suppress(Empty):
                message = self.got.get(timeout=0.002)
                body = message.body.encode() if isinstance(message.body, str) else bytes(message.body or b"")
                if body == marker:
                    return heard
                if not body.startswith(b"marker "):  # of a case before, which was said twice
                    heard.append(body)

    def _check(self, heard: list[bytes], bodies: set[bytes]) -> None:
        for each in heard:
            assert each in bodies, f"{each[:200]!r} is no message that the broker sent"

    def look(self) -> None:
        """See that what is sent is confirmed."""
        for _ in range(10):
            try:
                self._send().result(PATIENCE)
            except BrokerError:
                continue
            return
        raise AssertionError("nothing that is sent is confirmed")


class Clients:
    """A client for each dialect."""

    def __init__(self, stack: ExitStack) -> None:
        self._clients = [Client(each, stack) for each in SERVERS]

    def make(self, chance: Random) -> Case:
        """Choose whom to tell what."""
        client, octets = chance.choice(self._clients), Says(chance).octets()
        if chance.random() < 0.1:
            return Case(len(octets), lambda: client.greet(octets))
        cut = chance.choice((1 << 20, 1 << 20, 4096, max(1, len(octets) // 3)))
        holds = chance.random() < 0.3
        return Case(len(octets), lambda: client.hear(octets, holds=holds, cut=cut))

    def look(self) -> None:
        """See that each works."""
        for each in self._clients:
            each.look()


@contextmanager
def clients() -> Iterator[Clients]:
    """Connect; no thread is left behind."""
    with ExitStack() as stack:
        yield Clients(stack)
    assert_no_threads()


ROW: Final = Row(
    name="stomp",
    holds="whatever a broker says, the connection goes on or is made again, and the consumer has whole messages only",
    opens=clients,
    cases=20_000,
    gate=150,
)
