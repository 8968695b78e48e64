"""Fields of choices: a required one must have a value, both when it is written and when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from codegen_kit import generated, small_wsdl
from lxml import etree

from soapjms.codegen import NIL
from soapjms.codegen.codec import from_element, to_element
from soapjms.protocol.envelope import is_nil

A, B, X = (f'<xs:element name="{each}" type="xs:int" {{}}/>' for each in "abx")
OPTIONAL: Final = 'minOccurs="0"'
MANY: Final = 'maxOccurs="unbounded"'
NILLABLE: Final = 'nillable="true"'
SPOT: Final = (
    '<xs:group name="Spot"><xs:choice><xs:element name="p" type="xs:int"/>'
    '<xs:element name="q" type="xs:int"/></xs:choice></xs:group>'
)


def choice(*members: str, more: str = "") -> str:
    """Write a choice."""
    return f"<xs:choice {more}>{''.join(each.replace('{}', '') for each in members)}</xs:choice>"


def sequence(*members: str, more: str = "") -> str:
    """Write a sequence."""
    return choice(*members, more=more).replace("xs:choice", "xs:sequence", 1)[: -len("choice>")] + "sequence>"


REQUIRED: Final = {
    "One": (choice(A, B), "a_or_b"),
    "Nested": (choice(choice(A, X), B), "a_or_x_or_b"),
    "InSequence": (sequence(X, choice(A, B)), "a_or_b"),
    "OfSequences": (choice(sequence(A, X.format(OPTIONAL)), B), "a_or_x_or_b"),
    "Repeated": (choice(A, B, more=MANY), "a_or_b"),
    "OfRepeated": (choice(A, B.format(MANY)), "a_or_b"),
    "InRepeated": (sequence(choice(A, B), more=MANY), "a_or_b"),
    "OfReferences": (choice('<xs:element ref="t:head"/>', B), "sub_or_head_or_b"),
}
NOT_REQUIRED: Final = {
    "MaybeOne": choice(A, B, more=OPTIONAL),
    "OptionalRepeated": choice(A, B, more=f"{OPTIONAL} {MANY}"),
    "OfOptional": choice(A.format(OPTIONAL), B),
    "OfOptionalRepeated": choice(A, B.format(f"{OPTIONAL} {MANY}")),
    "OfOptionalSequence": choice(sequence(A, X, more=OPTIONAL), B),
    "OfSequenceOfOptional": choice(sequence(A.format(OPTIONAL), X.format(OPTIONAL)), B),
    "OfOptionalChoice": choice(choice(A, X, more=OPTIONAL), B),
    "OfNillable": choice(A.format(NILLABLE), B),
    "InOptionalSequence": sequence(choice(A, B), more=OPTIONAL),
    "InOptionalGroup": sequence('<xs:group ref="t:Spot" minOccurs="0"/>'),
    "OfOptionalReference": choice('<xs:element ref="t:head" minOccurs="0"/>', B),
    "Substituted": sequence('<xs:element ref="t:head" minOccurs="0"/>'),
}
GLOBAL: Final = (
    '<xs:element name="head" type="xs:int"/><xs:element name="sub" type="xs:int" substitutionGroup="t:head"/>'
    '<xs:element name="ask" type="xs:string"/><xs:element name="answer" type="xs:string"/>'
)


def package_of(contents: dict[str, str], folder: Path, name: str) -> str:
    """Write a WSDL with an element for each content."""
    elements = "".join(
        f'<xs:element name="{each}"><xs:complexType>{content}</xs:complexType></xs:element>'
        for each, content in contents.items()
    )
    path = folder / f"{name}.wsdl"
    path.write_text(small_wsdl(GLOBAL + SPOT + elements), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Generate a package with a class for each content."""
    folder: Path = tmp_path_factory.mktemp("choices")
    contents = {name: content for name, (content, _) in REQUIRED.items()} | NOT_REQUIRED
    with generated(Path(package_of(contents, folder, "small")), folder, "small_choices") as package:
        yield package


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_choice(small: ModuleType, name: str) -> None:
    """The error names its field."""
    kind, (_, field) = getattr(small, name), REQUIRED[name]
    inside = "<x>1</x>" if name == "InSequence" else ""
    with pytest.raises(ValueError, match=f"{name} lacks .*{field}"):
        from_element(etree.fromstring(f'<{name} xmlns="urn:small">{inside}</{name}>'), kind)
    others = {"x": 1} if inside else {}
    for nothing in (None, []):
        with pytest.raises(ValueError, match=f"{name} lacks .*{field}|{field} must be"):
            to_element(kind(**{field: nothing}, **others), kind)


@pytest.mark.parametrize("name", NOT_REQUIRED)
def test_a_choice_that_may_be_empty(small: ModuleType, name: str) -> None:
    """It is written and read without a value."""
    kind = getattr(small, name)
    element = to_element(kind(), kind)
    assert (len(element), from_element(element, kind)) == (0, kind())


@pytest.mark.parametrize("more", ["", MANY])
@pytest.mark.parametrize("inside", ["<a>1</a>", "<s>1</s>", "<s>1.5</s>", "<s>text</s>", "<d>1.0</d>"])
def test_an_alternative_is_written_as_it_was_read(tmp_path: Path, inside: str, more: str) -> None:
    """The text `1` stays one, though it would be a number for an alternative before it."""
    others = '<xs:element name="d" type="xs:decimal"/>', '<xs:element name="s" type="xs:string"/>'
    path = package_of({"One": choice(A, *others, more=more)}, tmp_path, "typed")
    with generated(Path(path), tmp_path, "typed_choices") as package:
        read = from_element(etree.fromstring(f'<One xmlns="urn:small">{inside}</One>'), package.One)
        (found,) = to_element(read, package.One)
        assert f"<{etree.QName(found).localname}>{found.text}</" in inside


def test_a_nillable_alternative(tmp_path: Path) -> None:
    """NIL is sent as the first one that is nillable, and refused if none is."""
    text = '<xs:element name="s" type="xs:string"/>'
    path = package_of({"One": choice(A, text), "Nil": choice(text, A.format(NILLABLE))}, tmp_path, "nil")
    with generated(Path(path), tmp_path, "nil_choices") as package:
        found = to_element(package.Nil(s_or_a=NIL), package.Nil)
        assert [(each.tag, is_nil(each)) for each in found] == [("{urn:small}a", True)]
        assert from_element(found, package.Nil).s_or_a is None
        with pytest.raises(ValueError, match="a_or_s must not be NIL: its element is not nillable"):
            to_element(package.One(a_or_s=NIL), package.One)


@pytest.mark.parametrize("more", ["", MANY])
@pytest.mark.parametrize("inside", ["<l>x yz</l>", "<a>1</a>"])
def test_an_alternative_of_a_list_type(tmp_path: Path, inside: str, more: str) -> None:
    """All of its items are one value."""
    listed = '<xs:element name="l"><xs:simpleType><xs:list itemType="xs:string"/></xs:simpleType></xs:element>'
    path = package_of({"One": choice(A, listed, more=more)}, tmp_path, "listed")
    with generated(Path(path), tmp_path, "listed_choices") as package:
        read = from_element(etree.fromstring(f'<One xmlns="urn:small">{inside}</One>'), package.One)
        (found,) = to_element(read, package.One)
        assert f"<{etree.QName(found).localname}>{found.text}</" in inside


def test_an_alternative_without_elements(tmp_path: Path) -> None:
    """xsdata keeps no trace of it, so no choice of such a WSDL is taken for required."""
    contents = {"One": choice(A, B, sequence()), "Other": choice(A, B)}
    with generated(Path(package_of(contents, tmp_path, "empty")), tmp_path, "empty_choices") as package:
        for kind in (package.One, package.Other):
            assert from_element(to_element(kind(), kind), kind) == kind()
