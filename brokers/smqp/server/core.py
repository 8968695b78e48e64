"""The core of the server: its tables, its sessions, and the life of a message.

Nothing in here reads a socket or waits. Operations on sockets are collected as actions, which are handed out once the
changes of the tables are committed.

Spec: SMQP 2.2.1, 2.4, 4.1.8, 4.1.12; the life of a message in section 9.3 of the digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from brokers.smqp.protocol.commands import Command, Notice, format_command
from brokers.smqp.protocol.messages import DELIVERY_COUNT
from brokers.smqp.protocol.topics import covers, fold, moved, parent
from brokers.smqp.server.accounts import Accounts
from brokers.smqp.server.actions import Action, Timer, Timers
from brokers.smqp.server.announcements import Announcements
from brokers.smqp.server.database import Database
from brokers.smqp.server.messages import Deliveries, Item, Messages, MessageState, StoredMessage
from brokers.smqp.server.options import Options
from brokers.smqp.server.receipts import receipt
from brokers.smqp.server.rights import Resource, Right, Subscriptions, TopicRights, TopicSubscriber
from brokers.smqp.server.session import HeardQueues, SessionPhase, SmqpSession, Stage, notice
from brokers.smqp.server.topics import FOREVER_SECONDS, Directory, Topic, TopicKind

WORKING_SECONDS: Final = 7 * 86_400.0
"""Maximum time, in seconds, for a session to acknowledge a message of a queue; a lost connection ends it sooner."""
TEMPORARY: Final = "/temporary"
SWEEP_MESSAGES: Final = 500
"""Maximum number of messages that expire in one step, so that other work gets its turn."""


class SmqpCore:
    """The state and the operations that commands work with.

    Args:
        database: the store.
        options: the operator's options; `default_timeout` may change while the server runs.
        clock: returns the time in seconds since 1970, for stored times.
    """

    def __init__(self, database: Database, options: Options, clock: Callable[[], float]) -> None:
        self.database = database
        self.options = options
        self.clock = clock
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
        """Recover the state that a previous server left; no session exists any more."""
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
        """Read the state from the file again, after changes there were undone."""
        self.directory.reload()
        self.rights.reload()
        self.subscriptions.reload()

    # Actions and timers

    def do(self, action: Action) -> None:
        """Add an action for the driver, to be executed after the commit."""
        self._actions.append(action)

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Run a function after some seconds."""
        return self.timers.at(monotonic() + seconds, function)

    def wake(self, session: SmqpSession) -> None:
        """Mark a session to be checked by `pump` for notifications to send."""
        self._restless.add(session)

    def pump(self) -> None:
        """Send pending notifications, first to the sessions that have waited longest."""
        while self._restless:
            restless = sorted(self._restless, key=lambda session: session.channel.served)
            self._restless.clear()
            for session in restless:
                if session.number in self.sessions and session.is_ready:
                    session.channel.pump()

    def take_actions(self) -> list[Action]:
        """Return the collected actions, and clear them."""
        actions, self._actions = self._actions, []
        return actions

    # Sessions

    def enter(self, session: SmqpSession) -> None:
        """Add a session that has logged in; it gets the messages waiting for its account."""
        account = session.owner.number
        self._of_accounts.setdefault(account, []).append(session)
        self.deliveries.adopt(account, session.number)
        self.wake(session)

    def leave(self, session: SmqpSession) -> None:
        """Remove a session; its undelivered messages go to another session of its account, or wait for one."""
        session.channel.end()
        if session.account is None:
            return
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
        self._hand_on(session)
        topics = self.session_topics(session.interests)
        with self.announce.counting(topics):
            session.interests = {}
            session.stage = Stage.ENDED
        for topic in topics:
            self.wake_queue(topic)
        owners = self.directory.owners
        for path in [path for path, owner in owners.items() if owner.session == session.number]:
            temporary = self.directory.find(path)
            assert temporary is not None
            self.remove_topic(temporary)

    def _hand_on(self, session: SmqpSession) -> None:
        """Give the messages that wait for the account of a leaving session to another session of it, if any."""
        account = session.owner.number
        others = [each for each in self.sessions_of(account) if each is not session]
        if others:
            heir = min(others, key=lambda each: each.channel.is_suspended)
            self.deliveries.adopt(account, heir.number)
            self.wake(heir)

    def forget(self, session: SmqpSession) -> None:
        """Forget a session that has left, even if what it left could not be settled."""
        self.sessions.pop(session.number, None)
        self._restless.discard(session)
        if session.account is not None and session in self.sessions_of(session.account.number):
            self._of_accounts[session.account.number].remove(session)

    def forget_sessions(self) -> None:
        """Forget all sessions."""
        self.sessions.clear()
        self._of_accounts.clear()
        self._restless.clear()
        self.directory.owners.clear()

    def sessions_of(self, account: int) -> list[SmqpSession]:
        """Return the sessions of an account."""
        return self._of_accounts.get(account, [])

    def session_topics(self, patterns: Iterable[str]) -> list[Topic]:
        """Return the topics that the patterns cover and whose subscriptions end with their sessions."""
        found = [*self.directory.all_of(TopicKind.QUEUE), *self.directory.all_of(TopicKind.SESSION)]
        return [topic for topic in found if any(covers(pattern, topic.folded) for pattern in patterns)]

    def follow(self, old: str, new: str) -> None:
        """Change all subscriptions at or below a renamed topic, including those that end with their sessions."""
        self.subscriptions.follow(old, new)
        for session in self.sessions.values():
            names = [moved(name, old, new) or name for name in session.interests.values()]
            session.interests = {fold(name): name for name in names}

    def is_temporary(self, topic: Topic) -> bool:
        """Say whether a topic ends with the session that created it: it is two levels below `/temporary`, and not of
        the draft's kind."""
        above = parent(parent(topic.folded))
        return topic.kind is not TopicKind.TOPIC and above == TEMPORARY

    def becomes_temporary(self, path: str) -> bool:
        """Say whether a topic of this path would end with the session that creates it."""
        above = self.directory.find(parent(path))
        return above is not None and above.kind is not TopicKind.TOPIC and parent(above.folded) == TEMPORARY

    def may_see(self, session: SmqpSession, path: str) -> bool:
        """Say whether a session may find a topic without knowing its name.

        It may if its account has any right there; a temporary topic is visible only to the session that created it.
        """
        owner = self.directory.owner(path)
        if owner is not None and not session.owner.is_admin:
            return owner.session == session.number
        return self.rights.of(session.owner, path) is not Right.NONE

    def _heard(self, session: SmqpSession) -> frozenset[int]:
        """Return the numbers of the queues that a session subscribed to."""
        versions = (self.directory.version, self.rights.version)
        known = session.heard
        if known is None or known.versions != versions or known.interests is not session.interests:
            queues = self.directory.all_of(TopicKind.QUEUE)
            numbers = frozenset(topic.number for topic in queues if self._hears(session, topic))
            session.heard = known = HeardQueues(versions, session.interests, numbers)
        return known.numbers

    def _hears(self, session: SmqpSession, topic: Topic) -> bool:
        """Say whether a session itself subscribed to a topic; wildcards do not cover topics that it may not see."""
        is_named = topic.folded in session.interests
        return (is_named or (session.is_interested(topic.folded) and self.may_see(session, topic.path))) and (
            self.rights.allows(session.owner, topic, Right.SUBSCRIBE)
        )

    # Messages

    def publish(self, message: StoredMessage) -> int:
        """Store a message, and note its recipients; return its number."""
        smuid = self.messages.add(message)
        self._route(smuid, message)
        return smuid

    def republish(self, message: StoredMessage) -> None:
        """Send a message from Trash to all current subscribers, even if they had it before."""
        self.deliveries.forget(message.smuid, also_delivered=True)
        self.messages.set_state(message.smuid, MessageState.PENDING, None)
        self._route(message.smuid, message)

    def _route(self, smuid: int, message: StoredMessage) -> None:
        topic = self.directory.get(message.topic)
        priority = 0 if self.options.ignores_priority else message.priority
        if topic.kind is TopicKind.QUEUE:
            self.deliveries.add(smuid, topic.number, None, None, topic.path, priority, True)
            if message.timeout != FOREVER_SECONDS:
                self.messages.set_state(smuid, MessageState.PENDING, self.clock() + message.timeout)
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
        """Return the accounts that are subscribed to a topic, under its own name or that of a link to it."""
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
        """Wake the free sessions that could take a message from a queue."""
        for session in self._interested(topic):
            if session.channel.phase in (SessionPhase.NONE, SessionPhase.IDLE):
                self.wake(session)

    def subscriber_count(self, topic: Topic) -> int:
        """Count the subscribers: accounts, including absent ones, or for other kinds of topics sessions."""
        if topic.kind is not TopicKind.TOPIC:
            return len(self._interested(topic))
        return len(self.recipients(topic))

    # For channels

    def next_item(self, session: SmqpSession) -> Item | None:
        """Return the next item for a session: one of its own, else one waiting in its queues."""
        item = self.deliveries.next_for(session.number)
        if item is None and session.interests:
            item = self.deliveries.next_of_queues(self._heard(session))
        return item

    def take(self, session: SmqpSession, item: Item) -> int:
        """Note that an item is under way to a session; return the number of items so far."""
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
        count = f"{DELIVERY_COUNT}: {item.attempts + 1}\r\n".encode() if is_counted else b""
        command = format_command(Command(kind=Notice.MESSAGE, topic=host + item.name))
        return notice(command + self.head(message) + count + b"\r\n" + message.body)

    def head(self, message: StoredMessage) -> bytes:
        """Write the header attributes of a message, without the empty line after them."""
        smuid = message.origin or f"{self.options.context}/{message.smuid}"
        first = f"Created: {message.created}\r\nSmuid: {smuid}\r\nCmuid: {message.cmuid}\r\n"
        return first.encode() + message.header

    def patience(self, item: Item) -> float:
        """Return how long to wait for the acknowledgement of a message, in seconds."""
        topic = self.directory.get(item.topic)
        if topic.retry_timeout is None and topic.kind is not TopicKind.TOPIC:
            return WORKING_SECONDS
        return self.options.retry_timeout if topic.retry_timeout is None else topic.retry_timeout

    def pause_after(self, item: Item) -> float:
        """Return the pause after a client refused a message, in seconds; JMS clients refuse one to get it again."""
        is_read = self.directory.has(item.topic) and self.directory.get(item.topic).kind is TopicKind.TOPIC
        return self.options.retry_pause if is_read else 0.0

    def acknowledged(self, item: Item) -> None:
        """Note that a subscriber has acknowledged a message, and must not get it again."""
        self.deliveries.finish(item)
        if self.messages.take_receipt(item.smuid):
            message = self.messages.get(item.smuid)
            if message is not None:
                self._send_receipt(message)
        self.settle(item.smuid)

    def unanswered(self, item: Item) -> None:
        """Note that a subscriber did not take a message: try again later, or give up after too many attempts."""
        if not self.directory.has(item.topic):  # it was removed with its messages
            return
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
        """Start a message's timeout once all current subscribers are informed; a message of a queue is removed then."""
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
        """Move a message to Trash; subscribers that have not had it do not get it any more."""
        self.deliveries.forget(smuid, also_delivered=False)
        self.messages.set_state(smuid, MessageState.TRASH, self.clock() + self.options.trash_lifetime)

    def sweep(self) -> None:
        """Move expired messages to Trash, and remove those that were long enough in Trash."""
        now = self.clock()
        for smuid, state in self.messages.due(now, SWEEP_MESSAGES):
            row = self.database.row("SELECT topic FROM messages WHERE smuid = ?", smuid)
            if row is None:  # it was removed with its topic
                continue
            if state is MessageState.TRASH:
                self.messages.remove(smuid)
            else:
                self.throw_away(smuid)
            self.finish_removal(self.directory.get(row[0]))
        self.messages.forget_origins(now - self.options.memory)

    def finish_removal(self, topic: Topic) -> None:
        """Finish the removal of a topic once no delivery of its messages is pending."""
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
