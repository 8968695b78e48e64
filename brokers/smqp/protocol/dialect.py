"""Named switches for reading and writing where the draft contradicts itself or says nothing.

The draft describes two protocols: its grammar and its examples differ. `STRICT` reads what either allows and writes
what most examples show; `LENIENT` also reads what implementers of the examples would send.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class DateForm(StrEnum):
    """The three forms of dates; all of them are read."""

    EXAMPLES = "mmddyyyy"
    GRAMMAR = "ddmmyyyy"
    ISO = "yyyymmdd"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmqpDialect:
    """The way in which one side reads and writes.

    Attributes:
        bare_line_feeds: whether a line may end with LF alone, instead of CRLF only.
        wrong_lengths: whether a Content-Length that ends within a line means the end of that line.
        bare_login: whether a client accepts a 200 after PASS without attributes.
        remove_message: whether the command REMOVE MESSAGE of later revisions exists; without it messages only expire.
        unicode_topics: whether topics may have any letters, instead of ASCII letters only.
        dates: the form in which dates are written, which also decides between day and month in ambiguous dates.
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
