"""`jms:` URIs: parse, judge and write, in the modes strict (RFC 6167), draft-03 and lenient.

What is wrong with a URI is a list of findings, never an exception and never a guess. Each kind of finding is a row of
`FINDINGS`, which says for each mode whether it breaks the grammar, breaks a MUST on values, or is only worth a note.
Nothing here looks a name up or connects.

Spec: RFC 6167 sections 3 to 5; draft-merrick-jms-uri-03 sections 3 to 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from soapjms.protocol.errors import InvalidUriError


class Mode(StrEnum):
    """Which grammar a URI is held to."""

    STRICT = "strict"
    DRAFT_03 = "draft-03"
    LENIENT = "lenient"


class Severity(StrEnum):
    """What a finding does to the URI it is about."""

    SYNTAX = "syntax"  # not well-formed
    VALUE = "value"  # well-formed, not valid
    NOTE = "note"  # worth saying


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth saying about a URI.

    Attributes:
        code: the row of `FINDINGS`.
        text: what was seen, and the rule.
        position: index of the first character it is about.
        severity: what it does in the mode of the parse.
    """

    code: str
    text: str
    position: int
    severity: Severity


class Parameter(NamedTuple):
    """One parameter: decoded name and value (None without `=`), its text in the URI, and where that begins."""

    name: str
    value: str | None
    raw: str
    position: int


@dataclass(frozen=True, slots=True)
class JmsUri:
    """A URI as it was read. Parts are decoded; they are None where the URI is too broken to have them.

    Attributes:
        text: the URI as given.
        mode: the grammar it was held to.
        variant: the lookup variant (`jndi`, `queue`, `topic`, ...), case-sensitive.
        destination: the destination's name.
        parameters: all of them, in order, repeats included.
        findings: everything worth saying, in order of position.
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
        """True if the grammar of the mode holds."""
        return all(finding.severity is not Severity.SYNTAX for finding in self.findings)

    @property
    def valid(self) -> bool:
        """True if it is well-formed and no MUST on values or combinations is broken."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def value(self, name: str) -> str | None:
        """Return the value of a parameter, of its last occurrence if it is repeated (Protocol-2002), else None."""
        for parameter in reversed(self.parameters):
            if parameter.name == name:
                return parameter.value
        return None

    def effective(self) -> Mapping[str, str]:
        """Return the parameters that count: the last of each name, those without a value left out."""
        last = {each.name: each.value for each in self.parameters}
        return {name: value for name, value in last.items() if value is not None}

    def without(self, excluded: Iterable[str]) -> str:
        """Return the URI without the parameters named (`jndi-` stands for the whole family), the rest undecoded.

        No parameter left means no `?`.
        """
        names = frozenset(excluded)
        family = "jndi-" if "jndi-" in names else None
        kept = [each.raw for each in self.parameters if each.name not in names and each.name[:5] != family]
        return f"{self.base}?{'&'.join(kept)}" if kept else self.base


# The kinds of finding: what to say, and what each mode makes of it

_S, _V, _N = Severity.SYNTAX, Severity.VALUE, Severity.NOTE


class _Row(NamedTuple):
    text: str
    strict: Severity | None
    draft: Severity | None
    lenient: Severity | None


FINDINGS: Final[Mapping[str, _Row]] = MappingProxyType(
    {
        "wrongScheme": _Row("the scheme is {seen!r}; a JMS URI begins with jms:", _S, _S, _S),
        "schemeCase": _Row("the scheme is written {seen!r}; write it jms:", _N, _N, _N),
        "fragment": _Row("a fragment (#) is not part of a JMS URI", _S, _S, _S),
        "badEscape": _Row("{seen!r} is no escape; % is followed by two hexadecimal digits", _S, _S, _S),
        "badCharacter": _Row("{seen!r} may not stand in a URI; write it as UTF-8 octets, each escaped", _S, _S, _S),
        "escapeNotUtf8": _Row("the escapes in {seen!r} are not UTF-8", _S, _N, _S),
        "noVariant": _Row("no second colon; a JMS URI is jms:variant:destination", _S, _S, _S),
        "emptyVariant": _Row("the variant is empty; it is jndi, queue, topic or another name", _S, _S, _S),
        "slashInVariant": _Row("the variant {seen!r} holds a slash", _S, _S, _S),
        "escapedVariant": _Row("the variant {seen!r} holds escapes that are not needed", _N, _N, _N),
        "unknownVariant": _Row("the variant {seen!r} is none of jndi, queue, topic (case counts)", _N, _N, _N),
        "longVariant": _Row("the variant {seen!r} has more than the 40 characters that may be registered", _N, _N, _N),
        "emptyDestination": _Row("the destination is empty", _S, _S, _S),
        "leadingSlash": _Row("the destination begins with a slash", _S, _S, _S),
        "slashInDestination": _Row("the destination holds a slash; RFC 6167 wants %2F", _S, None, _N),
        "rawAmpersand": _Row("the destination holds a plain &; it must be %26", _V, _V, _N),
        "rawColon": _Row("the destination holds a plain colon; it should be %3A", _N, _N, _N),
        "notAscii": _Row("the destination {seen!r} holds characters beyond ASCII: mind look-alikes", _N, _N, _N),
        "emptyQuery": _Row("nothing follows the ?", _S, _S, _N),
        "emptyParameter": _Row("an empty parameter between two &", _S, _S, _N),
        "noValue": _Row("the parameter {seen!r} has no =", _S, _S, _N),
        "emptyName": _Row("a parameter has no name", _S, _S, _S),
        "parameterCharacter": _Row("the parameter {seen!r} holds a character that must be escaped there", _S, _S, _N),
        "repeated": _Row("the parameter {seen!r} is repeated; the last one counts", _N, _N, _N),
        "deliveryMode": _Row("deliveryMode is {seen!r}; it is PERSISTENT or NON_PERSISTENT", _V, _V, _N),
        "timeToLive": _Row("timeToLive is {seen!r}; it is milliseconds, digits only, below 2 to the 63", _V, _V, _N),
        "priority": _Row("priority is {seen!r}; it is 0 to 9", _V, _V, _N),
        "leadingZeros": _Row("the number {seen!r} has leading zeros", _N, _N, _N),
        "bothReplyNames": _Row("replyToName and topicReplyToName exclude each other", _V, _V, _N),
        "topicReplyWithJndi": _Row("topicReplyToName means nothing with the variant jndi and is ignored", _N, _N, _N),
        "emptyJndiName": _Row("jndi- is followed by no name; the parameter is ignored", _N, _N, _N),
        "secret": _Row("the parameter {seen!r} looks like a secret; a URI must not carry one", _V, _V, _N),
    }
)

KNOWN_VARIANTS: Final = frozenset({"jndi", "queue", "topic"})
_SECRETS: Final = re.compile(r"(?i)password|passwd|credential|secret|token|username|principal")
_NOT_URI: Final = re.compile(r"[^A-Za-z0-9\-._~%!$&'()*+,;=:@/?#]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})[^%]{0,2}")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_IN_PARAMETER: Final = re.compile(r"[^A-Za-z0-9\-._~%]")


class _Reader:
    """Collects the findings of one parse, with the severity that the mode gives them."""

    def __init__(self, text: str, mode: Mode) -> None:
        self.text = text
        self.column = ("strict", "draft", "lenient")[list(Mode).index(mode)]
        self.findings: list[Finding] = []

    def note(self, code: str, position: int, seen: str = "") -> None:
        row = FINDINGS[code]
        severity: Severity | None = getattr(row, self.column)
        if severity is not None:
            self.findings.append(Finding(code, row.text.format(seen=seen), position, severity))

    def decode(self, raw: str, position: int) -> str:
        if "%" not in raw:
            return raw
        octets = unquote_to_bytes(raw.encode("utf-8", "surrogatepass"))
        try:
            return octets.decode("utf-8")
        except UnicodeDecodeError:
            self.note("escapeNotUtf8", position, raw)
            return octets.decode("utf-8", "backslashreplace")


@lru_cache(maxsize=4096)
def parse(text: str, mode: Mode = Mode.LENIENT) -> JmsUri:
    """Read a JMS URI. Never raises: what is wrong is in `findings`.

    Spec: RFC 6167 3; draft-03 3.
    """
    reader = _Reader(text, mode)
    _check_characters(reader)
    base, question, query = text.partition("?")
    variant, destination = _read_base(reader, base)
    parameters = tuple(_read_query(reader, query, len(base) + 1))
    if question and not query:
        reader.note("emptyQuery", len(base))
    _check_names(reader, variant, parameters)
    _check_values(reader, parameters)
    findings = tuple(sorted(reader.findings, key=lambda finding: finding.position))
    return JmsUri(text, mode, variant, destination, parameters, findings, base)


def _check_characters(reader: _Reader) -> None:
    text = reader.text
    if (hash_sign := text.find("#")) >= 0:
        reader.note("fragment", hash_sign)
    for found in _NOT_URI.finditer(text):
        reader.note("badCharacter", found.start(), found.group())
    for found in _BAD_ESCAPE.finditer(text):
        reader.note("badEscape", found.start(), found.group())


def _read_base(reader: _Reader, base: str) -> tuple[str | None, str | None]:
    scheme, colon, rest = base.partition(":")
    if not colon or scheme.lower() != "jms":
        reader.note("wrongScheme", 0, scheme[:40] + colon)
        return None, None
    if scheme != "jms":
        reader.note("schemeCase", 0, scheme)
    raw_variant, colon, raw_destination = rest.partition(":")
    if not colon:
        reader.note("noVariant", 4)
        return None, None
    return _read_variant(reader, raw_variant), _read_destination(reader, raw_destination, 5 + len(raw_variant))


def _read_variant(reader: _Reader, raw: str) -> str | None:
    if not raw:
        reader.note("emptyVariant", 4)
        return None
    variant = reader.decode(raw, 4)
    if "/" in raw:
        reader.note("slashInVariant", 4, raw)
    if any(len(_plain(escaped)) == 1 for escaped in _ESCAPE.findall(raw)):
        reader.note("escapedVariant", 4, raw)
    if variant not in KNOWN_VARIANTS:
        reader.note("unknownVariant", 4, variant)
    if len(variant) > 40:
        reader.note("longVariant", 4, variant)
    return variant


def _read_destination(reader: _Reader, raw: str, position: int) -> str | None:
    if not raw:
        reader.note("emptyDestination", position)
        return None
    if raw[0] == "/":
        reader.note("leadingSlash", position)
    for character, code in (("/", "slashInDestination"), ("&", "rawAmpersand"), (":", "rawColon")):
        if (at := raw.find(character)) >= 0:
            reader.note(code, position + at)
    destination = reader.decode(raw, position)
    if not destination.isascii():
        reader.note("notAscii", position, destination)
    return destination


def _read_query(reader: _Reader, query: str, position: int) -> Iterator[Parameter]:
    for raw in query.split("&") if query else ():
        if raw:
            yield _read_parameter(reader, raw, position)
        else:
            reader.note("emptyParameter", position)
        position += len(raw) + 1


def _read_parameter(reader: _Reader, raw: str, position: int) -> Parameter:
    raw_name, equals, raw_value = raw.partition("=")
    if not raw_name:
        reader.note("emptyName", position)
    if not equals:
        reader.note("noValue", position, raw)
    value_position = position + len(raw_name) + 1
    for part, start in ((raw_name, position), (raw_value, value_position)):
        if found := _NOT_IN_PARAMETER.search(part):
            reader.note("parameterCharacter", start + found.start(), raw)
    value = reader.decode(raw_value, value_position) if equals else None
    return Parameter(reader.decode(raw_name, position), value, raw, position)


def _check_names(reader: _Reader, variant: str | None, parameters: tuple[Parameter, ...]) -> None:
    first: dict[str, int] = {}
    for name, _, _, position in parameters:
        if first.setdefault(name, position) != position:
            reader.note("repeated", position, name)
        if name == "jndi-":
            reader.note("emptyJndiName", position)
        if _SECRETS.search(name):
            reader.note("secret", position, name)
    if "topicReplyToName" in first:
        if "replyToName" in first:
            reader.note("bothReplyNames", max(first["replyToName"], first["topicReplyToName"]))
        if variant == "jndi":
            reader.note("topicReplyWithJndi", first["topicReplyToName"])


def _check_values(reader: _Reader, parameters: tuple[Parameter, ...]) -> None:
    """Check the values of known parameters: of the last of each name, which is the one that counts."""
    for name, value, _, position in {each.name: each for each in parameters}.values():
        if value is not None and name in _VALUE_PATTERNS:
            _check_value(reader, name, value, position)


_VALUE_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "deliveryMode": re.compile(r"PERSISTENT|NON_PERSISTENT"),
    "timeToLive": re.compile(r"[0-9]+"),
    "priority": re.compile(r"0*[0-9]"),
}


def _check_value(reader: _Reader, name: str, value: str, position: int) -> None:
    if not _VALUE_PATTERNS[name].fullmatch(value) or (name == "timeToLive" and not fits_long(value)):
        reader.note(name, position, value[:80])
    elif len(value) > 1 and value[0] == "0":
        reader.note("leadingZeros", position, value[:80])


def fits_long(digits: str) -> bool:
    """Say whether a string of digits is a number below 2 to the 63."""
    significant = digits.lstrip("0")
    return len(significant) <= 19 and int(significant or "0") < 1 << 63


# Writing


def escape(text: str) -> str:
    """Escape all but unreserved characters, as UTF-8 with upper-case digits: fits both grammars, in every part."""
    return quote(text, safe="")


def build(variant: str, destination: str, parameters: Iterable[tuple[str, str]] = ()) -> str:
    """Write a URI from decoded parts; every part is escaped so that strict and draft-03 read it alike.

    Raises:
        InvalidUriError: a part that may not be empty is, or is not Unicode, or the result breaks a MUST.
    """
    try:
        query = "&".join(f"{escape(name)}={escape(value)}" for name, value in parameters)
        text = f"jms:{escape(variant)}:{escape(destination)}" + (f"?{query}" if query else "")
    except UnicodeEncodeError as error:
        raise InvalidUriError(f"half of a surrogate pair has no UTF-8: {error}") from None
    return checked(text, Mode.STRICT).text


def checked(text: str, mode: Mode = Mode.LENIENT) -> JmsUri:
    """Read a URI that the caller wants to use.

    Raises:
        InvalidUriError: it is not valid in this mode; the message says what and where.
    """
    uri = parse(text, mode)
    for finding in uri.findings:
        if finding.severity is not Severity.NOTE:
            raise InvalidUriError(f"{text!r} at {finding.position}: {finding.text} ({finding.code})")
    return uri


def canonical(uri: JmsUri) -> str:
    """Return the form to compare by: no needless escapes, last of each name only, sorted by name.

    The destination keeps the difference between `/` and `%2F`, which are different URIs; see `destination` for the
    weaker test.

    Spec: RFC 6167 4; RFC 3986 6.2.2.
    """
    scheme, colon, rest = uri.base.partition(":")
    base = scheme.lower() + colon + _normal(rest)
    last = {each.name: each for each in uri.parameters}
    query = "&".join(_normal(last[name].raw) for name in sorted(last))
    return f"{base}?{query}" if query else base


def _normal(raw: str) -> str:
    """Write escapes in upper case, and those of unreserved characters as the characters."""
    return _ESCAPE.sub(lambda found: _plain(found.group()), raw)


def _plain(escaped: str) -> str:
    character = chr(int(escaped[1:], 16))
    return character if character.isascii() and (character.isalnum() or character in "-._~") else escaped.upper()
