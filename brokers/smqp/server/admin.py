"""Administration: accounts, rights, topics and their parameters. SMQP has no commands for it.

Spec: SMQP 2.2.2, 2.3, 6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from brokers.errors import UsageError
from brokers.smqp.protocol.ids import Timeout
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.protocol.topics import ROOT, fold, parent, parse_topic, segment_for
from brokers.smqp.server.accounts import Account, Password
from brokers.smqp.server.commands.lookup import find_topic
from brokers.smqp.server.commands.topics import make_path
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.rights import ANYONE, ROOT_NUMBER, Right
from brokers.smqp.server.topics import FOREVER_SECONDS, Topic, TopicKind, check_parameters

ACCOUNTS: Final = "/accounts"
JMS: Final = {
    "/queue": TopicKind.QUEUE,
    "/topic": TopicKind.SESSION,
    "/temporary/queue": TopicKind.QUEUE,
    "/temporary/topic": TopicKind.SESSION,
}
NOT_IN_NAMES: Final = frozenset("/ \t\r\n\0")


class Administration:
    """Makes changes that clients cannot make. Use it through `Server.administer`."""

    def __init__(self, core: SmqpCore) -> None:
        self._core = core

    # Accounts

    def create_account(self, name: str, password: str, *, is_admin: bool = False, is_peer: bool = False) -> None:
        """Create an account and its login topic, `/accounts/NAME`; its owner may subscribe and reply there (SM-047).

        Args:
            name: the name, unique regardless of case.
            password: the password, of one line; only its hash is stored.
            is_admin: whether it has every right everywhere.
            is_peer: whether it belongs to another server, and may pass on messages published there.

        Raises:
            UsageError: the name or the password is invalid.
            RefusedError: 409: the account exists.
        """
        if not name or NOT_IN_NAMES & set(name) or not password or set("\r\n") & set(password):
            raise UsageError("an account must have a name without slashes and blanks, and a password of one line")
        core = self._core
        path = f"{ACCOUNTS}/{_segment(name)}"
        if core.accounts.find(name) is not None or core.directory.find(path) is not None:
            raise RefusedError(ReplyCode.CONFLICT, f"the account {name} exists")
        hashed = Password.of(password, core.options.scrypt_cost)
        number = core.accounts.add(name, hashed, is_admin=is_admin, is_peer=is_peer)
        if core.directory.find(ACCOUNTS) is None:  # rights granted at the root do not extend to login topics
            core.rights.grant(make_path(core, ACCOUNTS, is_login=True).number, ANYONE, Right.NONE)
        topic = make_path(core, path, kind=TopicKind.TOPIC, is_login=True)
        core.accounts.set_topic(number, topic.number)
        core.rights.grant(topic.number, number, Right.SUBSCRIBE | Right.REPLY)

    def set_password(self, name: str, password: str) -> None:
        """Replace the password of an account."""
        hashed = Password.of(password, self._core.options.scrypt_cost)
        self._core.accounts.set_password(self._account(name).number, hashed)

    def accounts(self) -> list[str]:
        """List the accounts by name."""
        return self._core.accounts.names()

    def account_field(self, name: str, field: str) -> str | None:
        """Return a field set by the owner of an account: NAME, EMAIL, ADDRESS or PHONE."""
        return self._core.accounts.field(self._account(name).number, field)

    def grant(self, name: str | None, path: str, rights: Right) -> None:
        """Set the rights of an account at a topic and below it, instead of those that it inherits there.

        Args:
            name: the name of the account; None for all accounts without an entry of their own.
            path: a topic, or `/` for everything.
            rights: all rights; `Right.NONE` allows nothing.
        """
        topic = ROOT_NUMBER if path == ROOT else find_topic(self._core, path).number
        self._core.rights.grant(topic, ANYONE if name is None else self._account(name).number, rights)

    # Topics

    def create_topic(self, path: str, *, kind: TopicKind | None = None, keywords: tuple[str, ...] = ()) -> None:
        """Create a topic and the missing ones above it; do nothing if it exists.

        Args:
            path: the path of the topic.
            kind: the kind of the topic; by default that of its parent.
            keywords: the keywords of the topic.
        """
        parse_topic(path, self._core.options.dialect)
        if self._core.directory.find(path) is None:
            above = parent(path)
            if above != ROOT and self._core.directory.find(above) is None:
                make_path(self._core, above)  # of the draft's kind, whatever the kind of the topic
            make_path(self._core, path, kind=kind, keywords=keywords)

    def prepare_for_jms(self) -> None:
        """Create the topics below which the adapter `smqp://` keeps queues, topics and temporary destinations.

        Its accounts need rights there; see `docs/smqp.md`. Topics below `/temporary/…` end with the session that
        created them.
        """
        for path, kind in JMS.items():
            self.create_topic(path, kind=kind)

    def set_parameters(self, path: str, *, by: str | None = None, **parameters: Any) -> None:
        """Set parameters of a topic: timeout, retry_timeout, max_retries, max_messages, max_message, max_octets, kind.

        Args:
            path: the path of the topic.
            by: the account that makes the change, which needs the right PARAMETERS; None for the operator.
            parameters: the values; None for the server's default, infinity for a timeout that never ends.

        Raises:
            UsageError: a parameter is unknown, or has a value that it cannot have.
            RefusedError: 404: there is no such topic; 401: the account lacks the right.
        """
        check_parameters(parameters)
        topic: Topic = find_topic(self._core, path)
        if by is not None and Right.PARAMETERS not in self._core.rights.of(self._account(by), path):
            raise RefusedError(ReplyCode.UNAUTHORIZED, f"{by} lacks the right PARAMETERS at {path}")
        if parameters.get("timeout") == float("inf"):
            parameters["timeout"] = FOREVER_SECONDS
        self._core.directory.change(topic, **parameters)

    # The server

    def set_default_timeout(self, timeout: Timeout) -> None:
        """Set the timeout of messages without one of their own, and notify the sessions that asked for it (SM-151).

        Raises:
            UsageError: it is neither a number of seconds nor None.
        """
        check_parameters({"timeout": timeout})
        if self._core.options.default_timeout != timeout:
            self._core.options = replace(self._core.options, default_timeout=timeout)
            self._core.announce.timeout(timeout)

    def set_options(self, **values: Any) -> None:
        """Change other options while the server runs."""
        self._core.options = replace(self._core.options, **values)

    def number_messages_from(self, smuid: int) -> None:
        """Set the number of the first message, in a store that has had no message yet."""
        self._core.messages.begin_at(smuid)

    def say_goodbye(self, seconds: Timeout) -> None:
        """Notify all sessions that the server will end after some seconds; 0 is now."""
        self._core.announce.bye(seconds)

    def sweep(self) -> None:
        """Process expired messages now."""
        self._core.sweep()

    def _account(self, name: str) -> Account:
        account = self._core.accounts.find(name)
        if account is None:
            raise RefusedError(ReplyCode.NOT_FOUND, f"there is no account {name}")
        return account


def _segment(name: str) -> str:
    """Return the last part of a login topic: the name itself if it is valid."""
    try:
        parse_topic(f"/{name}")
    except RefusedError:
        return segment_for(name)
    return segment_for(name) if fold(name) == "trash" else name
