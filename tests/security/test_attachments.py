"""Multipart messages under attack: many references to many parts take no longer than their number."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from lxml import etree

from soapjms.protocol.attachments import Attachments
from soapjms.protocol.attachments.parts import LONGEST_BASE, XOP_INCLUDE, Part
from soapjms.protocol.limits import DEFAULT_LIMITS

ROOT = Part({"content-location": "http://bank.example/a/envelope.xml"}, memoryview(b"<e/>"))


def message(parts: int, includes: int, root: Part = ROOT) -> tuple[Attachments, etree._Element]:
    """Make parts that are found by Content-Location, and an element with references to the last of them."""
    held = [Part({"content-location": f"{n}.png", "content-id": f"{n}@x"}, memoryview(b"")) for n in range(parts)]
    envelope = etree.Element("all")
    for _ in range(includes):
        etree.SubElement(etree.SubElement(envelope, "each"), XOP_INCLUDE, href=f"{parts - 1}.png")
    return Attachments(held, root), envelope


def seconds(work: Callable[[], Any]) -> float:
    """Return the processor time that something takes at best."""
    taken = []
    for _ in range(3):
        began = process_time()
        work()
        taken.append(process_time() - began)
    return min(taken)


def find_all(attachments: Attachments, root: etree._Element) -> None:
    """Look each reference up, as whoever reads the element does."""
    for each in root.iter(XOP_INCLUDE):
        assert attachments.find(each.get("href", "")) is not None


def test_time_does_not_grow_with_the_parts() -> None:
    """As many references take as long with fifty parts as with two."""
    few, many = (message(n, 5_000) for n in (2, DEFAULT_LIMITS.parts))
    assert seconds(lambda: find_all(*many)) < 5 * seconds(lambda: find_all(*few))


@pytest.mark.parametrize("length", [LONGEST_BASE, DEFAULT_LIMITS.header_octets])
def test_a_long_base(length: int) -> None:
    """A base that takes long to resolve a reference by is none."""
    base = ("http://x/" + "a/" * length)[:length]
    attachments, root = message(2, 5_000, Part({"content-location": base}, memoryview(b"<e/>")))
    assert seconds(lambda: find_all(attachments, root)) < 2


def test_first_of_several() -> None:
    """Of several parts of one name the first counts, by whichever form of its name it is found."""
    one, other = (Part({"content-id": each, "content-location": "a"}, memoryview(b"")) for each in ("a%41", "aA"))
    assert Attachments([one, other]).find("cid:a%41") is one
    assert Attachments([other, one]).find("cid:a%41") is other
    assert Attachments([one, other], ROOT).find("a") is one
    assert Attachments([one]).find("cid:b") is None
    assert Attachments([Part({}, memoryview(b""))]).find("b") is None
    assert Attachments([one], Part({}, memoryview(b""))).find("c") is None
