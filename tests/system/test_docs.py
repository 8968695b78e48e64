"""The generated pages are what the tables say today."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from soapjms.protocol.names import FailureReason, Subcode


def test_generated_pages_are_current() -> None:
    """`tools/docs/generate.py --check` finds nothing out of date."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/docs/generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_the_readme_weighs_as_the_journey_did() -> None:
    """Each extra that it has, with the size that `make journey` wrote into docs/install.md; the others by name."""
    readme, install = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/install.md"))
    table = readme.partition("| extra |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| (\d+) \|", table, re.MULTILINE))
    measured = re.findall(r"^\| (?:`(\w+)`|none) \|[^|]*\|[^|]*\| (\d+) \|", install, re.MULTILINE)
    assert shown
    assert shown.items() <= dict(measured).items()
    others = readme.partition("The others (")[2].partition(")")[0]
    assert {*shown, *re.findall(r"`(\w+)`", others)} == dict(measured).keys() - {"", "parquet"}  # which is in `replay`
    assert re.search(rf"The core needs lxml alone and has {dict(measured)['']} MB\s", readme)


def test_every_requirement_of_amqp_has_a_test() -> None:
    """Each row of the two AMQP specifications has a test that names it, or says why there is none."""
    page = (ROOT / "docs" / "conformance-amqp.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:AT|WS)-\d\d) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert [name for name, _ in rows] == [f"AT-{n:02}" for n in range(1, 25)] + [f"WS-{n:02}" for n in range(1, 42)]
    assert [name for name, tests in rows if tests == "**none**"] == []


def test_every_requirement_of_smqp_has_a_test() -> None:
    """Each row of SMQP has a test that names it, or says why there is none; no test names a requirement that is not."""
    page = (ROOT / "docs" / "conformance-smqp.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (SM-\d{3}) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len(dict(rows)) == 203
    assert [name for name, tests in rows if tests == "**none**"] == []
    named = {
        f"SM-{number}"
        for path in (ROOT / "tests/adapters/smqp").glob("test_*.py")
        for number in re.findall(r"SM[-_](\d{3})", path.read_text("utf-8"))
    }
    assert named <= set(dict(rows))


@pytest.mark.parametrize(
    ("name", "widths", "excuse"),
    [("guarantees", {3, 4, 5}, r"not promised|^-$"), ("threat-model", {2}, r"\*not defended\*")],
)
def test_every_promise_has_a_test(name: str, widths: set[int], excuse: str) -> None:
    """Each cell of a page of promises has a mark that is explained there or beside it, or no promise; tests exist."""
    page, _, tests = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").partition("## The tests")
    tests = tests or (ROOT / "docs" / f"{name}-tests.md").read_text(encoding="utf-8")
    marks = dict(re.findall(r"^\| ([\w-]+) \| (.*) \|$", tests, re.MULTILINE))
    assert set(re.findall(r"\[([\w-]+)\](?!\()", page)) == set(marks)
    promised = page.split("## Defaults")[0]
    rows = [row.strip("|").split(" | ") for row in promised.splitlines() if re.match(r"\| [^|]", row)]
    assert [row for row in rows if len(row) not in widths] == []
    shown = re.compile(rf"\[[\w-]+\](?!\()|{excuse}")
    assert [
        cell for row in rows if row[1].strip() != "what happens" for cell in row[1:] if not shown.search(cell.strip())
    ] == []
    for mark, named in marks.items():
        found = re.findall(r"`(tests/[\w/]+/test_\w+\.py)::(test_\w+)`", named)
        assert found, mark
        for path, test in found:
            assert re.search(rf"def {test}\(", (ROOT / path).read_text(encoding="utf-8")), f"{path}::{test}"


@cache
def docs_module(name: str) -> Any:
    """Load a module that makes pages."""
    spec = spec_from_file_location(name, ROOT / "tools/docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def reference() -> dict[str, str]:
    """Make the pages of the reference, from the source: this takes seconds."""
    pages: dict[str, str] = docs_module("reference").pages()
    return pages


def test_the_error_catalogue_is_complete() -> None:
    """Every error class, every subcode and every failure reason has its cause and what to do; no row is of none."""
    catalogue = docs_module("catalogue")
    assert catalogue.gaps() == []
    assert {name for name, _, _ in catalogue.subcode_rows()} == {f"`{subcode}`" for subcode in Subcode}
    assert set(catalogue.table()["failure"]) == set(FailureReason)
    for section in ("error", "broker", "failure"):
        assert all(cause and remedy for cause, remedy in catalogue.table()[section].values())


@pytest.mark.parametrize("module", ["soapjms", "soapjms.zeep", "soapjms.testing", "soapjms.replay", "brokers"])
def test_the_reference_has_every_public_name(module: str) -> None:
    """With its docstring, if it is a class or a function."""
    pages = "".join(reference().values())
    public = import_module(module)
    for name in public.__all__:
        assert f"\n### {name}\n" in pages, name
        found = getattr(public, name)
        if isclass(found) or isfunction(found):
            first = (found.__doc__ or "").strip().splitlines()[0]
            assert first in pages, name


def test_the_reference_leads_where_it_says() -> None:
    """Its links lead to its own pages and to those of docs."""
    pages = reference()
    for name, text in pages.items():
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text):
            path = target.removeprefix("../")
            assert path in pages if path == target else (ROOT / "docs" / path).exists(), f"{name}: {target}"


def test_what_the_pages_refer_to_is_there() -> None:
    """Links to pages and headings, and the names of tests, data and examples."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
            path, _, heading = target.partition("#")
            there = page if not path else page.parent / path
            assert there.exists(), f"{page.name}: {target}"
            if heading:
                assert heading in headings(there), f"{page.name}: {target}"
        for name in re.findall(r"`((?:tests|examples|docs|benchmarks|scripts|tools|soapjms|brokers)/[\w./-]+)`", text):
            assert (ROOT / name).exists() or name == "docs/api/", f"{page.name}: {name}"
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name}" in index, f"docs/README.md leads nowhere to {page.name}"


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are in links."""
    lines = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-") for line in lines}
