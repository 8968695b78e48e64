"""Arguments as people type them, for programs that read them by `soapjms.zeep.words`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from typed_kit import NS, shop_wsdl
from zeep_kit import TYPES, gallery_wsdl, written

from brokers.embedded import Broker
from soapjms import UsageError
from soapjms.zeep import Client
from soapjms.zeep.words import arguments_of, plain_result, read_json, read_words


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


TEXTS = {
    "string": "a",
    "boolean": "true",
    "int": "7",
    "decimal": "0.00000010",
    "double": "INF",
    "date": "2026-01-02",
    "time": "12:30:00",
    "dateTime": "2026-01-01T12:30:00Z",
    "duration": "P1DT2H",
    "gYear": "2026",
    "gMonthDay": "--01-02",
    "base64Binary": "AQID",
    "hexBinary": "0AFF",
    "NMTOKENS": "a b",
    "days": "2026-01-02 2026-01-03",
}
DAYS = '<xs:simpleType><xs:list itemType="xs:date"/></xs:simpleType>'


def member(name: str, more: str = "") -> str:
    """Write an element that is called as its type."""
    if name == "days":
        return f'<xs:element name="days" {more}>{DAYS}</xs:element>'
    return f'<xs:element name="{name}" type="xs:{name}" {more}/>'


def price(folder: Path, kind: str) -> Any:
    """Return the operation of a WSDL that takes and returns an element of the same type."""
    text = shop_wsdl()
    for name, old in (("price", "b:Code"), ("priced", "xs:decimal")):
        text = text.replace(
            f'<xs:element name="{name}" type="{old}"/>', f'<xs:element name="{name}">{kind}</xs:element>'
        )
    with Broker("words").connect() as connection, Client(written(folder, text), connection=connection) as client:
        return client.service._binding.get("price")


def result_of(operation: Any, content: str) -> Any:
    """Return the plain result of a response."""
    soap = "http://schemas.xmlsoap.org/soap/envelope/"
    body = f'<e:Envelope xmlns:e="{soap}"><e:Body><priced xmlns="{NS}">{content}</priced></e:Body></e:Envelope>'
    return plain_result(operation, operation.process_reply(etree.fromstring(body)))


def test_results_are_given_back_as_arguments(tmp_path: Path) -> None:
    """Each value has the text of its type, or a type of JSON, and is taken again."""
    attribute = '<xs:attribute name="since" type="xs:dateTime"/>'
    members = "".join(member(each) for each in TEXTS)
    operation = price(tmp_path, f"<xs:complexType><xs:sequence>{members}</xs:sequence>{attribute}</xs:complexType>")
    content = "".join(f"<{name}>{text}</{name}>" for name, text in TEXTS.items())
    found = result_of(operation, content)
    natives = {"boolean": True, "int": 7, "days": ["2026-01-02", "2026-01-03"], "since": None}
    assert found == TEXTS | natives
    _, values = arguments_of(operation, found)
    written_ = operation.create(**values).content
    assert [each.text for each in next(written_.iter(f"{{{NS}}}price"))] == list(TEXTS.values())


@pytest.mark.parametrize(
    ("members", "content", "result"),
    [
        (member("gYear"), "<gYear>2026</gYear>", "2026"),
        (member("gYear", 'maxOccurs="9"'), "<gYear>2026</gYear><gYear>2027</gYear>", ["2026", "2027"]),
        (member("days"), "<days>2026-01-02</days>", ["2026-01-02"]),
        (
            f'<xs:choice maxOccurs="9">{member("gYear")}{member("date")}</xs:choice>',
            "<gYear>2026</gYear><date>2026-01-02</date>",
            [{"gYear": "2026"}, {"date": "2026-01-02"}],
        ),
        (
            f'<xs:element name="in"><xs:complexType><xs:sequence>{member("duration")}</xs:sequence></xs:complexType>'
            "</xs:element>",
            "<in><duration>PT2H</duration></in>",
            "PT2H",
        ),
        (member("anyType"), '<anyType xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:nil="true"/>', None),
    ],
)
def test_a_single_value_as_a_result(tmp_path: Path, members: str, content: str, result: Any) -> None:
    """zeep returns it without the elements around it."""
    operation = price(tmp_path, f"<xs:complexType><xs:sequence>{members}</xs:sequence></xs:complexType>")
    assert result_of(operation, content) == result


def test_values_whose_type_is_unknown(tmp_path: Path) -> None:
    """They have the texts of their types in Python."""
    operation = price(tmp_path, f"<xs:complexType><xs:sequence>{member('anyType')}</xs:sequence></xs:complexType>")
    assert plain_result(operation, [b"\1\2\3", Decimal("1E-7"), 2.5]) == ["AQID", "0.0000001", 2.5]
