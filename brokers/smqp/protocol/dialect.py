"""Where the draft contradicts itself or says nothing: what is read and written, as switches with names.

The draft has two revisions of its own within it: its grammar and its examples. `STRICT` reads what either allows and
writes what most examples show; `LENIENT` reads also what implementers of the examples would send.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class DateForm(StrEnum):
    """The three ways in which a date is written; all are read."""

    EXAMPLES = "mmddyyyy"
    GRAMMAR = "ddmmyyyy"
    ISO = "yyyymmdd"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmqpDialect:
    """How one side reads and writes.

    Attributes:
        bare_line_feeds: a line may end with LF alone (else CRLF only).
        wrong_lengths: a Content-Length that ends within a line is taken to mean that line's end.
        bare_login: a client is content with a 200 after PASS that has no attributes.
        remove_message: the command REMOVE MESSAGE of later revisions exists; without it messages go by time alone.
        unicode_topics: letters of topics may be any; else those of ASCII.
        dates: how dates are written, and which of day and month comes first where both could.
    """

    bare_line_feeds: bool = False
    wrong_lengths: bool = False
    bare_login: bool = False
    remove_message: bool = False
    unicode_topics: bool = False
    dates: DateForm = DateForm.EXAMPLES


STRICT: Final = SmqpDialect()
LENIENT: Final = SmqpDialect(
    bare_line_feeds=True, wrong_lengths=True, bare_login=True, remove_message=True, unicode_topics=True
)
