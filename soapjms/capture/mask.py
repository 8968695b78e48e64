"""Masking of secrets in a capture log: properties by name, elements and attributes by local name, logins of URLs, text
by a pattern.

Bodies are searched as text, not parsed, so that the rest stays as it came and can still be judged. A body that cannot
be searched is left out as a whole. Nothing here knows of files or brokers.
"""

from __future__ import annotations

import re
from base64 import b64encode, encodebytes
from binascii import a2b_base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final, NamedTuple

from brokers.arguments import items
from brokers.message import Body, Element, Message, Properties, Property, PropertyType, PropertyValue
from brokers.redaction import HIDDEN, LOGIN_IN_URL, PASSWORD_NAME, SECRET
from soapjms.protocol.content import DECODERS, ENCODERS, detect_encoding
from soapjms.protocol.errors import UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS
from soapjms.protocol.names import CONTENT_ENCODING
from soapjms.protocol.uri import parse

ALWAYS: Final = ("Password",)
"""WS-Security's elements that are always hidden, in any capitalisation."""

MAX_CACHED_CHARACTERS: Final = 2048
"""Length in characters from which on a redacted URI, and what the name of a property tells, is not cached."""

MAY_HOLD: Final = re.compile("[<&@]")
"""One of these is in every text that holds an element, or the login of a URL."""

NAME: Final = re.compile(r"[^\W\d][\w.-]*")


class WideEncoding(NamedTuple):
    """An encoding with several octets per character, which one part of a multipart body may have.

    Attributes:
        codec: the codec's name.
        width: size of a unit, in octets.
        runs: matches runs of units, alternately those that can be decoded and those that cannot.
        words: matches four characters of ASCII, as are in every XML document and seldom in other octets.
    """

    codec: str
    width: int
    runs: re.Pattern[bytes]
    words: re.Pattern[bytes]


def _wide(codec: str, unit: bytes, other: bytes, character: bytes) -> WideEncoding:
    runs = re.compile(b"(?:" + unit + b")++|(?:(?!" + unit + b")" + other + b")++", re.DOTALL)
    return WideEncoding(codec, len(other), runs, re.compile(b"(?:" + character + b"){4}"))


WIDE: Final = (
    _wide("utf-16-le", b"..", b"..", rb"[\t\n\r -~]\x00"),
    _wide("utf-16-be", b"..", b"..", rb"\x00[\t\n\r -~]"),
    _wide("utf-32-le", rb"..[\x00-\x10]\x00", b"....", rb"[\t\n\r -~]\x00{3}"),
    _wide("utf-32-be", rb"\x00[\x00-\x10]..", b"....", rb"\x00{3}[\t\n\r -~]"),
)

BASE64_TEXT: Final = re.compile(r"[A-Za-z0-9+/\s]{16,}={0,2}\s*")
"""Text that may be base64 throughout."""

BASE64_PART: Final = re.compile(
    rb"(content-transfer-encoding(?<![^\r\n]content-transfer-encoding):(?:[ \t]|\r?\n[ \t])*+base64"
    rb"[^\r\n]*+\r?\n(?:[^\r\n]++\r?\n){0,64}+\r?\n)"
    rb"([A-Za-z0-9+/\s]++={0,2})",
    re.IGNORECASE,
)
"""A base64 part of a multipart body: its headers from Content-Transfer-Encoding on, and its content."""


CHARSET_OF_PART: Final = re.compile(
    rb"^content-type:(?:[^\r\n]|\r?\n[ \t]){0,1000}?;\s*+charset\s*+=\s*+[\"']?([\w.:+-]++)",
    re.IGNORECASE | re.MULTILINE,
)
"""The charset of a part of a multipart body."""
TAG: Final = b"<Password>"
"""What shows whether a charset has ASCII in it."""


# No `<` within a tag, so that a body full of unfinished tags is not searched to its end for each of them.
PREFIX: Final = rb"(?:[^\s<>/:&;]+:)?"
# An end tag within CDATA, a comment or a processing instruction does not count.
APART: Final = rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)"
# Marks in a document that is the text of an element, which may be the text of another one.
LT: Final = rb"&(?:amp;)*+(?:lt|#0*60|#[xX]0*3[cC]);"
GT: Final = rb"(?:>|&(?:amp;)*+(?:gt|#0*62|#[xX]0*3[eE]);)"
QUOTE: Final = rb"(?:[\"']|&(?:amp;)*+(?:quot|apos|#0*3[49]|#[xX]0*2[27]);)"


class MaskRule(NamedTuple):
    """A rule for what is hidden in bodies.

    Attributes:
        what: its name in records.
        pattern: finds the text to hide, in UTF-8.
        instead: the replacement.
        words: in lower case; every match contains one of them, so that bodies without them need no search.
        needles: find the words in other encodings; only bodies that contain one are searched in those.
    """

    what: str
    pattern: re.Pattern[bytes]
    instead: bytes
    words: Collection[bytes]
    needles: Mapping[WideEncoding, re.Pattern[bytes]]


class MaskedMessage(NamedTuple):
    """A message whose secrets are hidden.

    Attributes:
        message: the message.
        what: what was hidden: `property NAME`, `entry NAME`, `element NAME`, `element like Password`, `attribute like
            Password`, `login in URL`, `pattern NUMBER`, or why the body was left out.
        is_cut: whether the body was left out.
    """

    message: Message
    what: tuple[str, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Mask:
    """Rules for what is hidden and replaced by `***`.

    Of an element, the content up to its next end tag is hidden; its attributes stay. Always hidden are the elements of
    `ALWAYS`, the text of elements and the values of attributes whose local names `brokers.redaction.PASSWORD_NAME`
    matches, such as `NewPassword`, and user and password of URLs. This applies to a document that is the text of an
    element, too, as CDATA or escaped. In a multipart body this applies to each part, in UTF-8, UTF-16, UTF-32, and in
    base64 of them.

    Args:
        properties: names of message properties; properties whose names look like secrets are always hidden.
        elements: local names of elements, in any namespace; those of `ALWAYS` are always hidden.
        patterns: regular expressions; text that they match in a body is hidden.

    Raises:
        UsageError: an argument is not a list of strings, or an item is not a name of an element, or not a regular
            expression.
    """

    properties: Collection[str] = ()
    elements: Collection[str] = ()
    patterns: Collection[str] = ()
    rules: tuple[MaskRule, ...] = field(init=False)
    _texts: tuple[re.Pattern[str], ...] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("properties", "elements", "patterns"):
            object.__setattr__(self, name, items(getattr(self, name), name))
        names = dict.fromkeys((*ALWAYS, *self.elements))
        elements = [_element_rule(name) for name in names]
        object.__setattr__(self, "rules", (*elements, *RULES))
        object.__setattr__(self, "_texts", tuple(map(_text_pattern, self.patterns)))

    def apply(self, message: Message) -> MaskedMessage:
        """Hide what the rules say. Never raises because of the message's content."""
        properties, named = self._in_properties(message.properties)
        try:
            body, found = self._in_body(message)
            why: tuple[str, ...] = ()
        except (ValueError, KeyError) as error:
            body, found, why = None, [], (f"body: {_reason(error)}",)
        what = (*named, *found, *why)
        if not what:
            return MaskedMessage(message)
        return MaskedMessage(replace(message, properties=properties, body=body), what, bool(why))

    def _hides(self, name: str) -> bool:
        return name in self.properties or looks_secret(name)

    def _in_properties(self, properties: Properties) -> tuple[Properties, list[str]]:
        """Hide properties whose names look like secrets, and secrets in the text of others."""
        hidden: dict[str, Property] = {}
        for entry in properties:
            name, _, value = entry
            may_hold = type(value) is str and (value[:4].lower() == "jms:" or MAY_HOLD.search(value))
            if may_hold or self._hides(name):
                other = self._in_property(entry)
                if other is not entry:
                    hidden[name] = other
        if not hidden:
            return properties, []
        made = Properties(hidden.get(each.name, each) for each in properties)
        return made, [f"property {name}" for name in sorted(hidden)]

    def _in_property(self, entry: Property) -> Property:
        value = entry.value
        if self._hides(entry.name):
            return _hidden(entry)
        if type(value) is not str:
            return entry
        text = value
        if value[:4].lower() == "jms:":
            text = _redacted(value) if len(value) < MAX_CACHED_CHARACTERS else parse(value).redacted
        if MAY_HOLD.search(text):
            text = str(self._in_value(text)[0])
        return entry if text == value else entry._replace(value=text)

    def _in_body(self, message: Message) -> tuple[Body, list[str]]:
        """Return the body as a log may hold it, and the names of what is hidden in it.

        Raises:
            ValueError, KeyError: the body cannot be searched.
        """
        body = message.body
        if isinstance(body, str):
            text, found = self._in_utf_8(body.encode("utf-8", "surrogatepass"))
            return (text.decode("utf-8", "surrogatepass") if found else body), found
        if isinstance(body, tuple):
            return self._in_map(body) if isinstance(body, Properties) else self._in_stream(body)
        if not isinstance(body, bytes | memoryview):
            return body, []
        encoding = message.properties.text(CONTENT_ENCODING) or "identity"
        if encoding == "identity":
            octets, found = self._in_octets(bytes(body))
        else:
            octets, found = self._in_octets(DECODERS[encoding](bytes(body), DEFAULT_LIMITS))
            octets = ENCODERS[encoding](octets) if found else octets
        return (octets if found else body), found

    def _in_octets(self, octets: bytes) -> tuple[bytes, list[str]]:
        seen = detect_encoding(octets)
        if seen.family in ("ascii", "utf-8"):
            _refuse_charsets(octets)
            return self._in_utf_8(octets)
        if not seen.is_unicode:
            raise ValueError(f"it is in {seen.family}")
        text, found = self._in_utf_8(octets.decode(seen.codec).encode())
        return text.decode().encode(seen.codec), found

    def _in_utf_8(self, octets: bytes) -> tuple[bytes, list[str]]:
        found = list[str]()
        if b"\0" in octets:
            octets = self._in_wide(octets, found)
        lowered = octets.lower()
        if b"base64" in lowered:
            octets = BASE64_PART.sub(partial(self._in_part, found), octets)
            lowered = octets.lower()
        for rule in self.rules:
            if not any(map(lowered.__contains__, rule.words)):
                continue
            octets, count = rule.pattern.subn(rule.instead, octets)
            if count and rule.what not in found:
                found.append(rule.what)
        return self._in_text(octets, found), found

    def _in_text(self, octets: bytes, found: list[str]) -> bytes:
        """Hide what the patterns match, in characters, not octets; add to `found` what was hidden."""
        if not self._texts:
            return octets
        text = self._without_patterns(octets.decode("utf-8", "surrogateescape"), found)
        return text.encode("utf-8", "surrogateescape")

    def _without_patterns(self, text: str, found: list[str]) -> str:
        for number, pattern in enumerate(self._texts, 1):
            text, count = pattern.subn(HIDDEN, text)
            if count and (what := f"pattern {number}") not in found:
                found.append(what)
        return text

    def _in_wide(self, octets: bytes, found: list[str]) -> bytes:
        """Hide secrets in UTF-16 and UTF-32, at any alignment; add to `found` what was hidden."""
        for rule in self.rules:
            for wide, needle in rule.needles.items():
                octets = _in_runs(octets, wide, needle, partial(_in_run, rule, wide.codec, found))
        for wide in WIDE if self._texts else ():
            octets = _in_runs(octets, wide, wide.words, partial(self._in_text_run, wide.codec, found))
        return octets

    def _in_text_run(self, codec: str, found: list[str], run: re.Match[bytes]) -> bytes:
        """Hide what the patterns match in a run of units if it can be decoded; add to `found` what was hidden."""
        try:
            text = run[0].decode(codec, "surrogatepass")
        except UnicodeDecodeError:
            return run[0]
        return self._without_patterns(text, found).encode(codec, "surrogatepass")

    def _in_part(self, found: list[str], part: re.Match[bytes]) -> bytes:
        """Hide secrets in a part that is in base64; add to `found` what was hidden."""
        octets, hidden = self._in_base64(part[2])
        found += [each for each in hidden if each not in found]
        return part[1] + octets if hidden else part[0]

    def _in_base64(self, text: bytes) -> tuple[bytes, list[str]]:
        """Hide secrets in base64 text, and return base64; other text stays as it is."""
        try:
            octets, found = self._in_utf_8(a2b_base64(text))
        except ValueError:
            return text, []
        return (encodebytes(octets).replace(b"\n", b"\r\n") if b"\n" in text else b64encode(octets)), found

    def _in_map(self, body: Properties) -> tuple[Body, list[str]]:
        """Hide entries whose names the rules list, and secrets in the texts of others."""
        made, found = list[Property](), list[str]()
        for entry in body:
            if self._hides(entry.name) or entry.name in self.elements:
                made.append(_hidden(entry))
                found.append(f"entry {entry.name}")
            else:
                value, hidden = self._in_entry(entry)
                made.append(Property(entry.name, entry.type, value) if hidden else entry)
                found += hidden
        return (Properties(made) if found else body), list(dict.fromkeys(found))

    def _in_stream(self, body: tuple[Element, ...]) -> tuple[Body, list[str]]:
        """Hide secrets in the texts of a StreamMessage, whose elements have no names."""
        seen = [(each, *self._in_entry(each)) for each in body]
        found = [what for _, _, hidden in seen for what in hidden]
        if not found:
            return body, []
        made = tuple(each._replace(value=value) if hidden else each for each, value, hidden in seen)
        return made, list(dict.fromkeys(found))

    def _in_entry(self, entry: Property | Element) -> tuple[PropertyValue, list[str]]:
        """Hide secrets in the value of an entry; octets are held as base64, and text may be base64, too."""
        value = entry.value
        if isinstance(value, str) and (entry.type is PropertyType.BYTES or BASE64_TEXT.fullmatch(value)):
            octets, found = self._in_base64(value.encode("ascii", "replace"))
            return octets.decode(), found
        return self._in_value(value)

    def _in_value(self, value: PropertyValue) -> tuple[PropertyValue, list[str]]:
        if not isinstance(value, str):
            return value, []
        text, found = self._in_utf_8(value.encode("utf-8", "surrogatepass"))
        return text.decode("utf-8", "surrogatepass"), found


def looks_secret(name: str) -> bool:
    """Say whether the name of a property looks like a secret."""
    return (_is_secret if len(name) < MAX_CACHED_CHARACTERS else _is_secret.__wrapped__)(name)


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    """Say whether a name looks like a secret; cached, because messages use few names."""
    return SECRET.search(name) is not None


@lru_cache(maxsize=1024)
def _redacted(uri: str) -> str:
    """Return a `jms:` URI without the secrets in it."""
    return parse(uri).redacted


def _refuse_charsets(octets: bytes) -> None:
    """Refuse a multipart body with a part in EBCDIC, for example.

    Raises:
        ValueError: a part is in an encoding in which ASCII does not look like itself, other than UTF-16 and UTF-32.
    """
    for name in dict.fromkeys(CHARSET_OF_PART.findall(octets)):
        charset = name.decode("ascii", "replace").lower()
        try:
            differs = TAG.decode(charset) != TAG.decode() and not charset.replace("_", "-").startswith(
                ("utf-16", "utf-32")
            )
        except (LookupError, UnicodeError):  # unknown, or UTF-16 and the like by another name
            continue
        if differs:
            raise ValueError(f"a part of it is in {charset}")


def _in_runs(
    octets: bytes, wide: WideEncoding, needle: re.Pattern[bytes], hide: Callable[[re.Match[bytes]], bytes]
) -> bytes:
    """Apply a function to the runs of a wide encoding, at each alignment at which a needle is found."""
    for start in {each.start() % wide.width for each in needle.finditer(octets)}:
        octets = octets[:start] + wide.runs.sub(hide, octets[start:])
    return octets


def _in_run(rule: MaskRule, codec: str, found: list[str], run: re.Match[bytes]) -> bytes:
    """Hide an element in a run of units if the run can be decoded; add to `found` what was hidden."""
    try:
        text = run[0].decode(codec, "surrogatepass")
    except UnicodeDecodeError:
        return run[0]
    octets, count = rule.pattern.subn(rule.instead, text.encode("utf-8", "surrogatepass"))
    if count and rule.what not in found:
        found.append(rule.what)
    return octets.decode("utf-8", "surrogatepass").encode(codec, "surrogatepass") if count else run[0]


def _reason(error: ValueError | KeyError) -> str:
    return f"the encoding {error} is not known" if isinstance(error, KeyError) else str(error)


def _hidden(entry: Property) -> Property:
    return Property(entry.name, PropertyType.STRING, HIDDEN)


def _element_rule(name: str) -> MaskRule:
    if not NAME.fullmatch(name):
        raise UsageError(f"an element must be a local name without prefix or path, such as CardNumber, got {name!r}")
    tag = PREFIX + re.escape(name).encode()
    content = rb"(?:[^<]++|" + APART + rb"|<(?!/" + tag + rb"\s*>))*+"
    escaped = rb"(?:(?!" + LT + rb"/" + tag + rb"\s*+" + GT + rb")[^<])*+"
    pattern = _start_tag(tag) + content + rb"|" + _escaped_start_tag(tag) + escaped
    flags = re.DOTALL | (re.IGNORECASE if name in ALWAYS else re.NOFLAG)
    return _rule(f"element {name}", pattern, r"\1\2" + HIDDEN, name, flags=flags)


def _start_tag(tag: bytes) -> bytes:
    # A quoted `/>` does not end a tag; after an unmatched quote, the next `>` does.
    within = rb"(?:(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*+|[^<>]*+)"
    return rb"(<" + tag + rb"(?:\s" + within + rb")?(?<!/)>)"


def _escaped_start_tag(tag: bytes) -> bytes:
    within = rb"(?:\s(?:(?!" + LT + rb"|" + GT + rb")[^<])*+)?(?<!/)"
    return rb"(" + LT + tag + within + GT + rb")"


def _element_like_password() -> bytes:
    """Return the pattern of elements whose names hold a word for a password, up to their first child.

    An element that begins with a child, such as that of an operation `changePassword`, is none.
    """
    tag = PREFIX + rb"(?!(?i:password)[\s>&])" + PASSWORD_NAME.encode()
    content = rb"(?!\s*+(?:<[^!?]|\Z))(?:[^<]++|" + APART + rb")*+"
    child = LT + rb"(?!!)"
    escaped = rb"(?!\s*+(?:<|" + child + rb"))(?:(?!" + child + rb")[^<])*+"
    return _start_tag(tag) + content + rb"|" + _escaped_start_tag(tag) + escaped


def _attribute_like_password() -> bytes:
    return rb"(\s(?!xmlns:)" + PREFIX + PASSWORD_NAME.encode() + rb"\s*+=\s*+(" + QUOTE + rb"))(?:(?!\2)[^<])*+"


def _rule(what: str, pattern: bytes, instead: str, *words: str, flags: re.RegexFlag = re.DOTALL) -> MaskRule:
    needles = {
        wide: re.compile(b"|".join(re.escape(word.encode(wide.codec)) for word in words), re.IGNORECASE)
        for wide in WIDE
    }
    return MaskRule(
        what, re.compile(pattern, flags), instead.encode(), tuple(word.encode().lower() for word in words), needles
    )


RULES: Final = (
    _rule("element like Password", _element_like_password(), r"\1\2" + HIDDEN, "pass", "pwd"),
    _rule("attribute like Password", _attribute_like_password(), r"\1" + HIDDEN, "pass", "pwd"),
    _rule("login in URL", LOGIN_IN_URL.encode(), f"://{HIDDEN}@", "://"),
)
"""The rules for bodies that every mask has, beside those for the elements of `ALWAYS`."""


def _text_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"a pattern must be a regular expression, got {text!r}: {error}") from None
