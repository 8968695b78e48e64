"""The words of a line: separated by spaces, with backslashes and quotes, and lists in parentheses. No I/O.

Spec: SMQP 1.2 (implied white space, lists), 7 (string, quoted-string, special, keywords).
"""

from __future__ import annotations

import re
from typing import Final

from brokers.errors import UsageError
from brokers.smqp.protocol.replies import RefusedError, ReplyCode

BLANKS: Final = " \t"
SPECIAL: Final = frozenset('<>()[]\\.,;:@"') | {chr(octet) for octet in (*range(32), 127)}
NOT_IN_KEYWORDS: Final = frozenset("/\\,()") | {chr(octet) for octet in (*range(32), 127)}
CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MAX_KEYWORDS: Final = 1000


def bad(why: str) -> RefusedError:
    """Make a refusal with code 400."""
    return RefusedError(ReplyCode.BAD_REQUEST, why)


class Scanner:
    """Splits a line, from left to right."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._skip_blanks()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._line)

    def peek(self) -> str:
        """Return the next character without taking it; empty at the end."""
        return self._line[self._at : self._at + 1]

    def plain_word(self) -> str:
        """Take a word up to the next blank, unchanged and without reading quotes; empty at the end."""
        begin = self._at
        while self._at < len(self._line) and self._line[self._at] not in BLANKS:
            self._at += 1
        word = self._line[begin : self._at]
        self._skip_blanks()
        return word

    def word(self, what: str, *, special: bool = True) -> str:
        """Take a word or a quoted string, and undo its backslashes.

        Args:
            what: its meaning, for the error.
            special: whether it may have special characters without a backslash.

        Raises:
            RefusedError: 400: it is missing, its quotes do not end, or it has a character that is not allowed.
        """
        if self.is_at_end:
            raise bad(f"{what} is missing")
        quoted = self.peek() == '"'
        self._at += quoted
        out: list[str] = []
        while (found := self.peek()) and not (found == '"' if quoted else found in BLANKS):
            self._at += 1
            if found == "\\":
                found = self.peek()
                if not found:
                    raise bad(f"{what} must not end with a backslash, which quotes the character after it")
                self._at += 1
            elif not quoted and not special and found in SPECIAL:
                raise bad(f"{what} must have a backslash before {found!r}")
            out.append(found)
        if quoted:
            self._close_quotes(what)
        self._skip_blanks()
        if not out and not quoted:
            raise bad(f"{what} is missing")
        return "".join(out)

    def rest(self) -> str:
        """Take the rest of the line, without surrounding blanks and quotes."""
        text = self._line[self._at :].strip(BLANKS)
        self._at = len(self._line)
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = re.sub(r"\\(.)", r"\1", text[1:-1])
        return text

    def keywords(self) -> tuple[str, ...]:
        """Take a list of keywords, with or without parentheses; without them it ends before a `>`.

        Raises:
            RefusedError: 400.
        """
        if self.peek() == "(":
            end = self._line.find(")", self._at)
            if end < 0:
                raise bad("keywords must end with ')'")
            text = self._line[self._at + 1 : end]
            self._at = end + 1
        else:
            end = self._line.find(">", self._at)
            end = len(self._line) if end < 0 else end
            text = self._line[self._at : end]
            self._at = end
        self._skip_blanks()
        return tuple(map(_unquoted, parse_keywords(text)))

    def end(self) -> None:
        """Check that nothing is left.

        Raises:
            RefusedError: 400.
        """
        if not self.is_at_end:
            raise bad(f"the line must end here, got {self._line[self._at :][:80]!r}")

    def _close_quotes(self, what: str) -> None:
        if self.peek() != '"':
            raise bad(f"{what} must have a closing quote")
        self._at += 1
        if self.peek() not in ("", *BLANKS):
            raise bad(f"{what} must end with its closing quote")

    def _skip_blanks(self) -> None:
        while self._at < len(self._line) and self._line[self._at] in BLANKS:
            self._at += 1


def parse_keywords(text: str) -> tuple[str, ...]:
    """Read keywords separated by commas; empty ones are ignored.

    Raises:
        RefusedError: 400: a keyword has a character that is not allowed, or there are too many.
    """
    keywords = tuple(word for each in text.split(",") if (word := each.strip(BLANKS)))
    for keyword in keywords:
        if NOT_IN_KEYWORDS & set(keyword):
            raise bad(f"a keyword must not have slashes, backslashes, parentheses or controls, got {keyword!r}")
    if len(keywords) > MAX_KEYWORDS:
        raise bad(f"there must be at most {MAX_KEYWORDS} keywords")
    return keywords


def _unquoted(keyword: str) -> str:
    """Return a keyword without the quotes around it."""
    inside = keyword.removeprefix('"').removesuffix('"')
    if len(keyword) - len(inside) == 1 or not inside.strip(BLANKS):
        raise bad(f"a keyword in quotes must have both, and no comma between them, got {keyword[:80]!r}")
    return inside.strip(BLANKS)


def format_keywords(keywords: tuple[str, ...]) -> str:
    """Write keywords in parentheses."""
    return f"({','.join(keywords)})"


def quoted(word: str) -> str:
    """Write a word, with a backslash before special characters and blanks.

    Raises:
        UsageError: the word is empty, or has a line break.
    """
    if not word or any(octet in word for octet in "\r\n"):
        raise UsageError(f"a word of SMQP must not be empty or have a line break, got {word!r}")
    return "".join(f"\\{each}" if each in SPECIAL or each in BLANKS else each for each in word)


def text_of(line: bytes) -> str:
    """Decode a line and remove the blanks at its end.

    Raises:
        RefusedError: 400: the line is not UTF-8, or has control characters.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise bad("a line must be UTF-8") from None
    if CONTROL.search(text):
        raise bad("a line must not have control characters")
    return text.rstrip(BLANKS)
