"""The client: commands from any thread, callbacks for notifications, and a new connection if one is lost.

Spec: SMQP 4.1; 5.2 (one thread for commands, one for notifications).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from brokers.smqp.client.commands import number_in
from brokers.smqp.client.connection import Address, KeptConnection, secured_by
from brokers.smqp.client.inbox import DefaultTimeout, Goodbye, Inbox, Received, SubscriberCount, TopicChange
from brokers.smqp.client.notifications import ClientHearer, OnMessage
from brokers.smqp.client.options import ClientOptions
from brokers.smqp.protocol.commands import Command, CommandKind
from brokers.smqp.protocol.dialogue import SERVER_PORT
from brokers.smqp.protocol.ids import Cmuid, Timeout, format_date, format_timeout
from brokers.smqp.protocol.messages import Attribute, Attributes, SmqpMessage, SmqpSection, attribute

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT: Final = 86_400.0
"""Seconds that messages stay if neither they nor the server state a timeout (SM-071)."""


@dataclass(frozen=True, slots=True)
class Published:
    """A message that the server has taken.

    Attributes:
        cmuid: the client's name for it, with account and session.
        smuid: the server's number for it.
        receipt: the future of its receipt, done once a subscriber has it; None if no receipt was asked for.
        reply: the future of the first reply to it; None if no reply was asked for.
    """

    cmuid: str
    smuid: int
    receipt: Future[Received] | None = None
    reply: Future[Received] | None = None


class Client(KeptConnection):
    """A client that is logged in. Thread-safe. A `with` statement closes it.

    Args:
        host: the host of the server.
        port: the port of the server, 720 by default.
        account: the account to log in to.
        password: the password of the account; it is sent in plain text, so use TLS.
        inbox: a file, for this client alone, that keeps messages until they are handed over; `:memory:` for none.
        options: the options of the client.

    Raises:
        ConnectionFailedError: the server does not answer, or refused the login.
        SmqpStoreError: the inbox cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int = SERVER_PORT,
        *,
        account: str,
        password: str,
        inbox: str | Path = ":memory:",
        options: ClientOptions | None = None,
    ) -> None:
        options = options or ClientOptions()
        self._numbers = count(1)
        self._sequences: dict[str, int] = {}
        self._hearing = ClientHearer(Inbox(inbox), options)
        try:
            address = Address(host, port, None if options.tls is None else secured_by(options.tls, host))
            super().__init__(address, account, password, options, self._hearing, takes_login_topic=True)
        except BaseException:
            self._hearing.close()
            raise
        self._hearing.own_topic(self.welcome.topic)

    def close(self) -> None:
        """Log out; subscriptions stay (SM-181). Idempotent.

        It waits for the callbacks of notifications already received, unless a callback calls it, but not long for a
        server that does not answer.
        """
        super().close()
        self._hearing.close()

    # Publishing

    def publish(
        self,
        topic: str,
        data: bytes | str | Sequence[SmqpSection] = (),
        *,
        content_type: str = "text/plain; charset=utf-8",
        name: str | None = None,
        priority: int | None = None,
        receipt: bool = False,
        reply: bool = False,
        timeout: Timeout | str = "default",
        depth: int = 0,
        sequence: int | bool = False,
        attributes: Mapping[str, str] | Sequence[Attribute] = (),
    ) -> Published:
        """Publish a message; return once the server has it.

        Args:
            topic: the topic.
            data: the data of one section, with `content_type`; or sections; or nothing.
            content_type: the media type of data that is not given as sections.
            name: the subject, up to 128 characters.
            priority: the priority; lower numbers are sent first.
            receipt: whether to ask for a receipt once a subscriber has it; see `Published.receipt`.
            reply: whether to ask subscribers for a reply; see `Published.reply`.
            timeout: seconds that it stays after all subscribers were informed; None for no limit.
            depth: how many servers further it may be passed on; -1 for no limit.
            sequence: its number, or True for one more than the last of this client and topic (SM-197).
            attributes: further attributes, whose names begin with `X-`.

        Raises:
            RefusedError: the server refused the message.
            ConnectionLostError: it is not known whether the server has the message; the publisher must assume that it
                was not published (SM-132).
        """
        with self.lock:
            number = sequence if not isinstance(sequence, bool) else self._sequences.get(topic, 0) + 1
            header = self._header(name, priority, receipt, reply, timeout, depth, number if sequence else None)
            pairs = attributes.items() if isinstance(attributes, Mapping) else attributes
            content = SmqpMessage(
                Attributes((*header, *(attribute(*pair) for pair in pairs))), _sections(data, content_type)
            )
            published = self._send(CommandKind.PUBLISH_MESSAGE, topic, content, receipt=receipt, reply=reply)
            if sequence:
                self._sequences[topic] = number
            return published

    def reply(
        self,
        to: Received,
        data: bytes | str | Sequence[SmqpSection] = (),
        *,
        content_type: str = "text/plain; charset=utf-8",
    ) -> Published:
        """Reply to a message; only its publisher gets the reply."""
        header = Attributes(
            (*self._header(None, None, False, False, "default", 0, None), *_named(Smuid=to.smuid, Cmuid=to.cmuid))
        )
        return self._send(CommandKind.PUBLISH_REPLY, to.topic, SmqpMessage(header, _sections(data, content_type)))

    def forward(self, topic: str, content: SmqpMessage) -> int:
        """Publish a message unchanged, as a server does for another server; return the server's number for it."""
        return self._send(CommandKind.PUBLISH_MESSAGE, topic, content).smuid

    def _header(
        self,
        name: str | None,
        priority: int | None,
        receipt: bool,
        reply: bool,
        timeout: Timeout | str,
        depth: int,
        sequence: int | None,
    ) -> tuple[Attribute, ...]:
        if timeout == "default":
            timeout = "" if self.welcome.has_timeout else DEFAULT_TIMEOUT
        return _named(
            Created=format_date(datetime.now(UTC), self.options.dialect),
            Name=name or "",
            Priority="" if priority is None else str(priority),
            Receipt="YES" if receipt else "",
            Reply="YES" if reply else "",
            Timeout=timeout if isinstance(timeout, str) else format_timeout(timeout),
            Depth=str(depth) if depth else "",
            Sequence="" if sequence is None else str(sequence),
        )

    def _send(
        self, kind: CommandKind, topic: str, content: SmqpMessage, *, receipt: bool = False, reply: bool = False
    ) -> Published:
        with self.lock:
            uid = str(next(self._numbers))
            cmuid = str(Cmuid(self.account, self.welcome.guid, uid))
            waiting = self._hearing.expect(cmuid, receipt=receipt, reply=reply)
            try:
                answer = self.ask(Command(kind=kind, topic=topic, cmuid=uid), content.written() + b"\r\n")
                smuid = number_in(answer, place=1)
            except BaseException:
                self._hearing.forget(cmuid)
                raise
            return Published(cmuid, smuid, *waiting)

    # Subscribing

    def subscribe(self, topic: str, on_message: OnMessage, *, since: datetime | None = None) -> list[str]:
        """Subscribe to a topic or wildcard; return the topics that it covers now.

        Args:
            topic: a topic, or a wildcard such as `/news/*`, which covers future topics too.
            on_message: called with each message, one at a time, on a thread of the client; it may use the client.
            since: only messages that the server received from then on.

        Raises:
            RefusedError: there is no such topic, the right is missing, or there are too many.
        """
        self._hearing.register(topic, on_message)
        return self.subscribed(Command(kind=CommandKind.SUBSCRIBE_MESSAGE, topic=topic, since=since))

    def unsubscribe(self, topic: str) -> list[str]:
        """End the subscription to a topic, or to all that a wildcard covers; return these topics."""
        self._hearing.unregister(topic)
        return self.unsubscribed(CommandKind.UNSUBSCRIBE_MESSAGE, CommandKind.SUBSCRIBE_MESSAGE, topic)

    def watch_topics(self, topic: str, on_change: Callable[[TopicChange], None]) -> list[str]:
        """Call `on_change` when a topic, or one that a wildcard covers, is added, renamed, removed or gets keywords."""
        self._hearing.on(TopicChange, on_change)
        return self.subscribed(Command(kind=CommandKind.SUBSCRIBE_TOPIC, topic=topic))

    def unwatch_topics(self, topic: str) -> list[str]:
        """End `watch_topics`."""
        return self.unsubscribed(CommandKind.UNSUBSCRIBE_TOPIC, CommandKind.SUBSCRIBE_TOPIC, topic)

    def watch_subscribers(self, topic: str, on_count: Callable[[SubscriberCount], None]) -> int:
        """Call `on_count` when the number of subscribers changes; return the current number."""
        self._hearing.on(SubscriberCount, on_count)
        self.subscribed(Command(kind=CommandKind.SUBSCRIBE_SUBSCRIBER, topic=topic))
        return self.count_subscribers(topic)

    def unwatch_subscribers(self, topic: str) -> list[str]:
        """End `watch_subscribers`."""
        return self.unsubscribed(CommandKind.UNSUBSCRIBE_SUBSCRIBER, CommandKind.SUBSCRIBE_SUBSCRIBER, topic)

    def watch_timeout(self, on_change: Callable[[DefaultTimeout], None]) -> None:
        """Call `on_change` when the server's default timeout changes."""
        self._hearing.on(DefaultTimeout, on_change)
        self.subscribed(Command(kind=CommandKind.SUBSCRIBE_SERVER_TIMEOUT))

    def on_goodbye(self, on_goodbye: Callable[[Goodbye], None]) -> None:
        """Call `on_goodbye` when the server announces its end; this needs no subscription."""
        self._hearing.on(Goodbye, on_goodbye)

    def set_password(self, new: str) -> None:
        """Change the account's password.

        Raises:
            RefusedError: the server refused the change.
        """
        with self.lock:
            self.ask(Command(kind=CommandKind.SET_LOGIN_PASSWORD, method="CLEAR", version="1.0"))
            for password in (self.password, new):
                self.ask(Command(kind=CommandKind.PASSWORD, account=self.account, password=password))
            self.password = new


def _named(**values: str) -> tuple[Attribute, ...]:
    return tuple(attribute(name, value) for name, value in values.items() if value)


def _sections(data: bytes | str | Sequence[SmqpSection], content_type: str) -> tuple[SmqpSection, ...]:
    if isinstance(data, str):
        data = data.encode()
    return (SmqpSection(content_type, data),) if isinstance(data, bytes) else tuple(data)
