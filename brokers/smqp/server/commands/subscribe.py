"""SUBSCRIBE and UNSUBSCRIBE.

Spec: SMQP 4.1.10, 4.1.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.smqp.protocol.commands import Command, CommandKind
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, listing
from brokers.smqp.protocol.topics import ANY, ROOT, base, covers_all_of, fold, is_wildcard
from brokers.smqp.server.commands.lookup import find_lasting, find_topic, is_visible, need, refuse_trash
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.rights import Resource, Right
from brokers.smqp.server.session import OK, SmqpAnswer, SmqpSession
from brokers.smqp.server.topics import Topic, TopicKind

RESOURCES: Final[Mapping[CommandKind, Resource]] = {
    CommandKind.SUBSCRIBE_MESSAGE: Resource.MESSAGE,
    CommandKind.SUBSCRIBE_TOPIC: Resource.TOPIC,
    CommandKind.SUBSCRIBE_SUBSCRIBER: Resource.SUBSCRIBER,
    CommandKind.UNSUBSCRIBE_MESSAGE: Resource.MESSAGE,
    CommandKind.UNSUBSCRIBE_TOPIC: Resource.TOPIC,
    CommandKind.UNSUBSCRIBE_SUBSCRIBER: Resource.SUBSCRIBER,
}


def subscribe(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Subscribe to a topic, or to all that a wildcard covers, now and in future; list the current ones."""
    command, resource = _read(heard)
    refuse_trash(command.topic)
    if resource is Resource.MESSAGE and command.topic == f"{ROOT}{ANY}":
        raise RefusedError(ReplyCode.MAXIMUM_EXCEEDED, "a subscription must not cover the messages of all topics")
    topics = _subscribable(core, session, command.topic, resource)
    if resource is Resource.MESSAGE and _lasts_as_session(core, command.topic):
        actual = [core.directory.actual(topic) for topic in topics]
        if fold(command.topic) not in session.interests:
            _need_room(core, session)
        with core.announce.counting(actual):
            session.interests = {**session.interests, fold(command.topic): command.topic}
    else:
        _keep(core, session, command, resource, topics)
    session.channel.is_wanted = True
    core.wake(session)
    return SmqpAnswer(listing(tuple(topic.path for topic in topics)))


def _read(heard: ReceivedCommand) -> tuple[Command, Resource]:
    assert isinstance(heard.known.kind, CommandKind)
    return heard.known, RESOURCES[heard.known.kind]


def _subscribable(core: SmqpCore, session: SmqpSession, pattern: str, resource: Resource) -> list[Topic]:
    """Return the topics that a pattern covers and the account may subscribe to.

    Raises:
        RefusedError: 404 or 401.
    """
    if not is_wildcard(pattern):
        topic = find_lasting(core, pattern)
        need(core, session, topic.path, Right.SUBSCRIBE)
        return [topic]
    below = base(pattern)
    if below != ROOT:
        find_topic(core, below)
    found = [
        topic
        for topic in core.directory.matching(pattern, below, itself=resource is Resource.TOPIC)
        if not topic.is_removing
        and is_visible(core, session, topic)
        and core.rights.allows(session.owner, topic, Right.SUBSCRIBE)
    ]
    if not found:
        need(core, session, below, Right.SUBSCRIBE)
    return found


def _lasts_as_session(core: SmqpCore, pattern: str) -> bool:
    topic = core.directory.find(base(pattern))
    return topic is not None and core.directory.actual(topic).kind is not TopicKind.TOPIC


def _keep(core: SmqpCore, session: SmqpSession, command: Command, resource: Resource, topics: list[Topic]) -> None:
    account = session.owner.number
    if not core.subscriptions.has(account, resource, command.topic):
        _need_room(core, session)
    since = None if command.since is None else command.since.timestamp()
    if resource is not Resource.MESSAGE:
        core.subscriptions.add(account, resource, command.topic, None)
        return
    lasting = [topic for topic in topics if core.directory.actual(topic).kind is TopicKind.TOPIC]
    with core.announce.counting([core.directory.actual(topic) for topic in lasting]):
        core.subscriptions.add(account, resource, command.topic, since)
    for topic in lasting:
        number = core.directory.actual(topic).number
        if since is not None:
            for smuid in core.deliveries.withdraw(number, account, before=since):
                core.settle(smuid)
        core.deliveries.add_retained(
            number, account, session.number, topic.path, since, first_priority=core.options.ignores_priority
        )


def _need_room(core: SmqpCore, session: SmqpSession) -> None:
    """Check that the account may have one more subscription; what was excluded from a wildcard counts as one.

    Raises:
        RefusedError: 414.
    """
    account = session.owner.number
    count = core.subscriptions.count(account) + sum(len(each.interests) for each in core.sessions_of(account))
    if count >= core.options.max_subscriptions:
        raise RefusedError(
            ReplyCode.RESOURCE_TOO_LARGE, f"an account may have at most {core.options.max_subscriptions} subscriptions"
        )


def subscribe_timeout(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Notify the session of changes of the default timeout, until it ends."""
    session.wants_timeout = True
    session.channel.is_wanted = True
    core.wake(session)
    return OK


def unsubscribe_timeout(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Stop notifying the session of the default timeout."""
    if not session.wants_timeout:
        raise RefusedError(ReplyCode.NOT_FOUND, "not subscribed to SERVER TIMEOUT")
    session.wants_timeout = False
    return OK


def unsubscribe(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """End the subscriptions that a topic or wildcard covers; list the topics of ended subscriptions."""
    command, resource = _read(heard)
    found = _end(core, session, resource, command.topic)
    if found is None:
        raise RefusedError(ReplyCode.NOT_FOUND, f"not subscribed to {resource} {command.topic}")
    return SmqpAnswer(listing(tuple(found)))


def unsubscribe_all(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """End all subscriptions, of every kind."""
    ended = [_end(core, session, resource, ANY) for resource in Resource]
    lines = [line for each in ended for line in each or ()]
    if session.wants_timeout:
        session.wants_timeout = False
        lines.append("SERVER TIMEOUT")
    elif all(each is None for each in ended):
        raise RefusedError(ReplyCode.NOT_FOUND, "not subscribed to anything")
    return SmqpAnswer(listing(tuple(lines)))


def _end(core: SmqpCore, session: SmqpSession, resource: Resource, pattern: str) -> list[str] | None:
    """End the subscriptions that a pattern covers; return a line for each visible topic, or None if there were none."""
    account = session.owner.number
    subscriptions = core.subscriptions
    if subscriptions.grows_without(account, resource, pattern):
        _need_room(core, session)
    itself = resource is Resource.TOPIC
    below = core.directory.matching(pattern, base(pattern), itself=itself)
    topics = [topic for topic in below if _is_subscribed(core, session, resource, topic)]
    own = [each for each in session.interests if covers_all_of(fold(pattern), each)]
    with core.announce.counting({core.directory.actual(topic).number: topic for topic in topics}.values()):
        removed = subscriptions.remove(account, resource, pattern)
        if resource is Resource.MESSAGE:
            session.interests = {each: name for each, name in session.interests.items() if each not in own}
            removed = removed or bool(own)
    if not removed:
        return None
    ended = [topic for topic in topics if not _is_subscribed(core, session, resource, topic)]
    if resource is Resource.MESSAGE:
        for topic in ended:
            _withdraw(core, account, core.directory.actual(topic))
    return [f"{resource} {topic.path}" for topic in ended if is_visible(core, session, topic)]


def _is_subscribed(core: SmqpCore, session: SmqpSession, resource: Resource, topic: Topic) -> bool:
    if core.subscriptions.wanted(resource, session.owner.number, topic.folded) is not None:
        return resource is not Resource.MESSAGE or core.directory.actual(topic).kind is TopicKind.TOPIC
    return resource is Resource.MESSAGE and session.is_interested(topic.folded)


def _withdraw(core: SmqpCore, account: int, topic: Topic) -> None:
    """Drop the messages waiting for an account, unless it is subscribed to the topic under another name."""
    if topic.kind is TopicKind.TOPIC and all(each.account != account for each in core.recipients(topic)):
        for smuid in core.deliveries.withdraw(topic.number, account):
            core.settle(smuid)
        core.finish_removal(topic)
