"""Notifications other than messages: of changes to topics, to the number of subscribers, and to the server.

They go to connected sessions only; they are not acknowledged, and not kept for accounts that are away.

Spec: SMQP 4.1.12.2 to 4.1.12.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from brokers.smqp.protocol.commands import Command, Notice, format_command
from brokers.smqp.protocol.ids import Timeout
from brokers.smqp.server.rights import Resource, Subscriptions
from brokers.smqp.server.session import SmqpSession
from brokers.smqp.server.topics import Directory, Topic


class Audience(Protocol):
    """The part of the server's core that announcements need."""

    directory: Directory
    subscriptions: Subscriptions
    sessions: dict[int, SmqpSession]

    def sessions_of(self, account: int) -> list[SmqpSession]:
        """Return the sessions of an account."""

    def may_see(self, session: SmqpSession, path: str) -> bool:
        """Say whether a session may know of a topic."""

    def subscriber_count(self, topic: Topic) -> int:
        """Return the number of subscribers to a topic."""


class Announcements:
    """Sends notifications to the sessions that subscribed to them."""

    def __init__(self, core: Audience) -> None:
        self._core = core

    def listeners(self, path: str) -> list[SmqpSession]:
        """Return the sessions that subscribed to changes of a topic and may see it."""
        wanted = self._core.subscriptions.who(Resource.TOPIC, [path])
        return [session for each in wanted for session in self._seeing(each.account, path)]

    def _seeing(self, account: int, path: str) -> list[SmqpSession]:
        """Return the sessions of an account that may see a topic."""
        return [each for each in self._core.sessions_of(account) if self._core.may_see(each, path)]

    def topic(self, listeners: list[SmqpSession], path: str, action: str) -> None:
        """Notify sessions of a change of a topic."""
        told = format_command(Command(kind=Notice.TOPIC, topic=path)) + f"Action: {action}\r\n\r\n".encode()
        for session in listeners:
            session.channel.tell(told)

    @contextmanager
    def counting(self, topics: Iterable[Topic]) -> Iterator[None]:
        """Notify subscribers of the numbers of subscribers that change inside the `with` statement."""
        before = [(topic, self._core.subscriber_count(topic)) for topic in topics]
        yield
        for topic, count in before:
            if self._core.directory.has(topic.number) and (now := self._core.subscriber_count(topic)) != count:
                self._count(topic, now)

    def _count(self, topic: Topic, count: int) -> None:
        names = [topic.path, *(link.path for link in self._core.directory.links(topic))]
        for wanted in self._core.subscriptions.who(Resource.SUBSCRIBER, names):
            command = format_command(Command(kind=Notice.SUBSCRIBERS, topic=wanted.name))
            told = command + f"Count: {count}\r\n\r\n".encode()
            for session in self._seeing(wanted.account, topic.path):
                session.channel.tell(told)

    def timeout(self, timeout: Timeout) -> None:
        """Notify subscribers that the default timeout has changed."""
        octets = format_command(Command(kind=Notice.SERVER_TIMEOUT, timeout=timeout))
        for session in self._core.sessions.values():
            if session.wants_timeout:
                session.channel.tell(octets)

    def bye(self, timeout: Timeout) -> None:
        """Notify all sessions that the server ends, and when."""
        octets = format_command(Command(kind=Notice.SERVER_BYE, timeout=timeout))
        for session in self._core.sessions.values():
            if session.is_ready:
                session.channel.tell(octets)
