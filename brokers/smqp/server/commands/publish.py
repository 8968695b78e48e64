"""PUBLISH and REPUBLISH.

Spec: SMQP 2.3 (messages of other servers), 4.1.8, 4.1.9.
"""

from __future__ import annotations

from brokers.smqp.protocol.commands import Command
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.ids import Cmuid, Smuid, parse_cmuid, parse_smuid, parse_timeout
from brokers.smqp.protocol.messages import (
    END,
    OF_SERVER,
    REPLIED_CMUID,
    REPLIED_SMUID,
    Attribute,
    Attributes,
    SmqpMessage,
    written_sections,
)
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, listing
from brokers.smqp.protocol.topics import parse_topic
from brokers.smqp.protocol.words import bad
from brokers.smqp.server.accounts import Account
from brokers.smqp.server.commands.lookup import find_lasting, find_topic, need, need_own, refuse_trash
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.messages import KEPT, MessageState, StoredMessage, size_of
from brokers.smqp.server.rights import Right
from brokers.smqp.server.session import OK, SmqpAnswer, SmqpSession
from brokers.smqp.server.topics import FOREVER_SECONDS, Topic


def publish(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Take a message for a topic; it is stored before the reply is sent."""
    command, content = _read(heard)
    origin, path = _origin(core, session, command, content)
    refuse_trash(path)
    topic = core.directory.actual(find_lasting(core, path))
    need(core, session, path, Right.PUBLISH)
    depth = int(content.attributes.text("Depth") or 0)
    if depth and origin is None:
        need(core, session, path, Right.REMOTE)
    elif depth and Right.REMOTE not in core.rights.of(session.owner, path):
        depth = 0  # a message from a peer without the right REMOTE is not passed on
    if origin is None:
        known = core.messages.find(session.owner.number, session.guid, command.cmuid, topic=topic.number)
    else:
        known = _passed_on(core, origin)
    if known is not None:
        return _taken(command, known)
    _check(core, topic, content)
    cmuid = str(Cmuid(session.owner.name, session.guid, command.cmuid))
    if origin is not None:
        cmuid = str(parse_cmuid(content.attributes.text("Cmuid")))
    message = _stored(core, session, command, content, topic, depth=depth, cmuid=cmuid, origin=origin)
    _require_room(core, topic, message)
    smuid = core.publish(message)
    if origin is not None:
        core.messages.remember_origin(str(origin), smuid, core.clock())
    return _taken(command, smuid)


def _read(heard: ReceivedCommand) -> tuple[Command, SmqpMessage]:
    if heard.message.attributes.value("Created") is None:
        raise bad("a message must have the attribute Created")
    return heard.known, heard.message


def _origin(core: SmqpCore, session: SmqpSession, command: Command, content: SmqpMessage) -> tuple[Smuid | None, str]:
    """Return the Smuid of another server's message, or None, and the topic without that server's name."""
    attributes = content.attributes
    if attributes.value("Smuid") is None and attributes.value("Cmuid") is None:
        return None, parse_topic(command.topic, core.options.dialect)
    if not session.owner.is_peer:
        raise bad("Smuid and Cmuid must come only from the account of another server")
    origin = parse_smuid(attributes.text("Smuid"))
    parse_cmuid(attributes.text("Cmuid"))
    path = command.topic.removeprefix(origin.host)
    return origin, parse_topic(path, core.options.dialect)


def _passed_on(core: SmqpCore, origin: Smuid) -> int | None:
    """Return the number of the message that had another server's Smuid before."""
    if origin.host == core.options.context:
        return origin.number
    return core.messages.known_origin(str(origin))


def _check(core: SmqpCore, topic: Topic, content: SmqpMessage) -> None:
    if topic.max_message is not None and content.size > topic.max_message:
        raise RefusedError(
            ReplyCode.ENTITY_TOO_LARGE, f"a message for {topic.path} must have at most {topic.max_message} octets"
        )
    allowed = core.options.media_types
    for section in content.sections if allowed is not None else ():
        if section.content_type.partition(";")[0].strip().lower() not in (allowed or ()):
            raise RefusedError(ReplyCode.UNSUPPORTED_MEDIA, f"{section.content_type} is not accepted here")


def _require_room(core: SmqpCore, topic: Topic, message: StoredMessage) -> None:
    max_octets = core.options.max_octets if topic.max_octets is None else topic.max_octets
    for name, limit, count, more in (
        ("max_messages", topic.max_messages, core.messages.count, 1),
        ("max_octets", max_octets, core.messages.octets, message.size),
    ):
        held = 0 if limit is None else count(topic.number)
        if limit is not None and held + more > limit:
            said = f"{topic.path} is full: {name} is {limit}, there are {held} and {more} more were to come"
            raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, said, is_told=True)


def _stored(
    core: SmqpCore,
    session: SmqpSession,
    command: Command,
    content: SmqpMessage,
    topic: Topic,
    *,
    depth: int = 0,
    cmuid: str,
    origin: Smuid | None = None,
    first: Attributes = Attributes(),  # noqa: B008 - a tuple, which nothing changes
) -> StoredMessage:
    attributes = content.attributes
    created = attributes.text("Created")
    header = Attributes((*first, *attributes.without(*OF_SERVER))).written()
    body = written_sections(content.sections) + END
    return StoredMessage(
        topic=topic.number,
        account=None if origin is not None else session.owner.number,
        guid=None if origin is not None else session.guid,
        uid=command.cmuid,
        cmuid=cmuid,
        origin=None if origin is None else str(origin),
        created=created,
        header=header,
        body=body,
        size=size_of(header, body, created, command.cmuid, cmuid),
        received=core.clock(),
        priority=int(attributes.text("Priority") or core.options.default_priority),
        timeout=_timeout(core, topic, attributes),
        depth=depth,
        receipt=attributes.flag("Receipt"),
        sequenced=attributes.value("Sequence") is not None,
    )


def _timeout(core: SmqpCore, topic: Topic, attributes: Attributes) -> float:
    """Return how long a message stays: by its own Timeout, else that of its topic, else the server's."""
    text = attributes.value("Timeout")
    if text is not None:
        timeout = parse_timeout(text)
        return FOREVER_SECONDS if timeout is None else timeout
    if topic.timeout is not None:
        return topic.timeout
    return FOREVER_SECONDS if core.options.default_timeout is None else core.options.default_timeout


def _taken(command: Command, smuid: int) -> SmqpAnswer:
    return SmqpAnswer(listing((f"{command.cmuid} {smuid}",)))


def reply(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Take a reply to a message; it goes only to the login topic of the message's publisher."""
    command, content = _read(heard)
    attributes = content.attributes
    if attributes.value("Smuid") is None or attributes.value("Cmuid") is None:
        raise bad("a reply must have the Smuid and the Cmuid of the message")
    asked, of = parse_smuid(attributes.text("Smuid")), parse_cmuid(attributes.text("Cmuid"))
    path = command.topic.removeprefix(asked.host)
    refuse_trash(path)
    asked_at = core.directory.actual(find_topic(core, parse_topic(path, core.options.dialect)))
    need(core, session, path, Right.REPLY)
    first = Attributes([Attribute(REPLIED_SMUID, str(asked)), Attribute(REPLIED_CMUID, str(of))])
    known = core.messages.find(session.owner.number, session.guid, command.cmuid, header_start=first.written())
    if known is not None:
        return _taken(command, known)
    publisher = _publisher(core, asked_at, asked, of)
    topic = core.directory.get(publisher.topic)
    _check(core, topic, content)
    cmuid = str(Cmuid(session.owner.name, session.guid, command.cmuid))
    message = _stored(core, session, command, content, topic, cmuid=cmuid, first=first)
    _require_room(core, topic, message)
    return _taken(command, core.publish(message))


def _publisher(core: SmqpCore, topic: Topic, asked: Smuid, of: Cmuid) -> Account:
    """Return the publisher of the message replied to; the message must exist, as rights to reply apply to its topic.

    Raises:
        RefusedError: 404.
    """
    message = core.messages.get(asked.number) if asked.host == core.options.context else None
    account = None if message is None or message.account is None else core.accounts.get(message.account)
    if message is None or account is None or (message.topic, message.cmuid) != (topic.number, str(of)):
        raise RefusedError(
            ReplyCode.NOT_FOUND, f"{topic.path} has no message {asked} that an account published as {of}"
        )
    return account


def republish(core: SmqpCore, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer:
    """Take a message out of Trash, and send it to all current subscribers."""
    command = heard.known
    refuse_trash(command.topic)
    topic = core.directory.actual(find_lasting(core, command.topic))
    need(core, session, command.topic, Right.PUBLISH)
    need_own(core, session, topic.path)
    message = core.messages.get(command.smuid)
    if message is None or message.topic != topic.number:
        raise RefusedError(ReplyCode.NOT_ACCEPTABLE, f"{topic.path} has no message {command.smuid}")
    if message.state in KEPT:
        raise RefusedError(
            ReplyCode.NOT_ACCEPTABLE, f"message {command.smuid} is not in {MessageState.TRASH.name.title()} yet"
        )
    if message.sequenced:
        raise RefusedError(ReplyCode.NOT_ACCEPTABLE, "a message with a Sequence cannot be published again")
    _require_room(core, topic, message)
    core.republish(message)
    return OK
