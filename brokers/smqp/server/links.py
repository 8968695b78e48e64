"""Links to other servers: this server is a client there, and passes on messages that are published with a Depth.

Messages to pass on are kept until the other server has them. The link asks for the number of subscribers there, and is
notified of changes: it passes on a message if there are any, or if the message may go further, as no server tells
about the servers behind it.

Spec: SMQP 2.3, 4.1.8.1 (DEPTH).

Deviation: SMQP has no commands for links. See `X-Hops` and the dialogue T5 in tests/data/smqp.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event
from typing import Final, NamedTuple, TypeAlias

from brokers import events
from brokers.errors import BrokerError
from brokers.smqp.client.connection import Address, KeptConnection, secured_by
from brokers.smqp.client.inbox import SubscriberCount
from brokers.smqp.client.notifications import told_of
from brokers.smqp.client.options import ClientOptions
from brokers.smqp.protocol.commands import Command, CommandKind
from brokers.smqp.protocol.dialogue import SERVER_PORT, ReceivedCommand
from brokers.smqp.protocol.messages import Attribute, Attributes, parse_line
from brokers.smqp.protocol.replies import AGAIN, RefusedError, ReplyCode
from brokers.smqp.protocol.topics import covers, fold, is_wildcard
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.messages import StoredMessage
from brokers.threads.thread import Thread
from brokers.threads.timer import left

HOPS: Final = "X-Hops"
BATCH_MESSAGES: Final = 100
"""Number of messages taken from the store at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another server, and the account of this server there, which must be that of a peer.

    Attributes:
        context: the name of the other server.
        host: its host.
        port: its port, 720 by default.
        account: the account to log in to.
        password: the password of the account.
        topics: the topics whose messages may be passed on: names and wildcards.
        tls: the SSL context for SMQPS; None for a link without TLS.
        options: the client options of the link.
    """

    context: str
    host: str
    port: int = SERVER_PORT
    account: str
    password: str
    topics: tuple[str, ...] = ("*",)
    tls: ssl.SSLContext | None = None
    options: ClientOptions = field(default_factory=ClientOptions)


class ForwardedMessage(NamedTuple):
    """A message to pass on, and its topic."""

    message: StoredMessage
    path: str


class Interest:
    """The numbers of subscribers at the other server, by topic; as a `Hearer` it is notified of changes."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.generation = 0

    def take(self, heard: ReceivedCommand) -> bool:
        """Acknowledge a message and ignore it: none was subscribed to."""
        return True

    def confirmed(self, heard: ReceivedCommand) -> None:
        """Do nothing."""

    def doubted(self, heard: ReceivedCommand) -> None:
        """Do nothing; the message is ignored anyway."""

    def ended(self) -> None:
        """Do nothing: `take` never waits."""

    def notice(self, heard: ReceivedCommand) -> None:
        """Note a new number of subscribers."""
        told = told_of(heard)
        if isinstance(told, SubscriberCount):
            self.counts[fold(told.topic)] = told.count


OnServer: TypeAlias = "Callable[[Callable[[], list[ForwardedMessage]]], Future[list[ForwardedMessage]]]"


class PeerLink:
    """Passes messages on to another server, on a separate thread, until it is closed.

    Args:
        core: the core of the server; used only on the server's thread, except for its options.
        call: runs a function on the server's thread, then executes its actions.
        peer: the other server.
    """

    def __init__(self, core: SmqpCore, call: OnServer, peer: Peer) -> None:
        self.peer = peer
        self._core = core
        self._call = call
        self._interest = Interest()
        self._wake = Event()
        self._closing = Event()
        self._numbers = 0
        self._thread = Thread(target=self._run, name=f"smqp link {peer.context}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread: there are messages to pass on."""
        self._wake.set()

    def stop(self) -> None:
        """Pass on no further message; those that were not passed on are kept."""
        self._closing.set()
        self._wake.set()

    def join(self, until: float) -> None:
        """Wait for the end until the monotonic clock shows `until`; the other server may take longer to answer."""
        self._thread.join(left(until))

    def _run(self) -> None:
        pause, longest = self.peer.options.renew or (1.0, 60.0)
        while not self._closing.is_set():
            try:
                with self._connected() as connection:
                    pause = (self.peer.options.renew or (1.0, 60.0))[0]
                    self._pass_on(connection)
            except BrokerError as error:
                if not self._closing.is_set():
                    events.SMQP_SERVER_LINK_DOWN.log(self.peer.context, error)
                self._closing.wait(pause)
                pause = min(longest, pause * 2)
            except Exception:
                if not self._closing.is_set():
                    events.SMQP_SERVER_LINK_FAILED.log(self.peer.context)
                self._closing.wait(longest)

    def _connected(self) -> KeptConnection:
        peer = self.peer
        address = Address(peer.host, peer.port, None if peer.tls is None else secured_by(peer.tls, peer.host))
        self._interest.counts.clear()
        connection = KeptConnection(
            address, peer.account, peer.password, peer.options, self._interest, takes_login_topic=False
        )
        self._interest.generation = connection.generation
        return connection

    def _pass_on(self, connection: KeptConnection) -> None:
        for pattern in self.peer.topics:
            if not is_wildcard(pattern):
                self._subscribers(connection, pattern)
        while not self._closing.is_set():
            self._wake.clear()
            outgoing = self._on_server(self._waiting)
            for each in outgoing:
                if self._closing.is_set() or not self._send(connection, each):
                    return
            if not outgoing:
                self._wake.wait()

    def _send(self, connection: KeptConnection, outgoing: ForwardedMessage) -> bool:
        """Pass on one message, or decide not to; return False to try again with a new connection."""
        try:
            if self._is_wanted(connection, outgoing):
                self._numbers += 1
                context = self._core.options.context
                command = Command(
                    kind=CommandKind.PUBLISH_MESSAGE,
                    topic=_host(outgoing.message, context) + outgoing.path,
                    cmuid=f"F{self._numbers}",
                )
                connection.ask(command, forwarded(outgoing.message, context))
        except RefusedError as error:
            if error.code in AGAIN:
                self._closing.wait((self.peer.options.renew or (1.0, 60.0))[1])
                return not self._closing.is_set()
            events.SMQP_SERVER_MESSAGE_REFUSED.log(self.peer.context, outgoing.message.smuid, error)
        self._on_server(lambda core: self._done(core, outgoing.message.smuid))
        return True

    def _is_wanted(self, connection: KeptConnection, outgoing: ForwardedMessage) -> bool:
        message = outgoing.message
        if self.peer.context in _hops(message) or _host(message, "") == self.peer.context:
            return False
        if not any(covers(fold(pattern), fold(outgoing.path)) for pattern in self.peer.topics):
            return False
        goes_further = message.depth not in (0, 1)
        return goes_further or self._subscribers(connection, outgoing.path) > 0

    def _subscribers(self, connection: KeptConnection, path: str) -> int:
        """Return the number of subscribers at the other server; if unknown, ask for it and for its changes."""
        if self._interest.generation != connection.generation:  # changes during the reconnect are unknown
            self._interest.counts.clear()
            self._interest.generation = connection.generation
        folded = fold(path)
        if folded not in self._interest.counts:
            try:
                connection.subscribed(Command(kind=CommandKind.SUBSCRIBE_SUBSCRIBER, topic=path))
                found = connection.ask(Command(kind=CommandKind.COUNT_SUBSCRIBERS, topic=path)).data
            except RefusedError as error:
                if error.code is ReplyCode.NOT_FOUND:
                    return 0
                raise
            self._interest.counts.setdefault(folded, int(found[0]))
        return self._interest.counts[folded]

    # On the server's thread

    def _on_server(self, function: Callable[[SmqpCore], list[ForwardedMessage]]) -> list[ForwardedMessage]:
        return self._call(lambda: function(self._core)).result()

    def _waiting(self, core: SmqpCore) -> list[ForwardedMessage]:
        rows = core.database.rows(
            "SELECT smuid FROM forwards WHERE link = ? ORDER BY smuid LIMIT ?", self.peer.context, BATCH_MESSAGES
        )
        messages = [message for (smuid,) in rows if (message := core.messages.get(smuid)) is not None]
        return [ForwardedMessage(message, core.directory.get(message.topic).path) for message in messages]

    def _done(self, core: SmqpCore, smuid: int) -> list[ForwardedMessage]:
        core.database.begin()
        core.database.execute("DELETE FROM forwards WHERE link = ? AND smuid = ?", self.peer.context, smuid)
        return []


def forwarded(message: StoredMessage, context: str) -> bytes:
    """Write a message for another server: its Depth less one, its first Smuid, and all servers that it passed."""
    lines = [parse_line(line) for line in message.header.decode().split("\r\n") if line]
    depth = message.depth if message.depth < 0 else message.depth - 1
    header = Attributes(
        (
            Attribute("Created", message.created),
            Attribute("Depth", str(depth)),
            Attribute("Smuid", message.origin or f"{context}/{message.smuid}"),
            Attribute("Cmuid", message.cmuid),
            *Attributes(lines).without("Depth", HOPS),
            Attribute(HOPS, ",".join([*_hops(message), context])),
        )
    )
    return header.written() + b"\r\n" + message.body + b"\r\n"


def _hops(message: StoredMessage) -> list[str]:
    """Return the servers that another server's message passed; messages of own clients have none."""
    if message.origin is None:
        return []
    lines = Attributes(parse_line(line) for line in message.header.decode().split("\r\n") if line)
    return [hop for each in lines.text(HOPS).split(",") if (hop := each.strip())]


def _host(message: StoredMessage, context: str) -> str:
    return context if message.origin is None else message.origin.rpartition("/")[0]
