"""Fields of repeated groups: which values belong together is not lost, when they are read and when they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from codegen_kit import generated, small_wsdl
from lxml import etree

from soapjms.codegen.codec import from_element, to_element

MANY: Final = 'minOccurs="0" maxOccurs="unbounded"'


def el(name: str, more: str = "") -> str:
    """Write an element of a schema."""
    return f'<xs:element name="{name}" type="xs:int" {more}/>'


def group(*members: str, more: str = MANY, kind: str = "sequence") -> str:
    """Write a group of elements, which is repeated."""
    return f"<xs:{kind} {more}>{''.join(members)}</xs:{kind}>"


K, V, W, Z = (el(each) for each in "kvwz")
MAYBE_V: Final = el("v", 'minOccurs="0"')
LISTS: Final = {
    "Inner": (group(group(K, V), Z, more=""), "KVKVZ"),
    "Outer": (group(K, V, more='maxOccurs="9"'), "KVKV"),
    "Two": (group(group(K, V), Z, group(W, el("x")), more=""), "KVKVZWXWX"),
    "Nillable": (group(el("k", 'nillable="true"'), V), "NVKVNV"),
    "Reference": (group('<xs:group ref="t:Pair" maxOccurs="unbounded"/>', Z, more=""), "KVKVZ"),
}
"""Schemas whose repeated groups have an equal number of each element, and an example."""

ONE_LIST: Final = {
    "Absent": (group(group(K, MAYBE_V), Z, more=""), "KKVKZ", "k_or_v"),
    "AbsentOuter": (group(K, MAYBE_V, more='maxOccurs="9"'), "KKVK", "k_or_v"),
    "Several": (group(K, el("v", 'maxOccurs="3"')), "KVVKV", "k_or_v"),
    "Twice": (group(K, V, K), "KVKKVK", "k_or_v"),
    "Choice": (group(K, group(V, W, more="", kind="choice")), "KVKWKV", "k_or_v_or_w"),
    "InChoice": (group(group(K, V), W, more="", kind="choice"), "KVKV", "k_or_v_or_w"),
    "Nested": (group(K, group(V, W)), "KVWVWKKVW", "k_or_v_or_w"),
    "MaybeReference": (group('<xs:group ref="t:MaybePair" maxOccurs="unbounded"/>', Z, more=""), "KKVKZ", "k_or_v"),
}
"""Schemas that need one list, an example, and the field."""

GLOBAL: Final = (
    f'<xs:group name="Pair">{group(K, V, more="")}</xs:group>'
    f'<xs:group name="MaybePair">{group(K, MAYBE_V, more="")}</xs:group>'
    '<xs:element name="ask" type="xs:string"/><xs:element name="answer" type="xs:string"/>'
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Generate a package with a class for each content."""
    folder: Path = tmp_path_factory.mktemp("groups")
    elements = "".join(
        f'<xs:element name="{name}"><xs:complexType>{content}</xs:complexType></xs:element>'
        for name, (content, *_) in {**LISTS, **ONE_LIST}.items()
    )
    (folder / "small.wsdl").write_text(small_wsdl(GLOBAL + elements), encoding="utf-8")
    with generated(folder / "small.wsdl", folder, "small_groups") as package:
        yield package


@pytest.mark.parametrize("name", [*LISTS, *ONE_LIST])
def test_what_is_read_is_written(small: ModuleType, name: str) -> None:
    """The elements keep their order."""
    nil = '<k x:nil="true" xmlns:x="http://www.w3.org/2001/XMLSchema-instance"/>'
    inside = "".join(
        nil if each == "N" else f"<{each.lower()}>{number}</{each.lower()}>"
        for number, each in enumerate({**LISTS, **ONE_LIST}[name][1])
    )
    element = etree.fromstring(f'<{name} xmlns="urn:small">{inside}</{name}>')
    written = to_element(from_element(element, getattr(small, name)), getattr(small, name))
    assert [(each.tag, each.text) for each in written] == [(each.tag, each.text) for each in element]


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_different_length(small: ModuleType, name: str) -> None:
    """They are refused, when written and when read."""
    kind = getattr(small, name)
    said = f"{name} must have as many values of each of a repeated group, got of k 2, v 1"
    others, rest = ({"z": 1}, "<z>1</z>") if "z" in kind.__dataclass_fields__ else ({}, "")
    with pytest.raises(ValueError, match=said):
        to_element(kind(k=[1, 2], v=[3], **others), kind)
    with pytest.raises(ValueError, match=said):
        from_element(etree.fromstring(f'<{name} xmlns="urn:small"><k>1</k><v>3</v><k>2</k>{rest}</{name}>'), kind)


@pytest.mark.parametrize("name", ONE_LIST)
def test_the_name_of_one_list(small: ModuleType, name: str) -> None:
    """It has the names of all its elements, as that of a choice."""
    assert ONE_LIST[name][2] in getattr(small, name).__dataclass_fields__


def test_a_required_group(small: ModuleType) -> None:
    """It must have values, as a choice must."""
    with pytest.raises(ValueError, match="AbsentOuter lacks k_or_v"):
        to_element(small.AbsentOuter(), small.AbsentOuter)
    with pytest.raises(ValueError, match="MaybeReference lacks k_or_v"):
        to_element(small.MaybeReference(z=1), small.MaybeReference)
    assert len(to_element(small.Absent(z=1), small.Absent)) == 1
