"""The variants and parameters that the specifications name, and what their values look like.

Types and defaults of binding properties are in `properties.py`; here is only what a reader of a URI can see.

Spec: RFC 6167 4; SOAP/JMS 2.2.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

KNOWN_VARIANTS: Final = frozenset({"jndi", "queue", "topic"})
VENDOR_PREFIX: Final = "vnd."
VENDOR_VARIANT: Final = re.compile(r"vnd\.[^.]+\.[^.].*", re.DOTALL)
LONGEST_VARIANT: Final = 40
"""Characters that the registry of variants allows."""

JNDI_PREFIX: Final = "jndi-"
SAME_IN_JNDI: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jndi-java.naming.provider.url": "jndiURL",
        "jndi-java.naming.factory.initial": "jndiInitialContextFactory",
    }
)
"""Entries of the JNDI environment that have a parameter of their own."""


class Known(NamedTuple):
    """A parameter: what its value looks like, and the finding where it does not.

    Attributes:
        accepted: the value's form.
        code: the finding for another value.
        is_destination: the value names a destination.
    """

    accepted: re.Pattern[str]
    code: str
    is_destination: bool = False


_NAME: Final = re.compile(r".+", re.DOTALL)
# No repeated group, which remembers each word of a long value; possessive ones match wrongly before Python 3.11.5.
_CLASS: Final = re.compile(r"(?![\d.$])(?!.*\.(?:[\d.$]|\Z))[\w$.]+")

PARAMETERS: Final[Mapping[str, Known]] = MappingProxyType(
    {
        "deliveryMode": Known(re.compile(r"PERSISTENT|NON_PERSISTENT"), "deliveryMode"),
        "timeToLive": Known(re.compile(r"[0-9]+"), "timeToLive"),
        "priority": Known(re.compile(r"0*[0-9]"), "priority"),
        "replyToName": Known(_NAME, "emptyValue", is_destination=True),
        "topicReplyToName": Known(_NAME, "emptyValue", is_destination=True),
        "jndiConnectionFactoryName": Known(_NAME, "emptyValue"),
        "jndiInitialContextFactory": Known(_CLASS, "className"),
        "jndiURL": Known(re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:.*", re.DOTALL), "jndiUrl"),
        "targetService": Known(_NAME, "emptyValue"),
    }
)
IN_SMALL_LETTERS: Final = frozenset(name.lower() for name in PARAMETERS)
NUMBERS: Final = frozenset({"timeToLive", "priority"})


def fits_long(digits: str) -> bool:
    """Say whether a string of digits is a number below 2 to the 63."""
    significant = digits.lstrip("0")
    return len(significant) <= 19 and int(significant or "0") < 1 << 63


# Look-alikes

_ONE_SYSTEM: Final = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
)
"""Scripts that one writing system mixes: of Japan, Korea and China, with Latin words among them."""
_NO_SCRIPT: Final = frozenset({"", "MODIFIER", "FEMININE", "MASCULINE"})


def mixes_scripts(text: str) -> bool:
    """Say whether the letters of a text are of scripts that no writing system mixes.

    A letter's script is the first word of its Unicode name, so full-width and mathematical letters are scripts of
    their own: they too look like others.

    Spec: RFC 6167 8.4.
    """
    scripts = {unicodedata.name(each, "").partition(" ")[0] for each in set(text) if each.isalpha()} - _NO_SCRIPT
    return len(scripts) > 1 and not any(scripts <= system for system in _ONE_SYSTEM)
