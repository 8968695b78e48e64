"""The generated pages are what the tables say today."""

from __future__ import annotations

import os
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
import trustme
from click.testing import CliRunner
from places import ROOT

from brokers.smqp.server.setup import Setup
from soapjms.cli.commands import soapjms as soapjms_command
from soapjms.protocol.names import FailureReason, Subcode
from soapjms.service.operations import Operations

URL = "stomp://admin:admin@localhost:61613"


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


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of the README runs as it stands, in one go; what needs zeep in tests/zeep/test_zeep_docs.py."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    blocks = [each for each in blocks if "soapjms.zeep" not in each]
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)
    lines = (tmp_path / "capture.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(blocks) == 3
    assert len(lines) == 4  # request and response, as the client and as the service saw them


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
    """Each cell of a page of promises has a mark that is explained there, or promises nothing; the tests exist."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    page, tests = text.split("## The tests")
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


def test_the_page_on_smqp_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/smqp.md runs as it stands; its setup file can be read."""
    text = (ROOT / "docs" / "smqp.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), "smqp.md", "exec"), {})
    (setup,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "b.password").write_text("x")
    (tmp_path / "smqp.toml").write_text(setup)
    assert Setup.read(tmp_path / "smqp.toml").context == "mq.example"


def test_the_page_on_bridges_runs() -> None:
    """The Python of docs/bridges.md runs as it stands."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "bridges.md").read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/bridges.md", "exec"), scope)
    assert isinstance(scope["service"], Operations)


@pytest.mark.parametrize("name", ["addressing", "middleware", "observing", "security", "services", "serving"])
def test_the_pages_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of a page runs as it stands, from top to bottom, where the files are that it names."""
    made = trustme.CA(key_type=trustme.KeyType.RSA).issue_cert("ann.example", key_type=trustme.KeyType.RSA)
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    for each in ("ann.pem", "bob.pem"):
        made.cert_chain_pems[0].write_to_path(tmp_path / each)
    for each, source in (("greeter.wsdl", "examples/greeter.wsdl"), ("bank.wsdl", "tests/data/wsdl/echo-soap11.wsdl")):
        (tmp_path / each).write_bytes((ROOT / source).read_bytes())
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text.replace(URL, "embedded:"), re.DOTALL)
    assert blocks
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, f"docs/{name}.md", "exec"), scope)


def test_the_page_on_generated_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/codegen.md runs as it stands, beside the package that it is about; so does its command."""
    text = (ROOT / "docs" / "codegen.md").read_text(encoding="utf-8")
    for name in ("bank.wsdl", "bank.xsd"):
        (tmp_path / name).write_bytes((ROOT / "tests/data/wsdl" / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"^\$ soapjms (wsdl generate .*)$", text, re.MULTILINE)
    done = CliRunner().invoke(soapjms_command, command.split())
    assert done.exit_code == 0, done.output
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    program += "import asyncio\nwith soapjms.connect('embedded:') as c, soapjms.Dispatcher(c, service.port, service):\n"
    program += "    assert asyncio.run(pay_async(c)).iban == 'DE1'\n"
    (tmp_path / "page.py").write_text(program, encoding="utf-8")
    words, paths = [sys.executable, "-W", "error", "page.py"], f"{ROOT}{os.pathsep}{tmp_path}"
    ran = subprocess.run(words, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stderr == ""
    assert ran.stdout in ("paid\n", "")  # the one-way message may come when the dispatcher has closed


def test_the_page_on_testing_runs(tmp_path: Path) -> None:
    """The tests of docs/testing.md pass in a project of somebody else's, with the plugin alone."""
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (tmp_path / "test_page.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "soapjms.testing.plugin", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout


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
    assert set(catalogue.table()["subcode"]) == set(Subcode)
    assert set(catalogue.table()["failure"]) == set(FailureReason)
    for section in ("error", "subcode", "failure"):
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
