"""Notifications that are no messages: what happened to topics, to the number of subscribers, to the server.

They go to those who are there; nobody acknowledges them, and they are not kept for those who are away.

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
    """What is known of those who listen: the core of the server."""

    directory: Directory
    subscriptions: Subscriptions
    sessions: dict[int, SmqpSession]

    def sessions_of(self, account: int) -> list[SmqpSession]:
        """List the sessions of an account."""

    def may_see(self, session: SmqpSession, path: str) -> bool:
        """Say whether a session may know of a topic."""

    def subscriber_count(self, topic: Topic) -> int:
        """Say how many subscribe to a topic."""


class Announcements:
    """Tells sessions what they want to be told."""

    def __init__(self, core: Audience) -> None:
        self._core = core

    def listeners(self, path: str) -> list[SmqpSession]:
        """List the sessions that are to be told of changes of a topic, of those that may see it."""
        wanted = self._core.subscriptions.who(Resource.TOPIC, [path])
        return [session for each in wanted for session in self._seeing(each.account, path)]

    def _seeing(self, account: int, path: str) -> list[SmqpSession]:
        """List the sessions of an account that may see a topic."""
        return [each for each in self._core.sessions_of(account) if self._core.may_see(each, path)]

    def topic(self, listeners: list[SmqpSession], path: str, action: str) -> None:
        """Tell sessions that something was done to a topic."""
        command = format_command(Command(kind=Notice.TOPIC, topic=path))
        for session in listeners:
            session.channel.tell(command + f"Action: {action}\r\n\r\n".encode())

    @contextmanager
    def counting(self, topics: Iterable[Topic]) -> Iterator[None]:
        """Tell who wants to know how many subscribe to topics, if what is done within changes that."""
        before = [(topic, self._core.subscriber_count(topic)) for topic in topics]
        yield
        for topic, count in before:
            if self._core.directory.has(topic.number) and (now := self._core.subscriber_count(topic)) != count:
                self._count(topic, now)

    def _count(self, topic: Topic, count: int) -> None:
        names = [topic.path, *(link.path for link in self._core.directory.links(topic))]
        for wanted in self._core.subscriptions.who(Resource.SUBSCRIBER, names):
            command = format_command(Command(kind=Notice.SUBSCRIBERS, topic=wanted.name))
            for session in self._seeing(wanted.account, topic.path):
                session.channel.tell(command + f"Count: {count}\r\n\r\n".encode())

    def timeout(self, timeout: Timeout) -> None:
        """Tell who wants to know that the default timeout changed."""
        octets = format_command(Command(kind=Notice.SERVER_TIMEOUT, timeout=timeout))
        for session in self._core.sessions.values():
            if session.wants_timeout:
                session.channel.tell(octets)

    def bye(self, timeout: Timeout) -> None:
        """Tell everybody who is logged in that the server ends, and when."""
        octets = format_command(Command(kind=Notice.SERVER_BYE, timeout=timeout))
        for session in self._core.sessions.values():
            if session.is_ready:
                session.channel.tell(octets)
