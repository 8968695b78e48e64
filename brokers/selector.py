"""JMS message selectors: expressions over headers and properties that select the messages of a consumer.

A text is split into tokens and parsed by the levels of `GRAMMAR`, loosest first, into functions that return a value for
a message. Conditions are true, false or unknown (None), as in SQL; a message is selected if its selector is true.

A selector may come from a stranger, and the broker evaluates it under its lock. So its length and depth are bounded,
and so are the characters that LIKE searches for one message: beyond that limit the selector is unknown. Otherwise its
time is linear in its length.

Deviation: an integer result that does not fit 64 bits is unknown, where Java's overflows; division by an integer 0 is
unknown, where Java raises an exception.

Spec: JMS 1.1 and 2.0, 3.8.1 (message selector syntax), 3.5.1 (names that begin with JMS).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from brokers.errors import InvalidSelectorError
from brokers.message import DeliveryMode, Message, Property, PropertyType

MAX_SELECTOR_CHARACTERS: Final = 8192
"""Maximum length of a selector, in characters."""

MAX_DEPTH: Final = 50
"""Maximum nesting of parentheses, signs and NOTs."""

MAX_SEARCHED_CHARACTERS: Final = 16_384
"""Maximum number of characters that all LIKEs of a selector search for one message: each string counts once for each
pattern with text between two `%`. This takes ten milliseconds at worst; the beginning and end need no search."""

Value: TypeAlias = bool | int | float | str | bytes | None
Headers: TypeAlias = Mapping[str, Callable[[Message], Value]]


class Evaluation:
    """Gives one evaluation of a selector access to a message, and counts the characters that it searches."""

    __slots__ = ("_delivery_count", "_headers", "_left", "_message", "_properties")

    def __init__(self, message: Message, headers: Headers, delivery_count: int) -> None:
        self._message = message
        self._headers = headers
        self._delivery_count = delivery_count
        self._properties: dict[str, Property] | None = None
        self._left = MAX_SEARCHED_CHARACTERS

    def __call__(self, name: str) -> Value:
        """Return the value of a header or property, or None if the message has none."""
        header = self._headers.get(name)
        if header is not None:
            return header(self._message)
        if name == DELIVERY_COUNT:
            return self._delivery_count
        if self._properties is None:  # built once, because a stranger's message may have very many
            self._properties = {each.name: each for each in reversed(self._message.properties)}
        found = self._properties.get(name)
        if found is None or found.type is not PropertyType.BYTES:
            return None if found is None else found.value
        return b""  # octets are not a JMS type: they are not null, and equal no value

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit of searched characters was exceeded."""
        return self._left < 0

    def may_search(self, characters: int) -> bool:
        """Count characters to search, and return whether they are within the limit."""
        self._left -= characters
        return self._left >= 0


Evaluate: TypeAlias = Callable[[Evaluation], Value]

MODES: Final[Mapping[int | None, str]] = {
    DeliveryMode.PERSISTENT: "PERSISTENT",
    DeliveryMode.NON_PERSISTENT: "NON_PERSISTENT",
}

HEADERS: Final[Headers] = {
    "JMSDeliveryMode": lambda message: MODES.get(message.delivery_mode, MODES[DeliveryMode.PERSISTENT]),
    "JMSPriority": lambda message: message.priority,
    "JMSMessageID": lambda message: message.message_id,
    "JMSTimestamp": lambda message: message.timestamp,
    "JMSCorrelationID": lambda message: message.correlation_id,
    "JMSType": lambda message: message.type,
}
"""The headers that a selector may name. Spec: JMS 2.0, 3.8.1.1."""

PROPERTY_PREFIXES: Final = ("JMSX", "JMS_")
"""Prefixes of property names that begin with JMS."""

DELIVERY_COUNT: Final = "JMSXDeliveryCount"

RESERVED: Final = frozenset({"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"})
"""Words that cannot be names, in upper or lower case."""


class ValueKind(StrEnum):
    """The kind of an expression's value, as far as it is known without a message."""

    CONDITION = "a condition"
    NUMBER = "a number"
    STRING = "a string"
    ANY = "a name"


class Expression(NamedTuple):
    """A part of a selector: its kind, the function that returns its value, and its text if it is a single name."""

    kind: ValueKind
    evaluate: Evaluate
    literal: str | None = None


class Selector:
    """One message selector.

    Attributes:
        text: the selector as it was given.
    """

    def __init__(self, text: str, headers: Headers = HEADERS) -> None:
        """Parse a selector; one that is only white space selects every message.

        Args:
            text: the selector.
            headers: functions that return the headers of a message, by name.

        Raises:
            InvalidSelectorError: it is invalid, and the text says where and why; or it is nested too deep for the rest
                of the caller's stack.
        """
        self.text = text
        self._headers = headers
        try:
            self._evaluate = Parser(text).parse() if text.strip() else _always
        except RecursionError as error:
            raise InvalidSelectorError(
                f"selector must be nested less deep, because its caller's stack is deep already: {text[:200]!r}"
            ) from error

    def wants(self, message: Message, delivery_count: int = 1) -> bool:
        """Return whether the selector selects a message, with the number of its deliveries including this one.

        A message in which LIKE would have to search more than `MAX_SEARCHED_CHARACTERS` is not selected.
        """
        read = Evaluation(message, self._headers, delivery_count)
        return self._evaluate(read) is True and not read.is_exhausted


def _always(read: Evaluation) -> Value:
    return True


# --- tokens

TOKEN: Final = re.compile(
    r"""[ \t\n\r\f]*+(?:
      (?P<string>'(?:[^']|'')*+')
    | (?P<approximate>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD]))
    | (?P<exact>0[xX][0-9a-fA-F]+[lL]?|[0-9]+[lL]?)
    | (?P<name>(?:[^\W0-9]|\$)(?:\w|\$)*)
    | (?P<sign><>|<=|>=|[=<>()+*/,-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token: its kind, its text (a reserved word in upper case), and its position in the selector."""

    kind: str
    text: str
    at: int


def tokens_of(text: str) -> list[Token]:
    """Split a selector into tokens; the last one is the end.

    Raises:
        InvalidSelectorError: a part of the text is not a token.
    """
    found: list[Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        match = TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise InvalidSelectorError(f"selector must be of names, literals and operators, got {_shown(text, at)}")
        kind, word = match.lastgroup, match[match.lastgroup]
        if kind == "name" and word.upper() in RESERVED:
            kind, word = "word", word.upper()
        found.append(Token(kind, word, match.start(match.lastgroup)))
        at = match.end()
    return found


def _shown(text: str, at: int) -> str:
    rest = text[at:].strip()
    return f"{rest[:20]!r} at character {at + 1} of {text[:200]!r}" if rest else f"the end of {text[:200]!r}"


# --- values


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compare(sign: str) -> Callable[[Value, Value], bool | None]:
    """Return a function that compares two values: unknown if one is null, false if their types do not compare.

    Spec: JMS 2.0, 3.8.1.1 (comparison operators).
    """
    operate, is_ordering = COMPARISONS[sign], sign not in ("=", "<>")

    def compare(left: Value, right: Value) -> bool | None:
        if left is None or right is None:
            return None
        if _is_number(left) and _is_number(right):
            return bool(operate(left, right))
        if is_ordering or type(left) is not type(right) or isinstance(left, bytes):
            return False
        return bool(operate(left, right))

    return compare


COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


SMALLEST_LONG: Final = 1 << 63
"""Magnitude of the smallest 64-bit integer."""


def _negate(value: Value) -> bool | None:
    return not value if isinstance(value, bool) else None


def _divide(left: Any, right: Any) -> Any:
    """Divide as Java does: integers towards zero, others by IEEE 754; None for division by an integer 0."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            return None
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}


def _calculate(sign: str, left: Value, right: Value) -> Value:
    """Return the result, or None if an operand is not a number, or the result fits neither a long nor a double."""
    if not (_is_number(left) and _is_number(right)):
        return None
    try:
        result: int | float | None = ARITHMETIC[sign](left, right)
    except OverflowError:  # an integer that does not fit a double
        return None
    if isinstance(result, int) and not -SMALLEST_LONG <= result < SMALLEST_LONG:
        return None
    return result


# --- the grammar, from the loosest binding to the tightest


class Parser:
    """Parses one selector.

    Raises (every method): InvalidSelectorError: the selector is invalid.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_SELECTOR_CHARACTERS:
            raise InvalidSelectorError(
                f"selector must have {MAX_SELECTOR_CHARACTERS} characters at most, got {len(text)}"
            )
        self._text = text
        self._tokens = tokens_of(text)
        self._position = 0
        self._depth = 0

    def parse(self) -> Evaluate:
        """Parse the whole selector."""
        whole = self.require(self.level(0), ValueKind.CONDITION)
        if self.next.kind != "end":
            self.fail("an operator or the end")
        return whole.evaluate

    @property
    def next(self) -> Token:
        """The next token."""
        return self._tokens[self._position]

    def take(self, *texts: str) -> str | None:
        """Consume the next token if it is one of these signs or words, and return its text, or None."""
        token = self.next
        if token.kind not in ("sign", "word") or token.text not in texts:
            return None
        self._position += 1
        return token.text

    def expect(self, text: str) -> None:
        """Consume the next token, which must be this sign or word."""
        if self.take(text) is None:
            self.fail(text)

    def fail(self, wanted: str) -> NoReturn:
        """Raise the error that says what should have been next."""
        raise InvalidSelectorError(f"selector must have {wanted} here, got {_shown(self._text, self.next.at)}")

    def require(self, part: Expression, kind: ValueKind) -> Expression:
        """Return an expression, having checked that it is, or may be, of a kind."""
        if part.kind not in (kind, ValueKind.ANY):
            raise InvalidSelectorError(
                f"selector must have {kind}, got {part.kind} before {_shown(self._text, self.next.at)}"
            )
        return part

    def level(self, number: int) -> Expression:
        """Parse an expression that binds at least as tightly as a level of the grammar."""
        return GRAMMAR[number](self, number)

    def inside(self, number: int) -> Expression:
        """Parse like `level`, one step deeper in a recursive rule."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidSelectorError(f"selector must be nested {MAX_DEPTH} deep at most: {self._text[:200]!r}")
        found = self.level(number)
        self._depth -= 1
        return found

    def string(self, wanted: str) -> str:
        """Consume a string literal, and return its value."""
        token = self.next
        if token.kind != "string":
            self.fail(wanted)
        self._position += 1
        return _unquoted(token.text)

    @property
    def is_negative(self) -> bool:
        """Whether a minus precedes the last token that was consumed."""
        return self._position > 1 and self._tokens[self._position - 2].text == "-"

    def primary(self) -> Expression:
        """Parse a literal, a name, or an expression in parentheses."""
        if self.take("("):
            found = self.inside(0)
            self.expect(")")
            return found._replace(literal=None)
        token = self.next
        read = PRIMARIES.get(token.text if token.kind == "word" else token.kind)
        if read is None:
            self.fail("a name, a literal or (")
        self._position += 1
        return read(self, token.text)


Level: TypeAlias = Callable[[Parser, int], Expression]


def _either(parts: tuple[Evaluate, ...]) -> Evaluate:
    return _joined(parts, decisive=True)


def _both(parts: tuple[Evaluate, ...]) -> Evaluate:
    return _joined(parts, decisive=False)


def _joined(parts: tuple[Evaluate, ...], *, decisive: bool) -> Evaluate:
    """Join conditions: a `decisive` value decides the result; otherwise an unknown one makes it unknown."""

    def evaluate(read: Evaluation) -> Value:
        result: bool | None = not decisive
        for part in parts:
            value = part(read)
            if value is decisive:
                return decisive
            if not isinstance(value, bool):
                result = None
        return result

    return evaluate


def _conditions(word: str, join: Callable[[tuple[Evaluate, ...]], Evaluate]) -> Level:
    """Return the level for conditions joined by a word."""

    def read(parser: Parser, number: int) -> Expression:
        first = parser.level(number + 1)
        parts = [first]
        while parser.take(word):
            parser.require(parts[-1], ValueKind.CONDITION)
            parts.append(parser.require(parser.level(number + 1), ValueKind.CONDITION))
        return (
            first if len(parts) == 1 else Expression(ValueKind.CONDITION, join(tuple(each.evaluate for each in parts)))
        )

    return read


def _negation(parser: Parser, number: int) -> Expression:
    if not parser.take("NOT"):
        return parser.level(number + 1)
    condition = parser.require(parser.inside(number), ValueKind.CONDITION).evaluate
    return Expression(ValueKind.CONDITION, lambda read: _negate(condition(read)))


def _predicate(parser: Parser, number: int) -> Expression:
    """Parse a comparison, or an operand with BETWEEN, IN, LIKE or IS."""
    left = parser.level(number + 1)
    sign = parser.take(*COMPARISONS)
    if sign is not None:
        return _comparison(parser, left, sign, parser.level(number + 1))
    is_negated = parser.next.text == "NOT" and parser.take("NOT") is not None
    word = parser.take("BETWEEN", "IN", "LIKE", *(() if is_negated else ("IS",)))
    if word is None:
        if is_negated:
            parser.fail("BETWEEN, IN or LIKE")
        return left
    if word != "BETWEEN" and (left.kind is not ValueKind.ANY or left.literal is None):
        parser.require(left._replace(kind=ValueKind.STRING if left.kind is ValueKind.ANY else left.kind), ValueKind.ANY)
    return Expression(ValueKind.CONDITION, PREDICATES[word](parser, number, left, is_negated))


def _comparison(parser: Parser, left: Expression, sign: str, right: Expression) -> Expression:
    if sign not in ("=", "<>"):  # Spec: strings and booleans are equal or not, and have no order
        parser.require(left, ValueKind.NUMBER)
        parser.require(right, ValueKind.NUMBER)
    compare, one, other = _compare(sign), left.evaluate, right.evaluate
    return Expression(ValueKind.CONDITION, lambda read: compare(one(read), other(read)))


def _between(parser: Parser, number: int, left: Expression, is_negated: bool) -> Evaluate:
    value = parser.require(left, ValueKind.NUMBER).evaluate
    low = parser.require(parser.level(number + 1), ValueKind.NUMBER).evaluate
    parser.expect("AND")
    high = parser.require(parser.level(number + 1), ValueKind.NUMBER).evaluate
    first, second = (_compare("<"), _compare(">")) if is_negated else (_compare(">="), _compare("<="))
    parts: tuple[Evaluate, ...] = (
        lambda read: first(value(read), low(read)),
        lambda read: second(value(read), high(read)),
    )
    return _either(parts) if is_negated else _both(parts)


def _in(parser: Parser, number: int, left: Expression, is_negated: bool) -> Evaluate:
    parser.expect("(")
    strings = {parser.string("a string")}
    while parser.take(","):
        strings.add(parser.string("a string"))
    parser.expect(")")
    return _of_string(left, lambda value, read: value in strings, is_negated)


def _like(parser: Parser, number: int, left: Expression, is_negated: bool) -> Evaluate:
    pattern, escape = parser.string("a string, the pattern,"), ""
    if parser.take("ESCAPE"):
        escape = parser.string("a string of one character")
        if len(escape) != 1:
            raise InvalidSelectorError(f"selector must have one character after ESCAPE, got {escape!r}")
    like = LikePattern(pattern, escape)

    def holds(value: str, read: Evaluation) -> bool:
        return (not like.has_search or read.may_search(len(value))) and like.matches(value)

    return _of_string(left, holds, is_negated)


def _of_string(left: Expression, holds: Callable[[str, Evaluation], bool], is_negated: bool) -> Evaluate:
    """Apply a test to a string: unknown for null, false (or true if negated) for other values."""
    evaluate = left.evaluate

    def ask(read: Evaluation) -> Value:
        value = evaluate(read)
        return None if value is None else (isinstance(value, str) and holds(value, read)) is not is_negated

    return ask


def _is(parser: Parser, number: int, left: Expression, is_negated: bool) -> Evaluate:
    is_not = parser.take("NOT") is not None
    parser.expect("NULL")
    evaluate = left.evaluate
    return lambda read: (evaluate(read) is None) is not is_not


PREDICATES: Final[Mapping[str, Callable[[Parser, int, Expression, bool], Evaluate]]] = {
    "BETWEEN": _between,
    "IN": _in,
    "LIKE": _like,
    "IS": _is,
}


def _arithmetic(*signs: str) -> Level:
    """Return the level for numbers joined by signs, evaluated from left to right."""

    def read(parser: Parser, number: int) -> Expression:
        first = parser.level(number + 1)
        rest: list[tuple[str, Evaluate]] = []
        while sign := parser.take(*signs):
            parser.require(first, ValueKind.NUMBER)
            rest.append((sign, parser.require(parser.level(number + 1), ValueKind.NUMBER).evaluate))
        return Expression(ValueKind.NUMBER, _calculation(first.evaluate, rest)) if rest else first

    return read


def _calculation(first: Evaluate, rest: list[tuple[str, Evaluate]]) -> Evaluate:
    def evaluate(read: Evaluation) -> Value:
        value = first(read)
        for sign, operand in rest:
            value = _calculate(sign, value, operand(read))
        return value

    return evaluate


def _sign(parser: Parser, number: int) -> Expression:
    sign = parser.take("+", "-")
    if sign is None:
        return parser.primary()
    evaluate = parser.require(parser.inside(number), ValueKind.NUMBER).evaluate
    return Expression(ValueKind.NUMBER, lambda read: _calculate(sign, 0, evaluate(read)))


GRAMMAR: Final[tuple[Level, ...]] = (
    _conditions("OR", _either),
    _conditions("AND", _both),
    _negation,
    _predicate,
    _arithmetic("+", "-"),
    _arithmetic("*", "/"),
    _sign,
)
"""The parsing function of each level; the operands of a level belong to the next one."""


# --- literals and names


def _constant(kind: ValueKind, value: Value) -> Expression:
    return Expression(kind, lambda read: value)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _exact(parser: Parser, text: str) -> Expression:
    """Parse a Java integer literal: decimal, octal after a 0, or hexadecimal after 0x."""
    digits = text.rstrip("lL").lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") and digits != "0" else 10
    try:
        value = int(digits, base)
    except ValueError:
        value = SMALLEST_LONG + 1
    if value >= SMALLEST_LONG + parser.is_negative:
        raise InvalidSelectorError(f"selector must have integers of at most 64 bits, as Java spells them, got {text}")
    return _constant(ValueKind.NUMBER, value)


def _approximate(parser: Parser, text: str) -> Expression:
    value = float(text.rstrip("fFdD"))
    if math.isinf(value):
        raise InvalidSelectorError(f"selector must have numbers that a double holds, got {text[:40]}")
    return _constant(ValueKind.NUMBER, value)


def _name(parser: Parser, text: str) -> Expression:
    if text.startswith("JMS") and text not in HEADERS and not text.startswith(PROPERTY_PREFIXES):
        known = ", ".join(HEADERS)
        raise InvalidSelectorError(f"selector must name no header but {known}, got {text}")
    return Expression(ValueKind.ANY, lambda read: read(text), text)


PRIMARIES: Final[Mapping[str, Callable[[Parser, str], Expression]]] = {
    "string": lambda parser, text: _constant(ValueKind.STRING, _unquoted(text)),
    "approximate": _approximate,
    "exact": _exact,
    "name": _name,
    "TRUE": lambda parser, text: _constant(ValueKind.CONDITION, True),
    "FALSE": lambda parser, text: _constant(ValueKind.CONDITION, False),
}
"""The parsing function for each kind of token, and for reserved words."""


# --- LIKE


class LikePiece:
    """A part of a pattern between two `%`: characters, of which `_` matches any one.

    Attributes:
        length: number of characters that it matches.
    """

    def __init__(self, characters: list[str | None]) -> None:
        """Create a piece from its characters, with None for any one."""
        self.length = len(characters)
        self._text = "".join(each or "" for each in characters)
        self._is_plain = None not in characters
        self._any = sum(1 << at for at, each in enumerate(characters) if each is None)
        self._places: dict[str, int] = {}
        for at, each in enumerate(characters):
            if each is not None:
                self._places[each] = self._places.get(each, self._any) | 1 << at

    def find(self, value: str, begin: int, end: int) -> int:
        """Return the first position where this matches within a part of a string, or -1.

        A piece with `_` is searched by the bitap algorithm (Baeza-Yates and Gonnet): all partial matches are followed
        at once, as bits of a number, with one step for each character.
        """
        if self._is_plain:
            return value.find(self._text, begin, end)
        state, whole = 0, 1 << (self.length - 1)
        for at in range(begin, end):
            state = (state << 1 | 1) & self._places.get(value[at], self._any)
            if state & whole:
                return at - self.length + 1
        return -1

    def fits(self, value: str, begin: int) -> bool:
        """Return whether this matches a string at a position."""
        end = begin + self.length
        return begin >= 0 and end <= len(value) and (not self.length or self.find(value, begin, end) == begin)


class LikePattern:
    """A pattern of LIKE: `%` is any text, `_` is any character, and a character after the escape is literal.

    Attributes:
        has_search: whether there is text between two `%`, which may be anywhere in a string.

    Raises:
        InvalidSelectorError: the pattern ends with the escape.
    """

    def __init__(self, pattern: str, escape: str = "") -> None:
        parts: list[list[str | None]] = [[]]
        characters = iter(pattern)
        for each in characters:
            if each == escape:
                escaped = next(characters, None)
                if escaped is None:
                    raise InvalidSelectorError(f"selector must escape a character, got the end of {pattern[:200]!r}")
                parts[-1].append(escaped)
            elif each == "%":
                parts.append([])
            else:
                parts[-1].append(None if each == "_" else each)
        self._first, *between, self._last = [LikePiece(each) for each in (parts if len(parts) > 1 else [*parts, []])]
        self._between = [each for each in between if each.length]
        self._is_open = len(parts) > 1
        self.has_search = bool(self._between)

    def matches(self, value: str) -> bool:
        """Return whether a string matches the pattern."""
        if not self._first.fits(value, 0):
            return False
        if not self._is_open:
            return len(value) == self._first.length
        at, end = self._first.length, len(value) - self._last.length
        for piece in self._between:
            found = piece.find(value, at, end)
            if found < 0:
                return False
            at = found + piece.length
        return at <= end and self._last.fits(value, end)
