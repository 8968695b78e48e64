"""The commands: one table of their words and arguments, by which they are read and written. No I/O.

Each argument has a function that reads it from a line and one that writes it. The effects of commands belong in the
server.

Spec: SMQP 4.1 (commands, abbreviations), 4.1.1 to 4.1.16, 4.1.12 (NOTIFY, which the server sends); SMQP 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, Union

from brokers.errors import UsageError
from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.ids import (
    Ranges,
    Timeout,
    format_date,
    format_ranges,
    format_timeout,
    parse_date,
    parse_number,
    parse_ranges,
    parse_smuid_argument,
    parse_timeout,
)
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.protocol.topics import parse_topic
from brokers.smqp.protocol.words import BLANKS, Scanner, bad, format_keywords, quoted

Fields = Mapping[str, Any]


class Argument(NamedTuple):
    """An argument: `read` takes it from a line as fields of a `Command`, `write` returns its text, '' if absent."""

    read: Callable[[Scanner, SmqpDialect], Fields]
    write: Callable[[Command, SmqpDialect], str]


def _read_word(field: str, what: str, special: bool, scanner: Scanner, dialect: SmqpDialect) -> Fields:
    return {field: scanner.word(what, special=special)}


def _write_word(field: str, command: Command, dialect: SmqpDialect) -> str:
    return quoted(getattr(command, field))


def _word(field: str, what: str, *, special: bool = False) -> Argument:
    return Argument(partial(_read_word, field, what, special), partial(_write_word, field))


def _read_method(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    method, slash, version = scanner.word("the authentication method").partition("/")
    if not (method and slash and version):
        raise bad("an authentication method must be a name, a slash and a version, such as CLEAR/1.0")
    return {"method": method.upper(), "version": version}


def _write_method(command: Command, dialect: SmqpDialect) -> str:
    return f"{command.method}/{command.version}"


def _topic(field: str, *, root: bool = False, wildcard: bool = False, everything: bool = False) -> Argument:
    def read(scanner: Scanner, dialect: SmqpDialect) -> Fields:
        text = scanner.word("a topic")
        return {field: parse_topic(text, dialect, root=root, wildcard=wildcard, everything=everything)}

    return Argument(read, lambda command, dialect: getattr(command, field))


def _read_published(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    """Read a topic that may follow the context of another server; the message's Smuid tells them apart."""
    text = scanner.word("a topic")
    if text.startswith("/"):
        parse_topic(text, dialect)
    elif "/" not in text:
        raise bad(f"a topic must begin with '/', got {text[:80]!r}")
    return {"topic": text}


def _read_keywords(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    if scanner.is_at_end:
        raise bad("keywords are missing; an empty list is written ()")
    return {"keywords": scanner.keywords()}


def _read_optional_keywords(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    return {} if scanner.peek() in ("", ">") else {"keywords": scanner.keywords()}


def _write_keywords(command: Command, dialect: SmqpDialect) -> str:
    return "" if command.keywords is None else format_keywords(command.keywords)


def _read_target(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    if scanner.peek() != ">":
        return {}
    sign = scanner.plain_word()
    text = sign[1:] or scanner.word("the target of a virtual topic")
    return {"target": parse_topic(text, dialect)}


def _write_target(command: Command, dialect: SmqpDialect) -> str:
    return "" if command.target is None else f"> {command.target}"


def _read_smuid(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    return {"smuid": parse_smuid_argument(scanner.word("a smuid"))}


def _read_messages(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    ranges = (each.split("-") for each in scanner.rest().split(","))
    return {"messages": parse_ranges(",".join("-".join(part.strip(BLANKS) for part in each) for each in ranges))}


def _read_since(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    return {} if scanner.is_at_end else {"since": parse_date(scanner.word("a date"), dialect)}


def _write_since(command: Command, dialect: SmqpDialect) -> str:
    return "" if command.since is None else format_date(command.since, dialect)


MAX_PORT: Final = 65_535
"""The largest number of a port."""


def _read_port(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    port = parse_number(scanner.word("a port"), "a port")
    if not 0 < port <= MAX_PORT:
        raise bad(f"a port must be a number from 1 to {MAX_PORT}, got {port}")
    return {"port": port}


def _read_value(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    value = scanner.rest()
    if not value:
        raise bad("a value is missing")
    return {"value": value}


def _write_value(command: Command, dialect: SmqpDialect) -> str:
    if not command.value.startswith('"'):
        return command.value
    escaped = command.value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_timeout(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    return {"timeout": parse_timeout(scanner.word("a timeout"))}


def _read_optional_timeout(scanner: Scanner, dialect: SmqpDialect) -> Fields:
    return {} if scanner.is_at_end else _read_timeout(scanner, dialect)


def _write_timeout(command: Command, dialect: SmqpDialect) -> str:
    return format_timeout(command.timeout)


def _write_optional_timeout(command: Command, dialect: SmqpDialect) -> str:
    return format_timeout(command.timeout) if command.timeout else ""


ACCOUNT: Final = _word("account", "an account")
PASSWORD: Final = _word("password", "a password", special=True)
CMUID: Final = _word("cmuid", "a cmuid")
METHOD: Final = Argument(_read_method, _write_method)
TOPIC: Final = _topic("topic")
NEW_TOPIC: Final = _topic("target")
LISTED: Final = _topic("topic", root=True)
COUNTED: Final = _topic("topic", root=True, wildcard=True)
SUBSCRIBED: Final = _topic("topic", wildcard=True)
UNSUBSCRIBED: Final = _topic("topic", wildcard=True, everything=True)
PUBLISHED: Final = Argument(_read_published, lambda command, dialect: command.topic)
KEYWORDS: Final = Argument(_read_keywords, _write_keywords)
OPTIONAL_KEYWORDS: Final = Argument(_read_optional_keywords, _write_keywords)
TARGET: Final = Argument(_read_target, _write_target)
SMUID: Final = Argument(_read_smuid, lambda command, dialect: str(command.smuid))
MESSAGES: Final = Argument(_read_messages, lambda command, dialect: format_ranges(command.messages))
SINCE: Final = Argument(_read_since, _write_since)
PORT: Final = Argument(_read_port, lambda command, dialect: str(command.port))
VALUE: Final = Argument(_read_value, _write_value)
TIMEOUT: Final = Argument(_read_timeout, _write_timeout)
OPTIONAL_TIMEOUT: Final = Argument(_read_optional_timeout, _write_optional_timeout)


class CommandKind(StrEnum):
    """Every command, by its words."""

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
    """Every notification, by its words."""

    MESSAGE = "NOTIFY MESSAGE"
    TOPIC = "NOTIFY TOPIC"
    SUBSCRIBERS = "NOTIFY SUB"
    SERVER_TIMEOUT = "NOTIFY SERVER TIMEOUT"
    SERVER_BYE = "NOTIFY SERVER BYE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command or notification; fields that are not arguments of its kind have their defaults."""

    kind: CommandKind | Notice
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


class CommandForm(NamedTuple):
    """The form of a command: the spellings of each word, with the one to write first, and the arguments."""

    words: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()


MESSAGE: Final = "MESSAGE|MESS|MESSAGES"
TOPIC_WORD: Final = "TOPIC|TOPICS"
SUBSCRIBER: Final = "SUB|SUBSCRIBERS|SUBSCRIBER"
SUBSCRIBE: Final = "SUB|SUBSCRIBE"
UNSUBSCRIBE: Final = "UNSUB|UNSUBSCRIBE"
PUBLISH: Final = "PUB|PUBLISH"
SERVER: Final = "SERVER|SERV"

COMMANDS: Final[Mapping[CommandKind, CommandForm]] = {
    CommandKind.LOGIN: CommandForm(("LOGIN",), (ACCOUNT, METHOD)),
    CommandKind.PASSWORD: CommandForm(("PASS|PASSWORD",), (ACCOUNT, PASSWORD)),
    CommandKind.COUNT_TOPIC: CommandForm(("COUNT", TOPIC_WORD), (COUNTED,)),
    CommandKind.COUNT_MESSAGE: CommandForm(("COUNT", MESSAGE), (COUNTED,)),
    CommandKind.COUNT_SUBSCRIBERS: CommandForm(("COUNT", SUBSCRIBER), (COUNTED,)),
    CommandKind.LIST_TOPIC: CommandForm(("LIST", TOPIC_WORD), (LISTED,)),
    CommandKind.LIST_MESSAGE: CommandForm(("LIST", MESSAGE), (TOPIC,)),
    CommandKind.CREATE_TOPIC: CommandForm(("CREATE", TOPIC_WORD), (TOPIC, OPTIONAL_KEYWORDS, TARGET)),
    CommandKind.REMOVE_TOPIC: CommandForm(("REMOVE|REM", TOPIC_WORD), (TOPIC,)),
    CommandKind.REMOVE_MESSAGE: CommandForm(("REMOVE|REM", MESSAGE), (TOPIC, SMUID)),
    CommandKind.SET_TOPIC_NAME: CommandForm(("SET", TOPIC_WORD, "NAME"), (TOPIC, NEW_TOPIC)),
    CommandKind.SET_TOPIC_KEYWORD: CommandForm(("SET", TOPIC_WORD, "KEYWORD|KEYWORDS"), (TOPIC, KEYWORDS)),
    CommandKind.SET_LOGIN_PASSWORD: CommandForm(("SET", "LOGIN", "PASSWORD|PASS"), (METHOD,)),
    CommandKind.SET_LOGIN_NAME: CommandForm(("SET", "LOGIN", "NAME"), (VALUE,)),
    CommandKind.SET_LOGIN_EMAIL: CommandForm(("SET", "LOGIN", "EMAIL"), (VALUE,)),
    CommandKind.SET_LOGIN_ADDRESS: CommandForm(("SET", "LOGIN", "ADDRESS"), (VALUE,)),
    CommandKind.SET_LOGIN_PHONE: CommandForm(("SET", "LOGIN", "PHONE"), (VALUE,)),
    CommandKind.SET_NOTIFY_PORT: CommandForm(("SET", "NOTIFY", "PORT"), (PORT,)),
    CommandKind.SET_NOTIFY_SUSPEND: CommandForm(("SET", "NOTIFY", "SUSPEND|SUS")),
    CommandKind.SET_NOTIFY_RESUME: CommandForm(("SET", "NOTIFY", "RESUME|RES")),
    CommandKind.FIND_TOPIC: CommandForm(("FIND", TOPIC_WORD), (COUNTED, OPTIONAL_KEYWORDS)),
    CommandKind.PUBLISH_MESSAGE: CommandForm((PUBLISH, MESSAGE), (PUBLISHED, CMUID)),
    CommandKind.PUBLISH_REPLY: CommandForm((PUBLISH, "REPLY"), (PUBLISHED, CMUID)),
    CommandKind.REPUBLISH_MESSAGE: CommandForm(("REPUB|REPUBLISH", MESSAGE), (TOPIC, SMUID)),
    CommandKind.SUBSCRIBE_MESSAGE: CommandForm((SUBSCRIBE, MESSAGE), (SUBSCRIBED, SINCE)),
    CommandKind.SUBSCRIBE_TOPIC: CommandForm((SUBSCRIBE, TOPIC_WORD), (SUBSCRIBED,)),
    CommandKind.SUBSCRIBE_SUBSCRIBER: CommandForm((SUBSCRIBE, SUBSCRIBER), (SUBSCRIBED,)),
    CommandKind.SUBSCRIBE_SERVER_TIMEOUT: CommandForm((SUBSCRIBE, SERVER, "TIMEOUT")),
    CommandKind.UNSUBSCRIBE_MESSAGE: CommandForm((UNSUBSCRIBE, MESSAGE), (UNSUBSCRIBED,)),
    CommandKind.UNSUBSCRIBE_TOPIC: CommandForm((UNSUBSCRIBE, TOPIC_WORD), (UNSUBSCRIBED,)),
    CommandKind.UNSUBSCRIBE_SUBSCRIBER: CommandForm((UNSUBSCRIBE, SUBSCRIBER), (UNSUBSCRIBED,)),
    CommandKind.UNSUBSCRIBE_SERVER_TIMEOUT: CommandForm((UNSUBSCRIBE, SERVER, "TIMEOUT")),
    CommandKind.UNSUBSCRIBE_ALL: CommandForm((UNSUBSCRIBE, "*")),
    CommandKind.GET_MESSAGE: CommandForm(("GET", MESSAGE), (TOPIC, MESSAGES)),
    CommandKind.GET_TOPIC_KEYWORDS: CommandForm(("GET", TOPIC_WORD, "KEYWORDS|KEY|KEYWORD"), (TOPIC,)),
    CommandKind.NOOP: CommandForm(("NOOP",)),
    CommandKind.QUIT: CommandForm(("QUIT",)),
}

NOTICES: Final[Mapping[Notice, tuple[CommandForm, ...]]] = {
    Notice.MESSAGE: (CommandForm(("NOTIFY", MESSAGE), (PUBLISHED,)),),
    Notice.TOPIC: (CommandForm(("NOTIFY", TOPIC_WORD), (TOPIC,)),),
    Notice.SUBSCRIBERS: (CommandForm(("NOTIFY", SUBSCRIBER), (TOPIC,)),),
    Notice.SERVER_TIMEOUT: (CommandForm(("NOTIFY", SERVER, "TIMEOUT"), (TIMEOUT,)),),
    Notice.SERVER_BYE: (
        CommandForm(("NOTIFY", SERVER, "BYE"), (OPTIONAL_TIMEOUT,)),
        CommandForm(("NOTIFY", "BYE"), (OPTIONAL_TIMEOUT,)),
    ),
}
"""The first form is read and written; a second one, from examples of the draft, is only read."""

WITH_MESSAGE: Final[frozenset[CommandKind | Notice]] = frozenset(
    {CommandKind.PUBLISH_MESSAGE, CommandKind.PUBLISH_REPLY, Notice.MESSAGE}
)
"""Commands that are followed by a message on the wire, even if the command itself is refused."""

WITH_ATTRIBUTES: Final[frozenset[CommandKind | Notice]] = frozenset({Notice.TOPIC, Notice.SUBSCRIBERS})
"""Notifications that are followed by a block of attributes, up to an empty line."""

Branch: TypeAlias = dict[str, Union["Branch", tuple[CommandKind | Notice, CommandForm]]]


def _tree(forms: list[tuple[CommandKind | Notice, CommandForm]]) -> Branch:
    """Arrange commands in a tree by their words, in every spelling."""
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
    """A line whose words are a command of `kind`, but whose arguments are invalid."""

    def __init__(self, error: RefusedError, kind: CommandKind | Notice) -> None:
        super().__init__(error.code, error.why)
        self.kind = kind


def parse_command(line: str, dialect: SmqpDialect = STRICT, *, tree: Branch = FROM_CLIENTS) -> Command:
    """Read a command from a line.

    Raises:
        BadCommandError: 400: an argument is invalid.
        RefusedError: 501: the verb or resource is unknown; 400: the resource is missing.
    """
    scanner = Scanner(line)
    kind, form = _find(scanner, tree)
    if kind is CommandKind.REMOVE_MESSAGE and not dialect.remove_message:
        raise RefusedError(
            ReplyCode.NOT_IMPLEMENTED, "REMOVE MESSAGE is from later revisions; the dialect does not have it"
        )
    fields: dict[str, Any] = {}
    try:
        for argument in form.arguments:
            fields.update(argument.read(scanner, dialect))
        if kind is CommandKind.CREATE_TOPIC and fields.get("keywords") is None:  # some examples put them last
            fields.update(OPTIONAL_KEYWORDS.read(scanner, dialect))
        scanner.end()
    except RefusedError as error:
        raise BadCommandError(error, kind) from None
    return Command(kind=kind, **fields)


def _find(scanner: Scanner, branch: Branch) -> tuple[CommandKind | Notice, CommandForm]:
    while True:
        word = scanner.plain_word()
        if not word:
            raise bad(f"a word is missing; it must be one of {', '.join(sorted(branch))}")
        found = branch.get(word.upper())
        if found is None:
            why = f"a word must be one of {', '.join(sorted(branch))}, without other abbreviations, got {word[:80]!r}"
            raise RefusedError(ReplyCode.NOT_IMPLEMENTED, why)
        if isinstance(found, tuple):
            return found
        branch = found


def format_command(command: Command, dialect: SmqpDialect = STRICT) -> bytes:
    """Write a command, followed by an empty line if that is customary.

    Raises:
        UsageError: an argument has a line break.
    """
    kind = command.kind
    form = COMMANDS[kind] if isinstance(kind, CommandKind) else NOTICES[kind][0]
    parts = [*kind.split(), *(argument.write(command, dialect) for argument in form.arguments)]
    line = " ".join(part for part in parts if part)
    if "\r" in line or "\n" in line:
        raise UsageError("an argument of a command must not have a line break")
    return f"{line}\r\n{'' if kind in BARE else EMPTY}".encode()


EMPTY: Final = "\r\n"
BARE: Final[frozenset[CommandKind | Notice]] = (
    WITH_MESSAGE | WITH_ATTRIBUTES | {CommandKind.LOGIN, CommandKind.PASSWORD}
)
"""Commands after which no empty line is customary: nothing follows, or a message or attributes."""
