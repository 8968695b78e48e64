"""Arguments as people type them, for programs that read them by `soapjms.zeep.words`."""

from __future__ import annotations

from pathlib import Path

import pytest
from zeep_kit import TYPES, gallery_wsdl, written

from brokers.embedded import Broker
from soapjms import UsageError
from soapjms.zeep import Client
from soapjms.zeep.words import arguments_of, read_json, read_words


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


def test_repeated_groups_and_wildcards(tmp_path: Path) -> None:
    """Their values stay as they are, at any depth; zeep has made their names."""
    inner = (
        '<xs:choice maxOccurs="9"><xs:element name="a" type="xs:int"/><xs:element name="b" type="xs:int"/></xs:choice>'
    )
    types = TYPES.replace('<xs:element name="year" type="xs:int"/>', inner)
    words = ["work._value_1.0.a=1", "work._value_1.1.b=2", "work.by=Ann"]
    with (
        Broker("words").connect() as connection,
        Client(written(tmp_path, gallery_wsdl(types=types)), connection=connection) as client,
    ):
        found = arguments_of(client.service._binding.get("hang"), read_words(words))
    assert found == ([], {"work": {"_value_1": [{"a": "1"}, {"b": "2"}], "by": "Ann"}})
