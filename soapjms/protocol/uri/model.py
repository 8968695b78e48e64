"""A parsed `jms:` URI, and the variants and parameters that the specifications name.

The form of each parameter's value is here, as a reader of a URI can check it; types and defaults of binding properties
are in `soapjms.protocol.properties`.

Spec: RFC 6167 3, 4; SOAP/JMS 2.2.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from brokers.redaction import without_login
from soapjms.protocol.uri.findings import Finding, Mode, Severity
from soapjms.protocol.uri.redact import REDACTED, holds_secret, is_secret_name, without_user_info

SHOWN_PLAIN: Final = "!$&'()*+,;=:@/"
"""Reserved characters that are shown without escapes in a URI whose login is hidden."""


class Parameter(NamedTuple):
    """One parameter: decoded name and value (None without `=`), its text in the URI, and the position of that text."""

    name: str
    value: str | None
    raw: str
    position: int

    @property
    def is_secret(self) -> bool:
        """True if the value looks like a secret and must not be shown."""
        return self.value is not None and (is_secret_name(self.name) or holds_secret(self.value))

    @property
    def shown_name(self) -> str:
        """The name, redacted if it looks like it contains a secret, as one whose `=` is escaped."""
        return REDACTED if holds_secret(self.name) else self.name

    @property
    def shown_value(self) -> str | None:
        """The value, redacted if it looks like a secret."""
        return REDACTED if self.is_secret else self.value

    def __repr__(self) -> str:
        return f"Parameter(name={self.shown_name!r}, value={self.shown_value!r}, position={self.position})"


@dataclass(frozen=True, slots=True, repr=False)
class JmsUri:
    """A parsed URI. Its parts are decoded; they are None if the URI is too broken to have them.

    A part that cannot be decoded (a bad escape, a bad character, octets that are not UTF-8) stays as it is written.

    Attributes:
        text: the URI as given.
        mode: the grammar that it was checked against.
        variant: the lookup variant (`jndi`, `queue`, `topic`, ...), case-sensitive.
        destination: the destination's name.
        parameters: all parameters in order, including repeats.
        findings: all findings, in order of position; at most `KEPT` of a kind.
        base: the URI without its query, as given.
    """

    text: str
    mode: Mode
    variant: str | None
    destination: str | None
    parameters: tuple[Parameter, ...]
    findings: tuple[Finding, ...]
    base: str

    @property
    def well_formed(self) -> bool:
        """True if the URI follows the grammar of the mode."""
        return all(finding.severity is not Severity.SYNTAX for finding in self.findings)

    @property
    def valid(self) -> bool:
        """True if the URI is well-formed and breaks no MUST on values or combinations."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def redacted(self) -> str:
        """The URI as given, with `***` in place of apparent secrets."""
        pieces, end = [self.redacted_base], len(self.base)
        for each in self.parameters:
            is_named = each.shown_name == each.name
            if each.is_secret or not is_named:
                shown = each.raw.index("=") + 1 if is_named else 0
                pieces += [self.text[end : each.position + shown], REDACTED]
                end = each.position + len(each.raw)
        redacted = "".join([*pieces, self.text[end:]])
        is_ours = redacted[:4].lower() == "jms:"
        return without_user_info(redacted) if is_ours else without_login(redacted)  # perhaps the URL of a broker

    @property
    def redacted_base(self) -> str:
        """The URI as given without its query, with `***` for user and password of a URL in it, even an escaped one."""
        hidden = without_user_info(self.base)
        if hidden != self.base:
            return hidden
        decoded = unquote(self.base)
        hidden = without_user_info(decoded)
        return self.base if hidden == decoded else quote(hidden, safe=SHOWN_PLAIN)

    def __repr__(self) -> str:
        return f"JmsUri({self.redacted!r}, {self.mode.value!r})"

    def value(self, name: str) -> str | None:
        """Return the value of a parameter, or None; if it is repeated, the last one counts (Protocol-2002)."""
        for parameter in reversed(self.parameters):
            if parameter.name == name:
                return parameter.value
        return None

    def effective(self) -> Mapping[str, str]:
        """Return the effective parameters: the last of each name, without those that have no value."""
        last = {each.name: each.value for each in self.parameters}
        return {name: value for name, value in last.items() if value is not None}

    def without(self, excluded: Iterable[str]) -> str:
        """Return the URI without the named parameters (`jndi-` stands for the whole family); the rest is not decoded.

        If no parameter is left, there is no `?` either.
        """
        names = frozenset(excluded)
        family = "jndi-" if "jndi-" in names else None
        kept = [each.raw for each in self.parameters if each.name not in names and each.name[:5] != family]
        return f"{self.base}?{'&'.join(kept)}" if kept else self.base


KNOWN_VARIANTS: Final = frozenset({"jndi", "queue", "topic"})
VENDOR_PREFIX: Final = "vnd."
VENDOR_VARIANT: Final = re.compile(r"vnd\.[^.]+\.[^.].*", re.DOTALL)
MAX_VARIANT_CHARACTERS: Final = 40
"""Longest name that the registry of variants allows, in characters."""

JNDI_PREFIX: Final = "jndi-"
SAME_IN_JNDI: Final[Mapping[str, str]] = MappingProxyType(
    {
        "jndi-java.naming.provider.url": "jndiURL",
        "jndi-java.naming.factory.initial": "jndiInitialContextFactory",
    }
)
"""Entries of the JNDI environment that also have their own parameter."""


class KnownParameter(NamedTuple):
    """A parameter: the form of its value, and the finding for any other value.

    Attributes:
        accepted: the form of the value.
        code: the code of the finding for any other value.
        is_destination: True if the value names a destination.
    """

    accepted: re.Pattern[str]
    code: str
    is_destination: bool = False


_NAME: Final = re.compile(r".+", re.DOTALL)
# No repeated group, which stores each word of a long value; possessive ones match wrongly before Python 3.11.5.
_CLASS: Final = re.compile(r"(?![\d.$])(?!.*\.(?:[\d.$]|\Z))[\w$.]+")

PARAMETERS: Final[Mapping[str, KnownParameter]] = MappingProxyType(
    {
        "deliveryMode": KnownParameter(re.compile(r"PERSISTENT|NON_PERSISTENT"), "deliveryMode"),
        "timeToLive": KnownParameter(re.compile(r"[0-9]+"), "timeToLive"),
        "priority": KnownParameter(re.compile(r"0*[0-9]"), "priority"),
        "replyToName": KnownParameter(_NAME, "emptyValue", is_destination=True),
        "topicReplyToName": KnownParameter(_NAME, "emptyValue", is_destination=True),
        "jndiConnectionFactoryName": KnownParameter(_NAME, "emptyValue"),
        "jndiInitialContextFactory": KnownParameter(_CLASS, "className"),
        "jndiURL": KnownParameter(re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:.*", re.DOTALL), "jndiUrl"),
        "targetService": KnownParameter(_NAME, "emptyValue"),
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
"""Scripts that one writing system mixes: those of Japan, Korea and China, with Latin words."""
_NO_SCRIPT: Final = frozenset({"", "MODIFIER", "FEMININE", "MASCULINE"})


def mixes_scripts(text: str) -> bool:
    """Say whether the letters of a text are of scripts that no writing system mixes.

    A letter's script is the first word of its Unicode name, so full-width and mathematical letters count as separate
    scripts: they too look like other letters.

    Spec: RFC 6167 8.4.
    """
    scripts = {unicodedata.name(each, "").partition(" ")[0] for each in set(text) if each.isalpha()} - _NO_SCRIPT
    return len(scripts) > 1 and not any(scripts <= system for system in _ONE_SYSTEM)
