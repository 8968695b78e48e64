"""Python source from names and texts of a WSDL: identifiers, literals and docstrings, whatever the WSDL holds."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from keyword import iskeyword
from typing import Final

LINE_LENGTH: Final = 120
MAX_DOCUMENTATION_CHARACTERS: Final = 4000

_WORD_ENDS: Final = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=\d)(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD: Final = re.compile(r"[\W_]+")


def _words(name: str) -> list[str]:
    """Split a name into words: at signs, and where an upper-case letter begins a word."""
    parts = _NO_WORD.split(_WORD_ENDS.sub("_", unicodedata.normalize("NFKC", name)))
    return [each for each in parts if each]


def snake_case(name: str) -> str:
    """Return a name for functions and arguments, as in `greet_me`."""
    return _identifier("_".join(_words(name)).lower(), "value")


def pascal_case(name: str) -> str:
    """Return a name for classes, as in `GreetMe`."""
    return _identifier("".join(each[0].upper() + each[1:] for each in _words(name)), "Value")


def _identifier(text: str, prefix: str) -> str:
    for each in (text, f"{prefix}_{text}"):
        normal = unicodedata.normalize("NFKC", each)
        if normal.isidentifier():
            return normal
    return prefix


def unique(name: str, taken: set[str]) -> str:
    """Return a name with as many underscores as it needs to be no keyword and not taken, and take it."""
    while name in taken or iskeyword(name):
        name += "_"
    taken.add(name)
    return name


def literal(value: str | None) -> str:
    """Return the literal of a text, or of None."""
    if value is None or not value.isprintable() or "\\" in value or '"' in value:
        return ascii(value)
    return f'"{value}"'


def docstring(paragraphs: Iterable[str], indent: int) -> list[str]:
    """Return the lines of a docstring, without an indent; white space and long lines are wrapped.

    Args:
        paragraphs: the texts; empty ones are left out.
        indent: the number of spaces that the lines will get.
    """
    plain = [each for each in map(_plain, paragraphs) if each]
    first, *others = plain
    if not others and len(first) <= LINE_LENGTH - indent - 6:
        return [f'"""{first}"""']
    lines = textwrap.wrap(f'"""{first}', LINE_LENGTH - indent)
    for each in others:
        lines += ["", *textwrap.wrap(each, LINE_LENGTH - indent)]
    return [*lines, '"""']


def _plain(text: str) -> str:
    """Return a text that neither ends a docstring nor escapes anything in it."""
    shown = "".join(each if each.isprintable() else " " for each in text[:MAX_DOCUMENTATION_CHARACTERS])
    words = " ".join(shown.split()).replace("\\", "/").replace('"', "'")
    return words if not words or words.endswith((".", "!", "?", ":", ")")) else f"{words}."


def call(opening: str, arguments: Sequence[str], closing: str, indent: int) -> list[str]:
    """Return the lines of a call or signature: one if it fits, else one for each argument.

    Args:
        opening: what stands before the arguments, with the bracket.
        arguments: the arguments.
        closing: what stands behind them, with the bracket.
        indent: the number of spaces that the lines will get.
    """
    line = f"{opening}{', '.join(arguments)}{closing}"
    if len(line) + indent <= LINE_LENGTH:
        return [line]
    return [opening, *(f"    {each}," for each in arguments), closing]
