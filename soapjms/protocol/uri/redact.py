"""What of a URI may be shown: no secrets, nothing that a terminal acts on, nothing endless.

The names that look like secrets are our own list; the rule behind it is the specification's.

Spec: RFC 6167 4.4, 8.4.
"""

from __future__ import annotations

import re
from typing import Final

from brokers.redaction import HIDDEN, without_logins_of_words

REDACTED: Final = HIDDEN
MAX_SHOWN_CHARACTERS: Final = 80
"""Characters of what was seen that a text repeats."""

# A word is over where no small letter follows: `accessToken` and `token.1` hold a secret, `tokenizer` does not.
_SECRET_WORD: Final = re.compile(
    r"(?:(?i:pass[-_.]?(?:word|wd|phrase|code)|pwd|secret|credential|token|(?:api|access|private)[-_.]?key"
    r"|authori[sz]ation|user[-_.]?name))s?(?![a-z])|(?i:(?:^|[-_.])(?:user|login|principal)$)"
)


def is_secret_name(name: str) -> bool:
    """Say whether a parameter's name looks like that of a secret."""
    return _SECRET_WORD.search(name) is not None


def holds_secret(value: str) -> bool:
    """Say whether a value looks as if a secret stood in it: `tcp://user:password@host`, `a;password=b`."""
    return without_user_info(value) != value or ("=" in value and _SECRET_WORD.search(value) is not None)


def without_user_info(text: str) -> str:
    """Redact what stands between `://` and `@`, and what should have an `@` behind it."""
    return without_logins_of_words(text)


def quoted(text: str) -> str:
    """Quote what was seen for a finding's text: cut if long, control and invisible characters as escapes."""
    return repr(text) if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]!r}…"
