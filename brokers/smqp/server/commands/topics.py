"""CREATE, REMOVE and SET TOPIC.

Spec: SMQP 4.1.4, 4.2.5 (sic), 4.1.6.1.
"""

from __future__ import annotations

from brokers.smqp.protocol.commands import Command
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, listing
from brokers.smqp.protocol.topics import ROOT, fold, is_below, parent
from brokers.smqp.protocol.words import format_keywords
from brokers.smqp.server.commands.lookup import (
    find_lasting,
    find_topic,
    need,
    need_ordinary,
    need_own,
    refuse_temporary,
    refuse_trash,
)
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.messages import KEPT
from brokers.smqp.server.rights import Right
from brokers.smqp.server.session import OK, SmqpAnswer, SmqpSession
from brokers.smqp.server.topics import Topic, TopicKind, TopicOwner, all_paths


def create(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Create a topic, or a virtual one that leads to another; missing parents are created too."""
    command = heard.known
    refuse_trash(command.topic)
    need(core, session, command.topic, Right.TOPICS)
    target = None if command.target is None else _target(core, session, command)
    existing = core.directory.find(command.topic)
    if existing is not None:
        need_ordinary(existing)
        raise RefusedError(ReplyCode.CONFLICT, f"the topic {command.topic} exists")
    if core.becomes_temporary(command.topic):
        _make_temporary(core, session, command)
    else:
        make_path(core, command.topic, target=target, keywords=command.keywords or ())
    return OK


def _make_temporary(core: SmqpCore, session: SmqpSession, command: Command) -> None:
    """Create a topic of the session, unless its account has half of them; note its owner before it is announced."""
    refuse_temporary(core, *([] if command.target is None else [command.topic]))
    account, most = session.owner.number, max(1, core.options.max_children // 2)
    if sum(owner.account == account for owner in core.directory.owners.values()) >= most:
        why = f"an account may have at most {most} temporary topics, so that others have room too"
        raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, why, is_told=True)
    core.directory.owners[fold(command.topic)] = TopicOwner(session.owner.number, session.number)
    try:
        make_path(core, command.topic, keywords=command.keywords or ())
    except BaseException:
        del core.directory.owners[fold(command.topic)]
        raise


def _target(core: SmqpCore, session: SmqpSession, command: Command) -> int:
    """Return the number of the target of a new virtual topic."""
    assert command.target is not None
    refuse_trash(command.target)
    refuse_temporary(core, command.target)
    if fold(command.target) == fold(command.topic):
        raise RefusedError(ReplyCode.CONFLICT, "a virtual topic must not lead to itself")
    target = find_lasting(core, command.target)
    if target.target is not None:
        raise RefusedError(ReplyCode.NOT_ALLOWED, f"a target must not be virtual, got {target.path}")
    need_ordinary(target)
    if core.rights.of(session.owner, target.path) is Right.NONE:
        raise RefusedError(ReplyCode.UNAUTHORIZED, f"{session.owner.name} has no rights to {target.path}")
    return target.number


def make_path(
    core: SmqpCore,
    path: str,
    *,
    target: int | None = None,
    keywords: tuple[str, ...] = (),
    kind: TopicKind | None = None,
    is_login: bool = False,
) -> Topic:
    """Create a topic and the missing ones above it; each has its parent's kind.

    Raises:
        RefusedError: 405 below virtual, login or temporary topics, 414 for too many children or topics.
    """
    above, missing = _found_above(core, path)
    if missing:
        _check_parent(core, above, more=len(missing), is_login=is_login)
    for each in missing:
        is_last = fold(each) == fold(path)
        spelled = each if above is None else f"{above.path}/{each.rpartition('/')[2]}"
        above = core.directory.add(
            spelled,
            kind or _kind_below(above),
            target=target if is_last else None,
            keywords=keywords if is_last else (),
            is_login=is_login,
        )
        core.announce.topic(core.announce.listeners(spelled), spelled, "ADDED")
    assert above is not None
    return above


def _kind_below(above: Topic | None) -> TopicKind:
    """Return the kind of the topics that clients create directly below `above`, or below `/` for None."""
    return TopicKind.TOPIC if above is None else above.kind


def _found_above(core: SmqpCore, path: str) -> tuple[Topic | None, list[str]]:
    """Return the last existing topic on a path, and the paths of the missing ones."""
    above, missing = None, list[str]()
    for each in all_paths(path):
        topic = core.directory.find(each)
        if topic is None:
            missing.append(each)
        else:
            above = topic
    return above, missing


def _check_parent(core: SmqpCore, above: Topic | None, *, more: int = 1, is_login: bool) -> None:
    """Check that `more` topics may be created, the first one directly below `above`, or below `/` for None."""
    if above is not None and above.target is not None:
        raise RefusedError(ReplyCode.NOT_ALLOWED, f"{above.path} is virtual, so it cannot have topics below it")
    if above is not None and above.is_login and not is_login:
        raise RefusedError(ReplyCode.NOT_ALLOWED, f"topics below {above.path} belong to accounts")
    if above is not None and core.directory.owner(above.path) is not None:
        raise RefusedError(ReplyCode.NOT_ALLOWED, f"{above.path} is temporary, so it cannot have topics below it")
    if above is not None and above.is_removing:
        raise RefusedError(ReplyCode.NOT_FOUND, f"{above.path} is being removed")
    if len(core.directory) + more > core.options.max_topics and not is_login:
        raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, f"a server may have at most {core.options.max_topics} topics")
    children = core.directory.children(ROOT if above is None else above.path)
    if len(children) >= core.options.max_children:
        raise RefusedError(
            ReplyCode.RESOURCE_TOO_LARGE, f"a topic may have at most {core.options.max_children} directly below it"
        )


def _need_of_clients(core: SmqpCore, session: SmqpSession, *topics: Topic) -> None:
    """Check that clients could create the topics: only the operator can create those of another kind than above them.

    Raises:
        RefusedError: 405.
    """
    for topic in topics:
        if topic.kind is not _kind_below(core.directory.find(parent(topic.path))) and not session.owner.is_admin:
            raise RefusedError(ReplyCode.NOT_ALLOWED, f"{topic.path} belongs to the operator, as its kind shows")


def remove(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Remove a topic, once the last of its messages is delivered; until then it takes no new messages."""
    command = heard.known
    refuse_trash(command.topic)
    topic = find_lasting(core, command.topic) if _is_actual(core, command.topic) else find_topic(core, command.topic)
    need(core, session, topic.path, Right.TOPICS)
    need_ordinary(topic)
    _need_of_clients(core, session, topic)
    if core.directory.children(topic.path) or core.directory.links(topic):
        raise RefusedError(ReplyCode.CONFLICT, f"{topic.path} has topics below it, or virtual ones that lead to it")
    pending = 0 if topic.target is not None else core.deliveries.pending_messages(topic.number)
    core.finish_removal(core.directory.change(topic, is_removing=True))
    return SmqpAnswer(listing((f"{pending} messages pending",)))


def _is_actual(core: SmqpCore, path: str) -> bool:
    topic = core.directory.find(path)
    return topic is None or topic.target is None


def rename(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Give a topic and all topics below it another path; messages, subscriptions and links move with them."""
    command = heard.known
    assert command.target is not None
    refuse_trash(command.topic)
    refuse_trash(command.target)
    topic = find_lasting(core, command.topic)
    need(core, session, topic.path, Right.TOPICS)
    need(core, session, command.target, Right.TOPICS)
    need_ordinary(topic)
    refuse_temporary(core, topic.path, command.target)
    if core.directory.find(command.target) is not None or is_below(fold(command.target), topic.folded):
        raise RefusedError(ReplyCode.CONFLICT, f"{command.target} exists, or is below the topic to rename")
    old = topic.path
    moving = [topic, *core.directory.below(old)]
    _need_of_clients(core, session, *moving)
    path = _place(core, session, topic, command.target)
    listeners = core.announce.listeners(old)
    core.directory.rename(topic, path)
    core.deliveries.rename([(path + each.path[len(old) :], each.path) for each in moving])
    core.follow(old, path)
    for each in moving:
        if each.kind is TopicKind.QUEUE:
            core.wake_queue(core.directory.get(each.number))  # its new path may have subscribers of its own
    core.announce.topic(listeners, old, f"RENAME {path}")
    return OK


def _place(core: SmqpCore, session: SmqpSession, topic: Topic, path: str) -> str:
    """Create the parents of a topic's new path; return the path with their spelling.

    Raises:
        RefusedError: 405 if only the operator can create a topic of its kind there, else as `make_path`.
    """
    found, missing = _found_above(core, path)
    _check_parent(core, found, more=len(missing), is_login=False)
    if topic.kind is not _kind_below(found) and not session.owner.is_admin:
        raise RefusedError(
            ReplyCode.NOT_ALLOWED, f"only the operator can move a {topic.kind} such as {topic.path} there"
        )
    if parent(path) == ROOT:
        return path
    above = make_path(core, parent(path))
    return f"{above.path}/{path.rpartition('/')[2]}"


def set_keywords(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Replace the keywords of a topic."""
    command = heard.known
    refuse_trash(command.topic)
    topic = find_lasting(core, command.topic)
    need(core, session, topic.path, Right.TOPICS)
    need_ordinary(topic)
    keywords = command.keywords or ()
    core.directory.change(topic, keywords=keywords)
    core.announce.topic(core.announce.listeners(topic.path), topic.path, f"KEYWORDS {format_keywords(keywords)}")
    return OK


def remove_message(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Remove one message, as needed for state messages; the command is from later revisions."""
    command = heard.known
    refuse_trash(command.topic)
    topic = core.directory.actual(find_lasting(core, command.topic))
    need(core, session, topic.path, Right.PUBLISH)
    need_own(core, session, topic.path)
    message = core.messages.get(command.smuid)
    if message is None or message.topic != topic.number or message.state not in KEPT:
        raise RefusedError(ReplyCode.NOT_ACCEPTABLE, f"{topic.path} has no message {command.smuid}")
    core.throw_away(message.smuid)
    return OK
