"""Reads files of names that the caller names, within a limit, and TOML."""

from __future__ import annotations

import tomllib
from os import PathLike
from pathlib import Path
from typing import Any, Final

from brokers.naming.errors import NamingError

MAX_TOML: Final = 1 << 17
"""Octets or characters of one file."""

MAX_TOML_LINE: Final = 512
"""Characters: Python's reader takes the square of the number of keys in a line, as in `a.a.a.a`."""

TABLES: Final = ("queues", "topics", "connection_factories", "allowed_brokers")


def content_of(path: str | PathLike[str] | None, text: bytes | str | None, limit: int) -> bytes | str:
    """Return the text, or the octets of the file.

    Raises:
        NamingError: both or none are given, it is no regular file, or it holds more than `limit` octets.
        OSError: the file cannot be read.
    """
    if (path is None) == (text is None):
        raise NamingError("give either the path of a file, or its text as text=…")
    if path is None:
        assert text is not None
        return text
    if Path(path).exists() and not Path(path).is_file():
        raise NamingError(f"{str(path)!r} is no file")
    with Path(path).open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise NamingError(f"{str(path)!r} holds more than the {limit} octets that are read")
    return content


def read_toml(content: bytes | str) -> dict[str, Any]:
    """Read the tables of names: `[queues]`, `[topics]`, `[connection_factories]`, `[allowed_brokers]`.

    Raises:
        NamingError: not TOML, another table, or a value that is no string.
    """
    tables = _parse_toml(content)
    for name, table in tables.items():
        if name not in TABLES:
            raise NamingError(f"there is no table {name[:200]!r}; accepted are: {', '.join(TABLES)}")
        values = table.values() if isinstance(table, dict) else table
        if not (isinstance(table, dict) or (isinstance(table, list) and name == "allowed_brokers")):
            raise NamingError(f"{name} is no table of names and strings")
        if not all(isinstance(value, str) for value in values):
            raise NamingError(f"the values in {name} are strings, all of them")
    return tables


def _parse_toml(content: bytes | str) -> dict[str, Any]:
    if len(content) > MAX_TOML:
        raise NamingError(f"the TOML holds {len(content)} octets; at most {MAX_TOML} are read")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        if max(map(len, text.splitlines()), default=0) > MAX_TOML_LINE:
            raise NamingError(f"a line of the TOML is longer than {MAX_TOML_LINE} characters")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise NamingError(f"the TOML is not UTF-8 at octet {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise NamingError(f"no TOML: {error}") from None
    except RecursionError:
        raise NamingError("the TOML is nested too deeply") from None
