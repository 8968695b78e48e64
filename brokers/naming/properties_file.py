"""Files of names: Java properties files, read as Java's `Properties.load` reads them, and TOML.

Only the file that the caller names is read, up to a limit. Properties files are parsed in linear time. A library was
tried, but took quadratic time for continued lines and differed from Java in corner cases such as a lone backslash.

Deviation: half of a surrogate pair in a properties file is refused, because it cannot be sent to a broker; Java keeps
it.

Deviation: a properties file that begins with UTF-8's byte order mark is read as UTF-8; Java would make the mark a
part of the first key.

Spec: java.util.Properties, load(Reader) and load(InputStream).
"""

from __future__ import annotations

import codecs
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from brokers.naming.errors import NamingError

MAX_FILE_OCTETS: Final = 1 << 20
"""Maximum size of a properties file, in octets or characters."""

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"(?:[^\\ \t\f:=]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[:=]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_CONTROLS: Final = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}


def read_properties(content: bytes | str) -> dict[str, str]:
    """Parse key-value pairs; the last value of a repeated key counts.

    Args:
        content: text; or octets in ISO-8859-1, as in Java, or in UTF-8 if they begin with its byte order mark.

    Raises:
        NamingError: there is a bad escape (the text has its line), more than MAX_FILE_OCTETS, or UTF-16.
    """
    if len(content) > MAX_FILE_OCTETS:
        raise NamingError(f"the properties must hold at most {MAX_FILE_OCTETS} octets, got {len(content)}")
    text = content if isinstance(content, str) else _decode(content)
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        found = _KEY.match(line)
        assert found is not None  # it matches the empty string too
        separator = _SEPARATOR.match(line, found.end())
        assert separator is not None
        entries[_unescape(found.group(), number)] = _unescape(line[separator.end() :], number)
    return entries


def _decode(octets: bytes) -> str:
    if octets.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NamingError("the properties must be ISO-8859-1, with \\uXXXX for other characters, got UTF-16")
    if not octets.startswith(codecs.BOM_UTF8):
        return octets.decode("iso-8859-1")
    try:
        return octets.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise NamingError(f"the properties begin as UTF-8, but are invalid at octet {error.start}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join continued lines, and skip comments and blank lines; yield each line with the number of its last part."""
    lines = _LINE_END.split(text)
    last = len(lines)
    if text.endswith(("\n", "\r")) and not text.endswith("\r\n"):
        last -= 1  # Java expects another line only after a line end of two characters
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        line = line.lstrip(_BLANKS)
        begins = not any(parts)  # a lone backslash begins nothing yet: a comment may still follow
        if begins and (not line or line[0] in "#!"):
            continue
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if continued else line)
        if not continued or number >= last:
            yield number, "".join(parts)
            parts = []
        elif begins and not parts[-1]:
            parts = []  # keeps the time linear for a file of lone backslashes


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return _joined(text, number)

    def replacement(found: re.Match[str]) -> str:
        escape = found.group(1)
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise NamingError(f"line {number}: \\u must be followed by four hexadecimal digits")
        return _CONTROLS.get(escape, escape)

    return _joined(_ESCAPE.sub(replacement, text), number)


def _joined(text: str, number: int) -> str:
    """Join surrogate pairs: Java's strings are UTF-16."""
    if not _SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise NamingError(f"line {number}: half of a surrogate pair is not a character") from None


MAX_TOML_OCTETS: Final = 1 << 17
"""Maximum size of a TOML file, in octets or characters."""

MAX_TOML_LINE_CHARACTERS: Final = 512
"""Maximum length of a line: Python's parser takes quadratic time for the keys in a line such as `a.a.a.a`."""

TABLES: Final = ("queues", "topics", "connection_factories", "allowed_brokers")


def content_of(path: str | PathLike[str] | None, text: bytes | str | None, limit: int) -> bytes | str:
    """Return the text, or the octets of the file.

    Raises:
        NamingError: both or neither are given, the file is not a regular file, or holds more than `limit` octets.
        OSError: the file cannot be read.
    """
    if (path is None) == (text is None):
        raise NamingError("give either the path of a file, or its text as text=…")
    if path is None:
        assert text is not None
        return text
    if Path(path).exists() and not Path(path).is_file():
        raise NamingError(f"{str(path)!r} is not a regular file")
    with Path(path).open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise NamingError(f"{str(path)!r} must hold at most {limit} octets, got more")
    return content


@contextmanager
def named(path: str | PathLike[str] | None) -> Iterator[None]:
    """Name the file in errors of its content; None for a text that is no file."""
    try:
        yield
    except NamingError as error:
        if path is None:
            raise
        raise NamingError(f"{fspath(path)}: {error}") from None


def read_toml(content: bytes | str) -> dict[str, Any]:
    """Parse the tables of names: `[queues]`, `[topics]`, `[connection_factories]`, `[allowed_brokers]`.

    Raises:
        NamingError: the content is not TOML, a table is unknown, or a value is not a string.
    """
    tables = _parse_toml(content)
    for name, table in tables.items():
        if name not in TABLES:
            raise NamingError(f"unknown table {name[:200]!r}; accepted are: {', '.join(TABLES)}")
        values = table.values() if isinstance(table, dict) else table
        if not (isinstance(table, dict) or (isinstance(table, list) and name == "allowed_brokers")):
            raise NamingError(f"{name} must be a table of names and strings")
        if not all(isinstance(value, str) for value in values):
            raise NamingError(f"all values in {name} must be strings")
    return tables


def _parse_toml(content: bytes | str) -> dict[str, Any]:
    if len(content) > MAX_TOML_OCTETS:
        raise NamingError(f"the TOML must hold at most {MAX_TOML_OCTETS} octets, got {len(content)}")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        if max(map(len, text.splitlines()), default=0) > MAX_TOML_LINE_CHARACTERS:
            raise NamingError(f"a line of the TOML must have at most {MAX_TOML_LINE_CHARACTERS} characters")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise NamingError(f"the TOML is not UTF-8 at octet {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise NamingError(f"the file is not valid TOML: {error}") from None
    except RecursionError:
        raise NamingError("the TOML is nested too deeply") from None
