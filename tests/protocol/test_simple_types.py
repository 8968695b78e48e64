"""The forms of texts of XML Schema's types, and the texts of Python's values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from lxml import etree

from soapjms.protocol.simple_types import FORMS, decimal_text, has_form, items_of, text_of, uncarried_character

DATES = [
    "2026-01-02", "2026-01-02Z", "2026-01-02+14:00", "2026-01-02-05:30", "12026-12-31", "-0044-03-15", "2026-13-01",
    "2026-00-01", "2026-01-32", "26-01-02", "20260102", "2026-W01-1", "2026-01-02+14:01", "2026-01-02+5:00", "2026-1-2",
    "2026-01-02T00:00:00", "2026-01-02T24:00:00", "2026-01-02T24:00:01", "2026-01-02T23:59:59.5Z",
    "2026-01-02T23:60:00", "2026-01-02T23:59", "2026-01-02 23:59:59", "23:59:59", "23:59:59.", "23:59:59+01:00",
    "1:2:3", "2026", "2026Z", "2026-01", "--01", "--13", "--1", "--01-02", "---02", "---32", "02026",
]  # fmt: skip
NUMBERS = [
    "1", "-1", "+1", "01", "1.", ".5", "-.5", "1.50", "1e3", "1E+3", ".5e-1", "NaN", "nan", "INF", "-INF", "inf",
    "Infinity", "1_000", "1,5", "--1", ".", "+", "", " 1 ", "\t1\r\n", "1 2", "true", "false", "0", "TRUE", "yes",
]  # fmt: skip
OTHERS = [
    "P1D", "-P1Y2M3DT4H5M6.7S", "PT1M", "P", "PT", "P1DT", "P1S", "P1W", "PT-1H", "P1.5D", "+P1D",
    "", "FF", "ff00", "F", "XY", "F F",
]  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    """They are what libxml2, too, says of such texts."""
    xs = "http://www.w3.org/2001/XMLSchema"
    schema = etree.XMLSchema(
        etree.fromstring(f'<s:schema xmlns:s="{xs}"><s:element name="a" type="s:{name}"/></s:schema>')
    )
    for text in (*DATES, *NUMBERS, *OTHERS):
        element = etree.Element("a")
        element.text = text
        assert has_form(text, name) is schema.validate(element), text


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("text", ["١", "٢٠٢٦", "１", "\u00a01", "1\u2003"])
def test_other_scripts(name: str, text: str) -> None:
    """Only the digits and the white space of ASCII count."""
    assert not has_form(text, name)


@pytest.mark.parametrize(("name", "text"), [("double", "1e"), ("float", "1e"), ("duration", "PT1.S")])
def test_stricter_than_libxml2(name: str, text: str) -> None:
    """What it accepts without digits has no form."""
    assert not has_form(text, name)


BERLIN = ZoneInfo("Europe/Berlin")
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (True, "true"),
        (-7, "-7"),
        (Decimal("1E+3"), "1000"),
        (1e-05, "1e-05"),
        (Decimal("Infinity"), "INF"),
        (Decimal("-Infinity"), "-INF"),
        (Decimal("NaN"), "NaN"),
        (Decimal("-sNaN"), "NaN"),
        (float("inf"), "INF"),
        (float("-inf"), "-INF"),
        (float("nan"), "NaN"),
        (MOMENT, "2026-01-02T03:04:05Z"),
        (MOMENT.date(), "2026-01-02"),
        (MOMENT.timetz(), "03:04:05Z"),
        (datetime.datetime(2026, 7, 2, 3, tzinfo=BERLIN), "2026-07-02T03:00:00+02:00"),
        (datetime.time(3, tzinfo=datetime.timezone(datetime.timedelta(hours=-5))), "03:00:00-05:00"),
        (object(), None),
        (None, None),
        (["a"], None),
    ],
)
def test_texts_of_values(value: object, text: str | None) -> None:
    """Each has the form of the type that is most like its own; other values have none."""
    assert text_of(value) == text


def test_a_time_without_a_day() -> None:
    """The offset of its time zone is unknown, and it is not left out."""
    with pytest.raises(ValueError, match="the time zone Europe/Berlin has no fixed offset"):
        text_of(datetime.time(12, tzinfo=BERLIN))


@pytest.mark.parametrize(
    ("text", "items"),
    [("1 2", ["1", "2"]), (" \t1\r\n2 ", ["1", "2"]), ("", []), (" ", []), ("1\u00a02\u20033", ["1\u00a02\u20033"])],
)
def test_items_of_lists(text: str, items: list[str]) -> None:
    """Only the white space of XML Schema is between them."""
    assert items_of(text) == items


@pytest.mark.parametrize(("value", "text"), [(1e-05, "0.00001"), (1e22, "1" + "0" * 22), (Decimal("-0.10"), "-0.10")])
def test_decimals(value: object, text: str) -> None:
    """They have no exponent."""
    assert decimal_text(value) == text


def test_what_is_no_decimal() -> None:
    """True is no number."""
    with pytest.raises(ArithmeticError):
        decimal_text(True)


@pytest.mark.parametrize(
    ("text", "character"), [("a\tb\r\n", None), ("", None), ("a\0\1", "\0"), ("\x0b", "\x0b"), ("😀\ufffe", "\ufffe")]
)
def test_characters_of_xml(text: str, character: str | None) -> None:
    """The first one that XML cannot hold."""
    assert uncarried_character(text) == character
