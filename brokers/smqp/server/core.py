"""The heart of the server: its tables, who is logged in, and what becomes of a message.

Nothing in here reads a socket or waits. What is to be done with sockets is collected as actions, which leave when what
was written to the tables is committed.

Spec: SMQP 2.2.1, 2.4, 4.1.8, 4.1.12; the life of a message in section 9.3 of the digest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from brokers.smqp.protocol.commands import Command, Notice, format_command
from brokers.smqp.protocol.topics import covers, parent
from brokers.smqp.server.accounts import Accounts
from brokers.smqp.server.actions import Action, Timer, Timers
from brokers.smqp.server.announcements import Announcements
from brokers.smqp.server.database import Database
from brokers.smqp.server.messages import Deliveries, Item, Messages, MessageState, StoredMessage
from brokers.smqp.server.options import Options
from brokers.smqp.server.receipts import receipt
from brokers.smqp.server.rights import Resource, Right, Subscriptions, TopicRights, TopicSubscriber
from brokers.smqp.server.session import SessionPhase, SmqpSession, Stage, notice
from brokers.smqp.server.topics import FOREVER_SECONDS, Directory, Topic, TopicKind

WORKING_SECONDS: Final = 7 * 86_400.0
"""Seconds for which a session may work on a message of a queue before it counts as dead; connections tell sooner."""
TEMPORARY: Final = "/temporary"
SWEEP_MESSAGES: Final = 500
"""How many messages expire at once, before others get their turn."""


class SmqpCore:
    """All that commands work with.

    Args:
        database: where everything is kept.
        options: what the operator decided; `default_timeout` may change while the server runs.
        clock: seconds since 1970, for what is kept.
        ticks: seconds of a clock that never jumps, for timers.
    """

    def __init__(
        self, database: Database, options: Options, clock: Callable[[], float], ticks: Callable[[], float]
    ) -> None:
        self.database = database
        self.options = options
        self.clock = clock
        self.ticks = ticks
        self.accounts = Accounts(database)
        self.directory = Directory(database)
        self.rights = TopicRights(database, self.directory)
        self.messages = Messages(database)
        self.deliveries = Deliveries(database)
        self.subscriptions = Subscriptions(database)
        self.sessions: dict[int, SmqpSession] = {}
        self.timers = Timers()
        self.on_forward: Callable[[], None] = lambda: None
        self.link_names: tuple[str, ...] = ()
        self._actions: list[Action] = []
        self._restless: set[SmqpSession] = set()
        self._of_accounts: dict[int, list[SmqpSession]] = {}
        self._served = 0
        self._recipients: dict[int, list[TopicSubscriber]] = {}
        self._recipients_of = (0, 0, 0)
        self.announce = Announcements(self)

    def recover(self) -> None:
        """Begin with what a server before left: nobody is logged in."""
        self.database.begin()
        self.deliveries.recover([topic.number for topic in self.directory.all_of(TopicKind.SESSION)])
        for smuid in self.deliveries.unawaited():
            self.settle(smuid)
        for topic in list(self.directory.below("/")):
            if self.is_temporary(topic):
                self.remove_topic(topic)
            else:
                self.finish_removal(topic)
        self.database.commit()

    def reload(self) -> None:
        """Read again what was undone in the file."""
        self.directory.reload()
        self.rights.reload()
        self.subscriptions.reload()

    # What is to be done

    def do(self, action: Action) -> None:
        """Have the driver do something, after the commit."""
        self._actions.append(action)

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Run a function after some seconds."""
        return self.timers.at(self.ticks() + seconds, function)

    def wake(self, session: SmqpSession) -> None:
        """Look soon whether there is something to send to a client."""
        self._restless.add(session)

    def pump(self) -> None:
        """Send what there is to send, to those first who got something longest ago."""
        while self._restless:
            restless = sorted(self._restless, key=lambda session: session.channel.served)
            self._restless.clear()
            for session in restless:
                if session.number in self.sessions and session.is_ready:
                    session.channel.pump()

    def take_actions(self) -> list[Action]:
        """Hand over what is to be done."""
        actions, self._actions = self._actions, []
        return actions

    # Sessions

    def enter(self, session: SmqpSession) -> None:
        """A session is logged in: what waits for its account is its own."""
        account = session.owner.number
        self._of_accounts.setdefault(account, []).append(session)
        self.deliveries.adopt(account, session.number)
        self.wake(session)

    def leave(self, session: SmqpSession) -> None:
        """A session ended: what it has not had waits for its account, unless another session has it."""
        session.channel.end()
        if session.account is None or session not in self._of_accounts.get(session.account.number, ()):
            return
        self._of_accounts[session.account.number].remove(session)
        smuids = []
        for item in self.deliveries.of_session(session.number):
            smuids.append(item.smuid)
            if item.account is None:
                self.deliveries.assign(item.number, None)
            elif self.directory.get(item.topic).kind is TopicKind.SESSION or self.deliveries.has_other(item):
                self.deliveries.drop(item.number)
            else:
                self.deliveries.give_back(item)
        for smuid in smuids:
            self.settle(smuid)
        topics = self.session_topics(session.interests)
        with self.announce.counting(topics):
            session.interests.clear()
            session.stage = Stage.ENDED
        for topic in topics:
            self.wake_queue(topic)
        for number in session.temporaries:
            if self.directory.has(number):
                self.remove_topic(self.directory.get(number))

    def forget_sessions(self) -> None:
        """Take it that nobody is logged in."""
        self.sessions.clear()
        self._of_accounts.clear()
        self._restless.clear()

    def sessions_of(self, account: int) -> list[SmqpSession]:
        """List the sessions that an account is logged in with."""
        return self._of_accounts.get(account, [])

    def session_topics(self, patterns: dict[str, str]) -> list[Topic]:
        """List the topics whose subscriptions last as long as their sessions, and which patterns cover."""
        found = [*self.directory.all_of(TopicKind.QUEUE), *self.directory.all_of(TopicKind.SESSION)]
        return [topic for topic in found if any(covers(pattern, topic.folded) for pattern in patterns)]

    def is_temporary(self, topic: Topic) -> bool:
        """Say whether a topic ends with the session that created it: two levels below a reserved one, and no topic of
        the draft's kind."""
        above = parent(parent(topic.folded))
        return topic.kind is not TopicKind.TOPIC and above == TEMPORARY

    def becomes_temporary(self, path: str) -> bool:
        """Say whether a topic of this path would end with the session that creates it."""
        above = self.directory.find(parent(path))
        return above is not None and above.kind is not TopicKind.TOPIC and parent(above.folded) == TEMPORARY

    def may_see(self, session: SmqpSession, path: str) -> bool:
        """Say whether a session may find a topic without having been told its name.

        It may if its account has any right there; a temporary topic is seen by the session that created it.
        """
        owner = self.directory.owner(path)
        if owner is not None and not session.owner.is_admin:
            return owner.session == session.number
        return self.rights.of(session.owner, path) is not Right.NONE

    def _hears(self, session: SmqpSession, topic: Topic) -> bool:
        """Say whether a session itself subscribed to a topic; no wildcard covers what it cannot see."""
        is_named = topic.folded in session.interests
        return (is_named or (session.is_interested(topic.folded) and self.may_see(session, topic.path))) and (
            self.rights.allows(session.owner, topic, Right.SUBSCRIBE)
        )

    # Messages

    def publish(self, message: StoredMessage) -> int:
        """Store a message, and note who is to be informed of it. Returns its number."""
        smuid = self.messages.add(message)
        self._route(smuid, message)
        return smuid

    def republish(self, message: StoredMessage) -> None:
        """Send a message from Trash to all who are subscribed now, whoever had it before."""
        self.deliveries.forget(message.smuid, also_delivered=True)
        self.messages.set_state(message.smuid, MessageState.PENDING, None)
        self._route(message.smuid, message)

    def _route(self, smuid: int, message: StoredMessage) -> None:
        topic = self.directory.get(message.topic)
        priority = 0 if self.options.ignores_priority else message.priority
        if topic.kind is TopicKind.QUEUE:
            self.deliveries.add(smuid, topic.number, None, None, topic.path, priority, True)
            if message.timeout != FOREVER_SECONDS:
                self.messages.set_state(smuid, MessageState.PENDING, message.received + message.timeout)
            self.wake_queue(topic)
        elif topic.kind is TopicKind.SESSION:
            for session in self._interested(topic):
                self._send_to(session, smuid, topic, topic.path, priority)
        else:
            for wanted in self.recipients(topic):
                if wanted.since is None or message.received >= wanted.since:
                    self._send_to_account(wanted, smuid, topic, priority)
        for link in self.link_names if message.depth != 0 else ():
            self.database.execute("INSERT OR IGNORE INTO forwards (link, smuid) VALUES (?, ?)", link, smuid)
            self.on_forward()
        self.settle(smuid)

    def _send_to_account(self, wanted: TopicSubscriber, smuid: int, topic: Topic, priority: int) -> None:
        sessions = self.sessions_of(wanted.account)
        for session in sessions:
            self._send_to(session, smuid, topic, wanted.name, priority)
        if not sessions:
            self.deliveries.add(smuid, topic.number, wanted.account, None, wanted.name, priority, False)

    def _send_to(self, session: SmqpSession, smuid: int, topic: Topic, name: str, priority: int) -> None:
        current = not session.channel.is_suspended
        self.deliveries.add(smuid, topic.number, session.owner.number, session.number, name, priority, current)
        self.wake(session)

    def recipients(self, topic: Topic) -> list[TopicSubscriber]:
        """List the accounts that are subscribed to a topic, under its own name or that of a link to it."""
        versions = (self.directory.version, self.subscriptions.version, self.rights.version)
        if self._recipients_of != versions:
            self._recipients, self._recipients_of = {}, versions
        found = self._recipients.get(topic.number)
        if found is None:
            names = [topic.path, *(link.path for link in self.directory.links(topic))]
            wanted = self.subscriptions.who(Resource.MESSAGE, names)
            found = self._recipients[topic.number] = [each for each in wanted if self._may_hear(each, topic)]
        return found

    def _may_hear(self, wanted: TopicSubscriber, topic: Topic) -> bool:
        account = self.accounts.get(wanted.account)
        return account is not None and self.rights.allows(account, topic, Right.SUBSCRIBE)

    def _interested(self, topic: Topic) -> list[SmqpSession]:
        return [session for session in self.sessions.values() if session.is_ready and self._hears(session, topic)]

    def wake_queue(self, topic: Topic) -> None:
        """Look soon whether somebody can take what waits in a queue."""
        for session in self._interested(topic):
            if session.channel.phase in (SessionPhase.NONE, SessionPhase.IDLE):
                self.wake(session)

    def subscriber_count(self, topic: Topic) -> int:
        """Count who is subscribed: accounts, also those that are away; of a queue sessions."""
        if topic.kind is not TopicKind.TOPIC:
            return len(self._interested(topic))
        return len(self.recipients(topic))

    # What channels ask

    def next_item(self, session: SmqpSession) -> Item | None:
        """Say what a session gets next: its own, else what waits in its queues."""
        item = self.deliveries.next_for(session.number)
        if item is None and session.interests:
            every = self.directory.all_of(TopicKind.QUEUE)
            queues = [topic.number for topic in every if self._hears(session, topic)]
            item = self.deliveries.next_of_queues(queues)
        return item

    def take(self, session: SmqpSession, item: Item) -> int:
        """Note that an item is on its way to a session; return how many were before it."""
        if item.account is None:
            self.deliveries.assign(item.number, session.number)
        self._served += 1
        return self._served

    def notification(self, item: Item) -> bytes:
        """Write the notification of a message."""
        message = self.messages.get(item.smuid)
        assert message is not None
        host = message.origin.rpartition("/")[0] if message.origin else ""
        is_counted = item.attempts and self.directory.get(item.topic).kind is not TopicKind.TOPIC
        count = b"X-Delivery-Count: %d\r\n" % (item.attempts + 1) if is_counted else b""
        command = format_command(Command(kind=Notice.MESSAGE, topic=host + item.name))
        return notice(command + self.head(message) + count + b"\r\n" + message.body)

    def head(self, message: StoredMessage) -> bytes:
        """Write the header attributes of a message, without the empty line after them."""
        smuid = message.origin or f"{self.options.context}/{message.smuid}"
        first = f"Created: {message.created}\r\nSmuid: {smuid}\r\nCmuid: {message.cmuid}\r\n"
        return first.encode() + message.header

    def patience(self, item: Item) -> float:
        """Say how long to wait for the acknowledgement of a message."""
        topic = self.directory.get(item.topic)
        if topic.retry_timeout is None and topic.kind is not TopicKind.TOPIC:
            return WORKING_SECONDS
        return self.options.retry_timeout if topic.retry_timeout is None else topic.retry_timeout

    def pause_after(self, item: Item) -> float:
        """Say how long to wait after a client refused a message; JMS gives one back to have it again."""
        return self.options.retry_pause if self.directory.get(item.topic).kind is TopicKind.TOPIC else 0.0

    def acknowledged(self, item: Item) -> None:
        """A subscriber has a message, and never gets it again."""
        self.deliveries.finish(item)
        if self.messages.take_receipt(item.smuid):
            message = self.messages.get(item.smuid)
            if message is not None:
                self._send_receipt(message)
        self.settle(item.smuid)

    def unanswered(self, item: Item) -> None:
        """A subscriber did not take a message: again later, or never if that was once too often."""
        topic = self.directory.get(item.topic)
        limit = self.options.max_retries if topic.max_retries is None else topic.max_retries
        if item.attempts >= limit:
            self.deliveries.finish(item)
            self.settle(item.smuid, given_up=True)
            return
        self.deliveries.note_attempt(item.number)
        if item.account is None:
            self.deliveries.assign(item.number, None)
            self.wake_queue(topic)

    def _send_receipt(self, message: StoredMessage) -> None:
        account = None if message.account is None else self.accounts.get(message.account)
        if account is not None and self.directory.has(account.topic):
            self.publish(receipt(message, account, self.options, self.clock()))

    # The life of a message

    def settle(self, smuid: int, *, given_up: bool = False) -> None:
        """Let a message's time begin if nobody current is still to be informed; one of a queue is done then."""
        if self.deliveries.is_awaited(smuid):
            return
        row = self.database.row("SELECT topic, timeout, state FROM messages WHERE smuid = ?", smuid)
        if row is None or row[2] != MessageState.PENDING:
            return
        topic = self.directory.get(row[0])
        if topic.kind is not TopicKind.TOPIC and not given_up:
            self.messages.remove(smuid)
        elif row[1] == 0 or topic.kind is not TopicKind.TOPIC:
            self.throw_away(smuid)
        else:
            self.messages.set_state(
                smuid, MessageState.LINGERING, None if row[1] == FOREVER_SECONDS else self.clock() + row[1]
            )
        self.finish_removal(topic)

    def throw_away(self, smuid: int) -> None:
        """Move a message to Trash; whoever has not had it gets it no more."""
        self.deliveries.forget(smuid, also_delivered=False)
        self.messages.set_state(smuid, MessageState.TRASH, self.clock() + self.options.trash_lifetime)

    def sweep(self) -> None:
        """Move what has expired to Trash, and what was long enough in Trash out of it."""
        now = self.clock()
        for smuid, state in self.messages.due(now, SWEEP_MESSAGES):
            row = self.database.row("SELECT topic FROM messages WHERE smuid = ?", smuid)
            if row is None:  # it went with its topic
                continue
            if state is MessageState.TRASH:
                self.messages.remove(smuid)
            else:
                self.throw_away(smuid)
            self.finish_removal(self.directory.get(row[0]))
        self.messages.forget_origins(now - self.options.memory)

    def finish_removal(self, topic: Topic) -> None:
        """Remove a topic that is being removed, once nobody waits for its messages."""
        if not topic.is_removing or not self.directory.has(topic.number):
            return
        if self.deliveries.pending_messages(topic.number):
            return
        self.remove_topic(topic)

    def remove_topic(self, topic: Topic) -> None:
        """Remove a topic at once, with all its messages."""
        self.messages.remove_all(topic.number)
        listeners = self.announce.listeners(topic.path)
        self.rights.forget(topic.number)
        self.subscriptions.forget(topic.folded)
        self.directory.remove(topic)
        self.announce.topic(listeners, topic.path, "DELETED")
