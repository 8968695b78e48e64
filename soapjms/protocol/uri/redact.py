"""Redaction of a URI that is shown: no secrets, no control characters for a terminal, no endless texts.

The words of names that look like secrets are those of `brokers.redaction`, which hides them in other places; the rule
behind it is the specification's.

Spec: RFC 6167 4.4, 8.4.
"""

from __future__ import annotations

import re
from typing import Final

from brokers.redaction import CONFIDENTIAL_WORDS, HIDDEN, without_logins_of_words

REDACTED: Final = HIDDEN
MAX_SHOWN_CHARACTERS: Final = 80
"""Longest quotation of a URI's text in a finding, in characters."""

# A word ends where no small letter follows: `accessToken` and `token.1` name a secret, `tokenizer` does not.
_SECRET_WORD: Final = re.compile(rf"(?i:{CONFIDENTIAL_WORDS})s?(?![a-z])|(?i:(?:^|[-_.])(?:user|login)$)")


def is_secret_name(name: str) -> bool:
    """Say whether a parameter's name looks like that of a secret."""
    return _SECRET_WORD.search(name) is not None


def holds_secret(value: str) -> bool:
    """Say whether a value appears to contain a secret, such as `tcp://user:password@host` or `a;password=b`."""
    return without_user_info(value) != value or ("=" in value and _SECRET_WORD.search(value) is not None)


def without_user_info(text: str) -> str:
    """Redact the text between `://` and `@`, and text that appears to lack its `@`."""
    return without_logins_of_words(text)


def quoted(text: str) -> str:
    """Quote a text for a finding: cut if it is long, control and invisible characters as escapes."""
    return repr(text) if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]!r}…"
