"""What is written of dicts, lists and choices: all that is given, or an error that names it, and nothing is sent; and
what is read: all that is valid, so that it can be written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pytest
import zeep
import zeep.exceptions
from calling_kit import answer_to, responder
from codegen_kit import BANK
from lxml import etree
from zeep import xsd
from zeep.xsd import Schema
from zeep.xsd.context import XmlParserContext

from brokers import Connection, queue
from brokers.embedded import Broker
from soapjms import Dispatcher, Service
from soapjms.protocol.envelope import XSI
from soapjms.service.typed import TypedService
from soapjms.zeep import ArgumentsError, Client
from soapjms.zeep.declarations import Declarations
from soapjms.zeep.repairs import repair

TYPES: Final = """
  <xs:complexType name="Account"><xs:sequence><xs:element name="iban" type="xs:string"/>
    <xs:element name="owner" type="xs:string" minOccurs="0"/></xs:sequence>
    <xs:attribute name="currency" type="xs:string" default="EUR"/></xs:complexType>
  <xs:complexType name="Money"><xs:simpleContent><xs:extension base="xs:int">
    <xs:attribute name="currency" type="xs:string" default="EUR"/></xs:extension></xs:simpleContent></xs:complexType>
  <xs:complexType name="Names"><xs:sequence><xs:element name="name" type="xs:string" maxOccurs="unbounded"/>
    </xs:sequence></xs:complexType>
  <xs:complexType name="Open"><xs:sequence><xs:any/></xs:sequence></xs:complexType>
  <xs:complexType name="Empty"/>
  <xs:complexType name="Loose"><xs:sequence><xs:element name="x" type="xs:int" minOccurs="0"/></xs:sequence>
    </xs:complexType>
  <xs:simpleType name="Numbers"><xs:list itemType="xs:int"/></xs:simpleType>
  <xs:group name="Spot"><xs:sequence><xs:element name="a" type="xs:int"/><xs:choice><xs:element name="p" type="xs:int"/>
    <xs:element name="q" type="xs:int"/></xs:choice></xs:sequence></xs:group>
  <xs:element name="global" type="xs:int"/>"""


def el(name: str, more: str = "", type_: str = "xs:int") -> str:
    """Write an element of a schema; `?` makes it optional, `*` and a number let it be repeated."""
    numbers = {"?": 'minOccurs="0"', "*": 'minOccurs="0" maxOccurs="unbounded"', "": ""}
    return f'<xs:element name="{name}" type="{type_}" {numbers.get(more, more)}/>'


def group(kind: str, *members: str, more: str = "") -> str:
    """Write a group of elements."""
    numbers = {"?": 'minOccurs="0"', "*": 'minOccurs="0" maxOccurs="unbounded"', "2": 'maxOccurs="2"', "": ""}
    return f"<xs:{kind} {numbers[more]}>{''.join(members)}</xs:{kind}>"


def choice(*members: str, more: str = "") -> str:
    """Write a choice."""
    return group("choice", *members, more=more)


def sequence(*members: str, more: str = "") -> str:
    """Write a sequence."""
    return group("sequence", *members, more=more)


def element_of(content: str) -> Any:
    """Return the repaired element of a schema."""
    text = (
        '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="urn:t" targetNamespace="urn:t">'
        f'{TYPES}<xs:element name="r"><xs:complexType>{content}</xs:complexType></xs:element></xs:schema>'
    )
    schema, declarations = zeep.xsd.Schema(etree.fromstring(text)), Declarations()
    declarations.add(etree.fromstring(text))
    repair(schema, (), declarations)
    return schema.get_element("{urn:t}r")  # type: ignore[no-untyped-call]


def written(content: str, *values: Any, **named: Any) -> str:
    """Return the XML that an element writes, without its own tags."""
    element, holder = element_of(content), etree.Element("holder")
    element.render(holder, element(*values, **named))
    return "".join(etree.tostring(each, encoding="unicode").replace(' xmlns:ns0="urn:t"', "") for each in holder[0])


A = {"iban": "1"}
TO = sequence(el("to", type_="Account"))
MANY = sequence(el("to", "*", "Account"))
ONE_EUR = '<to currency="EUR"><iban>1</iban></to>'


@pytest.mark.parametrize(
    ("content", "value", "text"),
    [
        (TO, A, ONE_EUR),
        (MANY, A, ONE_EUR),
        (MANY, [A, A], ONE_EUR * 2),
        (MANY, [], ""),
        (sequence(el("to", type_="Money")), 3, '<to currency="EUR">3</to>'),
        (sequence(el("to", type_="Money")), {"_value_1": 3, "currency": "CHF"}, '<to currency="CHF">3</to>'),
        (sequence(el("to", type_="Names")), {"name": ["1", "2"]}, "<to><name>1</name><name>2</name></to>"),
        (sequence(el("to", type_="Open")), etree.Element("other"), "<to><other/></to>"),
        (sequence(el("to", type_="Empty")), {}, "<to/>"),
        (sequence(el("to", "?", "Account")), None, ""),
    ],
)
def test_values_of_complex_types(content: str, value: Any, text: str) -> None:
    """They are written as a whole, by name and by position."""
    assert written(content, to=value) == text
    assert written(content, value) == text


@pytest.mark.parametrize(
    ("content", "value", "said"),
    [
        *((TO, [A] * number, f"r.to must be one value, got a list of {number}") for number in range(3)),
        (sequence(el("to", type_="Money")), [3, 4], "r.to must be one value, got a list of 2"),
        (sequence(el("to", type_="Names")), ["1", "2"], "r.to must be one value, got a list of 2"),
        (sequence(el("to", "?", "Account")), [], "r.to must be one value, got a list of 0"),
        (MANY, [A, [A, A]], "r.to must be one value, got a list of 2"),
        *((each, False, "r.to must be a dict of iban, owner, currency, got false") for each in (TO, MANY)),
        (TO, "DE2", "r.to must be a dict of iban, owner, currency, got 'DE2'"),
        (MANY, (A, A), "r.to must be a dict of iban, owner, currency, got "),
        (sequence(el("to", type_="Empty")), "x", "r.to must be a dict of no members, got 'x'"),
        *((each, A | {"ownr": "A"}, "unexpected keyword argument 'ownr'") for each in (TO, MANY)),
    ],
)
def test_values_that_are_none_of_a_complex_type(content: str, value: Any, said: str) -> None:
    """No value is dropped, however it is given."""
    with pytest.raises(TypeError, match=said):
        written(content, to=value)
    with pytest.raises(TypeError, match=said):
        written(content, value)


PLAIN = choice(el("a"), el("b"))
SEQUENCES = choice(sequence(el("a"), el("x", "?")), sequence(el("b"), el("x")))
REPEATED = choice(el("a"), sequence(el("b"), el("x", "?")), more="*")
OPEN = choice(el("a"), '<xs:any namespace="##other"/>')


@pytest.mark.parametrize(
    ("content", "values", "text"),
    [
        (PLAIN, {"a": 0}, "<a>0</a>"),
        (PLAIN, {"a": None, "b": 2}, "<b>2</b>"),
        (choice(el("a", 'nillable="true"'), el("b")), {"a": xsd.Nil}, '<a xmlns:xsi="{xsi}" xsi:nil="true"/>'),
        (choice(el("a"), el("b"), more="?"), {}, ""),
        (choice(el("a", "?"), el("b")), {}, ""),
        (choice('<xs:element ref="global" minOccurs="0"/>', el("b")), {}, ""),
        (choice(sequence(el("a", "?"), el("x", "?")), el("b")), {}, ""),
        (choice(choice(el("a"), el("b"), more="?"), el("c")), {}, ""),
        (choice(), {}, ""),
        (sequence(el("z"), sequence(PLAIN, more="?")), {"z": 1}, "<z>1</z>"),
        (sequence(el("z"), sequence(el("y"), PLAIN, more="?")), {"z": 1}, "<z>1</z>"),
        (sequence(el("z"), sequence(el("y"), PLAIN, more="*")), {"z": 1}, "<z>1</z>"),
        (sequence(el("z"), '<xs:group ref="Spot" minOccurs="0"/>'), {"z": 1}, "<z>1</z>"),
        (sequence('<xs:group ref="Spot" minOccurs="0" maxOccurs="2"/>'), {}, ""),
        (sequence('<xs:group ref="Spot" maxOccurs="2"/>'), {"_value_1": {"a": 1, "q": 2}}, "<a>1</a><q>2</q>"),
        (choice('<xs:group ref="Spot"/>', el("b")), {"a": 1, "p": 2}, "<a>1</a><p>2</p>"),
        (SEQUENCES, {"a": 1}, "<a>1</a>"),
        (SEQUENCES, {"b": 1, "x": 2}, "<b>1</b><x>2</x>"),
        (choice(sequence(el("a"), el("x", "?")), sequence(el("x"))), {"x": 1}, "<x>1</x>"),
        (choice(sequence(el("a", "*"), el("x", "?")), el("b")), {"a": [], "b": 1}, "<b>1</b>"),
        (sequence(PLAIN, choice(el("c"), el("d"))), {"b": 1, "c": 2}, "<b>1</b><c>2</c>"),
        (REPEATED, {}, ""),
        (REPEATED, {"_value_1": {"a": 1}}, "<a>1</a>"),
        (REPEATED, {"_value_1": [{"b": 1, "x": 2}, {"a": 3}]}, "<b>1</b><x>2</x><a>3</a>"),
        (REPEATED, {"_value_1": [{"_value_1": {"b": 1, "x": 2}}]}, "<b>1</b><x>2</x>"),
        (
            choice(el("to", type_="Account"), el("b"), more="2"),
            {"_value_1": [{"to": A}, {"b": 1}]},
            ONE_EUR + "<b>1</b>",
        ),
        (OPEN, {"_value_1": etree.Element("other")}, "<other/>"),
        (OPEN.replace(" >", ' maxOccurs="2">'), {"_value_1": [etree.Element("other"), {"a": 1}]}, "<other/><a>1</a>"),
    ],
)
def test_choices(content: str, values: dict[str, Any], text: str) -> None:
    """The alternative that has values is written; a choice that may be empty is left out."""
    assert written(content, **values) == text.replace("{xsi}", "http://www.w3.org/2001/XMLSchema-instance")


@pytest.mark.parametrize(
    ("content", "values", "said"),
    [
        (PLAIN, {"a": 1, "b": 2}, "r: give a or b, not both"),
        (PLAIN, {"a": 0, "b": 2}, "r: give a or b, not both"),
        (SEQUENCES, {"a": 1, "b": 2, "x": 3}, "r: give a and x or b, not both"),
        (choice(PLAIN, el("c")), {"a": 1, "c": 2}, "r: give a or c, not both"),
        (OPEN, {"a": 1, "_value_1": etree.Element("other")}, "r: give a or _value_1, not both"),
        (sequence(PLAIN, more="*"), {"_value_1": [{"a": 1, "b": 2}]}, "r: give a or b, not both"),
        (sequence(PLAIN, more="2"), {"_value_1": [{"a": 1}] * 3}, "^a, b may occur 2 times, got 3"),
        (sequence('<xs:group ref="Spot" maxOccurs="2"/>'), {"_value_1": [{"a": 1, "p": 1}] * 3}, "a, p, q may occur 2"),
        (choice(el("a"), el("b"), more="2"), {"_value_1": [{"a": 1}] * 3}, "r: a or b may occur 2 times, got 3"),
        (REPEATED, {"_value_1": [{"a": 1, "b": 2}]}, "r: give a or b, not both"),
        (REPEATED, {"_value_1": [{"a": 1, "y": 2}]}, "r: there is no 'y'; there are: a, b, x"),
        (REPEATED, {"_value_1": [{"y": 2}]}, "r: there is no 'y'; there are: a, b, x"),
        (REPEATED, {"_value_1": ["a"]}, r"r must have dicts with a or \(b, x\), got 'a'"),
        (choice(el("to", type_="Account"), more="*"), {"_value_1": [{"to": A | {"ownr": "A"}}]}, "argument 'ownr'"),
        (choice(el("to", type_="Account"), more="*"), {"_value_1": [{"to": [A, A]}]}, "r.to must be one value"),
    ],
)
def test_values_that_a_choice_has_no_use_for(content: str, values: dict[str, Any], said: str) -> None:
    """None is dropped."""
    with pytest.raises(TypeError, match=said):
        written(content, **values)


@pytest.mark.parametrize(
    ("content", "values", "said"),
    [
        (PLAIN, {}, "Missing choice: give a or b (r)"),
        (PLAIN, {"a": None}, "Missing choice: give a or b (r)"),
        (SEQUENCES, {}, "Missing choice: give (a, x) or (b, x) (r)"),
        (sequence(el("z", "?"), PLAIN), {}, "Missing choice: give a or b (r)"),
        (sequence(el("y"), PLAIN, more="?"), {"y": 1}, "Missing choice: give a or b (r)"),
        (sequence(el("y"), PLAIN, more="*"), {"_value_1": [{"y": 1}]}, "Missing choice: give a or b (r)"),
        (sequence('<xs:group ref="Spot" minOccurs="0"/>'), {"a": 1}, "Missing choice: give p or q (r)"),
        (choice(sequence(el("y"), PLAIN), el("c")), {"y": 1}, "Missing choice: give a or b (r)"),
        (choice(el("a"), el("b"), more="2"), {}, "a or b must occur at least 1 times, got 0 (r)"),
        (REPEATED, {"_value_1": [{"b": None}]}, "Missing choice: give a or (b, x) (r)"),
        (sequence(sequence(el("a"), el("b"), more="?")), {"a": 1}, "Missing element b (r.b)"),
    ],
)
def test_choices_that_are_missing(content: str, values: dict[str, Any], said: str) -> None:
    """They are errors like those of missing elements."""
    with pytest.raises(zeep.exceptions.ValidationError) as caught:
        written(content, **values)
    assert str(caught.value) == said


def test_objects_with_values_set_later() -> None:
    """They are checked as well as arguments."""
    element = element_of(sequence(el("to", type_="Account"), choice(el("a"), el("b")), REPEATED))
    found = element(to=A, a=1)
    found.b = 2
    with pytest.raises(ArgumentsError, match="r: give a or b, not both"):
        element.render(etree.Element("holder"), found)
    found.b, found.to, found._value_1 = None, A, [{"a": 1, "b": 2}]
    with pytest.raises(ArgumentsError, match="r: give a or b, not both"):
        element.render(etree.Element("holder"), found)
    found._value_1, holder = [{"a": 1}], etree.Element("holder")
    element.render(holder, found)
    assert [each.tag for each in holder[0]] == ["to", "a", "a"]
    assert holder[0][0].get("currency") == "EUR"


def test_values_of_an_object_that_are_given_again() -> None:
    """zeep's own values for what is missing are none, at any depth."""
    repeated = sequence(el("y"), el("preset", 'default="7"'), more="*")
    for content in (
        sequence(repeated),
        sequence(REPEATED),
        sequence('<xs:group ref="Spot" minOccurs="0" maxOccurs="2"/>'),
    ):
        element = element_of(content)
        assert written(content, **element().__values__) == ""
    with pytest.raises(TypeError, match="_value_1"):
        written(sequence(repeated), _value_1={"_value_1": {"y": 1}})


# Read


def read(content: str | Any, text: str, attributes: str = "") -> Any:
    """Return the object of an element with some XML in it."""
    element = element_of(content) if isinstance(content, str) else content
    root = etree.fromstring(f'<t:r xmlns:t="urn:t" xmlns:xsi="{XSI[1:-1]}" {attributes}>{text}</t:r>')
    return element.parse(root, Schema(None), context=XmlParserContext())


OR_ELSE = choice(sequence(el("a"), el("b", "?")), sequence(el("c"), el("d"), el("b")))
NIL = '<a xsi:nil="true"/>'


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (sequence(sequence(el("a"), el("b"), more="?"), el("z")), ["Z", "ABZ"]),
        (sequence(sequence(el("a"), el("b", "?"), more="*"), el("z")), ["Z", "AZ", "ABAABZ"]),
        (sequence(sequence(el("a"), el("b", "?"), more="2"), el("z")), ["AZ", "ABAZ"]),
        (sequence(sequence(el("a", "?"), el("b", "?"), more="2"), el("z")), ["Z", "BZ", "ABAZ"]),
        (sequence('<xs:group ref="Spot" minOccurs="0"/>', el("z")), ["Z", "APZ", "AQZ"]),
        (sequence('<xs:group ref="Spot" minOccurs="0" maxOccurs="unbounded"/>', el("z")), ["Z", "APZ", "APAQZ"]),
        (sequence(OR_ELSE, el("z")), ["AZ", "ABZ", "CDBZ"]),
        (sequence(sequence(el("x"), OR_ELSE, more="*"), el("z")), ["Z", "XAZ", "XABXCDBZ"]),
        (sequence(sequence(el("a"), more="*"), el("b"), sequence(el("c"), more="*")), ["B", "AAB", "AABCC"]),
    ],
)
def test_groups_that_are_read(content: str, texts: list[str]) -> None:
    """All valid elements are read, so that the same are written."""
    for text in texts:
        inside = "".join(f"<{each.lower()}>{number}</{each.lower()}>" for number, each in enumerate(text))
        assert written(content, **read(content, inside).__values__) == inside


WILDCARD = '<xs:any namespace="##other" processContents="skip" {}/>'


@pytest.mark.parametrize(
    "more", ['minOccurs="0"', 'minOccurs="0" maxOccurs="9"', 'minOccurs="0" maxOccurs="unbounded"']
)
@pytest.mark.parametrize(
    ("after", "texts"),
    [
        (el("z"), ["Z", "OZ"]),
        (el("z", "?") + el("a", "?"), ["", "O", "Z", "OZ", "A", "OZA"]),
        (choice(el("a"), el("b")), ["A", "OB"]),
        (choice(sequence(el("a"), more="?"), el("b")) + el("z"), ["Z", "AZ", "OBZ", "OZ"]),
        (sequence(el("a", "?"), el("b", "?"), more="?") + el("z"), ["Z", "BZ", "OABZ"]),
        ('<xs:group ref="Spot"/>', ["AP", "OAQ"]),
    ],
)
def test_a_wildcard_before_other_elements(more: str, after: str, texts: list[str]) -> None:
    """It takes none that they may begin with."""
    content = sequence(WILDCARD.format(more) + after)
    for text in texts:
        inside = "".join(f"<{each.lower()}>{number}</{each.lower()}>" for number, each in enumerate(text))
        inside = inside.replace("<o>", '<o:o xmlns:o="urn:o">').replace("</o>", "</o:o>")
        assert written(content, **read(content, inside).__values__) == inside


def test_a_wildcard_that_must_occur() -> None:
    """It takes what it needs, whatever its name."""
    found = read(sequence('<xs:any processContents="skip"/>', el("z")), "<z>1</z><z>2</z>")
    assert (found._value_1.text, found.z) == ("1", 2)


def test_a_repeated_group_that_may_be_empty() -> None:
    """It ends where another element begins: zeep reads it as often as maxOccurs says, which may take all memory."""
    content = sequence('<xs:sequence maxOccurs="9">', el("a", "?"), el("b", "*"), "</xs:sequence>", el("z"))
    assert read(content, "<z>1</z>")._value_1 == []
    assert read(content, "<a>1</a><z>1</z>")._value_1 == [{"a": 1, "b": []}]


@pytest.mark.parametrize(
    ("content", "text", "said"),
    [
        (sequence(sequence(el("a"), el("b"), more="?"), el("z")), "<a>1</a><z>1</z>", "'z', expected 'b'"),
        (sequence(sequence(el("a"), more="2"), el("z")), "<z>1</z>", "'z', expected 'a'"),
        (sequence(OR_ELSE, el("z")), "<c>1</c><z>1</z>", "'c', expected 'z'"),
    ],
)
def test_groups_that_are_not_read(content: str, text: str, said: str) -> None:
    """Elements that are missing are an error."""
    with pytest.raises(zeep.exceptions.XMLParseError, match=f"Unexpected element {said}"):
        read(content, text)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (sequence(el("a", 'minOccurs="0" maxOccurs="9" nillable="true"')), f"<a>1</a>{NIL}<a>2</a>"),
        (sequence(el("a", 'maxOccurs="9" nillable="true"')), NIL),
        (sequence(el("a", 'nillable="true"', "Account")), NIL),
        (sequence(el("a", 'nillable="true"', "Money")), NIL),
        (sequence(el("a", 'maxOccurs="2" nillable="true"', "Account")), NIL * 2),
        (sequence(el("a", "?", "Empty")), ""),
        (sequence(el("a", "?", "Empty")), "<a/>"),
        (sequence(el("a", "*", "Loose")), "<a/><a><x>1</x></a><a/>"),
        (choice(el("a", type_="Empty"), el("b")), "<a/>"),
        (sequence(el("a", "?", "Numbers")), "<a></a>"),
        (sequence(el("a", "?", "Numbers")), ""),
    ],
)
def test_empty_elements(content: str, text: str) -> None:
    """An empty element, one with xsi:nil and a missing one are three different things."""
    element, holder = element_of(content), etree.Element("holder")
    element.render(holder, read(element, text))
    found = "".join(etree.tostring(each, encoding="unicode") for each in holder[0])
    assert found.replace(f' xmlns:xsi="{XSI[1:-1]}"', "").replace(' xmlns:ns0="urn:t"', "") == text


def test_none_in_a_list() -> None:
    """It is no value, and is not left out."""
    with pytest.raises(zeep.exceptions.ValidationError, match=r"None in a list, but .* not nillable \(r.a\)"):
        written(sequence(el("a", "*", "Account")), a=[A, None])


def test_defaults_of_attributes() -> None:
    """They are values of the types of the attributes."""
    attributes = "".join(
        f'<xs:attribute name="{name}" type="xs:{type_}" default="{text}"/>'
        for name, type_, text in (("paid", "boolean", "false"), ("number", "int", "7"), ("rate", "decimal", "1.50"))
    )
    found = read(f"{sequence(el('a'))}{attributes}", "<a>1</a>", 'number="8"')
    assert (found.paid, found.number, found.rate) == (False, 8, Decimal("1.50"))
    assert found.paid is False
    assert written(f"{sequence(el('a'))}{attributes}", a=1) == "<a>1</a>"


# Through a client and a service


TRANSFER: Final = {
    "amount": 1,
    "currency": "EUR",
    "from": {"iban": "DE1", "owner": "A"},
    "to": {"iban": "DE2", "owner": "B"},
    "on": "2026-01-02",
}


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Return a connection to a broker of the test's own."""
    with Broker("particles").connect() as connection:
        yield connection


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"to": [TRANSFER["to"]] * 2}, ArgumentsError, "Transfer: Transfer.to must be one value, got a list of 2; it"),
        (
            {"at": "2026-01-02T03:04:05"},
            ArgumentsError,
            "Transfer: Transfer: give on or at, not both; it takes: amount",
        ),
        ({"on": None}, zeep.exceptions.ValidationError, "Missing choice: give on or at"),
        ({"_value_1": [{"code": 1, "txt": "x"}]}, ArgumentsError, "there is no 'txt'; there are: code, text"),
    ],
)
def test_nothing_is_sent(connection: Connection, changes: Any, kind: type[Exception], said: str) -> None:
    """The error says what is wrong, once."""
    asked: list[Any] = []
    with (
        responder(connection, queue("bank"), lambda request: asked.append(request) or [answer_to(request)]),
        Client(BANK, connection=connection) as client,
        pytest.raises(kind, match=said),
    ):
        client.service.Transfer(**TRANSFER | changes)
    assert asked == []


RECEIPT: Final = {"number": 1, "booked": "2026-01-02T03:04:05"}


def test_an_answer_of_several_values(caplog: pytest.LogCaptureFixture, connection: Connection) -> None:
    """The caller learns that the service failed, and the log why."""
    service: TypedService = Service.from_wsdl(BANK)
    service.operation("Transfer")(lambda **values: {"receipt": [RECEIPT, RECEIPT]})
    with (
        Dispatcher(connection, service.port, service),
        Client(BANK, connection=connection) as client,
        pytest.raises(zeep.exceptions.Fault, match="the service failed"),
    ):
        client.service.Transfer(**TRANSFER)
    assert "TransferResponse.receipt must be one value, got a list of 2; it must return: " in caplog.text
