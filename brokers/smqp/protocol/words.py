"""A line as words: spaces between them, backslash and quotes, lists in parentheses. No I/O.

Spec: SMQP 1.2 (implied white space, lists), 7 (string, quoted-string, special, keywords).
"""

from __future__ import annotations

import re
from typing import Final

from brokers.smqp.protocol.replies import RefusedError, ReplyCode

BLANKS: Final = " \t"
SPECIAL: Final = frozenset('<>()[]\\.,;:@"') | {chr(octet) for octet in (*range(32), 127)}
NOT_IN_KEYWORDS: Final = frozenset("/\\,()") | {chr(octet) for octet in (*range(32), 127)}
CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MAX_KEYWORDS: Final = 1000


def bad(why: str) -> RefusedError:
    """Make the refusal 400."""
    return RefusedError(ReplyCode.BAD_REQUEST, why)


class Scanner:
    """Takes a line apart, from left to right."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._skip_blanks()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._line)

    def peek(self) -> str:
        """Show the next character; empty at the end."""
        return self._line[self._at : self._at + 1]

    def plain_word(self) -> str:
        """Take a word up to the next blank as it stands, without reading quotes; empty at the end."""
        begin = self._at
        while self._at < len(self._line) and self._line[self._at] not in BLANKS:
            self._at += 1
        word = self._line[begin : self._at]
        self._skip_blanks()
        return word

    def word(self, what: str, *, special: bool = True) -> str:
        """Take a word or a quoted string, and undo its backslashes.

        Args:
            what: it is, for the error.
            special: it may hold special characters that no backslash stands before.

        Raises:
            RefusedError: 400: there is none, its quotes do not end, or it has a character that it may not have.
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
                    raise bad(f"{what} ends with a backslash, which quotes the character after it")
                self._at += 1
            elif not quoted and not special and found in SPECIAL:
                raise bad(f"{what} has {found!r}, which needs a backslash before it")
            out.append(found)
        if quoted:
            self._close_quotes(what)
        self._skip_blanks()
        if not out and not quoted:
            raise bad(f"{what} is missing")
        return "".join(out)

    def rest(self) -> str:
        """Take all that is left, without the blanks around it and quotes around the whole."""
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
                raise bad("keywords end with ')'")
            text = self._line[self._at + 1 : end]
            self._at = end + 1
        else:
            end = self._line.find(">", self._at)
            end = len(self._line) if end < 0 else end
            text = self._line[self._at : end]
            self._at = end
        self._skip_blanks()
        return parse_keywords(text)

    def end(self) -> None:
        """See that nothing is left.

        Raises:
            RefusedError: 400.
        """
        if not self.is_at_end:
            raise bad(f"nothing is expected here: {self._line[self._at :][:80]!r}")

    def _close_quotes(self, what: str) -> None:
        if self.peek() != '"':
            raise bad(f"{what} begins with a quote that does not end")
        self._at += 1
        if self.peek() not in ("", *BLANKS):
            raise bad(f"{what} goes on after its closing quote")

    def _skip_blanks(self) -> None:
        while self._at < len(self._line) and self._line[self._at] in BLANKS:
            self._at += 1


def parse_keywords(text: str) -> tuple[str, ...]:
    """Read keywords between commas; empty ones do not count.

    Raises:
        RefusedError: 400: one has a character that none may have, or there are too many.
    """
    keywords = tuple(word for each in text.split(",") if (word := each.strip(BLANKS)))
    for keyword in keywords:
        if NOT_IN_KEYWORDS & set(keyword):
            raise bad(f"a keyword holds no slash, backslash, comma, parenthesis or control character: {keyword!r}")
    if len(keywords) > MAX_KEYWORDS:
        raise bad(f"more than {MAX_KEYWORDS} keywords")
    return keywords


def format_keywords(keywords: tuple[str, ...]) -> str:
    """Write keywords in parentheses."""
    return f"({','.join(keywords)})"


def quoted(word: str) -> str:
    """Write a word with a backslash before what would not be taken as itself.

    Raises:
        ValueError: it is empty, or has a character that no line carries.
    """
    if not word or any(octet in word for octet in "\r\n"):
        raise ValueError(f"no word of SMQP: {word!r}")
    return "".join(f"\\{each}" if each in SPECIAL or each in BLANKS else each for each in word)


def text_of(line: bytes) -> str:
    """Decode a line and take the blanks from its end.

    Raises:
        RefusedError: 400: it is not UTF-8, or has control characters.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise bad("a line is UTF-8") from None
    if CONTROL.search(text):
        raise bad("a line has a control character")
    return text.rstrip(BLANKS)
