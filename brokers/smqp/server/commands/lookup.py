"""Checks that commands share: for topics, and for rights to them. Each refuses with the code of the draft.

Spec: SMQP 2.2.1 (Trash), 4.1.2 to 4.1.13, 6.
"""

from __future__ import annotations

from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.protocol.topics import has_trash
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.rights import Right
from brokers.smqp.server.session import SmqpSession
from brokers.smqp.server.topics import Topic


def find_topic(core: SmqpCore, path: str) -> Topic:
    """Return a topic.

    Raises:
        RefusedError: 404.
    """
    topic = core.directory.find(path)
    if topic is None:
        raise RefusedError(ReplyCode.NOT_FOUND, f"there is no topic {path}")
    return topic


def find_lasting(core: SmqpCore, path: str) -> Topic:
    """Return a topic, unless it is being removed.

    Raises:
        RefusedError: 404.
    """
    topic = find_topic(core, path)
    if core.directory.actual(topic).is_removing:
        raise RefusedError(ReplyCode.NOT_FOUND, f"the topic {path} is being removed")
    return topic


def is_visible(core: SmqpCore, session: SmqpSession, topic: Topic) -> bool:
    """Say whether a session may see a topic: it must have a right there; temporary topics are for their session."""
    return core.may_see(session, topic.path)


def need(core: SmqpCore, session: SmqpSession, path: str, right: Right) -> None:
    """Check that a session has a right at a path.

    Raises:
        RefusedError: 401.
    """
    if right not in core.rights.of(session.owner, path):
        raise RefusedError(ReplyCode.UNAUTHORIZED, f"{session.owner.name} lacks the right {right.name} at {path}")


def refuse_temporary(core: SmqpCore, *paths: str) -> None:
    """Refuse temporary topics: they cannot be renamed, and no virtual topic may lead to them.

    Raises:
        RefusedError: 405.
    """
    for path in paths:
        if core.directory.owner(path) is not None or core.becomes_temporary(path):
            raise RefusedError(ReplyCode.NOT_ALLOWED, f"{path} is temporary")


def need_own(core: SmqpCore, session: SmqpSession, path: str) -> None:
    """Check that a temporary topic belongs to the session's account.

    Raises:
        RefusedError: 401.
    """
    if core.directory.owner(path) is not None:
        need(core, session, path, Right.SUBSCRIBE)


def refuse_trash(path: str) -> None:
    """Refuse a path with Trash in it.

    Raises:
        RefusedError: 405.
    """
    if has_trash(path):
        raise RefusedError(ReplyCode.NOT_ALLOWED, "Trash belongs to the server")


def need_ordinary(topic: Topic) -> None:
    """Check that a topic is not a login topic, and not above one.

    Raises:
        RefusedError: 405.
    """
    if topic.is_login:
        raise RefusedError(ReplyCode.NOT_ALLOWED, f"{topic.path} belongs to accounts")
