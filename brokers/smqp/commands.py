"""The commands: one table of their words and arguments, from which they are read and written. No I/O.

Spec: SMQP 4.1 (commands, abbreviations), 4.1.1 to 4.1.16, 4.1.12 (NOTIFY, which the server sends).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, Union

from brokers.smqp.arguments import (
    ACCOUNT,
    CMUID,
    COUNTED,
    KEYWORDS,
    LISTED,
    MESSAGES,
    METHOD,
    NEW_TOPIC,
    OPTIONAL_KEYWORDS,
    OPTIONAL_TIMEOUT,
    PASSWORD,
    PORT,
    PUBLISHED,
    SINCE,
    SMUID,
    SUBSCRIBED,
    TARGET,
    TIMEOUT,
    TOPIC,
    UNSUBSCRIBED,
    VALUE,
    Argument,
)
from brokers.smqp.dialect import STRICT, Dialect
from brokers.smqp.errors import RefusedError
from brokers.smqp.ids import Ranges
from brokers.smqp.replies import Code
from brokers.smqp.times import Timeout
from brokers.smqp.words import Scanner, bad


class Kind(StrEnum):
    """Every command, by the words that it is written with."""

    LOGIN = "LOGIN"
    PASSWORD = "PASS"  # noqa: S105 - a word of the protocol
    COUNT_TOPIC = "COUNT TOPIC"
    COUNT_MESSAGE = "COUNT MESSAGE"
    COUNT_SUBSCRIBERS = "COUNT SUB"
    LIST_TOPIC = "LIST TOPIC"
    LIST_MESSAGE = "LIST MESSAGE"
    CREATE_TOPIC = "CREATE TOPIC"
    REMOVE_TOPIC = "REMOVE TOPIC"
    REMOVE_MESSAGE = "REMOVE MESSAGE"
    SET_TOPIC_NAME = "SET TOPIC NAME"
    SET_TOPIC_KEYWORD = "SET TOPIC KEYWORD"
    SET_LOGIN_PASSWORD = "SET LOGIN PASSWORD"  # noqa: S105 - a word of the protocol
    SET_LOGIN_NAME = "SET LOGIN NAME"
    SET_LOGIN_EMAIL = "SET LOGIN EMAIL"
    SET_LOGIN_ADDRESS = "SET LOGIN ADDRESS"
    SET_LOGIN_PHONE = "SET LOGIN PHONE"
    SET_NOTIFY_PORT = "SET NOTIFY PORT"
    SET_NOTIFY_SUSPEND = "SET NOTIFY SUSPEND"
    SET_NOTIFY_RESUME = "SET NOTIFY RESUME"
    FIND_TOPIC = "FIND TOPIC"
    PUBLISH_MESSAGE = "PUB MESSAGE"
    PUBLISH_REPLY = "PUB REPLY"
    REPUBLISH_MESSAGE = "REPUB MESSAGE"
    SUBSCRIBE_MESSAGE = "SUB MESSAGE"
    SUBSCRIBE_TOPIC = "SUB TOPIC"
    SUBSCRIBE_SUBSCRIBER = "SUB SUB"
    SUBSCRIBE_SERVER_TIMEOUT = "SUB SERVER TIMEOUT"
    UNSUBSCRIBE_MESSAGE = "UNSUB MESSAGE"
    UNSUBSCRIBE_TOPIC = "UNSUB TOPIC"
    UNSUBSCRIBE_SUBSCRIBER = "UNSUB SUB"
    UNSUBSCRIBE_SERVER_TIMEOUT = "UNSUB SERVER TIMEOUT"
    UNSUBSCRIBE_ALL = "UNSUB *"
    GET_MESSAGE = "GET MESSAGE"
    GET_TOPIC_KEYWORDS = "GET TOPIC KEYWORDS"
    NOOP = "NOOP"
    QUIT = "QUIT"


class Notice(StrEnum):
    """Every notification, by the words that it is written with."""

    MESSAGE = "NOTIFY MESSAGE"
    TOPIC = "NOTIFY TOPIC"
    SUBSCRIBERS = "NOTIFY SUB"
    SERVER_TIMEOUT = "NOTIFY SERVER TIMEOUT"
    SERVER_BYE = "NOTIFY SERVER BYE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command or notification; what its kind has no argument for is as it is by default."""

    kind: Kind | Notice
    topic: str = ""
    target: str | None = None
    account: str = ""
    password: str = ""
    method: str = ""
    version: str = ""
    keywords: tuple[str, ...] | None = None
    cmuid: str = ""
    smuid: int = 0
    messages: Ranges = ()
    since: datetime | None = None
    port: int = 0
    value: str = ""
    timeout: Timeout = 0.0


class Form(NamedTuple):
    """How a command is spelled: for each word its spellings, with the one to write first; then arguments."""

    words: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()


MESSAGE: Final = "MESSAGE|MESS|MESSAGES"
TOPIC_WORD: Final = "TOPIC|TOPICS"
SUBSCRIBER: Final = "SUB|SUBSCRIBERS|SUBSCRIBER"
SUBSCRIBE: Final = "SUB|SUBSCRIBE"
UNSUBSCRIBE: Final = "UNSUB|UNSUBSCRIBE"
PUBLISH: Final = "PUB|PUBLISH"
SERVER: Final = "SERVER|SERV"

COMMANDS: Final[Mapping[Kind, Form]] = {
    Kind.LOGIN: Form(("LOGIN",), (ACCOUNT, METHOD)),
    Kind.PASSWORD: Form(("PASS|PASSWORD",), (ACCOUNT, PASSWORD)),
    Kind.COUNT_TOPIC: Form(("COUNT", TOPIC_WORD), (COUNTED,)),
    Kind.COUNT_MESSAGE: Form(("COUNT", MESSAGE), (COUNTED,)),
    Kind.COUNT_SUBSCRIBERS: Form(("COUNT", SUBSCRIBER), (COUNTED,)),
    Kind.LIST_TOPIC: Form(("LIST", TOPIC_WORD), (LISTED,)),
    Kind.LIST_MESSAGE: Form(("LIST", MESSAGE), (TOPIC,)),
    Kind.CREATE_TOPIC: Form(("CREATE", TOPIC_WORD), (TOPIC, OPTIONAL_KEYWORDS, TARGET)),
    Kind.REMOVE_TOPIC: Form(("REMOVE|REM", TOPIC_WORD), (TOPIC,)),
    Kind.REMOVE_MESSAGE: Form(("REMOVE|REM", MESSAGE), (TOPIC, SMUID)),
    Kind.SET_TOPIC_NAME: Form(("SET", TOPIC_WORD, "NAME"), (TOPIC, NEW_TOPIC)),
    Kind.SET_TOPIC_KEYWORD: Form(("SET", TOPIC_WORD, "KEYWORD|KEYWORDS"), (TOPIC, KEYWORDS)),
    Kind.SET_LOGIN_PASSWORD: Form(("SET", "LOGIN", "PASSWORD|PASS"), (METHOD,)),
    Kind.SET_LOGIN_NAME: Form(("SET", "LOGIN", "NAME"), (VALUE,)),
    Kind.SET_LOGIN_EMAIL: Form(("SET", "LOGIN", "EMAIL"), (VALUE,)),
    Kind.SET_LOGIN_ADDRESS: Form(("SET", "LOGIN", "ADDRESS"), (VALUE,)),
    Kind.SET_LOGIN_PHONE: Form(("SET", "LOGIN", "PHONE"), (VALUE,)),
    Kind.SET_NOTIFY_PORT: Form(("SET", "NOTIFY", "PORT"), (PORT,)),
    Kind.SET_NOTIFY_SUSPEND: Form(("SET", "NOTIFY", "SUSPEND|SUS")),
    Kind.SET_NOTIFY_RESUME: Form(("SET", "NOTIFY", "RESUME|RES")),
    Kind.FIND_TOPIC: Form(("FIND", TOPIC_WORD), (COUNTED, OPTIONAL_KEYWORDS)),
    Kind.PUBLISH_MESSAGE: Form((PUBLISH, MESSAGE), (PUBLISHED, CMUID)),
    Kind.PUBLISH_REPLY: Form((PUBLISH, "REPLY"), (PUBLISHED, CMUID)),
    Kind.REPUBLISH_MESSAGE: Form(("REPUB|REPUBLISH", MESSAGE), (TOPIC, SMUID)),
    Kind.SUBSCRIBE_MESSAGE: Form((SUBSCRIBE, MESSAGE), (SUBSCRIBED, SINCE)),
    Kind.SUBSCRIBE_TOPIC: Form((SUBSCRIBE, TOPIC_WORD), (SUBSCRIBED,)),
    Kind.SUBSCRIBE_SUBSCRIBER: Form((SUBSCRIBE, SUBSCRIBER), (SUBSCRIBED,)),
    Kind.SUBSCRIBE_SERVER_TIMEOUT: Form((SUBSCRIBE, SERVER, "TIMEOUT")),
    Kind.UNSUBSCRIBE_MESSAGE: Form((UNSUBSCRIBE, MESSAGE), (UNSUBSCRIBED,)),
    Kind.UNSUBSCRIBE_TOPIC: Form((UNSUBSCRIBE, TOPIC_WORD), (UNSUBSCRIBED,)),
    Kind.UNSUBSCRIBE_SUBSCRIBER: Form((UNSUBSCRIBE, SUBSCRIBER), (UNSUBSCRIBED,)),
    Kind.UNSUBSCRIBE_SERVER_TIMEOUT: Form((UNSUBSCRIBE, SERVER, "TIMEOUT")),
    Kind.UNSUBSCRIBE_ALL: Form((UNSUBSCRIBE, "*")),
    Kind.GET_MESSAGE: Form(("GET", MESSAGE), (TOPIC, MESSAGES)),
    Kind.GET_TOPIC_KEYWORDS: Form(("GET", TOPIC_WORD, "KEYWORDS|KEY|KEYWORD"), (TOPIC,)),
    Kind.NOOP: Form(("NOOP",)),
    Kind.QUIT: Form(("QUIT",)),
}

NOTICES: Final[Mapping[Notice, tuple[Form, ...]]] = {
    Notice.MESSAGE: (Form(("NOTIFY", MESSAGE), (PUBLISHED,)),),
    Notice.TOPIC: (Form(("NOTIFY", TOPIC_WORD), (TOPIC,)),),
    Notice.SUBSCRIBERS: (Form(("NOTIFY", SUBSCRIBER), (TOPIC,)),),
    Notice.SERVER_TIMEOUT: (Form(("NOTIFY", SERVER, "TIMEOUT"), (TIMEOUT,)),),
    Notice.SERVER_BYE: (
        Form(("NOTIFY", SERVER, "BYE"), (OPTIONAL_TIMEOUT,)),
        Form(("NOTIFY", "BYE"), (OPTIONAL_TIMEOUT,)),
    ),
}
"""The first form is written; the second is only in examples of the draft, and read."""

WITH_MESSAGE: Final[frozenset[Kind | Notice]] = frozenset({Kind.PUBLISH_MESSAGE, Kind.PUBLISH_REPLY, Notice.MESSAGE})
"""After these a message follows on the wire, also if the command itself is refused."""

WITH_ATTRIBUTES: Final[frozenset[Kind | Notice]] = frozenset({Notice.TOPIC, Notice.SUBSCRIBERS})
"""After these a block of attributes follows, up to an empty line."""

Branch: TypeAlias = dict[str, Union["Branch", tuple[Kind | Notice, Form]]]


def _tree(forms: list[tuple[Kind | Notice, Form]]) -> Branch:
    """Arrange commands by their words, in every spelling."""
    tree: Branch = {}
    for kind, form in forms:
        branches = [tree]
        for place, spellings in enumerate(form.words):
            last = place == len(form.words) - 1
            below: list[Branch] = []
            for branch in branches:
                for spelling in spellings.split("|"):
                    if last:
                        branch[spelling] = (kind, form)
                    else:
                        found = branch.setdefault(spelling, {})
                        assert isinstance(found, dict)
                        below.append(found)
            branches = below
    return tree


FROM_CLIENTS: Final = _tree(list(COMMANDS.items()))
FROM_SERVERS: Final = _tree([(notice, form) for notice, forms in NOTICES.items() for form in forms])


class BadCommandError(RefusedError):
    """A line that is no command; `kind` is set where its words were understood and an argument was not."""

    def __init__(self, error: RefusedError, kind: Kind | Notice) -> None:
        super().__init__(error.code, error.why)
        self.kind = kind


def parse_command(line: str, dialect: Dialect = STRICT, *, tree: Branch = FROM_CLIENTS) -> Command:
    """Read a line.

    Raises:
        BadCommandError: 400 for arguments.
        RefusedError: 501 for a verb or resource that does not exist, 400 for a resource that is missing.
    """
    scanner = Scanner(line)
    kind, form = _find(scanner, tree)
    if kind is Kind.REMOVE_MESSAGE and not dialect.remove_message:
        raise RefusedError(Code.NOT_IMPLEMENTED, "REMOVE MESSAGE is of later revisions; the dialect does not have it")
    fields: dict[str, Any] = {}
    try:
        for argument in form.arguments:
            fields.update(argument.read(scanner, dialect))
        if kind is Kind.CREATE_TOPIC and fields.get("keywords") is None:  # some examples put them last
            fields.update(OPTIONAL_KEYWORDS.read(scanner, dialect))
        scanner.end()
    except RefusedError as error:
        raise BadCommandError(error, kind) from None
    return Command(kind=kind, **fields)


def _find(scanner: Scanner, branch: Branch) -> tuple[Kind | Notice, Form]:
    while True:
        word = scanner.plain_word()
        if not word:
            raise bad(f"a word is missing; known are {', '.join(sorted(branch))}")
        found = branch.get(word.upper())
        if found is None:
            why = f"{word[:80]!r} is not known; known are {', '.join(sorted(branch))}, and no other abbreviations"
            raise RefusedError(Code.NOT_IMPLEMENTED, why)
        if isinstance(found, tuple):
            return found
        branch = found


def format_command(command: Command, dialect: Dialect = STRICT) -> bytes:
    """Write a command, and the empty line after it where that is customary.

    Raises:
        ValueError: an argument that no line carries.
    """
    kind = command.kind
    form = COMMANDS[kind] if isinstance(kind, Kind) else NOTICES[kind][0]
    parts = [*kind.split(), *(argument.write(command, dialect) for argument in form.arguments)]
    line = " ".join(part for part in parts if part)
    if "\r" in line or "\n" in line:
        raise ValueError("an argument of a command has a line break")
    return f"{line}\r\n{'' if kind in BARE else EMPTY}".encode()


EMPTY: Final = "\r\n"
BARE: Final[frozenset[Kind | Notice]] = WITH_MESSAGE | WITH_ATTRIBUTES | {Kind.LOGIN, Kind.PASSWORD}
"""After these no empty line is customary: nothing, or what belongs to them, follows."""
