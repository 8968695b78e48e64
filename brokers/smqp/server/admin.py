"""What an administrator does: accounts, rights, topics and their parameters. No command of SMQP reaches it.

Spec: SMQP 2.2.2, 2.3, 6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from brokers.smqp.protocol.ids import Timeout
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.protocol.topics import ROOT, fold, parent, parse_topic, segment_for
from brokers.smqp.server.accounts import Account, Password
from brokers.smqp.server.commands.lookup import find_topic
from brokers.smqp.server.commands.topics import make_path
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.rights import ANYONE, ROOT_NUMBER, Right
from brokers.smqp.server.topics import FOREVER_SECONDS, PARAMETERS, Topic, TopicKind

ACCOUNTS: Final = "/accounts"
JMS: Final = {
    "/queue": TopicKind.QUEUE,
    "/topic": TopicKind.SESSION,
    "/temporary/queue": TopicKind.QUEUE,
    "/temporary/topic": TopicKind.SESSION,
}
NOT_IN_NAMES: Final = frozenset("/ \t\r\n\0")


class Administration:
    """Changes what clients cannot. Use it by `Server.administer`."""

    def __init__(self, core: SmqpCore) -> None:
        self._core = core

    # Accounts

    def create_account(self, name: str, password: str, *, is_admin: bool = False, is_peer: bool = False) -> None:
        """Create an account and its login topic, `/accounts/NAME`, to which its owner may subscribe, and reply
        to what comes there (SM-047).

        Args:
            name: unique, whatever its case.
            password: any text that a line carries; only its hash is kept.
            is_admin: has every right everywhere.
            is_peer: belongs to another server, and may pass on what others published there.

        Raises:
            ValueError: no name of an account.
            RefusedError: 409, there is one of that name.
        """
        if not name or NOT_IN_NAMES & set(name) or not password or set("\r\n") & set(password):
            raise ValueError("an account has a name without slash and blanks, and a password of one line")
        core = self._core
        path = f"{ACCOUNTS}/{_segment(name)}"
        if core.accounts.find(name) is not None or core.directory.find(path) is not None:
            raise RefusedError(ReplyCode.CONFLICT, f"there is an account {name}")
        hashed = Password.of(password, core.options.scrypt_cost)
        number = core.accounts.add(name, hashed, is_admin=is_admin, is_peer=is_peer)
        if core.directory.find(ACCOUNTS) is None:  # whatever is granted at the root, login topics are their owners'
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
        """Return what the owner of an account set: NAME, EMAIL, ADDRESS or PHONE."""
        return self._core.accounts.field(self._account(name).number, field)

    def grant(self, name: str | None, path: str, rights: Right) -> None:
        """Set what an account may do at a topic and below it, in place of what it inherits there.

        Args:
            name: of the account; None for all that have no entry of their own.
            path: a topic, or `/` for everything.
            rights: together; `Right.NONE` allows nothing.
        """
        topic = ROOT_NUMBER if path == ROOT else find_topic(self._core, path).number
        self._core.rights.grant(topic, ANYONE if name is None else self._account(name).number, rights)

    # Topics

    def create_topic(self, path: str, *, kind: TopicKind | None = None, keywords: tuple[str, ...] = ()) -> None:
        """Create a topic, and those above it that are not there; nothing if it is there.

        Args:
            path: of the topic.
            kind: who gets its messages; by default as of its parent.
            keywords: of the topic.
        """
        parse_topic(path, self._core.options.dialect)
        if self._core.directory.find(path) is None:
            above = parent(path)
            if above != ROOT and self._core.directory.find(above) is None:
                make_path(self._core, above)  # of the draft's kind, whatever is below
            make_path(self._core, path, kind=kind, keywords=keywords)

    def prepare_for_jms(self) -> None:
        """Create the topics that the adapter `smqp://` keeps queues, topics and temporary destinations below.

        Who is to use it needs rights there; see `docs/smqp.md`. What is below `/temporary/…` ends with the session that
        created it.
        """
        for path, kind in JMS.items():
            self.create_topic(path, kind=kind)

    def set_parameters(self, path: str, *, by: str | None = None, **parameters: Any) -> None:
        """Set parameters of a topic: timeout, retry_timeout, max_retries, max_messages, max_message, max_octets, kind.

        Args:
            path: of the topic.
            by: the account in whose name that happens, which needs the right PARAMETERS; None for the operator.
            parameters: their values; None for the server's default, a timeout of infinity for ever.

        Raises:
            ValueError: no parameter of a topic.
            RefusedError: 404, 401.
        """
        if unknown := set(parameters) - set(PARAMETERS):
            raise ValueError(f"parameters of a topic are {', '.join(PARAMETERS)}, not {', '.join(unknown)}")
        topic: Topic = find_topic(self._core, path)
        if by is not None and Right.PARAMETERS not in self._core.rights.of(self._account(by), path):
            raise RefusedError(ReplyCode.UNAUTHORIZED, f"{by} has not the right PARAMETERS at {path}")
        if parameters.get("timeout") == float("inf"):
            parameters["timeout"] = FOREVER_SECONDS
        self._core.directory.change(topic, **parameters)

    # The server

    def set_default_timeout(self, timeout: Timeout) -> None:
        """Set how long messages stay that do not say so, and tell who wants to know (SM-151)."""
        if self._core.options.default_timeout != timeout:
            self._core.options = replace(self._core.options, default_timeout=timeout)
            self._core.announce.timeout(timeout)

    def set_options(self, **values: Any) -> None:
        """Change other options while the server runs."""
        self._core.options = replace(self._core.options, **values)

    def number_messages_from(self, smuid: int) -> None:
        """Let a store that had no message yet number the first one so."""
        self._core.messages.begin_at(smuid)

    def say_goodbye(self, seconds: Timeout) -> None:
        """Tell everybody who is logged in that the server will not be there after some seconds; 0 is now."""
        self._core.announce.bye(seconds)

    def sweep(self) -> None:
        """Look now which messages have expired."""
        self._core.sweep()

    def _account(self, name: str) -> Account:
        account = self._core.accounts.find(name)
        if account is None:
            raise RefusedError(ReplyCode.NOT_FOUND, f"there is no account {name}")
        return account


def _segment(name: str) -> str:
    """Make the last part of a login topic: the name itself if it can be one."""
    try:
        parse_topic(f"/{name}")
    except RefusedError:
        return segment_for(name)
    return segment_for(name) if fold(name) == "trash" else name
