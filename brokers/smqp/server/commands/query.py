"""COUNT, LIST, FIND and GET.

Spec: SMQP 4.1.2, 4.1.3, 4.1.7, 4.1.13.
"""

from __future__ import annotations

from typing import Final

from brokers.smqp.protocol.commands import Command
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.ids import format_ranges, ranges_of
from brokers.smqp.protocol.messages import Attribute, Attributes
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, ReplyForm, listing, plain
from brokers.smqp.protocol.topics import ROOT, base, is_wildcard, split_trash
from brokers.smqp.protocol.words import format_keywords
from brokers.smqp.server.commands.lookup import find_topic, is_visible, need, refuse_trash
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.messages import StoredMessage
from brokers.smqp.server.rights import Right
from brokers.smqp.server.session import SmqpAnswer, SmqpSession
from brokers.smqp.server.topics import Topic, TopicKind

RANGES_PER_LINE: Final = 200
"""Number of ranges of messages on one line, so that it is not too long however large the numbers are."""
MAX_FOUND_KEYWORDS: Final = 20
"""Maximum number of keywords to find topics by: each is looked for in all keywords of all topics, while others wait."""


def count_topics(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Count the topics directly below one; with a wildcard, all that it covers."""
    command = heard.known
    refuse_trash(command.topic)
    if is_wildcard(command.topic):
        found = _covered(core, session, command.topic)
    else:
        if command.topic != ROOT:
            _visible(core, session, command.topic)
        found = [each for each in core.directory.children(command.topic) if is_visible(core, session, each)]
    return _number(len(found))


def count_messages(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Count the messages that are kept at present."""
    command = heard.known
    path, is_trash = split_trash(command.topic)
    topics = _covered(core, session, path) if is_wildcard(path) else [_visible(core, session, path)]
    numbers = {core.directory.actual(topic).number for topic in topics}
    return _number(sum(core.messages.count(number, trash=is_trash) for number in numbers))


def count_subscribers(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Count the subscribers to messages."""
    command = heard.known
    refuse_trash(command.topic)
    if not is_wildcard(command.topic):
        return _number(core.subscriber_count(core.directory.actual(_visible(core, session, command.topic))))
    topics = [core.directory.actual(topic) for topic in _covered(core, session, command.topic)]
    accounts = {
        wanted.account for topic in topics if topic.kind is TopicKind.TOPIC for wanted in core.recipients(topic)
    }
    sessions = sum(core.subscriber_count(topic) for topic in topics if topic.kind is not TopicKind.TOPIC)
    return _number(len(accounts) + sessions)


def list_topics(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """List the topics directly below one, except those to which the account has no rights (SM-084)."""
    command = heard.known
    refuse_trash(command.topic)
    if command.topic != ROOT:
        _listed(core, session, command.topic)
    found = [each for each in core.directory.children(command.topic) if is_visible(core, session, each)]
    return SmqpAnswer(listing(tuple(_line(core, topic) for topic in found)))


def list_messages(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """List the messages that are kept at present, as numbers and ranges.

    Deviation: by 4.1.3.2 the numbers and ranges of messages are on one line. Here a line has at most 200 of them, as
    its length is limited; others follow on further lines.
    """
    path, is_trash = split_trash(heard.known.topic)
    numbers = core.messages.numbers(core.directory.actual(_listed(core, session, path)).number, trash=is_trash)
    found = ranges_of(numbers)
    parts = (found[at : at + RANGES_PER_LINE] for at in range(0, len(found), RANGES_PER_LINE))
    return SmqpAnswer(listing(tuple(map(format_ranges, parts))))


def find_topics(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Find topics by keywords, which may match in part: the topic and those directly below, or all that `*` covers."""
    command = heard.known
    refuse_trash(command.topic)
    found = _searched(core, session, command)
    if command.keywords:
        if len(command.keywords) > MAX_FOUND_KEYWORDS:
            raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, f"FIND may have at most {MAX_FOUND_KEYWORDS} keywords")
        wanted = [each.casefold() for each in command.keywords]
        found = [topic for topic in found if _has_any(topic, wanted)]
    lines = (f"{each.path} {format_keywords(each.keywords)}" if each.keywords else each.path for each in found)
    return SmqpAnswer(listing(tuple(lines)))


def _has_any(topic: Topic, folded: list[str]) -> bool:
    keywords = "\0".join(topic.keywords).casefold()
    return any(each in keywords for each in folded)


def _searched(core: SmqpCore, session: SmqpSession, command: Command) -> list[Topic]:
    if is_wildcard(command.topic):
        return _covered(core, session, command.topic)
    children = [each for each in core.directory.children(command.topic) if is_visible(core, session, each)]
    if command.topic == ROOT and command.keywords:
        return children
    topic = _listed(core, session, command.topic)
    return [topic, *children] if command.keywords else [topic]


def get_keywords(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Return the keywords of a topic, without parentheses."""
    topic = _visible(core, session, heard.known.topic)
    return SmqpAnswer(listing((",".join(topic.keywords),) if topic.keywords else ()))


def get_messages(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Return messages that are kept, even if they were delivered before, without changing them."""
    command = heard.known
    path, is_trash = split_trash(command.topic)
    topic = core.directory.actual(find_topic(core, path))
    need(core, session, topic.path, Right.SUBSCRIBE)
    limit = core.options.max_in_answer
    sizes = core.messages.sizes(topic.number, command.messages, limit + 1, trash=is_trash)  # they may not fit in memory
    if not sizes:
        raise RefusedError(ReplyCode.NOT_ACCEPTABLE, "the topic has none of these messages")
    if len(sizes) > limit or sum(sizes.values()) > core.options.limits.message + next(iter(sizes.values())):
        raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, "too many messages for one answer; ask for fewer")
    found = filter(None, map(core.messages.get, sizes))
    bodies = b"".join(_written(core, each, command.topic) for each in found) + b"\r\n"
    (begin, end), *others = command.messages
    if begin == end and not others:
        return SmqpAnswer(plain(ReplyCode.OK), ReplyForm.BARE, bodies)
    return SmqpAnswer(listing((str(len(sizes)),)), ReplyForm.BARE, bodies)


def _written(core: SmqpCore, message: StoredMessage, topic: str) -> bytes:
    host = message.origin.rpartition("/")[0] if message.origin else ""
    first = Attributes([Attribute("Topic", host + topic)]).written()
    return first + core.head(message) + b"\r\n" + message.body


def _number(number: int) -> SmqpAnswer:
    return SmqpAnswer(listing((str(number),)))


def _line(core: SmqpCore, topic: Topic) -> str:
    return topic.path if topic.target is None else f"{topic.path} > {core.directory.actual(topic).path}"


def _listed(core: SmqpCore, session: SmqpSession, path: str) -> Topic:
    """Return a topic to list; one without rights is as if it were not there."""
    topic = find_topic(core, path)
    if not is_visible(core, session, topic):
        raise RefusedError(ReplyCode.NOT_FOUND, "the account has no rights to the topic")
    return topic


def _visible(core: SmqpCore, session: SmqpSession, path: str) -> Topic:
    topic = find_topic(core, path)
    if not is_visible(core, session, topic):
        raise RefusedError(ReplyCode.UNAUTHORIZED, f"{session.owner.name} has no rights to {path}")
    return topic


def _covered(core: SmqpCore, session: SmqpSession, pattern: str) -> list[Topic]:
    """Return the visible topics that a wildcard covers; the topic before the wildcard must exist."""
    below = base(pattern)
    if below != ROOT:
        find_topic(core, below)
    return [each for each in core.directory.matching(pattern, below) if is_visible(core, session, each)]
