"""Message selectors: what they mean, which are none, and what they take."""

from __future__ import annotations

import inspect
import re
import sys
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers import InvalidSelectorError, Message, MessageType, Properties, Property, PropertyType, properties
from brokers.message import DeliveryMode
from brokers.selector import MAX_DEPTH, MAX_SEARCHED_CHARACTERS, MAX_SELECTOR_CHARACTERS, LikePattern, Selector

MESSAGE = Message(
    message_type=MessageType.TEXT,
    properties=Properties(
        [
            *properties({"name": "Ann O'Neill", "age": 17, "rate": 2.5, "paid": True, "void": False, "empty": ""}),
            *properties(
                {"nothing": None, "zero": 0, "minus": -7, "_a$1": 1, "größe": 3, "JMSXGroupID": "g", "digits": "5"}
            ),
            Property("octets", PropertyType.BYTES, "AAEC"),
        ]
    ),
    message_id="ID:1",
    correlation_id="c-1",
    delivery_mode=DeliveryMode.NON_PERSISTENT,
    priority=7,
    timestamp=1_700_000_000_000,
    type="order",
)

TRUE = """
name = 'Ann O''Neill' | name <> 'ann o''neill' | age = 17 | age = 17.0 | age >= 17 AND age <= 17 | age > 16
age < 17.5 | 17 = age | 16 < age | rate = 2.5 | rate < 3 | rate = 25E-1 | rate = .25e1 | 2. < rate | rate <> 2
paid | paid = TRUE | void = false | paid <> void | NOT void | not (age > 18) | NOT NOT paid | paid AND NOT void
void OR paid | void OR void OR paid | TRUE | true | (TRUE) | NOT FALSE | age BETWEEN 15 AND 19
age between 17 and 17 | age NOT BETWEEN 18 AND 19 | rate BETWEEN 2 AND 3 | age BETWEEN 10+5 AND 2*10
age + 1 BETWEEN 18 AND 18 | name LIKE 'Ann%' | name LIKE '%Neill' | name LIKE '%''%' | name LIKE 'A%O%N%l'
name LIKE 'Ann_O_Neill' | name LIKE '%n_O%' | name NOT LIKE 'ann%' | name LIKE '%' | empty LIKE '%' | empty LIKE ''
name NOT LIKE '' | digits IN ('4', '5') | digits NOT IN ('4') | name IN ('Ann O''Neill') | nothing IS NULL
absent IS NULL | age IS NOT NULL | empty IS NOT NULL | octets IS NOT NULL | age + 3 = 20 | age - 3 = 14
age * 2 = 34 | age / 2 = 8 | minus / 2 = -3 | age / 2.0 = 8.5 | -age = -17 | +age = 17 | - -age = 17
2 + 3 * 4 = 14 | (2 + 3) * 4 = 20 | 20 - 5 - 5 = 10 | 100 / 5 / 2 = 10 | 1 - -1 = 2 | 1/0.0 > 9e99 | age = 0x11
age = 021 | age = 17L | age = 17d | rate = 2.5F | zero = 0 | zero = 0L | minus = -7 | minus < 0 | _a$1 = 1
größe = 3 | JMSXGroupID = 'g' | -9223372036854775808 < 9223372036854775807
9223372036854775807 + 1.0 >= 9223372036854775807 | 3037000499 * 3037000499 > 0
JMSPriority = 7 | JMSPriority > 4 | JMSType = 'order'
JMSMessageID = 'ID:1' | JMSCorrelationID LIKE 'c-%' | JMSTimestamp > 1600000000000
JMSDeliveryMode = 'NON_PERSISTENT' | JMSDeliveryMode <> 'PERSISTENT' | JMSXDeliveryCount = 1 | JMS_vendor IS NULL
(name = 'x' OR age = 17) AND paid | name = 'x' OR age = 17 AND paid | NOT void AND paid | NOT (void AND paid)
(age = 17) = paid | age = 17 AND (absent IS NULL OR absent > 3) | paid OR absent = 1 | absent = 1 OR paid
NOT (digits = 5) | NOT (age = '17') | NOT (paid = 1) | NOT (name < 3) | age NOT IN ('17') | age NOT LIKE '1%'
"""
"""Spec: JMS 2.0, 3.8.1. The last are of values of other types: a comparison of those is false, its negation true."""

FALSE = """
name = 'x' | age = 18 | FALSE | NOT paid | age NOT BETWEEN 15 AND 19 | age BETWEEN 18 AND 15 | name LIKE 'Ann'
name LIKE 'Neill%' | name LIKE '_' | name LIKE 'Ann%Ann%' | digits IN ('4') | age IN ('17') | age LIKE '1%'
nothing IS NOT NULL | age IS NULL | digits = 5 | age = '17' | paid = 'true' | paid = 1 | age <> '17' | digits <> 5
digits < 6 | void AND absent = 1 | absent = 1 AND void | NOT (paid OR absent = 1) | octets = 'AAEC'
octets <> 'AAEC' | octets IN ('AAEC') | digits NOT BETWEEN 1 AND 2 | JMSXDeliveryCount > 1 | AGE = 17 AND FALSE
"""

UNKNOWN = """
absent = 1 | absent <> 1 | nothing = '' | absent < 1 | NOT absent = 1 | absent LIKE '%' | absent NOT LIKE 'x'
absent IN ('a') | absent NOT IN ('a') | absent BETWEEN 1 AND 2 | absent NOT BETWEEN 1 AND 2
age BETWEEN absent AND 99 | absent + 1 = 1 | age + absent > 0 | -absent < 0 | absent | NOT absent
paid AND absent = 1 | void OR absent = 1 | absent = absent | name + 1 = 1 | paid * 2 > 0 | age / 0 = 1 | AGE = 17
9223372036854775807 + 1 > 0 | -9223372036854775808 - 1 < 0 | - -9223372036854775808 > 0 | 3037000500 * 3037000500 > 0
-9223372036854775808 / -1 > 0 | 9223372036854775807 + 1 - 1 > 0 | name | age | NOT name | jmspriority = 7
"""


def cases(text: str) -> list[str]:
    """Return the selectors of a table, between which there are bars or ends of lines."""
    return [each.strip() for line in text.strip().splitlines() for each in line.split(" | ")]


@pytest.mark.parametrize("text", cases(TRUE))
def test_what_is_true(text: str) -> None:
    """It wants the message; its negation does not."""
    assert Selector(text).wants(MESSAGE)
    assert not Selector(f"NOT ({text})").wants(MESSAGE)


@pytest.mark.parametrize("text", cases(FALSE))
def test_what_is_false(text: str) -> None:
    """It does not want the message; its negation does."""
    assert not Selector(text).wants(MESSAGE)
    assert Selector(f"NOT ({text})").wants(MESSAGE)


@pytest.mark.parametrize("text", cases(UNKNOWN))
def test_what_is_unknown(text: str) -> None:
    """Neither it nor its negation wants the message."""
    assert not Selector(text).wants(MESSAGE)
    assert not Selector(f"NOT ({text})").wants(MESSAGE)


@pytest.mark.parametrize(("left", "right"), [*product(("TRUE", "FALSE", "absent"), repeat=2)])
def test_three_values(left: str, right: str) -> None:
    """AND and OR are those of SQL. Spec: JMS 2.0, 3.8.1.2."""
    values = {"TRUE": 2, "absent": 1, "FALSE": 0}
    for word, join in (("AND", min), ("OR", max)):
        value = join(values[left], values[right])
        assert Selector(f"{left} {word} {right}").wants(MESSAGE) is (value == 2)
        assert Selector(f"NOT ({left} {word} {right})").wants(MESSAGE) is (value == 0)


def test_without_words() -> None:
    """White space selects everything."""
    assert Selector("").wants(MESSAGE)
    assert Selector(" \t\n").wants(MESSAGE)
    assert Selector("name\t=\n'Ann O''Neill'\f").wants(MESSAGE)


def test_what_a_message_leaves_out() -> None:
    """A message that says nothing of its delivery mode is persistent; the count of deliveries is told."""
    message = Message(message_type=MessageType.MESSAGE)
    assert Selector("JMSDeliveryMode = 'PERSISTENT' AND JMSType IS NULL").wants(message)
    assert Selector("JMSXDeliveryCount = 3").wants(message, 3)


INVALID = {
    "=": "a name, a literal or ( here, got '=' at character 1",
    "age =": "a name, a literal or ( here, got the end",
    "age = 1 2": "an operator or the end here, got '2' at character 9",
    "age == 1": "a name, a literal or ( here, got '= 1' at character 6",
    "age = 1 AND": "a name, a literal or ( here, got the end",
    "(age = 1": ") here, got the end",
    "age = 1)": "an operator or the end here",
    "name = 'x": "names, literals and operators, got",
    'name = "x"': "names, literals and operators, got",
    "name ! 'x'": "names, literals and operators, got",
    "name LIKE 5": "a string, the pattern, here, got '5'",
    "name LIKE other": "a string, the pattern, here",
    "name LIKE 'a' ESCAPE 'ab'": "one character after ESCAPE, got 'ab'",
    "name LIKE 'a' ESCAPE ''": "one character after ESCAPE, got ''",
    "name LIKE 'a!' ESCAPE '!'": "escape a character, got the end of 'a!'",
    "'a' LIKE 'a'": "a name, got a string",
    "age + 1 IS NULL": "a name, got a number",
    "1 IN ('a')": "a name, got a number",
    "(age) IN ('a')": "a name, got",
    "name IN ()": "a string here, got ')'",
    "name IN (1)": "a string here, got '1)'",
    "name IN 'a'": "( here",
    "name IS 'a'": "NULL here",
    "name NOT IS NULL": "BETWEEN, IN or LIKE here, got 'IS NULL'",
    "name NOT = 'a'": "BETWEEN, IN or LIKE here",
    "age BETWEEN 1": "AND here, got the end",
    "age BETWEEN 'a' AND 'b'": "a number, got a string",
    "name > 'a'": "a number, got a string",
    "paid < TRUE": "a number, got a condition",
    "'a'": "a condition, got a string",
    "5": "a condition, got a number",
    "age + 1": "a condition, got a number",
    "paid AND 1": "a condition, got a number",
    "1 OR paid": "a condition, got a number",
    "NOT 1": "a condition, got a number",
    "'a' + 1 = 2": "a number, got a string",
    "-'a' = 2": "a number, got a string",
    "TRUE + 1 = 2": "a number, got a condition",
    "age = 1 = TRUE": "an operator or the end here",
    "NULL = 1": "a name, a literal or ( here, got 'NULL = 1'",
    "age = NULL": "a name, a literal or ( here",
    "between = 1": "a name, a literal or ( here",
    "9223372036854775808 = 1": "integers of at most 64 bits",
    "08 = 8": "integers of at most 64 bits, as Java spells them, got 08",
    "1e999 > 1": "numbers that a double holds",
    "12abc = 1": "a condition, got a number before 'abc = 1'",
    "a.b = 1": "names, literals and operators, got '.b = 1'",
    "JMSDestination = 'q'": "no header but JMSDeliveryMode, JMSPriority",
    "JMSRedelivered": "no header but",
    ";": "names, literals and operators",
}


@pytest.mark.parametrize("text", INVALID)
def test_what_is_no_selector(text: str) -> None:
    """The error says what should be where, and what is there."""
    with pytest.raises(InvalidSelectorError, match="selector must ") as caught:
        Selector(text)
    assert INVALID[text] in str(caught.value)


def test_an_escape() -> None:
    """What follows the escape is itself. Spec: JMS 2.0, 3.8.1.1 (LIKE)."""
    for text, values in (
        (r"a LIKE '\_%' ESCAPE '\'", {"_foo": True, "bar": False}),
        ("a LIKE '10!%' ESCAPE '!'", {"10%": True, "100": False}),
        ("a LIKE '!!_' ESCAPE '!'", {"!x": True, "!_": True, "xx": False}),
        ("a LIKE '%!%%' ESCAPE '!'", {"5% of": True, "5 of": False}),
        ("a LIKE '%%' ESCAPE '%'", {"%": True, "x": False}),
    ):
        for value, wanted in values.items():
            message = Message(message_type=MessageType.MESSAGE, properties=properties({"a": value}))
            assert Selector(text).wants(message) is wanted, (text, value)


@given(st.text("ab_%", max_size=12), st.text("ab\n", max_size=14))
def test_patterns_are_as_regular_expressions(pattern: str, value: str) -> None:
    """LIKE is what a regular expression would say, without its time."""
    told = "".join({"%": ".*", "_": "."}.get(each, each) for each in pattern)
    assert LikePattern(pattern).matches(value) is bool(re.fullmatch(told, value, re.DOTALL))


@given(st.text(alphabet="ab'1.0 ()=<>+-*/,%$xXeELNOTANDORINISLIKE", max_size=40) | st.text(max_size=40))
def test_any_text(text: str) -> None:
    """It is a selector or it is none; nothing else is raised."""
    try:
        selector = Selector(text)
    except InvalidSelectorError:
        return
    selector.wants(MESSAGE)


def test_limits() -> None:
    """Length and depth are bounded, and what is within the bounds can be asked."""
    with pytest.raises(
        InvalidSelectorError, match=f"selector must have {MAX_SELECTOR_CHARACTERS} characters at most, got 8193"
    ):
        Selector("a" * (MAX_SELECTOR_CHARACTERS + 1))
    for deep in (
        "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
        "NOT " * (MAX_DEPTH + 1) + "a",
        "1 = " + "-" * 51 + "1",
    ):
        with pytest.raises(InvalidSelectorError, match="nested 50 deep at most"):
            Selector(deep)
    assert Selector("(" * MAX_DEPTH + "age = 17" + ")" * MAX_DEPTH).wants(MESSAGE)
    assert Selector("(NOT (" * 12 + "age + (1) = 18 AND (TRUE)" + "))" * 12).wants(MESSAGE)
    assert Selector(" OR ".join(["age=1"] * 800) + " OR age=17").wants(MESSAGE)
    assert Selector("+".join(["1"] * 4000) + "=4000").wants(MESSAGE)


def below(frames: int, text: str) -> Selector:
    """Read a selector with so many calls more on the stack."""
    return below(frames - 1, text) if frames else Selector(text)


def test_a_deep_stack() -> None:
    """What is nested too deep for the stack of the caller is no selector there; nothing else is raised."""
    deep = "(" * MAX_DEPTH + "age = 17" + ")" * MAX_DEPTH
    assert Selector(deep).wants(MESSAGE)
    room = sys.getrecursionlimit() - len(inspect.stack())
    with pytest.raises(InvalidSelectorError, match="selector must be nested less deep, because its caller's stack"):
        below(room - 200, deep)
    assert below(room - 200, "age = 17").wants(MESSAGE)


HOSTILE = {
    "many wildcards": ("%a" * 2000 + "b", "a" * 100_000),
    "a long piece": ("%" + "a" * 4000 + "b%", "a" * 100_000),
    "a long piece with one that is any": ("%" + "a_" * 2000 + "b%", "a" * 100_000),
    "pieces with any": ("%a_" * 1300, "a" * 100_000),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_time(what: str) -> None:
    """A pattern takes time in proportion to what it is asked of; the naive way would take minutes, or for ever."""
    pattern, value = HOSTILE[what]
    asked = LikePattern(pattern)
    began = time.process_time()
    asked.matches(value)
    assert time.process_time() - began < 2.0


def long(value: str) -> Message:
    """Make a message with a string."""
    return Message(message_type=MessageType.MESSAGE, properties=properties({"a": value}))


MANY = " OR ".join(["a LIKE '%_b%'"] * 400)


def test_what_is_searched_for_one_message() -> None:
    """It is bounded, over all LIKEs: beyond that the selector is unknown, however it goes on."""
    for text in (MANY, f"NOT ({MANY})", f"{MANY} OR TRUE"):
        asked, message = Selector(text), long("a" * 100_000)
        began = time.process_time()
        assert not asked.wants(message)
        assert time.process_time() - began < 1.0
    room = MAX_SEARCHED_CHARACTERS // 2
    twice = Selector("a LIKE '%b%' OR a LIKE '%a_%'")
    for _ in range(2):  # each evaluation has all of it
        assert twice.wants(long("a" * room))
        assert not twice.wants(long("a" * (room + 1)))


def test_beginnings_and_ends_of_long_strings() -> None:
    """They are seen without a search, and so of strings of any length."""
    message = long("a" * 100_000 + "b")
    for text in ("a LIKE 'a%'", "a LIKE '_a%b'", "a LIKE '%_b'", "a NOT LIKE 'b%'", "a LIKE '%'", "a <> 'x'"):
        assert Selector(" AND ".join([text] * 100)).wants(message)


def test_a_message_with_many_properties() -> None:
    """They are gone through once, however many names the selector has."""
    message = Message(
        message_type=MessageType.MESSAGE, properties=properties({f"p{each}": 1 for each in range(20_000)})
    )
    asked = Selector(" OR ".join(f"p{19_000 + each} = 2" for each in range(500)))
    began = time.process_time()
    assert not asked.wants(message)
    assert time.process_time() - began < 0.5


def test_long_products() -> None:
    """Integers have 64 bits, so a product of many takes no longer than its length: with more it is unknown."""
    message = Message(message_type=MessageType.MESSAGE, properties=properties({"a": 2**31, "b": 1}))
    asked = Selector("*".join(["a"] * 4090) + " <> 0")
    began = time.process_time()
    assert not any(asked.wants(message) for _ in range(20))
    assert time.process_time() - began < 0.3
    assert Selector("*".join(["b"] * 4090) + " = 1").wants(message)
