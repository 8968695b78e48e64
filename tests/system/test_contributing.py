"""CONTRIBUTING.md names what is there."""

from __future__ import annotations

import re
from itertools import chain

from places import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_files() -> None:
    """Every file and folder that it names exists; `ID` stands for the id of an assertion."""
    quoted = re.findall(r"`([^`\n]+)`", TEXT)
    words = chain.from_iterable(each.split() for each in [*quoted, *re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE)])
    named = {
        each for each in words if re.fullmatch(r"[\w.-]+(/[\w.-]+)+", each) and not each.startswith((".venv", "build"))
    }
    named |= set(re.findall(r"\]\(([^)#]+)\)", TEXT))
    assert len(named) > 30
    assert {each for each in named if not (ROOT / each).exists()} == {"tests/vectors/ID.json"}


def test_names() -> None:
    """So do the names in capitals, in the files of the product and its tools."""
    names = set(re.findall(r"`([A-Z]{3,}(?:_[A-Z]+)*)`", TEXT))
    assert names
    sources = [
        path.read_text("utf-8")
        for folder in ("soapjms", "brokers", "tools", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert {
        name for name in names if not any(re.search(rf"^{name}\b.*=", each, re.MULTILINE) for each in sources)
    } == set()


def test_targets() -> None:
    """And what it has `make` do."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"\bmake ([a-z-]+)", TEXT))
    assert {each for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)} == set()
