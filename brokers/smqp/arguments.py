"""The arguments of commands: how each is read from a line and written to one. No I/O.

Spec: SMQP 4.1.1 to 4.1.16, 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from brokers.smqp.dialect import Dialect
from brokers.smqp.ids import format_ranges, parse_number, parse_ranges, parse_smuid_argument
from brokers.smqp.times import format_date, format_timeout, parse_date, parse_timeout
from brokers.smqp.topics import parse_topic
from brokers.smqp.words import Scanner, bad, format_keywords, quoted

if TYPE_CHECKING:
    from brokers.smqp.commands import Command

Fields = Mapping[str, Any]


class Argument(NamedTuple):
    """One argument: `read` takes it from a line as fields of a `Command`, `write` gives its text, or '' for none."""

    read: Callable[[Scanner, Dialect], Fields]
    write: Callable[[Command, Dialect], str]


def _read_word(field: str, what: str, special: bool, scanner: Scanner, dialect: Dialect) -> Fields:
    return {field: scanner.word(what, special=special)}


def _write_word(field: str, command: Command, dialect: Dialect) -> str:
    return quoted(getattr(command, field))


def _word(field: str, what: str, *, special: bool = False) -> Argument:
    return Argument(partial(_read_word, field, what, special), partial(_write_word, field))


def _read_method(scanner: Scanner, dialect: Dialect) -> Fields:
    method, slash, version = scanner.word("the authentication method").partition("/")
    if not (method and slash and version):
        raise bad("an authentication method is a name, a slash and a version, as CLEAR/1.0")
    return {"method": method.upper(), "version": version}


def _write_method(command: Command, dialect: Dialect) -> str:
    return f"{command.method}/{command.version}"


def _topic(field: str, *, root: bool = False, wildcard: bool = False, everything: bool = False) -> Argument:
    def read(scanner: Scanner, dialect: Dialect) -> Fields:
        text = scanner.word("a topic")
        return {field: parse_topic(text, dialect, root=root, wildcard=wildcard, everything=everything)}

    return Argument(read, lambda command, dialect: getattr(command, field))


def _read_published(scanner: Scanner, dialect: Dialect) -> Fields:
    """Read a topic, before which the context of another server may stand; which is which the message's Smuid says."""
    text = scanner.word("a topic")
    if text.startswith("/"):
        parse_topic(text, dialect)
    elif "/" not in text:
        raise bad(f"a topic begins with '/': {text[:80]!r}")
    return {"topic": text}


def _read_keywords(scanner: Scanner, dialect: Dialect) -> Fields:
    if scanner.is_at_end:
        raise bad("keywords are missing; none is written ()")
    return {"keywords": scanner.keywords()}


def _read_optional_keywords(scanner: Scanner, dialect: Dialect) -> Fields:
    return {} if scanner.peek() in ("", ">") else {"keywords": scanner.keywords()}


def _write_keywords(command: Command, dialect: Dialect) -> str:
    return "" if command.keywords is None else format_keywords(command.keywords)


def _read_target(scanner: Scanner, dialect: Dialect) -> Fields:
    if scanner.peek() != ">":
        return {}
    sign = scanner.plain_word()
    text = sign[1:] or scanner.word("the topic that a virtual one leads to")
    return {"target": parse_topic(text, dialect)}


def _write_target(command: Command, dialect: Dialect) -> str:
    return "" if command.target is None else f"> {command.target}"


def _read_smuid(scanner: Scanner, dialect: Dialect) -> Fields:
    return {"smuid": parse_smuid_argument(scanner.word("a smuid"))}


def _read_messages(scanner: Scanner, dialect: Dialect) -> Fields:
    return {"messages": parse_ranges(scanner.rest().replace(" ", ""))}


def _read_since(scanner: Scanner, dialect: Dialect) -> Fields:
    return {} if scanner.is_at_end else {"since": parse_date(scanner.word("a date"), dialect)}


def _write_since(command: Command, dialect: Dialect) -> str:
    return "" if command.since is None else format_date(command.since, dialect)


def _read_port(scanner: Scanner, dialect: Dialect) -> Fields:
    port = parse_number(scanner.word("a port"), "a port")
    if not 0 < port < 65536:
        raise bad(f"a port is a number from 1 to 65535: {port}")
    return {"port": port}


def _read_value(scanner: Scanner, dialect: Dialect) -> Fields:
    value = scanner.rest()
    if not value:
        raise bad("a value is missing")
    return {"value": value}


def _write_value(command: Command, dialect: Dialect) -> str:
    if not command.value.startswith('"'):
        return command.value
    escaped = command.value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_timeout(scanner: Scanner, dialect: Dialect) -> Fields:
    return {"timeout": parse_timeout(scanner.word("a timeout"))}


def _read_optional_timeout(scanner: Scanner, dialect: Dialect) -> Fields:
    return {} if scanner.is_at_end else _read_timeout(scanner, dialect)


def _write_timeout(command: Command, dialect: Dialect) -> str:
    return format_timeout(command.timeout)


def _write_optional_timeout(command: Command, dialect: Dialect) -> str:
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
