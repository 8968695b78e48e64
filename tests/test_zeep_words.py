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


def test_json_that_is_nested_too_deep_is_refused() -> None:
    """It is a mistake of who gives it, and said as one."""
    with pytest.raises(UsageError, match="--input is JSON that is nested too deep"):
        read_json("[" * 100_000, "--input")
    with pytest.raises(UsageError, match="what item is given is JSON that is nested too deep"):
        read_words(["item:=" + "[" * 100_000])
