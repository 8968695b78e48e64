"""Reading a `jms:` URI: one pass over its parts, in time proportional to its length.

Problems become a list of findings, never an exception and never a guess. Each part is first matched with an expression
for plain text; its characters are examined only if that fails. A limited number of findings of each kind is kept and
the rest counted, so that the cost of a hostile URI stays proportional to its length.

Spec: RFC 6167 3 to 5; draft-03 3 to 5.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Final
from urllib.parse import unquote_to_bytes

from brokers.redaction import without_login
from soapjms.protocol.uri.findings import FINDINGS, SEVERITIES, Finding, Mode, Severity
from soapjms.protocol.uri.model import (
    IN_SMALL_LETTERS,
    JNDI_PREFIX,
    KNOWN_VARIANTS,
    MAX_VARIANT_CHARACTERS,
    NUMBERS,
    PARAMETERS,
    SAME_IN_JNDI,
    VENDOR_PREFIX,
    VENDOR_VARIANT,
    JmsUri,
    KnownParameter,
    Parameter,
    fits_long,
    mixes_scripts,
)
from soapjms.protocol.uri.redact import REDACTED, holds_secret, is_secret_name, quoted, without_user_info

KEPT: Final = 20
"""Most findings of one kind that are kept."""
MAX_CACHED_CHARACTERS: Final = 1024
"""Longest URI that is cached, in characters, so that the cache stays small."""
DECODE_CHARACTERS: Final = 1 << 16
"""Characters that are decoded at a time, extended to the next escape."""

_UNRESERVED: Final = r"A-Za-z0-9\-._~"
_RESERVED_HERE: Final = r"!$&'()*+,;=:@/?"
_PLAIN_BASE: Final = re.compile(rf"[{_UNRESERVED}!$&'()*+,;=:@/]*")
_PLAIN_PARAMETER: Final = re.compile(rf"[{_UNRESERVED}]*")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NEEDLESS_ESCAPE: Final = re.compile(r"%(?:2[DEde]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|7[Ee])")
_OCTET: Final = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)
_MALFORMED: Final = re.compile(rf"%(?![0-9A-Fa-f]{{2}})[^%]{{0,2}}|[^%{_UNRESERVED}{_RESERVED_HERE}]", re.DOTALL)
_RESERVED: Final = re.compile(rf"[{_RESERVED_HERE}]")


def octets_of(raw: str) -> bytes:
    """Return the octets of a part with its escapes decoded, piece by piece, as each text between escapes is an object.

    A megabyte of such objects at once does not fit into the processor's caches, and would take disproportionate time.
    """
    octets, start = [], 0
    while start < len(raw):
        end = raw.find("%", start + DECODE_CHARACTERS)
        end = len(raw) if end == -1 else end
        octets.append(unquote_to_bytes(raw[start:end]))
        start = end
    return b"".join(octets)


def parse(text: str, mode: Mode = Mode.LENIENT) -> JmsUri:
    """Read a JMS URI. Never raises: problems are in `findings`. URIs of usual length are cached.

    Spec: RFC 6167 3; draft-03 3.
    """
    return _remembered(text, mode) if len(text) <= MAX_CACHED_CHARACTERS else read(text, mode)


def read(text: str, mode: Mode = Mode.LENIENT) -> JmsUri:
    """Read a JMS URI as `parse` does, without the cache."""
    reader = _Reader(mode)
    base, question, query = text.partition("?")
    variant, destination = _read_base(reader, base)
    parameters: tuple[Parameter, ...] = ()
    if query:
        parameters = tuple(_read_query(reader, query, len(base) + 1))
        _check_parameters(reader, variant, parameters)
    elif question:
        reader.note("emptyQuery", len(base))
    return JmsUri(text, mode, variant, destination, parameters, reader.result(len(text)), base)


_remembered: Final = lru_cache(maxsize=4096)(read)


class _Reader:
    """Collects the findings of one parse, with the severity that the mode gives them."""

    __slots__ = ("counts", "findings", "severities")

    def __init__(self, mode: Mode) -> None:
        self.severities = SEVERITIES[mode]
        self.findings: list[Finding] = []
        self.counts: dict[str, int] = {}

    def note(self, code: str, position: int, seen: str = "") -> None:
        severity = self.severities.get(code)
        if severity is None:
            return
        count = self.counts[code] = self.counts.get(code, 0) + 1
        if count <= KEPT:
            shown = quoted(REDACTED if holds_secret(seen) else seen)
            self.findings.append(Finding(code, FINDINGS[code].text.format(seen=shown), position, severity))

    def result(self, end: int) -> tuple[Finding, ...]:
        """Return the findings in order of position; the last one counts those that were left out, by kind."""
        if not self.findings:
            return ()
        self.findings.sort(key=attrgetter("position"))
        left_out = [f"{count - KEPT} of {code}" for code, count in self.counts.items() if count > KEPT]
        if left_out:
            text = FINDINGS["moreFindings"].text.format(seen=", ".join(left_out))
            self.findings.append(Finding("moreFindings", text, end, Severity.NOTE))
        return tuple(self.findings)

    def part(self, raw: str, position: int, plain: re.Pattern[str], *, secret: bool = False) -> str:
        """Return a part decoded; as it is written if it cannot be decoded."""
        if plain.fullmatch(raw):
            return raw
        if not plain.fullmatch(_ESCAPE.sub("", raw)) and not self._is_decodable(raw, position, plain, secret):
            return raw
        octets = octets_of(raw)
        try:
            return octets.decode("utf-8")
        except UnicodeDecodeError as error:
            wrong = next(islice(_OCTET.finditer(raw), error.start, None))
            self.note("escapeNotUtf8", position + wrong.start(), REDACTED if secret else wrong.group())
            return raw

    def _is_decodable(self, raw: str, position: int, plain: re.Pattern[str], secret: bool) -> bool:
        decodable = True
        for found in _MALFORMED.finditer(raw):
            decodable = False
            code = _MALFORMED_CODES.get(found.group()[0], "badCharacter")
            self.note(code, position + found.start(), REDACTED if secret else found.group())
        if plain is _PLAIN_PARAMETER and (reserved := _RESERVED.search(raw)):
            self.note("parameterCharacter", position + reserved.start(), REDACTED if secret else reserved.group())
        return decodable


_MALFORMED_CODES: Final = {"%": "badEscape", "#": "fragment"}


def _read_base(reader: _Reader, base: str) -> tuple[str | None, str | None]:
    scheme, colon, rest = base.partition(":")
    if not colon or scheme.lower() != "jms":
        reader.note("wrongScheme", 0, scheme[:40] + colon)
        reader.part(base, 0, _PLAIN_BASE)
        return None, None
    if scheme != "jms":
        reader.note("schemeCase", 0, scheme)
    raw_variant, colon, raw_destination = rest.partition(":")
    if not colon:
        reader.note("noVariant", 4)
        reader.part(rest, 4, _PLAIN_BASE)
        return None, None
    if "/" in raw_variant:  # an address of another kind: jms://host:port/queue
        reader.note("slashInVariant", 4, without_login(raw_variant))
        reader.part(rest, 4, _PLAIN_BASE)
        return None, None
    return _read_variant(reader, raw_variant), _read_destination(reader, raw_destination, 5 + len(raw_variant))


def _read_variant(reader: _Reader, raw: str) -> str | None:
    if raw in KNOWN_VARIANTS:
        return raw
    if not raw:
        reader.note("emptyVariant", 4)
        return None
    variant = reader.part(raw, 4, _PLAIN_BASE)
    if _NEEDLESS_ESCAPE.search(raw):
        reader.note("escapedVariant", 4, raw)
    if variant.startswith(VENDOR_PREFIX):
        reader.note("vendorVariant" if VENDOR_VARIANT.fullmatch(variant) else "vendorPattern", 4, variant)
    elif variant not in KNOWN_VARIANTS:
        reader.note("unknownVariant", 4, variant)
    if len(variant) > MAX_VARIANT_CHARACTERS:
        reader.note("longVariant", 4, variant)
    return variant


def _read_destination(reader: _Reader, raw: str, position: int) -> str | None:
    if not raw:
        reader.note("emptyDestination", position)
        return None
    if raw[0] == "/":
        reader.note("leadingSlash", position)
    for character, code in _RAW_IN_DESTINATION:
        if character in raw:
            reader.note(code, position + raw.index(character))
    destination = reader.part(raw, position, _PLAIN_BASE)
    _check_name(reader, destination, position)
    return destination


_RAW_IN_DESTINATION: Final = (("/", "slashInDestination"), ("&", "rawAmpersand"), (":", "rawColon"))


def _check_name(reader: _Reader, name: str, position: int) -> None:
    """Check a destination's name for characters that a person would overlook."""
    if name.isprintable() and name.isascii():
        return
    seen = without_user_info(name)
    if not name.isprintable():
        reader.note("controlCharacter", position, seen)
    if not name.isascii():
        reader.note("notAscii", position, seen)
    if mixes_scripts(name):
        reader.note("mixedScripts", position, seen)


def _read_query(reader: _Reader, query: str, position: int) -> list[Parameter]:
    parameters = []
    for raw in query.split("&"):
        if raw:
            parameters.append(_read_parameter(reader, raw, position))
        else:
            reader.note("emptyParameter", position)
        position += len(raw) + 1
    return parameters


def _read_parameter(reader: _Reader, raw: str, position: int) -> Parameter:
    raw_name, equals, raw_value = raw.partition("=")
    if not raw_name:
        reader.note("emptyName", position)
    name = reader.part(raw_name, position, _PLAIN_PARAMETER)
    if not equals:
        reader.note("noValue", position, name)
        return Parameter(name, None, raw, position)
    secret = name not in PARAMETERS and is_secret_name(name)
    value = reader.part(raw_value, position + len(raw_name) + 1, _PLAIN_PARAMETER, secret=secret)
    if secret or holds_secret(value):
        reader.note("secret", position, name)
    return Parameter(name, value, raw, position)


def _check_parameters(reader: _Reader, variant: str | None, parameters: tuple[Parameter, ...]) -> None:
    """Check the last parameter of each name, the one that counts; the others are not judged."""
    last = {each[0]: each for each in parameters}
    if len(last) < len(parameters):
        _note_repeats(reader, parameters)
    for name, parameter in last.items():
        known = PARAMETERS.get(name)
        if known is None:
            _check_custom(reader, name, parameter.position, last)
        elif parameter.value is not None:
            _check_value(reader, known, parameter.value, parameter)
    if "topicReplyToName" in last:
        position = last["topicReplyToName"].position
        if "replyToName" in last:
            reader.note("bothReplyNames", max(position, last["replyToName"].position))
        if variant == "jndi":
            reader.note("topicReplyWithJndi", position)


def _note_repeats(reader: _Reader, parameters: tuple[Parameter, ...]) -> None:
    seen: set[str] = set()
    for name, _, _, position in parameters:
        if name in seen:
            reader.note("repeated", position, name)
        seen.add(name)


def _check_custom(reader: _Reader, name: str, position: int, last: dict[str, Parameter]) -> None:
    if name == JNDI_PREFIX:
        reader.note("emptyJndiName", position)
    elif SAME_IN_JNDI.get(name) in last:
        reader.note("jndiTwice", position, name)
    elif name.lower() in IN_SMALL_LETTERS or (name[:5] != JNDI_PREFIX and name[:5].lower() == JNDI_PREFIX):
        reader.note("nameCase", position, name)


def _check_value(reader: _Reader, known: KnownParameter, value: str, parameter: Parameter) -> None:
    name, position = parameter.name, parameter.position
    if not known.accepted.fullmatch(value) or (name == "timeToLive" and not fits_long(value)):
        reader.note(known.code, position, name if known.code == "emptyValue" else value)
    elif name in NUMBERS and len(value) > 1 and value[0] == "0":
        reader.note("leadingZeros", position, value)
    elif known.is_destination:
        _check_name(reader, value, position)
