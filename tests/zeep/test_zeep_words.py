"""Arguments as people type them, for programs that read them by `soapjms.zeep.words`."""

from __future__ import annotations

import pytest

from soapjms import UsageError
from soapjms.zeep.words import read_json, read_words


def test_given_values_stay_as_they_are() -> None:
    """Words are added to a copy, however deep: who has default arguments uses them again."""
    given = {"item": {"article": "A1"}, "note": ["first"], "deep": [{"of": {"it": 1}}]}
    assert read_words(["item.pieces=2", "note=second"], given) == {
        "item": {"article": "A1", "pieces": "2"},
        "note": ["first", "second"],
        "deep": [{"of": {"it": 1}}],
    }
    assert given == {"item": {"article": "A1"}, "note": ["first"], "deep": [{"of": {"it": 1}}]}


@pytest.mark.parametrize("depth", [101, 300, 600, 990, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deep_is_one_error(opening: str, closing: str, depth: int) -> None:
    """However it is given: as JSON, as a value of a word, or by the path of one; and however deep it is."""
    text = opening * depth + "1" + closing * depth
    for read in (
        lambda: read_json(text, "--input"),
        lambda: read_words([f"item:={text}"]),
        lambda: read_words([".".join("a" * (depth + 2)) + "=1"]),
    ):
        with pytest.raises(UsageError, match="nested too deep: accepted are 100 levels of lists and objects"):
            read()


def test_what_is_not_nested_too_deep() -> None:
    """A hundred levels are taken, and given again."""
    values = read_json("[" * 100 + "1" + "]" * 100, "--input")
    assert read_words(["other=x"], {"item": values}) == {"item": values, "other": "x"}
    assert read_words(["item:=" + "[" * 100 + "1" + "]" * 100]) == {"item": values}


def test_json_that_is_nested_too_deep_is_refused() -> None:
    """It is a mistake of who gives it, and said as one."""
    with pytest.raises(UsageError, match="--input is JSON that is nested too deep"):
        read_json("[" * 100_000, "--input")
    with pytest.raises(UsageError, match="the value of item is JSON that is nested too deep"):
        read_words(["item:=" + "[" * 100_000])
