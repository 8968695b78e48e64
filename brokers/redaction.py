"""Safe forms of foreign text: a URL without its login, a line without characters that a terminal would act on.

Every text that repeats a URL (errors, logs, output) uses these functions. They take linear time, because a peer may
have written the text.
"""

from __future__ import annotations

import re
from typing import Final

from brokers.events.visible import visible as visible

HIDDEN: Final = "***"
MAX_URL_CHARACTERS: Final = 100
"""Maximum number of characters of a URL that a text repeats."""

_PASSWORDS: Final = r"passw(?:or[dt]|d)?|pass[-_.]?(?:word|wort|wd|phrase|code)|pwd"
CONFIDENTIAL_WORDS: Final = (
    rf"{_PASSWORDS}|credential|secret|token|bearer|cookie|jwt|authori[sz]ation"
    r"|user[-_.]?name|principal(?:[-_.]?(?:id|name)|s?(?![-_.]?[A-Za-z]))|(?<![A-Za-z])x[-_.]?auth"
    r"|(?:api|access|private)[-_.]?key|session[-_.]?id"
    r"|(?<![A-Za-z])(?:otp|pin)(?:code|block|(?![A-Za-z]))|(?-i:(?<=[a-z])(?:Otp|OTP|Pin|PIN)(?![a-z]))"
)
"""Pattern of words in the names of secrets, in any capitalisation; `smsOtp` and `cardPin` by their capital letter."""

SECRET: Final = re.compile(f"(?i){CONFIDENTIAL_WORDS}")
"""Matches names of entries whose values must not be shown; rather too many, such as `tokenizer`, than too few."""

PASSWORD_NAME: Final = (
    rf"(?i:(?=[^\s<>/:=&;\"']*?(?>{_PASSWORDS})s?+[-_.]?+"
    r"(?!expir|validity|polic|rule|length|min|max|age|day|date|last|changed|required|enabled|strength|status|type|count"
    r"|attempt|history)))[^\s<>/:=&;\"']++"
)
"""Pattern of local names in XML that hold a word for a password, unless the next word tells something about it:
`NewPassword` and `passwordConfirmation`, but not `passwordExpiryDays`."""

LOGIN_IN_URL: Final = r"://(?![^\s/?#@<>\"':&]*+(?::\d{1,5})?+&)[^\s/?#<>\"']*@"
"""Pattern of user and password of a URL in a document, with the marks on both sides. Unlike `without_logins`, it leaves
an `@` in the path, and in what follows the URL; `&` after a port separates parameters of a `jms:` URI."""

_HEAD: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://)?|//")
_AUTHORITY: Final = re.compile(r"[^/?#]*")
_MARK: Final = re.compile(r":/+")  # a path that was a URL has one slash
# A port is up to five digits, or PORT in examples; the authority, or the surrounding words, end after it.
_NO_PORT: Final = r":(?!(?:\d{1,5}|PORT)(?:[^\w:]|$|:\s))"
_EXAMPLE: Final = "://USER:PASSWORD@"
_LOGIN_WITHOUT_END: Final = re.compile(_NO_PORT)
_SCHEME_OR_IPV6: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|\[[0-9A-Fa-f:.]+\]")
_LOGIN_IN_TEXT: Final = re.compile(rf"(:/+)[^/?#@:\[\s]*{_NO_PORT}[^\s&]*")
_LOGIN_OF_WORD: Final = re.compile(rf"(://)[^/?#@:\[\s]*{_NO_PORT}[^\s&]*")
_OPTIONS: Final = re.compile(r"[?;&#]")
_WORD: Final = re.compile(r"[^&\s]+")


def without_login(url: str) -> str:
    """Return a URL with `***` for its user and password.

    The login is everything before the last `@`. Without an `@`, a text after a colon that is not a port number counts
    as a login too, as in `stomp://USER:PASSWORD` without a host.
    """
    head = _HEAD.match(url)
    begin = url[: head.end()] if head and (head[0].endswith("/") or "@" not in url) else ""
    rest = _before_last_at(url[len(begin) :])
    authority = _AUTHORITY.match(_SCHEME_OR_IPV6.sub("", rest))
    assert authority is not None, "it may be empty"
    return begin + (HIDDEN if _LOGIN_WITHOUT_END.search(authority[0]) else rest)


def shown(url: str) -> str:
    """Return a URL for a text, in quotes and shortened, without login, options and terminal control characters."""
    return repr(_OPTIONS.split(without_login(url), maxsplit=1)[0][:MAX_URL_CHARACTERS])


def without_logins(text: str) -> str:
    """Return a text, such as an error of another library, with `***` for user and password of the URLs in it.

    This rather hides too much than too little: everything from the first `://` to the last `@`, because a password may
    contain blanks.
    """
    return _EXAMPLE.join(map(_without_logins, text.split(_EXAMPLE)))


def _without_logins(text: str) -> str:
    mark = _MARK.search(text)
    if mark is None:
        return text
    hidden = text[: mark.end()] + _before_last_at(text[mark.end() :])
    return _LOGIN_IN_TEXT.sub(rf"\g<1>{HIDDEN}", hidden)


def without_logins_of_words(text: str) -> str:
    """Return a text whose URLs are words or parameters, as in a `jms:` URI, with `***` for user and password."""
    if "://" not in text:
        return text
    return _LOGIN_OF_WORD.sub(rf"\g<1>{HIDDEN}", _WORD.sub(lambda found: _without_login_of_word(found[0]), text))


def _without_login_of_word(word: str) -> str:
    begin, mark, rest = word.partition("://")
    return begin + mark + _before_last_at(rest)


def _before_last_at(text: str) -> str:
    at = text.rfind("@")
    return text if at == -1 else HIDDEN + text[at:]
