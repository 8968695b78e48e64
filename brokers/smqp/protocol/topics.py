"""Topics and wildcards: their syntax, their hierarchy, and the topics that a wildcard covers. No I/O.

Spec: SMQP 2.2, 2.2.1, 4.1.2, 4.1.10.1, 7. They contradict each other about the characters of a topic; here a segment
is a letter followed by letters, digits, `_` and `-`.
"""

from __future__ import annotations

import re
from typing import Final

from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.replies import RefusedError, ReplyCode

ROOT: Final = "/"
ANY: Final = "*"
TRASH: Final = "Trash"
TRASH_FOLDED: Final = "trash"
ASCII_SEGMENT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
UNICODE_SEGMENT: Final = re.compile(r"[^\W\d_][\w-]*")


def parse_topic(
    text: str, dialect: SmqpDialect = STRICT, *, root: bool = False, wildcard: bool = False, everything: bool = False
) -> str:
    """Check a topic, and return it as spelled.

    Args:
        text: the topic in a command.
        dialect: decides which letters are allowed.
        root: whether `/` is allowed.
        wildcard: whether `*` may stand for a segment.
        everything: whether `*` may stand alone.

    Raises:
        RefusedError: 400.
    """
    if text == ROOT and root:
        return text
    if text == ANY and everything:
        return text
    segment = UNICODE_SEGMENT if dialect.unicode_topics else ASCII_SEGMENT
    parts = text.split("/")
    if parts[0] or len(parts) < 2:
        raise RefusedError(ReplyCode.BAD_REQUEST, f"a topic must begin with '/', got {text[:80]!r}")
    for part in parts[1:]:
        if not (segment.fullmatch(part) or (wildcard and part == ANY)):
            why = f"a part of a topic must be a letter, then letters, digits, '_' and '-', got {part[:80]!r}"
            raise RefusedError(ReplyCode.BAD_REQUEST, why)
    return text


def fold(topic: str) -> str:
    """Return a topic in a form that is equal for topics that differ only in case."""
    return topic.casefold()


def parent(topic: str) -> str:
    """Return the topic above; `/` for a topic of the first level."""
    return topic.rpartition("/")[0] or ROOT


def parents(topic: str) -> list[str]:
    """Return the topics above, from the first level down."""
    parts = topic.split("/")[1:-1]
    return ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]


def is_below(topic: str, above: str) -> bool:
    """Say whether a folded topic is below another at any depth; all are below `/`."""
    return topic.startswith(above if above == ROOT else above + "/")


def child(above: str, name: str) -> str:
    """Return the path of the topic `name` below another."""
    return f"/{name}" if above == ROOT else f"{above}/{name}"


def split_trash(topic: str) -> tuple[str, bool]:
    """Return the topic without a last part Trash, and whether it had that part."""
    head, _, last = topic.rpartition("/")
    return (head, True) if fold(last) == TRASH_FOLDED and head else (topic, False)


def has_trash(topic: str) -> bool:
    """Say whether any part of a topic is the reserved name Trash."""
    return TRASH_FOLDED in fold(topic).split("/")


def is_wildcard(topic: str) -> bool:
    """Say whether a topic has a wildcard."""
    return ANY in topic.split("/")


def base(pattern: str) -> str:
    """Return the topic before the first `*` of a wildcard."""
    if pattern == ANY:
        return ROOT
    before = pattern.split("/")
    return "/".join(before[: before.index(ANY)]) or ROOT if ANY in before else pattern


def covers(pattern: str, topic: str, *, itself: bool = False) -> bool:
    """Say whether a folded pattern covers a folded topic.

    A `*` at the end stands for one or more levels, any other for exactly one; alone it covers everything.

    Args:
        pattern: a topic, with or without wildcards.
        topic: a topic without wildcards.
        itself: whether `/a/*` covers `/a` too, as in subscriptions to topics.
    """
    if pattern in (topic, ANY):
        return True
    wanted, seen = pattern.split("/"), topic.split("/")
    if ANY not in wanted:
        return False
    if wanted[-1] == ANY:
        wanted = wanted[:-1]
        if not (len(seen) > len(wanted) or (itself and len(seen) == len(wanted))):
            return False
        seen = seen[: len(wanted)]
    return len(wanted) == len(seen) and all(left in (ANY, right) for left, right in zip(wanted, seen, strict=True))


def covers_all_of(wide: str, narrow: str, *, itself: bool = False) -> bool:
    """Say whether the folded pattern `wide` covers everything that `narrow` covers."""
    if wide in (narrow, ANY):
        return True
    if narrow == ANY:
        return False
    if not narrow.endswith("/*"):
        return covers(wide, narrow, itself=itself)
    if not wide.endswith("/*"):
        return False
    return covers(wide, narrow.removesuffix("/*") if itself else narrow, itself=itself)


def moved(pattern: str, old: str, new: str) -> str | None:
    """Return the new form of a pattern when the topic `old` is renamed `new`, or None if it does not change."""
    if fold(pattern) == fold(old):
        return new
    if not is_below(fold(pattern), fold(old)):
        return None
    return "/".join([new, *pattern.split("/")[old.count("/") + 1 :]])


def segment_for(name: str) -> str:
    """Turn any text into one segment: lower-case letters, digits and '-' stay, other octets become `_` and hex digits.

    Different texts have different segments.
    """
    out = [
        chr(octet) if chr(octet) in "abcdefghijklmnopqrstuvwxyz0123456789-" else f"_{octet:02x}"
        for octet in name.encode()
    ]
    text = "".join(out)
    return text if text[:1].isalpha() else f"x__{text}"
