"""A TOML file with the accounts, rights, topics and links that a server must have. Existing ones stay.

```toml
context = "mq.example"

[accounts.alice]
password = "pa55"                      # or password_file = "alice.password"
rights = { "/news" = ["publish", "subscribe"] }

[accounts.peer-b]
password_file = "peer-b.password"
peer = true                            # another server, which may pass on what others published

[topics."/news"]
keywords = ["WORLD", "TOP HEADLINES"]
timeout = 3600                         # seconds; inf for ever
max_messages = 10000

[links."b.example"]
host = "b.example"
account = "peer-a"
password_file = "b.password"
topics = ["/news/*"]
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from brokers.arguments import is_count, items
from brokers.errors import UsageError
from brokers.files import check_files, reason_of
from brokers.smqp.protocol.commands import MAX_PORT
from brokers.smqp.protocol.dialect import LENIENT
from brokers.smqp.protocol.dialogue import SERVER_PORT
from brokers.smqp.protocol.replies import RefusedError
from brokers.smqp.protocol.topics import parse_topic
from brokers.smqp.protocol.words import parse_keywords
from brokers.smqp.server.admin import Administration
from brokers.smqp.server.links import Peer
from brokers.smqp.server.rights import Right
from brokers.smqp.server.topics import PARAMETERS, check_parameters

MAX_FILE_OCTETS: Final = 1 << 20
ACCOUNT_KEYS: Final = frozenset({"password", "password_file", "admin", "peer", "rights"})
LINK_KEYS: Final = frozenset({"host", "port", "account", "password", "password_file", "topics"})
KEYS: Final = frozenset({"context", "accounts", "topics", "links", "anyone"})


class SetupError(UsageError):
    """The setup file is invalid; the message says where, and repeats no password."""


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account that the server must have."""

    name: str
    password: str = field(repr=False)
    is_admin: bool
    is_peer: bool
    rights: Mapping[str, Right]


@dataclass(frozen=True, slots=True)
class Setup:
    """The contents of a setup file.

    Attributes:
        context: the server's own name, or None.
        accounts: the accounts.
        anyone: rights of all accounts without rights of their own, by topic.
        topics: parameters and keywords of topics, by path.
        links: the links to other servers.
    """

    context: str | None = None
    accounts: tuple[NewAccount, ...] = ()
    anyone: Mapping[str, Right] = field(default_factory=dict)
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    links: tuple[Peer, ...] = ()

    @staticmethod
    def read(path: Path) -> Setup:
        """Read a file.

        Raises:
            SetupError: the file cannot be read, or is invalid.
        """
        try:
            check_files(path)
            with path.open("rb") as file:
                text = file.read(MAX_FILE_OCTETS + 1)
            if len(text) > MAX_FILE_OCTETS:
                raise SetupError(f"{path} has more than {MAX_FILE_OCTETS} octets")
            found = tomllib.loads(text.decode("utf-8-sig"))
        except OSError as error:
            raise SetupError(f"the setup cannot be read: {reason_of(error)}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SetupError(f"{path} is not TOML: {error}") from error
        _only(found, KEYS, str(path))
        return Setup(
            _text(found, "context", str(path)) if "context" in found else None,
            tuple(_account(name, table, path) for name, table in _tables(found, "accounts")),
            _rights(found.get("anyone", {}), "anyone"),
            {name: _topic(name, table) for name, table in _tables(found, "topics")},
            tuple(_link(name, table, path) for name, table in _tables(found, "links")),
        )

    def apply(self, admin: Administration) -> None:
        """Create missing accounts and topics, and set rights and parameters; existing accounts keep their passwords."""
        existing = {name.casefold() for name in admin.accounts()}
        for path, values in self.topics.items():
            parameters = dict(values)
            keywords = parameters.pop("keywords", ())
            admin.create_topic(path, keywords=keywords)
            if parameters:
                admin.set_parameters(path, **parameters)
        for account in self.accounts:
            if account.name.casefold() not in existing:
                admin.create_account(account.name, account.password, is_admin=account.is_admin, is_peer=account.is_peer)
            for path, rights in account.rights.items():
                admin.grant(account.name, path, rights)
        for path, rights in self.anyone.items():
            admin.grant(None, path, rights)


def _tables(found: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    tables = found.get(name, {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise SetupError(f"[{name}] must have tables, such as [{name}.NAME]")
    return list(tables.items())


def _only(table: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if unknown := set(table) - known:
        raise SetupError(f"keys of {where} must be {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")


def _account(name: str, table: Mapping[str, Any], path: Path) -> NewAccount:
    _only(table, ACCOUNT_KEYS, f"[accounts.{name}]")
    password = _password(table, path, f"[accounts.{name}]")
    rights = _rights(table.get("rights", {}), f"[accounts.{name}] rights")
    return NewAccount(name, password, _flag(table, "admin", name), _flag(table, "peer", name), rights)


def _flag(table: Mapping[str, Any], key: str, account: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise SetupError(f"[accounts.{account}] {key} must be true or false, got {value!r}")
    return value


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text that is not empty; the error does not repeat it, as it may be a password."""
    value = table[key]
    if not isinstance(value, str) or not value:
        raise SetupError(f"{where} {key} must be a text in quotes that is not empty")
    return value


def _password(table: Mapping[str, Any], path: Path, where: str) -> str:
    if ("password" in table) == ("password_file" in table):
        raise SetupError(f"{where} must have either a password or a password_file")
    if "password" in table:
        return _text(table, "password", where)
    file = path.parent / _text(table, "password_file", where)
    try:
        check_files(file)
        return file.read_text("utf-8-sig").partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise SetupError(f"{where}: the password_file cannot be read: {reason_of(error)}") from error
    except UnicodeDecodeError:
        raise SetupError(f"{where}: the password_file must be text in UTF-8") from None


def _rights(table: Any, where: str) -> dict[str, Right]:
    if not isinstance(table, dict):
        raise SetupError(f"{where} must be a table of topics, such as {{ '/news' = ['publish'] }}")
    out = {}
    for topic, names in table.items():
        try:
            out[topic] = Right(sum({int(Right[str(name).upper()]) for name in names}))
        except (KeyError, TypeError):
            known = ", ".join(str(right.name).lower() for right in [*Right, Right.ALL])
            raise SetupError(f"{where}: the rights at {topic!r} must be a list of {known}") from None
    return out


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Put the table into the error of a value in it."""
    try:
        yield
    except UsageError as error:
        raise SetupError(f"{where}: {error}") from None
    except RefusedError as error:
        raise SetupError(f"{where}: {error.why}") from None


def _topic(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    where = f"[topics.{name!r}]"
    _only(table, frozenset({"keywords", *PARAMETERS}) - {"kind"}, where)
    values = dict(table)
    keywords = values.pop("keywords", [])
    with _named(where):
        parse_topic(name, LENIENT)
        check_parameters(values)
        return values | {"keywords": parse_keywords(",".join(items(keywords, "keywords")))}


def _link(name: str, table: Mapping[str, Any], path: Path) -> Peer:
    where = f"[links.{name!r}]"
    _only(table, LINK_KEYS, where)
    if not (table.get("host") and table.get("account")):
        raise SetupError(f"{where} must have a host and an account")
    port = table.get("port", SERVER_PORT)
    if not is_count(port) or port > MAX_PORT:
        raise SetupError(f"{where} port must be a number from 1 to {MAX_PORT}, got {port!r}")
    with _named(where):
        topics = items(table.get("topics", ("*",)), "topics", "a list of topics")
        for each in topics:
            parse_topic(each, LENIENT, wildcard=True, everything=True)
    return Peer(
        context=name,
        host=_text(table, "host", where),
        port=port,
        account=_text(table, "account", where),
        password=_password(table, path, where),
        topics=topics,
    )
