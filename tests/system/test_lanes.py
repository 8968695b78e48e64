"""Each test has one lane of `make test`: the lanes of the Makefile name marks, and the folders to look in."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from places import ROOT, SUPPORT

MARKS = ("broker", "spark", "peer", "browser")
NO_LANE_OF_ITS_OWN = "test-oldest-zeep"
"""The lane that runs tests of other lanes again."""


class Lane(NamedTuple):
    """What a lane runs.

    Attributes:
        name: of its target.
        marks: which marks a test must have, as pytest's -m.
        places: the folders and files that it names; none are all.
        ignored: the folders that it leaves out.
    """

    name: str
    marks: str
    places: list[Path]
    ignored: list[Path]

    def has(self, path: Path, marks: set[str]) -> bool:
        """Say whether it runs the tests of a file that have these marks."""
        places = self.places or [ROOT / "tests"]
        is_there = any(map(path.is_relative_to, places)) and not any(map(path.is_relative_to, self.ignored))
        return is_there and eval(self.marks, {each: each in marks for each in (*MARKS, "soak")})


def lanes() -> list[Lane]:
    """Read the lanes that `make test` runs."""
    text = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    outside = re.search("^OUTSIDE := (.*)$", text, re.MULTILINE)
    assert outside is not None
    found = []
    for name, recipe in re.findall(r"^(test-[\w-]+):.*\n((?:\t.*\n)+)", text, re.MULTILINE):
        line = next(each for each in recipe.splitlines() if "pytest" in each)
        words = shlex.split(line.replace("$(OUTSIDE)", outside[1]).partition(" pytest ")[2] or line)
        places = [ROOT / each for each in words if (ROOT / each).exists()]
        ignored = [ROOT / each.partition("=")[2] for each in words if each.startswith("--ignore=")]
        found.append(Lane(name, words[words.index("-m") + 1], places, ignored))
    (run,) = re.findall(r"^test:.*\n\t.*?--jobs.*? (test-.*)$", text, re.MULTILINE)
    assert sorted(run.split()) == sorted(each.name for each in found)
    return [each for each in found if each.name != NO_LANE_OF_ITS_OWN]


def marks_in(text: str) -> set[str]:
    """Return the marks that a part of a program names."""
    return set(re.findall(r"\bmark\.(\w+)", text)) & set(MARKS)


def marks_of(path: Path, inherited: dict[str, set[str]]) -> set[str]:
    """Return the marks that tests of a file have."""
    text = path.read_text("utf-8")
    return marks_in(text).union(*(marks for name, marks in inherited.items() if name in text))


def marked_classes() -> dict[str, set[str]]:
    """Return the marks that tests have by a class that they inherit from, by its name."""
    found = {}
    for text in (path.read_text("utf-8") for path in SUPPORT.glob("*.py")):
        for node in ast.parse(text).body if marks_in(text) else []:
            if isinstance(node, ast.ClassDef) and (marks := marks_in(ast.unparse(node))):
                found[node.name] = marks
    return found


def test_each_test_has_one_lane() -> None:
    """Those without a mark, and those with each mark: none lies outside of the folders of its lane, or in two lanes."""
    inherited, known = marked_classes(), lanes()
    seen, astray = set[str](), []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        used = marks_of(path, inherited)
        seen |= used
        for marks in (set[str](), *({each} for each in sorted(used))):
            chosen = [each.name for each in known if each.has(path, marks)]
            if len(chosen) != 1:
                astray.append((path.relative_to(ROOT).as_posix(), marks, chosen))
    assert astray == []
    assert seen == set(MARKS)
