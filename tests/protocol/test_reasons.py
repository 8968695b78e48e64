"""Reasons of verdicts are sentences for people: no words of a programming language, no times as raw numbers."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from vector_kit import exchange_of, of_each_case, setting_of

from brokers.message import DeliveryMode, changed
from soapjms.protocol.assertions import Setting, Verdict, VerdictOutcome, judge
from soapjms.protocol.assertions.judge import mistake_of
from soapjms.protocol.text import TIME_PATTERN, counted, lasting, moment, reason_of, shown, with_article

NO_WORDS: Final = re.compile(r"\bNone\b|\bTrue\b|\bFalse\b|(?:^|\s)b['\"]|<string>|\(char |<\w+\.|\d{9}")
"""What only a programmer reads: Python's constants, its octets, a file of a parser, enumerations, and milliseconds."""


@of_each_case
def test_reasons_are_sentences(case: dict[str, Any], profile: str) -> None:
    """Of every assertion, whatever is missing or wrong."""
    for verdict in judge(exchange_of(case), setting_of(case, profile)):
        assert not NO_WORDS.search(verdict.reason or ""), verdict.reason


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        (7, "7"),
        (DeliveryMode.PERSISTENT, "2"),
        ("it's\n", '"it\'s\\n"'),
        (b"\xff\xfe<", r"'\xff\xfe<'"),
        (0.5, "0.5"),
        ("x" * 400, f"'{'x' * 299}…"),
    ],
)
def test_a_value_is_shown_as_text(value: object, text: str) -> None:
    """Texts and octets in quotes, anything else in plain words."""
    assert shown(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1 Jan 1970, 00:00:00 UTC"),
        (1_795_203_128_800, "20 Nov 2026, 19:32:08.800 UTC"),
        (-5000, "31 Dec 1969, 23:59:55 UTC"),
        (2**63 - 1, f"{2**63 - 1} ms after 1970"),
    ],
)
def test_a_time_is_written_in_words(milliseconds: int, text: str) -> None:
    """To the millisecond, if it has any; what no calendar has stays a number."""
    assert moment(milliseconds) == text
    assert (TIME_PATTERN.fullmatch(text) is None) is text.endswith("1970")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (60, "60 ms"),
        (1500, "1.5 s"),
        (-60_000, "-1 min"),
        (5_400_000, "1 h 30 min"),
        (90_061_001, "1 d 1 h 1 min 1.001 s"),
    ],
)
def test_a_duration_is_written_exactly(milliseconds: int, text: str) -> None:
    """In the units that people use."""
    assert lasting(milliseconds) == text
    assert TIME_PATTERN.fullmatch(text)


@pytest.mark.parametrize(("count", "text"), [(0, "0 records"), (1, "1 record"), (2000, "2,000 records")])
def test_things_are_counted(count: int, text: str) -> None:
    """One is singular, whatever is counted."""
    assert counted(count, "record") == text


def test_words_of_errors() -> None:
    """What the system and its libraries say, without numbers of errors and names of codecs."""
    for fails, words in (
        (lambda: Path("/nonexistent").read_bytes(), "No such file or directory"),
        (lambda: b"a\xff".decode(), "invalid start byte at octet 1"),
        (lambda: zlib.decompress(b"<a/>"), "incorrect header check"),
        (lambda: int("x"), "invalid literal for int() with base 10: 'x'"),
    ):
        with pytest.raises((OSError, ValueError, zlib.error)) as raised:
            fails()
        assert reason_of(raised.value) == words


@pytest.mark.parametrize(
    ("uri", "headers", "expected"),
    [
        (
            "jms:queue:q?targetService=a&targetService=b&priority=12",
            {"priority": 12, "delivery_mode": 7},
            [
                "the requestURI still holds targetService (2 times)",
                "the requestURI still holds priority",
                "JMSPriority is 12; it must be 0 to 9",
                "JMSDeliveryMode is 7; it must be 1 or 2",
                "targetService was set to 'b', the message has no SOAPJMS_targetService",
            ],
        ),
        (
            f"jms:jndi:q?{'&'.join(f'jndi-{number}=x' for number in range(22))}",
            {},
            [f"the requestURI still holds {', '.join(f'jndi-{number}' for number in range(20))} and 2 more"],
        ),
    ],
)
def test_what_a_request_breaks(uri: str, headers: dict[str, Any], expected: list[str]) -> None:
    """Each name once, and what is right as a demand."""
    exchange = exchange_of({"records": [{"base": "request", "properties": {"SOAPJMS_requestURI": uri}}]})
    assert exchange.request is not None
    message = changed(exchange.request.message, **headers)
    found = judge(replace(exchange, request=replace(exchange.request, message=message)), Setting())
    assert {*expected} <= {each.reason for each in found}


@pytest.mark.parametrize(
    ("uri", "given", "mistakes"),
    [
        ("jms:queue:orders?targetService=s", {}, {"Protocol-2009", "Protocol-2024"}),
        ("jms:queue:orders?targetService=s", {"targetService": "s"}, {"Protocol-2024"}),
        ("jms:queue:orders?targetService=s", {"targetService": "s", "SOAPJMS_targetService": "s"}, {"Protocol-2024"}),
        ("jms:queue:orders?targetService=s&replyToName=r", {}, {"Protocol-2009"}),
        ("jms:queue:orders", {}, set()),
    ],
)
def test_one_mistake_breaks_several_rules(uri: str, given: dict[str, str], mistakes: set[str]) -> None:
    """They are those that are mended with targetService in the URI, and nothing else states what was wanted."""
    sent = {"SOAPJMS_requestURI": uri, **{name: each for name, each in given.items() if name.startswith("SOAPJMS_")}}
    case = {
        "records": [{"base": "request", "properties": sent}],
        "setting": {"properties": {"targetService": given["targetService"]}} if "targetService" in given else {},
    }
    setting, earlier, found = setting_of(case, "rec-2012"), dict[str, Verdict](), set()
    for verdict in judge(exchange_of(case), setting):
        if verdict.outcome is VerdictOutcome.FAILED:
            if mistake_of(verdict, earlier, setting):
                assert mistake_of(verdict, earlier, setting) == "Protocol-2021"
                found.add(verdict.assertion)
            earlier[verdict.rule] = verdict
    assert found == mistakes


@pytest.mark.parametrize(("kind", "text"), [(int, "an int"), (str, "a str"), (OSError, "an OSError")])
def test_names_of_classes(kind: type, text: str) -> None:
    """Behind the article that people say."""
    assert with_article(kind) == text
