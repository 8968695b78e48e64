"""What the tests of SMQP are written with: a real server, and clients that are bare sockets."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread, get_ident
from typing import Any, Final

import pytest
from waiting import eventually as eventually

from brokers.smqp.client import (
    Client,
    ClientOptions,
)
from brokers.smqp.server import Options, Right, Server

PATIENCE: Final = 20.0
QUICK: Final = Options(
    context="mq.example", scrypt_cost=2, retry_timeout=5.0, retry_pause=0.05, reconnect=(0.05, 0.2), connect_timeout=5.0
)
"""Options with which nothing takes long."""
CREATED: Final = "Created: D09092001T10160000Z"


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1_000_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Wire:
    """One connection, as octets."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._held = b""

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def read(self, count: int) -> bytes:
        """Wait for so many octets."""
        while len(self._held) < count:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError(f"the connection ended after {self._held!r}")
            self._held += data
        out, self._held = self._held[:count], self._held[count:]
        return out

    def until(self, end: bytes) -> bytes:
        """Wait for octets up to an end, and return them with it."""
        while end not in self._held:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError(f"the connection ended after {self._held!r}")
            self._held += data
        out, _, self._held = self._held.partition(end)
        return out + end

    def line(self) -> str:
        return self.until(b"\r\n").decode().removesuffix("\r\n")

    def is_over(self) -> bool:
        """Wait for the end, and say whether nothing came before it."""
        try:
            while data := self.socket.recv(65536):
                self._held += data
            return not self._held.strip()
        except ConnectionError:
            return True

    def is_silent(self, seconds: float = 0.05) -> bool:
        """Say whether nothing comes for a moment."""
        self.socket.settimeout(seconds)
        try:
            while True:
                self._held = (self._held + self.socket.recv(65536)).lstrip(b"\r\n")
                if self._held:
                    return False
        except TimeoutError:
            return not self._held.strip()
        finally:
            self.socket.settimeout(PATIENCE)

    def close(self) -> None:
        self.socket.close()


class Listener:
    """Where a client is notified."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(PATIENCE)
        self.port: int = self.socket.getsockname()[1]

    def accept(self) -> Wire:
        return Wire(self.socket.accept()[0])

    def close(self) -> None:
        self.socket.close()


class Raw(Wire):
    """A client by hand: commands in, replies out."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(self.connect(address))
        self.banner = self.line()
        self.listener: Listener | None = None
        self.notify: Wire

    @staticmethod
    def connect(address: tuple[str, int]) -> socket.socket:
        return socket.create_connection(address, PATIENCE)

    def ask(self, *lines: str) -> list[str]:
        """Send a command, with its message if it has one; return the lines of the reply."""
        self.send("".join(f"{line}\r\n" for line in lines) + "\r\n")
        return self.reply()

    def reply(self) -> list[str]:
        out = []
        while True:
            line = self.line()
            if not line:
                continue
            out.append(line)
            if line[3:4] != "-":
                return out

    def code(self, *lines: str) -> int:
        """Send a command; return the code of the reply."""
        return int(self.ask(*lines)[-1][:3])

    def data(self, *lines: str) -> list[str]:
        """Send a command that succeeds; return what follows the first line of the reply."""
        found = self.ask(*lines)
        assert found[0].startswith("200"), found
        return [line[4:] for line in found[1:]]

    def login(self, account: str, password: str = "pw", *, listen: bool = True) -> Raw:
        """Log in, and listen for notifications."""
        assert self.code(f"LOGIN {account} CLEAR/1.0") == 200
        assert self.code(f"PASS {account} {password}") == 200
        if listen:
            self.listen()
        return self

    def listen(self) -> None:
        """Be notified at a port of one's own."""
        self.listener = Listener()
        assert self.code(f"SET NOTIFY PORT {self.listener.port}") == 200
        self.notify = self.listener.accept()

    def publish(self, topic: str, cmuid: str, *attributes: str, data: str | None = None) -> int:
        """Publish; return the smuid."""
        (line,) = self.data(*publication(f"PUB MESSAGE {topic} {cmuid}", *attributes, data=data))
        echoed, smuid = line.split()
        assert echoed == cmuid
        return int(smuid)

    def notified(self) -> list[str]:
        """Wait for a notification, and return its lines; data must have no empty lines."""
        first = self.notify.line()
        while not first:
            first = self.notify.line()
        if not first.startswith("NOTIFY MESSAGE"):
            rest = [] if first.startswith("NOTIFY SERVER") else self.notify.until(b"\r\n\r\n").decode().split("\r\n")
            return [first, *(line for line in rest if line)]
        return [first, *self.notify.until(b"\r\n.\r\n").decode().split("\r\n")[:-2]]

    def acknowledge(self) -> None:
        self.notify.send("310 ACK\r\n\r\n")
        line = self.notify.line() or self.notify.line()
        assert line == "310 ACK", line

    def received(self) -> list[str]:
        """Wait for a message, acknowledge it, and return its lines."""
        lines = self.notified()
        self.acknowledge()
        return lines

    def smuid(self) -> int:
        """Wait for a message, acknowledge it, and return its number."""
        return int(attribute(self.received(), "Smuid").rpartition("/")[2])

    def notified_anew(self) -> None:
        """Let the notify connection end, and wait for the next."""
        assert self.listener is not None
        self.notify.close()
        self.notify = self.listener.accept()

    def close(self) -> None:
        super().close()
        if self.listener is not None:
            self.listener.close()
            self.notify.close()


class From(Raw):
    """A client at another address of this machine, which counts for itself."""

    def __init__(self, host: str, address: tuple[str, int]) -> None:
        connected = socket.create_connection(address, PATIENCE, source_address=(host, 0))
        self.connect = lambda _: connected  # type: ignore[method-assign]
        super().__init__(address)


def publication(command: str, *attributes: str, data: str | None = None) -> list[str]:
    """Make the lines of a message and of its command, without the last empty one."""
    lines = [command, *(() if any(each.startswith("Created") for each in attributes) else (CREATED,)), *attributes, ""]
    if data is not None:
        lines += ["Content-Type: text/plain", f"Content-Length: {len(data.encode())}", "", data]
    return [*lines, "."]


def attribute(lines: list[str], name: str) -> str:
    """Return the value of an attribute."""
    return next(line.partition(": ")[2] for line in lines if line.lower().startswith(name.lower() + ":"))


class Running:
    """A server under test, and what is connected to it."""

    def __init__(self, options: Options, store: str | Path, clock: Callable[[], float], port: int) -> None:
        self.server = Server(store, options, clock=clock)
        self.address = self.server.listen("127.0.0.1", port)
        self._clients: list[Wire] = []

    def raw(self) -> Raw:
        """Connect a client by hand."""
        client = Raw(self.address)
        self._clients.append(client)
        return client

    def client(self, account: str, **kind: Any) -> Raw:
        """Connect a client and log it in."""
        return self.raw().login(account, **kind)

    def accounts(self, *names: str, rights: Right = Right.ALL, **kind: Any) -> None:
        """Create accounts with the password `pw`, and with rights everywhere."""
        for name in names:
            self.server.administer(lambda admin, name=name: admin.create_account(name, "pw", **kind))  # type: ignore[misc]
            self.grant(name, "/", rights)

    def grant(self, name: str | None, path: str, rights: Right) -> None:
        self.server.administer(lambda admin: admin.grant(name, path, rights))

    def topics(self, *paths: str, **kind: Any) -> None:
        for path in paths:
            self.server.administer(lambda admin, path=path: admin.create_topic(path, **kind))  # type: ignore[misc]

    def sweep(self) -> None:
        self.server.administer(lambda admin: admin.sweep())

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.server.close(None)


@contextmanager
def running(
    store: str | Path = ":memory:", clock: Callable[[], float] = time.time, port: int = 0, **options: Any
) -> Iterator[Running]:
    """Run a server for a test."""
    server = Running(replace(QUICK, **options), store, clock, port)
    try:
        yield server
    finally:
        server.close()


def prepared(server: Running) -> str:
    """Set a server up for JMS, and return its URL."""
    server.accounts("jms", rights=Right.NONE)
    server.server.administer(lambda admin: admin.prepare_for_jms())
    for path in ("/queue", "/topic", "/temporary"):
        server.grant("jms", path, Right.ALL)
    host, port = server.address
    return f"smqp://jms:pw@{host}:{port}"


QUICK_CLIENT: Final = ClientOptions(timeout=10.0, in_doubt=0.2, keepalive=5.0, renew=(0.02, 0.2), ack_timeout=5.0)


@contextmanager
def connected(address: tuple[str, int], account: str = "alice", **kind: Any) -> Iterator[Client]:
    """Connect a client."""
    options = replace(QUICK_CLIENT, **kind.pop("options", {}))
    with Client(*address, account=account, password=kind.pop("password", "pw"), options=options, **kind) as client:
        yield client


@contextmanager
def interrupted(once: Callable[[], object]) -> Iterator[pytest.ExceptionInfo[KeyboardInterrupt]]:
    """Interrupt the block, which does not end by itself, as Ctrl-C does once a condition holds."""

    def interrupt(thread: int) -> None:
        eventually(once)
        signal.pthread_kill(thread, signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupting = Thread(target=interrupt, args=(get_ident(),), daemon=True)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt) as found:
            yield found
    finally:
        interrupting.join()
        signal.signal(signal.SIGINT, handler)


class Inbox:
    """A callback that keeps what it gets."""

    def __init__(self) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()

    def __call__(self, item: Any) -> None:
        self._items.put(item)

    def next(self) -> Any:
        return self._items.get(timeout=PATIENCE)

    def data(self, count: int) -> list[bytes]:
        return [self.next().data for _ in range(count)]

    @property
    def is_empty(self) -> bool:
        return self._items.empty()


class FakeServer:
    """A server that says what a test wants it to."""

    def __init__(self, banner: str = "SMQP/1.0 Ready.", replies: dict[str, bytes] | None = None) -> None:
        self.listener = Listener()
        self.address = ("127.0.0.1", self.listener.port)
        self.port = 0
        self._first: list[Wire] = []
        self.heard: list[str] = []
        self.ended = Event()
        self._banner = banner
        self._replies = {"PASS": b"200-OK\r\n200-Topic: /accounts/alice\r\n200 Guid: g\r\n\r\n"} | (replies or {})
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            wire = self.listener.accept()
        except OSError:
            return
        try:
            wire.send(self._banner + "\r\n")
            while True:
                line = wire.line()
                if not line:
                    continue
                self.heard.append(line)
                if line.startswith("PUB"):
                    wire.until(b"\r\n.\r\n")
                if line.startswith("SET NOTIFY PORT"):
                    self.port = int(line.split()[-1])
                    self._first.append(self.notify())
                wire.send(self._replies.get(line.split()[0], b"200 OK\r\n\r\n"))
        except (OSError, EOFError):
            pass
        finally:
            wire.close()
            self.ended.set()

    def tell(self, number: int) -> Wire:
        """Connect to the client, which takes a notification; return the connection before that is confirmed."""
        wire = self.notify()
        wire.send(notification(number))
        assert wire.line() == "310 ACK"
        return wire

    def notify(self) -> Wire:
        """Connect to the client."""
        return Wire(socket.create_connection(("127.0.0.1", self.port)))

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.listener.close()
        self._thread.join(PATIENCE)
        for each in self._first:
            each.close()


def notification(smuid: int, data: str = "x") -> str:
    """Write a notification."""
    head = f"NOTIFY MESSAGE /t\r\n{CREATED}\r\nSmuid: h/{smuid}\r\nCmuid: a/b/{smuid}\r\n\r\n"
    return head + f"Content-Type: text/plain\r\nContent-Length: {len(data)}\r\n\r\n{data}\r\n.\r\n\r\n"
